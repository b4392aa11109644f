//! **The LAW theorem and almost-local reads** (Katsarakis, Gavrielatos and others): the paper's evaluation in our
//! simulator.
//!
//! | file | what |
//! |---|---|
//! | `rules` | one rule for each claim that numbers judge |
//! | `charts` | what is drawn |
//! | `costs` | what reads, writes and messages take of this machine's processor: the figures are made with that |
//! | `world` | the clusters, closed loops of clients, and what can be said of a run |
//! | `loads` | Figures 3, 5 to 13, 15, 16, and what turns decide |

mod charts;
#[cfg(feature = "measure")]
mod costs;
#[cfg(feature = "measure")]
mod loads;
mod rules;
#[cfg(feature = "measure")]
mod world;

use crate::instrument::grid::figures;
use crate::instrument::{Experiment, Paper, experiments};

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
const HERMES: &str = "Hermes";
const HERMES_ALR: &str = "Hermes-ALR";

figures! {
    COSTS = "costs" in Real: what => time "ns", bytes "B";
    FIG3 = "fig3": protocol, reads, write => messages, bytes "B", taken "B";
    FIG5 = "fig5": protocol, writes_percent => operations "/s", mean "µs", p99 "µs";
    FIG6 = "fig6": protocol, clients => operations "/s", mean "µs", p99 "µs";
    FIG7 = "fig7": protocol, writes_percent, nodes => operations "/s", mean "µs", p99 "µs";
    FIG8 = "fig8": protocol, writes_percent => operations "/s", mean "µs", p99 "µs", reads_per_write;
    TURNS = "turns": protocol, turns, writes_percent => operations "/s", mean "µs", p99 "µs";
    FIG9 = "fig9": protocol, clients => operations "/s", mean "µs", p99 "µs";
    FIG10 = "fig10": protocol, writes_percent, nodes => operations "/s", mean "µs", p99 "µs";
    FIG11 = "fig11": protocol, writes_percent => operations "/s", mean "µs", p99 "µs";
    FIG12 = "fig12": protocol, clients => operations "/s", mean "µs", p99 "µs";
    FIG13 = "fig13": protocol, writes_percent, nodes => operations "/s", mean "µs", p99 "µs";
    FIG15 = "fig15": protocol, writes_percent, value_bytes => operations "/s", mean "µs", p99 "µs";
    FIG16 = "fig16": protocol, access, writes_percent => operations "/s", mean "µs", p99 "µs";
}

const EXPERIMENTS: &[Experiment] = experiments! {
    "costs": COSTS => costs::measure;
    "fig3": FIG3 => loads::fig3;
    "fig5": FIG5 => loads::fig5, charts::fig5, "operations a second";
    "fig6": FIG6 => loads::fig6, charts::fig6, "latency against throughput";
    "fig7": FIG7 => loads::fig7, charts::fig7, "operations a second";
    "fig8": FIG8 => loads::fig8, charts::fig8, "operations a second";
    "turns": TURNS => loads::turns;
    "fig9": FIG9 => loads::fig9, charts::fig9, "latency against throughput";
    "fig10": FIG10 => loads::fig10, charts::fig10, "operations a second";
    "fig11": FIG11 => loads::fig11, charts::fig11, "operations a second";
    "fig12": FIG12 => loads::fig12, charts::fig12, "latency against throughput";
    "fig13": FIG13 => loads::fig13, charts::fig13, "operations a second";
    "fig15": FIG15 => loads::fig15, charts::fig15, "operations a second";
    "fig16": FIG16 => loads::fig16, charts::fig16, "operations a second";
};
