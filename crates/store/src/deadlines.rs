//! When keys expire.
//!
//! Keys that expire together may be a million, and removing them takes seconds. So a key **counts as absent** as soon
//! as replicated time has reached its deadline, and is removed later: a bounded number at each log position
//! ([`Store::advance`](crate::Store::advance)). How many keys are absent and not removed must be known at any moment
//! (for DBSIZE), so the keys of each deadline are counted: when time moves on, it adds up the deadlines that it passes,
//! not their keys.
//!
//! Everything here is a function of the keys' deadlines and of the horizon, so it is in no image.

use std::ops::Bound;

use imbl::{OrdMap, OrdSet};
use quorate_core::Wall;

use crate::compact::Compact;
use crate::process;

/// The deadlines of the keys that have one, those that count as absent included.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    index: OrdSet<(Wall, Compact)>,
    /// How many keys have each deadline.
    counts: OrdMap<Wall, u64>,
    /// Keys whose deadline is not after this count as absent. Stays zero where there is no replicated time: where
    /// only commands in conflict are ordered, keys expire by command alone.
    horizon: Wall,
    /// How many they are.
    due: usize,
}

impl Deadlines {
    pub fn insert(&mut self, deadline: Wall, key: Compact) {
        self.index.insert((deadline, key));
        *self.counts.entry(deadline).or_default() += 1;
        self.due += usize::from(self.is_due(Some(deadline)));
    }

    pub fn remove(&mut self, deadline: Wall, key: Compact) {
        let removed = self.index.remove(&(deadline, key));
        assert!(removed.is_some(), "the index has the deadlines of the keys");
        let count = self.counts.get_mut(&deadline).expect("keys with a deadline are counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&deadline);
        }
        self.due -= usize::from(self.is_due(Some(deadline)));
    }

    /// A key's deadline is another one now, or there is none any more, or there was none.
    pub fn change(&mut self, key: &Compact, from: Option<Wall>, to: Option<Wall>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.remove(from, key.clone());
        }
        if let Some(to) = to {
            self.insert(to, key.clone());
        }
    }

    /// No key has a deadline any more.
    pub fn clear(&mut self) {
        let empty = Deadlines { horizon: self.horizon, ..Deadlines::default() };
        process::discard(std::mem::replace(self, empty));
    }

    /// Moves the horizon on; it never goes back.
    pub fn advance(&mut self, now: Wall) {
        if now > self.horizon {
            let passed = self.counts.range((Bound::Excluded(self.horizon), Bound::Included(now)));
            self.due += passed.map(|(_, count)| *count as usize).sum::<usize>();
            self.horizon = now;
        }
    }

    /// Whether a key with this deadline counts as absent.
    pub fn is_due(&self, deadline: Option<Wall>) -> bool {
        deadline.is_some_and(|deadline| deadline <= self.horizon)
    }

    /// How many keys count as absent and are not removed yet.
    pub fn due(&self) -> usize {
        self.due
    }

    /// How many keys have a deadline and do not count as absent.
    pub fn live(&self) -> usize {
        self.index.len() - self.due
    }

    /// The key that is to be removed first, if one counts as absent.
    pub fn first_due(&self) -> Option<&Compact> {
        let (deadline, key) = self.index.get_min()?;
        self.is_due(Some(*deadline)).then_some(key)
    }

    /// When the next key expires.
    pub fn next(&self) -> Option<Wall> {
        if self.counts.is_empty() {
            return None;
        }
        let later = (Bound::Excluded(self.horizon), Bound::Unbounded);
        self.counts.range(later).next().map(|(deadline, _)| *deadline)
    }

    /// The keys whose deadlines are not after this, the earliest first.
    pub fn until(&self, wall: Wall) -> impl Iterator<Item = &Compact> {
        self.index.iter().take_while(move |(deadline, _)| *deadline <= wall).map(|(_, key)| key)
    }
}
