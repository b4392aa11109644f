//! What members and proxies of a chain say, and what must be durable before they say it.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::leases::lease;
use quorate_blocks::prefix_log::Entry;
use quorate_blocks::{catchup, clients, embed_clients, embed_epochs, embed_log, epochs};
use quorate_core::{Arrival, Class, NodeId, ProcessId, Release, Time, Wall, wire_enum, wire_struct};

use super::Timer;

/// A message. `ballot` is that of the epoch in which it is said; numbers are indexes of the log.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// Between a replica that fetches a snapshot and its predecessor.
    Catchup(catchup::Message),
    /// Between acceptors and the tail.
    Lease(lease::Message),
    /// Between acceptors, of epochs: the position of a log is its last entry's epoch, as a number, and index.
    Epoch(epochs::Message<(u64, u64), Known>),
    /// From the head to all members: this is the chain of my epoch.
    Heartbeat {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Its members, from the head to the tail.
        chain: Vec<NodeId>,
        /// Committed up to here.
        committed: u64,
        /// By the head's clock; to be repeated in the answer.
        sent: Time,
    },
    /// Answer to `Heartbeat`.
    HeartbeatReply {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// As in the heartbeat that this answers.
        sent: Time,
        /// Up to here my log is the head's, durably.
        durable: u64,
        /// Committed up to here, as far as I know.
        committed: u64,
        /// Whether I believe leases of a majority.
        leased: bool,
        /// The sender's wall clock.
        wall: Wall,
    },
    /// To the successor: entries that follow one which it may have. They are durable here.
    Update {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// The entry before `entries`.
        prev_index: u64,
        /// In which epoch that entry was made.
        prev_epoch: u64,
        /// In order; none in a probe.
        entries: Vec<Entry>,
        /// Committed up to here.
        committed: u64,
    },
    /// To the predecessor: I do not have the entry at `prev`.
    Mismatch {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// As it was asked.
        prev: u64,
        /// The last of mine that may be yours.
        index: u64,
        /// In which epoch that entry was made.
        index_epoch: u64,
    },
    /// To the successor: what you need is no longer in my log, fetch a snapshot.
    Behind {
        /// The ballot of the epoch.
        ballot: Ballot,
    },
    /// To itself: the own log is durable up to here.
    Stored {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// The last index that it is about.
        upto: u64,
    },
    /// To the predecessor: what I have.
    Ack {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Up to here my log is yours, durably.
        matched: u64,
        /// Up to here the tail has it, too.
        committed: u64,
    },
    /// CRAQ, to the tail: up to where is everything committed?
    VersionQuery {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// The sender's number for a batch of reads.
        id: u64,
    },
    /// Answer to `VersionQuery`.
    VersionReply {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// As in the question that this answers.
        id: u64,
        /// Everything up to here is committed, and nothing behind it was when this was said.
        committed: u64,
    },
    /// From the head to all members: I stop, and this one has all of my log; it may prepare a ballot.
    HandOver {
        /// The ballot of the epoch.
        ballot: Ballot,
        /// Who is to be the next head.
        to: NodeId,
        /// Whether the sender is to be left out of the next chain.
        leaves: bool,
    },
    /// To the head: I am about to stop.
    Leave {
        /// The ballot of the epoch.
        ballot: Ballot,
    },
    /// From the head to the tail: answer these reads of a proxy.
    Read {
        /// Who has asked the head.
        proxy: ProcessId,
        /// The number that this incarnation of the proxy has drawn.
        nonce: u64,
        /// Id, and encoded command.
        reads: Vec<(u64, Bytes)>,
    },
}

wire_enum!(Message {
    1 => Client(message),
    2 => Catchup(message),
    3 => Lease(message),
    4 => Epoch(message),
    7 => Heartbeat { ballot, chain, committed, sent },
    8 => HeartbeatReply { ballot, sent, durable, committed, leased, wall },
    9 => Update { ballot, prev_index, prev_epoch, entries, committed },
    10 => Mismatch { ballot, prev, index, index_epoch },
    11 => Behind { ballot },
    12 => Stored { ballot, upto },
    13 => Ack { ballot, matched, committed },
    14 => Read { proxy, nonce, reads },
    17 => VersionQuery { ballot, id },
    18 => VersionReply { ballot, id, committed },
    21 => HandOver { ballot, to, leaves },
    22 => Leave { ballot },
});

/// What a promise tells the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The last entry's index.
    pub last_index: u64,
    /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
    pub wall: Wall,
}
wire_struct!(Known { last_index, wall });

impl epochs::Evidence for Known {}

/// Indexes stay below this in any group that there will ever be; who adds to one does not overflow.
const INDEXES: u64 = 1 << 56;

impl Message {
    /// The ballot of the epoch in which it is said, of those that count in that epoch only.
    pub(super) fn epoch(&self) -> Option<Ballot> {
        match *self {
            Message::Epoch(ref message) => message.epoch(),
            Message::HeartbeatReply { ballot, .. }
            | Message::Update { ballot, .. }
            | Message::Mismatch { ballot, .. }
            | Message::Behind { ballot }
            | Message::Stored { ballot, .. }
            | Message::Ack { ballot, .. }
            | Message::VersionQuery { ballot, .. }
            | Message::VersionReply { ballot, .. }
            | Message::HandOver { ballot, .. }
            | Message::Leave { ballot } => Some(ballot),
            Message::Client(_)
            | Message::Catchup(_)
            | Message::Lease(_)
            | Message::Heartbeat { .. }
            | Message::Read { .. } => None,
        }
    }

