//! Durability: a write that was acknowledged is in the final state of every replica. It must have been executed, in a
//! slot that each member has reached when the healing phase ends; and that slot must still hold the value it held
//! then, whoever chose or executed it again since.
//!
//! Commands are told apart by the digest of their bytes, so the workload makes the bytes of every write unique.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "durability";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Durability {
    /// The slot of each executed command.
    executed: BTreeMap<u64, u64>,
    /// The value of each slot, by digest.
    values: BTreeMap<u64, u64>,
    /// When each write was acknowledged first.
    acknowledged: BTreeMap<u64, u64>,
}

impl Durability {
    fn value(&mut self, at: u64, who: Process, slot: u64, digest: u64) -> Result<(), Violation> {
        let known = *self.values.entry(slot).or_insert(digest);
        if known == digest {
            return Ok(());
        }
        let what = format!("slot {slot} held {known:016x}, and now {digest:016x} at {who}");
        Err(Violation { checker: NAME, at, what })
    }
}

impl Checker for Durability {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Applied", "Executed"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        match *fact {
            Fact::Chosen { slot, digest } | Fact::Applied { slot, digest } => {
                self.value(at, who, slot, digest)
            }
            Fact::Executed { slot, command } => {
                self.executed.insert(command, slot);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_acknowledged(&mut self, at: u64, command: u64) -> Result<(), Violation> {
        self.acknowledged.entry(command).or_insert(at);
        Ok(())
    }

    /// One that is slow or lost may have executed what the others still have to fetch.
    fn is_settled(&self, applied: &[(NodeId, u64)]) -> bool {
        let last = self.acknowledged.keys().filter_map(|command| self.executed.get(command)).max();
        applied.iter().all(|(_, applied)| Some(applied) >= last)
    }

    fn finish(&mut self, at: u64, applied: &[(NodeId, u64)]) -> Result<(), Violation> {
        for (command, when) in &self.acknowledged {
            let lost = match self.executed.get(command) {
                None => "was never executed".to_owned(),
                Some(slot) => match applied.iter().find(|(_, applied)| applied < slot) {
                    None => continue,
                    Some((node, applied)) => {
                        format!("is in slot {slot}, but {node:?} ends with slot {applied}")
                    }
                },
            };
            let what = format!("command {command:016x}, acknowledged at {when} ns, {lost}");
            return Err(Violation { checker: NAME, at, what });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{node, true_clocks, who};
    use super::*;

    enum Step {
        Says(Process, Fact),
        Acknowledged(u64),
    }
    use Step::{Acknowledged, Says};

    #[test]
    fn an_acknowledged_write_is_in_every_final_state() {
        let (a, b, b2) = (who(1, 0), who(2, 0), who(2, 1));
        let executed = |who, slot, command| Says(who, Fact::Executed { slot, command });
        let chosen = |who, slot, digest| Says(who, Fact::Chosen { slot, digest });
        for (name, steps, applied, found) in [
            (
                "executed everywhere",
                vec![executed(a, 1, 7), Acknowledged(7), executed(b, 1, 7)],
                [1, 1],
                None,
            ),
            (
                "acknowledged before it is executed, as fast paths do",
                vec![Acknowledged(7), executed(a, 1, 7)],
                [1, 1],
                None,
            ),
            ("a snapshot brought it", vec![executed(a, 3, 7), Acknowledged(7)], [3, 5], None),
            ("a read is executed by nobody and acknowledged by nobody", vec![], [0, 0], None),
            ("never executed", vec![Acknowledged(7)], [1, 1], Some("was never executed")),
            (
                "another was executed",
                vec![executed(a, 1, 8), Acknowledged(7)],
                [1, 1],
                Some("never executed"),
            ),
            (
                "a replica is behind",
                vec![executed(a, 2, 7), Acknowledged(7)],
                [2, 1],
                Some("n2 ends with slot 1"),
            ),
            (
                "its slot gets another value",
                vec![chosen(a, 1, 70), executed(a, 1, 7), Acknowledged(7), chosen(b2, 1, 71)],
                [1, 1],
                Some("slot 1 held"),
            ),
        ] {
            let mut checker = Durability::default();
            let result = (0..)
                .zip(steps)
                .try_for_each(|(at, step)| match step {
                    Says(who, fact) => checker.on_fact(at, who, &fact, &true_clocks),
                    Acknowledged(command) => checker.on_acknowledged(at, command),
                })
                .and_then(|()| checker.finish(100, &[(node(1), applied[0]), (node(2), applied[1])]));
            match (result, found) {
                (Ok(()), None) => {}
                (Err(violation), Some(found)) => {
                    assert!(violation.what.contains(found), "{name}: {violation}");
                }
                (result, found) => panic!("{name}: {result:?} instead of {found:?}"),
            }
        }
    }
}
