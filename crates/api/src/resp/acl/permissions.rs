//! What a user may do: the rules of commands, worked out for each command there is, and patterns of keys; of the user,
//! and of each selector. A request is allowed if one of them allows the command and all its keys.

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_store::glob::Pattern;
use quorate_store::{Permissions, User};

use super::super::commands::{Spec, every};
use super::super::request::Args;
use super::{Denial, categories_of};

/// What a user's own permissions allow, and then what each selector does.
#[derive(Debug)]
pub(super) struct Allowed(Vec<AllowedSet>);

#[derive(Debug)]
struct AllowedSet {
    /// The commands and subcommands that are allowed; `None` for all.
    commands: Option<BTreeSet<&'static str>>,
    /// The keys; `None` for all.
    keys: Option<Vec<Keys>>,
}

#[derive(Debug)]
struct Keys {
    read: bool,
    write: bool,
    pattern: Pattern,
}

/// What a command does with its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    read: bool,
    write: bool,
}

impl Allowed {
    pub(super) fn new(user: &User) -> Allowed {
        Allowed(std::iter::once(&user.permissions).chain(&user.selectors).map(AllowedSet::new).collect())
    }

    /// Whether every request may be served.
    pub(super) fn is_everything(&self) -> bool {
        self.0.iter().any(|set| set.commands.is_none() && set.keys.is_none())
    }

    /// Whether a command may be used, with whatever keys.
    pub(super) fn has_command(&self, name: &str) -> bool {
        self.0.iter().any(|set| set.commands.as_ref().is_none_or(|commands| commands.contains(name)))
    }

    /// Whether a request may be served. If not, a key is the reason where the command is allowed at all; of several, as
    /// in Redis, the last in the request.
    pub(super) fn check(&self, spec: &'static Spec, args: &Args<'_>) -> Result<(), Denial> {
        let mut denied = None;
        for set in &self.0 {
            match set.check(spec, args) {
                Ok(()) => return Ok(()),
                Err(key) => denied = denied.max(key),
            }
        }
        Err(denied.map_or(Denial::Command, |key| Denial::Key(Bytes::copy_from_slice(args.get(key)))))
    }
}

impl AllowedSet {
    fn new(permissions: &Permissions) -> AllowedSet {
        let everything = permissions.all_commands && permissions.commands.is_empty();
        let allowed = || every().filter(|spec| is_allowed(permissions, spec)).map(|spec| spec.name).collect();
        // A pattern that is too long for this version matches nothing.
        let keys = permissions.keys.iter().filter_map(|rule| {
            let pattern = Pattern::new(&rule.pattern).ok()?;
            Some(Keys { read: rule.read, write: rule.write, pattern })
        });
        AllowedSet {
            commands: (!everything).then(allowed),
            keys: (!permissions.all_keys).then(|| keys.collect()),
        }
    }

    /// Whether all of a request is allowed. If not, which word is the first key that is not; `None` if the command is
    /// not.
    fn check(&self, spec: &'static Spec, args: &Args<'_>) -> Result<(), Option<usize>> {
        // Lists of subcommands are in COMMAND, too.
        if spec.name != "help" && self.commands.as_ref().is_some_and(|commands| !commands.contains(spec.name))
        {
            return Err(None);
        }
        let Some(patterns) = &self.keys else { return Ok(()) };
        let need = need(spec, args);
        let may_use = |key: &[u8]| {
            let fits = |keys: &&Keys| (keys.read || !need.read) && (keys.write || !need.write);
            patterns.iter().filter(fits).any(|keys| keys.pattern.matches(key))
        };
        match keys(spec, args).find(|key| !may_use(args.get(*key))) {
            Some(key) => Err(Some(key)),
            None => Ok(()),
        }
    }
}

/// Whether the last rule that speaks of a command allows it.
fn is_allowed(permissions: &Permissions, spec: &Spec) -> bool {
    let categories = categories_of(spec);
    let speaks = |name: &[u8]| match name.strip_prefix(b"@") {
        Some(category) => categories.iter().any(|known| known.as_bytes() == category),
        None => {
            let rest = spec.name.as_bytes().strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        }
    };
    let last = permissions.commands.iter().rev().find(|rule| speaks(&rule.name));
    last.map_or(permissions.all_commands, |rule| rule.allow)
}

/// Which words of a request are keys.
fn keys(spec: &Spec, args: &Args<'_>) -> impl Iterator<Item = usize> + use<> {
    let (first, last, step) = spec.keys;
    let words = args.len() as i32;
    let end = if last < 0 { words + last + 1 } else { (last + 1).min(words) };
    (first..if first == 0 { 0 } else { end }).step_by(step.max(1) as usize).map(|index| index as usize)
}

/// As Redis has it in its table of commands: what is read must be readable if it shows, what is written writable. Where
/// neither is the case, as for EXISTS, a pattern must match, whatever it is for.
fn need(spec: &Spec, args: &Args<'_>) -> Need {
    let is_get = || args.from(3).any(|word| word.eq_ignore_ascii_case(b"get"));
    match spec.name {
        "strlen" | "hexists" | "hlen" | "hstrlen" | "exists" | "touch" | "type" | "watch" => Need::default(),
        "decr" | "decrby" | "incr" | "incrby" | "incrbyfloat" | "getdel" | "getex" | "getset" | "hincrby"
        | "hincrbyfloat" => Need { read: true, write: true },
        "set" => Need { read: is_get(), write: true },
        _ => Need { read: spec.flags.contains(&"readonly"), write: spec.flags.contains(&"write") },
    }
}
