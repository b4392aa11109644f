//! Each safety rule of Bodega and of leases that all grant to all, weakened on purpose.

use std::collections::BTreeSet;

use crate::assert_goes_wrong;

/// Nothing else than the rule that is looked at keeps a read from being stale: long leases, short waits.
const RESTLESS: &[&str] = &["heartbeat=20ms", "election.timeout=100ms", "proxy.patience=80ms"];

/// Responders that are silent for a moment are done without.
const IMPATIENT: &[&str] =
    &["heartbeat=20ms", "election.timeout=200ms", "responder.timeout=60ms", "proxy.patience=80ms"];

caught! { "bodega",
    // The commit rule, as a responder counts and as the leader does.
    reads_that_are_released_at_m_notes: "bodega/released-at-m-notes",
        under "slow-links,loss,roster-changes", at 3;
    a_leader_that_answers_from_what_is_committed: "bodega/leader-answers-committed", at 511;
    coverage_of_one_key_of_a_batch: "bodega/one-key-of-a-batch", of 5,
        under "roster-changes,loss,slow-links,partitions", at 122;
    a_barred_responder_that_counts_its_own_promise: "bodega/excluded-and-reading" with IMPATIENT,
        under "roster-changes,partitions,one-way-partitions,loss,slow-links", at 12;
    an_exclusion_that_nobody_has_confirmed: "exclusion/unconfirmed", at 554;
    // Leases.
    a_higher_ballot_that_is_promised_at_once: "paxos/no-release";
    promises_that_are_forgotten_at_a_higher_number: "leases/forgotten-at-a-higher-number";
    leases_that_are_given_back_and_believed: "leases/given-back-and-believed";
    a_lease_that_a_duplicate_extends: "lease/duplicate-extends";
    a_lease_that_is_believed_from_the_receipt_of_a_renewal: "lease/believed-from-receipt";
    nodes_that_speak_although_their_leases_are_not_of_one_length: "reach/spoken-across",
        under "longer-timeouts,crashes", at 35;
    held_reads_that_are_answered_without_leases: "paxos/unheld-unstable", at 665;
    // Reads that may miss some versions.
    versions_that_are_counted_without_leases: "bodega/versions-unstable", at 226;
    // A leader waits for a responder longer than for a majority.
    a_leader_that_gives_up_before_it_may_exclude_a_responder: "paxos/waiting-is-idle", under "hung-disks", at 5;
    // A responder whose disk hangs, and which goes on answering renewals, holds up writes.
    exclusion_by_silence_only: "laggards/silence-only", under "hung-disks", at 1;
    a_leader_that_looks_at_votes_only_while_its_disk_confirms_no_exclusion: "laggards/votes-only",
        of 5, under "all,hung-disks,-full-disks", at 1442;
    a_leader_whose_disk_hangs_and_who_stays_until_a_majority_has_better_ones: "laggards/as-a-majority",
        under "all,hung-disks", at 327;
    // A leader that installs a state.
    sessions_that_a_state_opens_and_nobody_hears_of: "intake/opened-unheard"
        with &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms"], under "all", at 1200559;
    // What must be durable.
    a_note_of_a_vote_that_is_not_durable: "now/Note" with RESTLESS, at 700;
}

/// A responder must miss the proposal of a configuration and get that of the write behind it, with just those notes of
/// it which a former majority makes.
#[test]
fn notes_that_are_counted_by_a_former_configuration() {
    let text = trace!("paxos/bodega", "notes-of-former-voters");
    let has_executed_it =
        |text: &str| text.contains("r3 follower leader r1 ballot 2.1 committed 5 applied 5");
    assert_goes_wrong("bodega", "bodega/notes-of-former-voters", text, has_executed_it);
}

