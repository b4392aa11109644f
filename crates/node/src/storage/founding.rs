//! Directories of a cluster that does not begin with nothing but with another's data: a restored backup, or what a
//! survivor has. They are made while no node runs, one for each member.
//!
//! While one is made, the file `founding` is in it: durable before anything else is, and removed when the identity is
//! durable. A crash leaves one of three:
//!
//! - neither file: the directory is empty;
//! - `founding` alone: any part of the data may be there. No node opens it, which would begin without them; [`found`]
//!   takes away what is left and begins again;
//! - `identity`, with `founding` or without: everything is there.

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

/// Its name in the data directory; there is nothing in it.
const MARK: &str = "founding";

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
/// If anything is in the directory but what an interrupted call has left: then it stays as it is. If it cannot be
/// written: then nothing is left there.
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
    let identity = Identity { level, ..options.identity(draw(path)?) };
    Ok(make(&dir, &identity, FIRST_SEGMENT, saved, &memo(identity.disk))?)
}

fn refuse_owned(dir: &Dir, path: &Path) -> Result<(), StorageError> {
    match Identity::read(dir) {
        Ok(None) | Err(StorageError::Unfinished { .. }) => Ok(()),
        Ok(Some(Identity { cluster, node, protocol, .. })) => {
            Err(StorageError::Owned { path: path.to_owned(), cluster, node, protocol })
        }
        Err(error) => Err(error),
    }
}

/// Fills a directory that is nobody's, so that it counts as a whole or not at all; see the file comment.
pub(super) fn make(
    dir: &Dir,
    identity: &Identity,
    segment: u64,
    saved: Saved<Payload>,
    memo: &[u8],
) -> Result<(), Failure> {
    let made = begin(dir).and_then(|()| clear(dir)).and_then(|()| fill(dir, identity, segment, saved, memo));
    if made.is_ok() || clear(dir).is_ok() {
        // Otherwise, or if it stays, it does no harm: the next opening removes it, or says that this was interrupted.
        let _ = end(dir);
    }
    made
}

fn begin(dir: &Dir) -> Result<(), Failure> {
    dir.create(MARK)?;
    dir.sync_names()
}

/// Whether a directory with these files, and no identity, was being made.
pub(super) fn has_begun(names: &[String]) -> bool {
    names.iter().any(|name| name == MARK)
}

/// Of a directory that is complete or empty.
pub(super) fn end(dir: &Dir) -> Result<(), Failure> {
    if has_begun(&dir.list()?) { dir.remove(MARK) } else { Ok(()) }
}

/// The identity comes last: a directory without one is nobody's.
fn fill(
    dir: &Dir,
    identity: &Identity,
    segment: u64,
    saved: Saved<Payload>,
    memo: &[u8],
) -> Result<(), Failure> {
    let (digest, background) = (identity.digest(), Background::hurried());
    segment::prepare(dir, digest, 1, segment, &background)?;
    let start = Start { segment: 1, sequence: 1 };
    let (written, pool) = (AtomicU64::new(0), Pool::find(dir)?);
    let Saved { snapshot, records, .. } = saved;
    snapshot::create(dir, start.sequence, 0)?;
    snapshot::write(dir, digest, start, (snapshot, records), &background, &written)?;
    snapshot::publish(dir, start, &pool)?;
    Memo::new(dir.clone(), memo::ADMISSION).write(memo)?;
    identity.publish(dir)
}

/// Takes back what [`fill`] has written, durably.
fn clear(dir: &Dir) -> Result<(), Failure> {
    let names = dir.list()?;
    if names.iter().any(|name| name == identity::NAME) {
        // With it the directory would count as complete, without what goes next.
        dir.remove(identity::NAME)?;
        dir.sync_names()?;
    }
    for name in names {
        if segment::index_of(&name).is_some()
            || snapshot::sequence_of(&name).is_some()
            || memo::is_memo(&name)
        {
            dir.remove(&name)?;
        }
    }
    identity::remove_unfinished(dir)?;
    dir.sync_names()
}
