//! Crossword's chooser beside every fixed number of shards.

use std::time::Duration;

use bytes::Bytes;
use quorate_check::{Nanos, SECOND};
use quorate_core::{Link, NodeId, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Capacity, Clients, Delay, Load, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

const NODES: u64 = 5;
const CLIENTS: usize = 15;
/// There is a leader by then.
const BEGIN: Nanos = 3 * SECOND;
/// The chooser has samples of both ends of its line by then.
const WARM_UP: Nanos = SECOND;
/// How long is counted.
const LENGTH: Nanos = SECOND / 2;

/// Writes a second of clients in closed loops, three at each of five nodes. A tenth of each delay is jitter.
fn writes(shards: &str, bytes: usize, (rate, round_trip): (u64, Duration)) -> u64 {
    let node = |id| NodeId::new(id).unwrap();
    let pairs = (1..=NODES).flat_map(|a| (1..=NODES).map(move |b| (node(a), node(b))));
    let one_way = round_trip / 2;
    let link = Link { delay: one_way * 9 / 10, jitter: one_way / 5, rate: Some(Rate::mbit(rate)) };
    let until = BEGIN + WARM_UP + LENGTH;
    let setup = Setup {
        nodes: NODES as usize,
        groups: 1,
        machines: Vec::new(),
        proxies: 0,
        settings: vec![format!("crossword.shards={shards}")],
        between_nodes: Delay::Fixed(0),
        topology: None,
        links: pairs.filter(|(a, b)| a != b).map(|pair| (pair, link)).collect(),
        to_clients: Delay::Fixed(10_000),
        sync: 200_000,
        capacity: Capacity {
            per_input: 5_000,
            per_message: 5_000,
            bytes: Some(Rate::mbit(16_000)),
            disk: Some(Rate::mbit(3_200)),
            ..Capacity::UNLIMITED
        },
        clock_error: Some(50_000),
        end: until,
        seed: 1,
    };
    let value = Bytes::from(vec![7; bytes]);
    let draw = |client: usize, _| {
        let (key, condition, expiry) = (Bytes::from(client.to_string()), Condition::Always, Expiry::Never);
        (client % NODES as usize, Command::Put { key, value: value.clone(), condition, expiry, old: false })
    };
    let clients =
        Clients { count: CLIENTS, from: BEGIN, until, think: 0, patience: 10 * SECOND, draw: Box::new(draw) };
    let load = Load { clients: Some(clients), ..Load::default() };
    let measured = measure(named("crossword"), &setup, load).expect("the settings are known");
    let ended = measured.operations.iter().filter(|op| op.succeeded).filter_map(|op| op.ended);
    ended.filter(|at| (until - LENGTH..until).contains(at)).count() as u64 * SECOND / LENGTH
}

/// Links of 1 Gbit/s are not full, so bytes under way hardly vary; those of 100 Mbit/s are.
#[test]
fn the_chooser_is_within_a_tenth_of_the_best_number_of_shards() {
    for link in [(1000, Duration::from_millis(4)), (100, Duration::from_millis(1))] {
        let fixed = ["1", "2", "3"].map(|shards| writes(shards, 64_000, link));
        let chosen = writes("auto", 64_000, link);
        let best = fixed.into_iter().max().expect("there are three");
        assert!(chosen * 10 >= best * 9, "{} Mbit/s: {chosen}, and with 1, 2 and 3 shards {fixed:?}", link.0);
    }
}