    /// Whether a correct member can have said this: its numbers are below [`INDEXES`], the log begins behind an index 0
    /// of no epoch, epochs never go back in it, and no entry is of an epoch to come.
    pub(super) fn is_possible(&self) -> bool {
        let small = |indexes: &[u64]| indexes.iter().all(|index| *index < INDEXES);
        match *self {
            Message::Epoch(epochs::Message::Prepare { ballot, position: (epoch, index) }) => {
                small(&[index]) && epoch < ballot.number()
            }
            Message::Epoch(
                epochs::Message::Poll { position: (_, index), .. }
                | epochs::Message::RejoinReply { position: (_, index), .. },
            ) => small(&[index]),
            Message::Epoch(epochs::Message::Promise { known, .. }) => small(&[known.last_index]),
            Message::Heartbeat { committed, .. } | Message::VersionReply { committed, .. } => {
                small(&[committed])
            }
            Message::HeartbeatReply { durable, committed, .. } => small(&[durable, committed]),
            Message::Update { ballot, prev_index, prev_epoch, ref entries, committed } => {
                small(&[prev_index, committed])
                    && (prev_index > 0 || prev_epoch == 0)
                    && entries.iter().map(|entry| entry.term).is_sorted()
                    && entries.iter().all(|entry| (prev_epoch..=ballot.number()).contains(&entry.term))
                    && entries.iter().all(|entry| entry.value.whole().is_some())
            }
            Message::Mismatch { prev, index, .. } => small(&[prev, index]),
            Message::Stored { upto, .. } => small(&[upto]),
            Message::Ack { matched, committed, .. } => small(&[matched, committed]),
            Message::Client(_)
            | Message::Catchup(_)
            | Message::Lease(_)
            | Message::Epoch(_)
            | Message::Behind { .. }
            | Message::VersionQuery { .. }
            | Message::HandOver { .. }
            | Message::Leave { .. }
            | Message::Read { .. } => true,
        }
    }
}

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            Message::Epoch(message) => message.release(),
            // The entries: what follows from it (they are forwarded, acknowledged, committed) says that they are kept.
            Message::Stored { .. } => Release::AfterSync,
            // What they say of the log was durable when they were made (`Stored`).
            Message::Update { .. } | Message::Ack { .. } | Message::HeartbeatReply { .. } => Release::Now,
            // Show only what is committed, which is on the disks of the whole chain.
            Message::Client(_) | Message::Catchup(_) | Message::VersionReply { .. } => Release::Now,
            // The ballot is durable at a majority since they promised it, and a restarted head leads in it no more.
            Message::Heartbeat { .. } => Release::Now,
            // The ballot: a grantor that forgot it in a crash would support the epoch before. Later renewals follow an
            // answer to the first.
            Message::Lease(lease::Message::Renew { seq: 1, .. }) => Release::AfterSync,
            // A restarted grantor waits as long as the longest promise that it may have made.
            Message::Lease(_) => Release::Now,
            // Bind nobody.
            Message::Mismatch { .. }
            | Message::Behind { .. }
            | Message::VersionQuery { .. }
            | Message::HandOver { .. }
            | Message::Leave { .. }
            | Message::Read { .. } => Release::Now,
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
            Message::Catchup(message) => message.class(),
            Message::Update { .. } => Class::Write,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::Lease(message) => message.arrival(),
            Message::Epoch(message) => message.arrival(),
            Message::HeartbeatReply { .. } => Arrival::AtOnce,
            _ => Arrival::Any,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Catchup(message) => message.kind(),
            Message::Lease(message) => message.kind(),
            Message::Epoch(message) => message.kind(),
            other => other.variant(),
        }
    }
}

embed_clients!(Message);
embed_epochs!(Message, Timer, (u64, u64), Known);
embed_log!(Message, Record);

/// What a replica must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The latest ballot that it has promised: it takes part in no earlier epoch.
    Promised(Ballot),
    /// An entry; what was at this index and behind it is gone.
    Entry {
        /// The index of the entry.
        index: u64,
        /// The entry, as its head made it.
        entry: Entry,
    },
    /// Everything up to here is committed. Saves work after a restart; safety does not need it.
    Committed(u64),
    /// The state up to `index` came from another member as a snapshot. It counts when it is on this disk
    /// ([`quorate_core::Context::persist_state`]).
    Installed {
        /// The last index in it.
        index: u64,
        /// Whether the entries behind it stay.
        keep: bool,
    },
    /// Started again without a state that had been received: what was recorded since then never counted, what follows
    /// does.
    Resumed,
    /// The disk was lost, and this member takes part again, but in no epoch up to this ballot.
    Rejoined(Ballot),
}
wire_enum!(Record {
    1 => Promised(ballot),
    2 => Entry { index, entry },
    3 => Committed(index),
    4 => Installed { index, keep },
    5 => Resumed,
    6 => Rejoined(ballot),
});

impl From<epochs::RejoinRecord> for Record {
    fn from(record: epochs::RejoinRecord) -> Record {
        match record {
            epochs::RejoinRecord::Promised(ballot) => Record::Promised(ballot),
            epochs::RejoinRecord::Rejoined(ballot) => Record::Rejoined(ballot),
        }
    }
}
