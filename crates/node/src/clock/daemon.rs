//! The bound of the `clockbound` daemon, from the memory that it shares: `docs/PROTOCOL.md` of
//! <https://github.com/aws/clock-bound>, versions 1 and 2.
//!
//! ```text
//! magic u32 × 2 · size u32 · version u16 · generation u16 · as-of i64 × 2 · void-after i64 × 2 · bound i64
//! version 1: drift u32 · reserved u32 · status i32
//! version 2: disruption marker u64 · drift u32 · status i32 · disruption support u8            native-endian
//! ```
//!
//! The memory is a file in a file system without a disk, so it is read like one: mapping it would need `unsafe`, and
//! would save a microsecond ten times a second. The daemon makes the generation odd while it writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use quorate_core::Time;
use rustix::time::{ClockId, clock_gettime};

use super::{Bound, nanos};

const MAGIC: [u32; 2] = [0x414D_5A4E, 0x4342_0200];
/// Where daemons of version 2 and of version 1 leave it.
const PATHS: [&str; 2] = ["/var/run/clockbound/shm0", "/var/run/clockbound/shm"];
/// The longest of the versions.
const SIZE: usize = 80;

const VMCLOCK: &str = "/dev/vmclock0";
const VMCLOCK_MAGIC: u32 = 0x4B4C_4356;

/// Reads of a segment that is being written, one after the other.
const ATTEMPTS: usize = 3;

/// The daemon's memory, if it is there.
#[derive(Debug)]
pub(super) struct Daemon {
    paths: Vec<PathBuf>,
    vmclock: PathBuf,
    open: Option<File>,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon { paths: PATHS.map(PathBuf::from).into(), vmclock: VMCLOCK.into(), open: None }
    }
}

/// What a segment says; times are of `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    as_of: u64,
    void_after: u64,
    error: u64,
    drift: u64,
    /// The daemon vouches for it.
    sound: bool,
    /// The disruption that the daemon knows of, if the machine tells of them.
    disruption: Option<u64>,
}

impl Daemon {
    /// The bound at present, if a daemon is there and vouches for one. What it made before the wall clock was `set`, by
    /// `CLOCK_MONOTONIC`, is none.
    pub(super) fn bound(&mut self, now: Time, set: u64) -> Option<Bound> {
        let monotonic = nanos(clock_gettime(ClockId::Monotonic));
        let segment = self.read().filter(|segment| set == 0 || segment.as_of > set)?;
        if let Some(known) = segment.disruption
            && disruption(&self.vmclock) != Some(known)
        {
            // The machine was moved or stopped, and the daemon has not noticed yet.
            return None;
        }
        segment.bound(now, monotonic)
    }

    fn read(&mut self) -> Option<Segment> {
        // A new daemon may have left a new file: the path says which, not what was opened before.
        if self.open.is_none() {
            self.open = self.paths.iter().find_map(|path| File::open(path).ok());
        }
        let segment = self.open.as_ref().and_then(|file| whole(file, ATTEMPTS));
        // One that is void was left behind, perhaps.
        if segment.is_none_or(|segment| segment.void_after <= nanos(clock_gettime(ClockId::Monotonic))) {
            self.open = None;
        }
        segment
    }
}

/// Reads it as it was between two writes.
fn whole(file: &File, attempts: usize) -> Option<Segment> {
    let read = || {
        let mut bytes = [0; SIZE];
        let count = file.read_at(&mut bytes, 0).ok()?;
        Some((bytes, count))
    };
    for _ in 0..attempts {
        // In this order: what lies between two equal even generations was not being written.
        let before = generation(&read()?.0);
        let (bytes, count) = read()?;
        let after = generation(&read()?.0);
        if before == after && before.is_multiple_of(2) && before > 0 {
            return Segment::parse(&bytes[..count]);
        }
    }
    None
}

fn generation(bytes: &[u8; SIZE]) -> u16 {
    u16::from_ne_bytes([bytes[14], bytes[15]])
}

