//! Update propagation: entries go from the head to the tail, what the tail has comes back (§2 of the paper).
//!
//! Each member stores entries, and forwards them when they are durable. So what a member has, its predecessor has, on
//! its disk (the paper's *Update Propagation Invariant*). The link to a successor begins with a search for where both
//! logs agree ([`Progress`]), so a chain that has changed needs no list of what was sent.

use quorate_blocks::prefix_log::{Append, Entry, Mode, Progress, RETRANSMIT};
use quorate_core::{Context, Fact, NodeId, mutation};

use super::replica::Replica;
use super::{Message, PIPELINE_BYTES, Record, UPDATE_BYTES};

impl Replica {
    /// The predecessor has these entries after the one at `prev`, and everything up to `committed` is committed.
    pub(super) fn on_update(
        &mut self,
        from: NodeId,
        prev: (u64, u64),
        entries: &[Entry],
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        if self.predecessor() != Some(from) {
            return;
        }
        match self.log.accept(prev, entries, cx.now()) {
            Append::Matches { upto, fresh, cut } => {
                if let Some(index) = cut {
                    assert!(index > self.committed, "entry {index} is committed and cannot be replaced");
                    cx.note(|| Fact::Truncated { index });
                }
                let first = upto - (entries.len() - fresh) as u64 + 1;
                for (index, entry) in (first..).zip(&entries[fresh..]) {
                    self.note_appended(index, cx);
                    self.persist(Record::Entry { index, entry: entry.clone() }, cx);
                }
                self.behind &= entries.is_empty();
                self.verified = self.verified.max(upto);
                self.acknowledge |= upto <= self.durable;
                self.commit(committed.min(self.verified), cx);
            }
            Append::Differs { index, term: index_epoch } => {
                let (ballot, prev) = (self.promised, prev.0);
                cx.send(from, Message::Mismatch { ballot, prev, index, index_epoch });
            }
        }
    }

    /// The own log is durable up to here.
    pub(super) fn on_stored(&mut self, from: NodeId, upto: u64, cx: &mut Context<'_, Self>) {
        if from == self.me && upto <= self.verified {
            self.durable = self.durable.max(upto);
            self.go_on(cx);
        }
    }

    /// More is durable, or the successor has changed: what is stored here goes on, and as the tail's it is committed.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        self.acknowledge = true;
        let (durable, followers) = (self.durable, self.followers());
        for node in followers.iter() {
            self.successors.entry(node).or_insert_with(|| Progress::new(durable));
        }
        let (number, own) = (self.promised.number(), self.log.term(durable));
        let own = own == Some(number) || mutation::active("chain/commit-earlier-epochs");
        // The last entry of an earlier epoch may be replaced by a head that lacks it, until one of this is behind it.
        if self.is_tail() && own && durable > self.committed {
            cx.note(|| Fact::Commits { term: number, index: durable });
            self.commit(durable, cx);
        }
    }

    /// Sends what was stored, and what is durable, each where it belongs.
    pub(super) fn propagate(&mut self, cx: &mut Context<'_, Self>) {
        let ballot = self.promised;
        if self.verified > self.claimed {
            self.claimed = self.verified;
            cx.send(self.me, Message::Stored { ballot, upto: self.verified });
        }
        if std::mem::take(&mut self.acknowledge)
            && let Some(predecessor) = self.predecessor()
            && self.durable > 0
        {
            let (matched, committed) = (self.durable, self.committed.min(self.durable));
            cx.send(predecessor, Message::Ack { ballot, matched, committed });
        }
        let upto = if mutation::active("chain/forward-at-once") { self.verified } else { self.durable };
        let now = cx.now();
        for (&node, peer) in &mut self.successors {
            loop {
                let flying = self.log.bytes(peer.matched + 1, peer.next.saturating_sub(1));
                let probes = peer.mode == Mode::Probe;
                let room = probes || flying < PIPELINE_BYTES;
                if !peer.is_ready() || !room || (peer.next > upto && !probes) {
                    break;
                }
                let prev_index = peer.next - 1;
                let Some(prev_epoch) = self.log.term(prev_index) else {
                    (peer.mode, peer.sent) = (Mode::Snapshot, Some(now));
                    cx.send(node, Message::Behind { ballot });
                    break;
                };
                let mut entries = self.log.slice(peer.next, UPDATE_BYTES);
                entries.truncate(upto.saturating_sub(prev_index) as usize);
                let bytes = entries.iter().map(|entry| entry.value.len()).sum();
                peer.on_sent(prev_index + entries.len() as u64, bytes, now);
                let committed = self.committed;
                cx.send(node, Message::Update { ballot, prev_index, prev_epoch, entries, committed });
            }
        }
    }

    pub(super) fn on_mismatch(&mut self, from: NodeId, prev: u64, (index, epoch): (u64, u64)) {
        let agreed = self.log.agree(index, epoch).min(index);
        if let Some(peer) = self.successors.get_mut(&from) {
            peer.on_mismatch(prev, agreed);
        }
    }

    /// A successor tells what it has, and up to where the tail has it.
    pub(super) fn on_ack(&mut self, from: NodeId, matched: u64, committed: u64, cx: &mut Context<'_, Self>) {
        let chained = self.chain.contains(&from);
        let Some(peer) = self.successors.get_mut(&from).filter(|_| matched <= self.durable) else { return };
        peer.on_match(matched, cx.now());
        let committed = committed.min(self.durable);
        if chained && !self.is_tail() && committed > self.committed {
            self.acknowledge = true;
            self.commit(committed, cx);
        }
    }

    /// Messages may be lost: what was not answered is sent again.
    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        for peer in self.successors.values_mut() {
            let patience = if peer.mode == Mode::Snapshot { 5 * RETRANSMIT } else { RETRANSMIT };
            peer.on_silence(now, patience);
        }
        self.solicit(cx);
        cx.set_timer(super::Timer::Retransmit, RETRANSMIT);
    }
}
