//! What a page says of each experiment, as a Markdown file that a person reads: its title, how it was set up, and what
//! each of its tables shows.
//!
//! ```text
//! # Crossword and its peers, measured again
//!
//! The paper, and how it is measured; paragraphs stay apart.
//!
//! ## world
//!
//! - what several experiments have in common
//!
//! ## fig8: Figure 8: the size of values
//!
//! - [world]
//! - parameters, and choices where the paper leaves them open
//!
//! ### fig8-sizes
//!
//! What the table of this figure shows; a figure without such a heading has no table.
//! ```

use std::collections::BTreeMap;

use super::Result;

/// See the file comment. Lines that Markdown takes for one are one.
#[derive(Debug, Default)]
pub struct Description {
    /// The first heading of the page.
    pub title: String,
    /// The paper, and how it is measured.
    pub intro: String,
    sections: BTreeMap<&'static str, Section>,
    tables: BTreeMap<&'static str, String>,
}

/// What is said of an experiment.
#[derive(Debug, Default)]
pub struct Section {
    pub title: &'static str,
    /// The items of its list.
    pub setup: Vec<String>,
}

impl Description {
    /// What is said of an experiment.
    pub fn of(&self, id: &str) -> Result<&Section> {
        self.sections.get(id).ok_or_else(|| format!("descriptions: there is no `## {id}: TITLE`"))
    }

    /// What the table of a figure shows; `None`: it has none.
    pub fn table(&self, figure: &str) -> Option<&str> {
        self.tables.get(figure).map(String::as_str)
    }
}

/// Reads such a file.
pub fn parse(text: &'static str) -> Result<Description> {
    let mut all = Description::default();
    let (mut section, mut table, mut before) = (None, None, "");
    for (number, line) in (1..).zip(text.lines()) {
        let begins = std::mem::replace(&mut before, line).is_empty();
        if line.is_empty() {
            continue;
        }
        let wrong = |what: &str| Err(format!("descriptions, line {number}: {what}: {line}"));
        if let Some(title) = line.strip_prefix("# ") {
            title.clone_into(&mut all.title);
        } else if let Some(head) = line.strip_prefix("## ") {
            let (id, title) = head.split_once(": ").unwrap_or((head, ""));
            (section, table) = (Some(id), None);
            all.sections.insert(id, Section { title, setup: Vec::new() });
        } else if let Some(figure) = line.strip_prefix("### ") {
            table = Some(figure);
        } else if let Some(figure) = table {
            append(all.tables.entry(figure).or_default(), line);
        } else if let Some(id) = section {
            let item = line.strip_prefix("- ");
            let mut items = vec![item.unwrap_or_default().to_owned()];
            if let Some(other) = item.and_then(|item| item.strip_prefix('[')?.strip_suffix(']')) {
                let Some(common) = all.sections.get(other) else {
                    return wrong("nothing above has this name");
                };
                items.clone_from(&common.setup);
            }
            let setup = &mut all.sections.entry(id).or_default().setup;
            match (setup.last_mut(), item) {
                (_, Some(_)) => setup.append(&mut items),
                (Some(last), None) => append(last, line.trim_start()),
                (None, None) => return wrong("`- …` expected"),
            }
        } else if begins && !all.intro.is_empty() {
            all.intro = format!("{}\n\n{line}", all.intro);
        } else {
            append(&mut all.intro, line);
        }
    }
    Ok(all)
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_and_what_is_none_is_refused_with_its_line() {
        let text = "# X\n\nOf\nY.\n\nZ.\n\n## world\n\n- round\n  and blue\n\n## a: Figure 1: A\n\n- [world]\n- b\n\n\
                    ### a-1\n\nOne\ntwo.\n\n## c: C\n\n- d\n";
        let all = parse(text).unwrap();
        assert_eq!((&all.title[..], &all.intro[..]), ("X", "Of Y.\n\nZ."));
        let section = all.of("a").unwrap();
        assert_eq!(
            (section.title, &section.setup[..]),
            ("Figure 1: A", &["round and blue", "b"].map(str::to_owned)[..])
        );
        assert_eq!((all.table("a-1"), all.table("c")), (Some("One two."), None));
        assert_eq!(all.of("c").unwrap().setup, ["d"]);
        assert!(all.of("e").unwrap_err().contains("`## e: TITLE`"));
        let error = |text| parse(text).unwrap_err();
        assert!(error("## a: A\n- [b]\n").starts_with("descriptions, line 2: nothing above has this name"));
        assert!(error("## a: A\nb\n").starts_with("descriptions, line 2: `- …` expected"));
    }
}
