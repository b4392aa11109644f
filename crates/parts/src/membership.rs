//! Who is in a group, and how that changes while it runs: **joint consensus** (Ongaro and Ousterhout, *In Search of an
//! Understandable Consensus Algorithm*, §6; Ongaro's thesis §4.3).
//!
//! A group goes from one set of voters to another through a *joint* configuration, in which every decision and every
//! election needs a majority of both. New voters are learners until they have caught up. There is one change at a
//! time: a configuration is proposed only when the one before it is decided.
//!
//! A protocol writes configurations into its log, as entries that stand alone ([`crate::batch`]), and decides when
//! one is in force: Raft as soon as it is in the log, the MultiPaxos family when it is executed.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_core::{Group, Manage, Managed, Member, Members, NodeId, NodeSet, mutation, wire_struct};

use crate::clients::PendingRead;
use crate::quorum::{Tally, majority_reached};

/// Who counts, who listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// A majority of these decides.
    pub voters: NodeSet,
    /// While the group changes: a majority of these must agree too. Else empty.
    pub outgoing: NodeSet,
    /// Get the log and do not count.
    pub learners: NodeSet,
    /// Where they are, as far as it was said; others are where the operator said at start-up.
    pub addresses: BTreeMap<NodeId, String>,
}
wire_struct!(Configuration { voters, outgoing, learners, addresses });

impl Configuration {
    /// Of a group that is set up; empty for a replica that joins one.
    pub fn initial(group: &Group) -> Configuration {
        let voters = if group.joining { NodeSet::EMPTY } else { group.members };
        Configuration { voters, ..Configuration::default() }
    }

    /// Everybody who gets the log.
    pub fn all(&self) -> NodeSet {
        self.voters.union(self.outgoing).union(self.learners)
    }

    /// Whether this replica's vote counts.
    pub fn votes(&self, node: NodeId) -> bool {
        self.voters.union(self.outgoing).contains(node)
    }

    /// Whether the group is between two sets of voters.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// What a replica that does not lead or stand is, in a word.
    pub fn standing(&self, node: NodeId) -> &'static str {
        match self {
            _ if self.votes(node) => "follower",
            _ if self.learners.contains(node) => "learner",
            _ if self.voters.is_empty() => "joining",
            _ => "removed",
        }
    }

    /// Whether it decides alone.
    pub fn is_alone(&self, node: NodeId) -> bool {
        self.voters.len() == 1 && !self.is_joint() && self.voters.contains(node)
    }

    /// To count votes under it.
    pub fn tally(&self) -> Tally {
        Tally::joint(self.voters, self.outgoing)
    }

    /// The largest value that a majority has reached (of both sets, while there are two).
    pub fn reached<T: Ord + Copy>(&self, value: impl Fn(NodeId) -> Option<T>) -> Option<T> {
        let of = |set: NodeSet| majority_reached(set.iter().map(&value));
        match (self.voters.is_empty(), self.outgoing.is_empty()) {
            (true, _) => None,
            (false, true) => of(self.voters),
            (false, false) => of(self.voters).min(of(self.outgoing)),
        }
    }

    /// For drivers and proxies. `version` is the index at which it is written.
    pub fn members(&self, version: u64) -> Members {
        let member = |node| {
            let address = self.addresses.get(&node).cloned().unwrap_or_default();
            (node, Member { address, voter: self.votes(node) })
        };
        Members { version, nodes: self.all().iter().map(member).collect() }
    }

    /// The same, with the addresses that the operator gave at start-up where it knows none.
    pub fn located(mut self, group: &Group) -> Configuration {
        for node in self.all().iter() {
            if let Some(address) = group.addresses.get(&node) {
                self.addresses.entry(node).or_insert_with(|| address.clone());
            }
        }
        self
    }

    /// Who is to lead next: the voter asked for, or whoever is furthest of those that are near, given how far they are.
    pub fn heir(
        &self,
        to: Option<NodeId>,
        near: impl IntoIterator<Item = (NodeId, u64)>,
    ) -> Result<NodeId, Managed> {
        if let Some(node) = to.filter(|node| !self.voters.contains(*node)) {
            return Err(refused(format!("node {node} is no voter")));
        }
        let fits = |(node, _): &(NodeId, u64)| self.voters.contains(*node) && to.is_none_or(|to| to == *node);
        let heirs = near.into_iter().filter(fits);
        let heir = heirs.max_by_key(|(node, reached)| (*reached, std::cmp::Reverse(*node)));
        heir.map(|(node, _)| node).ok_or_else(|| refused("nobody is there to take over"))
    }

    /// What follows a joint configuration.
    fn settled(&self) -> Configuration {
        let mut next = Configuration { outgoing: NodeSet::EMPTY, ..self.clone() };
        let all = next.all();
        next.addresses.retain(|node, _| all.contains(*node));
        next
    }
}

