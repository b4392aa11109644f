//! A figure is a grid: named dimensions × named numbers, measured in one or more runs. Its CSV is the result, one line
//! for each point and run, below a head of `# name: value` lines that say what was measured, where and when.

use std::collections::BTreeMap;
#[cfg(feature = "measure")]
use std::fmt::Display;
#[cfg(any(test, feature = "measure"))]
use std::fmt::Write;

use super::Result;

/// Time in which a figure is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The simulator's: the same on every machine, however busy.
    Virtual,
    /// Of real processes on this machine.
    Real,
}

/// What is measured, for each combination of what.
#[derive(Debug)]
pub struct Figure {
    /// The name of its CSV, without the ending.
    pub id: &'static str,
    pub time: Time,
    /// What varies; the first one is what is compared.
    pub dims: &'static [&'static str],
    /// Numbers and their units; without one: a count, a share, a ratio, or 1 for yes and 0 for no.
    pub numbers: &'static [(&'static str, &'static str)],
    /// What the table of it on the page shows; `None`: no table.
    pub table: Option<&'static str>,
}

impl Figure {
    /// The column of a number.
    pub fn column(&self, number: &str) -> usize {
        let found = self.numbers.iter().position(|(name, _)| *name == number);
        found.unwrap_or_else(|| panic!("figure {} has no number {number}", self.id))
    }

    /// The place of a dimension.
    pub fn dim(&self, dim: &str) -> usize {
        let found = self.dims.iter().position(|name| *name == dim);
        found.unwrap_or_else(|| panic!("figure {} has no dimension {dim}", self.id))
    }

