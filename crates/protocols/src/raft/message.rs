//! What Raft's replicas and proxies say, and what must be durable before they say it.

use bytes::Bytes;
use quorate_blocks::prefix_log::Entry;
use quorate_blocks::{catchup, clients, embed_clients, embed_log};
use quorate_core::{Arrival, Class, Release, Wall, wire_enum};

/// A message. `term` is the sender's, unless it says otherwise; numbers are indexes of the log.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// Between a replica that fetches a snapshot and the leader.
    Catchup(catchup::Message),
    /// Would you vote for me? Binds nobody (thesis §9.6).
    PreVote {
        /// That I would stand in.
        term: u64,
        /// My last entry's index.
        last_index: u64,
        /// The term of my last entry.
        last_term: u64,
    },
    /// Answer to `PreVote`.
    PreVoteReply {
        /// The term that the question named.
        term: u64,
        /// Yes: your log is as good as mine, and I have not heard a leader lately.
        granted: bool,
        /// The term that I am in.
        current: u64,
    },
    /// Vote for me (RequestVote).
    Vote {
        /// That I stand in.
        term: u64,
        /// My last entry's index.
        last_index: u64,
        /// The term of my last entry.
        last_term: u64,
        /// The leader itself has asked me to stand: having heard it lately is no reason to refuse.
        transfer: bool,
    },
    /// Answer to `Vote`.
    VoteReply {
        /// That I am in.
        term: u64,
        /// You have my vote in it.
        granted: bool,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// Entries that follow one which the receiver may have (AppendEntries).
    Append {
        /// The term of the leader.
        term: u64,
        /// The entry before `entries`.
        prev_index: u64,
        /// The term of that entry.
        prev_term: u64,
        /// In order; none in a probe.
        entries: Vec<Entry>,
        /// Committed up to here.
        committed: u64,
    },
    /// My log is yours up to here, durably.
    AppendReply {
        /// That I am in.
        term: u64,
        /// The last index that is the same, and durable.
        matched: u64,
    },
    /// As `AppendReply`, of a log that has values in shards.
    PartialReply {
        /// That I am in.
        term: u64,
        /// The last index that is the same, and durable.
        matched: u64,
        /// In these ranges of indexes I have shards of values only, or did not look.
        partial: Vec<(u64, u64)>,
    },
    /// I do not have the entry at `prev`.
    Mismatch {
        /// That I am in.
        term: u64,
        /// As it was asked.
        prev: u64,
        /// The last of mine that may be yours.
        index: u64,
        /// The term of that entry.
        index_term: u64,
    },
    /// What you need is no longer in my log: fetch a snapshot.
    Behind {
        /// The term of the leader.
        term: u64,
        /// Committed up to here.
        committed: u64,
    },
    /// I lead; do you agree? And as `Committed`.
    Heartbeat {
        /// The term of the leader.
        term: u64,
        /// Committed up to here.
        committed: u64,
        /// To be repeated in the answer.
        round: u64,
    },
    /// Answer to `Heartbeat`.
    HeartbeatReply {
        /// That I am in.
        term: u64,
        /// The `round` of the heartbeat that this answers.
        round: u64,
        /// Up to here I know my log to be yours.
        verified: u64,
        /// The sender's wall clock, which bounds the times that others propose (`quorate_blocks::walls`).
        wall: Wall,
    },
    /// Committed up to here, soon after it became so.
    Committed {
        /// The term of the leader.
        term: u64,
        /// The last index that is committed.
        committed: u64,
    },
    /// I stop leading: stand at once.
    TimeoutNow {
        /// The term of the leader.
        term: u64,
        /// Committed up to here: a successor that knows it need not wait for the lease that was given up.
        committed: u64,
    },
    /// At which index may I answer reads that I have now? (Follower to leader.)
    ReadIndex {
        /// The follower's own number for it.
        id: u64,
    },
    /// Answer to `ReadIndex`.
    ReadIndexReply {
        /// The number of the question that this answers.
        id: u64,
        /// The commit index.
        index: u64,
    },
    /// Append an entry and tell me where: I execute reads that I have now when it is executed
    /// (`quorate_blocks::clients::batches`).
    Sync {
        /// The follower's own number for it.
        id: u64,
    },
    /// I am elected, and have entries from this one on in shards: what do you have of them?
    Gather {
        /// That I was elected in.
        term: u64,
        /// The index of the first entry.
        first: u64,
    },
    /// Answer to `Gather`: these, as far as they fit into a message.
    Shards {
        /// That I am in.
        term: u64,
        /// The index of the first.
        first: u64,
        /// In order, with values that are whole or in shards.
        entries: Vec<Entry>,
        /// The last index of the log of who answers.
        last: u64,
        /// My state has everything up to this index.
        base: u64,
    },
    /// Answer to `Sync`: here. It is in the log of whoever says so, and of nobody else yet.
    SyncReply {
        /// The number of the question that this answers.
        id: u64,
        /// Where it was appended.
        index: u64,
        /// And in which term.
        appended: u64,
    },
}

