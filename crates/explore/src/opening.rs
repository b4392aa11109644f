//! Before the exploration: a group whose clients have sessions, and which has come to rest.
//!
//! The opening is played once, in order and without loss: a leader is found, each client that will write has written
//! something else before, and all replicas have heard of it. Then every replica is stopped, and started again a long
//! time later from what it saves: no leader, no leases, no messages under way, and a log that is cut.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Capabilities, Manage, Managed, NodeId, Outcome, ProcessId, ProxyId, Random, Range, Request,
    RequestId, Roster, Saved, Time, Wakeup, Wire,
};
use quorate_runtime::{self as runtime, AnyProcess, ConfiguredProtocol, OutgoingFrame, OwnMessages, Start};
use quorate_store::{Command, Reply};

use super::Bounds;
use super::BoundsError;
use super::locals::{Flight, place};
use super::process::{Effects, Input, Origin, Process, instant};

/// Where clocks start.
const START: Duration = Duration::from_secs(1);
/// Between the opening and the exploration: longer than any lease.
const REST: Duration = Duration::from_secs(3600);
/// Clients wait longer than the exploration lasts.
const PATIENCE: Duration = Duration::from_secs(1_000_000);
/// Inputs after which an opening has failed.
const INPUTS: usize = 100_000;
/// Proxies that live alone have ids from here on; they are those of the operations.
const PROXIES: u64 = 1000;

/// What a client, or an operator, wants.
#[derive(Clone, Debug)]
pub(super) enum ClientOperation {
    Command(Command),
    Manage(Manage),
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Reply(Reply),
    Managed(Managed),
}

/// What a client does.
pub(super) struct Client {
    protocol: Arc<dyn ConfiguredProtocol>,
    id: ProxyId,
    pub client_operation: ClientOperation,
    /// What its proxy says when it is asked to, to whatever replica.
    pub asks: Vec<OutgoingFrame>,
    /// What its proxy was fed: a machine cannot be copied.
    fed: Vec<(Time, Fed)>,
}

#[derive(Clone)]
enum Fed {
    Input(runtime::Input),
    /// The timer with the earliest deadline goes off.
    Timer,
}

/// Where an exploration begins.
pub(super) struct Opening {
    pub origins: Vec<Origin>,
    pub clients: Vec<Client>,
    /// What clocks show in the beginning.
    pub now: Time,
}

impl Client {
    fn new(
        protocol: &Arc<dyn ConfiguredProtocol>,
        index: usize,
        client_operation: ClientOperation,
    ) -> Client {
        let id = ProxyId(PROXIES + index as u64);
        Client { protocol: protocol.clone(), id, client_operation, asks: Vec::new(), fed: Vec::new() }
    }

    fn proxy(&self) -> Box<dyn AnyProcess> {
        let (at, random) = (instant(Time::ZERO + START, Duration::ZERO), Random::new(self.id.0));
        let (proxy, own) = (self.id, OwnMessages::AsFrames);
        let mut proxy = self.protocol.start(Start { proxy, node: None, at, random, observed: true, own });
        proxy.release(0);
        for (now, fed) in &self.fed {
            feed(&mut *proxy, *now, fed.clone());
        }
        *proxy.effects() = runtime::Effects::default();
        proxy
    }

    /// The operation whose proxy this is.
    pub fn of(process: ProcessId) -> Option<usize> {
        match process {
            ProcessId::Proxy(ProxyId(id)) => Some((id - PROXIES) as usize),
            ProcessId::Replica(_) => None,
        }
    }

    pub fn name(&self) -> ProcessId {
        self.id.into()
    }

