//! Nodes go away for good: a minority, which a group must do without. What they had on disk is gone with them.
//!
//! Whose loss a group tolerates is clear as long as it does not change: fewer than half of its voters. Where an
//! operator changes it at the same time, a set is taken that every configuration tolerates which is in force anywhere
//! or has been asked for. A change that nobody remembers having asked for may still be carried out later; a run whose
//! group came to need the lost nodes in that way owes nothing.

use quorate_core::{NodeId, NodeSet, Protocol, Random};

use super::Cluster;
use crate::faults::Kind;

impl<P: Protocol> Cluster<P> {
    /// The instant of the loss has come.
    pub(super) fn lose(&mut self) {
        self.losing = false;
        let Some(loss) = self.plan.loss else { return };
        let mut random = Random::new(loss.seed);
        let mut order: Vec<usize> = (0..self.nodes).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.range(0..last as u64 + 1) as usize);
        }
        if loss.leader
            && let Some(leader) = self.leader()
        {
            order.retain(|host| *host != leader);
            order.insert(0, leader);
        }
        // Mostly as many as can be.
        let most =
            if random.chance(0.6) { order.len() } else { random.range(1..order.len() as u64 + 1) as usize };
        let groups = self.prospects();
        let mut lost = NodeSet::EMPTY;
        for host in order {
            let with = lost.union([node(host)].into_iter().collect());
            if with.len() <= most && groups.iter().all(|voters| outlasts(*voters, with)) {
                lost = with;
                self.trace.line(self.now, &self.hosts[host], || "goes away for good".to_owned());
                self.counts.add(Kind::LostNodes);
                self.hosts[host].lost = true;
                self.end_life(host);
            }
        }
    }

    /// Every set of voters whose majority counts somewhere, or will if an order is carried out.
    fn prospects(&self) -> Vec<NodeSet> {
        let asked = self.operator.prospects();
        self.in_force(|_| true).into_iter().chain(asked).chain([self.members]).collect()
    }

    /// Every set of voters whose majority counts at one of these hosts.
    fn in_force(&self, at: impl Fn(usize) -> bool) -> Vec<NodeSet> {
        let own =
            (0..self.nodes).filter(|host| at(*host)).filter_map(|host| self.logs.configured(node(host)));
        own.chain(self.logs.group()).flat_map(|group| [group.voters, group.outgoing]).collect()
    }

    /// Whether those who are left have a majority of every group that they take for theirs.
    pub fn is_tolerable(&self) -> bool {
        let lost: NodeSet = (0..self.nodes).filter(|host| self.hosts[*host].lost).map(node).collect();
        self.in_force(|host| !self.hosts[host].lost).iter().all(|voters| outlasts(*voters, lost))
    }
}

fn node(host: usize) -> NodeId {
    NodeId::new(host as u64 + 1).expect("few nodes")
}

/// Whether voters without those who are lost are a majority.
fn outlasts(voters: NodeSet, lost: NodeSet) -> bool {
    let left = voters.iter().filter(|voter| !lost.contains(*voter)).count();
    voters.is_empty() || left * 2 > voters.len()
}
