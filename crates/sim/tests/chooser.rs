//! Crossword's chooser beside every fixed number of shards, while rates change, and what it spares the logs.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use quorate_check::{Nanos, SECOND};
use quorate_core::{Fact, Link, NodeId, Random, Rate};
use quorate_protocols::registry::named;
use quorate_sim::experiment::{Act, Capacity, Clients, Delay, Load, Measured, Setup, measure};
use quorate_store::{Command, Condition, Expiry};

const NODES: u64 = 5;
const CLIENTS: usize = 15;
/// There is a leader by then.
const BEGIN: Nanos = 3 * SECOND;
/// The chooser has samples of both ends of its line by then.
const WARM_UP: Nanos = SECOND;
/// How long is counted.
const LENGTH: Nanos = SECOND / 2;

fn pairs() -> impl Iterator<Item = (NodeId, NodeId)> {
    let node = |id| NodeId::new(id).unwrap();
    (1..=NODES).flat_map(move |a| (1..=NODES).map(move |b| (node(a), node(b)))).filter(|(a, b)| a != b)
}

/// So many Mbit/s, and so long a round trip, a tenth of which is jitter.
fn link((rate, round_trip): (u64, Duration)) -> Link {
    let one_way = round_trip / 2;
    Link { delay: one_way * 9 / 10, jitter: one_way / 5, rate: Some(Rate::mbit(rate)) }
}

/// What clients ask for.
#[derive(Clone, Copy)]
enum Asks {
    /// Writes of so many bytes.
    Writes(usize),
    /// The same, within a tenth, and as many reads, of a hundred keys.
    Mix(usize),
}

/// Clients in closed loops, three at each of five nodes, over links that are alike.
fn run(
    (protocol, settings): (&str, &[String]),
    asks: Asks,
    at_first: (u64, Duration),
    acts: Vec<(Nanos, Act)>,
    until: Nanos,
) -> Measured {
    let setup = Setup {
        links: pairs().map(|pair| (pair, link(at_first))).collect(),
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
        ..Setup::instant(NODES as usize, settings, until)
    };
    let (Asks::Writes(bytes) | Asks::Mix(bytes)) = asks;
    let value = Bytes::from(vec![7; bytes + bytes / 10]);
    let mut random = Random::new(5);
    let draw = |client: usize, _| {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let (key, value) = match asks {
            Asks::Writes(_) => (client.to_string(), Some(value.slice(..bytes))),
            Asks::Mix(_) => {
                let key = random.range(0..100).to_string();
                let bytes = random.range(bytes as u64 * 9 / 10..value.len() as u64) as usize;
                (key, random.chance(0.5).then(|| value.slice(..bytes)))
            }
        };
        let key = Bytes::from(key);
        let command = match value {
            Some(value) => Command::Put { key, value, condition, expiry, old: false },
            None => Command::Get { key },
        };
        (client % NODES as usize, command)
    };
    let clients =
        Clients { count: CLIENTS, from: BEGIN, until, think: 0, patience: 2 * SECOND, draw: Box::new(draw) };
    let load = Load { clients: Some(clients), acts, ..Load::default() };
    measure(named(protocol), &setup, load).expect("the settings are known")
}

/// How many writes a second are answered with this number of shards, once the chooser has learned.
fn throughput(shards: &str, bytes: usize, link: (u64, Duration)) -> u64 {
    let until = BEGIN + WARM_UP + LENGTH;
    let settings = [format!("crossword.shards={shards}")];
    let measured = run(("crossword", &settings), Asks::Writes(bytes), link, Vec::new(), until);
    let ended = measured.operations.iter().filter(|op| op.succeeded).filter_map(|op| op.ended);
    ended.filter(|at| (until - LENGTH..until).contains(at)).count() as u64 * SECOND / LENGTH
}

/// Links of 1 Gbit/s are not full, so bytes under way hardly vary; those of 100 Mbit/s are.
#[test]
fn the_chooser_is_within_a_tenth_of_the_best_number_of_shards() {
    for link in [(1000, Duration::from_millis(4)), (100, Duration::from_millis(1))] {
        let fixed = ["1", "2", "3"].map(|shards| throughput(shards, 64_000, link));
        let chosen = throughput("auto", 64_000, link);
        let best = fixed.into_iter().max().expect("there are three");
        assert!(chosen * 10 >= best * 9, "{} Mbit/s: {chosen}, and with 1, 2 and 3 shards {fixed:?}", link.0);
    }
}

