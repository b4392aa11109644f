//! What the store answers.

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Payload, Wire, WireError, wire_enum};
use thiserror::Error;

use crate::command::Key;
use crate::users::User;

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command has done what it says; there is nothing to tell.
    Done,
    /// Its condition did not hold; nothing changed.
    Skipped,
    /// A string, if there is one.
    Value(Option<Bytes>),
    /// A string for each key or field asked for.
    Values(Vec<Option<Bytes>>),
    /// A signed number: a new value, a length, how many there were.
    Integer(i64),
    /// The kind of value at a key.
    Kind(Option<Kind>),
    /// When a key expires.
    Expires(Expires),
    /// The version of each key.
    Versions(Vec<u64>),
    /// Fields and their values.
    Pairs(Vec<(Bytes, Bytes)>),
    /// Some keys, and from which position to go on; absent at the end.
    Keys {
        /// Keys that match the pattern, in the order of the table.
        keys: Vec<Key>,
        /// Where to go on.
        next: Option<u64>,
    },
    /// Some fields of a hash and their values, and from which position to go on; absent at the end.
    Fields {
        /// Fields that match the pattern, and their values, in the order of the table.
        pairs: Vec<(Bytes, Bytes)>,
        /// Where to go on.
        next: Option<u64>,
        /// The version of the key, 0 if it is absent: parts that have the same are of the same hash.
        version: u64,
    },
    /// One reply for each command of a batch; absent if a watched key had changed.
    Batch(Option<Vec<Reply>>),
    /// It was refused; nothing changed.
    Error(CommandError),
    /// Every user, with the number of the last change.
    Users {
        /// How many commands have changed users so far.
        changes: u64,
        /// By name; the default user only if something was said of it.
        users: Vec<(Bytes, User)>,
    },
    /// It was executed before, once; its reply was too large to be retained for a repetition. The store never replies
    /// this: it takes the place of a reply.
    NotRetained,
}

/// A value of so many bytes is shared by the replies to reads of it.
const SHARED: usize = 64 << 10;
const VALUE: u8 = 2;
const BATCH: u8 = 10;
const NOT_RETAINED: u8 = 12;
const FIELDS: u8 = 13;
const USERS: u8 = 14;

impl Reply {
    /// As [`Wire::to_bytes`], in a buffer of the right size; without one for the most common.
    pub fn encoded(&self) -> Bytes {
        match self {
            Reply::Done => Bytes::from_static(&[0]),
            Reply::NotRetained => Bytes::from_static(&[NOT_RETAINED]),
            Reply::Value(Some(value)) => Reply::encoded_value(value).into_bytes(),
            Reply::Value(None) => Bytes::from_static(&[VALUE, 0]),
            other => other.to_bytes(),
        }
    }

    /// A value that is there, encoded: as [`Wire::encode`] does, but in one allocation of the right size, or, if it is
    /// [large](SHARED), behind its head.
    pub(crate) fn encoded_value(value: &Bytes) -> Payload {
        let len = u32::try_from(value.len()).expect("a value is shorter than 4 GiB");
        let is_shared = value.len() >= SHARED;
        let mut out = Vec::with_capacity(if is_shared { 6 } else { value.len() + 6 });
        out.extend_from_slice(&[VALUE, 1]);
        out.extend_from_slice(&len.to_le_bytes());
        if is_shared {
            return Payload::Parts(vec![out.into(), value.clone()]);
        }
        out.extend_from_slice(value);
        Payload::Whole(out.into())
    }

    /// How many bytes its encoding takes, about; no less than the keys and values in it.
    pub fn size(&self) -> usize {
        const ITEM: usize = 5;
        let item = |value: &Bytes| ITEM + value.len();
        let optional = |value: &Option<Bytes>| value.as_ref().map_or(1, item);
        match self {
            Reply::Value(value) => optional(value),
            Reply::Values(values) => values.iter().map(optional).sum(),
            Reply::Pairs(pairs) => pairs.iter().map(|(field, value)| item(field) + item(value)).sum(),
            Reply::Fields { pairs, .. } => {
                pairs.iter().map(|(field, value)| item(field) + item(value)).sum::<usize>() + 18
            }
            Reply::Keys { keys, .. } => keys.iter().map(item).sum::<usize>() + 9,
            Reply::Versions(versions) => versions.len() * 8,
            Reply::Batch(Some(replies)) => replies.iter().map(|reply| 1 + reply.size()).sum(),
            Reply::Users { users, .. } => {
                users.iter().map(|(name, user)| item(name) + user.size()).sum::<usize>() + 9
            }
            Reply::Done
            | Reply::Skipped
            | Reply::Integer(_)
            | Reply::Kind(_)
            | Reply::Expires(_)
            | Reply::Batch(None)
            | Reply::Error(_)
            | Reply::NotRetained => 16,
        }
    }
}

