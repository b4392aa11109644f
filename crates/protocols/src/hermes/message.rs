//! What members and proxies say, and what must be durable before they say it.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::leases::lease;
use quorate_blocks::walls::ClockRequest;
use quorate_blocks::{clients, embed_clients, embed_epochs, epochs};
use quorate_core::{Arrival, Class, NodeSet, Release, Time, Wall, wire_enum, wire_struct};
use quorate_store::Key;

use super::Timer;
use super::keys::{Timestamp, Version};
use super::tombstones::Floor;

/// A message. `ballot` is that of the epoch in which it is said.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// Between acceptors and those who read.
    Lease(lease::Message),
    /// Between acceptors, of epochs. There are no logs to compare.
    Epoch(epochs::Message<(), Known>),
    /// From the owner to all members: these are live in my epoch.
    Heartbeat {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Those whose acknowledgements every write needs. The same as long as the epoch lasts.
        live: NodeSet,
        /// Those of them who have everything; the others are shadows. None: nobody had, and the owner gathers it.
        whole: NodeSet,
        /// By the owner's clock; to be repeated in the answer.
        sent: Time,
    },
    /// Answer to `Heartbeat`.
    HeartbeatReply {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Whether the sender has everything.
        whole: bool,
        /// Whether the sender takes no part in this epoch, because it has lost what it acknowledged in it.
        lost: bool,
        /// Whom writes that the sender coordinates wait for too long.
        slow: NodeSet,
    },
    /// From a candidate that a majority has promised its ballot, to all members: I wait, since nobody who has promised
    /// has everything.
    Amnesia {
        /// The ballot that is promised.
        ballot: Ballot,
        /// Who has lost its memory.
        lost: NodeSet,
        /// Who has not promised.
        missing: NodeSet,
    },
    /// The sender is about to stop, or too slow to own an epoch: it is to be left out.
    Leave {
        /// The ballot of the epoch.
        ballot: Ballot,
    },
    /// What does your wall clock show?
    ClockRequest(ClockRequest),
    /// Answer to `ClockRequest`.
    ClockReply {
        /// As in the question that this answers.
        request: ClockRequest,
        /// What the sender's wall clock shows.
        wall: Wall,
    },
    /// Invalidation: these are the keys' new versions, if you have no later ones.
    Inv {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// One for each key. Those that the sender knows to be committed are an answer to an earlier one.
        versions: Vec<Version>,
    },
    /// Answer to `Inv`: I have these versions, durably.
    Ack {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Some of those that were sent.
        acks: Vec<Ack>,
    },
    /// Validation: these versions are committed.
    Val {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Keys with their versions.
        keys: Vec<(Key, Timestamp)>,
    },
    /// From a shadow: which versions have you of the keys that follow?
    Fetch {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// After this key; `None`: from the first.
        after: Option<Key>,
    },
    /// Answer to `Fetch`.
    Page {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// As it was asked.
        after: Option<Key>,
        /// In order.
        versions: Vec<Version>,
        /// Whether no keys follow.
        last: bool,
        /// What the sender knows of all others, up to the last of these.
        floor: Floor,
    },
}

wire_enum!(Message {
    1 => Client(message),
    2 => Lease(message),
    3 => Epoch(message),
    8 => Heartbeat { ballot, live, whole, sent },
    9 => HeartbeatReply { ballot, whole, lost, slow },
    10 => Leave { ballot },
    11 => ClockRequest(request),
    12 => ClockReply { request, wall },
    13 => Inv { ballot, versions },
    14 => Ack { ballot, acks },
    15 => Val { ballot, keys },
    16 => Fetch { ballot, after },
    17 => Page { ballot, after, versions, last, floor },
    18 => Amnesia { ballot, lost, missing },
});

/// What a promise tells the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The last epoch in which the sender was live.
    pub entered: Ballot,
    /// Whether it had everything that was committed until it left that epoch.
    pub whole: bool,
    /// Whether it has lost versions that it has acknowledged, in whichever epoch, and does not have them again.
    pub lost: bool,
}
wire_struct!(Known { entered, whole, lost });

/// A member has a version, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The key.
    pub key: Key,
    /// The version.
    pub at: Timestamp,
    /// Whether it has writes of the key that wait for this one.
    pub waits: bool,
}
wire_struct!(Ack { key, at, waits });

/// Versions stay below this in any group that there will ever be; who adds to one does not overflow.
const VERSIONS: u64 = 1 << 44;

