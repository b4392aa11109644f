//! Recovery over arbitrary files, for fuzz targets. Checksums would keep a fuzzer out, so its bytes are a
//! [`Script`] of frames whose checksums are made right, with raw bytes between.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quorate_core::{FeatureLevel, NodeId, Payload};

use super::files::{Dir, File, Files};
use super::identity::{Identity, Logged};
use super::segment::{ALIGN, HEADER, Place};
use super::{Durability, Found, Options, SMALLEST_SEGMENT, StorageError, find, segment, snapshot};

#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Arc<Content>>>);

#[derive(Default)]
struct Content(Mutex<Vec<u8>>);

impl Memory {
    fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(name.to_owned(), Arc::new(Content(Mutex::new(bytes))));
    }

    fn find(&self, name: &str) -> io::Result<Arc<Content>> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Memory {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect())
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.put(name, Vec::new());
        self.open(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(self.find(name)?)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let content = self.find(from)?;
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.remove(from);
        files.insert(to.to_owned(), content);
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }
}

impl File for Content {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset as usize;
        for part in parts {
            let end = at + part.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(part);
            at = end;
        }
        Ok(at - offset as usize)
    }
    fn reserve(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).truncate(len as usize);
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn options() -> Options {
    Options {
        directory: PathBuf::from("/data"),
        cluster: 0xc1,
        node: NodeId::new(1).expect("valid"),
        protocol: "test",
        durability: Durability::Fsync,
        promises: false,
        segment_bytes: SMALLEST_SEGMENT,
        founded: None,
        queue_bytes: 1 << 20,
    }
}

fn me() -> Identity {
    let Options { cluster, node, .. } = options();
    let level = FeatureLevel::FIRST;
    Identity { cluster, node, protocol: "test".to_owned(), log: Logged::All, disk: 7, founded: None, level }
}

/// A directory, and the digest of its identity.
fn directory() -> (Arc<Memory>, Dir, u64) {
    let memory = Arc::new(Memory::default());
    let dir = Dir::new(Path::new("/data"), memory.clone());
    me().publish(&dir).expect("memory takes everything");
    (memory, dir, me().digest())
}

/// All pieces of an image, and all records.
fn content(found: &Found) -> (Vec<Bytes>, Vec<Bytes>) {
    let pieces = found.snapshot.as_ref().map(|image| image.pieces(1 << 20));
    (pieces.unwrap_or_default(), found.records.clone())
}

/// A directory is refused in words, or opened; then what was repaired is sound, and opening it again gives the
/// same.
fn open(dir: &Dir) {
    match find(dir, &options(), 7, false) {
        Err(error) => told(&error),
        Ok(found) => {
            let before = content(&found);
            drop(found);
            let again = find(dir, &options(), 8, false).expect("what was repaired is sound");
            assert_eq!(before, content(&again), "the second opening finds something else");
        }
    }
}

fn told(error: &StorageError) {
    assert!(!error.to_string().is_empty());
}

/// Bytes that say what to do.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// As many as the next byte says, or as there are.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?);
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }
}

