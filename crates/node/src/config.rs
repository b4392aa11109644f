//! What a node is told at its start, checked before anything else happens.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use quorate_blocks::admission::Stage;
use quorate_blocks::reach::{Reach, Timeouts};
use quorate_core::{Capabilities, Diskless, Group, NodeId, Settings, Topology, digest};
use quorate_runtime::{AnyProtocol, ConfiguredProtocol};
use quorate_tls::{Credentials, Process, TlsOptions};

use crate::clock::ClockSource;
use crate::error::ConfigError;
use crate::limits::Limits;
use crate::spans::SpanQueue;
use crate::storage;
use crate::transport::delay::{Changed, Delays, take_common};

/// When a record counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the disk has it: survives loss of power.
    #[default]
    Fsync,
    /// When the operating system has it: survives a crash of the process.
    Os,
    /// At once: data are not written. Only for protocols that do not rely on a disk, or on it for their promises alone,
    /// which are synced.
    None,
}

impl Durability {
    /// Whether a protocol keeps its data in memory alone with it, and its promises on the disk. Refused where it relies
    /// on all that it has written.
    pub(crate) fn keeps_data_in_memory(
        self,
        protocol: &'static str,
        can: &Capabilities,
    ) -> Result<bool, ConfigError> {
        match (self, can.diskless) {
            (Durability::None, Diskless::No) => Err(ConfigError::NeedsDisk { protocol }),
            (Durability::None, Diskless::Data) => Ok(true),
            (Durability::None, Diskless::All) | (Durability::Fsync | Durability::Os, _) => Ok(false),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Fsync => "fsync",
            Durability::Os => "os",
            Durability::None => "none",
        })
    }
}

impl FromStr for Durability {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "fsync" => Ok(Durability::Fsync),
            "os" => Ok(Durability::Os),
            "none" => Ok(Durability::None),
            other => Err(ConfigError::Durability(other.to_owned())),
        }
    }
}

/// What an operator says of a node, whatever its protocol.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// `--node-id`.
    pub node: NodeId,
    /// `--listen-peer`: `HOST:PORT`.
    pub listen_peer: String,
    /// `--listen-resp`: `HOST:PORT`.
    pub listen_resp: String,
    /// `--initial-cluster`: each member's peer address; see [`parse_cluster`].
    pub initial_cluster: BTreeMap<NodeId, String>,
    /// `--join`: this node is none of those, and is to be added to their group while that runs.
    pub join: bool,
    /// `--replace-disk`: this node's disk is lost; an empty data directory takes its place once all others are there.
    pub replace_disk: bool,
    /// What tells clusters apart; by default made from `initial_cluster`.
    pub cluster_id: Option<u64>,
    /// `--data-dir`.
    pub data_dir: PathBuf,
    /// `--site`: where it is; where there is a topology, by default the site of its number.
    pub site: Option<String>,
    /// `--topology`: delays between sites and rates, which the links to peers are to have.
    pub topology: Option<Topology>,
    /// Where that was read, if SIGHUP is to read its rates again and not to stop the node.
    pub topology_file: Option<TopologyFile>,
    /// `--durability`.
    pub durability: Durability,
    /// `--clock`.
    pub clock: ClockSource,
    /// `--tls-cert` and the like; `None` if this node speaks no TLS.
    pub tls: Option<TlsOptions>,
    /// Bounds.
    pub limits: Limits,
}

/// A file with a topology.
#[derive(Clone, Debug)]
pub struct TopologyFile {
    /// Read again on SIGHUP.
    pub path: PathBuf,
    /// Makes a topology of its text; the error says what is wrong.
    pub parse: fn(&str) -> Result<Topology, String>,
}

impl TopologyFile {
    /// Reads it as it is now.
    pub fn read(&self) -> Result<Topology, String> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string());
        text.and_then(|text| (self.parse)(&text))
            .map_err(|why| format!("--topology {}: {why}", self.path.display()))
    }
}

/// What an operator says of a process that runs a proxy alone.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// `--listen-resp`: `HOST:PORT`.
    pub listen_resp: String,
    /// `--initial-cluster`: each member's peer address; see [`parse_cluster`].
    pub initial_cluster: BTreeMap<NodeId, String>,
    /// As at the nodes.
    pub cluster_id: Option<u64>,
    /// As at a node.
    pub tls: Option<TlsOptions>,
    /// Bounds.
    pub limits: Limits,
}

