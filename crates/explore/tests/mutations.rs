//! Weakened rules that an exploration notices: not a seed that happens upon it, but every schedule within the bounds.
#![cfg(feature = "mutations")]

use std::time::Duration;

use quorate_core::{NodeId, mutation};
use quorate_explore::{Bounds, explore};
use quorate_protocols::registry::named;

/// One ballot, one write, one read.
fn tiny(settings: &[&str]) -> Bounds {
    let settings = settings.iter().map(ToString::to_string).collect();
    Bounds { ballots: 1, writes: 1, reads: 1, settings, ..Bounds::default() }
}

/// Through the log, without leases, with a crash and few delays.
fn crash() -> Bounds {
    Bounds { ballots: 2, writes: 2, reads: 0, failures: 1, delays: Some(2), ..tiny(&["reads=log"]) }
}

/// An operator makes the third replica the only responder.
fn change() -> Bounds {
    Bounds { rosters: vec![NodeId::new(3).into_iter().collect()], ..tiny(&["responders=none"]) }
}

/// Without a leader: one write, one recovery by whichever replica, and a crash.
fn recovery() -> Bounds {
    let settings = ["heartbeat=50ms", "recovery.timeout=150ms"];
    Bounds { reads: 0, failures: 1, pace: Duration::from_millis(350), ..tiny(&settings) }
}

fn assert_found(protocol: &str, mutation: &str, bounds: &Bounds, checker: &str) {
    let found =
        mutation::with(mutation, || explore(named(protocol), bounds, &mut |_| {})).expect("valid bounds");
    println!("{mutation}\n{found}");
    let counterexample = found.counterexample.unwrap_or_else(|| panic!("{mutation} went unnoticed"));
    assert_eq!(counterexample.violation.checker, checker, "{}", counterexample.violation);
}

#[test]
fn a_promise_that_leaves_before_it_is_durable() {
    assert_found("multipaxos", "now/PrepareReply", &crash(), "agreement");
}

#[test]
fn a_vote_that_leaves_before_it_is_durable() {
    assert_found("multipaxos", "now/AcceptReply", &crash(), "agreement");
}

#[test]
fn a_commit_on_the_fast_path_that_its_owner_may_forget() {
    assert_found("epaxos", "now/Commit", &recovery(), "instances");
}

#[test]
fn a_pre_acceptance_that_leaves_before_it_is_durable() {
    assert_found("epaxos", "now/PreAcceptReply", &recovery(), "instances");
}

#[test]
fn responders_of_one_key_of_a_batch_only() {
    assert_found("bodega", "bodega/one-key-of-a-batch", &change(), "linearizability");
}

/// Two writes, of which the new responder knows the first, and its grantor the second.
#[test]
fn a_threshold_that_is_the_first_hole() {
    let holes = Bounds { writes: 2, wakes: 1, facts: true, delays: Some(2), ..change() };
    assert_found("bodega", "paxos/threshold-at-the-first-hole", &holes, "linearizability");
}

#[test]
fn a_leader_that_answers_from_what_is_committed() {
    let held = Bounds { reads: 2, waiting: true, ..tiny(&[]) };
    assert_found("bodega", "bodega/leader-answers-committed", &held, "linearizability");
}

#[test]
fn reads_that_are_released_at_m_notes() {
    assert_found(
        "bodega",
        "bodega/released-at-m-notes",
        &Bounds { reads: 2, ..tiny(&[]) },
        "linearizability",
    );
}

#[test]
fn a_leader_that_serves_before_it_has_executed_what_phase_one_found() {
    assert_found(
        "multipaxos",
        "paxos/read-before-recovery",
        &Bounds { ballots: 2, ..tiny(&[]) },
        "linearizability",
    );
}

#[test]
fn a_higher_ballot_that_is_promised_although_a_lease_binds() {
    assert_found("multipaxos", "paxos/no-release", &Bounds { ballots: 2, ..tiny(&[]) }, "leases");
}

/// At the size of the paper's model, with few delays.
#[test]
fn a_few_delays_reveal_much() {
    let paper = |delays| Bounds { facts: true, delays: Some(delays), ..Bounds::default() };
    assert_found("bodega", "bodega/leader-answers-committed", &paper(1), "linearizability");
    assert_found("bodega", "bodega/released-at-m-notes", &paper(2), "linearizability");
}
