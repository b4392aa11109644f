//! What came of an experiment.

use std::collections::BTreeMap;

use quorate_check::history::History;
use quorate_check::{Nanos, SECOND};
use quorate_core::{Fact, NodeId};

use super::Act;

/// What became of an operation, in the order in which they were asked.
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
    /// Of which proxy, or node, its client is.
    pub proxy: usize,
}

impl Operation {
    /// How long it took, if it succeeded.
    pub fn latency(&self) -> Option<Nanos> {
        self.ended.filter(|_| self.succeeded).map(|ended| ended - self.asked)
    }
}

/// What became of an operator's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// When it was asked.
    pub asked: Nanos,
    /// When it was answered.
    pub ended: Option<Nanos>,
    /// Whether it was done.
    pub succeeded: bool,
}

/// The latencies of some operations.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// In order.
    sorted: Vec<Nanos>,
    /// The time in which those were asked.
    length: Nanos,
}

impl Latencies {
    /// How many succeeded.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// How many a second succeeded.
    pub fn rate(&self) -> f64 {
        self.count() as f64 * SECOND as f64 / self.length as f64
    }

    /// On average, in nanoseconds; `None` if there is none.
    pub fn mean(&self) -> Option<f64> {
        let sum = self.sorted.iter().map(|&latency| latency as f64).sum::<f64>();
        (!self.sorted.is_empty()).then(|| sum / self.count() as f64)
    }

    /// So large a share takes no longer; `None` if there is none.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        let rank = (share * self.count() as f64).ceil() as usize;
        self.sorted.get(rank.clamp(1, self.count().max(1)) - 1).copied()
    }

    /// All of them, in order.
    pub fn sorted(&self) -> &[Nanos] {
        &self.sorted
    }
}

/// Everything that an experiment saw.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What the clients saw.
    pub operations: Vec<Operation>,
    /// The same as a history: whether it is linearizable is for [`quorate_check::linearizability`] to say.
    pub history: History,
    /// What replicas stated of leaders, live members, commits and read gates, and when.
    pub facts: Vec<(Nanos, NodeId, Fact)>,
    /// What replicas stated of values in slots, and when: stored, chosen, executed.
    pub values: Vec<(Nanos, NodeId, Fact)>,
    /// When what a node has stored of a slot's value was durable.
    pub durable: Vec<(Nanos, NodeId, u64)>,
    /// Bytes of the records that each node has written.
    pub logged: BTreeMap<NodeId, u64>,
    /// What became of operators' requests, in the order of the script.
    pub managed: Vec<Managed>,
    /// Whom each act of the script hit, and when; acts that found no leader are left out, and requests.
    pub acts: Vec<(Nanos, Act, NodeId)>,
    /// Messages between different nodes, by kind.
    pub sent: BTreeMap<&'static str, u64>,
    /// Bytes by link, from one node to another; those that were lost on their way are counted.
    pub bytes: BTreeMap<(NodeId, NodeId), u64>,
}

impl Measured {
    /// The operations of the clients of a proxy, reads or writes, that were asked between two instants.
    pub fn latencies(&self, proxy: usize, writes: bool, between: (Nanos, Nanos)) -> Latencies {
        let (from, to) = between;
        let mine =
            |op: &&Operation| op.proxy == proxy && op.writes == writes && (from..to).contains(&op.asked);
        let mut sorted: Vec<_> = self.operations.iter().filter(mine).filter_map(Operation::latency).collect();
        sorted.sort_unstable();
        Latencies { sorted, length: to.saturating_sub(from).max(1) }
    }

    /// The leaders that were elected after an instant: when, and who.
    pub fn elected_after(&self, at: Nanos) -> impl Iterator<Item = (Nanos, NodeId)> {
        let leads = self
            .facts
            .iter()
            .filter(move |(when, _, fact)| *when >= at && matches!(fact, Fact::Leads { .. }));
        leads.map(|(when, node, _)| (*when, *node))
    }

    /// The last slot that a node has executed by an instant; 0 if there is none.
    pub fn executed(&self, node: NodeId, at: Nanos) -> u64 {
        let by_then = self.values.iter().take_while(|(when, ..)| *when <= at);
        let slots = by_then.filter_map(|(_, by, fact)| match fact {
            Fact::Executed { slot, .. } if *by == node => Some(*slot),
            _ => None,
        });
        slots.max().unwrap_or(0)
    }

    /// When operations succeed, from an instant on.
    pub fn successes(&self, from: Nanos) -> impl Iterator<Item = Nanos> {
        let succeeded = self.operations.iter().filter(|operation| operation.succeeded);
        succeeded.filter_map(|operation| operation.ended).filter(move |ended| *ended >= from)
    }

    /// The longest time between two instants in which no operation succeeds.
    pub fn longest_pause(&self, from: Nanos, to: Nanos) -> Nanos {
        let within = self.successes(from).filter(|ended| *ended <= to);
        let mut ends: Vec<_> = within.chain([from, to]).collect();
        ends.sort_unstable();
        ends.windows(2).map(|pair| pair[1] - pair[0]).max().expect("two at least")
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
