//! Which voter gets which shards of a value (Crossword §3.2).
//!
//! Of n shards, each voter gets an *arc*: so many of them from a number on, in a circle. In a *balanced* assignment
//! there are as many shards as voters, and voter number i gets as many as every other, from number i on. In an
//! *unbalanced* one a table says how many each voter gets at least, of as many shards as the table wants; the arcs lie
//! one behind the other. The *width* is how many shards every voter gets at least: where voters are missing, a larger
//! one makes the votes of the others enough.

use std::collections::BTreeMap;

use quorate_core::{NodeId, NodeSet};

use super::spread::{ShardSet, least_width, worst_cover};
use super::{Code, CodingError, MAX_SHARDS};

/// See the file comment. Of at most [`MAX_SHARDS`] voters, and with d > 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// n: how many shards there are.
    shards: u8,
    /// d: how many restore the value.
    data: u8,
    voters: NodeSet,
    /// Of each voter in the order of their numbers: its first shard, and how many it gets at least.
    arcs: [(u8, u8); MAX_SHARDS],
    balanced: bool,
}

impl Assignment {
    /// As many shards as voters. With several sets of voters, each voter has a shard of its own, and the smallest d
    /// holds for all. `data`: d, of so many voters. `None`: values are sent whole.
    pub fn balanced(
        sets: impl IntoIterator<Item = NodeSet>,
        data: impl Fn(usize) -> usize,
    ) -> Option<Assignment> {
        let (mut voters, mut least) = (NodeSet::EMPTY, usize::MAX);
        for set in sets.into_iter().filter(|set| !set.is_empty()) {
            voters = voters.union(set);
            least = least.min(data(set.len()));
        }
        if voters.len() > MAX_SHARDS || !(2..=MAX_SHARDS).contains(&least) {
            return None;
        }
        let arcs = std::array::from_fn(|number| (number as u8, 1));
        Some(Assignment { shards: voters.len() as u8, data: least as u8, voters, arcs, balanced: true })
    }

    /// n shards, of which d restore the value, and how many each voter gets. Of a voter that is named twice, the last
    /// count holds.
    pub fn unbalanced(
        (shards, data): (usize, usize),
        counts: impl IntoIterator<Item = (NodeId, usize)>,
    ) -> Result<Assignment, CodingError> {
        Code::new(shards, data)?;
        let counts: BTreeMap<_, _> = counts.into_iter().collect();
        let voters: NodeSet = counts.keys().copied().collect();
        if voters.len() > MAX_SHARDS || data < 2 {
            return Err(CodingError::Shape { shards: voters.len(), data });
        }
        let (mut arcs, mut next) = ([(0, 0); MAX_SHARDS], 0);
        for (arc, count) in arcs.iter_mut().zip(counts.into_values()) {
            let count = count.min(shards);
            *arc = (next as u8, count as u8);
            next = (next + count) % shards;
        }
        Ok(Assignment { shards: shards as u8, data: data as u8, voters, arcs, balanced: false })
    }

    /// How many shards there are, and how many of them restore the value.
    pub fn code(&self) -> (u8, u8) {
        (self.shards, self.data)
    }

    /// Whether every voter gets as many.
    pub fn is_balanced(&self) -> bool {
        self.balanced
    }

    /// The voters that are sent shards.
    pub fn voters(&self) -> NodeSet {
        self.voters
    }

    /// The same shards for some of the voters alone.
    pub fn among(&self, voters: NodeSet) -> Assignment {
        let mut arcs = [(0, 0); MAX_SHARDS];
        let kept = self.voters.iter().zip(self.arcs).filter(|(voter, _)| voters.contains(*voter));
        arcs.iter_mut().zip(kept).for_each(|(arc, (_, kept))| *arc = kept);
        Assignment { voters: self.voters.intersection(voters), arcs, balanced: false, ..*self }
    }

    /// The shards of a voter with this width; none of anybody else.
    pub fn shards_of(&self, node: NodeId, width: usize) -> ShardSet {
        match self.voters.iter().zip(self.arcs).find(|(voter, _)| *voter == node) {
            Some((_, (first, count))) => {
                ShardSet::arc(first.into(), width.max(count.into()), self.shards.into())
            }
            None => ShardSet::default(),
        }
    }

    /// The distinct shards that these have, with no more than each gets at least.
    pub fn held_by(&self, nodes: NodeSet) -> ShardSet {
        nodes.iter().fold(ShardSet::default(), |all, node| all.union(self.shards_of(node, 1)))
    }

    /// The least width with which those of the voters that are there can have a value chosen, of each set of voters, by
    /// as many votes as are a quorum of it at least: whoever else of the set is lost, d distinct shards are left. d if
    /// there is none: the value is sent whole.
    pub fn least_width(&self, sets: impl Iterator<Item = (NodeSet, usize)>, there: NodeSet) -> usize {
        let data = usize::from(self.data);
        let least = sets.map(|(set, quorum)| {
            let there = set.intersection(there);
            let left = there.len().saturating_sub(set.len() - quorum);
            if self.balanced {
                return least_width(data, left);
            }
            let restores = |width: &usize| {
                let held: Vec<_> = there.iter().map(|node| self.shards_of(node, *width)).collect();
                worst_cover(&held, left) >= data
            };
            (1..data).find(restores).unwrap_or(data)
        });
        least.max().unwrap_or(data)
    }

