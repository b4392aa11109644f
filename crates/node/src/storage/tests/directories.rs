//! Whose directory it is; and the whole over real files and threads.

use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn options_in(scratch: &TempDir) -> Options {
    Options { directory: scratch.path().join("made").join("here"), ..options() }
}

fn waker() -> (Waker, mpsc::Receiver<()>) {
    let (woken, wakes) = mpsc::channel();
    (Box::new(move || _ = woken.send(())), wakes)
}

fn open_quietly(options: &Options) -> Result<Opened, StorageError> {
    open(options, Box::new(|| {}))
}

#[test]
fn what_is_written_to_real_files_is_there_after_a_restart() {
    for durability in [Durability::Fsync, Durability::Os] {
        let scratch = tempfile::tempdir().unwrap();
        let options = Options { durability, ..options_in(&scratch) };
        let (wake, wakes) = waker();
        let Opened { restarted, snapshot, records, mut log, .. } = open(&options, wake).unwrap();
        assert!(!restarted && snapshot.is_none() && records.is_empty());
        let payload = |number: u64| Bytes::from(vec![number as u8; 1 + 97 * number as usize % 9000]);
        for number in 0..40 {
            log.append([payload(number)]);
        }
        log.checkpoint(Some(Arc::new(TestImage { executed: 40, pieces: 3 })), [Bytes::from("kept")], 0);
        for number in 40..60 {
            log.append([payload(number)]);
        }
        while log.status().checkpoints == 0 || log.durable().unwrap() < 60 {
            wait(&wakes);
        }
        assert_eq!(log.status().checkpoint_bytes, None);
        drop(log);
        let reopened = open_quietly(&options).unwrap();
        assert!(reopened.restarted);
        let pieces = reopened.snapshot.unwrap().pieces(1 << 20);
        assert_eq!((pieces.len(), &pieces[0]), (3, &40u64.to_bytes()));
        assert_eq!(reopened.records[0], "kept");
        assert!(reopened.records[1..].iter().cloned().eq((40..60).map(payload)));
        assert_eq!(reopened.log.appended(), 60);
        assert!(!options.directory.join(segment::name(1)).exists(), "the log before is dropped");
    }
}

#[test]
fn a_directory_has_one_process_at_a_time() {
    let scratch = tempfile::tempdir().unwrap();
    let options = options_in(&scratch);
    let first = open_quietly(&options).unwrap();
    let error = open_quietly(&options).unwrap_err();
    let me = format!("process {}", std::process::id());
    assert!(matches!(error, StorageError::Locked { .. }) && error.to_string().contains(&me), "{error}");
    drop(first);
    open_quietly(&options).unwrap();
}

#[test]
fn a_directory_of_another_cluster_node_protocol_or_durability_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let right = options_in(&scratch);
    drop(open_quietly(&right).unwrap());
    for (wrong, parts) in [
        (Options { cluster: 0xc2, ..right.clone() }, ["cluster 00000000000000c1", "00000000000000c2"]),
        (Options { node: NodeId::new(2).unwrap(), ..right.clone() }, ["node 1", "started with node 2"]),
        (Options { protocol: "other", ..right.clone() }, ["protocol test", "started with protocol other"]),
        (
            Options { durability: Durability::None, ..right.clone() },
            ["--durability fsync or os", "--durability none"],
        ),
    ] {
        let error = open_quietly(&wrong).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // How often the disk is asked is nobody's business but this run's.
    drop(open_quietly(&Options { durability: Durability::Os, ..right.clone() }).unwrap());
    let path = right.directory.join("identity");
    let identity = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, identity.replace("format = 2", "format = 5")).unwrap();
    let error = open_quietly(&right).unwrap_err().to_string();
    assert!(error.contains("has format 5; this version of Quorate reads format 4"), "{error}");
    std::fs::write(&path, identity.replace("node = 1", "node = 3")).unwrap();
    assert!(matches!(open_quietly(&right), Err(StorageError::Corrupt { .. })));
}

#[test]
fn a_directory_is_marked_with_how_often_users_have_been_changed() {
    let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (options, others) = (options_in(&scratch), options_in(&other));
    let mut opened = open_quietly(&options).unwrap();
    assert_eq!(opened.mark.users(), 0);
    for changes in [7, 3] {
        assert!(opened.mark.raise_users(changes, Duration::from_secs(600)).unwrap());
    }
    drop(opened);
    assert_eq!(open_quietly(&options).unwrap().mark.users(), 7);
    // Another directory's says nothing here.
    drop(open_quietly(&others).unwrap());
    let [own, others_own] = [&options, &others].map(|options| options.directory.join("user-changes"));
    std::fs::copy(&own, others_own).unwrap();
    assert_eq!(open_quietly(&others).unwrap().mark.users(), 0);
    // What cannot be read is not taken for none.
    let mut bytes = std::fs::read(&own).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&own, bytes).unwrap();
    let error = open_quietly(&options).unwrap_err().to_string();
    assert!(error.contains("user-changes") && error.contains("checksum"), "{error}");
}

