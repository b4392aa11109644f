//! What SCAN's numbers stand for.
//!
//! Redis promises clients that a cursor is a number; ours is a place in the order of keys, which no number of 64 bits
//! can name. So a node remembers which number it gave for which key. It remembers a bounded count of them, the newest;
//! a scan that has been forgotten, or that goes on at another node, gets an error and starts again.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::digest;
use quorate_store::Key;

/// How many places are remembered, and how many bytes their keys may have in all.
const PLACES: usize = 4096;
const BYTES: usize = 4 << 20;

/// The places given out, by number.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    keys: BTreeMap<u64, Key>,
    oldest_first: VecDeque<u64>,
    bytes: usize,
}

impl Cursors {
    /// A number for going on after this key. Equal keys have equal numbers, never 0.
    pub(super) fn put(&mut self, key: &Key) -> u64 {
        // Some clients read cursors as signed numbers.
        let number = (digest(key) >> 1).max(1);
        // Copied: the key would keep the whole reply alive that it came in.
        self.bytes += key.len();
        match self.keys.insert(number, Key::copy_from_slice(key)) {
            Some(before) => self.bytes -= before.len(),
            None => self.oldest_first.push_back(number),
        }
        while self.oldest_first.len() > PLACES || (self.bytes > BYTES && self.oldest_first.len() > 1) {
            let oldest = self.oldest_first.pop_front().expect("more than one is there");
            let key = self.keys.remove(&oldest).expect("each number has its key");
            self.bytes -= key.len();
        }
        number
    }

    /// The key that a number stands for.
    pub(super) fn get(&self, number: u64) -> Option<Key> {
        self.keys.get(&number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_places_are_remembered_and_no_more() {
        let mut cursors = Cursors::default();
        let key = |n: usize| Key::from(format!("key-{n}"));
        let numbers: Vec<u64> = (0..=PLACES).map(|n| cursors.put(&key(n))).collect();
        assert_eq!(cursors.get(numbers[0]), None);
        assert_eq!(cursors.get(numbers[1]), Some(key(1)));
        assert_eq!(cursors.put(&key(PLACES)), numbers[PLACES]);
        assert_eq!((cursors.keys.len(), cursors.oldest_first.len()), (PLACES, PLACES));
    }

    #[test]
    fn long_keys_are_forgotten_sooner() {
        let mut cursors = Cursors::default();
        for n in 0..1000 {
            cursors.put(&Key::from(format!("{n:050000}")));
        }
        assert!(cursors.bytes <= BYTES && cursors.keys.len() == BYTES / 50_000);
    }
}
