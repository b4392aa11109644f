//! What clients ask.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::{Random, Staleness};
use quorate_store::{Command, Condition, Expiry, Single};

use crate::eras::in_era;

const STRINGS: [&str; 3] = ["s0", "s1", "s2"];
const COUNTERS: [&str; 2] = ["n0", "n1"];
const LISTS: [&str; 1] = ["a0"];
const HASHES: [&str; 2] = ["h0", "h1"];
const EXPIRING: [&str; 2] = ["x0", "x1"];
const WATCHED: [&str; 2] = ["w0", "w1"];
const FIELDS: [&str; 3] = ["f0", "f1", "f2"];

/// Whether some commands of a run touch several keys. The history of keys that are tied together is harder to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Several {
    /// None does, not even to be unlike all others ([`delete`]).
    NotOne,
    /// None does.
    Never,
    /// Reads and writes of a few keys.
    Keys,
    /// Scans too, which tie all keys: there are few operations, on strings only.
    Scans,
}

/// A read of each key, by its name in the first era.
pub(super) fn keys() -> impl Iterator<Item = Command> {
    let strings = STRINGS.iter().chain(&COUNTERS).chain(&LISTS).chain(&EXPIRING).chain(&WATCHED);
    let gets = strings.map(|key| Command::Get { key: text(key) });
    gets.chain(HASHES.iter().map(|key| Command::HashAll { key: text(key) }))
}

pub(super) fn every_key(last_era: u32) -> Vec<Command> {
    let moved = |era| {
        keys().map(move |mut command| {
            in_era(&mut command, era);
            command
        })
    };
    (0..=last_era).flat_map(moved).collect()
}

fn text(key: &'static str) -> Bytes {
    Bytes::from_static(key.as_bytes())
}

