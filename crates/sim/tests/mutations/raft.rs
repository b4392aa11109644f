//! Each safety rule of Raft and of the ways in which it serves reads, weakened on purpose.

use quorate_core::mutation;
use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

use crate::assert_goes_wrong;

const QUORUM: &[&str] = &["reads=quorum"];
/// Short waits, for more elections in a run.
const RESTLESS: &[&str] = &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "reads=quorum"];
const TIMERS: &[&str] = &["reads=leaseguard", "leaseguard.clock=timers"];
const ALR: &[&str] = &["reads=alr"];
const UNCHECKED: &[&str] = &["reads=inconsistent", "allow_stale_reads=true"];
const ONGARO: &[&str] = &["reads=ongaro-lease"];
/// One entry in a message.
const SINGLE: &[&str] =
    &["heartbeat=10ms", "election.timeout=50ms", "proxy.patience=40ms", "reads=quorum", "append.bytes=1"];
/// Leases that outlast elections, so that a new leader has to mind them.
const GUARD: &[&str] = &[
    "reads=leaseguard",
    "lease.duration=2s",
    "heartbeat=50ms",
    "election.timeout=200ms",
    "proxy.patience=100ms",
];
/// Little is kept of the log, so that snapshots carry what matters.
const FORGETFUL: &[&str] = &[
    "reads=leaseguard",
    "log.retain=0",
    "lease.duration=2s",
    "heartbeat=50ms",
    "election.timeout=200ms",
    "proxy.patience=100ms",
];

/// It takes a change, the loss of the message that says so, and another leader: too rare for random seeds.
#[test]
fn former_members_that_a_later_leader_does_not_know() {
    let text = trace!("raft", "joint-change-interrupted");
    let does_not_know = |text: &str| !text.contains("r1 removed leader r2");
    assert_goes_wrong("raft", "raft/former-members-are-strangers", text, does_not_know);
}

/// It takes a change that a leader forgets in a crash, and the loss of that leader: too rare for random seeds.
#[test]
fn a_learner_that_never_stands() {
    let text = trace!("raft", "learner-with-the-longest-log");
    let nobody_leads = |text: &str| !text.contains("p2 #2 = Done");
    assert_goes_wrong("raft", "raft/learners-never-stand", text, nobody_leads);
}

/// The same, and the learner cannot hand over yet: its links are slow.
#[test]
fn a_proxy_that_follows_no_learner() {
    let text = trace!("raft", "learner-with-the-longest-log");
    let (before, _) = text.split_once("# Nobody else is elected").expect("it stands last");
    let script = before.to_owned()
        + &"fire r4 Election\n".repeat(5)
        + &"deliver r4>*\ndeliver *>r4\n".repeat(2)
        + "deliver r4>r2\nput p2 k 1\ndeliver p2>r2\ndeliver r2>p2\n";
    let follows = |text: &str| text.contains("p2 <- r2 Leader | -> r4 Ask");
    let played = play(named("raft"), &script).unwrap();
    assert!(follows(&played), "{played}");
    let weakened = mutation::with("proxy/learners-never-lead", || play(named("raft"), &script)).unwrap();
    assert!(!follows(&weakened), "{weakened}");
}

/// It takes links that are slower than an election timeout all the time.
#[test]
fn a_leader_that_hands_over_at_every_heartbeat() {
    let text = trace!("raft", "leader-that-leaves-on-slow-links");
    let still_leads = |text: &str| text.contains("r1 leader leader r1");
    assert_goes_wrong("raft", "raft/hand-over-at-every-heartbeat", text, still_leads);
}

/// The same without writes: the lease is given up once, not with every attempt.
#[test]
fn a_leader_that_ends_its_lease_again() {
    let text = trace!("raft", "leader-that-leaves-on-slow-links");
    let idle: String =
        text.lines().filter(|line| !line.starts_with("put ")).map(|line| format!("{line}\n")).collect();
    let played = play(named("raft"), &idle).unwrap();
    let weakened = mutation::with("raft/end-lease-again", || play(named("raft"), &idle)).unwrap();
    let appends = |text: &str| text.contains("r1 timer Heartbeat | persist Entry");
    assert!(played.contains("TimeoutNow") && !appends(&played), "{played}");
    assert!(appends(&weakened), "{weakened}");
}

