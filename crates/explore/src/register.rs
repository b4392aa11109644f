//! What clients have seen of the one key, as far as it can still matter to linearizability: the *worlds* that the
//! present may be, one for each way in which the operations so far may have taken effect. Histories with the same
//! worlds have the same futures, however they differ; so the worlds are the state, and not the history.
//!
//! (The histories themselves are judged by the checker that all simulations use. That both agree is asserted.)

use super::MAX_OPERATIONS;

/// A value of the key: 0 for none, or that of a write, counted from 1.
pub(super) type Value = u8;

/// One way in which everything so far may have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    value: Value,
    /// Writes that have taken effect and not returned, one bit each.
    done: u8,
    /// The values that each read under way may return, one bit each.
    seen: [u16; MAX_OPERATIONS],
}

/// See the file comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Register {
    asked: u8,
    told: u8,
    /// Writes that have begun and not returned.
    writes: u8,
    /// Sorted, none twice.
    worlds: Vec<World>,
}

impl Default for Register {
    fn default() -> Self {
        Register { asked: 0, told: 0, writes: 0, worlds: vec![World::default()] }
    }
}

impl Register {
    /// Whether an operation was asked, and has returned.
    pub fn standing(&self, operation: usize) -> (bool, bool) {
        (self.asked & 1 << operation != 0, self.told & 1 << operation != 0)
    }

    /// An operation begins.
    pub fn ask(&mut self, operation: usize, is_write: bool) {
        self.asked |= 1 << operation;
        if !is_write {
            for world in &mut self.worlds {
                world.seen[operation] = 1 << world.value;
            }
        }
        if is_write {
            self.writes |= 1 << operation;
        }
        self.settle();
    }

    /// An operator asks for something.
    pub fn demand(&mut self, operation: usize) {
        self.asked |= 1 << operation;
    }

    /// An operator is answered.
    pub fn granted(&mut self, operation: usize) {
        self.told |= 1 << operation;
    }

    /// A write returns.
    pub fn written(&mut self, operation: usize) {
        self.told |= 1 << operation;
        self.writes &= !(1 << operation);
        self.worlds.retain(|world| world.done & 1 << operation != 0);
        self.worlds.iter_mut().for_each(|world| world.done &= !(1 << operation));
        self.settle();
    }

    /// A read returns.
    pub fn read(&mut self, operation: usize, value: Value) {
        self.told |= 1 << operation;
        self.worlds.retain(|world| world.seen[operation] & 1 << value != 0);
        self.worlds.iter_mut().for_each(|world| world.seen[operation] = 0);
        self.settle();
    }

    /// Whether there is any way.
    pub fn is_possible(&self) -> bool {
        !self.worlds.is_empty()
    }

    /// A write that has begun may take effect at any time, in each world in which it has not.
    fn settle(&mut self) {
        let mut next = 0;
        while next < self.worlds.len() {
            let world = self.worlds[next];
            next += 1;
            for write in (0..MAX_OPERATIONS).filter(|write| self.writes & 1 << write & !world.done != 0) {
                let value = write as Value + 1;
                let mut after = World { value, done: world.done | 1 << write, ..world };
                after.seen.iter_mut().filter(|seen| **seen != 0).for_each(|seen| *seen |= 1 << value);
                if !self.worlds.contains(&after) {
                    self.worlds.push(after);
                }
            }
        }
        self.worlds.sort_unstable();
        self.worlds.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_under_way_may_return_whatever_was_there_meanwhile_and_nothing_else() {
        let mut register = Register::default();
        register.ask(2, false);
        register.ask(0, true);
        register.written(0);
        register.ask(1, true);
        for value in 0..3 {
            let mut one = register.clone();
            one.read(2, value);
            assert!(one.is_possible(), "{value}");
        }
        register.ask(3, false);
        let mut early = register.clone();
        early.read(3, 0);
        assert!(!early.is_possible(), "a write had returned before");
        register.read(3, 2);
        register.written(1);
        register.ask(4, false);
        register.read(4, 1);
        assert!(!register.is_possible(), "the second write had been read before");
    }

    #[test]
    fn histories_that_differ_in_nothing_that_matters_are_one() {
        let (mut one, mut other) = (Register::default(), Register::default());
        one.ask(0, true);
        one.ask(1, false);
        one.read(1, 1);
        one.written(0);
        other.ask(0, true);
        other.written(0);
        other.ask(1, false);
        other.read(1, 1);
        assert_eq!(one, other);
        other.ask(2, false);
        assert_ne!(one, other);
    }
}
