//! **The LAW theorem and almost-local reads** (Katsarakis, Gavrielatos and others): the paper's evaluation in our
//! simulator.
//!
//! | file | what |
//! |---|---|
//! | `rules` | one rule for each claim that numbers judge |
//! | `charts` | what is drawn |
//! | `costs` | what reads, writes and messages take of this machine's processor: the figures are made with that |
//! | `world` | the clusters, closed loops of clients, and what can be said of a run |
//! | `loads` | Figures 3, 5 to 10 |

mod charts;
#[cfg(feature = "measure")]
mod costs;
#[cfg(feature = "measure")]
mod loads;
mod rules;
#[cfg(feature = "measure")]
mod world;

use crate::instrument::grid::{Figure, Time};
use crate::instrument::{Experiment, Paper, experiment};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "law",
    prefix: "LAW",
    experiments: EXPERIMENTS,
    descriptions: include_str!("../descriptions/law.md"),
    measured: rules::rules,
    rules_text: include_str!("rules.rs"),
    arguments: include_str!("../arguments/law.md"),
};

const RAFT: &str = "Raft";
const RAFT_ALR: &str = "Raft-ALR";
const ZAB: &str = "ZAB";
const ZAB_ALR: &str = "ZAB-ALR";
const CRAQ_ALR: &str = "CRAQ-ALR";

static COSTS: Figure =
    Figure { id: "costs", time: Time::Real, dims: &["what"], numbers: &[("time", "ns"), ("bytes", "B")] };
/// Of a closed loop.
const TOTALS: &[(&str, &str)] = &[("operations", "/s"), ("mean", "µs"), ("p99", "µs")];

/// A figure that the simulator measures.
const fn figure(id: &'static str, dims: &'static [&'static str]) -> Figure {
    Figure { id, time: Time::Virtual, dims, numbers: TOTALS }
}

static FIG3: Figure = Figure {
    id: "fig3",
    time: Time::Virtual,
    dims: &["protocol", "reads", "write"],
    numbers: &[("messages", ""), ("bytes", "B"), ("taken", "B")],
};
static FIG5: Figure = figure("fig5", &["protocol", "writes_percent"]);
static FIG6: Figure = figure("fig6", &["protocol", "clients"]);
static FIG7: Figure = figure("fig7", &["protocol", "writes_percent", "nodes"]);
static FIG8: Figure = Figure {
    numbers: &[("operations", "/s"), ("mean", "µs"), ("p99", "µs"), ("reads_per_write", "")],
    ..figure("fig8", &["protocol", "writes_percent"])
};
static FIG9: Figure = figure("fig9", &["protocol", "clients"]);
static FIG10: Figure = figure("fig10", &["protocol", "writes_percent", "nodes"]);

const EXPERIMENTS: &[Experiment] = &[
    experiment!("costs", &[&COSTS], None, costs::measure),
    experiment!("fig3", &[&FIG3], None, loads::fig3),
    experiment!("fig5", &[&FIG5], Some(("operations a second", charts::fig5)), loads::fig5),
    experiment!("fig6", &[&FIG6], Some(("latency against throughput", charts::fig6)), loads::fig6),
    experiment!("fig7", &[&FIG7], Some(("operations a second", charts::fig7)), loads::fig7),
    experiment!("fig8", &[&FIG8], Some(("operations a second", charts::fig8)), loads::fig8),
    experiment!("fig9", &[&FIG9], Some(("latency against throughput", charts::fig9)), loads::fig9),
    experiment!("fig10", &[&FIG10], Some(("operations a second", charts::fig10)), loads::fig10),
];
