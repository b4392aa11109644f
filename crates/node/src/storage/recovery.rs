//! What a log says after a crash: which records it holds, and whether damage is a torn tail or a loss.
//!
//! Let *e* be the first record that cannot be read where it should be. There are two explanations. Either *e*
//! was in the last write, which was under way at the crash and never synced: a **torn tail**. Nobody relied on it,
//! and the log is cut before *e*. Or *e* was durable, somebody may have relied on it, and the disk lost it:
//! **corruption**. Then the node must not start, because cutting the log would undo promises in silence.
//!
//! "Nothing valid behind *e*" is not the difference: a torn write may well have left a later page and not an earlier
//! one. What tells the two apart is written in the frames. Each carries the number of the last record that was known
//! to be durable when it was written; let *S* be the highest such number in any valid frame of the log, before or
//! behind *e*.
//!
//! - *S* ≥ *e*: a frame was written after *e* was synced. Corruption, refused with the segment and the offset.
//! - *S* < *e*: every frame that can be read was written before any sync that covers *e* had ended, so no
//!   frame contradicts a torn tail. Everything from *e* on is cut, valid frames included: they belong to the
//!   same unfinished write (had its sync ended, and had anything been written since, that frame would say so).
//!
//! What is left open is what was written last before a crash: if its sync ended, and the disk later damages it with
//! all that was written after it, no frame bears witness. To keep that window short the log writes a *mark* when it has
//! been idle for a moment and when it is closed: a frame that says only "all before me is durable". It lies in the same
//! block as the records that it is for, mostly, so the same is written into a file of its own (`witness`).
//!
//! Several segments change nothing in this, because a segment is synced before the next one is written to: any frame
//! in the next one is evidence for all of the one before. A segment that is missing shows as a gap in the indices,
//! since one spare segment always exists behind the one in use; a segment from another directory, or under another's
//! name, or shorter than it was made, is refused by its header.
//!
//! A cut is made durable before anything is appended, and by zeroing bytes in place: if the repair itself is torn, the
//! next opening finds a torn tail with the same *e* again.
//!
//! Records above *S* were read, but maybe only from memory: a process that was killed, or stopped because a sync
//! failed, leaves them in the system's page cache, where after a failed sync they even count as clean. The machine
//! will rely on them from now on, so they are written again and synced before the log opens.

use std::ops::Range;

use bytes::Bytes;

use super::error::StorageError;
use super::files::{Dir, Handle};
use super::segment::{self, Flaw, HEADER, Place, Segment};

/// Where a log begins: the segment, and the number of the first record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) segment: u64,
    pub(super) sequence: u64,
}

/// A log that is intact, or was made so.
pub(super) struct Recovered {
    /// In order.
    pub(super) records: Vec<Bytes>,
    /// The number of the next record.
    pub(super) next: u64,
    /// The segment to append to.
    pub(super) segment: Segment,
    /// Where to append.
    pub(super) offset: u64,
    /// Whether a record is in that segment.
    pub(super) begun: bool,
    /// Empty segments behind it, in order.
    pub(super) spares: Vec<Segment>,
    /// Bytes of an unfinished write that were cut.
    pub(super) cut: u64,
}

/// Reads the log from a start on, decides what damage means, and repairs a torn tail. `witness`: the last record that
/// is known to have been durable.
pub(super) fn recover(
    dir: &Dir,
    identity: u64,
    start: Start,
    witness: u64,
) -> Result<Recovered, StorageError> {
    let indices: Vec<u64> = dir.list()?.iter().filter_map(|name| segment::index_of(name)).collect();
    let mut expected = start.segment;
    for &index in indices.iter().filter(|&&index| index >= start.segment) {
        if index != expected {
            return Err(missing(dir, expected, format!("{} is there", segment::name(index))));
        }
        expected += 1;
    }
    if expected == start.segment {
        return Err(missing(dir, expected, "the log continues there".to_owned()));
    }
    let mut reading = Reading {
        identity,
        records: Vec::new(),
        next: start.sequence,
        synced: witness.max(start.sequence - 1),
        segments: Vec::new(),
        tail: None,
        end: None,
        broken: false,
    };
    for index in start.segment..expected {
        reading.segment(dir.open(&segment::name(index))?, index)?;
    }
    reading.finish()
}

fn missing(dir: &Dir, index: u64, evidence: String) -> StorageError {
    StorageError::Missing { path: dir.path(&segment::name(index)), evidence }
}

struct Reading {
    identity: u64,
    records: Vec<Bytes>,
    /// The record that is looked for.
    next: u64,
    /// The last record that a frame, or the witness, says was durable (*S* in the file comment).
    synced: u64,
    segments: Vec<Read>,
    /// Where the valid frames end.
    tail: Option<Tail>,
    /// Where `next` should begin, and what is there instead.
    end: Option<(Handle, usize, Flaw)>,
    /// Whether a frame is behind that.
    broken: bool,
}

struct Read {
    segment: Segment,
    /// From the first byte behind the log to the last that belongs to a frame.
    rest: Range<usize>,
}

