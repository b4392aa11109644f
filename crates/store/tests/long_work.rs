//! Commands on many keys or fields: each is a bounded piece of work, and the pieces together are the whole.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_core::{Image, Random, Wall};
use quorate_store::glob::PATTERN_LIMIT;
use quorate_store::order::position;
use quorate_store::{
    Command, CommandError, Condition, EXPIRE_LIMIT, Expires, Expiry, Frozen, Loader, Reply, SCAN_ITEMS,
    Single, Store, process,
};

fn key(number: usize) -> Bytes {
    Bytes::from(format!("key:{number}"))
}

fn put(key: Bytes, expiry: Expiry) -> Command {
    Command::Put { key, value: Bytes::from_static(b"v"), condition: Condition::Always, expiry, old: false }
}

/// A store with so many keys, which expire at that time if one is given.
fn store_of(keys: usize, deadline: Option<i64>) -> Store {
    let mut store = Store::new();
    for number in 0..keys {
        let command = put(key(number), deadline.map_or(Expiry::Never, Expiry::At));
        store.apply(&command, number as u64 + 1, Wall::from_millis(1));
    }
    store
}

/// A store with a hash of so many fields.
fn hash_of(fields: usize) -> Store {
    let mut store = Store::new();
    let numbers: Vec<usize> = (0..fields).collect();
    for (revision, numbers) in (1..).zip(numbers.chunks(1000)) {
        let fields = numbers.iter().map(|number| (key(*number), Bytes::from_static(b"v"))).collect();
        store.apply(&Command::HashPut { key: "h".into(), fields, if_absent: false }, revision, Wall::ZERO);
    }
    store
}

fn reload(image: &Frozen) -> Store {
    let mut loader = Loader::new();
    let mut cursor = Bytes::new();
    loop {
        let piece = image.piece(&cursor, 1 << 16);
        loader.push(piece.bytes).unwrap();
        match piece.next {
            Some(next) => cursor = next,
            None => return loader.finish().unwrap(),
        }
    }
}

fn scan(from: u64, limit: u32, pattern: Option<&str>) -> Command {
    Command::Scan {
        from,
        limit,
        pattern: pattern.map(|text| Bytes::copy_from_slice(text.as_bytes())),
        kind: None,
    }
}

fn hash_scan(from: u64, limit: u32) -> Command {
    Command::HashScan { key: "h".into(), from, limit, pattern: None }
}

