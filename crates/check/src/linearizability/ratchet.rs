//! Keys that only count up, or only grow: rule 10.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_store::Reply;

use super::model::{Action, KeyId, Value, integer};
use super::problem::{EventId, Op, OpId};

/// What only moves one way at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An integer: all that changes it adds to it.
    Counts,
    /// A string: all that changes it appends to it.
    Grows,
}

/// A key whose level never sinks: its integer, or its length; [`i64::MIN`] while it is absent.
#[derive(Debug)]
pub struct Ratchet {
    kind: Kind,
    /// For each call of an operation that fits one level only, the lowest such level from there on, and whose.
    lowest: Vec<(EventId, i64, OpId)>,
}

/// The keys that are ratchets, if operations that return after the horizon need nothing.
pub fn find(ops: &[Op], horizon: EventId) -> BTreeMap<KeyId, Ratchet> {
    let mut kinds: BTreeMap<KeyId, Option<Kind>> = BTreeMap::new();
    for op in ops.iter().filter(|op| !op.pure) {
        let kind = match (&op.action, op.single()) {
            (Action::Increment(_, by), Some(_)) if *by >= 0 => Some(Kind::Counts),
            (Action::Append(..), Some(_)) => Some(Kind::Grows),
            _ => None,
        };
        for key in op.keys.iter() {
            let known = kinds.entry(*key).or_insert(kind);
            if *known != kind {
                *known = None;
            }
        }
    }
    let mut ratchets: BTreeMap<KeyId, Ratchet> = kinds
        .into_iter()
        .filter_map(|(key, kind)| Some((key, Ratchet { kind: kind?, lowest: Vec::new() })))
        .collect();
    for (id, op) in ops.iter().enumerate().rev().filter(|(_, op)| op.ret <= horizon) {
        let Some(ratchet) = op.single().and_then(|key| ratchets.get_mut(&key)) else { continue };
        let Some(level) = ratchet.needed(op) else { continue };
        let last = ratchet.lowest.last().copied();
        if last.is_none_or(|(_, lowest, _)| level < lowest) {
            ratchet.lowest.push((op.call, level, id as OpId));
        } else if let Some((_, lowest, whose)) = last {
            ratchet.lowest.push((op.call, lowest, whose));
        }
    }
    for ratchet in ratchets.values_mut() {
        ratchet.lowest.reverse();
    }
    ratchets
}

impl Ratchet {
    /// Whether an operation that has not taken effect yet cannot any more, now that the key has this value.
    pub fn is_past(&self, value: &Value, op: &Op) -> bool {
        let (Some(level), Some(needed)) = (self.level(value), self.needed(op)) else { return false };
        match (self.kind, value, shown(op)) {
            _ if level > needed => true,
            (Kind::Grows, Value::String(bytes), Some(whole)) => !whole.starts_with(bytes),
            (Kind::Grows, Value::Opaque(_), Some(_)) => true,
            _ => false,
        }
    }

    /// Of the operations that are called after an event, the one that fits the lowest level.
    pub fn lowest_after(&self, event: EventId) -> Option<OpId> {
        let at = self.lowest.partition_point(|(call, ..)| *call <= event);
        self.lowest.get(at).map(|(_, _, id)| *id)
    }

    fn level(&self, value: &Value) -> Option<i64> {
        match (self.kind, value) {
            (_, Value::Absent) => Some(i64::MIN),
            (Kind::Counts, Value::String(bytes)) => integer(bytes),
            (Kind::Grows, Value::String(bytes)) => Some(bytes.len() as i64),
            (Kind::Grows, Value::Opaque(len)) => Some(*len as i64),
            (_, Value::Hash(_) | Value::Opaque(_)) => None,
        }
    }

    /// The highest level at which an operation fits its reply, if it fits no other but those that count as equal.
    fn needed(&self, op: &Op) -> Option<i64> {
        match (self.kind, &op.action, op.reply.as_ref()?) {
            (_, Action::Get(_), Reply::Value(None)) => Some(i64::MIN),
            (Kind::Counts, Action::Get(_), Reply::Value(Some(bytes))) => integer(bytes),
            (Kind::Grows, Action::Get(_), Reply::Value(Some(bytes))) => Some(bytes.len() as i64),
            (Kind::Counts, Action::Increment(_, by), Reply::Integer(sum)) => sum.checked_sub(*by),
            (Kind::Grows, Action::Append(_, suffix), Reply::Integer(len)) => {
                len.checked_sub(suffix.len() as i64)
            }
            (Kind::Grows, Action::Length(_), Reply::Integer(len)) => Some(*len),
            _ => None,
        }
    }
}

fn shown(op: &Op) -> Option<&Bytes> {
    match (&op.action, &op.reply) {
        (Action::Get(_), Some(Reply::Value(Some(bytes)))) => Some(bytes),
        _ => None,
    }
}
