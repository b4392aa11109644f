//! A member that was away gets what it has missed though clients fill its link, and writes wait for it only where they
//! need it.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Clients, Load, Measured, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

/// When nothing comes to a member, nor from it.
const AWAY: (Nanos, Nanos) = (4 * SECOND, 10 * SECOND);
const END: Nanos = 26 * SECOND;
/// How many clients write, and bytes of each value.
const WRITES: (usize, usize) = (48, 44 << 10);
/// The same of values of which not each is measured.
pub const SMALL_WRITES: (usize, usize) = (120, 20 << 10);

fn link(mbit: u64) -> Link {
    Link { delay: Duration::from_millis(1), jitter: Duration::ZERO, rate: Some(Rate::mbit(mbit)) }
}

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=3).filter_map(NodeId::new)
}

/// Clients of a node write more than its links carry, of 20 Mbit/s: each of [`WRITES`] takes 18 ms.
fn full_links(
    protocol: &str,
    at: usize,
    (count, bytes): (usize, usize),
    acts: Vec<(Nanos, Act)>,
) -> Measured {
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
    let links = pairs.map(|pair| (pair, link(20))).collect();
    let setup = Setup { links, ..Setup::instant(3, &["batch.entries=1"], END) };
    let draw = |client: usize, _| {
        let (key, value) = (Bytes::from(vec![client as u8]), Bytes::from(vec![7; bytes]));
        (at, Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false })
    };
    let draw = Box::new(draw);
    let clients = Clients { count, from: SECOND, until: END, think: 0, patience: 10 * SECOND, draw };
    let load = Load { asks: Vec::new(), clients: Some(clients), acts };
    measure(named(protocol), &setup, load).expect("the settings are known")
}

/// The leader, whose clients they are, and the others.
fn leader_and_others(protocol: &str) -> [NodeId; 3] {
    let measured = full_links(protocol, 0, WRITES, Vec::new());
    let (_, leader) = measured.elected_after(0).last().expect("a leader");
    let mut all: Vec<_> = nodes().collect();
    all.sort_by_key(|node| *node != leader);
    all.try_into().expect("three nodes")
}

/// Where a member is away for a while, and what then happens.
fn with_one_away(protocol: &str, acts: impl Fn([NodeId; 3]) -> Vec<(Nanos, Act)>) -> (Measured, [NodeId; 3]) {
    let all @ [leader, other, away] = leader_and_others(protocol);
    let acts = [Act::cut_off(away, &[leader, other], AWAY), acts(all)].concat();
    (full_links(protocol, usize::from(leader.get()) - 1, WRITES, acts), all)
}

/// How far a member gets that was away, for each slot that its leader executes meanwhile.
pub fn progress_of_one_that_was_away(protocol: &str) -> f64 {
    let (measured, [leader, _, away]) = with_one_away(protocol, |_| Vec::new());
    let slots = |node| measured.executed(node, END) - measured.executed(node, AWAY.1);
    slots(away) as f64 / slots(leader) as f64
}

/// The longest time without a write that succeeds, where another member dies while one that was away is far behind.
pub fn pause_when_one_that_is_behind_is_needed(protocol: &str) -> Nanos {
    let dies = AWAY.1 + 2 * SECOND;
    let (measured, _) = with_one_away(protocol, |[_, other, _]| vec![(dies, Act::Crash(other))]);
    measured.longest_pause(dies, END)
}

/// What leaves for a member whose link carries a tenth of the others', for each byte that leaves for another.
pub fn share_of_one_behind_a_thin_link(protocol: &str) -> f64 {
    let [leader, other, slow] = leader_and_others(protocol);
    let thin = Act::Link(leader, slow, link(2));
    let measured = full_links(protocol, usize::from(leader.get()) - 1, WRITES, vec![(SECOND, thin)]);
    let bytes = |to| measured.bytes[&(leader, to)] as f64;
    bytes(slow) / bytes(other)
}

/// Where a follower dies: the longest time without a write that succeeds, and how many do after two seconds.
pub fn writes_without_a_follower(protocol: &str, writes: (usize, usize)) -> (Nanos, usize) {
    let [leader, _, dies] = leader_and_others(protocol);
    let at = usize::from(leader.get()) - 1;
    let measured = full_links(protocol, at, writes, vec![(AWAY.0, Act::Crash(dies))]);
    (measured.longest_pause(AWAY.0, END), measured.successes(AWAY.0 + 2 * SECOND).count())
}

#[test]
fn a_member_that_was_away_gets_on_as_fast_as_its_leader() {
    for protocol in ["multipaxos", "rspaxos", "crossword", "zab"] {
        let progress = progress_of_one_that_was_away(protocol);
        assert!(progress > 0.95, "{protocol}: {progress}");
    }
}

#[test]
fn one_that_is_behind_is_sent_what_is_new_where_it_is_needed() {
    for protocol in ["multipaxos", "rspaxos", "crossword"] {
        let pause = pause_when_one_that_is_behind_is_needed(protocol);
        assert!(pause < 2 * SECOND, "{protocol}: {} ms", pause / MILLISECOND);
    }
}

#[test]
fn one_that_is_behind_a_thin_link_is_not_sent_all_that_others_get() {
    for protocol in ["multipaxos", "crossword"] {
        let share = share_of_one_behind_a_thin_link(protocol);
        assert!(share < 0.4, "{protocol}: {share}");
    }
}

/// What had been sent in shards is sent whole then, behind what waits for the link; so each needless copy delays it.
#[test]
fn values_that_follow_their_shards_are_sent_at_once_and_once() {
    for writes in [WRITES, SMALL_WRITES] {
        let (_, whole) = writes_without_a_follower("multipaxos", writes);
        let (pause, coded) = writes_without_a_follower("crossword", writes);
        assert!(coded * 10 >= whole * 9, "{writes:?}: {coded} for {whole}");
        assert!(pause < SECOND, "{writes:?}: {} ms", pause / MILLISECOND);
    }
}
