//! Reads: each passes the gate ([`Gate`]), at a leader when a batch ends, at any other replica when it comes in.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::clients::{self, Ask, AtSlot, Gate, PendingRead};
use quorate_blocks::membership::Configuration;
use quorate_blocks::state::{AHEAD, TIMELESS};
use quorate_core::{Context, Fact, Instant, NodeId, ProcessId, Staleness, Time, Wall, mutation};

use super::policy::Policy;
use super::replica::{Replica, Role};
use super::{Message, Reads};

/// Bytes of replies in one message with observations, unless a single one is larger.
const SEEN_BYTES: usize = 1 << 20;

/// A read that waits, and since when it is held; a leader's are not timed.
pub(super) type Waiting = (PendingRead, Option<Time>);

impl<P: Policy> Replica<P> {
    /// **The read gate.** `leased`: this is a leader that [may read locally](Replica::may_read_locally).
    fn gate(&self, leased: bool, command: &Bytes, now: Time) -> Gate {
        match &self.role {
            Role::Leader(_) if !leased => Gate::Sync,
            _ => P::gate(self, command, now),
        }
    }

    /// Whether a read that came in at this instant would be answered at once.
    pub(super) fn answers_at_once(&self, command: &Bytes, at: Instant) -> bool {
        let until = match &self.role {
            Role::Leader(_) => self.read_time(at.now, at.wall),
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => TIMELESS,
        };
        self.gate(self.may_read_locally(at.now), command, at.now) == Gate::Serve
            && self.state.read(command, until).is_some()
    }

