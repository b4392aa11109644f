//! Data directories and backups of released versions, which this one must open, and what peers of theirs compare. A
//! folder `releases/VERSION` has these:
//!
//! | file | what it is |
//! |---|---|
//! | `commit` | what was released; not there yet while it is not |
//! | `data.backup` | a backup |
//! | `PROTOCOL/FILE` | data directories, without the zeros at a file's end, whose number is in `PROTOCOL/zeros` |
//! | `keys.jsonl` | the keys that are in all of them, as `quorate export` writes them |
//! | `handshake` | for each protocol its name and settings as peers compare them, of three nodes |
//!
//! `UPDATE_FIXTURES=1` writes those of this version, unless it is released.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quorate_protocols::registry;
use support::{Cluster, Connection, Node, Resp, wait_for};

/// Where the one member is, on the first day: an address that is the same in every run.
const MEMBERS: &str = "1=node-1.example:7201";
const KEYS: &str = "keys.jsonl";
const BACKUP: &str = "data.backup";
const ZEROS: &str = "zeros";
const HANDSHAKE: &str = "handshake";

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

/// The folder of this version.
fn own() -> PathBuf {
    releases().join(concat!("v", env!("CARGO_PKG_VERSION")))
}

/// What a command printed; it must end well.
fn quorate(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn call(node: &Node, words: &[&[u8]]) -> Resp {
    Connection::open(&node.resp).unwrap().call(words).unwrap()
}

/// A group of one node, not started yet.
fn alone(protocol: &str) -> Cluster {
    let mut cluster = Cluster::prepare(1, protocol, &[]);
    cluster.nodes[0].set("--initial-cluster", MEMBERS);
    cluster
}

fn start(cluster: &mut Cluster) -> &Node {
    cluster.nodes[0].start();
    cluster.nodes[0].wait_until_serving();
    &cluster.nodes[0]
}

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

/// What peers compare of each protocol: a line each.
fn handshakes() -> String {
    let said = |entry: registry::Entry| {
        let settings =
            entry.settings().into_iter().map(|(key, setting)| format!("; {key}={}", setting.default));
        format!("{}: {}{}\n", entry.name, entry.protocol.name_for_peers(), settings.collect::<String>())
    };
    registry::all().into_iter().map(said).collect()
}

/// Writes the fixtures of this version: a backup; directories that begin with it, and have a log beside.
fn write(release: &Path) {
    assert!(!release.join("commit").exists(), "{} is released, and stays as it is", release.display());
    let _ = fs::remove_dir_all(release);
    fs::create_dir_all(release).unwrap();
    fs::write(release.join(HANDSHAKE), handshakes()).unwrap();
    let backup = release.join(BACKUP);
    let backup = backup.to_str().unwrap();
    let mut first = alone("multipaxos");
    let node = start(&mut first);
    for words in [
        &[&b"SET"[..], b"string", b"of the backup"][..],
        &[b"SET", b"\xff\x00", b"\x80"],
        &[b"SET", b"expiring", b"v", b"PXAT", b"4000000000000"],
        &[b"HSET", b"hash", b"f", b"1", b"g", b"2"],
    ] {
        assert!(!matches!(call(node, words), Resp::Error(_)));
    }
    quorate(&["backup", "--out", backup, "--endpoints", &node.resp]);
    // Where commands are about one key each there is no export, which is what is compared.
    for entry in registry::all().into_iter().filter(|entry| entry.capabilities.multi_key) {
        let mut cluster = alone(entry.name);
        let data = cluster.nodes[0].data.display().to_string();
        let protocol = entry.name;
        let restore = ["restore", backup, "--data-dir", &data, "--node-id", "1", "--protocol", protocol];
        quorate(&[&restore[..], &["--initial-cluster", MEMBERS]].concat());
        let node = start(&mut cluster);
        assert_eq!(call(node, &[b"SET", b"string", b"of the log"]), Resp::Simple("OK".into()));
        assert_eq!(call(node, &[b"HDEL", b"hash", b"g"]), Resp::Integer(1));
        let keys = quorate(&["export", "--endpoints", &node.resp]);
        match fs::read_to_string(release.join(KEYS)) {
            Ok(others) => assert_eq!(sorted(&keys), sorted(&others), "{protocol}"),
            Err(_) => fs::write(release.join(KEYS), keys).unwrap(),
        }
        assert!(cluster.nodes[0].terminate().success());
        pack(&cluster.nodes[0].data, &release.join(protocol));
    }
}

fn pack(directory: &Path, into: &Path) {
    fs::create_dir(into).unwrap();
    let mut zeros = String::new();
    for file in fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        if name != "lock" {
            fs::write(into.join(name), &bytes[..end]).unwrap();
            zeros += &format!("{name} {}\n", bytes.len() - end);
        }
    }
    fs::write(into.join(ZEROS), zeros).unwrap();
}

