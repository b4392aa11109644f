//! Figure 6: latency against the delay between nodes, simulated.

use quorate_bench::Arrivals;
use quorate_bench::chart::{Chart, Scale};
use quorate_sim::experiment::Delay;

use super::super::page::{Section, Verdict};
use super::super::series::{kind, quantile};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::simulated::{
    self, ACCEPTED, INCONSISTENT, LEASEGUARD, Load, MS, Mechanism, ORIGIN, QUORUM, WORLD,
};

const THREE: [Mechanism; 3] = [INCONSISTENT, QUORUM, LEASEGUARD];
/// Reads that take no more than this (in ms) take no time: there is a processor between client and state.
const NOTHING: f64 = 0.1;

/// p90 of reads and writes, in ms.
#[derive(Clone, Copy, Debug)]
struct Point {
    read: f64,
    write: f64,
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig6", "Figure 6: latency against network latency (simulated)");
    let runs = if bench.quick { 4 } else { 150 };
    section.told(format!("World: {WORLD}."));
    section.told(
        "Between nodes: log-normal one-way delays, mean 1 to 10 ms in steps of 1 ms, variance equal to the mean in \
         ms² (the paper gives no unit).",
    );
    section.told(format!(
        "Load: 50 clients, half of them one read each, half one write of 1 KiB, Poisson, 100 ms apart on average; \
         each point is the p90 over {runs} runs with seeds of their own ({} reads and as many writes; the paper \
         has 25 and 25). Uniform over 1000 keys. ET 500 ms, Δ 1 s, no-ops when the last entry is Δ/2 old.",
        25 * runs
    ));
    section.told(
        "`quorum`: a round of heartbeats for each read, as in the paper (`quorum.rounds=each`); our default shares \
         one among all that wait.",
    );
    let mut table = Table::new(["delay_ms", "mechanism", "read_p90_ms", "write_p90_ms"]);
    let mut points = Vec::new();
    for delay in 1..=10 {
        let mut row = Vec::new();
        for mechanism in THREE {
            let point = measure(mechanism, f64::from(delay), runs, Crowd::Sparse)?;
            table.row([
                delay.to_string(),
                mechanism.name.to_owned(),
                format!("{:.3}", point.read),
                format!("{:.3}", point.write),
            ]);
            row.push(point);
        }
        points.push(row);
        bench.say(&format!("fig6: delay {delay} ms"))?;
    }
    let busy: Vec<_> =
        THREE.iter().map(|it| measure(*it, 10.0, runs.div_ceil(50), Crowd::Dense)).collect::<Result<_>>()?;
    bench.csv(&mut section, "fig6.csv", &table)?;
    let panel = |name: &str, of: fn(&Point) -> f64| {
        let chart = Chart::new(name, "one-way delay, ms", "p90 latency, ms", Scale::Linear(None));
        THREE.iter().enumerate().fold(chart, |chart, (index, mechanism)| {
            let line = points.iter().enumerate().map(|(at, row)| (at as f64 + 1.0, of(&row[index])));
            chart.line(mechanism.name, line.collect(), true)
        })
    };
    let charts = [panel("reads", |point| point.read), panel("writes", |point| point.write)];
    bench.plot(&mut section, "fig6.svg", "p90 latency against the delay between nodes", &charts, 2)?;
    let mut crowded = Table::new(["mechanism", "p90 read, ms", "p90 write, ms"]);
    for (mechanism, point) in THREE.iter().zip(&busy) {
        crowded.row([mechanism.name.to_owned(), format!("{:.2}", point.read), format!("{:.2}", point.write)]);
    }
    section
        .tables
        .push(("At 10 ms under the load of Q2 (3,333 operations/s, a third writes):".to_owned(), crowded));
    judge(&mut section, &points, &busy);
    Ok(section)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// The paper's 50 operations.
    Sparse,
    /// As in Q2.
    Dense,
}

