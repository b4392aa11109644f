//! Rules about lines and single files.
//!
//! The words that are searched for are put together from halves, so that this file does not contain them.

use super::{Finding, TEXTS, Tree};

/// Columns of a line, by characters.
const COLUMNS: usize = 120;

/// Where lines are as long as they come: registers of claims, and what programs write.
const FREE: [&str; 3] = ["papers/claims/", "docs/figures/", "docs/COMPARISON.md"];

/// Lines of a file.
const LINES: usize = 600;

/// What a file says that must be longer.
const LONG: &str = "// tidy: long because ";

/// What a test says, on the line before, that must sleep.
const SLEEPS: &str = "// tidy: sleeps because ";

/// No line is longer than 120 columns; rows of tables may be, in documents and in documentation. So may registers of
/// claims, where a claim is a line, and pages that programs write.
pub fn line_length(tree: &Tree) -> Vec<Finding> {
    let wide = |line: &str| line.chars().count() > COLUMNS;
    let row = |line: &str| {
        let text = line.trim_start();
        let text = text.strip_prefix("//!").or_else(|| text.strip_prefix("///")).unwrap_or(text);
        text.trim_start().starts_with('|')
    };
    let free = |path: &str| FREE.iter().any(|folder| path.starts_with(folder));
    let found = lines(tree, &[".rs", ".md", ".py", ".go", ".js"], move |path, line| {
        wide(line) && !row(line) && !free(path)
    });
    findings(found, "the line is longer than 120 columns")
}

/// No line ends in spaces.
pub fn trailing_space(tree: &Tree) -> Vec<Finding> {
    let found = lines(tree, TEXTS, |_, line| line.ends_with([' ', '\t']));
    findings(found, "spaces at the end of the line")
}

/// Every source file begins with what it is.
pub fn file_docs(tree: &Tree) -> Vec<Finding> {
    let bare = tree.ending(".rs").filter(|(_, text)| !text.starts_with("//! "));
    bare.map(|(path, _)| Finding::new(path, 1, "begin with `//! `: what it is, and why")).collect()
}

/// No source file is longer than 600 lines without a reason.
pub fn file_length(tree: &Tree) -> Vec<Finding> {
    let long = tree.ending(".rs").filter(|(_, text)| {
        text.lines().count() > LINES && !text.lines().any(|line| line.trim_start().starts_with(LONG))
    });
    long.map(|(path, text)| {
        let count = text.lines().count();
        Finding::new(path, 0, format!("{count} lines: give it a second room, or say `{LONG}…`"))
    })
    .collect()
}

/// No code stands for code to come, and none is there to look at a value.
pub fn unfinished_code(tree: &Tree) -> Vec<Finding> {
    const CALLS: [&str; 3] = [concat!("to", "do!"), concat!("unim", "plemented!"), concat!("d", "bg!")];
    let found = lines(tree, &[".rs"], |_, line| CALLS.iter().any(|call| code(line).contains(call)));
    findings(found, "finish it, or return an error that says what is not supported")
}

/// No note stands for work to come.
pub fn unfinished_notes(tree: &Tree) -> Vec<Finding> {
    const WORDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let found = lines(tree, TEXTS, |_, line| {
        line.split(|c: char| !c.is_alphanumeric()).any(|word| WORDS.contains(&word))
    });
    findings(found, "do it now, or open an issue")
}

/// No test sleeps: it waits for what it needs.
pub fn sleeping_tests(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let mut in_test = path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let mut excused = false;
        for (line, text) in (1..).zip(text.lines()) {
            in_test |= text.trim_start().starts_with(concat!("#[cfg(", "test)]"));
            if in_test && !excused && code(text).contains(concat!("thread::", "sleep")) {
                found.push(Finding::new(
                    path,
                    line,
                    format!("a test that sleeps: wait for what it needs, or say `{SLEEPS}…` above"),
                ));
            }
            excused = text.trim_start().starts_with(SLEEPS);
        }
    }
    found
}

