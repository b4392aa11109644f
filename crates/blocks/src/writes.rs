//! Which keys the entries of a log write that are there and not executed yet. Whoever answers reads from its own state
//! asks this first: a read that one of them can change has to wait, or to go elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::{Wire, mutation};
use quorate_store::Command;
use quorate_store::command::Key;
use quorate_store::footprint::Extent;

use crate::batch::{Batch, Entry};
use crate::parts;

/// What one value writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    keys: BTreeSet<Key>,
    /// Those of them that one command writes together with others.
    shared: BTreeSet<Key>,
    /// Those that several commands write: how many more than one.
    again: BTreeMap<Key, u64>,
    /// Every key there is or could be.
    everything: bool,
}

impl Written {
    /// What counts as a write to every key.
    pub fn everything() -> Written {
        Written { everything: true, ..Written::default() }
    }

    /// By the commands of a value. What does not decode is executed as a no-op.
    pub fn by(value: &Bytes) -> Written {
        let mut written = Written::default();
        let Ok(Some(batch)) = Batch::decode(value) else { return written };
        for entry in batch.entries {
            let Entry::Write { command, .. } = entry else { continue };
            let Some(footprint) = parts::footprint(&command) else { continue };
            match footprint.writes() {
                Extent::Everything => written.everything = true,
                Extent::Keys(keys) => {
                    let keys = keys.as_slice();
                    if keys.len() > 1 {
                        written.shared.extend(keys.iter().cloned());
                    }
                    for key in keys {
                        if !written.keys.insert(key.clone()) {
                            *written.again.entry(key.clone()).or_default() += 1;
                        }
                    }
                }
            }
        }
        written
    }

    /// Those keys, unless it is all of them.
    pub fn keys(&self) -> Option<&BTreeSet<Key>> {
        (!self.everything).then_some(&self.keys)
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.everything
    }
}

/// See the file comment.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    slots: BTreeMap<u64, Written>,
    keys: BTreeMap<Key, BTreeSet<u64>>,
    everything: BTreeSet<u64>,
}

impl Writes {
    /// The value of a slot writes this now.
    pub fn set(&mut self, slot: u64, written: Written) {
        self.remove(slot);
        if written.is_empty() {
            return;
        }
        if written.everything {
            self.everything.insert(slot);
        }
        for key in &written.keys {
            self.keys.entry(key.clone()).or_default().insert(slot);
        }
        self.slots.insert(slot, written);
    }

    fn remove(&mut self, slot: u64) -> Option<Written> {
        let written = self.slots.remove(&slot)?;
        self.everything.remove(&slot);
        for key in &written.keys {
            let slots = self.keys.get_mut(key).expect("each key of a slot has that slot");
            slots.remove(&slot);
            if slots.is_empty() {
                self.keys.remove(key);
            }
        }
        Some(written)
    }

    /// All slots up to here are executed: takes them out, in order, and gives what they wrote.
    pub fn executed(&mut self, upto: u64) -> Vec<(u64, Written)> {
        let slots: Vec<u64> = self.slots.range(..=upto).map(|(slot, _)| *slot).collect();
        slots.into_iter().filter_map(|slot| Some((slot, self.remove(slot)?))).collect()
    }

    /// The last slot that writes one of these keys.
    pub fn last(&self, extent: &Extent) -> Option<u64> {
        let anything = self.everything.last().copied();
        match extent {
            Extent::Everything => self.slots.last_key_value().map(|(slot, _)| *slot),
            Extent::Keys(keys) if keys.as_slice().is_empty() => None,
            Extent::Keys(keys) => {
                let last = |key: &Key| self.keys.get(key).and_then(|slots| slots.last().copied());
                keys.as_slice().iter().filter_map(last).max().max(anything)
            }
        }
    }

    /// Whether a slot that is here can change what this read returns. What does not decode returns the same whatever
    /// is written.
    pub fn affects(&self, read: &Bytes) -> bool {
        let Ok(read) = Command::from_bytes(read.clone()) else { return false };
        self.last(read.footprint().reads()).is_some()
    }

