//! What a member has of each key: the version that it has adopted last, and whether that is known to be committed.
//! Protocols with a log have one position for all keys; here every key has its own history.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use quorate_core::{
    Decoder, Encoder, Fact, Image, Piece, Snapshot, Wall, Wire, WireError, digest, mutation, wire_struct,
};
use quorate_store::{Command, Key, Reply, Store};

use super::record::Record;
use super::tombstones::Floor;

/// Orders the versions of a key. A version that is replayed in a later epoch has that epoch's number: what was
/// committed in an epoch is then above all that members of earlier ones have left behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// The ballot of the epoch, as a number.
    pub epoch: u64,
    /// Counts the key's versions.
    pub version: u64,
    /// Who has written it, and in which incarnation (`memory.rs`); 0: the group began with it.
    pub writer: u64,
}
wire_struct!(Timestamp { epoch, version, writer });

/// A key as of one write: in messages, records, pages and snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The key.
    pub key: Key,
    /// Its place in the key's history.
    pub at: Timestamp,
    /// Whether the sender knows it to be committed.
    pub valid: bool,
    /// The entry (`Store::image`); `None`: the key is deleted, or was never written.
    pub value: Option<Bytes>,
    /// The writes of clients that are in it, or were overwritten by it.
    pub record: Record,
}
wire_struct!(Version { key, at, valid, value, record });

impl Version {
    /// Bytes that it has in a message, about: of its value and its record.
    pub fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, Bytes::len) + self.record.bytes()
    }
}

/// A key's history without its value, which the store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub at: Timestamp,
    pub record: Record,
}

/// The changes of a key by one version have numbers of their own in the store: these bits below the version's.
pub const ORDINAL_BITS: u32 = 10;

/// So many parts share nothing: what was frozen is copied a part at a time when it changes.
const PARTS: usize = 256;

/// Some of the keys.
#[derive(Clone, Default)]
struct Part {
    keys: BTreeMap<Key, Held>,
    /// Those that are deleted, by the time at which the last session was opened that has written them.
    deleted: BTreeSet<(u64, Key)>,
}

/// All keys, those that were deleted lately too: a late version of one must not bring it back.
#[derive(Clone)]
pub struct Keys {
    store: Store,
    parts: Vec<Arc<Part>>,
    floor: Floor,
    /// Those that are not valid: few, of what is being written. A read looks here, and at the value; histories are as
    /// many as the keys, and most of them far from the processor.
    invalid: BTreeSet<Key>,
    /// Sessions that were opened at this time or before may be forgotten by some key.
    forgotten: u64,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x?}", self.fingerprint())
    }
}

fn part(key: &[u8]) -> usize {
    digest(key) as usize % PARTS
}

impl Keys {
    /// With what a group begins with. What is written later has numbers above all that are there.
    pub fn new(mut store: Store) -> Keys {
        store.settle();
        let version = (store.revision() >> ORDINAL_BITS) + 1;
        store.settle_unordered();
        let mut keys = Keys {
            store: Store::new(),
            parts: vec![Arc::default(); PARTS],
            floor: Floor::default(),
            invalid: BTreeSet::new(),
            forgotten: 0,
        };
        let (at, held) = (Timestamp { epoch: 0, version, writer: 0 }, Record::default());
        for key in store.entries().map(|entry| Key::copy_from_slice(entry.key)) {
            let held = Held { at, record: held.clone() };
            Arc::make_mut(&mut keys.parts[part(&key)]).keys.insert(key, held);
        }
        Keys { store, ..keys }
    }

    /// The values.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A key's history; `None`: it was deleted long ago, or never written.
    pub fn get(&self, key: &Key) -> Option<&Held> {
        self.parts[part(key)].keys.get(key)
    }

    /// How far it has come.
    pub fn at(&self, key: &Key) -> Timestamp {
        self.get(key).map_or(self.floor.at, |held| held.at)
    }

    /// What its next version follows.
    pub fn last(&self, key: &Key) -> Held {
        self.get(key).cloned().unwrap_or_else(|| self.floor.held())
    }

    /// What counts for keys that are not here.
    pub fn floor(&self) -> Floor {
        self.floor
    }

    /// It is at least this. False: it was.
    pub fn raise(&mut self, floor: Floor) -> bool {
        let before = self.floor;
        self.floor = before.max(floor);
        self.forgotten = self.forgotten.max(self.floor.forgotten);
        before != self.floor
    }

