//! Snapshots of a store, record by record: one with a record that is missing, doubled, out of order or impossible is
//! refused.

use bytes::Bytes;
use quorate_core::{Decoder, FeatureLevel, Image, Wall, Wire, WireError};
use quorate_store::{
    Command, Condition, Expiry, LoadError, Loader, Single, Store, User, UserRule, VALUE_LIMIT,
};

/// The bytes of an image's header.
const HEADER: usize = 30;

fn put(key: &'static str, len: usize) -> Single {
    let (condition, expiry) = (Condition::Always, Expiry::Never);
    Single(Command::Put { key: key.into(), value: vec![7; len].into(), condition, expiry, old: false })
}

/// A store of everything that an image may hold, and the records of its image. The first is its header.
fn whole() -> (Store, Vec<Bytes>) {
    let mut store = Store::new();
    let fields = vec![(Bytes::from("short"), vec![1; 5].into()), (Bytes::from("long"), vec![2; 150].into())];
    let hash = Single(Command::HashPut { key: "h".into(), fields, if_absent: false });
    let users = ["ann", "bob"].map(|name| (Bytes::from(name), vec![UserRule::Enable])).into();
    let commands = [
        Command::RaiseLevel { to: FeatureLevel::SELECTORS, if_new: false },
        Command::LimitData { bytes: Some(1 << 20) },
        Command::SetUsers { users, if_none: false },
        Command::Batch { watched: vec![], commands: vec![put("a", 5), put("b", 150), hash] },
    ];
    for (revision, command) in (1..).zip(commands) {
        store.apply(&command, revision, Wall::ZERO);
    }
    let bytes = Bytes::from(store.freeze().pieces(100).concat());
    let mut records = vec![bytes.slice(..HEADER)];
    let mut rest = bytes.slice(HEADER..);
    while !rest.is_empty() {
        records.push(rest.split_to(len(&rest).expect("a record")));
    }
    (store, records)
}

/// The length of the first of these records.
fn len(records: &Bytes) -> Result<usize, WireError> {
    let mut input = Decoder::new(records.clone());
    let kind = input.u8()?;
    if matches!(kind, 0 | 1 | 3) {
        <(Bytes, u64, u64)>::decode(&mut input)?;
        <Option<Wall>>::decode(&mut input)?;
    }
    match kind {
        2 => drop(<(Bytes, Bytes)>::decode(&mut input)?),
        0 | 5 => drop(Bytes::decode(&mut input)?),
        4 => drop(<(Bytes, u64)>::decode(&mut input)?),
        1 | 3 | 6 | 7 => drop(u64::decode(&mut input)?),
        8 => drop(<(Bytes, User)>::decode(&mut input)?),
        _ => drop(FeatureLevel::decode(&mut input)?),
    }
    Ok(records.len() - input.remaining())
}

/// What comes of these records; who only checks them finds the same.
fn outcome(records: &[Bytes]) -> Result<Store, LoadError> {
    let [loaded, checked] = [Loader::new(), Loader::dry()].map(|mut loader| {
        records.iter().try_for_each(|record| loader.push(record.clone()))?;
        loader.finish()
    });
    assert_eq!(checked.as_ref().map(Store::len).err(), loaded.as_ref().map(Store::len).err());
    assert_eq!(checked.map_or(0, |store| store.len()), 0);
    loaded
}

/// The kind of a record, as its first byte tells.
fn name(record: &Bytes) -> &'static str {
    let names =
        ["string", "hash", "field", "long string", "long field", "part", "limit", "users", "user", "level"];
    names.get(usize::from(record[0])).copied().unwrap_or("header")
}

#[test]
fn a_record_that_stands_elsewhere_or_twice_or_is_not_there_makes_an_image_malformed() {
    let (store, records) = whole();
    assert_eq!(outcome(&records).as_ref(), Ok(&store));
    let mut taken = Vec::new();
    for from in 1..records.len() {
        let mut without = records.clone();
        let record = without.remove(from);
        let mut take = |what: String, changed: Vec<Bytes>| {
            // What is in the parts of a long value is unknown.
            let names = |records: &[Bytes]| records.iter().map(name).collect::<Vec<_>>();
            let is_other = name(&record) != "part" || names(&changed) != names(&records);
            if changed != records && is_other && outcome(&changed).is_ok() {
                taken.push(format!("{} {what}", name(&record)));
            }
        };
        take("left out".to_owned(), without.clone());
        for at in 1..=without.len() {
            let insert =
                |records: &[Bytes]| [&records[..at], std::slice::from_ref(&record), &records[at..]].concat();
            take(format!("moved by {}", at as i64 - from as i64), insert(&without));
            take(format!("and again at {at}"), insert(&records));
        }
    }
    // A limit may come before or after users. How many users there are is not said.
    let limit = ["limit left out", "limit moved by 1", "limit moved by 2", "limit moved by 3"];
    let others = ["users moved by -1", "user left out", "user left out"];
    assert_eq!(taken, [&["level left out"][..], &limit, &others].concat());
}

#[test]
fn what_no_store_has_makes_an_image_malformed() {
    let (_, records) = whole();
    let at = |kind| records.iter().position(|record| name(record) == kind).expect("there is one");
    let last = |kind| records.iter().rposition(|record| name(record) == kind).expect("there is one");
    let zero = |at: usize| {
        let record = &records[at];
        [&record[..record.len() - 8], &[0; 8]].concat()
    };
    let long = |at: usize| {
        let record = &records[at];
        [&record[..record.len() - 8], &(VALUE_LIMIT as u64 + 1).to_le_bytes()].concat()
    };
    let part = |len: u32| [&[5][..], &len.to_le_bytes(), &vec![7; len as usize]].concat();
    for (at, record, expected) in [
        (at("level"), vec![9, 1, 0], "feature level"),
        (at("users"), zero(at("users")), "count of changes to users"),
        (last("user"), records[at("user")].to_vec(), "user"),
        (at("hash"), zero(at("hash")), "hash"),
        (at("long string"), zero(at("long string")), "string"),
        (at("long string"), long(at("long string")), "string"),
        (at("long field"), zero(at("long field")), "string"),
        (at("part"), part(0), "part of a string"),
        (at("part"), part(1000), "part of a string"),
    ] {
        let mut changed = records.clone();
        changed[at] = record.into();
        assert_eq!(outcome(&changed).map(|_| ()), Err(LoadError::Impossible(expected)), "{at}");
    }
}
