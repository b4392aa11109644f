//! What is drawn of Bodega's figures.

use quorate_bench::chart::{Chart, Scale};

use super::{
    BODEGA, EARLIER, FIG8, FIG9, FIG10_TRACE, FIG11, FIG12, FIG13_TRACE, FIG14, FIG15, FIG16, HEADLINE,
    MIXES, NAMES, PASSIVE, QUORUM_LEASES,
};
use crate::instrument::charts::{bars, lines, right};
use crate::instrument::grid::Data;

const GEO: [&str; 5] = ["EU", "VA", "OR", "CA", "JP"];
const WAN: [&str; 5] = ["WI", "UT", "SC", "MA", "APT"];

pub fn headline(data: &Data) -> Vec<Chart> {
    let groups = ["1", "10"];
    let panel = |(setup, number): (&str, &str)| {
        let title = format!("{setup}: {}", number.replace('_', " "));
        let chart = right(&title, "% writes", "÷ Bodega's", Scale::Log);
        let at = [("setup", setup), ("c_ms", "1")];
        // Both ends of the abstract's range.
        bars(data, &HEADLINE, &EARLIER, (&at, "writes_percent", &groups), number, chart).paper(vec![
            (0.0, 5.6),
            (0.0, 13.1),
            (1.0, 5.6),
            (1.0, 13.1),
        ])
    };
    let setups = ["1000 keys, 50 clients", "1 key, 5 clients"];
    let numbers = ["local", "all_alike", "all_weighted"];
    setups.into_iter().flat_map(|setup| numbers.map(|number| panel((setup, number)))).collect()
}

pub fn fig8(data: &Data) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (cluster, sites) in [("GEO", &GEO), ("WAN", &WAN)] {
        for (number, y) in [
            ("normalized", "throughput ÷ Leader Leases"),
            ("read_mean", "mean read, ms"),
            ("read_p99", "p99 read, ms"),
            ("write_mean", "mean write, ms"),
            ("write_p99", "p99 write, ms"),
        ] {
            for writes in ["0", "1", "10"] {
                if writes == "0" && number.starts_with("write") {
                    continue;
                }
                let title = format!("{cluster}, {writes}% writes");
                let chart = right(&title, "site of the clients", y, Scale::Log);
                let at = [("cluster", cluster), ("writes_percent", writes)];
                charts.push(bars(data, &FIG8, &NAMES, (&at, "site", sites), number, chart));
            }
        }
    }
    for (kind, writes) in [("reads", "0"), ("reads", "1"), ("reads", "10"), ("writes", "10")] {
        let title = format!("WAN, {kind}, {writes}% writes");
        let chart = right(&title, "ms", "share", Scale::Linear(Some(1.05)));
        charts.push(NAMES.iter().fold(chart, |chart, name| {
            let at = [("protocol", *name), ("operations", kind), ("writes_percent", writes)];
            let curve = data.line(&FIG9, &at, "share", "at_most");
            chart.line(name, curve.into_iter().map(|(share, ms)| (ms, share)).collect(), false)
        }));
    }
    charts
}

pub fn fig10(data: &Data) -> Vec<Chart> {
    let chart =
        right("responders beside the leader", "ms from the write", "latency, ms", Scale::Linear(None));
    let names = [QUORUM_LEASES, PASSIVE, BODEGA];
    vec![names.iter().fold(chart, |chart, name| {
        let line = data.line(&FIG10_TRACE, &[("protocol", name)], "ms", "read");
        chart.line(name, line.into_iter().filter(|(x, _)| (-50.0..200.0).contains(x)).collect(), false)
    })]
}

pub fn fig11(data: &Data) -> Vec<Chart> {
    let chart = right("all sites", "share of writes, log2 of %", "operations/s", Scale::Log);
    vec![lines(data, &FIG11, &NAMES, (&[], "writes_percent", true), "operations", chart)]
}

pub fn fig12(data: &Data) -> Vec<Chart> {
    let chart = right("all sites", "size of values, log2 of bytes", "operations/s", Scale::Log);
    vec![lines(data, &FIG12, &NAMES, (&[], "value_bytes", true), "operations", chart)]
}

pub fn fig13(data: &Data) -> Vec<Chart> {
    let chart = right("the client at WI", "s at which operations finish", "latency, ms", Scale::Log);
    let mut chart = lines(data, &FIG13_TRACE, &["reads", "writes"], (&[], "s", false), "latency", chart);
    chart.marks = vec![(0.8, "UT dies".to_owned()), (7.2, "new roster".to_owned())];
    vec![chart]
}

pub fn fig14(data: &Data) -> Vec<Chart> {
    let panel = |(cluster, number, paper): (&str, &str, &[(f64, f64)])| {
        let title = format!("{cluster}, {}", number.replace('_', " "));
        let chart = Chart::new(&title, "responders beside the leader", "ms", Scale::Linear(None));
        lines(data, &FIG14, &[BODEGA], (&[("cluster", cluster)], "responders", false), number, chart)
            .paper(paper.to_vec())
    };
    [
        ("WAN", "read_weighted", &[(0.0, 16.4), (4.0, 4.2)][..]),
        ("WAN", "write_weighted", &[(0.0, 41.0), (4.0, 57.7)][..]),
        ("GEO", "read_weighted", &[][..]),
        ("GEO", "write_weighted", &[][..]),
    ]
    .map(panel)
    .to_vec()
}

pub fn fig15(data: &Data) -> Vec<Chart> {
    let panel = |cluster: &str| {
        let chart = Chart::new(cluster, "% of the keys", "ms", Scale::Linear(None));
        ["read_mean", "read_deviation", "write_mean", "write_deviation"].iter().fold(
            chart,
            |chart, number| {
                let at = [("roster", "set as a range"), ("cluster", cluster)];
                chart.line(&number.replace('_', " "), data.line(&FIG15, &at, "covered_percent", number), true)
            },
        )
    };
    ["WAN", "GEO"].map(panel).to_vec()
}

pub fn fig16(data: &Data) -> Vec<Chart> {
    let mixes = MIXES.map(|(mix, _)| mix);
    let panel = |(scenario, number, y): (&str, &str, &str)| {
        let chart = right(scenario, "workload", y, Scale::Log);
        let at = [("scenario", scenario), ("cluster", "WAN")];
        bars(data, &FIG16, &NAMES, (&at, "workload", &mixes), number, chart)
    };
    let numbers = [
        ("normalized", "throughput ÷ PQR (+ Ldr Ls)"),
        ("read_mean", "mean read, ms"),
        ("write_mean", "mean write, ms"),
    ];
    let scenarios = ["Uniform", "Zipfian"].into_iter();
    scenarios.flat_map(|scenario| numbers.map(|(number, y)| panel((scenario, number, y)))).collect()
}
