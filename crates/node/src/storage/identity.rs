//! Whose data directory this is. A node that opened another's would answer for promises it never made.
//!
//! ```text
//! data-dir/
//!   lock                             held by the process that has the directory open
//!   identity                         a few lines of text, written last when the directory is made
//!   admission                        starts of this directory, and the directories of the others
//!   leases                           what may bind after a restart
//!   user-changes                     how often users have been changed, at least
//!   wal-…                            segments of the log
//!   snapshot-…                       the last checkpoint
//!   founding                         while `quorate restore` or `quorate recover` fills the directory
//!   *.tmp                            unfinished files of a process that died; removed at the next opening
//! ```

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use quorate_blocks::admission::DiskId;
use quorate_core::{FeatureLevel, NodeId, Wire, digest};

use super::error::{Failure, StorageError};
use super::files::Dir;
use super::memo::{self, Memo};
use super::{founding, segment, snapshot};
use crate::patience;

pub(super) const NAME: &str = "identity";
const LOCK: &str = "lock";
/// Of a directory whose group is above the first feature level.
const FORMAT: u32 = 4;
/// Of one at the first level whose cluster began with another's data.
const FOUNDED: u32 = 3;
/// Of all others. Versions that know no levels, or no founded clusters, read what has none.
const PLAIN: u32 = 2;

/// What a data directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) cluster: u64,
    /// Of a cluster that began with another's data: the id that its `--initial-cluster` gives, by which its nodes are
    /// started. Its own is another, so that no process of an earlier cluster at these addresses is let in.
    pub(super) founded: Option<u64>,
    pub(super) node: NodeId,
    pub(super) protocol: String,
    /// What the log here has.
    pub(super) log: Logged,
    /// Random: tells the directory from others of the same node.
    pub(super) disk: u128,
    /// The highest feature level that anything in the directory may need.
    pub(super) level: FeatureLevel,
}

/// What of a replica's records goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    /// All, with `--durability fsync` or `os`.
    All,
    /// All that the replica persists, which is its promises and not its data, with `--durability none`.
    Promises,
    /// Nothing, with `--durability none`.
    Nothing,
}

impl Logged {
    fn word(self) -> &'static str {
        match self {
            Logged::All => "true",
            Logged::Promises => "promises",
            Logged::Nothing => "false",
        }
    }

    fn parse(word: &str) -> Option<Logged> {
        [Logged::All, Logged::Promises, Logged::Nothing].into_iter().find(|log| log.word() == word)
    }
}

impl Identity {
    /// What the checksums of all files of the directory depend on. The level may rise.
    pub(super) fn digest(&self) -> u64 {
        digest(Identity { level: FeatureLevel::FIRST, ..self.clone() }.lines().as_bytes())
    }

    /// Writes the file: the directory is complete from then on.
    pub(super) fn publish(&self, dir: &Dir) -> Result<(), Failure> {
        let unfinished = format!("{NAME}.tmp");
        let file = dir.create(&unfinished)?;
        file.write_slice(self.text().as_bytes(), 0)?;
        file.sync()?;
        dir.publish(&unfinished, NAME)
    }

    /// Reads the file; `None` if there is none and the directory is new or was never completed. Refused if it was to
    /// hold another cluster's data, and has not all of them.
    pub(super) fn read(dir: &Dir) -> Result<Option<Identity>, StorageError> {
        let names = dir.list()?;
        if !names.iter().any(|name| name == NAME) {
            if founding::has_begun(&names) {
                return Err(StorageError::Unfinished { path: dir.path("") });
            }
            return match names.iter().find(|name| !is_leftover(dir, name)) {
                Some(found) => Err(StorageError::Foreign { path: dir.path(""), found: found.clone() }),
                None => Ok(None),
            };
        }
        let file = dir.open(NAME)?;
        let bytes = file.read_all()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut format = text.lines().filter_map(|line| line.strip_prefix("format = "));
        if let Some(found) = format.next()
            && found.parse().is_ok_and(|found: u32| found > FORMAT)
        {
            let (path, found) = (file.path().to_owned(), found.to_owned());
            return Err(StorageError::Format { path, found, supported: FORMAT });
        }
        let identity = Identity::parse(&text).filter(|identity| identity.text().as_bytes() == bytes);
        identity
            .map(Some)
            .ok_or_else(|| StorageError::corrupt(file.path(), 0, "its checksum or a line of it is wrong"))
    }

