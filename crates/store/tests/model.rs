//! The store against a model that is as plain as can be: a `BTreeMap`, no index, no sharing, no shortcuts.

#[allow(dead_code, reason = "each test uses a part")]
mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::{Random, Wall};
use quorate_store::order::position;
use quorate_store::{
    Command, CommandError, Condition, Expires, Expiry, ExpiryCondition, Kind, Reply, Single, Store,
};

#[derive(Clone, Debug)]
enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Bytes, Vec<u8>>),
}
use Value::{Hash, String as Text};

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    version: u64,
    deadline: Option<i128>,
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<Bytes, Entry>,
    time: i128,
    revision: u64,
}

type Answer = Result<Reply, CommandError>;

impl Model {
    fn apply(&mut self, command: &Command, revision: u64, now: Wall) -> Answer {
        self.time = self.time.max(now.millis().into());
        self.revision = revision;
        self.expire();
        let Command::Batch { watched, commands } = command else { return self.single(command) };
        if watched.iter().any(|(key, version)| self.version(key) != *version) {
            return Ok(Reply::Batch(None));
        }
        let replies = commands
            .iter()
            .map(|Single(command)| self.single(command).unwrap_or_else(Reply::Error))
            .collect();
        Ok(Reply::Batch(Some(replies)))
    }

    fn expire(&mut self) {
        self.entries.retain(|_, entry| entry.deadline.is_none_or(|deadline| deadline > self.time));
    }

    fn single(&mut self, command: &Command) -> Answer {
        let reply = self.execute(command)?;
        self.expire();
        Ok(reply)
    }

