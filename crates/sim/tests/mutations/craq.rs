//! Each safety rule of CRAQ beside those of Chain Replication, weakened on purpose.

use crate::RESTLESS;

caught! { "craq",
    a_dirty_key_that_is_answered: "craq/dirty-key", at 36;
    a_key_that_may_have_expired_at_the_tail: "craq/expiring-key", under "all", at 200;
    a_lease_of_a_middle_that_outlives_its_epoch: "chain/promise-while-leased";
    an_entry_that_goes_on_before_it_is_durable: "now/Stored" with RESTLESS, at 36;
    a_promise_that_is_given_before_it_is_durable: "now/Promise" with RESTLESS, at 38;
    a_ballot_that_is_prepared_before_it_is_durable: "now/Prepare" with RESTLESS, at 90;
    a_lease_that_is_promised_before_its_epoch_is_durable: "now/Renew", of 7, under "all", at 5107;
}

/// As in a chain's tail: it reads again when another epoch has begun, and only then answers to its question come.
#[test]
fn a_read_that_is_executed_after_its_question() {
    let text = trace!("chain/craq", "read-after-its-question");
    let is_stale = |text: &str| text.matches("= Value(Some(b\"blue\"))").count() > 1;
    crate::assert_goes_wrong("craq", "eager-alr/join-asked", text, is_stale);
}
