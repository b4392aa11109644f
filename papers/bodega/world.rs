//! The paper's two clusters, a third without distances that differ, and runs in them.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::linearizability;
use quorate_core::{Fact, Rate, Topology};
use quorate_sim::experiment::{Capacity, Delay, Load, Measured, Setup};
use quorate_store::{Command, Condition, Expiry};

use super::candidates::Candidate;
use super::model::Model;
use crate::instrument::{Result, closed_loops};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// There is a leader by then, and it has its leases.
pub const READY: u64 = 8_000 * MS;
/// From a client to the node at its site and back, in ms, where nothing else is said: the paper's c, which it does not
/// give.
pub const NEAR: f64 = 1.0;
/// What a node's interface sends, as in the paper.
pub const INTERFACE: Rate = Rate::mbit(1000);
/// What a message and an input cost a node, and what its interface sends.
pub const CAPACITY: Capacity =
    Capacity { per_input: 5_000, per_message: 5_000, interface: Some(INTERFACE), ..Capacity::UNLIMITED };
/// Seeds that are tried until the node leads that the paper has lead.
const SEEDS: u64 = 300;

/// One of the clusters.
pub struct World {
    /// As `quorate up --topology` takes it, where it does.
    pub name: &'static str,
    /// As the paper calls it.
    pub title: &'static str,
    leader: &'static str,
    /// Beside the leader.
    pub responders: &'static [&'static str],
}

pub const GEO: World = World { name: "geo", title: "GEO", leader: "VA", responders: &["EU", "OR", "CA"] };
pub const WAN: World = World { name: "wan", title: "WAN", leader: "WI", responders: &["UT", "MA", "APT"] };
/// Each site is 100 ms from each: m = M = N, wherever one asks. The leader is a little nearer, so that it is in
/// everybody's majority; it is the last site, because of equal candidates the last one wins.
pub const EVEN: World =
    World { name: "even", title: "EVEN", leader: "S5", responders: &["S1", "S2", "S3", "S4"] };

fn topology(name: &str) -> Option<Topology> {
    if name != EVEN.name {
        return Topology::named(name);
    }
    const SITES: [&str; 5] = ["S1", "S2", "S3", "S4", "S5"];
    let pairs =
        SITES.iter().enumerate().flat_map(|(at, from)| SITES[at + 1..].iter().map(move |to| (from, to)));
    let pairs = pairs.map(|(from, to)| {
        let millis = if *to == EVEN.leader { 99 } else { 100 };
        (*from, *to, Duration::from_millis(millis))
    });
    Topology::new(&SITES, pairs, Duration::ZERO).ok()
}

impl World {
    pub fn topology(&self) -> Topology {
        topology(self.name).expect("it comes with the program")
    }

    pub fn sites(&self) -> usize {
        self.topology().sites().len()
    }

    /// A site, counted from 0.
    pub fn site(&self, name: &str) -> usize {
        self.topology().site(name).expect("it is one of them")
    }

    /// Where a site stands: it leads, it is a responder of the figures, or it is neither.
    pub fn place(&self, site: usize) -> &'static str {
        match (site == self.leader(), self.responders().contains(&site)) {
            (true, _) => "leader",
            (false, true) => "responder",
            (false, false) => "other",
        }
    }

    /// The site that leads.
    pub fn leader(&self) -> usize {
        self.site(self.leader)
    }

    /// Its sites beside the leader that read locally, unless a figure says otherwise.
    pub fn responders(&self) -> Vec<usize> {
        self.responders.iter().map(|name| self.site(name)).collect()
    }

    /// Of a protocol with these responders, as `--set` takes them.
    pub fn settings(&self, candidate: &Candidate, responders: &[usize]) -> Vec<String> {
        let mut settings = candidate.timeouts(&self.topology(), self.sites());
        settings.extend(candidate.settings.iter().map(ToString::to_string));
        settings.extend(candidate.roster.map(|key| format!("{key}={}", ids(responders))));
        settings
    }

    pub fn model<'a>(&self, topology: &'a Topology, responders: &'a [usize], site: usize) -> Model<'a> {
        Model { topology, leader: self.leader(), responders, site, c: NEAR }
    }

    /// A cluster of a protocol, with these responders and clients so near to their nodes, in ms, whose leader is the
    /// paper's; of the first seed that has it so.
    pub fn setup(
        &self,
        candidate: &Candidate,
        responders: &[usize],
        (capacity, near): (Capacity, f64),
        end: u64,
    ) -> Result<Setup> {
        let setup = Setup {
            topology: Some(self.topology()),
            to_clients: Delay::Fixed((near * MS as f64) as u64 / 2),
            capacity,
            end: READY,
            ..closed_loops::setup(self.sites(), self.settings(candidate, responders))
        };
        let leads = |measured: &Measured| {
            let last = measured.facts.iter().rev().find(|(_, _, fact)| matches!(fact, Fact::Leads { .. }));
            // Who has no leader has none that is wrong.
            last.is_none_or(|(_, node, _)| usize::from(node.get()) == self.leader() + 1)
        };
        let is_led = |setup: &Setup| Ok(leads(&run(candidate, setup, Load::default())?));
        Ok(Setup { end, ..closed_loops::seeded(setup, 1..SEEDS + 1, is_led)? })
    }
}

/// As a setting.
fn ids(sites: &[usize]) -> String {
    let ids: Vec<_> = sites.iter().map(|site| (site + 1).to_string()).collect();
    if ids.is_empty() { "none".to_owned() } else { ids.join(",") }
}

/// Runs an experiment.
pub fn run(candidate: &Candidate, setup: &Setup, load: Load<'_>) -> Result<Measured> {
    candidate.measure(setup, load).map_err(|error| format!("{}: {error}", candidate.name))
}

/// That what the clients saw is linearizable; a figure of anything else is worth nothing.
pub fn check(candidate: &Candidate, measured: &Measured) -> Result<()> {
    let checked = linearizability::check(&measured.history);
    checked.map_err(|error| format!("{}: the history is not linearizable: {error:?}", candidate.name))
}

/// The n-th key.
pub fn key(number: u64) -> String {
    format!("k{number:07}")
}

pub fn get(key: &str) -> Command {
    Command::Get { key: Bytes::copy_from_slice(key.as_bytes()) }
}

/// Each value is another, as checkers need it.
pub fn put(key: &str, number: u64, size: usize) -> Command {
    let number = number.to_string();
    let value = Bytes::from("0".repeat(size.saturating_sub(number.len())) + &number);
    let key = Bytes::copy_from_slice(key.as_bytes());
    Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}
