//! The table of commands, and what they have in common. One file for each family.

pub(super) mod acl;
pub(super) mod connection;
mod hashes;
mod keys;
mod quorate;
mod server;
mod slowlog;
mod strings;
pub(super) mod transactions;

pub(super) use quorate::no_state;
pub(super) use server::Parameters;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use quorate_core::Manage;
use quorate_node::frontend::NodeView;
use quorate_store::{Command, Key};

pub(super) use self::server::level_of;
use super::reply::Writer;
use super::request::{Args, integer};
use super::session::State;
use super::shape::Shape;
use super::{Limits, Resp};

/// A command.
#[derive(Debug)]
pub(super) struct Spec {
    /// In lower case; a subcommand's follows its command's: `client|id`.
    pub(super) name: &'static str,
    /// How many words, the name included; at least so many if negative.
    pub(super) arity: i32,
    /// As COMMAND INFO shows them.
    pub(super) flags: &'static [&'static str],
    /// The first key, the last one (negative from the end) and the step between keys; zeros if there are none.
    pub(super) keys: (i32, i32, i32),
    /// What it does, in a few words.
    pub(super) summary: &'static str,
    /// Does it.
    pub(super) run: Run,
    /// Its subcommands.
    pub(super) subcommands: &'static [Spec],
}

/// Does a command: asks the store, or writes its reply at once.
pub(super) type Run = fn(Args<'_>, &mut Call<'_, '_>) -> Result<Step, Fault>;

/// What comes of a command.
#[derive(Debug)]
pub(super) enum Step {
    /// The store is to be asked, and its reply to be shown like this.
    Ask(Command, Shape),
    /// The group is to be asked for this: an encoded [`Manage`](quorate_core::Manage), or of one of several groups
    /// ([`GroupRequest`](quorate_core::GroupRequest)). And how long that may take.
    Manage(Bytes, Duration),
    /// Each of several groups is to be asked for this change of its members.
    ChangeMembers(Manage),
    /// The reply is written.
    Answered,
    /// The reply is written, and the connection ends after it.
    Close,
}

/// An error reply.
#[derive(Debug)]
pub(super) struct Fault(pub(super) Cow<'static, [u8]>);

impl From<&'static str> for Fault {
    fn from(text: &'static str) -> Fault {
        Fault(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault(Cow::Owned(text.into_bytes()))
    }
}

/// What a command may look at and change.
pub(super) struct Call<'a, 'b> {
    /// Which command this is.
    pub(super) spec: &'static Spec,
    /// Where a reply goes.
    pub(super) reply: &'a mut Writer<'b>,
    /// The connection.
    pub(super) state: &'a mut State,
    /// What all connections share.
    pub(super) shared: &'a mut Resp,
    /// The node.
    pub(super) node: &'a dyn NodeView,
}

impl Call<'_, '_> {
    pub(super) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The key at an index.
    pub(super) fn key(&self, args: &Args<'_>, index: usize) -> Result<Key, Fault> {
        let limit = self.limits().key;
        match args.get(index).len() {
            len if len > limit => {
                Err(format!("ERR a key of {len} bytes is longer than the limit of {limit} bytes").into())
            }
            _ => Ok(args.bytes(index)),
        }
    }

    /// The keys from an index on, each `step` words.
    pub(super) fn keys(&self, args: &Args<'_>, from: usize, step: usize) -> Result<Vec<Key>, Fault> {
        (from..args.len()).step_by(step).map(|index| self.key(args, index)).collect()
    }

    /// Milliseconds since the Unix epoch.
    pub(super) fn wall_ms(&self) -> i64 {
        i64::try_from((self.shared.clock)().as_millis()).unwrap_or(i64::MAX)
    }

    /// The error for words that are too few, too many or not in pairs.
    pub(super) fn wrong_arity(&self) -> Fault {
        wrong_arity(self.spec)
    }

    /// The error for an expiry that is out of range.
    pub(super) fn wrong_expiry(&self) -> Fault {
        format!("ERR invalid expire time in '{}' command", self.spec.name).into()
    }
}

pub(super) const SYNTAX: &str = "ERR syntax error";
pub(super) const NOT_INTEGER: &str = "ERR value is not an integer or out of range";

/// The number at an index.
pub(super) fn number(args: &Args<'_>, index: usize) -> Result<i64, Fault> {
    integer(args.get(index)).ok_or(NOT_INTEGER.into())
}

/// The pairs of words from an index on.
pub(super) fn pairs(args: &Args<'_>, from: usize) -> Vec<(Bytes, Bytes)> {
    (from..args.len()).step_by(2).map(|index| (args.bytes(index), args.bytes(index + 1))).collect()
}

/// Whether a word is this option, in any case.
pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// All commands, and their names as numbers, both sorted by name.
struct Table {
    codes: Vec<u128>,
    specs: Vec<&'static Spec>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let families = [
        acl::SPECS,
        connection::SPECS,
        hashes::SPECS,
        keys::SPECS,
        quorate::SPECS,
        server::SPECS,
        slowlog::SPECS,
        strings::SPECS,
        transactions::SPECS,
    ];
    let mut specs: Vec<_> = families.into_iter().flatten().collect();
    specs.sort_by_key(|spec| spec.name);
    let code = |spec: &&Spec| code(spec.name.as_bytes()).expect("no command has a longer name");
    Table { codes: specs.iter().map(code).collect(), specs }
});

