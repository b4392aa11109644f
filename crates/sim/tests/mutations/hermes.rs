//! Each safety rule of Hermes, weakened on purpose.

use quorate_check::SECOND;
use quorate_core::mutation;
use quorate_sim::Options;

use crate::RESTLESS;
use crate::slow_members::epochs_with_slow_disks;

caught! { "hermes",
    // Keys.
    a_validation_of_another_version: "hermes/any-val";
    a_read_of_a_key_that_is_not_valid: "hermes/read-invalid";
    a_write_that_is_executed_again: "hermes/no-record";
    an_acknowledgement_before_the_version_is_durable: "now/Ack" with RESTLESS, at 211;
    a_refusal_of_what_may_be_committed: "hermes/refused-at-once", under "all,nearly-full-disks", at 2;
    a_refusal_of_the_first_copy_alone: "hermes/refused-once", under "all,nearly-full-disks", at 725;
    a_refusal_that_another_member_does_not_know: "proxy/any-refusal", under "all,nearly-full-disks", at 78;
    // Keys that are forgotten.
    a_shadow_that_forgets: "hermes/shadow-forgets"
        with &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "hermes.tombstones=300ms"], at 9;
    a_key_that_comes_back_with_a_restart: "hermes/forgotten-comes-back"
        with &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "hermes.tombstones=200ms"],
        of 5, under "all,lost-links", at 410109;
    // Epochs.
    a_shadow_that_serves: "hermes/shadow-reads", at 9;
    a_lease_that_outlives_its_epoch: "epochs/promise-while-leased";
    // A lost disk.
    a_promise_of_one_that_has_lost_its_disk: "rejoin/at-once", under "all,replaced-disks";
    a_promise_that_a_lost_disk_had_ruled_out: "rejoin/any-ballot", under "all,replaced-disks", at 35;
    a_lease_that_a_lost_disk_had_granted: "rejoin/forgets-leases" with RESTLESS, under "all,replaced-disks";
    a_ballot_that_rules_out_no_lease_of_a_lost_disk: "epochs/rejoins-while-leased" with RESTLESS,
        under "crashes,stalls,partitions,replaced-disks", at 323;
    what_a_lost_disk_had_acknowledged: "hermes/lost-disk-was-never-live" with RESTLESS,
        under "all,replaced-disks", at 35;
}

/// It has promised a later ballot, and does not know that.
#[test]
fn an_answer_of_one_that_has_lost_its_disk_to_who_has_read() {
    let is_stale = |text: &str| text.contains("p1 #3 = Value(Some(b\"old\"))");
    let text = trace!("hermes", "question-to-one-with-a-new-disk");
    crate::assert_goes_wrong("hermes", "eager-alr/knows-no-promise", text, is_stale);
}

/// It starts whole, and reads what is older than what the others read.
#[test]
fn a_member_that_was_whole_once() {
    let disagree = |checker: &str| checker == "key_agreement";
    crate::assert_caught_by("hermes", "hermes/whole-before", RESTLESS, 3, crate::PASSING, 0, disagree);
}

/// It is committed later, when all who have the other are lost.
#[test]
fn an_overtaken_write_that_is_said_to_have_failed() {
    let text = trace!("hermes", "overtaken-write-that-is-committed");
    let fails = |text: &str| text.contains("p1 #3 = Error") && text.contains("p3 #5 = Value(Some(b\"red\"))");
    crate::assert_goes_wrong("hermes", "hermes/overtaken-fails", text, fails);
}

/// Memory grows with the keys that were written by several at a time.
#[test]
#[should_panic(expected = "only what is to be written can be overtaken")]
fn what_was_overtaken_and_is_remembered_for_ever() {
    let text = trace!("hermes", "overtaken-write-of-one-that-is-left-out");
    mutation::with("hermes/overtaken-for-ever", || crate::play(crate::named("hermes"), text)).unwrap();
}

/// It is committed when the last of the others has it.
#[test]
fn a_write_under_way_that_is_refused() {
    let text = trace!("hermes", "refusal-of-a-write-under-way");
    let is_told = |text: &str| text.contains("p1 #1 = Error(DiskFull { node: 1 })");
    crate::assert_goes_wrong("hermes", "hermes/refused-at-once", text, is_told);
}

