//! The time that a proposer gives to what it proposes: its own wall clock's, as far as the clocks of a majority support
//! it.
//!
//! Problem: keys and sessions expire by the times that slots carry, and **replicated time never goes back**. A single
//! proposer whose wall clock is an hour ahead, for a moment, would end whatever has less than an hour to live, and
//! nothing that is written later would expire for an hour. Other replicas can say what their clocks show, but a message
//! may be late by any time, and a time that is believed to be the present when it is seconds old is wrong as well.
//!
//! Solution: replicas tell their wall clocks in answers only (to a request for a vote, to a heartbeat), and the asker
//! knows when, by its own monotonic clock, it has sent the request that is answered. The other clock was read after
//! that, so when the answer comes it shows the time in the answer, or more than that by no more than the round trip
//! took: an **interval that is right however late the messages were**. Both ends grow with the own monotonic clock,
//! and apart from each other by [`DRIFT`], since clocks do not run alike. Of two readings of one clock the one with the
//! narrower interval counts; where they contradict each other the clock was set in between, and the later one counts.
//!
//! Let `earliest` be the largest time that the lower ends of a majority reach, and `latest` the same of the upper
//! ends. A proposer says its own time if that is within [`BOUND`] of these two, else the nearest that is. With fewer
//! than half of the clocks wrong, the largest time that a majority's clocks reach lies between two that are right. It
//! also lies between `earliest` and `latest`. So a proposer whose own clock is right says its own time, and one whose
//! clock is wrong is off by a round trip and the bound at most.
//!
//! - *A clock that is set* shows something else than what is known of it, until it is read again. Where it seemed far
//!   from the own one, that is soon: where no vote or heartbeat tells it anyway, such clocks are asked for again and
//!   again. Else a proposer whose clock is right might for a second say a time that no clock shows any more, if others
//!   cannot be heard: what it writes would expire early.
//! - *Clocks that were ahead and are set right*, those of a majority: replicated time is ahead of them now. If it stood
//!   still until they have caught up, a key that is to live for a second would live for hours. So a leader goes on from
//!   what replicated time has come to, at half the rate of its monotonic clock, until the clocks have caught up: such a
//!   key lives for two seconds. This is **slewing**, as NTP does it. Each leadership begins with the replicated time of
//!   that moment. If a leader went on from an earlier one of its own, its time might be ahead of what others have
//!   proposed since, and keys that they wrote would end too early.
//! - *Alone in its group*, a proposer has no other clock than its own.
//! - *A new leader* has been elected by a majority, and each of those votes told a time.
//! - *A group that has just changed* may have no majority whose clocks are known yet. Until it has one, what the clocks
//!   of a majority of the group before showed counts, as both ends have grown since. If time stood still instead, the
//!   lifetime of a key that is written now would be counted from an earlier write's time, and end too early. A leader
//!   has such times: it was elected by a majority of the group that it leads, or has added to it those that it had
//!   heard.
//! - *An answer to a request of an earlier life* must not be taken for one of this life, whose monotonic clock has
//!   nothing to do with that one's. Callers see to it: the request names a ballot, a term or a life
//!   ([`ClockRequest::life`]).
//!
//! Safety does not depend on any of this: how a batch is executed depends on the time in it alone.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quorate_core::{
    Context, DurationHistogram, Machine, NodeId, NodeSet, Sample, Status, Time, WALL_CLOCK, Wall, mutation,
    wire_struct,
};

/// How far a proposer's time may be from what the clocks of a majority support. Clocks that are kept by NTP differ by
/// milliseconds.
pub const BOUND: Duration = Duration::from_millis(500);

/// Two monotonic clocks gain or lose less than one part in so many on each other: far more than oscillators do.
const DRIFT: u32 = 20;

/// By which part of the rate of the own monotonic clock replicated time goes on while it is ahead of all clocks.
const SLEWED: u32 = 2;

/// How old a reading may be before the clock is asked again, where only [`ClockRequest`]s ask. One that is far from the
/// own clock is asked for again at once.
const RENEW: Duration = Duration::from_secs(1);

