//! Rules about where files are, and which files must be there.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// Crates whose behaviour is a function of their inputs.
const DETERMINISTIC: [&str; 9] =
    ["core", "blocks", "store", "protocols", "groups", "runtime", "check", "sim", "explore"];

/// Their lints.
const LINTS: &str = "../../clippy-deterministic.toml";

const PROTOCOLS: &str = "crates/protocols/src";

/// Every source file is compiled: it is where a crate begins, or its parent names it.
///
/// Workspaces of their own (`bench`, `fuzz`) are not looked at: their manifests say where their files are.
pub fn dead_files(tree: &Tree) -> Vec<Finding> {
    let inside = |path: &str| path.starts_with("crates/") || path.starts_with("tests/");
    let files = tree.ending(".rs").filter(|(path, _)| inside(path));
    let dead = files.filter(|(path, _)| !is_crate_root(path) && !is_named(tree, path));
    dead.map(|(path, _)| Finding::new(path, 0, "no `mod` names this file: nothing compiles it")).collect()
}

fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(2).collect();
    matches!(
        parts[..],
        ["build.rs"]
            | ["src", "lib.rs" | "main.rs"]
            | ["src", "bin", _]
            | ["tests" | "examples" | "benches", _]
            | ["tests" | "examples" | "benches", _, "main.rs"]
    )
}

fn is_named(tree: &Tree, path: &str) -> bool {
    let module = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
    let Some((folder, name)) = module.rsplit_once('/') else { return false };
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|file| format!("{folder}/{file}"));
    let parents = parents.into_iter().chain([format!("{folder}.rs")]);
    let file = path.rsplit('/').next().unwrap_or(path);
    let named = |text: &str| {
        text.lines().map(str::trim).filter(|line| !line.starts_with("//")).any(|line| {
            let declared = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod "));
            declared.is_some_and(|(before, module)| {
                module == name && (before.is_empty() || before.ends_with(' '))
            }) || line.starts_with("#[path") && line.contains(file)
        })
    };
    // A test or an example is a crate of its own, and names the files in the folder beside it.
    let beside = ["/tests", "/examples", "/benches"].iter().any(|kind| folder.ends_with(kind));
    let siblings = tree.ending(".rs").filter(|(other, _)| {
        beside && *other != path && other.rsplit_once('/').is_some_and(|(home, _)| home == folder)
    });
    parents.filter_map(|parent| tree.texts.get(&parent).map(String::as_str)).any(named)
        || siblings.map(|(_, text)| text).any(named)
        || tree.ending(".rs").any(|(other, text)| is_reached(other, text, path))
}

/// Whether a file says `#[path = "../…"]` of another one, somewhere else in the repository.
fn is_reached(from: &str, text: &str, to: &str) -> bool {
    text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]")).any(|path| {
        let mut folders: Vec<&str> = from.split('/').collect();
        folders.pop();
        for step in path.split('/') {
            match step {
                ".." => drop(folders.pop()),
                step => folders.push(step),
            }
        }
        folders.join("/") == to
    })
}

/// Crates that must be deterministic are linked to the lints that see to it.
pub fn deterministic_lints(tree: &Tree) -> Vec<Finding> {
    let links = DETERMINISTIC.map(|name| format!("crates/{name}/clippy.toml"));
    let bare = links.iter().filter(|path| tree.links.get(*path).is_none_or(|target| target != LINTS));
    bare.map(|path| Finding::new(path, 0, format!("make it a link: ln -s {LINTS} {path}"))).collect()
}

