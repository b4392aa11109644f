//! Figures 7, 8, 12 and 16, the chooser, and stragglers: closed loops of clients in clusters that do not change.

use quorate_core::{Random, Rate};

use super::world::{
    self, CHAINED, CLIENTS, Candidate, Closed, Cluster, FIVE, Op, SECOND, Seen, TABLE, known, mean, mix,
};
use super::{
    CHOOSER, CROSSWORD, FIG7, FIG8_CLUSTERS, FIG8_PUTS, FIG8_SIZES, FIG12, FIG16, FORCED, MULTIPAXOS, RAFT,
    RSPAXOS, STRAGGLER,
};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;
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

/// Every combination of two lists.
fn pairs<A: Copy, B: Copy>(of: &[A], with: &[B]) -> Vec<(A, B)> {
    of.iter().flat_map(|one| with.iter().map(move |other| (*one, *other))).collect()
}

fn average(values: &[f64]) -> Result<f64> {
    mean(values).ok_or_else(|| "no operation ended".to_owned())
}

/// Operations a second, their mean latency in ms, and the number of shards on average, where it is known.
fn totals(seen: &Seen) -> Result<[Option<f64>; 3]> {
    Ok([
        Some(seen.rate(seen.counted())),
        Some(average(&seen.latencies(None))?),
        seen.mean_shards(seen.counted()),
    ])
}

/// Figure 7: three payloads in two environments.
pub fn fig7(bench: &Bench) -> Result<Vec<Rows>> {
    let points = pairs(&FIVE.each_ref(), &pairs(&["regional", "wide-area"], &LOADS));
    let rows = bench.each(&points, |&(candidate, (environment, (load, means)))| {
        let (cluster, times) = match environment {
            "regional" => (Cluster::regional(candidate, 5), 1),
            _ => (Cluster::wide(candidate), 3),
        };
        let seen = Closed::new(mix(0.5, means), times * length(bench)).run(&cluster)?;
        let all = seen.latencies(None);
        let [rate, latency, shards] = totals(&seen)?;
        let numbers = vec![
            rate,
            latency,
            Some(quantile(all.iter().copied(), 0.95)),
            Some(average(&seen.latencies(Some(true)))?),
            Some(average(&seen.latencies(Some(false)))?),
            Some(rate.unwrap_or(0.0) * average(&all)? / 1000.0 / CLIENTS as f64),
            shards,
        ];
        Ok(Row { numbers, ..Row::of(&[&candidate.name, &environment, &load], []) })
    })?;
    Ok(vec![Rows(&FIG7, rows)])
}

/// Figure 8: the size of values, of clusters, and the share of Puts.
pub fn fig8(bench: &Bench) -> Result<Vec<Rows>> {
    let sizes = bench.each(&pairs(&FIVE.each_ref(), &SIZES), |&(candidate, size)| {
        let means = [size];
        let seen = Closed::new(mix(0.5, &means), length(bench)).run(&Cluster::regional(candidate, 5))?;
        let shards = seen.shards(seen.counted());
        let single: Vec<_> = shards.iter().map(|count| f64::from(u8::from(*count == 1.0))).collect();
        let numbers = [&totals(&seen)?[..], &[mean(&single)]].concat();
        Ok(Row { numbers, ..Row::of(&[&candidate.name, &size], []) })
    })?;
    let vary = |points: Vec<(&str, (usize, u64))>, of_nodes: bool| {
        bench.each(&points, |&(name, (nodes, percent))| {
            let cluster = Cluster::regional(known(name), nodes);
            let pick = mix(percent as f64 / 100.0, LOADS[2].1);
            let numbers = totals(&Closed::new(pick, length(bench)).run(&cluster)?)?.to_vec();
            let varied = if of_nodes { nodes as u64 } else { percent };
            Ok(Row { numbers, ..Row::of(&[&name, &varied], []) })
        })
    };
    let clusters = vary(pairs(&THREE, &[(3, 50), (5, 50), (7, 50), (9, 50)]), true)?;
    let puts = vary(pairs(&THREE, &[(5, 10), (5, 50), (5, 100)]), false)?;
    Ok(vec![Rows(&FIG8_SIZES, sizes), Rows(&FIG8_CLUSTERS, clusters), Rows(&FIG8_PUTS, puts)])
}

/// Figure 12: links from the leader, node 1, that differ.
pub fn fig12(bench: &Bench) -> Result<Vec<Rows>> {
    let candidates: Vec<_> = FIVE.iter().chain([&TABLE]).collect();
    let rows = bench.each(&candidates, |&candidate| {
        let links = [(4, 400), (5, 100)].into_iter().flat_map(|(follower, mbit)| {
            let link = world::link(4.0, Rate::mbit(mbit));
            let (leader, follower) = (world::node(1), world::node(follower));
            [((leader, follower), link), ((follower, leader), link)]
        });
        let cluster = Cluster::regional(candidate, 5).with(links);
        let seen = Closed::new(mix(1.0, &[64 * KB]), length(bench)).run(&cluster)?;
        Ok(Row { numbers: totals(&seen)?.to_vec(), ..Row::of(&[&candidate.name], []) })
    })?;
    Ok(vec![Rows(&FIG12, rows)])
}

