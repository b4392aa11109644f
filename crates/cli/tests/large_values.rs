//! Values that take seconds on the links between nodes: nobody takes their leader for dead meanwhile, and others are
//! served.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::{Cluster, Connection, Resp, wait_for};

const MIB: usize = 1 << 20;

fn ballots(cluster: &Cluster) -> Vec<String> {
    let ballot = |status: serde_json::Value| status["ballot"].as_str().expect("a status has one").to_owned();
    cluster.nodes.iter().map(|node| ballot(node.status().expect("it answers"))).collect()
}

/// The largest value takes 1.3 s on each link, longer than a leader may be silent.
#[test]
fn values_of_32_and_64_mib_are_written_and_read_by_a_follower_under_the_same_leader() {
    let flags = ["--set", "net.rate=400Mbit/s", "--set", "election.timeout=1s", "--durability", "os"];
    let cluster = Cluster::start_with(3, "multipaxos", &flags);
    let leader = cluster.leader();
    let before = ballots(&cluster);
    let follower = &cluster.nodes[(leader + 1) % 3].resp;
    // However slow the machine is: what took too long is asked again.
    let answer = |connection: &mut Connection, words: &[&[u8]]| {
        wait_for("an answer", || match connection.call(words).unwrap() {
            Resp::Error(_) => None,
            reply => Some(reply),
        })
    };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let small = scope.spawn(|| {
            let mut connection = Connection::open(follower).unwrap();
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                let value = format!("{count:0128}").into_bytes();
                assert_eq!(answer(&mut connection, &[b"SET", b"small", &value]), Resp::Simple("OK".into()));
                assert_eq!(answer(&mut connection, &[b"GET", b"small"]), Resp::Bulk(value));
                count += 1;
            }
            count
        });
        let mut connection = Connection::open(follower).unwrap();
        for size in [32 * MIB, 64 * MIB] {
            let value: Vec<u8> = (0..size).map(|index| (index / 3 % 251) as u8).collect();
            assert_eq!(answer(&mut connection, &[b"SET", b"large", &value]), Resp::Simple("OK".into()));
            let read = answer(&mut connection, &[b"GET", b"large"]);
            assert!(read == Resp::Bulk(value), "{size} bytes come back as they were written");
        }
        over.store(true, Ordering::Relaxed);
        assert!(small.join().unwrap() > 0, "somebody else was served meanwhile");
    });
    assert_eq!(ballots(&cluster), before, "nobody has stood for election");
}