/// Why most protocols refuse to talk about rosters.
pub const NO_ROSTER: &str = "in this protocol the leader alone serves reads; there is no roster";

/// An operator's request is refused, and why.
pub fn refused(why: impl Into<String>) -> Managed {
    Managed::Refused(why.into().into_bytes().into())
}

/// What an operator has asked for, in terms of the group as it is to be.
#[derive(Debug)]
struct Job {
    voters: BTreeMap<NodeId, String>,
    learners: BTreeMap<NodeId, String>,
    remove: NodeSet,
    waiting: Vec<PendingRead>,
    command: Bytes,
}

impl Job {
    /// The group that it is to lead to, from this one.
    fn target(&self, from: &Configuration) -> Configuration {
        let mut target = Configuration { outgoing: NodeSet::EMPTY, ..from.clone() };
        for node in self.voters.keys().chain(self.learners.keys()).copied().chain(self.remove.iter()) {
            target.voters.remove(node);
            target.learners.remove(node);
        }
        target.voters = target.voters.union(self.voters.keys().copied().collect());
        target.learners = target.learners.union(self.learners.keys().copied().collect());
        self.name(&mut target);
        target
    }

    fn name(&self, configuration: &mut Configuration) {
        for (node, address) in self.voters.iter().chain(&self.learners) {
            if !address.is_empty() {
                configuration.addresses.insert(*node, address.clone());
            }
        }
        let all = configuration.all();
        configuration.addresses.retain(|node, _| all.contains(*node));
    }
}

/// The leader's side of a change. Volatile: operators ask again, and a new leader finishes a joint configuration that
/// it finds in its log.
#[derive(Debug, Default)]
pub struct Steward {
    job: Option<Job>,
}

impl Steward {
    /// An operator asks for a change. Answers at once if nothing is to be done or it cannot be.
    pub fn ask(
        &mut self,
        request: PendingRead,
        change: Manage,
        current: &Configuration,
    ) -> Option<(PendingRead, Managed)> {
        let refuse = |request, why: String| Some((request, refused(why)));
        let Manage::Change { voters, learners, remove } = change else {
            return refuse(request, "this is no change of the group".to_owned());
        };
        if let Some(job) = &mut self.job {
            if job.command == request.command {
                job.waiting.retain(|known| {
                    (known.proxy, known.nonce, known.id) != (request.proxy, request.nonce, request.id)
                });
                job.waiting.push(request);
                return None;
            }
            return refuse(request, "another change of the group is under way".to_owned());
        }
        if let Err(why) = validate(&voters, &learners, remove, current) {
            return refuse(request, why);
        }
        let job = Job { voters, learners, remove, command: request.command.clone(), waiting: Vec::new() };
        if job.target(current).voters.is_empty() {
            return refuse(request, "no voter would be left".to_owned());
        }
        if !current.is_joint() && job.target(current) == *current {
            return Some((request, Managed::Done));
        }
        self.job = Some(Job { waiting: vec![request], ..job });
        None
    }

    /// The configuration to write next, if it is time for one. `settled`: the present one is decided, and the leader
    /// has decided something of its own. `near` tells whether a learner has caught up.
    pub fn next(
        &self,
        current: &Configuration,
        settled: bool,
        near: impl Fn(NodeId) -> bool,
    ) -> Option<Configuration> {
        if !settled && !mutation::active("membership/two-in-flight") {
            return None;
        }
        if current.is_joint() {
            return Some(current.settled());
        }
        let job = self.job.as_ref()?;
        let target = job.target(current);
        if target == *current {
            return None;
        }
        let fresh = target.voters.iter().filter(|node| !current.all().contains(*node));
        let fresh: NodeSet = fresh.collect();
        if !fresh.is_empty() && !current.voters.is_empty() {
            let mut next = Configuration { learners: current.learners.union(fresh), ..current.clone() };
            job.name(&mut next);
            return Some(next);
        }
        if target.voters == current.voters {
            return Some(target);
        }
        let rising = target.voters.iter().filter(|node| !current.voters.contains(*node));
        if !rising.clone().all(near) {
            return None;
        }
        let mut joint = Configuration { outgoing: current.voters, ..target };
        joint.addresses.extend(current.addresses.iter().map(|(node, at)| (*node, at.clone())));
        job.name(&mut joint);
        Some(joint)
    }

    /// The present configuration is decided: whoever waited for it can be answered.
    pub fn on_settled(&mut self, current: &Configuration) -> Vec<PendingRead> {
        match &self.job {
            Some(job) if !current.is_joint() && job.target(current) == *current => {
                self.job.take().map_or(Vec::new(), |job| job.waiting)
            }
            _ => Vec::new(),
        }
    }

    /// Whether something is to be done.
    pub fn is_busy(&self) -> bool {
        self.job.is_some()
    }
}

