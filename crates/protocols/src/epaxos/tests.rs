//! What a replica says where batches are large, and where they are small: to whom, and whether the batch is in it; and
//! what it keeps to when it comes back.

use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Entry};
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{
    Context, Group, Instant, Machine, NodeId, NodeSet, Outbox, Protocol, Random, Saved, Settings, Time, Wall,
    Wire,
};
use quorate_store::{Command, Condition, Expiry};

use super::graph::learner::message::{Message as Said, Progress, Record};
use super::graph::{LARGE_BATCH, State};
use super::proposing::Proposal;
use super::{Epaxos, Message, Replica, Timer};

mod bounds;
mod clients;
mod forgetting;
mod recovery;
mod rejoining;
mod snapshots;

/// The replica of node 1, of three or more.
struct Bench {
    replica: Replica,
    random: Random,
    out: Outbox<Replica>,
    millis: u64,
}

fn node(id: u64) -> NodeId {
    NodeId::new(id).expect("an id")
}

fn at(owner: u64, index: u64) -> Instance {
    Instance::new(node(owner), index)
}

fn ballot(rounds: u64, of: u64) -> Ballot {
    (0..rounds).fold(Ballot::ZERO, |ballot, _| ballot.next(node(of)))
}

/// The smallest frontier with all of these.
fn on(instances: &[Instance]) -> Frontier {
    let mut frontier = Frontier::default();
    instances.iter().for_each(|instance| frontier.add(*instance));
    frontier
}

/// A batch that writes this key.
fn write(key: &str) -> Bytes {
    let (key, value) = (Bytes::copy_from_slice(key.as_bytes()), Bytes::new());
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    let put = Command::Put { key, value, condition, expiry, old: false };
    Batch::extended(Wall::from_millis(1).to_bytes(), &[Entry::Read { command: put.to_bytes() }])
}

fn batch(bytes: usize) -> Bytes {
    Bytes::from(vec![b'b'; bytes])
}

fn instant(millis: u64) -> Instant {
    let now = Time::ZERO + Duration::from_millis(millis);
    Instant { now, wall: Wall::from_millis(millis), clock: None }
}

impl Bench {
    /// With these instances in its log, pre-accepted with a batch of so many bytes.
    fn new(pre_accepted: &[Instance], bytes: usize) -> Bench {
        Bench::of(3, pre_accepted, batch(bytes))
    }

    /// The same, of so many replicas and with this batch.
    fn of(members: u64, pre_accepted: &[Instance], batch: Bytes) -> Bench {
        let mut state = State::default();
        state.pre_accept(Frontier::default(), Frontier::default());
        let changed = |instance: &Instance| {
            let command = Some(batch.clone());
            Record::Changed { instance: *instance, state, command }
        };
        Bench::recover(members, pre_accepted.iter().map(changed).collect())
    }

    /// Back from these records, of so many replicas.
    fn recover(members: u64, records: Vec<Record>) -> Bench {
        let group = Group::of((1..=members).map(node).collect());
        Bench::begin(&group, &[], Saved { records, ..Saved::nothing() })
    }

    /// Back from what was saved, in this group and with these settings.
    fn begin(group: &Group, settings: &[&str], saved: Saved<Record>) -> Bench {
        let mut settings = Settings::parse(settings).expect("settings");
        let (config, _) = Epaxos::configure(group, &mut settings).expect("they fit together");
        let records = saved.records.clone();
        let (mut random, mut out) = (Random::new(1), Outbox::new(true));
        let mut cx = Context::new(node(1).into(), instant(0), &mut random, &mut out);
        let replica = Replica::recover(config, saved, &mut cx);
        out.records.splice(..0, records);
        let mut bench = Bench { replica, random, out, millis: 0 };
        bench.said();
        bench
    }

    /// It crashes when all is durable that it has persisted, and comes back, of three replicas.
    fn restart(self) -> Bench {
        Bench::recover(3, self.out.records)
    }