    /// Refuses a directory of a group that has raised its feature level beyond what this build knows.
    pub(super) fn check_level(&self, dir: &Dir) -> Result<(), StorageError> {
        match self.level.is_known() {
            true => Ok(()),
            false => Err(StorageError::Level { path: dir.path(NAME), found: self.level }),
        }
    }

    /// Refuses another node's directory.
    pub(super) fn check(&self, dir: &Dir, expected: &Identity) -> Result<(), StorageError> {
        let words = |log: Logged| match log {
            Logged::All => "--durability fsync or os".to_owned(),
            Logged::Promises | Logged::Nothing => "--durability none".to_owned(),
        };
        // A node of a founded cluster is started by the id that its flags give, unless it is told the cluster's own.
        let own = self.founded.filter(|_| expected.founded.is_none()).unwrap_or(self.cluster);
        let rows = [
            (
                "cluster",
                format!("{own:016x}"),
                format!("{:016x}", expected.cluster),
                "give the --data-dir of this cluster (the cluster id comes from --initial-cluster unless it is set)",
            ),
            (
                "node",
                self.node.to_string(),
                expected.node.to_string(),
                "give this node's own --data-dir, or the --node-id that the directory was made with",
            ),
            (
                "protocol",
                self.protocol.clone(),
                expected.protocol.clone(),
                "one protocol cannot read another's log: choose a new --data-dir, or the protocol it was made with",
            ),
            (
                "a log written with",
                words(self.log),
                words(expected.log),
                "choose a new --data-dir, or the durability it was made with",
            ),
        ];
        for (what, found, expected, advice) in rows {
            if found != expected {
                return Err(StorageError::Mismatch { path: dir.path(NAME), what, found, expected, advice });
            }
        }
        Ok(())
    }

    fn lines(&self) -> String {
        let Identity { cluster, founded, node, protocol, log, disk, level } = self;
        let log = log.word();
        let (format, level) = match *level {
            FeatureLevel::FIRST if founded.is_some() => (FOUNDED, String::new()),
            FeatureLevel::FIRST => (PLAIN, String::new()),
            level => (FORMAT, format!("level = {level}\n")),
        };
        let founded = founded.map(|id| format!("founded = {id:016x}\n")).unwrap_or_default();
        format!(
            "quorate data directory\nformat = {format}\ncluster = {cluster:016x}\n{founded}node = {node}\nprotocol = \
             {protocol}\nlog = {log}\ndisk = {disk:032x}\n{level}"
        )
    }

    fn text(&self) -> String {
        let lines = self.lines();
        format!("{lines}crc32c = {:08x}\n", crc32c::crc32c(lines.as_bytes()))
    }

    fn parse(text: &str) -> Option<Identity> {
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
        let founded = field("founded").map(|id| u64::from_str_radix(id, 16)).transpose().ok()?;
        let level = match field("level") {
            Some(number) => FeatureLevel::new(number.parse().ok()?)?,
            None => FeatureLevel::FIRST,
        };
        Some(Identity {
            cluster: u64::from_str_radix(field("cluster")?, 16).ok()?,
            founded,
            node: NodeId::new(field("node")?.parse().ok()?)?,
            protocol: field("protocol")?.to_owned(),
            log: Logged::parse(field("log")?)?,
            disk: u128::from_str_radix(field("disk")?, 16).ok()?,
            level,
        })
    }
}

/// Marks a data directory with the feature level of its group, so that no build opens it that does not know that; and
/// with how often users have been changed, so that nobody is judged by older ones after a restart.
pub struct DirectoryMark {
    dir: Dir,
    identity: Identity,
    /// The directory's random number, and how often users have been changed.
    memo: Memo,
    users: u64,
}

impl fmt::Debug for DirectoryMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryMark").field("level", &self.identity.level).finish_non_exhaustive()
    }
}

impl DirectoryMark {
    pub(super) fn new(dir: Dir, identity: Identity) -> Result<DirectoryMark, StorageError> {
        let memo = Memo::new(dir.clone(), memo::USER_CHANGES);
        let users = match memo.read()? {
            None => 0,
            Some(content) => match <(DiskId, u64)>::from_bytes(content) {
                Ok((disk, users)) if disk == DiskId(identity.disk) => users,
                // Another directory's says nothing here.
                Ok(_) => 0,
                Err(error) => return Err(memo.damaged(error.to_string())),
            },
        };
        Ok(DirectoryMark { dir, identity, memo, users })
    }

