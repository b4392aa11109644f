//! Clients: what a proxy asks of a member, and reads. A member that is live and whole answers reads of keys that are
//! valid here from its own copy, while a majority of the acceptors have promised it not to promise another ballot
//! (`blocks::leases`). All that was acknowledged in this epoch it has acknowledged itself: the key is not valid here,
//! or has it. In no later epoch anything was committed.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_blocks::clients::{self, PendingRead};
use quorate_blocks::epochs::Replies;
use quorate_blocks::state::TIMELESS;
use quorate_core::{Context, Fact, NodeId, ProcessId, Time, Wall, mutation};
use quorate_store::{AHEAD, Command, CommandError, Key, Reply};

use super::record::Name;
use super::replica::Replica;
use super::writes::Write;
use super::{MAX_WAITING, Message};

/// A member without leases for so many election timeouts sends its clients to another.
const PATIENCE: u32 = 10;

/// What a read is about.
enum Asked {
    Key(Key, Command),
    /// No key: the level, or users, of which there are none.
    Nothing(Command),
    Refused(CommandError),
}

/// Reads that wait for their key to be valid, each once, however often its proxy repeats it.
#[derive(Debug, Default)]
pub struct Parked {
    keys: BTreeMap<Key, Vec<PendingRead>>,
    names: BTreeSet<(ProcessId, u64, u64)>,
}

impl Parked {
    /// Beyond [`MAX_WAITING`] a read is dropped, and asked for again.
    fn add(&mut self, key: Key, read: PendingRead) {
        let name = (read.proxy, read.nonce, read.id);
        if self.names.len() < MAX_WAITING && self.names.insert(name) {
            self.keys.entry(key).or_default().push(read);
        }
    }

    fn take(&mut self, key: &Key) -> Vec<PendingRead> {
        let reads = self.keys.remove(key).unwrap_or_default();
        for read in &reads {
            self.names.remove(&(read.proxy, read.nonce, read.id));
        }
        reads
    }

    fn take_all(&mut self) -> impl Iterator<Item = PendingRead> {
        std::mem::take(self).keys.into_values().flatten()
    }
}

impl Replica {
    pub(super) fn on_client(
        &mut self,
        from: ProcessId,
        message: clients::Message,
        cx: &mut Context<'_, Self>,
    ) {
        let (clients::Message::Ask(mut ask), ProcessId::Proxy(_)) = (message, from) else { return };
        if !self.serves() || self.is_leaseless(cx.now()) {
            let other = self.other(cx.now());
            return self.intake.redirect(from, ask.nonce, other);
        }
        let (nonce, opened, low) = (ask.nonce, ask.session, ask.low);
        self.coordinator.on_answers(nonce, low);
        if ask.open {
            let session = self.keys.opens_at(self.time(cx.now(), cx.wall()).unwrap_or(cx.wall()));
            cx.send(from, Message::Client(clients::Message::Opened { nonce, session }));
        } else if ask.is_probe() {
            return self.intake.redirect(from, nonce, Some(self.me));
        }
        for (seq, command) in std::mem::take(&mut ask.writes) {
            let write = Write { proxy: from, name: Name { nonce, seq }, session: (opened, low), command };
            self.on_write(write);
        }
        if !ask.reads.is_empty() || !ask.manage.is_empty() {
            let ask = clients::Ask { session: 0, open: false, ..ask };
            self.intake.on_ask(from, ask, &self.nothing);
        }
    }

    /// Somebody who can serve clients in place of this member, as far as it knows.
    pub(super) fn other(&self, now: Time) -> Option<NodeId> {
        let others = self.whole.without(self.me);
        let after = others.iter().find(|node| *node > self.me);
        after.or(others.iter().next()).filter(|_| self.hears_owner(now))
    }

    fn hears_owner(&self, now: Time) -> bool {
        self.epochs.owns() || self.epochs.monitor.has_leader(now)
    }

    /// All reads that wait.
    pub(super) fn take_reads(&mut self) -> Vec<PendingRead> {
        let mut reads = std::mem::take(&mut self.reads);
        reads.extend(self.parked.take_all().chain(self.intake.take_reads()).chain(self.epochs.take_reads()));
        reads
    }

    fn asked(&self, command: &Bytes) -> Asked {
        match self.keys.store().decode(command) {
            Err(error) => Asked::Refused(error),
            Ok(command) if !command.is_read_only() => Asked::Refused(CommandError::Malformed),
            Ok(command @ (Command::Level | Command::Users | Command::UserChanges)) => Asked::Nothing(command),
            Ok(command) => match command.only_key() {
                Ok(Some(key)) => Asked::Key(key, command),
                Ok(None) => Asked::Nothing(command),
                Err(_) => Asked::Refused(CommandError::Unordered),
            },
        }
    }

