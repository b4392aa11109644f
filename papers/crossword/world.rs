//! The clusters of Crossword's figures, closed loops of clients in them, and what can be said of a run.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Fact, Link, NodeId, Random, Rate, Topology};
use quorate_protocols::{registry, wide_area};
use quorate_sim::experiment::{self, Act, Ask, Capacity, Delay, Load, Measured, Operation, Setup};
use quorate_store::Command;

use super::{CHAIN, CRAFT, CROSSWORD, MULTIPAXOS, RAFT, RSPAXOS, UNBALANCED};
use crate::instrument::Result;
use crate::instrument::closed_loops;
pub use crate::instrument::closed_loops::{Candidate, MS, SECOND, node};

/// There is a leader by then, and it has its leases.
pub const READY: u64 = 5 * SECOND;
/// Clients are at work for so long before anything counts: the chooser's window.
pub const WARM_UP: u64 = 2 * SECOND;
/// The paper's number of clients.
pub const CLIENTS: usize = 15;
/// How many keys they share.
const KEYS: u64 = 100;
/// To make records durable, beside what their bytes take.
const SYNC: u64 = 200_000;
/// What messages, bytes and records cost a node.
const CAPACITY: Capacity = Capacity {
    per_input: 5_000,
    per_message: 5_000,
    bytes: Some(Rate::mbit(16_000)),
    disk: Some(Rate::mbit(3_200)),
    ..Capacity::UNLIMITED
};
/// Seeds that are tried until node 1 leads.
const SEEDS: u64 = 300;
/// From the round trips of `--topology wan`, whose mean is 40.6 ms, to the paper's mean of 30 ms.
const NEARER: f64 = 30.0 / 40.6;
/// So many values differ.
const DISTINCT: usize = 1 << 20;
/// The longest value, in bytes.
const LONGEST: usize = 1 << 20;

/// Followers of the paper's RSPaxos and CRaft keep their shards and fetch nothing.
const FETCH_NOTHING: [&str; 2] = ["lacking.age=86400s", "lacking.bytes=16GiB"];

/// The five protocols that the paper's figures compare.
pub static FIVE: [Candidate; 5] = [
    Candidate { name: MULTIPAXOS, protocol: "multipaxos", settings: &[] },
    Candidate { name: RAFT, protocol: "raft", settings: &["reads=ongaro-lease"] },
    Candidate { name: RSPAXOS, protocol: "rspaxos", settings: &FETCH_NOTHING },
    Candidate {
        name: CRAFT,
        protocol: "craft",
        settings: &["coding=3", "reads=ongaro-lease", FETCH_NOTHING[0], FETCH_NOTHING[1]],
    },
    Candidate { name: CROSSWORD, protocol: "crossword", settings: &[] },
];
/// Crossword with the policy of Figure 12.
pub static TABLE: Candidate = Candidate {
    name: UNBALANCED,
    protocol: "crossword",
    settings: &["crossword.shards=8,5/1:5,2:5,3:5,4:3,5:1"],
};
pub static CHAINED: Candidate = Candidate { name: CHAIN, protocol: "chain", settings: &[] };

/// One of the paper's five.
pub fn known(name: &str) -> &'static Candidate {
    FIVE.iter().find(|candidate| candidate.name == name).expect("one of the five")
}

/// A link whose round trip is so long on average, in ms; a tenth of the delay is jitter.
pub fn link(round_trip: f64, rate: Rate) -> Link {
    let one_way = Duration::from_nanos((round_trip / 2.0 * MS as f64) as u64);
    Link { delay: one_way * 9 / 10, jitter: one_way / 5, rate: Some(rate) }
}

/// The paper's regional links.
pub fn regional() -> Link {
    link(4.0, Rate::mbit(1000))
}

/// Between each two of so many nodes.
pub fn all_pairs(
    nodes: usize,
    link: impl Fn(usize, usize) -> Link,
) -> impl Iterator<Item = ((NodeId, NodeId), Link)> {
    let pairs = (1..=nodes).flat_map(move |from| (1..=nodes).map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to).map(move |(from, to)| ((node(from), node(to)), link(from, to)))
}

/// Nodes of a protocol, of which node 1 leads.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub candidate: &'static Candidate,
    pub links: BTreeMap<(NodeId, NodeId), Link>,
    pub nodes: usize,
    /// Settings besides the candidate's own.
    pub settings: Vec<String>,
    /// Seeds are tried from this one on.
    pub seed: u64,
}

