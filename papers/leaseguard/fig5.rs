//! Figure 5: availability against the length of the lease and of the election timeout, simulated.

use quorate_bench::Arrivals;
use quorate_core::Fact;
use quorate_sim::experiment::Act;

use super::FIG5;
use super::simulated::{self, ACCEPTED, LEASEGUARD, LOG_BASED, Load, MS, Mechanism, ORIGIN, SUBNET};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;
use crate::instrument::series::{first_success, kind};

const TIMEOUTS: [u64; 3] = [250, 500, 1000];
/// Of the lease duration to the election timeout, Δ ÷ ET.
const RATIOS: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let runs = if bench.quick { 4 } else { 20 };
    let mut points = Vec::new();
    for mechanism in [LEASEGUARD, LOG_BASED] {
        for timeout in TIMEOUTS {
            points.extend(RATIOS.map(|ratio| (mechanism, timeout, ratio)));
        }
    }
    let rows =
        bench.each(&points, |(mechanism, timeout, ratio)| point(*mechanism, *timeout, *ratio, runs))?;
    Ok(vec![Rows(&FIG5, rows.concat())])
}

fn point(mechanism: Mechanism, timeout: u64, ratio: f64, runs: u64) -> Result<Vec<Row>> {
    let lease = (timeout as f64 * ratio) as u64;
    let words = [
        format!("election.timeout={timeout}ms"),
        format!("heartbeat={}ms", timeout / 5),
        format!("lease.duration={lease}ms"),
        "proxy.patience=40ms".to_owned(),
        "lease.drift=10ms".to_owned(),
    ];
    let common: Vec<&str> = words.iter().map(String::as_str).collect();
    let noops = noops(mechanism, &common)?;
    let mut rows = Vec::new();
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
        // An election may split more often than this run is long; then the run says how long it was.
        let longest = (end as f64 - at as f64) / MS as f64 / timeout as f64;
        let gap = |writes| {
            let first = first_success(&kind(&ops, writes), crash);
            Some(first.map_or(longest, |at| (at - crash) / timeout as f64))
        };
        rows.push(Row {
            keys: vec![ratio.to_string(), mechanism.name.to_owned(), timeout.to_string()],
            run: seed as u32,
            numbers: vec![gap(false), gap(true), (seed == 1).then_some(noops)],
        });
    }
    Ok(rows)
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
