//! The connection itself: greetings, its name, its version of the protocol, its end.

use super::super::acl::Denial;
use super::super::{Client, ReadMode};
use super::acl::authenticate;
use super::*;
use quorate_core::Time;
use quorate_store::DEFAULT_USER;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const CLIENT: &[&str] = &["noscript", "loading", "stale"];

pub(super) const SPECS: &[Spec] = &[
    command("auth", -2, STATELESS, NO_KEY, "Tells who is at the other end of this connection.", auth),
    Spec {
        name: "client",
        arity: -2,
        flags: CLIENT,
        keys: NO_KEY,
        summary: "Tells and sets what is known of connections.",
        run: needs_subcommand,
        subcommands: &[
            command("client|getname", 2, CLIENT, NO_KEY, "Returns this connection's name.", get_name),
            command("client|id", 2, CLIENT, NO_KEY, "Returns this connection's number.", id),
            command("client|info", 2, CLIENT, NO_KEY, "Returns what is known of this connection.", info),
            command("client|kill", -3, CLIENT, NO_KEY, "Closes connections.", kill),
            command("client|list", -2, CLIENT, NO_KEY, "Returns what is known of all connections.", list),
            command("client|no-evict", 3, CLIENT, NO_KEY, "Accepted: nothing is evicted.", switch),
            command("client|no-touch", 3, CLIENT, NO_KEY, "Accepted: nothing is ordered by use.", switch),
            command(
                "client|readmode",
                -2,
                CLIENT,
                NO_KEY,
                "Tells or sets where this connection's reads are served, and what they may miss.",
                read_mode,
            ),
            command(
                "client|setinfo",
                4,
                CLIENT,
                NO_KEY,
                "Names the client library or its version.",
                set_info,
            ),
            command("client|setname", 3, CLIENT, NO_KEY, "Names this connection.", set_name),
        ],
    },
    command("echo", 2, STATELESS, NO_KEY, "Returns its argument.", echo),
    command("hello", -1, STATELESS, NO_KEY, "Chooses the version of the protocol.", hello),
    command("ping", -1, STATELESS, NO_KEY, "Answers.", ping),
    command("quit", -1, STATELESS, NO_KEY, "Closes the connection.", quit),
    command("reset", 1, STATELESS, NO_KEY, "Makes the connection as if it were new.", reset),
    command("select", 2, STATELESS, NO_KEY, "Accepts 0, the one database.", select),
];

fn ping(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match args.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(args.get(1)),
        _ => return Err(call.wrong_arity()),
    }
    Ok(Step::Answered)
}

fn read_mode(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match args.len() {
        2 => call.reply.bulk(call.state.read_mode.to_string().as_bytes()),
        3 => {
            let mode = str::from_utf8(args.get(2)).unwrap_or_default().parse::<ReadMode>();
            let mode = mode.map_err(|right| Fault(format!("ERR {right}").into_bytes().into()))?;
            if matches!(mode, ReadMode::Sequential | ReadMode::Local) && !call.node.has_state() {
                return Err("ERR this is a proxy: it has no state of its own to read from".into());
            }
            if mode == ReadMode::Sequential && call.limits().key_scope.groups().is_some() {
                return Err(
                    "ERR groups (--groups) have no order in common: choose linearizable, local or bounded"
                        .into(),
                );
            }
            if mode == ReadMode::Sequential && !call.node.has_total_order() {
                return Err(
                    "ERR this protocol does not put all writes in one order: choose linearizable or local"
                        .into(),
                );
            }
            (call.state.read_mode, call.state.knows_more) = (mode, true);
            call.reply.ok();
        }
        _ => return Err(call.wrong_arity()),
    }
    Ok(Step::Answered)
}

fn echo(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.bulk(args.get(1));
    Ok(Step::Answered)
}

fn quit(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.ok();
    Ok(Step::Close)
}

fn select(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match number(&args, 1)? {
        0 => call.reply.ok(),
        index if i32::try_from(index).is_err() => {
            let (least, most) = (i32::MIN, i32::MAX);
            return Err(format!("ERR value is out of range, value must between {least} and {most}").into());
        }
        _ => return Err("ERR DB index is out of range".into()),
    }
    Ok(Step::Answered)
}

