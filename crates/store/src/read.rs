//! Commands that change nothing.
//!
//! The loop of a node stands still while a command is executed, so each has a [`Budget`] of work. Commands that go
//! through many keys or fields stop when it is spent, and say where to go on.

use std::ops::Bound;

use bytes::Bytes;
use quorate_core::Random;

use crate::command::{Command, Key, Single};
use crate::entry::Entry;
use crate::glob::Pattern;
use crate::hash::Hash;
use crate::order::Place;
use crate::reply::{CommandError, Expires, Kind, Reply};
use crate::store::{REPLY_LIMIT, Store};

/// Keys or fields that one command goes through at most, all commands of a batch together.
pub const SCAN_ITEMS: usize = 10_000;

/// A scan stops when its reply has become so large, in bytes.
const SCAN_BYTES: usize = 1 << 20;

/// A scan stops after so many steps of matching a pattern: a few milliseconds.
const SCAN_STEPS: usize = 2 << 20;

/// What an item of a reply counts for apart from its own bytes: what RESP needs to delimit it.
const ITEM_BYTES: usize = 16;

/// How many random places are tried for a key that has not expired, and how many keys are looked at from each.
const RANDOM_PLACES: usize = 16;
const RANDOM_LOOKS: usize = 256;

/// What one command, or all of a batch, may still do.
pub(crate) struct Budget {
    /// Bytes that replies may still take.
    bytes: usize,
    /// Keys or fields to go through.
    items: usize,
    /// Steps of matching patterns.
    steps: usize,
}

impl Budget {
    pub fn new() -> Budget {
        Budget { bytes: REPLY_LIMIT, items: SCAN_ITEMS, steps: SCAN_STEPS }
    }

    /// Takes an item of a reply off; an error if there is no room for it.
    pub fn spend(&mut self, len: usize) -> Result<(), CommandError> {
        self.bytes = self.bytes.checked_sub(ITEM_BYTES + len).ok_or(CommandError::TooLarge)?;
        Ok(())
    }
}

type Answer = Result<Reply, CommandError>;

impl Store {
    /// The reply to a read; `None` if the command may write. Takes what it does off the budget, and refuses what
    /// exceeds it.
    pub(crate) fn answer(&self, command: &Command, budget: &mut Budget) -> Option<Reply> {
        let answer = match command {
            Command::Get { key } => self.get_string(key).map(|value| Reply::Value(value.cloned())),
            Command::GetMany { keys } => Ok(self.get_many(keys)),
            Command::GetRange { key, start, end } => self.get_range(key, *start, *end),
            Command::Length { key } => self.get_string(key).map(|value| count(value.map_or(0, Bytes::len))),
            Command::Exists { keys } => Ok(count(keys.iter().filter(|key| self.live(key).is_some()).count())),
            Command::KindOf { key } => Ok(Reply::Kind(self.live(key).map(Entry::kind))),
            Command::ExpiryOf { key } => Ok(Reply::Expires(match self.live(key) {
                None => Expires::Missing,
                Some(Entry { deadline: None, .. }) => Expires::Never,
                Some(Entry { deadline: Some(deadline), .. }) => Expires::At(deadline.millis()),
            })),
            Command::VersionsOf { keys } => {
                Ok(Reply::Versions(keys.iter().map(|key| self.version(key)).collect()))
            }
            Command::HashGet { key, fields } => self.get_hash(key).map(|hash| {
                let value = |field: &Bytes| hash.and_then(|hash| hash.get(field)).cloned();
                Reply::Values(fields.iter().map(value).collect())
            }),
            Command::HashAll { key } => self.get_hash(key).and_then(|hash| all_pairs(hash, budget)),
            Command::HashLength { key } => self.get_hash(key).map(|hash| count(hash.map_or(0, Hash::len))),
            Command::HashScan { key, from, limit, pattern } => {
                self.scan_hash(key, (*from, *limit), pattern.as_ref(), budget)
            }
            Command::Scan { from, limit, pattern, kind } => {
                self.scan((*from, *limit), pattern.as_ref(), *kind, budget)
            }
            Command::Count => Ok(count(self.len())),
            Command::UserChanges => Ok(Reply::Integer(self.users.changes() as i64)),
            Command::Users => Ok(self.all_users()),
            Command::Level => Ok(Reply::Integer(self.level.get().into())),
            Command::Settings => Ok(self.settings()),
            Command::RandomKey { seed } => Ok(Reply::Value(self.random_key(*seed))),
            Command::Batch { watched, commands } if command.is_read_only() => {
                return Some(self.read_batch(watched, commands, budget));
            }
            Command::Put { .. }
            | Command::PutMany { .. }
            | Command::Delete { .. }
            | Command::Take { .. }
            | Command::Increment { .. }
            | Command::IncrementFloat { .. }
            | Command::Append { .. }
            | Command::SetExpiry { .. }
            | Command::HashPut { .. }
            | Command::HashDelete { .. }
            | Command::HashIncrement { .. }
            | Command::Refresh { .. }
            | Command::PutRange { .. }
            | Command::HashIncrementFloat { .. }
            | Command::LimitData { .. }
            | Command::DiskFull { .. }
            | Command::MemoryFull { .. }
            | Command::Clear
            | Command::SetUsers { .. }
            | Command::DeleteUsers { .. }
            | Command::RaiseLevel { .. }
            | Command::Batch { .. } => return None,
        };
        let spent = answer.as_ref().map_or(0, size);
        Some(if spent > budget.bytes {
            Reply::Error(CommandError::TooLarge)
        } else {
            budget.bytes -= spent;
            answer.unwrap_or_else(Reply::Error)
        })
    }

