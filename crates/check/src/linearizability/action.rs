//! Commands as actions of the model, and what can be said of an action without a state.

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_store::glob::Pattern;
use quorate_store::{Command, CommandError, Condition, Expiry, Key, Reply};

use super::model::{Action, KeyId, Model, Value, When};

/// Calls `with` for each key that a command names.
pub fn each_key<'a>(command: &'a Command, with: &mut dyn FnMut(&'a Key)) {
    match command {
        Command::Get { key }
        | Command::GetRange { key, .. }
        | Command::Length { key }
        | Command::KindOf { key }
        | Command::ExpiryOf { key }
        | Command::Put { key, .. }
        | Command::Take { key }
        | Command::Increment { key, .. }
        | Command::IncrementFloat { key, .. }
        | Command::Append { key, .. }
        | Command::SetExpiry { key, .. }
        | Command::HashPut { key, .. }
        | Command::HashGet { key, .. }
        | Command::HashAll { key }
        | Command::HashLength { key }
        | Command::HashScan { key, .. }
        | Command::HashDelete { key, .. }
        | Command::HashIncrement { key, .. }
        | Command::Refresh { key, .. }
        | Command::PutRange { key, .. }
        | Command::HashIncrementFloat { key, .. } => with(key),
        Command::GetMany { keys }
        | Command::Exists { keys }
        | Command::VersionsOf { keys }
        | Command::Delete { keys } => keys.iter().for_each(with),
        Command::PutMany { pairs, .. } => pairs.iter().for_each(|(key, _)| with(key)),
        Command::LimitData { .. } | Command::DiskFull { .. } | Command::MemoryFull { .. } => {}
        Command::Scan { .. }
        | Command::Count
        | Command::RandomKey { .. }
        | Command::Clear
        | Command::UserChanges
        | Command::Users
        | Command::SetUsers { .. }
        | Command::DeleteUsers { .. }
        | Command::Level
        | Command::Settings
        | Command::RaiseLevel { .. } => {}
        Command::Batch { watched, commands } => {
            watched.iter().for_each(|(key, _)| with(key));
            commands.iter().for_each(|single| each_key(&single.0, with));
        }
    }
}

/// Calls `with` for each key that a command can bring into being.
pub fn each_made_key<'a>(command: &'a Command, with: &mut dyn FnMut(&'a Key)) {
    match command {
        Command::Put { key, .. }
        | Command::Increment { key, .. }
        | Command::IncrementFloat { key, .. }
        | Command::Append { key, .. }
        | Command::HashPut { key, .. }
        | Command::HashIncrement { key, .. }
        | Command::PutRange { key, .. }
        | Command::HashIncrementFloat { key, .. } => with(key),
        Command::PutMany { pairs, .. } => pairs.iter().for_each(|(key, _)| with(key)),
        Command::Batch { commands, .. } => commands.iter().for_each(|single| each_made_key(&single.0, with)),
        Command::Get { .. }
        | Command::GetMany { .. }
        | Command::GetRange { .. }
        | Command::Length { .. }
        | Command::Exists { .. }
        | Command::KindOf { .. }
        | Command::ExpiryOf { .. }
        | Command::VersionsOf { .. }
        | Command::Delete { .. }
        | Command::Take { .. }
        | Command::Refresh { .. }
        | Command::SetExpiry { .. }
        | Command::HashGet { .. }
        | Command::HashAll { .. }
        | Command::HashLength { .. }
        | Command::HashScan { .. }
        | Command::HashDelete { .. }
        | Command::Scan { .. }
        | Command::Count
        | Command::RandomKey { .. }
        | Command::LimitData { .. }
        | Command::DiskFull { .. }
        | Command::MemoryFull { .. }
        | Command::Clear
        | Command::UserChanges
        | Command::Users
        | Command::SetUsers { .. }
        | Command::DeleteUsers { .. }
        | Command::Level
        | Command::Settings
        | Command::RaiseLevel { .. } => {}
    }
}

/// Calls `with` for each value that a command puts with a time to live: its key, the value, and from which nanosecond
/// of the history on it may be gone.
pub fn each_mortal<'a>(command: &'a Command, with: &mut dyn FnMut(&'a Key, &'a Bytes, u64)) {
    match command {
        Command::Put { key, value, expiry: Expiry::At(from), .. } => {
            with(key, value, u64::try_from(*from).unwrap_or(0));
        }
        Command::Batch { commands, .. } => commands.iter().for_each(|single| each_mortal(&single.0, with)),
        _ => {}
    }
}

