//! Each safety rule of quorum leases, weakened on purpose.

use quorate_protocols::quorum_leases::QuorumLeases;

const PASSIVE: &[&str] = &["passive=true"];
/// Short waits, for more elections in a run.
const RESTLESS: &[&str] = &["heartbeat=20ms", "election.timeout=100ms", "proxy.patience=60ms"];

caught! { QuorumLeases,
    votes_that_do_not_name_grantees: "quorum-leases/grants-not-reported" with PASSIVE;
    votes_that_do_not_name_grantees_of_regranted_keys: "quorum-leases/grants-not-reported";
    grants_that_are_forgotten_in_the_restart_wait: "quorum-leases/forgotten-in-the-restart-wait" with PASSIVE, of 5;
    a_grantee_that_reads_over_an_accepted_write: "quorum-leases/reads-over-accepted" with PASSIVE;
    a_grantee_that_ignores_thresholds: "leases/thresh-ignored" with PASSIVE;
    a_roster_that_is_no_write: "quorum-leases/roster-is-no-write" with PASSIVE, of 5;
    a_voter_that_goes_by_an_old_roster: "quorum-leases/old-roster" with PASSIVE, of 5;
    a_regrant_of_a_key_while_a_write_to_it_is_open: "quorum-leases/regrants-open-keys", of 5;
    a_grantee_that_does_not_wait_for_regrants: "quorum-leases/regrants-not-awaited", of 5;
    a_write_that_is_skipped_because_of_a_later_one: "quorum-leases/skips-for-higher-slots", of 5;
    a_regrant_of_an_earlier_granting: "quorum-leases/regrant-of-another-granting" with RESTLESS, of 5;
}
