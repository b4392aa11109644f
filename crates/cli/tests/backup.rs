//! Backups, restores and lost majorities, with real processes: what was acknowledged is there, whatever the protocol
//! and the size of the group that goes on, and what cannot be used is refused with the reason.

#[path = "backup/recovery.rs"]
mod recovery;
mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use quorate_core::Random;
use support::{Cluster, Connection, Node, Resp, request, wait_for};

const NO_DISK: &[&str] = &["--durability", "none"];

/// The exit code, the output, and what was said on the standard error.
fn quorate(words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn done(words: &[&str]) -> String {
    let (code, output, said) = quorate(words);
    assert_eq!(code, Some(0), "{words:?}: {said}");
    output
}

/// Writes two keys in one transaction, or one, with one number, again and again.
struct Writer {
    /// The last number that was acknowledged, and the last that was sent.
    acknowledged: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(id: usize, address: String, halves: &'static [&str]) -> Writer {
        let (acknowledged, sent, stop) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let shared: (_, _, Arc<AtomicBool>) = (acknowledged.clone(), sent.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let (acknowledged, sent, stop) = shared;
            let mut connection = Connection::open(&address).unwrap();
            for number in 1.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                sent.store(number, Ordering::SeqCst);
                let value = format!("{number}:{}", "x".repeat(200));
                connection.call(&[b"MULTI"]).unwrap();
                for half in halves {
                    let key = format!("{id}:{half}");
                    connection.call(&[b"SET", key.as_bytes(), value.as_bytes()]).unwrap();
                }
                match connection.call(&[b"EXEC"]) {
                    Ok(Resp::Array(replies)) if replies.len() == halves.len() => {}
                    other => panic!("{other:?}"),
                }
                acknowledged.store(number, Ordering::SeqCst);
            }
        });
        Writer { acknowledged, sent, stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn number(connection: &mut Connection, key: &str) -> u64 {
    match connection.call(&[b"GET", key.as_bytes()]).unwrap() {
        Resp::Bulk(value) => String::from_utf8(value).unwrap().split(':').next().unwrap().parse().unwrap(),
        other => panic!("{key}: {other:?}"),
    }
}

/// Makes the directories of a cluster's nodes from a backup, with more flags; gives its id.
fn restore(file: &str, cluster: &Cluster, protocol: &str, more: &[&str]) -> String {
    let mut ids: Vec<String> = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        let (id, data) = ((index + 1).to_string(), node.data.display().to_string());
        let words = ["restore", file, "--data-dir", &data, "--node-id", &id, "--protocol", protocol];
        let output = done(&[&words[..], &["--initial-cluster", cluster.members()], more].concat());
        let id = output.split("of the new cluster ").nth(1).unwrap_or_else(|| panic!("{output}"));
        ids.push(id[..16].to_owned());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    ids.swap_remove(0)
}

fn start(nodes: &mut [Node]) {
    nodes.iter_mut().for_each(Node::start);
    nodes.iter().for_each(Node::wait_until_serving);
}

/// The backup of a node, which a member of Hermes gives as soon as it has leases.
fn back_up(node: &Node, file: &str) -> String {
    wait_for("a backup", || {
        let (code, output, said) = quorate(&["backup", "--out", file, "--endpoints", &node.resp]);
        assert!(matches!(code, Some(0 | 3)), "{code:?} {said}");
        (code == Some(0)).then_some(output)
    })
}

/// Backs a cluster up under load, loses all of it, and restores it as another.
fn move_under_load(from: (usize, &str), to: (usize, &str)) -> (Cluster, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data.backup").display().to_string();
    let old = Cluster::start(from.0, from.1);
    let mut connection = Connection::open(&old.nodes[0].resp).unwrap();
    let binary: Vec<u8> = (0..=255).collect();
    let fields: [&[u8]; 6] = [b"HSET", b"hash", b"field", &binary, b"another", b""];
    assert_eq!(connection.call(&fields).unwrap(), Resp::Integer(2));
    assert_eq!(connection.call(&[b"SET", &binary, &binary]).unwrap(), Resp::Simple("OK".into()));
    let lasting: [&[u8]; 5] = [b"SET", b"lasting", b"value", b"EX", b"100000"];
    connection.call(&lasting).unwrap();
    let set = |index: usize| request(&[b"SET", format!("many:{index}").as_bytes(), &[b'v'; 500]]);
    connection.send(&(0..2000).flat_map(set).collect::<Vec<_>>()).unwrap();
    for _ in 0..2000 {
        assert_eq!(connection.reply().unwrap(), Resp::Simple("OK".into()));
    }
    // Hermes executes commands on one key.
    let halves: &[_] = if from.1 == "hermes" { &["one"] } else { &["one", "other"] };
    let address = |id: usize| old.nodes[id % old.nodes.len()].resp.clone();
    let writers: Vec<_> = (0..4).map(|id| Writer::start(id, address(id), halves)).collect();
    wait_for("writes", || {
        writers.iter().all(|writer| writer.acknowledged.load(Ordering::SeqCst) > 20).then_some(())
    });
    let before: Vec<_> = writers.iter().map(|writer| writer.acknowledged.load(Ordering::SeqCst)).collect();
    let output = back_up(&old.nodes[from.0 - 1], &file);
    assert!(output.contains(&format!("({}) at position", from.1)), "{output}");
    let after: Vec<_> = writers.iter().map(|writer| writer.sent.load(Ordering::SeqCst)).collect();
    writers.into_iter().for_each(Writer::end);
    drop(old);

    let verified = done(&["restore", &file, "--verify"]);
    // A date after 1999 and before 2100: the clock is not what is tested.
    assert!(verified.contains(": sound: backup") && verified.contains("taken at 20"), "{verified}");
    // Settings that all must share may be others, too.
    let setting = "batch.entries=512";
    let mut new = Cluster::prepare(to.0, to.1, &["--set", setting]);
    let id = restore(&file, &new, to.1, &[]);
    start(&mut new.nodes);
    let status = new.nodes[0].status().expect("it serves");
    assert!(status["facts"]["settings"].as_str().is_some_and(|all| all.contains(setting)), "{status}");
    let mut connection = Connection::open(&new.nodes[to.0 - 1].resp).unwrap();
    for (id, (before, after)) in before.into_iter().zip(after).enumerate() {
        let numbers: Vec<_> =
            halves.iter().map(|half| number(&mut connection, &format!("{id}:{half}"))).collect();
        let one = numbers[0];
        assert!(numbers.iter().all(|number| *number == one), "a write is there as a whole or not at all");
        assert!((before..=after).contains(&one), "{one} is not from {before} to {after}");
    }
    assert_eq!(connection.call(&[b"HGET", b"hash", b"field"]).unwrap(), Resp::Bulk(binary.clone()));
    assert_eq!(connection.call(&[b"GET", &binary]).unwrap(), Resp::Bulk(binary.clone()));
    let Resp::Integer(left) = connection.call(&[b"TTL", b"lasting"]).unwrap() else { panic!() };
    assert!((90_000..=100_000).contains(&left), "{left}");
    assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(2000 + 3 + 4 * halves.len() as i64));
    // It goes on: with writes, after a crash of all, and with versions that grow.
    assert_eq!(connection.call(&[b"INCR", b"new"]).unwrap(), Resp::Integer(1));
    new.nodes.iter_mut().for_each(Node::kill);
    start(&mut new.nodes);
    let mut connection = Connection::open(&new.nodes[0].resp).unwrap();
    assert_eq!(connection.call(&[b"INCR", b"new"]).unwrap(), Resp::Integer(2));
    assert_eq!(connection.call(&[b"GET", &binary]).unwrap(), Resp::Bulk(binary));
    (new, id)
}

/// Whether a node's own state has a key.
fn has_locally(node: &Node, key: &str) -> bool {
    let ask = || -> std::io::Result<Resp> {
        let mut connection = Connection::open(&node.resp)?;
        connection.call(&[b"CLIENT", b"READMODE", b"local"])?;
        connection.call(&[b"EXISTS", key.as_bytes()])
    };
    ask().is_ok_and(|reply| reply == Resp::Integer(1))
}

#[test]
fn a_backup_under_load_is_restored_as_five_nodes_of_another_protocol() {
    let (mut cluster, id) = move_under_load((3, "raft"), (5, "epaxos"));
    // A member that comes with nothing gets the data that were there before the first instance, too.
    let node = &mut cluster.nodes[4];
    node.kill();
    std::fs::remove_dir_all(&node.data).unwrap();
    let flags = node.args.clone();
    node.args.push("--replace-disk".to_owned());
    node.set("--cluster-id", &id);
    node.start();
    wait_for("what was restored to be at the replaced disk", || {
        has_locally(&cluster.nodes[4], "many:1999").then_some(())
    });
    let node = &mut cluster.nodes[4];
    node.kill();
    node.args = flags;
    node.start();
    node.wait_until_serving();
}

#[test]
fn a_member_of_hermes_with_leases_is_backed_up_under_load() {
    move_under_load((3, "hermes"), (3, "multipaxos"));
}

/// The directories have what it begins with until it is in memory.
#[test]
fn a_cluster_without_durability_begins_with_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let file = small_backup(directory.path());
    let mut cluster = Cluster::prepare(3, "hermes", NO_DISK);
    restore(&file, &cluster, "hermes", NO_DISK);
    start(&mut cluster.nodes);
    for node in &cluster.nodes {
        assert_eq!(node.read("key"), Resp::Bulk("value".into()));
    }
    let again = directory.path().join("again").display().to_string();
    back_up(&cluster.nodes[1], &again);
    assert_eq!(done(&["export", "--backup", &again]), done(&["export", "--backup", &file]));
}