/// The machines of a group and the settings in force, by [`Reach`].
pub(crate) type Configured = Vec<(Arc<dyn ConfiguredProtocol>, Settings)>;

/// Everything a node needs, or a process that runs a proxy alone; valid by construction.
pub struct NodeConfig {
    pub(crate) protocol: &'static dyn AnyProtocol,
    /// The machines of this group, unless the replica's disk takes the place of a lost one.
    pub(crate) configured: Configured,
    pub(crate) timeouts: Timeouts,
    pub(crate) listen_resp: String,
    pub(crate) members: BTreeMap<NodeId, String>,
    pub(crate) limits: Limits,
    pub(crate) cluster: u64,
    /// What a replica needs, where there is one.
    pub(crate) place: Option<Place>,
    /// A proxy alone has no use for true time.
    pub(crate) clock: ClockSource,
    pub(crate) delays: Delays,
    pub(crate) topology_file: Option<TopologyFile>,
    pub(crate) tls: Option<Credentials>,
    pub(crate) spans: Option<SpanQueue>,
}

/// How a replica comes to its group, and what it keeps; neither joins nor rejoins, if it is of the first day.
#[derive(Clone, Copy, Default)]
struct Entrance {
    joining: bool,
    rejoining: bool,
    /// Its data are in memory alone.
    diskless: bool,
}

/// A replica's place in the world.
pub(crate) struct Place {
    pub(crate) node: NodeId,
    pub(crate) listen_peer: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) durability: Durability,
    /// Whether it keeps promises on its disk, and no data.
    pub(crate) promises: bool,
    pub(crate) site: Option<String>,
    /// The machines where its disk takes the place of a lost one; `None` if the protocol has no such replica.
    pub(crate) rejoining: Option<Configured>,
    /// What the node asks for if its data directory is empty.
    pub(crate) stage: Stage,
    /// The id that `initial_cluster` gives, where the directory is to remember another that the node was told.
    pub(crate) founded: Option<u64>,
}

impl NodeConfig {
    /// Checks the options and configures the protocol. `settings` must hold nothing but the protocol's.
    pub fn new(
        protocol: &'static dyn AnyProtocol,
        options: NodeOptions,
        settings: Settings,
    ) -> Result<Self, ConfigError> {
        let members = &options.initial_cluster;
        let (name, can) = (protocol.name(), protocol.capabilities());
        if options.join && !can.membership {
            return Err(ConfigError::Fixed { protocol: name });
        }
        if options.join && options.replace_disk {
            return Err(ConfigError::JoinsAndReplaces);
        }
        if options.replace_disk && !can.rejoin {
            return Err(ConfigError::NoRejoin { protocol: name, membership: can.membership });
        }
        if options.join && members.contains_key(&options.node) {
            return Err(ConfigError::JoinsItself { node: options.node.get() });
        }
        if !options.join && !members.contains_key(&options.node) {
            let members: Vec<_> = members.keys().map(NodeId::to_string).collect();
            return Err(ConfigError::NotAMember {
                node: options.node.get(),
                members: if members.is_empty() { "no members".to_owned() } else { members.join(", ") },
            });
        }
        check_address(&options.listen_peer)?;
        let diskless = options.durability.keeps_data_in_memory(name, &can)?;
        let (site, map) = place(options.node, options.site.clone(), options.topology.clone())?;
        let NodeOptions { node, listen_peer, listen_resp, initial_cluster, cluster_id, join, .. } = options;
        let NodeOptions { data_dir, durability, clock, tls, limits, replace_disk, topology_file, .. } =
            options;
        let stage = match (join, replace_disk) {
            (true, _) => Stage::Joining,
            (false, true) => Stage::Replacing,
            (false, false) => Stage::New,
        };
        let founded = (!join && cluster_id.is_some()).then(|| self::cluster_id(&initial_cluster));
        let common = ProxyOptions { listen_resp, initial_cluster, cluster_id, tls: None, limits };
        let entrance = Entrance { joining: join, rejoining: true, diskless };
        let rejoining = match can.rejoin {
            true => {
                match Self::common(protocol, common.clone(), entrance, settings.clone()) {
                    Ok(config) => Some(config.configured),
                    Err(error) if replace_disk => return Err(error),
                    // A group that is too small to replace a disk serves all the same.
                    Err(_) => None,
                }
            }
            false => None,
        };
        let mut config = Self::common(protocol, common, Entrance { rejoining: false, ..entrance }, settings)?;
        // A cluster that began with another's data has an id of its own, which is in its members' directories, and its
        // certificates are for that. What is wrong with a directory is said when it is opened.
        let owner = storage::owner(&data_dir).ok().flatten().filter(|owner| owner.initial == config.cluster);
        let cluster = owner.map_or(config.cluster, |owner| owner.cluster);
        let load = |options| Credentials::load(options, Process::Node(node.get()), cluster);
        config.tls = tls.map(load).transpose()?;
        config.clock = clock;
        config.delays.map = map;
        config.topology_file = topology_file;
        config.place = Some(Place {
            node,
            listen_peer,
            data_dir,
            durability,
            promises: diskless,
            site,
            rejoining,
            stage,
            founded,
        });
        Ok(config)
    }

