//! Outstanding requests per instance: the ballot, the recipients, the replies received, and when to send again, as
//! messages may be lost. `S` is the protocol's step, `M` its messages.
//!
//! Where batches are large, so are the answers of a recovery: where they fill a link, more questions would bring more
//! of them. So the first is repeated later, and the wait is doubled with each.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::Instance;
use quorate_core::{NodeId, NodeSet, Time};

/// What was not answered for this long is sent again.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// A question of a recovery is sent again after this long at least where batches are large.
const LARGE_ANSWER: Duration = RETRANSMIT.saturating_mul(4);

/// A question of a recovery is repeated after this long at most.
const SLOWEST_RETRY: Duration = RETRANSMIT.saturating_mul(16);

/// The outstanding request of one instance.
#[derive(Debug)]
pub struct PendingQuorum<S, M> {
    /// The ballot in which it asks.
    pub ballot: Ballot,
    /// When it began.
    pub since: Time,
    /// When it last spoke.
    sent: Time,
    /// How long it is silent then.
    wait: Duration,
    /// How far it is.
    pub step: S,
    message: M,
    /// Those who durably have its large batch, and the message without it.
    brief: Option<(NodeSet, M)>,
    asked: NodeSet,
    /// Those of the asked who have answered.
    pub replied: NodeSet,
}

impl<S, M: Clone> PendingQuorum<S, M> {
    /// These are asked this; it is on its way, or about to be sent.
    pub fn new(ballot: Ballot, step: S, message: M, asked: NodeSet, now: Time) -> Self {
        let (wait, replied) = (RETRANSMIT, NodeSet::EMPTY);
        PendingQuorum { ballot, since: now, sent: now, wait, step, message, brief: None, asked, replied }
    }

    /// The same, but these durably have the large batch of the message, and are asked again by this one without it.
    pub fn without_batch_for(mut self, knowing: NodeSet, brief: M) -> Self {
        self.brief = Some((knowing, brief));
        self
    }

    /// Goes on, with another question.
    pub fn turn(&mut self, step: S, message: M, asked: NodeSet) {
        (self.step, self.message, self.asked, self.replied) = (step, message, asked, NodeSet::EMPTY);
        (self.wait, self.brief) = (RETRANSMIT, None);
    }

    /// Somebody answers; whether that is new.
    pub fn answered(&mut self, from: NodeId) -> bool {
        self.asked.contains(from) && self.replied.insert(from)
    }

    /// Whether all who were asked have answered.
    pub fn is_answered(&self) -> bool {
        self.replied == self.asked
    }

    /// Whether another than the owner proposes, or the owner once more. The first ballot is zero.
    pub fn is_recovery(&self) -> bool {
        self.ballot != Ballot::ZERO
    }

    /// Who was asked and has not answered.
    pub fn silent(&self) -> NodeSet {
        self.asked.difference(self.replied)
    }

    /// Whether it has said nothing for so long that it should say it again; whether the batch may be large.
    pub fn is_due(&self, is_large: bool, now: Time) -> bool {
        let first = if is_large && self.is_recovery() { LARGE_ANSWER } else { RETRANSMIT };
        now.since(self.sent) >= first.max(self.wait)
    }

    /// What to say again, and to whom; whether the batch may be large. Those who have that are named apart, with what
    /// they are told.
    pub fn again(&mut self, is_large: bool, now: Time) -> ((NodeSet, M), Option<(NodeSet, M)>) {
        self.sent = now;
        if is_large && self.is_recovery() {
            self.wait = SLOWEST_RETRY.min(2 * self.wait);
        }
        let (silent, message) = (self.silent(), self.message.clone());
        match &self.brief {
            None => ((silent, message), None),
            Some((knowing, brief)) => {
                let brief = (silent.intersection(*knowing), brief.clone());
                ((silent.difference(*knowing), message), Some(brief))
            }
        }
    }
}

/// All outstanding requests of a replica.
#[derive(Debug)]
pub struct PendingQuorums<S, M>(BTreeMap<Instance, PendingQuorum<S, M>>);

impl<S, M> Default for PendingQuorums<S, M> {
    fn default() -> Self {
        PendingQuorums(BTreeMap::new())
    }
}

impl<S, M> PendingQuorums<S, M> {
    /// Begins, instead of what was done about this instance before.
    pub fn begin(&mut self, instance: Instance, quorum: PendingQuorum<S, M>) {
        self.0.insert(instance, quorum);
    }

    /// The work on an instance.
    pub fn get(&self, instance: Instance) -> Option<&PendingQuorum<S, M>> {
        self.0.get(&instance)
    }

