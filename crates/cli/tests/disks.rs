//! Nodes that lose their disks, or get old ones back: they must not vote, nothing acknowledged is lost, and the
//! documented replacement brings the group back to full strength.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Cluster, Connection, Resp, wait_for};

/// Sets a key through any of these nodes, as often as it takes.
fn put(cluster: &Cluster, nodes: &[usize], key: &str, value: &str) {
    wait_for("a write to be acknowledged", || {
        nodes.iter().find_map(|node| {
            let mut connection = Connection::open(&cluster.nodes[*node].resp).ok()?;
            let reply = connection.call(&[b"SET", key.as_bytes(), value.as_bytes()]);
            (reply.ok()? == Resp::Simple("OK".to_owned())).then_some(())
        })
    });
}

/// Reads a key at a node until it is answered, and there must be this value.
fn expect(cluster: &Cluster, node: usize, key: &str, value: &str) {
    let found = wait_for("a read to be answered", || {
        let mut connection = Connection::open(&cluster.nodes[node].resp).ok()?;
        match connection.call(&[b"GET", key.as_bytes()]).ok()? {
            Resp::Error(_) => None,
            reply => Some(reply),
        }
    });
    assert_eq!(found, Resp::Bulk(value.as_bytes().to_vec()), "{key} at node {}", node + 1);
}

/// Runs a command of the command line against some nodes.
fn quorate(cluster: &Cluster, nodes: &[usize], words: &[&str]) {
    let endpoints: Vec<_> = nodes.iter().map(|node| cluster.nodes[*node].resp.clone()).collect();
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(words)
        .args(["--endpoints", &endpoints.join(",")])
        .output()
        .unwrap();
    assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
}

