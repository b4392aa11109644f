//! One replica with its disk, timers and clock, driven input by input.

use std::collections::VecDeque;
use std::fmt::Write;
use std::time::Duration;

use quorate_core::{
    Context, Fact, Instant, Interval, Machine, Message, NodeId, Outgoing, ProcessId, Protocol, Random,
    Replica, Saved, Time, Wakeup, Wall, wide_digest,
};
use quorate_runtime::{MachineRunner, ReleaseGate};

/// What a wall clock shows: nothing about safety may depend on it, so it stands still.
const WALL: Wall = Wall::from_millis(1_000_000);
/// Where the `Debug` output of a machine shows what hardly ever makes a difference: between these. A guess, which
/// `locals` verifies: when each other replica was last heard.
const MARGINAL: &[(&str, &str)] = &[(", heard: {", "}")];
/// More messages to itself in a row, and a replica would never stop.
const ECHOES: usize = 1000;

pub(super) type Record<P> = <<P as Protocol>::Replica as Machine>::Record;
type Config<P> = <<P as Protocol>::Replica as Machine>::Config;
type Timer<P> = <<P as Protocol>::Replica as Machine>::Timer;

/// How a process begins.
pub(super) struct Origin<P: Protocol> {
    pub me: NodeId,
    pub config: Config<P>,
    pub saved: Saved<Record<P>>,
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
pub(super) enum Input<M> {
    Message(ProcessId, M),
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
pub(super) struct Effects<M> {
    pub sent: Vec<(ProcessId, M)>,
    pub facts: Vec<Fact>,
    /// For people, if anybody reads it.
    pub lines: Option<Vec<String>>,
}

impl<M> Effects<M> {
    pub fn new(shown: bool) -> Effects<M> {
        Effects { sent: Vec::new(), facts: Vec::new(), lines: shown.then(Vec::new) }
    }

    fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }
}

/// See the file comment.
pub(super) struct Process<P: Protocol> {
    me: NodeId,
    config: Config<P>,
    saved: Saved<Record<P>>,
    runner: MachineRunner<P::Replica>,
    gate: ReleaseGate<P::Message>,
    pub now: Time,
    /// Since the beginning.
    records: Vec<Record<P>>,
    durable: usize,
    /// How many of the records are of earlier lives.
    born: usize,
    lives: u64,
    stalled: bool,
    mortal: bool,
    heeds: fn(Wakeup) -> bool,
}

impl<P: Protocol> Process<P> {
    /// Begins. What it says at once comes with it.
    pub fn start(origin: &Origin<P>) -> (Process<P>, Vec<(ProcessId, P::Message)>) {
        let Origin { me, ref config, ref saved, at, rest, mortal, heeds } = *origin;
        let runner = recover::<P>(me, config, saved, at, 1);
        let mut process = Process {
            me,
            config: config.clone(),
            saved: saved.clone(),
            runner,
            gate: ReleaseGate::default(),
            now: at,
            records: Vec::new(),
            durable: 0,
            born: 0,
            lives: 1,
            stalled: false,
            mortal,
            heeds,
        };
        let mut effects = Effects::new(false);
        process.step(&mut effects, |_, _| {});
        process.now += rest;
        (process, effects.sent)
    }

    /// Timers that are set, and when they are due.
    pub fn timers(&self) -> impl Iterator<Item = (Timer<P>, Time)> {
        self.runner.timers.iter()
    }

