//! The time that a proposer gives to what it proposes: its own wall clock's, as far as the clocks of a majority support
//! it.
//!
//! Problem: keys and sessions expire by the times that slots carry, and **replicated time never goes back**. A single
//! proposer whose wall clock is an hour ahead, for a moment, would end whatever has less than an hour to live, and
//! nothing that is written later would expire for an hour. Solution: replicas tell their wall clocks with what they say
//! anyway (votes for a leader, answers to heartbeats). Let S be the time that a majority's clocks show at least. A
//! proposer says its own time if that is within [`BOUND`] of S, else the nearest that is.
//!
//! With fewer than half of the clocks wrong, S lies between two that are right, whatever the wrong ones show. What is
//! told grows with the own monotonic clock until it is told again. It is late by its way here (and, where that waits
//! for the disk, by a sync): so S may be too early by that much. On a link that is slow for a moment that would be
//! seconds, and proposers would give keys a shorter time to live than they were put with. So of what a node tells
//! within some seconds the latest time counts, which was quickest on its way. (A clock that is set back is still
//! believed for so long.)
//!
//! - *Alone in its group*, a proposer has no other clock than its own.
//! - *A new leader* has been elected by a majority, and each of those votes told a time.
//! - *Where no majority's times are known*, a leader lets time stand still: nothing expires, and nothing is lost.
//!
//! Safety does not depend on any of this: how a batch is executed depends on the time in it alone.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quorate_core::{NodeId, Sample, Status, Time, WALL_CLOCK, Wall, mutation};

/// How far a proposer's time may be from what the clocks of a majority support. Clocks that are kept by NTP differ by
/// milliseconds; what is told is late by a message's way.
pub const BOUND: Duration = Duration::from_millis(500);

/// What came late counts less than what came within this time and was quicker, and what came in the window before.
const WINDOW: Duration = Duration::from_secs(5);

/// What the others' wall clocks show, as they have told. The explorer sees nothing of it: it tells states of a replica
/// apart by what influences more than the times in batches.
#[derive(Clone, Default)]
pub struct Walls {
    told: BTreeMap<NodeId, Told>,
}

/// A time that was told, and when it came here.
type Reading = (Wall, Time);

/// What one node has told.
#[derive(Clone, Copy)]
struct Told {
    /// The latest time in the window that began then, and in the one before.
    since: Time,
    present: Reading,
    before: Reading,
}

impl Told {
    /// What the clock shows now, if nothing was late on its way.
    fn shows(&self, now: Time) -> Wall {
        let grown = |(wall, at): Reading| later(wall, now.since(at));
        grown(self.present).max(grown(self.before))
    }
}

impl fmt::Debug for Walls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Walls")
    }
}

/// A majority's choice among values of nodes: the largest that a majority of them reach.
type Reached<'a> = &'a dyn Fn(&dyn Fn(NodeId) -> Option<Wall>) -> Option<Wall>;

/// This replica's own clocks.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The replica whose clocks these are.
    pub me: NodeId,
    /// What its wall clock shows, in milliseconds since 1970.
    pub wall: Wall,
    /// What its monotonic clock shows at the same moment.
    pub now: Time,
}

impl Walls {
    /// Another tells what its wall clock shows.
    pub fn hear(&mut self, node: NodeId, wall: Wall, now: Time) {
        let reading = (wall, now);
        let told = self.told.entry(node).or_insert(Told { since: now, present: reading, before: reading });
        if now.since(told.since) >= WINDOW {
            *told = Told { since: now, present: reading, before: told.present };
        }
        let (latest, at) = told.present;
        if wall >= later(latest, now.since(at)) {
            told.present = reading;
        }
    }

    /// What the clocks of a majority show at least; `None`: too few are known.
    fn supported(&self, own: Own, reached: Reached<'_>) -> Option<Wall> {
        reached(&|node| match node == own.me {
            true => Some(own.wall),
            false => self.told.get(&node).map(|told| told.shows(own.now)),
        })
    }

    /// The time to propose; `None`: too few clocks are known.
    pub fn time(&self, own: Own, reached: Reached<'_>) -> Option<Wall> {
        if mutation::active("walls/own-clock-only") {
            return Some(own.wall);
        }
        let supported = self.supported(own, reached)?;
        Some(own.wall.clamp(earlier(supported, BOUND), later(supported, BOUND)))
    }

