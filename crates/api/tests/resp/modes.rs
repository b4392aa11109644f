//! Where reads are served in each mode, and what waits for what there.

use std::sync::Arc;

use quorate_api::resp::{KeyGroups, KeyScope, Limits, ReadMode};
use quorate_core::{Access, Consistency, GroupId, Outcome, Staleness, Wire};
use quorate_store::{Partition, Reply};

use crate::harness::{Connection, Node};

fn node(read_mode: ReadMode) -> (Node, Connection) {
    let mut node = Node::with(Limits { read_mode, ..Limits::default() });
    let connection = node.connect();
    (node, connection)
}

#[test]
fn a_sequential_read_sees_the_writes_before_it_and_waits_for_no_group() {
    let (mut node, mut connection) = node(ReadMode::Sequential);
    assert_eq!(node.ask(&mut connection, b"SET k 1\r\n"), "+OK\r\n");
    node.send(&mut connection, b"INCR k\r\nGET k\r\n");
    assert_eq!(connection.asked.len(), 1, "the read waits");
    assert_eq!(node.settle(&mut connection), b":2\r\n$1\r\n2\r\n");
    node.send(&mut connection, b"GET k\r\n");
    assert_eq!((connection.asked.len(), connection.written().as_str()), (0, "$1\r\n2\r\n"));
}

#[test]
fn a_sequential_transaction_sees_the_writes_before_it() {
    let (mut node, mut connection) = node(ReadMode::Sequential);
    node.send(&mut connection, b"SET k 1\r\nMULTI\r\nGET k\r\nEXEC\r\n");
    assert_eq!(connection.asked.len(), 1, "it waits");
    assert_eq!(node.settle(&mut connection), b"+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n$1\r\n1\r\n");
}

#[test]
fn a_sequential_write_is_answered_when_this_node_shows_it() {
    for (read_mode, shown) in [(ReadMode::Sequential, 1), (ReadMode::Linearizable, 0), (ReadMode::Local, 0)] {
        let (mut node, mut connection) = node(read_mode);
        node.ask(&mut connection, b"SET k 1\r\n");
        assert_eq!(connection.shown, shown, "{read_mode}");
    }
}

#[test]
fn a_change_of_users_is_answered_when_this_node_shows_it() {
    for change in ["ACL SETUSER ann on", "ACL DELUSER ann", "MULTI\r\nACL SETUSER ann on\r\nEXEC"] {
        let (mut node, mut connection) = node(ReadMode::Linearizable);
        node.ask(&mut connection, format!("{change}\r\n").as_bytes());
        assert_eq!(connection.shown, 1, "{change}");
    }
}

#[test]
fn what_exec_depends_on_is_asked_of_the_group_wherever_the_connection_reads() {
    for read_mode in [ReadMode::Sequential, ReadMode::Local] {
        let (mut node, mut connection) = node(read_mode);
        node.send(&mut connection, b"WATCH k\r\n");
        assert_eq!(connection.asked.len(), 1, "{read_mode}");
        assert_eq!(connection.asked[0].1.access, Access::Read, "{read_mode}");
    }
}

#[test]
fn exec_is_refused_where_versions_of_other_keys_came_than_those_that_were_watched() {
    let (mut node, mut connection) = node(ReadMode::Linearizable);
    node.send(&mut connection, b"WATCH k j\r\n");
    let (ticket, _) = connection.asked.pop_front().unwrap();
    node.end(&mut connection, ticket, Outcome::Done(Reply::Versions(vec![0]).to_bytes()));
    node.settle(&mut connection);
    let refused = "+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(node.ask(&mut connection, b"MULTI\r\nSET k 1\r\nEXEC\r\n"), refused);
}

