//! What must always hold at one replica, asserted after every step of the simulator.

use quorate_blocks::prefix_log::ReplicatedLog;

use super::replica::{Replica, Role};

pub(super) fn check(replica: &Replica) {
    replica.log.entries.check();
    replica.batches.check();
    let Replica { accepted, accepted_from, current, leader, log, role, me, .. } = replica;
    let ReplicatedLog { entries: history, committed, state, .. } = log;
    assert!(state.applied() == *committed, "what is committed is executed");
    assert!(
        history.base() <= *committed && *committed <= history.last().0,
        "what is committed is kept or executed"
    );
    assert!(history.last().1 <= *accepted, "an entry of an epoch that is yet to come");
    assert!(current <= accepted, "an epoch is accepted before it begins");
    match role {
        Role::Follower | Role::Candidate { .. } => {}
        Role::Discovery(_) => assert!(*accepted_from == Some(*me), "an epoch is accepted from its leader"),
        Role::Leader(leading) => {
            let leads = *leader == Some(*me) && *accepted_from == Some(*me) && current == accepted;
            assert!(leads, "leads the epoch that it has proposed");
            let last = history.last().0;
            assert!(last >= leading.first, "NEWLEADER is there at once");
            let synchronized = *committed >= leading.first;
            assert!(
                synchronized || last == leading.first,
                "nothing is proposed before a majority is synchronized"
            );
        }
    }
}
