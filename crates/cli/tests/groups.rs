//! Real processes with several groups in each: whatever is killed, every key's history is linearizable, and what cannot
//! be done with several groups is refused.

#[path = "support/http.rs"]
mod http;
#[path = "support/load.rs"]
mod load;
mod support;

use std::collections::BTreeSet;
use std::process::Command;

use http::get;
use load::Load;
use quorate_bench::Ports;
use support::{Cluster, Connection, Node, Resp, wait_for};

/// Five groups, each with some of the keys of a `Load`, which are `counter`, `k0` to `k7`, and `once-…`.
const FIVE: &[&str] = &["--groups", "5", "--group-keys", "k0,k3,k6,l"];
/// A key of each, which no `Load` knows.
const KEYS: [&[u8]; 5] = [b"a", b"k0.", b"k3.", b"k6.", b"z"];

/// Every group serves at this node.
fn wait_for_all_groups(node: &Node) {
    wait_for("every group to serve", || {
        let mut connection = Connection::open(&node.resp).ok()?;
        let mut set = |key| connection.call(&[b"SET", key, b"x"]).is_ok_and(|reply| reply == ok());
        KEYS.iter().all(|key| set(key)).then_some(())
    });
}

fn ok() -> Resp {
    Resp::Simple("OK".into())
}

/// Who leads each group, as this node sees it; `None` while somebody is missing.
fn leaders(node: &Node) -> Option<Vec<u64>> {
    let status = node.status()?;
    status["groups"].as_array()?.iter().map(|group| group["leader"].as_u64()).collect()
}

#[test]
fn five_groups_lose_nothing_when_nodes_are_killed_and_a_wiped_disk_is_refused() {
    let mut cluster = Cluster::start_with(5, "multipaxos", FIVE);
    let first = wait_for("a leader of every group", || leaders(&cluster.nodes[0]));
    let different: BTreeSet<_> = first.iter().collect();
    assert_eq!(
        (first.len(), different.len()),
        (5, 5),
        "the first leaders are the members in turn: {first:?}"
    );
    let load = Load::start((0..10).map(|id| vec![cluster.nodes[id % 5].resp.clone()]));
    load.progress(500);
    for node in 0..3 {
        cluster.nodes[node].kill();
        cluster.nodes.iter().filter(|node| node.running()).for_each(wait_for_all_groups);
        load.progress(300);
        cluster.nodes[node].start();
        wait_for_all_groups(&cluster.nodes[node]);
    }
    cluster.nodes.iter_mut().for_each(|node| node.kill());
    cluster.nodes.iter_mut().for_each(|node| node.start());
    cluster.nodes.iter().for_each(wait_for_all_groups);
    load.progress(300);

    // One log holds what the node has promised in all groups: without it, it must not take part in any.
    cluster.nodes[4].kill();
    std::fs::remove_dir_all(&cluster.nodes[4].data).unwrap();
    std::fs::create_dir_all(&cluster.nodes[4].data).unwrap();
    let (code, said) = cluster.nodes[4].run_to_end();
    assert!(code.is_some_and(|code| code != 0), "{said}");
    load.progress(300);
    load.check(&cluster.nodes[..4]);
}

#[test]
fn a_node_of_epaxos_s_groups_replaces_its_disk_in_all_of_them() {
    let mut cluster = Cluster::start_with(5, "epaxos", FIVE);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let load = Load::start((0..8).map(|id| vec![cluster.nodes[id % 4].resp.clone()]));
    load.progress(300);
    cluster.nodes[4].kill();
    std::fs::remove_dir_all(&cluster.nodes[4].data).unwrap();
    std::fs::create_dir_all(&cluster.nodes[4].data).unwrap();
    load.progress(300);
    cluster.nodes[4].args.push("--replace-disk".to_owned());
    cluster.nodes[4].start();
    wait_for_all_groups(&cluster.nodes[4]);
    cluster.nodes[4].wait_until_whole();
    // Of five, three must be whole: it is one of them now.
    [0, 1].into_iter().for_each(|node| cluster.nodes[node].kill());
    wait_for_all_groups(&cluster.nodes[4]);
    load.progress(300);
    load.check(&cluster.nodes[2..]);
}

