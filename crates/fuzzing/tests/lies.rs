//! Replicas whose peers say what cannot be: nothing that a message says makes one panic.

use quorate_fuzzing::disturb;

/// Conversations of one protocol, each disturbed in another way.
const CONVERSATIONS: u64 = 60;

fn assert_stands(protocol: &str) {
    let came: u64 = (0..CONVERSATIONS).map(|seed| disturb(protocol, seed)).sum();
    assert!(came > 100 * CONVERSATIONS, "{came} changed messages came");
}

#[test]
fn epaxos_replicas_stand_whatever_their_peers_say() {
    assert_stands("epaxos");
}
