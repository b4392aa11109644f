//! Explicit recovery (EPaxos*, Figure 4). What was committed on the fast path leaves no vote but pre-acceptances: they
//! are *validated* before the batch takes effect, by asking who interferes with it and does not know of it.
//!
//! Two things are not in the paper:
//!
//! - *Replicas forget* what executed instances touch. They do so only when a majority has promised to pre-accept
//!   nothing any more that does not depend on those, and what that majority had heard of before is executed
//!   (`learner/forgetting.rs`). So whoever answers a validation tells of what it has forgotten. If that is not among
//!   the dependencies, the instance was not committed on the fast path, and never will be: it becomes a no-op.
//! - *Late votes count*: they make the quorum larger, and with one that did not pre-accept the batch as proposed, too
//!   few may be left for a fast quorum.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{NodeId, NodeSet, Time, mutation};

use super::Message;
use super::message::Against;
use super::proposing::{Candidate, Proposal, Step};
use super::replica::{Attempt, Cx, Replica};
use crate::epaxos::graph::{InstanceState, PendingQuorum, Phase, RETRANSMIT, Vote};

/// Recoveries that are under way at once.
const RECOVERIES: usize = 32;
/// The same of those whose large batch is sent: over a full link each comes the later the more are sent at once.
const LARGE_RECOVERIES: usize = 2;

/// How many recoveries may begin.
struct Room {
    all: usize,
    /// Of these, so many of large batches.
    large: usize,
}

impl Room {
    /// Whether another may begin. If so, it does.
    fn take(&mut self, is_large: bool) -> bool {
        let may = self.all > 0 && (self.large > 0 || !is_large);
        if may {
            self.all -= 1;
            self.large -= usize::from(is_large);
        }
        may
    }
}

/// Whether this may be part of a fast quorum: the owner's dependencies, and nothing to add.
fn is_as_proposed(vote: &Vote) -> bool {
    vote.phase == Phase::PreAccepted && vote.init == Some(vote.deps)
}

impl Candidate {
    /// Whether a fast quorum may have pre-accepted it as its owner proposed it, as far as those tell who were asked.
    fn is_possible(&self, e: usize) -> bool {
        self.count + e >= self.voters.len() + self.declined.len()
    }
}

impl Replica {
    /// Finds what does not get on: asks for it, and recovers it in the end.
    pub(super) fn look_after(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let (mut stuck, mut waits) = (Vec::new(), false);
        let present = self.learner.present(now);
        let is_full = self.in_flight.are_full(present, now);
        for instance in self.learner.undecided() {
            match self.pending.get(instance) {
                // Others may be past it.
                Some(quorum) => waits |= now.since(quorum.since) >= RETRANSMIT && !is_full,
                None if self.is_orphan(instance) => stuck.push((instance, Duration::ZERO, false)),
                None => {
                    let (owner, first) = (instance.owner(), self.config.patience(&self.learner, instance));
                    let patience = self.watch.patience(owner, first);
                    let is_here = self.learner.get(instance).is_some_and(|held| held.command.is_some());
                    let is_behind = present.contains(owner)
                        && self.is_untouched(instance)
                        && self.watch.is_behind_others(instance, is_here, first, now);
                    stuck.push((instance, patience, is_behind));
                }
            }
        }
        waits |= self.watch.look(stuck, now, cx.random());
        let (mut room, learner) = (self.room_for_recoveries(now), &self.learner);
        let due = self.watch.due(now, |instance| room.take(learner.may_be_large(instance, now)));
        due.into_iter().for_each(|instance| self.recover_instance(instance, cx));
        if waits {
            self.learner.ask(cx);
        }
    }

    /// How many instances may be recovered beside those that are.
    fn room_for_recoveries(&self, now: Time) -> Room {
        let recoveries = || self.pending.iter().filter(|(_, quorum)| quorum.is_recovery());
        let all = RECOVERIES.saturating_sub(recoveries().count());
        if mutation::active("epaxos/recovers-all-at-once") {
            return Room { all, large: all };
        }
        let is_large = |instance| self.learner.may_be_large(instance, now);
        let bring_large = recoveries().filter(|(id, quorum)| quorum.step.brings_the_batch() && is_large(*id));
        Room { all, large: LARGE_RECOVERIES.saturating_sub(bring_large.count()) }
    }

    /// An instance is decided.
    pub(super) fn note_pace(&mut self, instance: Instance, noop: bool, now: Time) {
        let owner = instance.owner();
        if owner != self.learner.me() {
            self.watch.decided(owner, noop && self.learner.present(now).contains(owner));
        }
    }

    /// Whether an earlier life of this replica left it, and nobody is at work on it.
    fn is_orphan(&self, instance: Instance) -> bool {
        let is_held = self.learner.get(instance).is_some();
        instance.owner() == self.learner.me() && is_held && self.is_untouched(instance)
    }

    /// Whether nobody but its owner is at work on it, as far as is known.
    fn is_untouched(&self, instance: Instance) -> bool {
        self.learner.get(instance).is_none_or(|held| held.state.ballot == Ballot::ZERO)
    }

