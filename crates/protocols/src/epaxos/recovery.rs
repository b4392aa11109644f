//! Explicit recovery (EPaxos*, Figure 4). What was committed on the fast path leaves no vote but pre-acceptances: they
//! are *validated* before the batch takes effect, by asking who interferes with it and does not know of it.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, mutation};
use quorate_parts::ballot::Ballot;
use quorate_parts::graph::{Duty, Frontier, Instance, Learner, Phase, RETRANSMIT, Vote};

use super::proposing::{Candidate, Step};
use super::replica::{Cx, Replica};
use super::{Config, Message};

/// Recoveries that are under way at once.
const RECOVERIES: usize = 32;

/// How long to wait before an instance is recovered, at least. Longer after each attempt of anybody: those who try at
/// the same time get into each other's way.
pub(super) fn patience(config: &Config, learner: &Learner, instance: Instance) -> Duration {
    let attempts = learner.get(instance).map_or(0, |held| held.state.ballot.rounds());
    config.recovery * (1 << attempts.min(5))
}

impl Replica {
    /// Finds what does not get on: asks for it, and recovers it in the end.
    pub(super) fn look_after(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now();
        let mut missing = BTreeMap::new();
        let mut waited = false;
        for instance in self.learner.undecided() {
            if let Some(duty) = self.duties.get(instance) {
                // Others may be past it.
                waited |= now.since(duty.since) >= RETRANSMIT;
                continue;
            }
            let patience = patience(&self.config, &self.learner, instance);
            let until = match self.stuck.get(&instance) {
                Some(until) => *until,
                None if self.is_orphan(instance) => now,
                None => now + cx.random().between(patience, 2 * patience),
            };
            waited |= self.stuck.contains_key(&instance);
            missing.insert(instance, until);
        }
        let under_way = self.duties.iter().filter(|(_, duty)| duty.ballot != Ballot::ZERO).count();
        let late = missing.iter().filter(|(_, until)| **until <= now).map(|(instance, _)| *instance);
        let late: Vec<_> = late.take(RECOVERIES.saturating_sub(under_way)).collect();
        self.stuck = missing;
        for instance in late {
            self.stuck.remove(&instance);
            self.recover_instance(instance, cx);
        }
        if waited {
            self.learner.ask(cx);
        }
    }

    /// Whether an earlier life of this replica left it, and nobody is at work on it.
    fn is_orphan(&self, instance: Instance) -> bool {
        let untouched = |ballot| ballot == Ballot::ZERO;
        let held = self.learner.get(instance).filter(|_| instance.owner() == self.me);
        held.is_some_and(|held| untouched(held.state.ballot))
    }

    /// Takes over an instance in a ballot of its own.
    pub(super) fn recover_instance(&mut self, instance: Instance, cx: &mut Cx<'_>) {
        let held = self.learner.entry(instance);
        if held.is_committed() {
            return;
        }
        let ballot = held.state.ballot.next(self.me);
        self.join(instance, ballot, cx);
        let votes = BTreeMap::from([(self.me, self.learner.entry(instance).vote())]);
        let message = Message::Recover { instance, ballot };
        cx.send_all(self.others(), message.clone());
        let duty = Duty::new(ballot, Step::Recover { votes }, message, self.others(), cx.now());
        self.duties.begin(instance, duty);
        self.judge(instance, ballot, cx);
    }

    /// Somebody has joined a higher ballot: the next attempt must be above it.
    pub(super) fn on_reject(&mut self, instance: Instance, ballot: Ballot) {
        let Some(joined) = self.learner.get(instance).map(|held| held.state.ballot) else { return };
        if joined < ballot && self.learner.get(instance).is_some_and(|held| !held.is_committed()) {
            self.learner.entry(instance).state.ballot = ballot;
            self.duties.give_up(instance, ballot);
        }
    }