fn unpack(from: &Path, directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for line in fs::read_to_string(from.join(ZEROS)).unwrap().lines() {
        let (name, zeros) = line.split_once(' ').unwrap();
        fs::copy(from.join(name), directory.join(name)).unwrap();
        let file = fs::File::options().write(true).open(directory.join(name)).unwrap();
        file.set_len(file.metadata().unwrap().len() + zeros.parse::<u64>().unwrap()).unwrap();
    }
}

#[test]
fn directories_and_backups_of_released_versions_open_and_have_their_data() {
    let own = own();
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        write(&own);
    }
    assert!(own.is_dir(), "{} is not there: UPDATE_FIXTURES=1 writes it", own.display());
    for release in fs::read_dir(releases()).unwrap() {
        let release = release.unwrap().path();
        let keys = fs::read_to_string(release.join(KEYS)).unwrap();
        assert!(keys.contains("of the log") && keys.contains("4000000000000"), "{keys}");
        let of_backup = quorate(&["export", "--backup", release.join(BACKUP).to_str().unwrap()]);
        assert_eq!(sorted(&of_backup).len(), sorted(&keys).len());
        assert!(of_backup.contains("of the backup"), "{of_backup}");
        let entries = fs::read_dir(&release).unwrap().map(|entry| entry.unwrap().path());
        for directory in entries.filter(|path| path.is_dir()) {
            let protocol = directory.file_name().unwrap().to_str().unwrap();
            let mut cluster = alone(protocol);
            unpack(&directory, &cluster.nodes[0].data);
            let node = start(&mut cluster);
            let found = quorate(&["export", "--endpoints", &node.resp]);
            assert_eq!(sorted(&found), sorted(&keys), "{protocol}");
            assert_eq!(call(node, &[b"INCR", b"new"]), Resp::Integer(1), "{protocol}");
            // What it has written beside, it reads too.
            cluster.nodes[0].kill();
            let node = start(&mut cluster);
            assert_eq!(call(node, &[b"INCR", b"new"]), Resp::Integer(2), "{protocol}");
            assert_eq!(call(node, &[b"GET", b"string"]), Resp::Bulk(b"of the log".to_vec()), "{protocol}");
        }
    }
}

/// Else nodes of the two refuse each other, and no group of a released version can be upgraded node by node. Who has
/// another revision of its messages must be refused: see the upgrade in `members.rs`.
#[test]
fn peers_of_released_versions_find_no_difference_in_protocol_and_settings() {
    let now = handshakes();
    let of = |line: &str| line.split("; ").next().map(str::to_owned).expect("a name");
    for release in fs::read_dir(releases()).unwrap().map(|entry| entry.unwrap().path()) {
        let then = fs::read_to_string(release.join(HANDSHAKE)).unwrap();
        let mut same = 0;
        for line in then.lines() {
            let Some(found) = now.lines().find(|found| of(found) == of(line)) else { continue };
            assert_eq!(found, line, "{}", release.display());
            same += 1;
        }
        assert!(same >= 12, "{same} of {then}");
    }
}

