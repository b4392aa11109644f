//! Each safety rule of values in shards whose number changes, weakened on purpose.

use crate::assert_goes_wrong;

caught! { "crossword",
    a_value_that_is_chosen_though_lost_voters_take_its_shards: "slots/nobody-is-lost", of 5;
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