    /// A step, so many milliseconds after the last: what is said upon it.
    fn step(
        &mut self,
        after: u64,
        input: impl FnOnce(&mut Replica, &mut Context<'_, Replica>),
    ) -> Vec<String> {
        self.millis += after;
        let at = instant(self.millis);
        input(&mut self.replica, &mut Context::new(node(1).into(), at, &mut self.random, &mut self.out));
        self.replica.check();
        self.said()
    }

    /// A step and the end of its batch, so many milliseconds after the last: all that is said upon it, to anybody.
    fn turn(
        &mut self,
        after: u64,
        input: impl FnOnce(&mut Replica, &mut Context<'_, Replica>),
    ) -> Vec<Message> {
        self.millis += after;
        let at = instant(self.millis);
        let mut cx = Context::new(node(1).into(), at, &mut self.random, &mut self.out);
        input(&mut self.replica, &mut cx);
        self.replica.on_batch_end(&mut cx);
        self.replica.check();
        self.out.messages.drain(..).map(|outgoing| outgoing.message).collect()
    }

    /// A message arrives: all that is said upon it.
    fn take(&mut self, from: u64, message: impl Into<Message>) -> Vec<Message> {
        self.turn(0, |replica, cx| replica.on_message(node(from).into(), message.into(), cx))
    }

    /// It learns of its owner that this is decided, depends on nothing, and executes it.
    fn decide(&mut self, instance: Instance, value: Bytes) {
        let (value, deps) = (Some(value), Frontier::default());
        self.take(instance.owner().get().into(), Message::Commit { instance, value, deps });
        assert!(self.replica.learner.is_executed(instance), "{instance:?}");
    }

    /// A heartbeat later: how far it says to be.
    fn progress(&mut self) -> Progress {
        let said = self.turn(100, |replica, cx| replica.on_timer(Timer::Tick, cx));
        let progress = said.into_iter().find_map(|message| match message {
            Message::Learner(Said::Progress(progress)) => Some(progress),
            _ => None,
        });
        progress.expect("it says so with each heartbeat")
    }

    /// The same, and it is durable.
    fn durable_progress(&mut self) -> Progress {
        let progress = self.progress();
        self.take(1, Said::Progress(progress));
        progress
    }

    /// So many heartbeats later; what is said with each is durable.
    fn heartbeats(&mut self, count: usize) {
        for _ in 0..count {
            self.durable_progress();
        }
    }

    /// All of three say to have executed it, and what they propose to depend on it: its batch goes.
    fn collect(&mut self, instance: Instance) {
        let (executed, floor) = (on(&[instance]), on(&[instance]));
        for member in 2..=3 {
            self.take(member, Said::Progress(Progress { executed, floor, ..Progress::default() }));
        }
        self.durable_progress();
        self.progress();
        assert!(self.replica.learner.get(instance).is_none(), "{instance:?} is collected");
    }

    /// A message arrives after so many milliseconds: what is said upon it.
    fn hear(&mut self, from: u64, message: impl Into<Message>, after: u64) -> Vec<String> {
        self.step(after, |replica, cx| replica.on_message(node(from).into(), message.into(), cx))
    }

    /// Proposes the batch of an instance, as these have it: what is said.
    fn accept(&mut self, instance: Instance, bytes: usize, knowing: &[u64]) -> Vec<String> {
        let (ballot, knowing) = (ballot(1, 1), knowing.iter().copied().map(node).collect::<NodeSet>());
        self.step(0, |replica, cx| {
            let held = replica.learner.entry(instance);
            held.learn(&batch(bytes));
            held.state.ballot = ballot;
            let proposal = Proposal { noop: false, deps: Frontier::default() };
            replica.accept((instance, ballot), proposal, knowing, cx);
        })
    }

    /// So much later, what was not answered is said again.
    fn tick(&mut self, after: u64) -> Vec<String> {
        self.step(after, |replica, cx| replica.on_timer(Timer::Tick, cx))
    }

    /// What it has said since to others that is about instances, in the order of receivers.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for outgoing in self.out.messages.drain(..) {
            let kind = quorate_core::Message::kind(&outgoing.message);
            let is_about_one = !matches!(outgoing.message, Message::Client(_) | Message::Learner(_));
            let with = if outgoing.message.batch().is_some() { " with the batch" } else { "" };
            for id in 2..=3 {
                if is_about_one && outgoing.to.iter().any(|to| to == node(id).into()) {
                    said.push(format!("{id}: {kind}{with}"));
                }
            }
        }
        said.sort();
        said
    }
}

#[test]
fn who_has_a_large_batch_is_asked_again_without_it() {
    for (bytes, again) in [
        (LARGE_BATCH, ["2: Accept", "3: Accept with the batch"]),
        (LARGE_BATCH - 1, ["2: Accept with the batch", "3: Accept with the batch"]),
    ] {
        let mut bench = Bench::new(&[], 0);
        let first = bench.accept(at(2, 1), bytes, &[1, 2]);
        assert_eq!(first, ["2: Accept", "3: Accept with the batch"], "{bytes}");
        assert_eq!(bench.tick(800), again, "{bytes}");
    }
}

#[test]
fn who_rejoins_is_not_sent_large_batches_before_they_are_decided() {
    let rejoin = || Said::Rejoin { life: 1, union: Frontier::default() };
    for bytes in [LARGE_BATCH, LARGE_BATCH - 1] {
        let (mut bench, is_large) = (Bench::new(&[], 0), bytes == LARGE_BATCH);
        bench.hear(3, rejoin(), 0);
        let both = ["2: Accept with the batch", "3: Accept with the batch"];
        let voters = if is_large { &both[..1] } else { &both };
        assert_eq!(bench.accept(at(2, 1), bytes, &[1]), voters, "{bytes}");
        assert_eq!(bench.tick(800), voters, "{bytes}");
        let votes = || Message::AcceptReply { instance: at(2, 1), ballot: ballot(1, 1) };
        let decides = [bench.hear(2, votes(), 0), bench.hear(1, votes(), 0)].concat();
        assert_eq!(decides, ["2: Commit", "3: Commit with the batch"], "{bytes}");
        assert_eq!(bench.accept(at(2, 2), bytes, &[1]), voters, "{bytes}");
        // It takes part again.
        let mut executed = Frontier::default();
        executed.add(at(1, 1));
        bench.hear(3, Said::Progress(Progress { executed, ..Progress::default() }), 0);
        assert_eq!(bench.tick(800), both, "{bytes}");
    }
}

