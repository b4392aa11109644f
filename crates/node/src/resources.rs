//! Room on the disk and in memory: what there is, and when a node is near its end.
//!
//! A thread of its own asks, once a second: a file system may take as long as it likes to answer, and the event loop
//! must not wait for it. It asks sooner where the log has grown since by a part of the disk's reserve, or as large a
//! part of that of memory has come in ([`GROWN_PART`]).
//!
//! - **Disk**: the file system of the data directory is *nearly full* when less than the reserve is free, until a
//!   quarter more than that is; and while the log's next segment has no room. The reserve is for what a node must still
//!   write: votes, the log up to the next snapshot, and that snapshot. So it is no less than the data: where the next
//!   snapshot has no room, nothing makes room.
//! - **Memory**: the control group's limit, version 2 or 1, of this process's group or of one above it, whichever
//!   leaves least. What is used is the *working set*: without file pages that the kernel would give up first. It is
//!   *nearly used up* from nine tenths on, until less than eight tenths are used.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::StatVfs;

use crate::metrics::Metrics;
use crate::monitor::{WARNING_DISK, WARNING_MEMORY};

/// How often the system is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// It is asked before its time when the log has grown by this part of the disk's reserve, or as large a part of that of
/// memory has come in.
pub(crate) const GROWN_PART: u64 = 8;

/// Bytes that are large to the allocator.
const UNTOUCHED: usize = 4 << 20;

/// The reserve where none is configured: this part of the file system, but no more than [`MOST_RESERVED`].
pub(crate) const RESERVED_PART: u64 = 20;

/// A gibibyte: several times the log between two snapshots.
const MOST_RESERVED: u64 = 1 << 30;

/// So many of a disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) free: u64,
    pub(crate) size: u64,
}

impl From<StatVfs> for Disk {
    fn from(found: StatVfs) -> Disk {
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Disk { free: bytes(found.f_bavail), size: bytes(found.f_blocks) }
    }
}

/// So many of a control group, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) used: u64,
    pub(crate) limit: u64,
}

/// What was found last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None`: there is no data directory, or the system does not say.
    pub(crate) disk: Option<Disk>,
    /// `None`: there is no limit.
    pub(crate) memory: Option<Memory>,
}

/// See the file comment. Dropping it ends the thread.
pub(crate) struct Resources {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// What the thread waits for, unless its time has come.
    asked: Condvar,
    /// Whether it has looked since, as it was asked to.
    fresh: AtomicBool,
}

