//! The leader: phase 2, decisions, reads, heartbeats.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Kind};
use quorate_blocks::catchup;
use quorate_blocks::clients::Syncs;
use quorate_blocks::coding::spread::ShardSet;
use quorate_blocks::coding::{Assignment, Value, ValueId};
use quorate_blocks::laggards::OwnDisk;
use quorate_blocks::membership::ReconfigurationCoordinator;
use quorate_blocks::quorum::Tally;
use quorate_blocks::walls::Own;
use quorate_core::{Context, Fact, Mark, NodeId, NodeSet, Time, Wall, digest, mutation};

use super::peer::Peer;
use super::policy::Policy;
use super::replica::{Replica, Role, Timer, pace_of_leading};
use super::{Message, PIPELINE_BYTES, RETRANSMIT};
use crate::paxos::engine::slots::proposer::Prepared;
use crate::paxos::engine::slots::{Proposals, Spread, Voted};

/// What only a leader has.
#[derive(Debug)]
pub struct Leading {
    pub(super) proposals: Proposals,
    /// The last slot that phase 1 found.
    pub(super) recovered: u64,
    /// What it found, until everything before is executed.
    pub(super) found: Vec<(u64, Bytes)>,
    /// The identities of those that were coded.
    ids: BTreeMap<u64, ValueId>,
    /// The slot of the last configuration that this leader proposed itself.
    pub(super) changing: Option<u64>,
    pub(super) coordinator: ReconfigurationCoordinator,
    /// The others, as far as they were heard.
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) syncs: Syncs,
    /// Whether a slot must be proposed even if no client asks: a key's time is up.
    needs_empty_batch: bool,
    /// Slots up to here were announced as chosen.
    pub(super) announced: u64,
    announcing: bool,
    /// What the last two heartbeats of its time said to be chosen.
    pub(super) beats: [Option<u64>; 2],
    /// The same of itself as of a [`Peer`].
    pub(super) durable: u64,
    /// When the last slot that phase 1 found came closer to being executed.
    progress: Progress,
    /// The last slot of an own vote that is durable.
    voted: u64,
    /// The same of any other replica.
    others_voted: u64,
    /// Whether the own votes come.
    disk: OwnDisk,
    /// The same of what it confirms beside votes ([`Policy::confirmed`]).
    disk_beside_votes: OwnDisk,
}

/// How far a leader is with what it must execute before it can serve.
#[derive(Debug)]
struct Progress {
    applied: u64,
    /// Pieces of a snapshot that have come ([`catchup::Catchup::received`]).
    received: u64,
    /// Since when both have not grown.
    since: Time,
}

impl<P: Policy> Replica<P> {
    /// Phase 1 is complete.
    pub(super) fn begin_to_lead(&mut self, prepared: Prepared, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        self.monitor.won_election();
        let Prepared { committed, holder, proposals, ids } = prepared;
        let (tally, configuration) = (self.tally(), &self.configuration.1);
        let others = configuration.all().without(self.me);
        let leading = Leading {
            proposals: Proposals::new(self.promised, tally, committed + 1),
            recovered: proposals.last().map_or(committed, |(slot, _)| *slot),
            found: proposals,
            ids,
            changing: None,
            coordinator: ReconfigurationCoordinator::new(self.config.timeouts.election),
            peers: others.iter().map(|node| (node, Peer::new(now))).collect(),
            syncs: Syncs::default(),
            needs_empty_batch: false,
            announced: 0,
            announcing: false,
            beats: [None; 2],
            durable: 0,
            progress: Progress {
                applied: self.state.applied(),
                received: self.catchup.received(),
                since: now,
            },
            voted: 0,
            others_voted: 0,
            disk: OwnDisk::default(),
            disk_beside_votes: OwnDisk::default(),
        };
        self.intake.retire();
        self.walls.begin_to_lead(now, self.state.time());
        self.role = Role::Leader(Box::new(leading));
        let number = self.promised.number();
        cx.note(|| Fact::Leads { number });
        self.acknowledge_self(cx);
        self.propose_found(cx);
        if committed > self.log.complete() {
            if holder != self.me {
                self.hear_of(holder, committed, cx);
            }
            self.fetch(cx);
            self.gather(cx);
        }
        pace_of_leading(self.config.announce, cx);
    }

