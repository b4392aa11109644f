//! **primary-copy**: a primary that copies its log to its backups.
//! This is what `cargo xtask new-protocol` makes a new protocol from.
//!
//! The member with the smallest id is the primary, for ever: nobody takes over while it is away. No paper.
//!
//! | rule | code |
//! |---|---|
//! | 1 the primary gives each batch of commands the next slot, and logs it before a copy leaves | `propose`, `Message::release` |
//! | 2 a member acknowledges what is durable in its log, which has no gaps | `on_copy`, `Message::release` |
//! | 3 a slot is committed when a majority has acknowledged it, the primary included | `advance` |
//! | 4 committed slots are executed in order; then clients are answered | `execute` |
//! | 5 the primary answers reads from its state, once it has executed what its log held when it started | `serve_reads` |
//!
//! # Why it is right
//!
//! A slot has one value: only the primary gives slots values, and it has its own on disk before anybody else hears of
//! it (1), so it does not forget it in a crash and give the slot another. What is acknowledged to a client is in the
//! primary's log (3), and each later life of the primary executes it before it answers a read (5): reads are
//! linearizable.
//!
//! # Decisions
//!
//! - *The slowest backup holds writes up*: the primary keeps what a backup lacks, and takes no more writes when that is
//!   more than `log.retain`. So no backup ever needs a snapshot.
//! - *There is no failover*, and [`Capabilities::failover`] says so: simulators do not take the primary away for good.

mod invariants;
mod message;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::clients::{self, Intake, PendingRead, ProxyConfig, SessionClient};
use quorate_blocks::quorum::majority_reached;
use quorate_blocks::settings::{self, IntakeConfig};
use quorate_blocks::state::Replicated;
use quorate_core::{
    Capabilities, Context, Fact, Group, Instant, Machine, Mark, NodeId, NodeSet, ProcessId, Protocol,
    Salvaged, Saved, Settings, SettingsError, Shortage, Status, mutation,
};

pub use message::{Message, Record};

/// See the module's comment.
#[derive(Debug)]
pub struct PrimaryCopy;

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    members: NodeSet,
    intake: IntakeConfig,
    /// How often the primary speaks to its backups.
    heartbeat: Duration,
    /// Bytes of values that a backup may lack before writes wait for it.
    retain: usize,
}

impl Protocol for PrimaryCopy {
    const NAME: &'static str = "primary-copy";
    const PAPER: &'static str = "none: an example with no failover";
    const CAPABILITIES: Capabilities =
        Capabilities { failover: false, reads: "at the primary", ..Capabilities::LOGGED };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        let config = Config {
            members: group.members,
            intake: settings::intake(settings)?,
            heartbeat: settings::heartbeat(settings)?,
            retain: settings::retain(settings)?,
        };
        Ok((config, settings::proxy(group, settings)?))
    }
}

/// Bytes of values in one message, before the last.
const COPY_BYTES: usize = 1 << 20;
/// Slots that may be on their way to a backup.
const WINDOW: u64 = 32;
/// Reads that may wait at the primary; further ones are asked for again.
const MAX_WAITING: usize = 1 << 16;

/// A replica's wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The primary tells its backups what is committed, and sends again what they have not acknowledged.
    Heartbeat,
}

/// What the primary knows of a member.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Durable there up to this slot; none until it has said so in this life of the primary.
    acknowledged: Option<u64>,
    /// Sent up to this slot.
    sent: u64,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    config: Config,
    me: NodeId,
    primary: NodeId,
    state: Replicated,
    /// Values by slot: those that are not executed, and at the primary those that a backup may lack.
    log: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// The last slot of the log when this life began.
    inherited: u64,
    committed: u64,
    intake: Intake,
    /// Reads that cannot be answered yet.
    waiting: Vec<PendingRead>,
    /// The primary's: all members, itself included.
    peers: BTreeMap<NodeId, Peer>,
    /// A backup's: whether the primary is to be told how far its log goes.
    acknowledge: bool,
}

impl Replica {
    fn leads(&self) -> bool {
        self.me == self.primary
    }

    fn last(&self) -> u64 {
        self.log.last_key_value().map_or(self.state.applied(), |(slot, _)| *slot)
    }

    /// The last slot before the log.
    fn base(&self) -> u64 {
        self.log.first_key_value().map_or(self.state.applied(), |(slot, _)| slot - 1)
    }

