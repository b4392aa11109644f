//! What cannot work is refused with a message that says what would: wrong flags, data directories that are not this
//! node's, bytes that are no protocol, peers that are not of this cluster.

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use quorate_core::{NodeId, ProcessId, Random, Settings};
use quorate_node::transport::handshake::{self, Identity, VERSIONS};
use support::{Cluster, Connection, Node, Resp, wait_for};

/// The node ends with exit code 2, as the command line is wrong, and says all of this.
fn refused(node: &mut Node, parts: &[&str]) {
    ends(node, 2, parts);
}

/// The node ends with exit code 1, as no other command line would help, and says all of this.
fn fails(node: &mut Node, parts: &[&str]) {
    ends(node, 1, parts);
}

fn ends(node: &mut Node, expected: i32, parts: &[&str]) {
    let (code, said) = node.run_to_end();
    assert_eq!(code, Some(expected), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
}

/// One node that has not run.
fn fresh() -> Cluster {
    Cluster::prepare(1, "unreplicated", &[])
}

/// One node that has run and written something.
fn used() -> Cluster {
    let mut cluster = Cluster::start(1, "unreplicated");
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    for value in ["1", "2", "3"] {
        assert_eq!(connection.call(&[b"SET", b"k", value.as_bytes()]).unwrap(), Resp::Simple("OK".into()));
    }
    assert!(cluster.nodes[0].terminate().success());
    cluster
}

/// The file of a data directory whose name begins so.
fn file(data: &Path, start: &str) -> Option<PathBuf> {
    let files = std::fs::read_dir(data).ok()?.map(|entry| entry.unwrap());
    let mut names: Vec<_> =
        files.filter(|file| file.file_name().to_string_lossy().starts_with(start)).collect();
    names.retain(|file| !file.file_name().to_string_lossy().ends_with(".tmp"));
    names.first().map(std::fs::DirEntry::path)
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn an_unknown_flag_is_named() {
    let mut cluster = fresh();
    cluster.nodes[0].set("--no-such-flag", "1");
    refused(&mut cluster.nodes[0], &["--no-such-flag", "Usage"]);
}

#[test]
fn an_unknown_protocol_is_answered_with_those_there_are() {
    let mut cluster = fresh();
    cluster.nodes[0].set("--protocol", "paxos");
    refused(&mut cluster.nodes[0], &["unknown protocol `paxos`; known here: ", "unreplicated", "multipaxos"]);
}

#[test]
fn a_malformed_cluster_is_answered_with_a_wellformed_one() {
    for (text, part) in [
        ("1:10.0.0.1:7001", "is not a member: write ID=HOST:PORT, such as 1=10.0.0.1:7001"),
        ("1=10.0.0.1", "`10.0.0.1` is not an address: write HOST:PORT"),
        ("99=10.0.0.1:7001", "ids are whole numbers from 1 to 63"),
    ] {
        let mut cluster = fresh();
        cluster.nodes[0].set("--initial-cluster", text);
        refused(&mut cluster.nodes[0], &[part]);
    }
}

#[test]
fn a_node_must_be_in_its_own_cluster() {
    let mut cluster = fresh();
    cluster.nodes[0].set("--node-id", "2");
    refused(&mut cluster.nodes[0], &["node 2 is not in --initial-cluster, which has 1"]);
}

#[test]
fn limits_that_make_no_sense_are_answered_with_their_range() {
    for (flag, value, part) in [
        ("--max-value", "65MiB", "from 1 to 67108864 bytes"),
        ("--max-key", "many", "a size such as 64KiB"),
        ("--client-output", "1MiB", "from 67108928"),
        ("--client-memory", "1MiB", "from 134217728"),
        ("--max-clients", "0", "at least 1"),
    ] {
        let mut cluster = fresh();
        cluster.nodes[0].set(flag, value);
        refused(&mut cluster.nodes[0], &[flag, part]);
    }
}

#[test]
fn spans_go_over_http_to_a_url_and_are_a_part_of_all_requests() {
    for (flags, part) in [
        (&[("--otlp-endpoint", "localhost:4318")][..], "such as http://127.0.0.1:4318"),
        (&[("--otlp-endpoint", "https://collector")], "over http:// only"),
        (&[("--otlp-endpoint", "http://collector"), ("--otlp-sample", "2")], "from 0 to 1"),
        (&[("--otlp-sample", "0.01")], "--otlp-endpoint is missing"),
    ] {
        let mut cluster = fresh();
        for (flag, value) in flags {
            cluster.nodes[0].set(flag, value);
        }
        refused(&mut cluster.nodes[0], &[flags[flags.len() - 1].0, part]);
    }
}

#[test]
fn an_address_in_use_is_named() {
    for flag in ["--listen-peer", "--listen-resp"] {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let mut cluster = fresh();
        cluster.nodes[0].set(flag, &address);
        refused(&mut cluster.nodes[0], &[&address, "another process has it", "choose another port"]);
    }
}

#[test]
fn flags_that_name_the_same_address_are_named() {
    let mut cluster = fresh();
    let address = cluster.nodes[0].peer.clone();
    cluster.nodes[0].set("--listen-resp", &address);
    refused(&mut cluster.nodes[0], &["--listen-peer and --listen-resp are both ", &address]);
}

#[test]
fn a_data_directory_that_cannot_be_one_is_named() {
    let mut cluster = fresh();
    let file = cluster.nodes[0].data.clone();
    std::fs::write(&file, "not a directory").unwrap();
    refused(&mut cluster.nodes[0], &[&file.display().to_string()]);
    cluster.nodes[0].set("--data-dir", &file.join("below").display().to_string());
    refused(&mut cluster.nodes[0], &["choose another --data-dir"]);
    cluster.nodes[0].set("--data-dir", "/proc/quorate");
    refused(&mut cluster.nodes[0], &["/proc does not take new directories: choose another --data-dir"]);
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let mut cluster = fresh();
    let data = cluster.nodes[0].data.clone();
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("thesis.tex"), "years of work").unwrap();
    refused(
        &mut cluster.nodes[0],
        &["thesis.tex, which Quorate did not put there", "choose an empty or a new"],
    );
    assert_eq!(std::fs::read(data.join("thesis.tex")).unwrap(), b"years of work");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 1, "nothing is added to it");
}

