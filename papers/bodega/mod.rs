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

use crate::instrument::grid::{Figure, Time};
use crate::instrument::{Experiment, Paper, experiment};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "bodega",
    title: "Bodega and its peers, measured again",
    intro: "*Serving Linearizable Reads Locally from Anywhere at Anytime via Roster Leases.* The \
             headline (B-A.1), reads 5.6 to 13.1 times as fast as with any previous approach, is not \
             reproduced as printed: with 1000 keys and 50 clients Quorum Leases are nearly as fast as \
             Bodega, because a write takes the leases of its own key alone here and few keys are \
             being written at a time, and those that ask a leader or a majority are further behind \
             than the paper says. As the authors' scripts have it, with one key and five clients, it \
             is, at local sites and 10% writes: 6.1 to 15.9 times with 1 ms from a client to its node \
             (2 ms: 3.8 to 11.8; 5 ms: 2.1 to 7.1); at 1% writes it is not.\n\nFigures are made in \
             virtual time with the machines that our nodes run, on the delays of the paper's two \
             clusters. Claims are quoted from the register, by their IDs; l, c, m, M and N are those \
             of its Table 1. What is said of etcd and ZooKeeper is judged by real processes over an \
             emulated wide area.",
    prefix: "B",
    experiments: EXPERIMENTS,
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

/// A figure that the simulator measures.
const fn figure(
    id: &'static str,
    dims: &'static [&'static str],
    numbers: &'static [(&'static str, &'static str)],
    table: Option<&'static str>,
) -> Figure {
    Figure { id, time: Time::Virtual, dims, numbers, table }
}

static FIG1: Figure = figure(
    "fig1",
    &["protocol", "writes_percent"],
    &[("asked_of_another", ""), ("slower_than_c", ""), ("votes_per_read", "")],
    Some("Reads of the client at APT: shares, and votes of other nodes for each."),
);
static TABLE1: Figure = figure(
    "table1",
    &["protocol", "cluster", "site"],
    &[
        ("W", "ms"),
        ("W_formula", "ms"),
        ("W_off", ""),
        ("R", "ms"),
        ("R_formula", "ms"),
        ("R_off", ""),
        ("R*", "ms"),
        ("R*_formula", "ms"),
        ("R*_off", ""),
        ("D*", "ms"),
        ("D*_formula", "ms"),
        ("D*_off", ""),
    ],
    Some("Measured and by the formula; off: how far, as a share of the formula; up to 0.5 ms is 0."),
);
static SETTINGS: Figure = figure(
    "settings",
    &["cluster"],
    &[
        ("c", "ms"),
        ("l", "ms"),
        ("m", "ms"),
        ("N", "ms"),
        ("responders_to_leader", "ms"),
        ("all_pairs", "ms"),
    ],
    Some("Table 1's symbols: l is the mean over the sites; the last two are means of round trips."),
);
static FIG8: Figure = figure(
    "fig8",
    &["protocol", "cluster", "writes_percent", "place", "site"],
    &[
        ("operations", "/s"),
        ("normalized", ""),
        ("read_mean", "ms"),
        ("read_p50", "ms"),
        ("read_p99", "ms"),
        ("read_p99.9", "ms"),
        ("write_mean", "ms"),
        ("write_p99", "ms"),
        ("l", "ms"),
        ("R", "ms"),
        ("read_p50_off", ""),
        ("outliers", ""),
    ],
    None,
);
static FIG8_ALL: Figure = figure(
    "fig8-all",
    &["protocol", "cluster", "writes_percent"],
    &[
        ("operations", "/s"),
        ("read_mean", "ms"),
        ("read_at_responders", "ms"),
        ("write_mean", "ms"),
        ("read_p99", "ms"),
        ("read_p99.9", "ms"),
    ],
    Some("Over all sites, each counting alike; reads at responders: without the leader's."),
);
static HEADLINE: Figure = figure(
    "headline",
    &["protocol", "setup", "c_ms", "writes_percent"],
    &[
        ("read_local", "ms"),
        ("read_all_alike", "ms"),
        ("read_all_weighted", "ms"),
        ("local", ""),
        ("all_alike", ""),
        ("all_weighted", ""),
    ],
    Some(
        "Mean reads, and how many times Bodega's they are: over the clients of local-read sites (the \
         responders beside the leader), over all sites, each counting alike, and over all reads.",
    ),
);
static FIG9: Figure =
    figure("fig9", &["protocol", "operations", "writes_percent", "share"], &[("at_most", "ms")], None);
