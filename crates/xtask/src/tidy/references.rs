//! Rules about what texts refer to: a document or a comment that names a file names one that is there, and in this
//! repository.
//!
//! | reference | where | must be |
//! |---|---|---|
//! | `[text](path#heading)` | documents, documentation comments | a file or folder from the text's folder, and a heading in it |
//! | a path in backquotes that begins with a folder of the root | the same | there, from the root |
//! | a path or name of a file in backquotes | the same | the end of the path of some file; `src` may be left out |
//! | `` `path` `word` ``, side by side | the same | a word of that file, or of a file in that folder |
//! | `` `Type::name` `` | the same | words of some source file's code |
//! | a path of a machine, a path that leaves the repository | any text | absent |
//!
//! Paths with a placeholder (a word of capitals, `…`, `*`, `<`) name no file, and are not checked.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::{self, Line};
use super::{Finding, Tree};

/// How names of files end that are looked for without their folders. Not those of Python, which are programs of papers.
const ENDINGS: [&str; 9] = [".rs", ".md", ".txt", ".toml", ".json", ".csv", ".svg", ".go", ".js"];

/// Documents whose names are words of capitals, as those of placeholders are.
const DOCUMENTS: [&str; 6] = ["README", "ARCHITECTURE", "CONTRIBUTING", "GLOSSARY", "REDIS", "COMPARISON"];

/// Files that a text may name though they are not in the repository: users write or programs make them.
const MADE: [&str; 2] = ["quorate.toml", "Cargo.toml"];

/// Every link leads to a file of the repository, and to a heading of it.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let anchors: BTreeMap<&str, Vec<String>> = tree
        .ending(".md")
        .map(|(path, text)| {
            let (prose, _) = markdown::parse(markdown::document(text));
            (path, prose.iter().filter_map(|line| markdown::anchor(line.text)).collect())
        })
        .collect();
    for (path, line) in prose(tree) {
        for target in markdown::targets(line.text) {
            let comment = path.ends_with(".rs");
            let (file, heading) = target.split_once('#').map_or((target, None), |(f, h)| (f, Some(h)));
            // In comments, rustdoc checks links to items; they have no folder and no ending.
            let item = comment && !file.contains('/') && !is_file_name(file);
            if target.contains("://") || target.starts_with("mailto:") || item {
                continue;
            }
            let wrong = match resolve(path, file) {
                None => Some("leaves the repository".to_owned()),
                Some(file) if !file.is_empty() && !tree.has(&file) => Some("leads to no file".to_owned()),
                Some(file) => {
                    let all = anchors.get(file.as_str());
                    let missing =
                        |heading: &&str| all.is_none_or(|all| !all.iter().any(|one| one == heading));
                    heading.filter(missing).map(|heading| format!("leads to no heading `{heading}`"))
                }
            };
            if let Some(wrong) = wrong {
                findings.push(Finding::new(path, line.number, format!("the link `{target}` {wrong}")));
            }
        }
    }
    findings
}

/// Every path in backquotes is that of a file or folder, and has the word that stands beside it.
pub fn paths(tree: &Tree) -> Vec<Finding> {
    let names = Names::of(tree);
    let mut findings = Vec::new();
    for (path, line) in prose(tree) {
        let mut before: Option<(&str, Vec<&str>)> = None;
        // Prose and code in turn, code second.
        for (index, part) in line.text.split('`').enumerate() {
            match (index % 2, part) {
                (0, " ") => continue,
                (0, _) => before = None,
                (_, code) if names.is_path(code) => {
                    let files = names.files_of(tree, path, code);
                    if files.is_empty() {
                        findings.push(Finding::new(path, line.number, format!("`{code}` does not exist")));
                        before = None;
                    } else {
                        before = Some((code, files));
                    }
                }
                (_, word) => {
                    let has = |file: &&str| tree.texts.get(*file).is_some_and(|text| has_word(text, word));
                    if let Some((file, files)) = before.take().filter(|_| is_word(word))
                        && !files.iter().any(has)
                    {
                        findings.push(Finding::new(path, line.number, format!("`{file}` has no `{word}`")));
                    }
                }
            }
        }
    }
    findings
}

