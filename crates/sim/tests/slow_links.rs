//! Large writes over slow links: what is on its way is not sent again, and what is lost is.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND, linearizability};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Ask, Load, Measured, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

const LARGE: usize = 4 << 20;
const WRITES: u64 = 6;
const FIRST: Nanos = 3 * SECOND;
/// From one write to the next.
const GAP: Nanos = 4 * SECOND;

fn pairs() -> impl Iterator<Item = (NodeId, NodeId)> {
    let node = |id| NodeId::new(id).unwrap();
    (1..=3).flat_map(move |a| (1..=3).map(move |b| (node(a), node(b)))).filter(|(a, b)| a != b)
}

/// One write of 4 MiB after another, at each node in turn, over links of 100 Mbit/s each, where a copy takes 336 ms.
fn large_writes(protocol: &str, settings: &[&str], acts: Vec<(Nanos, Act)>) -> Measured {
    let link = Link { delay: Duration::from_millis(2), jitter: Duration::ZERO, rate: Some(Rate::mbit(100)) };
    let links = pairs().map(|pair| (pair, link)).collect();
    let setup = Setup { links, ..Setup::instant(3, settings, FIRST + WRITES * GAP) };
    let asks = (0..WRITES).map(|index| {
        let value = Bytes::from(vec![index as u8; LARGE]);
        let (key, condition, expiry) = (Bytes::from_static(b"k"), Condition::Always, Expiry::Never);
        let command = Command::Put { key, value, condition, expiry, old: false };
        Ask { at: FIRST + index * GAP, proxy: index as usize % 3, command, patience: GAP }
    });
    let load = Load { asks: asks.collect(), clients: None, acts };
    let measured = measure(named(protocol), &setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    measured
}

/// How often all that was written crossed a link, of the two copies for the followers and the way of two writes in
/// three to the leader.
pub fn copies(protocol: &str, settings: &[&str]) -> f64 {
    let measured = large_writes(protocol, settings, Vec::new());
    assert!(measured.operations.iter().all(|write| write.succeeded), "{:?}", measured.operations);
    let needed = LARGE as u64 * (2 * WRITES + WRITES * 2 / 3);
    measured.bytes.values().sum::<u64>() as f64 / needed as f64
}

/// As one message, and in parts.
const WHOLE_OR_PARTS: [&str; 2] = ["value.part=8MiB", "value.part=1MiB"];

#[test]
fn large_writes_cross_slow_links_once() {
    for protocol in ["multipaxos", "raft"] {
        for part in WHOLE_OR_PARTS {
            let copies = copies(protocol, &[part]);
            assert!((1.0..1.05).contains(&copies), "{protocol}, {part}: {copies}");
        }
    }
}

#[test]
fn large_writes_that_are_lost_on_slow_links_are_sent_again_soon() {
    for protocol in ["multipaxos", "raft"] {
        for part in WHOLE_OR_PARTS {
            // The first message of the fourth write, whether it goes to the leader or comes from it.
            let at = FIRST + 3 * GAP;
            let lose = |at, loses| pairs().map(move |(from, to)| (at, Act::Lose(from, to, loses)));
            let acts = lose(at, true).chain(lose(at + 50 * MILLISECOND, false)).collect();
            let measured = large_writes(protocol, &[part], acts);
            let latencies: Vec<_> =
                measured.operations.iter().map(|write| write.latency().unwrap()).collect();
            // Both begin at the leader.
            assert!(latencies[3] > latencies[0], "one was lost: {latencies:?}");
            // Two messages after another may have been lost, and each is known to take 336 ms.
            assert!(latencies[3] < 3 * SECOND, "{latencies:?}");
        }
    }
}
