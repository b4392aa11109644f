//! What learners tell each other, and what they must remember.

use bytes::Bytes;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_blocks::walls::ClockRequest;
use quorate_blocks::{catchup, clients};
use quorate_core::{Arrival, Class, Machine, Release, Wall, wire_enum, wire_struct};

use crate::epaxos::graph::conflicts::{Totals, Trace};
use crate::epaxos::graph::instance_state::State;

/// Between a learner that is behind and one that is not.
#[derive(Clone, Debug)]
pub enum Message {
    /// Tell me what is committed beyond this.
    Ask {
        /// All up to here are committed here.
        committed: Frontier,
    },
    /// Ends the answer to `Ask`, which is the protocol's commits.
    Answered {
        /// Whether it was cut short.
        more: bool,
    },
    /// How far I am; said again and again.
    Progress(Progress),
    /// A snapshot for a replica that is far behind.
    Catchup(catchup::Message),
    /// My disk was lost: which instances have you heard of? Look after those of the union, too.
    Rejoin {
        /// Drawn at the start of this life of the replica: answers to an earlier life do not count.
        life: u64,
        /// What those have heard of who have answered.
        union: Frontier,
    },
    /// Answers `Rejoin`: the instances that the sender knows of.
    RejoinReply {
        /// The one that has asked, as its `Rejoin` said.
        life: u64,
        /// Every instance that I have heard of is in it.
        known: Frontier,
    },
    /// What does your wall clock show? It bounds the times that I propose (`quorate_blocks::walls`).
    ClockRequest(ClockRequest),
    /// Answers `ClockRequest`: how the sender's wall clock stands.
    ClockReply {
        /// The one that this answers, so that the asker knows when it was asked.
        request: ClockRequest,
        /// The sender's wall clock.
        wall: Wall,
    },
}
wire_enum!(Message {
    1 => Ask { committed },
    2 => Answered { more },
    3 => Progress(progress),
    4 => Catchup(message),
    5 => Rejoin { life, union },
    6 => RejoinReply { life, known },
    7 => ClockRequest(request),
    8 => ClockReply { request, wall },
});

impl Message {
    /// What must be durable before it leaves.
    pub fn release(&self) -> Release {
        match self {
            // Others forget what this one says to have executed.
            Message::Progress(_) => Release::AfterSync,
            // Show only what is executed, or bind nobody.
            Message::Catchup(_) | Message::Ask { .. } | Message::Answered { .. } => Release::Now,
            // It names own instances. Others decide those that nobody knows, as no-ops, and an owner that has forgotten
            // one in a crash would give its index to another batch.
            Message::RejoinReply { .. } => Release::AfterSync,
            // Repeats what others have made durable.
            Message::Rejoin { .. } => Release::Now,
            // Bind nobody.
            Message::ClockRequest(_) | Message::ClockReply { .. } => Release::Now,
        }
    }

    /// Whether it may wait for what is urgent.
    pub fn class(&self) -> Class {
        match self {
            Message::Catchup(message) => message.class(),
            // Behind the decisions that it ends.
            Message::Answered { .. } => Class::Write,
            _ => Class::Urgent,
        }
    }

    /// When it arrives in an exploration: how far replicas are only matters to what they forget, and their clocks to
    /// the times in batches.
    pub fn arrival(&self) -> Arrival {
        match self {
            Message::Progress(_) | Message::ClockRequest(_) | Message::ClockReply { .. } => Arrival::AtOnce,
            Message::Ask { .. }
            | Message::Answered { .. }
            | Message::Catchup(_)
            | Message::Rejoin { .. }
            | Message::RejoinReply { .. } => Arrival::Any,
        }
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Catchup(message) => message.kind(),
            other => other.variant(),
        }
    }
}

/// What a replica tells others about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// All up to here are executed here. Nothing, as long as the sender rejoins: its earlier lives may have said more.
    pub executed: Frontier,
    /// No longer here: whoever needs these takes a snapshot.
    pub collected: Frontier,
    /// All that I have proposed and that may still have to be recovered depends on these; and all that I will propose.
    /// I have executed them.
    pub floor: Frontier,
    /// From now on I pre-accept an instance that is not in `heard` only with these among its dependencies (see
    /// `forgetting.rs`). I have executed them.
    pub barrier: Frontier,
    /// Every instance that I have pre-accepted until now is in it.
    pub heard: Frontier,
}
wire_struct!(Progress { executed, collected, floor, barrier, heard });

impl Progress {
    /// What two of them say together: none takes back what another has said.
    pub fn union(&self, other: &Progress) -> Progress {
        Progress {
            executed: self.executed.union(&other.executed),
            collected: self.collected.union(&other.collected),
            floor: self.floor.union(&other.floor),
            barrier: self.barrier.union(&other.barrier),
            heard: self.heard.union(&other.heard),
        }
    }
}

/// What a replica must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "few records are the large one, and none is kept in memory")]
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
        /// Instances whose batches are gone here ([`Progress::collected`]).
        collected: Frontier,
        /// What all unfinished or future instances of this replica depend on ([`Progress::floor`]).
        floor: Frontier,
    },
    /// The disk was lost: this replica takes no part until it is whole.
    Rejoining,
    /// The replica has executed all that it had to learn, and takes part from now on.
    Rejoined {
        /// Own instances up to this index are those of an earlier disk.
        last: u64,
    },
    /// What collected instances touch that may still matter to a recovery, or a part of it.
    Settled {
        /// Apart from single keys and sessions.
        totals: Totals,
        /// Some keys and sessions.
        traces: Vec<Trace>,
    },
}
wire_enum!(Record {
    1 => Changed { instance, state, command },
    2 => Installed,
    3 => Saved { next, collected, floor },
    4 => Settled { totals, traces },
    5 => Rejoining,
    6 => Rejoined { last },
});

/// The machine that a learner is part of.
pub trait Host: Machine<Record = Record, Message: From<Message> + From<clients::Message>> {
    /// How it says that an instance is decided. An empty value is a no-op; `None`: the batch that is known.
    fn commit(instance: Instance, value: Option<Bytes>, deps: Frontier) -> Self::Message;
}
