//! Real processes, real sockets, real kills: whatever happens, the history that clients see is linearizable, and
//! what was acknowledged is there.

#[path = "support/load.rs"]
mod load;
mod support;

use std::time::{Duration, Instant};

use load::Load;
use support::{Cluster, Connection, Resp, wait_for};

/// The service must be back within this much of a fault that leaves a majority.
const BACK_WITHIN: Duration = Duration::from_secs(3);

/// Waits until a node that is not `except` serves a write and a read again, and says how long that took.
fn back(cluster: &Cluster, except: Option<usize>, what: &str) {
    let since = Instant::now();
    for (index, node) in cluster.nodes.iter().enumerate().filter(|(index, _)| Some(*index) != except) {
        if node.running() {
            wait_for(&format!("service at node {} after {what}", index + 1), || {
                let mut connection = Connection::open(&node.resp).ok()?;
                let written = connection.call(&[b"SET", b"probe", b"x"]).ok()?;
                (written == Resp::Simple("OK".into())).then_some(())
            });
        }
    }
    let took = since.elapsed();
    println!("{what}: back after {took:.2?}");
    assert!(took < BACK_WITHIN, "{what}: back only after {took:.2?}");
}

#[test]
fn kills_and_pauses_lose_nothing_and_show_nothing_stale() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let load = Load::start((0..9).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(500);

    let follower = (cluster.leader() + 1) % 3;
    cluster.nodes[follower].kill();
    back(&cluster, None, "kill -9 of a follower");
    load.progress(200);
    cluster.nodes[follower].start();
    cluster.nodes[follower].wait_until_serving();

    for round in 1..=3 {
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        back(&cluster, None, &format!("kill -9 of the leader, {round}"));
        load.progress(200);
        cluster.nodes[leader].start();
        cluster.nodes[leader].wait_until_serving();
    }

    cluster.restart();
    load.progress(200);

    // Past its lease: another must lead before the old leader wakes up, and then it must not serve from its own
    // state.
    let leader = cluster.leader();
    cluster.nodes[leader].pause();
    back(&cluster, Some(leader), "SIGSTOP of the leader");
    load.progress(200);
    cluster.nodes[leader].resume();
    cluster.nodes[leader].wait_until_serving();
    load.progress(200);

    load.check(&cluster.nodes);
}

/// Nobody leads: whoever is killed, the others go on, and what it left is recovered.
#[test]
fn epaxos_loses_nothing_when_its_nodes_are_killed() {
    let mut cluster = Cluster::start(3, "epaxos");
    let load = Load::start((0..9).map(|id| vec![cluster.nodes[id % 3].resp.clone()]));
    load.progress(500);
    for node in 0..3 {
        cluster.nodes[node].kill();
        back(&cluster, None, &format!("kill -9 of node {}", node + 1));
        load.progress(200);
        cluster.nodes[node].start();
        cluster.nodes[node].wait_until_serving();
    }
    cluster.restart();
    load.progress(200);
    load.check(&cluster.nodes);
}

/// A responder that cannot write is there all the same: it answers whatever needs no disk, its leases too, and never
/// votes.
#[test]
fn a_responder_whose_disk_hangs_does_not_stop_writes() {
    for (protocol, flags) in [("bodega", &[][..]), ("quorum-leases", &["--set", "grantees=1,2,3"])] {
        let (cluster, hangs) = Cluster::start_with_disks_that_hang(3, protocol, flags);
        let leader = cluster.leader();
        let (hung, other) = ((leader + 1) % 3, (leader + 2) % 3);
        let set = |connection: &mut Connection, value: u64| {
            connection.call(&[b"SET", b"k", value.to_string().as_bytes()]).unwrap()
                == Resp::Simple("OK".into())
        };
        let mut connection = Connection::open(&cluster.nodes[other].resp).unwrap();
        assert!(set(&mut connection, 0));
        // From now on writes wait for it.
        wait_for("its lease", || (cluster.nodes[hung].status()?["lease"] == true).then_some(()));
        std::fs::write(&hangs[hung], "").unwrap();
        let since = Instant::now();
        wait_for("writes that do without it", || set(&mut connection, 1).then_some(()));
        println!("{protocol}: writes without a responder whose disk hangs after {:.2?}", since.elapsed());
        for value in 2..50 {
            assert!(set(&mut connection, value), "{protocol}: write {value}");
        }
        std::fs::remove_file(&hangs[hung]).unwrap();
        assert_eq!(cluster.nodes[hung].read("k"), Resp::Bulk(b"49".to_vec()), "{protocol}");
    }
}

#[test]
fn sigterm_hands_over_and_ends_in_order() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let leader = cluster.leader();
    let other = (leader + 1) % 3;
    let mut connection = Connection::open(&cluster.nodes[other].resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    let status = cluster.nodes[leader].terminate();
    assert!(status.success(), "{status}");
    // The same connection goes on: its node finds the new leader.
    let found = wait_for("a read after the hand-over", || match connection.call(&[b"GET", b"k"]).unwrap() {
        Resp::Error(_) => None,
        found => Some(found),
    });
    assert_eq!(found, Resp::Bulk(b"v".to_vec()));
    cluster.nodes[leader].start();
    cluster.nodes[leader].wait_until_serving();
}

#[test]
fn one_copy_on_one_disk_survives_a_kill() {
    let mut cluster = Cluster::start(1, "unreplicated");
    for round in 0..3u8 {
        let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
        let set = connection.call(&[b"APPEND", b"k", &[b'0' + round]]).unwrap();
        assert_eq!(set, Resp::Integer(i64::from(round) + 1));
        cluster.nodes[0].kill();
        cluster.nodes[0].start();
        cluster.nodes[0].wait_until_serving();
    }
    let mut connection = Connection::open(&cluster.nodes[0].resp).unwrap();
    assert_eq!(connection.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(b"012".to_vec()));
}

/// It could let nobody in who has restarted, because it must remember their disks first.
#[test]
fn a_node_whose_disk_hangs_stops_when_another_has_restarted() {
    let mut cluster = Cluster::prepare(3, "multipaxos", &[]);
    let hangs: Vec<_> = cluster.nodes.iter().map(|node| node.data.with_extension("hangs")).collect();
    for (node, file) in cluster.nodes.iter_mut().zip(&hangs) {
        node.start_with_disk_that_hangs_while(file);
    }
    cluster.nodes.iter().for_each(|node| node.wait_until_serving());
    let hung = cluster.leader();
    let other = (hung + 1) % 3;
    std::fs::write(&hangs[hung], "").unwrap();
    cluster.nodes[other].kill();
    cluster.nodes[other].start();
    assert_eq!(cluster.nodes[hung].wait_for_end(), Some(1));
    let said = cluster.nodes[hung].said();
    assert!(said.contains("has not finished a small write within 5s"), "{said}");
    cluster.nodes[other].wait_until_serving();
    let mut connection = Connection::open(&cluster.nodes[other].resp).unwrap();
    assert_eq!(connection.call(&[b"SET", b"k", b"v"]).unwrap(), Resp::Simple("OK".into()));
    std::fs::remove_file(&hangs[hung]).unwrap();
    cluster.nodes[hung].start();
    cluster.nodes[hung].wait_until_serving();
    let mut back = Connection::open(&cluster.nodes[hung].resp).unwrap();
    assert_eq!(back.call(&[b"GET", b"k"]).unwrap(), Resp::Bulk(b"v".to_vec()));
}
