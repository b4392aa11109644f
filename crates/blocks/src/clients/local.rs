//! Reads of a replica's own state, whoever leads: **sequentially consistent**, as ZooKeeper's.
//!
//! A replica executes slots in order, so its state is always the one after some of the writes. A client that asked one
//! replica only, and only read, would see ever later such states. But its writes are executed elsewhere first, it may
//! move to another node, and a read may be repeated at another replica. So each client remembers the last slot that it
//! was told of (ZooKeeper's clients: the last zxid), a read names it, and a replica that has not executed it makes the
//! read wait.

use quorate_core::{ProcessId, Wall, mutation};

use super::{Ask, Intake, PendingRead, WaitingReads};
use crate::state::Replicated;

/// The reads that wait for the own state to be as new as what their clients have seen. Volatile: proxies ask again.
#[derive(Debug, Default)]
pub struct LocalReads {
    waiting: WaitingReads<PendingRead>,
}

impl LocalReads {
    /// Reads of clients that have seen everything up to `slot`.
    pub fn on_ask(
        &mut self,
        proxy: ProcessId,
        mut ask: Ask,
        slot: u64,
        state: &Replicated,
        intake: &mut Intake,
    ) {
        let slot = if mutation::active("local/older-than-seen") { 0 } else { slot };
        let reads = ask.take_reads(proxy);
        match slot <= state.applied() {
            true => intake.on_reads(reads.collect(), Wall::ZERO, state),
            false => reads.for_each(|read| self.waiting.hold(slot, read)),
        }
    }

    /// Answers the reads that waited for what is executed now.
    pub fn on_executed(&mut self, state: &Replicated, intake: &mut Intake) {
        while let Some((_, reads)) = self.waiting.take_executed(state.applied()) {
            intake.on_reads(reads.held, Wall::ZERO, state);
        }
    }
}
