//! A failure is final: nothing becomes durable after it, and what was durable stays.

use std::time::Duration;

use rustix::io::Errno;

use super::memory::Faults;
use super::*;
use crate::resources;
use crate::storage::writer::LEAST_FREE;

#[test]
fn a_full_disk_stops_the_log_and_loses_nothing() {
    let mut stopped = 0;
    for space in (0..200_000).step_by(1777) {
        let memory = Memory::new(space);
        let mut random = Random::new(space);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        memory.fail(Faults { space: Some(space), ..Faults::default() });
        let failure = loop {
            let step = match random.range(0..6) {
                0 => replica.checkpoint(3),
                _ => replica.append(&draw_group(&mut random)),
            };
            if let Err(failure) = step {
                break failure;
            }
        };
        assert!(failure.is_full(), "{failure}");
        assert!(failure.to_string().contains("free space on the file system of /data"), "{failure}");
        stopped += usize::from(replica.acknowledged > 0);
        let left = memory.after_power_loss(&mut random);
        Replica::open(&left, &options(), &replica.remains()).unwrap();
    }
    assert!(stopped > 50, "{stopped}");
}

#[test]
fn a_disk_without_room_for_a_spare_stops_the_log_only_when_its_last_segment_is_full() {
    let group = [Bytes::from(vec![7; 1000])];
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    memory.fail(Faults { full: true, ..Faults::default() });
    let failure = loop {
        if let Err(failure) = replica.append(&group) {
            break failure;
        }
    };
    assert!(failure.is_full() && failure.to_string().contains("free space on"), "{failure}");
    // The segment it had, and the spare.
    let least = 2 * (SMALLEST_SEGMENT - segment::HEADER as u64) / 1100;
    assert!(replica.acknowledged as u64 >= least, "{} of {least}", replica.acknowledged);
    assert!(memory.names().iter().all(|name| !name.ends_with(".tmp")), "{:?}", memory.names());
    let left = memory.after_power_loss(&mut Random::new(1));
    Replica::open(&left, &options(), &replica.remains()).unwrap();

    // Room that comes back in time is as if there had always been some.
    let memory = Memory::new(2);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    for count in 0..500 {
        let full = count % 7 < 5;
        memory.fail(Faults { full, ..Faults::default() });
        replica.append(&group).unwrap();
    }
}

#[test]
fn a_log_says_when_its_next_segment_has_no_room_and_looks_for_room_when_it_is_asked_to() {
    let memory = Memory::new(1);
    // For the first segment.
    memory.fail(Faults { space: Some(SMALLEST_SEGMENT * 3 / 2), ..Faults::default() });
    let (mut log, wakes) = start(&memory, &options());
    let record = || [Bytes::from(vec![7; 1000])];
    // It is told by a thread, and what is asked meanwhile changes nothing.
    while !log.is_short() {
        log.look_for_room();
        std::thread::yield_now();
    }
    let last = log.append(record());
    while log.durable().expect("the present segment has room") < last {
        wait(&wakes);
    }
    // Nothing more is written, and there is room: it must be asked, for it makes the segment in another thread.
    memory.fail(Faults::default());
    while log.is_short() {
        log.look_for_room();
        std::thread::yield_now();
    }
    for _ in 0..100 {
        log.append(record());
    }
    let last = log.appended();
    while log.durable().expect("there is room") < last {
        wait(&wakes);
    }
}

#[test]
fn a_failed_sync_is_not_followed_by_an_acknowledgement() {
    for syncs in 0..40 {
        let memory = Memory::new(syncs);
        let mut random = Random::new(syncs);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        memory.fail(Faults { syncs: Some(syncs), ..Faults::default() });
        let failure = loop {
            if let Err(failure) = replica.append(&draw_group(&mut random)) {
                break failure;
            }
        };
        assert_eq!(failure.doing, "sync");
        let left = memory.after_power_loss(&mut random);
        Replica::open(&left, &options(), &replica.remains()).unwrap();
    }
}