impl Cluster {
    /// So many nodes with regional links.
    pub fn regional(candidate: &'static Candidate, nodes: usize) -> Cluster {
        let links = all_pairs(nodes, |_, _| regional()).collect();
        Cluster { candidate, links, nodes, settings: Vec::new(), seed: 1 }
    }

    /// Five nodes at the sites of `--topology wan`, as far apart as the paper's on average.
    pub fn wide(candidate: &'static Candidate) -> Cluster {
        let wan = Topology::named("wan").expect("it comes with the program");
        let between = |from: usize, to: usize| {
            let ms = wan.round_trip(from - 1, to - 1).as_secs_f64() * 1000.0;
            link(ms * NEARER, Rate::mbit(200))
        };
        let settings = wide_area::settings(&wan, registry::named(candidate.protocol), 5);
        let links = all_pairs(5, between).collect();
        Cluster { candidate, links, nodes: 5, settings, seed: 1 }
    }

    /// The same with other links.
    pub fn with(mut self, links: impl Iterator<Item = ((NodeId, NodeId), Link)>) -> Cluster {
        self.links.extend(links);
        self
    }

    /// The world until it is ready.
    pub fn world(&self) -> Setup {
        let settings = self.settings.iter().cloned();
        Setup {
            nodes: self.nodes,
            groups: 1,
            machines: Vec::new(),
            proxies: 0,
            settings: settings.chain(self.candidate.settings.iter().map(ToString::to_string)).collect(),
            between_nodes: Delay::Fixed(0),
            topology: None,
            links: self.links.clone(),
            to_clients: Delay::Fixed(10_000),
            sync: SYNC,
            capacity: CAPACITY,
            clock_error: Some(50_000),
            end: READY,
            seed: 0,
        }
    }

    /// A world in which node 1 leads.
    pub fn setup(&self, end: u64) -> Result<Setup> {
        let mut setup = self.world();
        for seed in self.seed..self.seed + SEEDS {
            setup.seed = seed;
            let measured = self.candidate.measure(&setup, Load::default())?;
            if closed_loops::leader(&measured, READY) == Some(node(1)) {
                return Ok(Setup { end, ..setup });
            }
        }
        Err(format!("{}: node 1 leads with none of {SEEDS} seeds", self.candidate.name))
    }

    pub fn run(&self, setup: &Setup, load: Load<'_>) -> Result<Measured> {
        self.candidate.measure(setup, load)
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Get,
    /// Of so many bytes.
    Put(usize),
}

/// What a client asks for next, at an instant.
pub type Pick<'a> = Box<dyn FnMut(usize, &mut Random, u64) -> Op + 'a>;

/// A share of Puts, whose sizes are drawn from one of these means, all alike, with a tenth of it as standard deviation.
pub fn mix<'a>(puts: f64, means: &'a [usize]) -> Pick<'a> {
    Box::new(move |_, random, _| match random.chance(puts) {
        true => Op::Put(around(means[random.range(0..means.len() as u64) as usize], random)),
        false => Op::Get,
    })
}

/// A size with this mean and a tenth of it as standard deviation.
pub fn around(mean: usize, random: &mut Random) -> usize {
    let size = mean as f64 * (1.0 + 0.1 * experiment::delay::normal(random));
    (size.round() as usize).clamp(1, LONGEST)
}

/// A number of clients in closed loops, spread evenly over the nodes.
pub struct Closed<'a> {
    pub clients: usize,
    pub pick: Pick<'a>,
    /// How long is counted.
    pub length: u64,
    /// What happens to the cluster meanwhile, and when, in ns.
    pub acts: Vec<(u64, Act)>,
    /// How long clients wait.
    pub patience: u64,
}

