//! **LeaseGuard** (Davis, Demirbas, Deng): its simulated figures in our simulator, its figures of LogCabin with our
//! processes on this machine.
//!
//! | file | what |
//! |---|---|
//! | `rules` | one rule for each claim |
//! | `charts` | what is drawn |
//! | `simulated` | the configurations, the load, and a run around a leader's crash, in virtual time |
//! | `outage` | what clients saw around the crash of a leader |
//! | `fig4` … `fig11`, `design` | what measures |

mod charts;
#[cfg(feature = "measure")]
mod design;
#[cfg(feature = "measure")]
mod fig10;
#[cfg(feature = "measure")]
mod fig11;
#[cfg(feature = "measure")]
mod fig4;
#[cfg(feature = "measure")]
mod fig5;
#[cfg(feature = "measure")]
mod fig6;
#[cfg(feature = "measure")]
mod fig7;
#[cfg(feature = "measure")]
mod fig8;
#[cfg(feature = "measure")]
mod fig9;
#[cfg(feature = "measure")]
mod outage;
mod rules;
#[cfg(feature = "measure")]
mod simulated;

use crate::instrument::grid::{Figure, Time};
use crate::instrument::{Experiment, Paper, experiment};

/// What `cargo xtask figures` needs to know.
pub const PAPER: Paper = Paper {
    name: "leaseguard",
    title: "LeaseGuard, measured again",
    intro: "Davis, Demirbas, Deng: *LeaseGuard: Raft Leases Done Right*. Figures 4 to 8 are measured in \
             virtual time with the machines that our nodes run; Figures 9 to 11 with real processes. \
             Claims are quoted from the register, by their IDs; Δ is the lease duration, ET the election \
             timeout, L0 the leader that dies, L1 the next one.",
    prefix: "LG",
    experiments: EXPERIMENTS,
    measured: rules::rules,
    rules_text: include_str!("rules.rs"),
    arguments: include_str!("../arguments/leaseguard.md"),
};

static FIG4: Figure = Figure {
    id: "fig4",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: &[
        ("elected", "ms"),
        ("first_commit", "ms"),
        ("reads_at_l0", ""),
        ("served_by_l0", ""),
        ("reads_at_l1", ""),
        ("served_by_l1", ""),
        ("writes_acknowledged", ""),
        ("linearizable", ""),
    ],
    table: Some(
        "Reads while both lead, from 20 ms after L1's election until 20 ms before L0's lease ends; \
             served: within 5 ms. Times in ms on the axis of the chart. 1: linearizable, 0: not.",
    ),
};
static FIG4_TRACE: Figure = Figure {
    id: "fig4-trace",
    time: Time::Virtual,
    dims: &["mechanism", "ms"],
    numbers: &[
        ("reads_at_l0", "/ms"),
        ("reads_at_l1", "/ms"),
        ("writes_at_l0", "/ms"),
        ("writes_at_l1", "/ms"),
    ],
    table: None,
};
static FIG4_READS: Figure = Figure {
    id: "fig4-reads",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: &[("messages", ""), ("read_p50", "round trips")],
    table: Some(
        "What a read costs: messages between nodes, and time in mean round trips. 1000 reads in a \
             second, one at a time, against none.",
    ),
};
static FIG5: Figure = Figure {
    id: "fig5",
    time: Time::Virtual,
    dims: &["lease_over_et", "mechanism", "et_ms"],
    numbers: &[("read_gap", "ET"), ("write_gap", "ET"), ("noops", "/s")],
    table: None,
};
static FIG6: Figure = Figure {
    id: "fig6",
    time: Time::Virtual,
    dims: &["mechanism", "delay_ms"],
    numbers: &[("read_p90", "ms"), ("write_p90", "ms")],
    table: None,
};
static FIG6_BUSY: Figure = Figure {
    id: "fig6-busy",
    table: Some("At 10 ms under the load of Q2 (3,333 operations/s, a third writes):"),
    ..FIG6
};
/// What clients saw around the crash of a leader.
const OUTAGE: &[(&str, &str)] = &[
    ("elected", "ms"),
    ("first_commit", "ms"),
    ("first_read", "ms"),
    ("first_write", "ms"),
    ("election_to_read", "ms"),
    ("election_to_write", "ms"),
    ("read_to_write", "ms"),
    ("steady_from", "ms"),
    ("write_to_steady", "ms"),
    ("answered_in_outage", ""),
    ("read_spike", ""),
    ("write_spike", ""),
    ("reads_low_at_commit", ""),
    ("reads_high_at_commit", ""),
    ("writes_in_burst", ""),
    ("failed_reads", ""),
    ("failed_writes", ""),
    ("failed", ""),
    ("late_reads", ""),
    ("late_writes", ""),
    ("inherited_reads", ""),
    ("inherited_share", ""),
    ("limbo_entries", ""),
    ("linearizable", ""),
    ("steady_read_p50", "ms"),
];
/// Buckets of 10 ms.
const TRACE: &[(&str, &str)] = &[("reads", "/ms"), ("writes", "/ms")];
static FIG7: Figure = Figure {
    id: "fig7",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: OUTAGE,
    table: Some(
        "Times in ms on the axis of the charts. Late: took more than 50 ms, and succeeded. Spikes: \
             the highest 10 ms after the crash, as multiples of the rate before it. Inherited reads: \
             asked between election and first commit, and the share of them that was served within 50 \
             ms. Burst: writes that end within 20 ms of the first.",
    ),
};
static FIG7_TRACE: Figure =
    Figure { id: "fig7-trace", time: Time::Virtual, dims: &["mechanism", "ms"], numbers: TRACE, table: None };