#[test]
fn a_data_directory_of_another_protocol_cluster_or_node_is_refused() {
    let mut cluster = used();
    let node = &mut cluster.nodes[0];
    let (peer, args) = (node.peer.clone(), node.args.clone());
    node.set("--protocol", "multipaxos");
    refused(
        node,
        &["belongs to protocol unreplicated", "started with protocol multipaxos", "choose a new --data-dir"],
    );
    node.args = args.clone();
    let free = cluster.ports.address();
    node.set("--initial-cluster", &format!("1={free}"));
    refused(node, &["belongs to cluster", "give the --data-dir of this cluster"]);
    // The same cluster as far as it can be told, but another member of it: only the id differs.
    node.args = args;
    node.set("--node-id", "2");
    node.set("--initial-cluster", &format!("2={peer}"));
    refused(node, &["belongs to", "but this node is started with"]);
}

#[test]
fn a_data_directory_of_another_member_is_refused() {
    let mut cluster = Cluster::prepare(2, "multipaxos", &[]);
    cluster.nodes[0].start();
    wait_for("the directory", || file(&cluster.nodes[0].data, "identity"));
    cluster.nodes[0].kill();
    let data = cluster.nodes[0].data.display().to_string();
    cluster.nodes[1].set("--data-dir", &data);
    refused(
        &mut cluster.nodes[1],
        &["belongs to node 1", "started with node 2", "this node's own --data-dir"],
    );
}

#[test]
fn a_log_of_a_newer_version_is_left_for_that_version() {
    let mut cluster = used();
    let wal = file(&cluster.nodes[0].data, "wal-").unwrap();
    std::fs::File::options().write(true).open(&wal).unwrap().write_all_at(&2u32.to_le_bytes(), 8).unwrap();
    fails(&mut cluster.nodes[0], &["has format 2; this version of Quorate reads format 1", "or a newer one"]);
}

#[test]
fn a_directory_that_was_being_restored_is_refused_until_it_is_complete() {
    let mut cluster = fresh();
    let data = cluster.nodes[0].data.clone();
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("founding"), "").unwrap();
    fails(&mut cluster.nodes[0], &["was interrupted", "Run that command again", "or empty the directory"]);
}

#[test]
fn a_damaged_log_is_refused_with_the_ways_that_are_left() {
    let mut cluster = used();
    let wal = file(&cluster.nodes[0].data, "wal-").unwrap();
    flip(&wal, 4096 + 30);
    // Where the damage shows depends on whether the log was idle before the first record.
    let parts = ["is damaged at offset 4", "an intact copy of this very file", "Replacing a disk"];
    fails(&mut cluster.nodes[0], &parts);
}

#[test]
fn a_damaged_checkpoint_is_refused_with_the_ways_that_are_left() {
    let mut cluster = Cluster::start_with(1, "unreplicated", &["--durability", "os"]);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let value = vec![7; 1 << 20];
    let checkpoint = wait_for("a checkpoint", || {
        for key in 0..10 {
            assert_eq!(connection.call(&[b"SET", &[key], &value]).unwrap(), Resp::Simple("OK".into()));
        }
        file(&cluster.nodes[0].data, "snapshot-")
    });
    cluster.nodes[0].kill();
    // A later one may have taken its place.
    let checkpoint = file(&cluster.nodes[0].data, "snapshot-").unwrap_or(checkpoint);
    flip(&checkpoint, std::fs::metadata(&checkpoint).unwrap().len() / 2);
    let name = checkpoint.display().to_string();
    let parts = [&name, "is damaged at offset", "must not take part with what is left", "Replacing a disk"];
    fails(&mut cluster.nodes[0], &parts);
}

