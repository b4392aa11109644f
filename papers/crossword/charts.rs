//! What is drawn of Crossword's figures.

use quorate_bench::chart::{Chart, Scale};

use super::{
    CHAIN, CROSSWORD, FIG7, FIG8_CLUSTERS, FIG8_PUTS, FIG8_SIZES, FIG10_TRACE, FIG11_TRACE, FIG13, FIG15,
    GAP_0, GAP_40, GAP_400, MULTIPAXOS, NAMES, RSPAXOS,
};
use crate::instrument::grid::{Data, Figure};

fn chart(title: &str, x: &str, y: &str, scale: Scale) -> Chart {
    let mut chart = Chart::new(title, x, y, scale);
    chart.legend_right = true;
    chart
}

/// A line for each name, over a dimension of numbers.
fn lines(
    data: &Data,
    figure: &Figure,
    names: &[&str],
    (dim, log, number): (&str, bool, &str),
    chart: Chart,
) -> Chart {
    names.iter().fold(chart, |chart, name| {
        let points = data.line(figure, &[(figure.dims[0], name)], dim, number).into_iter();
        chart.line(name, points.map(|(x, y)| (if log { x.log2() } else { x }, y)).collect(), true)
    })
}

pub fn fig7(data: &Data) -> Vec<Chart> {
    let groups = ["8 B", "128 KB", "mixed"];
    let panel = |environment: &str| {
        let chart = chart(environment, "values", "operations/s", Scale::Log).groups(&groups);
        NAMES.iter().fold(chart, |chart, name| {
            let bar = |(at, values): (usize, &&str)| {
                let keys = [("protocol", *name), ("environment", environment), ("values", *values)];
                Some((at as f64, data.number(&FIG7, &keys, "operations")?))
            };
            chart.line(name, groups.iter().enumerate().filter_map(bar).collect(), false)
        })
    };
    ["regional", "wide-area"].map(panel).to_vec()
}

pub fn fig8(data: &Data) -> Vec<Chart> {
    let three = [MULTIPAXOS, RSPAXOS, CROSSWORD];
    let of = |title, x| chart(title, x, "operations/s", Scale::Linear(None));
    vec![
        lines(data, &FIG8_SIZES, &NAMES, ("value_bytes", true, "operations"), of("size", "log₂ of bytes")),
        lines(data, &FIG8_CLUSTERS, &three, ("nodes", false, "operations"), of("nodes", "nodes")),
        lines(data, &FIG8_PUTS, &three, ("puts_percent", false, "operations"), of("Puts", "% Puts")),
    ]
}

fn over_time(data: &Data, figure: &Figure) -> Vec<Chart> {
    let rate = chart("throughput", "s", "operations/s", Scale::Linear(None));
    let shards = chart("shards of each voter", "s", "c", Scale::Linear(None));
    vec![
        lines(data, figure, &NAMES, ("s", false, "operations"), rate),
        lines(data, figure, &[CROSSWORD], ("s", false, "shards"), shards),
    ]
}

pub fn fig10(data: &Data) -> Vec<Chart> {
    over_time(data, &FIG10_TRACE)
}

pub fn fig11(data: &Data) -> Vec<Chart> {
    over_time(data, &FIG11_TRACE)
}

pub fn fig13(data: &Data) -> Vec<Chart> {
    let chart = chart("followers", "log₂ of writes/s", "versions", Scale::Log);
    vec![lines(
        data,
        &FIG13,
        &[MULTIPAXOS, GAP_0, GAP_40, GAP_400],
        ("writes_per_s", true, "staleness"),
        chart,
    )]
}

pub fn fig15(data: &Data) -> Vec<Chart> {
    let chart = chart("five partitions", "operations/s", "mean latency, ms", Scale::Log);
    vec![NAMES.iter().chain([&CHAIN]).fold(chart, |chart, name| {
        let of = |number| data.line(&FIG15, &[("protocol", *name)], "clients", number).into_iter();
        let points = of("operations").zip(of("mean")).map(|((_, rate), (_, ms))| (rate, ms));
        chart.line(name, points.collect(), true)
    })]
}
