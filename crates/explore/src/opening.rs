//! Before the exploration: a group whose clients have sessions, and which has come to rest.
//!
//! The opening is played once, in order and without loss: a leader is found, each client that will write has written
//! something else before, and all replicas have heard of it. Then every replica is stopped, and started again a long
//! time later from what it saves: no leader, no leases, no messages under way, and a log that is cut.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Configs, Group, Machine, Manage, Managed, NodeId, NodeSet, Outcome, ProcessId, Protocol, Proxy,
    ProxyId, Random, Range, Replica, Request, RequestId, Roster, Saved, Time, Wakeup, Wire,
};
use quorate_runtime::MachineRunner;
use quorate_store::{Command, Reply};

use super::Bounds;
use super::BoundsError;
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
pub(super) struct Client<P: Protocol> {
    config: <P::Proxy as Machine>::Config,
    id: ProxyId,
    pub client_operation: ClientOperation,
    /// What its proxy says when it is asked to, to whatever replica.
    pub asks: Vec<P::Message>,
    /// What its proxy was fed: a machine cannot be copied.
    fed: Vec<(Time, Fed<P>)>,
}

enum Fed<P: Protocol> {
    Request(ClientOperation),
    Message(NodeId, P::Message),
    Timer(<P::Proxy as Machine>::Timer),
}

/// Where an exploration begins.
pub(super) struct Opening<P: Protocol> {
    pub origins: Vec<Origin<P>>,
    pub clients: Vec<Client<P>>,
    /// What clocks show in the beginning.
    pub now: Time,
}

impl<P: Protocol> Client<P> {
    fn new(config: &<P::Proxy as Machine>::Config, index: usize, client_operation: ClientOperation) -> Self {
        let id = ProxyId(PROXIES + index as u64);
        Client { config: config.clone(), id, client_operation, asks: Vec::new(), fed: Vec::new() }
    }

