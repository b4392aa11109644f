//! Whose votes are overdue. A replica may be there and not vote: its disk hangs, or takes seconds for each write. What
//! needs no disk still comes from it (answers to renewals of leases, say), so its silence gives no sign.
//!
//! Problem: where writes wait for particular replicas (those that read locally), one that does not vote stops them.
//! Solution: a leader looks at what a majority has voted for, for some time already. Whoever has not is a **laggard**,
//! and treated as one that is silent. It must not be treated so for a slow majority: then nothing would get better.
//!
//! A laggard comes back when it has caught up, durably, and some time has passed: twice as long as the last time, up to
//! a limit, if it has been back for a short time only. A disk that is always slow is thus waited for ever more rarely.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, Time, mutation};

/// Where so many bytes are under way, they say more of what links can carry than of the members ([`SojournTime`]).
pub const MUCH_UNDER_WAY: u64 = 256 << 10;
/// The longest exclusion is so many times the shortest.
const LONGEST: u32 = 64;
/// One that has been back for so many times its last exclusion starts afresh.
const SETTLED: u32 = 4;

/// As the leader sees them.
#[derive(Clone, Debug, Default)]
pub struct Laggards {
    seen: BTreeMap<NodeId, Lag>,
}

/// One that is a laggard, or was.
#[derive(Clone, Copy, Debug)]
struct Lag {
    since: Time,
    /// How long it stays one at least.
    least: Duration,
    /// When it was none any more.
    back: Option<Time>,
}

impl Laggards {
    /// Those with overdue votes become laggards; those that are `near` again, and not overdue, cease to be. `least`:
    /// the shortest time.
    pub fn review(&mut self, overdue: NodeSet, near: impl Fn(NodeId) -> bool, least: Duration, now: Time) {
        for node in overdue.iter().filter(|_| !mutation::active("laggards/silence-only")) {
            match self.seen.get_mut(&node) {
                Some(Lag { back: None, .. }) => {}
                Some(Lag { since, least: last, back: back @ Some(_) }) => {
                    let settled = back.is_some_and(|at| now.since(at) >= *last * SETTLED);
                    let next = if settled { least } else { (*last * 2).min(least * LONGEST) };
                    (*since, *last, *back) = (now, next, None);
                }
                None => drop(self.seen.insert(node, Lag { since: now, least, back: None })),
            }
        }
        for (&node, lag) in &mut self.seen {
            let rested = now.since(lag.since) >= lag.least;
            if lag.back.is_none() && rested && near(node) && !overdue.contains(node) {
                lag.back = Some(now);
            }
        }
    }

    /// Whether it is one.
    pub fn contains(&self, node: NodeId) -> bool {
        self.seen.get(&node).is_some_and(|lag| lag.back.is_none())
    }

    /// All that are.
    pub fn all(&self) -> NodeSet {
        self.seen.keys().copied().filter(|node| self.contains(*node)).collect()
    }
}

/// Watches the sojourn time of entries at a member: how long one takes from when it is given to when it is done. A
/// member that is slow and gets on is never overdue, and yet everything waits for it. By Little's law that time is,
/// on average, how long entries were under way, all together, over how many got done.
#[derive(Clone, Copy, Debug)]
pub struct SojournTime {
    since: Time,
    /// What the member had then.
    begun: u64,
    reviewed: Time,
    /// How long entries were under way since, all together.
    under_way: Duration,
    slow: bool,
}

impl SojournTime {
    /// So many entries say how long one takes.
    const ENOUGH: u64 = 2;

    /// Of a member that has everything up to `has`.
    pub fn new(has: u64, now: Time) -> SojournTime {
        SojournTime { since: now, begun: has, reviewed: now, under_way: Duration::ZERO, slow: false }
    }