/// How large a part of the values that followers stored in this time, each at first, were shards.
fn share_in_shards(measured: &Measured, (from, to): (Nanos, Nanos)) -> f64 {
    let (_, leader) = measured.elected_after(0).last().expect("somebody leads");
    let mut first: BTreeMap<(NodeId, u64), (Nanos, bool)> = BTreeMap::new();
    for (at, node, fact) in &measured.values {
        if let Fact::Stored { slot, data, .. } = fact
            && *node != leader
        {
            first.entry((*node, *slot)).or_insert((*at, *data > 1));
        }
    }
    let stored: Vec<_> = first.into_values().filter(|(at, _)| (from..to).contains(at)).collect();
    assert!(stored.len() > 20, "{} values stored", stored.len());
    stored.iter().filter(|(_, in_shards)| *in_shards).count() as f64 / stored.len() as f64
}

/// Links have 20 Gbit/s, then 100 Mbit/s, then 20 Gbit/s again, as when nodes read a topology's file on SIGHUP. What is
/// under way takes less than a tenth of the round trip on the fast ones, and two round trips on the slow ones.
#[test]
fn the_chooser_follows_rates_that_change_within_three_seconds() {
    let settings = ["crossword.shards=auto".to_owned()];
    let (round_trip, follows) = (Duration::from_millis(40), 3 * SECOND);
    let (fast, slow) = ((20_000, round_trip), (100, round_trip));
    let slower = BEGIN + follows + LENGTH;
    let faster = slower + follows + LENGTH;
    let change = |at, to| pairs().map(move |(a, b)| (at, Act::Link(a, b, link(to))));
    let acts = change(slower, slow).chain(change(faster, fast)).collect();
    let measured = run(("crossword", &settings), Asks::Writes(64_000), fast, acts, faster + follows + LENGTH);
    let shares = [BEGIN, slower, faster].map(|change| {
        let from = change + follows;
        share_in_shards(&measured, (from, from + LENGTH))
    });
    let [before, while_slow, after] = shares;
    println!("{shares:?}");
    assert!(before < 0.05 && while_slow > 0.95 && after < 0.05, "{shares:?}");
}

/// The same from seven seconds after the leader's death on, where another leads; and how many slots other followers
/// were behind it at most from five seconds after on.
pub fn share_in_shards_and_lag_without_a_leader() -> (f64, u64) {
    let link = (1000, Duration::from_millis(4));
    let dies = BEGIN + WARM_UP;
    let end = dies + 9 * SECOND;
    let asks = Asks::Mix(64_000);
    let settings = ["election.timeout=1500ms".to_owned()];
    let measured = run(("crossword", &settings), asks, link, vec![(dies, Act::CrashLeader)], end);
    let elected: Vec<_> = measured.elected_after(0).map(|(_, leader)| leader).collect();
    let [dead, .., leader] = elected[..] else { panic!("elected: {elected:?}") };
    let times = (dies + 5 * SECOND..end).step_by((SECOND / 4) as usize);
    let followers = || (1..=NODES).filter_map(NodeId::new).filter(|node| ![dead, leader].contains(node));
    let lags = times.flat_map(|at| followers().map(move |node| (at, node)));
    let lags =
        lags.map(|(at, node)| measured.executed(leader, at).saturating_sub(measured.executed(node, at)));
    (share_in_shards(&measured, (end - 2 * SECOND, end)), lags.max().expect("there are some"))
}

/// Each follower gathers what it lacks from the others that are there.
#[test]
fn values_are_sent_in_shards_again_where_the_leader_has_died() {
    let (share, lag) = share_in_shards_and_lag_without_a_leader();
    assert!(share > 0.9 && lag < 200, "{share}, {lag} slots");
}

/// Of records that all nodes write, for each write of a client. The paper's logs are 38% smaller (C-9.5).
#[test]
fn logs_of_values_in_shards_are_much_smaller_than_those_of_whole_values() {
    let logged = |protocol| {
        let link = (100, Duration::from_millis(1));
        let measured = run((protocol, &[]), Asks::Writes(64_000), link, Vec::new(), BEGIN + WARM_UP + LENGTH);
        let written = measured.operations.iter().filter(|op| op.succeeded).count() as u64;
        assert!(written > 20, "{protocol}: {written}");
        measured.logged.values().sum::<u64>() / written
    };
    let (coded, whole) = (logged("crossword"), logged("multipaxos"));
    println!("bytes for each write: {coded}, and whole {whole}");
    assert!(coded * 100 <= whole * 62, "bytes for each write: {coded}, and whole {whole}");
}
