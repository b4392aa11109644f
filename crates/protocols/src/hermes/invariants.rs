//! What must always hold at one member, asserted after every step of the simulator.

use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let Replica { keys, coordinator, epochs, entered, whole, .. } = replica;
    coordinator.check();
    for (key, pending) in &coordinator.pending {
        assert!(keys.at(key) == pending.at && !keys.is_valid(key), "what is pending is here, and not valid");
        assert!(pending.at.epoch <= epochs.promised.number(), "a version of an epoch that is yet to come");
    }
    // Counted: to look at every key after every step takes longer than all else.
    let replayed = coordinator.invalid.keys().filter(|key| !keys.is_valid(key)).count();
    assert!(keys.invalid() == coordinator.pending.len() + replayed, "what is not valid will be replayed");
    assert!(*entered <= epochs.promised, "it is live in no epoch that it has not promised");
    assert!(whole.intersection(epochs.live()) == *whole, "who is whole is live");
    epochs.check();
}
