//! The replica: acceptor and learner, and the dispatch of everything that comes in.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use quorate_core::{
    Context, Fact, Instant, Machine, Mark, NodeId, NodeSet, PeerStatus, ProcessId, Saved, Status, Time,
    digest,
};
use quorate_parts::ballot::Ballot;
use quorate_parts::batch::Entry;
use quorate_parts::catchup::{Catchup, Source};
use quorate_parts::clients::{self, Intake, PendingRead, ReadQueue};
use quorate_parts::graph::{Conflicts, Frontier, Graph, Instance, Interference};
use quorate_parts::state::{Effect, Replicated};

use super::instance::{Held, Phase};
use super::message::{Progress, Record};
use super::proposing::Duty;
use super::{Config, MAX_GAP, Message, invariants};

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
    pub(super) me: NodeId,
    /// What is known of instances that are not collected.
    pub(super) table: BTreeMap<Instance, Held>,
    /// Bytes in it.
    pub(super) bytes: usize,
    pub(super) graph: Graph,
    pub(super) state: Replicated,
    /// Who touched what last.
    pub(super) seen: Conflicts,
    /// Collected early: what they touch.
    pub(super) settled: BTreeMap<Instance, Interference>,
    /// Collected without such a trace.
    pub(super) forgotten: Frontier,
    pub(super) collected: Frontier,
    /// Up to here all are committed.
    pub(super) committed: Frontier,
    /// Up to here some were heard of.
    pub(super) known: Frontier,
    /// What this replica proposes, or recovers.
    pub(super) duties: BTreeMap<Instance, Duty>,
    /// Recoveries of others that wait, with their *|R|*.
    pub(super) waits: BTreeMap<Instance, u64>,
    /// When to recover what does not get on.
    pub(super) stuck: BTreeMap<Instance, Time>,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) catchup: Catchup,
    pub(super) source: Source,
    /// How much the last snapshot that came had executed: the next must be another.
    pub(super) wanted: u64,
    /// When somebody was asked for what is missing, until all of the answer has come.
    pub(super) asked: Option<Time>,
    pub(super) intake: Intake,
    /// Reads that need an instance, and those that have one.
    pub(super) queue: ReadQueue,
    pub(super) reads: BTreeMap<Instance, Vec<PendingRead>>,
    /// To propose although no client asks for it.
    pub(super) extra: Vec<Entry>,
    /// The own instance that last made keys expire.
    pub(super) expiring: u64,
    /// The index of the next own instance.
    pub(super) next: u64,
    /// Own instances that may not be executed everywhere, with what they depend on at least.
    pub(super) unfinished: VecDeque<(u64, Frontier)>,
    /// All own instances depend on this from now on.
    pub(super) base: Frontier,
    pub(super) draining: bool,
}

