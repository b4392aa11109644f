//! The clusters of the figures on almost-local reads, closed loops of clients in them, and what can be said of a run.

use std::time::Duration;

use bytes::Bytes;
use quorate_bench::{Choice, Keys};
use quorate_core::{Link, Rate};
use quorate_sim::experiment::{Ask, Capacity, Clients, Delay, Load, Measured, Setup, Turns};
use quorate_store::Command;

use super::costs::Costs;
use super::{CRAQ_ALR, HERMES, HERMES_ALR, RAFT, RAFT_ALR, ZAB, ZAB_ALR};
use crate::instrument::Result;
use crate::instrument::closed_loops::{self, READY, SECOND, links};
pub use crate::instrument::closed_loops::{Candidate, MS, Seen, get};
use crate::instrument::series::quantile;

const CRAQ: &str = "CRAQ";
/// Nanoseconds in a microsecond.
const US: u64 = 1_000;
/// All keys are written by then.
pub const FILLED: u64 = READY + SECOND;
/// Clients are at work for so long before anything counts.
const WARM_UP: u64 = 5 * MS;
const KEYS: u64 = 10_000;
/// So many of them are written at once.
const BURST: u64 = 500;
/// To send a message over a network that bypasses the kernel.
const MESSAGE: u64 = 300;
const PATIENCE: u64 = 10 * SECOND;

/// Raft, and with almost-local reads.
pub static OF_RAFT: [Candidate; 2] =
    [Candidate::new(RAFT, "raft", &["reads=ongaro-lease"]), Candidate::new(RAFT_ALR, "raft", &["reads=alr"])];
/// ZAB, and with almost-local reads.
pub static OF_ZAB: [Candidate; 2] =
    [Candidate::new(ZAB, "zab", &["reads=local"]), Candidate::new(ZAB_ALR, "zab", &["reads=alr"])];
/// CRAQ, and with almost-local reads.
pub static OF_CRAQ: [Candidate; 2] =
    [Candidate::new(CRAQ, "craq", &["reads=lease"]), Candidate::new(CRAQ_ALR, "craq", &["reads=eager-alr"])];

/// Hermes, and with almost-local reads.
pub static OF_HERMES: [Candidate; 2] = [
    Candidate::new(HERMES, "hermes", &["reads=lease"]),
    Candidate::new(HERMES_ALR, "hermes", &["reads=eager-alr"]),
];

/// What a node takes in a turn: all messages that have come, and then requests, as many as the paper's own nodes take
/// at once. Odyssey, which has its Raft and ZAB, goes once over the sessions of a thread, 40; its Hermes has 250
/// places.
pub fn turns(of: &[Candidate; 2]) -> Turns {
    Turns::MessagesFirst(if of[0].name == HERMES { 250 } else { 40 })
}

/// What is written, and where.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Bytes of a value, a multiple of 8.
    pub value: usize,
    pub keys: Choice,
}

/// The paper's, unless it says another.
pub const USUAL: Pattern = Pattern { value: 32, keys: Choice::Uniform };

impl Pattern {
    /// A write of a key; each number is another value.
    fn put(&self, key: u64, number: u64) -> Command {
        closed_loops::put(key, Bytes::from(number.to_be_bytes().repeat(self.value / 8)))
    }
}

/// A write of a value of the usual length.
pub fn put(key: u64, number: u64) -> Command {
    USUAL.put(key, number)
}

/// Nodes of a protocol at rest, every key written.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    pub candidate: &'static Candidate,
    pub nodes: usize,
    /// What its processors take.
    pub costs: Costs,
    pub turns: Turns,
}

impl Cluster {
    fn setup(&self, end: u64) -> Setup {
        let micros = |count| Duration::from_nanos(count * US / 2);
        let link = Link { delay: micros(9), jitter: micros(2), rate: Some(Rate::mbit(56_000)) };
        let capacity = Capacity {
            turns: self.turns,
            per_input: self.costs.read as u64,
            per_message: MESSAGE,
            encoding: Some(Rate::mbit((8_000.0 / self.costs.byte) as u64)),
            ..Capacity::UNLIMITED
        };
        let (links, to_clients) = (links(self.nodes, |_, _| link), Delay::Fixed(US));
        let idle = closed_loops::setup(self.nodes, self.candidate.settings());
        Setup { links, to_clients, capacity, end, ..idle }
    }

    /// With a load that begins when all keys are written; those writes are the first operations.
    pub fn run(&self, end: u64, asks: Vec<Ask>, clients: Option<Clients<'_>>) -> Result<Measured> {
        let filled = |key: u64| READY + SECOND / 2 * (key / BURST) / (KEYS / BURST);
        let fill = (0..KEYS).map(|key| self.ask(filled(key), key as usize, put(key, key)));
        let load = Load { asks: fill.chain(asks).collect(), clients, acts: Vec::new() };
        let measured = self.candidate.measure(&self.setup(end), load)?;
        if measured.operations[..KEYS as usize].iter().any(|write| !write.succeeded) {
            return Err(format!("{}: a key could not be written: no leader?", self.candidate.name));
        }
        // Local reads of ZAB may be old.
        if self.candidate.name != ZAB {
            self.candidate.check(&measured)?;
        }
        Ok(measured)
    }

    /// The lowest node that does not lead when the keys are written: in a chain, the one behind the head. Counted
    /// from 0.
    pub fn follower(&self) -> Result<usize> {
        let leader = closed_loops::leader(&self.run(FILLED, Vec::new(), None)?, FILLED);
        let leader = leader.ok_or_else(|| format!("{}: nobody leads", self.candidate.name))?;
        Ok(usize::from(usize::from(leader.get()) == 1))
    }

    /// What a client of one of the nodes asks, at an instant.
    pub fn ask(&self, at: u64, client: usize, command: Command) -> Ask {
        Ask { at, proxy: client % self.nodes, command, patience: PATIENCE }
    }

    /// Closed loops of so many clients at each node, of which so many percent of the operations write.
    pub fn loaded(
        &self,
        (clients, writes_percent): (usize, u64),
        pattern: Pattern,
        length: u64,
    ) -> Result<Seen> {
        let (from, until) = (FILLED + WARM_UP, FILLED + WARM_UP + length);
        let (mut number, keys) = (KEYS, Keys::new(pattern.keys, KEYS));
        let clients =
            closed_loops::clients(clients * self.nodes, (FILLED, until), PATIENCE, |client, random, _| {
                let key = keys.draw(random);
                let command = match random.range(0..100) < writes_percent {
                    true => {
                        number += 1;
                        pattern.put(key, number)
                    }
                    false => get(key),
                };
                (client % self.nodes, command)
            });
        let measured = self.run(until + MS, Vec::new(), Some(clients))?;
        Ok(Seen { measured, counted: (from, until), nodes: self.nodes })
    }
}

/// Operations a second; mean and 99th percentile of their latencies, in µs.
pub fn totals(seen: &Seen) -> Result<[f64; 3]> {
    Ok([seen.rate(seen.counted), seen.mean(None, US)?, quantile(seen.latencies(None, US), 0.99)])
}

/// Reads for each write.
pub fn reads_per_write(seen: &Seen) -> f64 {
    let [reads, writes] = [false, true].map(|writes| seen.ended(seen.counted, Some(writes)).count() as f64);
    reads / writes
}