/// What `quorate config` is told of the feature level.
fn level(node: &Node) -> String {
    quorate(&["config", "get", "feature-level", "--endpoints", &node.resp])
}

fn identity(node: &Node) -> String {
    fs::read_to_string(node.data.join("identity")).unwrap()
}

const SELECTOR: [&[u8]; 4] = [b"ACL", b"SETUSER", b"ann", b"(+get ~a)"];

#[test]
fn data_of_a_version_without_levels_stay_at_the_first_until_it_is_raised() {
    for protocol in ["multipaxos", "epaxos", "raft"] {
        let mut cluster = alone(protocol);
        unpack(&releases().join("v0.1.0").join(protocol), &cluster.nodes[0].data);
        let before = identity(&cluster.nodes[0]);
        let node = start(&mut cluster);
        assert_eq!(call(node, &[b"SET", b"k", b"v"]), Resp::Simple("OK".into()));
        let Resp::Error(refused) = call(node, &SELECTOR) else { panic!("{protocol}") };
        assert!(refused.contains("selectors need feature level 2"), "{refused}");
        assert_eq!((level(node).as_str(), identity(node)), ("feature-level = 1\n", before), "{protocol}");
        let status = quorate(&["status", "--endpoints", &node.resp]);
        assert!(status.contains("\nfeature level 1; these nodes know 3: once all members do"), "{status}");

        quorate(&["config", "set", "feature-level", "2", "--endpoints", &node.resp]);
        assert!(identity(node).contains("\nlevel = 2\n"), "marked before it is answered");
        assert_eq!(call(node, &SELECTOR), Resp::Simple("OK".into()));
        let Resp::Error(refused) = call(node, &[b"CONFIG", b"SET", b"feature-level", b"1"]) else { panic!() };
        assert_eq!(refused, "ERR the feature level is 2, and does not fall");
        cluster.nodes[0].kill();
        let node = start(&mut cluster);
        assert_eq!(level(node), "feature-level = 2\n");
        // What is restored begins with the level of its backup.
        let scratch = tempfile::tempdir().unwrap();
        let backup = scratch.path().join("level").display().to_string();
        quorate(&["backup", "--out", &backup, "--endpoints", &node.resp]);
        let mut restored = alone("raft");
        let data = restored.nodes[0].data.display().to_string();
        let words = ["restore", &backup, "--data-dir", &data, "--node-id", "1", "--protocol", "raft"];
        quorate(&[&words[..], &["--initial-cluster", MEMBERS]].concat());
        assert!(identity(&restored.nodes[0]).contains("\nlevel = 2\n"));
        let node = start(&mut restored);
        assert_eq!(level(node), "feature-level = 2\n");

        // A later version has raised it: this one leaves the directory as it is.
        assert!(cluster.nodes[0].terminate().success());
        let path = cluster.nodes[0].data.join("identity");
        let text = identity(&cluster.nodes[0]).replace("level = 2", "level = 4");
        let lines = &text[..text.find("crc32c").unwrap()];
        fs::write(&path, format!("{lines}crc32c = {:08x}\n", crc32c::crc32c(lines.as_bytes()))).unwrap();
        let (code, said) = cluster.nodes[0].run_to_end();
        assert!(
            code != Some(0) && said.contains("belongs to a group at feature level 4"),
            "{code:?}: {said}"
        );
    }
}

#[test]
fn a_new_cluster_begins_at_the_newest_level_before_its_first_client_is_served() {
    for protocol in ["multipaxos", "epaxos", "raft", "zab", "chain", "primary-copy", "unreplicated"] {
        let mut cluster = alone(protocol);
        cluster.nodes[0].start();
        let node = &cluster.nodes[0];
        wait_for("the socket", || Connection::open(&node.resp).ok());
        assert_eq!(call(node, &SELECTOR), Resp::Simple("OK".into()), "{protocol}");
        assert_eq!(level(node), "feature-level = 3\n", "{protocol}");
        assert!(quorate(&["status", "--endpoints", &node.resp]).contains("\nfeature level 3\n"));
    }
}
