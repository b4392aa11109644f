//! The few things that storage asks of a file system, so that tests can put a failing or crashing one in its place.
//!
//! [`Files`] and [`File`] are what an implementation offers; [`Dir`] and [`Handle`] are what the rest of storage
//! uses: they finish short writes and turn errors into a [`Failure`] that names the file.
//!
//! What is assumed of the file system, and no more: bytes written are durable after `sync` of the file; names
//! created, renamed and removed are durable after `sync_names`; a rename is atomic; a crash leaves each 512-byte
//! sector of a file as one of its writes left it (new, old, or one between), whatever happened to its neighbours.

use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxFlags};

use super::blocks::BLOCK;
use super::error::Failure;
use crate::resources;

/// One flat directory.
pub(super) trait Files: Send + Sync {
    /// Names, in any order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// An empty file, in place of one that is there.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// A file that is there, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// One that is only written, in whole blocks from memory that is [`Aligned`](super::blocks::Aligned): past the
    /// system's cache, where the file system can do that.
    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.open(name)
    }
    /// Gives a file another name, in place of a file that has it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file's name away.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Fails unless the path of the directory still leads to this one, as at the next start it must.
    fn check_path(&self) -> io::Result<()> {
        Ok(())
    }
    /// How large the file system of the directory is, and how much of it is free.
    fn room(&self) -> io::Result<resources::Disk> {
        Ok(resources::Disk { free: u64::MAX, size: u64::MAX })
    }
}

/// One open file.
pub(super) trait File: Send + Sync {
    /// Bytes.
    fn len(&self) -> io::Result<u64>;
    /// Reads some; 0 at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes some of the parts, one behind the other.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Takes space for this many bytes, so that a full disk shows now. The file may be so long then.
    fn reserve(&self, len: u64) -> io::Result<()>;
    /// Ends the file after so many bytes, and gives back the space behind them.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes bytes and length durable.
    fn sync(&self) -> io::Result<()>;
    /// What is read from now on comes from the disk, where the system can do that.
    fn forget_cached(&self) {}
}

/// How many parts one write may have (Linux: `IOV_MAX`).
const PARTS: usize = 1024;

/// What is done in a directory whose path no longer leads to it; see [`Failure::doing`].
pub(super) const STAY: &str = "go on in";

/// Reading a directory, in a [`Failure`]'s words.
pub(super) const LIST: &str = "list";

/// Making a file, in a [`Failure`]'s words.
pub(super) const CREATE: &str = "create";

/// A directory whose errors say which file.
#[derive(Clone)]
pub(super) struct Dir {
    path: Arc<Path>,
    files: Arc<dyn Files>,
}

impl Dir {
    pub(super) fn new(path: &Path, files: Arc<dyn Files>) -> Dir {
        Dir { path: path.into(), files }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Fails where the directory was moved away, or another lies in its place: what is written now would not be found
    /// at the next start. Checked before files are opened and names are changed, and before records count as durable.
    pub(super) fn check_path(&self) -> Result<(), Failure> {
        self.files.check_path().map_err(|error| Failure::new(STAY, &*self.path, error))
    }

    /// How large the file system is that it is on, and how much of it is free.
    pub(super) fn room(&self) -> Result<resources::Disk, Failure> {
        self.files.room().map_err(|error| Failure::new("measure the file system of", &*self.path, error))
    }

    /// Names in ascending order.
    pub(super) fn list(&self) -> Result<Vec<String>, Failure> {
        self.check_path()?;
        let mut names = self.files.list().map_err(|error| Failure::new(LIST, &*self.path, error))?;
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn create(&self, name: &str) -> Result<Handle, Failure> {
        self.handle(name, CREATE, |files| files.create(name))
    }

    pub(super) fn open(&self, name: &str) -> Result<Handle, Failure> {
        self.handle(name, "open", |files| files.open(name))
    }

    /// For whole blocks; see [`Files::open_direct`].
    pub(super) fn open_direct(&self, name: &str) -> Result<Handle, Failure> {
        self.handle(name, "open", |files| files.open_direct(name))
    }

    fn handle(
        &self,
        name: &str,
        doing: &'static str,
        file: impl FnOnce(&dyn Files) -> io::Result<Arc<dyn File>>,
    ) -> Result<Handle, Failure> {
        self.check_path()?;
        let path: Arc<Path> = self.path.join(name).into();
        let file = file(&*self.files).map_err(|error| Failure::new(doing, &*path, error))?;
        Ok(Handle { file, path })
    }

    /// A file is there as a whole or not at all: it is written under another name, synced, then renamed.
    pub(super) fn publish(&self, from: &str, to: &str) -> Result<(), Failure> {
        self.rename(from, to)?;
        self.sync_names()
    }

    /// Gives a file another name; after a crash it may have the old one.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<(), Failure> {
        self.check_path()?;
        let renamed = self.files.rename(from, to);
        renamed.map_err(|error| Failure::new("rename another file to", self.path(to), error))
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        self.check_path()?;
        self.files.remove(name).map_err(|error| Failure::new("remove", self.path(name), error))
    }

    pub(super) fn sync_names(&self) -> Result<(), Failure> {
        self.check_path()?;
        self.files.sync_names().map_err(|error| Failure::new("sync", &*self.path, error))
    }
}

/// A file whose errors say which.
#[derive(Clone)]
pub(super) struct Handle {
    file: Arc<dyn File>,
    path: Arc<Path>,
}

impl Handle {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failure(&self, doing: &'static str, error: io::Error) -> Failure {
        Failure::new(doing, &*self.path, error)
    }