    /// Called now and then, as long as the member `has` everything up to there of what it was `given`. Whether an entry
    /// took longer than `limit` when that was seen last, for `window` at least.
    pub fn is_slow(
        &mut self,
        (has, given): (u64, u64),
        (limit, window): (Duration, Duration),
        now: Time,
    ) -> bool {
        let times = |duration: Duration, entries: u64| {
            duration.saturating_mul(entries.try_into().unwrap_or(u32::MAX))
        };
        let under_way = times(now.since(self.reviewed), given.saturating_sub(has));
        self.under_way = self.under_way.saturating_add(under_way);
        self.reviewed = now;
        let done = has.saturating_sub(self.begun);
        if done >= SojournTime::ENOUGH && now.since(self.since) >= window {
            let slow = self.under_way > times(limit, done);
            *self = SojournTime { slow, ..SojournTime::new(has, now) };
        }
        self.slow
    }
}

/// Watches whether the own disk keeps up: whether what others have made durable is so here too, not too much later. A
/// leader without a disk that works is of less use than another.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnDisk {
    /// Something that is durable at others and not here, and since when that is known.
    missing: Option<(u64, Time)>,
}

impl OwnDisk {
    /// Called now and then. `durable`: up to here everything is durable here, `others`: at a majority. Whether
    /// something has been missing here for `limit`.
    pub fn hangs(&mut self, durable: u64, others: u64, limit: Duration, now: Time) -> bool {
        if self.missing.is_none_or(|(slot, _)| durable >= slot) {
            self.missing = (durable < others).then_some((others, now));
        }
        let hangs = self.missing.is_some_and(|(_, since)| now.since(since) >= limit);
        hangs && !mutation::active("laggards/leader-stays")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_slow_voter_is_waited_for_ever_more_rarely_and_comes_back_when_it_has_caught_up() {
        let node = NodeId::new(2).unwrap();
        let mut laggards = Laggards::default();
        // at (ms), its votes are overdue, it is near → whether it is a laggard
        let table = "
            0     -       near → no
            100   overdue near → yes
            150   -       near → yes
            200   -       far  → yes
            210   overdue near → yes
            220   -       near → no
            300   overdue near → yes
            400   -       near → yes
            500   -       near → no
            600   overdue far  → yes
            999   -       near → yes
            1000  -       near → no
            2600  overdue far  → yes
            2700  -       near → no
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<_> = line.split_whitespace().collect();
            let overdue: NodeSet = (words[1] == "overdue").then_some(node).into_iter().collect();
            let now = ms(words[0].parse().unwrap());
            laggards.review(overdue, |_| words[2] == "near", Duration::from_millis(100), now);
            assert_eq!(if laggards.contains(node) { "yes" } else { "no" }, words[4], "{line}");
        }
    }

    #[test]
    fn a_member_is_slow_that_takes_long_for_each_entry_and_gets_on() {
        let mut sojourn_time = SojournTime::new(5, ms(0));
        let limits = (Duration::from_millis(30), Duration::from_millis(100));
        // at (ms), it has, of what it was given → is slow
        let table = [
            // One at a time, 50 ms each.
            (50, 5, 6, false),
            (100, 6, 7, false),
            (150, 7, 8, true),
            (200, 8, 9, true),
            // Four at a time, 80 ms each, although one gets done in 20 ms.
            (240, 10, 14, true),
            (280, 12, 16, true),
            // As many in 20 ms each.
            (320, 20, 24, true),
            (360, 28, 32, true),
            (400, 36, 40, false),
            // It has nothing to do, and then nothing gets done.
            (500, 40, 40, false),
            (700, 40, 41, false),
            (800, 41, 42, false),
            (900, 42, 42, true),
        ];
        for (at, has, given, slow) in table {
            assert_eq!(sojourn_time.is_slow((has, given), limits, ms(at)), slow, "at {at} ms");
        }
    }

    #[test]
    fn an_own_disk_hangs_when_what_others_have_is_missing_for_long() {
        let mut disk = OwnDisk::default();
        let limit = Duration::from_millis(100);
        // at (ms), durable here, at others → hangs
        let table = [
            (0, 5, 5, false),
            (50, 5, 7, false),
            (120, 6, 9, false),
            (149, 6, 9, false),
            (150, 6, 9, true),
            (160, 7, 9, false),
            (260, 8, 20, true),
            (270, 20, 20, false),
            (900, 20, 20, false),
        ];
        for (at, durable, others, hangs) in table {
            assert_eq!(disk.hangs(durable, others, limit, ms(at)), hangs, "at {at} ms");
        }
    }
}
