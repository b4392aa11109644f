//! What a node offers beside the commands: reads from its own state, a proxy without a replica, metrics and health.

#[path = "support/http.rs"]
mod http;
mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use http::get;
use quorate_bench::Ports;
use support::{Cluster, Connection, Resp, wait_for};

fn ok() -> Resp {
    Resp::Simple("OK".into())
}

fn bulk(text: &str) -> Resp {
    Resp::Bulk(text.into())
}

#[test]
fn weaker_reads_need_no_other_node_and_sequential_ones_see_the_connections_own_writes() {
    let ports = Ports::claim().unwrap();
    let http = [(); 3].map(|()| ports.address());
    let mut cluster =
        Cluster::start_each(3, "multipaxos", |node| vec!["--listen-http".into(), http[node].clone()]);
    let leader = cluster.leader();
    let follower = (leader + 1) % 3;
    let mut connection = Connection::open(&cluster.nodes[follower].resp).unwrap();
    assert_eq!(connection.call(&[b"CLIENT", b"READMODE"]).unwrap(), bulk("linearizable"));
    assert_eq!(connection.call(&[b"CLIENT", b"READMODE", b"Sequential"]).unwrap(), ok());
    for round in 0..200 {
        let value = round.to_string();
        assert_eq!(connection.call(&[b"SET", b"counter", value.as_bytes()]).unwrap(), ok());
        assert_eq!(connection.call(&[b"GET", b"counter"]).unwrap(), bulk(&value), "its own write");
        assert_eq!(connection.call(&[b"INCR", b"counter"]).unwrap(), Resp::Integer(round + 1));
        assert_eq!(connection.call(&[b"GET", b"counter"]).unwrap(), bulk(&(round + 1).to_string()));
    }
    let (status, body) = get(&http[follower], "/health").unwrap();
    assert_eq!((status.as_str(), body.starts_with("ok")), ("200", true), "{body}");
    let (status, metrics) = get(&http[follower], "/metrics").unwrap();
    assert_eq!(status, "200");
    assert!(metrics.lines().any(|line| line == "quorate_role{role=\"follower\"} 1"), "{metrics}");
    assert_eq!(get(&http[follower], "/nothing").unwrap().0, "404");
    assert_eq!(get(&http[follower], "/livez").unwrap().0, "200");
    let (status, body) = get(&http[follower], "/readyz?exclude=disk").unwrap();
    assert_eq!((status.as_str(), body.lines().next()), ("200", Some("[+]read ok")), "{body}");

    for node in 0..3 {
        if node != follower {
            cluster.nodes[node].kill();
        }
    }
    assert_eq!(connection.call(&[b"GET", b"counter"]).unwrap(), bulk("200"), "nobody else is there");
    assert_eq!(connection.call(&[b"CLIENT", b"READMODE", b"local"]).unwrap(), ok());
    assert_eq!(connection.call(&[b"GET", b"counter"]).unwrap(), bulk("200"));
    assert_eq!(connection.call(&[b"CLIENT", b"READMODE", b"linearizable"]).unwrap(), ok());
    let refused = connection.call(&[b"GET", b"counter"]).unwrap();
    assert!(matches!(&refused, Resp::Error(text) if text.starts_with("CLUSTERDOWN")), "{refused:?}");
    let (status, body) = get(&http[follower], "/health").unwrap();
    assert_eq!(status, "503");
    assert!(body.contains("0 of the 2 other members can be reached"), "{body}");
    let (status, body) = get(&http[follower], "/readyz").unwrap();
    assert!(status == "503" && body.contains("[-]read failed: ") && body.ends_with("not ready\n"), "{body}");
    assert_eq!(get(&http[follower], "/livez").unwrap().0, "200", "a restart would not help");
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_proxy_serves_without_a_replica_and_finds_the_next_leader() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let mut process = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["proxy", "--listen-resp", "127.0.0.1:0", "--initial-cluster", cluster.members()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let process = Process(process);
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let address = line.split("a proxy serves clients on ").nth(1).and_then(|rest| rest.split(' ').next());
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();

    let mut connection = Connection::open(&address).unwrap();
    assert_eq!(connection.call(&[b"SET", b"a", b"1"]).unwrap(), ok());
    let mut elsewhere = Connection::open(&cluster.nodes[1].resp).unwrap();
    assert_eq!(elsewhere.call(&[b"GET", b"a"]).unwrap(), bulk("1"));
    let refused = connection.call(&[b"CLIENT", b"READMODE", b"local"]).unwrap();
    assert!(matches!(&refused, Resp::Error(text) if text.contains("this is a proxy")), "{refused:?}");

    let leader = cluster.leader();
    cluster.nodes[leader].kill();
    wait_for("the proxy to be served by the next leader", || {
        (connection.call(&[b"INCR", b"a"]).unwrap() == Resp::Integer(2)).then_some(())
    });
    assert_eq!(connection.call(&[b"GET", b"a"]).unwrap(), bulk("2"));
    drop(process);
}