#[test]
fn a_restored_cluster_gives_its_data_to_those_who_join_and_lets_nobody_of_another_in() {
    let (mut cluster, id) = move_under_load((3, "epaxos"), (3, "multipaxos"));
    let status = cluster.nodes[0].status().expect("it serves");
    assert_eq!(status["facts"]["cluster_id"], id.as_str());
    let mut stranger = cluster.twin(0);
    let empty = stranger.data.with_extension("empty").display().to_string();
    stranger.set("--data-dir", &empty);
    // Its address is taken by the node: it only dials.
    let [peer, resp] = [(); 2].map(|()| cluster.ports.address());
    stranger.set("--listen-peer", &peer);
    stranger.set("--listen-resp", &resp);
    stranger.start();
    stranger.wait_for_line(&["the cluster of ", "--initial-cluster must be the same everywhere"]);
    stranger.kill();

    cluster.nodes[0].set("--cluster-id", &id);
    let peer = cluster.join();
    let endpoints = cluster.nodes[1].resp.clone();
    done(&["member", "add", &format!("4={peer}"), "--endpoints", &endpoints]);
    wait_for("what was restored to be at the new node", || {
        has_locally(&cluster.nodes[3], "many:1999").then_some(())
    });
}

/// A backup of a cluster with one key.
fn small_backup(directory: &Path) -> String {
    let file = directory.join("small.backup").display().to_string();
    let cluster = Cluster::start(1, "multipaxos");
    let node = &cluster.nodes[0].resp;
    let mut connection = Connection::open(node).unwrap();
    connection.call(&[b"SET", b"key", b"value"]).unwrap();
    done(&["backup", "--out", &file, "--endpoints", node]);
    file
}

