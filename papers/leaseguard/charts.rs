//! What is drawn of LeaseGuard's figures.

use quorate_bench::chart::{Chart, Scale};

use super::{
    FIG4, FIG4_TRACE, FIG5, FIG6, FIG7, FIG7_TRACE, FIG8, FIG9, FIG9_TRACE, FIG10, FIG11, FIG11_MAX,
};
use crate::instrument::charts::against;
use crate::instrument::grid::{Cell, Data, Figure, Time};

/// The six of Figures 7 and 9.
const SIX: [&str; 6] =
    ["inconsistent", "quorum", "Ongaro lease", "log-based lease", "defer commit", "LeaseGuard"];

pub fn fig4(data: &Data) -> Vec<Chart> {
    let mut chart = Chart::new("LeaseGuard", "ms", "operations per ms", Scale::Linear(None));
    chart.legend_right = true;
    chart.marks.push((500.0, "cut".to_owned()));
    for (number, word) in [("elected", "elected"), ("first_commit", "L1 commits")] {
        let at = data.number(&FIG4, &[("mechanism", "LeaseGuard")], number);
        chart.marks.extend(at.map(|at| (at, word.to_owned())));
    }
    let line = |number| data.line(&FIG4_TRACE, &[("mechanism", "LeaseGuard")], "ms", number);
    let chart = chart
        .line("reads at L0", line("reads_at_l0"), false)
        .line("reads at L1", line("reads_at_l1"), false)
        .line("writes at L0", line("writes_at_l0"), false)
        .line("writes at L1", line("writes_at_l1"), false);
    vec![chart]
}

pub fn fig5(data: &Data) -> Vec<Chart> {
    let panel = |title: &str, y: &str, number: &str| {
        let mut chart = Chart::new(title, "Δ ÷ ET", y, Scale::Linear(None));
        for (name, mechanism) in [("", "LeaseGuard"), (", log-based", "log-based lease")] {
            for timeout in ["250", "500", "1000"] {
                let at = [("mechanism", mechanism), ("et_ms", timeout)];
                let line = data.line(&FIG5, &at, "lease_over_et", number);
                chart = chart.line(&format!("ET {timeout} ms{name}"), line, true);
            }
        }
        chart
    };
    vec![
        panel("writes after a crash", "time without, in ETs", "write_gap"),
        panel("reads after a crash", "time without, in ETs", "read_gap"),
        panel("no-ops per second, only reads", "per second", "noops"),
    ]
}

/// A line for each mechanism, with the spread of the runs where there is one.
fn mechanisms(data: &Data, figure: &Figure, names: &[&str], number: &str, chart: Chart) -> Chart {
    names.iter().fold(chart, |chart, name| {
        let cells = data.cells(figure, &[("mechanism", name)], "delay_ms", number);
        let spread = |(x, cell): &(f64, Option<Cell>)| {
            cell.filter(|cell| figure.time == Time::Real && cell.low < cell.high)
                .map(|cell| (*x, cell.low, cell.high))
        };
        let spread = cells.iter().filter_map(spread).collect();
        let line = cells.iter().map(|(x, cell)| (*x, cell.map_or(f64::NAN, |cell| cell.value))).collect();
        chart.line(name, line, true).spread(spread)
    })
}

pub fn fig6(data: &Data) -> Vec<Chart> {
    let names = ["inconsistent", "quorum", "LeaseGuard"];
    let panel = |title: &str, number: &str| {
        let chart = Chart::new(title, "one-way delay, ms", "p90 latency, ms", Scale::Linear(None));
        mechanisms(data, &FIG6, &names, number, chart)
    };
    let inconsistent = data.number(&FIG6, &[("mechanism", "inconsistent"), ("delay_ms", "10")], "write_p90");
    // The paper prints one number: quorum's writes take 6% more at 10 ms.
    let paper = inconsistent.map(|write| (10.0, 1.06 * write)).into_iter().collect();
    vec![panel("reads", "read_p90"), panel("writes", "write_p90").paper(paper)]
}

