//! Style as a test: what the compiler, rustfmt and clippy do not check.
//!
//! | file | rules |
//! |---|---|
//! | `text` | of lines and single files |
//! | `layout` | of folders: dead files, links, the registry, paths in the documentation |
//!
//! A rule is a function from the tree to findings, with a test that shows it catching a bad example. Add one here.

mod layout;
mod text;

use std::collections::BTreeMap;
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
    ("documented-paths", layout::documented_paths),
];

/// How the names of the files end that people write.
const TEXTS: &[&str] = &[".rs", ".md", ".toml", ".py", ".go", ".js"];

/// Gives everything that is wrong in a tree.
pub type Rule = fn(&Tree) -> Vec<Finding>;

/// The texts of the repository by path, with `/` between folders.
#[derive(Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
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
    let tree = Tree::read(root)?;
    let findings = RULES.iter().flat_map(|(name, rule)| {
        rule(&tree).into_iter().map(move |mut finding| {
            finding.message.push_str(&format!(" [{name}]"));
            finding
        })
    });
    Ok(findings.collect())
}

impl Tree {
    /// Reads the documentation at the root and everything under `crates` and `tests`.
    fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        for entry in std::fs::read_dir(root)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                tree.texts.insert(name.clone(), std::fs::read_to_string(root.join(&name))?);
            }
        }
        tree.walk(root, "crates")?;
        tree.walk(root, "tests")?;
        Ok(tree)
    }

    fn walk(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        for entry in std::fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                let target = std::fs::read_link(root.join(&path))?;
                self.links.insert(path, target.to_string_lossy().into_owned());
            } else if kind.is_dir() {
                self.walk(root, &path)?;
            } else if TEXTS.iter().any(|ending| path.ends_with(ending)) {
                let text = std::fs::read_to_string(root.join(&path))?;
                self.texts.insert(path, text);
            }
        }
        Ok(())
    }

    /// Files with an ending.
    fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let texts = self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(move |(path, _)| path.ends_with(ending))
    }

    fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.texts.contains_key(path)
            || self.links.contains_key(path)
            || self.texts.range(folder.clone()..).next().is_some_and(|(found, _)| found.starts_with(&folder))
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
        Tree { texts, links: BTreeMap::new() }
    }

    /// Where a rule finds something: `path:line`.
    pub(super) fn places(rule: Rule, tree: &Tree) -> Vec<String> {
        rule(tree).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }
}
