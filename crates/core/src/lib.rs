//! The contract between protocols and drivers. No IO, no clock, no entropy.
//!
//! | module | what |
//! |---|---|
//! | [`machine`] | `Machine`, `Replica`, `Proxy`, `Protocol`: what a protocol implements |
//! | [`context`] | what a machine may ask for, and where a driver finds it |
//! | [`request`] | commands and outcomes between clients and proxies |
//! | [`members`], [`roster`] | who is in a group, and who serves reads |
//! | [`id`] | replicas, proxies, sets of them |
//! | [`time`] | monotonic time, wall time, intervals of true time |
//! | [`wire`], [`payload`] | encoding for the network and the log |
//! | [`sample`] | what they count, for people |
//! | [`settings`] | `--set key=value` |
//! | [`fact`] | what machines state for checkers |
//! | [`level`] | what all members must know before any of it may be used |
//! | [`mark`] | what they state for a log of slow requests |
//! | [`mutation`] | rules weakened on purpose, in tests only |
//! | [`topology`] | sites, and the delays between them |
//! | [`timers`], [`random`] | what every driver needs |

pub mod context;
pub mod fact;
pub mod id;
pub mod level;
pub mod link;
pub mod machine;
pub mod mark;
pub mod members;
pub mod mutation;
pub mod payload;
pub mod random;
pub mod request;
pub mod roster;
pub mod sample;
pub mod settings;
pub mod time;
pub mod timers;
pub mod topology;
pub mod wire;

pub use context::{Answered, Context, Instant, Outbox, Outgoing, Recipients};
pub use fact::{Fact, Until};
pub use id::{GroupId, NodeId, NodeSet, ProcessId, ProxyId, RequestId};
pub use level::FeatureLevel;
pub use link::{ClassScheduler, Interface, Line, Link, Rate};
pub use machine::{
    Arrival, Capabilities, Class, Configs, Consistency, Diskless, GROUP_MEMORY, Group, Image, MEMORY,
    Machine, Marginal, Message, Never, PeerStatus, Piece, Protocol, Proxy, REJOINING, Release, Replica,
    Salvaged, Saved, Shortage, Snapshot, Status, WALL_CLOCK, Wakeup,
};
pub use mark::Mark;
pub use members::{Manage, Managed, Member, Members};
pub use payload::Payload;
pub use random::Random;
pub use request::{Access, Failure, GroupRequest, Outcome, Request, Staleness};
pub use roster::{Range, Roster, RosterError};
pub use sample::{Amount, Count, DurationHistogram, DurationStat, Kind, Sample};
pub use settings::{Setting, Settings, SettingsError};
pub use time::{Interval, Time, Wall};
pub use timers::Timers;
pub use topology::{Topology, TopologyError};
pub use wire::{Decoder, Encoder, MAX_MESSAGE, Wire, WireError};

/// A 64-bit digest for comparing values and settings: fast and stable across versions and machines, no protection
/// against forgery.
pub fn digest(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A 128-bit digest, for telling so many things apart that 64 bits would not do.
pub fn wide_digest(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

/// A 128-bit digest of what is written to it with `write!`: text that is never held in memory.
#[derive(Clone, Default)]
pub struct TextDigest(xxhash_rust::xxh3::Xxh3);

impl TextDigest {
    /// Of everything so far.
    pub fn get(&self) -> u128 {
        self.0.digest128()
    }
}

impl std::fmt::Write for TextDigest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
