//! A minority is lost or slow for good, which a group must do without: nodes that are dead for ever, with what they had
//! on disk, disks that hang, links that are slow. Or two members lose the links to each other for good, while each
//! reaches all others.
//!
//! Whose loss a group tolerates is clear as long as it does not change: those without whom its voters are a quorum of
//! the protocol, mostly a majority. Where an
//! operator changes it at the same time, a set is taken that every configuration tolerates which is in force anywhere
//! or has been asked for. A change that nobody remembers having asked for may still be carried out later; a run whose
//! group came to need the lost nodes in that way owes nothing.
//!
//! **Of two that do not reach each other** one may lead, and the other is left behind. So they count as if one of them
//! were lost, whichever that is: one of the two owes nothing in the end. A client whose node may not reach the leader
//! turns to another one once all other faults are over, unless the protocol serves it through any member
//! ([`Capabilities::leaderless`](quorate_core::Capabilities::leaderless)).

use quorate_check::{MILLISECOND, Nanos};
use quorate_core::{NodeId, NodeSet, Random};

use super::{Cluster, Event};
use crate::faults::{Impairment, Kind, LostLinks};
use crate::process::SimProcess;

/// How many times slower the links of a slow node are.
pub(crate) const SLOWNESS: u64 = 30;

impl Cluster {
    /// The instant of an impairment has come. Those who are lost or slow already count in.
    pub(super) fn impair(&mut self, index: usize) {
        if !self.is_whole() {
            // A member that is not admitted yet, or replaces its disk, may need all others.
            return self.queue.push(self.now + 100 * MILLISECOND, Event::Impair(index));
        }
        self.impairments -= 1;
        let Impairment { kind, leader, seed, .. } = self.plan.impairments[index];
        let mut random = Random::new(seed);
        let order = self.draw_order(leader, &mut random);
        // Mostly as many as can be.
        let most =
            if random.chance(0.6) { self.nodes as u64 } else { random.range(1..self.nodes as u64 + 1) };
        let mut impaired = self.impaired();
        let mut struck = 0;
        for host in order {
            let mut with = impaired;
            if struck < most && with.insert(node(host)) && self.can_spare(with.union(self.without_memory())) {
                (impaired, struck) = (with, struck + 1);
                self.trace.line(self.now, &self.hosts[host], || format!("{} for good", kind.name()));
                self.counts.add(kind);
                self.strike_for_good(kind, host);
            }
        }
        self.settle_service();
    }

