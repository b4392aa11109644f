//! The figures of a paper: grids (`crates/bench/src/grid.rs`) with an ID, and a table on the page.

use std::collections::BTreeMap;

pub use quorate_bench::grid::*;

/// What is measured, for each combination of what.
#[derive(Debug)]
pub struct Figure {
    /// The name of its CSV, without the ending.
    pub id: &'static str,
    /// Time in which it is measured.
    pub time: Time,
    /// What varies; the first one is what is compared.
    pub dims: &'static [&'static str],
    /// Numbers and their units; without one: a count, a share, a ratio, or 1 for yes and 0 for no.
    pub numbers: &'static [(&'static str, &'static str)],
}

/// Declares [`Figure`]s, each an ID, its dimensions, and its numbers with their units; of virtual time, unless it says
/// `in Real`.
macro_rules! figures {
    ($($name:ident = $id:literal $(in $time:ident)?:
        $($dim:ident),+ => $($number:tt $($unit:literal)?),+;)+) => {$(
        static $name: $crate::instrument::grid::Figure = $crate::instrument::grid::Figure {
            id: $id,
            time: $crate::instrument::grid::figures!(@time $($time)?),
            dims: &[$(stringify!($dim)),+],
            numbers: &[$(($crate::instrument::grid::figures!(@name $number), concat!($($unit)?))),+],
        };
    )+};
    (@time) => { $crate::instrument::grid::Time::Virtual };
    (@time $time:ident) => { $crate::instrument::grid::Time::$time };
    (@name $name:ident) => { stringify!($name) };
    (@name $name:literal) => { $name };
}
pub(crate) use figures;

impl Figure {
    /// The column of a number. Panics if there is none of this name.
    pub fn column(&self, number: &str) -> usize {
        let found = self.numbers.iter().position(|(name, _)| *name == number);
        found.unwrap_or_else(|| panic!("figure {} has no number {number}", self.id))
    }

    /// The place of a dimension. Panics if there is none of this name.
    pub fn dim(&self, dim: &str) -> usize {
        let found = self.dims.iter().position(|name| *name == dim);
        found.unwrap_or_else(|| panic!("figure {} has no dimension {dim}", self.id))
    }

    /// The columns of its CSV.
    pub fn schema(&self) -> Schema {
        Schema { id: self.id, dims: self.dims, numbers: self.numbers }
    }
}

/// What an experiment hands over for one of its figures.
#[cfg(feature = "measure")]
#[derive(Debug)]
pub struct Rows(pub &'static Figure, pub Vec<Row>);

/// The figures of a paper that have been measured, by their IDs.
#[derive(Clone, Debug, Default)]
pub struct Data(pub BTreeMap<&'static str, Grid>);

impl Data {
    /// The points of a figure; none if it has not been measured.
    pub fn points(&self, figure: &Figure) -> Vec<Point> {
        self.0.get(figure.id).map_or(Vec::new(), |grid| grid.points(figure.time))
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

/// Grids for tests.
#[cfg(test)]
pub mod tests {
    use super::*;

    pub static VIRTUAL: Figure = Figure {
        id: "virtual",
        time: Time::Virtual,
        dims: &["system", "delay_ms"],
        numbers: &[("read", "ms"), ("count", "")],
    };
    pub static REAL: Figure = Figure { id: "real", time: Time::Real, ..VIRTUAL };

    /// A grid as its CSV without the line of columns.
    pub fn grid(figure: &Figure, head: &str, rows: &str) -> Grid {
        let schema = figure.schema();
        Grid::parse(schema, &format!("{head}{}\n{rows}", schema.columns().join(","))).unwrap()
    }
}
