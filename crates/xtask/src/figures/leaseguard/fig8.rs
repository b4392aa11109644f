//! Figure 8: reads on the new leader against skew, simulated.

use quorate_bench::Arrivals;
use quorate_bench::chart::{Chart, Scale};
use quorate_sim::experiment::{Act, Measured};

use super::super::page::{Section, Verdict};
use super::super::series::{self, kind, mean};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::fig7::percent;
use super::outage::FAST;
use super::simulated::{self, ACCEPTED, LEASEGUARD, Load, MS, ORIGIN, SUBNET, WORLD};

/// An operation each 300 µs.
const RATE: u64 = 3333;
/// Entries that are replicated and not known to be committed.
const LIMBO: u64 = 100;
/// When L0 stops hearing the others, on the time axis.
const DEAF: u64 = ORIGIN + 500 * MS;
/// From the last ordinary operation to the first entry of the limbo region: everybody knows what is committed.
const QUIET: u64 = 30;

/// Before this the last entry that everybody knows to be committed is less than Δ old.
const INHERITED: u64 = DEAF - QUIET * MS + 1000 * MS - 5 * MS;

struct Point {
    zipf: f64,
    /// The share of reads that were served while the new leader waited, and afterwards.
    waiting: f64,
    after: f64,
    /// What independent draws of both keys lead to.
    derived: f64,
    limbo: Vec<u64>,
    refused_elsewhere: usize,
    /// From the last read under the inherited lease to the first commit, in ms.
    gap: f64,
    hottest: f64,
}

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig8", "Figure 8: reads on the new leader against skew (simulated)");
    let runs = if bench.quick { 2 } else { 10 };
    section.told(format!("World and load as in Figure 7, LeaseGuard; {WORLD}."));
    section.told(format!(
        "Keys by Zipf over 1000, exponent 0 to 2 in steps of 0.25. The limbo region (the paper does not say how): \
         30 ms after the last operation L0 stops hearing the others, is asked {LIMBO} writes of keys from the same \
         distribution, one entry each, which it replicates and cannot commit, and dies. The load begins again at \
         once."
    ));
    section.told(format!(
        "A read counts as permitted if it is served within {FAST:.0} ms (ours are held, not refused): of those \
         that began from 20 ms after the election until the inherited lease ends, and of those in the second after \
         the first commit. Means of {runs} runs. The inherited lease is that of the last entry which L1 knows to \
         be committed, so it ends some 40 to 60 ms before the entries of the limbo region are Δ old and L1 may \
         commit (LG-X.6)."
    ));
    section.told(
        "Derived: the share for independent draws of the 100 keys and of the read's key, without any simulation: \
         Σ p(k) (1 − p(k))^100.",
    );
    let mut points = Vec::new();
    for step in 0..=8 {
        let zipf = f64::from(step) * 0.25;
        points.push(measure(zipf, runs)?);
        bench.say(&format!("fig8: exponent {zipf}"))?;
    }
    let mut table =
        Table::new(["zipf", "permitted_waiting", "permitted_after", "derived", "limbo_entries", "gap_ms"]);
    for point in &points {
        let limbo: Vec<_> = point.limbo.iter().map(|limbo| *limbo as f64).collect();
        table.row([
            format!("{:.2}", point.zipf),
            format!("{:.4}", point.waiting),
            format!("{:.4}", point.after),
            format!("{:.4}", point.derived),
            format!("{:.1}", mean(&limbo)),
            format!("{:.1}", point.gap),
        ]);
    }
    bench.csv(&mut section, "fig8.csv", &table)?;
    let line = |of: fn(&Point) -> f64| points.iter().map(|point| (point.zipf, of(point))).collect();
    let rate = 2.0 / 3.0 * RATE as f64 / 1000.0;
    let chart =
        Chart::new("reads on the new leader", "Zipf exponent", "reads per ms", Scale::Linear(Some(3.0)))
            .line("waiting for its lease", points.iter().map(|p| (p.zipf, p.waiting * rate)).collect(), true)
            .line("after it", points.iter().map(|p| (p.zipf, p.after * rate)).collect(), true);
    let shares =
        Chart::new("share permitted while it waits", "Zipf exponent", "share", Scale::Linear(Some(1.2)))
            .line("measured", line(|p| p.waiting), true)
            .line("derived", line(|p| p.derived), false);
    bench.plot(&mut section, "fig8.svg", "reads on the new leader against skew", &[chart, shares], 2)?;
    section.tables.push((
        "Shares of the reads that were asked; gap: from the last read under the inherited lease \
                          to the first commit, at most:"
            .to_owned(),
        table,
    ));
    judge(&mut section, &points);
    Ok(section)
}

