//! What members say about epochs, and what must be durable before they say it.

use quorate_core::{Arrival, Release, Time, wire_enum};

use crate::ballot::Ballot;

/// A message; see the file comment of [`crate::epochs`] for `P` and `K`.
#[derive(Clone, Debug)]
pub enum Message<P, K> {
    /// I miss the owner; do you, and has my log what yours has?
    Poll {
        /// By the sender's clock; to be repeated in the answer.
        sent: Time,
        /// Where the sender's log ends.
        position: P,
    },
    /// Answer to `Poll`: yes.
    PollReply {
        /// As in the question that this answers.
        sent: Time,
        /// The latest ballot that the sender has promised.
        ballot: Ballot,
    },
    /// I want to own an epoch of this ballot: promise to take part in no earlier one.
    Prepare {
        /// Of the epoch to come.
        ballot: Ballot,
        /// Where the sender's log ends.
        position: P,
    },
    /// Answer to `Prepare`: I promise, and your log has what mine has.
    Promise {
        /// As it was asked.
        ballot: Ballot,
        /// What the owner must know of the sender.
        known: K,
    },
    /// Answer to `Prepare`, or to a statement of an earlier epoch: I have promised this one.
    Refused {
        /// The latest that the sender has promised.
        ballot: Ballot,
    },
    /// Eager almost-local reads, to all acceptors: have you promised a later ballot?
    Sync {
        /// Of the epoch in which the reads were executed.
        ballot: Ballot,
        /// The sender's number for a batch of reads.
        id: u64,
    },
    /// Answer to `Sync`.
    SyncReply {
        /// As it was asked.
        ballot: Ballot,
        /// As in the question that this answers.
        id: u64,
        /// The latest ballot that the sender has promised.
        promised: Ballot,
    },
    /// My disk was lost ([`crate::rejoin`]), to all others: which ballots have you heard of, and where does your log
    /// end?
    Rejoin {
        /// The sender's number for the question.
        nonce: u64,
    },
    /// Answer to `Rejoin`; and to itself: what is recorded is durable.
    RejoinReply {
        /// As in the question that this answers.
        nonce: u64,
        /// The latest that the sender has heard of.
        ballot: Ballot,
        /// Where the sender's log ends.
        position: P,
    },
}
wire_enum!(Message<P, K> {
    1 => Poll { sent, position },
    2 => PollReply { sent, ballot },
    3 => Prepare { ballot, position },
    4 => Promise { ballot, known },
    5 => Refused { ballot },
    6 => Sync { ballot, id },
    7 => SyncReply { ballot, id, promised },
    8 => Rejoin { nonce },
    9 => RejoinReply { nonce, ballot, position },
});

impl<P, K> Message<P, K> {
    /// The ballot of the epoch in which it is said, of those that count in that epoch only.
    pub fn epoch(&self) -> Option<Ballot> {
        match self {
            Message::Promise { ballot, .. } | Message::SyncReply { ballot, .. } => Some(*ballot),
            Message::Poll { .. }
            | Message::PollReply { .. }
            | Message::Prepare { .. }
            | Message::Refused { .. }
            | Message::Sync { .. }
            | Message::Rejoin { .. }
            | Message::RejoinReply { .. } => None,
        }
    }

    /// When it may leave.
    pub fn release(&self) -> Release {
        match self {
            // The own ballot: a candidate that forgot it in a crash could prepare it again, with less in its log. And
            // one whose disk hangs must not take the others' time.
            Message::Prepare { .. } => Release::AfterSync,
            // The ballot: who forgot it would take part in an earlier epoch, whose outcome the next owner lacks.
            Message::Promise { .. } => Release::AfterSync,
            // Of a promise that the sender's disk may lose nobody else has heard; that it has made none is true.
            Message::SyncReply { .. } => Release::Now,
            // To itself: what was recorded. To others it says only what those who ask have to wait for.
            Message::RejoinReply { .. } => Release::AfterSync,
            // Bind nobody.
            Message::Poll { .. }
            | Message::PollReply { .. }
            | Message::Refused { .. }
            | Message::Sync { .. }
            | Message::Rejoin { .. } => Release::Now,
        }
    }

    /// The number below which its sender takes part in nothing any more.
    pub fn binds(&self) -> Option<u64> {
        match self {
            Message::Prepare { ballot, .. } | Message::Promise { ballot, .. } => Some(ballot.number()),
            _ => None,
        }
    }

    /// When it arrives in an exploration.
    pub fn arrival(&self) -> Arrival {
        match self {
            Message::Poll { .. } | Message::PollReply { .. } => Arrival::AtOnce,
            _ => Arrival::Any,
        }
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}

/// Embeds epochs into a protocol: their messages, as `Epoch` and `Lease`, and their timers under their own names.
#[macro_export]
macro_rules! embed_epochs {
    ($message:ident, $timer:ident, $position:ty, $known:ty) => {
        impl From<$crate::epochs::Message<$position, $known>> for $message {
            fn from(message: $crate::epochs::Message<$position, $known>) -> Self {
                $message::Epoch(message)
            }
        }

        impl From<$crate::leases::lease::Message> for $message {
            fn from(message: $crate::leases::lease::Message) -> Self {
                $message::Lease(message)
            }
        }

        impl From<$crate::epochs::Timer> for $timer {
            fn from(timer: $crate::epochs::Timer) -> Self {
                match timer {
                    $crate::epochs::Timer::Election => $timer::Election,
                    $crate::epochs::Timer::Free => $timer::Free,
                    $crate::epochs::Timer::Decide => $timer::Decide,
                    $crate::epochs::Timer::Lease => $timer::Lease,
                    $crate::epochs::Timer::Ask => $timer::Ask,
                }
            }
        }
    };
}