    /// The work on an instance in this ballot.
    pub fn of(&mut self, instance: Instance, ballot: Ballot) -> Option<&mut PendingQuorum<S, M>> {
        self.0.get_mut(&instance).filter(|quorum| quorum.ballot == ballot)
    }

    /// Nothing is left to do.
    pub fn end(&mut self, instance: Instance) {
        self.0.remove(&instance);
    }

    /// Others are at work on this instance in a ballot; what is done here in a lower one has no prospect.
    pub fn give_up(&mut self, instance: Instance, ballot: Ballot) {
        if self.0.get(&instance).is_some_and(|quorum| quorum.ballot < ballot) {
            self.0.remove(&instance);
        }
    }

    /// Only these are left.
    pub fn retain(&mut self, mut stays: impl FnMut(Instance) -> bool) {
        self.0.retain(|instance, _| stays(*instance));
    }

    /// All, in the order of instances.
    pub fn iter(&self) -> impl Iterator<Item = (Instance, &PendingQuorum<S, M>)> {
        self.0.iter().map(|(instance, quorum)| (*instance, quorum))
    }

    /// All, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Instance, &mut PendingQuorum<S, M>)> {
        self.0.iter_mut().map(|(instance, quorum)| (*instance, quorum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> NodeId {
        NodeId::new(id).expect("an id")
    }

    #[test]
    fn those_who_are_silent_are_asked_again() {
        let all: NodeSet = (1..=3).map(node).collect();
        let mut quorum = PendingQuorum::new(Ballot::ZERO, (), "vote", all, Time::ZERO);
        assert!(quorum.answered(node(2)) && !quorum.answered(node(2)) && !quorum.answered(node(4)));
        let soon = Time::ZERO + RETRANSMIT / 2;
        let late = Time::ZERO + RETRANSMIT;
        assert!(!quorum.is_due(true, soon) && quorum.is_due(true, late));
        assert_eq!(quorum.again(true, late), ((all.without(node(2)), "vote"), None));
        assert!(!quorum.is_due(true, late + RETRANSMIT / 2), "it has just spoken");
        quorum.turn((), "recover", all.without(node(1)));
        assert!(!quorum.answered(node(1)) && quorum.answered(node(2)) && quorum.answered(node(3)));
        assert!(quorum.is_answered());
    }

    #[test]
    fn those_who_have_the_batch_are_asked_again_without_it_until_the_question_changes() {
        let all: NodeSet = (1..=3).map(node).collect();
        let have_it = all.without(node(3));
        let quorum = PendingQuorum::new(Ballot::ZERO, (), "batch", all, Time::ZERO);
        let mut quorum = quorum.without_batch_for(have_it, "no batch");
        assert!(quorum.answered(node(1)));
        let (whole, brief) = quorum.again(true, Time::ZERO);
        assert_eq!(whole, (all.difference(have_it), "batch"));
        assert_eq!(brief, Some((have_it.without(node(1)), "no batch")));
        quorum.turn((), "recover", all);
        assert_eq!(quorum.again(true, Time::ZERO), ((all, "recover"), None));
    }

    #[test]
    fn a_recovery_of_large_batches_asks_less_and_less_often() {
        let mut quorum = PendingQuorum::new(Ballot::ZERO.next(node(1)), (), (), NodeSet::EMPTY, Time::ZERO);
        let asked = |quorum: &mut PendingQuorum<(), ()>, are_large| {
            let tenths = (0..=70).filter(|tenths| {
                let now = Time::ZERO + RETRANSMIT / 2 * *tenths;
                let is_due = quorum.is_due(are_large, now);
                is_due.then(|| quorum.again(are_large, now)).is_some()
            });
            tenths.take(6).collect::<Vec<_>>()
        };
        assert_eq!(asked(&mut quorum, true), [8, 16, 24, 40]);
        quorum.turn((), (), NodeSet::EMPTY);
        quorum.sent = Time::ZERO;
        assert_eq!(asked(&mut quorum, false), [2, 4, 6, 8, 10, 12]);
    }

    #[test]
    fn work_in_a_lower_ballot_is_given_up() {
        let instance = Instance::new(node(1), 1);
        let (low, high) = (Ballot::ZERO.next(node(1)), Ballot::ZERO.next(node(2)));
        let mut pending = PendingQuorums::default();
        pending.begin(instance, PendingQuorum::new(low, (), (), NodeSet::EMPTY, Time::ZERO));
        pending.give_up(instance, low);
        assert!(pending.of(instance, low).is_some() && pending.of(instance, high).is_none());
        pending.give_up(instance, high);
        assert!(pending.get(instance).is_none());
    }
}
