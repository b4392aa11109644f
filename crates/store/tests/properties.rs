//! What holds for any history.

mod common;

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{command, key, later, load, pieces, single, store};
use quorate_core::{Access, Image, Random, Wall, Wire};
use quorate_store::command::first_key;
use quorate_store::{
    Command, CommandError, Condition, Expires, Expiry, Extent, Frozen, Kind, LoadError, Loader, Reply,
    Single, Store, User, UserRule, VALUE_LIMIT,
};

fn cases() -> impl Iterator<Item = (u64, Random)> {
    (0..60).map(|seed| (seed, Random::new(seed)))
}

#[test]
fn a_frozen_image_can_be_read_from_any_thread() {
    fn check<T: Send + Sync>() {}
    check::<Frozen>();
    check::<Store>();
}

#[test]
fn a_loaded_image_is_the_store() {
    for (seed, mut random) in cases() {
        let commands = random.range(0..200);
        let (store, ..) = store(&mut random, commands);
        for limit in [0, 1, 40, 100, 1000, usize::MAX] {
            let loaded = load(pieces(&store.freeze(), limit)).unwrap();
            assert_eq!(loaded, store, "seed {seed} limit {limit}");
            assert_eq!(loaded.digest(), store.digest());
        }
    }
}

#[test]
fn a_store_loaded_midway_goes_on_as_the_one_it_was_taken_from() {
    for (seed, mut random) in cases() {
        let (mut store, mut revision, mut now) = store(&mut random, 150);
        let mut loaded = load(pieces(&store.freeze(), 100)).unwrap();
        for _ in 0..150 {
            revision += 1;
            now = later(&mut random, now);
            let command = command(&mut random, now);
            assert_eq!(
                loaded.apply(&command, revision, now),
                store.apply(&command, revision, now),
                "seed {seed}"
            );
        }
        assert_eq!(loaded, store);
    }
}

#[test]
fn later_writes_leave_a_frozen_image_as_it_is() {
    for (seed, mut random) in cases() {
        let (mut store, mut revision, mut now) = store(&mut random, 100);
        let (image, before) = (store.freeze(), store.clone());
        let expected = pieces(&image, 100);
        for _ in 0..100 {
            revision += 1;
            now = later(&mut random, now);
            store.apply(&command(&mut random, now), revision, now);
        }
        assert_eq!(pieces(&image, 100), expected, "seed {seed}");
        assert_eq!(load(expected).unwrap(), before);
    }
}

#[test]
fn equal_logs_give_equal_stores_whatever_is_read_in_between() {
    for (seed, mut random) in cases() {
        let mut local = random.fork();
        let (mut a, mut b) = (Store::new(), Store::new());
        let mut now = Wall::from_millis(1000);
        for revision in 1..300 {
            now = later(&mut random, now);
            let command = command(&mut random, now);
            // One replica serves reads at times of its own, which run ahead of the log's.
            for _ in 0..local.range(0..3) {
                let read = single(&mut local, now);
                a.is_current(&read, Wall::from_millis(now.millis() + local.range(0..50)));
                a.read(&read);
            }
            assert_eq!(a.apply(&command, revision, now), b.apply(&command, revision, now));
            assert_eq!(
                (a.next_expiry(), a.bytes()),
                (b.next_expiry(), b.bytes()),
                "seed {seed}: {command:?}"
            );
        }
        assert_eq!(a, b);
        assert_eq!(a.digest(), b.digest());
    }
}

#[test]
fn a_digest_tells_versions_deadlines_revision_and_time_apart() {
    let put = |value: &'static str, expiry| Command::Put {
        key: "k".into(),
        value: value.into(),
        condition: Condition::Always,
        expiry,
        old: false,
    };
    let digest = |command: &Command, revision, now| {
        let mut store = Store::new();
        store.apply(command, revision, Wall::from_millis(now));
        store.digest()
    };
    let mut digests: BTreeSet<u64> = BTreeSet::new();
    digests.insert(digest(&put("v", Expiry::Never), 1, 0));
    digests.insert(digest(&put("w", Expiry::Never), 1, 0));
    digests.insert(digest(&put("v", Expiry::Never), 2, 0));
    digests.insert(digest(&put("v", Expiry::Never), 1, 1));
    digests.insert(digest(&put("v", Expiry::At(5)), 1, 0));
    digests.insert(digest(&put("v", Expiry::At(6)), 1, 0));
    digests.insert(digest(&Command::Clear, 1, 0));
    digests.insert(digest(&Command::Clear, 2, 0));
    assert_eq!(digests.len(), 8);
}

