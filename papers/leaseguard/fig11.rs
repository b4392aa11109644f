//! Figure 11: throughput and latency under rising load, real processes.

use std::time::Duration;

use super::simulated::{INCONSISTENT, LEASEGUARD, Mechanism, ONGARO, QUORUM};
use super::{FIG11, FIG11_MAX};
use crate::instrument::Result;
use crate::instrument::cluster::{Cluster, Load, Outcome};
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// As [`QUORUM`], but one round serves all reads that wait.
const SHARED: Mechanism = Mechanism { name: "quorum, shared rounds", settings: &["reads=quorum"], ..QUORUM };
const FIVE: [Mechanism; 5] = [QUORUM, SHARED, ONGARO, LEASEGUARD, INCONSISTENT];
const WRITES: [f64; 4] = [0.05, 1.0 / 3.0, 0.5, 1.0];
const RATES: [u64; 7] = [5_000, 20_000, 40_000, 60_000, 80_000, 100_000, 120_000];
/// Each with one request.
const CONNECTIONS: usize = 2048;
/// The load rises until the median is above this, in ms.
const LIMIT: f64 = 100.0;

/// What each step of the offered load gave.
type Curve = Vec<(u64, Outcome)>;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let (runs, millis) = if bench.quick { (1, 500) } else { (5, 1000) };
    let start = |mechanism: &Mechanism| {
        let common = ["election.timeout=500ms", "lease.duration=1s"];
        let settings: Vec<_> = common.iter().chain(mechanism.settings).copied().collect();
        Cluster::start(bench, &settings)
    };
    let clusters = FIVE.iter().map(start).collect::<Result<Vec<_>>>()?;
    let (mut steps, mut most) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        for writes in WRITES {
            let curves = curves(&clusters, writes, Duration::from_millis(millis))?;
            // The load that is too much for quorum.
            let saturating = curves[0].last().map_or(0, |(rate, _)| *rate);
            for (mechanism, curve) in FIVE.iter().zip(&curves) {
                let share = format!("{writes:.2}");
                for (offered, one) in curve {
                    let numbers = [
                        total(one),
                        one.writes_per_second,
                        one.p50,
                        one.p99,
                        one.read_p50,
                        one.write_p50,
                        one.nodes_cpu,
                        one.generator_cpu,
                    ];
                    steps.push(Row { run, ..Row::of(&[&mechanism.name, &share, offered], numbers) });
                }
                let numbers = maxima(curve, saturating);
                most.push(Row { run, ..Row::of(&[&mechanism.name, &share], numbers) });
            }
            bench.say(&format!("fig11: run {run}, {:.0}% writes", 100.0 * writes))?;
        }
    }
    Ok(vec![Rows(&FIG11, steps), Rows(&FIG11_MAX, most)])
}

/// One curve of each cluster; all of them at each rate, because the machine drifts.
fn curves(clusters: &[Cluster<'_>], writes: f64, duration: Duration) -> Result<Vec<Curve>> {
    let mut curves: Vec<Curve> = clusters.iter().map(|_| Vec::new()).collect();
    for rate in RATES {
        for (cluster, curve) in clusters.iter().zip(&mut curves) {
            if curve.last().is_some_and(|(_, one)| one.p50 > LIMIT) {
                continue;
            }
            let warm_up = Duration::from_millis(300);
            let load = Load { writes, warm_up, ..Load::mixed(rate, CONNECTIONS, duration) };
            curve.push((rate, cluster.measure(&load)?));
        }
    }
    Ok(curves)
}

fn total(one: &Outcome) -> f64 {
    one.reads_per_second + one.writes_per_second
}

/// Operations a second, at most, while the median is within the limit; writes a second, at most at any load, and at the
/// load that saturates quorum, or the highest below it; and what the first of these costs the nodes and the generator.
fn maxima(curve: &Curve, saturating: u64) -> [f64; 5] {
    let within = curve.iter().map(|(_, one)| one).filter(|one| one.p50 <= LIMIT);
    let best = within.max_by(|a, b| total(a).total_cmp(&total(b)));
    let [within, nodes, generator] =
        best.map_or([0.0; 3], |best| [total(best), best.nodes_cpu, best.generator_cpu]);
    let writes = curve.iter().map(|(_, one)| one.writes_per_second).fold(0.0, f64::max);
    let then = curve.iter().take_while(|(offered, _)| *offered <= saturating).last();
    [within, writes, then.map_or(0.0, |(_, one)| one.writes_per_second), nodes, generator]
}
