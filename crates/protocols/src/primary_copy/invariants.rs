//! What must always hold at one member, asserted after every step of the simulator.

use super::Replica;

pub(super) fn check(replica: &Replica) {
    let Replica { log, state, committed, peers, .. } = replica;
    assert!(state.applied() == *committed, "what is committed is executed");
    let (first, last) = (log.keys().next(), replica.last());
    assert!(*committed <= last, "what is committed is in the log");
    assert!(first.is_none_or(|first| last - first + 1 == log.len() as u64), "the log has no gaps");
    assert!(first.is_none_or(|first| *first <= committed + 1), "nothing is missing behind what is executed");
    for peer in peers.values() {
        let known = peer.acknowledged <= Some(peer.sent) && peer.sent <= last;
        assert!(known, "nobody has what its primary does not have");
    }
}