    /// How the own wall clock stands to what a majority's show, for operators: a word only if they differ by more than
    /// the bound.
    pub fn tell(&self, own: Own, reached: Reached<'_>, status: &mut Status) {
        let Some(supported) = self.supported(own, reached) else { return };
        let off = difference(own.wall, supported);
        let help = "How far the proposer's wall clock is from those of a majority.";
        status.samples.push(Sample::gauge("wall_clock_off_seconds", off, help));
        status.facts.extend(words(own.wall, supported).map(|words| (WALL_CLOCK, words)));
    }
}

/// That a clock is further from what a majority's show than it may be.
fn words(own: Wall, supported: Wall) -> Option<String> {
    let off = difference(own, supported);
    let way = if own > supported { "ahead of" } else { "behind" };
    (off > BOUND).then(|| format!("{} s {way} those of a majority", off.as_secs_f64()))
}

fn difference(one: Wall, other: Wall) -> Duration {
    Duration::from_millis(one.millis().abs_diff(other.millis()))
}

fn later(wall: Wall, by: Duration) -> Wall {
    Wall::from_millis(wall.millis().saturating_add(by.as_millis() as u64))
}

fn earlier(wall: Wall, by: Duration) -> Wall {
    Wall::from_millis(wall.millis().saturating_sub(by.as_millis() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::majority_reached;

    /// What node 1 proposes, by its own clock and what the others told 200 ms ago (in milliseconds).
    fn proposed(own: u64, told: &[Option<u64>]) -> Option<u64> {
        let node = |id| NodeId::new(id).unwrap();
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let mut walls = Walls::default();
        for (id, told) in (2..).zip(told) {
            told.iter().for_each(|millis| walls.hear(node(id), Wall::from_millis(*millis), at(100)));
        }
        let own = Own { me: node(1), wall: Wall::from_millis(own), now: at(300) };
        let all = 1..=1 + told.len() as u64;
        let time = walls.time(own, &|wall| majority_reached(all.clone().map(|id| wall(node(id)))));
        time.map(Wall::millis)
    }

    #[test]
    fn a_minority_of_wrong_clocks_moves_time_by_no_more_than_the_bound() {
        let hour = 3_600_000;
        let (now, then) = (10 * hour, Some(10 * hour - 200));
        let (ahead, behind) = (Some(11 * hour), Some(9 * hour));
        // own clock, what the others told → what is proposed
        let table = [
            (now, vec![], now),
            (now + hour, vec![], now + hour),
            (now, vec![then, then], now),
            (now + 400, vec![then, then], now + 400),
            (now + hour, vec![then, then], now + 500),
            (now - hour, vec![then, then], now - 500),
            (now, vec![ahead, then], now),
            (now, vec![behind, then], now),
            (now + hour, vec![then, None], now + 500),
            (now, vec![ahead, behind, then, then], now),
            (now + hour, vec![ahead, then, then, then], now + 500),
            // Both must support it, and one is behind.
            (now, vec![behind], 9 * hour + 200 + 500),
        ];
        for (own, told, expected) in table {
            assert_eq!(proposed(own, &told), Some(expected), "{own} and {told:?}");
        }
        assert_eq!(proposed(now, &[None, None]), None, "nobody has told");
        assert_eq!(proposed(now, &[then, None, None, None]), None, "two of five");
    }

    #[test]
    fn what_is_late_on_its_way_does_not_set_a_clock_back_but_the_clock_does_in_time() {
        let (mut walls, other) = (Walls::default(), NodeId::new(2).unwrap());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let hear = |walls: &mut Walls, told, now| {
            walls.hear(other, Wall::from_millis(told), at(now));
            walls.told[&other].shows(at(now)).millis()
        };
        assert_eq!(hear(&mut walls, 10_000, 1000), 10_000);
        assert_eq!(hear(&mut walls, 10_100, 2500), 11_500, "1.4 s late");
        assert_eq!(hear(&mut walls, 13_000, 3000), 13_000, "its clock is ahead of what it was");
        for seconds in 4..11 {
            assert_eq!(hear(&mut walls, 1000 * seconds, 1000 * seconds), 10_000 + 1000 * seconds);
        }
        for seconds in 11..30 {
            assert_eq!(hear(&mut walls, 1000 * seconds, 1000 * seconds), 1000 * seconds, "it was set back");
        }
    }

    #[test]
    fn operators_are_told_of_a_clock_that_is_off_by_more_than_the_bound() {
        let told = |own| words(Wall::from_millis(own), Wall::from_millis(10_000));
        assert_eq!((told(10_500), told(9_500)), (None, None));
        assert_eq!(told(70_500).as_deref(), Some("60.5 s ahead of those of a majority"));
        assert_eq!(told(8_000).as_deref(), Some("2 s behind those of a majority"));
    }
}