    /// Takes over an instance in a ballot of its own.
    pub(super) fn recover_instance(&mut self, instance: Instance, cx: &mut Cx<'_>) {
        let (me, held) = (self.learner.me(), self.learner.entry(instance));
        if held.is_committed() {
            return;
        }
        let ballot = held.state.ballot.next(me);
        self.join((instance, ballot), cx);
        let votes = BTreeMap::from([(me, self.learner.entry(instance).vote())]);
        let message = Message::Recover { instance, ballot };
        cx.send_all(self.others(), message.clone());
        let quorum = PendingQuorum::new(ballot, Step::Recover { votes }, message, self.others(), cx.now());
        self.pending.begin(instance, quorum);
        self.judge((instance, ballot), cx);
    }

    /// Somebody has joined a higher ballot: the next attempt must be above it. So this replica joins it as well, and
    /// must not forget that: whoever asks for it later is told at once that it is.
    pub(super) fn on_reject(&mut self, at: Attempt, cx: &mut Cx<'_>) {
        let lower = |held: &InstanceState| held.state.ballot < at.1 && !held.is_committed();
        if !self.learner.get(at.0).is_some_and(lower) {
            return;
        }
        if mutation::active("epaxos/hearsay-not-durable") {
            self.learner.entry(at.0).state.ballot = at.1;
            return self.pending.give_up(at.0, at.1);
        }
        self.join(at, cx);
    }

    pub(super) fn on_recover_reply(&mut self, from: NodeId, at: Attempt, vote: Vote, cx: &mut Cx<'_>) {
        let names_itself = |deps: &Frontier| deps.contains(at.0);
        if names_itself(&vote.deps) || vote.init.as_ref().is_some_and(names_itself) {
            return;
        }
        let Some(quorum) = self.pending.of(at.0, at.1) else { return };
        match &mut quorum.step {
            Step::Recover { votes } => {
                votes.insert(from, vote);
                quorum.answered(from);
                self.judge(at, cx);
            }
            // Late, but it decides what the others could not.
            Step::Validate { candidate, .. } | Step::Wait { candidate, .. }
                if !candidate.voters.contains(from) =>
            {
                if !is_as_proposed(&vote) {
                    candidate.declined.insert(from);
                }
                let possible = candidate.is_possible(self.config.e());
                match vote.phase {
                    Phase::Committed | Phase::Accepted => {
                        self.obey(at, &vote, NodeSet::from_iter([from]), cx)
                    }
                    _ if from == at.0.owner() || !possible => self.nullify(at, cx),
                    Phase::Initial | Phase::PreAccepted => {}
                }
            }
            Step::PreAccept { .. } | Step::Accept(_) | Step::Validate { .. } | Step::Wait { .. } => {}
        }
    }

    /// A slow quorum has told what it knows.
    fn judge(&mut self, at: Attempt, cx: &mut Cx<'_>) {
        let (instance, ballot) = at;
        let Some(quorum) = self.pending.of(instance, ballot) else { return };
        let Step::Recover { votes } = &quorum.step else { return };
        if votes.len() < self.config.slow() {
            return;
        }
        let top = votes.values().map(|vote| vote.voted).max().expect("a quorum");
        let strongest = |vote: &&Vote| vote.phase == Phase::Committed;
        let accepted = |vote: &&Vote| vote.phase == Phase::Accepted && vote.voted == top;
        // A vote of the owner may leave a large batch out.
        let is_batch = |value: &Bytes| !value.is_empty();
        let knows =
            |vote: &Vote| vote.phase == Phase::PreAccepted || vote.value.as_ref().is_some_and(is_batch);
        let knowing = votes.iter().filter(|(_, vote)| knows(vote)).map(|(node, _)| *node).collect();
        if let Some(vote) = votes.values().find(strongest).or(votes.values().find(accepted)).cloned() {
            return self.obey(at, &vote, knowing, cx);
        }
        let voters: NodeSet = votes.keys().copied().collect();
        let count = votes.values().filter(|vote| is_as_proposed(vote)).count();
        let proposed = votes.values().find(|vote| is_as_proposed(vote)).cloned();
        let candidate = |deps| Candidate { voters, count, declined: NodeSet::EMPTY, deps };
        let possible =
            |deps| !voters.contains(instance.owner()) && candidate(deps).is_possible(self.config.e());
        let proposed = proposed.filter(|vote| possible(vote.deps));
        let Some(Vote { value: Some(value), deps, .. }) = proposed else {
            return self.nullify(at, cx);
        };
        self.learner.entry(instance).learn(&value);
        if mutation::active("epaxos/no-validation") {
            return self.propose_batch(at, deps, knowing, cx);
        }
        let message = Message::Validate { instance, ballot, value, deps };
        cx.send_all(voters, message.clone());
        let (against, forgotten) = (BTreeMap::new(), Frontier::default());
        quorum.turn(Step::Validate { candidate: candidate(deps), against, forgotten }, message, voters);
    }

