//! What machines say about themselves, for checkers, traces and metrics. A fact never influences behaviour.

use crate::id::NodeId;
use crate::time::Time;

/// One thing that just became true at one process. Times are the process's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// This value (by digest) is decided for this slot or index, as far as the process knows.
    Chosen {
        /// The slot or log index.
        slot: u64,
        /// Digest of the decided value.
        digest: u64,
    },
    /// The state machine has executed this slot or index.
    Applied {
        /// The slot or log index.
        slot: u64,
        /// Digest of the executed value.
        digest: u64,
    },
    /// A client's write took effect in the state machine here (it was not recognised as a duplicate).
    Executed {
        /// The slot or log index that carried it.
        slot: u64,
        /// Digest of the encoded command.
        command: u64,
    },
    /// The state machine was replaced by a snapshot up to this slot.
    Installed {
        /// The last slot the snapshot contains.
        slot: u64,
    },
    /// Leads under this number (ballot, term, view), as a word that grows with it.
    Leads {
        /// The number.
        number: u64,
    },
    /// No longer leads.
    Follows,
    /// As a grantor: promised `to` not to support another until then.
    Promised {
        /// The grantee.
        to: NodeId,
        /// Under this number.
        number: u64,
        /// The end of the promise on this process's clock; the present when it was given back.
        until: Time,
    },
    /// As a grantee: believes in `from`'s promise until then.
    Believes {
        /// The grantor.
        from: NodeId,
        /// Under this number.
        number: u64,
        /// The end of the belief on this process's clock; the present when it was given up.
        until: Time,
    },
    /// Would answer reads from its own state until then, unless it says otherwise before.
    ReadsLocally {
        /// Under this number.
        number: u64,
        /// The end on this process's clock; the present when it stopped.
        until: Time,
    },
    /// Has just answered a read from its own state alone.
    ServesLocally {
        /// Under this number.
        number: u64,
    },
}
