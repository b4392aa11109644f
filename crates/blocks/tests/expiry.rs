//! Keys that expire, in the replicated state.

use bytes::Bytes;
use quorate_blocks::batch::{Builder, Entry, Limits};
use quorate_blocks::state::Replicated;
use quorate_core::{ProxyId, Wall, Wire};
use quorate_store::{Command, Condition, EXPIRE_LIMIT, Expiry, Reply};

fn value(entries: impl IntoIterator<Item = Entry>, millis: u64) -> Bytes {
    let mut builder = Builder::new();
    entries.into_iter().for_each(|entry| builder.push(entry));
    builder.take(Limits { entries: usize::MAX, bytes: usize::MAX }, Wall::from_millis(millis))
}

#[test]
fn keys_that_expire_together_are_removed_by_the_slots_that_follow_also_if_nobody_asks_anything() {
    let puts = (1..=3 * EXPIRE_LIMIT as u64).map(|seq| {
        let (key, value, expiry) = (format!("k{seq}").into(), Bytes::from_static(b"v"), Expiry::In(100));
        let put = Command::Put { key, value, condition: Condition::Always, expiry, old: false };
        Entry::Write { session: 1, seq, low: 1, command: put.to_bytes() }
    });
    let open = Entry::Open { proxy: ProxyId(1).into(), nonce: 5 };
    let mut state = Replicated::default();
    state.apply(1, &value([open], 1), |_| {}, |_| {});
    state.apply(2, &value(puts, 1000), |_| {}, |_| {});
    assert!(!state.wants_slot(Wall::from_millis(1099)) && state.wants_slot(Wall::from_millis(1100)));
    let mut slots = 0;
    while state.wants_slot(Wall::from_millis(1100)) {
        slots += 1;
        state.apply(2 + slots, &value([], 1100), |_| {}, |_| {});
        assert_eq!(state.read_now(&Command::Count.to_bytes()), Reply::Integer(0).to_bytes());
        // A replica that starts from a snapshot in between has the same to do.
        assert_eq!(Replicated::load(&state.freeze()).unwrap().fingerprint(), state.fingerprint());
    }
    assert_eq!(slots, 3);
}