fn auth(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    match args.len() {
        2 if call.shared.acl.default_needs_no_password() => {
            return Err(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?"
                    .into(),
            );
        }
        2 => authenticate(args.get(0), (DEFAULT_USER, args.get(1)), call)?,
        3 => authenticate(args.get(0), (args.get(1), args.get(2)), call)?,
        _ => return Err(SYNTAX.into()),
    }
    call.reply.ok();
    Ok(Step::Answered)
}

fn hello(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let mut resp3 = call.state.resp3;
    if args.len() > 1 {
        resp3 = match integer(args.get(1)) {
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
        };
    }
    let mut index = 2;
    while index < args.len() {
        let (word, more) = (args.get(index), args.len() - 1 - index);
        if is(word, "AUTH") && more >= 2 {
            authenticate(args.get(0), (args.get(index + 1), args.get(index + 2)), call)?;
            index += 3;
        } else if is(word, "SETNAME") && more >= 1 {
            rename(args.get(index + 1), call)?;
            index += 2;
        } else {
            return Err(Fault([b"ERR Syntax error in HELLO option '", word, b"'"].concat().into()));
        }
    }
    if !call.shared.acl.is_user(call.state.identity.as_ref()) {
        call.node.note_denial("not authenticated", "", call.spec.name);
        return Err(Denial::NotAuthenticated.text(call.spec).into());
    }
    call.state.resp3 = resp3;
    client(call).resp3 = resp3;
    let id = call.state.connection as i64;
    let reply = &mut *call.reply;
    reply.resp3 = resp3;
    reply.map(7);
    // Clients decide by these words which commands they may use: what they name is the surface, not the program.
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(id);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(Step::Answered)
}

/// The version of Redis whose replies ours are.
pub(super) const REDIS_VERSION: &str = "7.0.15";

fn reset(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.state.queue = None;
    call.state.watch.forget();
    call.state.resp3 = false;
    call.state.identity = None;
    (call.state.read_mode, call.state.knows_more) = (call.shared.limits.read_mode, true);
    let client = client(call);
    let activity = Rc::clone(&client.activity);
    *client = Client { opened: client.opened, from: client.from, activity, ..Client::default() };
    call.reply.resp3 = false;
    call.reply.simple("RESET");
    Ok(Step::Answered)
}

/// What is known of this connection.
pub(super) fn client<'a>(call: &'a mut Call<'_, '_>) -> &'a mut Client {
    call.shared.clients.entry(call.state.connection).or_default()
}

fn id(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    call.reply.integer(call.state.connection as i64);
    Ok(Step::Answered)
}

fn get_name(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let name = client(call).name.clone();
    call.reply.optional(Some(name).filter(|name| !name.is_empty()).map(Bytes::from));
    Ok(Step::Answered)
}

fn set_name(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    rename(args.get(2), call)?;
    call.reply.ok();
    Ok(Step::Answered)
}

fn rename(name: &[u8], call: &mut Call<'_, '_>) -> Result<(), Fault> {
    if !is_printable(name) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    if name.len() > LONGEST_NAME {
        return Err(too_long());
    }
    client(call).name = name.to_vec();
    Ok(())
}

/// Names are kept for as long as the connection is: a bound of ours.
const LONGEST_NAME: usize = 1024;

fn too_long() -> Fault {
    format!("ERR names of clients and libraries are limited to {LONGEST_NAME} bytes").into()
}

