//! What must always hold at one member, asserted after every step of the simulator.

use quorate_blocks::prefix_log::ReplicatedLog;

use super::replica::{Replica, Role};

pub(super) fn check(replica: &Replica) {
    let Replica { log, links, promised, chain, role, me, .. } = replica;
    let ReplicatedLog { entries, state, committed, verified, .. } = log;
    entries.check();
    assert!(state.applied() == *committed, "what is committed is executed");
    assert!(
        entries.base() <= *committed && *committed <= entries.last().0,
        "what is committed is kept or executed"
    );
    assert!(entries.last().1 <= promised.number(), "an entry of an epoch that is yet to come");
    assert!(
        links.durable <= *verified && *verified <= entries.last().0,
        "what is durable is verified, and there"
    );
    match role {
        Role::Member | Role::Polling(_) => assert!(chain.first() != Some(me), "the head leads"),
        Role::Candidate(_) => {
            assert!(chain.is_empty() && promised.node() == Some(*me), "prepares its own ballot");
        }
        Role::Head(_) => {
            assert!(chain.first() == Some(me) && promised.node() == Some(*me), "leads its own epoch");
            assert!(*verified == entries.last().0, "the log of an epoch is its head's");
        }
    }
    if !chain.is_empty() {
        assert!(
            chain.len() >= replica.members.voters.majority(),
            "a majority of the members is in the chain"
        );
    }
    if let Some(apportioned) = &replica.apportioned {
        apportioned.check(log);
    }
    if let Some(eager) = &replica.eager {
        eager.check();
    }
}
