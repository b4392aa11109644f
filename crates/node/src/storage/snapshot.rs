//! Checkpoints: a frozen image of the state machine and the records that must survive with it, in one file. Once it is
//! there, the log before it is dropped.
//!
//! ```text
//! snapshot-00000000000000001234     a checkpoint; the log goes on with record 1234
//! header  magic 8 · version 4 · crc 4 · identity 8 · sequence 8 · segment 8 · has an image 8
//! frame   crc 4 · kind 4 · length 8 · payload                      as many as there are records and pieces
//! footer  a frame whose payload is: records 8 · pieces 8 · checksum 4
//! ```
//!
//! A frame's `crc` (CRC32C) covers the identity, the sequence, the frame's offset, its other fields and its payload;
//! the footer's `checksum` covers the other frames' `crc`s. The file ends with the footer.
//!
//! It is written under another name, synced, read back and renamed: a crash leaves the checkpoint before it and the
//! whole log, or this one. An unfinished file is removed at the next opening; a finished one that cannot be read is
//! refused, because the log it stands for is gone.
//!
//! So that a finished one can be read, it is **verified** before it gets its name and the log before it goes: the file
//! is read as the next opening will read it, all checksums and counts included, and its pieces are decoded as whoever
//! loads the image will decode them ([`Image::verify`]). A failure stops the log with everything in it. What a frame
//! may hold ([`MAX_RECORD`]) is one bound, checked where frames are written and where they are read.
//!
//! Where the disk has no **room** for it, it is given up: its file is removed, the checkpoint and the log before it
//! stay as they are, and the log goes on. Nobody relies on a checkpoint before it has its name.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use quorate_core::{Image, Payload, Piece, Snapshot, Wire};

