//! Update propagation: entries go from the head to the tail, what the tail has comes back (§2 of the paper).
//!
//! Each member stores entries, and forwards them when they are durable. So what a member has, its predecessor has, on
//! its disk (the paper's *Update Propagation Invariant*). The link to a successor begins with a search for where both
//! logs agree ([`Progress`]), so a chain that has changed needs no list of what was sent.

use std::collections::BTreeMap;

use quorate_blocks::catchup;
use quorate_blocks::epochs::Role;
use quorate_blocks::prefix_log::{Append, Entry, Fetched, Progress, RETRANSMIT, Replication, due};
use quorate_core::{Context, Fact, NodeId, Time, mutation};

use super::replica::{Replica, Timer};
use super::{Message, PIPELINE_BYTES, Record, UPDATE_BYTES};

/// Nothing is known of any successor yet; the own log is the head's of this epoch up to here, durably.
pub(super) fn begin(durable: u64, now: Time) -> Replication {
    let mut links = Replication::new(BTreeMap::new(), now);
    links.durable = durable;
    links.claim(durable);
    links
}

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
        match self.log.accept(prev, entries, cx) {
            Append::Matches { upto, fresh, cut } => {
                if cut.is_some() {
                    self.forget_writes();
                }
                self.log.store(upto, &entries[fresh..], cx);
                self.acknowledge |= upto <= self.links.durable;
                self.commit(self.log.shared(committed), cx);
            }
            Append::Differs { index, term: index_epoch } => {
                let (ballot, prev) = (self.epochs.promised, prev.0);
                cx.send(from, Message::Mismatch { ballot, prev, index, index_epoch });
            }
        }
    }

    /// The own log is durable up to here.
    pub(super) fn on_stored(&mut self, from: NodeId, upto: u64, cx: &mut Context<'_, Self>) {
        if from == self.me && upto <= self.log.verified {
            self.links.durable = self.links.durable.max(upto);
            self.go_on(cx);
        }
    }

    /// More is durable, or the successor has changed: what is stored here goes on, and as the tail's it is committed.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_, Self>) {
        self.acknowledge = true;
        let (durable, followers) = (self.links.durable, self.followers());
        for node in followers.iter() {
            self.links.peers.entry(node).or_insert_with(|| Progress::new(durable));
        }
        let (number, own) = (self.epochs.promised.number(), self.log.entries.term(durable));
        let own = own == Some(number) || mutation::active("chain/commit-earlier-epochs");
        // The last entry of an earlier epoch may be replaced by a head that lacks it, until one of this is behind it.
        if self.is_tail() && own && durable > self.log.committed {
            cx.note(|| Fact::Commits { term: number, index: durable });
            self.commit(durable, cx);
        }
    }

    /// Sends what was stored, and what is durable, each where it belongs.
    pub(super) fn propagate(&mut self, cx: &mut Context<'_, Self>) {
        let ballot = self.epochs.promised;
        if self.links.claim(self.log.verified) {
            cx.send(self.me, Message::Stored { ballot, upto: self.log.verified });
        }
        if std::mem::take(&mut self.acknowledge)
            && let Some(predecessor) = self.predecessor()
            && self.links.durable > 0
        {
            let matched = self.links.durable;
            let committed = self.log.committed.min(matched);
            cx.send(predecessor, Message::Ack { ballot, matched, committed });
        }
        self.forward(cx);
    }

    /// Sends successors what is durable here.
    fn forward(&mut self, cx: &mut Context<'_, Self>) {
        let (ballot, committed, now) = (self.epochs.promised, self.log.committed, cx.now());
        let at_once = mutation::active("chain/forward-at-once");
        let upto = if at_once { self.log.verified } else { self.links.durable };
        loop {
            let groups = due(&self.links.peers, &self.log.entries, upto, PIPELINE_BYTES);
            if groups.is_empty() {
                return;
            }
            for ((next, _), nodes) in groups {
                let prev_index = next - 1;
                let Some(prev_epoch) = self.log.entries.term(prev_index) else {
                    self.links.on_behind(nodes, now);
                    cx.send_all(nodes, Message::Behind { ballot });
                    continue;
                };
                let mut entries = self.log.entries.slice(next, UPDATE_BYTES);
                entries.truncate(upto.saturating_sub(prev_index) as usize);
                self.links.on_sent(nodes, prev_index, &entries, now);
                cx.send_all(nodes, Message::Update { ballot, prev_index, prev_epoch, entries, committed });
            }
        }
    }

    /// A successor tells what it has, and up to where the tail has it.
    pub(super) fn on_ack(&mut self, from: NodeId, matched: u64, committed: u64, cx: &mut Context<'_, Self>) {
        let chained = self.chain.contains(&from);
        let durable = self.links.durable;
        let Some(peer) = self.links.hear(from, cx.now()).filter(|_| matched <= durable) else { return };
        peer.on_match(matched, cx.now());
        let committed = committed.min(durable);
        if chained && !self.is_tail() && committed > self.log.committed {
            self.acknowledge = true;
            self.commit(committed, cx);
        }
    }

    /// Messages may be lost: what was not answered is sent again.
    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Context<'_, Self>) {
        self.links.on_retransmit_timer(cx.now());
        self.epochs.solicit(self.last(), cx);
        let Replica { epochs, log, .. } = self;
        epochs.go_on_rejoining(log.executed(), |record, cx| log.persist(Record::from(record), cx), cx);
        let discarded = self.epochs.repeat_syncs(cx);
        self.reads.extend(discarded);
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    // Snapshots --------------------------------------------------------------------------------------------------

    pub(super) fn on_behind(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        if self.predecessor() == Some(from) {
            self.log.behind = true;
            self.fetch(cx);
        }
    }

    /// Asks the predecessor for its state.
    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if let Some(predecessor) = self.predecessor().filter(|_| self.log.behind) {
            self.log.fetch(&[predecessor], cx);
            cx.set_timer(Timer::Fetch, catchup::RETRY);
        }
    }

    pub(super) fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let leads = matches!(self.epochs.role(), Role::Candidate(_) | Role::Owner(_));
        match self.log.on_catchup(from, message, self.links.peers.get_mut(&from), cx) {
            // Of an epoch that it has not promised yet, it waits for the head.
            Some(Fetched::State(state)) if !leads && state.origin().term <= self.epochs.promised.number() => {
                self.log.install(*state, &self.config.group, cx);
                self.forget_writes();
            }
            Some(Fetched::Gone) => self.fetch(cx),
            // Entries come by `Update` only, with their epochs.
            Some(Fetched::State(_) | Fetched::Values { .. }) | None => {}
        }
    }
}
