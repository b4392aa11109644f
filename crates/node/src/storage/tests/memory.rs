//! A file system in memory that fails where it is told to, and shows what a crash would leave.
//!
//! Writes go into a cache and, until the file is synced, into a list of pending writes. A crash leaves of each 512-byte
//! sector what some prefix of the pending writes to it made of it, each sector for itself; a length that some pending
//! write gave; and some of the names that changed since names were synced. That is harsher than any real file system.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use quorate_core::Random;

use crate::resources;
use crate::storage::blocks::BLOCK;
use crate::storage::files::{File, Files};

const SECTOR: usize = 512;

/// See the file comment. Clones share one disk.
#[derive(Clone, Default)]
pub(super) struct Memory {
    state: Arc<Mutex<State>>,
    gate: Arc<Gate>,
}

/// What goes wrong.
#[derive(Default)]
pub(super) struct Faults {
    /// After so many more changes the process dies: everything fails, and the last write is partly done.
    pub(super) dies_after: Option<u64>,
    /// Files can become so many bytes longer, all together. What they have already, they can be written to.
    pub(super) space: Option<u64>,
    /// No file takes space that it has not got yet.
    pub(super) full: bool,
    /// No file takes more space at once than this.
    pub(super) largest: Option<u64>,
    /// How large the file system is, and how much of it is free, as it says itself.
    pub(super) room: Option<resources::Disk>,
    /// So many more syncs succeed; one that fails drops what it should have written, as real systems do.
    pub(super) syncs: Option<u64>,
    /// So many times more that space is taken, a signal interrupts it.
    pub(super) interrupts: u32,
    /// Writes are cut short.
    pub(super) short: bool,
    /// What is read back from the disk differs in one bit from what was written.
    pub(super) rots: bool,
}

/// Holds syncs up while it is closed.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    pending_names: Vec<Naming>,
    faults: Faults,
    dead: bool,
    random: Option<Random>,
}

#[derive(Clone, Default)]
struct Content {
    cached: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
    /// The file was cut to this length since it was synced.
    cut: Option<usize>,
}

#[derive(Clone)]
enum Naming {
    Put(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Naming::Put(name, file) => {
                names.insert(name.clone(), *file);
            }
            Naming::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Naming::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Memory {
    pub(super) fn new(seed: u64) -> Memory {
        let memory = Memory::default();
        memory.state().random = Some(Random::new(seed));
        memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn fail(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Lets syncs wait until [`Memory::open_gate`].
    pub(super) fn close_gate(&self) {
        *self.gate.closed.lock().unwrap() = true;
    }

    pub(super) fn open_gate(&self) {
        *self.gate.closed.lock().unwrap() = false;
        self.gate.opened.notify_all();
    }

    /// What is there after the process was killed: all that it wrote.
    pub(super) fn after_kill(&self) -> Memory {
        let state = self.state();
        let memory = Memory::new(0);
        *memory.state() = State {
            files: state.files.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            pending_names: state.pending_names.clone(),
            random: state.random.clone(),
            ..State::default()
        };
        memory
    }

    /// What is there after the machine lost power.
    pub(super) fn after_power_loss(&self, random: &mut Random) -> Memory {
        let state = self.state();
        let memory = Memory::new(random.u64());
        let mut names = state.durable_names.clone();
        let likely = random.unit();
        for naming in &state.pending_names {
            if random.chance(likely) {
                naming.apply(&mut names);
            }
        }
        let files = state.files.iter().map(|content| content.after_power_loss(random)).collect();
        *memory.state() = State {
            files,
            durable_names: names.clone(),
            names,
            random: Some(random.fork()),
            ..State::default()
        };
        memory
    }

    /// A file's bytes, as processes see them.
    pub(super) fn read(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[name]].cached.clone()
    }

    /// Changes a file's bytes, durably, as no process did.
    pub(super) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let file = state.names[name];
        let content = &mut state.files[file];
        change(&mut content.cached);
        content.durable = content.cached.clone();
        content.pending.clear();
        content.cut = None;
    }

    /// Puts a file there, durably, as no process did.
    pub(super) fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        let index = state.files.len();
        state.files.push(Content { cached: bytes.clone(), durable: bytes, ..Content::default() });
        state.names.insert(name.to_owned(), index);
        state.durable_names = state.names.clone();
    }

    /// Gives names to files, durably: `(from, to)`.
    pub(super) fn rearrange(&self, renames: &[(&str, &str)]) {
        let mut state = self.state();
        let moved: Vec<_> = renames.iter().map(|(from, to)| (to.to_string(), state.names[*from])).collect();
        for (from, _) in renames {
            state.names.remove(*from);
        }
        state.names.extend(moved);
        state.durable_names = state.names.clone();
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    fn name(&self, naming: Naming) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        naming.apply(&mut state.names);
        state.pending_names.push(naming);
        Ok(())
    }

    fn file(&self, index: usize) -> Arc<dyn File> {
        Arc::new(MemoryFile { memory: self.clone(), index, direct: false })
    }
}

impl State {
    /// Counts a change. An error if the process is dead.
    fn change(&mut self) -> io::Result<()> {
        match &mut self.faults.dies_after {
            Some(0) => self.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.dead { Err(io::Error::other("dead")) } else { Ok(()) }
    }

    fn some_of(&mut self, len: usize) -> usize {
        self.random.as_mut().expect("a generator").range(0..len as u64 + 1) as usize
    }
}

impl Content {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.cached.len() < end {
            self.cached.resize(end, 0);
        }
        self.cached[offset..end].copy_from_slice(bytes);
        self.pending.push((offset, bytes.to_vec()));
    }

