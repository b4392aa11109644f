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

use crate::instrument::grid::{Figure, Time, figures};
use crate::instrument::{Experiment, Paper, experiments};

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

figures! {
    FIG4 = "fig4": mechanism =>
        elected "ms", first_commit "ms", reads_at_l0, served_by_l0, reads_at_l1, served_by_l1,
        writes_acknowledged, linearizable;
    FIG4_TRACE = "fig4-trace": mechanism, ms =>
        reads_at_l0 "/ms", reads_at_l1 "/ms", writes_at_l0 "/ms", writes_at_l1 "/ms";
    FIG4_READS = "fig4-reads": mechanism => messages, read_p50 "round trips";
    FIG5 = "fig5": lease_over_et, mechanism, et_ms => read_gap "ET", write_gap "ET", noops "/s";
    FIG6 = "fig6": mechanism, delay_ms => read_p90 "ms", write_p90 "ms";
    FIG7 = "fig7": mechanism =>
        elected "ms", first_commit "ms", first_read "ms", first_write "ms", election_to_read "ms",
        election_to_write "ms", read_to_write "ms", steady_from "ms", write_to_steady "ms",
        answered_in_outage, read_spike, write_spike, reads_low_at_commit, reads_high_at_commit,
        writes_in_burst, failed_reads, failed_writes, failed, late_reads, late_writes, inherited_reads,
        inherited_share, limbo_entries, linearizable, steady_read_p50 "ms";
    FIG7_TRACE = "fig7-trace": mechanism, ms => reads "/ms", writes "/ms";
    FIG7_ELECTIONS = "fig7-elections": mechanism => elected "ms", first_read "ms", first_write "ms", failed;
    FIG8 = "fig8": zipf =>
        permitted_waiting, permitted_after, derived, limbo_entries, gap "ms", held_elsewhere, hottest_key;
    FIG10 = "fig10" in Real: mechanism, delay_ms =>
        read_p50 "ms", read_p90 "ms", write_p50 "ms", write_p90 "ms", operations "/s";
    FIG11 = "fig11" in Real: mechanism, writes, offered =>
        operations "/s", writes "/s", p50 "ms", p99 "ms", read_p50 "ms", write_p50 "ms", nodes_cpu "µs",
        generator_cpu "µs";
    FIG11_MAX = "fig11-max" in Real: mechanism, writes =>
        within_100_ms "/s", most_writes "/s", writes_at_saturation "/s", nodes_cpu "µs", generator_cpu "µs";
    SIMULATOR = "simulator": history => operations, facts, equal, linearizable;
    CHECKING = "checking" in Real: history => operations, seconds "s";
}

static FIG6_BUSY: Figure = Figure { id: "fig6-busy", ..FIG6 };
static FIG9: Figure = Figure { id: "fig9", time: Time::Real, ..FIG7 };
static FIG9_TRACE: Figure = Figure { id: "fig9-trace", time: Time::Real, ..FIG7_TRACE };

const EXPERIMENTS: &[Experiment] = experiments! {
    "fig4": FIG4, FIG4_TRACE, FIG4_READS => fig4::measure, charts::fig4, "both leaders of a partition";
    "fig5": FIG5 => fig5::measure, charts::fig5, "unavailability and cost against Δ ÷ ET";
    "fig6": FIG6, FIG6_BUSY => fig6::measure, charts::fig6, "p90 latency against the delay between nodes";
    "fig7": FIG7, FIG7_TRACE, FIG7_ELECTIONS =>
        fig7::measure, charts::fig7, "reads and writes per millisecond around a crash";
    "fig8": FIG8 => fig8::measure, charts::fig8, "reads on the new leader against skew";
    "fig9": FIG9, FIG9_TRACE =>
        fig9::measure, charts::fig9, "reads and writes per millisecond around a crash";
    "fig10": FIG10 => fig10::measure, charts::fig10, "p90 latency against the delay between nodes";
    "fig11": FIG11, FIG11_MAX => fig11::measure, charts::fig11, "latency against throughput";
    "simulator": SIMULATOR => design::simulator;
    "checking": CHECKING => design::checking;
};
