//! Hashes: maps from fields to strings.

use quorate_store::Command;

use super::super::gather::Gathered;
use super::super::shape::Parts;
use super::keys::{cursor, scan_options};
use super::*;

pub(super) const SPECS: &[Spec] = &[
    command("hdel", -3, REMOVE_FAST, ONE_KEY, "Removes fields of a hash.", delete),
    command("hexists", 3, READ_FAST, ONE_KEY, "Returns whether a hash has a field.", |args, call| {
        get(args, call, Shape::HasFirst)
    }),
    command("hget", 3, READ_FAST, ONE_KEY, "Returns a field of a hash.", |args, call| {
        get(args, call, Shape::First)
    }),
    command("hgetall", 2, READ, ONE_KEY, "Returns all of a hash.", |args, call| {
        all(args, call, Parts::Pairs)
    }),
    command("hincrby", 4, WRITE_FAST, ONE_KEY, "Adds to an integer field of a hash.", increment),
    command("hincrbyfloat", 4, WRITE_FAST, ONE_KEY, "Adds to a field that is a number.", increment_float),
    command("hkeys", 2, READ, ONE_KEY, "Returns the fields of a hash.", |args, call| {
        all(args, call, Parts::Fields)
    }),
    command("hlen", 2, READ_FAST, ONE_KEY, "Returns how many fields a hash has.", length),
    command("hmget", -3, READ_FAST, ONE_KEY, "Returns several fields of a hash.", |args, call| {
        get(args, call, Shape::Plain)
    }),
    command("hmset", -4, WRITE_FAST, ONE_KEY, "Sets fields of a hash.", |args, call| {
        put(args, call, Shape::Ok)
    }),
    command(
        "hscan",
        -3,
        READ,
        ONE_KEY,
        "Returns some fields of a hash and their values, and where to go on.",
        scan,
    ),
    command("hset", -4, WRITE_FAST, ONE_KEY, "Sets fields of a hash.", |args, call| {
        put(args, call, Shape::Plain)
    }),
    command("hsetnx", 4, WRITE_FAST, ONE_KEY, "Sets a field of a hash if it is not there.", put_if_absent),
    command("hstrlen", 3, READ_FAST, ONE_KEY, "Returns the length of a field of a hash.", |args, call| {
        get(args, call, Shape::FirstLength)
    }),
    command("hvals", 2, READ, ONE_KEY, "Returns the values of a hash.", |args, call| {
        all(args, call, Parts::Values)
    }),
];

fn get(args: Args<'_>, call: &mut Call<'_, '_>, shape: Shape) -> Result<Step, Fault> {
    let fields = (2..args.len()).map(|index| args.bytes(index)).collect();
    Ok(Step::Ask(Command::HashGet { key: call.key(&args, 1)?, fields }, shape))
}

fn all(args: Args<'_>, call: &mut Call<'_, '_>, parts: Parts) -> Result<Step, Fault> {
    let key = call.key(&args, 1)?;
    // Kept until the reply comes: it must not keep the request alive.
    let kept = Key::copy_from_slice(&key);
    let found = Gathered::new(&call.shared.gathered);
    let shape = Shape::AllFields { key: kept, parts, found, version: None, restarts: 0 };
    Ok(Step::Ask(Command::HashScan { key, from: 0, limit: u32::MAX, pattern: None }, shape))
}

fn length(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::HashLength { key: call.key(&args, 1)? }, Shape::Plain))
}

fn put(args: Args<'_>, call: &mut Call<'_, '_>, shape: Shape) -> Result<Step, Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(call.wrong_arity());
    }
    let (key, fields) = (call.key(&args, 1)?, pairs(&args, 2));
    Ok(Step::Ask(Command::HashPut { key, fields, if_absent: false }, shape))
}

fn put_if_absent(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, fields) = (call.key(&args, 1)?, pairs(&args, 2));
    Ok(Step::Ask(Command::HashPut { key, fields, if_absent: true }, Shape::Plain))
}

fn delete(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let fields = (2..args.len()).map(|index| args.bytes(index)).collect();
    Ok(Step::Ask(Command::HashDelete { key: call.key(&args, 1)?, fields }, Shape::Plain))
}

fn increment(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let by = number(&args, 3)?;
    let (key, field) = (call.key(&args, 1)?, args.bytes(2));
    Ok(Step::Ask(Command::HashIncrement { key, field, by }, Shape::Plain))
}

fn increment_float(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (key, field, by) = (call.key(&args, 1)?, args.bytes(2), args.bytes(3));
    Ok(Step::Ask(Command::HashIncrementFloat { key, field, by }, Shape::Plain))
}

/// A hash with fewer fields than this is answered at once, whatever COUNT says, as in Redis.
const SMALL: u32 = 128;

fn scan(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let from = cursor(args.get(2))?;
    let key = call.key(&args, 1)?;
    let (limit, pattern, fault) = match scan_options(&args, 3, false) {
        Ok(options) => (options.limit.max(SMALL), options.pattern, None),
        Err(fault) => (1, None, Some(fault)),
    };
    Ok(Step::Ask(Command::HashScan { key, from, limit, pattern }, Shape::HashScan { fault }))
}
