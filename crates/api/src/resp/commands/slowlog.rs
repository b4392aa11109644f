//! SLOWLOG: the node's slow requests, in Redis's form, with their stages behind it.

use quorate_node::frontend::SlowRequest;

use super::*;

pub(super) const SPECS: &[Spec] = &[Spec {
    name: "slowlog",
    arity: -2,
    flags: ADMIN,
    keys: NO_KEY,
    summary: "Tells which requests were slow, and in which stage.",
    run: needs_subcommand,
    subcommands: &[
        command("slowlog|get", -2, ADMIN, NO_KEY, "Returns the latest slow requests.", get),
        command("slowlog|len", 2, ADMIN, NO_KEY, "Returns how many slow requests are remembered.", len),
        command("slowlog|reset", 2, ADMIN, NO_KEY, "Forgets the slow requests.", reset),
    ],
}];

/// As many as Redis shows.
const USUAL: usize = 10;

fn get(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let count = match args.len() {
        2 => USUAL,
        3 => match integer(args.get(2)) {
            Some(-1) => usize::MAX,
            Some(count) if count >= 0 => usize::try_from(count).unwrap_or(usize::MAX),
            _ => return Err("ERR count should be greater than or equal to -1".into()),
        },
        _ => return Err(call.wrong_arity()),
    };
    let entries = call.node.slow_requests(count);
    call.reply.array(entries.len());
    for entry in &entries {
        write(entry, call.reply);
    }
    Ok(Step::Answered)
}

/// The six elements of Redis, of whose arguments only the command's name is known; then the slot and the stages, in
/// microseconds.
fn write(entry: &SlowRequest, reply: &mut Writer<'_>) {
    let micros = |duration: std::time::Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    reply.array(7);
    reply.integer(entry.number as i64);
    reply.integer((entry.ended.millis() / 1000) as i64);
    reply.integer(micros(entry.took));
    reply.array(1);
    reply.bulk(entry.asked.command.as_bytes());
    reply.bulk(entry.address.as_bytes());
    reply.bulk(entry.asked.client.as_bytes());
    reply.map(entry.stages.len() + usize::from(entry.group.is_some()) + usize::from(entry.slot.is_some()));
    if let Some(group) = entry.group {
        reply.bulk(b"group");
        reply.integer(group.get() as i64);
    }
    if let Some(slot) = entry.slot {
        reply.bulk(b"slot");
        reply.integer(slot as i64);
    }
    for (stage, took) in &entry.stages {
        reply.bulk(stage.as_bytes());
        reply.integer(micros(*took));
    }
}

fn len(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.integer(call.node.slow_count() as i64);
    Ok(Step::Answered)
}

fn reset(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.node.forget_slow();
    call.reply.ok();
    Ok(Step::Answered)
}
