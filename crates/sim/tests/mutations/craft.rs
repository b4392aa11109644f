//! Each safety rule of entries in shards, weakened on purpose.

use crate::assert_goes_wrong;

/// Short waits, for more elections in a run.
const RESTLESS: &[&str] =
    &["heartbeat=10ms", "election.timeout=50ms", "lease.drift=4ms", "proxy.patience=40ms"];

caught! { "craft",
    an_entry_in_shards_that_a_bare_majority_commits: "craft/bare-majority-of-shards", of 5, under "all", at 84;
    a_fallback_after_which_a_bare_majority_of_shards_is_enough:
        "craft/bare-majority-after-fallback", of 5, under "all", at 164;
    an_entry_that_is_dropped_before_a_majority_has_answered:
        "craft/drop-with-too-few-answers", of 5, under "all", at 19;
    an_entry_that_is_dropped_although_another_has_executed_it: "craft/states-ignored", of 5, under "all", at 8;
    an_entry_that_is_executed_without_its_value: "log/partial-executed", of 5, under "all";
    a_candidate_whose_own_vote_is_not_durable: "now/Vote", of 5, at 1229;
    a_vote_that_is_given_before_it_is_durable: "now/VoteReply" with RESTLESS,
        under "crashes,slow-disks,loss,reordering,partitions", at 33;
    an_entry_that_is_acknowledged_before_it_is_durable: "now/AppendReply", of 5, under "all", at 49;
    a_shard_that_is_acknowledged_before_it_is_durable: "now/PartialReply", of 5, under "all", at 50;
}

/// How the scripted conversations below end: the write that was answered is still there. Each takes several rare events
/// in a row, which no seed can be expected to find.
const KEPT: &str = " #3 = Value(Some(b\"blue\"))";

#[test]
fn what_is_told_to_a_new_leader_before_its_term_is_durable() {
    let text = trace!("raft/craft", "shards-before-the-term");
    assert_goes_wrong("craft", "now/Shards", text, |text| !text.contains(KEPT));
}

#[test]
fn a_configuration_that_is_committed_over_shards() {
    let text = trace!("raft/craft", "configuration-over-shards");
    assert_goes_wrong("craft", "craft/configuration-over-shards", text, |text| !text.contains(KEPT));
}

#[test]
fn an_entry_that_is_in_the_state_and_stays_in_shards_on_the_disk() {
    let text = trace!("raft/craft", "executed-and-gone-from-the-log");
    assert_goes_wrong("craft", "craft/executed-stays-in-shards", text, |text| !text.contains(KEPT));
}
