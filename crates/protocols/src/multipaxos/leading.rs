//! The leader: phase 2, decisions, reads, heartbeats.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_core::{Context, Fact, Mark, NodeId, Time};
use quorate_parts::ballot::Ballot;
use quorate_parts::clients::PendingRead;
use quorate_parts::lease::Grantee;
use quorate_parts::slots::Proposals;
use quorate_parts::slots::proposer::Prepared;

use super::replica::{Replica, Role, Timer, pace_of_leading};
use super::{ANNOUNCE, Message, PIPELINE_BYTES, RETRANSMIT};

/// Reads that may wait for the next slot.
const MAX_WAITING_READS: usize = 1 << 16;

/// What only a leader has.
#[derive(Debug)]
pub struct Leading {
    pub(super) proposals: Proposals,
    /// The last slot that phase 1 found.
    pub(super) recovered: u64,
    /// The promises of followers.
    pub(super) beliefs: BTreeMap<NodeId, Grantee>,
    /// The others, as far as they were heard.
    pub(super) peers: BTreeMap<NodeId, Peer>,
    /// Reads that need a slot proposed after they came.
    reads: Vec<PendingRead>,
    /// Reads that wait for their slot to be executed.
    waiting: VecDeque<(u64, Vec<PendingRead>)>,
    /// Whether a slot must be proposed even if no client writes: for reads, or because a key's time is up.
    tell_time: bool,
    /// Slots up to here were announced as chosen.
    announced: u64,
    announcing: bool,
    /// When the last slot that phase 1 found came closer to being executed.
    progress: (u64, Time),
    since: Time,
    /// Until when it said that it would read locally.
    pub(super) reads_until: Option<Time>,
}

/// Another member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer {
    pub(super) heard: Option<Time>,
    pub(super) committed: u64,
}

impl Replica {
    /// Phase 1 is complete.
    pub(super) fn begin_to_lead(&mut self, prepared: Prepared, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let Prepared { committed, holder, proposals } = prepared;
        let mut leading = Leading {
            proposals: Proposals::new(self.promised, self.config.members, committed + 1),
            recovered: proposals.last().map_or(committed, |(slot, _)| *slot),
            beliefs: BTreeMap::new(),
            peers: self.config.members.without(self.me).iter().map(|node| (node, Peer::default())).collect(),
            reads: Vec::new(),
            waiting: VecDeque::new(),
            tell_time: false,
            announced: 0,
            announcing: false,
            progress: (self.state.applied(), now),
            since: now,
            reads_until: None,
        };
        for (slot, value) in proposals {
            leading.proposals.propose(slot, value.clone(), now);
            cx.mark(Mark::Proposed { slot });
            let (ballot, committed) = (self.promised, self.log.committed());
            cx.send_all(self.config.members, Message::Accept { ballot, slot, value, committed });
        }
        self.intake.clear();
        self.role = Role::Leader(Box::new(leading));
        let number = self.promised.number();
        cx.note(|| Fact::Leads { number });
        if committed > self.log.committed() {
            self.goal = self.goal.max(committed);
            self.informant = Some(holder);
            self.fetch(cx);
        }
        pace_of_leading(cx);
    }

    /// Serves and proposes what has gathered.
    pub(super) fn lead(&mut self, cx: &mut Context<'_, Self>) {
        if !self.takes_requests() {
            return;
        }
        self.serve_reads(cx);
        let Role::Leader(leading) = &mut self.role else { return };
        while self.intake.has_writes() || leading.tell_time {
            let full = leading.proposals.count() >= self.config.pipeline;
            if full || leading.proposals.bytes() >= PIPELINE_BYTES {
                return;
            }
            leading.tell_time = false;
            let value = self.intake.take_batch(self.config.intake.batch, cx.wall());
            let slot = leading.proposals.next();
            leading.proposals.propose(slot, value.clone(), cx.now());
            cx.mark(Mark::Proposed { slot });
            if !leading.reads.is_empty() {
                leading.waiting.push_back((slot, std::mem::take(&mut leading.reads)));
            }
            let (ballot, committed) = (self.promised, self.log.committed());
            leading.announced = committed;
            cx.send_all(self.config.members, Message::Accept { ballot, slot, value, committed });
        }
    }

    fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        let reads = self.intake.take_reads();
        let local = self.may_read_locally(cx.now());
        if local && !reads.is_empty() {
            self.note_reads(cx);
            let number = self.promised.number();
            cx.note(|| Fact::ServesLocally { number });
        }
        let Role::Leader(leading) = &mut self.role else { return };
        for read in reads {
            let reply = if local { self.state.read(&read.command, cx.wall()) } else { None };
            match reply {
                Some(reply) => self.intake.on_read(read, reply),
                // Beyond the bound the proxy has to ask again.
                None if leading.reads.len() < MAX_WAITING_READS => {
                    leading.reads.push(read);
                    leading.tell_time = true;
                }
                None => {}
            }
        }
    }

    /// Slots have been executed: reads that waited for them can be served, followers can be told.
    pub(super) fn after_execution(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        while let Some((_, reads)) = leading.waiting.pop_front_if(|(slot, _)| *slot <= self.state.applied()) {
            for read in reads {
                let reply = self.state.read_now(&read.command);
                self.intake.on_read(read, reply);
            }
        }
        if leading.announced < self.log.committed() && !leading.announcing {
            leading.announcing = true;
            cx.set_timer(Timer::Announce, ANNOUNCE);
        }
    }

    /// Phase 2b is answered: what a majority has voted for in this ballot is chosen.
    pub(super) fn on_accept_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        slots: &[(u64, u64)],
        cx: &mut Context<'_, Self>,
    ) {
        self.hear(from, cx);
        let Role::Leader(leading) = &mut self.role else { return };
        let next = leading.proposals.next();
        let mut chosen = Vec::new();
        for &(first, last) in slots {
            for slot in first.max(leading.proposals.start())..=last.min(next - 1) {
                chosen.extend(leading.proposals.on_vote(from, ballot, slot).map(|value| (slot, value)));
            }
        }
        for (slot, value) in chosen {
            cx.mark(Mark::Committed { slot });
            self.choose(slot, value, cx);
        }
        self.execute(cx);
    }

    fn hear(&mut self, from: NodeId, cx: &mut Context<'_, Self>) {
        if let Role::Leader(leading) = &mut self.role
            && let Some(peer) = leading.peers.get_mut(&from)
        {
            peer.heard = Some(cx.now());
        }
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        if ballot != self.promised {
            return;
        }
        self.hear(from, cx);
        if let Role::Leader(leading) = &mut self.role
            && let Some(peer) = leading.peers.get_mut(&from)
        {
            peer.committed = peer.committed.max(committed);
        }
    }

    pub(super) fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        if !self.is_useful(cx.now()) {
            self.stop_leading(cx);
            self.watch.forget();
            return;
        }
        let due = self.state.next_expiry().is_some_and(|at| at <= cx.wall());
        let Role::Leader(leading) = &mut self.role else { return };
        leading.tell_time |= due;
        leading.announced = self.log.committed();
        let (ballot, committed) = (self.promised, self.log.committed());
        cx.send_all(self.config.members.without(self.me), Message::Heartbeat { ballot, committed });
        cx.set_timer(Timer::Heartbeat, self.config.pace.heartbeat);
    }

    /// Whether the others are better off with this leader than without: it hears a majority, and gets on with what it
    /// has to execute before it can serve.
    fn is_useful(&mut self, now: Time) -> bool {
        let limit = 2 * self.config.pace.timeout;
        let Role::Leader(leading) = &mut self.role else { return false };
        let near = |peer: &&Peer| now.since(peer.heard.unwrap_or(leading.since)) < limit;
        let reached = 1 + leading.peers.values().filter(near).count() >= self.config.members.majority();
        let applied = self.state.applied();
        let done = applied >= leading.recovered || self.catchup.is_loading();
        if done || applied > leading.progress.0 {
            leading.progress = (applied, now);
        }
        reached && now.since(leading.progress.1) < 2 * limit
    }

    pub(super) fn announce(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        leading.announcing = false;
        let committed = self.log.committed();
        if leading.announced < committed {
            leading.announced = committed;
            let ballot = self.promised;
            cx.send_all(self.config.members.without(self.me), Message::Commit { ballot, committed });
        }
    }

    /// Sends again what was not answered: messages may be lost.
    pub(super) fn retransmit(&mut self, cx: &mut Context<'_, Self>) {
        self.repeat_prepare(cx);
        let now = cx.now();
        let (ballot, committed) = (self.promised, self.log.committed());
        if let Role::Leader(leading) = &mut self.role {
            let mut bytes = 0;
            for (slot, proposal) in leading.proposals.open() {
                if bytes >= PIPELINE_BYTES {
                    break;
                }
                if now.since(proposal.sent) >= RETRANSMIT {
                    proposal.sent = now;
                    let value = proposal.value.clone();
                    bytes += value.len();
                    cx.send_all(proposal.missing(), Message::Accept { ballot, slot, value, committed });
                }
            }
        }
        if !matches!(self.role, Role::Follower | Role::Polling(_)) {
            cx.set_timer(Timer::Retransmit, RETRANSMIT.max(Duration::from_millis(1)));
        }
    }

    /// Stops leading, and asks the follower that is furthest to take over without delay.
    pub(super) fn hand_over(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &self.role else { return };
        let heir = leading.peers.iter().filter(|(_, peer)| peer.heard.is_some());
        let heir = heir.max_by_key(|(node, peer)| (peer.committed, std::cmp::Reverse(**node)));
        if let Some((&heir, _)) = heir {
            cx.send(heir, Message::StepUp { ballot: self.promised });
        }
        self.stop_leading(cx);
        self.watch.forget();
    }
}
