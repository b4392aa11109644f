//! Each safety rule of MultiPaxos, its parts and the disk, weakened on purpose.

use crate::{assert_goes_wrong, assert_never_served};

/// Short waits, for more elections in a run; and no leases, so that nobody waits for them.
const RESTLESS: &[&str] = &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "reads=log"];

/// A promise tells one vote in a message.
const PARTS: &[&str] =
    &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "reads=log", "prepare.bytes=1"];

/// Writes come in many parts, one in a slot, and a replica that is behind gets a snapshot.
const CUT: &[&str] = &["value.part=8", "batch.entries=1", "log.retain=0"];

caught! { "multipaxos",
    // Every `AfterSync` of MultiPaxos made `Now`.
    a_candidate_that_prepares_before_its_promise_is_durable: "now/Prepare", at 182;
    a_promise_that_leaves_before_it_is_durable: "now/PrepareReply" with RESTLESS, at 19;
    a_vote_that_leaves_before_it_is_durable: "now/AcceptReply";
    // Ballots and slots.
    a_leader_that_does_not_record_its_own_repeated_proposal: "paxos/no-own-revote", at 1;
    a_commit_notice_that_covers_votes_of_other_ballots: "slots/commit-across-ballots", at 14;
    a_hole_that_is_not_filled: "slots/no-noop" with RESTLESS, at 701;
    // Promises come in many parts, and candidates give up in the middle.
    parts_of_a_promise_that_are_no_progress: "paxos/parts-are-no-progress" with PARTS, at 214;
    // Changes of the group.
    values_behind_a_configuration_that_is_not_executed: "paxos/no-barrier" with RESTLESS, at 5;
    a_leader_that_counts_as_before_the_change: "paxos/old-tally" with RESTLESS, at 37;
    a_leader_that_executes_a_configuration_and_does_not_prepare_again: "paxos/lead-unprepared" with RESTLESS, at 480;
    // Leases.
    a_lease_without_drift_margin: "lease/no-drift-margin";
    a_lease_that_is_not_waited_out_after_a_restart: "lease/no-restart-wait";
    a_leader_that_serves_before_it_has_executed_what_phase_one_found: "paxos/read-before-recovery", at 10;
    a_clock_that_is_read_before_a_pause: "driver/stale-now", at 240;
    // State and disk.
    a_snapshot_without_the_session_table: "snapshot/no-sessions";
    a_duplicate_that_is_executed_again_because_its_reply_is_not_retained:
        "sessions/not-retained-executes-again" with RESTLESS, at 128;
    a_part_that_is_executed_without_those_before: "parts/alone" with &["value.part=8"];
    a_snapshot_without_the_parts_of_a_write: "snapshot/no-parts" with CUT, at 4;
    a_torn_record_that_is_accepted: "disk/torn-record-accepted", at 20;
    // Disks that are lost or rolled back.
    a_life_that_is_not_durable_before_the_first_vote: "admission/life-not-durable", under "crashes,slow-disks", at 9;
    a_node_that_is_let_in_before_its_disk_is_remembered: "admission/listen-first", under "crashes", at 16;
    // Timeouts that become longer.
    a_node_that_restarts_with_shorter_timeouts_than_it_had: "reach/forgotten",
        under "longer-timeouts,follower-crashes", at 5;
    // Leases that become shorter.
    a_node_that_takes_part_before_the_leases_of_other_settings_have_ended: "leases/other-settings-at-once",
        under "other-settings", at 0;
    // Reads that may be so old.
    an_age_that_counts_from_the_answer: "freshness/by-arrival" with &["heartbeat=20ms"], of 5,
        under "slow-links,reordering", at 374;
    an_age_of_what_is_not_executed: "freshness/unexecuted", at 270;
}

/// That a node was not refused is noticed in the end (liveness): what it leads to has to be noticed before.
fn assert_does_harm(mutation: &str, settings: &[&str], faults: &str) {
    crate::assert_caught_by("multipaxos", mutation, settings, 3, faults, 0, |checker| checker != "liveness");
}

