//! Commands that change something.

use bytes::{Bytes, BytesMut};
use quorate_core::Wall;

use crate::command::{Command, Condition, Expiry, ExpiryCondition, Key, Single};
use crate::entry::{Entry, Value, detach};
use crate::float;
use crate::footprint::Extent;
use crate::hash::Hash;
use crate::integer;
use crate::read::{Budget, count};
use crate::reply::{CommandError, Reply};
use crate::store::{NAME_LIMIT, Store, VALUE_LIMIT};

type Answer = Result<Reply, CommandError>;

impl Store {
    /// Executes a write at the present revision and time. An error changes nothing.
    pub(crate) fn execute(&mut self, command: &Command) -> Reply {
        match command {
            Command::Batch { watched, commands } => self.batch(watched, commands),
            command => self.execute_single(command).unwrap_or_else(Reply::Error),
        }
    }

    fn execute_single(&mut self, command: &Command) -> Answer {
        // What it writes must not find what counts as absent.
        if self.deadlines.due() > 0
            && let Extent::Keys(keys) = command.footprint().writes()
        {
            self.expire(keys.as_slice(), self.time);
        }
        if self.limit.is_some_and(|limit| self.bytes as u64 >= limit) && command.grows() {
            return Err(CommandError::DataLimit);
        }
        match command {
            Command::Put { key, value, condition, expiry, old } => {
                self.put(key, value, *condition, *expiry, *old)
            }
            Command::PutMany { pairs, if_none } => self.put_many(pairs, *if_none),
            Command::Delete { keys } => Ok(count(keys.iter().filter(|key| self.remove(key)).count())),
            Command::Take { key } => {
                let value = self.get_string(key)?.cloned();
                self.remove(key);
                Ok(Reply::Value(value))
            }
            Command::Increment { key, by } => self.increment(key, *by),
            Command::IncrementFloat { key, by } => self.increment_float(key, by),
            Command::Append { key, value } => self.append(key, value),
            Command::SetExpiry { key, expiry, condition } => Ok(self.set_expiry(key, *expiry, *condition)),
            Command::HashPut { key, fields, if_absent } => self.hash_put(key, fields, *if_absent),
            Command::HashDelete { key, fields } => self.edit_hash(key, |hash| {
                let removed = fields.iter().filter(|field| hash.remove(field)).count();
                Ok((count(removed), removed > 0))
            }),
            Command::HashIncrement { key, field, by } => self.edit_hash(key, |hash| {
                is_name(field)?;
                let sum = add(hash.get(field), *by, CommandError::FieldNotInteger)?;
                hash.insert(field, Bytes::from(sum.to_string()));
                Ok((Reply::Integer(sum), true))
            }),
            Command::Refresh { key, expiry } => {
                let value = self.get_string(key)?.cloned();
                self.set_expiry(key, *expiry, ExpiryCondition::Always);
                Ok(Reply::Value(value))
            }
            Command::PutRange { key, offset, value } => self.put_range(key, *offset, value),
            Command::HashIncrementFloat { key, field, by } => {
                float::finite(by)?;
                is_name(field)?;
                self.edit_hash(key, |hash| {
                    let before = hash.get(field).map_or(&b"0"[..], |value| value);
                    let sum = float::sum(before, by).map_err(|error| match error {
                        CommandError::NotFloat => CommandError::FieldNotFloat,
                        error => error,
                    })?;
                    hash.insert(field, Bytes::from(sum.clone()));
                    Ok((Reply::Value(Some(sum.into())), true))
                })
            }
            Command::Clear => {
                self.clear();
                Ok(Reply::Done)
            }
            Command::LimitData { bytes: Some(bytes) } if *bytes < self.bytes as u64 => {
                Err(CommandError::BelowData { bytes: self.bytes as u64 })
            }
            Command::LimitData { bytes } => {
                self.limit = *bytes;
                Ok(Reply::Done)
            }
            Command::DiskFull { node } => Err(CommandError::DiskFull { node: *node }),
            Command::MemoryFull { node } => Err(CommandError::MemoryFull { node: *node }),
            Command::SetUsers { users, if_none } => {
                Ok(if self.users.set(users, *if_none)? { Reply::Done } else { Reply::Skipped })
            }
            Command::DeleteUsers { users } => Ok(count(self.users.delete(users))),
            // What reads does not come here, and a batch is no single command. The level is not raised in one.
            Command::Get { .. }
            | Command::GetMany { .. }
            | Command::GetRange { .. }
            | Command::Length { .. }
            | Command::Exists { .. }
            | Command::KindOf { .. }
            | Command::ExpiryOf { .. }
            | Command::VersionsOf { .. }
            | Command::HashGet { .. }
            | Command::HashAll { .. }
            | Command::HashLength { .. }
            | Command::HashScan { .. }
            | Command::Scan { .. }
            | Command::Count
            | Command::UserChanges
            | Command::Users
            | Command::RandomKey { .. }
            | Command::Level
            | Command::Settings
            | Command::RaiseLevel { .. }
            | Command::Batch { .. } => Err(CommandError::Malformed),
        }
    }