/// Every folder of the protocols has a floor plan, and every protocol is in the registry.
pub fn registry(tree: &Tree) -> Vec<Finding> {
    let path = format!("{PROTOCOLS}/registry.rs");
    let Some(registry) = tree.texts.get(&path) else {
        return vec![Finding::new(&path, 0, "the registry is missing")];
    };
    let sources = tree.ending(".rs").filter_map(|(path, text)| Some((path.strip_prefix(PROTOCOLS)?, text)));
    let sources: Vec<_> = sources.collect();
    let folder = |path: &'_ str| Some(path.strip_prefix('/')?.rsplit_once('/')?.0.to_owned());
    let folders: BTreeSet<String> = sources.iter().filter_map(|(path, _)| folder(path)).collect();
    let bare = folders.into_iter().map(|folder| format!("{PROTOCOLS}/{folder}"));
    let bare =
        bare.filter(|folder| !tree.has(&format!("{folder}/mod.rs")) && !tree.has(&format!("{folder}.rs")));
    let mut findings: Vec<_> =
        bare.map(|folder| Finding::new(&folder, 0, "give the folder a mod.rs")).collect();
    let is_protocol = |text: &str| text.lines().any(|line| line.starts_with("impl Protocol for "));
    for (file, _) in sources.into_iter().filter(|(_, text)| is_protocol(text)) {
        let module = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs")).unwrap_or(file);
        if !registry.contains(&format!("crate{}::", module.replace('/', "::"))) {
            let message = format!("the protocol of {PROTOCOLS}{file} is not in the registry");
            findings.push(Finding::new(&path, 0, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn a_file_that_nothing_names_is_found() {
        let tree = tree(&[
            ("crates/a/build.rs", ""),
            (
                "crates/a/src/lib.rs",
                "mod used;\n// mod dead;\npub mod folder;\npub(crate) mod beside;\nsubmod shadow;",
            ),
            ("crates/a/src/used.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/src/shadow.rs", ""),
            ("crates/a/src/folder/mod.rs", "mod inner;\n#[path = \"renamed.rs\"]\nmod other;"),
            ("crates/a/src/folder/inner.rs", ""),
            ("crates/a/src/folder/used.rs", ""),
            ("crates/a/src/folder/renamed.rs", ""),
            ("crates/a/src/beside.rs", "mod below;"),
            ("crates/a/src/beside/below.rs", ""),
            ("crates/a/src/lost/mod.rs", ""),
            ("crates/a/tests/one.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/a/tests/unused/mod.rs", ""),
            ("crates/a/tests/big/main.rs", "mod part;"),
            ("crates/a/tests/big/part.rs", ""),
            ("crates/a/examples/show.rs", ""),
            ("crates/a/tests/far.rs", "#[path = \"../../../tests/there/far.rs\"]\nmod far;"),
            ("tests/there/far.rs", ""),
            ("tests/there/lost.rs", ""),
        ]);
        let expected = [
            "crates/a/src/dead.rs:0",
            "crates/a/src/folder/used.rs:0",
            "crates/a/src/lost/mod.rs:0",
            "crates/a/src/shadow.rs:0",
            "crates/a/tests/unused/mod.rs:0",
            "tests/there/lost.rs:0",
        ];
        assert_eq!(places(dead_files, &tree), expected);
    }

    #[test]
    fn a_deterministic_crate_without_its_lints_is_found() {
        let mut tree = tree(&[("crates/store/clippy.toml", "# a copy")]);
        for name in ["core", "blocks", "protocols", "groups", "runtime", "check", "explore"] {
            tree.links.insert(format!("crates/{name}/clippy.toml"), LINTS.to_owned());
        }
        tree.links.insert("crates/sim/clippy.toml".to_owned(), "../../elsewhere.toml".to_owned());
        let expected = ["crates/store/clippy.toml:0", "crates/sim/clippy.toml:0"];
        assert_eq!(places(deterministic_lints, &tree), expected);
    }

    #[test]
    fn a_protocol_without_a_floor_plan_or_a_registration_is_found() {
        let registered = "registry! { crate::family::good::Good, crate::plain::Plain }";
        let protocol = "//! What.\nimpl Protocol for Some {";
        let tree = tree(&[
            ("crates/protocols/src/registry.rs", registered),
            ("crates/protocols/src/family/mod.rs", ""),
            ("crates/protocols/src/family/engine/mod.rs", ""),
            ("crates/protocols/src/family/good/mod.rs", protocol),
            ("crates/protocols/src/family/good/replica.rs", ""),
            ("crates/protocols/src/family/good/replica/tests.rs", ""),
            ("crates/protocols/src/family/good/traces/run.txt", ""),
            ("crates/protocols/src/plain/replica.rs", ""),
            ("crates/protocols/src/family/lonely/mod.rs", protocol),
        ]);
        let expected = ["crates/protocols/src/plain:0", "crates/protocols/src/registry.rs:0"];
        assert_eq!(places(registry, &tree), expected);
        assert_eq!(places(registry, &super::super::tests::tree(&[])), ["crates/protocols/src/registry.rs:0"]);
    }
}
