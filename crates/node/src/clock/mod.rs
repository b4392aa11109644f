//! The clocks that machines are told.
//!
//! The monotonic clock is `CLOCK_BOOTTIME`: it goes on while the machine sleeps. `CLOCK_MONOTONIC` stands still
//! then, so a leader woken from a suspend would take an old lease for a fresh one.
//!
//! True time is `CLOCK_REALTIME` with a bound on its error, from whoever disciplines it ([`ClockSource`]):
//!
//! | file | whose bound |
//! |---|---|
//! | `kernel` | the kernel's, as the NTP daemon sets it |
//! | `daemon` | the `clockbound` daemon's, from its shared memory |
//!
//! Asking for it costs system calls, so it is asked ten times a second, and grows in between by as much as an
//! undisciplined clock may drift: reading the interval costs what reading the two clocks does. Nobody vouches for a
//! bound after its source is gone, so then there is no interval, and protocols do without. A bound that was made before
//! the wall clock was set says nothing of what it shows now: that is noticed at once ([`Steps`]).

mod daemon;
mod kernel;

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use quorate_core::{Instant, Interval, Time, Wall, settings::parse_duration};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tracing::{info, warn};

use crate::error::ConfigError;
use crate::log_rate::LogRateLimiter;
use daemon::Daemon;

/// `CLOCK_MONOTONIC` goes on during sleep on other systems.
#[cfg(target_os = "linux")]
const STEADY: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const STEADY: ClockId = ClockId::Monotonic;

/// How often sources are asked.
const EVERY: Duration = Duration::from_millis(100);

/// By how much the wall clock and the steady one differ more or less when it was set, in nanoseconds.
const STEP: i128 = 1_000_000;

/// The present on this process's monotonic clock.
pub(crate) fn now() -> Time {
    Time::from_nanos(nanos(clock_gettime(STEADY)))
}

/// The present on the wall; the epoch if the clock stands before it.
pub(crate) fn wall() -> Wall {
    Wall::from_millis(real() / 1_000_000)
}

/// Whole hours from now on to a time in seconds since 1970; 0 if it is over.
pub(crate) fn hours_until(seconds: u64) -> u64 {
    seconds.saturating_sub(wall().millis() / 1000) / 3600
}

fn real() -> u64 {
    nanos(clock_gettime(ClockId::Realtime))
}

/// Zero if it is negative.
fn nanos(at: Timespec) -> u64 {
    u64::try_from(at.tv_sec).map_or(0, |seconds| seconds * 1_000_000_000 + at.tv_nsec as u64)
}

/// Who knows how wrong the wall clock may be (`--clock`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockSource {
    /// Nobody.
    #[default]
    None,
    /// The kernel, if a daemon disciplines its clock and says how well.
    Kernel,
    /// The `clockbound` daemon.
    Daemon,
    /// The operator: it is never wrong by more than this.
    Bound(Duration),
    /// The daemon where it runs, else the kernel.
    Auto,
}

impl fmt::Display for ClockSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockSource::None => f.write_str("none"),
            ClockSource::Kernel => f.write_str("kernel"),
            ClockSource::Daemon => f.write_str("clock-bound"),
            ClockSource::Bound(bound) => write!(f, "bound={}us", bound.as_micros()),
            ClockSource::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for ClockSource {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let unknown = || ConfigError::Clock(text.to_owned());
        match text {
            "none" => Ok(ClockSource::None),
            "kernel" => Ok(ClockSource::Kernel),
            "clock-bound" => Ok(ClockSource::Daemon),
            "auto" => Ok(ClockSource::Auto),
            _ => {
                let bound = text.strip_prefix("bound=").and_then(parse_duration).ok_or_else(unknown)?;
                Ok(ClockSource::Bound(bound))
            }
        }
    }
}

/// How wrong the wall clock may be, as somebody said at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    /// In words, for people and metrics.
    source: &'static str,
    /// By when.
    at: Time,
    /// At that moment, in nanoseconds.
    error: u64,
    /// By how much more with each second, in nanoseconds.
    drift: u64,
    /// When it ends; an operator's never does.
    until: Option<Time>,
}

impl Bound {
    fn exact(bound: Duration) -> Bound {
        let error = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Bound { source: "configured", at: Time::ZERO, error, drift: 0, until: None }
    }

    /// The bound now, if it still is one.
    fn now(&self, now: Time) -> Option<u64> {
        if self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let age = now.since(self.at).as_nanos();
        let grown = (age * u128::from(self.drift)).div_ceil(1_000_000_000);
        Some(self.error.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX)))
    }
}

/// What the wall clock and a bound make of the present: both ends never go back. The true time at an earlier reading
/// was not before that reading's earliest, so it is not now; a latest that is too late does no harm.
#[derive(Debug, Default)]
struct Ends(Option<Interval>);

