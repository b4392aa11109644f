//! A member of a chain whose links are slow holds up the others, and is not waited for; where it is the head itself,
//! nobody else is to blame.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND, linearizability};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Capacity, Clients, Delay, Load, Measured, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

/// When a member's links become slow.
const SLOW: Nanos = 3 * SECOND;
const END: Nanos = 20 * SECOND;

fn link(millis: u64) -> Link {
    Link { delay: Duration::from_millis(millis), jitter: Duration::ZERO, rate: None }
}

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=5).filter_map(NodeId::new)
}

/// So many clients of the first node write values of so many bytes over and over, in a group of five without leases.
fn writes(protocol: &str, link: Link, (count, bytes): (usize, usize), acts: Vec<(Nanos, Act)>) -> Measured {
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
    let setup = Setup {
        nodes: 5,
        groups: 1,
        machines: Vec::new(),
        proxies: 0,
        settings: vec!["reads=eager-alr".to_owned()],
        between_nodes: Delay::Fixed(0),
        topology: None,
        links: pairs.map(|pair| (pair, link)).collect(),
        to_clients: Delay::Fixed(0),
        sync: 0,
        capacity: Capacity::default(),
        clock_error: None,
        end: END,
        seed: 1,
    };
    let draw = |client: usize, _| {
        let (key, value) = (Bytes::from(vec![client as u8]), Bytes::from(vec![7; bytes]));
        (0, Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false })
    };
    let clients = Clients {
        count,
        from: SECOND,
        until: END - SECOND,
        think: 20 * MILLISECOND,
        patience: 5 * SECOND,
        draw: Box::new(draw),
    };
    let load = Load { asks: Vec::new(), clients: Some(clients), acts };
    let measured = measure(named(protocol), &setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    measured
}

/// The same, where the links of one become slow: the head, or the last of the others.
fn writes_with_a_slow_member(protocol: &str, is_head: bool) -> Measured {
    let writes = |acts| writes(protocol, link(1), (2, 1), acts);
    let (_, head) = writes(Vec::new()).elected_after(0).last().expect("a head");
    let other = nodes().filter(|node| *node != head).last().expect("five members");
    let slow = if is_head { head } else { other };
    let both_ways = |node| [Act::Link(slow, node, link(250)), Act::Link(node, slow, link(250))];
    let acts = nodes().filter(|node| *node != slow).flat_map(both_ways);
    writes(acts.map(|act| (SLOW, act)).collect())
}

/// How long a write takes, of three out of four, when the links of a member that is not the head have been slow for a
/// while.
pub fn latency_with_a_slow_member(protocol: &str) -> Nanos {
    let latencies = writes_with_a_slow_member(protocol, false).latencies(0, true, (2 * SLOW, END));
    latencies.quantile(0.75).expect("writes that succeed")
}

/// How often another epoch begins where the head's links are slow.
pub fn epochs_of_a_slow_head(protocol: &str) -> usize {
    writes_with_a_slow_member(protocol, true).elected_after(SLOW).count()
}

/// How often another epoch begins where all that holds writes up is how much fits through the links.
pub fn epochs_of_much_data(protocol: &str) -> usize {
    let link = Link { rate: Some(Rate::mbit(30)), ..link(1) };
    writes(protocol, link, (512, 4 << 10), Vec::new()).elected_after(SECOND).count()
}

#[test]
fn writes_do_not_wait_for_a_slow_member_for_long() {
    for protocol in ["chain", "craq"] {
        let took = latency_with_a_slow_member(protocol);
        assert!(took < 20 * MILLISECOND, "{protocol}: {} ms", took / MILLISECOND);
    }
}

#[test]
fn much_data_leaves_nobody_out() {
    for protocol in ["chain", "craq"] {
        assert_eq!(epochs_of_much_data(protocol), 0, "{protocol}");
    }
}

#[test]
fn a_slow_head_leaves_nobody_out() {
    for protocol in ["chain", "craq"] {
        assert_eq!(epochs_of_a_slow_head(protocol), 0, "{protocol}");
    }
}
