//! What a client does when a node breaks, against servers of a few lines.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quorate_client::{Client, Error};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A node that answers each connection's first request with the next of these replies, or closes without one, and
/// reports which commands it got.
fn node(replies: Vec<Option<&'static str>>) -> (String, JoinHandle<Vec<String>>) {
    watched_node(replies, mpsc::channel().0)
}

/// The same, and tells whenever it has closed a connection.
fn watched_node(
    replies: Vec<Option<&'static str>>,
    closed: mpsc::Sender<()>,
) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node = thread::spawn(move || {
        let mut commands = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let words: usize = line.trim().trim_start_matches('*').parse().unwrap();
            let mut lines: Vec<String> = Vec::new();
            for _ in 0..2 * words {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                lines.push(line.trim().to_owned());
            }
            commands.push(lines[1].clone());
            if let Some(reply) = reply {
                stream.write_all(reply.as_bytes()).unwrap();
            }
            drop((stream, reader));
            let _ = closed.send(());
        }
        commands
    });
    (address, node)
}

/// Where nobody listens: no system gives these ports away.
const NOBODY: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

#[test]
fn an_endpoint_that_is_down_is_passed_over() {
    let (address, node) = node(vec![Some("+OK\r\n")]);
    let mut client = Client::connect([NOBODY[0], &address], TIMEOUT).unwrap();
    client.put("k", "v").unwrap();
    assert_eq!(client.endpoint(), address);
    assert_eq!(node.join().unwrap(), ["SET"]);
}

#[test]
fn a_write_whose_connection_broke_is_unknown_and_never_sent_again() {
    let (broken, first) = node(vec![None]);
    let (other, second) = node(vec![Some("$1\r\nv\r\n")]);
    let mut client = Client::connect([broken.clone(), other], TIMEOUT).unwrap();
    match client.put("k", "v") {
        Err(Error::Unknown { endpoint, .. }) => assert_eq!(endpoint, broken),
        other => panic!("{other:?}"),
    }
    // The next request goes to the next endpoint, and is the only one that it sees.
    assert_eq!(client.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (vec!["SET".into()], vec!["GET".into()]));
}

#[test]
fn a_read_is_repeated_where_a_majority_can_be_reached() {
    let (broken, first) = node(vec![None]);
    let (minority, second) = node(vec![Some("-CLUSTERDOWN no majority\r\n")]);
    let (good, third) = node(vec![Some("$-1\r\n")]);
    let mut client = Client::connect([broken, minority, good], TIMEOUT).unwrap();
    assert_eq!(client.get("k").unwrap(), None);
    for node in [first, second, third] {
        assert_eq!(node.join().unwrap(), ["GET"]);
    }
}

#[test]
fn a_connection_that_was_closed_while_idle_is_replaced_before_a_write_is_sent() {
    let (closed, closings) = mpsc::channel();
    let (address, node) = watched_node(vec![Some("$-1\r\n"), Some("+OK\r\n")], closed);
    let mut client = Client::connect([address], TIMEOUT).unwrap();
    assert_eq!(client.get("k").unwrap(), None);
    closings.recv().unwrap();
    client.put("k", "v").unwrap();
    assert_eq!(node.join().unwrap(), ["GET", "SET"]);
}

#[test]
fn when_nobody_can_be_reached_the_error_names_everyone() {
    let error = Client::connect(NOBODY, TIMEOUT).unwrap_err().to_string();
    assert!(error.starts_with("no node could answer"), "{error}");
    assert!(NOBODY.iter().all(|address| error.contains(address)), "{error}");
}

#[test]
fn an_error_reply_is_an_error_with_the_node_s_words() {
    let (address, _node) = node(vec![Some("-WRONGTYPE not a string\r\n")]);
    let error = Client::connect([address.clone()], TIMEOUT).unwrap().get("k").unwrap_err();
    assert_eq!(error.to_string(), format!("{address} answered: WRONGTYPE not a string"));
}
