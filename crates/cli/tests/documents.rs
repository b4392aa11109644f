//! Every command of a document is executed; where that is not possible, it is checked as far as it can be without.
//!
//! A fenced block of shell commands says what becomes of it, after `sh`:
//!
//! | word | what becomes of the block |
//! |---|---|
//! | `run` | executed in an empty directory; it must end with 0 |
//! | `up` | one `quorate up …`, which runs until the document's next one, or its end |
//! | `cluster` | executed beside the cluster of the `up` before it, or of a plain one |
//! | `nodes` | executed as on several machines (`support/machines.rs` says how); nodes run to the document's end |
//! | `beside` | the same, beside the nodes that the `nodes` of docs/START.md start |
//! | `after` | the same, when all nodes so far are dead |
//! | `repository` | executed in the root of the repository |
//! | `checked WHY` | not executed, and no command of this program: packages, tests and tasks that it names exist |
//!
//! WHY is `builds`, `measures` (for minutes, on a quiet machine), or `writes` (into the sources). A block of another
//! language, behind which a file's name follows, is that file, beside the commands of its document.
//!
//! Commands are executed with this build's `quorate`, and with less work: few runs, short measurements, one protocol in
//! place of several. Of a command in a sentence, in backquotes, or among other text, subcommands, flags, packages and
//! tests are looked up; the examples of `--help` are executed by `examples.rs`.

#[path = "support/commands.rs"]
mod execution;
#[path = "support/machines.rs"]
mod machines;
#[path = "../../xtask/src/tidy/markdown.rs"]
#[allow(dead_code, reason = "the style test uses the rest")]
mod markdown;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use execution::{Up, execute, run};
use machines::Session;
use markdown::Block;

const CLASSES: [&str; 10] = [
    "run",
    "up",
    "cluster",
    "nodes",
    "beside",
    "after",
    "repository",
    "checked builds",
    "checked measures",
    "checked writes",
];

/// The document that says how a cluster of several machines is started.
const START: &str = "docs/START.md";

/// Languages of blocks of commands.
const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];

/// What commands among other text begin with.
const PROGRAMS: [&str; 4] = ["quorate ", "cargo ", "redis-cli ", "time cargo "];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// The documents of the repository, by path.
fn documents() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let made = [".git", "target", "node_modules", "corpus"].contains(&name.as_str());
            if entry.file_type().unwrap().is_dir() && !made {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.insert(path.clone(), std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The blocks of shell commands of a document, each with its class and what follows that.
fn blocks(text: &str) -> Vec<(String, Block<'_>)> {
    let (_, blocks) = markdown::parse(markdown::document(text));
    let shell = |block: &Block| SHELLS.contains(&language(block));
    let class = |block: &Block| block.info.split(' ').skip(1).collect::<Vec<_>>().join(" ");
    blocks.into_iter().filter(|block| shell(block)).map(|block| (class(&block), block)).collect()
}

fn language<'a>(block: &Block<'a>) -> &'a str {
    block.info.split(' ').next().unwrap_or_default()
}

