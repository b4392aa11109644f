//! Figure 10: latency against the delay between nodes, real processes.

use std::time::Duration;

use super::FIG10;
use super::simulated::{INCONSISTENT, LEASEGUARD, Mechanism, ONGARO, QUORUM};
use crate::instrument::Result;
use crate::instrument::cluster::{Cluster, Load};
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const FOUR: [Mechanism; 4] = [INCONSISTENT, QUORUM, ONGARO, LEASEGUARD];
const DELAYS: [u32; 6] = [1, 2, 3, 5, 7, 10];
/// An operation each 300 µs.
const RATE: u64 = 3333;
/// Each with one request.
const CONNECTIONS: usize = 512;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let (runs, millis) = if bench.quick { (1, 700) } else { (5, 1200) };
    let mut rows = Vec::new();
    for delay in DELAYS {
        let net = format!("net.delay={delay}ms");
        let start = |mechanism: &Mechanism| {
            let common = ["election.timeout=500ms", "lease.duration=1s", &net];
            let settings: Vec<_> = common.iter().chain(mechanism.settings).copied().collect();
            Cluster::start(bench, &settings)
        };
        let clusters = FOUR.iter().map(start).collect::<Result<Vec<_>>>()?;
        // All of them in each run: the machine drifts.
        for run in 1..=runs {
            for (mechanism, cluster) in FOUR.iter().zip(&clusters) {
                let one = cluster.measure(&Load::mixed(RATE, CONNECTIONS, Duration::from_millis(millis)))?;
                let rate = one.reads_per_second + one.writes_per_second;
                let numbers = [one.read_p50, one.read_p90, one.write_p50, one.write_p90, rate];
                rows.push(Row { run, ..Row::of(&[&mechanism.name, &delay], numbers) });
            }
        }
        bench.say(&format!("fig10: {delay} ms"))?;
    }
    Ok(vec![Rows(&FIG10, rows)])
}
