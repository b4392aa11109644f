//! Agreement: at most one value is chosen for a slot, whoever says so and whenever; and every replica executes
//! exactly the chosen values, slot after slot. (*Paxos Made Simple* §2.1; TLA+ `Consistency`.) For logs of terms
//! this is Raft's *state-machine safety*; that the executed entry is the committed one,
//! [`commitment`](super::commitment) checks.
//!
//! Memory survives the crashes of replicas on purpose: a value that was chosen once is chosen for ever.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "agreement";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// The value of each slot and who stated it first.
    values: BTreeMap<u64, (u64, Process)>,
    progress: BTreeMap<NodeId, Progress>,
}

/// How far a replica has executed.
#[derive(Clone, Debug)]
struct Progress {
    incarnation: u64,
    /// The last slot executed or installed in this incarnation.
    applied: Option<u64>,
    /// The last slot that any incarnation has executed or installed: where a restarted one may go on at most.
    reached: u64,
}

impl Checker for Agreement {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Applied", "Installed"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        match *fact {
            Fact::Chosen { slot, digest } => self.agree(at, who, slot, digest, "chosen"),
            Fact::Applied { slot, digest } => {
                self.agree(at, who, slot, digest, "executed")?;
                self.advance(at, who, slot)
            }
            Fact::Installed { slot } => self.install(at, who, slot),
            _ => Ok(()),
        }
    }
}

impl Agreement {
    /// The slots with the digests of what is chosen there.
    pub fn chosen(&self) -> impl Iterator<Item = (u64, u64)> {
        self.values.iter().map(|(slot, (digest, _))| (*slot, *digest))
    }

    fn agree(&mut self, at: u64, who: Process, slot: u64, digest: u64, done: &str) -> Result<(), Violation> {
        let (known, first) = *self.values.entry(slot).or_insert((digest, who));
        if known == digest {
            return Ok(());
        }
        let what =
            format!("slot {slot}: {who} has {done} {digest:016x}, {first} had {known:016x} there before");
        Err(Violation { checker: NAME, at, what })
    }

    fn advance(&mut self, at: u64, who: Process, slot: u64) -> Result<(), Violation> {
        let progress = self.progress(who);
        let fits = match progress.applied {
            Some(last) => last.checked_add(1) == Some(slot),
            // A restarted replica may replay from any point that it had passed; a new one starts at the start.
            None => slot <= progress.reached.saturating_add(1),
        };
        if !fits {
            let what = match progress.applied {
                Some(last) => format!("{who} executes slot {slot} after slot {last}"),
                None => format!(
                    "{who} starts to execute at slot {slot}, but had reached only slot {}",
                    progress.reached
                ),
            };
            return Err(Violation { checker: NAME, at, what });
        }
        progress.applied = Some(slot);
        progress.reached = progress.reached.max(slot);
        Ok(())
    }

    fn install(&mut self, at: u64, who: Process, slot: u64) -> Result<(), Violation> {
        let progress = self.progress(who);
        if let Some(last) = progress.applied.filter(|last| *last > slot) {
            let what = format!("{who} goes back to a snapshot of slot {slot} after slot {last}");
            return Err(Violation { checker: NAME, at, what });
        }
        progress.applied = Some(slot);
        progress.reached = progress.reached.max(slot);
        Ok(())
    }

    fn progress(&mut self, who: Process) -> &mut Progress {
        let progress = self.progress.entry(who.node).or_insert(Progress {
            incarnation: who.incarnation,
            applied: None,
            reached: 0,
        });
        if progress.incarnation != who.incarnation {
            progress.incarnation = who.incarnation;
            progress.applied = None;
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, who};
    use super::*;

    fn chosen(slot: u64, digest: u64) -> Fact {
        Fact::Chosen { slot, digest }
    }

    fn applied(slot: u64, digest: u64) -> Fact {
        Fact::Applied { slot, digest }
    }

    /// Facts, and which of them is the first that must be rejected.
    type Case = (&'static str, Vec<(Process, Fact)>, Option<usize>);

    #[test]
    fn each_slot_keeps_its_value_and_each_replica_its_order() {
        let (a, b, a2) = (who(1, 0), who(2, 0), who(1, 1));
        let installed = |slot| Fact::Installed { slot };
        let cases: Vec<Case> = vec![
            (
                "everyone agrees",
                vec![(a, chosen(1, 7)), (b, chosen(1, 7)), (a, applied(1, 7)), (b, applied(1, 7))],
                None,
            ),
            ("slots may be chosen in any order", vec![(a, chosen(3, 7)), (a, chosen(1, 8))], None),
            ("two values chosen", vec![(a, chosen(1, 7)), (b, chosen(1, 8))], Some(1)),
            ("two values executed", vec![(a, applied(1, 7)), (b, applied(1, 8))], Some(1)),
            ("another value executed than chosen", vec![(a, chosen(1, 7)), (a, applied(1, 8))], Some(1)),
            ("the choice changes after a restart", vec![(a, chosen(1, 7)), (a2, chosen(1, 8))], Some(1)),
            ("a gap", vec![(a, applied(1, 7)), (a, applied(3, 8))], Some(1)),
            ("twice", vec![(a, applied(1, 7)), (a, applied(1, 7))], Some(1)),
            ("a late start", vec![(a, applied(2, 7))], Some(0)),
            (
                "a snapshot jumps forward",
                vec![(a, applied(1, 7)), (a, installed(9)), (a, applied(10, 8))],
                None,
            ),
            ("a snapshot jumps back", vec![(a, installed(9)), (a, installed(8))], Some(1)),
            ("a gap after a snapshot", vec![(a, installed(9)), (a, applied(11, 8))], Some(1)),
            (
                "a restarted replica executes again",
                vec![(a, applied(1, 7)), (a, applied(2, 8)), (a2, applied(2, 8)), (a2, applied(3, 9))],
                None,
            ),
            (
                "a restarted replica skips what it had not reached",
                vec![(a, applied(1, 7)), (a2, applied(3, 9))],
                Some(1),
            ),
        ];
        for (name, facts, rejected) in cases {
            assert_eq!(first_rejected(&mut Agreement::default(), &facts), rejected, "{name}");
        }
    }
}
