//! What ZAB's replicas and proxies say, and what must be durable before they say it.

use quorate_blocks::prefix_log::Entry;
use quorate_blocks::{catchup, clients, embed_clients, embed_log};
use quorate_core::{Arrival, Class, NodeId, Release, Time, Wall, wire_enum};

/// A message. The words in capitals are those of the papers; a zxid is an entry's epoch and its index in the log.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// Between a replica that fetches a snapshot and the leader.
    Catchup(catchup::Message),
    /// Would you follow me? Binds nobody.
    Elect {
        /// The sender's number for this attempt.
        round: u64,
        /// The sender's currentEpoch.
        current: u64,
        /// The epoch of its last entry.
        last_epoch: u64,
        /// The index of its last entry.
        last_index: u64,
    },
    /// CEPOCH, the answer to `Elect`: I would, for you have all that I have, and I have not heard a leader lately.
    /// Binds nobody.
    FollowerEpoch {
        /// The number of the attempt that this answers.
        round: u64,
        /// The sender's acceptedEpoch.
        accepted: u64,
    },
    /// NEWEPOCH: accept this epoch from me.
    NewEpoch {
        /// Above the acceptedEpoch of a majority.
        epoch: u64,
    },
    /// ACKEPOCH: I take part in no earlier epoch any more.
    AckEpoch {
        /// My acceptedEpoch.
        epoch: u64,
        /// I have accepted it from you, and not from another before.
        granted: bool,
        /// My currentEpoch.
        current: u64,
        /// The epoch of my last entry.
        last_epoch: u64,
        /// The index of my last entry.
        last_index: u64,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// DIFF, TRUNC and NEWLEADER: the history that the epoch begins with has these entries after one that the receiver
    /// may have. What it has behind that, and is not the same, goes. The last entry of that history is the epoch's
    /// first: it is NEWLEADER.
    Diff {
        /// The epoch of the leader.
        epoch: u64,
        /// The entry before `entries`.
        prev_index: u64,
        /// The epoch of that entry.
        prev_epoch: u64,
        /// In order; none in a probe.
        entries: Vec<Entry>,
        /// Committed up to here.
        committed: u64,
    },
    /// SNAP: what you need is no longer in my log, fetch a snapshot.
    Snap {
        /// The epoch of the leader.
        epoch: u64,
    },
    /// PROPOSE: entries of this epoch, behind one of it.
    Propose {
        /// The epoch of the leader and of the entries.
        epoch: u64,
        /// The entry before `entries`.
        prev_index: u64,
        /// In order; none in a probe.
        entries: Vec<Entry>,
        /// Committed up to here.
        committed: u64,
    },
    /// ACK: my log is yours up to here, durably. If that is an entry of your epoch, the epoch is my currentEpoch.
    Ack {
        /// My acceptedEpoch.
        epoch: u64,
        /// The last index that is the same.
        index: u64,
    },
    /// I do not have the entry before those that you have sent.
    Mismatch {
        /// My acceptedEpoch.
        epoch: u64,
        /// As it was asked.
        prev: u64,
        /// The last of mine that may be yours.
        index: u64,
        /// The epoch of that entry.
        index_epoch: u64,
    },
    /// COMMIT: committed up to here. The first of an epoch is UPTODATE.
    Commit {
        /// The epoch of the leader.
        epoch: u64,
        /// The last index that is committed.
        committed: u64,
    },
    /// PING: I lead. And as `Commit`.
    Ping {
        /// The epoch of the leader.
        epoch: u64,
        /// Committed up to here.
        committed: u64,
        /// When it was sent, by the leader's clock; to be repeated in the answer.
        sent: Time,
    },
    /// Answer to `Ping`, and to whoever says something of an epoch that is over.
    Pong {
        /// My acceptedEpoch.
        epoch: u64,
        /// The time in the ping that this answers.
        sent: Time,
        /// Up to here I know my log to be yours.
        verified: u64,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// I stop leading, and this one has all that I have proposed: it stands at once, and you follow it although you
    /// have heard me just now.
    HandOver {
        /// The epoch of the leader.
        epoch: u64,
        /// Who is to lead.
        to: NodeId,
    },
    /// Append an entry and tell me where: I execute reads that I have now when it is executed
    /// (`quorate_blocks::clients::batches`).
    Sync {
        /// The follower's own number for it.
        id: u64,
    },
    /// Answer to `Sync`: here. It is in the log of whoever says so, and of nobody else yet.
    SyncReply {
        /// The number of the question that this answers.
        id: u64,
        /// Where it was appended.
        index: u64,
        /// And in which epoch.
        appended: u64,
    },
    /// My disk was lost (`quorate_blocks::rejoin`), to all others: what have you accepted, and where does your history
    /// end?
    Rejoin {
        /// The sender's number for the question.
        nonce: u64,
    },
    /// Answer to `Rejoin`; and to itself: what is recorded is durable.
    RejoinReply {
        /// The number of the question that this answers.
        nonce: u64,
        /// My acceptedEpoch, or a later one that I have heard of.
        accepted: u64,
        /// My currentEpoch.
        current: u64,
        /// The epoch of my last entry.
        last_epoch: u64,
        /// The index of my last entry.
        last_index: u64,
    },
}

wire_enum!(Message {
    1 => Client(message),
    2 => Catchup(message),
    3 => Elect { round, current, last_epoch, last_index },
    4 => FollowerEpoch { round, accepted },
    5 => NewEpoch { epoch },
    6 => AckEpoch { epoch, granted, current, last_epoch, last_index, wall },
    7 => Diff { epoch, prev_index, prev_epoch, entries, committed },
    8 => Snap { epoch },
    9 => Propose { epoch, prev_index, entries, committed },
    10 => Ack { epoch, index },
    11 => Mismatch { epoch, prev, index, index_epoch },
    12 => Commit { epoch, committed },
    13 => Ping { epoch, committed, sent },
    14 => Pong { epoch, sent, verified, wall },
    15 => Sync { id },
    16 => SyncReply { id, index, appended },
    17 => HandOver { epoch, to },
    18 => Rejoin { nonce },
    19 => RejoinReply { nonce, accepted, current, last_epoch, last_index },
});

/// Epochs and indexes stay below this in any group that there will ever be; who adds to one does not overflow.
const NUMBERS: u64 = 1 << 56;

impl Message {
    /// The epoch, if only its leader says this.
    pub(super) fn leaders_epoch(&self) -> Option<u64> {
        match *self {
            Message::Diff { epoch, .. }
            | Message::Snap { epoch }
            | Message::Propose { epoch, .. }
            | Message::Commit { epoch, .. }
            | Message::HandOver { epoch, .. }
            | Message::Ping { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// Whether a correct member can have said this: its numbers are below [`NUMBERS`], the log begins behind an index 0
    /// of epoch 0, epochs never go back in it, and no entry is of an epoch to come.
    pub(super) fn is_possible(&self) -> bool {
        let small = |numbers: &[u64]| numbers.iter().all(|number| *number < NUMBERS);
        let whole = |entries: &[Entry]| entries.iter().all(|entry| entry.value.whole().is_some());
        match *self {
            Message::Elect { current, last_epoch, last_index, .. } => {
                small(&[current, last_epoch, last_index])
            }
            Message::FollowerEpoch { accepted, .. } => small(&[accepted]),
            Message::NewEpoch { epoch } | Message::Snap { epoch } | Message::HandOver { epoch, .. } => {
                small(&[epoch])
            }
            Message::AckEpoch { epoch, current, last_epoch, last_index, .. } => {
                small(&[epoch, current, last_epoch, last_index])
            }
            Message::Diff { epoch, prev_index, prev_epoch, ref entries, committed } => {
                small(&[epoch, prev_index, committed])
                    && (prev_index > 0 || prev_epoch == 0)
                    && prev_epoch <= epoch
                    && entries.iter().map(|entry| entry.term).is_sorted()
                    && entries.iter().all(|entry| (prev_epoch..=epoch).contains(&entry.term))
                    && whole(entries)
            }
            Message::Propose { epoch, prev_index, ref entries, committed } => {
                small(&[epoch, prev_index, committed])
                    && prev_index > 0
                    && entries.iter().all(|entry| entry.term == epoch)
                    && whole(entries)
            }
            Message::Ack { epoch, index } => small(&[epoch, index]),
            Message::Mismatch { epoch, prev, index, index_epoch } => {
                small(&[epoch, prev, index, index_epoch])
            }
            Message::Commit { epoch, committed } | Message::Ping { epoch, committed, .. } => {
                small(&[epoch, committed])
            }
            Message::Pong { epoch, verified, .. } => small(&[epoch, verified]),
            Message::SyncReply { index, appended, .. } => small(&[index, appended]),
            Message::RejoinReply { accepted, current, last_epoch, last_index, .. } => {
                small(&[accepted, current, last_epoch, last_index])
            }
            Message::Client(_) | Message::Catchup(_) | Message::Sync { .. } | Message::Rejoin { .. } => true,
        }
    }
}

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // The sender's own acceptedEpoch: after a crash it must not give the same epoch another history.
            Message::NewEpoch { .. } => Release::AfterSync,
            // acceptedEpoch, and the history that it tells of.
            Message::AckEpoch { .. } => Release::AfterSync,
            // The history, and behind it currentEpoch.
            Message::Ack { .. } => Release::AfterSync,
            // Shows only what a majority has on disk.
            Message::Client(_) | Message::Catchup(_) => Release::Now,
            // The leader's epoch is durable at a majority since its discovery; its entries count when its own `Ack`
            // says so, which waits for its disk.
            Message::Diff { .. }
            | Message::Snap { .. }
            | Message::Propose { .. }
            | Message::Commit { .. }
            | Message::Ping { .. } => Release::Now,
            // Bind nobody.
            Message::Elect { .. }
            | Message::FollowerEpoch { .. }
            | Message::Mismatch { .. }
            | Message::Pong { .. }
            | Message::HandOver { .. }
            | Message::Rejoin { .. }
            | Message::Sync { .. } => Release::Now,
            // To itself: what was recorded. To others it says only what those who ask have to wait for.
            Message::RejoinReply { .. } => Release::AfterSync,
            // The entry counts when it is committed, and no other can be of the same index and epoch: after a crash its
            // leader does not lead in that epoch again.
            Message::SyncReply { .. } => Release::Now,
        }
    }

    fn binds(&self) -> Option<u64> {
        match self {
            Message::NewEpoch { epoch } | Message::AckEpoch { epoch, .. } | Message::Ack { epoch, .. } => {
                Some(*epoch)
            }
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            Message::Catchup(message) => message.class(),
            Message::Diff { .. } | Message::Propose { .. } => Class::Write,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::Elect { .. } | Message::FollowerEpoch { .. } | Message::Pong { .. } => Arrival::AtOnce,
            _ => Arrival::Any,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Catchup(message) => message.kind(),
            other => other.variant(),
        }
    }
}

embed_clients!(Message);

/// What a replica must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// acceptedEpoch, and from whom it was accepted.
    Accepted {
        /// No part is taken in any earlier one.
        epoch: u64,
        /// Who has proposed it.
        from: NodeId,
    },
    /// currentEpoch. Everything before this record is the history that the epoch begins with, or its leader's behind
    /// that.
    Current(u64),
    /// An entry; what was at this index and behind it is gone.
    Entry {
        /// The index of the entry.
        index: u64,
        /// The entry, as its leader made it.
        entry: Entry,
    },
    /// Everything up to here is committed. Saves work after a restart; safety does not need it.
    Committed(u64),
    /// The state up to `index` came from the leader as a snapshot. It counts when it is on this disk
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
    /// The disk was lost, and this member votes again.
    Rejoined,
}
wire_enum!(Record {
    1 => Accepted { epoch, from },
    2 => Current(epoch),
    3 => Entry { index, entry },
    4 => Committed(index),
    5 => Installed { index, keep },
    6 => Resumed,
    7 => Rejoined,
});

embed_log!(Message, Record);
