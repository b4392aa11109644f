//! Each safety rule of quorum leases, weakened on purpose.

use quorate_core::mutation;
use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

const PASSIVE: &[&str] = &["passive=true"];

caught! { "quorum-leases",
    votes_that_do_not_name_grantees: "quorum-leases/grants-not-reported" with PASSIVE, at 11;
    votes_that_do_not_name_grantees_of_regranted_keys: "quorum-leases/grants-not-reported", at 1;
    a_grantee_that_reads_over_an_accepted_write: "quorum-leases/reads-over-accepted" with PASSIVE, at 2;
    a_grantee_that_ignores_thresholds: "leases/threshold-ignored" with PASSIVE, at 31;
    a_regrant_of_a_key_while_a_write_to_it_is_open: "quorum-leases/regrants-open-keys", of 5,
        under "loss,slow-links,reordering,roster-changes", at 32;
    a_grantee_that_does_not_wait_for_regrants: "quorum-leases/regrants-not-awaited", of 5, at 1188;
}

/// Plays a conversation as it should be, and with a rule weakened: each must hold its line, and not the other's.
fn assert_told_apart(text: &str, rule: &str, right: &str, wrong: &str) {
    let weakened = mutation::with(rule, || play(named("quorum-leases"), text)).unwrap();
    for (played, here, not_here) in [(text, right, wrong), (&weakened, wrong, right)] {
        assert!(played.contains(here), "{rule}: `{here}` is missing");
        assert!(!played.contains(not_here), "{rule}: `{not_here}` is said");
    }
}

/// The vote of one that r2 is a grantee of.
fn voted_for(who: &str, slot: u64) -> String {
    format!("r3 -> r1 AcceptReply {{ ballot: b1.1, grants: {{{who}}}, slots: [({slot}, {slot})] }}")
}

// The leader names everybody to whom it has granted a lease, and those are the grantees that can vote. So these
// take a leader whose own vote comes last, at the right moment: no seed can be expected to find that. In each, a
// write is acknowledged that r2 does not know, and r2 answers with what was before.

#[test]
fn grants_that_are_forgotten_in_the_restart_wait() {
    let rule = "quorum-leases/forgotten-in-the-restart-wait";
    assert_told_apart(
        trace!("paxos/quorum_leases", "restarted-grantors"),
        rule,
        &voted_for("n2", 3),
        "slots: [(3, 1)]",
    );
}

#[test]
fn a_leader_that_forgets_whom_it_has_named() {
    let text = trace!("paxos/quorum_leases", "grantee-that-left");
    // Acknowledged, while r2 answers with what was before.
    let is_acknowledged = |text: &str| text.contains("slots: [(5, 1)]");
    crate::assert_goes_wrong("quorum-leases", "quorum-leases/names-those-alive", text, is_acknowledged);
}

#[test]
fn a_grantee_that_goes_by_an_old_group() {
    let text = trace!("paxos/quorum_leases", "group-that-changes");
    let (_, last) = text.rsplit_once("get p3 color").expect("it is read");
    assert!(last.contains("| -> p3 Refused"), "{last}");
    let is_stale = |text: &str| {
        text.rsplit_once("get p3 color").is_some_and(|(_, last)| last.contains("= Value(Some(b\"blue\"))"))
    };
    crate::assert_goes_wrong("quorum-leases", "quorum-leases/configuration-is-no-write", text, is_stale);
}

#[test]
fn exclusion_by_silence_only() {
    let text = trace!("paxos/quorum_leases", "hung-disk");
    let weakened = mutation::with("laggards/silence-only", || play(named("quorum-leases"), text)).unwrap();
    let goes_on = |text: &str| {
        text.split("repeat 1 sync r2").next().is_some_and(|before| before.contains("p1 #2 = Done"))
    };
    assert!(goes_on(text) && !goes_on(&weakened), "{weakened}");
}

#[test]
fn a_write_that_is_skipped_because_of_one_in_a_later_slot() {
    let rule = "quorum-leases/skips-for-higher-slots";
    assert_told_apart(
        trace!("paxos/quorum_leases", "later-slot-first"),
        rule,
        &voted_for("n2", 5),
        "slots: [(5, 1)]",
    );
}

#[test]
fn a_voter_that_goes_by_an_old_roster() {
    let rule = "quorum-leases/old-roster";
    assert_told_apart(
        trace!("paxos/quorum_leases", "roster-that-gives"),
        rule,
        &voted_for("n1, n2", 5),
        "slots: [(5, 1)]",
    );
}

#[test]
fn a_grantee_that_goes_by_an_old_roster() {
    let (rule, refused) = ("quorum-leases/roster-is-no-write", "| -> p2 Refused");
    assert_told_apart(
        trace!("paxos/quorum_leases", "roster-that-takes-away"),
        rule,
        refused,
        "#4 = Value(Some(b\"blue\"))",
    );
}
