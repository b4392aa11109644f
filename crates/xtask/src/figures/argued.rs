//! Claims that no figure measures: each is an argument, with the file or the test that shows it.

use std::path::Path;

use super::Result;
use super::page::Verdict;

/// A claim, a verdict, what is so here, why (perhaps), and what shows it.
pub type Row = (&'static str, Verdict, &'static str, &'static str, &'static str);

/// Figures first, then I, S and X, each by number.
pub fn order(claim: &str) -> (String, u32) {
    let (section, number) = claim.rsplit_once('.').unwrap_or((claim, "0"));
    (section.to_owned(), number.parse().unwrap_or(0))
}

/// Lines of Rust that say something, in a file or a folder.
pub fn lines(path: &Path) -> Result<usize> {
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(fail)?;
        return entries.map(|entry| lines(&entry.map_err(fail)?.path())).sum();
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok(0);
    }
    let text = std::fs::read_to_string(path).map_err(fail)?;
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let says = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    Ok(code.lines().filter(says).count())
}

/// An argument rots when what it points to is renamed: every file is there, and has the words that are named with it.
#[cfg(test)]
pub fn check<'a>(rows: impl Iterator<Item = &'a Row>) {
    for (claim, _, _, _, by) in rows {
        let mut file: Option<(&str, String)> = None;
        for word in crate::tidy::markdown::code_spans(by) {
            if word.starts_with("crates/") {
                let path = crate::root().join(word);
                let text = match path.is_dir() {
                    true => Ok(String::new()),
                    false => std::fs::read_to_string(&path),
                };
                file = Some((word, text.unwrap_or_else(|error| panic!("{claim}: {word}: {error}"))));
            } else {
                let (name, text) = file.as_ref().unwrap_or_else(|| panic!("{claim}: {word} of which file?"));
                assert!(text.contains(word), "{claim}: {name} has no {word}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_listed_by_number() {
        let mut claims = ["LG-S.10", "LG-I.2", "LG-S.9", "LG-2.1"];
        claims.sort_by_key(|claim| order(claim));
        assert_eq!(claims, ["LG-2.1", "LG-I.2", "LG-S.9", "LG-S.10"]);
    }
}
