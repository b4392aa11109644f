//! When to take over what does not get on: after a wait that is drawn anew for each instance, so that few replicas
//! begin at the same time.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::instance::Instance;
use quorate_core::{Random, Time};

/// See the file comment.
#[derive(Debug, Default)]
pub struct Watch {
    stuck: BTreeMap<Instance, Time>,
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
}
