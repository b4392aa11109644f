//! Large values and large replies under a bound on memory (`ulimit -v`): nobody runs out of it, what was acknowledged
//! is there after a restart, and a replica that lags catches up.

mod support;

use std::thread;

use support::{Cluster, Connection, Node, Resp, request, wait_for};

/// Address space of a node, in KiB: a few times what it needs, a fraction of what these requests could make it hold.
const ADDRESS_SPACE_KIB: u64 = 4 << 20;
const LARGE: usize = 16 << 20;

fn cluster() -> Cluster {
    let mut cluster = Cluster::prepare(3, "multipaxos", &["--durability", "os"]);
    cluster.nodes.iter_mut().for_each(|node| node.start_with_address_space(ADDRESS_SPACE_KIB));
    cluster.nodes.iter().for_each(Node::wait_until_serving);
    cluster
}

/// Sets a key for certain: on a slow machine a large value may take longer than a node waits for it.
fn set(node: &Node, key: &str, value: &[u8]) {
    wait_for("a write", || {
        let reply = Connection::open(&node.resp).ok()?.call(&[b"SET", key.as_bytes(), value]);
        matches!(reply, Ok(Resp::Simple(ok)) if ok == "OK").then_some(())
    });
}

fn get(node: &Node, key: &str) -> Vec<u8> {
    wait_for("a read", || match Connection::open(&node.resp).ok()?.call(&[b"GET", key.as_bytes()]) {
        Ok(Resp::Bulk(value)) => Some(value),
        _ => None,
    })
}

/// The last slot that a node has executed.
fn applied(node: &Node) -> Option<u64> {
    let Ok(Resp::Bulk(json)) = Connection::open(&node.resp).ok()?.call(&[b"QUORATE", b"STATUS"]) else {
        return None;
    };
    serde_json::from_slice::<serde_json::Value>(&json).ok()?["applied"].as_u64()
}

/// What these pipelined requests are answered with until all are, or the node closes the connection because its
/// client does not take replies as fast as they come.
fn answers(node: &Node, requests: &[u8], count: usize) -> Vec<Resp> {
    let mut connection = Connection::open(&node.resp).unwrap();
    connection.send(requests).unwrap();
    let replies = std::iter::from_fn(|| connection.reply().ok());
    replies.take(count).collect()
}

#[test]
fn a_few_kilobytes_of_requests_with_large_replies_exhaust_no_memory_and_no_snapshot_is_lost_to_them() {
    let mut cluster = cluster();
    let large = vec![b'x'; LARGE];
    set(&cluster.nodes[0], "large", &large);
    // Each of these would be retained by every replica: 16 GiB for 72 KB of requests.
    let count = 1024;
    let pipelined = request(&[b"GETEX", b"large", b"PERSIST"]).repeat(count);
    let transactions = [
        request(&[b"MULTI"]),
        request(&[b"SET", b"small", b"v"]),
        request(&[b"GET", b"large"]),
        request(&[b"EXEC"]),
    ];
    for requests in [pipelined, transactions.concat().repeat(count / 4)] {
        let replies = answers(&cluster.nodes[1], &requests, count);
        assert!(!replies.is_empty(), "some are answered");
        for reply in replies {
            let text = match reply {
                Resp::Error(text) => text,
                Resp::Bulk(value) => {
                    assert!(value == large, "another value");
                    continue;
                }
                Resp::Simple(_) | Resp::Array(_) => continue,
                other => panic!("{other:?}"),
            };
            assert!(text.starts_with("EXECUTED ") || text.starts_with("CLUSTERDOWN "), "{text}");
        }
        cluster.nodes.iter().for_each(Node::wait_until_serving);
    }
    // Enough for a snapshot, with everything that is retained.
    let value = vec![b'y'; 1 << 20];
    for index in 0..300 {
        set(&cluster.nodes[0], &format!("k{}", index % 8), &value);
    }
    for node in &cluster.nodes {
        node.wait_for_line(&["a snapshot is written"]);
    }
    for node in &mut cluster.nodes {
        node.kill();
    }
    for node in &mut cluster.nodes {
        node.start_with_address_space(ADDRESS_SPACE_KIB);
    }
    for node in &cluster.nodes {
        node.wait_until_serving();
        assert!(get(node, "large") == large, "the large value is there");
        assert!(get(node, "k7") == value, "the last writes are there");
        assert_eq!(node.lines_with("panicked"), 0);
        assert_eq!(node.lines_with("a message of"), 0, "no message was too long");
    }
}

#[test]
fn a_replica_that_lags_behind_large_values_catches_up() {
    let cluster = cluster();
    let leader = cluster.leader();
    let behind = (leader + 1) % 3;
    set(&cluster.nodes[leader], "v0", b"before");
    cluster.nodes[behind].pause();
    // More than is kept of the log: only a snapshot has it all.
    for index in 0..12 {
        set(&cluster.nodes[leader], &format!("v{index}"), &vec![index as u8; LARGE]);
    }
    set(&cluster.nodes[leader], "last", b"written");
    let target = applied(&cluster.nodes[leader]).unwrap();
    cluster.nodes[behind].resume();
    wait_for("the replica", || applied(&cluster.nodes[behind]).filter(|&applied| applied >= target));
    assert_eq!(get(&cluster.nodes[behind], "last"), b"written");
    assert!(get(&cluster.nodes[behind], "v11") == vec![11; LARGE], "what it missed is there");
    assert_eq!(cluster.nodes[leader].lines_with("a message of"), 0, "no message was too long");
}

#[test]
fn requests_that_wait_for_a_majority_take_no_more_memory_than_clients_may() {
    let flags = ["--max-value", "8MiB", "--client-output", "16MiB", "--client-memory", "48MiB"];
    let cluster =
        Cluster::start_with(3, "multipaxos", &[&flags[..], &["--set", "intake.bytes=16MiB"]].concat());
    let [asked, others @ ..] = &cluster.nodes[..] else { panic!("there are three") };
    let requests = request(&[b"SET", b"k", &vec![b'x'; 1 << 20]]).repeat(20);
    others.iter().for_each(Node::pause);
    thread::scope(|scope| {
        let mut first = Connection::open(&asked.resp).unwrap();
        first.send(&request(&[b"SET", b"first", b"x"])).unwrap();
        for _ in 0..15 {
            scope.spawn(|| answers(asked, &requests, 20));
        }
        // It has been given up: what came behind it had all that time to be read.
        assert!(matches!(first.reply().unwrap(), Resp::Error(why) if why.starts_with("CLUSTERDOWN ")));
        let (_, highest) = asked.memory();
        others.iter().for_each(Node::resume);
        assert!(highest < 220 << 20, "{highest}");
    });
    cluster.nodes.iter().for_each(Node::wait_until_serving);
}
