//! Appends to the log, one group of records at a time: one write (a large group takes several), one sync. Knows no
//! threads but the one that makes the next segment meanwhile.
//!
//! What is synced is written in whole blocks, past the system's cache where that is possible (`blocks`): a copy there
//! would never be read, and costs as much as the rest of a sync. So each write repeats the block in which the one
//! before ended. A crash may tear that block like any other, but its first bytes are the same in both writes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use quorate_core::Payload;
use rustix::io::Errno;
use tracing::{info, warn};

use super::SMALLEST_SEGMENT;
use super::background::Background;
use super::blocks::{BLOCK, Blocks};
use super::error::Failure;
use super::files::{Dir, Handle};
use super::pool::Pool;
use super::recovery::{Recovered, Start};
use super::segment::{self, FRAME, HEADER, Place, Segment, frame_len};
use super::witness::Witness;

/// A group is no larger (but for a single record), so that waiting for the disk stays short.
const GROUP: u64 = 16 << 20;

/// How a [`Writer`] works.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    /// Whether groups are synced, or only written.
    pub(super) sync: bool,
    /// Bytes of a new segment, or fewer: each is made twice as large as the one before until then.
    pub(super) segment_bytes: u64,
    /// How many segments are made ahead.
    pub(super) spares: usize,
    /// Whether they are made in a thread of their own.
    pub(super) background: bool,
}

/// See the file comment.
pub(super) struct Writer {
    dir: Dir,
    identity: u64,
    mode: Mode,
    segment: Segment,
    /// Its file, as records are written to it.
    file: Handle,
    blocks: Blocks,
    place: Place,
    offset: u64,
    /// Whether a record is in the segment.
    begun: bool,
    pool: Arc<Pool>,
    spares: VecDeque<Segment>,
    coming: Option<Coming>,
    /// There was no room on the disk for the last spare that was ordered.
    short: Option<Short>,
    /// Bytes of the largest segment that this writer has had.
    largest: u64,
    /// The number of the next record.
    next: u64,
    /// Records before this one are covered by a mark.
    marked: u64,
    /// Where nothing is synced, nothing is durable.
    witness: Option<Witness>,
}

/// A spare that could not be made is no reason to stop: what is written has room in the present segment. It is tried
/// again when so much more has been written, and when it is needed.
struct Short {
    /// Bytes of records until the next attempt.
    left: u64,
}

/// A spare leaves so many bytes free: a snapshot can begin then (`LEAST_ROOM` of the journal), and makes room once keys
/// are deleted.
pub(super) const LEAST_FREE: u64 = 2 << 20;

/// So many times while a segment is filled, it is tried to make a spare on a disk that was full.
const ATTEMPTS: u64 = 16;

struct Coming {
    background: Arc<Background>,
    thread: JoinHandle<Result<Option<Segment>, Failure>>,
}

impl Writer {
    /// Goes on where recovery ended.
    pub(super) fn new(
        dir: Dir,
        identity: u64,
        mode: Mode,
        recovered: Recovered,
        pool: Arc<Pool>,
    ) -> Result<Writer, Failure> {
        let Recovered { next, segment, offset, begun, spares, .. } = recovered;
        let (file, mut blocks) = (open(&dir, mode, &segment)?, Blocks::new());
        blocks.resume(&segment.file, offset)?;
        let mut witness = mode.sync.then(|| Witness::new(dir.clone(), identity));
        if let Some(witness) = &mut witness {
            witness.say(next - 1);
        }
        let mut writer = Writer {
            place: Place::new(identity, segment.index),
            file,
            blocks,
            dir,
            identity,
            mode,
            largest: segment.capacity,
            segment,
            offset,
            begun,
            pool,
            spares: spares.into(),
            coming: None,
            short: None,
            next,
            marked: 0,
            witness,
        };
        writer.order_spare()?;
        Ok(writer)
    }

