//! Claims that no figure measures. `papers/arguments/PAPER.md` argues about them, each below a heading with its ID and
//! the verdict: what is so here, then paragraphs `Because: …` and `Shown by: …`, each of which may be missing.

use std::path::Path;

use super::Result;
use super::page::{Judged, Verdict};

/// Reads the arguments about a paper's claims.
pub fn read(paper: &str) -> Result<Vec<Judged>> {
    let path = crate::root().join(format!("papers/arguments/{paper}.md"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.split("\n## ").skip(1).map(parse).collect()
}

fn parse(text: &str) -> Result<Judged> {
    let mut parts = text.split("\n\n").map(|part| part.trim().replace('\n', " "));
    let head = parts.next().unwrap_or_default();
    let (claim, verdict) = head.split_once(' ').ok_or_else(|| format!("`{head}` has no verdict"))?;
    let verdict = Verdict::named(verdict).ok_or_else(|| format!("{claim}: `{verdict}` is no verdict"))?;
    let ours = parts.next().ok_or_else(|| format!("{claim}: what is so here is missing"))?;
    let (mut why, mut by) = (String::new(), "this page".to_owned());
    for part in parts.filter(|part| !part.is_empty()) {
        match part.split_once(": ") {
            Some(("Because", rest)) => why = rest.to_owned(),
            Some(("Shown by", rest)) => by = rest.to_owned(),
            _ => return Err(format!("{claim}: `{part}` is neither `Because: …` nor `Shown by: …`")),
        }
    }
    Ok(Judged { claim: claim.to_owned(), ours, verdict, why, by })
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// An argument rots when what it points to is renamed: every file is there, and has the words that are named with
    /// it.
    #[test]
    fn what_arguments_name_is_there() {
        let arguments = read("bodega").unwrap();
        assert!(arguments.len() > 20, "{}", arguments.len());
        for Judged { claim, by, .. } in &arguments {
            assert_named(claim, by);
        }
    }

    fn assert_named(claim: &str, by: &str) {
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

    #[test]
    fn an_argument_that_is_not_whole_is_refused() {
        let whole = parse("B-1.2 differs\n\nhere\nso\n\nBecause: why\n").unwrap();
        let Judged { claim, ours, verdict, why, by } = whole;
        assert_eq!([claim, ours, why, by], ["B-1.2", "here so", "why", "this page"]);
        assert_eq!(verdict, Verdict::Differs);
        for text in ["B-1.2", "B-1.2 perhaps\n\nso", "B-1.2 agrees", "B-1.2 agrees\n\nso\n\nThus: so"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn claims_are_listed_by_number() {
        let mut claims = ["LG-S.10", "LG-I.2", "LG-S.9", "LG-2.1"];
        claims.sort_by_key(|claim| order(claim));
        assert_eq!(claims, ["LG-2.1", "LG-I.2", "LG-S.9", "LG-S.10"]);
    }
}
