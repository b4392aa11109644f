//! Style as a test: what the compiler, rustfmt and clippy do not check.
//!
//! | file | rules |
//! |---|---|
//! | `text` | of lines and single files |
//! | `layout` | of folders: dead files, links to lints, the registry |
//! | `structure` | who may use what: crates, blocks, families of protocols |
//! | `pages` | of the protocols' pages: settings, messages and traces are those of the code |
//! | `references` | what texts refer to: links, anchors, paths in backquotes; nothing outside the repository |
//! | `markdown` | what a Markdown text consists of: lines of prose, links, headings, blocks of code |
//!
//! A rule is a function from the tree to findings, with a test that shows it catching a bad example. Add one here.

mod layout;
pub mod markdown;
mod pages;
mod references;
mod structure;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;

/// All rules, by name.
pub const RULES: &[(&str, Rule)] = &[
    ("line-length", text::line_length),
    ("trailing-space", text::trailing_space),
    ("file-docs", text::file_docs),
    ("file-length", text::file_length),
    ("unfinished-code", text::unfinished_code),
    ("unfinished-notes", text::unfinished_notes),
    ("sleeping-tests", text::sleeping_tests),
    ("dead-files", layout::dead_files),
    ("deterministic-lints", layout::deterministic_lints),
    ("registry", layout::registry),
    ("dependencies", structure::dependencies),
    ("customers", structure::customers),
    ("families", structure::families),
    ("links", references::links),
    ("paths", references::paths),
    ("names", references::names),
    ("outside-paths", references::outside_paths),
    ("protocol-pages", pages::protocols),
];

/// How the names of the files end that people write.
const TEXTS: &[&str] = &[".rs", ".md", ".toml", ".py", ".go", ".js", ".json", ".txt", ".html"];

/// Folders that builds make: they are no part of the repository.
const MADE: &[&str] = &["target", "node_modules", "artifacts", "coverage"];

/// Folders of bytes, inputs of fuzzing, which are not looked into.
const BYTES: &[&str] = &["corpus", "regressions"];

/// Gives everything that is wrong in a tree.
pub type Rule = fn(&Tree) -> Vec<Finding>;

/// The texts of the repository by path, with `/` between folders.
#[derive(Debug, Default)]
pub struct Tree {
    pub(crate) texts: BTreeMap<String, String>,
    /// What is not read: pictures, folders of bytes.
    others: BTreeSet<String>,
    /// Symbolic links and where they lead.
    links: BTreeMap<String, String>,
}

/// Something to put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Checks the repository at `root` by all rules.
pub fn check(root: &Path) -> io::Result<Vec<Finding>> {
    Ok(Tree::read(root)?.check())
}

impl Tree {
    /// What all rules find.
    pub fn check(&self) -> Vec<Finding> {
        let findings = RULES.iter().flat_map(|(name, rule)| {
            rule(self).into_iter().map(move |mut finding| {
                finding.message.push_str(&format!(" [{name}]"));
                finding
            })
        });
        findings.collect()
    }

    /// Reads everything but `.git` and what is [`MADE`].
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// Reads a folder; its path is empty for the root, and ends with `/` otherwise.
    fn walk(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}{name}");
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                let target = std::fs::read_link(root.join(&path))?;
                self.links.insert(path, target.to_string_lossy().into_owned());
            } else if kind.is_dir() && (name == ".git" || MADE.contains(&name.as_str())) {
                continue;
            } else if kind.is_dir() && !BYTES.contains(&name.as_str()) {
                self.walk(root, &format!("{path}/"))?;
            } else if TEXTS.iter().any(|ending| path.ends_with(ending)) {
                let text = std::fs::read_to_string(root.join(&path))?;
                self.texts.insert(path, text);
            } else {
                self.others.insert(path);
            }
        }
        Ok(())
    }

    /// Files with an ending.
    fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let texts = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(move |(path, _)| path.ends_with(ending))
    }

    /// Every file and link, in no useful order.
    fn files(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().chain(self.links.keys());
        self.texts.keys().chain(others).map(String::as_str)
    }

    /// Whether there is a file, a link or a folder of this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        self.files()
            .any(|file| file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let findings = check(crate::root()).unwrap();
        let lines: Vec<_> = findings.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
    }

    #[test]
    fn a_finding_says_where() {
        assert_eq!(Finding::new("a.rs", 3, "bad").to_string(), "a.rs:3: bad");
        assert_eq!(Finding::new("a.rs", 0, "bad").to_string(), "a.rs: bad");
    }

    /// A tree of these files.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let texts = files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        Tree { texts, ..Tree::default() }
    }

    /// Where a rule finds something: `path:line`.
    pub(super) fn places(rule: Rule, tree: &Tree) -> Vec<String> {
        rule(tree).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }
}
