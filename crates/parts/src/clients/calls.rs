//! What a proxy knows of the requests that are under way.

use bytes::Bytes;
use quorate_core::{Access, RequestId, Time};

#[derive(Debug)]
pub(super) struct Call {
    pub stream: u64,
    pub access: Access,
    pub deadline: Time,
    pub command: Bytes,
    pub place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind earlier requests of its stream.
    Stream,
    /// A write without a number.
    Queue,
    /// A write with this number.
    Write(u64),
    /// A read (or an operator's request) with this id.
    Read(u64),
}

#[derive(Debug)]
pub(super) struct WriteCall {
    /// Whom to answer; nobody any more once it was given up.
    pub request: Option<RequestId>,
    pub command: Bytes,
    /// When it last went to the target.
    pub sent: Option<Time>,
    /// Whether any replica may have got it.
    pub exposed: bool,
    pub answered: bool,
}

#[derive(Debug)]
pub(super) struct ReadCall {
    pub request: RequestId,
    pub command: Bytes,
    pub manage: bool,
    pub sent: Option<Time>,
    /// Whether the replica nearby has been asked, and only the leader is left.
    pub asked_nearby: bool,
}