    fn proxy(&self) -> MachineRunner<P::Proxy> {
        let at = instant(Time::ZERO + START);
        let (config, random) = (self.config.clone(), Random::new(self.id.0));
        let mut proxy = MachineRunner::start(self.id.into(), config, Saved::nothing(), at, random, true);
        for (now, fed) in &self.fed {
            feed(&mut proxy, *now, fed);
        }
        proxy.out.messages.clear();
        proxy.out.replies.clear();
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
    pub fn hears(&self, from: ProcessId, message: P::Message) -> Option<Told> {
        let from = from.replica().expect("proxies hear replicas");
        let mut proxy = self.proxy();
        let now = self.fed.last().map_or(Time::ZERO + START, |(now, _)| *now);
        feed(&mut proxy, now, &Fed::<P>::Message(from, message));
        proxy.out.replies.drain(..).find_map(|answered| match answered.outcome {
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

fn feed<P: Protocol>(proxy: &mut MachineRunner<P::Proxy>, now: Time, fed: &Fed<P>) {
    let at = instant(now);
    proxy.step(at, |machine, cx| match fed {
        Fed::Request(client_operation) => {
            let deadline = now + PATIENCE;
            let (access, command) = match client_operation {
                ClientOperation::Command(command) => (command.access(), command.to_bytes()),
                ClientOperation::Manage(manage) => (Access::Manage, manage.to_bytes()),
            };
            // One request at a time: its own encoding tells it apart.
            let id = RequestId(quorate_core::digest(&command));
            machine.on_request(id, Request { stream: 1, command, access, deadline }, cx);
        }
        Fed::Message(from, message) => machine.on_message((*from).into(), message.clone(), cx),
        Fed::Timer(timer) => machine.on_timer(*timer, cx),
    });
    proxy.end_batch(at);
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
pub(super) fn play<P: Protocol>(bounds: &Bounds, configs: Configs<P>) -> Result<Opening<P>, BoundsError> {
    let group = Group::of((1..=bounds.nodes as u64).filter_map(NodeId::new).collect::<NodeSet>());
    let mut stage = Stage::<P> {
        processes: Vec::new(),
        clients: Vec::new(),
        proxies: Vec::new(),
        told: 0,
        now: Time::ZERO + START,
        flights: VecDeque::new(),
    };
    let mut origins = Vec::new();
    for me in group.members.iter() {
        let (config, saved) = (configs.0.clone(), Saved::nothing());
        let origin =
            Origin { me, config, saved, at: stage.now, rest: Duration::ZERO, mortal: false, heeds: |_| true };
        stage.processes.push(Process::start(&origin).0);
        origins.push(origin);
    }
    for index in 0..bounds.writes + bounds.reads + bounds.rosters.len() {
        let client = Client::new(&configs.1, index, client_operation(bounds, index));
        stage.proxies.push(client.proxy());
        stage.clients.push(client);
    }
    for index in 0..bounds.writes {
        stage.feed(index, Fed::Request(put("before", format!("{index}"))));
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
    let rest = if P::CAPABILITIES.total_order { REST } else { Duration::ZERO };
    for (origin, process) in origins.iter_mut().zip(&stage.processes) {
        *origin = Origin {
            me: origin.me,
            config: origin.config.clone(),
            saved: process.machine().save(),
            at: stage.now,
            rest,
            mortal: bounds.failures > 0,
            heeds: match bounds.wakes {
                0 => |wakeup| matches!(wakeup, Wakeup::TakesOver { .. }),
                _ => |wakeup| wakeup != Wakeup::Spared,
            },
        };
    }
    for index in 0..stage.clients.len() {
        let client_operation = stage.clients[index].client_operation.clone();
        stage.feed(index, Fed::Request(client_operation));
        let said = stage.flights.drain(..).map(|(_, _, message)| message);
        let mut asks = BTreeMap::new();
        for message in said {
            asks.entry(message.to_bytes()).or_insert(message);
        }
        assert!(!asks.is_empty(), "a proxy that is at rest asks at once");
        stage.clients[index].asks = asks.into_values().collect();
    }
    Ok(Opening { origins, clients: stage.clients, now: stage.now + rest })
}

struct Stage<P: Protocol> {
    processes: Vec<Process<P>>,
    clients: Vec<Client<P>>,
    proxies: Vec<MachineRunner<P::Proxy>>,
    /// Clients that were answered.
    told: usize,
    now: Time,
    flights: VecDeque<(ProcessId, ProcessId, P::Message)>,
}

impl<P: Protocol> Stage<P> {
    fn agrees(&self) -> bool {
        self.processes
            .windows(2)
            .all(|pair| pair[0].machine().fingerprint() == pair[1].machine().fingerprint())
    }

    /// One more input; false when there is nothing more to wait for.
    fn go_on(&mut self, writes: usize) -> bool {
        if let Some((from, to, message)) = self.flights.pop_front() {
            match (to, from) {
                (ProcessId::Replica(node), _) => {
                    self.input(usize::from(node.get()) - 1, Input::Message(from, message));
                }
                (ProcessId::Proxy(_), ProcessId::Replica(from)) => {
                    self.feed(Client::<P>::of(to).expect("a proxy"), Fed::Message(from, message));
                }
                (ProcessId::Proxy(_), ProcessId::Proxy(_)) => unreachable!("proxies hear replicas"),
            }
            return true;
        }
        if self.told == writes && self.agrees() {
            return false;
        }
        let replicas = self.processes.iter().enumerate();
        let replica = replicas.flat_map(|(place, process)| {
            process.timers().enumerate().map(move |(timer, (_, at))| (at, place, timer))
        });
        let proxies = self.proxies.iter().enumerate();
        let proxy = proxies.filter_map(|(place, proxy)| Some((proxy.timers.next()?, place))).min();
        let replica = replica.min();
        let Some(at) = replica.map(|(at, ..)| at).into_iter().chain(proxy.map(|(at, _)| at)).min() else {
            return false;
        };
        self.now = self.now.max(at);
        if let Some((_, place, timer)) = replica.filter(|(due, ..)| *due == at) {
            self.input(place, Input::Timer(timer));
        } else if let Some((_, place)) = proxy
            && let Some(timer) = self.proxies[place].timers.pop_due(self.now)
        {
            self.feed(place, Fed::Timer(timer));
        }
        true
    }

    fn input(&mut self, place: usize, input: Input<P::Message>) {
        let mut effects = Effects::new(false);
        let process = &mut self.processes[place];
        process.now = self.now;
        process.feed(input, &mut effects);
        let from = NodeId::new(place as u64 + 1).expect("a node").into();
        self.flights.extend(effects.sent.into_iter().map(|(to, message)| (from, to, message)));
    }

    fn feed(&mut self, place: usize, fed: Fed<P>) {
        let proxy = &mut self.proxies[place];
        feed(proxy, self.now, &fed);
        self.clients[place].fed.push((self.now, fed));
        self.told += proxy.out.replies.drain(..).count();
        let from = self.clients[place].name();
        for outgoing in proxy.out.messages.drain(..) {
            for to in outgoing.to.iter() {
                self.flights.push_back((from, to, outgoing.message.clone()));
            }
        }
    }
}