/// A block's commands without their comments, one a line.
fn commands(block: &Block) -> Vec<String> {
    let text = block.lines.join("\n").replace("\\\n", " ");
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    text.lines().map(bare).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The files of a document: blocks that a name follows.
fn files(text: &str) -> Vec<(&str, String)> {
    let (_, blocks) = markdown::parse(markdown::document(text));
    let others = blocks.iter().filter(|block| !SHELLS.contains(&language(block)));
    let named =
        others.filter_map(|block| Some((block.info.split_once(' ')?.1, block.lines.join("\n") + "\n")));
    named.collect()
}

/// Lines among other text that are commands, each with its number.
fn commands_in_text(text: &str) -> Vec<(usize, String)> {
    let (_, blocks) = markdown::parse(markdown::document(text));
    let others = blocks.iter().filter(|block| !SHELLS.contains(&language(block)));
    let lines = others.flat_map(|block| (block.number + 1..).zip(&block.lines));
    // What it does may follow.
    let bare = |line: &str| line.trim().split("   ").next().unwrap_or_default().to_owned();
    let is_command = |line: &str| PROGRAMS.iter().any(|program| line.starts_with(program));
    lines.map(|(number, line)| (number, bare(line))).filter(|(_, line)| is_command(line)).collect()
}

#[test]
fn every_block_of_commands_says_what_becomes_of_it() {
    for (path, text) in documents() {
        for (class, block) in blocks(&text) {
            let place = format!("{}:{}", path.display(), block.number);
            assert!(CLASSES.contains(&&*class), "{place}: write one of {CLASSES:?} after `sh`");
            let commands = commands(&block);
            let starts = matches!(&commands[..], [command] if command.contains(" up"));
            assert!(class != "up" || starts, "{place}: `up` is one `quorate up`");
            let own = commands.iter().find(|command| command.starts_with("quorate "));
            let executed = !class.starts_with("checked");
            assert!(executed || own.is_none(), "{place}: it can be executed: {own:?}");
        }
        // What is made from the program, or from what was measured, is not written as commands.
        let made = ["docs/reference/commands.md", "docs/COMPARISON.md"].map(|path| root().join(path));
        if !made.contains(&path) {
            let found = commands_in_text(&text);
            assert!(found.is_empty(), "{}: in which class of blocks are these? {found:?}", path.display());
        }
    }
}

#[test]
fn commands_that_are_not_executed_name_what_is_there() {
    let mut helps = Helps::default();
    for (path, text) in documents() {
        for (_, block) in blocks(&text).iter().filter(|(class, _)| class.starts_with("checked")) {
            for command in commands(block) {
                let place = format!("{}:{}: {command}", path.display(), block.number);
                command.split(" && ").for_each(|command| helps.check(&place, command));
            }
        }
        let (prose, _) = markdown::parse(markdown::document(&text));
        for line in prose {
            let spans = markdown::code_spans(line.text);
            for command in spans.filter(|span| span.starts_with("quorate ") || span.starts_with("cargo ")) {
                helps.check(&format!("{}:{}: {command}", path.display(), line.number), command);
            }
        }
        for (number, command) in commands_in_text(&text) {
            helps.check(&format!("{}:{number}: {command}", path.display()), &command);
        }
    }
}

/// What `--help` says, by subcommand.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Option<String>>);

impl Helps {
    fn of(&mut self, words: &[&str]) -> Option<String> {
        let key: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        let ask = || {
            let output =
                Command::new(env!("CARGO_BIN_EXE_quorate")).args(words).arg("--help").output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        self.0.entry(key).or_insert_with(ask).clone()
    }

    fn check(&mut self, place: &str, command: &str) {
        let is_before = |word: &&str| *word == "time" || word.starts_with("RUSTFLAGS=");
        let words: Vec<&str> = command.split_whitespace().skip_while(is_before).collect();
        match words[..] {
            ["quorate", "--version" | "--help"] => {}
            ["quorate", subcommand, ..] => {
                let mut help =
                    self.of(&[subcommand]).unwrap_or_else(|| panic!("{place}: no such subcommand"));
                let nested = words.get(2).filter(|word| help.contains(&format!("\n  {word} ")));
                if let Some(nested) = nested {
                    help = self.of(&[subcommand, nested]).expect("help lists it");
                }
                for flag in flags(&words) {
                    assert!(has_word(&help, flag), "{place}: there is no {flag}");
                }
            }
            ["cargo", "xtask", task, ..] => {
                let tasks = std::fs::read_to_string(root().join("crates/xtask/src/lib.rs")).unwrap();
                assert!(tasks.contains(&format!("[\"{task}\"")), "{place}: there is no task {task}");
            }
            ["cargo", ..] => check_cargo(place, &words),
            _ => assert!(words.is_empty() || is_program(words[0]), "{place}: what is {}?", words[0]),
        }
    }
}

/// Other programs that documents may name.
fn is_program(word: &str) -> bool {
    let others = ["redis-cli", "redis-benchmark", "valgrind", "callgrind_control", "ls"];
    others.contains(&word) || ["bench/compare", "tests/clients/setup"].contains(&word)
}

fn flags<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let flag = |word: &&'a str| {
        let word = word.trim_matches(['[', ']', '"', '\'']);
        word.starts_with("--").then(|| word.split('=').next().unwrap_or(word))
    };
    words.iter().filter_map(flag).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.match_indices(word).any(|(at, _)| !text[at + word.len()..].starts_with(name))
}

