//! Linearizability: is there one order of all operations, each between its call and its return, in which a single
//! store would have given every reply? (Herlihy and Wing 1990.)
//!
//! The answer is exact with respect to the [`model`]. Since linearizability is local, operations that share no
//! key, directly or through operations on several keys, are judged apart; each such partition is [`search`]ed. An
//! operation of unknown outcome may take effect at any time after its call, or never.
//!
//! The problem is NP-complete, so there are histories for which the search takes too long. It then gives up with
//! [`Failure::Undecided`], which is no pass: somebody must look.
//!
//! | file | what |
//! |---|---|
//! | `model` | the sequential store |
//! | `events` | calls and returns in order |
//! | `problem` | a partition, and what is known of its operations beforehand |
//! | `search` | the decision, and the argument for each of its shortcuts |
//! | `explain` | the shortest prefix that fails, and what could have been replied instead |

mod action;
mod config;
mod events;
mod explain;
mod model;
mod moves;
mod problem;
mod ratchet;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

pub use explain::Explanation;

use crate::history::{History, Operation};
use action::{each_key, each_made_key, is_global};
use problem::{Problem, Strings};
use search::{Outcome, Search};

/// Why a history is not known to be linearizable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No order of the operations explains what the clients saw.
    #[error("not linearizable: {0}")]
    Violation(Box<Explanation>),
    /// The search was given up.
    #[error("undecided after {explained} of {operations} operations on {keys}; allow more effort")]
    Undecided {
        /// Some of the keys of the partition.
        keys: String,
        /// How many operations of the partition had returned where the search got furthest.
        explained: usize,
        /// How many operations the partition has.
        operations: usize,
    },
    /// It contains what the model does not know.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// An operation that cannot be checked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("operation {operation} of the history cannot be checked: {what}")]
pub struct Unsupported {
    /// Its position in the history.
    pub operation: usize,
    /// What the checker cannot judge, in words.
    pub what: &'static str,
}

/// Decides whether a history is linearizable, with an effort that suffices for all but contrived ones: at most some
/// minutes, and some hundred megabytes, for 10⁵ operations; far less if nothing is wrong.
pub fn check(history: &History) -> Result<(), Failure> {
    check_within(history, 30_000_000 + 1_000 * history.0.len() as u64)
}

/// As [`check`], but spends at most `effort` on each partition: the number of times that an operation is tried in a
/// state, roughly; each takes some hundred nanoseconds.
pub fn check_within(history: &History, effort: u64) -> Result<(), Failure> {
    let partitions = partition(history);
    let mut undecided = None;
    for partition in &partitions {
        let mut left = effort;
        let mut problem = Problem::new(partition, Strings::Blurred)?;
        let mut search = Search::new(&mut problem, &mut left);
        match search.run() {
            Outcome::Linearizable => {}
            Outcome::Stuck(event) => {
                let standing = search.standing().cloned().collect();
                let explanation = explain::explain(partition, &mut problem, event, standing, effort)?;
                return Err(Failure::Violation(Box::new(explanation)));
            }
            Outcome::Undecided(event) => {
                let explained = problem.ops.iter().filter(|op| op.ret < event).count();
                let (keys, operations) = (key_names(&problem), partition.len());
                undecided = undecided.or(Some(Failure::Undecided { keys, explained, operations }));
            }
        }
    }
    // A violation elsewhere says more.
    undecided.map_or(Ok(()), Err)
}

/// Operations with their positions in the history.
type Partition<'a> = Vec<(usize, &'a Operation)>;

/// Splits a history by keys. Reads of unknown outcome tell nothing and are left out.
fn partition(history: &History) -> Vec<Partition<'_>> {
    let operations = || {
        let told = |operation: &&Operation| operation.returned.is_some() || !operation.command.is_read_only();
        history.0.iter().enumerate().filter(move |(_, operation)| told(operation))
    };
    let mut sets = Sets::default();
    for (_, operation) in operations() {
        each_made_key(&operation.command, &mut |key| sets.add(key));
    }
    let global = operations().any(|(_, operation)| is_global(&operation.command));
    for (_, operation) in operations() {
        let mut first = None;
        each_key(&operation.command, &mut |key| {
            if let Some(set) = sets.of(key) {
                sets.join(*first.get_or_insert(set), set);
            }
        });
    }
    let mut partitions: BTreeMap<Option<usize>, Partition<'_>> = BTreeMap::new();
    for (index, operation) in operations() {
        let mut set = None;
        each_key(&operation.command, &mut |key| set = set.or(sets.of(key)));
        // Operations on keys that never exist share a partition, unless all operations do.
        let set = if global { None } else { set.map(|set| sets.root(set)) };
        partitions.entry(set).or_default().push((index, operation));
    }
    partitions.into_values().collect()
}

/// Union-find over the keys that some operation can bring into being.
#[derive(Default)]
struct Sets {
    ids: BTreeMap<Bytes, usize>,
    parents: Vec<usize>,
}

impl Sets {
    fn add(&mut self, key: &Bytes) {
        if !self.ids.contains_key(key) {
            self.ids.insert(key.clone(), self.parents.len());
            self.parents.push(self.parents.len());
        }
    }

    fn of(&self, key: &Bytes) -> Option<usize> {
        self.ids.get(key).copied()
    }

    fn root(&mut self, mut id: usize) -> usize {
        while self.parents[id] != id {
            self.parents[id] = self.parents[self.parents[id]];
            id = self.parents[id];
        }
        id
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }
}

/// The first few keys of a partition, for people: those that exist at times, or all.
fn key_names(problem: &Problem) -> String {
    const SHOWN: usize = 4;
    let all = problem.model.keys();
    let fertile: Vec<&Bytes> = problem.fertile.iter().map(|key| &all[*key as usize]).collect();
    let keys = if fertile.is_empty() { all.iter().collect() } else { fertile };
    let names: Vec<String> =
        keys.iter().take(SHOWN).map(|key| format!("\"{}\"", key.escape_ascii())).collect();
    match keys.len() {
        0 => "no key".into(),
        1 => format!("key {}", names[0]),
        more if more > SHOWN => format!("keys {} and {} more", names.join(", "), more - SHOWN),
        _ => format!("keys {}", names.join(", ")),
    }
}
