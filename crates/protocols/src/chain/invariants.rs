//! What must always hold at one member, asserted after every step of the simulator.

use quorate_blocks::epochs::Role;
use quorate_blocks::prefix_log::ReplicatedLog;

use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let Replica { log, links, epochs, chain, leading, me, .. } = replica;
    let ReplicatedLog { entries, state, committed, verified, .. } = log;
    entries.check();
    assert!(state.applied() == *committed, "what is committed is executed");
    assert!(
        entries.base() <= *committed && *committed <= entries.last().0,
        "what is committed is kept or executed"
    );
    assert!(entries.last().1 <= epochs.promised.number(), "an entry of an epoch that is yet to come");
    assert!(
        links.durable <= *verified && *verified <= entries.last().0,
        "what is durable is verified, and there"
    );
    epochs.check();
    assert!(leading.is_some() == epochs.owns(), "the head owns the epoch");
    match epochs.role() {
        Role::Member | Role::Polling(_) => assert!(chain.first() != Some(me), "the head leads"),
        Role::Candidate(_) => assert!(chain.is_empty(), "no chain is known of an epoch that is prepared"),
        Role::Owner(_) => {
            assert!(chain.first() == Some(me), "the owner of an epoch is its head");
            assert!(*verified == entries.last().0, "the log of an epoch is its head's");
        }
    }
    if !chain.is_empty() {
        assert!(chain.len() >= epochs.members.voters.majority(), "a majority of the members is in the chain");
    }
    if let Some(apportioned) = &replica.apportioned {
        apportioned.check(log);
    }
}
