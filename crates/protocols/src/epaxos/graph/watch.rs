//! When to take over what does not get on: after a wait that is drawn anew for each instance, so that few replicas
//! begin at the same time.
//!
//! **An owner that is slow is given more time.** A recovery that finds no vote for a batch makes a no-op of its
//! instance, and its owner proposes the batch again. If the owner needs longer than the others are patient, that goes
//! on for ever, and nobody who asks the owner is answered. So each instance of an owner that lives and that becomes a
//! no-op doubles the wait for its next ones, up to [`FOR_THE_SLOW`]; each that is decided otherwise halves it again.
//! Who waits for an instance of an owner that dies waits no longer than that.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::instance::Instance;
use quorate_core::{NodeId, Random, Time, mutation};

/// The longest wait for an instance of an owner that is slow, unless the first wait is longer.
const FOR_THE_SLOW: Duration = Duration::from_secs(2);
/// How often a wait is doubled, at most.
const DOUBLINGS: u32 = 8;

/// See the file comment.
#[derive(Debug, Default)]
pub struct Watch {
    stuck: BTreeMap<Instance, Time>,
    /// How often the wait for an owner's instances is doubled.
    slow: BTreeMap<NodeId, u32>,
}

impl Watch {
    /// These do not get on, and those that are not named do again. Each is due after a wait between the given and twice
    /// that. Whether any was here before; [`due`](Self::due) tells which to take over.
    pub fn look(
        &mut self,
        stuck: impl IntoIterator<Item = (Instance, Duration)>,
        now: Time,
        random: &mut Random,
    ) -> bool {
        let before = std::mem::take(&mut self.stuck);
        let mut again = false;
        for (instance, patience) in stuck {
            let until = before.get(&instance).copied();
            again |= until.is_some();
            let until = until.unwrap_or_else(|| match patience {
                Duration::ZERO => now,
                patience => now + random.between(patience, 2 * patience),
            });
            self.stuck.insert(instance, until);
        }
        again
    }

    /// An instance of another is decided: as a no-op though its owner lives, or not.
    pub fn decided(&mut self, owner: NodeId, in_vain: bool) {
        let doublings = self.slow.entry(owner).or_default();
        *doublings = if in_vain { (*doublings + 1).min(DOUBLINGS) } else { doublings.saturating_sub(1) };
    }

    /// How long to wait for an instance of this owner, where the first wait is this.
    pub fn patience(&self, owner: NodeId, first: Duration) -> Duration {
        let doublings = self.slow.get(&owner).copied().unwrap_or(0);
        if mutation::active("epaxos/slow-owner") {
            return first;
        }
        (first * (1 << doublings)).min(FOR_THE_SLOW.max(first))
    }

    /// Somebody has begun with this one: the wait starts again.
    pub fn rest(&mut self, instance: Instance) {
        self.stuck.remove(&instance);
    }

    /// Takes out the first few whose time is up.
    pub fn due(&mut self, limit: usize, now: Time) -> Vec<Instance> {
        let due = self.stuck.iter().filter(|(_, until)| **until <= now).map(|(instance, _)| *instance);
        let due: Vec<_> = due.take(limit).collect();
        self.stuck.retain(|instance, _| !due.contains(instance));
        due
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

    use super::*;

    #[test]
    fn what_does_not_get_on_is_due_after_its_wait_and_once() {
        let at = |index| Instance::new(NodeId::new(1).expect("an id"), index);
        let wait = Duration::from_millis(10);
        let (mut watch, mut random) = (Watch::default(), Random::new(1));
        let mut now = Time::ZERO;
        assert!(!watch.look([(at(1), wait), (at(2), Duration::ZERO), (at(3), wait)], now, &mut random));
        assert_eq!(watch.due(9, now), [at(2)], "without a wait");
        now += 2 * wait;
        assert!(watch.look([(at(1), wait), (at(4), wait)], now, &mut random), "1 is still stuck");
        assert_eq!(watch.due(9, now), [at(1)], "3 gets on, 4 has just begun");
        assert_eq!(watch.due(9, now), []);
        watch.rest(at(4));
        watch.look([(at(4), wait)], now, &mut random);
        assert_eq!(watch.due(9, now + wait / 2), [], "it waits anew");
    }

    #[test]
    fn an_owner_whose_instances_become_no_ops_is_given_more_time() {
        let owner = NodeId::new(1).expect("an id");
        let (mut watch, first) = (Watch::default(), Duration::from_millis(500));
        let mut waits = Vec::new();
        for in_vain in [true, true, true, true, false, false, false, false, false] {
            watch.decided(owner, in_vain);
            waits.push(watch.patience(owner, first).as_millis());
        }
        assert_eq!(waits, [1000, 2000, 2000, 2000, 2000, 2000, 1000, 500, 500]);
        assert_eq!(watch.patience(owner, Duration::from_secs(9)).as_secs(), 9, "never less than the first");
    }
}
