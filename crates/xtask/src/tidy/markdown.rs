//! What a Markdown text consists of, as far as the checks of documents need it: prose, links, headings, and fenced
//! blocks of code. Line by line; a link or a code span that goes over two lines is not seen.

/// A line of prose, outside of fenced blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1.
    pub number: usize,
    /// Without the mark of a comment, where it is one.
    pub text: &'a str,
}

/// A fenced block of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The line of its opening fence, from 1.
    pub number: usize,
    /// What follows the fence: the language, and further words.
    pub info: &'a str,
    /// Its lines, without the fences.
    pub lines: Vec<&'a str>,
}

/// Parts prose from blocks.
pub fn parse<'a>(lines: impl IntoIterator<Item = Line<'a>>) -> (Vec<Line<'a>>, Vec<Block<'a>>) {
    let (mut prose, mut blocks, mut open) = (Vec::new(), Vec::new(), None::<Block<'a>>);
    for line in lines {
        match (line.text.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(info), None) => {
                open = Some(Block { number: line.number, info: info.trim(), lines: Vec::new() });
            }
            (None, Some(mut block)) => {
                block.lines.push(line.text);
                open = Some(block);
            }
            (None, None) => prose.push(line),
        }
    }
    blocks.extend(open);
    (prose, blocks)
}

/// The lines of a document.
pub fn document(text: &str) -> impl Iterator<Item = Line<'_>> {
    (1..).zip(text.lines()).map(|(number, text)| Line { number, text })
}

/// The lines of the comments of a source file; code ends whatever a comment has left open.
pub fn comments(text: &str) -> impl Iterator<Item = Line<'_>> {
    document(text).filter_map(|Line { number, text }| {
        let text = text.trim_start().strip_prefix("//")?;
        Some(Line { number, text: text.trim_start_matches(['/', '!']) })
    })
}

/// Where the links and pictures of a line lead: `[text](target)`.
pub fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let rest = &line[at + 2..];
        // In a code span, brackets are code.
        let quotes = line[..at].matches('`').count();
        if let (0, Some(end)) = (quotes % 2, rest.find(')')) {
            found.push(rest[..end].split(' ').next().unwrap_or_default());
        }
    }
    found
}

/// What stands in backquotes.
pub fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The name by which a heading is linked to, as GitHub makes it; `None` if the line is no heading.
pub fn anchor(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    if !(1..=6).contains(&level) || !text.starts_with(' ') {
        return None;
    }
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    Some(kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_parted_from_blocks() {
        let text = "a\n```sh run\nb\n# c\n```\nd\n```\ne";
        let (prose, blocks) = parse(document(text));
        let prose: Vec<_> = prose.iter().map(|line| (line.number, line.text)).collect();
        assert_eq!(prose, [(1, "a"), (6, "d")]);
        let blocks: Vec<_> =
            blocks.iter().map(|block| (block.number, block.info, &block.lines[..])).collect();
        assert_eq!(blocks, [(2, "sh run", &["b", "# c"][..]), (7, "", &["e"][..])]);
    }

    #[test]
    fn comments_are_the_prose_of_a_source_file() {
        let text = "//! a\nfn b() {} // c\n    /// d\n// e\n";
        let lines: Vec<_> = comments(text).map(|line| (line.number, line.text)).collect();
        assert_eq!(lines, [(1, " a"), (3, " d"), (4, " e")]);
    }

    #[test]
    fn links_in_code_are_no_links() {
        let line = "see [a](b.md#c), ![d](e.svg \"f\") and `[g](h)` [`i`](j)";
        assert_eq!(targets(line), ["b.md#c", "e.svg", "j"]);
    }

    #[test]
    fn headings_are_linked_to_as_github_names_them() {
        let heading = "## The Paxos family: one machine, `Policy`";
        assert_eq!(anchor(heading).as_deref(), Some("the-paxos-family-one-machine-policy"));
        assert_eq!(anchor("# EPaxos\\*"), Some("epaxos".to_owned()));
        assert_eq!(anchor("#[test]"), None);
        assert_eq!(anchor("text"), None);
    }
}
