//! `cargo xtask new-protocol NAME`: a new protocol that works at once. It begins as `primary-copy` under another name,
//! so what it begins as is a protocol of the registry, which every test and the gate know: it is simulated, and the
//! commands on its page are executed, `quorate up` among them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::tidy::Tree;

/// The template, as texts spell it.
const TEMPLATE: [&str; 3] = ["primary-copy", "primary_copy", "PrimaryCopy"];

/// What is copied: files, and folders with everything in them.
const COPIED: [&str; 3] = [
    "crates/protocols/src/primary_copy/",
    "docs/protocols/primary-copy.md",
    "crates/sim/tests/mutations/primary_copy.rs",
];

/// Where protocols are listed: what names the template is repeated with the new name.
const LISTS: [&str; 4] = [
    "crates/protocols/src/lib.rs",
    "crates/protocols/src/registry.rs",
    "crates/sim/tests/mutations/main.rs",
    "docs/protocols/README.md",
];

/// Names that no module can have.
const KEYWORDS: &str = " abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct \
    super trait true try type typeof unsafe unsized use virtual where while yield ";

/// Longer names would break lines that are full.
const MAX_NAME: usize = 20;

/// Writes the files of a new protocol, and says what to do with them.
pub fn new_protocol(root: &Path, name: &str) -> ExitCode {
    let written = match write(root, name) {
        Ok(written) => written,
        Err(error) => {
            eprintln!("cargo xtask new-protocol: {error}");
            return ExitCode::from(2);
        }
    };
    for path in &written {
        println!("{path}");
    }
    let [_, module, _] = spellings(name);
    println!("\n{name} works as it is; change it from crates/protocols/src/{module}/mod.rs on:");
    println!("  cargo run --release -- sim --protocol {name} --runs 100");
    println!("  cargo run --release -- up --protocol {name}");
    println!("  cargo test -p quorate-sim --test traces {module}");
    ExitCode::SUCCESS
}

