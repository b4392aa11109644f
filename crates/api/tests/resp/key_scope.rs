//! Where the protocol executes commands on one key only, others are refused before they get to it.

use quorate_api::resp::{KeyScope, Limits};

use crate::harness::Node;

fn single_key() -> Node {
    let key_scope = KeyScope::new(None, [("lonely", false)].into_iter());
    Node::with(Limits { key_scope, ..Limits::default() })
}

#[test]
fn a_command_that_is_not_about_one_key_is_refused_with_its_name_and_a_protocol_that_has_it() {
    let mut node = single_key();
    let mut connection = node.connect();
    for (line, name) in [
        ("MGET a b", "MGET"),
        ("MSET a 1 b 2", "MSET"),
        ("MSETNX a 1 b 2", "MSETNX"),
        ("DEL a b", "DEL"),
        ("EXISTS a b", "EXISTS"),
        ("WATCH a b", "WATCH"),
        ("SCAN 0", "SCAN"),
        ("KEYS *", "KEYS"),
        ("DBSIZE", "DBSIZE"),
        ("RANDOMKEY", "RANDOMKEY"),
        ("FLUSHALL", "FLUSHALL"),
        ("ACL SETUSER ann on", "ACL SETUSER"),
    ] {
        let said = node.ask(&mut connection, format!("{line}\r\n").as_bytes());
        let refusal = format!(
            "-ERR {name} is not about one key, and lonely executes commands on one key only: choose a protocol that \
             orders all writes, such as multipaxos\r\n"
        );
        assert_eq!(said, refusal, "{line}");
        assert!(connection.asked.is_empty(), "{line} was asked of the protocol");
    }
}

#[test]
fn where_no_read_is_about_all_keys_a_node_gives_no_backup_unless_it_knows_to_have_everything() {
    let mut node = single_key();
    node.applied = Some(9);
    let mut connection = node.connect();
    let said = node.ask(&mut connection, b"QUORATE BACKUP BEGIN\r\n");
    assert!(said.starts_with("-CLUSTERDOWN this node has no lease now"), "{said}");
    assert!(connection.asked.is_empty(), "nothing was asked of the protocol");
}

#[test]
fn a_transaction_on_one_key_is_executed_and_one_on_several_is_refused() {
    let mut node = single_key();
    let mut connection = node.connect();
    let mut ask = |line: &str| node.ask(&mut connection, format!("{line}\r\n").as_bytes());
    assert_eq!(ask("SET a 1"), "+OK\r\n");
    assert_eq!(ask("DEL a"), ":1\r\n");
    assert_eq!(ask("WATCH a"), "+OK\r\n");
    assert_eq!(ask("MULTI"), "+OK\r\n");
    assert_eq!(ask("INCR a"), "+QUEUED\r\n");
    assert_eq!(ask("GET a"), "+QUEUED\r\n");
    assert_eq!(ask("EXEC"), "*2\r\n:1\r\n$1\r\n1\r\n");
    assert_eq!(ask("WATCH a"), "+OK\r\n");
    assert_eq!(ask("MULTI"), "+OK\r\n");
    assert_eq!(ask("INCR b"), "+QUEUED\r\n");
    assert!(ask("EXEC").starts_with("-ERR EXEC is not about one key"), "what is watched counts");
    assert_eq!(ask("GET b"), "$-1\r\n");
}
