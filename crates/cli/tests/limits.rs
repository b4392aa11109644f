//! Whatever grows with what others do has its bound: too much of it is refused in words, memory stays where it is,
//! and everybody else is served.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Cluster, Connection, Node, PATIENCE, Resp, request, wait_for};

const MIB: u64 = 1 << 20;

fn one(flags: &[&str]) -> Cluster {
    Cluster::start_with(1, "unreplicated", flags)
}

fn ok() -> Resp {
    Resp::Simple("OK".into())
}

/// The error of a call.
fn error(reply: Resp) -> String {
    match reply {
        Resp::Error(text) => text,
        other => panic!("{other:?} is no error"),
    }
}

/// Memory at its highest stays within so much of a moment before.
fn stays_within(node: &Node, before: u64, room: u64, what: &str) {
    let (now, highest) = node.memory();
    assert!(highest < before + room, "{what}: {before} bytes before, {now} now, {highest} at the highest");
}

#[test]
fn larger_keys_and_values_than_by_default_are_refused_and_the_connection_goes_on() {
    let cluster = one(&["--durability", "os"]);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let (key, value) = (vec![1; 64 << 10], vec![2; 64 << 20]);
    assert_eq!(connection.call(&[b"SET", &key, b"v"]).unwrap(), ok());
    assert_eq!(connection.call(&[b"SET", b"k", &value]).unwrap(), ok());
    let refused = error(connection.call(&[b"SET", &[&key[..], b"1"].concat(), b"v"]).unwrap());
    assert!(refused.contains("65536"), "{refused}");
    let refused = error(connection.call(&[b"SET", b"k", &[&value[..], b"2"].concat()]).unwrap());
    assert_eq!(refused, "ERR a value is larger than the limit of 67108864 bytes");
    assert_eq!(connection.call(&[b"STRLEN", b"k"]).unwrap(), Resp::Integer(64 << 20));
}

#[test]
fn an_operator_closes_the_connections_of_others() {
    let cluster = one(&["--durability", "os"]);
    let mut connections = [(); 3].map(|()| Connection::open(&cluster.nodes[0].resp).unwrap());
    let [operator, one, other] = &mut connections;
    let Resp::Integer(id) = one.call(&[b"CLIENT", b"ID"]).unwrap() else { panic!("no number") };
    assert_eq!(other.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    let id = id.to_string();
    assert_eq!(operator.call(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]).unwrap(), Resp::Integer(1));
    assert!(one.call(&[b"PING"]).is_err());
    assert_eq!(other.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(b"v".to_vec()));
    assert_eq!(operator.call(&[b"CLIENT", b"KILL", b"ID", id.as_bytes()]).unwrap(), Resp::Integer(0));
}

#[test]
fn the_limits_on_keys_and_values_are_what_flags_or_the_file_say() {
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let config = cluster.nodes[0].data.with_extension("toml");
    std::fs::write(&config, "max-key = \"1KiB\"\nmax-value = \"7\"\n").unwrap();
    cluster.nodes[0].set("--config", &config.display().to_string());
    cluster.nodes[0].set("--max-value", "2KiB");
    cluster.nodes[0].start();
    cluster.nodes[0].wait_until_serving();
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let (key, value) = (vec![b'k'; 1024], vec![b'v'; 2048]);
    assert_eq!(connection.call(&[b"SET", &key, &value]).unwrap(), ok());
    let refused = error(connection.call(&[b"SET", &[&key[..], b"1"].concat(), b"v"]).unwrap());
    assert!(refused.contains("1024"), "{refused}");
    for large in [2049, 100_000] {
        let refused = error(connection.call(&[b"SET", b"k", &vec![b'v'; large]]).unwrap());
        assert_eq!(refused, "ERR a value is larger than the limit of 2048 bytes");
    }
    // An inline request has the same limits.
    connection.send(&[b"SET k ", &vec![b'v'; 2049][..], b"\r\n"].concat()).unwrap();
    assert!(error(connection.reply().unwrap()).contains("2048"));
    assert_eq!(connection.call(&[b"GET", &key]).unwrap(), Resp::Bulk(value));
}