fn write(root: &Path, name: &str) -> Result<Vec<String>, String> {
    let tree = Tree::read(root).map_err(|error| format!("cannot read the repository: {error}"))?;
    let files = plan(&tree.texts, name)?;
    for (path, text) in &files {
        let file = root.join(path);
        let folder = file.parent().expect("a file is in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, text))
            .map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    // Names are of other lengths and sort elsewhere.
    match Command::new("cargo").args(["fmt", "--all"]).current_dir(root).status() {
        Ok(status) if status.success() => Ok(files.into_keys().collect()),
        _ => Err("the files are written; `cargo fmt --all` failed on them".to_owned()),
    }
}

/// The files that are new or changed, given all texts of the repository by path.
fn plan(texts: &BTreeMap<String, String>, name: &str) -> Result<BTreeMap<String, String>, String> {
    let words = || name.split('-');
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    if !words().all(is_word) || name.len() > MAX_NAME {
        return Err(format!(
            "`{name}` cannot name a protocol: write at most {MAX_NAME} letters and digits in words that begin with a \
             letter, such as chain-replication"
        ));
    }
    let [_, module, _] = spellings(name);
    let page = format!("docs/protocols/{name}.md");
    let begins = format!("crates/protocols/src/{module}");
    let is_taken = |path: &String| {
        *path == page || path.strip_prefix(&begins).is_some_and(|rest| rest.starts_with(['/', '.']))
    };
    if KEYWORDS.contains(&format!(" {module} ")) || texts.keys().any(is_taken) {
        return Err(format!("`{name}` is taken: choose another name"));
    }
    let copied = texts.iter().filter(|(path, _)| COPIED.iter().any(|copied| path.starts_with(copied)));
    let mut files: BTreeMap<_, _> =
        copied.map(|(path, text)| (renamed(path, name), renamed(&without_origin(text), name))).collect();
    for path in LISTS {
        let text = texts.get(path).ok_or_else(|| format!("{path} is missing"))?;
        files.insert(path.to_owned(), listed(text, name));
    }
    Ok(files)
}

/// The name as texts spell it, in the order of [`TEMPLATE`].
fn spellings(name: &str) -> [String; 3] {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    [name.to_owned(), name.replace('-', "_"), name.split('-').map(capital).collect()]
}

fn renamed(text: &str, name: &str) -> String {
    let names = TEMPLATE.into_iter().zip(spellings(name));
    names.fold(text.to_owned(), |text, (old, new)| text.replace(old, &new))
}

/// Without the lines that say what the template is for.
fn without_origin(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.contains("cargo xtask new-protocol")).collect()
}

/// A list with the new name behind the template's: in the same cell of a table of settings, else in a line of its own,
/// or in as many as the template has up to the brace that closes.
fn listed(text: &str, name: &str) -> String {
    let mut out = String::new();
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let cell = format!("`{}`", TEMPLATE[0]);
        if !TEMPLATE.iter().any(|template| line.contains(template)) {
            out.push_str(line);
        } else if line.starts_with("| `") && line.contains(&cell) {
            out.push_str(&line.replace(&cell, &format!("{cell}, `{name}`")));
        } else {
            let mut block = line.to_owned();
            if line.trim_end().ends_with('{') {
                let indent = &line[..line.len() - line.trim_start().len()];
                for line in lines.by_ref() {
                    block.push_str(line);
                    if line.strip_prefix(indent).is_some_and(|rest| rest.starts_with('}')) {
                        break;
                    }
                }
            }
            out.push_str(&block);
            out.push_str(&renamed(&block, name));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{BufRead, BufReader};
    use std::path::PathBuf;
    use std::process::{Child, Stdio};

    use super::*;

    fn tree() -> Tree {
        Tree::read(crate::root()).unwrap()
    }

    #[test]
    fn a_new_protocol_is_the_template_under_its_own_name() {
        let tree = tree();
        let files = plan(&tree.texts, "chain-two").unwrap();
        let copies = files.iter().filter(|(path, _)| !LISTS.contains(&path.as_str()));
        let mut count = 0;
        for (path, text) in copies {
            assert!(!tree.has(path), "{path} was there before");
            let back = |text: &str| {
                text.replace("chain-two", TEMPLATE[0])
                    .replace("chain_two", TEMPLATE[1])
                    .replace("ChainTwo", TEMPLATE[2])
            };
            assert_eq!(back(text), without_origin(&tree.texts[&back(path)]), "{path}");
            count += 1;
        }
        assert!(count >= 6, "code, messages, invariants, a trace, mutations, a page: {count} files");
        for path in LISTS {
            assert!(files[path].contains("chain_two") || files[path].contains("chain-two"), "{path}");
        }
    }

    /// Removes files of a folder that are not among these: of an earlier copy, which the repository has no longer.
    fn remove_others(folder: &Path, spared: &Path, kept: &BTreeSet<PathBuf>) {
        for path in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && path != spared {
                remove_others(&path, spared, kept);
            } else if path.is_file() && !kept.contains(&path) {
                fs::remove_file(&path).unwrap();
            }
        }
    }

    /// In a copy of the repository that stays where it is, so that what has not changed is not compiled again. The
    /// crates of others are taken from what was compiled for this test, so the profile is the same; ours are not
    /// optimized, since they run less long than they are compiled.
    #[test]
    fn a_new_protocol_is_built_simulated_and_served() {
        let mut files = tree().texts;
        files.extend(plan(&files, "chain-two").unwrap());
        let test = std::env::current_exe().unwrap();
        let copy = test.ancestors().nth(3).expect("a test is in target/PROFILE/deps").join("new-protocol");
        files.insert("Cargo.lock".to_owned(), fs::read_to_string(crate::root().join("Cargo.lock")).unwrap());
        remove_others(&copy, &copy.join("target"), &files.keys().map(|path| copy.join(path)).collect());
        for (path, text) in files {
            let path = copy.join(path);
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        let target = copy.join("target");
        let output = |command: &mut Command| {
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(output.status.success(), "{command:?}: {}", said.concat());
            said.concat()
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--offline", "--workspace", "--bin", "quorate", "--profile", "test"]);
        for ours in fs::read_dir(copy.join("crates")).unwrap() {
            let package = match ours.unwrap().file_name().to_string_lossy() {
                name if name == "cli" => "quorate".to_owned(),
                name if name == "xtask" => continue,
                name => format!("quorate-{name}"),
            };
            let profile = format!("profile.test.package.{package}");
            build.args(["--config", &format!("{profile}.opt-level=0")]);
            build.args(["--config", &format!("{profile}.debug=false")]);
        }
        output(
            build
                .env("CARGO_TARGET_DIR", &target)
                .env("CARGO_BUILD_BUILD_DIR", test.ancestors().nth(3).expect("as above"))
                .current_dir(&copy),
        );
        let quorate = |words: &str| {
            let mut command = Command::new(target.join("debug/quorate"));
            command.args(words.split(' ')).stdin(Stdio::null());
            command
        };
        output(&mut quorate("sim --protocol chain-two --runs 100"));

        let up = quorate("up --protocol chain-two --json").stdout(Stdio::piped()).spawn().unwrap();
        let mut up = Stopped(up);
        let mut started = String::new();
        BufReader::new(up.0.stdout.as_mut().expect("it is piped")).read_line(&mut started).unwrap();
        let started: serde_json::Value = serde_json::from_str(&started).unwrap();
        let nodes = started["nodes"].as_array().unwrap().iter();
        let addresses: Vec<_> = nodes.map(|node| node["resp"].as_str().unwrap()).collect();
        output(&mut quorate(&format!("put k v --endpoints {}", addresses[0])));
        for address in addresses {
            assert_eq!(
                output(&mut quorate(&format!("get k --endpoints {address}"))).trim(),
                "v",
                "{address}"
            );
        }
    }

    /// A cluster, which ends its nodes when it is told to end.
    struct Stopped(Child);

    impl Drop for Stopped {
        fn drop(&mut self) {
            let pid = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_repository_is_tidy_with_a_new_protocol() {
        let mut tree = tree();
        let files = plan(&tree.texts, "chain-two").unwrap();
        tree.texts.extend(files);
        let findings: Vec<_> = tree.check().iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }

    #[test]
    fn lists_name_the_new_protocol_behind_the_template() {
        let list = "all! {\n    primary_copy: PrimaryCopy {\n        x,\n    },\n    raft: Raft { },\n}\n\
                    | `t` | `1` | all but `primary-copy`, `epaxos` | What |\n| [primary-copy](primary-copy.md) |\n";
        let with = "all! {\n    primary_copy: PrimaryCopy {\n        x,\n    },\n    \
                    a_b: AB {\n        x,\n    },\n    raft: Raft { },\n}\n\
                    | `t` | `1` | all but `primary-copy`, `a-b`, `epaxos` | What |\n\
                    | [primary-copy](primary-copy.md) |\n| [a-b](a-b.md) |\n";
        assert_eq!(listed(list, "a-b"), with);
    }

    #[test]
    fn names_that_cannot_be_are_refused_with_what_can() {
        let tree = tree();
        for name in ["", "Chain", "a--b", "2pc", "a_b", "a-much-too-long-name-for-it"] {
            assert!(plan(&tree.texts, name).unwrap_err().contains("such as chain-replication"), "{name}");
        }
        for name in ["raft", "epaxos", "registry", "paxos", "loop", "primary-copy"] {
            assert!(plan(&tree.texts, name).unwrap_err().contains("is taken"), "{name}");
        }
    }
}
