//! Values by consecutive numbers, most of which are taken again soon and about in their order: a ring. The few that
//! stay while many come and go move to a map, so the ring is never much longer than there are values.

use std::collections::{BTreeMap, VecDeque};

/// The ring may be so much longer than twice the number of values.
const SLACK: usize = 64;

/// See the file comment.
#[derive(Debug)]
pub(super) struct Window<T> {
    /// The number of the ring's first value.
    first: u64,
    /// Never begins with a value that was taken.
    ring: VecDeque<Option<T>>,
    /// Values with numbers below `first`.
    old: BTreeMap<u64, T>,
    len: usize,
}

impl<T> Default for Window<T> {
    /// Empty; numbers begin with 1.
    fn default() -> Self {
        Window { first: 1, ring: VecDeque::new(), old: BTreeMap::new(), len: 0 }
    }
}

impl<T> Window<T> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number that the next value will have.
    pub fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Adds a value under the next number, which it gives.
    pub fn push(&mut self, value: T) -> u64 {
        let number = self.next();
        self.ring.push_back(Some(value));
        self.len += 1;
        if self.ring.len() > 2 * self.len + SLACK
            && let Some(value) = self.ring.pop_front().flatten()
        {
            self.old.insert(self.first, value);
            self.first += 1;
            self.trim();
        }
        number
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        match self.place(number) {
            Some(place) => self.ring.get(place)?.as_ref(),
            None => self.old.get(&number),
        }
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        match self.place(number) {
            Some(place) => self.ring.get_mut(place)?.as_mut(),
            None => self.old.get_mut(&number),
        }
    }

    /// Takes a value out; `None` if it was taken before.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let value = match self.place(number) {
            Some(place) => self.ring.get_mut(place)?.take(),
            None => self.old.remove(&number),
        }?;
        self.len -= 1;
        self.trim();
        Some(value)
    }

    /// All, in the order of their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        let (first, old) = (self.first, self.old.iter().map(|(number, value)| (*number, value)));
        let ring = self.ring.iter().enumerate();
        old.chain(ring.filter_map(move |(place, value)| Some((first + place as u64, value.as_ref()?))))
    }

    /// All, in the order of their numbers.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (u64, &mut T)> {
        let (first, old) = (self.first, self.old.iter_mut().map(|(number, value)| (*number, value)));
        let ring = self.ring.iter_mut().enumerate();
        old.chain(ring.filter_map(move |(place, value)| Some((first + place as u64, value.as_mut()?))))
    }

    /// Where in the ring a value of this number is.
    fn place(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok())
    }

    fn trim(&mut self) {
        while let Some(None) = self.ring.front() {
            self.ring.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;

    #[test]
    fn it_is_a_map_by_consecutive_numbers_and_the_ring_stays_in_proportion() {
        for seed in 0..50 {
            let (mut random, mut window, mut model) = (Random::new(seed), Window::default(), BTreeMap::new());
            for _ in 0..5000 {
                let oldest = model.first_key_value().map_or(1, |(number, _)| *number);
                let number = match random.chance(0.8) {
                    true => oldest + random.range(1..4),
                    false => random.range(0..window.next() + 2),
                };
                match random.range(0..5) {
                    0 | 1 if model.len() < 200 => {
                        let number = window.push(random.u64());
                        let value = *window.get_mut(number).expect("it was added");
                        assert_eq!(model.insert(number, value), None);
                    }
                    0..4 => assert_eq!(window.take(number), model.remove(&number)),
                    _ => assert_eq!(window.get_mut(number), model.get_mut(&number)),
                }
                assert_eq!((window.len(), window.is_empty()), (model.len(), model.is_empty()));
                assert!(window.ring.len() <= 2 * 200 + SLACK + 1, "{} in the ring", window.ring.len());
            }
            assert!(window.iter().eq(model.iter().map(|(number, value)| (*number, value))));
            assert!(
                window.iter_mut().rev().eq(model.iter_mut().rev().map(|(number, value)| (*number, value)))
            );
        }
    }

    #[test]
    fn one_that_stays_does_not_hold_the_ring() {
        let mut window = Window::default();
        let stays = window.push("stays");
        for _ in 0..100_000 {
            let number = window.push("goes");
            assert_eq!(window.take(number), Some("goes"));
            assert!(window.ring.len() <= 2 * 2 + SLACK + 1);
        }
        assert_eq!((window.take(stays), window.take(stays)), (Some("stays"), None));
    }
}
