//! A protocol without types, for drivers that are compiled once.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{
    Capabilities, Configs, Group, GroupId, NodeId, Payload, Protocol, Replica, Saved, Settings,
    SettingsError, Snapshot,
};

use crate::process::{AnyProcess, Start};
use crate::process_runner::ProcessRunner;

/// A protocol, whichever it is: one value for each, from [`protocol`]. Or several groups, with a protocol each.
pub trait AnyProtocol: Sync {
    /// As the command line spells it ([`Protocol::NAME`]) and the log's owner is called. Several groups have one name,
    /// which says who has which keys.
    fn name(&self) -> &'static str;

    /// As peers compare it: its name and, where it is not the first, which
    /// [revision](Capabilities::message_revision) of its messages it speaks.
    fn name_for_peers(&self) -> String {
        let later = self.groups().into_iter().filter(|group| group.capabilities().message_revision > 1);
        let revision = |group: &dyn AnyProtocol| (group.name(), group.capabilities().message_revision);
        let revisions: BTreeMap<_, _> = later.map(revision).collect();
        let said =
            revisions.iter().map(|(name, revision)| format!(", revision {revision} of {name}'s messages"));
        said.fold(self.name().to_owned(), |all, one| all + &one)
    }

    /// The flags of the command line that choose it.
    fn flags(&self) -> String {
        format!("--protocol {}", self.name())
    }

    /// The protocol of each group, in their order.
    fn groups(&self) -> Vec<&dyn AnyProtocol>;

    /// What it gives and needs ([`Protocol::CAPABILITIES`]).
    fn capabilities(&self) -> Capabilities;

    /// Configures the machines of a group; takes the settings that it knows ([`Protocol::configure`]).
    fn configure(
        &self,
        group: &Group,
        settings: &mut Settings,
    ) -> Result<Arc<dyn ConfiguredProtocol>, SettingsError>;

    /// The settings that it knows, with their values where nothing is set, in a group of so many nodes.
    fn defaults(&self, nodes: usize) -> BTreeMap<String, String> {
        let mut settings = Settings::default();
        let members = (1..=nodes as u64).filter_map(NodeId::new).collect();
        // Whatever it says to its defaults, it has looked its settings up.
        let _ = self.configure(&Group::of(members), &mut settings);
        settings.effective().clone()
    }
}

/// A protocol with the configurations of a group's machines.
pub trait ConfiguredProtocol: Send + Sync {
    /// The group that executes an encoded command; `None` if no one group can.
    fn group_of(&self, _command: &Bytes) -> Option<GroupId> {
        Some(GroupId::FIRST)
    }

    /// Starts a process: the proxy runs, the replica starts when the driver says so.
    fn start(&self, start: Start) -> Box<dyn AnyProcess>;

    /// What a member starts from whose group begins with this state
    /// ([`Replica::found`]).
    fn found(&self, state: Snapshot) -> Saved<Payload>;
}

struct Erased<P>(PhantomData<fn() -> P>);

/// A protocol without its type.
pub fn protocol<P: Protocol>() -> &'static dyn AnyProtocol {
    &Erased::<P>(PhantomData)
}

impl<P: Protocol> AnyProtocol for Erased<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn groups(&self) -> Vec<&dyn AnyProtocol> {
        vec![self]
    }

    fn capabilities(&self) -> Capabilities {
        P::CAPABILITIES
    }

    fn configure(
        &self,
        group: &Group,
        settings: &mut Settings,
    ) -> Result<Arc<dyn ConfiguredProtocol>, SettingsError> {
        Ok(Arc::new(Configured::<P> { configs: P::configure(group, settings)? }))
    }
}

struct Configured<P: Protocol> {
    configs: Configs<P>,
}

impl<P: Protocol> ConfiguredProtocol for Configured<P> {
    fn start(&self, start: Start) -> Box<dyn AnyProcess> {
        Box::new(ProcessRunner::<P>::start(self.configs.clone(), start))
    }

    fn found(&self, state: Snapshot) -> Saved<Payload> {
        let Saved { restarted, snapshot, records } = P::Replica::found(&self.configs.0, state);
        Saved { restarted, snapshot, records: records.iter().map(Payload::of).collect() }
    }
}
