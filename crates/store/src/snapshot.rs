//! The state as a sequence of pieces, and back.
//!
//! The first piece begins with a header: format, time, revision, how many keys. Then come records, a number of them in
//! each piece: the feature level if it is not the first, the limit on the data and users by name, if there are any;
//! then a string key with its value, the head of a hash, or one field of the hash before it. Keys and fields are in
//! their order ([`crate::order`]), so a cursor is
//! where the last piece ended and every piece can be made again. A large hash spans pieces, and so does a value that is
//! larger than a piece: its record says how long it is, and parts of it follow. So the size of a piece is bounded by
//! its limit, two names ([`NAME_LIMIT`]) and a few bytes, whatever the store holds. The loader believes nothing: order,
//! counts and times are checked, and memory grows only with bytes that came in.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use quorate_core::{
    Decoder, Encoder, FeatureLevel, Image, Piece, Wall, Wire, WireError, mutation, wire_enum, wire_struct,
};
use thiserror::Error;

use crate::command::Key;
use crate::compact::Compact;
use crate::entry::{Entry, Value, detach};
use crate::hash::Hash;
use crate::order;
use crate::store::{NAME_LIMIT, Store, VALUE_LIMIT};
use crate::table::Table;
use crate::users::{User, Users};

/// The first bytes of an image.
const MAGIC: u32 = u32::from_le_bytes(*b"QKVS");
/// Changes with every change of the format.
const FORMAT: u16 = 3;

/// A record's bytes apart from keys and values, at most.
const RECORD_BYTES: usize = 48;

/// A store as it was at one moment, to be read in pieces, from any thread.
#[derive(Clone)]
pub struct Frozen {
    keys: Table,
    time: Wall,
    revision: u64,
    limit: Option<u64>,
    users: Users,
    level: FeatureLevel,
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
    /// A string of so many bytes, which follow in parts.
    LongString(Head, u64),
    /// A field whose value has so many bytes, which follow in parts.
    LongField(Bytes, u64),
    /// The next bytes of a long value.
    Part(Bytes),
    /// What the data may take, in bytes. Before all keys.
    Limit(u64),
    /// So many commands have changed users; they follow.
    Users(u64),
    User(Bytes, User),
    /// The feature level, which is not the first. Before all other records.
    Level(FeatureLevel),
}
wire_enum!(Record {
    0 => String(head, value),
    1 => Hash(head, fields),
    2 => Field(field, value),
    3 => LongString(head, len),
    4 => LongField(field, len),
    5 => Part(bytes),
    6 => Limit(bytes),
    7 => Users(changes),
    8 => User(name, user),
    9 => Level(level),
});

/// Where a piece begins.
enum Cursor {
    /// Behind the header, before the first part.
    Start,
    /// After this key and all that belongs to it.
    After(Key),
    /// In this hash, after a field, or after its head.
    Within(Key, Option<Bytes>),
    /// At this byte of the value of a key, or of a field of the hash there.
    Inside(Key, Option<Bytes>, u64),
    /// After this user, or at the first one.
    Users(Option<Bytes>),
}
wire_enum!(Cursor {
    0 => Start, 1 => After(key), 2 => Within(key, field), 3 => Inside(key, field, at), 4 => Users(name),
});

impl Frozen {
    pub(crate) fn new(store: &Store) -> Frozen {
        let limit = store.limit.filter(|_| !mutation::active("snapshot/no-limit"));
        let (keys, users) = (store.keys.clone(), store.users.clone());
        let level = if mutation::active("snapshot/no-level") { FeatureLevel::FIRST } else { store.level };
        Frozen { keys, time: store.time, revision: store.revision, limit, users, level }
    }

