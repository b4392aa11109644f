//! What machines say about themselves, for checkers, traces and metrics. A fact never influences behaviour.
//!
//! The words are those that the checkers need of any protocol of a kind: slots, numbers (ballot, term, view) and
//! leases; the log of entries and terms, and the read gate, of a protocol with a prefix log; the order of a chain;
//! instances of one without an order.

use crate::id::{NodeId, NodeSet};
use crate::time::Time;

/// An end that a process knows by one of its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// On its monotonic clock: before this.
    Clock(Time),
    /// As long as the latest end of its interval of true time is at most this.
    Latest(u64),
}

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
    /// When the records so far are durable, this much of a slot's value is so here: a vote, or a decision. Stated again
    /// at every start, of what is there.
    Stored {
        /// The slot or log index.
        slot: u64,
        /// Digest of the whole value.
        digest: u64,
        /// Which shards of it, by number; all bits: it is whole.
        shards: u16,
        /// So many shards restore it; 1 if it is whole.
        data: u8,
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
        /// The ballot, term or view, as a word that grows with it.
        number: u64,
    },
    /// As a replica that has led: leads no longer, under any number.
    Follows,
    /// As a grantor: promised `to` not to support another until then.
    Promised {
        /// The replica that the promise is made to.
        to: NodeId,
        /// The ballot, term or view for which it counts.
        number: u64,
        /// The end of the promise on this process's clock; the present when it was given back.
        until: Time,
    },
    /// As a grantee: believes in `from`'s promise until then.
    Believes {
        /// The replica that has made the promise.
        from: NodeId,
        /// The ballot, term or view for which it counts.
        number: u64,
        /// The end of the belief on this process's clock; the present when it was given up.
        until: Time,
    },
    /// Would answer reads from its own state until then, unless it says otherwise before.
    ReadsLocally {
        /// The ballot, term or view for which it counts.
        number: u64,
        /// The end on this process's clock; the present when it stopped.
        until: Time,
    },
    /// An entry is in this process's log: appended, or there when it started.
    Appended {
        /// Its place in the log, from 1.
        index: u64,
        /// The term in which it was proposed.
        term: u64,
        /// Digest of its value.
        digest: u64,
        /// Whether a client's write is in it.
        writes: bool,
    },
    /// The log begins after this entry: what was there before, if anything differs, is gone. Stated at every start,
    /// before the entries that follow, and when a snapshot was installed.
    Begins {
        /// The last index that is not in the log.
        index: u64,
        /// The term in which it was proposed.
        term: u64,
    },
    /// The entries of the log from this index on are gone.
    Truncated {
        /// The first index that is gone.
        index: u64,
    },
    /// As the leader of this term: everything up to this index is committed.
    Commits {
        /// The term of this leader.
        term: u64,
        /// The last index that is committed.
        index: u64,
    },
    /// These are in force here, from the configuration at this index of the log.
    Configured {
        /// Where it is written; 0 for the initial one.
        index: u64,
        /// The nodes of which a majority decides.
        voters: NodeSet,
        /// Whose majority counts too, while the group changes from them; else empty.
        outgoing: NodeSet,
    },
    /// The members of a chain, which pass entries on in this order. Stated when it is known, after every start too.
    Chain {
        /// Of this epoch, as a number.
        number: u64,
        /// From the head to the tail.
        members: Vec<NodeId>,
    },
    /// As the leader of this term: would answer a read from the state after `index`, alone, until then, unless it
    /// says otherwise before; but no read that an entry above `index` up to `limbo` could change.
    ReadGate {
        /// The term of this leader.
        term: u64,
        /// The last executed entry.
        index: u64,
        /// The last entry of the limbo region; `index` if there is none.
        limbo: u64,
        /// The end; `None`: it is closed.
        until: Option<Until>,
    },
    /// As the leader of this term: has just let a read pass its gate.
    PassesGate {
        /// The term of this leader.
        term: u64,
    },
    /// This instance is decided (protocols that order only what interferes): its value, by digest, and what it depends
    /// on.
    Decided {
        /// The instance, as a word: its owner and its index.
        slot: u64,
        /// Digest of the value.
        digest: u64,
        /// Per owner, up to which index it depends on its instances.
        deps: Vec<u64>,
    },
    /// The state machine has executed an instance that writes these keys, by digest.
    Ordered {
        /// The instance, as a word: its owner and its index.
        slot: u64,
        /// Digests of the keys that it writes.
        writes: Vec<u64>,
    },
    /// Is live in this epoch: a write needs its acknowledgement (protocols in which each key has its own history).
    /// Stated when it is known, after every start too.
    Live {
        /// Of the epoch, as a number.
        number: u64,
        /// Whether it has everything that was committed before, and may answer reads.
        whole: bool,
    },
    /// The last version of this key here is committed, as far as the process knows. Stated again at every start.
    Valid {
        /// Digest of the key.
        key: u64,
        /// The epoch that the process is in, as a number.
        epoch: u64,
        /// Digest of the version's number.
        version: u64,
        /// Digest of the value.
        digest: u64,
    },
    /// The last version of this key here is not known to be committed: reads of it wait.
    Invalid {
        /// Digest of the key.
        key: u64,
    },
    /// Has just answered a read from its own state alone.
    ServesLocally {
        /// The ballot, term or view for which it counts.
        number: u64,
    },
}
