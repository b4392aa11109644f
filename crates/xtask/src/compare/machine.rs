//! The machine and the versions: numbers mean nothing without them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The first line that a command prints; what went wrong if it cannot run.
pub fn first_line(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> String {
    match Command::new(program.as_ref()).args(args).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("?").trim().to_owned(),
        Err(error) => format!("not there ({error})"),
    }
}

/// Whether a program can be found.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Processor, cores and kernel.
pub fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_line("uname", &["-sr"]);
    format!("{}, {cores} cores, {kernel}", model.map_or("unknown processor", |(_, model)| model))
}

/// The load of the last minute.
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// How many 4 KiB overwrites a second one thread syncs in this folder.
pub fn syncs_per_second(dir: &Path) -> std::io::Result<f64> {
    let path = dir.join("sync-probe");
    let file = File::create(&path)?;
    file.write_all_at(&vec![0; 4 << 20], 0)?;
    file.sync_all()?;
    let (start, mut count) = (Instant::now(), 0u64);
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all_at(&[1; 4096], count % 1024 * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}