impl Ends {
    /// `None` if this contradicts what was said before: one of the two was wrong, and nobody knows which.
    fn read(&mut self, real: u64, error: u64) -> Option<Interval> {
        let (earliest, latest) = (real.saturating_sub(error), real.saturating_add(error));
        let before = self.0.unwrap_or(Interval { earliest, latest });
        if latest < before.earliest {
            return None;
        }
        let interval =
            Interval { earliest: earliest.max(before.earliest), latest: latest.max(before.latest) };
        self.0 = Some(interval);
        Some(interval)
    }
}

/// Tells when the wall clock was set, by the steady clock: whoever keeps the one right slews both alike.
#[derive(Debug, Default)]
struct Steps {
    /// How far the wall clock was ahead before the source was asked last, and since then: the most that was seen.
    before: Option<i128>,
    since: Option<i128>,
}

impl Steps {
    /// Both were read, the wall clock first: what passes in between lets it look behind, never ahead. Whether it was
    /// set forward.
    fn is_ahead(&mut self, real: u64, now: Time) -> bool {
        let ahead = i128::from(real) - i128::from(now.nanos());
        self.since = self.since.max(Some(ahead));
        self.before.is_some_and(|before| ahead > before + STEP)
    }

    /// The source is about to be asked. Whether the wall clock was set back since the last time.
    fn is_behind(&mut self) -> bool {
        let (before, since) = (self.before, self.since.take());
        self.before = since.or(before);
        before.zip(since).is_some_and(|(before, since)| since + STEP < before)
    }
}

/// Tells machines the time.
#[derive(Debug)]
pub(crate) struct Clock {
    source: ClockSource,
    known: RefCell<Known>,
}

#[derive(Debug)]
struct Known {
    bound: Option<Bound>,
    /// When the source is asked again.
    again: Time,
    steps: Steps,
    /// When the wall clock was set last, by `CLOCK_MONOTONIC`; 0 if it was not seen to be.
    set: u64,
    ends: Ends,
    daemon: Daemon,
    log_rate: LogRateLimiter,
}

impl Clock {
    pub(crate) fn new(source: ClockSource) -> Clock {
        let known = Known {
            bound: None,
            again: Time::ZERO,
            steps: Steps::default(),
            set: 0,
            ends: Ends::default(),
            daemon: Daemon::default(),
            log_rate: LogRateLimiter::default(),
        };
        let clock = Clock { source, known: RefCell::new(known) };
        let (real, now) = (real(), now());
        let mut known = clock.known.borrow_mut();
        known.steps.is_ahead(real, now);
        known.steps.is_behind();
        let first = known.ask(source, now);
        drop(known);
        match (first, source) {
            (Some(bound), _) => info!(error_us = bound.error / 1000, "{}", found(&bound)),
            (None, ClockSource::None) => {}
            (None, _) => info!("nobody says how wrong the wall clock may be (--clock {source})"),
        }
        clock
    }

    /// What a machine is told at a step. The wall clock is read first: what passes until the other is read makes the
    /// bound wider, not wrong.
    pub(crate) fn instant(&self) -> Instant {
        let real = real();
        let now = now();
        Instant { now, wall: Wall::from_millis(real / 1_000_000), clock: self.interval(real, now) }
    }

    fn interval(&self, real: u64, now: Time) -> Option<Interval> {
        if self.source == ClockSource::None {
            return None;
        }
        let mut known = self.known.borrow_mut();
        if known.steps.is_ahead(real, now) {
            known.on_step(now);
        }
        known.refresh(self.source, now);
        let error = known.bound.and_then(|bound| bound.now(now))?;
        let interval = known.ends.read(real, error);
        if interval.is_none()
            && let Some(unsaid) = known.log_rate.ask("back", now)
        {
            warn!(unsaid, "the wall clock went back by more than its bound: nobody knows how wrong it is");
        }
        interval
    }

    /// Who vouches for the wall clock at present, and the bound on its error.
    pub(crate) fn bound(&self) -> Option<(&'static str, Duration)> {
        let now = now();
        let mut known = self.known.borrow_mut();
        known.refresh(self.source, now);
        let bound = known.bound?;
        Some((bound.source, Duration::from_nanos(bound.now(now)?)))
    }
}

