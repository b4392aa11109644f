//! The sequential store that replies are compared with: a plain interpreter, written apart from the store's own code.
//!
//! Values and what is known of versions are interned, so that the state of a key is two words.
//!
//! **Versions are opaque.** A key's version is 0 while it is absent; each change gives it one that is larger than all
//! it had before. Which number that is, the model learns from the first reply that shows it, and until then keeps
//! what it can be: above a floor, and not those that a failed condition has excluded. That versions of different keys
//! come from one counter is not modelled, nor is the excluded combination when a batch fails with two or more watched
//! keys of unknown version: both let pass what a stricter model might reject.
//!
//! **Time to live.** When a key vanishes is the store's choice, from some instant on. So each value that was put with a
//! time to live has an operation beside it that removes it ([`Action::Expire`]): nobody asked for it, its outcome is
//! unknown, and it is called at that instant. What it removes does not come back, since no two puts of such a key have
//! the same value.
//!
//! **Opaque strings** stand for strings whose bytes no reply will ever show: see [`Facets`](super::problem::Facets).
// tidy: long because every command of the store has its sequential meaning here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_store::glob::Pattern;
use quorate_store::order::position;
use quorate_store::{CommandError, Condition, Expires, Kind, Reply};

/// A key of a partition, by its rank in byte order.
pub type KeyId = u32;

/// The state of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub value: ValueId,
    pub version: VersionId,
}

/// An interned [`Value`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// An interned [`Version`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionId(pub u32);

impl ValueId {
    pub const ABSENT: ValueId = ValueId(0);
}

/// What a key may hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Absent,
    String(Bytes),
    /// A string of this length that is no integer, and whose bytes nobody will see.
    Opaque(usize),
    Hash(BTreeMap<Bytes, Bytes>),
}

/// What is known of the version of a key that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    /// All versions before this one were at most this.
    floor: u64,
    exact: Option<u64>,
    /// Above the floor, but excluded.
    not: BTreeSet<u64>,
}

/// A command whose keys are numbered and whose values are interned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Get(KeyId),
    GetMany(Vec<KeyId>),
    GetRange(KeyId, i64, i64),
    Length(KeyId),
    Exists(Vec<KeyId>),
    KindOf(KeyId),
    ExpiryOf(KeyId),
    VersionsOf(Vec<KeyId>),
    Put {
        key: KeyId,
        value: ValueId,
        when: When,
        old: bool,
    },
    PutMany {
        pairs: Vec<(KeyId, ValueId)>,
        if_none: bool,
    },
    Delete(Vec<KeyId>),
    Take(KeyId),
    Increment(KeyId, i64),
    Append(KeyId, Bytes),
    HashPut {
        key: KeyId,
        fields: Vec<(Bytes, Bytes)>,
        if_absent: bool,
    },
    HashGet(KeyId, Vec<Bytes>),
    HashAll(KeyId),
    HashLength(KeyId),
    HashDelete(KeyId, Vec<Bytes>),
    HashIncrement(KeyId, Bytes, i64),
    Scan {
        from: u64,
        limit: u32,
        pattern: Option<Pattern>,
        kind: Option<Kind>,
    },
    Count,
    RandomKey,
    Clear,
    Batch {
        watched: Vec<(KeyId, u64)>,
        actions: Vec<Action>,
    },
    /// The time of a value is up: the key is gone, if it still holds that value. No client asks for this.
    Expire(KeyId, ValueId),
}

/// [`Condition`], ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    Always,
    IfAbsent,
    IfPresent,
    IfVersion(u64),
}

impl From<Condition> for When {
    fn from(condition: Condition) -> When {
        match condition {
            Condition::Always => When::Always,
            Condition::IfAbsent => When::IfAbsent,
            Condition::IfPresent => When::IfPresent,
            Condition::IfVersion(version) => When::IfVersion(version),
        }
    }
}

/// Changes on top of a state that stays as it is.
#[derive(Debug)]
pub struct Overlay<'a> {
    base: &'a [Cell],
    changes: &'a mut Vec<(KeyId, Cell)>,
}

