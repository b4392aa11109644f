//! Each safety rule of Hermes, weakened on purpose. Not shown: that ballots, promises and new versions wait for the
//! disk, that a shadow does not read, and that a lease ends before another epoch (`now/Prepare`, `now/Promise`,
//! `now/Inv`, `hermes/shadow-reads`, `hermes/promise-while-leased`).

use crate::RESTLESS;

caught! { "hermes",
    // Keys.
    a_validation_of_another_version: "hermes/any-val";
    a_read_of_a_key_that_is_not_valid: "hermes/read-invalid";
    an_overtaken_write_that_is_said_to_have_failed: "hermes/overtaken-fails";
    a_write_that_is_executed_again: "hermes/no-record";
    an_acknowledgement_before_the_version_is_durable: "now/Ack" with RESTLESS, at 63;
    // Epochs.
    a_member_that_was_whole_once: "hermes/whole-before" with RESTLESS;
}

/// Acknowledgements of an earlier epoch: whoever gave one has adopted another version since, which is replayed.
#[test]
fn an_acknowledgement_of_an_earlier_epoch() {
    let text = trace!("hermes", "acknowledgement-of-an-earlier-epoch");
    let is_lost = |text: &str| text.contains("p1 #5 = Value(Some(b\"1\"))");
    crate::assert_goes_wrong("hermes", "hermes/acks-of-earlier-epochs", text, is_lost);
}
