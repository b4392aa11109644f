//! One replica with its disk, timers and clock, driven input by input.

use std::fmt::Write;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Fact, Instant, Interval, NodeId, NodeSet, Payload, ProcessId, ProxyId, Random, Recipients, Saved,
    TextDigest, Time, Wakeup, Wall,
};
use quorate_runtime::{
    self as runtime, ConfiguredProtocol, GroupProcess, OutgoingFrame, OwnMessages, SetTimer, Start,
    StateDigests,
};

/// What wall clocks show when the monotonic clocks show nothing, in milliseconds.
const WALL: u64 = 1_000_000;
/// More messages to itself in a row, and a replica would never stop.
const ECHOES: usize = 1000;

/// How a process begins.
#[derive(Clone)]
pub(super) struct Origin {
    pub me: NodeId,
    pub protocol: Arc<dyn ConfiguredProtocol>,
    pub saved: Saved<Bytes>,
    /// What its clock shows.
    pub at: Time,
    /// How long it is left alone then: whatever an earlier life promised is over.
    pub rest: Duration,
    /// Whether it may crash: otherwise its records matter to nobody.
    pub mortal: bool,
    /// Timers that may go off; others are not set at all.
    pub heeds: fn(Wakeup) -> bool,
}

/// What can happen to it.
pub(super) enum Input {
    /// An encoded message of another process.
    Message(ProcessId, Bytes),
    /// The timer at this place of [`Process::timers`] goes off.
    Timer(usize),
    /// Time passes.
    Pass(Duration),
    /// From now on nothing is durable any more.
    Stall,
    /// It crashes and starts again, without the last so many records.
    Crash(usize),
    /// It will not crash any more.
    Survive,
}

/// What came of an input.
pub(super) struct Effects {
    pub sent: Vec<OutgoingFrame>,
    pub facts: Vec<Fact>,
    /// For people, if anybody reads it.
    pub lines: Option<Vec<String>>,
}

impl Effects {
    pub fn new(shown: bool) -> Effects {
        Effects { sent: Vec::new(), facts: Vec::new(), lines: shown.then(Vec::new) }
    }

    fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }
}

/// See the file comment. The proxy beside the replica is never asked anything.
pub(super) struct Process {
    origin: Origin,
    runner: Box<dyn GroupProcess>,
    pub now: Time,
    /// How long it was left alone.
    rested: Duration,
    /// Since the beginning, encoded.
    records: Vec<Bytes>,
    durable: usize,
    /// How many of the records are of earlier lives.
    born: usize,
    lives: u64,
    stalled: bool,
}

impl Process {
    /// Begins. What it says at once comes with it.
    pub fn start(origin: &Origin) -> (Process, Vec<OutgoingFrame>) {
        let mut process = Process {
            runner: recover(origin, origin.saved.clone(), instant(origin.at, Duration::ZERO), 1),
            origin: origin.clone(),
            now: origin.at,
            rested: Duration::ZERO,
            records: Vec::new(),
            durable: 0,
            born: 0,
            lives: 1,
            stalled: false,
        };
        let mut effects = Effects::new(false);
        process.settle(&mut effects);
        process.now += origin.rest;
        process.rested = origin.rest;
        (process, effects.sent)
    }

    /// Timers that are set, in their order.
    pub fn timers(&self) -> Vec<SetTimer> {
        self.runner.timers(self.me())
    }

    /// What the replica needs to start from.
    pub fn save(&self) -> Saved<Bytes> {
        let Saved { restarted, snapshot, records } = self.runner.save().expect("the replica runs");
        let records = records.into_iter().map(Payload::into_bytes).collect();
        Saved { restarted, snapshot, records }
    }

    pub fn fingerprint(&self) -> (u64, u64) {
        self.runner.fingerprint().expect("the replica runs")
    }

    /// Records that a crash may take.
    pub fn unsynced(&self) -> usize {
        self.records.len() - self.durable
    }

    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Which of its lives this is.
    pub fn life(&self) -> u64 {
        self.lives
    }

    fn instant(&self) -> Instant {
        instant(self.now, self.rested)
    }

    fn me(&self) -> ProcessId {
        self.origin.me.into()
    }

    /// Digests of everything that its future depends on. The generator is no part of it: each step has a fresh one.
    pub fn digests(&self) -> StateDigests {
        let StateDigests { exact, alike } = self.runner.digests().expect("the replica runs");
        let Process { origin, now, records, durable, lives, stalled, .. } = self;
        let mut digest = TextDigest::default();
        let all = (origin.me, now, lives, stalled, origin.mortal, durable, records);
        write!(digest, "{all:?}").expect("no error");
        let own = digest.get();
        StateDigests { exact: exact ^ own, alike: alike ^ own }
    }

