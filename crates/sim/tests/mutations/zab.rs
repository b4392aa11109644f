//! Each rule of ZAB, weakened on purpose.

use quorate_core::mutation;
use quorate_protocols::registry::named;
use quorate_sim::Options;
use quorate_sim::scenario::play;

use crate::{RESTLESS, assert_goes_wrong, search};

/// With one entry in a message as well: histories are synchronized in several steps.
const SINGLE: &[&str] = &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "append.bytes=1"];
/// The same, and little is kept of the log, so that snapshots carry what matters.
const FORGETFUL: &[&str] =
    &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "log.retain=0"];

const LOCAL: &[&str] = &["reads=local"];

caught! { "zab",
    // Every `AfterSync` made `Now`, and what must be durable not recorded.
    an_epoch_that_is_proposed_before_it_is_durable: "now/NewEpoch" with RESTLESS, at 139;
    an_epoch_that_is_accepted_before_it_is_durable: "now/AckEpoch" with RESTLESS, at 9;
    a_history_that_is_acknowledged_before_it_is_durable: "now/Ack" with RESTLESS, at 29;
    an_epoch_that_is_not_recorded: "zab/epoch-not-recorded" with RESTLESS, at 1;
    a_snapshot_that_counts_before_it_is_durable: "log/snapshot-not-durable" with FORGETFUL, at 12;
    // Election and discovery.
    an_epoch_that_is_accepted_from_two: "zab/accept-twice" with RESTLESS, at 7;
    a_leader_that_lacks_what_its_followers_have: "zab/any-leader" with RESTLESS, at 1;
    // Synchronization and broadcast.
    an_epoch_that_is_current_before_its_history_is_there: "zab/current-epoch-first" with SINGLE, at 12;
    a_history_that_is_committed_without_the_epoch: "zab/commit-by-counting" with SINGLE;
    a_proposal_before_a_majority_is_synchronized: "zab/broadcast-at-once" with RESTLESS;
    a_commit_beyond_what_was_verified: "log/commit-beyond-verified" with RESTLESS, at 6;
    // A lost disk.
    a_vote_of_one_that_has_lost_its_disk: "rejoin/at-once", under "all,replaced-disks";
    a_vote_of_one_that_lacks_what_its_disk_had: "rejoin/any-log", under "all,replaced-disks", at 2;
    // Reads.
    reads_that_ask_nobody: "alr/unasked";
    a_read_that_joins_a_closed_batch: "alr/join-closed", at 76;
    a_local_read_of_what_is_older_than_its_client_has_seen: "local/older-than-seen" with LOCAL;
}

/// With its help another leader was elected in a later one, and goes on without what it acknowledges now.
#[test]
#[should_panic(expected = "is committed and cannot be replaced")]
fn an_epoch_that_a_lost_disk_had_left() {
    let text = trace!("zab", "epoch-that-a-lost-disk-had-accepted");
    assert_eq!(play(named("zab"), text).unwrap(), text);
    mutation::with("rejoin/any-ballot", || play(named("zab"), text)).unwrap();
}

/// It may lack what it had acknowledged, and what whoever stands lacks, too.
#[test]
fn an_epoch_that_one_with_a_new_disk_helps_to_begin() {
    let text = trace!("zab", "epoch-that-a-new-disk-accepts");
    let leads = |text: &str| text.contains("r3 leader leader r3 ballot 2 committed 2 applied 2");
    assert_goes_wrong("zab", "zab/grants-while-it-rejoins", text, leads);
}

/// Who may do what is in a state that it has not executed.
#[test]
fn one_whose_new_disk_has_what_is_not_known_to_be_committed() {
    let serves = |text: &str| text.contains("r2 follower leader r1 ballot 1 committed 3 applied 3");
    let text = trace!("zab", "history-that-is-not-known-to-be-committed");
    assert_goes_wrong("zab", "rejoin/not-executed", text, serves);
}