#[test]
fn a_lost_disk_that_nobody_refuses() {
    assert_does_harm("admission/off", RESTLESS, "wiped-disks,crashes,partitions");
}

#[test]
fn an_old_disk_that_nobody_refuses() {
    assert_does_harm("admission/off", RESTLESS, "rolled-back-disks,crashes,partitions");
}

#[test]
fn a_memory_of_disks_that_is_not_durable() {
    assert_does_harm("admission/forget-peers", RESTLESS, "wiped-disks,crashes,cluster-crashes");
}

/// This takes a crash before the own vote is durable, a reply that is late for longer than an election takes, and a
/// quorum that does not know the slot: no seed can be expected to find all three, so the conversation is scripted.
#[test]
fn a_vote_of_another_ballot_that_counts() {
    let text = trace!("paxos/multipaxos", "vote-of-another-ballot");
    let status = |text: &str| text.lines().find(|line| line.contains("r1 leader")).map(str::to_owned);
    // One vote of its ballot is no majority.
    let counts_it = |played: &str| status(played) != status(text);
    assert_goes_wrong("multipaxos", "slots/count-across-ballots", text, counts_it);
}

/// A batch must bring an acceptor a proposal and the question of another candidate, which is elected by others and
/// proposes something else before it has the answer.
#[test]
fn votes_of_the_ballot_before_that_count() {
    let text = trace!("paxos/multipaxos", "votes-of-the-ballot-before");
    let counts_them = |text: &str| text.contains("r2 leader leader r2 ballot 2.2 committed 3");
    assert_goes_wrong("multipaxos", "paxos/votes-of-the-ballot-before", text, counts_them);
}

#[test]
fn keys_that_are_due_and_still_show() {
    let text = trace!("paxos/multipaxos", "key-that-expires");
    let shows = |text: &str| text.matches("= Value(Some(b\"v\"))").count() > 1;
    assert_goes_wrong("multipaxos", "store/due-keys-visible", text, shows);
}

/// Another has led meanwhile.
#[test]
fn a_leader_that_slews_on_from_a_former_leadership() {
    let text = trace!("paxos/multipaxos", "clocks-that-were-ahead");
    let expires = |text: &str| text.contains("p1 #8 = Value(None)");
    assert_goes_wrong("multipaxos", "walls/slews-on-from-a-former-leadership", text, expires);
}

#[test]
fn an_image_without_the_limit_on_the_data() {
    let text = trace!("paxos/multipaxos", "limit-on-the-data");
    let accepts = |text: &str| text.matches("= Error(DataLimit)").count() < 2;
    assert_goes_wrong("multipaxos", "snapshot/no-limit", text, accepts);
}

/// At random this takes 8,549 clusters of seven nodes with chains, in which members are slow for good.
#[test]
fn writes_that_wait_behind_what_was_given_up() {
    let text = trace!("paxos/multipaxos", "writes-that-were-given-up");
    let waits = |text: &str| !text.contains("p1 #6 = Done");
    assert_goes_wrong("multipaxos", "batch/given-up-counts", text, waits);
    assert_goes_wrong("multipaxos", "intake/given-up-waits", text, waits);
}

#[test]
fn a_command_above_the_feature_level_that_is_executed() {
    let text = trace!("paxos/multipaxos", "feature-level");
    let is_executed = |text: &str| text.contains("p1 #1 = Done");
    assert_goes_wrong("multipaxos", "store/below-the-level", text, is_executed);
}

#[test]
fn an_image_without_the_feature_level() {
    let text = trace!("paxos/multipaxos", "feature-level");
    let is_first_again = |text: &str| text.contains("p1 #5 = Error(Malformed)");
    assert_goes_wrong("multipaxos", "snapshot/no-level", text, is_first_again);
}

#[test]
fn a_snapshot_without_users() {
    let text = trace!("paxos/multipaxos", "users-in-a-snapshot");
    let are_gone = |text: &str| !text.contains("p3 #4 = Integer(2)");
    assert_goes_wrong("multipaxos", "store/image-without-users", text, are_gone);
}

