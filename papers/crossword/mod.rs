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
    title: "Crossword and its peers, measured again",
    intro: "Hu, Chen, Arpaci-Dusseau, Arpaci-Dusseau: *Crossword: Adaptive Consensus for Dynamic \
             Data-Heavy Workloads*. Figures are made in virtual time with the machines that our nodes run; \
             Table 1 is real. Claims are quoted from the register, by their IDs; n, m, f, d, c and q are \
             those of its head. Gossip and the chooser are on wherever nothing else is said, and the chooser \
             sees what a deployment sees: when replies come.",
    prefix: "C",
    experiments: EXPERIMENTS,
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
    table: Option<&'static str>,
) -> Figure {
    Figure { id, time: Time::Virtual, dims, numbers, table }
}

static FIG4: Figure = figure(
    "fig4",
    &["shards", "voters", "votes"],
    &[("least_cover", ""), ("bound", ""), ("safe", ""), ("as_C4", "")],
    None,
);
static FIG4_FRONT: Figure = figure(
    "fig4-front",
    &["shards", "voters"],
    &[("least_votes", ""), ("votes_plus_shards", "")],
    Some("The least number of votes that is safe, for each number of shards of a balanced assignment."),
);
static FIG4_FIXED: Figure = figure(
    "fig4-fixed",
    &["protocol", "voters"],
    &[("votes", ""), ("inside", ""), ("inside_with_its_f", "")],
    Some(
        "The paper's formula for RSPaxos and CRaft: m + ⌈p/2⌉ votes and one shard each. Inside: 1 if that is \
         safe when n − m servers are lost; with its f: when ⌊p/2⌋ are.",
    ),
);
static LOWER_BOUND: Figure = figure(
    "lower-bound",
    &["protocol"],
    &[("put", "ms")],
    Some("One value of 10⁶ bytes, three nodes, links and disks of 400 Mbit/s, no delay."),
);
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
    Some(
        "Operations a second of all clients; latencies of all, of Puts and of Gets; throughput × mean latency ÷ \
         clients; shards of each voter on average, where the protocol states them (3: the whole value).",
    ),
);
static FIG8_SIZES: Figure = figure(
    "fig8-sizes",
    &["protocol", "value_bytes"],
    &[("operations", "/s"), ("mean", "ms"), ("shards", ""), ("one_shard", "")],
    Some("One shard: the share of instances with c = 1."),
);
static FIG8_CLUSTERS: Figure =
    figure("fig8-clusters", &["protocol", "nodes"], TOTALS, Some("By the number of nodes."));
static FIG8_PUTS: Figure =
    figure("fig8-puts", &["protocol", "puts_percent"], TOTALS, Some("By the share of Puts."));
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
    Some(
        "Means over instances: from the leader's own vote until a follower's share is durable (on average over \
         followers), and from then until the value is chosen. Logs: bytes of records for each byte of payload, of \
         the leader, of one follower, of all five nodes.",
    ),
);
static FIG10: Figure = figure(
    "fig10",
    &["protocol", "phase"],
    &[("operations", "/s"), ("of_best_other", ""), ("of_best_fixed", ""), ("settled", "s"), ("shards", "")],
    Some(
        "Over each phase without its first 3 s; ÷ the best of the other four protocols, and ÷ the best of \
         Crossword with c = 1, 2 and 3. Settled: after so long, every quarter of a second has 90% of the throughput \
         of the phase's second half.",
    ),
);
static FIG10_TRACE: Figure =
    figure("fig10-trace", &["protocol", "s"], &[("operations", "/s"), ("shards", "")], None);
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
    Some(
        "Gaps: from a crash to the first operation that ends more than 0.1 s after it. Operations a second before \
         the first crash, in the 5 s before the second, and in the last 5 s.",
    ),
);
static FIG11_LOG: Figure = figure(
    "fig11-log",
    &["protocol", "load_half_s"],
    &[("gap", "s")],
    Some("The gap after one crash, by how long the load had run, in half seconds."),
);
static FIG11_TRACE: Figure =
    figure("fig11-trace", &["protocol", "s"], &[("operations", "/s"), ("shards", "")], None);
static FIG12: Figure = figure("fig12", &["protocol"], TOTALS, Some("As in Figure 8."));
static FIG13: Figure = figure(
    "fig13",
    &["system", "writes_per_s"],
    &[("staleness", ""), ("reconstructs_per_write", "")],
    Some(
        "Versions that a follower is behind the leader, on average over time and followers; Reconstructs per write.",
    ),
);
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
    Some(
        "Bytes ÷ what a link can carry: a link from the leader to a follower, and one between followers, on average. \
         Per payload: bytes that come to one follower from the leader, and from other followers, for each byte of \
         payload. Saved: the share of gossip's bytes that requests for one slot each would add.",
    ),
);
static FIG15: Figure =
    figure("fig15", &["protocol", "clients"], &[("operations", "/s"), ("mean", "ms"), ("p95", "ms")], None);