    /// The last record that was written; durable, too, as far as this log's durability goes.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Writes the first of some records, as many as make a good group, and syncs them. Gives their number.
    pub(super) fn write(&mut self, records: &[Payload]) -> Result<usize, Failure> {
        if !self.has_room(self.offset, &records[0]) {
            self.roll()?;
        }
        let synced = self.last();
        let (mut end, mut count) = (self.offset, 0);
        for record in records {
            let len = frame_len(record);
            if count > 0 && (end - self.offset + len > GROUP || !self.has_room(end, record)) {
                break;
            }
            let head = self.place.record(end, self.next + count as u64, synced, record);
            let padding = len as usize - head.len() - record.len();
            self.blocks.push(&self.file, &head)?;
            for part in record.parts() {
                self.blocks.push(&self.file, part)?;
            }
            self.blocks.push(&self.file, &[0; segment::ALIGN][..padding])?;
            (end, count) = (end + len, count + 1);
        }
        self.blocks.flush(&self.file)?;
        if self.mode.sync {
            self.file.sync()?;
        }
        self.dir.check_path()?;
        let written = end - self.offset;
        (self.offset, self.begun, self.next) = (end, true, self.next + count as u64);
        self.try_again(written)?;
        Ok(count)
    }

    /// Whether there was no room on the disk for the log's next segment.
    pub(super) fn is_short(&self) -> bool {
        self.short.is_some()
    }

    /// Looks after a spare for which there was no room: there may be some now.
    pub(super) fn look_for_room(&mut self) -> Result<(), Failure> {
        self.receive(false)?;
        if self.short.is_some() {
            self.order_spare()?;
        }
        Ok(())
    }

    /// Whether a mark would say something that no frame says yet.
    pub(super) fn wants_mark(&self) -> bool {
        self.marked < self.next
    }

    /// Writes evidence that everything so far is durable. It need not be durable itself.
    pub(super) fn mark(&mut self) -> Result<(), Failure> {
        self.marked = self.next;
        if self.offset + FRAME as u64 <= self.segment.capacity {
            self.blocks.push(&self.file, &self.place.mark(self.offset, self.next))?;
            self.blocks.flush(&self.file)?;
            self.offset += FRAME as u64;
        }
        let last = self.last();
        if let Some(witness) = &mut self.witness {
            witness.say(last);
        }
        Ok(())
    }

    /// Lets the next record begin a segment, so that everything before it can be dropped.
    pub(super) fn cut(&mut self) -> Result<Start, Failure> {
        if self.begun {
            self.roll()?;
        }
        Ok(Start { segment: self.segment.index, sequence: self.next })
    }

    fn has_room(&self, offset: u64, record: &Payload) -> bool {
        offset + frame_len(record) <= self.segment.capacity || offset == HEADER as u64
    }

    fn roll(&mut self) -> Result<(), Failure> {
        // Everything in the old segment is synced: frames in the new one are evidence for it.
        self.segment = self.take_spare()?;
        self.largest = self.largest.max(self.segment.capacity);
        self.file = open(&self.dir, self.mode, &self.segment)?;
        self.blocks.begin(HEADER as u64);
        self.place = Place::new(self.identity, self.segment.index);
        (self.offset, self.begun) = (HEADER as u64, false);
        self.order_spare()
    }

    fn take_spare(&mut self) -> Result<Segment, Failure> {
        self.receive(false)?;
        for _ in 0..2 {
            if let Some(spare) = self.spares.pop_front() {
                return Ok(spare);
            }
            // One that is on its way may find no room; this one is needed, so there is one more attempt.
            self.order_spare()?;
            self.receive(true)?;
        }
        let small = if self.short.is_some() { self.make_small()? } else { None };
        small.ok_or_else(|| self.failure(std::io::Error::other("it was given up")))
    }

    /// The largest segment for which there is room, where there is none for a usual one. The disk stays short: what
    /// fits into it lets a snapshot begin, which makes room.
    fn make_small(&self) -> Result<Option<Segment>, Failure> {
        let (index, mut capacity) = (self.segment.index + 1, self.largest);
        while capacity > SMALLEST_SEGMENT {
            capacity = (capacity / 2).next_multiple_of(BLOCK as u64);
            match segment::prepare(&self.dir, self.identity, index, capacity, &Background::hurried()) {
                Err(failure) if failure.is_full() => {}
                made => return made,
            }
        }
        Err(self.failure(Errno::NOSPC.into()))
    }

