//! What comes with a ballot: the roster, as it was when the ballot was taken; and the bars, as they were heard last.

use quorate_core::{NodeId, NodeSet, Roster, mutation, wire_struct};
use quorate_parts::paxos;

/// See the file comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charter {
    /// Whether anybody has said so yet; else it is as the settings say.
    pub(super) known: bool,
    pub(super) roster: Roster,
    /// Whether the leader may change it by what is read where.
    pub(super) auto: bool,
    /// Which bars these are; 0 came with the ballot.
    pub(super) seq: u64,
    /// Responders that are granted no lease: they were silent, or have no vote.
    pub(super) barred: NodeSet,
}
wire_struct!(Charter { known, roster, auto, seq, barred });

impl paxos::Charter for Charter {
    const EMPTY: bool = false;
}

impl Charter {
    /// Whether a replica is a responder that is not barred.
    pub(super) fn may_read(&self, node: NodeId) -> bool {
        let barred = self.barred.contains(node) && !mutation::active("bodega/barred-and-reading");
        self.known && !barred && self.roster.everyone().contains(node)
    }
}
