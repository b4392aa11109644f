//! Own batches on their way to others. Where there is much of them, what was not answered yet is not lost: it is behind
//! others on a link that is full (`blocks/pace.rs`).
//!
//! While a peer is silent, its answers do not come either. A connection that is cut keeps what was sent, and a copy of
//! large batches would come behind them and take as long again. So the wait for them stands still after
//! [`SILENT`] heartbeats of silence, and goes on when the peer is heard again.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quorate_blocks::instance::Instance;
use quorate_blocks::pace::InFlight;
use quorate_core::{NodeId, NodeSet, Time, mutation};

use crate::epaxos::graph::{LARGE_BATCH, RETRANSMIT};

/// A peer of which no heartbeat has come for so many is silent.
const SILENT: u32 = 5;

/// See the file comment. What is said of instances of others is not counted.
#[derive(Debug)]
pub struct BatchesInFlight {
    me: NodeId,
    /// A peer of which nothing has come for this long is silent.
    silent: Duration,
    peers: BTreeMap<NodeId, Peer>,
}

struct Peer {
    batches: InFlight,
    /// When a heartbeat has come last, or the first batch was sent.
    heard: Time,
}

/// Without `heard`, on which nothing depends while all is small: states that differ in no more are the same to the
/// explorer.
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.batches.fmt(f)
    }
}

impl Peer {
    fn is_late(&self, instance: Instance, silent: Duration, now: Time) -> bool {
        let until = if mutation::active("epaxos/sends-to-the-silent") { now } else { self.heard + silent };
        self.batches.is_late(instance.index(), now.min(until))
    }
}

impl BatchesInFlight {
    /// Nothing is on its way; heartbeats come this often.
    pub fn new(me: NodeId, heartbeat: Duration) -> BatchesInFlight {
        BatchesInFlight { me, silent: SILENT * heartbeat, peers: BTreeMap::new() }
    }

    /// A heartbeat has come.
    pub fn on_heard(&mut self, from: NodeId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&from) {
            let since = peer.heard + self.silent;
            if now > since && !mutation::active("epaxos/sends-to-the-silent") {
                peer.batches.on_silence(since, now);
            }
            peer.heard = now;
        }
    }

    /// The batch of an instance leaves, of so many bytes.
    pub fn on_sent(&mut self, to: NodeSet, instance: Instance, bytes: usize, now: Time) {
        if instance.owner() == self.me {
            for node in to.iter() {
                let new = || Peer { batches: InFlight::new(RETRANSMIT), heard: now };
                let peer = self.peers.entry(node).or_insert_with(new);
                peer.batches.on_sent(instance.index(), bytes, now);
            }
        }
    }

    /// Somebody has an instance's batch.
    pub fn on_answer(&mut self, from: NodeId, instance: Instance, now: Time) {
        if let Some(peer) = self.peers.get_mut(&from).filter(|_| instance.owner() == self.me) {
            peer.batches.on_answer(instance.index()..=instance.index(), now);
        }
    }

    /// To whom of these an own batch is on its way, and not late.
    pub fn under_way_to(&self, nodes: NodeSet, instance: Instance, now: Time) -> NodeSet {
        let is_late =
            |node| self.peers.get(&node).is_none_or(|peer| peer.is_late(instance, self.silent, now));
        nodes.iter().filter(|node| instance.owner() == self.me && !is_late(*node)).collect()
    }

    /// Whether much is on its way to one of these.
    pub fn are_full(&self, nodes: NodeSet, now: Time) -> bool {
        let mut peers = nodes.iter().filter_map(|node| self.peers.get(&node));
        peers.any(|peer| peer.batches.under_way(now) >= LARGE_BATCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until when, in tenths of a second, one of so many bytes that is sent at once passes for being under way to a
    /// peer that sends a heartbeat at these tenths.
    fn under_way_until(bytes: usize, heard: &[u32]) -> u32 {
        let node = |id| NodeId::new(id).expect("an id");
        let at = |tenths: u32| Time::ZERO + tenths * Duration::from_millis(100);
        let mut batches = BatchesInFlight::new(node(1), Duration::from_millis(100));
        let (peer, instance) = (NodeSet::from_iter([node(2)]), Instance::new(node(1), 1));
        batches.on_sent(peer, instance, bytes, at(0));
        let is_late = |tenths: &u32| {
            if heard.contains(tenths) {
                batches.on_heard(node(2), at(*tenths));
            }
            batches.under_way_to(peer, instance, at(*tenths)).is_empty()
        };
        (0..100).find(is_late).expect("it is late in the end")
    }

    #[test]
    fn the_wait_for_a_large_batch_stands_still_while_its_receiver_is_silent() {
        let always: Vec<_> = (0..100).collect();
        // 2 MB take a second at the rate that is assumed, and are waited for twice as long.
        assert_eq!(under_way_until(2_000_000, &always), 20);
        // Five tenths of the silence of 25 count.
        let cut: Vec<_> = (0..=10).chain(35..100).collect();
        assert_eq!(under_way_until(2_000_000, &cut), 40);
        // However seldom a peer is heard, the wait ends.
        assert!(under_way_until(2_000_000, &[9, 18, 27, 36, 45, 54]) < 50);
        assert_eq!(under_way_until(9, &cut), 0, "what is small is sent again");
    }
}
