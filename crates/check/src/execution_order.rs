//! Protocols that order only what interferes: all replicas execute instances that interfere in one order. (Moraru et
//! al. 2013, §4.1, *Execution consistency*; Ryabinin et al. 2025, *Visibility* and what follows from it.)
//!
//! Seen from a key: all replicas execute the same sequence of writes of it. A replica that starts from a state, after
//! a crash or with a snapshot, has the place in each sequence that its first write there had elsewhere. Reads are
//! executed at one replica only: linearizability judges them. What commands that write all keys leave behind is
//! compared as part of the state.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::instances::name;
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "execution_order";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct ExecutionOrder {
    keys: BTreeMap<u64, Sequence>,
}

/// What happened to a key.
#[derive(Clone, Debug, Default)]
struct Sequence {
    /// The place of each instance that wrote it.
    places: BTreeMap<u64, usize>,
    /// How many writes each replica has executed; unknown after a start.
    reached: BTreeMap<NodeId, usize>,
}

impl Checker for ExecutionOrder {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Ordered", "Installed"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        match fact {
            Fact::Installed { .. } => {
                self.keys.values_mut().for_each(|sequence| {
                    sequence.reached.remove(&who.node);
                });
                Ok(())
            }
            Fact::Ordered { slot, writes } => writes.iter().try_for_each(|key| {
                let sequence = self.keys.entry(*key).or_default();
                sequence.write(who.node, *slot).map_err(|(place, reached)| {
                    let what = format!(
                        "{who} executes {} as write {reached} of key {key:016x}; elsewhere it is write {place}",
                        name(*slot)
                    );
                    Violation { checker: NAME, at, what }
                })
            }),
            _ => Ok(()),
        }
    }
}

impl Sequence {
    /// A replica executes a write; its place and that of the replica, if they differ.
    fn write(&mut self, node: NodeId, slot: u64) -> Result<(), (usize, usize)> {
        let last = self.places.len();
        let fresh = !self.places.contains_key(&slot);
        let place = *self.places.entry(slot).or_insert(last);
        // Whoever has never written it, and never started from a state, begins at the beginning; but that is not told
        // apart here from one that has: its first write counts as its place.
        let reached = self.reached.get(&node).copied().unwrap_or(place);
        self.reached.insert(node, reached + 1);
        if fresh && reached < last {
            return Err((last, reached));
        }
        if place == reached { Ok(()) } else { Err((place, reached)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, who};
    use super::*;

    #[test]
    fn all_replicas_execute_the_writes_of_a_key_in_one_order() {
        let wrote = |slot, keys: &[u64]| Fact::Ordered { slot, writes: keys.to_vec() };
        let installed = Fact::Installed { slot: 0 };
        let (a, b, b2) = (who(1, 0), who(2, 0), who(2, 1));
        for (name, facts, rejected) in [
            (
                "the same",
                vec![(a, wrote(1, &[7])), (a, wrote(2, &[7])), (b, wrote(1, &[7])), (b, wrote(2, &[7]))],
                None,
            ),
            (
                "other keys in any order",
                vec![(a, wrote(1, &[7])), (a, wrote(2, &[8])), (b, wrote(2, &[8])), (b, wrote(1, &[7]))],
                None,
            ),
            (
                "swapped",
                vec![(a, wrote(1, &[7])), (a, wrote(2, &[7])), (b, wrote(2, &[7])), (b, wrote(1, &[7]))],
                Some(3),
            ),
            (
                "swapped, with a key in between",
                vec![
                    (a, wrote(1, &[7, 8])),
                    (a, wrote(2, &[8])),
                    (b, wrote(2, &[8])),
                    (b, wrote(1, &[7, 8])),
                ],
                Some(3),
            ),
            (
                "one is left out",
                vec![
                    (a, wrote(1, &[7])),
                    (a, wrote(2, &[7])),
                    (a, wrote(3, &[7])),
                    (b, wrote(1, &[7])),
                    (b, wrote(3, &[7])),
                ],
                Some(4),
            ),
            (
                "another first",
                vec![(a, wrote(1, &[7])), (b, wrote(1, &[7])), (a, wrote(2, &[7])), (b, wrote(3, &[7]))],
                Some(3),
            ),
            ("twice", vec![(a, wrote(1, &[7])), (a, wrote(1, &[7]))], Some(1)),
            (
                "again after a restart",
                vec![(a, wrote(1, &[7])), (b, wrote(1, &[7])), (b2, installed.clone()), (b2, wrote(1, &[7]))],
                None,
            ),
            (
                "a snapshot jumps",
                vec![(a, wrote(1, &[7])), (a, wrote(2, &[7])), (b, installed), (b, wrote(2, &[7]))],
                None,
            ),
        ] {
            assert_eq!(first_rejected(&mut ExecutionOrder::default(), &facts), rejected, "{name}");
        }
    }
}