    /// Deleted keys that no session has written which was opened after this time, if that is known to be committed.
    pub fn tombstones_before(&self, time: u64) -> impl Iterator<Item = &Key> {
        let deleted = self.parts.iter().flat_map(move |part| {
            part.deleted.iter().take_while(move |(newest, _)| *newest <= time).map(|(_, key)| key)
        });
        deleted.filter(|key| self.is_valid(key) || mutation::active("hermes/forget-undecided"))
    }

    /// After a start: what was forgotten before is forgotten again. Its last version is still in the log, and may be
    /// older than what others told of all keys that were not here.
    pub fn forget_again(&mut self) {
        let floor = self.floor;
        let below = |key: &&Key| self.at(key) <= floor.at && !mutation::active("hermes/forgotten-comes-back");
        let gone: Vec<Key> = self.tombstones_before(floor.forgotten).filter(below).cloned().collect();
        gone.iter().for_each(|key| self.forget(key));
    }

    /// How many keys are deleted, and remembered.
    pub fn tombstones(&self) -> usize {
        self.parts.iter().map(|part| part.deleted.len()).sum()
    }

    /// From now on the floor says all that is known of a key.
    pub fn forget(&mut self, key: &Key) {
        let part = Arc::make_mut(&mut self.parts[part(key)]);
        if let Some(held) = part.keys.remove(key) {
            part.deleted.remove(&(held.record.newest(), key.clone()));
        }
        self.set_valid(key, true);
    }

    /// Whether what is here is committed.
    pub fn is_valid(&self, key: &Key) -> bool {
        !self.invalid.contains(key)
    }

    /// The keys that are not valid here.
    pub fn invalid(&self) -> &BTreeSet<Key> {
        &self.invalid
    }

    /// When a session is opened that no key takes for one that it has forgotten: now, by this wall clock, or later.
    pub fn opens_at(&self, wall: Wall) -> u64 {
        wall.millis().max(self.forgotten.saturating_add(1))
    }

    fn hold(&mut self, key: &Key, held: Held, valid: bool) {
        self.forgotten = self.forgotten.max(held.record.forgotten());
        let Part { keys, deleted } = Arc::make_mut(&mut self.parts[part(key)]);
        let is_deleted = !self.store.contains(key);
        if let Some(before) = keys.get(key).filter(|_| !deleted.is_empty()) {
            deleted.remove(&(before.record.newest(), key.clone()));
        }
        let newest = is_deleted.then(|| held.record.newest());
        match keys.get_mut(key) {
            Some(before) => *before = held,
            // It stays for long, and must not keep the message in which it came.
            None => drop(keys.insert(Key::copy_from_slice(key), held)),
        }
        if let Some(newest) = newest {
            let (own, _) = keys.get_key_value(key).expect("it was added");
            deleted.insert((newest, own.clone()));
        }
        self.set_valid(key, valid);
    }

    /// Takes a version over; one whose value cannot be read is none.
    pub fn put(&mut self, version: &Version) -> Result<(), WireError> {
        self.store.put_image(&version.key, version.value.as_ref())?;
        let Version { key, at, valid, record, .. } = version;
        self.hold(key, Held { at: *at, record: record.detached() }, *valid);
        Ok(())
    }

    /// The version that is here is committed, or not known to be.
    pub fn set_valid(&mut self, key: &Key, valid: bool) {
        match valid {
            true => drop(self.invalid.remove(key)),
            false => drop(self.invalid.insert(key.clone())),
        }
    }

    /// Executes a command on its one key, which gets a version of this number at least.
    pub fn execute(&mut self, command: &Command, version: u64, time: Wall) -> Reply {
        self.store.apply_unordered(command, version, time)
    }

    /// Removes a key whose time is up.
    pub fn expire(&mut self, key: &Key, time: Wall) {
        self.store.expire(std::slice::from_ref(key), time);
    }

    /// Takes a command's effect back.
    pub fn restore(&mut self, key: &Key, image: Option<&Bytes>) {
        self.store.put_image(key, image).expect("an image that was made here");
    }

    /// The key's entry as it is now becomes this version, which is not committed yet.
    pub fn stamp(&mut self, key: &Key, at: Timestamp, record: Record) -> Version {
        self.hold(key, Held { at, record }, false);
        self.version(key).expect("it is here")
    }

    /// A key as it is here.
    pub fn version(&self, key: &Key) -> Option<Version> {
        let Held { at, record } = self.get(key)?.clone();
        let (valid, value) = (self.is_valid(key), self.store.image(key));
        Some(Version { key: key.clone(), at, valid, value, record })
    }

