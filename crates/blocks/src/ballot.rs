//! Ballots: totally ordered numbers, each owned by one replica.

use std::fmt;

use quorate_core::{Decoder, Encoder, NodeId, Wire, WireError};

/// `(counter, node)` in one word, compared in that order. No two replicas share a ballot, and a replica that
/// restarts takes a fresh one, so a ballot has at most one proposer in the life of the group.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot(u64);

const NODE_BITS: u32 = 6;
/// Ballots in messages and records are below this, so that there is always a next one.
const LIMIT: u64 = 1 << 63;

impl Ballot {
    /// Below every ballot; nobody's.
    pub const ZERO: Ballot = Ballot(0);

    /// The lowest ballot of `node` above this one.
    pub fn next(self, node: NodeId) -> Ballot {
        Ballot(((self.0 >> NODE_BITS) + 1) << NODE_BITS | u64::from(node.get()))
    }

    /// Whose it is; `None` for zero.
    pub fn node(self) -> Option<NodeId> {
        NodeId::new(self.0 & ((1 << NODE_BITS) - 1))
    }

    /// How many ballots were taken one after the other to come here, at least.
    pub fn rounds(self) -> u64 {
        self.0 >> NODE_BITS
    }

    /// As a word that is ordered alike: what lease and fact numbers are.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 >> NODE_BITS, self.0 & ((1 << NODE_BITS) - 1))
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{self}")
    }
}

impl Wire for Ballot {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let ballot = Ballot(input.u64()?);
        if ballot != Ballot::ZERO && ballot.node().is_none() || ballot.0 >= LIMIT {
            return Err(WireError::Value { what: "ballot", found: ballot.0 });
        }
        Ok(ballot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_ballot_is_higher_whoever_takes_it() {
        let node = |id| NodeId::new(id).unwrap();
        let mut last = Ballot::ZERO;
        for id in [3, 1, 63, 1, 2] {
            let next = last.next(node(id));
            assert!(next > last);
            assert_eq!(next.node(), Some(node(id)));
            last = next;
        }
        assert_eq!(last.to_string(), "5.2");
    }

    #[test]
    fn ballots_without_an_owner_or_without_a_next_one_are_refused() {
        for word in [1u64 << 6, LIMIT | 1, u64::MAX] {
            assert!(Ballot::from_bytes(word.to_bytes()).is_err(), "{word}");
        }
        let highest = Ballot::from_bytes((LIMIT - 1).to_bytes()).unwrap();
        assert!(highest.next(NodeId::new(1).unwrap()) > highest);
    }
}
