//! A member that was away gets what its link carries, however long the link: what is asked for next is sent ahead.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{Nanos, SECOND};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Clients, Load, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

/// When nothing comes to a member, nor from it.
const AWAY: (Nanos, Nanos) = (5 * SECOND, 10 * SECOND);
const END: Nanos = 30 * SECOND;
const BYTES: usize = 44 << 10;

const CLIENTS: usize = 48;
/// Half a round trip.
const DELAY: Duration = Duration::from_millis(100);
const RATE: Rate = Rate::mbit(400);

/// What a member gets: values, or an image, where the log keeps too little.
pub const CASES: [(&str, &[&str]); 4] =
    [("multipaxos", &[]), ("multipaxos", SHORT_LOG), ("raft", SHORT_LOG), ("zab", SHORT_LOG)];
const SHORT_LOG: &[&str] = &["log.retain=8MiB"];

/// How long a member needs that was away to be no more than two seconds behind its leader; `None` if it is not by the
/// end. Clients write 10 MB a second, under a thousand keys.
pub fn time_to_catch_up(protocol: &str, settings: &[&str]) -> Option<Nanos> {
    let nodes = || (1..=3).filter_map(NodeId::new);
    let link = Link { delay: DELAY, jitter: Duration::ZERO, rate: Some(RATE) };
    let pairs = nodes().flat_map(|a| nodes().map(move |b| (a, b))).filter(|(a, b)| a != b);
    let all = [&["batch.entries=1", "election.timeout=2s"], settings].concat();
    let setup = Setup { links: pairs.map(|pair| (pair, link)).collect(), ..Setup::instant(3, &all, END) };
    let run = |at: usize, acts| {
        let mut number = 0_u64;
        let draw = |_, _| {
            number += 1;
            let (key, value) = (Bytes::from((number % 1000).to_string()), Bytes::from(vec![7; BYTES]));
            let (condition, expiry) = (Condition::Always, Expiry::Never);
            (at, Command::Put { key, value, condition, expiry, old: false })
        };
        let (draw, patience) = (Box::new(draw), 10 * SECOND);
        let clients = Clients { count: CLIENTS, from: 4 * SECOND, until: END, think: 0, patience, draw };
        let load = Load { asks: Vec::new(), clients: Some(clients), acts };
        measure(named(protocol), &setup, load).expect("the settings are known")
    };
    let (_, leader) = run(0, Vec::new()).elected_after(0).last().expect("somebody leads");
    let away = nodes().find(|node| *node != leader).expect("there are three");
    let others: Vec<_> = nodes().filter(|node| *node != away).collect();
    let measured = run(usize::from(leader.get()) - 1, Act::cut_off(away, &others, AWAY));
    let times = (AWAY.1..END).step_by((SECOND / 2) as usize);
    let near = |at: &Nanos| measured.executed(away, *at) >= measured.executed(leader, *at - 2 * SECOND);
    times.filter(near).map(|at| at - AWAY.1).next()
}

#[test]
fn a_member_behind_a_long_link_gets_what_it_carries() {
    for (protocol, settings) in CASES {
        let time = time_to_catch_up(protocol, settings);
        assert!(time.is_some_and(|time| time < 8 * SECOND), "{protocol}, {settings:?}: {time:?}");
    }
}
