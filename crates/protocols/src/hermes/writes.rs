//! Writes. Any member that is live and whole coordinates them: it executes what waits for a key on its own copy, which
//! must be valid, and sends the result to all who are live (`Inv`). They adopt it, if they have no later version, and
//! read that key no more until they hear that everybody has it (`Val`).
//!
//! Every write of a client is one of the paper's *RMWs*: it depends on the record of the version before, which says
//! whether it has been executed already. Of two that begin with the same version one is committed, that with the higher
//! timestamp. The other's coordinator adopts it and executes its writes again, behind it. What was overtaken may still
//! be committed, if all who have the other are lost: so nobody is told that it has failed, and its writes are in its
//! record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use quorate_blocks::clients;
use quorate_blocks::pace::InFlight;
use quorate_blocks::prefix_log::RETRANSMIT;
use quorate_core::{Context, Fact, NodeId, NodeSet, ProcessId, Time, Wall, Wire, digest, mutation};
use quorate_store::{Command, CommandError, Key, Reply};

use super::keys::{ORDINAL_BITS, Timestamp, Version};
use super::message::Ack;
use super::record::{Name, Verdict};
use super::refused::Refused;
use super::replica::Replica;
use super::{Message, Record, VALUE_LIMIT};

/// Writes of one key that are executed together, and bytes of what they leave behind.
const FOLD: usize = 256;
const FOLD_BYTES: usize = 1 << 20;
/// Versions that are replayed, or sent again, in one heartbeat.
const AT_ONCE: usize = 128;
/// Bytes of versions in one message, before the last.
const INV_BYTES: usize = 1 << 20;

/// A client's write.
#[derive(Clone, Debug)]
pub struct Write {
    pub proxy: ProcessId,
    pub name: Name,
    /// When its session was opened, and its proxy has the answers to earlier ones than this.
    pub session: (u64, u64),
    pub command: Bytes,
}

/// A version that waits for acknowledgements here (the paper's states *Write* and *Replay*).
#[derive(Debug)]
pub struct Pending {
    pub at: Timestamp,
    /// Numbers grow in the order in which versions are proposed here.
    id: u64,
    pub acks: NodeSet,
    /// The writes in it that came here, with what they will be answered.
    answers: Vec<(Write, Bytes)>,
    sent: Time,
    /// Since when these acknowledgements count.
    since: Time,
    /// Others have writes of this key that wait.
    contended: bool,
    /// Of the version, as [`Version::bytes`] counts them.
    pub bytes: usize,
}

/// What a member coordinates. Volatile: proxies ask again, and versions are replayed.
#[derive(Debug, Default)]
pub struct Coordinator {
    /// Writes that wait for their key to be valid.
    queues: BTreeMap<Key, VecDeque<Write>>,
    /// Those that wait or are pending, and their bytes.
    admitted: BTreeSet<Name>,
    bytes: usize,
    refused: Refused,
    /// Of their sessions: proxies have the answers to earlier writes than this, as they said last.
    lows: BTreeMap<u64, u64>,
    /// Keys whose time may be up.
    pub(super) overdue: BTreeSet<Key>,
    pub(super) pending: BTreeMap<Key, Pending>,
    /// How many versions were proposed here, and how many of them are pending no more.
    proposed: u64,
    pub(super) ended: u64,
    /// Of these, what is on its way to whom.
    peers: BTreeMap<NodeId, InFlight>,
    /// Keys that are not valid here, and not pending: when they are to be replayed.
    pub(super) invalid: BTreeMap<Key, Time>,
    /// How often writes of a key were overtaken in a row: their next version is so much higher.
    overtaken: BTreeMap<Key, u64>,
    /// Keys of which others are to write first, until then at most.
    yielded: BTreeMap<Key, Time>,
    /// What the end of the batch sends: new versions to all, later ones to whoever has sent an earlier one, and so on.
    versions: Vec<Version>,
    later: BTreeMap<NodeId, Vec<Version>>,
    acks: BTreeMap<NodeId, Vec<Ack>>,
    valid: Vec<(Key, Timestamp)>,
    /// To whoever has sent a version that is known here to be committed.
    confirmed: BTreeMap<NodeId, Vec<(Key, Timestamp)>>,
}

