//! What replicas with quorum leases say beside what all of the family say.

use quorate_blocks::ballot::Ballot;
use quorate_core::{NodeSet, Release, wire_enum};
use quorate_store::command::Key;

/// See the file comment.
#[derive(Clone, Debug)]
pub enum Message {
    /// Leader → all: I hear these grantees; grant leases to no others.
    Live {
        /// In this ballot.
        ballot: Ballot,
        /// Those.
        nodes: NodeSet,
    },
    /// Grantor → grantee (active): what I have accepted and not executed writes these keys only. All others I have
    /// granted to you again.
    Regrant {
        /// In this ballot.
        ballot: Ballot,
        /// Under this granting.
        guard: u64,
        /// I have executed everything up to this slot.
        upto: u64,
        /// Those keys, in order.
        but: Vec<Key>,
    },
}
wire_enum!(Message {
    1 => Live { ballot, nodes },
    2 => Regrant { ballot, guard, upto, but },
});

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // Binds nobody.
            Message::Live { .. } => Release::Now,
            // A restarted grantor takes it for given that it has regranted everything.
            Message::Regrant { .. } => Release::Now,
        }
    }

    fn kind(&self) -> &'static str {
        self.variant()
    }
}