fn empty(directory: &Path) {
    fs::remove_dir_all(directory).unwrap();
    fs::create_dir(directory).unwrap();
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Node 1 is down while `acked` is acknowledged by 2 and 3; then both are killed.
fn acknowledge_without_node_1(cluster: &mut Cluster) {
    cluster.nodes[0].kill();
    put(cluster, &[1, 2], "acked", "yes");
    cluster.nodes[1].kill();
    cluster.nodes[2].kill();
}

/// Nodes 1 and 3 are started: node 3 stops by itself, with these words.
fn node_3_is_refused(cluster: &mut Cluster, words: &[&str]) {
    cluster.nodes[0].start();
    let (code, said) = cluster.nodes[2].run_to_end();
    assert_eq!(code, Some(1), "{said}");
    for words in words {
        assert!(said.contains(words), "{words}: {said}");
    }
}

fn lose_a_disk(protocol: &str, advice: &str) -> Cluster {
    let mut cluster = Cluster::start(3, protocol);
    put(&cluster, &[0], "early", "yes");
    acknowledge_without_node_1(&mut cluster);
    empty(&cluster.nodes[2].data.clone());
    node_3_is_refused(&mut cluster, &["node 3 took part with another data directory", advice]);
    cluster.nodes[1].start();
    for node in [0, 1] {
        expect(&cluster, node, "acked", "yes");
    }
    cluster
}

fn replace_by_another_node(protocol: &str) {
    let mut cluster = lose_a_disk(protocol, "`quorate member add 4=HOST:PORT --remove 3`");
    let address = cluster.join();
    quorate(&cluster, &[0, 1], &["member", "add", &format!("4={address}"), "--remove", "3"]);
    expect(&cluster, 3, "acked", "yes");
    // Full strength: any of the others may fail.
    cluster.nodes[0].kill();
    put(&cluster, &[1, 3], "late", "yes");
    expect(&cluster, 3, "late", "yes");
    // The lost directory turns up again, empty still: it is not wanted any more.
    let (code, said) = cluster.nodes[2].run_to_end();
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn a_wiped_disk_of_multipaxos_does_not_vote_and_its_member_is_replaced() {
    replace_by_another_node("multipaxos");
}

#[test]
fn a_wiped_disk_of_raft_does_not_vote_and_its_member_is_replaced() {
    replace_by_another_node("raft");
}

#[test]
fn a_wiped_disk_of_bodega_does_not_vote_and_its_member_is_replaced() {
    replace_by_another_node("bodega");
}

fn replace_in_place(protocol: &str) {
    let mut cluster = lose_a_disk(protocol, "start node 3 once with --replace-disk");
    let lost = cluster.nodes[2].data.clone();
    empty(&lost);
    cluster.nodes[2].args.push("--replace-disk".to_owned());
    cluster.nodes[2].start();
    cluster.nodes[2].wait_until_whole();
    expect(&cluster, 2, "acked", "yes");
    // Full strength: any of the others may fail. The flag may stay, and may go.
    cluster.nodes[0].kill();
    put(&cluster, &[1, 2], "late", "yes");
    cluster.nodes[2].kill();
    cluster.nodes[2].args.pop();
    cluster.nodes[2].start();
    expect(&cluster, 2, "late", "yes");
    // What was acknowledged before the loss is on the new disk.
    cluster.nodes[1].kill();
    cluster.nodes[0].start();
    expect(&cluster, 2, "acked", "yes");
}

#[test]
fn a_wiped_disk_of_epaxos_does_not_vote_and_its_disk_is_replaced() {
    replace_in_place("epaxos");
}

#[test]
fn a_wiped_disk_of_zab_does_not_vote_and_its_disk_is_replaced() {
    replace_in_place("zab");
}

#[test]
fn a_wiped_disk_of_a_chain_does_not_vote_and_its_disk_is_replaced() {
    replace_in_place("chain");
}

#[test]
fn a_wiped_disk_of_hermes_does_not_vote_and_its_disk_is_replaced() {
    replace_in_place("hermes");
}

/// Node 3 starts once more, with an empty directory that is to replace its own. That is kept in this place.
fn start_to_replace(cluster: &mut Cluster) -> PathBuf {
    let node = &mut cluster.nodes[2];
    let kept = node.data.with_extension("kept");
    fs::rename(&node.data, &kept).unwrap();
    fs::create_dir(&node.data).unwrap();
    node.args.push("--replace-disk".to_owned());
    node.start();
    kept
}

/// Node 3 has the directory again that was kept.
fn put_back(cluster: &mut Cluster, kept: &Path) {
    let node = &mut cluster.nodes[2];
    node.kill();
    node.args.pop();
    fs::remove_dir_all(&node.data).unwrap();
    fs::rename(kept, &node.data).unwrap();
}

#[test]
fn a_disk_of_epaxos_that_was_to_be_replaced_while_another_is_gone_comes_back() {
    let mut cluster = Cluster::start(3, "epaxos");
    put(&cluster, &[0], "early", "yes");
    cluster.nodes[0].kill();
    put(&cluster, &[1, 2], "acked", "yes");
    cluster.nodes[2].kill();
    let kept = start_to_replace(&mut cluster);
    cluster.nodes[2].wait_for_line(&["node 1 must run and connect", "Nothing has been replaced yet"]);
    put_back(&mut cluster, &kept);
    cluster.nodes[2].start();
    for node in [1, 2] {
        expect(&cluster, node, "early", "yes");
        expect(&cluster, node, "acked", "yes");
    }
    put(&cluster, &[1, 2], "late", "yes");
    // With all others there it is replaced, and then it is not wanted any more.
    cluster.nodes[0].start();
    expect(&cluster, 0, "late", "yes");
    cluster.nodes[2].kill();
    let kept = start_to_replace(&mut cluster);
    cluster.nodes[2].wait_until_whole();
    expect(&cluster, 2, "late", "yes");
    put_back(&mut cluster, &kept);
    let (code, said) = cluster.nodes[2].run_to_end();
    assert!(
        code == Some(1) && said.contains("another data directory has taken the place"),
        "{code:?}: {said}"
    );
}

#[test]
fn a_protocol_that_cannot_replace_a_disk_says_what_to_do_instead() {
    let mut cluster = Cluster::prepare(3, "multipaxos", &["--replace-disk"]);
    let (code, said) = cluster.nodes[0].run_to_end();
    assert!(code == Some(2) && said.contains("member add ID=HOST:PORT --remove ID"), "{code:?}: {said}");
}

fn roll_back_a_disk(protocol: &str) {
    let mut cluster = Cluster::start(3, protocol);
    cluster.nodes[2].kill();
    let data = cluster.nodes[2].data.clone();
    let (old, last) = (data.with_extension("old"), data.with_extension("last"));
    copy(&data, &old);
    let met = "node 3 has connected";
    let before = [0, 1].map(|node: usize| cluster.nodes[node].lines_with(met));
    cluster.nodes[2].start();
    cluster.nodes[2].wait_until_serving();
    wait_for("both others to meet node 3", || {
        [0, 1].iter().all(|node| cluster.nodes[*node].lines_with(met) > before[*node]).then_some(())
    });
    acknowledge_without_node_1(&mut cluster);
    copy(&data, &last);
    copy(&old, &data);
    node_3_is_refused(&mut cluster, &["there are two copies of the data directory of node 3"]);
    cluster.nodes[1].start();
    for node in [0, 1] {
        expect(&cluster, node, "acked", "yes");
    }
    // It remembers that it was refused, without asking again.
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    assert_eq!(cluster.nodes[2].run_to_end().0, Some(1));
    // The directory as it was last is as good as ever; nobody else needs to be there for it.
    copy(&last, &data);
    cluster.nodes[2].start();
    cluster.nodes[0].start();
    expect(&cluster, 2, "acked", "yes");
}

#[test]
fn a_rolled_back_disk_of_multipaxos_does_not_vote() {
    roll_back_a_disk("multipaxos");
}

#[test]
fn a_rolled_back_disk_of_raft_does_not_vote() {
    roll_back_a_disk("raft");
}

#[test]
fn a_rolled_back_disk_of_bodega_does_not_vote() {
    roll_back_a_disk("bodega");
}

#[test]
fn a_rolled_back_disk_of_epaxos_does_not_vote() {
    roll_back_a_disk("epaxos");
}

/// The fact of this name, as a node tells it.
fn status(cluster: &Cluster, node: usize) -> Option<serde_json::Value> {
    let mut connection = Connection::open(&cluster.nodes[node].resp).ok()?;
    let Ok(Resp::Bulk(json)) = connection.call(&[b"QUORATE", b"STATUS"]) else { return None };
    serde_json::from_slice(&json).ok()
}

#[test]
fn on_the_first_day_a_node_says_for_whom_it_waits_and_later_it_waits_for_nobody() {
    let mut cluster = Cluster::prepare(3, "multipaxos", &[]);
    cluster.nodes[0].start();
    let line = cluster.nodes[0].wait_for_line(&["does not take part yet"]);
    assert!(line.contains("it waits for nodes 2, 3: 2 more must confirm"), "{line}");
    cluster.nodes[1].start();
    let line = cluster.nodes[0].wait_for_line(&["it waits for node 3: 1 more must confirm"]);
    assert!(line.contains("node 1 does not take part yet"), "{line}");
    let found = wait_for("a status", || status(&cluster, 0));
    assert_eq!(found["role"], "waiting");
    assert!(found["facts"]["waiting"].as_str().unwrap().contains("waits for node 3"), "{found}");
    cluster.nodes[2].start();
    cluster.nodes.iter().for_each(|node| node.wait_until_serving());
    cluster.nodes.iter_mut().for_each(|node| node.kill());
    let before = cluster.nodes[0].lines_with("does not take part yet");
    cluster.nodes[0].start();
    let found = wait_for("a status", || status(&cluster, 0));
    assert_ne!(found["role"], "waiting");
    cluster.nodes[1].start();
    cluster.nodes[1].wait_until_serving();
    assert_eq!(cluster.nodes[0].lines_with("does not take part yet"), before);
}