/// It would be one that rejoins after a loss of power, when another disk has been replaced.
#[test]
fn one_whose_new_disk_does_not_say_yet_that_it_votes() {
    let votes = |text: &str| text.contains("r2 follower leader r1 ballot 2 committed 5 applied 5");
    assert_goes_wrong("zab", "now/RejoinReply", trace!("zab", "disk-that-is-lost"), votes);
}

#[test]
fn a_candidate_that_proposes_one_epoch_after_the_other_though_its_disk_hangs() {
    let text = trace!("zab", "candidate-whose-disk-hangs");
    let deposes = |text: &str| !text.contains("r1 leader leader r1 ballot 1 ");
    assert_goes_wrong("zab", "zab/stand-without-a-disk", text, deposes);
}

/// It stands again within a second, and whoever could lead may have no time.
#[test]
fn a_candidate_that_has_lost_and_does_not_back_off() {
    let text = trace!("zab", "candidate-that-lost");
    let stands_again = |text: &str| text.contains("r1 timer Election");
    assert_goes_wrong("zab", "election/no-back-off", text, stands_again);
}

/// They lack what it has, and stand again and again.
#[test]
fn a_replica_that_gives_candidates_time_that_cannot_lead() {
    let text = trace!("zab", "candidates-that-cannot-lead");
    let waits = |text: &str| !text.contains("r3 leader leader r3 ballot 4");
    assert_goes_wrong("zab", "zab/time-for-anybody", text, waits);
}

/// It leads on while a member hears it, which it cannot get anything committed with.
#[test]
fn a_leader_that_looks_at_what_is_committed_only_while_its_disk_hangs() {
    let text = trace!("zab", "hung-disk-whose-vote-is-needed");
    let stands_still = |text: &str| !text.contains("p2 #2 = Done");
    assert_goes_wrong("zab", "laggards/needs-no-own-vote", text, stands_still);
}

/// The leader hands over and is gone for good, while reads at the replica nearby go on without a pause.
#[test]
fn a_proxy_that_takes_answers_from_nearby_for_the_leaders() {
    let text = trace!("zab", "writes-beside-reads-nearby");
    let waits = |text: &str| !text.contains("p2 #2 = Done");
    assert_goes_wrong("zab", "proxy/nearby-for-target", text, waits);
    // And at random, where clients read all the time.
    let settings = vec!["reads=local".to_owned()];
    let options = Options { settings, readers: 3, ..Options::default() };
    search("zab", "proxy/nearby-for-target", options, 21, |_| true);
}

/// A leader that was replaced and does not know says where it has appended an entry; another's is decided there.
#[test]
fn almost_local_reads_after_any_entry_of_the_place() {
    let text = trace!("zab", "alr-place-of-another");
    let is_stale = |text: &str| text.contains("p5 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("zab", "alr/any-entry", text, is_stale);
}

/// The same replica leads twice, and an answer is late for as long: too rare for random seeds.
#[test]
fn acknowledgements_of_an_earlier_epoch() {
    let text = trace!("zab", "acknowledgements-of-an-earlier-epoch");
    let counts = |text: &str| text.contains("r1 leader leader r1 ballot 3 committed 6");
    assert_goes_wrong("zab", "zab/acks-of-an-earlier-epoch", text, counts);
}

#[test]
fn a_leader_that_waits_for_ever_for_whom_it_hands_over_to() {
    let text = trace!("zab", "successor-that-is-silent");
    let stands_still = |text: &str| !text.contains("p3 #3 = Done");
    assert_goes_wrong("zab", "handover/wait-for-ever", text, stands_still);
}

#[test]
fn reads_that_are_not_asked_again_while_writes_go_on() {
    crate::assert_stands_still("zab", "proxy/reads-wait-for-writes", 5, 109);
}

/// It leads in an epoch that nobody has accepted but itself, and another may do so too.
#[test]
fn an_acceptance_of_an_earlier_epoch() {
    let text = trace!("zab", "acceptance-of-an-earlier-epoch");
    let leads = |text: &str| text.contains("r1 leader leader r1 ballot 2");
    assert_goes_wrong("zab", "zab/ack-epochs-of-an-earlier-epoch", text, leads);
}
