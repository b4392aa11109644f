//! The leader's side of the client conversation: admits each write once and in order, gathers them into batches,
//! keeps reads until they can be served, and sends answers together.
//!
//! What waits here is bounded in bytes on the way in (`max_bytes`: what is beyond is dropped) and on the way out:
//! between two [`flush`](Intake::flush)es no more than [`ANSWER_ROOM`] bytes of replies gather. Replies beyond that are
//! not sent, those to reads are not even made ([`has_room`](Intake::has_room)): proxies repeat themselves later, so
//! overload makes clients slower. One answer carries about 1 MiB, so that it always fits into a message.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::link::FRAME;
use quorate_core::{Manage, Managed, NodeId, Payload, ProcessId, Shortage, Wall, Wire, mutation};
use quorate_store::Command;

use crate::batch::{Batch, Builder, Entry, Limits};
use crate::clients::message::{Ask, Message};
use crate::membership::{NO_CHANGES, NO_ROSTER, refused};
use crate::parts::Part;
use crate::sessions::Verdict;
use crate::state::{AHEAD, CommandReply, Effect, Replicated};

/// A read that has to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRead {
    /// The proxy that asked and is answered.
    pub proxy: ProcessId,
    /// The number that this incarnation of the proxy has drawn.
    pub nonce: u64,
    /// As the proxy numbers it.
    pub id: u64,
    /// The command, as the store's wire format has it.
    pub command: Bytes,
}

/// Bytes of replies that gather before they are sent; one that is longer still goes, alone.
pub const ANSWER_ROOM: usize = 96 << 20;
/// Bytes of replies in one answer, if none is longer than a frame; one that is goes alone.
const ANSWER_BYTES: usize = 1 << 20;
/// Operators' requests that may wait.
const MAX_MANAGE: usize = 64;
/// Proxies that are told when somebody leads; others search.
const MAX_LOST: usize = 1024;

/// What clients have asked of a leader. Volatile: whoever leads next is asked again.
#[derive(Debug)]
pub struct Intake {
    me: NodeId,
    builder: Builder,
    /// Reads to serve at the next opportunity.
    reads: Vec<PendingRead>,
    read_bytes: usize,
    /// Operators' requests that wait for the replica to look at them.
    manage: Vec<PendingRead>,
    /// Sessions with writes under way here: the next number to admit.
    admitted: BTreeMap<u64, u64>,
    /// Proxies whose session is being opened, and their nonces. They ask again and again meanwhile: where slots are
    /// few, copies would keep everybody else waiting.
    opening: BTreeSet<(ProcessId, u64)>,
    /// Where a session's answers go.
    routes: BTreeMap<u64, (ProcessId, u64)>,
    answers: BTreeMap<(ProcessId, u64), Answer>,
    /// Bytes of the replies that wait to be sent.
    answer_bytes: usize,
    /// A reply had no room since the last flush.
    crowded: bool,
    notices: Vec<(ProcessId, Message)>,
    /// Proxies that wait for somebody to lead, and their nonces.
    lost: BTreeMap<ProcessId, u64>,
    /// The disk is nearly full: what would grow the data is replaced by its refusal.
    shortage: Option<Shortage>,
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct Answer {
    /// Bytes of the replies.
    bytes: usize,
    /// Bytes of the longest of them.
    longest: usize,
    /// The session that the writes belong to.
    session: u64,
    writes: Vec<(u64, Payload)>,
    slots: Vec<(u64, u64)>,
    reads: Vec<(u64, Payload)>,
}

impl Answer {
    /// For the incarnation of a proxy that has drawn this number, once so much is executed.
    fn into_message(self, nonce: u64, applied: u64) -> Message {
        let Answer { session, writes, slots, reads, .. } = self;
        Message::Answer { nonce, session, applied, writes, slots, reads }
    }
}

impl Intake {
    /// Holds about this many bytes; beyond, asks are dropped, and proxies repeat them later.
    pub fn new(me: ProcessId, max_bytes: usize) -> Intake {
        Intake {
            me: me.replica().expect("a replica takes requests in"),
            builder: Builder::new(),
            reads: Vec::new(),
            read_bytes: 0,
            manage: Vec::new(),
            admitted: BTreeMap::new(),
            opening: BTreeSet::new(),
            routes: BTreeMap::new(),
            answers: BTreeMap::new(),
            answer_bytes: 0,
            crowded: false,
            notices: Vec::new(),
            lost: BTreeMap::new(),
            shortage: None,
            max_bytes,
        }
    }

