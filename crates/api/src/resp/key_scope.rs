//! Which keys one command may have: those of one group of replicas, where the node has several (`--groups`), and one
//! key, where the protocol executes no others ([`Capabilities::multi_key`](quorate_core::Capabilities)).

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{GroupId, Status};
use quorate_store::{Command, Partition, Scattered};
use serde_json::Value;

use super::all_groups::is_for_each_group;
use crate::status;

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

/// See the file comment. By default a command may have any keys.
#[derive(Clone, Debug, Default)]
pub struct KeyScope {
    groups: Option<KeyGroups>,
    /// The protocol of each group, or of all keys, if it executes only commands on one key.
    single_key: Vec<Option<&'static str>>,
}

impl KeyScope {
    /// `protocols`: those of the groups, or the one for all keys; each with
    /// [`Capabilities::multi_key`](quorate_core::Capabilities).
    pub fn new(groups: Option<KeyGroups>, protocols: impl Iterator<Item = (&'static str, bool)>) -> KeyScope {
        let single_key = protocols.map(|(name, multi_key)| (!multi_key).then_some(name));
        KeyScope { groups, single_key: single_key.collect() }
    }

    /// The groups that the node's keys are divided among, if they are.
    pub(crate) fn groups(&self) -> Option<&KeyGroups> {
        self.groups.as_ref()
    }

    /// Whose an encoded command is, or one that names its group: the first one's, if nobody's.
    pub(super) fn group_of(&self, asked: &Bytes) -> GroupId {
        let routed = self.groups.as_ref().and_then(|groups| groups.partition.route(asked));
        routed.map_or(GroupId::FIRST, |(group, _)| group)
    }

    /// What a client is told whose command has keys that no command may have together.
    pub(super) fn refusal(&self, name: &str, command: &Command) -> Option<String> {
        let group = match &self.groups {
            // Each group does its part, so each must be able to.
            Some(_) if is_for_each_group(command) => {
                Ok(GroupId::at(self.single_key.iter().position(Option::is_some)?))
            }
            Some(groups) => groups.group_of(name, command),
            None => Ok(GroupId::FIRST),
        };
        let group = match group {
            Ok(group) => group,
            Err(refusal) => return Some(refusal),
        };
        let protocol = self.single_key.get(group.index()).copied().flatten()?;
        command.only_key().err().map(|_| {
            format!(
                "ERR {} is not about one key, and {protocol} executes commands on one key only: choose a protocol that \
                 orders all writes, such as multipaxos",
                as_typed(name)
            )
        })
    }
}

/// The groups that the node's keys are divided among.
#[derive(Clone, Debug)]
pub struct KeyGroups {
    partition: Arc<Partition>,
    protocols: Vec<&'static str>,
}

impl KeyGroups {
    /// Groups with these keys and protocols.
    pub fn new(partition: Arc<Partition>, protocols: Vec<&'static str>) -> KeyGroups {
        KeyGroups { partition, protocols }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.protocols.len()
    }

    /// The protocol of each group, in their order.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = (GroupId, &'static str)> {
        self.protocols.iter().enumerate().map(|(index, protocol)| (GroupId::at(index), *protocol))
    }

    /// A key of each group, in their order.
    pub(super) fn first_keys(&self) -> Vec<Bytes> {
        self.partition.groups().map(|(_, from, _)| from.cloned().unwrap_or_default()).collect()
    }

    /// Whose a command is, or what a client is told if no one group can execute it.
    fn group_of(&self, name: &str, command: &Command) -> Result<GroupId, String> {
        self.partition.group_of(command).map_err(|scattered| match scattered {
            Scattered::Keys(keys) => {
                let group = |key: &Bytes| self.partition.group_of_key(key);
                let keys = keys.iter().map(|key| format!("'{}' in group {}", shown(key), group(key)));
                let keys = keys.collect::<Vec<_>>().join(", ");
                format!(
                    "CROSSSLOT the keys of the request are in different groups (--groups): {keys}; a command, or a \
                     transaction with what it watches, has keys of one group"
                )
            }
            Scattered::Everything => self.refuse_all_keys(name),
        })
    }

    /// What a client is told whose command is about all keys at one moment.
    pub(super) fn refuse_all_keys(&self, name: &str) -> String {
        format!(
            "ERR {} is about all keys at one moment, and they are divided among {} groups here (--groups): that is not \
             possible yet",
            as_typed(name),
            self.count()
        )
    }

    /// Each group, as `QUORATE STATUS` shows it.
    pub(crate) fn describe(&self, statuses: &[Status]) -> Vec<Value> {
        let key = |key: Option<&Bytes>| key.map(|key| String::from_utf8_lossy(key).into_owned());
        let groups = self.partition.groups().zip(&self.protocols).zip(statuses);
        let shown = groups.map(|(((group, from, to), protocol), status)| {
            let mut text = status::replica(status);
            text["group"] = group.get().into();
            text["from"] = key(from).unwrap_or_default().into();
            text["to"] = key(to).into();
            text["protocol"] = (*protocol).into();
            text
        });
        shown.collect()
    }
}

/// A command's name, as clients write it.
fn as_typed(name: &str) -> String {
    name.replace('|', " ").to_uppercase()
}

/// A key, for people.
fn shown(key: &Bytes) -> String {
    let text = String::from_utf8_lossy(&key[..key.len().min(SHOWN)]).escape_debug().to_string();
    if key.len() > SHOWN { format!("{text}…") } else { text }
}
