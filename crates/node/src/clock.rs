//! The clocks that machines are told.
//!
//! The monotonic clock is `CLOCK_BOOTTIME`: it goes on while the machine sleeps. `CLOCK_MONOTONIC` stands still
//! then, so a leader woken from a suspend would take an old lease for a fresh one.

use quorate_core::{Instant, Time, Wall};
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` goes on during sleep on other systems.
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::Monotonic;

/// The present on this process's monotonic clock.
pub(crate) fn now() -> Time {
    let at = clock_gettime(STEADY);
    Time::from_nanos(at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64)
}

/// The present on the wall; the epoch if the clock stands before it.
pub(crate) fn wall() -> Wall {
    let at = clock_gettime(ClockId::Realtime);
    Wall::from_millis(u64::try_from(at.tv_sec).unwrap_or(0) * 1000 + at.tv_nsec as u64 / 1_000_000)
}

/// What a machine is told at a step. No bound on the clock's error is known here, hence no interval.
pub(crate) fn instant() -> Instant {
    Instant { now: now(), wall: wall(), clock: None }
}
