//! Figure 5: availability against the length of the lease and of the election timeout, simulated.

use quorate_bench::Arrivals;
use quorate_bench::chart::{Chart, Scale};
use quorate_core::Fact;
use quorate_sim::experiment::Act;

use super::super::page::{Section, Verdict};
use super::super::series::{first_success, kind, mean};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::simulated::{self, ACCEPTED, LEASEGUARD, LOG_BASED, Load, MS, Mechanism, ORIGIN, SUBNET, WORLD};

const TIMEOUTS: [u64; 3] = [250, 500, 1000];
/// Δ ÷ ET.
const RATIOS: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];
/// Two configurations: with and without the optimizations.
const TWO: [Mechanism; 2] = [LEASEGUARD, LOG_BASED];

#[derive(Clone, Copy, Debug)]
struct Point {
    timeout: u64,
    ratio: f64,
    /// Time without a successful read, and without a successful write, after the crash, in ETs: mean of the runs.
    reads: f64,
    writes: f64,
    /// No-ops per second while clients only read.
    noops: f64,
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section =
        Section::new("fig5", "Figure 5: availability against lease duration and ET (simulated)");
    let runs = if bench.quick { 4 } else { 20 };
    section.told(format!("World: {WORLD}. Links as in Figure 7."));
    section.told(format!(
        "The paper gives no numbers for this drawing. Ours: ET 250, 500 and 1000 ms, Δ from ET ÷ 4 to 3 ET; \
         clients read every 2 ms and write every 10 ms (\"rare\" compared with reads; every write extends the \
         lease, so no-ops are counted in runs of their own in which clients only read). Means over {runs} seeds; \
         elections are random between ET and 2 ET."
    ));
    section.told(
        "Unavailability: from the crash to the end of the first operation that began after it and succeeded. \
         Heartbeats every ET ÷ 5; no-ops when the last entry is Δ/2 old, looked at every Δ/4.",
    );
    let mut table =
        Table::new(["mechanism", "ET_ms", "lease_over_ET", "read_gap_ET", "write_gap_ET", "noops_per_s"]);
    let mut lines: Vec<Vec<Point>> = Vec::new();
    for mechanism in TWO {
        for timeout in TIMEOUTS {
            let points = RATIOS.map(|ratio| measure(mechanism, timeout, ratio, runs));
            let points = points.into_iter().collect::<Result<Vec<_>>>()?;
            for point in &points {
                let [reads, writes] = [point.reads, point.writes].map(|gap| format!("{gap:.3}"));
                let noops = format!("{:.2}", point.noops);
                let words = [mechanism.name.to_owned(), timeout.to_string(), point.ratio.to_string()];
                let [name, timeout, ratio] = words;
                table.row([name, timeout, ratio, reads, writes, noops]);
            }
            lines.push(points);
            bench.say(&format!("fig5: {}, ET {timeout} ms", mechanism.name))?;
        }
    }
    bench.csv(&mut section, "fig5.csv", &table)?;
    let (guard, log) = lines.split_at(TIMEOUTS.len());
    let panel = |title: &str, y: &str, of: fn(&Point) -> f64| {
        let mut chart = Chart::new(title, "Δ ÷ ET", y, Scale::Linear(None));
        for (name, lines) in [("", guard), (", log-based", log)] {
            for points in lines {
                let line = points.iter().map(|point| (point.ratio, of(point))).collect();
                chart = chart.line(&format!("ET {} ms{name}", points[0].timeout), line, true);
            }
        }
        chart
    };
    let gap = "time without, in ETs";
    let charts = [
        panel("writes after a crash", gap, |point| point.writes),
        panel("reads after a crash", gap, |point| point.reads),
        panel("no-ops per second, only reads", "per second", |point| point.noops),
    ];
    bench.plot(&mut section, "fig5.svg", "unavailability and cost against Δ ÷ ET", &charts, 3)?;
    judge(&mut section, guard, log);
    Ok(section)
}

fn measure(mechanism: Mechanism, timeout: u64, ratio: f64, runs: u64) -> Result<Point> {
    let lease = (timeout as f64 * ratio) as u64;
    let words = [
        format!("election.timeout={timeout}ms"),
        format!("heartbeat={}ms", timeout / 5),
        format!("lease.duration={lease}ms"),
        "proxy.patience=40ms".to_owned(),
        "lease.drift=10ms".to_owned(),
    ];
    let common: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for seed in 1..=runs {
        let mut load = Load::new(0.0, 0.0, 128, seed);
        let mut asks = load.greeting();
        let crash = 500.0 + (seed as f64 / runs as f64) * lease as f64;
        let end = crash + (timeout * 5 + lease) as f64;
        let (begin, end) = (ORIGIN, ORIGIN + end as u64 * MS);
        asks.extend(load.between(begin, end, Arrivals::Even, 500, ACCEPTED));
        asks.extend((begin..end).step_by(10 * MS as usize).map(|at| load.ask(at, true, ACCEPTED)));
        let setup = simulated::setup(mechanism, &common, SUBNET, seed, end + 100 * MS);
        let at = ORIGIN + (crash * MS as f64) as u64;
        let measured = simulated::run(&setup, asks, &[(at, Act::CrashLeader)])?;
        if !simulated::is_linearizable(&measured) {
            return Err(format!(
                "{}, ET {timeout} ms, Δ {lease} ms, seed {seed}: not linearizable",
                mechanism.name
            ));
        }
        let ops = simulated::ops(&measured);
        let gap = |writes| first_success(&kind(&ops, writes), crash).map(|at| (at - crash) / timeout as f64);
        // An election may split more often than this run is long; then the run says how long it was.
        let longest = (end as f64 - at as f64) / MS as f64 / timeout as f64;
        reads.push(gap(false).unwrap_or(longest));
        writes.push(gap(true).unwrap_or(longest));
    }
    let noops = noops(mechanism, &common)?;
    Ok(Point { timeout, ratio, reads: mean(&reads), writes: mean(&writes), noops })
}

