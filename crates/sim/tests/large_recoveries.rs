//! Explicit recovery of EPaxos (`protocols/epaxos/recovery.rs`). Over links that clients fill, two of five replicas die
//! whose large batches not all others have. Until those are recovered, no write that interferes with them succeeds. And
//! over long links that are free, where there was a large batch once and all are small now.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos, SECOND, linearizability};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Ask, Clients, Load, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

/// When some links are cut; at the end of it two of five die.
const CUTS: (Nanos, Nanos) = (2 * SECOND, 4 * SECOND);
const END: Nanos = 30 * SECOND;
const WRITERS: usize = 320;
const BYTES: usize = 128 << 10;
/// Of the links that they fill.
const RATE: Rate = Rate::mbit(20);

fn nodes() -> impl Iterator<Item = NodeId> {
    (1..=5).filter_map(NodeId::new)
}

fn put(client: usize, bytes: usize) -> Command {
    let (key, value) = (Bytes::from(vec![(client % 7) as u8]), Bytes::from(vec![client as u8; bytes]));
    Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}

/// The longest time after two deaths without a write that succeeds.
pub fn longest_pause() -> Nanos {
    let link = Link { delay: Duration::from_millis(5), jitter: Duration::ZERO, rate: Some(RATE) };
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
    let links = pairs.map(|pair| (pair, link)).collect();
    let setup = Setup { links, ..Setup::instant(5, &[""; 0], END) };
    let draw = Box::new(|client: usize, _| (client % 5, put(client, BYTES)));
    let patience = 40 * SECOND;
    let clients = Clients { count: WRITERS, from: SECOND, until: END, think: 0, patience, draw };
    let all: Vec<_> = nodes().collect();
    let cuts = [(all[0], &all[1..2]), (all[3], &all[1..3]), (all[4], &all[..2])];
    let mut acts: Vec<_> = cuts.iter().flat_map(|(node, others)| Act::cut_off(*node, others, CUTS)).collect();
    acts.extend(all[3..].iter().map(|node| (CUTS.1, Act::Crash(*node))));
    acts.sort_by_key(|(at, _)| *at);
    let load = Load { asks: Vec::new(), clients: Some(clients), acts };
    let measured = measure(named("epaxos"), &setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    measured.longest_pause(CUTS.1, END)
}

#[test]
fn what_the_dead_have_proposed_does_not_keep_links_full() {
    let pause = longest_pause();
    assert!(pause < 10 * SECOND, "{} ms", pause / MILLISECOND);
}

/// The longest time after the death of one of three that are far from each other, with 53 small batches under way,
/// without a write that succeeds. Before that there was a single write of so many bytes.
fn pause_after(bytes: usize) -> Nanos {
    let link = Link { delay: Duration::from_millis(100), jitter: Duration::ZERO, rate: None };
    let pairs = nodes().take(3).flat_map(|a| nodes().take(3).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let setup = Setup {
        links: pairs.map(|pair| (pair, link)).collect(),
        ..Setup::instant(3, &["batch.entries=1"], END)
    };
    let first = Ask { at: SECOND / 2, proxy: 0, command: put(0, bytes), patience: END };
    let draw = Box::new(|client: usize, _| (client % 3, put(client, 9)));
    let clients = Clients { count: WRITERS / 2, from: SECOND, until: END, think: 0, patience: END, draw };
    let dies = CUTS.1 + 150 * MILLISECOND;
    let acts = vec![(dies, Act::Crash(NodeId::new(3).expect("an id")))];
    let load = Load { asks: vec![first], clients: Some(clients), acts };
    let measured = measure(named("epaxos"), &setup, load).expect("the settings are known");
    linearizability::check(&measured.history).expect("linearizable");
    measured.longest_pause(CUTS.1, END)
}

#[test]
fn small_batches_are_recovered_together_though_there_was_a_large_one() {
    assert_eq!(pause_after(BYTES), pause_after(9));
}
