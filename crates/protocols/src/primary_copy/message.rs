//! What members and proxies say, and what must be durable before they say it.

use bytes::Bytes;
use quorate_blocks::{clients, embed_clients};
use quorate_core::{Class, Release, wire_enum, wire_struct};

/// A message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Between proxies and replicas.
    Client(clients::Message),
    /// From the primary: the values of the slots from `from` on. Everything up to `committed` is committed.
    Copy {
        /// The slot of the first value.
        from: u64,
        /// In order; none in a heartbeat.
        values: Vec<Bytes>,
        /// The last committed slot.
        committed: u64,
    },
    /// To the primary: my log has all slots up to this one.
    Copied {
        /// The last slot.
        upto: u64,
    },
}
wire_enum!(Message {
    1 => Client(message),
    2 => Copy { from, values, committed },
    3 => Copied { upto },
});

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // Shows only what is committed, which is durable.
            Message::Client(_) => Release::Now,
            // A primary that lost a value in a crash would give its slot another.
            Message::Copy { .. } => Release::AfterSync,
            // The primary forgets what everybody has.
            Message::Copied { .. } => Release::AfterSync,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            _ => Class::Urgent,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            other => other.variant(),
        }
    }
}

embed_clients!(Message);

/// What a member must remember: the value of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which slot.
    pub slot: u64,
    /// A batch of commands.
    pub value: Bytes,
}
wire_struct!(Record { slot, value });
