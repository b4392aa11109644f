//! Pipelines: replies in the order of requests, whatever the order of outcomes; room; ends.

use std::time::Duration;

use quorate_api::resp::Limits;
use quorate_core::{Access, Failure, Outcome, Staleness, Wire};
use quorate_store::Command;

use crate::harness::{Node, UNDER_WAY, timed_out};

#[test]
fn replies_go_out_in_the_order_of_requests_although_outcomes_come_in_another() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.send(
        &mut connection,
        b"PING first\r\nSET k 1\r\nPING second\r\nINCR k\r\nGET k\r\nPING third\r\nBOGUS\r\n",
    );
    assert_eq!(connection.written(), "$5\r\nfirst\r\n");
    let mut asked: Vec<_> = connection.asked.drain(..).collect();
    let mut outcomes: Vec<_> = asked.iter().map(|(_, request)| node.execute(request)).collect();
    while let (Some((ticket, _)), Some(outcome)) = (asked.pop(), outcomes.pop()) {
        assert_eq!(connection.written(), "", "the first has not ended");
        node.end(&mut connection, ticket, outcome);
    }
    assert_eq!(
        connection.written(),
        "+OK\r\n$6\r\nsecond\r\n:2\r\n$1\r\n2\r\n$5\r\nthird\r\n\
         -ERR unknown command 'BOGUS', with args beginning with: \r\n"
    );
}

#[test]
fn a_request_carries_its_stream_its_access_and_its_deadline() {
    let mut node = Node::new();
    let (mut one, mut other) = (node.connect(), node.connect());
    node.send(&mut one, b"SET k 1\r\nGET k\r\n");
    node.send(&mut other, b"MULTI\r\nGET k\r\nEXEC\r\nMULTI\r\nINCR k\r\nEXEC\r\n");
    let accesses = |asked: &std::collections::VecDeque<(_, quorate_core::Request)>| {
        asked.iter().map(|(_, request)| request.access).collect::<Vec<_>>()
    };
    assert_eq!(accesses(&one.asked), [Access::Write, Access::Read]);
    assert_eq!(accesses(&other.asked), [Access::Read, Access::Write]);
    let mut third = node.connect();
    node.send(
        &mut third,
        b"CLIENT READMODE bounded=500ms\r\nGET k\r\nSET k 1\r\nCLIENT READMODE bounded=2\r\nMGET a b\r\n",
    );
    let bounds = [Staleness::Age(Duration::from_millis(500)), Staleness::Versions(2)].map(Access::Within);
    assert_eq!(accesses(&third.asked), [bounds[0], Access::Write, bounds[1]]);
    assert_ne!(one.asked[0].1.stream, other.asked[0].1.stream);
    assert_eq!(one.asked[0].1.deadline.nanos(), 5_000_000_001);
}

#[test]
fn failures_say_what_is_known() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.send(&mut connection, b"GET k\r\nSET k 1\r\nSET k 1\r\n");
    let asked: Vec<_> = connection.asked.drain(..).collect();
    for ((ticket, _), outcome) in
        asked.into_iter().zip([timed_out(), timed_out(), Outcome::Failed(Failure::Overloaded)])
    {
        node.end(&mut connection, ticket, outcome);
    }
    assert_eq!(
        connection.written(),
        "-CLUSTERDOWN no majority answered within 5000 ms\r\n\
         -CLUSTERDOWN no majority answered within 5000 ms; the outcome is unknown: the write may take effect now, \
         later or never\r\n\
         -BUSY too many requests are waiting; try again\r\n"
    );
}

