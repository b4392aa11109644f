//! The states of the cluster, and the search through them. What may happen in a state is in `choices.rs`.

mod choices;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_check::{Process, Violation};
use quorate_core::{Arrival, Capabilities, ProcessId, Time, Wakeup, digest, wide_digest};

use super::ledger::Ledger;
use super::locals::{Code, Flight, Locals, place};
use super::opening::{Client, ClientOperation, Opening, Told};
use super::stale::Stale;
use super::table::{Seen, Table};
use super::{Bounds, Explored, MAX_NODES, MAX_OPERATIONS, TICK};

/// So many states between two reports of progress.
const REPORT: usize = 1 << 16;

/// States in the first search.
const FIRST: usize = 10_000;

/// A state of the cluster.
#[derive(Clone)]
pub(super) struct State {
    pub locals: [u32; MAX_NODES],
    pub ledger: u32,
    now: Time,
    /// What is left of the bounds.
    ballots: u8,
    wakes: u8,
    ticks: u8,
    failures: u8,
    asks: [u8; MAX_OPERATIONS],
    pub delays: u8,
    /// Messages under way, by number.
    pub flights: Vec<u32>,
    /// Links that stand still.
    pub still: Vec<u16>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Deliver { flight: u32 },
    Ask { operation: usize, message: usize, node: usize },
    Elect { node: usize, timer: usize, times: u8, greeted: bool },
    Wake { node: usize, timer: usize },
    Tick,
    Stall { node: usize },
    Crash { node: usize, lost: usize },
    Halt { link: u16 },
    Resume { link: u16 },
    Lose { link: u16 },
}

/// A state on the way that the search is on.
struct Frame {
    state: State,
    choices: Vec<Choice>,
    next: usize,
}

/// See the file comment.
pub(super) struct Search {
    pub bounds: Bounds,
    pub capabilities: Capabilities,
    pub locals: Locals,
    pub clients: Vec<Client>,
    client_operations: Vec<ClientOperation>,
    /// The asks of each client, to each replica.
    asks: Vec<Vec<Vec<u32>>>,
    ledger_ids: Table<u32>,
    pub ledgers: Vec<Ledger>,
    judged: Table<u32>,
    /// What clients are told by messages to their proxies.
    replies: BTreeMap<u32, Option<Told>>,
    stale: Stale,
    visited: Seen,
    found: Explored,
    pub start: State,
    /// The steps of replicas that the present choice takes, for people.
    pub shown: Option<Vec<(u32, Code)>>,
    bytes: Vec<u8>,
}

impl Search {
    pub fn new(bounds: &Bounds, capabilities: Capabilities, opening: Opening) -> Search {
        let Opening { origins, clients, now } = opening;
        let nodes = origins.len();
        let (mut locals, said) = Locals::new(origins, capabilities.total_order, bounds.hints, bounds.facts);
        let mut said = VecDeque::from(said);
        let mut start = State {
            locals: [0; MAX_NODES],
            ledger: 0,
            now,
            ballots: bounds.ballots,
            wakes: bounds.wakes,
            ticks: bounds.ticks,
            failures: bounds.failures,
            asks: [bounds.asks; MAX_OPERATIONS],
            delays: bounds.delays.unwrap_or(0),
            flights: Vec::new(),
            still: Vec::new(),
        };
        (0..nodes).for_each(|node| start.locals[node] = node as u32);
        // Of what replicas say at their start, and upon that, what arrives at once does; the rest is lost.
        while let Some(flight) = said.pop_front() {
            let Flight { to, arrival, .. } = locals.flight(flight);
            if let (ProcessId::Replica(_), Arrival::AtOnce) = (to, arrival) {
                let place = place(*to);
                let step = locals.step(start.locals[place], Code::flight(flight));
                let step = locals.taken(step).expect("a replica that has just started");
                assert!(step.facts.is_empty(), "nothing comes of what is said at a start");
                start.locals[place] = step.to;
                said.extend(&step.sent);
            }
        }
        let mut asks = Vec::new();
        for client in &clients {
            let mut send = |ask| {
                let to_each = (0..nodes).map(|node| {
                    let to = locals.node(node).into();
                    locals.send(to, ask).expect("what clients ask arrives")
                });
                to_each.collect()
            };
            asks.push(client.asks.iter().map(&mut send).collect());
        }
        let client_operations = clients.iter().map(|client| client.client_operation.clone()).collect();
        Search {
            bounds: bounds.clone(),
            capabilities,
            locals,
            clients,
            client_operations,
            asks,
            ledger_ids: Table::default(),
            ledgers: vec![Ledger::default()],
            judged: Table::default(),
            replies: BTreeMap::new(),
            stale: Stale::default(),
            visited: Seen::default(),
            found: Explored::default(),
            start,
            shown: None,
            bytes: Vec::new(),
        }
    }