    /// Those after this one, in an order that is the same at all members.
    fn after<'a>(&'a self, key: Option<&'a Key>) -> impl Iterator<Item = &'a Key> {
        let first = key.map_or(0, |key| part(key));
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.parts[first + 1..].iter().flat_map(|part| part.keys.keys());
        self.parts[first].keys.range::<Key, _>((from, Bound::Unbounded)).map(|(key, _)| key).chain(rest)
    }

    /// Those after the one and up to the other, in that order; `None`: from the first, and to the last.
    pub fn between<'a>(
        &'a self,
        after: Option<&'a Key>,
        last: Option<&'a Key>,
    ) -> impl Iterator<Item = &'a Key> {
        self.after(after)
            .take_while(move |key| last.is_none_or(|last| (part(key), *key) <= (part(last), last)))
    }

    /// All keys.
    pub fn all(&self) -> impl Iterator<Item = &Key> {
        self.after(None)
    }

    /// Keys after this one, of about so many bytes, one at least; and whether that was all.
    pub fn page(&self, after: Option<&Key>, limit: usize) -> (Vec<Version>, bool) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for key in self.after(after) {
            if bytes >= limit {
                return (page, false);
            }
            let version = self.version(key).expect("it is here");
            bytes += version.key.len()
                + version.value.as_ref().map_or(0, Bytes::len)
                + version.record.bytes()
                + 32;
            page.push(version);
        }
        (page, true)
    }

    /// Which versions are here; and all there is.
    pub fn fingerprint(&self) -> (u64, u64) {
        let (mut versions, mut all) = (Encoder::new(), Encoder::new());
        // Others may have forgotten keys that are deleted, or not yet.
        let counts = |key: &&Key| self.store.contains(key) || !self.is_valid(key);
        for key in self.all().filter(counts) {
            let held = self.get(key).expect("it is here");
            (key.clone(), held.at, self.is_valid(key)).encode(&mut versions);
            held.record.encode(&mut all);
        }
        all.put_u64(self.store.digest());
        (digest(&versions.into_bytes()), digest(&all.into_bytes()))
    }

    /// For checkers: this version is committed.
    pub fn fact(&self, key: &Key, epoch: u64) -> Fact {
        let at = self.at(key);
        let value = self.store.image(key).unwrap_or_default();
        Fact::Valid { key: digest(key), epoch, version: digest(&at.to_bytes()), digest: digest(&value) }
    }

    /// A frozen image, behind which the head says what else the member knows.
    pub fn freeze(&self, head: Bytes) -> Snapshot {
        Arc::new(KeysImage { head, keys: self.clone() })
    }

    /// Back from an image, with its head.
    pub fn load(image: &Snapshot) -> (Bytes, Keys) {
        let mut keys = Keys::new(Store::new());
        let mut loading = Loading::default();
        let mut cursor = Bytes::new();
        loop {
            let piece = image.piece(&cursor, PIECE);
            let put = |version: Version| keys.put(&version).map_err(|error| error.to_string());
            loading.push(piece.bytes, put).expect("an image that was made here");
            let Some(next) = piece.next else { break };
            cursor = next;
        }
        (loading.finish().expect("an image that was made here"), keys)
    }
}

const PIECE: usize = 256 << 10;

/// The head, then every key's version behind its length. A cursor says after which key, and at which byte.
#[derive(Debug)]
struct KeysImage {
    head: Bytes,
    keys: Keys,
}

#[derive(Default)]
struct Cursor {
    after: Option<Key>,
    skip: u64,
}
wire_struct!(Cursor { after, skip });

impl Image for KeysImage {
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece {
        if cursor.is_empty() {
            return Piece { bytes: self.head.clone(), next: Some(Cursor::default().to_bytes()) };
        }
        let Ok(Cursor { mut after, skip }) = Cursor::from_bytes(cursor.clone()) else {
            return Piece { bytes: Bytes::new(), next: None };
        };
        let (mut bytes, mut skip) = (BytesMut::new(), skip as usize);
        for key in self.keys.after(after.clone().as_ref()) {
            let version = self.keys.version(key).expect("it is here").to_bytes();
            let framed = [&(version.len() as u32).to_le_bytes()[..], &version].concat();
            let rest = &framed[skip.min(framed.len())..];
            let room = limit.max(1) - bytes.len();
            bytes.extend_from_slice(&rest[..rest.len().min(room)]);
            if rest.len() >= room {
                let next = match rest.len() == room {
                    true => Cursor { after: Some(key.clone()), skip: 0 },
                    false => Cursor { after, skip: (skip + room) as u64 },
                };
                return Piece { bytes: bytes.freeze(), next: Some(next.to_bytes()) };
            }
            (after, skip) = (Some(key.clone()), 0);
        }
        Piece { bytes: bytes.freeze(), next: None }
    }