/// The package, the test and the example that a command names are there.
fn check_cargo(place: &str, words: &[&str]) {
    let after = |flags: &[&str]| {
        let at = words.iter().position(|word| flags.contains(word))?;
        words.get(at + 1).copied()
    };
    let Some(package) = after(&["-p", "--package"]) else { return };
    let folders = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let named = format!("name = \"{package}\"");
    let manifest = |folder: &PathBuf| std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    let folder = folders.into_iter().find(|folder| manifest(folder).contains(&named));
    let folder = folder.unwrap_or_else(|| panic!("{place}: there is no package {package}"));
    for (flag, home) in [("--test", "tests"), ("--example", "examples")] {
        if let Some(name) = after(&[flag]) {
            let file = folder.join(home).join(format!("{name}.rs"));
            let nested = folder.join(home).join(name).join("main.rs");
            assert!(file.exists() || nested.exists(), "{place}: {package} has no {flag} {name}");
        }
    }
}

/// Documents whose commands are executed at a time: they mostly wait for each other.
const AT_A_TIME: usize = 3;

/// Executes something of every document.
fn of_each(documents: &BTreeMap<PathBuf, String>, execute: impl Fn(&Path, &str) + Sync) {
    let queue = Mutex::new(documents.iter());
    let work = || {
        loop {
            let next = queue.lock().unwrap().next();
            let Some((path, text)) = next else { break };
            execute(path, text);
        }
    };
    thread::scope(|scope| (0..AT_A_TIME).for_each(|_| drop(scope.spawn(work))));
}

#[test]
fn every_block_that_is_to_be_executed_succeeds() {
    of_each(&documents(), |path, text| {
        let mut cluster = None;
        let files = files(text);
        for (class, block) in blocks(text) {
            let place = format!("{}:{}", path.display(), block.number);
            match class.as_str() {
                "up" => {
                    drop(cluster.take());
                    cluster = Some(Up::start(&commands(&block)[0], &files));
                }
                "run" => execute(&place, &commands(&block), None, &files),
                "cluster" => {
                    let cluster = cluster.get_or_insert_with(|| Up::start("quorate up", &files));
                    execute(&place, &commands(&block), Some(cluster), &files);
                }
                "repository" => {
                    let script = format!("set -euo pipefail\n{}", block.lines.join("\n"));
                    run(&place, &script, Command::new("bash").current_dir(root()));
                }
                _ => {}
            }
        }
    });
}

#[test]
fn every_block_for_several_machines_succeeds_on_this_one() {
    let documents = documents();
    of_each(&documents, |path, text| {
        let mut session = Session::default();
        for (class, block) in blocks(text) {
            if class == "beside" && session.is_empty() {
                let start = root().join(START);
                let nodes = blocks(&documents[&start]).into_iter().filter(|(class, _)| class == "nodes");
                nodes.for_each(|(_, block)| session.execute(START, &commands(&block)));
            }
            if class == "after" {
                session.kill();
            }
            if ["nodes", "beside", "after"].contains(&&*class) {
                session.execute(&format!("{}:{}", path.display(), block.number), &commands(&block));
            }
        }
        if !session.is_empty() {
            session.run();
        }
    });
}
