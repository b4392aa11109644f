//! Segments: the files of the log, and how a record lies in one.
//!
//! ```text
//! wal-0000000007       a page with the header, then frames, then zeros up to `capacity`
//! header  magic 8 · version 4 · crc 4 · identity 8 · index 8 · capacity 8
//! frame   crc 4 · payload crc 4 · length 4 · unsynced 4 · sequence 8 · payload, padded with zeros to 8 bytes
//! ```
//!
//! Numbers are little-endian; checksums are CRC32C.
//!
//! A frame's `crc` covers its other fields, the payload's checksum among them, and its *place*: the directory's
//! identity, the segment and the offset. So a frame counts only where it was written. Bytes that an earlier use of
//! the disk left behind, a segment under a wrong name, or a client's value that happens to be a piece of somebody's
//! log are never mistaken for a record, which matters because recovery looks for frames at every offset behind
//! damage. The header's own checksum also means that nobody's length is believed before it is checked.
//!
//! `sequence` numbers the records from 1, through all segments, without gaps. `unsynced` says how many records before
//! this one were not known to be durable when it was written: a frame is evidence that the others are (see
//! `recovery`). A *mark* is a frame with no payload and no number of its own (`length` is all ones, `sequence` is
//! the next record's); it is only evidence.
//!
//! A segment is filled with zeros and made durable under another name before it gets its own, so that appending
//! changes no metadata of the file system: a synced append then costs one write to the disk, not three. One that
//! the log no longer needs is used again under another index (see `pool`): then what is behind the last frame is
//! not zeros, but frames of another place, which do not count.

use std::ops::Range;
use std::time::Instant;

use quorate_core::Payload;

use super::background::Background;
use super::blocks::{Aligned, BLOCK};
use super::error::{Failure, StorageError};
use super::files::{Dir, Handle};

/// Where frames begin.
pub(super) const HEADER: usize = BLOCK;

/// A frame without its payload.
pub(super) const FRAME: usize = 24;

/// Frames begin at multiples of this.
pub(super) const ALIGN: usize = 8;

/// The longest record, and the longest frame of a snapshot. An assertion: the sizes of requests are bounded far below.
pub(super) const MAX_RECORD: usize = 256 << 20;

const MAGIC: [u8; 8] = *b"quorWAL\n";
const VERSION: u32 = 1;
const HEADER_FIELDS: usize = 40;
const MARK: u32 = u32::MAX;

/// Zeros are written in pieces of this size, each synced, so that the log's own syncs find short queues.
const ZEROS: usize = 4 << 20;

/// A segment's file, ready to be written to.
#[derive(Clone)]
pub(super) struct Segment {
    pub(super) file: Handle,
    pub(super) index: u64,
    /// No frame begins where it would not end within so many bytes, unless it is the segment's only record.
    pub(super) capacity: u64,
}

pub(super) fn name(index: u64) -> String {
    format!("wal-{index:010}")
}

/// The index in a segment's name.
pub(super) fn index_of(name: &str) -> Option<u64> {
    let index = name.strip_prefix("wal-")?.parse().ok()?;
    (self::name(index) == name).then_some(index)
}

/// Makes a segment of zeros: durable when it returns. `None` if `background` was told to stop meanwhile. Where there is
/// no room for it, nothing of it stays: others need what room there is.
pub(super) fn prepare(
    dir: &Dir,
    identity: u64,
    index: u64,
    capacity: u64,
    background: &Background,
) -> Result<Option<Segment>, Failure> {
    let made = fill(dir, identity, index, capacity, background);
    if made.as_ref().is_err_and(Failure::is_full) {
        // If this fails too, the next opening removes it.
        let _ = dir.remove(&format!("{}.tmp", name(index)));
    }
    made
}

fn fill(
    dir: &Dir,
    identity: u64,
    index: u64,
    capacity: u64,
    background: &Background,
) -> Result<Option<Segment>, Failure> {
    let (name, unfinished) = (name(index), format!("{}.tmp", name(index)));
    let file = dir.create(&unfinished)?;
    file.reserve(capacity)?;
    let direct = dir.open_direct(&unfinished)?;
    let zeros = Aligned::zeros(ZEROS.min(capacity as usize));
    let mut at = 0;
    while at < capacity {
        let started = Instant::now();
        let len = (capacity - at).min(ZEROS as u64);
        direct.write_slice(&zeros.bytes()[..len as usize], at)?;
        direct.sync()?;
        at += len;
        if at < capacity && !background.rest(started.elapsed()) {
            return Ok(None);
        }
    }
    write_header(&file, identity, index, capacity)?;
    dir.publish(&unfinished, &name)?;
    Ok(Some(Segment { file: dir.open(&name)?, index, capacity }))
}