    fn batch(&mut self, watched: &[(Key, u64)], commands: &[Single]) -> Reply {
        if !self.is_unchanged(watched) {
            return Reply::Batch(None);
        }
        let mut budget = Budget::new();
        let reply = |Single(command): &Single| match command {
            Command::Batch { .. } | Command::LimitData { .. } => Reply::Error(CommandError::Malformed),
            command => match self.answer(command, &mut budget) {
                Some(reply) => reply,
                None => match self.spend_old_value(command, &mut budget) {
                    Ok(()) => self.execute_single(command).unwrap_or_else(Reply::Error),
                    Err(error) => Reply::Error(error),
                },
            },
        };
        Reply::Batch(Some(commands.iter().map(reply).collect()))
    }

    /// Takes what a write returns of the state before it off the budget, in bytes.
    fn spend_old_value(&self, command: &Command, budget: &mut Budget) -> Result<(), CommandError> {
        let (Command::Take { key } | Command::Refresh { key, .. } | Command::Put { key, old: true, .. }) =
            command
        else {
            return Ok(());
        };
        let len = self.get_string(key)?.map_or(0, Bytes::len);
        budget.spend(len)
    }

    fn put(&mut self, key: &Key, value: &Bytes, condition: Condition, expiry: Expiry, old: bool) -> Answer {
        fits(value.len())?;
        // The common put is one descent into the map; only these need to know what is there.
        let looks = old || condition != Condition::Always || expiry == Expiry::Keep;
        let entry = if looks { self.keys.get(&key[..]) } else { None };
        let before = match entry {
            Some(entry) if old => Some(entry.string()?.clone()),
            _ => None,
        };
        let holds = match condition {
            Condition::Always => true,
            Condition::IfAbsent => entry.is_none(),
            Condition::IfPresent => entry.is_some(),
            Condition::IfVersion(version) => entry.map_or(0, |entry| entry.version) == version,
        };
        if holds {
            let deadline = self.deadline(expiry, entry.and_then(|entry| entry.deadline));
            self.set_string(key, value, deadline);
        }
        Ok(match (old, holds) {
            (true, _) => Reply::Value(before),
            (false, true) => Reply::Done,
            (false, false) => Reply::Skipped,
        })
    }

    fn put_many(&mut self, pairs: &[(Key, Bytes)], if_none: bool) -> Answer {
        pairs.iter().try_for_each(|(_, value)| fits(value.len()))?;
        if if_none && pairs.iter().any(|(key, _)| self.keys.contains_key(&key[..])) {
            return Ok(Reply::Skipped);
        }
        for (key, value) in pairs {
            self.set_string(key, value, None);
        }
        Ok(Reply::Done)
    }

    fn increment(&mut self, key: &Key, by: i64) -> Answer {
        let sum = add(self.get_string(key)?, by, CommandError::NotInteger)?;
        self.replace(key, Bytes::from(sum.to_string()));
        Ok(Reply::Integer(sum))
    }

    fn increment_float(&mut self, key: &Key, by: &Bytes) -> Answer {
        let sum = Bytes::from(float::sum(self.get_string(key)?.map_or(b"0", |value| &value[..]), by)?);
        self.replace(key, sum.clone());
        Ok(Reply::Value(Some(sum)))
    }

    fn append(&mut self, key: &Key, value: &Bytes) -> Answer {
        let len = self.get_string(key)?.map_or(0, Bytes::len) + value.len();
        fits(len)?;
        match self.keys.get_mut(&key[..]) {
            Some(entry @ Entry { value: Value::String(_), .. }) => {
                entry.edit(self.revision, |string| joined(string, value));
                self.bytes += value.len();
            }
            Some(Entry { value: Value::Hash(_), .. }) => return Err(CommandError::WrongType),
            None => self.set_string(key, value, None),
        }
        Ok(count(len))
    }

    fn put_range(&mut self, key: &Key, offset: u64, value: &Bytes) -> Answer {
        let before = self.get_string(key)?.map_or(0, Bytes::len);
        if value.is_empty() {
            return Ok(count(before));
        }
        let offset = usize::try_from(offset).map_err(|_| CommandError::TooLarge)?;
        let end = offset.checked_add(value.len()).ok_or(CommandError::TooLarge)?;
        fits(end)?;
        match self.keys.get_mut(&key[..]) {
            Some(entry @ Entry { value: Value::String(_), .. }) => {
                entry.edit(self.revision, |string| overwritten(string, offset, value));
                self.bytes += before.max(end) - before;
            }
            Some(Entry { value: Value::Hash(_), .. }) => return Err(CommandError::WrongType),
            None => self.set(key, Value::String(overwritten(Bytes::new(), offset, value)), None),
        }
        Ok(count(before.max(end)))
    }

