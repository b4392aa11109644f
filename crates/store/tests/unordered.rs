//! Commands where only those in conflict are ordered: each has the time of its proposer.

use bytes::Bytes;
use quorate_core::Wall;
use quorate_store::{Command, Condition, Expiry, Reply, Single, Store};

fn put(key: &'static str, expiry: Expiry) -> Command {
    let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(b"v"));
    Command::Put { key, value, condition: Condition::Always, expiry, old: false }
}

fn read(key: &'static str) -> Command {
    Command::Get { key: Bytes::from_static(key.as_bytes()) }
}

#[test]
fn a_transaction_does_not_read_a_key_whose_time_is_up() {
    let mut store = Store::new();
    let mut apply =
        |command: &Command, millis: u64| store.apply_unordered(command, millis, Wall::from_millis(millis));
    let transaction = |reads: Command| {
        let commands = vec![Single(reads), Single(put("other", Expiry::Never))];
        Command::Batch { watched: Vec::new(), commands }
    };
    let replies = |read: Reply| Reply::Batch(Some(vec![read, Reply::Done]));
    let value =
        |value: Option<&'static str>| Reply::Value(value.map(|value| Bytes::from_static(value.as_bytes())));
    apply(&put("k", Expiry::In(100)), 1000);
    apply(&put("l", Expiry::In(100)), 1001);
    assert_eq!(apply(&transaction(read("k")), 1099), replies(value(Some("v"))));
    assert_eq!(apply(&transaction(read("k")), 1100), replies(value(None)));
    assert_eq!(apply(&transaction(read("k")), 1050), replies(value(None)), "a clock that is behind");
    assert_eq!(apply(&transaction(Command::Count), 1101), replies(Reply::Integer(1)), "of all keys, `other`");
}

/// Two stores that have executed commands in either order are alike, to the last byte of their images.
#[test]
fn a_state_does_not_tell_which_command_came_last() {
    let digest = |order: [(&'static str, u64); 2]| {
        let mut store = Store::new();
        for (key, at) in order {
            store.apply_unordered(&put(key, Expiry::Never), at, Wall::from_millis(at));
        }
        store.digest()
    };
    assert_eq!(digest([("k", 5), ("l", 9)]), digest([("l", 9), ("k", 5)]));
}

/// What another group writes gets versions that no key has had.
#[test]
fn a_state_that_a_group_begins_with_has_a_revision_that_is_not_below_any_version() {
    let mut store = Store::new();
    for (key, at) in [("l", 9), ("k", 5)] {
        store.apply_unordered(&put(key, Expiry::Never), at, Wall::from_millis(at));
    }
    store.settle();
    assert_eq!(store.revision(), 9);
}
