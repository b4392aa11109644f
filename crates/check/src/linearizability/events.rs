//! The calls and returns of a partition, in order, and the ends of values with a time to live among them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Unsupported;
use super::action::{each_key, each_mortal, keeps_time};
use super::problem::OpId;
use crate::history::Operation;

#[derive(Clone, Copy, Debug)]
pub enum Event {
    Call(OpId),
    Return(OpId),
}

/// A value with a time to live.
#[derive(Debug)]
pub struct Mortal<'a> {
    /// The place in the history of the operation that put it.
    pub origin: usize,
    pub key: &'a Bytes,
    pub value: &'a Bytes,
    /// From when on it may be gone, in nanoseconds of the history.
    pub from: u64,
}

/// The values with a time to live. It must be clear for how long: nothing may change their keys and keep their time.
pub fn find_mortals<'a>(operations: &[(usize, &'a Operation)]) -> Result<Vec<Mortal<'a>>, Unsupported> {
    let mut mortals = Vec::new();
    for (origin, operation) in operations {
        each_mortal(&operation.command, &mut |key, value, from| {
            mortals.push(Mortal { origin: *origin, key, value, from: from.max(operation.invoked) });
        });
    }
    let keys: BTreeSet<&Bytes> = mortals.iter().map(|mortal| mortal.key).collect();
    for (operation, Operation { command, .. }) in operations {
        let mut touches = false;
        each_key(command, &mut |key| touches |= keys.contains(key));
        if touches && keeps_time(command) {
            let what =
                "a key with a time to live is changed in place, which keeps its time: this is not modelled";
            return Err(Unsupported { operation: *operation, what });
        }
    }
    Ok(mortals)
}

/// Sorts calls and returns by time, and operations by their calls; behind the operations count the ends of values with
/// a time to live. An operation comes before another if it returned before the other was invoked. Where a return and a
/// call fall on one nanosecond, they count as concurrent; but those of one client keep the order of the history.
pub fn order_events(operations: &[(usize, &Operation)], mortals: &[Mortal<'_>]) -> (Vec<Event>, Vec<usize>) {
    // Within an instant: the calls, the returns, the calls of clients that have just returned, their returns, …
    let mut points = Vec::with_capacity(2 * operations.len());
    let mut last: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    for (index, (_, operation)) in operations.iter().enumerate() {
        let after = last.get(&operation.client).filter(|(time, _)| *time == operation.invoked);
        let call = after.map_or(0, |(_, rank)| rank + 1);
        points.push((operation.invoked, call, false, index));
        if let Some((at, _)) = operation.returned {
            let rank = if at == operation.invoked { call + 1 } else { 1 };
            points.push((at, rank, true, index));
            last.insert(operation.client, (at, rank));
        }
    }
    let ends = mortals.iter().zip(operations.len()..).map(|(mortal, index)| (mortal.from, 0, false, index));
    points.extend(ends);
    points.sort_unstable();
    let mut order = Vec::with_capacity(operations.len() + mortals.len());
    let mut ranks = vec![0; operations.len() + mortals.len()];
    let events = points
        .into_iter()
        .map(|(_, _, returns, index)| {
            if returns {
                return Event::Return(ranks[index]);
            }
            ranks[index] = order.len() as OpId;
            order.push(index);
            Event::Call(ranks[index])
        })
        .collect();
    (events, order)
}
