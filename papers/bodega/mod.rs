//! **Bodega** (Hu, Arpaci-Dusseau, Arpaci-Dusseau) and its peers: the paper's evaluation in our simulator.
//!
//! | file | what |
//! |---|---|
//! | `rules` | one rule for each claim |
//! | `charts` | what is drawn |
//! | `candidates` | the protocols that are compared, one line each |
//! | `model` | the formulas of Table 1 |
//! | `world` | the clusters, and runs in them |
//! | `closed` | clients in closed loops |
//! | `panels`, `sweeps` | Figures 8, 9, 11, 12, 14 to 16, and the headline: all of them such loads |
//! | `lab`, `services` | Figure 16 with real processes: Quorate, etcd, ZooKeeper |
//! | `fig1`, `table1`, `fig10`, `fig13`, `holds` | scripts of single operations |

#[cfg(feature = "measure")]
mod candidates;
mod charts;
#[cfg(feature = "measure")]
mod closed;
#[cfg(feature = "measure")]
mod fig1;
#[cfg(feature = "measure")]
mod fig10;
#[cfg(feature = "measure")]
mod fig13;
#[cfg(feature = "measure")]
mod holds;
#[cfg(feature = "measure")]
mod lab;
#[cfg(feature = "measure")]
mod model;
#[cfg(feature = "measure")]
mod panels;
mod rules;
#[cfg(feature = "measure")]
mod services;
#[cfg(feature = "measure")]
mod sweeps;
#[cfg(feature = "measure")]
mod table1;
#[cfg(feature = "measure")]
mod world;

use crate::instrument::grid::figures;
use crate::instrument::{Experiment, Paper, experiments};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "bodega",
    prefix: "B",
    experiments: EXPERIMENTS,
    descriptions: include_str!("../descriptions/bodega.md"),
    measured: rules::rules,
    rules_text: concat!(
        include_str!("rules.rs"),
        include_str!("rules/odd.rs"),
        include_str!("rules/rosters.rs")
    ),
    arguments: include_str!("../arguments/bodega.md"),
};

const MULTIPAXOS: &str = "MultiPaxos";
/// To which the paper's Figure 8 normalizes.
const LEADER_LEASES: &str = "Leader Leases";
const EPAXOS: &str = "EPaxos";
const PQR: &str = "PQR";
/// To which the paper's Figure 16 normalizes.
const PQR_LEASES: &str = "PQR (+ Ldr Ls)";
const QUORUM_LEASES: &str = "Quorum Leases";
const PASSIVE: &str = "Quorum Leases (passive)";
const BODEGA: &str = "Bodega";
const ETCD: &str = "etcd";
const ETCD_STALE: &str = "etcd, stale";
const ZOOKEEPER: &str = "ZooKeeper";
const ZOOKEEPER_SYNC: &str = "ZooKeeper, sync";
const READ_INDEX: &str = "Raft, ReadIndex";
const LEASEGUARD: &str = "Raft, LeaseGuard";
const NO_NOTES: &str = "Bodega without early notes";
/// In the order of the paper's legend; Raft, which it leaves out, behind.
const NAMES: [&str; 10] = [
    MULTIPAXOS,
    LEADER_LEASES,
    EPAXOS,
    PQR,
    PQR_LEASES,
    QUORUM_LEASES,
    PASSIVE,
    BODEGA,
    READ_INDEX,
    LEASEGUARD,
];
/// The previous approaches of the abstract.
const EARLIER: [&str; 6] = [LEADER_LEASES, EPAXOS, PQR, PQR_LEASES, QUORUM_LEASES, PASSIVE];
/// YCSB's mixes and their shares of writes, in the paper's order.
const MIXES: [(&str, f64); 5] = [("A", 0.5), ("B", 0.05), ("C", 0.0), ("D", 0.05), ("F", 0.25)];

