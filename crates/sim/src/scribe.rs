//! A protocol that does nothing but write down whose batch has ended, for tests of the drivers.

use std::cell::RefCell;

use bytes::Bytes;
use quorate_core::{
    Capabilities, Configs, Context, Group, Instant, Machine, Never, ProcessId, Protocol, Proxy, Replica,
    Request, RequestId, Saved, Settings, SettingsError, Status,
};

thread_local! {
    static ENDED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Whose batches have ended on this thread since the last call, in order.
pub(crate) fn ended() -> Vec<&'static str> {
    ENDED.take()
}

pub(crate) struct Scribe;

/// A replica or a proxy.
#[derive(Debug)]
pub(crate) struct Scribing<const PROXY: bool>;

impl Protocol for Scribe {
    const NAME: &'static str = "scribe";
    const PAPER: &'static str = "none";
    const CAPABILITIES: Capabilities = Capabilities::LOGGED;
    type Message = Never;
    type Replica = Scribing<false>;
    type Proxy = Scribing<true>;

    fn configure(_: &Group, _: &mut Settings) -> Result<Configs<Scribe>, SettingsError> {
        Ok(((), ()))
    }
}

impl<const PROXY: bool> Machine for Scribing<PROXY> {
    type Config = ();
    type Message = Never;
    type Record = Never;
    type Timer = Never;

    fn recover((): (), _: Saved<Never>, _: &mut Context<'_, Self>) -> Self {
        Scribing
    }

    fn on_message(&mut self, _: ProcessId, message: Never, _: &mut Context<'_, Self>) {
        match message {}
    }

    fn on_timer(&mut self, timer: Never, _: &mut Context<'_, Self>) {
        match timer {}
    }

    fn on_batch_end(&mut self, _: &mut Context<'_, Self>) {
        ENDED.with_borrow_mut(|ended| ended.push(if PROXY { "proxy" } else { "replica" }));
    }
}

impl Replica for Scribing<false> {
    fn save(&self) -> Saved<Never> {
        Saved::nothing()
    }

    fn fingerprint(&self) -> (u64, u64) {
        (0, 0)
    }

    fn read(&self, _: &Bytes) -> Bytes {
        Bytes::new()
    }

    fn status(&self, _: Instant) -> Status {
        Status {
            role: "scribe",
            leader: None,
            ballot: String::new(),
            committed: 0,
            applied: 0,
            lease: false,
            reads: "none",
            peers: Vec::new(),
            samples: Vec::new(),
            facts: Vec::new(),
        }
    }
}

impl Proxy for Scribing<true> {
    fn on_request(&mut self, _: RequestId, _: Request, _: &mut Context<'_, Self>) {}
}
