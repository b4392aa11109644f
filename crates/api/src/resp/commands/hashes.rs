//! Hashes: maps from fields to strings.

use quorate_store::Command;

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
        all(args, call, Shape::Plain)
    }),
    command("hincrby", 4, WRITE_FAST, ONE_KEY, "Adds to an integer field of a hash.", increment),
    command("hincrbyfloat", 4, WRITE_FAST, ONE_KEY, "Adds to a field that is a number.", increment_float),
    command("hkeys", 2, READ, ONE_KEY, "Returns the fields of a hash.", |args, call| {
        all(args, call, Shape::Half { second: false })
    }),
    command("hlen", 2, READ_FAST, ONE_KEY, "Returns how many fields a hash has.", length),
    command("hmget", -3, READ_FAST, ONE_KEY, "Returns several fields of a hash.", |args, call| {
        get(args, call, Shape::Plain)
    }),
    command("hmset", -4, WRITE_FAST, ONE_KEY, "Sets fields of a hash.", |args, call| {
        put(args, call, Shape::Ok)
    }),
    command("hscan", -3, READ, ONE_KEY, "Returns all of a hash, in the form of a scan.", scan),
    command("hset", -4, WRITE_FAST, ONE_KEY, "Sets fields of a hash.", |args, call| {
        put(args, call, Shape::Plain)
    }),
    command("hsetnx", 4, WRITE_FAST, ONE_KEY, "Sets a field of a hash if it is not there.", put_if_absent),
    command("hstrlen", 3, READ_FAST, ONE_KEY, "Returns the length of a field of a hash.", |args, call| {
        get(args, call, Shape::FirstLength)
    }),
    command("hvals", 2, READ, ONE_KEY, "Returns the values of a hash.", |args, call| {
        all(args, call, Shape::Half { second: true })
    }),
];

fn get(args: Args<'_>, call: &mut Call<'_, '_>, shape: Shape) -> Result<Step, Fault> {
    let fields = (2..args.len()).map(|index| args.bytes(index)).collect();
    Ok(Step::Ask(Command::HashGet { key: call.key(&args, 1)?, fields }, shape))
}

fn all(args: Args<'_>, call: &mut Call<'_, '_>, shape: Shape) -> Result<Step, Fault> {
    Ok(Step::Ask(Command::HashAll { key: call.key(&args, 1)? }, shape))
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

/// Redis, too, answers all of a small hash at once, whatever COUNT says, with the cursor 0. Another cursor is one
/// that was never given out: as with Redis, whatever it brings is right, and the end is what ends soonest.
fn scan(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    cursor(args.get(2))?;
    // A pattern is kept until the reply comes: it must not keep the request alive.
    let pattern = scan_options(&args, 3, false)
        .map(|options| options.pattern.map(|pattern| Bytes::copy_from_slice(&pattern)));
    all(args, call, Shape::HashScan { pattern })
}