impl Coordinator {
    /// Everybody who waits for an answer.
    fn take_waiting(&mut self) -> BTreeSet<(ProcessId, u64)> {
        let pending = std::mem::take(&mut self.pending).into_values();
        let pending = pending.flat_map(|pending| pending.answers).map(|(write, _)| write);
        let queued = std::mem::take(&mut self.queues).into_values().flatten();
        let waiting = pending.chain(queued).map(|write| (write.proxy, write.name.nonce)).collect();
        (self.admitted, self.bytes) = (BTreeSet::new(), 0);
        self.lows.clear();
        if !mutation::active("hermes/overtaken-for-ever") {
            self.overtaken.clear();
        }
        self.versions.clear();
        self.overdue.clear();
        waiting
    }

    /// Versions that are pending here leave, in the order in which they were proposed.
    fn on_sent(&mut self, to: NodeSet, versions: &[Version], now: Time) {
        let bytes = versions.iter().map(Version::bytes).sum();
        let last = versions.last().and_then(|version| self.pending.get(&version.key));
        let id = last.expect("they are pending").id;
        for node in to.iter() {
            let peer = self.peers.entry(node).or_insert_with(|| InFlight::new(RETRANSMIT));
            peer.on_sent(id, bytes, now);
        }
    }

    /// What is pending and must have been lost on its way to some.
    fn late(&self, live: NodeSet, now: Time) -> Vec<(Key, NodeSet)> {
        let sent_long_ago = self.pending.iter().filter(|(_, pending)| now.since(pending.sent) >= RETRANSMIT);
        let late = sent_long_ago.map(|(key, pending)| {
            let is_late = |node: &NodeId| {
                let peer = self.peers.get(node);
                !pending.acks.contains(*node) && peer.is_none_or(|peer| peer.is_late(pending.id, now))
            };
            (key.clone(), live.iter().filter(is_late).collect::<NodeSet>())
        });
        late.filter(|(_, nodes)| !nodes.is_empty()).take(AT_ONCE).collect()
    }

    /// The version of this key that is pending here waits for nobody any more.
    fn end(&mut self, key: &Key) -> Option<Pending> {
        let pending = self.pending.remove(key);
        self.ended += u64::from(pending.is_some());
        pending
    }

    /// A key may have nothing to write here any more: then it does not matter how often that was overtaken.
    fn forget_overtaken(&mut self, key: &Key) {
        let is_idle = !self.queues.contains_key(key) && !self.pending.contains_key(key);
        if is_idle && !mutation::active("hermes/overtaken-for-ever") {
            self.overtaken.remove(key);
        }
    }

    /// A proxy has the answers to all writes of its session before this one. Those that wait for that may go on, be it
    /// said with another write, with a repetition, or alone.
    pub(super) fn on_answers(&mut self, nonce: u64, low: u64) {
        if let Some(known) = self.lows.get_mut(&nonce) {
            *known = low.max(*known);
        }
    }

    fn admit(&mut self, key: Key, write: Write) {
        let (Name { nonce, .. }, (_, low)) = (write.name, write.session);
        if self.admitted.insert(write.name) {
            self.bytes += write.command.len();
            self.lows.entry(nonce).or_insert(low);
            self.queues.entry(key).or_default().push_back(write);
        }
    }

    fn forget(&mut self, write: &Write) {
        if self.admitted.remove(&write.name) {
            self.bytes -= write.command.len();
            let Name { nonce, .. } = write.name;
            let mut others = self.admitted.range(Name { nonce, seq: 0 }..=Name { nonce, seq: u64::MAX });
            if others.next().is_none() {
                self.lows.remove(&nonce);
            }
        }
    }

    /// Whether something is to be written here, or looked at.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.queues.contains_key(key) || self.pending.contains_key(key) || self.overdue.contains(key)
    }

    pub(super) fn check(&self) {
        let pending = self.pending.values().flat_map(|pending| &pending.answers).map(|(write, _)| write);
        let all: Vec<_> = self.queues.values().flatten().chain(pending).collect();
        assert!(all.len() == self.admitted.len(), "each write waits once");
        assert!(all.iter().map(|write| write.command.len()).sum::<usize>() == self.bytes, "they are counted");
        let sessions: BTreeSet<u64> = self.admitted.iter().map(|name| name.nonce).collect();
        assert!(self.lows.keys().eq(&sessions), "what is known of a session goes with its last write");
        assert!(
            self.pending.keys().all(|key| !self.invalid.contains_key(key)),
            "what is pending is replayed"
        );
        let is_written = |key: &Key| self.queues.contains_key(key) || self.pending.contains_key(key);
        assert!(self.overtaken.keys().all(is_written), "only what is to be written can be overtaken");
    }
}

