//! Nodes that keep their data in memory alone (`--diskless`) lose them with every crash. No group outlives the loss of
//! more memories than it can lose disks: where a quorum of *n* nodes is *q*, no more than *n − q* are without memory,
//! or lost or slow for good, at any time. A node has its memory back when it has been sent all data, and says so no
//! more ([`MEMORY`]); one that has a new disk, when it [takes part](REJOINING) again. With `lost-memories` as many lose
//! it as may: the group must not serve anything else than what it had ([`GROUP_MEMORY`]).
//!
//! A node also stops, and loses its memory, when its disk is full, or takes more than five seconds to write down that
//! another node has started ([`quorate_blocks::admission`]). While the group needs what this node has in memory, no
//! disk is made full, and such a write ends just in time.

use quorate_core::{GROUP_MEMORY, MEMORY, NodeSet, REJOINING};

use super::Cluster;
use super::impairments::{host_of, node};
use crate::faults::Kind;
use crate::process::SimProcess;

impl Cluster {
    /// Whether a node may lose its memory now.
    pub(super) fn may_forget(&self, host: usize) -> bool {
        !self.diskless || host >= self.nodes || self.forgets_all() || self.can_do_without(host)
    }

    /// Whether the group needs no memory that a node has now.
    pub(super) fn can_do_without(&self, host: usize) -> bool {
        let mut without = self.without_memory().union(self.impaired());
        without.insert(node(host));
        self.can_spare(without)
    }

    /// Whether each node has its memory, or has gone for good. One that cannot reach another may stay without.
    pub(super) fn remembers(&self) -> bool {
        if self.forgets_all() {
            return true;
        }
        let gone = |at: &SimProcess| at.lost || at.damaged || at.slow;
        let apart = |host: usize| self.lost_links.is_some_and(|pair| pair.contains(&host));
        let hosts = self.without_memory().iter().map(host_of);
        hosts.into_iter().all(|host| gone(&self.hosts[host]) || apart(host))
    }

    fn forgets_all(&self) -> bool {
        self.plan.kinds.contains(Kind::LostMemories)
    }

    /// Whether more memories were lost at once than the group can do without.
    pub(super) fn has_forgotten(&self) -> bool {
        self.counts.of(Kind::LostMemories) > 0
    }

    /// Whether that is so, and everybody who is there says that nobody is known to have the data.
    pub fn has_lost_its_memory(&self) -> bool {
        let says = |at: &SimProcess| {
            let status = at.status(self.now);
            status.is_none_or(|status| status.facts.iter().any(|(name, _)| *name == GROUP_MEMORY))
        };
        let there = self.hosts[..self.nodes].iter().filter(|at| at.life.is_some() && !at.slow);
        self.has_forgotten() && there.into_iter().all(says)
    }