#[test]
fn keys_that_expire_together_are_absent_at_once_and_removed_a_bounded_number_at_a_time() {
    let keys = 5 * EXPIRE_LIMIT / 2;
    let mut store = store_of(keys, Some(50));
    store.apply(&put("stays".into(), Expiry::At(90)), 1 << 20, Wall::from_millis(2));
    let full = store.bytes();
    let mut removed = vec![store.advance(Wall::from_millis(49))];
    assert_eq!((store.len(), store.unremoved()), (keys + 1, 0));

    // Whatever is asked, they are not there, although most have not been removed.
    removed.push(store.advance(Wall::from_millis(50)));
    assert_eq!((store.len(), store.unremoved()), (1, keys - EXPIRE_LIMIT));
    assert!(store.bytes() > full / 2);
    let reload_of = |store: &Store| reload(&store.freeze());
    for store in [store.clone(), reload_of(&store)] {
        let some = || (0..keys).step_by(100).map(key).collect::<Vec<_>>();
        let one = || key(keys / 2);
        assert_eq!(store.read(&Command::Count), Reply::Integer(1));
        assert_eq!(store.read(&Command::Exists { keys: some() }), Reply::Integer(0));
        assert_eq!(store.read(&Command::Get { key: one() }), Reply::Value(None));
        assert_eq!(store.read(&Command::GetMany { keys: vec![one()] }), Reply::Values(vec![None]));
        assert_eq!(store.read(&Command::Length { key: one() }), Reply::Integer(0));
        assert_eq!(store.read(&Command::KindOf { key: one() }), Reply::Kind(None));
        assert_eq!(store.read(&Command::ExpiryOf { key: one() }), Reply::Expires(Expires::Missing));
        assert_eq!(store.read(&Command::VersionsOf { keys: vec![one()] }), Reply::Versions(vec![0]));
        assert_eq!(
            store.read(&scan(0, u32::MAX, None)),
            Reply::Keys { keys: vec!["stays".into()], next: None }
        );
        assert_eq!(store.next_expiry(), Some(Wall::from_millis(90)));
        assert!(store.is_current(&Command::Count, Wall::from_millis(60)), "nothing is undecided");
        // The only key that is left is found for all but the rarest choices.
        let chosen = (0..50).filter(|seed| {
            store.read(&Command::RandomKey { seed: *seed }) == Reply::Value(Some("stays".into()))
        });
        assert!(chosen.count() > 25);
    }

    // Writes do not find them either, and make new ones in their place.
    let mut other = store.clone();
    let apply = |store: &mut Store, revision, command| store.apply(&command, revision, Wall::from_millis(50));
    let (all, revision) = ((0..keys).map(key).collect(), 1 << 21);
    assert_eq!(
        apply(&mut other, revision, Command::Append { key: key(1), value: "x".into() }),
        Reply::Integer(1)
    );
    let if_present = Command::Put {
        key: key(2),
        value: "x".into(),
        condition: Condition::IfPresent,
        expiry: Expiry::Never,
        old: false,
    };
    assert_eq!(apply(&mut other, revision + 1, if_present), Reply::Skipped);
    let watched = vec![(key(3), 0)];
    let commands =
        vec![Single(Command::Increment { key: key(4), by: 1 }), Single(Command::Get { key: key(5) })];
    assert_eq!(
        apply(&mut other, revision + 2, Command::Batch { watched, commands }),
        Reply::Batch(Some(vec![Reply::Integer(1), Reply::Value(None)]))
    );
    assert_eq!(apply(&mut other, revision + 3, Command::Delete { keys: all }), Reply::Integer(2));
    assert_eq!((other.len(), other.unremoved()), (1, 0), "what is written is removed first");

    // The rest goes with the positions that follow, and the books are right in between.
    let mut loaded = reload_of(&store);
    while store.unremoved() > 0 {
        removed.push(store.advance(Wall::from_millis(51)));
        loaded.advance(Wall::from_millis(51));
        assert_eq!(store, loaded);
        assert_eq!(store.digest(), loaded.digest());
    }
    assert_eq!(removed, [0, EXPIRE_LIMIT, EXPIRE_LIMIT, keys - 2 * EXPIRE_LIMIT]);
    let mut alone = Store::new();
    alone.apply(&put("stays".into(), Expiry::At(90)), 1 << 20, Wall::from_millis(51));
    assert_eq!(store.bytes(), alone.bytes());
}

#[test]
fn a_store_that_is_cleared_before_expired_keys_are_removed_is_empty() {
    let mut store = store_of(2 * EXPIRE_LIMIT, Some(50));
    store.advance(Wall::from_millis(50));
    assert!(store.unremoved() > 0);
    assert_eq!(store.apply(&Command::Clear, 1 << 20, Wall::from_millis(50)), Reply::Done);
    assert_eq!((store.len(), store.unremoved(), store.bytes()), (0, 0, 0));
    store.apply(&put("k".into(), Expiry::In(5)), 1 << 21, Wall::from_millis(50));
    assert_eq!((store.advance(Wall::from_millis(55)), store.len()), (1, 0));
}

