//! The replica's log as the event loop sees it: records in, a count of durable ones out, both counted since the start
//! as machines count them.
//!
//! Which records go to the log and which count as durable is kept by the [`RecordLedger`]; here is what waits for the
//! disk, and when a snapshot is due.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use mio::Waker;
use quorate_core::{Payload, Random, Saved};
use quorate_runtime::RecordLedger;
use tracing::{error, info, warn};

use crate::config::Place;
use crate::error::NodeError;
use crate::guard::OpenedDisk;
use crate::metrics::Metrics;
use crate::storage::{self, DirectoryMark, Failure, Log, Options, SEGMENT_BYTES};

/// A log that is open, and what was in it.
pub(crate) struct Opened {
    /// The cluster's id, as the directory says.
    pub(crate) cluster: u64,
    pub(crate) journal: Journal,
    /// Its records are encoded.
    pub(crate) saved: Saved<Bytes>,
    pub(crate) disk: OpenedDisk,
    pub(crate) mark: DirectoryMark,
}

/// Room for a snapshot, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What is free on the disk.
    pub(crate) free: u64,
    /// What the data take in memory: they take no more in a snapshot.
    pub(crate) data: u64,
    /// Whether the disk is nearly full.
    pub(crate) scarce: bool,
}

/// A snapshot leaves so much free. To make room, it must make as much.
const LEAST_ROOM: u64 = 1 << 20;

/// What must be free for a snapshot of this much data.
pub(crate) fn snapshot_bytes(data: u64) -> u64 {
    data + LEAST_ROOM
}

/// After a snapshot that was given up, so many calls of [`Journal::snapshot_if_due`] begin none: what they are told of
/// the disk may be older, and a disk that is full does not change at once.
const PAUSE: u32 = 20;

/// See the file comment.
pub(crate) struct Journal {
    log: Log,
    metrics: Rc<Metrics>,
    /// The log's number of the last record of earlier starts.
    before: u64,
    /// Bytes of the last snapshot, as last seen: the next one is due when the log has grown as much again.
    last_snapshot: u64,
    /// How much later than at the bound the next one is due, as a factor from 1 to 1.5. Members' logs grow alike:
    /// without it, all would write their snapshots at the same moment.
    snapshot_jitter: f64,
    random: Random,
    ledger: RecordLedger,
    /// What is left of [`PAUSE`].
    pause: u32,
    /// Bytes that may wait for the disk.
    limit: usize,
}