#[test]
fn a_read_of_an_overdue_key_is_not_current_and_others_are() {
    let mut store = Store::new();
    let wall = Wall::from_millis;
    for (revision, (key, expiry)) in
        [("a", Expiry::At(10)), ("b", Expiry::At(20)), ("c", Expiry::Never)].into_iter().enumerate()
    {
        let key = key.into();
        let put = Command::Put { key, value: "v".into(), condition: Condition::Always, expiry, old: false };
        store.apply(&put, revision as u64 + 1, wall(1));
    }
    let get = |key: &'static str| Command::Get { key: key.into() };
    let batch = Command::Batch { watched: vec![("b".into(), 2)], commands: vec![Single(get("c"))] };
    for (command, at_9, at_10, at_20) in [
        (get("a"), true, false, false),
        (get("b"), true, true, false),
        (get("c"), true, true, true),
        (get("absent"), true, true, true),
        (Command::GetMany { keys: vec!["c".into(), "b".into()] }, true, true, false),
        (Command::Count, true, false, false),
        (batch, true, true, false),
    ] {
        let found = [9, 10, 20].map(|millis| store.is_current(&command, wall(millis)));
        assert_eq!(found, [at_9, at_10, at_20], "{command:?}");
    }
}

/// A store with only the keys that a footprint touches.
fn cut(store: &Store, touched: impl Fn(&[u8]) -> bool) -> Store {
    let mut cut = store.clone();
    let Reply::Keys { keys, .. } =
        store.read(&Command::Scan { from: 0, limit: u32::MAX, pattern: None, kind: None })
    else {
        panic!("a scan gives keys")
    };
    let others = keys.into_iter().filter(|key| !touched(key)).collect();
    cut.apply(&Command::Delete { keys: others }, store.revision() + 1, store.time());
    cut
}

/// All that there is to know of a key.
fn facts(store: &Store, key: &Bytes) -> Vec<Reply> {
    let key = || key.clone();
    let expiry = store.read(&Command::ExpiryOf { key: key() });
    let versions = store.read(&Command::VersionsOf { keys: vec![key()] });
    vec![
        store.read(&Command::Get { key: key() }),
        store.read(&Command::HashAll { key: key() }),
        expiry,
        versions,
    ]
}

#[test]
fn a_command_depends_on_its_footprint_alone_and_changes_only_what_it_writes() {
    for (seed, mut random) in cases() {
        let (store, revision, now) = store(&mut random, 100);
        for _ in 0..60 {
            let command = command(&mut random, now);
            let footprint = command.footprint();
            let (mut whole, mut part) = (store.clone(), cut(&store, |key| footprint.touches(key)));
            let reply = whole.apply(&command, revision + 2, now);
            assert_eq!(part.apply(&command, revision + 2, now), reply, "seed {seed}: {command:?}");
            for key in common::all_keys() {
                if footprint.writes().contains(&key) {
                    assert_eq!(facts(&whole, &key), facts(&part, &key), "seed {seed}: {command:?}");
                } else {
                    assert_eq!(facts(&whole, &key), facts(&store, &key), "seed {seed}: {command:?}");
                }
            }
            assert_eq!(footprint.is_read_only(), command.is_read_only() || footprint.writes().is_empty());
            assert_eq!(command.access() == Access::Read, command.is_read_only());
        }
    }
}

#[test]
fn what_is_looked_for_ahead_is_a_key_of_the_command_and_an_encoded_read_is_the_read() {
    for (seed, mut random) in cases() {
        let (store, _, now) = store(&mut random, 100);
        let digest = store.digest();
        for _ in 0..60 {
            let command = command(&mut random, now);
            let encoded = command.to_bytes();
            let found = first_key(&encoded);
            assert!(found.is_none_or(|key| command.footprint().touches(key)), "seed {seed}: {command:?}");
            if matches!(command, Command::Get { .. } | Command::Put { .. } | Command::HashScan { .. }) {
                assert!(found.is_some(), "seed {seed}: {command:?}");
            }
            let bytes: Bytes = (0..random.range(0..12)).map(|_| random.u64() as u8).collect();
            store.touch([encoded.slice(..encoded.len() / 2), encoded, bytes].iter());
            assert_eq!(
                store.read_encoded(&command).into_bytes(),
                store.read(&command).to_bytes(),
                "seed {seed}: {command:?}"
            );
        }
        assert_eq!(store.digest(), digest);
    }
}

