//! Processes that are started for a comparison: none is left behind, and what they use is read from /proc.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What a comparison cannot go on after; the text says all.
pub type Result<T> = std::result::Result<T, String>;

/// Nodes get this long to end by themselves.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// Set by a signal: everything ends.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Listens for SIGINT, SIGTERM and SIGHUP.
    pub fn listen() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|error| format!("cannot handle signals: {error}"))?;
        }
        Ok(Stop(flag))
    }

    /// An error if a signal has come.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err("stopped by a signal".to_owned()) } else { Ok(()) }
    }

    /// Sleeps, unless a signal comes.
    pub fn sleep(&self, time: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.check()?;
            std::thread::sleep(POLL.min(time.saturating_sub(start.elapsed())));
        }
        self.check()
    }
}

/// A child that ends with its owner.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a program whose output goes to a file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let out = File::create(log).map_err(|error| format!("cannot create {}: {error}", log.display()))?;
        Process::start_to(command, out, log)
    }

    /// Starts a program whose output goes to one file, and what it says of errors to another.
    pub fn start_to(command: &mut Command, out: File, log: &Path) -> Result<Process> {
        let err = File::options().create(true).append(true).open(log);
        let err = err.map_err(|error| format!("cannot create {}: {error}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let name = command.get_program().to_string_lossy().into_owned();
        child.map(Process).map_err(|error| format!("cannot start {name}: {error}"))
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end; gives whether it went well.
    pub fn wait(&mut self, stop: &Stop, limit: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            stop.check()?;
            match self.0.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if start.elapsed() > limit => return Err(format!("no end after {limit:?}")),
                Ok(None) => std::thread::sleep(POLL),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Waits until its log is no longer empty.
    pub fn wait_for_output(&mut self, stop: &Stop, log: &Path, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while std::fs::metadata(log).map_or(0, |log| log.len()) == 0 {
            stop.check()?;
            self.expect_alive(log)?;
            if start.elapsed() > limit {
                return Err(format!("it has said nothing for {limit:?}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// An error with its output if it has ended.
    pub fn expect_alive(&mut self, log: &Path) -> Result<()> {
        match self.0.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(format!("a server ended early:\n{}", std::fs::read_to_string(log).unwrap_or_default())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Ok(None), Some(pid)) = (self.0.try_wait(), Pid::from_raw(self.0.id() as i32)) {
            let _ = kill_process(pid, Signal::TERM);
            let start = Instant::now();
            while matches!(self.0.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
                std::thread::sleep(POLL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A command line for people to repeat.
pub fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    let shown = |word: &OsStr| match word.to_string_lossy() {
        word if word.is_empty() => "''".to_owned(),
        word => word.into_owned(),
    };
    words.map(shown).collect::<Vec<_>>().join(" ")
}

/// CPU seconds of processes so far, user and system.
pub fn cpu_seconds(pids: &[u32]) -> f64 {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let of = |pid: &u32| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may contain anything; user and system time are the 12th and 13th word after it.
        let rest = text.rsplit_once(')')?.1;
        let mut times = rest.split_whitespace().skip(11).map(str::parse::<f64>);
        Some((times.next()?.ok()? + times.next()?.ok()?) / ticks)
    };
    pids.iter().filter_map(of).sum()
}

/// CPU seconds of the threads that processes have now, to the nanosecond; [`cpu_seconds`] counts in hundredths. For
/// what does next to nothing.
pub fn cpu_seconds_of_threads(pids: &[u32]) -> f64 {
    let threads = |pid: &u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    pids.iter().flat_map(threads).filter_map(nanos).sum::<f64>() / 1e9
}

/// Resident memory of a process, in MB.
pub fn memory_mb(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}
