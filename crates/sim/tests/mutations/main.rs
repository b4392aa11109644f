//! Each safety rule, weakened on purpose: some seed must notice. A rule whose removal goes unnoticed is either not
//! needed or not tested.
#![cfg(feature = "mutations")]

use quorate_check::{MILLISECOND, Nanos, SECOND, linearizability};
use quorate_core::mutation;
use quorate_protocols::registry::{self, named};
use quorate_sim::scenario::play;
use quorate_sim::{Options, caught};

/// All kinds but those after which nodes are gone or slow for good: less happens in such runs.
const PASSING: &str =
    "all,-lost-nodes,-hung-disks,-slow-nodes,-wide-clocks,-wiped-disks,-rolled-back-disks,-replaced-disks";

/// Short waits, for more elections, ballots or epochs in a run.
const RESTLESS: &[&str] = &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"];

/// Within so many seeds.
const SEEDS: u64 = 2000;

fn assert_caught(protocol: &str, mutation: &str, settings: &[&str], nodes: usize, faults: &str, known: u64) {
    assert_caught_by(protocol, mutation, settings, nodes, faults, known, |_| true);
}

/// As above, by a checker that counts.
fn assert_caught_by(
    protocol: &str,
    mutation: &str,
    settings: &[&str],
    nodes: usize,
    faults: &str,
    known: u64,
    counts: impl Fn(&str) -> bool,
) {
    let settings = settings.iter().map(ToString::to_string).collect();
    let faults = faults.parse().expect("kinds of faults");
    search(protocol, mutation, Options { settings, nodes, faults, ..Options::default() }, known, counts);
}

/// Runs with these options, until one goes wrong by a checker that counts. A seed that has caught it before is tried
/// first: most of the searching is saved, and when runs have changed, the search says which seed it is now.
fn search(protocol: &str, mutation: &str, mut options: Options, known: u64, counts: impl Fn(&str) -> bool) {
    for seeds in [known..known + 1, 0..SEEDS] {
        options.seed = seeds.start;
        while options.seed < seeds.end {
            let found =
                caught(named(protocol), mutation, &options, seeds.end - options.seed).expect("valid options");
            let Some((seed, violation)) = found else { break };
            if counts(violation.checker) {
                return println!("{protocol} {mutation}: seed {seed}: {violation:.200}");
            }
            options.seed = seed + 1;
        }
    }
    panic!("{protocol}: {mutation} went unnoticed for {SEEDS} seeds");
}

/// With almost-local reads, and clocks that run at any rate: whoever stands in vain keeps those from standing who could
/// lead, unless it waits longer each time.
fn assert_never_served(protocol: &str, reads: &str, nodes: usize, known: u64) {
    let settings = vec![reads.to_owned()];
    let faults = "all,clocks-beyond-bound,-replaced-disks".parse().expect("kinds of faults");
    let stops = |checker: &str| matches!(checker, "liveness" | "service");
    search(
        protocol,
        "election/no-back-off",
        Options { settings, nodes, faults, ..Options::default() },
        known,
        stops,
    );
}

/// Where several rare events must meet, the conversation is scripted. It is as the text says; with the rule weakened it
/// goes wrong.
fn assert_goes_wrong(protocol: &str, mutation: &str, text: &str, is_wrong: impl Fn(&str) -> bool) {
    assert_eq!(play(named(protocol), text).unwrap(), text, "as it should be");
    let weakened = mutation::with(mutation, || play(named(protocol), text)).unwrap();
    assert!(!is_wrong(text) && is_wrong(&weakened), "{mutation}:\n{weakened}");
}

/// Figure 2 of the LAW paper: a replica to which all is late answers alone.
fn assert_reads_alone(protocol: &str, settings: &str, mutation: &str) {
    let history = mutation::with(mutation, || law::history(protocol, settings));
    assert!(linearizability::check(&history).is_err(), "{mutation}: {history}");
}

/// A node that is to join and is not there does not hold up the group for ever.
fn assert_gives_up(protocol: &str) {
    const SETUP: &str = "nodes 3+1 heartbeat=50ms election.timeout=200ms\nfire r1 Election\nsettle\ncut r1 r4\n\
                         cut r2 r4\ncut r3 r4\nmanage p1 voters=r4\nsettle\n";
    // More than 20 election timeouts.
    let script = SETUP.to_owned() + &"fire r1 Heartbeat\nsettle\n".repeat(100);
    let dropped = |text: &str| text.contains("the change was dropped: node 4 (n4) has made no progress");
    let played = play(named(protocol), &script).unwrap();
    assert!(dropped(&played), "{played}");
    let weakened = mutation::with("membership/wait-for-ever", || play(named(protocol), &script)).unwrap();
    assert!(!dropped(&weakened), "{weakened}");
}