#[test]
fn commands_without_a_conflict_give_the_same_replies_in_either_order() {
    let mut apart = 0;
    for (seed, mut random) in cases() {
        let (store, revision, now) = store(&mut random, 100);
        for _ in 0..60 {
            let (a, b) = (single(&mut random, now), single(&mut random, now));
            let conflict = a.footprint().conflicts(&b.footprint());
            assert_eq!(conflict, b.footprint().conflicts(&a.footprint()));
            if conflict {
                continue;
            }
            apart += 1;
            let (mut ab, mut ba) = (store.clone(), store.clone());
            let first = ab.apply(&a, revision + 1, now);
            let second = ab.apply(&b, revision + 2, now);
            assert_eq!(ba.apply(&b, revision + 1, now), second, "seed {seed}: {a:?} {b:?}");
            assert_eq!(ba.apply(&a, revision + 2, now), first, "seed {seed}: {a:?} {b:?}");
        }
    }
    assert!(apart > 1000, "{apart}");
}

#[test]
fn footprints_know_what_overlaps() {
    let get = |key: &'static str| Command::Get { key: key.into() }.footprint();
    let take = |key: &'static str| Command::Take { key: key.into() }.footprint();
    let delete = |keys: &[&'static str]| {
        Command::Delete { keys: keys.iter().map(|key| Bytes::from(*key)).collect() }.footprint()
    };
    let (count, clear) = (Command::Count.footprint(), Command::Clear.footprint());
    for (a, b, conflict) in [
        (get("a"), get("a"), false),
        (get("a"), take("a"), true),
        (get("a"), take("b"), false),
        (take("a"), take("a"), true),
        (take("a"), delete(&["b", "a", "b"]), true),
        (take("c"), delete(&["b", "a", "b"]), false),
        (count.clone(), get("a"), false),
        (count.clone(), take("a"), true),
        (count.clone(), count.clone(), false),
        (count, delete(&[]), false),
        (clear.clone(), get("a"), true),
        (clear.clone(), delete(&[]), false),
        (clear.clone(), clear, true),
    ] {
        assert_eq!(a.conflicts(&b), conflict, "{a:?} {b:?}");
        assert_eq!(b.conflicts(&a), conflict, "{b:?} {a:?}");
    }
    let Extent::Keys(keys) = delete(&["b", "a", "b"]).writes().clone() else { panic!("these are keys") };
    assert_eq!(keys.as_slice(), ["a", "b"]);
    let batch = Command::Batch {
        watched: vec![("w".into(), 1)],
        commands: vec![Single(Command::Get { key: "r".into() }), Single(Command::Take { key: "t".into() })],
    };
    let footprint = batch.footprint();
    assert!(["w", "r", "t"].iter().all(|key| footprint.touches(key.as_bytes())));
    assert!(!footprint.touches(b"x") && !footprint.writes().contains(b"r") && !footprint.is_read_only());
}

#[test]
fn any_key_may_be_chosen_at_random() {
    let names = ["", "a", "aa", "aab", "b", "key:1", "key:10", "key:2", "key:999", "\u{ff}"];
    let mut store = Store::new();
    let pairs = names.iter().map(|name| (Bytes::from(*name), Bytes::new())).collect();
    store.apply(&Command::PutMany { pairs, if_none: false }, 1, Wall::ZERO);
    let mut chosen: BTreeSet<Bytes> = BTreeSet::new();
    for seed in 0..2000 {
        let Reply::Value(Some(key)) = store.read(&Command::RandomKey { seed }) else {
            panic!("there are keys")
        };
        chosen.insert(key);
    }
    assert_eq!(chosen, names.iter().map(|name| Bytes::from(*name)).collect());
}

