//! A digest of each rule's text. The CSV carries the digests of the rules that judge it, taken when it was measured: a
//! rule that has another text now was changed after the run, and the page says so.

use std::collections::BTreeMap;

/// How an expression begins that makes a rule of a claim, without spaces.
const BEGINNING: &str = "rule(\"";

/// The digest of each claim's rule. It covers the expression up to the next one, and the functions and constants of the
/// paper's rules that it names, and those that they name, and so on; spaces and comments do not count. The operators
/// (`rule.rs`) are the same for all rules and have tests of their own.
pub fn digests(text: &str) -> BTreeMap<String, String> {
    let mut items: Vec<(&str, String)> = Vec::new();
    for line in text.lines() {
        if !line.is_empty() && !line.starts_with([' ', '}', ']', ')']) {
            items.push((item(line), String::new()));
        }
        if let Some((_, text)) = items.last_mut()
            && !line.trim_start().starts_with("//")
        {
            for part in line.split_whitespace() {
                // Only words need something between them.
                if text.ends_with(is_word) && part.starts_with(is_word) {
                    text.push(' ');
                }
                text.push_str(part);
            }
        }
    }
    let (lists, helpers): (Vec<_>, Vec<_>) = items.into_iter().partition(|(_, text)| next(text, 0).is_some());
    let mut digests = BTreeMap::new();
    for (_, list) in &lists {
        let mut begin = next(list, 0);
        // What the list binds before its first rule, all of them may name.
        let before = list[..begin.unwrap_or(0)].split_once('{').map_or("", |(_, before)| before);
        while let Some(at) = begin {
            begin = next(list, at + 1);
            let rule = list[at..begin.unwrap_or(list.len())].trim_end_matches([',', ']', '}']);
            let claim = rule.split('"').nth(1).unwrap_or_default().to_owned();
            let mut all = before.to_owned() + rule;
            let mut left: Vec<_> = helpers.iter().filter(|(name, _)| !name.is_empty()).collect();
            // What is found may name some that come before it.
            while let Some(at) = left.iter().position(|(name, _)| names(&all, name)) {
                let (name, body) = left.remove(at);
                all.push_str(name);
                all.push_str(body);
            }
            digests.insert(claim, format!("{:08x}", fnv(&all) as u32));
        }
    }
    digests
}

/// Where the next rule begins.
fn next(text: &str, from: usize) -> Option<usize> {
    let mut found = text[from..].match_indices(BEGINNING).map(|(at, _)| from + at);
    found.find(|at| !text[..*at].ends_with(is_word))
}

/// Whether a text has this word.
fn names(text: &str, word: &str) -> bool {
    let mut found = text.match_indices(word);
    found.any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word))
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The name of a function or constant that begins in this line; empty for other items.
fn item(line: &str) -> &str {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = ["fn ", "const ", "static "].iter().find_map(|word| line.strip_prefix(word));
    rest.and_then(|rest| rest.split(|char: char| !char.is_alphanumeric() && char != '_').next()).unwrap_or("")
}

/// The 64-bit FNV-1a hash of a text.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
use x;
const LIMIT: f64 = 1.0;
const ODD: u32 = 1;
fn odd(data: &Data) -> bool {
    for x in ODDS {
        helper(x)
    }
}
const ODDS: u32 = 2;
fn helper(data: &Data) -> bool {
    data.is(ODD)
}
fn help() {}
pub fn rules() -> Vec<Rule> {
    let read = || FIG.of(\"read\");
    vec![
        rule(\"A-1\", read().at_most(LIMIT)),
        // A comment.
        rule(\"A-2\", read().at_most(2.0))
            .why(\"x\"),
        rule(
            \"A-3\",
            FIG.holds(\"words\", odd),
        ),
    ]
}
";

    #[test]
    fn a_rule_has_another_digest_when_it_or_what_it_names_is_changed_and_not_otherwise() {
        let before = digests(TEXT);
        assert_eq!(before.keys().collect::<Vec<_>>(), ["A-1", "A-2", "A-3"]);
        let changed = |from: &str, to: &str| {
            let after = digests(&TEXT.replace(from, to));
            let changed = before.iter().filter(|(claim, digest)| after.get(*claim) != Some(digest));
            changed.map(|(claim, _)| claim.clone()).collect::<Vec<_>>()
        };
        assert_eq!(changed("at_most(2.0)", "at_most(3.0)"), ["A-2"]);
        assert_eq!(changed("|| FIG", "|| FIG2"), ["A-1", "A-2", "A-3"]);
        assert_eq!(changed("LIMIT: f64 = 1.0", "LIMIT: f64 = 2.0"), ["A-1"]);
        assert_eq!(changed("helper(x)\n", "true\n"), ["A-3"]);
        assert_eq!(changed("ODDS: u32 = 2", "ODDS: u32 = 3"), ["A-3"]);
        assert_eq!(changed("ODD: u32 = 1", "ODD: u32 = 3"), ["A-3"], "what its helper's helper names");
        assert_eq!(changed("fn help() {}", "fn help() { x }"), Vec::<String>::new());
        assert_eq!(changed("// A comment.", "// Another."), Vec::<String>::new());
        assert_eq!(changed("\n            .why", " .why"), Vec::<String>::new());
        assert_eq!(changed("use x", "use y"), Vec::<String>::new());
    }
}