/// Operators are not told of the clock of whoever has told nothing for so long, and may have left the group.
const SILENT: Duration = Duration::from_secs(10);

/// Asks for the wall clock of another; repeated in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRequest {
    /// A random number of this start of the asker.
    pub life: u64,
    /// When it was sent, by the asker's monotonic clock.
    pub sent: Time,
}
wire_struct!(ClockRequest { life, sent });

/// What the others' wall clocks show, as they have told. The explorer sees nothing of it: it tells states of a replica
/// apart by what influences more than the times in batches.
#[derive(Clone, Default)]
pub struct Walls {
    readings: BTreeMap<NodeId, Reading>,
    /// The last that a majority supported, by the own monotonic clock, at least and at most.
    supported: Option<(Time, (Wall, Wall))>,
    /// As a leader: what replicated time had come to, and when, by the own monotonic clock.
    slewed: Option<(Time, Wall)>,
    /// From each request to its answer, for operators.
    round_trips: BTreeMap<NodeId, DurationHistogram>,
}

/// A reading of another's wall clock, when it was asked for, and when the answer was received.
#[derive(Clone, Copy)]
struct Reading {
    sent: Time,
    received: Time,
    wall: Wall,
}

impl Reading {
    /// What the clock shows now, at least and at most.
    fn shows(&self, now: Time) -> (Wall, Wall) {
        let round_trip = match mutation::active("walls/answers-are-in-time") {
            true => Duration::ZERO,
            false => self.received.since(self.sent),
        };
        grown((self.wall, later(self.wall, round_trip)), now.since(self.received))
    }

