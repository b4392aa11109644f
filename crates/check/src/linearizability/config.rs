//! What one way of ordering the operations so far leaves behind.

use std::rc::Rc;

use super::model::{Cell, KeyId};
use super::problem::{EventId, OpId, Problem};

/// A configuration: a state, and which operations have taken effect.
#[derive(Clone, Debug)]
pub struct Config {
    /// The next event.
    pub event: EventId,
    pub state: State,
    /// Open known operations that have taken effect, by slot.
    pub done: Bits,
    /// Unknown operations that have taken effect.
    pub used: Bits,
    pub cuts: Cuts,
}

#[derive(Clone, Debug)]
pub struct State {
    pub cells: Rc<[Cell]>,
    /// Of the cells.
    pub hash: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bits(Vec<u64>);

/// The moment of the last blind write or deletion of each key: operations that were called before that event can be
/// inserted there.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cuts(Vec<(KeyId, EventId)>);

impl Config {
    /// Nothing has happened.
    pub fn initial(problem: &Problem) -> Config {
        Config {
            event: 0,
            state: State::new(problem.model.initial().into()),
            done: Bits::new(problem.slots),
            used: Bits::new(problem.unknown.len()),
            cuts: Cuts::default(),
        }
    }

    /// How many operations were spent that might have been saved, and how many are still to be done.
    pub fn burden(&self, problem: &Problem) -> u32 {
        let open = problem.open(self.event).iter();
        self.used.count() + open.filter(|id| !self.done.contains(problem.op(**id).slot)).count() as u32
    }

    /// Rule 4: whether whatever can follow the other configuration can follow this one. Both stand at the same event.
    pub fn dominates(&self, other: &Config, problem: &Problem) -> bool {
        if self.state.cells != other.state.cells || !self.used.is_subset(&other.used) {
            return false;
        }
        if !self.cuts.covers(&other.cuts) {
            return false;
        }
        if self.done == other.done {
            return true;
        }
        problem.open(self.event).iter().all(|id| {
            let op = problem.op(*id);
            match (self.done.contains(op.slot), other.done.contains(op.slot)) {
                (true, true) | (false, false) => true,
                (true, false) => false,
                (false, true) => op.blind && op.single().is_some_and(|key| op.call < self.cuts.get(key)),
            }
        })
    }
}

impl State {
    fn new(cells: Rc<[Cell]>) -> State {
        let hash = (0..).zip(cells.iter()).fold(0, |hash, (key, cell)| hash ^ mix(key, *cell));
        State { cells, hash }
    }

    pub fn set(&mut self, changes: &[(KeyId, Cell)]) {
        let cells = &self.cells;
        if changes.iter().all(|(key, cell)| cells[*key as usize] == *cell) {
            return;
        }
        let cells = Rc::make_mut(&mut self.cells);
        for (key, cell) in changes {
            let old = std::mem::replace(&mut cells[*key as usize], *cell);
            self.hash ^= mix(*key, old) ^ mix(*key, *cell);
        }
    }
}

fn mix(key: KeyId, cell: Cell) -> u64 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&key.to_le_bytes());
    bytes[4..8].copy_from_slice(&cell.value.0.to_le_bytes());
    bytes[8..].copy_from_slice(&cell.version.0.to_le_bytes());
    quorate_core::digest(&bytes)
}

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    pub fn contains(&self, bit: u32) -> bool {
        self.0[bit as usize / 64] & 1 << (bit % 64) != 0
    }

    pub fn insert(&mut self, bit: u32) {
        self.0[bit as usize / 64] |= 1 << (bit % 64);
    }

    pub fn remove(&mut self, bit: u32) {
        self.0[bit as usize / 64] &= !(1 << (bit % 64));
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn is_subset(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a & !b == 0)
    }
}

impl Cuts {
    /// 0 if there is none.
    pub fn get(&self, key: KeyId) -> EventId {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.0[at].1,
            Err(_) => 0,
        }
    }

    pub fn set(&mut self, key: KeyId, cut: EventId) {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.0[at].1 = cut,
            Err(at) => self.0.insert(at, (key, cut)),
        }
    }

    /// Drops cuts before which no open operation was called.
    pub fn forget(&mut self, oldest: EventId) {
        self.0.retain(|(_, cut)| *cut > oldest);
    }

    fn covers(&self, other: &Cuts) -> bool {
        other.0.iter().all(|(key, theirs)| self.get(*key) >= *theirs)
    }
}

/// Whether an operation can still take effect: it is open and has not, or is still to come.
pub fn is_left(problem: &Problem, id: OpId, event: EventId, done: &Bits, used: &Bits) -> bool {
    let op = problem.op(id);
    if op.call > event {
        true
    } else if op.known() {
        op.ret >= event && !done.contains(op.slot)
    } else {
        !used.contains(op.slot)
    }
}
