//! The owner's side (EPaxos*, Figure 3): pre-accept, accept, commit; and what has to be said again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::{Context, Mark, NodeId, NodeSet, Time};
use quorate_parts::ballot::Ballot;
use quorate_parts::batch::{Batch, Entry};
use quorate_parts::graph::{Frontier, Instance, Interference};

use super::instance::Phase;
use super::message::Vote;
use super::replica::Replica;
use super::{Message, RETRANSMIT};

/// Bytes that are said again at once.
const REPEAT_BYTES: usize = 4 << 20;

/// What a replica does about an instance, as its owner in ballot zero or to recover it in another.
#[derive(Debug)]
pub struct Duty {
    pub(super) ballot: Ballot,
    /// When it last spoke, and when it began.
    pub(super) sent: Time,
    pub(super) since: Time,
    pub(super) step: Step,
}

/// How far it is.
#[derive(Debug)]
pub enum Step {
    /// Waits for replies to `PreAccept`. All so far had nothing to add?
    PreAccept { replied: NodeSet, same: bool, union: Frontier },
    /// Waits for votes for the value (a no-op, or the batch) with these dependencies.
    Accept { replied: NodeSet, noop: bool, deps: Frontier },
    /// Waits for votes of the past.
    Recover { votes: BTreeMap<NodeId, Vote> },
    /// Waits until all that have voted say what speaks against the batch with the owner's dependencies; `count` of
    /// them had pre-accepted it so.
    Validate {
        asked: NodeSet,
        count: usize,
        deps: Frontier,
        replied: NodeSet,
        against: BTreeMap<Instance, bool>,
    },
    /// Waits for the fate of these.
    Wait { asked: NodeSet, count: usize, deps: Frontier, against: Vec<Instance> },
}

impl Replica {
    /// Proposes what has gathered.
    pub(super) fn propose(&mut self, cx: &mut Context<'_, Self>) {
        let reads = self.intake.take_reads();
        self.queue.add(reads, self.config.intake.max_bytes);
        while self.intake.has_writes() || !self.queue.is_empty() || !self.extra.is_empty() {
            let executed = self.state.executed().prefix().of(self.me);
            if self.next - 1 - executed >= self.config.pipeline {
                return;
            }
            let instance = Instance::new(self.me, self.next);
            self.next += 1;
            let value = self.take_batch(instance, cx);
            let touched = Interference::of(&value);
            let deps = self.seen.with(&touched).union(&self.stable()).union(&self.base);
            self.known.add(instance);
            let held = self.table.entry(instance).or_default();
            held.learn(&value);
            (held.state.phase, held.state.init, held.state.deps) = (Phase::PreAccepted, Some(deps), deps);
            self.seen.add(instance, &touched);
            self.unfinished.push_back((instance.index(), deps));
            self.record(instance, cx);
            cx.mark(Mark::Proposed { slot: instance.number() });
            cx.mark(Mark::Recorded { slot: instance.number() });
            let step = Step::PreAccept { replied: NodeSet::EMPTY, same: true, union: deps };
            let (ballot, sent, since) = (Ballot::ZERO, cx.now(), cx.now());
            self.duties.insert(instance, Duty { ballot, sent, since, step });
            cx.send_all(self.others(), Message::PreAccept { instance, value, deps });
            // Nothing leaves before the own vote is durable: it counts when the first reply to it does.
            self.on_pre_accept_reply(self.me, instance, deps, cx);
        }
    }

    /// Writes, reads, and the end of keys that they find overdue.
    fn take_batch(&mut self, instance: Instance, cx: &mut Context<'_, Self>) -> Bytes {
        let limits = self.config.intake.batch;
        let value = self.intake.take_batch(limits, cx.wall());
        let mut bytes = value.len();
        let mut reads = Vec::new();
        while reads.len() < limits.entries && (bytes < limits.bytes || reads.is_empty()) {
            let Some(read) = self.queue.take() else { break };
            bytes += read.command.len();
            reads.push(read);
        }
        let entries = reads.iter().map(|read| Entry::Read { command: read.command.clone() });
        let mut entries: Vec<_> = entries.chain(std::mem::take(&mut self.extra)).collect();
        if self.state.next_expiry().is_some_and(|at| at <= cx.wall()) {
            let touched = Interference::of(&Batch::extended(value.clone(), &entries));
            let keys = self.state.overdue_among(&touched, cx.wall());
            if !keys.is_empty() {
                entries.push(Entry::Expire { keys });
            }
        }
        if !reads.is_empty() {
            self.reads.insert(instance, reads);
        }
        Batch::extended(value, &entries)
    }