#[test]
fn writes_that_the_system_cuts_short_are_finished() {
    for seed in 0..20 {
        let memory = Memory::new(seed);
        memory.fail(Faults { short: true, ..Faults::default() });
        let mut random = Random::new(seed);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        for _ in 0..5 {
            replica.append(&draw_group(&mut random)).unwrap();
        }
        replica.checkpoint(3).unwrap();
        replica.append(&draw_group(&mut random)).unwrap();
        let left = memory.after_power_loss(&mut random);
        Replica::open(&left, &options(), &replica.remains()).unwrap();
    }
}

#[test]
fn a_signal_that_comes_while_space_is_taken_stops_nothing() {
    let memory = Memory::new(1);
    let mut random = Random::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let segments = memory.names().len();
    for _ in 0..50 {
        memory.fail(Faults { interrupts: 2, ..Faults::default() });
        replica.append(&draw_group(&mut random)).unwrap();
    }
    assert!(memory.names().len() > segments, "further segments were made");
    let left = memory.after_power_loss(&mut random);
    Replica::open(&left, &options(), &replica.remains()).unwrap();
}

#[test]
fn a_snapshot_that_reads_back_differently_stops_the_log_with_everything_in_it() {
    for seed in 0..200 {
        let memory = Memory::new(seed);
        let mut random = Random::new(seed);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        replica.append(&draw_group(&mut random)).unwrap();
        if random.chance(0.5) {
            replica.checkpoint(3).unwrap();
            replica.append(&draw_group(&mut random)).unwrap();
        }
        memory.fail(Faults { rots: true, ..Faults::default() });
        let failure = replica.checkpoint(5).expect_err("what was written is not what is there");
        assert_eq!(failure.doing, "verify");
        assert!(failure.to_string().contains("the log before it is kept"), "{failure}");
        let left = memory.after_kill();
        let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
        assert_eq!(reopened.history.len(), replica.history.len(), "nothing is lost");
    }
}

#[test]
fn a_snapshot_that_changes_behind_its_verification_is_an_error_and_no_panic() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    replica.append(&[Bytes::from_static(b"record")]).unwrap();
    replica.checkpoint(3).unwrap();
    let left = memory.after_kill();
    let dir = Dir::new(Path::new("/data"), Arc::new(left.clone()));
    let image = find(&dir, &options(), 7, false).unwrap().snapshot.expect("it was written");
    assert_eq!(snapshot::load(|| image.pieces(1 << 20).len()).unwrap(), 3);
    let name = left.names().into_iter().find(|name| name.starts_with("snapshot-")).unwrap();
    left.edit(&name, |bytes| {
        let last_piece = bytes.len() - 100;
        bytes[last_piece] ^= 1;
    });
    let error = snapshot::load(|| image.pieces(1 << 20)).unwrap_err();
    assert!(error.to_string().contains("it changed after it was verified"), "{error}");
    assert!(!error.is_misplaced(), "exit 1, not 2");
}

/// An image that writes pieces which it cannot load.
#[derive(Debug)]
struct Unloadable;

impl Image for Unloadable {
    fn piece(&self, _cursor: &Bytes, _limit: usize) -> Piece {
        Piece { bytes: Bytes::from_static(b"piece"), next: None }
    }

    fn verify(&self, pieces: &mut dyn Iterator<Item = Bytes>) -> Result<(), String> {
        assert_eq!(pieces.next(), Some(Bytes::from_static(b"piece")), "as it was written");
        Err("the head cannot be read".to_owned())
    }
}

/// An image with one piece of this many bytes.
#[derive(Debug)]
struct Large(usize);

impl Image for Large {
    fn piece(&self, _cursor: &Bytes, _limit: usize) -> Piece {
        Piece { bytes: vec![0; self.0].into(), next: None }
    }
}

