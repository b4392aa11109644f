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
//! | `problem` | a partition, and what is known of its operations beforehand |
//! | `search` | the decision, and the argument for each of its shortcuts |
//! | `explain` | the shortest prefix that fails, and what could have been replied instead |

mod explain;
mod model;
mod problem;
mod search;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use thiserror::Error;

pub use explain::Explanation;

use crate::history::{History, Operation};
use problem::{Problem, Strings, each_key, is_global, is_read};
use search::{Outcome, Search};

/// Why a history is not known to be linearizable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// It is not.
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
    /// Why.
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
        match Search::new(&mut problem, &mut left).run() {
            Outcome::Linearizable => {}
            Outcome::Stuck(event) => {
                let explanation = explain::explain(partition, event, effort)?;
                return Err(Failure::Violation(Box::new(explanation)));
            }
            Outcome::Undecided(event) => {
                let explained = problem.ops.iter().filter(|op| op.ret < event).count();
                let (keys, operations) = (key_names(problem.model.keys()), partition.len());
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
        let told = |operation: &&Operation| operation.returned.is_some() || !is_read(&operation.command);
        history.0.iter().enumerate().filter(move |(_, operation)| told(operation))
    };
    let mut sets = Sets::default();
    let mut global = None;
    for (_, operation) in operations() {
        let mut first = None;
        each_key(&operation.command, &mut |key| {
            let set = sets.of(key);
            sets.join(*first.get_or_insert(set), set);
        });
        if is_global(&operation.command) {
            global = Some(());
        }
    }
    let mut partitions: BTreeMap<usize, Partition<'_>> = BTreeMap::new();
    for (index, operation) in operations() {
        let mut set = None;
        each_key(&operation.command, &mut |key| set = set.or(Some(sets.of(key))));
        // Operations without keys share a partition of their own, unless all do.
        let set = match (global, set) {
            (Some(()), _) | (None, None) => usize::MAX,
            (None, Some(set)) => sets.root(set),
        };
        partitions.entry(set).or_default().push((index, operation));
    }
    partitions.into_values().collect()
}

/// Union-find over keys.
#[derive(Default)]
struct Sets {
    ids: BTreeMap<Bytes, usize>,
    parents: Vec<usize>,
}

impl Sets {
    fn of(&mut self, key: &Bytes) -> usize {
        if let Some(id) = self.ids.get(key) {
            return *id;
        }
        let id = self.parents.len();
        self.parents.push(id);
        self.ids.insert(key.clone(), id);
        id
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

/// The first few keys, for people.
fn key_names(keys: &[Bytes]) -> String {
    const SHOWN: usize = 4;
    let names: Vec<String> =
        keys.iter().take(SHOWN).map(|key| format!("\"{}\"", key.escape_ascii())).collect();
    match keys.len() {
        0 => "no key".into(),
        more if more > SHOWN => format!("keys {} and {} more", names.join(", "), more - SHOWN),
        1 => format!("key {}", names[0]),
        _ => format!("keys {}", names.join(", ")),
    }
}