impl<'a> Overlay<'a> {
    /// No changes yet; `changes` is cleared.
    pub fn new(base: &'a [Cell], changes: &'a mut Vec<(KeyId, Cell)>) -> Overlay<'a> {
        changes.clear();
        Overlay { base, changes }
    }

    fn get(&self, key: KeyId) -> Cell {
        let changed = self.changes.iter().find(|(changed, _)| *changed == key);
        changed.map_or(self.base[key as usize], |(_, cell)| *cell)
    }

    fn set(&mut self, key: KeyId, cell: Cell) {
        match self.changes.iter_mut().find(|(changed, _)| *changed == key) {
            Some((_, old)) => *old = cell,
            None => self.changes.push((key, cell)),
        }
    }

    /// Drops changes that change nothing; whether any is left.
    pub fn settle(&mut self) -> bool {
        let base = self.base;
        self.changes.retain(|(key, cell)| base[*key as usize] != *cell);
        !self.changes.is_empty()
    }
}

/// The interpreter.
#[derive(Debug)]
pub struct Model {
    /// In byte order.
    keys: Vec<Bytes>,
    /// Whether any reply or condition depends on versions.
    versioned: bool,
    values: Interner<Value>,
    versions: Interner<Version>,
}

#[derive(Debug)]
struct Interner<T> {
    items: Vec<T>,
    ids: BTreeMap<T, u32>,
}

impl<T: Ord + Clone> Interner<T> {
    fn new(first: T) -> Interner<T> {
        Interner { items: vec![first.clone()], ids: BTreeMap::from([(first, 0)]) }
    }

    fn id(&mut self, item: T) -> u32 {
        if let Some(id) = self.ids.get(&item) {
            return *id;
        }
        let id = self.items.len() as u32;
        self.items.push(item.clone());
        self.ids.insert(item, id);
        id
    }
}

impl Model {
    /// Over these keys, which must be in byte order.
    pub fn new(keys: Vec<Bytes>, versioned: bool) -> Model {
        let (values, versions) = (Interner::new(Value::Absent), Interner::new(Version::default()));
        Model { keys, versioned, values, versions }
    }

    /// The empty store.
    pub fn initial(&self) -> Vec<Cell> {
        vec![Cell::default(); self.keys.len()]
    }

    pub fn keys(&self) -> &[Bytes] {
        &self.keys
    }

    pub fn intern(&mut self, value: Value) -> ValueId {
        ValueId(self.values.id(value))
    }

    pub fn value(&self, id: ValueId) -> &Value {
        &self.values.items[id.0 as usize]
    }