    /// Proposes what was voted for, or learns what is decided. Those in `knowing` have told the batch.
    fn obey(&mut self, at: Attempt, vote: &Vote, knowing: NodeSet, cx: &mut Cx<'_>) {
        let Some(value) = &vote.value else { return };
        let proposal = Proposal { noop: value.is_empty(), deps: vote.deps };
        if !proposal.noop {
            self.learner.entry(at.0).learn(value);
        }
        let knowing = self.have_a_large_batch(at.0, knowing);
        match vote.phase {
            Phase::Committed => self.decide(at.0, proposal, knowing, cx),
            _ => self.accept(at, proposal, knowing, cx),
        }
    }

    /// It cannot have been committed on the fast path, or others are better off if it was not proposed.
    fn nullify(&mut self, at: Attempt, cx: &mut Cx<'_>) {
        self.accept(at, Proposal { noop: true, deps: Frontier::default() }, NodeSet::EMPTY, cx);
    }

    /// It may have been, and nothing speaks against it. Those in `knowing` have the batch.
    fn propose_batch(&mut self, at: Attempt, deps: Frontier, knowing: NodeSet, cx: &mut Cx<'_>) {
        let knowing = self.have_a_large_batch(at.0, knowing);
        self.accept(at, Proposal { noop: false, deps }, knowing, cx);
    }

    /// Those who have an instance's batch, if it is large: it is not sent to them again. They have recorded it, and who
    /// loses that record votes no more before the instance is decided (`learner/rejoin.rs`).
    pub(super) fn have_a_large_batch(&self, instance: Instance, knowing: NodeSet) -> NodeSet {
        let is_large = self.learner.get(instance).and_then(InstanceState::is_large);
        if is_large == Some(true) && !mutation::active("epaxos/batches-again") {
            knowing
        } else {
            NodeSet::EMPTY
        }
    }

    /// What speaks against the batch: `more` of it, and whether that is committed. All must have said it.
    pub(super) fn on_validated(
        &mut self,
        from: NodeId,
        at: Attempt,
        (more, forgets): (Against, Frontier),
        cx: &mut Cx<'_>,
    ) {
        let (instance, ballot) = at;
        let Some(quorum) = self.pending.of(instance, ballot) else { return };
        let Step::Validate { candidate, against, forgotten } = &mut quorum.step else { return };
        let candidate @ Candidate { voters, count, deps, .. } = *candidate;
        if !voters.contains(from) {
            return;
        }
        for (other, committed) in more {
            *against.entry(other).or_default() |= committed;
        }
        *forgotten = forgotten.union(&forgets);
        let (against, knows) = (against.clone(), forgotten.within(&deps));
        quorum.answered(from);
        if !quorum.is_answered() {
            return;
        }
        if !knows && !mutation::active("epaxos/judges-what-is-forgotten") {
            return self.nullify(at, cx);
        }
        let bare = count + self.config.e() == voters.len();
        if against.is_empty() {
            return self.propose_batch(at, deps, voters, cx);
        }
        if against.iter().any(|(other, committed)| *committed || (bare && !voters.contains(other.owner()))) {
            return self.nullify(at, cx);
        }
        let against: Vec<_> = against.into_keys().collect();
        if self.learner.may_be_large(instance, cx.now()) {
            // The batch took its time; the fate of others takes more.
            quorum.since = cx.now();
        }
        self.learner.expect(&against);
        let message = Message::Waiting { instance, count: count as u64 };
        cx.send_all(self.config.members(), message.clone());
        quorum.turn(Step::Wait { candidate, against }, message, self.config.members());
        self.review_waiting(cx);
    }

    pub(super) fn on_waiting(&mut self, instance: Instance, count: u64, cx: &mut Cx<'_>) {
        if self.learner.admits(instance)
            && !self.learner.get(instance).is_some_and(InstanceState::is_committed)
        {
            self.waits.insert(instance, count);
            self.review_waiting(cx);
        }
    }

    /// Goes on with recoveries that wait for the fate of others.
    pub(super) fn review_waiting(&mut self, cx: &mut Cx<'_>) {
        let enough = (self.config.slow() - self.config.e()) as u64;
        let yields = |other: &Instance| self.waits.get(other).is_some_and(|count| *count > enough);
        let mut ready = Vec::new();
        for (instance, quorum) in self.pending.iter() {
            let Step::Wait { candidate, against } = &quorum.step else { continue };
            // Whether it is decided that the other depends on this one or never happens.
            let knows = |other: &Instance| {
                self.learner.fate(*other).map(|state| state.noop || state.deps.contains(instance))
            };
            if against.iter().any(|other| knows(other) == Some(false) || yields(other)) {
                ready.push(((instance, quorum.ballot), None));
            } else if against.iter().all(|other| knows(other) == Some(true)) {
                ready.push(((instance, quorum.ballot), Some(*candidate)));
            }
        }
        for (at, candidate) in ready {
            match candidate {
                Some(Candidate { deps, voters, .. }) => self.propose_batch(at, deps, voters, cx),
                None => self.nullify(at, cx),
            }
        }
    }
}