    /// The same for a process that runs a proxy alone.
    pub fn proxy(
        protocol: &'static dyn AnyProtocol,
        options: ProxyOptions,
        settings: Settings,
    ) -> Result<Self, ConfigError> {
        let tls = options.tls.clone();
        let config = Self::common(protocol, options, Entrance::default(), settings)?;
        let load = |options| Credentials::load(options, Process::Proxy, config.cluster);
        let tls = tls.map(load).transpose()?;
        // What it sends is not delayed; it may be told all the same, as its nodes are.
        Ok(Self { delays: Delays::default(), tls, ..config })
    }

    /// What nodes and proxies have in common, without certificates: those of a node depend on its data directory.
    fn common(
        protocol: &'static dyn AnyProtocol,
        options: ProxyOptions,
        entrance: Entrance,
        mut settings: Settings,
    ) -> Result<Self, ConfigError> {
        let ProxyOptions { listen_resp, initial_cluster: members, cluster_id, limits, .. } = options;
        check_cluster(&members)?;
        check_address(&listen_resp)?;
        let Capabilities { min_nodes: min, max_nodes: max, .. } = protocol.capabilities();
        if !(min..=max).contains(&members.len()) {
            return Err(ConfigError::GroupSize { protocol: protocol.name(), min, max, found: members.len() });
        }
        let (ids, addresses) = (members.keys().copied().collect(), members.clone());
        let Entrance { joining, rejoining, diskless } = entrance;
        let group = Group { addresses, joining, rejoining, diskless, ..Group::of(ids) };
        let delays = Delays { common: take_common(&mut settings)?, ..Delays::default() };
        let timeouts = match Timeouts::take(&mut settings)? {
            timeouts if diskless => Timeouts::stated(timeouts)?,
            timeouts => timeouts.unwrap_or(Timeouts::Auto),
        };
        let configured = Reach::configure_each(&settings, |settings| protocol.configure(&group, settings))?;
        let cluster = cluster_id.unwrap_or_else(|| self::cluster_id(&members));
        let (place, clock) = (None, ClockSource::None);
        Ok(NodeConfig {
            protocol,
            configured,
            timeouts,
            listen_resp,
            members,
            limits,
            cluster,
            place,
            clock,
            delays,
            topology_file: None,
            tls: None,
            spans: None,
        })
    }

    /// Puts requests into this queue, to be exported as spans.
    pub fn with_spans(self, spans: SpanQueue) -> Self {
        Self { spans: Some(spans), ..self }
    }

    /// What SIGHUP reads again.
    pub(crate) fn reread(&self) -> Reread {
        let topology = self.topology_file.clone().map(|file| (file, self.delays.changed.clone()));
        Reread { topology, tls: self.tls.clone() }
    }

    /// What others are shown and checked by, if this process speaks TLS.
    pub fn credentials(&self) -> Option<Credentials> {
        self.tls.clone()
    }

    /// What tells this cluster from others.
    pub fn cluster_id(&self) -> u64 {
        self.cluster
    }
}

/// Files that are read again while the process runs.
pub(crate) struct Reread {
    /// The topology's, and where it is put then.
    pub(crate) topology: Option<(TopologyFile, Changed)>,
    /// Certificates and key.
    pub(crate) tls: Option<Credentials>,
}