#[test]
fn an_image_that_could_not_be_read_or_loaded_again_stops_the_log_with_everything_in_it() {
    let images: [(Snapshot, &str); 2] = [
        (Arc::new(Unloadable), "the head cannot be read"),
        (Arc::new(Large(segment::MAX_RECORD + 1)), "longer than the 268435456 that can be read"),
    ];
    for (image, why) in images {
        let memory = Memory::new(1);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        replica.append(&[Bytes::from("acknowledged")]).unwrap();
        let failure = replica.checkpoint_of(image, Vec::new()).expect_err(why);
        assert!(failure.to_string().contains(why), "{failure}");
        let left = memory.after_kill();
        let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
        assert_eq!(reopened.history, ["acknowledged"]);
    }
}

/// A log with its threads, over memory.
fn start(memory: &Memory, options: &Options) -> (Log, mpsc::Receiver<()>) {
    let dir = Dir::new(Path::new("/data"), Arc::new(memory.clone()));
    let found = find(&dir, options, 7, true).unwrap();
    let (woken, wakes) = mpsc::channel();
    let log =
        Log::start(found.kept, None, options.queue_bytes, Box::new(move || _ = woken.send(()))).unwrap();
    (log, wakes)
}

#[test]
fn a_log_that_failed_wakes_its_owner_says_why_and_acknowledges_nothing_more() {
    let memory = Memory::new(1);
    let (mut log, wakes) = start(&memory, &options());
    log.append(["one".into()] as [Bytes; 1]);
    wait(&wakes);
    assert_eq!(log.durable().unwrap(), 1);
    memory.fail(Faults { syncs: Some(0), ..Faults::default() });
    log.append(["two".into()] as [Bytes; 1]);
    wait(&wakes);
    let failure = log.durable().unwrap_err();
    assert_eq!((failure.doing, failure.is_full()), ("sync", false));
    memory.fail(Faults::default());
    log.append(["three".into()] as [Bytes; 1]);
    drop(log);
    let records =
        find(&Dir::new(Path::new("/data"), Arc::new(memory)), &options(), 7, false).unwrap().records;
    assert_eq!(records, ["one", "two"], "nothing was written after the failure");
}

/// An image: while it is written, the disk fills up.
struct Filling(Memory);

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filling")
    }
}

impl Image for Filling {
    fn piece(&self, _cursor: &Bytes, _limit: usize) -> Piece {
        self.0.fail(Faults { space: Some(0), ..Faults::default() });
        Piece { bytes: Bytes::from_static(b"piece"), next: None }
    }
}

#[test]
fn a_snapshot_without_room_is_given_up_and_the_log_goes_on_as_if_it_had_not_begun() {
    for is_full_before in [true, false] {
        let memory = Memory::new(1);
        let (mut log, wakes) = start(&memory, &options());
        let wait_for = |log: &Log, durable: u64, checkpoints: u64| loop {
            let status = log.status();
            let is_done = status.checkpoints == checkpoints && status.checkpoint_bytes.is_none();
            if is_done && log.durable().unwrap() == durable {
                break;
            }
            wait(&wakes);
        };
        let one = |text: &'static str| [Bytes::from(text)];
        let found = |memory: &Memory| {
            let dir = Dir::new(Path::new("/data"), Arc::new(memory.after_kill()));
            find(&dir, &options(), 7, false).unwrap().records
        };
        log.append(one("one"));
        log.checkpoint(None, one("kept first"), 0);
        log.append(one("two"));
        wait_for(&log, 2, 1);
        let before = log.status().log_bytes;
        if is_full_before {
            memory.fail(Faults { full: true, ..Faults::default() });
            log.checkpoint(Some(Arc::new(TestImage { executed: 2, pieces: 1 })), one("kept"), SPACE);
        } else {
            log.checkpoint(Some(Arc::new(Filling(memory.clone()))), one("kept"), 0);
        }
        wait_for(&log, 2, 1);
        let why = log.given_up().expect("there was no room");
        assert!(why.is_full() && why.path.to_string_lossy().contains("snapshot"), "{why}");
        assert!(log.given_up().is_none(), "said once");
        assert_eq!(log.status().log_bytes, before);
        let is_unfinished = |name: &String| name.starts_with("snapshot") && name.ends_with(".tmp");
        assert!(!memory.names().iter().any(is_unfinished), "{:?}", memory.names());
        log.append(one("three"));
        wait_for(&log, 3, 1);
        assert_eq!(found(&memory), ["kept first", "two", "three"]);
        memory.fail(Faults::default());
        log.checkpoint(None, one("kept second"), SPACE);
        log.append(one("four"));
        wait_for(&log, 4, 2);
        assert_eq!(found(&memory), ["kept second", "four"]);
        assert!(log.given_up().is_none());
    }
}

