//! Protocols that order only what interferes: an instance is decided once, with one value and one set of dependencies,
//! whoever says so and whenever, and what is executed is what was decided. (Moraru et al. 2013, §4.1, *Consistency*;
//! Ryabinin et al. 2025, *Agreement*.) And it lasts: what was executed anywhere is in every replica's final state, and
//! with it every write that was acknowledged.
//!
//! Memory survives the crashes of replicas on purpose: what was decided once is decided for ever.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{Fact, NodeId};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "instances";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Instances {
    decided: BTreeMap<u64, (u64, Vec<u64>, Process)>,
    /// Instances that count as executed in the state that the group began with.
    founded: u64,
    /// What was executed anywhere.
    executed: BTreeSet<u64>,
    /// Commands that took effect.
    commands: BTreeSet<u64>,
    /// When each write was acknowledged first.
    acknowledged: BTreeMap<u64, u64>,
}

impl Instances {
    /// What was decided: each instance with the digest of its value and its dependencies.
    pub fn decided(&self) -> impl Iterator<Item = (u64, u64, &[u64])> {
        self.decided.iter().map(|(slot, (value, deps, _))| (*slot, *value, &deps[..]))
    }

    /// How many instances a replica has executed that has executed all.
    fn all(&self) -> u64 {
        self.founded + self.executed.len() as u64
    }
}

impl Checker for Instances {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Decided", "Executed"]
    }

    fn on_founded(&mut self, _slot: u64, members: u64) {
        self.founded = members;
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let failed = |what| Err(Violation { checker: NAME, at, what });
        match fact {
            Fact::Decided { slot, digest, deps } => {
                let first = self.decided.entry(*slot).or_insert_with(|| (*digest, deps.clone(), who));
                if (first.0, &first.1) != (*digest, deps) {
                    let (value, before, other) = first;
                    return failed(format!(
                        "{} is decided as {digest:016x} after {deps:?} at {who}, \
                         but as {value:016x} after {before:?} at {other}",
                        name(*slot)
                    ));
                }
            }
            Fact::Applied { slot, digest } => match self.decided.get(slot) {
                Some((decided, ..)) if decided == digest => drop(self.executed.insert(*slot)),
                _ => return failed(format!("{who} executes {}, which was not decided so", name(*slot))),
            },
            Fact::Executed { command, .. } => drop(self.commands.insert(*command)),
            _ => {}
        }
        Ok(())
    }

    fn on_acknowledged(&mut self, at: u64, command: u64) -> Result<(), Violation> {
        self.acknowledged.entry(command).or_insert(at);
        Ok(())
    }

    /// One that is slow or lost may have executed an instance that the others still have to find.
    fn is_settled(&self, applied: &[(NodeId, u64)]) -> bool {
        applied.iter().all(|(_, count)| *count >= self.all())
    }

    fn finish(&mut self, at: u64, applied: &[(NodeId, u64)]) -> Result<(), Violation> {
        let failed = |what| Err(Violation { checker: NAME, at, what });
        let all = self.all();
        if let Some((node, count)) = applied.iter().find(|(_, count)| *count != all) {
            return failed(format!("{node:?} ends with {count} instances, but {all} were executed"));
        }
        if let Some((command, when)) =
            self.acknowledged.iter().find(|(command, _)| !self.commands.contains(command))
        {
            return failed(format!("command {command:016x}, acknowledged at {when} ns, was never executed"));
        }
        Ok(())
    }
}

/// As the protocol writes it: owner and index.
pub(super) fn name(slot: u64) -> String {
    format!("instance {}.{}", slot & 63, slot >> 6)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, node, who};
    use super::*;

    #[test]
    fn an_instance_is_decided_once_and_executed_as_decided() {
        let decided = |digest, dep| Fact::Decided { slot: 65, digest, deps: vec![dep] };
        let applied = |digest| Fact::Applied { slot: 65, digest };
        let (a, b, b2) = (who(1, 0), who(2, 0), who(2, 1));
        for (name, facts, rejected) in [
            ("alike", vec![(a, decided(7, 1)), (b, decided(7, 1)), (b, applied(7)), (b2, applied(7))], None),
            ("two values", vec![(a, decided(7, 1)), (b, decided(8, 1))], Some(1)),
            ("two sets of dependencies", vec![(a, decided(7, 1)), (b, decided(7, 2))], Some(1)),
            ("changed by a restart", vec![(b, decided(7, 1)), (b2, decided(7, 2))], Some(1)),
            ("executed as something else", vec![(a, decided(7, 1)), (a, applied(8))], Some(1)),
            ("executed undecided", vec![(a, applied(7))], Some(0)),
        ] {
            assert_eq!(first_rejected(&mut Instances::default(), &facts), rejected, "{name}");
        }
    }

    #[test]
    fn what_was_executed_is_in_every_final_state() {
        let facts = [
            (who(1, 0), Fact::Decided { slot: 65, digest: 7, deps: vec![] }),
            (who(1, 0), Fact::Applied { slot: 65, digest: 7 }),
            (who(1, 0), Fact::Executed { slot: 65, command: 9 }),
        ];
        let ended = |acknowledged, counts: [u64; 2]| {
            let mut checker = Instances::default();
            assert_eq!(first_rejected(&mut checker, &facts), None);
            checker.on_acknowledged(5, acknowledged).expect("it only remembers");
            checker.finish(9, &[(node(1), counts[0]), (node(2), counts[1])])
        };
        assert_eq!(ended(9, [1, 1]), Ok(()));
        assert!(ended(9, [1, 0]).unwrap_err().what.contains("n2 ends with 0"));
        assert!(ended(8, [1, 1]).unwrap_err().what.contains("never executed"));
    }
}
