//! When a proposal is chosen.

use quorate_blocks::coding::spread::{ShardSet, worst_cover};
use quorate_blocks::quorum::Tally;
use quorate_core::{NodeId, NodeSet, mutation};

use super::spread::Spread;

/// The votes for one value in one ballot, and what they must cover before it is chosen: a majority, everybody who is
/// *required* (Bodega's responders), and for each vote that counts everybody whom its voter has *granted* a say (quorum
/// leases). Of a value in shards, those voters that any later candidate hears must hold enough to restore it.
#[derive(Clone, Debug)]
pub struct CommitTracker {
    /// Those whose votes make a majority; counts at the end only, by what each vote brings with it.
    tally: Tally,
    pub(super) required: NodeSet,
    voters: NodeSet,
    /// The voters that have granted something, and to whom.
    pub(super) grants: Vec<(NodeId, NodeSet)>,
    /// How many shards restore the value; 0: it is sent whole.
    data: usize,
    /// What each voter has of it, if it is sent in shards.
    held: Vec<(NodeId, ShardSet)>,
}

impl CommitTracker {
    /// No vote yet. `data`: how many shards restore the value; 0 if it is sent whole.
    pub fn new(tally: Tally, required: NodeSet, data: usize) -> CommitTracker {
        let (voters, grants, held) = (NodeSet::EMPTY, Vec::new(), Vec::new());
        CommitTracker { tally, required, voters, grants, data, held }
    }

    /// A vote; a later one of the same voter says anew what it has granted. What it holds only grows in a ballot.
    pub fn add(&mut self, voter: NodeId, grants: NodeSet, held: ShardSet) {
        self.voters.insert(voter);
        if self.data > 0 {
            let before =
                self.held.iter().position(|(by, _)| *by == voter).map(|at| self.held.swap_remove(at).1);
            self.held.push((voter, before.unwrap_or_default().union(held)));
        }
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
        tally.reached() && self.is_restorable(&tally)
    }

    /// Whether the votes that count leave enough shards, whoever of them a candidate does not hear: it hears as many as
    /// must vote, of each set of voters.
    fn is_restorable(&self, tally: &Tally) -> bool {
        self.data == 0
            || tally.sets().all(|(set, quorum)| {
                let counts = set.intersection(tally.votes());
                let held: Vec<_> = counts.iter().map(|voter| self.held_by(voter)).collect();
                let lost = if mutation::active("slots/nobody-is-lost") { 0 } else { set.len() - quorum };
                worst_cover(&held, held.len().saturating_sub(lost)) >= self.data
            })
    }

    fn held_by(&self, voter: NodeId) -> ShardSet {
        self.held.iter().find(|(by, _)| *by == voter).map(|(_, held)| *held).unwrap_or_default()
    }

    /// The voters that do not hold all the shards that they are to have.
    pub(super) fn short_of(&self, spread: &Spread) -> NodeSet {
        let is_short =
            |(voter, held): &&(NodeId, ShardSet)| !spread.shards_of(*voter).without(*held).is_empty();
        self.held.iter().filter(is_short).map(|(voter, _)| *voter).collect()
    }

    /// Whether a majority has voted, whoever else is needed.
    pub(super) fn is_supported(&self) -> bool {
        self.supporters(NodeSet::EMPTY).is_some()
    }

    /// Who has voted, without some, if they are as many as must vote.
    pub(super) fn supporters(&self, without: NodeSet) -> Option<NodeSet> {
        let mut tally = self.tally;
        for voter in self.voters.iter().filter(|voter| !without.contains(*voter)) {
            tally.add(voter);
        }
        tally.reached().then(|| tally.votes())
    }

    /// Whose votes are needed beside a majority, as far as is known: everybody required, or granted a say by a voter.
    pub(super) fn demanded(&self) -> NodeSet {
        self.grants.iter().fold(self.required, |all, (_, granted)| all.union(*granted))
    }

    /// Who has not voted of those whose vote may be needed.
    pub fn missing(&self) -> NodeSet {
        self.tally.missing().union(self.demanded()).difference(self.voters)
    }
}
