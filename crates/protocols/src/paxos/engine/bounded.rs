//! Reads that may miss something (Bodega §7): answered from the own state wherever that is known to miss no more, by
//! its age ([`freshness`](crate::paxos::engine::freshness)) or by what the policy knows of the writes that are under
//! way. Others are read as any read is.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::clients::{Ask, PendingRead};
use quorate_core::{Context, NodeId, ProcessId, Staleness, Time, mutation};

use super::Message;
use super::policy::Policy;
use super::replica::{Replica, Role};
use crate::paxos::engine::freshness;

/// By their ids.
type Bounds = BTreeMap<u64, Staleness>;

impl<P: Policy> Replica<P> {
    /// Answers those that it can; the others are left among the reads, as are their bounds, which it gives.
    pub(super) fn answer_bounded(&mut self, from: ProcessId, ask: &mut Ask, now: Time) -> Bounds {
        let bounds: Bounds = std::mem::take(&mut ask.bounds).into_iter().collect();
        // The leader's reads miss nothing.
        if matches!(self.role, Role::Leader(_)) || bounds.is_empty() {
            return Bounds::new();
        }
        for (id, command) in std::mem::take(&mut ask.reads) {
            if !self.intake.has_room() {
                // Too much is on its way out: its proxy asks again.
                continue;
            }
            match bounds.get(&id).and_then(|bound| self.bounded_reply(*bound, &command, now)) {
                Some(reply) => {
                    self.served.bounded.add(1);
                    let read = PendingRead { proxy: from, nonce: ask.nonce, id, command };
                    self.intake.on_read(read, reply);
                }
                None => ask.reads.push((id, command)),
            }
        }
        bounds
    }

    /// Those that nobody has answered or held here are for the leader.
    pub(super) fn refuse_bounded(&mut self, from: ProcessId, ask: &mut Ask, bounds: &Bounds, now: Time) {
        if bounds.is_empty() {
            return;
        }
        let (left, others) =
            std::mem::take(&mut ask.reads).into_iter().partition(|(id, _)| bounds.contains_key(id));
        ask.reads = others;
        let left: Vec<_> = left.into_iter().map(|(id, _)| id).collect();
        self.served.refused.add(left.len());
        let leader = self.leader(now);
        self.intake.refuse(from, ask.nonce, left, leader);
    }

    fn bounded_reply(&mut self, bound: Staleness, command: &Bytes, now: Time) -> Option<Bytes> {
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
