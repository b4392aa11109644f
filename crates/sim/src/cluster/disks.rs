//! Disks are lost, or rolled back to what they were at the end of an earlier life. The node must be refused then
//! ([`handshakes`](super::handshakes)) and is gone for good; or, where the protocol lets a member rejoin, it asks to
//! replace its disk and comes back.
//!
//! A disk is damaged only where the rules can help. At most a minority is [impaired](super::impairments) at once, nodes
//! with damaged disks included. Every member must be admitted, or replaces its disk: before, nobody has to remember
//! anything. A disk is rolled back only where every other node durably remembers a later life of it: what nobody
//! remembers nobody can notice. And a node that replaces its disk needs every other member until it takes part again,
//! so nothing else is impaired meanwhile, no links are lost, and no other disk is damaged, unless several are to be
//! replaced at once.
//!
//! Or a node asks in vain to replace its disk, because another member is down all the while. Then it has its own disk
//! back, with which it must not be refused. Only in runs with this kind of fault does a new disk wait until all others
//! are there. In others they count as having been there before it starts, whether they are down or not: some have
//! retired the lost disk while others are down, which is the harder case for all that comes after.

use std::sync::Arc;

use quorate_blocks::admission::{Memory, PeerDisk, Stage};
use quorate_blocks::reach::Reach;
use quorate_check::{Checker, MILLISECOND, Nanos};
use quorate_core::{Diskless, GroupId, NodeId, NodeSet, REJOINING};
use quorate_runtime::ConfiguredProtocol;

use super::impairments::{host_of, node};
use super::{Cluster, Event};
use crate::faults::Kind;
use crate::process::{ShelvedDisk, SimProcess};

impl Cluster {
    /// Whether each member takes part with all its data, or has gone for good.
    pub(super) fn is_whole(&self) -> bool {
        self.remembers() && self.newcomers().is_empty()
    }

    /// Members that do not take part yet, since their disks are new.
    fn newcomers(&self) -> NodeSet {
        let is_new = |node: &NodeId| {
            let host = host_of(*node);
            let at = &self.hosts[host];
            !at.lost && !at.damaged && (!self.is_admitted(host) || self.is_rejoining(host))
        };
        let admits = self.can.diskless != Diskless::All;
        self.members.iter().filter(|_| admits).filter(is_new).collect()
    }

    fn is_admitted(&self, host: usize) -> bool {
        self.hosts[host].memory.as_ref().is_some_and(|memory| memory.stage == Stage::Admitted)
    }

    /// Whether a disk may be lost now, as far as the disks of others matter.
    fn may_lose(&self, kind: Kind, me: NodeId) -> bool {
        let newcomers = self.newcomers();
        let lost = newcomers.union(NodeSet::from_iter([me]));
        let are_few = 2 * lost.len() < self.members.len();
        let several = kind == Kind::SeveralReplacedDisks && are_few;
        self.remembers() && (newcomers.is_empty() || several)
    }

    /// Whether a node has replaced its disk and may not take part yet. While it is down nobody knows.
    fn is_rejoining(&self, host: usize) -> bool {
        let at = &self.hosts[host];
        at.replaces() && at.status(self.now).is_none_or(|status| status.role == REJOINING)
    }

    /// What the machines of a host are told.
    pub(super) fn configs_of(&self, host: usize) -> Arc<dyn ConfiguredProtocol> {
        let at = &self.hosts[host];
        let joins = at.node.is_some_and(|node| !self.members.contains(node));
        let told = self.at_reach(at.reach());
        match &told.rejoining {
            Some(rejoining) if at.replaces() => rejoining.clone(),
            _ if joins => told.joining.clone(),
            _ => told.configs.clone(),
        }
    }

    /// A life has ended: perhaps somebody copies its disk.
    pub(super) fn keep_copy(&mut self, host: usize) {
        let at = &mut self.hosts[host];
        if self.plan.kinds.contains(Kind::RolledBackDisks) && (at.copy.is_none() || at.random.chance(0.3)) {
            self.copy_disk(host);
        }
    }

    /// A copy from a time when the node was the only voter is of no use: it would ask nobody.
    fn copy_disk(&mut self, host: usize) {
        let logs = &self.logs[GroupId::FIRST.index()];
        let alone = logs.configured(node(host)).is_some_and(|group| group.voters.len() < 2);
        let at = &mut self.hosts[host];
        if let Some(memory) = at.memory.clone().filter(|memory| memory.stage == Stage::Admitted && !alone) {
            at.copy = Some((at.disk.clone(), memory));
        }
    }