use super::background::Background;
use super::blocks::Blocks;
use super::error::{Failure, StorageError};
use super::files::{Dir, Handle};
use super::pool::Pool;
use super::recovery::Start;
use super::segment::{self, MAX_RECORD, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"quorSNP\n";
const VERSION: u32 = 2;
const HEADER: usize = 48;
const FRAME: usize = 16;
const FOOTER: usize = 20;

/// Pieces of the image are about so large.
const PIECE: usize = 1 << 20;

/// So much is written between two syncs, so that the log's own syncs find short queues.
const STEP: usize = 4 << 20;

/// Of segments and records: counting on from any of them does not overflow.
const NUMBERS: std::ops::Range<u64> = 1..1 << 62;

const RECORD_KIND: u32 = 1;
const PIECE_KIND: u32 = 2;
const FOOTER_KIND: u32 = 3;

pub(super) fn name(sequence: u64) -> String {
    format!("snapshot-{sequence:020}")
}

/// The sequence in a snapshot's name.
pub(super) fn sequence_of(name: &str) -> Option<u64> {
    let sequence = name.strip_prefix("snapshot-")?.parse().ok()?;
    (self::name(sequence) == name).then_some(sequence)
}

fn unfinished(sequence: u64) -> String {
    format!("{}.tmp", name(sequence))
}

/// Makes the file of a checkpoint in front of the record `sequence`, with space for so many bytes; for 0, that is taken
/// while it is written.
pub(super) fn create(dir: &Dir, sequence: u64, space: u64) -> Result<(), Failure> {
    let file = dir.create(&unfinished(sequence))?;
    if space > 0 { file.reserve(space) } else { Ok(()) }
}

/// Removes a checkpoint's file that is not finished. If that fails, the next opening does it.
pub(super) fn discard(dir: &Dir, sequence: u64) {
    let _ = dir.remove(&unfinished(sequence));
}

/// Writes a checkpoint into the file that [`create`] made, and verifies it. False if `background` was told to stop
/// meanwhile. Nothing of the log depends on the file before [`publish`].
pub(super) fn write(
    dir: &Dir,
    identity: u64,
    start: Start,
    (image, records): (Option<Snapshot>, Vec<Payload>),
    background: &Background,
    written: &AtomicU64,
) -> Result<bool, Failure> {
    let mut output = Output {
        seed: seed(identity, start.sequence),
        file: dir.open_direct(&unfinished(start.sequence))?,
        blocks: Blocks::new(),
        len: 0,
        synced: 0,
        checksum: 0,
        since: Instant::now(),
        background,
        written,
    };
    output.push(&encode_header(identity, start, image.is_some()))?;
    for record in &records {
        output.frame(RECORD_KIND, record.parts())?;
        if !output.step()? {
            return Ok(false);
        }
    }
    let mut pieces = 0u64;
    let mut cursor = image.is_some().then(Bytes::new);
    while let (Some(image), Some(at)) = (&image, &cursor) {
        let Piece { bytes, next } = image.piece(at, PIECE);
        output.frame(PIECE_KIND, &[bytes])?;
        pieces += 1;
        cursor = next;
        if !output.step()? {
            return Ok(false);
        }
    }
    let mut footer = [0; FOOTER];
    footer[..8].copy_from_slice(&(records.len() as u64).to_le_bytes());
    footer[8..16].copy_from_slice(&pieces.to_le_bytes());
    footer[16..].copy_from_slice(&output.checksum.to_le_bytes());
    output.frame(FOOTER_KIND, &[Bytes::copy_from_slice(&footer)])?;
    output.flush()?;
    output.end()?;
    drop((output, records));
    verify(dir, (identity, start.sequence), image, background)
}

/// Lets a checkpoint that was written count, and drops the log before it.
pub(super) fn publish(dir: &Dir, start: Start, pool: &Pool) -> Result<(), Failure> {
    dir.publish(&unfinished(start.sequence), &name(start.sequence))?;
    drop_before(dir, start, pool)
}

/// Reads a file that was just written as the next opening will. False if `background` was told to stop meanwhile.
fn verify(
    dir: &Dir,
    (identity, sequence): (u64, u64),
    image: Option<Snapshot>,
    background: &Background,
) -> Result<bool, Failure> {
    let file = dir.open(&unfinished(sequence))?;
    file.forget_cached();
    let failed = |why: String| {
        file.failure(
            "verify",
            std::io::Error::other(format!("{why}; the log before it is kept, nothing is lost")),
        )
    };
    let damaged = |error| match error {
        StorageError::Corrupt { offset, what, .. } => failed(format!("at offset {offset}, {what}")),
        error => failed(error.to_string()),
    };
    let mut frames = Frames::open(file.clone(), identity, sequence).map_err(damaged)?;
    let (mut damage, mut goes_on) = (None, true);
    let (mut since, mut bytes) = (Instant::now(), 0);
    let mut pieces = std::iter::from_fn(|| {
        while goes_on {
            match frames.next() {
                Ok(Some(frame)) => {
                    bytes += frame.bytes.len();
                    if bytes >= STEP {
                        goes_on = background.rest(since.elapsed());
                        (since, bytes) = (Instant::now(), 0);
                    }
                    if frame.kind == PIECE_KIND {
                        return Some(Bytes::from(frame.bytes).slice(FRAME..));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        None
    });
    let loads = match &image {
        Some(image) => image.verify(&mut pieces),
        None => {
            pieces.by_ref().for_each(drop);
            Ok(())
        }
    };
    // The image may have had enough before the end.
    pieces.for_each(drop);
    match (damage, loads) {
        (Some(error), _) => Err(damaged(error)),
        _ if !goes_on => Ok(false),
        (None, Err(why)) => Err(failed(format!("what was read back cannot be loaded: {why}"))),
        (None, Ok(())) => Ok(true),
    }
}

/// Removes what a checkpoint makes superfluous. The checkpoint's own name must be durable.
pub(super) fn drop_before(dir: &Dir, start: Start, pool: &Pool) -> Result<(), Failure> {
    for name in dir.list()? {
        if let Some(index) = segment::index_of(&name).filter(|&index| index < start.segment) {
            pool.retire(dir, index)?;
        } else if sequence_of(&name).is_some_and(|sequence| sequence < start.sequence) {
            dir.remove(&name)?;
        }
    }
    Ok(())
}

struct Output<'a> {
    /// For whole blocks: nobody reads what is written from the system's cache.
    file: Handle,
    seed: u32,
    blocks: Blocks,
    /// Bytes of the file so far, and of these that are synced.
    len: u64,
    synced: u64,
    checksum: u32,
    since: Instant,
    background: &'a Background,
    written: &'a AtomicU64,
}

impl Output<'_> {
    /// Appends a frame, unless it is longer than the reader accepts.
    fn frame(&mut self, kind: u32, payload: &[Bytes]) -> Result<(), Failure> {
        let len: usize = payload.iter().map(Bytes::len).sum();
        if len > MAX_RECORD {
            let why = format!(
                "a frame of {len} bytes is longer than the {MAX_RECORD} that can be read; this is a bug"
            );
            return Err(self.file.failure("write", std::io::Error::other(why)));
        }
        let (kind, length) = (kind.to_le_bytes(), (len as u64).to_le_bytes());
        let parts = || [&kind[..], &length].into_iter().chain(payload.iter().map(|part| &part[..]));
        let crc = frame_crc(self.seed, self.len, parts()).to_le_bytes();
        self.checksum = crc32c::crc32c_append(self.checksum, &crc);
        for part in [&crc[..]].into_iter().chain(parts()) {
            self.push(part)?;
        }
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.len += bytes.len() as u64;
        self.blocks.push(&self.file, bytes)
    }

    fn step(&mut self) -> Result<bool, Failure> {
        if self.len - self.synced < STEP as u64 {
            return Ok(true);
        }
        self.flush()?;
        let goes_on = self.background.rest(self.since.elapsed());
        self.since = Instant::now();
        Ok(goes_on)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.blocks.flush(&self.file)?;
        self.file.sync()?;
        self.synced = self.len;
        self.written.store(self.len, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what was reserved and not used: the file ends with its footer.
    fn end(&self) -> Result<(), Failure> {
        if self.file.len()? > self.len {
            self.file.truncate(self.len)?;
            self.file.sync()?;
        }
        Ok(())
    }
}

/// A file of any frames, with checksums that fit: kind 3 gives the footer that belongs there, kind 5 raw bytes.
#[cfg(feature = "fuzzing")]
pub(super) fn fuzzed(
    identity: u64,
    (segment, sequence): (u64, u64),
    frames: &[(u32, &[u8])],
    has_image: bool,
) -> Vec<u8> {
    let (seed, start) = (seed(identity, sequence), Start { segment, sequence });
    let mut out = encode_header(identity, start, has_image).to_vec();
    let (mut counts, mut checksum) = ([0u64; 2], 0);
    for &(kind, payload) in frames.iter().chain([&(FOOTER_KIND, &[][..])]) {
        if kind == 5 {
            out.extend_from_slice(payload);
            continue;
        }
        let mut body = payload.to_vec();
        match kind {
            RECORD_KIND | PIECE_KIND => counts[kind as usize - 1] += 1,
            FOOTER_KIND => {
                body = [&counts[0].to_le_bytes()[..], &counts[1].to_le_bytes(), &u32::to_le_bytes(checksum)]
                    .concat()
            }
            _ => {}
        }
        let rest = [&kind.to_le_bytes()[..], &(body.len() as u64).to_le_bytes(), &body].concat();
        let crc = frame_crc(seed, out.len() as u64, [&rest[..]]);
        checksum = crc32c::crc32c_append(checksum, &crc.to_le_bytes());
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&rest);
        if kind == FOOTER_KIND {
            break;
        }
    }
    out
}

/// A checkpoint that was read and found intact.
pub(super) struct Checkpoint {
    pub(super) start: Start,
    pub(super) image: Option<Snapshot>,
    pub(super) records: Vec<Bytes>,
    /// Of its file.
    pub(super) bytes: u64,
}

/// Reads a checkpoint through to its end. The image stays in the file.
pub(super) fn read(dir: &Dir, identity: u64, sequence: u64) -> Result<Checkpoint, StorageError> {
    let mut frames = Frames::open(dir.open(&name(sequence))?, identity, sequence)?;
    let (mut records, mut pieces) = (Vec::new(), Vec::new());
    while let Some(Frame { offset, kind, crc, bytes }) = frames.next()? {
        match kind {
            RECORD_KIND => records.push(Bytes::copy_from_slice(&bytes[FRAME..])),
            _ => pieces.push(Place { offset, len: bytes.len(), crc }),
        }
    }
    let Frames { file, seed, end, start, has_image, .. } = frames;
    let image = has_image.then(|| Arc::new(StoredImage { file, seed, pieces }) as Snapshot);
    Ok(Checkpoint { start, image, records, bytes: end })
}

/// The frames of a checkpoint's file, one after the other, each found intact.
struct Frames {
    file: Handle,
    seed: u32,
    start: Start,
    has_image: bool,
    /// Bytes of the file.
    end: u64,
    offset: u64,
    /// What the footer must say.
    records: u64,
    pieces: u64,
    checksum: u32,
}

/// A record or a piece.
struct Frame {
    offset: u64,
    kind: u32,
    crc: u32,
    /// The frame, from its header on.
    bytes: Vec<u8>,
}

impl Frames {
    fn open(file: Handle, identity: u64, sequence: u64) -> Result<Frames, StorageError> {
        let end = file.len()?;
        let header = file.read(0, HEADER)?;
        let (start, has_image) = check_header(&file, &header, identity, sequence)?;
        let (seed, offset) = (seed(identity, sequence), HEADER as u64);
        Ok(Frames { file, seed, start, has_image, end, offset, records: 0, pieces: 0, checksum: 0 })
    }

    /// The next frame; `None` after the last, if the file ends as it should.
    fn next(&mut self) -> Result<Option<Frame>, StorageError> {
        let offset = self.offset;
        let corrupt = |offset: u64, what: &str| Err(StorageError::corrupt(self.file.path(), offset, what));
        let head = self.file.read(offset, FRAME)?;
        if head.len() < FRAME {
            return corrupt(offset, "the file ends without its footer");
        }
        let (crc, kind, len) = (u32_at(&head, 0), u32_at(&head, 4), u64_at(&head, 8));
        if len > (self.end - offset - FRAME as u64).min(MAX_RECORD as u64) {
            return corrupt(offset, "a frame is longer than it can be");
        }
        let bytes = self.file.read(offset, FRAME + len as usize)?;
        if bytes.len() as u64 != FRAME as u64 + len || frame_crc(self.seed, offset, [&bytes[4..]]) != crc {
            return corrupt(offset, "a frame's checksum is wrong");
        }
        let payload = &bytes[FRAME..];
        let next = offset + bytes.len() as u64;
        match kind {
            RECORD_KIND => self.records += 1,
            PIECE_KIND => self.pieces += 1,
            FOOTER_KIND if payload.len() == FOOTER => {
                let counted = (self.records, self.pieces, self.checksum);
                if (u64_at(payload, 0), u64_at(payload, 8), u32_at(payload, 16)) != counted {
                    return corrupt(offset, "frames are missing");
                }
                if next != self.end {
                    return corrupt(next, "something follows the footer");
                }
                if self.has_image == (self.pieces == 0) {
                    return corrupt(0, "the header and the number of pieces disagree");
                }
                return Ok(None);
            }
            _ => return corrupt(offset, "a frame is of no known kind"),
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &crc.to_le_bytes());
        self.offset = next;
        Ok(Some(Frame { offset, kind, crc, bytes }))
    }
}

fn encode_header(identity: u64, start: Start, has_image: bool) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&identity.to_le_bytes());
    header[24..32].copy_from_slice(&start.sequence.to_le_bytes());
    header[32..40].copy_from_slice(&start.segment.to_le_bytes());
    header[40..48].copy_from_slice(&u64::from(has_image).to_le_bytes());
    let crc = header_crc(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    header
}

fn header_crc(header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

fn check_header(
    file: &Handle,
    header: &[u8],
    identity: u64,
    sequence: u64,
) -> Result<(Start, bool), StorageError> {
    let corrupt = |offset: u64, what: &str| Err(StorageError::corrupt(file.path(), offset, what));
    if header.len() < HEADER {
        return corrupt(header.len() as u64, "the file ends within its header");
    }
    let version = u32_at(header, 8);
    if header[..8] == MAGIC && version > VERSION {
        let path = file.path().to_owned();
        return Err(StorageError::Format { path, found: version.to_string(), supported: VERSION });
    }
    if header[..8] != MAGIC || header_crc(header) != u32_at(header, 12) {
        return corrupt(0, "the snapshot's header has a wrong checksum");
    }
    if u64_at(header, 16) != identity {
        return corrupt(16, "the snapshot belongs to another data directory");
    }
    if u64_at(header, 24) != sequence {
        return corrupt(24, "this is another snapshot under this one's name");
    }
    let segment = u64_at(header, 32);
    if [segment, sequence].iter().any(|number| !NUMBERS.contains(number)) {
        return corrupt(24, "the numbers of its segment and record are none that a log has");
    }
    Ok((Start { segment, sequence }, u64_at(header, 40) == 1))
}

fn seed(identity: u64, sequence: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&identity.to_le_bytes()), &sequence.to_le_bytes())
}

fn frame_crc<'a>(seed: u32, offset: u64, rest: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let seed = crc32c::crc32c_append(seed, &offset.to_le_bytes());
    rest.into_iter().fold(seed, crc32c::crc32c_append)
}

/// An image in a file, verified when the file was opened: pieces come as they were written, whatever the limit. The
/// file stays readable after its name is gone.
struct StoredImage {
    file: Handle,
    seed: u32,
    pieces: Vec<Place>,
}

struct Place {
    offset: u64,
    len: usize,
    crc: u32,
}

impl Image for StoredImage {
    /// # Panics
    /// With a [`StorageError`], if the disk no longer gives what it gave when the image was verified: there is no state
    /// to go on with, and whoever asks for a piece knows no errors. [`load`] catches it.
    fn piece(&self, cursor: &Bytes, _limit: usize) -> Piece {
        let index = match cursor.is_empty() {
            true => 0,
            false => u64::from_bytes(cursor.clone()).expect("a cursor that this image gave") as usize,
        };
        let Place { offset, len, crc } = self.pieces[index];
        let frame = match self.file.read(offset, len) {
            Ok(frame) => frame,
            Err(failure) => resume_unwind(Box::new(StorageError::from(failure))),
        };
        if frame.len() != len || frame_crc(self.seed, offset, [&frame[4..]]) != crc {
            let what = "it changed after it was verified: look for disk errors in the kernel log";
            resume_unwind(Box::new(StorageError::corrupt(self.file.path(), offset, what)));
        }
        let next = (index + 1 < self.pieces.len()).then(|| (index as u64 + 1).to_bytes());
        Piece { bytes: Bytes::from(frame).slice(FRAME..), next }
    }
}

/// Runs what loads an image that is in a file. The error: the disk does not give it any more.
pub fn load<T>(loads: impl FnOnce() -> T) -> Result<T, StorageError> {
    catch_unwind(AssertUnwindSafe(loads)).map_err(|panic| match panic.downcast::<StorageError>() {
        Ok(error) => *error,
        Err(other) => resume_unwind(other),
    })
}

impl std::fmt::Debug for StoredImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredImage({}, {} pieces)", self.file.path().display(), self.pieces.len())
    }
}
