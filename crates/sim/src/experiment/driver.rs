//! Turns of the loops.

use std::collections::BTreeMap;

use quorate_core::{
    Answered, Configs, Fact, Message, NodeId, Outcome, Outgoing, ProcessId, Protocol, Random, Request,
    RequestId, Wire,
};

use super::asking::Waiting;
use super::wires::Wires;
use super::{Load, Measured, Setup};
use crate::clock::Clock;
use crate::disk::{Disk, Speed};
use crate::history::Recorder;
use crate::host::{Host, Input};
use crate::network::Latency;
use crate::queue::{Nanos, Queue};

/// The most inputs that a process takes in one turn, as a node does.
const BATCH: usize = 256;
/// Bytes of a frame around a message.
const FRAME: usize = 32;

pub(super) enum Event<P: Protocol> {
    Deliver {
        from: ProcessId,
        to: ProcessId,
        message: P::Message,
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

/// An experiment that runs.
pub(super) struct Driver<'a, P: Protocol> {
    pub setup: &'a Setup,
    pub now: Nanos,
    pub queue: Queue<Event<P>>,
    pub hosts: Vec<Host<P>>,
    pub wires: Wires,
    pub load: Load<'a>,
    pub waiting: BTreeMap<u64, Waiting>,
    pub recorder: Recorder,
    pub measured: Measured,
}

impl<'a, P: Protocol> Driver<'a, P> {
    /// Everybody starts at once.
    pub fn new(setup: &'a Setup, configs: Configs<P>, mut load: Load<'a>) -> Self {
        let mut random = Random::new(setup.seed);
        let wires = Wires::new(setup, random.fork());
        let fixed = Latency::Uniform { low: setup.sync, high: setup.sync };
        let hosts = (0..setup.nodes + setup.proxies).map(|host| {
            let mut random = random.fork();
            let node = (host < setup.nodes).then(|| NodeId::new(host as u64 + 1).expect("few nodes"));
            let disk = Disk::new(Speed { write: fixed, sync: fixed }, random.fork());
            let clock = Clock::steady(setup.clock_error, &mut random);
            Host::new(node, disk, clock, random)
        });
        let mut driver = Driver {
            setup,
            now: 0,
            queue: Queue::default(),
            hosts: hosts.collect(),
            wires,
            load: Load::default(),
            waiting: BTreeMap::new(),
            recorder: Recorder::default(),
            measured: Measured::default(),
        };
        for host in 0..driver.hosts.len() {
            driver.hosts[host].start(0, &configs, None).expect("an empty disk can be read");
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
            for client in 0..clients.at.len() {
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
        self.measured
    }

    fn handle(&mut self, event: Event<P>) {
        match event {
            Event::Deliver { from, to, message } => self.deliver(from, to, message),
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
                self.hosts[host].disk.finish_sync();
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
        let Host { life, epoch, .. } = &mut self.hosts[host];
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
        let Host { life: Some(life), epoch, .. } = &mut self.hosts[host] else { return };
        if life.wake_at.is_none_or(|at| next < at) {
            life.wake_at = Some(next);
            self.queue.push(next, Event::Wake { host, epoch: *epoch });
        }
    }

    fn turn(&mut self, host: usize) {
        let at = self.hosts[host].instant(self.now);
        let is_node = host < self.setup.nodes;
        let Some(life) = &mut self.hosts[host].life else { return };
        life.budget = BATCH;
        let mut inputs = 0;
        while let Some(input) = life.next_input(at) {
            life.step(input, at);
            inputs += 1;
        }
        life.end_batch(at);
        life.turning = false;
        let idle = life.inbox.is_empty();
        let cost = if is_node { self.setup.capacity.per_input } else { 0 };
        // What this turn leads to comes when its work is done.
        let done = self.now + cost * inputs;
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
        life.proxy.out.facts.clear();
        // Links are there already.
        life.proxy.out.members = None;
        let Some(replica) = &mut life.replica else { return };
        replica.out.members = None;
        let node = NodeId::new(host as u64 + 1).expect("it has a replica");
        for fact in replica.out.facts.drain(..) {
            if let Fact::Leads { .. } | Fact::Follows | Fact::Commits { .. } | Fact::ReadGate { .. } = fact {
                self.measured.facts.push((self.now, node, fact));
            }
        }
    }

    fn reply(&mut self, host: usize, done: Nanos) {
        let Some(life) = &mut self.hosts[host].life else { return };
        for Answered { request, outcome, .. } in life.proxy.out.replies.drain(..) {
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
        let Host { life: Some(life), disk, epoch, .. } = &mut self.hosts[host] else { return at };
        let mut messages: Vec<_> =
            life.proxy.out.messages.drain(..).map(|outgoing| (life.proxy.me, outgoing)).collect();
        if let Some(replica) = &mut life.replica {
            for record in replica.out.records.drain(..) {
                disk.append(record.to_bytes(), at).expect("the disk is never full");
            }
            let me = replica.me;
            messages.extend(life.take_released(disk).into_iter().map(|outgoing| (me, outgoing)));
            if let Some(end) = disk.start_sync(at) {
                self.queue.push(end, Event::Synced { host, epoch: *epoch });
            }
        }
        for (from, Outgoing { to, message, .. }) in messages {
            for to in to.iter() {
                self.send(host, from, to, message.clone(), &mut at);
            }
        }
        at
    }

    fn send(&mut self, host: usize, from: ProcessId, to: ProcessId, message: P::Message, at: &mut Nanos) {
        let Some(target) = self.locate(to) else { return };
        if target == host {
            // Inside the process: at once.
            self.queue.push(*at, Event::Deliver { from, to, message });
            return;
        }
        if host.max(target) < self.setup.nodes {
            *self.measured.sent.entry(message.kind()).or_default() += 1;
        }
        if host < self.setup.nodes {
            *at += self.setup.capacity.per_message;
        }
        if let Some(arrival) = self.wires.send(host, target, *at, message.to_bytes().len() + FRAME) {
            self.queue.push(arrival, Event::Deliver { from, to, message });
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

    fn deliver(&mut self, from: ProcessId, to: ProcessId, message: P::Message) {
        let Some(host) = self.locate(to) else { return };
        let Some(life) = &mut self.hosts[host].life else { return };
        life.inbox.push_back(match to {
            ProcessId::Replica(_) => Input::ToReplica(from, message),
            ProcessId::Proxy(_) => Input::ToProxy(from, message),
        });
        self.wake(host);
    }
}
