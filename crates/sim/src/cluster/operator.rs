//! The operator: changes who is in the group, and who leads it, while it runs. A client of its own kind, which asks
//! through whichever proxy it meets and knows the group only by the answers that it got.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{
    Access, GroupId, GroupRequest, Manage, Managed, NodeId, NodeSet, Outcome, Random, Range, Request,
    RequestId, Roster, Wire,
};
use quorate_runtime::Input;

use super::impairments::node;
use super::{Cluster, Event};
use crate::faults::Kind;

/// Where ranges of keys may end: between the keys of the [workload](crate::workload), and before and behind them.
const ENDS: [&str; 6] = ["a", "h0.", "n1", "s1", "s2", "x1"];

/// Its requests' ids, which no client's can be.
const OPERATORS: u64 = 0xffff;

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Operator {
    /// All that could be in a group.
    nodes: NodeSet,
    /// Who is in each group, as far as it knows.
    groups: Vec<Believed>,
    asked: u64,
    waiting: BTreeMap<RequestId, Order>,
}

/// Who is in a group, by the answers of its replicas.
#[derive(Clone, Copy, Debug)]
struct Believed {
    voters: NodeSet,
    learners: NodeSet,
}

impl Believed {
    fn all(self) -> NodeSet {
        self.voters.union(self.learners)
    }

    /// Its voters if this and nothing else is carried out.
    fn voters_after(self, manage: &Manage) -> NodeSet {
        let Manage::Change { voters, learners, remove } = manage else { return self.voters };
        let gone: NodeSet = learners.keys().copied().chain(remove.iter()).collect();
        let stay = self.voters.iter().filter(|node| !gone.contains(*node));
        stay.chain(voters.keys().copied()).collect()
    }
}

/// A request under way.
#[derive(Debug)]
struct Order {
    group: GroupId,
    manage: Manage,
    /// The host that it was asked at, and that host's epoch then.
    host: usize,
    epoch: u64,
    /// In true time.
    deadline: Nanos,
}

impl Operator {
    /// Of so many groups of these members, which could have all of `nodes`.
    pub fn new(members: NodeSet, nodes: NodeSet, groups: usize) -> Operator {
        let groups = vec![Believed { voters: members, learners: NodeSet::EMPTY }; groups];
        Operator { nodes, groups, asked: 0, waiting: BTreeMap::new() }
    }

    fn of(&self, group: GroupId) -> Believed {
        self.groups[group.index()]
    }

    fn draw_group(&self, random: &mut Random) -> GroupId {
        match self.groups.len() as u64 {
            1 => GroupId::FIRST,
            groups => GroupId::at(random.range(0..groups) as usize),
        }
    }

    fn transfer(&self, group: GroupId, random: &mut Random) -> Manage {
        let to = match random.chance(0.3) {
            true => None,
            // Mostly one that can.
            false => pick(if random.chance(0.8) { self.of(group).voters } else { self.nodes }, random),
        };
        Manage::Transfer { to }
    }

    /// Random responders for random ranges of the keys that clients use.
    fn roster(&self, random: &mut Random) -> Manage {
        match random.range(0..10) {
            0 => return Manage::AutoRoster(random.chance(0.5)),
            1 => return Manage::ShowRoster,
            _ => {}
        }
        let mut ends: Vec<_> = (0..random.range(0..4)).map(|_| *random.pick(&ENDS)).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut from = Bytes::new();
        let mut ranges = Vec::new();
        for to in ends.into_iter().map(Some).chain([None]) {
            let to = to.map(|to| Bytes::from_static(to.as_bytes()));
            let responders = self.nodes.iter().filter(|_| random.chance(0.5)).collect();
            let next = to.clone().unwrap_or_default();
            ranges.push(Range { from: std::mem::replace(&mut from, next), to, responders });
        }
        // Now and then it may lead to nothing: one that is not in the group.
        let leader = if random.chance(0.2) { pick(self.nodes, random) } else { None };
        Manage::Roster(Roster::new(leader, ranges).expect("ranges in order"))
    }

    /// A change that makes sense as far as it knows, and now and then one that does not.
    fn change(&self, group: GroupId, random: &mut Random) -> Manage {
        let believed = self.of(group);
        let Believed { voters, learners } = believed;
        let outside: NodeSet = self.nodes.iter().filter(|node| !believed.all().contains(*node)).collect();
        let mut change = Change::default();
        match random.range(0..16) {
            0..4 => change.voters.extend(pick(outside, random)),
            4 => change.learners.extend(pick(outside, random)),
            5..7 => change.voters.extend(pick(learners, random)),
            7..9 if voters.len() > 1 => change.remove.extend(pick(voters, random)),
            9 => change.remove.extend(pick(learners, random)),
            10 if voters.len() > 1 => change.learners.extend(pick(voters, random)),
            11..14 => {
                if let (Some(new), Some(old)) = (pick(outside.union(learners), random), pick(voters, random))
                {
                    change.voters.push(new);
                    change.remove.push(old);
                }
            }
            14 => return Manage::CancelChange,
            _ => {}
        }
        if change.is_empty() {
            change = self.upheaval(voters, random);
        }
        change.manage(believed.all(), random)
    }

