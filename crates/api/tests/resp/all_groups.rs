//! Commands about all keys where the keys are divided among groups: each group is asked, one after the other.

use std::sync::Arc;

use quorate_api::resp::{KeyGroups, KeyScope, Limits};
use quorate_core::{GroupRequest, Outcome, Wire};
use quorate_store::{Command, Partition, Reply, order};

use crate::harness::{Connection, Node};

/// A node of two groups.
fn node() -> (Node, Connection) {
    let groups = KeyGroups::new(Arc::new(Partition::even(2).unwrap()), vec!["raft"; 2]);
    let key_scope = KeyScope::new(Some(groups), [("raft", true); 2].into_iter());
    let mut node = Node::with(Limits { key_scope, ..Limits::default() });
    let connection = node.connect();
    (node, connection)
}

/// In its next turn a request must ask this group and nobody else; it is answered.
fn answers(node: &mut Node, connection: &mut Connection, group: u8, reply: &Reply) -> Command {
    assert!(connection.asked.is_empty() && node.resume(connection), "others have their turn before");
    let (ticket, request) = connection.asked.pop_back().expect("a group is asked");
    assert!(connection.asked.is_empty(), "what comes behind waits");
    let asked = GroupRequest::<Command>::from_bytes(request.command).unwrap();
    assert_eq!((asked.group.get(), connection.written().as_str()), (group, ""));
    node.end(connection, ticket, Outcome::Done(reply.encoded()));
    asked.asked
}

/// Or what was written behind FLUSHALL would be gone.
#[test]
fn what_comes_behind_is_asked_when_all_groups_have_answered() {
    let (mut node, mut connection) = node();
    node.send(&mut connection, b"FLUSHALL\r\nSET k 1\r\n");
    for group in 1..=2 {
        assert_eq!(answers(&mut node, &mut connection, group, &Reply::Done), Command::Clear);
    }
    assert_eq!(node.settle(&mut connection), b"+OK\r\n+OK\r\n");
}

#[test]
fn every_group_is_asked_for_the_next_keys_too() {
    let (mut node, mut connection) = node();
    node.send(&mut connection, b"KEYS *\r\n");
    let (a, b) = (order::position(b"a"), order::position(b"b"));
    let (first, second, low) = if a < b { ("a", "b", a) } else { ("b", "a", b) };
    let reply = |key: &[&'static str], next| {
        let keys = key.iter().map(|key| (*key).into()).collect();
        Reply::Keys { keys, next }
    };
    for (group, from, reply) in [
        (1, 0, reply(&[first], Some(low + 1))),
        (2, 0, reply(&[second], None)),
        (1, low + 1, reply(&[], None)),
        (2, low + 1, reply(&[second], None)),
    ] {
        let asked = answers(&mut node, &mut connection, group, &reply);
        assert!(matches!(asked, Command::Scan { from: at, .. } if at == from), "{asked:?}");
    }
    assert_eq!(connection.written(), format!("*2\r\n$1\r\n{first}\r\n$1\r\n{second}\r\n"));
}
