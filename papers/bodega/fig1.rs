//! Figure 1: who is on the critical path of a read.

use quorate_core::Random;
use quorate_sim::experiment::{Ask, Capacity, Load, Measured};

use super::candidates;
use super::world::{self, MS, NEAR, READY, WAN};
use super::{BODEGA, FIG1, LEADER_LEASES, MULTIPAXOS, QUORUM_LEASES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// Where the client of Figure 1 is: the paper's S4.
const SITE: &str = "APT";
/// Writes per hundred operations.
const WRITES: [u64; 3] = [1, 5, 10];
/// One client, one operation each so often.
const EVERY: u64 = 10 * MS;
const OPERATIONS: u64 = 4_000;

/// Shares of the client's reads.
struct Shares {
    /// Those that another node is asked.
    asked: f64,
    /// Those that take longer than c and half a millisecond.
    slow: f64,
    /// Votes of other nodes for each read, on average: those of reads that are commands.
    votes: f64,
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let names = [MULTIPAXOS, LEADER_LEASES, QUORUM_LEASES, BODEGA];
    let points: Vec<_> = names.into_iter().flat_map(|name| WRITES.map(|writes| (name, writes))).collect();
    let rows = bench.each(&points, |(name, writes)| {
        let Shares { asked, slow, votes } = shares(name, *writes)?;
        Ok(Row::of(&[name, &writes], [asked, slow, votes]))
    })?;
    Ok(vec![Rows(&FIG1, rows)])
}

fn shares(name: &str, writes: u64) -> Result<Shares> {
    let candidate = candidates::known(name);
    let (site, leader, patience) = (WAN.site(SITE), WAN.leader(), 5_000 * MS);
    // The first write opens the session; reads begin when everybody knows the leader.
    let mut asks = vec![Ask { at: READY, proxy: leader, command: world::put("first", 0, 8), patience }];
    let warm = Ask { at: READY + 500 * MS, proxy: site, command: world::get("first"), patience };
    asks.push(warm);
    let from = READY + 1_000 * MS;
    let mut random = Random::new(1);
    for index in 0..OPERATIONS {
        let at = from + index * EVERY;
        asks.push(match random.chance(writes as f64 / 100.0) {
            true => Ask { at, proxy: leader, command: world::put("k", index, 8), patience },
            false => Ask { at, proxy: site, command: world::get("k"), patience },
        });
    }
    let setup = WAN.setup(
        candidate,
        &WAN.responders(),
        (Capacity::default(), NEAR),
        from + OPERATIONS * EVERY + patience,
    )?;
    let run = |asks: Vec<Ask>| world::run(candidate, &setup, Load { asks, clients: None, acts: Vec::new() });
    // What goes on without the reads does not count.
    let is_read = |ask: &Ask| ask.proxy == site && ask.at >= from;
    let without = run(asks.iter().filter(|ask| !is_read(ask)).cloned().collect())?;
    let measured = run(asks)?;
    world::check(candidate, &measured)?;
    let reads: Vec<_> =
        measured.operations.iter().filter(|op| op.proxy == site && op.asked >= from).collect();
    let slow =
        reads.iter().filter(|op| op.latency().is_none_or(|it| it as f64 > (NEAR + 0.5) * MS as f64)).count();
    let more = |kind: &str| {
        let of = |measured: &Measured| measured.sent.get(kind).copied().unwrap_or(0) as f64;
        (of(&measured) - of(&without)).max(0.0) / reads.len() as f64
    };
    Ok(Shares { asked: more("Ask"), slow: slow as f64 / reads.len() as f64, votes: more("AcceptReply") })
}
