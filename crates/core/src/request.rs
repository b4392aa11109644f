//! What clients ask and get, as the contract carries it: commands and replies are bytes whose meaning is the
//! store's (`quorate_store::Command`, `quorate_store::Reply`), so that a command is encoded once, at the socket it
//! came from, and travels unchanged to every log and state machine.

use bytes::Bytes;
use thiserror::Error;

use crate::time::Time;

/// Whether a command changes the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Changes nothing: may be repeated, and served without the log where a protocol can.
    Read,
    /// Must happen exactly once.
    Write,
    /// An operator's: the command is an encoded [`Manage`](crate::Manage), the reply an encoded
    /// [`Managed`](crate::Managed). May be repeated.
    Manage,
}

/// A client's command, as it reaches a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Requests of one stream (a client connection) take effect in the order in which they are made, even if they
    /// are made without waiting for each other.
    pub stream: u64,
    /// The encoded command.
    pub command: Bytes,
    /// What the command does, from its footprint.
    pub access: Access,
    /// When the client stops waiting, on the proxy's clock. A proxy answers every request by then.
    pub deadline: Time,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Executed; the encoded reply.
    Done(Bytes),
    /// Not executed as far as the client may assume nothing else: see [`Failure`].
    Failed(Failure),
}

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Not executed, and never will be: too much is waiting already.
    #[error("overloaded: too many requests are waiting; try again")]
    Overloaded,
    /// The deadline passed. A read had no effect; a write may take effect now, later or never.
    #[error("no majority of the cluster answered in time; the outcome of a write is unknown")]
    TimedOut,
}
