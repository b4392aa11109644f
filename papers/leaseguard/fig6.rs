//! Figure 6: latency against the delay between nodes, simulated.

use quorate_bench::Arrivals;
use quorate_sim::experiment::Delay;

use super::simulated::{self, ACCEPTED, INCONSISTENT, LEASEGUARD, Load, MS, Mechanism, ORIGIN, QUORUM};
use super::{FIG6, FIG6_BUSY};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;
use crate::instrument::series::{kind, quantile};

const THREE: [Mechanism; 3] = [INCONSISTENT, QUORUM, LEASEGUARD];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crowd {
    /// The paper's 50 operations.
    Sparse,
    /// The load of question Q2.
    Dense,
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let runs: u64 = if bench.quick { 4 } else { 150 };
    let mut points = Vec::new();
    for delay in 1..=10 {
        points.extend(THREE.map(|mechanism| (mechanism, delay, Crowd::Sparse, runs)));
    }
    points.extend(THREE.map(|mechanism| (mechanism, 10, Crowd::Dense, runs.div_ceil(50))));
    let mut sparse =
        bench.each(&points, |(mechanism, delay, crowd, runs)| point(*mechanism, *delay, *runs, *crowd))?;
    let dense = sparse.split_off(sparse.len() - THREE.len());
    Ok(vec![Rows(&FIG6, sparse), Rows(&FIG6_BUSY, dense)])
}

/// The p90 of all operations of so many runs.
fn point(mechanism: Mechanism, delay: u32, runs: u64, crowd: Crowd) -> Result<Row> {
    let mean = f64::from(delay);
    // Variance in ms² equal to the mean in ms.
    let link = Delay::LogNormal { mean: mean * MS as f64, deviation: mean.sqrt() * MS as f64 };
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
    Ok(Row::of(&[&mechanism.name, &delay], [reads, writes].map(|latencies| quantile(latencies, 0.9))))
}
