//! What operators may ask of a group, and what comes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_api::resp::{KeyGroups, KeyScope, Limits};
use quorate_core::{
    Access, Consistency, Failure, FeatureLevel, GroupRequest, Manage, Managed, NodeId, Outcome, Range,
    Roster, Staleness, Time, Wire,
};
use quorate_store::{Command, Partition, Reply};

use crate::harness::{Connection, Node, timed_out};

fn id(node: u64) -> NodeId {
    NodeId::new(node).unwrap()
}

fn at(nodes: &[(u64, &str)]) -> BTreeMap<NodeId, String> {
    nodes.iter().map(|(node, address)| (id(*node), (*address).to_owned())).collect()
}

/// Sends a command that must ask the group for something.
fn asked(node: &mut Node, connection: &mut Connection, command: &str) -> Manage {
    node.send(connection, format!("QUORATE {command}\r\n").as_bytes());
    let (ticket, request) = connection.asked.pop_back().unwrap_or_else(|| panic!("{}", connection.written()));
    assert_eq!(request.access, Access::Manage);
    node.end(connection, ticket, Outcome::Done(Managed::Done.to_bytes()));
    assert_eq!(connection.written(), "+OK\r\n");
    let manage = Manage::from_bytes(request.command).unwrap();
    let is_long = request.deadline > Time::from_nanos(30_000_000_000);
    assert_eq!(is_long, !matches!(manage, Manage::Transfer { .. }), "a new member has to catch up");
    manage
}

#[test]
fn clauses_make_one_change() {
    let mut node = Node::new();
    let mut connection = node.connect();
    for (command, voters, learners, remove) in [
        ("MEMBER ADD 4=a:1 5=[::1]:2", at(&[(4, "a:1"), (5, "[::1]:2")]), at(&[]), vec![]),
        ("member learner 4=a:1 2", at(&[]), at(&[(4, "a:1"), (2, "")]), vec![]),
        ("MEMBER PROMOTE 2", at(&[(2, "")]), at(&[]), vec![]),
        ("MEMBER REMOVE 1 2", at(&[]), at(&[]), vec![1, 2]),
        // Not in the group as far as this node knows, which may be old: the group's leader judges.
        ("MEMBER PROMOTE 9", at(&[(9, "")]), at(&[]), vec![]),
        ("MEMBER LEARNER 9", at(&[]), at(&[(9, "")]), vec![]),
        ("MEMBER REMOVE 9", at(&[]), at(&[]), vec![9]),
        (
            "MEMBER ADD 4=a:1 PROMOTE 2 LEARNER 6=c:3 ADD 5=b:2 REMOVE 1",
            at(&[(2, ""), (4, "a:1"), (5, "b:2")]),
            at(&[(6, "c:3")]),
            vec![1],
        ),
    ] {
        let remove = remove.into_iter().map(id).collect();
        let change = asked(&mut node, &mut connection, command);
        assert_eq!(change, Manage::Change { voters, learners, remove }, "{command}");
    }
    assert_eq!(asked(&mut node, &mut connection, "member cancel"), Manage::CancelChange);
    assert_eq!(asked(&mut node, &mut connection, "TRANSFER"), Manage::Transfer { to: None });
    assert_eq!(asked(&mut node, &mut connection, "transfer 63"), Manage::Transfer { to: Some(id(63)) });
}

/// From the feature level on at which all members know how.
#[test]
fn with_several_groups_one_after_the_other_is_asked_for_a_change() {
    let groups = KeyGroups::new(Arc::new(Partition::even(3).unwrap()), vec!["raft"; 3]);
    let key_scope = KeyScope::new(Some(groups), [("raft", true); 3].into_iter());
    let mut node = Node::with(Limits { key_scope, ..Limits::default() });
    let known = (id(1), FeatureLevel::NEWEST);
    node.known_levels = Some([known, (id(2), FeatureLevel::NEWEST)].into());
    let mut connection = node.connect();
    let remove = b"QUORATE MEMBER REMOVE 3\r\n";
    let refused = node.ask(&mut connection, remove);
    assert!(refused.contains("changes of members need feature level 3: once all members run a"), "{refused}");
    assert_eq!(node.ask(&mut connection, b"CONFIG SET feature-level 3\r\n"), "+OK\r\n");
    let end = |reply: Managed| Outcome::Done(reply.to_bytes());
    let (done, why) = (Managed::Done, Managed::Refused("it is not there".into()));
    let (late, timed_out) = (Outcome::Failed(Failure::TimedOut), "-CLUSTERDOWN ");
    for (outcomes, reply) in [
        (vec![end(done.clone()), end(done.clone()), end(done.clone())], "+OK"),
        (vec![end(done.clone()), end(why)], "-ERR group 2: it is not there; in force in 1 of 3 groups"),
        (vec![end(done), late], timed_out),
    ] {
        node.send(&mut connection, remove);
        let mut deadline = None;
        for (group, outcome) in (1..).zip(outcomes) {
            assert_eq!(connection.written(), "");
            let (ticket, request) = connection.asked.pop_back().expect("the next group is asked");
            let asked = GroupRequest::<Manage>::from_bytes(request.command).unwrap();
            assert_eq!((asked.group.get(), request.access), (group, Access::Manage));
            assert!(matches!(asked.asked, Manage::Change { .. }));
            assert_eq!(*deadline.get_or_insert(request.deadline), request.deadline, "one for all of it");
            node.end(&mut connection, ticket, outcome);
        }
        let written = connection.written();
        assert!(written.starts_with(reply) && connection.asked.is_empty(), "{written}");
    }
}

