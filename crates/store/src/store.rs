//! The state and its clock.
//!
//! **Time** is replicated: it comes with log positions and never goes back. A key whose deadline is not after the
//! present counts as absent for every command from that position on, at all replicas. It is removed at that position or
//! later: each removes a bounded number ([`deadlines`](crate::deadlines)). A read between two positions sees the state
//! as of the last; [`Store::is_current`] tells whether the reader's own
//! clock says that something it touches is overdue, and then the log must be asked.
//!
//! **Versions**: a key's version is the revision of its last change. Revisions grow with every write, so a key that
//! is removed and made again never has a version twice.

use std::fmt;

use bytes::Bytes;
use quorate_core::{FeatureLevel, Image, Payload, Wall, Wire, digest, mutation};

use crate::command::{Command, Key, first_key};
use crate::compact::Compact;
use crate::deadlines::Deadlines;
use crate::entry::{DETACH, Entry, Value, detach};
use crate::footprint::Extent;
use crate::process;
use crate::read::Budget;
use crate::reply::{CommandError, Reply};
use crate::settings;
use crate::snapshot::Frozen;
use crate::table::Table;
use crate::users::{UserRule, Users};

/// The largest string, in bytes. The same at all replicas: whether a command is refused is part of its result. With
/// [`REPLY_LIMIT`], below what one message between nodes may carry.
pub const VALUE_LIMIT: usize = 64 << 20;

/// The longest field of a hash, in bytes; keys are no longer either, as those who take commands in see to. A name is
/// part of every cursor that leads behind it, so it must be small beside a message.
pub const NAME_LIMIT: usize = 1 << 20;

/// What the reads of one command may return together, in bytes: a short command that names a large value a thousand
/// times must not become a reply that no replica can hold.
pub const REPLY_LIMIT: usize = 72 << 20;

/// Keys that a command removes because their time is up, where it touches all keys and commands have no common time.
pub const EXPIRED_WITH_ALL: usize = 1024;

/// Keys that one log position removes of those that have expired: a few milliseconds.
pub const EXPIRE_LIMIT: usize = 1024;

/// So many keys are looked for at once before the first of them is used: the cache misses of finding them overlap then,
/// where one after the other they would be half of the time that it takes to execute commands.
pub const AHEAD: usize = 16;

/// A value with more fields than this is discarded by whoever the process has chosen for it.
const LARGE: usize = 1024;

/// The key-value state machine. A clone is a snapshot and costs next to nothing: it shares all.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Store {
    pub(crate) keys: Table,
    /// The deadline of each key that has one.
    pub(crate) deadlines: Deadlines,
    /// The latest time seen.
    pub(crate) time: Wall,
    /// The revision of the last write.
    pub(crate) revision: u64,
    /// The sum of [`Entry::bytes`].
    pub(crate) bytes: usize,
    /// What it may be; `None` where not all commands are ordered.
    pub(crate) limit: Option<u64>,
    /// Who may ask for what; no key, and so in the way of none.
    pub(crate) users: Users,
    /// Commands of later levels are malformed.
    pub(crate) level: FeatureLevel,
}

/// A key with its value, for whoever reads all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue<'a> {
    /// As clients wrote it; it need not be UTF-8.
    pub key: &'a [u8],
    /// Of one of the kinds.
    pub value: StoredValue<'a>,
    /// The wall-clock time from which it is gone; `None`: never.
    pub expires: Option<Wall>,
}

/// The value of a [`KeyValue`], as its kind has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// [`Kind::String`](crate::Kind::String).
    String(&'a [u8]),
    /// [`Kind::Hash`](crate::Kind::Hash): fields with their values in the order of scans, at least one.
    Hash(Vec<(&'a [u8], &'a [u8])>),
}

impl Store {
    /// An empty store, before anything happened.
    pub fn new() -> Store {
        Store::default()
    }

    /// The command that these bytes are. What is none, and what belongs to a later level than the state's, is
    /// [malformed](CommandError::Malformed): to builds that know that level exactly as to those that do not, so that
    /// replicas of both remain alike.
    pub fn decode(&self, command: &Bytes) -> Result<Command, CommandError> {
        match Command::from_bytes(command.clone()) {
            Ok(command) if command.level() <= self.level || mutation::active("store/below-the-level") => {
                Ok(command)
            }
            Ok(_) | Err(_) => Err(CommandError::Malformed),
        }
    }