/// Asks a node for a change of members, or for who they are: the exit code, and what is said.
fn member(asked: &Node, words: &[&str]) -> (Option<i32>, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args([&["member"], words, &["--endpoints", &asked.resp]].concat())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (run.status.code(), text(&run.stdout) + &text(&run.stderr))
}

/// Each group changes on its own; a node that lost its disk is replaced in all.
#[test]
fn a_member_that_lost_its_disk_is_replaced_in_every_group_under_load() {
    let mut cluster = Cluster::start_with(3, "multipaxos", &["--groups", "a-j=crossword,k-n,o-z=raft"]);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let load = Load::start((0..6).map(|id| vec![cluster.nodes[id % 2].resp.clone()]));
    load.progress(300);
    cluster.nodes[2].kill();
    std::fs::remove_dir_all(&cluster.nodes[2].data).unwrap();
    std::fs::create_dir_all(&cluster.nodes[2].data).unwrap();
    let (code, said) = cluster.nodes[2].run_to_end();
    assert!(code.is_some_and(|code| code != 0) && said.contains("quorate member add"), "{said}");
    let new = format!("4={}", cluster.join());
    // Twice: where it is done, it is done.
    for _ in 0..2 {
        let (code, said) = member(&cluster.nodes[1], &["add", &new, "--remove", "3"]);
        assert_eq!((code, said.lines().last()), (Some(0), Some("OK")), "{said}");
    }
    for node in [0, 1, 3] {
        wait_for("every group to have the new members there", || {
            let (_, said) = member(&cluster.nodes[node], &["list", "--json"]);
            let list: serde_json::Value = serde_json::from_str(&said).ok()?;
            let groups = list["groups"].as_array()?;
            let is_new = |group: &serde_json::Value| group["voters"] == serde_json::json!([1, 2, 4]);
            (groups.len() == 3 && groups.iter().all(is_new)).then_some(())
        });
    }
    load.progress(300);
    // It counts: with one of the two others it is a majority of every group.
    wait_for_all_groups(&cluster.nodes[3]);
    cluster.nodes[0].kill();
    wait_for_all_groups(&cluster.nodes[3]);
    cluster.nodes[0].start();
    cluster.nodes[1].kill();
    wait_for_all_groups(&cluster.nodes[3]);
    cluster.nodes[3].kill();
    cluster.nodes[3].start();
    wait_for_all_groups(&cluster.nodes[3]);
    cluster.nodes[1].start();
    load.progress(300);
    let (code, said) = member(&cluster.nodes[3], &["promote", "9"]);
    assert!(code == Some(1) && said.contains("group 1: node 9 is not in the group"), "{said}");
    cluster.nodes.remove(2);
    load.check(&cluster.nodes);
}

/// Each group tells its own clients who its members are.
#[test]
fn a_proxy_follows_all_groups_though_its_clients_ask_one() {
    let groups = ["--groups", "a-j,k-n=raft,o-z"];
    let mut cluster = Cluster::start_with(3, "multipaxos", &groups);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let joining = [cluster.join(), cluster.join(), cluster.join()];
    let proxy = cluster.proxy("proxy", "multipaxos", cluster.members(), &groups);
    let mut connection = Connection::open(&proxy.resp).unwrap();
    for (old, address) in (1..).zip(&joining) {
        assert_eq!(connection.call(&[b"SET", b"a", b"y"]).unwrap(), ok());
        let (old, new) = (old.to_string(), format!("{}={address}", old + 3));
        // Asked of one that waits to be added itself.
        let (code, said) = member(&cluster.nodes[5], &["add", &new, "--remove", &old]);
        assert_eq!((code, said.lines().last()), (Some(0), Some("OK")), "{said}");
    }
    wait_for("the proxy to ask the new members", || {
        (connection.call(&[b"SET", b"a", b"z"]).ok()? == ok()).then_some(())
    });
    cluster.nodes[..3].iter_mut().for_each(|node| node.kill());
    for key in KEYS {
        assert_eq!(connection.call(&[b"SET", key, b"z"]).unwrap(), ok(), "{}", String::from_utf8_lossy(key));
    }
}

