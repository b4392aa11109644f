//! The replica: what it consists of, and the dispatch of everything that comes in.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{
    Context, Instant, Machine, NodeId, ProcessId, Salvaged, Saved, Shortage, Snapshot, Status, Wakeup,
};

use super::in_flight::BatchesInFlight;
use super::proposing::Step;
use super::{Config, Message};
use crate::epaxos::graph::learner::{self, Host, Record};
use crate::epaxos::graph::{Learner, PendingQuorums, Watch};

/// A replica's wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Time to tell how far it is, and to look after what does not get on.
    Tick,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    /// What is known of instances, executes them, and talks to clients.
    pub(super) learner: Learner,
    /// What this replica proposes, or recovers.
    pub(super) pending: PendingQuorums<Step, Message>,
    /// Recoveries of others that wait, with their *|R|*.
    pub(super) waits: BTreeMap<Instance, u64>,
    /// When to recover what does not get on.
    pub(super) watch: Watch,
    /// Own batches on their way.
    pub(super) in_flight: BatchesInFlight,
}

pub(super) type Cx<'a> = Context<'a, Replica>;

/// A ballot of an instance.
pub(super) type Attempt = (Instance, Ballot);

/// Who proposes in it: ballot zero is the owner's.
pub(super) fn proposer((instance, ballot): Attempt) -> NodeId {
    ballot.node().unwrap_or(instance.owner())
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    /// It finds out what does not get on, and later recovers it.
    fn wakeup(Timer::Tick: Timer) -> Wakeup {
        Wakeup::TakesOver { times: 2 }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Cx<'_>) -> Self {
        let learner = Learner::recover(config.learner.clone(), saved, cx);
        let me = learner.me();
        cx.set_timer(Timer::Tick, config.learner.heartbeat);
        let (pending, waits, watch) = (PendingQuorums::default(), BTreeMap::new(), Watch::default());
        let in_flight = BatchesInFlight::new(me, config.learner.heartbeat);
        Replica { config, learner, pending, waits, watch, in_flight }
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Cx<'_>) {
        if let Message::Client(message) = message {
            return self.learner.on_client(from, message, cx.now());
        }
        let Some(from) = from.replica().filter(|from| self.config.members().contains(*from)) else { return };
        let learns = matches!(message, Message::Learner(_) | Message::Commit { .. });
        if !learns && !self.learner.is_whole() {
            return;
        }
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Learner(message) => {
                if let learner::Message::Progress(_) = message {
                    self.in_flight.on_heard(from, cx.now());
                }
                if self.learner.on_message(from, message, cx) {
                    self.pending.retain(|instance| !self.learner.is_executed(instance));
                    self.waits.retain(|instance, _| !self.learner.is_executed(*instance));
                }
            }
            Message::PreAccept { instance, value, deps } if from == instance.owner() => {
                self.on_pre_accept(instance, value, deps, cx);
            }
            Message::Accept { instance, ballot, value, deps } if from == proposer((instance, ballot)) => {
                self.on_accept((instance, ballot), value, deps, cx);
            }
            Message::Recover { instance, ballot } if ballot.node() == Some(from) => {
                self.on_recover((instance, ballot), cx);
            }
            Message::Validate { instance, ballot, value, deps } if ballot.node() == Some(from) => {
                self.on_validate((instance, ballot), value, deps, cx);
            }
            // Forged: only these may propose.
            Message::PreAccept { .. } | Message::Accept { .. } => {}
            Message::Recover { .. } | Message::Validate { .. } => {}
            Message::PreAcceptReply { instance, deps } => {
                self.in_flight.on_answer(from, instance, cx.now());
                self.on_pre_accepted(from, instance, deps, cx);
            }
            Message::AcceptReply { instance, ballot } => {
                self.in_flight.on_answer(from, instance, cx.now());
                self.on_accepted(from, (instance, ballot), cx);
            }
            Message::Commit { instance, value, deps } => self.on_commit(instance, value, deps, cx),
            Message::RecoverReply { instance, ballot, vote } => {
                self.on_recover_reply(from, (instance, ballot), vote, cx);
            }
            Message::ValidateReply { instance, ballot, against, forgotten } => {
                self.on_validated(from, (instance, ballot), (against, forgotten), cx);
            }
            Message::Waiting { instance, count } => self.on_waiting(instance, count, cx),
            Message::Reject { instance, ballot } => self.on_reject((instance, ballot), cx),
        }
    }

    fn on_timer(&mut self, Timer::Tick: Timer, cx: &mut Cx<'_>) {
        cx.set_timer(Timer::Tick, self.config.learner.heartbeat);
        self.learner.tick(cx);
        if self.learner.is_whole() {
            self.repeat(cx);
            self.look_after(cx);
        }
    }

    fn on_batch_end(&mut self, cx: &mut Cx<'_>) {
        self.learner.execute_decided(cx);
        if self.learner.is_whole() {
            self.propose(cx);
        }
        self.learner.flush(cx);
    }

    fn check(&self) {
        self.learner.check();
        for (instance, quorum) in self.pending.iter() {
            let held = self.learner.get(instance).expect("a quorum is in the table");
            assert!(!held.is_committed(), "{instance:?}: nothing is left to do");
            assert!(quorum.ballot <= held.state.ballot, "{instance:?}: works in a ballot that it has joined");
        }
    }
}

impl Host for Replica {
    fn commit(instance: Instance, value: Option<Bytes>, deps: Frontier) -> Message {
        Message::Commit { instance, value, deps }
    }
}

impl quorate_core::Replica for Replica {
    fn found(config: &Config, state: Snapshot) -> Saved<Record> {
        Learner::found(&config.learner, &state)
    }

    fn save(&self) -> Saved<Record> {
        self.learner.save()
    }

    fn salvage(&self) -> Salvaged {
        self.learner.salvage()
    }

    fn on_drain(&mut self, _: &mut Cx<'_>) {
        self.learner.drain();
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.learner.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.learner.state().read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.learner.state().fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        self.learner.status(at)
    }
}
