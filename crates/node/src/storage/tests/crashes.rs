//! A crash keeps every acknowledged record, keeps a prefix of the others, and is always recovered from.

use super::memory::Faults;
use super::*;

/// Lives until it dies or has done enough.
fn live(replica: &mut Replica, random: &mut Random) -> Result<(), Failure> {
    for _ in 0..random.range(0..12) {
        match random.range(0..8) {
            0 => replica.checkpoint(random.range(1..9))?,
            1 => replica.kept.writer.mark()?,
            _ => replica.append(&draw_group(random))?,
        }
    }
    Ok(())
}

/// What a crash leaves of a disk: the process was killed, or the machine lost power.
fn crash(memory: &Memory, random: &mut Random) -> Memory {
    if random.chance(0.3) { memory.after_kill() } else { memory.after_power_loss(random) }
}

#[test]
fn a_crash_at_any_moment_of_any_life_keeps_what_was_acknowledged_and_a_prefix_of_the_rest() {
    let (mut lost, mut kept, mut died_opening, mut from_image) = (0, 0, 0, 0);
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let (mut memory, mut remains) = (Memory::new(seed), Remains::none());
        for _ in 0..6 {
            let dies_after = random.range(0..80);
            memory.fail(Faults { dies_after: Some(dies_after), ..Faults::default() });
            match Replica::open(&memory, &options(), &remains) {
                Ok(mut replica) => {
                    lost += remains.history.len() - replica.history.len();
                    kept += replica.history.len() - remains.acknowledged;
                    from_image += usize::from(replica.in_image > 0);
                    // Whether it dies or just stops is all the same to what it leaves.
                    let _ = live(&mut replica, &mut random);
                    remains = replica.remains();
                }
                Err(StorageError::Failed(_)) => died_opening += 1,
                Err(error) => panic!("seed {seed}: {error}"),
            }
            memory = crash(&memory, &mut random);
        }
        Replica::open(&memory, &options(), &remains).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    // The test means something only if all of this happens.
    assert!(
        lost > 1000 && kept > 100 && died_opening > 100 && from_image > 100,
        "{lost} {kept} {died_opening} {from_image}"
    );
}

#[test]
fn a_checkpoint_is_there_as_a_whole_or_not_at_all_wherever_its_writing_is_cut_short() {
    let (mut old, mut new) = (0, 0);
    for dies_after in 0.. {
        let memory = Memory::new(dies_after);
        let mut random = Random::new(dies_after);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        replica.append(&draw_group(&mut random)).unwrap();
        replica.checkpoint(3).unwrap();
        replica.append(&draw_group(&mut random)).unwrap();
        let before = replica.history.len();
        memory.fail(Faults { dies_after: Some(dies_after), ..Faults::default() });
        let done = replica.checkpoint(5).is_ok();
        for _ in 0..20 {
            let left = crash(&memory, &mut random);
            let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
            let is_new = reopened.in_image == before;
            assert!(is_new || !done, "a finished checkpoint is gone");
            let snapshots = left.names().iter().filter(|name| name.starts_with("snapshot")).count();
            assert_eq!(snapshots, 1, "only one is kept: {:?}", left.names());
            // What was opened may be all that was durable: its successor finds it, too.
            for _ in 0..8 {
                let again = left.after_power_loss(&mut random);
                Replica::open(&again, &options(), &reopened.remains()).unwrap();
            }
            if is_new { new += 1 } else { old += 1 }
        }
        if done {
            break;
        }
    }
    assert!(old > 50 && new > 50, "{old} {new}");
}

#[test]
fn opening_twice_gives_the_same_and_opening_changes_nothing_that_is_intact() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let memory = Memory::new(seed);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        memory.fail(Faults { dies_after: Some(random.range(0..60)), ..Faults::default() });
        let _ = live(&mut replica, &mut random);
        let memory = crash(&memory, &mut random);
        let first = Replica::open(&memory, &options(), &replica.remains()).unwrap();
        let files = |memory: &Memory| -> Vec<_> {
            memory.names().into_iter().map(|name| (memory.read(&name), name)).collect()
        };
        let before = files(&memory);
        let second = Replica::open(&memory, &options(), &first.remains()).unwrap();
        assert_eq!(first.history.len(), second.history.len(), "seed {seed}");
        assert!(files(&memory) == before, "seed {seed}: an intact directory was changed");
    }
}

#[test]
fn a_later_page_of_an_unsynced_write_without_an_earlier_one_is_a_torn_tail() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let record = Bytes::from(vec![9; 1000]);
    replica.append(std::slice::from_ref(&record)).unwrap();
    memory.fail(Faults { syncs: Some(0), ..Faults::default() });
    replica.append(&vec![record.clone(); 5]).unwrap_err();
    for hole in 0..5 {
        let left = memory.after_kill();
        let frame = segment::FRAME + 1000;
        let at = segment::HEADER + (1 + hole) * frame;
        left.edit("wal-0000000001", |bytes| bytes[at + 100..at + 612].fill(0));
        let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
        assert_eq!(reopened.history.len(), 1 + hole, "hole in record {hole} of the last write");
        let rest = left.read("wal-0000000001").split_off(at);
        assert!(rest.iter().all(|&byte| byte == 0), "what was cut is gone");
    }
}