impl Replica {
    /// A proxy asks for a write. What is refused for want of room waits for its key like the others: it may have been
    /// asked before, and be in a version.
    pub(super) fn on_write(&mut self, mut write: Write) {
        // It was given up: its number is all that it needs.
        if write.command.is_empty() {
            return self.answer(&write, Bytes::new());
        }
        let decoded = self.keys.store().decode(&write.command);
        let shortage = self.shortage.filter(|_| decoded.as_ref().is_ok_and(Command::grows));
        let again = self.coordinator.refused.get(write.name);
        if let Some(refusal) = again.or_else(|| Some(Command::refusal(shortage?, self.me))) {
            if let Some(error) = refusal.refused().filter(|_| mutation::active("hermes/refused-at-once")) {
                return self.answer(&write, Reply::Error(error).encoded());
            }
            write.command = refusal.to_bytes();
        }
        let key =
            decoded.and_then(|command| command.only_key().ok().flatten().ok_or(CommandError::Unordered));
        let key = match key {
            Ok(key) => key,
            Err(error) => return self.answer(&write, Reply::Error(error).encoded()),
        };
        if self.coordinator.bytes + write.command.len() <= self.config.max_bytes {
            self.coordinator.admit(key, write);
        }
    }

    fn answer(&mut self, write: &Write, reply: Bytes) {
        let route = (write.proxy, write.name.nonce);
        self.intake.on_write(route, write.session.0, write.name.seq, reply);
    }

    /// Executes what waits for keys that are valid.
    pub(super) fn coordinate(&mut self, cx: &mut Context<'_, Self>) {
        let Some(time) = self.time(cx.now(), cx.wall()).filter(|_| self.serves()) else { return };
        let Coordinator { queues, overdue, pending, yielded, .. } = &mut self.coordinator;
        let now = cx.now();
        yielded.retain(|_, until| now < *until);
        let ready = |key: &&Key| {
            !pending.contains_key(*key) && !yielded.contains_key(*key) && self.keys.is_valid(key)
        };
        let keys: BTreeSet<Key> = queues.keys().chain(overdue.iter()).filter(ready).cloned().collect();
        for key in keys {
            self.write(&key, time, cx);
        }
    }

    fn write(&mut self, key: &Key, time: Wall, cx: &mut Context<'_, Self>) {
        let writer = self.writer();
        let Replica { coordinator, keys, .. } = self;
        let held = keys.last(key);
        let version = held.at.version + 1 + coordinator.overtaken.get(key).copied().unwrap_or(0).min(64);
        let at = Timestamp { epoch: self.epochs.promised.number(), version, writer };
        let mut image = keys.store().image(key);
        let (mut record, mut changed, mut bytes) = (held.record.clone(), false, 0);
        if coordinator.overdue.remove(key) {
            keys.expire(key, time);
            changed = image.is_some() && keys.store().image(key).is_none();
        }
        let mut queue = coordinator.queues.remove(key).unwrap_or_default();
        let (mut answers, mut answered, mut expired, mut waiting) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        while let Some(write) = queue.pop_front() {
            let (opened, low) = write.session;
            let low = coordinator.lows.get(&write.name.nonce).map_or(low, |known| low.max(*known));
            match record.verdict(write.name, opened, low) {
                Verdict::Done(reply) => answered.push((write, Some(reply))),
                Verdict::Answered => answered.push((write, None)),
                Verdict::Unknown => expired.push(write),
                Verdict::Wait => waiting.push(write),
                Verdict::New => {
                    let command = keys.store().decode(&write.command).expect("it was decoded before");
                    if let Some(error) = command.refused() {
                        coordinator.refused.insert(write.name, command);
                        answered.push((write, Some(Reply::Error(error).encoded())));
                        continue;
                    }
                    let number = version << ORDINAL_BITS | answers.len() as u64;
                    let mut reply = keys.execute(&command, number, time).encoded();
                    let after = keys.store().image(key);
                    if after.as_ref().is_some_and(|after| after.len() > VALUE_LIMIT) {
                        keys.restore(key, image.as_ref());
                        let bytes = VALUE_LIMIT as u64;
                        reply = Reply::Error(CommandError::AboveLimit { bytes }).encoded();
                    } else {
                        image = after;
                    }
                    record.add(write.name, (opened, low), &reply);
                    bytes += write.command.len() + image.as_ref().map_or(0, Bytes::len);
                    answers.push((write, reply));
                    if answers.len() >= FOLD || bytes >= FOLD_BYTES {
                        break;
                    }
                }
            }
        }
        waiting.extend(queue);
        if !waiting.is_empty() {
            coordinator.queues.insert(key.clone(), waiting.into());
        }
        // What the record of a valid key says has taken effect; what it lacks that is refused has not.
        for (write, reply) in answered {
            self.coordinator.forget(&write);
            if let Some(reply) = reply {
                self.answer(&write, reply);
            }
        }
        for write in expired {
            self.coordinator.forget(&write);
            let (nonce, session) = (write.name.nonce, write.session.0);
            cx.send(write.proxy, Message::Client(clients::Message::Expired { nonce, session }));
        }
        match changed || !answers.is_empty() {
            true => self.propose(key, at, record, answers, cx),
            false => {
                self.coordinator.forget_overtaken(key);
                self.wake(key);
            }
        }
    }