/// Whether a command changes a key and keeps what time it has left.
pub fn keeps_time(command: &Command) -> bool {
    match command {
        Command::Increment { .. }
        | Command::Append { .. }
        | Command::HashPut { .. }
        | Command::HashDelete { .. }
        | Command::HashIncrement { .. }
        | Command::Put { expiry: Expiry::Keep, .. } => true,
        Command::Batch { commands, .. } => commands.iter().any(|single| keeps_time(&single.0)),
        _ => false,
    }
}

/// Whether a command reads or writes all keys there are.
pub fn is_global(command: &Command) -> bool {
    match command {
        Command::Scan { .. } | Command::Count | Command::RandomKey { .. } | Command::Clear => true,
        Command::Batch { commands, .. } => commands.iter().any(|single| is_global(&single.0)),
        _ => false,
    }
}

pub fn asks_for_versions(command: &Command) -> bool {
    match command {
        Command::VersionsOf { .. } | Command::Put { condition: Condition::IfVersion(_), .. } => true,
        Command::Batch { watched, commands } => {
            !watched.is_empty() || commands.iter().any(|single| asks_for_versions(&single.0))
        }
        _ => false,
    }
}

pub fn compile(
    command: &Command,
    ids: &BTreeMap<Bytes, KeyId>,
    model: &mut Model,
) -> Result<Action, &'static str> {
    let all = |keys: &[Key]| keys.iter().map(|key| ids[key]).collect();
    Ok(match command {
        Command::Get { key } => Action::Get(ids[key]),
        Command::GetMany { keys } => Action::GetMany(all(keys)),
        Command::GetRange { key, start, end } => Action::GetRange(ids[key], *start, *end),
        Command::Length { key } => Action::Length(ids[key]),
        Command::Exists { keys } => Action::Exists(all(keys)),
        Command::KindOf { key } => Action::KindOf(ids[key]),
        Command::ExpiryOf { key } => Action::ExpiryOf(ids[key]),
        Command::VersionsOf { keys } => Action::VersionsOf(all(keys)),
        Command::Put { expiry: Expiry::In(_), .. } => {
            return Err("from when on a key may expire must be said in nanoseconds of the history (`at`)");
        }
        Command::SetExpiry { .. } | Command::Refresh { .. } => {
            return Err(
                "a time to live that changes without its key is not modelled: put the key anew to expire",
            );
        }
        Command::Put { key, value, condition, expiry: _, old } => {
            let when = When::from(*condition);
            if *old && matches!(when, When::IfVersion(_)) {
                return Err(
                    "a put on a version that asks for the old value does not say whether it happened",
                );
            }
            let value = model.intern(Value::String(value.clone()));
            Action::Put { key: ids[key], value, when, old: *old }
        }
        Command::PutMany { pairs, if_none } => {
            let mut intern = |value: &Bytes| model.intern(Value::String(value.clone()));
            let pairs = pairs.iter().map(|(key, value)| (ids[key], intern(value))).collect();
            Action::PutMany { pairs, if_none: *if_none }
        }
        Command::Delete { keys } => Action::Delete(all(keys)),
        Command::Take { key } => Action::Take(ids[key]),
        Command::Increment { key, by } => Action::Increment(ids[key], *by),
        Command::IncrementFloat { .. } | Command::HashIncrementFloat { .. } => {
            return Err("the text of floating-point sums is not modelled");
        }
        Command::Append { key, value } => Action::Append(ids[key], value.clone()),
        Command::PutRange { .. } => return Err("strings that are overwritten in part are not modelled"),
        Command::HashPut { key, fields, if_absent } => {
            Action::HashPut { key: ids[key], fields: fields.clone(), if_absent: *if_absent }
        }
        Command::HashGet { key, fields } => Action::HashGet(ids[key], fields.clone()),
        Command::HashAll { key } => Action::HashAll(ids[key]),
        Command::HashLength { key } => Action::HashLength(ids[key]),
        Command::HashDelete { key, fields } => Action::HashDelete(ids[key], fields.clone()),
        Command::HashIncrement { key, field, by } => Action::HashIncrement(ids[key], field.clone(), *by),
        Command::HashScan { .. } => return Err("parts of hashes are not modelled"),
        Command::Scan { from, limit, pattern, kind } => {
            let pattern = pattern.as_ref().map(|pattern| Pattern::new(pattern)).transpose();
            let pattern = pattern.map_err(|_| "the pattern is too long")?;
            Action::Scan { from: *from, limit: *limit, pattern, kind: *kind }
        }
        Command::Count => Action::Count,
        Command::RandomKey { .. } => Action::RandomKey,
        Command::Clear => Action::Clear,
        Command::LimitData { .. } | Command::DiskFull { .. } | Command::MemoryFull { .. } => {
            return Err("limits on the data are not modelled");
        }
        Command::UserChanges | Command::Users | Command::SetUsers { .. } | Command::DeleteUsers { .. } => {
            return Err("users are not modelled");
        }
        Command::Level | Command::Settings | Command::RaiseLevel { .. } => {
            return Err("settings are not modelled");
        }
        Command::Batch { watched, commands } => {
            let watched = watched.iter().map(|(key, version)| (ids[key], *version)).collect();
            let actions = commands.iter().map(|single| match &single.0 {
                Command::Batch { .. } => Err("a batch inside a batch"),
                command => compile(command, ids, model),
            });
            Action::Batch { watched, actions: actions.collect::<Result<_, _>>()? }
        }
    })
}

