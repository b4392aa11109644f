//! A directory of a cluster that begins with another's data has all of them, or says that they are not complete.

use quorate_core::Saved;

use super::memory::Faults;
use super::*;
use crate::storage::founding;

const RECORDS: usize = 40;

fn directory(memory: &Memory) -> Dir {
    Dir::new(Path::new("/data"), Arc::new(memory.clone()))
}

fn data() -> Saved<Payload> {
    let image: Snapshot = Arc::new(TestImage { executed: RECORDS as u64, pieces: 5 });
    Saved { restarted: false, snapshot: Some(image), records: vec![kept_record(RECORDS).into()] }
}

fn fill(memory: &Memory) -> Result<(), Failure> {
    founding::make(&directory(memory), &options().identity(9), SMALLEST_SEGMENT, data(), b"remembered")
}

/// Whether a disk has everything; `None` if it says that it has not. Anything else must not be.
fn is_whole(memory: &Memory) -> Option<bool> {
    let untouched = memory.names().is_empty();
    let found = match find(&directory(memory), &options(), 7, false) {
        Err(StorageError::Unfinished { .. }) => return None,
        found => found.unwrap(),
    };
    assert_eq!(found.restarted, !untouched, "a node would begin with nothing");
    if untouched {
        return Some(false);
    }
    assert_eq!((found.identity.disk, found.snapshot.unwrap().pieces(1 << 20).len()), (9, 5));
    assert_eq!(found.records, [kept_record(RECORDS)]);
    assert_eq!(Memo::new(directory(memory), memo::ADMISSION).read().unwrap().unwrap(), "remembered");
    let names = memory.names();
    assert!(!names.iter().any(|name| name == "founding" || name.ends_with(".tmp")), "{names:?}");
    Some(true)
}

#[test]
fn a_crash_while_another_clusters_data_are_written_leaves_all_of_them_or_a_directory_that_says_so() {
    let (mut empty, mut refused, mut whole) = (0, 0, 0);
    for dies_after in 0.. {
        let memory = Memory::new(dies_after);
        let mut random = Random::new(dies_after);
        memory.fail(Faults { dies_after: Some(dies_after), ..Faults::default() });
        let done = fill(&memory).is_ok();
        for round in 0..30 {
            let left = if round == 0 { memory.after_kill() } else { memory.after_power_loss(&mut random) };
            let again = left.after_kill();
            match is_whole(&left) {
                Some(true) => whole += 1,
                _ if done => panic!("what was said to be done is not"),
                Some(false) => empty += 1,
                None => {
                    refused += 1;
                    // The second try may die as well, and a third one makes it.
                    again.fail(Faults { dies_after: Some(random.range(0..40)), ..Faults::default() });
                    let _ = fill(&again);
                    let left = again.after_power_loss(&mut random);
                    let third = left.after_kill();
                    if is_whole(&left) != Some(true) {
                        fill(&third).unwrap();
                        assert_eq!(is_whole(&third.after_power_loss(&mut random)), Some(true));
                    }
                }
            }
        }
        if done && memory.names().iter().all(|name| name != "founding") {
            break;
        }
    }
    assert!(empty > 10 && refused > 200 && whole > 30, "{empty} {refused} {whole}");
}

#[test]
fn a_disk_that_does_not_take_another_clusters_data_is_empty_afterwards() {
    for faults in [
        Faults { full: true, ..Faults::default() },
        Faults { space: Some(6000), ..Faults::default() },
        Faults { syncs: Some(2), ..Faults::default() },
        Faults { rots: true, ..Faults::default() },
    ] {
        let memory = Memory::new(1);
        memory.fail(faults);
        fill(&memory).unwrap_err();
        assert!(memory.names().is_empty(), "{:?}", memory.names());
        memory.fail(Faults::default());
        fill(&memory).unwrap();
        assert_eq!(is_whole(&memory), Some(true));
    }
}

#[test]
fn a_node_refuses_a_directory_whose_founding_was_interrupted_and_founding_again_completes_it() {
    let scratch = tempfile::tempdir().unwrap();
    let options = Options { directory: scratch.path().to_owned(), ..options() };
    let path = |name: &str| options.directory.join(name);
    // As a kill in the middle of the snapshot leaves it.
    for name in ["founding", "lock", "snapshot-00000000000000000001.tmp", "wal-0000000001"] {
        std::fs::write(path(name), "").unwrap();
    }
    let open = || open(&options, Box::new(|| {}));
    for error in [open().unwrap_err(), owner(&options.directory).unwrap_err()] {
        let error = error.to_string();
        for words in
            ["`quorate restore` or `quorate recover`, which was interrupted", "Run that command again"]
        {
            assert!(error.contains(words), "{error}");
        }
    }
    let found = || founding::found(&options, (FeatureLevel::FIRST, data()), |_| Bytes::from("remembered"));
    found().unwrap();
    assert!(!path("founding").exists());
    let error = found().unwrap_err();
    assert!(matches!(error, StorageError::Owned { .. }), "{error}");
    // A loss of power may bring it back.
    std::fs::write(path("founding"), "").unwrap();
    assert!(matches!(found(), Err(StorageError::Owned { .. })), "it is complete");
    assert_eq!(open().unwrap().records, [kept_record(RECORDS)]);
    assert!(!path("founding").exists());
}
