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