/// The site of a node, by name, and by number in the topology if there is one.
#[expect(clippy::type_complexity, reason = "taken apart at once")]
fn place(
    node: NodeId,
    site: Option<String>,
    topology: Option<Topology>,
) -> Result<(Option<String>, Option<(Topology, usize)>), ConfigError> {
    let Some(topology) = topology else { return Ok((site, None)) };
    let default = || topology.of(node).map(str::to_owned);
    let no_site = || ConfigError::NoSite { node: node.get(), known: topology.sites().join(", ") };
    let site = site.or_else(default).ok_or_else(no_site)?;
    let number = topology.site(&site)?;
    Ok((Some(site), Some((topology, number))))
}

/// Reads `1=HOST:PORT,2=HOST:PORT,…`.
pub fn parse_cluster(text: &str) -> Result<BTreeMap<NodeId, String>, ConfigError> {
    let mut members = BTreeMap::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (id, address) = word.split_once('=').ok_or_else(|| ConfigError::Member(word.to_owned()))?;
        let (id, address) = (id.trim(), address.trim());
        let node = id.parse().ok().and_then(NodeId::new);
        let node = node.ok_or_else(|| ConfigError::Id { found: id.to_owned() })?;
        if members.insert(node, address.to_owned()).is_some() {
            return Err(ConfigError::DuplicateId(node.get()));
        }
    }
    check_cluster(&members)?;
    Ok(members)
}

/// The default cluster id: a digest of the members and their addresses.
pub fn cluster_id(members: &BTreeMap<NodeId, String>) -> u64 {
    let words: Vec<_> = members.iter().map(|(node, address)| format!("{node}={address}")).collect();
    digest(words.join(",").as_bytes())
}

pub(crate) fn check_cluster(members: &BTreeMap<NodeId, String>) -> Result<(), ConfigError> {
    let mut seen: BTreeMap<&str, NodeId> = BTreeMap::new();
    for (&node, address) in members {
        check_address(address)?;
        if let Some(first) = seen.insert(address, node) {
            return Err(ConfigError::DuplicateAddress {
                first: first.get(),
                second: node.get(),
                address: address.clone(),
            });
        }
    }
    Ok(())
}

/// Whether a text has the shape `HOST:PORT`. Host names are looked up when they are needed.
pub fn check_address(address: &str) -> Result<(), ConfigError> {
    let fits = address.rsplit_once(':').is_some_and(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        !bare.is_empty() && (bare.len() != host.len() || !host.contains(':')) && port.parse::<u16>().is_ok()
    });
    if fits { Ok(()) } else { Err(ConfigError::Address { found: address.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_read_or_refused_with_what_would_be_right() {
        let members = parse_cluster(" 2=db2:7001, 1=127.0.0.1:7001,3=[::1]:7001").unwrap();
        let read: Vec<_> = members.iter().map(|(node, address)| (node.get(), address.as_str())).collect();
        assert_eq!(read, [(1, "127.0.0.1:7001"), (2, "db2:7001"), (3, "[::1]:7001")]);

        for (text, message) in [
            ("1", "`1` in --initial-cluster is not a member"),
            ("0=a:1", "`0` in --initial-cluster is not a node id"),
            ("64=a:1", "`64` in --initial-cluster is not a node id"),
            ("x=a:1", "`x` in --initial-cluster is not a node id"),
            ("1=a:1,1=b:1", "node 1 is in --initial-cluster twice"),
            ("1=a:1,2=a:1", "nodes 1 and 2 have the same address a:1"),
            ("1=a", "`a` is not an address"),
            ("1=:7", "`:7` is not an address"),
            ("1=a:70000", "`a:70000` is not an address"),
            ("1=::1:7", "`::1:7` is not an address"),
        ] {
            let error = parse_cluster(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    #[test]
    fn the_cluster_id_depends_on_members_and_addresses_but_not_on_their_order() {
        let id = |text| cluster_id(&parse_cluster(text).unwrap());
        assert_eq!(id("1=a:1,2=b:1"), id("2=b:1,1=a:1"));
        assert_ne!(id("1=a:1,2=b:1"), id("1=b:1,2=a:1"));
        assert_ne!(id("1=a:1,2=b:1"), id("1=a:1,2=b:1,3=c:1"));
    }

    #[test]
    fn a_durability_is_one_of_three_words() {
        for word in ["fsync", "os", "none"] {
            assert_eq!(word.parse::<Durability>().unwrap().to_string(), word);
        }
        assert!("sync".parse::<Durability>().unwrap_err().to_string().contains("fsync, os or none"));
    }
}
