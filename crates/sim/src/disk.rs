//! One node's durable state: a log of encoded records and the last checkpoint (an image and the records kept with
//! it).
//!
//! Written is not durable. One sync runs at a time and covers what was written before it started; records that gather
//! meanwhile share the next one (group commit). A crash keeps everything synced, a random prefix of the rest, and may
//! leave a torn record behind it. Recovery cuts the log at the first record whose checksum is wrong.
//!
//! Which records come here, and which of them a replica may rely on, is kept by the node's own bookkeeping
//! ([`RecordLedger`](quorate_runtime::RecordLedger)).

use std::sync::Arc;

use bytes::Bytes;
use quorate_check::{MILLISECOND, Nanos};
use quorate_core::{Image, Payload, Piece, Random, Rate, Saved, Snapshot, Wire, digest, mutation};

use crate::network::Latency;

/// No space is left: for a record, and the node stops; or for a checkpoint, which is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// How long a disk without faults takes.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// To write a piece of an image.
    pub write: Latency,
    /// To make what was written durable.
    pub sync: Latency,
    /// How fast the bytes of records become durable, beside that; none for at once.
    pub bandwidth: Option<Rate>,
}

/// See the file comment. Records are numbered from 0 in the order of their appending, through the node's whole life.
#[derive(Clone, Debug)]
pub struct Disk {
    speed: Speed,
    random: Random,
    image: Option<Snapshot>,
    /// Records that the checkpoint keeps from before [`base`](Self::base).
    kept: Vec<Entry>,
    log: Vec<Entry>,
    /// The number of the first record in `log`.
    base: u64,
    /// Records below this are durable.
    synced: u64,
    /// The sync that runs covers records below this.
    syncing: Option<u64>,
    checkpoint: Option<Checkpoint>,
    slowness: u64,
    slow_until: Nanos,
    full_until: Nanos,
    nearly_full_until: Nanos,
    hangs: bool,
    /// Whether a replica has started on it.
    opened: bool,
    /// See [`Disk::busy_until`].
    busy_until: Nanos,
}

#[derive(Clone, Debug)]
struct Entry {
    bytes: Bytes,
    checksum: u64,
}

impl Entry {
    fn new(bytes: Bytes) -> Entry {
        Entry { checksum: digest(&bytes), bytes }
    }

    fn is_intact(&self) -> bool {
        digest(&self.bytes) == self.checksum
    }
}

/// A checkpoint that is being written.
#[derive(Clone, Debug)]
struct Checkpoint {
    image: Option<Snapshot>,
    /// Where to go on; `None` when all pieces are written.
    cursor: Option<Bytes>,
    limit: usize,
    pieces: Vec<Bytes>,
    kept: Vec<Entry>,
    /// Records below this are dropped once it is durable.
    upto: u64,
    last_sync: bool,
}

/// An image as it was written: its pieces, at the cursors they were read with.
#[derive(Debug)]
pub struct StoredImage(pub Vec<Bytes>);

impl Image for StoredImage {
    fn piece(&self, cursor: &Bytes, _limit: usize) -> Piece {
        let index = if cursor.is_empty() {
            0
        } else {
            u32::from_bytes(cursor.clone()).expect("a cursor that this image gave") as usize
        };
        let next = (index + 1 < self.0.len()).then(|| (index as u32 + 1).to_bytes());
        Piece { bytes: self.0[index].clone(), next }
    }
}

/// What writing a piece of a checkpoint came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on at this instant.
    At(Nanos),
    /// It is durable, and the log is cut.
    Done,
}

impl Disk {
    /// An empty disk.
    pub fn new(speed: Speed, random: Random) -> Disk {
        Disk {
            speed,
            random,
            image: None,
            kept: Vec::new(),
            log: Vec::new(),
            base: 0,
            synced: 0,
            syncing: None,
            checkpoint: None,
            slowness: 1,
            slow_until: 0,
            full_until: 0,
            nearly_full_until: 0,
            hangs: false,
            opened: false,
            busy_until: 0,
        }
    }

    /// From now on a sync takes so long; one that runs ends as it was to.
    pub fn change_sync(&mut self, sync: Nanos) {
        self.speed.sync = Latency::Uniform { low: sync, high: sync };
    }