impl<'a> Closed<'a> {
    pub fn new(pick: Pick<'a>, length: u64) -> Closed<'a> {
        Closed { clients: CLIENTS, pick, length, acts: Vec::new(), patience: 30 * SECOND }
    }

    pub fn run(mut self, cluster: &Cluster) -> Result<Seen> {
        let from = READY + SECOND + WARM_UP;
        let until = from + self.length;
        // Of operations in their order, those that open sessions first.
        let mut picked = vec![Op::Put(8); cluster.nodes];
        let draw = |client, random: &mut Random, now| {
            let (key, op) = (random.range(0..KEYS), (self.pick)(client, random, now));
            picked.push(op);
            (client % cluster.nodes, command(key, picked.len() as u64, op))
        };
        let clients = closed_loops::clients(self.clients, (READY + SECOND, until), self.patience, draw);
        let setup = cluster.setup(until + SECOND)?;
        // The first write of a proxy opens its session, which takes as long again.
        let open = |proxy| Ask {
            at: READY,
            proxy,
            command: command(KEYS + proxy as u64, 0, Op::Put(8)),
            patience: self.patience,
        };
        let asks = (0..cluster.nodes).map(open).collect();
        let load = Load { asks, clients: Some(clients), acts: self.acts };
        let measured = cluster.run(&setup, load)?;
        cluster.candidate.check(&measured)?;
        Ok(Seen { measured, picked, from, until, nodes: cluster.nodes })
    }
}

/// An operation on a key; each value is another, as checkers need it.
pub fn command(key: u64, number: u64, op: Op) -> Command {
    match op {
        Op::Get => closed_loops::get(key),
        Op::Put(size) => closed_loops::put(key, value(number, size)),
    }
}

/// A piece of one long string of random bytes, so that nothing is copied.
fn value(number: u64, size: usize) -> Bytes {
    static ALL: LazyLock<Bytes> = LazyLock::new(|| {
        let mut random = Random::new(1);
        (0..(DISTINCT + LONGEST) / 8).flat_map(|_| random.u64().to_le_bytes()).collect()
    });
    let from = number as usize % DISTINCT;
    ALL.slice(from..from + size)
}

/// What clients saw, and what the replicas stated.
pub struct Seen {
    pub measured: Measured,
    /// What each operation asked for.
    picked: Vec<Op>,
    /// What is counted.
    pub from: u64,
    pub until: u64,
    nodes: usize,
}

impl Seen {
    /// Operations that ended in a stretch of time; of one kind, if one is given.
    pub fn ended(&self, between: (u64, u64), writes: Option<bool>) -> impl Iterator<Item = &Operation> {
        let all = closed_loops::ended(&self.measured, between);
        all.filter(move |op| writes.is_none_or(|writes| writes == op.writes))
    }

    /// Operations a second between two moments, in ns.
    pub fn rate(&self, between: (u64, u64)) -> f64 {
        self.ended(between, None).count() as f64 * SECOND as f64 / (between.1 - between.0) as f64
    }

    /// What is counted.
    pub fn counted(&self) -> (u64, u64) {
        (self.from, self.until)
    }

    /// Latencies of what is counted in ms, in order.
    pub fn latencies(&self, writes: Option<bool>) -> Vec<f64> {
        let all = self.ended(self.counted(), writes).filter_map(Operation::latency);
        let mut all: Vec<_> = all.map(|nanos| nanos as f64 / MS as f64).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The same of operations that asked for something.
    pub fn latencies_of(&self, of: impl Fn(Op) -> bool) -> Vec<f64> {
        let (from, until) = self.counted();
        let all = self.measured.operations.iter().zip(&self.picked);
        let mine =
            all.filter(|(op, picked)| op.ended.is_some_and(|at| (from..until).contains(&at)) && of(**picked));
        mine.filter_map(|(op, _)| Some(op.latency()? as f64 / MS as f64)).collect()
    }

    /// How many shards each voter got of the values that the leader voted for in a stretch of time; all that restore
    /// one, if it was sent whole.
    pub fn shards(&self, (from, until): (u64, u64)) -> Vec<f64> {
        let leader = closed_loops::leader(&self.measured, from);
        let mine = self
            .measured
            .values
            .iter()
            .filter(|(at, who, _)| (from..until).contains(at) && Some(*who) == leader);
        let shards = mine.filter_map(|(_, _, fact)| match fact {
            Fact::Stored { shards: u16::MAX, .. } => Some(self.nodes.div_ceil(2) as f64),
            Fact::Stored { shards, .. } => Some(f64::from(shards.count_ones())),
            _ => None,
        });
        shards.collect()
    }

    /// On average; `None` where nothing is known.
    pub fn mean_shards(&self, between: (u64, u64)) -> Option<f64> {
        mean(&self.shards(between))
    }
}

/// The arithmetic mean; `None` of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