#[test]
fn what_cannot_be_backed_up_or_restored_is_refused_with_the_reason_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = small_backup(directory.path());
    let bytes = std::fs::read(&file).unwrap();
    let named = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let cut = named("cut", &bytes[..bytes.len() - 5]);
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    let changed = named("changed", &changed);
    let mut newer = bytes.clone();
    newer[8] += 1;
    let (newer, other) = (named("newer", &newer), named("other", b"not a backup"));
    let full = directory.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("file"), b"of somebody").unwrap();
    let (full, empty) = (full.display().to_string(), directory.path().join("empty").display().to_string());

    let members = "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3";
    let flags = |node: &'static str| ["--node-id", node, "--initial-cluster", members];
    let eight: Vec<_> = (1..=8).map(|id| format!("{id}=127.0.0.1:{id}")).collect();
    let eight = eight.join(",");
    let too_many = ["--node-id", "1", "--initial-cluster", &eight, "--protocol", "epaxos"];
    for (file, data, flags, code, part) in [
        (&cut, &empty, &flags("1")[..], 1, "it was cut short; nothing of it is used"),
        (&changed, &empty, &flags("1"), 1, "the backup is damaged at offset"),
        (&newer, &empty, &flags("1"), 1, "has format 2, this version of Quorate reads formats up to 1"),
        (&other, &empty, &flags("1"), 1, "this is no backup that Quorate wrote"),
        (&file, &full, &flags("1"), 2, "holds file, which Quorate did not put there"),
        (&file, &empty, &flags("4"), 2, "node 4"),
        (&file, &empty, &["--node-id", "1"], 2, "--initial-cluster is missing"),
        (&file, &empty, &too_many, 2, "epaxos runs on 1 to 7 nodes"),
        (&file, &empty, &[&flags("1")[..], &["--protocol", "paxos"]].concat(), 2, "unknown protocol `paxos`"),
        (&file, &empty, &[&flags("1")[..], &["--verify"]].concat(), 2, "cannot be used with"),
        (
            &file,
            &empty,
            &[&flags("1")[..], &["--durability", "none"]].concat(),
            2,
            "multipaxos relies on what it has written",
        ),
    ] {
        let (found, _, said) = quorate(&[&["restore", file, "--data-dir", data][..], flags].concat());
        assert_eq!(found, Some(code), "{flags:?}: {said}");
        assert!(said.contains(part), "{part} is not in {said}");
        assert!(!Path::new(&empty).exists(), "{flags:?} made the directory");
    }
    let words = [&["restore", &file, "--data-dir", &empty][..], &flags("2")].concat();
    assert!(done(&words).contains("quorate serve --node-id 2"));
    let (code, _, said) = quorate(&words);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("is the data directory of node 2") && said.contains("nothing was written"),
        "{said}"
    );

    let nobody = ["--endpoints", "127.0.0.1:1"];
    let (code, _, said) = quorate(&[&["backup", "--out", &file][..], &nobody].concat());
    assert_eq!(
        (code, said.contains("exists: choose another --out, or replace it with --force")),
        (Some(2), true)
    );
    let (code, _, said) = quorate(&[&["backup", "--force", "--out", &file][..], &nobody].concat());
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "a backup that fails leaves the file as it was");
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".quorate")), "{left:?}");
}

