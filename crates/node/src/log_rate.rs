//! Keeps repeated log lines rare: the same thing is said once a minute, with how often it happened meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::Time;

const EVERY: Duration = Duration::from_secs(60);
/// Different things remembered; with more, new ones are left unsaid until one is old.
const KEYS: usize = 64;

/// What was said lately.
#[derive(Debug, Default)]
pub(crate) struct LogRateLimiter {
    said: BTreeMap<String, (Time, u64)>,
}

impl LogRateLimiter {
    /// Whether to say this now; if so, how often it was left unsaid since the last time.
    pub(crate) fn ask(&mut self, what: &str, now: Time) -> Option<u64> {
        if let Some((again, unsaid)) = self.said.get_mut(what) {
            if now < *again {
                *unsaid += 1;
                return None;
            }
            *again = now + EVERY;
            return Some(std::mem::take(unsaid));
        }
        if self.said.len() >= KEYS {
            self.said.retain(|_, (again, _)| now < *again);
        }
        if self.said.len() >= KEYS {
            return None;
        }
        self.said.insert(what.to_owned(), (now + EVERY, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_once_a_minute_and_memory_stays_bounded() {
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let mut log_rate = LogRateLimiter::default();
        assert_eq!(log_rate.ask("a", at(0)), Some(0));
        assert_eq!(log_rate.ask("a", at(1)), None);
        assert_eq!(log_rate.ask("b", at(2)), Some(0));
        assert_eq!(log_rate.ask("a", at(59)), None);
        assert_eq!(log_rate.ask("a", at(60)), Some(2));
        for index in 0..1000 {
            log_rate.ask(&index.to_string(), at(61));
        }
        assert_eq!(log_rate.said.len(), KEYS);
        assert_eq!(log_rate.ask("later", at(200)), Some(0));
    }
}
