//! One partition of a history, made ready for the search: operations with numbered keys, events in order, and what
//! can be known of each operation before the search begins.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use quorate_store::Reply;

use super::Unsupported;
use super::action::{
    asks_for_versions, check_reply, compile, each_key, each_made_key, each_single, is_blind, is_global,
    is_pure, needs, shows,
};
use super::events::{Event, Mortal, find_mortals, order_events};
use super::model::{Action, Cell, KeyId, Model, Overlay, Value, ValueId, integer};
use super::ratchet::{self, Ratchet};
use crate::history::Operation;

/// An operation of a [`Problem`], by the rank of its call.
pub type OpId = u32;

/// A position among the calls and returns of a partition.
pub type EventId = u32;

/// The return of an operation whose outcome is unknown.
pub const NEVER: EventId = EventId::MAX;

#[derive(Debug)]
pub struct Op {
    /// Its place in the history.
    pub origin: usize,
    pub call: EventId,
    /// [`NEVER`] if the outcome is unknown.
    pub ret: EventId,
    pub action: Action,
    pub reply: Option<Reply>,
    /// All keys that it reads or writes, in order, but for those that never exist.
    pub keys: Rc<[KeyId]>,
    /// It cannot have changed a value: it is a read, or its reply says so.
    pub pure: bool,
    /// It sets its keys to the same values in every state, with the same reply.
    pub blind: bool,
    /// It deletes its only key, which must be there.
    pub clears: bool,
    /// Its outcome or its reply depends on versions.
    pub asks: bool,
    /// Its bit in a configuration: among the known operations that are open at a time, or among all unknown ones.
    pub slot: u32,
    /// Operations of a class have the same effects and replies, and so differ only in when they may happen.
    pub class: u32,
    /// No other operation is in its class.
    pub unique: bool,
    /// Strings that its keys must hold when it happens, in the order of its keys.
    pub needs: Vec<WatchId>,
    /// Strings that its keys may hold once it has happened.
    pub makes: Vec<WatchId>,
}

impl Op {
    /// Nobody asked for it: see the [model](super::model).
    fn expiry(origin: usize, key: KeyId, value: ValueId, rank: usize) -> Op {
        Op {
            origin,
            call: 0,
            ret: NEVER,
            action: Action::Expire(key, value),
            reply: None,
            keys: Rc::new([key]),
            pure: false,
            blind: false,
            clears: false,
            asks: false,
            slot: 0,
            class: rank as u32,
            unique: true,
            needs: Vec::new(),
            makes: Vec::new(),
        }
    }

    pub fn known(&self) -> bool {
        self.ret != NEVER
    }

    /// Its key, if it has exactly one.
    pub fn single(&self) -> Option<KeyId> {
        match self.keys[..] {
            [key] => Some(key),
            _ => None,
        }
    }

    pub fn touches(&self, key: KeyId) -> bool {
        self.keys.binary_search(&key).is_ok()
    }
}

pub type WatchId = u32;

/// A string that some reply shows to have been at a key.
#[derive(Debug)]
pub struct Watch {
    pub key: KeyId,
    pub value: ValueId,
    /// Those that need it there, in order of their calls.
    pub needed_by: Vec<OpId>,
    /// Those that may put it there, in order of their calls; useless if `anyone`.
    pub made_by: Vec<OpId>,
    /// There may be makers that `made_by` does not list.
    pub anyone: bool,
    /// The last return of an operation whose reply shows it.
    pub last_seen: EventId,
}

/// What replies can tell of the strings at a key.
///
/// If no reply that is still to come shows a string or any string that begins with it, then its bytes do not matter:
/// appending leaves it at the beginning, everything else replaces it whole. Its length, and whether it is an integer,
/// may still matter. Such strings are replaced by opaque ones, which are all alike. That is what keeps the
/// number of states small: among the writes of fifty clients on one key, most are never read.
#[derive(Clone, Debug, Default)]
pub struct Facets {
    /// Parts of strings are shown (GETRANGE): no string is opaque.
    ranges: bool,
    /// Lengths matter.
    lengths: bool,
    /// Strings grow, so a string is also seen through longer ones.
    grows: bool,
    /// Some operation treats integers differently.
    counts: bool,
}

