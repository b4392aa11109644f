//! What EPaxos* replicas and proxies say, and what must be durable before they say it.

use bytes::Bytes;
use quorate_core::{Release, wire_enum, wire_struct};
use quorate_parts::ballot::Ballot;
use quorate_parts::graph::{Frontier, Instance, Interference};
use quorate_parts::{catchup, clients, embed_clients};

use super::instance::{Phase, State};

/// A message. Ballot zero is the first proposer's.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// A snapshot for a replica that is far behind.
    Catchup(catchup::Message),
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
        /// The batch, empty for a no-op; `None`: the one that you have pre-accepted.
        value: Option<Bytes>,
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
        /// As in `Accept`.
        value: Option<Bytes>,
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
        against: Vec<(Instance, bool)>,
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
    /// Tell me what is committed beyond this.
    Ask {
        /// All up to here are committed here.
        committed: Frontier,
    },
    /// Ends the answer to `Ask`.
    Answered {
        /// Whether it was cut short.
        more: bool,
    },
    /// How far I am; said again and again.
    Progress(Progress),
}

/// What a replica tells others about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All up to here are executed here.
    pub executed: Frontier,
    /// No longer here: whoever needs these takes a snapshot.
    pub collected: Frontier,
    /// All that I have proposed and that may still have to be recovered depends on these; and all that I will propose.
    pub floor: Frontier,
}
wire_struct!(Progress { executed, collected, floor });

/// What a replica knows of an instance.
#[derive(Clone, Debug)]
pub struct Vote {
    /// The ballot in which it voted (*abal*).
    pub voted: Ballot,
    /// How far it got here.
    pub phase: Phase,
    /// The batch, if known; empty for a no-op.
    pub value: Option<Bytes>,
    /// *dep*.
    pub deps: Frontier,
    /// *initDep*.
    pub init: Option<Frontier>,
}
wire_struct!(Vote { voted, phase, value, deps, init });

wire_enum!(Message {
    1 => Client(message),
    2 => Catchup(message),
    3 => PreAccept { instance, value, deps },
    4 => PreAcceptReply { instance, deps },
    5 => Accept { instance, ballot, value, deps },
    6 => AcceptReply { instance, ballot },
    7 => Commit { instance, value, deps },
    8 => Recover { instance, ballot },
    9 => RecoverReply { instance, ballot, vote },
    10 => Validate { instance, ballot, value, deps },
    11 => ValidateReply { instance, ballot, against },
    12 => Waiting { instance, count },
    13 => Reject { instance, ballot },
    14 => Ask { committed },
    15 => Progress(progress),
    16 => Answered { more },
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
            // Others forget what this one says to have executed.
            Message::Progress(_) => Release::AfterSync,
            // The ballot is durable since `Recover`; the first one's owner never proposes again after a restart.
            Message::Accept { .. } | Message::Validate { .. } => Release::Now,
            // Shows only what is executed, which was committed before.
            Message::Client(_) | Message::Catchup(_) => Release::Now,
            // Bind nobody.
            Message::Waiting { .. }
            | Message::Reject { .. }
            | Message::Ask { .. }
            | Message::Answered { .. } => Release::Now,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            Message::Catchup(message) => message.kind(),
            Message::PreAccept { .. } => "PreAccept",
            Message::PreAcceptReply { .. } => "PreAcceptReply",
            Message::Accept { .. } => "Accept",
            Message::AcceptReply { .. } => "AcceptReply",
            Message::Commit { .. } => "Commit",
            Message::Recover { .. } => "Recover",
            Message::RecoverReply { .. } => "RecoverReply",
            Message::Validate { .. } => "Validate",
            Message::ValidateReply { .. } => "ValidateReply",
            Message::Waiting { .. } => "Waiting",
            Message::Reject { .. } => "Reject",
            Message::Ask { .. } => "Ask",
            Message::Answered { .. } => "Answered",
            Message::Progress(_) => "Progress",
        }
    }
}

embed_clients!(Message);

/// What a replica must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An instance is like this now.
    Changed {
        /// Which.
        instance: Instance,
        /// How.
        state: State,
        /// The batch, if it was not recorded before.
        command: Option<Bytes>,
    },
    /// A snapshot came from a peer and is not on this disk.
    Installed,
    /// Where a snapshot was saved: what no instance tells.
    Saved {
        /// The index of the next own instance.
        next: u64,
        /// As in [`Progress`].
        collected: Frontier,
        /// As in [`Progress`].
        floor: Frontier,
        /// Collected without a trace: whether these interfere with anything is not known.
        forgotten: Frontier,
    },
    /// Collected, and may still matter to a recovery: this is what it touches.
    Settled {
        /// Which.
        instance: Instance,
        /// The keys and sessions.
        touched: Interference,
    },
}
wire_enum!(Record {
    1 => Changed { instance, state, command },
    2 => Installed,
    3 => Saved { next, collected, floor, forgotten },
    4 => Settled { instance, touched },
});