    /// Executes an action. `expected` guides what the state leaves open (versions only). `None` if the reply is
    /// hidden, because it would show an opaque string, or if the versions contradict what is expected.
    pub fn execute(
        &mut self,
        action: &Action,
        expected: Option<&Reply>,
        state: &mut Overlay<'_>,
    ) -> Option<Reply> {
        Some(match action {
            Action::Get(key) => return self.string(state.get(*key)),
            Action::GetMany(keys) => {
                let values = keys.iter().map(|key| match self.value_at(state, *key) {
                    Value::String(bytes) => Some(Some(bytes.clone())),
                    Value::Opaque(_) => None,
                    Value::Absent | Value::Hash(_) => Some(None),
                });
                Reply::Values(values.collect::<Option<_>>()?)
            }
            Action::GetRange(key, start, end) => match self.value_at(state, *key) {
                Value::Absent => Reply::Value(Some(Bytes::new())),
                Value::String(bytes) => Reply::Value(Some(range(bytes, *start, *end))),
                Value::Opaque(_) => return None,
                Value::Hash(_) => WRONG_TYPE,
            },
            Action::Length(key) => match self.value_at(state, *key) {
                Value::Absent => Reply::Integer(0),
                Value::String(bytes) => Reply::Integer(bytes.len() as i64),
                Value::Opaque(len) => Reply::Integer(*len as i64),
                Value::Hash(_) => WRONG_TYPE,
            },
            Action::Exists(keys) => {
                Reply::Integer(keys.iter().filter(|key| present(state.get(**key))).count() as i64)
            }
            Action::KindOf(key) => Reply::Kind(match self.value_at(state, *key) {
                Value::Absent => None,
                Value::String(_) | Value::Opaque(_) => Some(Kind::String),
                Value::Hash(_) => Some(Kind::Hash),
            }),
            Action::ExpiryOf(key) => {
                let present = present(state.get(*key));
                Reply::Expires(if present { Expires::Never } else { Expires::Missing })
            }
            Action::VersionsOf(keys) => {
                let expected = match expected {
                    Some(Reply::Versions(versions)) if versions.len() == keys.len() => Some(versions),
                    Some(_) => return None,
                    None => None,
                };
                if let Some(versions) = expected {
                    for (key, version) in keys.iter().zip(versions) {
                        if self.version_is(state, *key, *version, Some(true)) != Some(true) {
                            return None;
                        }
                    }
                }
                return expected.map(|versions| Reply::Versions(versions.clone()));
            }
            Action::Put { key, value, when, old } => {
                return self.put(*key, *value, *when, *old, expected, state);
            }
            Action::PutMany { pairs, if_none } => {
                if *if_none && pairs.iter().any(|(key, _)| present(state.get(*key))) {
                    Reply::Skipped
                } else {
                    pairs.iter().for_each(|(key, value)| self.change(state, *key, *value));
                    Reply::Done
                }
            }
            Action::Delete(keys) => {
                Reply::Integer(keys.iter().filter(|key| self.remove(state, **key)).count() as i64)
            }
            Action::Take(key) => match self.value_at(state, *key) {
                Value::Hash(_) => WRONG_TYPE,
                Value::Absent => Reply::Value(None),
                Value::String(_) | Value::Opaque(_) => {
                    let taken = self.string(state.get(*key));
                    self.remove(state, *key);
                    return taken;
                }
            },
            Action::Increment(key, by) => match self.value_at(state, *key) {
                Value::Hash(_) => WRONG_TYPE,
                Value::Opaque(_) => Reply::Error(CommandError::NotInteger),
                Value::Absent => self.count(state, *key, 0, *by),
                Value::String(bytes) => match integer(bytes) {
                    Some(number) => self.count(state, *key, number, *by),
                    None => Reply::Error(CommandError::NotInteger),
                },
            },
            Action::Append(key, suffix) => {
                let value = match self.value_at(state, *key) {
                    Value::Hash(_) => return Some(WRONG_TYPE),
                    Value::Absent => Value::String(suffix.clone()),
                    Value::String(bytes) => Value::String([&bytes[..], suffix].concat().into()),
                    Value::Opaque(len) => Value::Opaque(len + suffix.len()),
                };
                let len = match &value {
                    Value::String(bytes) => bytes.len(),
                    Value::Opaque(len) => *len,
                    Value::Absent | Value::Hash(_) => 0,
                };
                self.change_to(state, *key, value, suffix.is_empty());
                Reply::Integer(len as i64)
            }
            Action::HashPut { key, fields, if_absent } => {
                let Some(mut hash) = self.hash(state, *key) else { return Some(WRONG_TYPE) };
                let before = hash.clone();
                for (field, value) in fields {
                    if *if_absent {
                        hash.entry(field.clone()).or_insert_with(|| value.clone());
                    } else {
                        hash.insert(field.clone(), value.clone());
                    }
                }
                let new = hash.len() - before.len();
                if !hash.is_empty() && (new > 0 || !*if_absent) {
                    let same = hash == before;
                    self.change_to(state, *key, Value::Hash(hash), same);
                }
                Reply::Integer(new as i64)
            }
            Action::HashGet(key, fields) => match self.hash(state, *key) {
                None => WRONG_TYPE,
                Some(hash) => Reply::Values(fields.iter().map(|field| hash.get(field).cloned()).collect()),
            },
            Action::HashAll(key) => match self.hash(state, *key) {
                None => WRONG_TYPE,
                Some(hash) => {
                    let mut pairs: Vec<(Bytes, Bytes)> = hash.into_iter().collect();
                    pairs.sort_by_key(|(field, _)| position(field));
                    Reply::Pairs(pairs)
                }
            },
            Action::HashLength(key) => match self.hash(state, *key) {
                None => WRONG_TYPE,
                Some(hash) => Reply::Integer(hash.len() as i64),
            },
            Action::HashDelete(key, fields) => {
                let Some(mut hash) = self.hash(state, *key) else { return Some(WRONG_TYPE) };
                let removed = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                if removed > 0 {
                    let value = if hash.is_empty() { Value::Absent } else { Value::Hash(hash) };
                    self.change_to(state, *key, value, false);
                }
                Reply::Integer(removed as i64)
            }
            Action::HashIncrement(key, field, by) => {
                let Some(mut hash) = self.hash(state, *key) else { return Some(WRONG_TYPE) };
                let number = match hash.get(field).map(|bytes| integer(bytes)) {
                    None => 0,
                    Some(Some(number)) => number,
                    Some(None) => return Some(Reply::Error(CommandError::FieldNotInteger)),
                };
                let Some(sum) = number.checked_add(*by) else {
                    return Some(Reply::Error(CommandError::Overflow));
                };
                hash.insert(field.clone(), sum.to_string().into());
                self.change_to(state, *key, Value::Hash(hash), *by == 0);
                Reply::Integer(sum)
            }
            Action::Scan { from, limit, pattern, kind } => {
                self.scan((*from, *limit), pattern.as_ref(), *kind, state)
            }
            Action::Count => Reply::Integer(self.present_keys(state).count() as i64),
            Action::RandomKey => match expected {
                // Which key a number chooses is the store's affair.
                Some(Reply::Value(Some(key))) if self.present_keys(state).any(|there| there == key) => {
                    Reply::Value(Some(key.clone()))
                }
                _ => Reply::Value(self.present_keys(state).next().cloned()),
            },
            Action::Clear => {
                for key in 0..self.keys.len() as KeyId {
                    self.remove(state, key);
                }
                Reply::Done
            }
            Action::Batch { watched, actions } => return self.batch(watched, actions, expected, state),
            Action::Expire(key, value) => {
                if state.get(*key).value == *value {
                    self.remove(state, *key);
                }
                Reply::Done
            }
        })
    }

