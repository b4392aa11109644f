//! ACL: users and what they may do. Changes are commands of the store, and so in the log like any write.

use ring::rand::{SecureRandom, SystemRandom};

use super::super::acl::{self, CATEGORIES, Denial, categories_of, log, rules};
use super::super::session::State;
use super::connection;
use super::*;
use quorate_node::frontend::NodeView;
use quorate_store::{DEFAULT_USER, Permissions, User};

const SAFE: &[&str] = &["noscript", "loading", "stale"];
/// Users are a part of the data: no file could be edited to get in again.
const LOCKED_OUT: &str = "ERR nobody could change users any more: first make another user who is on, has a password \
                          and may use ACL SETUSER";

pub(super) const SPECS: &[Spec] = &[Spec {
    name: "acl",
    arity: -2,
    flags: SAFE,
    keys: NO_KEY,
    summary: "Who may ask for what.",
    run: needs_subcommand,
    subcommands: &[
        command("acl|cat", -2, SAFE, NO_KEY, "Lists categories, or the commands of one.", cat),
        command("acl|deluser", -3, ADMIN, NO_KEY, "Removes users.", delete),
        command(
            "acl|dryrun",
            -4,
            ADMIN,
            NO_KEY,
            "Returns whether a user may do a command, without doing it.",
            dry_run,
        ),
        command("acl|genpass", -2, SAFE, NO_KEY, "Makes a password that nobody guesses.", generate),
        command("acl|getuser", 3, ADMIN, NO_KEY, "Returns what a user may do.", get),
        command("acl|list", 2, ADMIN, NO_KEY, "Returns the rules of all users.", list),
        command(
            "acl|log",
            -2,
            ADMIN,
            NO_KEY,
            "Returns what was denied at this node, or forgets it.",
            denials,
        ),
        command("acl|setuser", -3, ADMIN, NO_KEY, "Changes a user, or makes one.", set),
        command("acl|users", 2, ADMIN, NO_KEY, "Returns the names of all users.", names),
        command("acl|whoami", 2, SAFE, NO_KEY, "Returns the name of this connection's user.", who),
    ],
}];

fn who(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let name = acl::name_of(call.state.identity.as_ref());
    call.reply.bulk(name);
    Ok(Step::Answered)
}

fn names(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let users = call.shared.acl.users();
    call.reply.array(users.len());
    users.for_each(|(name, _)| call.reply.bulk(name));
    Ok(Step::Answered)
}

fn list(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let users = call.shared.acl.users();
    call.reply.array(users.len());
    users.for_each(|(name, user)| call.reply.bulk(&rules::line(name, user)));
    Ok(Step::Answered)
}

fn get(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let reply = &mut *call.reply;
    let Some(user) = call.shared.acl.user(args.get(2)) else {
        reply.null();
        return Ok(Step::Answered);
    };
    reply.map(6);
    reply.bulk(b"flags");
    reply.set(1 + usize::from(user.no_password));
    reply.bulk(if user.enabled { b"on" } else { b"off" });
    if user.no_password {
        reply.bulk(b"nopass");
    }
    reply.bulk(b"passwords");
    reply.array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.bulk(rules::hex(&hash.0).as_bytes()));
    write_permissions(&user.permissions, reply);
    reply.bulk(b"selectors");
    reply.array(user.selectors.len());
    for selector in &user.selectors {
        reply.map(3);
        write_permissions(selector, reply);
    }
    Ok(Step::Answered)
}

/// Three fields of a map.
fn write_permissions(permissions: &Permissions, reply: &mut Writer) {
    reply.bulk(b"commands");
    reply.bulk(&rules::command_words(permissions));
    reply.bulk(b"keys");
    reply.bulk(&rules::key_words(permissions));
    // There are none.
    reply.bulk(b"channels");
    reply.bulk(b"");
}

fn set(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let name = args.get(2);
    rules::check_name(name).map_err(|why| format!("ERR {why}"))?;
    // What would come of it here: the store does the same, at its place in the log.
    let new = || if name == DEFAULT_USER { User::initial_default() } else { User::new(1) };
    let mut user = call.shared.acl.user(name).cloned().unwrap_or_else(new);
    let words = rules::join_selectors(args.from(3)).map_err(|word| {
        let text = b"ERR Unmatched parenthesis in acl selector starting at '";
        Fault([&text[..], word, b"'."].concat().into())
    })?;
    let mut all = Vec::new();
    for word in &words {
        let wrong = |why: String| {
            Fault([b"ERR Error in ACL SETUSER modifier '", &word[..], b"': ", why.as_bytes()].concat().into())
        };
        if let Some(rule) = rules::parse(word).map_err(wrong)? {
            user.change(&rule).map_err(|error| wrong(rules::refusal(error)))?;
            all.push(rule);
        }
    }
    if call.shared.acl.locks_out(|known| known == name, Some(&user)) {
        return Err(LOCKED_OUT.into());
    }
    let users = vec![(Bytes::copy_from_slice(name), all)];
    let command = Command::SetUsers { users, if_none: false };
    let needed = command.level();
    Ok(Step::Ask(command, Shape::User { needed }))
}

fn delete(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    if args.from(2).any(|name| name == DEFAULT_USER) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    if call.shared.acl.locks_out(|known| args.from(2).any(|name| name == known), None) {
        return Err(LOCKED_OUT.into());
    }
    let users = args.from(2).map(Bytes::copy_from_slice).collect();
    Ok(Step::Ask(Command::DeleteUsers { users }, Shape::Plain))
}

