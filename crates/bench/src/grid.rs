//! What is measured is a grid: named dimensions × named numbers, measured in one or more runs. Its CSV is the result,
//! one line for each point and run, below a head of `# name: value` lines that say what was measured, where and when.
//! Pages are made from CSVs alone.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// What cannot go on: the text says what was wrong and where.
type Result<T> = std::result::Result<T, String>;

/// Time in which something is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The simulator's: the same on every machine, however busy.
    Virtual,
    /// Of real processes on this machine.
    Real,
}

/// The columns of a CSV.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The name of the CSV, without the ending.
    pub id: &'static str,
    /// What varies; the first one is what is compared.
    pub dims: &'static [&'static str],
    /// Numbers and their units; without one: a count, a share, a ratio, or 1 for yes and 0 for no.
    pub numbers: &'static [(&'static str, &'static str)],
}

impl Schema {
    /// The names of the columns: dimensions, `run`, numbers with their units.
    pub fn columns(&self) -> Vec<String> {
        let dims = self.dims.iter().map(ToString::to_string).chain(["run".to_owned()]);
        let number = |(name, unit): &(&str, &str)| match *unit {
            "" => (*name).to_owned(),
            unit => format!("{name}_{}", unit.replace('/', " per ").trim().replace(' ', "_")),
        };
        dims.chain(self.numbers.iter().map(number)).collect()
    }
}

/// One point in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// One for each dimension.
    pub keys: Vec<String>,
    /// Which repetition, from 1.
    pub run: u32,
    /// One for each number; `None`: there is nothing to measure here.
    pub numbers: Vec<Option<f64>>,
}

impl Row {
    /// What one run measured, the first if there are several.
    pub fn of<N: Into<Option<f64>>>(keys: &[&dyn Display], numbers: impl IntoIterator<Item = N>) -> Row {
        let keys = keys.iter().map(ToString::to_string).collect();
        Row { keys, run: 1, numbers: numbers.into_iter().map(Into::into).collect() }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Grid {
    /// `# name: value` of the CSV.
    pub head: BTreeMap<String, String>,
    /// As of [`Schema::columns`].
    pub columns: Vec<String>,
    /// In the order in which they were measured.
    pub rows: Vec<Row>,
}

impl Grid {
    /// What was just measured.
    pub fn of(schema: Schema, head: BTreeMap<String, String>, rows: Vec<Row>) -> Grid {
        Grid { head, columns: schema.columns(), rows }
    }

    /// The CSV. Numbers have four significant digits, or all digits of whole numbers.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.head {
            let _ = writeln!(text, "# {name}: {value}");
        }
        let word = |word: &String| match word.contains([',', '"', '\n']) {
            true => format!("\"{}\"", word.replace('"', "\"\"")),
            false => word.clone(),
        };
        let mut line = |words: &[String]| {
            let _ = writeln!(text, "{}", words.iter().map(word).collect::<Vec<_>>().join(","));
        };
        line(&self.columns);
        for row in &self.rows {
            let numbers = row.numbers.iter().map(|number| number.map_or(String::new(), digits));
            line(&row.keys.iter().cloned().chain([row.run.to_string()]).chain(numbers).collect::<Vec<_>>());
        }
        text
    }

    /// Reads what [`Grid::csv`] wrote with these columns.
    ///
    /// # Errors
    ///
    /// It is no such CSV, or has other columns; says in which line.
    pub fn parse(schema: Schema, text: &str) -> Result<Grid> {
        let (name, heads) = (format!("{}.csv", schema.id), schema.columns());
        let grid = Grid::read(&name, text)?;
        match grid.columns == heads {
            true => Ok(grid),
            false => {
                Err(format!("{name}, line {}: the columns must be {}", grid.head.len() + 1, heads.join(",")))
            }
        }
    }

