//! Rules about who may use what: the crates of the workspace, the blocks, the families of protocols.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Tree, text};

/// The page whose table of folders says which crate may use which.
const PLAN: &str = "ARCHITECTURE.md";
const BLOCKS: &str = "crates/blocks/src/";
const PROTOCOLS: &str = "crates/protocols/src/";

/// Each crate uses those that its row in the floor plan names (`all`: any), and no others; it names only crates of rows
/// above its own, so dependencies point one way. What only tests need may be any.
pub fn dependencies(tree: &Tree) -> Vec<Finding> {
    let plan = tree.texts.get(PLAN).map_or("", String::as_str);
    let rows: Vec<_> =
        (1..).zip(plan.lines()).filter_map(|(line, row)| Some((line, plan_row(row)?))).collect();
    let place = |name: &str| rows.iter().position(|(_, (other, _))| *other == name);
    let mut findings = Vec::new();
    for (manifest, text) in tree.ending("/Cargo.toml") {
        let Some(name) = manifest.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some(own) = place(name) else {
            findings.push(Finding::new(
                PLAN,
                0,
                format!("the table of folders has no row for `crates/{name}`"),
            ));
            continue;
        };
        let (line, (_, may)) = rows[own];
        let used = used_crates(text);
        let named: BTreeSet<&str> = may.split('`').skip(1).step_by(2).collect();
        for (at, other) in &used {
            if !may.starts_with("all") && !named.contains(other) {
                let message = format!("`{name}` may not use `{other}`: see the table of folders in {PLAN}");
                findings.push(Finding::new(manifest, *at, message));
            } else if place(other).is_none_or(|other| other >= own) {
                let message =
                    format!("dependencies point one way: `{other}` has no row above that of `{name}`");
                findings.push(Finding::new(PLAN, line, message));
            }
        }
        let unused = named
            .iter()
            .filter(|other| !may.starts_with("all") && used.iter().all(|(_, used)| used != *other));
        findings
            .extend(unused.map(|other| Finding::new(PLAN, line, format!("`{name}` does not use `{other}`"))));
    }
    findings
}

/// The crate and the last cell of a row of the floor plan.
fn plan_row(row: &str) -> Option<(&str, &str)> {
    let rest = row.strip_prefix("| `crates/")?;
    let (name, rest) = rest.split_once('`')?;
    Some((name, rest.strip_suffix('|')?.rsplit_once('|')?.1.trim()))
}

/// The crates of the workspace that a manifest names under `[dependencies]`, and the lines.
fn used_crates(manifest: &str) -> Vec<(usize, &str)> {
    let lines = (1..).zip(manifest.lines()).skip_while(|(_, line)| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with('['));
    lines
        .filter_map(|(at, line)| Some((at, line.strip_prefix("quorate-")?.split(['.', ' ']).next()?)))
        .collect()
}

/// A block is named by two families of protocols, or by a family and a driver, directly or through blocks that are
/// composed of it. What has one customer belongs to that customer.
pub fn customers(tree: &Tree) -> Vec<Finding> {
    let lib = format!("{BLOCKS}lib.rs");
    let lines = (1..).zip(tree.texts.get(&lib).map_or("", String::as_str).lines());
    let blocks: BTreeMap<&str, usize> = lines
        .filter_map(|(at, line)| Some((line.strip_prefix("pub mod ")?.strip_suffix(';')?, at)))
        .collect();
    let mut customers = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut through = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let inside = path.strip_prefix(BLOCKS).and_then(|path| path.split(['/', '.']).next());
        let prefix = if inside.is_some() { "crate::" } else { "quorate_blocks::" };
        let Some(user) = inside.or_else(|| customer(path)) else { continue };
        for block in first_names(&text::code_of(text), prefix) {
            let Some((block, _)) = blocks.get_key_value(block.as_str()) else { continue };
            match inside {
                Some(user) => through.push((user, block)),
                None => drop(customers.entry(block).or_default().insert(user)),
            }
        }
    }
    // A block has the customers of the blocks that name it; as often as a chain of blocks may be long.
    for _ in 0..blocks.len() {
        for (user, block) in &through {
            let inherited = customers.get(user).cloned().unwrap_or_default();
            customers.entry(block).or_default().extend(inherited);
        }
    }
    let few = blocks.iter().filter_map(|(block, at)| {
        let users = customers.remove(block).unwrap_or_default();
        let users: Vec<_> = users.into_iter().collect();
        (users.len() < 2).then(|| {
            let who = users.first().map_or("nobody".to_owned(), |user| format!("only {user}"));
            Finding::new(&lib, *at, format!("{who} uses the block `{block}`: a block has two customers"))
        })
    });
    few.collect()
}

/// To whom a source file outside of the blocks belongs: a family of protocols, or a crate. Tests are nobody's.
fn customer(path: &str) -> Option<&str> {
    match path.strip_prefix(PROTOCOLS) {
        Some(path) => path.split_once('/').map(|(family, _)| family),
        None => path.strip_prefix("crates/")?.split_once("/src/").map(|(name, _)| name),
    }
}

