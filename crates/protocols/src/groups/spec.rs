//! What the command line says of groups: `--groups 5`, and where they are split with `--group-keys c,f,m,t`; or
//! `--groups a-m=crossword,n-z=bodega`, where each may have a protocol of its own.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::GroupId;
use quorate_runtime::AnyProtocol;
use quorate_store::Partition;
use thiserror::Error;

use super::Groups;
use crate::registry;

/// What is wrong with the flags, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SpecError(String);

impl Groups {
    /// As the command line says it; groups that name no protocol have `protocol`.
    pub fn parse(
        protocol: &'static dyn AnyProtocol,
        groups: &str,
        keys: Option<&str>,
    ) -> Result<Groups, SpecError> {
        match groups.trim().parse() {
            Ok(count) => Groups::of_one(protocol, count, keys),
            Err(_) if keys.is_some() => {
                wrong("--group-keys goes with a number of groups: ranges say where they are split")
            }
            Err(_) => Groups::of_ranges(protocol, groups),
        }
    }

    /// Groups that all have this protocol.
    fn of_one(
        protocol: &'static dyn AnyProtocol,
        count: usize,
        keys: Option<&str>,
    ) -> Result<Groups, SpecError> {
        let mut partition = Partition::even(count).or_else(|why| wrong(format!("--groups: {why}")))?;
        let name = protocol.name();
        let mut flags = format!("--protocol {name} --groups {count}");
        if let Some(keys) = keys {
            let splits = keys.split(',').map(split_key).collect::<Result<Vec<_>, _>>()?;
            if splits.len() + 1 != count {
                return wrong(format!(
                    "--group-keys {keys}: {} keys, but {count} groups are split at {}: one for each group but the \
                     first",
                    splits.len(),
                    count - 1
                ));
            }
            partition = Partition::new(splits).or_else(|why| wrong(format!("--group-keys: {why}")))?;
            flags = format!("{flags} --group-keys {keys}");
        }
        let splits: Vec<_> = partition.splits().iter().map(|key| String::from_utf8_lossy(key)).collect();
        let name = match &splits[..] {
            [] => format!("{name} in 1 group"),
            splits => format!("{name} in {count} groups split at {}", splits.join(",")),
        };
        Ok(Groups::new(partition, vec![protocol; count], name, flags))
    }

    /// Groups that have the keys from the beginning of their range to that of the next one. The first range begins with
    /// the lowest key all the same, and the last ends with the highest.
    fn of_ranges(protocol: &'static dyn AnyProtocol, text: &str) -> Result<Groups, SpecError> {
        let (mut splits, mut protocols, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut before: Option<Bytes> = None;
        for word in text.split(',').map(str::trim) {
            let (range, own) = match word.split_once('=') {
                Some((range, name)) => match registry::find(name) {
                    Ok(entry) => (range, entry.protocol),
                    Err(why) => return wrong(format!("--groups: {why}")),
                },
                None => (word, protocol),
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
                    "--groups: the range {range} must have its first key before its last, and be behind the range \
                     before it"
                ));
            }
            match before.replace(to) {
                None => names.push(own.name().to_owned()),
                Some(_) => {
                    names.push(format!("{} from {}", own.name(), String::from_utf8_lossy(&from)));
                    splits.push(from);
                }
            }
            protocols.push(own);
        }
        let partition = Partition::new(splits).or_else(|why| wrong(format!("--groups: {why}")))?;
        let name = format!("groups of {}", names.join(", "));
        let flags = format!("--protocol {} --groups {text}", protocol.name());
        Ok(Groups::new(partition, protocols, name, flags))
    }

    fn new(
        partition: Partition,
        protocols: Vec<&'static dyn AnyProtocol>,
        name: String,
        flags: String,
    ) -> Groups {
        Groups { partition: Arc::new(partition), protocols, name: name.leak(), flags }
    }
}

/// A key at which groups are split. It stands in the data directory's identity, and in what operators write.
fn split_key(text: &str) -> Result<Bytes, SpecError> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Bytes::copy_from_slice(text.as_bytes())),
        false => {
            wrong(format!("a key that divides groups is printable ASCII without spaces, and `{text}` is not"))
        }
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(why.into()))
}
