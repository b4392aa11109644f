//! What clients want of a replica, where any replica may propose: writes, reads that wait for an instance of their
//! own, and the end of keys whose time is up.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Builder, Entry};
use quorate_blocks::clients::{self, Intake, PendingRead, ReadQueue};
use quorate_blocks::instance::Instance;
use quorate_blocks::settings::IntakeConfig;
use quorate_blocks::state::{Effect, Replicated};
use quorate_core::{Context, NodeId, NodeSet, ProcessId, Shortage, Time, Wall};

use super::{Host, Learner};
use crate::epaxos::graph::Interference;
use crate::epaxos::graph::instance_state::InstanceState;

/// Keys that expire together, and their bytes; a single one may be longer.
const EXPIRE: usize = 128;
const EXPIRE_BYTES: usize = 1 << 20;
/// Keys that are overdue and looked at; those behind them wait their turn.
const OVERDUE: usize = 1024;

/// See the file comment.
#[derive(Debug)]
pub(super) struct Requests {
    me: NodeId,
    config: IntakeConfig,
    intake: Intake,
    /// Reads that need an instance, and those that have one.
    queue: ReadQueue,
    reads: BTreeMap<Instance, Vec<PendingRead>>,
    /// To propose although no client asks for it.
    extra: Vec<Entry>,
    /// The own instance that last made keys expire.
    expiring: u64,
    /// The last batch was left to a long read.
    long_read: bool,
    draining: bool,
}

impl Requests {
    pub(super) fn new(me: NodeId, config: IntakeConfig) -> Requests {
        Requests {
            me,
            intake: Intake::new(me.into(), config.max_bytes),
            config,
            queue: ReadQueue::default(),
            reads: BTreeMap::new(),
            extra: Vec::new(),
            expiring: 0,
            long_read: false,
            draining: false,
        }
    }

    pub(super) fn on_client(&mut self, from: ProcessId, message: clients::Message, state: &Replicated) {
        let clients::Message::Ask(ask) = message else { return };
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        if self.draining {
            self.intake.redirect(from, ask.nonce, None);
        } else {
            self.intake.on_ask(from, ask, state);
        }
    }

    /// This replica does not serve yet. A probe is not answered: who sends it may be served by another.
    pub(super) fn turn_away(&mut self, from: ProcessId, message: clients::Message) {
        let clients::Message::Ask(ask) = message else { return };
        if matches!(from, ProcessId::Proxy(_)) && !ask.is_probe() {
            self.intake.redirect(from, ask.nonce, None);
        }
    }

    /// Whether there is something to propose.
    pub(super) fn wait(&mut self, now: Time) -> bool {
        let reads = self.intake.take_reads();
        self.queue.add(reads, self.config.max_bytes, now);
        self.queue.forget_given_up(now);
        self.intake.has_writes() || !self.queue.is_empty() || !self.extra.is_empty()
    }

    /// The batch of an own instance: writes, reads, and the end of keys that they find overdue. It has the bytes that a
    /// batch may have, or one longer entry, and the end of a few keys. A read that finds no room beside writes gets a
    /// batch of its own, every other time.
    pub(super) fn take_batch(&mut self, instance: Instance, state: &Replicated, wall: Wall) -> Bytes {
        let limits = self.config.batch;
        let has_long_read = self.queue.next_bytes().is_some_and(|bytes| bytes > limits.bytes / 2);
        self.long_read = has_long_read && !self.long_read;
        let mut idle = Builder::new();
        let empty = self.long_read || !self.intake.has_writes();
        let value = if empty { idle.take(limits, wall) } else { self.intake.take_batch(limits, wall) };
        let mut bytes = value.len();
        let mut reads = Vec::new();
        while reads.len() < limits.entries
            && let Some(next) = self.queue.next_bytes()
            && (bytes + next <= limits.bytes || empty && reads.is_empty())
        {
            let Some(read) = self.queue.take() else { break };
            bytes += read.command.len();
            reads.push(read);
        }
        let entries = reads.iter().map(|read| Entry::Read { command: read.command.clone() });
        let mut entries: Vec<_> = entries.chain(std::mem::take(&mut self.extra)).collect();
        if state.next_expiry().is_some_and(|at| at <= wall) {
            let touched = Interference::of(&Batch::extended(value.clone(), &entries));
            let mut overdue = state.overdue(wall, OVERDUE);
            overdue.retain(|key| touched.touches(key));
            let keys = first_bytes(overdue);
            if !keys.is_empty() {
                entries.push(Entry::Expire { keys });
            }
        }
        if !reads.is_empty() {
            self.reads.insert(instance, reads);
        }
        Batch::extended(value, &entries)
    }

    /// Something was executed.
    pub(super) fn on_effect(&mut self, instance: Instance, effect: Effect) {
        // One replica is enough to tell that a session is open.
        if !matches!(effect, Effect::Opened { .. }) || instance.owner() == self.me {
            self.intake.on_effect(effect);
        }
    }

