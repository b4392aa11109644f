//! Moments in the life of a request that a driver may want to put a time to, for people who ask why one was slow.
//! As a [`Fact`](crate::Fact), a mark bears no clock and never influences behaviour.

use crate::id::RequestId;

/// Something has just happened to a request, or to the slot (log index, instance) that carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A proxy has sent a request to a replica; said again when it repeats it.
    Forwarded {
        /// The request, as its proxy numbered it.
        request: RequestId,
    },
    /// A proxy has got the reply to a request.
    Answered {
        /// The request, as its proxy numbered it.
        request: RequestId,
        /// The slot in which it was executed; 0 if it took none, or nobody remembers which.
        slot: u64,
    },
    /// A replica has proposed a value for a slot.
    Proposed {
        /// The slot (log index, instance) that carries the request.
        slot: u64,
    },
    /// The proposer has persisted its own vote for a slot, or the slot itself: the last record so far.
    Recorded {
        /// The slot (log index, instance) that carries the request.
        slot: u64,
    },
    /// The proposer knows its value to be decided.
    Committed {
        /// The slot (log index, instance) that carries the request.
        slot: u64,
    },
    /// The proposer has executed a slot.
    Applied {
        /// The slot (log index, instance) that carries the request.
        slot: u64,
        /// How many requests it carried.
        requests: usize,
    },
}