impl Wire for Reply {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Reply::Done => out.put_u8(0),
            Reply::Skipped => out.put_u8(1),
            Reply::Value(value) => tagged(VALUE, value, out),
            Reply::Values(values) => tagged(3, values, out),
            Reply::Integer(number) => tagged(4, number, out),
            Reply::Kind(kind) => tagged(5, kind, out),
            Reply::Expires(expires) => tagged(6, expires, out),
            Reply::Versions(versions) => tagged(7, versions, out),
            Reply::Pairs(pairs) => tagged(8, pairs, out),
            Reply::Keys { keys, next } => {
                tagged(9, keys, out);
                next.encode(out);
            }
            Reply::Fields { pairs, next, version } => {
                tagged(FIELDS, pairs, out);
                next.encode(out);
                version.encode(out);
            }
            Reply::Batch(None) => tagged(BATCH, &false, out),
            Reply::Batch(Some(replies)) => {
                tagged(BATCH, &true, out);
                replies.encode(out);
            }
            Reply::Error(error) => tagged(11, error, out),
            Reply::NotRetained => out.put_u8(NOT_RETAINED),
            Reply::Users { changes, users } => {
                tagged(USERS, changes, out);
                users.encode(out);
            }
        }
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        match input.u8()? {
            BATCH if bool::decode(input)? => {
                let members: Vec<Member> = Wire::decode(input)?;
                Ok(Reply::Batch(Some(members.into_iter().map(|Member(reply)| reply).collect())))
            }
            BATCH => Ok(Reply::Batch(None)),
            tag => decode_single(tag, input),
        }
    }
}

fn tagged(tag: u8, value: &impl Wire, out: &mut Encoder) {
    out.put_u8(tag);
    value.encode(out);
}

fn decode_single(tag: u8, input: &mut Decoder) -> Result<Reply, WireError> {
    Ok(match tag {
        0 => Reply::Done,
        1 => Reply::Skipped,
        VALUE => Reply::Value(Wire::decode(input)?),
        3 => Reply::Values(Wire::decode(input)?),
        4 => Reply::Integer(Wire::decode(input)?),
        5 => Reply::Kind(Wire::decode(input)?),
        6 => Reply::Expires(Wire::decode(input)?),
        7 => Reply::Versions(Wire::decode(input)?),
        8 => Reply::Pairs(Wire::decode(input)?),
        9 => Reply::Keys { keys: Wire::decode(input)?, next: Wire::decode(input)? },
        11 => Reply::Error(Wire::decode(input)?),
        NOT_RETAINED => Reply::NotRetained,
        FIELDS => Reply::Fields {
            pairs: Wire::decode(input)?,
            next: Wire::decode(input)?,
            version: Wire::decode(input)?,
        },
        USERS => Reply::Users { changes: Wire::decode(input)?, users: Wire::decode(input)? },
        tag => return Err(WireError::Value { what: "Reply tag", found: tag.into() }),
    })
}

/// A reply of a batch, which is no batch: forged bytes cannot recurse.
struct Member(Reply);