    fn put(
        &mut self,
        key: KeyId,
        value: ValueId,
        when: When,
        old: bool,
        expected: Option<&Reply>,
        state: &mut Overlay<'_>,
    ) -> Option<Reply> {
        let cell = state.get(key);
        let before = match self.value(cell.value) {
            Value::Hash(_) if old => return Some(WRONG_TYPE),
            _ if old => Some(self.string(cell)),
            _ => None,
        };
        let holds = match when {
            When::Always => true,
            When::IfAbsent => !present(cell),
            When::IfPresent => present(cell),
            When::IfVersion(version) => {
                let wanted = expected.is_none_or(|reply| *reply == Reply::Done);
                self.version_is(state, key, version, Some(wanted))?
            }
        };
        if holds {
            self.change(state, key, value);
        }
        match before {
            Some(reply) => reply,
            None => Some(if holds { Reply::Done } else { Reply::Skipped }),
        }
    }

    fn batch(
        &mut self,
        watched: &[(KeyId, u64)],
        actions: &[Action],
        expected: Option<&Reply>,
        state: &mut Overlay<'_>,
    ) -> Option<Reply> {
        let inner = match expected {
            Some(Reply::Batch(Some(replies))) if replies.len() != actions.len() => return None,
            Some(Reply::Batch(Some(replies))) => Some(replies),
            Some(Reply::Batch(None)) => return self.batch_aborts(watched, state),
            Some(_) => return None,
            None => None,
        };
        for (key, version) in watched {
            match self.version_is(state, *key, *version, Some(true)) {
                Some(true) => {}
                Some(false) => return Some(Reply::Batch(None)),
                None => return None,
            }
        }
        let mut replies = Some(Vec::with_capacity(actions.len()));
        for (index, action) in actions.iter().enumerate() {
            let expected = inner.map(|replies| &replies[index]);
            match (self.execute(action, expected, state), &mut replies) {
                (Some(reply), Some(replies)) => replies.push(reply),
                (None, _) => replies = None,
                (Some(_), None) => {}
            }
        }
        replies.map(|replies| Reply::Batch(Some(replies)))
    }

    /// The batch is known to have found a watched key changed.
    fn batch_aborts(&mut self, watched: &[(KeyId, u64)], state: &mut Overlay<'_>) -> Option<Reply> {
        let mut open = Vec::new();
        for (key, version) in watched {
            match self.version_is(state, *key, *version, None) {
                Some(false) => return Some(Reply::Batch(None)),
                Some(true) => {}
                None => open.push((*key, *version)),
            }
        }
        match open[..] {
            [] => Some(Reply::Batch(Some(Vec::new()))),
            [(key, version)] => {
                self.version_is(state, key, version, Some(false));
                Some(Reply::Batch(None))
            }
            _ => Some(Reply::Batch(None)),
        }
    }

    /// Whether a key has this version. Where that is open, the answer is `wanted`, and is remembered; `None` if
    /// nothing is wanted.
    fn version_is(
        &mut self,
        state: &mut Overlay<'_>,
        key: KeyId,
        number: u64,
        wanted: Option<bool>,
    ) -> Option<bool> {
        assert!(self.versioned, "versions are modelled where they are asked for");
        let cell = state.get(key);
        if !present(cell) || number == 0 {
            return Some(!present(cell) && number == 0);
        }
        let mut version = self.versions.items[cell.version.0 as usize].clone();
        match version.exact {
            Some(exact) => return Some(exact == number),
            None if number <= version.floor || version.not.contains(&number) => return Some(false),
            None => {}
        }
        if wanted? {
            version.exact = Some(number);
            version.not.clear();
        } else {
            version.not.insert(number);
        }
        let version = VersionId(self.versions.id(version));
        state.set(key, Cell { version, ..cell });
        wanted
    }