/// Sends some bytes, and reads until the other side closes.
fn bother(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
    // It may close before everything is written or read: a reset is an end, too.
    let _ = stream.write_all(bytes);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply
}

#[test]
fn random_bytes_are_refused_in_one_line_and_leave_nothing_behind() {
    const CONNECTIONS: usize = 3000;
    let cluster = Cluster::start(1, "unreplicated");
    let node = &cluster.nodes[0];
    let mut random = Random::new(3);
    let mut noise = || -> Vec<u8> { (0..random.range(8..200)).map(|_| random.u64() as u8).collect() };
    let expected = b"-ERR Protocol error: expected '$', got 'x'\r\n";
    assert_eq!(bother(&node.resp, b"*1\r\nx\r\n"), expected);
    let mut round = |count: usize| {
        for _ in 0..count {
            bother(&node.peer, &[b"\xff", &noise()[..]].concat());
            // Neither a request nor ever one.
            bother(&node.resp, &[b"*1\r\n\xff", &noise()[..], b"\r\n\r\n"].concat());
        }
    };
    round(CONNECTIONS / 10);
    let (before, _) = node.memory();
    round(CONNECTIONS);
    let (after, _) = node.memory();
    assert!(after < before + (8 << 20), "{before} bytes before, {after} after");
    assert_eq!(node.lines_with("is not Quorate's peer protocol"), 1, "{}", node.said());
    assert_eq!(node.lines_with("Protocol error"), 1, "{}", node.said());
    node.wait_until_serving();
}

#[test]
fn a_second_node_with_the_same_flags_is_refused() {
    let mut cluster = Cluster::start(1, "unreplicated");
    let mut twin = cluster.twin(0);
    refused(&mut twin, &["another node with these flags, perhaps?"]);
    twin.set("--listen-peer", &cluster.ports.address());
    twin.set("--listen-resp", &cluster.ports.address());
    refused(&mut twin, &["is in use by another process (process ", "stop that one"]);
    cluster.nodes[0].kill();
}

#[test]
fn a_second_node_with_the_same_id_is_not_let_in_and_told_why() {
    let cluster = Cluster::start(3, "multipaxos");
    let mut twin = cluster.twin(0);
    let resp = cluster.ports.address();
    twin.set("--listen-peer", &cluster.ports.address());
    twin.set("--listen-resp", &resp);
    twin.set("--data-dir", &cluster.nodes[0].data.with_extension("twin").display().to_string());
    twin.start();
    let told = ["it refused this node: another process that is node 1 is connected", "ids must differ"];
    twin.wait_for_line(&told);
    for other in &cluster.nodes[1..] {
        other.wait_for_line(&["refused node 1: another process that is node 1"]);
        other.wait_until_serving();
    }
    let mut connection = Connection::open(&resp).unwrap();
    let reply = connection.call(&[b"SET", b"k", b"v"]).unwrap();
    assert!(matches!(&reply, Resp::Error(text) if text.starts_with("CLUSTERDOWN")), "{reply:?}");
    twin.kill();
}

fn greeting(cluster: u64, version: u8, from: u64) -> Vec<u8> {
    let node = |id| ProcessId::Replica(NodeId::new(id).unwrap());
    let settings = Settings::default();
    let identity = Identity::new(cluster, (node(from), ""), 1, "multipaxos", &settings);
    let mut bytes = Vec::new();
    handshake::put(&identity.hello(node(1)), &mut bytes);
    bytes[4] = version;
    bytes
}

#[test]
fn a_peer_of_another_version_is_told_and_logged_once() {
    let cluster = Cluster::start(1, "multipaxos");
    let (node, other) = (&cluster.nodes[0], VERSIONS.newest + 1);
    let words = [
        format!("the process that connects speaks version {other} of"),
        format!("connects to speaks {VERSIONS}:"),
    ];
    for _ in 0..3 {
        let reply = bother(&node.peer, &greeting(1, other, 2));
        let reply = String::from_utf8_lossy(&reply);
        assert!(words.iter().all(|words| reply.contains(words)), "{reply}");
    }
    node.wait_for_line(&[&words[0], &words[1]]);
    assert_eq!(node.lines_with(&words[0]), 1);
    node.wait_until_serving();
}

#[test]
fn a_peer_of_another_cluster_is_told_and_logged_once() {
    let cluster = Cluster::start(1, "multipaxos");
    let node = &cluster.nodes[0];
    for _ in 0..3 {
        let reply = bother(&node.peer, &greeting(1, VERSIONS.newest, 2));
        assert!(String::from_utf8_lossy(&reply).contains("the cluster of node 2 is"), "{reply:?}");
    }
    node.wait_for_line(&[
        "refused node 2: the cluster of node 2 is 0000000000000001",
        "must be the same everywhere",
    ]);
    assert_eq!(node.lines_with("the cluster of node 2 is"), 1);
    node.wait_until_serving();
}
