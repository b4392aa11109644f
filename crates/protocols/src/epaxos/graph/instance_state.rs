//! What a replica knows of one instance (EPaxos*, Figure 3). There are two ballots: the one that was joined last, and
//! the one in which it voted last. With one variable for both, a replica that has merely joined a ballot would report
//! an old vote as the newest (Sutra, *On the correctness of Egalitarian Paxos*, 2020).

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{wire_enum, wire_struct};

use crate::epaxos::graph::{Interference, LARGE_BATCH};

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

impl State {
    /// The owner has proposed its batch after `init`; here it depends on `deps`.
    pub fn pre_accept(&mut self, init: Frontier, deps: Frontier) {
        (self.phase, self.init, self.deps) = (Phase::PreAccepted, Some(init), deps);
    }

    /// A vote for the value, with these dependencies, in a ballot that is joined with it.
    pub fn accept(&mut self, ballot: Ballot, deps: Frontier) {
        (self.ballot, self.voted, self.phase, self.deps) = (ballot, ballot, Phase::Accepted, deps);
    }

    /// Whether it is decided.
    pub fn is_committed(&self) -> bool {
        self.phase == Phase::Committed
    }

    /// It is decided.
    pub fn commit(&mut self, noop: bool, deps: Frontier) {
        (self.phase, self.noop, self.deps) = (Phase::Committed, noop, deps);
    }
}

/// What a replica tells of an instance to who recovers it.
#[derive(Clone, Debug)]
pub struct Vote {
    /// The ballot in which it voted (*abal*).
    pub voted: Ballot,
    /// How far it got here.
    pub phase: Phase,
    /// The batch, if known; empty for a no-op.
    pub value: Option<Bytes>,
    /// *dep*.
    pub deps: Frontier,
    /// *initDep*.
    pub init: Option<Frontier>,
}
wire_struct!(Vote { voted, phase, value, deps, init });

/// An instance in a replica's table.
#[derive(Clone, Debug, Default)]
pub struct InstanceState {
    /// The variables.
    pub state: State,
    /// *initCmd*: its owner's batch, if known.
    pub command: Option<Bytes>,
    /// What the batch touches.
    pub touched: Interference,
    /// Whether the batch is in a record.
    pub(super) recorded: bool,
}

impl InstanceState {
    /// Learns the batch, if it is not known.
    pub fn learn(&mut self, command: &Bytes) {
        if self.command.is_none() {
            self.touched = Interference::of(command);
            self.command = Some(command.clone());
        }
    }

    /// Takes a value as messages carry it (`None`: the batch that is known, empty: a no-op); false if it is the batch,
    /// and that is not known: then nothing is changed.
    pub fn take(&mut self, value: &Option<Bytes>) -> bool {
        if value.is_none() && self.command.is_none() {
            return false;
        }
        self.state.noop = value.as_ref().is_some_and(Bytes::is_empty);
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            self.learn(value);
        }
        true
    }

    /// The value, if known; empty for a no-op.
    pub fn value(&self) -> Option<Bytes> {
        if self.state.noop { Some(Bytes::new()) } else { self.command.clone() }
    }

    /// Whether it is decided.
    pub fn is_committed(&self) -> bool {
        self.state.is_committed()
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

    /// Whether its batch has [`LARGE_BATCH`] bytes or more; `None`: it is not here.
    pub fn is_large(&self) -> Option<bool> {
        self.command.as_ref().map(|batch| batch.len() >= LARGE_BATCH)
    }

    /// What every instance is like at every replica, whenever it changes.
    pub fn check(&self, instance: Instance) {
        let state = &self.state;
        assert!(state.voted <= state.ballot, "{instance:?}: a vote above the ballot that was joined");
        assert!(!state.deps.contains(instance), "{instance:?} does not depend on itself");
        match state.phase {
            Phase::Initial => {}
            Phase::PreAccepted => {
                let init = state.init.expect("somebody proposed it");
                assert!(init.within(&state.deps), "{instance:?}: dependencies only grow");
            }
            Phase::Accepted | Phase::Committed => {
                assert!(self.value().is_some(), "{instance:?}: the value is known");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_blocks::batch::Batch;

    #[test]
    fn a_value_is_the_batch_that_is_known_or_comes_with_it_or_a_no_op() {
        let mut held = InstanceState::default();
        assert!(!held.take(&None), "no batch is known");
        assert_eq!(held.value(), None);
        assert!(held.take(&Some(Batch::noop())));
        assert_eq!(held.value(), Some(Bytes::new()));
        let batch = Bytes::from_static(b"batch");
        assert!(held.take(&Some(batch.clone())) && held.take(&None));
        assert_eq!(held.value(), Some(batch.clone()));
        held.learn(&Bytes::from_static(b"an owner proposes one batch"));
        assert_eq!(held.value(), Some(batch));
    }

    #[test]
    #[should_panic(expected = "dependencies only grow")]
    fn a_pre_acceptance_that_lost_a_dependency_of_its_owner_is_caught() {
        let at = |index| Instance::new(quorate_core::NodeId::new(1).expect("an id"), index);
        let mut held = InstanceState::default();
        held.state.phase = Phase::PreAccepted;
        held.state.init = Some({
            let mut init = Frontier::default();
            init.add(at(1));
            init
        });
        held.check(at(2));
    }
}