    /// Proposes what phase 1 found, once everything before is executed: what is chosen there may say that others count
    /// from there on, and then this ballot has asked the wrong ones (see `changes.rs`).
    fn propose_found(&mut self, cx: &mut Context<'_, Self>) {
        let applied = self.state.applied();
        let Role::Leader(leading) = &mut self.role else { return };
        if leading.found.first().is_none_or(|(slot, _)| *slot > applied + 1) {
            return;
        }
        let (found, ids) = (std::mem::take(&mut leading.found), std::mem::take(&mut leading.ids));
        for (slot, value) in found {
            if slot > applied {
                let code = P::assignment(self).map(|assignment| assignment.code());
                let any = mutation::active("paxos/code-of-a-former-group");
                let id = ids.get(&slot).copied().filter(|id| Some((id.shards, id.data)) == code || any);
                self.propose_as(slot, value, id, cx);
            }
        }
    }

    /// Phase 2a, of a new value.
    pub(super) fn propose(&mut self, slot: u64, value: Bytes, cx: &mut Context<'_, Self>) {
        // The protocol itself reads the others, and acceptors must see them.
        let assignment = P::assignment(self).filter(|_| Batch::kind(&value) == Kind::Clients);
        let (ballot, len) = (self.promised, value.len() as u32);
        let id = assignment.map(|assignment| {
            let (shards, data) = assignment.code();
            ValueId { slot, ballot, digest: digest(&value), len, shards, data }
        });
        self.propose_as(slot, value, id, cx);
    }

    /// Phase 2a. What phase 1 found is sent as it was, with its identity, or whole: other shards of it would replace
    /// those that acceptors hold, of which there may be just enough.
    fn propose_as(&mut self, slot: u64, value: Bytes, id: Option<ValueId>, cx: &mut Context<'_, Self>) {
        self.on_value(slot, &value);
        let (required, now) = (P::required(self, &value), cx.now());
        let dispensable = |in_shards| self.dispensable(in_shards, now).difference(required);
        let assignment = id.and_then(|id| Some((id, P::assignment(self)?)));
        let in_shards = assignment.and_then(|(id, assignment)| {
            let dispensable = dispensable(true);
            let there = self.there(now).difference(dispensable);
            let spread = Spread { id, assignment, width: self.width(assignment, value.len(), there, now) };
            spread.is_partial().then_some((Some(spread), dispensable))
        });
        let (spread, dispensable) = in_shards.unwrap_or_else(|| (None, dispensable(false)));
        if id.is_some() {
            self.proposed.add(spread.as_ref());
        }
        let Role::Leader(leading) = &mut self.role else { unreachable!("only a leader proposes") };
        let follows_gap = slot > leading.proposals.next();
        for (node, peer) in &mut leading.peers {
            let gets_all = spread.is_none_or(|spread| spread.shards_of(*node) == ShardSet::ALL);
            peer.on_proposed(slot, follows_gap, gets_all && !dispensable.contains(*node));
        }
        leading.proposals.propose(slot, (value.clone(), spread), required, now);
        leading.proposals.leave_out(dispensable);
        cx.mark(Mark::Proposed { slot });
        self.send_accept(self.configuration.1.all().difference(dispensable), slot, (value, spread), cx);
    }

    /// Those that are far behind, if there are enough without them and no vote demands theirs: new values would only
    /// keep what they miss, or what else is under way to them, waiting. They ask for these when they hear that they are
    /// chosen.
    fn dispensable(&self, in_shards: bool, now: Time) -> NodeSet {
        let Role::Leader(leading) = &self.role else { return NodeSet::EMPTY };
        let far_behind = leading.peers.iter().filter(|(_, peer)| peer.is_far_behind(in_shards, now));
        let far_behind: NodeSet = far_behind.map(|(node, _)| *node).collect();
        if far_behind.is_empty() {
            return far_behind;
        }
        let far_behind = far_behind.difference(leading.proposals.demanded());
        let mut tally = self.tally();
        for node in self.there(now).difference(far_behind).iter() {
            tally.add(node);
        }
        let enough = tally.reached() || mutation::active("paxos/nobody-behind-is-needed");
        if enough { far_behind } else { NodeSet::EMPTY }
    }