    fn execute(&mut self, command: &Command) -> Answer {
        Ok(match command {
            Command::Get { key } => Reply::Value(self.text(key)?.map(Bytes::from)),
            Command::GetMany { keys } => {
                Reply::Values(keys.iter().map(|key| self.text(key).ok().flatten().map(Bytes::from)).collect())
            }
            Command::GetRange { key, start, end } => {
                let text = self.text(key)?.unwrap_or_default();
                let len = text.len() as i64;
                let both_back = *start < 0 && *end < 0 && start > end;
                let absolute = |at: i64| if at < 0 { (at + len).max(0) } else { at };
                let taken =
                    (0..len).filter(|at| !both_back && *at >= absolute(*start) && *at <= absolute(*end));
                Reply::Value(Some(taken.map(|at| text[at as usize]).collect()))
            }
            Command::Length { key } => number(self.text(key)?.map_or(0, |text| text.len())),
            Command::Exists { keys } => {
                number(keys.iter().filter(|key| self.entries.contains_key(*key)).count())
            }
            Command::KindOf { key } => Reply::Kind(self.entries.get(key).map(|entry| match entry.value {
                Text(_) => Kind::String,
                Hash(_) => Kind::Hash,
            })),
            Command::ExpiryOf { key } => {
                Reply::Expires(match self.entries.get(key).map(|entry| entry.deadline) {
                    None => Expires::Missing,
                    Some(None) => Expires::Never,
                    Some(Some(deadline)) => Expires::At(deadline as u64),
                })
            }
            Command::VersionsOf { keys } => {
                Reply::Versions(keys.iter().map(|key| self.version(key)).collect())
            }
            Command::Put { key, value, condition, expiry, old } => {
                let before = if *old { self.text(key)?.map(Bytes::from) } else { None };
                let holds = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => self.version(key) == 0,
                    Condition::IfPresent => self.version(key) != 0,
                    Condition::IfVersion(version) => self.version(key) == *version,
                };
                if holds {
                    let deadline = self.deadline(key, *expiry);
                    self.write(key, Text(value.to_vec()), deadline);
                }
                match (old, holds) {
                    (true, _) => Reply::Value(before),
                    (_, true) => Reply::Done,
                    (_, false) => Reply::Skipped,
                }
            }
            Command::PutMany { pairs, if_none } => {
                if *if_none && pairs.iter().any(|(key, _)| self.version(key) != 0) {
                    return Ok(Reply::Skipped);
                }
                for (key, value) in pairs {
                    self.write(key, Text(value.to_vec()), None);
                }
                Reply::Done
            }
            Command::Delete { keys } => {
                number(keys.iter().filter(|key| self.entries.remove(*key).is_some()).count())
            }
            Command::Take { key } => {
                let text = self.text(key)?;
                self.entries.remove(key);
                Reply::Value(text.map(Bytes::from))
            }
            Command::Increment { key, by } => {
                let sum = sum(self.text(key)?, *by, CommandError::NotInteger)?;
                self.keep(key, Text(sum.to_string().into_bytes()));
                Reply::Integer(sum)
            }
            Command::IncrementFloat { key, by } => {
                let (text, by) = (self.text(key)?.unwrap_or(b"0".to_vec()), by.to_vec());
                let exact = halves(&text).ok_or(CommandError::NotFloat)?
                    + halves(&by).ok_or(CommandError::NotFloat)?;
                let sum = from_halves(to_long_double(exact));
                self.keep(key, Text(sum.clone()));
                Reply::Value(Some(sum.into()))
            }
            Command::Append { key, value } => {
                let text = [self.text(key)?.unwrap_or_default(), value.to_vec()].concat();
                let len = text.len();
                self.keep(key, Text(text));
                number(len)
            }
            Command::SetExpiry { key, expiry, condition } => {
                let Some(entry) = self.entries.get(key).cloned() else { return Ok(number(0)) };
                let new = self.deadline(key, *expiry);
                // Never is the last of all moments.
                let last = |deadline: Option<i128>| deadline.unwrap_or(i128::MAX);
                let holds = match condition {
                    ExpiryCondition::Always => true,
                    ExpiryCondition::IfNone => entry.deadline.is_none(),
                    ExpiryCondition::IfAny => entry.deadline.is_some(),
                    ExpiryCondition::IfLater => last(new) > last(entry.deadline),
                    ExpiryCondition::IfEarlier => last(new) < last(entry.deadline),
                    ExpiryCondition::IfAnyEarlier => {
                        entry.deadline.is_some() && last(new) < last(entry.deadline)
                    }
                };
                let changes = holds
                    && match expiry {
                        Expiry::Never => entry.deadline.is_some(),
                        Expiry::Keep => false,
                        Expiry::In(_) | Expiry::At(_) => true,
                    };
                if changes {
                    let deadline = self.deadline(key, *expiry);
                    self.write(key, entry.value, deadline);
                }
                number(changes.into())
            }
            Command::HashPut { key, fields, if_absent } => {
                let before = self.fields(key)?;
                let mut after = before.clone();
                let mut put = 0;
                for (field, value) in fields {
                    if !(*if_absent && after.contains_key(field)) {
                        after.insert(field.clone(), value.to_vec());
                        put += 1;
                    }
                }
                let new = after.len() - before.len();
                if put > 0 {
                    self.keep(key, Hash(after));
                }
                number(new)
            }
            Command::HashGet { key, fields } => {
                let hash = self.fields(key)?;
                Reply::Values(fields.iter().map(|field| hash.get(field).cloned().map(Bytes::from)).collect())
            }
            Command::HashAll { key } => Reply::Pairs(self.pairs(key)?),
            Command::HashScan { key, from, limit, pattern } => {
                let mut pairs = self.pairs(key)?;
                pairs.retain(|(field, _)| position(field) >= *from);
                let looked = pairs.len().min((*limit).max(1) as usize);
                let next = pairs.get(looked).map(|(field, _)| position(field));
                pairs.truncate(looked);
                pairs.retain(|(field, _)| pattern.is_none() || (b'0'..=b'4').contains(&field[1]));
                Reply::Fields { pairs, next, version: self.version(key) }
            }
            Command::HashLength { key } => number(self.fields(key)?.len()),
            Command::HashDelete { key, fields } => {
                let before = self.fields(key)?;
                let mut after = before.clone();
                after.retain(|field, _| !fields.contains(field));
                let removed = before.len() - after.len();
                if after.is_empty() {
                    self.entries.remove(key);
                } else if removed > 0 {
                    self.keep(key, Hash(after));
                }
                number(removed)
            }
            Command::HashIncrement { key, field, by } => {
                let mut hash = self.fields(key)?;
                let sum = sum(hash.get(field).cloned(), *by, CommandError::FieldNotInteger)?;
                hash.insert(field.clone(), sum.to_string().into_bytes());
                self.keep(key, Hash(hash));
                Reply::Integer(sum)
            }
            Command::Scan { from, limit, pattern, kind } => {
                let mut all: Vec<_> = self.entries.keys().filter(|key| position(key) >= *from).collect();
                all.sort_by_key(|key| position(key));
                let looked = &all[..all.len().min((*limit).max(1) as usize)];
                // The one pattern that is generated.
                let matches = |key: &Bytes| {
                    let found = match self.entries[key].value {
                        Text(_) => Kind::String,
                        Hash(_) => Kind::Hash,
                    };
                    kind.is_none_or(|kind| kind == found)
                        && (pattern.is_none() || (b'0'..=b'4').contains(&key[1]))
                };
                Reply::Keys {
                    keys: looked.iter().filter(|key| matches(key)).map(|key| (*key).clone()).collect(),
                    next: all.get(looked.len()).map(|key| position(key)),
                }
            }
            Command::Refresh { key, expiry } => {
                let text = self.text(key)?;
                let changes = match expiry {
                    Expiry::Never => self.entries.get(key).is_some_and(|entry| entry.deadline.is_some()),
                    Expiry::Keep => false,
                    Expiry::In(_) | Expiry::At(_) => true,
                };
                if let Some(text) = text.clone().filter(|_| changes) {
                    let deadline = self.deadline(key, *expiry);
                    self.write(key, Text(text), deadline);
                }
                Reply::Value(text.map(Bytes::from))
            }
            Command::PutRange { key, offset, value } => {
                let mut text = self.text(key)?.unwrap_or_default();
                if !value.is_empty() {
                    let offset = *offset as usize;
                    let tail = text.get(offset + value.len()..).unwrap_or_default().to_vec();
                    text.resize(offset, 0);
                    text.extend(value);
                    text.extend(tail);
                    self.keep(key, Text(text.clone()));
                }
                number(text.len())
            }
            Command::HashIncrementFloat { key, field, by } => {
                let by = halves(by).ok_or(CommandError::NotFloat)?;
                let mut hash = self.fields(key)?;
                let before = hash.get(field).map_or(&b"0"[..], |text| text);
                let sum = to_long_double(halves(before).ok_or(CommandError::FieldNotFloat)? + by);
                let sum = from_halves(sum);
                hash.insert(field.clone(), sum.clone());
                self.keep(key, Hash(hash));
                Reply::Value(Some(sum.into()))
            }
            Command::Count => number(self.entries.len()),
            Command::RandomKey { .. }
            | Command::UserChanges
            | Command::Users
            | Command::SetUsers { .. }
            | Command::DeleteUsers { .. }
            | Command::Level
            | Command::Settings
            | Command::RaiseLevel { .. } => unreachable!("checked apart"),
            Command::Clear => {
                self.entries.clear();
                Reply::Done
            }
            Command::LimitData { .. } | Command::DiskFull { .. } | Command::MemoryFull { .. } => {
                unreachable!("not generated")
            }
            Command::Batch { .. } => unreachable!("not generated inside a batch"),
        })
    }

    fn version(&self, key: &Bytes) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.version)
    }

    fn text(&self, key: &Bytes) -> Result<Option<Vec<u8>>, CommandError> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Text(text)) => Ok(Some(text.clone())),
            Some(Hash(_)) => Err(CommandError::WrongType),
        }
    }

    fn fields(&self, key: &Bytes) -> Result<BTreeMap<Bytes, Vec<u8>>, CommandError> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None => Ok(BTreeMap::new()),
            Some(Hash(hash)) => Ok(hash.clone()),
            Some(Text(_)) => Err(CommandError::WrongType),
        }
    }

    /// In the order of scans.
    fn pairs(&self, key: &Bytes) -> Result<Vec<(Bytes, Bytes)>, CommandError> {
        let fields = self.fields(key)?.into_iter().map(|(field, value)| (field, value.into()));
        let mut pairs: Vec<(Bytes, Bytes)> = fields.collect();
        pairs.sort_by_key(|(field, _)| position(field));
        Ok(pairs)
    }

    fn write(&mut self, key: &Bytes, value: Value, deadline: Option<i128>) {
        self.entries.insert(key.clone(), Entry { value, version: self.revision, deadline });
    }

    fn keep(&mut self, key: &Bytes, value: Value) {
        let deadline = self.entries.get(key).and_then(|entry| entry.deadline);
        self.write(key, value, deadline);
    }

    fn deadline(&self, key: &Bytes, expiry: Expiry) -> Option<i128> {
        match expiry {
            Expiry::Never => None,
            Expiry::Keep => self.entries.get(key).and_then(|entry| entry.deadline),
            Expiry::In(millis) => Some(self.time + i128::from(millis)),
            Expiry::At(millis) => Some(millis.into()),
        }
    }
}

