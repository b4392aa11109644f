//! Clusters that do not begin with nothing but with another's data: that of a backup, or what a survivor of a lost
//! majority has. Each member's directory is made by itself, while no node runs; from equal data, members and id the
//! members are one cluster.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quorate_blocks::admission::{DiskId, Memory, Stage};
use quorate_blocks::state::Replicated;
use quorate_core::{Group, NodeId, NodeSet, ProxyId, Random, Salvaged, Saved, Settings, Wire};
use quorate_runtime::{AnyProtocol, OwnMessages, Start};

use crate::clock::{Clock, ClockSource};
use crate::config::{Durability, check_cluster, cluster_id};
use crate::error::{ConfigError, NodeError};
use crate::storage::{self, Options, Owner, SEGMENT_BYTES};

/// Bytes that wait for the disk: none do.
const QUEUE: usize = 1 << 20;
/// Members of a group of which nothing is known but one: as many as any protocol without changing groups has.
const MEMBERS: usize = 7;

/// A member of the new cluster.
pub struct Founding {
    /// Its data directory; made if it is not there, and refused if anything is in it but what an interrupted
    /// [`found`](Self::found) has left.
    pub directory: PathBuf,
    /// Which member.
    pub node: NodeId,
    /// All members with the addresses by which they are started.
    pub members: BTreeMap<NodeId, String>,
    /// The protocol.
    pub protocol: &'static dyn AnyProtocol,
    /// With which the node is to run.
    pub durability: Durability,
}

impl Founding {
    /// Refuses a group that cannot be, before anything is read or written.
    pub fn check(&self) -> Result<(), ConfigError> {
        let (found, name) = (self.members.len(), self.protocol.name());
        check_cluster(&self.members)?;
        if !self.members.contains_key(&self.node) {
            let members: Vec<_> = self.members.keys().map(NodeId::to_string).collect();
            return Err(ConfigError::NotAMember { node: self.node.get(), members: members.join(", ") });
        }
        let can = self.protocol.capabilities();
        if !(can.min_nodes..=can.max_nodes).contains(&found) {
            let (min, max) = (can.min_nodes, can.max_nodes);
            return Err(ConfigError::GroupSize { protocol: name, min, max, found });
        }
        self.durability.keeps_data_in_memory(name, &can).map(|_| ())
    }

    /// The id that the nodes make of their `--initial-cluster`.
    pub fn initial_id(&self) -> u64 {
        cluster_id(&self.members)
    }

    /// Makes the directory. `cluster` is the new cluster's id, the same at all members.
    ///
    /// # Errors
    ///
    /// If [`check`](Self::check) refuses it, or the directory is not empty or cannot be written: then no data are left
    /// in it.
    pub fn found(&self, state: Replicated, cluster: u64) -> Result<(), NodeError> {
        self.check()?;
        let level = state.level();
        if !level.is_known() {
            return Err(NodeError::Level { level });
        }
        let addresses = self.members.clone();
        let (protocol, can) = (self.protocol.name(), self.protocol.capabilities());
        let diskless = self.durability.keeps_data_in_memory(protocol, &can)?;
        let group = Group { addresses, diskless, ..Group::of(self.members.keys().copied().collect()) };
        let configured = self.protocol.configure(&group, &mut Settings::default());
        let configured = configured.map_err(ConfigError::from)?;
        let saved = configured.found(state.found().freeze());
        let options = Options {
            directory: self.directory.clone(),
            cluster,
            founded: Some(self.initial_id()),
            node: self.node,
            protocol,
            durability: self.durability,
            promises: diskless,
            segment_bytes: SEGMENT_BYTES,
            queue_bytes: QUEUE,
        };
        // As the first members of any cluster, they take part once a majority of the others knows the directory.
        let memo = |disk| Memory::new(DiskId(disk), Stage::New).to_bytes();
        Ok(storage::found(&options, (level, saved), memo)?)
    }
}

/// What is in a stopped node's directory.
#[derive(Debug)]
pub struct Survivor {
    /// Whose it is.
    pub owner: Owner,
    /// The state, and what is known of its end.
    pub salvaged: Salvaged,
    /// The last slot in it, or the number of instances.
    pub position: u64,
    /// How many keys it has.
    pub keys: usize,
    /// Whether the replica had written anything at all.
    pub has_run: bool,
}

/// Reads all that a stopped node's directory gives, as its start would. `find` knows protocols by name.
///
/// # Errors
///
/// If the directory is nobody's, in use, or damaged.
pub fn salvage(
    directory: &Path,
    find: impl FnOnce(&str) -> Option<&'static dyn AnyProtocol>,
) -> Result<Option<Survivor>, NodeError> {
    let Some(owner) = storage::owner(directory)? else { return Ok(None) };
    let Some(protocol) = find(&owner.protocol).filter(|_| owner.has_data) else { return Ok(None) };
    let options = Options {
        directory: directory.to_owned(),
        cluster: owner.initial,
        founded: None,
        node: owner.node,
        protocol: protocol.name(),
        durability: Durability::Fsync,
        promises: false,
        segment_bytes: SEGMENT_BYTES,
        queue_bytes: QUEUE,
    };
    let opened = storage::open(&options, Box::new(|| {}))?;
    let storage::Opened { snapshot, records, restarted, log, .. } = opened;
    let has_run = snapshot.is_some() || !records.is_empty();
    // Who was in the group is not known here, and does not matter: nobody is asked.
    let most = protocol.capabilities().max_nodes.min(MEMBERS) as u64;
    let others = (1..=most).filter_map(NodeId::new).filter(|node| *node != owner.node);
    let members: NodeSet = others.take(most as usize - 1).chain([owner.node]).collect();
    let configured = protocol.configure(&Group::of(members), &mut Settings::default());
    let configured = configured.map_err(ConfigError::from)?;
    let (clock, mut random) = (Clock::new(ClockSource::None), Random::new(0));
    let mut process = configured.start(Start {
        proxy: ProxyId::of(owner.node),
        node: Some(owner.node),
        at: clock.instant(),
        random: random.fork(),
        observed: false,
        own: OwnMessages::Settled,
    });
    storage::load(|| process.load(Saved { restarted, snapshot, records }))??;
    storage::load(|| process.start_replica(clock.instant(), random))?;
    let salvaged = process.into_one_group().and_then(|group| group.salvage());
    let salvaged = salvaged.expect("the replica of one group was started");
    let state = Replicated::load(&salvaged.state).expect("an image that was made loads");
    drop(log);
    Ok(Some(Survivor { owner, position: state.applied(), keys: state.keys(), salvaged, has_run }))
}