fn measure(zipf: f64, runs: u64) -> Result<Point> {
    let mut point = Point {
        zipf,
        waiting: 0.0,
        after: 0.0,
        derived: derived(zipf),
        limbo: Vec::new(),
        refused_elsewhere: 0,
        gap: 0.0,
        hottest: probabilities(zipf)[0],
    };
    let (mut waiting, mut after) = (Vec::new(), Vec::new());
    for seed in 1..=runs {
        let common = ["election.timeout=500ms", "lease.duration=1s", "proxy.patience=40ms"];
        let setup = simulated::setup(LEASEGUARD, &common, SUBNET, seed, ORIGIN + 4000 * MS);
        let mut load = Load::new(zipf, 1.0 / 3.0, 1024, seed);
        let mut asks = load.greeting();
        asks.extend(load.between(ORIGIN, DEAF - QUIET * MS, Arrivals::Even, RATE, ACCEPTED));
        // Even if an entry is made of what comes at one instant, these are made of one write each.
        asks.extend((0..LIMBO).map(|index| load.ask(DEAF + (index + 1) * 300_000, true, 100 * MS)));
        let crash = DEAF + (LIMBO + 10) * 300_000;
        asks.extend(load.between(crash, ORIGIN + 3500 * MS, Arrivals::Even, RATE, ACCEPTED));
        let acts = [(DEAF, Act::DeafenLeader), (crash, Act::CrashLeader)];
        let measured = simulated::run(&setup, asks, &acts)?;
        if !simulated::is_linearizable(&measured) {
            return Err(format!("exponent {zipf}, seed {seed}: not linearizable"));
        }
        let Some(((asked, served), (asked_after, served_after), limbo, gap)) = shares(&measured, crash)
        else {
            return Err(format!("exponent {zipf}, seed {seed}: nobody took over in time"));
        };
        waiting.push(served as f64 / asked.max(1) as f64);
        after.push(served_after as f64 / asked_after.max(1) as f64);
        point.limbo.push(limbo);
        point.gap = gap.max(point.gap);
        point.refused_elsewhere += refused_elsewhere(&measured, crash);
    }
    (point.waiting, point.after) = (mean(&waiting), mean(&after));
    Ok(point)
}

type Share = (usize, usize);

fn shares(measured: &Measured, crash: u64) -> Option<(Share, Share, u64, f64)> {
    let (elected, leader) = measured.elected_after(crash).next()?;
    let committed = measured.first_commit_of(leader, elected)?;
    let limbo = measured.limbo_of(leader, elected)?;
    let millis = |at: u64| (at as f64 - ORIGIN as f64) / MS as f64;
    let reads = kind(&simulated::ops(measured), false);
    let waiting = series::served(&reads, (millis(elected) + 20.0, millis(INHERITED)), FAST);
    let after = series::served(&reads, (millis(committed) + 20.0, millis(committed) + 1000.0), FAST);
    // A leader that is elected when the lease is nearly over tells nothing.
    let fast = reads.iter().filter(|op| op.latency().is_some_and(|latency| latency < 1.0));
    let last = fast.filter_map(|op| op.end).filter(|end| *end < millis(committed)).fold(0.0, f64::max);
    (waiting.0 > 100).then_some((waiting, after, limbo, millis(committed) - last))
}

