//! What comes with a ballot: the roster, as it was when the ballot was taken; and who is excluded from it, as this
//! replica has heard last.

use quorate_core::{NodeId, NodeSet, Roster, mutation, wire_struct};

use crate::paxos::engine;

/// See the file comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BallotConfig {
    /// Whether anybody has said so yet; else it is as the settings say.
    pub(super) known: bool,
    pub(super) roster: Roster,
    /// Whether the leader may change it by what is read where.
    pub(super) auto: bool,
    /// The number of the exclusion; 0 came with the ballot.
    pub(super) seq: u64,
    /// Responders that are granted no lease: they were silent, or have no vote.
    pub(super) excluded: NodeSet,
}
wire_struct!(BallotConfig { known, roster, auto, seq, excluded });

impl engine::BallotConfig for BallotConfig {
    const EMPTY: bool = false;
}

impl BallotConfig {
    /// Whether a replica is a responder that is not excluded.
    pub(super) fn may_read(&self, node: NodeId) -> bool {
        let excluded = self.excluded.contains(node) && !mutation::active("bodega/excluded-and-reading");
        self.known && !excluded && self.roster.everyone().contains(node)
    }
}
