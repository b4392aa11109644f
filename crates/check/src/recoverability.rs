//! Recoverability: a value that is chosen can be had from the disks of any n − f voters, where f is as many as the
//! protocol can lose. (Crossword §3.3, condition C2; RSPaxos §3.2. For whole values: one of any n − f disks has it.)
//!
//! It counts what is durable, not what was said: the driver tells which records are. It is checked when a slot is first
//! stated to be chosen, and when a disk has less of a chosen value than before. What is executed need not be in any
//! record any more; nothing is taken away for that.

use std::collections::{BTreeMap, VecDeque};

use quorate_core::{Fact, NodeId, NodeSet};

use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "recoverability";

/// See the [module](self).
#[derive(Debug)]
pub struct Recoverability {
    /// Of so many voters, how many are there when f are lost.
    quorum: fn(usize) -> usize,
    disks: BTreeMap<NodeId, Disk>,
    /// The value of each chosen slot, by digest.
    chosen: BTreeMap<u64, u64>,
    /// Voters and outgoing voters, from the slot behind this one on.
    groups: BTreeMap<u64, [NodeSet; 2]>,
}

/// What is on a replica's disk.
#[derive(Debug, Default)]
struct Disk {
    incarnation: u64,
    /// What is durable of each slot's value.
    durable: BTreeMap<u64, Share>,
    /// Slots of which something else will be durable with this record.
    pending: VecDeque<(u64, u64, Share)>,
    /// The same, with a record that was not told yet.
    stated: Vec<(u64, Share)>,
}

/// How much of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    digest: u64,
    /// By number; all bits: it is whole.
    shards: u16,
    /// So many shards restore the value.
    data: u8,
}

impl Recoverability {
    /// Of so many voters, `quorum` are there when as many as can be are lost
    /// ([`Capabilities::quorum`](quorate_core::Capabilities::quorum)).
    pub fn new(quorum: fn(usize) -> usize) -> Recoverability {
        let (disks, chosen, groups) = Default::default();
        Recoverability { quorum, disks, chosen, groups }
    }

    fn check(&self, at: u64, slot: u64) -> Result<(), Violation> {
        let Some(&digest) = self.chosen.get(&slot) else { return Ok(()) };
        // Neighbours in the chain of configurations have quorums that meet: a slot may be decided by the one before.
        let mut groups = self.groups.range(..slot).rev().take(2).peekable();
        if groups.peek().is_none() || groups.any(|(_, group)| self.is_safe(group, slot, digest)) {
            return Ok(());
        }
        let holds = |node: &NodeId| Some((*node, self.disks.get(node)?.durable.get(&slot)?.shards));
        let held: Vec<_> = self.disks.keys().filter_map(holds).collect();
        let what = format!("slot {slot} is chosen and can be lost: on disks there are {held:04x?}");
        Err(Violation { checker: NAME, at, what })
    }

    /// Whether any voters that are left can restore the value.
    fn is_safe(&self, group: &[NodeSet; 2], slot: u64, digest: u64) -> bool {
        group.iter().filter(|set| !set.is_empty()).all(|set| {
            let share =
                |node| self.disks.get(&node)?.durable.get(&slot).filter(|share| share.digest == digest);
            let shares: Vec<_> = set.iter().filter_map(share).collect();
            let shards: Vec<_> = shares.iter().map(|share| share.shards).collect();
            let data = shares.iter().map(|share| share.data).max().unwrap_or(1);
            let left = shards.len().saturating_sub(set.len() - (self.quorum)(set.len()));
            left > 0 && least(&shards, left, 0) >= data.into()
        })
    }
}

/// How many distinct shards `left` of these have with those that are covered, at least.
fn least(shards: &[u16], left: usize, covered: u16) -> u32 {
    match shards.split_first() {
        _ if left == 0 => covered.count_ones(),
        Some((first, rest)) if shards.len() > left => {
            least(rest, left - 1, covered | first).min(least(rest, left, covered))
        }
        Some((first, rest)) => least(rest, left - 1, covered | first),
        None => covered.count_ones(),
    }
}

