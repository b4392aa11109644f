//! The acceptor's side (EPaxos*, Figures 3 and 4), and the learner's: what a replica says to proposals, and when it
//! takes note of a decision.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::mutation;

use super::Message;
use super::message::Value;
use super::replica::{Attempt, Cx, Replica, proposer};
use crate::epaxos::graph::{LARGE_BATCH, Phase, State};

impl Replica {
    /// The owner proposes its batch; `init` is what it knows to interfere. Only ballot zero is the owner's.
    pub(super) fn on_pre_accept(
        &mut self,
        instance: Instance,
        value: Bytes,
        init: Frontier,
        cx: &mut Cx<'_>,
    ) {
        if init.contains(instance) || value.is_empty() || !self.learner.admits(instance) {
            return;
        }
        let owner = instance.owner();
        let held = self.learner.entry(instance);
        match (held.state.phase, held.state.ballot == Ballot::ZERO) {
            (Phase::Committed, _) => return self.learner.tell(owner, instance, cx),
            (Phase::PreAccepted, true) => {}
            (Phase::Initial, true) => {
                held.learn(&value);
                self.learner.on_batch(value.len(), cx.now());
                self.watch.on_batch(instance, value.len(), cx.now());
                let mut deps = init.union(&self.learner.interfering(instance));
                // Its owner's later ones know of it.
                deps.set(owner, deps.of(owner).min(instance.index() - 1));
                self.learner.entry(instance).state.pre_accept(init, deps);
                self.learner.record(instance, cx);
            }
            (Phase::Initial | Phase::PreAccepted, false) | (Phase::Accepted, _) => return,
        }
        let deps = self.learner.entry(instance).state.deps;
        cx.send(owner, Message::PreAcceptReply { instance, deps });
    }

    /// A vote in a ballot that is not below the one that was joined.
    pub(super) fn on_accept(&mut self, at: Attempt, value: Value, deps: Frontier, cx: &mut Cx<'_>) {
        let (instance, ballot) = at;
        if deps.contains(instance) || !self.learner.admits(instance) {
            return;
        }
        let held = self.learner.entry(instance);
        if held.is_committed() {
            return self.learner.tell(proposer(at), instance, cx);
        }
        if ballot < held.state.ballot {
            let ballot = held.state.ballot;
            return cx.send(proposer(at), Message::Reject { instance, ballot });
        }
        if held.take(&value) {
            held.state.accept(ballot, deps);
            self.learner.record(instance, cx);
            self.pending.give_up(instance, ballot);
            cx.send(proposer(at), Message::AcceptReply { instance, ballot });
        }
    }

    /// The decision, durable where it was made.
    pub(super) fn on_commit(&mut self, instance: Instance, value: Value, deps: Frontier, cx: &mut Cx<'_>) {
        let noop = value.as_ref().is_some_and(|value| value.is_empty());
        if self.learner.commit(instance, value, deps, cx) {
            self.note_pace(instance, noop, cx.now());
            self.pending.end(instance);
            self.waits.remove(&instance);
            self.review_waiting(cx);
        }
    }

    /// Joins a ballot: takes part in no lower one.
    pub(super) fn join(&mut self, (instance, ballot): Attempt, cx: &mut Cx<'_>) {
        let state = &mut self.learner.entry(instance).state;
        state.ballot = ballot;
        if mutation::active("epaxos/one-ballot") {
            state.voted = ballot;
        }
        self.learner.record(instance, cx);
        self.pending.give_up(instance, ballot);
        // Whoever has begun is given time.
        self.watch.rest(instance);
    }

    pub(super) fn on_recover(&mut self, at: Attempt, cx: &mut Cx<'_>) {
        let (instance, ballot) = at;
        if self.learner.is_executed(instance) {
            return self.learner.tell(proposer(at), instance, cx);
        }
        if !self.learner.admits(instance) {
            return;
        }
        let joined = self.learner.entry(instance).state.ballot;
        if ballot < joined {
            return cx.send(proposer(at), Message::Reject { instance, ballot: joined });
        }
        if ballot > joined {
            self.join(at, cx);
        }
        let (to, owner, mut vote) = (proposer(at), instance.owner(), self.learner.entry(instance).vote());
        let takes_part = owner == to || owner == self.learner.me();
        if takes_part && vote.phase == Phase::PreAccepted && !mutation::active("epaxos/owners-tell-batches") {
            // It becomes a no-op, unless others have voted for the batch: they tell it.
            vote.value.take_if(|batch| batch.len() >= LARGE_BATCH);
        }
        if self.learner.should_send(to, at, vote.value.as_ref().map_or(0, Bytes::len), cx.now()) {
            cx.send(to, Message::RecoverReply { instance, ballot, vote });
        }
    }

    /// Who interferes with this batch, is not in its dependencies, and does not know of it?
    pub(super) fn on_validate(&mut self, at: Attempt, value: Bytes, deps: Frontier, cx: &mut Cx<'_>) {
        let (instance, ballot) = at;
        let state = self.learner.get(instance).map(|held| held.state);
        let joined = state.is_some_and(|state| state.ballot == ballot && !state.is_committed());
        // An owner proposes once.
        let same = state.is_some_and(|state| state.init.is_none_or(|init| init == deps));
        if !joined || !same || deps.contains(instance) || value.is_empty() {
            return;
        }
        let held = self.learner.entry(instance);
        held.learn(&value);
        held.state.init = Some(deps);
        self.learner.record(instance, cx);
        let knows = |state: &State| match state.phase {
            Phase::Committed => state.noop || state.deps.contains(instance),
            Phase::Initial | Phase::PreAccepted | Phase::Accepted => {
                state.init.is_none_or(|init| init.contains(instance))
            }
        };
        // What was executed before this one is even committed does not depend on it.
        let against = self.learner.beyond(instance, deps).filter(|(_, state)| !state.is_some_and(knows));
        let committed = |state: Option<&State>| state.is_none_or(State::is_committed);
        let against = against.map(|(other, state)| (other, committed(state))).collect();
        let forgotten = self.learner.forgotten();
        cx.send(proposer(at), Message::ValidateReply { instance, ballot, against, forgotten });
    }
}