wire_enum!(Message {
    1 => Client(message),
    2 => Catchup(message),
    3 => PreVote { term, last_index, last_term },
    4 => PreVoteReply { term, granted, current },
    5 => Vote { term, last_index, last_term, transfer },
    6 => VoteReply { term, granted, wall },
    7 => Append { term, prev_index, prev_term, entries, committed },
    8 => AppendReply { term, matched },
    9 => Mismatch { term, prev, index, index_term },
    10 => Behind { term, committed },
    11 => Heartbeat { term, committed, round },
    12 => HeartbeatReply { term, round, verified, wall },
    13 => Committed { term, committed },
    14 => TimeoutNow { term, committed },
    15 => ReadIndex { id },
    16 => ReadIndexReply { id, index },
    17 => Sync { id },
    18 => SyncReply { id, index, appended },
    19 => PartialReply { term, matched, partial },
    20 => Gather { term, first },
    21 => Shards { term, first, entries, last, base },
});

/// Terms and indexes stay below this in any group that there will ever be; who adds to one does not overflow.
const NUMBERS: u64 = 1 << 56;

impl Message {
    /// The term that its sender is in, if it says one.
    pub(super) fn term(&self) -> Option<u64> {
        match *self {
            Message::Vote { term, .. }
            | Message::VoteReply { term, .. }
            | Message::Append { term, .. }
            | Message::AppendReply { term, .. }
            | Message::PartialReply { term, .. }
            | Message::Mismatch { term, .. }
            | Message::Gather { term, .. }
            | Message::Shards { term, .. }
            | Message::Behind { term, .. }
            | Message::Heartbeat { term, .. }
            | Message::HeartbeatReply { term, .. }
            | Message::Committed { term, .. }
            | Message::TimeoutNow { term, .. } => Some(term),
            Message::PreVoteReply { current, .. } => Some(current),
            Message::PreVote { .. }
            | Message::Client(_)
            | Message::Catchup(_)
            | Message::ReadIndex { .. }
            | Message::ReadIndexReply { .. }
            | Message::Sync { .. }
            | Message::SyncReply { .. } => None,
        }
    }

    /// Whether a correct member can have said this: its numbers are below [`NUMBERS`], the log begins behind an index 0
    /// of term 0, terms never go back in it, and no entry is of a term to come.
    pub(super) fn is_possible(&self) -> bool {
        let small = |numbers: &[u64]| numbers.iter().all(|number| *number < NUMBERS);
        match *self {
            Message::PreVote { term, last_index, last_term }
            | Message::Vote { term, last_index, last_term, .. } => small(&[term, last_index, last_term]),
            Message::PreVoteReply { term, current, .. } => small(&[term, current]),
            Message::VoteReply { term, .. } => small(&[term]),
            Message::Append { term, prev_index, prev_term, ref entries, committed } => {
                small(&[term, prev_index, committed])
                    && (prev_index > 0 || prev_term == 0)
                    && entries.iter().map(|entry| entry.term).is_sorted()
                    && entries.iter().all(|entry| (prev_term..=term).contains(&entry.term))
            }
            Message::AppendReply { term, matched } => small(&[term, matched]),
            Message::PartialReply { term, matched, ref partial } => {
                small(&[term, matched]) && partial.iter().flat_map(|&(first, last)| [first, last]).is_sorted()
            }
            Message::Gather { term, first } => small(&[term, first]),
            Message::Shards { term, first, ref entries, last, base } => {
                small(&[term, first, last, base]) && entries.iter().all(|entry| entry.term <= term)
            }
            Message::Mismatch { term, prev, index, index_term } => small(&[term, prev, index, index_term]),
            Message::Behind { term, committed }
            | Message::Heartbeat { term, committed, .. }
            | Message::Committed { term, committed }
            | Message::TimeoutNow { term, committed } => small(&[term, committed]),
            Message::HeartbeatReply { term, verified, .. } => small(&[term, verified]),
            Message::ReadIndexReply { index, .. } => small(&[index]),
            Message::SyncReply { index, appended, .. } => small(&[index, appended]),
            Message::Client(_) | Message::Catchup(_) | Message::ReadIndex { .. } | Message::Sync { .. } => {
                true
            }
        }
    }