    /// A replica that starts on it begins with this.
    pub fn found(&mut self, saved: Saved<Payload>) {
        let records = saved.records.into_iter().map(|record| Entry::new(record.into_bytes()));
        (self.image, self.kept, self.opened) = (saved.snapshot, records.collect(), true);
    }

    /// Everything on it is gone.
    pub fn wipe(&mut self) {
        let random = self.random.fork();
        *self = Disk::new(self.speed, random);
    }

    /// A replica starts on it. Whether it is the first one.
    pub fn open(&mut self) -> bool {
        !std::mem::replace(&mut self.opened, true)
    }

    /// When a small file is durable that is written beside the log from now on; `None` if the disk hangs.
    pub fn write_file(&mut self, now: Nanos) -> Option<Nanos> {
        // Its content, then its name.
        let latency = self.latency(self.speed.sync, now) + self.latency(self.speed.sync, now);
        let end = now.max(self.full_until) + latency;
        if self.hangs {
            return None;
        }
        Some(self.occupy(end))
    }

    /// Multiplies latencies for a while.
    pub fn slow(&mut self, until: Nanos, slowness: u64) {
        (self.slowness, self.slow_until) = (slowness, until);
    }

    /// Has no space for a while.
    pub fn fill(&mut self, until: Nanos) {
        self.full_until = until;
    }

    /// Has little space for a while.
    pub fn nearly_fill(&mut self, until: Nanos) {
        self.nearly_full_until = until;
    }

    /// Whether it has little space.
    pub fn is_nearly_full(&self, now: Nanos) -> bool {
        now < self.nearly_full_until
    }

    /// Finishes no sync from now on, but for one that runs.
    pub fn hang(&mut self) {
        self.hangs = true;
    }

    /// Whether it finishes no sync any more.
    pub fn hangs(&self) -> bool {
        self.hangs
    }

    /// Whether it has no space.
    pub fn is_full(&self, now: Nanos) -> bool {
        now < self.full_until
    }

    /// When there is space again.
    pub fn full_until(&self) -> Nanos {
        self.full_until
    }

    /// Ends all faults.
    pub fn heal(&mut self) {
        (self.slow_until, self.full_until, self.nearly_full_until) = (0, 0, 0);
    }