static FIG15_SIZES: Figure = figure(
    "fig15-sizes",
    &["distribution"],
    &[("at_least_4_KiB", ""), ("longest", "KB")],
    Some("Sizes of values: the share of those that have 4 KiB or more, and the longest of 100,000."),
);
static FIG16: Figure = figure(
    "fig16",
    &["system"],
    &[("operations", "/s"), ("new_order", "ms"), ("payment", "ms"), ("delivery", "ms"), ("reads", "ms")],
    Some("Mean latencies; reads stand for Order-Status and Stock-Level."),
);
static CHOOSER: Figure = figure(
    "chooser",
    &["value_bytes", "mbit_per_s", "round_trip_ms"],
    &[("put_c1", "ms"), ("put_c2", "ms"), ("put_c3", "ms"), ("chosen", ""), ("over_best", "")],
    Some(
        "Mean latency of a Put with c = 1, 2 and 3; the number that the chooser takes most; that number's latency ÷ \
         the least.",
    ),
);
static STRAGGLER: Figure = figure(
    "straggler",
    &["protocol", "slow_nodes"],
    &[("put", "ms")],
    Some("Mean latency of one client's Puts of 8 B, without and with a node that is ten times as far away."),
);
static TABLE1: Figure = Figure {
    id: "table1",
    time: Time::Real,
    dims: &["value_bytes"],
    numbers: &[("time", "µs"), ("paper", "µs"), ("of_paper", ""), ("memory", ""), ("speed", "GB/s")],
    table: Some(
        "One core; the paper's time on 32; the new memory for each byte of payload. All five shards of a value.",
    ),
};

const WORLD: &str = "World: five nodes. Regional: a round trip of 4 ms between each two nodes, ±10% at \
     random, and 1 Gbit/s for each link in each direction (\"between each pair of nodes\"); interfaces have \
     no rate of their own. The paper's \"delay\" is taken as the round trip: its 30 ms of the wide area are \
     near what `ping` shows between CloudLab's sites. Links deliver in order. A node takes 5 µs for each input \
     and each message that it sends, and 2 GB/s of its processor for their bytes; a disk takes 200 µs to sync \
     and 400 MB/s. Computing the code takes no virtual time (Table 1 has it).";
const LOAD: &str = "Load: 15 clients in closed loops, three at each node, 10 µs from it; 100 keys, chosen alike; \
     sizes of values are normal with a tenth of the mean as standard deviation; 3 s are counted after 2 s. \
     Servers gather nothing on purpose (the paper's do for 1 ms): what has come in when a turn of the loop ends \
     is proposed.";
const PROTOCOLS: &str = "RSPaxos: d = 3, four votes. CRaft: d = 3 (`coding=3`), as the paper has it, which by \
     CRaft's own rule needs all five. Followers of both \
     fetch nothing (`lacking.age=86400s`) before they are 16,384 slots behind. Leaders read under a \
     lease; Raft and CRaft under Ongaro's. The leader is node 1: seeds are taken that elect it. Every history is \
     checked: it is linearizable.";