    fn change(&mut self, state: &mut Overlay<'_>, key: KeyId, value: ValueId) {
        let version = self.next_version(state.get(key).version, false);
        state.set(key, Cell { value, version });
    }

    /// `same`: the value is the one before, and whether that is a new version is the store's affair.
    fn change_to(&mut self, state: &mut Overlay<'_>, key: KeyId, value: Value, same: bool) {
        let value = self.intern(value);
        let before = state.get(key);
        let version = self.next_version(before.version, same && present(before));
        state.set(key, Cell { value, version });
    }

    fn next_version(&mut self, version: VersionId, same: bool) -> VersionId {
        if !self.versioned {
            return version;
        }
        let before = &self.versions.items[version.0 as usize];
        let floor = match (same, before.exact) {
            (true, Some(exact)) => exact.saturating_sub(1),
            (false, Some(exact)) => exact,
            (_, None) => before.floor,
        };
        let not = if same { before.not.clone() } else { BTreeSet::new() };
        VersionId(self.versions.id(Version { floor, exact: None, not }))
    }

    fn remove(&mut self, state: &mut Overlay<'_>, key: KeyId) -> bool {
        let there = present(state.get(key));
        if there {
            self.change(state, key, ValueId::ABSENT);
        }
        there
    }

    fn count(&mut self, state: &mut Overlay<'_>, key: KeyId, number: i64, by: i64) -> Reply {
        match number.checked_add(by) {
            None => Reply::Error(CommandError::Overflow),
            Some(sum) => {
                self.change_to(state, key, Value::String(sum.to_string().into()), by == 0);
                Reply::Integer(sum)
            }
        }
    }

    fn scan(
        &self,
        (from, limit): (u64, u32),
        pattern: Option<&Pattern>,
        kind: Option<Kind>,
        state: &Overlay<'_>,
    ) -> Reply {
        let mut rest: Vec<_> = self.present_keys(state).filter(|key| position(key) >= from).collect();
        rest.sort_by_key(|key| position(key));
        let looked = rest.len().min(limit.max(1) as usize);
        let next = rest.get(looked).map(|key| position(key));
        rest.truncate(looked);
        let is_of_kind = |key: &Bytes| {
            let id = self.keys.binary_search(key).map_or(0, |index| index as KeyId);
            kind.is_none_or(|kind| (kind == Kind::Hash) == matches!(self.value_at(state, id), Value::Hash(_)))
        };
        rest.retain(|key| pattern.is_none_or(|pattern| pattern.matches(key)) && is_of_kind(key));
        Reply::Keys { keys: rest.into_iter().cloned().collect(), next }
    }

    fn present_keys<'a>(&'a self, state: &'a Overlay<'_>) -> impl Iterator<Item = &'a Bytes> {
        (0..).zip(&self.keys).filter(|(key, _)| present(state.get(*key))).map(|(_, key)| key)
    }

    fn value_at(&self, state: &Overlay<'_>, key: KeyId) -> &Value {
        self.value(state.get(key).value)
    }

    fn string(&self, cell: Cell) -> Option<Reply> {
        match self.value(cell.value) {
            Value::Absent => Some(Reply::Value(None)),
            Value::String(bytes) => Some(Reply::Value(Some(bytes.clone()))),
            Value::Opaque(_) => None,
            Value::Hash(_) => Some(WRONG_TYPE),
        }
    }

    fn hash(&self, state: &Overlay<'_>, key: KeyId) -> Option<BTreeMap<Bytes, Bytes>> {
        match self.value_at(state, key) {
            Value::Absent => Some(BTreeMap::new()),
            Value::Hash(hash) => Some(hash.clone()),
            Value::String(_) | Value::Opaque(_) => None,
        }
    }
}

const WRONG_TYPE: Reply = Reply::Error(CommandError::WrongType);

fn present(cell: Cell) -> bool {
    cell.value != ValueId::ABSENT
}

/// A string as an integer, if it is written as one: no sign but a minus, no leading zeros.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == bytes).then_some(number)
}

/// Bytes `start..=end`, negative numbers from the end, as Redis GETRANGE.
fn range(bytes: &Bytes, start: i64, end: i64) -> Bytes {
    let len = bytes.len() as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    if start < 0 && end < 0 && start > end {
        return Bytes::new();
    }
    let (start, end) = (from_end(start).max(0), from_end(end).max(0).min(len - 1));
    if start > end { Bytes::new() } else { bytes.slice(start as usize..=end as usize) }
}
