//! What WATCH has found: the versions that EXEC compares.

use std::collections::BTreeMap;

use quorate_core::{Outcome, Wire};
use quorate_store::{Key, Reply};

/// What a watched key takes beyond its bytes: its place among the others, and two allocations.
const PLACE: usize = 128;

/// Keys whose change lets EXEC fail, with the versions they had.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Counts UNWATCH and its like: what was found for an earlier watch is of no use.
    id: u64,
    keys: BTreeMap<Key, u64>,
    /// Requests for versions that are under way.
    pending: usize,
    /// One of them failed: nobody knows what was watched.
    lost: bool,
    bytes: usize,
}

impl Watch {
    /// Watches more keys; the number must come back with their versions. `None` if they are too many.
    pub(super) fn begin(&mut self, keys: &[Key], limit: usize) -> Option<u64> {
        let bytes = self.bytes + keys.iter().map(|key| key.len() + PLACE).sum::<usize>();
        if bytes > limit {
            return None;
        }
        self.bytes = bytes;
        self.pending += 1;
        Some(self.id)
    }

    /// Bytes that are kept for what is watched.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stops watching all keys, as UNWATCH, EXEC and DISCARD do.
    pub(super) fn forget(&mut self) {
        *self = Watch { id: self.id + 1, ..Watch::default() };
    }

    /// Whether EXEC has to wait for versions.
    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Hands over what is watched, and whether some of it is lost; watches nothing from now on.
    pub(super) fn end(&mut self) -> (Vec<(Key, u64)>, bool) {
        assert_eq!(self.pending, 0, "EXEC waits for the versions");
        let (keys, lost) = (std::mem::take(&mut self.keys), self.lost);
        self.forget();
        (keys.into_iter().collect(), lost)
    }

    pub(super) fn found(&mut self, id: u64, keys: Vec<Key>, outcome: &Outcome) {
        if id != self.id {
            return;
        }
        self.pending -= 1;
        let reply = match outcome {
            Outcome::Done(bytes) => Reply::from_bytes(bytes.clone()).ok(),
            Outcome::Failed(_) => None,
        };
        match reply {
            Some(Reply::Versions(versions)) if versions.len() == keys.len() => {
                for (key, version) in keys.into_iter().zip(versions) {
                    // The first version counts: between it and the second the key may have changed.
                    self.keys.entry(key).or_insert(version);
                }
            }
            _ => self.lost = true,
        }
    }
}
