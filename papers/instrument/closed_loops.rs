//! Simulated clusters under closed loops of clients: which protocol, what clients ask for, and what counts of a run.

use bytes::Bytes;
use quorate_check::linearizability;
use quorate_core::{Fact, NodeId, Random};
use quorate_protocols::registry;
use quorate_sim::experiment::{self, Clients, Load, Measured, Operation, Setup};
use quorate_store::{Command, Condition, Expiry};

use super::Result;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

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
    /// Runs a cluster of it under a load.
    pub fn measure(&self, setup: &Setup, load: Load<'_>) -> Result<Measured> {
        let measured = experiment::measure(registry::named(self.protocol), setup, load);
        measured.map_err(|error| format!("{}: {error}", self.name))
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

/// Operations that succeeded and ended in a stretch of time.
pub fn ended(measured: &Measured, (from, until): (u64, u64)) -> impl Iterator<Item = &Operation> {
    let ended = move |op: &&Operation| op.succeeded && op.ended.is_some_and(|at| (from..until).contains(&at));
    measured.operations.iter().filter(ended)
}

/// Who led at an instant.
pub fn leader(measured: &Measured, at: u64) -> Option<NodeId> {
    let before = measured.facts.iter().rev().filter(|(when, _, _)| *when <= at);
    { before }.find(|(_, _, fact)| matches!(fact, Fact::Leads { .. })).map(|(_, leader, _)| *leader)
}
