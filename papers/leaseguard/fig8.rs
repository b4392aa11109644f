//! Figure 8: reads on the new leader against skew, simulated.

use quorate_bench::Arrivals;
use quorate_sim::experiment::{Act, Measured};

use super::FIG8;
use super::outage::FAST;
use super::simulated::{self, ACCEPTED, LEASEGUARD, Load, MS, ORIGIN, SUBNET, millis};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;
use crate::instrument::series::{self, kind};

/// An operation each 300 µs.
const RATE: u64 = 3333;
/// Entries that are replicated and not known to be committed.
const LIMBO: u64 = 100;
/// When L0 stops hearing the others, on the time axis.
const DEAF: u64 = ORIGIN + 500 * MS;
/// From the last ordinary operation to the first entry of the limbo region, in ms: everybody knows what is committed.
const QUIET: u64 = 30;
/// Before this the last entry that everybody knows to be committed is less than Δ old.
const INHERITED: u64 = DEAF - QUIET * MS + 1000 * MS - 5 * MS;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let runs = if bench.quick { 2 } else { 10 };
    let points: Vec<_> =
        (0..=8).flat_map(|step| (1..=runs).map(move |seed| (f64::from(step) * 0.25, seed))).collect();
    Ok(vec![Rows(&FIG8, bench.each(&points, |(zipf, seed)| point(*zipf, *seed))?)])
}

fn point(zipf: f64, seed: u64) -> Result<Row> {
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
    let Some((waiting, after, limbo, gap)) = shares(&measured, crash) else {
        return Err(format!("exponent {zipf}, seed {seed}: nobody took over in time"));
    };
    let share = |(asked, served): Share| served as f64 / asked.max(1) as f64;
    let elsewhere = refused_elsewhere(&measured, crash);
    let numbers = [
        share(waiting),
        share(after),
        derived(zipf),
        limbo as f64,
        gap,
        elsewhere as f64,
        probabilities(zipf)[0],
    ];
    Ok(Row { run: seed as u32, ..Row::of(&[&zipf], numbers) })
}

type Share = (usize, usize);

fn shares(measured: &Measured, crash: u64) -> Option<(Share, Share, u64, f64)> {
    let (elected, leader) = measured.elected_after(crash).next()?;
    let committed = measured.first_commit_of(leader, elected)?;
    let limbo = measured.limbo_of(leader, elected)?;
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