/// The log. A flag first: bit 0 gives a start of the numbers, bit 1 a capacity, bit 2 a length of the last file.
/// Then instructions: 0-3 record (step of its number, unsynced, payload), 4 mark (step), 5 raw bytes, 6 zeros, 7
/// next segment.
pub fn log(data: &[u8]) {
    let mut script = Script(data);
    let Some(flags) = script.byte() else { return };
    let mut number = |bit: u8, usual: u64| if flags & bit == 0 { Some(usual) } else { script.number() };
    let (Some(first), Some(capacity)) = (number(1, 1), number(2, SMALLEST_SEGMENT)) else { return };
    let Some(cut) = number(4, SMALLEST_SEGMENT) else { return };
    let (memory, dir, identity) = directory();
    let (mut index, mut next) = (1, first);
    let mut bytes = vec![0; SMALLEST_SEGMENT as usize];
    let mut at = HEADER;
    while let Some(op) = script.byte() {
        let place = Place::new(identity, index);
        let step = |next: u64, step: u8| next.wrapping_add(i64::from(step as i8) as u64);
        let frame = match op % 8 {
            0..4 => {
                let (Some(by), Some(unsynced)) = (script.byte(), script.byte()) else { break };
                let Some(payload) = script.bytes() else { break };
                let sequence = step(next, by);
                let synced = sequence.wrapping_sub(1 + u64::from(unsynced));
                if sequence == 0 || synced > sequence {
                    continue;
                }
                let record = Payload::Whole(Bytes::copy_from_slice(payload));
                next = next.wrapping_add(1);
                let mut frame = place.record(at as u64, sequence, synced, &record).to_vec();
                frame.extend_from_slice(payload);
                frame.resize(frame.len().next_multiple_of(ALIGN), 0);
                frame
            }
            4 => match script.byte() {
                Some(by) => place.mark(at as u64, step(next, by)).to_vec(),
                None => break,
            },
            5 => match script.bytes() {
                Some(raw) => raw.to_vec(),
                None => break,
            },
            6 => match script.byte() {
                Some(count) => vec![0; usize::from(count) * ALIGN],
                None => break,
            },
            _ => {
                let full = std::mem::replace(&mut bytes, vec![0; SMALLEST_SEGMENT as usize]);
                put(&memory, identity, index, capacity, full);
                if index == 4 {
                    break;
                }
                (index, at) = (index + 1, HEADER);
                continue;
            }
        };
        let Some(room) = bytes.get_mut(at..at + frame.len()) else { continue };
        room.copy_from_slice(&frame);
        at += frame.len();
    }
    bytes.truncate(usize::try_from(cut).unwrap_or(usize::MAX));
    put(&memory, identity, index, capacity, bytes);
    if first != 1 {
        memory.put(&snapshot::name(first), snapshot::fuzzed(identity, (1, first), &[], true));
    }
    open(&dir);
}

fn put(memory: &Memory, identity: u64, index: u64, capacity: u64, mut bytes: Vec<u8>) {
    let header = segment::encode_header(identity, index, capacity);
    let len = header.len().min(bytes.len());
    bytes[..len].copy_from_slice(&header[..len]);
    memory.put(&segment::name(index), bytes);
}

/// A checkpoint. Flags first (bit 0: it has an image; bit 1: eight bytes each for segment and number), the segment
/// and the number of the next record, then frames: 1 record, 2 piece, 3 footer that fits, other kinds, 5 raw bytes.
pub fn checkpoint(data: &[u8]) {
    let mut script = Script(data);
    let Some(flags) = script.byte() else { return };
    let mut number = || if flags & 2 == 0 { script.byte().map(u64::from) } else { script.number() };
    let (Some(first), Some(sequence)) = (number(), number()) else { return };
    let mut frames = Vec::new();
    while let Some(kind) = script.byte() {
        let Some(payload) = script.bytes() else { break };
        frames.push((u32::from(kind), payload));
    }
    let (memory, dir, identity) = directory();
    let image = flags & 1 == 1;
    memory.put(&snapshot::name(sequence), snapshot::fuzzed(identity, (first, sequence), &frames, image));
    for index in [first, first.wrapping_add(1)] {
        put(&memory, identity, index, SMALLEST_SEGMENT, vec![0; SMALLEST_SEGMENT as usize]);
    }
    open(&dir);
}

/// The identity file: raw, and with its last line made right.
pub fn identity(data: &[u8]) {
    let sealed = [data, format!("crc32c = {:08x}\n", crc32c::crc32c(data)).as_bytes()].concat();
    for text in [data.to_vec(), sealed] {
        let memory = Arc::new(Memory::default());
        let dir = Dir::new(Path::new("/data"), memory.clone());
        memory.put("identity", text.clone());
        match Identity::read(&dir) {
            Ok(Some(found)) => {
                if let Err(error) = found.check(&dir, &me()) {
                    told(&error);
                }
                found.publish(&dir).expect("memory takes everything");
                let written = dir.open("identity").and_then(|file| file.read_all());
                assert_eq!(written.ok(), Some(text), "what was read is written as it was");
            }
            Ok(None) => panic!("the file is there"),
            Err(error) => told(&error),
        }
    }
}

/// Valid ones, whole and without their last line.
pub fn identities() -> Vec<Vec<u8>> {
    let (_, dir, _) = directory();
    let whole = dir.open("identity").and_then(|file| file.read_all()).expect("it was published");
    let end = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("it has several lines");
    vec![whole[..=end].to_vec(), whole]
}
