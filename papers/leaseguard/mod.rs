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
    prefix: "LG",
    experiments: EXPERIMENTS,
    descriptions: include_str!("../descriptions/leaseguard.md"),
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
};
static FIG4_READS: Figure = Figure {
    id: "fig4-reads",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: &[("messages", ""), ("read_p50", "round trips")],
};
static FIG5: Figure = Figure {
    id: "fig5",
    time: Time::Virtual,
    dims: &["lease_over_et", "mechanism", "et_ms"],
    numbers: &[("read_gap", "ET"), ("write_gap", "ET"), ("noops", "/s")],
};
static FIG6: Figure = Figure {
    id: "fig6",
    time: Time::Virtual,
    dims: &["mechanism", "delay_ms"],
    numbers: &[("read_p90", "ms"), ("write_p90", "ms")],
};
static FIG6_BUSY: Figure = Figure { id: "fig6-busy", ..FIG6 };
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
static FIG7: Figure = Figure { id: "fig7", time: Time::Virtual, dims: &["mechanism"], numbers: OUTAGE };
static FIG7_TRACE: Figure =
    Figure { id: "fig7-trace", time: Time::Virtual, dims: &["mechanism", "ms"], numbers: TRACE };
static FIG7_ELECTIONS: Figure = Figure {
    id: "fig7-elections",
    time: Time::Virtual,
    dims: &["mechanism"],
    numbers: &[("elected", "ms"), ("first_read", "ms"), ("first_write", "ms"), ("failed", "")],
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
};
static SIMULATOR: Figure = Figure {
    id: "simulator",
    time: Time::Virtual,
    dims: &["history"],
    numbers: &[("operations", ""), ("facts", ""), ("equal", ""), ("linearizable", "")],
};
static CHECKING: Figure = Figure {
    id: "checking",
    time: Time::Real,
    dims: &["history"],
    numbers: &[("operations", ""), ("seconds", "s")],
};

const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        "fig4",
        &[&FIG4, &FIG4_TRACE, &FIG4_READS],
        Some(("both leaders of a partition", charts::fig4)),
        fig4::measure
    ),
    experiment!(
        "fig5",
        &[&FIG5],
        Some(("unavailability and cost against Δ ÷ ET", charts::fig5)),
        fig5::measure
    ),
    experiment!(
        "fig6",
        &[&FIG6, &FIG6_BUSY],
        Some(("p90 latency against the delay between nodes", charts::fig6)),
        fig6::measure
    ),
    experiment!(
        "fig7",
        &[&FIG7, &FIG7_TRACE, &FIG7_ELECTIONS],
        Some(("reads and writes per millisecond around a crash", charts::fig7)),
        fig7::measure
    ),
    experiment!(
        "fig8",
        &[&FIG8],
        Some(("reads on the new leader against skew", charts::fig8)),
        fig8::measure
    ),
    experiment!(
        "fig9",
        &[&FIG9, &FIG9_TRACE],
        Some(("reads and writes per millisecond around a crash", charts::fig9)),
        fig9::measure
    ),
    experiment!(
        "fig10",
        &[&FIG10],
        Some(("p90 latency against the delay between nodes", charts::fig10)),
        fig10::measure
    ),
    experiment!(
        "fig11",
        &[&FIG11, &FIG11_MAX],
        Some(("latency against throughput", charts::fig11)),
        fig11::measure
    ),
    experiment!("simulator", &[&SIMULATOR], None, design::simulator),
    experiment!("checking", &[&CHECKING], None, design::checking),
];