    /// Any node may become anything.
    fn upheaval(&self, voters: NodeSet, random: &mut Random) -> Change {
        let mut change = Change::default();
        for node in self.nodes.iter() {
            match random.range(0..6) {
                0 | 1 => change.voters.push(node),
                2 => change.learners.push(node),
                3 => change.remove.push(node),
                _ => {}
            }
        }
        let stays = |node: &NodeId| !change.learners.contains(node) && !change.remove.contains(node);
        if change.voters.is_empty() && !voters.iter().any(|node| stays(&node)) {
            change.voters.append(&mut change.remove);
            change.voters.append(&mut change.learners);
        }
        change
    }

    /// The voters of each group that the orders under way may lead to.
    pub fn prospects(&self) -> impl Iterator<Item = NodeSet> {
        self.waiting.values().map(|order| self.of(order.group).voters_after(&order.manage))
    }

    fn on_done(&mut self, group: GroupId, manage: &Manage) {
        let Manage::Change { voters, learners, remove } = manage else { return };
        let believed = &mut self.groups[group.index()];
        for node in voters.keys().chain(learners.keys()).copied().chain(remove.iter()) {
            believed.voters.remove(node);
            believed.learners.remove(node);
        }
        believed.voters = believed.voters.union(voters.keys().copied().collect());
        believed.learners = believed.learners.union(learners.keys().copied().collect());
    }
}

/// Each node is named at most once.
#[derive(Debug, Default)]
struct Change {
    voters: Vec<NodeId>,
    learners: Vec<NodeId>,
    remove: Vec<NodeId>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.voters.is_empty() && self.learners.is_empty() && self.remove.is_empty()
    }

    /// The group knows where its members are, and has to be told of others.
    fn manage(self, members: NodeSet, random: &mut Random) -> Manage {
        let mut named = |nodes: Vec<NodeId>| {
            let mut address = |node| match random.chance(0.5) || !members.contains(node) {
                true => format!("{node:?}"),
                false => String::new(),
            };
            nodes.into_iter().map(|node| (node, address(node))).collect()
        };
        let (voters, learners) = (named(self.voters), named(self.learners));
        Manage::Change { voters, learners, remove: self.remove.into_iter().collect() }
    }
}

/// Whether this is the id of a request of the operator.
pub(super) fn is_operators(id: RequestId) -> bool {
    id.0 & OPERATORS == OPERATORS
}

fn pick(set: NodeSet, random: &mut Random) -> Option<NodeId> {
    let nodes: Vec<_> = set.iter().collect();
    (!nodes.is_empty()).then(|| *random.pick(&nodes))
}

impl Cluster {
    /// Asks for a change of the group, or of its leader, at this host or wherever somebody listens. All of it is
    /// drawn from `seed`.
    pub(super) fn manage(&mut self, kind: Kind, host: usize, seed: u64) {
        let mut random = Random::new(seed);
        let group = self.operator.draw_group(&mut random);
        let mut manage = self.draw_manage(kind, group, &mut random);
        self.manage_at(kind, host, (group, manage.clone()), &mut random);
        if random.chance(0.25) {
            // Twice at once: the same again, or another.
            if random.chance(0.6) {
                manage = self.draw_manage(kind, group, &mut random);
            }
            let other = random.range(0..self.hosts.len() as u64) as usize;
            self.manage_at(kind, other, (group, manage), &mut random);
        }
    }

    /// Whoever can see that a member is gone does not make the group depend on it.
    fn manage_at(&mut self, kind: Kind, host: usize, asked: (GroupId, Manage), random: &mut Random) {
        let (group, manage) = &asked;
        let voters = self.operator.of(*group).voters_after(manage);
        let changes = matches!(manage, Manage::Change { .. });
        if (!changes || self.outlasts(voters, self.impaired())) && self.order(host, asked, random) {
            self.counts.add(kind);
        }
    }

    /// A member was refused, and its log says what to do: the operator adds another node in its place in each group,
    /// and asks again until that is done.
    pub(super) fn replace_member(&mut self, host: usize) {
        let mut is_asked = false;
        for index in 0..self.operator.groups.len() {
            let group = GroupId::at(index);
            let believed = self.operator.of(group);
            let taken = believed.all().union(self.impaired());
            let new = self.operator.nodes.iter().find(|new| !taken.contains(*new));
            let is_in = believed.voters.contains(node(host));
            let (Some(new), true) = (new, is_in && !self.healed) else { continue };
            let manage = Manage::Change {
                voters: [(new, format!("{new:?}"))].into(),
                learners: Default::default(),
                remove: [node(host)].into_iter().collect(),
            };
            let mut random = self.random.fork();
            let at = random.range(0..self.hosts.len() as u64) as usize;
            self.order(at, (group, manage), &mut random);
            is_asked = true;
        }
        if is_asked {
            self.queue.push(self.now + SECOND, Event::Replace { host });
        }
    }

