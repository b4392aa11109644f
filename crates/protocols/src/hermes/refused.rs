//! Writes that a member has refused for want of room, and why. They are in no record, since they have no effect. A copy
//! of one that comes later (messages may be repeated, and proxies ask again) is refused as well, though there may be
//! room by then: its client was told that it has no effect.
//!
//! A restart forgets them. A copy that was on its way for so long comes by no connection any more.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::mutation;

use quorate_store::Command;

use super::record::Name;

/// So many are remembered; then the oldest is forgotten.
const MOST: usize = 1 << 14;

/// See the file comment.
#[derive(Debug, Default)]
pub struct Refused {
    names: BTreeMap<Name, Command>,
    /// The oldest first, which is forgotten when there are too many.
    order: VecDeque<Name>,
}

impl Refused {
    /// What has taken the place of this write, if it was refused.
    pub fn get(&self, name: Name) -> Option<Command> {
        self.names.get(&name).filter(|_| !mutation::active("hermes/refused-once")).cloned()
    }

    /// This takes its place now.
    pub fn insert(&mut self, name: Name, refusal: Command) {
        if self.names.insert(name, refusal).is_none() {
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
        let refusal = |seq: u64| match seq % 2 {
            0 => Command::DiskFull { node: 1 },
            _ => Command::MemoryFull { node: 1 },
        };
        for seq in 0..=MOST as u64 {
            refused.insert(name(seq), refusal(seq));
            refused.insert(name(seq), refusal(seq));
        }
        let known = [0, 1, MOST as u64].map(|seq| refused.get(name(seq)));
        assert_eq!(known, [None, Some(refusal(1)), Some(refusal(MOST as u64))]);
        assert_eq!((refused.names.len(), refused.order.len()), (MOST, MOST));
    }
}
