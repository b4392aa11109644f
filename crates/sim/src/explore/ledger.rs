//! What a cluster's past obliges it to: what was chosen, what was promised, what clients were told. It is a part of the
//! state, and the checkers judge each change of it.

use std::fmt::Write;

use quorate_core::{Fact, NodeId, Time, wide_digest};
use quorate_store::{Command, Reply};

use crate::checkers::agreement::Agreement;
use crate::checkers::exactly_once::ExactlyOnce;
use crate::checkers::leases::Leases;
use crate::checkers::linearizability;
use crate::checkers::{Checker, Process, Violation};
use crate::history::{History, Operation};

/// What clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Asked(usize),
    Told(usize, Reply),
}

/// See the file comment.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    agreement: Agreement,
    once: ExactlyOnce,
    leases: Leases,
    /// In order, but those of one kind in a row sorted by operation: which of them came first binds nobody.
    events: Vec<Event>,
}

impl Ledger {
    /// Everything that later judgements depend on. (Who stated a choice first is for people only.)
    pub fn digest(&self, scratch: &mut String) -> u128 {
        scratch.clear();
        let Ledger { agreement, once, leases, events } = self;
        for (slot, value) in agreement.chosen() {
            write!(scratch, "{slot}={value},").expect("memory");
        }
        for (command, slot) in once.executed() {
            write!(scratch, "{command}@{slot},").expect("memory");
        }
        write!(scratch, "{leases:?}{events:?}").expect("memory");
        wide_digest(scratch.as_bytes())
    }

    /// A replica states a fact.
    pub fn fact(&mut self, now: Time, who: Process, fact: &Fact) -> Result<(), Violation> {
        let at = now.nanos();
        let clocks = |_: NodeId, local: Time| local.nanos();
        match *fact {
            // What is executed is chosen; that it is executed in order, the state machine asserts.
            Fact::Chosen { slot, digest } | Fact::Applied { slot, digest } => {
                self.agreement.on_fact(at, who, &Fact::Chosen { slot, digest }, &clocks)
            }
            Fact::Executed { .. } => self.once.on_fact(at, who, fact, &clocks),
            _ => self.leases.on_fact(at, who, fact, &clocks),
        }
    }

    /// A replica crashes.
    pub fn crash(&mut self, now: Time, who: Process) -> Result<(), Violation> {
        self.leases.on_crash(now.nanos(), who, &|_: NodeId, local: Time| local.nanos())
    }

    /// Whether an operation was asked, and has returned.
    pub fn standing(&self, operation: usize) -> (bool, bool) {
        let told = |event: &Event| matches!(event, Event::Told(one, _) if *one == operation);
        (self.events.contains(&Event::Asked(operation)), self.events.iter().any(told))
    }

    /// What the client of an operation was told.
    pub fn reply(&self, operation: usize) -> Option<&Reply> {
        self.events.iter().find_map(|event| match event {
            Event::Told(told, reply) if *told == operation => Some(reply),
            Event::Told(..) | Event::Asked(_) => None,
        })
    }

    /// A client asks, unless it has asked before.
    pub fn asked(&mut self, operation: usize) {
        if !self.standing(operation).0 {
            self.push(Event::Asked(operation), operation, |event| match event {
                Event::Asked(operation) => Some(*operation),
                Event::Told(..) => None,
            });
        }
    }

    /// A client is told; the first time counts.
    pub fn told(
        &mut self,
        now: Time,
        operation: usize,
        reply: Reply,
        commands: &[Command],
    ) -> Result<(), Violation> {
        if self.standing(operation) != (true, false) {
            return Ok(());
        }
        self.push(Event::Told(operation, reply), operation, |event| match event {
            Event::Asked(_) => None,
            Event::Told(operation, _) => Some(*operation),
        });
        linearizability::check(&self.history(commands)).map_err(|failure| Violation {
            checker: "linearizability",
            at: now.nanos(),
            what: failure.to_string(),
        })
    }

    /// Adds an event; `key` orders those that may change places with it.
    fn push(&mut self, event: Event, operation: usize, key: impl Fn(&Event) -> Option<usize>) {
        let after = |event: &Event| key(event).is_some_and(|other| other > operation);
        let back = self.events.iter().rev().take_while(|event| after(event)).count();
        self.events.insert(self.events.len() - back, event);
    }

    fn history(&self, commands: &[Command]) -> History {
        let mut operations = Vec::new();
        for (time, event) in (1..).zip(&self.events) {
            let Event::Asked(asked) = *event else { continue };
            let returned = (1..).zip(&self.events).find_map(|(time, event)| match event {
                Event::Told(told, reply) if *told == asked => Some((time, reply.clone())),
                _ => None,
            });
            let command = commands[asked].clone();
            operations.push(Operation { client: asked as u64, command, invoked: time, returned });
        }
        History(operations)
    }
}
