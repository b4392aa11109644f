//! Each safety rule of values in shards whose number changes, weakened on purpose.

use std::panic::catch_unwind;

use quorate_core::mutation;
use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

use crate::{PASSING, assert_caught_by, assert_goes_wrong};

/// A shard for each: more can go wrong.
const ONE: &[&str] = &["crossword.shards=1"];

/// As above, while ballots change often.
const RESTLESS_ONE: &[&str] =
    &["crossword.shards=1", "heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"];

/// Some get all of the value, and one a single shard.
const TABLE: &[&str] = &["crossword.shards=8,5/1:5,2:5,3:5,4:3,5:1"];

caught! { "crossword",
    a_value_that_is_chosen_though_lost_voters_take_its_shards: "slots/nobody-is-lost" with ONE, of 5;
    a_value_of_a_table_that_is_chosen_though_lost_voters_take_its_shards: "slots/nobody-is-lost" with TABLE, of 5, at 1;
    a_value_that_is_executed_in_part: "slots/partial-is-complete" with ONE, of 5;
    a_value_of_a_table_that_is_executed_in_part: "slots/partial-is-complete" with TABLE, of 5, at 1;
    a_candidate_that_prepares_before_its_promise_is_durable: "now/Prepare" with ONE, of 5, at 446;
    a_promise_that_leaves_before_it_is_durable: "now/PrepareReply" with RESTLESS_ONE, of 5, at 313;
}

/// What shards restore has the digest that the value had.
#[test]
fn shards_that_are_not_those_that_they_are_said_to_be() {
    assert_caught_by("crossword", "coding/mislabelled-shards", ONE, 5, PASSING, 28, |checker| {
        checker == "assertion"
    });
}

/// Before anybody is lost: it is not on enough disks.
#[test]
fn a_value_that_is_on_too_few_disks() {
    let finds = |checker: &str| checker == "recoverability";
    assert_caught_by("crossword", "slots/nobody-is-lost", ONE, 5, PASSING, 0, finds);
    assert_caught_by("crossword", "now/AcceptReply", ONE, 5, PASSING, 0, finds);
}

/// Whoever asks in the end does not get what was acknowledged.
fn is_lost(text: &str) -> bool {
    text.contains("get p3 color") && !text.contains("= Value(Some(b\"blue\"))")
}

#[test]
fn shards_that_count_in_the_highest_ballot_only() {
    let text = trace!("paxos/crossword", "shards-of-two-ballots");
    assert_goes_wrong("crossword", "slots/shards-of-one-ballot", text, is_lost);
}

#[test]
fn shards_that_are_replaced_by_fewer_of_the_same_value() {
    let text = trace!("paxos/crossword", "smaller-assignment");
    assert_goes_wrong("crossword", "slots/shards-replaced", text, is_lost);
}

/// Two acceptors beside the leader have a shard each, and it answers the client.
#[test]
fn a_late_reply_that_is_counted_by_a_later_assignment() {
    let text = trace!("paxos/crossword", "late-reply");
    let answers = |text: &str| text.contains("p1 #2 = Done");
    assert_goes_wrong("crossword", "slots/held-as-assigned", text, answers);
}

/// All but one have voted, and without two of these there are too few shards.
#[test]
fn a_value_of_a_table_that_is_chosen_by_those_who_may_be_lost() {
    let text = trace!("paxos/crossword", "left-with-too-few");
    let lost = |text: &str| text.contains("p1 #2 = Done") && !text.contains("= Value(Some(b\"blue\"))");
    assert_goes_wrong("crossword", "slots/nobody-is-lost", text, lost);
}

/// Nodes 4 and 5 do not get the second shard that each needs.
#[test]
fn a_table_that_gives_no_more_where_voters_are_missing() {
    let text = trace!("paxos/crossword", "unbalanced");
    let stops = |text: &str| !text.contains("p1 #2 = Done");
    assert_goes_wrong("crossword", "slots/never-more-shards", text, stops);
}

/// What they restore is not the value that is chosen, and the replica stops.
#[test]
fn shards_that_are_gathered_of_whatever_value() {
    let text = trace!("paxos/crossword", "shards-of-another-value");
    let played = || play(named("crossword"), text).expect("the script is right");
    assert_eq!(played(), text, "as it should be");
    let stopped = catch_unwind(|| mutation::with("gossip/any-value", played)).expect_err("a replica stops");
    let said = stopped.downcast_ref::<String>().expect("it says why");
    assert!(said.contains("two values chosen for slot 3"), "{said}");
}

/// Two of the voters have no shard of it, and cannot read what is sent to them.
#[test]
fn a_value_that_is_proposed_again_in_shards_of_a_former_group() {
    let text = trace!("paxos/crossword", "code-of-a-former-group");
    let played = || play(named("crossword"), text).expect("the script is right");
    assert_eq!(played(), text, "as it should be");
    let weakened = || mutation::with("paxos/code-of-a-former-group", played);
    let stopped = catch_unwind(weakened).expect_err("a message cannot be read");
    let said = stopped.downcast_ref::<String>().expect("it says why");
    assert!(said.contains("number of shards held"), "{said}");
}

/// A voter of few shards whose disk hangs does not get the others: those who have them need more.
#[test]
fn a_voter_that_counts_as_having_the_shards_it_was_sent() {
    let text = trace!("paxos/crossword", "disk-that-hangs-later");
    let stops = |text: &str| !text.contains("p1 #1 = Done");
    assert_goes_wrong("crossword", "slots/short-voters-support", text, stops);
}

/// Crossword goes on without two of five where RSPaxos stops, whichever protocol plays the script.
#[test]
fn shards_that_are_never_more_than_at_first() {
    let text = trace!("paxos/crossword", "two-that-are-lost");
    let stops = |text: &str| !text.contains("p1 #1 = Done");
    assert_goes_wrong("crossword", "slots/never-more-shards", text, stops);
}