    fn all_users(&self) -> Reply {
        let users = self.users.iter().map(|(name, user)| (name.clone(), user.clone())).collect();
        Reply::Users { changes: self.users.changes(), users }
    }

    /// The string at a key, if there is one; an error for another kind.
    pub(crate) fn get_string(&self, key: &Key) -> Result<Option<&Bytes>, CommandError> {
        self.live(key).map(Entry::string).transpose()
    }

    fn get_hash(&self, key: &Key) -> Result<Option<&Hash>, CommandError> {
        self.live(key).map(Entry::hash).transpose()
    }

    fn get_many(&self, keys: &[Key]) -> Reply {
        let string = |key: &Key| self.live(key).and_then(|entry| entry.string().ok()).cloned();
        Reply::Values(keys.iter().map(string).collect())
    }

    /// As Redis: an end before the start gives nothing, except that a position before the string is its first byte.
    fn get_range(&self, key: &Key, start: i64, end: i64) -> Answer {
        let empty = Ok(Reply::Value(Some(Bytes::new())));
        let Some(value) = self.get_string(key)? else { return empty };
        let len = value.len() as i64;
        if len == 0 || (start < 0 && end < 0 && start > end) {
            return empty;
        }
        let position = |at: i64| if at < 0 { (len + at.max(-len)).max(0) } else { at };
        let (start, end) = (position(start), position(end).min(len - 1));
        if start > end {
            return empty;
        }
        Ok(Reply::Value(Some(value.slice(start as usize..=end as usize))))
    }

    fn scan(
        &self,
        (from, limit): (u64, u32),
        pattern: Option<&Bytes>,
        kind: Option<Kind>,
        budget: &mut Budget,
    ) -> Answer {
        let mut walk = Walk::new(limit, pattern, budget)?;
        let mut keys = Vec::new();
        // Without a reason to, what is stored at the keys is not looked at: it is elsewhere in memory.
        let looks = kind.is_some() || self.deadlines.due() > 0;
        for place in self.keys.places((Bound::Included(Place::start(from)), Bound::Unbounded)) {
            let entry = if looks { self.live(place.bytes()) } else { None };
            let is_there = !looks || entry.is_some();
            if walk.ends_before(place, is_there) {
                return Ok(Reply::Keys { keys, next: Some(place.position()) });
            }
            let is_listed = is_there && kind.is_none_or(|kind| entry.map(Entry::kind) == Some(kind));
            if is_listed && walk.matches(place)? {
                let key = place.bytes().to_bytes();
                walk.takes(key.len());
                keys.push(key);
            }
        }
        Ok(Reply::Keys { keys, next: None })
    }

    fn scan_hash(
        &self,
        key: &Key,
        (from, limit): (u64, u32),
        pattern: Option<&Bytes>,
        budget: &mut Budget,
    ) -> Answer {
        let (hash, version) = (self.get_hash(key)?, self.version(key));
        let mut walk = Walk::new(limit, pattern, budget)?;
        let (mut pairs, mut next) = (Vec::new(), None);
        for (place, value) in hash.iter().flat_map(|hash| hash.from(Bound::Included(&Place::start(from)))) {
            if walk.ends_before(place, true) {
                next = Some(place.position());
                break;
            }
            if walk.matches(place)? {
                walk.takes(place.bytes().len() + value.len());
                pairs.push((place.bytes().to_bytes(), value.clone()));
            }
        }
        Ok(Reply::Fields { pairs, next, version })
    }

    /// The first key that has not expired after a random place in the order.
    fn random_key(&self, seed: u64) -> Option<Key> {
        let mut random = Random::new(seed);
        (0..RANDOM_PLACES).find_map(|_| {
            let start = Place::start(random.u64() >> 11);
            let after = self.keys.places((Bound::Included(start), Bound::Unbounded));
            let places = after.chain(self.keys.places((Bound::Unbounded, Bound::Unbounded)));
            let mut keys = places.take(RANDOM_LOOKS).map(Place::bytes);
            keys.find(|key| self.live(key).is_some()).map(|key| key.to_bytes())
        })
    }