#[test]
fn groups_have_protocols_of_their_own_and_their_status_shows_it() {
    let cluster = Cluster::start_with(3, "multipaxos", &["--groups", "a-j=crossword,k-n,o-z=raft"]);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let status = cluster.nodes[1].status().unwrap();
    let shown = |name: &str| -> Vec<_> {
        status["groups"].as_array().unwrap().iter().map(|group| group[name].clone()).collect()
    };
    assert_eq!(shown("protocol"), ["crossword", "multipaxos", "raft"]);
    assert_eq!(shown("from"), ["", "k", "o"]);
    assert_eq!(shown("to"), [serde_json::json!("k"), serde_json::json!("o"), serde_json::Value::Null]);
    assert!(shown("applied").iter().all(|applied| applied.as_u64().unwrap() > 0), "{status}");
    assert_eq!(status["facts"]["protocol"], "groups of crossword, multipaxos from k, raft from o");
}

#[test]
fn one_group_after_the_other_is_led_by_whom_an_operator_names_and_nothing_is_lost() {
    let cluster = Cluster::start_with(3, "raft", FIVE);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let load = Load::start((0..6).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(200);
    let transfer = |words: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args([&["transfer"], words, &["--endpoints", &cluster.nodes[1].resp]].concat())
            .output()
            .unwrap();
        (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    for group in 1..=5 {
        let others = |leaders: &[u64]| -> Vec<u64> {
            leaders.iter().enumerate().filter(|(at, _)| at + 1 != group).map(|(_, leader)| *leader).collect()
        };
        let before = wait_for("a leader of every group", || leaders(&cluster.nodes[1]));
        let next = before[group - 1] % 3 + 1;
        let (code, said) = transfer(&[&next.to_string(), "--group", &group.to_string()]);
        assert_eq!(code, Some(0), "{said}");
        let after = wait_for("a leader of every group", || leaders(&cluster.nodes[1]));
        assert_eq!((after[group - 1], others(&after)), (next, others(&before)));
        load.progress(100);
    }
    for words in [&["1"][..], &["1", "--group", "6"]] {
        let (code, said) = transfer(words);
        assert!(code == Some(1) && said.contains("say which group another is to lead"), "{code:?}: {said}");
    }
    load.check(&cluster.nodes);
}

#[test]
fn a_group_lets_its_leader_be_chosen_whatever_the_protocols_of_others() {
    let cluster = Cluster::start_with(3, "raft", &["--groups", "a-j=epaxos,k-n,o-z=hermes"]);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let mut transfer = |to: &str, group: &str| {
        connection.call(&["QUORATE", "TRANSFER", to, "GROUP", group].map(str::as_bytes)).unwrap()
    };
    for to in 1..=3 {
        assert_eq!(transfer(&to.to_string(), "2"), ok());
        wait_for("that leader", || {
            let status = cluster.nodes[0].status()?;
            (status["groups"][1]["leader"] == to).then_some(())
        });
    }
    for group in ["1", "3"] {
        let refused = transfer("1", group);
        assert!(matches!(&refused, Resp::Error(why) if why.contains("its leader be chosen")), "{refused:?}");
    }
}

/// Users are in the first group; the others have their slots and leaders.
#[test]
fn a_change_of_users_is_in_force_at_the_node_that_has_acknowledged_it() {
    let cluster = Cluster::start_with(3, "multipaxos", &["--groups", "a-j=crossword,k-n,o-z=raft"]);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    for node in &cluster.nodes {
        let open = || Connection::open(&node.resp).unwrap();
        let (mut administrator, mut user) = (open(), open());
        let call = |connection: &mut Connection, line: &str| {
            connection.call(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap()
        };
        for password in 0..40 {
            let rules = format!("ACL SETUSER bob reset on >{password} ~* +@all");
            assert_eq!(call(&mut administrator, &rules), ok());
            assert_eq!(call(&mut user, &format!("AUTH bob {password}")), ok(), "{password}");
            assert_eq!(call(&mut administrator, "ACL SETUSER bob off"), ok());
            let refused = call(&mut user, "GET z");
            assert!(matches!(&refused, Resp::Error(why) if why.starts_with("NOAUTH")), "{refused:?}");
            assert_eq!(call(&mut user, "RESET"), Resp::Simple("RESET".into()));
        }
    }
}

/// Of five members, RSPaxos needs four.
#[test]
fn a_node_is_ready_when_all_its_groups_are_and_says_which_is_not() {
    let ports = Ports::claim().unwrap();
    let http = [(); 5].map(|()| ports.address());
    let mut cluster = Cluster::start_each(5, "multipaxos", |node| {
        ["--groups", "a-m,n-z=rspaxos", "--listen-http", &http[node]].map(str::to_owned).into()
    });
    for address in &http {
        wait_for("every node to be ready", || (get(address, "/readyz")?.0 == "200").then_some(()));
        assert_eq!(get(address, "/health").unwrap().0, "200");
    }
    let leaders = wait_for("a leader of each group", || leaders(&cluster.nodes[0]));
    let led = |node: usize, group: usize| leaders[group] == node as u64 + 1;
    let first = (0..5).find(|node| led(*node, 1)).unwrap();
    let second = (0..5).rev().find(|node| !led(*node, 0) && *node != first).unwrap();
    let left = (0..5).find(|node| ![first, second].contains(node)).unwrap();
    let metric = |group, protocol, leader| {
        let line = format!("quorate_group_leader{{group=\"{group}\",protocol=\"{protocol}\"}} {leader}");
        get(&http[left], "/metrics")?.1.lines().any(|found| found == line).then_some(())
    };
    let shown = || metric(1, "multipaxos", leaders[0]).and(metric(2, "rspaxos", leaders[1]));
    wait_for("the leaders to be shown", shown);
    [first, second].into_iter().for_each(|node| cluster.nodes[node].kill());
    let (_, said) = wait_for("one group to be missed", || {
        let (status, said) = get(&http[left], "/health")?;
        (status == "503" && !said.contains("group 1")).then_some((status, said))
    });
    assert!(
        said.starts_with("not serving: group 2: ") && said.contains("2 of the 4 other members"),
        "{said}"
    );
    let (status, said) = get(&http[left], "/readyz").unwrap();
    assert!(status == "503" && said.contains("[-]read failed: group 2: "), "{said}");
    // Whoever leads the second group reaches too few, and gives up; or it is gone.
    wait_for("the second group to have no leader", || metric(2, "rspaxos", 0));
    cluster.nodes[first].start();
    wait_for("the node to be ready again", || (get(&http[left], "/readyz")?.0 == "200").then_some(()));
}

#[test]
fn what_is_about_several_groups_is_refused_with_its_reason() {
    let cluster = Cluster::start_with(1, "unreplicated", FIVE);
    wait_for_all_groups(&cluster.nodes[0]);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let mut call = |line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        connection.call(&words).unwrap()
    };
    assert_eq!(call("MSET k3 x k4 y k5 z"), ok());
    assert_eq!(call("DEL k3 k4"), Resp::Integer(2));
    for (line, why) in [
        (
            "MSET a 1 z 1",
            "CROSSSLOT the keys of the request are in different groups (--groups): 'a' in group 1, 'z'",
        ),
        ("MGET k0 k3", "CROSSSLOT "),
        ("DEL k0 k3 k6", "CROSSSLOT "),
        ("WATCH a z", "CROSSSLOT "),
        ("QUORATE BACKUP BEGIN", "ERR QUORATE BACKUP is about all keys at one moment"),
        ("CONFIG SET max-data 1gb", "ERR max-data bounds one group's data"),
        ("CLIENT READMODE sequential", "ERR groups (--groups) have no order in common"),
        ("QUORATE BACKUP BEGIN LOCAL", "ERR QUORATE BACKUP is about all keys at one moment"),
        ("QUORATE TRANSFER 1 GROUP 1", "ERR this protocol does not let its leader be chosen"),
        (
            "QUORATE MEMBER REMOVE 1",
            "ERR one of the groups (--groups) has a protocol that does not change its",
        ),
        ("QUORATE ROSTER SHOW", "ERR the rosters of several groups"),
    ] {
        let Resp::Error(said) = call(line) else { panic!("{line} was not refused") };
        assert!(said.starts_with(why), "{line}: {said}");
    }
    // The feature level is the first group's, which has the users.
    let level = [&b"feature-level"[..], b"3"].map(|word| Resp::Bulk(word.to_vec()));
    assert_eq!(call("CONFIG GET feature-level"), Resp::Array(level.into()));
    assert_eq!(call("CONFIG SET feature-level 3"), ok());
    assert_eq!(call("ACL SETUSER ann (~a)"), ok());
    // What was refused is no one's to wait for.
    call("UNWATCH");
    assert_eq!(call("MULTI"), ok());
    assert_eq!(call("SET a 2"), Resp::Simple("QUEUED".into()));
    assert_eq!(call("SET z 2"), Resp::Simple("QUEUED".into()));
    let Resp::Error(said) = call("EXEC") else { panic!("a transaction of two groups was executed") };
    assert!(said.starts_with("CROSSSLOT "), "{said}");
    assert_eq!(call("MULTI"), ok());
    assert_eq!(call("DBSIZE"), Resp::Simple("QUEUED".into()));
    let Resp::Error(said) = call("EXEC") else { panic!("a transaction of all groups was executed") };
    assert!(said.starts_with("ERR EXEC is about all keys at one moment"), "{said}");
    assert_eq!(call("WATCH k3"), ok());
    assert_eq!(call("MULTI"), ok());
    assert_eq!(call("SET k4 2"), Resp::Simple("QUEUED".into()));
    assert_eq!(call("EXEC"), Resp::Array(vec![ok()]));
    assert_eq!(call("GET z"), Resp::Bulk(b"x".to_vec()));
    // Users are of the first group, whatever keys they may use.
    assert_eq!(call("ACL SETUSER ann on nopass ~* +@all"), ok());
    assert_eq!(call("ACL WHOAMI"), Resp::Bulk(b"default".to_vec()));
}

/// What all calls of SCAN return, until the cursor is 0 again.
fn scan(connection: &mut Connection, options: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut cursor, mut found) = (b"0".to_vec(), Vec::new());
    loop {
        let reply = connection.call(&[&[b"SCAN", &cursor[..]], options].concat()).unwrap();
        let Resp::Array(reply) = &reply else { panic!("a scan was refused: {reply:?}") };
        let [Resp::Bulk(next), Resp::Array(keys)] = &reply[..] else {
            panic!("{reply:?} is no scan's reply")
        };
        found.extend(keys.iter().map(|key| match key {
            Resp::Bulk(key) => key.clone(),
            other => panic!("{other:?} is no key"),
        }));
        if next == b"0" {
            found.sort();
            return found;
        }
        cursor.clone_from(next);
    }
}

#[test]
fn all_keys_are_scanned_counted_chosen_from_and_removed_whichever_groups_have_them() {
    let cluster = Cluster::start_with(3, "multipaxos", FIVE);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let mut connection = Connection::open(&cluster.nodes[1].resp).unwrap();
    let mut all: Vec<_> = (0..700).map(|number| format!("k{number}").into_bytes()).collect();
    for key in &all {
        assert_eq!(connection.call(&[b"SET", key, b"x"]).unwrap(), ok());
    }
    all.extend(KEYS.map(<[u8]>::to_vec));
    all.sort();
    for mode in [&b"linearizable"[..], b"local"] {
        assert_eq!(connection.call(&[b"CLIENT", b"READMODE", mode]).unwrap(), ok());
        // A node that does not lead may execute the last of them a moment later.
        wait_for("the node to show all keys", || {
            (connection.call(&[b"DBSIZE"]).ok()? == Resp::Integer(all.len() as i64)).then_some(())
        });
        for count in [&b"1"[..], b"10", b"1000"] {
            assert_eq!(scan(&mut connection, &[b"COUNT", count]), all, "{count:?}");
        }
        let found = connection.call(&[b"KEYS", b"k?9"]).unwrap();
        assert!(matches!(&found, Resp::Array(keys) if keys.len() == 9), "k19 to k99: {found:?}");
        let chosen = connection.call(&[b"RANDOMKEY"]).unwrap();
        assert!(matches!(&chosen, Resp::Bulk(key) if all.contains(key)), "{chosen:?}");
    }
    assert_eq!(connection.call(&[b"CLIENT", b"READMODE", b"linearizable"]).unwrap(), ok());
    // What comes behind it on the connection finds no key of any group.
    connection.send(b"FLUSHALL\r\nGET k1\r\nGET k4\r\nGET k6\r\nDBSIZE\r\nRANDOMKEY\r\n").unwrap();
    let replies = [(); 6].map(|()| connection.reply().unwrap());
    assert_eq!(replies, [ok(), Resp::Nil, Resp::Nil, Resp::Nil, Resp::Integer(0), Resp::Nil]);
    assert!(scan(&mut connection, &[]).is_empty());
}

/// The lines of what all groups have, as an export of a cluster has them.
fn exported(node: &Node, flags: &[&str]) -> Vec<String> {
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args([&["export", "--endpoints", &node.resp], flags].concat())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut lines: Vec<_> = String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn an_export_has_the_keys_of_all_groups_and_another_cluster_can_import_it() {
    let cluster = Cluster::start_with(3, "multipaxos", FIVE);
    cluster.nodes.iter().for_each(wait_for_all_groups);
    let mut connection = Connection::open(&cluster.nodes[2].resp).unwrap();
    let mut call = |words: &[&[u8]]| connection.call(words).unwrap();
    assert_eq!(call(&[b"SET", b"\xff\r\n", b"\x00", b"PXAT", b"4000000000000"]), ok());
    // More fields than a transaction reads.
    let fields: Vec<_> = (0..12_000).map(|field| field.to_string().into_bytes()).collect();
    for part in fields.chunks(4_000) {
        let pairs = part.iter().flat_map(|field| [&field[..], b"v"]);
        let words: Vec<&[u8]> = [&b"HSET"[..], b"k4"].into_iter().chain(pairs).collect();
        assert_eq!(call(&words), Resp::Integer(part.len() as i64));
    }
    assert_eq!(call(&[b"HSET", b"k0h", b"f", b""]), Resp::Integer(1));
    assert_eq!(call(&[b"PEXPIREAT", b"k0h", b"4000000000001"]), Resp::Integer(1));
    let lines = exported(&cluster.nodes[0], &[]);
    assert_eq!(lines.len(), KEYS.len() + 3);
    let said = lines.join("\n");
    for line in [
        r#"{"key":{"hex":"ff0d0a"},"type":"string","value":"\u0000","expires_ms":4000000000000}"#,
        r#"{"key":"k0h","type":"hash","value":[["f",""]],"expires_ms":4000000000001}"#,
        r#"{"key":"k3.","type":"string","value":"x"}"#,
    ] {
        assert!(said.contains(line), "{line} is not in {said:.2000}");
    }
    wait_for("another node to have executed all of it", || {
        (exported(&cluster.nodes[1], &["--local"]) == lines).then_some(())
    });

    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["backup", "--out", "no.backup", "--endpoints", &cluster.nodes[0].resp])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && said.contains("`quorate export` writes the keys of all groups"),
        "{said}"
    );

    let other = Cluster::start_with(1, "raft", &[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["import", file.path().to_str().unwrap(), "--endpoints", &other.nodes[0].resp])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(exported(&other.nodes[0], &[]), lines);
}

/// EPaxos orders what interferes, Hermes what has one key.
#[test]
fn all_groups_must_be_able_to_execute_what_is_about_all_keys() {
    let cluster = Cluster::start_with(3, "multipaxos", &["--groups", "a-m=raft,n-z=epaxos"]);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    wait_for("both groups to serve", || {
        (connection.call(&[b"DBSIZE"]).ok()? == Resp::Integer(0)).then_some(())
    });
    for key in [&b"a"[..], b"b", b"z"] {
        assert_eq!(connection.call(&[b"SET", key, b"x"]).unwrap(), ok());
    }
    assert_eq!(scan(&mut connection, &[]), [&b"a"[..], b"b", b"z"]);

    let cluster = Cluster::start_with(3, "multipaxos", &["--groups", "a-m=raft,n-z=hermes"]);
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    for line in [&[&b"SCAN"[..], b"0"][..], &[b"DBSIZE"], &[b"KEYS", b"*"], &[b"FLUSHALL"]] {
        let said = connection.call(line).unwrap();
        let Resp::Error(said) = said else { panic!("{line:?} was not refused: {said:?}") };
        assert!(
            said.contains("is not about one key, and hermes executes commands on one key only"),
            "{said}"
        );
    }
}

#[test]
fn groups_that_cannot_be_and_directories_of_other_groups_are_refused() {
    for (flags, why) in [
        (&["--groups", "0"][..], "--groups: 0 groups: there may be 1 to 64"),
        (&["--groups", "65"], "--groups: 65 groups: there may be 1 to 64"),
        (&["--groups", "3", "--group-keys", "m"], "1 keys, but 3 groups are split at 2"),
        (&["--groups", "3", "--group-keys", "m,m"], "split key `m` does not come after `m`"),
        (&["--groups", "3", "--group-keys", "m,c"], "write the keys in ascending order"),
        (&["--groups", "a-m=paxos,n-z=raft"], "--groups: unknown protocol `paxos`; known here: "),
        (&["--group-keys", "m"], "--group-keys needs --groups"),
        (&["--groups", "2", "--read-mode", "sequential"], "choose linearizable or local"),
        (&["--groups", "2", "--set", "no.such=1"], "unknown setting `no.such`"),
    ] {
        let mut cluster = Cluster::prepare(1, "unreplicated", flags);
        let (code, said) = cluster.nodes[0].run_to_end();
        assert!(code == Some(2) && said.contains(why), "{flags:?}: {code:?}: {said}");
    }
    let mut cluster = Cluster::start_with(1, "unreplicated", &["--groups", "2", "--group-keys", "m"]);
    cluster.nodes[0].wait_until_serving();
    assert!(cluster.nodes[0].terminate().success());
    for keys in ["n", "k"] {
        cluster.nodes[0].set("--group-keys", keys);
        let (code, said) = cluster.nodes[0].run_to_end();
        let parts = ["unreplicated in 2 groups split at m", "choose a new --data-dir"];
        assert!(code == Some(2) && parts.iter().all(|part| said.contains(part)), "{code:?}: {said}");
    }
    let with_groups = cluster.nodes[0].args.len();
    cluster.nodes[0].args.truncate(with_groups - 4);
    let (code, said) = cluster.nodes[0].run_to_end();
    assert!(code == Some(2) && said.contains("unreplicated in 2 groups split at m"), "{code:?}: {said}");
}
