//! Figure 9: throughput around the crash of a leader, real processes.

use std::time::Duration;

use super::outage::Outage;
use super::simulated::{DEFER, LEASEGUARD, LOG_BASED, Mechanism, ONGARO, SIX};
use super::{FIG9, FIG9_TRACE};
use crate::instrument::Result;
use crate::instrument::cluster::{Cluster, Load};
use crate::instrument::grid::Rows;
use crate::instrument::measure::Bench;

/// When the leader is killed, on the time axis.
const CRASH: f64 = 500.0;
/// The load runs so long before.
const BEFORE: Duration = Duration::from_millis(1500);
/// How long it is watched, in ms.
const LENGTH: f64 = 4000.0;
/// Operations a second: as many per processor as the paper's 30,000 on four machines of four.
const RATE: u64 = 3750;
/// One request under way on each: those that wait must not keep others from being asked.
const CONNECTIONS: usize = 8_000;
/// Chance decides when the next leader is elected: enough crashes for a median where two mechanisms are compared by it,
/// and enough elsewhere for five that leave something to see of what a new leader reads.
fn runs(mechanism: Mechanism) -> u32 {
    match mechanism {
        ONGARO | LOG_BASED => 20,
        DEFER | LEASEGUARD => 10,
        _ => 5,
    }
}

/// Measures it: every run is in the CSV.
pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let (mut points, mut traces) = (Vec::new(), Vec::new());
    for run in 1..=if bench.quick { 1 } else { 20 } {
        for mechanism in SIX.into_iter().filter(|mechanism| run <= runs(*mechanism)) {
            let outage = crash(bench, mechanism)?;
            let first = outage.first_read() - CRASH;
            bench.say(&format!(
                "fig9: {}, run {run}: first read {first:.0} ms after the crash",
                mechanism.name
            ))?;
            let (point, trace) = outage.rows(run);
            points.push(point);
            if run == 1 {
                traces.extend(trace);
            }
        }
    }
    Ok(vec![Rows(&FIG9, points), Rows(&FIG9_TRACE, traces)])
}

fn crash(bench: &Bench, mechanism: Mechanism) -> Result<Outage> {
    let common = ["election.timeout=500ms", "lease.duration=1s", "proxy.patience=100ms"];
    let settings: Vec<_> = common.iter().chain(mechanism.settings).copied().collect();
    let cluster = Cluster::start(bench, &settings)?;
    let load = Load {
        zipf: 0.5,
        warm_up: Duration::ZERO,
        ..Load::mixed(RATE, CONNECTIONS, BEFORE + Duration::from_millis(LENGTH as u64))
    };
    let survived = cluster.survive(&load, BEFORE, CRASH)?;
    let mut outage = Outage::new(mechanism.name, survived.ops, CRASH, LENGTH - 500.0);
    outage.limbo = survived.limbo_entries;
    Ok(outage)
}