#[test]
fn announced_sizes_take_no_memory() {
    let cluster = one(&[]);
    let node = &cluster.nodes[0];
    let (before, _) = node.memory();
    let announced = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108864\r\nx";
    let mut open = Vec::new();
    for _ in 0..500 {
        let mut connection = Connection::open(&node.resp).unwrap();
        // The reply shows that the node has come as far as what follows it.
        connection.send(&[&request(&[b"PING"]), &announced[..]].concat()).unwrap();
        assert_eq!(connection.reply().unwrap(), Resp::Simple("PONG".into()));
        open.push(connection);
    }
    node.wait_until_serving();
    stays_within(node, before, 16 * MIB, "500 times 64 MiB announced");
}

#[test]
fn a_client_that_does_not_read_is_bounded_and_others_are_served() {
    let cluster = one(&["--durability", "os", "--max-value", "1MiB", "--client-output", "8MiB"]);
    let node = &cluster.nodes[0];
    let mut writer = Connection::open(&node.resp).unwrap();
    assert_eq!(writer.call(&[b"SET", b"large", &vec![b'x'; 64 << 10]]).unwrap(), ok());
    // Its 1024 requests under way may all be answered in one turn; beyond, only its output.
    let room = 64 * MIB + 2 * 8 * MIB + 64 * MIB;
    let (before, _) = node.memory();
    let mut slow = Connection::open(&node.resp).unwrap();
    slow.send(&request(&[b"GET", b"large"]).repeat(1024)).unwrap();
    for _ in 0..50 {
        node.wait_until_serving();
    }
    stays_within(node, before, room, "64 MiB of replies that nobody reads");
    // Another one sends for as long as it may, and never reads.
    let mut endless = Connection::open(&node.resp).unwrap();
    endless.socket().set_nonblocking(true).unwrap();
    let requests = request(&[b"GET", b"large"]).repeat(100);
    let mut sent = 0;
    let stopped = wait_for("the end of its sending", || match endless.send(&requests) {
        Ok(()) => {
            sent += requests.len();
            (sent > 256 << 20).then_some(false)
        }
        Err(_) => Some(true),
    });
    assert!(stopped, "it could send {sent} bytes");
    for _ in 0..50 {
        node.wait_until_serving();
    }
    stays_within(node, before, room, "requests without end");
}

/// As many descriptors as this process may have.
fn take_descriptors() -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

