//! The states of single replicas, the messages between them, and the steps from one to the next: each is found by
//! running the real machine, once, and is a number from then on.
//!
//! A machine cannot be copied, but it is a function of what it was fed: its state is made again by feeding it the
//! same inputs. Millions of states of a cluster are combinations of some ten thousand states of its replicas, so
//! nearly all steps of the cluster are looked up.
//!
//! **States that behave alike are one.** What two states of a replica show may differ in something that makes no
//! difference, such as when another replica was last heard. States that are equal but for that are guessed to be
//! alike, and the cluster is searched with the first of them in the place of all. When the search is over, the
//! guess is verified (`Locals::verify`): whatever was fed to the first is fed to each of the others; they must say
//! the same, and come to states that are alike in turn. So the relation is a bisimulation, as far as the search
//! goes. States that turn out to differ are apart from then on, and the search is repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_check::panics;
use quorate_core::{Arrival, Fact, NodeId, ProcessId, Wakeup, Wire, wide_digest};
use quorate_runtime::{OutgoingFrame, StateDigests};

use super::process::{Effects, Input, Origin, Process};
use super::table::Table;

/// A message to a replica or a proxy.
pub(super) struct Flight {
    pub from: ProcessId,
    pub to: ProcessId,
    pub kind: &'static str,
    pub payload: Bytes,
    /// Never [`Arrival::Never`], nor any that depends on the bounds.
    pub arrival: Arrival,
    /// From whom to whom, as a number; of use between replicas.
    pub link: u16,
}

/// From whom to whom; sorts by the receiver.
fn link(from: ProcessId, to: ProcessId) -> u16 {
    u16::from_be_bytes([to, from].map(|process| process.replica().map_or(0, NodeId::get)))
}

/// Where a replica stands among all.
pub(super) fn place(replica: ProcessId) -> usize {
    usize::from(replica.replica().expect("replicas have places").get()) - 1
}

/// In the words of scenarios.
pub(super) fn link_name(link: u16) -> String {
    let [to, from] = link.to_be_bytes();
    format!("r{from}>r{to}")
}

/// An input as a number: a flight, or one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub u32);

const FLIGHTS: u32 = 0xf000_0000;
const CRASH: u32 = 0xf200_0000;
const PASS: u32 = 0xf400_0000;

impl Code {
    pub const STALL: Code = Code(0xf300_0000);
    pub const SURVIVE: Code = Code(0xf300_0001);

    /// Whole milliseconds.
    pub fn pass(time: Duration) -> Code {
        let millis = u32::try_from(time.as_millis()).ok().filter(|millis| *millis < u32::MAX - PASS);
        Code(PASS + millis.expect("a short time"))
    }

    pub fn flight(flight: u32) -> Code {
        assert!(flight < FLIGHTS, "too many messages");
        Code(flight)
    }

    pub fn of_flight(self) -> Option<u32> {
        Some(self.0).filter(|code| *code < FLIGHTS)
    }

    pub fn timer(place: usize) -> Code {
        Code(FLIGHTS + place as u32)
    }

    pub fn crash(lost: usize) -> Code {
        Code(CRASH + lost as u32)
    }
}

/// A state of a replica.
pub(super) struct Local {
    /// The state that stands for all that are guessed to be alike; itself, if it is that one.
    alike: u32,
    /// What it shows but for what hardly ever makes a difference.
    key: u128,
    /// What was fed to it: codes and steps.
    fed: Vec<(Code, u32)>,
    /// The state before and what happened; `None` for the first.
    before: Option<(u32, Code)>,
    node: usize,
    /// The timers that are set, in their order.
    pub timers: Box<[SetTimer]>,
    /// Records that a crash may take.
    pub unsynced: usize,
    pub stalled: bool,
    pub life: u64,
}

/// A timer that is set.
pub(super) struct SetTimer {
    /// For people.
    pub name: String,
    pub wakeup: Wakeup,
    pub is_due: bool,
}

/// A step of a replica.
pub(super) struct Step {
    pub to: u32,
    /// The state itself, for which `to` may only stand.
    exact: u32,
    /// Flights.
    pub sent: Box<[u32]>,
    /// Those that checkers of clusters want.
    pub facts: Box<[Fact]>,
}

impl Step {
    /// Whether nothing comes of it, if it was taken in this state.
    pub fn is_idle(&self, local: u32) -> bool {
        self.to == local && self.sent.is_empty() && self.facts.is_empty()
    }
}

