//! **unreplicated**: one copy on one disk. For comparison, and as the smallest example of a protocol: what every
//! other one costs is measured against it.
//!
//! | step | code |
//! |---|---|
//! | writes are logged; a message to itself comes back when they are durable | `on_batch_end`, `Message::release` |
//! | then they are executed and answered | `on_message` |
//! | reads are answered from the state, which holds nothing that a crash could undo | `on_batch_end` |

use std::collections::VecDeque;

use bytes::Bytes;
use quorate_blocks::clients::{Intake, Message as Client, PendingRead, ProxyConfig, SessionClient};
use quorate_blocks::{embed_clients, settings, settings::IntakeConfig, state::Replicated};
use quorate_core::*;

/// See the file comment.
#[derive(Debug)]
pub struct Unreplicated;

impl Protocol for Unreplicated {
    const NAME: &'static str = "unreplicated";
    const PAPER: &'static str = "none: one copy, for comparison";
    const CAPABILITIES: Capabilities =
        Capabilities { failover: false, reads: "local", max_nodes: 1, ..Capabilities::LOGGED };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(
        group: &Group,
        settings: &mut Settings,
    ) -> Result<(IntakeConfig, ProxyConfig), SettingsError> {
        Ok((settings::intake(settings)?, settings::proxy(group, settings)?))
    }
}

/// What the replica hears.
#[derive(Clone, Debug)]
pub enum Message {
    /// From and to clients.
    Client(Client),
    /// From itself: the slots up to here are durable.
    Durable(u64),
}
wire_enum!(Message { 1 => Client(message), 2 => Durable(slot) });

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self {
            // Shows only what has been executed, and so is durable.
            Message::Client(_) => Release::Now,
            Message::Durable(_) => Release::AfterSync,
        }
    }

    fn class(&self) -> Class {
        match self {
            Message::Client(message) => message.class(),
            _ => Class::Urgent,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Message::Client(message) => message.kind(),
            other => other.variant(),
        }
    }
}

embed_clients!(Message);

/// The only replica.
#[derive(Debug)]
pub struct Replica {
    config: IntakeConfig,
    state: Replicated,
    intake: Intake,
    /// Logged and not executed yet: the slots after `state.applied()`.
    pending: VecDeque<Bytes>,
    /// Reads of keys whose time is up, until a batch has told the time.
    waiting: Vec<PendingRead>,
}

impl Replica {
    fn execute(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        while let Some(value) = self.pending.pop_front_if(|_| self.state.applied() < upto) {
            let slot = self.state.applied() + 1;
            cx.mark(Mark::Committed { slot });
            let requests =
                self.state.apply(slot, &value, |effect| self.intake.on_effect(effect), |fact| cx.note(fact));
            cx.mark(Mark::Applied { slot, requests });
        }
    }
}

impl Machine for Replica {
    type Config = IntakeConfig;
    type Message = Message;
    type Record = Bytes;
    type Timer = Never;
    fn recover(config: IntakeConfig, saved: Saved<Bytes>, cx: &mut Context<'_, Self>) -> Self {
        let state =
            saved.snapshot.map(|image| Replicated::load(&image).expect("an image that was saved loads"));
        let (intake, pending) = (Intake::new(cx.me(), config.max_bytes), saved.records.into());
        let mut replica =
            Replica { config, state: state.unwrap_or_default(), intake, pending, waiting: Vec::new() };
        cx.note(|| Fact::Installed { slot: replica.state.applied() });
        replica.execute(u64::MAX, cx);
        // Whoever waits for answers of an earlier life asks again.
        replica.intake.clear();
        replica
    }
    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        match message {
            Message::Client(Client::Ask(ask)) => self.intake.on_ask(from, ask, &self.state),
            Message::Durable(slot) if from == cx.me() => self.execute(slot, cx),
            Message::Client(_) | Message::Durable(_) => {}
        }
    }
    fn on_timer(&mut self, timer: Never, _: &mut Context<'_, Self>) {
        match timer {}
    }
    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        let mut reads = std::mem::take(&mut self.waiting);
        reads.append(&mut self.intake.take_reads());
        for read in reads {
            if !self.intake.has_room() {
                // The proxies repeat it, and those behind it.
                break;
            }
            match self.state.read(&read.command, cx.wall()) {
                Some(reply) => self.intake.on_read(read, reply),
                None => self.waiting.push(read),
            }
        }
        let mut needs_empty_batch = self.pending.is_empty() && !self.waiting.is_empty();
        while self.intake.has_writes() || std::mem::take(&mut needs_empty_batch) {
            let value = self.intake.take_batch(self.config.batch, cx.wall());
            cx.persist(value.clone());
            self.pending.push_back(value);
            let slot = self.state.applied() + self.pending.len() as u64;
            cx.mark(Mark::Proposed { slot });
            cx.mark(Mark::Recorded { slot });
            cx.send(cx.me(), Message::Durable(slot));
        }
        for (proxy, message) in self.intake.flush(&self.state) {
            cx.send(proxy, Message::Client(message));
        }
    }
}

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Bytes> {
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records: self.pending.clone().into() }
    }
    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }
    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }
    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }
    fn status(&self, _: Instant) -> Status {
        let (applied, ballot, peers) = (self.state.applied(), "-".to_owned(), Vec::new());
        Status {
            role: "leader",
            leader: None,
            ballot,
            committed: applied,
            applied,
            lease: true,
            reads: "locally",
            peers,
            samples: self.state.samples().into(),
            facts: Vec::new(),
        }
    }
}