pub(super) fn draw(random: &mut Random, unique: u64, reads: f64, several: Several) -> Command {
    if several == Several::Scans {
        return draw_tied(random, unique, reads);
    }
    let one_key = several == Several::NotOne;
    let several = several == Several::Keys;
    let pick = |random: &mut Random, keys: &[&'static str]| text(random.pick::<&str>(keys));
    match random.range(0..40) {
        0 | 1 => return expiring(random, unique, (several, one_key)),
        2 => return watching(random, unique),
        _ => {}
    }
    let value = Bytes::from(format!("v{unique}"));
    if random.chance(reads) {
        match random.range(0..20) {
            0..10 => Command::Get { key: pick(random, &STRINGS) },
            10..13 => Command::Get { key: pick(random, &COUNTERS) },
            13..15 => Command::Get { key: pick(random, &LISTS) },
            15 => Command::HashAll { key: pick(random, &HASHES) },
            16 => Command::HashGet { key: pick(random, &HASHES), fields: FIELDS.map(text).into() },
            17 if several => Command::GetMany { keys: vec![pick(random, &STRINGS), pick(random, &COUNTERS)] },
            18 => Command::Length { key: pick(random, &LISTS) },
            _ => Command::Exists { keys: vec![pick(random, &STRINGS)] },
        }
    } else {
        match random.range(0..24) {
            0..7 => put(pick(random, &STRINGS), value, Condition::Always, false),
            7 => put(pick(random, &STRINGS), value, Condition::IfAbsent, false),
            8 => put(pick(random, &STRINGS), value, Condition::IfPresent, true),
            9..11 => delete(pick(random, &STRINGS), unique, one_key),
            11..15 => Command::Increment { key: pick(random, &COUNTERS), by: unique as i64 },
            15..18 => Command::Append { key: pick(random, &LISTS), value: format!("{unique},").into() },
            18 => {
                let fields = vec![(pick(random, &FIELDS), value)];
                Command::HashPut { key: pick(random, &HASHES), fields, if_absent: random.chance(0.3) }
            }
            19 => {
                let field = Bytes::from_static(b"count");
                Command::HashIncrement { key: pick(random, &HASHES), field, by: unique as i64 }
            }
            20 => {
                let fields = vec![pick(random, &FIELDS), format!("!{unique}").into()];
                Command::HashDelete { key: pick(random, &HASHES), fields }
            }
            21 if several => {
                let pairs = vec![(text(STRINGS[0]), value.clone()), (text(STRINGS[1]), value)];
                Command::PutMany { pairs, if_none: random.chance(0.2) }
            }
            22 if several => {
                let read = Single(Command::Get { key: text(STRINGS[1]) });
                let write = Single(put(text(STRINGS[2]), value, Condition::Always, true));
                Command::Batch { watched: Vec::new(), commands: vec![read, write] }
            }
            21..23 => put(pick(random, &STRINGS), value, Condition::Always, true),
            // Mostly of the wrong kind: refused, everywhere alike.
            _ => {
                let fields = vec![(pick(random, &FIELDS), value)];
                Command::HashPut { key: pick(random, &STRINGS), fields, if_absent: false }
            }
        }
    }
}

/// A read of one short key.
pub(super) fn get(random: &mut Random) -> Command {
    Command::Get { key: text(random.pick::<&str>(&[&STRINGS[..], &COUNTERS].concat())) }
}

/// A write of a key that one client alone writes, of so many bytes.
pub(super) fn own_put(client: usize, unique: u64, len: usize) -> Command {
    let mut value = format!("v{unique}").into_bytes();
    value.resize(len.max(value.len()), b'.');
    put(format!("o{client}").into(), value.into(), Condition::Always, false)
}

/// What a read may miss, if it may.
pub(super) fn bound(random: &mut Random) -> Option<Staleness> {
    match random.range(0..4) {
        0 => Some(Staleness::Versions(random.range(0..3))),
        1 => Some(Staleness::Age(Duration::from_millis(*random.pick(&[3, 10, 30, 100, 300])))),
        _ => None,
    }
}

/// What goes together with scans.
fn draw_tied(random: &mut Random, unique: u64, reads: f64) -> Command {
    let key = text(random.pick::<&str>(&STRINGS));
    let value = Bytes::from(format!("v{unique}"));
    let always = |key, value| put(key, value, Condition::Always, false);
    if random.chance(reads) {
        return match random.range(0..4) {
            0 => Command::Scan { from: 0, limit: 100, pattern: Some("s?".into()), kind: None },
            1 => Command::GetMany { keys: STRINGS.map(text).into() },
            _ => Command::Get { key },
        };
    }
    match random.range(0..6) {
        0 => delete(key, unique, false),
        1 => {
            let pairs = vec![(text(STRINGS[0]), value.clone()), (text(STRINGS[1]), value)];
            Command::PutMany { pairs, if_none: false }
        }
        2 => {
            let read = Single(Command::Get { key: text(STRINGS[1]) });
            let write = Single(always(text(STRINGS[2]), value));
            Command::Batch { watched: Vec::new(), commands: vec![read, write] }
        }
        _ => always(key, value),
    }
}

fn put(key: Bytes, value: Bytes, condition: Condition, old: bool) -> Command {
    Command::Put { key, value, condition, expiry: Expiry::Never, old }
}

/// Unique bytes: the number goes with it as digits, which are keys that never exist. Two for each key, so that a
/// checker which follows every key has few to follow, and no key is tied to another. `one_key`: a field of it instead.
fn delete(key: Bytes, unique: u64, one_key: bool) -> Command {
    if one_key {
        let field = Command::HashDelete { key: key.clone(), fields: vec![format!("!{unique}").into()] };
        let commands = vec![Single(Command::Delete { keys: vec![key] }), Single(field)];
        return Command::Batch { watched: Vec::new(), commands };
    }
    let [zero, one] = [b"!0", b"!1"].map(|digit| Bytes::from([digit, &key[..]].concat()));
    let digits = (0..u64::BITS - unique.leading_zeros()).rev().map(|bit| unique >> bit & 1 == 1);
    let digits = digits.map(|digit| if digit { one.clone() } else { zero.clone() });
    Command::Delete { keys: std::iter::once(key.clone()).chain(digits).collect() }
}

/// Keys with a time to live.
fn expiring(random: &mut Random, unique: u64, (several, one_key): (bool, bool)) -> Command {
    let key = text(random.pick::<&str>(&EXPIRING));
    let value = Bytes::from(format!("v{unique}"));
    match random.range(0..12) {
        0..4 => {
            let expiry = Expiry::In(random.range(1..2000) as i64);
            let condition = *random.pick(&[Condition::Always, Condition::Always, Condition::IfAbsent]);
            Command::Put { key, value, condition, expiry, old: false }
        }
        4 => Command::ExpiryOf { key },
        5 if !one_key => delete(key, unique, false),
        6 => put(key, value, Condition::Always, false),
        7 if several => {
            let read = Single(Command::Get { key });
            let write = Single(put(text(STRINGS[0]), value, Condition::Always, false));
            Command::Batch { watched: Vec::new(), commands: vec![read, write] }
        }
        _ => Command::Get { key },
    }
}

/// Keys that clients watch: mostly a look at the version, which a [`transaction`] follows.
fn watching(random: &mut Random, unique: u64) -> Command {
    let key = text(random.pick::<&str>(&WATCHED));
    match random.range(0..8) {
        0 => put(key, format!("v{unique}").into(), Condition::Always, false),
        1 => Command::Get { key },
        _ => Command::VersionsOf { keys: vec![key] },
    }
}

/// Changes a key if it still has this version.
pub(super) fn transaction(random: &mut Random, key: Bytes, version: u64, unique: u64) -> Command {
    let value = Bytes::from(format!("v{unique}"));
    if random.chance(0.3) {
        return put(key, value, Condition::IfVersion(version), false);
    }
    let read = random.chance(0.5).then(|| Single(Command::Get { key: key.clone() }));
    let write = Single(put(key.clone(), value, Condition::Always, false));
    Command::Batch { watched: vec![(key, version)], commands: read.into_iter().chain([write]).collect() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_core::{Access, Wire};

    use super::*;

    #[test]
    fn every_write_has_bytes_of_its_own() {
        let mut random = Random::new(1);
        let mut seen = BTreeSet::new();
        let (mut writes, mut reads) = (0, 0);
        for unique in 1..5000 {
            let several = *random.pick(&[Several::Keys, Several::Scans]);
            let command = draw(&mut random, unique, 0.5, several);
            match command.access() {
                Access::Read | Access::Within(_) | Access::Manage => reads += 1,
                Access::Write => {
                    writes += 1;
                    assert!(seen.insert(command.to_bytes()), "{command:?} twice");
                }
            }
        }
        assert!(writes > 2000 && reads > 2000);
    }

    #[test]
    fn some_keys_have_a_time_to_live() {
        let mut random = Random::new(2);
        let timed = (1..2000).filter(|unique| {
            let command = draw(&mut random, *unique, 0.5, Several::Keys);
            matches!(command, Command::Put { expiry: Expiry::In(_), .. })
        });
        assert!(timed.count() > 20);
    }
}
