//! The state as a sequence of pieces, and back.
//!
//! The first piece begins with a header: format, time, revision, how many keys. Then come records, a number of them in
//! each piece: a string key with its value, the head of a hash, or one field of the hash before it. Keys and fields are
//! in order, so a cursor is where the last piece ended and every piece can be made again. A large hash spans pieces;
//! a string larger than the limit has a piece of its own. The loader believes nothing: order, counts and times are
//! checked, and memory grows only with bytes that came in.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use quorate_core::{Decoder, Encoder, Image, Piece, Wall, Wire, WireError, wire_enum, wire_struct};
use thiserror::Error;

use crate::command::Key;
use crate::compact::Compact;
use crate::entry::{Entry, Value, detach};
use crate::hash::Hash;
use crate::store::{Store, VALUE_LIMIT};
use crate::table::Table;

/// The first bytes of an image.
const MAGIC: u32 = u32::from_le_bytes(*b"QKVS");
/// Changes with every change of the format.
const FORMAT: u16 = 1;

/// A record's bytes apart from keys and values, at most.
const RECORD_BYTES: usize = 48;

/// A store as it was at one moment, to be read in pieces, from any thread.
#[derive(Clone)]
pub struct Frozen {
    keys: Table,
    time: Wall,
    revision: u64,
}

struct Header {
    magic: u32,
    format: u16,
    time: Wall,
    revision: u64,
    keys: u64,
}
wire_struct!(Header { magic, format, time, revision, keys });

/// What is the same for every kind of key.
struct Head {
    key: Key,
    created: u64,
    version: u64,
    deadline: Option<Wall>,
}
wire_struct!(Head { key, created, version, deadline });

enum Record {
    String(Head, Bytes),
    /// So many fields follow.
    Hash(Head, u64),
    Field(Bytes, Bytes),
}
wire_enum!(Record { 0 => String(head, value), 1 => Hash(head, fields), 2 => Field(field, value) });

/// Where a piece begins.
enum Cursor {
    /// At the first key, after the header.
    Start,
    /// After this key and all that belongs to it.
    After(Key),
    /// In this hash, after a field, or after its head.
    Within(Key, Option<Bytes>),
}
wire_enum!(Cursor { 0 => Start, 1 => After(key), 2 => Within(key, field) });

impl Frozen {
    pub(crate) fn new(store: &Store) -> Frozen {
        Frozen { keys: store.keys.clone(), time: store.time, revision: store.revision }
    }

    /// Appends records from a place on until the limit. Gives the place to go on from, `None` at the end.
    fn fill(&self, from: Cursor, out: &mut Encoder, limit: usize) -> Option<Cursor> {
        if let Cursor::Within(key, field) = &from
            && let Some(Entry { value: Value::Hash(hash), .. }) = self.keys.get(&key[..])
            && let Some(next) = fill_hash(key, hash, field.as_deref(), out, limit)
        {
            return Some(next);
        }
        let bound = match &from {
            Cursor::Start => Bound::Unbounded,
            Cursor::After(key) | Cursor::Within(key, _) => Bound::Excluded(&key[..]),
        };
        let mut last = None;
        for (key, entry) in self.keys.range((bound, Bound::Unbounded)) {
            let value_len = entry.string().map_or(0, Bytes::len);
            if is_full(out, key.len() + value_len, limit) {
                // Before the first key of this piece the place is after what came before it.
                return Some(match (last, from) {
                    (Some(key), _) => Cursor::After(Compact::to_bytes(key)),
                    (None, Cursor::Within(key, _)) => Cursor::After(key),
                    (None, from) => from,
                });
            }
            let head = Head {
                key: key.to_bytes(),
                created: entry.created,
                version: entry.version,
                deadline: entry.deadline,
            };
            match &entry.value {
                Value::String(value) => Record::String(head, value.clone()).encode(out),
                Value::Hash(hash) => {
                    Record::Hash(head, hash.len() as u64).encode(out);
                    if let Some(next) = fill_hash(key, hash, None, out, limit) {
                        return Some(next);
                    }
                }
            }
            last = Some(key);
        }
        None
    }
}

impl Image for Frozen {
    /// A cursor that no piece gave leads to an empty last piece, which makes the image incomplete.
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece {
        let mut out = Encoder::new();
        let from = if cursor.is_empty() {
            let (magic, format) = (MAGIC, FORMAT);
            let keys = self.keys.len() as u64;
            Header { magic, format, time: self.time, revision: self.revision, keys }.encode(&mut out);
            Cursor::Start
        } else {
            match Cursor::from_bytes(cursor.clone()) {
                Ok(from) => from,
                Err(_) => return Piece { bytes: Bytes::new(), next: None },
            }
        };
        let next = self.fill(from, &mut out, limit).map(|next| next.to_bytes());
        Piece { bytes: out.into_bytes(), next }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("keys", &self.keys.len())
            .field("revision", &self.revision)
            .field("time", &self.time)
            .finish()
    }
}

/// Appends the fields after one, or all; gives the place where the piece was full.
fn fill_hash(
    key: &[u8],
    hash: &Hash,
    after: Option<&[u8]>,
    out: &mut Encoder,
    limit: usize,
) -> Option<Cursor> {
    let mut last = after;
    for (field, value) in hash.after(after) {
        if is_full(out, field.len() + value.len(), limit) {
            return Some(Cursor::Within(Bytes::copy_from_slice(key), last.map(Bytes::copy_from_slice)));
        }
        Record::Field(field.to_bytes(), value.clone()).encode(out);
        last = Some(field);
    }
    None
}