fn number(count: usize) -> Reply {
    Reply::Integer(count as i64)
}

fn sum(text: Option<Vec<u8>>, by: i64, unreadable: CommandError) -> Result<i64, CommandError> {
    let text = text.unwrap_or(b"0".to_vec());
    let value: i64 = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or(unreadable)?;
    // As it would be written: "007" is no integer.
    if value.to_string().as_bytes() != text {
        return Err(unreadable);
    }
    value.checked_add(by).ok_or(CommandError::Overflow)
}

fn from_halves(sum: i128) -> Vec<u8> {
    let sign = if sum < 0 { "-" } else { "" };
    let half = if sum % 2 == 0 { "" } else { ".5" };
    format!("{sign}{}{half}", sum.abs() / 2).into_bytes()
}

/// A whole number or one with a half, in halves.
fn halves(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let whole: i128 = text.trim_end_matches(".5").parse().ok()?;
    let half = if text.ends_with(".5") { 1 } else { 0 };
    Some(to_long_double(whole.checked_mul(2)? + if text.starts_with('-') { -half } else { half }))
}

/// The nearest number with a mantissa of 64 bits, to the even one between two.
fn to_long_double(exact: i128) -> i128 {
    let unit = 1i128 << (128 - exact.unsigned_abs().leading_zeros()).saturating_sub(64);
    let (floor, rest) = (exact.div_euclid(unit), exact.rem_euclid(unit));
    let up = 2 * rest > unit || (2 * rest == unit && floor % 2 != 0);
    (floor + i128::from(up)) * unit
}