    /// The nodes in a random order; with `leader`, beginning with the leader.
    fn draw_order(&self, leader: bool, random: &mut Random) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.nodes).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, random.range(0..last as u64 + 1) as usize);
        }
        if leader && let Some(leader) = self.leader() {
            order.retain(|host| *host != leader);
            order.insert(0, leader);
        }
        order
    }

    /// The instant has come at which two voters lose the links to each other.
    pub(super) fn lose_links(&mut self) {
        if !self.is_whole() {
            // As above.
            return self.queue.push(self.now + 100 * MILLISECOND, Event::LoseLinks);
        }
        self.impairments -= 1;
        let LostLinks { leader, seed, .. } = self.plan.lost_links.expect("it was drawn");
        let order = self.draw_order(leader, &mut Random::new(seed));
        let (voters, impaired) = (self.prospects(), self.impaired());
        let votes = |host: &usize| {
            let node = node(*host);
            voters.iter().any(|voters| voters.contains(node)) && !impaired.contains(node)
        };
        let order: Vec<_> = order.into_iter().filter(votes).collect();
        let pairs = order.iter().enumerate().flat_map(|(index, &host)| {
            let others = order[index + 1..].iter();
            others.map(move |&other| [host, other])
        });
        for pair in pairs {
            self.lost_links = Some(pair);
            if self.can_spare(impaired) {
                break;
            }
            self.lost_links = None;
        }
        if let Some([host, other]) = self.lost_links {
            self.trace.line(self.now, &self.hosts[host], || {
                format!("{} to {} for good", Kind::LostLinks.name(), self.hosts[other])
            });
            self.counts.add(Kind::LostLinks);
            self.network.lose(host, other);
            if self.healed && !self.can.leaderless {
                self.end_requests(host);
                self.end_requests(other);
            }
        }
        self.settle_service();
    }

    /// Whether clients of this host are owed answers: else it may not reach the leader.
    pub fn serves_clients(&self, host: usize) -> bool {
        self.can.leaderless || !self.lost_links.is_some_and(|pair| pair.contains(&host))
    }

    fn strike_for_good(&mut self, kind: Kind, host: usize) {
        match kind {
            Kind::HungDisks => {
                self.hosts[host].slow = true;
                self.hosts[host].disk.hang();
            }
            Kind::SlowNodes => {
                self.hosts[host].slow = true;
                self.network.slow_host(host, SLOWNESS);
            }
            _ => {
                self.hosts[host].lost = true;
                self.end_life(host);
            }
        }
    }

    /// From now on writes are served, if nothing more fails; once what was under way on links and disks that were slow
    /// has arrived.
    pub(super) fn settle_service(&mut self) {
        if self.healed && self.impairments == 0 {
            self.service.begin(self.when_clear());
        }
    }

    /// When what is under way on links and disks has arrived.
    pub(super) fn when_clear(&self) -> Nanos {
        let disks = self.hosts.iter().map(|host| host.disk.busy_until());
        disks.chain([self.network.clear_at()]).fold(self.now, Nanos::max)
    }

    /// Lets the checker look how long somebody has waited for a write, if that is a promise: at most a minority is lost
    /// or slow, of every group there may be. Where none is, the wait is measured and not judged.
    pub fn judge_service(&mut self) {
        if !self.healed {
            return;
        }
        let impaired = self.impaired().union(self.widened);
        if !self.can_spare(impaired) || self.has_forgotten() {
            return;
        }
        let well = |host: &SimProcess| host.life.is_some() && !host.slow && !host.damaged;
        let owed = |host: usize| well(&self.hosts[host]) && self.serves_clients(host);
        let waiting = self.work.lanes.iter().filter(|lane| owed(lane.host));
        let writes =
            waiting.filter_map(|lane| lane.pending.as_ref()).filter(|pending| pending.write.is_some());
        let oldest = writes.map(|pending| pending.asked).filter(|asked| *asked >= self.heal_at).min();
        let result = self.service.check(self.now, oldest);
        if !impaired.is_empty() || self.lost_links.is_some() {
            self.found(result);
        }
    }

    /// Those who are lost or slow, or whose disk is damaged.
    pub fn impaired(&self) -> NodeSet {
        let is_impaired = |host: &SimProcess| host.lost || host.slow || host.damaged;
        (0..self.nodes).filter(|host| is_impaired(&self.hosts[*host])).map(node).collect()
    }

    /// Every set of voters whose majority counts somewhere, or will if an order is carried out.
    pub(super) fn prospects(&self) -> Vec<NodeSet> {
        let asked = self.operator.prospects();
        self.in_force(|_| true).into_iter().chain(asked).chain([self.members]).collect()
    }

    /// Whether every set of voters whose majority counts, or will, has one without these.
    pub(super) fn can_spare(&self, impaired: NodeSet) -> bool {
        self.prospects().iter().all(|voters| self.outlasts(*voters, impaired))
    }

    /// Every set of voters whose majority counts at one of these hosts. What a damaged disk says of that is of no
    /// account.
    fn in_force(&self, at: impl Fn(usize) -> bool) -> Vec<NodeSet> {
        let sound = |host: &usize| at(*host) && !self.hosts[*host].damaged;
        let nodes: Vec<_> = (0..self.nodes).filter(sound).map(node).collect();
        let in_force = self.logs.iter().flat_map(|logs| {
            let own = nodes.iter().filter_map(|node| logs.configured(*node));
            own.chain(logs.group())
        });
        in_force.flat_map(|group| [group.voters, group.outgoing]).collect()
    }

    /// Whether those who are well have a majority of every group that they take for theirs.
    pub fn is_tolerable(&self) -> bool {
        let impaired = self.impaired();
        let well = |host: usize| !impaired.contains(node(host));
        self.in_force(well).iter().all(|voters| self.outlasts(*voters, impaired))
    }

    /// Whether voters without those who are lost are a quorum, all of whom reach each other, and all other voters that
    /// may count as well: in a joint configuration a leader needs majorities of both.
    pub(super) fn outlasts(&self, voters: NodeSet, lost: NodeSet) -> bool {
        let is_left = |voter: NodeId| voters.contains(voter) && !lost.contains(voter);
        let counts = |voter: NodeId| {
            !lost.contains(voter) && self.prospects().iter().any(|voters| voters.contains(voter))
        };
        let apart = self.lost_links.is_some_and(|pair| {
            let pair = pair.map(node);
            pair.into_iter().any(is_left) && pair.into_iter().all(counts)
        });
        let left = voters.iter().filter(|voter| is_left(*voter)).count() - usize::from(apart);
        voters.is_empty() || left >= (self.can.quorum)(voters.len())
    }
}

pub(super) fn node(host: usize) -> NodeId {
    NodeId::new(host as u64 + 1).expect("few nodes")
}

/// The other way round: where a node is.
pub(super) fn host_of(node: NodeId) -> usize {
    usize::from(node.get()) - 1
}