impl Known {
    fn refresh(&mut self, source: ClockSource, now: Time) {
        if self.again > now {
            return;
        }
        if self.steps.is_behind() {
            self.on_step(now);
        }
        let before = self.bound.map(|bound| bound.source);
        let found_now = self.ask(source, now);
        match (before, found_now) {
            (None, Some(bound)) => info!(error_us = bound.error / 1000, "{}", found(&bound)),
            (Some(before), Some(bound)) if before != bound.source => {
                info!(error_us = bound.error / 1000, "{}, no longer the {before}", found(&bound));
            }
            (Some(before), None) => {
                warn!("the {before} no longer says how wrong the wall clock may be: leases do without it");
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// The wall clock was set: bounds that were made before say nothing of it.
    fn on_step(&mut self, now: Time) {
        (self.set, self.again) = (nanos(clock_gettime(ClockId::Monotonic)), Time::ZERO);
        if let Some(unsaid) = self.log_rate.ask("set", now) {
            warn!(unsaid, "the wall clock was set: who keeps it right is asked anew how wrong it may be");
        }
    }

    fn ask(&mut self, source: ClockSource, now: Time) -> Option<Bound> {
        self.again = now + EVERY;
        self.bound = match source {
            ClockSource::None => None,
            ClockSource::Bound(bound) => Some(Bound::exact(bound)),
            ClockSource::Kernel => kernel::bound(now),
            ClockSource::Daemon => self.daemon.bound(now, self.set),
            ClockSource::Auto => self.daemon.bound(now, self.set).or_else(|| kernel::bound(now)),
        };
        self.bound
    }
}

fn found(bound: &Bound) -> String {
    let error = Duration::from_nanos(bound.error);
    format!(
        "the {} says that the wall clock is within {error:?} of true time",
        match bound.source {
            "configured" => "operator",
            source => source,
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_source_is_one_of_a_few_words() {
        for word in ["none", "kernel", "clock-bound", "auto", "bound=5000us", "bound=0us"] {
            assert_eq!(word.parse::<ClockSource>().unwrap().to_string(), word);
        }
        assert_eq!("bound=5ms".parse::<ClockSource>().unwrap().to_string(), "bound=5000us");
        for word in ["", "ntp", "bound", "bound=", "bound=5", "bound=-1ms", "5ms"] {
            let error = word.parse::<ClockSource>().unwrap_err().to_string();
            assert!(error.contains("auto, kernel, clock-bound, bound=DURATION or none"), "{error}");
        }
    }

    #[test]
    fn a_bound_grows_with_its_age_and_ends() {
        let at = |millis: u64| Time::from_nanos(millis * MS);
        let bound =
            Bound { source: "test", at: at(1000), error: 1000, drift: 500_000, until: Some(at(3000)) };
        for (now, error) in [
            (0, Some(1000)),
            (1000, Some(1000)),
            (1001, Some(1500)),
            (2000, Some(501_000)),
            (2999, Some(1_000_500)),
            (3000, None),
        ] {
            assert_eq!(bound.now(at(now)), error, "{now}");
        }
        let odd = Bound { drift: 1, ..bound };
        assert_eq!(odd.now(at(1001)), Some(1001), "rounded up");
        assert_eq!(Bound::exact(Duration::from_millis(5)).now(at(1 << 40)), Some(5 * MS));
    }

    #[test]
    fn neither_end_goes_back_and_what_contradicts_them_is_no_time() {
        let mut ends = Ends::default();
        let mut last = Interval { earliest: 0, latest: 0 };
        for (real, error, expected) in [
            (1000, 10, Some((990, 1010))),
            // The bound is worse now: what was known stays known.
            (1005, 100, Some((990, 1105))),
            (1050, 10, Some((1040, 1105))),
            // A small step back, as daemons make them.
            (1045, 10, Some((1040, 1105))),
            (1100, 0, Some((1100, 1105))),
            // Too far.
            (1089, 10, None),
            (1091, 10, Some((1100, 1105))),
            (2000, 10, Some((1990, 2010))),
        ] {
            let interval = ends.read(real, error);
            assert_eq!(interval.map(|i| (i.earliest, i.latest)), expected, "{real} {error}");
            if let Some(interval) = interval {
                assert!(interval.earliest >= last.earliest && interval.latest >= last.latest);
                last = interval;
            }
        }
    }

    /// In milliseconds: what both clocks show, and whether the source is asked before that; whether a step is seen.
    #[test]
    fn a_wall_clock_that_is_set_is_noticed_by_the_steady_one() {
        let mut steps = Steps::default();
        for (real, now, asks, seen) in [
            (5000, 0, false, false),
            (5100, 100, true, false),
            (5149, 150, false, false),
            // What passes between the two readings is no step, and nor is what follows.
            (5160, 190, false, false),
            (5200, 200, true, false),
            (5252, 250, false, true),
            (5302, 300, true, false),
            (5350, 350, false, false),
            (5400, 400, true, false),
            (5450, 450, true, true),
            (3_605_460, 460, false, true),
        ] {
            let behind = asks && steps.is_behind();
            let ahead = steps.is_ahead(real * MS, Time::from_nanos(now * MS));
            assert_eq!(ahead || behind, seen, "at {now} ms");
        }
    }

    #[test]
    fn the_interval_is_around_the_wall_clock_and_without_a_source_there_is_none() {
        let clock = Clock::new(ClockSource::Bound(Duration::from_secs(3600)));
        let before = real();
        let instant = clock.instant();
        let after = real();
        let interval = instant.clock.unwrap();
        assert!(interval.earliest <= before && after <= interval.latest);
        assert_eq!(clock.bound(), Some(("configured", Duration::from_secs(3600))));
        let clock = Clock::new(ClockSource::None);
        assert_eq!((clock.instant().clock, clock.bound()), (None, None));
        // Whatever this machine has, asking works.
        for source in [ClockSource::Auto, ClockSource::Kernel, ClockSource::Daemon] {
            let clock = Clock::new(source);
            assert_eq!(clock.instant().clock.is_some(), clock.bound().is_some(), "{source}");
        }
    }
}
