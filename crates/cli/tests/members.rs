//! A group of real processes that changes under load, and one that is restarted node by node: nobody notices.

#[path = "support/load.rs"]
mod load;
mod support;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use load::Load;
use quorate_client::{Client, Value};
use support::{Cluster, Node, PATIENCE, wait_for};

/// Runs a command of the command line against some nodes: what it prints.
fn quorate(cluster: &Cluster, nodes: &[usize], words: &[&str]) -> String {
    attempt(cluster, nodes, words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The same; the error is what it says of its failure.
fn attempt(cluster: &Cluster, nodes: &[usize], words: &[&str]) -> Result<String, String> {
    let endpoints: Vec<_> = nodes.iter().map(|index| cluster.nodes[*index].resp.clone()).collect();
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(words)
        .args(["--endpoints", &endpoints.join(",")])
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if run.status.success() { Ok(text(&run.stdout)) } else { Err(text(&run.stderr)) }
}

/// The ids that a node lists as voters.
fn voters(cluster: &Cluster, node: usize) -> Vec<u64> {
    let list = quorate(cluster, &[node], &["member", "list", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let members = list["members"].as_array().unwrap().iter();
    members.filter(|member| member["voter"] == true).map(|member| member["id"].as_u64().unwrap()).collect()
}

/// Lets this node lead, asked of another.
fn transfer(cluster: &Cluster, asked: usize, id: &str) {
    // The leader has to have heard of it since it was started; asked before it may vote for itself, it may lose against
    // another.
    wait_for("a transfer", || match attempt(cluster, &[asked], &["transfer", id]) {
        Ok(_) => Some(()),
        Err(error) => {
            let told = ["nobody is there to take over", "was asked to take over and has not"];
            assert!(told.iter().any(|words| error.contains(words)), "{error}");
            None
        }
    });
}

#[test]
fn a_group_of_raft_grows_and_shrinks_under_load_until_every_old_member_is_replaced() {
    replace_every_member("raft");
}

#[test]
fn a_group_of_multipaxos_grows_and_shrinks_under_load_until_every_old_member_is_replaced() {
    replace_every_member("multipaxos");
}

fn replace_every_member(protocol: &str) {
    let mut cluster = Cluster::start(3, protocol);
    let joining = [cluster.join(), cluster.join(), cluster.join()];
    let resps: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    // Each begins at another node, and finds those that stay.
    let mut proxy = cluster.proxy("proxy", protocol, cluster.members(), &[]);
    let each = (0..9).map(|id| (0..6).map(|at| resps[(id + at) % 6].clone()).collect());
    let load = Load::start(each.chain([vec![proxy.resp.clone()]]));
    load.progress(300);

    let added = [format!("4={}", joining[0]), format!("5={}", joining[1])];
    quorate(&cluster, &[0, 1, 2], &["member", "add", &added[0], &added[1]]);
    assert_eq!(voters(&cluster, 3), [1, 2, 3, 4, 5]);
    load.progress(200);

    // The leader among those who leave.
    let added = format!("6={}", joining[2]);
    quorate(&cluster, &[1, 3, 4], &["member", "add", &added, "--remove", "1"]);
    load.progress(200);
    quorate(&cluster, &[3, 4, 5], &["member", "remove", "2", "3"]);
    // The answer may have been lost: it is done.
    quorate(&cluster, &[3, 4, 5], &["member", "remove", "2", "3"]);
    load.progress(200);
    for node in 3..6 {
        assert_eq!(voters(&cluster, node), [4, 5, 6]);
    }
    for node in &mut cluster.nodes[..3] {
        node.wait_for_line(&["no member of the group any more"]);
    }
    // What they know of users is old, and so is a proxy's, which has no state: both wait for none of their own.
    let client = |node: &Node| Client::connect([node.resp.as_str()], Duration::from_secs(10)).unwrap();
    for node in [&cluster.nodes[0], &cluster.nodes[2], &proxy] {
        client(node).command(&["ACL", "SETUSER", "eve", "on", ">secret"]).unwrap();
        client(node).command(&["AUTH", "eve", "secret"]).unwrap();
        client(&cluster.nodes[3]).command(&["ACL", "DELUSER", "eve"]).unwrap();
        // A copy of what the group has told is good for a second.
        let is_refused = || client(node).command(&["AUTH", "eve", "secret"]).err();
        let refused = wait_for("the user to be gone", is_refused).to_string();
        assert!(refused.contains("WRONGPASS"), "{refused}");
    }
    // It left while 2 and 3 were members, and has heard no more: the others know better, and answer.
    let left = quorate(&cluster, &[0], &["member", "list"]);
    assert!(left.contains("Node 1, which was asked, has left the group"), "{left}");
    quorate(&cluster, &[0], &["member", "promote", "5"]);
    let stranger = attempt(&cluster, &[0], &["member", "promote", "2"]).unwrap_err();
    assert!(stranger.contains("node 2 is not in the group: its members are 4, 5, 6"), "{stranger}");
    for node in &mut cluster.nodes[..3] {
        let status = node.terminate();
        assert!(status.success(), "{status}");
    }
    load.progress(200);

    // Those who joined are members like others: killed, they come back with the same flags.
    cluster.nodes[3].kill();
    load.progress(100);
    cluster.nodes[3].start();
    cluster.nodes[3].wait_until_serving();
    transfer(&cluster, 4, "4");
    load.progress(100);
    // The proxy has followed the group. One that starts now is told who is there today.
    let status = quorate(&cluster, &[3], &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let cluster_id = status["nodes"][0]["facts"]["cluster_id"].as_str().unwrap();
    let today = format!("4={},5={},6={}", joining[0], joining[1], joining[2]);
    let late = cluster.proxy("late", protocol, &today, &["--cluster-id", cluster_id]);
    load.check(cluster.nodes[3..].iter().chain([&proxy, &late]));
    assert!(proxy.terminate().success());
}

/// Members tell proxies who ask them.
#[test]
fn a_proxy_without_clients_follows_the_group_until_all_whom_it_knew_are_gone() {
    let mut cluster = Cluster::start(1, "raft");
    let joining = cluster.join();
    let proxy = cluster.proxy("proxy", "raft", cluster.members(), &[]);
    let new = format!("2={joining}");
    quorate(&cluster, &[0], &["member", "add", &new, "--remove", "1"]);
    proxy.wait_for_line(&[&format!("the group is {new}")]);
    cluster.nodes[0].kill();
    let mut client = Client::connect([proxy.resp.as_str()], Duration::from_secs(10)).unwrap();
    client.put(b"k", b"v").unwrap();
}

#[test]
fn raft_refuses_a_member_that_is_not_there_and_adds_a_right_one_after_it() {
    refuse_absent_member("raft");
}

#[test]
fn multipaxos_refuses_a_member_that_is_not_there_and_adds_a_right_one_after_it() {
    refuse_absent_member("multipaxos");
}

fn refuse_absent_member(protocol: &str) {
    let mut cluster = Cluster::start(3, protocol);
    // A port that nobody listens at: it was free a moment ago.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let asked = Instant::now();
    let refusal = attempt(&cluster, &[0, 1, 2], &["member", "add", &format!("4={nobody}")]).unwrap_err();
    let took = asked.elapsed();
    // Its reason, and where: not that no majority answers.
    for words in ["node 4 cannot be reached at", &nobody.to_string(), "refused"] {
        assert!(refusal.contains(words), "{words}: {refusal}");
    }
    assert!(refusal.contains("nothing listens there; start node 4 with --join"), "{refusal}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    // Somebody is there, and it is another.
    let other = cluster.members().split(',').nth(1).unwrap().trim_start_matches("2=").to_owned();
    let refusal = attempt(&cluster, &[0], &["member", "add", &format!("4={other}")]).unwrap_err();
    assert!(refusal.contains("looks for node 4, and has found node 2"), "{refusal}");
    assert!(!refusal.contains("--join"), "{refusal}");

    let stranger = attempt(&cluster, &[0, 1, 2], &["member", "promote", "9"]).unwrap_err();
    assert!(stranger.contains("node 9 is not in the group: its members are 1, 2, 3"), "{stranger}");
    assert_eq!(quorate(&cluster, &[0, 1, 2], &["member", "remove", "9"]), "OK\n", "it is not in the group");
    assert_eq!(quorate(&cluster, &[0, 1, 2], &["member", "cancel"]), "OK\n", "nothing is under way");

    let fourth = cluster.join();
    assert_eq!(quorate(&cluster, &[0, 1, 2], &["member", "add", &format!("4={fourth}")]), "OK\n");
    assert_eq!(voters(&cluster, 0), [1, 2, 3, 4]);
    wait_for("node 4 to count", || (voters(&cluster, 3) == [1, 2, 3, 4]).then_some(()));
}

#[test]
fn a_rolling_restart_of_raft_loses_no_request() {
    restart_one_by_one("raft");
}

#[test]
fn a_rolling_restart_of_multipaxos_loses_no_request() {
    restart_one_by_one("multipaxos");
}

/// Its members cannot change, and its leader can.
#[test]
fn a_rolling_restart_of_zab_loses_no_request() {
    restart_one_by_one("zab");
}

#[test]
fn a_rolling_restart_of_a_chain_loses_no_request() {
    restart_one_by_one("chain");
}

/// A busy machine is not to make nodes far from each other: they would start again with longer timeouts, and then
/// clients do lose requests.
const NEAR: &[&str] = &["--set", "timeouts=1ms"];

fn restart_one_by_one(protocol: &str) {
    let mut cluster = Cluster::start_with(3, protocol, NEAR);
    let requests = Requests::start(&cluster);
    requests.progress();
    for _ in 0..2 {
        for index in 0..3 {
            stop(&mut cluster, index);
            requests.progress();
            cluster.nodes[index].start();
            cluster.nodes[index].wait_until_serving();
            requests.progress();
        }
        let next = (cluster.leader() + 1) % 3;
        transfer(&cluster, (next + 1) % 3, &(next + 1).to_string());
        requests.progress();
    }
    println!("{protocol}: six restarts, {}", requests.finish());
}

/// Has a node stop in order: everything under way is finished then.
fn stop(cluster: &mut Cluster, index: usize) {
    let status = cluster.nodes[index].terminate();
    assert!(status.success(), "{status}");
    let node = &cluster.nodes[index];
    assert_eq!(node.lines_with("could not be finished in time"), 0, "{}", node.said());
}

/// The program of version 0.1.0; `None` where its commit is not in this clone.
fn first_release() -> Option<PathBuf> {
    static SAID: LazyLock<String> = LazyLock::new(|| support::set_up("releases", &[]));
    // Before it is looked for: it may have to be built, or is being built.
    let said = &*SAID;
    let program = support::cache("QUORATE_RELEASES", "quorate-releases").join("v0.1.0/quorate");
    let there = program.exists();
    if !there {
        println!("not tried: {said}");
    }
    there.then_some(program)
}

/// As operators do it: who leads hands over, is stopped, and starts again as the new version, beside old ones.
#[test]
fn an_upgrade_from_an_earlier_version_loses_no_request() {
    let Some(old) = first_release() else { return };
    for protocol in ["multipaxos", "raft", "zab", "bodega", "crossword", "epaxos"] {
        let mut cluster = start_build(protocol, &old);
        let leaderless = protocol == "epaxos";
        let requests = Requests::start(&cluster);
        let load = Load::start((0..6).map(|id| addresses(&cluster, id)));
        let progress = || {
            requests.progress();
            load.progress(200);
        };
        progress();
        for index in 0..3 {
            if !leaderless && cluster.leader() == index {
                let next = (index + 1) % 3;
                transfer(&cluster, (next + 1) % 3, &(next + 1).to_string());
            }
            stop(&mut cluster, index);
            progress();
            cluster.nodes[index].start();
            cluster.nodes[index].wait_until_serving();
            progress();
            // Whoever does not know the level is named; with the last of them it can be raised.
            let raised = raise(&cluster, index);
            let old = (index + 2..=3).map(|id| format!("node {id} knows levels up to 1, upgrade it first"));
            let old = old.collect::<Vec<_>>().join("; ");
            match raised {
                Ok(()) => assert_eq!(index, 2, "{protocol}"),
                Err(why) => assert!(index < 2 && why.contains(&old), "{protocol}: {why}"),
            }
        }
        progress();
        println!("{protocol}: upgraded, {}", requests.finish());
        load.check(&cluster.nodes);
        stop(&mut cluster, 0);
        cluster.nodes[0].start_build(&old);
        assert_ne!(cluster.nodes[0].wait_for_end(), Some(0), "{protocol}: there is no way back");
        assert_eq!(cluster.nodes[0].lines_with("has format 4"), 1, "{}", cluster.nodes[0].said());
    }
}

/// Their messages have changed since: the two versions do not speak with each other, and say so.
#[test]
fn a_chain_of_an_earlier_version_is_upgraded_while_it_is_stopped() {
    let Some(old) = first_release() else { return };
    for protocol in ["chain", "craq"] {
        let mut cluster = start_build(protocol, &old);
        let mut client = Client::connect(addresses(&cluster, 0), PATIENCE).unwrap();
        client.command(&["SET", "k", "v"]).unwrap();
        stop(&mut cluster, 2);
        cluster.nodes[2].start();
        let mine =
            format!(" is {protocol}, that of node 3 is {protocol}, revision 2 of {protocol}'s messages");
        cluster.nodes[2].wait_for_line(&["refused node", "the protocol of node ", &mine]);
        client.command(&["APPEND", "k", "w"]).unwrap();
        for index in 0..3 {
            assert!(cluster.nodes[index].terminate().success());
        }
        cluster.nodes.iter_mut().for_each(|node| node.start());
        cluster.nodes.iter().for_each(|node| node.wait_until_serving());
        assert_eq!(client.command(&["GET", "k"]).unwrap(), Value::Bytes("vw".into()), "{protocol}");
    }
}

/// Three nodes of another build, which serve.
fn start_build(protocol: &str, program: &Path) -> Cluster {
    let mut cluster = Cluster::prepare(3, protocol, NEAR);
    cluster.nodes.iter_mut().for_each(|node| node.start_build(program));
    cluster.nodes.iter().for_each(|node| node.wait_until_serving());
    cluster
}

/// Has a node ask for feature level 2.
fn raise(cluster: &Cluster, index: usize) -> Result<(), String> {
    let mut client = Client::connect([&cluster.nodes[index].resp], Duration::from_secs(20)).unwrap();
    client.command(&["CONFIG", "SET", "feature-level", "2"]).map(drop).map_err(|error| error.to_string())
}

/// Where clients reach a cluster of three, from one of its nodes on.
fn addresses(cluster: &Cluster, first: usize) -> Vec<String> {
    (0..3).map(|at| cluster.nodes[(first + at) % 3].resp.clone()).collect()
}

/// Between two requests of a client: what is tested has the processors for itself most of the time.
fn pause() {
    thread::park_timeout(Duration::from_millis(1));
}

/// Clients that work all the time, and take a request that fails for lost.
struct Requests {
    stop: Arc<AtomicBool>,
    /// Writes that were answered.
    done: Arc<AtomicU64>,
    writers: Vec<JoinHandle<()>>,
    /// Each gives how long its longest read took.
    readers: Vec<JoinHandle<Duration>>,
}

impl Requests {
    fn start(cluster: &Cluster) -> Requests {
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        // Each begins at another node.
        let connect = |first| Client::connect(addresses(cluster, first), Duration::from_secs(20)).unwrap();
        let writers = (0..6)
            .map(|id| {
                let (mut client, stop, done) = (connect(id), stop.clone(), done.clone());
                thread::spawn(move || {
                    let key = format!("counter-{id}");
                    for count in 1.. {
                        // Sent at most once: whatever goes wrong is a lost request.
                        match client.command(&["INCR", &key]) {
                            Ok(Value::Integer(found)) => assert_eq!(found, count, "each is executed once"),
                            other => panic!("lost: {other:?}"),
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                        pause();
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                })
            })
            .collect();
        let readers = (0..3)
            .map(|id| {
                let (mut client, stop) = (connect(id), stop.clone());
                thread::spawn(move || {
                    let mut longest = Duration::ZERO;
                    while !stop.load(Ordering::Relaxed) {
                        let asked = Instant::now();
                        match client.command(&["GET", "counter-0"]) {
                            Ok(Value::Bytes(_) | Value::Nil) => {}
                            other => panic!("lost: {other:?}"),
                        }
                        longest = longest.max(asked.elapsed());
                        pause();
                    }
                    longest
                })
            })
            .collect();
        Requests { stop, done, writers, readers }
    }

    /// Waits until 500 more writes are answered.
    fn progress(&self) {
        let target = self.done.load(Ordering::Relaxed) + 500;
        wait_for("writes", || (self.done.load(Ordering::Relaxed) >= target).then_some(()));
    }

    /// Ends them, and says how much they have done. No request was lost.
    fn finish(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.into_iter().for_each(|writer| writer.join().unwrap());
        let longest: Vec<_> = self.readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        let writes = self.done.load(Ordering::Relaxed);
        format!("{writes} writes; the longest reads of three clients took {longest:.1?}")
    }
}
