//! What the system says of this process: the metrics that all of Prometheus's clients give, under their names.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// See the file comment. Sizes are in bytes, times in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    /// Of all threads, in user and in system mode.
    pub cpu_seconds: f64,
    pub resident: u64,
    pub mapped: u64,
    /// Since 1970.
    pub started: f64,
    pub descriptors: u64,
    pub descriptors_limit: Option<u64>,
}

impl ProcessStats {
    /// Now; `None` where there is no `/proc`.
    pub fn read() -> Option<ProcessStats> {
        let read = |file: &str| fs::read_to_string(file).ok();
        let descriptors = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let (stat, system) = (read("/proc/self/stat")?, read("/proc/stat")?);
        let limits = read("/proc/self/limits").unwrap_or_default();
        let stats = ProcessStats::parse(&stat, &system, &limits, (clock_ticks_per_second(), page_size()))?;
        // Listing them took one.
        Some(ProcessStats { descriptors: descriptors.saturating_sub(1), ..stats })
    }

    /// Memory in use, alone: one file is read.
    pub fn resident() -> Option<u64> {
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * page_size() as u64)
    }

    /// CPU time of all threads in user and in system mode, alone: one file is read.
    pub fn cpu_seconds() -> Option<(f64, f64)> {
        ProcessStats::cpu(&fs::read_to_string("/proc/self/stat").ok()?, clock_ticks_per_second())
    }

    fn cpu(stat: &str, ticks: u64) -> Option<(f64, f64)> {
        // The second field, the program's name, may contain anything.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut fields = fields.split_whitespace().skip(14 - 3);
        let mut seconds = || Some(fields.next()?.parse::<u64>().ok()? as f64 / ticks as f64);
        Some((seconds()?, seconds()?))
    }

    /// The memory of the machine, alone: one file is read.
    pub fn system_memory() -> Option<u64> {
        ProcessStats::total(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn total(meminfo: &str) -> Option<u64> {
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(total.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
    }

    fn parse(stat: &str, system: &str, limits: &str, (ticks, page): (u64, usize)) -> Option<ProcessStats> {
        // The second field, the program's name, may contain anything.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<u64> =
            fields.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
        let field = |number: usize| fields.get(number - 3).copied();
        let seconds = |ticks_of: u64| ticks_of as f64 / ticks as f64;
        let (user, system_mode) = ProcessStats::cpu(stat, ticks)?;
        let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Some(ProcessStats {
            cpu_seconds: user + system_mode,
            resident: field(24)? * page as u64,
            mapped: field(23)?,
            started: boot as f64 + seconds(field(22)?),
            descriptors: 0,
            descriptors_limit: limit.and_then(|line| line.split_whitespace().next()?.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_program_is_called() {
        let fields: Vec<String> = (4..=52).map(|number| (number * 100).to_string()).collect();
        let stat = format!("17 (a) S 1 (b) S {}", fields.join(" "));
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      4096     files\n";
        let stats = ProcessStats::parse(&stat, "cpu 1 2\nbtime 1700000000\n", limits, (100, 4096)).unwrap();
        let expected = ProcessStats {
            cpu_seconds: 29.0,
            resident: 2400 * 4096,
            mapped: 2300,
            started: 1_700_000_022.0,
            descriptors: 0,
            descriptors_limit: Some(1024),
        };
        assert_eq!(stats, expected);
        assert_eq!(ProcessStats::cpu(&stat, 100), Some((14.0, 15.0)));
        assert_eq!(ProcessStats::parse("17 (a) S 1", "", "", (100, 4096)), None);
        let here = ProcessStats::read().unwrap();
        assert_eq!(ProcessStats::total("MemTotal:       16384 kB\nMemFree:  1 kB\n"), Some(16 << 20));
        assert!(ProcessStats::system_memory() > Some(here.resident));
        assert!(here.resident > 0 && here.descriptors > 0 && here.started > 1.0e9, "{here:?}");
    }
}
