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

use crate::instrument::grid::figures;
use crate::instrument::{Experiment, Paper, experiments};

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

figures! {
    FIG4 = "fig4": shards, voters, votes => least_cover, bound, safe, as_C4;
    FIG4_FRONT = "fig4-front": shards, voters => least_votes, votes_plus_shards;
    FIG4_FIXED = "fig4-fixed": protocol, voters => votes, inside, inside_with_its_f;
    LOWER_BOUND = "lower-bound": protocol => put "ms";
    FIG7 = "fig7": protocol, environment, values =>
        operations "/s", mean "ms", p95 "ms", put "ms", get "ms", by_clients, shards;
    FIG8_SIZES = "fig8-sizes": protocol, value_bytes => operations "/s", mean "ms", shards, one_shard;
    FIG8_CLUSTERS = "fig8-clusters": protocol, nodes => operations "/s", mean "ms", shards;
    FIG8_PUTS = "fig8-puts": protocol, puts_percent => operations "/s", mean "ms", shards;
    FIG9 = "fig9": protocol =>
        instance "ms", accept_and_disk "ms", quorum "ms", one_shard, log_of_leader, log_of_follower, log;
    FIG10 = "fig10": protocol, phase => operations "/s", of_best_other, of_best_fixed, settled "s", shards;
    FIG10_TRACE = "fig10-trace": protocol, s => operations "/s", shards;
    FIG11 = "fig11": protocol =>
        first_gap "s", second_gap "s", before "/s", between "/s", after "/s", shards_between, shards_after;
    FIG11_LOG = "fig11-log": protocol, load_half_s => gap "s";
    FIG11_TRACE = "fig11-trace": protocol, s => operations "/s", shards;
    FIG12 = "fig12": protocol => operations "/s", mean "ms", shards;
    FIG13 = "fig13": system, writes_per_s => staleness, reconstructs_per_write;
    FIG14 = "fig14": protocol =>
        leader_links, follower_links, leader_per_payload, followers_per_payload, saved_by_batching;
    FIG15 = "fig15": protocol, clients => operations "/s", mean "ms", p95 "ms";
    FIG15_SIZES = "fig15-sizes": distribution => at_least_4_KiB, longest "KB";
    FIG16 = "fig16": system => operations "/s", new_order "ms", payment "ms", delivery "ms", reads "ms";
    CHOOSER = "chooser": value_bytes, mbit_per_s, round_trip_ms =>
        put_c1 "ms", put_c2 "ms", put_c3 "ms", chosen, over_best;
    STRAGGLER = "straggler": protocol, slow_nodes => put "ms";
    TABLE1 = "table1" in Real: value_bytes => time "µs", paper "µs", of_paper, memory, speed "GB/s";
}

const EXPERIMENTS: &[Experiment] = experiments! {
    "fig4": FIG4, FIG4_FRONT, FIG4_FIXED => region::measure;
    "lower-bound": LOWER_BOUND => instance::lower_bound;
    "fig7": FIG7 => loads::fig7, charts::fig7, "operations a second";
    "fig8": FIG8_SIZES, FIG8_CLUSTERS, FIG8_PUTS => loads::fig8, charts::fig8, "operations a second";
    "fig9": FIG9 => instance::fig9;
    "fig10": FIG10, FIG10_TRACE =>
        changes::fig10, charts::fig10, "operations a second, and shards of each voter";
    "fig11": FIG11, FIG11_LOG, FIG11_TRACE => changes::fig11, charts::fig11, "operations a second";
    "fig12": FIG12 => loads::fig12;
    "fig13": FIG13 => staleness::measure, charts::fig13, "versions behind the leader";
    "fig14": FIG14 => instance::fig14;
    "fig15": FIG15, FIG15_SIZES => partitions::measure, charts::fig15, "mean latency against throughput";
    "fig16": FIG16 => loads::fig16;
    "chooser": CHOOSER => loads::chooser;
    "straggler": STRAGGLER => loads::straggler;
    "table1": TABLE1 => coding::measure;
};