#[derive(Default)]
struct State {
    found: Found,
    /// To look now.
    look: bool,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resources {
    /// Begins to ask. What the first answers are is known at once. `wake` is called when it has looked because it was
    /// asked to.
    pub(crate) fn watch(
        directory: Option<PathBuf>,
        wake: impl Fn() + Send + 'static,
    ) -> io::Result<Resources> {
        let look =
            move || Found { disk: directory.as_deref().and_then(disk), memory: memory(Path::new("/")) };
        let state = State { found: look(), ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), ..Shared::default() });
        let asks = shared.clone();
        thread::Builder::new().name("resources".to_owned()).spawn(move || {
            let mut state = asks.lock();
            while !state.stop {
                let idle = |state: &mut State| !state.stop && !state.look;
                let waited = asks.asked.wait_timeout_while(state, INTERVAL, idle);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                let was_asked = std::mem::take(&mut state.look);
                drop(state);
                let found = look();
                state = asks.lock();
                state.found = found;
                if was_asked {
                    asks.fresh.store(true, Ordering::Relaxed);
                    wake();
                }
            }
        })?;
        Ok(Resources { shared })
    }

    /// What was found last.
    pub(crate) fn found(&self) -> Found {
        self.shared.lock().found
    }

    /// Has it looked without waiting for its time.
    pub(crate) fn look(&self) {
        self.shared.lock().look = true;
        self.shared.asked.notify_all();
    }

    /// Whether it has looked because it was asked to; the answer is yes once.
    pub(crate) fn take_fresh(&self) -> bool {
        self.shared.fresh.load(Ordering::Relaxed) && self.shared.fresh.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Resources {
    fn drop(&mut self) {
        // It is not waited for: it may wait for the file system.
        self.shared.lock().stop = true;
        self.shared.asked.notify_all();
    }
}

/// In words, as [`facts`](crate::frontend::NodeView::facts): what a node is short of.
pub(crate) fn warnings(metrics: &Metrics) -> Vec<(&'static str, String)> {
    let mut warnings = Vec::new();
    if metrics.disk_nearly_full.get() {
        let (free, size) = (metrics.disk_free_bytes.get(), metrics.disk_size_bytes.get());
        let reserve = metrics.disk_reserve_bytes.get();
        let of = format!("{} of {} are free", Size(free), Size(size));
        let words = if free < enough_again(reserve) {
            format!("the disk is nearly full: {of}, and {} are reserved", Size(reserve))
        } else {
            format!("the disk is nearly full: {of}, but the log's next file has no room (df, df -i)")
        };
        warnings.push((WARNING_DISK, words));
    }
    if metrics.memory_nearly_used_up.get() {
        let (used, limit) = (Size(metrics.memory_used_bytes.get()), Size(metrics.memory_limit_bytes.get()));
        warnings.push((WARNING_MEMORY, format!("memory is nearly used up: {used} of {limit}")));
    }
    warnings
}

/// So many bytes, for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
        let mut size = self.0 as f64;
        let mut unit = 0;
        while size >= 1024.0 && unit + 1 < UNITS.len() {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        let digits = usize::from(unit > 0 && size < 10.0);
        write!(f, "{size:.digits$} {}", UNITS[unit])
    }
}

/// What is low, from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Watermarks {
    pub(crate) disk: DiskWatermark,
    pub(crate) memory: MemoryWatermark,
}

impl Watermarks {
    /// `disk_reserve`: bytes of the disk that are to stay free; `None`: see [`RESERVED_PART`].
    pub(crate) fn new(disk_reserve: Option<u64>) -> Watermarks {
        Watermarks { disk: DiskWatermark::new(disk_reserve), memory: MemoryWatermark::default() }
    }
}

/// Whether the disk is nearly full, from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct DiskWatermark {
    /// Bytes that are to stay free; `None`: see [`RESERVED_PART`].
    configured: Option<u64>,
    is_low: bool,
}

impl DiskWatermark {
    pub(crate) fn new(configured: Option<u64>) -> DiskWatermark {
        DiskWatermark { configured, is_low: false }
    }

    /// Bytes that are to stay free on a disk of this size; `snapshot`: what the next one takes.
    pub(crate) fn reserve(&self, size: u64, snapshot: u64) -> u64 {
        self.configured.unwrap_or((size / RESERVED_PART).min(MOST_RESERVED)).max(snapshot)
    }

    /// Looks at the disk; whether it is nearly full now. `short`: the log's next segment has no room there.
    pub(crate) fn look(&mut self, disk: Option<Disk>, snapshot: u64, short: bool) -> bool {
        let Some(disk) = disk else { return short };
        let reserve = self.reserve(disk.size, snapshot);
        let enough = if self.is_low { enough_again(reserve) } else { reserve };
        self.is_low = short || disk.free < enough;
        self.is_low
    }
}

/// A disk that was nearly full no longer is with so many bytes free, unless the log's next segment has no room.
fn enough_again(reserve: u64) -> u64 {
    reserve.saturating_add(reserve / 4)
}

/// Has the allocator purge what was freed: give it back to the system. It does so late, and only when something large
/// is freed after that: a node that is idle would keep it for ever.
pub(crate) fn purge_freed_memory() {
    // Never touched, it takes addresses and no memory.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(UNTOUCHED)));
}

