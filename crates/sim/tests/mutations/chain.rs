//! Each safety rule of Chain Replication, weakened on purpose.

use crate::RESTLESS;

caught! { "chain",
    // Every `AfterSync` made `Now`, and what must be durable not so.
    a_ballot_that_is_prepared_before_it_is_durable: "now/Prepare" with RESTLESS, at 90;
    a_promise_that_is_given_before_it_is_durable: "now/Promise" with RESTLESS, at 27;
    an_entry_that_goes_on_before_it_is_durable: "now/Stored", at 36;
    a_snapshot_that_counts_before_it_is_durable: "log/snapshot-not-durable"
        with &["log.retain=0", "heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"], at 9;
    // Epochs and the log.
    a_head_with_any_log: "epochs/any-candidate" with RESTLESS;
    what_is_said_in_another_epoch: "chain/foreign-epochs" with RESTLESS;
    a_commit_without_an_entry_of_the_own_epoch: "chain/commit-earlier-epochs" with RESTLESS, at 1;
    a_new_link_on_which_nothing_is_sent_again: "chain/links-agree-unseen" with RESTLESS, at 2;
    // A lost disk.
    a_promise_of_one_that_has_lost_its_disk: "rejoin/at-once", under "all,replaced-disks";
    a_promise_of_one_that_lacks_what_its_disk_had: "rejoin/any-log", under "all,replaced-disks", at 2;
    a_promise_that_a_lost_disk_had_ruled_out: "rejoin/any-ballot" with RESTLESS, under "all,replaced-disks", at 104;
    a_ballot_that_rules_out_no_lease_of_a_lost_disk: "epochs/rejoins-while-leased" with RESTLESS,
        under "crashes,stalls,partitions,replaced-disks", at 414;
    // Who is left out.
    a_member_that_is_taken_in_while_a_slow_chain_has_just_begun: "chain/in-too-soon" with &["reads=eager-alr"],
        of 7, under "all,-replaced-disks", at 1883;
    // Reads.
    a_lease_that_outlives_its_epoch: "epochs/promise-while-leased";
    a_tail_that_reads_before_it_has_executed_its_log: "chain/restarted-tail-reads", at 100;
}

/// It is the tail, and what its earlier life has shown comes in several messages.
#[test]
fn a_member_of_a_chain_that_has_lost_its_disk() {
    let text = trace!("chain", "chain-of-a-lost-disk");
    let is_stale = |text: &str| text.contains("p2 #11 = Value(Some(b\"old\"))");
    crate::assert_goes_wrong("chain", "epochs/live-where-it-was-lost", text, is_stale);
}

/// It has nothing, and is sent what comes behind all that it had.
#[test]
fn one_outside_that_has_lost_its_disk() {
    let waits = |text: &str| text.contains("r3 rejoining leader r1 ballot 2.1 committed 0 applied 0");
    let text = trace!("chain", "disk-of-one-outside");
    crate::assert_goes_wrong("chain", "chain/links-to-a-lost-disk", text, waits);
}

/// It would be one that rejoins after a loss of power, when another disk has been replaced.
#[test]
fn one_whose_new_disk_does_not_say_yet_that_it_promises() {
    let takes_part = |text: &str| !text.contains("r2 rejoining leader r1");
    crate::assert_goes_wrong("chain", "now/RejoinReply", trace!("chain", "disk-that-is-lost"), takes_part);
}

#[test]
fn a_ballot_that_is_taken_without_a_poll() {
    let text = trace!("chain", "member-that-is-cut-off");
    let disturbs = |text: &str| text.contains("r1 leader leader r1 ballot 3.1");
    crate::assert_goes_wrong("chain", "epochs/no-poll", text, disturbs);
}

/// Two candidates that cannot reach each other take the promise of the third in turn.
#[test]
fn a_promise_that_is_taken_back_before_its_epoch_is_stated() {
    let text = trace!("chain", "promise-that-is-not-taken-back");
    let begins_anew = |text: &str| !text.contains("r1 leader leader r1 ballot 1.1");
    crate::assert_goes_wrong("chain", "epochs/promises-taken-back", text, begins_anew);
}

/// It is left out, and another epoch is begun for it soon.
#[test]
fn a_promise_that_always_comes_too_late() {
    let text = trace!("chain", "promise-that-comes-late");
    let leaves_out = |text: &str| text.contains("r3 outside");
    crate::assert_goes_wrong("chain", "epochs/late-promises", text, leaves_out);
}

/// It takes an entry that one member has alone, an epoch without it, and its restart when it has heard of that and got
/// nothing yet.
#[test]
fn a_log_of_an_earlier_epoch_that_is_taken_for_the_heads() {
    let text = trace!("chain", "log-of-an-earlier-epoch");
    let has_executed_it = |text: &str| text.contains("r2 outside leader r3 ballot 2.3 committed 4 applied 4");
    crate::assert_goes_wrong("chain", "chain/log-of-an-earlier-epoch", text, has_executed_it);
}

