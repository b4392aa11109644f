//! Reads that may miss something (Bodega §7): answered from the own state wherever that is known to miss no more, by
//! its age ([`freshness`]) or by what the policy knows of the writes that are under
//! way. Others are read as any read is.

use bytes::Bytes;
use quorate_core::{Context, NodeId, Payload, Staleness, Time, mutation};

use super::Message;
use super::policy::Policy;
use super::replica::Replica;
use crate::paxos::engine::freshness;

impl<P: Policy> Replica<P> {
    /// The reply, if this state is known to miss no more than that.
    pub(super) fn bounded_reply(&mut self, bound: Staleness, command: &Bytes, now: Time) -> Option<Payload> {
        let fits = match bound {
            Staleness::Age(limit) => self
                .freshness
                .since()
                .is_some_and(|since| freshness::at_most(now.since(since), &self.config.lease) <= limit),
            Staleness::Versions(most) => {
                P::missing(self, command, now).is_some_and(|missing| missing <= most)
            }
        };
        // Keys that a clock has a say in are the leader's.
        if fits { self.state.read_lasting(command) } else { None }
    }

    /// The leader is heard.
    pub(super) fn ask_freshness(&mut self, leader: NodeId, cx: &mut Context<'_, Self>) {
        if let Some(message) = self.freshness.on_heartbeat(cx.now()) {
            cx.send(leader, Message::Freshness(message));
        }
    }

    pub(super) fn on_freshness(
        &mut self,
        from: NodeId,
        message: freshness::Message,
        cx: &mut Context<'_, Self>,
    ) {
        let now = cx.now();
        match message {
            freshness::Message::When { token } => {
                // Nobody else leads at this moment, and whatever was chosen before this ballot is executed here.
                let alone = self.may_read_locally(now) || mutation::active("freshness/without-a-lease");
                if let Some(slot) = self.last_proposed().filter(|_| alone) {
                    let slot = slot.max(self.log.committed());
                    cx.send(from, Message::Freshness(freshness::Message::Then { token, slot }));
                }
            }
            freshness::Message::Then { token, slot } => {
                self.freshness.on_told(token, slot, self.state.applied(), now);
            }
        }
    }
}
