//! The clusters of Crossword's figures, closed loops of clients in them, and what can be said of a run.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Fact, Link, NodeId, Random, Rate, Topology};
use quorate_protocols::{registry, wide_area};
use quorate_sim::experiment::{self, Act, Capacity, Delay, Load, Setup};
use quorate_store::Command;

use super::{CHAIN, CRAFT, CROSSWORD, MULTIPAXOS, RAFT, RSPAXOS, UNBALANCED};
use crate::instrument::Result;
use crate::instrument::closed_loops;
pub use crate::instrument::closed_loops::{Candidate, MS, READY, SECOND, Seen, links, mean, node};

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
    Candidate::new(MULTIPAXOS, "multipaxos", &[]),
    Candidate::new(RAFT, "raft", &["reads=ongaro-lease"]),
    Candidate::new(RSPAXOS, "rspaxos", &FETCH_NOTHING),
    Candidate::new(CRAFT, "craft", &["coding=3", "reads=ongaro-lease", FETCH_NOTHING[0], FETCH_NOTHING[1]]),
    Candidate::new(CROSSWORD, "crossword", &[]),
];
/// Crossword with the policy of Figure 12.
pub static TABLE: Candidate =
    Candidate::new(UNBALANCED, "crossword", &["crossword.shards=8,5/1:5,2:5,3:5,4:3,5:1"]);
/// Crossword with each number of shards that there can be.
pub static FIXED: [Candidate; 3] = [
    Candidate::new("Crossword, c = 1", "crossword", &["crossword.shards=1"]),
    Candidate::new("Crossword, c = 2", "crossword", &["crossword.shards=2"]),
    Candidate::new("Crossword, c = 3", "crossword", &["crossword.shards=3"]),
];
pub static CHAINED: Candidate = Candidate::new(CHAIN, "chain", &[]);

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
        Cluster { candidate, links: links(nodes, |_, _| regional()), nodes, settings: Vec::new(), seed: 1 }
    }

    /// Five nodes at the sites of `--topology wan`, as far apart as the paper's on average.
    pub fn wide(candidate: &'static Candidate) -> Cluster {
        let wan = Topology::named("wan").expect("it comes with the program");
        let between = |from: usize, to: usize| {
            let ms = wan.round_trip(from - 1, to - 1).as_secs_f64() * 1000.0;
            link(ms * NEARER, Rate::mbit(200))
        };
        let settings = wide_area::settings(&wan, registry::named(candidate.protocol), 5);
        Cluster { candidate, links: links(5, between), nodes: 5, settings, seed: 1 }
    }

    /// The same with other links.
    pub fn with(mut self, links: impl IntoIterator<Item = ((NodeId, NodeId), Link)>) -> Cluster {
        self.links.extend(links);
        self
    }

    /// The world until it is ready.
    pub fn world(&self) -> Setup {
        let (links, to_clients) = (self.links.clone(), Delay::Fixed(10_000));
        let settings = [&self.settings[..], &self.candidate.settings()].concat();
        let idle = closed_loops::setup(self.nodes, settings);
        Setup { links, to_clients, sync: SYNC, capacity: CAPACITY, ..idle }
    }

    /// A world in which node 1 leads.
    pub fn setup(&self, end: u64) -> Result<Setup> {
        let is_led = |setup: &Setup| {
            let measured = self.candidate.measure(setup, Load::default())?;
            Ok(closed_loops::leader(&measured, READY) == Some(node(1)))
        };
        Ok(Setup { end, ..closed_loops::seeded(self.world(), self.seed..self.seed + SEEDS, is_led)? })
    }
}

/// The bytes that a client puts next, at an instant; none: it gets.
pub type Pick<'a> = Box<dyn FnMut(usize, &mut Random, u64) -> Option<usize> + 'a>;

/// A share of Puts, whose sizes are drawn from one of these means, all alike, with a tenth of it as standard deviation.
pub fn mix<'a>(puts: f64, means: &'a [usize]) -> Pick<'a> {
    Box::new(move |_, random, _| {
        let put = random.chance(puts);
        put.then(|| around(means[random.range(0..means.len() as u64) as usize], random))
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
        let mut count = cluster.nodes as u64;
        let draw = |client, random: &mut Random, now| {
            let (key, put) = (random.range(0..KEYS), (self.pick)(client, random, now));
            count += 1;
            (client % cluster.nodes, command(key, count, put))
        };
        let clients = closed_loops::clients(self.clients, (READY + SECOND, until), self.patience, draw);
        let open = |proxy| command(KEYS + proxy as u64, 0, Some(8));
        let asks = closed_loops::openings(cluster.nodes, READY, self.patience, open);
        let load = Load { asks, clients: Some(clients), acts: self.acts };
        cluster.candidate.seen(&cluster.setup(until + SECOND)?, load, (from, until))
    }
}

/// Puts so many bytes, or gets; each value is another, as checkers need it.
pub fn command(key: u64, number: u64, put: Option<usize>) -> Command {
    put.map_or_else(|| closed_loops::get(key), |size| closed_loops::put(key, value(number, size)))
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

/// How many shards each voter got of the values that the leader voted for in a stretch of time; all that restore one,
/// if it was sent whole.
pub fn shards(seen: &Seen, (from, until): (u64, u64)) -> Vec<f64> {
    let leader = closed_loops::leader(&seen.measured, from);
    let all = seen.measured.values.iter();
    let mine = all.filter(|(at, who, _)| (from..until).contains(at) && Some(*who) == leader);
    let shards = mine.filter_map(|(_, _, fact)| match fact {
        Fact::Stored { shards: u16::MAX, .. } => Some(seen.nodes.div_ceil(2) as f64),
        Fact::Stored { shards, .. } => Some(f64::from(shards.count_ones())),
        _ => None,
    });
    shards.collect()
}

/// On average; `None` where nothing is known.
pub fn mean_shards(seen: &Seen, between: (u64, u64)) -> Option<f64> {
    mean(&shards(seen, between))
}

/// The share of the values that are counted of which each voter got one shard.
pub fn one_shard(seen: &Seen) -> Option<f64> {
    let all = shards(seen, seen.counted);
    mean(&all.iter().map(|count| f64::from(u8::from(*count == 1.0))).collect::<Vec<_>>())
}