    fn heads(&self) -> Vec<String> {
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

#[cfg(feature = "measure")]
impl Row {
    /// What one run measured, the first if there are several.
    pub fn of<const N: usize>(keys: &[&dyn Display], numbers: [f64; N]) -> Row {
        let keys = keys.iter().map(ToString::to_string).collect();
        Row { keys, run: 1, numbers: numbers.map(Some).to_vec() }
    }
}

/// What an experiment hands over for one of its figures.
#[cfg(feature = "measure")]
#[derive(Debug)]
pub struct Rows(pub &'static Figure, pub Vec<Row>);

/// A figure that has been measured.
#[derive(Clone, Debug)]
pub struct Grid {
    /// `# name: value` of the CSV.
    pub head: BTreeMap<String, String>,
    pub rows: Vec<Row>,
}

impl Grid {
    /// The CSV. Numbers have four significant digits, or all digits of whole numbers.
    #[cfg(any(test, feature = "measure"))]
    pub fn csv(&self, figure: &Figure) -> String {
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
        line(&figure.heads());
        for row in &self.rows {
            let numbers = row.numbers.iter().map(|number| number.map_or(String::new(), digits));
            line(&row.keys.iter().cloned().chain([row.run.to_string()]).chain(numbers).collect::<Vec<_>>());
        }
        text
    }

    /// Reads what [`Grid::csv`] wrote.
    pub fn parse(figure: &Figure, text: &str) -> Result<Grid> {
        let wrong = |line: usize, what: &str| format!("{}.csv, line {line}: {what}", figure.id);
        let mut grid = Grid { head: BTreeMap::new(), rows: Vec::new() };
        let mut heads = None;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let (name, value) =
                    comment.split_once(": ").ok_or_else(|| wrong(number, "`# name: value` expected"))?;
                grid.head.insert(name.to_owned(), value.to_owned());
                continue;
            }
            let words = split(line);
            if heads.is_none() {
                if words != figure.heads() {
                    return Err(wrong(number, &format!("the columns must be {}", figure.heads().join(","))));
                }
                heads = Some(words);
                continue;
            }
            if words.len() != figure.heads().len() {
                return Err(wrong(number, &format!("{} columns expected", figure.heads().len())));
            }
            let (keys, rest) = words.split_at(figure.dims.len());
            let run = rest[0].parse().map_err(|_| wrong(number, "the run is no number"))?;
            let value = |word: &String| match word.as_str() {
                "" => Ok(None),
                word => word.parse().map(Some).map_err(|_| wrong(number, &format!("`{word}` is no number"))),
            };
            let numbers = rest[1..].iter().map(value).collect::<Result<_>>()?;
            grid.rows.push(Row { keys: keys.to_vec(), run, numbers });
        }
        match heads {
            None => Err(wrong(1, "no columns")),
            Some(_) => Ok(grid),
        }
    }

    /// What a line of its head says.
    pub fn says(&self, name: &str) -> &str {
        self.head.get(name).map_or("", String::as_str)
    }

    /// The numbers of the runs, from 1.
    pub fn runs(&self) -> Vec<u32> {
        let mut runs: Vec<_> = self.rows.iter().map(|row| row.run).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Every point: of a figure in virtual time the mean of its runs, in real time their median.
    pub fn points(&self, figure: &Figure) -> Vec<Point> {
        let mut points: Vec<(Vec<String>, Vec<Vec<f64>>)> = Vec::new();
        for row in &self.rows {
            let at = points.iter().position(|(keys, _)| *keys == row.keys).unwrap_or_else(|| {
                points.push((row.keys.clone(), vec![Vec::new(); figure.numbers.len()]));
                points.len() - 1
            });
            for (all, number) in points[at].1.iter_mut().zip(&row.numbers) {
                all.extend(number);
            }
        }
        let cell = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            let (low, high) = (*all.first()?, *all.last()?);
            let value = match figure.time {
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
        Grid { head: self.head.clone(), rows }
    }
}

/// A number at a point, over the runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A point of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub keys: Vec<String>,
    pub cells: Vec<Option<Cell>>,
}

/// The figures of a paper that have been measured, by their IDs.
#[derive(Clone, Debug, Default)]
pub struct Data(pub BTreeMap<&'static str, Grid>);

impl Data {
    /// The points of a figure; none if it has not been measured.
    pub fn points(&self, figure: &Figure) -> Vec<Point> {
        self.0.get(figure.id).map_or(Vec::new(), |grid| grid.points(figure))
    }

    /// `(dimension, number)` of the points with these keys, for a chart; the dimension must be one of numbers.
    pub fn line(&self, figure: &Figure, at: &[(&str, &str)], dim: &str, number: &str) -> Vec<(f64, f64)> {
        let cells = self.cells(figure, at, dim, number).into_iter();
        cells.map(|(x, cell)| (x, cell.map_or(f64::NAN, |cell| cell.value))).collect()
    }

    /// The same with the spread of the runs.
    pub fn cells(
        &self,
        figure: &Figure,
        at: &[(&str, &str)],
        dim: &str,
        number: &str,
    ) -> Vec<(f64, Option<Cell>)> {
        let (dim, column) = (figure.dim(dim), figure.column(number));
        let here = |point: &Point| at.iter().all(|(name, key)| is_same(&point.keys[figure.dim(name)], key));
        let points = self.points(figure).into_iter().filter(here);
        points.filter_map(|point| Some((point.keys[dim].parse().ok()?, point.cells[column]))).collect()
    }

    /// A number at all points with these keys, where it was measured.
    pub fn values(&self, figure: &Figure, at: &[(&str, &str)], number: &str) -> Vec<f64> {
        let here = |point: &Point| at.iter().all(|(name, key)| is_same(&point.keys[figure.dim(name)], key));
        let points = self.points(figure).into_iter().filter(here);
        points.filter_map(|point| Some(point.cells[figure.column(number)]?.value)).collect()
    }

    /// A number at the first point with these keys.
    pub fn number(&self, figure: &Figure, at: &[(&str, &str)], number: &str) -> Option<f64> {
        self.values(figure, at, number).first().copied()
    }
}

/// Whether two keys are the same word or the same number.
pub fn is_same(one: &str, other: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    one == other || number(one).is_some_and(|value| Some(value) == number(other))
}

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
pub mod tests {
    use super::*;

    pub static VIRTUAL: Figure = Figure {
        id: "virtual",
        time: Time::Virtual,
        dims: &["system", "delay_ms"],
        numbers: &[("read", "ms"), ("count", "")],
        table: Some("Numbers"),
    };
    pub static REAL: Figure = Figure { id: "real", time: Time::Real, ..VIRTUAL };

    /// A grid as its CSV without the line of columns.
    pub fn grid(figure: &Figure, head: &str, rows: &str) -> Grid {
        Grid::parse(figure, &format!("{head}{}\n{rows}", figure.heads().join(","))).unwrap()
    }

    #[test]
    fn a_csv_is_read_as_it_was_written() {
        let text = "# commit: abc\n# quiet: yes\nsystem,delay_ms,run,read_ms,count\n\"a, \"\"b\"\"\",1,1,2.5,3\n\
                    c,1,2,,1234567\n";
        let grid = Grid::parse(&VIRTUAL, text).unwrap();
        assert_eq!((grid.says("commit"), grid.says("nothing")), ("abc", ""));
        assert_eq!((grid.rows[0].keys[0].as_str(), grid.rows[1].numbers[0]), ("a, \"b\"", None));
        assert_eq!(grid.csv(&VIRTUAL), text);
    }

    #[test]
    fn a_csv_of_other_columns_is_refused_with_its_line() {
        let error = |text: &str| Grid::parse(&VIRTUAL, text).unwrap_err();
        assert_eq!(
            error("# a: b\nsystem,run\n"),
            "virtual.csv, line 2: the columns must be system,delay_ms,run,read_ms,count"
        );
        assert!(error("system,delay_ms,run,read_ms,count\na,1,1,x,3\n").contains("line 2: `x` is no number"));
        assert!(error("").contains("no columns"));
    }

    #[test]
    fn runs_become_a_mean_in_virtual_time_and_a_median_in_real_time() {
        let rows = "a,1,1,1,0\na,1,2,2,0\na,1,3,9,\n";
        let cell = |figure: &'static Figure| grid(figure, "", rows).points(figure)[0].cells[0];
        assert_eq!(cell(&VIRTUAL), Some(Cell { value: 4.0, low: 1.0, high: 9.0 }));
        assert_eq!(cell(&REAL), Some(Cell { value: 2.0, low: 1.0, high: 9.0 }));
        assert_eq!(grid(&REAL, "", rows).only(3).rows.len(), 1);
    }

    #[test]
    fn numbers_have_four_digits() {
        let numbers = [0.0, 0.012345, 1.5, 2.0, 123.456, 123456.7, -0.5].map(digits);
        assert_eq!(numbers, ["0", "0.01235", "1.5", "2", "123.5", "123457", "-0.5"]);
    }
}
