//! Why a data directory is refused, and why a log stopped. Both say what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use quorate_core::{FeatureLevel, NodeId};
use rustix::io::Errno;
use thiserror::Error;

use super::files::{CREATE, LIST, STAY};

/// The system failed to read or write a file. For a log that runs this is final: after a failed write or sync
/// nobody knows what is on the disk, and asking again would only hide it.
#[derive(Clone, Debug, Error)]
#[error("cannot {doing} {}: {source}{}", .path.display(), advice(.doing, .source, .path))]
pub struct Failure {
    /// What was tried, as a verb: `"write"`, `"sync"`, …
    pub doing: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// What the system said.
    pub source: Arc<io::Error>,
}

impl Failure {
    pub(super) fn new(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Failure {
        Failure { doing, path: path.into(), source: Arc::new(source) }
    }

    /// Whether the disk (or a quota) is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether no data directory can be there: the [`advice`] is another.
    fn is_misplaced(&self) -> bool {
        match self.source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                true
            }
            io::ErrorKind::ReadOnlyFilesystem => false,
            _ => self.doing == super::MAKE && !self.is_full(),
        }
    }
}

fn advice(doing: &str, source: &io::Error, path: &std::path::Path) -> String {
    let home = path.parent().filter(|_| doing != STAY && doing != LIST).unwrap_or(path).display();
    match source.kind() {
        // The system says the same of inodes.
        io::ErrorKind::StorageFull if doing == CREATE || doing == super::MAKE => format!(
            "; free space or inodes on the file system of {home} (df, df -i): nothing is lost, and if this has \
             stopped it can be started again then"
        ),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!(
                "; free space on the file system of {home}: nothing is lost, and if this has stopped it can be started \
                 again then"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!("; let this user read and write {home}, or choose another --data-dir")
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("; remount the file system of {home} writable (its kernel log says why it is not)")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is where a directory should be: choose another --data-dir".to_owned()
        }
        _ if doing == super::MAKE => {
            format!("; {home} does not take new directories: choose another --data-dir")
        }
        io::ErrorKind::NotFound => format!(
            "; somebody took it away, or the volume of {home} is not mounted: put back {home} as it was, then start \
             the node again"
        ),
        io::ErrorKind::FileTooLarge => {
            "; this process may not make files as large: raise that limit (ulimit -f), then \
             start the node again: nothing is lost"
                .to_owned()
        }
        io::ErrorKind::WouldBlock => {
            "; this process may not have more threads: raise that limit (ulimit -u, or that of \
             its control group), then start the node again: nothing is lost"
                .to_owned()
        }
        _ if Errno::from_io_error(source) == Some(Errno::MFILE) => {
            "; raise the limit on open files (ulimit -n), then start the node again: nothing is lost"
                .to_owned()
        }
        _ if Errno::from_io_error(source) == Some(Errno::NFILE) => {
            "; raise the system's limit on open files (sysctl fs.file-max), then start the node again: nothing is \
             lost"
                .to_owned()
        }
        _ => {
            "; look for disk errors in the kernel log; if the disk is sound, start the node again".to_owned()
        }
    }
}

/// What to do when the directory has lost what the node relied on. A replica that forgot its votes could help to choose
/// another value where one is chosen.
const REJOIN: &str = ", so this node must not take part with what is left: it would not know how it has voted. Put \
    back an intact copy of this very file, made after the node last ran, if there is one. Otherwise leave the node \
    stopped (the others serve without it while they are a majority), and replace it as docs/OPERATIONS.md says under \
    Replacing a disk";

/// Why a data directory was not opened.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum StorageError {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error(
        "{} is in use by another process{holder}: stop that one, or choose another --data-dir",
        .path.display()
    )]
    Locked { path: PathBuf, holder: String },
    #[error(
        "{} holds {found}, which Quorate did not put there, and no identity file: choose an empty or a new \
         --data-dir, or restore the file `identity` if this was a data directory",
        .path.display()
    )]
    Foreign { path: PathBuf, found: String },
    #[error(
        "{} is the data directory of node {node} of cluster {cluster:016x} ({protocol}): choose an empty or a new \
         directory; nothing was written",
        .path.display()
    )]
    Owned { path: PathBuf, cluster: u64, node: NodeId, protocol: String },
    #[error(
        "{} was being filled by `quorate restore` or `quorate recover`, which was interrupted: the data are not \
         complete, and a node started here would serve without them. Run that command again (it replaces what is \
         left here), or empty the directory to begin without those data",
        .path.display()
    )]
    Unfinished { path: PathBuf },
    #[error(
        "{} belongs to {what} {found}, but this node is started with {what} {expected}: {}",
        .path.display(), .advice
    )]
    Mismatch { path: PathBuf, what: &'static str, found: String, expected: String, advice: &'static str },
    #[error(
        "{} has format {found}; this version of Quorate reads format {supported}: start the version that wrote it, \
         or a newer one",
        .path.display()
    )]
    Format { path: PathBuf, found: String, supported: u32 },
    #[error(
        "{} belongs to a group at feature level {found}; this version of Quorate knows levels up to {}: start the \
         version that the other members run. A level that was raised does not fall again",
        .path.display(), FeatureLevel::NEWEST
    )]
    Level { path: PathBuf, found: FeatureLevel },
    #[error(
        "{} is damaged at offset {offset}: {what}. Acknowledged records are lost here{}; the file is left as it is",
        .path.display(), REJOIN
    )]
    Corrupt { path: PathBuf, offset: u64, what: String },
    #[error(
        "{} is missing, although {evidence}: acknowledged records are lost here{}",
        .path.display(), REJOIN
    )]
    Missing { path: PathBuf, evidence: String },
}

impl StorageError {
    /// Whether the command line names a directory that is not for this node. With the right one it starts, while one
    /// that is damaged or of another version is the right one perhaps.
    pub fn is_misplaced(&self) -> bool {
        match self {
            StorageError::Failed(failure) => failure.is_misplaced(),
            StorageError::Locked { .. }
            | StorageError::Foreign { .. }
            | StorageError::Owned { .. }
            | StorageError::Mismatch { .. } => true,
            StorageError::Unfinished { .. }
            | StorageError::Format { .. }
            | StorageError::Level { .. }
            | StorageError::Corrupt { .. }
            | StorageError::Missing { .. } => false,
        }
    }

    pub(super) fn corrupt(path: impl Into<PathBuf>, offset: u64, what: impl Into<String>) -> StorageError {
        StorageError::Corrupt { path: path.into(), offset, what: what.into() }
    }
}