/// Another member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    pub(super) heard: Option<Time>,
    pub(super) progress: Progress,
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let me = cx.me().replica().expect("a replica's process id");
        let state =
            saved.snapshot.map(|image| Replicated::load(&image).expect("an image that was saved loads"));
        let state = state.unwrap_or_default();
        let hull = state.executed().hull();
        let others = config.members.without(me);
        let mut replica = Replica {
            me,
            table: BTreeMap::new(),
            bytes: 0,
            graph: Graph::default(),
            seen: Conflicts::default(),
            settled: BTreeMap::new(),
            forgotten: Frontier::default(),
            collected: Frontier::default(),
            committed: state.executed().prefix(),
            known: hull,
            duties: BTreeMap::new(),
            waits: BTreeMap::new(),
            stuck: BTreeMap::new(),
            peers: others.iter().map(|node| (node, Peer::default())).collect(),
            catchup: Catchup::default(),
            source: Source::default(),
            wanted: 0,
            asked: None,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            queue: ReadQueue::default(),
            reads: BTreeMap::new(),
            extra: Vec::new(),
            expiring: 0,
            next: hull.of(me) + 1,
            unfinished: VecDeque::new(),
            base: hull,
            draining: false,
            state,
            config,
        };
        for record in saved.records {
            replica.replay(record);
        }
        replica.seen.miss(&hull);
        let slot = replica.state.applied();
        cx.note(|| Fact::Installed { slot });
        let held = replica.table.iter().filter(|(_, held)| held.is_committed());
        let decided = held.map(|(instance, _)| *instance).collect();
        replica.resume(decided, cx);
        // Whoever waits for answers of an earlier life asks again.
        replica.intake.clear();
        cx.set_timer(Timer::Tick, replica.config.heartbeat);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        if let Message::Client(message) = message {
            return self.on_client(from, message);
        }
        let Some(from) = from.replica().filter(|from| self.config.members.contains(*from)) else { return };
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::PreAccept { instance, value, deps } => {
                self.on_pre_accept(from, instance, value, deps, cx)
            }
            Message::PreAcceptReply { instance, deps } => self.on_pre_accept_reply(from, instance, deps, cx),
            Message::Accept { instance, ballot, value, deps } => {
                self.on_accept(from, (instance, ballot), value, deps, cx);
            }
            Message::AcceptReply { instance, ballot } => self.on_accept_reply(from, instance, ballot, cx),
            Message::Commit { instance, value, deps } => self.on_commit(instance, value, deps, cx),
            Message::Recover { instance, ballot } => self.on_recover(from, instance, ballot, cx),
            Message::RecoverReply { instance, ballot, vote } => {
                self.on_recover_reply(from, instance, ballot, vote, cx);
            }
            Message::Validate { instance, ballot, value, deps } => {
                self.on_validate(from, (instance, ballot), value, deps, cx);
            }
            Message::ValidateReply { instance, ballot, against } => {
                self.on_validate_reply(from, instance, ballot, against, cx);
            }
            Message::Waiting { instance, count } => self.on_waiting(instance, count, cx),
            Message::Reject { instance, ballot } => self.on_reject(instance, ballot),
            Message::Ask { committed } => self.on_ask(from, committed, cx),
            Message::Answered { more } => self.on_answered(from, more, cx),
            Message::Progress(progress) => self.on_progress(from, progress, cx),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Tick => self.on_tick(cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.propose(cx);
        for (proxy, message) in self.intake.flush(&self.state) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        invariants::check(self);
    }
}

impl Replica {
    fn replay(&mut self, record: Record) {
        match record {
            Record::Changed { instance, state, command } => {
                let held = self.table.entry(instance).or_default();
                held.state = state;
                if let Some(command) = command {
                    held.learn(&command);
                    held.recorded = true;
                }
                if instance.owner() == self.me && instance.index() >= self.next {
                    self.next = instance.index() + 1;
                    self.unfinished.push_back((instance.index(), state.init.unwrap_or_default()));
                }
            }
            Record::Installed => {}
            Record::Saved { next, collected, floor, forgotten } => {
                (self.next, self.collected, self.forgotten) = (next.max(self.next), collected, forgotten);
                self.unfinished.push_back((next - 1, floor));
            }
            Record::Settled { instance, touched } => drop(self.settled.insert(instance, touched)),
        }
    }

    /// Goes on at a start, or after a snapshot was installed: these are decided.
    pub(super) fn resume(&mut self, decided: Vec<Instance>, cx: &mut Context<'_, Self>) {
        let mut order = Vec::new();
        self.bytes = self.table.values().map(Held::bytes).sum();
        for (instance, held) in &self.table {
            self.known.add(*instance);
            if !held.state.noop && held.command.is_some() {
                self.seen.add(*instance, &held.touched);
            }
        }
        for instance in decided {
            let held = &self.table[&instance];
            note_decided(instance, held, cx);
            self.graph.decide(instance, held.state.deps, self.state.executed_mut(), &mut order);
        }
        self.execute(order, cx);
        for owner in self.config.members.iter() {
            self.advance(owner);
        }
    }

    /// Whether to take note of what is said about this instance: it is not executed, and not too far ahead.
    pub(super) fn admits(&mut self, instance: Instance) -> bool {
        let owner = instance.owner();
        let near = instance.index() <= self.committed.of(owner).saturating_add(MAX_GAP);
        let admits = near && self.config.members.contains(owner) && !self.state.executed().contains(instance);
        if admits {
            self.known.add(instance);
        }
        admits
    }

