//! A member whose disk was lost, until it votes again ([`quorate_blocks::rejoin`]). Its ballots are epochs, and logs
//! are compared as in elections. From the start it follows whoever leads in the last epoch that its earlier life may
//! have accepted, or in a later one, and acknowledges what it has of the leader's history: that is as true as of any
//! other follower. It accepts that epoch from nobody who proposes it.

use quorate_blocks::prefix_log::{Progress, RETRANSMIT};
use quorate_blocks::rejoin::{Standing, Step};
use quorate_core::{Context, NodeId};

use super::elections::Freshness;
use super::replica::{Replica, Role, Timer};
use super::{Message, Record};

impl Replica {
    /// Whether it follows candidates, accepts epochs that are proposed, and stands.
    pub(super) fn is_whole(&self) -> bool {
        self.standing.is_whole()
    }

    /// At a start, of a member whose disk was lost: it rejoins, unless it was recorded that it has.
    pub(super) fn start_rejoining(&mut self, cx: &mut Context<'_, Self>) {
        if self.config.group.rejoining && !self.standing.is_recorded() {
            self.standing = Standing::asking(cx.random().u64(), self.others());
            cx.set_timer(Timer::Retransmit, RETRANSMIT);
        }
    }

    /// From time to time: asks the others again, and finds out whether it is through.
    pub(super) fn go_on_rejoining(&mut self, cx: &mut Context<'_, Self>) {
        if self.is_whole() {
            return;
        }
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
        loop {
            match self.standing.go_on((self.current, self.log.executed()), false) {
                Step::Wait => return,
                Step::Ask { nodes, nonce } => return cx.send_all(nodes, Message::Rejoin { nonce }),
                // From nobody who could lead in it.
                Step::Bound(epoch) if epoch > self.accepted => self.accept(epoch, self.me, cx),
                Step::Bound(_) => {}
                Step::Record { nonce } => {
                    self.log.persist(Record::Rejoined, cx);
                    return self.tell(self.me, nonce, cx);
                }
            }
        }
    }

    /// Another member's disk was lost.
    pub(super) fn on_rejoin(&mut self, from: NodeId, nonce: u64, cx: &mut Context<'_, Self>) {
        let last = self.log.entries.last().0;
        if let Role::Leader(leading) = &mut self.role
            && let Some(peer) = leading.replication.peers.get_mut(&from)
        {
            // What it had is lost.
            *peer = Progress::new(last);
        }
        if self.standing.on_rejoin(from, || cx.random().u64()) {
            self.tell(from, nonce, cx);
        }
    }

    fn tell(&self, to: NodeId, nonce: u64, cx: &mut Context<'_, Self>) {
        let (current, (last_epoch, last_index)) = self.freshness();
        let accepted = self.accepted.max(self.refused_by);
        cx.send(to, Message::RejoinReply { nonce, accepted, current, last_epoch, last_index });
    }

    pub(super) fn on_rejoin_reply(&mut self, from: NodeId, nonce: u64, heard: (u64, Freshness)) {
        self.standing.on_reply(from, from == self.me, nonce, heard);
    }
}
