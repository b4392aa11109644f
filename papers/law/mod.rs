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
    title: "Almost-local reads, measured again",
    intro: "Katsarakis, Gavrielatos and others: *The LAW theorem: Local Reads and Linearizable Asynchronous \
             Replication*. Figures are made in virtual time with the machines that our nodes run, on processors that \
             take for reads, writes and bytes what they take on this machine (`costs`). The paper's network is RDMA \
             and its nodes have eight cores, so absolute numbers are not compared. Claims are quoted from the \
             register, by their IDs; *w* is the share of writes.",
    prefix: "LAW",
    experiments: EXPERIMENTS,
    measured: rules::rules,
    rules_text: include_str!("rules.rs"),
    arguments: include_str!("../arguments/law.md"),
};

const RAFT: &str = "Raft";
const RAFT_ALR: &str = "Raft-ALR";
const ZAB: &str = "ZAB";
const ZAB_ALR: &str = "ZAB-ALR";
const CRAQ_ALR: &str = "CRAQ-ALR";

static COSTS: Figure = Figure {
    id: "costs",
    time: Time::Real,
    dims: &["what"],
    numbers: &[("time", "ns"), ("bytes", "B")],
    table: Some(
        "On one core, for each: to decode and execute a read of one of a million keys and to encode its reply; the \
         same of a write; to encode and decode a read, or the reply to one, in a message with 128; a write in a batch \
         of 128. Bytes of each in such a message.",
    ),
};
/// Of a closed loop.
const TOTALS: &[(&str, &str)] = &[("operations", "/s"), ("mean", "µs"), ("p99", "µs")];

/// A figure that the simulator measures.
const fn figure(id: &'static str, dims: &'static [&'static str], table: &'static str) -> Figure {
    Figure { id, time: Time::Virtual, dims, numbers: TOTALS, table: Some(table) }
}

static FIG3: Figure = Figure {
    id: "fig3",
    time: Time::Virtual,
    dims: &["protocol", "reads", "write"],
    numbers: &[("messages", ""), ("bytes", "B"), ("taken", "B")],
    table: Some(
        "What so many reads, asked at once at one follower, add to a group at rest (write: none), or to a write that \
         the same node asks for behind them (write: timely): messages between nodes, their bytes, and the bytes that \
         other nodes take.",
    ),
};
static FIG5: Figure = figure("fig5", &["protocol", "writes_percent"], "By the share of writes.");
static FIG6: Figure = figure("fig6", &["protocol", "clients"], "2% writes, by the clients at each node.");
static FIG7: Figure = figure("fig7", &["protocol", "writes_percent", "nodes"], "By the number of nodes.");
static FIG8: Figure = Figure {
    numbers: &[("operations", "/s"), ("mean", "µs"), ("p99", "µs"), ("reads_per_write", "")],
    ..figure("fig8", &["protocol", "writes_percent"], "By the share of writes.")
};
static FIG9: Figure = figure("fig9", &["protocol", "clients"], "2% writes, by the clients at each node.");
static FIG10: Figure = figure("fig10", &["protocol", "writes_percent", "nodes"], "By the number of nodes.");

const WORLD: &str = "World: five nodes unless another number is said, 5 µs from each other, ±10% at random, on \
     links of 56 Gbit/s; clients at the nodes, 1 µs from them; disks make records durable at once, as the paper's \
     replicas keep them in memory. Messages arrive in order. A node has one processor. It takes, for each \
     input (a request or a message), what a read takes with its decoding and its reply; 0.3 µs for each \
     message that it sends, a network that bypasses the kernel; and for each byte that it sends or takes so \
     much that a read that another replica executes costs that one what a read costs. What reads and bytes take \
     is measured (`costs`).";
const LOAD: &str = "Load: clients in closed loops, as many at each node, 512 unless it is said: twice as many bring an \
     eighth more at most. 10,000 keys of 8 bytes with values of 32 bytes, written before, chosen alike (the \
     paper has a million: how many there are shows where keys conflict, and these protocols order all writes \
     alike). 10 ms are counted after 5 ms. Lists of write ratios and of clients are ours.";
const READERS: &str = "Raft: followers send reads to the leader, batched in messages, and it answers them under a \
     lease (`reads=ongaro-lease`); the paper's leader has none and is no slower for it. ZAB: `reads=local`. ALR: \
     `reads=alr` with batches of 128 at most, at all replicas. Histories are checked: those of Raft, Raft-ALR \
     and ZAB-ALR are linearizable; ZAB's reads are sequentially consistent and are not asked to be more.";

const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "costs",
        "What reads, writes and messages take of a processor",
        &["In process, without a network: the code of `crates/store` and of the messages of \
             `crates/blocks/src/clients`; the median of as many rounds as take half a second; five runs. Figures 3 to \
             10 are a function of this file."],
        &[&COSTS],
        None,
        costs::measure
    ),
    experiment!(
        "fig3",
        "Figure 3: what reads cost the other replicas",
        &[
            WORLD,
            "RC is ZAB with local reads; RA is Raft; ALR are Raft-ALR and ZAB-ALR (lazy) and CRAQ-ALR \
             (`reads=eager-alr`); LS, local and linearizable under leases, is CRAQ. One burst at the lowest node that \
             does not lead: in a chain, the one behind the head.",
        ],
        &[&FIG3],
        None,
        loads::fig3
    ),
    experiment!(
        "fig5",
        "Figure 5: Raft and Raft-ALR, by the share of writes",
        &[WORLD, LOAD, READERS],
        &[&FIG5],
        Some(("operations a second", charts::fig5)),
        loads::fig5
    ),
    experiment!(
        "fig6",
        "Figure 6: Raft and Raft-ALR, latency against load",
        &[WORLD, LOAD, READERS, "Latencies are of reads and writes together."],
        &[&FIG6],
        Some(("latency against throughput", charts::fig6)),
        loads::fig6
    ),
    experiment!(
        "fig7",
        "Figure 7: Raft and Raft-ALR, by the number of nodes",
        &[WORLD, LOAD, READERS],
        &[&FIG7],
        Some(("operations a second", charts::fig7)),
        loads::fig7
    ),
    experiment!(
        "fig8",
        "Figure 8: ZAB and ZAB-ALR, by the share of writes",
        &[WORLD, LOAD, READERS, "Reads per write: of all operations that ended."],
        &[&FIG8],
        Some(("operations a second", charts::fig8)),
        loads::fig8
    ),
    experiment!(
        "fig9",
        "Figure 9: ZAB and ZAB-ALR, latency against load",
        &[WORLD, LOAD, READERS, "Latencies are of reads and writes together."],
        &[&FIG9],
        Some(("latency against throughput", charts::fig9)),
        loads::fig9
    ),
    experiment!(
        "fig10",
        "Figure 10: ZAB and ZAB-ALR, by the number of nodes",
        &[WORLD, LOAD, READERS],
        &[&FIG10],
        Some(("operations a second", charts::fig10)),
        loads::fig10
    ),
];
