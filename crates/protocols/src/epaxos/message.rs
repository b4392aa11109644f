//! What EPaxos* replicas and proxies say, and what must be durable before they say it.

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_blocks::{clients, embed_clients};
use quorate_core::{Arrival, Class, Release, wire_enum};

use crate::epaxos::graph::{LARGE_BATCH, Vote, learner};

/// A value on its way: the batch, empty for a no-op; `None`: the batch that the receiver has.
pub type Value = Option<Bytes>;
/// Instances that interfere with one and do not know of it, and whether they are committed.
pub type Against = Vec<(Instance, bool)>;

/// A message. Ballot zero is the first proposer's.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// How far replicas are, and what one that is behind misses.
    Learner(learner::Message),
    /// The first proposal of an instance, by its owner.
    PreAccept {
        /// Which.
        instance: Instance,
        /// The batch.
        value: Bytes,
        /// What the owner knows to interfere with it (*initDep*).
        deps: Frontier,
    },
    /// Answer to `PreAccept`.
    PreAcceptReply {
        /// Which.
        instance: Instance,
        /// Those and what the replier knows to interfere.
        deps: Frontier,
    },
    /// Vote for this.
    Accept {
        /// Which.
        instance: Instance,
        /// Of the proposer.
        ballot: Ballot,
        /// What to vote for.
        value: Value,
        /// What it depends on.
        deps: Frontier,
    },
    /// Answer to `Accept`: I have voted.
    AcceptReply {
        /// Which.
        instance: Instance,
        /// Of the proposer.
        ballot: Ballot,
    },
    /// This is decided.
    Commit {
        /// Which.
        instance: Instance,
        /// As what.
        value: Value,
        /// What it depends on.
        deps: Frontier,
    },
    /// Join my ballot, and tell what you know of this instance.
    Recover {
        /// Which.
        instance: Instance,
        /// Of the one who recovers it.
        ballot: Ballot,
    },
    /// Answer to `Recover`: I take part in no lower ballot any more.
    RecoverReply {
        /// Which.
        instance: Instance,
        /// That was joined.
        ballot: Ballot,
        /// What I know of it.
        vote: Vote,
    },
    /// May this have been committed on the fast path, as far as you know?
    Validate {
        /// Which.
        instance: Instance,
        /// Of the one who recovers it.
        ballot: Ballot,
        /// The batch.
        value: Bytes,
        /// What its owner knew to interfere.
        deps: Frontier,
    },
    /// Answer to `Validate`.
    ValidateReply {
        /// Which.
        instance: Instance,
        /// Of the one who recovers it.
        ballot: Ballot,
        /// Instances that interfere and do not know of this one; and whether they are committed.
        against: Against,
        /// Of some of these the replier has forgotten whether they interfere.
        forgotten: Frontier,
    },
    /// My recovery of this instance waits for others; so many had pre-accepted it as its owner proposed it.
    Waiting {
        /// Which.
        instance: Instance,
        /// How many (*|R|*).
        count: u64,
    },
    /// I have joined a higher ballot.
    Reject {
        /// Which.
        instance: Instance,
        /// That one.
        ballot: Ballot,
    },
}

wire_enum!(Message {
    1 => Client(message),
    2 => Learner(message),
    3 => PreAccept { instance, value, deps },
    4 => PreAcceptReply { instance, deps },
    5 => Accept { instance, ballot, value, deps },
    6 => AcceptReply { instance, ballot },
    7 => Commit { instance, value, deps },
    8 => Recover { instance, ballot },
    9 => RecoverReply { instance, ballot, vote },
    10 => Validate { instance, ballot, value, deps },
    11 => ValidateReply { instance, ballot, against, forgotten },
    12 => Waiting { instance, count },
    13 => Reject { instance, ballot },
});

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // The owner's own: a restarted owner must not give the index to another batch.
            Message::PreAccept { .. } => Release::AfterSync,
            // The votes and promises.
            Message::PreAcceptReply { .. }
            | Message::AcceptReply { .. }
            | Message::RecoverReply { .. }
            | Message::ValidateReply { .. } => Release::AfterSync,
            // The ballot: a restarted proposer must take a fresh one.
            Message::Recover { .. } => Release::AfterSync,
            // On the fast path nobody else knows of the decision: recovery would take a no-op once the owner has
            // forgotten it. The owner executes it, and answers, when this comes back to itself.
            Message::Commit { .. } => Release::AfterSync,
            // The ballot is durable since `Recover`; the first one's owner never proposes again after a restart.
            Message::Accept { .. } | Message::Validate { .. } => Release::Now,
            // Shows only what is executed, which was committed before.
            Message::Client(_) => Release::Now,
            // It names a promise. One whose disk hangs makes promises that never count: they must not stop others.
            Message::Reject { .. } => Release::AfterSync,
            // Binds nobody.
            Message::Waiting { .. } => Release::Now,
            Message::Learner(message) => message.release(),
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            Message::Learner(message) => message.class(),
            Message::PreAccept { .. } | Message::Accept { .. } | Message::Commit { .. } => Class::Write,
            // A recovery that brings much.
            other if other.batch().is_some_and(|batch| batch.len() >= LARGE_BATCH) => Class::Write,
            _ => Class::Urgent,
        }
    }

    fn arrival(&self) -> Arrival {
        match self {
            Message::Learner(message) => message.arrival(),
            Message::Reject { .. } => Arrival::Hint,
            Message::Client(_)
            | Message::PreAccept { .. }
            | Message::PreAcceptReply { .. }
            | Message::Accept { .. }
            | Message::AcceptReply { .. }
            | Message::Commit { .. }
            | Message::Recover { .. }
            | Message::RecoverReply { .. }
            | Message::Validate { .. }
            | Message::ValidateReply { .. }
            | Message::Waiting { .. } => Arrival::Any,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Learner(message) => message.kind(),
            other => other.variant(),
        }
    }
}

impl Message {
    /// The batch that it carries.
    pub fn batch(&self) -> Option<&Bytes> {
        match self {
            Message::PreAccept { value, .. } | Message::Validate { value, .. } => Some(value),
            Message::Accept { value, .. } | Message::Commit { value, .. } => value.as_ref(),
            Message::RecoverReply { vote, .. } => vote.value.as_ref(),
            _ => None,
        }
    }
}

embed_clients!(Message);

impl From<learner::Message> for Message {
    fn from(message: learner::Message) -> Self {
        Message::Learner(message)
    }
}
