//! The feature level: it rises when all members know it, and what needs a higher one is refused.

use quorate_core::{FeatureLevel, NodeId};

use crate::harness::Node;

fn node(level: u16, known: &[(u64, u16)]) -> Node {
    let level_of = |number| FeatureLevel::new(number).unwrap();
    let mut node = Node::new();
    let known = known.iter().map(|(id, knows)| (NodeId::new(*id).unwrap(), level_of(*knows)));
    node.known_levels = Some(known.collect());
    if level > 1 {
        let mut client = node.connect();
        let all =
            node.known_levels.replace([1, 2].map(|id| (NodeId::new(id).unwrap(), level_of(level))).into());
        assert_eq!(
            node.ask(&mut client, format!("CONFIG SET feature-level {level}\r\n").as_bytes()),
            "+OK\r\n"
        );
        node.known_levels = all;
    }
    node
}

#[test]
fn the_level_rises_when_all_members_know_it_and_never_falls() {
    // The members are nodes 1 and 2, of which the second is a learner.
    for (level, known, request, reply) in [
        (1, &[(1, 2), (2, 2)][..], "2", "+OK"),
        (1, &[(1, 2), (2, 2)], "1", "+OK"),
        (2, &[(1, 2), (2, 2)], "2", "+OK"),
        // Who is no member has no say.
        (1, &[(1, 2), (2, 2), (9, 1)], "2", "+OK"),
        (
            1,
            &[(1, 2), (2, 1)],
            "2",
            "-ERR not all members know feature level 2: node 2 knows levels up to 1, upgrade it first",
        ),
        (
            1,
            &[(1, 2)],
            "2",
            "-ERR not all members know feature level 2: node 2 is not connected, so it cannot be asked: start it, or \
             remove it",
        ),
        (2, &[(1, 2), (2, 2)], "1", "-ERR the feature level is 2, and does not fall"),
        (
            1,
            &[(1, 2), (2, 2)],
            "4",
            "-ERR this node's version knows feature levels up to 3: upgrade it first",
        ),
        (1, &[(1, 2), (2, 2)], "0", "-ERR a feature level is a number from 1 to 3"),
        (1, &[(1, 2), (2, 2)], "-1", "-ERR a feature level is a number from 1 to 3"),
        (1, &[(1, 2), (2, 2)], "newest", "-ERR a feature level is a number from 1 to 3"),
        (1, &[(1, 2), (2, 2)], "70000", "-ERR a feature level is a number from 1 to 3"),
    ] {
        let mut node = node(level, known);
        let mut client = node.connect();
        let asked = format!("CONFIG SET feature-level {request}\r\n");
        assert_eq!(
            node.ask(&mut client, asked.as_bytes()),
            format!("{reply}\r\n"),
            "from {level}: {known:?}"
        );
        let now = if reply == "+OK" { request } else { &level.to_string() };
        let expected = format!("*2\r\n$13\r\nfeature-level\r\n$1\r\n{now}\r\n");
        assert_eq!(node.ask(&mut client, b"CONFIG GET feature-level\r\n"), expected);
    }
}

#[test]
fn selectors_of_users_are_refused_below_their_level_with_what_raises_it() {
    let mut node = node(1, &[(1, 2), (2, 2)]);
    let mut client = node.connect();
    let refused = "-ERR selectors need feature level 2, which is higher than the cluster's: once all members run a \
                   version that knows it, CONFIG SET feature-level 2\r\n";
    for rules in ["on (+get ~a)", "clearselectors"] {
        let asked = format!("ACL SETUSER ann {rules}\r\n");
        assert_eq!(node.ask(&mut client, asked.as_bytes()), refused);
    }
    assert_eq!(node.ask(&mut client, b"ACL SETUSER ann on +get\r\n"), "+OK\r\n");
    assert_eq!(node.ask(&mut client, b"CONFIG SET feature-level 2\r\n"), "+OK\r\n");
    assert_eq!(node.ask(&mut client, b"ACL SETUSER ann (+get ~a)\r\n"), "+OK\r\n");
}

#[test]
fn a_transaction_above_the_level_is_an_error_that_says_so() {
    let mut node = node(1, &[(1, 2), (2, 2)]);
    let mut client = node.connect();
    let asked = b"MULTI\r\nSET k v\r\nACL SETUSER ann (+get ~a)\r\nEXEC\r\n";
    let written = node.ask(&mut client, asked);
    assert!(written.contains("-ERR this needs a later feature level than the cluster has"), "{written}");
    assert_eq!(node.ask(&mut client, b"GET k\r\n"), "$-1\r\n");
}