/// It makes room: the log before it goes.
#[test]
fn a_snapshot_begins_where_there_is_no_room_for_a_usual_segment() {
    let options = Options { segment_bytes: 16 * SMALLEST_SEGMENT, ..options() };
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options, &Remains::none()).unwrap();
    replica.kept.pool.keep(&replica.kept.dir, false).unwrap();
    memory.fail(Faults { largest: Some(3 * SMALLEST_SEGMENT), ..Faults::default() });
    let group = [Bytes::from(vec![7; 1000])];
    let mut capacities = Vec::new();
    for _ in 0..5 {
        replica.append(&group).unwrap();
        replica.checkpoint(1).unwrap();
        assert!(replica.kept.writer.is_short());
        let segment = memory.names().into_iter().rfind(|name| name.starts_with("wal-")).unwrap();
        capacities.push(replica.kept.dir.open(&segment).unwrap().len().unwrap() / SMALLEST_SEGMENT);
    }
    // The spares that it had, and then what fits.
    assert_eq!(capacities, [16, 2, 2, 2, 2]);
    memory.fail(Faults::default());
    replica.append(&group).unwrap();
    replica.kept.writer.look_for_room().unwrap();
    assert!(!replica.kept.writer.is_short());
    replica.checkpoint(1).unwrap();
    let left = memory.after_power_loss(&mut Random::new(1));
    Replica::open(&left, &options, &replica.remains()).unwrap();
}

#[test]
fn what_gathers_during_a_sync_shares_the_next_one() {
    let memory = Memory::new(1);
    let (mut log, wakes) = start(&memory, &options());
    memory.close_gate();
    let mut last = 0;
    for number in 0..100 {
        last = log.append([Bytes::from(vec![number; 20]), Bytes::new()]);
    }
    assert_eq!(last, 200);
    assert_eq!(log.durable().unwrap(), 0, "not before the disk has it");
    assert_eq!(log.unsynced(), 2000);
    memory.open_gate();
    while log.durable().unwrap() < last {
        wait(&wakes);
    }
    // The first may have begun with what was there by then.
    assert!(log.status().syncs <= 2, "{:?}", log.status());
    assert_eq!(log.unsynced(), 0);
}

#[test]
fn a_log_is_full_when_its_bound_waits_for_the_disk() {
    let memory = Memory::new(1);
    let (mut log, wakes) = start(&memory, &Options { queue_bytes: 1000, ..options() });
    memory.close_gate();
    log.append([Bytes::from(vec![1; 999])]);
    assert!(!log.is_full());
    let last = log.append([Bytes::from(vec![1; 1])]);
    assert!(log.is_full());
    memory.open_gate();
    while log.durable().unwrap() < last {
        wait(&wakes);
    }
    assert!(!log.is_full());
}

#[test]
fn a_directory_on_a_disk_that_hangs_is_not_marked_and_nobody_waits_for_ever() {
    let memory = Memory::new(1);
    let dir = Dir::new(Path::new("/data"), Arc::new(memory.clone()));
    let identity = find(&dir, &options(), 7, false).unwrap().identity;
    let mut mark = DirectoryMark::new(dir, identity).unwrap();
    memory.close_gate();
    assert!(!mark.raise(FeatureLevel::NEWEST, Duration::ZERO).unwrap());
    assert_eq!(mark.level(), FeatureLevel::FIRST);
    memory.open_gate();
}

