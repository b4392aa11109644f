//! The leader: replication, commits, heartbeats.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::batch::Batch;
use quorate_blocks::clients::{Syncs, WaitingReads};
use quorate_blocks::membership::ReconfigurationCoordinator;
use quorate_blocks::prefix_log::{Entry, Progress, RETRANSMIT, Replication, due};
use quorate_blocks::walls::Own;
use quorate_core::{Context, Fact, Mark, NodeId, NodeSet, Time, Wall, mutation};

use super::changes::{Handing, TransferBackoff};
use super::coded::CodedEntries;
use super::leaseguard::{CommitGate, Limbo, ReadGate};
use super::reads::Reader;
use super::replica::{Replica, Role, Timer};
use super::{ANNOUNCE, MAX_WAITING, Message, PIPELINE_BYTES, Reads};
use crate::raft::rounds::Rounds;

/// What only a leader has.
#[derive(Debug)]
pub struct Leading {
    pub(super) replication: Replication,
    /// Where the own log has values in shards only, as far as it is durable: ranges of indexes.
    pub(super) partial: Vec<(u64, u64)>,
    /// The last entry when it was elected; what it appends itself comes after.
    pub(super) inherited: u64,
    /// LeaseGuard: when it may commit.
    pub(super) gate: CommitGate,
    /// LeaseGuard: what it cannot tell yet.
    pub(super) limbo: Limbo,
    /// How many entries it could not tell of when it was elected.
    pub(super) limbo_entries: u64,
    pub(super) rounds: Rounds<(u64, Reader)>,
    /// Reads that wait for an entry to be executed.
    pub(super) waiting: WaitingReads<Reader>,
    pub(super) syncs: Syncs,
    pub(super) coded: CodedEntries,
    /// Whether an entry must be appended even if no client writes: for a lease, or because a key's time is up.
    pub(super) needs_empty_batch: bool,
    pub(super) coordinator: ReconfigurationCoordinator,
    pub(super) handing: Option<Handing>,
    pub(super) transfers: TransferBackoff,
    /// The read gate, as checkers were told.
    pub(super) noted: Option<ReadGate>,
}

impl Replica {
    /// A majority has voted for this replica.
    pub(super) fn begin_to_lead(&mut self, cx: &mut Context<'_, Self>) {
        self.monitor.won_election();
        let (last, _) = self.log.entries.last();
        if mutation::active("leaseguard/limbo-applied") {
            self.commit(last, cx);
        }
        let gate = CommitGate::at_election(self, cx);
        let limbo = Limbo::at_election(self);
        let leading = Leading {
            replication: Replication::new(BTreeMap::new(), cx.now()),
            partial: Vec::new(),
            inherited: last,
            gate,
            limbo,
            limbo_entries: last - self.log.committed,
            rounds: Rounds::default(),
            waiting: WaitingReads::default(),
            syncs: Syncs::default(),
            coded: self.inherited_shards(),
            needs_empty_batch: false,
            coordinator: ReconfigurationCoordinator::new(self.config.timeouts.election),
            handing: None,
            transfers: TransferBackoff::new(self.config.timeouts.election),
            noted: None,
        };
        self.intake.clear();
        let open =
            self.log.entries.iter(self.log.committed + 1).filter_map(|(_, held)| held.entry.value.whole());
        self.intake.expect(open);
        self.walls.begin_to_lead(cx.now(), self.log.state.time());
        self.role = Role::Leader(Box::new(leading));
        self.leader = Some(self.me);
        self.expecting = false;
        self.log.behind = false;
        let term = self.term;
        cx.note(|| Fact::Leads { number: term });
        self.on_configuration(cx);
        self.append(Batch::noop(), cx);
        for (proxy, ask) in self.held.take() {
            self.intake.on_ask(proxy, ask, &self.log.state);
        }
        cx.set_timer(Timer::Heartbeat, std::time::Duration::ZERO);
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
        self.wait_for_gate(cx);
        self.wait_to_extend(cx);
        self.note_gate(cx);
    }