    /// Records how an instance is now, and its batch with it the first time.
    pub(super) fn record(&mut self, instance: Instance, cx: &mut Context<'_, Self>) {
        let held = self.table.get_mut(&instance).expect("what changes is in the table");
        invariants::check_instance(instance, held);
        let fresh = !held.recorded && held.command.is_some();
        held.recorded |= fresh;
        if fresh {
            self.bytes += held.bytes();
        }
        let command = held.command.clone().filter(|_| fresh);
        cx.persist(Record::Changed { instance, state: held.state, command });
    }

    /// Tells somebody who asks about an instance that it is committed.
    pub(super) fn tell(&self, to: NodeId, instance: Instance, cx: &mut Context<'_, Self>) {
        let held = &self.table[&instance];
        let (value, deps) = (held.value(), held.state.deps);
        cx.send(to, Message::Commit { instance, value, deps });
    }

    // Voting -----------------------------------------------------------------------------------------------------

    fn on_pre_accept(
        &mut self,
        from: NodeId,
        instance: Instance,
        value: Bytes,
        init: Frontier,
        cx: &mut Context<'_, Self>,
    ) {
        if from != instance.owner() || init.contains(instance) || value.is_empty() || !self.admits(instance) {
            return;
        }
        let held = self.table.entry(instance).or_default();
        match (held.state.phase, held.state.ballot == Ballot::ZERO) {
            (Phase::Committed, _) => return self.tell(from, instance, cx),
            (Phase::PreAccepted, true) => {}
            (Phase::Initial, true) => {
                held.learn(&value);
                let mut deps = init.union(&self.seen.with(&held.touched));
                // Its owner's later ones know of it.
                deps.set(from, deps.of(from).min(instance.index() - 1));
                (held.state.phase, held.state.init, held.state.deps) = (Phase::PreAccepted, Some(init), deps);
                self.seen.add(instance, &held.touched);
                self.record(instance, cx);
            }
            (Phase::Initial | Phase::PreAccepted, false) | (Phase::Accepted, _) => return,
        }
        let deps = self.table[&instance].state.deps;
        cx.send(from, Message::PreAcceptReply { instance, deps });
    }

    fn on_accept(
        &mut self,
        from: NodeId,
        (instance, ballot): (Instance, Ballot),
        value: Option<Bytes>,
        deps: Frontier,
        cx: &mut Context<'_, Self>,
    ) {
        let proposer = ballot.node().unwrap_or(instance.owner());
        if from != proposer || deps.contains(instance) || !self.admits(instance) {
            return;
        }
        let held = self.table.entry(instance).or_default();
        if held.is_committed() {
            return self.tell(from, instance, cx);
        }
        if ballot < held.state.ballot {
            let ballot = held.state.ballot;
            return cx.send(from, Message::Reject { instance, ballot });
        }
        if value.is_none() && held.command.is_none() {
            return;
        }
        held.take(&value);
        (held.state.ballot, held.state.voted) = (ballot, ballot);
        (held.state.phase, held.state.deps) = (Phase::Accepted, deps);
        if !held.state.noop {
            self.seen.add(instance, &held.touched);
        }
        self.record(instance, cx);
        self.give_up(instance, ballot);
        cx.send(from, Message::AcceptReply { instance, ballot });
    }

    /// Another is at work on this instance, in a higher ballot than this one's own duty.
    pub(super) fn give_up(&mut self, instance: Instance, ballot: Ballot) {
        if self.duties.get(&instance).is_some_and(|duty| duty.ballot < ballot) {
            self.duties.remove(&instance);
        }
    }

    // Learning ---------------------------------------------------------------------------------------------------