    /// Reads what [`Grid::csv`] wrote, whatever its columns; errors begin with this name.
    ///
    /// # Errors
    ///
    /// It is no such CSV; says in which line.
    pub fn read(name: &str, text: &str) -> Result<Grid> {
        let wrong = |line: usize, what: &str| format!("{name}, line {line}: {what}");
        let mut grid = Grid { head: BTreeMap::new(), columns: Vec::new(), rows: Vec::new() };
        let mut dims = None;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let (name, value) =
                    comment.split_once(": ").ok_or_else(|| wrong(number, "`# name: value` expected"))?;
                grid.head.insert(name.to_owned(), value.to_owned());
                continue;
            }
            let words = split(line);
            let Some(dims) = dims else {
                let run = words.iter().position(|word| word == "run");
                dims = Some(run.ok_or_else(|| wrong(number, "there is no column `run`"))?);
                grid.columns = words;
                continue;
            };
            if words.len() != grid.columns.len() {
                return Err(wrong(number, &format!("{} columns expected", grid.columns.len())));
            }
            let (keys, rest) = words.split_at(dims);
            let run = rest[0].parse().map_err(|_| wrong(number, "the run is no number"))?;
            let value = |word: &String| match word.as_str() {
                "" => Ok(None),
                word => word.parse().map(Some).map_err(|_| wrong(number, &format!("`{word}` is no number"))),
            };
            let numbers = rest[1..].iter().map(value).collect::<Result<_>>()?;
            grid.rows.push(Row { keys: keys.to_vec(), run, numbers });
        }
        match dims {
            None => Err(wrong(1, "no columns")),
            Some(_) => Ok(grid),
        }
    }

    /// What a line of its head says.
    pub fn says(&self, name: &str) -> &str {
        self.head.get(name).map_or("", String::as_str)
    }

    /// Where a column with this name and unit is among the numbers of a row.
    pub fn number_at(&self, column: &str) -> Option<usize> {
        let position = |name: &str| self.columns.iter().position(|other| other == name);
        position(column)?.checked_sub(position("run")? + 1)
    }

    /// The numbers of the runs, from 1.
    pub fn runs(&self) -> Vec<u32> {
        let mut runs: Vec<_> = self.rows.iter().map(|row| row.run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Every point: of what was measured in virtual time the mean of its runs, in real time their median.
    pub fn points(&self, time: Time) -> Vec<Point> {
        let mut points: Vec<(Vec<String>, Vec<Vec<f64>>)> = Vec::new();
        for row in &self.rows {
            let at = points.iter().position(|(keys, _)| *keys == row.keys).unwrap_or_else(|| {
                points.push((row.keys.clone(), vec![Vec::new(); row.numbers.len()]));
                points.len() - 1
            });
            for (all, number) in points[at].1.iter_mut().zip(&row.numbers) {
                all.extend(number);
            }
        }
        let cell = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            let (low, high) = (*all.first()?, *all.last()?);
            let value = match time {
                Time::Virtual => all.iter().sum::<f64>() / all.len() as f64,
                Time::Real => all[(all.len() - 1) / 2],
            };
            Some(Cell { value, low, high })
        };
        let point = |(keys, cells): (Vec<String>, Vec<Vec<f64>>)| Point {
            keys,
            cells: cells.into_iter().map(cell).collect(),
        };
        points.into_iter().map(point).collect()
    }

    /// The rows of one run, counted from 1.
    pub fn only(&self, run: u32) -> Grid {
        let rows = self.rows.iter().filter(|row| row.run == run).cloned().collect();
        Grid { rows, ..self.clone() }
    }
}

/// A number at a point, over the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Their mean or median.
    pub value: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl Cell {
    /// For people, with the lowest and the highest where they differ.
    pub fn shown(&self, number: impl Fn(f64) -> String) -> String {
        match self.low == self.high {
            true => number(self.value),
            false => format!("{} ({} to {})", number(self.value), number(self.low), number(self.high)),
        }
    }
}

/// A point of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// One for each dimension.
    pub keys: Vec<String>,
    /// One for each number; `None`: no run has it.
    pub cells: Vec<Option<Cell>>,
}