    /// As a leader: what has come in.
    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        let reads = self.intake.take_reads();
        let now = cx.now();
        let leased = self.may_read_locally(now);
        if leased && !reads.is_empty() {
            self.note_local_read(cx);
        }
        let until = self.read_time(now, cx.wall());
        let mut reads = reads.into_iter();
        while !reads.as_slice().is_empty() {
            self.state.touch(reads.as_slice().iter().map(|read| &read.command));
            for read in reads.by_ref().take(AHEAD) {
                let gate = self.gate(leased, &read.command, now);
                if let Gate::Hold(slot) = gate {
                    self.waiting.hold(slot, (read, None));
                    continue;
                }
                if !self.intake.has_room() {
                    // The proxies repeat it, and those behind it.
                    return;
                }
                let reply = if gate == Gate::Serve { self.state.read(&read.command, until) } else { None };
                match reply {
                    Some(reply) => {
                        self.served.local.add(1);
                        self.intake.on_read(read, reply);
                    }
                    None => self.waiting.sync((read, None)),
                }
            }
        }
    }

    /// A proxy asks. Unless this is the leader: takes the reads out that are answered, held or refused here, which are
    /// those that may miss something, and all where every replica reads ([`Policy::READS_EVERYWHERE`]).
    pub(super) fn read_here(
        &mut self,
        from: ProcessId,
        ask: &mut Ask,
        behind: Option<u64>,
        cx: &mut Context<'_, Self>,
    ) {
        // One that has left the group is told of no decisions, and would wait for them in vain.
        let is_alr =
            matches!(self.config.reads, Reads::Alr { .. }) && self.configuration.1.all().contains(self.me);
        if is_alr && self.leader(cx.now()).is_some_and(|leader| leader != self.me) {
            return match behind {
                Some(write) => self.batches.add_behind(from, ask, write),
                None => self.batches.add(from, ask),
            };
        }
        let bounds: BTreeMap<u64, Staleness> = std::mem::take(&mut ask.bounds).into_iter().collect();
        // The leader's reads miss nothing.
        if matches!(self.role, Role::Leader(_)) || bounds.is_empty() && !P::READS_EVERYWHERE {
            return;
        }
        let (now, mut refused) = (cx.now(), Vec::new());
        for (id, command) in std::mem::take(&mut ask.reads) {
            let bound = bounds.get(&id);
            if bound.is_none() && !P::READS_EVERYWHERE {
                ask.reads.push((id, command));
                continue;
            }
            let read = PendingRead { proxy: from, nonce: ask.nonce, id, command };
            if bound.is_some_and(|bound| self.answer_bounded(*bound, &read, now)) {
                continue;
            }
            match self.gate(false, &read.command, now) {
                Gate::Serve if self.answer(&read, cx) => self.served.local.add(1),
                Gate::Hold(slot) if self.waiting.has_room() => self.waiting.hold(slot, (read, Some(now))),
                Gate::Serve | Gate::Hold(_) | Gate::Round | Gate::Sync | Gate::Redirect => refused.push(id),
            }
        }
        self.served.refused.add(refused.len());
        let leader = self.leader(now);
        self.intake.refuse(from, ask.nonce, refused, leader);
    }

    /// Answers a read that may miss something, if this state is known to miss no more.
    fn answer_bounded(&mut self, bound: Staleness, read: &PendingRead, now: Time) -> bool {
        if !self.intake.has_room() {
            // Too much is on its way out: its proxy asks again.
            return true;
        }
        let Some(reply) = self.bounded_reply(bound, &read.command, now) else { return false };
        self.served.bounded.add(1);
        self.intake.on_read(read.clone(), reply);
        true
    }

    /// As another than the leader: answers a read from the state alone; false if a clock has a say in it.
    fn answer(&mut self, read: &PendingRead, cx: &mut Context<'_, Self>) -> bool {
        if !self.intake.has_room() {
            // Too much is on its way out: its proxy asks again.
            return true;
        }
        let Some(reply) = self.state.read_lasting(&read.command) else { return false };
        self.note_local_read(cx);
        self.intake.on_read(read.clone(), reply);
        true
    }

    fn note_local_read(&mut self, cx: &mut Context<'_, Self>) {
        self.note_reads(cx);
        let number = self.promised.number();
        cx.note(|| Fact::ServesLocally { number });
    }

    /// Slots have been executed: reads that waited for them can be answered.
    pub(super) fn release_reads(&mut self, cx: &mut Context<'_, Self>) {
        while let Some((slot, reads)) = self.waiting.take_executed(self.state.applied()) {
            match &self.role {
                // A later ballot had it chosen, perhaps long ago, and more since.
                Role::Leader(leading)
                    if leading.proposals.is_open(slot) && !mutation::active("paxos/read-after-another") =>
                {
                    reads.logged.into_iter().chain(reads.held).for_each(|read| self.waiting.sync(read));
                }
                Role::Leader(_) => self.release_as_leader(reads, cx),
                Role::Follower | Role::Polling(_) | Role::Candidate(_) => self.release_held(reads, cx),
            }
        }
    }

    fn release_as_leader(&mut self, AtSlot { logged, held }: AtSlot<Waiting>, cx: &mut Context<'_, Self>) {
        let until = self.read_time(cx.now(), cx.wall());
        self.served.waited.add(logged.len() + held.len());
        for (read, _) in logged {
            self.intake.on_read_now(read, &self.state);
        }
        // What has no room is asked for again.
        for (read, _) in held {
            if !self.intake.has_room() {
                break;
            }
            match self.state.read(&read.command, until) {
                Some(reply) => self.intake.on_read(read, reply),
                None => self.waiting.sync((read, None)),
            }
        }
    }

    /// Held reads are answered from the state as it is then, later writes included, if this replica is in a position
    /// to.
    fn release_held(&mut self, AtSlot { held, .. }: AtSlot<Waiting>, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        let stable = self.is_stable(now) || mutation::active("paxos/unheld-unstable");
        for (read, since) in held {
            if stable && self.answer(&read, cx) {
                self.served.held.add(since.map(|since| now.since(since)).unwrap_or_default());
            } else {
                self.refuse(read, since, now);
            }
        }
    }

    // Almost-local reads -----------------------------------------------------------------------------------------

    /// As a leader: with the next slot.
    pub(super) fn on_sync(&mut self, node: NodeId, id: u64) {
        if let Role::Leader(leading) = &mut self.role {
            leading.syncs.on_sync(node, id);
        }
    }

    /// Answers what can be answered, and asks the leader about what has come in.
    pub(super) fn serve_batches(&mut self, cx: &mut Context<'_, Self>) {
        let Reads::Alr { batch } = self.config.reads else { return };
        self.batches.on_executed(self.state.applied());
        let ready = self.batches.take_ready(|session| self.state.sessions().next(session));
        self.served.waited.add(ready.len());
        self.intake.on_reads(ready, Wall::ZERO, &self.state);
        if !self.batches.has_open() {
            return;
        }
        let Some(leader) = self.leader(cx.now()).filter(|leader| *leader != self.me) else {
            return self.batches.forget_open();
        };
        while let Some(id) = self.batches.close(batch) {
            cx.send(leader, Message::Sync { id });
        }
    }

    // Waiting ----------------------------------------------------------------------------------------------------

    /// Before another role is taken: what a leader's clients wait for, their proxies ask of the next.
    pub(super) fn forget_reads_of_leader(&mut self) {
        if matches!(self.role, Role::Leader(_)) {
            drop(self.waiting.take_all());
        }
    }

    /// This replica leaves its ballot, or what it knew of it: nothing can be waited for any more.
    pub fn refuse_held(&mut self, now: Time) {
        for (read, since) in self.waiting.take_all() {
            self.refuse(read, since, now);
        }
    }

    /// A read that was held is for the leader after all.
    fn refuse(&mut self, read: PendingRead, since: Option<Time>, now: Time) {
        self.served.held.add(since.map(|since| now.since(since)).unwrap_or_default());
        self.served.refused.add(1);
        let leader = self.leader(now);
        self.intake.refuse(read.proxy, read.nonce, vec![read.id], leader);
    }

    /// A proxy asks a majority what they know of some reads.
    pub(super) fn on_query(
        &mut self,
        from: ProcessId,
        nonce: u64,
        reads: Vec<(u64, Bytes)>,
        cx: &mut Context<'_, Self>,
    ) {
        let (mut seen, mut bytes) = (Vec::new(), 0);
        let Configuration { voters, outgoing, .. } = self.configuration.1;
        let mut send = |reads| {
            cx.send(from, Message::Client(clients::Message::Seen { nonce, voters, outgoing, reads }));
        };
        for (id, command) in reads {
            if !self.intake.has_room() {
                // The proxy asks again.
                break;
            }
            let Some(observation) = P::observe(self, &command) else { continue };
            let len = observation.reply.as_ref().map_or(0, Bytes::len);
            if !self.intake.take_room(len) {
                continue;
            }
            if bytes + len > SEEN_BYTES && bytes > 0 {
                send(std::mem::take(&mut seen));
                bytes = 0;
            }
            bytes += len;
            seen.push((id, observation));
        }
        if !seen.is_empty() {
            send(seen);
        }
    }
}
