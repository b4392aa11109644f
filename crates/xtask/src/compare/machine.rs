//! What numbers mean nothing without: the machine, the commit, and what others did to the processors meanwhile.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::processes::Result;

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

/// Others that keep more processors busy than this disturb what is measured in real time.
const QUIET: f64 = 0.2;

/// Whether others left the processors alone, by what [`load`] said before, between and after.
pub fn is_quiet(loads: &[f64]) -> bool {
    loads.iter().all(|load| *load <= QUIET)
}

/// What git says of the repository.
pub fn git(words: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(crate::root()).args(words).output();
    let output = output.map_err(|error| format!("cannot run git: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The head of a CSV: commit, machine and date.
pub fn head() -> Result<BTreeMap<String, String>> {
    let lines = [
        ("commit", git(&["rev-parse", "--short", "HEAD"])?),
        ("machine", describe()),
        ("measured", first_line("date", &["-u", "+%F %H:%M UTC"])),
    ];
    Ok(lines.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Processor, cores and kernel.
pub fn describe() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = first_line("uname", &["-sr"]);
    format!("{}, {cores} cores, {kernel}", model.map_or("unknown processor", |(_, model)| model))
}

/// How many processors others keep busy for so long from now. (Not the load average, which for a minute still tells of
/// the build that made this program.)
pub fn load(time: Duration) -> f64 {
    let (idle, all) = ticks();
    std::thread::sleep(time);
    let (idle, all) = (ticks().0 - idle, ticks().1 - all);
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    (100.0 * processors * (1.0 - idle / all.max(1.0))).round() / 100.0
}

/// Of all processors since the start: idle, and altogether.
fn ticks() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let numbers: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, waiting for disks, …
    (numbers.iter().skip(3).take(2).sum(), numbers.iter().take(8).sum())
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