/// Lines that fit, in files with these endings.
fn lines<'a>(
    tree: &'a Tree,
    endings: &'a [&'a str],
    fits: impl Fn(&str, &str) -> bool + Copy + 'a,
) -> impl Iterator<Item = (&'a str, usize)> {
    endings.iter().flat_map(|ending| tree.ending(ending)).flat_map(move |(path, text)| {
        (1..).zip(text.lines()).filter(move |(_, text)| fits(path, text)).map(move |(line, _)| (path, line))
    })
}

fn findings<'a>(places: impl Iterator<Item = (&'a str, usize)>, message: &str) -> Vec<Finding> {
    places.map(|(path, line)| Finding::new(path, line, message)).collect()
}

/// A file without its comments.
pub fn code_of(text: &str) -> String {
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn long_lines_are_found_by_characters_and_tables_may_have_them() {
        let (fits, long) = ("ä".repeat(120), "a".repeat(121));
        let tree = tree(&[
            ("a.rs", &format!("{fits}\n{long}\n//! | {long} |\n    /// | {long} |\n// | {long} |")),
            ("b.md", &format!("| {long} |\n{fits}\n{long}")),
            ("c.toml", &long),
            ("d.py", &long),
            ("papers/claims/e.md", &long),
        ]);
        assert_eq!(places(line_length, &tree), ["a.rs:2", "a.rs:5", "b.md:3", "d.py:1"]);
    }

    #[test]
    fn spaces_at_the_end_are_found() {
        let tree = tree(&[("a.rs", "fine\nbad \n"), ("b.md", "bad\t"), ("c.csv", "any ")]);
        assert_eq!(places(trailing_space, &tree), ["a.rs:2", "b.md:1"]);
    }

    #[test]
    fn a_file_without_an_opening_is_found() {
        let tree = tree(&[("a.rs", "//! What.\n"), ("b.rs", "// What.\n"), ("c.rs", ""), ("d.md", "")]);
        assert_eq!(places(file_docs, &tree), ["b.rs:1", "c.rs:1"]);
    }

    #[test]
    fn a_long_file_is_found_unless_it_says_why() {
        let lines = "x\n".repeat(600);
        let tree = tree(&[
            ("a.rs", &lines),
            ("b.rs", &format!("{lines}x")),
            ("c.rs", &format!("{lines}{LONG}of it")),
        ]);
        assert_eq!(places(file_length, &tree), ["b.rs:0"]);
    }

    #[test]
    fn code_to_come_is_found_but_may_be_spoken_of() {
        for call in [concat!("to", "do!()"), concat!("unim", "plemented!()"), concat!("let x = d", "bg!(y);")]
        {
            let tree = tree(&[("a.rs", &format!("f();\n{call}\n// never {call}\n"))]);
            assert_eq!(places(unfinished_code, &tree), ["a.rs:2"], "{call}");
        }
    }

    #[test]
    fn notes_of_work_to_come_are_found_as_words() {
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            let tree = tree(&[("a.rs", &format!("x\n// {word}: later\n// {word}S")), ("b.md", word)]);
            assert_eq!(places(unfinished_notes, &tree), ["a.rs:2", "b.md:1"], "{word}");
        }
    }

    #[test]
    fn a_sleeping_test_is_found_and_sleeping_code_is_not() {
        let sleep = concat!("    std::thread::", "sleep(pause);\n");
        let test = format!("{sleep}{}\nmod tests {{\n{sleep}}}\n", concat!("#[cfg(", "test)]"));
        let excused = format!("{SLEEPS}the process has no other sign\n{sleep}{sleep}");
        let tree = tree(&[
            ("crates/a/src/a.rs", &test),
            ("crates/a/src/tests.rs", sleep),
            ("crates/a/tests/b.rs", sleep),
            ("crates/a/tests/c.rs", &excused),
        ]);
        let expected = [
            "crates/a/src/a.rs:4",
            "crates/a/src/tests.rs:1",
            "crates/a/tests/b.rs:1",
            "crates/a/tests/c.rs:3",
        ];
        assert_eq!(places(sleeping_tests, &tree), expected);
    }
}
