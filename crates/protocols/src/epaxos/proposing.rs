//! The owner's side (EPaxos*, Figure 3): pre-accept, accept, commit; and what has to be said again.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{NodeId, NodeSet, Time, mutation};

use super::Message;
use super::replica::{Attempt, Cx, Replica};
use crate::epaxos::graph::{FULL_LINK, InstanceState, PendingQuorum, Vote};

/// How far a replica is with an instance, as its owner in ballot zero or to recover it in another.
#[derive(Debug)]
pub enum Step {
    /// Waits for replies to `PreAccept`. All so far had nothing to add?
    PreAccept { same: bool, union: Frontier },
    /// Waits for votes.
    Accept(Proposal),
    /// Waits for votes of the past.
    Recover { votes: BTreeMap<NodeId, Vote> },
    /// Waits until all that have voted say what speaks against the batch with the owner's dependencies, and what they
    /// have forgotten.
    Validate { candidate: Candidate, against: BTreeMap<Instance, bool>, forgotten: Frontier },
    /// Waits for the fate of these.
    Wait { candidate: Candidate, against: Vec<Instance> },
}

/// What an instance may become: its owner's batch with these dependencies, or a no-op.
#[derive(Clone, Copy, Debug)]
pub struct Proposal {
    pub(super) noop: bool,
    pub(super) deps: Frontier,
}

/// A batch that may have been committed on the fast path.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Who told what they know of it.
    pub(super) voters: NodeSet,
    /// How many of them had pre-accepted it as its owner proposed it (*|R|*).
    pub(super) count: usize,
    /// Others who told later that they had not.
    pub(super) declined: NodeSet,
    /// What its owner knew to interfere.
    pub(super) deps: Frontier,
}

impl Step {
    /// Whether what is asked, or the answers, bring the batch of a recovery.
    pub(super) fn brings_the_batch(&self) -> bool {
        !matches!(self, Step::Wait { .. } | Step::Accept(Proposal { noop: true, .. }))
    }
}

impl Replica {
    /// Phase 1: proposes what has gathered.
    pub(super) fn propose(&mut self, cx: &mut Cx<'_>) {
        while let Some((instance, value, deps)) = self.learner.open(cx) {
            self.learner.entry(instance).state.pre_accept(deps, deps);
            self.learner.record(instance, cx);
            let step = Step::PreAccept { same: true, union: deps };
            let voters = self.others().difference(self.ignoring(instance, cx.now()));
            self.in_flight.on_sent(voters, instance, value.len(), cx.now());
            let message = Message::PreAccept { instance, value, deps };
            cx.send_all(voters, message.clone());
            let quorum = PendingQuorum::new(Ballot::ZERO, step, message, self.config.members(), cx.now());
            self.pending.begin(instance, quorum);
            // Nothing leaves before the own vote is durable: it counts when the first reply to it does.
            self.on_pre_accepted(instance.owner(), instance, deps, cx);
        }
    }

    pub(super) fn on_pre_accepted(&mut self, from: NodeId, id: Instance, deps: Frontier, cx: &mut Cx<'_>) {
        let state = self.learner.get(id).map(|held| held.state).unwrap_or_default();
        let Some(quorum) = self.pending.of(id, Ballot::ZERO) else { return };
        let Step::PreAccept { same, union } = &mut quorum.step else { return };
        if state.ballot != Ballot::ZERO || deps.contains(id) || !quorum.replied.insert(from) {
            return;
        }
        *same &= Some(deps) == state.init;
        *union = union.union(&deps);
        let (same, replied) = (*same, quorum.replied);
        // Nobody waits for a fast quorum that those who are there cannot be.
        if same && replied.len() >= self.config.fast() {
            self.decide(id, Proposal { noop: false, deps }, replied, cx);
        } else if replied.len() >= self.config.slow() {
            let hope = replied.union(self.learner.present(cx.now())).len() >= self.config.fast();
            if !same || !hope {
                self.take_slow_path(id, cx);
            }
        }
    }

    fn take_slow_path(&mut self, instance: Instance, cx: &mut Cx<'_>) {
        let Some(quorum) = self.pending.get(instance) else { return };
        let Step::PreAccept { union: deps, .. } = quorum.step else { return };
        self.accept((instance, Ballot::ZERO), Proposal { noop: false, deps }, quorum.replied, cx);
    }