/// TPC-C's transactions that write: their share in percent, and the mean bytes that they replicate: New-Order, Payment,
/// Delivery. The others, Order-Status and Stock-Level, read.
const TRANSACTIONS: [(u64, usize); 3] = [(45, 8 * KB), (43, 2 * KB), (4, 15 * KB)];

/// Figure 16 without a database: transactions are single operations of as many bytes.
pub fn fig16(bench: &Bench) -> Result<Vec<Rows>> {
    static SYSTEMS: [Candidate; 3] = [
        Candidate { name: RAFT, protocol: "raft", settings: &["reads=ongaro-lease"] },
        Candidate { name: CROSSWORD, protocol: "crossword", settings: &["crossword.shards=4KiB:2,8KiB:1"] },
        Candidate { name: FORCED, protocol: "crossword", settings: &["crossword.shards=1"] },
    ];
    let systems: Vec<_> = SYSTEMS.iter().collect();
    let rows = bench.each(&systems, |&system| {
        let pick = Box::new(|_: usize, random: &mut Random, _| {
            let mut at = random.range(0..100);
            for (share, bytes) in TRANSACTIONS {
                if at < share {
                    return Op::Put(world::around(bytes, random));
                }
                at -= share;
            }
            Op::Get
        });
        let closed = Closed { clients: 400, ..Closed::new(pick, length(bench)) };
        let seen = closed.run(&Cluster::regional(system, 5))?;
        // Sizes of different transactions do not overlap.
        let of = |(_, mean): (u64, usize)| {
            let near = |op| matches!(op, Op::Put(size) if size.abs_diff(mean) < mean / 2);
            average(&seen.latencies_of(near))
        };
        let [new_order, payment, delivery] = TRANSACTIONS.map(of);
        let reads = average(&seen.latencies(Some(false)))?;
        let rate = seen.rate(seen.counted());
        Ok(Row::of(&[&system.name], [rate, new_order?, payment?, delivery?, reads]))
    })?;
    Ok(vec![Rows(&FIG16, rows)])
}

/// Whether the chooser picks what is best: it, and each fixed number of shards, for sizes × rates × delays.
pub fn chooser(bench: &Bench) -> Result<Vec<Rows>> {
    static FIXED: [Candidate; 4] = [
        Candidate { name: "1", protocol: "crossword", settings: &["crossword.shards=1"] },
        Candidate { name: "2", protocol: "crossword", settings: &["crossword.shards=2"] },
        Candidate { name: "3", protocol: "crossword", settings: &["crossword.shards=3"] },
        Candidate { name: "auto", protocol: "crossword", settings: &[] },
    ];
    let sizes = [8, KB, 4 * KB, 16 * KB, 64 * KB, 256 * KB];
    let points = pairs(&sizes, &pairs(&[100, 1000], &[4, 30]));
    let rows = bench.each(&points, |&(size, (mbit, round_trip))| {
        let of = |candidate| {
            let link = world::link(f64::from(round_trip), Rate::mbit(mbit));
            let cluster = Cluster::regional(candidate, 5).with(world::all_pairs(5, |_, _| link));
            Closed::new(mix(1.0, &[size]), length(bench) / 3).run(&cluster)
        };
        let put = |one| average(&of(one)?.latencies(None));
        let fixed = FIXED[..3].iter().map(put).collect::<Result<Vec<_>>>()?;
        let auto = of(&FIXED[3])?;
        let shards = auto.shards(auto.counted());
        let count = |width: usize| shards.iter().filter(|shards| **shards == width as f64).count();
        let most = (1..=3).max_by_key(|width| count(*width)).expect("there are three");
        let best = fixed.iter().copied().fold(f64::MAX, f64::min);
        let numbers = [fixed[0], fixed[1], fixed[2], most as f64, fixed[most - 1] / best];
        Ok(Row::of(&[&size, &mbit, &round_trip], numbers))
    })?;
    Ok(vec![Rows(&CHOOSER, rows)])
}

/// One client that writes 8 B, with and without a follower that is ten times as far away.
pub fn straggler(bench: &Bench) -> Result<Vec<Rows>> {
    let candidates: Vec<_> = FIVE.iter().chain([&CHAINED]).collect();
    let rows = bench.each(&pairs(&candidates, &[false, true]), |&(candidate, slow)| {
        let far = move |from: usize, to: usize| from.max(to) == 5 && slow;
        let link = |from, to| match far(from, to) {
            true => world::link(40.0, Rate::mbit(100)),
            false => world::regional(),
        };
        let cluster = Cluster::regional(candidate, 5).with(world::all_pairs(5, link));
        let closed = Closed { clients: 1, ..Closed::new(mix(1.0, &[8]), length(bench)) };
        let mean = average(&closed.run(&cluster)?.latencies(None))?;
        Ok(Row::of(&[&candidate.name, if slow { &"one" } else { &"none" }], [mean]))
    })?;
    Ok(vec![Rows(&STRAGGLER, rows)])
}
