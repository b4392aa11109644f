//! What the store answers.

use bytes::Bytes;
use quorate_core::wire_enum;
use thiserror::Error;

use crate::command::Key;

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was done.
    Done,
    /// Its condition did not hold; nothing changed.
    Skipped,
    /// A string, if there is one.
    Value(Option<Bytes>),
    /// A string for each key or field asked for.
    Values(Vec<Option<Bytes>>),
    /// A number.
    Integer(i64),
    /// The kind of value at a key.
    Kind(Option<Kind>),
    /// When a key expires.
    Expires(Expires),
    /// The version of each key.
    Versions(Vec<u64>),
    /// Fields and their values.
    Pairs(Vec<(Bytes, Bytes)>),
    /// Some keys, and after which key to go on; absent at the end.
    Keys {
        /// Those that match.
        keys: Vec<Key>,
        /// Where to go on.
        next: Option<Key>,
    },
    /// One reply for each command of a batch; absent if a watched key had changed.
    Batch(Option<Vec<Reply>>),
    /// It was refused; nothing changed.
    Error(CommandError),
}

/// The kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Never.
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
    /// The result would not fit into 64 bits.
    #[error("the increment would overflow")]
    Overflow,
    /// The result would be no number.
    #[error("the increment would produce NaN or infinity")]
    NotFinite,
    /// The result would be larger than a value may be.
    #[error("the value would be too large")]
    TooLarge,
    /// The bytes of the command are none this version knows.
    #[error("the command cannot be read")]
    Malformed,
}
wire_enum!(CommandError {
    0 => WrongType, 1 => NotInteger, 2 => FieldNotInteger, 3 => NotFloat, 4 => Overflow, 5 => NotFinite,
    6 => TooLarge, 7 => Malformed,
});