    /// Takes the segment that was ordered, if it is ready; if `wait`, when it is.
    fn receive(&mut self, wait: bool) -> Result<(), Failure> {
        let ready = self.coming.as_ref().is_some_and(|coming| wait || coming.thread.is_finished());
        let Some(coming) = self.coming.take_if(|_| ready) else { return Ok(()) };
        let Coming { background, thread } = coming;
        background.hurry();
        let made = thread.join();
        let made = made.unwrap_or_else(|_| Err(self.failure(std::io::Error::other("its thread panicked"))));
        self.take_in(made)
    }

    /// Keeps a segment that was made. That there was no room for it is noted and said.
    fn take_in(&mut self, made: Result<Option<Segment>, Failure>) -> Result<(), Failure> {
        match made {
            Err(failure) if failure.is_full() => {
                if self.short.is_none() {
                    let room = self.segment.capacity - self.offset;
                    warn!(
                        room,
                        "{failure}. The log goes on while its present segment has room: {room} bytes"
                    );
                }
                self.short = Some(Short { left: self.segment.capacity / ATTEMPTS });
            }
            made => {
                self.spares.extend(made?);
                if self.short.take().is_some() {
                    info!("the disk has room again: the log's next segment is there");
                }
            }
        }
        Ok(())
    }

    /// After so many more bytes: looks after a spare for which there was no room.
    fn try_again(&mut self, written: u64) -> Result<(), Failure> {
        self.receive(false)?;
        let Some(short) = &mut self.short else { return Ok(()) };
        short.left = short.left.saturating_sub(written);
        if short.left == 0 && self.coming.is_none() {
            short.left = self.segment.capacity / ATTEMPTS;
            self.order_spare()?;
        }
        Ok(())
    }

    /// Sees to it that enough further segments are there, or on their way.
    fn order_spare(&mut self) -> Result<(), Failure> {
        self.receive(false)?;
        let wanted = if self.pool.has_room() { self.mode.spares } else { 1 };
        if self.spares.len() >= wanted || self.coming.is_some() {
            return Ok(());
        }
        // Zeros cost the disk as much as a log does: a node that writes little makes few.
        let last = self.spares.back().map_or(self.largest, |spare| spare.capacity.max(self.largest));
        let (dir, identity, capacity) = (
            self.dir.clone(),
            self.identity,
            last.saturating_mul(2).clamp(SMALLEST_SEGMENT, self.mode.segment_bytes),
        );
        let index = self.segment.index + 1 + self.spares.len() as u64;
        let pool = self.pool.clone();
        let make = move |pace: &Background| match pool.recycle(&dir, identity, index, capacity)? {
            Some(segment) => Ok(Some(segment)),
            None if dir.room()?.free < capacity.saturating_add(LEAST_FREE) => {
                Err(Failure::new("make", dir.path(&segment::name(index)), Errno::NOSPC.into()))
            }
            None => segment::prepare(&dir, identity, index, capacity, pace),
        };
        if !self.mode.background {
            return self.take_in(make(&Background::hurried()));
        }
        let background = Arc::new(Background::default());
        let pace = background.clone();
        let spawned = thread::Builder::new().name("wal-segment".to_owned()).spawn(move || make(&pace));
        let thread = spawned.map_err(|error| {
            Failure::new("start a thread to make", self.dir.path(&segment::name(index)), error)
        })?;
        self.coming = Some(Coming { background, thread });
        Ok(())
    }

    fn failure(&self, why: std::io::Error) -> Failure {
        Failure::new("make", self.dir.path(&segment::name(self.segment.index + 1)), why)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(Coming { background, thread }) = self.coming.take() {
            background.stop();
            // What it says no longer matters: an unfinished segment is removed at the next opening.
            let _ = thread.join();
        }
    }
}

/// The file of a segment, for records.
fn open(dir: &Dir, mode: Mode, segment: &Segment) -> Result<Handle, Failure> {
    // What is not synced is to stay in memory until the system thinks fit.
    if mode.sync { dir.open_direct(&segment::name(segment.index)) } else { Ok(segment.file.clone()) }
}