    /// Voters that are left when all others are lost, so many of them, and hold too few shards to restore the value:
    /// with all voters there, C2 does not hold.
    pub fn too_few_among(&self, left: usize) -> Option<NodeSet> {
        let numbered: Vec<_> = self.voters.iter().collect();
        let sets = (0u32..1 << numbered.len()).filter(|set| set.count_ones() as usize == left);
        let mut sets = sets.map(|set| {
            let is_in = |(number, _): &(usize, &NodeId)| set >> number & 1 == 1;
            numbered.iter().enumerate().filter(is_in).map(|(_, node)| *node).collect::<NodeSet>()
        });
        sets.find(|set| self.held_by(*set).len() < self.data.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn nodes(ids: &str) -> NodeSet {
        ids.bytes().map(|digit| node((digit - b'0').into())).collect()
    }

    fn table(code: (usize, usize), counts: &[usize]) -> Assignment {
        Assignment::unbalanced(code, (1..).map(node).zip(counts.iter().copied())).expect("a code")
    }

    fn draw(assignment: &Assignment, width: usize) -> String {
        let shards = assignment.voters().iter().map(|voter| assignment.shards_of(voter, width));
        shards.map(|shards| format!("{shards:?}").replace(' ', "")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn arcs_begin_at_the_voter_s_number_or_lie_one_behind_the_other() {
        let balanced = Assignment::balanced([nodes("12345")], |_| 3).unwrap();
        // Those of §5.4 of the paper, and all that restore the value for the leader.
        let unbalanced = table((8, 5), &[5, 5, 5, 3, 1]);
        // assignment | width | shards of each
        let cases = [
            (balanced, 1, "[0] [1] [2] [3] [4]"),
            (balanced, 2, "[0,1] [1,2] [2,3] [3,4] [0,4]"),
            (unbalanced, 1, "[0,1,2,3,4] [0,1,5,6,7] [2,3,4,5,6] [0,1,7] [2]"),
            (unbalanced, 4, "[0,1,2,3,4] [0,1,5,6,7] [2,3,4,5,6] [0,1,2,7] [2,3,4,5]"),
            (unbalanced.among(nodes("145")), 1, "[0,1,2,3,4] [0,1,7] [2]"),
        ];
        for (assignment, width, drawn) in cases {
            assert_eq!(draw(&assignment, width), drawn);
        }
        assert_eq!(balanced.shards_of(node(6), 3), ShardSet::default());
    }

    #[test]
    fn joint_voters_share_the_smaller_code_and_large_groups_or_small_values_have_none() {
        let data = |voters: usize| voters.div_ceil(2);
        let joint = Assignment::balanced([nodes("123"), nodes("34567")], data).unwrap();
        assert_eq!((joint.code(), joint.voters()), ((7, 2), nodes("1234567")));
        assert_eq!(Assignment::balanced([nodes("12"), NodeSet::EMPTY], data), None);
        assert_eq!(Assignment::balanced([(1..=17).map(node).collect()], data), None);
        assert!(Assignment::unbalanced((17, 9), []).is_err());
        assert!(Assignment::unbalanced((8, 5), (1..=17).map(|id| (node(id), 5))).is_err());
    }

    #[test]
    fn who_is_there_needs_as_many_more_shards_as_make_their_votes_enough() {
        let balanced = Assignment::balanced([nodes("12345")], |_| 3).unwrap();
        let unbalanced = table((8, 5), &[5, 5, 5, 3, 1]);
        // who is there → widths of the balanced and of the unbalanced assignment
        let cases = [
            ("12345", 1, 1),
            ("1234", 2, 1),
            ("1245", 2, 2),
            ("123", 3, 1),
            ("124", 3, 5),
            ("145", 3, 5),
            ("12", 3, 5),
        ];
        for (there, of_balanced, of_unbalanced) in cases {
            let width = |assignment: Assignment| {
                assignment.least_width([(nodes("12345"), 3)].into_iter(), nodes(there))
            };
            assert_eq!([width(balanced), width(unbalanced)], [of_balanced, of_unbalanced], "{there}");
        }
        let sets = [(nodes("123"), 2), (nodes("34567"), 3)];
        let joint = Assignment::balanced(sets.map(|(set, _)| set), |voters| voters.div_ceil(2)).unwrap();
        assert_eq!(joint.least_width(sets.into_iter(), nodes("34567")), 2, "of the first set, one is there");
    }

    #[test]
    fn a_table_names_those_who_would_be_left_with_too_few_shards() {
        // code | shards of each | so many are left → who is left with too few
        let cases = [
            ((8, 5), vec![5, 5, 5, 3, 1], 3, ""),
            ((8, 5), vec![5, 5, 3, 1, 1], 3, ""),
            ((8, 5), vec![5, 5, 2, 1, 1], 3, "345"),
            ((8, 5), vec![5, 5, 5, 3, 1], 2, "45"),
            ((4, 3), vec![3, 2, 1], 2, ""),
            ((4, 3), vec![3, 1, 1], 2, "23"),
        ];
        for (code, counts, left, too_few) in cases {
            let found = table(code, &counts).too_few_among(left).unwrap_or_default();
            assert_eq!(found, nodes(too_few), "{code:?} {counts:?} {left}");
        }
    }
}
