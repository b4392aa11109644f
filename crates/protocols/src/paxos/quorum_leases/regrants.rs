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

    /// These slots have been executed, and all up to `applied`. Whether that is new; slots that are not are taken out.
    fn execute(&mut self, applied: u64, executed: &mut Vec<(u64, Written)>) -> bool {
        if applied == self.executed {
            return false;
        }
        // A state from another replica counts as a write to every key (`jump`).
        executed.retain(|(slot, _)| *slot > self.executed);
        self.executed = applied;
        let mut clear = None;
        for (slot, written) in executed {
            match written.keys() {
                None => clear = Some(*slot),
                Some(keys) => self.write(*slot, keys.iter()),
            }
        }
        if let Some(slot) = clear {
            self.forget(slot);
        }
        true
    }

    /// A grantor has granted keys again. Each of its words is true for good, as long as the granting is; the one that
    /// says most is kept.
    fn hear(&mut self, grantor: NodeId, said: Regrant) {
        let known = self.said.get(&grantor);
        if known.is_none_or(|last| last.guard != said.guard || last.upto <= said.upto) {
            self.said.insert(grantor, said);
        }
    }

    /// Whether a grantor, whose present promise is of this granting and has this safety threshold, has regranted all
    /// that is read after the last write to it that is known here.
    fn are_granted_by(
        &self,
        grantor: NodeId,
        (guard, safety_threshold): (u64, u64),
        extent: &Extent,
        applied: u64,
    ) -> bool {
        let Some(said) = self.said.get(&grantor).filter(|said| said.guard == guard) else { return false };
        let open = said.but.iter().any(|key| extent.contains(key));
        safety_threshold <= applied && (self.last(extent)..=applied).contains(&said.upto) && !open
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
    if !replica.policy.regrants.execute(applied, &mut executed) {
        return;
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
    replica.policy.regrants.hear(from, Regrant { guard, upto, but });
}

/// Whether a majority has regranted what is read after the last write to it that this replica knows.
pub(super) fn are_regranted(replica: &Replica, extent: &Extent, now: Time) -> bool {
    if mutation::active("quorum-leases/regrants-not-awaited") {
        return true;
    }
    let (me, applied) = (replica.me(), replica.state().applied());
    let by = |node: NodeId| {
        let promise = replica.promised_by(node, now);
        promise.is_some_and(|promise| replica.policy.regrants.are_granted_by(node, promise, extent, applied))
    };
    let counted = replica.configuration().reached(|node| (node == me || by(node)).then_some(()));
    counted.is_some()
}

#[cfg(test)]
mod tests {
    use quorate_blocks::batch::{Batch, Entry};
    use quorate_core::{Wall, Wire};
    use quorate_store::Command;

    use super::*;

    fn extent(keys: &str) -> Extent {
        let keys = keys.chars().map(|key| Key::from(key.to_string())).collect();
        let all = || Command::Count.footprint().reads().clone();
        if keys == Vec::<Key>::new() { all() } else { Command::GetMany { keys }.footprint().reads().clone() }
    }

    /// What a slot writes: `a`, `ab`, `*` for every key.
    fn written(keys: &str) -> Written {
        if keys == "*" {
            return Written::everything();
        }
        let pairs = keys.chars().map(|key| (Key::from(key.to_string()), Key::new())).collect();
        let command = Command::PutMany { pairs, if_none: false }.to_bytes();
        let write = Entry::Write { session: 1, seq: 1, low: 1, command };
        Written::by(&Batch::extended(Wall::from_millis(1).to_bytes(), &[write]))
    }

    #[test]
    fn a_grantor_counts_for_what_it_has_regranted_after_the_last_write_to_it() {
        let grantor = NodeId::new(2).unwrap();
        // what slots 1, 2, … write | granting, up to where, but which keys; in the order of arrival
        // | granting and safety threshold of its promise | what is read → whether it counts
        let table = "
            a b a | 1 3 -       | 1 0 | a  → yes
            a b a | 1 2 -       | 1 0 | a  → no
            a b a | 1 2 -       | 1 0 | b  → yes
            a b a | 1 2 -       | 1 0 | ab → no
            a b a | 1 2 -       | 1 0 | c  → yes
            a b a | 1 4 -       | 1 0 | a  → no
            a b a | 1 3 a       | 1 0 | a  → no
            a b a | 1 3 a       | 1 0 | b  → yes
            a b a | 1 3 a       | 1 0 | ab → no
            a b a | 1 3 -       | 1 0 | *  → yes
            a b a | 1 2 -       | 1 0 | *  → no
            a b a | 1 3 -       | 1 3 | a  → yes
            a b a | 1 3 -       | 1 4 | a  → no
            a b a | 1 3 -       | 2 0 | a  → no
            a b a | 1 3 a 1 3 - | 1 0 | a  → yes
            a b a | 1 3 - 1 2 a | 1 0 | a  → yes
            a b a | 1 3 - 2 2 - | 2 0 | a  → no
            a b a | 1 3 - 2 2 - | 2 0 | b  → yes
            a * b | 1 1 -       | 1 0 | a  → no
            a * b | 1 1 -       | 1 0 | c  → no
            a * b | 1 2 -       | 1 0 | a  → yes
            a * b | 1 2 -       | 1 0 | b  → no
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (given, expected) = line.split_once('→').unwrap();
            let columns: Vec<Vec<_>> =
                given.split('|').map(|column| column.split_whitespace().collect()).collect();
            let number = |word: &str| word.parse::<u64>().unwrap();
            let mut regrants = Regrants::default();
            let slots = (1..).zip(&columns[0]).map(|(slot, keys)| (slot, written(keys)));
            assert!(regrants.execute(columns[0].len() as u64, &mut slots.collect()));
            for said in columns[1].chunks(3) {
                let but = said[2].chars().filter(|key| *key != '-').map(|key| Key::from(key.to_string()));
                let said = Regrant { guard: number(said[0]), upto: number(said[1]), but: but.collect() };
                regrants.hear(grantor, said);
            }
            let promise = (number(columns[2][0]), number(columns[2][1]));
            let read = extent(columns[3][0].trim_matches('*'));
            let counts = regrants.are_granted_by(grantor, promise, &read, columns[0].len() as u64);
            assert_eq!(if counts { "yes" } else { "no" }, expected.trim(), "{line}");
        }
    }

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