    /// How many records were written so far.
    pub fn written(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Records below this are durable.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Records written since the last checkpoint that are still in the log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Writes records, which the next sync makes durable. An error while the disk is full.
    pub fn append(&mut self, records: Vec<Payload>, now: Nanos) -> Result<(), Full> {
        if self.is_full(now) && !records.is_empty() {
            return Err(Full);
        }
        self.log.extend(records.into_iter().map(|record| Entry::new(record.into_bytes())));
        Ok(())
    }

    /// Starts a sync if one is needed and none runs; tells when it ends.
    pub fn start_sync(&mut self, now: Nanos) -> Option<Nanos> {
        if self.syncing.is_some() || self.synced == self.written() || self.hangs {
            return None;
        }
        self.syncing = Some(self.written());
        let end = now + self.latency(self.speed.sync, now) + self.transfer();
        Some(self.occupy(end))
    }

    /// How long the bytes of the records that are not durable take.
    fn transfer(&self) -> Nanos {
        let Some(rate) = self.speed.bandwidth else { return 0 };
        let fresh = self.log.iter().skip((self.synced - self.base.min(self.synced)) as usize);
        rate.transmission(fresh.map(|entry| entry.bytes.len()).sum()).as_nanos() as Nanos
    }

    /// When the last ends of what it is at work on, or was: syncs of the log and of files beside it, pieces of a
    /// checkpoint and its sync.
    pub fn busy_until(&self) -> Nanos {
        self.busy_until
    }

    /// Discards the records that are durable: where no node starts again, nobody reads them.
    pub fn discard_synced(&mut self) {
        self.log.drain(..(self.synced - self.base) as usize);
        self.base = self.synced;
    }

    /// The sync that runs has ended.
    pub fn finish_sync(&mut self) {
        self.synced = self.syncing.take().expect("a sync runs");
    }

    fn latency(&mut self, latency: Latency, now: Nanos) -> Nanos {
        latency.draw(&mut self.random) * if now < self.slow_until { self.slowness } else { 1 }
    }

    /// Whether a checkpoint is being written.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Starts to write a checkpoint in pieces of about `limit` bytes; [`write_checkpoint`](Disk::write_checkpoint)
    /// goes on with it.
    pub fn start_checkpoint(&mut self, image: Option<Snapshot>, kept: Vec<Bytes>, limit: usize) {
        assert!(self.checkpoint.is_none(), "one checkpoint at a time");
        self.checkpoint = Some(Checkpoint {
            cursor: image.is_some().then(Bytes::new),
            image,
            limit,
            pieces: Vec::new(),
            kept: kept.into_iter().map(Entry::new).collect(),
            upto: self.written(),
            last_sync: false,
        });
    }

    /// Writes the next piece. The last one is followed by a sync; only then does the checkpoint replace the old one,
    /// at once. An error while the disk is full: then it is given up, and nothing of it is left.
    pub fn write_checkpoint(&mut self, now: Nanos) -> Result<Progress, Full> {
        if self.is_full(now) {
            self.checkpoint = None;
            return Err(Full);
        }
        let write = self.latency(self.speed.write, now);
        let sync = self.latency(self.speed.sync, now);
        let checkpoint = self.checkpoint.as_mut().expect("a checkpoint is being written");
        if let (Some(image), Some(cursor)) = (&checkpoint.image, &checkpoint.cursor) {
            let Piece { bytes, next } = image.piece(cursor, checkpoint.limit);
            checkpoint.pieces.push(bytes);
            checkpoint.cursor = next;
            return Ok(Progress::At(self.occupy(now + write)));
        }
        if self.hangs {
            return Ok(Progress::At(now + 1000 * MILLISECOND));
        }
        if !checkpoint.last_sync {
            checkpoint.last_sync = true;
            return Ok(Progress::At(self.occupy(now + sync)));
        }
        if self.synced < checkpoint.upto {
            // The log is only cut where it is durable.
            return Ok(Progress::At(now + MILLISECOND));
        }
        let Checkpoint { image, pieces, kept, upto, .. } = self.checkpoint.take().expect("it is there");
        self.image = image.map(|_| Arc::new(StoredImage(pieces)) as Snapshot);
        self.kept = kept;
        self.log.drain(..(upto - self.base) as usize);
        self.base = upto;
        Ok(Progress::Done)
    }

    /// Something that it has begun ends then.
    fn occupy(&mut self, end: Nanos) -> Nanos {
        self.busy_until = self.busy_until.max(end);
        end
    }

    /// The node dies. True if it leaves a torn record behind; only `may_tear` allows that.
    pub fn crash(&mut self, may_tear: bool) -> bool {
        self.checkpoint = None;
        self.syncing = None;
        let end = self.random.range(self.synced..self.written() + 1);
        let tears = may_tear && end < self.written() && self.random.chance(0.7);
        self.log.truncate((end - self.base) as usize + usize::from(tears));
        if tears {
            let entry = self.log.last_mut().expect("the torn one");
            entry.bytes = damage(&entry.bytes, &mut self.random);
            return !entry.is_intact();
        }
        false
    }

    /// What is left after a crash, checked and cut; durable from now on.
    pub fn recover(&mut self, is_record: impl Fn(&Bytes) -> bool) -> Saved<Bytes> {
        let mut records: Vec<_> = self.kept.iter().map(|entry| entry.bytes.clone()).collect();
        let mut intact = 0;
        for entry in &mut self.log {
            if !entry.is_intact() {
                if !mutation::active("disk/torn-record-accepted") || !is_record(&entry.bytes) {
                    break;
                }
                entry.checksum = digest(&entry.bytes);
            }
            records.push(entry.bytes.clone());
            intact += 1;
        }
        self.log.truncate(intact);
        self.synced = self.written();
        Saved { restarted: true, snapshot: self.image.clone(), records }
    }
}

/// What a write that was cut short leaves: a part, a part with zeros after it, or a flipped bit.
fn damage(bytes: &Bytes, random: &mut Random) -> Bytes {
    if bytes.is_empty() {
        return Bytes::from_static(b"?");
    }
    let at = random.range(0..bytes.len() as u64) as usize;
    let mut damaged = bytes.to_vec();
    match random.range(0..4) {
        0 => damaged.truncate(at),
        1 => damaged[at] ^= 1 << random.range(0..8),
        _ => damaged[at..].fill(0),
    }
    damaged.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: Speed = Speed {
        write: Latency::Uniform { low: 10, high: 20 },
        sync: Latency::Uniform { low: 1000, high: 2000 },
        bandwidth: None,
    };

    fn disk(seed: u64) -> Disk {
        Disk::new(SPEED, Random::new(seed))
    }

    fn append(disk: &mut Disk, records: std::ops::Range<u64>) {
        for record in records {
            // Large, so that damage shows.
            let record = Payload::of(&(record, Bytes::from(vec![record as u8 + 1; 100])));
            disk.append(vec![record], 0).unwrap();
        }
    }

    fn decode(record: &Bytes) -> Option<(u64, Bytes)> {
        Wire::from_bytes(record.clone()).ok()
    }

    fn recover(disk: &mut Disk) -> Vec<(u64, Bytes)> {
        let saved = disk.recover(|record| decode(record).is_some());
        saved.records.iter().map(|record| decode(record).unwrap()).collect()
    }

    fn records(disk: &mut Disk) -> Vec<u64> {
        let records = recover(disk);
        for (number, payload) in &records {
            assert!(payload.iter().all(|byte| u64::from(*byte) == number + 1), "damage came through");
        }
        records.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_crash_keeps_what_is_synced_and_some_prefix_of_the_rest() {
        let (mut seen, mut torn) = (std::collections::BTreeSet::new(), 0);
        for seed in 0..200 {
            let mut disk = disk(seed);
            append(&mut disk, 0..3);
            assert!(disk.start_sync(0).is_some_and(|at| (1000..2000).contains(&at)));
            append(&mut disk, 3..6);
            assert_eq!(disk.start_sync(500), None, "one at a time");
            disk.finish_sync();
            assert_eq!((disk.synced(), disk.written()), (3, 6));
            torn += u64::from(disk.crash(true));
            let left = records(&mut disk);
            assert!(left.len() >= 3 && left.iter().copied().eq(0..left.len() as u64), "{left:?}");
            assert_eq!(disk.synced(), disk.written(), "what was recovered stays");
            seen.insert(left.len());
            append(&mut disk, left.len() as u64..10);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert!(torn > 50, "{torn}");
    }

    #[test]
    fn a_node_may_die_again_before_it_has_read_what_is_left() {
        for seed in 0..50 {
            let mut disk = disk(seed);
            append(&mut disk, 0..2);
            disk.start_sync(0).unwrap();
            disk.finish_sync();
            append(&mut disk, 2..6);
            disk.crash(true);
            disk.crash(true);
            assert!(records(&mut disk).len() >= 2);
        }
    }

    #[test]
    fn a_checkpoint_replaces_the_records_before_it_at_once_or_not_at_all() {
        for crash_after in 0..6 {
            let mut disk = disk(crash_after);
            append(&mut disk, 0..4);
            disk.start_sync(0).unwrap();
            disk.finish_sync();
            let image: Snapshot = Arc::new(StoredImage(vec!["ab".into(), "cd".into()]));
            let kept = (2u64, Bytes::from(vec![3; 100])).to_bytes();
            disk.start_checkpoint(Some(image), vec![kept], 2);
            append(&mut disk, 4..5);
            disk.start_sync(0).unwrap();
            disk.finish_sync();
            let mut done = false;
            for now in 0..crash_after {
                if !done {
                    done = disk.write_checkpoint(now) == Ok(Progress::Done);
                }
            }
            disk.crash(true);
            let expected: &[u64] = if done { &[2, 4] } else { &[0, 1, 2, 3, 4] };
            assert_eq!(records(&mut disk), expected, "crash after {crash_after} steps");
            assert_eq!(done, crash_after >= 4);
            if let Some(image) = disk.recover(|_| true).snapshot {
                let first = image.piece(&Bytes::new(), 1);
                let second = image.piece(&first.next.expect("two pieces"), 1);
                assert_eq!(
                    (&first.bytes[..], &second.bytes[..], second.next),
                    (&b"ab"[..], &b"cd"[..], None)
                );
            }
        }
    }

    #[test]
    fn the_log_is_not_cut_before_it_is_durable() {
        let mut disk = disk(1);
        append(&mut disk, 0..2);
        disk.start_checkpoint(None, Vec::new(), 1);
        for now in 0..10 {
            assert!(matches!(disk.write_checkpoint(now), Ok(Progress::At(_))));
        }
        disk.start_sync(10).unwrap();
        disk.finish_sync();
        assert_eq!(disk.write_checkpoint(11), Ok(Progress::Done));
        assert_eq!(disk.log_len(), 0);
    }

    #[test]
    fn a_full_disk_takes_nothing_until_there_is_space_and_a_slow_one_takes_longer() {
        let mut disk = disk(1);
        disk.fill(100);
        let records = || vec![Payload::Whole(Bytes::new())];
        assert_eq!(disk.append(records(), 99), Err(Full));
        assert_eq!(disk.append(records(), 100), Ok(()));
        disk.slow(10_000, 50);
        assert!(disk.start_sync(0).is_some_and(|at| at >= 50_000));
    }

    /// Seed 7644 of the simulator, RSPaxos: what a slow disk has begun goes on when faults are over, pieces of
    /// checkpoints too.
    #[test]
    fn a_slow_disk_is_busy_until_all_that_it_has_begun_ends() {
        let mut disk = disk(1);
        disk.slow(100, 1000);
        disk.start_checkpoint(None, Vec::new(), 100);
        let Ok(Progress::At(end)) = disk.write_checkpoint(0) else { panic!("it has a sync to do") };
        disk.heal();
        assert!(end >= 1_000_000 && disk.busy_until() == end);
    }

    #[test]
    fn a_checkpoint_without_space_is_given_up_and_what_it_was_to_replace_is_there() {
        for full_at in 0..4 {
            let mut disk = disk(full_at);
            append(&mut disk, 0..2);
            disk.start_sync(0).unwrap();
            disk.finish_sync();
            let image = || Some(Arc::new(StoredImage(vec!["ab".into(), "cd".into()])) as Snapshot);
            disk.start_checkpoint(image(), Vec::new(), 2);
            assert!((0..full_at).all(|now| matches!(disk.write_checkpoint(now), Ok(Progress::At(_)))));
            disk.fill(100);
            assert_eq!(disk.write_checkpoint(99), Err(Full));
            assert!(!disk.is_checkpointing() && disk.log_len() == 2);
            disk.start_checkpoint(image(), Vec::new(), 2);
            let mut later = disk.clone();
            assert_eq!(records(&mut later), [0, 1]);
            while disk.write_checkpoint(100) != Ok(Progress::Done) {}
            assert_eq!(disk.log_len(), 0);
        }
    }

    #[test]
    fn a_disk_that_hangs_takes_writes_and_makes_nothing_durable() {
        let mut disk = disk(1);
        append(&mut disk, 0..2);
        assert!(disk.start_sync(0).is_some());
        disk.hang();
        disk.finish_sync();
        append(&mut disk, 2..4);
        assert_eq!((disk.start_sync(5000), disk.synced(), disk.written()), (None, 2, 4));
        disk.start_checkpoint(None, Vec::new(), 1);
        assert!((0..10).all(|now| matches!(disk.write_checkpoint(now), Ok(Progress::At(_)))));
    }

    #[cfg(feature = "mutations")]
    #[test]
    fn the_mutation_lets_damage_through() {
        let damaged = |mutation: &str| {
            mutation::with(mutation, || {
                (0..200).any(|seed| {
                    let mut disk = disk(seed);
                    append(&mut disk, 0..3);
                    disk.crash(true);
                    recover(&mut disk).iter().any(|(n, bytes)| bytes.iter().any(|b| u64::from(*b) != n + 1))
                })
            })
        };
        assert!(damaged("disk/torn-record-accepted"));
        assert!(!damaged("none"));
    }
}
