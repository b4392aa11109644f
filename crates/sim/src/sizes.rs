//! How long the strings are that clients write (`quorate sim --values`): mostly a few bytes, some kilobytes at times,
//! and seldom as many as may be.

use bytes::Bytes;
use quorate_core::Random;
use quorate_store::Command;

/// Draws how many bytes strings have.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// At most.
    most: usize,
    random: Random,
}

impl Sizes {
    /// At most so many bytes.
    pub fn new(most: usize, random: Random) -> Sizes {
        Sizes { most, random }
    }

    /// The longest.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Makes a string longer, perhaps; its first bytes stay, so that it remains one of its kind.
    fn stretch(&mut self, value: &mut Bytes) {
        let Sizes { most, random } = self;
        let (low, high) = match random.range(0..40) {
            0..26 => return,
            26..34 => (8, 2 << 10),
            34..39 => (2 << 10, 64 << 10),
            _ => (64 << 10, *most as u64),
        };
        let len = random.range(low..high.max(low + 1)).min(*most as u64) as usize;
        let mut long = value.to_vec();
        // Not the same everywhere: shards in the wrong places would restore it.
        while long.len() < len {
            long.extend_from_slice(&random.u64().to_be_bytes());
        }
        long.truncate(len.max(value.len()));
        *value = long.into();
    }

    /// Of the strings that a command writes.
    pub fn stretch_all(&mut self, command: &mut Command) {
        match command {
            Command::Put { value, .. } => self.stretch(value),
            Command::PutMany { pairs, .. } => pairs.iter_mut().for_each(|(_, value)| self.stretch(value)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_mostly_short_and_now_and_then_as_long_as_may_be() {
        let mut sizes = Sizes::new(1 << 20, Random::new(1));
        let mut lens: Vec<_> = (0..2000)
            .map(|unique| {
                let mut value = Bytes::from(format!("v{unique}"));
                sizes.stretch(&mut value);
                assert!(value.starts_with(format!("v{unique}").as_bytes()));
                value.len()
            })
            .collect();
        lens.sort_unstable();
        assert!(
            lens[1000] < 8 && lens[1500] > 8 && lens[1999] > 900 << 10 && lens[1999] <= 1 << 20,
            "{lens:?}"
        );
    }
}
