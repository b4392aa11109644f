//! Directories of a cluster that does not begin with nothing but with another's data: a restored backup, or what a
//! survivor has. They are made while no node runs, one for each member.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use quorate_core::{FeatureLevel, NodeId, Payload, Saved};

use super::background::Background;
use super::error::{Failure, StorageError};
use super::files::{Dir, Disk};
use super::identity::{self, Identity, Lock, Logged};
use super::memo::{self, Memo};
use super::pool::Pool;
use super::recovery::Start;
use super::{FIRST_SEGMENT, Options, draw, make_directory, segment, snapshot, sync_directory};

/// Whose data a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The cluster's id.
    pub cluster: u64,
    /// The id that `--initial-cluster` gives, by which its nodes are started.
    pub initial: u64,
    /// The replica.
    pub node: NodeId,
    /// The protocol that understands the records.
    pub protocol: String,
    /// Whether its data are there; not with `--durability none`.
    pub has_data: bool,
}

/// Whose directory this is; `None` if it is nobody's. Changes nothing.
pub fn owner(directory: &Path) -> Result<Option<Owner>, StorageError> {
    let Identity { cluster, founded, node, protocol, log, .. } = match Identity::read(&open(directory)?)? {
        Some(identity) => identity,
        None => return Ok(None),
    };
    let (initial, has_data) = (founded.unwrap_or(cluster), log == Logged::All);
    Ok(Some(Owner { cluster, initial, node, protocol, has_data }))
}

fn open(directory: &Path) -> Result<Dir, StorageError> {
    let disk = Disk::new(directory).map_err(|error| Failure::new("open", directory, error))?;
    Ok(Dir::new(directory, Arc::new(disk)))
}

/// Makes a data directory whose replica starts from `saved`, at this feature level. `memo` makes what is
/// remembered beside the log from the directory's random number.
///
/// # Errors
///
/// If anything is in the directory, which then stays as it is, or cannot be written: then nothing is left there.
pub fn found(
    options: &Options,
    (level, saved): (FeatureLevel, Saved<Payload>),
    memo: impl FnOnce(u128) -> Bytes,
) -> Result<(), StorageError> {
    let path = &options.directory;
    make_directory(path, &sync_directory)?;
    let dir = open(path)?;
    refuse_owned(&dir, path)?;
    let _lock = Lock::take(path)?;
    refuse_owned(&dir, path)?;
    identity::remove_unfinished(&dir)?;
    let identity = Identity { level, ..options.identity(draw(path)?) };
    let made = fill(&dir, &identity, saved, &memo(identity.disk));
    if made.is_err() {
        clear(&dir);
    }
    Ok(made?)
}

fn refuse_owned(dir: &Dir, path: &Path) -> Result<(), StorageError> {
    match Identity::read(dir)? {
        None => Ok(()),
        Some(Identity { cluster, node, protocol, .. }) => {
            Err(StorageError::Owned { path: path.to_owned(), cluster, node, protocol })
        }
    }
}

/// The identity comes last: a directory without one is nobody's.
fn fill(dir: &Dir, identity: &Identity, saved: Saved<Payload>, memo: &[u8]) -> Result<(), Failure> {
    let (digest, background) = (identity.digest(), Background::hurried());
    segment::prepare(dir, digest, 1, FIRST_SEGMENT, &background)?;
    let start = Start { segment: 1, sequence: 1 };
    let (written, pool) = (AtomicU64::new(0), Pool::find(dir)?);
    let Saved { snapshot, records, .. } = saved;
    snapshot::create(dir, start.sequence, 0)?;
    snapshot::write(dir, digest, start, (snapshot, records), &background, &written)?;
    snapshot::publish(dir, start, &pool)?;
    Memo::new(dir.clone(), memo::ADMISSION).write(memo)?;
    identity.publish(dir)
}

/// Takes back what [`fill`] has written, as far as the disk lets it.
fn clear(dir: &Dir) {
    for name in dir.list().unwrap_or_default() {
        if segment::index_of(&name).is_some()
            || snapshot::sequence_of(&name).is_some()
            || memo::is_memo(&name)
        {
            // What is left is named when the directory is used again.
            let _ = dir.remove(&name);
        }
    }
    let _ = identity::remove_unfinished(dir);
}
