//! What is drawn of almost-local reads.

use quorate_bench::chart::{Chart, Scale};

use super::{
    FIG5, FIG6, FIG7, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG15, FIG16, HERMES, HERMES_ALR, RAFT,
    RAFT_ALR, ZAB, ZAB_ALR,
};
use crate::instrument::charts::{against, lines};
use crate::instrument::grid::{Data, Figure};

/// Operations a second of both protocols against a dimension of numbers.
fn rates(data: &Data, figure: &Figure, names: [&str; 2], at: &[(&str, &str)], dim: &str) -> Chart {
    let title = match at.first() {
        None => "throughput".to_owned(),
        Some(("writes_percent", percent)) => format!("{percent}% writes"),
        Some((_, access)) => format!("{access} access"),
    };
    let chart = Chart::new(&title, &dim.replace('_', " "), "operations/s", Scale::Linear(None));
    lines(data, figure, &names, (at, dim, false), "operations", chart)
}

/// Mean latency and 99th percentile against throughput.
fn latencies(data: &Data, figure: &Figure, names: [&str; 2]) -> Vec<Chart> {
    let panel = |(number, title): (&str, &str)| {
        let chart = Chart::new(title, "operations/s", "µs", Scale::Log);
        against(data, figure, &names, (&[], "clients"), ["operations", number], chart)
    };
    [("mean", "mean latency"), ("p99", "99th percentile")].map(panel).to_vec()
}

fn scaling(data: &Data, figure: &Figure, names: [&str; 2]) -> Vec<Chart> {
    ["2", "10"].map(|percent| rates(data, figure, names, &[("writes_percent", percent)], "nodes")).to_vec()
}

pub fn fig5(data: &Data) -> Vec<Chart> {
    vec![rates(data, &FIG5, [RAFT, RAFT_ALR], &[], "writes_percent")]
}

pub fn fig6(data: &Data) -> Vec<Chart> {
    latencies(data, &FIG6, [RAFT, RAFT_ALR])
}

pub fn fig7(data: &Data) -> Vec<Chart> {
    scaling(data, &FIG7, [RAFT, RAFT_ALR])
}

pub fn fig8(data: &Data) -> Vec<Chart> {
    vec![rates(data, &FIG8, [ZAB, ZAB_ALR], &[], "writes_percent")]
}

pub fn fig9(data: &Data) -> Vec<Chart> {
    latencies(data, &FIG9, [ZAB, ZAB_ALR])
}

pub fn fig10(data: &Data) -> Vec<Chart> {
    scaling(data, &FIG10, [ZAB, ZAB_ALR])
}

pub fn fig11(data: &Data) -> Vec<Chart> {
    vec![rates(data, &FIG11, [HERMES, HERMES_ALR], &[], "writes_percent")]
}

pub fn fig12(data: &Data) -> Vec<Chart> {
    latencies(data, &FIG12, [HERMES, HERMES_ALR])
}

pub fn fig13(data: &Data) -> Vec<Chart> {
    scaling(data, &FIG13, [HERMES, HERMES_ALR])
}

pub fn fig15(data: &Data) -> Vec<Chart> {
    let of =
        |percent| rates(data, &FIG15, [HERMES, HERMES_ALR], &[("writes_percent", percent)], "value_bytes");
    ["1", "5", "10", "20"].map(of).to_vec()
}

pub fn fig16(data: &Data) -> Vec<Chart> {
    let of = |access| rates(data, &FIG16, [HERMES, HERMES_ALR], &[("access", access)], "writes_percent");
    ["uniform", "skewed"].map(of).to_vec()
}
