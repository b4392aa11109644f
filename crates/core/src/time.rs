//! Time as drivers hand it to machines. A machine never asks a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use crate::wire::{Decoder, Encoder, Wire, WireError};

/// A point on one process's monotonic clock, in nanoseconds since an arbitrary start. Never goes back, runs at
/// the rate of that process's oscillator, means nothing to another process or after a restart.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Where a process's clock starts at the earliest.
    pub const ZERO: Time = Time(0);

    /// The moment so many nanoseconds after the origin of the clock.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin of the clock.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This much earlier, or the start.
    pub fn saturating_sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(by)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(nanos(by)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Time> for Time {
    type Output = Duration;
    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

/// For a message that brings it back to the process whose clock showed it.
impl Wire for Time {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Time(input.u64()?))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// Wall-clock milliseconds since the Unix epoch: a best guess without a bound, good for expiry and for people.
/// May jump either way; nothing about safety may depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(u64);

impl Wall {
    /// The epoch: before anything happened.
    pub const ZERO: Wall = Wall(0);

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: u64) -> Wall {
        Wall(millis)
    }

    /// In milliseconds since the Unix epoch.
    pub const fn millis(self) -> u64 {
        self.0
    }
}

impl Wire for Wall {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.0);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Wall(input.u64()?))
    }
}

/// True time with its uncertainty, in nanoseconds since the Unix epoch: the instant at which it was read lies in
/// `earliest..=latest`. Comparable between processes, unlike [`Time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Nanoseconds since 1970; true time is not before this.
    pub earliest: u64,
    /// Nanoseconds since 1970; true time is not after this.
    pub latest: u64,
}

impl Wire for Interval {
    fn encode(&self, out: &mut Encoder) {
        out.put_u64(self.earliest);
        out.put_u64(self.latest);
    }
    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let interval = Interval { earliest: input.u64()?, latest: input.u64()? };
        if interval.earliest > interval.latest {
            return Err(WireError::Value { what: "interval", found: interval.latest });
        }
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_the_end_of_the_clock_is_the_end_and_none_is_before_the_start() {
        let (end, at) = (Time::from_nanos(u64::MAX), Time::from_nanos(7));
        assert_eq!((at + Duration::MAX, end + Duration::from_nanos(1)), (end, end));
        assert_eq!((at.since(end), at.saturating_sub(Duration::MAX)), (Duration::ZERO, Time::ZERO));
    }

    #[test]
    fn an_interval_that_ends_before_it_begins_is_refused() {
        for (earliest, latest, fine) in [(1, 2, true), (2, 2, true), (3, 2, false)] {
            let interval = Interval { earliest, latest };
            assert_eq!(Interval::from_bytes(interval.to_bytes()).is_ok(), fine, "{interval:?}");
        }
    }
}
