//! What measures and judges, whatever the paper.
//!
//! | file | what |
//! |---|---|
//! | `grid` | a figure: named dimensions × named numbers; its CSV is the result |
//! | `rule` | one line that decides a claim: numbers of a figure, and an operator |
//! | `argument` | claims that no numbers judge, in Markdown |
//! | `charts` | lines and bars of a figure |
//! | `description` | what a page says of each experiment, in Markdown |
//! | `source` | the text of a rule, so that one which changed after the run that it judges is seen |
//! | `verdict` | rules applied to CSVs |
//! | `register` | the claims of a paper |
//! | `page` | the page of a paper: counts, charts, tables, verdicts |
//! | `series` | what can be said of many operations: percentiles, rates, first successes |
//! | `measure` | runs what measures, on all cores or alone, and writes the CSVs |
//! | `closed_loops` | simulated clusters under closed loops of clients |
//! | `cluster` | real clusters, loaded, and robbed of their leader |

/// [`Experiment`]s, each an ID, its figures, what measures them, and what draws them under which title, if it is drawn.
macro_rules! experiments {
    ($($id:literal: $($figure:ident),+ => $measure:path $(, $draw:path, $title:literal)?;)+) => {
        &[$($crate::instrument::Experiment {
            id: $id,
            figures: &[$(&$figure),+],
            charts: $crate::instrument::experiments!(@charts $($draw, $title)?),
            #[cfg(feature = "measure")]
            measure: $measure,
        }),+]
    };
    (@charts) => { None };
    (@charts $draw:path, $title:literal) => { Some(($title, $draw)) };
}
pub(crate) use experiments;

pub mod argument;
pub mod charts;
#[cfg(feature = "measure")]
pub mod closed_loops;
#[cfg(feature = "measure")]
pub mod cluster;
pub mod description;
pub mod grid;
#[cfg(feature = "measure")]
pub mod measure;
pub mod page;
pub mod register;
pub mod rule;
#[cfg(feature = "measure")]
pub mod series;
pub mod source;
pub mod verdict;

use description::Description;
use grid::{Data, Figure};
use quorate_bench::chart::Chart;
use rule::Rule;

/// What cannot go on: the text says what was wrong and where.
pub type Result<T> = std::result::Result<T, String>;

/// A paper whose evaluation is measured again.
#[derive(Debug)]
pub struct Paper {
    /// As the command line, the register, and the folders spell it.
    pub name: &'static str,
    /// Begins every claim's ID, such as `LG`.
    pub prefix: &'static str,
    /// In the order of the page.
    pub experiments: &'static [Experiment],
    /// What the page says of them: the text of a file that [`description::parse`] reads.
    pub descriptions: &'static str,
    /// One for each claim that numbers judge.
    pub measured: fn() -> Vec<Rule>,
    /// The text of the files that have these rules.
    pub rules_text: &'static str,
    /// What is argued, chosen, or not judged: the text of a file that [`argument::parse`] reads.
    pub arguments: &'static str,
}

impl Paper {
    /// What its page says of the experiments.
    pub fn description(&self) -> Result<Description> {
        description::parse(self.descriptions)
    }

    /// One rule for each claim of the register.
    pub fn rules(&self) -> Result<Vec<Rule>> {
        Ok([(self.measured)(), argument::parse(self.arguments)?].concat())
    }
}

/// Draws what was measured.
pub type Draw = fn(&Data) -> Vec<Chart>;

/// A section of the page: figures that are measured together.
pub struct Experiment {
    /// As `--only` spells it.
    pub id: &'static str,
    /// A CSV each, which its `measure` fills.
    pub figures: &'static [&'static Figure],
    /// The charts of `ID.svg`, and what they show; none: only tables.
    pub charts: Option<(&'static str, Draw)>,
    #[cfg(feature = "measure")]
    pub measure: fn(&measure::Bench) -> Result<Vec<grid::Rows>>,
}

impl std::fmt::Debug for Experiment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Experiment").field("id", &self.id).finish_non_exhaustive()
    }
}