/// Whether a record of this many bytes of keys and values belongs into the next piece.
fn is_full(out: &Encoder, len: usize, limit: usize) -> bool {
    !out.is_empty() && out.len() + RECORD_BYTES + len > limit
}

/// A store that is coming in piece by piece.
#[derive(Default)]
pub struct Loader {
    /// What the header says, once it is here.
    header: Option<Header>,
    store: Store,
    /// The hash whose fields are coming in, and how many are missing.
    open: Option<(Compact, Entry, u64)>,
    /// Whether a piece was refused.
    refused: bool,
}

/// Why an image was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoadError {
    /// These are other bytes.
    #[error("this is no image of a store")]
    Foreign,
    /// It was written by another version of this program.
    #[error("the image has format {found}, this program reads {FORMAT}")]
    Format {
        /// Its format.
        found: u16,
    },
    /// A piece does not end where a record does, or holds something else.
    #[error("the image cannot be read: {0}")]
    Malformed(#[from] WireError),
    /// A key or field does not come after the one before it, or in the wrong place.
    #[error("the image's records are out of order")]
    Order,
    /// There are more keys than announced.
    #[error("the image has more keys than its header says")]
    TooMany,
    /// Something that no store would hold.
    #[error("the image holds an impossible {0}")]
    Impossible(&'static str),
    /// The end is missing.
    #[error("the image is incomplete")]
    Incomplete,
    /// A piece was refused before.
    #[error("a piece of the image was refused")]
    Refused,
}

impl Loader {
    /// Nothing has come in yet.
    pub fn new() -> Loader {
        Loader::default()
    }

    /// The next piece, in order. After an error the image is lost: nothing can be pushed any more.
    pub fn push(&mut self, piece: Bytes) -> Result<(), LoadError> {
        if self.refused {
            return Err(LoadError::Refused);
        }
        let result = self.read(piece);
        self.refused = result.is_err();
        result
    }

    /// After the last piece.
    pub fn finish(self) -> Result<Store, LoadError> {
        match self.header {
            _ if self.refused => Err(LoadError::Refused),
            Some(header) if self.open.is_none() && self.store.keys.len() as u64 == header.keys => {
                Ok(self.store)
            }
            _ => Err(LoadError::Incomplete),
        }
    }

    fn read(&mut self, piece: Bytes) -> Result<(), LoadError> {
        let mut input = Decoder::new(piece);
        if self.header.is_none() {
            self.begin(&mut input)?;
        }
        while input.remaining() > 0 {
            match Record::decode(&mut input)? {
                Record::String(head, value) => {
                    if value.len() > VALUE_LIMIT {
                        return Err(LoadError::Impossible("string"));
                    }
                    let (key, entry) = self.next(head, Value::String(detach(&value)))?;
                    self.store.insert(key, entry);
                }
                Record::Hash(_, 0) => return Err(LoadError::Impossible("hash")),
                Record::Hash(head, fields) => {
                    let (key, entry) = self.next(head, Value::Hash(Hash::default()))?;
                    self.open = Some((key, entry, fields));
                }
                Record::Field(field, value) => self.field(&field, &value)?,
            }
        }
        Ok(())
    }

    fn begin(&mut self, input: &mut Decoder) -> Result<(), LoadError> {
        let header = Header::decode(input).map_err(|_| LoadError::Foreign)?;
        if header.magic != MAGIC {
            return Err(LoadError::Foreign);
        }
        if header.format != FORMAT {
            return Err(LoadError::Format { found: header.format });
        }
        self.store.time = header.time;
        self.store.revision = header.revision;
        self.header = Some(header);
        Ok(())
    }

    /// Checks the head of the next key.
    fn next(&self, head: Head, value: Value) -> Result<(Compact, Entry), LoadError> {
        let Head { key, created, version, deadline } = head;
        let last = self.store.keys.last();
        if self.open.is_some() || last.is_some_and(|last| last[..] >= key[..]) {
            return Err(LoadError::Order);
        }
        if self.header.as_ref().is_none_or(|header| self.store.keys.len() as u64 >= header.keys) {
            return Err(LoadError::TooMany);
        }
        if created == 0 || created.max(version) > self.store.revision {
            return Err(LoadError::Impossible("version"));
        }
        if deadline.is_some_and(|deadline| deadline <= self.store.time) {
            return Err(LoadError::Impossible("deadline"));
        }
        Ok((Compact::new(&key), Entry { value, created, version, deadline }))
    }

    fn field(&mut self, field: &Bytes, value: &Bytes) -> Result<(), LoadError> {
        let Some((_, Entry { value: Value::Hash(hash), .. }, missing)) = &mut self.open else {
            return Err(LoadError::Order);
        };
        if hash.last().is_some_and(|last| last >= &field[..]) {
            return Err(LoadError::Order);
        }
        if field.len().max(value.len()) > VALUE_LIMIT {
            return Err(LoadError::Impossible("field"));
        }
        hash.insert(field, detach(value));
        *missing -= 1;
        if *missing == 0 {
            let (key, entry, _) = self.open.take().expect("a hash is open");
            self.store.insert(key, entry);
        }
        Ok(())
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("store", &self.store)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
