//! What is known of connections, and which of them CLIENT KILL ends.

use quorate_node::frontend::Frontend;

use crate::harness::Node;

#[test]
fn clients_are_ended_by_number_address_and_user_and_whoever_asks_is_spared() {
    // Connections 1 and 2 are nobody's, 3 and 4 are ann's, the last asks.
    for (filters, expected, ended) in [
        ("ID 2", ":1", &[2][..]),
        ("ID 9", ":0", &[]),
        ("ID 5", ":0", &[]),
        ("id 5 skipme no", ":1", &[]),
        ("USER ann", ":2", &[3, 4]),
        ("USER default", ":2", &[1, 2]),
        ("USER ann ID 4", ":1", &[4]),
        ("USER ann ID 1", ":0", &[]),
        ("TYPE normal", ":4", &[1, 2, 3, 4]),
        ("TYPE normal SKIPME no", ":5", &[1, 2, 3, 4]),
        ("TYPE pubsub", ":0", &[]),
        ("ADDR 10.0.0.9:40000", ":4", &[1, 2, 3, 4]),
        ("10.0.0.9:40000", "+OK", &[1, 2, 3, 4]),
        ("10.0.0.9:40001", "-ERR No such client", &[]),
        ("ID 0", "-ERR client-id should be greater than 0", &[]),
        ("ID x", "-ERR client-id should be greater than 0", &[]),
        ("USER nobody", "-ERR No such user 'nobody'", &[]),
        ("TYPE other", "-ERR Unknown client type 'other'", &[]),
        ("ID 2 USER", "-ERR syntax error", &[]),
        ("SKIPME maybe", "-ERR syntax error", &[]),
        ("LADDR 10.0.0.1:7101", "-ERR syntax error", &[]),
    ] {
        let mut node = Node::new();
        let mut connections: Vec<_> = (0..5).map(|_| node.connect()).collect();
        let mut ask =
            |index: usize, line: &str| node.ask(&mut connections[index], format!("{line}\r\n").as_bytes());
        ask(4, "ACL SETUSER ann on nopass +@all");
        assert_eq!([ask(2, "AUTH ann x"), ask(3, "AUTH ann x")], ["+OK\r\n", "+OK\r\n"]);
        assert_eq!(ask(4, &format!("CLIENT KILL {filters}")), format!("{expected}\r\n"), "{filters}");
        let found: Vec<_> = node.resp.take_ended().into_iter().collect();
        assert_eq!(found, ended, "{filters}");
        // Whoever ends itself is answered first.
        let ends_own = filters.ends_with("no") || filters == "10.0.0.9:40000";
        assert_eq!(connections[4].closed, ends_own, "{filters}");
        assert!(node.resp.take_ended().is_empty());
    }
}

#[test]
fn of_each_client_its_last_request_is_told_and_how_long_ago_it_came() {
    let mut node = Node::new();
    let mut connections: Vec<_> = (0..3).map(|_| node.connect()).collect();
    assert_eq!(node.ask(&mut connections[1], b"GET k\r\n"), "$-1\r\n");
    node.now += 3_000_000_000;
    assert_eq!(node.ask(&mut connections[1], b"ACL WHOAMI\r\n"), "$7\r\ndefault\r\n");
    node.now += 4_000_000_000;
    let told = node.ask(&mut connections[2], b"CLIENT LIST\r\n");
    let found: Vec<Vec<&str>> = told
        .lines()
        .filter(|line| line.starts_with("id="))
        .map(|line| {
            line.split(' ').filter(|word| word.starts_with("idle=") || word.starts_with("cmd=")).collect()
        })
        .collect();
    assert_eq!(found, [["idle=7", "cmd=NULL"], ["idle=4", "cmd=acl|whoami"], ["idle=0", "cmd=client|list"]]);
}