impl Checker for Recoverability {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Stored"]
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        match *fact {
            // Whoever is to join a group knows of nobody at first.
            Fact::Configured { index, voters, outgoing } if !voters.is_empty() => {
                self.groups.insert(index, [voters, outgoing]);
            }
            Fact::Stored { slot, digest, shards, data } => {
                let disk = self.disks.entry(who.node).or_default();
                if disk.incarnation != who.incarnation {
                    disk.incarnation = who.incarnation;
                    disk.pending.clear();
                    disk.stated.clear();
                }
                disk.stated.push((slot, Share { digest, shards, data }));
            }
            Fact::Chosen { slot, digest }
                if !self.disks.is_empty() && self.chosen.insert(slot, digest).is_none() =>
            {
                return self.check(at, slot);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_records(&mut self, at: u64, who: Process, written: u64, durable: u64) -> Result<(), Violation> {
        let Some(disk) = self.disks.get_mut(&who.node).filter(|disk| disk.incarnation == who.incarnation)
        else {
            return Ok(());
        };
        disk.pending.extend(disk.stated.drain(..).map(|(slot, share)| (written, slot, share)));
        let mut less = Vec::new();
        while let Some((_, slot, share)) = disk.pending.pop_front_if(|(record, ..)| *record <= durable) {
            let before = disk.durable.insert(slot, share);
            let is_less = |before: Share| before.digest != share.digest || before.shards & !share.shards != 0;
            if before.is_some_and(is_less) {
                less.push(slot);
            }
        }
        less.into_iter().try_for_each(|slot| self.check(at, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{node, true_clocks, who};
    use super::*;

    /// Five voters, of whom `quorum` are left; any three shards restore the value. Steps: `2:0` node 2 persists shard
    /// 0 (`*`: all of the value, `!`: of another value, `_`: of another slot), `2+` it is durable, `2-` it is started
    /// anew, `=` the value is chosen.
    fn is_violated(quorum: fn(usize) -> usize, steps: &str) -> bool {
        let mut checker = Recoverability::new(quorum);
        let (mut written, mut lives) = ([0; 6], [0; 6]);
        let group =
            Fact::Configured { index: 0, voters: (1..=5).map(node).collect(), outgoing: NodeSet::EMPTY };
        checker.on_fact(0, who(1, 0), &group, &true_clocks).unwrap();
        let results = steps.split_whitespace().map(|step| {
            if step == "=" {
                return checker.on_fact(1, who(1, 0), &Fact::Chosen { slot: 1, digest: 7 }, &true_clocks);
            }
            let (id, what) = step.split_at(1);
            let id: u64 = id.parse().unwrap();
            let (life, records) = (&mut lives[id as usize], &mut written[id as usize]);
            let at = who(id, *life);
            match what.split_at(1) {
                ("+", _) => checker.on_records(1, at, *records, *records),
                ("-", _) => {
                    (*life, *records) = (*life + 1, 0);
                    Ok(())
                }
                (_, shards) => {
                    let held = |digit: u8| 1 << (digit - b'0');
                    let (slot, digest, shards, data) = match shards {
                        "*" => (1, 7, u16::MAX, 1),
                        "!" => (1, 8, u16::MAX, 1),
                        "_" => (2, 7, u16::MAX, 1),
                        digits => (1, 7, digits.bytes().map(held).fold(0, |all, one: u16| all | one), 3),
                    };
                    let stored = Fact::Stored { slot, digest, shards, data };
                    checker.on_fact(1, at, &stored, &true_clocks).unwrap();
                    *records += 1;
                    checker.on_records(1, at, *records, *records - 1)
                }
            }
        });
        results.collect::<Vec<_>>().iter().any(Result::is_err)
    }

    #[test]
    fn what_is_chosen_is_on_the_disks_of_any_that_are_left() {
        let majority: fn(usize) -> usize = |voters| voters / 2 + 1;
        let four: fn(usize) -> usize = |voters| voters - 1;
        let one_each = "1:0 2:1 3:2 4:3 5:4 1+ 2+ 3+ 4+ 5+ =";
        let table = [
            (majority, one_each, false),
            (majority, "1:0 2:1 3:2 4:3 1+ 2+ 3+ 4+ =", true),
            (four, "1:0 2:1 3:2 4:3 1+ 2+ 3+ 4+ =", false),
            (four, "1:0 2:1 3:2 4:3 1+ 2+ 3+ =", true),
            (four, "1:0 2:1 3:2 4:3 1+ 2+ 3+ 4- 4+ =", true),
            (four, "1:0 2:1 3:2 4:3 1+ 2+ 3+ 4- 4:_ 4+ =", true),
            (majority, "1:01 2:12 3:23 4:34 1+ 2+ 3+ 4+ =", false),
            (majority, "1:01 2:12 4:34 1+ 2+ 4+ =", true),
            (majority, "1:* 2:* 3:* 1+ 2+ 3+ =", false),
            (majority, "1:* 2:* 3:! 1+ 2+ 3+ =", true),
            (majority, "1:* 2:0 3:1 1+ 2+ 3+ =", true),
            (majority, "1:* 2:* 1+ 2+ =", true),
            (majority, "1:* 2:* 3:* 1+ 2+ 3+ = 3:0 3+", true),
            (majority, "1:* 2:* 3:* 4:* 1+ 2+ 3+ 4+ = 3:0 3+", false),
            (majority, "1:* 2:* 3:* 1+ 2+ 3+ = 3:0", false),
            (majority, "1:* 2:* 3:* 1+ 2+ 3+ = 3:! 3+", true),
        ];
        for (quorum, steps, violated) in table {
            assert_eq!(is_violated(quorum, steps), violated, "{steps}");
        }
    }

    /// The first two nodes have what is chosen in a slot. Voters are as they were said in turn, each time with those
    /// that are outgoing.
    fn is_violated_in(groups: &[[&[u64]; 2]]) -> bool {
        let mut checker = Recoverability::new(|voters| voters / 2 + 1);
        for (index, [voters, outgoing]) in (0..).zip(groups) {
            let [voters, outgoing] = [voters, outgoing].map(|ids| ids.iter().map(|id| node(*id)).collect());
            let group = Fact::Configured { index, voters, outgoing };
            checker.on_fact(0, who(1, 0), &group, &true_clocks).unwrap();
        }
        for id in [1, 2] {
            let stored = Fact::Stored { slot: 9, digest: 7, shards: u16::MAX, data: 1 };
            checker.on_fact(1, who(id, 0), &stored, &true_clocks).unwrap();
            checker.on_records(1, who(id, 0), 1, 1).unwrap();
        }
        checker.on_fact(2, who(1, 0), &Fact::Chosen { slot: 9, digest: 7 }, &true_clocks).is_err()
    }

    #[test]
    fn what_is_chosen_is_on_the_disks_of_those_who_decide() {
        let (old, new): (&[u64], &[u64]) = (&[1, 2, 3], &[3, 4, 5]);
        let table: [(&[[&[u64]; 2]], bool); 6] = [
            (&[[old, &[]]], false),
            (&[[new, &[]]], true),
            (&[[old, new]], true),
            (&[[new, old]], true),
            (&[[old, &[]], [new, old]], false),
            (&[[old, &[]], [new, old], [new, &[]]], true),
        ];
        for (groups, violated) in table {
            assert_eq!(is_violated_in(groups), violated, "{groups:?}");
        }
    }
}
