//! What a cluster's past obliges it to: what was chosen, what was promised, what clients were told. It is a part of the
//! state, and the checkers judge each change of it.

use std::fmt::Write;

use bytes::Bytes;
use quorate_check::agreement::Agreement;
use quorate_check::exactly_once::ExactlyOnce;
use quorate_check::execution_order::ExecutionOrder;
use quorate_check::history::{History, Operation};
use quorate_check::instances::Instances;
use quorate_check::leases::Leases;
use quorate_check::linearizability;
use quorate_check::{Checker, Process, Violation};
use quorate_core::{Fact, NodeId, TextDigest, Time};
use quorate_store::{Command, Reply};

use super::opening::{ClientOperation, Told};
use super::register::{Register, Value};

/// What clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Asked(usize),
    Told(usize, Told),
}

/// See the file comment.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    agreement: Agreement,
    instances: Instances,
    order: ExecutionOrder,
    once: ExactlyOnce,
    leases: Leases,
    register: Register,
    /// One history that leads here, of those that leave the register like this.
    events: Vec<Event>,
}

/// What a command writes, if it is a write.
fn written(command: &Command) -> Option<&Bytes> {
    let Command::PutMany { pairs, .. } = command else { return None };
    pairs.last().map(|(_, value)| value)
}

impl Ledger {
    /// Everything that later judgements depend on. (Who stated a choice first is for people only.)
    pub fn digest(&self) -> u128 {
        let mut digest = TextDigest::default();
        let Ledger { agreement, instances, order, once, leases, events: _, register } = self;
        for (slot, value) in agreement.chosen() {
            write!(digest, "{slot}={value},").expect("no error");
        }
        for (slot, value, deps) in instances.decided() {
            write!(digest, "{slot}:{value}{deps:?},").expect("no error");
        }
        for (command, slot) in once.executed() {
            write!(digest, "{command}@{slot},").expect("no error");
        }
        write!(digest, "{order:?}{leases:?}{register:?}").expect("no error");
        digest.get()
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
            Fact::Decided { .. } => self.instances.on_fact(at, who, fact, &clocks),
            Fact::Ordered { .. } | Fact::Installed { .. } => self.order.on_fact(at, who, fact, &clocks),
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
        self.register.standing(operation)
    }

    /// What the client of an operation was told.
    pub fn reply(&self, operation: usize) -> Option<&Told> {
        self.events.iter().find_map(|event| match event {
            Event::Told(told, reply) if *told == operation => Some(reply),
            Event::Told(..) | Event::Asked(_) => None,
        })
    }

    /// A client asks, unless it has asked before.
    pub fn asked(&mut self, operation: usize, client_operations: &[ClientOperation]) {
        if !self.standing(operation).0 {
            self.events.push(Event::Asked(operation));
            match &client_operations[operation] {
                ClientOperation::Command(command) => self.register.ask(operation, written(command).is_some()),
                ClientOperation::Manage(_) => self.register.demand(operation),
            }
        }
    }

    /// A client, or an operator, is told; the first time counts.
    pub fn told(
        &mut self,
        now: Time,
        operation: usize,
        told: Told,
        client_operations: &[ClientOperation],
    ) -> Result<(), Violation> {
        if self.standing(operation) != (true, false) {
            return Ok(());
        }
        self.events.push(Event::Told(operation, told.clone()));
        let reply = match told {
            Told::Reply(reply) => reply,
            Told::Managed(_) => {
                self.register.granted(operation);
                return Ok(());
            }
        };
        linearizability::check(&self.history(client_operations)).map_err(|failure| Violation {
            checker: "linearizability",
            at: now.nanos(),
            what: failure.to_string(),
        })?;
        match reply {
            Reply::Done => self.register.written(operation),
            Reply::Value(value) => {
                let wrote = |client_operation: &ClientOperation| match client_operation {
                    ClientOperation::Command(command) => {
                        value.is_some() && written(command) == value.as_ref()
                    }
                    ClientOperation::Manage(_) => false,
                };
                let value = client_operations.iter().position(wrote).map_or(0, |write| write + 1);
                self.register.read(operation, value as Value);
            }
            other => panic!("{other:?} was found linearizable"),
        }
        assert!(self.register.is_possible(), "the checker and the register judge alike");
        Ok(())
    }

    fn history(&self, client_operations: &[ClientOperation]) -> History {
        let mut operations = Vec::new();
        for (time, event) in (1..).zip(&self.events) {
            let Event::Asked(asked) = *event else { continue };
            let ClientOperation::Command(command) = client_operations[asked].clone() else { continue };
            let returned = (1..).zip(&self.events).find_map(|(time, event)| match event {
                Event::Told(told, Told::Reply(reply)) if *told == asked => Some((time, reply.clone())),
                Event::Told(..) | Event::Asked(_) => None,
            });
            operations.push(Operation { client: asked as u64, command, invoked: time, returned });
        }
        History(operations)
    }
}