static FIG10: Figure = figure(
    "fig10",
    &["protocol"],
    &[
        ("window", "ms"),
        ("window_over_half_m", ""),
        ("window_over_half_N", ""),
        ("level", "ms"),
        ("level_over_l", ""),
        ("asked_of_another", ""),
        ("wait_apart_from_window", "ms"),
    ],
    Some("Means over the responders; level: the median of the slow reads."),
);
static FIG10_SITES: Figure = figure(
    "fig10-sites",
    &["protocol", "site"],
    &[("window", "ms"), ("level", "ms"), ("slowest", "ms")],
    Some("By site."),
);
static FIG10_TRACE: Figure = figure("fig10-trace", &["protocol", "ms"], &[("read", "ms")], None);
static FIG11: Figure = figure("fig11", &["protocol", "writes_percent"], &[("operations", "/s")], None);
static FIG12: Figure = figure(
    "fig12",
    &["protocol", "value_bytes"],
    &[("operations", "/s"), ("share_of_an_interface", "")],
    None,
);
static FIG13: Figure = figure(
    "fig13",
    &["scenario"],
    &[
        ("early_writes", ""),
        ("reads", ""),
        ("slow_reads", ""),
        ("slow_reads_of_other_keys", ""),
        ("slowest_read", "ms"),
        ("slowest_read_elsewhere", "ms"),
        ("writes_again", "ms"),
        ("waited_for_expiry", "ms"),
        ("regular_change", "ms"),
        ("regular_over_failure", ""),
        ("slowest_write_at_change", "ms"),
        ("slowest_read_at_change", "ms"),
        ("failed", ""),
    ],
    Some(
        "Early writes: asked from 50 ms to 1 s after the crash, answered before the silence is \
         noticed. Reads are the client's at WI from the crash until then; slow: more than 2 ms; other \
         keys: of which no write is under way. Elsewhere: at MA and APT, of a key that nobody writes, \
         from the crash to the operator's request. Times are from the crash, or the operator's \
         request, on; in brackets the lowest and highest of the runs.",
    ),
);
static FIG13_CHANGE: Figure = figure(
    "fig13-change",
    &["cluster"],
    &[("change", "ms"), ("mean_round_trip", "ms"), ("rounds", ""), ("longest_round_trip", "ms")],
    Some(
        "A regular change without load, from the leader's node hearing of it to its answer: every \
         lease of the new ballot that it needs is there.",
    ),
);
static FIG13_TRACE: Figure = figure("fig13-trace", &["operations", "s"], &[("latency", "ms")], None);
/// What Figures 14 and 15 show of all sites together.
const MEANS: &[(&str, &str)] = &[
    ("read_mean", "ms"),
    ("read_deviation", "ms"),
    ("write_mean", "ms"),
    ("write_deviation", "ms"),
    ("read_weighted", "ms"),
    ("write_weighted", "ms"),
    ("operations", "/s"),
    ("write_off", ""),
];
static FIG14: Figure = figure(
    "fig14",
    &["protocol", "cluster", "responders"],
    MEANS,
    Some(
        "Means and deviations with each site counting alike; weighted: each operation; write off: how \
         far the writes of a site are at most from l and a majority that has all responders.",
    ),
);
static FIG15: Figure =
    figure("fig15", &["roster", "cluster", "covered_percent"], MEANS.split_at(7).0, Some("As in Figure 14."));
