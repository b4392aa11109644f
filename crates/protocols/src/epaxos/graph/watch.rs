//! When to take over what does not get on: after a wait that is drawn anew for each instance, so that few replicas
//! begin at the same time.
//!
//! **An owner that is slow is given more time.** A recovery that finds no vote for a batch makes a no-op of its
//! instance, and its owner proposes the batch again. If the owner needs longer than the others are patient, that goes
//! on for ever, and nobody who asks the owner is answered. So each instance of an owner that lives and that becomes a
//! no-op doubles the wait for its next ones, up to [`FOR_THE_SLOW`]; each that is decided otherwise halves it again.
//! Who waits for an instance of an owner that dies waits no longer than that.
//!
//! **While large batches of an owner come, what it says of others is behind them on its way.** Where links are full
//! that takes seconds, and a recovery, or a question for what is missing, would bring the same batches a second time.
//! So the wait begins anew with each of them, and lasts for as long as the next may take at [`SLOWEST_LINK`], up to
//! [`FULL_LINK`] in all; not where its owner has fallen silent, or somebody has begun to recover.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::instance::Instance;
use quorate_core::{NodeId, Random, Rate, Time, mutation};

/// The longest wait for an instance of an owner that is slow, unless the first wait is longer.
const FOR_THE_SLOW: Duration = Duration::from_secs(2);
/// The longest wait for what is behind large batches: an instance of their owner, or the answers of a recovery.
pub const FULL_LINK: Duration = Duration::from_secs(10);
/// What a link carries on which large batches are waited for.
pub const SLOWEST_LINK: Rate = Rate::mbit(2);
/// Bytes of a large batch.
pub const LARGE_BATCH: usize = 16 << 10;
/// How often a wait is doubled, at most.
const DOUBLINGS: u32 = 8;

/// See the file comment.
#[derive(Debug, Default)]
pub struct Watch {
    stuck: BTreeMap<Instance, Wait>,
    /// How often the wait for an owner's instances is doubled.
    slow: BTreeMap<NodeId, u32>,
    /// Of each owner whose large batches come: its last one, and until when another may be on its way behind it.
    large: BTreeMap<NodeId, (u64, Time)>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Time,
    until: Time,
}

impl Watch {
    /// These do not get on, and those that are not named do again. Each is due after a wait between the given and twice
    /// that, and may be behind large batches of its owner or not. Whether any was here before that is not behind
    /// others; [`due`](Self::due) tells which to take over.
    pub fn look(
        &mut self,
        stuck: impl IntoIterator<Item = (Instance, Duration, bool)>,
        now: Time,
        random: &mut Random,
    ) -> bool {
        let before = std::mem::take(&mut self.stuck);
        let mut again = false;
        for (instance, patience, is_behind) in stuck {
            let mut wait = before.get(&instance).copied().unwrap_or_else(|| match patience {
                Duration::ZERO => Wait { since: now, until: now },
                patience => Wait { since: now, until: now + random.between(patience, 2 * patience) },
            });
            match is_behind && now.since(wait.since) < FULL_LINK {
                true => wait.until = wait.until.max(now + patience),
                false => again |= before.contains_key(&instance),
            }
            self.stuck.insert(instance, wait);
        }
        again
    }

    /// The batch of an instance has come from its owner, of so many bytes.
    pub fn on_batch(&mut self, instance: Instance, bytes: usize, now: Time) {
        if bytes >= LARGE_BATCH && !mutation::active("epaxos/recovers-what-is-on-its-way") {
            let (last, until) = self.large.entry(instance.owner()).or_default();
            *last = instance.index().max(*last);
            *until = (now + SLOWEST_LINK.transmission(bytes)).max(*until);
        }
    }

    /// Whether large batches of its owner come, or came so long ago, and what it says of this instance is behind them:
    /// its batch is here, or a later one than all that have come.
    pub fn is_behind_others(&self, instance: Instance, is_here: bool, patience: Duration, now: Time) -> bool {
        let large = self.large.get(&instance.owner());
        large.is_some_and(|(last, until)| (is_here || instance.index() > *last) && now < *until + patience)
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

    /// Takes out those whose time is up and which `admits` accepts, in order.
    pub fn due(&mut self, now: Time, mut admits: impl FnMut(Instance) -> bool) -> Vec<Instance> {
        let due = self.stuck.extract_if(.., |instance, wait| wait.until <= now && admits(*instance));
        due.map(|(instance, _)| instance).collect()
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
        let look = |watch: &mut Watch, stuck: &[(u64, Duration)], now, random: &mut Random| {
            watch.look(stuck.iter().map(|(index, wait)| (at(*index), *wait, false)), now, random)
        };
        assert!(!look(&mut watch, &[(1, wait), (2, Duration::ZERO), (3, wait)], now, &mut random));
        assert_eq!(watch.due(now, |_| true), [at(2)], "without a wait");
        now += 2 * wait;
        assert!(look(&mut watch, &[(1, wait), (4, wait)], now, &mut random), "1 is still stuck");
        assert_eq!(watch.due(now, |_| true), [at(1)], "3 gets on, 4 has just begun");
        assert_eq!(watch.due(now, |_| true), []);
        watch.rest(at(4));
        look(&mut watch, &[(4, wait)], now, &mut random);
        assert_eq!(watch.due(now + wait / 2, |_| true), [], "it waits anew");
    }

    #[test]
    fn what_is_behind_large_batches_waits_from_each_of_them_on_but_not_for_ever() {
        let owner = NodeId::new(1).expect("an id");
        let instance = Instance::new(owner, 1);
        let (mut watch, mut random) = (Watch::default(), Random::new(1));
        let wait = Duration::from_millis(500);
        let mut now = Time::ZERO;
        let (before, after) = (Instance::new(owner, 1), Instance::new(owner, 3));
        watch.on_batch(Instance::new(owner, 2), LARGE_BATCH - 1, now);
        assert!(!watch.is_behind_others(after, false, wait, now));
        watch.on_batch(Instance::new(owner, 2), LARGE_BATCH, now);
        assert!(!watch.is_behind_others(before, false, wait, now), "it was lost");
        assert!(watch.is_behind_others(before, true, wait, now), "its decision may come");
        let next = now + SLOWEST_LINK.transmission(LARGE_BATCH) + wait;
        assert!(watch.is_behind_others(after, false, wait, now));
        assert!(!watch.is_behind_others(after, false, wait, next));
        while now < Time::ZERO + FULL_LINK {
            assert!(!watch.look([(instance, wait, true)], now, &mut random), "it is not missing");
            assert_eq!(watch.due(now, |_| true), []);
            now += wait;
        }
        assert!(watch.look([(instance, wait, true)], now, &mut random));
        assert_eq!(watch.due(now, |_| true), [instance]);
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