impl Journal {
    /// Opens the log of a replica of this protocol, and reads what it had written.
    pub(crate) fn open(
        (place, protocol): (&Place, &'static str),
        unsynced: usize,
        cluster: u64,
        waker: Arc<Waker>,
        metrics: Rc<Metrics>,
        mut random: Random,
    ) -> Result<Opened, NodeError> {
        let wake = move || {
            if let Err(source) = waker.wake() {
                error!("the event loop cannot be woken: {source}");
            }
        };
        let options = Options {
            directory: place.data_dir.clone(),
            cluster,
            founded: place.founded,
            node: place.node,
            protocol,
            durability: place.durability,
            promises: place.promises,
            segment_bytes: SEGMENT_BYTES,
            queue_bytes: unsynced,
        };
        let opened = storage::open(&options, Box::new(wake))?;
        let storage::Opened { cluster, restarted, snapshot, records, log, disk, admission, leases, mark } =
            opened;
        let has_records = snapshot.is_some() || !records.is_empty();
        metrics.log_unsynced_limit.set(options.queue_bytes as u64);
        let snapshot_jitter = 1.0 + random.unit() / 2.0;
        let journal = Journal { snapshot_jitter, limit: unsynced, ..Journal::over(log, metrics, random) };
        let disk = OpenedDisk { disk, admission, leases, has_records };
        Ok(Opened { cluster, journal, saved: Saved { restarted, snapshot, records }, disk, mark })
    }

    /// Of a process that keeps nothing.
    pub(crate) fn none(metrics: Rc<Metrics>, random: Random) -> Result<Journal, NodeError> {
        let log = Log::none().map_err(NodeError::LogFailed)?;
        Ok(Journal::over(log, metrics, random))
    }

    fn over(log: Log, metrics: Rc<Metrics>, random: Random) -> Journal {
        Journal {
            before: log.appended(),
            log,
            metrics,
            last_snapshot: 0,
            snapshot_jitter: 1.0,
            random,
            ledger: RecordLedger::default(),
            pause: 0,
            limit: usize::MAX,
        }
    }

    /// Hands over a batch, of which the last record is number `last`, and the numbers of the barriers in it.
    pub(crate) fn append(&mut self, records: &mut Vec<Payload>, barriers: &mut Vec<u64>, last: u64) {
        if records.is_empty() {
            return;
        }
        let bytes: usize = records.iter().map(Payload::len).sum();
        self.metrics.log_records_total.add(records.len() as u64);
        self.metrics.log_bytes_total.add(bytes as u64);
        let records = self.ledger.append(std::mem::take(records), barriers.drain(..));
        self.hand_over(records);
        assert_eq!(self.ledger.persisted(), last, "the log and the machine count the same records");
    }

    fn hand_over(&mut self, records: Vec<Payload>) {
        let appended = self.log.append(records) - self.before;
        assert_eq!(appended, self.ledger.in_log(), "each record is handed over or held by a snapshot");
    }

    /// The last record that is durable. The error says why none will be any more.
    pub(crate) fn durable(&self) -> Result<u64, NodeError> {
        let in_log = self.log.durable().map_err(NodeError::LogFailed)? - self.before;
        Ok(self.ledger.durable(in_log))
    }

    /// Whether reading has to wait for the disk.
    pub(crate) fn is_full(&self) -> bool {
        self.unsynced() >= self.limit
    }

    /// Bytes handed over that are not durable yet.
    pub(crate) fn unsynced(&self) -> usize {
        self.log.unsynced() + self.ledger.withheld_bytes()
    }

    /// Whether everything handed over is durable.
    pub(crate) fn is_synced(&self) -> bool {
        self.durable().is_ok_and(|durable| durable == self.ledger.persisted())
    }

    /// Begins a snapshot if a barrier waits for one, or if the log has grown by `after` bytes since the last one, by
    /// that one's size, and a bit more. It is due earlier, if the log takes more than the snapshot will, on a disk that
    /// is nearly full; and on a small one, where the log takes more than half of what the snapshot would leave free:
    /// later there may be no room for it. Without that, the log goes on: a disk that is full ends the process, a long
    /// log does not.
    /// Where less is free than was known, the snapshot is given up, and the next one waits for [`PAUSE`] such calls.
    /// Everything persisted so far must have been handed over. `room`: if that is known.
    pub(crate) fn snapshot_if_due(
        &mut self,
        after: u64,
        room: Option<Room>,
        save: impl FnOnce() -> Option<Saved<Payload>>,
    ) {
        self.end_snapshot();
        let status = self.log.status();
        self.metrics.log_syncs_total.set(status.syncs);
        self.metrics.log_sync_duration_seconds.set(self.log.sync_times());
        self.metrics.log_bytes.set(status.log_bytes);
        self.metrics.log_unsynced_bytes.set(self.unsynced() as u64);
        self.metrics.snapshots_total.set(status.checkpoints);
        if let Some(bytes) = status.checkpoint_bytes {
            self.last_snapshot = bytes;
        }
        self.pause = self.pause.saturating_sub(1);
        if self.ledger.needs_state() {
            return self.snapshot(None, save);
        }
        let grown = status.log_bytes as f64 > after.max(self.last_snapshot) as f64 * self.snapshot_jitter;
        let is_due = |records: u64| match room {
            None => grown,
            Some(Room { free, data, scarce }) => {
                let (needed, log) = (snapshot_bytes(data + records), status.log_bytes);
                let left = free.saturating_sub(needed);
                left > 0 && if scarce { log > needed } else { grown || log > needed.max(left / 2) }
            }
        };
        if is_due(0) {
            self.snapshot(room, || save().filter(|saved| is_due(bytes_of(&saved.records))));
        }
    }

    /// The disk is nearly full, or no longer: nothing is kept there then for later use.
    pub(crate) fn set_disk_full(&mut self, full: bool) {
        self.log.keep_retired(!full);
    }

    /// Whether the disk had no room for the log's next segment: costs nothing to ask.
    pub(crate) fn is_short(&self) -> bool {
        self.log.is_short()
    }

    /// Has the log look for room again, which there may be now.
    pub(crate) fn look_for_room(&mut self) {
        self.log.look_for_room();
    }

    /// Sees to it that barriers become durable: asked in every turn, costs nothing while there is none.
    pub(crate) fn pass_barriers(&mut self, save: impl FnOnce() -> Option<Saved<Payload>>) {
        if !self.ledger.needs_state() {
            return;
        }
        self.end_snapshot();
        if self.ledger.needs_state() {
            self.snapshot(None, save);
            // Where nothing is kept, it is written already.
            self.end_snapshot();
        }
    }

    /// Begins a snapshot unless one is being written, or was given up a moment ago. Where the disk is nearly full, its
    /// space is taken before the log's next segment can take it: a snapshot makes room, a segment does not.
    fn snapshot(&mut self, room: Option<Room>, save: impl FnOnce() -> Option<Saved<Payload>>) {
        if self.ledger.is_saving() || self.pause > 0 {
            return;
        }
        let Some(Saved { snapshot, records, .. }) = save() else { return };
        let space = room.filter(|room| room.scarce).map_or(0, |room| room.data + bytes_of(&records));
        self.ledger.begin_state();
        let (log_bytes, barriers) = (self.log.status().log_bytes, self.ledger.barriers());
        info!(log_bytes, records = records.len(), barriers, "writing a snapshot");
        self.log.checkpoint(snapshot, records, space);
    }

    /// Takes note of a snapshot that is finished.
    fn end_snapshot(&mut self) {
        if self.log.status().checkpoint_bytes.is_some() || !self.ledger.is_saving() {
            return;
        }
        let given_up = self.log.given_up();
        match &given_up {
            None => {
                self.snapshot_jitter = 1.0 + self.random.unit() / 2.0;
                info!("a snapshot is written, and the log before it dropped");
            }
            Some(Failure { doing, path, source }) => {
                self.pause = PAUSE;
                self.metrics.snapshots_given_up_total.one();
                let path = path.display();
                warn!(
                    "no room for a snapshot, which is given up: cannot {doing} {path}: {source}. The log before it \
                     stays, and another is tried in some seconds"
                );
            }
        }
        let records = self.ledger.end_state(given_up.is_none());
        self.hand_over(records);
    }
}

fn bytes_of(records: &[Payload]) -> u64 {
    records.iter().map(Payload::len).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use mio::{Events, Poll, Token};
    use quorate_blocks::admission::Stage;
    use quorate_core::{NodeId, Wire};

    use super::*;
    use crate::config::Durability;

    /// A journal, and what the machine beside it would count.
    struct Owner {
        journal: Journal,
        poll: Poll,
        persisted: u64,
    }

    impl Owner {
        fn open(directory: &Path) -> (Owner, Vec<Bytes>) {
            let poll = Poll::new().unwrap();
            let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
            let place = Place {
                site: None,
                node: NodeId::new(1).unwrap(),
                listen_peer: String::new(),
                data_dir: directory.to_owned(),
                durability: Durability::Os,
                promises: false,
                rejoining: None,
                stage: Stage::New,
                founded: None,
            };
            let opened =
                Journal::open((&place, "toy"), 1000, 7, waker, Rc::default(), Random::new(1)).unwrap();
            let records = opened.saved.records.into_iter().map(|record| Bytes::from_bytes(record).unwrap());
            (Owner { journal: opened.journal, poll, persisted: 0 }, records.collect())
        }

        fn append(&mut self, records: &[&'static str], barriers: &[u64]) {
            let mut records: Vec<_> = records.iter().map(|text| record(text)).collect();
            self.persisted += records.len() as u64;
            self.journal.append(&mut records, &mut barriers.to_vec(), self.persisted);
        }

        /// Until the log has done all that it can.
        fn wait(&mut self, done: impl Fn(&Journal) -> bool) {
            let end = Instant::now() + Duration::from_secs(20);
            while !done(&self.journal) {
                self.poll.poll(&mut Events::with_capacity(1), Some(end - Instant::now())).unwrap();
            }
        }

        fn durable(&self) -> u64 {
            self.journal.durable().unwrap()
        }

        fn pass(&mut self, state: &[&'static str]) {
            let records = state.iter().map(|text| record(text)).collect();
            self.journal.pass_barriers(|| Some(Saved { restarted: true, snapshot: None, records }));
        }
    }

    fn record(text: &'static str) -> Payload {
        Payload::of(&Bytes::from_static(text.as_bytes()))
    }

    fn written(journal: &Journal) -> bool {
        journal.log.durable().unwrap() == journal.log.appended()
            && journal.log.status().checkpoint_bytes.is_none()
    }

    #[test]
    fn a_barrier_and_what_follows_it_wait_for_a_state_that_was_saved_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut owner, _) = Owner::open(directory.path());
        owner.append(&["a"], &[]);
        // One that is being written when the barrier comes does not hold it.
        owner.journal.snapshot_if_due(0, None, || {
            Some(Saved { restarted: true, snapshot: None, records: vec![record("A")] })
        });
        owner.append(&["b", "barrier", "c"], &[3]);
        owner.wait(written);
        assert_eq!((owner.durable(), owner.persisted), (2, 4));
        owner.pass(&["A", "B", "C"]);
        owner.append(&["d", "barrier", "e"], &[6]);
        assert_eq!(owner.durable(), 2, "nothing is saved yet");
        owner.wait(written);
        assert_eq!(owner.durable(), 2, "nobody has looked yet");
        owner.pass(&["A", "F"]);
        owner.wait(|journal| journal.durable().unwrap() >= 5);
        assert_eq!(owner.durable(), 5, "up to the second barrier");
        owner.wait(written);
        owner.pass(&[]);
        assert_eq!((owner.durable(), owner.journal.is_synced()), (7, true));
        owner.append(&["g"], &[]);
        owner.wait(|journal| journal.durable().unwrap() == 8);
        drop(owner);
        let (_, records) = Owner::open(directory.path());
        assert_eq!(records, ["A", "F", "g"], "what a state holds is not told a second time");
    }

    #[test]
    fn a_snapshot_needs_room_and_on_a_disk_that_is_small_or_nearly_full_it_is_due_when_it_makes_room() {
        const MIB: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let (mut owner, _) = Owner::open(directory.path());
        let large: &str = "x".repeat(MIB as usize).leak();
        for (after, free, data, scarce, records, expected) in [
            // The log has 8 MiB, and some bytes.
            (MIB, 8 * MIB, 7 * MIB, false, 0, false),
            (MIB, 8 * MIB, 4 * MIB, false, 3, false),
            (MIB, 9 * MIB, 7 * MIB, false, 0, true),
            (100 * MIB, 100 * MIB, 0, false, 0, false),
            (100 * MIB, 100 * MIB, 8 * MIB, true, 0, false),
            (100 * MIB, 100 * MIB, 5 * MIB, true, 3, false),
            (100 * MIB, 4 * MIB, 3 * MIB, true, 0, false),
            (100 * MIB, 5 * MIB, 3 * MIB, true, 0, true),
            // Half of what would be left is as much as the log has, or more.
            (100 * MIB, 22 * MIB, 3 * MIB, false, 0, false),
            (100 * MIB, 20 * MIB, 3 * MIB, false, 0, true),
            (100 * MIB, 20 * MIB, 8 * MIB, false, 0, false),
        ] {
            while owner.journal.log.status().log_bytes < 8 * MIB {
                owner.append(&[large], &[]);
            }
            owner.wait(written);
            let before = owner.journal.log.status().checkpoints;
            let records = (0..records).map(|_| record(large)).collect();
            let saved = Saved { restarted: true, snapshot: None, records };
            owner.journal.snapshot_if_due(after, Some(Room { free, data, scarce }), || Some(saved));
            owner.wait(written);
            let found = owner.journal.log.status().checkpoints > before;
            assert_eq!(found, expected, "{free} free, {data} of data, scarce: {scarce}");
        }
    }

    #[test]
    fn a_snapshot_without_room_is_given_up_and_what_waits_for_a_state_waits_for_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let (mut owner, _) = Owner::open(directory.path());
        owner.append(&["a", "barrier", "b"], &[2]);
        owner.wait(written);
        // The snapshot in front of the log's third record: what is written to this file finds no room.
        let unfinished = directory.path().join(format!("snapshot-{:020}.tmp", 3));
        std::os::unix::fs::symlink("/dev/full", &unfinished).unwrap();
        let log_bytes = owner.journal.log.status().log_bytes;
        owner.pass(&["A"]);
        owner.wait(written);
        for left in (0..PAUSE).rev() {
            owner.pass(&["too soon"]);
            assert_eq!((owner.durable(), owner.journal.is_synced()), (1, false));
            assert_eq!(owner.journal.metrics.snapshots_given_up_total.get(), 1);
            assert_eq!(owner.journal.log.status().log_bytes, log_bytes, "as if it had not begun");
            assert!(!unfinished.is_symlink(), "nothing of it is left");
            if left > 0 {
                owner.journal.snapshot_if_due(0, None, || panic!("too soon"));
            }
        }
        owner.append(&["c"], &[]);
        let state = || Some(Saved { restarted: true, snapshot: None, records: vec![record("ABC")] });
        owner.journal.snapshot_if_due(0, None, state);
        owner.wait(written);
        owner.pass(&[]);
        assert_eq!((owner.durable(), owner.journal.is_synced()), (4, true));
        assert_eq!(owner.journal.metrics.snapshots_given_up_total.get(), 1);
        drop(owner);
        let (_, records) = Owner::open(directory.path());
        assert_eq!(records, ["ABC"]);
    }

    #[test]
    fn a_log_whose_barrier_was_not_passed_ends_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut owner, _) = Owner::open(directory.path());
        owner.append(&["a", "barrier", "b"], &[2]);
        owner.append(&["c", "d"], &[5]);
        owner.wait(written);
        assert_eq!(owner.durable(), 1);
        assert!(!owner.journal.is_synced());
        drop(owner);
        let (mut owner, records) = Owner::open(directory.path());
        assert_eq!(records, ["a", "barrier"]);
        owner.append(&["e"], &[]);
        owner.wait(|journal| journal.durable().unwrap() == 1);
    }

    #[test]
    fn what_a_barrier_holds_back_counts_as_waiting_for_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let (mut owner, _) = Owner::open(directory.path());
        owner.append(&["barrier"], &[1]);
        for _ in 0..200 {
            owner.append(&["more"], &[]);
        }
        assert!(owner.journal.is_full());
        owner.wait(written);
        assert!(owner.journal.is_full(), "{}", owner.journal.unsynced());
        owner.pass(&[]);
        owner.wait(written);
        owner.pass(&[]);
        assert_eq!((owner.journal.is_full(), owner.journal.unsynced(), owner.durable()), (false, 0, 201));
    }
}