    fn append(&mut self, slot: u64, value: Bytes, cx: &mut Context<'_, Self>) {
        cx.persist(Record { slot, value: value.clone() });
        self.bytes += value.len();
        self.log.insert(slot, value);
    }

    /// The primary gives what waits the next slots, and sends backups what they lack.
    fn propose(&mut self, cx: &mut Context<'_, Self>) {
        let mut needs_empty_batch = self.state.wants_slot(cx.wall()) && self.last() == self.state.applied();
        while self.bytes <= self.config.retain && (self.intake.has_writes() || needs_empty_batch) {
            needs_empty_batch = false;
            let value = self.intake.take_batch(self.config.intake.batch, cx.wall());
            let slot = self.last() + 1;
            cx.mark(Mark::Proposed { slot });
            self.append(slot, value, cx);
            cx.mark(Mark::Recorded { slot });
        }
        let last = self.last();
        let mut sent = Vec::new();
        for (&node, peer) in &mut self.peers {
            if node == self.me {
                if peer.sent < last {
                    peer.sent = last;
                    sent.push((node, Message::Copied { upto: last }));
                }
                continue;
            }
            let Some(acknowledged) = peer.acknowledged else { continue };
            while peer.sent < last.min(acknowledged + WINDOW) {
                let from = peer.sent + 1;
                let (mut values, mut bytes) = (Vec::new(), 0);
                for (slot, value) in self.log.range(from..) {
                    bytes += value.len();
                    values.push(value.clone());
                    peer.sent = *slot;
                    if bytes >= COPY_BYTES {
                        break;
                    }
                }
                sent.push((node, Message::Copy { from, values, committed: self.committed }));
            }
        }
        for (node, message) in sent {
            cx.send(node, message);
        }
    }

    /// A backup gets values.
    fn on_copy(&mut self, from: u64, values: Vec<Bytes>, committed: u64, cx: &mut Context<'_, Self>) {
        // Behind a gap there is nothing to be done: the primary hears how far this log goes.
        let skipped = (self.last() + 1).checked_sub(from).and_then(|known| usize::try_from(known).ok());
        for value in values.into_iter().skip(skipped.unwrap_or(usize::MAX)) {
            self.append(self.last() + 1, value, cx);
        }
        self.acknowledge = true;
        self.commit(committed.min(self.last()), cx);
    }

    /// The primary hears how far a log goes that has no gaps.
    fn on_copied(&mut self, from: NodeId, upto: u64, cx: &mut Context<'_, Self>) {
        let (base, last) = (self.base(), self.last());
        // Nobody has what the primary does not have.
        let Some(peer) = self.peers.get_mut(&from).filter(|_| upto <= last) else { return };
        // Everybody has what was dropped here: an answer that says otherwise is from before that.
        let upto = upto.max(base);
        peer.sent = if peer.acknowledged.is_none() { upto } else { peer.sent.max(upto) };
        peer.acknowledged = peer.acknowledged.max(Some(upto));
        self.advance(cx);
    }

    fn advance(&mut self, cx: &mut Context<'_, Self>) {
        let own = self.peers[&self.me].acknowledged;
        let majority = majority_reached(self.peers.values().map(|peer| peer.acknowledged));
        let majority = if mutation::active("primary-copy/commit-alone") { own } else { majority };
        self.commit(own.min(majority).unwrap_or_default(), cx);
    }

    fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        self.committed = self.committed.max(upto);
        self.execute(cx);
        self.forget();
    }

    fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let leads = self.leads();
        while self.state.applied() < self.committed {
            let slot = self.state.applied() + 1;
            let value = self.log[&slot].clone();
            cx.mark(Mark::Committed { slot });
            let intake = &mut self.intake;
            let effect = |effect| {
                if leads {
                    intake.on_effect(effect);
                }
            };
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            if leads {
                cx.mark(Mark::Applied { slot, requests });
            }
        }
    }

    /// Drops what is executed and no backup lacks.
    fn forget(&mut self) {
        let held = self.peers.values().map(|peer| peer.acknowledged.unwrap_or_default()).min();
        let upto = held.unwrap_or(u64::MAX).min(self.state.applied());
        while let Some(entry) = self.log.first_entry().filter(|entry| *entry.key() <= upto) {
            self.bytes -= entry.remove().len();
        }
    }

    fn serve_reads(&mut self, cx: &mut Context<'_, Self>) {
        let mut reads = std::mem::take(&mut self.waiting);
        reads.append(&mut self.intake.take_reads());
        let knows = self.state.applied() >= self.inherited || mutation::active("primary-copy/read-at-once");
        for read in reads {
            match self.state.read(&read.command, cx.wall()) {
                // What has no room is asked for again.
                Some(_) if knows && !self.intake.has_room() => {}
                Some(reply) if knows => self.intake.on_read(read, reply),
                // Until its log is executed, or a slot has told that a key's time is up.
                _ if self.waiting.len() < MAX_WAITING => self.waiting.push(read),
                _ => {}
            }
        }
    }
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let load = |image| Replicated::load(&image).expect("an image that was saved loads");
        let state = saved.snapshot.map_or_else(Replicated::default, load);
        let log: BTreeMap<_, _> =
            saved.records.into_iter().map(|Record { slot, value }| (slot, value)).collect();
        let me = cx.me().replica().expect("a replica's process id");
        let primary = config.members.iter().next().expect("a group has members");
        let mut replica = Replica {
            me,
            primary,
            committed: state.applied(),
            bytes: log.values().map(Bytes::len).sum(),
            log,
            inherited: 0,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            waiting: Vec::new(),
            peers: BTreeMap::new(),
            acknowledge: false,
            state,
            config,
        };
        replica.inherited = replica.last();
        if replica.leads() {
            // How far the backups are is not known: a first message asks each.
            let unknown = Peer { acknowledged: None, sent: replica.inherited };
            replica.peers = replica.config.members.iter().map(|node| (node, unknown)).collect();
            if let Some(own) = replica.peers.get_mut(&me) {
                own.acknowledged = Some(replica.inherited);
            }
            let open = replica.log.range(replica.committed + 1..).map(|(_, value)| value);
            replica.intake.expect(open);
            cx.set_timer(Timer::Heartbeat, Duration::ZERO);
        }
        let slot = replica.state.applied();
        cx.note(|| Fact::Installed { slot });
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        match (message, from.replica()) {
            (Message::Client(clients::Message::Ask(ask)), None) => match self.leads() {
                true => self.intake.on_ask(from, ask, &self.state),
                false => self.intake.redirect(from, ask.nonce, Some(self.primary)),
            },
            (Message::Copy { from, values, committed }, Some(node))
                if node == self.primary && !self.leads() =>
            {
                self.on_copy(from, values, committed, cx);
            }
            (Message::Copied { upto }, Some(node)) if self.leads() => self.on_copied(node, upto, cx),
            (Message::Client(_) | Message::Copy { .. } | Message::Copied { .. }, _) => {}
        }
    }

    fn on_timer(&mut self, Timer::Heartbeat: Timer, cx: &mut Context<'_, Self>) {
        // Alone it hears of nobody who has what its log held when it started.
        self.advance(cx);
        let committed = self.committed;
        for (&node, peer) in self.peers.iter_mut().filter(|(node, _)| **node != self.me) {
            // What is not acknowledged is sent again at the end of the batch; a message without values asks how far
            // the backup is.
            peer.sent = peer.acknowledged.unwrap_or(peer.sent);
            cx.send(node, Message::Copy { from: peer.sent + 1, values: Vec::new(), committed });
        }
        cx.set_timer(Timer::Heartbeat, self.config.heartbeat);
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        if self.leads() {
            self.serve_reads(cx);
            self.propose(cx);
        } else if std::mem::take(&mut self.acknowledge) {
            cx.send(self.primary, Message::Copied { upto: self.last() });
        }
        for (proxy, message) in self.intake.flush(&self.state) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        invariants::check(self);
    }
}

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let records = self.log.iter().map(|(&slot, value)| Record { slot, value: value.clone() });
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records: records.collect() }
    }

    /// All of the log.
    fn salvage(&self) -> Salvaged {
        let mut state = Replicated::load(&self.state.freeze()).expect("an image that was made loads");
        while let Some(value) = self.log.get(&(state.applied() + 1)) {
            state.apply(state.applied() + 1, value, |_| {}, |_| {});
        }
        let undecided = state.applied() - self.committed;
        Salvaged { state: state.freeze(), undecided, left_out: 0 }
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn status(&self, _: Instant) -> Status {
        Status {
            role: if self.leads() { "primary" } else { "backup" },
            leader: Some(self.primary),
            ballot: "-".to_owned(),
            committed: self.committed,
            applied: self.state.applied(),
            lease: self.leads(),
            reads: "at the primary",
            peers: Vec::new(),
            samples: self.state.samples().into(),
            facts: Vec::new(),
        }
    }
}