    /// Whether this one counts from now on, and not one that came before.
    fn replaces(&self, before: &Reading, now: Time) -> bool {
        let ((earliest, latest), (least, most)) = (self.shows(now), before.shows(now));
        let was_set = (latest < least || earliest > most) && !mutation::active("walls/clocks-are-never-set");
        let narrower = difference(earliest, latest) <= difference(least, most);
        // Answers overtake each other.
        self.sent >= before.sent && (was_set || narrower || mutation::active("walls/last-reading-counts"))
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

impl Own {
    /// What they show in this step of the replica.
    pub fn read<M: Machine>(me: NodeId, cx: &Context<'_, M>) -> Own {
        Own { me, wall: cx.wall(), now: cx.now() }
    }
}

impl Walls {
    /// Another answers, with what its wall clock shows, a request that was sent then.
    pub fn hear(&mut self, node: NodeId, (sent, wall): (Time, Wall), own: Own, reached: Reached<'_>) {
        let reading = Reading { sent, received: own.now, wall };
        let counts = self.readings.get(&node).is_none_or(|before| reading.replaces(before, own.now));
        // Nobody answers before it is asked.
        if sent <= own.now {
            self.round_trips.entry(node).or_default().add(own.now.since(sent));
            if counts {
                self.readings.insert(node, reading);
            }
        }
        if let Some(supported) = self.shown(own, reached) {
            self.supported = Some((own.now, supported));
        }
    }

    /// Those of these nodes whose clocks are not known, or have not been read for some time; or seem to be further from
    /// the own one than [`BOUND`], so that one of the two is about to be set.
    pub fn due(&self, nodes: NodeSet, own: Own) -> NodeSet {
        let differs = |reading: &Reading| {
            let (earliest, latest) = reading.shows(own.now);
            let is_far = difference(own.wall, own.wall.clamp(earliest, latest)) > BOUND;
            is_far && !mutation::active("walls/differences-are-not-looked-at")
        };
        let is_due = |reading: &Reading| own.now.since(reading.received) >= RENEW || differs(reading);
        nodes.iter().filter(|node| self.readings.get(node).is_none_or(is_due)).collect()
    }

    /// What `shown` says, or what it said for the group before; `None`: too few clocks are known.
    fn supported(&self, own: Own, reached: Reached<'_>) -> Option<(Wall, Wall)> {
        let before = self.supported.filter(|_| !mutation::active("walls/group-before-is-forgotten"));
        let grown = |(at, ends): (Time, (Wall, Wall))| grown(ends, own.now.since(at));
        self.shown(own, reached).or_else(|| before.map(grown))
    }

    /// What the clocks of a majority show, at least and at most; `None`: too few are known.
    fn shown(&self, own: Own, reached: Reached<'_>) -> Option<(Wall, Wall)> {
        let shows = |node| match node == own.me {
            true => Some((own.wall, own.wall)),
            false => self.readings.get(&node).map(|reading| reading.shows(own.now)),
        };
        Some((reached(&|node| Some(shows(node)?.0))?, reached(&|node| Some(shows(node)?.1))?))
    }

    /// This replica begins to lead a group whose replicated time has come to this.
    pub fn begin_to_lead(&mut self, now: Time, replicated: Wall) {
        if !mutation::active("walls/slews-on-from-a-former-leadership") {
            self.slewed = None;
        }
        self.on_replicated_time(now, replicated);
    }

    /// Replicated time has come to this. A leader says so with each heartbeat.
    pub fn on_replicated_time(&mut self, now: Time, replicated: Wall) {
        if self.slewed(now).is_none_or(|slewed| slewed < replicated) {
            self.slewed = Some((now, replicated));
        }
    }

    /// The least that a leader proposes, whatever the clocks of a majority show.
    fn slewed(&self, now: Time) -> Option<Wall> {
        self.slewed.map(|(at, wall)| later(wall, now.since(at) / SLEWED))
    }

    /// The time to propose; `None`: too few clocks are known.
    pub fn time(&self, own: Own, reached: Reached<'_>) -> Option<Wall> {
        if mutation::active("walls/own-clock-only") {
            return Some(own.wall);
        }
        let (earliest, latest) = self.supported(own, reached)?;
        let time = own.wall.clamp(earlier(earliest, BOUND), later(latest, BOUND));
        Some(self.slewed(own.now).map_or(time, |slewed| slewed.max(time)))
    }

    /// For operators: how long answers take, and how the own wall clock stands to what a majority's show; in words,
    /// whose clocks differ from these by more than the bound.
    pub fn tell(&self, own: Own, reached: Reached<'_>, status: &mut Status) {
        let help = "From a request to a member, such as a heartbeat, to its answer.";
        let round_trips = self.round_trips.iter().map(|(node, times)| {
            Sample::histogram("peer_round_trip_seconds", times, help).with("peer", node.to_string())
        });
        status.samples.extend(round_trips);
        let Some((earliest, latest)) = self.supported(own, reached) else { return };
        let supported = own.wall.clamp(earliest, latest);
        let off = difference(own.wall, supported);
        let help = "How far the proposer's wall clock is from those of a majority.";
        status.samples.push(Sample::gauge("wall_clock_off_seconds", off, help));
        status.facts.extend(self.off(own, (earliest, latest)).map(|words| (WALL_CLOCK, words)));
    }

    /// Whose clocks differ from what a majority's show by more than the bound, in words.
    fn off(&self, own: Own, supported: (Wall, Wall)) -> Option<String> {
        let heard = self.readings.iter().filter(|(_, reading)| own.now.since(reading.received) < SILENT);
        let clocks = heard.map(|(node, reading)| (*node, reading.shows(own.now)));
        let clocks = [(own.me, (own.wall, own.wall))].into_iter().chain(clocks);
        let off = clocks.filter_map(|(node, shows)| Some((node, words(shows, supported)?)));
        let off: Vec<String> = off.map(|(node, words)| format!("node {node}'s is {words}")).collect();
        (!off.is_empty()).then(|| format!("{}, by the clocks of a majority", off.join(", ")))
    }
}

/// That a clock is further from what a majority's show than it may be, both known as intervals.
fn words((least, most): (Wall, Wall), (earliest, latest): (Wall, Wall)) -> Option<String> {
    let (off, way) = match least > latest {
        true => (difference(least, latest), "ahead"),
        false => (difference(most, most.max(earliest)), "behind"),
    };
    (off > BOUND).then(|| format!("{} s {way}", off.as_secs_f64()))
}

/// What a clock shows that showed a time between these so long ago, by another's count.
fn grown((earliest, latest): (Wall, Wall), age: Duration) -> (Wall, Wall) {
    (later(earliest, age - age / DRIFT), later(latest, age + age / DRIFT))
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

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn node(id: u64) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn own(wall: u64, now: u64) -> Own {
        Own { me: node(1), wall: Wall::from_millis(wall), now: at(now) }
    }

    /// Nodes 1 to n.
    fn of(nodes: u64) -> impl Fn(&dyn Fn(NodeId) -> Option<Wall>) -> Option<Wall> {
        move |wall| majority_reached((1..=nodes).map(|id| wall(node(id))))
    }

    /// What node 1 proposes, by its own clock and what the others told: asked 240 ms ago, and heard 200 ms ago.
    fn proposed(wall: u64, told: &[Option<u64>]) -> Option<u64> {
        let (mut walls, group) = (Walls::default(), of(1 + told.len() as u64));
        for (id, told) in (2..).zip(told) {
            let told = told.map(|millis| (at(60), Wall::from_millis(millis)));
            told.into_iter().for_each(|told| walls.hear(node(id), told, own(wall, 100), &group));
        }
        walls.time(own(wall, 300), &group).map(Wall::millis)
    }

    #[test]
    fn a_minority_of_wrong_clocks_moves_time_by_no_more_than_the_bound_and_a_round_trip() {
        let hour = 3_600_000;
        let (now, then) = (10 * hour, Some(10 * hour - 200));
        let (ahead, behind) = (Some(11 * hour), Some(9 * hour));
        // own clock, what the others told → what is proposed; 10 ms each way are for drift
        let table = [
            (now, vec![], now),
            (now + hour, vec![], now + hour),
            (now, vec![then, then], now),
            (now + 400, vec![then, then], now + 400),
            (now + hour, vec![then, then], now + 550),
            (now - hour, vec![then, then], now - 510),
            (now, vec![ahead, then], now),
            (now, vec![behind, then], now),
            (now + hour, vec![then, None], now + 550),
            (now, vec![ahead, behind, then, then], now),
            (now + hour, vec![ahead, then, then, then], now + 550),
            // Both must support it, and one is behind.
            (now, vec![behind], 9 * hour + 750),
        ];
        for (own, told, expected) in table {
            assert_eq!(proposed(own, &told), Some(expected), "{own} and {told:?}");
        }
        assert_eq!(proposed(now, &[None, None]), None, "nobody has told");
        assert_eq!(proposed(now, &[then, None, None, None]), None, "two of five");
    }

    #[test]
    fn the_narrowest_reading_counts_until_a_later_one_contradicts_it_or_drift_has_made_it_wider() {
        let (mut walls, other) = (Walls::default(), node(2));
        // asked, told, heard → what the clock shows then
        let mut hear = |sent, told, now| {
            walls.hear(other, (at(sent), Wall::from_millis(told)), own(0, now), &of(2));
            let (earliest, latest) = walls.readings[&other].shows(at(now));
            (earliest.millis(), latest.millis())
        };
        assert_eq!(hear(0, 10_000, 1000), (10_000, 11_000), "read between 0 and 1000 ms");
        assert_eq!(hear(1000, 10_900, 1100), (10_900, 11_000), "narrower");
        assert_eq!(hear(1150, 10_950, 2100), (11_850, 12_050), "as wide as its way was long");
        assert_eq!(hear(2150, 60_000, 3150), (60_000, 61_000), "was set");
        assert_eq!(hear(2140, 12_000, 3151), (60_000, 61_001), "has been overtaken");
        assert_eq!(hear(9999, 12_000, 3152), (60_001, 61_002), "answers what was not asked");
        assert_eq!(hear(3160, 59_000, 3260), (59_000, 59_100), "was set back");
        assert_eq!(hear(21_060, 78_000, 23_260), (78_000, 80_100), "drift has not made it as wide yet");
        assert_eq!(hear(23_260, 79_000, 25_360), (79_000, 81_100), "the later one is narrower at last");
    }

    #[test]
    fn a_group_that_has_just_changed_goes_by_the_clocks_of_the_group_before() {
        let mut walls = Walls::default();
        // Node 2 shows between 9,990 and 10,000 at 100 ms.
        walls.hear(node(2), (at(90), Wall::from_millis(9_990)), own(9_995, 100), &of(3));
        // own clock, by the own monotonic one, group → what is proposed: drift of a twentieth, and the bound
        let table = [
            (10_000, 100, 3, 10_000),
            (90_000, 100, 5, 10_495),
            (11_000, 1100, 5, 11_000),
            (90_000, 1100, 5, 11_545),
            (10, 1100, 5, 10_440),
        ];
        for (wall, now, nodes, expected) in table {
            let time = walls.time(own(wall, now), &of(nodes));
            assert_eq!(time.map(Wall::millis), Some(expected), "{wall} at {now} of {nodes}");
        }
    }

    #[test]
    fn a_leader_slews_while_replicated_time_is_ahead_of_the_clocks_of_a_majority() {
        let (mut walls, hour) = (Walls::default(), 3_600_000);
        // moment, by the own monotonic clock; whether it begins to lead; replicated time; the own clock → is proposed
        let table = [
            ("clocks are right", 1000, true, hour, hour + 10, hour + 10),
            ("and go on", 3000, false, hour + 1900, hour + 2010, hour + 2010),
            ("replicated time is ahead", 4000, false, 2 * hour, hour + 3010, 2 * hour),
            ("at half the rate", 5000, false, 2 * hour, hour + 4010, 2 * hour + 500),
            (
                "of what it has proposed less is executed",
                6000,
                false,
                2 * hour + 400,
                hour + 5010,
                2 * hour + 1000,
            ),
            ("another has led", 8000, true, 2 * hour + 700, hour + 7010, 2 * hour + 700),
            ("from there", 9000, false, 2 * hour + 700, hour + 8010, 2 * hour + 1200),
            ("and from another's slot", 10_000, false, 2 * hour + 5000, hour + 9010, 2 * hour + 5000),
            ("clocks have caught up", 20_000, false, 2 * hour + 9000, 2 * hour + 10_001, 2 * hour + 10_001),
            ("and stay", 21_000, false, 2 * hour + 10_001, 2 * hour + 11_001, 2 * hour + 11_001),
        ];
        for (what, now, begins, replicated, wall, proposed) in table {
            match begins {
                true => walls.begin_to_lead(at(now), Wall::from_millis(replicated)),
                false => walls.on_replicated_time(at(now), Wall::from_millis(replicated)),
            }
            let time = walls.time(own(wall, now), &of(1));
            assert_eq!(time, Some(Wall::from_millis(proposed)), "{what}");
        }
    }

    #[test]
    fn operators_are_told_of_clocks_that_are_off_by_more_than_the_bound() {
        // What node 1 says at a moment: nodes 2 and 3 told at 100 ms what they show, and were asked 20 ms before.
        let told = |own_wall: u64, others: [u64; 2], now: u64| {
            let mut walls = Walls::default();
            for (id, told) in (2..).zip(others) {
                walls.hear(node(id), (at(80), Wall::from_millis(told)), own(own_wall, 100), &of(3));
            }
            let own = own(own_wall + now - 100, now);
            walls.off(own, walls.supported(own, &of(3)).unwrap())
        };
        let day = 86_400_000;
        assert_eq!(told(day, [day + 400, day - 400], 100), None);
        let ahead = told(day + 60_500, [day, day], 100).unwrap();
        assert_eq!(ahead, "node 1's is 60.48 s ahead, by the clocks of a majority");
        let others = told(day, [day, day + 5000], 100).unwrap();
        assert_eq!(others, "node 3's is 4.98 s ahead, by the clocks of a majority");
        let others = told(day, [day - 5000, day], 100).unwrap();
        assert_eq!(others, "node 2's is 4.98 s behind, by the clocks of a majority");
        let both = told(day, [day - 5000, day + 5000], 100).unwrap();
        assert_eq!(both, "node 2's is 4.98 s behind, node 3's is 5 s ahead, by the clocks of a majority");
        assert_eq!(told(day, [day, day + 5000], 11_000), None, "node 3 has been silent for long");
    }
}