#[test]
fn a_transaction_that_is_not_executed_changes_nothing_of_its_connection() {
    let (mut node, mut connection) = node(ReadMode::Linearizable);
    let mut other = node.connect();
    node.ask(&mut connection, b"WATCH k\r\n");
    node.ask(&mut other, b"SET k 1\r\n");
    // What comes behind it is read when it is known whether it was executed: RESP3 has another nothing.
    node.send(&mut connection, b"MULTI\r\nHELLO 3\r\nSET k 2\r\nEXEC\r\nGET none\r\nCLIENT GETNAME\r\n");
    assert_eq!(connection.asked.len(), 1, "what comes behind EXEC waits");
    assert_eq!(node.settle(&mut connection), b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*-1\r\n$-1\r\n$-1\r\n");
    // One that asks nothing of the store depends on what was watched all the same.
    node.ask(&mut connection, b"WATCH k\r\n");
    node.ask(&mut other, b"SET k 3\r\n");
    let aborted = "+OK\r\n+QUEUED\r\n*-1\r\n";
    assert_eq!(node.ask(&mut connection, b"MULTI\r\nPING\r\nEXEC\r\n"), aborted);
}

#[test]
fn what_is_kept_for_a_client_counts_its_transaction() {
    use quorate_node::frontend::Frontend;
    let (mut node, mut connection) = node(ReadMode::Linearizable);
    let value = "v".repeat(1000);
    node.ask(&mut connection, format!("MULTI\r\nSET k {value}\r\n").as_bytes());
    assert!(node.resp.held(connection.session()) > value.len());
    node.ask(&mut connection, b"DISCARD\r\n");
    assert_eq!(node.resp.held(connection.session()), 0);
}

#[test]
fn what_is_kept_for_a_client_counts_the_keys_that_it_watches() {
    use quorate_node::frontend::Frontend;
    let (mut node, mut connection) = node(ReadMode::Linearizable);
    for times in 1..=3 {
        let key = "k".repeat(1000);
        node.ask(&mut connection, format!("WATCH {key}{times}\r\n").as_bytes());
        assert!(node.resp.held(connection.session()) > times * key.len());
    }
    node.ask(&mut connection, b"UNWATCH\r\n");
    assert_eq!(node.resp.held(connection.session()), 0);
}

/// What a connection asks of the group, when it has sent this and its WATCH was answered.
fn accesses(node: &mut Node, connection: &mut Connection, words: &str) -> Vec<Access> {
    node.send(connection, words.replace("; ", "\r\n").as_bytes());
    if words.starts_with("WATCH") {
        node.execute_all(connection);
        connection.written();
        node.send(connection, b"MULTI\r\nGET k\r\nEXEC\r\n");
    }
    connection.asked.iter().map(|(_, request)| request.access).collect()
}

#[test]
fn a_transaction_whose_reads_must_miss_nothing_is_asked_of_the_group() {
    for (read_mode, words, expected) in [
        (ReadMode::Local, "MULTI; GET k; EXEC; ", &[][..]),
        (ReadMode::Local, "WATCH k; ", &[Access::Read]),
        (ReadMode::Sequential, "WATCH k; ", &[Access::Read]),
        (ReadMode::Linearizable, "MULTI; GET k; CLIENT READMODE local; EXEC; ", &[Access::Read]),
        (ReadMode::Linearizable, "MULTI; GET k; CLIENT READMODE sequential; EXEC; ", &[Access::Read]),
        (ReadMode::Linearizable, "MULTI; GET k; CLIENT READMODE bounded=9; EXEC; ", &[Access::Read]),
        (ReadMode::Local, "MULTI; CLIENT READMODE linearizable; GET k; EXEC; ", &[Access::Read]),
    ] {
        let (mut node, mut connection) = node(read_mode);
        node.applied = Some(9);
        assert_eq!(accesses(&mut node, &mut connection, words), expected, "{read_mode}: {words}");
    }
}

#[test]
fn a_transaction_that_synchronizes_misses_nothing() {
    let (mut node, mut connection) = node(ReadMode::Linearizable);
    node.consistency = Consistency::Sequential;
    let latest = Access::Within(Staleness::Versions(0));
    let sync = "QUORATE SYNC; ";
    assert_eq!(accesses(&mut node, &mut connection, sync), [latest]);
    let (mut node, mut connection) = self::node(ReadMode::Linearizable);
    node.consistency = Consistency::Sequential;
    let synchronized = "MULTI; QUORATE SYNC; GET k; EXEC; ";
    assert_eq!(accesses(&mut node, &mut connection, synchronized), [latest]);
}

#[test]
fn where_a_node_is_no_member_the_members_answer_and_nothing_waits_for_its_own_state() {
    for read_mode in [ReadMode::Linearizable, ReadMode::Sequential, ReadMode::Local] {
        let (mut node, mut connection) = node(read_mode);
        // It was a member, and is a proxy alone by now.
        node.ask(&mut connection, b"SET k 1\r\n");
        (node.is_member, node.applied, connection.shown) = (false, Some(1), 0);
        let asked = accesses(&mut node, &mut connection, "GET k; SET k 2; ACL SETUSER ann on; ");
        assert_eq!(asked[0], Access::Read, "{read_mode}");
        node.settle(&mut connection);
        assert_eq!(connection.shown, 0, "{read_mode}");
        let begun = node.ask(&mut connection, b"QUORATE BACKUP BEGIN\r\n");
        assert!(begun.starts_with("-ERR this node is no member of the group"), "{begun}");
    }
}

/// Groups change their members one after the other, so a node may be in some of them only.
#[test]
fn the_state_of_a_group_that_a_node_is_not_in_answers_nobody() {
    let groups = KeyGroups::new(Arc::new(Partition::new(vec!["m".into()]).unwrap()), vec!["raft"; 2]);
    let key_scope = KeyScope::new(Some(groups), [("raft", true); 2].into_iter());
    let mut node = Node::with(Limits { read_mode: ReadMode::Local, key_scope, ..Limits::default() });
    let mut connection = node.connect();
    for (outside, words, expected) in [
        (None, "GET a; GET z; MULTI; GET z; EXEC; ", &[][..]),
        (Some(2), "GET a; ", &[]),
        (Some(2), "GET z; ", &[Access::Read]),
        (Some(2), "MULTI; GET z; GET y; EXEC; ", &[Access::Read]),
        (Some(1), "GET a; GET z; ", &[Access::Read]),
    ] {
        node.outside = outside.and_then(GroupId::new);
        assert_eq!(accesses(&mut node, &mut connection, words), expected, "{outside:?}: {words}");
        node.settle(&mut connection);
    }
}
