//! The clusters of the figures on almost-local reads, closed loops of clients in them, and what can be said of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Link, Rate};
use quorate_sim::experiment::{Ask, Capacity, Clients, Delay, Load, Measured, Operation, Setup};
use quorate_store::Command;

use super::costs::Costs;
use super::{CRAQ_ALR, RAFT, RAFT_ALR, ZAB, ZAB_ALR};
use crate::instrument::Result;
use crate::instrument::closed_loops::{self, SECOND, ended, node};
pub use crate::instrument::closed_loops::{Candidate, MS, get};
use crate::instrument::series::quantile;

const CRAQ: &str = "CRAQ";
/// Nanoseconds in a microsecond.
const US: u64 = 1_000;
/// There is a leader by then.
pub const READY: u64 = 5 * SECOND;
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

const fn candidate(
    name: &'static str,
    protocol: &'static str,
    settings: &'static [&'static str],
) -> Candidate {
    Candidate { name, protocol, settings }
}

/// Raft, and with almost-local reads.
pub static OF_RAFT: [Candidate; 2] =
    [candidate(RAFT, "raft", &["reads=ongaro-lease"]), candidate(RAFT_ALR, "raft", &["reads=alr"])];
/// ZAB, and with almost-local reads.
pub static OF_ZAB: [Candidate; 2] =
    [candidate(ZAB, "zab", &["reads=local"]), candidate(ZAB_ALR, "zab", &["reads=alr"])];
/// CRAQ, and with almost-local reads.
pub static OF_CRAQ: [Candidate; 2] =
    [candidate(CRAQ, "craq", &["reads=lease"]), candidate(CRAQ_ALR, "craq", &["reads=eager-alr"])];

/// A write of a key; each number is another value.
pub fn put(key: u64, number: u64) -> Command {
    closed_loops::put(key, Bytes::from([number.to_be_bytes(); 4].concat()))
}

/// Nodes of a protocol at rest, every key written.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    pub candidate: &'static Candidate,
    pub nodes: usize,
    /// What its processors take.
    pub costs: Costs,
}

impl Cluster {
    fn setup(&self, end: u64) -> Setup {
        let nodes = 1..=self.nodes;
        let pairs = nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to)));
        let micros = |count| Duration::from_nanos(count * US / 2);
        let rate = Some(Rate::mbit(56_000));
        let link = Link { delay: micros(9), jitter: micros(2), rate };
        let links: BTreeMap<_, _> =
            pairs.filter(|(from, to)| from != to).map(|(from, to)| ((node(from), node(to)), link)).collect();
        Setup {
            nodes: self.nodes,
            groups: 1,
            machines: Vec::new(),
            proxies: 0,
            settings: self.candidate.settings.iter().map(ToString::to_string).collect(),
            between_nodes: Delay::Fixed(0),
            topology: None,
            links,
            to_clients: Delay::Fixed(US),
            sync: 0,
            capacity: Capacity {
                per_input: self.costs.read as u64,
                per_message: MESSAGE,
                bytes: Some(Rate::mbit((8_000.0 / self.costs.byte) as u64)),
                ..Capacity::UNLIMITED
            },
            clock_error: Some(50 * US),
            end,
            seed: 1,
        }
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
    pub fn loaded(&self, clients: usize, writes_percent: u64, length: u64) -> Result<Seen> {
        let (from, until) = (FILLED + WARM_UP, FILLED + WARM_UP + length);
        let mut number = KEYS;
        let clients =
            closed_loops::clients(clients * self.nodes, (FILLED, until), PATIENCE, |client, random, _| {
                let key = random.range(0..KEYS);
                let command = match random.range(0..100) < writes_percent {
                    true => {
                        number += 1;
                        put(key, number)
                    }
                    false => get(key),
                };
                (client % self.nodes, command)
            });
        let measured = self.run(until + MS, Vec::new(), Some(clients))?;
        let counted: Vec<_> = ended(&measured, (from, until)).collect();
        let micros = |op: &&Operation| Some(op.latency()? as f64 / US as f64);
        Ok(Seen {
            rate: counted.len() as f64 * SECOND as f64 / length as f64,
            writes: counted.iter().filter(|op| op.writes).count() as f64 / counted.len() as f64,
            latencies: counted.iter().filter_map(micros).collect(),
        })
    }
}

/// What clients in closed loops saw.
pub struct Seen {
    /// Operations that ended, a second of virtual time.
    pub rate: f64,
    /// The share of writes among them.
    pub writes: f64,
    /// Of each operation that counts, in µs.
    latencies: Vec<f64>,
}

impl Seen {
    /// Operations a second; mean and 99th percentile of their latencies, in µs.
    pub fn totals(&self) -> [f64; 3] {
        let mean = self.latencies.iter().sum::<f64>() / self.latencies.len() as f64;
        [self.rate, mean, quantile(self.latencies.iter().copied(), 0.99)]
    }
}