    /// While the node is short of something, writes that grow the data are refused. The refusal takes the place of the
    /// write in the log: its number in the session is used up, so those behind it are executed as ever.
    pub fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.shortage = shortage;
    }

    /// The write that is proposed for this one.
    fn admit(&self, command: Bytes) -> Bytes {
        let Some(shortage) = self.shortage.filter(|_| !command.is_empty()) else { return command };
        let grows = match Part::of(&command) {
            Some(_) => true,
            None => Command::from_bytes(command.clone()).is_ok_and(|command| command.grows()),
        };
        if grows { Command::refusal(shortage, self.me).to_bytes() } else { command }
    }

    /// A proxy asks the leader, whose state includes everything that was decided under earlier leaders.
    pub fn on_ask(&mut self, proxy: ProcessId, ask: Ask, state: &Replicated) {
        if ask.is_probe() {
            self.redirect(proxy, ask.nonce, Some(self.me));
            return;
        }
        let Ask { nonce, session, open, low, writes, reads, bounds: _, manage, version: _ } = ask;
        for (id, command) in reads {
            if self.read_bytes + command.len() <= self.max_bytes {
                self.read_bytes += command.len();
                self.reads.push(PendingRead { proxy, nonce, id, command });
            }
        }
        let manage = manage.into_iter().take(MAX_MANAGE.saturating_sub(self.manage.len()));
        self.manage.extend(manage.map(|(id, command)| PendingRead { proxy, nonce, id, command }));
        if open && (self.opening.insert((proxy, nonce)) || mutation::active("intake/open-again")) {
            self.builder.push(Entry::Open { proxy, nonce });
        }
        if session == 0 {
            return;
        }
        // A session that is not known here may have been opened in what is yet to be executed, or under a later leader
        // that this one has not heard of. Only the log can say that it is gone: execution of its writes does.
        let known = state.sessions().next(session);
        let executed = known.unwrap_or(low);
        let mut question = known.is_none();
        self.routes.insert(session, (proxy, nonce));
        // What is below `low` was answered, and so executed, whether this replica has got there or not.
        let mut next = self.admitted.get(&session).copied().unwrap_or(0).max(executed).max(low);
        let mut given_up = BTreeSet::new();
        for (seq, command) in writes {
            if seq < next {
                // It waits here, or is in the log already; if executed, the answer was lost.
                match state.sessions().check(session, seq) {
                    Verdict::Duplicate(reply) => {
                        self.answer_write((proxy, nonce), session, seq, CommandReply::Encoded(reply), 0);
                    }
                    // It may have been executed, and the session dropped since: one write asks the log.
                    Verdict::NoSession if std::mem::take(&mut question) => {
                        self.builder.push(Entry::Write { session, seq, low, command });
                    }
                    Verdict::Next | Verdict::Gap if command.is_empty() => drop(given_up.insert(seq)),
                    Verdict::NoSession | Verdict::Next | Verdict::Forgotten | Verdict::Gap => {}
                }
            } else if seq == next && self.builder.bytes() + command.len() <= self.max_bytes {
                let command = self.admit(command);
                self.builder.push(Entry::Write { session, seq, low, command });
                next += 1;
            } else {
                // A gap (the proxy repeats from there), or too much is waiting.
                break;
            }
        }
        self.admitted.insert(session, next);
        // Where slots are slow and carry little, what nobody waits for any more would hold up what somebody does.
        if !given_up.is_empty() && !mutation::active("intake/given-up-waits") {
            self.builder.give_up(session, &given_up);
        }
    }

