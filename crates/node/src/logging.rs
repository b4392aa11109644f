//! Log lines on their way to the standard error. Whoever reads them may be slow, stop reading, or be gone, and the disk
//! below may be full: none of that may stop a node or keep its event loop waiting. So lines go through a queue with a
//! bound in bytes to a thread that writes them; a line that finds the queue full, or that cannot be written, is dropped
//! and counted. The count is the metric `stderr_lines_dropped_total`, and the log says it as soon as it can.
//!
//! The thread has a descriptor of its own: a write that waits for a reader holds no lock that others need, `eprintln!`
//! and the panic hook among them.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use quorate_core::Time;
use tracing::{error, warn};

/// Bytes of lines that may wait to be written, with [`OVERHEAD`] for each line.
const QUEUE: usize = 4 << 20;
/// What a waiting line takes beside its bytes.
const OVERHEAD: usize = 64;
/// How long the end of the process waits for its last lines to be written.
const FLUSH: Duration = Duration::from_secs(1);
/// Until the next attempt on a descriptor that takes nothing now and does not block.
const RETRY: Duration = Duration::from_millis(10);
/// From one line about dropped lines to the next.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The queue of this process's log, once there is one.
static PROCESS: OnceLock<Arc<Shared>> = OnceLock::new();

/// Lines of this process's log that were dropped so far.
pub fn dropped() -> u64 {
    PROCESS.get().map_or(0, |shared| shared.dropped.load(Ordering::Relaxed))
}

/// Where lines are written to, one with each call of `write`; never waits, never fails. For each clone the same queue.
#[derive(Clone, Debug)]
pub struct Lines {
    queue: Sender<Item>,
    shared: Arc<Shared>,
}

/// Waits at its end, for a second at most, until what was queued before is written.
#[derive(Debug)]
pub struct Flush(Sender<Item>);

#[derive(Debug, Default)]
struct Shared {
    /// Bytes of lines that are queued and not written yet.
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

enum Item {
    Line(Vec<u8>),
    /// Everything before is written.
    Flushed(SyncSender<()>),
}

/// The way to the standard error, from now on the one whose dropped lines [`dropped`] counts.
pub fn stderr() -> (Lines, Flush) {
    // Without a standard error nobody misses a line.
    let out: Box<dyn Write + Send> = match io::stderr().as_fd().try_clone_to_owned() {
        Ok(descriptor) => Box::new(File::from(descriptor)),
        Err(_) => Box::new(io::sink()),
    };
    let (lines, flush) = start(out);
    let _ = PROCESS.set(lines.shared.clone());
    (lines, flush)
}

/// Logs panics as any error: the standard hook would wait for whoever reads the standard error.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let trace = Backtrace::capture();
        let trace = (trace.status() == BacktraceStatus::Captured).then(|| format!("\n{trace}"));
        let trace = trace.unwrap_or_default();
        let thread = thread::current().name().unwrap_or("?").to_owned();
        error!(thread, "{info}{trace}");
    }));
}

fn start(out: impl Write + Send + 'static) -> (Lines, Flush) {
    let (queue, items) = mpsc::channel();
    let shared = Arc::new(Shared::default());
    let writer = Writer { out, torn: false };
    let (lines, flush) = (Lines { queue: queue.clone(), shared: shared.clone() }, Flush(queue));
    // Without the thread every line counts as dropped, and the node runs.
    let _ = thread::Builder::new().name("log".to_owned()).spawn(move || write(items, writer, &shared));
    (lines, flush)
}

fn write(items: Receiver<Item>, mut writer: Writer<impl Write>, shared: &Shared) {
    for item in items {
        match item {
            Item::Line(line) => {
                if writer.put(&line).is_err() {
                    shared.dropped.fetch_add(1, Ordering::Relaxed);
                }
                shared.waiting.fetch_sub(line.len() + OVERHEAD, Ordering::Relaxed);
            }
            Item::Flushed(done) => drop(done.try_send(())),
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bytes = line.len() + OVERHEAD;
        let waiting = self.shared.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if waiting > QUEUE || self.queue.send(Item::Line(line.to_vec())).is_err() {
            self.shared.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, wait) = mpsc::sync_channel(1);
        if self.0.send(Item::Flushed(done)).is_ok() {
            // Whoever does not read is not waited for any longer.
            let _ = wait.recv_timeout(FLUSH);
        }
    }
}

/// Writes whole lines; what follows a line that was cut begins a new one.
struct Writer<W> {
    out: W,
    torn: bool,
}

impl<W: Write> Writer<W> {
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            self.write_all(b"\n")?;
        }
        self.write_all(line)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = &bytes[count..];
                    self.torn = !bytes.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sees to it that the log says how many of its lines are missing.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    told: u64,
    again: Time,
}

impl Missing {
    /// Tells what was not told yet, if it is time to try: what tells it may be dropped as well.
    pub(crate) fn tell(&mut self, dropped: u64, now: Time) {
        if dropped > self.told && now >= self.again {
            (self.told, self.again) = (dropped, now + TELL_EVERY);
            warn!(
                dropped,
                "{dropped} lines of this log were dropped since the start: the standard error was not read fast \
                 enough, or could not be written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What came of each write, in order; then everything works.
    #[derive(Clone, Default)]
    struct Scripted {
        outcomes: Arc<Mutex<Vec<io::Result<usize>>>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut outcomes = self.outcomes.lock().unwrap();
            let count = if outcomes.is_empty() { bytes.len() } else { outcomes.remove(0)?.min(bytes.len()) };
            self.written.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted_and_the_next_one_begins_its_own() {
        let out = Scripted::default();
        let error = |kind: ErrorKind| Err(io::Error::from(kind));
        *out.outcomes.lock().unwrap() = vec![
            Ok(2),
            error(ErrorKind::StorageFull),
            error(ErrorKind::BrokenPipe),
            error(ErrorKind::Interrupted),
            error(ErrorKind::WouldBlock),
        ];
        let (mut lines, flush) = start(out.clone());
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            lines.write_all(line.as_bytes()).unwrap();
        }
        drop(flush);
        assert_eq!(String::from_utf8_lossy(&out.written.lock().unwrap()), "on\nthree\nfour\n");
        assert_eq!(lines.shared.dropped.load(Ordering::Relaxed), 2);
        assert_eq!(lines.shared.waiting.load(Ordering::Relaxed), 0);
    }

    /// Nobody reads: a write never ends.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_reads_keeps_nobody_waiting_and_its_memory_is_bounded() {
        let (read, stuck) = mpsc::channel();
        let (mut lines, flush) = start(Stuck(stuck));
        let line = vec![b'x'; 1 << 10];
        for _ in 0..10_000 {
            lines.write_all(&line).unwrap();
        }
        let kept = QUEUE / (line.len() + OVERHEAD);
        assert_eq!(lines.shared.dropped.load(Ordering::Relaxed), 10_000 - kept as u64);
        assert!(lines.shared.waiting.load(Ordering::Relaxed) <= QUEUE);
        // The end of the process does not wait for ever either.
        drop(flush);
        drop(read);
    }

    #[test]
    fn what_is_missing_is_told_once_and_again_when_more_is() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut missing = Missing::default();
        let mut told = |dropped, now| {
            missing.tell(dropped, now);
            missing.told
        };
        assert_eq!(told(0, at(1)), 0);
        assert_eq!(told(3, at(2)), 3);
        assert_eq!(told(4, at(11)), 3, "not more often than every ten seconds");
        assert_eq!(told(4, at(12)), 4);
    }
}