#[test]
fn a_former_member_that_is_sent_entries_for_ever() {
    let text = trace!("raft", "joint-change-interrupted");
    let is_sent_entries = |text: &str| {
        let (_, after) = text.split_once("repeat 20").expect("it is silent for long");
        let (silent, _) = after.split_once("restart r1").expect("it comes back");
        silent.contains("-x r1")
    };
    assert_goes_wrong("raft", "raft/former-members-stay", text, is_sent_entries);
}

#[test]
fn a_change_that_waits_for_ever_for_a_node_that_is_not_there() {
    crate::assert_gives_up("raft");
}

caught! { "raft",
    // Every `AfterSync` made `Now`, and what must be durable not recorded.
    a_vote_that_is_given_before_it_is_durable: "now/VoteReply" with RESTLESS, at 19;
    a_candidate_whose_own_vote_is_not_durable: "now/Vote", at 516;
    an_entry_that_is_acknowledged_before_it_is_durable: "now/AppendReply" with QUORUM, at 42;
    a_term_and_a_vote_that_are_not_recorded: "raft/term-not-persisted" with RESTLESS;
    a_snapshot_that_counts_before_it_is_durable: "log/snapshot-not-durable" with FORGETFUL, at 57;
    // Elections and the log.
    a_vote_for_any_log: "raft/vote-for-any-log" with RESTLESS;
    a_pre_vote_that_bumps_terms: "raft/pre-vote-bumps-terms" with QUORUM;
    a_commit_of_a_prior_term_by_counting: "raft/commit-prior-term" with SINGLE, at 1;
    a_commit_beyond_what_was_verified: "log/commit-beyond-verified" with QUORUM, at 11;
    two_membership_changes_in_flight: "membership/two-in-flight" with QUORUM;
    a_lifetime_that_begins_before_the_write_where_the_group_has_just_changed:
        "walls/group-before-is-forgotten" with TIMERS, under "all", at 3544;
    a_time_that_a_source_was_away_taken_for_its_answer: "catchup/unnamed-questions" with QUORUM, under "all", at 4289;
    // Reads.
    a_voter_that_does_not_honour_the_lease: "ongaro/vote-at-once" with ONGARO, at 42;
    a_commit_gate_that_ignores_one_prior_entry: "leaseguard/gate-ignored" with GUARD, at 157;
    a_limbo_region_without_its_last_entry: "leaseguard/limbo-short" with GUARD, at 34;
    a_limbo_region_that_is_applied_at_the_election: "leaseguard/limbo-applied" with GUARD;
    almost_local_reads_that_ask_nobody: "alr/unasked" with ALR;
    an_almost_local_read_that_joins_a_closed_batch: "alr/join-closed" with ALR, at 1370;
    an_unchecked_read_of_what_is_older_than_its_client_has_seen: "local/older-than-seen" with UNCHECKED, at 8;
    uncertainty_on_one_side_only: "leaseguard/one-sided" with GUARD, at 14;
    an_end_of_a_lease_whose_commit_is_not_known: "leaseguard/end-lease-uncommitted" with GUARD, at 373;
    a_snapshot_that_forgets_leases: "leaseguard/no-lease-in-snapshot" with FORGETFUL, at 14;
    a_clock_that_is_read_before_a_pause: "driver/stale-now" with GUARD, at 188;
    // Commits take longer than a lease lasts.
    a_read_that_waits_for_a_lease_for_ever: "leaseguard/lease-or-nothing"
        with &["reads=leaseguard", "lease.duration=300ms"], under "slow-nodes", at 7;
    // Nothing wrong is said, but for twenty seconds nothing is written.
    a_successor_that_takes_the_larger_of_two_waits: "leaseguard/larger-wait" with &["reads=leaseguard"],
        under "wide-clocks,lost-nodes", at 27;
}

/// Whether somebody reads `old` after `new` was acknowledged.
fn is_stale(text: &str) -> bool {
    let (_, after) = text.split_once("put p3 k new").expect("it is written");
    after.split_once("= Done").is_some_and(|(_, after)| after.contains("= Value(Some(b\"old\"))"))
}

