//! Several groups of replicas in each process (`--groups`): the keys are divided among them, and each has a protocol
//! and a leader of its own.
//!
//! | file | what |
//! |---|---|
//! | [`spec`] | what the command line says, checked |
//! | [`process`] | the replicas and proxies of a node as one process |
//! | [`records`] | whose records the one log has, and which of each group's are durable |
//! | [`image`] | the groups' images as one |
//!
//! **A process of several groups is a process** ([`AnyProcess`](quorate_runtime::AnyProcess)): drivers have one loop,
//! one log and one connection to each peer for all groups, and know nothing of them but where they show or check each
//! one. A message and a record begin with a byte that says whose it is. No replica sees another group's: they share
//! nothing but the order of their records, so what holds of one group alone holds of each of several.
//!
//! - *Release::AfterSync*: a replica counts its own records, and the log all. [`records`] translates, so that a message
//!   waits for its own group's records.
//! - *`persist_state`*: a state that is saved is the state of all groups, so it holds every record before it.
//! - *Snapshots*: the log is cut when all groups' images are durable, which are written one after the other. Catch-up
//!   is each group's own.
//! - *Which disk a node takes part with* is the process's, and settled before any replica starts.
//!
//! **Leaders rotate.** When all is new, the groups' first leaders are the members in turn
//! ([`Group::first_leader`]). Where groups lead later is left to their elections.

pub mod image;
pub mod process;
pub mod records;
pub mod spec;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use quorate_core::{Capabilities, Consistency, Group, Settings, SettingsError};
use quorate_runtime::{AnyProtocol, ConfiguredProtocol};
use quorate_store::Partition;

use process::ConfiguredGroups;

/// Groups with their protocols, and the keys of each.
pub struct Groups {
    /// Which group has which keys.
    pub partition: Arc<Partition>,
    protocols: Vec<&'static dyn AnyProtocol>,
    name: &'static str,
    flags: String,
}

impl AnyProtocol for Groups {
    fn name(&self) -> &'static str {
        self.name
    }

    fn flags(&self) -> String {
        self.flags.clone()
    }

    fn groups(&self) -> Vec<&dyn AnyProtocol> {
        self.protocols.clone()
    }

    /// What all of them give, and what one of them needs.
    fn capabilities(&self) -> Capabilities {
        let all = self.protocols.iter().map(|protocol| protocol.capabilities());
        all.reduce(|one, other| Capabilities {
            multi_key: one.multi_key && other.multi_key,
            failover: one.failover && other.failover,
            // Of seven, the larger one: there is no third kind.
            quorum: if (one.quorum)(7) < (other.quorum)(7) { other.quorum } else { one.quorum },
            leaderless: one.leaderless && other.leaderless,
            transfer: one.transfer && other.transfer,
            membership: one.membership && other.membership,
            rejoin: one.rejoin && other.rejoin,
            diskless: one.diskless.min(other.diskless),
            reads: if one.reads == other.reads { one.reads } else { "as each group's protocol does" },
            // Others are refused where there are several groups.
            consistency: |_| Consistency::Linearizable,
            min_nodes: one.min_nodes.max(other.min_nodes),
            max_nodes: one.max_nodes.min(other.max_nodes),
            ..one
        })
        .map(|can| Capabilities { total_order: false, rosters: false, ..can })
        .expect("there is a group")
    }

    /// Every group takes the settings that its protocol knows.
    fn configure(
        &self,
        group: &Group,
        settings: &mut Settings,
    ) -> Result<Arc<dyn ConfiguredProtocol>, SettingsError> {
        let given = settings.clone();
        let members: Vec<_> = group.members.iter().collect();
        let mut groups = Vec::new();
        for (index, protocol) in self.protocols.iter().enumerate() {
            let first_leader = members.get(index % members.len().max(1)).copied();
            let mut own = given.clone();
            groups.push(protocol.configure(&Group { first_leader, ..group.clone() }, &mut own)?);
            let consistency = (protocol.capabilities().consistency)(&own);
            if self.protocols.len() > 1 && consistency == Consistency::Sequential {
                return Err(SettingsError::Conflict(format!(
                    "with these settings {} has reads that are sequentially consistent, and several groups have no \
                     common order of writes; choose another value of reads",
                    protocol.name()
                )));
            }
            settings.take_as(own);
        }
        Ok(Arc::new(ConfiguredGroups { partition: self.partition.clone(), groups }))
    }
}
