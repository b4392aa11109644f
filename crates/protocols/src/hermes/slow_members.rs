//! Members that are slow and get on. A write waits for all who are live, so one of them can hold every write up for as
//! long as it is there, and it is never silent. What is late at whom only a coordinator sees, and it cannot tell whose
//! links are slow: so each tells the owner whom it waits for, with its answers to heartbeats, and the owner compares.

use std::collections::BTreeMap;

use quorate_blocks::laggards::{MUCH_UNDER_WAY, SojournTime};
use quorate_core::{NodeId, NodeSet, Time, mutation};

use super::replica::Replica;

/// What is known of them in this epoch.
#[derive(Debug, Default)]
pub(super) struct SlowMembers {
    /// How long each member takes for the versions that are coordinated here.
    sojourn_times: BTreeMap<NodeId, SojournTime>,
    /// Those that take too long.
    pub seen_here: NodeSet,
    /// As the owner: those that each member has seen to take too long.
    pub seen_by: BTreeMap<NodeId, NodeSet>,
}

impl Replica {
    /// Called now and then: who takes half an election timeout to acknowledge a version. This member itself does if its
    /// disk takes as long.
    pub(super) fn watch_acknowledgements(&mut self, now: Time) {
        if !self.serves() {
            return;
        }
        let (pending, ended) = (&self.coordinator.pending, self.coordinator.ended);
        self.slow.seen_here = NodeSet::EMPTY;
        let under_way: usize = pending.values().map(|pending| pending.bytes).sum();
        if under_way as u64 >= MUCH_UNDER_WAY && !mutation::active("hermes/slow-by-much-data") {
            return self.slow.sojourn_times.clear();
        }
        let limit = self.epochs.silence();
        for node in self.epochs.live().iter() {
            let waiting = pending.values().filter(|pending| !pending.acks.contains(node)).count() as u64;
            let new = || SojournTime::new(ended, now);
            let sojourn_time = self.slow.sojourn_times.entry(node).or_insert_with(new);
            if sojourn_time.is_slow((ended, ended + waiting), (limit / 4, limit), now) {
                self.slow.seen_here.insert(node);
            }
        }
    }

    /// As the owner: those who are to be left out, this member perhaps, if the others are enough for an epoch.
    pub(super) fn slow_members(&self) -> NodeSet {
        let live = self.epochs.live();
        let slow = without_whom_nobody_waits(live, &self.slow.seen_by, self.me);
        let rest: NodeSet = live.iter().filter(|node| !slow.contains(*node)).collect();
        let majority = self.epochs.members.voters.majority();
        let enough = rest.len() >= majority && !rest.intersection(self.whole).is_empty();
        if enough && !mutation::active("hermes/slow-stays") { slow } else { NodeSet::EMPTY }
    }
}

/// Takes members out until none of the rest takes too long for another: first whoever is in most of such pairs, and the
/// owner only if it is in more than anybody else.
fn without_whom_nobody_waits(live: NodeSet, seen_by: &BTreeMap<NodeId, NodeSet>, owner: NodeId) -> NodeSet {
    let waits = |a, b| seen_by.get(&a).is_some_and(|slow| slow.contains(b));
    let (mut rest, mut slow) = (live, NodeSet::EMPTY);
    loop {
        let pairs = |a: NodeId| rest.iter().filter(|&b| waits(a, b) || waits(b, a)).count();
        match rest.iter().max_by_key(|&node| (pairs(node), node != owner, node)) {
            Some(worst) if pairs(worst) > 0 => {
                rest.remove(worst);
                slow.insert(worst);
            }
            _ => return slow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set;

    #[test]
    fn whoever_is_in_most_pairs_of_which_one_waits_for_the_other_is_slow() {
        // live, who takes too long for whom (of node 1: 1:…) → who is slow; node 1 is the owner
        let table = "
            12345 -                                   → -
            12345 1:4                                 → 4
            12345 1:4 2:4 3:4 5:4                     → 4
            12345 4:1235                              → 4
            12345 1:4 4:1235                          → 4
            12345 2:3 3:2                             → 3
            12345 1:2 2:1                             → 2
            12345 2:1 3:1                             → 1
            12345 1:2345                              → 1
            12345 1:2345 2:1 3:1 4:1 5:1              → 1
            12345 1:45 2:45 3:45                      → 45
            12345 1:1                                 → 1
            12345 3:3                                 → 3
            123   1:23 2:13 3:12                      → 23
            123   1:4                                 → -
            123   4:12                                → -
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (given, slow) = line.split_once('→').expect("an arrow");
            let mut words = given.split_whitespace();
            let live = set(words.next().expect("who is live"));
            let seen_by = words.filter_map(|word| word.split_once(':'));
            let seen_by =
                seen_by.map(|(by, slow)| (set(by).iter().next().expect("a node"), set(slow))).collect();
            let owner = NodeId::new(1).expect("an id");
            assert_eq!(without_whom_nobody_waits(live, &seen_by, owner), set(slow.trim()), "{line}");
        }
    }
}
