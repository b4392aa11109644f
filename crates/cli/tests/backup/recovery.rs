//! `quorate recover`: a new cluster from the data directory of a survivor, and what is refused; lost passwords.

use quorate_blocks::state::Replicated;
use quorate_core::{FeatureLevel, NodeId, Wall};
use quorate_node::founding::Founding;
use quorate_node::{Durability, parse_cluster};
use quorate_protocols::registry::named;
use quorate_store::Store;

use super::*;

/// Runs a command on a terminal of its own, and types a line.
fn type_to(words: &[&str], line: &str) -> (Option<i32>, String) {
    let quoted: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
    let command = format!("'{}' {}", env!("CARGO_BIN_EXE_quorate"), quoted.join(" "));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is a part of util-linux");
    writeln!(script.stdin.take().unwrap(), "{line}").unwrap();
    let output = script.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_recovery_is_done_for_whoever_types_the_word_and_for_nobody_else() {
    let mut cluster = Cluster::start(1, "raft");
    done(&["put", "key", "value", "--endpoints", &cluster.nodes[0].resp]);
    cluster.nodes[0].kill();
    let old = cluster.nodes[0].data.display().to_string();
    let new = cluster.nodes[0].data.with_extension("new").display().to_string();
    let words = ["recover", "--data-dir", &old, "--new-data-dir", &new, "--initial-cluster", "1=127.0.0.1:1"];
    for word in ["yes", "Recover", ""] {
        let (code, said) = type_to(&words, word);
        assert!(code == Some(1) && said.contains("Type `recover` to go on: "), "{word:?}: {code:?} {said}");
        assert!(said.contains("nothing was done"), "{word:?}: {said}");
        assert!(!Path::new(&new).exists(), "{word:?}");
    }
    let (code, said) = type_to(&words, "recover");
    assert!(code == Some(0) && said.contains("node 1 of the new cluster"), "{code:?} {said}");
    assert!(Path::new(&new).is_dir());
}

/// The majority is gone with its disks. What the survivor has goes on as a cluster of one, which can grow again.
#[test]
fn a_survivor_of_a_lost_majority_goes_on_as_a_new_cluster() {
    for protocol in ["raft", "multipaxos", "hermes"] {
        let mut old = Cluster::start(3, protocol);
        let leader = old.leader();
        let survivor = (leader + 1) % 3;
        let mut connection = Connection::open(&old.nodes[leader].resp).unwrap();
        for index in 0..500 {
            let key = format!("key:{index}");
            assert_eq!(connection.call(&[b"SET", key.as_bytes(), b"v"]).unwrap(), Resp::Simple("OK".into()));
        }
        wait_for("the survivor to have all", || has_locally(&old.nodes[survivor], "key:499").then_some(()));
        old.nodes.iter_mut().for_each(Node::kill);
        let mut new = Cluster::prepare(1, protocol, &[]);
        let data = [&old.nodes[survivor].data, &new.nodes[0].data].map(|path| path.display().to_string());
        let members = new.members().to_owned();
        let words = ["recover", "--data-dir", &data[0], "--new-data-dir", &data[1]];
        let words = [&words[..], &["--initial-cluster", &members]].concat();
        let (code, _, said) = quorate(&words);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("500 keys") && said.contains("nothing was done: nobody can be asked here"),
            "{said}"
        );
        let two = "1=127.0.0.1:1,2=127.0.0.1:2";
        let (code, _, said) = quorate(&[&words[..6], &[two, "--yes"]].concat());
        assert_eq!((code, said.contains("must name one member")), (Some(2), true), "{said}");
        done(&[&words[..], &["--yes"]].concat());
        start(&mut new.nodes);
        let mut connection = Connection::open(&new.nodes[0].resp).unwrap();
        if protocol != "hermes" {
            assert_eq!(connection.call(&[b"DBSIZE"]).unwrap(), Resp::Integer(500));
        }
        assert_eq!(connection.call(&[b"APPEND", b"key:499", b"w"]).unwrap(), Resp::Integer(2));
        assert_eq!(connection.call(&[b"INCR", b"new"]).unwrap(), Resp::Integer(1));
        // The survivor's directory is as it was: the old group goes on if it comes back after all.
        start(&mut old.nodes);
    }
}

