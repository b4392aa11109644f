//! What must always hold at one replica, asserted after every step of the simulator.

use quorate_blocks::prefix_log::ReplicatedLog;

use super::replica::{Replica, Role};

pub(super) fn check(replica: &Replica) {
    replica.log.entries.check();
    replica.near.batches.check();
    let Replica { term, voted, leader, log, role, me, expecting, .. } = replica;
    let ReplicatedLog { entries, committed, state, .. } = log;
    let next = entries.get(state.applied() + 1).filter(|_| state.applied() < *committed);
    let waits = next.is_some_and(|held| held.entry.value.whole().is_none());
    assert!(state.applied() == *committed || waits, "what is committed and whole is executed");
    assert!(
        entries.base() <= *committed && *committed <= entries.last().0,
        "what is committed is kept or executed"
    );
    assert!(entries.last().1 <= *term, "an entry of a term that is yet to come");
    let knows_another = leader.is_some_and(|leader| leader != *me);
    assert!(!(*expecting && knows_another), "whoever knows who leads does not wait to hear it");
    match role {
        Role::Follower => {}
        Role::PreCandidate { term: stayed, .. } => {
            assert!(stayed == term, "asking for pre-votes changes no term");
        }
        Role::Candidate { .. } => assert!(*voted == Some(*me), "a candidate votes for itself"),
        Role::Gathering(_) => assert!(*voted == Some(*me), "was elected with its own vote"),
        Role::Leader(leading) => {
            assert!(state.applied() == *committed, "a leader has nothing in shards");
            assert!(*leader == Some(*me) && *voted == Some(*me), "leads the term in which it was elected");
            assert!(entries.last().0 > leading.inherited, "a leader's no-op is there at once");
        }
    }
}