#[test]
fn a_large_decision_that_may_be_on_its_way_is_told_without_its_batch() {
    let ask = || Said::Ask { committed: Frontier::default() };
    for (bytes, again) in [(LARGE_BATCH, "3: Commit"), (LARGE_BATCH - 1, "3: Commit with the batch")] {
        let mut bench = Bench::new(&[], 0);
        let (instance, deps) = (at(2, 1), Frontier::default());
        bench.hear(2, Message::Commit { instance, value: Some(batch(bytes)), deps }, 0);
        assert_eq!(bench.hear(3, ask(), 0), ["3: Commit with the batch"], "{bytes}");
        assert_eq!(bench.hear(3, ask(), 1000), [again], "{bytes}");
        assert_eq!(bench.hear(2, ask(), 0), ["2: Commit with the batch"], "{bytes}: another");
        assert_eq!(bench.hear(3, ask(), 4000), ["3: Commit with the batch"], "{bytes}: it may be lost");
    }
}

#[test]
fn a_recovery_is_answered_once_while_a_large_batch_may_be_on_its_way() {
    let recover = |rounds| Message::Recover { instance: at(2, 1), ballot: ballot(rounds, 3) };
    for bytes in [LARGE_BATCH, LARGE_BATCH - 1] {
        let (mut bench, reply) = (Bench::new(&[at(2, 1)], bytes), ["3: RecoverReply with the batch"]);
        assert_eq!(bench.hear(3, recover(1), 0), reply, "{bytes}");
        assert_eq!(bench.hear(3, recover(1), 800).is_empty(), bytes == LARGE_BATCH, "{bytes}");
        assert_eq!(bench.hear(3, recover(2), 0), reply, "{bytes}: another ballot");
        assert_eq!(bench.hear(3, recover(2), 5000), reply, "{bytes}: it may be lost");
    }
}

#[test]
fn a_large_batch_that_becomes_a_no_op_since_its_owner_takes_part_is_not_told() {
    for (bytes, with) in [(LARGE_BATCH, ""), (LARGE_BATCH - 1, " with the batch")] {
        let mut bench = Bench::new(&[at(1, 1), at(2, 1)], bytes);
        let by_another = bench.hear(3, Message::Recover { instance: at(1, 1), ballot: ballot(1, 3) }, 0);
        assert_eq!(by_another, [format!("3: RecoverReply{with}")], "{bytes}");
        let by_owner = bench.hear(2, Message::Recover { instance: at(2, 1), ballot: ballot(1, 2) }, 0);
        assert_eq!(by_owner, [format!("2: RecoverReply{with}")], "{bytes}");
        // Who has voted for the batch tells it to its owner, too.
        let (instance, deps, value) = (at(2, 1), Frontier::default(), Some(batch(bytes)));
        bench.hear(3, Message::Accept { instance, ballot: ballot(2, 3), value, deps }, 0);
        let by_owner = bench.hear(2, Message::Recover { instance, ballot: ballot(3, 2) }, 0);
        assert_eq!(by_owner, ["2: RecoverReply with the batch"], "{bytes}");
    }
}

/// Whoever counts the promise relies on it: another that recovers the instance in a ballot between may have what was
/// voted for, which the promise says cannot be.
#[test]
fn a_ballot_that_was_heard_of_in_a_rejection_is_promised_durably() {
    let instance = at(2, 1);
    let mut bench = Bench::new(&[instance], 1);
    bench.hear(3, Message::Reject { instance, ballot: ballot(2, 3) }, 0);
    let promises = bench.hear(3, Message::Recover { instance, ballot: ballot(2, 3) }, 0);
    assert_eq!(promises, ["3: RecoverReply with the batch"]);
    let mut bench = bench.restart();
    let (ballot, deps, value) = (ballot(2, 2), Frontier::default(), Some(batch(1)));
    assert_eq!(bench.hear(2, Message::Accept { instance, ballot, value, deps }, 0), ["2: Reject"]);
}

/// The batch goes to those only who are not known to have it. Who does not, votes for nothing, and learns nothing.
#[test]
fn a_batch_that_is_not_known_is_not_voted_for() {
    let (instance, deps) = (at(2, 1), Frontier::default());
    let accept = |value| Message::Accept { instance, ballot: ballot(1, 2), value, deps };
    let mut bench = Bench::new(&[], 0);
    assert!(bench.hear(2, accept(None), 0).is_empty());
    assert!(bench.hear(2, Message::Commit { instance, value: None, deps }, 0).is_empty());
    assert!(bench.replica.learner.get(instance).is_none_or(|held| !held.is_committed()));
    assert_eq!(bench.hear(2, accept(Some(batch(1))), 0), ["2: AcceptReply"]);
    assert_eq!(bench.hear(2, accept(None), 0), ["2: AcceptReply"], "it is known now");
}
