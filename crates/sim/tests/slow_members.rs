//! A member whose links are slow holds up the others, and is not waited for. Where it is the head of a chain itself,
//! nobody else is to blame; an owner of Hermes' epochs makes room for another. Nobody is to blame where links are full.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND, linearizability};
use quorate_core::{Fact, Link, NodeId, NodeSet, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Clients, Load, Measured, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

/// When a member's links become slow.
const SLOW: Nanos = 3 * SECOND;
const END: Nanos = 12 * SECOND;

/// Bytes of a value where there are many of them.
const MUCH: usize = 8 << 10;

fn link(millis: u64) -> Link {
    Link { delay: Duration::from_millis(millis), jitter: Duration::ZERO, rate: None }
}

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=5).filter_map(NodeId::new)
}

/// So many clients, of these nodes in turn, write values of so many bytes over and over, in a group of five (without
/// leases where members are live in epochs).
fn writes(
    protocol: &str,
    link: Link,
    (at, count, bytes): (&[usize], usize, usize),
    acts: Vec<(Nanos, Act)>,
) -> Measured {
    let is_eager = ["chain", "craq", "hermes"].contains(&protocol);
    let settings: &[&str] = if is_eager { &["reads=eager-alr"] } else { &[] };
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
    let links = pairs.map(|pair| (pair, link)).collect();
    let setup = Setup { links, ..Setup::instant(5, settings, END) };
    let draw = |client: usize, _| {
        let (key, value) = (Bytes::from(vec![client as u8]), Bytes::from(vec![7; bytes]));
        (
            at[client % at.len()],
            Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false },
        )
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

/// Who begins epochs, by the number of the epoch: whoever says first that it is in it.
fn epochs(measured: &Measured, from: Nanos) -> BTreeMap<u64, NodeId> {
    let mut owners = BTreeMap::new();
    for (at, node, fact) in &measured.facts {
        if let Fact::Leads { number } | Fact::Live { number, .. } = fact
            && *at >= from
        {
            owners.entry(*number).or_insert(*node);
        }
    }
    owners
}

/// Two clients write where the links of a member become slow: of the one that leads, or of the last of the others. They
/// are at neither.
fn writes_with_a_slow_member(protocol: &str, is_leader: bool) -> (Measured, usize) {
    let writes = |at, acts| writes(protocol, link(1), (&[at], 2, 1), acts);
    let (_, leader) = epochs(&writes(0, Vec::new()), 0).pop_last().expect("an epoch");
    let other = nodes().filter(|node| *node != leader).last().expect("five members");
    let slow = if is_leader { leader } else { other };
    let clients = nodes().position(|node| node != leader && node != other).expect("five members");
    let both_ways = |node| [Act::Link(slow, node, link(250)), Act::Link(node, slow, link(250))];
    let acts = nodes().filter(|node| *node != slow).flat_map(both_ways);
    (writes(clients, acts.map(|act| (SLOW, act)).collect()), clients)
}

/// How long a write takes, of three out of four, when the links of a member have been slow for a while.
fn latency_with_a_slow_member(protocol: &str, is_leader: bool) -> Nanos {
    let (measured, clients) = writes_with_a_slow_member(protocol, is_leader);
    let latencies = measured.latencies(clients, true, (2 * SLOW, END));
    latencies.quantile(0.75).expect("writes that succeed")
}

/// That with one that does not lead.
pub fn latency_with_a_slow_follower(protocol: &str) -> Nanos {
    latency_with_a_slow_member(protocol, false)
}

/// That with the one that leads.
pub fn latency_with_a_slow_owner(protocol: &str) -> Nanos {
    latency_with_a_slow_member(protocol, true)
}

/// Clients of these nodes write where the disks of the owner and of so many others, the first ones, begin to take 300
/// ms for each sync. How long it takes until an epoch has the others and nobody else, if ever, and how many epochs
/// begin without one of those.
pub fn epochs_with_slow_disks(others: usize, writers: &[usize]) -> (Option<Nanos>, usize) {
    let writes = |acts| writes("hermes", link(1), (writers, 5, 1), acts);
    let (_, owner) = epochs(&writes(Vec::new()), 0).pop_last().expect("an epoch");
    let slow: NodeSet = nodes().filter(|node| *node != owner).take(others).chain([owner]).collect();
    let quick: NodeSet = nodes().filter(|node| !slow.contains(*node)).collect();
    let measured = writes(slow.iter().map(|node| (SLOW, Act::Disk(node, 300 * MILLISECOND))).collect());
    let mut epochs: BTreeMap<u64, (Nanos, NodeSet)> = BTreeMap::new();
    for (at, node, fact) in &measured.facts {
        if let Fact::Live { number, .. } = fact
            && *at >= SLOW
        {
            epochs.entry(*number).or_insert((*at, NodeSet::EMPTY)).1.insert(*node);
        }
    }
    let only_quick = epochs.values().find(|(_, live)| *live == quick).map(|(at, _)| at - SLOW);
    (only_quick, epochs.values().filter(|(_, live)| live.intersection(quick) != quick).count())
}

/// How often another epoch begins where the links of the one that leads are slow.
pub fn epochs_of_a_slow_head(protocol: &str) -> usize {
    epochs(&writes_with_a_slow_member(protocol, true).0, SLOW).len()
}

/// All that holds writes up is how much fits through the links.
fn much_data(protocol: &str, rate: Rate) -> Measured {
    let link = Link { rate: Some(rate), ..link(1) };
    writes(protocol, link, (&[0], 256, MUCH), Vec::new())
}

/// How often another epoch begins then.
pub fn epochs_of_much_data(protocol: &str) -> usize {
    epochs(&much_data(protocol, Rate::mbit(20)), SECOND).len()
}

/// The same, where all that is under way takes 1.2 s to leave, and an election begins after half a second of silence.
pub fn elections_over_thin_links(protocol: &str) -> usize {
    epochs(&much_data(protocol, Rate::mbit(14)), SECOND).len()
}

/// How often all that was written crossed a link, of one copy for each of the others.
pub fn copies_of_much_data(protocol: &str) -> f64 {
    let measured = much_data(protocol, Rate::mbit(20));
    let written = measured.operations.iter().filter(|write| write.succeeded).count() * MUCH;
    measured.bytes.values().sum::<u64>() as f64 / (written * (nodes().count() - 1)) as f64
}

#[test]
fn writes_do_not_wait_for_a_slow_member_for_long() {
    for protocol in ["chain", "craq", "hermes"] {
        let took = latency_with_a_slow_follower(protocol);
        assert!(took < 20 * MILLISECOND, "{protocol}: {} ms", took / MILLISECOND);
    }
}

#[test]
fn much_data_leaves_nobody_out() {
    for protocol in ["chain", "craq", "hermes"] {
        assert_eq!(epochs_of_much_data(protocol), 0, "{protocol}");
    }
}

#[test]
fn no_leader_looks_dead_behind_what_is_written() {
    for protocol in ["raft", "multipaxos", "bodega", "crossword", "zab", "hermes"] {
        assert_eq!(elections_over_thin_links(protocol), 0, "{protocol}");
    }
}

#[test]
fn what_is_on_its_way_is_not_sent_again() {
    for protocol in ["hermes", "epaxos"] {
        let copies = copies_of_much_data(protocol);
        assert!((1.0..1.1).contains(&copies), "{protocol}: {copies}");
    }
}

#[test]
fn a_slow_head_leaves_nobody_out() {
    for protocol in ["chain", "craq"] {
        assert_eq!(epochs_of_a_slow_head(protocol), 0, "{protocol}");
    }
}

#[test]
fn writes_do_not_wait_for_a_slow_owner_for_long() {
    let took = latency_with_a_slow_owner("hermes");
    assert!(took < 20 * MILLISECOND, "{} ms", took / MILLISECOND);
}

/// Whoever tells of slow ones first, and whether the others see anything.
#[test]
fn slow_disks_leave_nobody_out_but_their_own() {
    for others in [0, 1] {
        for writers in [&[0, 1, 2, 3, 4][..], &[0, 1, 2], &[2, 3, 4], &[4]] {
            let (only_quick, without_quick) = epochs_with_slow_disks(others, writers);
            assert!(only_quick.is_some(), "{others} and the owner stay, {writers:?} write");
            assert_eq!(without_quick, 0, "{others} and the owner are slow, {writers:?} write");
        }
    }
}

#[test]
fn a_slow_owner_is_not_followed_by_another_slow_one() {
    let (only_quick, _) = epochs_with_slow_disks(1, &[0, 1, 2]);
    let took = only_quick.expect("an epoch of the quick ones");
    assert!(took < 2 * SECOND, "{} ms", took / MILLISECOND);
}
