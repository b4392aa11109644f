//! What one command costs: `cargo run --release -p quorate-store --example speed [keys]`.
#![allow(clippy::disallowed_methods, reason = "measures time; no part of the state machine")]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use quorate_core::{Image, Random, Wall, Wire};
use quorate_store::{Command, Condition, Expiry, Loader, Store};

fn main() {
    let keys = std::env::args().nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(100_000);
    let random = &mut Random::new(1);
    let key = |n: u64| Bytes::from(format!("key:{n:012}"));
    let put = |n: u64| Command::Put {
        key: key(n),
        value: Bytes::from(vec![b'x'; 128]),
        condition: Condition::Always,
        expiry: Expiry::Never,
        old: false,
    };
    let mut store = Store::new();
    let mut revision = 0;
    let mut apply = |store: &mut Store, command: &Command| {
        revision += 1;
        black_box(store.apply(command, revision, Wall::from_millis(revision)));
    };
    // The order of keys is random: neighbours in time are no neighbours in memory.
    let mut order: Vec<u64> = (0..keys).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.range(0..at as u64 + 1) as usize);
    }
    let fill: Vec<_> = order.iter().map(|n| put(*n)).collect();
    measure("put, new key", &fill, |command| apply(&mut store, command));
    let puts: Vec<_> = (0..500_000).map(|_| put(random.range(0..keys))).collect();
    measure("put, same keys", &puts, |command| apply(&mut store, command));
    let gets: Vec<_> = (0..500_000).map(|_| Command::Get { key: key(random.range(0..keys)) }).collect();
    measure("get", &gets, |command| drop(black_box(store.read(command))));
    let bytes: Vec<_> = puts.iter().map(Wire::to_bytes).collect();
    measure("decode put", &bytes, |bytes| drop(black_box(Command::from_bytes(bytes.clone()))));
    let image = store.freeze();
    measure("put, first after freezing", &puts[..puts.len() / 10], |command| apply(&mut store, command));

    let start = Instant::now();
    let (mut loader, mut cursor, mut size) = (Loader::new(), Bytes::new(), 0);
    loop {
        let piece = image.piece(&cursor, 1 << 20);
        size += piece.bytes.len();
        loader.push(piece.bytes).expect("an image of our own");
        match piece.next {
            Some(next) => cursor = next,
            None => break,
        }
    }
    let loaded = loader.finish().expect("the whole image");
    println!("freeze and load: {} keys, {} MiB, {:?}", loaded.len(), size >> 20, start.elapsed());
}

fn measure<T>(what: &str, items: &[T], mut each: impl FnMut(&T)) {
    let start = Instant::now();
    items.iter().for_each(&mut each);
    let nanos = start.elapsed().as_nanos() / items.len().max(1) as u128;
    println!("{what}: {nanos} ns");
}
