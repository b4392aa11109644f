//! The disk of one replica: a log of opaque records and the last checkpoint, in a directory of its own.
//!
//! | file | what |
//! |---|---|
//! | [`log`] | the log as its owner sees it; group commit by one thread |
//! | `writer` | one group of records: one write, one sync; segments one after the other |
//! | `segment` | how records lie in files |
//! | `pool` | segments that are used again |
//! | `recovery` | what is left after a crash: the argument why a torn tail is cut and a loss is refused |
//! | `witness` | evidence of what was durable, beside the log |
//! | `snapshot` | checkpoints: written piece by piece, read piece by piece |
//! | `identity` | whose directory it is, and that one process has it |
//! | `memo` | a small file that is replaced as a whole |
//! | `founding` | directories of a cluster that begins with another's data |
//! | [`error`] | why it is refused, or why it stopped |
//! | `blocks` | whole blocks, which need no copy in the system's cache |
//! | `files`, `background` | what is asked of the file system; how work gives way to the log |

mod background;
mod blocks;
pub mod error;
mod files;
mod founding;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod identity;
pub mod log;
mod memo;
mod pool;
mod recovery;
mod segment;
mod snapshot;
#[cfg(test)]
mod tests;
mod witness;
mod writer;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use quorate_core::{FeatureLevel, NodeId, Snapshot};
use tracing::{info, warn};

use crate::config::Durability;
use crate::resources;
use background::Background;
use blocks::BLOCK;
use files::{Dir, Disk};
use identity::{Identity, Lock, Logged};
use log::Kept;
use pool::Pool;
use recovery::Start;
use witness::Witness;
use writer::{Mode, Writer};

pub use error::{Failure, StorageError};
pub use founding::{Owner, found, owner};
pub use identity::DirectoryMark;
pub use log::{Log, LogStatus, Waker};
pub use memo::{Memo, MemoWriter};
pub use snapshot::load;

/// Bytes of a segment unless told otherwise.
pub const SEGMENT_BYTES: u64 = 32 << 20;

/// A segment is not larger than this part of the file system: a disk without room for the next one counts as nearly
/// full, however little is on it. As much is kept free by default, so that there is room for it.
const PART_OF_DISK: u64 = resources::RESERVED_PART;

/// A segment is not smaller than this, whatever is asked for.
const SMALLEST_SEGMENT: u64 = 16 << 10;

/// So many segments are made ahead: one may be needed soon after another, as a checkpoint begins a new one.
const SPARES: usize = 2;

/// The first segment is not larger than this: a new node waits for it.
const FIRST_SEGMENT: u64 = 4 << 20;

/// Whose log, where, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data directory; made if it is not there.
    pub directory: PathBuf,
    /// What tells clusters apart.
    pub cluster: u64,
    /// Where the cluster began with another's data, and the directory is to remember its id: the id by which its nodes
    /// are started otherwise.
    pub founded: Option<u64>,
    /// The replica.
    pub node: NodeId,
    /// The protocol that understands the records.
    pub protocol: &'static str,
    /// When a record counts as durable.
    pub durability: Durability,
    /// Whether what the replica persists is its promises, without `durability`: a log is kept and synced all the same.
    pub promises: bool,
    /// Bytes of a segment; see [`SEGMENT_BYTES`].
    pub segment_bytes: u64,
    /// Bytes that may wait for the disk before [`Log::is_full`].
    pub queue_bytes: usize,
}

impl Options {
    /// Of a directory that these make, with this random number.
    fn identity(&self, disk: u128) -> Identity {
        Identity {
            cluster: self.cluster,
            founded: self.founded,
            node: self.node,
            protocol: self.protocol.to_owned(),
            log: match self.durability {
                Durability::Fsync | Durability::Os => Logged::All,
                Durability::None if self.promises => Logged::Promises,
                Durability::None => Logged::Nothing,
            },
            disk,
            level: FeatureLevel::FIRST,
        }
    }
}

/// A log that is open, and what was in it.
#[derive(Debug)]
pub struct Opened {
    /// The cluster's id; another than the options' where that began with another's data ([`found`]).
    pub cluster: u64,
    /// Whether the replica ran before, whether or not it had written anything.
    pub restarted: bool,
    /// The last checkpoint's image; its pieces stay on disk until they are asked for.
    pub snapshot: Option<Snapshot>,
    /// The records kept with the checkpoint, then those written since, oldest first.
    pub records: Vec<Bytes>,
    /// To go on with.
    pub log: Log,
    /// The directory's identity: 128 random bits, drawn when it was made.
    pub disk: u128,
    /// What is remembered of data directories.
    pub admission: Memo,
    /// What is remembered of leases.
    pub leases: Memo,
    /// What to mark the directory with when the group's feature level rises.
    pub mark: DirectoryMark,
}

