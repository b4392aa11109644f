//! Each safety rule of values in shards, weakened on purpose.

use crate::{PASSING, RESTLESS, assert_caught_by, assert_goes_wrong};

caught! { "rspaxos",
    a_value_that_is_chosen_by_a_majority: "slots/nobody-is-lost", of 5;
    a_candidate_that_prepares_before_its_promise_is_durable: "now/Prepare" with RESTLESS, of 5, at 325;
    a_promise_that_leaves_before_it_is_durable: "now/PrepareReply" with RESTLESS, of 5, at 168;
}

/// Before anybody is lost: it is not on enough disks.
#[test]
fn a_value_that_is_on_too_few_disks() {
    let finds = |checker: &str| checker == "recoverability";
    assert_caught_by("rspaxos", "slots/nobody-is-lost", &[], 5, PASSING, 0, finds);
    assert_caught_by("rspaxos", "now/AcceptReply", &[], 5, PASSING, 0, finds);
}

/// A value was chosen in ballot 1, and proposed again to one acceptor in ballot 2: in ballot 3, the highest vote's
/// ballot has one shard.
#[test]
fn shards_that_count_in_the_highest_ballot_only() {
    let text = trace!("paxos/rspaxos", "shards-of-two-ballots");
    let is_lost = |text: &str| text.contains("get p3 color") && !text.contains("= Value(Some(b\"blue\"))");
    assert_goes_wrong("rspaxos", "slots/shards-of-one-ballot", text, is_lost);
}

#[test]
fn a_configuration_that_waits_behind_shards() {
    let text = trace!("paxos/rspaxos", "member-that-leaves");
    let waits = |text: &str| !text.contains("p1 #2 = Done");
    assert_goes_wrong("rspaxos", "lacking/configuration-waits", text, waits);
}

/// A member that has executed a configuration says so, and the one that leaves by it may go.
#[test]
fn a_configuration_that_is_forgotten_in_a_crash() {
    let text = trace!("paxos/rspaxos", "member-that-leaves");
    let (_, restarted) = text.rsplit_once("restart r2").expect("it restarts");
    let configured = "fact Configured { index: 3";
    assert!(restarted.contains(configured), "{restarted}");
    let forgets = |text: &str| {
        text.rsplit_once("restart r2").is_some_and(|(_, restarted)| !restarted.contains(configured))
    };
    assert_goes_wrong("rspaxos", "lacking/configuration-not-kept", text, forgets);
}