/// The model knows no way to choose a key, and only some numbers.
fn is_modelled(command: &Command, model: &Model) -> bool {
    match command {
        Command::RandomKey { .. }
        | Command::UserChanges
        | Command::Users
        | Command::SetUsers { .. }
        | Command::DeleteUsers { .. }
        | Command::Level
        | Command::Settings
        | Command::RaiseLevel { .. } => false,
        Command::IncrementFloat { key, by } => {
            let known = |text: &[u8]| {
                let float = std::str::from_utf8(text).is_ok_and(|text| text.parse::<f64>().is_ok());
                halves(text).is_some() || !float
            };
            known(by) && model.text(key).ok().flatten().is_none_or(|text| known(&text))
        }
        Command::Batch { commands, .. } => commands.iter().all(|Single(command)| match command {
            Command::IncrementFloat { .. } => false,
            command => is_modelled(command, model),
        }),
        _ => true,
    }
}

#[test]
fn every_reply_is_that_of_the_model() {
    for seed in 0..40 {
        let random = &mut Random::new(seed);
        let (mut store, mut model) = (Store::new(), Model::default());
        let mut now = Wall::from_millis(1000);
        for revision in 1..3000 {
            now = common::later(random, now);
            let command = common::command(random, now);
            if !is_modelled(&command, &model) {
                continue;
            }
            let expected = model.apply(&command, revision, now).unwrap_or_else(Reply::Error);
            let found = store.apply(&command, revision, now);
            assert_eq!(found, expected, "seed {seed} revision {revision}: {command:?}");
            assert_eq!(store.len(), model.entries.len());
            let deadline = model.entries.values().filter_map(|entry| entry.deadline).min();
            assert_eq!(store.next_expiry().map(|wall| wall.millis().into()), deadline);
        }
    }
}
