//! Each rule of primary-copy, weakened on purpose.

use crate::assert_goes_wrong;

caught! { "primary-copy",
    a_copy_that_leaves_before_the_primary_has_it: "now/Copy", at 5;
    a_copy_that_is_acknowledged_before_it_is_durable: "now/Copied", at 1;
    a_read_before_the_log_is_executed: "primary-copy/read-at-once";
}

/// Nothing is lost as long as the primary has its disk; the copies are for when it has not.
#[test]
fn a_write_that_is_answered_before_a_majority_has_it() {
    let text = trace!("primary_copy", "a-write-and-its-copies");
    let is_answered_at_once = |text: &str| {
        let (_, after) = text.split_once("put p1 k 1").expect("it is written");
        let (before, _) = after.split_once("deliver r1>r2").expect("it is copied");
        before.contains("-> p1 Answer")
    };
    assert_goes_wrong("primary-copy", "primary-copy/commit-alone", text, is_answered_at_once);
}