#[test]
fn a_scan_is_a_bounded_piece_of_work_whatever_its_limit() {
    let store = store_of(2 * SCAN_ITEMS + 5, None);
    let (mut from, mut parts, mut all) = (0, Vec::new(), BTreeSet::new());
    loop {
        let Reply::Keys { keys, next } = store.read(&scan(from, u32::MAX, None)) else {
            panic!("keys were asked for")
        };
        parts.push(keys.len());
        keys.into_iter().for_each(|key| assert!(all.insert(key), "each is given once"));
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(parts, [SCAN_ITEMS, SCAN_ITEMS, 5]);
    assert_eq!(all.len(), store.len());

    // In a batch all scans together look at as much.
    let read = |limit| Single(scan(0, limit, None));
    let commands = vec![read(6000), read(6000), read(1)];
    let Reply::Batch(Some(replies)) = store.read(&Command::Batch { watched: vec![], commands }) else {
        panic!()
    };
    let sizes = replies.iter().map(|reply| match reply {
        Reply::Keys { keys, .. } => Ok(keys.len()),
        Reply::Error(error) => Err(*error),
        other => panic!("{other:?}"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [Ok(6000), Ok(4000), Err(CommandError::TooMuch)]);
}

#[test]
fn a_pattern_is_a_bounded_piece_of_work_whatever_it_and_the_keys_are() {
    let mut store = Store::new();
    for number in 0..20 {
        let long = Bytes::from(format!("{}{number}", "a".repeat(60_000)));
        store.apply(&put(long, Expiry::Never), number + 1, Wall::ZERO);
    }
    let pattern = "a*".repeat(PATTERN_LIMIT / 2);
    let (mut from, mut parts) = (Some(0), 0);
    while let Some(position) = from {
        let Reply::Keys { keys, next } = store.read(&scan(position, u32::MAX, Some(&pattern))) else {
            panic!()
        };
        assert!(keys.len() <= 4, "{}", keys.len());
        (from, parts) = (next, parts + 1);
    }
    assert!(parts >= 5, "{parts}");
    let long = "a".repeat(PATTERN_LIMIT + 1);
    assert_eq!(store.read(&scan(0, 10, Some(&long))), Reply::Error(CommandError::PatternTooLong));

    // Fields may be much longer than keys: one that is too long for the pattern is no match and no endless work.
    let fields = vec![(Bytes::from(vec![b'a'; 1 << 20]), Bytes::new())];
    store.apply(&Command::HashPut { key: "h".into(), fields, if_absent: false }, 100, Wall::ZERO);
    let matching =
        Command::HashScan { key: "h".into(), from: 0, limit: 9, pattern: Some("a*".repeat(100).into()) };
    assert_eq!(store.read(&matching), Reply::Error(CommandError::TooMuch));
}

#[test]
fn what_a_scan_replies_has_about_a_mebibyte_whatever_its_limit() {
    let mut store = Store::new();
    let long = |number: usize| Bytes::from("x".repeat(100_000) + &number.to_string());
    for (revision, number) in (1..=24).zip(0..) {
        store.apply(&put(long(number).slice(50_000..), Expiry::Never), revision, Wall::ZERO);
    }
    let fields = (0..24).map(|number| (key(number), long(number))).collect();
    store.apply(&Command::HashPut { key: "h".into(), fields, if_absent: false }, 25, Wall::ZERO);
    let (mut from, mut parts) = (Some(0), Vec::new());
    while let Some(position) = from {
        let Reply::Keys { keys, next } = store.read(&scan(position, u32::MAX, None)) else { panic!() };
        (from, parts) = (next, [parts, vec![keys.len()]].concat());
    }
    assert!(parts.len() == 2 && parts.iter().sum::<usize>() == 25 && parts[0] <= 22, "{parts:?}");
    let (mut from, mut parts) = (Some(0), Vec::new());
    while let Some(position) = from {
        let Reply::Fields { pairs, next, .. } = store.read(&hash_scan(position, u32::MAX)) else { panic!() };
        (from, parts) = (next, [parts, vec![pairs.len()]].concat());
    }
    assert_eq!(parts, [11, 11, 2]);
}

#[test]
fn time_does_not_go_back_for_keys_that_are_over() {
    let mut store = store_of(0, None);
    store.advance(Wall::from_millis(60));
    for (revision, now) in [(1, 10), (3, 60), (5, 10)] {
        store.advance(Wall::from_millis(now));
        store.apply(&put(key(1), Expiry::At(50)), revision, Wall::from_millis(now));
        assert_eq!(store.read(&Command::Get { key: key(1) }), Reply::Value(None), "{now}");
        store.apply(&put(key(2), Expiry::At(61)), revision + 1, Wall::from_millis(now));
        assert_ne!(store.read(&Command::Get { key: key(2) }), Reply::Value(None), "{now}");
    }
}

#[test]
fn a_large_hash_is_read_in_pieces_of_one_version() {
    let mut store = hash_of(3 * SCAN_ITEMS);
    assert_eq!(store.read(&Command::HashAll { key: "h".into() }), Reply::Error(CommandError::TooMuch));
    let (mut from, mut versions, mut all) = (Some(0), BTreeSet::new(), BTreeSet::new());
    while let Some(position) = from {
        let Reply::Fields { pairs, next, version } = store.read(&hash_scan(position, u32::MAX)) else {
            panic!()
        };
        assert!(pairs.len() <= SCAN_ITEMS);
        versions.insert(version);
        pairs.into_iter().for_each(|(field, _)| assert!(all.insert(field), "each is given once"));
        from = next;
    }
    assert_eq!((all.len(), versions.len()), (3 * SCAN_ITEMS, 1));
    store.apply(&Command::HashDelete { key: "h".into(), fields: vec![key(7)] }, 1 << 20, Wall::ZERO);
    let Reply::Fields { version, .. } = store.read(&hash_scan(0, 1)) else { panic!() };
    assert!(!versions.contains(&version), "another hash has another version");
}

/// What a reply says of where to go on is a position, so nothing needs to be remembered of the scan.
#[test]
fn a_scan_gives_each_key_and_field_that_is_there_throughout_once_whatever_comes_and_goes() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let (mut store, mut revision) = (Store::new(), 0);
        let mut apply = |store: &mut Store, command: &Command| {
            revision += 1;
            store.apply(command, revision, Wall::ZERO);
        };
        let field = |number| vec![(key(number), Bytes::new())];
        let (stay, go) = (400, 800);
        for number in 0..go {
            apply(&mut store, &put(key(number), Expiry::Never));
            apply(&mut store, &Command::HashPut { key: "h".into(), fields: field(number), if_absent: false });
        }
        for is_hash in [false, true] {
            let (mut from, mut seen) = (Some(0), BTreeMap::<Bytes, usize>::new());
            while let Some(position) = from {
                let limit = random.range(1..40) as u32;
                let (keys, next) = match store.read(&if is_hash {
                    hash_scan(position, limit)
                } else {
                    scan(position, limit, None)
                }) {
                    Reply::Keys { keys, next } => (keys, next),
                    Reply::Fields { pairs, next, .. } => {
                        (pairs.into_iter().map(|(field, _)| field).collect(), next)
                    }
                    other => panic!("{other:?}"),
                };
                assert!(next.is_none_or(|next| next > position && next < 1 << 53));
                keys.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
                from = next;
                // The key that the scan stands at may well be among those that go.
                for _ in 0..20 {
                    let number = stay + random.range(0..(go - stay) as u64) as usize;
                    let command = match (is_hash, random.chance(0.5)) {
                        (false, true) => put(key(number), Expiry::Never),
                        (false, false) => Command::Delete { keys: vec![key(number)] },
                        (true, true) => {
                            Command::HashPut { key: "h".into(), fields: field(number), if_absent: false }
                        }
                        (true, false) => Command::HashDelete { key: "h".into(), fields: vec![key(number)] },
                    };
                    apply(&mut store, &command);
                }
            }
            for number in 0..stay {
                assert_eq!(seen.get(&key(number)), Some(&1), "seed {seed}: {number}");
            }
        }
    }
}

#[test]
fn a_position_is_where_its_key_is() {
    let store = store_of(500, None);
    for number in 0..500 {
        let at = position(&key(number));
        let Reply::Keys { keys, next } = store.read(&scan(at, 1, None)) else { panic!() };
        assert_eq!(keys, [key(number)]);
        assert!(next.is_none_or(|next| next > at));
    }
}

#[test]
fn nothing_depends_on_the_key_of_the_tables_hash() {
    let outcome = |hash_key: [u64; 2]| {
        process::set_hash_key(hash_key);
        let (mut random, mut replies) = (Random::new(5), Vec::new());
        let mut store = Store::new();
        for revision in 1..4000 {
            let chosen = key(random.range(0..700) as usize);
            let command = match random.range(0..8) {
                0 => Command::Delete { keys: vec![chosen] },
                1 => Command::RandomKey { seed: random.u64() },
                2 => scan(position(&chosen), 20, None),
                3 => put(chosen, Expiry::In(30)),
                _ => put(chosen, Expiry::Never),
            };
            replies.push(store.apply(&command, revision, Wall::from_millis(revision / 10)));
        }
        process::set_hash_key([0, 0]);
        (store.digest(), replies, reload(&store.freeze()) == store)
    };
    let first = outcome([0, 0]);
    assert!(first.2);
    for hash_key in [[1, 0], [0, u64::MAX], [0x1234_5678, 0x9abc_def0]] {
        assert!(outcome(hash_key) == first);
    }
}
