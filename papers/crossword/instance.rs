//! Figure 9: where the time of one instance goes, and how much the disks hold; Figure 14: what links carry; and §2's
//! bound on one large payload. All are of values of 64 KB.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId, Rate};
use quorate_sim::experiment::{Capacity, Load, Measured, Setup};

use super::loads::length;
use super::world::{
    self, Closed, Cluster, FIVE, MS, READY, SECOND, known, links, mean, mix, node, one_shard,
};
use super::{CROSSWORD, FIG9, FIG14, LOWER_BOUND, MULTIPAXOS, RSPAXOS};
use crate::instrument::Result;
use crate::instrument::closed_loops::stream;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const SIZE: usize = 64_000;
/// What a request for shards of one slot and its answer have around the shards: two frames of 32 bytes, and of each
/// message its type, its number and the length of its list.
const UNBATCHED: f64 = 2.0 * (32.0 + 16.0);

/// Figure 9: where the time of one instance goes.
pub fn fig9(bench: &Bench) -> Result<Vec<Rows>> {
    let systems = [MULTIPAXOS, RSPAXOS, CROSSWORD].map(known);
    bench.rows(&FIG9, &systems, |&candidate| {
        let cluster = Cluster::regional(candidate, 5);
        let seen = Closed::new(mix(1.0, &[SIZE]), length(bench)).run(&cluster)?;
        let [accept, quorum] = segments(&seen.measured, seen.counted).ok_or("nothing was chosen")?;
        // What is executed in the whole run is what was logged in the whole run.
        let executed =
            stated(&seen.measured).filter(|(_, _, fact)| matches!(fact, Fact::Executed { .. })).count();
        let logged = |number| seen.measured.logged[&node(number)] as f64 / (executed * SIZE) as f64;
        let all = (1..=5).map(logged).sum::<f64>();
        let single = one_shard(&seen).unwrap_or(0.0);
        let numbers = [accept + quorum, accept, quorum, single, logged(1), logged(5), all];
        Ok(Row::of(&[&candidate.name], numbers))
    })
}

/// What node 1, which leads, stated of values.
fn stated(measured: &Measured) -> impl Iterator<Item = &(u64, NodeId, Fact)> {
    measured.values.iter().filter(|(_, who, _)| *who == node(1))
}

/// From the leader's own vote until a follower's share is durable, on average over followers; and from then on until
/// the value is chosen: in ms, on average over slots.
fn segments(measured: &Measured, (from, until): (u64, u64)) -> Option<[f64; 2]> {
    let mut durable: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (at, _, slot) in measured.durable.iter().filter(|(_, who, _)| *who != node(1)) {
        durable.entry(*slot).or_default().push(*at);
    }
    let (mut begun, mut accepts, mut quorums) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (at, _, fact) in stated(measured) {
        if let Fact::Stored { slot, .. } = fact
            && (from..until).contains(at)
        {
            begun.entry(*slot).or_insert(*at);
        }
        if let Fact::Chosen { slot, .. } = fact
            && let (Some(begin), Some(all)) = (begun.remove(slot), durable.get(slot))
        {
            let after = |at: &u64| (at - begin) as f64 / MS as f64;
            let accept = mean(&all.iter().map(after).collect::<Vec<_>>())?;
            accepts.push(accept);
            quorums.push(after(at) - accept);
        }
    }
    Some([mean(&accepts)?, mean(&quorums)?])
}

/// Figure 14: bytes by link, at the throughput that MultiPaxos has, which an open loop fixes.
pub fn fig14(bench: &Bench) -> Result<Vec<Rows>> {
    let length = 2 * length(bench);
    let rate = Closed::new(mix(1.0, &[SIZE]), length).run(&Cluster::regional(known(MULTIPAXOS), 5))?;
    let rate = rate.rate(rate.counted);
    bench.rows(&FIG14, &FIVE.each_ref(), |&candidate| {
        let cluster = Cluster::regional(candidate, 5);
        let from = READY + SECOND;
        let gap = (SECOND as f64 / rate) as u64;
        let bytes = |end: u64| {
            let put = |number| world::command(number % 100, number, Some(SIZE));
            let load = Load { asks: stream(from..end, gap, put), ..Default::default() };
            let measured = candidate.measure(&cluster.setup(end)?, load)?;
            let to_followers = measured.bytes.iter().filter(|((_, to), _)| *to != node(1));
            let (led, other): (Vec<_>, Vec<_>) = to_followers.partition(|((from, _), _)| *from == node(1));
            let sums = [led, other].map(|all| all.into_iter().map(|(_, bytes)| *bytes).sum::<u64>() as f64);
            Ok::<_, String>(sums)
        };
        let (first, last) = (bytes(from + world::WARM_UP)?, bytes(from + world::WARM_UP + length)?);
        let [to_followers, between] = [0, 1].map(|at| last[at] - first[at]);
        let capacity = length as f64 / SECOND as f64 * 1e9 / 8.0;
        let payload = (length / gap) as f64 * SIZE as f64;
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
    })
}

/// One value of 10⁶ bytes over links and disks of 400 Mbit/s and no delay, between an idle MultiPaxos's three nodes.
pub fn lower_bound(_: &Bench) -> Result<Vec<Rows>> {
    let link = world::link(0.0, Rate::mbit(400));
    let cluster = Cluster::regional(known(MULTIPAXOS), 3).with(links(3, |_, _| link));
    let capacity = Capacity { disk: Some(Rate::mbit(400)), ..Capacity::UNLIMITED };
    let setup = Setup { capacity, sync: 0, ..cluster.setup(READY + 5 * SECOND)? };
    let put = |number| world::command(1, number, Some([8, 1_000_000][number as usize]));
    let load = Load { asks: stream(READY..READY + 2 * SECOND, SECOND, put), ..Default::default() };
    let measured = cluster.candidate.measure(&setup, load)?;
    let took = measured.operations[1].latency().ok_or("it was not written")? as f64 / MS as f64;
    Ok(vec![Rows(&LOWER_BOUND, vec![Row::of(&[&MULTIPAXOS], [took])])])
}