/// The one that was asked first has it committed.
#[test]
fn a_write_that_another_member_refuses() {
    let text = trace!("hermes", "write-that-another-refuses");
    let is_told = |text: &str| text.contains("p1 #2 = Error(DiskFull { node: 2 })");
    crate::assert_goes_wrong("hermes", "proxy/any-refusal", text, is_told);
}

/// All have acknowledged it, and its coordinator has lost it.
#[test]
fn a_version_that_is_sent_before_it_is_durable() {
    let text = trace!("hermes", "version-that-is-not-durable");
    let is_stale = |text: &str| text.contains("p3 #2 = Done") && text.contains("= Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "now/Inv", text, is_stale);
}

/// A shadow has it, and its coordinator has lost it.
#[test]
fn a_version_that_a_shadow_gets_before_it_is_durable() {
    let text = trace!("hermes", "page-that-is-not-durable");
    let is_stale = |text: &str| text.contains("p3 #5 = Value(Some(b\"square\"))");
    crate::assert_goes_wrong("hermes", "now/Page", text, is_stale);
}

/// Who has given it forgets it, and another epoch begins with its help, which is not the last one.
#[test]
fn a_promise_that_is_given_before_it_is_durable() {
    let text = trace!("hermes", "promise-that-is-not-durable");
    let is_stale = |text: &str| text.contains("p3 #3 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "now/Promise", text, is_stale);
}

/// The others promise it a ballot in vain, and wait for an epoch that it cannot begin.
#[test]
fn a_ballot_of_a_candidate_whose_disk_hangs() {
    let text = trace!("hermes", "ballot-of-a-disk-that-hangs");
    let disturbs = |text: &str| !text.contains("r2 leader leader r2");
    crate::assert_goes_wrong("hermes", "now/Prepare", text, disturbs);
}

#[test]
fn a_lease_that_is_promised_before_its_epoch_is_durable() {
    let text = trace!("hermes", "lease-of-an-epoch-that-is-not-durable");
    let reads_before_sync = |text: &str| {
        let before = text.split("sync r2").next().expect("it begins");
        before.contains("r3 leader leader r3 ballot 2.3 committed 0 applied 0 lease")
    };
    crate::assert_goes_wrong("hermes", "now/Renew", text, reads_before_sync);
}

/// Two candidates that cannot reach each other take the promise of the third in turn.
#[test]
fn a_promise_that_is_taken_back_before_its_epoch_is_stated() {
    let text = trace!("hermes", "promise-that-is-not-taken-back");
    let begins_anew = |text: &str| !text.contains("r1 leader leader r1 ballot 1.1");
    crate::assert_goes_wrong("hermes", "epochs/promises-taken-back", text, begins_anew);
}

/// It is left out, each time that another epoch is begun for it.
#[test]
fn a_far_promise_that_is_not_waited_for() {
    let text = trace!("hermes", "promise-that-comes-late");
    let leaves_out = |text: &str| text.contains("r3 outside leader r1");
    crate::assert_goes_wrong("hermes", "epochs/short-wait", text, leaves_out);
}

/// Another takes its promises from it.
#[test]
fn a_candidate_that_waits_in_silence() {
    let text = trace!("hermes", "promise-that-comes-late");
    let begins_anew = |text: &str| !text.contains("r1 leader leader r1 ballot 2.1");
    crate::assert_goes_wrong("hermes", "epochs/silent-candidate", text, begins_anew);
}

/// It takes what it is asked for, for ever.
#[test]
fn a_member_in_an_epoch_that_is_over_and_hears_of_no_other() {
    let text = trace!("hermes", "member-that-is-left-behind");
    let waits = |text: &str| !text.contains("p3 #3 = Value");
    crate::assert_goes_wrong("hermes", "hermes/left-behind", text, waits);
}

/// It sends its clients to one that sends them back.
#[test]
fn an_owner_without_leases() {
    let text = trace!("hermes", "owner-without-leases");
    let stays = |text: &str| !text.contains("r2 leader leader r2");
    crate::assert_goes_wrong("hermes", "hermes/leaseless-owner-stays", text, stays);
}

/// Whoever replays it waits for a member that it cannot reach, for ever.
#[test]
fn a_committed_version_that_is_only_acknowledged() {
    let text = trace!("hermes", "committed-version-that-one-waits-for");
    let waits = |text: &str| !text.contains("p3 #3 = Value");
    crate::assert_goes_wrong("hermes", "hermes/acknowledged-only", text, waits);
    crate::assert_goes_wrong("hermes", "hermes/acknowledged-once", text, waits);
}

/// It is believed to be an hour behind for a second, and a key expires at once.
#[test]
fn a_clock_far_from_the_own_one_that_is_not_read_again() {
    let text = trace!("hermes", "clock-that-is-set-right");
    let is_gone = |text: &str| text.contains("p3 #2 = Value(None)");
    crate::assert_goes_wrong("hermes", "walls/differences-are-not-looked-at", text, is_gone);
}

/// It answers the owner, so it is waited for.
#[test]
fn a_sign_of_life_of_a_member_whose_disk_hangs() {
    let text = trace!("hermes", "member-whose-disk-hangs");
    let waits = |text: &str| !text.contains("p1 #1 = Done");
    crate::assert_goes_wrong("hermes", "now/HeartbeatReply", text, waits);
}

/// It is left out itself, whether it has told of the owner or of two.
#[test]
fn a_quick_member_that_tells_of_slow_ones_first() {
    for (others, writers) in [(0, &[2, 3, 4][..]), (1, &[0, 1, 2])] {
        let (_, without_quick) =
            mutation::with("hermes/slow-by-slow-pairs", || epochs_with_slow_disks(others, writers));
        assert!(without_quick > 0, "{others} and the owner are slow");
    }
}

/// Two epochs are slow, one after the other.
#[test]
fn a_slow_owner_that_is_followed_by_another_slow_one() {
    let epochs = || epochs_with_slow_disks(1, &[0, 1, 2]);
    let (only_quick, _) = mutation::with("hermes/slow-successor", epochs);
    assert!(only_quick.is_none_or(|took| took > 2 * SECOND), "{only_quick:?}");
}

/// Acknowledgements of an earlier epoch: whoever gave one has adopted another version since, which is replayed.
#[test]
fn an_acknowledgement_of_an_earlier_epoch() {
    let text = trace!("hermes", "acknowledgement-of-an-earlier-epoch");
    let is_lost = |text: &str| text.contains("p1 #5 = Value(Some(b\"1\"))");
    crate::assert_goes_wrong("hermes", "hermes/acks-of-earlier-epochs", text, is_lost);
}

#[test]
fn a_reader_without_leases() {
    crate::assert_reads_alone("hermes", " reads=lease", "epochs/reads-without-leases");
}

#[test]
fn eager_reads_that_ask_nobody() {
    crate::assert_reads_alone("hermes", " reads=eager-alr", "eager-alr/ask-nobody");
}

/// Of members that keep their keys in memory alone.
fn assert_caught_without_disks(mutation: &str, known: u64) {
    let settings = RESTLESS.iter().map(ToString::to_string).collect();
    let faults = crate::PASSING.parse().expect("kinds of faults");
    let options = Options { settings, faults, diskless: true, ..Options::default() };
    crate::search("hermes", mutation, options, known, |_| true);
}

/// What it has acknowledged before the restart counts, and is gone.
#[test]
fn a_member_that_lost_its_memory_and_is_back_in_the_same_epoch() {
    assert_caught_without_disks("hermes/back-in-the-same-epoch", 22);
}

#[test]
fn a_member_that_takes_itself_for_whole_without_its_memory() {
    assert_caught_without_disks("hermes/whole-without-memory", 4);
}

/// What it had given out before the restart is replayed under the timestamp of what it writes now.
#[test]
fn a_writer_that_has_forgotten_what_it_has_counted() {
    let text = trace!("hermes", "version-of-a-former-life");
    let is_stale = |text: &str| text.contains("= Value(Some(b\"red\"))");
    crate::assert_goes_wrong("hermes", "hermes/writer-of-former-life", text, is_stale);
}

/// One that was away is left with it, and nobody else.
#[test]
fn an_epoch_that_begins_without_one_who_has_everything() {
    let text = trace!("hermes", "memory-that-is-missing");
    let is_stale = |text: &str| text.contains("= Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "hermes/gather-from-anybody", text, is_stale);
    crate::assert_goes_wrong("hermes", "hermes/lost-in-silence", text, is_stale);
}

/// Its client has been told that it is committed, and another member still reads what was before.
#[test]
fn an_acknowledgement_of_another_version() {
    let text = trace!("hermes", "acknowledgement-of-another-version");
    let is_told =
        |text: &str| text.split("get p2 color").next().is_some_and(|before| before.contains("-> p1 Answer"));
    crate::assert_goes_wrong("hermes", "hermes/any-ack", text, is_told);
}

/// One that was left out has a later one of the same key, which was never committed.
#[test]
fn a_version_that_is_replayed_under_the_number_of_an_earlier_epoch() {
    let text = trace!("hermes", "version-of-an-earlier-epoch");
    let is_lost = |text: &str| text.contains("p2 #4 = Value(Some(b\"red\"))");
    crate::assert_goes_wrong("hermes", "hermes/replayed-as-it-was", text, is_lost);
}

/// A key that was deleted is there again.
#[test]
fn a_late_version_of_a_key_that_is_forgotten() {
    let text = trace!("hermes", "late-version-of-a-forgotten-key");
    let is_back = |text: &str| text.contains("p3 #4 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "hermes/forgets-versions", text, is_back);
}

/// So is one whose write comes late.
#[test]
fn a_late_copy_of_a_write_of_a_key_that_is_forgotten() {
    let text = trace!("hermes", "late-copy-of-a-write-of-a-forgotten-key");
    let is_back = |text: &str| text.contains("p3 #4 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "hermes/forgets-writes", text, is_back);
}

/// One who was away keeps it, and is told by one who never had it.
#[test]
fn a_key_that_was_forgotten_and_that_one_who_was_away_has() {
    let text = trace!("hermes", "forgotten-key-that-one-who-was-away-has");
    let is_back = |text: &str| text.contains("p3 #5 = Value(Some(b\"blue\"))");
    for mutation in ["hermes/page-is-not-all", "hermes/floor-is-not-transferred", "hermes/floor-in-memory"] {
        crate::assert_goes_wrong("hermes", mutation, text, is_back);
    }
}

/// Two members read what is not the same.
#[test]
fn a_deletion_that_is_forgotten_and_undecided() {
    let text = trace!("hermes", "deletion-that-is-undecided");
    let differs = |text: &str| text.contains("p3 #4 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("hermes", "hermes/forget-undecided", text, differs);
}

/// Every new key of one who has forgotten less is written twice.
#[test]
fn a_floor_below_that_of_another() {
    let text = trace!("hermes", "higher-floor-of-another");
    let waits = |text: &str| !text.trim_end().ends_with("-> p2 Answer");
    crate::assert_goes_wrong("hermes", "hermes/floor-of-another-is-not-taken-over", text, waits);
}

/// The shadow takes itself for whole, and lacks the keys before.
#[test]
fn a_page_that_answers_a_question_of_a_former_life() {
    let text = trace!("hermes", "page-of-a-former-life");
    let lacks = |text: &str| text.contains("r3 live leader r1 ballot 3.1 committed 4 applied 4");
    crate::assert_goes_wrong("hermes", "hermes/any-page", text, lacks);
}

/// The shadow is in another epoch by then, and lacks what was committed in one between.
#[test]
fn a_page_of_an_earlier_epoch() {
    let text = trace!("hermes", "page-of-an-earlier-epoch");
    let is_stale = |text: &str| text.contains("p3 #4 = Value(Some(b\"green\"))");
    crate::assert_goes_wrong("hermes", "hermes/messages-of-earlier-epochs", text, is_stale);
}
