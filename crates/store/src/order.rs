//! The order of keys in a store and of fields in a hash: by a hash that is the same everywhere, then by their bytes.
//!
//! SCAN and HSCAN give their clients a cursor of 64 bits, and any node must be able to go on from it, also after the
//! key that it stood at is gone. So keys are visited in the order of their [`position`], a number that a cursor can
//! hold: what is there throughout a scan is visited once, whatever comes and goes around it. A position has 53 bits,
//! because some clients (JavaScript's) read cursors into floating-point numbers.
//!
//! A scan cannot stop between keys of one position. So nobody may be able to make many of them: the hash is
//! SipHash-2-4, with a key that is public, because the order must be equal at all nodes. A pair of keys in one position
//! takes 2^26 attempts, and a crowd of k about k · 2^(53 (k − 1) / k).

use bytes::Bytes;
use siphasher::sip::SipHasher24;

use crate::compact::Compact;

/// Bits of a position.
const BITS: u32 = 53;

/// Where in the order of a scan a key (or a field of a hash) is: below 2^53.
pub fn position(bytes: &[u8]) -> u64 {
    let hasher =
        SipHasher24::new_with_keys(u64::from_le_bytes(*b"quorate "), u64::from_le_bytes(*b"position"));
    hasher.hash(bytes) >> (u64::BITS - BITS)
}

/// A key or field at its position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    position: u64,
    bytes: Compact,
}

impl Place {
    /// To be stored: never a part of a large shared buffer.
    pub fn new(bytes: &Bytes) -> Place {
        Place::of(Compact::new(bytes))
    }

    /// To look something up: shares the buffer.
    pub fn probe(bytes: &Bytes) -> Place {
        Place::of(Compact::shared(bytes))
    }

    pub fn of(bytes: Compact) -> Place {
        Place { position: position(&bytes), bytes }
    }

    /// Before everything at this position.
    pub fn start(position: u64) -> Place {
        Place { position, bytes: Compact::shared(&Bytes::new()) }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn bytes(&self) -> &Compact {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cursors that clients hold must mean the same after an upgrade.
    #[test]
    fn positions_never_change() {
        let found = ["", "a", "key:1", "a key that is longer than a word of the hash"]
            .map(|key| position(key.as_bytes()));
        assert!(found.iter().all(|position| *position < 1 << BITS));
        assert_eq!(found, [3850767776246090, 6619084880142900, 4474772340775984, 866665982180400]);
    }
}
