//! Explicit recovery (EPaxos*, Figure 4). What was committed on the fast path leaves no vote but pre-acceptances: they
//! are *validated* before the batch takes effect, by asking who interferes with it and does not know of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::{Context, NodeId, NodeSet, mutation};
use quorate_parts::ballot::Ballot;
use quorate_parts::graph::{Frontier, Instance};

use super::Message;
use super::instance::{Held, Phase};
use super::message::Vote;
use super::proposing::{Duty, Step};
use super::replica::Replica;

impl Replica {
    /// Takes over an instance in a ballot of its own.
    pub(super) fn recover_instance(&mut self, instance: Instance, cx: &mut Context<'_, Self>) {
        let held = self.table.entry(instance).or_default();
        if held.is_committed() {
            return;
        }
        let ballot = held.state.ballot.next(self.me);
        self.join(instance, ballot, cx);
        let votes = BTreeMap::from([(self.me, self.table[&instance].vote())]);
        let (sent, since) = (cx.now(), cx.now());
        self.duties.insert(instance, Duty { ballot, sent, since, step: Step::Recover { votes } });
        cx.send_all(self.others(), Message::Recover { instance, ballot });
        self.judge(instance, cx);
    }

    fn join(&mut self, instance: Instance, ballot: Ballot, cx: &mut Context<'_, Self>) {
        let held = self.table.entry(instance).or_default();
        held.state.ballot = ballot;
        if mutation::active("epaxos/one-ballot") {
            held.state.voted = ballot;
        }
        self.record(instance, cx);
    }

    pub(super) fn on_recover(
        &mut self,
        from: NodeId,
        instance: Instance,
        ballot: Ballot,
        cx: &mut Context<'_, Self>,
    ) {
        if ballot.node() != Some(from) {
            return;
        }
        if self.state.executed().contains(instance) {
            return match self.table.contains_key(&instance) {
                true => self.tell(from, instance, cx),
                // It needs a snapshot.
                false => self.tell_progress([from].into_iter().collect(), cx),
            };
        }
        if !self.admits(instance) {
            return;
        }
        let joined = self.table.entry(instance).or_default().state.ballot;
        if ballot < joined {
            return cx.send(from, Message::Reject { instance, ballot: joined });
        }
        if ballot > joined {
            self.join(instance, ballot, cx);
            self.give_up(instance, ballot);
        }
        let vote = self.table[&instance].vote();
        cx.send(from, Message::RecoverReply { instance, ballot, vote });
    }

    /// Somebody has joined a higher ballot: the next attempt must be above it.
    pub(super) fn on_reject(&mut self, instance: Instance, ballot: Ballot) {
        if let Some(held) = self.table.get_mut(&instance)
            && held.state.ballot < ballot
            && !held.is_committed()
        {
            held.state.ballot = ballot;
            self.give_up(instance, ballot);
        }
    }

