//! How long the event loop was away from its sockets: the time from the end of its wait for events to the end of the
//! turn that follows. A wait that ends later than it was to end has been a stall from then on: the process was stopped,
//! or got no processor. Meanwhile no heartbeat leaves and no message is read, so a stall of an election timeout deposes
//! a leader. The longest of the last minute is for alarms, the longest since the start for whoever looks later.

use std::rc::Rc;
use std::time::Duration;

use quorate_core::Time;
use tracing::warn;

use crate::log_rate::LogRateLimiter;
use crate::metrics::Metrics;

/// A turn that takes as long is counted as a stall, and logged: clients notice it, and heartbeats are late.
const STALL: Duration = Duration::from_millis(250);
/// The last minute is kept in pieces this long: what is shown as its longest stall is 50 to 60 seconds of history.
const PIECE: Duration = Duration::from_secs(10);
const PIECES: usize = 6;

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Stalls {
    metrics: Rc<Metrics>,
    /// The longest turn of each of the latest pieces of time, the present one first.
    pieces: [Duration; PIECES],
    /// When the present piece ends.
    until: Time,
    log_rate: LogRateLimiter,
}

impl Stalls {
    /// Shows what is noted in these metrics.
    pub(crate) fn new(metrics: Rc<Metrics>, now: Time) -> Stalls {
        Stalls {
            metrics,
            pieces: [Duration::ZERO; PIECES],
            until: now + PIECE,
            log_rate: LogRateLimiter::default(),
        }
    }

    /// Since when the loop is away that has just waited for events, from `since` on, and no longer than that.
    pub(crate) fn began(since: Time, timeout: Option<Duration>, now: Time) -> Time {
        timeout.map_or(now, |timeout| now.min(since + timeout))
    }

    /// The loop was away from `began` to `now`.
    pub(crate) fn note(&mut self, began: Time, now: Time) {
        let took = now.since(began);
        while self.until <= now {
            // After a minute without turns everything is forgotten, however long it was.
            if self.pieces.iter().all(Duration::is_zero) {
                self.until = now + PIECE;
                break;
            }
            self.pieces.rotate_right(1);
            self.pieces[0] = Duration::ZERO;
            self.until += PIECE;
        }
        self.pieces[0] = self.pieces[0].max(took);
        let metrics = &self.metrics;
        metrics.loop_stall_seconds.set(self.pieces.into_iter().max().unwrap_or_default());
        metrics.loop_stall_max_seconds.set(metrics.loop_stall_max_seconds.get().max(took));
        if took >= STALL {
            metrics.loop_stalls_total.one();
            if let Some(unsaid) = self.log_rate.ask("stall", now) {
                let stalled_ms = took.as_millis() as u64;
                warn!(stalled_ms, unsaid, "the event loop has read and sent nothing for {stalled_ms} ms");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_ends_too_late_is_a_stall_from_its_end_on() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let wait = Some(Duration::from_millis(100));
        assert_eq!(Stalls::began(at(1_000), wait, at(1_040)), at(1_040), "something came");
        assert_eq!(Stalls::began(at(1_000), wait, at(4_000)), at(1_100), "it was stopped meanwhile");
        assert_eq!(Stalls::began(at(1_000), Some(Duration::ZERO), at(4_000)), at(1_000));
        assert_eq!(Stalls::began(at(1_000), None, at(4_000)), at(4_000), "nothing was due");
    }

    #[test]
    fn the_longest_turn_is_shown_for_a_minute_and_since_the_start_for_ever() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let metrics = Rc::new(Metrics::default());
        let mut stalls = Stalls::new(metrics.clone(), at(0));
        let mut note = |began, now| {
            stalls.note(at(began), at(now));
            let millis = |time: Duration| time.as_millis();
            (
                millis(metrics.loop_stall_seconds.get()),
                millis(metrics.loop_stall_max_seconds.get()),
                metrics.loop_stalls_total.get(),
            )
        };
        assert_eq!(note(1_000, 1_002), (2, 2, 0));
        assert_eq!(note(5_000, 5_900), (900, 900, 1));
        assert_eq!(note(20_000, 20_250), (900, 900, 2));
        assert_eq!(note(54_990, 55_000), (900, 900, 2), "within the minute");
        assert_eq!(note(66_000, 66_001), (250, 900, 2));
        assert_eq!(note(3_600_000, 3_600_003), (3, 900, 2));
    }
}
