//! Reads, at the tail: what is in its log, durably, is committed, so its state answers them alone; or at all of the
//! chain (`apportioned.rs`). A reader must know that no other epoch has begun: it reads while a majority of the
//! acceptors have promised it not to promise another ballot (`blocks::leases`), and promises it as one of them; or asks
//! them afterwards.
//!
//! **A tail that was restarted in its epoch** may have shown more to clients than it knows to be committed. All of that
//! is in its log, and executed when it knows its place in the chain ([`Replica::recover`](super::Replica)).

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::clients::{self, PendingRead};
use quorate_blocks::epochs::Replies;
use quorate_core::{Context, Fact, NodeId, ProcessId, Time};

use super::replica::Replica;
use super::{MAX_WAITING, Message, Readers};

impl Replica {
    pub(super) fn on_client(
        &mut self,
        from: ProcessId,
        message: clients::Message,
        cx: &mut Context<'_, Self>,
    ) {
        let (clients::Message::Ask(mut ask), ProcessId::Proxy(_)) = (message, from) else { return };
        if !ask.reads.is_empty() && self.is_reader() {
            self.take_reads(from, ask.nonce, std::mem::take(&mut ask.reads));
            if ask.is_probe() {
                return;
            }
        } else if let Some(tail) = self.tail().filter(|_| !ask.reads.is_empty())
            && self.config.readers == Readers::Tail
        {
            // The next ones go there at once.
            self.intake.tell_reader(from, ask.nonce, tail);
        }
        if self.is_head() || (self.keeps_intake && !self.epochs.monitor.has_leader(cx.now())) {
            self.intake.on_ask(from, ask, &self.log.state);
            return;
        }
        let head = self.head().filter(|_| self.epochs.monitor.has_leader(cx.now()));
        self.intake.redirect(from, ask.nonce, head);
    }

    fn take_reads(&mut self, proxy: ProcessId, nonce: u64, reads: Vec<(u64, Bytes)>) {
        let room = MAX_WAITING.saturating_sub(self.reads.len());
        let reads = reads.into_iter().take(room);
        self.reads.extend(reads.map(|(id, command)| PendingRead { proxy, nonce, id, command }));
    }

    /// The head passes reads of a proxy on.
    pub(super) fn on_read(
        &mut self,
        from: NodeId,
        (proxy, nonce): (ProcessId, u64),
        reads: Vec<(u64, Bytes)>,
    ) {
        if self.is_tail() && self.head() == Some(from) && matches!(proxy, ProcessId::Proxy(_)) {
            self.take_reads(proxy, nonce, reads);
        }
    }

    /// As the head: reads that have come here, and it does not answer itself, are the tail's to answer.
    pub(super) fn forward_reads(&mut self, cx: &mut Context<'_, Self>) {
        if !self.is_head() {
            return;
        }
        let Some(tail) = self.tail() else { return };
        let reads = self.intake.take_reads();
        if self.is_reader() {
            return self.reads.extend(reads);
        }
        let mut asks: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for PendingRead { proxy, nonce, id, command } in reads {
            asks.entry((proxy, nonce)).or_default().push((id, command));
        }
        for ((proxy, nonce), reads) in asks {
            cx.send(tail, Message::Read { proxy, nonce, reads });
        }
    }

    /// Whether an entry of its epoch is executed, and so everything from earlier ones.
    pub(super) fn is_complete(&self) -> bool {
        self.log.entries.term(self.log.committed) == Some(self.epochs.promised.number())
    }

    /// Until when a reader may answer from its state, if it may.
    fn readable_until(&self, now: Time) -> Option<Time> {
        let may = self.is_reader() && self.is_complete();
        self.epochs.leased_until(now).filter(|_| may)
    }

    pub(super) fn may_read(&self, now: Time) -> bool {
        self.readable_until(now).is_some()
    }

    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        self.follow_writes();
        self.serve_placed();
        if self.takes_reads_up(cx) {
            let reads = std::mem::take(&mut self.reads).into_iter();
            let (dirty, clean): (Vec<_>, Vec<_>) = reads.partition(|read| self.is_dirty(&read.command));
            self.ask_tail(dirty, cx);
            // A key whose time is up is there until an entry says so, which the head appends.
            for read in clean {
                if self.epochs.eager.is_none() {
                    let number = self.epochs.promised.number();
                    cx.note(|| Fact::ServesLocally { number });
                }
                self.answer_now(read);
            }
        }
        let replies = self.epochs.sync_reads(cx);
        self.answer(replies);
    }

    /// Whether this replica is one that may answer reads now, by its state; checkers are told until when.
    fn takes_reads_up(&mut self, cx: &mut Context<'_, Self>) -> bool {
        if self.epochs.eager.is_some() {
            return self.is_reader() && self.is_complete();
        }
        let until = self.readable_until(cx.now());
        self.epochs.note_reads(until, cx);
        until.is_some()
    }

    /// Executes a read whose keys are clean.
    pub(super) fn answer_now(&mut self, read: PendingRead) {
        let state = &self.log.state;
        match &mut self.epochs.eager {
            Some(eager) => eager.execute(read, |read| state.read_now(&read.command)),
            None => self.intake.on_read_now(read, state),
        }
    }

    pub(super) fn answer(&mut self, replies: Replies) {
        replies.into_iter().for_each(|(read, reply)| self.intake.on_read(read, reply));
    }
}