    pub(super) fn len(&self) -> Result<u64, Failure> {
        self.file.len().map_err(|error| self.failure("measure", error))
    }

    /// Reads up to `len` bytes; fewer only at the end of the file.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while filled < len {
            match self.file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure("read", error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Reads all of it.
    pub(super) fn read_all(&self) -> Result<Vec<u8>, Failure> {
        let len = usize::try_from(self.len()?).map_err(|_| {
            self.failure("read", io::Error::new(io::ErrorKind::FileTooLarge, "longer than the address space"))
        })?;
        self.read(0, len)
    }

    /// Writes all parts, one behind the other.
    pub(super) fn write(&self, mut parts: &mut [IoSlice<'_>], mut offset: u64) -> Result<(), Failure> {
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            match self.file.write_at(&parts[..parts.len().min(PARTS)], offset) {
                Ok(0) => return Err(self.failure("write", io::ErrorKind::WriteZero.into())),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure("write", error)),
            }
        }
        Ok(())
    }

    pub(super) fn write_slice(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        self.write(&mut [IoSlice::new(bytes)], offset)
    }

    pub(super) fn reserve(&self, len: u64) -> Result<(), Failure> {
        loop {
            match self.file.reserve(len) {
                // A signal, such as SIGHUP, has come to this very thread.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                reserved => return reserved.map_err(|error| self.failure("reserve space for", error)),
            }
        }
    }

    pub(super) fn truncate(&self, len: u64) -> Result<(), Failure> {
        self.file.truncate(len).map_err(|error| self.failure("cut", error))
    }

    /// What is read from now on comes from the disk, not from memory, where the system can do that.
    pub(super) fn forget_cached(&self) {
        self.file.forget_cached();
    }

    /// Never retried: after a failure the system may have forgotten which bytes it did not write.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        self.file.sync().map_err(|error| self.failure("sync", error))
    }
}

/// The real file system. Names are those of the directory that was opened, wherever it is moved.
pub(super) struct Disk {
    path: PathBuf,
    handle: std::fs::File,
}

impl Disk {
    /// A directory that is there.
    pub(super) fn new(path: &Path) -> io::Result<Disk> {
        Ok(Disk { path: path.to_owned(), handle: std::fs::File::open(path)? })
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<std::fs::File> {
        let (flags, mode) = (flags | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        Ok(rustix::io::retry_on_intr(|| rustix::fs::openat(&self.handle, name, flags, mode))?.into())
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = rustix::fs::Dir::read_from(&self.handle)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")).collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(self.file(name, OFlags::CREATE | OFlags::TRUNC)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(self.file(name, OFlags::empty())?))
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = self.file(name, OFlags::empty())?;
        Ok(Arc::new(if takes_blocks(&file) { self.file(name, OFlags::DIRECT)? } else { file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn check_path(&self) -> io::Result<()> {
        let (held, there) = (self.handle.metadata()?, std::fs::metadata(&self.path)?);
        if (held.dev(), held.ino()) == (there.dev(), there.ino()) {
            return Ok(());
        }
        let why = "another directory has come in the place of the one that is open";
        Err(io::Error::new(io::ErrorKind::NotFound, why))
    }

    fn room(&self) -> io::Result<resources::Disk> {
        Ok(rustix::fs::fstatvfs(&self.handle)?.into())
    }
}

/// Whether the system says (Linux 6.1 and later) that blocks of [`BLOCK`] bytes can go to this file past its cache.
fn takes_blocks(file: &std::fs::File) -> bool {
    let divides = |align: u32| align != 0 && BLOCK.is_multiple_of(align as usize);
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).is_ok_and(|found| {
        let said = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN);
        said && divides(found.stx_dio_mem_align) && divides(found.stx_dio_offset_align)
    })
}

impl File for std::fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, parts, offset)?)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        // Some file systems take all that is left before they find that it is too little, and a snapshot that is being
        // written meanwhile would find none.
        let system = rustix::fs::fstatvfs(self)?;
        if system.f_bavail.saturating_mul(system.f_frsize) < len {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, len) {
            // A file system that cannot reserve finds out when it is written to, a little later.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(debug_assertions)]
        hang_if_told();
        self.sync_data()
    }

    fn forget_cached(&self) {
        // Advice: without it, what is read is what the system would have written.
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// A disk that hangs, for tests with real processes: a sync waits while the file is there that QUORATE_TEST_HANG names.
/// Release builds have nothing of it.
#[cfg(debug_assertions)]
fn hang_if_told() {
    use std::sync::OnceLock;
    use std::time::Duration;

    static WHILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = WHILE.get_or_init(|| std::env::var_os("QUORATE_TEST_HANG").map(PathBuf::from));
    while file.as_ref().is_some_and(|file| file.exists()) {
        std::thread::sleep(Duration::from_millis(10));
    }
}