/// This takes grantors of which one has never heard of the exclusion, and others that have not got what was chosen in
/// the meantime: no seed can be expected to find both, so the conversation is scripted.
#[test]
fn a_responder_that_comes_back_before_it_has_executed_what_was_chosen_without_it() {
    let text = trace!("paxos/bodega", "responder-that-comes-back");
    let is_stale = |text: &str| text.contains("p3 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("bodega", "exclusion/readmit-at-once", text, is_stale);
}

/// Writes of several keys of which different replicas answer reads are rare, and must meet a late vote.
#[test]
fn a_leader_that_does_not_wait_for_writes_that_others_may_have_shown() {
    let text = trace!("paxos/bodega", "leader-that-answers-alone");
    let is_stale = |text: &str| text.contains("p2 #5 = Value(Some(b\"old\"))");
    assert_goes_wrong("bodega", "writes/all-alone", text, is_stale);
}

/// It takes a disk that is slower than two messages, and a crash before it is done; and then a leader of the ballot
/// before that has not missed its followers.
#[test]
fn support_for_a_ballot_that_is_not_durable() {
    let text = trace!("paxos/bodega", "support-that-is-not-durable");
    let reads_before_sync = |text: &str| {
        let before = text.split("sync r2").next().expect("it begins");
        before.contains("r3 follower leader - ballot 2.1 committed 0 applied 0 lease")
    };
    assert_goes_wrong("bodega", "now/Renew", text, reads_before_sync);
}

#[test]
fn a_ballot_that_is_told_before_it_is_durable() {
    let text = trace!("paxos/bodega", "ballot-config-that-is-not-durable");
    let has_two_configs = |text: &str| {
        let promises = text.lines().filter_map(|line| line.split_once(" persist Promise { ballot: b2.1, "));
        let configs: BTreeSet<_> = promises.map(|(_, config)| config).collect();
        configs.len() > 1
    };
    assert_goes_wrong("bodega", "now/Announce", text, has_two_configs);
}

/// Notes must be faster than the leader's own votes, and its clock be set back at that moment.
#[test]
fn expiry_by_the_present_wall() {
    let text = trace!("paxos/bodega", "expiry-wall-back");
    let comes_back = |text: &str| {
        let gone = text.find("p2 #6 = Value(None)").expect("r2 shows that it is gone");
        text[gone..].contains("p1 #7 = Value(Some(b\"v\"))")
    };
    assert_goes_wrong("bodega", "paxos/expiry-by-the-present-wall", text, comes_back);
}

/// A key that has most of its time left is gone at once.
#[test]
fn a_leader_that_goes_by_its_own_clock_alone() {
    let text = trace!("paxos/bodega", "clock-ahead");
    let ends = |text: &str| text.contains("p1 #3 = Value(None)");
    assert_goes_wrong("bodega", "walls/own-clock-only", text, ends);
}

/// Whether the write that is under way when a disk hangs is acknowledged only when the disk works again.
fn waits_for_the_disk(text: &str, write: &str, disk: &str) -> bool {
    !text.split(disk).next().is_some_and(|before| before.contains(write))
}

#[test]
fn exclusion_by_silence_only_in_a_conversation() {
    let text = trace!("paxos/bodega", "hung-disk");
    let waits = |text: &str| waits_for_the_disk(text, "p1 #2 = Done", "repeat 1 sync r2");
    assert_goes_wrong("bodega", "laggards/silence-only", text, waits);
}

#[test]
fn a_leader_that_stays_though_its_disk_hangs() {
    let text = trace!("paxos/bodega", "hung-disk-of-the-leader");
    let waits = |text: &str| waits_for_the_disk(text, "p2 #2 = Done", "repeat 1 sync r1");
    assert_goes_wrong("bodega", "laggards/leader-stays", text, waits);
}

#[test]
fn an_exclusion_that_is_confirmed_before_it_is_durable() {
    let text = trace!("paxos/bodega", "exclusion-that-is-not-durable");
    let is_stale =
        |text: &str| text.contains("p1 #2 = Done") && text.contains("p3 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("bodega", "now/ExcludeReply", text, is_stale);
}