/// What is free of this limit when memory is nearly used up.
pub(crate) fn memory_reserve(limit: u64) -> u64 {
    limit / 10
}

/// Whether memory is nearly used up, from one look to the next: then the kernel may soon end the process.
#[derive(Debug, Default)]
pub(crate) struct MemoryWatermark {
    is_low: bool,
}

impl MemoryWatermark {
    /// Looks at memory; whether it is nearly used up now.
    pub(crate) fn look(&mut self, memory: Option<Memory>) -> bool {
        let tenths = if self.is_low { 8 } else { 9 };
        self.is_low = memory.is_some_and(|memory| memory.used / tenths >= memory.limit / 10);
        self.is_low
    }
}

fn disk(directory: &Path) -> Option<Disk> {
    let disk = Disk::from(rustix::fs::statvfs(directory).ok()?);
    #[cfg(debug_assertions)]
    let disk = Disk { free: free_if_told().unwrap_or(disk.free), ..disk };
    Some(disk)
}

/// A disk that is full, for tests with real processes: so many bytes are free as the file says that
/// QUORATE_TEST_DISK_FREE names, while it is there. Release builds have nothing of it.
#[cfg(debug_assertions)]
fn free_if_told() -> Option<u64> {
    let file = std::env::var_os("QUORATE_TEST_DISK_FREE")?;
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The tightest limit of the control groups that this process is in; `root` is the root of the file system.
fn memory(root: &Path) -> Option<Memory> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let groups = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let mount = match controllers {
            "" => "sys/fs/cgroup",
            named if named.split(',').any(|name| name == "memory") => "sys/fs/cgroup/memory",
            _ => return None,
        };
        Some((root.join(mount), path.trim_start_matches('/').to_owned()))
    });
    let limits = groups.flat_map(|(mount, path)| {
        // In a container its own group is often mounted as the root.
        let above: Vec<_> = Path::new(&path).ancestors().map(|part| mount.join(part)).collect();
        above.into_iter().filter_map(|group| group_memory(&group))
    });
    limits.min_by_key(|memory| memory.limit.saturating_sub(memory.used))
}