    pub fn machine(&self) -> &P::Replica {
        &self.runner.machine
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

    /// A digest of everything that its future depends on.
    ///
    /// The machine's own state is its `Debug` output and its fingerprint, which covers what `Debug` only sums up. The
    /// generator is no part of it: each step has a fresh one.
    ///
    /// The second digest leaves out what hardly ever makes a difference (`MARGINAL`).
    pub fn digests(&self, scratch: &mut String) -> (u128, u128) {
        scratch.clear();
        let Process { runner, gate, now, records, durable, lives, stalled, mortal, .. } = self;
        let MachineRunner { machine, .. } = runner;
        write!(scratch, "{machine:?}").expect("memory");
        let length = scratch.len();
        for (timer, at) in runner.timers.iter() {
            write!(scratch, "{timer:?}{at:?}").expect("memory");
        }
        let (state, waiting) = ((machine.fingerprint(), now, lives, stalled, mortal), gate.waiting());
        write!(scratch, "{state:?}{durable}{records:?}{waiting:?}").expect("memory");
        let exact = wide_digest(scratch.as_bytes());
        for (begin, end) in MARGINAL {
            if let Some(at) = scratch[..length].rfind(begin)
                && let Some(more) = scratch[at..].find(end)
            {
                // The rest of the state is behind the machine: places before `length` stay what they are.
                scratch.replace_range(at + begin.len()..at + more, "");
            }
        }
        (exact, wide_digest(scratch.as_bytes()))
    }

    pub fn feed(&mut self, input: Input<P::Message>, effects: &mut Effects<P::Message>) {
        let me = self.me;
        match input {
            Input::Message(from, message) => self.hear(from, message, effects),
            Input::Timer(place) => {
                let timer = self.timers().nth(place).expect("it is set").0;
                self.runner.timers.apply(timer, None);
                effects.line(|| format!("r{me} timer {timer:?}"));
                self.step(effects, |machine, cx| machine.on_timer(timer, cx));
            }
            Input::Pass(time) => self.now += time,
            Input::Stall => self.stalled = true,
            Input::Survive => {
                assert!(!self.stalled, "whose disk stands still will crash");
                self.mortal = false;
                self.records.clear();
                (self.durable, self.born) = (0, 0);
            }
            Input::Crash(lost) => {
                assert!(lost <= self.unsynced(), "what is durable survives");
                self.records.truncate(self.records.len() - lost);
                self.lives += 1;
                (self.durable, self.born) = (self.records.len(), self.records.len());
                self.stalled = false;
                self.gate = ReleaseGate::default();
                let records = [&self.saved.records[..], &self.records[..]].concat();
                let saved = Saved { restarted: true, snapshot: self.saved.snapshot.clone(), records };
                self.runner = recover::<P>(me, &self.config, &saved, self.now, self.lives);
                self.step(effects, |_, _| {});
            }
        }
    }

    fn hear(&mut self, from: ProcessId, message: P::Message, effects: &mut Effects<P::Message>) {
        effects.line(|| format!("r{} <- {from} {message:?}", self.me));
        self.step(effects, |machine, cx| machine.on_message(from, message, cx));
    }

    /// One input, the end of its batch, and everything that the replica says to itself about it: its own messages
    /// are heard before anything else, as soon as its disk lets them go.
    fn step(
        &mut self,
        effects: &mut Effects<P::Message>,
        input: impl FnOnce(&mut P::Replica, &mut Context<'_, P::Replica>),
    ) {
        let mut echo = VecDeque::new();
        self.turn(effects, &mut echo, input);
        let me = ProcessId::from(self.me);
        for _ in 0..ECHOES {
            let Some(message) = echo.pop_front() else { return };
            effects.line(|| format!("{me} <- {me} {message:?}"));
            self.turn(effects, &mut echo, |machine, cx| machine.on_message(me, message, cx));
        }
        panic!("{me} does not stop to speak to itself");
    }

    fn turn(
        &mut self,
        effects: &mut Effects<P::Message>,
        echo: &mut VecDeque<P::Message>,
        input: impl FnOnce(&mut P::Replica, &mut Context<'_, P::Replica>),
    ) {
        let me = ProcessId::from(self.me);
        let at = instant(self.now);
        self.runner.reseed(random(self.me, self.lives));
        self.runner.step(at, input);
        self.runner.end_batch(at);
        let set: Vec<_> = self.runner.timers.iter().map(|(timer, _)| timer).collect();
        for timer in set.into_iter().filter(|timer| !(self.heeds)(P::Replica::wakeup(*timer))) {
            self.runner.timers.apply(timer, None);
        }
        let states = self.runner.take_barriers().count();
        assert!(states == 0, "a state that came from elsewhere: explore without snapshots");
        let out = &mut self.runner.out;
        out.members = None;
        effects.facts.append(&mut out.facts);
        for record in out.records.drain(..) {
            effects.line(|| format!("{me} persist {record:?}"));
            if self.mortal {
                self.records.push(record);
            }
        }
        if !self.stalled {
            self.durable = self.records.len();
        }
        self.gate.set_durable(if self.stalled { (self.durable - self.born) as u64 } else { u64::MAX });
        let mut ready: Vec<_> = std::iter::from_fn(|| self.gate.next()).collect();
        ready.extend(out.messages.drain(..).filter_map(|message| self.gate.pass(message)));
        for Outgoing { to, message, after } in self.gate.waiting() {
            let to: Vec<_> = to.iter().collect();
            effects.line(|| format!("{me} (after {after} records) -> {to:?} {}", message.kind()));
        }
        for Outgoing { to, message, .. } in ready {
            effects.line(|| {
                let names: Vec<_> = to.iter().map(|process| process.to_string()).collect();
                format!("{me} -> {} {message:?}", names.join(","))
            });
            for process in to.iter() {
                match process == me {
                    true => echo.push_back(message.clone()),
                    false => effects.sent.push((process, message.clone())),
                }
            }
        }
    }
}

fn recover<P: Protocol>(
    me: NodeId,
    config: &Config<P>,
    saved: &Saved<Record<P>>,
    now: Time,
    life: u64,
) -> MachineRunner<P::Replica> {
    let (config, saved) = (config.clone(), saved.clone());
    MachineRunner::start(me.into(), config, saved, instant(now), random(me, life), true)
}

/// What is drawn is the same in every step of a life, so that equal states have equal futures.
fn random(me: NodeId, life: u64) -> Random {
    Random::new(u64::from(me.get()) << 32 | life)
}

/// All clocks show the same, and true time is known exactly.
pub(super) fn instant(now: Time) -> Instant {
    let nanos = now.nanos();
    Instant { now, wall: WALL, clock: Some(Interval { earliest: nanos, latest: nanos }) }
}