static FIG7_ELECTIONS: Figure = Figure {
    id: "fig7-elections",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: &[("elected", "ms"), ("first_read", "ms"), ("first_write", "ms"), ("failed", "")],
    table: Some("The same of seeds 1 to 25, whenever they elect: means."),
};
static FIG8: Figure = Figure {
    id: "fig8",
    time: Time::Virtual,
    dims: &["zipf"],
    numbers: &[
        ("permitted_waiting", ""),
        ("permitted_after", ""),
        ("derived", ""),
        ("limbo_entries", ""),
        ("gap", "ms"),
        ("held_elsewhere", ""),
        ("hottest_key", ""),
    ],
    table: Some(
        "Shares of the reads that were asked; gap: from the last read under the inherited lease to \
             the first commit; held elsewhere: reads of keys that no limbo entry writes. ",
    ),
};
static FIG9: Figure = Figure { id: "fig9", time: Time::Real, ..FIG7 };
static FIG9_TRACE: Figure = Figure { id: "fig9-trace", time: Time::Real, ..FIG7_TRACE };
static FIG10: Figure = Figure {
    id: "fig10",
    time: Time::Real,
    dims: &["mechanism", "delay_ms"],
    numbers: &[
        ("read_p50", "ms"),
        ("read_p90", "ms"),
        ("write_p50", "ms"),
        ("write_p90", "ms"),
        ("operations", "/s"),
    ],
    table: None,
};
static FIG11: Figure = Figure {
    id: "fig11",
    time: Time::Real,
    dims: &["mechanism", "writes", "offered"],
    numbers: &[
        ("operations", "/s"),
        ("writes", "/s"),
        ("p50", "ms"),
        ("p99", "ms"),
        ("read_p50", "ms"),
        ("write_p50", "ms"),
        ("nodes_cpu", "µs"),
        ("generator_cpu", "µs"),
    ],
    table: None,
};
static FIG11_MAX: Figure = Figure {
    id: "fig11-max",
    time: Time::Real,
    dims: &["mechanism", "writes"],
    numbers: &[
        ("within_100_ms", "/s"),
        ("most_writes", "/s"),
        ("writes_at_saturation", "/s"),
        ("nodes_cpu", "µs"),
        ("generator_cpu", "µs"),
    ],
    table: Some(
        "Operations per second, at most, with a median latency of at most 100 ms; writes per second, \
             at most; writes per second at the load that saturates quorum; and the processor time for \
             each operation at the first of these, of the three nodes together and of the load generator.",
    ),
};
static SIMULATOR: Figure = Figure {
    id: "simulator",
    time: Time::Virtual,
    dims: &["history"],
    numbers: &[("operations", ""), ("facts", ""), ("equal", ""), ("linearizable", "")],
    table: Some("Two runs of one seed, Zipf 0.99, half writes, through a crash; 1: yes."),
};
static CHECKING: Figure = Figure {
    id: "checking",
    time: Time::Real,
    dims: &["history"],
    numbers: &[("operations", ""), ("seconds", "s")],
    table: Some("The checker's time for that history."),
};