    /// What the client is told when its proxy hears this; nothing if it learns nothing of its operation.
    pub fn hears(&self, flight: &Flight) -> Option<Told> {
        let &Flight { from, to, ref payload, .. } = flight;
        let mut proxy = self.proxy();
        let now = self.fed.last().map_or(Time::ZERO + START, |(now, _)| *now);
        let payload = payload.clone();
        feed(&mut *proxy, now, Fed::Input(runtime::Input::Frame { from, to, payload }));
        proxy.effects().replies.drain(..).find_map(|answered| match answered.outcome {
            Outcome::Done(reply) => Some(match self.client_operation {
                ClientOperation::Command(_) => {
                    Told::Reply(Reply::from_bytes(reply).expect("replies can be read"))
                }
                ClientOperation::Manage(_) => {
                    Told::Managed(Managed::from_bytes(reply).expect("replies can be read"))
                }
            }),
            Outcome::Failed(_) => None,
        })
    }
}

fn feed(proxy: &mut dyn AnyProcess, now: Time, fed: Fed) {
    match fed {
        Fed::Input(input) => proxy.take(input).map(drop).expect("a message that was sent can be read"),
        Fed::Timer => drop(proxy.take_due_timer(now).expect("it is due")),
    }
    proxy.step(instant(now, Duration::ZERO));
    proxy.end_batch(instant(now, Duration::ZERO));
    proxy.release(0);
}

fn request(client_operation: &ClientOperation, now: Time) -> Fed {
    let (access, command) = match client_operation {
        ClientOperation::Command(command) => (command.access(), command.to_bytes()),
        ClientOperation::Manage(manage) => (Access::Manage, manage.to_bytes()),
    };
    // One request at a time: its own encoding tells it apart.
    let id = RequestId(quorate_core::digest(&command));
    let request = Request { stream: 1, command, access, deadline: now + PATIENCE, after: 0 };
    Fed::Input(runtime::Input::Request(id, request))
}

/// A write of a key that no roster names, and of the one that is read.
fn put(key: &'static str, value: String) -> ClientOperation {
    let keys = ["a", key].map(|key| Bytes::from_static(key.as_bytes()));
    let pairs = keys.map(|key| (key, Bytes::from(value.clone()))).to_vec();
    ClientOperation::Command(Command::PutMany { pairs, if_none: false })
}

/// What the operation of this number is: first the writes, then the reads, then the operators'.
fn client_operation(bounds: &Bounds, index: usize) -> ClientOperation {
    let key = Bytes::from_static(b"k");
    if index < bounds.writes {
        return put("k", format!("{}", index + 1));
    }
    if index < bounds.writes + bounds.reads {
        return ClientOperation::Command(Command::Get { key });
    }
    let responders = bounds.rosters[index - bounds.writes - bounds.reads];
    let ranges = vec![Range::key(&key, responders)];
    ClientOperation::Manage(Manage::Roster(Roster::new(None, ranges).expect("one range")))
}

/// Plays it.
pub(super) fn play(
    bounds: &Bounds,
    capabilities: Capabilities,
    protocol: &Arc<dyn ConfiguredProtocol>,
) -> Result<Opening, BoundsError> {
    let mut stage = Stage {
        processes: Vec::new(),
        clients: Vec::new(),
        proxies: Vec::new(),
        told: 0,
        now: Time::ZERO + START,
        flights: VecDeque::new(),
    };
    let mut origins = Vec::new();
    for me in (1..=bounds.nodes as u64).filter_map(NodeId::new) {
        let (protocol, saved, rest) = (protocol.clone(), Saved::nothing(), Duration::ZERO);
        let origin = Origin { me, protocol, saved, at: stage.now, rest, mortal: false, heeds: |_| true };
        stage.processes.push(Process::start(&origin).0);
        origins.push(origin);
    }
    for index in 0..bounds.writes + bounds.reads + bounds.rosters.len() {
        let client = Client::new(protocol, index, client_operation(bounds, index));
        stage.proxies.push(client.proxy());
        stage.clients.push(client);
    }
    for index in 0..bounds.writes {
        stage.feed(index, request(&put("before", format!("{index}")), stage.now));
    }
    for _ in 0..INPUTS {
        if !stage.go_on(bounds.writes) {
            break;
        }
    }
    if stage.told < bounds.writes || !stage.agrees() {
        return Err(BoundsError::Opening);
    }
    // Where nobody leads, there are no leases either, and a replica that did nothing for long would turn clients away.
    let rest = if capabilities.total_order { REST } else { Duration::ZERO };
    for (origin, process) in origins.iter_mut().zip(&stage.processes) {
        origin.saved = process.save();
        (origin.at, origin.rest, origin.mortal) = (stage.now, rest, bounds.failures > 0);
        origin.heeds = match bounds.wakes {
            0 => |wakeup| matches!(wakeup, Wakeup::TakesOver { .. }),
            _ => |wakeup| wakeup != Wakeup::Spared,
        };
    }
    for index in 0..stage.clients.len() {
        let asked = request(&stage.clients[index].client_operation, stage.now);
        stage.feed(index, asked);
        let mut asks = BTreeMap::new();
        for (_, frame) in stage.flights.drain(..) {
            asks.entry(frame.payload.clone().into_bytes()).or_insert(frame);
        }
        assert!(!asks.is_empty(), "a proxy that is at rest asks at once");
        stage.clients[index].asks = asks.into_values().collect();
    }
    Ok(Opening { origins, clients: stage.clients, now: stage.now + rest })
}