#[test]
fn a_backup_beyond_the_limit_on_the_size_of_files_fails_in_words_and_leaves_nothing() {
    let cluster = Cluster::start(1, "unreplicated");
    let node = &cluster.nodes[0].resp;
    let mut connection = Connection::open(node).unwrap();
    let mut random = Random::new(1);
    let value: Vec<u8> = (0..100_000).map(|_| random.u64() as u8).collect();
    connection.call(&[b"SET", b"k", &value]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    for command in ["backup", "export"] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 20 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_quorate"), command]);
        limited.args(["--endpoints", node, "--out"]).arg(directory.path().join("file"));
        let output = limited.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("File too large"), "{command}: {said}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{command}");
    }
}

#[test]
fn force_replaces_files_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("pipe", path("link")).unwrap();
    std::fs::create_dir(path("directory")).unwrap();
    for name in ["pipe", "link", "directory"] {
        for force in [&[][..], &["--force"]] {
            let words = ["backup", "--endpoints", "127.0.0.1:1", "--out", &path(name)];
            let (code, _, said) = quorate(&[&words[..], force].concat());
            assert_eq!(code, Some(2), "{name}: {said}");
            assert!(said.contains("is no regular file: choose another --out"), "{name}: {said}");
        }
    }

    // What a link leads to is replaced, not the link.
    let file = small_backup(directory.path());
    std::os::unix::fs::symlink("other", path("latest")).unwrap();
    std::fs::write(path("other"), b"old").unwrap();
    done(&["export", "--force", "--backup", &file, "--out", &path("latest")]);
    assert!(std::fs::symlink_metadata(path("latest")).unwrap().is_symlink());
    assert_ne!(std::fs::read(path("other")).unwrap(), b"old");
}

