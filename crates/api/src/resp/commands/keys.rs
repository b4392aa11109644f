//! Keys whatever they hold: existence, expiry, scans.

use quorate_core::digest;
use quorate_store::{Command, Expiry};

use super::strings::Unit;
use super::*;

pub(super) const SPECS: &[Spec] = &[
    command("dbsize", 1, READ_FAST, NO_KEY, "Returns how many keys there are.", |_, _| {
        Ok(Step::Ask(Command::Count, Shape::Plain))
    }),
    command("del", -2, REMOVE, ALL_KEYS, "Removes keys.", delete),
    command("exists", -2, READ_FAST, ALL_KEYS, "Returns how many of the keys exist.", exists),
    command("expire", -3, REMOVE_FAST, ONE_KEY, "Lets a key live some seconds.", |args, call| {
        expire(args, call, Unit::Seconds, false)
    }),
    command(
        "expireat",
        -3,
        REMOVE_FAST,
        ONE_KEY,
        "Lets a key live until a second of Unix time.",
        |args, call| expire(args, call, Unit::Seconds, true),
    ),
    command("expiretime", 2, READ_FAST, ONE_KEY, "Returns until which second a key lives.", |args, call| {
        expiry(args, call, true, false)
    }),
    command("flushall", -1, REMOVE, NO_KEY, "Removes all keys.", clear),
    command("flushdb", -1, REMOVE, NO_KEY, "Removes all keys.", clear),
    command("keys", 2, READ, NO_KEY, "Returns all keys that match a pattern.", keys),
    command("persist", 2, REMOVE_FAST, ONE_KEY, "Lets a key live for ever.", persist),
    command("pexpire", -3, REMOVE_FAST, ONE_KEY, "Lets a key live some milliseconds.", |args, call| {
        expire(args, call, Unit::Milliseconds, false)
    }),
    command(
        "pexpireat",
        -3,
        REMOVE_FAST,
        ONE_KEY,
        "Lets a key live until a millisecond of Unix time.",
        |args, call| expire(args, call, Unit::Milliseconds, true),
    ),
    command(
        "pexpiretime",
        2,
        READ_FAST,
        ONE_KEY,
        "Returns until which millisecond a key lives.",
        |args, call| expiry(args, call, false, false),
    ),
    command("pttl", 2, READ_FAST, ONE_KEY, "Returns how many milliseconds a key has left.", |args, call| {
        expiry(args, call, false, true)
    }),
    command("randomkey", 1, READ, NO_KEY, "Returns one of the keys.", random_key),
    command("scan", -2, READ, NO_KEY, "Returns some of the keys, and where to go on.", scan),
    command("touch", -2, READ_FAST, ALL_KEYS, "Returns how many of the keys exist.", exists),
    command("ttl", 2, READ_FAST, ONE_KEY, "Returns how many seconds a key has left.", |args, call| {
        expiry(args, call, true, true)
    }),
    command("type", 2, READ_FAST, ONE_KEY, "Returns what kind of value a key holds.", kind),
    command("unlink", -2, REMOVE_FAST, ALL_KEYS, "Removes keys.", delete),
];

fn delete(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Delete { keys: call.keys(&args, 1, 1)? }, Shape::Plain))
}

fn exists(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::Exists { keys: call.keys(&args, 1, 1)? }, Shape::Plain))
}

fn kind(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::KindOf { key: call.key(&args, 1)? }, Shape::Plain))
}

/// The conditions NX, XX, GT and LT of Redis 7 are not there: they get what an unknown option gets.
fn expire(args: Args<'_>, call: &mut Call<'_, '_>, unit: Unit, absolute: bool) -> Result<Step, Fault> {
    if let Some(option) = args.from(3).next() {
        return Err(Fault([b"ERR Unsupported option ", option].concat().into()));
    }
    let given = number(&args, 2)?;
    let millis = match unit {
        Unit::Seconds => given.checked_mul(1000),
        Unit::Milliseconds => Some(given),
    };
    let expiry = match millis {
        Some(millis) if absolute => Expiry::At(millis),
        Some(millis) if call.wall_ms().checked_add(millis).is_some() => Expiry::In(millis),
        _ => return Err(call.wrong_expiry()),
    };
    Ok(Step::Ask(Command::SetExpiry { key: call.key(&args, 1)?, expiry }, Shape::Plain))
}

fn persist(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, expiry) = (call.key(&args, 1)?, Expiry::Never);
    Ok(Step::Ask(Command::SetExpiry { key, expiry }, Shape::Plain))
}

fn expiry(args: Args<'_>, call: &mut Call<'_, '_>, seconds: bool, relative: bool) -> Result<Step, Fault> {
    let shape = Shape::Expiry { seconds, relative };
    Ok(Step::Ask(Command::ExpiryOf { key: call.key(&args, 1)? }, shape))
}

fn keys(args: Args<'_>, _: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let pattern = Some(args.bytes(1)).filter(|pattern| pattern != "*");
    Ok(Step::Ask(Command::Scan { after: None, limit: u32::MAX, pattern }, Shape::Plain))
}

fn scan(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let after = match cursor(args.get(1))? {
        0 => None,
        number => Some(call.shared.cursors.get(number).ok_or(
            "ERR invalid cursor: this node does not remember it (they are few, and each node has its own); start again \
             at 0",
        )?),
    };
    let (limit, pattern) = scan_options(&args, 2)?;
    Ok(Step::Ask(Command::Scan { after, limit, pattern }, Shape::Scan))
}

/// What comes before the options of a scan: whatever C's `strtoul` takes, as in Redis.
pub(super) fn cursor(word: &[u8]) -> Result<u64, Fault> {
    if word.is_empty() {
        return Ok(0);
    }
    let (negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let number = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let number: Option<u64> = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.map(|n| if negative { n.wrapping_neg() } else { n }).ok_or("ERR invalid cursor".into())
}

/// COUNT and MATCH.
pub(super) fn scan_options(args: &Args<'_>, from: usize) -> Result<(u32, Option<Bytes>), Fault> {
    let (mut limit, mut pattern) = (10, None);
    for index in (from..args.len()).step_by(2) {
        match args.get(index) {
            _ if index + 1 == args.len() => return Err(SYNTAX.into()),
            word if is(word, "COUNT") => match number(args, index + 1)? {
                ..1 => return Err(SYNTAX.into()),
                count => limit = u32::try_from(count).unwrap_or(u32::MAX),
            },
            word if is(word, "MATCH") => {
                pattern = Some(args.bytes(index + 1)).filter(|pattern| pattern != "*");
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok((limit, pattern))
}

fn random_key(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.shared.draws += 1;
    let seed = [call.shared.draws, (call.shared.clock)().as_nanos() as u64, call.state.connection];
    let seed = digest(&seed.map(u64::to_le_bytes).concat());
    Ok(Step::Ask(Command::RandomKey { seed }, Shape::Plain))
}

fn clear(args: Args<'_>, _: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match args.len() {
        1 => {}
        2 if is(args.get(1), "ASYNC") || is(args.get(1), "SYNC") => {}
        _ => return Err(SYNTAX.into()),
    }
    Ok(Step::Ask(Command::Clear, Shape::Plain))
}
