//! The reference pages of the book are made from the code: `docs/reference`. `UPDATE_REFERENCE=1` writes them.

#[path = "support/http.rs"]
mod http;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use http::get;
use quorate_bench::Ports;
use quorate_protocols::registry;
use support::{Cluster, Connection, wait_for};

/// Protocols that have all metrics between them.
const MEASURED: [&str; 5] = ["bodega", "raft", "epaxos", "crossword", "hermes"];

/// The folder of the book.
fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Compares a page with what it is to be, or writes it.
fn hold(name: &str, text: &str) {
    let path = docs().join("reference").join(name);
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let again = "UPDATE_REFERENCE=1 cargo test -p quorate --test reference";
    assert!(found == text, "docs/reference/{name} does not follow from the code: {again}");
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// What `--help` says of a command, without what the environment of this test says.
fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("QUORATE_") || name == "COLUMNS") {
        command.env_remove(name);
    }
    let output = command.args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim_end().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The subcommands that a help names, but `help`.
fn subcommands(help: &str) -> Vec<String> {
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let name = |line: &str| {
        line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()).map(str::to_owned)
    };
    listed.filter_map(name).filter(|name| name != "help").collect()
}

fn describe(words: &[&str], text: &mut String) {
    let help = help(words);
    let title = ["quorate"].iter().chain(words).copied().collect::<Vec<_>>().join(" ");
    let _ = write!(text, "\n## {title}\n\n```text\n{help}```\n");
    for name in subcommands(&help) {
        describe(&[words, &[name.as_str()]].concat(), text);
    }
}

#[test]
fn commands_are_those_that_there_are() {
    let mut text = String::from(
        "# Commands\n\nWhat `--help` prints of each. Exit codes are 0 for fine, 1 for what failed or is not so, 2 \
         for a\nwrong command line, 3 for no answer.\n",
    );
    describe(&[], &mut text);
    hold("commands.md", &text);
}

#[test]
fn settings_are_those_that_protocols_read() {
    let mut rows: BTreeMap<[String; 3], Vec<&str>> = BTreeMap::new();
    let all = registry::all();
    for entry in &all {
        for (name, setting) in entry.settings() {
            rows.entry([name, setting.default, setting.meaning.to_owned()]).or_default().push(entry.name);
        }
    }
    let mut text = String::from(
        "# Settings\n\nOf protocols, as `--set NAME=VALUE`, the same at all nodes of a cluster; `quorate \
         protocols NAME` says which values one\ntakes.\n\n\
         | setting | default | protocols | meaning |\n| --- | --- | --- | --- |\n",
    );
    for ([name, default, meaning], protocols) in rows {
        let whose = match protocols.len() == all.len() {
            true => "all".to_owned(),
            false => protocols.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        };
        let default = if default.is_empty() { "none".to_owned() } else { format!("`{}`", cell(&default)) };
        let _ = writeln!(text, "| `{name}` | {default} | {whose} | {} |", cell(&meaning));
    }
    hold("settings.md", &text);
}

/// Of each metric on a page, its kind and its meaning.
fn explained(page: &str) -> BTreeMap<String, [String; 2]> {
    let mut found: BTreeMap<String, [String; 2]> = BTreeMap::new();
    for line in page.lines() {
        for (at, start) in [(1, "# HELP "), (0, "# TYPE ")] {
            if let Some((name, said)) = line.strip_prefix(start).and_then(|rest| rest.split_once(' ')) {
                found.entry(name.to_owned()).or_default()[at] = said.to_owned();
            }
        }
    }
    found
}

#[test]
fn metrics_are_those_that_nodes_show() {
    let mut all = BTreeMap::new();
    let groups = ("raft", ["--groups", "2"].map(str::to_owned).to_vec());
    for (protocol, flags) in MEASURED.map(|protocol| (protocol, Vec::new())).into_iter().chain([groups]) {
        let ports = Ports::claim().unwrap();
        let http = [(); 3].map(|()| ports.address());
        let cluster = Cluster::start_each(3, protocol, |node| {
            [&["--listen-http".into(), http[node].clone()], &flags[..]].concat()
        });
        for node in &cluster.nodes {
            Connection::open(&node.resp).unwrap().call(&[b"SET", b"a", b"v"]).unwrap();
        }
        for address in &http {
            let page = wait_for("the state to be shown", || {
                let (_, page) = get(address, "/metrics")?;
                let shows = |line: &str| line.starts_with("quorate_store_keys") && line.ends_with(" 1");
                page.lines().any(shows).then_some(page)
            });
            all.extend(explained(&page));
        }
    }
    let mut text = String::from(
        "# Metrics\n\nWhat `/metrics` of `--listen-http` shows, for Prometheus. Some are there with some protocols \
         only.\n\n| metric | kind | meaning |\n| --- | --- | --- |\n",
    );
    for (name, [kind, meaning]) in all {
        let _ = writeln!(text, "| `{name}` | {kind} | {} |", cell(&meaning));
    }
    hold("metrics.md", &text);
}

/// The pages below a folder, from there.
fn pages(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(here) = folders.pop() {
        for path in std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                found.insert(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found
}

#[test]
fn the_summary_of_the_book_has_every_page_once() {
    let mut pages = pages(&docs());
    assert!(pages.remove("SUMMARY.md"));
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    for link in links {
        assert!(pages.remove(link), "SUMMARY.md: {link} is not there, or twice");
    }
    assert!(pages.is_empty(), "SUMMARY.md lacks {pages:?}");
}

#[test]
fn every_alert_has_its_runbook() {
    let alerts = include_str!("../../../packaging/monitoring/alerts.yml");
    let alerts: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let runbooks = std::fs::read_to_string(docs().join("RUNBOOKS.md")).unwrap();
    let runbooks: Vec<_> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(runbooks, alerts);
}
