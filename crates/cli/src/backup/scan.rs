//! `quorate export` of a cluster whose keys are divided among groups (`--groups`), which have no common moment to be
//! frozen at: all keys are listed by SCAN, and each is read with its time to live at one moment of its own.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use quorate_client::{Client, Error, Value};
use quorate_core::Wall;
use quorate_store::{KeyValue, StoredValue};

use super::export::encoded;
use super::spinner;
use crate::client::{TIMEOUT, Target};
use crate::failure::Failure;
use crate::status::NodeStatus;

/// Connections that read keys.
const CONNECTIONS: usize = 16;
/// Keys that one call of SCAN looks at.
const PAGE: &str = "100";
/// Lines that wait to be written.
const WAITING: usize = 16;
/// How often a key may change, or a connection break, while it is read.
const ATTEMPTS: usize = 16;

/// Whether the node in use has several groups.
pub(super) fn has_groups(client: &mut Client) -> bool {
    let status = client.status().ok().and_then(|text| serde_json::from_str::<NodeStatus>(&text).ok());
    status.is_some_and(|status| !status.groups.is_empty())
}

/// Connections to a cluster of several groups.
pub(super) struct GroupsExport {
    scanner: Client,
    readers: Vec<Client>,
}

impl GroupsExport {
    /// Connects. With `local`, what the node at this endpoint has is read.
    pub fn connect(target: &Target, endpoint: &str, local: bool) -> Result<GroupsExport, Failure> {
        let connect = || -> Result<Client, Failure> {
            if !local {
                return target.any(TIMEOUT);
            }
            let mut client = target.connect(endpoint, TIMEOUT)?;
            // Should the connection break in between, what is read is the latest.
            client.read(&["CLIENT", "READMODE", "local"])?;
            Ok(client)
        };
        let readers = (0..CONNECTIONS).map(|_| connect());
        Ok(GroupsExport { scanner: connect()?, readers: readers.collect::<Result<_, _>>()? })
    }

    /// Writes the line of each key.
    pub fn run(self, mut write: impl FnMut(Vec<u8>) -> Result<(), Failure>) -> Result<(), Failure> {
        let progress = spinner(&format!("export from {}", self.scanner.endpoint()));
        let (pages, keys) = sync_channel(CONNECTIONS);
        let (lines, written) = sync_channel(WAITING);
        thread::scope(|scope| {
            let keys = Arc::new(Mutex::new(keys));
            for client in self.readers {
                let (keys, lines) = (Arc::clone(&keys), lines.clone());
                scope.spawn(move || read_all(client, &keys, &lines));
            }
            // Only they have it: once they have ended, the scanner ends.
            drop(keys);
            scope.spawn(move || list(self.scanner, &pages).map_err(|failure| lines.send(Err(failure))));
            for line in written {
                let line: Vec<u8> = line?;
                progress.inc(line.len() as u64);
                write(line)?;
            }
            progress.finish_and_clear();
            Ok(())
        })
    }
}

/// Gives all keys to those who read them, until they have ended.
fn list(mut client: Client, pages: &SyncSender<Vec<Bytes>>) -> Result<(), Failure> {
    let mut cursor = Bytes::from_static(b"0");
    loop {
        let reply = client.read(&[b"SCAN", &cursor[..], b"COUNT", PAGE.as_bytes()])?;
        let Value::Array(reply) = reply else { return Err(unexpected(&client, &reply)) };
        let [Value::Bytes(next), Value::Array(found)] = &reply[..] else {
            return Err(unexpected(&client, &Value::Array(reply)));
        };
        let keys = found.iter().map(|key| match key {
            Value::Bytes(key) => Ok(key.clone()),
            other => Err(unexpected(&client, other)),
        });
        if pages.send(keys.collect::<Result<_, _>>()?).is_err() || next == "0" {
            return Ok(());
        }
        cursor = next.clone();
    }
}

/// Reads keys until there are no more, or one cannot be read, or nobody wants them.
fn read_all(
    mut client: Client,
    keys: &Mutex<Receiver<Vec<Bytes>>>,
    lines: &SyncSender<Result<Vec<u8>, Failure>>,
) {
    loop {
        let page = keys.lock().expect("nobody panics with it").recv();
        let Ok(page) = page else { return };
        for key in page {
            let Some(line) = read(&mut client, &key).transpose() else { continue };
            let is_last = line.is_err();
            if lines.send(line).is_err() || is_last {
                return;
            }
        }
    }
}

/// The line of a key; nothing if there is none any more.
fn read(client: &mut Client, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
    let mut broken = None;
    for _ in 0..ATTEMPTS {
        let kind = match client.read(&[b"TYPE", key])? {
            Value::Status(kind) => kind,
            other => return Err(unexpected(client, &other)),
        };
        let command = match kind.as_str() {
            "none" => return Ok(None),
            "string" => &b"GET"[..],
            _ => b"HGETALL",
        };
        match read_as(client, key, command) {
            Ok(Some((expires, value))) => return line(client, key, expires, value),
            Ok(None) => {}
            // It changes nothing, so it is repeated.
            Err(error @ Error::Unknown { .. }) => broken = Some(error),
            // It is of another kind now.
            Err(Error::Refused { message, .. }) if message.starts_with("WRONGTYPE") => {}
            Err(error) => return Err(error.into()),
        }
    }
    let changes = || Failure::failed(format!("`{}` changes faster than it can be read", key.escape_ascii()));
    Err(broken.map_or_else(changes, Failure::from))
}

/// When a key ends, and what it holds; nothing if it changed meanwhile.
fn read_as(client: &mut Client, key: &[u8], command: &[u8]) -> Result<Option<(Value, Value)>, Error> {
    let (ends, holds) = (vec![b"PEXPIRETIME", key], vec![command, key]);
    match client.transaction(&[ends.clone(), holds.clone()]) {
        Ok(replies) => Ok(<[Value; 2]>::try_from(replies).ok().map(|[expires, value]| (expires, value))),
        // A large hash is read outside of transactions only.
        Err(Error::Refused { .. }) => {
            let before = client.read(&ends)?;
            let value = client.read(&holds)?;
            let is_same = client.read(&ends)? == before;
            Ok(is_same.then_some((before, value)))
        }
        Err(error) => Err(error),
    }
}

fn line(client: &Client, key: &[u8], expires: Value, value: Value) -> Result<Option<Vec<u8>>, Failure> {
    let expires = match expires {
        Value::Integer(-2) => return Ok(None),
        Value::Integer(-1) => None,
        Value::Integer(at) => Some(Wall::from_millis(at.unsigned_abs())),
        other => return Err(unexpected(client, &other)),
    };
    let words;
    let value = match value {
        Value::Nil => return Ok(None),
        Value::Bytes(ref value) => StoredValue::String(value),
        Value::Array(found) => {
            let bytes = found.into_iter().map(|word| match word {
                Value::Bytes(word) => Ok(word),
                other => Err(unexpected(client, &other)),
            });
            words = bytes.collect::<Result<Vec<_>, _>>()?;
            let (pairs, _) = words.as_chunks::<2>();
            match pairs {
                [] => return Ok(None),
                pairs => {
                    StoredValue::Hash(pairs.iter().map(|[field, value]| (&field[..], &value[..])).collect())
                }
            }
        }
        other => return Err(unexpected(client, &other)),
    };
    Ok(Some(encoded(&KeyValue { key, value, expires })))
}

fn unexpected(client: &Client, found: &Value) -> Failure {
    Failure::failed(format!("{} answered with {found:?}", client.endpoint()))
}