    /// Whether every other node durably remembers a life of this disk that is later than that.
    fn is_remembered(&self, host: usize, copy: &Memory) -> bool {
        let is_later = |known: &PeerDisk| {
            let current = known.current.as_ref();
            let later = current.is_some_and(|life| life.disk == copy.own.disk && life.life > copy.own.life);
            later || known.retired.contains(&copy.own.disk)
        };
        let remembers = |other: &SimProcess| {
            other.memory.as_ref().is_some_and(|memory| memory.peers.get(&node(host)).is_some_and(is_later))
        };
        let others = (0..self.nodes).filter(|other| *other != host).map(|other| &self.hosts[other]);
        others.filter(|other| !other.lost && !other.damaged).all(remembers)
    }

    /// The disk of a node is lost, or rolled back; with `all`, when all nodes lose power.
    pub(super) fn damage(&mut self, kind: Kind, host: usize, down: Nanos, all: bool) {
        let (me, impaired) = (node(host), self.impaired());
        let mut with = impaired;
        if !with.insert(me) || !self.can_spare(with) || !self.may_lose(kind, me) || !self.may_forget(host) {
            return;
        }
        let all = all && !self.diskless;
        let copy = self.hosts[host].copy.clone().filter(|(_, memory)| self.is_remembered(host, memory));
        let strikes = match kind {
            Kind::RolledBackDisks => copy.is_some(),
            // Others come with --join, and may do so again once they have left.
            Kind::WipedDisks => self.members.contains(me),
            _ => {
                let replaces = self.at_reach(Reach::SHORTEST).rejoining.is_some();
                replaces && impaired.is_empty() && self.lost_links.is_none()
            }
        };
        if !strikes && kind != Kind::RolledBackDisks {
            return;
        }
        for other in (0..self.nodes).filter(|other| all || *other == host) {
            // Those who have lost power together come back in any order.
            let down = if all { self.random.range(0..3 * down + 1) } else { down };
            self.kill(other, down);
        }
        if !strikes {
            // Later perhaps.
            return self.copy_disk(host);
        }
        self.counts.add(kind);
        self.trace.line(self.now, &self.hosts[host], || format!("its disk is damaged: {}", kind.name()));
        let at = &mut self.hosts[host];
        match copy {
            Some((disk, memory)) if kind == Kind::RolledBackDisks => {
                (at.disk, at.memory) = (disk, Some(memory));
            }
            _ => {
                at.disk.wipe();
                (at.memory, at.leases) = (None, None);
            }
        }
        at.asks_to_replace = matches!(kind, Kind::ReplacedDisks | Kind::SeveralReplacedDisks);
        at.damaged = !at.asks_to_replace;
        if at.asks_to_replace {
            self.panels.iter_mut().for_each(|panel| panel.on_disk_lost(me));
        }
    }

    /// A node and another die. The node comes back soon with an empty disk and asks to replace its own. It has that
    /// back before the other is there again.
    pub(super) fn replace_in_vain(&mut self, host: usize, length: Nanos) {
        let other = self.random.range(0..self.nodes as u64) as usize;
        let are_members = [host, other].iter().all(|host| self.members.contains(node(*host)));
        let replaces = self.at_reach(Reach::SHORTEST).rejoining.is_some();
        let calm = self.impaired().is_empty() && self.lost_links.is_none() && self.is_whole();
        let alive = [host, other].iter().all(|host| self.hosts[*host].life.is_some());
        // At least as long as it takes the new disk to be heard of.
        let back = self.now + length + 300 * MILLISECOND;
        let starts = self.random.range(0..100 * MILLISECOND);
        let returns = back + self.random.range(MILLISECOND..300 * MILLISECOND);
        if host == other || !replaces || !calm || !alive || back >= self.heal_at || !are_members {
            return;
        }
        self.kill(other, returns - self.now);
        self.kill(host, starts);
        self.counts.add(Kind::VainReplacements);
        self.trace.line(self.now, &self.hosts[host], || "its disk is shelved".to_owned());
        let at = &mut self.hosts[host];
        let (memory, leases) = (at.memory.take(), at.leases.take());
        at.shelved = Some(ShelvedDisk { disk: at.disk.clone(), memory, leases });
        at.disk.wipe();
        at.asks_to_replace = true;
        let epoch = self.hosts[other].epoch;
        self.queue.push(back, Event::PutBack { host, other, epoch });
    }

    /// The node gets its own disk back, if the other has been down all the while.
    pub(super) fn put_back(&mut self, host: usize, other: usize, epoch: u64) {
        self.kill(host, 50 * MILLISECOND);
        let was_down = self.hosts[other].epoch == epoch;
        let at = &mut self.hosts[host];
        let Some(ShelvedDisk { disk, memory, leases }) = at.shelved.take().filter(|_| was_down) else {
            return;
        };
        (at.disk, at.memory, at.leases, at.asks_to_replace) = (disk, memory, leases, false);
        self.trace.line(self.now, &self.hosts[host], || "its own disk is put back".to_owned());
    }