    /// Nodes without memory, and those that nothing will keep from losing it: a node is about to stop, or will when it
    /// finds its disk full. None where data are on disks.
    pub(super) fn without_memory(&self) -> NodeSet {
        let is_without = |at: &SimProcess| {
            let is_draining = at.life.as_ref().is_some_and(|life| life.draining);
            let status = at.status(self.now);
            let has_forgotten = status.is_none_or(|status| {
                status.role == REJOINING || status.facts.iter().any(|(name, _)| *name == MEMORY)
            });
            has_forgotten || is_draining || at.damaged || at.disk.is_full(self.now)
        };
        (0..self.nodes).filter(|host| self.diskless && is_without(&self.hosts[*host])).map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    use quorate_check::{MILLISECOND, SECOND};
    use quorate_protocols::registry::named;

    use crate::faults::{Action, Faults, Kind, KindSet, Moment, ScheduledFault, Target};
    use crate::run::{finish, prepare, run};
    use crate::trace::Trace;
    use crate::{Options, OptionsError};

    /// Node 3 comes back, and the leader's disk takes long to write that. The leader may stop when 3 has its memory
    /// again, and not before: the group can do without one memory.
    #[test]
    fn no_node_stops_for_its_slow_disk_where_the_group_needs_what_it_has() {
        let faults = Faults::Only(KindSet::default());
        let duration = Duration::from_secs(16);
        let options = Options { faults, duration, diskless: true, ..Options::default() };
        let (stops, stays) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for seed in 0..20 {
            let count = |count: &Cell<u32>, is_it: bool| count.set(count.get() + u32::from(is_it));
            let (stops, stays) = (stops.clone(), stays.clone());
            let trace = Trace::to(move |line| {
                count(&stops, line.contains("stops: its disk takes too long"));
                count(&stays, line.contains("its disk has almost taken too long"));
            });
            let mut cluster = prepare(named("hermes"), &options, seed, trace).unwrap();
            let fault = |kind, target, length, action| ScheduledFault {
                at: 4 * SECOND,
                kind,
                target,
                moment: Moment::Now,
                length,
                action,
            };
            cluster.strike_with(vec![
                fault(Kind::Crashes, Target::Host(2), 100 * MILLISECOND, Action::Crash),
                fault(Kind::SlowDisks, Target::Leader(0), 300 * MILLISECOND, Action::SlowDisk(5_000)),
            ]);
            assert_eq!(finish(cluster, &options, seed).violation, None, "seed {seed}");
        }
        assert!(stops.get() > 0 && stays.get() > 0, "{} stops, {} stays", stops.get(), stays.get());
    }

    #[test]
    fn nodes_crash_and_no_more_than_the_group_can_do_without_lose_their_memory() {
        let kinds = [Kind::Crashes, Kind::ClusterCrashes, Kind::Drains, Kind::FullDisks];
        let faults = Faults::Only(kinds.into_iter().collect::<KindSet>());
        for nodes in [3, 5] {
            let options = Options { nodes, faults, diskless: true, ..Options::default() };
            let mut crashes = 0;
            for seed in 0..5 {
                let run = run(named("hermes"), &options, seed, Trace::silent()).unwrap();
                assert_eq!(run.violation, None, "{nodes} nodes, seed {seed}");
                crashes += run.faults.of(Kind::Crashes);
            }
            assert!(crashes > 5, "{crashes} crashes of {nodes} nodes");
        }
    }

    /// That is most of what can happen to a group, and what it must not serve then is an empty state.
    #[test]
    fn a_group_that_has_lost_too_many_memories_serves_nobody() {
        let faults = "crashes,cluster-crashes,drains,partitions,slow-links,lost-memories".parse().unwrap();
        let options = Options { faults, diskless: true, ..Options::default() };
        let mut lost = 0;
        for seed in 0..10 {
            let run = run(named("hermes"), &options, seed, Trace::silent()).unwrap();
            assert_eq!(run.violation, None, "seed {seed}");
            lost += u64::from(run.faults.of(Kind::LostMemories) > 0);
        }
        assert!(lost > 5, "{lost} runs with too many memories lost");
    }

    #[test]
    fn a_protocol_that_relies_on_what_it_has_written_is_refused() {
        let options = Options { diskless: true, ..Options::default() };
        let refused = run(named("raft"), &options, 0, Trace::silent()).unwrap_err();
        assert_eq!(refused, OptionsError::NeedsDisk("raft"));
        let faults = "longer-timeouts".parse().unwrap();
        let refused =
            run(named("hermes"), &Options { faults, ..options.clone() }, 0, Trace::silent()).unwrap_err();
        assert!(matches!(refused, OptionsError::Impossible { fault: "longer-timeouts", .. }), "{refused}");
        let faults = "lost-memories".parse().unwrap();
        let refused = run(named("hermes"), &Options { faults, ..Options::default() }, 0, Trace::silent());
        assert!(matches!(refused, Err(OptionsError::Impossible { fault: "lost-memories", .. })));
        let settings = vec!["timeouts=auto".to_owned()];
        let refused = run(named("hermes"), &Options { settings, ..options }, 0, Trace::silent()).unwrap_err();
        assert!(refused.to_string().contains("they would all lose their data"), "{refused}");
    }
}