/// See the file comment.
pub(super) struct Locals {
    origins: Vec<Origin>,
    /// Whether all commands are ordered.
    total_order: bool,
    /// Whether messages arrive that only tell of a higher ballot, and whether leases are taken for facts.
    hints: bool,
    facts: bool,
    ids: Table<u32>,
    /// States that stand for others, by what they show.
    kinds: BTreeMap<u128, Vec<u32>>,
    /// States for which others stand.
    doubles: Vec<u32>,
    all: Vec<Local>,
    flight_ids: Table<u32>,
    flights: Vec<Flight>,
    step_ids: Table<u32>,
    steps: Vec<Result<Step, String>>,
    /// The process that was stepped last, and the state it is in.
    live: Option<(u32, Process)>,
}

impl Locals {
    /// The states in which the replicas begin have the numbers of `origins`. With what they say at once.
    pub fn new(origins: Vec<Origin>, total_order: bool, hints: bool, facts: bool) -> (Locals, Vec<u32>) {
        let mut locals = Locals {
            origins,
            total_order,
            hints,
            facts,
            ids: Table::default(),
            kinds: BTreeMap::new(),
            doubles: Vec::new(),
            all: Vec::new(),
            flight_ids: Table::default(),
            flights: Vec::new(),
            step_ids: Table::default(),
            steps: Vec::new(),
            live: None,
        };
        let mut said = Vec::new();
        for node in 0..locals.origins.len() {
            let (process, sent) = Process::start(&locals.origins[node]);
            locals.local(node, None, &process);
            said.extend(locals.send_all(&sent));
        }
        (locals, said)
    }

    /// When a message arrives within the bounds; `None`: never.
    fn arrival(&self, declared: Arrival) -> Option<Arrival> {
        match declared {
            Arrival::GivesBack => Some(if self.facts { Arrival::AtOnce } else { Arrival::Any }),
            Arrival::Leaves => Some(Arrival::Any).filter(|_| !self.facts),
            Arrival::Hint => Some(Arrival::Any).filter(|_| self.hints),
            Arrival::Never => None,
            arrival @ (Arrival::Any | Arrival::AtOnce | Arrival::AtOnceOrLater) => Some(arrival),
        }
    }

    pub fn get(&self, local: u32) -> &Local {
        &self.all[local as usize]
    }

    pub fn flight(&self, flight: u32) -> &Flight {
        &self.flights[flight as usize]
    }

