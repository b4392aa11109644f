//! The feature level: below it commands are malformed, as to a build that does not know them, and it is a part of the
//! state.

use bytes::Bytes;
use quorate_core::{FeatureLevel, Image, Wall, Wire};
use quorate_store::{
    Command, CommandError, Condition, Expiry, LoadError, Loader, Permissions, Reply, Single, Store, UserRule,
};

const LATER: u16 = FeatureLevel::NEWEST.get() + 7;

fn level(number: u16) -> FeatureLevel {
    FeatureLevel::new(number).unwrap()
}

fn raise(to: u16) -> Command {
    Command::RaiseLevel { to: level(to), if_new: false }
}

fn found(to: u16) -> Command {
    Command::RaiseLevel { to: level(to), if_new: true }
}

fn put(key: &'static str) -> Command {
    let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(b"v"));
    Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}

fn user(rules: Vec<UserRule>) -> Command {
    Command::SetUsers { users: vec![(Bytes::from_static(b"ann"), rules)], if_none: false }
}

fn batch(command: Command) -> Command {
    Command::Batch { watched: Vec::new(), commands: vec![Single(Command::Count), Single(command)] }
}

fn pieces(store: &Store) -> Vec<Bytes> {
    let (image, mut cursor, mut pieces) = (store.freeze(), Bytes::new(), Vec::new());
    loop {
        let piece = image.piece(&cursor, 60);
        pieces.push(piece.bytes);
        match piece.next {
            Some(next) => cursor = next,
            None => return pieces,
        }
    }
}

fn load(pieces: Vec<Bytes>) -> Result<Store, LoadError> {
    let mut loader = Loader::new();
    pieces.into_iter().try_for_each(|piece| loader.push(piece))?;
    loader.finish()
}

#[test]
fn a_command_above_the_level_is_malformed_and_below_it_is_executed() {
    let selector = || UserRule::AddSelector(Permissions::default());
    for (command, needed) in [
        (put("a"), FeatureLevel::FIRST),
        (user(vec![]), FeatureLevel::FIRST),
        (user(vec![UserRule::Enable, UserRule::AllKeys]), FeatureLevel::FIRST),
        (user(vec![UserRule::Enable, selector()]), FeatureLevel::SELECTORS),
        (user(vec![UserRule::ClearSelectors]), FeatureLevel::SELECTORS),
        (batch(user(vec![selector()])), FeatureLevel::SELECTORS),
        (batch(put("a")), FeatureLevel::FIRST),
        (Command::Level, FeatureLevel::FIRST),
        (Command::Settings, FeatureLevel::FIRST),
        (raise(LATER), FeatureLevel::FIRST),
    ] {
        assert_eq!(command.level(), needed, "{command:?}");
        for number in FeatureLevel::FIRST.get()..=FeatureLevel::NEWEST.get() {
            let mut store = Store::new();
            assert_eq!(store.apply(&raise(number), 1, Wall::ZERO), Reply::Done);
            let expected = match number >= needed.get() {
                true => Ok(command.clone()),
                false => Err(CommandError::Malformed),
            };
            assert_eq!(store.decode(&command.to_bytes()), expected, "at level {number}");
        }
    }
    assert_eq!(Store::new().decode(&Bytes::from_static(b"\xff")), Err(CommandError::Malformed));
}

#[test]
fn a_level_rises_and_never_falls() {
    let mut store = Store::new();
    assert_eq!(store.read(&Command::Level), Reply::Integer(1), "that of states that say nothing of it");
    for (revision, (to, reply, found)) in
        (1..).zip([(1, Reply::Done, 1), (2, Reply::Done, 2), (2, Reply::Done, 2), (1, Reply::Skipped, 2)])
    {
        assert_eq!(store.apply(&raise(to), revision, Wall::ZERO), reply);
        assert_eq!(
            (store.level(), store.read(&Command::Level)),
            (level(found), Reply::Integer(found.into()))
        );
    }
    let refused = Reply::Batch(Some(vec![Reply::Integer(0), Reply::Error(CommandError::Malformed)]));
    assert_eq!(store.apply(&batch(raise(2)), 10, Wall::ZERO), refused);
    // A build that does not know it must not go on; its state is right all the same.
    assert_eq!(store.apply(&raise(LATER), 11, Wall::ZERO), Reply::Done);
    assert!(!store.level().is_known());
}

