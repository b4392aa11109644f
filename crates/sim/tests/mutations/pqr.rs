//! Each safety rule of PQR, weakened on purpose.

use crate::assert_goes_wrong;

/// It takes a group that changes entirely while two members are cut off: too rare for random seeds.
#[test]
fn a_reader_that_goes_by_the_group_that_it_knows() {
    let text = trace!("paxos/pqr", "old-group");
    let is_stale = |text: &str| text.contains("= Value(Some(b\"blue\"))");
    assert_goes_wrong("pqr", "pqr/group-of-the-proxy", text, is_stale);
}

/// The slot by whose time the key has expired writes nothing, and must be executed where the key was read before, and
/// voted for where it is read then.
#[test]
fn a_quorum_that_is_believed_of_a_key_with_a_time_to_live() {
    let text = trace!("paxos/pqr", "key-that-expires-elsewhere");
    let comes_back = |text: &str| text.contains("p2 #3 = Value(Some(b\"v\"))");
    assert_goes_wrong("pqr", "pqr/keys-that-expire", text, comes_back);
}

caught! { "pqr",
    a_reader_that_ignores_what_is_accepted: "pqr/accepted-ignored", at 29;
    a_reader_that_ignores_what_is_accepted_and_could_ask_a_leader:
        "pqr/accepted-ignored" with &["leader_lease=true"], at 139;
    a_reader_that_asks_one: "pqr/majority-of-one", at 4;
    an_old_disk_that_answers_proxies_before_others_have_accepted_it: "admission/answer-proxies-at-once",
        under "rolled-back-disks,crashes,partitions", at 422;
    a_vote_that_is_not_told_after_a_restart: "paxos/votes-forgotten-by-the-policy", at 2;
}
