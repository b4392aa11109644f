//! What is executed in place of a write that a node refuses, for want of room: an entry of the log, or an
//! instance, without an effect. It is the same for all writes that the node refuses; what was asked for is in no
//! history.

use std::collections::BTreeMap;

use quorate_core::{NodeId, Shortage, Wire, digest};
use quorate_store::Command;

/// Refusals of all nodes, by digest.
#[derive(Clone, Debug)]
pub struct Refusals(BTreeMap<u64, Command>);

impl Default for Refusals {
    fn default() -> Self {
        let nodes = || (1..=NodeId::MAX).filter_map(|node| NodeId::new(node.into()));
        let of = |shortage| nodes().map(move |node| Command::refusal(shortage, node));
        let refusals = of(Shortage::Disk).chain(of(Shortage::Memory));
        Refusals(refusals.map(|command| (digest(&command.to_bytes()), command)).collect())
    }
}

impl Refusals {
    /// Which one has this digest.
    pub fn get(&self, digest: u64) -> Option<&Command> {
        self.0.get(&digest)
    }
}