    fn on_commit(
        &mut self,
        instance: Instance,
        value: Option<Bytes>,
        deps: Frontier,
        cx: &mut Context<'_, Self>,
    ) {
        if deps.contains(instance) || !self.admits(instance) || self.graph.contains(instance) {
            return;
        }
        let held = self.table.entry(instance).or_default();
        if value.is_none() && held.command.is_none() {
            // It comes again, with its batch.
            return;
        }
        let noop = value.as_ref().is_some_and(Bytes::is_empty);
        if held.is_committed() {
            assert!(held.state.noop == noop && held.state.deps == deps, "{instance:?} is decided once");
        } else {
            held.take(&value);
            (held.state.phase, held.state.deps) = (Phase::Committed, deps);
            self.record(instance, cx);
        }
        let held = &self.table[&instance];
        note_decided(instance, held, cx);
        if instance.owner() == self.me {
            cx.mark(Mark::Committed { slot: instance.number() });
        }
        if !noop {
            self.seen.add(instance, &held.touched);
        } else if instance.owner() == self.me {
            // Whoever asked for it still waits for it.
            held.command.iter().for_each(|command| self.intake.retry(command));
            let reads = self.reads.remove(&instance).into_iter().flatten();
            reads.for_each(|read| self.queue.again(read));
        }
        self.duties.remove(&instance);
        self.waits.remove(&instance);
        let mut order = Vec::new();
        self.graph.decide(instance, deps, self.state.executed_mut(), &mut order);
        self.execute(order, cx);
        self.advance(instance.owner());
        self.review_waiting(cx);
    }

    fn execute(&mut self, order: Vec<Instance>, cx: &mut Context<'_, Self>) {
        for instance in order {
            let value = self.table[&instance].value().expect("what is decided is known");
            let requests = self.state.apply_instance(
                instance,
                &value,
                |effect| match effect {
                    // One replica is enough to tell it.
                    Effect::Opened { .. } if instance.owner() != self.me => {}
                    effect => self.intake.on_effect(effect),
                },
                |fact| cx.note(fact),
            );
            if instance.owner() == self.me {
                cx.mark(Mark::Applied { slot: instance.number(), requests });
            }
            for read in self.reads.remove(&instance).into_iter().flatten() {
                match self.state.read(&read.command, cx.wall()) {
                    Some(reply) => {
                        self.queue.done(&read);
                        self.intake.on_read(read, reply);
                    }
                    // An instance must decide whether what it touches has expired.
                    None => self.queue.again(read),
                }
            }
        }
    }

    fn advance(&mut self, owner: NodeId) {
        loop {
            let next = Instance::new(owner, self.committed.of(owner) + 1);
            if !self.state.executed().contains(next) && !self.table.get(&next).is_some_and(Held::is_committed)
            {
                return;
            }
            self.committed.add(next);
        }
    }

    fn on_client(&mut self, from: ProcessId, message: clients::Message) {
        let clients::Message::Ask(ask) = message else { return };
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        if self.draining {
            self.intake.redirect(from, ask.nonce, None);
        } else {
            self.intake.on_ask(from, ask, &self.state);
        }
    }

    /// All members but this.
    pub(super) fn others(&self) -> NodeSet {
        self.config.members.without(self.me)
    }
}

fn note_decided(instance: Instance, held: &Held, cx: &mut Context<'_, Replica>) {
    cx.note(|| {
        let digest = digest(&held.value().expect("what is decided is known"));
        let deps = held.state.deps.iter().map(|(_, index)| index).collect();
        Fact::Decided { slot: instance.number(), digest, deps }
    });
}

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let (next, collected, floor) = (self.next, self.collected, self.floor());
        let mut records = vec![Record::Saved { next, collected, floor, forgotten: self.forgotten }];
        let settled = self.settled.iter();
        records.extend(
            settled.map(|(&instance, touched)| Record::Settled { instance, touched: touched.clone() }),
        );
        records.extend(self.table.iter().map(|(&instance, held)| {
            let (state, command) = (held.state, held.command.clone());
            Record::Changed { instance, state, command }
        }));
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records }
    }

    fn on_drain(&mut self, _: &mut Context<'_, Self>) {
        self.draining = true;
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }

    fn status(&self, at: Instant) -> Status {
        let executed = self.state.executed().prefix();
        let peers = self.peers.iter().map(|(&node, peer)| PeerStatus {
            node,
            lag: executed.len().saturating_sub(peer.progress.executed.len()),
            heard_ms: peer.heard.map(|heard| at.now.since(heard).as_millis() as u64),
        });
        Status {
            role: "replica",
            leader: None,
            ballot: "-".to_owned(),
            committed: self.committed.len().max(self.state.applied()),
            applied: self.state.applied(),
            lease: false,
            reads: "quorum",
            peers: peers.collect(),
            samples: Vec::new(),
            facts: Vec::new(),
        }
    }
}