fn cat(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let names: Vec<&str> = match args.len() {
        2 => CATEGORIES.to_vec(),
        3 => {
            let category = CATEGORIES.iter().find(|category| is(args.get(2), category));
            let category = category.ok_or_else(|| {
                Fault([b"ERR Unknown category '", shown(args.get(2), 128), b"'"].concat().into())
            })?;
            let members = every().filter(|spec| categories_of(spec).contains(category));
            members.map(|spec| spec.name).collect()
        }
        _ => return Err(call.wrong_arity()),
    };
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name.as_bytes()));
    Ok(Step::Answered)
}

fn dry_run(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (name, request) = (args.get(2), args.after(3));
    let missing = |what: &[u8], word: &[u8]| {
        Fault([b"ERR ", what, b" '", shown(word, 128), b"' not found"].concat().into())
    };
    call.shared.acl.user(name).ok_or_else(|| missing(b"User", name))?;
    named(request.get(0)).ok_or_else(|| missing(b"Command", request.get(0)))?;
    let spec = find(&request)?;
    // In the words that Redis 7.0 has for this, which are not those of the refusal itself.
    let denied = match call.shared.acl.permits(name, spec, &request) {
        Some(Err(Denial::Command)) => {
            format!("This user has no permissions to run the '{}' command", spec.name).into_bytes()
        }
        Some(Err(Denial::Key(key))) => {
            [b"This user has no permissions to access the '", &key[..], b"' key"].concat()
        }
        _ => {
            call.reply.ok();
            return Ok(Step::Answered);
        }
    };
    call.reply.bulk(&denied);
    Ok(Step::Answered)
}

fn generate(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let bits = match args.len() {
        2 => 256,
        3 => integer(args.get(2)).and_then(|bits| usize::try_from(bits).ok()).unwrap_or(0),
        _ => return Err(call.wrong_arity()),
    };
    if !(1..=4096).contains(&bits) {
        return Err("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up \
                    to 4096"
            .into());
    }
    let digits = bits.div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "ERR the system gives no random numbers")?;
    call.reply.bulk(&rules::hex(&bytes).as_bytes()[..digits]);
    Ok(Step::Answered)
}

/// As many as Redis shows.
const USUAL: usize = 10;

fn denials(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let count = match args.len() {
        2 => USUAL,
        3 if is(args.get(2), "reset") => {
            call.shared.acl.log.reset();
            call.reply.ok();
            return Ok(Step::Answered);
        }
        3 => usize::try_from(number(&args, 2)?).unwrap_or(0),
        _ => return Err(call.wrong_arity()),
    };
    let now = (call.shared.clock)();
    let (entries, reply) = (call.shared.acl.log.latest(count), &mut *call.reply);
    reply.array(entries.len());
    for entry in entries {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(entry.count as i64);
        reply.bulk(b"reason");
        reply.bulk(entry.reason.word().as_bytes());
        reply.bulk(b"context");
        reply.bulk(if entry.in_multi { b"multi" } else { b"toplevel" });
        reply.bulk(b"object");
        reply.bulk(&entry.object);
        reply.bulk(b"username");
        reply.bulk(&entry.user);
        reply.bulk(b"age-seconds");
        reply.bulk(format!("{:.3}", now.saturating_sub(entry.at).as_secs_f64()).as_bytes());
        reply.bulk(b"client-info");
        reply.bulk(entry.client.as_bytes());
    }
    Ok(Step::Answered)
}

/// Counts what was denied, keeps it for ACL LOG, and lets the node log it, without any value.
pub(in crate::resp) fn denied(
    denial: &Denial,
    (spec, in_multi): (&Spec, bool),
    state: &State,
    shared: &mut Resp,
    node: &dyn NodeView,
) {
    let user = acl::name_of(state.identity.as_ref()).to_vec();
    let (reason, object) = match denial {
        // As in Redis: who has not said who he is is only counted.
        Denial::NotAuthenticated => return node.note_denial("not authenticated", "", spec.name),
        Denial::Unknown => return,
        Denial::Command => (log::Reason::Command, spec.name.as_bytes().to_vec()),
        Denial::Key(key) => (log::Reason::Key, key.to_vec()),
    };
    node.note_denial(
        if reason == log::Reason::Key { "a key" } else { "a command" },
        &String::from_utf8_lossy(&user),
        spec.name,
    );
    enter(reason, object, (user, in_multi), state, shared);
}

fn enter(
    reason: log::Reason,
    object: Vec<u8>,
    (user, in_multi): (Vec<u8>, bool),
    state: &State,
    shared: &mut Resp,
) {
    let now = connection::now(shared, state);
    let client = shared.clients.get(&state.connection).cloned().unwrap_or_default();
    let client = connection::line(state.connection, &client, now).trim_end().to_owned();
    shared.acl.log.add(log::Entry { count: 1, reason, in_multi, object, user, at: now.0, client });
}

/// Lets the connection be a user's, if the password is right. The first word is the command, as it was sent.
pub(super) fn authenticate(
    word: &[u8],
    (name, password): (&[u8], &[u8]),
    call: &mut Call<'_, '_>,
) -> Result<(), Fault> {
    if let Some(identity) = call.shared.acl.authenticate(name, password) {
        connection::client(call).user = identity.name.to_vec();
        call.state.identity = Some(identity);
        return Ok(());
    }
    // Whatever was sent as a name is no more than a word of the log.
    let shown = String::from_utf8_lossy(&name[..name.len().min(64)]);
    call.node.note_denial("a wrong password", &shown, call.spec.name);
    let user = (name.to_vec(), false);
    enter(log::Reason::Auth, word.to_vec(), user, call.state, call.shared);
    Err("WRONGPASS invalid username-password pair or user is disabled.".into())
}