    /// The key as it is here is a version that all who are live must have.
    fn propose(
        &mut self,
        key: &Key,
        at: Timestamp,
        record: super::record::Record,
        answers: Vec<(Write, Bytes)>,
        cx: &mut Context<'_, Self>,
    ) {
        let version = self.keys.stamp(key, at, record);
        cx.note(|| Fact::Invalid { key: digest(key) });
        self.persist_key(Record::Version(version.clone()), cx);
        self.coordinator.invalid.remove(key);
        let bytes = version.bytes();
        self.coordinator.versions.push(version);
        self.coordinator.proposed += 1;
        let (id, acks, sent, since) = (self.coordinator.proposed, NodeSet::EMPTY, cx.now(), cx.now());
        let pending = Pending { at, id, acks, answers, sent, since, contended: false, bytes };
        self.coordinator.pending.insert(key.clone(), pending);
    }

    /// Another has a later version: what is pending here is overtaken, and its writes are executed again.
    fn overtake(&mut self, key: &Key) {
        self.coordinator.yielded.remove(key);
        let Some(Pending { answers, .. }) = self.coordinator.end(key) else { return };
        if answers.is_empty() {
            return self.coordinator.forget_overtaken(key);
        }
        if mutation::active("hermes/overtaken-fails") {
            for (write, _) in answers {
                self.coordinator.forget(&write);
                self.answer(&write, Reply::Error(CommandError::NoRoom).encoded());
            }
            return self.coordinator.forget_overtaken(key);
        }
        *self.coordinator.overtaken.entry(key.clone()).or_default() += 1;
        let queue = self.coordinator.queues.entry(key.clone()).or_default();
        answers.into_iter().rev().for_each(|(write, _)| queue.push_front(write));
    }

    /// Takes a version over if it is later than what is here. False: it is earlier.
    pub(super) fn take_over(&mut self, version: &Version, cx: &mut Context<'_, Self>) -> bool {
        let (key, own) = (&version.key, self.keys.at(&version.key));
        if version.at < own {
            return false;
        }
        if version.at > own {
            if self.keys.put(version).is_err() {
                return false;
            }
            self.overtake(key);
            self.persist_key(Record::Version(version.clone()), cx);
            cx.note(|| Fact::Invalid { key: digest(key) });
            self.keys.set_valid(key, false);
            let wait = 3 * self.config.timeouts.heartbeat;
            self.coordinator.invalid.insert(key.clone(), cx.now() + wait);
        }
        if version.valid {
            self.validate(key, cx);
        }
        self.on_floor_of_another(version, cx);
        true
    }