    /// The last slot with a command that writes one of these keys and others.
    pub fn last_shared(&self, extent: &Extent) -> Option<u64> {
        let Extent::Keys(keys) = extent else { return self.last(extent) };
        let last = |key: &Key| {
            let mut slots = self.keys.get(key)?.iter().rev().copied();
            slots.find(|slot| self.slots[slot].shared.contains(key) && !mutation::active("writes/all-alone"))
        };
        let anything = self.everything.last().copied().filter(|_| !keys.as_slice().is_empty());
        keys.as_slice().iter().filter_map(last).max().max(anything)
    }

    /// How many commands write one of these keys, of the one with the most; `None`: there is no telling.
    pub fn versions(&self, extent: &Extent) -> Option<u64> {
        let Extent::Keys(keys) = extent else { return None };
        let of = |key: &Key| {
            let slots = self.keys.get(key).into_iter().flatten();
            slots.map(|slot| 1 + self.slots[slot].again.get(key).copied().unwrap_or(0)).sum::<u64>()
        };
        // One that writes every key may do so several times over.
        self.everything.is_empty().then(|| keys.as_slice().iter().map(of).max().unwrap_or(0))
    }

    /// The first slot that is here.
    pub fn first(&self) -> Option<u64> {
        self.slots.first_key_value().map(|(slot, _)| *slot)
    }

    /// The slots below one that write a key.
    pub fn before(&self, key: &Key, slot: u64) -> impl Iterator<Item = u64> {
        let own = self.keys.get(key).into_iter().flat_map(move |slots| slots.range(..slot).copied());
        own.chain(self.clears_before(slot))
    }

    /// The slots below one that write every key.
    pub fn clears_before(&self, slot: u64) -> impl Iterator<Item = u64> {
        self.everything.range(..slot).copied()
    }

    /// Those that are here, in order, and what they write.
    pub fn slots(&self) -> impl Iterator<Item = (u64, &Written)> {
        self.slots.iter().map(|(slot, written)| (*slot, written))
    }

    /// What a slot writes, if it is here.
    pub fn of(&self, slot: u64) -> Option<&Written> {
        self.slots.get(&slot)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Wall;

    use super::*;

    /// A value that deletes these keys, each a letter; `*` clears all.
    fn value(text: &str) -> Bytes {
        let command = match text {
            "*" => Command::Clear,
            text => Command::Delete { keys: text.chars().map(|c| Key::from(c.to_string())).collect() },
        };
        let entry = Entry::Write { session: 1, seq: 1, low: 1, command: command.to_bytes() };
        Batch::alone(Wall::from_millis(1), &entry)
    }

    #[test]
    fn the_last_slot_that_writes_a_key_is_known_until_it_is_executed() {
        // operation → the last slot that writes a, b, a or b, everything; a with others
        let table = "
            set 1 a    → 1 0 1 1 0
            set 3 ab   → 3 3 3 3 3
            set 2 a    → 3 3 3 3 3
            set 3 b    → 2 3 3 3 0
            set 4 *    → 4 4 4 4 4
            set 4 c    → 2 3 3 4 0
            executed 2 → 0 3 3 4 0
            set 5 b    → 0 5 5 5 0
            executed 9 → 0 0 0 0 0
        ";
        let mut writes = Writes::default();
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (operation, expected) = line.split_once('→').unwrap();
            let words: Vec<_> = operation.split_whitespace().collect();
            let slot = words[1].parse().unwrap();
            match words[0] {
                "set" => writes.set(slot, Written::by(&value(words[2]))),
                _ => drop(writes.executed(slot)),
            }
            let extent = |text: &str| Extent::Keys(text.chars().map(|c| Key::from(c.to_string())).collect());
            let asked = [extent("a"), extent("b"), extent("ab"), Extent::Everything];
            let mut found = asked.map(|extent| writes.last(&extent)).to_vec();
            found.push(writes.last_shared(&extent("a")));
            let found: Vec<_> = found.iter().map(|slot| slot.unwrap_or(0).to_string()).collect();
            assert_eq!(found.join(" "), expected.trim(), "{line}");
            assert_eq!(writes.last(&extent("")), None);
        }
        assert!(writes.keys.is_empty() && writes.slots.is_empty(), "nothing is left behind");
    }
}