/// A panel for each mechanism.
fn outages(data: &Data, figure: &Figure, trace: &Figure) -> Vec<Chart> {
    let panel = |name: &&str| {
        let at = [("mechanism", *name)];
        let line = |number| data.line(trace, &at, "ms", number);
        let before: Vec<_> = line("reads").into_iter().filter(|(x, _)| *x < 450.0).collect();
        let steady = before.iter().map(|(_, y)| y).sum::<f64>() / before.len().max(1) as f64;
        // What goes off the chart in the paper goes off it here, with its height beside it.
        let mut chart = Chart::new(name, "ms", "operations per ms", Scale::Linear(Some(2.5 * steady)));
        chart.x = Some((0.0, 2600.0));
        chart.legend_right = true;
        chart.marks.push((500.0, "crash".to_owned()));
        for (number, word) in [("elected", "elected"), ("first_commit", "commits")] {
            chart.marks.extend(data.number(figure, &at, number).map(|at| (at, word.to_owned())));
        }
        chart.line("reads", line("reads"), false).line("writes", line("writes"), false)
    };
    SIX.iter().map(panel).collect()
}

pub fn fig7(data: &Data) -> Vec<Chart> {
    outages(data, &FIG7, &FIG7_TRACE)
}

pub fn fig8(data: &Data) -> Vec<Chart> {
    let line = |number| data.line(&FIG8, &[], "zipf", number);
    let chart =
        Chart::new("reads permitted on the new leader", "Zipf exponent", "share", Scale::Linear(Some(1.2)));
    let chart = chart
        .line("waiting for its lease", line("permitted_waiting"), true)
        .line("after it", line("permitted_after"), true)
        .line("derived from the paper's numbers", line("derived"), false);
    vec![chart]
}

pub fn fig9(data: &Data) -> Vec<Chart> {
    outages(data, &FIG9, &FIG9_TRACE)
}

pub fn fig10(data: &Data) -> Vec<Chart> {
    let names = ["inconsistent", "quorum", "Ongaro lease", "LeaseGuard"];
    let panel = |title: &str, number: &str| {
        let chart = Chart::new(title, "one-way delay, ms", "p90 latency, ms", Scale::Log);
        mechanisms(data, &FIG10, &names, number, chart)
    };
    vec![panel("reads", "read_p90"), panel("writes", "write_p90")]
}

pub fn fig11(data: &Data) -> Vec<Chart> {
    let names = ["quorum", "quorum, shared rounds", "Ongaro lease", "LeaseGuard", "inconsistent"];
    let panel = |(writes, title): (&str, &str)| {
        let chart = Chart::new(title, "operations per second", "p50 latency, ms", Scale::Log);
        against(data, &FIG11, &names, (&[("writes", writes)], "offered"), ["operations", "p50"], chart)
    };
    let chart = Chart::new(
        "at most, with a median of 100 ms or less",
        "share of writes",
        "operations per second",
        Scale::Linear(None),
    )
    .groups(&["5%", "33%", "50%", "100%"]);
    let most = names.iter().fold(chart, |chart, name| {
        let cells = data.cells(&FIG11_MAX, &[("mechanism", name)], "writes", "within_100_ms");
        let each = (0..).map(f64::from).zip(&cells);
        let value = |cell: &Option<Cell>| cell.map_or(f64::NAN, |cell| cell.value);
        let bars = each.clone().map(|(group, (_, cell))| (group, value(cell))).collect();
        let spread =
            each.filter_map(|(group, (_, cell))| cell.map(|cell| (group, cell.low, cell.high))).collect();
        chart.line(name, bars, false).spread(spread)
    });
    let ratios =
        [("0.05", "5% writes"), ("0.33", "33% writes"), ("0.50", "50% writes"), ("1.00", "100% writes")];
    ratios.map(panel).into_iter().chain([most]).collect()
}
