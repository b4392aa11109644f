//! The log as its owner sees it: batches go in, the number of the last durable record comes out. One thread writes and
//! syncs; whatever gathers while it does shares the next write and the next sync (group commit).
//!
//! Handing a batch over costs one lock, and one wake-up of the thread if it sleeps. The owner is woken once per sync.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quorate_core::{DurationHistogram, Payload, Snapshot};

use super::background::Background;
use super::error::Failure;
use super::files::Dir;
use super::identity::Lock;
use super::pool::Pool;
use super::segment::MAX_RECORD;
use super::snapshot;
use super::writer::Writer;

/// Called when more records are durable, a checkpoint has ended, or the log has failed. From other threads.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// When nothing has come for so long, the log writes evidence that all before is durable (see `recovery`).
const IDLE: Duration = Duration::from_millis(20);

/// The durable log of one replica. Dropping it writes what was handed over, then lets the directory go.
pub struct Log {
    shared: Arc<Shared>,
    /// The number of the last record handed over.
    appended: u64,
    queue_bytes: usize,
    /// `None` with `--durability none`.
    thread: Option<JoinHandle<()>>,
    /// After the thread: fields are dropped in order.
    _lock: Option<Lock>,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    durable: AtomicU64,
    unsynced: AtomicUsize,
    syncs: AtomicU64,
    sync_times: Mutex<DurationHistogram>,
    logged: AtomicU64,
    short: AtomicBool,
    failure: OnceLock<Failure>,
    checkpoint: CheckpointState,
    waker: Waker,
}

#[derive(Default)]
struct Queue {
    work: Vec<Work>,
    /// Whether the thread waits for work.
    sleeping: bool,
    stop: bool,
}

enum Work {
    Record(Payload),
    Checkpoint { content: (Option<Snapshot>, Vec<Payload>), space: u64 },
    KeepRetired(bool),
    LookForRoom,
}

#[derive(Default)]
struct CheckpointState {
    running: AtomicBool,
    written: Arc<AtomicU64>,
    finished: AtomicU64,
    /// Bytes of the log when it began.
    logged_before: AtomicU64,
    /// Why the last one was given up.
    given_up: Mutex<Option<Failure>>,
}

/// What a log has and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatus {
    /// Groups of records written since the log was opened; each took one sync in mode `fsync`.
    pub syncs: u64,
    /// Bytes of records handed over since the last checkpoint began, those found at opening included.
    pub log_bytes: u64,
    /// Checkpoints finished since the log was opened.
    pub checkpoints: u64,
    /// Bytes of the checkpoint that is being written.
    pub checkpoint_bytes: Option<u64>,
}

/// What a log starts with.
pub(super) struct Kept {
    pub(super) dir: Dir,
    pub(super) identity: u64,
    pub(super) writer: Writer,
    /// Bytes of the records it holds.
    pub(super) bytes: u64,
    pub(super) pool: Arc<Pool>,
}