/// A leader that does not know that another leads has to learn of the other's slots, but not of its ballot.
#[test]
fn a_read_that_counts_a_slot_of_another_leader() {
    let text = trace!("paxos/multipaxos", "read-after-another-leader");
    let is_stale = |text: &str| text.contains("= Value(Some(b\"old\"))");
    assert_goes_wrong("multipaxos", "paxos/read-after-another", text, is_stale);
}

/// In the simulator nobody who has left is gone for ever.
#[test]
fn a_configuration_that_is_vouched_for_before_it_is_durable() {
    let text = trace!("paxos/multipaxos", "member-that-leaves-too-early");
    let is_early =
        |text: &str| text.split_once("crash r2").is_some_and(|(before, _)| before.contains("= Done"));
    assert_goes_wrong("multipaxos", "now/HeartbeatReply", text, is_early);
}

/// It takes a leader that sleeps while another is elected, and somebody who still listens to it alone.
#[test]
fn a_leader_without_lease_that_says_what_is_new() {
    let text = trace!("paxos/multipaxos", "leader-that-nobody-follows");
    let is_stale = |text: &str| text.contains("p5 #5 = Value(Some(b\"old\"))");
    assert_goes_wrong("multipaxos", "freshness/without-a-lease", text, is_stale);
}

#[test]
fn an_acceptor_that_counts_when_it_has_told_some_of_its_votes() {
    let text = trace!("paxos/multipaxos", "promise-in-parts");
    let is_lost = |text: &str| !text.contains("p3 #5 = Value(Some(b\"3\"))");
    assert_goes_wrong("multipaxos", "slots/first-part-is-all", text, is_lost);
}

/// It takes a source that dies between two pieces, and nobody else who knows the slots to be decided.
#[test]
fn a_leader_that_waits_for_a_source_that_has_died() {
    let text = trace!("paxos/multipaxos", "leader-without-a-source");
    let stands_still = |played: &str| !played.contains("p3 #2 = Value(");
    assert_goes_wrong("multipaxos", "paxos/loading-is-progress", text, stands_still);
}

/// The same, and somebody else knows.
#[test]
fn a_source_that_has_died_and_is_not_replaced() {
    let text = trace!("paxos/multipaxos", "snapshot-source-that-dies");
    let stands_still = |played: &str| !played.contains("p3 #2 = Value(Some(b\"1\"))");
    assert_goes_wrong("multipaxos", "catchup/source-for-ever", text, stands_still);
}

#[test]
fn a_change_that_waits_for_ever_for_a_node_that_is_not_there() {
    crate::assert_gives_up("multipaxos");
}

#[test]
fn a_candidate_that_deposes_others_though_its_disk_hangs() {
    let text = trace!("paxos/multipaxos", "candidate-whose-disk-hangs");
    let deposes = |text: &str| text.contains("r2 <- r3 Reject");
    assert_goes_wrong("multipaxos", "now/Reject", text, deposes);
}

/// A large write reaches a candidate, which drops it and leads then. Whoever takes it for one on its way waits as long
/// as its bytes would take.
#[test]
fn a_write_that_was_refused_and_is_taken_for_one_on_its_way() {
    let text = trace!("paxos/multipaxos", "large-write-that-was-dropped");
    let waits = |text: &str| !text.contains("p3 #2 = Done");
    assert_goes_wrong("multipaxos", "proxy/refused-is-on-its-way", text, waits);
}

/// A node that is slow for good, and whose clock is fast, ends each leadership before its clients are answered.
#[test]
fn a_candidate_that_stands_again_and_again_in_vain() {
    assert_never_served("multipaxos", "reads=alr", 3, 5277);
}

#[test]
fn a_candidate_that_goes_from_ballot_to_ballot_though_its_disk_hangs() {
    let text = trace!("paxos/multipaxos", "candidate-whose-disk-hangs");
    let moves = |text: &str| text.contains("r3 persist Promise { ballot: b2.3");
    assert_goes_wrong("multipaxos", "paxos/stand-without-a-disk", text, moves);
}

#[test]
fn votes_that_are_told_again_while_they_are_on_their_way() {
    crate::assert_stands_still("multipaxos", "paxos/tell-again", 5, 39);
}
