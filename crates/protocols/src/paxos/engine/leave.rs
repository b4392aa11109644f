//! Replicas that are about to stop.
//!
//! Problem: writes may wait for one that reads under leases, and shards for its vote, until it is missed and its leases
//! have ended. Solution: it gives back what it was promised, takes nothing more, and tells everybody (`Leave`), again
//! with each heartbeat. To a leader that has heard it lately it is one that does not vote. It is a hint: one that goes
//! on is taken back as any other that was silent, and whoever has stopped unheard is missed. (A member of version 0.1.0
//! cannot read it, and closes the connection, which is about to be closed.)

use std::time::Duration;

use quorate_core::{Context, NodeId, Time, mutation};

use super::Message;
use super::policy::Policy;
use super::replica::{Replica, Role};

impl<P: Policy> Replica<P> {
    /// Gives back what it was promised, and says that it is about to stop.
    pub(super) fn leave(&mut self, cx: &mut Context<'_, Self>) {
        if !mutation::active("leases/given-back-and-believed") {
            self.leases.note_beliefs_ended(&mut self.reads_until, cx);
        }
        self.leases.give_back(cx);
        self.say_leave(cx);
    }

    /// Says again that it is about to stop, if it is.
    pub(super) fn say_leave(&self, cx: &mut Context<'_, Self>) {
        if self.draining {
            cx.send_all(self.configuration.1.all().without(self.me), Message::Leave);
        }
    }

    /// Another is about to stop.
    pub(super) fn on_leave(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        self.leaving.insert(from, cx.now());
        if matches!(self.role, Role::Leader(_)) {
            P::on_peer_leaving(self, cx);
        }
    }

    /// Whether another has said lately that it is about to stop. It may have been heard since, and is missed when it
    /// has been silent for `limit`: until then it counts as leaving.
    pub(super) fn is_leaving(&self, node: NodeId, limit: Duration, now: Time) -> bool {
        self.leaving.get(&node).is_some_and(|at| now.since(*at) < limit * 2)
    }
}
