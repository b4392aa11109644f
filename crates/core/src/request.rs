//! What clients ask and get, as the contract carries it: commands and replies are bytes whose meaning is the
//! store's (`quorate_store::Command`, `quorate_store::Reply`), so that a command is encoded once, at the socket it
//! came from, and travels unchanged to every log and state machine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;

use crate::id::GroupId;
use crate::settings::parse_duration;
use crate::time::Time;
use crate::wire::{Decoder, Encoder, Wire, WireError};

/// Whether a command changes the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Changes nothing: may be repeated, and served without the log where a protocol can.
    Read,
    /// The same, and may be answered from a state that is behind by no more than this.
    Within(Staleness),
    /// Must happen exactly once.
    Write,
    /// An operator's: the command is an encoded [`Manage`](crate::Manage), the reply an encoded
    /// [`Managed`](crate::Managed). May be repeated.
    Manage,
}

impl Access {
    /// Whether it changes nothing, whatever it may miss.
    pub fn is_read(self) -> bool {
        matches!(self, Access::Read | Access::Within(_))
    }
}

/// How much a read may miss of what was acknowledged before it was asked. (Bodega §7.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Staleness {
    /// What is younger than this, in true time.
    Age(Duration),
    /// So many writes of each of its keys.
    Versions(u64),
}

impl Wire for Staleness {
    fn encode(&self, out: &mut Encoder) {
        match *self {
            Staleness::Age(age) => (1_u8, u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)).encode(out),
            Staleness::Versions(versions) => (2_u8, versions).encode(out),
        }
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match Wire::decode(input)? {
            (1_u8, nanos) => Ok(Staleness::Age(Duration::from_nanos(nanos))),
            (2_u8, versions) => Ok(Staleness::Versions(versions)),
            (found, _) => Err(WireError::Value { what: "staleness", found: found.into() }),
        }
    }
}

impl fmt::Display for Staleness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Staleness::Age(age) if age.subsec_nanos() % 1_000_000 != 0 => write!(f, "{}us", age.as_micros()),
            Staleness::Age(age) => write!(f, "{}ms", age.as_millis()),
            Staleness::Versions(versions) => versions.fmt(f),
        }
    }
}

impl FromStr for Staleness {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let versions = || text.parse().ok().map(Staleness::Versions);
        parse_duration(text)
            .map(Staleness::Age)
            .or_else(versions)
            .ok_or_else(|| "write a duration such as 500ms, or a number of versions such as 3".to_owned())
    }
}

/// A client's command, as it reaches a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Requests of one stream (a client connection) take effect in the order in which they are made, even if they
    /// are made without waiting for each other.
    pub stream: u64,
    /// The command, as the store's wire format has it.
    pub command: Bytes,
    /// What the command does, from its footprint.
    pub access: Access,
    /// When the client stops waiting, on the proxy's clock. A proxy answers every request by then.
    pub deadline: Time,
    /// The last slot that this client was told of ([`Answered::slot`](crate::context::Answered::slot)), by whichever
    /// node; 0: none. Where reads are [sequential](crate::Consistency::Sequential), a state answers them that has
    /// executed this slot.
    pub after: u64,
}

/// What one of several groups in a process is asked, where that does not follow from what is asked: an operator's
/// request, or a command about all keys, which is about those of the group then. The process hands what is asked to the
/// group, whose members never see whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRequest<T> {
    /// The group that is meant.
    pub group: GroupId,
    /// What it is asked.
    pub asked: T,
}

/// The first byte, which neither an operator's request nor a command has.
const OF_GROUP: u8 = 0xff;

impl<T> GroupRequest<T> {
    /// The group and what it is asked, as encoded; `None` if no group is named.
    pub fn split(encoded: &Bytes) -> Option<(GroupId, Bytes)> {
        let mut input = Decoder::new(encoded.clone());
        let is_named = input.u8() == Ok(OF_GROUP);
        let group = is_named.then(|| GroupId::decode(&mut input).ok()).flatten()?;
        Some((group, input.rest()))
    }
}

impl<T: Wire> Wire for GroupRequest<T> {
    fn encode(&self, out: &mut Encoder) {
        (OF_GROUP, self.group).encode(out);
        self.asked.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match input.u8()? {
            OF_GROUP => Ok(GroupRequest { group: GroupId::decode(input)?, asked: T::decode(input)? }),
            found => Err(WireError::Value { what: "request to a group", found: found.into() }),
        }
    }
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
    /// The session in which a write was under way has ended: the group's time went on by more than an idle session
    /// lasts, as when wall clocks are set forward. The write may have taken effect before, and will not any more.
    #[error("the client's session ended while a write was under way; its outcome is unknown")]
    SessionEnded,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_is_a_duration_or_a_number_of_versions_and_survives_the_wire() {
        for (text, staleness) in [
            ("500ms", Staleness::Age(Duration::from_millis(500))),
            ("1500us", Staleness::Age(Duration::from_micros(1500))),
            ("3", Staleness::Versions(3)),
        ] {
            assert_eq!(text.parse(), Ok(staleness));
            assert_eq!(staleness.to_string(), text);
            assert_eq!(Staleness::from_bytes(staleness.to_bytes()), Ok(staleness));
        }
        assert!("2s".parse::<Staleness>().is_ok_and(|two| two.to_string() == "2000ms"));
        assert!(["", "x", "-1", "3 s"].iter().all(|text| text.parse::<Staleness>().is_err()));
    }
}
