//! Apportioned queries (CRAQ §2.3): every member of the chain answers reads from its own state.
//!
//! A key is *clean* at a member if no entry of its log that is not executed writes it, and *dirty* otherwise: such an
//! entry may be committed, and a client may have been told. Any entry may carry the time at which a key expires: a key
//! with a time to live is dirty while there is one that is not executed. Reads of dirty keys wait for one answer of the
//! tail for all of them: up to where everything is committed (the paper's *version query*). They are answered from the
//! state that has executed that.
//!
//! A reader believes leases, as a tail that answers alone does (or asks afterwards). So nothing is
//! committed in a later epoch when it takes a read up, and what is committed in its own has been in its log before: a
//! clean key is what the tail has committed. The tail's answer is of the same epoch, and later than the read; whatever
//! was acknowledged before the read is in it.

use bytes::Bytes;
use quorate_blocks::clients::{PendingRead, ReadBatches, WaitingReads};
use quorate_blocks::prefix_log::{Entry, ReplicatedLog};
use quorate_blocks::writes::{Writes, Written};
use quorate_core::{Context, NodeId, Random, mutation};

use super::Message;
use super::replica::Replica;

/// What a member needs to answer reads without being the tail.
#[derive(Debug)]
pub struct ApportionedReads {
    /// By the entries that are in the log and not executed.
    writes: Writes,
    /// Up to this entry.
    seen: u64,
    /// Reads of dirty keys, until the tail has answered.
    asked: ReadBatches,
    /// And until what it has named is executed.
    placed: WaitingReads<PendingRead>,
}

impl ApportionedReads {
    pub(super) fn new(random: &mut Random) -> ApportionedReads {
        ApportionedReads {
            writes: Writes::default(),
            seen: 0,
            asked: ReadBatches::new(random.u64()),
            placed: WaitingReads::default(),
        }
    }

    pub(super) fn check(&self, log: &ReplicatedLog) {
        self.asked.check();
        self.placed.check();
        assert!(self.seen <= log.entries.last().0, "entries that are not in the log write nothing");
        let seen = log.entries.iter(log.state.applied() + 1).take_while(|(index, _)| *index <= self.seen);
        for (index, held) in seen {
            let written = self.writes.of(index).cloned().unwrap_or_default();
            assert!(written == written_by(&held.entry), "entry {index} writes what it was seen to write");
        }
    }
}

fn written_by(entry: &Entry) -> Written {
    entry.value.whole().map_or_else(Written::everything, Written::by)
}

impl Replica {
    /// Entries have gone from the log.
    pub(super) fn forget_writes(&mut self) {
        if let Some(apportioned) = &mut self.apportioned
            && !mutation::active("craq/writes-that-are-gone")
        {
            (apportioned.writes, apportioned.seen) = (Writes::default(), 0);
        }
    }

    /// At the end of a batch: what is executed is clean, what has come to the log is dirty.
    pub(super) fn follow_writes(&mut self) {
        let Some(ApportionedReads { writes, seen, .. }) = &mut self.apportioned else { return };
        let (applied, entries) = (self.log.state.applied(), &self.log.entries);
        writes.executed(applied);
        for (index, held) in entries.iter(applied.max(*seen) + 1) {
            writes.set(index, written_by(&held.entry));
        }
        *seen = entries.last().0;
    }

    pub(super) fn is_dirty(&self, command: &Bytes) -> bool {
        let asks =
            self.apportioned.as_ref().filter(|_| !self.is_tail() && !mutation::active("craq/dirty-key"));
        asks.is_some_and(|apportioned| {
            let is_behind =
                apportioned.seen > self.log.state.applied() && !mutation::active("craq/expiring-key");
            apportioned.writes.affects(command) || (is_behind && !self.log.state.is_lasting(command))
        })
    }

    /// Once for all of these reads.
    pub(super) fn ask_tail(&mut self, dirty: Vec<PendingRead>, cx: &mut Context<'_, Self>) {
        let (Some(apportioned), Some(tail)) = (&mut self.apportioned, self.chain.last()) else { return };
        apportioned.asked.add_pending(dirty);
        if let Some(id) = apportioned.asked.close(usize::MAX) {
            cx.send(*tail, Message::VersionQuery { ballot: self.epochs.promised, id });
        }
    }

    /// As the tail. One that was restarted does not know before it is in its place what it has committed.
    pub(super) fn on_version_query(&self, from: NodeId, id: u64, cx: &mut Context<'_, Self>) {
        if self.is_tail() && self.is_complete() {
            let (ballot, committed) = (self.epochs.promised, self.log.committed);
            cx.send(from, Message::VersionReply { ballot, id, committed });
        }
    }

    pub(super) fn on_version_reply(&mut self, from: NodeId, id: u64, committed: u64) {
        if self.tail() == Some(from)
            && let Some(ApportionedReads { asked, placed, .. }) = &mut self.apportioned
        {
            let reads = asked.take_asked(id).into_iter().flatten();
            reads.for_each(|read| placed.hold(committed, read));
        }
    }

    /// Answers reads for which the tail's answer is executed.
    pub(super) fn serve_placed(&mut self) {
        let Some(ApportionedReads { placed, .. }) = &mut self.apportioned else { return };
        let mut reads = Vec::new();
        while let Some((_, executed)) = placed.take_executed(self.log.state.applied()) {
            reads.extend(executed.held);
        }
        reads.into_iter().for_each(|read| self.answer_now(read));
    }

    /// The epoch ends: what a tail has said in it tells nothing of the next one.
    pub(super) fn take_reads_back(&mut self) {
        if let Some(ApportionedReads { asked, placed, .. }) = &mut self.apportioned {
            self.reads.extend(asked.take_all().into_iter().chain(placed.take_all()));
        }
    }
}
