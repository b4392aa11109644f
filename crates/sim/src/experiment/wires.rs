//! The links of an experiment. Messages of a node share its network interface, and those of a link the link, so what is
//! much in use is slow (`quorate_core::link`). A link delivers messages in the order in which they have left: where
//! there is no rate, as they were sent, and else what is urgent before bulk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use quorate_check::Nanos;
use quorate_core::{Class, Interface, Line, Link, NodeId, Random, Rate, Time};

use super::Delay;

/// In which order a process takes what has come in, and how much of it in one turn. What a turn leads to leaves when
/// its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// As it came, and so many inputs at most.
    InOrder(usize),
    /// All messages of other processes, and then so many requests of clients at most.
    MessagesFirst(usize),
}

/// What a node's loop, processor, disk and network interface can do. Proxies of clients have all they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Of the loop around the machines.
    pub turns: Turns,
    /// Of the processor, to take an input.
    pub per_input: Nanos,
    /// Of the processor, to send a message.
    pub per_message: Nanos,
    /// Of the processor, on top of that: to send, and to take, a message of these kinds.
    pub per_kind: &'static [(&'static str, Nanos)],
    /// Of the processor, on top of that: how fast it sends, and takes, what is in messages, for each of their
    /// recipients anew; none for at once.
    pub bytes: Option<Rate>,
    /// Of the processor, on top of that: how fast it encodes a message, once for all of its recipients, and decodes
    /// what it takes; none for at once.
    pub encoding: Option<Rate>,
    /// Of the disk, on top of [`Setup::sync`](super::Setup::sync): how fast it makes what is in records durable; none
    /// for at once.
    pub disk: Option<Rate>,
    /// Of the interface, where the topology gives the node none; none for at once.
    pub interface: Option<Rate>,
}

impl Default for Capacity {
    fn default() -> Self {
        Capacity::UNLIMITED
    }
}

impl Capacity {
    /// Everything takes no time.
    pub const UNLIMITED: Capacity = Capacity {
        turns: Turns::InOrder(256),
        per_input: 0,
        per_message: 0,
        per_kind: &[],
        bytes: None,
        encoding: None,
        disk: None,
        interface: None,
    };

    /// What a message of this kind and size takes of the processor that sends it, for each recipient, or takes it, on
    /// top of what every message takes and of its encoding.
    pub fn handling(&self, kind: &str, bytes: usize) -> Nanos {
        let of_kind = self.per_kind.iter().find(|(name, _)| *name == kind).map_or(0, |(_, nanos)| *nanos);
        of_kind + time_of(self.bytes, bytes)
    }

    /// What encoding so many bytes takes of the processor that sends them, and decoding of each that takes them.
    pub fn coding(&self, bytes: usize) -> Nanos {
        time_of(self.encoding, bytes)
    }
}

fn time_of(rate: Option<Rate>, bytes: usize) -> Nanos {
    rate.map_or(0, |rate| rate.transmission(bytes).as_nanos() as Nanos)
}

/// All links between `hosts` hosts, of which the first `nodes` are nodes. Nodes of one machine share its links: there
/// is one for each two machines, and machines are numbered as hosts are.
#[derive(Debug)]
pub struct Wires<T> {
    hosts: usize,
    nodes: usize,
    /// The machine on which each host runs.
    machines: Vec<usize>,
    /// Of each link, row by row.
    delays: Vec<Delay>,
    rates: Vec<Option<Rate>>,
    /// What waits to leave, with what it will be under way.
    lines: Vec<Line<(Nanos, T)>>,
    /// How many bytes nodes have sent over each link, frames and what is lost included.
    bytes: Vec<u64>,
    /// Between a client and the node it is connected to, by their sites; row by row.
    trips: Vec<Delay>,
    /// The network interface of each machine.
    interfaces: Vec<Interface>,
    /// When the last message of each link arrives.
    last_arrival: Vec<Nanos>,
    /// Links on which everything is lost.
    lossy: BTreeSet<usize>,
    deaf: BTreeSet<usize>,
    mute: BTreeSet<usize>,
    random: Random,
}

/// What has become of a message that was sent.
#[derive(Debug)]
pub enum Sent<T> {
    /// It arrives at this instant.
    Arrives(Nanos, T),
    /// It waits for the link or the interface ([`Wires::leave`]).
    Waits,
    /// The link has lost it.
    Lost,
}

impl<T> Wires<T> {
    /// Links, interfaces, disks and processors as this setup has them.
    pub fn new(setup: &super::Setup, random: Random) -> Wires<T> {
        let (nodes, hosts) = (setup.nodes, setup.nodes + setup.proxies);
        let interface = |node| setup.topology.as_ref().and_then(|topology| topology.interface(node));
        let (delays, rates) = (0..hosts * hosts).map(|at| link(setup, at / hosts, at % hosts)).unzip();
        let mut wires = Wires {
            hosts,
            nodes,
            machines: (0..hosts).map(|host| setup.machines.get(host).copied().unwrap_or(host)).collect(),
            delays,
            rates,
            trips: (0..nodes * nodes).map(|at| link(setup, nodes + at / nodes, at % nodes).0).collect(),
            lines: (0..hosts * hosts).map(|_| Line::default()).collect(),
            bytes: vec![0; hosts * hosts],
            interfaces: (0..nodes)
                .map(|node| Interface::new(interface(node).or(setup.capacity.interface)))
                .collect(),
            last_arrival: vec![0; hosts * hosts],
            lossy: BTreeSet::new(),
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
            random,
        };
        for (&(from, to), &link) in &setup.links {
            wires.change(from, to, link);
        }
        wires
    }

