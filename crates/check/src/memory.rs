//! A replica that restarts remembers what it has said: having promised, or voted in, a ballot (term, view), it takes
//! part in no lower one. Whoever counted that message counts on it. A message that left before its records were
//! durable shows here at once, where the harm that it can do needs several more coincidences.
//!
//! One whose disk was lost does not know what it has said. It finds out what others have heard of that, which is not
//! all: what it may do then is for other checkers to judge.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::{Checker, Clocks, Process, Violation};

/// Checks that no replica takes part in a lower number after a restart than before it.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<NodeId, Said>);

/// What one replica has stated.
#[derive(Debug, Default)]
struct Said {
    incarnation: u64,
    /// The highest number in this life.
    now: u64,
    /// The highest in those before.
    before: u64,
}

impl Checker for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn on_fact(&mut self, _: u64, _: Process, _: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        Ok(())
    }

    fn on_disk_lost(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    fn on_bound(&mut self, at: u64, who: Process, number: u64) -> Result<(), Violation> {
        let said = self.0.entry(who.node).or_default();
        if said.incarnation < who.incarnation {
            (said.incarnation, said.before) = (who.incarnation, said.before.max(said.now));
        }
        said.now = said.now.max(number);
        if number < said.before {
            let before = said.before;
            let what = format!(
                "{who} takes part in {number:x}, after it was bound to {before:x} in an earlier life"
            );
            return Err(Violation { checker: self.name(), at, what });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::who;
    use super::*;

    /// Replica, life and number of what is said, and whether that is fine.
    type Case = (&'static str, &'static [(u64, u64, u64)], bool);

    #[test]
    fn a_disk_that_is_lost_takes_with_it_what_was_said() {
        let mut memory = Memory::default();
        memory.on_bound(0, who(1, 1), 5).unwrap();
        memory.on_bound(0, who(2, 1), 5).unwrap();
        memory.on_disk_lost(who(1, 1).node);
        assert!(memory.on_bound(0, who(1, 2), 4).is_ok() && memory.on_bound(0, who(2, 2), 4).is_err());
    }

    #[test]
    fn a_later_life_is_bound_by_what_an_earlier_one_said() {
        let cases: &[Case] = &[
            ("the same again", &[(1, 1, 5), (1, 2, 5)], true),
            ("more", &[(1, 1, 5), (1, 2, 6), (1, 3, 6)], true),
            ("less", &[(1, 1, 5), (1, 2, 4)], false),
            ("less than two lives ago", &[(1, 1, 5), (1, 3, 4)], false),
            ("out of order in one life", &[(1, 1, 5), (1, 1, 4)], true),
            ("another replica", &[(1, 1, 5), (2, 2, 4)], true),
        ];
        for (name, said, fine) in cases {
            let mut memory = Memory::default();
            let result =
                said.iter().try_for_each(|&(node, life, number)| memory.on_bound(0, who(node, life), number));
            assert_eq!(result.is_ok(), *fine, "{name}");
        }
    }
}