impl Wire for Member {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let tag = input.u8()?;
        decode_single(tag, input).map(Member)
    }
}

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// A map from fields to strings.
    Hash,
}
wire_enum!(Kind { 0 => String, 1 => Hash });

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    /// There is no such key.
    Missing,
    /// The key is there and never expires.
    Never,
    /// At this many milliseconds since the Unix epoch.
    At(u64),
}
wire_enum!(Expires { 0 => Missing, 1 => Never, 2 => At(millis) });

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// The key holds another kind of value.
    #[error("the key holds another kind of value")]
    WrongType,
    /// The string is no 64-bit integer.
    #[error("the value is not an integer or out of range")]
    NotInteger,
    /// The field is no 64-bit integer.
    #[error("the hash field is not an integer")]
    FieldNotInteger,
    /// The string or the increment is no number.
    #[error("the value is not a valid float")]
    NotFloat,
    /// The field is no number.
    #[error("the hash field is not a float")]
    FieldNotFloat,
    /// The increment is infinite.
    #[error("the increment is infinite")]
    Infinite,
    /// The result would not fit into 64 bits.
    #[error("the increment would overflow")]
    Overflow,
    /// The result would be no number.
    #[error("the increment would produce NaN or infinity")]
    NotFinite,
    /// The value would be larger than [`VALUE_LIMIT`](crate::VALUE_LIMIT), or the reply than
    /// [`REPLY_LIMIT`](crate::REPLY_LIMIT).
    #[error("the value would be too large")]
    TooLarge,
    /// The command would have to look at more keys or fields than one may ([`SCAN_ITEMS`](crate::SCAN_ITEMS)), or match
    /// a pattern with a longer text.
    #[error("the command would look at too much at once")]
    TooMuch,
    /// The pattern is longer than [`PATTERN_LIMIT`](crate::glob::PATTERN_LIMIT).
    #[error("the pattern is too long")]
    PatternTooLong,
    /// The bytes of the command are none this version knows.
    #[error("the command cannot be read")]
    Malformed,
    /// The command came in parts, and its session may not keep so many bytes, or not all parts are there.
    #[error("there is no room to put the parts of the command together")]
    NoRoom,
    /// The data take as much as they may ([`Command::LimitData`](crate::Command::LimitData)).
    #[error("the data take as much as they may")]
    DataLimit,
    /// The limit would be below what the data take.
    #[error("the data take {bytes} bytes already")]
    BelowData {
        /// How many bytes the data take now.
        bytes: u64,
    },
    /// Not all commands are ordered here, so replicas cannot agree on when the data reach a limit.
    #[error("this protocol does not order all commands")]
    Unordered,
    /// The disk of the leader is nearly full.
    #[error("the disk of node {node} is nearly full")]
    DiskFull {
        /// Which node that is.
        node: u64,
    },
    /// The memory of the node that was asked is nearly used up, and nothing else bounds the data.
    #[error("the memory of node {node} is nearly used up")]
    MemoryFull {
        /// Which node that is.
        node: u64,
    },
    /// A password to be removed is none of the user's.
    #[error("the user has no such password")]
    NoSuchPassword,
    /// Keys are to be allowed to a user who may use all.
    #[error("the user may use all keys already")]
    AllKeysAlready,
    /// The users would take more than [`USERS_LIMIT`](crate::users::USERS_LIMIT).
    #[error("the users would take too many bytes")]
    TooManyUsers,
    /// No one group has all that the command is about ([`Partition`](crate::Partition)).
    #[error("no one group has all that the command is about")]
    SeveralGroups,
    /// The value would be larger than this protocol replicates.
    #[error("the value would be larger than the {bytes} bytes that this protocol replicates")]
    AboveLimit {
        /// The most that a value may take, with what is kept beside it.
        bytes: u64,
    },
}

impl CommandError {
    /// Whether a node has refused the command for want of room: it has no effect.
    pub fn is_refusal(self) -> bool {
        matches!(self, CommandError::DiskFull { .. } | CommandError::MemoryFull { .. })
    }
}

wire_enum!(CommandError {
    0 => WrongType, 1 => NotInteger, 2 => FieldNotInteger, 3 => NotFloat, 4 => Overflow, 5 => NotFinite,
    6 => TooLarge, 7 => Malformed, 8 => FieldNotFloat, 9 => Infinite,
    10 => TooMuch, 11 => PatternTooLong, 12 => NoRoom, 13 => DataLimit, 14 => BelowData { bytes }, 15 => Unordered,
    16 => DiskFull { node },
    17 => NoSuchPassword, 18 => AllKeysAlready, 19 => TooManyUsers, 20 => SeveralGroups,
    21 => AboveLimit { bytes }, 22 => MemoryFull { node },
});
