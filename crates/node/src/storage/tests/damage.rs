//! What was durable and is not there any more is refused, or was of no importance.

use super::*;
use crate::storage::blocks::BLOCK;

/// A disk with everything on it: a checkpoint, several segments, one larger than others, and a mark at the end.
fn full_disk() -> (Memory, Remains) {
    let memory = Memory::new(1);
    let mut random = Random::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    replica.append(&draw_group(&mut random)).unwrap();
    replica.checkpoint(4).unwrap();
    for len in [100, 5000, 3000, 4500, 200, 20_000, 900, 700, 10] {
        replica.append(&[vec![len as u8; len].into(), vec![1; len / 3].into()]).unwrap();
    }
    replica.kept.writer.mark().unwrap();
    (memory, replica.remains())
}

#[test]
fn every_flipped_bit_in_what_was_synced_is_refused_or_harmless() {
    let (memory, remains) = full_disk();
    let mut random = Random::new(2);
    let (mut refused, mut harmless) = (0, 0);
    for name in memory.names() {
        let bytes = memory.read(&name);
        let mut at = 0;
        while at < bytes.len() {
            let left = memory.after_kill();
            left.edit(&name, |bytes| bytes[at] ^= 1 << random.range(0..8));
            match Replica::open(&left, &options(), &remains) {
                // Opening has compared what is there with what was written.
                Ok(_) => harmless += 1,
                Err(StorageError::Corrupt { path, offset, .. }) => {
                    assert_eq!(path, Path::new("/data").join(&name), "byte {at}");
                    assert!(offset <= at as u64 + 24, "{name}: byte {at} reported at {offset}");
                    refused += 1;
                }
                Err(StorageError::Format { .. }) => refused += 1,
                Err(error) => panic!("{name}: byte {at}: {error}"),
            }
            // All bytes of heads; some of long payloads and of zeros.
            let boring = at > 200 && bytes[at..].iter().take(64).all(|&byte| byte == bytes[at]);
            at += if boring { random.range(1..64) as usize } else { 1 };
        }
    }
    assert!(refused > 3000 && harmless > 100, "{refused} {harmless}");
}

#[test]
fn every_frame_that_later_ones_vouch_for_is_needed() {
    let (memory, remains) = full_disk();
    let mut frames = 0;
    for name in memory.names().iter().filter(|name| name.starts_with("wal")) {
        let bytes = memory.read(name);
        let index = segment::index_of(name).unwrap();
        let identity = Identity::read(&dir(&memory)).unwrap().unwrap().digest();
        let found: Vec<_> =
            segment::Place::new(identity, index).search(&bytes, segment::HEADER..bytes.len()).collect();
        for frame in found.into_iter().filter(|frame| frame.payload.is_some()) {
            let left = memory.after_kill();
            left.edit(name, |bytes| bytes[frame.start()..frame.end].fill(0));
            let error = Replica::open(&left, &options(), &remains).err().expect("refused");
            let StorageError::Corrupt { path, .. } = error else { panic!("{name}: {frame:?}: {error}") };
            assert!(
                path.ends_with(name)
                    || frame.start() == segment::HEADER
                    || frame.end + 24 > bytes.len()
                    || bytes[frame.end..].iter().all(|&byte| byte == 0),
                "{path:?} for {name}"
            );
            frames += 1;
        }
    }
    assert_eq!(frames, 18);
}

#[test]
fn a_frame_vouches_for_what_was_synced_before_it_was_written_and_no_more() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let group = vec![Bytes::from(vec![5; 40]); 3];
    replica.append(&group).unwrap();
    replica.append(&group).unwrap();
    for record in 0..6 {
        let left = memory.after_kill();
        let at = segment::HEADER + record * (segment::FRAME + 40);
        left.edit("wal-0000000001", |bytes| bytes[at + 30] ^= 1);
        // Nothing was written after the second group: that its sync had ended is known to nobody.
        let remains = Remains { history: replica.history.clone(), acknowledged: 3 };
        match Replica::open(&left, &options(), &remains) {
            Err(StorageError::Corrupt { offset, .. }) => {
                assert!(record < 3 && offset == at as u64, "{record}")
            }
            Err(error) => panic!("{record}: {error}"),
            Ok(reopened) => assert!(record >= 3 && reopened.history.len() == record, "{record}"),
        }
    }
}

/// Records, and the mark behind them, lie in one block: what was durable says a file of its own.
#[test]
fn the_last_block_of_a_log_that_was_idle_is_no_torn_tail() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    for number in 0..20 {
        replica.append(&[vec![number; 40].into()]).unwrap();
    }
    replica.kept.writer.mark().unwrap();
    let (remains, mut random) = (replica.remains(), Random::new(3));
    let damage = |first: usize, fill: &mut dyn FnMut() -> u8| {
        let left = memory.after_kill();
        left.edit("wal-0000000001", |bytes| {
            let from = segment::HEADER + first * (segment::FRAME + 40);
            bytes[from..segment::HEADER + BLOCK].iter_mut().for_each(|byte| *byte = fill());
        });
        (left, first)
    };
    let zeros = [0, 15].map(|first| damage(first, &mut || 0));
    let garbage = [0, 15].map(|first| damage(first, &mut || random.range(0..256) as u8));
    for (left, intact) in zeros.into_iter().chain(garbage) {
        let error = Replica::open(&left, &options(), &remains).err().expect("refused");
        assert!(error.to_string().contains("records up to 20 were durable"), "{error}");
        // Of another directory, or not there: it says nothing.
        left.edit("durable", |bytes| bytes[12] ^= 1);
        let reopened =
            Replica::open(&left, &options(), &Remains { acknowledged: 0, ..replica.remains() }).unwrap();
        assert_eq!(reopened.history.len(), intact);
    }
}

