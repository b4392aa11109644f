//! A slow write is logged with its stages: where it was proposed with all of them, elsewhere with its slot.

mod support;

use std::sync::mpsc;
use std::thread;

use support::{Cluster, Connection, Resp, wait_for};

/// The configured threshold; the write waits for many times as long.
const THRESHOLD_MS: u64 = 1;
const TIMES: u64 = 100;

/// What the leader says of itself: requests under way, and for how long it has heard nobody.
fn state(connection: &mut Connection) -> (u64, u64) {
    let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { panic!("it is running") };
    let status: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let under_way = status["facts"]["requests_under_way"].as_str().unwrap().parse().unwrap();
    let peers = status["peers"].as_array().unwrap();
    (under_way, peers.iter().filter_map(|peer| peer["heard_ms"].as_u64()).min().unwrap_or(0))
}

fn array(reply: Resp) -> Vec<Resp> {
    match reply {
        Resp::Array(elements) => elements,
        other => panic!("{other:?} is no array"),
    }
}

fn text(reply: &Resp) -> String {
    match reply {
        Resp::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?} is no text"),
    }
}

fn number(reply: &Resp) -> u64 {
    match reply {
        Resp::Integer(number) => u64::try_from(*number).unwrap(),
        other => panic!("{other:?} is no number"),
    }
}

/// An entry of SLOWLOG GET: command, microseconds in all, and names with numbers behind it.
fn entry(reply: Resp) -> (String, u64, Vec<(String, u64)>) {
    let elements = array(reply);
    assert_eq!(elements.len(), 7, "six of Redis and ours: {elements:?}");
    let named = array(elements[6].clone());
    let named = named.chunks(2).map(|pair| (text(&pair[0]), number(&pair[1]))).collect();
    (text(&array(elements[3].clone())[0]), number(&elements[2]), named)
}

#[test]
fn a_write_without_a_majority_is_slow_until_committed() {
    let threshold = format!("{THRESHOLD_MS}ms");
    // A patient election lets the leader lead while it hears nobody; a slow disk is not what this is about.
    let flags = ["--slow-log", &threshold, "--set", "election.timeout=2s", "--durability", "os"];
    let mut cluster = Cluster::start_with(3, "multipaxos", &flags);
    // A session is open, and a leader known, at each of the proxies.
    for node in &cluster.nodes {
        let mut connection = Connection::open(&node.resp).unwrap();
        assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    }
    let leader = cluster.leader();
    let others: Vec<_> = (0..3).filter(|index| *index != leader).collect();
    let mut watcher = Connection::open(&cluster.nodes[leader].resp).unwrap();
    let mut writer = Connection::open(&cluster.nodes[leader].resp).unwrap();
    assert_eq!(writer.call(&[b"CLIENT", b"SETNAME", b"patient"]).unwrap(), Resp::Simple("OK".into()));
    assert_eq!(watcher.call(&[b"SLOWLOG", b"RESET"]).unwrap(), Resp::Simple("OK".into()));
    assert_eq!(watcher.call(&[b"SLOWLOG", b"LEN"]).unwrap(), Resp::Integer(0));

    others.iter().for_each(|index| cluster.nodes[*index].pause());
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || tell.send(writer.call(&[b"APPEND", b"k", b"w"]).unwrap()).unwrap());
    // Everything before it waits for votes happens within this silence of the followers...
    let before = wait_for("the write to be under way", || match state(&mut watcher) {
        (1.., silence) => Some(silence),
        (0, _) => None,
    });
    // ...so by then, most of the time that it has taken is that wait.
    let enough = 2 * before + TIMES * THRESHOLD_MS;
    wait_for("the write to have waited", || (state(&mut watcher).1 >= enough).then_some(()));
    others.iter().for_each(|index| cluster.nodes[*index].resume());
    assert_eq!(told.recv_timeout(support::PATIENCE).unwrap(), Resp::Integer(2));
    waiting.join().unwrap();

    let entries = array(watcher.call(&[b"SLOWLOG", b"GET", b"-1"]).unwrap());
    let found = entries.into_iter().map(entry).find(|(command, ..)| command == "append");
    let (_, total, named) = found.expect("the write is in the log");
    let of = |name: &str| named.iter().find(|(found, _)| found == name).map(|(_, number)| *number);
    let slot = of("slot").expect("it was executed in a slot");
    let stages: Vec<_> = named.iter().filter(|(name, _)| name != "slot").cloned().collect();
    let names: Vec<_> =
        stages.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "synced").collect();
    assert_eq!(names, ["queued", "proposed", "committed", "applied", "replied"]);
    let longest = stages.iter().max_by_key(|(_, micros)| *micros).unwrap();
    assert_eq!(longest.0, "committed", "{stages:?}");
    assert!(total >= TIMES * THRESHOLD_MS * 1000, "it was under way for as long: {total}, {stages:?}");

    // A thread of its own writes the log, perhaps after the reply.
    let slot = format!("slot={slot} ");
    let request = cluster.nodes[leader].wait_for_line(&["a slow request: append", &slot]);
    assert!(request.contains("until committed") && request.contains("committed_us="), "{request}");
    cluster.nodes[leader].wait_for_line(&["a slow slot", &slot]);
    cluster.nodes.iter_mut().for_each(|node| node.kill());
}

#[test]
fn a_write_seen_elsewhere_names_the_slot_that_the_leader_tells_more_of() {
    let cluster = Cluster::start_with(3, "multipaxos", &["--slow-log", "1us"]);
    let leader = cluster.leader();
    let other = (leader + 1) % 3;
    let mut connection = Connection::open(&cluster.nodes[other].resp).unwrap();
    assert_eq!(connection.call(&[b"APPEND", b"k", b"w"]).unwrap(), Resp::Integer(1));
    let entries = array(connection.call(&[b"SLOWLOG", b"GET", b"-1"]).unwrap());
    let found = entries.into_iter().map(entry).find(|(command, ..)| command == "append");
    let (_, _, named) = found.expect("nothing is faster than a microsecond");
    let names: Vec<_> = named.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["slot", "queued", "answered", "replied"]);
    let line = cluster.nodes[leader].wait_for_line(&["a slow slot", &format!("slot={} ", named[0].1)]);
    // The group may raise its feature level, or another proxy open its session, in the same slot.
    assert!(line.contains("requests=") && line.contains("committed_us="), "{line}");
}