/// It has no state, or an old one.
#[test]
fn a_node_that_does_not_know_the_feature_level_asks_the_group_for_it_before_a_change() {
    let groups = KeyGroups::new(Arc::new(Partition::even(2).unwrap()), vec!["raft"; 2]);
    let key_scope = KeyScope::new(Some(groups), [("raft", true); 2].into_iter());
    let mut node = Node::with(Limits { key_scope, ..Limits::default() });
    let mut connection = node.connect();
    let level = |level| Outcome::Done(Reply::Integer(level).encoded());
    for (outcome, refused) in [
        (level(3), None),
        (level(4), None),
        (level(2), Some("-ERR with several groups (--groups) changes of members need feature level 3")),
        (timed_out(), Some("-CLUSTERDOWN ")),
    ] {
        node.send(&mut connection, b"QUORATE MEMBER REMOVE 3\r\n");
        let (ticket, request) = connection.asked.pop_back().unwrap();
        assert_eq!(
            (Command::from_bytes(request.command), request.access),
            (Ok(Command::Level), Access::Read)
        );
        node.end(&mut connection, ticket, outcome);
        if let Some(refused) = refused {
            let written = connection.written();
            assert!(written.starts_with(refused) && connection.asked.is_empty(), "{written}");
            continue;
        }
        for group in 1..=2 {
            assert_eq!(connection.written(), "");
            let (ticket, request) = connection.asked.pop_back().expect("the next group is asked");
            assert_eq!(GroupRequest::<Manage>::from_bytes(request.command).unwrap().group.get(), group);
            node.end(&mut connection, ticket, Outcome::Done(Managed::Done.to_bytes()));
        }
        assert_eq!(connection.written(), "+OK\r\n");
    }
    // Where any read may miss writes, this one must not.
    node.consistency = Consistency::Sequential;
    node.send(&mut connection, b"QUORATE MEMBER REMOVE 3\r\n");
    assert_eq!(connection.asked.pop_back().unwrap().1.access, Access::Within(Staleness::Versions(0)));
}

#[test]
fn what_makes_no_sense_is_refused_here() {
    let mut node = Node::new();
    let mut connection = node.connect();
    for (command, part) in [
        ("MEMBER", "wrong number of arguments for 'quorate|member'"),
        ("TRANSFER 1 GROUP 1", "the keys are not divided among groups here"),
        ("MEMBER LIST 1", "wrong number of arguments for 'quorate|member'"),
        ("MEMBER GROW 4=a:1", "write LIST, CANCEL, or what is to change"),
        ("MEMBER ADD", "write LIST, CANCEL, or what is to change"),
        ("MEMBER ADD REMOVE 1", "write LIST, CANCEL, or what is to change"),
        ("MEMBER ADD 4", "where is node 4? Write 4=HOST:PORT"),
        ("MEMBER ADD 4=a", "an address is HOST:PORT"),
        ("MEMBER ADD 64=a:1", "from 1 to 63"),
        ("MEMBER ADD =a:1", "from 1 to 63"),
        ("MEMBER REMOVE -1", "from 1 to 63"),
        ("MEMBER REMOVE 1=a:1", "the address of node 1 is known"),
        ("MEMBER ADD 4=a:1 REMOVE 4", "node 4 is named twice"),
        ("MEMBER CANCEL 4", "wrong number of arguments for 'quorate|member'"),
        ("TRANSFER x", "from 1 to 63"),
        ("TRANSFER 1 2", "wrong number of arguments for 'quorate|transfer'"),
    ] {
        let reply = node.ask(&mut connection, format!("QUORATE {command}\r\n").as_bytes());
        assert!(reply.starts_with("-ERR ") && reply.contains(part), "{command}: {reply}");
    }
    let reply =
        node.ask(&mut connection, b"MULTI\r\nQUORATE MEMBER REMOVE 1\r\nQUORATE TRANSFER\r\nEXEC\r\n");
    let refused = |name| format!("-ERR quorate {name} is not allowed in a transaction\r\n");
    let expected = format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{}{}", refused("member"), refused("transfer"));
    assert_eq!(reply, expected);
}