    /// Executes one command ([`decode`](Self::decode)) at a log position: first time moves on to `now` (a time in the
    /// past counts as the latest one seen), and keys that are due count as absent, then the command happens.
    ///
    /// `revision` becomes the version of what it changes. Each write must have a larger one than all before; a read's
    /// is ignored.
    pub fn apply(&mut self, command: &Command, revision: u64, now: Wall) -> Reply {
        self.move_to(now);
        match self.answer(command, &mut Budget::new()) {
            Some(reply) => reply,
            None => {
                assert!(revision > self.revision, "revision {revision} comes after {}", self.revision);
                self.revision = revision;
                match command {
                    Command::RaiseLevel { to, if_new } => self.raise(*to, !if_new || revision == 1),
                    command => self.execute(command),
                }
            }
        }
    }

    /// Executes one command where only commands in conflict are ordered. Nothing that happens at one key may then
    /// show at another: time is that of the command alone, and what it reads or writes expires by it and nothing else
    /// does (where it reads everything, the first [`EXPIRED_WITH_ALL`] keys). A command that is in conflict with a read
    /// of a key is therefore in conflict with this one, too, though it may only read that key.
    /// Versions grow with the changes of a key: each becomes `version`, or the next after the last one if that is
    /// higher. The number must never be used twice, and have room above it for changes in between.
    pub fn apply_unordered(&mut self, command: &Command, version: u64, now: Wall) -> Reply {
        let footprint = command.footprint();
        for extent in [footprint.writes(), footprint.reads()] {
            match extent {
                _ if mutation::active("store/overdue-reads") && extent == footprint.reads() => {}
                Extent::Keys(keys) => self.expire(keys.as_slice(), now),
                Extent::Everything => self.expire(&self.overdue(now, EXPIRED_WITH_ALL), now),
            }
        }
        match command {
            Command::LimitData { .. } => return Reply::Error(CommandError::Unordered),
            // It is in conflict with every other command: all replicas execute it after the same ones.
            Command::RaiseLevel { to, if_new } => {
                let is_new = self.keys.len() == 0 && self.users.changes() == 0;
                return self.raise(*to, !if_new || is_new);
            }
            _ => {}
        }
        (self.time, self.revision) = (now, version);
        let reply = self.answer(command, &mut Budget::new()).unwrap_or_else(|| self.execute(command));
        // Between commands neither has a meaning; the image of the state must not depend on the last one.
        (self.time, self.revision) = (Wall::ZERO, u64::MAX);
        reply
    }

    /// A level that this build does not know is taken over all the same: the state is what it should be, and whoever
    /// has it must stop before anything comes of it.
    fn raise(&mut self, to: FeatureLevel, may: bool) -> Reply {
        if !may || to < self.level {
            return Reply::Skipped;
        }
        self.level = to;
        Reply::Done
    }

    /// Makes it what another group may begin with: nothing is due, and a revision above the present one is above every
    /// version, whether commands were ordered or not.
    pub fn settle(&mut self) {
        while self.unremoved() > 0 {
            self.advance(self.time);
        }
        if self.revision == u64::MAX {
            self.revision = self.keys.iter().map(|(_, entry)| entry.version).max().unwrap_or(0);
        }
    }

    /// The same for a group whose commands are not ordered: neither time nor revision has a meaning between two.
    pub fn settle_unordered(&mut self) {
        self.settle();
        (self.time, self.revision) = (Wall::ZERO, u64::MAX);
        self.limit = None;
    }