    /// Whether each node whose disk was damaged has been refused.
    pub fn are_refused(&self) -> bool {
        self.hosts.iter().all(|host| !host.damaged || host.lost)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[cfg(feature = "mutations")]
    use quorate_check::Violation;
    use quorate_check::{MILLISECOND, Nanos, SECOND};
    use quorate_protocols::registry::named;

    use crate::Options;
    use crate::faults::{Action, Faults, Kind, KindSet, Moment, ScheduledFault, Target};
    use crate::run::{Run, finish, prepare};
    use crate::trace::Trace;

    fn fault(at: Nanos, kind: Kind, node: usize, length: Nanos, action: Action) -> ScheduledFault {
        ScheduledFault { at, kind, target: Target::Host(node - 1), moment: Moment::Now, length, action }
    }

    /// Node 1 is down while writes are acknowledged by 2 and 3. Both are killed, and what was on the disk of 3 is lost.
    /// 1 and 3 start, and 2 much later.
    fn tell(protocol: &str, seed: u64) -> Run {
        let faults = Faults::Only(KindSet::default());
        let options = Options { faults, duration: Duration::from_secs(12), ..Options::default() };
        let mut cluster = prepare(named(protocol), &options, seed, Trace::silent()).unwrap();
        cluster.strike_with(vec![
            fault(2 * SECOND, Kind::Crashes, 1, 3500 * MILLISECOND, Action::Crash),
            fault(5 * SECOND, Kind::Crashes, 2, 6 * SECOND, Action::Crash),
            fault(5 * SECOND, Kind::WipedDisks, 3, SECOND, Action::Damage { all: false }),
        ]);
        finish(cluster, &options, seed)
    }

    #[cfg(feature = "mutations")]
    /// What goes wrong in some seed where nobody is refused. (That nobody is refused would be noticed later.)
    fn without_the_rule(protocol: &str) -> Violation {
        quorate_core::mutation::with("admission/off", || {
            let mut violations = (0..10).filter_map(|seed| tell(protocol, seed).violation);
            violations.find(|violation| violation.checker != "liveness").expect("a write is lost")
        })
    }

    fn assert_keeps_what_is_acknowledged(protocol: &str) {
        for seed in 0..10 {
            let run = tell(protocol, seed);
            assert_eq!(run.violation, None, "seed {seed}");
            assert_eq!(run.faults.of(Kind::WipedDisks), 1);
        }
    }

    #[test]
    fn an_acknowledged_write_outlives_the_disk_of_one_who_voted_for_it() {
        assert_keeps_what_is_acknowledged("multipaxos");
        assert_keeps_what_is_acknowledged("raft");
        assert_keeps_what_is_acknowledged("bodega");
        assert_keeps_what_is_acknowledged("epaxos");
    }

    #[test]
    fn a_minority_replaces_its_disks_at_the_same_time() {
        // And as real processes do it: each waits until all others are there.
        let waiting = "all,several-replaced-disks,vain-replacements";
        for (nodes, runs, faults) in
            [(5, 60, "all,several-replaced-disks"), (7, 20, "all,several-replaced-disks"), (5, 12, waiting)]
        {
            let faults = faults.parse().unwrap();
            let options = Options { nodes, faults, runs, ..Options::default() };
            let summary = crate::sim(named("epaxos"), &options, &mut |_| {}).unwrap();
            assert!(summary.is_fine(), "{summary}");
            assert!(summary.faults.of(Kind::SeveralReplacedDisks) >= runs, "{summary}");
        }
    }

    #[test]
    fn a_disk_that_is_to_be_replaced_while_another_member_is_down_is_still_good() {
        for nodes in [3, 5] {
            let faults = "all,vain-replacements".parse().unwrap();
            let options = Options { nodes, faults, runs: 40, ..Options::default() };
            let summary = crate::sim(named("epaxos"), &options, &mut |_| {}).unwrap();
            assert!(summary.is_fine(), "{summary}");
            assert!(summary.faults.of(Kind::VainReplacements) >= 40, "{summary}");
        }
    }

    #[cfg(feature = "mutations")]
    #[test]
    fn without_admission_the_write_is_lost() {
        println!("{}", without_the_rule("multipaxos"));
        println!("{}", without_the_rule("raft"));
        println!("{}", without_the_rule("bodega"));
        println!("{}", without_the_rule("epaxos"));
    }
}
