//! Why a node does not start, or why it stopped.

use std::io;
use std::time::Duration;

use quorate_blocks::admission::Reason;
use quorate_core::{FeatureLevel, SettingsError, TopologyError};
use quorate_runtime::RecordError;
use quorate_tls::TlsError;
use thiserror::Error;

use crate::storage::{Failure, StorageError};

/// How a node ended in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was asked to stop; so many requests were still under way when its time was up.
    Drained {
        /// Requests whose clients got no answer.
        unfinished: usize,
    },
    /// It was asked a second time, and stopped where it was.
    Hurried,
    /// It must start again, with the longer timeouts that its data directory remembers: whoever runs it does that.
    StartAgain,
}

/// What is wrong with a configuration, and what would be right.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigError {
    #[error("`{0}` in --initial-cluster is not a member: write ID=HOST:PORT, such as 1=10.0.0.1:7001")]
    Member(String),
    #[error("`{found}` in --initial-cluster is not a node id: ids are whole numbers from 1 to 63")]
    Id { found: String },
    #[error("`{found}` is not an address: write HOST:PORT, such as 127.0.0.1:7001 or db1.example.org:7001")]
    Address { found: String },
    #[error("node {0} is in --initial-cluster twice: give each member one address")]
    DuplicateId(u8),
    #[error(
        "nodes {first} and {second} have the same address {address} in --initial-cluster: each needs its own"
    )]
    DuplicateAddress { first: u8, second: u8, address: String },
    #[error(
        "node {node} is not in --initial-cluster, which has {members}: give it this node's id and peer address, or add \
         --join if it is to be added to their group while that runs"
    )]
    NotAMember { node: u8, members: String },
    #[error(
        "node {node} is in --initial-cluster, so it need not --join: leave that out, or give the --initial-cluster \
         that the others were started with"
    )]
    JoinsItself { node: u8 },
    #[error(
        "{protocol} does not change its group while it runs: --join needs a protocol that does, such as raft"
    )]
    Fixed { protocol: &'static str },
    #[error(
        "{protocol} cannot give a node another disk under its own id: --replace-disk does not help here; {}",
        if *.membership {
            "start another node with --join, and `quorate member add ID=HOST:PORT --remove ID`"
        } else {
            "restore the node's data directory"
        }
    )]
    NoRejoin { protocol: &'static str, membership: bool },
    #[error(
        "--join and --replace-disk exclude each other: a node that joins has no disk that could be replaced"
    )]
    JoinsAndReplaces,
    #[error("{protocol} runs on {min} to {max} nodes, but --initial-cluster has {found}")]
    GroupSize { protocol: &'static str, min: usize, max: usize, found: usize },
    #[error(
        "{protocol} relies on what it has written after a restart, so --durability none would lose acknowledged \
         writes: use fsync, or os if machines never lose power together, or a protocol that keeps its data in memory, \
         such as hermes"
    )]
    NeedsDisk { protocol: &'static str },
    #[error("`{0}` is not a durability: use fsync, os or none")]
    Durability(String),
    #[error(
        "`{0}` is no clock source: use auto, kernel, clock-bound, bound=DURATION or none, such as bound=5ms where the \
         machines' clocks are never further from true time than that"
    )]
    Clock(String),
    #[error("node {node} has no site by its number: say with --site at which of {known} it is")]
    NoSite { node: u8, known: String },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Setting(#[from] SettingsError),
}

/// Why a node did not start, or stopped without being asked to.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum NodeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot resolve {what} address {address}: {source}; give an address of this machine")]
    Resolve { what: &'static str, address: String, source: io::Error },
    #[error("cannot listen for {what} on {address}: {source}{}", hint(source))]
    Listen { what: &'static str, address: String, source: io::Error },
    #[error(
        "record {} of the log cannot be read: {}; it was written by another version, or by another protocol under this \
         name", .0.index, .0.source
    )]
    Record(#[from] RecordError),
    #[error("the log failed: {0}; stopped, because nothing can be promised without it")]
    LogFailed(#[source] Failure),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("node {} must not take part with this data directory: {reason}. {advice}", .reason.node)]
    Refused { reason: Reason, advice: String },
    #[error(
        "the disk under the data directory has not finished a small write within {patience:?}: no node that restarts \
         could be let in here, and as a leader this node would hold up the others. Look at the disk, then start again"
    )]
    DiskHangs { patience: Duration },
    #[error(
        "the data belong to a group at feature level {level}, and this version of Quorate knows levels up to {}: use \
         the version that its members run",
        FeatureLevel::NEWEST
    )]
    Level { level: FeatureLevel },
    #[error("the system refused {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

fn hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            " (another process has it: another node with these flags, perhaps? choose another port or stop that one)"
        }
        io::ErrorKind::AddrNotAvailable => " (it is no address of this machine)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need privileges: choose a higher one)",
        _ => "",
    }
}