/// Every name with its type or module in backquotes is of words that the code has: what was renamed is found.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let code = tree.ending(".rs").flat_map(|(_, text)| text.lines());
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    let known: BTreeSet<&str> = code.flat_map(|line| line.split(|c| !is_name(c))).collect();
    let mut findings = Vec::new();
    for (path, line) in prose(tree) {
        for span in markdown::code_spans(line.text) {
            let words: Vec<&str> = span.trim_end_matches("()").split("::").collect();
            if words.len() > 1
                && words.iter().all(|word| is_word(word))
                && let Some(word) = words.iter().find(|word| !known.contains(*word))
            {
                findings.push(Finding::new(path, line.number, format!("`{span}`: no code has `{word}`")));
            }
        }
    }
    findings
}

/// No text has a path of a machine, or one that leaves the repository.
pub fn outside_paths(tree: &Tree) -> Vec<Finding> {
    const PATHS: [&str; 6] = [
        concat!("/wo", "rk/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/t", "mp/"),
        concat!("../sh", "ared"),
    ];
    let mut findings = Vec::new();
    for (path, text) in &tree.texts {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(found) = PATHS.iter().find(|found| line.contains(*found)) {
                let message = format!("`{found}` is a path of a machine, not of the repository");
                findings.push(Finding::new(path, number, message));
            }
        }
    }
    findings
}

/// The prose of documents and of comments.
fn prose(tree: &Tree) -> impl Iterator<Item = (&str, Line<'_>)> {
    let documents =
        tree.ending(".md").map(|(path, text)| (path, markdown::document(text).collect::<Vec<_>>()));
    let comments = tree.ending(".rs").map(|(path, text)| (path, markdown::comments(text).collect()));
    documents.chain(comments).flat_map(|(path, lines)| {
        let (prose, _) = markdown::parse(lines);
        prose.into_iter().map(move |line| (path, line))
    })
}

/// A path from the folder of a file, as one from the root; `None` if it leaves the root.
fn resolve(from: &str, path: &str) -> Option<String> {
    if path.is_empty() {
        return Some(from.to_owned());
    }
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for step in path.split('/') {
        match step {
            "." | "" => {}
            ".." => drop(folders.pop()?),
            step => folders.push(step),
        }
    }
    Some(folders.join("/"))
}

fn is_file_name(text: &str) -> bool {
    ENDINGS.iter().any(|ending| text.strip_suffix(ending).is_some_and(|name| !name.is_empty()))
}

/// By what a path is told from other code.
struct Names<'a> {
    /// The folders of the root.
    roots: BTreeSet<&'a str>,
    /// The folders of `crates`.
    crates: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn of(tree: &'a Tree) -> Names<'a> {
        let first = |file: &'a str| Some(file.split_once('/')?.0);
        let crates = tree.files().filter_map(|file| first(file.strip_prefix("crates/")?));
        Names { roots: tree.files().filter_map(first).collect(), crates: crates.collect() }
    }

    fn is_path(&self, code: &str) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || ['_', '-', '.', '/'].contains(&c);
        let capitals =
            |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let placeholder = |part: &str| {
            let stem = part.split('.').next().unwrap_or_default();
            capitals(stem) && !DOCUMENTS.contains(&stem)
        };
        if !code.chars().all(plain) || code.starts_with(['/', '.']) || MADE.contains(&code) {
            return false;
        }
        let folder = code.split_once('/').map(|(first, _)| first);
        let known = folder.is_some_and(|first| self.roots.contains(first) || self.crates.contains(first));
        !code.split('/').any(placeholder) && (known || is_file_name(code))
    }

    /// The files that a path in the text of a file may mean: from the root, from the file's crate, or by their ends.
    fn files_of(&self, tree: &'a Tree, from: &str, code: &str) -> Vec<&'a str> {
        let code = code.trim_end_matches('/');
        let inside = |path: &str| {
            let files = tree.files();
            let inside = |file: &&str| {
                file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            files.filter(inside).collect::<Vec<_>>()
        };
        let mut found = inside(code);
        let (first, rest) = code.split_once('/').unwrap_or((code, ""));
        if found.is_empty() && !rest.is_empty() && self.crates.contains(first) {
            found = inside(&format!("crates/{first}/src/{rest}"));
            found.extend(inside(&format!("crates/{first}/src/{rest}.rs")));
        }
        let mut steps = from.split('/');
        if let (true, Some("crates"), Some(name)) = (found.is_empty(), steps.next(), steps.next()) {
            found = inside(&format!("crates/{name}/{code}"));
        }
        if found.is_empty() && (rest.is_empty() || !self.roots.contains(first)) {
            let end = format!("/{code}");
            let ends = |file: &&str| format!("/{file}").ends_with(&end) || short(file).ends_with(&end);
            found = tree.files().filter(ends).collect();
        }
        found
    }
}

/// The path of a source file as texts shorten it: `crates/blocks/src/batch.rs` is `/blocks/batch.rs`.
fn short(file: &str) -> String {
    format!("/{}", file.replacen("/src/", "/", 1))
}

/// What names in code consist of.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether this is the name of something in code.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name) && !text.starts_with(|c: char| c.is_ascii_digit())
}

