//! The log of slow requests: which took longer than a threshold, and in which stage they spent it.
//!
//! Most requests are fast, so little is noted of each: when it was read, sent on and answered, and in which slot.
//! The stages of replication are noted once a slot, in a ring of the latest; what a request went through is put
//! together only when it was slow. Where it was not proposed here, its proposer's line for the slot tells the rest.
//!
//! A slot that takes long makes all of its requests slow: they are one line, of the slowest of them, with their count.
//!
//! | stage | ends when |
//! |---|---|
//! | `queued` | the proxy has sent it on: earlier requests of its client have ended, a leader is known |
//! | `proposed` | the leader has proposed it in a slot |
//! | `synced` | the leader's own record is durable; missing if the slot was committed without it |
//! | `committed` | the slot is decided |
//! | `applied` | the slot is executed |
//! | `answered`, `served` | instead of these four, seen from elsewhere: a write is answered, or a read is |
//! | `replied`, `failed` | the client's reply is made, or the request is given up |

// tidy: long because half of it are its tests, which play scripts.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use quorate_core::{Access, GroupId, Mark, Outcome, Random, RequestId, Time, Wall};
use tracing::info;

use crate::metrics::Metrics;
use crate::spans::SpanQueue;

/// Slow requests that are remembered.
const ENTRIES: usize = 128;
/// Slots whose stages are remembered: more than are under way at once.
const SLOTS: u64 = 4096;
/// Lines about requests in a second, and as many about slots: what makes one slow makes many slow.
const LINES: u32 = 16;

/// A request that was slow, or is exported as a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// Counts those that were slow, from 0.
    pub number: u64,
    /// When it ended.
    pub ended: Wall,
    /// From its coming in to its reply.
    pub took: Duration,
    /// What it was.
    pub asked: Described,
    /// Where the client is.
    pub address: String,
    /// Which of several groups was asked (`--groups`), if it is known.
    pub group: Option<GroupId>,
    /// The slot of the group that it was executed in, if it is known.
    pub slot: Option<u64>,
    /// How long each stage took, in order; see the module's comment.
    pub stages: Vec<(&'static str, Duration)>,
}

/// A request as its client protocol describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The name of the command.
    pub command: &'static str,
    /// What the client calls itself.
    pub client: String,
}

/// What is noted of a request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    asked: Time,
    access: Access,
    forwarded: Option<Time>,
    answered: Option<Time>,
    group: Option<GroupId>,
    slot: u64,
}

impl Times {
    pub(crate) fn new(asked: Time, access: Access) -> Times {
        Times { asked, access, forwarded: None, answered: None, group: None, slot: 0 }
    }

    /// A mark of this request by the proxy of a group.
    pub(crate) fn mark(&mut self, group: GroupId, mark: Mark, at: Time) {
        self.group = Some(group);
        match mark {
            // Repetitions do not end the wait again.
            Mark::Forwarded { .. } => drop(self.forwarded.get_or_insert(at)),
            Mark::Answered { slot, .. } => (self.answered, self.slot) = (Some(at), slot),
            Mark::Proposed { .. } | Mark::Recorded { .. } | Mark::Committed { .. } | Mark::Applied { .. } => {
            }
        }
    }
}

/// The request that a mark is about, if it is a proxy's.
pub(crate) fn request(mark: Mark) -> Option<RequestId> {
    match mark {
        Mark::Forwarded { request } | Mark::Answered { request, .. } => Some(request),
        Mark::Proposed { .. } | Mark::Recorded { .. } | Mark::Committed { .. } | Mark::Applied { .. } => None,
    }
}

/// What is noted of a slot that was proposed here.
#[derive(Clone, Copy, Debug)]
struct SlotTimes {
    group: GroupId,
    slot: u64,
    requests: usize,
    proposed: Time,
    synced: Option<Time>,
    committed: Option<Time>,
    applied: Option<Time>,
}

impl SlotTimes {
    /// Nothing but that it was proposed.
    fn new(group: GroupId, slot: u64, proposed: Time) -> SlotTimes {
        SlotTimes { group, slot, requests: 0, proposed, synced: None, committed: None, applied: None }
    }

