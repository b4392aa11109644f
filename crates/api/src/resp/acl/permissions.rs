//! What a user may do: the rules of commands, worked out for each command there is, and patterns of keys.

use std::collections::BTreeSet;

use bytes::Bytes;
use quorate_store::User;
use quorate_store::glob::Pattern;

use super::super::commands::{Spec, all};
use super::super::request::Args;
use super::{Denial, categories_of};

#[derive(Debug)]
pub(super) struct Permissions {
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

impl Permissions {
    pub(super) fn new(user: &User) -> Permissions {
        let everything = user.all_commands && user.commands.is_empty();
        let specs = all().iter().flat_map(|spec| std::iter::once(*spec).chain(spec.subcommands));
        let allowed = || specs.filter(|spec| is_allowed(user, spec)).map(|spec| spec.name).collect();
        // A pattern that is too long for this version matches nothing.
        let keys = user.keys.iter().filter_map(|rule| {
            let pattern = Pattern::new(&rule.pattern).ok()?;
            Some(Keys { read: rule.read, write: rule.write, pattern })
        });
        Permissions { commands: (!everything).then(allowed), keys: (!user.all_keys).then(|| keys.collect()) }
    }

    /// Whether a request may be served.
    pub(super) fn check(&self, spec: &'static Spec, args: &Args<'_>) -> Result<(), Denial> {
        // Lists of subcommands are in COMMAND, too.
        if spec.name != "help" && self.commands.as_ref().is_some_and(|commands| !commands.contains(spec.name))
        {
            return Err(Denial::Command);
        }
        let Some(patterns) = &self.keys else { return Ok(()) };
        let need = need(spec, args);
        for key in keys(spec, args) {
            let fits = |keys: &&Keys| (keys.read || !need.read) && (keys.write || !need.write);
            if !patterns.iter().filter(fits).any(|keys| keys.pattern.matches(key)) {
                return Err(Denial::Key(Bytes::copy_from_slice(key)));
            }
        }
        Ok(())
    }
}

/// Whether the last rule that speaks of a command allows it.
fn is_allowed(user: &User, spec: &Spec) -> bool {
    let categories = categories_of(spec);
    let speaks = |name: &[u8]| match name.strip_prefix(b"@") {
        Some(category) => categories.iter().any(|known| known.as_bytes() == category),
        None => {
            let rest = spec.name.as_bytes().strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'|')
        }
    };
    let last = user.commands.iter().rev().find(|rule| speaks(&rule.name));
    last.map_or(user.all_commands, |rule| rule.allow)
}

/// The keys that a request names.
fn keys<'a>(spec: &Spec, args: &Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let (first, last, step) = spec.keys;
    let words = args.len() as i32;
    let end = if last < 0 { words + last + 1 } else { (last + 1).min(words) };
    let indices = (first..if first == 0 { 0 } else { end }).step_by(step.max(1) as usize);
    let args = *args;
    indices.map(move |index| args.get(index as usize))
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
