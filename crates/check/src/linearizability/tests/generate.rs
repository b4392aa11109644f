//! Histories of many clients that use the real store at once: linearizable by construction, and a comparison of the
//! store with the checker's model.

use bytes::Bytes;
use quorate_core::{Random, Wall};
use quorate_store::{Command, Condition, Expiry, Key, Reply, Single};

use crate::history::{History, Operation};

/// What the clients of a generated history ask, in parts of the whole.
pub struct Mix(&'static [(Kind, u64)]);

#[derive(Clone, Copy)]
pub enum Kind {
    Get,
    Put,
    PutIf,
    Delete,
    Take,
    Increment,
    Append,
    Length,
    Range,
    PutMany,
    GetMany,
    Exists,
    Batch,
    Hash,
    Versions,
}

impl Mix {
    pub const REGISTER: Mix = Mix(&[(Kind::Get, 1), (Kind::Put, 1)]);
    pub const COUNTER: Mix = Mix(&[(Kind::Get, 1), (Kind::Increment, 2)]);
    pub const LIST: Mix = Mix(&[(Kind::Get, 2), (Kind::Append, 2), (Kind::Length, 1)]);
    pub const SEVERAL: Mix =
        Mix(&[(Kind::Get, 6), (Kind::Put, 6), (Kind::PutMany, 1), (Kind::GetMany, 1), (Kind::Exists, 1)]);
    pub const STRINGS: Mix = Mix(&[
        (Kind::Get, 4),
        (Kind::Put, 3),
        (Kind::PutIf, 1),
        (Kind::Delete, 1),
        (Kind::Take, 1),
        (Kind::Increment, 1),
        (Kind::Append, 1),
        (Kind::Length, 1),
        (Kind::Range, 1),
    ]);
    pub const EVERYTHING: Mix = Mix(&[
        (Kind::Get, 4),
        (Kind::Put, 4),
        (Kind::PutIf, 1),
        (Kind::Delete, 1),
        (Kind::Take, 1),
        (Kind::Increment, 1),
        (Kind::Append, 1),
        (Kind::Length, 1),
        (Kind::Range, 1),
        (Kind::PutMany, 1),
        (Kind::GetMany, 1),
        (Kind::Exists, 1),
        (Kind::Batch, 1),
        (Kind::Hash, 1),
        (Kind::Versions, 1),
    ]);
}

/// The real store, which many clients use at once, each operation taking effect at one moment between its call and
/// its return.
pub struct Store {
    random: Random,
    keys: Vec<Key>,
    store: quorate_store::Store,
    /// Writes take one of so many values; all are different if 0.
    pub values: u64,
    written: u64,
    /// The part of the writes whose outcome is never known.
    pub unknown: f64,
}

impl Store {
    pub fn new(seed: u64, keys: u64) -> Store {
        let keys: Vec<Key> = (0..keys).map(|key| format!("k{key:04}").into()).collect();
        let store = quorate_store::Store::new();
        Store { random: Random::new(seed), keys, store, values: 0, written: 0, unknown: 0.0 }
    }

    pub fn run(&mut self, operations: usize, mix: &Mix, clients: u64) -> History {
        enum Client {
            Idle,
            Asked(usize),
            Served(usize, Reply),
            Gone,
        }
        let mut clients: Vec<Client> = (0..clients).map(|_| Client::Idle).collect();
        let mut history = Vec::new();
        let mut time = 0;
        let mut open = 0;
        while history.len() < operations || open > 0 {
            time += 1;
            let who = self.random.range(0..clients.len() as u64) as usize;
            clients[who] = match std::mem::replace(&mut clients[who], Client::Idle) {
                Client::Idle if history.len() == operations => Client::Idle,
                Client::Idle => {
                    let command = self.command(mix);
                    history.push(Operation { client: who as u64, command, invoked: time, returned: None });
                    open += 1;
                    Client::Asked(history.len() - 1)
                }
                Client::Asked(index) => {
                    let command = &history[index].command;
                    let lost = !command.is_read_only() && self.random.chance(self.unknown);
                    if lost && self.random.chance(0.5) {
                        Client::Gone
                    } else {
                        let reply = self.store.apply(command, self.store.revision() + 1, Wall::ZERO);
                        if lost { Client::Gone } else { Client::Served(index, reply) }
                    }
                }
                Client::Served(index, reply) => {
                    history[index].returned = Some((time, reply));
                    open -= 1;
                    Client::Idle
                }
                Client::Gone => {
                    open -= 1;
                    Client::Idle
                }
            };
        }
        History(history)
    }

    fn key(&mut self) -> Key {
        self.random.pick(&self.keys).clone()
    }

    fn value(&mut self) -> Bytes {
        self.written += 1;
        match self.values {
            0 => format!("w{:07}", self.written).into(),
            values => self.random.range(0..values).to_string().into(),
        }
    }

    fn command(&mut self, mix: &Mix) -> Command {
        let mut draw = self.random.range(0..mix.0.iter().map(|(_, weight)| weight).sum());
        let kind = mix.0.iter().find(|(_, weight)| match draw.checked_sub(*weight) {
            None => true,
            Some(rest) => {
                draw = rest;
                false
            }
        });
        let (key, other) = (self.key(), self.key());
        match kind.expect("the draw is below the sum").0 {
            Kind::Get => Command::Get { key },
            Kind::Put => put(key, self.value(), Condition::Always),
            Kind::PutIf => {
                let condition = *self.random.pick(&[Condition::IfAbsent, Condition::IfPresent]);
                put(key, self.value(), condition)
            }
            Kind::Delete => Command::Delete { keys: vec![key] },
            Kind::Take => Command::Take { key },
            Kind::Increment => Command::Increment { key, by: self.random.range(1..3) as i64 },
            Kind::Append => Command::Append { key, value: self.value() },
            Kind::Length => Command::Length { key },
            Kind::Range => {
                let mut draw = || self.random.range(0..6) as i64 - 3;
                Command::GetRange { key, start: draw(), end: draw() }
            }
            Kind::PutMany => {
                let pairs = vec![(key, self.value()), (other, self.value())];
                Command::PutMany { pairs, if_none: self.random.chance(0.2) }
            }
            Kind::GetMany => Command::GetMany { keys: vec![key, other] },
            Kind::Exists => Command::Exists { keys: vec![key, other] },
            Kind::Batch => {
                let first = Command::Append { key: key.clone(), value: self.value() };
                let commands = vec![
                    Single(first),
                    Single(Command::Get { key }),
                    Single(put(other, self.value(), Condition::Always)),
                ];
                Command::Batch { watched: Vec::new(), commands }
            }
            Kind::Hash => match self.random.range(0..3) {
                0 => Command::HashPut { key, fields: vec![("f".into(), self.value())], if_absent: false },
                1 => Command::HashAll { key },
                _ => Command::HashDelete { key, fields: vec!["f".into()] },
            },
            Kind::Versions => Command::VersionsOf { keys: vec![key] },
        }
    }
}

fn put(key: Key, value: Bytes, condition: Condition) -> Command {
    Command::Put { key, value, condition, expiry: Expiry::Never, old: false }
}