#[test]
fn a_segment_or_snapshot_that_is_gone_or_not_itself_is_refused() {
    let (memory, remains) = full_disk();
    let segments: Vec<_> = memory.names().into_iter().filter(|name| name.starts_with("wal")).collect();
    let snapshot = memory.names().into_iter().find(|name| name.starts_with("snapshot")).unwrap();
    assert!(segments.len() > 4, "{segments:?}");
    let elsewhere = Memory::new(3);
    find(&dir(&elsewhere), &options(), 8, false).unwrap();
    let foreign = elsewhere.read("wal-0000000002");
    type Edit<'a> = Box<dyn Fn(&Memory) + 'a>;
    let mut edits: Vec<(String, Edit<'_>)> = Vec::new();
    // All but the spare one at the end: that one never held anything.
    for name in &segments[..segments.len() - 1] {
        edits.push((format!("{name} removed"), Box::new(|left| left.rearrange(&[(name, "aside")]))));
    }
    for pair in segments.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        edits.push((
            format!("{a} and {b} exchanged"),
            Box::new(move |left| left.rearrange(&[(a, b), (b, a)])),
        ));
    }
    for name in segments.iter().chain([&snapshot]) {
        // The end of its last block may be mere filling.
        let cut = memory.read(name).len().saturating_sub(BLOCK);
        edits.push((
            format!("{name} cut short"),
            Box::new(move |left| left.edit(name, |bytes| bytes.truncate(cut))),
        ));
        edits.push((format!("{name} empty"), Box::new(|left| left.edit(name, Vec::clear))));
    }
    let second = &segments[1];
    edits.push((
        "another directory's".into(),
        Box::new(|left| left.edit(second, |bytes| *bytes = foreign.clone())),
    ));
    edits.push(("longer".into(), Box::new(|left| left.edit(&snapshot, |bytes| bytes.push(0)))));
    edits.push(("no snapshot".into(), Box::new(|left| left.rearrange(&[(&snapshot, "aside")]))));
    edits.push(("no identity".into(), Box::new(|left| left.rearrange(&[("identity", "aside")]))));
    for (what, edit) in &edits {
        let left = memory.after_kill();
        edit(&left);
        let before: Vec<_> = left.names().iter().map(|name| left.read(name)).collect();
        let error = Replica::open(&left, &options(), &remains).err();
        let error = error.unwrap_or_else(|| panic!("{what}: accepted"));
        assert!(!matches!(error, StorageError::Failed(_)), "{what}: {error}");
        let after: Vec<_> = left.names().iter().map(|name| left.read(name)).collect();
        assert!(before == after, "{what}: refused, but changed");
    }
}

#[test]
fn a_snapshot_of_another_history_of_the_same_directory_is_refused() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    replica.append(&["common".into()]).unwrap();
    // Somebody copies the directory, and both copies go on.
    let (one, other) = (memory.after_kill(), memory.after_kill());
    let mut replica = Replica::open(&one, &options(), &replica.remains()).unwrap();
    replica.append(&vec![Bytes::from("small"); 20]).unwrap();
    replica.checkpoint(2).unwrap();
    let remains = replica.remains();
    let mut replica = Replica::open(&other, &options(), &Remains { acknowledged: 1, ..remains }).unwrap();
    replica.append(&vec![Bytes::from(vec![1; 5000]); 5]).unwrap();
    let snapshot = one.names().into_iter().find(|name| name.starts_with("snapshot")).unwrap();
    other.put(&snapshot, one.read(&snapshot));
    let error = find(&dir(&other), &options(), 7, false).err().expect("refused").to_string();
    assert!(error.contains("record 22 should begin here, but record 4 is there"), "{error}");
}

#[test]
fn a_refusal_names_the_file_the_offset_and_what_to_do() {
    let (memory, remains) = full_disk();
    let name = memory.names().into_iter().find(|name| name.starts_with("wal")).unwrap();
    memory.edit(&name, |bytes| bytes[segment::HEADER + segment::FRAME] ^= 1);
    let error = Replica::open(&memory, &options(), &remains).err().unwrap().to_string();
    for part in [&format!("/data/{name}"), "offset 4096", "checksum is wrong", "the others serve without it"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
}

fn dir(memory: &Memory) -> Dir {
    Dir::new(Path::new("/data"), Arc::new(memory.clone()))
}