/// Whoever joins takes the state with which a group begins for none, and begins with nothing.
#[test]
fn a_group_begins_with_the_state_of_another_as_if_it_were_no_position() {
    let options = Options { founded: true, ..Options::default() };
    for protocol in ["multipaxos", "raft"] {
        search(protocol, "state/founded-at-zero", options.clone(), 0, |_| true);
    }
}

/// Runs have few clients, and a session has room for 16,384 writes. With room for two, most wait until others are
/// answered.
#[test]
fn writes_that_a_session_has_no_room_for_are_served_when_it_has() {
    for entry in registry::all() {
        let nodes =
            entry.capabilities.min_nodes.max(Options::default().nodes.min(entry.capabilities.max_nodes));
        let options = Options { nodes, clients: 40, ..Options::default() };
        let found = caught(entry.protocol, "narrow/session", &options, 20).expect("valid options");
        assert!(found.is_none(), "{}: {found:?}", entry.name);
    }
}

/// Everything waits for it, or members are blamed for a head's own links, or for what links can carry.
#[test]
fn a_slow_member() {
    for (protocol, family) in [("chain", "chain"), ("craq", "chain"), ("hermes", "hermes")] {
        let is_slow = |name: &str, latency: fn(&str) -> Nanos| {
            let took = mutation::with(&format!("{family}/{name}"), || latency(protocol));
            assert!(took > 400 * MILLISECOND, "{protocol}: {} ms", took / MILLISECOND);
        };
        let begins_epochs = |name: &str, epochs: fn(&str) -> usize| {
            let epochs = mutation::with(&format!("{family}/{name}"), || epochs(protocol));
            assert!(epochs > 0, "{protocol}");
        };
        is_slow("slow-stays", slow_members::latency_with_a_slow_follower);
        begins_epochs("slow-by-much-data", slow_members::epochs_of_much_data);
        match family {
            "chain" => begins_epochs("slow-by-own-links", slow_members::epochs_of_a_slow_head),
            _ => is_slow("slow-owner-stays", slow_members::latency_with_a_slow_owner),
        }
    }
}

/// Resending after a fixed time.
#[test]
fn what_is_on_its_way_over_slow_links_is_not_sent_again() {
    for protocol in ["multipaxos", "raft"] {
        let copies =
            mutation::with("pace/fixed-patience", || slow_links::copies(protocol, &["value.part=8MiB"]));
        assert!(copies > 1.5, "{protocol}: {copies}");
    }
    for (protocol, mutation) in [
        ("hermes", "pace/fixed-patience"),
        ("epaxos", "epaxos/recovers-what-is-on-its-way"),
        ("epaxos", "epaxos/batches-again"),
    ] {
        let copies = mutation::with(mutation, || slow_members::copies_of_much_data(protocol));
        assert!(copies > 1.5, "{protocol}, {mutation}: {copies}");
    }
}

/// Batches of the dead come for each that recovers them, several times, or all at once and each late.
#[test]
fn what_the_dead_have_proposed_keeps_links_full() {
    let least =
        [("recovers-all-at-once", 15), ("batches-again", 15), ("tells-again", 12), ("repeats-batches", 12)];
    for (name, seconds) in least {
        let pause = mutation::with(&format!("epaxos/{name}"), large_recoveries::longest_pause);
        assert!(pause > seconds * SECOND, "{name}: {} ms", pause / MILLISECOND);
    }
}

/// A leader looks dead whose heartbeats wait for all that it writes.
#[test]
fn heartbeats_that_wait_for_writes() {
    for protocol in ["multipaxos", "bodega"] {
        let elections =
            mutation::with("link/writes-are-urgent", || slow_members::elections_over_thin_links(protocol));
        assert!(elections > 0, "{protocol}");
    }
}

