//! Figure 7: throughput around the crash of a leader, simulated.

use quorate_bench::Arrivals;
use quorate_sim::experiment::{Act, Measured};

use super::outage::Outage;
use super::simulated::{
    self, ACCEPTED, LEASEGUARD, LOG_BASED, Load, MS, Mechanism, ONGARO, ORIGIN, PATIENCE, SIX, SUBNET, millis,
};
use super::{FIG7, FIG7_ELECTIONS, FIG7_TRACE};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// When the leader dies, on the time axis.
const CRASH: f64 = 500.0;
/// An operation each 300 µs.
const RATE: u64 = 3333;
/// How long each run is watched, in ms.
const LENGTH: f64 = 4000.0;
/// Seeds that are tried until the next leader is elected when the paper says it is.
const SEEDS: u64 = 400;
/// Seeds of the figure of elections, whenever they elect.
const ELECTIONS: u64 = 25;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let outages = bench.each(&SIX, |mechanism| crash(*mechanism))?;
    let (points, traces): (_, Vec<_>) = outages.iter().map(|outage| outage.rows(1)).unzip();
    let seeds = 1..=if bench.quick { 2 } else { ELECTIONS };
    let elections: Vec<_> =
        seeds.flat_map(|seed| [ONGARO, LOG_BASED, LEASEGUARD].map(|mechanism| (mechanism, seed))).collect();
    let elections = bench.each(&elections, |(mechanism, seed)| election(*mechanism, *seed))?;
    Ok(vec![Rows(&FIG7, points), Rows(&FIG7_TRACE, traces.concat()), Rows(&FIG7_ELECTIONS, elections)])
}

/// What the first leader after the crash gives, whenever it is elected.
fn election(mechanism: Mechanism, seed: u64) -> Result<Row> {
    let Some(outage) = taken_over(mechanism, seed, |_| true)? else {
        return Err(format!("{}, seed {seed}: nobody is elected", mechanism.name));
    };
    let elected = outage.elected.unwrap_or(LENGTH);
    let failed = outage.failed(false) + outage.failed(true);
    let numbers = [elected, outage.first_read(), outage.first_write(), failed as f64];
    Ok(Row { run: seed as u32, ..Row::of(&[&mechanism.name], numbers) })
}

fn crash(mechanism: Mechanism) -> Result<Outage> {
    let expected = if mechanism == ONGARO { 1000.0 } else { 500.0 };
    let in_time = |elected: f64| (elected - CRASH - expected).abs() <= 30.0;
    for seed in 1..=SEEDS {
        if let Some(outage) = taken_over(mechanism, seed, in_time)? {
            return Ok(outage);
        }
    }
    Err(format!("{}: no seed of {SEEDS} elects {expected} ms after the crash", mechanism.name))
}

/// What clients see of a seed whose next leader is elected in time.
fn taken_over(mechanism: Mechanism, seed: u64, in_time: impl Fn(f64) -> bool) -> Result<Option<Outage>> {
    let measured = attempt(mechanism, seed, u64::MAX)?;
    let Some((elected, _)) = measured.elected_after(AT).next().filter(|(at, _)| in_time(millis(*at))) else {
        return Ok(None);
    };
    // Once more, with clients that wait for what this leader accepts; when it is elected is the seed's choice.
    let measured = attempt(mechanism, seed, elected)?;
    let Some((elected, leader)) = measured.elected_after(AT).next() else { return Ok(None) };
    let mut outage = Outage::new(mechanism.name, simulated::ops(&measured), CRASH, LENGTH - 500.0);
    outage.elected = Some(millis(elected));
    outage.committed = measured.first_commit_of(leader, elected).map(millis);
    outage.limbo = measured.limbo_of(leader, elected);
    outage.linearizable = Some(simulated::is_linearizable(&measured));
    Ok(Some(outage))
}

/// When the leader dies.
const AT: u64 = ORIGIN + CRASH as u64 * MS;

/// One run. From `accepting` on, clients wait for writes, if the mechanism accepts what it may not commit.
fn attempt(mechanism: Mechanism, seed: u64, accepting: u64) -> Result<Measured> {
    let common = ["election.timeout=500ms", "lease.duration=1s", "proxy.patience=40ms"];
    let end = ORIGIN + LENGTH as u64 * MS;
    let mut load = Load::new(0.0, 1.0 / 3.0, 1024, seed);
    let mut asks = load.greeting();
    asks.extend(load.between(ORIGIN, end - 500 * MS, Arrivals::Even, RATE, PATIENCE));
    for ask in
        asks.iter_mut().filter(|ask| mechanism.defers && ask.at >= accepting && !ask.command.is_read_only())
    {
        ask.patience = ACCEPTED;
    }
    let setup = simulated::setup(mechanism, &common, SUBNET, seed, end);
    simulated::run(&setup, asks, &[(AT, Act::CrashLeader)])
}