impl Message {
    /// The ballot of the epoch in which it is said, of those that count in that epoch only.
    pub(super) fn epoch(&self) -> Option<Ballot> {
        match *self {
            Message::Epoch(ref message) => message.epoch(),
            Message::HeartbeatReply { ballot, .. }
            | Message::Leave { ballot }
            | Message::Inv { ballot, .. }
            | Message::Ack { ballot, .. }
            | Message::Val { ballot, .. }
            | Message::Fetch { ballot, .. }
            | Message::Page { ballot, .. } => Some(ballot),
            Message::Client(_)
            | Message::Lease(_)
            | Message::Heartbeat { .. }
            | Message::Amnesia { .. }
            | Message::ClockRequest(_)
            | Message::ClockReply { .. } => None,
        }
    }

    /// Whether a correct member can have said this: no version is of an epoch to come, and what is not committed is
    /// proposed in the present one.
    pub(super) fn is_possible(&self) -> bool {
        let known = |at: &Timestamp, ballot: &Ballot| at.version < VERSIONS && at.epoch <= ballot.number();
        match self {
            Message::Inv { ballot, versions } => versions.iter().all(|version| known(&version.at, ballot)),
            Message::Page { ballot, versions, floor, .. } => {
                versions.iter().map(|version| &version.at).chain([&floor.at]).all(|at| known(at, ballot))
            }
            _ => true,
        }
    }
}

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            Message::Epoch(message) => message.release(),
            // The version: who forgot it in a crash would give its number to another. What is an answer is acknowledged
            // by others as if it were one. Where versions are in no record: that its epoch was entered.
            Message::Inv { .. } => Release::AfterSync,
            // The versions, and the floor: the same.
            Message::Page { .. } => Release::AfterSync,
            // The version: all who are live have what is committed. Where versions are in no record: that its epoch was
            // entered, or a later life would not know that it has lost something.
            Message::Ack { .. } => Release::AfterSync,
            // Binds nobody. Whose disk hangs is silent so, and is taken for dead.
            Message::HeartbeatReply { .. } => Release::AfterSync,
            // The ballot: a grantor that forgot it in a crash would support the epoch before. Later renewals follow an
            // answer to the first.
            Message::Lease(lease::Message::Renew { seq: 1, .. }) => Release::AfterSync,
            // A restarted grantor waits as long as the longest promise that it may have made.
            Message::Lease(_) => Release::Now,
            // The ballot is durable at a majority since they promised it, and a restarted owner states nothing in it.
            Message::Heartbeat { .. } => Release::Now,
            // Show only what is committed, which is on the disks of all who are live.
            Message::Client(_) | Message::Val { .. } => Release::Now,
            // Bind nobody.
            Message::Leave { .. }
            | Message::Amnesia { .. }
            | Message::ClockRequest(_)
            | Message::ClockReply { .. }
            | Message::Fetch { .. } => Release::Now,
        }
    }

    fn binds(&self) -> Option<u64> {
        match self {
            Message::Epoch(message) => message.binds(),
            Message::Ack { ballot, .. } => Some(ballot.number()),
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            Message::Page { .. } => Class::Bulk,
            Message::Inv { .. } => Class::Write,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::Lease(message) => message.arrival(),
            Message::Epoch(message) => message.arrival(),
            Message::HeartbeatReply { .. } | Message::ClockRequest(_) | Message::ClockReply { .. } => {
                Arrival::AtOnce
            }
            _ => Arrival::Any,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Lease(message) => message.kind(),
            Message::Epoch(message) => message.kind(),
            other => other.variant(),
        }
    }
}

embed_clients!(Message);
embed_epochs!(Message, Timer, (), Known);

/// What a replica must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The latest ballot that it has promised: it takes part in no earlier epoch.
    Promised(Ballot),
    /// It is live in the epoch of this ballot.
    Entered {
        /// Of the epoch.
        ballot: Ballot,
        /// Whether it has everything that was committed before.
        whole: bool,
    },
    /// A version that it has adopted, or written; unless keys are in memory alone.
    Version(Version),
    /// This version is committed. Saves work after a restart; safety does not need it. As above.
    Valid {
        /// The key.
        key: Key,
        /// Its version.
        at: Timestamp,
    },
    /// What counts as the version of each key that is not here; unless keys are in memory alone.
    Floor(Floor),
    /// The disk was lost, and the member promises ballots again: versions are missing that it has acknowledged in
    /// epochs up to that of this one, or were.
    Rejoined {
        /// The latest that anybody had heard of.
        ballot: Ballot,
        /// Whether it has everything again.
        made_up: bool,
    },
}
wire_enum!(Record {
    1 => Promised(ballot),
    2 => Entered { ballot, whole },
    3 => Version(version),
    4 => Valid { key, at },
    5 => Rejoined { ballot, made_up },
    6 => Floor(floor),
});

impl From<epochs::RejoinRecord> for Record {
    fn from(record: epochs::RejoinRecord) -> Record {
        match record {
            epochs::RejoinRecord::Promised(ballot) => Record::Promised(ballot),
            epochs::RejoinRecord::Rejoined(ballot) => Record::Rejoined { ballot, made_up: false },
        }
    }
}
