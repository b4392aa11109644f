//! What is stored at a key.

use bytes::Bytes;
use quorate_core::Wall;

use crate::hash::Hash;
use crate::reply::{CommandError, Kind};

/// What is shorter than this is copied out of the buffer it came in, which may be much larger.
pub(crate) const DETACH: usize = 64 << 10;

/// Memory that a key takes apart from its own bytes: its places in the table and in the order, and the heads of its
/// allocations.
const ENTRY_BYTES: usize = 232;
/// The same for places in the index of deadlines and in their counts.
const DEADLINE_BYTES: usize = 96;

/// A key's value and history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub value: Value,
    /// The revision that made the key.
    pub created: u64,
    /// The revision of its last change.
    pub version: u64,
    /// The wall-clock time from which it is gone; `None`: never.
    pub deadline: Option<Wall>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    String(Bytes),
    /// Never empty in a store: a key goes with its last field.
    Hash(Hash),
}

impl Entry {
    /// It changes at this revision. Where only commands in conflict are ordered, the revision may be below the version:
    /// then the version is the next one.
    pub fn change(&mut self, revision: u64) {
        self.version = if revision >= self.version { revision } else { self.version + 1 };
    }

    /// Changes the string, if it is one.
    pub fn edit(&mut self, revision: u64, edit: impl FnOnce(Bytes) -> Bytes) {
        if let Value::String(string) = &mut self.value {
            *string = edit(std::mem::take(string));
            self.change(revision);
        }
    }

    /// The string, or that it is none.
    pub fn string(&self) -> Result<&Bytes, CommandError> {
        match &self.value {
            Value::String(value) => Ok(value),
            Value::Hash(_) => Err(CommandError::WrongType),
        }
    }

    /// The hash, or that it is none.
    pub fn hash(&self) -> Result<&Hash, CommandError> {
        match &self.value {
            Value::Hash(hash) => Ok(hash),
            Value::String(_) => Err(CommandError::WrongType),
        }
    }

    pub fn kind(&self) -> Kind {
        match self.value {
            Value::String(_) => Kind::String,
            Value::Hash(_) => Kind::Hash,
        }
    }

    /// About how much memory it takes, the key included.
    pub fn bytes(&self, key: &[u8]) -> usize {
        let value = match &self.value {
            Value::String(value) => value.len(),
            Value::Hash(hash) => hash.bytes(),
        };
        let index = if self.deadline.is_some() { DEADLINE_BYTES } else { 0 };
        ENTRY_BYTES + key.len() + value + index
    }
}

/// The same bytes, in a buffer of their own if they are few: they must not keep a whole receive buffer alive.
pub(crate) fn detach(bytes: &Bytes) -> Bytes {
    if bytes.len() < DETACH { Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}
