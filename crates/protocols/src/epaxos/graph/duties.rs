//! What a replica is at work on, instance by instance: in which ballot, whom it has asked what, who has answered. What
//! was not answered is said again; messages may be lost. `S` is how far the protocol is with it, `M` its messages.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::Instance;
use quorate_core::{NodeId, NodeSet, Time};

/// What was not answered for this long is sent again.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// Work on one instance.
#[derive(Debug)]
pub struct Duty<S, M> {
    /// The ballot of the work.
    pub ballot: Ballot,
    /// When it began.
    pub since: Time,
    /// When it last spoke.
    sent: Time,
    /// How far it is.
    pub step: S,
    message: M,
    asked: NodeSet,
    /// Those of the asked who have answered.
    pub replied: NodeSet,
}

impl<S, M: Clone> Duty<S, M> {
    /// These are asked this; it is on its way, or about to be sent.
    pub fn new(ballot: Ballot, step: S, message: M, asked: NodeSet, now: Time) -> Self {
        Duty { ballot, since: now, sent: now, step, message, asked, replied: NodeSet::EMPTY }
    }

    /// Goes on, with another question.
    pub fn turn(&mut self, step: S, message: M, asked: NodeSet) {
        (self.step, self.message, self.asked, self.replied) = (step, message, asked, NodeSet::EMPTY);
    }

    /// Somebody answers; whether that is new.
    pub fn answered(&mut self, from: NodeId) -> bool {
        self.asked.contains(from) && self.replied.insert(from)
    }

    /// Whether all who were asked have answered.
    pub fn is_answered(&self) -> bool {
        self.replied == self.asked
    }

    /// Whether it has said nothing for so long that it should say it again.
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.sent) >= RETRANSMIT
    }

    /// What to say again, and to whom.
    pub fn again(&mut self, now: Time) -> (NodeSet, M) {
        self.sent = now;
        let silent = self.asked.iter().filter(|node| !self.replied.contains(*node)).collect();
        (silent, self.message.clone())
    }
}

/// All that a replica is at work on.
#[derive(Debug)]
pub struct Duties<S, M>(BTreeMap<Instance, Duty<S, M>>);

impl<S, M> Default for Duties<S, M> {
    fn default() -> Self {
        Duties(BTreeMap::new())
    }
}

impl<S, M> Duties<S, M> {
    /// Begins, instead of what was done about this instance before.
    pub fn begin(&mut self, instance: Instance, duty: Duty<S, M>) {
        self.0.insert(instance, duty);
    }

    /// The work on an instance.
    pub fn get(&self, instance: Instance) -> Option<&Duty<S, M>> {
        self.0.get(&instance)
    }

    /// The work on an instance in this ballot.
    pub fn of(&mut self, instance: Instance, ballot: Ballot) -> Option<&mut Duty<S, M>> {
        self.0.get_mut(&instance).filter(|duty| duty.ballot == ballot)
    }

    /// Nothing is left to do.
    pub fn end(&mut self, instance: Instance) {
        self.0.remove(&instance);
    }

    /// Others are at work on this instance in a ballot; what is done here in a lower one has no prospect.
    pub fn give_up(&mut self, instance: Instance, ballot: Ballot) {
        if self.0.get(&instance).is_some_and(|duty| duty.ballot < ballot) {
            self.0.remove(&instance);
        }
    }

    /// Only these are left.
    pub fn retain(&mut self, mut stays: impl FnMut(Instance) -> bool) {
        self.0.retain(|instance, _| stays(*instance));
    }

    /// All, in the order of instances.
    pub fn iter(&self) -> impl Iterator<Item = (Instance, &Duty<S, M>)> {
        self.0.iter().map(|(instance, duty)| (*instance, duty))
    }

    /// All, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Instance, &mut Duty<S, M>)> {
        self.0.iter_mut().map(|(instance, duty)| (*instance, duty))
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
        let mut duty = Duty::new(Ballot::ZERO, (), "vote", all, Time::ZERO);
        assert!(duty.answered(node(2)) && !duty.answered(node(2)) && !duty.answered(node(4)));
        let soon = Time::ZERO + RETRANSMIT / 2;
        let late = Time::ZERO + RETRANSMIT;
        assert!(!duty.is_due(soon) && duty.is_due(late));
        assert_eq!(duty.again(late), (all.without(node(2)), "vote"));
        assert!(!duty.is_due(late + RETRANSMIT / 2), "it has just spoken");
        duty.turn((), "recover", all.without(node(1)));
        assert!(!duty.answered(node(1)) && duty.answered(node(2)) && duty.answered(node(3)));
        assert!(duty.is_answered());
    }

    #[test]
    fn work_in_a_lower_ballot_is_given_up() {
        let instance = Instance::new(node(1), 1);
        let (low, high) = (Ballot::ZERO.next(node(1)), Ballot::ZERO.next(node(2)));
        let mut duties = Duties::default();
        duties.begin(instance, Duty::new(low, (), (), NodeSet::EMPTY, Time::ZERO));
        duties.give_up(instance, low);
        assert!(duties.of(instance, low).is_some() && duties.of(instance, high).is_none());
        duties.give_up(instance, high);
        assert!(duties.get(instance).is_none());
    }
}