#[test]
fn pieces_belong_to_the_connection_that_began_and_only_the_last_to_begin_has_them() {
    let cluster = Cluster::start(1, "unreplicated");
    let open = || Connection::open(&cluster.nodes[0].resp).unwrap();
    let (mut one, mut other) = (open(), open());
    let error = |reply: Resp| match reply {
        Resp::Error(text) => text,
        other => panic!("{other:?}"),
    };
    let next: [&[u8]; 3] = [b"QUORATE", b"BACKUP", b"NEXT"];
    assert!(error(one.call(&next).unwrap()).contains("BEGIN comes first"));
    for words in [&[&b"QUORATE"[..], b"BACKUP", b"BEGIN"][..], &[b"QUORATE", b"BACKUP", b"BEGIN", b"LOCAL"]] {
        let Resp::Bulk(about) = one.call(words).unwrap() else { panic!() };
        let about: serde_json::Value = serde_json::from_slice(&about).unwrap();
        assert_eq!(about["protocol"], "unreplicated");
        assert_eq!(about["node"], 1);
        assert!(matches!(one.call(&next).unwrap(), Resp::Bulk(_)));
    }
    assert!(matches!(other.call(&[b"QUORATE", b"BACKUP", b"BEGIN"]).unwrap(), Resp::Bulk(_)));
    assert!(error(one.call(&next).unwrap()).contains("another backup has begun"));
    while other.call(&next).unwrap() != Resp::Nil {}
    assert!(error(other.call(&next).unwrap()).contains("BEGIN comes first"));
    assert!(error(one.call(&[b"QUORATE", b"BACKUP", b"END"]).unwrap()).contains("write BEGIN"));
    one.call(&[b"MULTI"]).unwrap();
    one.call(&[b"QUORATE", b"BACKUP", b"BEGIN"]).unwrap();
    let Resp::Array(replies) = one.call(&[b"EXEC"]).unwrap() else { panic!() };
    assert!(matches!(&replies[..], [Resp::Error(text)] if text.contains("not allowed in a transaction")));
}

