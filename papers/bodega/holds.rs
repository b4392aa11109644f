//! How long reads are held with early notes and without, and what leases cost a cluster that nobody asks anything.

use quorate_core::Random;
use quorate_sim::experiment::{Ask, Capacity, Load};

use super::candidates::{self, Candidate};
use super::world::{self, EVEN, MS, NEAR, READY, WAN};
use super::{BODEGA, HOLDS, IDLE, LEADER_LEASES, MULTIPAXOS, NO_NOTES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let holds = bench.each(&[BODEGA, NO_NOTES], |name| {
        let holds = held(candidates::known(name))?;
        let (count, longest) = (holds.len() as f64, holds.iter().copied().fold(0.0, f64::max));
        Ok(Row::of(&[name], [count, holds.iter().sum::<f64>() / count, longest]))
    })?;
    let idle = bench.each(&[MULTIPAXOS, LEADER_LEASES, BODEGA], |name| {
        let sent = |seconds: u64| sent(candidates::known(name), READY + seconds * 1_000 * MS);
        Ok(Row::of(&[name], [(sent(35)? - sent(5)?) / 30.0]))
    })?;
    Ok(vec![Rows(&HOLDS, holds), Rows(&IDLE, idle)])
}

/// Messages between nodes until an instant, where nobody asks anything but a first write.
fn sent(candidate: &Candidate, end: u64) -> Result<f64> {
    let command = world::put("first", 0, 8);
    let first = Ask { at: READY, proxy: WAN.leader(), command, patience: 5_000 * MS };
    let setup = WAN.setup(candidate, &WAN.responders(), (Capacity::default(), NEAR), end)?;
    let load = Load { asks: vec![first], clients: None, acts: Vec::new() };
    Ok(world::run(candidate, &setup, load)?.sent.values().sum::<u64>() as f64)
}

/// How long reads at a responder are held, in ms.
fn held(candidate: &Candidate) -> Result<Vec<f64>> {
    let (patience, mut random) = (5_000 * MS, Random::new(14));
    let from = READY + 1_000 * MS;
    let until = from + 40_000 * MS;
    let (leader, site) = (EVEN.leader(), EVEN.responders()[0]);
    let mut asks = vec![Ask { at: READY, proxy: leader, command: world::put("k", 0, 8), patience }];
    let mut at = from;
    while at < until {
        asks.push(Ask { at, proxy: leader, command: world::put("k", at, 8), patience });
        // Apart, so that each is held for one write.
        at += random.range(400 * MS..800 * MS);
    }
    asks.extend((from..until).step_by(3 * MS as usize).map(|at| Ask {
        at,
        proxy: site,
        command: world::get("k"),
        patience,
    }));
    let setup = EVEN.setup(candidate, &EVEN.responders(), (Capacity::default(), NEAR), until + patience)?;
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts: Vec::new() })?;
    world::check(candidate, &measured)?;
    let reads = measured.operations.iter().filter(|op| !op.writes && op.proxy == site);
    let waits = reads.filter_map(|op| Some(op.latency()? as f64 / MS as f64 - NEAR));
    Ok(waits.filter(|wait| *wait > 0.5).collect())
}
