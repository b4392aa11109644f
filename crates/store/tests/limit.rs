//! A limit on the data: what grows them is refused beyond it, and it is a part of the state.

use bytes::Bytes;
use quorate_core::{Image, Wall};
use quorate_store::{Command, CommandError, Condition, Expiry, Loader, Reply, Single, Store};

fn put(key: &'static str, letters: usize) -> Command {
    let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from(vec![b'x'; letters]));
    Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}

/// Applies commands one after the other.
struct Log {
    store: Store,
    revision: u64,
}

impl Log {
    fn apply(&mut self, command: &Command) -> Reply {
        self.revision += 1;
        self.store.apply(command, self.revision, Wall::from_millis(self.revision))
    }
}

#[test]
fn beyond_a_limit_nothing_grows_and_everything_else_goes_on() {
    let mut log = Log { store: Store::new(), revision: 0 };
    assert_eq!(log.apply(&put("a", 1000)), Reply::Done);
    let taken = log.store.bytes() as u64;
    let below = Reply::Error(CommandError::BelowData { bytes: taken });
    assert_eq!(log.apply(&Command::LimitData { bytes: Some(taken - 1) }), below);
    assert_eq!(log.store.limit(), None, "nothing has changed");
    assert_eq!(log.apply(&Command::LimitData { bytes: Some(taken) }), Reply::Done);

    let key = Bytes::from_static(b"a");
    let refused = Reply::Error(CommandError::DataLimit);
    let fields = vec![(key.clone(), key.clone())];
    for grows in [
        put("b", 1),
        Command::PutMany { pairs: fields.clone(), if_none: false },
        Command::Append { key: key.clone(), value: key.clone() },
        Command::Increment { key: Bytes::from_static(b"n"), by: 1 },
        Command::HashPut { key: Bytes::from_static(b"h"), fields, if_absent: false },
        Command::PutRange { key: key.clone(), offset: 2000, value: key.clone() },
    ] {
        assert!(grows.grows());
        let before = log.store.digest();
        assert_eq!(log.apply(&grows), refused, "{grows:?}");
        assert_ne!(before, log.store.digest(), "its revision is used up, as that of any write");
        assert_eq!((log.store.len(), log.store.bytes() as u64), (1, taken));
    }
    assert_eq!(log.apply(&Command::Length { key: key.clone() }), Reply::Integer(1000));
    let expiry = Command::Refresh { key: key.clone(), expiry: Expiry::In(9000) };
    assert!(matches!(log.apply(&expiry), Reply::Value(Some(_))));

    // Each command of a batch fails alone, and what comes after a removal has room.
    let delete = Command::Delete { keys: vec![key] };
    let commands = [put("b", 1), delete, put("c", 10)].map(Single).into();
    let replies = log.apply(&Command::Batch { watched: Vec::new(), commands });
    assert_eq!(replies, Reply::Batch(Some(vec![refused, Reply::Integer(1), Reply::Done])));
    assert_eq!(log.apply(&Command::LimitData { bytes: None }), Reply::Done);
    assert_eq!(log.apply(&put("b", 5000)), Reply::Done);
}

#[test]
fn a_limit_is_in_images_and_in_the_digest() {
    let mut log = Log { store: Store::new(), revision: 0 };
    log.apply(&put("a", 10));
    log.apply(&put("b", 10));
    let before = log.store.digest();
    log.apply(&Command::LimitData { bytes: Some(1 << 20) });
    assert_ne!(before, log.store.digest());
    for limit in [1, 40, 1 << 20] {
        let (image, mut cursor, mut loader) = (log.store.freeze(), Bytes::new(), Loader::new());
        loop {
            let piece = image.piece(&cursor, limit);
            loader.push(piece.bytes).unwrap();
            match piece.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let loaded = loader.finish().unwrap();
        assert_eq!((loaded.limit(), &loaded), (Some(1 << 20), &log.store));
    }
}

#[test]
fn where_not_all_commands_are_ordered_there_is_no_limit() {
    let mut store = Store::new();
    let limit = Command::LimitData { bytes: Some(1) };
    let refused = Reply::Error(CommandError::Unordered);
    assert_eq!(store.apply_unordered(&limit, 1 << 20, Wall::ZERO), refused);
    assert_eq!(store.apply_unordered(&put("a", 10), 2 << 20, Wall::ZERO), Reply::Done);
    assert_eq!(store.apply_unordered(&put("b", 10), 3 << 20, Wall::ZERO), Reply::Done);

    let mut log = Log { store: Store::new(), revision: 0 };
    assert_eq!(log.apply(&Command::LimitData { bytes: Some(1) }), Reply::Done);
    let commands = vec![Single(Command::LimitData { bytes: None })];
    let reply = log.apply(&Command::Batch { watched: Vec::new(), commands });
    assert_eq!(reply, Reply::Batch(Some(vec![Reply::Error(CommandError::Malformed)])));
    log.store.settle_unordered();
    assert_eq!(log.store.limit(), None, "restored where nothing is ordered");
}