#[test]
fn a_directory_is_marked_with_the_level_of_its_group_and_refused_where_that_is_not_known() {
    let level = |number| FeatureLevel::new(number).unwrap();
    let unknown = level(FeatureLevel::NEWEST.get() + 1);
    let raise =
        |mark: &mut DirectoryMark, level| assert!(mark.raise(level, Duration::from_secs(600)).unwrap());
    for (durability, founded) in [(Durability::Os, None), (Durability::Os, Some(9)), (Durability::None, None)]
    {
        let scratch = tempfile::tempdir().unwrap();
        let options = Options { durability, founded, ..options_in(&scratch) };
        let path = options.directory.join("identity");
        let identity = || std::fs::read_to_string(&path).unwrap();
        let mut opened = open_quietly(&options).unwrap();
        let plain = identity();
        assert_eq!((opened.mark.level(), plain.contains("level")), (FeatureLevel::FIRST, false));
        // Nothing to be said of the first: builds that know no levels read on.
        raise(&mut opened.mark, FeatureLevel::FIRST);
        assert_eq!(identity(), plain);
        opened.log.append([Bytes::from_static(b"before")]);
        raise(&mut opened.mark, FeatureLevel::NEWEST);
        raise(&mut opened.mark, FeatureLevel::FIRST);
        let marked = identity();
        let lines = format!("format = 4\ncluster = {:016x}\n", options.cluster);
        assert!(marked.contains(&lines) && marked.contains("\nlevel = 3\n"), "{marked}");
        opened.log.append([Bytes::from_static(b"after")]);
        drop(opened);
        // It is the same directory still: what was written under the former level is read.
        let mut opened = open_quietly(&options).unwrap();
        assert_eq!(opened.mark.level(), FeatureLevel::NEWEST);
        if durability != Durability::None {
            assert_eq!(opened.records, ["before", "after"]);
        }
        raise(&mut opened.mark, unknown);
        drop(opened);
        let marked = identity();
        let error = open_quietly(&options).unwrap_err().to_string();
        let words = ["belongs to a group at feature level 4", "knows levels up to 3: start the version"];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
        assert_eq!(identity(), marked, "it stays as it is");
        for wrong in ["level = 0", "level = 1", "level = x", "level = 70000"] {
            std::fs::write(&path, marked.replace("level = 4", wrong)).unwrap();
            assert!(matches!(open_quietly(&options), Err(StorageError::Corrupt { .. })), "{wrong}");
        }
    }
}

#[test]
fn a_directory_keeps_its_identity_and_two_have_different_ones() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = open_quietly(&options_in(&one)).unwrap().disk;
    assert_eq!(open_quietly(&options_in(&one)).unwrap().disk, first);
    assert_ne!(open_quietly(&options_in(&other)).unwrap().disk, first);
}

#[test]
fn what_is_remembered_beside_the_log_is_replaced_as_a_whole_and_damage_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let options = options_in(&scratch);
    let memo = open_quietly(&options).unwrap().admission;
    assert_eq!(memo.read().unwrap(), None);
    memo.write(b"first").unwrap();
    memo.write(b"second").unwrap();
    let memo = open_quietly(&options).unwrap().admission;
    assert_eq!(memo.read().unwrap().unwrap(), "second");
    let path = options.directory.join("admission");
    let bytes = std::fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert!(matches!(memo.read(), Err(StorageError::Corrupt { .. })), "byte {at}");
        std::fs::write(&path, &bytes[..at]).unwrap();
        assert!(matches!(memo.read(), Err(StorageError::Corrupt { .. })), "cut at {at}");
    }
    // A writer in a thread of its own says when a content is durable; a later one may take its place before.
    let (wake, wakes) = waker();
    let writer = memo.clone().writer(wake).unwrap();
    writer.put(1, Bytes::from("third"));
    writer.put(2, Bytes::from("fourth"));
    while writer.durable() < 2 {
        wait(&wakes);
    }
    assert_eq!(memo.read().unwrap().unwrap(), "fourth");
    writer.put(3, Bytes::from("fifth"));
    drop(writer);
    assert_eq!(memo.read().unwrap().unwrap(), "fifth");
}

#[test]
fn a_directory_with_somebody_elses_files_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let options = options_in(&scratch);
    std::fs::create_dir_all(&options.directory).unwrap();
    std::fs::write(options.directory.join("holiday.jpg"), "x").unwrap();
    let error = open_quietly(&options).unwrap_err().to_string();
    assert!(error.contains("holiday.jpg") && error.contains("choose an empty"), "{error}");
    let left = std::fs::read_dir(&options.directory).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.eq(["holiday.jpg"]), "nothing is added to it");
}

