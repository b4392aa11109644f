//! What a replica knows of one instance (EPaxos*, Figure 3). There are two ballots: the one that was joined last, and
//! the one in which it voted last. With one variable for both, a replica that has merely joined a ballot would report
//! an old vote as the newest (Sutra, *On the correctness of Egalitarian Paxos*, 2020).

use bytes::Bytes;
use quorate_core::{wire_enum, wire_struct};
use quorate_parts::ballot::Ballot;
use quorate_parts::graph::{Frontier, Interference};

use super::message::Vote;

/// How far an instance is at a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was voted for.
    #[default]
    Initial,
    /// The owner's proposal, with what this replica knew to interfere.
    PreAccepted,
    /// A value, with dependencies, in a ballot.
    Accepted,
    /// Decided.
    Committed,
}
wire_enum!(Phase { 0 => Initial, 1 => PreAccepted, 2 => Accepted, 3 => Committed });

/// The protocol's variables, but for the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// *bal*: takes part in no lower one.
    pub ballot: Ballot,
    /// *abal*: that of the vote.
    pub voted: Ballot,
    /// How far it is.
    pub phase: Phase,
    /// Whether the value is a no-op instead of the batch.
    pub noop: bool,
    /// *dep*.
    pub deps: Frontier,
    /// *initDep*: what its owner knew to interfere, if the proposal was seen.
    pub init: Option<Frontier>,
}
wire_struct!(State { ballot, voted, phase, noop, deps, init });

/// An instance in a replica's table.
#[derive(Clone, Debug, Default)]
pub struct Held {
    pub state: State,
    /// *initCmd*: its owner's batch, if known.
    pub command: Option<Bytes>,
    /// What the batch touches.
    pub touched: Interference,
    /// Whether the batch is in a record.
    pub recorded: bool,
}

impl Held {
    /// Learns the batch, if it is not known.
    pub fn learn(&mut self, command: &Bytes) {
        if self.command.is_none() {
            self.touched = Interference::of(command);
            self.command = Some(command.clone());
        }
    }

    /// Takes a value as messages carry it; false if it is the batch, and that is not known.
    pub fn take(&mut self, value: &Option<Bytes>) -> bool {
        self.state.noop = value.as_ref().is_some_and(Bytes::is_empty);
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            self.learn(value);
        }
        self.state.noop || self.command.is_some()
    }

    /// The value, if known; empty for a no-op.
    pub fn value(&self) -> Option<Bytes> {
        if self.state.noop { Some(Bytes::new()) } else { self.command.clone() }
    }

    pub fn is_committed(&self) -> bool {
        self.state.phase == Phase::Committed
    }

    /// What it tells who recovers it.
    pub fn vote(&self) -> Vote {
        let State { voted, phase, deps, init, .. } = self.state;
        Vote { voted, phase, value: self.value(), deps, init }
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        self.command.as_ref().map_or(0, Bytes::len) + 256
    }
}