#[test]
fn what_is_stored_does_not_keep_the_buffer_it_came_in() {
    let buffer = Bytes::from(vec![b'x'; 1 << 20]);
    let part = |at: usize, len: usize| buffer.slice(at..at + len);
    let plain = |key, value| Command::Put {
        key,
        value,
        condition: Condition::Always,
        expiry: Expiry::In(9),
        old: false,
    };
    let mut store = Store::new();
    store.apply(&plain(part(0, 3), part(9, 1000)), 1, Wall::ZERO);
    store.apply(&plain(part(0, 3), part(9, 2000)), 2, Wall::ZERO);
    store.apply(
        &Command::HashPut { key: part(0, 4), fields: vec![(part(1, 5), part(2, 6))], if_absent: false },
        3,
        Wall::ZERO,
    );
    store.apply(&Command::HashIncrement { key: part(0, 4), field: part(1, 7), by: 1 }, 4, Wall::ZERO);
    store.apply(&Command::Append { key: part(0, 5), value: part(2, 6) }, 5, Wall::ZERO);
    store.apply(&Command::PutMany { pairs: vec![(part(0, 6), part(2, 6))], if_none: false }, 6, Wall::ZERO);
    store.apply(&plain(part(0, 100), part(9, 1)), 7, Wall::ZERO);
    store.apply(
        &Command::HashPut { key: part(0, 4), fields: vec![(part(1, 50), part(2, 60))], if_absent: false },
        8,
        Wall::ZERO,
    );
    let loaded = load([Bytes::from(common::pieces(&store.freeze(), 1 << 20).concat())]).unwrap();
    assert!(buffer.is_unique());
    assert_eq!(loaded, store);
    // A large one is worth its buffer, and a copy of it is not free.
    store.apply(&plain(part(0, 3), part(0, 100 << 10)), 9, Wall::ZERO);
    assert!(!buffer.is_unique());
}

#[test]
fn what_would_be_too_large_is_refused() {
    // Zeroed memory that nobody touches costs nothing.
    let large = Bytes::from(vec![0; VALUE_LIMIT]);
    let put = |value: &Bytes| Command::Put {
        key: "k".into(),
        value: value.clone(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        old: false,
    };
    let refused = Reply::Error(CommandError::TooLarge);
    let mut store = Store::new();
    assert_eq!(store.apply(&put(&large), 1, Wall::ZERO), Reply::Done);
    let append = Command::Append { key: "k".into(), value: "x".into() };
    assert_eq!(store.apply(&append, 2, Wall::ZERO), refused);
    assert_eq!(store.read(&Command::Length { key: "k".into() }), Reply::Integer(VALUE_LIMIT as i64));

    // A write that returns what was there is refused before it takes effect.
    let take = Command::Take { key: "k".into() };
    let refresh = Command::Refresh { key: "k".into(), expiry: Expiry::Never };
    let commands = [refresh.clone(), refresh, take].map(Single).to_vec();
    let batch = Command::Batch { watched: vec![], commands };
    let Reply::Batch(Some(replies)) = store.apply(&batch, 3, Wall::ZERO) else {
        panic!("a batch was asked for")
    };
    assert!(matches!(replies[0], Reply::Value(Some(_))));
    assert_eq!(replies[1..], [refused.clone(), refused.clone()]);
    assert_eq!(store.read(&Command::Length { key: "k".into() }), Reply::Integer(VALUE_LIMIT as i64));

    // So is a reply that says a large value again and again, alone or in a batch.
    let get_twice = Command::GetMany { keys: vec!["k".into(), "k".into()] };
    assert_eq!(store.read(&get_twice), refused);
    let get = Command::Get { key: "k".into() };
    assert!(matches!(store.read(&get), Reply::Value(Some(_))));
    for last in [get.clone(), Command::Clear] {
        let commands = [get.clone(), get.clone(), get.clone(), last].map(Single).to_vec();
        let Reply::Batch(Some(replies)) =
            store.apply(&Command::Batch { watched: vec![], commands }, 4, Wall::ZERO)
        else {
            panic!("a batch was asked for")
        };
        assert!(matches!(replies[0], Reply::Value(Some(_))));
        assert_eq!(replies[2], refused);
    }
    assert!(store.is_empty());
}

#[test]
fn a_batch_within_a_batch_is_refused() {
    let inner = Command::Batch { watched: vec![], commands: vec![Single(Command::Clear)] };
    let outer = Command::Batch { watched: vec![], commands: vec![Single(inner)] };
    assert!(Command::from_bytes(outer.to_bytes()).is_err());
    let refused = Reply::Batch(Some(vec![Reply::Error(CommandError::Malformed)]));
    let mut store = Store::new();
    assert_eq!(store.read(&outer), refused);
    assert_eq!(store.apply(&outer, 1, Wall::ZERO), refused);
    assert!(outer.footprint().writes().is_empty());
    let reply = Reply::Batch(Some(vec![refused]));
    assert!(Reply::from_bytes(reply.to_bytes()).is_err());

    // Forged bytes that nest a million batches end at the second.
    let nested = |layer: &[u8]| Bytes::from(layer.repeat(1_000_000));
    assert!(Command::from_bytes(nested(&[26, 0, 0, 0, 0, 1, 0, 0, 0])).is_err());
    assert!(Reply::from_bytes(nested(&[10, 1, 1, 0, 0, 0])).is_err());
}

fn reply(random: &mut Random) -> Reply {
    let n = random.range(0..100);
    match random.range(0..15) {
        0 => Reply::Done,
        1 => Reply::Skipped,
        12 => Reply::NotRetained,
        2 => Reply::Value(Some(key(random))),
        3 => Reply::Values(vec![None, Some(key(random))]),
        4 => Reply::Integer(-(n as i64)),
        5 => Reply::Kind([None, Some(Kind::String), Some(Kind::Hash)][n as usize % 3]),
        6 => Reply::Expires([Expires::Missing, Expires::Never, Expires::At(n)][n as usize % 3]),
        7 => Reply::Versions(vec![n, 0]),
        8 => Reply::Pairs(vec![(key(random), key(random))]),
        9 => Reply::Keys { keys: vec![key(random)], next: Some(n) },
        10 => Reply::Batch(None),
        11 => Reply::Fields { pairs: vec![(key(random), key(random))], next: None, version: n },
        13 => Reply::Users { changes: n, users: vec![(key(random), User::initial_default())] },
        _ => Reply::Error(CommandError::Overflow),
    }
}

/// Cuts, changes and repeats parts of something valid.
fn damage(random: &mut Random, bytes: &Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    for _ in 0..random.range(1..4) {
        let at = random.range(0..bytes.len() as u64 + 1) as usize;
        match random.range(0..4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u64() as u8),
            2 if at < bytes.len() => bytes[at] = random.range(0..4) as u8,
            _ if at < bytes.len() => bytes[at] ^= 1 << random.range(0..8),
            _ => bytes.push(0),
        }
    }
    bytes.into()
}

