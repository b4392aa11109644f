//! What must always hold at one replica, asserted after every step of the simulator.

use super::replica::{Replica, Role};

pub(super) fn check(replica: &Replica) {
    replica.chain.check();
    replica.near.batches.check();
    let Replica { term, voted, leader, chain, committed, state, role, me, .. } = replica;
    assert!(state.applied() == *committed, "what is committed is executed");
    assert!(
        chain.base() <= *committed && *committed <= chain.last().0,
        "what is committed is kept or executed"
    );
    assert!(chain.last().1 <= *term, "an entry of a term that is yet to come");
    match role {
        Role::Follower => {}
        Role::PreCandidate { term: stayed, .. } => {
            assert!(stayed == term, "asking for pre-votes changes no term");
        }
        Role::Candidate { .. } => assert!(*voted == Some(*me), "a candidate votes for itself"),
        Role::Leader(leading) => {
            assert!(*leader == Some(*me) && *voted == Some(*me), "leads the term in which it was elected");
            assert!(chain.last().0 > leading.inherited, "a leader's no-op is there at once");
        }
    }
}
