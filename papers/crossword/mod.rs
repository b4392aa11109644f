//! **Crossword** (Hu, Chen, Arpaci-Dusseau, Arpaci-Dusseau): the paper's evaluation in our simulator.
//!
//! | file | what |
//! |---|---|
//! | `rules` | one rule for each claim that numbers judge |
//! | `charts` | what is drawn |
//! | `world` | the clusters, closed loops of clients, and what can be said of a run |
//! | `region` | Figure 4, by enumeration |
//! | `loads` | Figures 7, 8, 12 and 16, the chooser, stragglers: closed loops that do not change |
//! | `instance` | Figures 9 and 14, and §2's bound: where time and bytes go |
//! | `changes` | Figures 10 and 11: sizes and links that change, leaders that die |
//! | `staleness` | Figure 13 |
//! | `partitions` | Figure 15: five groups on five machines |
//! | `coding` | Table 1, in real time |

#[cfg(feature = "measure")]
mod changes;
mod charts;
#[cfg(feature = "measure")]
mod coding;
#[cfg(feature = "measure")]
mod instance;
#[cfg(feature = "measure")]
mod loads;
#[cfg(feature = "measure")]
mod partitions;
#[cfg(feature = "measure")]
mod region;
mod rules;
#[cfg(feature = "measure")]
mod staleness;
#[cfg(feature = "measure")]
mod world;

use crate::instrument::grid::{Figure, Time};
use crate::instrument::{Experiment, Paper, experiment};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "crossword",
    prefix: "C",
    experiments: EXPERIMENTS,
    descriptions: include_str!("../descriptions/crossword.md"),
    measured: rules::rules,
    rules_text: concat!(include_str!("rules.rs"), include_str!("rules/odd.rs")),
    arguments: include_str!("../arguments/crossword.md"),
};

const MULTIPAXOS: &str = "MultiPaxos";
const RAFT: &str = "Raft";
const RSPAXOS: &str = "RSPaxos";
const CRAFT: &str = "CRaft";
const CROSSWORD: &str = "Crossword";
const UNBALANCED: &str = "Crossword, unbalanced";
const FORCED: &str = "Crossword, c = 1";
const CHAIN: &str = "Chain Replication";
const GAP_0: &str = "Crossword, gap 0";
const GAP_40: &str = "Crossword, gap 40 KiB";
const GAP_400: &str = "Crossword, gap 400 KiB";
/// In the order of the paper's legends.
const NAMES: [&str; 5] = [MULTIPAXOS, RAFT, RSPAXOS, CRAFT, CROSSWORD];

/// A figure that the simulator measures.
const fn figure(
    id: &'static str,
    dims: &'static [&'static str],
    numbers: &'static [(&'static str, &'static str)],
) -> Figure {
    Figure { id, time: Time::Virtual, dims, numbers }
}

static FIG4: Figure = figure(
    "fig4",
    &["shards", "voters", "votes"],
    &[("least_cover", ""), ("bound", ""), ("safe", ""), ("as_C4", "")],
);
static FIG4_FRONT: Figure =
    figure("fig4-front", &["shards", "voters"], &[("least_votes", ""), ("votes_plus_shards", "")]);
static FIG4_FIXED: Figure = figure(
    "fig4-fixed",
    &["protocol", "voters"],
    &[("votes", ""), ("inside", ""), ("inside_with_its_f", "")],
);
static LOWER_BOUND: Figure = figure("lower-bound", &["protocol"], &[("put", "ms")]);
/// Of a closed loop.
const TOTALS: &[(&str, &str)] = &[("operations", "/s"), ("mean", "ms"), ("shards", "")];
static FIG7: Figure = figure(
    "fig7",
    &["protocol", "environment", "values"],
    &[
        ("operations", "/s"),
        ("mean", "ms"),
        ("p95", "ms"),
        ("put", "ms"),
        ("get", "ms"),
        ("by_clients", ""),
        ("shards", ""),
    ],
);
static FIG8_SIZES: Figure = figure(
    "fig8-sizes",
    &["protocol", "value_bytes"],
    &[("operations", "/s"), ("mean", "ms"), ("shards", ""), ("one_shard", "")],
);
static FIG8_CLUSTERS: Figure = figure("fig8-clusters", &["protocol", "nodes"], TOTALS);
static FIG8_PUTS: Figure = figure("fig8-puts", &["protocol", "puts_percent"], TOTALS);
static FIG9: Figure = figure(
    "fig9",
    &["protocol"],
    &[
        ("instance", "ms"),
        ("accept_and_disk", "ms"),
        ("quorum", "ms"),
        ("one_shard", ""),
        ("log_of_leader", ""),
        ("log_of_follower", ""),
        ("log", ""),
    ],
);
static FIG10: Figure = figure(
    "fig10",
    &["protocol", "phase"],
    &[("operations", "/s"), ("of_best_other", ""), ("of_best_fixed", ""), ("settled", "s"), ("shards", "")],
);
static FIG10_TRACE: Figure =
    figure("fig10-trace", &["protocol", "s"], &[("operations", "/s"), ("shards", "")]);
