//! A small file that is replaced as a whole. There are three: what a node remembers of its own and the others' data
//! directories, of the leases that it has granted, and how often users have been changed. They are synced whatever
//! `--durability` says, because they are written only when a process starts, has waited, a peer has restarted, or users
//! are changed.
//!
//! ```text
//! "QRTEMEM1"   CRC32C: u32   content
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tracing::warn;

use super::error::{Failure, StorageError};
use super::files::Dir;
use super::log::Waker;

/// Of data directories: [`quorate_blocks::admission::Memory`].
pub(super) const ADMISSION: &str = "admission";
/// Of leases: [`quorate_blocks::leases::record::LeaseRecord`].
pub(super) const LEASES: &str = "leases";
/// How often users have been changed: [`DirectoryMark`](super::DirectoryMark).
pub(super) const USER_CHANGES: &str = "user-changes";

/// Whether a file has such a name.
pub(super) fn is_memo(name: &str) -> bool {
    [ADMISSION, LEASES, USER_CHANGES].contains(&name)
}

const MAGIC: &[u8; 8] = b"QRTEMEM1";
const HEADER: usize = MAGIC.len() + 4;
/// Content beyond this is not ours.
const LONGEST: u64 = 1 << 20;

/// After a failure, which a full disk may be: nothing that waits for the file goes on meanwhile.
const AGAIN: Duration = Duration::from_secs(1);

/// One such file of a directory.
#[derive(Clone)]
pub struct Memo {
    dir: Dir,
    name: &'static str,
}

impl std::fmt::Debug for Memo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memo({})", self.dir.path(self.name).display())
    }
}

impl Memo {
    pub(super) fn new(dir: Dir, name: &'static str) -> Memo {
        Memo { dir, name }
    }

    /// The error that says that the file should be there, and why.
    pub fn missing(&self, evidence: &str) -> StorageError {
        StorageError::Missing { path: self.dir.path(self.name), evidence: evidence.to_owned() }
    }

    /// The error that says that the content makes no sense.
    pub fn damaged(&self, what: impl Into<String>) -> StorageError {
        StorageError::corrupt(self.dir.path(self.name), HEADER as u64, what)
    }

    /// The content; `None` if the file was never written.
    pub fn read(&self) -> Result<Option<Bytes>, StorageError> {
        if !self.dir.list()?.iter().any(|name| name == self.name) {
            return Ok(None);
        }
        let file = self.dir.open(self.name)?;
        let damaged = |what: &str| Err(StorageError::corrupt(file.path(), 0, what));
        if file.len()? > LONGEST {
            return damaged("it is longer than any file of this name");
        }
        let bytes = Bytes::from(file.read_all()?);
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return damaged("it does not begin as such a file does");
        };
        match rest.split_first_chunk::<4>() {
            Some((crc, content)) if crc32c::crc32c(content) == u32::from_le_bytes(*crc) => {
                Ok(Some(bytes.slice(HEADER..)))
            }
            _ => damaged("its checksum is wrong"),
        }
    }

    /// Replaces the content; durable when it returns.
    pub fn write(&self, content: &[u8]) -> Result<(), Failure> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
        bytes.extend_from_slice(content);
        let unfinished = format!("{}.tmp", self.name);
        let file = self.dir.create(&unfinished)?;
        file.write_slice(&bytes, 0)?;
        file.sync()?;
        self.dir.publish(&unfinished, self.name)
    }

    /// Writes from now on in a thread of its own, so that a slow disk does not stop the event loop. `waker` is called
    /// when a content is durable.
    pub fn writer(self, waker: Waker) -> Result<MemoWriter, Failure> {
        let shared = Arc::new(Shared {
            next: Mutex::default(),
            ready: Condvar::new(),
            durable: AtomicU64::new(0),
            waker,
        });
        let (other, path) = (shared.clone(), self.dir.path(""));
        let thread = thread::Builder::new().name("memo".to_owned()).spawn(move || other.run(&self));
        let thread = thread.map_err(|error| Failure::new("start a thread to write", path, error))?;
        Ok(MemoWriter { shared, thread: Some(thread) })
    }
}

/// See [`Memo::writer`]. Dropping it writes what was handed over last, if the disk takes it.
pub struct MemoWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    next: Mutex<Next>,
    ready: Condvar,
    durable: AtomicU64,
    waker: Waker,
}

#[derive(Default)]
struct Next {
    /// A later content replaces one that was not begun.
    content: Option<(u64, Bytes)>,
    /// When the attempt began that is under way.
    began: Option<Instant>,
    stop: bool,
}

impl MemoWriter {
    /// Hands over a content and its number, which is greater than those before.
    pub fn put(&self, number: u64, content: Bytes) {
        self.shared.lock().content = Some((number, content));
        self.shared.ready.notify_one();
    }

    /// When the attempt to write a content began that is under way, if one is.
    pub fn began(&self) -> Option<Instant> {
        self.shared.lock().began
    }

    /// The number of the last content that is durable.
    pub fn durable(&self) -> u64 {
        self.shared.durable.load(Ordering::Acquire)
    }
}

impl Drop for MemoWriter {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.ready.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, memo: &Memo) {
        let mut next = self.lock();
        loop {
            let Some((number, content)) = next.content.take() else {
                if next.stop {
                    return;
                }
                next = self.ready.wait(next).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            next.began = Some(Instant::now());
            drop(next);
            // Each attempt writes a new file, so that a failed sync hides nothing.
            let written = memo.write(&content);
            next = self.lock();
            next.began = None;
            match written {
                Ok(()) => {
                    self.durable.store(number, Ordering::Release);
                    (self.waker)();
                }
                Err(_) if next.stop => return,
                Err(error) => {
                    match memo.name {
                        ADMISSION => warn!("no peer that has restarted is let in until this works: {error}"),
                        _ => warn!("the next start will wait for leases once more: {error}"),
                    }
                    next.content.get_or_insert((number, content));
                    next = self.ready.wait_timeout(next, AGAIN).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}
