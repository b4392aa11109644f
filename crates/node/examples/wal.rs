//! How fast the log is: appends records in batches, with so many batches under way, and shows records and syncs per
//! second; next to a bare loop that writes and syncs the same bytes in one thread.
//!
//! ```text
//! cargo run --release -p quorate-node --example wal [DIRECTORY] [SECONDS] [fsync|os|none]
//! ```

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quorate_core::NodeId;
use quorate_node::Durability;
use quorate_node::storage::{self, Options, SEGMENT_BYTES};

const RECORD: usize = 150;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "target/wal-bench".to_owned());
    let seconds: u64 = arguments.next().map_or(Ok(2), |word| word.parse())?;
    let durability: Durability = arguments.next().map_or(Ok(Durability::Fsync), |word| word.parse())?;
    let (directory, time) = (Path::new(&directory), Duration::from_secs(seconds));

    println!("records of {RECORD} B, durability {durability}, {seconds} s each, in {}", directory.display());
    println!(
        "{:>6} {:>8} {:>12} {:>9} {:>9} {:>9}",
        "batch", "under way", "records/s", "syncs/s", "p50 µs", "p99 µs"
    );
    for (batch, window) in [(1, 1), (16, 1), (64, 1), (256, 1), (1, 64), (16, 64), (64, 64)] {
        let result = measure(directory, durability, time, batch, window)?;
        println!("{batch:>6} {window:>8} {result}");
    }
    if durability == Durability::Fsync {
        println!("a bare loop of write and sync in one thread:");
        for batch in [1, 16, 64, 256] {
            println!("{batch:>6} {:>8} {}", 1, bare(directory, time, batch)?);
        }
    }
    Ok(())
}

/// One thread hands batches over, as an event loop does, and waits when `window` of them are not durable.
fn measure(
    directory: &Path,
    durability: Durability,
    time: Duration,
    batch: u64,
    window: usize,
) -> Result<String, Box<dyn Error>> {
    let options = Options {
        directory: directory.to_owned(),
        cluster: 1,
        node: NodeId::new(1).ok_or("an id")?,
        protocol: "bench",
        durability,
        promises: false,
        segment_bytes: SEGMENT_BYTES,
        founded: None,
        queue_bytes: 64 << 20,
    };
    remove(directory)?;
    let owner = thread::current();
    let mut log = storage::open(&options, Box::new(move || owner.unpark()))?.log;
    let record = Bytes::from(vec![7; RECORD]);
    let mut under_way: std::collections::VecDeque<(u64, Instant)> = Default::default();
    let mut latencies = Vec::new();
    let started = Instant::now();
    while started.elapsed() < time {
        while under_way.len() < window {
            let at = Instant::now();
            under_way.push_back((log.append((0..batch).map(|_| record.clone())), at));
        }
        while log.durable()? < under_way[0].0 {
            thread::park();
        }
        let durable = log.durable()?;
        while let Some(&(last, at)) = under_way.front()
            && last <= durable
        {
            latencies.push(at.elapsed());
            under_way.pop_front();
        }
    }
    let elapsed = started.elapsed();
    let line = line(log.durable()?, log.status().syncs, elapsed, latencies);
    drop(log);
    remove(directory)?;
    Ok(line)
}

fn bare(directory: &Path, time: Duration, batch: u64) -> Result<String, Box<dyn Error>> {
    std::fs::create_dir_all(directory)?;
    let file = std::fs::File::create(directory.join("bare"))?;
    let chunk = vec![0; 1 << 20];
    for at in 0..64 {
        file.write_all_at(&chunk, at << 20)?;
    }
    file.sync_all()?;
    let bytes = vec![7; (RECORD + 26) * batch as usize];
    let (mut at, mut latencies) = (0, Vec::new());
    let started = Instant::now();
    while started.elapsed() < time {
        let begun = Instant::now();
        at = if at + bytes.len() > 64 << 20 { 0 } else { at };
        file.write_all_at(&bytes, at as u64)?;
        file.sync_data()?;
        at += bytes.len();
        latencies.push(begun.elapsed());
    }
    let (syncs, elapsed) = (latencies.len() as u64, started.elapsed());
    let line = line(syncs * batch, syncs, elapsed, latencies);
    remove(directory)?;
    Ok(line)
}

fn line(records: u64, syncs: u64, elapsed: Duration, mut latencies: Vec<Duration>) -> String {
    latencies.sort_unstable();
    let quantile = |part: usize| latencies[latencies.len() * part / 100].as_micros();
    let rate = |count: u64| (count as f64 / elapsed.as_secs_f64()) as u64;
    format!("{:>12} {:>9} {:>9} {:>9}", rate(records), rate(syncs), quantile(50), quantile(99))
}

fn remove(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
