//! What is executed in place of a write that a node refuses, since its disk is nearly full: an entry of the log, or an
//! instance, without an effect. It is the same for all writes that the node refuses; what was asked for is in no
//! history.

use std::collections::BTreeMap;

use quorate_core::{NodeId, Wire, digest};
use quorate_store::Command;

/// Refusals of all nodes, by digest.
#[derive(Clone, Debug)]
pub struct Refusals(BTreeMap<u64, Command>);

impl Default for Refusals {
    fn default() -> Self {
        let refusals = (1..=NodeId::MAX).map(|node| Command::DiskFull { node: node.into() });
        Refusals(refusals.map(|command| (digest(&command.to_bytes()), command)).collect())
    }
}

impl Refusals {
    /// Which one has this digest.
    pub fn get(&self, digest: u64) -> Option<&Command> {
        self.0.get(&digest)
    }
}