    fn after_power_loss(&self, random: &mut Random) -> Content {
        let mut bytes = self.durable.clone();
        let mut len = bytes.len();
        let mut frozen = BTreeMap::new();
        let likely = random.unit();
        for (offset, written) in &self.pending {
            if random.chance(0.5) {
                len = len.max(offset + written.len());
            }
            bytes.resize(bytes.len().max(offset + written.len()), 0);
            let mut at = *offset;
            while at < offset + written.len() {
                let end = ((at / SECTOR + 1) * SECTOR).min(offset + written.len());
                let frozen = frozen.entry(at / SECTOR).or_insert(false);
                *frozen |= !random.chance(likely);
                if !*frozen {
                    bytes[at..end].copy_from_slice(&written[at - offset..end - offset]);
                }
                at = end;
            }
        }
        bytes.truncate(len);
        if let Some(cut) = self.cut.filter(|_| random.chance(likely)) {
            bytes.truncate(cut);
        }
        Content { cached: bytes.clone(), durable: bytes, ..Content::default() }
    }
}

impl Files for Memory {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let index = {
            let mut state = self.state();
            state.files.push(Content::default());
            state.files.len() - 1
        };
        self.name(Naming::Put(name.to_owned(), index))?;
        Ok(self.file(index))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let index = self.state().names.get(name).copied();
        index.map(|index| self.file(index)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open_direct(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let index = self.state().names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { memory: self.clone(), index, direct: true }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.name(Naming::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.name(Naming::Remove(name.to_owned()))
    }

    fn room(&self) -> io::Result<resources::Disk> {
        Ok(self.state().faults.room.unwrap_or(resources::Disk { free: u64::MAX, size: u64::MAX }))
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.durable_names = state.names.clone();
        state.pending_names.clear();
        Ok(())
    }
}

struct MemoryFile {
    memory: Memory,
    index: usize,
    /// Whether it takes whole blocks only.
    direct: bool,
}

impl File for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.memory.state().files[self.index].cached.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.memory.state();
        let cached = &state.files[self.index].cached;
        let from = cached.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut state = self.memory.state();
        if self.direct {
            let starts = parts.iter().map(|part| part.as_ptr().addr());
            let lens = parts.iter().map(|part| part.len());
            let mut numbers = starts.chain(lens).chain([offset as usize]);
            assert!(numbers.all(|number| number.is_multiple_of(BLOCK)), "a direct write of whole blocks");
        }
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let was_dead = state.dead;
        if let Err(dead) = state.change() {
            if !was_dead {
                let count = state.some_of(bytes.len());
                state.files[self.index].write(offset as usize, &bytes[..count]);
            }
            return Err(dead);
        }
        if state.faults.short && bytes.len() > 1 {
            let count = 1 + state.some_of(bytes.len() - 1);
            bytes.truncate(if self.direct { count.next_multiple_of(BLOCK) } else { count });
        }
        if let Some(space) = state.faults.space {
            let taken = state.files[self.index].cached.len() as u64;
            let room = (taken + space).saturating_sub(offset) as usize;
            bytes.truncate(if self.direct { room / BLOCK * BLOCK } else { room });
            if bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.faults.space = Some(space - (offset + bytes.len() as u64).saturating_sub(taken));
        }
        state.files[self.index].write(offset as usize, &bytes);
        Ok(bytes.len())
    }

    /// A full disk that does not say so here says it when the file is written.
    fn reserve(&self, len: u64) -> io::Result<()> {
        let mut state = self.memory.state();
        if let Some(left) = state.faults.interrupts.checked_sub(1) {
            state.faults.interrupts = left;
            return Err(io::ErrorKind::Interrupted.into());
        }
        if state.faults.full || state.faults.largest.is_some_and(|largest| len > largest) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.faults.space.is_none() {
            state.files[self.index].write(len as usize, &[]);
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.memory.state();
        state.change()?;
        let content = &mut state.files[self.index];
        content.cached.truncate(len as usize);
        content.cut = Some(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let gate = &self.memory.gate;
        drop(gate.opened.wait_while(gate.closed.lock().unwrap(), |closed| *closed).unwrap());
        let mut state = self.memory.state();
        state.change()?;
        let failed = match &mut state.faults.syncs {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        let content = &mut state.files[self.index];
        let pending = std::mem::take(&mut content.pending);
        if failed {
            // The cache keeps the bytes and calls them clean: no later sync writes them.
            return Err(io::Error::other("input/output error"));
        }
        for (offset, bytes) in pending {
            let end = offset + bytes.len();
            let len = content.durable.len().max(end);
            content.durable.resize(len, 0);
            content.durable[offset..end].copy_from_slice(&bytes);
        }
        if let Some(cut) = content.cut.take() {
            content.durable.truncate(cut);
        }
        Ok(())
    }

    fn forget_cached(&self) {
        let mut state = self.memory.state();
        if state.faults.rots {
            let len = state.files[self.index].cached.len();
            let (at, bit) = (state.some_of(len - 1), state.some_of(7));
            state.files[self.index].cached[at] ^= 1 << bit;
        }
    }
}