/// Entries per second while clients only read.
fn noops(mechanism: Mechanism, common: &[&str]) -> Result<f64> {
    let mut load = Load::new(0.0, 0.0, 128, 1);
    let end = ORIGIN + 11_000 * MS;
    let mut asks = load.greeting();
    asks.extend(load.between(ORIGIN, end, Arrivals::Even, 500, ACCEPTED));
    let setup = simulated::setup(mechanism, common, SUBNET, 1, end);
    let measured = simulated::run(&setup, asks, &[])?;
    let upto = |until: u64| {
        let before = measured.facts.iter().filter(|(at, ..)| *at <= until);
        before
            .filter_map(|(_, _, fact)| match fact {
                Fact::Commits { index, .. } => Some(*index),
                _ => None,
            })
            .max()
            .unwrap_or(0)
    };
    Ok((upto(end) - upto(ORIGIN + 1000 * MS)) as f64 / 10.0)
}

fn judge(section: &mut Section, guard: &[Vec<Point>], log: &[Vec<Point>]) {
    let at = |points: &Vec<Point>, ratio: f64| {
        points.iter().find(|point| point.ratio == ratio).copied().expect("a ratio of the list")
    };
    let describe = |lines: &[Vec<Point>], of: fn(&Point) -> f64, ratios: &[f64]| {
        let one = |points: &Vec<Point>| {
            let values = ratios.iter().map(|ratio| format!("{:.2}", of(&at(points, *ratio))));
            format!("ET {} ms: {}", points[0].timeout, values.collect::<Vec<_>>().join(", "))
        };
        lines.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    let all = || guard.iter().chain(log);
    // No shorter lease gains more than a twentieth of an ET, and every shorter one costs more no-ops.
    let optimal = all().all(|points| {
        let equal = at(points, 1.0);
        let shorter = points.iter().filter(|point| point.ratio < 1.0);
        shorter.clone().all(|point| point.writes > equal.writes - 0.15 && point.noops > equal.noops)
            && points
                .iter()
                .filter(|point| point.ratio > 1.0)
                .all(|point| point.writes >= equal.writes - 0.05)
    });
    section.judge(
        "LG-5.1",
        Verdict::when(optimal),
        format!(
            "writes, in ETs without, at Δ ÷ ET = 0.5, 1, 2: LeaseGuard {}; log-based {}",
            describe(guard, |p| p.writes, &[0.5, 1.0, 2.0]),
            describe(log, |p| p.writes, &[0.5, 1.0, 2.0])
        ),
        "rule: no shorter lease is available 0.15 ET sooner and every shorter one costs more no-ops; no longer one \
         is available sooner. Our elections take ET to 2 ET, so a lease a little longer than ET costs nothing either",
    );
    let flat = all().all(|points| {
        let short = points.iter().filter(|point| point.ratio <= 1.0).map(|point| point.writes);
        let (low, high) = short.fold((f64::MAX, 0.0f64), |(l, h), gap| (l.min(gap), h.max(gap)));
        high - low < 0.2
    });
    let cost = guard.iter().all(|points| at(points, 0.25).noops > 3.0 * at(points, 1.0).noops);
    section.judge(
        "LG-5.2",
        Verdict::when(flat && cost),
        format!(
            "no-ops per second at Δ ÷ ET = 0.25, 0.5, 1: {}; writes without, in ETs: {}",
            describe(guard, |p| p.noops, &[0.25, 0.5, 1.0]),
            describe(guard, |p| p.writes, &[0.25, 0.5, 1.0])
        ),
        "rule: the gap differs by less than 0.2 ET while Δ ≤ ET, and ET ÷ 4 takes more than 3 times the no-ops of ET",
    );
    let longer = guard.iter().zip(log).all(|(guard, log)| {
        let (ours, bare, equal) = (at(guard, 3.0), at(log, 3.0), at(guard, 1.0));
        ours.writes > equal.writes + 0.5 && ours.reads < equal.reads + 0.2 && bare.reads > equal.reads + 0.5
    });
    section.judge(
        "LG-5.3",
        Verdict::when(longer),
        format!(
            "at Δ = 3 ET, reads without, in ETs: LeaseGuard {}; log-based {}; writes: {}",
            describe(guard, |p| p.reads, &[3.0]),
            describe(log, |p| p.reads, &[3.0]),
            describe(guard, |p| p.writes, &[3.0])
        ),
        "rule: at 3 ET writes wait at least 0.5 ET longer than at ET, LeaseGuard's reads less than 0.2 ET longer, \
         reads of the log-based lease at least 0.5 ET longer",
    );
}