#[test]
fn settings_are_told_by_name() {
    let mut store = Store::new();
    let pair = |name: &'static str, value: &'static str| (name.into(), value.into());
    let settings = |store: &Store| store.read(&Command::Settings);
    let first = Reply::Pairs(vec![pair("feature-level", "1"), pair("max-data", "0")]);
    assert_eq!(settings(&store), first);
    store.apply(&raise(2), 1, Wall::ZERO);
    store.apply(&Command::LimitData { bytes: Some(9000) }, 2, Wall::ZERO);
    let changed = Reply::Pairs(vec![pair("feature-level", "2"), pair("max-data", "9000")]);
    assert_eq!(settings(&store), changed);
}

#[test]
fn a_new_cluster_begins_at_a_level_and_an_old_one_does_not() {
    for (before, reply) in [
        (vec![], Reply::Done),
        (vec![found(2)], Reply::Done),
        (vec![put("a")], Reply::Skipped),
        (vec![put("a"), Command::Clear], Reply::Skipped),
        (vec![user(vec![])], Reply::Skipped),
    ] {
        let mut store = Store::new();
        let mut revision = 0;
        let mut apply = |command: &Command| {
            revision += 1;
            store.apply(command, revision, Wall::ZERO)
        };
        before.iter().for_each(|command| drop(apply(command)));
        let again = before.contains(&found(2));
        assert_eq!(apply(&found(2)), if again { Reply::Skipped } else { reply }, "after {before:?}");
    }
    for (before, reply) in
        [(vec![], Reply::Done), (vec![put("a")], Reply::Skipped), (vec![user(vec![])], Reply::Skipped)]
    {
        let mut store = Store::new();
        for (version, command) in (1..).zip(&before) {
            store.apply_unordered(command, version << 20, Wall::ZERO);
        }
        assert_eq!(store.apply_unordered(&found(2), 9 << 20, Wall::ZERO), reply, "after {before:?}");
        assert_eq!(store.apply_unordered(&raise(2), 10 << 20, Wall::ZERO), Reply::Done);
        store.settle_unordered();
        assert_eq!(store.level(), level(2), "what begins with these data begins with their level");
    }
}

#[test]
fn a_level_is_in_images_and_in_the_digest_unless_it_is_the_first() {
    let mut store = Store::new();
    store.apply(&put("a"), 1, Wall::ZERO);
    store.apply(&Command::LimitData { bytes: Some(9000) }, 2, Wall::ZERO);
    store.apply(&user(vec![UserRule::Enable]), 3, Wall::ZERO);
    let mut same = store.clone();
    same.apply(&raise(1), 4, Wall::ZERO);
    store.apply(&put("a"), 4, Wall::ZERO);
    let len = |store: &Store| pieces(store).iter().map(Bytes::len).sum::<usize>();
    assert_eq!(len(&same), len(&store), "builds that know no levels read it");
    for number in [2, LATER] {
        let before = store.digest();
        store.apply(&raise(number), 5 + u64::from(number), Wall::ZERO);
        assert_ne!(before, store.digest());
        assert_eq!(load(pieces(&store)).as_ref(), Ok(&store), "level {number}");
    }
}

#[test]
fn an_image_has_one_level_at_its_beginning() {
    let mut store = Store::new();
    store.apply(&raise(2), 1, Wall::ZERO);
    let all: Bytes = pieces(&store).concat().into();
    assert_eq!(load(vec![all.clone()]).as_ref(), Ok(&store));
    let record = all.slice(all.len() - 3..);
    assert_eq!(record[..], [9, 2, 0]);
    assert_eq!(load(vec![all.clone(), record.clone()]), Err(LoadError::Order));
    let first = [&all[..all.len() - 3], &[9, 1, 0]].concat();
    assert_eq!(load(vec![first.into()]), Err(LoadError::Impossible("feature level")));
    store.apply(&put("a"), 2, Wall::ZERO);
    let mut with_key = pieces(&store);
    with_key.push(record);
    assert_eq!(load(with_key), Err(LoadError::Order));
}