    fn draw_manage(&self, kind: Kind, group: GroupId, random: &mut Random) -> Manage {
        match kind {
            Kind::Transfers => self.operator.transfer(group, random),
            Kind::RosterChanges => self.operator.roster(random),
            _ => self.operator.change(group, random),
        }
    }

    /// Asks the first host from this one on that serves clients; false if none does.
    fn order(&mut self, host: usize, (group, manage): (GroupId, Manage), random: &mut Random) -> bool {
        let listens = |host: &usize| self.hosts[*host].life.as_ref().is_some_and(|life| !life.draining);
        let hosts = self.hosts.len();
        let Some(host) = (host..hosts).chain(0..host).find(listens) else { return false };
        self.operator.asked += 1;
        let id = RequestId(self.operator.asked << 16 | OPERATORS);
        let patience = *random.pick(&[300, 1000, 3000]) * MILLISECOND;
        let at = &self.hosts[host];
        let deadline = at.instant(self.now).now + Duration::from_nanos(patience);
        let give_up = at.clock.true_time(at.incarnation, deadline);
        self.trace.line(self.now, "fault", || match self.panels.len() {
            1 => format!("operator asks {:x} at {at}: {manage:?}", id.0),
            _ => format!("operator asks {:x} at {at}: {group}:{manage:?}", id.0),
        });
        let command = match self.panels.len() {
            1 => manage.to_bytes(),
            _ => GroupRequest { group, asked: manage.clone() }.to_bytes(),
        };
        let request = Request {
            // A connection for each request.
            stream: 1 << 33 | self.operator.asked,
            command,
            access: Access::Manage,
            deadline,
            after: 0,
        };
        self.operator.waiting.insert(id, Order { group, manage, host, epoch: at.epoch, deadline: give_up });
        self.queue.push(give_up + SECOND, Event::Forget(id));
        let life = self.hosts[host].life.as_mut().expect("somebody listens");
        life.inbox.push_back(Input::Request(id, request));
        self.wake(host);
        true
    }

    /// Whether this was the operator's, who has heard it now.
    pub(super) fn managed(&mut self, id: RequestId, outcome: &Outcome) -> bool {
        if !is_operators(id) {
            return false;
        }
        if let Some(order) = self.operator.waiting.remove(&id)
            && let Outcome::Done(bytes) = outcome
        {
            match Managed::from_bytes(bytes.clone()) {
                Ok(Managed::Done) => self.operator.on_done(order.group, &order.manage),
                Ok(Managed::Refused(_) | Managed::UnderWay(_) | Managed::Roster { .. }) => {}
                Err(error) => self.fail("reply", format!("an operator's reply cannot be read: {error}")),
            }
        }
        true
    }

    /// The operator has waited long enough.
    pub(super) fn forget(&mut self, id: RequestId) {
        let Some(order) = self.operator.waiting.remove(&id) else { return };
        let host = &self.hosts[order.host];
        let ran = host.frozen_until + SECOND / 2 < self.now && host.epoch == order.epoch;
        if ran && order.deadline + SECOND <= self.now {
            self.fail("deadline", format!("the operator's {:x} was not answered by its deadline", id.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: std::ops::Range<u64>) -> NodeSet {
        ids.filter_map(NodeId::new).collect()
    }

    #[test]
    fn changes_make_sense_to_whom_the_operator_knows() {
        let mut random = Random::new(1);
        let mut operator = Operator::new(set(1..4), set(1..6), 1);
        let (mut sizes, mut several, mut idle) = ([0; 6], 0, 0);
        for _ in 0..2000 {
            let change = operator.change(GroupId::FIRST, &mut random);
            assert_eq!(Manage::from_bytes(change.to_bytes()).unwrap(), change);
            if change == Manage::CancelChange {
                continue;
            }
            let Manage::Change { voters, learners, remove } = &change else { panic!("{change:?}") };
            assert!(voters.keys().all(|node| !learners.contains_key(node) && !remove.contains(*node)));
            assert!(learners.keys().all(|node| !remove.contains(*node)));
            let named = voters.len() + learners.len() + remove.len();
            several += u64::from(named > 2);
            idle += u64::from(named == 0);
            operator.on_done(GroupId::FIRST, &change);
            let Believed { voters, learners } = operator.of(GroupId::FIRST);
            assert!(!voters.is_empty(), "{change:?}");
            assert!(voters.intersection(learners).is_empty());
            sizes[voters.len()] += 1;
        }
        assert!(sizes[1..].iter().all(|times| *times > 50), "{sizes:?}");
        assert!(several > 100 && idle < 500, "{several} {idle}");
    }
}
