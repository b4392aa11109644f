//! Figures 7, 8, 12 and 16, the chooser, and stragglers: closed loops of clients in clusters that do not change.

use quorate_core::{Random, Rate};

use super::world::{
    self, CHAINED, CLIENTS, Candidate, Closed, Cluster, FIVE, FIXED, MS, SECOND, Seen, TABLE, known, links,
    mean, mean_shards, mix, one_shard,
};
use super::{
    CHOOSER, CROSSWORD, FIG7, FIG8_CLUSTERS, FIG8_PUTS, FIG8_SIZES, FIG12, FIG16, FORCED, MULTIPAXOS, RAFT,
    RSPAXOS, STRAGGLER,
};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::{Bench, pairs};
use crate::instrument::series::quantile;

/// The payloads of Figure 7: their name, and the means of their sizes.
const LOADS: [(&str, &[usize]); 3] = [("8 B", &[8]), ("128 KB", &[128_000]), ("mixed", &[8, 128_000])];
const KB: usize = 1000;
const SIZES: [usize; 10] = [8, 256, KB, 2 * KB, 4 * KB, 8 * KB, 16 * KB, 32 * KB, 64 * KB, 256 * KB];
const THREE: [&str; 3] = [MULTIPAXOS, RSPAXOS, CROSSWORD];

/// How long is counted.
pub fn length(bench: &Bench) -> u64 {
    if bench.quick { SECOND / 2 } else { 3 * SECOND }
}

/// Operations a second, their mean latency in ms, and the number of shards on average, where it is known.
fn totals(seen: &Seen) -> Result<[Option<f64>; 3]> {
    Ok([Some(seen.rate(seen.counted)), Some(seen.mean(None, MS)?), mean_shards(seen, seen.counted)])
}

/// Figure 7: three payloads in two environments.
pub fn fig7(bench: &Bench) -> Result<Vec<Rows>> {
    let points = pairs(&FIVE.each_ref(), &pairs(&["regional", "wide-area"], &LOADS));
    bench.rows(&FIG7, &points, |&(candidate, (environment, (load, means)))| {
        let (cluster, times) = match environment {
            "regional" => (Cluster::regional(candidate, 5), 1),
            _ => (Cluster::wide(candidate), 3),
        };
        let seen = Closed::new(mix(0.5, means), times * length(bench)).run(&cluster)?;
        let (rate, mean) = (seen.rate(seen.counted), seen.mean(None, MS)?);
        let numbers = [
            rate,
            mean,
            quantile(seen.latencies(None, MS), 0.95),
            seen.mean(Some(true), MS)?,
            seen.mean(Some(false), MS)?,
            rate * mean / 1000.0 / CLIENTS as f64,
        ];
        let shards = mean_shards(&seen, seen.counted);
        Ok(Row::of(&[&candidate.name, &environment, &load], numbers.map(Some).into_iter().chain([shards])))
    })
}

/// Figure 8: the size of values, of clusters, and the share of Puts.
pub fn fig8(bench: &Bench) -> Result<Vec<Rows>> {
    let sizes = bench.each(&pairs(&FIVE.each_ref(), &SIZES), |&(candidate, size)| {
        let means = [size];
        let seen = Closed::new(mix(0.5, &means), length(bench)).run(&Cluster::regional(candidate, 5))?;
        Ok(Row::of(&[&candidate.name, &size], totals(&seen)?.into_iter().chain([one_shard(&seen)])))
    })?;
    let vary = |points: Vec<(&str, (usize, u64))>, of_nodes: bool| {
        bench.each(&points, |&(name, (nodes, percent))| {
            let cluster = Cluster::regional(known(name), nodes);
            let pick = mix(percent as f64 / 100.0, LOADS[2].1);
            let varied = if of_nodes { nodes as u64 } else { percent };
            Ok(Row::of(&[&name, &varied], totals(&Closed::new(pick, length(bench)).run(&cluster)?)?))
        })
    };
    let clusters = vary(pairs(&THREE, &[(3, 50), (5, 50), (7, 50), (9, 50)]), true)?;
    let puts = vary(pairs(&THREE, &[(5, 10), (5, 50), (5, 100)]), false)?;
    Ok(vec![Rows(&FIG8_SIZES, sizes), Rows(&FIG8_CLUSTERS, clusters), Rows(&FIG8_PUTS, puts)])
}

