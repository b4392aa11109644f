//! Simulated clusters under loops of clients: which protocol, what clients ask for, and what counts of a run.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use quorate_check::linearizability;
use quorate_core::{Fact, Link, NodeId, Random};
use quorate_protocols::registry;
use quorate_sim::experiment::{self, Ask, Clients, Load, Measured, Operation, Setup};
use quorate_store::{Command, Condition, Expiry};

use super::Result;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
/// There is a leader by then, and it has its leases.
pub const READY: u64 = 5 * SECOND;

/// A protocol with its settings.
#[derive(Debug)]
pub struct Candidate {
    /// As the paper calls it.
    pub name: &'static str,
    /// As the registry calls it.
    pub protocol: &'static str,
    /// Settings besides those that all candidates of a figure share.
    pub settings: &'static [&'static str],
}

impl Candidate {
    pub const fn new(
        name: &'static str,
        protocol: &'static str,
        settings: &'static [&'static str],
    ) -> Candidate {
        Candidate { name, protocol, settings }
    }

    /// The settings of a setup.
    pub fn settings(&self) -> Vec<String> {
        self.settings.iter().map(ToString::to_string).collect()
    }

    /// Runs a cluster of it under a load.
    pub fn measure(&self, setup: &Setup, load: Load<'_>) -> Result<Measured> {
        let measured = experiment::measure(registry::named(self.protocol), setup, load);
        measured.map_err(|error| format!("{}: {error}", self.name))
    }

    /// What clients see between two instants, which must be linearizable.
    pub fn seen(&self, setup: &Setup, load: Load<'_>, counted: (u64, u64)) -> Result<Seen> {
        let measured = self.measure(setup, load)?;
        self.check(&measured)?;
        Ok(Seen { measured, counted, nodes: setup.nodes })
    }

    /// An error unless what clients saw is linearizable.
    pub fn check(&self, measured: &Measured) -> Result<()> {
        let checked = linearizability::check(&measured.history);
        checked.map_err(|error| format!("{}: not linearizable: {error:?}", self.name))
    }
}

/// A node by its number, from 1.
pub fn node(number: usize) -> NodeId {
    NodeId::new(number as u64).expect("numbers begin at 1")
}

/// Nodes until they are ready, whose links, disks and processors take no time.
pub fn setup(nodes: usize, settings: Vec<String>) -> Setup {
    Setup { clock_error: Some(50_000), ..Setup::instant(nodes, &settings, READY) }
}

/// A setup with the first of these seeds with which it is as it should be, where it ends at rest.
pub fn seeded(
    mut setup: Setup,
    seeds: Range<u64>,
    mut is_right: impl FnMut(&Setup) -> Result<bool>,
) -> Result<Setup> {
    for seed in seeds.clone() {
        setup.seed = seed;
        if is_right(&setup)? {
            return Ok(setup);
        }
    }
    Err(format!("{:?} leads where it should with no seed of {seeds:?}", setup.settings))
}

/// From each of so many nodes to each other one.
pub fn links(nodes: usize, link: impl Fn(usize, usize) -> Link) -> BTreeMap<(NodeId, NodeId), Link> {
    let pairs = (1..=nodes).flat_map(|from| (1..=nodes).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).map(|(from, to)| ((node(from), node(to)), link(from, to))).collect()
}

/// A read of a key.
pub fn get(key: u64) -> Command {
    Command::Get { key: key_of(key) }
}

/// A write of a key. Checkers need another value each time.
pub fn put(key: u64, value: Bytes) -> Command {
    Command::Put { key: key_of(key), value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}

fn key_of(key: u64) -> Bytes {
    Bytes::from(format!("k{key:07}"))
}

/// Closed loops of so many clients between two moments, in ns. `draw` says what a client asks for next, and of which
/// proxy. Each client's requests are the same, whatever the protocol: only how far it gets differs.
pub fn clients<'a>(
    count: usize,
    (from, until): (u64, u64),
    patience: u64,
    mut draw: impl FnMut(usize, &mut Random, u64) -> (usize, Command) + 'a,
) -> Clients<'a> {
    let mut randoms: Vec<_> = (0..count).map(|client| Random::new(8 + client as u64)).collect();
    let draw = move |client: usize, now| draw(client, &mut randoms[client], now);
    Clients { count, from, until, think: 0, patience, draw: Box::new(draw) }
}

/// A write of each proxy, at an instant: its first one opens its session, which takes as long again.
pub fn openings(proxies: usize, at: u64, patience: u64, write: impl Fn(usize) -> Command) -> Vec<Ask> {
    (0..proxies).map(|proxy| Ask { at, proxy, command: write(proxy), patience }).collect()
}

/// An open loop at the first proxy: one command each so many ns.
pub fn stream(between: Range<u64>, gap: u64, command: impl Fn(u64) -> Command) -> Vec<Ask> {
    let times = (0..).zip(between.step_by(gap as usize));
    times.map(|(number, at)| Ask { at, proxy: 0, command: command(number), patience: 30 * SECOND }).collect()
}

/// What clients saw, and what the replicas stated.
pub struct Seen {
    pub measured: Measured,
    /// Between these instants is counted, in ns.
    pub counted: (u64, u64),
    pub nodes: usize,
}

impl Seen {
    /// Operations that succeeded and ended in a stretch of time; of one kind, if one is given.
    pub fn ended(&self, between: (u64, u64), writes: Option<bool>) -> impl Iterator<Item = &Operation> {
        let mine = move |op: &&Operation| writes.is_none_or(|writes| writes == op.writes);
        self.measured.operations.iter().filter(move |op| has_ended(op, between)).filter(mine)
    }

    /// Whether an operation is counted.
    pub fn counts(&self, op: &Operation) -> bool {
        has_ended(op, self.counted)
    }

    /// Operations a second between two moments, in ns.
    pub fn rate(&self, between: (u64, u64)) -> f64 {
        self.ended(between, None).count() as f64 * SECOND as f64 / (between.1 - between.0) as f64
    }

    /// Latencies of what is counted, of one kind, if one is given; in units of so many ns.
    pub fn latencies(&self, writes: Option<bool>, unit: u64) -> Vec<f64> {
        let all = self.ended(self.counted, writes).filter_map(Operation::latency);
        all.map(|nanos| nanos as f64 / unit as f64).collect()
    }

    /// Their mean; an error if there are none.
    pub fn mean(&self, writes: Option<bool>, unit: u64) -> Result<f64> {
        mean(&self.latencies(writes, unit)).ok_or_else(|| "no operation ended".to_owned())
    }
}

fn has_ended(op: &Operation, (from, until): (u64, u64)) -> bool {
    op.succeeded && op.ended.is_some_and(|at| (from..until).contains(&at))
}

/// The arithmetic mean; `None` of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Who led at an instant.
pub fn leader(measured: &Measured, at: u64) -> Option<NodeId> {
    let before = measured.facts.iter().rev().filter(|(when, _, _)| *when <= at);
    { before }.find(|(_, _, fact)| matches!(fact, Fact::Leads { .. })).map(|(_, leader, _)| *leader)
}
