//! Rules about `docs/protocols`: a protocol's page says what the code does, as far as that can be compared.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::Setting;
use quorate_protocols::registry;

use super::markdown::code_spans;
use super::{Finding, Tree};

/// The page that all protocols share, with the settings that several have.
const SHARED: &str = "docs/protocols/README.md";

/// A protocol's settings by name, as it describes them.
type Described = BTreeMap<String, Setting>;

/// Every protocol's page has its settings with their defaults and meaning, its messages and its traces.
pub fn protocols(tree: &Tree) -> Vec<Finding> {
    registry::all()
        .iter()
        .flat_map(|entry| {
            let path = format!("docs/protocols/{}.md", entry.name);
            match tree.texts.get(&path) {
                None => vec![Finding::new(&path, 0, "the protocol's page is missing")],
                Some(_) => compare(tree, entry.name, &path, entry.settings()),
            }
        })
        .collect()
}

fn compare(tree: &Tree, name: &str, path: &str, described: Described) -> Vec<Finding> {
    let page = &tree.texts[path];
    let mut findings = settings(tree, name, path, described);
    let spans: BTreeSet<&str> = code_spans(page).collect();
    for file in message_files(page) {
        for variant in tree.texts.get(file).into_iter().flat_map(|text| variants(text)) {
            if !spans.contains(variant) {
                findings.push(Finding::new(path, 0, format!("the message `{variant}` of {file} is missing")));
            }
        }
    }
    let folder = format!("/{}/traces/", name.replace('-', "_"));
    let traces =
        tree.files().filter_map(|file| file.strip_prefix("crates/protocols/src")?.split_once(&folder));
    for (_, trace) in traces {
        if !spans.contains(trace) {
            findings.push(Finding::new(path, 0, format!("the trace `{trace}` is missing")));
        }
    }
    findings
}

/// Compares the tables of settings, the protocol's own and the shared one, with what the code says of them.
fn settings(tree: &Tree, name: &str, path: &str, described: Described) -> Vec<Finding> {
    let shared = tree.texts.get(SHARED).map_or("", String::as_str);
    let shared = rows(shared).filter(|row| row.len() == 4 && applies(row[2], name));
    let own = tree.texts.get(path).map_or("", String::as_str);
    let said = shared.chain(rows(own).filter(|row| row.len() == 3));
    let (mut missing, mut findings) = (described, Vec::new());
    for row in said {
        let (Some(key), Some(value)) = (code(row[0]), code(row[1])) else { continue };
        let message = match missing.remove(key) {
            None => format!("there is no setting `{key}`, or it is listed twice"),
            Some(Setting { default, .. }) if default != value => {
                format!("the default of `{key}` is `{default}`")
            }
            Some(Setting { meaning, .. }) if row.last() != Some(&meaning) => {
                format!("the code says of `{key}`: {meaning}")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new(path, 0, message));
    }
    let unsaid = missing.iter().map(|(key, Setting { default, meaning, .. })| {
        Finding::new(path, 0, format!("the row | `{key}` | `{default}` | {meaning} | is missing"))
    });
    findings.extend(unsaid);
    findings
}

/// The cells of the rows of tables that begin with a setting and its default, both in backquotes.
fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    let from = |heading: &str| page.find(heading).map(|at| &page[at..]);
    let section = from("\n## Settings").or_else(|| from("\n## Shared settings")).unwrap_or_default();
    section.lines().filter_map(|line| {
        let row = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(row.split('|').map(str::trim).collect())
    })
}

fn code(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// Whether a cell such as "all", "all but `a`" or "`a`, `b`" means a protocol.
fn applies(cell: &str, name: &str) -> bool {
    let named = code_spans(cell).any(|protocol| protocol == name);
    named != cell.starts_with("all")
}

/// The source files that a page names where it tells of messages.
fn message_files(page: &str) -> Vec<&str> {
    let section = page.split("\n## ").find(|section| section.starts_with("Messages")).unwrap_or_default();
    code_spans(section).filter(|span| span.ends_with(".rs")).collect()
}

/// The variants of a file's `Message`, as `wire_enum!` lists them.
fn variants(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("wire_enum!(Message") {
        let list = &text[at..];
        let list = &list[..list.find(");").unwrap_or(list.len())];
        for entry in list.split("=> ").skip(1) {
            found.push(entry.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    const PAGE: &str = "# a\n## Messages\nSee `crates/a/src/message.rs`.\n| `Ask` |\n## Traces\n| `b.txt` |\n\
        ## Settings\n| setting | default | meaning |\n|---|---|---|\n| `x` | `1ms` | What |\n| `y` | `2` | What |\n";

    const SHARED_PAGE: &str = "# p\n## Shared settings\n| setting | default | protocols | meaning |\n\
        | `s` | `3` | all | What |\n| `t` | `4` | all but `good` | What |\n| `u` | `5` | `good`, `bad` | What |\n";

    fn messages(page: &str, defaults: &[(&str, &str)]) -> Vec<String> {
        let tree = tree(&[
            ("docs/protocols/good.md", page),
            (SHARED, SHARED_PAGE),
            (
                "crates/a/src/message.rs",
                "wire_enum!(Message { 1 => Ask { x }, });\nwire_enum!(Record { 1 => R });",
            ),
            ("crates/protocols/src/family/good/traces/b.txt", ""),
        ]);
        let described = defaults.iter().map(|(key, default)| {
            let (default, expected) = (default.to_string(), "a number".to_owned());
            (key.to_string(), Setting { default, expected, meaning: "What" })
        });
        let findings = compare(&tree, "good", "docs/protocols/good.md", described.collect());
        findings.into_iter().map(|finding| finding.message).collect()
    }

    const DEFAULTS: [(&str, &str); 4] = [("x", "1ms"), ("y", "2"), ("s", "3"), ("u", "5")];

    #[test]
    fn a_page_that_says_what_the_code_does_passes() {
        assert_eq!(messages(PAGE, &DEFAULTS), [""; 0]);
    }

    #[test]
    fn settings_that_differ_from_the_code_are_found() {
        let defaults = [("x", "2ms"), ("s", "3"), ("u", "5"), ("z", "6")];
        let expected = [
            "the default of `x` is `2ms`",
            "there is no setting `y`, or it is listed twice",
            "the row | `z` | `6` | What | is missing",
        ];
        assert_eq!(messages(PAGE, &defaults), expected);
        let other = PAGE.replace("| `y` | `2` | What |", "| `y` | `2` | Something else |");
        assert_eq!(messages(&other, &DEFAULTS), ["the code says of `y`: What"]);
    }

    #[test]
    fn messages_and_traces_that_a_page_leaves_out_are_found() {
        let page = PAGE.replace("`Ask`", "").replace("`b.txt`", "");
        let expected =
            ["the message `Ask` of crates/a/src/message.rs is missing", "the trace `b.txt` is missing"];
        assert_eq!(messages(&page, &DEFAULTS), expected);
    }

    #[test]
    fn a_protocol_without_a_page_is_found() {
        let findings = protocols(&tree(&[]));
        assert_eq!(findings.len(), registry::all().len());
    }
}