    /// States, messages and steps so far.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.all.len(), self.flights.len(), self.steps.len())
    }

    /// The number of a message; `None` if it never arrives.
    pub fn send(&mut self, to: ProcessId, frame: &OutgoingFrame) -> Option<u32> {
        let &OutgoingFrame { from, kind, arrival, ref payload, .. } = frame;
        let arrival = self.arrival(arrival)?;
        let payload = payload.clone().into_bytes();
        let key = wide_digest(&[&(from, to).to_bytes()[..], &payload].concat());
        if let Some(known) = self.flight_ids.get(key) {
            return Some(known);
        }
        let id = self.flights.len() as u32;
        self.flights.push(Flight { from, to, kind, payload, arrival, link: link(from, to) });
        self.flight_ids.insert(key, id);
        Some(id)
    }

    /// The numbers of all these messages that arrive.
    fn send_all(&mut self, frames: &[OutgoingFrame]) -> Vec<u32> {
        let each = frames.iter().flat_map(|frame| frame.to.iter().map(move |to| (to, frame)));
        each.filter_map(|(to, frame)| self.send(to, frame)).collect()
    }

    /// What comes of an input in a state; the number of the step.
    pub fn step(&mut self, local: u32, code: Code) -> u32 {
        let key = u128::from(local) << 32 | u128::from(code.0) | 1 << 127;
        if let Some(known) = self.step_ids.get(key) {
            return known;
        }
        let live = self.live.take().filter(|(at, _)| *at == local);
        let step = panics::catch(|| {
            let mut process = live.map_or_else(|| self.revive(local), |(_, process)| process);
            let mut effects = Effects::new(false);
            process.feed(self.input(code), &mut effects);
            (process, effects)
        });
        let step = step.map(|(process, effects)| {
            let node = self.get(local).node;
            let to = self.local(node, Some((local, code)), &process);
            let sent = self.send_all(&effects.sent).into();
            let facts = effects.facts.into_iter().filter(|fact| is_wanted(fact, self.total_order)).collect();
            self.live = Some((to, process));
            Step { to: self.alike(to), exact: to, sent, facts }
        });
        let id = self.steps.len() as u32;
        self.steps.push(step);
        self.all[local as usize].fed.push((code, id));
        self.step_ids.insert(key, id);
        id
    }

    /// A step that was taken; why it failed, if it did.
    pub fn taken(&self, step: u32) -> Result<&Step, &str> {
        self.steps[step as usize].as_ref().map_err(String::as_str)
    }

    /// The same once more, for people.
    pub fn show(&self, local: u32, code: Code) -> Vec<String> {
        let mut effects = Effects::new(true);
        let failed = panics::catch(|| self.revive(local).feed(self.input(code), &mut effects)).err();
        let mut lines = effects.lines.unwrap_or_default();
        lines.extend(failed.map(|why| format!("! {why}")));
        lines
    }

    /// The machine in a state.
    fn revive(&self, local: u32) -> Process {
        let mut codes = Vec::new();
        let mut at = self.get(local);
        while let Some((before, code)) = at.before {
            codes.push(code);
            at = self.get(before);
        }
        let (mut process, _) = Process::start(&self.origins[at.node]);
        let mut effects = Effects::new(false);
        for code in codes.into_iter().rev() {
            process.feed(self.input(code), &mut effects);
        }
        process
    }

    fn input(&self, code: Code) -> Input {
        match code {
            Code::STALL => Input::Stall,
            Code::SURVIVE => Input::Survive,
            Code(flight) if flight < FLIGHTS => {
                let Flight { from, payload, .. } = self.flight(flight);
                Input::Message(*from, payload.clone())
            }
            Code(timer) if timer < CRASH => Input::Timer((timer - FLIGHTS) as usize),
            Code(time) if time >= PASS => Input::Pass(Duration::from_millis((time - PASS).into())),
            Code(crash) => Input::Crash((crash - CRASH) as usize),
        }
    }

    /// The state that stands for one.
    fn alike(&self, local: u32) -> u32 {
        self.all[local as usize].alike
    }

    /// Whether all states that were taken to be alike are. Those that are not will not be taken to be any more.
    pub fn verify(&mut self) -> bool {
        let mut right = true;
        // Feeding them leads to more of them.
        let mut next = 0;
        while next < self.doubles.len() {
            let local = self.doubles[next];
            next += 1;
            while self.alike(local) != local && !self.behaves(local, self.alike(local)) {
                right = false;
                let kind = &self.kinds[&self.all[local as usize].key];
                let place = kind.iter().position(|one| *one == self.alike(local)).expect("it is of its kind");
                let other = kind.get(place + 1).copied();
                self.all[local as usize].alike = other.unwrap_or(local);
                if other.is_none() {
                    let kind = self.kinds.get_mut(&self.all[local as usize].key).expect("it is known");
                    kind.push(local);
                }
            }
        }
        if !right {
            self.doubles.retain(|local| self.all[*local as usize].alike != *local);
            for step in self.steps.iter_mut().flatten() {
                step.to = self.all[step.exact as usize].alike;
            }
        }
        right
    }

    /// Whether a state says and does what another does, on whatever that one was fed.
    fn behaves(&mut self, local: u32, other: u32) -> bool {
        let mut place = 0;
        while let Some(&(code, id)) = self.all[other as usize].fed.get(place) {
            place += 1;
            let mine = self.step(local, code);
            let same = match (&self.steps[mine as usize], &self.steps[id as usize]) {
                (Ok(mine), Ok(its)) => {
                    let to = |step: &Step| self.alike(step.exact);
                    to(mine) == to(its) && mine.sent == its.sent && mine.facts == its.facts
                }
                (Err(_), Err(_)) => true,
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
            };
            if !same {
                return false;
            }
        }
        true
    }

    /// The number of the state that a process is in.
    fn local(&mut self, node: usize, before: Option<(u32, Code)>, process: &Process) -> u32 {
        let StateDigests { exact, alike: key } = process.digests();
        if let Some(known) = self.ids.get(exact) {
            return known;
        }
        let id = self.all.len() as u32;
        let kind = self.kinds.entry(key).or_default();
        let alike = kind.first().copied().unwrap_or(id);
        if alike == id {
            kind.push(id);
        } else {
            self.doubles.push(id);
        }
        let set = |set: quorate_runtime::SetTimer| SetTimer {
            name: set.name,
            wakeup: set.wakeup,
            is_due: set.at <= process.now,
        };
        self.all.push(Local {
            alike,
            key,
            fed: Vec::new(),
            before,
            node,
            timers: process.timers().into_iter().map(set).collect(),
            unsynced: process.unsynced(),
            stalled: process.is_stalled(),
            life: process.life(),
        });
        self.ids.insert(exact, id);
        id
    }

    /// Who is at a place.
    pub fn node(&self, place: usize) -> NodeId {
        self.origins[place].me
    }
}

/// What the ledger listens to.
fn is_wanted(fact: &Fact, total_order: bool) -> bool {
    match fact {
        Fact::Chosen { .. }
        | Fact::Applied { .. }
        | Fact::Executed { .. }
        | Fact::Promised { .. }
        | Fact::Believes { .. }
        | Fact::ReadsLocally { .. }
        | Fact::ServesLocally { .. } => true,
        // Where not all is ordered.
        Fact::Installed { .. } | Fact::Decided { .. } | Fact::Ordered { .. } => !total_order,
        _ => false,
    }
}