/// Whether strings that no reply shows are replaced by opaque ones.
#[derive(Clone, Copy, Debug)]
pub enum Strings {
    /// They are: faster.
    Blurred,
    /// They are not, for explanations.
    Shown,
}

/// A partition.
#[derive(Debug)]
pub struct Problem {
    pub model: Model,
    /// In order of their calls.
    pub ops: Vec<Op>,
    pub events: Vec<Event>,
    /// Operations of unknown outcome, in order of their calls.
    pub unknown: Vec<OpId>,
    /// Those of them that are not blind.
    pub unknown_soft: Vec<OpId>,
    /// For each event, the call of the oldest operation that is open there and whose outcome is known.
    pub oldest: Vec<EventId>,
    pub watches: Vec<Watch>,
    /// How many known operations are open at once, at most.
    pub slots: usize,
    /// The last event that counts.
    pub horizon: EventId,
    /// The keys that exist at times.
    pub fertile: BTreeSet<KeyId>,
    ratchets: BTreeMap<KeyId, Ratchet>,
    watched: Vec<BTreeMap<Bytes, WatchId>>,
    facets: Vec<Facets>,
    /// For each return, the known operations that are open there; indexed by `open_at`.
    open: Vec<OpId>,
    open_at: Vec<(u32, u32)>,
}

impl Problem {
    /// From the operations of a partition, with their positions in the history.
    pub fn new(operations: &[(usize, &Operation)], strings: Strings) -> Result<Problem, Unsupported> {
        let mut keys = BTreeSet::new();
        for (_, operation) in operations {
            each_key(&operation.command, &mut |key| {
                keys.insert(key.clone());
            });
        }
        let keys: Vec<Bytes> = keys.into_iter().collect();
        let ids: BTreeMap<Bytes, KeyId> = keys.iter().cloned().zip(0..).collect();
        let mut fertile = BTreeSet::new();
        for (_, operation) in operations {
            each_made_key(&operation.command, &mut |key| {
                fertile.insert(ids[key]);
            });
        }
        let all: Rc<[KeyId]> = fertile.iter().copied().collect();
        let versioned = operations.iter().any(|(_, operation)| asks_for_versions(&operation.command));
        let mut model = Model::new(keys, versioned);

        let mortals = find_mortals(operations)?;
        let (events, order) = order_events(operations, &mortals);
        let mut ops = Vec::with_capacity(operations.len() + mortals.len());
        for (rank, index) in order.iter().enumerate() {
            let Some(&(origin, operation)) = operations.get(*index) else {
                let Mortal { origin, key, value, .. } = &mortals[*index - operations.len()];
                let value = model.intern(Value::String(Bytes::clone(value)));
                ops.push(Op::expiry(*origin, ids[*key], value, rank));
                continue;
            };
            let reply = operation.returned.as_ref().map(|(_, reply)| reply.clone());
            let refuse = |what| Unsupported { operation: origin, what };
            let action = compile(&operation.command, &ids, &mut model).map_err(refuse)?;
            check_reply(&action, reply.as_ref()).map_err(refuse)?;
            let mut mine = BTreeSet::new();
            each_key(&operation.command, &mut |key| {
                mine.extend(fertile.get(&ids[key]).copied());
            });
            let keys = if is_global(&operation.command) { all.clone() } else { mine.into_iter().collect() };
            let pure = is_pure(&action, reply.as_ref());
            ops.push(Op {
                origin,
                call: 0,
                ret: NEVER,
                pure,
                blind: !pure && is_blind(&action),
                clears: !pure && reply.is_some() && keys.len() == 1 && matches!(action, Action::Delete(_)),
                action,
                reply,
                keys,
                slot: 0,
                class: rank as u32,
                unique: true,
                asks: asks_for_versions(&operation.command),
                needs: Vec::new(),
                makes: Vec::new(),
            });
        }
        for (event, id) in (0..).zip(&events) {
            match id {
                Event::Call(op) => ops[*op as usize].call = event,
                Event::Return(op) => ops[*op as usize].ret = event,
            }
        }
        let keys = model.keys().len();
        let mut problem = Problem {
            model,
            ops,
            events,
            unknown: Vec::new(),
            unknown_soft: Vec::new(),
            oldest: Vec::new(),
            watches: Vec::new(),
            slots: 0,
            horizon: 0,
            fertile,
            ratchets: BTreeMap::new(),
            watched: vec![BTreeMap::new(); keys],
            facets: vec![Facets::default(); keys],
            open: Vec::new(),
            open_at: Vec::new(),
        };
        problem.assign_slots();
        problem.find_facets(strings);
        problem.find_watches();
        problem.find_makers();
        problem.find_classes();
        problem.set_horizon(NEVER);
        Ok(problem)
    }

