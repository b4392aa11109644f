//! The owner's side (EPaxos*, Figure 3): pre-accept, accept, commit; and what has to be said again.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::{NodeId, NodeSet};
use quorate_parts::ballot::Ballot;
use quorate_parts::batch::Batch;
use quorate_parts::graph::{Duty, Frontier, Instance, Vote};

use super::Message;
use super::replica::{Cx, Replica};

/// How far a replica is with an instance, as its owner in ballot zero or to recover it in another.
#[derive(Debug)]
pub enum Step {
    /// Waits for replies to `PreAccept`. All so far had nothing to add?
    PreAccept { same: bool, union: Frontier },
    /// Waits for votes for the value (a no-op, or the batch) with these dependencies.
    Accept { noop: bool, deps: Frontier },
    /// Waits for votes of the past.
    Recover { votes: BTreeMap<NodeId, Vote> },
    /// Waits until all that have voted say what speaks against the batch with the owner's dependencies.
    Validate { candidate: Candidate, against: BTreeMap<Instance, bool> },
    /// Waits for the fate of these.
    Wait { candidate: Candidate, against: Vec<Instance> },
}

/// A batch that may have been committed on the fast path.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Who told what they know of it.
    pub(super) voters: NodeSet,
    /// How many of them had pre-accepted it as its owner proposed it (*|R|*).
    pub(super) count: usize,
    /// What its owner knew to interfere.
    pub(super) deps: Frontier,
}

impl Replica {
    /// Phase 1: proposes what has gathered.
    pub(super) fn propose(&mut self, cx: &mut Cx<'_>) {
        while let Some((instance, value, deps)) = self.learner.open(cx) {
            self.learner.entry(instance).state.pre_accept(deps, deps);
            self.learner.record(instance, cx);
            let step = Step::PreAccept { same: true, union: deps };
            let message = Message::PreAccept { instance, value, deps };
            cx.send_all(self.others(), message.clone());
            let duty = Duty::new(Ballot::ZERO, step, message, self.config.members(), cx.now());
            self.duties.begin(instance, duty);
            // Nothing leaves before the own vote is durable: it counts when the first reply to it does.
            self.on_pre_accept_reply(self.me, instance, deps, cx);
        }
    }

    pub(super) fn on_pre_accept_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        deps: Frontier,
        cx: &mut Cx<'_>,
    ) {
        let Some(duty) = self.duties.of(instance, Ballot::ZERO) else { return };
        let state = self.learner.entry(instance).state;
        let valid = state.ballot == Ballot::ZERO && !deps.contains(instance);
        let Step::PreAccept { same, union } = &mut duty.step else { return };
        if !valid || !duty.replied.insert(from) {
            return;
        }
        *same &= Some(deps) == state.init;
        *union = union.union(&deps);
        let (same, replied) = (*same, duty.replied);
        if same && replied.len() >= self.config.fast() {
            self.decide(instance, false, deps, replied, cx);
        } else if !same && replied.len() >= self.config.slow() {
            self.take_slow_path(instance, cx);
        }
    }

    fn take_slow_path(&mut self, instance: Instance, cx: &mut Cx<'_>) {
        let Some(duty) = self.duties.get(instance) else { return };
        let Step::PreAccept { union, .. } = duty.step else { return };
        self.accept((instance, Ballot::ZERO), false, union, duty.replied, cx);
    }

    /// Phase 2: asks for votes. Those in `knowing` have the batch.
    pub(super) fn accept(
        &mut self,
        (instance, ballot): (Instance, Ballot),
        noop: bool,
        deps: Frontier,
        knowing: NodeSet,
        cx: &mut Cx<'_>,
    ) {
        let message = |value| Message::Accept { instance, ballot, value, deps };
        let whole = message(Some(self.value(instance, noop)));
        let duty = Duty::new(ballot, Step::Accept { noop, deps }, whole, self.config.members(), cx.now());
        self.duties.begin(instance, duty);
        self.send_value(instance, noop, knowing, message, cx);
    }

    pub(super) fn on_accept_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        ballot: Ballot,
        cx: &mut Cx<'_>,
    ) {
        let Some(duty) = self.duties.of(instance, ballot) else { return };
        let Step::Accept { noop, deps } = duty.step else { return };
        duty.answered(from);
        if duty.replied.len() >= self.config.slow() {
            let replied = duty.replied;
            self.decide(instance, noop, deps, replied, cx);
        }
    }

    /// It is decided. All learn it, and this replica too, when it is durable here.
    pub(super) fn decide(
        &mut self,
        instance: Instance,
        noop: bool,
        deps: Frontier,
        knowing: NodeSet,
        cx: &mut Cx<'_>,
    ) {
        self.learner.entry(instance).state.commit(noop, deps);
        self.learner.record(instance, cx);
        self.duties.end(instance);
        let message = |value| Message::Commit { instance, value, deps };
        self.send_value(instance, noop, knowing, message, cx);
    }

    fn value(&self, instance: Instance, noop: bool) -> Bytes {
        let held = self.learner.get(instance).expect("a duty is in the table");
        if noop { Batch::noop() } else { held.command.clone().expect("proposed by whoever knows it") }
    }

    /// Sends the value to all members, without the batch where it is.
    fn send_value(
        &self,
        instance: Instance,
        noop: bool,
        knowing: NodeSet,
        message: impl Fn(Option<Bytes>) -> Message,
        cx: &mut Cx<'_>,
    ) {
        let (members, value) = (self.config.members(), self.value(instance, noop));
        let knowing = if noop { NodeSet::EMPTY } else { members.intersection(knowing) };
        let others = members.iter().filter(|node| !knowing.contains(*node)).collect();
        cx.send_all(knowing, message(None));
        cx.send_all(others, message(Some(value)));
    }

    /// Says again what was not answered. A fast quorum that is late is not waited for; a recovery that does not get on
    /// with those whom it asked begins again, perhaps with others.
    pub(super) fn repeat(&mut self, cx: &mut Cx<'_>) {
        let (now, slow) = (cx.now(), self.config.slow());
        let (mut late, mut stale) = (Vec::new(), Vec::new());
        for (instance, duty) in self.duties.iter_mut() {
            let age = now.since(duty.since);
            let is_old = || age >= 4 * super::recovery::patience(&self.config, &self.learner, instance);
            match duty.step {
                Step::PreAccept { .. }
                    if duty.replied.len() >= slow && age >= self.config.learner.heartbeat =>
                {
                    late.push(instance);
                }
                _ if !duty.is_due(now) => {}
                Step::Recover { .. } | Step::Validate { .. } | Step::Wait { .. } if is_old() => {
                    stale.push(instance);
                }
                _ => {
                    let (silent, message) = duty.again(now);
                    cx.send_all(silent, message);
                }
            }
        }
        late.into_iter().for_each(|instance| self.take_slow_path(instance, cx));
        stale.into_iter().for_each(|instance| self.recover_instance(instance, cx));
    }

    /// All members but this.
    pub(super) fn others(&self) -> NodeSet {
        self.config.members().without(self.me)
    }
}
