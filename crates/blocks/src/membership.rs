//! Who is in a group, and how that changes while it runs: **joint consensus** (Ongaro and Ousterhout, *In Search of an
//! Understandable Consensus Algorithm*, §6; Ongaro's thesis §4.3).
//!
//! A group goes from one set of voters to another through a *joint* configuration, in which every decision and every
//! election needs a majority of both. New voters are learners until they have caught up. There is one change at a
//! time: a configuration is proposed only when the one before it is decided.
//!
//! **How a change ends.** It is in force, or it is dropped while its new voters are learners: because an operator
//! cancels it, or because one of them has made no progress for [`ReconfigurationCoordinator::stalled_after`]. Learners
//! count nowhere, so the leader writes a configuration without those that the change has added, in one step. A joint
//! configuration is not dropped: the way back to the old voters needs a majority of the old and of the new ones, as the
//! way forward does, so going back could never succeed where going on cannot. The leader, or the next one, goes on.
//!
//! A protocol writes configurations into its log, as entries that stand alone ([`crate::batch`]), and decides when
//! one is in force: Raft as soon as it is in the log, the MultiPaxos family when it is executed.

mod coordinator;

use std::collections::BTreeMap;

use quorate_core::{Group, Managed, Member, Members, NodeId, NodeSet, wire_struct};

use crate::quorum::{Tally, majority_reached};

pub use coordinator::{Reached, ReconfigurationCoordinator};

/// Who counts, who listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// A majority of these decides.
    pub voters: NodeSet,
    /// While the group changes: a majority of these must agree too. Else empty.
    pub outgoing: NodeSet,
    /// Get the log and do not count.
    pub learners: NodeSet,
    /// Where they are, as far as it was said; others are where the operator said at start-up.
    pub addresses: BTreeMap<NodeId, String>,
}
wire_struct!(Configuration { voters, outgoing, learners, addresses });

impl Configuration {
    /// Of a group that is set up; empty for a replica that joins one.
    pub fn initial(group: &Group) -> Configuration {
        let voters = if group.joining { NodeSet::EMPTY } else { group.members };
        Configuration { voters, ..Configuration::default() }
    }

    /// Everybody who gets the log.
    pub fn all(&self) -> NodeSet {
        self.voters.union(self.outgoing).union(self.learners)
    }

    /// Those whose votes count.
    pub fn voting(&self) -> NodeSet {
        self.voters.union(self.outgoing)
    }

    /// Whether this replica's vote counts.
    pub fn votes(&self, node: NodeId) -> bool {
        self.voting().contains(node)
    }

    /// Whether the group is between two sets of voters.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// What a replica that does not lead or stand is, in a word.
    pub fn standing(&self, node: NodeId) -> &'static str {
        match self {
            _ if self.votes(node) => "follower",
            _ if self.learners.contains(node) => "learner",
            _ if self.voters.is_empty() => "joining",
            _ => "removed",
        }
    }

    /// Whether it decides alone.
    pub fn is_alone(&self, node: NodeId) -> bool {
        self.voters.len() == 1 && !self.is_joint() && self.voters.contains(node)
    }

    /// To count votes under it.
    pub fn tally(&self) -> Tally {
        Tally::joint(self.voters, self.outgoing)
    }

    /// The largest value that a majority has reached (of both sets, while there are two).
    pub fn reached<T: Ord + Copy>(&self, value: impl Fn(NodeId) -> Option<T>) -> Option<T> {
        let of = |set: NodeSet| majority_reached(set.iter().map(&value));
        match (self.voters.is_empty(), self.outgoing.is_empty()) {
            (true, _) => None,
            (false, true) => of(self.voters),
            (false, false) => of(self.voters).min(of(self.outgoing)),
        }
    }

    /// For drivers and proxies. `version` is the index at which it is written.
    pub fn members(&self, version: u64) -> Members {
        let member = |node| {
            let address = self.addresses.get(&node).cloned().unwrap_or_default();
            (node, Member { address, voter: self.votes(node) })
        };
        Members { version, nodes: self.all().iter().map(member).collect() }
    }

    /// The same, with the addresses that the operator gave at start-up where it knows none.
    pub fn located(mut self, group: &Group) -> Configuration {
        for node in self.all().iter() {
            if let Some(address) = group.addresses.get(&node) {
                self.addresses.entry(node).or_insert_with(|| address.clone());
            }
        }
        self
    }

    /// Who is to lead next: the voter asked for, or whoever is furthest of those that are near, given how far they are.
    pub fn transfer_target(
        &self,
        to: Option<NodeId>,
        near: impl IntoIterator<Item = (NodeId, u64)>,
    ) -> Result<NodeId, Managed> {
        if let Some(node) = to.filter(|node| !self.voters.contains(*node)) {
            return Err(refused(format!("node {node} is no voter")));
        }
        let fits = |(node, _): &(NodeId, u64)| self.voters.contains(*node) && to.is_none_or(|to| to == *node);
        let ready = near.into_iter().filter(fits);
        let target = ready.max_by_key(|(node, reached)| (*reached, std::cmp::Reverse(*node)));
        target.map(|(node, _)| node).ok_or_else(|| refused("nobody is there to take over"))
    }

    /// What follows a joint configuration.
    fn settled(&self) -> Configuration {
        let mut next = Configuration { outgoing: NodeSet::EMPTY, ..self.clone() };
        let all = next.all();
        next.addresses.retain(|node, _| all.contains(*node));
        next
    }
}

/// Why most protocols refuse to talk about rosters.
pub const NO_ROSTER: &str = "in this protocol the leader alone serves reads; there is no roster";

/// Why some protocols refuse to change their group.
pub const NO_CHANGES: &str = "this protocol does not change its group while it runs";

/// An operator's request is refused, and why.
pub fn refused(why: impl Into<String>) -> Managed {
    Managed::Refused(why.into().into_bytes().into())
}
