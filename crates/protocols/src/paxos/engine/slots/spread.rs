//! How a value is sent in shards, and how many values were.

use quorate_blocks::coding::spread::ShardSet;
use quorate_blocks::coding::{Assignment, ValueId};
use quorate_core::{Count, NodeId, Sample};

/// How a value is sent in shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The identity of the value that is sent.
    pub id: ValueId,
    /// Which shards each voter gets.
    pub assignment: Assignment,
    /// How many each voter gets at least.
    pub width: usize,
}

impl Spread {
    /// Whether some voter gets too few shards to restore the value: else it is sent whole.
    pub fn is_partial(&self) -> bool {
        self.assignment.voters().iter().any(|voter| self.shards_of(voter) != ShardSet::ALL)
    }

    /// What is sent to a replica: all of the value, if so many shards restore it, which has no more bytes. Who is no
    /// voter does not count: it takes part to have everything.
    pub fn shards_of(&self, node: NodeId) -> ShardSet {
        let shards = self.assignment.shards_of(node, self.width);
        let whole = shards.is_empty() || shards.len() >= self.id.data.into();
        if whole { ShardSet::ALL } else { shards }
    }
}

/// How many values of clients were proposed here since the start, for metrics and `status`, and how.
#[derive(Debug, Default)]
pub struct ProposedValues {
    whole: Count,
    in_shards: Count,
    /// Shards that each voter got at least, of all values in shards together.
    shards: Count,
}

impl ProposedValues {
    /// One more, for the first time.
    pub fn add(&mut self, spread: Option<&Spread>) {
        match spread {
            Some(spread) => {
                self.in_shards.add(1);
                self.shards.add(spread.width);
            }
            None => self.whole.add(1),
        }
    }

    /// Shards for each value in shards are the quotient of the last two.
    pub fn samples(&self) -> [Sample; 3] {
        let whole = "Values of clients that this node has proposed whole.";
        let in_shards = "Values of clients that this node has proposed in shards.";
        let shards = "Shards that each voter was to get at least of the values in shards, together.";
        [
            Sample::counter("values_proposed_whole_total", self.whole.get(), whole),
            Sample::counter("values_proposed_in_shards_total", self.in_shards.get(), in_shards),
            Sample::counter("value_shards_total", self.shards.get(), shards),
        ]
    }
}
