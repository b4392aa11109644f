//! `--otlp-endpoint`: a collector gets a span of each request that is sampled, with its stages, and what it does not
//! take is counted; the node serves all the same.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;
use support::{Cluster, Connection, Resp, wait_for};

/// A collector that takes everything: its URL, and the messages.
fn collector() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (messages, received) = channel();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = BufReader::new(socket.unwrap());
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                socket.read_line(&mut line).unwrap();
                match line.trim_end() {
                    "" => break,
                    line => head.push(line.to_owned()),
                }
            }
            assert_eq!(head[0], "POST /v1/traces HTTP/1.1");
            assert!(head.contains(&"Content-Type: application/json".to_owned()), "{head:?}");
            let length = head.iter().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            socket.read_exact(&mut body).unwrap();
            socket.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
            if messages.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, received)
}

/// The spans of a message.
fn spans(message: &Value) -> &Vec<Value> {
    message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap()
}

/// The message that has a span of this command.
fn message_with(received: &Receiver<Value>, command: &str) -> Value {
    let mut of_command =
        received.iter().filter(|message| spans(message).iter().any(|span| span["name"] == command));
    of_command.next().expect("the collector listens")
}

/// Start and end of a span, in nanoseconds.
fn interval(span: &Value) -> [u64; 2] {
    ["startTimeUnixNano", "endTimeUnixNano"].map(|field| span[field].as_str().unwrap().parse().unwrap())
}

fn attribute(holder: &Value, key: &str) -> Option<String> {
    let found = holder["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key)?;
    found["value"].as_object().unwrap().values().next().map(|value| value.as_str().unwrap().to_owned())
}

fn dropped(connection: &mut Connection) -> u64 {
    let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { panic!("it is running") };
    let status: Value = serde_json::from_slice(&json).unwrap();
    status["facts"]["spans_dropped_total"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_collector_gets_the_stages_of_a_write_without_its_key_and_value() {
    let (url, received) = collector();
    let flags = ["--slow-log", "off", "--otlp-endpoint", &url, "--otlp-sample", "1"];
    let mut cluster = Cluster::start_with(1, "multipaxos", &flags);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    assert_eq!(
        connection.call(&[b"SET", b"a-secret-key", b"a-secret-value"]).unwrap(),
        Resp::Simple("OK".into())
    );
    let message = message_with(&received, "set");
    assert!(!message.to_string().contains("secret"), "{message}");

    let resource = &message["resourceSpans"][0]["resource"];
    let of_resource = |key| attribute(resource, key).unwrap();
    assert_eq!(
        ["service.name", "service.instance.id", "quorate.protocol"].map(of_resource),
        ["quorate", "1", "multipaxos"]
    );
    let set = spans(&message).iter().find(|span| span["name"] == "set").unwrap();
    assert_eq!(attribute(set, "db.operation.name").as_deref(), Some("set"));
    assert!(attribute(set, "quorate.slot").is_some(), "{set}");
    let stages: Vec<_> =
        spans(&message).iter().filter(|span| span["parentSpanId"] == set["spanId"]).collect();
    let names: Vec<_> = stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"queued"), "{names:?}");
    assert_eq!(names.last(), Some(&"replied"), "{names:?}");
    assert!(["proposed", "committed", "applied"].iter().all(|name| names.contains(name)), "{names:?}");
    let mut reached = interval(set)[0];
    for stage in stages {
        let [start, end] = interval(stage);
        assert_eq!(start, reached, "{names:?}");
        reached = end;
    }
    assert_eq!(reached, interval(set)[1], "the stages are all of it");

    // What waits when the node stops is sent before its process ends.
    connection.call(&[b"DEL", b"a-secret-key"]).unwrap();
    assert!(cluster.nodes[0].terminate().success());
    message_with(&received, "del");
}

#[test]
fn a_node_whose_collector_is_away_serves_and_counts_what_is_lost() {
    // Nobody listens at a port that was bound and is free again.
    let url = TcpListener::bind("127.0.0.1:0")
        .map(|gone| format!("http://{}", gone.local_addr().unwrap()))
        .unwrap();
    let flags = ["--otlp-endpoint", &url, "--otlp-sample", "1"];
    let cluster = Cluster::start_with(1, "unreplicated", &flags);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    for _ in 0..100 {
        assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    }
    wait_for("lost spans", || (dropped(&mut connection) >= 100).then_some(()));
    cluster.nodes[0].wait_for_line(&["takes no spans", "refused"]);
}
