//! Crossword by real processes: how many shards voters get follows the links' rates while nodes run, and a leader that
//! is killed while large values are written takes nothing with it.

#[path = "support/load.rs"]
mod load;
mod support;

use load::Load;
use rustix::process::Signal;
use support::{Cluster, Connection, Node, Resp, wait_for};

const NODES: usize = 5;

/// Sites that are all as far apart, with a rate for every link.
fn topology(rate: &str) -> String {
    let sites = ["a", "b", "c", "d", "e"];
    let quoted = sites.map(|site| format!("\"{site}\"")).join(", ");
    let mut text = format!("sites = [{quoted}]\nrate = \"{rate}\"\n[round-trips]\n");
    for (at, site) in sites.iter().enumerate() {
        sites[at + 1..].iter().for_each(|other| text += &format!("{site}.{other} = \"40ms\"\n"));
    }
    text
}

/// 64 KiB take 26 ms at 20 Mbit/s, and a third of that in shards; next to nothing at 20 Gbit/s. How soon the chooser
/// follows is measured in virtual time (`crates/sim/tests/chooser.rs`).
#[test]
fn shards_follow_the_rates_that_nodes_read_again_on_sighup() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (fast, slow) = ("20Gbit/s", "20Mbit/s");
    std::fs::write(file.path(), topology(fast)).unwrap();
    let path = file.path().display().to_string();
    let sites = ["a", "b", "c", "d", "e"];
    let flags =
        |node: usize| ["--topology", &path, "--site", sites[node], "--durability", "os"].map(str::to_owned);
    let cluster = Cluster::start_each(NODES, "crossword", |node| flags(node).into());
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    let value = vec![b'v'; 64 << 10];
    // By whoever leads.
    let proposed = || {
        ["values_proposed_whole_total", "values_proposed_in_shards_total"].map(|name| -> u64 {
            let of = |node: &Node| node.status().expect("it answers")["samples"][name].as_u64();
            cluster.nodes.iter().map(|node| of(node).expect(name)).sum()
        })
    };
    // Ten writes after another.
    let mut writes = || {
        let before = proposed();
        for _ in 0..10 {
            assert_eq!(connection.call(&[b"SET", b"k", &value]).unwrap(), Resp::Simple("OK".into()));
        }
        let after = proposed();
        [after[0] - before[0], after[1] - before[1]]
    };
    wait_for("whole values on fast links", || (writes()[1] == 0).then_some(()));
    for rate in [slow, fast] {
        std::fs::write(file.path(), topology(rate)).unwrap();
        cluster.nodes.iter().for_each(|node| node.signal(Signal::HUP));
        let wanted = usize::from(rate == slow);
        wait_for(&format!("the chooser to follow {rate}"), || (writes()[wanted] >= 10).then_some(()));
    }
}

/// With a shard each, a leader that dies is the only one that had the last values whole.
#[test]
fn a_leader_that_is_killed_while_values_of_1_mib_are_written_loses_none() {
    let mut cluster = Cluster::start_with(NODES, "crossword", &["--set", "crossword.shards=1"]);
    let resps: Vec<_> = cluster.nodes.iter().map(|node| node.resp.clone()).collect();
    let addresses = (0..NODES).map(|id| (0..NODES).map(|at| resps[(id + at) % NODES].clone()).collect());
    let load = Load::start_with_values(1 << 20, addresses);
    load.progress(100);
    for _ in 0..2 {
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        load.progress(100);
        cluster.nodes[leader].start();
        cluster.nodes[leader].wait_until_serving();
    }
    load.progress(60);
    load.check(&cluster.nodes);
}
