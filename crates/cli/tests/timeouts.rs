//! Nodes far apart choose their timeouts by themselves: nobody says anything but where each node is.

mod support;

use std::process::Command;

use quorate_core::Topology;
use support::{Cluster, Connection, Node, Resp, wait_for};

/// A fact of a node's status.
fn fact(node: &Node, name: &str) -> Option<String> {
    Some(node.status()?["facts"][name].as_str()?.to_owned())
}

fn is_for(node: &Node, round_trips: &str) -> bool {
    fact(node, "timeouts").is_some_and(|timeouts| timeouts.contains(round_trips))
}

#[test]
fn five_sites_up_to_221_ms_apart_serve_without_a_setting() {
    let geo = Topology::named("geo").unwrap();
    for protocol in ["multipaxos", "raft"] {
        let mut cluster = Cluster::prepare_each(5, protocol, |index| {
            let site = &geo.sites()[index];
            ["--topology", "geo", "--site", site, "--durability", "os"].map(str::to_owned).to_vec()
        });
        cluster.nodes.iter_mut().for_each(Node::start);
        for node in &cluster.nodes {
            wait_for("longer timeouts", || is_for(node, "up to 240ms, measured").then_some(()));
            let settings = fact(node, "settings").unwrap();
            assert!(settings.contains("heartbeat=120ms") && settings.contains("election.timeout=1200ms"));
            node.wait_until_serving();
            node.wait_for_line(&["starts again, with timeouts for round trips up to 240ms"]);
        }
        for (index, node) in cluster.nodes.iter().enumerate() {
            let (mut connection, key) = (Connection::open(&node.resp).unwrap(), format!("k{index}"));
            let set = connection.call(&[b"SET", key.as_bytes(), b"v"]).unwrap();
            assert_eq!(set, Resp::Simple("OK".into()), "{protocol}");
        }
        let status = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["status", "--endpoints", &cluster.nodes[0].resp])
            .output()
            .unwrap();
        let said = String::from_utf8(status.stdout).unwrap();
        assert!(said.contains("timeouts for round trips up to 240ms, measured between members: "), "{said}");
        assert!(said.contains(" election.timeout=1200ms "), "{said}");

        // It remembers, and speaks with the others at once.
        let node = &mut cluster.nodes[4];
        node.kill();
        let before = node.lines_with("starts again");
        node.start();
        node.wait_until_serving();
        assert!(is_for(node, "up to 240ms"));
        assert_eq!(node.lines_with("starts again"), before);
    }
}

/// Its lease was long, and others may still rely on it: shorter ones begin when it has ended, also for a node that was
/// killed while it waited for that.
#[test]
fn who_starts_with_other_settings_waits_for_the_leases_of_those_before() {
    let waits = "for the end of leases that it may have granted with the settings that it had before";
    let mut cluster = Cluster::start_with(1, "multipaxos", &["--set", "lease.duration=3s"]);
    let node = &mut cluster.nodes[0];
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    node.kill();
    node.start();
    node.wait_until_serving();
    assert_eq!(node.lines_with(waits), 0, "the settings are the same");
    node.kill();
    node.set("--set", "lease.duration=500ms");
    for waited in 1..=2 {
        node.start();
        wait_for("the line", || (node.lines_with(waits) >= waited).then_some(()));
        if waited == 1 {
            node.kill();
        }
    }
    node.wait_until_serving();
    let mut connection = Connection::open(&node.resp).unwrap();
    assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk("v".into()));
    node.wait_for_line(&["the replica starts", "no lease of other settings binds it"]);
    let before = node.lines_with(waits);
    node.kill();
    node.start();
    node.wait_until_serving();
    assert_eq!(node.lines_with(waits), before, "it remembers that it has waited");
}

#[test]
fn who_is_told_a_longer_round_trip_tells_the_others_and_who_is_near_measures_nothing_longer() {
    let mut cluster = Cluster::start(3, "raft");
    assert!(cluster.nodes.iter().all(|node| is_for(node, "up to 120ms, measured")));
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    cluster.nodes[2].kill();
    cluster.nodes[2].args.extend(["--set", "timeouts=300ms"].map(str::to_owned));
    cluster.nodes[2].start();
    for node in &cluster.nodes {
        wait_for("longer timeouts", || is_for(node, "up to 480ms").then_some(()));
        node.wait_until_serving();
        let mut connection = Connection::open(&node.resp).unwrap();
        assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(b"v".to_vec()));
    }
    assert!(is_for(&cluster.nodes[2], "stated"));
}
