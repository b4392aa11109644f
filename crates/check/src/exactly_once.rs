//! Exactly once: whatever is lost, repeated or proposed again by the next leader, a client's command takes effect at
//! one slot. Executing that slot at every replica, and again after a restart, is the same effect. (Ongaro's
//! thesis, 2014, §6.3.)
//!
//! Commands are told apart by the digest of their bytes, so the workload makes the bytes of every write unique. Only
//! [`refusals`](super::refusals) are alike.

use std::collections::BTreeMap;

use quorate_core::Fact;

use super::refusals::Refusals;
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "exactly_once";

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct ExactlyOnce {
    /// The slot of each executed command and who executed it first.
    executed: BTreeMap<u64, (u64, Process)>,
    refusals: Refusals,
}

impl ExactlyOnce {
    /// Commands by digest, with the slots in which they took effect.
    pub fn executed(&self) -> impl Iterator<Item = (u64, u64)> {
        self.executed.iter().map(|(command, (slot, _))| (*command, *slot))
    }
}

impl Checker for ExactlyOnce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Executed"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let Fact::Executed { slot, command } = *fact else {
            return Ok(());
        };
        if self.refusals.get(command).is_some() {
            return Ok(());
        }
        let (known, first) = *self.executed.entry(command).or_insert((slot, who));
        if known == slot {
            return Ok(());
        }
        let what = format!(
            "command {command:016x} takes effect in slot {slot} at {who}, but did in slot {known} at {first}"
        );
        Err(Violation { checker: NAME, at, what })
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::{Wire, digest};
    use quorate_store::Command;

    use super::super::testing::{first_rejected, who};
    use super::*;

    #[test]
    fn a_command_takes_effect_in_one_slot() {
        let executed = |slot, command| Fact::Executed { slot, command };
        let (a, b, a2) = (who(1, 0), who(2, 0), who(1, 1));
        let refusal = digest(&Command::DiskFull { node: 63 }.to_bytes());
        for (name, facts, rejected) in [
            ("at every replica", vec![(a, executed(1, 7)), (b, executed(1, 7))], None),
            ("again after a restart", vec![(a, executed(1, 7)), (a2, executed(1, 7))], None),
            ("two commands in one slot", vec![(a, executed(1, 7)), (a, executed(1, 8))], None),
            ("twice at one replica", vec![(a, executed(1, 7)), (a, executed(2, 7))], Some(1)),
            ("twice at two replicas", vec![(a, executed(1, 7)), (b, executed(2, 7))], Some(1)),
            ("refusals of two writes", vec![(a, executed(1, refusal)), (b, executed(2, refusal))], None),
            ("again elsewhere after a restart", vec![(a, executed(1, 7)), (a2, executed(2, 7))], Some(1)),
        ] {
            assert_eq!(first_rejected(&mut ExactlyOnce::default(), &facts), rejected, "{name}");
        }
    }
}
