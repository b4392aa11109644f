//! Rows of numbers, as CSV for programs and as Markdown for people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// Rows of words under headings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Of the columns.
    pub heads: Vec<String>,
    /// Each as long as the heads.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub fn new<const N: usize>(heads: [&str; N]) -> Table {
        Table { heads: heads.map(str::to_owned).to_vec(), rows: Vec::new() }
    }

    /// One more row.
    pub fn row<const N: usize>(&mut self, words: [String; N]) {
        assert_eq!(N, self.heads.len(), "a word under each heading");
        self.rows.push(words.to_vec());
    }

    /// Commas between, quotes where they are needed (RFC 4180).
    pub fn csv(&self) -> String {
        let word = |word: &String| match word.contains([',', '"', '\n']) {
            true => format!("\"{}\"", word.replace('"', "\"\"")),
            false => word.clone(),
        };
        let lines = std::iter::once(&self.heads).chain(&self.rows);
        lines.map(|line| line.iter().map(word).collect::<Vec<_>>().join(",") + "\n").collect()
    }

    /// A table of a page.
    pub fn markdown(&self) -> String {
        let line = |words: &Vec<String>| {
            let words = words.iter().map(|word| word.replace('|', "\\|").replace('\n', " "));
            format!("| {} |", words.collect::<Vec<_>>().join(" | "))
        };
        let mut text = line(&self.heads);
        let _ = write!(text, "\n|{}\n", "---|".repeat(self.heads.len()));
        self.rows.iter().for_each(|row| text.push_str(&(line(row) + "\n")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_break_their_cells() {
        let mut table = Table::new(["a", "b,c"]);
        table.row(["1".to_owned(), "x|\"y\"\nz".to_owned()]);
        assert_eq!(table.csv(), "a,\"b,c\"\n1,\"x|\"\"y\"\"\nz\"\n");
        assert_eq!(table.markdown(), "| a | b,c |\n|---|---|\n| 1 | x\\|\"y\" z |\n");
    }
}
