//! Random commands, over few keys so that they meet.

use bytes::Bytes;
use quorate_core::{Image, Random, Wall};
use quorate_store::order::position;
use quorate_store::{
    Command, CommandRule, Condition, Expiry, ExpiryCondition, Frozen, KeyRule, Kind, LoadError, Loader,
    PasswordHash, Permissions, Single, Store, UserRule,
};

/// A command of any kind; expiry times are around `now`.
pub fn command(random: &mut Random, now: Wall) -> Command {
    if !random.chance(0.1) {
        return single(random, now);
    }
    let watched = (0..random.range(0..3)).map(|_| (key(random), random.range(0..4))).collect();
    let commands = (0..random.range(0..5)).map(|_| Single(single(random, now))).collect();
    Command::Batch { watched, commands }
}

/// A command that is no batch.
pub fn single(random: &mut Random, now: Wall) -> Command {
    let key = key(random);
    match random.range(0..48) {
        0 => Command::Get { key },
        1 => Command::GetMany { keys: keys(random) },
        2 => Command::GetRange { key, start: small(random), end: small(random) },
        3 => Command::Length { key },
        4 => Command::Exists { keys: keys(random) },
        5 => Command::KindOf { key },
        6 => Command::ExpiryOf { key },
        7 => Command::VersionsOf { keys: keys(random) },
        8..16 => Command::Put {
            key,
            value: value(random),
            condition: match random.range(0..6) {
                0 => Condition::IfAbsent,
                1 => Condition::IfPresent,
                2 => Condition::IfVersion(random.range(0..4)),
                _ => Condition::Always,
            },
            expiry: if random.chance(0.5) { Expiry::Never } else { expiry(random, now) },
            old: random.chance(0.3),
        },
        16 => Command::PutMany {
            pairs: keys(random).into_iter().map(|key| (key, value(random))).collect(),
            if_none: random.chance(0.5),
        },
        17..20 => Command::Delete { keys: keys(random) },
        20 => Command::Take { key },
        21..23 => Command::Increment { key, by: small(random) },
        23 => Command::IncrementFloat { key, by: value(random) },
        24..26 => Command::Append { key, value: value(random) },
        26..29 => Command::SetExpiry {
            key,
            expiry: expiry(random, now),
            condition: *random.pick(&[
                ExpiryCondition::Always,
                ExpiryCondition::IfNone,
                ExpiryCondition::IfAny,
                ExpiryCondition::IfLater,
                ExpiryCondition::IfEarlier,
                ExpiryCondition::IfAnyEarlier,
            ]),
        },
        29..32 => Command::HashPut {
            key,
            fields: {
                // Sometimes many: a large hash has another form.
                let count = if random.chance(0.3) { random.range(0..150) } else { random.range(0..4) };
                (0..count).map(|_| (field(random), value(random))).collect()
            },
            if_absent: random.chance(0.3),
        },
        32 => Command::HashGet { key, fields: vec![field(random), field(random)] },
        33 => Command::HashAll { key },
        34 => Command::HashLength { key },
        35 => Command::HashDelete { key, fields: vec![field(random), field(random)] },
        36 => Command::HashIncrement { key, field: field(random), by: small(random) },
        37 => Command::Scan {
            from: if random.chance(0.5) { position(&key) } else { 0 },
            limit: random.range(0..6) as u32,
            pattern: random.chance(0.3).then(|| Bytes::from_static(b"k[0-4]*")),
            kind: random.chance(0.3).then(|| *random.pick(&[Kind::String, Kind::Hash])),
        },
        40 => Command::Refresh { key, expiry: expiry(random, now) },
        41..43 => Command::PutRange { key, offset: random.range(0..20), value: value(random) },
        43 => Command::HashIncrementFloat { key, field: field(random), by: value(random) },
        38 => Command::Count,
        44 => Command::HashScan {
            key,
            from: if random.chance(0.5) { position(&field(random)) } else { 0 },
            limit: random.range(0..80) as u32,
            pattern: random.chance(0.3).then(|| Bytes::from_static(b"f[0-4]*")),
        },
        45 => Command::SetUsers {
            users: (0..random.range(1..3))
                .map(|_| (user(random), vec![rule(random), rule(random)]))
                .collect(),
            if_none: random.chance(0.1),
        },
        46 => Command::DeleteUsers { users: vec![user(random)] },
        47 => random.pick(&[Command::Users, Command::UserChanges, Command::Level, Command::Settings]).clone(),
        _ if random.chance(0.2) => Command::Clear,
        _ => Command::RandomKey { seed: random.u64() },
    }
}

