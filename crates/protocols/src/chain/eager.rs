//! Eager almost-local reads (LAW §4.1, *eager ALR*): a reader executes reads on its own state, keeps the replies, and
//! then asks all members whether they have promised a later ballot (`Sync`). If a majority has not, the replies leave;
//! if one of them has, the batch is discarded and its reads are executed again later.
//!
//! Why that is linearizable, without a clock: a member that has promised no later ballot when it answers had promised
//! none when the reads were executed, which was before. So no later epoch had a majority then, and nothing was
//! committed in one. In its own epoch a reader executes what may have been committed, as under a lease. A read that is
//! executed after the question has left waits for the next one.
//!
//! Members promise nothing to readers, so epochs change without waiting for anybody's lease to end.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::clients::PendingRead;
use quorate_blocks::prefix_log::RETRANSMIT;
use quorate_blocks::quorum::{Tally, Verdict};
use quorate_blocks::state::Replicated;
use quorate_core::{Context, NodeId, Random, Time, mutation};

use super::Message;
use super::replica::Replica;

/// Bytes of replies that wait for an answer, before the last; reads beyond are asked for again.
const MAX_BYTES: usize = 64 << 20;

/// The batches of a reader: what is open, and what was asked about.
#[derive(Debug)]
pub struct EagerReads {
    /// Executed since the last question.
    open: Vec<(PendingRead, Bytes)>,
    /// By the number of the question.
    asked: BTreeMap<u64, Batch>,
    /// The last number. The first is drawn: a late answer to an earlier life's question must not count.
    last: u64,
    /// They were executed and must be so again, but not at once: the next epoch is about to begin.
    discarded: Vec<PendingRead>,
    /// Of the replies that are kept.
    bytes: usize,
}

#[derive(Debug)]
struct Batch {
    replies: Vec<(PendingRead, Bytes)>,
    /// Who has promised no later ballot.
    tally: Tally,
    sent: Time,
}

impl EagerReads {
    pub(super) fn new(random: &mut Random) -> EagerReads {
        let (open, asked, discarded) = (Vec::new(), BTreeMap::new(), Vec::new());
        EagerReads { open, asked, last: random.u64() >> 1, discarded, bytes: 0 }
    }

    /// Executes a read whose keys are clean.
    pub(super) fn execute(&mut self, read: PendingRead, state: &Replicated) {
        if self.bytes < MAX_BYTES {
            let reply = state.read_now(&read.command);
            self.bytes += reply.len();
            self.open.push((read, reply));
        }
    }

    fn close(&mut self, tally: Tally, sent: Time) -> Option<u64> {
        if self.open.is_empty() {
            return None;
        }
        let replies = std::mem::take(&mut self.open);
        if mutation::active("eager-alr/join-asked")
            && let Some(mut asked) = self.asked.last_entry()
        {
            asked.get_mut().replies.extend(replies);
            return None;
        }
        self.last += 1;
        self.asked.insert(self.last, Batch { replies, tally, sent });
        Some(self.last)
    }

    fn take(&mut self, id: u64) -> Vec<(PendingRead, Bytes)> {
        let replies = self.asked.remove(&id).map_or(Vec::new(), |batch| batch.replies);
        self.bytes -= replies.iter().map(|(_, reply)| reply.len()).sum::<usize>();
        replies
    }

    /// All reads, to be executed anew.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = PendingRead> + use<> {
        let asked = std::mem::take(&mut self.asked).into_values().flat_map(|batch| batch.replies);
        let replies = asked.chain(std::mem::take(&mut self.open)).map(|(read, _)| read);
        self.bytes = 0;
        std::mem::take(&mut self.discarded).into_iter().chain(replies)
    }

    pub(super) fn check(&self) {
        let replies = self.asked.values().flat_map(|batch| &batch.replies).chain(&self.open);
        assert!(replies.map(|(_, reply)| reply.len()).sum::<usize>() == self.bytes, "replies are counted");
    }
}

impl Replica {
    /// Asks about what was executed in this batch.
    pub(super) fn sync_reads(&mut self, cx: &mut Context<'_, Self>) {
        let mut tally = match mutation::active("eager-alr/live-set") {
            true => Tally::new(self.chain.iter().copied().collect()),
            false => self.members.tally(),
        };
        tally.add(self.me);
        let Some(eager) = &mut self.eager else { return };
        let Some(id) = eager.close(tally, cx.now()) else { return };
        if tally.reached() || mutation::active("eager-alr/ask-nobody") {
            return self.release(id);
        }
        cx.send_all(tally.missing(), Message::Sync { ballot: self.promised, id });
    }

    /// As an acceptor. A promise counts as soon as it is made, whether it is durable or not.
    pub(super) fn on_sync(&self, from: NodeId, ballot: Ballot, id: u64, cx: &mut Context<'_, Self>) {
        cx.send(from, Message::SyncReply { ballot, id, promised: self.promised });
    }

    pub(super) fn on_sync_reply(&mut self, from: NodeId, id: u64, promised: Ballot) {
        let Some(eager) = &mut self.eager else { return };
        let Some(batch) = eager.asked.get_mut(&id) else { return };
        if promised > self.promised {
            let reads = eager.take(id).into_iter().map(|(read, _)| read);
            eager.discarded.extend(reads);
        } else if batch.tally.add(from) == Verdict::Reached {
            self.release(id);
        }
    }

    fn release(&mut self, id: u64) {
        let Some(eager) = &mut self.eager else { return };
        eager.take(id).into_iter().for_each(|(read, reply)| self.intake.on_read(read, reply));
    }

    /// Messages may be lost: asks again. What was discarded is executed anew.
    pub(super) fn repeat_syncs(&mut self, cx: &mut Context<'_, Self>) {
        let (ballot, now) = (self.promised, cx.now());
        let Some(eager) = &mut self.eager else { return };
        self.reads.append(&mut eager.discarded);
        for (&id, batch) in &mut eager.asked {
            if now.since(batch.sent) >= RETRANSMIT {
                batch.sent = now;
                cx.send_all(batch.tally.missing(), Message::Sync { ballot, id });
            }
        }
    }
}