/// These take several rare events in a row; the conversations are scripted. With the rule, the text is what is said;
/// without it, a read is stale.
fn assert_stale(mutation: &str, text: &str) {
    assert_goes_wrong("raft", mutation, text, is_stale);
}

/// The three leaders of the LeaseGuard paper's section 5.3.
#[test]
fn inherited_reads_under_timers() {
    let text = trace!("raft", "inherited-under-timers");
    assert_stale("leaseguard/inherit-under-timers", text);
}

/// It takes clocks that are set back when the former leader has shown that the key is gone, and nobody else knows.
#[test]
fn an_inherited_read_of_a_key_whose_time_is_up_in_the_limbo_region() {
    let text = trace!("raft", "key-whose-time-is-up-in-the-limbo-region");
    let comes_back = |text: &str| text.contains("p2 #5 = Value(Some(b\"v\"))");
    assert_goes_wrong("raft", "leaseguard/limbo-without-time", text, comes_back);
}

#[test]
fn an_inherited_read_at_a_follower_that_the_limbo_region_can_change() {
    let text = trace!("raft", "read-index-in-the-limbo-region");
    let is_stale = |text: &str| text.contains("p3 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("raft", "leaseguard/index-of-the-limbo-region", text, is_stale);
}

/// Two leaders that each have a configuration at one index, and a member that has had both.
#[test]
fn a_configuration_that_takes_the_place_of_another_and_is_not_told() {
    let text = trace!("raft", "configuration-in-place-of-another");
    let is_silent = |text: &str| !text.contains("r3 fact Configured { index: 5,");
    assert_goes_wrong("raft", "raft/configured-before-the-cut", text, is_silent);
}

/// A leader that was deposed and does not know says where it has appended an entry; another's is decided there.
#[test]
fn almost_local_reads_after_any_entry_of_the_place() {
    let text = trace!("raft", "alr-place-of-another");
    let is_stale = |text: &str| text.contains("p5 #3 = Value(Some(b\"old\"))");
    assert_goes_wrong("raft", "alr/any-entry", text, is_stale);
}

#[test]
fn a_read_confirmed_by_an_earlier_round() {
    let text = trace!("raft", "answer-to-an-earlier-round");
    assert_stale("quorum/earlier-round", text);
}

#[test]
fn a_voter_that_forgets_the_lease_in_a_restart() {
    let text = trace!("raft", "voter-that-was-restarted");
    assert_stale("ongaro/no-restart-wait", text);
}

/// The leader that crashed gave its entries stamps that are 40 s wide.
#[test]
fn the_smaller_wait_replaced_by_the_larger() {
    let text = trace!("raft", "wide-stamp");
    let waits = |text: &str| {
        let soon = text.split("repeat 70").next().expect("it begins");
        !soon.contains("p2 #3 = Done")
    };
    assert_goes_wrong("raft", "leaseguard/larger-wait", text, waits);
}

#[test]
fn a_candidate_that_goes_from_term_to_term_though_its_disk_hangs() {
    let text = trace!("raft", "candidate-whose-disk-hangs");
    let moves = |text: &str| text.contains("r3 persist Term { term: 3, voted: Some(n3) }");
    assert_goes_wrong("raft", "raft/stand-without-a-disk", text, moves);
}

#[test]
fn a_leader_that_stays_though_its_disk_hangs() {
    let text = trace!("raft", "hung-disk-of-the-leader");
    let stays = |text: &str| {
        let (_, after) = text.split_once("disk r1 manual").expect("its disk hangs");
        after.contains("r1 leader leader r1")
    };
    assert_goes_wrong("raft", "laggards/leader-stays", text, stays);
}

/// It leads on while a member hears it, which it cannot get anything committed with.
#[test]
fn a_leader_that_looks_at_what_is_committed_only_while_its_disk_hangs() {
    let text = trace!("raft", "hung-disk-whose-vote-is-needed");
    let stands_still = |text: &str| !text.contains("p2 #2 = Done");
    assert_goes_wrong("raft", "laggards/needs-no-own-vote", text, stands_still);
}