static FIG11: Figure = figure(
    "fig11",
    &["protocol"],
    &[
        ("first_gap", "s"),
        ("second_gap", "s"),
        ("before", "/s"),
        ("between", "/s"),
        ("after", "/s"),
        ("shards_between", ""),
        ("shards_after", ""),
    ],
);
static FIG11_LOG: Figure = figure("fig11-log", &["protocol", "load_half_s"], &[("gap", "s")]);
static FIG11_TRACE: Figure =
    figure("fig11-trace", &["protocol", "s"], &[("operations", "/s"), ("shards", "")]);
static FIG12: Figure = figure("fig12", &["protocol"], TOTALS);
static FIG13: Figure =
    figure("fig13", &["system", "writes_per_s"], &[("staleness", ""), ("reconstructs_per_write", "")]);
static FIG14: Figure = figure(
    "fig14",
    &["protocol"],
    &[
        ("leader_links", ""),
        ("follower_links", ""),
        ("leader_per_payload", ""),
        ("followers_per_payload", ""),
        ("saved_by_batching", ""),
    ],
);
static FIG15: Figure =
    figure("fig15", &["protocol", "clients"], &[("operations", "/s"), ("mean", "ms"), ("p95", "ms")]);
static FIG15_SIZES: Figure =
    figure("fig15-sizes", &["distribution"], &[("at_least_4_KiB", ""), ("longest", "KB")]);
static FIG16: Figure = figure(
    "fig16",
    &["system"],
    &[("operations", "/s"), ("new_order", "ms"), ("payment", "ms"), ("delivery", "ms"), ("reads", "ms")],
);
static CHOOSER: Figure = figure(
    "chooser",
    &["value_bytes", "mbit_per_s", "round_trip_ms"],
    &[("put_c1", "ms"), ("put_c2", "ms"), ("put_c3", "ms"), ("chosen", ""), ("over_best", "")],
);
static STRAGGLER: Figure = figure("straggler", &["protocol", "slow_nodes"], &[("put", "ms")]);
static TABLE1: Figure = Figure {
    id: "table1",
    time: Time::Real,
    dims: &["value_bytes"],
    numbers: &[("time", "µs"), ("paper", "µs"), ("of_paper", ""), ("memory", ""), ("speed", "GB/s")],
};

const EXPERIMENTS: &[Experiment] = &[
    experiment!("fig4", &[&FIG4, &FIG4_FRONT, &FIG4_FIXED], None, region::measure),
    experiment!("lower-bound", &[&LOWER_BOUND], None, instance::lower_bound),
    experiment!("fig7", &[&FIG7], Some(("operations a second", charts::fig7)), loads::fig7),
    experiment!(
        "fig8",
        &[&FIG8_SIZES, &FIG8_CLUSTERS, &FIG8_PUTS],
        Some(("operations a second", charts::fig8)),
        loads::fig8
    ),
    experiment!("fig9", &[&FIG9], None, instance::fig9),
    experiment!(
        "fig10",
        &[&FIG10, &FIG10_TRACE],
        Some(("operations a second, and shards of each voter", charts::fig10)),
        changes::fig10
    ),
    experiment!(
        "fig11",
        &[&FIG11, &FIG11_LOG, &FIG11_TRACE],
        Some(("operations a second", charts::fig11)),
        changes::fig11
    ),
    experiment!("fig12", &[&FIG12], None, loads::fig12),
    experiment!("fig13", &[&FIG13], Some(("versions behind the leader", charts::fig13)), staleness::measure),
    experiment!("fig14", &[&FIG14], None, instance::fig14),
    experiment!(
        "fig15",
        &[&FIG15, &FIG15_SIZES],
        Some(("mean latency against throughput", charts::fig15)),
        partitions::measure
    ),
    experiment!("fig16", &[&FIG16], None, loads::fig16),
    experiment!("chooser", &[&CHOOSER], None, loads::chooser),
    experiment!("straggler", &[&STRAGGLER], None, loads::straggler),
    experiment!("table1", &[&TABLE1], None, coding::measure),
];