fn has_word(text: &str, word: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(name) && !text[at + word.len()..].starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let page = "[a](other.md) [b](../README.md#the-end) [c](#here)\n## Here\n[d](gone.md)\n\
            [e](other.md#gone)\n[f](../../x.md)\n[g](https://x.org/gone.md) `[h](gone.md)`\n```sh\n[i](gone.md)\n```\n\
            [j](pictures/)";
        let tree = tree(&[
            ("docs/page.md", page),
            ("docs/other.md", "# Other\n```sh\n# gone\n```"),
            ("docs/pictures/a.json", ""),
            ("README.md", "## The end"),
            (
                "crates/a/src/lib.rs",
                "//! [`Item`](crate::Item) [a](Self::x) [page](../../../docs/page.md)\n/// [x](gone.md)",
            ),
        ]);
        let expected = ["docs/page.md:3", "docs/page.md:4", "docs/page.md:5", "crates/a/src/lib.rs:2"];
        assert_eq!(places(links, &tree), expected);
    }

    #[test]
    fn a_path_that_a_text_invents_is_found() {
        let tree = tree(&[
            (
                "README.md",
                "`crates/a` `crates/a/src/lib.rs`\n`crates/b/`\n`crates/*/src` crates/c `x` `docs/NAME.md`\n`gone.md`",
            ),
            (
                "docs/page.md",
                "`a/lib.rs`, `lib.rs`, `a/deep`, `README.md`\n`b/lib.rs`\n`crates/a/src/li` `a/gone`",
            ),
            (
                "crates/a/src/lib.rs",
                "//! `deep/er.rs`, `er.rs`, `docs/x.rs`\n// `deep/err.rs`\nlet x = \"`gone.rs`\";",
            ),
            ("crates/a/docs/x.rs", ""),
            ("crates/a/src/deep/er.rs", ""),
        ]);
        let expected = [
            "README.md:2",
            "README.md:4",
            "docs/page.md:2",
            "docs/page.md:3",
            "docs/page.md:3",
            "crates/a/src/lib.rs:2",
        ];
        assert_eq!(places(paths, &tree), expected);
    }

    #[test]
    fn a_word_that_the_file_beside_it_does_not_have_is_found() {
        let tree = tree(&[
            (
                "README.md",
                "`lib.rs` `present`\n`lib.rs` `pre`\n`lib.rs`, `absent`\n`crates/a` `other`\n`lib.rs` `a b`",
            ),
            ("crates/a/src/lib.rs", "fn present() {}"),
            ("crates/a/src/x.rs", "struct other;"),
        ]);
        assert_eq!(places(paths, &tree), ["README.md:2"]);
    }

    #[test]
    fn a_name_that_no_code_has_is_found() {
        let tree = tree(&[
            ("README.md", "`Kept::name()` `Kept::gone` `gone` `a b::c`\n`Gone::name`"),
            ("crates/a/src/lib.rs", "//! `Gone`, `Kept::Gone`\nstruct Kept; fn name() {}\n// fn gone() {}"),
        ]);
        assert_eq!(places(names, &tree), ["README.md:1", "README.md:2", "crates/a/src/lib.rs:1"]);
    }

    #[test]
    fn a_path_of_a_machine_is_found_in_any_text() {
        let home = concat!("see /ho", "me/somebody/notes");
        let up = concat!("x = \"../sh", "ared/tools\"");
        let tree =
            tree(&[("a.md", home), ("crates/a/src/lib.rs", up), ("b.json", "/var/lib/quorate ../docs")]);
        assert_eq!(places(outside_paths, &tree), ["a.md:1", "crates/a/src/lib.rs:1"]);
    }
}
