//! Every behaviour of small clusters of the real protocols, as far as seconds go. Larger ones: `quorate sim --explore`.

use std::time::Duration;

use quorate_core::{NodeId, NodeSet};
use quorate_explore::{Bounds, Explored, explore};
use quorate_protocols::registry::named;

fn bounds(settings: &[&str]) -> Bounds {
    let settings = settings.iter().map(ToString::to_string).collect();
    Bounds { ballots: 2, writes: 1, reads: 0, settings, ..Bounds::default() }
}

/// Explores, and expects to visit at least so many states and all that there are.
fn assert_explored(protocol: &str, bounds: &Bounds, states: usize) -> Explored {
    let found = explore(named(protocol), bounds, &mut |_| {}).expect("valid bounds");
    println!("{bounds:?}\n{found}");
    assert!(found.counterexample.is_none() && found.exhausted, "{found}");
    assert!(found.states >= states, "the search has become blind: {found}");
    found
}

#[test]
fn multipaxos_agrees_through_two_ballots() {
    assert_explored("multipaxos", &Bounds { writes: 2, ..bounds(&["reads=log"]) }, 10_000);
}

#[test]
fn multipaxos_agrees_through_three_ballots() {
    assert_explored("multipaxos", &Bounds { ballots: 3, ..bounds(&["reads=log"]) }, 10_000);
}

#[test]
fn multipaxos_survives_a_crash_that_loses_what_was_not_durable() {
    assert_explored("multipaxos", &Bounds { failures: 1, ..bounds(&["reads=log"]) }, 10_000);
}

#[test]
fn multipaxos_reads_through_the_log() {
    assert_explored("multipaxos", &Bounds { reads: 1, waiting: true, ..bounds(&["reads=log"]) }, 10_000);
}

#[test]
fn multipaxos_reads_under_leases() {
    assert_explored("multipaxos", &Bounds { reads: 2, ..bounds(&[]) }, 10_000);
}

#[test]
fn bodega_reads_at_all_responders_through_two_ballots() {
    assert_explored("bodega", &Bounds { reads: 1, facts: true, ..bounds(&[]) }, 10_000);
}

#[test]
fn bodega_holds_reads() {
    let held = Bounds { ballots: 1, reads: 1, waiting: true, ..bounds(&[]) };
    assert_explored("bodega", &held, 1_000);
}

#[test]
fn bodega_changes_its_roster() {
    let rosters = vec![NodeId::new(3).into_iter().collect::<NodeSet>()];
    let change = Bounds { ballots: 1, reads: 1, rosters, ..bounds(&["responders=none"]) };
    assert_explored("bodega", &change, 5_000);
}

/// The size of the paper's model: three ballots, two writes, two reads, a crash.
#[test]
fn bodega_at_the_size_of_its_paper_where_nothing_is_delayed() {
    let paper = Bounds { failures: 1, facts: true, delays: Some(0), ..Bounds::default() };
    assert_explored("bodega", &paper, 60_000);
}

/// Each replica proposes what it is asked, and any recovers what does not get on. It looks twice, and is patient for
/// up to 300 ms in between.
fn leaderless() -> Bounds {
    let pace = Duration::from_millis(350);
    Bounds { ballots: 1, pace, ..bounds(&["heartbeat=50ms", "recovery.timeout=150ms"]) }
}

#[test]
fn epaxos_recovers_what_its_owner_left() {
    assert_explored("epaxos", &leaderless(), 3_000);
}

#[test]
fn epaxos_recovers_twice() {
    assert_explored("epaxos", &Bounds { ballots: 2, ..leaderless() }, 180_000);
}

#[test]
fn epaxos_recovers_what_a_crash_has_left() {
    let crash = Bounds { failures: 1, delays: Some(1), ..leaderless() };
    assert_explored("epaxos", &crash, 5_000);
}

#[test]
fn epaxos_orders_two_writes() {
    assert_explored("epaxos", &Bounds { ballots: 0, writes: 2, ..leaderless() }, 40_000);
}

#[test]
fn delays_only_add_behaviours() {
    let few = |delays| Bounds { reads: 1, facts: true, delays: Some(delays), ..bounds(&[]) };
    let none = assert_explored("bodega", &few(0), 200);
    assert_explored("bodega", &few(1), none.states + 1);
}

#[test]
fn messages_that_overtake_each_other_and_hints_only_add_behaviours() {
    let plain = assert_explored("multipaxos", &bounds(&["reads=log"]), 300);
    let more = Bounds { reorder: true, hints: true, ..bounds(&["reads=log"]) };
    assert_explored("multipaxos", &more, plain.states + 1);
}

#[test]
fn the_same_bounds_give_the_same_search() {
    let once = || explore(named("multipaxos"), &bounds(&["reads=log"]), &mut |_| {}).unwrap().to_string();
    assert_eq!(once(), once());
}

#[test]
fn a_bound_on_states_is_kept_and_told() {
    let found =
        explore(named("multipaxos"), &Bounds { states: 100, ..bounds(&["reads=log"]) }, &mut |_| {}).unwrap();
    assert!(found.states == 100 && !found.exhausted, "{found}");
}

#[test]
fn what_cannot_be_explored_is_refused() {
    let refused =
        |bounds: &Bounds| explore(named("multipaxos"), bounds, &mut |_| {}).unwrap_err().to_string();
    let why = refused(&Bounds { nodes: 6, ..bounds(&[]) });
    assert!(why.contains("1 to 5 nodes"), "{why}");
    let why = refused(&Bounds { writes: 9, ..bounds(&[]) });
    assert!(why.contains("at most 8"), "{why}");
    let why = refused(&bounds(&["colour=blue"]));
    assert!(why.contains("colour"), "{why}");
    let why = refused(&Bounds { rosters: vec![NodeSet::EMPTY], ..bounds(&[]) });
    assert!(why.contains("has no rosters"), "{why}");
}
