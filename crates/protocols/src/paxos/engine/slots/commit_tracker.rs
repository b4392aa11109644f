//! When a proposal is chosen.

use quorate_blocks::quorum::Tally;
use quorate_core::{NodeId, NodeSet};

/// The votes for one value in one ballot, and what they must cover before it is chosen: a majority, everybody who is
/// *required* (Bodega's responders), and for each vote that counts everybody whom its voter has *granted* a say (quorum
/// leases).
#[derive(Clone, Debug)]
pub struct CommitTracker {
    /// Those whose votes make a majority; counts at the end only, by what each vote brings with it.
    tally: Tally,
    pub(super) required: NodeSet,
    voters: NodeSet,
    /// The voters that have granted something, and to whom.
    pub(super) grants: Vec<(NodeId, NodeSet)>,
}

impl CommitTracker {
    /// No vote yet.
    pub fn new(tally: Tally, required: NodeSet) -> CommitTracker {
        CommitTracker { tally, required, voters: NodeSet::EMPTY, grants: Vec::new() }
    }

    /// A vote; a later one of the same voter says anew what it has granted.
    pub fn add(&mut self, voter: NodeId, grants: NodeSet) {
        self.voters.insert(voter);
        self.grants.retain(|(by, _)| *by != voter);
        if !grants.is_empty() {
            self.grants.push((voter, grants));
        }
    }

    /// Whether the value is chosen.
    pub fn is_reached(&self) -> bool {
        let covers = |set: NodeSet| set.iter().all(|node| self.voters.contains(node));
        if !covers(self.required) {
            return false;
        }
        let mut tally = self.tally;
        for voter in self.voters.iter() {
            let grants = self.grants.iter().find(|(by, _)| *by == voter);
            if grants.is_none_or(|(_, granted)| covers(*granted)) {
                tally.add(voter);
            }
        }
        tally.reached()
    }

    /// Whether a majority has voted, whoever else is needed.
    pub(super) fn is_supported(&self) -> bool {
        let mut tally = self.tally;
        for voter in self.voters.iter() {
            tally.add(voter);
        }
        tally.reached()
    }

    /// Who has not voted of those whose vote may be needed.
    pub fn missing(&self) -> NodeSet {
        let granted = self.grants.iter().fold(self.required, |all, (_, granted)| all.union(*granted));
        self.tally.missing().union(granted).iter().filter(|node| !self.voters.contains(*node)).collect()
    }
}
