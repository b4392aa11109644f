//! How large a state is, under the names that all protocols share: drivers look for some of them.

use quorate_core::Sample;
use quorate_store::Store;

/// How large the data of a store are, for operators.
pub fn samples_of(store: &Store) -> [Sample; 5] {
    let limit = store.limit().unwrap_or(0);
    let expiring = "Keys that have a time to live.";
    let level = "Feature level of this node's state: what all members must know.";
    let bytes = "Memory that keys and values take, about: what a limit on the data is compared with.";
    [
        Sample::gauge("store_keys", store.len(), "Keys in this node's state."),
        Sample::gauge("store_keys_expiring", store.expiring(), expiring),
        Sample::gauge("store_bytes", store.bytes(), bytes),
        Sample::gauge("store_limit_bytes", limit, "What that may be (max-data); 0 for no bound."),
        Sample::gauge("store_feature_level", u64::from(store.level().get()), level),
    ]
}
