//! Hermes by real processes: whoever is killed or stands still, what clients see is linearizable; and what it cannot do
//! is refused with what can.

#[path = "support/load.rs"]
mod load;
mod support;

use std::process::Command;

use load::Load;
use support::{Cluster, Connection, Node, Resp, request, wait_for};

const NO_DISK: &[&str] = &["--durability", "none"];

/// What is said to an operator whose data are gone.
const ANEW: &str =
    "Nobody is served. To begin anew with nothing, stop all nodes, remove their data directories";

fn ok() -> Resp {
    Resp::Simple("OK".into())
}

/// One write that is answered.
fn set(node: &Node, key: &str, value: &str) {
    wait_for("a write", || {
        let mut connection = Connection::open(&node.resp).ok()?;
        let reply = connection.call(&[b"SET", key.as_bytes(), value.as_bytes()]).ok()?;
        (reply == ok()).then_some(())
    });
}

/// Everybody is live and has everything, as everybody sees it.
fn wait_until_whole(cluster: &Cluster) {
    let whole = |node: &Node| {
        let role = node.status()?["role"].as_str()?.to_owned();
        ["leader", "live"].contains(&role.as_str()).then_some(())
    };
    cluster.nodes.iter().for_each(|node| wait_for("a member to have everything", || whole(node)));
}

/// The epoch that a node is in.
fn epoch(node: &Node) -> String {
    wait_for("a status", || Some(node.status()?["ballot"].as_str()?.to_owned()))
}

#[test]
fn kills_and_pauses_of_any_member_lose_nothing_and_show_nothing_stale() {
    let mut cluster = Cluster::start(3, "hermes");
    let load = Load::start((0..9).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(500);
    for node in 0..3 {
        cluster.nodes[node].kill();
        set(&cluster.nodes[(node + 1) % 3], "probe", "x");
        load.progress(200);
        cluster.nodes[node].start();
        cluster.nodes[node].wait_until_serving();
    }
    // The owner of the epoch, and one that owns none.
    for next in 0..2 {
        wait_until_whole(&cluster);
        let node = (cluster.leader() + next) % 3;
        cluster.nodes[node].pause();
        set(&cluster.nodes[(node + 1) % 3], "probe", "x");
        load.progress(200);
        cluster.nodes[node].resume();
        cluster.nodes[node].wait_until_serving();
    }
    cluster.restart();
    load.progress(200);
    load.check(&cluster.nodes);
}

/// In another epoch, the others may go on without it.
#[test]
fn a_member_without_leases_gives_a_backup_of_what_it_has_and_none_of_what_was_acknowledged() {
    let cluster = Cluster::start_with(3, "hermes", NO_DISK);
    set(&cluster.nodes[0], "probe", "x");
    wait_until_whole(&cluster);
    let directory = tempfile::tempdir().unwrap();
    let backup = |name: &str, more: &[&str]| {
        let file = directory.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["backup", "--endpoints", &cluster.nodes[0].resp, "--out"]).arg(&file).args(more);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), file)
    };
    cluster.nodes[1..].iter().for_each(Node::pause);
    let is_leased = || cluster.nodes[0].status().and_then(|status| status["lease"].as_bool());
    wait_for("leases to end", || (is_leased() == Some(false)).then_some(()));
    let (code, said, _) = backup("refused", &[]);
    assert!(said.contains("this node has no lease now"), "{said}");
    assert_eq!(code, Some(3), "no answer");
    let (code, said, file) = backup("local", &["--local"]);
    assert_eq!((code, &*said), (Some(0), ""));
    cluster.nodes[1..].iter().for_each(Node::resume);
    cluster.nodes[0].wait_until_serving();
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let output = command.args(["export", "--backup"]).arg(file).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("{\"key\":\"probe\""));
}