    pub(super) fn on_pre_accept_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        deps: Frontier,
        cx: &mut Context<'_, Self>,
    ) {
        let (fast, slow) = (self.config.fast(), self.config.slow());
        let Some(Duty { step: Step::PreAccept { replied, same, union }, .. }) =
            self.duties.get_mut(&instance)
        else {
            return;
        };
        let held = &self.table[&instance];
        if held.state.ballot != Ballot::ZERO || deps.contains(instance) || !replied.insert(from) {
            return;
        }
        *same &= Some(deps) == held.state.init;
        *union = union.union(&deps);
        if *same && replied.len() >= fast {
            let (replied, deps) = (*replied, deps);
            self.decide(instance, false, deps, replied, cx);
        } else if !*same && replied.len() >= slow {
            self.take_slow_path(instance, cx);
        }
    }

    fn take_slow_path(&mut self, instance: Instance, cx: &mut Context<'_, Self>) {
        let Some(Duty { step: Step::PreAccept { replied, union, .. }, .. }) = self.duties.get(&instance)
        else {
            return;
        };
        let (replied, union) = (*replied, *union);
        self.accept(instance, Ballot::ZERO, false, union, replied, cx);
    }

    /// Asks for votes. Those in `knowing` have the batch.
    pub(super) fn accept(
        &mut self,
        instance: Instance,
        ballot: Ballot,
        noop: bool,
        deps: Frontier,
        knowing: NodeSet,
        cx: &mut Context<'_, Self>,
    ) {
        let (sent, since) = (cx.now(), cx.now());
        let step = Step::Accept { replied: NodeSet::EMPTY, noop, deps };
        self.duties.insert(instance, Duty { ballot, sent, since, step });
        self.send_value(instance, noop, knowing, cx, |value| Message::Accept {
            instance,
            ballot,
            value,
            deps,
        });
    }

    /// Sends the value to all members, without the batch where it is.
    fn send_value(
        &self,
        instance: Instance,
        noop: bool,
        knowing: NodeSet,
        cx: &mut Context<'_, Self>,
        message: impl Fn(Option<Bytes>) -> Message,
    ) {
        let members = self.config.members;
        if noop {
            return cx.send_all(members, message(Some(Batch::noop())));
        }
        let command = self.table[&instance].command.clone().expect("proposed by whoever knows it");
        let knowing = members.intersection(knowing);
        let others = members.iter().filter(|node| !knowing.contains(*node)).collect();
        cx.send_all(knowing, message(None));
        cx.send_all(others, message(Some(command)));
    }

    pub(super) fn on_accept_reply(
        &mut self,
        from: NodeId,
        instance: Instance,
        of: Ballot,
        cx: &mut Context<'_, Self>,
    ) {
        let slow = self.config.slow();
        let Some(Duty { ballot, step: Step::Accept { replied, noop, deps }, .. }) =
            self.duties.get_mut(&instance)
        else {
            return;
        };
        if *ballot != of {
            return;
        }
        replied.insert(from);
        if replied.len() >= slow {
            let (noop, deps, replied) = (*noop, *deps, *replied);
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
        cx: &mut Context<'_, Self>,
    ) {
        let held = self.table.get_mut(&instance).expect("a duty is in the table");
        (held.state.phase, held.state.noop, held.state.deps) = (Phase::Committed, noop, deps);
        self.record(instance, cx);
        self.duties.remove(&instance);
        self.send_value(instance, noop, knowing, cx, |value| Message::Commit { instance, value, deps });
    }

    /// Says again what was not answered: messages may be lost. A fast quorum that is late is not waited for.
    pub(super) fn repeat(&mut self, cx: &mut Context<'_, Self>) {
        let (now, members) = (cx.now(), self.config.members);
        let old = |(&instance, duty): (&Instance, &Duty)| {
            (now.since(duty.since) >= 4 * self.patience(instance)).then_some(instance)
        };
        let old: BTreeSet<_> = self.duties.iter().filter_map(old).collect();
        let (mut late, mut stale, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (&instance, duty) in &mut self.duties {
            let without =
                |set: NodeSet| members.iter().filter(|node| !set.contains(*node)).collect::<NodeSet>();
            if let Step::PreAccept { replied, .. } = &duty.step
                && replied.len() >= self.config.slow()
                && now.since(duty.since) >= self.config.heartbeat
            {
                late.push(instance);
                continue;
            }
            if now.since(duty.sent) < RETRANSMIT || bytes >= REPEAT_BYTES {
                continue;
            }
            duty.sent = now;
            let (ballot, held) = (duty.ballot, &self.table[&instance]);
            let command = held.command.clone().unwrap_or_default();
            bytes += command.len();
            match &duty.step {
                Step::PreAccept { replied, .. } => {
                    let deps = held.state.init.expect("it was proposed");
                    cx.send_all(without(*replied), Message::PreAccept { instance, value: command, deps });
                }
                Step::Accept { replied, noop, deps } => {
                    let (value, deps) = (Some(if *noop { Batch::noop() } else { command }), *deps);
                    cx.send_all(without(*replied), Message::Accept { instance, ballot, value, deps });
                }
                // It cannot get on with those that it asked; perhaps with others.
                Step::Recover { .. } | Step::Validate { .. } | Step::Wait { .. }
                    if old.contains(&instance) =>
                {
                    stale.push(instance)
                }
                Step::Recover { votes } => {
                    let missing = without(votes.keys().copied().collect());
                    cx.send_all(missing, Message::Recover { instance, ballot });
                }
                Step::Validate { asked, deps, replied, .. } => {
                    let missing = asked.iter().filter(|node| !replied.contains(*node)).collect();
                    cx.send_all(missing, Message::Validate { instance, ballot, value: command, deps: *deps });
                }
                Step::Wait { count, .. } => {
                    cx.send_all(members, Message::Waiting { instance, count: *count as u64 });
                }
            }
        }
        late.into_iter().for_each(|instance| self.take_slow_path(instance, cx));
        stale.into_iter().for_each(|instance| self.recover_instance(instance, cx));
    }
}
