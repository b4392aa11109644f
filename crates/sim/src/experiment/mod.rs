//! Measurement runs: real protocol machines in virtual time, without chance faults, under a stated load.
//!
//! A campaign looks for what goes wrong; an experiment asks how long things take. Hosts, disks, clocks and the queue
//! are the campaign's own. What differs is what is around them: delays of stated distributions or of a topology,
//! processors and network interfaces that take stated times, clients that ask at stated instants whatever was answered
//! (an open loop) or again when they are answered (a closed one), and a script of what happens to the cluster.
//! Everything that happened is handed back, operation by operation.
//!
//! | file | what |
//! |---|---|
//! | [`delay`] | how long a message is on its way |
//! | [`wires`] | the links: delays, rates, shared interfaces, cuts |
//! | [`load`] | who asks what, and what happens to the cluster |
//! | [`measured`] | what came of it |
//! | `driver` | turns of the loops |
//! | `asking` | clients, operators and their answers |

mod asking;
pub mod delay;
mod driver;
pub mod load;
pub mod measured;
#[cfg(test)]
mod tests;
pub mod wires;

use std::collections::BTreeMap;

pub use delay::Delay;
pub use load::{Act, Ask, Clients, Load};
pub use measured::{Managed, Measured, Operation};
use quorate_check::Nanos;
use quorate_core::{Group, Link, NodeId, NodeSet, Settings, SettingsError, Topology};
use quorate_runtime::AnyProtocol;
pub use wires::{Capacity, Turns};

/// The world of an experiment.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// How many groups they are, of as many nodes each, the first ones first. Their machines have nothing in common.
    pub groups: usize,
    /// The machine of each node, counted from 0: nodes of one machine share its links and its interface. Empty: each
    /// has its own.
    pub machines: Vec<usize>,
    /// How many processes that run a proxy alone, for the clients; with none of them clients are connected to nodes.
    pub proxies: usize,
    /// The protocol's, as `--set` takes them.
    pub settings: Vec<String>,
    /// Between nodes, one way.
    pub between_nodes: Delay,
    /// Instead of that: nodes are at the sites in order, and so are proxies alone.
    pub topology: Option<Topology>,
    /// Instead of both, from one node to another.
    pub links: BTreeMap<(NodeId, NodeId), Link>,
    /// Between a client's proxy and a node, one way; with a topology, a node of the same site. Without proxies,
    /// between a client and the node it is connected to.
    pub to_clients: Delay,
    /// To make records durable, whatever their number.
    pub sync: Nanos,
    /// What a node's processor and network interface can do.
    pub capacity: Capacity,
    /// Each node's interval of true time is twice this wide; `None`: nodes have no such clock.
    pub clock_error: Option<Nanos>,
    /// When it ends.
    pub end: Nanos,
    /// Of delays, clocks and the machines' own draws.
    pub seed: u64,
}

impl Setup {
    /// So many nodes, with clients connected to them, until this end: links, disks and processors take no time, and no
    /// node has a clock of bounded error.
    pub fn instant(nodes: usize, settings: &[impl ToString], end: Nanos) -> Setup {
        Setup {
            nodes,
            groups: 1,
            machines: Vec::new(),
            proxies: 0,
            settings: settings.iter().map(ToString::to_string).collect(),
            between_nodes: Delay::Fixed(0),
            topology: None,
            links: BTreeMap::new(),
            to_clients: Delay::Fixed(0),
            sync: 0,
            capacity: Capacity::UNLIMITED,
            clock_error: None,
            end,
            seed: 1,
        }
    }
}

/// Runs an experiment.
pub fn measure(protocol: &dyn AnyProtocol, setup: &Setup, load: Load<'_>) -> Result<Measured, SettingsError> {
    let size = (setup.nodes / setup.groups) as u64;
    let configure = |group: u64| {
        let members: NodeSet = (group * size + 1..=(group + 1) * size).filter_map(NodeId::new).collect();
        let mut settings = Settings::parse(&setup.settings)?;
        let configured = protocol.configure(&Group::of(members), &mut settings)?;
        settings.finish()?;
        Ok(configured)
    };
    let configured = (0..setup.groups as u64).map(configure).collect::<Result<Vec<_>, _>>()?;
    if let Some(topology) = &setup.topology {
        let fits = topology.fits(setup.nodes.max(setup.proxies));
        fits.map_err(|error| SettingsError::Conflict(error.to_string()))?;
    }
    Ok(driver::Driver::new(setup, &configured, load).run())
}