    pub fn feed(&mut self, input: Input, effects: &mut Effects) {
        let me = self.me();
        match input {
            Input::Message(from, payload) => {
                let input = runtime::Input::Frame { from, to: me, payload };
                self.runner.take(input).expect("a message that was sent can be read");
                effects.line(|| format!("{me} <- {from} {}", self.runner.describe_taken()));
                self.step(effects);
            }
            Input::Timer(place) => {
                self.runner.take_timer(me, place);
                effects.line(|| format!("{me} timer {}", self.runner.describe_taken()));
                self.step(effects);
            }
            Input::Pass(time) => self.now += time,
            Input::Stall => self.stalled = true,
            Input::Survive => {
                assert!(!self.stalled, "whose disk stands still will crash");
                self.origin.mortal = false;
                self.records.clear();
                (self.durable, self.born) = (0, 0);
            }
            Input::Crash(lost) => {
                assert!(lost <= self.unsynced(), "what is durable survives");
                self.records.truncate(self.records.len() - lost);
                self.lives += 1;
                (self.durable, self.born) = (self.records.len(), self.records.len());
                self.stalled = false;
                let records = [&self.origin.saved.records[..], &self.records[..]].concat();
                let snapshot = self.origin.saved.snapshot.clone();
                let saved = Saved { restarted: true, snapshot, records };
                self.runner = recover(&self.origin, saved, self.instant(), self.lives);
                self.settle(effects);
            }
        }
    }

    /// Acts on the input that was taken.
    fn step(&mut self, effects: &mut Effects) {
        self.runner.reseed(random(self.origin.me, self.lives));
        self.runner.step(self.instant());
        self.settle(effects);
    }

    /// Ends the batch of one input; then everything that the replica says to itself about it: its own messages are
    /// heard before anything else, each in a batch of its own, as soon as its disk lets them go.
    fn settle(&mut self, effects: &mut Effects) {
        let me = self.me();
        let mut echoes = self.end_batch(effects);
        for _ in 0..ECHOES {
            if echoes == 0 {
                return;
            }
            self.runner.take(runtime::Input::Own).expect("it was announced");
            effects.line(|| format!("{me} <- {me} {}", self.runner.describe_taken()));
            self.runner.reseed(random(self.origin.me, self.lives));
            self.runner.step(self.instant());
            echoes += self.end_batch(effects);
            echoes -= 1;
        }
        panic!("{me} does not stop to speak to itself");
    }

    /// Gives how many messages it has sent to itself.
    fn end_batch(&mut self, effects: &mut Effects) -> usize {
        let me = self.me();
        self.runner.end_batch(self.instant());
        self.runner.keep_timers(self.origin.heeds);
        let runtime::Effects { records, barriers, facts, .. } = mem::take(self.runner.effects());
        assert!(barriers.is_empty(), "a state that came from elsewhere: explore without snapshots");
        effects.facts.extend(facts.into_iter().map(|(_, fact)| fact));
        for record in records {
            effects.line(|| format!("{me} persist {}", self.runner.describe_record(&record)));
            if self.origin.mortal {
                self.records.push(record.into_bytes());
            }
        }
        if !self.stalled {
            self.durable = self.records.len();
        }
        self.runner.release(if self.stalled { (self.durable - self.born) as u64 } else { u64::MAX });
        if self.runner.waiting() > 0 {
            effects.line(|| format!("{me} waits with {} messages for its disk", self.runner.waiting()));
        }
        let mut echoes = 0;
        for frame in mem::take(&mut self.runner.effects().frames) {
            assert_eq!(frame.from, me, "a proxy that is asked nothing says nothing");
            effects.line(|| self.describe(&frame));
            echoes += usize::from(frame.own);
            if frame.to != Recipients::Replicas(NodeSet::EMPTY) {
                effects.sent.push(frame);
            }
        }
        echoes
    }

    fn describe(&self, frame: &OutgoingFrame) -> String {
        let OutgoingFrame { from, to, own, kind, payload, .. } = frame;
        let names = own.then_some(*from).into_iter().chain(to.iter());
        let names: Vec<_> = names.map(|process| process.to_string()).collect();
        let message = match payload.len() {
            0 => (*kind).to_owned(),
            _ => self.runner.describe_message(&payload.clone().into_bytes()),
        };
        format!("{from} -> {} {message}", names.join(","))
    }
}

fn recover(origin: &Origin, saved: Saved<Bytes>, at: Instant, life: u64) -> Box<dyn GroupProcess> {
    let me = origin.me;
    let (proxy, own) = (ProxyId::of(me), OwnMessages::AsInput);
    let start = Start { proxy, node: Some(me), at, random: random(me, life), observed: true, own };
    let mut runner = origin.protocol.start(start).into_one_group().expect("explorations are of one group");
    runner.load(saved).expect("what a replica has saved can be read");
    runner.start_replica(at, random(me, life));
    runner.reseed(random(me, life));
    runner
}

/// What is drawn is the same in every step of a life, so that equal states have equal futures.
fn random(me: NodeId, life: u64) -> Random {
    Random::new(u64::from(me.get()) << 32 | life)
}

/// All clocks show the same, and true time is known exactly. Wall clocks go on with the others, so what is proposed has
/// the time of its proposer's own clock, whatever that has heard of others' clocks: states do not show the latter
/// (`crates/blocks/src/walls.rs`). They stood still while the group was left alone: no session has ended in between.
pub(super) fn instant(now: Time, rested: Duration) -> Instant {
    let nanos = now.nanos();
    let wall = Wall::from_millis(WALL + (nanos - rested.as_nanos() as u64) / 1_000_000);
    Instant { now, wall, clock: Some(Interval { earliest: nanos, latest: nanos }) }
}
