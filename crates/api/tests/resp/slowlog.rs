//! SLOWLOG in Redis's form, of what the harness's node remembers: two requests.

use crate::harness::Node;

#[test]
fn slow_requests_are_shown_in_redis_form_with_their_stages() {
    let mut node = Node::new();
    let mut connection = node.connect();
    let write = "*7\r\n:8\r\n:1700000000\r\n:71000\r\n*1\r\n$3\r\nset\r\n$11\r\n127.0.0.1:9\r\n$3\r\nbob\r\n\
                 *6\r\n$4\r\nslot\r\n:7\r\n$6\r\nqueued\r\n:1000\r\n$7\r\nreplied\r\n:70000\r\n";
    let read = "*7\r\n:7\r\n:1700000000\r\n:71000\r\n*1\r\n$3\r\nget\r\n$11\r\n127.0.0.1:9\r\n$0\r\n\r\n\
                *4\r\n$6\r\nqueued\r\n:1000\r\n$7\r\nreplied\r\n:70000\r\n";
    for (asked, expected) in [
        ("SLOWLOG GET", format!("*2\r\n{write}{read}")),
        ("slowlog get -1", format!("*2\r\n{write}{read}")),
        ("SLOWLOG GET 1", format!("*1\r\n{write}")),
        ("SLOWLOG GET 0", "*0\r\n".to_owned()),
        ("SLOWLOG LEN", ":2\r\n".to_owned()),
        ("SLOWLOG RESET", "+OK\r\n".to_owned()),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1\r\n".to_owned()),
        ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1\r\n".to_owned()),
        ("SLOWLOG GET 1 2", "-ERR wrong number of arguments for 'slowlog|get' command\r\n".to_owned()),
        ("SLOWLOG", "-ERR wrong number of arguments for 'slowlog' command\r\n".to_owned()),
    ] {
        assert_eq!(node.ask(&mut connection, format!("{asked}\r\n").as_bytes()), expected, "{asked}");
    }
    let resp3 = node.ask(&mut connection, b"HELLO 3\r\nSLOWLOG GET 1\r\n");
    assert!(resp3.contains("%3\r\n$4\r\nslot\r\n"), "the stages are a map there: {resp3}");
}

#[test]
fn a_request_under_way_can_be_described() {
    use quorate_node::frontend::{Frontend, Ticket};
    let mut node = Node::new();
    let mut connection = node.connect();
    node.ask(&mut connection, b"CLIENT SETNAME bob\r\n");
    node.send(&mut connection, b"SET k v\r\nGET k\r\n");
    let described = |ticket| {
        let described = node.resp.describe(connection.session(), Ticket(ticket));
        (described.command, described.client)
    };
    let tickets: Vec<_> = connection.asked.iter().map(|(ticket, _)| ticket.0).collect();
    assert_eq!(described(tickets[0]), ("set", "bob".to_owned()));
    assert_eq!(described(tickets[1]), ("get", "bob".to_owned()));
    assert_eq!(described(tickets[1] + 1).0, "?", "nobody asked that");
}