    fn verify(&self, pieces: &mut dyn Iterator<Item = Bytes>) -> Result<(), String> {
        let (mut loading, mut all) = (Loading::default(), self.keys.all());
        for piece in pieces {
            loading.push(piece, |version| match all.next().and_then(|key| self.keys.version(key)) {
                Some(saved) if saved == version => Ok(()),
                _ => Err(format!("it has key {:?} otherwise than the state that was saved", version.key)),
            })?;
        }
        if loading.finish()? != self.head || all.next().is_some() {
            return Err("it is not the whole of the state that was saved".to_owned());
        }
        Ok(())
    }
}

/// An image that is coming in piece by piece.
#[derive(Default)]
struct Loading {
    head: Option<Bytes>,
    rest: BytesMut,
}

impl Loading {
    fn push(
        &mut self,
        piece: Bytes,
        mut each: impl FnMut(Version) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.head.is_none() {
            self.head = Some(piece);
            return Ok(());
        }
        self.rest.extend_from_slice(&piece);
        while let Some(len) = self.rest.first_chunk::<4>().map(|len| 4 + u32::from_le_bytes(*len) as usize)
            && self.rest.len() >= len
        {
            let framed = self.rest.split_to(len).freeze();
            let mut input = Decoder::new(framed.slice(4..));
            each(Version::decode(&mut input).map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Bytes, String> {
        let whole = self.rest.is_empty();
        self.head.filter(|_| whole).ok_or_else(|| "the image ends early".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Name, Verdict};
    use super::*;

    /// With one key of each letter, whose version is that letter.
    fn keys(letters: &str) -> Keys {
        let mut keys = Keys::new(Store::new());
        for letter in letters.chars() {
            let key = Key::from(letter.to_string());
            let command = Command::Append { key: key.clone(), value: Bytes::from(vec![b'x'; 100]) };
            keys.execute(&command, letter.into(), Wall::from_millis(1));
            let at = Timestamp { epoch: 1, version: letter.into(), writer: 1 };
            keys.stamp(&key, at, Record::default());
        }
        keys
    }

    /// Of a group with a log, and of one without, whose numbers are larger.
    #[test]
    fn versions_go_on_above_those_that_a_group_begins_with() {
        let key = Key::from("a".to_owned());
        for revision in [1, 1023, 1024, 7 << ORDINAL_BITS | 3, u64::from(u32::MAX)] {
            let append = Command::Append { key: key.clone(), value: Bytes::from_static(b"x") };
            let mut store = Store::new();
            store.apply(&append, revision, Wall::from_millis(1));
            let keys = Keys::new(store);
            let next = (keys.at(&key).version + 1) << ORDINAL_BITS;
            assert!((revision + 1..=revision + (3 << ORDINAL_BITS)).contains(&next), "{revision}: {next}");
        }
    }

    #[test]
    fn a_key_does_not_keep_the_message_in_which_its_version_came() {
        let mut version = keys("k").version(&Key::from_static(b"k")).expect("it is here");
        version.valid = true;
        for seq in 1..=3 {
            version.record.add(Name { nonce: 1, seq }, (1, 1), &Reply::Integer(seq as i64).encoded());
        }
        let message = version.to_bytes();
        let sent = Version::from_bytes(message.clone()).expect("whole");
        let mut keys = Keys::new(Store::new());
        keys.put(&sent).expect("it can be read");
        assert_eq!(keys.version(&sent.key), Some(version));
        drop(sent);
        assert!(message.is_unique());
    }

    /// Many were opened by a clock that was an hour ahead, and the first of them are forgotten.
    #[test]
    fn a_session_that_is_opened_is_none_that_a_key_has_forgotten() {
        const HOUR: u64 = 3_600_000;
        let mut version = keys("k").version(&Key::from_static(b"k")).expect("it is here");
        for nonce in 0..6 {
            for seq in 1..=1000 {
                version.record.add(Name { nonce, seq }, (HOUR + nonce, 1), &Bytes::new());
            }
        }
        let mut keys = Keys::new(Store::new());
        assert_eq!([0, 1, 7].map(|wall| keys.opens_at(Wall::from_millis(wall))), [1, 1, 7]);
        keys.put(&version).expect("it can be read");
        let opened = keys.opens_at(Wall::from_millis(1));
        assert_eq!(version.record.verdict(Name { nonce: 9, seq: 1 }, opened, 1), Verdict::New);
        assert_eq!(version.record.verdict(Name { nonce: 9, seq: 1 }, HOUR, 1), Verdict::Unknown);
        assert_eq!(keys.opens_at(Wall::from_millis(2 * HOUR)), 2 * HOUR);
    }

    #[test]
    fn deleted_keys_are_forgotten_by_the_age_of_the_sessions_that_have_written_them() {
        let mut keys = keys("abcd");
        let delete = |keys: &mut Keys, letter: &str, opened, valid| {
            let key = Key::from(letter.to_owned());
            keys.restore(&key, None);
            let mut record = Record::default();
            record.add(Name { nonce: 1, seq: 1 }, (opened, 1), &Bytes::new());
            let at = Timestamp { epoch: 1, version: 200, writer: 1 };
            keys.stamp(&key, at, record);
            keys.set_valid(&key, valid);
        };
        delete(&mut keys, "a", 30, true);
        delete(&mut keys, "b", 10, true);
        delete(&mut keys, "b", 20, true);
        delete(&mut keys, "c", 5, false);
        let old = |keys: &Keys, time| {
            let mut found: Vec<_> = keys.tombstones_before(time).cloned().collect();
            found.sort();
            found
        };
        let named = |names: &str| names.chars().map(|name| Key::from(name.to_string())).collect::<Vec<_>>();
        for (time, names) in [(10, ""), (19, ""), (20, "b"), (30, "ab"), (u64::MAX, "ab")] {
            assert_eq!(old(&keys, time), named(names), "{time}");
        }
        assert_eq!(keys.tombstones(), 3);
        // What is written again is not deleted.
        let key = named("b").remove(0);
        let command = Command::Append { key: key.clone(), value: Bytes::from_static(b"x") };
        keys.execute(&command, 201, Wall::from_millis(1));
        keys.stamp(&key, Timestamp { epoch: 1, version: 201, writer: 1 }, Record::default());
        assert_eq!((keys.tombstones(), old(&keys, u64::MAX)), (2, named("a")));

        let (key, print) = (named("a").remove(0), keys.fingerprint());
        let floor = Floor { at: Timestamp { epoch: 1, version: 300, writer: 0 }, forgotten: 30 };
        assert!(keys.raise(floor) && !keys.raise(floor) && !keys.raise(Floor::default()));
        keys.forget(&key);
        assert_eq!((keys.tombstones(), keys.get(&key), keys.at(&key)), (1, None, floor.at));
        assert_eq!(keys.last(&key), Held { at: floor.at, record: Record::forgetting(30) });
        assert_eq!(keys.fingerprint(), print, "others may not have forgotten it yet");
        assert_eq!(keys.opens_at(Wall::from_millis(30)), 31);

        // As a restart finds them: what is below the floor in both respects was forgotten.
        for (letter, opened, valid) in [("a", 30, true), ("d", 31, true), ("b", 30, false)] {
            delete(&mut keys, letter, opened, valid);
        }
        keys.forget_again();
        let [a, b, d] = ["a", "b", "d"].map(|letter| keys.get(&named(letter)[0]).is_some());
        assert_eq!([a, b, d], [false, true, true]);
    }

    #[test]
    fn an_image_comes_back_piece_by_piece_and_another_is_told_from_it() {
        let head = Bytes::from_static(b"head");
        let image = keys("abc").freeze(head.clone());
        let own = image.pieces(64);
        assert!(own.len() > 4 && own.iter().all(|piece| piece.len() <= 64));
        assert_eq!(image.verify(&mut own.iter().cloned()), Ok(()));
        let (loaded, copy) = Keys::load(&image);
        assert_eq!((loaded, copy.fingerprint()), (head.clone(), keys("abc").fingerprint()));

        let mut undecided = keys("abc");
        undecided.set_valid(&Key::from("b".to_owned()), true);
        let others = [keys("ab"), keys("abcd"), keys("abd"), undecided];
        let mut others: Vec<_> = others.iter().map(|keys| keys.freeze(head.clone()).pieces(64)).collect();
        others.push(keys("abc").freeze(Bytes::from_static(b"another head")).pieces(64));
        others.push(own[..own.len() - 1].to_vec());
        others.push([own.clone(), vec![Bytes::from_static(b"more")]].concat());
        for other in others {
            assert!(image.verify(&mut other.iter().cloned()).is_err(), "{other:?}");
        }
    }
}
