//! **unreplicated**: one copy on one disk. For comparison, and as the smallest example of a protocol: what every
//! other one costs is measured against it.
//!
//! | step | code |
//! |---|---|
//! | a write is logged, executed, and answered when it is durable | `on_batch_end`, `Message::release` |
//! | a read is answered from the state, when the writes it may have seen are durable | the same |

use bytes::Bytes;
use quorate_core::*;
use quorate_parts::clients::{Embeds, Intake, LeaderProxy, Message as Client, ProxyConfig};
use quorate_parts::settings::{self, IntakeConfig};
use quorate_parts::state::Replicated;

/// See the file comment.
#[derive(Debug)]
pub struct Unreplicated;

impl Protocol for Unreplicated {
    const NAME: &'static str = "unreplicated";
    const PAPER: &'static str = "none: one copy, for comparison";
    const CAPABILITIES: Capabilities = Capabilities {
        total_order: true,
        multi_key: true,
        clocks: false,
        diskless: false,
        reads: "local",
        min_nodes: 1,
        max_nodes: 1,
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = LeaderProxy<Message>;

    fn configure(
        group: &Group,
        settings: &mut Settings,
    ) -> Result<(IntakeConfig, ProxyConfig), SettingsError> {
        Ok((settings::intake(settings)?, settings::proxy(group, settings)?))
    }
}

/// Only clients speak.
#[derive(Clone, Debug)]
pub struct Message {
    client: Client,
}
wire_struct!(Message { client });

impl quorate_core::Message for Message {
    fn release(&self) -> Release {
        match self.client {
            // Promises that what it shows survives a crash.
            Client::Answer { .. } | Client::Opened { .. } | Client::Expired { .. } => Release::AfterSync,
            Client::Ask(_) | Client::Leader { .. } => Release::Now,
        }
    }
    fn kind(&self) -> &'static str {
        self.client.kind()
    }
}

impl From<Client> for Message {
    fn from(client: Client) -> Self {
        Message { client }
    }
}

impl Embeds for Message {
    fn into_client(self) -> Option<Client> {
        Some(self.client)
    }
}

/// The only replica.
#[derive(Debug)]
pub struct Replica {
    config: IntakeConfig,
    state: Replicated,
    intake: Intake,
}

impl Replica {
    fn execute(&mut self, value: &Bytes, cx: &mut Context<'_, Self>) {
        let slot = self.state.applied() + 1;
        self.state.apply(slot, value, |effect| self.intake.on_effect(effect), |fact| cx.note(fact));
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
        let intake = Intake::new(cx.me(), config.max_bytes);
        let mut replica = Replica { config, state: state.unwrap_or_default(), intake };
        cx.note(|| Fact::Installed { slot: replica.state.applied() });
        saved.records.iter().for_each(|value| replica.execute(value, cx));
        // Whoever waits for answers of an earlier life asks again.
        replica.intake.clear();
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, _: &mut Context<'_, Self>) {
        if let Client::Ask(ask) = message.client {
            self.intake.on_ask(from, ask, &self.state);
        }
    }

    fn on_timer(&mut self, timer: Never, _: &mut Context<'_, Self>) {
        match timer {}
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        let reads = self.intake.take_reads();
        // Keys expire at log positions only: with one due, a batch that tells time comes first.
        let mut due = self.state.next_expiry().is_some_and(|at| at <= cx.wall());
        while self.intake.has_writes() || std::mem::take(&mut due) {
            let value = self.intake.take_batch(self.config.batch, cx.wall());
            cx.persist(value.clone());
            self.execute(&value, cx);
        }
        for read in reads {
            let reply = self.state.read_now(&read.command);
            self.intake.on_read(read, reply);
        }
        for (proxy, client) in self.intake.flush(&self.state) {
            cx.send(proxy, Message { client });
        }
    }
}

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Bytes> {
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records: Vec::new() }
    }
    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }
    fn status(&self, _: Time) -> Status {
        let applied = self.state.applied();
        let (ballot, peers) = ("-".to_owned(), Vec::new());
        Status { role: "leader", leader: None, ballot, committed: applied, applied, lease: true, peers }
    }
}
