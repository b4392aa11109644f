//! Writes that a member has refused for want of room. They are in no record, since they have no effect. A copy of one
//! that comes later (messages may be repeated, and proxies ask again) is refused as well, though there may be room by
//! then: its client was told that it has no effect.
//!
//! A restart forgets them. A copy that was on its way for so long comes by no connection any more.

use std::collections::{BTreeSet, VecDeque};

use quorate_core::mutation;

use super::record::Name;

/// So many are remembered; then the oldest is forgotten.
const MOST: usize = 1 << 14;

/// See the file comment.
#[derive(Debug, Default)]
pub struct Refused {
    names: BTreeSet<Name>,
    /// The oldest first, which is forgotten when there are too many.
    order: VecDeque<Name>,
}

impl Refused {
    /// Whether this write was refused.
    pub fn contains(&self, name: Name) -> bool {
        self.names.contains(&name) && !mutation::active("hermes/refused-once")
    }

    /// It is refused now.
    pub fn insert(&mut self, name: Name) {
        if self.names.insert(name) {
            self.order.push_back(name);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_each_once() {
        let mut refused = Refused::default();
        let name = |seq| Name { nonce: 1, seq };
        for seq in 0..=MOST as u64 {
            refused.insert(name(seq));
            refused.insert(name(seq));
        }
        assert!(
            !refused.contains(name(0)) && refused.contains(name(1)) && refused.contains(name(MOST as u64))
        );
        assert_eq!((refused.names.len(), refused.order.len()), (MOST, MOST));
    }
}
