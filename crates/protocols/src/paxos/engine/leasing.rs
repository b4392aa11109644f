//! Leases: whoever the policy names is promised that no other ballot will be; by default the leader. A leader that
//! believes a majority of such promises (its own included) answers reads alone. The primitive is `lease.rs`.

use std::time::Duration;

use quorate_blocks::leases::{Changed, lease};
use quorate_core::{Context, Fact, NodeId, NodeSet, Time, mutation};

use super::Reads;
use super::policy::Policy;
use super::replica::{Replica, Role, Timer};

impl<P: Policy> Replica<P> {
    /// **The read rule.** A local read is linearizable if this is the leader of the promised ballot, has executed
    /// whatever an earlier ballot may have chosen, and nobody can have been elected since: a majority still
    /// promises.
    pub(super) fn may_read_locally(&self, now: Time) -> bool {
        self.takes_requests() && self.believed_until(now).is_some_and(|until| now < until)
    }

    /// Until when a majority's promises are believed.
    pub fn believed_until(&self, now: Time) -> Option<Time> {
        let current = self.holds() && self.config.reads == Reads::Lease;
        self.leases.held(&self.configuration.1, now).filter(|_| current)
    }

    /// Whether it takes leases.
    fn holds(&self) -> bool {
        P::holds(self) && (!self.draining || mutation::active("leases/given-back-and-believed"))
    }

    /// Another's promise, if it is believed: the granting and its safety threshold.
    pub fn promised_by(&self, node: NodeId, now: Time) -> Option<(u64, u64)> {
        self.leases.held_from(node, now)
    }

    /// The granting that another is promised by, or about to be.
    pub fn promised_to(&mut self, node: NodeId, now: Time) -> Option<u64> {
        self.leases.granting(node, now)
    }

    /// As a follower: whether a majority promises that no other ballot is in use, and everything is executed that an
    /// earlier one may have chosen: the state, and the writes that this replica has accepted, are all there is. (Bodega
    /// §3.3.1, the *stable condition*.)
    pub fn is_stable(&self, now: Time) -> bool {
        let follows = matches!(self.role, Role::Follower | Role::Polling(_));
        let safety_threshold = self
            .leases
            .safety_threshold(&self.configuration.1, self.safety_threshold, now)
            .filter(|_| follows);
        self.believed_until(now).is_some()
            && safety_threshold.is_some_and(|safety_threshold| self.state.applied() >= safety_threshold)
    }

    /// Whether everything that phase 1 found is executed: from then on requests are taken.
    pub(super) fn takes_requests(&self) -> bool {
        match &self.role {
            Role::Leader(leading) => {
                self.state.applied() >= leading.recovered || mutation::active("paxos/read-before-recovery")
            }
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => false,
        }
    }

    /// Starts, renews or repeats promises, while the leader of the promised ballot is heard.
    pub(super) fn tend_leases(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let Some(grantees) = self.deserving(now) else { return };
        let messages = self.leases.grant(grantees, self.accepted(), now);
        self.leases.say(messages, cx);
        if !grantees.is_empty() {
            cx.set_timer(Timer::Lease, self.config.lease.renewal());
        }
    }

    /// To whom promises are made; `None`: they are not tended.
    fn deserving(&mut self, now: Time) -> Option<NodeSet> {
        let leads = matches!(self.role, Role::Leader(_));
        // A leader that has fallen silent would only be waited for longer.
        let heard = leads || self.monitor.heard_within(self.config.timeouts.heartbeat * 5 / 2, now);
        let votes = self.configuration.1.votes(self.me);
        if self.config.reads != Reads::Lease || !votes {
            return None;
        }
        let grantees = P::grantees(self).without(self.me);
        if self.is_current() {
            return heard.then_some(grantees);
        }
        // As long as it waits for the end of a promise to one that is silent, the others keep theirs.
        let live = self.live(now);
        self.leases.bound(live, now).map(|_| grantees.intersection(live))
    }

    /// The safety threshold of a promise that is made now.
    fn accepted(&self) -> u64 {
        match mutation::active("paxos/threshold-at-the-first-hole") {
            true => (self.log.committed()..).find(|slot| self.log.get(slot + 1).is_none()).unwrap_or(0),
            // Not up to the first hole: behind it, what an earlier ballot had chosen may have been accepted.
            false => self.log.last(),
        }
    }

    /// A ballot has been promised: asks for the leases that it brings, without waiting to be offered them.
    pub(super) fn ask_for_leases(&mut self, cx: &mut Context<'_, Self>) {
        if self.config.reads == Reads::Lease && self.holds() {
            self.leases.ready(self.configuration.1.all(), cx);
        }
    }

    /// Wants to be free of any promise; if one still binds, asks for it back and tells until when. Those who are silent
    /// will not give theirs back: it waits for the end of these first, so that the others may go on meanwhile.
    pub(super) fn release_leases(&mut self, cx: &mut Context<'_, Self>) -> Option<Time> {
        let now = cx.now();
        let live = self.live(now);
        let (messages, bound) = self.leases.release(|node| !live.contains(node), now);
        self.leases.say(messages, cx);
        if bound.is_some() {
            return bound;
        }
        let (messages, bound) = self.leases.release(|_| true, now);
        self.leases.say(messages, cx);
        // The others leave too: what they would ask for half a round trip later is given back now.
        self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        self.leases.give_back(cx);
        bound
    }

    /// Takes promises to these back. Until when the last of them binds, if one does.
    pub fn withdraw(&mut self, nodes: NodeSet, cx: &mut Context<'_, Self>) -> Option<Time> {
        let now = cx.now();
        let (messages, bound) = self.leases.release(|node| nodes.contains(node), now);
        self.leases.say(messages, cx);
        bound.filter(|_| !nodes.is_empty())
    }

    pub(super) fn on_lease(&mut self, from: NodeId, message: &lease::Message, cx: &mut Context<'_, Self>) {
        let deserves = self.is_current() && self.deserving(cx.now()).is_some_and(|to| to.contains(from));
        let deserves = deserves.then(|| self.accepted());
        match self.leases.on_message(from, message, (self.holds(), deserves), cx) {
            Changed::Nothing => {}
            Changed::Belief => {
                self.note_reads(cx);
                P::on_leases(self, cx);
            }
            Changed::Promise => cx.set_timer(Timer::Lease, self.config.lease.renewal()),
            Changed::Freed => {
                self.adopt(cx);
                P::on_leases(self, cx);
            }
        }
    }

    /// States until when reads are answered from the own state, if that has changed.
    pub fn note_reads(&mut self, cx: &mut Context<'_, Self>) {
        let (now, number) = (cx.now(), self.promised.number());
        let serves = match &self.role {
            Role::Leader(_) => self.takes_requests(),
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => self.is_stable(now),
        };
        let until = self.believed_until(now).filter(|_| serves);
        if self.reads_until != until {
            self.reads_until = until;
            cx.note(|| Fact::ReadsLocally { number, until: until.unwrap_or(now) });
        }
    }

    /// Whether another replica has spoken in the last while.
    pub fn has_heard(&self, node: NodeId, limit: Duration, now: Time) -> bool {
        node == self.me || self.heard.0.get(&node).is_some_and(|at| now.since(*at) < limit)
    }

    /// Those that have spoken lately.
    fn live(&self, now: Time) -> NodeSet {
        let limit = self.config.timeouts.election;
        self.heard.0.keys().copied().filter(|node| self.has_heard(*node, limit, now)).collect()
    }
}