/// A member that was away stays behind what is written meanwhile, or is not sent what needs its vote.
#[test]
fn a_member_that_is_behind() {
    for mutation in ["paxos/send-to-those-that-fetch", "paxos/send-to-those-far-behind"] {
        for protocol in ["multipaxos", "crossword"] {
            let share = mutation::with(mutation, || catching_up::share_of_one_behind_a_thin_link(protocol));
            assert!(share > 0.5, "{protocol}, {mutation}: {share}");
        }
    }
    let progress = mutation::with("link/bulk-waits-for-writes", || {
        catching_up::progress_of_one_that_was_away("crossword")
    });
    assert!(progress < 0.1, "{progress}");
    for mutation in ["paxos/nobody-behind-is-needed", "paxos/send-to-those-that-fetch"] {
        let pause =
            mutation::with(mutation, || catching_up::pause_when_one_that_is_behind_is_needed("multipaxos"));
        assert!(pause > 2 * SECOND, "{mutation}: {} ms", pause / MILLISECOND);
    }
}

/// What was sent in shards to one that is dead is sent whole to others late, or again and again.
#[test]
fn values_that_follow_their_shards() {
    let without_a_follower = |mutation| {
        mutation::with(mutation, || {
            catching_up::writes_without_a_follower("crossword", catching_up::SMALL_WRITES)
        })
    };
    let (pause, _) = without_a_follower("slots/wait-for-votes-of-the-dead");
    assert!(pause > SECOND * 3 / 2, "{} ms", pause / MILLISECOND);
    let (_, writes) = without_a_follower("pace/last-copy-is-answered");
    assert!(writes < 2000, "{writes}");
}

/// A follower waits for shards of one that is dead; or what fills a link comes twice, and values stay whole.
#[test]
fn followers_that_do_not_get_on_where_their_leader_has_died() {
    let without_a_leader =
        |mutation| mutation::with(mutation, chooser::share_in_shards_and_lag_without_a_leader);
    let (_, lag) = without_a_leader("gossip/ask-the-silent");
    assert!(lag > 500, "{lag} slots");
    let (share, _) = without_a_leader("paxos/send-what-is-on-its-way");
    assert!(share < 0.5, "{share}");
}

/// A member behind a long link is sent one answer in each round trip.
#[test]
fn one_answer_in_each_round_trip() {
    for (protocol, settings) in long_links::CASES {
        let time =
            mutation::with("catchup/one-at-a-time", || long_links::time_to_catch_up(protocol, settings));
        assert!(time.is_none_or(|time| time > 12 * SECOND), "{protocol}, {settings:?}: {time:?}");
    }
}

/// A group stands still where clients fill its links.
fn assert_stands_still(protocol: &str, mutation: &str, nodes: usize, known: u64) {
    let stops = |checker: &str| matches!(checker, "liveness" | "service");
    search(protocol, mutation, thin_links::full_links(nodes), known, stops);
}

macro_rules! caught {
    ($protocol:literal, $($test:ident: $mutation:literal $(with $settings:expr)? $(, of $nodes:literal)?
        $(, under $faults:literal)? $(, at $seed:literal)?;)*) => {$(
        #[test]
        fn $test() {
            let settings: &[&[&str]] = &[$($settings)?];
            let nodes: &[usize] = &[$($nodes)?];
            let nodes = nodes.first().copied().unwrap_or(3);
            let faults: &[&str] = &[$($faults)?];
            let faults = faults.first().copied().unwrap_or(crate::PASSING);
            let seeds: &[u64] = &[$($seed)?];
            let known = seeds.first().copied().unwrap_or(0);
            crate::assert_caught($protocol, $mutation, &settings.concat(), nodes, faults, known);
        }
    )*};
}

/// A golden conversation of a protocol.
macro_rules! trace {
    ($protocol:literal, $name:literal) => {
        include_str!(concat!("../../../protocols/src/", $protocol, "/traces/", $name, ".txt"))
    };
}

mod bodega;
#[path = "../catching_up.rs"]
mod catching_up;
mod chain;
#[path = "../chooser.rs"]
mod chooser;
mod craft;
mod craq;
mod crossword;
mod epaxos;
mod groups;
mod hermes;
#[path = "../large_recoveries.rs"]
mod large_recoveries;
#[path = "../law.rs"]
mod law;
#[path = "../long_links.rs"]
mod long_links;
mod multipaxos;
mod pqr;
mod primary_copy;
mod quorum_leases;
mod raft;
mod rspaxos;
#[path = "../slow_links.rs"]
mod slow_links;
#[path = "../slow_members.rs"]
mod slow_members;
#[path = "../thin_links.rs"]
mod thin_links;
mod unreplicated;
mod zab;