    /// Answers the reads of an instance that was just executed.
    pub(super) fn answer(&mut self, instance: Instance, state: &Replicated, wall: Wall) {
        for read in self.reads.remove(&instance).into_iter().flatten() {
            if !self.intake.has_room() {
                // Its proxy repeats it: it gets another instance.
                self.queue.done(&read);
                continue;
            }
            match state.read(&read.command, wall) {
                Some(reply) => {
                    self.queue.done(&read);
                    self.intake.on_read(read, reply);
                }
                // An instance must decide whether what it touches has expired.
                None => self.queue.again(read),
            }
        }
    }

    /// A no-op took the place of an own instance: whoever asked for it still waits for it.
    pub(super) fn on_noop(&mut self, instance: Instance, held: &InstanceState) {
        held.command.iter().for_each(|command| self.intake.retry(command));
        let reads = self.reads.remove(&instance).into_iter().flatten();
        reads.for_each(|read| self.queue.again(read));
    }

    /// Whoever waits for answers of an earlier life asks again.
    pub(super) fn restart(&mut self) {
        self.intake.clear();
    }

    /// Instances are gone that may have been here. What came of the writes is in the session table, if no-ops did not
    /// take their places: they are asked again. Reads need another instance.
    pub(super) fn retire(&mut self, is_here: impl Fn(&Instance) -> bool) {
        self.intake.retire();
        let gone = self.reads.extract_if(.., |instance, _| !is_here(instance)).flat_map(|(_, reads)| reads);
        gone.for_each(|read| self.queue.again(read));
    }

    /// Proposes the end of keys whose time is up, in the own instance `next`; one replica after the other, each so much
    /// later, so that mostly one does.
    pub(super) fn let_expire(
        &mut self,
        (members, turn): (NodeSet, Duration),
        next: u64,
        state: &Replicated,
        wall: Wall,
    ) {
        let rank = members.iter().position(|node| node == self.me).unwrap_or(0) as u64;
        let wall = Wall::from_millis(wall.millis().saturating_sub(rank * turn.as_millis() as u64));
        let busy = self.expiring > state.executed().prefix().of(self.me);
        if busy || self.draining || state.next_expiry().is_none_or(|at| at > wall) {
            return;
        }
        self.extra = vec![Entry::Expire { keys: first_bytes(state.overdue(wall, EXPIRE)) }];
        self.expiring = next;
    }
}

impl Learner {
    /// A proxy speaks.
    pub fn on_client(&mut self, from: ProcessId, message: clients::Message, now: Time) {
        match self.is_whole() && !self.is_hung(now) {
            true => self.requests.on_client(from, message, &self.state),
            false => self.requests.turn_away(from, message),
        }
    }

    /// Says what there is to say to clients.
    pub fn flush<M: Host>(&mut self, cx: &mut Context<'_, M>) {
        for (proxy, message) in self.requests.intake.flush(&self.state) {
            cx.send(proxy, message.into());
        }
    }

    /// Sends new clients to others.
    pub fn drain(&mut self) {
        self.requests.draining = true;
    }

    /// While this node is short of something, writes that grow the data are refused. Each refusal is an instance, as
    /// the write would be: another replica may have been asked for it, and what is executed first is the answer.
    pub fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.requests.intake.set_shortage(shortage);
    }
}

/// The first of these keys, up to so many bytes.
fn first_bytes(mut keys: Vec<Bytes>) -> Vec<Bytes> {
    let mut bytes = 0;
    let fit = keys.iter().take_while(|key| {
        bytes += key.len();
        bytes <= EXPIRE_BYTES
    });
    let fit = fit.count().max(1);
    keys.truncate(fit);
    keys
}

#[cfg(test)]
mod tests {
    use quorate_blocks::settings;
    use quorate_core::{ProxyId, Settings, Wire};
    use quorate_store::Command;

    use super::*;

    /// Replies take all the room that there is.
    #[test]
    fn a_read_that_finds_no_room_is_executed_when_its_proxy_repeats_it() {
        let me = NodeId::new(1).expect("an id");
        let config = settings::intake(&mut Settings::default()).expect("defaults");
        let (mut requests, state, instance) =
            (Requests::new(me, config), Replicated::default(), |index| Instance::new(me, index));
        let command = Command::Get { key: Bytes::from_static(b"k") }.to_bytes();
        let read =
            || PendingRead { proxy: ProxyId::of(me).into(), nonce: 1, id: 1, command: command.clone() };
        for index in 1..=2 {
            requests.queue.add(vec![read()], 100, Time::ZERO);
            assert!(requests.wait(Time::ZERO), "{index}");
            requests.take_batch(instance(index), &state, Wall::default());
            while index == 1 && requests.intake.take_room(1 << 20) {}
            requests.answer(instance(index), &state, Wall::default());
            assert_eq!(requests.intake.flush(&state).len(), index as usize - 1);
        }
    }
}