static FIG16: Figure = figure(
    "fig16",
    &["protocol", "scenario", "workload", "cluster"],
    &[
        ("operations", "/s"),
        ("normalized", ""),
        ("read_mean", "ms"),
        ("write_mean", "ms"),
        ("write_over_all_nodes", ""),
    ],
    Some("Means over all sites, each counting alike; the last: ÷ l and the time of all nodes."),
);
static LAB: Figure = Figure {
    id: "lab",
    time: Time::Real,
    dims: &["service", "workload", "cluster"],
    numbers: &[
        ("operations", "/s"),
        ("read_mean", "ms"),
        ("write_mean", "ms"),
        ("server_cpu", "ms"),
        ("emulator_cpu", ""),
    ],
    table: Some(
        "Operations a second of all sites; means over the sites; CPU of the members for each operation; \
         processors that the emulator keeps busy.",
    ),
};
static LAB_SITES: Figure = Figure {
    id: "lab-sites",
    time: Time::Real,
    dims: &["service", "workload", "cluster", "site"],
    numbers: &[
        ("operations", "/s"),
        ("read_mean", "ms"),
        ("read_p99", "ms"),
        ("write_mean", "ms"),
        ("write_p99", "ms"),
    ],
    table: None,
};
static LAB_LINKS: Figure = Figure {
    id: "lab-links",
    time: Time::Real,
    dims: &["cluster", "from", "to"],
    numbers: &[("wanted", "ms"), ("median", "ms"), ("longest", "ms")],
    table: Some("Round trips of one byte over the emulated links, before the load."),
};
static HOLDS: Figure = figure(
    "holds",
    &["protocol"],
    &[("held_reads", ""), ("mean", "ms"), ("longest", "ms")],
    Some("Reads that are held at a responder, in EVEN of Table 1."),
);
static IDLE: Figure =
    figure("idle", &["protocol"], &[("messages", "/s")], Some("Messages between nodes, where nobody asks."));

const WORLD: &str = "WAN (`--topology wan`): leader WI, other responders UT, MA, APT. GEO (`--topology \
    geo`): leader VA, other responders EU, OR, CA. 1 ms from a client to the node at its site and back \
    (the paper's c is not given). Round trips are in `crates/core/src/topology.rs`: GEO's are those of \
    the work that the paper cites for it; WAN is a stand-in that agrees with what the text and the \
    authors' scripts say, since the labels of Figure 7's edges are lost.";
const CAPACITY: &str = "A node takes 5 µs for each input and each message that it sends, and its \
    interface sends 1 Gbit/s; disks take no time (the paper does not say whether it syncs). Every \
    history is checked: it is linearizable.";
const LOAD: &str = "Load: 10 clients at each of the five sites, in closed loops without thinking, each \
    with the node at its site; 1000 keys, uniform, values of 128 B; 10 s are counted after 2 s.";