/// More than a key remembers of one proxy: those beyond wait until it has answers to others, and no longer.
#[test]
fn many_writes_of_one_key_at_the_same_time_are_all_executed_once() {
    let cluster = Cluster::start(3, "hermes");
    let mut connections: Vec<_> = (0..8).map(|_| Connection::open(&cluster.nodes[2].resp).unwrap()).collect();
    let increments = request(&[b"INCR", b"n"]).repeat(500);
    for _ in 0..2 {
        connections.iter_mut().for_each(|connection| connection.send(&increments).unwrap());
        for connection in &mut connections {
            for _ in 0..500 {
                let reply = connection.reply().unwrap();
                assert!(matches!(reply, Resp::Integer(_)), "{reply:?}");
            }
        }
    }
    assert_eq!(cluster.nodes[0].read("n"), Resp::Bulk("8000".into()));
}

/// Each comes back without a key, and is filled by the others; two at once by the third.
#[test]
fn without_durability_kills_of_one_or_two_members_lose_nothing_while_another_has_everything() {
    let mut cluster = Cluster::start_with(3, "hermes", NO_DISK);
    let load = Load::start((0..9).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(500);
    for node in 0..3 {
        wait_until_whole(&cluster);
        cluster.nodes[node].kill();
        set(&cluster.nodes[(node + 1) % 3], "probe", "x");
        load.progress(200);
        cluster.nodes[node].start();
        cluster.nodes[node].wait_for_line(&["memory lost at the restart", "a shadow until"]);
        cluster.nodes[node].wait_for_line(&["this node has all data in memory again"]);
    }
    wait_until_whole(&cluster);
    set(&cluster.nodes[1], "probe", "y");
    for node in 0..2 {
        cluster.nodes[node].kill();
    }
    cluster.nodes[..2].iter_mut().for_each(Node::start);
    cluster.nodes[0].wait_until_serving();
    assert_eq!(cluster.nodes[0].read("probe"), Resp::Bulk("y".into()));
    wait_until_whole(&cluster);
    load.progress(200);
    load.check(&cluster.nodes);
}

/// They serve nobody rather than an empty state, and say why, and what an operator can do.
#[test]
fn without_durability_members_that_have_all_lost_their_memory_say_so_and_how_to_begin_anew() {
    let mut cluster = Cluster::start_with(3, "hermes", NO_DISK);
    set(&cluster.nodes[0], "probe", "x");
    wait_until_whole(&cluster);
    // What the other two write without it, it does not have.
    cluster.nodes[2].kill();
    set(&cluster.nodes[0], "probe", "y");
    for node in 0..2 {
        cluster.nodes[node].kill();
    }
    cluster.nodes[..2].iter_mut().for_each(Node::start);
    let waits = "memory lost by node 1, node 2: node 3 may have all data, and does not answer";
    cluster.nodes[..2].iter().for_each(|node| drop(node.wait_for_line(&[waits])));
    cluster.nodes[2].start();
    let lost = "memory lost by too many members (node 1, node 2, node 3)";
    for node in &cluster.nodes {
        node.wait_for_line(&[lost, ANEW]);
        wait_for("its status", || {
            let status = node.status()?;
            let says = status["facts"]["group_memory"].as_str()?.starts_with(lost);
            (says && status["role"] != "leader" && status["leader"].is_null()).then_some(())
        });
    }
    let mut connections: Vec<_> =
        cluster.nodes.iter().map(|node| Connection::open(&node.resp).unwrap()).collect();
    for connection in &mut connections {
        let both = [request(&[b"GET", b"probe"]), request(&[b"SET", b"probe", b"z"])].concat();
        connection.send(&both).unwrap();
    }
    for connection in &mut connections {
        for _ in 0..2 {
            let Resp::Error(said) = connection.reply().unwrap() else { panic!("it is answered") };
            assert!(said.starts_with("CLUSTERDOWN") && said.contains(lost) && said.contains(ANEW), "{said}");
        }
    }
    let endpoints: Vec<_> = cluster.nodes.iter().map(|node| &*node.resp).collect();
    let words = ["status", "--endpoints", &endpoints.join(",")];
    let run = Command::new(env!("CARGO_BIN_EXE_quorate")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success() && said.contains("the cluster does not serve reads and writes"), "{said}");
    for node in 1..=3 {
        assert!(said.contains(&format!("warning: node {node}: {lost}")), "{said}");
    }
    // One that loses its disk as well may not come back as if it were new, and promise again.
    cluster.nodes[0].kill();
    std::fs::remove_dir_all(&cluster.nodes[0].data).unwrap();
    let (code, said) = cluster.nodes[0].run_to_end();
    assert!(code == Some(1) && said.contains("disk"), "{code:?}: {said}");
    for node in 1..3 {
        cluster.nodes[node].kill();
        let mut durable = cluster.twin(node);
        durable.set("--durability", "fsync");
        let (code, said) = durable.run_to_end();
        assert!(code == Some(2) && said.contains("or the durability it was made with"), "{code:?}: {said}");
    }
    for node in &mut cluster.nodes {
        std::fs::remove_dir_all(&node.data).unwrap();
        node.start();
    }
    set(&cluster.nodes[1], "other", "x");
    cluster.nodes[0].wait_until_serving();
    assert_eq!(cluster.nodes[0].read("probe"), Resp::Nil, "it begins anew");
}

/// Reads that were asked while it stood still, behind a write that was answered elsewhere.
#[test]
fn a_reader_that_stood_still_while_an_epoch_began_without_it_shows_nothing_stale() {
    let cluster = Cluster::start(3, "hermes");
    let load = Load::start((0..6).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(100);
    for round in 0..4 {
        wait_until_whole(&cluster);
        // The owner of the epoch, and others.
        let paused = (cluster.leader() + round % 3) % 3;
        let (reader, other) = (&cluster.nodes[paused], &cluster.nodes[(paused + 1) % 3]);
        let (old, new) = (format!("{round}.old"), format!("{round}.new"));
        set(other, "watched", &old);
        let mut late: Vec<_> = (0..8).map(|_| Connection::open(&reader.resp).unwrap()).collect();
        for connection in &mut late {
            assert_eq!(connection.call(&[b"GET", b"watched"]).unwrap(), Resp::Bulk(old.clone().into()));
        }
        let before = epoch(other);
        reader.pause();
        set(other, "watched", &new);
        assert_ne!(epoch(other), before, "it takes another epoch to write without the reader");
        for connection in &mut late {
            connection.send(&request(&[b"GET", b"watched"]).repeat(50)).unwrap();
        }
        reader.resume();
        for connection in &mut late {
            for _ in 0..50 {
                match connection.reply().unwrap() {
                    Resp::Error(text) => assert!(text.starts_with("CLUSTERDOWN"), "{text}"),
                    shown => assert_eq!(shown, Resp::Bulk(new.clone().into()), "round {round}"),
                }
            }
        }
        load.progress(100);
    }
    load.check(&cluster.nodes);
}

/// The owner of the epoch, and then another: it hears everything, and acknowledges nothing.
#[test]
fn a_member_whose_disk_hangs_is_left_out_and_comes_back_with_what_was_written_meanwhile() {
    let (cluster, hangs) = Cluster::start_with_disks_that_hang(3, "hermes", &[]);
    for next in 0..2 {
        wait_until_whole(&cluster);
        let hung = (cluster.leader() + next) % 3;
        std::fs::write(&hangs[hung], "").unwrap();
        for count in 0..20 {
            set(&cluster.nodes[(hung + 1 + count % 2) % 3], "k", &format!("{next}.{count}"));
        }
        std::fs::remove_file(&hangs[hung]).unwrap();
        assert_eq!(cluster.nodes[hung].read("k"), Resp::Bulk(format!("{next}.19").into()));
    }
}

#[test]
fn what_is_not_about_one_key_is_refused_with_its_name_and_a_protocol_that_can() {
    let cluster = Cluster::start(3, "hermes");
    let mut connection = Connection::open(&cluster.nodes[1].resp).unwrap();
    let mut call = |line: &str| {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        connection.call(&words).unwrap()
    };
    assert_eq!(call("SET a 1"), ok());
    for (line, name) in [
        ("MGET a b", "MGET"),
        ("MSET a 1 b 2", "MSET"),
        ("MSETNX a 1 b 2", "MSETNX"),
        ("DEL a b", "DEL"),
        ("UNLINK a b", "UNLINK"),
        ("EXISTS a b", "EXISTS"),
        ("TOUCH a b", "TOUCH"),
        ("SCAN 0", "SCAN"),
        ("KEYS *", "KEYS"),
        ("DBSIZE", "DBSIZE"),
        ("FLUSHALL", "FLUSHALL"),
        ("FLUSHDB", "FLUSHDB"),
        ("RANDOMKEY", "RANDOMKEY"),
        ("ACL SETUSER ann on", "ACL SETUSER"),
        ("CONFIG SET feature-level 2", "CONFIG SET"),
    ] {
        let Resp::Error(said) = call(line) else { panic!("{line} is not refused") };
        for part in [name, "hermes", "such as multipaxos"] {
            assert!(said.contains(part), "{line}: {part} is not in {said}");
        }
    }
    assert_eq!((call("MULTI"), call("SET a 2"), call("SET b 2")), (ok(), queued(), queued()));
    let Resp::Error(said) = call("EXEC") else { panic!("it is not refused") };
    assert!(said.contains("EXEC") && said.contains("such as multipaxos"), "{said}");
    assert_eq!((call("MULTI"), call("INCR a"), call("GET a")), (ok(), queued(), queued()));
    let both = vec![Resp::Integer(2), Resp::Bulk(b"2".to_vec())];
    assert_eq!(call("EXEC"), Resp::Array(both), "all on one key");
    assert_eq!(call("DEL a"), Resp::Integer(1));
}

fn queued() -> Resp {
    Resp::Simple("QUEUED".into())
}

#[test]
fn a_value_above_one_mebibyte_is_refused_and_the_key_stays_as_it_was() {
    let cluster = Cluster::start(3, "hermes");
    let mut connection = Connection::open(&cluster.nodes[2].resp).unwrap();
    let most = vec![b'v'; 1 << 20];
    assert_eq!(connection.call(&[b"SET", b"k", &most]).unwrap(), ok());
    let larger = vec![b'w'; 2 << 20];
    for words in
        [&[&b"SET"[..], b"k", &larger][..], &[b"APPEND", b"k", &most], &[b"HSET", b"h", b"f", &larger]]
    {
        let Resp::Error(said) = connection.call(words).unwrap() else { panic!("it is not refused") };
        assert!(said.contains("1048832 bytes") && said.contains("such as multipaxos"), "{said}");
    }
    assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(most));
    assert_eq!(connection.call(&[b"HLEN", b"h"]).unwrap(), Resp::Integer(0));
}

#[test]
fn what_the_group_cannot_do_is_refused_at_the_start() {
    let mut cluster = Cluster::start(3, "hermes");
    let words = ["member", "add", "4=127.0.0.1:1", "--endpoints", &cluster.nodes[0].resp];
    let run = Command::new(env!("CARGO_BIN_EXE_quorate")).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(
        !run.status.success() && said.contains("does not change its group while it runs; raft does"),
        "{said}"
    );
    let users = cluster.nodes[0].data.with_extension("users");
    std::fs::write(&users, "user default on nopass ~* +@all\n").unwrap();
    for (flags, part) in [
        (&["--node-id", "4", "--join"][..], "--join needs a protocol that does, such as raft"),
        (
            &["--durability", "none", "--protocol", "raft"],
            "or os if machines never lose power together, or a protocol that keeps its data in memory, such as hermes",
        ),
        (
            &["--durability", "none", "--set", "timeouts=auto"],
            "they would all lose their data: give the longest round",
        ),
        (
            &["--users", users.to_str().unwrap()],
            "choose a protocol that orders all writes, such as multipaxos",
        ),
    ] {
        let mut node = cluster.twin(0);
        node.data.set_extension("refused");
        let data = node.data.display().to_string();
        node.set("--data-dir", &data);
        for flag in flags.chunks(2) {
            match flag {
                [name, value] => node.set(name, value),
                name => node.args.extend(name.iter().map(|name| (*name).to_owned())),
            }
        }
        let (code, said) = node.run_to_end();
        assert!(code == Some(2) && said.contains(part), "{code:?}: {said}");
    }
    cluster.nodes.iter_mut().for_each(|node| assert!(node.terminate().success()));
}