    /// Appends records from a place on until the limit. Gives the place to go on from, `None` at the end.
    fn fill(&self, mut from: Cursor, out: &mut Encoder, limit: usize) -> Option<Cursor> {
        if let Cursor::Inside(key, field, at) = &from {
            let at = fill_value(self.value(key, field.as_ref())?, usize::try_from(*at).ok()?, out, limit);
            if let Some(at) = at {
                return Some(Cursor::Inside(key.clone(), field.clone(), at));
            }
            from = match field {
                Some(_) => Cursor::Within(key.clone(), field.clone()),
                None => Cursor::After(key.clone()),
            };
        }
        if let Cursor::Within(key, field) = &from
            && let Some(Entry { value: Value::Hash(hash), .. }) = self.keys.get(&key[..])
            && let Some(next) = fill_hash(key, hash, field.as_ref(), out, limit)
        {
            return Some(next);
        }
        if matches!(from, Cursor::Start)
            && self.users.changes() > 0
            && !mutation::active("store/image-without-users")
        {
            Record::Users(self.users.changes()).encode(out);
            from = Cursor::Users(None);
        }
        if let Cursor::Users(after) = &from {
            let mut last = after.clone();
            for (name, user) in self.users.after(after.as_ref()) {
                if is_full(out, name.len() + user.size(), limit) {
                    return Some(Cursor::Users(last));
                }
                Record::User(name.clone(), user.clone()).encode(out);
                last = Some(name.clone());
            }
            from = Cursor::Users(last);
        }
        let bound = match &from {
            Cursor::Start | Cursor::Users(_) => Bound::Unbounded,
            Cursor::After(key) | Cursor::Within(key, _) | Cursor::Inside(key, ..) => {
                Bound::Excluded(order::Place::probe(key))
            }
        };
        let mut last = None;
        for (key, entry) in self.keys.range((bound, Bound::Unbounded)) {
            let value_len = entry.string().map_or(0, Bytes::len);
            // Of a long value, the record says its length only.
            let inline_len = if value_len > limit { 0 } else { value_len };
            if is_full(out, key.len() + inline_len, limit) {
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
                Value::String(value) if value_len > limit => {
                    Record::LongString(head, value_len as u64).encode(out);
                    if let Some(at) = fill_value(value, 0, out, limit) {
                        return Some(Cursor::Inside(key.to_bytes(), None, at));
                    }
                }
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

    /// The string at a key, or that of a field of the hash there.
    fn value(&self, key: &Key, field: Option<&Bytes>) -> Option<&Bytes> {
        match (&self.keys.get(&key[..])?.value, field) {
            (Value::String(value), None) => Some(value),
            (Value::Hash(hash), Some(field)) => hash.get(field),
            (Value::String(_), Some(_)) | (Value::Hash(_), None) => None,
        }
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
            if self.level > FeatureLevel::FIRST {
                Record::Level(self.level).encode(&mut out);
            }
            if let Some(limit) = self.limit {
                Record::Limit(limit).encode(&mut out);
            }
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
    after: Option<&Bytes>,
    out: &mut Encoder,
    limit: usize,
) -> Option<Cursor> {
    let start = after.map(order::Place::probe);
    let mut last = None;
    for (place, value) in hash.from(start.as_ref().map_or(Bound::Unbounded, Bound::Excluded)) {
        let field = place.bytes();
        let inline_len = if value.len() > limit { 0 } else { value.len() };
        if is_full(out, field.len() + inline_len, limit) {
            let last = last.map(Compact::to_bytes).or_else(|| after.cloned());
            return Some(Cursor::Within(Bytes::copy_from_slice(key), last));
        }
        if value.len() > limit {
            Record::LongField(field.to_bytes(), value.len() as u64).encode(out);
            if let Some(at) = fill_value(value, 0, out, limit) {
                return Some(Cursor::Inside(Bytes::copy_from_slice(key), Some(field.to_bytes()), at));
            }
        } else {
            Record::Field(field.to_bytes(), value.clone()).encode(out);
        }
        last = Some(field);
    }
    None
}

/// Appends the bytes of a long value from a place on, as far as the piece has room, at least one of them; gives the
/// place to go on from if that is not its end.
fn fill_value(value: &Bytes, at: usize, out: &mut Encoder, limit: usize) -> Option<u64> {
    let room = limit.saturating_sub(out.len() + RECORD_BYTES).max(1);
    let end = value.len().min(at.saturating_add(room));
    if at < end {
        Record::Part(value.slice(at..end)).encode(out);
    }
    (end < value.len()).then_some(end as u64)
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
    /// Only checks what comes in, and keeps none of it.
    dry: bool,
    /// How many keys have come in, and the last of them.
    count: u64,
    last: Option<order::Place>,
    /// The hash whose fields are coming in.
    open: Option<OpenHash>,
    /// The value whose parts are coming in.
    long: Option<LongValue>,
    /// Whether a piece was refused.
    refused: bool,
}

struct OpenHash {
    key: Compact,
    entry: Entry,
    /// The last field that came in.
    last: Option<order::Place>,
    /// Fields that have not come in.
    missing: u64,
}

struct LongValue {
    place: Place,
    bytes: Vec<u8>,
    /// Bytes that have not come in.
    missing: usize,
}

/// Where a long value belongs.
enum Place {
    Key(Head),
    Field(Bytes),
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
        /// The version of the format that was found.
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

    /// The same, for an image that is only checked: [`finish`](Loader::finish) gives an empty store.
    pub fn dry() -> Loader {
        Loader { dry: true, ..Loader::default() }
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
            Some(header) if self.open.is_none() && self.long.is_none() && self.count == header.keys => {
                let mut store = self.store;
                if self.dry {
                    store.users = Users::default();
                }
                Ok(store)
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
            let record = Record::decode(&mut input)?;
            if self.long.is_some() != matches!(record, Record::Part(_)) {
                return Err(LoadError::Order);
            }
            match record {
                Record::String(head, value) => self.string(head, detach(&value))?,
                Record::Hash(_, 0) => return Err(LoadError::Impossible("hash")),
                Record::Hash(head, missing) => {
                    let (key, entry) = self.next(head, Value::Hash(Hash::default()))?;
                    self.open = Some(OpenHash { key, entry, last: None, missing });
                }
                Record::Field(field, value) => self.field(field, detach(&value))?,
                Record::LongString(head, len) => self.begin_long(Place::Key(head), len)?,
                Record::LongField(field, len) => self.begin_long(Place::Field(field), len)?,
                Record::Part(bytes) => self.part(&bytes)?,
                Record::Limit(_) if self.count > 0 || self.open.is_some() || self.store.limit.is_some() => {
                    return Err(LoadError::Order);
                }
                Record::Limit(bytes) => self.store.limit = Some(bytes),
                Record::Level(level) => self.level(level)?,
                Record::Users(changes) => self.users(changes)?,
                Record::User(name, user) => self.user(name, user)?,
            }
        }
        Ok(())
    }

    fn level(&mut self, level: FeatureLevel) -> Result<(), LoadError> {
        let store = &self.store;
        let is_first = self.count == 0 && self.open.is_none() && store.limit.is_none();
        if !is_first || store.users.changes() > 0 || store.level > FeatureLevel::FIRST {
            return Err(LoadError::Order);
        }
        if level == FeatureLevel::FIRST {
            return Err(LoadError::Impossible("feature level"));
        }
        self.store.level = level;
        Ok(())
    }

    fn users(&mut self, changes: u64) -> Result<(), LoadError> {
        if self.count > 0 || self.open.is_some() || self.store.users.changes() > 0 {
            return Err(LoadError::Order);
        }
        if changes == 0 {
            return Err(LoadError::Impossible("count of changes to users"));
        }
        self.store.users = Users::load(changes);
        Ok(())
    }

    fn user(&mut self, name: Bytes, user: User) -> Result<(), LoadError> {
        if self.count > 0 || self.open.is_some() || self.store.users.changes() == 0 {
            return Err(LoadError::Order);
        }
        match self.store.users.push(name, user) {
            true => Ok(()),
            false => Err(LoadError::Impossible("user")),
        }
    }

    fn begin_long(&mut self, place: Place, len: u64) -> Result<(), LoadError> {
        let missing = usize::try_from(len).ok().filter(|len| (1..=VALUE_LIMIT).contains(len));
        let missing = missing.ok_or(LoadError::Impossible("string"))?;
        self.long = Some(LongValue { place, bytes: Vec::new(), missing });
        Ok(())
    }

    fn part(&mut self, part: &Bytes) -> Result<(), LoadError> {
        let mut long = self.long.take().ok_or(LoadError::Order)?;
        long.missing = match long.missing.checked_sub(part.len()) {
            Some(missing) if !part.is_empty() => missing,
            _ => return Err(LoadError::Impossible("part of a string")),
        };
        if !self.dry {
            long.bytes.extend_from_slice(part);
        }
        if long.missing > 0 {
            self.long = Some(long);
            return Ok(());
        }
        let value = Bytes::from(long.bytes);
        match long.place {
            Place::Key(head) => self.string(head, value),
            Place::Field(field) => self.field(field, value),
        }
    }

    fn string(&mut self, head: Head, value: Bytes) -> Result<(), LoadError> {
        if value.len() > VALUE_LIMIT {
            return Err(LoadError::Impossible("string"));
        }
        let (key, entry) = self.next(head, Value::String(value))?;
        self.insert(key, entry);
        Ok(())
    }

    fn insert(&mut self, key: Compact, entry: Entry) {
        if !self.dry {
            self.store.insert(key, entry);
        }
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
        // What was due already and not yet removed counts as absent here as well.
        self.store.deadlines.advance(header.time);
        self.header = Some(header);
        Ok(())
    }

    /// Checks the head of the next key.
    fn next(&mut self, head: Head, value: Value) -> Result<(Compact, Entry), LoadError> {
        let Head { key, created, version, deadline } = head;
        let place = order::Place::new(&key);
        if self.open.is_some() || self.last.as_ref().is_some_and(|last| *last >= place) {
            return Err(LoadError::Order);
        }
        if self.header.as_ref().is_none_or(|header| self.count >= header.keys) {
            return Err(LoadError::TooMany);
        }
        if created == 0 || created.max(version) > self.store.revision {
            return Err(LoadError::Impossible("version"));
        }
        if deadline == Some(Wall::ZERO) {
            return Err(LoadError::Impossible("deadline"));
        }
        let key = place.bytes().clone();
        self.count += 1;
        self.last = Some(place);
        Ok((key, Entry { value, created, version, deadline }))
    }

    fn field(&mut self, field: Bytes, value: Bytes) -> Result<(), LoadError> {
        let Some(OpenHash { entry: Entry { value: Value::Hash(hash), .. }, last, missing, .. }) =
            &mut self.open
        else {
            return Err(LoadError::Order);
        };
        let place = order::Place::new(&field);
        if last.as_ref().is_some_and(|last| *last >= place) {
            return Err(LoadError::Order);
        }
        if field.len() > NAME_LIMIT || value.len() > VALUE_LIMIT {
            return Err(LoadError::Impossible("field"));
        }
        if !self.dry {
            hash.insert(&field, value);
        }
        *last = Some(place);
        *missing -= 1;
        if *missing == 0 {
            let OpenHash { key, entry, .. } = self.open.take().expect("a hash is open");
            self.insert(key, entry);
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
