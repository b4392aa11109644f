//! Each safety rule of CRAQ beside those of Chain Replication, weakened on purpose.

use crate::RESTLESS;

caught! { "craq",
    a_dirty_key_that_is_answered: "craq/dirty-key", at 2;
    writes_of_entries_that_were_replaced: "craq/writes-that-are-gone" with RESTLESS, at 6;
    a_lease_of_a_middle_that_outlives_its_epoch: "epochs/promise-while-leased";
    an_entry_that_goes_on_before_it_is_durable: "now/Stored" with RESTLESS, at 79;
    a_promise_that_is_given_before_it_is_durable: "now/Promise" with RESTLESS, at 46;
    a_ballot_that_is_prepared_before_it_is_durable: "now/Prepare" with RESTLESS, at 90;
}

#[test]
fn a_key_that_may_have_expired_at_the_tail() {
    let text = trace!("chain/craq", "key-that-has-expired-elsewhere");
    let is_stale = |text: &str| text.contains("p2 #4 = Value(Some(b\"blue\"))");
    crate::assert_goes_wrong("craq", "craq/expiring-key", text, is_stale);
}

#[test]
fn a_lease_that_is_promised_before_its_epoch_is_durable() {
    let text = trace!("chain/craq", "lease-of-an-epoch-that-is-not-durable");
    let reads_before_sync = |text: &str| {
        let before = text.split("sync r2").next().expect("it begins");
        before.contains("r3 leader leader r3 ballot 2.3 committed 2 applied 2 lease")
    };
    crate::assert_goes_wrong("craq", "now/Renew", text, reads_before_sync);
}

/// As in a chain's tail: it reads again when another epoch has begun, and only then answers to its question come.
#[test]
fn a_read_that_is_executed_after_its_question() {
    let text = trace!("chain/craq", "read-after-its-question");
    let is_stale = |text: &str| text.matches("= Value(Some(b\"blue\"))").count() > 1;
    crate::assert_goes_wrong("craq", "eager-alr/join-asked", text, is_stale);
}

#[test]
fn a_reader_without_leases() {
    crate::assert_reads_alone("craq", " reads=lease", "epochs/reads-without-leases");
}

/// It lacks what another has, whose clock is slower, and the disks of two more hang.
#[test]
fn a_candidate_that_stands_again_and_again_though_another_must_own_the_epoch() {
    crate::assert_never_served("craq", "reads=eager-alr", 5, 4078);
}

#[test]
fn eager_reads_that_ask_nobody() {
    crate::assert_reads_alone("craq", " reads=eager-alr", "eager-alr/ask-nobody");
}
