//! Weakened rules that an exploration notices: not a seed that happens upon it, but every schedule within the bounds.

use quorate_core::{Protocol, mutation};
use quorate_protocols::multipaxos::MultiPaxos;
use quorate_sim::explore::{Bounds, explore};

/// Through the log, without leases.
fn log() -> Bounds {
    let settings = vec!["reads=log".to_owned()];
    Bounds { ballots: 2, writes: 2, reads: 0, asks: 1, failures: 0, settings, ..Bounds::default() }
}

/// Leases outlast one election, and not two.
fn lease() -> Bounds {
    let settings = vec!["lease.duration=1200ms".to_owned()];
    Bounds { writes: 1, reads: 1, wakes: 1, at_once: true, settings, ..log() }
}

fn assert_found<P: Protocol>(mutation: &str, bounds: &Bounds, checker: &str) {
    let found = mutation::with(mutation, || explore::<P>(bounds, &mut |_| {})).expect("valid bounds");
    println!("{mutation}\n{found}");
    let counterexample = found.counterexample.unwrap_or_else(|| panic!("{mutation} went unnoticed"));
    assert_eq!(counterexample.violation.checker, checker, "{}", counterexample.violation);
}

#[test]
fn a_promise_that_leaves_before_it_is_durable() {
    assert_found::<MultiPaxos>("now/PrepareReply", &Bounds { failures: 1, ..log() }, "machine");
}

#[test]
fn a_vote_that_leaves_before_it_is_durable() {
    assert_found::<MultiPaxos>("now/AcceptReply", &Bounds { failures: 1, ..log() }, "machine");
}
