//! Phases 3 and 4 at the leader: synchronization, broadcast, commits, pings.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::batch::Batch;
use quorate_blocks::clients::{HandOver, PendingRead, Syncs, WaitingReads};
use quorate_blocks::prefix_log::{Entry, Progress, RETRANSMIT, Replication, due};
use quorate_blocks::walls::Own;
use quorate_core::{Context, Fact, Mark, NodeId, NodeSet, Time, Wall, mutation};

use super::replica::{Replica, Role, Timer};
use super::{ANNOUNCE, Message, PIPELINE_BYTES, Record};

/// What only a leader has.
#[derive(Debug)]
pub struct Leading {
    /// Of those who have answered NEWEPOCH.
    pub(super) replication: Replication,
    /// NEWLEADER: the last entry of the history that the epoch begins with.
    pub(super) first: u64,
    /// Reads that wait for an entry to be executed.
    pub(super) waiting: WaitingReads<PendingRead>,
    pub(super) syncs: Syncs,
    /// Whether an entry must be proposed even if no client writes, because a key's time is up.
    needs_empty_batch: bool,
    pub(super) handing: HandOver,
}

impl Replica {
    /// Phase 3: a majority has accepted the epoch, and nobody of it has more than this replica. These are the last
    /// zxids of those that have answered, epoch first.
    pub(super) fn begin_to_lead(
        &mut self,
        histories: BTreeMap<NodeId, (u64, u64)>,
        cx: &mut Context<'_, Self>,
    ) {
        self.monitor.won_election();
        let others = histories.into_iter().filter(|(node, _)| *node != self.me);
        // DIFF goes on from there, if the logs agree up to there.
        let begin = |(epoch, index)| self.log.entries.agree(index, epoch).min(index);
        let peers = others.map(|(node, last)| (node, Progress::new(begin(last)))).collect();
        let leading = Leading {
            replication: Replication::new(peers, cx.now()),
            first: self.log.entries.last().0 + 1,
            waiting: WaitingReads::default(),
            syncs: Syncs::default(),
            needs_empty_batch: false,
            handing: HandOver::default(),
        };
        // Whoever has asked meanwhile is told to come here.
        self.intake.depart(self.me);
        let open =
            self.log.entries.iter(self.log.committed + 1).filter_map(|(_, held)| held.entry.value.whole());
        self.intake.expect(open);
        self.walls.begin_to_lead(cx.now(), self.log.state.time());
        self.role = Role::Leader(Box::new(leading));
        self.leader = Some(self.me);
        self.log.behind = false;
        let number = self.accepted;
        cx.note(|| Fact::Leads { number });
        self.append(Batch::noop(), cx);
        self.current = number;
        self.log.persist(Record::Current(number), cx);
        cx.set_timer(Timer::Heartbeat, std::time::Duration::ZERO);
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }

    /// No longer leads.
    pub(super) fn stop_leading(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        // Whoever waits for a read is to be told who leads, when that is known.
        self.intake.keep_reads(leading.waiting.take_all());
        self.intake.retire();
        cx.note(|| Fact::Follows);
        self.role = Role::Follower;
        self.leader = None;
        self.monitor.forget();
        let patience = self.monitor.restart(cx.now(), cx.random());
        cx.set_timer(Timer::Election, patience);
    }

    /// Appends an entry of the own epoch; its index.
    fn append(&mut self, value: Bytes, cx: &mut Context<'_, Self>) -> u64 {
        self.log.propose(Entry { term: self.accepted, stamp: None, value: value.into() }, cx)
    }

    /// Everything that has gathered: reads, writes; and what is to be sent of it.
    pub(super) fn lead(&mut self, cx: &mut Context<'_, Self>) {
        if matches!(self.role, Role::Leader(_)) {
            self.manage(cx);
            self.hold_reads();
            self.propose(cx);
            self.acknowledge_own(cx);
            self.replicate(cx);
        }
    }

    /// Phase 4, once NEWLEADER is committed.
    fn propose(&mut self, cx: &mut Context<'_, Self>) {
        loop {
            let time = self.time(cx.now(), cx.wall());
            let Role::Leader(leading) = &mut self.role else { return };
            let synchronized =
                self.log.committed >= leading.first || mutation::active("zab/broadcast-at-once");
            let needed =
                leading.needs_empty_batch || leading.waiting.need_slot() || leading.syncs.need_slot();
            let hands_over = leading.handing.target().is_some();
            if !synchronized || hands_over || !(self.intake.has_writes() || needed) {
                return;
            }
            if self.log.is_full(self.config.pipeline as u64, PIPELINE_BYTES) {
                return;
            }
            leading.needs_empty_batch = false;
            let value = self.intake.take_batch(self.config.intake.batch, time);
            let index = self.append(value, cx);
            if let Role::Leader(leading) = &mut self.role {
                leading.waiting.proposed(index);
                for (node, id) in leading.syncs.proposed(index) {
                    cx.send(node, Message::SyncReply { id, index, appended: self.accepted });
                }
            }
        }
    }

    /// The own log counts like any other's: when it is durable.
    fn acknowledge_own(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let (index, _) = self.log.entries.last();
        if leading.replication.claim(index) {
            cx.send(self.me, Message::Ack { epoch: self.accepted, index });
        }
    }