    /// Lets events after this one not count: operations that return later have no reply to explain. If they take
    /// effect nevertheless, it is with that reply.
    pub fn set_horizon(&mut self, event: EventId) {
        self.horizon = event.min(self.events.len() as EventId - 1);
        self.ratchets = ratchet::find(&self.ops, self.horizon);
    }

    pub fn ratchet(&self, key: KeyId) -> Option<&Ratchet> {
        self.ratchets.get(&key)
    }

    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id as usize]
    }

    pub fn watch(&self, id: WatchId) -> &Watch {
        &self.watches[id as usize]
    }

    /// The known operations that are open when the operation of this event returns, itself included.
    pub fn open(&self, event: EventId) -> &[OpId] {
        let (start, end) = self.open_at[event as usize];
        &self.open[start as usize..end as usize]
    }

    /// The unknown operations that were called before an event.
    pub fn unknown_before(&self, event: EventId) -> &[OpId] {
        let end = self.unknown.partition_point(|id| self.op(*id).call < event);
        &self.unknown[..end]
    }

    /// The watch of a value at a key, if any reply shows it.
    pub fn watch_of(&self, key: KeyId, value: ValueId) -> Option<WatchId> {
        match self.model.value(value) {
            Value::String(bytes) => self.watched[key as usize].get(bytes).copied(),
            Value::Absent | Value::Opaque(_) | Value::Hash(_) => None,
        }
    }

    /// The value that stands for `value` at a key as far as replies from this event on can tell: see [`Facets`].
    pub fn canonical(&mut self, key: KeyId, value: ValueId, from: EventId) -> ValueId {
        let facets = &self.facets[key as usize];
        let Value::String(bytes) = self.model.value(value) else { return value };
        let may_count = facets.counts && bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        if facets.ranges || may_count {
            return value;
        }
        let seen = |watch: &WatchId| self.watches[*watch as usize].last_seen >= from;
        let watched = &self.watched[key as usize];
        let shown = if facets.grows {
            let longer = watched.range(bytes.clone()..).take_while(|(other, _)| other.starts_with(bytes));
            longer.into_iter().any(|(_, watch)| seen(watch))
        } else {
            watched.get(bytes).is_some_and(seen)
        };
        if shown {
            return value;
        }
        let len = if facets.lengths { bytes.len() } else { 0 };
        self.model.intern(Value::Opaque(len))
    }

    /// Executes an operation in a state; the changed cells are left in `changes`. `None` if its reply cannot be.
    pub fn apply(&mut self, id: OpId, cells: &[Cell], changes: &mut Vec<(KeyId, Cell)>) -> Option<Effect> {
        let op = &self.ops[id as usize];
        let mut overlay = Overlay::new(cells, changes);
        let expected = op.reply.as_ref().filter(|reply| **reply != Reply::NotRetained);
        let found = self.model.execute(&op.action, expected, &mut overlay);
        if expected.is_some() && found.as_ref() != expected {
            return None;
        }
        Some(if overlay.settle() { Effect::Changes } else { Effect::Nothing })
    }

    /// What an operation would reply in a state, whatever it did reply.
    pub fn reply(&mut self, id: OpId, cells: &[Cell], changes: &mut Vec<(KeyId, Cell)>) -> Option<Reply> {
        let op = &self.ops[id as usize];
        self.model.execute(&op.action, None, &mut Overlay::new(cells, changes))
    }

    fn assign_slots(&mut self) {
        let mut free: Vec<u32> = Vec::new();
        let mut open: Vec<OpId> = Vec::new();
        for (event, id) in (0..).zip(&self.events) {
            let oldest = open.first().map_or(event, |id| self.ops[*id as usize].call);
            self.oldest.push(oldest);
            self.open_at.push((0, 0));
            match *id {
                Event::Call(id) => {
                    let op = &mut self.ops[id as usize];
                    if op.ret == NEVER {
                        op.slot = self.unknown.len() as u32;
                        self.unknown.push(id);
                        if !op.blind {
                            self.unknown_soft.push(id);
                        }
                    } else {
                        op.slot = free.pop().unwrap_or(open.len() as u32);
                        open.push(id);
                        self.slots = self.slots.max(open.len());
                    }
                }
                Event::Return(id) => {
                    let start = self.open.len() as u32;
                    self.open.extend(&open);
                    self.open_at[event as usize] = (start, self.open.len() as u32);
                    open.retain(|other| *other != id);
                    free.push(self.ops[id as usize].slot);
                }
            }
        }
    }

    fn find_facets(&mut self, strings: Strings) {
        for facets in &mut self.facets {
            facets.ranges = matches!(strings, Strings::Shown);
        }
        for op in &self.ops {
            each_single(&op.action, &mut |action| {
                let mut at = |key: KeyId, mark: fn(&mut Facets)| mark(&mut self.facets[key as usize]);
                match action {
                    Action::GetRange(key, ..) => at(*key, |facets| facets.ranges = true),
                    Action::Length(key) => at(*key, |facets| facets.lengths = true),
                    Action::Append(key, _) => {
                        at(*key, |facets| (facets.lengths, facets.grows) = (true, true));
                    }
                    Action::Increment(key, _) => at(*key, |facets| facets.counts = true),
                    _ => {}
                }
            });
        }
    }

    /// Collects the strings that replies show, and those that expiry asks for, which it may do for ever.
    fn find_watches(&mut self) {
        for rank in 0..self.ops.len() {
            let op = &self.ops[rank];
            if let Action::Expire(key, value) = op.action
                && let Value::String(bytes) = self.model.value(value)
            {
                let watch = self.watch_for(key, bytes.clone()) as usize;
                self.watches[watch].last_seen = NEVER;
                continue;
            }
            let (Some(reply), ret) = (&op.reply, op.ret) else { continue };
            let mut shown = Vec::new();
            shows(&op.action, reply, &mut shown);
            let needed = needs(&op.action, reply);
            for (key, bytes) in shown {
                let watch = self.watch_for(key, bytes) as usize;
                self.watches[watch].last_seen = self.watches[watch].last_seen.max(ret);
            }
            for (key, bytes) in needed {
                let id = self.watch_for(key, bytes);
                let watch = &mut self.watches[id as usize];
                watch.last_seen = watch.last_seen.max(ret);
                watch.needed_by.push(rank as OpId);
                self.ops[rank].needs.push(id);
            }
        }
    }

    fn watch_for(&mut self, key: KeyId, bytes: Bytes) -> WatchId {
        if let Some(watch) = self.watched[key as usize].get(&bytes) {
            return *watch;
        }
        let value = self.model.intern(Value::String(bytes.clone()));
        let watch = self.watches.len() as WatchId;
        self.watches.push(Watch {
            key,
            value,
            needed_by: Vec::new(),
            made_by: Vec::new(),
            anyone: false,
            last_seen: 0,
        });
        self.watched[key as usize].insert(bytes, watch);
        watch
    }

    /// Finds for each watched string who may have put it there.
    fn find_makers(&mut self) {
        let mut appended = Suffixes::default();
        for op in &self.ops {
            each_single(&op.action, &mut |action| {
                if let Action::Append(key, suffix) = action {
                    appended.add_len(*key, suffix.len());
                }
            });
        }
        for (id, watch) in (0..).zip(&self.watches) {
            if let Value::String(bytes) = self.model.value(watch.value) {
                appended.add_watch(watch.key, bytes, id);
            }
        }
        let mut any_integer = BTreeSet::new();
        for id in 0..self.ops.len() {
            let op = &self.ops[id];
            if op.pure {
                continue;
            }
            let mut made = Vec::new();
            let alone = !matches!(op.action, Action::Batch { .. });
            let reply = op.reply.as_ref().filter(|reply| alone && **reply != Reply::NotRetained);
            each_single(&op.action, &mut |action| match action {
                Action::Put { key, value, .. } => made.extend(self.watch_of(*key, *value)),
                Action::PutMany { pairs, .. } => {
                    made.extend(pairs.iter().filter_map(|(key, value)| self.watch_of(*key, *value)));
                }
                Action::Increment(key, _) => match reply {
                    Some(Reply::Integer(number)) => {
                        let text = Bytes::from(number.to_string());
                        made.extend(self.watched[*key as usize].get(&text));
                    }
                    Some(_) => {}
                    None => {
                        any_integer.insert(*key);
                    }
                },
                Action::Append(key, suffix) => {
                    let len = match reply {
                        Some(Reply::Integer(len)) => Some(*len as usize),
                        Some(_) | None => None,
                    };
                    appended.ending_with(*key, suffix, len, &mut made);
                }
                _ => {}
            });
            made.sort_unstable();
            made.dedup();
            for watch in &made {
                self.watches[*watch as usize].made_by.push(id as OpId);
            }
            self.ops[id].makes = made;
        }
        for watch in &mut self.watches {
            if let Value::String(bytes) = self.model.value(watch.value) {
                watch.anyone = any_integer.contains(&watch.key) && integer(bytes).is_some();
            }
        }
    }

    /// Puts operations into classes; strings that no reply shows make no difference.
    fn find_classes(&mut self) {
        let mut classes: BTreeMap<_, u32> = BTreeMap::new();
        for id in 0..self.ops.len() {
            if self.ops[id].pure {
                continue;
            }
            let mut action = self.ops[id].action.clone();
            self.blur(&mut action);
            let name = (action.clone(), format!("{:?}", self.ops[id].reply));
            let first = *classes.entry(name).or_insert(id as u32);
            if first != id as u32 {
                self.ops[first as usize].unique = false;
                self.ops[id].unique = false;
            }
            self.ops[id].class = first;
            self.ops[id].action = action;
        }
    }

    fn blur(&mut self, action: &mut Action) {
        match action {
            Action::Put { key, value, .. } => *value = self.canonical(*key, *value, 0),
            Action::PutMany { pairs, .. } => {
                for (key, value) in pairs {
                    *value = self.canonical(*key, *value, 0);
                }
            }
            Action::Batch { actions, .. } => actions.iter_mut().for_each(|action| self.blur(action)),
            _ => {}
        }
    }
}

/// What an operation does to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    Changes,
}

/// Watched strings by their ends, for the lengths that are appended.
#[derive(Default)]
struct Suffixes {
    lens: BTreeMap<KeyId, BTreeSet<usize>>,
    ends: BTreeMap<(KeyId, Bytes), Vec<(usize, WatchId)>>,
}

impl Suffixes {
    fn add_len(&mut self, key: KeyId, len: usize) {
        self.lens.entry(key).or_default().insert(len);
    }

    fn add_watch(&mut self, key: KeyId, bytes: &Bytes, watch: WatchId) {
        for len in self.lens.get(&key).into_iter().flatten().filter(|len| **len <= bytes.len()) {
            let end = bytes.slice(bytes.len() - len..);
            self.ends.entry((key, end)).or_default().push((bytes.len(), watch));
        }
    }

    fn ending_with(&self, key: KeyId, suffix: &Bytes, len: Option<usize>, out: &mut Vec<WatchId>) {
        let found = self.ends.get(&(key, suffix.clone())).into_iter().flatten();
        out.extend(found.filter(|(whole, _)| len.is_none_or(|len| *whole == len)).map(|(_, watch)| *watch));
    }
}
