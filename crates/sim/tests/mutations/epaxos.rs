//! Each safety rule of EPaxos*, weakened on purpose.

use std::time::Duration;

use quorate_core::mutation;

use crate::{assert_goes_wrong, thin_links};

/// Owners are suspected soon: more recoveries in a run.
const RESTLESS: &[&str] = &["heartbeat=10ms", "recovery.timeout=30ms", "proxy.patience=40ms"];

/// Traces of executed instances are forgotten all the time.
const FORGETFUL: &[&str] = &["conflicts.keys=1", "log.retain=0"];

caught! { "epaxos",
    // Disks.
    a_replica_that_serves_without_a_disk: "learner/serves-without-a-disk", under "all,hung-disks", at 2;
    // `AfterSync` made `Now`.
    an_index_that_is_given_away_before_it_is_durable: "now/PreAccept" with RESTLESS, at 9;
    a_pre_acceptance_that_leaves_before_it_is_durable: "now/PreAcceptReply" with RESTLESS, at 277;
    a_vote_that_leaves_before_it_is_durable: "now/AcceptReply" with RESTLESS,
        under "crashes,cluster-crashes,slow-disks,loss,partitions", at 1643;
    a_commit_on_the_fast_path_that_its_owner_may_forget: "now/Commit" with RESTLESS, at 248;
    a_replica_that_stops_recoveries_though_its_disk_hangs: "now/Reject", of 7, under "all", at 251;
    recoveries_that_never_wait_for_an_owner_that_is_slow: "epaxos/slow-owner", of 7, under "all", at 2338;
    reads_that_wait_behind_what_was_given_up: "reads/given-up-waits", under "all", at 6235;
    // Ballots and recovery.
    a_recovery_that_validates_nothing: "epaxos/no-validation" with RESTLESS, of 5, at 137;
    a_replica_that_forgets_before_a_majority_agrees: "learner/forgets-alone"
        with FORGETFUL, under "all,lost-nodes", at 39;
    a_replica_that_forgets_before_it_has_executed_what_was_heard_of: "learner/forgets-what-was-heard"
        with FORGETFUL, under "all,lost-nodes", at 39;
    a_dependency_that_nobody_looks_after: "learner/unknown-dependencies", under "all,lost-nodes", at 216;
    an_answer_to_a_rejoining_member_before_it_is_durable: "now/RejoinReply"
        with RESTLESS, of 5, under "all,replaced-disks,crashes", at 148;
    a_disk_that_is_retired_before_all_others_are_there: "admission/replace-at-once", under "vain-replacements";
    a_disk_that_is_retired_by_one_that_does_not_know_it: "admission/replaces-unnamed", of 5,
        under "all,several-replaced-disks", at 137;
    a_snapshot_without_what_its_instances_touch: "learner/no-traces" with FORGETFUL, under "all,lost-nodes", at 11;
    // Execution.
    dependencies_of_the_wrong_parent: "graph/wrong-parent";
    a_time_that_depends_on_the_order_of_others: "state/shared-time";
}

/// These take a crash at one moment, and messages to some and not to others; the conversations are scripted. With the
/// rule, the text is what is said; without it, a write is acknowledged and lost.
fn assert_loses_a_write(mutation: &str, text: &str) {
    let loses = |text: &str| {
        let (_, after) = text.split_once("put p1 k new").expect("it is written");
        after.contains("= Done") && after.contains("= Value(Some(b\"old\"))")
    };
    assert_goes_wrong("epaxos", mutation, text, loses);
}

#[test]
fn a_fast_quorum_that_is_a_majority_of_seven() {
    let text = trace!("epaxos", "fast-quorum-of-five");
    assert_loses_a_write("epaxos/small-fast-quorum", text);
}

#[test]
fn a_ballot_that_is_taken_before_it_is_durable() {
    let text = trace!("epaxos", "ballot-that-is-not-durable");
    assert_loses_a_write("now/Recover", text);
}

#[test]
fn a_ballot_that_is_joined_before_it_is_durable() {
    let text = trace!("epaxos", "promise-that-is-not-durable");
    assert_loses_a_write("now/RecoverReply", text);
}

/// As above; without the rule, two replicas execute what interferes in different orders, and these reads differ.
fn assert_diverges(mutation: &str, text: &str, reads: [&str; 2]) {
    let differ = |text: &str| {
        let read = |name| text.lines().rev().find(|line| line.trim().starts_with(name)).expect("a reply");
        let [one, other] = reads.map(|name| read(name).split_once('=').map(|(_, value)| value));
        one != other
    };
    assert_goes_wrong("epaxos", mutation, text, differ);
}

