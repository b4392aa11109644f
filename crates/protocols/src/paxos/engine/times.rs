//! The times that proposals tell which are here and not executed.
//!
//! Problem: a key has expired once a slot is executed whose time is past its end, and replicas execute a slot at
//! different moments. Whoever judges by its own wall clock that a key is still there may have proposed a later time
//! (before the clock was set back), or voted for one; another replica may have executed that slot, and have shown that
//! the key is gone. Solution: a read of the state as it is goes by the **latest** of these times too. A key whose time
//! is up by then is left to the log, which decides.
//!
//! Whoever may answer reads alone has executed, proposed or voted for every slot that another may have executed: that
//! is what makes its reads linearizable in the first place. So nobody has shown the effect of a time that is not here.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::batch::Batch;
use quorate_core::Wall;

/// See the file comment.
#[derive(Clone, Debug, Default)]
pub struct Times {
    slots: BTreeMap<u64, Wall>,
}

impl Times {
    /// The value of a slot is this now.
    pub fn set(&mut self, slot: u64, value: &Bytes) {
        match Batch::time(value) {
            Some(time) => drop(self.slots.insert(slot, time)),
            None => drop(self.slots.remove(&slot)),
        }
    }

    /// All slots up to here are executed: the state knows their times.
    pub fn executed(&mut self, upto: u64) {
        while self.slots.first_entry().is_some_and(|slot| *slot.key() <= upto) {
            self.slots.pop_first();
        }
    }

    /// The latest of them; the epoch if there is none.
    pub fn latest(&self) -> Wall {
        self.slots.values().copied().max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_blocks::batch::Entry;

    #[test]
    fn the_latest_of_what_is_open_counts_until_it_is_executed_or_replaced() {
        let at = |millis| Batch::alone(Wall::from_millis(millis), &Entry::EndLease);
        let mut times = Times::default();
        assert_eq!(times.latest(), Wall::ZERO);
        for (slot, millis) in [(4, 20), (5, 90), (6, 30), (7, 70)] {
            times.set(slot, &at(millis));
        }
        assert_eq!(times.latest(), Wall::from_millis(90));
        times.executed(5);
        assert_eq!(times.latest(), Wall::from_millis(70), "what is executed is in the state");
        times.set(7, &at(10));
        assert_eq!(times.latest(), Wall::from_millis(30), "another ballot proposes another value");
        times.set(6, &Batch::noop());
        assert_eq!(times.latest(), Wall::from_millis(10), "a no-op tells no time");
    }
}
