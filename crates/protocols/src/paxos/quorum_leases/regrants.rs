//! The active variant: what other grantors have said of keys whose writes had revoked their grant.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::writes::Written;
use quorate_core::{Context, NodeId, Time, mutation};
use quorate_store::command::Key;
use quorate_store::footprint::Extent;

use super::message::Message;
use super::{Replica, roster};
use crate::paxos::engine::{self, Role};

/// A grantor with more open keys than this says nothing: grantees wait until it has fewer.
const MAX_OPEN: usize = 1024;

/// Executed slots whose keys are remembered, at most: nobody may regrant them, as to one that is no grantee.
const MAX_WRITTEN: usize = 1024;

/// As a grantee.
#[derive(Debug, Default)]
pub(super) struct Regrants {
    /// The last of each grantor in this ballot.
    said: BTreeMap<NodeId, Regrant>,
    /// The last executed slot that writes a key, if it is above `floor`; and the keys of each of these slots.
    last: BTreeMap<Key, u64>,
    written: BTreeMap<u64, Vec<Key>>,
    /// Any key may have been written in slots up to here.
    floor: u64,
    executed: u64,
}

#[derive(Debug)]
struct Regrant {
    guard: u64,
    upto: u64,
    but: Vec<Key>,
}

impl Regrants {
    /// Another ballot.
    pub fn clear(&mut self) {
        self.said.clear();
    }

    /// Everything up to here was executed elsewhere.
    pub fn jump(&mut self, applied: u64) {
        self.executed = applied;
        self.forget(applied);
    }

    /// A slot is executed that writes these keys.
    fn write<'a>(&mut self, slot: u64, keys: impl Iterator<Item = &'a Key>) {
        // They are not to keep the value of the slot in memory.
        let keys: Vec<_> = keys.map(|key| Key::copy_from_slice(key)).collect();
        self.last.extend(keys.iter().map(|key| (key.clone(), slot)));
        self.written.insert(slot, keys);
        if self.written.len() > MAX_WRITTEN {
            let first = self.written.first_key_value().map_or(0, |(slot, _)| *slot);
            self.forget(first);
        }
    }

    fn forget(&mut self, upto: u64) {
        self.floor = self.floor.max(upto);
        while let Some((slot, keys)) = self.written.pop_first() {
            if slot > self.floor {
                self.written.insert(slot, keys);
                break;
            }
            for key in keys {
                if self.last.get(&key) == Some(&slot) {
                    self.last.remove(&key);
                }
            }
        }
    }

    /// The last slot that may have written any of these keys.
    fn last(&self, extent: &Extent) -> u64 {
        let last = match extent {
            Extent::Everything => self.written.last_key_value().map(|(slot, _)| *slot),
            Extent::Keys(keys) => keys.as_slice().iter().filter_map(|key| self.last.get(key)).max().copied(),
        };
        last.unwrap_or(0).max(self.floor)
    }
}

/// Slots have been executed: as a grantee, this replica needs their keys to be regranted; as a grantor, it does so.
pub(super) fn on_executed(
    replica: &mut Replica,
    mut executed: Vec<(u64, Written)>,
    cx: &mut Context<'_, Replica>,
) {
    let (applied, me) = (replica.state().applied(), replica.me());
    let regrants = &mut replica.policy.regrants;
    if applied == regrants.executed {
        return;
    }
    // A state from another replica counts as a write to every key (`jump`).
    executed.retain(|(slot, _)| *slot > regrants.executed);
    regrants.executed = applied;
    let mut clear = None;
    for (slot, written) in &executed {
        match written.keys() {
            None => clear = Some(*slot),
            Some(keys) => regrants.write(*slot, keys.iter()),
        }
    }
    if let Some(slot) = clear {
        regrants.forget(slot);
    }
    // What a majority has regranted need not be known by key.
    let said = |node| replica.policy.regrants.said.get(&node).map(|said| said.upto);
    let reached = replica.configuration().reached(|node| match node == me {
        true => Some(applied),
        false => said(node),
    });
    if let Some(upto) = reached.map(|upto| upto.min(applied)) {
        replica.policy.regrants.forget(upto);
    }
    if !executed.is_empty() {
        tell(replica, cx);
    }
}