/// Reads wait for it.
#[test]
fn a_tail_that_has_no_leases() {
    let text = trace!("chain", "tail-without-leases");
    let waits = |text: &str| !text.contains("p1 #2 = Value");
    crate::assert_goes_wrong("chain", "chain/readers-without-leases", text, waits);
}

/// Nobody reads for as long as it stays.
#[test]
fn a_head_whose_tail_gets_no_leases() {
    let text = trace!("chain", "head-whose-tail-has-no-leases");
    let stays = |text: &str| !text.contains("r2 leader leader r2");
    crate::assert_goes_wrong("chain", "chain/leaseless-head-stays", text, stays);
}

/// They are waited for, and the write that the disk of a member of the chain holds up takes no effect.
#[test]
fn members_that_cannot_come_near() {
    let text = trace!("chain", "members-that-cannot-come-near");
    let waits = |text: &str| !text.contains("p1 #4 = Done");
    crate::assert_goes_wrong("chain", "chain/near-in-vain", text, waits);
}

/// Each write waits for it.
#[test]
fn a_slow_member_that_gets_on() {
    let text = trace!("chain", "slow-member-that-gets-on");
    let waits = |text: &str| !text.contains("p2 #8 = Done");
    crate::assert_goes_wrong("chain", "chain/slow-stays", text, waits);
}

/// What is under way begins anew with another chain, which is as slow.
#[test]
fn slow_members_that_are_left_out_when_their_chain_has_just_begun() {
    let text = trace!("chain", "slow-chain-that-has-just-begun");
    let begins_anew = |text: &str| !text.contains("r1 leader leader r1 ballot 1.1");
    crate::assert_goes_wrong("chain", "chain/slow-too-soon", text, begins_anew);
}

/// They are in the chain in turn, and the write is held up by both.
#[test]
fn slow_members_that_are_in_the_chain_in_turn() {
    let text = trace!("chain", "slow-members-in-turn");
    let waits = |text: &str| !text.contains("p1 #1 = Done");
    crate::assert_goes_wrong("chain", "chain/back-in-turn", text, waits);
}

/// A key's time is up while the group has no head, and the next one cannot append another entry at once.
#[test]
fn a_first_entry_that_ends_no_keys_time() {
    let text = trace!("chain", "key-whose-time-is-up");
    let is_stale = |text: &str| text.contains("p3 #3 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("chain", "chain/first-entry-without-time", text, is_stale);
}

#[test]
fn an_entry_that_is_forwarded_before_it_is_durable() {
    let finds = |checker: &str| checker == "update-propagation";
    crate::assert_caught_by("chain", "chain/forward-at-once", &[], 5, crate::PASSING, 179, finds);
}

/// A tail has asked about a read and reads again when another epoch has begun; only then the answers come.
#[test]
fn a_read_that_is_executed_after_its_question() {
    let text = trace!("chain", "read-after-its-question");
    let is_stale = |text: &str| text.matches("= Value(Some(b\"blue\"))").count() > 1;
    crate::assert_goes_wrong("chain", "eager-alr/join-asked", text, is_stale);
}

/// The tail reads in an epoch that is over, and a majority of its chain has heard of no other.
#[test]
fn a_majority_of_the_chain_in_place_of_the_group() {
    let text = trace!("chain", "reader-that-is-left-behind");
    let is_stale = |text: &str| text.matches("= Value(Some(b\"blue\"))").count() > 1;
    crate::assert_goes_wrong("chain", "eager-alr/live-set", text, is_stale);
}

#[test]
fn a_reader_without_leases() {
    crate::assert_reads_alone("chain", " reads=lease", "epochs/reads-without-leases");
}

#[test]
fn eager_reads_that_ask_nobody() {
    crate::assert_reads_alone("chain", " reads=eager-alr", "eager-alr/ask-nobody");
}

/// What the tail has committed meanwhile is lost: its candidate lacks it. (The conversation is one of CRAQ, where the
/// tail promises a reader something as well.)
#[test]
fn a_ballot_that_is_promised_though_the_own_log_has_grown() {
    let text = trace!("chain/craq", "log-that-grows-meanwhile");
    let is_lost = |text: &str| text.contains("r2 persist Promised") && text.contains("r2 outside");
    crate::assert_goes_wrong("craq", "epochs/own-log-has-grown", text, is_lost);
}

/// It was executed before the tail heard of an epoch in which another value was committed.
#[test]
fn a_read_of_an_earlier_epoch_that_is_asked_about_in_the_next_one() {
    let text = trace!("chain", "question-of-an-earlier-epoch");
    let is_stale = |text: &str| text.contains("p3 #3 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("chain", "eager-alr/asked-in-another-epoch", text, is_stale);
}
