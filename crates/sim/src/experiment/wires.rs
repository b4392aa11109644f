//! The links of an experiment. Messages of a node share its network interface, so what is much in use is slow; a link
//! delivers in order, as a connection does.

use std::collections::BTreeSet;

use quorate_check::{Nanos, SECOND};
use quorate_core::{Random, Topology};

use super::Delay;

/// What a node's processor and network interface can do. Proxies of clients have all they need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Of the processor, to take an input.
    pub per_input: Nanos,
    /// Of the processor, to send a message.
    pub per_message: Nanos,
    /// Of the interface, in bytes a second; 0 for as many as there are.
    pub bandwidth: u64,
}

impl Capacity {
    fn transmission(self, bytes: usize) -> Nanos {
        (bytes as u64 * SECOND).checked_div(self.bandwidth).unwrap_or(0)
    }
}

/// All links between `hosts` hosts, of which the first `nodes` are nodes.
#[derive(Debug)]
pub struct Wires {
    hosts: usize,
    nodes: usize,
    /// Of each link, row by row.
    delays: Vec<Delay>,
    /// Between a client and the node it is connected to, by their sites; row by row.
    trips: Vec<Delay>,
    capacity: Capacity,
    /// When each host's interface has sent what it was given.
    free_at: Vec<Nanos>,
    /// When the last message of each link arrives.
    last_arrival: Vec<Nanos>,
    deaf: BTreeSet<usize>,
    mute: BTreeSet<usize>,
    random: Random,
}

impl Wires {
    /// See [`super::Setup`].
    pub fn new(setup: &super::Setup, random: Random) -> Wires {
        let (nodes, hosts) = (setup.nodes, setup.nodes + setup.proxies);
        Wires {
            hosts,
            nodes,
            delays: (0..hosts * hosts).map(|link| delay(setup, link / hosts, link % hosts)).collect(),
            trips: (0..nodes * nodes).map(|trip| trip_of(setup, trip / nodes, trip % nodes)).collect(),
            capacity: setup.capacity,
            free_at: vec![0; hosts],
            last_arrival: vec![0; hosts * hosts],
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
            random,
        }
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
        let leaves = now.max(self.free_at[node]) + self.capacity.transmission(bytes);
        self.free_at[node] = leaves;
        leaves
    }

    /// When a message that is ready now arrives; `None` if it is lost.
    pub fn send(&mut self, from: usize, to: usize, now: Nanos, bytes: usize) -> Option<Nanos> {
        let peers = from < self.nodes && to < self.nodes;
        if peers && (self.deaf.contains(&to) || self.mute.contains(&from)) {
            return None;
        }
        let leaves = if from < self.nodes { self.transmit(from, now, bytes) } else { now };
        let delay = self.delays[from * self.hosts + to];
        let last = &mut self.last_arrival[from * self.hosts + to];
        *last = (leaves + delay.draw(&mut self.random)).max(*last);
        Some(*last)
    }
}

/// Between two hosts.
fn delay(setup: &super::Setup, from: usize, to: usize) -> Delay {
    let peers = from < setup.nodes && to < setup.nodes;
    let site = |host: usize| if host < setup.nodes { host } else { host - setup.nodes };
    match &setup.topology {
        Some(topology) if site(from) != site(to) => far(topology, site(from), site(to)),
        _ if peers => setup.between_nodes,
        _ => setup.to_clients,
    }
}

/// Between a client of a site and a node.
fn trip_of(setup: &super::Setup, site: usize, node: usize) -> Delay {
    match &setup.topology {
        Some(topology) if site != node => far(topology, site, node),
        _ => setup.to_clients,
    }
}

fn far(topology: &Topology, from: usize, to: usize) -> Delay {
    let (least, jitter) =
        (topology.one_way(from, to).as_nanos() as Nanos, topology.jitter().as_nanos() as Nanos);
    match jitter {
        0 => Delay::Fixed(least),
        jitter => Delay::Uniform { low: least, high: least + jitter },
    }
}
