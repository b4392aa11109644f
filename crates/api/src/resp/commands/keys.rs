//! Keys whatever they hold: existence, expiry, scans.

use quorate_core::digest;
use quorate_store::glob::PATTERN_LIMIT;
use quorate_store::{Command, Expiry, ExpiryCondition, Kind};

use super::super::gather::Gathered;
use super::super::shape::PATTERN_TOO_LONG;
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

fn expire(args: Args<'_>, call: &mut Call<'_, '_>, unit: Unit, absolute: bool) -> Result<Step, Fault> {
    let condition = expiry_condition(&args)?;
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
    Ok(Step::Ask(Command::SetExpiry { key: call.key(&args, 1)?, expiry, condition }, Shape::Plain))
}

/// NX, XX, GT and LT.
fn expiry_condition(args: &Args<'_>) -> Result<ExpiryCondition, Fault> {
    let mut given = [false; 4];
    for word in args.from(3) {
        match ["NX", "XX", "GT", "LT"].iter().position(|option| is(word, option)) {
            Some(index) => given[index] = true,
            None => return Err(Fault([b"ERR Unsupported option ", shown(word, usize::MAX)].concat().into())),
        }
    }
    match given {
        [true, false, false, false] => Ok(ExpiryCondition::IfNone),
        [true, ..] => Err("ERR NX and XX, GT or LT options at the same time are not compatible".into()),
        [_, _, true, true] => Err("ERR GT and LT options at the same time are not compatible".into()),
        // What expires later than another expires.
        [_, _, true, _] => Ok(ExpiryCondition::IfLater),
        [_, false, _, true] => Ok(ExpiryCondition::IfEarlier),
        [_, true, _, true] => Ok(ExpiryCondition::IfAnyEarlier),
        [_, true, ..] => Ok(ExpiryCondition::IfAny),
        [_, false, ..] => Ok(ExpiryCondition::Always),
    }
}

fn persist(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, expiry, condition) = (call.key(&args, 1)?, Expiry::Never, ExpiryCondition::Always);
    Ok(Step::Ask(Command::SetExpiry { key, expiry, condition }, Shape::Plain))
}

fn expiry(args: Args<'_>, call: &mut Call<'_, '_>, seconds: bool, relative: bool) -> Result<Step, Fault> {
    let shape = Shape::Expiry { seconds, relative };
    Ok(Step::Ask(Command::ExpiryOf { key: call.key(&args, 1)? }, shape))
}

fn keys(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let pattern = pattern(&args, 1)?;
    let shape = Shape::AllKeys { pattern: pattern.clone(), found: Gathered::new(&call.shared.gathered) };
    Ok(Step::Ask(Command::Scan { from: 0, limit: u32::MAX, pattern, kind: None }, shape))
}

/// The pattern at an index; none if everything matches it.
fn pattern(args: &Args<'_>, index: usize) -> Result<Option<Bytes>, Fault> {
    let pattern = args.get(index);
    match pattern.len() {
        len if len > PATTERN_LIMIT => Err(PATTERN_TOO_LONG.into()),
        _ if pattern == b"*" => Ok(None),
        // Kept until the reply comes: it must not keep the request alive.
        _ => Ok(Some(Bytes::copy_from_slice(pattern))),
    }
}

fn scan(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let from = cursor(args.get(1))?;
    let ScanOptions { limit, pattern, kind } = scan_options(&args, 2, true)?;
    let kind = match kind {
        None => None,
        Some(name) if is(name, "string") => Some(Kind::String),
        Some(name) if is(name, "hash") => Some(Kind::Hash),
        // No key holds such a value: this is all of them.
        Some(_) => {
            call.reply.array(2);
            call.reply.bulk(b"0");
            call.reply.array(0);
            return Ok(Step::Answered);
        }
    };
    Ok(Step::Ask(Command::Scan { from, limit, pattern, kind }, Shape::Scan))
}

/// The position that a scan goes on from: whatever C's `strtoul` takes, as in Redis. All nodes mean the same by it.
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

/// What a scan may be told.
pub(super) struct ScanOptions<'a> {
    /// COUNT.
    pub(super) limit: u32,
    /// MATCH.
    pub(super) pattern: Option<Bytes>,
    /// TYPE.
    pub(super) kind: Option<&'a [u8]>,
}

/// COUNT, MATCH and, for scans of keys, TYPE.
pub(super) fn scan_options<'a>(args: &Args<'a>, from: usize, typed: bool) -> Result<ScanOptions<'a>, Fault> {
    let mut options = ScanOptions { limit: 10, pattern: None, kind: None };
    for index in (from..args.len()).step_by(2) {
        match args.get(index) {
            _ if index + 1 == args.len() => return Err(SYNTAX.into()),
            word if is(word, "COUNT") => match number(args, index + 1)? {
                ..1 => return Err(SYNTAX.into()),
                count => options.limit = u32::try_from(count).unwrap_or(u32::MAX),
            },
            word if is(word, "MATCH") => options.pattern = pattern(args, index + 1)?,
            word if typed && is(word, "TYPE") => options.kind = Some(args.get(index + 1)),
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(options)
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