    pub(super) fn on_inv(&mut self, from: NodeId, versions: Vec<Version>, cx: &mut Context<'_, Self>) {
        for version in versions {
            let (key, at) = (version.key.clone(), version.at);
            if from == self.me {
                // It is durable here.
                self.on_acks(from, vec![Ack { key, at, waits: false }], cx);
            } else if self.take_over(&version, cx) {
                let is_news = self.keys.is_valid(&key) && !version.valid;
                if is_news && !mutation::active("hermes/acknowledged-only") {
                    self.coordinator.confirmed.entry(from).or_default().push((key.clone(), at));
                }
                let waits = self.coordinator.queues.contains_key(&key);
                self.coordinator.acks.entry(from).or_default().push(Ack { key, at, waits });
            } else if let Some(later) = self.recall(&key, cx) {
                self.coordinator.later.entry(from).or_default().push(later);
            }
        }
    }

    pub(super) fn on_acks(&mut self, from: NodeId, acks: Vec<Ack>, cx: &mut Context<'_, Self>) {
        let mut answered: Option<(u64, u64)> = None;
        for Ack { key, at, waits } in acks {
            let is_asked = |pending: &&mut Pending| pending.at == at || mutation::active("hermes/any-ack");
            let Some(pending) = self.coordinator.pending.get_mut(&key).filter(is_asked) else { continue };
            let (first, last) = answered.unwrap_or((pending.id, pending.id));
            answered = Some((first.min(pending.id), last.max(pending.id)));
            pending.acks.insert(from);
            pending.contended |= waits;
            if self.epochs.live().iter().all(|node| pending.acks.contains(node)) {
                if pending.contended {
                    self.coordinator.yielded.insert(key.clone(), cx.now() + self.config.timeouts.heartbeat);
                }
                self.validate(&key, cx);
                self.coordinator.valid.push((key, at));
            }
        }
        if let Some((first, last)) = answered
            && let Some(peer) = self.coordinator.peers.get_mut(&from)
        {
            peer.on_answer(first..=last, cx.now());
        }
    }

    pub(super) fn on_val(&mut self, keys: Vec<(Key, Timestamp)>, cx: &mut Context<'_, Self>) {
        for (key, at) in keys {
            if self.keys.at(&key) == at || mutation::active("hermes/any-val") {
                self.validate(&key, cx);
            }
        }
    }

    /// The version that is here is committed.
    fn validate(&mut self, key: &Key, cx: &mut Context<'_, Self>) {
        if self.keys.is_valid(key) {
            return;
        }
        self.keys.set_valid(key, true);
        let at = self.keys.at(key);
        self.persist_key(Record::Valid { key: key.clone(), at }, cx);
        self.note_valid(key, cx);
        let slot = || digest(&(key.clone(), at.version, at.writer).to_bytes());
        cx.note(|| Fact::Applied { slot: slot(), digest: digest(key) });
        self.coordinator.invalid.remove(key);
        self.committed += 1;
        if let Some(Pending { answers, .. }) = self.coordinator.end(key) {
            self.coordinator.overtaken.remove(key);
            for (write, reply) in answers {
                self.coordinator.forget(&write);
                cx.note(|| Fact::Executed { slot: slot(), command: digest(&write.command) });
                self.answer(&write, reply);
            }
        }
        self.wake(key);
    }

    /// Everything that has gathered goes out.
    pub(super) fn send_versions(&mut self, cx: &mut Context<'_, Self>) {
        let (ballot, coordinator) = (self.epochs.promised, &mut self.coordinator);
        let versions = std::mem::take(&mut coordinator.versions);
        // What was overtaken meanwhile is not sent.
        let pending = versions.into_iter().filter(|version| {
            coordinator.pending.get(&version.key).is_some_and(|pending| pending.at == version.at)
        });
        let live = self.epochs.live();
        for versions in split(pending.collect()) {
            coordinator.on_sent(live.without(self.me), &versions, cx.now());
            cx.send_all(live, Message::Inv { ballot, versions });
        }
        for (to, versions) in std::mem::take(&mut coordinator.later) {
            for versions in split(versions) {
                cx.send(to, Message::Inv { ballot, versions });
            }
        }
        for (to, acks) in std::mem::take(&mut coordinator.acks) {
            cx.send(to, Message::Ack { ballot, acks });
        }
        for (to, keys) in std::mem::take(&mut coordinator.confirmed) {
            cx.send(to, Message::Val { ballot, keys });
        }
        let keys = std::mem::take(&mut coordinator.valid);
        if !keys.is_empty() {
            cx.send_all(self.epochs.live().without(self.me), Message::Val { ballot, keys });
        }
    }

