//! Letting another lead, because an operator asks for it or this process is about to stop: the leader proposes nothing
//! more, waits until the other has all that it has proposed, and tells everybody (`HandOver`). That one stands at once.
//! Nobody is fresher, and the others follow it although they have heard the leader just now. Nothing rests on it: an
//! election is what it is without.

use quorate_blocks::clients::PendingRead;
use quorate_core::{Context, NodeId, Time};

use super::Message;
use super::replica::{Replica, Role};

impl Replica {
    /// As the leader: what operators ask for.
    pub(super) fn manage(&mut self, cx: &mut Context<'_, Self>) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        for (request, to) in self.intake.take_transfers() {
            self.hand_over(to, Some(request), cx.now());
        }
        self.hand_over_if_due(cx);
    }

    /// Begins to let this one lead, or whoever has most of the history.
    pub(super) fn hand_over(&mut self, to: Option<NodeId>, waiting: Option<PendingRead>, now: Time) {
        let Role::Leader(leading) = &mut self.role else { return };
        let near = leading.replication.heard_within(self.config.timeouts.election, now);
        let members = self.log.entries.configuration().1;
        leading.handing.begin(members, near, (to, waiting), now, &mut self.intake);
    }

    /// The other has everything, or cannot be waited for any longer.
    fn hand_over_if_due(&mut self, cx: &mut Context<'_, Self>) {
        let (epoch, last) = (self.accepted, self.log.entries.last().0);
        let (others, limit) = (self.others(), self.config.timeouts.election);
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(to) = leading.handing.target() else { return };
        let complete = leading.replication.peers.get(&to).is_some_and(|peer| peer.matched >= last);
        if !leading.handing.end_if_due(complete, limit, cx.now(), &mut self.intake) {
            return;
        }
        if complete || self.draining {
            cx.send_all(others, Message::HandOver { epoch, to });
            self.stop_leading(cx);
        }
    }

    /// The leader of the accepted epoch has stopped.
    pub(super) fn on_hand_over(&mut self, to: NodeId, cx: &mut Context<'_, Self>) {
        self.leader = None;
        self.monitor.forget();
        if to == self.me && !self.draining {
            self.elect(cx);
        }
    }
}