#[test]
fn a_validation_that_leaves_before_it_is_durable() {
    let text = trace!("epaxos", "validation-that-is-not-durable");
    assert_diverges("now/ValidateReply", text, ["p2 #5 = ", "p3 #6 = "]);
}

/// It takes a vote that nobody hears of, and two recoveries more: one in thousands of runs.
#[test]
fn one_variable_for_both_ballots() {
    let text = trace!("epaxos", "vote-of-a-lower-ballot");
    assert_diverges("epaxos/one-ballot", text, ["p3 #3 = ", "p4 #4 = "]);
}

/// It takes three recoveries at the same time, and a crash between two answers.
#[test]
fn a_ballot_that_was_only_heard_of_is_forgotten() {
    let text = trace!("epaxos", "promise-by-hearsay");
    assert_diverges("epaxos/hearsay-not-durable", text, ["p3 #3 = ", "p4 #4 = "]);
}

#[test]
fn a_recovery_that_judges_what_is_forgotten() {
    let text = trace!("epaxos", "judging-what-is-forgotten");
    assert_diverges("epaxos/judges-what-is-forgotten", text, ["p3 #9 = ", "p4 #10 = "]);
}

/// What this protects is a rule for what may be forgotten, and others make up for it where it is broken.
#[test]
fn a_floor_that_is_not_durable() {
    let text = trace!("epaxos", "progress-that-is-not-durable");
    let breaks_its_word = |text: &str| {
        let (before, after) = text.split_once("crash r1").expect("it crashes");
        let said = before.lines().any(|line| line.contains("r1 -> ") && line.contains("floor: {2.3}"));
        said && after.contains("r1 persist Changed { instance: 1.1") && !after.contains("deps: {2.3}")
    };
    assert_goes_wrong("epaxos", "now/Progress", text, breaks_its_word);
}

/// Nobody but those who depend on it knows of an instance whose owner is gone: they must find out what became of it.
#[test]
fn a_dependency_that_is_not_looked_after() {
    let text = trace!("epaxos", "unknown-dependency");
    let stalls = |text: &str| !text.contains("p3 #5 = Done");
    assert_goes_wrong("epaxos", "learner/unknown-dependencies", text, stalls);
}

#[test]
fn an_image_that_is_named_by_its_size() {
    let text = trace!("epaxos", "image-of-two-states");
    let loses = |text: &str| !text.contains("p3 #7 = Value(Some(b\"1\"))");
    assert_goes_wrong("epaxos", "catchup/image-by-count", text, loses);
}

/// A replica that has lost its disk, and another, know nothing of a write that was acknowledged.
#[test]
fn a_replica_that_takes_part_before_it_is_whole() {
    let text = trace!("epaxos", "rejoin-with-a-lost-disk");
    assert_loses_a_write("learner/rejoins-at-once", text);
}

/// It names an own instance, and forgets it in a crash: it stays behind the others, who have decided the instance.
#[test]
fn an_answer_to_one_who_rejoins_that_leaves_before_it_is_durable() {
    let text = trace!("epaxos", "rejoin-reply-that-is-not-durable");
    let stays_behind = |text: &str| {
        let applied = |name: &str| {
            let line = text.lines().rev().find(|line| line.trim().starts_with(name)).expect("a status");
            line.rsplit_once("applied ").map(|(_, applied)| applied.to_owned())
        };
        applied("r2 replica") != applied("r3 replica")
    };
    assert_goes_wrong("epaxos", "now/RejoinReply", text, stays_behind);
}

/// What it is told to have pre-accepted before is not committed on the fast path: others have forgotten what they would
/// need to recover that.
#[test]
fn a_barrier_that_binds_nobody_or_does_not_outlast_a_restart() {
    let text = trace!("epaxos", "barrier-after-a-restart");
    let loses = |text: &str| text.contains("p1 #3 = Done") && text.contains("= Value(None)");
    for mutation in ["learner/barrier-binds-nobody", "learner/barrier-lost-in-a-restart"] {
        assert_goes_wrong("epaxos", mutation, text, loses);
    }
}

/// It is counted among those who have pre-accepted nothing else, and others forget what they need to recover a write.
#[test]
fn a_barrier_of_a_member_that_does_not_take_part_yet() {
    let text = trace!("epaxos", "barrier-of-a-rejoining-member");
    let loses = |text: &str| text.contains("p1 #7 = Done") && text.contains("= Value(None)");
    assert_goes_wrong("epaxos", "learner/barrier-of-a-rejoining-member", text, loses);
}