/// A family of protocols names no other family: what they share is a block.
pub fn families(tree: &Tree) -> Vec<Finding> {
    let inside = |path| str::strip_prefix(path, PROTOCOLS).and_then(|path| path.split_once('/'));
    let families: BTreeSet<&str> =
        tree.ending(".rs").filter_map(|(path, _)| inside(path)).map(|(family, _)| family).collect();
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some((own, _)) = inside(path) else { continue };
        for other in first_names(&text::code_of(text), "crate::") {
            if other != own && families.contains(other.as_str()) {
                let message =
                    format!("the family `{own}` names the family `{other}`: what they share is a block");
                findings.push(Finding::new(path, 0, message));
            }
        }
    }
    findings
}

/// The names that directly follow a prefix such as `crate::`, those of a list in braces too.
fn first_names(code: &str, prefix: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            names.insert(word(rest));
            continue;
        };
        let (mut depth, mut start) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    names.insert(word(&list[at..]));
                    start = false;
                }
                _ => {}
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    const TABLE: &str = "| folder | what | may use |\n|---|---|---|\n| `crates/core` | a | nothing |\n\
        | `crates/store` | `b` | `core` |\n| `crates/sim` | c | `core`, `store` |\n| `crates/cli` | d | all but tests |\n";

    fn manifest(dependencies: &str) -> String {
        format!(
            "[package]\nname = \"x\"\n\n[dependencies]\n{dependencies}\n[dev-dependencies]\nquorate-any = \"1\"\n"
        )
    }

    fn crates(plan: &str, crates: &[(&str, &str)]) -> Vec<String> {
        let manifests: Vec<_> =
            crates.iter().map(|(name, used)| (format!("crates/{name}/Cargo.toml"), manifest(used))).collect();
        let files = manifests.iter().map(|(path, text)| (path.as_str(), text.as_str())).chain([(PLAN, plan)]);
        places(dependencies, &tree(&files.collect::<Vec<_>>()))
    }

    #[test]
    fn a_crate_that_uses_more_or_less_than_its_row_says_is_found() {
        let core = ("core", "bytes = \"1\"");
        let store = ("store", "quorate-core.workspace = true");
        let sim = (
            "sim",
            "quorate-core.workspace = true\nquorate-store = { workspace = true, features = [\"f\"] }",
        );
        let cli = ("cli", "quorate-sim.workspace = true");
        assert_eq!(crates(TABLE, &[core, store, sim, cli]), [""; 0]);
        let upwards = ("store", "quorate-core.workspace = true\nquorate-sim.workspace = true");
        assert_eq!(crates(TABLE, &[core, upwards, sim]), ["crates/store/Cargo.toml:6"]);
        assert_eq!(
            crates(TABLE, &[core, store, ("sim", "quorate-core.workspace = true")]),
            ["ARCHITECTURE.md:5"]
        );
        assert_eq!(crates(TABLE, &[("other", "")]), ["ARCHITECTURE.md:0"]);
    }

    #[test]
    fn a_row_that_names_a_crate_below_it_is_found() {
        let plan = TABLE.replace("| a | nothing |", "| a | `store` |");
        assert_eq!(crates(&plan, &[("core", "quorate-store.workspace = true")]), ["ARCHITECTURE.md:3"]);
    }

    /// The first block is of two families, and `one` of these too, through it; `few` is of one, which also tests it.
    #[test]
    fn a_block_with_one_customer_is_found() {
        let tree = tree(&[
            (
                "crates/blocks/src/lib.rs",
                "//! What.\npub mod both;\npub mod few;\npub mod none;\npub mod one;",
            ),
            ("crates/blocks/src/both.rs", "use crate::one::{A, few};"),
            ("crates/blocks/src/none.rs", "// crate::few"),
            ("crates/blocks/src/few/deep.rs", "use crate::few::B;"),
            ("crates/protocols/src/raft/mod.rs", "use quorate_blocks::{\n    both::{few, C},\n    few,\n};"),
            ("crates/protocols/src/raft/replica.rs", "use quorate_blocks::few::C;"),
            (
                "crates/protocols/src/paxos/engine/mod.rs",
                "fn f(x: quorate_blocks::both::C) {} // quorate_blocks::few",
            ),
            ("crates/sim/tests/t.rs", "use quorate_blocks::few;"),
        ]);
        assert_eq!(places(customers, &tree), ["crates/blocks/src/lib.rs:3", "crates/blocks/src/lib.rs:4"]);
    }

    #[test]
    fn a_family_that_names_another_is_found() {
        let tree = tree(&[
            ("crates/protocols/src/registry.rs", "crate::raft::Raft, crate::paxos::Paxos"),
            ("crates/protocols/src/raft/mod.rs", "use crate::raft::log;"),
            ("crates/protocols/src/paxos/engine.rs", "use crate::{paxos::A, raft::log::B};"),
        ]);
        assert_eq!(places(families, &tree), ["crates/protocols/src/paxos/engine.rs:0"]);
    }
}