    /// Sends entries to all who may get some; one message for all who need the same.
    fn replicate(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        loop {
            let Role::Leader(leading) = &self.role else { return };
            let entries = &self.log.entries;
            let groups = due(&leading.replication.peers, entries, entries.last().0, PIPELINE_BYTES);
            if groups.is_empty() {
                return;
            }
            for ((next, _), nodes) in groups {
                self.send_entries(next, nodes, now, cx);
            }
        }
    }

    /// SNAP, or DIFF up to NEWLEADER, or what is proposed behind it.
    fn send_entries(&mut self, next: u64, nodes: NodeSet, now: Time, cx: &mut Context<'_, Self>) {
        let (epoch, committed, prev_index) = (self.accepted, self.log.committed, next - 1);
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(prev_epoch) = self.log.entries.term(prev_index) else {
            leading.replication.on_behind(nodes, now);
            return cx.send_all(nodes, Message::Snap { epoch });
        };
        let mut entries = self.log.entries.slice(next, self.config.append_bytes);
        if next <= leading.first {
            entries.truncate((leading.first + 1 - next) as usize);
        }
        leading.replication.on_sent(nodes, prev_index, &entries, now);
        let message = match prev_index < leading.first {
            true => Message::Diff { epoch, prev_index, prev_epoch, entries, committed },
            false => Message::Propose { epoch, prev_index, entries, committed },
        };
        cx.send_all(nodes, message);
    }

    // Answers ----------------------------------------------------------------------------------------------------

    pub(super) fn on_ack(&mut self, from: NodeId, index: u64, cx: &mut Context<'_, Self>) {
        let last = self.log.entries.last().0;
        let Role::Leader(leading) = &mut self.role else { return };
        if from == self.me {
            leading.replication.durable = leading.replication.durable.max(index);
        } else if let Some(peer) = leading.replication.hear(from, cx.now()) {
            assert!(index <= last, "a follower's log is never ahead of what its leader sent");
            peer.on_match(index, cx.now());
        }
        self.advance(cx);
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

    /// Commits what a majority has, from NEWLEADER on: before that, an entry of an earlier epoch may be at a majority
    /// whose currentEpoch is older than that of one who lacks it, and may lead next.
    pub(super) fn advance(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &self.role else { return };
        let reached = leading.replication.reached(self.me, self.log.entries.configuration().1);
        let least = if mutation::active("zab/commit-by-counting") { 0 } else { leading.first };
        let Some(index) = reached.filter(|index| *index > self.log.committed && *index >= least) else {
            return;
        };
        let term = self.accepted;
        for slot in self.log.committed + 1..=index {
            cx.mark(Mark::Committed { slot });
        }
        cx.note(|| Fact::Commits { term, index });
        self.commit(index, cx);
        let Role::Leader(leading) = &mut self.role else { return };
        cx.send_all(leading.syncs.decided(index), Message::Commit { epoch: term, committed: index });
        if leading.replication.announces_later(index) {
            cx.set_timer(Timer::Announce, ANNOUNCE);
        }
    }

    // The clock --------------------------------------------------------------------------------------------------

    pub(super) fn others(&self) -> NodeSet {
        self.log.entries.configuration().1.all().without(self.me)
    }

    pub(super) fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.walls.on_replicated_time(now, self.log.state.time());
        let expired = self.log.state.wants_slot(self.time(now, cx.wall()));
        let (others, epoch, committed) = (self.others(), self.accepted, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.needs_empty_batch |= expired;
        let (replication, limit) = (&mut leading.replication, 2 * self.config.timeouts.election);
        let configuration = self.log.entries.configuration().1;
        let cut_off = replication.is_cut_off(self.me, configuration, limit, now);
        if cut_off || replication.hangs(self.me, configuration, committed, limit, now) {
            return self.stop_leading(cx);
        }
        replication.on_announced(committed);
        cx.send_all(others, Message::Ping { epoch, committed, sent: now });
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
    }

    pub(super) fn on_pong(
        &mut self,
        from: NodeId,
        (sent, wall): (Time, Wall),
        verified: u64,
        cx: &mut Context<'_, Self>,
    ) {
        let own = Own::read(self.me, cx);
        let last = self.log.entries.last().0;
        let Role::Leader(leading) = &mut self.role else { return };
        if sent == Time::ZERO {
            // No answer to a ping.
            return;
        }
        // Its ACKEPOCH was lost: where the logs agree is found by probes.
        let peer = leading.replication.peers.entry(from).or_insert_with(|| Progress::new(last));
        peer.heard = Some(own.now);
        peer.on_verified(verified);
        self.walls.hear(from, (sent, wall), own, &|wall| self.log.entries.configuration().1.reached(wall));
    }

    pub(super) fn announce(&mut self, cx: &mut Context<'_, Self>) {
        let (others, epoch, committed) = (self.others(), self.accepted, self.log.committed);
        let Role::Leader(leading) = &mut self.role else { return };
        if leading.replication.announces_now(committed) {
            cx.send_all(others, Message::Commit { epoch, committed });
        }
    }

    /// Messages may be lost: what was not answered is sent again.
    pub(super) fn retransmit(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return self.solicit(cx) };
        leading.replication.on_retransmit_timer(cx.now());
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
    }
}