#[test]
fn the_name_of_a_directory_is_durable_whoever_made_it() {
    let scratch = tempfile::tempdir().unwrap();
    let synced = std::cell::RefCell::new(Vec::new());
    let make = |path: &Path| {
        let sync = |parent: &Path| {
            synced.borrow_mut().push(parent.strip_prefix(scratch.path()).unwrap().display().to_string());
            Ok(())
        };
        make_directory(path, &sync).map(|()| synced.take())
    };
    let path = scratch.path().join("a").join("b");
    assert_eq!(make(&path).unwrap(), ["", "a"]);
    assert!(path.is_dir());
    assert_eq!(make(&path).unwrap(), ["a"], "it is there, but perhaps only until the power fails");
    let error = make_directory(&path, &|_| Err(io::Error::other("no"))).unwrap_err();
    assert_eq!(error.doing, "sync");
    make_directory(&path, &|_| Err(ErrorKind::PermissionDenied.into())).unwrap();
    let error = make_directory(Path::new("/proc/quorate"), &sync_directory).unwrap_err().to_string();
    assert!(error.contains("/proc does not take new directories: choose another --data-dir"), "{error}");
}

#[test]
fn without_durability_nothing_is_written_and_a_restart_is_still_known() {
    let scratch = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::None, ..options_in(&scratch) };
    let Opened { restarted, mut log, .. } = open_quietly(&options).unwrap();
    assert!(!restarted);
    assert_eq!(log.append([Bytes::from("gone"), Bytes::from("too")]), 2);
    assert_eq!(log.durable().unwrap(), 2);
    log.checkpoint(None, [Bytes::from("kept")], 0);
    assert_eq!(log.status().checkpoints, 1);
    drop(log);
    let reopened = open_quietly(&options).unwrap();
    assert!(reopened.restarted && reopened.records.is_empty() && reopened.snapshot.is_none());
    assert!(open_quietly(&Options { durability: Durability::Fsync, ..options }).is_err());
}

#[test]
fn promises_are_kept_without_durability_and_the_directory_is_never_taken_for_one_with_data() {
    let scratch = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::None, promises: true, ..options_in(&scratch) };
    let Opened { mut log, .. } = open_quietly(&options).unwrap();
    log.append([Bytes::from("a promise")]);
    drop(log);
    assert_eq!(open_quietly(&options).unwrap().records, ["a promise"]);
    assert!(!owner(&options.directory).unwrap().expect("it is somebody's").has_data);
    for durability in [Durability::Fsync, Durability::Os] {
        let error = open_quietly(&Options { durability, ..options.clone() }).unwrap_err().to_string();
        assert!(error.contains("--durability none"), "{error}");
    }
}

#[test]
fn the_checkpoint_of_a_state_machine_that_has_no_image_keeps_its_records() {
    let scratch = tempfile::tempdir().unwrap();
    let options = options_in(&scratch);
    let (wake, wakes) = waker();
    let mut log = open(&options, wake).unwrap().log;
    log.append([Bytes::from("dropped")]);
    log.checkpoint(None, [Bytes::from("kept")], 0);
    while log.status().checkpoints == 0 {
        wait(&wakes);
    }
    drop(log);
    let reopened = open_quietly(&options).unwrap();
    assert!(reopened.snapshot.is_none());
    assert_eq!(reopened.records, ["kept"]);
}

#[test]
fn a_log_stops_when_its_directory_is_moved_away_or_exchanged_for_a_copy() {
    let copy = |from: &Path, to: &Path| {
        std::fs::create_dir(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    for (rolls, copied) in [(false, false), (false, true), (true, false), (true, true)] {
        let scratch = tempfile::tempdir().unwrap();
        let options = options_in(&scratch);
        let (wake, wakes) = waker();
        let Opened { mut log, mark, admission, .. } = open(&options, wake).unwrap();
        let last = log.append([Bytes::from("acknowledged")]);
        while log.durable().unwrap() < last {
            wait(&wakes);
        }
        let (here, there) = (&options.directory, scratch.path().join("elsewhere"));
        std::fs::rename(here, &there).unwrap();
        if copied {
            copy(&there, here);
        }
        let names = || std::fs::read_dir(here).map_or(0, Iterator::count);
        let before = names();
        if rolls {
            log.checkpoint(None, [Bytes::from("kept")], 0);
        } else {
            log.append([Bytes::from("not acknowledged")]);
        }
        let failure = loop {
            match log.durable() {
                Ok(durable) => assert_eq!(durable, last, "what is in the other directory counts"),
                Err(failure) => break failure.to_string(),
            }
            wait(&wakes);
        };
        let advice = format!("put back {} as it was, then start the node again", here.display());
        assert!(failure.contains(&format!("cannot go on in {}", here.display())), "{failure}");
        assert!(failure.contains(&advice), "{failure}");
        assert_eq!(failure.contains("another directory has come"), copied, "{failure}");
        admission.write(b"not kept").unwrap_err();
        drop((log, mark));
        assert_eq!(names(), before);
        // Neither has files of the other: each opens with what was acknowledged.
        for directory in [there].into_iter().chain(copied.then(|| here.clone())) {
            let records = open_quietly(&Options { directory, ..options.clone() }).unwrap().records;
            assert_eq!(records[0], "acknowledged");
        }
    }
}