const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "headline",
        "The headline: reads against previous approaches",
        &[
            WORLD,
            CAPACITY,
            "Which figure, share of writes, clients and average give the abstract's 5.6x to 13.1x the \
             paper does not say. So: Figure 8's load on WAN as printed, and as the authors' scripts \
             have it, one key and five clients; 1% and 10% writes; c of 1, 2 and 5 ms; three averages. \
             Previous approaches are those of Table 1 that the paper runs. 30 s are counted.",
        ],
        &[&HEADLINE],
        Some(("mean reads of earlier protocols ÷ Bodega's, c = 1 ms", charts::headline)),
        panels::headline
    ),
    experiment!(
        "fig1",
        "Figure 1: servers on the critical path of a read",
        &[
            WORLD,
            "Nothing takes time but distances. The paper's client near S4 is one at APT, a responder: \
             an operation each 10 ms, 4000 in all, of one key (how many and how often it does not \
             say). Its share of writes is written by another client, at the leader's site, so that \
             what leaves APT is for reads alone. Only 1% is in the paper.",
        ],
        &[&FIG1],
        None,
        fig1::measure
    ),
    experiment!(
        "table1",
        "Table 1: latency and degradation of each protocol",
        &[
            "Two clusters without queues: GEO, and EVEN, five sites of which each is 100 ms from each \
             (99 ms from the leader, S5, so that it is in everybody's majority): m = M = N there. 1 ms \
             from a client to its node and back. In both all sites are responders: the most \
             read-optimized roster.",
            "W and R: single operations at each site, 1.5 s apart, after one that opened the session. \
             R* and D*: one write at the leader's site, and a read of its key each millisecond at \
             every site, from 0.3 s before to 1.5 s after; R* is the slowest of them, D* the time from \
             the first to the last that is slower than R by more than 0.5 ms. EPaxos's reads are \
             commands, which interfere with that write, and reads of other sites with them: each has a \
             write of its own there, to another key, 2 s from the next.",
            "Formulas take m and M at the node that waits for them (PQR's reads and EPaxos: that of \
             the clients' site), N is the furthest responder of the leader. PQR's R* is that of one \
             rinse. Those of protocols that the table leaves out are ours: W = R = l+m without leases, \
             R = l with them.",
        ],
        &[&TABLE1, &SETTINGS],
        None,
        table1::measure
    ),
    experiment!(
        "fig8",
        "Figures 8 and 9: throughput and latency by site, and distributions",
        &[
            WORLD,
            CAPACITY,
            LOAD,
            "The paper's servers gather what is not read locally for 1 ms; ours take what is there \
             when a turn of the loop ends, so nothing waits for an interval. Figure 9 is of the same \
             runs on WAN. The paper shows one key of the thousand, which ours see too seldom in 10 s; \
             keys are drawn alike, so all are taken; each site counts for a fifth.",
        ],
        &[&FIG8, &FIG8_ALL, &FIG9],
        Some((
            "throughput, reads and writes by site; the share of operations that take at most so long",
            charts::fig8
        )),
        panels::measure
    ),
    experiment!(
        "fig10",
        "Figure 10: reads around one interfering write",
        &[
            WORLD,
            CAPACITY,
            "Ten clients at each responder beside the leader, each in an open loop of 400 reads a \
             second of one key; a client at the leader's site writes it once. The paper's 15 s of \
             waiting show nothing: reads are asked from 0.5 s before the write to 1 s after. Slow: \
             more than c and 0.5 ms. Bins of 1 ms by when reads end.",
        ],
        &[&FIG10, &FIG10_SITES, &FIG10_TRACE],
        Some(("mean latency of the reads that end in each millisecond", charts::fig10)),
        fig10::measure
    ),
    experiment!(
        "fig11",
        "Figure 11: throughput against the share of writes",
        &[WORLD, CAPACITY, LOAD, "The shares between the first and the last are ours."],
        &[&FIG11],
        Some(("operations a second of all sites", charts::fig11)),
        sweeps::fig11
    ),
    experiment!(
        "fig12",
        "Figure 12: throughput against the size of values",
        &[WORLD, CAPACITY, LOAD, "5% writes; the sizes are ours; 3 s are counted, above 8 KiB 0.75 s.",],
        &[&FIG12],
        Some(("operations a second of all sites", charts::fig12)),
        sweeps::fig12
    ),
    experiment!(
        "fig13",
        "Figure 13: a responder fails, and an operator sets a roster",
        &[
            WORLD,
            CAPACITY,
            "One client at WI, in an open loop of 400 operations a second, half of them reads, 1000 \
             keys, values of 128 B. UT dies at 800 ms and stays dead; at 7.2 s an operator asks the \
             node at WI for the roster MA and APT (the paper does not say which). Beside that, not in \
             the paper, one client each at MA and APT reads a key that nobody writes, 400 times a \
             second. Timeouts: 1200 ms without a word from a responder, leases of 2500 ms, 100 ms for \
             drift. Ten runs with the failure, each of which begins 83 ms later in the round of \
             renewals; one without it, one without early notes. The chart is of the first.",
            "Here a responder's failure does not change the roster: the leader excludes it \
             (`crates/protocols/src/paxos/bodega/exclusion.rs`), so that the others' leases are not \
             touched.",
        ],
        &[&FIG13, &FIG13_CHANGE, &FIG13_TRACE],
        Some(("mean latency by when operations finish", charts::fig13)),
        fig13::measure
    ),
    experiment!(
        "fig14",
        "Figure 14: latency against the set of responders",
        &[
            WORLD,
            CAPACITY,
            LOAD,
            "10% writes. Sites become responders in the order of the authors' scripts: MA, SC, APT, \
             UT; in GEO OR, CA, EU, JP. By those scripts writes go from 41 to 57.7 ms and reads from \
             16.4 to 4.2 ms, drawn beside ours. The paper shows WAN alone.",
        ],
        &[&FIG14],
        Some(("mean latency, weighted by operations", charts::fig14)),
        sweeps::fig14
    ),
    experiment!(
        "fig15",
        "Figure 15: latency against the share of keys that the roster covers",
        &[
            WORLD,
            CAPACITY,
            LOAD,
            "10% writes. Covered are the first keys in their order, one range, set with `quorate \
             roster set`'s request before the load begins; the steps are those of the authors' \
             scripts. Both ends also with the roster in the settings.",
        ],
        &[&FIG15],
        Some(("mean latency, each site counting alike", charts::fig15)),
        sweeps::fig15
    ),
    experiment!(
        "fig16",
        "Figure 16: YCSB",
        &[
            WORLD,
            CAPACITY,
            "10 clients at each site as in Figure 8, 10,000 keys; values of 128 B (the paper does not \
             say); 3 s are counted. The paper's approximate shares of writes: A 50%, B 5%, C 0%, D 5%, \
             F 25%; insertions are updates, and a read-modify-write of F is a write.",
            "Uniform: all sites choose alike, and all are responders for all keys. Zipfian (0.99): the \
             i-th site's most popular key is number 2000 i, and popularity falls from there; each site \
             is a responder for the 2000 keys that it asks for most, five ranges in all.",
        ],
        &[&FIG16],
        Some(("throughput, reads and writes by workload", charts::fig16)),
        sweeps::fig16
    ),
    experiment!(
        "lab",
        "Figure 16 with real processes: Quorate, etcd and ZooKeeper",
        &[
            "WAN and GEO (the paper's figure is of WAN): five network namespaces of one \
             machine, joined by an emulator in user space (`bench/wan`); a member and two clients in \
             closed loops at each site (`bench/ycsb`: the same program for all), 10,000 keys of 128 B, chosen alike; \
             1.25 s are counted, five runs of each mix one after another in one cluster. All services \
             sync each write, and are led from the paper's site. Two cores carry five members, five load generators \
             and the emulator.",
            "etcd and ZooKeeper are Debian's (3.4.23; 3.8.0), with their defaults but etcd's heartbeats of 120 \
             ms as in the paper and elections of 1.2 s. *stale*: serializable reads. *sync*: `sync` \
             before each read. Quorate: the timeouts of `up --topology`, all sites responders for all keys.",
        ],
        &[&LAB, &LAB_SITES, &LAB_LINKS],
        None,
        lab::measure
    ),
    experiment!(
        "holds",
        "Held reads, and idle clusters",
        &["Held: in EVEN, writes of one key at the leader's site at random times, 0.4 to 0.8 s apart \
            for 40 s, reads of it at one responder each 3 ms. Idle: WAN, 30 s.",],
        &[&HOLDS, &IDLE],
        None,
        holds::measure
    ),
];