#[test]
fn commands_and_replies_come_back_from_the_wire_and_damaged_ones_do_no_harm() {
    for (seed, mut random) in cases() {
        for _ in 0..200 {
            let command = command(&mut random, Wall::from_millis(1000));
            assert_eq!(Command::from_bytes(command.to_bytes()), Ok(command.clone()), "seed {seed}");
            let replies = (0..random.range(0..4)).map(|_| match reply(&mut random) {
                Reply::Batch(_) => Reply::Done,
                reply => reply,
            });
            let batch = Reply::Batch(Some(replies.collect()));
            for reply in [reply(&mut random), batch] {
                assert_eq!(Reply::from_bytes(reply.to_bytes()), Ok(reply.clone()), "seed {seed}");
                // What decodes at all is written as it was read.
                let bytes = damage(&mut random, &reply.to_bytes());
                if let Ok(other) = Reply::from_bytes(bytes.clone()) {
                    assert_eq!(other.to_bytes(), bytes);
                }
            }
            let bytes = damage(&mut random, &command.to_bytes());
            if let Ok(other) = Command::from_bytes(bytes.clone()) {
                assert_eq!(other.to_bytes(), bytes);
                Store::new().apply(&other, 1, Wall::ZERO);
            }
        }
    }
}

#[test]
fn what_loads_from_a_damaged_image_is_a_sound_store() {
    let mut loaded = 0;
    for (seed, mut random) in cases() {
        let (store, revision, now) = store(&mut random, 80);
        let pieces = pieces(&store.freeze(), 100);
        for _ in 0..100 {
            let mut pieces = pieces.clone();
            let at = random.range(0..pieces.len() as u64) as usize;
            match random.range(0..4) {
                0 => pieces[at] = damage(&mut random, &pieces[at]),
                1 => drop(pieces.remove(at)),
                2 => pieces.insert(at, pieces[at].clone()),
                _ => {
                    let other = random.range(0..pieces.len() as u64) as usize;
                    pieces.swap(at, other);
                }
            }
            let Ok(mut other) = load(pieces) else { continue };
            loaded += 1;
            assert_eq!(load(common::pieces(&other.freeze(), 64)).unwrap(), other, "seed {seed}");
            other.apply(&command(&mut random, now), revision.max(other.revision()).saturating_add(1), now);
        }
    }
    assert!(loaded > 100, "most damage is to values, which the loader cannot know: {loaded}");
}