    /// Visits every state, or stops at the first violation.
    pub fn run(mut self, progress: &mut dyn FnMut(&Explored)) -> Explored {
        // What is taken for stale is learnt from small searches first: each that errs is repeated.
        let mut limit = FIRST;
        loop {
            let bound = limit.min(self.bounds.states);
            self.search(bound, progress);
            let partial = bound == self.bounds.states && !self.found.exhausted;
            let alike = self.locals.verify();
            // To take messages for stale only leaves out: what was found without them was found.
            if alike && self.found.counterexample.is_some() || partial {
                return self.found;
            }
            let right = self.stale.verify(&mut self.locals) && alike;
            if right && self.found.exhausted {
                return self.found;
            }
            self.found.repeated += 1;
            if right {
                limit *= 8;
            }
        }
    }

    fn search(&mut self, bound: usize, progress: &mut dyn FnMut(&Explored)) {
        self.found = Explored { repeated: self.found.repeated, ..Explored::default() };
        self.visited = Seen::default();
        let mut stack: Vec<Frame> = Vec::new();
        let start = self.start.clone();
        let key = self.digest(&start);
        self.visited.insert(key);
        let choices = self.choices(&start);
        stack.push(Frame { state: start, choices, next: 0 });
        while let Some(frame) = stack.last_mut() {
            let Some(&choice) = frame.choices.get(frame.next) else {
                stack.pop();
                continue;
            };
            frame.next += 1;
            let next = self.take(&frame.state, choice);
            self.found.steps += 1;
            match next {
                Ok(None) => {}
                Ok(Some(mut state)) => {
                    self.forget(&mut state);
                    let key = self.digest(&state);
                    if !self.visited.insert(key) {
                        continue;
                    }
                    if self.visited.len().is_multiple_of(REPORT) {
                        self.sum_up();
                        progress(&self.found);
                    }
                    if self.visited.len() >= bound {
                        return self.sum_up();
                    }
                    let choices = self.choices(&state);
                    stack.push(Frame { state, choices, next: 0 });
                    self.found.depth = self.found.depth.max(stack.len() - 1);
                }
                Err(_) => {
                    self.sum_up();
                    let way = stack.iter().map(|frame| frame.choices[frame.next - 1]).collect();
                    let counterexample = self.shrink(way);
                    self.found.counterexample = Some(counterexample);
                    return;
                }
            }
        }
        self.sum_up();
        self.found.exhausted = true;
    }

    /// Leaves out what makes no difference any more: messages that nobody will take notice of, and repetitions of
    /// requests that are answered.
    fn forget(&mut self, state: &mut State) {
        // With few delays hardly anything outlives its use.
        if self.bounds.delays.is_none() {
            let Search { locals, stale, .. } = self;
            state.flights.retain(|&flight| {
                let local = state.locals[place(locals.flight(flight).to)];
                !stale.holds(locals, local, flight)
            });
        }
        let ledger = &self.ledgers[state.ledger as usize];
        for operation in 0..self.clients.len() {
            if ledger.standing(operation).1 {
                state.asks[operation] = 0;
            }
        }
    }

