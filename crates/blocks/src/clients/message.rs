//! What a proxy and a leader say to each other.

use bytes::Bytes;
use quorate_core::link::FRAME;
use quorate_core::{Class, Members, NodeId, NodeSet, Payload, ProcessId, Staleness, wire_enum, wire_struct};

use super::PendingRead;

/// The client conversation; protocols embed it in their own messages.
///
/// `nonce` is drawn by each incarnation of a proxy: an answer to an earlier one is recognised and dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Proxy → replica: do this.
    Ask(Ask),
    /// Replica → proxy: done. Each pair is a number from an [`Ask`] and the encoded reply.
    Answer {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// The session that the writes belong to: a late answer to an earlier one must not be taken for an answer to
        /// the same number of this one.
        session: u64,
        /// What the leader has executed, these writes included.
        applied: u64,
        /// Replies to writes, by their number in the session.
        writes: Vec<(u64, Payload)>,
        /// Where the writes were executed: a slot, and how many of `writes` from the last one on; slot 0 if nobody
        /// remembers. For people who ask why a request was slow, and no more: a proxy trusts no count in it.
        slots: Vec<(u64, u64)>,
        /// Replies to reads, by the id the proxy gave them.
        reads: Vec<(u64, Payload)>,
    },
    /// Replica → proxy: the session is open.
    Opened {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// The session's number, unique in the life of the group.
        session: u64,
    },
    /// Replica → proxy: no such session exists (any more).
    Expired {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// The session that was asked for.
        session: u64,
    },
    /// Replica → proxy: I do not lead; try this one, if any.
    Leader {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// Who leads, as far as the replica knows.
        leader: Option<NodeId>,
    },
    /// Replica → proxy: I cannot answer these reads; ask whoever leads.
    Refused {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// The ids that the proxy gave them.
        reads: Vec<u64>,
        /// Who leads, as far as the replica knows.
        leader: Option<NodeId>,
    },
    /// Proxy → replica: what do you know of these reads? Whether you lead or not.
    Query {
        /// Of this incarnation of the proxy.
        nonce: u64,
        /// Id, and encoded command.
        reads: Vec<(u64, Bytes)>,
    },
    /// Replica → proxy: this.
    Seen {
        /// The nonce of the query that this answers.
        nonce: u64,
        /// Who decides, by the configuration that this replica has executed.
        voters: NodeSet,
        /// While the group changes: of whom a majority must agree too. Else empty.
        outgoing: NodeSet,
        /// Each read's id, and what is known of it.
        reads: Vec<(u64, ReadObservation)>,
    },
    /// Proxy → the replica of its node: answer these reads; behind them I send the write of this number in my session
    /// for the first time ([`batches`](super::batches)).
    AskBehind {
        /// The reads; nothing else.
        ask: Ask,
        /// The write's number in the session of `ask`.
        write: u64,
    },
    /// Replica → proxy: ask this replica for reads. Of protocols in which one replica answers them that does not order
    /// writes.
    Reader {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// Who answers reads, as far as the replica knows.
        reader: NodeId,
    },
    /// Proxy → replica: answer these reads from your state as it is, whoever leads, once it has executed everything up
    /// to this slot: their clients have seen that much ([`local`](super::local)).
    AskAfter {
        /// The reads; nothing else.
        ask: Ask,
        /// The last slot whose effects the client has seen; 0: none.
        slot: u64,
    },
    /// Replica → proxy: the group is not what you think it is.
    Members {
        /// The nonce of the ask that this answers.
        nonce: u64,
        /// The group, by the last configuration that the replica has executed.
        members: Members,
    },
}

/// What one replica can say of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadObservation {
    /// It has executed everything up to this slot.
    pub applied: u64,
    /// The last slot behind that it has voted in for a value that writes what is read; 0: none.
    pub accepted: u64,
    /// The encoded reply after `applied`, if there is none such and no clock has a say in it.
    pub reply: Option<Bytes>,
}