#[test]
fn ten_thousand_idle_clients_are_carried() {
    let clients = match take_descriptors() {
        enough if enough >= 11_000 => 10_000,
        few => few.saturating_sub(600).max(100) as usize,
    };
    let mut cluster = Cluster::prepare(1, "unreplicated", &["--max-clients", "10100"]);
    // As from a shell: the node raises its own soft limit.
    cluster.nodes[0].start_with_descriptors(1024);
    let node = &cluster.nodes[0];
    node.wait_until_serving();
    let (before, _) = node.memory();
    let mut open: Vec<Connection> = (0..clients).map(|_| Connection::open(&node.resp).unwrap()).collect();
    // All are accepted: the first and the last are served.
    for connection in open.iter_mut().step_by(999) {
        assert_eq!(connection.call(&[b"PING"]).unwrap(), Resp::Simple("PONG".into()));
    }
    let last = open.last_mut().unwrap();
    assert_eq!(last.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    stays_within(node, before, clients as u64 * 8192, "idle clients");
}

#[test]
fn clients_beyond_the_limit_are_refused_in_words_and_the_others_served() {
    let cluster = one(&["--max-clients", "20"]);
    let node = &cluster.nodes[0];
    let mut clients = Vec::new();
    // The last one that asked whether it serves may still be connected.
    wait_for("20 clients", || {
        clients.push(Connection::open(&node.resp).unwrap());
        let last = clients.last_mut().unwrap();
        if !matches!(last.call(&[b"PING"]), Ok(Resp::Simple(_))) {
            clients.pop();
        }
        (clients.len() == 20).then_some(())
    });
    for _ in 0..200 {
        let mut refused = TcpStream::connect(&node.resp).unwrap();
        refused.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = String::new();
        refused.read_to_string(&mut said).unwrap();
        assert_eq!(said, "-ERR max number of clients reached\r\n");
    }
    assert_eq!(node.lines_with("too many are connected"), 1);
    for client in &mut clients {
        assert_eq!(client.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    }
    clients.pop();
    wait_for("room for another", || Connection::open(&node.resp).ok()?.call(&[b"PING"]).ok());
}

#[test]
fn a_follower_that_stood_still_catches_up_and_costs_the_others_no_more_than_its_queue() {
    let cluster = Cluster::start_with(3, "multipaxos", &["--durability", "os"]);
    let leader = cluster.leader();
    let (behind, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let mut connection = Connection::open(&cluster.nodes[other].resp).unwrap();
    let value = vec![b'x'; 256 << 10];
    assert_eq!(connection.call(&[b"SET", b"k0", &value]).unwrap(), ok());
    let before = [leader, other].map(|node| cluster.nodes[node].memory().0);
    cluster.nodes[behind].pause();
    // More than its queue (96 MiB) and than the log that is kept for those behind (32 MiB).
    for count in 0..800 {
        let key = format!("k{}", count % 8);
        assert_eq!(connection.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
    }
    assert_eq!(connection.call(&[b"SET", b"last", b"written"]).unwrap(), ok());
    for (node, before) in [leader, other].into_iter().zip(before) {
        stays_within(&cluster.nodes[node], before, 400 * MIB, "200 MiB written past a stopped follower");
    }
    let target = applied(&cluster.nodes[leader]).unwrap();
    cluster.nodes[behind].resume();
    wait_for("the follower", || applied(&cluster.nodes[behind]).filter(|&applied| applied >= target));
    let mut late = Connection::open(&cluster.nodes[behind].resp).unwrap();
    assert_eq!(late.call(&[b"GET", b"last"]).unwrap(), Resp::Bulk(b"written".to_vec()));
}

/// The last slot a node has executed.
fn applied(node: &Node) -> Option<u64> {
    let mut connection = Connection::open(&node.resp).ok()?;
    let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { return None };
    let status: serde_json::Value = serde_json::from_slice(&json).ok()?;
    status["applied"].as_u64()
}

#[test]
fn a_cluster_without_a_majority_says_so_instead_of_hanging() {
    let mut cluster = Cluster::start(3, "multipaxos");
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    for command in [&[&b"SET"[..], b"k", b"v"][..], &[b"GET", b"k"], &[b"INCR", b"n"]] {
        // The connection gives up on its own much later than the node answers.
        let answer = wait_for("the lease to end", || match connection.call(command).unwrap() {
            Resp::Error(text) => Some(text),
            _ => None,
        });
        assert!(answer.starts_with("CLUSTERDOWN "), "{answer}");
    }
    assert_eq!(connection.call(&[b"PING"]).unwrap(), Resp::Simple("PONG".into()));
    cluster.nodes[1].start();
    cluster.nodes[0].wait_until_serving();
}

/// A file system of its own, in memory; unmounted at the end.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn mount(path: &Path, options: &str) -> bool {
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).output();
    mount.is_ok_and(|output| output.status.success())
}

/// A node that serves, and the file system of this size that its data directory is; none where this user may not mount.
fn one_on(size: &str) -> Option<(Cluster, Mount)> {
    let mut cluster = Cluster::prepare(1, "unreplicated", &[]);
    let data = cluster.nodes[0].data.clone();
    std::fs::create_dir(&data).unwrap();
    if !mount(&data, &format!("size={size}")) {
        println!("skipped: this user may not mount a file system");
        return None;
    }
    let mounted = Mount(data);
    cluster.nodes[0].start();
    cluster.nodes[0].wait_until_serving();
    Some((cluster, mounted))
}

/// Whether a write is done, and not refused since the disk is nearly full.
fn is_done(reply: &Resp) -> bool {
    let is_refused =
        matches!(reply, Resp::Error(text) if text.starts_with("READONLY disk nearly full on node "));
    assert!(is_refused || *reply == ok(), "{reply:?}");
    !is_refused
}

#[test]
fn a_full_disk_stops_the_node_in_words_and_room_brings_everything_back() {
    let Some((mut cluster, mounted)) = one_on("80m") else { return };
    let node = &mut cluster.nodes[0];
    let mut connection = Connection::open(&node.resp).unwrap();
    let value = vec![b'x'; 1 << 20];
    let mut acknowledged = 0u64;
    while is_done(&connection.call(&[b"SET", format!("k{acknowledged}").as_bytes(), &value]).unwrap()) {
        acknowledged += 1;
        assert!(acknowledged < 1000, "the disk is never nearly full");
    }
    assert!(acknowledged > 0);
    // Others take what it left free. What removes keys is not refused, and takes the rest.
    let ballast = std::fs::File::create(mounted.0.join("ballast")).unwrap();
    while (&ballast).write_all(&value).is_ok() {}
    let long = vec![b'k'; 60_000];
    while connection.call(&[b"DEL", &long]).is_ok() {}
    assert_eq!(node.wait_for_end(), Some(1), "{}", node.said());
    node.wait_for_line(&["No space left", "free space on the file system of", "nothing is lost"]);
    assert!(mount(&mounted.0, "remount,size=400m"), "what was mounted can be made larger");
    node.start();
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    for key in 0..acknowledged {
        let found = connection.call(&[b"GET", format!("k{key}").as_bytes()]).unwrap();
        assert_eq!(found, Resp::Bulk(value.clone()), "k{key} was acknowledged");
    }
    node.kill();
}

/// The log of a node usually has more than that before its first snapshot.
#[test]
fn a_small_disk_is_not_filled_by_writing_the_same_keys_again_and_again() {
    let Some((mut cluster, _mounted)) = one_on("96m") else { return };
    let node = &mut cluster.nodes[0];
    let mut connection = Connection::open(&node.resp).unwrap();
    let value = |round: usize| vec![b'a' + (round % 26) as u8; 20_000];
    let set = |round, key: usize| request(&[b"SET", format!("k{key}").as_bytes(), &value(round)]);
    const ROUNDS: usize = 80;
    for round in 0..ROUNDS {
        // Until a snapshot has made room, some may be refused.
        wait_for("a round of writes", || {
            connection.send(&(0..200).flat_map(|key| set(round, key)).collect::<Vec<_>>()).unwrap();
            let replies: Vec<_> = (0..200).map(|_| connection.reply().expect("it serves on")).collect();
            (replies.iter().filter(|reply| is_done(reply)).count() == 200).then_some(())
        });
    }
    node.kill();
    node.start();
    node.wait_until_serving();
    for key in 0..200 {
        assert_eq!(node.read(&format!("k{key}")), Resp::Bulk(value(ROUNDS - 1)), "k{key}");
    }
}

#[test]
fn a_limit_on_the_size_of_files_stops_the_node_in_words_and_loses_nothing() {
    let mut cluster = one(&[]);
    let node = &mut cluster.nodes[0];
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    node.bound_files(4096);
    while connection.call(&[b"SET", b"other", b"v"]).is_ok() {}
    assert_eq!(node.wait_for_end(), Some(1), "{}", node.said());
    node.wait_for_line(&["File too large", "ulimit -f", "nothing is lost"]);
    node.start();
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(b"v".to_vec()));
}
