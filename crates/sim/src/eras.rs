//! The names of keys in each era of a run: after some writes of unknown outcome, clients move on to fresh keys.

use bytes::Bytes;
use quorate_store::Command;

/// Moves the keys of a command, of the kinds that clients ask, into an era. Those of the first keep their names.
pub(crate) fn in_era(command: &mut Command, era: u32) {
    if let Command::Scan { pattern, .. } = command {
        let suffix = if era == 0 { String::new() } else { format!(".{era}") };
        *pattern = Some(format!("s?{suffix}").into());
        return;
    }
    if era == 0 {
        return;
    }
    let moved = |key: &mut Bytes| *key = Bytes::from([key, format!(".{era}").as_bytes()].concat());
    match command {
        Command::Get { key }
        | Command::Length { key }
        | Command::ExpiryOf { key }
        | Command::HashAll { key }
        | Command::HashGet { key, .. }
        | Command::Put { key, .. }
        | Command::Increment { key, .. }
        | Command::Append { key, .. }
        | Command::HashPut { key, .. }
        | Command::HashIncrement { key, .. }
        | Command::HashDelete { key, .. } => moved(key),
        Command::GetMany { keys }
        | Command::Exists { keys }
        | Command::VersionsOf { keys }
        | Command::Delete { keys } => keys.iter_mut().for_each(moved),
        Command::PutMany { pairs, .. } => pairs.iter_mut().for_each(|(key, _)| moved(key)),
        Command::Batch { commands, .. } => commands.iter_mut().for_each(|single| in_era(&mut single.0, era)),
        other => unreachable!("clients do not ask {other:?}"),
    }
}