impl Log {
    /// `kept` is `None` if nothing is to be written.
    pub(super) fn start(
        kept: Option<Kept>,
        lock: Option<Lock>,
        queue_bytes: usize,
        waker: Waker,
    ) -> Result<Log, Failure> {
        let last = kept.as_ref().map_or(0, |kept| kept.writer.last());
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            ready: Condvar::new(),
            durable: AtomicU64::new(last),
            unsynced: AtomicUsize::new(0),
            syncs: AtomicU64::new(0),
            sync_times: Mutex::default(),
            logged: AtomicU64::new(kept.as_ref().map_or(0, |kept| kept.bytes)),
            short: AtomicBool::new(false),
            failure: OnceLock::new(),
            checkpoint: CheckpointState::default(),
            waker,
        });
        let mut thread = None;
        if let Some(kept) = kept {
            let (shared, path) = (shared.clone(), kept.dir.path(""));
            let spawned = thread::Builder::new().name("wal-sync".to_owned()).spawn(move || {
                let alarm = Alarm { shared: &shared, dir: &kept.dir, what: "write the log in" };
                let (dir, pool, identity) = (&kept.dir, &kept.pool, kept.identity);
                Thread { shared: &shared, kept: dir, pool, identity, checkpoint: None }.run(kept.writer);
                drop(alarm);
            });
            thread = Some(spawned.map_err(|error| Failure::new("start a thread to write", path, error))?);
        }
        Ok(Log { shared, appended: last, queue_bytes, thread, _lock: lock })
    }

    /// A log that keeps nothing: what is handed over counts as durable at once.
    pub fn none() -> Result<Log, Failure> {
        Log::start(None, None, usize::MAX, Box::new(|| {}))
    }

    /// Hands records over; they become durable in order. Gives the number of the last one ever handed over.
    pub fn append(&mut self, records: impl IntoIterator<Item = impl Into<Payload>>) -> u64 {
        let mut bytes = 0;
        if self.thread.is_none() {
            self.appended += records.into_iter().count() as u64;
            self.shared.durable.store(self.appended, Ordering::Release);
            return self.appended;
        }
        let mut queue = self.shared.lock();
        for record in records {
            let record: Payload = record.into();
            assert!(record.len() <= MAX_RECORD, "a record of {} bytes", record.len());
            bytes += record.len();
            self.appended += 1;
            queue.work.push(Work::Record(record));
        }
        self.shared.unsynced.fetch_add(bytes, Ordering::Relaxed);
        self.shared.logged.fetch_add(bytes as u64, Ordering::Relaxed);
        self.shared.wake(queue);
        self.appended
    }

    /// The number of the last durable record. Once the log has failed, no further record becomes durable: stop.
    pub fn durable(&self) -> Result<u64, Failure> {
        match self.shared.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.shared.durable.load(Ordering::Acquire)),
        }
    }

    /// The number of the last record handed over.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Bytes of records handed over that are not durable yet.
    pub fn unsynced(&self) -> usize {
        self.shared.unsynced.load(Ordering::Relaxed)
    }

    /// Whether the owner must let the disk catch up before it causes more records.
    pub fn is_full(&self) -> bool {
        self.unsynced() >= self.queue_bytes
    }

    /// Begins to write a checkpoint: what `Replica::save` gave, after all records appended so far. When it is durable,
    /// those are dropped. The waker is called at its end; [`LogStatus`] tells how far it is. `space`: so many bytes are
    /// reserved for it before anything of the log is used for it.
    ///
    /// Without room for it, it is given up ([`Log::given_up`]), and the log goes on as if it had not begun.
    ///
    /// # Panics
    /// If one is being written.
    pub fn checkpoint(
        &mut self,
        image: Option<Snapshot>,
        records: impl IntoIterator<Item = impl Into<Payload>>,
        space: u64,
    ) {
        let state = &self.shared.checkpoint;
        assert!(!state.running.load(Ordering::Acquire), "one checkpoint at a time");
        let logged = self.shared.logged.swap(0, Ordering::Relaxed);
        if self.thread.is_none() {
            state.finished.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.written.store(0, Ordering::Relaxed);
        state.logged_before.store(logged, Ordering::Relaxed);
        state.running.store(true, Ordering::Release);
        let content = (image, records.into_iter().map(Into::into).collect());
        let mut queue = self.shared.lock();
        queue.work.push(Work::Checkpoint { content, space });
        self.shared.wake(queue);
    }

    /// Why the checkpoint that ended last was given up, if it was. Says so once.
    pub fn given_up(&self) -> Option<Failure> {
        self.shared.given_up().take()
    }

    /// Whether segments that the log no longer needs are kept, to be used again; if not, the disk gets their room, and
    /// that of those kept so far.
    pub fn keep_retired(&mut self, keep: bool) {
        if self.thread.is_some() {
            let mut queue = self.shared.lock();
            queue.work.push(Work::KeepRetired(keep));
            self.shared.wake(queue);
        }
    }

    /// Whether there was no room on the disk for the log's next segment: what is written from now on has that of the
    /// present one alone. Asked in every turn.
    pub fn is_short(&self) -> bool {
        self.shared.short.load(Ordering::Relaxed)
    }

    /// Has it tried again to make that segment: there may be room now.
    pub fn look_for_room(&mut self) {
        if self.thread.is_some() {
            let mut queue = self.shared.lock();
            queue.work.push(Work::LookForRoom);
            self.shared.wake(queue);
        }
    }

    /// How long each group of records took to write and to sync.
    pub fn sync_times(&self) -> DurationHistogram {
        self.shared.sync_times().clone()
    }

    /// Numbers for decisions and metrics.
    pub fn status(&self) -> LogStatus {
        let Shared { syncs, logged, checkpoint, .. } = &*self.shared;
        let running = checkpoint.running.load(Ordering::Acquire);
        LogStatus {
            syncs: syncs.load(Ordering::Relaxed),
            log_bytes: logged.load(Ordering::Relaxed),
            checkpoints: checkpoint.finished.load(Ordering::Relaxed),
            checkpoint_bytes: running.then(|| checkpoint.written.load(Ordering::Relaxed)),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.stop = true;
        self.shared.wake(queue);
        if let Some(thread) = self.thread.take() {
            // A panic has been published as a failure.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let durable = self.shared.durable.load(Ordering::Relaxed);
        write!(f, "Log({durable} of {} durable, {:?})", self.appended, self.status())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_times(&self) -> MutexGuard<'_, DurationHistogram> {
        self.sync_times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given_up(&self) -> MutexGuard<'_, Option<Failure>> {
        self.checkpoint.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk has no room for a checkpoint: what there was stays.
    fn give_up(&self, why: Failure) {
        let state = &self.checkpoint;
        self.logged.fetch_add(state.logged_before.load(Ordering::Relaxed), Ordering::Relaxed);
        *self.given_up() = Some(why);
        state.running.store(false, Ordering::Release);
        (self.waker)();
    }

    /// Says whether the disk has room for the log's next segment.
    fn tell_room(&self, writer: &Writer) {
        self.short.store(writer.is_short(), Ordering::Relaxed);
    }

    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let sleeping = std::mem::take(&mut queue.sleeping);
        drop(queue);
        if sleeping {
            self.ready.notify_one();
        }
    }

    /// The first failure counts; those that follow from it do not.
    fn fail(&self, failure: Failure) {
        let _ = self.failure.set(failure);
        (self.waker)();
    }
}

/// Publishes a failure if its thread panics: the owner must not wait for ever.
struct Alarm<'a> {
    shared: &'a Shared,
    dir: &'a Dir,
    what: &'static str,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let error = std::io::Error::other("the thread that does it panicked; this is a bug");
            self.shared.fail(Failure::new(self.what, self.dir.path(""), error));
        }
    }
}

