//! Figure 9: where the time of one instance goes, and how much the disks hold; Figure 14: what links carry; and §2's
//! bound on one large payload. All are of values of 64 KB.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId, Rate};
use quorate_sim::experiment::{Ask, Capacity, Load, Measured};

use super::loads::length;
use super::world::{self, Closed, Cluster, FIVE, MS, SECOND, known, mean, mix, node};
use super::{CROSSWORD, FIG9, FIG14, LOWER_BOUND, MULTIPAXOS, RSPAXOS};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const SIZE: usize = 64_000;
/// What a request for shards of one slot and its answer have around the shards: two frames of 32 bytes, and of each
/// message its type, its number and the length of its list.
const UNBATCHED: f64 = 2.0 * (32.0 + 16.0);

/// Figure 9: where the time of one instance goes.
pub fn fig9(bench: &Bench) -> Result<Vec<Rows>> {
    let systems = [MULTIPAXOS, RSPAXOS, CROSSWORD].map(known);
    let rows = bench.each(&systems, |&candidate| {
        let cluster = Cluster::regional(candidate, 5);
        let seen = Closed::new(mix(1.0, &[SIZE]), length(bench)).run(&cluster)?;
        let [accept, quorum] = segments(&seen.measured, seen.counted()).ok_or("nothing was chosen")?;
        let shards = seen.shards(seen.counted());
        let single: Vec<_> = shards.iter().map(|count| f64::from(u8::from(*count == 1.0))).collect();
        // What is executed in the whole run is what was logged in the whole run.
        let executed = at_node_1(&seen.measured, |fact| matches!(fact, Fact::Executed { .. })).count();
        let logged = |number| seen.measured.logged[&node(number)] as f64 / (executed * SIZE) as f64;
        let all = (1..=5).map(logged).sum::<f64>();
        let numbers =
            [accept + quorum, accept, quorum, mean(&single).unwrap_or(0.0), logged(1), logged(5), all];
        Ok(Row::of(&[&candidate.name], numbers))
    })?;
    Ok(vec![Rows(&FIG9, rows)])
}

fn at_node_1(measured: &Measured, of: impl Fn(&Fact) -> bool) -> impl Iterator<Item = &(u64, NodeId, Fact)> {
    measured.values.iter().filter(move |(_, who, fact)| *who == node(1) && of(fact))
}

/// From the leader's own vote until a follower's share is durable, on average over followers; and from then on until
/// the value is chosen: in ms, on average over slots.
fn segments(measured: &Measured, (from, until): (u64, u64)) -> Option<[f64; 2]> {
    let mut proposed = BTreeMap::new();
    for (at, _, fact) in at_node_1(measured, |fact| matches!(fact, Fact::Stored { .. })) {
        if let (Fact::Stored { slot, .. }, true) = (fact, (from..until).contains(at)) {
            proposed.entry(*slot).or_insert(*at);
        }
    }
    let mut durable: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (at, who, slot) in &measured.durable {
        if let (Some(begin), true) = (proposed.get(slot), *who != node(1)) {
            durable.entry(*slot).or_default().push((at - begin) as f64 / MS as f64);
        }
    }
    let (mut accepts, mut quorums) = (Vec::new(), Vec::new());
    for (at, _, fact) in at_node_1(measured, |fact| matches!(fact, Fact::Chosen { .. })) {
        let Fact::Chosen { slot, .. } = fact else { continue };
        if let (Some(begin), Some(all)) = (proposed.remove(slot), durable.get(slot)) {
            let accept = mean(all)?;
            accepts.push(accept);
            quorums.push((at - begin) as f64 / MS as f64 - accept);
        }
    }
    Some([mean(&accepts)?, mean(&quorums)?])
}

/// Figure 14: bytes by link, at the throughput that MultiPaxos has, which an open loop fixes.
pub fn fig14(bench: &Bench) -> Result<Vec<Rows>> {
    let length = 2 * length(bench);
    let rate = Closed::new(mix(1.0, &[SIZE]), length).run(&Cluster::regional(known(MULTIPAXOS), 5))?;
    let rate = rate.rate(rate.counted());
    let rows = bench.each(&FIVE.each_ref(), |&candidate| {
        let cluster = Cluster::regional(candidate, 5);
        let from = world::READY + SECOND;
        let gap = (SECOND as f64 / rate) as u64;
        let bytes = |end: u64| {
            let setup = cluster.setup(end)?;
            let asks = (from..end).step_by(gap as usize).enumerate().map(|(number, at)| {
                let command = world::command(number as u64 % 100, number as u64, world::Op::Put(SIZE));
                Ask { at, proxy: 0, command, patience: 30 * SECOND }
            });
            let load = Load { asks: asks.collect(), ..Default::default() };
            let measured = cluster.run(&setup, load)?;
            let sum = |leads: bool| {
                let to_followers =
                    |(from, to): &(NodeId, NodeId)| *to != node(1) && (*from == node(1)) == leads;
                let mine = measured.bytes.iter().filter(|(link, _)| to_followers(link));
                mine.map(|(_, bytes)| *bytes).sum::<u64>() as f64
            };
            Ok::<_, String>((sum(true), sum(false)))
        };
        let (first, last) = (bytes(from + world::WARM_UP)?, bytes(from + world::WARM_UP + length)?);
        let (to_followers, between) = (last.0 - first.0, last.1 - first.1);
        let seconds = length as f64 / SECOND as f64;
        let payload = (length / gap) as f64 * SIZE as f64;
        let capacity = seconds * 1e9 / 8.0;
        // Each follower asks two others for a shard each.
        let alone = between + 4.0 * 2.0 * UNBATCHED * (length / gap) as f64;
        let numbers = [
            to_followers / 4.0 / capacity,
            between / 12.0 / capacity,
            to_followers / 4.0 / payload,
            between / 4.0 / payload,
            if between > payload { 1.0 - between / alone } else { 0.0 },
        ];
        Ok(Row::of(&[&candidate.name], numbers))
    })?;
    Ok(vec![Rows(&FIG14, rows)])
}

/// One value of 10⁶ bytes over links and disks of 400 Mbit/s and no delay, between an idle MultiPaxos's three nodes.
pub fn lower_bound(_: &Bench) -> Result<Vec<Rows>> {
    let link = world::link(0.0, Rate::mbit(400));
    let cluster = Cluster::regional(known(MULTIPAXOS), 3).with(world::all_pairs(3, |_, _| link));
    let mut setup = cluster.setup(world::READY + 5 * SECOND)?;
    setup.capacity = Capacity { disk: Some(Rate::mbit(400)), ..Capacity::UNLIMITED };
    setup.sync = 0;
    let ask = |seconds: u64, size| Ask {
        at: world::READY + seconds * SECOND,
        proxy: 0,
        command: world::command(1, seconds, world::Op::Put(size)),
        patience: 30 * SECOND,
    };
    let load = Load { asks: vec![ask(0, 8), ask(1, 1_000_000)], ..Default::default() };
    let measured = cluster.run(&setup, load)?;
    let took = measured.operations[1].latency().ok_or("it was not written")? as f64 / MS as f64;
    Ok(vec![Rows(&LOWER_BOUND, vec![Row::of(&[&MULTIPAXOS], [took])])])
}