/// As that of a later version may be.
#[test]
fn a_state_of_a_feature_level_that_is_not_known_begins_no_cluster() {
    let directory = tempfile::tempdir().unwrap();
    for (level, is_known) in [(FeatureLevel::NEWEST.get(), true), (FeatureLevel::NEWEST.get() + 1, false)] {
        let mut store = Store::new();
        let to = FeatureLevel::new(level).unwrap();
        store.apply(&quorate_store::Command::RaiseLevel { to, if_new: false }, 1, Wall::ZERO);
        let founding = Founding {
            directory: directory.path().join(level.to_string()),
            node: NodeId::new(1).unwrap(),
            members: parse_cluster("1=127.0.0.1:1").unwrap(),
            protocol: named("raft"),
            durability: Durability::Fsync,
        };
        let found = founding.found(Replicated::of(store), 1);
        assert_eq!(found.is_ok(), is_known, "{level}: {found:?}");
        assert_eq!(founding.directory.exists(), is_known, "{level}");
    }
}

#[test]
fn nothing_is_recovered_from_the_directory_of_a_node_without_durability() {
    let mut cluster = Cluster::start_with(1, "hermes", NO_DISK);
    cluster.nodes.iter_mut().for_each(Node::kill);
    let data = cluster.nodes[0].data.display().to_string();
    let new = cluster.nodes[0].data.with_extension("new").display().to_string();
    let words =
        ["recover", "--data-dir", &data, "--new-data-dir", &new, "--initial-cluster", "1=127.0.0.1:1"];
    let (code, _, said) = quorate(&[&words[..], &["--yes"]].concat());
    assert!(code == Some(2) && said.contains("is no data directory with a node's log"), "{code:?} {said}");
    assert!(!Path::new(&new).exists());
}

/// Whose password nobody knows any more is no user of the new cluster.
#[test]
fn lost_passwords_are_replaced_when_a_cluster_is_restored_or_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let lost = file("lost", "user default off\nuser root on >forgotten ~* +@all\nuser ann on >a ~* +@all\n");
    let new = file("new", "user default off\nuser root on >known ~* +@all\n");
    let wrong = file("wrong", "user default off\nuser ann on +nothing\n");
    let backup = small_backup(directory.path());
    let value = Resp::Bulk(b"value".to_vec());
    let is_there = |told: &Resp| *told == value;
    let mut old = Cluster::prepare(2, "raft", &[]);
    let words = |node: &Node, id: &str, users: &str| {
        let data = node.data.display().to_string();
        let words = ["restore", &backup, "--data-dir", &data, "--node-id", id, "--protocol", "raft"];
        let more = ["--initial-cluster", old.members(), "--users", users];
        words.iter().chain(&more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = |words: &[String]| quorate(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let (code, _, said) = run(&words(&old.nodes[0], "1", &wrong));
    assert!(code == Some(2) && said.contains("rule `+nothing`"), "{code:?} {said}");
    assert!(!old.nodes[0].data.exists());
    let id = |(code, output, said): (Option<i32>, String, String)| {
        assert_eq!(code, Some(0), "{said}");
        output.split("of the new cluster ").nth(1).map(|rest| rest[..16].to_owned()).unwrap()
    };
    let ids = ["1", "2"].map(|node| id(run(&words(&old.nodes[usize::from(node == "2")], node, &lost))));
    assert_eq!(ids[0], ids[1]);
    // Nobody is served who does not say who it is.
    let key_for = |node: &Node, name: &str, password: &str| {
        let mut connection = Connection::open(&node.resp).ok()?;
        assert!(matches!(connection.call(&[b"GET", b"key"]), Ok(Resp::Error(_)) | Err(_)));
        let told = connection.call(&[b"AUTH", name.as_bytes(), password.as_bytes()]).ok()?;
        matches!(told, Resp::Simple(_)).then(|| connection.call(&[b"GET", b"key"]).ok())?
    };
    old.nodes.iter_mut().for_each(Node::start);
    for node in &old.nodes {
        assert_eq!(wait_for("ann to be served", || key_for(node, "ann", "a").filter(is_there)), value);
        assert_eq!(key_for(node, "root", "known"), None);
    }
    old.nodes.iter_mut().for_each(Node::kill);
    let mut found = Cluster::prepare(1, "raft", &[]);
    let data = [&old.nodes[0].data, &found.nodes[0].data].map(|path| path.display().to_string());
    let members = found.members().to_owned();
    let words =
        ["recover", "--data-dir", &data[0], "--new-data-dir", &data[1], "--initial-cluster", &members];
    done(&[&words[..], &["--users", &new, "--yes"]].concat());
    found.nodes[0].start();
    let node = &found.nodes[0];
    assert_eq!(wait_for("root to be served", || key_for(node, "root", "known").filter(is_there)), value);
    assert_eq!([key_for(node, "root", "forgotten"), key_for(node, "ann", "a")], [None, None]);
}
