//! Bodega on real processes at the five sites of `--topology geo`: whoever is killed and whatever the roster, what
//! clients at all sites see is linearizable, and healthy responders go on answering reads while another crashes.

#[path = "support/load.rs"]
mod load;
mod support;

use std::process::Command;
use std::time::Duration;

use load::{Load, Reader};
use quorate_core::Topology;
use quorate_protocols::registry::named;
use quorate_protocols::wide_area;
use serde_json::Value;
use support::{Cluster, Connection, Resp, wait_for};

/// Issue 5: how long a healthy responder's reader may be without an answer while another responder crashes. The way to
/// the leader and back is nearly as long, and everything that Bodega waits for much longer.
const GAP: Duration = Duration::from_millis(100);

const LEADER: usize = 1;

fn start() -> Cluster {
    let geo = Topology::named("geo").unwrap();
    let mut settings = wide_area::settings(&geo, named("bodega"), geo.sites().len());
    // Whoever reads from afar in a closed loop is to be noticed soon, too.
    settings.extend(["coverage.period=500ms", "coverage.least=2"].map(str::to_owned));
    let cluster = Cluster::start_each(geo.sites().len(), "bodega", |index| {
        let words = ["--topology", "geo", "--site", &geo.sites()[index], "--durability", "os"];
        let set = settings.iter().flat_map(|setting| ["--set", setting]);
        words.into_iter().chain(set).map(str::to_owned).collect()
    });
    lead(&cluster, LEADER);
    cluster
}

/// Runs a command of the command line at one node.
fn quorate(cluster: &Cluster, node: usize, words: &[&str]) -> Result<String, String> {
    let run = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(words)
        .args(["--endpoints", &cluster.nodes[node].resp])
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if run.status.success() { Ok(text(&run.stdout)) } else { Err(text(&run.stderr)) }
}

fn lead(cluster: &Cluster, node: usize) {
    let id = (node + 1).to_string();
    wait_for("a leader where it is wanted", || {
        // Refused while that node has not been heard, or waits for the end of old promises.
        let _ = quorate(cluster, node, &["transfer", &id]);
        (cluster.leader() == node).then_some(())
    });
}

fn status(cluster: &Cluster, node: usize) -> Option<Value> {
    let reply = Connection::open(&cluster.nodes[node].resp).ok()?.call(&[b"QUORATE", b"STATUS"]).ok()?;
    let Resp::Bulk(json) = reply else { return None };
    serde_json::from_slice(&json).ok()
}

fn sample(cluster: &Cluster, node: usize, name: &str) -> u64 {
    let status = status(cluster, node).expect("it runs");
    status["samples"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
}

/// Until a node may answer reads by itself.
fn wait_until_local(cluster: &Cluster, node: usize) {
    wait_for("local reads", || status(cluster, node)?["lease"].as_bool().filter(|local| *local).map(drop));
}

fn roster(cluster: &Cluster) -> Value {
    serde_json::from_str(&quorate(cluster, 0, &["roster", "show", "--json"]).unwrap()).unwrap()
}

/// Who answers reads of a key, by a roster; beside the leader.
fn responders(roster: &Value, key: &str) -> Vec<u64> {
    let ranges = roster["ranges"].as_array().unwrap().iter();
    let covers = |range: &&Value| {
        range["from"].as_str().unwrap() <= key && range["to"].as_str().is_none_or(|to| key < to)
    };
    let found = ranges.filter(covers).flat_map(|range| range["responders"].as_array().unwrap());
    found.map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn bodega_across_sites_stays_linearizable_and_local_whatever_is_killed() {
    let mut cluster = start();
    let nodes = || 0..5;
    nodes().for_each(|node| wait_until_local(&cluster, node));
    let resps: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    let home = |node: usize| format!("home-{}", node + 1);
    // Clients at each site; when theirs is gone they go to the next.
    let load = Load::start((0..10).map(|id| (0..5).map(|at| resps[(id + at) % 5].clone()).collect()));
    // And some that read, each a key of its site that is written between the calamities only: reads of others are held,
    // while a write waits for the end of a dead responder's leases.
    let readers: Vec<Reader> = nodes().map(|node| load.read(&resps[node], &home(node))).collect();
    let write =
        |node: usize, value: &str| nodes().for_each(|home_of| load.set(&resps[node], &home(home_of), value));
    write(LEADER, "0");
    let pauses = |of: &[usize]| of.iter().map(|node| readers[*node].longest_pause()).max().unwrap();
    load.progress(100);

    let (dead, healthy) = (4, [0, 2, 3]);
    pauses(&healthy);
    load.progress(200);
    // What the machine does to readers when nothing happens.
    let noise = pauses(&healthy);
    let local = |cluster: &Cluster| healthy.map(|node| sample(cluster, node, "reads_local_total"));
    let before = local(&cluster);
    cluster.nodes[dead].kill();
    wait_for("the dead responder to be excluded", || {
        (sample(&cluster, LEADER, "responders_excluded") == 1).then_some(())
    });
    load.progress(200);
    let gap = pauses(&healthy);
    println!("a responder was killed: the others' readers waited {gap:.1?} at most, and {noise:.1?} before");
    assert!(gap < GAP + noise, "{gap:?}, and {noise:?} without a crash");
    assert!(
        local(&cluster).iter().zip(before).all(|(now, before)| *now > before + 100),
        "they are no local reads"
    );
    write(0, "1");
    cluster.nodes[dead].start();
    cluster.nodes[dead].wait_until_serving();
    wait_until_local(&cluster, dead);
    load.progress(100);
    write(dead, "2");

    cluster.nodes[LEADER].kill();
    load.progress(100);
    let leads = cluster.leader();
    assert_ne!(leads, LEADER);
    cluster.nodes[LEADER].start();
    cluster.nodes[LEADER].wait_until_serving();
    load.progress(100);
    write(LEADER, "3");

    // By an operator: EU and CA, of these keys only.
    let before = sample(&cluster, leads, "roster_changes_total");
    assert_eq!(quorate(&cluster, 2, &["roster", "set", "home-*=1,4"]).unwrap(), "OK\n");
    let set = roster(&cluster);
    assert_eq!((responders(&set, "home-1"), responders(&set, "k1")), (vec![1, 4], vec![]), "{set}");
    assert!(sample(&cluster, leads, "roster_changes_total") > before);
    load.progress(100);
    write(0, "4");

    // By what is read where: each site reads a key of its own, and the leader needs no roster for its.
    assert_eq!(quorate(&cluster, 2, &["roster", "auto", "on"]).unwrap(), "OK\n");
    let found = wait_for("a roster that follows the readers", || {
        let found = roster(&cluster);
        let own = |node: usize| responders(&found, &home(node)) == [node as u64 + 1];
        [0, 2, 3].into_iter().filter(|node| *node != leads).all(own).then_some(found)
    });
    println!("found by itself: {}", found["ranges"]);
    load.progress(100);
    write(2, "5");

    // Everywhere again, also for the checks to come.
    assert_eq!(quorate(&cluster, 0, &["roster", "set", "1,2,3,4,5"]).unwrap(), "OK\n");
    nodes().for_each(|node| wait_until_local(&cluster, node));
    load.check(&cluster.nodes);
}
