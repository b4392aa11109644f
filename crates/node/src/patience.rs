//! For how long something has been waited for that may hang, a disk above all. What counts is time in which this
//! process ran: one that was stopped (`SIGSTOP`), or whose machine was suspended, has waited for nothing meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use quorate_core::Time;

/// The event loop looks at least this often. If more time has passed between two looks, the process did not run: the
/// rest does not count.
const PIECE: Duration = Duration::from_secs(1);

/// What an event loop has seen of something that is under way in another thread.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    /// When that began which is waited for.
    began: Option<Instant>,
    looked: Time,
    time: Duration,
}

impl Waited {
    /// What is under way now began then; nothing is, with `None`.
    pub(crate) fn look(&mut self, began: Option<Instant>, now: Time) {
        let time = match began {
            Some(_) if began == self.began => self.time + now.since(self.looked).min(PIECE),
            _ => Duration::ZERO,
        };
        *self = Waited { began, looked: now, time };
    }

    /// For how long it had been under way at the last look.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }
}

/// Waits for a message, as `Receiver::recv_timeout` does.
pub(crate) fn receive<T>(from: &Receiver<T>, patience: Duration) -> Result<T, RecvTimeoutError> {
    let mut rest = patience;
    loop {
        let piece = rest.min(PIECE);
        rest -= piece;
        match from.recv_timeout(piece) {
            Err(RecvTimeoutError::Timeout) if !rest.is_zero() => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn time_in_which_the_process_did_not_run_is_not_waited() {
        let first = Some(Instant::now());
        let second = first.map(|first| first + Duration::from_secs(20));
        let mut waited = Waited::default();
        let looks = [
            (None, 0, 0),
            (None, 9000, 0),
            (first, 9100, 0),
            (first, 9400, 300),
            // It was stopped for a minute.
            (first, 69_400, 1300),
            (first, 69_500, 1400),
            // Another attempt.
            (second, 69_600, 0),
            (second, 70_000, 400),
            (None, 70_100, 0),
        ];
        for (began, now, expected) in looks {
            waited.look(began, at(now));
            assert_eq!(waited.time(), Duration::from_millis(expected), "at {now}");
        }
    }
}