    /// How often users had been changed, at least, as the directory is marked.
    pub fn users(&self) -> u64 {
        self.users
    }

    /// Marks it with more changes of users, as [`raise`](DirectoryMark::raise) does with a level.
    pub fn raise_users(&mut self, changes: u64, patience: Duration) -> Result<bool, Failure> {
        if changes <= self.users {
            return Ok(true);
        }
        let (memo, content) = (self.memo.clone(), (DiskId(self.identity.disk), changes).to_bytes());
        let raised = self.within(patience, move || memo.write(&content))?;
        self.users = if raised { changes } else { self.users };
        Ok(raised)
    }

    /// The level that the directory is marked with.
    pub fn level(&self) -> FeatureLevel {
        self.identity.level
    }

    /// Marks it with a higher level, durably. Whoever calls it waits for the disk, but no longer than `patience`: false
    /// if the disk needs more.
    pub fn raise(&mut self, level: FeatureLevel, patience: Duration) -> Result<bool, Failure> {
        if level <= self.identity.level {
            return Ok(true);
        }
        let identity = Identity { level, ..self.identity.clone() };
        let (other, dir) = (identity.clone(), self.dir.clone());
        let raised = self.within(patience, move || other.publish(&dir))?;
        if raised {
            self.identity = identity;
        }
        Ok(raised)
    }

    /// Writes in a thread, since a disk may hang. False if it needs more time.
    fn within(
        &self,
        patience: Duration,
        publish: impl FnOnce() -> Result<(), Failure> + Send + 'static,
    ) -> Result<bool, Failure> {
        let (done, outcome) = mpsc::channel();
        let thread = thread::Builder::new().name("level".to_owned());
        let thread = thread.spawn(move || drop(done.send(publish())));
        thread.map_err(|error| Failure::new("start a thread to write", self.dir.path(NAME), error))?;
        match patience::receive(&outcome, patience) {
            Ok(published) => published.map(|()| true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => panic!("a thread ends without a word"),
        }
    }
}

/// Whether a file may be in a directory whose making was interrupted, or that is otherwise as good as empty.
fn is_leftover(dir: &Dir, name: &str) -> bool {
    match name {
        LOCK | "lost+found" => true,
        name if memo::is_memo(name) => true,
        name if name.ends_with(".tmp") => true,
        name if segment::index_of(name) == Some(1) => segment_is_blank(dir, name),
        _ => false,
    }
}

fn segment_is_blank(dir: &Dir, name: &str) -> bool {
    let bytes = dir.open(name).and_then(|file| file.read_all());
    bytes.is_ok_and(|bytes| bytes.iter().skip(segment::HEADER).all(|&byte| byte == 0))
}

/// Removes what a process left behind that died while writing it.
pub(super) fn remove_unfinished(dir: &Dir) -> Result<(), Failure> {
    for name in dir.list()? {
        let stem = name.strip_suffix(".tmp").unwrap_or("");
        let ours = stem == NAME
            || memo::is_memo(stem)
            || segment::index_of(stem).is_some()
            || snapshot::sequence_of(stem).is_some();
        if ours {
            dir.remove(&name)?;
        }
    }
    Ok(())
}

/// The right to use a directory, until it is dropped or the process ends, however it ends.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Whether a process has ever tried to take it.
    pub(super) fn is_there(directory: &Path) -> bool {
        directory.join(LOCK).exists()
    }

    /// Refused while another process has it.
    pub(super) fn take(directory: &Path) -> Result<Lock, StorageError> {
        let path = directory.join(LOCK);
        let failed = |error| Failure::new("lock", &path, error);
        let mut options = OpenOptions::new();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Who holds it is a courtesy: the file may hold anything.
                let known = (&file).take(20).read_to_string(&mut holder).is_ok();
                let id = holder.trim().parse::<u32>().ok().filter(|_| known);
                let holder = id.map(|id| format!(" (process {id})")).unwrap_or_default();
                return Err(StorageError::Locked { path: directory.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        Ok(Lock { _file: file })
    }
}
