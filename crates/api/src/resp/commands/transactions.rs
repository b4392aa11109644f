//! Transactions: MULTI queues commands, EXEC hands them to the store as one, if nothing watched has changed.

use quorate_store::{Command, Single};

use super::super::acl::Denial;
use super::super::session::{Before, Queued};
use super::super::shape::Part;
use super::connection::client;
use super::*;
use quorate_node::Output;

const FLAGS: &[&str] = &["noscript", "loading", "stale", "fast"];

pub(super) const SPECS: &[Spec] = &[
    command("discard", 1, FLAGS, NO_KEY, "Forgets the commands queued since MULTI.", discard),
    command(EXEC, 1, FLAGS, NO_KEY, "Executes the commands queued since MULTI as one.", exec),
    command("multi", 1, FLAGS, NO_KEY, "Queues the commands that follow.", multi),
    command("unwatch", 1, FLAGS, NO_KEY, "Forgets the watched keys.", unwatch),
    command("watch", -2, FLAGS, ALL_KEYS, "Lets the next EXEC fail if a key changes.", watch),
];

/// The command that must know what WATCH found before it can be handed on.
pub(in super::super) const EXEC: &str = "exec";

/// Whether a command is executed inside MULTI instead of being queued.
pub(in super::super) fn is_immediate(spec: &Spec) -> bool {
    matches!(spec.name, EXEC | "discard" | "multi" | "watch" | "quit" | "reset")
}

/// Whether a command begins a transaction, or ends one unexecuted. Only EXEC does anything.
pub(in super::super) fn is_bracket(spec: &Spec) -> bool {
    matches!(spec.name, "multi" | "discard")
}

/// Whether the store answers a command; few others have a long reply, and those are known at once.
fn is_about_data(spec: &Spec) -> bool {
    spec.flags.iter().any(|flag| matches!(*flag, "readonly" | "write"))
}

/// The error for an EXEC that cannot be executed for this reason: it ends the transaction.
pub(in super::super) fn abort(reason: &Fault) -> Vec<u8> {
    let reason = reason.0.strip_prefix(b"ERR ").unwrap_or(&reason.0);
    [b"EXECABORT Transaction discarded because of: ", reason].concat()
}

fn multi(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let queue = &mut call.state.queue;
    if queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    *queue = Some(Default::default());
    call.reply.ok();
    Ok(Step::Answered)
}

fn discard(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.state.queue.take().ok_or("ERR DISCARD without MULTI")?;
    call.state.watch.forget();
    call.reply.ok();
    Ok(Step::Answered)
}

fn watch(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if call.state.queue.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let limit = call.limits().request;
    let keys = call.keys(&args, 1, 1)?;
    // Kept until EXEC: they must not keep the request alive.
    let keys: Vec<Key> = keys.iter().map(|key| Key::copy_from_slice(key)).collect();
    let watch = &mut call.state.watch;
    let id = watch.begin(&keys, limit).ok_or_else(|| {
        Fault::from(format!(
            "ERR the keys watched so far and these are larger than the limit of {limit} bytes"
        ))
    })?;
    Ok(Step::Ask(Command::VersionsOf { keys: keys.clone() }, Shape::Watch { keys, watch: id }))
}

fn unwatch(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.state.watch.forget();
    call.reply.ok();
    Ok(Step::Answered)
}

/// As Redis words it.
fn now_denied(denial: &Denial, spec: &Spec) -> String {
    let reason = match denial {
        Denial::NotAuthenticated | Denial::Unknown => return denial.text(spec),
        Denial::Command => "no permission to execute the command or subcommand",
        Denial::Key(_) => "no permission to touch the specified keys",
    };
    format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {reason}"
    )
}

fn exec(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let queue = call.state.queue.take().ok_or("ERR EXEC without MULTI")?;
    let (watched, lost) = call.state.watch.end();
    if queue.spoiled || lost {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let identity = call.state.identity.clone();
    let (resp3, read_mode) = (call.state.resp3, call.state.read_mode);
    let before = Before { resp3, client: client(call).clone(), identity, read_mode };
    let (mut commands, mut parts) = (Vec::new(), Vec::with_capacity(queue.commands.len()));
    // Bytes of what is answered at once: COMMAND DOCS is short, and its reply is long.
    let (mut ready, most) = (0, call.limits().replies);
    for Queued { spec, frame, words } in &queue.commands {
        let mut out = Output::default();
        let mut reply = Writer { out: &mut out, resp3: call.state.resp3 };
        if ready > most && !is_about_data(spec) {
            reply.error(format!("ERR the transaction's replies would have more than {most} bytes"));
            parts.push(Part::Ready(out));
            continue;
        }
        // They may have changed since it was queued.
        let args = Args::new(frame, words);
        if let Err(denial) = call.shared.acl.judge(call.state.identity.as_ref(), spec, &args) {
            acl::denied(&denial, (spec, true), call.state, call.shared, call.node);
            reply.error(now_denied(&denial, spec));
            parts.push(Part::Ready(out));
            continue;
        }
        let mut inner = Call {
            spec,
            reply: &mut reply,
            state: &mut *call.state,
            shared: &mut *call.shared,
            node: call.node,
        };
        match (spec.run)(args, &mut inner) {
            Ok(Step::Ask(command, shape)) => {
                commands.push(Single(command));
                parts.push(Part::Store { shape, resp3: call.state.resp3 });
            }
            Ok(Step::Manage(..) | Step::ChangeMembers(_)) => {
                reply.error(format!("ERR {} is not allowed in a transaction", spec.name.replace('|', " ")));
                parts.push(Part::Ready(out));
            }
            Ok(Step::Answered | Step::Close) => {
                ready += out.len();
                parts.push(Part::Ready(out));
            }
            Err(Fault(text)) => {
                reply.error(text);
                parts.push(Part::Ready(out));
            }
        }
    }
    if commands.is_empty() && watched.is_empty() {
        call.reply.array(parts.len());
        for part in parts {
            if let Part::Ready(bytes) = part {
                call.reply.out.append(bytes);
            }
        }
        return Ok(Step::Answered);
    }
    let changes_mode = before.read_mode != call.state.read_mode;
    let is_changed = before.resp3 != call.state.resp3 || before.client != *client(call) || changes_mode;
    // What WATCH found was the group's, reads before a change of the mode are in the mode before it, and those behind
    // QUORATE SYNC see what was acknowledged before.
    let syncs = |part: &Part| matches!(part, Part::Store { shape: Shape::Synchronized, .. });
    let misses_nothing = !watched.is_empty() || changes_mode || parts.iter().any(syncs);
    if is_changed && !watched.is_empty() {
        call.state.undecided = Some(Box::new(before));
    }
    Ok(Step::Ask(Command::Batch { watched, commands }, Shape::Exec { parts, misses_nothing }))
}