/// Replies whose reasons the model does not know, and conditions whose outcome nobody knows.
pub fn check_reply(action: &Action, reply: Option<&Reply>) -> Result<(), &'static str> {
    match (action, reply) {
        (
            _,
            Some(Reply::Error(
                CommandError::TooLarge
                | CommandError::AboveLimit { .. }
                | CommandError::Malformed
                | CommandError::NoRoom,
            )),
        ) => Err("limits of size are not modelled"),
        // It was executed, with a reply that nobody knows.
        (action, Some(Reply::NotRetained)) => check_reply(action, None),
        (Action::Batch { actions, .. }, Some(Reply::Batch(Some(replies)))) => {
            actions.iter().zip(replies).try_for_each(|(action, reply)| check_reply(action, Some(reply)))
        }
        (Action::Batch { actions, .. }, None)
            if actions
                .iter()
                .any(|action| matches!(action, Action::Put { when: When::IfVersion(_), .. })) =>
        {
            Err("a batch of unknown outcome that compares a version has more than one outcome")
        }
        _ => Ok(()),
    }
}

/// Calls `with` for the action, or for each action of a batch.
pub fn each_single(action: &Action, with: &mut dyn FnMut(&Action)) {
    match action {
        Action::Batch { actions, .. } => actions.iter().for_each(with),
        action => with(action),
    }
}

/// Whether an action with this reply leaves every value as it is, in every state in which it can have this reply.
pub fn is_pure(action: &Action, reply: Option<&Reply>) -> bool {
    let Some(reply) = reply else { return false };
    match (action, reply) {
        (_, Reply::Error(_) | Reply::Skipped) => true,
        (
            Action::Get(_)
            | Action::GetMany(_)
            | Action::GetRange(..)
            | Action::Length(_)
            | Action::Exists(_)
            | Action::KindOf(_)
            | Action::ExpiryOf(_)
            | Action::VersionsOf(_)
            | Action::HashGet(..)
            | Action::HashAll(_)
            | Action::HashLength(_)
            | Action::Scan { .. }
            | Action::Count
            | Action::RandomKey,
            _,
        ) => true,
        (Action::Put { when: When::IfAbsent, old: true, .. }, Reply::Value(old)) => old.is_some(),
        (Action::Put { when: When::IfPresent, old: true, .. }, Reply::Value(old)) => old.is_none(),
        (Action::Delete(_) | Action::HashDelete(..), Reply::Integer(0)) => true,
        (Action::HashPut { if_absent: true, .. }, Reply::Integer(0)) => true,
        (Action::Take(_), Reply::Value(None)) => true,
        (Action::Batch { .. }, Reply::Batch(None)) => true,
        (Action::Batch { actions, .. }, Reply::Batch(Some(replies))) => {
            actions.len() == replies.len()
                && actions.iter().zip(replies).all(|(action, reply)| is_pure(action, Some(reply)))
        }
        _ => false,
    }
}