#[test]
fn a_log_that_is_dropped_writes_what_it_was_given_and_vouches_for_it() {
    let memory = Memory::new(1);
    let (mut log, _wakes) = start(&memory, &options());
    for number in 0..50u8 {
        log.append([Bytes::from(vec![number; 500])]);
    }
    drop(log);
    let left = memory.after_kill();
    let found = find(&Dir::new(Path::new("/data"), Arc::new(left)), &options(), 7, false).unwrap();
    assert!(found.records.iter().map(|record| record[0]).eq(0..50));
    let left = memory.after_kill();
    let last = left.names().into_iter().rfind(|name| left.read(name).contains(&49)).unwrap();
    left.edit(&last, |bytes| {
        let at = bytes.iter().rposition(|&byte| byte == 49).unwrap();
        bytes[at] = 0;
    });
    let again = find(&Dir::new(Path::new("/data"), Arc::new(left)), &options(), 7, false);
    assert!(matches!(again, Err(StorageError::Corrupt { .. })));
}

#[test]
fn a_failure_says_what_to_do_about_its_cause() {
    for (doing, errno, part) in [
        ("open", Errno::NOENT, "put back /data as it was"),
        ("write", Errno::FBIG, "ulimit -f"),
        ("make", Errno::AGAIN, "ulimit -u"),
        ("open", Errno::MFILE, "ulimit -n"),
        ("open", Errno::NFILE, "fs.file-max"),
        ("open", Errno::ACCESS, "let this user read and write /data,"),
        ("list", Errno::ACCESS, "let this user read and write /data/wal-1,"),
        ("write", Errno::ROFS, "remount the file system of /data "),
        ("write", Errno::DQUOT, "free space on the file system of /data:"),
        ("write", Errno::NOSPC, "free space on the file system of /data:"),
        ("create", Errno::NOSPC, "free space or inodes on the file system of /data (df, df -i)"),
        ("make directory", Errno::NOSPC, "free space or inodes on the file system of /data (df, df -i)"),
        ("read", Errno::IO, "look for disk errors in the kernel log"),
    ] {
        let said = Failure::new(doing, "/data/wal-1", errno.into()).to_string();
        assert!(said.contains(part), "{said}");
        assert_eq!(said.contains("disk errors"), errno == Errno::IO, "{said}");
    }
}

/// What is there would fit many times, but the next segment would not: nothing could be written any more.
#[test]
fn on_a_small_disk_segments_are_small() {
    let options = Options { segment_bytes: 64 * SMALLEST_SEGMENT, ..options() };
    let size = 64 * SMALLEST_SEGMENT;
    let memory = Memory::new(1);
    memory.fail(Faults { room: Some(resources::Disk { free: u64::MAX, size }), ..Faults::default() });
    let mut replica = Replica::open(&memory, &options, &Remains::none()).unwrap();
    let group = [Bytes::from(vec![7; 1000])];
    for count in 0..2000 {
        replica.append(&group).unwrap();
        if count % 100 == 99 {
            replica.checkpoint(1).unwrap();
        }
        let files = memory.names();
        let taken: u64 = files.iter().map(|name| memory.read(name).len() as u64).sum();
        assert!(taken < size, "{taken} bytes of {size} after {count} records: {files:?}");
    }
}

/// Without that, keys could be deleted, and no snapshot could begin that drops the log before it.
#[test]
fn a_spare_segment_leaves_room_for_a_snapshot_to_begin() {
    let options = Options { segment_bytes: 4 * SMALLEST_SEGMENT, ..options() };
    let segment = options.segment_bytes;
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options, &Remains::none()).unwrap();
    let group = [Bytes::from(vec![7; 1000])];
    for (free, short) in [(LEAST_FREE + segment - 1, true), (LEAST_FREE + segment, false)] {
        memory.fail(Faults { room: Some(resources::Disk { free, size: u64::MAX }), ..Faults::default() });
        replica.kept.writer.look_for_room().unwrap();
        (0..200).for_each(|_| replica.append(&group).unwrap());
        assert_eq!(replica.kept.writer.is_short(), short, "{free} free");
    }
}