    fn read_batch(&self, watched: &[(Key, u64)], commands: &[Single], budget: &mut Budget) -> Reply {
        if !self.is_unchanged(watched) {
            return Reply::Batch(None);
        }
        let replies = commands.iter().map(|Single(command)| match command {
            Command::Batch { .. } => Reply::Error(CommandError::Malformed),
            command => self.answer(command, budget).expect("a batch that reads has no writes"),
        });
        Reply::Batch(Some(replies.collect()))
    }

    /// Whether every watched key still has its version.
    pub(crate) fn is_unchanged(&self, watched: &[(Key, u64)]) -> bool {
        watched.iter().all(|(key, version)| self.version(key) == *version)
    }
}

/// A number of things, as a reply.
pub(crate) fn count(things: usize) -> Reply {
    Reply::Integer(things as i64)
}

fn all_pairs(hash: Option<&Hash>, budget: &mut Budget) -> Answer {
    let Some(hash) = hash else { return Ok(Reply::Pairs(Vec::new())) };
    // Before they are gathered: a batch may ask for the same large hash again and again.
    budget.items = budget.items.checked_sub(hash.len()).ok_or(CommandError::TooMuch)?;
    Ok(Reply::Pairs(hash.iter().map(|(place, value)| (place.bytes().to_bytes(), value.clone())).collect()))
}

/// One scan on its way through keys or fields.
struct Walk<'a> {
    budget: &'a mut Budget,
    pattern: Option<Pattern>,
    /// Keys or fields that it may still look at.
    items: usize,
    /// Bytes that its reply may still take.
    bytes: usize,
    /// The position in the table of what it looked at last; `None` before the first.
    position: Option<u64>,
}

impl<'a> Walk<'a> {
    fn new(limit: u32, pattern: Option<&Bytes>, budget: &'a mut Budget) -> Result<Self, CommandError> {
        if budget.items == 0 || budget.steps == 0 {
            return Err(CommandError::TooMuch);
        }
        let pattern = pattern.map(|pattern| Pattern::new(pattern)).transpose();
        let pattern = pattern.map_err(|_| CommandError::PatternTooLong)?;
        let items = limit.max(1) as usize;
        let bytes = budget.bytes.min(SCAN_BYTES);
        Ok(Walk { budget, pattern, items, bytes, position: None })
    }

    /// Whether the scan ends before this place. It goes to the end of a position: it can only go on from the next. A
    /// key that has expired is work, and nothing else.
    fn ends_before(&mut self, place: &Place, is_there: bool) -> bool {
        let is_done = self.items == 0 || self.bytes == 0 || self.budget.steps == 0;
        let is_spent = self.budget.items == 0 || is_done && is_there;
        if is_spent && self.position.is_some_and(|position| position != place.position()) {
            return true;
        }
        self.position = Some(place.position());
        self.items = self.items.saturating_sub(is_there.into());
        self.budget.items = self.budget.items.saturating_sub(1);
        false
    }

    fn matches(&mut self, place: &Place) -> Result<bool, CommandError> {
        let Some(pattern) = &self.pattern else { return Ok(true) };
        let text = place.bytes();
        let steps = pattern.steps(text.len());
        if steps > SCAN_STEPS {
            return Err(CommandError::TooMuch);
        }
        self.budget.steps = self.budget.steps.saturating_sub(steps);
        Ok(pattern.matches(text))
    }

    /// So many bytes are in the reply.
    fn takes(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(ITEM_BYTES + bytes);
    }
}

/// What a reply takes off the budget.
fn size(reply: &Reply) -> usize {
    let item = |value: &Bytes| ITEM_BYTES + value.len();
    match reply {
        Reply::Value(value) => value.as_ref().map_or(ITEM_BYTES, item),
        Reply::Values(values) => values.iter().map(|value| value.as_ref().map_or(ITEM_BYTES, item)).sum(),
        Reply::Pairs(pairs) | Reply::Fields { pairs, .. } => {
            pairs.iter().map(|(field, value)| item(field) + item(value)).sum()
        }
        Reply::Keys { keys, .. } => keys.iter().map(item).sum(),
        Reply::Versions(versions) => versions.len() * ITEM_BYTES,
        Reply::Users { users, .. } => users.iter().map(|(name, user)| item(name) + user.size()).sum(),
        Reply::Done
        | Reply::Skipped
        | Reply::Integer(_)
        | Reply::Kind(_)
        | Reply::Expires(_)
        | Reply::Batch(_)
        | Reply::Error(_)
        | Reply::NotRetained => ITEM_BYTES,
    }
}