pub fn is_blind(action: &Action) -> bool {
    match action {
        Action::Put { when: When::Always, old: false, .. }
        | Action::PutMany { if_none: false, .. }
        | Action::Clear => true,
        Action::Batch { watched, actions } => watched.is_empty() && actions.iter().all(is_blind),
        _ => false,
    }
}

/// The strings that a reply shows to have been at keys at some moment of the action.
pub fn shows(action: &Action, reply: &Reply, out: &mut Vec<(KeyId, Bytes)>) {
    match (action, reply) {
        (
            Action::Get(key) | Action::Take(key) | Action::Put { key, old: true, .. },
            Reply::Value(Some(bytes)),
        ) => out.push((*key, bytes.clone())),
        (Action::GetMany(keys), Reply::Values(values)) => {
            for (key, value) in keys.iter().zip(values) {
                out.extend(value.iter().map(|bytes| (*key, bytes.clone())));
            }
        }
        (Action::Batch { actions, .. }, Reply::Batch(Some(replies))) => {
            actions.iter().zip(replies).for_each(|(action, reply)| shows(action, reply, out));
        }
        _ => {}
    }
}

/// The strings that keys must hold for an action to have this reply.
pub fn needs(action: &Action, reply: &Reply) -> Vec<(KeyId, Bytes)> {
    let mut needed = Vec::new();
    // What the actions of a batch have done so far: put a string behind what was there, or replaced it.
    let mut appended: BTreeMap<KeyId, Option<Vec<u8>>> = BTreeMap::new();
    let mut add = |action: &Action, reply: &Reply| {
        let mut shown = Vec::new();
        shows(action, reply, &mut shown);
        if let (Action::Increment(key, by), Reply::Integer(sum)) = (action, reply) {
            // Nothing counts as 0.
            let before = sum.checked_sub(*by).filter(|before| *before != 0);
            shown.extend(before.map(|before| (*key, before.to_string().into())));
        }
        for (key, bytes) in shown {
            match appended.get(&key) {
                None => needed.push((key, bytes)),
                // Nothing counts as empty.
                Some(Some(suffix)) if bytes.len() > suffix.len() && bytes.ends_with(suffix) => {
                    needed.push((key, bytes.slice(..bytes.len() - suffix.len())));
                }
                Some(_) => {}
            }
        }
        if !is_pure(action, Some(reply)) {
            each_written(action, &mut |key| {
                let so_far = appended.entry(key).or_insert_with(|| Some(Vec::new()));
                match (action, so_far) {
                    (Action::Append(_, suffix), Some(all)) => all.extend_from_slice(suffix),
                    (_, so_far) => *so_far = None,
                }
            });
        }
    };
    match (action, reply) {
        (Action::Batch { actions, .. }, Reply::Batch(Some(replies))) => {
            // What follows on a clear has nothing left to need.
            let kept = actions.iter().take_while(|action| !matches!(action, Action::Clear));
            kept.zip(replies).for_each(|(action, reply)| add(action, reply));
        }
        (action, reply) => add(action, reply),
    }
    needed.dedup();
    needed
}

/// Calls `with` for each key that an action, which is no batch, may write.
fn each_written(action: &Action, with: &mut dyn FnMut(KeyId)) {
    match action {
        Action::Put { key, .. }
        | Action::Take(key)
        | Action::Increment(key, _)
        | Action::Append(key, _)
        | Action::HashPut { key, .. }
        | Action::HashDelete(key, _)
        | Action::HashIncrement(key, ..)
        | Action::Expire(key, _) => with(*key),
        Action::PutMany { pairs, .. } => pairs.iter().for_each(|(key, _)| with(*key)),
        Action::Delete(keys) => keys.iter().for_each(|key| with(*key)),
        Action::Get(_)
        | Action::GetMany(_)
        | Action::GetRange(..)
        | Action::Length(_)
        | Action::Exists(_)
        | Action::KindOf(_)
        | Action::ExpiryOf(_)
        | Action::VersionsOf(_)
        | Action::HashGet(..)
        | Action::HashAll(_)
        | Action::HashLength(_)
        | Action::Scan { .. }
        | Action::Count
        | Action::RandomKey
        | Action::Clear
        | Action::Batch { .. } => {}
    }
}