#[test]
fn records_that_a_failed_sync_left_in_memory_only_are_made_durable_before_anyone_relies_on_them() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    replica.append(&["synced".into()]).unwrap();
    memory.fail(Faults { syncs: Some(0), ..Faults::default() });
    replica.append(&["forgotten".into()]).unwrap_err();
    memory.fail(Faults::default());
    // The machine goes on running; only the process starts again.
    let second = Replica::open(&memory, &options(), &replica.remains()).unwrap();
    assert_eq!(second.history, ["synced", "forgotten"]);
    let left = memory.after_power_loss(&mut Random::new(1));
    Replica::open(&left, &options(), &second.remains()).unwrap();
}

#[test]
fn a_segment_that_is_used_again_holds_only_its_new_records() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let mut reused = 0;
    for round in 0..20u8 {
        replica.append(&vec![Bytes::from(vec![round; 3000]); 7]).unwrap();
        replica.checkpoint(2).unwrap();
        replica.append(&["last".into()]).unwrap();
        let last = memory.names().into_iter().rfind(|name| name.starts_with("wal")).unwrap();
        reused += u32::from(memory.read(&last)[segment::HEADER..].iter().any(|&byte| byte != 0));
        for left in [memory.after_kill(), memory.after_power_loss(&mut Random::new(round.into()))] {
            let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
            assert_eq!(reopened.history, replica.history, "round {round}");
        }
    }
    assert!(reused > 10, "{reused} segments were used again");
    let retired = memory.names().iter().filter(|name| name.starts_with("retired")).count();
    assert!(retired <= 8, "{retired} are kept");
}

#[test]
fn on_a_disk_that_is_nearly_full_no_segment_is_kept_to_be_used_again() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let is_retired = |name: &String| name.starts_with("retired");
    let mut kept = Vec::new();
    for has_room in [true, false, false, true] {
        replica.kept.pool.keep(&replica.kept.dir, has_room).unwrap();
        let before = memory.names().iter().any(is_retired);
        replica.append(&vec![Bytes::from(vec![7; 3000]); 20]).unwrap();
        replica.checkpoint(2).unwrap();
        kept.push((before, memory.names().iter().any(is_retired)));
        let left = memory.after_power_loss(&mut Random::new(1));
        let reopened = Replica::open(&left, &options(), &replica.remains()).unwrap();
        assert_eq!(reopened.history, replica.history);
    }
    assert_eq!(kept, [(false, true), (false, false), (false, false), (false, true)]);
}

/// What is written behind its end makes the file longer, and syncing that costs as much again.
#[test]
fn a_segment_is_filled_to_its_end_and_no_further() {
    let rest = SMALLEST_SEGMENT as usize - segment::HEADER - 2 * segment::FRAME;
    for len in [rest, rest + 1] {
        let memory = Memory::new(1);
        let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
        replica.append(&["".into(), vec![9; len].into()]).unwrap();
        replica.kept.writer.mark().unwrap();
        assert_eq!(memory.read("wal-0000000001").len() as u64, SMALLEST_SEGMENT, "{len} bytes");
        let left = memory.after_power_loss(&mut Random::new(1));
        Replica::open(&left, &options(), &replica.remains()).unwrap();
    }
}

/// Nothing of such a file is to be given back, and so nothing else syncs it.
#[test]
fn a_checkpoint_that_fills_its_last_block_is_durable_when_it_has_its_name() {
    let memory = Memory::new(1);
    let mut replica = Replica::open(&memory, &options(), &Remains::none()).unwrap();
    let start = replica.kept.writer.cut().unwrap();
    let Kept { dir, identity, pool, .. } = &replica.kept;
    // With header, footer, and its own frame: a block.
    let record = Bytes::from(vec![7; BLOCK - 48 - 36 - 16]);
    let (content, written) = ((None, vec![Payload::Whole(record.clone())]), AtomicU64::new(0));
    snapshot::create(dir, start.sequence, 0).unwrap();
    snapshot::write(dir, *identity, start, content, &Background::hurried(), &written).unwrap();
    snapshot::publish(dir, start, pool).unwrap();
    assert_eq!(memory.read(&snapshot::name(start.sequence)).len(), BLOCK);
    for seed in 0..20 {
        let left = memory.after_power_loss(&mut Random::new(seed));
        let dir = Dir::new(Path::new("/data"), Arc::new(left));
        let read = snapshot::read(&dir, *identity, start.sequence).unwrap();
        assert_eq!(read.records, std::slice::from_ref(&record), "seed {seed}");
    }
}

#[test]
fn a_memo_is_the_last_that_was_written_or_the_one_that_was_being_written() {
    let memo =
        |memory: &Memory| Memo::new(Dir::new(Path::new("/data"), Arc::new(memory.clone())), memo::ADMISSION);
    for dies_after in 0.. {
        let memory = Memory::new(dies_after);
        memo(&memory).write(b"first").unwrap();
        memory.fail(Faults { dies_after: Some(dies_after), ..Faults::default() });
        let done = memo(&memory).write(b"second").is_ok();
        for seed in 0..20 {
            let left = memory.after_power_loss(&mut Random::new(seed));
            let read = memo(&left).read().unwrap().expect("one was written");
            assert!(read == "second" || (read == "first" && !done), "{read:?} of {dies_after} changes");
        }
        if done {
            break;
        }
    }
}
