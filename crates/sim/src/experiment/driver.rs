//! Turns of the loops.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use quorate_check::Nanos;
use quorate_check::history::Recorder;
use quorate_core::{Answered, Class, Fact, NodeId, Outcome, ProcessId, Random, Request, RequestId};
use quorate_runtime::{ConfiguredProtocol, Effects, Input};

use super::asking::Waiting;
use super::wires::{Sent, Turns, Wires};
use super::{Load, Measured, Setup};
use crate::clock::Clock;
use crate::disk::{Disk, Speed};
use crate::network::Latency;
use crate::process::SimProcess;
use crate::queue::Queue;

/// Bytes of a frame around a message.
const FRAME: usize = 32;

pub(super) enum Event {
    Deliver(Delivery),
    /// The next frame of a machine leaves, over one of its links.
    Leave {
        machine: usize,
    },
    /// Of a process to itself.
    Own {
        host: usize,
    },
    Turn {
        host: usize,
        epoch: u64,
    },
    Wake {
        host: usize,
        epoch: u64,
    },
    Synced {
        host: usize,
        epoch: u64,
    },
    /// Of the script.
    Ask(usize),
    /// A client of a closed loop.
    Again(usize),
    /// A request reaches a node.
    Request {
        host: usize,
        id: RequestId,
        request: Request,
    },
    Answer {
        id: RequestId,
        outcome: Outcome,
    },
    /// A client has waited long enough, whether its node lives or not.
    GiveUp(RequestId),
    Act(usize),
}

/// A message between processes.
#[derive(Debug)]
pub(super) struct Delivery {
    from: ProcessId,
    to: ProcessId,
    payload: Bytes,
    /// Of the processor that takes it.
    cost: Nanos,
}

/// An experiment that runs.
pub(super) struct Driver<'a> {
    pub setup: &'a Setup,
    pub now: Nanos,
    pub queue: Queue<Event>,
    pub hosts: Vec<SimProcess>,
    /// For each host, what each input that waits there takes of its processor, on top of what every input takes.
    costs: Vec<VecDeque<Nanos>>,
    /// For each host, how many messages wait before all other inputs ([`Turns::MessagesFirst`]).
    messages_first: Vec<usize>,
    pub wires: Wires<Delivery>,
    /// When frames of a machine leave, as far as there is an event for it.
    leaves: Vec<Option<Nanos>>,
    /// For each host, slots whose values it has persisted, with the number of the first record behind them, until they
    /// are durable.
    stored: Vec<VecDeque<(u64, u64)>>,
    pub load: Load<'a>,
    pub waiting: BTreeMap<u64, Waiting>,
    pub recorder: Recorder,
    pub measured: Measured,
}

impl<'a> Driver<'a> {
    /// Everybody starts at once.
    pub fn new(setup: &'a Setup, groups: &[Arc<dyn ConfiguredProtocol>], mut load: Load<'a>) -> Self {
        let mut random = Random::new(setup.seed);
        let wires = Wires::new(setup, random.fork());
        let fixed = Latency::Uniform { low: setup.sync, high: setup.sync };
        let hosts = (0..setup.nodes + setup.proxies).map(|host| {
            let mut random = random.fork();
            let node = (host < setup.nodes).then(|| NodeId::new(host as u64 + 1).expect("few nodes"));
            let speed = Speed { write: fixed, sync: fixed, bandwidth: setup.capacity.disk };
            let disk = Disk::new(speed, random.fork());
            let clock = Clock::steady(setup.clock_error, &mut random);
            SimProcess::new(node, disk, clock, random)
        });
        let mut driver = Driver {
            setup,
            now: 0,
            queue: Queue::default(),
            hosts: hosts.collect(),
            costs: vec![VecDeque::new(); setup.nodes + setup.proxies],
            messages_first: vec![0; setup.nodes + setup.proxies],
            wires,
            leaves: vec![None; setup.nodes],
            stored: vec![VecDeque::new(); setup.nodes],
            load: Load::default(),
            waiting: BTreeMap::new(),
            recorder: Recorder::default(),
            measured: Measured::default(),
        };
        for host in 0..driver.hosts.len() {
            // Processes that run a proxy alone are of the last group.
            let group = (host * setup.groups / setup.nodes).min(setup.groups - 1);
            driver.hosts[host].start(0, groups[group].clone(), None).expect("an empty disk can be read");
            driver.hear(host);
            driver.wake(host);
            driver.set_wake(host);
        }
        load.asks.sort_by_key(|ask| ask.at);
        for (index, ask) in load.asks.iter().enumerate() {
            driver.queue.push(ask.at, Event::Ask(index));
        }
        for (index, (at, _)) in load.acts.iter().enumerate() {
            driver.queue.push(*at, Event::Act(index));
        }
        if let Some(clients) = &load.clients {
            for client in 0..clients.count {
                driver.queue.push(clients.from + client as Nanos * 1000, Event::Again(client));
            }
        }
        driver.load = load;
        driver
    }

