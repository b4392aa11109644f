//! Several groups in the node (`--groups`): which commands no one of them can execute, and what each looks like.

use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{NodeId, Status};
use quorate_store::{Command, Partition, Scattered};
use serde_json::{Value, json};

/// Bytes of a key that an error shows.
const SHOWN: usize = 64;

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

    /// What a client is told whose command no one group can execute.
    pub(super) fn refusal(&self, name: &str, command: &Command) -> Option<String> {
        match self.partition.group_of(command).err()? {
            Scattered::Keys(keys) => {
                let keys = keys.iter().map(|(group, key)| format!("'{}' in group {group}", shown(key)));
                let keys = keys.collect::<Vec<_>>().join(", ");
                Some(format!(
                    "CROSSSLOT the keys of the request are in different groups (--groups): {keys}; a command, or a \
                     transaction with what it watches, has keys of one group"
                ))
            }
            Scattered::Everything => {
                let name = name.replace('|', " ").to_uppercase();
                Some(format!(
                    "ERR {name} is about all keys, which are divided among groups here (--groups): that is not \
                     possible yet"
                ))
            }
        }
    }

    /// Each group, as `QUORATE STATUS` shows it.
    pub(super) fn describe(&self, statuses: &[Status]) -> Vec<Value> {
        let key = |key: Option<&Bytes>| key.map(|key| String::from_utf8_lossy(key).into_owned());
        let groups = self.partition.groups().zip(&self.protocols).zip(statuses);
        let shown = groups.map(|(((group, from, to), protocol), status)| {
            json!({
                "group": group.get(),
                "from": key(from).unwrap_or_default(),
                "to": key(to),
                "protocol": protocol,
                "role": status.role,
                "leader": status.leader.map(NodeId::get),
                "ballot": status.ballot,
                "committed": status.committed,
                "applied": status.applied,
                "lease": status.lease,
                "reads": status.reads,
            })
        });
        shown.collect()
    }
}

/// A key, for people.
fn shown(key: &Bytes) -> String {
    let text = String::from_utf8_lossy(&key[..key.len().min(SHOWN)]).escape_debug().to_string();
    if key.len() > SHOWN { format!("{text}…") } else { text }
}
