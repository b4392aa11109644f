//! What Bodega's replicas say beside what all of the family say.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_core::{NodeSet, Release, wire_enum};

/// See the file comment.
#[derive(Clone, Debug)]
pub enum Message {
    /// Acceptor → responder: I have voted in these ranges of slots (inclusive).
    Note {
        /// In this ballot.
        ballot: Ballot,
        /// First and last.
        slots: Vec<(u64, u64)>,
    },
    /// Leader → all: grant these no leases.
    Exclude {
        /// In this ballot.
        ballot: Ballot,
        /// Grows; the last one counts.
        seq: u64,
        /// Those.
        nodes: NodeSet,
    },
    /// Acceptor → leader: I am bound to none of those, and will not be.
    ExcludeReply {
        /// In this ballot.
        ballot: Ballot,
        /// The number of the exclusion that is confirmed.
        seq: u64,
    },
    /// Replica → leader: so often have clients at my site read these keys since the last time.
    Statistics {
        /// In this ballot.
        ballot: Ballot,
        /// Key and reads.
        reads: Vec<(Bytes, u64)>,
    },
}
wire_enum!(Message {
    1 => Note { ballot, slots },
    2 => Exclude { ballot, seq, nodes },
    3 => ExcludeReply { ballot, seq },
    4 => Statistics { ballot, reads },
});

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // The votes: reads are answered on their strength.
            Message::Note { .. } => Release::AfterSync,
            // A restarted leader has another ballot.
            Message::Exclude { .. } => Release::Now,
            // A restarted replica must know whom it has said not to be bound to, itself among them.
            Message::ExcludeReply { .. } => Release::AfterSync,
            Message::Statistics { .. } => Release::Now,
        }
    }

    fn kind(&self) -> &'static str {
        self.variant()
    }
}
