//! Requests that go through many keys or fields, on real nodes: each is answered whole, and while it is, the group has
//! the leader that it had, and others are served.

mod support;

use std::collections::BTreeSet;

use support::{Cluster, Connection, Resp, request, wait_for};

/// Keys, and fields of a hash.
const MANY: usize = 200_000;

/// How many of them one request writes.
const CHUNK: usize = 5_000;

/// No node elects another leader before this, however slow the machine is: only a loop that stands still as long.
const FLAGS: &[&str] = &["--durability", "os", "--set", "election.timeout=20s", "--set", "heartbeat=200ms"];

fn open(cluster: &Cluster, node: usize) -> Connection {
    Connection::open(&cluster.nodes[node].resp).unwrap()
}

fn array(reply: Resp) -> Vec<Resp> {
    match reply {
        Resp::Array(items) => items,
        other => panic!("{other:?} is no array"),
    }
}

fn text(item: Resp) -> Vec<u8> {
    match item {
        Resp::Bulk(text) => text,
        other => panic!("{other:?} is no string"),
    }
}

/// Strings, each of which is given once.
fn set(items: impl IntoIterator<Item = Resp>) -> BTreeSet<Vec<u8>> {
    let items: Vec<_> = items.into_iter().map(text).collect();
    let count = items.len();
    let set: BTreeSet<_> = items.into_iter().collect();
    assert_eq!(set.len(), count, "each is given once");
    set
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Asks for something with many pairs of words, some thousand at a time.
fn write_pairs(connection: &mut Connection, command: &[&[u8]]) {
    let numbers: Vec<usize> = (0..MANY).collect();
    for numbers in numbers.chunks(CHUNK) {
        let pairs: Vec<[Vec<u8>; 2]> =
            numbers.iter().map(|number| [key(*number), format!("value {number}").into_bytes()]).collect();
        let words = pairs.iter().flatten().map(Vec::as_slice);
        let words: Vec<&[u8]> = command.iter().copied().chain(words).collect();
        let reply = connection.call(&words).unwrap();
        assert!(matches!(reply, Resp::Simple(_) | Resp::Integer(_)), "{reply:?}");
    }
}

/// What must not change: who leads, and in which ballot.
fn standing(connection: &mut Connection) -> (serde_json::Value, serde_json::Value) {
    let status = text(connection.call(&[b"QUORATE", b"STATUS"]).unwrap());
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    (status["leader"].clone(), status["ballot"].clone())
}

/// The longest time that each node's loop was away from its sockets, for people to see.
fn show_stalls(cluster: &Cluster, what: &str) {
    for node in 0..cluster.nodes.len() {
        let info = text(open(cluster, node).call(&[b"INFO", b"quorate"]).unwrap());
        let info = String::from_utf8(info).unwrap();
        let stalls: Vec<&str> = info.lines().filter(|line| line.contains("stall")).collect();
        println!("{what}: node {}: {}", node + 1, stalls.join(" "));
    }
}

#[test]
fn all_of_a_large_keyspace_is_read_while_the_leader_stays_and_serves_others() {
    let cluster = Cluster::start_with(3, "multipaxos", FLAGS);
    let leader = cluster.leader();
    let mut at_leader = open(&cluster, leader);
    let mut connections: Vec<Connection> = (0..3).map(|node| open(&cluster, node)).collect();
    write_pairs(&mut at_leader, &[b"MSET"]);
    let before = standing(&mut at_leader);

    for node in [leader, (leader + 1) % 3] {
        let connection = &mut connections[node];
        // What comes behind is answered behind.
        connection.send(&[request(&[b"KEYS", b"*"]), request(&[b"GET", b"key:7"])].concat()).unwrap();
        let mut asked = 0;
        while asked < 20 {
            assert_eq!(at_leader.call(&[b"GET", b"key:5"]).unwrap(), Resp::Bulk(b"value 5".to_vec()));
            asked += 1;
        }
        let keys = set(array(connection.reply().unwrap()));
        assert_eq!(keys, (0..MANY).map(key).collect());
        assert_eq!(connection.reply().unwrap(), Resp::Bulk(b"value 7".to_vec()));
        let keys = set(array(connection.call(&[b"KEYS", b"*:1999?9"]).unwrap()));
        assert_eq!(keys.len(), 10);
    }
    show_stalls(&cluster, "KEYS");

    // A scan goes on at whatever node a load balancer chooses.
    let (mut cursor, mut keys, mut parts) = (b"0".to_vec(), BTreeSet::new(), 0);
    loop {
        let reply = connections[parts % 3].call(&[b"SCAN", &cursor, b"COUNT", b"3000"]).unwrap();
        let [next, found] = <[Resp; 2]>::try_from(array(reply)).unwrap();
        set(array(found)).into_iter().for_each(|key| assert!(keys.insert(key)));
        (cursor, parts) = (text(next), parts + 1);
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(keys.len(), MANY);

    // The worst pattern that there may be, with the longest keys.
    for number in 0..30 {
        let long = [vec![b'a'; (64 << 10) - 2], format!("{number:02}").into_bytes()].concat();
        assert_eq!(at_leader.call(&[b"SET", &long, b"v"]).unwrap(), Resp::Simple("OK".into()));
    }
    let pattern = b"a*".repeat(512);
    assert_eq!(array(at_leader.call(&[b"KEYS", &pattern]).unwrap()).len(), 30);
    let refused = at_leader.call(&[b"KEYS", &b"a*".repeat(16 << 10)]).unwrap();
    assert_eq!(refused, Resp::Error("ERR the pattern is longer than the limit of 1024 bytes".into()));
    show_stalls(&cluster, "SCAN and patterns");

    assert_eq!(at_leader.call(&[b"FLUSHALL"]).unwrap(), Resp::Simple("OK".into()));
    assert_eq!(at_leader.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(0));
    show_stalls(&cluster, "FLUSHALL");
    assert_eq!(standing(&mut at_leader), before);
}

#[test]
fn a_large_hash_is_read_whole_and_in_parts_while_the_leader_stays() {
    let cluster = Cluster::start_with(3, "multipaxos", FLAGS);
    let leader = cluster.leader();
    let mut connections: Vec<Connection> = (0..3).map(|node| open(&cluster, node)).collect();
    write_pairs(&mut connections[leader], &[b"HSET", b"h"]);
    let before = standing(&mut connections[leader]);
    for node in [leader, (leader + 1) % 3] {
        let connection = &mut connections[node];
        let all = array(connection.call(&[b"HGETALL", b"h"]).unwrap());
        assert_eq!(all.len(), 2 * MANY);
        assert_eq!(set(all.into_iter().step_by(2)), (0..MANY).map(key).collect());
        assert_eq!(array(connection.call(&[b"HVALS", b"h"]).unwrap()).len(), MANY);
    }
    let (mut cursor, mut fields, mut parts) = (b"0".to_vec(), BTreeSet::new(), 0);
    loop {
        let reply = connections[parts % 3].call(&[b"HSCAN", b"h", &cursor, b"COUNT", b"10"]).unwrap();
        let [next, found] = <[Resp; 2]>::try_from(array(reply)).unwrap();
        set(array(found).into_iter().step_by(2)).into_iter().for_each(|field| assert!(fields.insert(field)));
        (cursor, parts) = (text(next), parts + 1);
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(fields.len(), MANY);
    assert!(parts > 100, "{parts} parts");
    assert_eq!(connections[leader].call(&[b"DEL", b"h"]).unwrap(), Resp::Integer(1));
    show_stalls(&cluster, "hashes");
    assert_eq!(standing(&mut connections[leader]), before);
}

#[test]
fn keys_that_expire_together_are_gone_at_once_and_the_leader_stays() {
    let cluster = Cluster::start_with(3, "multipaxos", FLAGS);
    let leader = cluster.leader();
    let mut connection = open(&cluster, leader);
    assert_eq!(connection.call(&[b"SET", b"stays", b"v"]).unwrap(), Resp::Simple("OK".into()));
    write_pairs(&mut connection, &[b"MSET"]);
    let before = standing(&mut connection);
    let Resp::Array(now) = connection.call(&[b"TIME"]).unwrap() else { panic!("TIME gives two numbers") };
    let now: u64 = String::from_utf8(text(now[0].clone())).unwrap().parse().unwrap();
    let moment = (now + 20).to_string().into_bytes();
    let mut expiring = 0;
    for numbers in (0..MANY).collect::<Vec<_>>().chunks(CHUNK) {
        let requests: Vec<_> =
            numbers.iter().map(|number| request(&[b"EXPIREAT", &key(*number), &moment])).collect();
        connection.send(&requests.concat()).unwrap();
        expiring += numbers.iter().filter(|_| connection.reply().unwrap() == Resp::Integer(1)).count();
    }
    // On a machine that is slower than this they go one by one, which tests less.
    println!("{expiring} of {MANY} keys expire together");
    let sizes = wait_for("the keys to expire", || match connection.call(&[b"DBSIZE"]).unwrap() {
        Resp::Integer(size) if size < MANY as i64 => Some(size),
        _ => None,
    });
    println!("DBSIZE is {sizes} when it changes");
    wait_for("only one key to be left", || {
        (connection.call(&[b"DBSIZE"]).unwrap() == Resp::Integer(1)).then_some(())
    });
    assert_eq!(connection.call(&[b"EXISTS", b"key:1", b"stays"]).unwrap(), Resp::Integer(1));
    assert_eq!(connection.call(&[b"KEYS", b"*"]).unwrap(), Resp::Array(vec![Resp::Bulk(b"stays".to_vec())]));
    assert_eq!(connection.call(&[b"TTL", b"key:2"]).unwrap(), Resp::Integer(-2));
    assert_eq!(connection.call(&[b"SET", b"key:2", b"again"]).unwrap(), Resp::Simple("OK".into()));
    assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(2));
    show_stalls(&cluster, "expiry");
    assert_eq!(standing(&mut connection), before);
}
