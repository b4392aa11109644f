//! Each safety rule of Bodega and of leases that all grant to all, weakened on purpose.

use quorate_protocols::bodega::Bodega;

/// Nothing else than the rule that is looked at keeps a read from being stale: long leases, short waits.
const RESTLESS: &[&str] = &["heartbeat=20ms", "election.timeout=100ms", "proxy.patience=80ms"];

/// One command a slot: more slots under way, and more holes among them.
const HOLES: &[&str] = &[
    "heartbeat=20ms",
    "election.timeout=100ms",
    "proxy.patience=80ms",
    "batch.entries=1",
    "early_notes=false",
];

caught! { Bodega,
    // The commit rule, as a responder counts and as the leader does.
    reads_that_are_released_at_m_notes: "bodega/released-at-m-notes";
    a_leader_that_answers_from_what_is_committed: "bodega/leader-answers-committed";
    bars_that_nobody_has_confirmed: "bodega/bars-unconfirmed";
    // Leases.
    a_threshold_that_is_the_first_hole: "paxos/thresh-at-the-first-hole" with HOLES;
    a_higher_ballot_that_is_promised_at_once: "paxos/no-release";
    promises_that_are_forgotten_at_a_higher_number: "leases/forgotten-at-a-higher-number";
    a_lease_that_a_duplicate_extends: "lease/duplicate-extends";
    held_reads_that_are_answered_without_leases: "bodega/unheld-unstable";
    // What must be durable.
    a_note_of_a_vote_that_is_not_durable: "now/Note" with RESTLESS;
}