const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "fig4",
        "Figures 2 to 4: which assignments are safe",
        &[
            "All reply sets of n = 3, 5, 7 and 9 servers (the paper's four sizes are not given), with balanced \
             assignments of an (n, m)-code: the fewest distinct shards that are left when any f = n − m servers are \
             lost.",
        ],
        &[&FIG4, &FIG4_FRONT, &FIG4_FIXED],
        None,
        region::measure
    ),
    experiment!(
        "lower-bound",
        "§2: one large payload",
        &[
            "MultiPaxos, idle, a client at the leader; the leader's disk and the link to the followers work at once."
        ],
        &[&LOWER_BOUND],
        None,
        instance::lower_bound
    ),
    experiment!(
        "fig7",
        "Figure 7: three payloads in two environments",
        &[
            WORLD,
            LOAD,
            PROTOCOLS,
            "Half of the operations are Puts. Wide area: the sites of `--topology wan`, their round trips \
             shortened to a mean of 30 ms, 200 Mbit/s for each link, node 1 at WI; the timeouts of `up --topology`; \
             9 s are counted.",
        ],
        &[&FIG7],
        Some(("operations a second", charts::fig7)),
        loads::fig7
    ),
    experiment!(
        "fig8",
        "Figure 8: the size of values, the number of nodes, the share of Puts",
        &[
            WORLD,
            LOAD,
            PROTOCOLS,
            "Sizes, numbers of nodes and shares are ours where the paper gives none. Nodes and shares: Figure 7's \
             mixed payload, since a gain over both MultiPaxos and RSPaxos needs one.",
        ],
        &[&FIG8_SIZES, &FIG8_CLUSTERS, &FIG8_PUTS],
        Some(("operations a second", charts::fig8)),
        loads::fig8
    ),
    experiment!(
        "fig9",
        "Figure 9: where the time of an instance goes, and log space",
        &[
            WORLD,
            LOAD,
            PROTOCOLS,
            "Puts of 64 KB alone. The accounting of logs: everything that is written as a record."
        ],
        &[&FIG9],
        None,
        instance::fig9
    ),
    experiment!(
        "fig10",
        "Figure 10: sizes and links that change",
        &[
            WORLD,
            PROTOCOLS,
            "15 clients, Puts alone, a change each 15 s: to 4 KB, to 100 Mbit/s for all links, back, and nodes 4 and \
             5 ten times as far away with a tenth of the rate.",
        ],
        &[&FIG10, &FIG10_TRACE],
        Some(("operations a second, and shards of each voter", charts::fig10)),
        changes::fig10
    ),
    experiment!(
        "fig11",
        "Figure 11: two leaders die",
        &[
            WORLD,
            PROTOCOLS,
            "15 clients, half of the operations Puts of 64 KB. Followers stand after 1.5 to 3 s of silence \
             (`election.timeout=1500ms`). Leaders die after 5 and 30 s (the paper's after 15 and 55 s, of which the \
             log's length is not given), and it ends after 45 s; three runs. Clients of a dead node lose what they \
             have asked, and go to another node 2 s after asking. No snapshots.",
        ],
        &[&FIG11, &FIG11_LOG, &FIG11_TRACE],
        Some(("operations a second", charts::fig11)),
        changes::fig11
    ),
    experiment!(
        "fig12",
        "Figure 12: links that differ",
        &[
            WORLD,
            LOAD,
            PROTOCOLS,
            "Puts of 64 KB alone. Links between the leader and nodes 4 and 5 have 400 and 100 Mbit/s, the others 1 \
             Gbit/s. Unbalanced: `crossword.shards=8,5/1:5,2:5,3:5,4:3,5:1`, the code of the paper's Figure 3(e).",
        ],
        &[&FIG12],
        None,
        loads::fig12
    ),
    experiment!(
        "fig13",
        "Figure 13: staleness of followers",
        &[
            WORLD,
            "An open loop of writes of one object of 8 B, at the leader's node; rates and the gap of 40 KiB are ours. \
             `crossword.shards=1`. 15 s are counted after 5 s. A gap counts bytes of batches: some 60 for one write.",
        ],
        &[&FIG13],
        Some(("versions behind the leader", charts::fig13)),
        staleness::measure
    ),
    experiment!(
        "fig14",
        "Figure 14: what links carry",
        &[
            WORLD,
            PROTOCOLS,
            "Puts of 64 KB in an open loop at the leader's node, at the rate that MultiPaxos reaches in a closed one. \
             Reconstructs are always batched here; what one for each slot would add is computed: the frames and heads \
             of a request and an answer, 96 bytes.",
        ],
        &[&FIG14],
        None,
        instance::fig14
    ),
    experiment!(
        "fig15",
        "Figure 15: five partitions on five machines",
        &[
            WORLD,
            PROTOCOLS,
            "Five groups on the same machines, whose links they share; machine i leads group i. Processors and disks \
             are each group's own (the paper's machines have 40 cores). Puts alone; 1000 keys, Zipf 0.99 (YCSB's), \
             scattered over five equal ranges; clients are spread over the machines. 1.5 s are counted.",
            "Sizes, in place of TiDB's, which the paper only draws: 100 B to 1000 B 45%, to 4 KiB 20%, to 16 KiB \
             20%, to 64 KiB 10%, to 290 kB 5%, each evenly.",
        ],
        &[&FIG15, &FIG15_SIZES],
        Some(("mean latency against throughput", charts::fig15)),
        partitions::measure
    ),
    experiment!(
        "fig16",
        "Figure 16: the replicated payloads of TPC-C",
        &[
            WORLD,
            "There is no database here. Stand-in: one group of five; 400 clients in closed loops, as many as the \
             paper has workers; a transaction is one operation: New-Order 45%, a Put of 8 KB; Payment 43%, \
             2 KB; Delivery 4%, 15 KB; Order-Status and Stock-Level 8%, Gets \
             (TPC-C's mix; the bytes of the rows that each writes by its clause 1.3, doubled for indexes and \
             versions). Thresholds are the paper's: `crossword.shards=4KiB:2,8KiB:1`. Vanilla is Raft.",
        ],
        &[&FIG16],
        None,
        loads::fig16
    ),
    experiment!(
        "chooser",
        "The chooser against every fixed number of shards",
        &[
            WORLD,
            "15 clients, Puts alone; sizes × rates × round trips, each with `crossword.shards` 1, 2, 3 and `auto`; 1 s \
             is counted after 2 s.",
        ],
        &[&CHOOSER],
        None,
        loads::chooser
    ),
    experiment!("straggler", "One slow node", &[WORLD, PROTOCOLS], &[&STRAGGLER], None, loads::straggler),
    experiment!(
        "table1",
        "Table 1: the cost of the code",
        &["The code of `crates/blocks/src/coding` with n = 5 and d = 3, as the leader calls it: allocation \
             included, one core, the median of as many as take half a second; five runs. Bytes of messages that carry \
             shards are made from the same memory.",],
        &[&TABLE1],
        None,
        coding::measure
    ),
];