/// It counts nowhere, and has all data.
#[test]
fn a_learner_gives_a_backup_of_what_was_acknowledged_before() {
    let mut cluster = Cluster::start(3, "raft");
    let peer = cluster.join();
    let [voter, learner] = [0, 3].map(|index| cluster.nodes[index].resp.clone());
    done(&["member", "add", &format!("4={peer}"), "--learner", "--endpoints", &voter]);
    let list = done(&["member", "list", "--endpoints", &voter]);
    assert!(list.lines().any(|line| line.starts_with("4 ") && line.contains("learner")), "{list}");
    done(&["put", "key", "value", "--endpoints", &voter]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("learner.backup").display().to_string();
    let output = done(&["backup", "--out", &file, "--endpoints", &learner]);
    assert!(output.contains(", from node 4 ("), "{output}");
    assert!(done(&["restore", &file, "--verify"]).ends_with("; 1 keys\n"));
    assert!(done(&["export", "--backup", &file]).contains("\"key\":\"key\""));
}

#[test]
fn what_is_exported_as_lines_is_imported_elsewhere_as_it_was() {
    let old = Cluster::start(3, "multipaxos");
    let mut connection = Connection::open(&old.nodes[0].resp).unwrap();
    let far = b"4000000000000";
    for words in [
        &[&b"SET"[..], b"text", "h\u{e9}llo \"there\"\n".as_bytes()][..],
        &[b"SET", b"\xff\x00", b"\x80"],
        &[b"SET", b"expiring", b"v", b"PXAT", far],
        &[b"HSET", b"hash", b"f", b"1", b"\xfe", b"\x00"],
        &[b"SET", b"gone", b"v", b"PX", b"1"],
    ] {
        assert!(!matches!(connection.call(words).unwrap(), Resp::Error(_)), "{words:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.jsonl");
    let (file, from) = (file.to_str().unwrap(), &old.nodes[1].resp);
    done(&["export", "--out", file, "--endpoints", from]);
    let lines = std::fs::read_to_string(file).unwrap();
    let expected =
        "{\"key\":\"expiring\",\"type\":\"string\",\"value\":\"v\",\"expires_ms\":4000000000000}\n";
    assert!(lines.contains(expected), "{lines}");
    let (code, _, said) = quorate(&["export", "--out", file, "--endpoints", from]);
    assert!(code == Some(2) && said.contains("exists"), "{said}");
    let backup = dir.path().join("data.backup");
    let backup = backup.to_str().unwrap();
    done(&["backup", "--out", backup, "--endpoints", from]);
    let of_backup = done(&["export", "--backup", backup]);
    let sorted = |text: &str| {
        let mut lines: Vec<_> =
            text.lines().filter(|line| !line.contains("gone")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&of_backup), sorted(&lines));

    let new = Cluster::start(3, "raft");
    let to = &new.nodes[2].resp;
    let mut connection = Connection::open(to).unwrap();
    connection.call(&[b"HSET", b"hash", b"stale", b"1"]).unwrap();
    connection.call(&[b"SET", b"own", b"v"]).unwrap();
    for _ in 0..2 {
        done(&["import", file, "--endpoints", to]);
        let mut get = |words: &[&[u8]]| connection.call(words).unwrap();
        let bulk = |bytes: &[u8]| Resp::Bulk(bytes.to_vec());
        assert_eq!(get(&[b"GET", b"text"]), bulk("h\u{e9}llo \"there\"\n".as_bytes()));
        assert_eq!(get(&[b"GET", b"\xff\x00"]), bulk(b"\x80"));
        assert_eq!(get(&[b"PEXPIRETIME", b"expiring"]), Resp::Integer(4_000_000_000_000));
        assert_eq!(get(&[b"HLEN", b"hash"]), Resp::Integer(2), "what was there is replaced");
        assert_eq!(get(&[b"HGET", b"hash", b"\xfe"]), bulk(b"\x00"));
        assert_eq!(get(&[b"EXISTS", b"gone", b"own"]), Resp::Integer(1));
    }
}

#[test]
fn an_import_names_the_line_that_is_wrong_and_has_imported_those_before_it() {
    let cluster = Cluster::start(1, "unreplicated");
    let to = &cluster.nodes[0].resp;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("data.jsonl");
    let mut connection = Connection::open(to).unwrap();
    let mut import = |text: String, expected: &str, keys: i64| {
        std::fs::write(&file, text).unwrap();
        let (code, _, said) = quorate(&["import", file.to_str().unwrap(), "--endpoints", to]);
        assert!(code == Some(2) && said.contains(expected), "{code:?} {said}");
        assert!(said.contains(&format!("{keys} other lines are imported")), "{said}");
        assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(keys));
        assert_eq!(connection.call(&[b"FLUSHALL"]).unwrap(), Resp::Simple("OK".into()));
    };
    let line = |key: usize| format!("{{\"key\":\"{key}\",\"type\":\"string\",\"value\":\"v\"}}\n");
    let lines = |keys: std::ops::Range<usize>| keys.map(line).collect::<String>();
    let wrong = "line 501: it is not a key as `quorate export` writes it";
    import(lines(0..500) + "{\"key\":7}\n" + &lines(500..900), wrong, 500);
    import(lines(0..500) + &line(500)[..20], wrong, 500);
    let fields = "{\"key\":\"k\",\"type\":\"hash\",\"value\":[]}\n";
    import(lines(0..3) + "\n" + fields, "line 5: a hash has at least one field", 3);
    std::fs::write(&file, [&b"{\"key\":\""[..], b"\xff"].concat()).unwrap();
    let (code, _, said) = quorate(&["import", file.to_str().unwrap(), "--endpoints", to]);
    assert!(code == Some(2) && said.contains("line 1: it cannot be read"), "{code:?} {said}");
    let (code, _, said) = quorate(&["import", "nowhere.jsonl", "--endpoints", to]);
    assert!(code == Some(2) && said.contains("cannot read nowhere.jsonl"), "{code:?} {said}");
    // What the node refuses is said with its line, too: a key that is too long.
    std::fs::write(&file, line(1) + &line(1).replace('1', &"k".repeat(2 << 20))).unwrap();
    let (code, _, said) = quorate(&["import", file.to_str().unwrap(), "--endpoints", to]);
    assert!(code == Some(1) && said.contains("line 2: ") && said.contains("answered"), "{code:?} {said}");
    assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(1));
}