    /// Removes those of the keys whose time is up by `now`, without an effect on others.
    pub fn expire(&mut self, keys: &[Key], now: Wall) {
        for key in keys {
            let deadline = self.keys.get(&key[..]).and_then(|entry| entry.deadline);
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.remove(key);
            }
        }
    }

    /// Keys whose time is up on this wall clock, the first few.
    pub fn overdue(&self, wall: Wall, limit: usize) -> Vec<Key> {
        self.deadlines.until(wall).take(limit).map(|key| Key::copy_from_slice(key)).collect()
    }

    /// Looks for the keys of encoded commands that will be executed soon, the first [`AHEAD`], for no other effect than
    /// that they are found faster then.
    pub fn touch<'a>(&'a self, commands: impl Iterator<Item = &'a Bytes>) {
        self.keys.touch(commands.filter_map(|command| first_key(command)));
    }

    /// Answers a read from the present state. A write is refused as malformed.
    pub fn read(&self, command: &Command) -> Reply {
        self.answer(command, &mut Budget::new()).unwrap_or(Reply::Error(CommandError::Malformed))
    }

    /// The same, encoded. The string at one key is copied, once, unless it is large: to share it would allocate a
    /// counter for it, in memory that every further read of it had to load.
    pub fn read_encoded(&self, command: &Command) -> Payload {
        if let Command::Get { key } = command
            && let Ok(Some(value)) = self.get_string(key)
        {
            return Reply::encoded_value(value);
        }
        self.read(command).encoded().into()
    }

    /// Whether there is anything at this key.
    pub fn contains(&self, key: &Key) -> bool {
        self.keys.get(&key[..]).is_some()
    }

    /// Whether no key that the command touches is overdue on this wall clock. If one is, the log has to decide
    /// whether it has expired; the present state cannot.
    pub fn is_current(&self, command: &Command, wall: Wall) -> bool {
        let Some(next) = self.next_expiry() else { return true };
        if next > wall {
            return true;
        }
        let footprint = command.footprint();
        [footprint.reads(), footprint.writes()].into_iter().all(|extent| match extent {
            Extent::Everything => false,
            Extent::Keys(keys) => keys.as_slice().iter().all(|key| {
                let deadline = self.live(key).and_then(|entry| entry.deadline);
                deadline.is_none_or(|deadline| deadline > wall)
            }),
        })
    }

    /// Begins a log position: moves time on, and removes keys that are due, at most [`EXPIRE_LIMIT`]. How many that
    /// were. The others count as absent, and are removed at later positions.
    pub fn advance(&mut self, now: Wall) -> usize {
        self.move_to(now);
        let mut removed = 0;
        while removed < EXPIRE_LIMIT
            && let Some(key) = self.deadlines.first_due()
        {
            let key = key.clone();
            assert!(self.remove(&key), "keys that are due are there until they are removed");
            removed += 1;
        }
        removed
    }

    /// Moves time on: keys that are due count as absent.
    fn move_to(&mut self, now: Wall) {
        self.time = self.time.max(now);
        if !mutation::active("store/due-keys-visible") {
            self.deadlines.advance(self.time);
        }
    }

    /// What is stored at a key, unless that counts as absent.
    pub(crate) fn live(&self, key: &[u8]) -> Option<&Entry> {
        self.keys.get(key).filter(|entry| !self.deadlines.is_due(entry.deadline))
    }

    /// When the next key expires, if one ever does.
    pub fn next_expiry(&self) -> Option<Wall> {
        self.deadlines.next()
    }

    /// How many keys have expired and are still to be removed.
    pub fn unremoved(&self) -> usize {
        self.deadlines.due()
    }

    /// The latest time seen.
    pub fn time(&self) -> Wall {
        self.time
    }

    /// The revision of the last write, 0 before the first.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len() - self.deadlines.due()
    }

    /// All keys with what is there, in the order of scans.
    pub fn entries(&self) -> impl Iterator<Item = KeyValue<'_>> {
        let live = |entry: &Entry| !self.deadlines.is_due(entry.deadline);
        self.keys.iter().filter(move |(_, entry)| live(entry)).map(|(key, entry)| {
            let value = match &entry.value {
                Value::String(string) => StoredValue::String(string),
                Value::Hash(hash) => {
                    let fields = hash.iter().map(|(place, value)| (&place.bytes()[..], &value[..]));
                    StoredValue::Hash(fields.collect())
                }
            };
            KeyValue { key, value, expires: entry.deadline }
        })
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them have a time to live.
    pub fn expiring(&self) -> usize {
        self.deadlines.live()
    }

    /// About how much memory the keys and values take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What that may be, if it is bounded.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The answer to [`Command::Settings`], with decimal values.
    pub(crate) fn settings(&self) -> Reply {
        let limit = self.limit.unwrap_or(0).to_string();
        let level = self.level.get().to_string();
        let pair = |name: &'static str, value: String| (Bytes::from_static(name.as_bytes()), value.into());
        Reply::Pairs(vec![pair(settings::FEATURE_LEVEL, level), pair(settings::MAX_DATA, limit)])
    }

    /// Which commands may be executed.
    pub fn level(&self) -> FeatureLevel {
        self.level
    }

    /// Gives the data of a new cluster these users in place of those that they have.
    ///
    /// # Errors
    ///
    /// If a rule cannot be carried out, or the users would take too many bytes; nothing is changed then.
    pub fn replace_users(&mut self, users: &[(Bytes, Vec<UserRule>)]) -> Result<(), CommandError> {
        self.users.replace(users)
    }

    /// Who may ask for what.
    pub fn users(&self) -> &Users {
        &self.users
    }

    /// An image of the present, which later writes leave as it is. Costs the same for any size.
    pub fn freeze(&self) -> Frozen {
        Frozen::new(self)
    }

    /// A digest of the whole state: the level, users, keys, values, versions, deadlines, the revision and the time.
    /// Reads everything.
    pub fn digest(&self) -> u64 {
        let image = self.freeze();
        let mut cursor = Bytes::new();
        let mut all = 0u64;
        loop {
            let piece = image.piece(&cursor, 1 << 20);
            all = digest(&[all, digest(&piece.bytes)].map(u64::to_le_bytes).concat());
            match piece.next {
                Some(next) => cursor = next,
                None => return all,
            }
        }
    }

    /// The version of a key, 0 if it is absent.
    pub(crate) fn version(&self, key: &Key) -> u64 {
        self.live(key).map_or(0, |entry| entry.version)
    }

    /// Gives a key a value, at the present revision. A deadline that is not in the future removes the key.
    pub(crate) fn set(&mut self, key: &Key, value: Value, deadline: Option<Wall>) {
        self.change(key, deadline, |before| {
            free(before);
            value
        });
    }

    /// The same with a string; one that is as long, and that nobody else holds, is overwritten where it is.
    pub(crate) fn set_string(&mut self, key: &Key, value: &Bytes, deadline: Option<Wall>) {
        self.change(key, deadline, |before| match before {
            Value::String(before) if before.len() == value.len() => {
                Value::String(overwritten(before, value).unwrap_or_else(|| detach(value)))
            }
            before => {
                free(before);
                Value::String(detach(value))
            }
        });
    }

    /// Makes the value at a key (an empty string if it is absent) another one.
    fn change(&mut self, key: &Key, deadline: Option<Wall>, new: impl FnOnce(Value) -> Value) {
        if deadline.is_some_and(|deadline| deadline <= self.time) {
            self.remove(key);
            return;
        }
        let Some((key, entry)) = self.keys.get_key_value_mut(&key[..]) else {
            let (value, revision) = (new(Value::String(Bytes::new())), self.revision);
            self.insert(Compact::new(key), Entry { value, created: revision, version: revision, deadline });
            return;
        };
        self.bytes -= entry.bytes(key);
        entry.value = new(std::mem::replace(&mut entry.value, Value::String(Bytes::new())));
        entry.change(self.revision);
        self.deadlines.change(key, entry.deadline, deadline);
        entry.deadline = deadline;
        self.bytes += entry.bytes(key);
    }

    /// Makes the entry at a key another one, or adds it.
    pub(crate) fn put_entry(&mut self, key: &Key, new: Entry) {
        let Some((key, entry)) = self.keys.get_key_value_mut(&key[..]) else {
            return self.insert(Compact::new(key), new);
        };
        self.bytes -= entry.bytes(key);
        self.bytes += new.bytes(key);
        self.deadlines.change(key, entry.deadline, new.deadline);
        free(std::mem::replace(entry, new).value);
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Compact, entry: Entry) {
        self.bytes += entry.bytes(&key);
        if let Some(deadline) = entry.deadline {
            self.deadlines.insert(deadline, key.clone());
        }
        self.keys.insert(key, entry);
    }

    /// Removes a key. Whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((key, entry)) = self.keys.remove_with_key(key) else { return false };
        self.bytes -= entry.bytes(&key);
        if let Some(deadline) = entry.deadline {
            self.deadlines.remove(deadline, key);
        }
        free(entry.value);
        true
    }

    /// Removes all keys; users stay.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.deadlines.clear();
        self.bytes = 0;
    }
}

/// A string in the memory of one that is as long; `None` if that has another owner, or is so long that the new one's is
/// not copied.
fn overwritten(before: Bytes, value: &Bytes) -> Option<Bytes> {
    let mut buffer = before.try_into_mut().ok().filter(|before| before.len() < DETACH)?;
    buffer.copy_from_slice(value);
    Some(buffer.freeze())
}

/// Frees a value, which may be large.
fn free(value: Value) {
    match value {
        Value::Hash(hash) if hash.len() > LARGE => process::discard(hash),
        Value::Hash(_) | Value::String(_) => {}
    }
}

impl fmt::Debug for Store {
    /// A summary: the state may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("keys", &self.keys.len())
            .field("bytes", &self.bytes)
            .field("revision", &self.revision)
            .field("time", &self.time)
            .field("users", &self.users)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}