    /// Whether only the leader of its term says this.
    pub(super) fn is_leaders(&self) -> bool {
        matches!(
            self,
            Message::Append { .. }
                | Message::Gather { .. }
                | Message::Behind { .. }
                | Message::Heartbeat { .. }
                | Message::Committed { .. }
                | Message::TimeoutNow { .. }
        )
    }
}

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // The candidate's own term and vote: after a crash it must not stand in that term again with another log.
            Message::Vote { .. } => Release::AfterSync,
            // Term and vote.
            Message::VoteReply { .. } => Release::AfterSync,
            // The entries.
            Message::AppendReply { .. } | Message::PartialReply { .. } => Release::AfterSync,
            // The term: whoever says that it lacks an entry must not accept it of an earlier leader after a crash.
            Message::Shards { .. } => Release::AfterSync,
            // Shows only what a majority has on disk.
            Message::Client(_) | Message::Catchup(_) => Release::Now,
            // The leader's term is durable at a majority since it was elected; its entries count when its own
            // `AppendReply` says so, which waits for its disk.
            Message::Append { .. }
            | Message::Behind { .. }
            | Message::Heartbeat { .. }
            | Message::Committed { .. }
            | Message::TimeoutNow { .. } => Release::Now,
            // "Nobody else leads as far as I know": whoever forgets the term in a crash cannot make another leader in
            // it, for its majority has voted already. After a restart it refuses votes for a while.
            Message::HeartbeatReply { .. } => Release::Now,
            // Bind nobody.
            Message::PreVote { .. }
            | Message::PreVoteReply { .. }
            | Message::Mismatch { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexReply { .. }
            | Message::Gather { .. }
            | Message::Sync { .. } => Release::Now,
            // The entry counts when it is committed, and no other can be of the same index and term: after a crash its
            // leader does not lead in that term again.
            Message::SyncReply { .. } => Release::Now,
        }
    }

    fn binds(&self) -> Option<u64> {
        match self {
            Message::Vote { term, .. }
            | Message::VoteReply { term, .. }
            | Message::AppendReply { term, .. }
            | Message::PartialReply { term, .. }
            | Message::Shards { term, .. } => Some(*term),
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            Message::Catchup(message) => message.class(),
            Message::Append { .. } => Class::Write,
            Message::Shards { .. } => Class::Bulk,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::PreVote { .. } | Message::PreVoteReply { .. } | Message::HeartbeatReply { .. } => {
                Arrival::AtOnce
            }
            Message::Client(_)
            | Message::Vote { .. }
            | Message::VoteReply { .. }
            | Message::Append { .. }
            | Message::AppendReply { .. }
            | Message::PartialReply { .. }
            | Message::Gather { .. }
            | Message::Shards { .. }
            | Message::Mismatch { .. }
            | Message::Behind { .. }
            | Message::Heartbeat { .. }
            | Message::Committed { .. }
            | Message::ReadIndex { .. }
            | Message::ReadIndexReply { .. }
            | Message::Sync { .. }
            | Message::SyncReply { .. }
            | Message::TimeoutNow { .. }
            | Message::Catchup(_) => Arrival::Any,
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
    /// The term, and for whom it has voted in it, if for anyone.
    Term {
        /// The latest term that this replica has seen.
        term: u64,
        /// The candidate that has its vote in this term.
        voted: Option<quorate_core::NodeId>,
    },
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
    /// The value of an entry, of which there were shards only. Nothing behind it is gone.
    Whole {
        /// The index of the entry.
        index: u64,
        /// All of it.
        value: Bytes,
    },
    /// Started again without a state that had been received: what was recorded since then never counted, what follows
    /// does.
    Resumed,
}
wire_enum!(Record {
    1 => Term { term, voted },
    2 => Entry { index, entry },
    3 => Committed(index),
    4 => Installed { index, keep },
    5 => Resumed,
    6 => Whole { index, value },
});

embed_log!(Message, Record);
