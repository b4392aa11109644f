//! Almost-local reads (lazy ALR), at every replica. A follower's batches ask the leader for an entry that it appends
//! after they were closed; the leader's own wait for its next one. With `reads=local` these are the reads that must see
//! everything (ZooKeeper's `sync`); others are answered from the state as it is ([`quorate_blocks::clients::local`]).

use quorate_blocks::clients::{Ask, Place};
use quorate_core::{Context, NodeId, ProcessId, Wall, mutation};

use super::Message;
use super::replica::{Replica, Role};

impl Replica {
    /// A follower is asked, by a proxy that sends the write of this number behind its reads, if it names one.
    pub(super) fn read_here(&mut self, proxy: ProcessId, mut ask: Ask, behind: Option<u64>) {
        match behind {
            Some(write) => self.batches.add_behind(proxy, &mut ask, write),
            None => self.batches.add(proxy, &mut ask),
        }
    }

    /// A follower asks its leader, once a batch.
    pub(super) fn ask_for_batches(&mut self, cx: &mut Context<'_, Self>) {
        self.serve_batches();
        if !self.batches.has_open() {
            return;
        }
        let Some(leader) = self.leader.filter(|leader| *leader != self.me) else {
            return self.batches.forget_open();
        };
        while let Some(id) = self.batches.close(self.config.alr_batch) {
            if mutation::active("alr/unasked") {
                let place = (self.log.state.applied(), 0);
                self.batches.on_place(id, place, place.0, Some(0));
                continue;
            }
            cx.send(leader, Message::Sync { id });
        }
    }

    /// As a leader: with the next entry.
    pub(super) fn on_sync(&mut self, node: NodeId, id: u64) {
        if let Role::Leader(leading) = &mut self.role {
            leading.syncs.on_sync(node, id);
        }
    }

    pub(super) fn on_sync_reply(&mut self, id: u64, place: Place) {
        self.batches.on_place(id, place, self.log.state.applied(), self.log.entries.term(place.0));
        self.serve_batches();
    }

    /// As a leader: reads wait for the next entry.
    pub(super) fn hold_reads(&mut self) {
        if let Role::Leader(leading) = &mut self.role {
            self.intake.take_reads().into_iter().for_each(|read| leading.waiting.sync(read));
        }
    }

    /// What is executed now may be what reads have waited for.
    pub(super) fn serve_batches(&mut self) {
        if let Role::Leader(leading) = &mut self.role {
            while let Some((_, reads)) = leading.waiting.take_executed(self.log.state.applied()) {
                self.intake.on_reads(reads.logged, Wall::ZERO, &self.log.state);
            }
        }
        self.local.on_executed(&self.log.state, &mut self.intake);
        let ready = self.batches.take_ready(|session| self.log.state.sessions().next(session));
        self.intake.on_reads(ready, Wall::ZERO, &self.log.state);
    }
}