/// A name of up to 16 bytes as one number, in lower case: numbers have the order of names. Every request is looked
/// up, and comparing numbers costs a fraction of comparing strings.
fn code(name: &[u8]) -> Option<u128> {
    let mut bytes = [0; 16];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    bytes.make_ascii_lowercase();
    Some(u128::from_be_bytes(bytes))
}

/// All commands, sorted by name.
pub(super) fn all() -> &'static [&'static Spec] {
    &TABLE.specs
}

/// All commands, and behind each its subcommands.
pub(super) fn every() -> impl Iterator<Item = &'static Spec> {
    all().iter().flat_map(|spec| std::iter::once(*spec).chain(spec.subcommands))
}

/// The command or subcommand (`client|id`) of this name.
pub(super) fn lookup(name: &[u8]) -> Option<&'static Spec> {
    match name.iter().position(|byte| *byte == b'|') {
        Some(bar) => named(&name[..bar])?.subcommand(&name[bar + 1..]),
        None => named(name),
    }
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Connection,
    Hash,
    Generic,
    String,
    Transaction,
    Server,
}

/// The family of a command or subcommand.
pub(super) fn family(spec: &Spec) -> Family {
    let families = [
        (Family::Connection, connection::SPECS),
        (Family::Hash, hashes::SPECS),
        (Family::Generic, keys::SPECS),
        (Family::String, strings::SPECS),
        (Family::Transaction, transactions::SPECS),
    ];
    let command = spec.name.split('|').next().unwrap_or_default();
    let found = families.iter().find(|(_, specs)| specs.iter().any(|other| other.name == command));
    found.map_or(Family::Server, |(family, _)| *family)
}

/// The command of this name, in any case.
pub(super) fn named(name: &[u8]) -> Option<&'static Spec> {
    let table = &*TABLE;
    let spec = table.specs[table.codes.binary_search(&code(name)?).ok()?];
    // A name that ends with zero bytes has the same number.
    (spec.name.len() == name.len()).then_some(spec)
}

impl Spec {
    /// The subcommand of this name, in any case.
    pub(super) fn subcommand(&self, name: &[u8]) -> Option<&'static Spec> {
        let prefix = self.name.len() + 1;
        self.subcommands.iter().find(|sub| sub.name.as_bytes()[prefix..].eq_ignore_ascii_case(name))
    }

    fn accepts(&self, words: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= arity } else { words == arity }
    }
}

