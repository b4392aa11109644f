//! When to suspect a leader. Timeouts are drawn anew each time, so that two replicas seldom stand at once, and
//! whoever has heard a leader lately refuses to help replace it (Ongaro's thesis §4.2.3, §9.6). Whoever loses an
//! election waits twice as long before the next one (exponential back-off): it may be slow, or lack what others have,
//! and with a fast clock it would keep those who can lead from standing.

use std::time::Duration;

use quorate_core::{Marginal, Random, Settings, SettingsError, Time, mutation};

use crate::settings;

/// Durations, equal at all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimeouts {
    /// A leader speaks at least this often.
    pub heartbeat: Duration,
    /// The shortest silence that makes a follower suspicious; the longest is twice as much.
    pub election: Duration,
}

impl ElectionTimeouts {
    /// Reads the settings `heartbeat` and `election.timeout`.
    pub fn from_settings(settings: &mut Settings) -> Result<ElectionTimeouts, SettingsError> {
        let timeouts = ElectionTimeouts {
            heartbeat: settings::heartbeat(settings)?,
            election: settings.duration(
                "election.timeout",
                "500ms",
                "The shortest silence of a leader after which a follower stands; drawn between this and twice this, \
                 longer after it has stood in vain. At least three heartbeats",
            )?,
        };
        if timeouts.election < 3 * timeouts.heartbeat {
            let text = "election.timeout must be at least three times the heartbeat";
            return Err(SettingsError::Conflict(text.to_owned()));
        }
        Ok(timeouts)
    }
}

/// More lost elections in a row than this make nobody wait longer.
const MOST_LOST: u32 = 3;

/// A follower's watch on its leader.
#[derive(Clone, Debug)]
pub struct LeaderMonitor {
    timeouts: ElectionTimeouts,
    heard: Option<Time>,
    /// Whether whoever was heard leads, for people: a candidate that is supported does not yet, and may never.
    leads: Marginal<bool>,
    /// Since when it has been waiting, and for how long it will.
    since: Time,
    patience: Duration,
    /// How many elections in a row this replica has lost.
    lost: u32,
}

impl LeaderMonitor {
    /// Nothing heard yet. At a first boot there is most likely no leader: it is not `patient`, unless another is to
    /// lead first.
    pub fn new(timeouts: ElectionTimeouts, patient: bool, now: Time, random: &mut Random) -> LeaderMonitor {
        let least = if patient { timeouts.election } else { timeouts.heartbeat };
        let patience = random.between(least, 2 * least);
        LeaderMonitor { timeouts, heard: None, leads: Marginal(false), since: now, patience, lost: 0 }
    }

    /// The leader has spoken, or another candidate that this replica supports, where nobody asks who
    /// [leads](Self::is_led).
    pub fn heard(&mut self, now: Time) {
        self.supports(now);
        self.leads = Marginal(true);
    }

    /// Another candidate that this replica supports has spoken.
    pub fn supports(&mut self, now: Time) {
        self.stands_for_election(now);
        self.lost = 0;
        self.leads = Marginal(false);
    }

    /// This replica stands: nobody else should be helped.
    pub fn stands_for_election(&mut self, now: Time) {
        self.heard = Some(now);
        self.since = now;
    }

    /// This replica stood, a majority having wanted a leader, and does not lead: others go first.
    pub fn lost_election(&mut self) {
        if !mutation::active("election/no-back-off") {
            self.lost = (self.lost + 1).min(MOST_LOST);
        }
    }

    /// This replica leads.
    pub fn won_election(&mut self) {
        self.lost = 0;
    }

    /// Whether a leader was heard so lately that nobody else should be helped.
    pub fn has_leader(&self, now: Time) -> bool {
        self.heard_within(self.timeouts.election, now)
    }

    /// Whether that was a leader, and not a candidate.
    pub fn is_led(&self, now: Time) -> bool {
        self.leads.0 && self.has_leader(now)
    }

    /// Whether a leader was heard in the last while.
    pub fn heard_within(&self, limit: Duration, now: Time) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < limit)
    }

    /// How much longer to wait; `None` if it has been too long.
    pub fn remaining(&self, now: Time) -> Option<Duration> {
        self.patience.checked_sub(now.since(self.since)).filter(|rest| !rest.is_zero())
    }

    /// Waits anew, for another random while.
    pub fn restart(&mut self, now: Time, random: &mut Random) -> Duration {
        self.since = now;
        self.patience = random.between(self.timeouts.election, 2 * self.timeouts.election) * (1 << self.lost);
        self.patience
    }

    /// Forgets the leader: it has said that it stops.
    pub fn forget(&mut self) {
        self.heard = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspicion_comes_after_silence_and_goes_with_a_word() {
        let ms = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let timeouts =
            ElectionTimeouts { heartbeat: Duration::from_millis(100), election: Duration::from_millis(500) };
        let mut random = Random::new(1);
        let mut monitor = LeaderMonitor::new(timeouts, true, ms(0), &mut random);
        assert!(!monitor.has_leader(ms(0)), "nobody was heard yet");
        assert!(monitor.remaining(ms(499)).is_some());
        assert!(monitor.remaining(ms(1000)).is_none());
        monitor.heard(ms(1000));
        assert!(monitor.has_leader(ms(1499)) && !monitor.has_leader(ms(1500)));
        assert!(monitor.remaining(ms(1499)).is_some());
        monitor.supports(ms(1600));
        assert!(monitor.has_leader(ms(1700)) && !monitor.is_led(ms(1700)), "a candidate");
        monitor.heard(ms(1800));
        assert!(monitor.is_led(ms(1900)) && !monitor.is_led(ms(2300)));
        for _ in 0..100 {
            let patience = monitor.restart(ms(2000), &mut random);
            assert!(patience >= timeouts.election && patience < 2 * timeouts.election);
        }
        for doubled in [2, 4, 8, 8] {
            monitor.lost_election();
            monitor.stands_for_election(ms(2000));
            let patience = monitor.restart(ms(2000), &mut random);
            assert!(patience >= doubled * timeouts.election && patience < doubled * 2 * timeouts.election);
        }
        monitor.heard(ms(2000));
        assert!(monitor.restart(ms(2000), &mut random) < 2 * timeouts.election);
    }
}