#[test]
fn a_barrier_that_nobody_follows() {
    let text = trace!("epaxos", "barrier-is-followed");
    let takes_the_slow_path = |text: &str| text.contains("Accept { instance: 3.3, ballot");
    assert_goes_wrong("epaxos", "learner/follows-no-barrier", text, takes_the_slow_path);
}

#[test]
fn a_replica_that_proposes_by_its_own_clock_after_a_start() {
    let text = trace!("epaxos", "time-after-a-start");
    let expires = |text: &str| !text.contains("= Batch(Some([Value(Some(b\"v\")), Done]))");
    assert_goes_wrong("epaxos", "learner/own-clock-at-first", text, expires);
}

/// Its keys expire at once, or outlive their time.
#[test]
fn a_clock_that_is_taken_to_show_what_it_showed_when_it_was_asked() {
    let text = trace!("epaxos", "late-clock-replies");
    let says = |answer: &'static str| move |text: &str| text.contains(answer);
    assert_goes_wrong("epaxos", "walls/answers-are-in-time", text, says("p1 #3 = Value(None)"));
    assert_goes_wrong("epaxos", "walls/last-reading-counts", text, says("p1 #5 = Value(None)"));
    let text = trace!("epaxos", "clocks-that-were-set");
    assert_goes_wrong("epaxos", "walls/clocks-are-never-set", text, says("p1 #2 = Value(Some(b\"v\"))"));
}

/// It does not know any clock yet.
#[test]
fn an_answer_to_a_request_for_a_clock_of_an_earlier_life() {
    let text = trace!("epaxos", "late-clock-replies");
    let proposes = |text: &str| text.split_once("# r1 answers").unwrap().0.contains("Ask | persist Changed");
    assert_goes_wrong("epaxos", "walls/any-life", text, proposes);
}

#[test]
fn a_transaction_that_reads_a_key_whose_time_is_up() {
    let text = trace!("epaxos", "transaction-after-the-time-to-live");
    let reads_it_twice = |text: &str| text.matches("= Batch(Some([Value(Some(b\"v\")), Done]))").count() > 1;
    assert_goes_wrong("epaxos", "store/overdue-reads", text, reads_it_twice);
}

/// Two members have each dropped what the other lacks: neither can catch up.
fn assert_separates(mutation: &str, text: &str, last: &str) {
    assert_goes_wrong("epaxos", mutation, text, |text| !text.contains(last));
}

#[test]
fn a_member_that_counts_before_it_is_whole() {
    let text = trace!("epaxos", "counted-while-rejoining");
    assert_separates("learner/counts-while-it-rejoins", text, "p2 #7 = Done");
}

#[test]
fn a_snapshot_without_batches_that_nobody_else_may_have() {
    let text = trace!("epaxos", "batches-of-a-snapshot");
    assert_separates("learner/takes-the-state-alone", text, "p3 #8 = Value(Some(b\"1\"))");
}

/// What was sent, and to whom, between two lines of a conversation.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, after) = text.split_once(from).expect("it begins");
    after.split_once(to).expect("it ends").0
}

#[test]
fn large_batches_for_who_rejoins() {
    let text = trace!("epaxos", "large-batches-while-rejoining");
    let is_asked = |text: &str| between(text, "b*20000", "mend").contains("r2,r3 PreAccept");
    assert_goes_wrong("epaxos", "epaxos/asks-who-rejoins", text, is_asked);
}

#[test]
fn answers_to_one_that_rejoins_from_before_another_did() {
    let text = trace!("epaxos", "two-that-rejoin");
    let is_lost = |text: &str| text.contains("p4 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("epaxos", "rejoin/keeps-answers", text, is_lost);
}

#[test]
fn a_majority_that_rejoins() {
    let text = trace!("epaxos", "too-many-that-rejoin");
    let is_lost = |text: &str| text.contains("p3 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("epaxos", "rejoin/excuses-too-many", text, is_lost);
}

#[test]
fn large_batches_for_who_is_silent() {
    let text = trace!("epaxos", "large-batch-to-the-silent");
    let is_sent_again = |text: &str| between(text, "repeat 8", "mend").contains("PreAccept");
    assert_goes_wrong("epaxos", "epaxos/sends-to-the-silent", text, is_sent_again);
}

#[test]
fn large_batches_with_votes_that_make_no_ops_of_them() {
    let wait = mutation::with("epaxos/owners-tell-batches", thin_links::longest_wait_of_epaxos);
    assert!(wait > Duration::from_secs(6), "{wait:?}");
}
