//! What keeps groups in one process apart, weakened on purpose.

use quorate_groups::Groups;
use quorate_protocols::registry::named;
use quorate_sim::{Options, caught};

use crate::{PASSING, SEEDS};

/// Three groups, each with some of the clients' keys.
fn assert_caught(protocol: &str, mutation: &str) {
    let groups = Groups::parse(named(protocol), "3", Some("n,s")).unwrap();
    let options = Options { faults: PASSING.parse().expect("kinds of faults"), ..Options::default() };
    let found = caught(&groups, mutation, &options, SEEDS).expect("valid options");
    let (seed, violation) = found.unwrap_or_else(|| panic!("{protocol}: {mutation} went unnoticed"));
    println!("{protocol}: {mutation}: seed {seed}: {violation:.200}");
}

#[test]
fn a_record_of_one_group_that_is_counted_for_another_s_message() {
    assert_caught("multipaxos", "groups/records-of-another");
    assert_caught("raft", "groups/records-of-another");
}

#[test]
fn a_message_for_one_group_that_is_delivered_to_another() {
    assert_caught("multipaxos", "groups/message-to-another");
    assert_caught("raft", "groups/message-to-another");
}
