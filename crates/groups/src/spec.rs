//! What the command line says of groups: `--groups 5`, and where they are split with `--group-keys c,f,m,t`; or
//! `--groups a-m=crossword,n-z=bodega`, where each may have a protocol of its own.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::GroupId;
use quorate_runtime::AnyProtocol;
use quorate_store::Partition;
use thiserror::Error;

use quorate_protocols::registry;

use super::Groups;

/// What is wrong with the flags, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SpecError(String);

/// Who has which keys and which protocol, and what that is called.
type Spec = (Partition, Vec<&'static dyn AnyProtocol>, String);

impl Groups {
    /// As the command line says it; groups that name no protocol have `protocol`.
    pub fn parse(
        protocol: &'static dyn AnyProtocol,
        groups: &str,
        keys: Option<&str>,
    ) -> Result<Groups, SpecError> {
        let (partition, protocols, name) = match (groups.trim().parse(), keys) {
            (Ok(count), keys) => of_one(protocol, count, keys)?,
            (Err(_), None) => of_ranges(protocol, groups)?,
            (Err(_), Some(_)) => {
                return wrong("--group-keys goes with a number of groups: ranges say where they are split");
            }
        };
        let mut flags = format!("--protocol {} --groups {}", protocol.name(), groups.trim());
        keys.into_iter().for_each(|keys| flags += &format!(" --group-keys {keys}"));
        Ok(Groups { partition: Arc::new(partition), protocols, name: name.leak(), flags })
    }
}

/// Groups that all have this protocol.
fn of_one(protocol: &'static dyn AnyProtocol, count: usize, keys: Option<&str>) -> Result<Spec, SpecError> {
    let mut partition = Partition::even(count).or_else(|why| wrong(format!("--groups: {why}")))?;
    if let Some(keys) = keys {
        let splits = keys.split(',').map(split_key).collect::<Result<Vec<_>, _>>()?;
        let (given, wanted) = (splits.len(), count - 1);
        if given != wanted {
            return wrong(format!(
                "--group-keys {keys}: {given} keys, but {count} groups are split at {wanted}: one for each group but \
                 the first"
            ));
        }
        partition = Partition::new(splits).or_else(|why| wrong(format!("--group-keys: {why}")))?;
    }
    let splits: Vec<_> = partition.splits().iter().map(|key| String::from_utf8_lossy(key)).collect();
    let name = match protocol.name() {
        name if count == 1 => format!("{name} in 1 group"),
        name => format!("{name} in {count} groups split at {}", splits.join(",")),
    };
    Ok((partition, vec![protocol; count], name))
}

/// Groups that have the keys from the beginning of their range to that of the next one. The first range begins with the
/// lowest key all the same, and the last ends with the highest.
fn of_ranges(protocol: &'static dyn AnyProtocol, text: &str) -> Result<Spec, SpecError> {
    let (mut splits, mut protocols, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Option<Bytes> = None;
    for word in text.split(',').map(str::trim) {
        let (range, own) = match word.split_once('=') {
            None => (word, protocol),
            Some((range, name)) => {
                let found = registry::find(name).or_else(|why| wrong(format!("--groups: {why}")))?;
                (range, found.protocol)
            }
        };
        let Some((from, to)) = range.split_once('-') else {
            return wrong(format!(
                "--groups {text}: write how many, from 1 to {}, or ranges of keys such as a-m,n-z or \
                 a-m=crossword,n-z=raft",
                GroupId::MAX
            ));
        };
        let (from, to) = (split_key(from)?, split_key(to)?);
        if to < from || before.as_ref().is_some_and(|before| from <= *before) {
            return wrong(format!(
                "--groups: the range {range} must have its first key before its last, and be behind the range before it"
            ));
        }
        names.push(match before.replace(to) {
            None => own.name().to_owned(),
            Some(_) => format!("{} from {}", own.name(), String::from_utf8_lossy(&from)),
        });
        splits.push(from);
        protocols.push(own);
    }
    let partition = Partition::new(splits.split_off(1)).or_else(|why| wrong(format!("--groups: {why}")))?;
    Ok((partition, protocols, format!("groups of {}", names.join(", "))))
}

/// A key at which groups are split. It stands in the data directory's identity, and in what operators write.
fn split_key(text: &str) -> Result<Bytes, SpecError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return wrong(format!(
            "a key that divides groups is printable ASCII without spaces, and `{text}` is not"
        ));
    }
    Ok(Bytes::copy_from_slice(text.as_bytes()))
}

fn wrong<T>(why: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(why.into()))
}