/// A proxy's requests to the replica that it takes for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Of this incarnation of the proxy.
    pub nonce: u64,
    /// Its session; 0 if it has none yet, and then there are no writes.
    pub session: u64,
    /// Whether it wants a session to be opened.
    pub open: bool,
    /// Writes below this number are answered: their replies need not be kept.
    pub low: u64,
    /// Number in the session, and encoded command or [part](crate::parts) of one (empty: takes the number and does
    /// nothing).
    pub writes: Vec<(u64, Bytes)>,
    /// Id, and encoded command.
    pub reads: Vec<(u64, Bytes)>,
    /// Of reads that need not be linearizable: id, in the order of `reads`, and what they may miss.
    pub bounds: Vec<(u64, Staleness)>,
    /// Id (from the same row as those of reads), and encoded [`Manage`](quorate_core::Manage). They are answered like
    /// reads.
    pub manage: Vec<(u64, Bytes)>,
    /// The version of the group that the proxy knows.
    pub version: u64,
}

impl Ask {
    /// Whether it only wants to know who leads.
    pub fn is_probe(&self) -> bool {
        !self.open && self.writes.is_empty() && self.reads.is_empty() && self.manage.is_empty()
    }

    /// Takes the reads of this proxy out.
    pub(super) fn take_reads(&mut self, proxy: ProcessId) -> impl Iterator<Item = PendingRead> + use<> {
        let nonce = self.nonce;
        let reads = std::mem::take(&mut self.reads).into_iter();
        reads.map(move |(id, command)| PendingRead { proxy, nonce, id, command })
    }
}

wire_struct!(ReadObservation { applied, accepted, reply });
wire_struct!(Ask { nonce, session, open, low, writes, reads, bounds, manage, version });
wire_enum!(Message {
    1 => Ask(ask),
    2 => Answer { nonce, session, applied, writes, slots, reads },
    3 => Opened { nonce, session },
    4 => Expired { nonce, session },
    5 => Leader { nonce, leader },
    6 => Members { nonce, members },
    7 => Refused { nonce, reads, leader },
    8 => Query { nonce, reads },
    9 => Seen { nonce, voters, outgoing, reads },
    10 => AskBehind { ask, write },
    11 => Reader { nonce, reader },
    12 => AskAfter { ask, slot },
});

/// A protocol's messages, of which some are the client conversation.
pub trait Embeds: quorate_core::Message + From<Message> {
    /// The client conversation's part, if this is one.
    fn into_client(self) -> Option<Message>;
}

/// Implements [`Embeds`] for a protocol's message enum whose variant `Client` holds the client conversation.
#[macro_export]
macro_rules! embed_clients {
    ($message:ident) => {
        impl From<$crate::clients::Message> for $message {
            fn from(message: $crate::clients::Message) -> Self {
                $message::Client(message)
            }
        }

        impl $crate::clients::Embeds for $message {
            fn into_client(self) -> Option<$crate::clients::Message> {
                if let $message::Client(message) = self { Some(message) } else { None }
            }
        }
    };
}

/// Answers with no more bytes of replies are urgent.
const SHORT: usize = 16 << 10;

/// The longest reply, and all of them together, in bytes.
fn sizes(replies: impl Iterator<Item = usize>) -> (usize, usize) {
    replies.fold((0, 0), |(longest, all), reply| (reply.max(longest), all + reply))
}

impl Message {
    /// What it waits for. What proxies ask is in the order in which sessions number it, behind what was written before,
    /// unless it is only who leads: where links are full, a leader would seem to be dead. An answer is not, or a writer
    /// would wait for the writes of others once more. One with a reply that is longer than a frame is bulk: the
    /// [`Intake`](super::intake::Intake) sends it alone.
    pub fn class(&self) -> Class {
        let (longest, all) = match self {
            Message::Ask(ask) if ask.is_probe() => return Class::Urgent,
            Message::Ask(_) => return Class::Write,
            Message::Answer { writes, reads, .. } => {
                sizes(writes.iter().chain(reads).map(|(_, reply)| reply.len()))
            }
            Message::Seen { reads, .. } => {
                sizes(reads.iter().filter_map(|(_, seen)| Some(seen.reply.as_ref()?.len())))
            }
            Message::Opened { .. }
            | Message::Expired { .. }
            | Message::Leader { .. }
            | Message::Refused { .. }
            | Message::Query { .. }
            | Message::AskBehind { .. }
            | Message::AskAfter { .. }
            | Message::Reader { .. }
            | Message::Members { .. } => return Class::Urgent,
        };
        match longest > FRAME {
            true => Class::Bulk,
            false if all > SHORT => Class::Write,
            false => Class::Urgent,
        }
    }

    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}
