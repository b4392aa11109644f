//! Leader leases: every follower promises the leader of its ballot not to promise another, and a leader that
//! believes a majority of such promises (its own included) answers reads alone. The primitive is `parts/lease.rs`.

use quorate_core::{Context, Fact, NodeId, Time, mutation};
use quorate_parts::lease;

use super::replica::{Replica, Role, Timer};
use super::{Message, Reads};

impl Replica {
    /// **The read rule.** A local read is linearizable if this is the leader of the promised ballot, has executed
    /// whatever an earlier ballot may have chosen, and nobody can have been elected since: a majority still
    /// promises.
    pub(super) fn may_read_locally(&self, now: Time) -> bool {
        self.takes_requests() && self.believed_until(now).is_some_and(|until| now < until)
    }

    /// Until when a majority's promises are believed.
    fn believed_until(&self, now: Time) -> Option<Time> {
        let Role::Leader(leading) = &self.role else { return None };
        if self.config.reads == Reads::Log {
            return None;
        }
        self.configuration.1.reached(|node| match node == self.me {
            true => Some(Time::from_nanos(u64::MAX)),
            false => leading.beliefs.get(&node).and_then(|grantee| grantee.believed(now)),
        })
    }

    /// Whether everything that phase 1 found is executed: from then on requests are taken.
    pub(super) fn takes_requests(&self) -> bool {
        match &self.role {
            Role::Leader(leading) => {
                let early = mutation::active("multipaxos/read-before-recovery") && leading.found.is_empty();
                self.state.applied() >= leading.recovered || early
            }
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => false,
        }
    }

    /// As a follower: starts, renews or repeats the promise to the leader of the promised ballot, while it is heard.
    pub(super) fn tend_lease(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let following = matches!(self.role, Role::Follower) && self.wanted <= self.promised;
        let Some(leader) = self.promised.node().filter(|leader| following && *leader != self.me) else {
            return;
        };
        if self.config.reads == Reads::Log || !self.configuration.1.votes(self.me) {
            return;
        }
        // A leader that has fallen silent would only be waited for longer.
        if self.watch.heard_within(self.config.pace.heartbeat * 5 / 2, now) {
            if let Some(message) = self.grantor.tend(self.promised.number(), now) {
                self.grantee = Some(leader);
                cx.send(leader, Message::Lease(message));
                self.note_promise(cx);
            }
            cx.set_timer(Timer::Lease, self.config.terms.renewal());
        }
    }

    /// Wants to be free of any promise; if one still binds, asks for it back and tells until when.
    pub(super) fn release_lease(&mut self, cx: &mut Context<'_, Self>) -> Option<Time> {
        let now = cx.now();
        let revoke = self.grantor.revoke(now);
        if let (Some(message), Some(grantee)) = (revoke, self.grantee) {
            cx.send(grantee, Message::Lease(message));
        }
        self.grantor.bound(now)
    }

    pub(super) fn on_lease(&mut self, from: NodeId, message: lease::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match &message {
            lease::Message::Guard { number, .. }
            | lease::Message::Renew { number, .. }
            | lease::Message::Revoke { number, .. } => {
                if let Role::Leader(leading) = &mut self.role
                    && self.promised.number() == *number
                {
                    let grantee = leading.beliefs.entry(from).or_default();
                    let reply = grantee.on_message(&message, &self.config.terms, now);
                    if let Some(reply) = reply {
                        cx.send(from, Message::Lease(reply));
                    }
                    self.note_beliefs(from, cx);
                } else if let lease::Message::Revoke { number, guard } = message {
                    // Not its leader (any more): nothing is believed.
                    cx.send(from, Message::Lease(lease::Message::RevokeReply { number, guard }));
                }
            }
            lease::Message::GuardReply { .. }
            | lease::Message::RenewReply { .. }
            | lease::Message::RevokeReply { .. } => {
                if self.grantee != Some(from) {
                    return;
                }
                let (next, freed) = self.grantor.on_reply(&message, now);
                if let Some(next) = next {
                    cx.send(from, Message::Lease(next));
                }
                self.note_promise(cx);
                if freed {
                    self.adopt(cx);
                }
            }
        }
    }

    fn note_promise(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if let Some(to) = self.grantee {
            let number = self.promised.number();
            // What an earlier incarnation promised still binds for a while.
            let until = self.grantor.bound(now).unwrap_or(now).max(self.bound_until).max(now);
            cx.note(|| Fact::Promised { to, number, until });
        }
    }

    fn note_beliefs(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let number = self.promised.number();
        if let Role::Leader(leading) = &self.role {
            let until = leading.beliefs.get(&from).and_then(|grantee| grantee.believed(now)).unwrap_or(now);
            cx.note(|| Fact::Believes { from, number, until });
        }
        self.note_reads(cx);
    }

    /// States until when reads are answered from the own state, if that has changed.
    pub(super) fn note_reads(&mut self, cx: &mut Context<'_, Self>) {
        let (now, number) = (cx.now(), self.promised.number());
        let reads = self.believed_until(now).filter(|_| self.takes_requests());
        if let Role::Leader(leading) = &mut self.role
            && leading.reads_until != reads
        {
            leading.reads_until = reads;
            cx.note(|| Fact::ReadsLocally { number, until: reads.unwrap_or(now) });
        }
    }

    pub(super) fn note_beliefs_ended(&self, had_lease: bool, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &self.role else { return };
        let (now, number) = (cx.now(), self.promised.number());
        for &from in leading.beliefs.keys() {
            cx.note(|| Fact::Believes { from, number, until: now });
        }
        if had_lease {
            cx.note(|| Fact::ReadsLocally { number, until: now });
        }
    }
}
