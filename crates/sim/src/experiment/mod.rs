//! Measurement runs: real protocol machines in virtual time, without chance faults, under a scripted load.
//!
//! A campaign looks for what goes wrong; an experiment asks how long things take. Hosts, disks, clocks and the queue
//! are the campaign's own. What differs is what is around them: delays of stated distributions, processors and network
//! interfaces that take stated times, clients that ask at stated instants whatever was answered (an open loop), and a
//! leader that dies at a stated instant. Everything that happened is handed back, operation by operation.
//!
//! | file | what |
//! |---|---|
//! | [`delay`] | how long a message is on its way |
//! | [`wires`] | the links: delays, shared interfaces, cuts |
//! | `driver` | turns of the loops, and who asks what when |

pub mod delay;
mod driver;
#[cfg(test)]
mod tests;
pub mod wires;

use std::collections::BTreeMap;

use quorate_core::{Fact, Group, NodeId, NodeSet, Protocol, Settings, SettingsError};
use quorate_store::Command;

use crate::history::History;
use crate::queue::Nanos;
pub use delay::Delay;
pub use wires::Capacity;

/// The world of an experiment.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// How many processes that run a proxy alone, for the clients.
    pub proxies: usize,
    /// The protocol's, as `--set` takes them.
    pub settings: Vec<String>,
    /// Between nodes, one way.
    pub between_nodes: Delay,
    /// Between a client's proxy and a node, one way.
    pub to_clients: Delay,
    /// To make records durable, whatever their number.
    pub sync: Nanos,
    /// What a node's processor and network interface can do.
    pub capacity: Capacity,
    /// Each node's interval of true time is twice this wide; `None`: nodes have no such clock.
    pub clock_error: Option<Nanos>,
    /// When it ends.
    pub end: Nanos,
    /// Of delays, clocks and the machines' own draws.
    pub seed: u64,
}

/// What a client asks.
#[derive(Clone, Debug)]
pub struct Ask {
    /// When.
    pub at: Nanos,
    /// Through which proxy, counted from 0.
    pub proxy: usize,
    /// What.
    pub command: Command,
    /// How long it waits.
    pub patience: Nanos,
}

/// What happens to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Whoever leads dies, and stays dead.
    CrashLeader,
    /// What other nodes send to whoever leads now is lost from now on.
    DeafenLeader,
    /// And what it sends to them is lost too; clients reach it as before.
    IsolateLeader,
}

/// What became of an [`Ask`], in the order in which they were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it was asked.
    pub asked: Nanos,
    /// When it ended; `None` if it had not when the experiment ended.
    pub ended: Option<Nanos>,
    /// Whether it was executed, as far as the client knows.
    pub succeeded: bool,
    /// Whether it writes.
    pub writes: bool,
}

impl Operation {
    /// How long it took, if it succeeded.
    pub fn latency(&self) -> Option<Nanos> {
        self.ended.filter(|_| self.succeeded).map(|ended| ended - self.asked)
    }
}

/// Everything that an experiment saw.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What the clients saw.
    pub operations: Vec<Operation>,
    /// The same as a history: whether it is linearizable is for [`crate::checkers::linearizability`] to say.
    pub history: History,
    /// What replicas stated of leaders, commits and read gates, and when.
    pub facts: Vec<(Nanos, NodeId, Fact)>,
    /// Whom each act of the script hit, and when; acts that found no leader are left out.
    pub acts: Vec<(Nanos, Act, NodeId)>,
    /// Messages between different nodes, by kind.
    pub sent: BTreeMap<&'static str, u64>,
}

impl Measured {
    /// The leaders that were elected after an instant: when, and who.
    pub fn elected_after(&self, at: Nanos) -> impl Iterator<Item = (Nanos, NodeId)> {
        let leads = self
            .facts
            .iter()
            .filter(move |(when, _, fact)| *when >= at && matches!(fact, Fact::Leads { .. }));
        leads.map(|(when, node, _)| (*when, *node))
    }

    /// The first commit of a node as leader, from an instant on.
    pub fn first_commit_of(&self, node: NodeId, from: Nanos) -> Option<Nanos> {
        let commits = |(at, who, fact): &&(Nanos, NodeId, Fact)| {
            *at >= from && *who == node && matches!(fact, Fact::Commits { .. })
        };
        self.facts.iter().find(commits).map(|(at, ..)| *at)
    }

    /// How many entries the limbo region of a node had when its read gate was first stated, from an instant on.
    pub fn limbo_of(&self, node: NodeId, from: Nanos) -> Option<u64> {
        self.facts.iter().find_map(|(at, who, fact)| match fact {
            Fact::ReadGate { index, limbo, .. } if *at >= from && *who == node => Some(limbo - index),
            _ => None,
        })
    }
}

/// Runs an experiment. `asks` and `acts` need no order.
pub fn measure<P: Protocol>(
    setup: &Setup,
    asks: Vec<Ask>,
    acts: &[(Nanos, Act)],
) -> Result<Measured, SettingsError> {
    let members: NodeSet = (1..=setup.nodes as u64).filter_map(NodeId::new).collect();
    let mut settings = Settings::parse(&setup.settings)?;
    let configs = P::configure(&Group::of(members), &mut settings)?;
    settings.finish()?;
    Ok(driver::Driver::<P>::new(setup, configs, asks, acts).run())
}
