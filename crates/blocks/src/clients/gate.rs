//! The read gate: what becomes of each read ([`Gate`]), and where it waits ([`WaitingReads`]).
//!
//! A protocol has one function that says which gate a read finds, of a state that it cannot change: at a leader when a
//! batch ends, at any other replica when the read comes in. Whether a read would be answered at this instant, which
//! checkers ask, follows from the same function.

use std::collections::BTreeMap;

/// Reads that may wait for the next slot, and as many for slots that are known; beyond, proxies ask again.
const MAX_WAITING: usize = 1 << 16;

/// What becomes of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The state that is here answers it, unless a clock has a say in it.
    Serve,
    /// It waits until this slot (or log index) is executed.
    Hold(u64),
    /// As a leader: it waits until a majority has answered a round of heartbeats that begins after it came: then nobody
    /// else led when it came.
    Round,
    /// As a leader: it waits for a slot that is proposed after it came. If that is decided in this ballot or term, no
    /// other leader can have had a write acknowledged before.
    Sync,
    /// The leader has to answer it.
    Redirect,
}

/// Reads that wait, `R` each: a leader's, or those that another replica holds.
#[derive(Debug)]
pub struct WaitingReads<R> {
    /// They need a slot proposed after they came.
    unproposed: Vec<R>,
    by_slot: BTreeMap<u64, AtSlot<R>>,
    /// How many are held.
    held: usize,
}

/// Reads that wait for the same slot.
#[derive(Debug)]
pub struct AtSlot<R> {
    /// It was proposed after they came: they find in the state what is true at that moment.
    pub logged: Vec<R>,
    /// It was proposed before they came: they pass the gate again.
    pub held: Vec<R>,
}

impl<R> Default for AtSlot<R> {
    fn default() -> Self {
        AtSlot { logged: Vec::new(), held: Vec::new() }
    }
}

impl<R> Default for WaitingReads<R> {
    fn default() -> Self {
        WaitingReads { unproposed: Vec::new(), by_slot: BTreeMap::new(), held: 0 }
    }
}

impl<R> WaitingReads<R> {
    /// Whether a slot must be proposed for some.
    pub fn need_slot(&self) -> bool {
        !self.unproposed.is_empty()
    }

    /// This slot is proposed.
    pub fn proposed(&mut self, slot: u64) {
        if self.need_slot() {
            self.by_slot.entry(slot).or_default().logged.append(&mut self.unproposed);
        }
    }

    /// How many wait for slots that were proposed before them.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether one more can be held.
    pub fn has_room(&self) -> bool {
        self.held < MAX_WAITING
    }

    /// It waits for the next slot, unless too many do.
    pub fn sync(&mut self, read: R) {
        if self.unproposed.len() < MAX_WAITING {
            self.unproposed.push(read);
        }
    }

    /// It waits for a slot that was proposed before it came, unless too many do.
    pub fn hold(&mut self, slot: u64, read: R) {
        if self.has_room() {
            self.held += 1;
            self.by_slot.entry(slot).or_default().held.push(read);
        }
    }

    /// The first slot for which some wait, and these, if it is executed.
    pub fn take_executed(&mut self, applied: u64) -> Option<(u64, AtSlot<R>)> {
        let entry = self.by_slot.first_entry().filter(|entry| *entry.key() <= applied)?;
        let (slot, reads) = entry.remove_entry();
        self.held -= reads.held.len();
        Some((slot, reads))
    }

    /// All of them: nothing can be waited for any more.
    pub fn take_all(&mut self) -> impl Iterator<Item = R> + use<R> {
        let WaitingReads { unproposed, by_slot, .. } = std::mem::take(self);
        let waiting = by_slot.into_values().flat_map(|reads| reads.held.into_iter().chain(reads.logged));
        waiting.chain(unproposed)
    }

    /// Asserts what must always hold.
    pub fn check(&self) {
        let held: usize = self.by_slot.values().map(|reads| reads.held.len()).sum();
        assert!(held == self.held, "held reads are counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_for_the_slot_proposed_next_or_for_one_that_is_known() {
        let mut waiting = WaitingReads::default();
        waiting.sync('a');
        waiting.hold(5, 'b');
        assert!(waiting.need_slot() && waiting.held() == 1);
        waiting.proposed(5);
        waiting.sync('c');
        assert!(waiting.take_executed(4).is_none());
        let (slot, reads) = waiting.take_executed(7).expect("slot 5 is executed");
        assert_eq!((slot, reads.logged, reads.held), (5, vec!['a'], vec!['b']));
        waiting.hold(9, 'd');
        waiting.check();
        assert_eq!(waiting.take_all().collect::<String>(), "dc");
        assert!(!waiting.need_slot() && waiting.held() == 0);
    }
}