/// Opens a replica's log, after a crash too: everything durable is in it, and nothing is cut but a torn tail.
pub fn open(options: &Options, waker: Waker) -> Result<Opened, StorageError> {
    let path = &options.directory;
    make_directory(path, &sync_directory)?;
    let disk = Disk::new(path).map_err(|error| Failure::new("open", path, error))?;
    let dir = Dir::new(path, Arc::new(disk));
    if !Lock::is_there(path) {
        // No Quorate had it before. What is something else's stays as it is, without a lock file of ours.
        Identity::read(&dir)?;
    }
    let lock = Lock::take(path)?;
    let fresh = draw(path)?;
    let Found { identity, restarted, snapshot, records, kept } = find(&dir, options, fresh, true)?;
    let log = Log::start(kept, Some(lock), options.queue_bytes, waker)?;
    let Identity { cluster, disk, .. } = identity;
    let [admission, leases] = [memo::ADMISSION, memo::LEASES].map(|name| Memo::new(dir.clone(), name));
    let mark = DirectoryMark::new(dir, identity)?;
    Ok(Opened { cluster, restarted, snapshot, records, log, disk, admission, leases, mark })
}

/// A random number, the identity of a new directory.
fn draw(path: &Path) -> Result<u128, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| Failure::new("draw the identity of", path, io::Error::other(error)))?;
    Ok(u128::from_le_bytes(random))
}

/// Makes a directory and makes its name durable; those above it, too, if they are new. The name of one that is there is
/// made durable all the same: whoever made it, this node before a crash perhaps, may not have done so, and with its
/// name a loss of power would take everything in it.
fn make_directory(path: &Path, sync: &dyn Fn(&Path) -> io::Result<()>) -> Result<(), Failure> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !path.is_dir() {
        if !parent.is_dir() {
            make_directory(parent, sync)?;
        }
        match std::fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
            made => made.map_err(|error| Failure::new(MAKE, path, error))?,
        }
    }
    match sync(parent) {
        // Who may not read the parent did not make the directory there.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(|error| Failure::new("sync", parent, error)),
    }
}

/// What is done with a directory that is not there; see [`Failure::doing`].
const MAKE: &str = "make directory";

fn sync_directory(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}

/// What opening found, before threads are started.
struct Found {
    identity: Identity,
    restarted: bool,
    snapshot: Option<Snapshot>,
    records: Vec<Bytes>,
    kept: Option<Kept>,
}

/// Opens a directory that this process has locked; `fresh` is its identity if it is new.
fn find(dir: &Dir, options: &Options, fresh: u128, background: bool) -> Result<Found, StorageError> {
    let expected = options.identity(fresh);
    let segment_bytes = options.segment_bytes.min(dir.room()?.size / PART_OF_DISK);
    let mode = Mode {
        sync: options.durability == Durability::Fsync || expected.log == Logged::Promises,
        segment_bytes: segment_bytes.max(SMALLEST_SEGMENT).next_multiple_of(BLOCK as u64),
        spares: if background { SPARES } else { 1 },
        background,
    };
    let found = Identity::read(dir)?;
    identity::remove_unfinished(dir)?;
    founding::end(dir)?;
    let restarted = found.is_some();
    let identity = match found {
        Some(found) => {
            found.check(dir, &expected)?;
            found.check_level(dir)?;
            found
        }
        None => {
            create(dir, &expected, mode)?;
            expected
        }
    };
    if identity.log == Logged::Nothing {
        return Ok(Found { identity, restarted, snapshot: None, records: Vec::new(), kept: None });
    }
    let digest = identity.digest();
    let newest = dir.list()?.iter().filter_map(|name| snapshot::sequence_of(name)).max();
    let checkpoint = newest.map(|sequence| snapshot::read(dir, digest, sequence)).transpose()?;
    let start = checkpoint.as_ref().map_or(Start { segment: 1, sequence: 1 }, |checkpoint| checkpoint.start);
    let mut recovered = recovery::recover(dir, digest, start, Witness::read(dir, digest)?)?;
    if recovered.cut > 0 {
        warn!(
            bytes = recovered.cut,
            segment = %recovered.segment.file.path().display(),
            offset = recovered.offset,
            "cut what an unfinished write left at the end of the log"
        );
    }
    // The checkpoint's name may not have been durable yet when the process died.
    dir.sync_names()?;
    let pool = Arc::new(Pool::find(dir)?);
    snapshot::drop_before(dir, start, &pool)?;
    let logged = std::mem::take(&mut recovered.records);
    let bytes = logged.iter().map(|record| record.len() as u64).sum();
    let mut records = Vec::new();
    let mut image = None;
    if let Some(checkpoint) = checkpoint {
        info!(sequence = checkpoint.start.sequence, bytes = checkpoint.bytes, "read the last checkpoint");
        (records, image) = (checkpoint.records, checkpoint.image);
    }
    records.extend(logged);
    let writer = Writer::new(dir.clone(), digest, mode, recovered, pool.clone())?;
    let kept = Some(Kept { dir: dir.clone(), identity: digest, writer, bytes, pool });
    Ok(Found { identity, restarted, snapshot: image, records, kept })
}

/// Makes a directory's first files; the identity comes last, so that a directory without one holds nothing yet.
fn create(dir: &Dir, identity: &Identity, mode: Mode) -> Result<(), StorageError> {
    if identity.log != Logged::Nothing {
        let capacity = mode.segment_bytes.min(FIRST_SEGMENT);
        segment::prepare(dir, identity.digest(), 1, capacity, &Background::hurried())?;
    }
    identity.publish(dir)?;
    Ok(())
}
