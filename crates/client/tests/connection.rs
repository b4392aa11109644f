//! Whose reply a client takes for whose, and what it makes of errors on the way, against servers of a few lines.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use quorate_client::{Client, Error, Login, Value};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Answers one request after another with these, and keeps the connection.
fn answer(mut stream: TcpStream, replies: &[&str]) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    for reply in replies {
        let Some(words) = lines.next() else { return };
        let words: usize = words.trim_start_matches('*').parse().unwrap();
        lines.by_ref().take(2 * words).for_each(drop);
        stream.write_all(reply.as_bytes()).unwrap();
    }
    // Until the client leaves.
    lines.for_each(drop);
}

/// A node that has these replies for the first connection, those for the second, and so on.
fn node(connections: &'static [&'static [&'static str]]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for replies in connections {
            let (stream, _) = listener.accept().unwrap();
            thread::spawn(|| answer(stream, replies));
        }
    });
    address
}

fn client(endpoints: &[&String]) -> Client {
    Client::connect(endpoints.iter().copied().cloned(), TIMEOUT).unwrap()
}

#[test]
fn what_nobody_asked_for_is_no_reply_to_the_next_request() {
    let mut client = client(&[&node(&[&["$1\r\na\r\n$5\r\nwrong\r\n"], &["$5\r\nright\r\n"]])]);
    assert_eq!(client.get("k").unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(client.get("k").unwrap().as_deref(), Some(&b"right"[..]));
}

#[test]
fn a_connection_whose_reply_made_no_sense_is_not_used_again() {
    let mut client = client(&[&node(&[&["hello\r\n", "$5\r\nwrong\r\n"], &["$5\r\nright\r\n"]])]);
    assert!(matches!(client.put("k", "v"), Err(Error::Unknown { .. })));
    assert_eq!(client.get("k").unwrap().as_deref(), Some(&b"right"[..]));
}

#[test]
fn a_transaction_says_what_was_wrong_with_a_command_where_it_was_queued_or_executed() {
    let commands = [vec!["SET", "k", "v"], vec!["INCR", "k"]];
    for (replies, expected) in [
        (&["+OK\r\n", "-ERR at first\r\n", "+QUEUED\r\n", "-EXECABORT then\r\n"], Some("ERR at first")),
        (&["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n-ERR second\r\n"], Some("ERR second")),
        (&["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n:1\r\n"], None),
    ] {
        let node = node(Box::leak(Box::new([&replies[..]])));
        match (client(&[&node]).transaction(&commands), expected) {
            (Err(Error::Refused { message, .. }), Some(expected)) => assert_eq!(message, expected),
            (Ok(replies), None) => {
                assert_eq!(replies, [Value::Status("OK".to_owned()), Value::Integer(1)]);
            }
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_knows_no_users_is_passed_over_and_one_that_knows_the_password_is_wrong_is_not() {
    let login = || Some(Login { user: "ann".to_owned(), password: "secret".into() });
    let minority = node(&[&["-CLUSTERDOWN no majority\r\n"]]);
    let good = node(&[&["+OK\r\n"]]);
    let client = Client::connect_as([minority, good.clone()], TIMEOUT, None, login()).unwrap();
    assert_eq!(client.endpoint(), good);
    let strict = node(&[&["-WRONGPASS no\r\n"]]);
    match Client::connect_as([strict, good], TIMEOUT, None, login()) {
        Err(Error::Refused { message, .. }) => assert_eq!(message, "WRONGPASS no"),
        other => panic!("{other:?}"),
    }
}