/// Says whose segment it is; durable when it returns.
pub(super) fn write_header(file: &Handle, identity: u64, index: u64, capacity: u64) -> Result<(), Failure> {
    // A whole block: of one that is not in memory, the system would read the rest first.
    let mut block = [0; HEADER];
    block[..HEADER_FIELDS].copy_from_slice(&encode_header(identity, index, capacity));
    file.write_slice(&block, 0)?;
    file.sync()
}

pub(super) fn encode_header(identity: u64, index: u64, capacity: u64) -> [u8; HEADER_FIELDS] {
    let mut header = [0; HEADER_FIELDS];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&identity.to_le_bytes());
    header[24..32].copy_from_slice(&index.to_le_bytes());
    header[32..40].copy_from_slice(&capacity.to_le_bytes());
    let crc = header_crc(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    header
}

fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..HEADER_FIELDS])
}

/// Checks that a file is the segment its name says; gives its capacity.
pub(super) fn check_header(
    file: &Handle,
    bytes: &[u8],
    identity: u64,
    index: u64,
) -> Result<u64, StorageError> {
    let corrupt = |offset: u64, what: String| StorageError::corrupt(file.path(), offset, what);
    if bytes.len() < HEADER {
        return Err(corrupt(bytes.len() as u64, "the file ends within its header".to_owned()));
    }
    let version = u32_at(bytes, 8);
    if bytes[..8] == MAGIC && version > VERSION {
        return Err(StorageError::Format {
            path: file.path().to_owned(),
            found: version.to_string(),
            supported: VERSION,
        });
    }
    if bytes[..8] != MAGIC || header_crc(bytes) != u32_at(bytes, 12) {
        return Err(corrupt(0, "the segment's header has a wrong checksum".to_owned()));
    }
    if u64_at(bytes, 16) != identity {
        return Err(corrupt(16, "the segment belongs to another data directory".to_owned()));
    }
    if u64_at(bytes, 24) != index {
        return Err(corrupt(24, format!("this is segment {} under another's name", u64_at(bytes, 24))));
    }
    let capacity = u64_at(bytes, 32);
    if (bytes.len() as u64) < capacity {
        return Err(corrupt(
            bytes.len() as u64,
            format!("the file ends here, but was made {capacity} bytes long"),
        ));
    }
    Ok(capacity)
}

/// What the checksums of a segment's frames begin with.
#[derive(Clone, Copy)]
pub(super) struct Place(u32);

impl Place {
    pub(super) fn new(identity: u64, index: u64) -> Place {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&identity.to_le_bytes());
        bytes[8..].copy_from_slice(&index.to_le_bytes());
        Place(crc32c::crc32c(&bytes))
    }

    fn crc(self, offset: u64, fields: &[u8]) -> u32 {
        let mut bytes = [0; 8 + FRAME - 4];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(fields);
        crc32c::crc32c_append(self.0, &bytes)
    }

    /// The head of a record's frame. `synced` is the last record known to be durable.
    pub(super) fn record(self, offset: u64, sequence: u64, synced: u64, record: &Payload) -> [u8; FRAME] {
        let unsynced =
            u32::try_from(sequence - 1 - synced).expect("fewer than 2^32 records wait for the disk");
        self.frame(offset, crc(record), record.len() as u32, unsynced, sequence)
    }

    /// A mark in front of the record `sequence`: those before it are durable.
    pub(super) fn mark(self, offset: u64, sequence: u64) -> [u8; FRAME] {
        self.frame(offset, 0, MARK, 0, sequence)
    }

    fn frame(self, offset: u64, payload_crc: u32, len: u32, unsynced: u32, sequence: u64) -> [u8; FRAME] {
        let mut frame = [0; FRAME];
        frame[4..8].copy_from_slice(&payload_crc.to_le_bytes());
        frame[8..12].copy_from_slice(&len.to_le_bytes());
        frame[12..16].copy_from_slice(&unsynced.to_le_bytes());
        frame[16..24].copy_from_slice(&sequence.to_le_bytes());
        let crc = self.crc(offset, &frame[4..]);
        frame[..4].copy_from_slice(&crc.to_le_bytes());
        frame
    }

    /// Reads the frame at an offset of a segment's bytes.
    pub(super) fn read(self, bytes: &[u8], offset: usize) -> Result<Frame, Flaw> {
        let Some(head) = bytes.get(offset..offset + FRAME) else { return Err(Flaw::Blank) };
        if head[..] == [0; FRAME] {
            return Err(Flaw::Blank);
        }
        if self.crc(offset as u64, &head[4..]) != u32_at(head, 0) {
            return Err(Flaw::Head);
        }
        let (sequence, unsynced, len) = (u64_at(head, 16), u64::from(u32_at(head, 12)), u32_at(head, 8));
        let Some(synced) = sequence.checked_sub(1 + unsynced) else { return Err(Flaw::Head) };
        if len == MARK {
            return Ok(Frame { sequence, synced, payload: None, end: offset + FRAME });
        }
        let payload = offset + FRAME..offset + FRAME + len as usize;
        match bytes.get(payload.clone()) {
            Some(found) if crc32c::crc32c(found) == u32_at(head, 4) => {
                let end = payload.end.next_multiple_of(ALIGN);
                Ok(Frame { sequence, synced, payload: Some(payload), end })
            }
            Some(_) => Err(Flaw::Payload),
            None => Err(Flaw::Short),
        }
    }

    /// Where the frame at an offset ends by its head, whatever its payload is; the offset itself if there is none.
    pub(super) fn claim(self, bytes: &[u8], offset: usize) -> usize {
        match self.read(bytes, offset) {
            Ok(frame) => frame.end,
            Err(Flaw::Payload) => offset + FRAME + u32_at(bytes, offset + 8) as usize,
            Err(_) => offset,
        }
    }

    /// All frames that begin in a range, whatever lies between them.
    pub(super) fn search(self, bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = Frame> {
        let mut offset = range.start.next_multiple_of(ALIGN);
        std::iter::from_fn(move || {
            while offset < range.end {
                if let Ok(frame) = self.read(bytes, offset) {
                    offset = frame.end;
                    return Some(frame);
                }
                offset += ALIGN;
            }
            None
        })
    }
}