    /// Its stages, as far as they are known, after what was `reached` before.
    fn stages(&self, reached: &mut Reached) {
        // A majority of others may be faster than the own disk; then nobody waited for it.
        let synced = self.synced.filter(|synced| self.committed.is_none_or(|committed| *synced <= committed));
        reached.at("synced", synced);
        reached.at("committed", self.committed);
        reached.at("applied", self.applied);
    }
}

/// Puts stages together: each begins where the one before ended.
struct Reached {
    last: Time,
    stages: Vec<(&'static str, Duration)>,
}

impl Reached {
    fn new(start: Time) -> Reached {
        Reached { last: start, stages: Vec::new() }
    }

    fn at(&mut self, stage: &'static str, at: Option<Time>) {
        if let Some(at) = at {
            self.stages.push((stage, at.since(self.last)));
            self.last = self.last.max(at);
        }
    }
}

/// Lets a few lines a second pass, and counts the others.
#[derive(Debug, Default)]
struct Pace {
    until: Time,
    said: u32,
    unsaid: u64,
}

impl Pace {
    /// Whether to say something now; if so, how much was left unsaid before.
    fn ask(&mut self, now: Time) -> Option<u64> {
        if now >= self.until {
            (self.until, self.said) = (now + Duration::from_secs(1), 0);
        }
        if self.said == LINES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// See the file comment. Shared by those who note something; one thread has them all.
#[derive(Debug)]
pub(crate) struct Slow {
    threshold: Option<Duration>,
    metrics: Rc<Metrics>,
    state: RefCell<State>,
    /// Where spans are exported: their queue, and what draws the sample.
    spans: Option<(SpanQueue, RefCell<Random>)>,
}

#[derive(Debug, Default)]
struct State {
    /// How many groups of replicas are in the process.
    groups: u64,
    /// Groups have slots of the same numbers, and each its own places: a slot's number times their count, and the
    /// group's, modulo the length.
    slots: Vec<SlotTimes>,
    /// Records that are not known to be durable, with the groups and slots they are of.
    unsynced: VecDeque<(u64, (GroupId, u64))>,
    entries: VecDeque<SlowRequest>,
    /// The slowest of the requests of one slot that have ended last, and how many they are: not logged yet.
    unlogged: Option<(SlowRequest, u64)>,
    count: u64,
    requests: Pace,
    of_slots: Pace,
}

impl State {
    /// Where a group's slot is noted, if slots are.
    fn place(&mut self, (group, slot): (GroupId, u64)) -> Option<&mut SlotTimes> {
        let place = slot.wrapping_mul(self.groups).wrapping_add(group.index() as u64);
        self.slots.get_mut((place % SLOTS) as usize)
    }

    /// What is noted of a group's slot, if it was proposed here.
    fn slot(&mut self, (group, slot): (GroupId, u64)) -> Option<&mut SlotTimes> {
        self.place((group, slot)).filter(|times| (times.group, times.slot) == (group, slot) && slot != 0)
    }

    /// The group, where there are several.
    fn shown(&self, group: GroupId) -> Option<GroupId> {
        (self.groups > 1).then_some(group)
    }

    /// Logs a request, or keeps it to log it with others of its slot.
    fn log(&mut self, entry: SlowRequest, now: Time) {
        match &mut self.unlogged {
            Some((slowest, count))
                if entry.slot.is_some() && (slowest.group, slowest.slot) == (entry.group, entry.slot) =>
            {
                *count += 1;
                if entry.took > slowest.took {
                    *slowest = entry;
                }
            }
            _ => {
                self.flush(now);
                self.unlogged = Some((entry, 1));
            }
        }
    }

    /// Logs what is not logged yet.
    fn flush(&mut self, now: Time) {
        if let Some((entry, count)) = self.unlogged.take()
            && let Some(unsaid) = self.requests.ask(now)
        {
            say_request(&entry, count, unsaid);
        }
    }
}

impl Slow {
    /// Notes what takes as long as the threshold, if there is one.
    pub(crate) fn new(threshold: Option<Duration>, metrics: Rc<Metrics>) -> Slow {
        let state = RefCell::new(State { groups: 1, ..State::default() });
        let slow = Slow { threshold, metrics, state, spans: None };
        if threshold.is_some() { slow.noting_slots() } else { slow }
    }

    /// Exports what is slow, and a sample of the rest.
    pub(crate) fn with_spans(self, spans: SpanQueue, random: Random) -> Slow {
        Slow { spans: Some((spans, RefCell::new(random))), ..self.noting_slots() }
    }

    /// Tells slots of so many groups in the process apart.
    pub(crate) fn of_groups(self, groups: usize) -> Slow {
        self.state.borrow_mut().groups = groups as u64;
        self
    }

    fn noting_slots(self) -> Slow {
        self.state.borrow_mut().slots = vec![SlotTimes::new(GroupId::FIRST, 0, Time::ZERO); SLOTS as usize];
        self
    }

    /// Whether anything is noted.
    pub(crate) fn is_on(&self) -> bool {
        self.threshold.is_some() || self.spans.is_some()
    }

    /// Marks of each group's replica, with the time when its step began, and how many records the process had persisted
    /// after it. What was executed meanwhile is done now.
    pub(crate) fn on_marks(&self, marks: &mut Vec<(GroupId, Mark, Time, u64)>, now: impl Fn() -> Time) {
        let state = &mut *self.state.borrow_mut();
        let mut end = None;
        for (group, mark, at, persisted) in marks.drain(..) {
            match mark {
                Mark::Proposed { slot } => {
                    let fresh = SlotTimes::new(group, slot, at);
                    if let Some(times) = state.place((group, slot)) {
                        *times = fresh;
                    }
                }
                Mark::Recorded { slot } => {
                    if state.unsynced.len() as u64 == SLOTS {
                        state.unsynced.pop_front();
                    }
                    state.unsynced.push_back((persisted, (group, slot)));
                }
                Mark::Committed { slot } => {
                    if let Some(times) = state.slot((group, slot)) {
                        times.committed.get_or_insert(at);
                    }
                }
                Mark::Applied { slot, requests } => {
                    let Some(times) = state.slot((group, slot)) else { continue };
                    let end = *end.get_or_insert_with(&now);
                    (times.applied, times.requests) = (Some(end), requests);
                    let times = *times;
                    let committed = times.committed.unwrap_or(end);
                    self.metrics.slot_commit_duration_seconds.add(committed.since(times.proposed));
                    self.metrics.slot_apply_duration_seconds.add(end.since(committed));
                    if self.is_slow(times.proposed, end)
                        && let Some(unsaid) = state.of_slots.ask(end)
                    {
                        say_slot(state.shown(group), &times, end, unsaid);
                    }
                }
                Mark::Forwarded { .. } | Mark::Answered { .. } => {}
            }
        }
    }

    /// Records up to this one are durable.
    pub(crate) fn on_durable(&self, durable: u64, now: impl Fn() -> Time) {
        let state = &mut *self.state.borrow_mut();
        if state.unsynced.front().is_none_or(|(record, _)| *record > durable) {
            return;
        }
        let now = now();
        while let Some((_, slot)) = state.unsynced.pop_front_if(|(record, _)| *record <= durable) {
            if let Some(times) = state.slot(slot) {
                times.synced.get_or_insert(now);
            }
        }
    }

    /// Whether what began then is slow by now.
    fn is_slow(&self, began: Time, now: Time) -> bool {
        self.threshold.is_some_and(|threshold| now.since(began) >= threshold)
    }

    /// Whether a request that has ended is exported.
    fn is_exported(&self, slow: bool) -> bool {
        let drawn =
            |(spans, random): &(SpanQueue, RefCell<Random>)| random.borrow_mut().chance(spans.sampled);
        self.spans.as_ref().is_some_and(|spans| slow || drawn(spans))
    }

    /// Brings what became of the exported requests into the metrics.
    pub(crate) fn count_spans(&self) {
        if let Some((spans, _)) = &self.spans {
            self.metrics.spans_exported_total.set(spans.counts.exported());
            self.metrics.spans_dropped_total.set(spans.counts.dropped());
        }
    }

    /// A request has ended. If it was slow it is remembered, and said; only then, and for a span, the client and the
    /// request are described.
    pub(crate) fn on_outcome(
        &self,
        times: &Times,
        outcome: &Outcome,
        (now, wall): (Time, impl Fn() -> Wall),
        describe: impl FnOnce() -> (Described, String),
    ) {
        let slow = self.is_slow(times.asked, now);
        let exported = self.is_exported(slow);
        if !slow && !exported {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        let mut reached = Reached::new(times.asked);
        reached.at("queued", times.forwarded);
        let slot = (times.group.unwrap_or(GroupId::FIRST), times.slot);
        match state.slot(slot).filter(|slot| slot.applied.is_some()) {
            Some(slot) => {
                reached.at("proposed", Some(slot.proposed));
                slot.stages(&mut reached);
            }
            None if times.access.is_read() => reached.at("served", times.answered),
            None => reached.at("answered", times.answered),
        }
        let end = if matches!(outcome, Outcome::Done(_)) { "replied" } else { "failed" };
        reached.at(end, Some(now));
        let (asked, address) = describe();
        let entry = SlowRequest {
            number: state.count,
            ended: wall(),
            took: now.since(times.asked),
            asked,
            address,
            group: times.group.and_then(|group| state.shown(group)),
            slot: (times.slot != 0).then_some(times.slot),
            stages: reached.stages,
        };
        if let Some((spans, _)) = self.spans.as_ref().filter(|_| exported) {
            spans.offer(entry.clone());
        }
        if !slow {
            return;
        }
        state.log(entry.clone(), now);
        state.count += 1;
        if state.entries.len() == ENTRIES {
            state.entries.pop_back();
        }
        state.entries.push_front(entry);
    }

    /// Logs the requests that waited for others of their slot.
    pub(crate) fn flush(&self, now: Time) {
        self.state.borrow_mut().flush(now);
    }

    /// The slow requests that are remembered, the latest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<SlowRequest> {
        self.state.borrow().entries.iter().take(count).cloned().collect()
    }

    /// How many are remembered.
    pub(crate) fn len(&self) -> usize {
        self.state.borrow().entries.len()
    }

    /// Forgets those remembered; numbers go on.
    pub(crate) fn reset(&self) {
        self.state.borrow_mut().entries.clear();
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

fn say_request(entry: &SlowRequest, requests: u64, unsaid: u64) {
    let SlowRequest { took, asked, address, group, slot, stages, .. } = entry;
    let of = |name| stages.iter().find(|(stage, _)| *stage == name).map(|(_, took)| micros(*took));
    info!(
        command = asked.command,
        client = address,
        group = group.map(GroupId::get),
        slot,
        requests,
        total_us = micros(*took),
        queued_us = of("queued"),
        proposed_us = of("proposed"),
        synced_us = of("synced"),
        committed_us = of("committed"),
        applied_us = of("applied"),
        served_us = of("served"),
        answered_us = of("answered"),
        replied_us = of("replied"),
        failed_us = of("failed"),
        unsaid,
        "a slow request: {} took {took:.1?}{}{}",
        asked.command,
        longest(stages),
        if requests > 1 { format!("; {} more of its slot", requests - 1) } else { String::new() }
    );
}

fn say_slot(group: Option<GroupId>, times: &SlotTimes, end: Time, unsaid: u64) {
    let mut reached = Reached::new(times.proposed);
    times.stages(&mut reached);
    let stages = reached.stages;
    let of = |name| stages.iter().find(|(stage, _)| *stage == name).map(|(_, took)| micros(*took));
    let SlotTimes { slot, requests, .. } = *times;
    let took = end.since(times.proposed);
    info!(
        group = group.map(GroupId::get),
        slot,
        requests,
        total_us = micros(took),
        synced_us = of("synced"),
        committed_us = of("committed"),
        applied_us = of("applied"),
        unsaid,
        "a slow slot: {slot} with {requests} requests took {took:.1?}{}",
        longest(&stages)
    );
}

/// In which stage most of the time went, in words.
fn longest(stages: &[(&'static str, Duration)]) -> String {
    let most = stages.iter().max_by_key(|(_, took)| *took);
    most.map_or(String::new(), |(stage, took)| match *stage {
        "queued" => format!(", {took:.1?} of it queued"),
        stage => format!(", {took:.1?} of it until {stage}"),
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use bytes::Bytes;
    use quorate_core::Failure;

    use super::*;

    const THRESHOLD: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    /// Plays lines of `time verb words` and draws what is remembered in the end, oldest first. One request is under
    /// way: `ask read|write`, `forward`, `answer SLOT`, `reply` or `fail`. Of slots: `propose SLOT`,
    /// `record SLOT NUMBER`, `durable NUMBER`, `commit SLOT`, `apply SLOT`; executing takes a millisecond.
    fn play(script: &str) -> String {
        let slow = Slow::new(Some(THRESHOLD), Rc::default());
        let mut times = Times::new(at(0), Access::Read);
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<_> = line.split_whitespace().collect();
            let now = at(words[0].parse().unwrap());
            let number = |index: usize| words[index].parse::<u64>().unwrap();
            let mut persisted = 0;
            let request = RequestId(1);
            let mark = match words[1] {
                "ask" if words[2] == "read" => {
                    times = Times::new(now, Access::Read);
                    continue;
                }
                "ask" => {
                    times = Times::new(now, Access::Write);
                    continue;
                }
                "forward" => {
                    times.mark(GroupId::FIRST, Mark::Forwarded { request }, now);
                    continue;
                }
                "answer" => {
                    times.mark(GroupId::FIRST, Mark::Answered { request, slot: number(2) }, now);
                    continue;
                }
                "reply" | "fail" => {
                    let outcome = match words[1] {
                        "reply" => Outcome::Done(Bytes::new()),
                        _ => Outcome::Failed(Failure::TimedOut),
                    };
                    let describe = || (Described::default(), String::new());
                    slow.on_outcome(&times, &outcome, (now, || Wall::ZERO), describe);
                    continue;
                }
                "durable" => {
                    slow.on_durable(number(2), || now);
                    continue;
                }
                "propose" => Mark::Proposed { slot: number(2) },
                "record" => {
                    persisted = number(3);
                    Mark::Recorded { slot: number(2) }
                }
                "commit" => Mark::Committed { slot: number(2) },
                "apply" => Mark::Applied { slot: number(2), requests: 1 },
                other => panic!("no such verb: {other}"),
            };
            slow.on_marks(&mut vec![(GroupId::FIRST, mark, now, persisted)], || {
                now + Duration::from_millis(1)
            });
        }
        let mut drawn = String::new();
        for entry in slow.latest(usize::MAX).iter().rev() {
            let slot = entry.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let _ = write!(drawn, "{} ms, slot {slot}:", entry.took.as_millis());
            for (stage, took) in &entry.stages {
                let _ = write!(drawn, " {stage} {}", took.as_millis());
            }
            drawn.push('\n');
            let sum: Duration = entry.stages.iter().map(|(_, took)| *took).sum();
            assert_eq!(sum, entry.took, "the stages are all of it");
        }
        drawn
    }

    #[test]
    fn slow_requests_are_exported_and_a_part_of_the_others_and_a_full_queue_drops_them() {
        let run = |sampled, took: Duration, requests: u64| {
            let (queue, received, counts) = SpanQueue::new(sampled);
            let slow = Slow::new(Some(THRESHOLD), Rc::default()).with_spans(queue, Random::new(1));
            for _ in 0..requests {
                let times = Times::new(at(0), Access::Read);
                let (now, describe) = (at(0) + took, || (Described::default(), String::new()));
                slow.on_outcome(&times, &Outcome::Done(Bytes::new()), (now, || Wall::ZERO), describe);
            }
            (received.try_iter().count() as u64, counts.dropped(), slow.state.borrow().count)
        };
        assert_eq!(run(0.0, Duration::ZERO, 100), (0, 0, 0), "fast");
        assert_eq!(run(0.0, THRESHOLD, 100), (100, 0, 100), "slow");
        assert_eq!(
            run(1.0, Duration::ZERO, 100),
            (100, 0, 0),
            "sampled, and not in the log of slow requests"
        );
        let (part, ..) = run(0.25, Duration::ZERO, 1000);
        assert!((200..300).contains(&part), "{part}");
        let (taken, dropped, _) = run(1.0, Duration::ZERO, 5000);
        assert_eq!(taken + dropped, 5000);
        assert!(dropped > 0, "the queue is bounded");
    }

    #[test]
    fn every_stage_ends_where_the_next_begins() {
        let script = "
            0  ask write
            2  forward
            3  propose 7
            3  record 7 5
            4  durable 4
            8  durable 5
            30 forward
            68 commit 7
            69 apply 7
            71 answer 7
            71 reply";
        assert_eq!(
            play(script),
            "71 ms, slot 7: queued 2 proposed 1 synced 5 committed 60 applied 2 replied 1\n"
        );
    }

    #[test]
    fn a_disk_that_nobody_waited_for_is_no_stage() {
        let script = "
            0  ask write
            0  forward
            0  propose 1
            0  record 1 1
            20 commit 1
            20 apply 1
            90 durable 1
            91 reply
            92 ask write
            92 forward
            92 propose 2
            92 record 2 2
            99 commit 2
            99 apply 2
            130 durable 2
            130 answer 2
            130 reply";
        let before = "91 ms, slot -: queued 0 replied 91\n";
        assert_eq!(
            play(script),
            format!("{before}38 ms, slot 2: queued 0 proposed 0 committed 7 applied 1 replied 30\n")
        );
    }

    #[test]
    fn from_elsewhere_a_write_is_answered_and_a_read_served() {
        let script = "
            0  ask write
            1  forward
            40 answer 9
            40 reply
            50 ask read
            51 forward
            90 answer 0
            91 reply
            100 ask write
            140 fail";
        let expected = "40 ms, slot 9: queued 1 answered 39 replied 0\n\
                        41 ms, slot -: queued 1 served 39 replied 1\n\
                        40 ms, slot -: failed 40\n";
        assert_eq!(play(script), expected);
    }

    #[test]
    fn what_is_fast_leaves_nothing_and_a_slot_of_another_leader_tells_nothing() {
        let script = "
            0  ask write
            9  reply
            10 ask write
            10 forward
            10 propose 3
            15 answer 4099
            30 reply
            40 ask write
            40 forward
            55 answer 3
            55 reply";
        let expected = "20 ms, slot 4099: queued 0 answered 5 replied 15\n\
                        15 ms, slot 3: queued 0 answered 15 replied 0\n";
        assert_eq!(play(script), expected, "3 was proposed here, but executed for another");
    }

    #[test]
    fn memory_and_lines_are_bounded_and_numbers_go_on() {
        let slow = Slow::new(Some(THRESHOLD), Rc::default());
        let end = |count: usize| {
            for _ in 0..count {
                let times = Times::new(at(0), Access::Read);
                let outcome = Outcome::Done(Bytes::new());
                slow.on_outcome(&times, &outcome, (at(10), || Wall::ZERO), Default::default);
            }
        };
        end(300);
        let numbers: Vec<_> = slow.latest(2).iter().map(|entry| entry.number).collect();
        assert_eq!((slow.len(), numbers), (ENTRIES, vec![299, 298]));
        slow.reset();
        end(1);
        assert_eq!((slow.len(), slow.latest(9)[0].number), (1, 300));
        for slot in 1..=3 * SLOTS {
            slow.on_marks(&mut vec![(GroupId::FIRST, Mark::Recorded { slot }, at(0), slot)], || at(0));
        }
        assert_eq!(slow.state.borrow().unsynced.len() as u64, SLOTS);
        let mut pace = Pace::default();
        let said = |pace: &mut Pace, now| (0..100).filter_map(|_| pace.ask(at(now))).collect::<Vec<_>>();
        assert_eq!(said(&mut pace, 0), vec![0; LINES as usize]);
        assert_eq!(said(&mut pace, 1000)[..2], [100 - u64::from(LINES), 0]);
    }

    #[test]
    fn the_requests_of_one_slot_are_one_line_of_the_slowest_with_their_count() {
        let slow = Slow::new(Some(THRESHOLD), Rc::default());
        let end = |asked: u64, slot: u64| {
            let mut times = Times::new(at(asked), Access::Write);
            times.mark(GroupId::FIRST, Mark::Answered { request: RequestId(1), slot }, at(100));
            let outcome = Outcome::Done(Bytes::new());
            slow.on_outcome(&times, &outcome, (at(100), || Wall::ZERO), Default::default);
        };
        let unlogged = || {
            let state = slow.state.borrow();
            state.unlogged.as_ref().map(|(entry, count)| (entry.slot, entry.took.as_millis(), *count))
        };
        [50, 10, 30].into_iter().for_each(|asked| end(asked, 7));
        assert_eq!(unlogged(), Some((Some(7), 90, 3)));
        end(20, 8);
        assert_eq!((unlogged(), slow.state.borrow().requests.said), (Some((Some(8), 80, 1)), 1));
        // Reads have no slot, so nothing says that one has made the other slow.
        [0, 0].into_iter().for_each(|asked| end(asked, 0));
        assert_eq!((unlogged(), slow.state.borrow().requests.said), (Some((None, 100, 1)), 3));
        slow.flush(at(100));
        slow.flush(at(101));
        assert_eq!((unlogged(), slow.state.borrow().requests.said, slow.len()), (None, 4, 6));
    }

    #[test]
    fn slots_of_several_groups_are_told_apart() {
        let slow = Slow::new(Some(THRESHOLD), Rc::default()).of_groups(2);
        let [first, second] = [0, 1].map(GroupId::at);
        let mut marks = vec![
            (first, Mark::Proposed { slot: 7 }, at(0), 0),
            (second, Mark::Proposed { slot: 7 }, at(20), 0),
            (first, Mark::Committed { slot: 7 }, at(30), 0),
            (second, Mark::Recorded { slot: 7 }, at(30), 1),
        ];
        slow.on_marks(&mut marks, || at(30));
        slow.on_durable(1, || at(40));
        let mut marks = vec![
            (second, Mark::Committed { slot: 7 }, at(50), 1),
            (first, Mark::Applied { slot: 7, requests: 1 }, at(60), 1),
            (second, Mark::Applied { slot: 7, requests: 1 }, at(60), 1),
        ];
        slow.on_marks(&mut marks, || at(60));
        for group in [first, second] {
            let mut times = Times::new(at(0), Access::Write);
            times.mark(group, Mark::Answered { request: RequestId(1), slot: 7 }, at(60));
            let outcome = Outcome::Done(Bytes::new());
            slow.on_outcome(&times, &outcome, (at(60), || Wall::ZERO), Default::default);
        }
        let told = |entry: &SlowRequest| {
            let stages = entry.stages.iter().map(|(stage, took)| format!(" {stage} {}", took.as_millis()));
            format!("{} {}:{}", entry.group.unwrap(), entry.slot.unwrap(), stages.collect::<String>())
        };
        assert_eq!(
            slow.latest(2).iter().map(told).collect::<Vec<_>>(),
            [
                "2 7: proposed 20 synced 20 committed 10 applied 10 replied 0",
                "1 7: proposed 0 committed 30 applied 30 replied 0"
            ]
        );
        assert_eq!(slow.state.borrow().requests.said, 1, "they are no requests of one slot");
    }

    #[test]
    fn without_a_threshold_nothing_is_kept() {
        let slow = Slow::new(None, Rc::default());
        let marks = [Mark::Proposed { slot: 1 }, Mark::Applied { slot: 1, requests: 1 }];
        slow.on_marks(&mut marks.map(|mark| (GroupId::FIRST, mark, at(0), 0)).into(), || at(1000));
        let times = Times::new(at(0), Access::Write);
        slow.on_outcome(&times, &Outcome::Done(Bytes::new()), (at(9999), || Wall::ZERO), Default::default);
        assert_eq!((slow.len(), slow.is_on()), (0, false));
    }
}