/// Reads that the new leader held although no write of the limbo region had their key.
fn refused_elsewhere(measured: &Measured, crash: u64) -> usize {
    let Some((elected, _)) = measured.elected_after(crash).next() else { return 0 };
    let key = |index: usize| measured.history.0[index].command.footprint().reads().clone();
    let written = |index: usize| measured.history.0[index].command.footprint().writes().clone();
    let all = || measured.operations.iter().enumerate();
    let limbo: Vec<_> = all()
        .filter(|(_, op)| op.writes && (DEAF..crash).contains(&op.asked))
        .map(|(index, _)| written(index))
        .collect();
    let (from, to) = (elected + 20 * MS, INHERITED);
    let held = all().filter(|(_, op)| {
        let fast = op.latency().is_some_and(|latency| latency <= FAST as u64 * MS);
        !op.writes && (from..to).contains(&op.asked) && !fast
    });
    held.filter(|(index, _)| !limbo.contains(&key(*index))).count()
}

fn probabilities(zipf: f64) -> Vec<f64> {
    let weights: Vec<_> = (1..=1000).map(|rank| f64::from(rank).powf(-zipf)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

fn derived(zipf: f64) -> f64 {
    probabilities(zipf).iter().map(|p| p * (1.0 - p).powi(LIMBO as i32)).sum()
}

fn judge(section: &mut Section, points: &[Point]) {
    let list = |of: fn(&Point) -> f64| {
        let at = points.iter().filter(|point| point.zipf.fract() == 0.0 || point.zipf.fract() == 0.5);
        at.map(|point| format!("{:.3} at {}", of(point), point.zipf)).collect::<Vec<_>>().join(", ")
    };
    let (flat, steep) = (&points[0], &points[points.len() - 1]);
    section.judge(
        "LG-8.1",
        Verdict::when((flat.hottest - 0.001).abs() < 1e-9 && (steep.hottest - 0.608).abs() < 0.005),
        format!("{} at 0, {} at 2", percent(flat.hottest), percent(steep.hottest)),
        "rule: 0.1% and 60.8%, of the law that keys are drawn by",
    );
    section.judge(
        "LG-8.2",
        Verdict::when(points.windows(2).all(|pair| pair[1].waiting < pair[0].waiting + 0.01)),
        list(|point| point.waiting),
        "rule: falling with each step, up to 1% of noise",
    );
    let least = points.iter().map(|point| point.after).fold(1.0, f64::min);
    section.judge(
        "LG-8.3",
        Verdict::when(least >= 0.999),
        format!("at least {} of the reads after the first commit", percent(least)),
        "rule: 99.9% at every exponent",
    );
    let wrong: usize = points.iter().map(|point| point.refused_elsewhere).sum();
    let off = points.iter().map(|point| (point.waiting - point.derived).abs()).fold(0.0, f64::max);
    section.judge(
        "LG-8.4",
        Verdict::when(wrong == 0 && off < 0.05),
        format!("{wrong} reads of other keys were held; shares at most {off:.3} from the derived ones"),
        "rule: none, and at most 0.05 off",
    );
    let limbo = points.iter().flat_map(|point| &point.limbo);
    let (low, high) = limbo.fold((u64::MAX, 0), |(low, high), size| (low.min(*size), high.max(*size)));
    // With little skew there are reads at any time, so the last one tells.
    let gap = flat.gap;
    section.judge(
        "LG-X.6",
        Verdict::when(gap > 1.0),
        format!(
            "they differ: for up to {gap:.0} ms L1 could neither read under the inherited lease nor commit, \
             because the limbo entries are as much younger than the last entry that is known to be committed"
        ),
        "rule: a gap of more than 1 ms, in this figure, whose limbo region was built up over 60 ms; in Figure 7 it \
         is a millisecond. We keep the paper's two rules: both are needed",
    );
    section.judge(
        "LG-8.5",
        Verdict::when(low >= LIMBO && high <= LIMBO + 5),
        format!("{low} to {high} entries were put there; without that, Figure 7 has a few"),
        "rule: 100 to 105 (a no-op may be among them)",
    );
}