#[test]
fn exec_waits_for_what_watch_finds_and_everything_after_it_waits_too() {
    let mut node = Node::new();
    let (mut connection, mut other) = (node.connect(), node.connect());
    node.send(&mut connection, b"WATCH k\r\nMULTI\r\nSET k 1\r\nEXEC\r\nPING\r\nGET k\r\n");
    assert_eq!(connection.asked.len(), 1);
    let (ticket, request) = connection.asked.pop_front().unwrap();
    let versions = node.execute(&request);
    node.end(&mut connection, ticket, versions);
    assert_eq!(connection.written(), "+OK\r\n+OK\r\n+QUEUED\r\n");
    // Another connection is first.
    node.ask(&mut other, b"SET k 2\r\n");
    assert_eq!(node.settle(&mut connection), b"*-1\r\n+PONG\r\n$1\r\n2\r\n");
}

#[test]
fn watch_finds_every_change_where_only_what_interferes_is_ordered() {
    let mut node = Node::unordered();
    let (mut connection, mut other) = (node.connect(), node.connect());
    node.ask(&mut connection, b"SET k 0\r\n");
    for change in
        ["SET k 1", "APPEND k 2", "INCR k", "DEL k", "SET k 3", "EXPIRE k 100", "DEL k", "HSET k f v"]
    {
        node.ask(&mut connection, b"WATCH k\r\n");
        node.ask(&mut other, format!("{change}\r\n").as_bytes());
        assert_eq!(
            node.ask(&mut connection, b"MULTI\r\nDEL k\r\nEXEC\r\n"),
            "+OK\r\n+QUEUED\r\n*-1\r\n",
            "{change}"
        );
    }
    node.ask(&mut other, b"SET j 1\r\n");
    let unchanged = node.ask(&mut connection, b"WATCH k\r\nMULTI\r\nDEL k\r\nEXEC\r\n");
    assert!(unchanged.ends_with("*1\r\n:1\r\n"), "{unchanged}");
}

#[test]
fn exec_is_refused_when_nobody_knows_what_was_watched() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.send(&mut connection, b"WATCH k\r\nMULTI\r\nSET k 1\r\nEXEC\r\nGET k\r\n");
    let (ticket, _) = connection.asked.pop_front().unwrap();
    node.end(&mut connection, ticket, timed_out());
    let written = String::from_utf8(node.settle(&mut connection)).unwrap();
    assert!(written.starts_with("-CLUSTERDOWN"), "{written}");
    assert!(
        written.ends_with("-EXECABORT Transaction discarded because of previous errors.\r\n$-1\r\n"),
        "{written}"
    );
}

#[test]
fn what_an_earlier_watch_finds_is_of_no_use_to_a_later_one() {
    let mut node = Node::new();
    let (mut connection, mut other) = (node.connect(), node.connect());
    node.send(&mut connection, b"WATCH k\r\nUNWATCH\r\n");
    node.ask(&mut other, b"SET k 1\r\n");
    assert_eq!(
        node.ask(&mut connection, b"WATCH j\r\nMULTI\r\nGET k\r\nEXEC\r\n"),
        "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n$1\r\n1\r\n"
    );
}

#[test]
fn who_begins_to_read_sequentially_is_shown_what_it_was_told_of_before() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.ask(&mut connection, b"SET k 1\r\n");
    // The write was executed in slot 8, and this node's own state lags.
    (node.applied, connection.seen) = (Some(7), 8);
    node.send(&mut connection, b"CLIENT READMODE sequential\r\nGET k\r\n");
    assert_eq!((connection.written().as_str(), connection.asked.len()), ("+OK\r\n", 1), "the group is asked");
    assert_eq!(node.settle(&mut connection), b"$1\r\n1\r\n");
    node.send(&mut connection, b"GET k\r\n");
    assert_eq!(connection.asked.len(), 1, "it still lags");
    node.settle(&mut connection);
    node.applied = Some(8);
    node.send(&mut connection, b"GET k\r\n");
    assert_eq!((connection.written().as_str(), connection.asked.len()), ("$1\r\n1\r\n", 0));
}