    /// Phase 2: asks for votes. Those in `knowing` have the batch.
    pub(super) fn accept(&mut self, at: Attempt, proposal: Proposal, knowing: NodeSet, cx: &mut Cx<'_>) {
        let (instance, ballot) = at;
        let message = |value| Message::Accept { instance, ballot, value, deps: proposal.deps };
        let have_it = self.have_a_large_batch(instance, knowing);
        let knowing = self.have_or_get_the_batch(instance, knowing, cx.now());
        let voters = self.config.members().difference(self.ignoring(instance, cx.now()));
        let whole = self.learner.spread((instance, proposal.noop), (voters, knowing), message, cx);
        let mut quorum =
            PendingQuorum::new(ballot, Step::Accept(proposal), whole, self.config.members(), cx.now());
        if !proposal.noop && !have_it.is_empty() && !mutation::active("epaxos/repeats-batches") {
            quorum = quorum.without_batch_for(have_it, message(None));
        }
        self.pending.begin(instance, quorum);
    }

    pub(super) fn on_accepted(&mut self, from: NodeId, (id, ballot): Attempt, cx: &mut Cx<'_>) {
        let Some(quorum) = self.pending.of(id, ballot) else { return };
        let Step::Accept(proposal) = quorum.step else { return };
        quorum.answered(from);
        let replied = quorum.replied;
        if replied.len() >= self.config.slow() {
            self.decide(id, proposal, replied, cx);
        }
    }

    /// It is decided. All learn it, and this replica too, when it is durable here.
    pub(super) fn decide(&mut self, id: Instance, proposal: Proposal, knowing: NodeSet, cx: &mut Cx<'_>) {
        let Proposal { noop, deps } = proposal;
        self.learner.entry(id).state.commit(noop, deps);
        self.learner.record(id, cx);
        self.pending.end(id);
        self.note_pace(id, noop, cx.now());
        let knowing = self.have_or_get_the_batch(id, knowing, cx.now());
        let message = |value| Message::Commit { instance: id, value, deps };
        self.learner.spread((id, noop), (self.config.members(), knowing), message, cx);
    }

    /// Says again what was not answered. A fast quorum that is late is not waited for; a recovery that does not get on
    /// with those whom it asked begins again, perhaps with others.
    pub(super) fn repeat(&mut self, cx: &mut Cx<'_>) {
        let (now, slow, heartbeat) = (cx.now(), self.config.slow(), self.config.learner.heartbeat);
        let (mut late, mut stale) = (Vec::new(), Vec::new());
        let (present, rejoining) = (self.learner.present(now), self.learner.rejoining(now));
        for (instance, quorum) in self.pending.iter_mut() {
            let is_large = self.learner.may_be_large(instance, now);
            let patience = 2 * self.config.patience(&self.learner, instance);
            let patience = match quorum.step {
                Step::PreAccept { .. } if quorum.replied.len() >= slow => {
                    if now.since(quorum.since) >= heartbeat {
                        late.push(instance);
                        continue;
                    }
                    None
                }
                Step::PreAccept { .. } | Step::Accept(_) => None,
                // Large answers take their time, but for those of the dead.
                Step::Recover { .. } if is_large => Some(patience.max(FULL_LINK)),
                Step::Validate { .. } if is_large && quorum.silent().difference(present).is_empty() => {
                    Some(patience.max(FULL_LINK))
                }
                Step::Recover { .. } | Step::Validate { .. } | Step::Wait { .. } => Some(patience),
            };
            if !quorum.is_due(is_large, now) {
                continue;
            }
            if patience.is_some_and(|patience| now.since(quorum.since) >= patience) {
                stale.push(instance);
                continue;
            }
            let ((silent, message), brief) = quorum.again(is_large, now);
            if let Some((knowing, brief)) = brief {
                cx.send_all(knowing, brief);
            }
            let ignoring = if is_large { rejoining } else { NodeSet::EMPTY };
            let silent = silent.difference(ignoring);
            let late = silent.difference(self.in_flight.under_way_to(silent, instance, now));
            if let Some(bytes) = message.batch().map(Bytes::len) {
                self.in_flight.on_sent(late, instance, bytes, now);
            }
            cx.send_all(late, message);
        }
        late.into_iter().for_each(|instance| self.take_slow_path(instance, cx));
        stale.into_iter().for_each(|instance| self.recover_instance(instance, cx));
    }

    /// These, who have the batch of an instance, and those to whom an own one is on its way: it comes before what is
    /// said of it now.
    fn have_or_get_the_batch(&self, instance: Instance, knowing: NodeSet, now: Time) -> NodeSet {
        if mutation::active("epaxos/batches-again") {
            return knowing;
        }
        let getting = self.in_flight.under_way_to(self.others(), instance, now);
        knowing.union(getting).difference(self.ignoring(instance, now))
    }

    /// Members that rejoin, and ignore the large batch of this instance until it is decided.
    fn ignoring(&self, instance: Instance, now: Time) -> NodeSet {
        let is_large = self.learner.get(instance).and_then(InstanceState::is_large) == Some(true);
        if is_large { self.learner.rejoining(now) } else { NodeSet::EMPTY }
    }

    /// All members but this.
    pub(super) fn others(&self) -> NodeSet {
        self.config.members().without(self.learner.me())
    }
}