/// Figure 12: links from the leader, node 1, that differ.
pub fn fig12(bench: &Bench) -> Result<Vec<Rows>> {
    let candidates: Vec<_> = FIVE.iter().chain([&TABLE]).collect();
    bench.rows(&FIG12, &candidates, |&candidate| {
        let links = [(4, 400), (5, 100)].into_iter().flat_map(|(follower, mbit)| {
            let link = world::link(4.0, Rate::mbit(mbit));
            let (leader, follower) = (world::node(1), world::node(follower));
            [((leader, follower), link), ((follower, leader), link)]
        });
        let cluster = Cluster::regional(candidate, 5).with(links);
        let seen = Closed::new(mix(1.0, &[64 * KB]), length(bench)).run(&cluster)?;
        Ok(Row::of(&[&candidate.name], totals(&seen)?))
    })
}

/// TPC-C's transactions that write: their share in percent, and the mean bytes that they replicate: New-Order, Payment,
/// Delivery. The others, Order-Status and Stock-Level, read.
const TRANSACTIONS: [(u64, usize); 3] = [(45, 8 * KB), (43, 2 * KB), (4, 15 * KB)];

/// Figure 16 without a database: transactions are single operations of as many bytes.
pub fn fig16(bench: &Bench) -> Result<Vec<Rows>> {
    static SYSTEMS: [Candidate; 3] = [
        Candidate::new(RAFT, "raft", &["reads=ongaro-lease"]),
        Candidate::new(CROSSWORD, "crossword", &["crossword.shards=4KiB:2,8KiB:1"]),
        Candidate::new(FORCED, "crossword", &["crossword.shards=1"]),
    ];
    bench.rows(&FIG16, &SYSTEMS.each_ref(), |&system| {
        let mut picked = Vec::new();
        let pick = Box::new(|_: usize, random: &mut Random, _| {
            let mut at = random.range(0..100);
            let kind = TRANSACTIONS.iter().position(|(share, _)| {
                at < *share || {
                    at -= share;
                    false
                }
            });
            picked.push(kind);
            kind.map(|kind| world::around(TRANSACTIONS[kind].1, random))
        });
        let closed = Closed { clients: 400, ..Closed::new(pick, length(bench)) };
        let seen = closed.run(&Cluster::regional(system, 5))?;
        let of = |kind| {
            // Behind those that open sessions.
            let all = seen.measured.operations[seen.nodes..].iter().zip(&picked);
            let mine = all.filter(|(op, picked)| **picked == Some(kind) && seen.counts(op));
            let millis = mine.filter_map(|(op, _)| Some(op.latency()? as f64 / MS as f64));
            mean(&millis.collect::<Vec<_>>())
        };
        let numbers = [Some(seen.rate(seen.counted)), of(0), of(1), of(2), seen.mean(Some(false), MS).ok()];
        Ok(Row::of(&[&system.name], numbers))
    })
}

/// Whether the chooser picks what is best: it, and each fixed number of shards, for sizes × rates × delays.
pub fn chooser(bench: &Bench) -> Result<Vec<Rows>> {
    let sizes = [8, KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB];
    let points = pairs(&sizes, &pairs(&[100, 1000], &[4, 30]));
    bench.rows(&CHOOSER, &points, |&(size, (mbit, round_trip))| {
        let of = |candidate| {
            let link = world::link(f64::from(round_trip), Rate::mbit(mbit));
            let cluster = Cluster::regional(candidate, 5).with(links(5, |_, _| link));
            Closed::new(mix(1.0, &[size]), length(bench) / 3).run(&cluster)
        };
        let put = |one| of(one)?.mean(None, MS);
        let fixed = FIXED.iter().map(put).collect::<Result<Vec<_>>>()?;
        let auto = of(known(CROSSWORD))?;
        let shards = world::shards(&auto, auto.counted);
        let count = |width: usize| shards.iter().filter(|shards| **shards == width as f64).count();
        let most = (1..=3).max_by_key(|width| count(*width)).expect("there are three");
        let best = fixed.iter().copied().fold(f64::MAX, f64::min);
        let numbers = [fixed[0], fixed[1], fixed[2], most as f64, fixed[most - 1] / best];
        Ok(Row::of(&[&size, &mbit, &round_trip], numbers))
    })
}

/// One client that writes 8 B, with and without a follower that is ten times as far away.
pub fn straggler(bench: &Bench) -> Result<Vec<Rows>> {
    let candidates: Vec<_> = FIVE.iter().chain([&CHAINED]).collect();
    bench.rows(&STRAGGLER, &pairs(&candidates, &[false, true]), |&(candidate, slow)| {
        let link = |from: usize, to: usize| match from.max(to) == 5 && slow {
            true => world::link(40.0, Rate::mbit(100)),
            false => world::regional(),
        };
        let cluster = Cluster::regional(candidate, 5).with(links(5, link));
        let closed = Closed { clients: 1, ..Closed::new(mix(1.0, &[8]), length(bench)) };
        let slow_nodes = if slow { "one" } else { "none" };
        Ok(Row::of(&[&candidate.name, &slow_nodes], [closed.run(&cluster)?.mean(None, MS)?]))
    })
}