    /// Sends a value, or to each voter its shards.
    fn send_accept(
        &mut self,
        to: NodeSet,
        slot: u64,
        (value, spread): (Bytes, Option<Spread>),
        cx: &mut Context<'_, Self>,
    ) {
        let (ballot, committed) = (self.promised, self.log.complete());
        let accept = |value| Message::Accept { ballot, slot, value, committed };
        let Role::Leader(leading) = &mut self.role else { unreachable!("only a leader proposes") };
        let mut send = |to: NodeSet, value: Value, cx: &mut Context<'_, Self>| {
            leading.on_sent(to, slot, value.len(), cx.now());
            cx.send_all(to, accept(value));
        };
        let Some(spread) = spread.filter(Spread::is_partial) else {
            return send(to, value.into(), cx);
        };
        let gets_all = |node: &NodeId| spread.shards_of(*node) == ShardSet::ALL;
        let some = to.iter().filter(|node| !gets_all(node));
        let shards = spread.id.deal(&value, some.clone().map(|node| spread.shards_of(node)));
        for (node, shards) in some.zip(shards) {
            send(NodeSet::from_iter([node]), shards, cx);
        }
        send(to.iter().filter(gets_all).collect(), value.into(), cx);
    }

    /// How many shards of a value each voter gets at least, if these voters take part.
    fn width(&self, assignment: Assignment, bytes: usize, there: NodeSet, now: Time) -> usize {
        P::width(self, &assignment, bytes, assignment.least_width(self.tally().sets(), there), now)
    }

    /// Those that speak, and whose votes are not overdue.
    fn there(&self, now: Time) -> NodeSet {
        let limit = self.config.timeouts.election;
        let nodes = self.configuration.1.voting();
        nodes.iter().filter(|node| self.is_voting(*node, limit, now)).collect()
    }

    /// How many votes and promises are needed under the configuration in force; none are there.
    pub(super) fn tally(&self) -> Tally {
        self.configuration.1.tally().needing(|voters| P::quorum(self, voters))
    }

    /// Serves and proposes what has gathered.
    pub(super) fn lead(&mut self, cx: &mut Context<'_, Self>) {
        if !self.takes_requests() {
            return;
        }
        let hold = self.manage(cx) && !mutation::active("paxos/no-barrier");
        if !self.takes_requests() {
            return;
        }
        self.serve_reads(cx);
        loop {
            let time = self.time(cx.now(), cx.wall());
            let Role::Leader(leading) = &mut self.role else { return };
            let idle = !(self.intake.has_writes()
                || self.waiting.need_slot()
                || leading.needs_empty_batch
                || leading.syncs.need_slot());
            let full = leading.proposals.count() >= self.config.pipeline
                || leading.proposals.bytes() >= PIPELINE_BYTES;
            if hold || idle || full {
                return;
            }
            leading.needs_empty_batch = false;
            let value = self.intake.take_batch(self.config.intake.batch, time);
            // Another leader may have had more chosen.
            let slot = leading.proposals.next().max(self.log.committed() + 1);
            self.waiting.proposed(slot);
            for (node, id) in leading.syncs.proposed(slot) {
                cx.send(node, Message::SyncReply { id, ballot: self.promised, slot });
            }
            leading.announced = self.log.complete();
            self.propose(slot, value, cx);
        }
    }

    /// Slots have been executed: reads that waited for them can be answered, followers can be told.
    pub(super) fn after_execution(&mut self, cx: &mut Context<'_, Self>) {
        self.propose_found(cx);
        self.release_reads(cx);
        let (ballot, committed) = (self.promised, self.log.complete());
        let Role::Leader(leading) = &mut self.role else { return };
        cx.send_all(leading.syncs.decided(committed), Message::Commit { ballot, committed });
        if leading.announced < self.log.complete() && !leading.announcing {
            leading.announcing = true;
            cx.set_timer(Timer::Announce, self.config.announce);
        }
    }

    /// Phase 2b is answered: what a majority has voted for in this ballot is chosen.
    pub(super) fn on_accept_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        grants: NodeSet,
        slots: &[Voted],
        cx: &mut Context<'_, Self>,
    ) {
        self.hear(from, cx);
        let grants = grants.intersection(P::may_be_granted(self));
        let Role::Leader(leading) = &mut self.role else { return };
        let (next, now) = (leading.proposals.next(), cx.now());
        let mut chosen = Vec::new();
        for &Voted { first, last, held } in slots {
            let brings = (grants, held.unwrap_or(ShardSet::ALL));
            let last = last.min(next - 1);
            match from == self.me {
                true => leading.voted = leading.voted.max(last),
                false => leading.others_voted = leading.others_voted.max(last),
            }
            if let Some(peer) = leading.peers.get_mut(&from) {
                peer.in_flight.on_answer(first..=last, now);
            }
            for slot in first.max(leading.proposals.start())..=last {
                let value = leading.proposals.on_vote(from, ballot, slot, brings, now);
                chosen.extend(value.map(|value| (slot, value)));
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

    /// From which slot on a member is being sent everything, if it asks for what it misses from this one on: values
    /// that wait for a full link would only wait longer if they were sent twice.
    pub(super) fn on_its_way(&self, to: NodeId, slot: u64, now: Time) -> Option<u64> {
        let Role::Leader(leading) = &self.role else { return None };
        let first = leading.peers.get(&to)?.on_its_way(slot, now);
        first.filter(|_| !mutation::active("paxos/send-what-is-on-its-way"))
    }

    /// A member asks for what it misses from a slot on; whether that is in a snapshot of which more comes.
    pub(super) fn on_fetch(&mut self, from: NodeId, slot: u64, has_more: bool, now: Time) {
        if let Role::Leader(leading) = &mut self.role
            && let Some(peer) = leading.peers.get_mut(&from)
        {
            let limit = peer.behind_limit();
            let missing = slot..peer.whole_since.unwrap_or(u64::MAX);
            peer.on_fetch(has_more || self.log.complete_bytes(missing, limit) > limit, now);
        }
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        (committed, bound): (u64, bool),
        (sent, wall): (Time, Wall),
        cx: &mut Context<'_, Self>,
    ) {
        if ballot != self.promised {
            return;
        }
        self.hear(from, cx);
        let Role::Leader(leading) = &mut self.role else { return };
        if from == self.me {
            leading.durable = leading.durable.max(committed);
        } else if let Some(peer) = leading.peers.get_mut(&from) {
            peer.committed = peer.committed.max(committed);
            peer.bound = bound;
            peer.in_flight.on_heartbeat_answer(sent, cx.now());
            let own = Own::read(self.me, cx);
            self.walls.hear(from, (sent, wall), own, &|wall| self.configuration.1.reached(wall));
            // It can stand in for the source of what is missing here.
            self.hear_of(from, committed, cx);
        }
    }

    /// Tells itself what it tells the leader as a follower, when that is durable.
    pub(super) fn acknowledge_self(&mut self, cx: &mut Context<'_, Self>) {
        self.record_committed(cx);
        let (ballot, committed, sent, wall) = (self.promised, self.log.complete(), cx.now(), cx.wall());
        cx.send(self.me, Message::HeartbeatReply { ballot, committed, bound: false, sent, wall });
    }

    /// What a voter has executed for good, as far as this leader knows.
    pub(super) fn executed_by(&self, leading: &Leading, node: NodeId) -> Option<u64> {
        match node == self.me {
            true => Some(leading.durable),
            false => leading.peers.get(&node).map(|peer| peer.committed),
        }
    }

    pub(super) fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        if self.disk_hangs(cx.now()) {
            // Another can do better, without the wait for a silent leader if one is ready.
            if let Ok(transfer_target) = self.transfer_target(None, cx.now()) {
                return self.hand_over(transfer_target, cx);
            }
        }
        if !self.is_useful(cx.now()) {
            self.stop_leading(cx);
            self.monitor.forget();
            return;
        }
        if !P::on_pulse(self, cx) {
            return;
        }
        self.tend_leases(cx);
        self.walls.on_replicated_time(cx.now(), self.state.time());
        let time = self.time(cx.now(), cx.wall());
        let due = self.state.wants_slot(time);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.needs_empty_batch |= due;
        leading.beats = [leading.beats[1], Some(self.log.complete())];
        self.pulse(cx);
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
    }

    /// Shows all that it leads, and tells them what is chosen.
    pub(super) fn pulse(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        let (ballot, committed) = (self.promised, self.log.complete());
        leading.announced = committed;
        leading.peers.values_mut().for_each(|peer| peer.in_flight.on_heartbeat(cx.now()));
        let others = leading.peers.keys().copied().collect();
        cx.send_all(others, Message::Heartbeat { ballot, committed, sent: cx.now() });
    }

    /// Whether the others are better off with this leader than without: it hears a majority, and gets on with what it
    /// has to execute before it can serve. A snapshot that is coming in is progress only while pieces come: if all
    /// sources have fallen silent, the next phase 1 asks those who are there, and finds in their votes what the sources
    /// had as decided. A slot that a majority has voted for is as far as this leader can bring it: whoever else must
    /// vote is waited for, until it may be excluded, and the next leader would have to wait as long again.
    fn is_useful(&mut self, now: Time) -> bool {
        let limit = 2 * self.config.timeouts.election;
        let Role::Leader(leading) = &mut self.role else { return false };
        let heard = self.configuration.1.reached(|node| match node == self.me {
            true => Some(now),
            false => leading.peers.get(&node).map(|peer| peer.heard.unwrap_or(peer.since)),
        });
        let reached = heard.is_some_and(|heard| now.since(heard) < limit);
        let (applied, received) = (self.state.applied(), self.catchup.received());
        let waits = leading.proposals.is_supported(applied + 1) && !mutation::active("paxos/waiting-is-idle");
        let done = applied >= leading.recovered
            || waits
            || (self.catchup.is_loading() && mutation::active("paxos/loading-is-progress"));
        if done || applied > leading.progress.applied || received > leading.progress.received {
            leading.progress = Progress { applied, received, since: now };
        }
        let mut patience = 2 * limit;
        if self.catchup.is_loading() {
            // Long enough to replace a source.
            patience = patience.max(2 * catchup::PATIENCE);
        }
        reached && now.since(leading.progress.since) < patience
    }

    /// Whether its own disk has not kept up with that of some other replica for so long that another should lead: in
    /// the time after which a leader that hears no majority stops. One other is enough: the votes of a majority may not
    /// come without the own.
    fn disk_hangs(&mut self, now: Time) -> bool {
        let limit = 2 * self.config.timeouts.election;
        let committed = self.log.complete();
        let (confirmed, others_confirmed) = match mutation::active("laggards/votes-only") {
            true => (0, 0),
            false => P::confirmed(self),
        };
        let Role::Leader(leading) = &mut self.role else { return false };
        let others = match mutation::active("laggards/as-a-majority") {
            true => committed.max(leading.proposals.supported()),
            false => committed.max(leading.others_voted),
        };
        let votes = leading.disk.hangs(leading.voted.max(leading.durable), others, limit, now);
        leading.disk_beside_votes.hangs(confirmed, others_confirmed, limit, now) || votes
    }

    /// Voters whose votes are missing where a majority has voted `limit` ago are laggards from now on, until theirs are
    /// not. For a policy whose followers need not have executed anything to be of use.
    pub fn review_laggards(&mut self, limit: Duration, now: Time) {
        if let Role::Leader(leading) = &self.role {
            self.laggards.review(leading.proposals.overdue(limit, now), |_| true, limit, now);
        }
    }

    /// Those of these replicas that are there and vote: their votes have not been missing for `limit` where a
    /// majority has voted. Called now and then.
    pub fn voting(&mut self, nodes: NodeSet, limit: Duration, now: Time) -> NodeSet {
        if let Role::Leader(leading) = &self.role {
            let near = |node| leading.is_near(node, self.configuration.0);
            self.laggards.review(leading.proposals.overdue(limit, now), near, limit, now);
        }
        nodes.iter().filter(|node| self.is_voting(*node, limit, now)).collect()
    }

    /// Whether it is one of them, as of the last review.
    pub fn is_voting(&self, node: NodeId, limit: Duration, now: Time) -> bool {
        let takes_part = || !self.laggards.contains(node) && !self.is_leaving(node, limit, now);
        node == self.me || self.has_heard(node, limit, now) && takes_part()
    }

    pub(super) fn announce(&mut self, cx: &mut Context<'_, Self>) {
        let Role::Leader(leading) = &mut self.role else { return };
        leading.announcing = false;
        let committed = self.log.complete();
        if leading.announced < committed {
            leading.announced = committed;
            let ballot = self.promised;
            let others = leading.peers.keys().copied().collect();
            cx.send_all(others, Message::Commit { ballot, committed });
        }
    }

    /// Sends again what was not answered, to those whose answers are late: messages may be lost.
    pub(super) fn retransmit(&mut self, cx: &mut Context<'_, Self>) {
        self.repeat_prepare(cx);
        let now = cx.now();
        let [whole, in_shards] = [false, true].map(|in_shards| self.dispensable(in_shards, now));
        let there = self.there(now).difference(in_shards);
        let mut late = Vec::new();
        if let Role::Leader(leading) = &mut self.role {
            let Leading { proposals, peers, .. } = &mut **leading;
            let mut bytes = 0;
            for (slot, proposal) in proposals.open() {
                if bytes >= PIPELINE_BYTES {
                    break;
                }
                if now.since(proposal.sent) < RETRANSMIT {
                    continue;
                }
                let is_late = |node: &NodeId| {
                    let in_flight = peers.get(node).map(|peer| &peer.in_flight);
                    proposal.left_out.contains(*node) || in_flight.is_none_or(|sent| sent.is_late(slot, now))
                };
                let is_partial = proposal.spread.is_some_and(|spread| spread.is_partial());
                let dispensable = if is_partial { in_shards } else { whole };
                let missing: NodeSet =
                    proposal.missing().difference(dispensable).iter().filter(is_late).collect();
                // Others need more shards, if they have to do without these votes.
                let lacks_votes = is_partial
                    && !proposal.missing().difference(there).is_empty()
                    && !mutation::active("slots/wait-for-votes-of-the-dead");
                if !missing.is_empty() || lacks_votes {
                    // Those who hold what they were sent can have it chosen, if they get enough shards in the same
                    // ballot.
                    let supporters = proposal.supporters().filter(|_| !missing.is_empty());
                    let (value, spread) = (proposal.value.clone(), proposal.spread);
                    bytes += value.len();
                    late.push((slot, missing, supporters.unwrap_or(there), value, spread));
                }
            }
        }
        for (slot, missing, voters, value, mut spread) in late {
            if let Some(Spread { assignment, width, .. }) = &mut spread
                && !mutation::active("slots/never-more-shards")
            {
                *width = self.width(*assignment, value.len(), voters, now).max(*width);
            }
            let Role::Leader(leading) = &mut self.role else { unreachable!("nobody has stopped it") };
            let to = missing.union(leading.proposals.respread(slot, spread));
            if !to.is_empty() {
                leading.proposals.on_sent_again(slot, to, now);
                self.send_accept(to, slot, (value, spread), cx);
            }
        }
        if !matches!(self.role, Role::Follower | Role::Polling(_)) {
            cx.set_timer(Timer::Retransmit, RETRANSMIT.max(Duration::from_millis(1)));
        }
    }
}

impl Leading {
    fn on_sent(&mut self, to: NodeSet, slot: u64, bytes: usize, now: Time) {
        for (_, peer) in self.peers.iter_mut().filter(|(node, _)| to.contains(**node)) {
            peer.in_flight.on_sent(slot, bytes, now);
        }
    }

    /// Whether a replica has executed this slot, and what was chosen a heartbeat or two ago.
    pub(super) fn is_near(&self, node: NodeId, slot: u64) -> bool {
        self.peers.get(&node).is_some_and(|peer| is_near(self.beats, peer, slot))
    }
}

/// The same, given what the last two heartbeats said to be chosen.
pub(super) fn is_near(beats: [Option<u64>; 2], peer: &Peer, slot: u64) -> bool {
    beats[0].is_some_and(|beat| peer.committed >= beat.max(slot))
}
