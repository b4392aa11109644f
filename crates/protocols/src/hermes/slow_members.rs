//! Members that are slow and get on. A write waits for all who are live, so one of them can hold every write up for as
//! long as it is there, and it is never silent. What is late at whom only a coordinator sees, and it cannot tell whose
//! links are slow: so each tells the owner whom it waits for, with its answers to heartbeats, and the owner compares.
//!
//! Problem: the owner must decide by what a few have told. Whoever coordinates nothing sees nothing, some have seen
//! enough later than others, and every epoch begins anew. Let two be slow, and a quick member tell first: it waits for
//! two, and each of those is waited for by one. If it were left out for that, nothing would get better.
//!
//! Solution: who tells of some tells as well that it does not wait for the others, so its disk, and most of its links,
//! are not to blame. Of two members one of which has told, either one waits for the other, a *slow pair*, or none does,
//! a *quick* one. The owner takes out whoever is in most slow pairs, less the quick ones, until no slow pair is left.
//! Let *f* at most be slow of 2*f* + 1 that are live. A slow member is in no quick pair. A quick one that has told is
//! in as many quick pairs as slow ones at least. One that has not is in slow pairs only with slow ones that have, which
//! go first: each of them is in a slow pair with everybody. So nobody quick is taken out, whoever has told, and all who
//! are slow are, once a quick one has told. A member whose own links are slow goes by its own word, since it waits for
//! most others.
//!
//! Whom one other tells of and nobody speaks for goes, also if it is the owner, or two of five. It may be that only the
//! links between them and that other are slow; but that other waits for them no more in either case, and if it were
//! taken out instead, the rest might wait on. Where both ends of a slow link tell, both are in as many quick pairs, and
//! one of them goes, not the owner. They have a heartbeat for that, in which every member looks once.

use std::collections::BTreeMap;
use std::time::Duration;

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
    /// Since when it has been told of any.
    told_since: Option<Time>,
}

impl SlowMembers {
    /// Called now and then: whether any of them has told of somebody for so long, one or another.
    fn was_told_for(&mut self, least: Duration, now: Time) -> bool {
        let told = self.seen_by.values().any(|slow| !slow.is_empty());
        self.told_since = self.told_since.or(Some(now)).filter(|_| told);
        self.told_since.is_some_and(|since| now.since(since) >= least)
    }
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
    pub(super) fn slow_members(&mut self, now: Time) -> NodeSet {
        if !self.slow.was_told_for(self.config.timeouts.heartbeat, now) {
            return NodeSet::EMPTY;
        }
        let live = self.epochs.live();
        let slow = without_whom_nobody_waits(live, &self.slow.seen_by, self.me);
        let rest: NodeSet = live.iter().filter(|node| !slow.contains(*node)).collect();
        let majority = self.epochs.members.voters.majority();
        let enough = rest.len() >= majority && !rest.intersection(self.whole).is_empty();
        if enough && !mutation::active("hermes/slow-stays") { slow } else { NodeSet::EMPTY }
    }
}