/// A frame whose checksums are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The record's number; a mark's is the next record's.
    pub(super) sequence: u64,
    /// When it was written, this record and those before were known to be durable.
    pub(super) synced: u64,
    /// Where the payload is; `None` in a mark.
    pub(super) payload: Option<Range<usize>>,
    /// Where the next frame begins.
    pub(super) end: usize,
}

impl Frame {
    /// Where it begins.
    pub(super) fn start(&self) -> usize {
        self.payload.as_ref().map_or(self.end, |payload| payload.start) - FRAME
    }
}

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Zeros (a new segment), or the segment's end.
    Blank,
    /// The head's checksum is wrong: damage, or what another segment left here.
    Head,
    /// The payload's checksum is wrong.
    Payload,
    /// The payload ends behind the file's end.
    Short,
    /// A frame, but another record's.
    Order {
        /// The record that is there.
        found: u64,
    },
}

fn crc(record: &Payload) -> u32 {
    record.parts().iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// Bytes of the frame of a record.
pub(super) fn frame_len(record: &Payload) -> u64 {
    (FRAME + record.len()).next_multiple_of(ALIGN) as u64
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn segment(place: Place) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; 400];
        let record = Payload::Parts(vec!["hello".into(), Bytes::new(), "world".into()]);
        bytes[8..32].copy_from_slice(&place.record(8, 7, 4, &record));
        bytes[32..42].copy_from_slice(b"helloworld");
        (bytes, 8)
    }

    #[test]
    fn a_frame_counts_only_at_its_own_place() {
        let place = Place::new(1, 2);
        let (bytes, at) = segment(place);
        let frame = Frame { sequence: 7, synced: 4, payload: Some(32..42), end: 48 };
        assert_eq!(place.read(&bytes, at), Ok(frame.clone()));
        assert_eq!(place.search(&bytes, 0..bytes.len()).collect::<Vec<_>>(), [frame]);
        for other in [Place::new(1, 3), Place::new(2, 2)] {
            assert_eq!(other.read(&bytes, at), Err(Flaw::Head));
        }
        let moved = [&[0; ALIGN], &bytes[..]].concat();
        assert_eq!(place.search(&moved, 0..moved.len()).next(), None);
        assert_eq!(place.read(&bytes, 48), Err(Flaw::Blank));
    }

    #[test]
    fn every_flipped_bit_of_a_frame_shows() {
        let place = Place::new(1, 2);
        let (bytes, at) = segment(place);
        for bit in at * 8..42 * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flaw = if bit < 32 * 8 { Flaw::Head } else { Flaw::Payload };
            assert_eq!(place.read(&bytes, at), Err(flaw), "bit {bit}");
        }
        assert_eq!(place.read(&bytes[..40], at), Err(Flaw::Short));
    }

    #[test]
    fn names_are_read_back_and_others_are_not_ours() {
        assert_eq!(index_of(&name(12)), Some(12));
        for other in ["wal-12", "wal-0000000012.tmp", "wal-+000000012", "wal-", "snapshot-0000000012"] {
            assert_eq!(index_of(other), None, "{other}");
        }
    }
}
