//! Figure 15: five groups on the same five machines, each led from another one.

use std::collections::BTreeMap;

use quorate_bench::{Choice, Keys, Sizes};
use quorate_core::{Fact, Random};
use quorate_sim::experiment::{Load, Setup};

use super::loads::length;
use super::world::{self, CHAINED, Candidate, Cluster, FIVE, MS, READY, SECOND, WARM_UP};
use super::{FIG15, FIG15_SIZES};
use crate::instrument::Result;
use crate::instrument::closed_loops;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::{Bench, pairs};
use crate::instrument::series::quantile;

/// Machines, nodes of a group, and groups.
const COUNT: usize = 5;
const KEYS: u64 = 1000;
/// Clients of all groups.
const LOADS: [usize; 7] = [5, 10, 25, 50, 100, 200, 400];
/// In place of TiDB's sizes, of which the paper draws the distribution alone.
const SIZES: &str = "100-1000:0.45,1000-4096:0.2,4096-16384:0.2,16384-65536:0.1,65536-290000:0.05";
const SEEDS: u64 = 100;

/// Five groups, of which the number g is led from the machine number g.
fn setup(candidate: &'static Candidate, end: u64) -> Result<Setup> {
    let mut setup = Setup { groups: COUNT, ..Cluster::regional(candidate, COUNT * COUNT).world() };
    for seed in 1..=SEEDS {
        setup.seed = seed;
        setup.machines = (0..COUNT * COUNT).map(|node| node % COUNT).collect();
        // Turned so that each leader is where it should be; they may be others then.
        let Some(leaders) = leaders(candidate, &setup)? else { continue };
        let machine = |node: usize| (node + COUNT - leaders[node / COUNT] + node / COUNT) % COUNT;
        setup.machines = (0..COUNT * COUNT).map(machine).collect();
        if self::leaders(candidate, &setup)?.is_some_and(|again| again == leaders) {
            return Ok(Setup { end, ..setup });
        }
    }
    Err(format!("{}: the leaders of {SEEDS} seeds do not stay", candidate.name))
}

/// Who leads each group, by its number in it.
fn leaders(candidate: &Candidate, setup: &Setup) -> Result<Option<Vec<usize>>> {
    let mut leaders = BTreeMap::new();
    for (_, who, fact) in candidate.measure(setup, Load::default())?.facts {
        let node = usize::from(who.get()) - 1;
        match fact {
            Fact::Leads { .. } => drop(leaders.insert(node / COUNT, node % COUNT)),
            _ => continue,
        }
    }
    Ok((leaders.len() == COUNT).then(|| leaders.into_values().collect()))
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let sizes: Sizes = SIZES.parse()?;
    let candidates: Vec<_> = FIVE.iter().chain([&CHAINED]).collect();
    let loads = &LOADS[..if bench.quick { 2 } else { LOADS.len() }];
    let rows = bench.each(&pairs(&candidates, loads), |&(candidate, clients)| {
        let from = READY + SECOND + WARM_UP;
        let until = from + length(bench) / 2;
        let setup = setup(candidate, until + SECOND)?;
        let node = |group: usize, machine: usize| {
            let mut nodes = group * COUNT..(group + 1) * COUNT;
            nodes.find(|node| setup.machines[*node] == machine).expect("each group is on each machine")
        };
        let keys = Keys::new(Choice::Zipf(Choice::THETA), KEYS);
        let mut count = 0;
        let draw = |client: usize, random: &mut Random, _| {
            let (key, size) = (keys.draw(random), sizes.draw(random));
            count += 1;
            let group = (key * COUNT as u64 / KEYS) as usize;
            (node(group, client % COUNT), world::command(key, count, Some(size)))
        };
        let patience = 30 * SECOND;
        let loops = closed_loops::clients(clients, (READY + SECOND, until), patience, draw);
        let open = |proxy: usize| {
            let key = (proxy / COUNT) as u64 * KEYS / COUNT as u64;
            world::command(key, 1 << 19 | proxy as u64, Some(8))
        };
        let asks = closed_loops::openings(COUNT * COUNT, READY, patience, open);
        let load = Load { asks, clients: Some(loops), acts: Vec::new() };
        let seen = candidate.seen(&setup, load, (from, until))?;
        let tail = quantile(seen.latencies(None, MS), 0.95);
        let numbers = [seen.rate(seen.counted), seen.mean(None, MS)?, tail];
        Ok(Row::of(&[&candidate.name, &clients], numbers))
    })?;
    let mut random = Random::new(1);
    let drawn: Vec<_> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
    let large = drawn.iter().filter(|size| **size >= 4096).count() as f64 / drawn.len() as f64;
    let most = drawn.iter().max().copied().unwrap_or(0) as f64 / 1000.0;
    Ok(vec![Rows(&FIG15, rows), Rows(&FIG15_SIZES, vec![Row::of(&[&"stand-in for TiDB"], [large, most])])])
}