    /// A link between two nodes is like this from now on: its delay for what is sent over it, its rate for what waits,
    /// too.
    pub fn change(&mut self, from: NodeId, to: NodeId, link: Link) {
        let index = self.index(from, to);
        (self.delays[index], self.rates[index]) = (Delay::from(link), link.rate);
    }

    /// What is sent over a link between two nodes is lost from now on, or no longer.
    pub fn lose(&mut self, (from, to): (NodeId, NodeId), loses: bool) {
        let index = self.index(from, to);
        match loses {
            true => self.lossy.insert(index),
            false => self.lossy.remove(&index),
        };
    }

    fn index(&self, from: NodeId, to: NodeId) -> usize {
        let at = |node: NodeId| usize::from(node.get()) - 1;
        assert!(at(from).max(at(to)) < self.nodes && from != to, "a link is between two nodes of the setup");
        self.link(at(from), at(to))
    }

    /// The machine of a host.
    pub fn machine(&self, host: usize) -> usize {
        self.machines[host]
    }

    /// Over which one host sends to another.
    fn link(&self, from: usize, to: usize) -> usize {
        self.machines[from] * self.hosts + self.machines[to]
    }

    /// How many bytes nodes have sent to each other, over those links that were used.
    pub fn bytes(&self) -> BTreeMap<(NodeId, NodeId), u64> {
        let id = |host: usize| NodeId::new(host as u64 + 1).expect("few nodes");
        let links = (0..self.nodes).flat_map(|from| (0..self.nodes).map(move |to| (from, to)));
        let sent = links.map(|(from, to)| ((id(from), id(to)), self.bytes[from * self.hosts + to]));
        sent.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// What a message takes between a client of a site and a node.
    pub fn trip(&mut self, site: usize, node: usize) -> Nanos {
        self.trips[site * self.nodes + node].draw(&mut self.random)
    }

    /// What other nodes send to this one is lost.
    pub fn deafen(&mut self, node: usize) {
        self.deaf.insert(node);
    }

    /// What this node sends to other nodes is lost.
    pub fn mute(&mut self, node: usize) {
        self.mute.insert(node);
    }

    /// When a node's interface has sent so much that is ready now.
    pub fn transmit(&mut self, node: usize, now: Nanos, bytes: usize) -> Nanos {
        self.interfaces[self.machines[node]].transmit(Time::from_nanos(now), bytes).nanos()
    }

    /// Sends a message that is ready now.
    pub fn send(
        &mut self,
        (from, to): (usize, usize),
        now: Nanos,
        class: Class,
        bytes: usize,
        message: T,
    ) -> Sent<T> {
        let peers = from < self.nodes && to < self.nodes;
        let (link, machine) = (self.link(from, to), self.machines[from]);
        self.bytes[link] += bytes as u64;
        let lost = self.deaf.contains(&to) || self.mute.contains(&from) || self.lossy.contains(&link);
        if peers && lost {
            return Sent::Lost;
        }
        let delay = self.delays[link].draw(&mut self.random);
        let line = &mut self.lines[link];
        let is_limited = |interface: &Interface| interface.rate().or(self.rates[link]).is_some();
        // A rate that has just been taken away does not let this message pass those before it.
        if self.interfaces.get(machine).is_some_and(is_limited) || !line.is_empty() {
            line.push(class, Time::from_nanos(now), bytes, (delay, message));
            return Sent::Waits;
        }
        Sent::Arrives(self.arrival(link, now + delay), message)
    }

    /// When the next frame of a machine leaves; none if nothing waits there.
    pub fn leaves(&self, machine: usize) -> Option<Nanos> {
        self.next(machine).map(|(at, _)| at)
    }

    /// The frames of a machine leave that it has time for until now: gives the messages that end with them, and when
    /// they arrive where.
    pub fn leave(&mut self, machine: usize, now: Nanos) -> Vec<(Nanos, T)> {
        let mut left = Vec::new();
        while let Some((at, link)) = self.next(machine)
            && at <= now
        {
            let sent = self.interfaces[machine].send(&mut self.lines[link], self.rates[link]);
            left.extend(sent.map(|(at, (delay, message))| (self.arrival(link, at.nanos() + delay), message)));
        }
        left
    }

    fn next(&self, machine: usize) -> Option<(Nanos, usize)> {
        let links = machine * self.hosts..(machine + 1) * self.hosts;
        let next = self.interfaces.get(machine)?.next(links.map(|link| (link, &self.lines[link])))?;
        Some((next.0.nanos(), next.1))
    }

    /// Nothing passes what was sent before it on its link.
    fn arrival(&mut self, link: usize, at: Nanos) -> Nanos {
        let last = &mut self.last_arrival[link];
        *last = at.max(*last);
        *last
    }
}

/// From one host to another, as the topology has it between sites; hosts of one site are near each other.
fn link(setup: &super::Setup, from: usize, to: usize) -> (Delay, Option<Rate>) {
    let site = |host: usize| if host < setup.nodes { host } else { host - setup.nodes };
    let link = setup.topology.as_ref().map(|topology| topology.link(site(from), site(to)));
    let delay = match link {
        Some(link) if site(from) != site(to) => link.into(),
        _ if from < setup.nodes && to < setup.nodes => setup.between_nodes,
        _ => setup.to_clients,
    };
    (delay, link.and_then(|link| link.rate))
}

impl From<Link> for Delay {
    fn from(link: Link) -> Delay {
        let nanos = |time: Duration| time.as_nanos() as Nanos;
        match (nanos(link.delay), nanos(link.jitter)) {
            (low, 0) => Delay::Fixed(low),
            (low, jitter) => Delay::Uniform { low, high: low + jitter },
        }
    }
}
