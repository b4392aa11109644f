//! Service: with at most a minority faulty or slow, writes are answered. A group that loses nothing and serves nobody
//! is as good as lost.
//!
//! Judged when nothing more fails: what is lost or slow then (dead for ever, a disk that hangs, slow links, a clock
//! that knows true time to 20 s) stays so and is a minority. Once a write is asked by a client of somebody who is
//! well, some write is answered within a stated time. Reads do not count: a group may read on from leases while every
//! write waits.
//!
//! The stated times follow from the settings of the protocol, here and nowhere else. They are sums of what may have to
//! happen one after the other, each with room: elections that split, leases of those who are gone that run out,
//! requests that are sent again.

use std::time::Duration;

use super::Violation;
use crate::{Nanos, SECOND};

/// The stated times, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// To the first write after the last failure: somebody may have to be elected, and to wait for leases.
    pub first: Nanos,
    /// To any later one, or between two: a replica that answers no longer may have to be excluded.
    pub next: Nanos,
}

/// What a wait may consist of: a setting and how often it counts. A setting that the protocol does not have takes no
/// time.
const EXCLUSION: &[(&str, u64)] = &[
    ("responder.timeout", 3),
    ("lease.guard", 2),
    ("lease.duration", 3),
    ("lease.drift", 3),
    ("recovery.timeout", 10),
    ("heartbeat", 10),
    ("proxy.patience", 6),
];
/// And before the first write.
const FAILOVER: &[(&str, u64)] =
    &[("election.timeout", 8), ("lease.guard", 1), ("lease.duration", 1), ("lease_duration", 4)];
/// One-way delays: elections and requests take a few each.
const MESSAGES: u64 = 60;
/// Disks that take some milliseconds, processes that wake up late, nodes that start again, copies of old messages.
const ROOM: Nanos = 8 * SECOND;

impl Limits {
    /// Of a protocol with these settings, if messages take as long as `furthest`.
    pub fn of(setting: impl Fn(&str) -> Option<Duration>, furthest: Duration) -> Limits {
        let sum = |parts: &[(&str, u64)]| {
            let part = |(name, times): &(&str, u64)| {
                setting(name).map_or(0, |duration| (duration.as_nanos() as Nanos).saturating_mul(*times))
            };
            parts.iter().map(part).fold(0, Nanos::saturating_add)
        };
        let next = (ROOM + MESSAGES * furthest.as_nanos() as Nanos).saturating_add(sum(EXCLUSION));
        Limits { first: next.saturating_add(sum(FAILOVER)), next }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Service {
    limits: Limits,
    /// Since when nothing more fails, and until when the last write was answered since.
    state: Option<(Nanos, Option<Nanos>)>,
    longest: Nanos,
}

impl Service {
    /// Of a group that promises this; something may still fail.
    pub fn new(limits: Limits) -> Service {
        Service { limits, state: None, longest: 0 }
    }

    /// It promises no more than this from now on.
    pub fn widen(&mut self, limits: Limits) {
        let Limits { first, next } = self.limits;
        self.limits = Limits { first: first.max(limits.first), next: next.max(limits.next) };
    }

    /// Nothing more fails from then on.
    pub fn begin(&mut self, at: Nanos) {
        self.state = Some((at, None));
    }

    /// A write was answered.
    pub fn on_answer(&mut self, now: Nanos) {
        if let Some((_, last)) = &mut self.state {
            *last = Some(now);
        }
    }

    /// `oldest` is when the oldest write was asked that is not answered yet, of those asked since all other faults
    /// ended, by clients of somebody who is well.
    pub fn check(&mut self, now: Nanos, oldest: Option<Nanos>) -> Result<(), Violation> {
        let (Some((since, last)), Some(oldest)) = (self.state, oldest) else { return Ok(()) };
        let waited = now.saturating_sub(oldest.max(since).max(last.unwrap_or(0)));
        self.longest = self.longest.max(waited);
        let (limit, which) = match last {
            None => (self.limits.first, "first"),
            Some(_) => (self.limits.next, "next"),
        };
        if waited <= limit {
            return Ok(());
        }
        let what = format!(
            "the {which} write after the last failure was not answered within {:?}, with a minority lost or slow",
            Duration::from_nanos(limit)
        );
        Err(Violation { checker: "service", at: now, what })
    }

    /// The longest that a write has waited while none was answered.
    pub fn longest_wait(&self) -> Nanos {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { first: 100, next: 20 };

    #[test]
    fn a_group_that_answers_no_write_in_time_is_noticed() {
        let mut service = Service::new(LIMITS);
        assert!(service.check(900, Some(0)).is_ok(), "something may still fail");
        service.begin(1000);
        assert!(service.check(950, Some(0)).is_ok());
        assert!(service.check(1090, Some(1050)).is_ok());
        assert!(service.check(1500, None).is_ok(), "nobody waits");
        assert_eq!(service.check(1151, Some(1050)).unwrap_err().checker, "service");
        service.on_answer(1150);
        assert!(service.check(1170, Some(1050)).is_ok(), "another was answered");
        assert!(service.check(1171, Some(1050)).is_err(), "none since");
        assert!(service.check(1171, Some(1160)).is_ok());
        assert_eq!(service.longest_wait(), 101);
        service.widen(Limits { first: 50, next: 30 });
        assert!(service.check(1190, Some(1160)).is_ok() && service.check(1191, Some(1160)).is_err());
    }

    #[test]
    fn the_stated_times_follow_from_the_settings() {
        let second = Duration::from_secs(1);
        let none = Limits::of(|_| None, Duration::ZERO);
        assert_eq!(none, Limits { first: ROOM, next: ROOM });
        let elections = Limits::of(|name| (name == "election.timeout").then_some(second), second);
        assert_eq!(elections.next, ROOM + MESSAGES * SECOND);
        assert_eq!(elections.first, elections.next + 8 * SECOND);
    }
}
