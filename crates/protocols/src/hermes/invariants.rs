//! What must always hold at one member, asserted after every step of the simulator.

use super::replica::Replica;

pub(super) fn check(replica: &Replica) {
    let Replica { keys, coordinator, epochs, entered, whole, .. } = replica;
    coordinator.check();
    for (key, pending) in &coordinator.pending {
        assert!(keys.at(key) == pending.at && !keys.is_valid(key), "what is pending is here, and not valid");
        assert!(pending.at.epoch <= epochs.promised.number(), "a version of an epoch that is yet to come");
    }
    for key in keys.invalid() {
        let replayed = coordinator.pending.contains_key(key) || coordinator.invalid.contains_key(key);
        assert!(keys.get(key).is_some() && replayed, "what is not valid is here, and will be replayed");
    }
    assert!(*entered <= epochs.promised, "it is live in no epoch that it has not promised");
    assert!(whole.intersection(epochs.live()) == *whole, "who is whole is live");
    epochs.check();
}