#[test]
fn rosters_are_set_and_shown() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let set = |ids: &[u64]| ids.iter().filter_map(|id| NodeId::new(*id)).collect();
    let range = |from: &'static str, to: Option<&'static str>, ids: &[u64]| Range {
        from: from.into(),
        to: to.map(Into::into),
        responders: set(ids),
    };
    let roster =
        Roster::new(NodeId::new(2), vec![range("a", Some("m"), &[1, 3]), range("m", None, &[2])]).unwrap();
    let words = "ROSTER SET LEADER 2 RANGE a m 1,3";
    let first = Roster::new(NodeId::new(2), vec![range("a", Some("m"), &[1, 3])]).unwrap();
    assert_eq!(asked(&mut node, &mut connection, words), Manage::Roster(first));
    let words = "ROSTER SET RANGE a z 1,3 RANGE c d 2";
    let layered =
        vec![range("a", Some("c"), &[1, 3]), range("c", Some("d"), &[2]), range("d", Some("z"), &[1, 3])];
    assert_eq!(asked(&mut node, &mut connection, words), Manage::Roster(Roster::new(None, layered).unwrap()));
    assert_eq!(asked(&mut node, &mut connection, "ROSTER AUTO ON"), Manage::AutoRoster(true));
    for (command, why) in [
        ("ROSTER SET RANGE a m 1 RANGE b n 2", "overlap"),
        ("ROSTER SET RANGE m a 1", "holds no key"),
        ("ROSTER SET RANGE a m x", "from 1 to 63"),
        ("ROSTER SET RANGE a", "ERR write SHOW"),
        ("ROSTER AUTO maybe", "ERR write SHOW"),
    ] {
        let reply = node.ask(&mut connection, format!("QUORATE {command}\r\n").as_bytes());
        assert!(reply.contains(why), "{command}: {reply}");
    }
    node.send(&mut connection, b"QUORATE ROSTER SHOW\r\n");
    let (ticket, _) = connection.asked.pop_back().unwrap();
    let shown = Managed::Roster { ballot: "b3.2".to_owned(), roster, auto: false };
    node.end(&mut connection, ticket, Outcome::Done(shown.to_bytes()));
    let shown: serde_json::Value =
        serde_json::from_str(connection.written().split("\r\n").nth(1).unwrap()).unwrap();
    let ranges = serde_json::json!([
        { "from": "a", "to": "m", "responders": [1, 3] },
        { "from": "m", "to": null, "responders": [2] },
    ]);
    let expected = serde_json::json!({ "ballot": "b3.2", "leader": 2, "auto": false, "ranges": ranges });
    assert_eq!(shown, expected);
}

#[test]
fn an_operator_is_told_why_not() {
    let mut node = Node::new();
    let mut connection = node.connect();
    for (outcome, reply) in [
        (
            Outcome::Done(Managed::Refused("no voter would be left".into()).to_bytes()),
            "-ERR no voter would be left\r\n",
        ),
        (
            Outcome::Done(Managed::UnderWay("node 4 catches up".into()).to_bytes()),
            "-TRYAGAIN the change is under way (node 4 catches up): ask again to go on waiting\r\n",
        ),
    ] {
        node.send(&mut connection, b"QUORATE MEMBER REMOVE 1 2\r\n");
        let (ticket, _) = connection.asked.pop_back().unwrap();
        node.end(&mut connection, ticket, outcome);
        assert_eq!(connection.written(), reply);
    }
    for (command, limit) in [
        ("MEMBER REMOVE 1 2", 60_000),
        ("ROSTER AUTO ON", 60_000),
        ("ROSTER SHOW", 5_000),
        ("TRANSFER 2", 5_000),
    ] {
        node.send(&mut connection, format!("QUORATE {command}\r\n").as_bytes());
        let (ticket, request) = connection.asked.pop_back().unwrap();
        assert_eq!(request.deadline.nanos() / 1_000_000, limit, "{command}");
        node.end(&mut connection, ticket, timed_out());
        let reply = format!(
            "-CLUSTERDOWN no majority answered within {limit} ms; what was asked may be done yet: ask again, it is \
             done once\r\n"
        );
        assert_eq!(connection.written(), reply);
    }
}

#[test]
fn the_list_names_members_leader_and_this_node() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let reply = node.ask(&mut connection, b"QUORATE MEMBER LIST\r\n");
    let list: serde_json::Value = serde_json::from_str(reply.split("\r\n").nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({
        "version": 5, "leader": 1, "node": 1, "membership": "voter",
        "members": [
            { "id": 1, "address": "10.0.0.1:7201", "voter": true },
            { "id": 2, "address": "10.0.0.2:7201", "voter": false },
        ],
    });
    assert_eq!(list, expected);
}