    fn set_expiry(&mut self, key: &Key, expiry: Expiry, condition: ExpiryCondition) -> Reply {
        let Some(Entry { value, deadline: before, .. }) = self.keys.get(&key[..]) else { return count(0) };
        let deadline = self.deadline(expiry, *before);
        // As Redis: no expiry is after any other, but not before itself.
        let is_later = before.is_some_and(|before| deadline.is_none_or(|deadline| deadline > before));
        let is_earlier = deadline.is_some_and(|deadline| before.is_none_or(|before| deadline < before));
        let holds = match condition {
            ExpiryCondition::Always => true,
            ExpiryCondition::IfNone => before.is_none(),
            ExpiryCondition::IfAny => before.is_some(),
            ExpiryCondition::IfLater => is_later,
            ExpiryCondition::IfEarlier => is_earlier,
            ExpiryCondition::IfAnyEarlier => is_earlier && before.is_some(),
        };
        let changes = holds
            && match expiry {
                Expiry::Never => before.is_some(),
                Expiry::Keep => false,
                Expiry::In(_) | Expiry::At(_) => true,
            };
        if changes {
            let value = value.clone();
            self.set(key, value, deadline);
        }
        count(changes.into())
    }

    fn hash_put(&mut self, key: &Key, fields: &[(Bytes, Bytes)], if_absent: bool) -> Answer {
        fields.iter().try_for_each(|(field, value)| is_name(field).and_then(|()| fits(value.len())))?;
        self.edit_hash(key, |hash| {
            let (mut new, mut changed) = (0, false);
            for (field, value) in fields {
                if !(if_absent && hash.get(field).is_some()) {
                    new += usize::from(hash.insert(field, detach(value)));
                    changed = true;
                }
            }
            Ok((count(new), changed))
        })
    }

    /// Lets `edit` change the hash at a key, an empty one if it is absent; a hash without fields is none. `edit` tells
    /// its reply and whether it changed anything, which it must not if it fails.
    fn edit_hash(
        &mut self,
        key: &Key,
        edit: impl FnOnce(&mut Hash) -> Result<(Reply, bool), CommandError>,
    ) -> Answer {
        let Some(entry) = self.keys.get_mut(&key[..]) else {
            let mut hash = Hash::default();
            let (reply, _) = edit(&mut hash)?;
            if !hash.is_empty() {
                self.set(key, Value::Hash(hash), None);
            }
            return Ok(reply);
        };
        let Value::Hash(hash) = &mut entry.value else { return Err(CommandError::WrongType) };
        let before = hash.bytes();
        let (reply, changed) = edit(hash)?;
        self.bytes = self.bytes - before + hash.bytes();
        let empty = hash.is_empty();
        if changed {
            entry.change(self.revision);
        }
        if empty {
            self.remove(key);
        }
        Ok(reply)
    }

    /// Sets a string and leaves its deadline.
    fn replace(&mut self, key: &Key, value: Bytes) {
        let deadline = self.keys.get(&key[..]).and_then(|entry| entry.deadline);
        self.set(key, Value::String(value), deadline);
    }

    /// When a key expires from now on.
    fn deadline(&self, expiry: Expiry, before: Option<Wall>) -> Option<Wall> {
        match expiry {
            Expiry::Never => None,
            Expiry::Keep => before,
            Expiry::In(millis) => Some(Wall::from_millis(self.time.millis().saturating_add_signed(millis))),
            Expiry::At(millis) => Some(Wall::from_millis(millis.max(0) as u64)),
        }
    }
}

fn fits(len: usize) -> Result<(), CommandError> {
    if len > VALUE_LIMIT { Err(CommandError::TooLarge) } else { Ok(()) }
}

fn is_name(field: &Bytes) -> Result<(), CommandError> {
    if field.len() > NAME_LIMIT { Err(CommandError::TooLarge) } else { Ok(()) }
}

/// An integer in text plus another, absent as 0.
fn add(text: Option<&Bytes>, by: i64, unreadable: CommandError) -> Result<i64, CommandError> {
    let value = text.map_or(Some(0), |text| integer::parse(text)).ok_or(unreadable)?;
    value.checked_add(by).ok_or(CommandError::Overflow)
}

/// One string after the other. In place if nobody else holds the first: appending byte by byte is not quadratic.
fn joined(first: Bytes, second: &[u8]) -> Bytes {
    let mut buffer = owned(first, second.len());
    buffer.extend_from_slice(second);
    buffer.freeze()
}

/// A string with another written over it from a position on, with zeros in between if that is behind its end.
fn overwritten(string: Bytes, offset: usize, value: &[u8]) -> Bytes {
    let end = offset + value.len();
    let mut buffer = owned(string, value.len());
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    buffer[offset..end].copy_from_slice(value);
    buffer.freeze()
}

/// The bytes to write to: themselves if nobody else holds them, else a copy with room for more.
fn owned(bytes: Bytes, more: usize) -> BytesMut {
    bytes.try_into_mut().unwrap_or_else(|shared| {
        let mut copy = BytesMut::with_capacity(shared.len() + more);
        copy.extend_from_slice(&shared);
        copy
    })
}