    pub(super) fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        let asked = self.intake.take_reads();
        match self.reads.is_empty() && asked.len() <= MAX_WAITING {
            true => self.reads = asked,
            false => self.reads.extend(asked.into_iter().take(MAX_WAITING.saturating_sub(self.reads.len()))),
        }
        let now = cx.now();
        let until = self.readable_until(now);
        self.epochs.note_reads(until, cx);
        if !self.may_read(now) {
            return;
        }
        if self.hears_owner(now) {
            self.leaseless = None;
        }
        let time = self.time(now, cx.wall());
        let mut reads = std::mem::take(&mut self.reads).into_iter();
        while !reads.as_slice().is_empty() {
            self.keys.store().touch(reads.as_slice().iter().map(|read| &read.command));
            reads.by_ref().take(AHEAD).for_each(|read| self.serve_read(read, time, cx));
        }
    }

    /// Of a member that may read.
    fn serve_read(&mut self, read: PendingRead, time: Option<Wall>, cx: &mut Context<'_, Self>) {
        let number = self.epochs.promised.number();
        let reply = match self.asked(&read.command) {
            Asked::Refused(error) => Reply::Error(error).encoded().into(),
            Asked::Nothing(command) => self.keys.store().read_encoded(&command),
            Asked::Key(key, command) if self.may_show(&key, &command, time) => {
                if let Some(eager) = &mut self.epochs.eager {
                    return eager.execute(read, |_| self.keys.store().read_encoded(&command).into_bytes());
                }
                cx.note(|| Fact::ServesLocally { number });
                self.keys.store().read_encoded(&command)
            }
            Asked::Key(key, _) => {
                if self.keys.is_valid(&key) {
                    self.coordinator.overdue.insert(key.clone());
                }
                return self.parked.add(key, read);
            }
        };
        self.intake.on_read(read, reply);
    }

    /// Whether a key is valid, and not overdue: whether it is gone then is for a write to say.
    fn may_show(&self, key: &Key, command: &Command, time: Option<Wall>) -> bool {
        let is_valid = self.keys.is_valid(key) || mutation::active("hermes/read-invalid");
        is_valid && self.keys.store().is_current(command, time.unwrap_or(TIMELESS))
    }

    /// Reads that wait for a key are looked at again.
    pub(super) fn wake(&mut self, key: &Key) {
        self.reads.extend(self.parked.take(key));
    }

    /// Whether the key of a read is such that it would be answered.
    pub(super) fn would_show(&self, command: &Bytes, now: Time, wall: Wall) -> bool {
        match self.asked(command) {
            Asked::Key(key, command) => {
                self.readable_until(now).is_some() && self.may_show(&key, &command, self.time(now, wall))
            }
            Asked::Nothing(_) | Asked::Refused(_) => false,
        }
    }

    /// Whether it takes reads up now: under leases, or to ask afterwards.
    fn may_read(&self, now: Time) -> bool {
        if self.epochs.eager.is_some() { self.serves() } else { self.readable_until(now).is_some() }
    }

    pub(super) fn answer_reads(&mut self, replies: Replies) {
        replies.into_iter().for_each(|(read, reply)| self.intake.on_read(read, reply));
    }

    /// Until when this member may answer from its own copy, if it may.
    pub(super) fn readable_until(&self, now: Time) -> Option<Time> {
        self.epochs.leased_until(now).filter(|_| self.serves())
    }

    /// Whether it has had no leases for so long, or has heard no owner, that its clients are better off elsewhere. It
    /// may be slow for good, or in an epoch that is over.
    fn is_leaseless(&self, now: Time) -> bool {
        let limit = PATIENCE * self.config.timeouts.election;
        let is_left_behind = !self.hears_owner(now) && !mutation::active("hermes/left-behind");
        self.leaseless.is_some_and(|since| now.since(since) >= limit)
            && (is_left_behind || self.other(now).is_some())
    }

    /// Whether it has owned an epoch for long, and has no leases, so that it sends its clients to other live members.
    /// These may have none either and send them back, and support no candidate while they hear the owner: another owner
    /// may do better.
    pub(super) fn owns_without_leases(&self, now: Time) -> bool {
        let stays = mutation::active("hermes/leaseless-owner-stays");
        self.epochs.lasts(PATIENCE, now) && self.is_leaseless(now) && !stays
    }

    /// Called now and then.
    pub(super) fn look_after_reads(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match self.may_read(now) && self.hears_owner(now) {
            true => self.leaseless = None,
            false => drop(self.leaseless.get_or_insert(now)),
        }
        if self.is_leaseless(now) || !self.serves() {
            let other = self.other(now);
            for read in self.take_reads() {
                self.intake.redirect(read.proxy, read.nonce, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::ProxyId;

    use super::*;

    #[test]
    fn reads_that_wait_for_a_key_wait_once_and_so_many_at_most() {
        let read = |id| PendingRead { proxy: ProxyId(1).into(), nonce: 1, id, command: Bytes::new() };
        let key = |id: u64| Key::from(format!("{}", id % 3));
        let mut parked = Parked::default();
        for id in (0..2).flat_map(|_| 0..MAX_WAITING as u64 + 10) {
            parked.add(key(id), read(id));
        }
        let (first, rest) = (parked.take(&key(0)), MAX_WAITING - MAX_WAITING.div_ceil(3));
        assert_eq!((first.len(), parked.names.len()), (MAX_WAITING - rest, rest));
        parked.add(key(0), read(0));
        assert_eq!(parked.take_all().count(), rest + 1, "one that was taken may come back");
        assert!(parked.names.is_empty() && parked.keys.is_empty());
    }
}