    /// A value that was taken from here will never be executed: what is in it waits again. Writes behind it in its
    /// session would be executed too early and do nothing: those that wait are taken back, and admitted again when
    /// their proxy repeats them.
    pub fn retry(&mut self, value: &Bytes) {
        let Ok(Some(batch)) = Batch::decode(value) else { return };
        let mut lost = BTreeMap::new();
        for entry in &batch.entries {
            if let Entry::Write { session, seq, .. } = entry {
                lost.entry(*session).or_insert(*seq);
            }
        }
        for (session, first) in lost {
            if self.admitted.contains_key(&session) {
                let next = self.builder.withdraw(session, first).unwrap_or(first);
                self.admitted.insert(session, next);
            }
        }
        for entry in batch.entries {
            match &entry {
                Entry::Write { session, seq, .. } => match self.admitted.get_mut(session) {
                    Some(next) if next == seq => *next += 1,
                    // Another one before it is lost, too.
                    Some(_) | None => continue,
                },
                Entry::Open { .. } => {}
                Entry::Read { .. }
                | Entry::Expire { .. }
                | Entry::Configuration(_)
                | Entry::EndLease
                | Entry::Roster(_) => continue,
            }
            self.builder.push(entry);
        }
    }

    /// Begins with a log in which these values are yet to be executed: what is in them is not admitted again.
    pub fn expect<'a>(&mut self, values: impl Iterator<Item = &'a Bytes>) {
        for value in values {
            let Ok(Some(batch)) = Batch::decode(value) else { continue };
            for entry in batch.entries {
                match entry {
                    Entry::Write { session, seq, .. } => {
                        let next = self.admitted.entry(session).or_default();
                        *next = (*next).max(seq + 1);
                    }
                    Entry::Open { proxy, nonce } => drop(self.opening.insert((proxy, nonce))),
                    Entry::Read { .. }
                    | Entry::Expire { .. }
                    | Entry::Configuration(_)
                    | Entry::EndLease
                    | Entry::Roster(_) => {}
                }
            }
        }
    }

    /// A proxy asks a replica that does not lead. If that knows nobody who does, it is told as soon as it knows.
    pub fn redirect(&mut self, proxy: ProcessId, nonce: u64, leader: Option<NodeId>) {
        if leader.is_none() {
            self.lose(proxy, nonce);
        }
        self.notices.push((proxy, Message::Leader { nonce, leader }));
    }

    /// A proxy asks this replica for reads that another answers.
    pub fn tell_reader(&mut self, proxy: ProcessId, nonce: u64, reader: NodeId) {
        self.notices.push((proxy, Message::Reader { nonce, reader }));
    }

    /// Somebody leads: whoever waits for that need not search.
    pub fn found(&mut self, leader: NodeId) {
        for (proxy, nonce) in std::mem::take(&mut self.lost) {
            self.redirect(proxy, nonce, Some(leader));
        }
    }

    fn lose(&mut self, proxy: ProcessId, nonce: u64) {
        if self.lost.len() < MAX_LOST {
            self.lost.insert(proxy, nonce);
        }
    }

    /// Reads that this replica cannot answer.
    pub fn refuse(&mut self, proxy: ProcessId, nonce: u64, reads: Vec<u64>, leader: Option<NodeId>) {
        if !reads.is_empty() {
            if leader.is_none() {
                self.lose(proxy, nonce);
            }
            self.notices.push((proxy, Message::Refused { nonce, reads, leader }));
        }
    }

    /// Whether writes wait to be proposed.
    pub fn has_writes(&self) -> bool {
        !self.builder.is_empty()
    }

    /// A value for the next slot.
    pub fn take_batch(&mut self, limits: Limits, time: Wall) -> Bytes {
        self.builder.take(limits, time)
    }

    /// The reads that have come in since the last call.
    pub fn take_reads(&mut self) -> Vec<PendingRead> {
        self.read_bytes = 0;
        std::mem::take(&mut self.reads)
    }

    /// Reads that were taken and cannot be answered here any more: their proxies are told by [`depart`](Self::depart).
    pub fn keep_reads(&mut self, reads: impl Iterator<Item = PendingRead>) {
        self.reads.extend(reads);
    }

    /// What operators have asked for since the last call. A protocol that never calls this refuses it all.
    pub fn take_manage(&mut self) -> Vec<(PendingRead, Manage)> {
        let mut taken = Vec::new();
        for request in std::mem::take(&mut self.manage) {
            match Manage::from_bytes(request.command.clone()) {
                Ok(manage) => taken.push((request, manage)),
                Err(_) => self.on_managed(request, refused("the request cannot be read")),
            }
        }
        taken
    }

    /// Of what operators have asked for since the last call, what a leader does that can let another lead and nothing
    /// else: requests with whom they name. The others are refused, and one for this leader itself is done.
    pub fn take_transfers(&mut self) -> Vec<(PendingRead, Option<NodeId>)> {
        let mut transfers = Vec::new();
        for (request, manage) in self.take_manage() {
            let how = match manage {
                Manage::Transfer { to } if to == Some(self.me) => Managed::Done,
                Manage::Transfer { to } => {
                    transfers.push((request, to));
                    continue;
                }
                Manage::Roster(_) | Manage::AutoRoster(_) | Manage::ShowRoster => refused(NO_ROSTER),
                Manage::Change { .. } | Manage::CancelChange => refused(NO_CHANGES),
            };
            self.on_managed(request, how);
        }
        transfers
    }

    /// An operator's request has ended.
    pub fn on_managed(&mut self, request: PendingRead, how: Managed) {
        self.on_read(request, how.to_bytes());
    }

    /// Tells a proxy that asks who is in the group, if its idea of that is out of date.
    pub fn tell_members(&mut self, proxy: ProcessId, ask: &Ask, state: &Replicated) {
        if let Some((slot, configuration)) = state.configuration()
            && ask.version < *slot
        {
            let members = configuration.members(*slot);
            self.notices.push((proxy, Message::Members { nonce: ask.nonce, members }));
        }
    }

    /// The state of another was installed: what came of the entries in it is not told. Proxies whose session it opened
    /// ask again, and so do those whose sessions are still to be opened.
    pub fn on_installed(&mut self) {
        if !mutation::active("intake/opened-unheard") {
            self.opening.clear();
        }
    }

    /// What came of an entry of a slot that was executed here.
    pub fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Opened { proxy, nonce, session } => {
                self.opening.remove(&(proxy, nonce));
                self.notices.push((proxy, Message::Opened { nonce, session }));
            }
            Effect::Executed { session, seq, reply, slot } => {
                if let Some(&route) = self.routes.get(&session) {
                    self.answer_write(route, session, seq, reply, slot);
                }
            }
            // It is admitted again, with what it lacks. What waits behind it would be gaps, too, and then copies.
            Effect::Gap { session } => {
                if self.admitted.remove(&session).is_some() {
                    self.builder.withdraw(session, 0);
                }
            }
            Effect::NoSession { session } => {
                self.admitted.remove(&session);
                if let Some((proxy, nonce)) = self.routes.remove(&session) {
                    self.notices.push((proxy, Message::Expired { nonce, session }));
                }
            }
        }
    }

    /// Whether replies may be made now. Those that are not made, or have no room, are asked for again.
    pub fn has_room(&self) -> bool {
        self.answer_bytes < ANSWER_ROOM && !self.crowded
    }

    /// Takes room for a reply of so many bytes; false if there is none.
    pub fn take_room(&mut self, bytes: usize) -> bool {
        let takes = self.answer_bytes == 0 || self.answer_bytes + bytes <= ANSWER_ROOM;
        self.answer_bytes += if takes { bytes } else { 0 };
        self.crowded |= !takes;
        takes
    }

    /// A read is served.
    pub fn on_read(&mut self, read: PendingRead, reply: impl Into<Payload>) {
        let reply = reply.into();
        if !self.take_room(reply.len()) {
            return;
        }
        let route = (read.proxy, read.nonce);
        self.answer(route, reply.len(), None).reads.push((read.id, reply));
    }

    /// A read that the state answers as it is now, whatever its time: an entry that was appended after the read came is
    /// executed. If there is no room for the reply, its proxy asks again.
    pub fn on_read_now(&mut self, read: PendingRead, state: &Replicated) {
        if self.has_room() {
            let reply = state.read(&read.command, Wall::ZERO);
            self.on_read(read, reply.expect("nothing expires before the epoch"));
        }
    }

    /// Reads that the state answers as it is now, unless the time of one is up by then. Proxies ask again for those and
    /// for what has no room.
    pub fn on_reads(&mut self, reads: Vec<PendingRead>, time: Wall, state: &Replicated) {
        let mut reads = reads.into_iter();
        while !reads.as_slice().is_empty() {
            state.touch(reads.as_slice().iter().map(|read| &read.command));
            for read in reads.by_ref().take(AHEAD) {
                if self.has_room()
                    && let Some(reply) = state.read(&read.command, time)
                {
                    self.on_read(read, reply);
                }
            }
        }
    }

    /// A write is done, of a protocol that admits writes by itself. If there is no room for the reply, its proxy asks
    /// again.
    pub fn on_write(&mut self, route: (ProcessId, u64), session: u64, seq: u64, reply: Bytes) {
        self.answer_write(route, session, seq, CommandReply::Encoded(reply), 0);
    }

    fn answer_write(
        &mut self,
        route: (ProcessId, u64),
        session: u64,
        seq: u64,
        reply: CommandReply,
        slot: u64,
    ) {
        if !self.take_room(reply.size()) {
            return;
        }
        let reply = reply.into_payload();
        let answer = self.answer(route, reply.len(), Some(session));
        answer.session = session;
        answer.writes.push((seq, reply));
        match answer.slots.last_mut() {
            Some((last, count)) if *last == slot => *count += 1,
            _ => answer.slots.push((slot, 1)),
        }
    }

    /// The answer to a proxy that is being gathered, with room for so many bytes, and for writes of this session.
    fn answer(&mut self, route: (ProcessId, u64), bytes: usize, session: Option<u64>) -> &mut Answer {
        let answer = self.answers.entry(route).or_default();
        let other = session.is_some_and(|session| answer.session != session && !answer.writes.is_empty());
        // A long reply goes alone, so that others need not wait for it.
        let room = if answer.longest.max(bytes) > FRAME { 0 } else { ANSWER_BYTES };
        let has_some = !answer.writes.is_empty() || !answer.reads.is_empty();
        if has_some && (other || answer.bytes + bytes > room) {
            // What has gathered goes in a message of its own. What is executed by then is filled in when it leaves.
            self.notices.push((route.0, std::mem::take(answer).into_message(route.1, 0)));
        }
        answer.bytes += bytes;
        answer.longest = answer.longest.max(bytes);
        answer
    }

    /// Everything to send, one answer a proxy unless they are large. Also forgets sessions that are gone.
    pub fn flush(&mut self, state: &Replicated) -> Vec<(ProcessId, Message)> {
        if self.routes.len() > 2 * state.sessions().len() + 16 {
            self.routes.retain(|session, _| state.sessions().next(*session).is_some());
            self.admitted.retain(|session, _| state.sessions().next(*session).is_some());
        }
        for (request, _) in self.take_manage() {
            self.on_managed(request, refused(NO_CHANGES));
        }
        (self.answer_bytes, self.crowded) = (0, false);
        let mut out = std::mem::take(&mut self.notices);
        let now = state.applied();
        for (_, message) in &mut out {
            if let Message::Answer { applied, .. } = message {
                *applied = now;
            }
        }
        while let Some(((proxy, nonce), answer)) = self.answers.pop_first() {
            out.push((proxy, answer.into_message(nonce, now)));
        }
        out
    }

    /// Another leads from now on: everybody who waits for an answer from here is told.
    pub fn depart(&mut self, leader: NodeId) {
        self.retire();
        self.found(leader);
    }

    /// No longer leading: what waits will be asked again, of whoever leads next; what is answered already stays
    /// answered.
    pub fn retire(&mut self) {
        let mut waiting: Vec<_> = self.routes.values().copied().collect();
        waiting.extend(self.reads.iter().chain(&self.manage).map(|read| (read.proxy, read.nonce)));
        let (answers, notices) = (std::mem::take(&mut self.answers), std::mem::take(&mut self.notices));
        let (lost, answer_bytes) = (std::mem::take(&mut self.lost), self.answer_bytes);
        self.clear();
        (self.answers, self.notices, self.lost, self.answer_bytes) = (answers, notices, lost, answer_bytes);
        for (proxy, nonce) in waiting {
            self.lose(proxy, nonce);
        }
    }

    /// Begins anew. What is known of the disk stays: a leader that begins with a full one refuses from its first write.
    pub fn clear(&mut self) {
        *self = Intake { shortage: self.shortage, ..Intake::new(self.me.into(), self.max_bytes) };
    }
}

#[cfg(test)]
mod tests;