    /// Until the end.
    pub fn run(mut self) -> Measured {
        while let Some((at, event)) = self.queue.pop().filter(|(at, _)| *at <= self.setup.end) {
            self.now = at;
            self.handle(event);
        }
        self.measured.history = self.recorder.finish();
        self.measured.bytes = self.wires.bytes();
        self.measured
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Leave { machine } => {
                if self.leaves[machine] == Some(self.now) {
                    self.leaves[machine] = None;
                }
                self.leave(machine);
            }
            Event::Deliver(Delivery { from, to, payload, cost }) => {
                if let Some(host) = self.locate(to) {
                    self.enqueue(host, Input::Frame { from, to, payload }, cost);
                }
            }
            Event::Own { host } => self.enqueue(host, Input::Own, 0),
            Event::Turn { host, epoch } if self.hosts[host].epoch == epoch => self.turn(host),
            Event::Wake { host, epoch } if self.hosts[host].epoch == epoch => {
                if let Some(life) = &mut self.hosts[host].life
                    && life.wake_at == Some(self.now)
                {
                    life.wake_at = None;
                    self.wake(host);
                }
            }
            Event::Synced { host, epoch } if self.hosts[host].epoch == epoch => {
                self.synced(host);
                self.wake(host);
            }
            Event::Turn { .. } | Event::Wake { .. } | Event::Synced { .. } => {}
            Event::Ask(index) => self.ask(index),
            Event::Again(client) => self.again(client),
            Event::Request { host, id, request } => self.request(host, id, request),
            Event::Answer { id, outcome } => self.answered(id, outcome),
            Event::GiveUp(id) => self.give_up(id),
            Event::Act(act) => self.act(act),
        }
    }

    // Turns ------------------------------------------------------------------------------------------------------

    pub fn wake(&mut self, host: usize) {
        let SimProcess { life, epoch, .. } = &mut self.hosts[host];
        if let Some(life) = life
            && !life.turning
        {
            life.turning = true;
            self.queue.push(self.now.max(life.busy_until), Event::Turn { host, epoch: *epoch });
        }
    }

    fn set_wake(&mut self, host: usize) {
        let Some(next) = self.hosts[host].next_timer() else { return };
        let next = next.max(self.now + 1);
        let SimProcess { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
        if life.wake_at.is_none_or(|at| next < at) {
            life.wake_at = Some(next);
            self.queue.push(next, Event::Wake { host, epoch: *epoch });
        }
    }

    fn turn(&mut self, host: usize) {
        let at = self.hosts[host].instant(self.now);
        let is_node = host < self.setup.nodes;
        let Some(life) = &mut self.hosts[host].life else { return };
        let messages_first = &mut self.messages_first[host];
        life.budget = match self.setup.capacity.turns {
            Turns::InOrder(inputs) => inputs,
            Turns::MessagesFirst(requests) => messages_first.saturating_add(requests),
        };
        let mut work = 0;
        loop {
            let waiting = life.inbox.len();
            let Some(taken) = life.take_input(at) else { break };
            taken.expect("a message that was sent can be read");
            life.process.step(at);
            // It may have been a timer.
            let came_in = life.inbox.len() < waiting;
            let cost =
                if came_in { self.costs[host].pop_front().expect("every input has a cost") } else { 0 };
            *messages_first = messages_first.saturating_sub(usize::from(came_in));
            work += self.setup.capacity.per_input + cost;
        }
        life.process.end_batch(at);
        life.turning = false;
        let idle = life.inbox.is_empty();
        // What this turn leads to comes when its work is done.
        let done = self.now + if is_node { work } else { 0 };
        self.hear(host);
        self.reply(host, done);
        let free = self.flush(host, done);
        if let Some(life) = &mut self.hosts[host].life {
            life.busy_until = free;
        }
        if !idle {
            self.wake(host);
        }
        self.set_wake(host);
    }

    fn hear(&mut self, host: usize) {
        let Some(life) = &mut self.hosts[host].life else { return };
        let Effects { members, facts, .. } = life.process.effects();
        // Links are there already.
        *members = Default::default();
        let Some(node) = NodeId::new(host as u64 + 1) else { return };
        for (_, fact) in facts.drain(..) {
            match fact {
                Fact::Stored { slot, .. } => {
                    // It will be in a record of this turn.
                    self.stored[host].push_back((slot, u64::MAX));
                    self.measured.values.push((self.now, node, fact));
                }
                Fact::Chosen { .. } | Fact::Executed { .. } => {
                    self.measured.values.push((self.now, node, fact));
                }
                Fact::Leads { .. }
                | Fact::Follows
                | Fact::Live { .. }
                | Fact::Commits { .. }
                | Fact::ReadGate { .. } => {
                    self.measured.facts.push((self.now, node, fact));
                }
                _ => {}
            }
        }
    }

    /// The sync that ran on a host has ended.
    fn synced(&mut self, host: usize) {
        let disk = &mut self.hosts[host].disk;
        disk.finish_sync();
        disk.discard_synced();
        let (synced, node) = (disk.synced(), NodeId::new(host as u64 + 1).expect("few nodes"));
        let stored = &mut self.stored[host];
        while let Some((slot, _)) = stored.pop_front_if(|(_, behind)| *behind <= synced) {
            self.measured.durable.push((self.now, node, slot));
        }
    }

    fn reply(&mut self, host: usize, done: Nanos) {
        let Some(life) = &mut self.hosts[host].life else { return };
        for Answered { request, outcome, .. } in life.process.effects().replies.drain(..) {
            let back = self.waiting.get(&request.0).map_or(0, |waiting| waiting.back);
            let size = if let Outcome::Done(bytes) = &outcome { bytes.len() } else { 0 };
            // A process that runs a proxy alone is its clients'.
            let sent =
                if host < self.setup.nodes { self.wires.transmit(host, done, size + FRAME) } else { done };
            let at = sent + back;
            self.queue.push(at, Event::Answer { id: request, outcome });
        }
    }

    /// Writes records, sends what may go, starts a sync; gives when the processor is free again.
    fn flush(&mut self, host: usize, mut at: Nanos) -> Nanos {
        let SimProcess { life: Some(life), disk, epoch, .. } = &mut self.hosts[host] else { return at };
        let Effects { records, barriers, .. } = life.process.effects();
        // Nobody starts again, so no state has to be saved.
        barriers.clear();
        let records = life.ledger.append(std::mem::take(records), []);
        if let Some(node) = NodeId::new(host as u64 + 1).filter(|_| host < self.setup.nodes) {
            let bytes = records.iter().map(|record| record.len() as u64).sum::<u64>();
            *self.measured.logged.entry(node).or_default() += bytes;
        }
        disk.append(records, at).expect("the disk is never full");
        let written = disk.written();
        for (_, behind) in
            self.stored.get_mut(host).into_iter().flatten().rev().take_while(|it| it.1 > written)
        {
            *behind = written;
        }
        let frames = life.release(disk);
        if let Some(end) = disk.start_sync(at) {
            self.queue.push(end, Event::Synced { host, epoch: *epoch });
        }
        for frame in frames {
            if frame.own {
                // Inside the process: at once.
                self.queue.push(at, Event::Own { host });
            }
            let payload = frame.payload.into_bytes();
            let capacity = self.setup.capacity;
            let coding = capacity.coding(payload.len());
            let cost = capacity.handling(frame.kind, payload.len()) + coding;
            if host < self.setup.nodes {
                at += coding;
            }
            for to in frame.to.iter() {
                let delivery = Delivery { from: frame.from, to, payload: payload.clone(), cost };
                self.send(host, delivery, (frame.kind, frame.class), &mut at);
            }
        }
        self.leave(self.wires.machine(host));
        at
    }

    /// Frames leave that a machine has time for; those that are left have an event of their own.
    fn leave(&mut self, machine: usize) {
        for (at, delivery) in self.wires.leave(machine, self.now) {
            self.queue.push(at, Event::Deliver(delivery));
        }
        if let Some(next) = self.wires.leaves(machine)
            && self.leaves[machine].is_none_or(|at| next < at)
        {
            self.leaves[machine] = Some(next);
            self.queue.push(next, Event::Leave { machine });
        }
    }

    fn send(
        &mut self,
        host: usize,
        delivery: Delivery,
        (kind, class): (&'static str, Class),
        at: &mut Nanos,
    ) {
        let Some(target) = self.locate(delivery.to) else { return };
        if host.max(target) < self.setup.nodes {
            *self.measured.sent.entry(kind).or_default() += 1;
        }
        if host < self.setup.nodes {
            *at +=
                self.setup.capacity.per_message + self.setup.capacity.handling(kind, delivery.payload.len());
        }
        let bytes = delivery.payload.len() + FRAME;
        if let Sent::Arrives(arrival, delivery) = self.wires.send((host, target), *at, class, bytes, delivery)
        {
            self.queue.push(arrival, Event::Deliver(delivery));
        }
    }

    fn locate(&self, process: ProcessId) -> Option<usize> {
        match process {
            ProcessId::Replica(node) => {
                Some(usize::from(node.get()) - 1).filter(|host| *host < self.setup.nodes)
            }
            ProcessId::Proxy(proxy) => match proxy.host() {
                Some(node) => self.locate(node.into()),
                None => self.hosts.iter().position(|host| host.proxy == proxy),
            },
        }
    }

    /// An input comes to a host, and takes so much of its processor beside what every input takes.
    pub fn enqueue(&mut self, host: usize, input: Input, cost: Nanos) {
        if let Some(life) = &mut self.hosts[host].life {
            let first = matches!(self.setup.capacity.turns, Turns::MessagesFirst(_))
                && matches!(input, Input::Frame { .. });
            let place = if first { self.messages_first[host] } else { life.inbox.len() };
            self.messages_first[host] += usize::from(first);
            life.inbox.insert(place, input);
            self.costs[host].insert(place, cost);
            self.wake(host);
        }
    }
}
