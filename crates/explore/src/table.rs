//! A map from digests, and a set of them for hundreds of millions: flat, without buckets, iterated by nobody.
//!
//! A key tells its place; the next free one is taken where that is occupied. Two things with one digest count as
//! one. Keys of the map have 128 bits, and never do. Those of the set have 64, to be small, as in other model
//! checkers: among 10⁸ states, one is left out with a chance of 1 in 3,700.

/// From digests to small values; `()` makes it a set.
pub(super) struct Table<V> {
    /// 0 where nothing is.
    keys: Vec<u128>,
    values: Vec<V>,
    len: usize,
}

impl<V: Copy + Default> Default for Table<V> {
    fn default() -> Self {
        Table { keys: vec![0; 16], values: vec![V::default(); 16], len: 0 }
    }
}

impl<V: Copy + Default> Table<V> {
    pub fn get(&self, key: u128) -> Option<V> {
        let key = key.max(1);
        let place = self.place(key);
        (self.keys[place] == key).then(|| self.values[place])
    }

    /// Whether it was not there; then it has this value now.
    pub fn insert(&mut self, key: u128, value: V) -> bool {
        let key = key.max(1);
        if (self.len + 1) * 4 > self.keys.len() * 3 {
            self.grow();
        }
        let place = self.place(key);
        if self.keys[place] == key {
            return false;
        }
        (self.keys[place], self.values[place]) = (key, value);
        self.len += 1;
        true
    }

    /// The value from now on.
    pub fn set(&mut self, key: u128, value: V) {
        if !self.insert(key, value) {
            let place = self.place(key.max(1));
            self.values[place] = value;
        }
    }

    /// Where a key is, or would be.
    fn place(&self, key: u128) -> usize {
        let mask = self.keys.len() - 1;
        // Small numbers are keys too: all bits count.
        let word = (key ^ key >> 64) as u64;
        let mut place = (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize & mask;
        while self.keys[place] != 0 && self.keys[place] != key {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let size = self.keys.len() * 2;
        let keys = std::mem::replace(&mut self.keys, vec![0; size]);
        let values = std::mem::replace(&mut self.values, vec![V::default(); size]);
        for (key, value) in keys.into_iter().zip(values).filter(|(key, _)| *key != 0) {
            let place = self.place(key);
            (self.keys[place], self.values[place]) = (key, value);
        }
    }
}

/// A set of digests.
pub(super) struct Seen {
    /// 0 where nothing is.
    keys: Vec<u64>,
    len: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Seen { keys: vec![0; 16], len: 0 }
    }
}

impl Seen {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.keys.len() * size_of::<u64>()
    }

    /// Whether it was not there; it is now.
    pub fn insert(&mut self, key: u64) -> bool {
        let key = key.max(1);
        if (self.len + 1) * 8 > self.keys.len() * 7 {
            let size = self.keys.len() * 2;
            for key in std::mem::replace(&mut self.keys, vec![0; size]).into_iter().filter(|key| *key != 0) {
                let place = self.place(key);
                self.keys[place] = key;
            }
        }
        let place = self.place(key);
        let new = self.keys[place] == 0;
        self.keys[place] = key;
        self.len += usize::from(new);
        new
    }

    /// Where a key is, or would be.
    fn place(&self, key: u64) -> usize {
        let mask = self.keys.len() - 1;
        let mut place = (key >> 16) as usize & mask;
        while self.keys[place] != 0 && self.keys[place] != key {
            place = (place + 1) & mask;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{Random, wide_digest};

    use super::*;

    #[test]
    fn each_is_seen_for_the_first_time_once() {
        let (mut seen, mut random) = (Seen::default(), Random::new(2));
        let keys: Vec<_> = (0..10_000).map(|_| random.u64()).collect();
        assert!(keys.iter().all(|key| seen.insert(*key)));
        assert!(!keys.iter().any(|key| seen.insert(*key)));
        assert_eq!(seen.len(), keys.len());
    }

    #[test]
    fn what_was_inserted_first_stays() {
        let mut table = Table::default();
        let mut random = Random::new(1);
        let keys: Vec<_> = (0..10_000).map(|_| wide_digest(&random.u64().to_le_bytes())).collect();
        for (value, key) in keys.iter().enumerate() {
            assert_eq!(table.get(*key), None);
            assert!(table.insert(*key, value));
            assert!(!table.insert(*key, 0));
        }
        assert!(keys.iter().enumerate().all(|(value, key)| table.get(*key) == Some(value)));
        assert!(table.insert(0, 7) && table.get(0) == Some(7), "zero is a key like others");
    }
}