    pub(super) fn on_recover_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        of: Ballot,
        vote: Vote,
        cx: &mut Context<'_, Self>,
    ) {
        let Some(duty) = self.duties.get_mut(&instance).filter(|duty| duty.ballot == of) else { return };
        match &mut duty.step {
            Step::Recover { votes } => {
                votes.insert(from, vote);
                self.judge(instance, cx);
            }
            // Late, but it decides what the others could not.
            Step::Validate { asked, .. } | Step::Wait { asked, .. } if !asked.contains(from) => {
                match vote.phase {
                    Phase::Committed | Phase::Accepted => self.obey(instance, of, &vote, cx),
                    _ if from == instance.owner() => self.nullify(instance, of, cx),
                    Phase::Initial | Phase::PreAccepted => {}
                }
            }
            Step::PreAccept { .. } | Step::Accept { .. } | Step::Validate { .. } | Step::Wait { .. } => {}
        }
    }

    /// A slow quorum has told what it knows.
    fn judge(&mut self, instance: Instance, cx: &mut Context<'_, Self>) {
        let Some(Duty { ballot, step: Step::Recover { votes }, .. }) = self.duties.get(&instance) else {
            return;
        };
        if votes.len() < self.config.slow() {
            return;
        }
        let ballot = *ballot;
        let top = votes.values().map(|vote| vote.voted).max().expect("a quorum");
        let strongest = |vote: &&Vote| vote.phase == Phase::Committed;
        let accepted = |vote: &&Vote| vote.phase == Phase::Accepted && vote.voted == top;
        if let Some(vote) = votes.values().find(strongest).or(votes.values().find(accepted)).cloned() {
            return self.obey(instance, ballot, &vote, cx);
        }
        let asked: NodeSet = votes.keys().copied().collect();
        let as_proposed = |vote: &&Vote| vote.phase == Phase::PreAccepted && vote.init == Some(vote.deps);
        let count = votes.values().filter(as_proposed).count();
        let proposed = votes.values().find(as_proposed).cloned();
        let Some(Vote { value: Some(value), deps, .. }) =
            proposed.filter(|_| !asked.contains(instance.owner()) && count + self.config.e() >= asked.len())
        else {
            return self.nullify(instance, ballot, cx);
        };
        self.table.get_mut(&instance).expect("it was joined").learn(&value);
        if mutation::active("epaxos/no-validation") {
            return self.accept(instance, ballot, false, deps, NodeSet::EMPTY, cx);
        }
        let (replied, against) = (NodeSet::EMPTY, BTreeMap::new());
        let duty = self.duties.get_mut(&instance).expect("it is at work");
        duty.step = Step::Validate { asked, count, deps, replied, against };
        cx.send_all(asked, Message::Validate { instance, ballot, value, deps });
    }

    /// Proposes what was voted for, or learns what is decided.
    fn obey(&mut self, instance: Instance, ballot: Ballot, vote: &Vote, cx: &mut Context<'_, Self>) {
        let held = self.table.get_mut(&instance).expect("it was joined");
        let Some(value) = &vote.value else { return };
        let noop = value.is_empty();
        if !noop {
            held.learn(value);
        }
        match vote.phase {
            Phase::Committed => self.decide(instance, noop, vote.deps, NodeSet::EMPTY, cx),
            _ => self.accept(instance, ballot, noop, vote.deps, NodeSet::EMPTY, cx),
        }
    }

    /// It cannot have been committed on the fast path, or others are better off if it was not proposed.
    fn nullify(&mut self, instance: Instance, ballot: Ballot, cx: &mut Context<'_, Self>) {
        self.accept(instance, ballot, true, Frontier::default(), NodeSet::EMPTY, cx);
    }

    pub(super) fn on_validate(
        &mut self,
        from: NodeId,
        (instance, ballot): (Instance, Ballot),
        value: Bytes,
        deps: Frontier,
        cx: &mut Context<'_, Self>,
    ) {
        let known = self.forgotten.within(&deps);
        let Some(held) = self.table.get_mut(&instance).filter(|held| held.state.ballot == ballot) else {
            return;
        };
        let valid = ballot.node() == Some(from) && !deps.contains(instance) && !value.is_empty();
        if !valid || !known || held.is_committed() {
            return;
        }
        held.learn(&value);
        held.state.init = Some(deps);
        let touched = held.touched.clone();
        self.seen.add(instance, &touched);
        self.record(instance, cx);
        let speaks_against = |(other, held): (&Instance, &Held)| {
            let state = &held.state;
            let knows = match state.phase {
                Phase::Committed => state.noop || state.deps.contains(instance),
                Phase::Initial | Phase::PreAccepted | Phase::Accepted => {
                    state.init.is_none_or(|init| init.contains(instance))
                }
            };
            let against =
                *other != instance && !deps.contains(*other) && !knows && held.touched.with(&touched);
            against.then_some((*other, held.is_committed()))
        };
        let mut against: Vec<_> = self.table.iter().filter_map(speaks_against).collect();
        // What was executed before this one is even committed does not depend on it.
        let settled = self.settled.iter();
        let settled = settled.filter(|(other, touches)| !deps.contains(**other) && touches.with(&touched));
        against.extend(settled.map(|(other, _)| (*other, true)));
        cx.send(from, Message::ValidateReply { instance, ballot, against });
    }

    pub(super) fn on_validate_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        of: Ballot,
        more: Vec<(Instance, bool)>,
        cx: &mut Context<'_, Self>,
    ) {
        let Some(duty) = self.duties.get_mut(&instance).filter(|duty| duty.ballot == of) else { return };
        let Step::Validate { asked, replied, against, .. } = &mut duty.step else { return };
        if !asked.contains(from) {
            return;
        }
        replied.insert(from);
        for (other, committed) in more {
            *against.entry(other).or_default() |= committed;
        }
        if replied == asked {
            self.settle(instance, cx);
        }
    }

    /// All have said what speaks against the batch.
    fn settle(&mut self, instance: Instance, cx: &mut Context<'_, Self>) {
        let Some(duty) = self.duties.get_mut(&instance) else { return };
        let Step::Validate { asked, count, deps, against, .. } = &mut duty.step else { return };
        let (ballot, asked, count, deps) = (duty.ballot, *asked, *count, *deps);
        let against = std::mem::take(against);
        if against.is_empty() {
            return self.accept(instance, ballot, false, deps, NodeSet::EMPTY, cx);
        }
        let bare = count + self.config.e() == asked.len();
        if against.iter().any(|(other, committed)| *committed || (bare && !asked.contains(other.owner()))) {
            return self.nullify(instance, ballot, cx);
        }
        let against: Vec<_> = against.into_keys().collect();
        duty.step = Step::Wait { asked, count, deps, against: against.clone() };
        for other in against {
            self.admits(other);
        }
        cx.send_all(self.config.members, Message::Waiting { instance, count: count as u64 });
        self.review_waiting(cx);
    }

    pub(super) fn on_waiting(&mut self, instance: Instance, count: u64, cx: &mut Context<'_, Self>) {
        if self.admits(instance) && !self.table.get(&instance).is_some_and(Held::is_committed) {
            self.waits.insert(instance, count);
            self.review_waiting(cx);
        }
    }

    /// Goes on with recoveries that wait for the fate of others.
    pub(super) fn review_waiting(&mut self, cx: &mut Context<'_, Self>) {
        let mut ready = Vec::new();
        for (&instance, duty) in &self.duties {
            let Step::Wait { deps, against, .. } = &duty.step else { continue };
            // Whether it is decided, durably, that the other depends on this one or never happens.
            let fates = against.iter().map(|other| {
                let held = self.table.get(other).filter(|held| held.is_committed())?;
                let durable = self.graph.contains(*other) || self.state.executed().contains(*other);
                durable.then(|| held.state.noop || held.state.deps.contains(instance))
            });
            let fates: Vec<_> = fates.collect();
            let enough = (self.config.slow() - self.config.e()) as u64;
            let yields = |other: &Instance| self.waits.get(other).is_some_and(|count| *count > enough);
            if fates.contains(&Some(false)) || against.iter().any(yields) {
                ready.push((instance, duty.ballot, None));
            } else if fates.iter().all(|fate| *fate == Some(true)) {
                ready.push((instance, duty.ballot, Some(*deps)));
            }
        }
        for (instance, ballot, deps) in ready {
            match deps {
                Some(deps) => self.accept(instance, ballot, false, deps, NodeSet::EMPTY, cx),
                None => self.nullify(instance, ballot, cx),
            }
        }
    }
}