struct Tail {
    /// Which of `segments`.
    segment: usize,
    offset: usize,
    /// Whether a record is in the segment before.
    begun: bool,
    /// The bytes before `offset` that are not known to be durable.
    unsure: Vec<u8>,
}

impl Reading {
    fn segment(&mut self, file: Handle, index: u64) -> Result<(), StorageError> {
        let bytes = file.read_all()?;
        let capacity = segment::check_header(&file, &bytes, self.identity, index)?;
        let place = Place::new(self.identity, index);
        let offset = if self.broken { HEADER } else { self.chain(&file, &bytes, place) };
        let mut end = place.claim(&bytes, offset).min(bytes.len());
        for frame in place.search(&bytes, offset..bytes.len()) {
            if frame.sequence < self.next {
                let flaw = Flaw::Order { found: frame.sequence };
                let what = meaning(flaw, self.next, self.synced.max(frame.synced));
                return Err(StorageError::corrupt(file.path(), frame.start() as u64, what));
            }
            self.synced = self.synced.max(frame.synced);
            self.broken = true;
            end = frame.end.min(bytes.len());
        }
        self.segments.push(Read { segment: Segment { file, index, capacity }, rest: offset..end });
        Ok(())
    }

    /// Takes the frames that follow on those before. Gives the offset behind them.
    fn chain(&mut self, file: &Handle, bytes: &[u8], place: Place) -> usize {
        let (mut offset, mut begun) = (HEADER, false);
        let mut starts: Vec<(u64, usize)> = Vec::new();
        let flaw = loop {
            match place.read(bytes, offset) {
                Ok(frame) if frame.sequence == self.next => {
                    self.synced = self.synced.max(frame.synced);
                    if let Some(payload) = frame.payload {
                        starts.push((frame.sequence, offset));
                        // A copy: records live on in the store, and must not keep the whole segment in memory.
                        self.records.push(Bytes::copy_from_slice(&bytes[payload]));
                        self.next += 1;
                        begun = true;
                    }
                    offset = frame.end;
                }
                Ok(frame) => break Flaw::Order { found: frame.sequence },
                Err(flaw) => break flaw,
            }
        };
        let begins_nothing = offset == HEADER && self.tail.is_some();
        // A segment is left when the next record does not fit: then that one begins the next segment.
        // What is behind a segment used again looks like damage: then only a head says that the next one was reached.
        let begins = self.end.as_ref().is_some_and(|(_, _, before)| match before {
            Flaw::Blank => flaw != Flaw::Blank,
            Flaw::Head => matches!(flaw, Flaw::Payload | Flaw::Short),
            _ => false,
        });
        if !begins_nothing || begins {
            self.end = Some((file.clone(), offset, flaw));
        }
        if begins_nothing {
            return offset;
        }
        let known = starts.partition_point(|&(sequence, _)| sequence <= self.synced);
        let unsure = starts.get(known).map_or(offset, |&(_, start)| start);
        self.tail = Some(Tail {
            segment: self.segments.len(),
            offset,
            begun,
            unsure: bytes[unsure..offset].to_vec(),
        });
        offset
    }

    fn finish(self) -> Result<Recovered, StorageError> {
        if let Some((file, offset, flaw)) = self.end
            && self.synced >= self.next
        {
            let what = meaning(flaw, self.next, self.synced);
            return Err(StorageError::corrupt(file.path(), offset as u64, what));
        }
        let tail = self.tail.expect("there is at least one segment");
        let mut cut = 0;
        let mut segments = Vec::new();
        for (number, Read { segment, rest }) in self.segments.into_iter().enumerate().skip(tail.segment) {
            let unsure: &[u8] = if number == tail.segment { &tail.unsure } else { &[] };
            if !rest.is_empty() {
                segment.file.write_slice(&vec![0; rest.len()], rest.start as u64)?;
                cut += rest.len() as u64;
            }
            if !unsure.is_empty() {
                segment.file.write_slice(unsure, (tail.offset - unsure.len()) as u64)?;
            }
            if !rest.is_empty() || !unsure.is_empty() {
                segment.file.sync()?;
            }
            segments.push(segment);
        }
        let mut segments = segments.into_iter();
        Ok(Recovered {
            records: self.records,
            next: self.next,
            segment: segments.next().expect("the tail's"),
            offset: tail.offset as u64,
            begun: tail.begun,
            spares: segments.collect(),
            cut,
        })
    }
}

fn meaning(flaw: Flaw, expected: u64, synced: u64) -> String {
    let found = match flaw {
        Flaw::Blank => "there is nothing".to_owned(),
        Flaw::Head => "its header has a wrong checksum".to_owned(),
        Flaw::Payload => "its checksum is wrong".to_owned(),
        Flaw::Short => "it ends behind the file's end".to_owned(),
        Flaw::Order { found } => format!("record {found} is there"),
    };
    format!("record {expected} should begin here, but {found}, and records up to {synced} were durable")
}
