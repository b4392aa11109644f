//! What a campaign is told.

use std::time::Duration;

use quorate_check::Nanos;
use quorate_core::{Capabilities, Diskless, SettingsError, Topology};
use thiserror::Error;

use crate::faults::{Faults, Kind};

/// What to simulate. [`Options::default`] is the size at which ten thousand runs take minutes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Replicas.
    pub nodes: usize,
    /// Processes that run a proxy alone.
    pub proxies: usize,
    /// What the protocol is told (`--set`), as `key=value` words.
    pub settings: Vec<String>,
    /// Sites for the nodes in order, as far apart as they are, with what the command line calls it. Nodes and proxies
    /// beyond the last site begin again at the first.
    pub topology: Option<(String, Topology)>,
    /// Which faults may happen (`--faults`).
    pub faults: Faults,
    /// The first seed.
    pub seed: u64,
    /// How many seeds.
    pub runs: u64,
    /// Clients, all together; up to 1000.
    pub clients: usize,
    /// Clients beside them that do nothing but read, and hardly pause; up to 1000.
    pub readers: usize,
    /// Clients beside them that do nothing but write strings of up to [`values`](Self::values) bytes, and hardly pause;
    /// up to 1000.
    pub writers: usize,
    /// The most bytes of the strings that they write, which mostly have few; 0: all are short.
    pub values: usize,
    /// How long the fault phase is, in virtual time.
    pub duration: Duration,
    /// Ends the fault phase earlier than that, with everything before as it would have been.
    pub until: Option<Duration>,
    /// Leaves these faults of the schedule out; the trace numbers them.
    pub skip: Vec<usize>,
    /// The group begins with another's state, as after a restore, and not with nothing.
    pub founded: bool,
    /// Nodes keep their data in memory alone (`--durability none`).
    pub diskless: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            nodes: 3,
            proxies: 1,
            settings: Vec::new(),
            topology: None,
            faults: Faults::ALL,
            seed: 0,
            runs: 1000,
            clients: 10,
            readers: 0,
            writers: 0,
            values: 0,
            duration: Duration::from_secs(8),
            until: None,
            skip: Vec::new(),
            founded: false,
            diskless: false,
        }
    }
}

/// Why a campaign cannot start.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionsError {
    /// A setting is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The protocol cannot run on so many nodes.
    #[error("{protocol} runs on {min} to {max} nodes, not on {nodes}")]
    Nodes {
        /// The protocol.
        protocol: &'static str,
        /// At least.
        min: usize,
        /// At most.
        max: usize,
        /// Asked for.
        nodes: usize,
    },
    /// Longer strings than one run can carry.
    #[error("values of {0} bytes: choose 0 to {MAX_VALUES}")]
    Values(usize),
    /// More or fewer clients than can be simulated.
    #[error("{0} clients: choose 1 to 1000")]
    Clients(usize),
    /// More readers than can be simulated.
    #[error("{0} readers: choose 0 to 1000")]
    Readers(usize),
    /// More writers than can be simulated.
    #[error("{0} writers: choose 0 to 1000")]
    Writers(usize),
    /// Data in memory alone, of a protocol that relies on what it has written.
    #[error(
        "{0} keeps its data on disks: --diskless is for protocols that run with --durability none, such as hermes"
    )]
    NeedsDisk(&'static str),
    /// A fault that is asked for by name and that the protocol is not made for.
    #[error("{fault} cannot happen to {protocol}: see `quorate protocols {protocol}`, or write all")]
    Impossible {
        /// The protocol.
        protocol: &'static str,
        /// The kind of fault.
        fault: &'static str,
    },
}

/// The longest strings that clients write. Larger ones would fill the memory of a campaign.
const MAX_VALUES: usize = 4 << 20;

/// The largest group that is simulated: host masks are one word, proxies alone included.
pub(crate) const MAX_HOSTS: usize = 48;

impl Options {
    /// Refuses what a protocol cannot do.
    pub(crate) fn check(&self, protocol: &'static str, can: Capabilities) -> Result<(), OptionsError> {
        let (min, max) = (can.min_nodes, can.max_nodes.min(MAX_HOSTS - self.proxies.min(MAX_HOSTS - 1)));
        if !(min..=max).contains(&self.nodes) {
            return Err(OptionsError::Nodes { protocol, min, max, nodes: self.nodes });
        }
        if !(1..=1000).contains(&self.clients) {
            return Err(OptionsError::Clients(self.clients));
        }
        if self.readers > 1000 {
            return Err(OptionsError::Readers(self.readers));
        }
        if self.writers > 1000 {
            return Err(OptionsError::Writers(self.writers));
        }
        if self.values > MAX_VALUES {
            return Err(OptionsError::Values(self.values));
        }
        if self.diskless && can.diskless != Diskless::Data {
            return Err(OptionsError::NeedsDisk(protocol));
        }
        let is_possible = |kind: &Kind| match kind {
            // One after the other would start again and lose its memory.
            Kind::LongerTimeouts | Kind::OtherSettings | Kind::VainReplacements if self.diskless => false,
            Kind::LostMemories if !self.diskless => false,
            kind => kind.possible(&can),
        };
        match self.faults.named().iter().find(|kind| !is_possible(kind)) {
            Some(kind) => Err(OptionsError::Impossible { protocol, fault: kind.name() }),
            None => Ok(()),
        }
    }

    /// When the fault phase ends.
    pub(crate) fn end(&self) -> Nanos {
        self.until.unwrap_or(self.duration).min(self.duration).as_nanos() as Nanos
    }

    /// The flags of `quorate sim` and `quorate replay` that differ from the defaults, settings included.
    pub fn flags(&self) -> String {
        let default = Options::default();
        let mut flags = String::new();
        let mut flag = |differs: bool, name: &str, value: String| {
            if differs {
                flags.push_str(&format!(" --{name} {value}"));
            }
        };
        flag(self.nodes != default.nodes, "nodes", self.nodes.to_string());
        flag(self.proxies != default.proxies, "proxies", self.proxies.to_string());
        if let Some((name, _)) = &self.topology {
            flag(true, "topology", name.clone());
        }
        flag(self.faults != default.faults, "faults", self.faults.to_string());
        flag(self.clients != default.clients, "clients", self.clients.to_string());
        flag(self.readers != default.readers, "readers", self.readers.to_string());
        flag(self.writers != default.writers, "writers", self.writers.to_string());
        flag(self.values != default.values, "values", self.values.to_string());
        flag(self.duration != default.duration, "duration", milliseconds(self.duration));
        if let Some(until) = self.until {
            flag(true, "until", milliseconds(until));
        }
        let skip: Vec<_> = self.skip.iter().map(ToString::to_string).collect();
        flag(!skip.is_empty(), "skip", skip.join(","));
        for setting in &self.settings {
            flag(true, "set", setting.clone());
        }
        if self.founded {
            flags.push_str(" --founded");
        }
        if self.diskless {
            flags.push_str(" --diskless");
        }
        flags
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
