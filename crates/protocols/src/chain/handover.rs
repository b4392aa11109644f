//! Members that leave their place before anybody misses them: one that is about to stop, and a head that is to be
//! replaced (its disk is nearly full, or an operator says so).
//!
//! A head takes no more writes, waits until another has all of its log, and tells everybody (`HandOver`): that one
//! prepares a ballot at once, and the others promise it although they have just heard a head. Any other member tells
//! the head (`Leave`), which begins an epoch without it. Both are hints: if they are lost, a member that has stopped is
//! missed as any other.

use quorate_blocks::clients::PendingRead;
use quorate_core::{Context, NodeId, Time};

use super::Message;
use super::replica::Replica;

impl Replica {
    /// As the head: what operators ask for.
    pub(super) fn manage(&mut self, cx: &mut Context<'_, Self>) {
        if !self.is_head() {
            return;
        }
        for (request, to) in self.intake.take_transfers() {
            self.hand_over(to, Some(request), cx.now());
        }
        self.hand_over_if_due(cx);
    }

    /// This member is about to stop: others are to take its place before it is missed.
    pub(super) fn leave(&mut self, cx: &mut Context<'_, Self>) {
        self.epochs.draining = true;
        if self.is_head() {
            self.hand_over(None, None, cx.now());
        } else if let Some(head) = self.head().filter(|_| self.chain.contains(&self.me)) {
            cx.send(head, Message::Leave { ballot: self.epochs.promised });
            // Nobody need wait for the end of its leases.
            self.epochs.give_leases_back(cx);
        }
    }

    /// Lets another be the head: that one, or whoever has most of the log.
    fn hand_over(&mut self, to: Option<NodeId>, waiting: Option<PendingRead>, now: Time) {
        let limit = self.config.timeouts.election;
        let Some(head) = &mut self.leading else { return };
        let near = self.epochs.members.voters.without(self.me).iter().filter_map(|node| {
            let heard = self.epochs.heard(node)?;
            (now.since(heard) < limit).then_some((node, head.durable(node)))
        });
        let near: Vec<_> = near.collect();
        head.handing.begin(&self.epochs.members, near, (to, waiting), now, &mut self.intake);
    }

    /// The other has everything, or cannot be waited for any longer.
    fn hand_over_if_due(&mut self, cx: &mut Context<'_, Self>) {
        let last = self.log.entries.last().0;
        let limit = self.config.timeouts.election;
        let Some(head) = &mut self.leading else { return };
        let Some(to) = head.handing.target() else { return };
        let linked = self.links.peers.get(&to).is_some_and(|peer| peer.matched >= last);
        let complete = linked || head.durable(to) >= last;
        if !head.handing.end_if_due(complete, limit, cx.now(), &mut self.intake) {
            return;
        }
        if complete || self.epochs.draining {
            self.make_way(to, cx);
        }
    }

    /// As the head: the other is to be the head, whatever it has.
    fn make_way(&mut self, to: NodeId, cx: &mut Context<'_, Self>) {
        let (others, leaves) = (self.epochs.members.voters.without(self.me), self.epochs.draining);
        cx.send_all(others, Message::HandOver { ballot: self.epochs.promised, to, leaves });
        self.abdicate(cx);
        self.epochs.monitor.forget();
    }

    /// As the head of a chain in which reads wait in vain. Should the next one have to do the same, it is another's
    /// turn.
    pub(super) fn make_way_for_next(&mut self, cx: &mut Context<'_, Self>) {
        let others = self.chain.iter().filter(|node| **node != self.me);
        if let Some(next) = others.min_by_key(|node| (**node < self.me, **node)) {
            self.make_way(*next, cx);
        }
    }

    /// The head of this epoch has stopped.
    pub(super) fn on_hand_over(
        &mut self,
        from: NodeId,
        to: NodeId,
        leaves: bool,
        cx: &mut Context<'_, Self>,
    ) {
        if self.epochs.promised.node() != Some(from) || from == self.me {
            return;
        }
        if leaves {
            self.epochs.leave_out([from].into_iter().collect(), cx.now());
        }
        self.epochs.monitor.forget();
        if to == self.me && !self.epochs.draining {
            self.stand(cx);
        }
    }

    /// As the head: a member of the chain is about to stop.
    pub(super) fn on_leave(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        self.epochs.leave_out([from].into_iter().collect(), cx.now());
        if let Some(head) = &mut self.leading {
            head.leaving.insert(from);
            self.review_chain(cx);
        }
    }
}