    /// No longer leads.
    pub(super) fn stop_leading(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let closed = leading.noted.take().is_some();
        // Operators ask again, elsewhere. Whoever waits for a read is to be told who leads, when that is known.
        drop(self.intake.take_manage());
        let asking = leading.rounds.abandon().into_iter().map(|(_, reader)| reader);
        let reads = leading.waiting.take_all().chain(asking).filter_map(|reader| match reader {
            Reader::Client(read) => Some(read),
            Reader::Follower { .. } => None,
        });
        self.intake.keep_reads(reads);
        let (term, index) = (self.term, self.log.state.applied());
        cx.note(|| Fact::Follows);
        if closed {
            cx.note(|| Fact::ReadGate { term, index, limbo: index, until: None });
        }
        self.role = Role::Follower;
        self.leader = None;
        self.monitor.forget();
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Appends an entry of the own term; its index.
    pub(super) fn append(&mut self, value: Bytes, cx: &mut Context<'_, Self>) -> u64 {
        let coded = self.split(self.log.entries.last().0 + 1, &value, cx.now());
        let mut entry = Entry { term: self.term, stamp: self.stamp(cx.clock()), value: value.into() };
        let index = self.log.append(entry.clone(), cx);
        if let Some(coded) = coded {
            entry.value = self.keep_shards(index, coded);
        }
        self.log.record(index, entry, cx);
        self.publish_configuration(cx);
        index
    }

    /// Everything that has gathered: reads, operators' requests, writes; and what is to be sent of it.
    pub(super) fn lead(&mut self, cx: &mut Context<'_, Self>) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        self.manage(cx);
        self.serve_reads(cx);
        self.propose(cx);
        self.acknowledge_own(cx);
        self.replicate(cx);
        self.begin_wanted_round(cx);
        self.note_gate(cx);
    }

    fn propose(&mut self, cx: &mut Context<'_, Self>) {
        loop {
            let (last, committed) = (self.log.entries.last().0, self.log.committed);
            let open = self.takes_writes(cx);
            let Role::Leader(leading) = &mut self.role else { return };
            let needed =
                leading.needs_empty_batch || leading.waiting.need_slot() || leading.syncs.need_slot();
            if !open || !(self.intake.has_writes() || needed) {
                return;
            }
            let entries = self.config.pipeline as u64 + leading.deferred(last, committed);
            if self.log.is_full(entries, leading.bytes_allowed()) {
                return;
            }
            leading.needs_empty_batch = false;
            let time = self.time(cx.now(), cx.wall());
            let value = self.intake.take_batch(self.config.intake.batch, time);
            let index = self.append(value, cx);
            if let Role::Leader(leading) = &mut self.role {
                leading.waiting.proposed(index);
                for (node, id) in leading.syncs.proposed(index) {
                    cx.send(node, Message::SyncReply { id, index, appended: self.term });
                }
            }
        }
    }

    /// The own log counts like any other's: when it is durable.
    fn acknowledge_own(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let (last, _) = self.log.entries.last();
        if leading.replication.claim(last) {
            cx.send(self.me, self.append_reply(last));
        }
    }

    /// Sends entries to all who may get some; one message for all who need the same.
    fn replicate(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        loop {
            let Role::Leader(leading) = &self.role else { return };
            let entries = &self.log.entries;
            let groups = due(&leading.replication.peers, entries, entries.last().0, PIPELINE_BYTES as u64);
            if groups.is_empty() {
                return;
            }
            for ((next, _), nodes) in groups {
                self.send_entries(next, nodes, now, cx);
            }
        }
    }

    fn send_entries(&mut self, next: u64, nodes: NodeSet, now: Time, cx: &mut Context<'_, Self>) {
        let (term, committed) = (self.term, self.log.committed);
        let prev_index = next - 1;
        let Some(prev_term) = self.log.entries.term(prev_index) else {
            if let Role::Leader(leading) = &mut self.role {
                leading.replication.on_behind(nodes, now);
            }
            return cx.send_all(nodes, Message::Behind { term, committed });
        };
        let entries = self.log.entries.slice(next, self.config.append_bytes);
        let coded = self.are_coded(next, entries.len());
        let shares: Vec<_> = match coded {
            true => nodes
                .iter()
                .map(|node| ([node].into_iter().collect(), self.entries_for(node, next, &entries)))
                .collect(),
            false => vec![(nodes, entries)],
        };
        let Role::Leader(leading) = &mut self.role else { return };
        for (nodes, entries) in shares {
            leading.replication.on_sent(nodes, prev_index, &entries, now);
            cx.send_all(nodes, Message::Append { term, prev_index, prev_term, entries, committed });
        }
    }

    // Answers ----------------------------------------------------------------------------------------------------

    /// `partial`: where it has values in shards only.
    pub(super) fn on_append_reply(
        &mut self,
        from: NodeId,
        matched: u64,
        partial: Vec<(u64, u64)>,
        cx: &mut Context<'_, Self>,
    ) {
        let now = cx.now();
        if from == self.me {
            let Role::Leader(leading) = &mut self.role else { return };
            if matched >= leading.replication.durable {
                (leading.replication.durable, leading.partial) = (matched, partial);
            }
        } else {
            let last = self.log.entries.last().0;
            let Role::Leader(leading) = &mut self.role else { return };
            let Some(peer) = leading.replication.hear(from, now) else { return };
            assert!(matched <= last, "a follower's log is never ahead of what its leader sent");
            if matched >= peer.matched {
                peer.partial = partial;
            }
            peer.on_match(matched, now);
            let resends = peer.resent > 0;
            if resends {
                self.send_whole(from, cx);
            }
            if !self.log.entries.configuration().1.all().contains(from) {
                self.dismiss_former_members(cx);
            }
        }
        self.advance(cx);
        self.hand_over_if_due(cx);
    }

    pub(super) fn on_mismatch(
        &mut self,
        from: NodeId,
        prev: u64,
        at: (u64, u64),
        cx: &mut Context<'_, Self>,
    ) {
        if let Role::Leader(leading) = &mut self.role {
            leading.replication.on_mismatch(from, prev, at, &self.log.entries, cx.now());
        }
    }

    /// Commits what a majority has, if the last of it is of the own term and earlier leases are over.
    pub(super) fn advance(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &self.role else { return };
        let reached = leading.replication.reached(self.me, self.log.entries.configuration().1);
        let Some(mut upto) = reached.filter(|upto| *upto > self.log.committed) else { return };
        if self.config.coding.is_some() {
            upto = self.reached_in_shards();
        }
        let own = upto > self.log.committed && self.log.entries.term(upto) == Some(self.term);
        if !(own || mutation::active("raft/commit-prior-term")) || !self.may_commit(cx) {
            return;
        }
        let term = self.term;
        for slot in self.log.committed + 1..=upto {
            cx.mark(Mark::Committed { slot });
        }
        cx.note(|| Fact::Commits { term, index: upto });
        self.commit(upto, cx);
        self.after_commit(cx);
    }

    /// An entry of the own term was committed.
    fn after_commit(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        leading.limbo = Limbo::default();
        self.forget_shards();
        self.release_reads(cx);
        let (term, committed) = (self.term, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        cx.send_all(leading.syncs.decided(committed), Message::Committed { term, committed });
        if leading.replication.announces_later(committed) {
            cx.set_timer(Timer::Announce, ANNOUNCE);
        }
        self.on_configuration_committed(cx);
        self.note_gate(cx);
    }

    // The clock --------------------------------------------------------------------------------------------------

    pub(super) fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        if matches!(self.role, Role::Gathering(_)) {
            return self.show_gathering(cx);
        }
        let now = cx.now();
        self.walls.on_replicated_time(now, self.log.state.time());
        let time = self.time(now, cx.wall());
        let due = self.log.state.wants_slot(time);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.needs_empty_batch |= due;
        let (replication, limit) = (&mut leading.replication, 2 * self.config.timeouts.election);
        let configuration = self.log.entries.configuration().1;
        let cut_off = replication.is_cut_off(self.me, configuration, limit, now);
        if replication.hangs(self.me, configuration, self.log.committed, limit, now) {
            // Its entries are committed without it, or wait for its disk alone: another can lead as well, and has one.
            self.stop_leading(cx);
            return;
        }
        let leased = self.config.reads != Reads::Inconsistent && self.reads_now(self.instant(cx)).0;
        if cut_off && !leased {
            // CheckQuorum: it helps nobody any more. While a lease lasts it still answers reads, to whoever reaches it.
            self.stop_leading(cx);
            return;
        }
        self.dismiss_former_members(cx);
        self.hand_over_to_voter(cx);
        self.begin_round(cx);
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
    }

    /// A round of heartbeats.
    pub(super) fn begin_round(&mut self, cx: &mut Context<'_, Self>) {
        let (term, committed, now) = (self.term, self.log.committed, cx.now());
        let Role::Leader(leading) = &mut self.role else { return };
        leading.replication.on_announced(committed);
        let round = leading.rounds.begin(now);
        let others: NodeSet = leading.replication.peers.keys().copied().collect();
        cx.send_all(others, Message::Heartbeat { term, committed, round });
        self.on_round(cx);
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        (round, wall): (u64, Wall),
        verified: u64,
        cx: &mut Context<'_, Self>,
    ) {
        let own = Own::read(self.me, cx);
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(peer) = leading.replication.hear(from, own.now) else { return };
        peer.round = peer.round.max(round);
        peer.on_verified(verified);
        if let Some(sent) = leading.rounds.begun(round) {
            self.walls
                .hear(from, (sent, wall), own, &|wall| self.log.entries.configuration().1.reached(wall));
        }
        self.on_round(cx);
    }

    pub(super) fn announce(&mut self, cx: &mut Context<'_, Self>) {
        let (term, committed) = (self.term, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        if leading.replication.announces_now(committed) {
            let others: NodeSet = leading.replication.peers.keys().copied().collect();
            cx.send_all(others, Message::Committed { term, committed });
        }
    }

    /// Messages may be lost: what was not answered is sent again.
    pub(super) fn retransmit(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        leading.replication.on_retransmit_timer(cx.now());
        self.fall_back(cx);
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    // Configurations ---------------------------------------------------------------------------------------------

    /// The configuration in force has changed: so has who is sent entries.
    pub(super) fn on_configuration(&mut self, _cx: &mut Context<'_, Self>) {
        // Whoever leaves gets the entry that says so (`dismiss_former_members`).
        let before = self.log.entries.configuration_at(self.log.committed).1.all();
        let all = self.log.entries.configuration().1.all().union(before);
        let last = self.log.entries.last().0;
        let me = self.me;
        let Role::Leader(leading) = &mut self.role else { return };
        for node in all.iter().filter(|node| *node != me) {
            leading.replication.peers.entry(node).or_insert_with(|| Progress::new(last));
        }
    }
}

impl Leading {
    /// While earlier leases run, entries gather that cannot be committed: they do not count towards the pipeline.
    fn deferred(&self, last: u64, committed: u64) -> u64 {
        if self.gate.is_open() { 0 } else { (last - committed).min(MAX_WAITING as u64) }
    }

    fn bytes_allowed(&self) -> u64 {
        let pipeline = PIPELINE_BYTES as u64;
        if self.gate.is_open() { pipeline } else { 16 * pipeline }
    }
}