const WORLD: &str = "World: three nodes; a node takes 5 µs of its processor for each input and each message that \
             it sends, and its interface sends 1 Gbit/s (the paper's model of I/O contention is not \
             given); links deliver in order; clients have no distance to any node (as in §6.4); no time \
             for disks (the paper's simulator has none); interval clocks with an error bound of 50 µs.";

const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "fig4",
        "Figure 4: both leaders of a partition (simulated)",
        &[
            WORLD,
            "Links as in Figure 7; ET 500 ms, Δ 1 s. At 500 ms L0 loses the other two nodes, but not its \
             clients, who go on asking it. Others begin to ask 5 ms after L1 is elected, and find it. \
             Each side is asked a read each millisecond and a write each 10 ms, of 1000 keys. Of seeds 1 \
             to 400, the first whose L1 is elected 480 to 750 ms after the cut, and in which L0 is not \
             whom a new client asks first.",
        ],
        &[&FIG4, &FIG4_TRACE, &FIG4_READS],
        Some(("both leaders of a partition", charts::fig4)),
        fig4::measure
    ),
    experiment!(
        "fig5",
        "Figure 5: availability against lease duration and ET (simulated)",
        &[
            WORLD,
            "Links as in Figure 7. The paper gives no numbers for this drawing. Ours: ET 250, 500 and \
             1000 ms, Δ from ET ÷ 4 to 3 ET; clients read every 2 ms and write every 10 ms (\"rare\" \
             compared with reads; every write extends the lease, so no-ops are counted in a run of their \
             own in which clients only read). 20 seeds; elections are random between ET and 2 ET.",
            "Gaps: from the crash to the end of the first operation that began after it and succeeded. \
             Heartbeats every ET ÷ 5; no-ops when the last entry is Δ/2 old, looked at every Δ/4.",
        ],
        &[&FIG5],
        Some(("unavailability and cost against Δ ÷ ET", charts::fig5)),
        fig5::measure
    ),
    experiment!(
        "fig6",
        "Figure 6: latency against network latency (simulated)",
        &[
            WORLD,
            "Between nodes: log-normal one-way delays, mean 1 to 10 ms in steps of 1 ms, variance equal \
             to the mean in ms² (the paper gives no unit).",
            "Load: 50 clients, half of them one read each, half one write of 1 KiB, Poisson, 100 ms \
             apart on average; each point is the p90 over 150 seeds (3750 reads and as many writes; the \
             paper has 25 and 25). Uniform over 1000 keys. ET 500 ms, Δ 1 s, no-ops when the last entry \
             is Δ/2 old.",
            "`quorum`: a round of heartbeats for each read, as in the paper (`quorum.rounds=each`); our \
             default shares one among all that wait.",
        ],
        &[&FIG6, &FIG6_BUSY],
        Some(("p90 latency against the delay between nodes", charts::fig6)),
        fig6::measure
    ),
    experiment!(
        "fig7",
        "Figure 7: availability around a leader's crash (simulated)",
        &[
            WORLD,
            "Between nodes: log-normal, mean 191 µs, standard deviation 19.8 µs (\"391 µs variance\" \
             read as 391 µs²; the paper gives no squared unit).",
            "Load: open loop, an operation each 300 µs, a third of them writes of 1 KiB, 1000 keys, \
             uniform. ET 500 ms, Δ 1 s; Ongaro's lease is as long as its ET, so that is 1 s there (as in \
             Figure 9; the paper's Figure 7 has no such panel).",
            "Elections are random between ET and 2 ET of silence. The paper's timeline has the next \
             leader 500 ms after the crash: of seeds 1 to 400, the first whose new leader is elected 470 \
             to 530 ms after it is taken (Ongaro: 970 to 1030 ms).",
            "Our servers and proxies hold what they cannot do yet and go on trying, where the paper's \
             fail at once. So a client here gives up after 50 ms, which counts as a failure, except for \
             writes that it asks of a leader which accepts them without being allowed to commit them \
             (defer commit, LeaseGuard): for those it waits, as the paper's does. A proxy that has lost \
             its leader asks for the next one every 10 ms.",
        ],
        &[&FIG7, &FIG7_TRACE, &FIG7_ELECTIONS],
        Some(("reads and writes per millisecond around a crash", charts::fig7)),
        fig7::measure
    ),
    experiment!(
        "fig8",
        "Figure 8: reads on the new leader against skew (simulated)",
        &[
            WORLD,
            "Load as in Figure 7, LeaseGuard; keys by Zipf over 1000, exponent 0 to 2 in steps of 0.25. \
             The limbo region (the paper does not say how): 30 ms after the last operation L0 stops \
             hearing the others, is asked 100 writes of keys from the same distribution, one entry each, \
             which it replicates and cannot commit, and dies. The load begins again at once.",
            "A read counts as permitted if it is served within 50 ms (ours are held, not refused): of \
             those that began from 20 ms after the election until the inherited lease ends, and of those \
             in the second after the first commit. The inherited lease is that of the last entry which \
             L1 knows to be committed, so it ends some 40 to 60 ms before the entries of the limbo \
             region are Δ old and L1 may commit (LG-X.6).",
            "Derived: the share for independent draws of the 100 keys and of the read's key, without any \
             simulation: Σ p(k) (1 − p(k))^100.",
        ],
        &[&FIG8],
        Some(("reads on the new leader against skew", charts::fig8)),
        fig8::measure
    ),
    experiment!(
        "fig9",
        "Figure 9: availability around a leader's crash (real processes)",
        &[
            "Three nodes and the load generator on this machine, `--durability fsync`; the leader is \
             killed with SIGKILL. Open loop, 3750 operations per second, as many per processor as the \
             paper's 30,000 on four machines of four; a third of them writes, 1 KiB values, 1000 keys, \
             Zipf 0.5 (hottest key 1.6%). Δ 1 s, ET 500 ms; Ongaro's lease: ET 1 s.",
            "The clients are connected to the two nodes that survive, 8000 connections with one request \
             each, so that a request which waits keeps no other from being asked. Servers hold what they \
             cannot do yet, where the paper's refuse it, and nobody gives up: an operation that takes \
             more than 50 ms counts as late. `proxy.patience=100ms`: a proxy that has lost its leader \
             asks for the next one every 25 ms.",
            "Elections are random between ET and 2 ET, and what LeaseGuard gives can be seen only before \
             the old lease ends: a run in which fewer than 100 reads were asked meanwhile has no share \
             of inherited reads. So 20 crashes of Ongaro's and the log-based lease, which are compared by \
             their medians, 10 of defer commit and LeaseGuard, 5 of the others. Every run is in the CSV; \
             the charts show the first. `limbo_entries` is what the new leader counted (`quorate status`).",
        ],
        &[&FIG9, &FIG9_TRACE],
        Some(("reads and writes per millisecond around a crash", charts::fig9)),
        fig9::measure
    ),
    experiment!(
        "fig10",
        "Figure 10: latency against network latency (real processes)",
        &[
            "Three nodes and the load generator on this machine, `--durability fsync`; `--set \
             net.delay=Xms` delays messages between nodes one way, in the sender, instead of the paper's \
             `tc`; clients are connected to the leader without delay. Open loop, an operation each 300 \
             µs, a third of them writes, 1 KiB values, 1000 keys, uniform; 512 connections with one \
             request each; 1.2 s after 0.5 s. ET 500 ms (Ongaro 1 s), Δ 1 s.",
            "`quorum`: a round of heartbeats for each read (`quorum.rounds=each`), as LogCabin has it.",
        ],
        &[&FIG10],
        Some(("p90 latency against the delay between nodes", charts::fig10)),
        fig10::measure
    ),
    experiment!(
        "fig11",
        "Figure 11: throughput and latency under rising load (real processes)",
        &[
            "Three nodes and the load generator share this machine, `--durability fsync`; clients are \
             connected to the leader. Open loop, 2048 connections with one request each, 1 KiB values, 1000 \
             keys, uniform. Offered: 5,000 and 20,000 to 120,000 operations per second in steps of 20,000, 1 \
             s each after 0.3 s, until the median latency (from the intended start) is above 100 ms; five \
             clusters take turns. The paper does not say which latency. Write ratios 5%, 33%, 50%, 100% (the \
             paper's are not printed). ET 500 ms (Ongaro 1 s), Δ 1 s.",
            "`quorum` has a round of heartbeats for each read, as LogCabin has; `quorum, shared rounds` \
             is our default, which lets all reads that wait share one.",
        ],
        &[&FIG11, &FIG11_MAX],
        Some(("latency against throughput", charts::fig11)),
        fig11::measure
    ),
    experiment!("simulator", "The simulator", &[WORLD], &[&SIMULATOR], None, design::simulator),
    experiment!(
        "checking",
        "The checker",
        &["The history of the simulator's run, checked five times."],
        &[&CHECKING],
        None,
        design::checking
    ),
];
