//! The laws of storage, over a disk that crashes and fails on purpose.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the disk that crashes and fails |
//! | `blocks` | whole blocks, whatever is written |
//! | `crashes` | what a crash leaves, at any moment |
//! | `damage` | what a disk that changes its mind leaves |
//! | `failures` | full disks, failing syncs, short writes |
//! | `directories` | whose directory it is; real files and threads |
//! | `founding` | directories that begin with another cluster's data |

mod blocks;
mod crashes;
mod damage;
mod directories;
mod failures;
mod founding;
mod memory;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

use bytes::Bytes;
use quorate_core::{Image, NodeId, Payload, Piece, Random, Snapshot, Wire};

use super::background::Background;
use super::files::Dir;
use super::*;
use memory::Memory;

fn options() -> Options {
    Options {
        directory: PathBuf::from("/data"),
        cluster: 0xc1,
        node: NodeId::new(1).unwrap(),
        protocol: "test",
        durability: Durability::Fsync,
        promises: false,
        segment_bytes: SMALLEST_SEGMENT,
        founded: None,
        queue_bytes: 1 << 20,
    }
}

/// Waits until a log wakes its owner. A log that never does must fail the test, not hang it.
fn wait(wakes: &mpsc::Receiver<()>) {
    wakes.recv_timeout(std::time::Duration::from_secs(60)).expect("the log wakes its owner");
}

/// An image of a few pieces: how many records were executed, then filling.
#[derive(Debug)]
struct TestImage {
    executed: u64,
    pieces: u64,
}

impl Image for TestImage {
    fn piece(&self, cursor: &Bytes, _limit: usize) -> Piece {
        let index = if cursor.is_empty() { 0 } else { u64::from_bytes(cursor.clone()).unwrap() };
        let bytes = match index {
            0 => self.executed.to_bytes(),
            _ => Bytes::from(vec![index as u8; 700]),
        };
        Piece { bytes, next: (index + 1 < self.pieces).then(|| (index + 1).to_bytes()) }
    }
}

/// A replica that executes records in order: its state is how many it executed and what they were.
struct Replica {
    kept: Kept,
    /// All records it ever executed, those dropped from its log included.
    history: Vec<Bytes>,
    /// So many of them were durable.
    acknowledged: usize,
    /// So many of them are in the image it was opened with.
    in_image: usize,
}

/// Reserved for each checkpoint, in bytes: more than it takes.
const SPACE: u64 = 20_000;

/// What a replica leaves when it dies.
struct Remains {
    history: Vec<Bytes>,
    acknowledged: usize,
}

impl Remains {
    fn none() -> Remains {
        Remains { history: Vec::new(), acknowledged: 0 }
    }
}

impl Replica {
    /// Opens a disk, and checks that what is on it is what a predecessor of these remains may have left.
    fn open(memory: &Memory, options: &Options, remains: &Remains) -> Result<Replica, StorageError> {
        let dir = Dir::new(Path::new("/data"), Arc::new(memory.clone()));
        let found = find(&dir, options, 7, false)?;
        let mut records = found.records.into_iter();
        let mut in_image = 0;
        if let Some(image) = &found.snapshot {
            let pieces = image.pieces(1 << 20);
            in_image = u64::from_bytes(pieces[0].clone()).unwrap() as usize;
            assert!(
                pieces[1..].iter().enumerate().all(|(index, piece)| *piece == vec![index as u8 + 1; 700])
            );
            assert_eq!(records.next(), Some(kept_record(in_image)), "the record kept with the image");
        }
        let mut history = remains.history[..in_image].to_vec();
        history.extend(records);
        assert!(history.len() >= remains.acknowledged, "acknowledged records are lost");
        assert!(remains.history.starts_with(&history), "what is left is no prefix");
        assert!(found.restarted || remains.acknowledged == 0, "forgot that it ran before");
        let kept = found.kept.expect("a log is kept");
        assert_eq!(kept.writer.last() as usize, history.len(), "sequence numbers count records");
        Ok(Replica { kept, acknowledged: history.len(), history, in_image })
    }

    /// Appends a group of records and syncs it.
    fn append(&mut self, records: &[Bytes]) -> Result<(), Failure> {
        let before = self.history.len();
        self.history.extend_from_slice(records);
        let mut rest: Vec<Payload> = records.iter().map(split).collect();
        while !rest.is_empty() {
            let count = self.kept.writer.write(&rest)?;
            rest.drain(..count);
            self.acknowledged = self.kept.writer.last() as usize;
        }
        assert_eq!(self.acknowledged, before + records.len());
        Ok(())
    }

    /// Writes a checkpoint of everything executed.
    fn checkpoint(&mut self, pieces: u64) -> Result<(), Failure> {
        let executed = self.history.len();
        let image = Arc::new(TestImage { executed: executed as u64, pieces });
        self.checkpoint_of(image, vec![Payload::Whole(kept_record(executed))])
    }

    fn checkpoint_of(&mut self, image: Snapshot, records: Vec<Payload>) -> Result<(), Failure> {
        let start = self.kept.writer.cut()?;
        let Kept { dir, identity, pool, .. } = &self.kept;
        snapshot::create(dir, start.sequence, SPACE)?;
        let (content, written) = ((Some(image), records), AtomicU64::new(0));
        snapshot::write(dir, *identity, start, content, &Background::hurried(), &written)?;
        snapshot::publish(dir, start, pool)
    }

    fn remains(&self) -> Remains {
        Remains { history: self.history.clone(), acknowledged: self.acknowledged }
    }
}

fn kept_record(executed: usize) -> Bytes {
    Bytes::from(format!("kept at {executed}"))
}

/// Large records in parts, as encoders give them.
fn split(bytes: &Bytes) -> Payload {
    if bytes.len() < 100 {
        return Payload::Whole(bytes.clone());
    }
    Payload::Parts(vec![bytes.slice(..10), bytes.slice(10..10), bytes.slice(10..)])
}

/// Mostly small records, some larger than a page, few larger than a segment; now and then one full of zeros.
fn draw_record(random: &mut Random) -> Bytes {
    let len = match random.range(0..40) {
        0 => random.range(16_000..40_000),
        1..4 => random.range(3000..9000),
        4 => 0,
        _ => random.range(1..300),
    };
    let mut bytes: Vec<u8> = (0..len).map(|_| random.u64() as u8).collect();
    if random.chance(0.1) {
        bytes.fill(0);
    }
    bytes.into()
}

fn draw_group(random: &mut Random) -> Vec<Bytes> {
    (0..random.range(1..9)).map(|_| draw_record(random)).collect()
}
