//! Real processes, real sockets, real kills: whatever happens, the history that clients see is linearizable, and
//! what was acknowledged is there.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_sim::checkers::linearizability;
use quorate_sim::history::Recorder;
use quorate_store::{Command, Condition, Expiry, Reply};
use support::{Cluster, Connection, Resp, wait_for};

/// The service must be back within this much of a fault that leaves a majority.
const BACK_WITHIN: Duration = Duration::from_secs(3);
const KEYS: u64 = 8;

/// What all clients share.
struct Load {
    start: Instant,
    stop: AtomicBool,
    recorder: Mutex<Recorder>,
    /// Successful operations so far.
    done: AtomicU64,
    /// Keys that one client wrote once, and the write was acknowledged.
    acknowledged: Mutex<Vec<String>>,
}

impl Load {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// One client of one node: one command after the other, until told to stop.
fn client(id: u64, address: String, load: Arc<Load>) {
    let mut random = quorate_core::Random::new(id);
    let mut connection = None;
    let mut count = 0;
    while !load.stop.load(Ordering::Relaxed) {
        let Some(open) = connection.as_mut() else {
            connection = Connection::open(&address).ok();
            if connection.is_none() {
                std::thread::park_timeout(Duration::from_millis(20));
            }
            continue;
        };
        count += 1;
        let key = Bytes::from(format!("k{}", random.range(0..KEYS)));
        let unique = Bytes::from(format!("{id}.{count};"));
        let once = format!("once-{id}-{count}");
        let (words, command): (Vec<&[u8]>, Command) = match random.range(0..10) {
            0..=4 => (vec![b"GET", &key], Command::Get { key: key.clone() }),
            5..=6 => (vec![b"SET", &key, &unique], put(&key, &unique)),
            7 => {
                (vec![b"APPEND", &key, &unique], Command::Append { key: key.clone(), value: unique.clone() })
            }
            8 => {
                (vec![b"INCR", b"counter"], Command::Increment { key: Bytes::from_static(b"counter"), by: 1 })
            }
            _ => (vec![b"SET", once.as_bytes(), &unique], put(&Bytes::from(once.clone()), &unique)),
        };
        let invocation = load.recorder.lock().unwrap().invoke(id, command.clone(), load.now());
        let reply = match open.call(&words) {
            Ok(Resp::Error(text)) => {
                // Not executed, or unknown: either way the history may leave it open.
                assert!(text.starts_with("CLUSTERDOWN") || text.starts_with("BUSY"), "{text}");
                continue;
            }
            Ok(reply) => reply,
            Err(_) => {
                connection = None;
                continue;
            }
        };
        let now = load.now();
        load.recorder.lock().unwrap().returned(invocation, translate(reply), now);
        load.done.fetch_add(1, Ordering::Relaxed);
        if words[1] == once.as_bytes() {
            load.acknowledged.lock().unwrap().push(once);
        }
    }
}

fn put(key: &Bytes, value: &Bytes) -> Command {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Command::Put { key: key.clone(), value: value.clone(), condition, expiry, old: false }
}

fn translate(reply: Resp) -> Reply {
    match reply {
        Resp::Simple(text) if text == "OK" => Reply::Done,
        Resp::Integer(number) => Reply::Integer(number),
        Resp::Bulk(bytes) => Reply::Value(Some(bytes.into())),
        Resp::Nil => Reply::Value(None),
        other => panic!("{other:?} is no reply to what was asked"),
    }
}

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

/// Lets clients work undisturbed until this many more operations have succeeded.
fn progress(load: &Load, operations: u64) {
    let target = load.done.load(Ordering::Relaxed) + operations;
    wait_for("operations", || (load.done.load(Ordering::Relaxed) >= target).then_some(()));
}

#[test]
fn kills_and_pauses_lose_nothing_and_show_nothing_stale() {
    let mut cluster = Cluster::start(3, "multipaxos");
    let load = Arc::new(Load {
        start: Instant::now(),
        stop: AtomicBool::new(false),
        recorder: Mutex::new(Recorder::default()),
        done: AtomicU64::new(0),
        acknowledged: Mutex::new(Vec::new()),
    });
    let clients: Vec<_> = (0..9)
        .map(|id| {
            let (address, load) = (cluster.nodes[id % 3].resp.clone(), load.clone());
            std::thread::spawn(move || client(id as u64, address, load))
        })
        .collect();
    progress(&load, 500);

    let follower = (cluster.leader() + 1) % 3;
    cluster.nodes[follower].kill();
    back(&cluster, None, "kill -9 of a follower");
    progress(&load, 200);
    cluster.nodes[follower].start();
    cluster.nodes[follower].wait_until_serving();

    for round in 1..=3 {
        let leader = cluster.leader();
        cluster.nodes[leader].kill();
        back(&cluster, None, &format!("kill -9 of the leader, {round}"));
        progress(&load, 200);
        cluster.nodes[leader].start();
        cluster.nodes[leader].wait_until_serving();
    }

    cluster.nodes.iter_mut().for_each(|node| node.kill());
    cluster.nodes.iter_mut().for_each(|node| node.start());
    cluster.nodes.iter().for_each(|node| node.wait_until_serving());
    progress(&load, 200);

    // Past its lease: another must lead before the old leader wakes up, and then it must not serve from its own
    // state.
    let leader = cluster.leader();
    cluster.nodes[leader].pause();
    back(&cluster, Some(leader), "SIGSTOP of the leader");
    progress(&load, 200);
    cluster.nodes[leader].resume();
    cluster.nodes[leader].wait_until_serving();
    progress(&load, 200);

    load.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());

    let acknowledged = std::mem::take(&mut *load.acknowledged.lock().unwrap());
    assert!(acknowledged.len() > 50, "the test must have something to lose");
    for node in &cluster.nodes {
        let mut connection = Connection::open(&node.resp).unwrap();
        for key in &acknowledged {
            let found = connection.call(&[b"EXISTS", key.as_bytes()]).unwrap();
            assert_eq!(found, Resp::Integer(1), "{key} was acknowledged");
        }
        for key in (0..KEYS).map(|key| Bytes::from(format!("k{key}"))).chain([Bytes::from("counter")]) {
            let command = Command::Get { key: key.clone() };
            let invocation = load.recorder.lock().unwrap().invoke(99, command, load.now());
            let reply = translate(connection.call(&[b"GET", &key]).unwrap());
            load.recorder.lock().unwrap().returned(invocation, reply, load.now());
        }
    }
    let history = std::mem::take(&mut *load.recorder.lock().unwrap()).finish();
    println!("{} operations, {} acknowledged once-only writes", history.0.len(), acknowledged.len());
    linearizability::check(&history).unwrap_or_else(|violation| panic!("{violation}"));
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
