//! How work beside the log gives way to it, and ends.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shared by a thread that does long work in steps and those who wait for it.
#[derive(Default)]
pub(super) struct Background {
    urgency: Mutex<Urgency>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Urgency {
    /// Take your time: rest after each step.
    #[default]
    Calm,
    /// Somebody waits: do not rest.
    Hurry,
    /// Give up.
    Stop,
}

/// Rests are no longer than this.
const LONGEST: Duration = Duration::from_millis(100);

impl Background {
    /// For work that somebody waits for from its start.
    pub(super) fn hurried() -> Background {
        let background = Background::default();
        background.hurry();
        background
    }

    pub(super) fn hurry(&self) {
        self.urgency(Urgency::Hurry);
    }

    pub(super) fn stop(&self) {
        self.urgency(Urgency::Stop);
    }

    fn urgency(&self, urgency: Urgency) {
        let mut current = self.urgency.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != Urgency::Stop {
            *current = urgency;
        }
        self.changed.notify_all();
    }

    /// After a step that took so long: leaves the disk alone for as long. False if the work is to be given up.
    pub(super) fn rest(&self, step: Duration) -> bool {
        let urgency = self.urgency.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = step.min(LONGEST);
        let rested = self.changed.wait_timeout_while(urgency, rest, |urgency| *urgency == Urgency::Calm);
        let (urgency, _) = rested.unwrap_or_else(PoisonError::into_inner);
        *urgency != Urgency::Stop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_hurried_does_not_rest_and_who_is_stopped_gives_up_for_good() {
        let background = Background::default();
        assert!(background.rest(Duration::ZERO));
        background.hurry();
        assert!(background.rest(Duration::MAX));
        background.stop();
        background.hurry();
        assert!(!background.rest(Duration::MAX));
    }
}