    // Epochs -----------------------------------------------------------------------------------------------------

    /// An epoch begins in which this member is live. What is pending begins anew in it: acknowledgements of another
    /// epoch do not count, since others were asked. Messages that are still to be sent are true in it, too.
    pub(super) fn take_up(&mut self, cx: &mut Context<'_, Self>) {
        self.coordinator.peers.clear();
        if !self.is_whole {
            return self.stop_serving(cx);
        }
        let coordinator = &mut self.coordinator;
        let live = self.epochs.live();
        let is_orphan = |at: Timestamp| {
            let writer = Replica::member(at.writer);
            !writer.is_some_and(|writer| live.contains(writer))
        };
        for (key, due) in &mut coordinator.invalid {
            if is_orphan(self.keys.at(key)) {
                *due = cx.now();
            }
        }
        for key in coordinator.pending.keys().cloned().collect::<Vec<_>>() {
            self.replay(&key, cx);
        }
    }

    /// Sends the version that is here to all (again), whoever has written it.
    fn replay(&mut self, key: &Key, cx: &mut Context<'_, Self>) {
        let held = self.keys.get(key).cloned().expect("a key that is not valid is here");
        let at = match mutation::active("hermes/replayed-as-it-was") {
            true => held.at,
            false => Timestamp { epoch: self.epochs.promised.number(), ..held.at },
        };
        let before = self.coordinator.pending.remove(key);
        let acks = before.as_ref().map_or(NodeSet::EMPTY, |before| before.acks);
        let answers = before.map_or(Vec::new(), |before| before.answers);
        self.propose(key, at, held.record, answers, cx);
        if mutation::active("hermes/acks-of-earlier-epochs") {
            self.coordinator.pending.get_mut(key).expect("it was proposed").acks = acks;
        }
    }

    /// Replays what has not become valid in time, sends again what is not acknowledged, and removes keys whose time is
    /// up.
    pub(super) fn look_after_keys(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        if !self.serves() {
            return;
        }
        let due = self.coordinator.invalid.iter().filter(|(_, due)| **due <= now).take(AT_ONCE);
        for key in due.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.replay(&key, cx);
        }
        let (ballot, live) = (self.epochs.promised, self.epochs.live());
        for (key, late) in self.coordinator.late(live, now) {
            let pending = self.coordinator.pending.get_mut(&key).expect("it is late");
            pending.sent = now;
            let is_stuck = now.since(pending.since) >= self.epochs.silence();
            let mut to = late;
            if is_stuck && !mutation::active("hermes/acknowledged-once") {
                // Whoever is live answers, and yet one does not: another may know by now that it is committed.
                (pending.acks, pending.since, to) = (NodeSet::EMPTY, now, live);
            }
            let versions: Vec<_> = self.keys.version(&key).into_iter().collect();
            self.coordinator.on_sent(to.without(self.me), &versions, now);
            cx.send_all(to, Message::Inv { ballot, versions });
        }
        if let Some(time) = self.time(now, cx.wall()).filter(|_| self.epochs.owns()) {
            self.coordinator.overdue.extend(self.keys.store().overdue(time, AT_ONCE));
        }
    }

    /// This member is not live any more, or not whole: whoever waits here is sent to another.
    pub(super) fn stop_serving(&mut self, cx: &mut Context<'_, Self>) {
        let wait = 3 * self.config.timeouts.heartbeat;
        let pending: Vec<_> = self.coordinator.pending.keys().cloned().collect();
        let mut waiting = self.coordinator.take_waiting();
        self.coordinator.invalid.extend(pending.into_iter().map(|key| (key, cx.now() + wait)));
        waiting.extend(self.take_reads().into_iter().map(|read| (read.proxy, read.nonce)));
        let other = self.other(cx.now());
        waiting.into_iter().for_each(|(proxy, nonce)| self.intake.redirect(proxy, nonce, other));
    }
}

/// In messages of about [`INV_BYTES`].
fn split(versions: Vec<Version>) -> Vec<Vec<Version>> {
    let (mut parts, mut bytes) = (Vec::new(), INV_BYTES);
    for version in versions {
        if bytes >= INV_BYTES {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += version.bytes();
        parts.last_mut().expect("one was begun").push(version);
    }
    parts
}
