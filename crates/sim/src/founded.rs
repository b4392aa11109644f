//! The state of another cluster with which a group can begin (`--founded`), as after a restore.
//!
//! It has no keys, so that histories begin as those of other runs do. But its revision and its time show in the digest
//! of every later state: a replica that lacks it differs from the others.

use bytes::Bytes;
use quorate_blocks::batch::{Builder, Entry, Limits};
use quorate_blocks::state::Replicated;
use quorate_core::{ProxyId, Snapshot, Wall, Wire};
use quorate_store::{Command, Condition, Expiry};

/// So many writes were executed.
pub(crate) const WRITES: u64 = 1000;

/// It counts as the state after this slot.
pub(crate) const SLOT: u64 = 1;

pub(crate) fn state() -> Snapshot {
    let (key, value) = (Bytes::from_static(b"of-another-cluster"), Bytes::from_static(b"value"));
    let condition = Condition::Always;
    let put = Command::Put { key: key.clone(), value, condition, expiry: Expiry::Never, old: false };
    let commands = [put, Command::Delete { keys: vec![key] }];
    let mut batch = Builder::new();
    batch.push(Entry::Open { proxy: ProxyId(1).into(), nonce: 1 });
    for (seq, command) in (1..=WRITES).zip(commands.iter().cycle()) {
        batch.push(Entry::Write { session: 1, seq, low: seq, command: command.to_bytes() });
    }
    let mut state = Replicated::default();
    let value = batch.take(Limits { entries: usize::MAX, bytes: usize::MAX }, Wall::from_millis(1));
    state.apply(SLOT, &value, |_| {}, |_| {});
    state.found().freeze()
}
