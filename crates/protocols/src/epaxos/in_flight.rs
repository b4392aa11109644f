//! Own batches on their way to others. Where there is much of them, what was not answered yet is not lost: it is behind
//! others on a link that is full (`blocks/pace.rs`).

use std::collections::BTreeMap;

use quorate_blocks::instance::Instance;
use quorate_blocks::pace::InFlight;
use quorate_core::{NodeId, NodeSet, Time};

use crate::epaxos::graph::{LARGE_BATCH, RETRANSMIT};

/// See the file comment. What is said of instances of others is not counted.
#[derive(Debug)]
pub struct BatchesInFlight {
    me: NodeId,
    peers: BTreeMap<NodeId, InFlight>,
}

impl BatchesInFlight {
    /// Nothing is on its way.
    pub fn new(me: NodeId) -> BatchesInFlight {
        BatchesInFlight { me, peers: BTreeMap::new() }
    }

    /// The batch of an instance leaves, of so many bytes.
    pub fn on_sent(&mut self, to: NodeSet, instance: Instance, bytes: usize, now: Time) {
        if instance.owner() == self.me {
            for node in to.iter() {
                let peer = self.peers.entry(node).or_insert_with(|| InFlight::new(RETRANSMIT));
                peer.on_sent(instance.index(), bytes, now);
            }
        }
    }

    /// Somebody has an instance's batch.
    pub fn on_answer(&mut self, from: NodeId, instance: Instance, now: Time) {
        if let Some(peer) = self.peers.get_mut(&from).filter(|_| instance.owner() == self.me) {
            peer.on_answer(instance.index()..=instance.index(), now);
        }
    }

    /// To whom of these an own batch is on its way, and not late.
    pub fn under_way_to(&self, nodes: NodeSet, instance: Instance, now: Time) -> NodeSet {
        let is_late = |node| self.peers.get(&node).is_none_or(|peer| peer.is_late(instance.index(), now));
        nodes.iter().filter(|node| instance.owner() == self.me && !is_late(*node)).collect()
    }

    /// Whether much is on its way to one of these.
    pub fn are_full(&self, nodes: NodeSet, now: Time) -> bool {
        let mut peers = nodes.iter().filter_map(|node| self.peers.get(&node));
        peers.any(|peer| peer.under_way(now) >= LARGE_BATCH)
    }
}