fn is_printable(name: &[u8]) -> bool {
    name.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

fn set_info(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (attribute, value) = (args.get(2), args.get(3));
    let is_library = is(attribute, "LIB-NAME");
    if !is_library && !is(attribute, "LIB-VER") {
        return Err(Fault([b"ERR Unrecognized option '", attribute, b"'"].concat().into()));
    }
    if !is_printable(value) {
        let name = if is_library { "lib-name" } else { "lib-ver" };
        return Err(format!("ERR {name} cannot contain spaces, newlines or special characters.").into());
    }
    if value.len() > LONGEST_NAME {
        return Err(too_long());
    }
    let client = client(call);
    let place = if is_library { &mut client.library } else { &mut client.library_version };
    *place = value.to_vec();
    call.reply.ok();
    Ok(Step::Answered)
}

fn switch(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if !is(args.get(2), "ON") && !is(args.get(2), "OFF") {
        return Err(SYNTAX.into());
    }
    call.reply.ok();
    Ok(Step::Answered)
}

fn info(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let now = now(call.shared, call.state);
    let id = call.state.connection;
    let text = line(id, client(call), now);
    call.reply.verbatim(&text);
    Ok(Step::Answered)
}

fn list(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let now = now(call.shared, call.state);
    let clients = &call.shared.clients;
    let text: String = if args.len() == 2 {
        clients.iter().map(|(id, client)| line(*id, client, now)).collect()
    } else if args.len() == 4 && is(args.get(2), "TYPE") {
        match is_normal(args.get(3))? {
            true => clients.iter().map(|(id, client)| line(*id, client, now)).collect(),
            false => String::new(),
        }
    } else if args.len() > 3 && is(args.get(2), "ID") {
        let ids = args.from(3).map(|word| integer(word).ok_or("ERR Invalid client ID"));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let found = ids.iter().filter_map(|id| clients.get_key_value(&(*id as u64)));
        found.map(|(id, client)| line(*id, client, now)).collect()
    } else {
        return Err(SYNTAX.into());
    };
    call.reply.verbatim(&text);
    Ok(Step::Answered)
}

/// Whether clients of a type are those that there are.
fn is_normal(kind: &[u8]) -> Result<bool, Fault> {
    let found = ["normal", "pubsub", "master", "replica", "slave"].iter().position(|known| is(kind, known));
    found
        .map(|index| index == 0)
        .ok_or_else(|| Fault([b"ERR Unknown client type '", shown(kind, usize::MAX), b"'"].concat().into()))
}

fn kill(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let own = call.state.connection;
    let mut victims: BTreeSet<u64> = call.shared.clients.keys().copied().collect();
    // With an address alone, as in old versions, it may be the own connection.
    let mut spares_own = args.len() > 3;
    let filters = match args.len() {
        3 => vec![(&b"ADDR"[..], args.get(2))],
        words if words % 2 == 1 => return Err(SYNTAX.into()),
        words => (2..words).step_by(2).map(|index| (args.get(index), args.get(index + 1))).collect(),
    };
    let clients = &call.shared.clients;
    for (filter, wanted) in filters {
        if is(filter, "ID") {
            let id = integer(wanted).filter(|id| *id > 0);
            let id = id.ok_or("ERR client-id should be greater than 0")? as u64;
            victims.retain(|known| *known == id);
        } else if is(filter, "ADDR") {
            let is_from = |from: SocketAddr| from.to_string().as_bytes() == wanted;
            victims.retain(|id| clients.get(id).and_then(|client| client.from).is_some_and(is_from));
        } else if is(filter, "USER") {
            if call.shared.acl.user(wanted).is_none() {
                return Err(Fault([b"ERR No such user '", shown(wanted, 128), b"'"].concat().into()));
            }
            victims.retain(|id| clients.get(id).is_some_and(|client| client.user() == wanted));
        } else if is(filter, "TYPE") {
            if !is_normal(wanted)? {
                victims.clear();
            }
        } else if is(filter, "SKIPME") && (is(wanted, "yes") || is(wanted, "no")) {
            spares_own = is(wanted, "yes");
        } else {
            return Err(SYNTAX.into());
        }
    }
    let ends_own = victims.remove(&own) && !spares_own;
    match (args.len(), victims.len() + usize::from(ends_own)) {
        (3, 0) => return Err("ERR No such client".into()),
        (3, _) => call.reply.ok(),
        (_, count) => call.reply.integer(count as i64),
    }
    call.shared.ended.extend(victims);
    Ok(if ends_own { Step::Close } else { Step::Answered })
}

/// The present as the clock of ages tells it, and when this connection's request was read, from which others' last ones
/// are told.
pub(super) fn now(shared: &Resp, state: &State) -> (Duration, Time) {
    ((shared.clock)(), state.activity.at.get())
}

pub(super) fn line(id: u64, client: &Client, (wall, now): (Duration, Time)) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "id={id} addr={} name={} age={} idle={} flags=N db=0 cmd={} user={} resp={} lib-name={} lib-ver={}\n",
        client.from.map_or_else(|| "?".to_owned(), |from| from.to_string()),
        text(&client.name),
        wall.saturating_sub(client.opened).as_secs(),
        now.since(client.activity.at.get()).as_secs(),
        Some(client.activity.command.get()).filter(|name| !name.is_empty()).unwrap_or("NULL"),
        text(client.user()),
        if client.resp3 { 3 } else { 2 },
        text(&client.library),
        text(&client.library_version),
    )
}