struct Stage {
    processes: Vec<Process>,
    clients: Vec<Client>,
    proxies: Vec<Box<dyn AnyProcess>>,
    /// Clients that were answered.
    told: usize,
    now: Time,
    /// To whom, and what.
    flights: VecDeque<(ProcessId, OutgoingFrame)>,
}

impl Stage {
    fn agrees(&self) -> bool {
        self.processes.windows(2).all(|pair| pair[0].fingerprint() == pair[1].fingerprint())
    }

    /// One more input; false when there is nothing more to wait for.
    fn go_on(&mut self, writes: usize) -> bool {
        if let Some((to, OutgoingFrame { from, payload, .. })) = self.flights.pop_front() {
            let payload = payload.into_bytes();
            match Client::of(to) {
                Some(client) => self.feed(client, Fed::Input(runtime::Input::Frame { from, to, payload })),
                None => self.input(place(to), Input::Message(from, payload)),
            }
            return true;
        }
        if self.told == writes && self.agrees() {
            return false;
        }
        let replicas = self.processes.iter().enumerate();
        let replica = replicas.flat_map(|(place, process)| {
            process.timers().into_iter().enumerate().map(move |(timer, set)| (set.at, place, timer))
        });
        let proxies = self.proxies.iter().enumerate();
        let proxy = proxies.filter_map(|(place, proxy)| Some((proxy.deadline()?, place))).min();
        let replica = replica.min();
        let Some(at) = replica.map(|(at, ..)| at).into_iter().chain(proxy.map(|(at, _)| at)).min() else {
            return false;
        };
        self.now = self.now.max(at);
        if let Some((_, place, timer)) = replica.filter(|(due, ..)| *due == at) {
            self.input(place, Input::Timer(timer));
        } else if let Some((_, place)) = proxy {
            self.feed(place, Fed::Timer);
        }
        true
    }

    fn input(&mut self, place: usize, input: Input) {
        let mut effects = Effects::new(false);
        let process = &mut self.processes[place];
        process.now = self.now;
        process.feed(input, &mut effects);
        self.send(effects.sent);
    }

    fn feed(&mut self, place: usize, fed: Fed) {
        let proxy = &mut *self.proxies[place];
        feed(proxy, self.now, fed.clone());
        self.clients[place].fed.push((self.now, fed));
        let runtime::Effects { replies, frames, .. } = std::mem::take(proxy.effects());
        self.told += replies.len();
        self.send(frames);
    }

    fn send(&mut self, frames: Vec<OutgoingFrame>) {
        let each = frames.into_iter().flat_map(|frame| frame.to.iter().map(move |to| (to, frame.clone())));
        self.flights.extend(each);
    }
}
