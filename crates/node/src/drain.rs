//! How a node that is asked to stop goes on until it may.
//!
//! Its clients finish what they have begun ([`Clients::drain`](crate::clients::Clients::drain)). A leader hands over,
//! and stays until another leads and those who still ask it have been told: whoever asks a process that is gone waits
//! in vain first. Who reads under leases stays until those who granted them have been told that they are given back.

use std::time::Duration;

use quorate_core::{NodeId, Time};

/// A hand-over that takes longer has failed.
const HAND_OVER: Duration = Duration::from_secs(1);

/// How long one goes on to tell others what has changed: a former leader, who leads now.
const ANNOUNCE: Duration = Duration::from_millis(100);

/// See the file comment.
#[derive(Debug)]
pub(crate) struct Drain {
    /// When what is not finished is given up.
    pub(crate) until: Time,
    /// When a hand-over is given up, or has been announced for long enough; `None` if nobody has to hear anything.
    held_until: Option<Time>,
    handed_over: bool,
}

impl Drain {
    /// Begins. `is_waited_for`: this node leads or reads under leases, and others are there.
    pub(crate) fn begin(now: Time, limit: Duration, is_waited_for: bool) -> Drain {
        let held_until = is_waited_for.then(|| now + HAND_OVER);
        Drain { until: now + limit, held_until, handed_over: false }
    }

    /// Whether others can do without this node, by whom it takes for the leader.
    pub(crate) fn may_go(&mut self, now: Time, me: Option<NodeId>, leader: Option<NodeId>) -> bool {
        if !self.handed_over && leader.is_some() && leader != me {
            self.handed_over = true;
            self.held_until = self.held_until.map(|_| now + ANNOUNCE);
        }
        self.held_until.is_none_or(|until| until <= now)
    }

    /// When to look again if nothing happens.
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let held = self.held_until.filter(|until| *until > now);
        held.unwrap_or(self.until).min(self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_leader_stays_until_its_successor_is_known_and_announced_and_a_follower_does_not() {
        let node = |id| NodeId::new(id);
        let limit = Duration::from_secs(5);
        let mut drain = Drain::begin(at(0), limit, false);
        assert!(drain.may_go(at(0), node(1), None));
        assert_eq!(drain.deadline(at(0)), at(5000));

        let mut drain = Drain::begin(at(0), limit, true);
        assert!(!drain.may_go(at(10), node(1), node(1)));
        assert!(!drain.may_go(at(20), node(1), None), "nobody leads");
        assert_eq!(drain.deadline(at(20)), at(1000));
        assert!(!drain.may_go(at(30), node(1), node(2)));
        assert_eq!(drain.deadline(at(30)), at(130));
        assert!(!drain.may_go(at(129), node(1), node(3)));
        assert!(drain.may_go(at(130), node(1), node(3)));

        let mut drain = Drain::begin(at(0), limit, true);
        assert!(!drain.may_go(at(999), node(1), node(1)));
        assert!(drain.may_go(at(1000), node(1), node(1)), "nobody takes over");
    }
}