/// Between which two of these values, which are sorted, the median lies with a probability of 95% or more: as many are
/// below it as a coin shows heads. `None` of nothing; of fewer than six values it is all of them.
pub fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let count = sorted.len();
    let (mut outside, mut chance, mut below) = (0.0, 0.5f64.powi(count as i32), 0);
    while outside + chance <= 0.025 {
        outside += chance;
        chance *= (count - below) as f64 / (below + 1) as f64;
        below += 1;
    }
    let first = below.saturating_sub(1);
    Some((*sorted.get(first)?, *sorted.get((count - 1).checked_sub(first)?)?))
}

/// Fewer runs say too little of what chance decides.
pub const MANY: usize = 20;

/// A number for people and CSVs: four significant digits, without zeros at the end.
pub fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let places = 3 - (value.abs().log10().floor() as i32);
    let text = format!("{value:.*}", places.clamp(0, 9) as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A table in Markdown.
pub fn table(text: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut line = |words: Vec<String>| {
        let words = words.iter().map(|word| word.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", words.collect::<Vec<_>>().join(" | "));
    };
    line(heads.iter().map(ToString::to_string).collect());
    line(vec!["---".to_owned(); heads.len()]);
    rows.for_each(line);
}

/// The words of a line of CSV (RFC 4180, without line breaks in words).
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        let word = words.last_mut().expect("there is one at any time");
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => word.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => words.push(String::new()),
            char => word.push(char),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: Schema =
        Schema { id: "figure", dims: &["system", "delay_ms"], numbers: &[("read", "ms"), ("count", "")] };
    const HEADS: &str = "system,delay_ms,run,read_ms,count";

    #[test]
    fn a_csv_is_read_as_it_was_written() {
        let text =
            format!("# commit: abc\n# quiet: yes\n{HEADS}\n\"a, \"\"b\"\"\",1,1,2.5,3\nc,1,2,,1234567\n");
        let grid = Grid::parse(SCHEMA, &text).unwrap();
        assert_eq!((grid.says("commit"), grid.says("nothing")), ("abc", ""));
        assert_eq!((grid.rows[0].keys[0].as_str(), grid.rows[1].numbers[0]), ("a, \"b\"", None));
        assert_eq!(grid.csv(), text);
        assert_eq!(Grid::of(SCHEMA, grid.head.clone(), grid.rows.clone()).csv(), text);
    }

    #[test]
    fn a_csv_of_other_columns_is_refused_with_its_line() {
        let error = |text: &str| Grid::parse(SCHEMA, text).unwrap_err();
        assert_eq!(error("# a: b\nsystem,run\n"), format!("figure.csv, line 2: the columns must be {HEADS}"));
        assert!(error(&format!("{HEADS}\na,1,1,x,3\n")).contains("line 2: `x` is no number"));
        assert!(error("a,b\n").contains("line 1: there is no column `run`"));
        assert!(error("").contains("no columns"));
    }

    #[test]
    fn runs_become_a_mean_in_virtual_time_and_a_median_in_real_time() {
        let grid = Grid::parse(SCHEMA, &format!("{HEADS}\na,1,1,1,0\na,1,2,2,0\na,1,3,9,\n")).unwrap();
        let cell = |time| grid.points(time)[0].cells[0];
        assert_eq!(cell(Time::Virtual), Some(Cell { value: 4.0, low: 1.0, high: 9.0 }));
        assert_eq!(cell(Time::Real), Some(Cell { value: 2.0, low: 1.0, high: 9.0 }));
        assert_eq!(cell(Time::Real).unwrap().shown(digits), "2 (1 to 9)");
        assert_eq!(grid.only(3).rows.len(), 1);
    }

    #[test]
    fn numbers_have_four_digits() {
        let numbers = [0.0, 0.012345, 1.5, 2.0, 123.456, 123456.7, -0.5].map(digits);
        assert_eq!(numbers, ["0", "0.01235", "1.5", "2", "123.5", "123457", "-0.5"]);
    }

    #[test]
    fn a_table_cannot_be_broken_by_its_words() {
        let mut text = String::new();
        table(&mut text, &["a", "b"], [vec!["1|2".to_owned(), "x\ny".to_owned()]].into_iter());
        assert_eq!(text, "| a | b |\n| --- | --- |\n| 1\\|2 | x y |\n");
    }
}