/// Takes members out until none of the rest takes too long for another: first whoever is in most of such pairs, less
/// the others. Between equals the owner stays.
fn without_whom_nobody_waits(live: NodeSet, seen_by: &BTreeMap<NodeId, NodeSet>, owner: NodeId) -> NodeSet {
    let waits = |a, b| seen_by.get(&a).is_some_and(|slow| slow.contains(b));
    let is_slow = |a, b| waits(a, b) || waits(b, a);
    // Who waits for nobody may have nothing to wait for.
    let tells = |a| seen_by.get(&a).is_some_and(|slow| !slow.is_empty());
    let is_quick = |a, b| a != b && (tells(a) || tells(b)) && !is_slow(a, b);
    let (mut rest, mut slow) = (live, NodeSet::EMPTY);
    loop {
        let slow_pairs = |a: NodeId| rest.iter().filter(|&b| is_slow(a, b)).count();
        let quick_pairs = |a: NodeId| match mutation::active("hermes/slow-by-slow-pairs") {
            true => 0,
            false => rest.iter().filter(|&b| is_quick(a, b)).count(),
        };
        let suspects = rest.iter().filter(|&node| slow_pairs(node) > 0);
        let blame = |node| slow_pairs(node) as isize - quick_pairs(node) as isize;
        match suspects.max_by_key(|&node| (blame(node), slow_pairs(node), node != owner, node)) {
            Some(worst) => {
                rest.remove(worst);
                slow.insert(worst);
            }
            None => return slow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::set;

    #[test]
    fn whoever_is_in_most_slow_pairs_less_quick_ones_is_left_out() {
        // live, who takes too long for whom (of node 1: 1:…) → who is slow; node 1 is the owner
        let table = "
            12345   -                                   → -
            12345   1:4                                 → 4
            12345   1:4 2:4 3:4 5:4                     → 4
            12345   4:1235                              → 4
            12345   1:4 4:1235                          → 4
            12345   2:3 3:2                             → 3
            12345   1:2 2:1                             → 2
            12345   2:1 3:1                             → 1
            12345   1:2345                              → 1
            12345   1:2345 2:1 3:1 4:1 5:1              → 1
            12345   1:45 2:45 3:45                      → 45
            12345   1:1                                 → 1
            12345   3:3                                 → 3
            123     1:23 2:13 3:12                      → 23
            123     1:4                                 → -
            123     4:12                                → -
            12345   2:1                                 → 1
            12345   2:14                                → 14
            12345   2:34                                → 34
            12345   2:34 3:12345                        → 34
            12345   2:34 5:34 4:12345                   → 34
            12345   3:12345                             → 3
            1234567 2:567                               → 567
            123     3:1                                 → 1
            123     3:12                                → 3
            12345   2:34 3:2 4:2                        → 2
            12345   2:34 4:2                            → 2
            12345   2:345                               → 2
            12345   4:123 5:123 1:45 2:45 3:45          → 45
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

    #[test]
    fn others_can_tell_too_before_anybody_is_left_out() {
        let member = |id| NodeId::new(id).expect("an id");
        let mut slow = SlowMembers::default();
        // at (ms), who tells, of whom → whether it has lasted for 100 ms that somebody tells
        let table = [
            (0, 2, "", false),
            (100, 2, "3", false),
            (199, 3, "", false),
            (200, 3, "2", true),
            (250, 2, "", true),
            (300, 3, "", false),
            (400, 3, "2", false),
            (500, 3, "2", true),
        ];
        for (at, by, of, lasts) in table {
            slow.seen_by.insert(member(by), set(of));
            let now = Time::from_nanos(at * 1_000_000);
            assert_eq!(slow.was_told_for(Duration::from_millis(100), now), lasts, "at {at} ms");
        }
    }

    /// As few as a group can do without, by their disks or by their links, and whoever of the others has told of it.
    #[test]
    fn nobody_who_is_quick_is_left_out_whoever_has_told_of_slow_ones() {
        let owner = NodeId::new(1).expect("an id");
        let subset = |of: &[NodeId], bits: usize| -> NodeSet {
            of.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, node)| *node).collect()
        };
        for size in 3..=7 {
            let members: Vec<_> = (1..=size).filter_map(NodeId::new).collect();
            let live: NodeSet = members.iter().copied().collect();
            let few = |slow: &NodeSet| !slow.is_empty() && slow.len() <= (members.len() - 1) / 2;
            for slow in (0..1 << size).map(|bits| subset(&members, bits)).filter(few) {
                for tell in (1..1 << size).map(|bits| subset(&members, bits)) {
                    for has_slow_disks in [false, true] {
                        let sees = |node| match slow.contains(node) {
                            true if has_slow_disks => live,
                            true => live.without(node),
                            false => slow,
                        };
                        let seen_by = tell.iter().map(|node| (node, sees(node))).collect();
                        let out = without_whom_nobody_waits(live, &seen_by, owner);
                        assert_eq!(out.intersection(slow), out, "{slow:?} are slow, {tell:?} tell");
                        let all = tell.iter().any(|node| !slow.contains(node));
                        assert_eq!(out, if all { slow } else { tell }, "{slow:?} are slow, {tell:?} tell");
                    }
                }
            }
        }
    }
}
