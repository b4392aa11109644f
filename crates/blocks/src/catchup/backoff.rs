//! How often one peer is asked the same.
//!
//! An answer is large. On a thin link every repetition of a question would bring the whole of it again, and delay what
//! is asked next. So the time between two questions to a peer that has not answered doubles, up to [`SLOWEST_RETRY`];
//! and where answers took longer than that, the next question is not repeated before twice that time
//! ([`MOST_PATIENT_RETRY`] at most). Answers name the question that they answer: how long nobody was there to answer
//! says nothing about the link, and an answer to a repetition of what has been answered already is none to the question
//! that is open. Were it taken for one, the next question would be asked twice, and so would all that come after it.

use std::time::Duration;

use quorate_core::{Time, mutation};

use super::RETRY;

/// The time between two questions to a peer grows up to this if nothing is known of it.
const SLOWEST_RETRY: Duration = RETRY.saturating_mul(16);
/// That time, where answers are slow.
const MOST_PATIENT_RETRY: Duration = Duration::from_secs(120);

/// When one peer was asked, and may be asked again.
#[derive(Debug)]
pub(super) struct Backoff {
    /// When the question that is not answered yet was asked first.
    open: Option<Time>,
    last: Time,
    interval: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { open: None, last: Time::ZERO, interval: RETRY }
    }
}

impl Backoff {
    /// Whether the peer may be asked now; if so, it is.
    pub(super) fn ask(&mut self, now: Time) -> bool {
        if self.open.is_none() {
            (self.open, self.last) = (Some(now), now);
            return true;
        }
        if now.since(self.last) < self.interval {
            return false;
        }
        self.last = now;
        self.interval = self.interval.max(SLOWEST_RETRY.min(2 * self.interval));
        true
    }

    /// Whether there is an open question that an answer to one of this time does not answer. A time before it may be
    /// another process's, by another clock.
    pub(super) fn is_open_after(&self, asked: Time) -> bool {
        self.open.is_some_and(|open| asked < open)
    }

    /// The peer has answered a question of this time, or of another clock.
    pub(super) fn on_answer(&mut self, asked: Time, now: Time) {
        if let Some(open) = self.open.take() {
            let asked =
                if mutation::active("catchup/unnamed-questions") { open } else { asked.clamp(open, now) };
            self.interval = (2 * now.since(asked)).clamp(RETRY, MOST_PATIENT_RETRY);
        }
    }

    /// The peer has sent ahead what the open question asks beyond; it answered one of this time.
    pub(super) fn on_ahead(&mut self, asked: Time, now: Time) {
        self.open = None;
        self.interval = (2 * now.since(asked)).clamp(RETRY, SLOWEST_RETRY);
    }
}
