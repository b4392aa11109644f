//! Counting votes.

use quorate_core::{NodeId, NodeSet};

/// What a vote changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Those who have answered are no quorum yet.
    Pending,
    /// Enough with this vote.
    Reached,
    /// There were enough before.
    Already,
}

/// Votes of distinct voters towards a majority, or another stated number; or towards those of two sets of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    voters: NodeSet,
    /// Whose majority is needed too; empty if there is one set only.
    outgoing: NodeSet,
    votes: NodeSet,
    /// How many votes of each set are needed.
    quorums: (usize, usize),
}

impl Tally {
    /// No vote yet, among these voters.
    pub fn new(voters: NodeSet) -> Tally {
        Tally::joint(voters, NodeSet::EMPTY)
    }

    /// No vote yet; a majority of both sets is needed, if the second is not empty.
    pub fn joint(voters: NodeSet, outgoing: NodeSet) -> Tally {
        Tally { voters, outgoing, votes: NodeSet::EMPTY, quorums: (voters.majority(), outgoing.majority()) }
    }

    /// The same, with so many votes needed of each set in place of a majority, given how many voters it has.
    pub fn needing(self, quorum: impl Fn(usize) -> usize) -> Tally {
        Tally { quorums: (quorum(self.voters.len()), quorum(self.outgoing.len())), ..self }
    }

    /// Counts a vote; strangers and repetitions do not count.
    pub fn add(&mut self, voter: NodeId) -> Verdict {
        let before = self.reached();
        if self.voters.union(self.outgoing).contains(voter) {
            self.votes.insert(voter);
        }
        match (before, self.reached()) {
            (true, _) => Verdict::Already,
            (false, true) => Verdict::Reached,
            (false, false) => Verdict::Pending,
        }
    }

    /// Whether enough have voted.
    pub fn reached(&self) -> bool {
        let has = |set: NodeSet, quorum| self.votes.intersection(set).len() >= quorum;
        has(self.voters, self.quorums.0) && (self.outgoing.is_empty() || has(self.outgoing, self.quorums.1))
    }

    /// Each set of voters, and how many votes of it are needed.
    pub fn sets(&self) -> impl Iterator<Item = (NodeSet, usize)> + use<> {
        let sets = [(self.voters, self.quorums.0), (self.outgoing, self.quorums.1)];
        sets.into_iter().filter(|(set, _)| !set.is_empty())
    }

    /// The voters that have answered.
    pub fn votes(&self) -> NodeSet {
        self.votes
    }

    /// Who has not voted.
    pub fn missing(&self) -> NodeSet {
        self.voters.union(self.outgoing).difference(self.votes)
    }
}

/// The largest value that a majority of the voters has reached, given each one's; `None` for a voter is nothing.
/// (The m-th largest.)
pub fn majority_reached<T: Ord + Copy>(values: impl IntoIterator<Item = Option<T>>) -> Option<T> {
    let mut values: Vec<_> = values.into_iter().collect();
    let majority = values.len() / 2 + 1;
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(majority - 1).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line: voters | votes in order | verdicts. `x` is a stranger.
    const TABLE: &str = "
        1      | 1         | R
        12     | 1 1 2     | P P R
        123    | 1 3 2     | P R A
        123    | x 2 2 1   | P P P R
        12345  | 5 4 5 1 2 | P P P R A
    ";

    #[test]
    fn a_majority_of_distinct_voters_decides_once() {
        let node = |c: char| NodeId::new(c.to_digit(36).unwrap().into()).unwrap();
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut columns = line.split('|').map(str::trim);
            let mut tally = Tally::new(columns.next().unwrap().chars().map(node).collect());
            let votes = columns.next().unwrap().split(' ').map(|vote| node(vote.chars().next().unwrap()));
            let verdicts: Vec<_> = votes
                .map(|voter| match tally.add(voter) {
                    Verdict::Pending => "P",
                    Verdict::Reached => "R",
                    Verdict::Already => "A",
                })
                .collect();
            assert_eq!(verdicts.join(" "), columns.next().unwrap(), "{line}");
        }
    }

    #[test]
    fn a_tally_counts_to_the_number_that_is_stated_for_each_set() {
        let set = |ids: &[u64]| ids.iter().filter_map(|id| NodeId::new(*id)).collect::<NodeSet>();
        let mut tally = Tally::joint(set(&[1, 2, 3, 4, 5]), set(&[4, 5, 6])).needing(|voters| voters - 1);
        let verdicts = [1, 2, 6, 4, 3].map(|id| tally.add(NodeId::new(id).unwrap()));
        let pending = Verdict::Pending;
        assert_eq!(verdicts, [pending, pending, pending, pending, Verdict::Reached]);
    }

    #[test]
    fn a_joint_majority_is_one_of_each_set() {
        let set = |ids: &[u64]| ids.iter().filter_map(|id| NodeId::new(*id)).collect::<NodeSet>();
        // voters | outgoing | votes | whether they are enough
        let table: [([&[u64]; 3], bool); 5] = [
            ([&[1, 2, 3], &[3, 4, 5], &[1, 2]], false),
            ([&[1, 2, 3], &[3, 4, 5], &[1, 3, 4]], true),
            ([&[1, 2, 3], &[3, 4, 5], &[4, 5, 3]], false),
            ([&[1], &[2], &[1]], false),
            ([&[1], &[], &[1]], true),
        ];
        for ([voters, outgoing, votes], enough) in table {
            let mut tally = Tally::joint(set(voters), set(outgoing));
            for voter in set(votes).iter() {
                tally.add(voter);
            }
            assert_eq!(tally.reached(), enough, "{voters:?} {outgoing:?} {votes:?}");
        }
    }

    #[test]
    fn the_value_a_majority_has_reached() {
        let table: [(&[Option<u8>], Option<u8>); 5] = [
            (&[Some(5)], Some(5)),
            (&[Some(5), None], None),
            (&[Some(5), Some(3)], Some(3)),
            (&[Some(5), None, Some(3)], Some(3)),
            (&[Some(1), Some(2), Some(3), Some(4), None], Some(2)),
        ];
        for (values, expected) in table {
            assert_eq!(majority_reached(values.iter().copied()), expected, "{values:?}");
        }
    }
}
