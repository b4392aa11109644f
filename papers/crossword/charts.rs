//! What is drawn of Crossword's figures.

use quorate_bench::chart::{Chart, Scale};

use super::{
    CHAIN, CROSSWORD, FIG7, FIG8_CLUSTERS, FIG8_PUTS, FIG8_SIZES, FIG10_TRACE, FIG11_TRACE, FIG13, FIG15,
    GAP_0, GAP_40, GAP_400, MULTIPAXOS, NAMES, RSPAXOS,
};
use crate::instrument::charts::{against, bars, lines, right};
use crate::instrument::grid::{Data, Figure};

pub fn fig7(data: &Data) -> Vec<Chart> {
    let panel = |environment: &str| {
        let chart = right(environment, "values", "operations/s", Scale::Log);
        let at = [("environment", environment)];
        bars(data, &FIG7, &NAMES, (&at, "values", &["8 B", "128 KB", "mixed"]), "operations", chart)
    };
    ["regional", "wide-area"].map(panel).to_vec()
}

pub fn fig8(data: &Data) -> Vec<Chart> {
    let panel = |title: &str, x: &str, figure, names: &[&str], dim, log| {
        let chart = right(title, x, "operations/s", Scale::Linear(None));
        lines(data, figure, names, (&[], dim, log), "operations", chart)
    };
    let three = [MULTIPAXOS, RSPAXOS, CROSSWORD];
    vec![
        panel("size", "log₂ of bytes", &FIG8_SIZES, &NAMES, "value_bytes", true),
        panel("nodes", "nodes", &FIG8_CLUSTERS, &three, "nodes", false),
        panel("Puts", "% Puts", &FIG8_PUTS, &three, "puts_percent", false),
    ]
}

fn over_time(data: &Data, figure: &Figure) -> Vec<Chart> {
    let rate = right("throughput", "s", "operations/s", Scale::Linear(None));
    let shards = right("shards of each voter", "s", "c", Scale::Linear(None));
    vec![
        lines(data, figure, &NAMES, (&[], "s", false), "operations", rate),
        lines(data, figure, &[CROSSWORD], (&[], "s", false), "shards", shards),
    ]
}

pub fn fig10(data: &Data) -> Vec<Chart> {
    over_time(data, &FIG10_TRACE)
}

pub fn fig11(data: &Data) -> Vec<Chart> {
    over_time(data, &FIG11_TRACE)
}

pub fn fig13(data: &Data) -> Vec<Chart> {
    let chart = right("followers", "log₂ of writes/s", "versions", Scale::Log);
    let names = [MULTIPAXOS, GAP_0, GAP_40, GAP_400];
    vec![lines(data, &FIG13, &names, (&[], "writes_per_s", true), "staleness", chart)]
}

pub fn fig15(data: &Data) -> Vec<Chart> {
    let chart = right("five partitions", "operations/s", "mean latency, ms", Scale::Log);
    let names = [&NAMES[..], &[CHAIN]].concat();
    vec![against(data, &FIG15, &names, (&[], "clients"), ["operations", "mean"], chart)]
}
