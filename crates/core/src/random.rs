//! Seeded randomness. The driver owns the generator: the simulator seeds it from the run, a node from the system.

use std::ops::Range;
use std::time::Duration;

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A deterministic generator: equal seeds give equal streams, on every machine.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent stream, for a part that must not disturb its parent's.
    pub fn fork(&mut self) -> Random {
        Random::new(self.u64())
    }

    /// A number of 64 bits; each is as likely.
    pub fn u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in a range, which must not be empty. (The bias of the multiply-shift is below 2⁻³² for the
    /// ranges used here, and equal on every machine.)
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "empty range");
        let width = range.end - range.start;
        range.start + ((u128::from(self.u64()) * u128::from(width)) >> 64) as u64
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform between two durations; `low` if they are equal or swapped.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let (low, high) = (low.as_nanos() as u64, high.as_nanos() as u64);
        Duration::from_nanos(if low < high { self.range(low..high) } else { low })
    }

    /// One of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.range(0..items.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_streams_and_forks() {
        let (mut a, mut b) = (Random::new(7), Random::new(7));
        let (mut fa, mut fb) = (a.fork(), b.fork());
        for _ in 0..100 {
            assert_eq!(a.range(3..900), b.range(3..900));
            assert_eq!(fa.u64(), fb.u64());
        }
        assert_ne!(a.u64(), fa.u64());
    }

    #[test]
    fn ranges_stay_inside_and_reach_both_ends() {
        let mut random = Random::new(1);
        let draws: Vec<_> = (0..1000).map(|_| random.range(10..14)).collect();
        assert_eq!(draws.iter().min(), Some(&10));
        assert_eq!(draws.iter().max(), Some(&13));
    }
}
