//! What the paper says of its simulator and its checker, tried with ours.

use std::time::Instant;

use quorate_bench::Arrivals;
use quorate_sim::experiment::{Act, Measured};

use super::simulated::{self, LEASEGUARD, Load, MS, ORIGIN, PATIENCE, SUBNET};
use super::{CHECKING, SIMULATOR};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// Writes and reads of few keys, through a crash.
const POINT: &str = "a crash";

fn run() -> Result<Measured> {
    let common = ["election.timeout=500ms", "lease.duration=1s", "proxy.patience=40ms"];
    let setup = simulated::setup(LEASEGUARD, &common, SUBNET, 7, ORIGIN + 2500 * MS);
    let mut load = Load::new(0.99, 0.5, 128, 7);
    let mut asks = load.greeting();
    asks.extend(load.between(ORIGIN, ORIGIN + 2000 * MS, Arrivals::Poisson, 3333, PATIENCE));
    simulated::run(&setup, asks, &[(ORIGIN + 500 * MS, Act::CrashLeader)])
}

/// Two runs of one seed.
pub fn simulator(bench: &Bench) -> Result<Vec<Rows>> {
    let both = bench.each(&[(); 2], |()| run())?;
    let (first, second) = (&both[0], &both[1]);
    let same =
        first.operations == second.operations && first.facts == second.facts && first.sent == second.sent;
    let yes = |yes: bool| f64::from(u8::from(yes));
    let numbers = [
        first.operations.len() as f64,
        first.facts.len() as f64,
        yes(same),
        yes(simulated::is_linearizable(first)),
    ];
    Ok(vec![Rows(&SIMULATOR, vec![Row::of(&[&POINT], numbers)])])
}

/// The time that the checker takes.
pub fn checking(_: &Bench) -> Result<Vec<Rows>> {
    let measured = run()?;
    let mut rows = Vec::new();
    for run in 1..=5 {
        let start = Instant::now();
        if !simulated::is_linearizable(&measured) {
            return Err("the history of a crash is not linearizable".to_owned());
        }
        let numbers = [measured.history.0.len() as f64, start.elapsed().as_secs_f64()];
        rows.push(Row { run, ..Row::of(&[&POINT], numbers) });
    }
    Ok(vec![Rows(&CHECKING, rows)])
}
