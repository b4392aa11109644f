//! The leases of those who read.

use quorate_core::{Context, Fact, NodeId, NodeSet, Time, mutation};

use super::{Embeds, Epochs, Event, Evidence, Position, Timer};
use crate::leases::{Changed, lease};

impl<P: Position, K: Evidence> Epochs<P, K> {
    /// Starts, renews or repeats the promises to readers, while the owner is heard.
    pub fn tend_leases<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) {
        let now = cx.now();
        let Some(grantees) = self.grantees(now) else { return };
        let messages = self.leases.grant(grantees, 0, now);
        self.leases.say(messages, cx);
        cx.set_timer(Timer::Lease.into(), self.lease.renewal());
    }

    /// Whoever waits to promise another ballot grants nothing; nor are the readers of an owner that is silent waited
    /// for any longer.
    fn grantees(&self, now: Time) -> Option<NodeSet> {
        let may = self.eager.is_none() && self.wanted.is_none() && !self.readers.is_empty();
        let heard = self.owns() || self.monitor.heard_within(self.timeouts.heartbeat * 5 / 2, now);
        (may && heard).then(|| self.readers.without(self.me))
    }

    /// A grantor or a grantee speaks. `own`: where the own log ends.
    pub fn on_lease<M: Embeds<P, K>>(
        &mut self,
        from: NodeId,
        message: &lease::Message,
        own: P,
        cx: &mut Context<'_, M>,
    ) -> Event<K> {
        if self.eager.is_some() {
            return Event::Nothing;
        }
        let deserves = self.grantees(cx.now()).filter(|grantees| grantees.contains(from)).map(|_| 0);
        let holds = self.readers.contains(self.me);
        match self.leases.on_message(from, message, (holds, deserves), cx) {
            Changed::Nothing | Changed::Belief => Event::Nothing,
            Changed::Promise => {
                cx.set_timer(Timer::Lease.into(), self.lease.renewal());
                Event::Nothing
            }
            Changed::Freed => {
                let event = self.leave_when_free(own, cx);
                // One that was restarted is promised again.
                self.tend_leases(cx);
                event
            }
        }
    }

    /// Until when leases of a majority are believed, if they are.
    pub fn leased_until(&self, now: Time) -> Option<Time> {
        if mutation::active("epochs/reads-without-leases") {
            return Some(now + self.lease.lease);
        }
        self.leases.held(&self.members, now)
    }

    /// Tells checkers until when reads are answered from the own state, if they are.
    pub fn note_reads<M: Embeds<P, K>>(&mut self, until: Option<Time>, cx: &mut Context<'_, M>) {
        let (now, number) = (cx.now(), self.promised.number());
        if self.reads_until != until {
            self.reads_until = until;
            cx.note(|| Fact::ReadsLocally { number, until: until.unwrap_or(now) });
        }
    }

    /// Nothing that this member believes under the promised ballot is acted upon any more.
    pub fn give_leases_back<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) {
        self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        self.leases.give_back(cx);
    }
}
