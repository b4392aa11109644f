//! Figure 9: throughput around the crash of a leader, real processes.

use std::time::Duration;

use super::super::cluster::{Cluster, KEYS, Load, VALUE};
use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::fig7::{panel, percent};
use super::outage::{FAST, Outage};
use super::simulated::{LEASEGUARD, Mechanism, ONGARO, SIX};

/// When the leader is killed, on the time axis.
const CRASH: f64 = 500.0;
/// The load runs so long before.
const BEFORE: Duration = Duration::from_millis(2500);
/// How long it is watched, in ms.
const LENGTH: f64 = 4000.0;
/// Operations a second.
const RATE: u64 = 6000;
/// One request under way on each: those that wait must not keep others from being asked.
const CONNECTIONS: usize = 12_000;
/// Elections come when they come: so often it is tried to have one that leaves something to see.
const TRIES: usize = 8;
/// The new leader's first answer comes at most so long after the crash, beyond ET.
const EARLY: f64 = 200.0;

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig9", "Figure 9: availability around a leader's crash (real processes)");
    section.told(format!(
        "Three nodes and the load generator on this machine, `--durability fsync`; the leader is killed with SIGKILL. Open loop, \
         {RATE} operations per second (the paper: 30,000; two cores carry four processes here), a third of them writes, \
         {VALUE} B values, {KEYS} keys, Zipf 0.5 (hottest key 1.6%). Δ 1 s, ET 500 ms; Ongaro's lease: ET 1 s."
    ));
    section.told(format!(
        "The clients are connected to the two nodes that survive, {CONNECTIONS} connections with one request each, so that a request \
         which waits keeps no other from being asked. Servers hold what they cannot do yet, where the paper's refuse it, and \
         nobody gives up: an operation that takes more than {FAST:.0} ms counts as failed in the tables, and is shown in the \
         plots when it ends. `proxy.patience=40ms`: a proxy that has lost its leader asks for the next one every 10 ms."
    ));
    section.told(format!(
        "Elections are random between ET and 2 ET. What LeaseGuard gives can be seen only before the old lease ends, so for \
         each mechanism with a lease of its own, of up to {TRIES} runs the first is taken in which the new leader answers \
         at most {EARLY:.0} ms after ET (LeaseGuard), or the first run (others: it cannot be seen from outside)."
    ));
    let mut outages = Vec::new();
    let mut series = Table::new(["mechanism", "ms", "reads_per_ms", "writes_per_ms"]);
    let tries = if bench.quick { 1 } else { TRIES };
    for mechanism in SIX {
        let mut outage = None;
        for run in 1..=tries {
            let mut one = crash(bench, mechanism)?;
            let early = one.first_read() - CRASH < 500.0 + EARLY;
            one.note = format!("run {run}");
            bench.say(&format!("fig9: {}, run {run}: first read {:.0} ms after the crash", mechanism.name,
                one.first_read() - CRASH))?;
            outage = Some(one);
            if early || mechanism != LEASEGUARD {
                break;
            }
        }
        let outage = outage.ok_or("not a single run")?;
        outage.rows(&mut series);
        outages.push(outage);
    }
    bench.csv(&mut section, "fig9.csv", &series)?;
    let charts: Vec<_> = outages.iter().map(|outage| panel(outage, 3000.0)).collect();
    bench.plot(&mut section, "fig9.svg", "reads and writes per millisecond around a crash", &charts, 3)?;
    section.tables.push(("Times in ms on the axis of the plots; failed: took more than 50 ms.".to_owned(),
        Outage::table(&outages)));
    judge(&mut section, &outages);
    Ok(section)
}

fn crash(bench: &Bench, mechanism: Mechanism) -> Result<Outage> {
    let common = ["election.timeout=500ms", "lease_duration=1s", "proxy.patience=40ms"];
    let settings: Vec<_> = common.iter().chain(mechanism.settings).copied().collect();
    let cluster = Cluster::start(bench, &settings)?;
    let load = Load {
        zipf: 0.5,
        warm_up: Duration::ZERO,
        ..Load::mixed(RATE, CONNECTIONS, BEFORE + Duration::from_millis(LENGTH as u64))
    };
    let ops = cluster.survive(&load, BEFORE, CRASH)?;
    Ok(Outage::new(mechanism.name, ops, CRASH, LENGTH - 500.0))
}
