//! What must always hold at one replica, asserted after every step of the simulator.

use super::policy::Policy;
use super::replica::{Replica, Role};

pub(super) fn check<P: Policy>(replica: &Replica<P>) {
    replica.log.check();
    let Replica { promised, wanted, highest, log, state, role, me, .. } = replica;
    assert!(wanted <= highest && promised <= highest, "the highest ballot seen is at least those in use");
    assert!(state.applied() == log.complete(), "what is chosen and here whole, without holes, is executed");
    let open = replica.writes.first().is_none_or(|slot| slot > state.applied());
    assert!(open, "no write of a slot that is executed is kept as one that is not");
    assert!(state.applied() + 1 >= log.start(), "only what is executed is cut off");
    for (slot, vote) in log.votes(log.committed() + 1) {
        assert!(vote.ballot <= *promised, "slot {slot}: a vote above the promise");
    }
    match role {
        Role::Follower | Role::Polling(_) => {}
        Role::Candidate(_) | Role::Leader(_) => {
            assert!(promised.node() == Some(*me), "leads or stands in its own ballot only");
            assert!(wanted <= promised, "stops when it sees a higher ballot");
        }
    }
    let executed = state.configuration().map_or(0, |(slot, _)| *slot);
    assert!(replica.configuration.0 == executed, "the configuration in force is the last that was executed");
    if let Role::Leader(leading) = role
        && leading.found.is_empty()
    {
        let next = leading.proposals.next();
        let above = next > leading.recovered || state.applied() >= leading.recovered;
        assert!(above, "new values go above what phase 1 found");
        if let Some(slot) = leading.changing.filter(|slot| *slot > state.applied()) {
            assert!(next == slot + 1, "nothing is proposed behind a configuration that is not executed");
        }
    }
    replica.waiting.check();
    replica.batches.check();
}