/// Grants all keys again but those with writes that are open.
pub(super) fn tell(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let grants = !matches!(replica.role(), Role::Candidate(_)) && replica.is_current();
    if replica.config().policy.passive || !grants {
        return;
    }
    let (now, ballot, me) = (cx.now(), replica.promised(), replica.me());
    let upto = replica.state().applied();
    let mut but: Vec<Key> = Vec::new();
    for (_, written) in replica.writes().slots() {
        let Some(keys) = written.keys() else { return };
        but.extend(keys.iter().cloned());
        if but.len() > MAX_OPEN {
            return;
        }
    }
    but.sort_unstable();
    but.dedup();
    if mutation::active("quorum-leases/regrants-open-keys") {
        but.clear();
    }
    for node in roster(replica).everyone().without(me).iter() {
        if let Some(guard) = replica.promised_to(node, now) {
            let message = Message::Regrant { ballot, guard, upto, but: but.clone() };
            cx.send(node, engine::Message::Own(message));
        }
    }
}

/// A grantor has granted keys again.
pub(super) fn on_regrant(
    replica: &mut Replica,
    from: NodeId,
    (ballot, guard): (Ballot, u64),
    upto: u64,
    but: Vec<Key>,
) {
    if ballot != replica.promised() {
        return;
    }
    let said = &mut replica.policy.regrants.said;
    // Each of them is true for good, as long as the granting is; the one that says most is kept.
    if said.get(&from).is_none_or(|last| last.guard != guard || last.upto <= upto) {
        said.insert(from, Regrant { guard, upto, but });
    }
}

/// Whether a majority has regranted what is read after the last write to it that this replica knows.
pub(super) fn are_regranted(replica: &Replica, extent: &Extent, now: Time) -> bool {
    if mutation::active("quorum-leases/regrants-not-awaited") {
        return true;
    }
    let (me, applied) = (replica.me(), replica.state().applied());
    let Regrants { said, .. } = &replica.policy.regrants;
    let last = replica.policy.regrants.last(extent);
    let by = |node: NodeId| {
        let Some((guard, safety_threshold)) = replica.promised_by(node, now) else { return false };
        let Some(said) = said.get(&node).filter(|said| said.guard == guard) else { return false };
        let open = said.but.iter().any(|key| extent.contains(key));
        safety_threshold <= applied && (last..=applied).contains(&said.upto) && !open
    };
    let counted = replica.configuration().reached(|node| (node == me || by(node)).then_some(()));
    counted.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As at one that is granted nothing, or where grants stay.
    #[test]
    fn what_nobody_regrants_is_not_remembered_for_ever() {
        let numbers = (0..=10 * MAX_WRITTEN as u32).flat_map(u32::to_be_bytes);
        let (mut regrants, value) = (Regrants::default(), Key::from(numbers.collect::<Vec<_>>()));
        let key = |slot: usize| value.slice(4 * slot..4 * slot + 4);
        for slot in 1..=10 * MAX_WRITTEN {
            regrants.write(slot as u64, [key(slot)].iter());
        }
        assert_eq!((regrants.last.len(), regrants.written.len()), (MAX_WRITTEN, MAX_WRITTEN));
        assert!(value.is_unique());
        let last = |slot| regrants.last(&Extent::Keys([key(slot)].into_iter().collect()));
        let remembered = 9 * MAX_WRITTEN;
        assert_eq!(
            [0, 3, remembered + 1].map(last),
            [remembered, remembered, remembered + 1].map(|at| at as u64)
        );
    }

    #[test]
    fn after_a_snapshot_any_key_may_have_been_written_in_the_last_slot_that_it_covers() {
        let mut regrants = Regrants::default();
        regrants.last.insert(Key::from_static(b"k"), 3);
        regrants.written.insert(3, vec![Key::from_static(b"k")]);
        assert_eq!(regrants.last(&Extent::Everything), 3);
        regrants.jump(7);
        assert_eq!((regrants.last(&Extent::Everything), regrants.executed), (7, 7));
        assert!(regrants.last.is_empty() && regrants.written.is_empty(), "nothing is remembered by key");
    }
}