    fn sum_up(&mut self) {
        let (locals, messages, steps) = self.locals.counts();
        self.found.states = self.visited.len();
        self.found.machines = (locals, steps);
        self.found.messages = messages;
        self.found.bytes = self.visited.bytes();
    }

    /// A digest of what the future of a state depends on.
    fn digest(&mut self, state: &State) -> u64 {
        let State { locals, ledger, now, ballots, wakes, ticks, failures, asks, delays, flights, still } =
            state;
        self.bytes.clear();
        for word in locals.iter().chain(flights) {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(now.nanos().to_le_bytes());
        self.bytes.extend(ledger.to_le_bytes());
        self.bytes.extend([ballots, wakes, ticks, failures, delays].map(|left| *left));
        self.bytes.extend(still.iter().flat_map(|link| link.to_le_bytes()));
        self.bytes.extend((still.len() as u16).to_le_bytes());
        self.bytes.extend(asks);
        digest(&self.bytes)
    }

    /// Takes a step; `None` if nothing comes of it.
    pub fn take(&mut self, state: &State, choice: Choice) -> Result<Option<State>, Violation> {
        // With few delays every message under way arrives, needed or not: others wait behind it.
        let arrives = self.bounds.delays.is_some() && matches!(choice, Choice::Deliver { .. });
        if let Some((node, code)) = self.input(choice).filter(|_| !arrives)
            && self.is_idle(state, node, code)
        {
            return Ok(None);
        }
        let mut next = state.clone();
        next.delays -= u8::from(self.is_delay(state, choice));
        let useful = match choice {
            Choice::Deliver { flight } => {
                let to = place(self.locals.flight(flight).to);
                self.leave(&mut next, flight);
                self.feed(&mut next, to, Code::flight(flight), None)?
            }
            Choice::Ask { operation, message, node } => {
                next.asks[operation] -= 1;
                let flight = self.asks[operation][message][node];
                let useful = self.feed(&mut next, node, Code::flight(flight), Some(operation))?;
                let waits = !self.ledgers[next.ledger as usize].standing(operation).1;
                let reads = self.bounds.writes..self.bounds.writes + self.bounds.reads;
                useful && !(waits && !self.bounds.waiting && reads.contains(&operation))
            }
            Choice::Elect { node, timer, times, greeted } => {
                next.ballots -= 1;
                let before = next.flights.len();
                for _ in 0..times {
                    self.pass(&mut next, self.bounds.pace)?;
                    if !self.locals.get(next.locals[node]).timers[timer].is_due {
                        return Ok(None);
                    }
                    if greeted {
                        self.greet(&mut next, node)?;
                    }
                    self.feed(&mut next, node, Code::timer(timer), None)?;
                    if next.flights.len() > before {
                        break;
                    }
                }
                // Whoever finds no support has only let time pass.
                next.flights.len() > before
            }
            Choice::Wake { node, timer } => {
                next.wakes -= 1;
                self.feed(&mut next, node, Code::timer(timer), None)?
            }
            Choice::Tick => {
                next.ticks -= 1;
                self.pass(&mut next, TICK)?;
                true
            }
            Choice::Stall { node } => {
                next.failures -= 1;
                self.feed(&mut next, node, Code::STALL, None)?
            }
            Choice::Crash { node, lost } => {
                let local = self.locals.get(next.locals[node]);
                if !local.stalled {
                    next.failures -= 1;
                }
                let who = Process { node: self.locals.node(node), incarnation: local.life };
                let mut ledger = self.ledgers[next.ledger as usize].clone();
                ledger.crash(next.now, who)?;
                next.ledger = self.ledger(ledger);
                self.feed(&mut next, node, Code::crash(lost), None)?;
                let all = 0..self.bounds.nodes;
                if next.failures == 0 && all.clone().all(|node| !self.locals.get(next.locals[node]).stalled) {
                    for node in all {
                        self.feed(&mut next, node, Code::SURVIVE, None)?;
                    }
                }
                true
            }
            Choice::Halt { .. } | Choice::Resume { .. } | Choice::Lose { .. } => {
                self.turn(&mut next, choice);
                true
            }
        };
        Ok((useful || arrives).then_some(next))
    }

    /// The one input that a choice is, if nothing but that happens.
    fn input(&self, choice: Choice) -> Option<(usize, Code)> {
        match choice {
            Choice::Deliver { flight } => Some((place(self.locals.flight(flight).to), Code::flight(flight))),
            Choice::Ask { operation, message, node } => {
                Some((node, Code::flight(self.asks[operation][message][node])))
            }
            Choice::Wake { node, timer } => Some((node, Code::timer(timer))),
            _ => None,
        }
    }

    /// Whether an input leaves a replica as it is, and silent.
    fn is_idle(&mut self, state: &State, node: usize, code: Code) -> bool {
        let local = state.locals[node];
        let id = self.locals.step(local, code);
        let step = self.locals.taken(id);
        step.is_ok_and(|step| step.is_idle(local))
    }

    /// Time passes for all.
    fn pass(&mut self, state: &mut State, time: Duration) -> Result<(), Violation> {
        let time = Duration::from_millis(time.as_millis() as u64);
        state.now += time;
        let code = Code::pass(time);
        (0..self.bounds.nodes).try_for_each(|node| self.feed(state, node, code, None).map(drop))
    }

    /// The others have just asked a replica for its support, and never hear its answers: so it knows that they are
    /// there.
    fn greet(&mut self, state: &mut State, node: usize) -> Result<(), Violation> {
        for other in (0..self.bounds.nodes).filter(|other| *other != node) {
            let timers = &self.locals.get(state.locals[other]).timers;
            let election =
                timers.iter().position(|set| set.is_due && matches!(set.wakeup, Wakeup::TakesOver { .. }));
            let Some(election) = election else { continue };
            for flight in self.only(state, other, Code::timer(election))? {
                let to = self.locals.flight(flight);
                if to.arrival != Arrival::Any && place(to.to) == node {
                    self.only(state, node, Code::flight(flight))?;
                }
            }
        }
        Ok(())
    }

    /// Gives an input to a replica, and says what it would send.
    fn only(&mut self, state: &mut State, node: usize, code: Code) -> Result<Vec<u32>, Violation> {
        let local = state.locals[node];
        if let Some(shown) = &mut self.shown {
            shown.push((local, code));
        }
        let id = self.locals.step(local, code);
        let step = self.locals.taken(id).map_err(|why| self.failure(state, node, why))?;
        assert!(step.facts.is_empty(), "to ask for support changes nothing");
        state.locals[node] = step.to;
        self.stale.moves(local, step.to);
        Ok(step.sent.to_vec())
    }

    fn failure(&self, state: &State, node: usize, why: &str) -> Violation {
        let what = format!("{:?}: {why}", self.locals.node(node));
        Violation { checker: "machine", at: state.now.nanos(), what }
    }

    /// Gives an input to a replica, and what must be delivered at once to whom it is sent. Whether anything changed.
    fn feed(
        &mut self,
        state: &mut State,
        node: usize,
        code: Code,
        operation: Option<usize>,
    ) -> Result<bool, Violation> {
        let mut changed = false;
        let mut inputs = VecDeque::from([(node, code)]);
        while let Some((node, code)) = inputs.pop_front() {
            let local = state.locals[node];
            if let Some(shown) = &mut self.shown {
                shown.push((local, code));
            }
            let id = self.locals.step(local, code);
            let step = self.locals.taken(id).map_err(|why| self.failure(state, node, why))?;
            self.stale.moves(local, step.to);
            if let Some(flight) = code.of_flight().filter(|_| step.is_idle(local))
                && self.locals.flight(flight).arrival == Arrival::AtOnceOrLater
            {
                changed |= self.enter(state, flight);
                continue;
            }
            let mut quiet = step.facts.is_empty();
            changed |= step.to != local;
            state.locals[node] = step.to;
            // Steps are few, and their messages fewer.
            for flight in step.sent.iter().copied() {
                let to = self.locals.flight(flight);
                match to.to {
                    ProcessId::Proxy(_) => quiet = false,
                    ProcessId::Replica(_) if to.arrival != Arrival::Any => {
                        inputs.push_back((place(to.to), Code::flight(flight)));
                    }
                    ProcessId::Replica(_) => {
                        changed |= self.enter(state, flight);
                    }
                }
            }
            let asked = operation.filter(|_| changed);
            if !quiet || asked.is_some() {
                let ledger = self.judge(state, node, id, operation)?;
                // A question that changes nothing here and is not answered has not been asked.
                if operation.is_none() || changed || self.tells(state.ledger, ledger, operation) {
                    changed |= ledger != state.ledger;
                    state.ledger = ledger;
                }
            }
        }
        Ok(changed)
    }

    /// A message is under way, behind those on its link. False if it was already.
    fn enter(&self, state: &mut State, flight: u32) -> bool {
        let link = |flight: u32| self.locals.flight(flight).link;
        let key = |other: u32| (link(other), if self.bounds.reorder { other } else { 0 });
        let place = state.flights.partition_point(|other| key(*other) <= key(flight));
        let known = place > 0 && state.flights[place - 1] == flight;
        if !known {
            state.flights.insert(place, flight);
        }
        !known
    }

    /// A message arrives: where nothing overtakes, those before it on its link are lost.
    fn leave(&self, state: &mut State, flight: u32) {
        let link = self.locals.flight(flight).link;
        let place = state.flights.iter().position(|other| *other == flight).expect("it is under way");
        let mut index = 0;
        state.flights.retain(|other| {
            let before = !self.bounds.reorder && self.locals.flight(*other).link == link;
            index += 1;
            !(index - 1 == place || before && index - 1 < place)
        });
    }

    /// Whether an operation has returned in between.
    fn tells(&self, before: u32, after: u32, operation: Option<usize>) -> bool {
        let told = |ledger: u32| {
            operation.is_some_and(|operation| self.ledgers[ledger as usize].standing(operation).1)
        };
        !told(before) && told(after)
    }

    /// The ledger after a step of a replica, which an operation may have asked for.
    fn judge(
        &mut self,
        state: &State,
        node: usize,
        step: u32,
        operation: Option<usize>,
    ) -> Result<u32, Violation> {
        let asked = operation.map_or(0, |operation| operation as u64 + 1);
        let words = [u64::from(state.ledger) << 32 | u64::from(step), state.now.nanos() << 8 | asked];
        let key = u128::from(words[0]) << 64 | u128::from(words[1]);
        let key = wide_digest(&key.to_le_bytes());
        if let Some(known) = self.judged.get(key) {
            return Ok(known);
        }
        let mut ledger = self.ledgers[state.ledger as usize].clone();
        if let Some(operation) = operation {
            ledger.asked(operation, &self.client_operations);
        }
        let taken = self.locals.taken(step).expect("it was taken");
        let life = self.locals.get(taken.to).life;
        let who = Process { node: self.locals.node(node), incarnation: life };
        taken.facts.iter().try_for_each(|fact| ledger.fact(state.now, who, fact))?;
        for &flight in &taken.sent {
            let to = self.locals.flight(flight);
            let Some(operation) = Client::of(to.to) else { continue };
            let hear = || self.clients[operation].hears(to);
            if let Some(reply) = self.replies.entry(flight).or_insert_with(hear) {
                ledger.told(state.now, operation, reply.clone(), &self.client_operations)?;
            }
        }
        let id = self.ledger(ledger);
        self.judged.insert(key, id);
        Ok(id)
    }

    /// The number of a ledger.
    fn ledger(&mut self, ledger: Ledger) -> u32 {
        let key = ledger.digest();
        if let Some(known) = self.ledger_ids.get(key) {
            return known;
        }
        let id = self.ledgers.len() as u32;
        self.ledgers.push(ledger);
        self.ledger_ids.insert(key, id);
        id
    }
}