figures! {
    FIG1 = "fig1": protocol, writes_percent => asked_of_another, slower_than_c, votes_per_read;
    TABLE1 = "table1": protocol, cluster, site =>
        W "ms", W_formula "ms", W_off, R "ms", R_formula "ms", R_off, "R*" "ms", "R*_formula" "ms", "R*_off",
        "D*" "ms", "D*_formula" "ms", "D*_off";
    SETTINGS = "settings": cluster =>
        c "ms", l "ms", m "ms", N "ms", responders_to_leader "ms", all_pairs "ms";
    FIG8 = "fig8": protocol, cluster, writes_percent, place, site =>
        operations "/s", normalized, read_mean "ms", read_p50 "ms", read_p99 "ms", "read_p99.9" "ms",
        write_mean "ms", write_p99 "ms", l "ms", R "ms", read_p50_off, outliers;
    FIG8_ALL = "fig8-all": protocol, cluster, writes_percent =>
        operations "/s", read_mean "ms", read_at_responders "ms", write_mean "ms", read_p99 "ms",
        "read_p99.9" "ms";
    HEADLINE = "headline": protocol, setup, c_ms, writes_percent =>
        read_local "ms", read_all_alike "ms", read_all_weighted "ms", local, all_alike, all_weighted;
    FIG9 = "fig9": protocol, operations, writes_percent, share => at_most "ms";
    FIG10 = "fig10": protocol =>
        window "ms", window_over_half_m, window_over_half_N, level "ms", level_over_l, asked_of_another,
        wait_apart_from_window "ms";
    FIG10_SITES = "fig10-sites": protocol, site => window "ms", level "ms", slowest "ms";
    FIG10_TRACE = "fig10-trace": protocol, ms => read "ms";
    FIG11 = "fig11": protocol, writes_percent => operations "/s";
    FIG12 = "fig12": protocol, value_bytes => operations "/s", share_of_an_interface;
    FIG13 = "fig13": scenario =>
        early_writes, reads, slow_reads, slow_reads_of_other_keys, slowest_read "ms",
        slowest_read_elsewhere "ms", writes_again "ms", waited_for_expiry "ms", regular_change "ms",
        regular_over_failure, slowest_write_at_change "ms", slowest_read_at_change "ms", failed;
    FIG13_CHANGE = "fig13-change": cluster =>
        change "ms", mean_round_trip "ms", rounds, longest_round_trip "ms";
    FIG13_TRACE = "fig13-trace": operations, s => latency "ms";
    FIG14 = "fig14": protocol, cluster, responders =>
        read_mean "ms", read_deviation "ms", write_mean "ms", write_deviation "ms", read_weighted "ms",
        write_weighted "ms", operations "/s", write_off;
    FIG15 = "fig15": roster, cluster, covered_percent =>
        read_mean "ms", read_deviation "ms", write_mean "ms", write_deviation "ms", read_weighted "ms",
        write_weighted "ms", operations "/s";
    FIG16 = "fig16": protocol, scenario, workload, cluster =>
        operations "/s", normalized, read_mean "ms", write_mean "ms", write_over_all_nodes;
    LAB = "lab" in Real: service, workload, cluster =>
        operations "/s", read_mean "ms", write_mean "ms", server_cpu "ms", emulator_cpu;
    LAB_SITES = "lab-sites" in Real: service, workload, cluster, site =>
        operations "/s", read_mean "ms", read_p99 "ms", write_mean "ms", write_p99 "ms";
    LAB_LINKS = "lab-links" in Real: cluster, from, to => wanted "ms", median "ms", longest "ms";
    HOLDS = "holds": protocol => held_reads, mean "ms", longest "ms";
    IDLE = "idle": protocol => messages "/s";
}

const EXPERIMENTS: &[Experiment] = experiments! {
    "headline": HEADLINE =>
        panels::headline, charts::headline, "mean reads of earlier protocols ÷ Bodega's, c = 1 ms";
    "fig1": FIG1 => fig1::measure;
    "table1": TABLE1, SETTINGS => table1::measure;
    "fig8": FIG8, FIG8_ALL, FIG9 =>
        panels::measure, charts::fig8,
        "throughput, reads and writes by site; the share of operations that take at most so long";
    "fig10": FIG10, FIG10_SITES, FIG10_TRACE =>
        fig10::measure, charts::fig10, "mean latency of the reads that end in each millisecond";
    "fig11": FIG11 => sweeps::fig11, charts::fig11, "operations a second of all sites";
    "fig12": FIG12 => sweeps::fig12, charts::fig12, "operations a second of all sites";
    "fig13": FIG13, FIG13_CHANGE, FIG13_TRACE =>
        fig13::measure, charts::fig13, "mean latency by when operations finish";
    "fig14": FIG14 => sweeps::fig14, charts::fig14, "mean latency, weighted by operations";
    "fig15": FIG15 => sweeps::fig15, charts::fig15, "mean latency, each site counting alike";
    "fig16": FIG16 => sweeps::fig16, charts::fig16, "throughput, reads and writes by workload";
    "lab": LAB, LAB_SITES, LAB_LINKS => lab::measure;
    "holds": HOLDS, IDLE => holds::measure;
};