fn group_memory(group: &Path) -> Option<Memory> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // Version 1 says a number near the largest for none.
    if limit >= 1 << 60 {
        return None;
    }
    let stat = read("memory.stat").unwrap_or_default();
    let of = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let idle = of("total_inactive_file ").or_else(|| of("inactive_file ")).unwrap_or(0);
    Some(Memory { used: used.saturating_sub(idle), limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_disk_is_nearly_full_below_the_reserve_until_there_is_a_quarter_more() {
        let mut watermark = DiskWatermark::new(Some(100));
        let mut look = |free| watermark.look(Some(Disk { free, size: 1000 }), 0, false);
        let seen = [100, 99, 100, 124, 125, 100, 0].map(&mut look);
        assert_eq!(seen, [false, true, true, true, false, false, true]);
        assert!(!watermark.look(None, 9000, false), "of a disk that is not known nothing is said");
    }

    #[test]
    fn a_disk_without_room_for_the_next_segment_is_nearly_full_whatever_is_free() {
        let mut watermark = DiskWatermark::new(Some(100));
        let mut look = |(free, short)| watermark.look(Some(Disk { free, size: 1000 }), 0, short);
        let seen = [(900, false), (900, true), (110, false), (900, false)].map(&mut look);
        assert_eq!(seen, [false, true, true, false]);
        assert!(watermark.look(None, 0, true));
    }

    #[test]
    fn a_disk_without_room_for_the_next_snapshot_is_nearly_full_whatever_is_to_stay_free() {
        let mut watermark = DiskWatermark::new(Some(100));
        let mut look = |(free, snapshot)| watermark.look(Some(Disk { free, size: 1000 }), snapshot, false);
        let seen = [(400, 400), (400, 401), (400, 330), (400, 320), (100, 90)].map(&mut look);
        assert_eq!(seen, [false, true, true, false, false]);
    }

    #[test]
    fn the_reserve_is_a_twentieth_and_a_gibibyte_at_most() {
        let reserve = |size| DiskWatermark::default().reserve(size, 0);
        assert_eq!([GIB, 20 * GIB, 1000 * GIB].map(reserve), [GIB / 20, GIB, GIB]);
    }

    #[test]
    fn memory_is_nearly_used_up_from_nine_tenths_on_until_less_than_eight_are_used() {
        let mut watermark = MemoryWatermark::default();
        let mut look = |used| watermark.look(Some(Memory { used, limit: 1000 }));
        let seen = [0, 899, 900, 899, 800, 799, 899, 1001].map(&mut look);
        assert_eq!(seen, [false, false, true, true, true, false, false, true]);
        assert!(!watermark.look(None), "there is no limit any more");
    }

    #[test]
    fn the_tightest_limit_above_counts_without_idle_file_pages() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(memory(root.path()), None, "nothing is known");
        write("proc/self/cgroup", "0::/a.slice/b.scope\n");
        assert_eq!(memory(root.path()), None, "no group is visible");
        write("sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
        write("sys/fs/cgroup/a.slice/b.scope/memory.current", "500\n");
        assert_eq!(memory(root.path()), None, "there is no limit");
        write("sys/fs/cgroup/a.slice/memory.max", "1000\n");
        write("sys/fs/cgroup/a.slice/memory.current", "950\n");
        write("sys/fs/cgroup/a.slice/memory.stat", "anon 700\ninactive_file 100\nactive_file 9\n");
        let found = memory(root.path()).unwrap();
        assert_eq!(found, Memory { used: 850, limit: 1000 });

        // Version 1, where the group's own directory is the mount.
        write("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/17\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");
        write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
        assert_eq!(memory(root.path()), Some(Memory { used: 1000, limit: 2000 }));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory(root.path()), None);
    }

    #[test]
    fn warnings_say_how_much_there_is() {
        let metrics = Metrics::default();
        assert_eq!(warnings(&metrics), []);
        metrics.disk_nearly_full.set(true);
        metrics.disk_free_bytes.set(100 << 20);
        metrics.disk_size_bytes.set(20 * GIB);
        metrics.disk_reserve_bytes.set(GIB);
        metrics.memory_nearly_used_up.set(true);
        metrics.memory_used_bytes.set(1000);
        metrics.memory_limit_bytes.set(1 << 10);
        let words = [
            "the disk is nearly full: 100 MiB of 20 GiB are free, and 1.0 GiB are reserved",
            "memory is nearly used up: 1000 bytes of 1.0 KiB",
        ];
        assert_eq!(warnings(&metrics), [(WARNING_DISK, words[0].into()), (WARNING_MEMORY, words[1].into())]);
        metrics.memory_nearly_used_up.set(false);
        metrics.disk_free_bytes.set(2 * GIB);
        let words = "the disk is nearly full: 2.0 GiB of 20 GiB are free, but the log's next file has no room \
                     (df, df -i)";
        assert_eq!(warnings(&metrics), [(WARNING_DISK, words.into())]);
    }

    #[test]
    fn it_looks_when_it_is_asked_to_and_says_so_once() {
        let (looked, looks) = std::sync::mpsc::channel();
        let resources = Resources::watch(None, move || _ = looked.send(())).unwrap();
        assert!(!resources.take_fresh());
        for _ in 0..3 {
            resources.look();
            looks.recv().unwrap();
            assert_eq!((resources.take_fresh(), resources.take_fresh()), (true, false));
        }
    }

    #[test]
    fn the_disk_of_a_directory_is_known_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let found = Resources::watch(Some(directory.path().to_owned()), || {}).unwrap().found();
        let disk = found.disk.unwrap();
        assert!(disk.size > 0 && disk.free <= disk.size, "{disk:?}");
        assert_eq!(Resources::watch(None, || {}).unwrap().found().disk, None);
    }
}