/// A store after some random commands, with the revision and time that it is at.
pub fn store(random: &mut Random, commands: u64) -> (Store, u64, Wall) {
    let mut store = Store::new();
    let (mut revision, mut now) = (0, Wall::from_millis(1000));
    for _ in 0..commands {
        revision += 1;
        now = later(random, now);
        let command = command(random, now);
        store.apply(&command, revision, now);
    }
    (store, revision, now)
}

/// Some time after, or the same.
pub fn later(random: &mut Random, now: Wall) -> Wall {
    Wall::from_millis(now.millis() + random.range(0..8))
}

/// An image, piece by piece.
pub fn pieces(image: &Frozen, limit: usize) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut cursor = Bytes::new();
    loop {
        let piece = image.piece(&cursor, limit);
        assert_eq!(piece, image.piece(&cursor, limit));
        pieces.push(piece.bytes);
        assert!(pieces.len() < 100_000, "the cursor does not move on");
        match piece.next {
            Some(next) => cursor = next,
            None => return pieces,
        }
    }
}

/// A store from pieces.
pub fn load(pieces: impl IntoIterator<Item = Bytes>) -> Result<Store, LoadError> {
    let mut loader = Loader::new();
    for piece in pieces {
        loader.push(piece)?;
    }
    loader.finish()
}

pub fn key(random: &mut Random) -> Bytes {
    name(random.range(0..KEYS))
}

/// All keys that there may be.
pub fn all_keys() -> impl Iterator<Item = Bytes> {
    (0..KEYS).map(name)
}

const KEYS: u64 = 9;

/// Every third is too long to be stored in place.
fn name(n: u64) -> Bytes {
    Bytes::from(if n.is_multiple_of(3) {
        format!("k{n} with a long name, over 23 bytes")
    } else {
        format!("k{n}")
    })
}

fn keys(random: &mut Random) -> Vec<Bytes> {
    (0..random.range(0..4)).map(|_| key(random)).collect()
}

fn user(random: &mut Random) -> Bytes {
    Bytes::from_static(random.pick(&["ann", "bob", "default"]).as_bytes())
}

fn rule(random: &mut Random) -> UserRule {
    let hash = PasswordHash([random.range(0..3) as u8; 32]);
    match random.range(0..15) {
        0 => UserRule::Enable,
        1 => UserRule::Disable,
        2 => UserRule::NoPassword,
        3 => UserRule::AddPassword(hash),
        4 => UserRule::RemovePassword(hash),
        5 => UserRule::ResetPasswords,
        6 => UserRule::Keys(KeyRule { read: true, write: random.chance(0.5), pattern: key(random) }),
        7 => UserRule::AllKeys,
        8 => UserRule::ResetKeys,
        9 => UserRule::Commands(CommandRule { allow: random.chance(0.5), name: field(random) }),
        10 => UserRule::AllCommands(random.chance(0.5)),
        11 => UserRule::ClearSelectors,
        12..14 => UserRule::AddSelector(permissions(random)),
        _ => UserRule::Reset,
    }
}

fn permissions(random: &mut Random) -> Permissions {
    Permissions {
        all_keys: random.chance(0.3),
        keys: [KeyRule { read: random.chance(0.5), write: true, pattern: key(random) }].into_iter().collect(),
        all_commands: random.chance(0.3),
        commands: vec![CommandRule { allow: random.chance(0.5), name: field(random) }],
    }
}

fn field(random: &mut Random) -> Bytes {
    let fields = if random.chance(0.5) { 4 } else { 60 };
    Bytes::from(format!("f{}", random.range(0..fields)))
}

fn value(random: &mut Random) -> Bytes {
    match random.range(0..5) {
        0 => Bytes::from(random.range(0..1000).to_string()),
        1 => Bytes::from(small(random).to_string()),
        2 => Bytes::from_static(b"2.5"),
        3 => Bytes::from(i64::MAX.to_string()),
        _ => (0..random.range(0..12)).map(|_| random.u64() as u8).collect(),
    }
}

fn small(random: &mut Random) -> i64 {
    random.range(0..20) as i64 - 10
}

fn expiry(random: &mut Random, now: Wall) -> Expiry {
    match random.range(0..5) {
        0 => Expiry::Never,
        1 => Expiry::Keep,
        2 => Expiry::At(now.millis() as i64 + small(random)),
        _ => Expiry::In(random.range(0..60) as i64 - 3),
    }
}