/// The command that a request names, if it has as many words as that needs.
pub(super) fn find(args: &Args<'_>) -> Result<&'static Spec, Fault> {
    let name = args.get(0);
    let command = named(name).ok_or_else(|| unknown(args))?;
    let spec = match command.subcommands {
        [] => command,
        _ if args.len() < 2 => command,
        _ if args.len() == 2 && is(args.get(1), "help") => &HELP,
        _ => command.subcommand(args.get(1)).ok_or_else(|| unknown_subcommand(name, args.get(1)))?,
    };
    if spec.accepts(args.len()) { Ok(spec) } else { Err(wrong_arity(spec)) }
}

fn wrong_arity(spec: &Spec) -> Fault {
    format!("ERR wrong number of arguments for '{}' command", spec.name).into()
}

/// The first bytes of a word, as C prints it with a limit.
fn shown(word: &[u8], limit: usize) -> &[u8] {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len());
    &word[..end.min(limit)]
}

fn unknown(args: &Args<'_>) -> Fault {
    let mut list: Vec<u8> = Vec::new();
    for word in args.from(1) {
        if list.len() >= 128 {
            break;
        }
        let word = shown(word, 128 - list.len());
        list.extend_from_slice(&[b"'", word, b"' "].concat());
    }
    let name = shown(args.get(0), 128);
    let text = [b"ERR unknown command '", name, b"', with args beginning with: ", &list[..]].concat();
    Fault(Cow::Owned(text))
}

fn unknown_subcommand(command: &[u8], subcommand: &[u8]) -> Fault {
    let text = [
        b"ERR unknown subcommand '",
        shown(subcommand, 128),
        b"'. Try ",
        &command.to_ascii_uppercase(),
        b" HELP.",
    ];
    Fault(Cow::Owned(text.concat()))
}

/// HELP, a subcommand of every command that has others.
static HELP: Spec = command("help", 2, STATELESS, NO_KEY, "Lists the subcommands.", help);

/// As Redis: a line for each subcommand, and an indented one for what it does.
fn help(args: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let command = named(args.get(0)).ok_or_else(|| unknown(&args))?;
    let subcommands = command.subcommands.iter().chain([&HELP]);
    call.reply.array(3 + 2 * command.subcommands.len());
    let upper = command.name.to_ascii_uppercase();
    call.reply.simple(&format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for sub in subcommands {
        let name = sub.name.rsplit('|').next().unwrap_or_default().to_ascii_uppercase();
        // Two words are the names themselves.
        let words = if sub.arity == 2 { "" } else { " <arg> ..." };
        call.reply.simple(&format!("{name}{words}"));
        call.reply.simple(&format!("    {}", sub.summary));
    }
    Ok(Step::Answered)
}

/// For commands that only have subcommands: their arity needs one.
fn needs_subcommand(_: Args<'_>, call: &mut Call<'_, '_>) -> Result<Step, Fault> {
    Err(call.wrong_arity())
}

const READ: &[&str] = &["readonly"];
const READ_FAST: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const WRITE_FAST: &[&str] = &["write", "denyoom", "fast"];
const REMOVE: &[&str] = &["write"];
const REMOVE_FAST: &[&str] = &["write", "fast"];
const STATELESS: &[&str] = &["noscript", "loading", "stale", "fast"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale"];

const NO_KEY: (i32, i32, i32) = (0, 0, 0);
const ONE_KEY: (i32, i32, i32) = (1, 1, 1);
const ALL_KEYS: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);

/// A command without subcommands.
const fn command(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    summary: &'static str,
    run: Run,
) -> Spec {
    Spec { name, arity, flags, keys, summary, run, subcommands: &[] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case_and_only_once() {
        for pair in all().windows(2) {
            assert!(pair[0].name < pair[1].name, "{} twice", pair[0].name);
        }
        for spec in all() {
            assert_eq!(named(spec.name.to_ascii_uppercase().as_bytes()).unwrap().name, spec.name);
            for sub in spec.subcommands {
                let name = sub.name.strip_prefix(spec.name).and_then(|rest| rest.strip_prefix('|')).unwrap();
                assert_eq!(spec.subcommand(name.as_bytes()).unwrap().name, sub.name);
            }
        }
        for name in [&b""[..], &[b'x'; 16], &[b'x'; 17], b"get\0", b"ge", b"gett"] {
            assert!(named(name).is_none(), "{name:?}");
        }
    }
}