#[test]
fn an_image_that_is_not_whole_is_refused() {
    let mut store = Store::new();
    let pairs = (0..20).map(|n| (Bytes::from(format!("{n}")), Bytes::from_static(b"v"))).collect();
    store.apply(&Command::PutMany { pairs, if_none: false }, 1, Wall::ZERO);
    let fields = (0..50).map(|n| (Bytes::from(format!("{n}")), Bytes::from_static(b"v"))).collect();
    store.apply(&Command::HashPut { key: "h".into(), fields, if_absent: false }, 2, Wall::ZERO);
    let pieces = pieces(&store.freeze(), 100);
    assert!(pieces.len() > 10, "{}", pieces.len());
    for len in 0..pieces.len() {
        assert_eq!(load(pieces[..len].to_vec()), Err(LoadError::Incomplete), "{len} pieces");
    }
    let twice = [&pieces[..2], &pieces[1..]].concat();
    assert_eq!(load(twice), Err(LoadError::Order));
    assert_eq!(load([Bytes::from_static(b"something else, of some length")]), Err(LoadError::Foreign));
    let mut future = pieces.clone();
    future[0] = [&b"QKVS\x04\x00"[..], &future[0][6..]].concat().into();
    assert_eq!(load(future), Err(LoadError::Format { found: 4 }));

    // After an error nothing can be had from the loader.
    let mut loader = Loader::new();
    assert!(loader.push(Bytes::from_static(b"?")).is_err());
    assert_eq!(loader.push(pieces[0].clone()), Err(LoadError::Refused));
    assert_eq!(loader.finish(), Err(LoadError::Refused));
}

#[test]
fn a_cursor_that_no_piece_gave_leads_to_no_panic() {
    let mut random = Random::new(4);
    let (store, ..) = store(&mut random, 100);
    let image = store.freeze();
    for _ in 0..2000 {
        let cursor: Bytes = (0..random.range(1..12)).map(|_| random.range(0..4) as u8).collect();
        image.piece(&cursor, 100);
    }
    for cursor in [&b"\xff"[..], b"\x01\x00"] {
        let piece = image.piece(&Bytes::from_static(cursor), 100);
        assert_eq!((piece.bytes.len(), piece.next), (0, None));
    }
}

#[test]
fn pieces_keep_to_the_limit_whatever_they_hold() {
    let put = |key: Bytes, len: usize| {
        Single(Command::Put {
            key,
            value: vec![7; len].into(),
            condition: Condition::Always,
            expiry: Expiry::Never,
            old: false,
        })
    };
    let len = |n: u64| if n.is_multiple_of(9) { 40 * n as usize } else { 50 };
    let fields = (0..100).map(|n| (Bytes::from(format!("{n:03}")), vec![1; len(n)].into())).collect();
    let hash = Single(Command::HashPut { key: "h".into(), fields, if_absent: false });
    let strings = [("a", 10), ("b", 5000), ("c", 10), ("d", 10)].map(|(key, len)| put(key.into(), len));
    let many = (0..200).map(|n| put(format!("short {n}").into(), 10));
    let commands = strings.into_iter().chain([hash]).chain(many).collect();
    let mut store = Store::new();
    store.apply(&Command::Batch { watched: vec![], commands }, 1, Wall::ZERO);
    let cut = |store: &Store| {
        let pieces = pieces(&store.freeze(), 1000);
        assert!(pieces.iter().all(|piece| piece.len() <= 1000));
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        assert!((bytes / 1000..bytes / 700).contains(&pieces.len()), "{} for {bytes}", pieces.len());
        assert_eq!(load(pieces.clone()).as_ref(), Ok(store));
        pieces
    };
    let pieces = cut(&store);
    // What is only checked is checked alike, and kept nowhere.
    let check = |pieces: &[Bytes]| {
        let mut loader = Loader::dry();
        pieces.iter().try_for_each(|piece| loader.push(piece.clone()))?;
        loader.finish()
    };
    assert_eq!(check(&pieces).map(|store| store.len()), Ok(0));
    for gone in 1..pieces.len() {
        let without = [&pieces[..gone], &pieces[gone + 1..]].concat();
        assert!(check(&without).is_err() && load(without).is_err(), "without piece {gone}");
    }
    assert_eq!(check(&pieces[..pieces.len() - 1]), Err(LoadError::Incomplete));
    let users = (0..100).map(|n| (format!("user {n}").into(), vec![UserRule::Enable])).collect();
    store.apply(&Command::SetUsers { users, if_none: false }, 2, Wall::ZERO);
    cut(&store);
}