    pub(super) fn on_recover_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        ballot: Ballot,
        vote: Vote,
        cx: &mut Cx<'_>,
    ) {
        let Some(duty) = self.duties.of(instance, ballot) else { return };
        match &mut duty.step {
            Step::Recover { votes } => {
                votes.insert(from, vote);
                duty.answered(from);
                self.judge(instance, ballot, cx);
            }
            // Late, but it decides what the others could not.
            Step::Validate { candidate, .. } | Step::Wait { candidate, .. }
                if !candidate.voters.contains(from) =>
            {
                match vote.phase {
                    Phase::Committed | Phase::Accepted => self.obey(instance, ballot, &vote, cx),
                    _ if from == instance.owner() => self.nullify(instance, ballot, cx),
                    Phase::Initial | Phase::PreAccepted => {}
                }
            }
            Step::PreAccept { .. } | Step::Accept { .. } | Step::Validate { .. } | Step::Wait { .. } => {}
        }
    }

    /// A slow quorum has told what it knows.
    fn judge(&mut self, instance: Instance, ballot: Ballot, cx: &mut Cx<'_>) {
        let Some(duty) = self.duties.of(instance, ballot) else { return };
        let Step::Recover { votes } = &duty.step else { return };
        if votes.len() < self.config.slow() {
            return;
        }
        let top = votes.values().map(|vote| vote.voted).max().expect("a quorum");
        let strongest = |vote: &&Vote| vote.phase == Phase::Committed;
        let accepted = |vote: &&Vote| vote.phase == Phase::Accepted && vote.voted == top;
        if let Some(vote) = votes.values().find(strongest).or(votes.values().find(accepted)).cloned() {
            return self.obey(instance, ballot, &vote, cx);
        }
        let voters: NodeSet = votes.keys().copied().collect();
        let as_proposed = |vote: &&Vote| vote.phase == Phase::PreAccepted && vote.init == Some(vote.deps);
        let count = votes.values().filter(as_proposed).count();
        let possible = !voters.contains(instance.owner()) && count + self.config.e() >= voters.len();
        let proposed = votes.values().find(as_proposed).filter(|_| possible).cloned();
        let Some(Vote { value: Some(value), deps, .. }) = proposed else {
            return self.nullify(instance, ballot, cx);
        };
        self.learner.entry(instance).learn(&value);
        if mutation::active("epaxos/no-validation") {
            return self.accept((instance, ballot), false, deps, NodeSet::EMPTY, cx);
        }
        let message = Message::Validate { instance, ballot, value, deps };
        cx.send_all(voters, message.clone());
        let candidate = Candidate { voters, count, deps };
        duty.turn(Step::Validate { candidate, against: BTreeMap::new() }, message, voters);
    }

    /// Proposes what was voted for, or learns what is decided.
    fn obey(&mut self, instance: Instance, ballot: Ballot, vote: &Vote, cx: &mut Cx<'_>) {
        let Some(value) = &vote.value else { return };
        let noop = value.is_empty();
        if !noop {
            self.learner.entry(instance).learn(value);
        }
        match vote.phase {
            Phase::Committed => self.decide(instance, noop, vote.deps, NodeSet::EMPTY, cx),
            _ => self.accept((instance, ballot), noop, vote.deps, NodeSet::EMPTY, cx),
        }
    }

    /// It cannot have been committed on the fast path, or others are better off if it was not proposed.
    fn nullify(&mut self, instance: Instance, ballot: Ballot, cx: &mut Cx<'_>) {
        self.accept((instance, ballot), true, Frontier::default(), NodeSet::EMPTY, cx);
    }

    pub(super) fn on_validate_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        ballot: Ballot,
        more: Vec<(Instance, bool)>,
        cx: &mut Cx<'_>,
    ) {
        let Some(duty) = self.duties.of(instance, ballot) else { return };
        let Step::Validate { candidate, against } = &mut duty.step else { return };
        if !candidate.voters.contains(from) {
            return;
        }
        for (other, committed) in more {
            *against.entry(other).or_default() |= committed;
        }
        let (candidate, against) = (*candidate, against.clone());
        duty.answered(from);
        if duty.is_answered() {
            self.settle(instance, ballot, candidate, against, cx);
        }
    }

    /// All have said what speaks against the batch.
    fn settle(
        &mut self,
        instance: Instance,
        ballot: Ballot,
        candidate: Candidate,
        against: BTreeMap<Instance, bool>,
        cx: &mut Cx<'_>,
    ) {
        let Candidate { voters, count, deps } = candidate;
        if against.is_empty() {
            return self.accept((instance, ballot), false, deps, NodeSet::EMPTY, cx);
        }
        let bare = count + self.config.e() == voters.len();
        if against.iter().any(|(other, committed)| *committed || (bare && !voters.contains(other.owner()))) {
            return self.nullify(instance, ballot, cx);
        }
        let against: Vec<_> = against.into_keys().collect();
        for other in &against {
            self.learner.admits(*other);
        }
        let message = Message::Waiting { instance, count: count as u64 };
        let members = self.config.members();
        cx.send_all(members, message.clone());
        if let Some(duty) = self.duties.of(instance, ballot) {
            duty.turn(Step::Wait { candidate, against }, message, members);
        }
        self.review_waiting(cx);
    }

    pub(super) fn on_waiting(&mut self, instance: Instance, count: u64, cx: &mut Cx<'_>) {
        let decided = self.learner.get(instance).is_some_and(|held| held.is_committed());
        if self.learner.admits(instance) && !decided {
            self.waits.insert(instance, count);
            self.review_waiting(cx);
        }
    }

    /// Goes on with recoveries that wait for the fate of others.
    pub(super) fn review_waiting(&mut self, cx: &mut Cx<'_>) {
        let enough = (self.config.slow() - self.config.e()) as u64;
        let yields = |other: &Instance| self.waits.get(other).is_some_and(|count| *count > enough);
        let mut ready = Vec::new();
        for (instance, duty) in self.duties.iter() {
            let Step::Wait { candidate, against } = &duty.step else { continue };
            // Whether it is decided that the other depends on this one or never happens.
            let fate = |other: &Instance| {
                self.learner.fate(*other).map(|state| state.noop || state.deps.contains(instance))
            };
            if against.iter().any(|other| fate(other) == Some(false) || yields(other)) {
                ready.push((instance, duty.ballot, None));
            } else if against.iter().all(|other| fate(other) == Some(true)) {
                ready.push((instance, duty.ballot, Some(candidate.deps)));
            }
        }
        for (instance, ballot, deps) in ready {
            match deps {
                Some(deps) => self.accept((instance, ballot), false, deps, NodeSet::EMPTY, cx),
                None => self.nullify(instance, ballot, cx),
            }
        }
    }
}
