//! Commands that change nothing.

use std::ops::Bound;

use bytes::Bytes;
use quorate_core::Random;

use crate::command::{Command, Key, Single};
use crate::compact::Compact;
use crate::entry::Entry;
use crate::glob;
use crate::hash::Hash;
use crate::reply::{CommandError, Expires, Kind, Reply};
use crate::store::Store;

/// What an item of a reply counts for apart from its own bytes.
pub(crate) const ITEM_BYTES: usize = 32;

type Answer = Result<Reply, CommandError>;

impl Store {
    /// The reply to a read; `None` if the command may write. Takes what it returns off the budget, in bytes, and
    /// refuses what exceeds it.
    pub(crate) fn answer(&self, command: &Command, budget: &mut usize) -> Option<Reply> {
        let answer = match command {
            Command::Get { key } => self.get_string(key).map(|value| Reply::Value(value.cloned())),
            Command::GetMany { keys } => Ok(self.get_many(keys)),
            Command::GetRange { key, start, end } => self.get_range(key, *start, *end),
            Command::Length { key } => self.get_string(key).map(|value| count(value.map_or(0, Bytes::len))),
            Command::Exists { keys } => {
                Ok(count(keys.iter().filter(|key| self.keys.contains_key(&key[..])).count()))
            }
            Command::KindOf { key } => Ok(Reply::Kind(self.keys.get(&key[..]).map(Entry::kind))),
            Command::ExpiryOf { key } => Ok(Reply::Expires(match self.keys.get(&key[..]) {
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
            Command::HashAll { key } => self.get_hash(key).and_then(|hash| pairs(hash, *budget)),
            Command::HashLength { key } => self.get_hash(key).map(|hash| count(hash.map_or(0, Hash::len))),
            Command::Scan { after, limit, pattern, kind } => {
                self.scan(after.as_ref(), *limit, pattern.as_ref(), *kind, *budget)
            }
            Command::Count => Ok(count(self.keys.len())),
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
            | Command::Clear
            | Command::Batch { .. } => return None,
        };
        let spent = answer.as_ref().map_or(0, size);
        Some(if spent > *budget {
            Reply::Error(CommandError::TooLarge)
        } else {
            *budget -= spent;
            answer.unwrap_or_else(Reply::Error)
        })
    }

    /// The string at a key, if there is one; an error for another kind.
    pub(crate) fn get_string(&self, key: &Key) -> Result<Option<&Bytes>, CommandError> {
        self.keys.get(&key[..]).map(Entry::string).transpose()
    }

    fn get_hash(&self, key: &Key) -> Result<Option<&Hash>, CommandError> {
        self.keys.get(&key[..]).map(Entry::hash).transpose()
    }

    fn get_many(&self, keys: &[Key]) -> Reply {
        let string = |key: &Key| self.keys.get(&key[..]).and_then(|entry| entry.string().ok()).cloned();
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

    /// Stops where the budget does, like at the limit; a reply that has no room for its first key is an error.
    fn scan(
        &self,
        after: Option<&Key>,
        limit: u32,
        pattern: Option<&Bytes>,
        kind: Option<Kind>,
        budget: usize,
    ) -> Answer {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&after[..]));
        let mut rest = self.keys.range((from, Bound::Unbounded)).peekable();
        let mut keys = Vec::new();
        let (mut looked, mut room, mut last) = (0, budget, None);
        while let Some((key, entry)) = rest.next() {
            if pattern.is_none_or(|pattern| glob::matches(pattern, key))
                && kind.is_none_or(|kind| entry.kind() == kind)
            {
                match room.checked_sub(ITEM_BYTES + key.len()) {
                    Some(left) => room = left,
                    None if keys.is_empty() => return Err(CommandError::TooLarge),
                    None => return Ok(Reply::Keys { keys, next: last.map(Compact::to_bytes) }),
                }
                keys.push(key.to_bytes());
            }
            looked += 1;
            if looked >= limit && rest.peek().is_some() {
                return Ok(Reply::Keys { keys, next: Some(key.to_bytes()) });
            }
            last = Some(key);
        }
        Ok(Reply::Keys { keys, next: None })
    }

    /// Walks down the tree of common prefixes and takes a random branch at each fork.
    fn random_key(&self, seed: u64) -> Option<Key> {
        let mut random = Random::new(seed);
        // The first and the last key of the branch taken so far.
        let (mut low, mut high) = (self.keys.first()?, self.keys.last()?);
        while low != high {
            let fork = low.iter().zip(high.iter()).take_while(|(a, b)| a == b).count();
            let Some(first) = low.get(fork) else {
                // `low` ends at the fork: it is a branch of its own.
                if random.chance(0.1) {
                    break;
                }
                low = self
                    .keys
                    .range((Bound::Excluded(&low[..]), Bound::Unbounded))
                    .next()
                    .map_or(high, |(key, _)| key);
                continue;
            };
            let (first, last) = (u64::from(*first), u64::from(high[fork]));
            let prefix = |byte: u64| [&low[..fork], &[byte as u8]].concat();
            // Most bytes lead nowhere: try some, so that a branch after a gap is not taken more often than others.
            let taken = (0..16).map(|_| random.range(first..last + 1)).find(|byte| {
                *byte == first
                    || *byte == last
                    || self
                        .keys
                        .at_or_after(&prefix(*byte)[..])
                        .is_some_and(|key| u64::from(key[fork]) == *byte)
            });
            let taken = taken.unwrap_or_else(|| *random.pick(&[first, last]));
            let (from, beyond) = (prefix(taken), prefix(taken + 1));
            if taken < last {
                high = self.keys.before(&beyond).unwrap_or(high);
            }
            low = self.keys.at_or_after(&from).unwrap_or(low);
        }
        Some(low.to_bytes())
    }

    fn read_batch(&self, watched: &[(Key, u64)], commands: &[Single], budget: &mut usize) -> Reply {
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

fn pairs(hash: Option<&Hash>, budget: usize) -> Answer {
    let Some(hash) = hash else { return Ok(Reply::Pairs(Vec::new())) };
    // Before they are gathered: a batch may ask for the same large hash again and again.
    if hash.bytes() > budget {
        return Err(CommandError::TooLarge);
    }
    Ok(Reply::Pairs(hash.after(None).map(|(field, value)| (field.to_bytes(), value.clone())).collect()))
}

/// What a reply takes off the budget.
fn size(reply: &Reply) -> usize {
    let item = |value: &Bytes| ITEM_BYTES + value.len();
    match reply {
        Reply::Value(value) => value.as_ref().map_or(ITEM_BYTES, item),
        Reply::Values(values) => values.iter().map(|value| value.as_ref().map_or(ITEM_BYTES, item)).sum(),
        Reply::Pairs(pairs) => pairs.iter().map(|(field, value)| item(field) + item(value)).sum(),
        Reply::Keys { keys, .. } => keys.iter().map(item).sum(),
        Reply::Versions(versions) => versions.len() * ITEM_BYTES,
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
