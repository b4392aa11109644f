//! What phase 1 hears of a slot.
//!
//! *Which value may have been chosen, if votes are for shards.* The highest vote's, as ever. It was chosen only if
//! enough acceptors voted for shards of it, in that ballot or one before, that those of them which have replied hold
//! enough to restore it ([`Policy::quorum`](crate::paxos::engine::Policy::quorum)); for it is proposed again with
//! the same identity or whole, and an acceptor keeps what it has of it ([`Value::over`]). So shards count from all
//! ballots. If they are too few, nothing was chosen in that ballot or before, and a no-op may be.

use bytes::Bytes;
use quorate_blocks::coding::{Value, ValueId};
use quorate_core::mutation;

use crate::paxos::engine::slots::log::Vote;

/// What candidates hear of a slot.
#[derive(Debug)]
pub(super) struct Found {
    /// The highest.
    best: Vote,
    /// What other votes were for, as far as it may be of use.
    others: Vec<Value>,
}

impl Found {
    pub(super) fn new(vote: Vote) -> Found {
        Found { best: vote, others: Vec::new() }
    }

    pub(super) fn add(&mut self, vote: Vote) {
        let is_better = (vote.chosen, vote.ballot) > (self.best.chosen, self.best.ballot);
        let (other, ballot) = match is_better {
            true => {
                let Vote { value, ballot, .. } = std::mem::replace(&mut self.best, vote);
                (value, ballot)
            }
            false => (vote.value, vote.ballot),
        };
        let coded = self.best.value.whole().is_none() || other.whole().is_none();
        let highest_only = mutation::active("slots/shards-of-one-ballot");
        if coded && !(highest_only && ballot != self.best.ballot) {
            self.others.push(other);
        }
    }

    /// The value that may have been chosen, with its identity if it was coded; `None`: none can have been.
    pub(super) fn into_value(self) -> Option<(Bytes, Option<ValueId>)> {
        let Found { best, others } = self;
        let id = match &best.value {
            Value::Whole(value) => return Some((value.clone(), None)),
            Value::Coded(coded) => coded.id,
        };
        let held = others.into_iter().filter(|other| best.value.is_same(other));
        let all = held.collect::<Vec<_>>().iter().fold(best.value.clone(), |all, other| all.over(other));
        match all {
            Value::Whole(value) => Some((value, Some(id))),
            Value::Coded(coded) => coded.restore().ok().map(|value| (value, Some(id))),
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_blocks::ballot::Ballot;
    use quorate_core::NodeId;

    use super::*;

    fn ballot(counter: u64, id: u64) -> Ballot {
        (0..counter).fold(Ballot::ZERO, |ballot, _| ballot.next(NodeId::new(id).unwrap()))
    }

    /// Votes for shards: acceptor and ballot, shards held. With a code of (5,3), four of five replies.
    #[test]
    fn shards_count_from_all_ballots_and_too_few_of_them_say_that_nothing_was_chosen() {
        let value = Bytes::from(vec![1; 300]);
        let digest = quorate_core::digest(&value);
        let id = ValueId { slot: 1, ballot: ballot(1, 1), digest, len: 300, shards: 5, data: 3 };
        let other = Value::Whole(Bytes::from_static(b"other"));
        let shards: Vec<_> = id.split(&value, 1).collect();
        let (one, two, found) = (ballot(1, 1), ballot(2, 2), Some((value.clone(), Some(id))));
        let [a, b, c, _, e] = [0, 1, 2, 3, 4].map(|number| shards[number].clone());
        let whole = Value::Whole(value);
        // votes | what was found
        let table = [
            (vec![(one, &a), (one, &b), (one, &e)], found.clone()),
            (vec![(one, &a), (two, &c), (one, &b)], found.clone()),
            (vec![(one, &a), (one, &b)], None),
            (vec![(one, &a), (one, &b), (one, &b)], None),
            (vec![(one, &whole), (two, &c)], found.clone()),
            (vec![(two, &c), (one, &whole)], found),
            (
                vec![(one, &a), (two, &other), (one, &b), (one, &e)],
                Some((Bytes::from_static(b"other"), None)),
            ),
        ];
        for (votes, expected) in table {
            let mut votes =
                votes.into_iter().map(|(ballot, value)| Vote { ballot, value: value.clone(), chosen: false });
            let mut found = Found::new(votes.next().unwrap());
            votes.for_each(|vote| found.add(vote));
            assert_eq!(found.into_value(), expected);
        }
    }
}