fn measure(mechanism: Mechanism, delay: f64, runs: u64, crowd: Crowd) -> Result<Point> {
    let mean = delay * MS as f64;
    // Variance in ms² equal to the mean in ms.
    let link = Delay::LogNormal { mean, deviation: delay.sqrt() * MS as f64 };
    let common = ["election.timeout=500ms", "lease.duration=1s"];
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for seed in 1..=runs {
        let mut load = Load::new(0.0, 1.0 / 3.0, 1024, seed);
        let mut asks = load.greeting();
        let end = match crowd {
            Crowd::Sparse => {
                let mut fifty = load.between(ORIGIN, ORIGIN + 60_000 * MS, Arrivals::Poisson, 10, ACCEPTED);
                fifty.truncate(50);
                let fifty =
                    fifty.iter().enumerate().map(|(index, ask)| load.ask(ask.at, index % 2 == 1, ACCEPTED));
                asks.extend(fifty.map(simulated::patient));
                ORIGIN + 30_000 * MS
            }
            Crowd::Dense => {
                let some = load.between(ORIGIN, ORIGIN + 1000 * MS, Arrivals::Even, 3333, ACCEPTED);
                asks.extend(some.into_iter().map(simulated::patient));
                ORIGIN + 3000 * MS
            }
        };
        let setup = simulated::setup(mechanism, &common, link, seed, end);
        let ops = simulated::ops(&simulated::run(&setup, asks, &[])?);
        reads.extend(kind(&ops, false).iter().filter_map(|op| op.latency()));
        writes.extend(kind(&ops, true).iter().filter_map(|op| op.latency()));
    }
    Ok(Point { read: quantile(reads, 0.9), write: quantile(writes, 0.9) })
}

fn judge(section: &mut Section, points: &[Vec<Point>], busy: &[Point]) {
    let of = |index: usize| points.iter().map(move |row| row[index]);
    let longest = |index| of(index).map(|point| point.read).fold(0.0, f64::max);
    let ratios = |pairs: Vec<f64>| {
        let (low, high) = pairs.iter().fold((f64::MAX, 0.0f64), |(l, h), x| (l.min(*x), h.max(*x)));
        (low, high, format!("{low:.3} to {high:.3}"))
    };
    let (plain, guard) = (longest(0), longest(2));
    section.judge(
        "LG-6.1",
        Verdict::when(plain <= NOTHING),
        format!("p90 at most {plain:.3} ms"),
        format!("rule: at most {NOTHING} ms, the processor's part"),
    );
    section.judge(
        "LG-6.2",
        Verdict::when(guard <= NOTHING),
        format!("p90 at most {guard:.3} ms; inconsistent {plain:.3} ms"),
        format!("rule: at most {NOTHING} ms"),
    );
    let (low, high, words) = ratios(of(1).map(|point| point.read / point.write).collect());
    let grows = points.windows(2).all(|pair| pair[1][1].read > pair[0][1].read);
    section.judge(
        "LG-6.3",
        Verdict::when(low > 0.9 && high < 1.1 && grows),
        format!("read ÷ write {words}; {:.1} ms at 10 ms", points[9][1].read),
        "rule: read ÷ write between 0.9 and 1.1 at every delay, and growing with the delay",
    );
    let sparse = points[9][1].write / points[9][0].write - 1.0;
    let dense = busy[1].write / busy[0].write - 1.0;
    let higher = |share: f64| format!("{:+.1}%", 100.0 * share);
    section.judge(
        "LG-6.4",
        if sparse > 0.01 { Verdict::Agrees } else { Verdict::Differs },
        format!("{} at 10 ms; under Q2's load {}", higher(sparse), higher(dense)),
        "rule: more than 1% higher. With 10 operations a second nothing competes for a processor of 5 µs a message \
         and a gigabit; the paper's model of I/O is not given. The second number is with 333 times as many \
         operations",
    );
    let (low, high, words) = ratios(points.iter().map(|row| row[2].write / row[0].write).collect());
    section.judge(
        "LG-6.5",
        Verdict::when(low > 0.95 && high < 1.05),
        format!("write p90, LeaseGuard ÷ inconsistent: {words}"),
        "rule: within 5% at every delay, which is what draws of so many writes differ by",
    );
    let first = points[0][0].write / 2.0;
    let last = points[9][0].write / 20.0;
    section.judge(
        "LG-6.6",
        Verdict::when((0.8..2.5).contains(&first) && (0.8..1.5).contains(&last)),
        format!("p90 {:.2} ms at 1 ms ({first:.2} mean round trips), {:.2} ms at 10 ms ({last:.2})",
            points[0][0].write, points[9][0].write),
        "rule: the p90 is 0.8 to 2.5 mean round trips at 1 ms, 0.8 to 1.5 at 10 ms, where the spread is relatively \
         smaller",
    );
    section.judge(
        "LG-6.7",
        Verdict::when(guard <= NOTHING && low > 0.95 && high < 1.05),
        format!("reads at most {guard:.3} ms; writes {words} of inconsistent"),
        "rule: LG-6.2 and LG-6.5",
    );
}