#[test]
fn a_session_stops_reading_while_too_much_is_under_way() {
    let mut node = Node::new();
    let mut connection = node.connect();
    node.send(&mut connection, &b"INCR k\r\n".repeat(100));
    assert_eq!(connection.asked.len(), UNDER_WAY);
    let written = String::from_utf8(node.settle(&mut connection)).unwrap();
    assert_eq!(written, (1..=100).map(|n| format!(":{n}\r\n")).collect::<String>());
}

#[test]
fn a_session_stops_reading_while_its_replies_are_not_taken() {
    let limits = Limits { replies: 10_000, ..Limits::default() };
    // Short requests with long replies: straight out, and behind a request that is under way.
    for first in ["", "GET k\r\n"] {
        let mut node = Node::with(limits.clone());
        let mut connection = node.connect();
        node.send(&mut connection, first.as_bytes());
        node.send(&mut connection, &b"COMMAND\r\n".repeat(1000));
        assert!(connection.unread() > 9 * 990, "{} bytes left", connection.unread());
        let written = String::from_utf8(node.settle(&mut connection)).unwrap();
        assert_eq!((connection.unread(), written.matches("$6\r\nappend\r\n").count()), (0, 1000));
    }
}

#[test]
fn a_connection_whose_early_replies_grow_too_large_is_closed() {
    let mut node = Node::with(Limits { early_replies: 1000, ..Limits::default() });
    let mut connection = node.connect();
    node.ask(&mut connection, format!("SET k {}\r\n", "v".repeat(600)).as_bytes());
    node.send(&mut connection, b"GET a\r\nGET k\r\nGET k\r\n");
    let asked: Vec<_> = connection.asked.drain(1..).collect();
    for (index, (ticket, request)) in asked.into_iter().enumerate() {
        assert!(!connection.closed, "{index}");
        let outcome = node.execute(&request);
        node.end(&mut connection, ticket, outcome);
    }
    assert!(connection.closed);
}

#[test]
fn a_connection_ends_after_all_replies_and_nothing_after_the_end_is_executed() {
    for (end, reply) in [
        ("QUIT\r\n", "+OK\r\n"),
        ("*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        ("*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        ("SET \"k\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", ""),
        ("Host: x\r\n", ""),
    ] {
        let mut node = Node::new();
        let mut connection = node.connect();
        node.send(&mut connection, format!("SET k 1\r\n{end}SET k 2\r\n").as_bytes());
        assert!(!connection.closed, "{end}");
        assert_eq!(String::from_utf8(node.settle(&mut connection)).unwrap(), format!("+OK\r\n{reply}"));
        assert!(connection.closed, "{end}");
        node.send(&mut connection, b"SET k 3\r\n");
        assert!(connection.asked.is_empty());
        let mut other = node.connect();
        assert_eq!(node.ask(&mut other, b"GET k\r\n"), "$1\r\n1\r\n");
    }
}

#[test]
fn a_transaction_is_not_executed_in_part_when_the_users_become_known_while_it_comes_in() {
    let mut proxy = Node::new();
    proxy.knows_users = false;
    let mut connection = proxy.connect();
    for end in ["EXEC", "DISCARD"] {
        proxy.send(&mut connection, format!("MULTI\r\nINCR a\r\nINCR b\r\n{end}\r\nGET a\r\n").as_bytes());
        // Nobody answers who the users are when the transaction begins; from then on somebody does.
        let (ticket, request) = connection.asked.pop_front().unwrap();
        assert_eq!(Command::from_bytes(request.command), Ok(Command::Users));
        proxy.end(&mut connection, ticket, timed_out());
        let told = String::from_utf8(proxy.settle(&mut connection)).unwrap();
        let ended = if end == "EXEC" { "*2\r\n:1\r\n:1\r\n$1\r\n1\r\n" } else { "+OK\r\n$1\r\n1\r\n" };
        assert_eq!(told, format!("+OK\r\n+QUEUED\r\n+QUEUED\r\n{ended}"));
        proxy.now += 1_000_000_001;
    }
}