fn validate(
    voters: &BTreeMap<NodeId, String>,
    learners: &BTreeMap<NodeId, String>,
    remove: NodeSet,
    current: &Configuration,
) -> Result<(), String> {
    for node in voters.keys().chain(learners.keys()) {
        if remove.contains(*node) || (voters.contains_key(node) && learners.contains_key(node)) {
            return Err(format!("node {node} is named twice"));
        }
    }
    match voters.len() + learners.len() + current.all().len() > usize::from(NodeId::MAX) {
        true => Err("the group would be too large".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> NodeSet {
        text.chars().filter_map(|c| NodeId::new(c.to_digit(10)?.into())).collect()
    }

    fn show(configuration: &Configuration) -> String {
        let ids = |set: NodeSet| set.iter().map(|node| node.to_string()).collect::<String>();
        let Configuration { voters, outgoing, learners, .. } = configuration;
        format!("{}/{}/{}", ids(*voters), ids(*outgoing), ids(*learners))
    }

    fn read(text: &str) -> Configuration {
        let mut parts = text.split('/').map(set);
        let mut part = || parts.next().unwrap_or_default();
        Configuration { voters: part(), outgoing: part(), learners: part(), addresses: BTreeMap::new() }
    }

    fn request(id: u64) -> PendingRead {
        let command = Bytes::from(id.to_string());
        PendingRead { proxy: quorate_core::ProxyId(1).into(), nonce: 1, id, command }
    }

    /// from | voters to add, learners to add, to remove | the configurations written, as voters/outgoing/learners
    const TABLE: &str = "
        123//   | 4 - -   | 123//4 1234/123/ 1234//
        123//   | 45 - -  | 123//45 12345/123/ 12345//
        12345// | - - 123 | 45/12345/ 45//
        123//   | 4 - 1   | 123//4 234/123/ 234//
        123//4  | 4 - -   | 1234/123/ 1234//
        123//   | - 4 -   | 123//4
        123//   | - 3 -   | 12/123/3 12//3
        123//4  | - - 4   | 123//
        123//   | 3 - 4   |
        12/123/ | - - -   | 12//
    ";

    #[test]
    fn a_change_goes_through_learners_and_a_joint_configuration() {
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let mut current = read(columns[0]);
            let words: Vec<_> = columns[1].split_whitespace().collect();
            let named = |word: &str| set(word).iter().map(|node| (node, format!("host:{node}"))).collect();
            let mut steward = Steward::default();
            let change =
                Manage::Change { voters: named(words[0]), learners: named(words[1]), remove: set(words[2]) };
            current.addresses = current.all().iter().map(|node| (node, format!("host:{node}"))).collect();
            let asked = steward.ask(request(1), change, &current);
            let mut seen = Vec::new();
            assert_eq!(steward.next(&current, false, |_| true), None, "{line}: two in flight");
            while let Some(next) = steward.next(&current, true, |_| true) {
                seen.push(show(&next));
                current = next;
                assert!(seen.len() < 5, "{line}: {seen:?}");
            }
            assert_eq!(seen.join(" "), columns[2], "{line}");
            let answered = steward.on_settled(&current).len() + usize::from(asked.is_some());
            assert_eq!(answered, 1, "{line}: {asked:?}");
            assert!(current.addresses.len() == current.all().len(), "{line}: {current:?}");
        }
    }

    #[test]
    fn learners_are_waited_for() {
        let current = read("123//");
        let mut steward = Steward::default();
        let voters = BTreeMap::from([(NodeId::new(4).unwrap(), "a:1".to_owned())]);
        let change = Manage::Change { voters, learners: BTreeMap::new(), remove: NodeSet::EMPTY };
        assert!(steward.ask(request(1), change.clone(), &current).is_none());
        let learning = steward.next(&current, true, |_| false).unwrap();
        assert_eq!(steward.next(&learning, true, |_| false), None);
        assert_eq!(
            steward.next(&learning, true, |_| true).map(|next| show(&next)),
            Some("1234/123/".to_owned())
        );
        let refused = steward.ask(request(2), change.clone(), &learning).unwrap();
        assert!(matches!(refused.1, Managed::Refused(_)), "one change at a time");
        assert!(steward.ask(request(1), change, &learning).is_none(), "asking again is no other change");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let none = BTreeMap::new;
        let one = |id| BTreeMap::from([(NodeId::new(id).unwrap(), "a:1".to_owned())]);
        for (voters, learners, remove) in
            [(one(1), none(), set("1")), (one(4), one(4), set("")), (none(), none(), set("123"))]
        {
            let change = Manage::Change { voters, learners, remove };
            let answer = Steward::default().ask(request(1), change, &read("123//")).unwrap();
            assert!(matches!(answer.1, Managed::Refused(_)));
        }
    }
}
