//! What must always hold at one member, asserted after every step of the simulator.

use super::epochs::Role;
use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let Replica { keys, coordinator, promised, entered, live, whole, me, .. } = replica;
    coordinator.check();
    for (key, pending) in &coordinator.pending {
        assert!(keys.at(key) == pending.at && !keys.is_valid(key), "what is pending is here, and not valid");
        assert!(pending.at.epoch <= promised.number(), "a version of an epoch that is yet to come");
    }
    for key in keys.all().filter(|key| !keys.is_valid(key)) {
        let replayed = coordinator.pending.contains_key(key) || coordinator.invalid.contains_key(key);
        assert!(replayed, "what is not valid will be replayed");
    }
    assert!(entered <= promised, "it is live in no epoch that it has not promised");
    assert!(live.is_empty() || live.len() >= replica.members.voters.majority(), "a majority is live");
    assert!(whole.intersection(*live) == *whole, "who is whole is live");
    assert!(!replica.owns() || promised.node() == Some(*me), "it owns its own epoch");
    if let Role::Candidate { .. } = replica.role {
        assert!(live.is_empty() && promised.node() == Some(*me), "prepares its own ballot");
    }
}
