//! Whether a head goes on with its chain, and who may be in the next one.

use quorate_core::{NodeId, NodeSet, mutation};

/// What a head sees when it reviews its chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Review {
    pub chain: NodeSet,
    /// The head itself, and who was heard lately, inside or outside.
    pub alive: NodeSet,
    /// Who must leave: silent, about to stop, without leases to read under, or it holds the others up.
    pub overdue: NodeSet,
    /// Members of the chain that get on, and take too long for each entry.
    pub slow: NodeSet,
    /// Who has what is committed, up to what may be under way.
    pub near: NodeSet,
    /// Of all members of the group.
    pub majority: usize,
    /// Whether the chain has committed something, and has lasted for so long that another one may begin.
    pub settled: bool,
}

impl Review {
    /// Who would do for the next chain, if `laggards` are those that have held others up. One that lacks much will do
    /// in place of one that is overdue: nobody gets entries past that one.
    pub fn fit(&self, laggards: NodeSet) -> NodeSet {
        let is_fit = |node: &NodeId| match self.chain.contains(*node) {
            true => !self.overdue.contains(*node),
            false => !laggards.contains(*node),
        };
        self.alive.iter().filter(is_fit).collect()
    }

    /// Who may cease to be a laggard: whoever is near a chain that has settled, or anybody if too few are left without
    /// those that are overdue. Several that hold the others up would else be in the chain in turn, each while another
    /// is waited for, and the others never among themselves.
    pub fn back(&self, laggards: NodeSet) -> NodeSet {
        let waits = !self.overdue.is_empty();
        let may = if waits { self.fit(laggards).len() < self.majority } else { self.settled };
        if !may && !mutation::active("chain/back-in-turn") {
            return NodeSet::EMPTY;
        }
        if waits && !mutation::active("chain/near-in-vain") { self.alive } else { self.near }
    }

    /// Whether another epoch is to begin: without one that is dead, or without those that are overdue or slow if the
    /// others are enough; or with one that has caught up.
    pub fn begins_another(&self, laggards: NodeSet) -> bool {
        let fit = self.fit(laggards);
        let dead = self.overdue.iter().any(|node| !self.alive.contains(node));
        let joins = fit.intersection(self.near).iter().any(|node| !self.chain.contains(node));
        // In place of one that gets on, only one that gets on faster: it must be near.
        let gets_on = fit.intersection(self.near.union(self.chain));
        let quick = gets_on.iter().filter(|node| !self.slow.contains(*node)).collect();
        let enough =
            |waited_for: NodeSet, others: NodeSet| !waited_for.is_empty() && others.len() >= self.majority;
        dead || enough(self.overdue, fit) || enough(self.slow, quick) || (joins && self.settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set;

    #[test]
    fn a_chain_of_five_members_goes_on_until_others_do_better() {
        // chain, alive, overdue, slow, near, laggards, whether it has settled → who comes back, whether an epoch begins
        let table = "
            12345 12345 -  -  12345 -  yes -    no
            12345 12345 4  -  12345 -  yes -    yes
            12345 1235  4  -  12345 -  no  -    yes
            1234  12345 -  -  12345 -  yes -    yes
            1234  12345 -  -  12345 -  no  -    no
            1234  12345 -  -  1234  -  yes -    no
            1234  12345 -  -  12345 5  yes 5    yes
            1234  12345 -  -  1234  5  yes -    no
            1234  12345 -  -  12345 5  no  -    no
            1234  12345 4  -  12345 5  yes -    yes
            1234  12345 4  -  12345 5  no  -    yes
            123   12345 3  -  123   45 no  45   yes
            123   12345 3  -  123   4  no  -    yes
            123   123   3  -  123   -  yes -    no
            123   12    3  -  123   -  no  -    yes
            12345 12345 -  4  12345 -  yes -    yes
            1234  1234  -  4  1234  -  no  -    yes
            1234  12345 -  34 12345 -  no  -    yes
            1234  12345 -  34 1234  -  no  -    no
            1234  12345 -  34 12345 5  no  -    no
            123   123   -  3  123   -  yes -    no
            1234  12345 -  4  12345 45 yes 45   yes
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<_> = line.split_whitespace().collect();
            let sets: Vec<_> = words[..6].iter().map(|word| set(word)).collect();
            let [chain, alive, overdue, slow, near, laggards] = sets[..] else { unreachable!("six sets") };
            let settled = words[6] == "yes";
            let review = Review { chain, alive, overdue, slow, near, majority: 3, settled };
            let back = review.back(laggards).intersection(laggards);
            let rest = laggards.iter().filter(|node| !back.contains(*node)).collect();
            assert_eq!(back, set(words[7]), "who comes back: {line}");
            assert_eq!(review.begins_another(rest), words[8] == "yes", "another epoch: {line}");
        }
    }
}
