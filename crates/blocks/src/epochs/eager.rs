//! Eager almost-local reads (LAW §4.1, *eager ALR*): a reader executes reads on its own state, keeps the replies, and
//! then asks all acceptors whether they have promised a later ballot (`Sync`). If a majority has not, the replies
//! leave; if one of them has, the batch is discarded and its reads are executed again later.
//!
//! Why that is linearizable, without a clock: an acceptor that has promised no later ballot when it answers had
//! promised none when the reads were executed, which was before. So no later epoch had a majority then, and nothing was
//! committed in one. In its own epoch a reader executes what may have been committed, as under a lease. A read that is
//! executed after the question has left waits for the next one.
//!
//! Acceptors promise nothing to readers, so epochs change without waiting for anybody's lease to end.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use quorate_core::{Context, NodeId, Random, Settings, SettingsError, Time, mutation};

use super::{Embeds, Epochs, Event, Evidence, Message};
use crate::ballot::Ballot;
use crate::clients::PendingRead;
use crate::prefix_log::RETRANSMIT;
use crate::quorum::{Tally, Verdict};

/// Bytes of replies that wait for an answer, before the last; reads beyond are asked for again.
const MAX_BYTES: usize = 64 << 20;

/// How a reader knows that nothing was committed in a later epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A majority has promised it, for a while, to promise no other ballot.
    Lease,
    /// When it has read, it asks a majority whether it has.
    EagerAlr,
}

impl Reads {
    /// Reads the setting `reads`.
    pub fn from_settings(settings: &mut Settings) -> Result<Reads, SettingsError> {
        settings.choice(
            "reads",
            "lease",
            &[("lease", Reads::Lease), ("eager-alr", Reads::EagerAlr)],
            "How reads are answered: under leases; or in batches that ask a majority of the members when they are \
             executed",
        )
    }
}

/// Reads with their replies.
pub type Replies = Vec<(PendingRead, Bytes)>;

/// The batches of a reader: what is open, and what was asked about.
#[derive(Debug)]
pub struct EagerReads {
    /// Executed since the last question.
    open: Replies,
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
    replies: Replies,
    /// Who has promised no later ballot.
    tally: Tally,
    sent: Time,
}

impl EagerReads {
    /// Nothing was read yet.
    pub fn new(random: &mut Random) -> EagerReads {
        let (open, asked, discarded) = (Vec::new(), BTreeMap::new(), Vec::new());
        EagerReads { open, asked, last: random.u64() >> 1, discarded, bytes: 0 }
    }

    /// Keeps a read that is executed now, on the own state.
    pub fn execute(&mut self, read: PendingRead, reply: impl FnOnce(&PendingRead) -> Bytes) {
        if self.bytes < MAX_BYTES {
            let reply = reply(&read);
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

    fn take(&mut self, id: u64) -> Replies {
        let replies = self.asked.remove(&id).map_or(Vec::new(), |batch| batch.replies);
        self.bytes -= replies.iter().map(|(_, reply)| reply.len()).sum::<usize>();
        replies
    }

    /// All reads, to be executed anew.
    fn take_all(&mut self) -> Vec<PendingRead> {
        let asked = std::mem::take(&mut self.asked).into_values().flat_map(|batch| batch.replies);
        let replies = asked.chain(std::mem::take(&mut self.open)).map(|(read, _)| read);
        self.bytes = 0;
        std::mem::take(&mut self.discarded).into_iter().chain(replies).collect()
    }

    pub(super) fn check(&self) {
        let replies = self.asked.values().flat_map(|batch| &batch.replies).chain(&self.open);
        assert!(replies.map(|(_, reply)| reply.len()).sum::<usize>() == self.bytes, "replies are counted");
    }
}

impl<P: Copy + Ord + Debug, K: Evidence> Epochs<P, K> {
    /// Asks about what was executed in this batch. What may leave at once: in a group of one.
    pub fn sync_reads<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) -> Replies {
        let mut tally = match mutation::active("eager-alr/live-set") {
            true => Tally::new(self.live),
            false => self.members.tally(),
        };
        tally.add(self.me);
        let Some(eager) = &mut self.eager else { return Vec::new() };
        let Some(id) = eager.close(tally, cx.now()) else { return Vec::new() };
        if tally.reached() || mutation::active("eager-alr/ask-nobody") {
            return eager.take(id);
        }
        cx.send_all(tally.missing(), Message::Sync { ballot: self.promised, id }.into());
        Vec::new()
    }

    /// As an acceptor. A promise counts as soon as it is made, whether it is durable or not.
    pub(super) fn on_sync<M: Embeds<P, K>>(
        &self,
        from: NodeId,
        (ballot, id): (Ballot, u64),
        cx: &mut Context<'_, M>,
    ) {
        cx.send(from, Message::SyncReply { ballot, id, promised: self.promised }.into());
    }

    pub(super) fn on_sync_reply(&mut self, from: NodeId, id: u64, promised: Ballot) -> Event<K> {
        let Some(eager) = &mut self.eager else { return Event::Nothing };
        let Some(batch) = eager.asked.get_mut(&id) else { return Event::Nothing };
        if promised > self.promised {
            let reads = eager.take(id).into_iter().map(|(read, _)| read);
            eager.discarded.extend(reads);
        } else if batch.tally.add(from) == Verdict::Reached {
            return Event::Read(eager.take(id));
        }
        Event::Nothing
    }

    /// Messages may be lost: asks again. What was discarded is to be executed anew.
    pub fn repeat_syncs<M: Embeds<P, K>>(&mut self, cx: &mut Context<'_, M>) -> Vec<PendingRead> {
        let (ballot, now) = (self.promised, cx.now());
        let Some(eager) = &mut self.eager else { return Vec::new() };
        for (&id, batch) in &mut eager.asked {
            if now.since(batch.sent) >= RETRANSMIT {
                batch.sent = now;
                cx.send_all(batch.tally.missing(), Message::Sync { ballot, id }.into());
            }
        }
        std::mem::take(&mut eager.discarded)
    }

    /// All reads that have no answer yet: they are not to be answered here, or not in this epoch.
    pub fn take_reads(&mut self) -> Vec<PendingRead> {
        self.eager.as_mut().map_or(Vec::new(), EagerReads::take_all)
    }
}