/// The thread that writes.
struct Thread<'a> {
    shared: &'a Arc<Shared>,
    kept: &'a Dir,
    pool: &'a Arc<Pool>,
    identity: u64,
    checkpoint: Option<(Arc<Background>, JoinHandle<()>)>,
}

impl Thread<'_> {
    fn run(mut self, mut writer: Writer) {
        if let Err(failure) = self.work(&mut writer) {
            self.shared.fail(failure);
        }
        if let Some((background, thread)) = self.checkpoint.take() {
            background.stop();
            // A panic has been published as a failure.
            let _ = thread.join();
        }
    }

    fn work(&mut self, writer: &mut Writer) -> Result<(), Failure> {
        let (mut work, mut records) = (Vec::new(), Vec::new());
        while self.wait(writer, &mut work)? {
            for item in work.drain(..) {
                match item {
                    Work::Record(record) => records.push(record),
                    Work::Checkpoint { content, space } => {
                        self.write(writer, &mut records)?;
                        self.begin_checkpoint(writer, content, space)?;
                    }
                    Work::KeepRetired(keep) => self.pool.keep(self.kept, keep)?,
                    Work::LookForRoom => writer.look_for_room()?,
                }
            }
            self.write(writer, &mut records)?;
            self.shared.tell_room(writer);
        }
        writer.mark()
    }

    /// Takes what was handed over. False if there is nothing, and there will be nothing more.
    fn wait(&self, writer: &mut Writer, work: &mut Vec<Work>) -> Result<bool, Failure> {
        let mut queue = self.shared.lock();
        loop {
            if !queue.work.is_empty() {
                std::mem::swap(&mut queue.work, work);
                return Ok(true);
            }
            if queue.stop {
                return Ok(false);
            }
            queue.sleeping = true;
            if !writer.wants_mark() {
                queue = self.shared.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.shared.ready.wait_timeout(queue, IDLE);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            if timeout.timed_out() && queue.work.is_empty() && !queue.stop {
                drop(queue);
                writer.mark()?;
                queue = self.shared.lock();
            }
        }
    }

    fn write(&self, writer: &mut Writer, records: &mut Vec<Payload>) -> Result<(), Failure> {
        let mut rest = &records[..];
        while !rest.is_empty() {
            let began = Instant::now();
            let count = writer.write(rest)?;
            self.shared.sync_times().add(began.elapsed());
            let bytes: usize = rest[..count].iter().map(Payload::len).sum();
            self.shared.syncs.fetch_add(1, Ordering::Relaxed);
            self.shared.unsynced.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.durable.store(writer.last(), Ordering::Release);
            self.shared.tell_room(writer);
            (self.shared.waker)();
            rest = &rest[count..];
        }
        records.clear();
        Ok(())
    }

    fn begin_checkpoint(
        &mut self,
        writer: &mut Writer,
        content: (Option<Snapshot>, Vec<Payload>),
        space: u64,
    ) -> Result<(), Failure> {
        let sequence = writer.last() + 1;
        // Its room first: the cut leaves unused what the log's present segment still has.
        let begun = snapshot::create(self.kept, sequence, space);
        let start = match begun.and_then(|()| writer.cut()) {
            Err(failure) if failure.is_full() => {
                snapshot::discard(self.kept, sequence);
                self.shared.give_up(failure);
                return Ok(());
            }
            begun => begun?,
        };
        let background = Arc::new(Background::default());
        let (shared, dir, identity, pace) =
            (self.shared.clone(), self.kept.clone(), self.identity, background.clone());
        let pool = self.pool.clone();
        let write = move || {
            let _alarm = Alarm { shared: &shared, dir: &dir, what: "write a snapshot to" };
            let state = &shared.checkpoint;
            let written = snapshot::write(&dir, identity, start, content, &pace, &state.written);
            if let Err(failure) = &written
                && failure.is_full()
            {
                snapshot::discard(&dir, start.sequence);
                return shared.give_up(failure.clone());
            }
            let published = written.and_then(|whole| match whole {
                true => snapshot::publish(&dir, start, &pool).map(|()| true),
                false => Ok(false),
            });
            match published {
                Ok(finished) => {
                    state.finished.fetch_add(u64::from(finished), Ordering::Relaxed);
                    state.running.store(false, Ordering::Release);
                    (shared.waker)();
                }
                Err(failure) => shared.fail(failure),
            }
        };
        let spawned = thread::Builder::new().name("wal-snapshot".to_owned()).spawn(write);
        let thread = spawned.map_err(|error| {
            Failure::new("start a thread to write a snapshot to", self.kept.path(""), error)
        })?;
        if let Some((_, ended)) = self.checkpoint.replace((background, thread)) {
            // The last one has published its end.
            let _ = ended.join();
        }
        Ok(())
    }
}