/// The machine's count of disruptions of its clock.
fn disruption(path: &Path) -> Option<u64> {
    let mut bytes = [0; 24];
    File::open(path).ok()?.read_exact_at(&mut bytes, 0).ok()?;
    (u32_at(&bytes, 0)? == VMCLOCK_MAGIC).then(|| u64_at(&bytes, 16))?
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

impl Segment {
    fn parse(bytes: &[u8]) -> Option<Segment> {
        let word = |at| u32_at(bytes, at);
        let long = |at| u64_at(bytes, at).and_then(|long| i64::try_from(long).ok());
        let time = |at| {
            let (seconds, rest) = (u64::try_from(long(at)?).ok()?, u64::try_from(long(at + 8)?).ok()?);
            seconds.checked_mul(1_000_000_000)?.checked_add(rest)
        };
        let version = word(12)?.to_ne_bytes();
        let version = u16::from_ne_bytes([version[0], version[1]]);
        let (size, drift, status, disruption) = match version {
            1 => (72, word(56)?, word(64)?, None),
            2 => (SIZE, word(64)?, word(68)?, (*bytes.get(72)? != 0).then(|| u64_at(bytes, 56))),
            _ => return None,
        };
        if [word(0)?, word(4)?] != MAGIC || (word(8)? as usize) < size || drift >= 1_000_000_000 {
            return None;
        }
        Some(Segment {
            as_of: time(16)?,
            void_after: time(32)?,
            error: u64::try_from(long(48)?).ok()?,
            drift: drift.into(),
            // Synchronized; or running free, within what it may drift.
            sound: status == 1 || status == 2,
            disruption: disruption.flatten(),
        })
    }

    fn bound(&self, now: Time, monotonic: u64) -> Option<Bound> {
        if !self.sound || self.void_after <= monotonic {
            return None;
        }
        // The daemon's clock is a coarse one, and may be a little ahead of what it showed.
        let age = monotonic.saturating_sub(self.as_of);
        let grown = (u128::from(age) * u128::from(self.drift)).div_ceil(1_000_000_000);
        let left = std::time::Duration::from_nanos(self.void_after - monotonic);
        Some(Bound {
            source: "clock-bound",
            at: now,
            error: self.error.checked_add(u64::try_from(grown).ok()?)?,
            drift: self.drift,
            until: Some(now + left),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Clock, ClockSource};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A segment of version 2, in the daemon's words.
    fn segment(generation: u16, as_of: u64, void_after: u64, status: i32, support: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        MAGIC.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(80u32.to_ne_bytes());
        bytes.extend(2u16.to_ne_bytes());
        bytes.extend(generation.to_ne_bytes());
        for at in [as_of, void_after] {
            bytes.extend((at / SECOND).to_ne_bytes());
            bytes.extend((at % SECOND).to_ne_bytes());
        }
        bytes.extend(40_000u64.to_ne_bytes());
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(1000u32.to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend([support, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    fn old(as_of: u64, void_after: u64, status: i32) -> Vec<u8> {
        let mut bytes = segment(2, as_of, void_after, 0, 0);
        bytes[12..14].copy_from_slice(&1u16.to_ne_bytes());
        bytes.truncate(56);
        bytes.extend(1000u32.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes[8..12].copy_from_slice(&72u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn both_versions_are_read_and_the_bound_grows_from_when_it_was_made() {
        let now = Time::from_nanos(55);
        for bytes in [segment(2, 3 * SECOND, 8 * SECOND, 1, 0), old(3 * SECOND, 8 * SECOND, 1)] {
            let read = Segment::parse(&bytes).unwrap();
            assert_eq!(
                (read.as_of, read.void_after, read.error, read.drift),
                (3 * SECOND, 8 * SECOND, 40_000, 1000)
            );
            let bound = read.bound(now, 5 * SECOND + 1).unwrap();
            assert_eq!((bound.error, bound.drift, bound.at), (42_001, 1000, now));
            assert_eq!(bound.until, Some(now + Duration::from_nanos(3 * SECOND - 1)));
            assert_eq!(read.bound(now, 2 * SECOND).unwrap().error, 40_000, "its clock is a coarse one");
            assert_eq!(read.bound(now, 8 * SECOND), None, "void");
        }
    }

    #[test]
    fn what_nobody_vouches_for_or_nobody_can_read_is_no_bound() {
        for (status, sound) in [(0, false), (1, true), (2, true), (3, false), (9, false), (-1, false)] {
            for bytes in [segment(2, 0, 8 * SECOND, status, 0), old(0, 8 * SECOND, status)] {
                assert_eq!(Segment::parse(&bytes).unwrap().bound(Time::ZERO, 1).is_some(), sound, "{status}");
            }
        }
        let good = segment(2, 0, 8 * SECOND, 1, 0);
        let spoil = |at: usize, with: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + with.len()].copy_from_slice(with);
            bytes
        };
        for bad in [
            spoil(0, b"x"),
            spoil(12, &3u16.to_ne_bytes()),
            spoil(12, &0u16.to_ne_bytes()),
            spoil(8, &64u32.to_ne_bytes()),
            spoil(16, &(-1i64).to_ne_bytes()),
            spoil(16, &i64::MAX.to_ne_bytes()),
            spoil(48, &(-1i64).to_ne_bytes()),
            spoil(64, &1_000_000_000u32.to_ne_bytes()),
        ] {
            assert_eq!(Segment::parse(&bad), None);
        }
        for length in 0..73 {
            assert_eq!(Segment::parse(&good[..length]), None, "{length}");
        }
    }

    #[test]
    fn the_daemons_file_is_found_when_it_comes_and_read_between_its_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let mut daemon =
            Daemon { paths: vec![path("shm0"), path("shm")], vmclock: path("vmclock"), open: None };
        let monotonic = nanos(clock_gettime(ClockId::Monotonic));
        let good =
            |generation, support| segment(generation, monotonic, monotonic + 3600 * SECOND, 1, support);
        assert_eq!(daemon.bound(Time::ZERO, 0), None);
        std::fs::write(path("shm"), old(monotonic, monotonic + 3600 * SECOND, 1)).unwrap();
        assert!(daemon.bound(Time::ZERO, 0).is_some());
        // Of its life before this start of the machine: void.
        std::fs::write(path("shm"), old(0, 1, 1)).unwrap();
        assert_eq!(daemon.bound(Time::ZERO, 0), None);
        std::fs::write(path("shm0"), good(3, 0)).unwrap();
        assert_eq!(daemon.bound(Time::ZERO, 0), None, "it is being written");
        std::fs::write(path("shm0"), good(4, 0)).unwrap();
        let bound = daemon.bound(Time::ZERO, 0).unwrap();
        assert!(bound.error >= 40_000 && bound.source == "clock-bound");
        assert!(daemon.bound(Time::ZERO, monotonic - 1).is_some());
        assert_eq!(daemon.bound(Time::ZERO, monotonic), None, "the wall clock was set since");

        // Where the machine counts disruptions, the daemon must know of the last one.
        std::fs::write(path("shm0"), good(6, 1)).unwrap();
        assert_eq!(daemon.bound(Time::ZERO, 0), None, "nobody tells of disruptions");
        let vmclock = |marker: u64| {
            let mut bytes = VMCLOCK_MAGIC.to_ne_bytes().to_vec();
            bytes.extend([0; 12]);
            bytes.extend(marker.to_ne_bytes());
            std::fs::write(path("vmclock"), bytes).unwrap();
        };
        vmclock(7);
        assert!(daemon.bound(Time::ZERO, 0).is_some());
        vmclock(8);
        assert_eq!(daemon.bound(Time::ZERO, 0), None);
    }

    /// The bound is asked for ten times a second, and the wall clock is set in between.
    #[test]
    fn a_bound_does_not_outlive_a_wall_clock_that_is_set() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shm0");
        let clock = Clock::new(ClockSource::Daemon);
        clock.known.borrow_mut().daemon.paths = vec![path.clone()];
        let write = |generation: u16| {
            let monotonic = nanos(clock_gettime(ClockId::Monotonic));
            std::fs::write(&path, segment(generation, monotonic, monotonic + 3600 * SECOND, 1, 0)).unwrap();
        };
        write(2);
        clock.known.borrow_mut().again = Time::ZERO;
        let (real, now) = (super::super::real(), super::super::now());
        assert!(clock.interval(real, now).is_some());
        let set = real + 3600 * SECOND;
        assert_eq!(clock.interval(set, now), None, "it is an hour ahead");
        assert_eq!(clock.interval(set + SECOND, now + Duration::from_secs(1)), None);
        write(4);
        let later = clock.interval(set + 2 * SECOND, now + Duration::from_secs(2)).unwrap();
        assert!(later.earliest > real + 3600 * SECOND, "the daemon vouches for it as it is now");
    }
}
