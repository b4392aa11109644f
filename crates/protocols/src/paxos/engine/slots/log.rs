//! Votes and decisions by slot. Slots are numbered from 1.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::coding::Value;
use quorate_blocks::coding::spread::ShardSet;
use quorate_core::{mutation, wire_struct};

/// What fits into memory: more are never kept at once.
const MAX_SLOTS: usize = 1 << 28;

/// What an acceptor knows of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The ballot it voted in.
    pub ballot: Ballot,
    /// What the vote is for: all of it, or the shards that are here.
    pub value: Value,
    /// Whether the value is known to be chosen.
    pub chosen: bool,
}
wire_struct!(Vote { ballot, value, chosen });

/// Votes in the slots of a range, in the ballot that is promised.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Voted {
    /// The first slot of the range.
    pub first: u64,
    /// The last slot of the range.
    pub last: u64,
    /// The shards that are held of each; `None`: what is voted for is whole, or known to be chosen.
    pub held: Option<ShardSet>,
}
wire_struct!(Voted { first, last, held });

/// Votes for whole values read like their slots.
impl fmt::Debug for Voted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.held {
            None => write!(f, "({}, {})", self.first, self.last),
            Some(held) => write!(f, "({}, {}) shards {held:?}", self.first, self.last),
        }
    }
}

/// Slots as ranges without holes: the first slot and the last of each.
pub type Ranges = Vec<(u64, u64)>;

/// These slots, some of them perhaps twice, as ranges. Sorts them.
pub fn ranges(slots: &mut [u64]) -> Ranges {
    slots.sort_unstable();
    let mut ranges = Ranges::new();
    slots.iter().for_each(|slot| add_slot(&mut ranges, *slot));
    ranges
}

/// Adds a slot that is not below any of these: to the last range if that ends right before it.
pub fn add_slot(ranges: &mut Ranges, slot: u64) {
    match ranges.last_mut() {
        Some((_, last)) if slot <= *last + 1 => *last = slot,
        _ => ranges.push((slot, slot)),
    }
}

/// What became of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// A vote for it, which has to be persisted.
    New,
    /// It has the vote already, or its slot is cut off.
    Known,
    /// None: another value is chosen there. The proposal is of a ballot before the one in which it was.
    Late,
}

/// A window of slots: those below `start` are executed and cut off.
#[derive(Clone, Debug)]
pub struct SlotLog {
    start: u64,
    slots: VecDeque<Option<Vote>>,
    /// All slots up to here are chosen.
    committed: u64,
    /// All slots up to here are chosen, and their values are here whole. The next one, if it is chosen, lacks shards.
    complete: u64,
    bytes: usize,
    /// Of values that are not whole.
    coded_bytes: usize,
}

impl SlotLog {
    /// After a snapshot of the slots up to `applied`.
    pub fn new(applied: u64) -> SlotLog {
        let (start, committed, complete) = (applied + 1, applied, applied);
        SlotLog { start, slots: VecDeque::new(), committed, complete, bytes: 0, coded_bytes: 0 }
    }

    /// All slots up to this one are chosen, and their values are here whole: they can be executed, and told to others.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// All slots up to this one are chosen.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The first slot that is kept.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The last slot with a vote, or the one before `start`.
    pub fn last(&self) -> u64 {
        self.start + self.slots.len() as u64 - 1
    }

    /// Bytes of values kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of shards kept of values that are not here whole.
    pub fn coded_bytes(&self) -> usize {
        self.coded_bytes
    }

    /// What is known of a slot.
    pub fn get(&self, slot: u64) -> Option<&Vote> {
        let index = usize::try_from(slot.checked_sub(self.start)?).ok()?;
        self.slots.get(index)?.as_ref()
    }

    /// The value of a slot, if it is kept whole and known to be chosen.
    pub fn chosen(&self, slot: u64) -> Option<&Bytes> {
        self.get(slot).filter(|vote| vote.chosen)?.value.whole()
    }

    /// What is held of the own votes in a range of slots. What is chosen counts as whole: it was chosen without this.
    pub fn held_in(&self, first: u64, last: u64) -> Vec<Voted> {
        let mut ranges: Vec<Voted> = Vec::new();
        for slot in first..=last {
            let held = self.get(slot).filter(|vote| !vote.chosen).and_then(|vote| vote.value.held());
            match ranges.last_mut() {
                Some(range) if range.held == held => range.last = slot,
                _ => ranges.push(Voted { first: slot, last: slot, held }),
            }
        }
        ranges
    }

    /// The values of these slots, of which the first is kept, as far as they are complete: as many as come to about
    /// `limit` bytes, and at least one if any is complete.
    pub fn complete_values(&self, slots: Range<u64>, limit: usize) -> Vec<Bytes> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        for slot in slots.start..slots.end.min(self.complete + 1) {
            let value = self.chosen(slot).expect("kept and complete");
            if bytes > 0 && bytes + value.len() > limit {
                break;
            }
            bytes += value.len() + 16;
            values.push(value.clone());
        }
        values
    }

    /// Bytes of the values of these slots that are complete and kept, counted until they are more than `limit`.
    pub fn complete_bytes(&self, slots: Range<u64>, limit: usize) -> usize {
        let mut bytes = 0;
        for slot in slots.start.max(self.start)..slots.end.min(self.complete + 1) {
            if bytes > limit {
                break;
            }
            bytes += self.chosen(slot).map_or(0, Bytes::len);
        }
        bytes
    }

    /// Votes from `from` on, in order.
    pub fn votes(&self, from: u64) -> impl Iterator<Item = (u64, &Vote)> {
        let skip = usize::try_from(from.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let start = self.start;
        self.slots
            .iter()
            .enumerate()
            .skip(skip)
            .filter_map(move |(index, vote)| Some((start + index as u64, vote.as_ref()?)))
    }

    fn entry(&mut self, slot: u64) -> &mut Option<Vote> {
        let index = (slot - self.start) as usize;
        assert!(index < MAX_SLOTS, "slot {slot} is too far from the log's first, {}", self.start);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        &mut self.slots[index]
    }

    /// Replaces what is known of a slot.
    fn set(&mut self, slot: u64, vote: Vote) {
        let coded = |value: &Value| if value.whole().is_none() { value.len() } else { 0 };
        self.bytes += vote.value.len();
        self.coded_bytes += coded(&vote.value);
        if let Some(old) = self.entry(slot).replace(vote) {
            self.bytes -= old.value.len();
            self.coded_bytes -= coded(&old.value);
        }
    }

    /// Takes the first slot away.
    fn pop(&mut self) -> Option<Vote> {
        let vote = self.slots.pop_front().flatten();
        self.start += 1;
        if let Some(Vote { value, .. }) = &vote {
            self.bytes -= value.len();
            self.coded_bytes -= if value.whole().is_none() { value.len() } else { 0 };
        }
        vote
    }

    /// Records a vote. A slot that is chosen keeps its value, which may have been learned from somebody in a higher
    /// ballot. Shards of a value of which there are some already come to them.
    pub fn vote(&mut self, slot: u64, ballot: Ballot, value: Value) -> Cast {
        if slot < self.start {
            return Cast::Known;
        }
        let mut value = value;
        if let Some(vote) = self.get(slot) {
            if vote.chosen {
                return if vote.value.is_same(&value) { Cast::Known } else { Cast::Late };
            }
            if vote.ballot > ballot {
                return Cast::Known;
            }
            let repeated = vote.ballot == ballot;
            assert!(!repeated || vote.value.is_same(&value), "two values for slot {slot} in {ballot}");
            value = value.over(&vote.value);
            if repeated && vote.value == value {
                return Cast::Known;
            }
        }
        self.set(slot, Vote { ballot, value, chosen: false });
        Cast::New
    }

    /// Records that a value is chosen, wherever it comes from. Returns whether the own vote says something else, so
    /// that the decision has to be persisted. Where the own vote is for shards of the value, it is whole from now on,
    /// and that need not be persisted: it can be had again.
    pub fn choose(&mut self, slot: u64, ballot: Ballot, value: Value) -> bool {
        if slot < self.start {
            return false;
        }
        let (ballot, value, differs) = match self.get(slot) {
            Some(vote) if vote.value.is_same(&value) => (vote.ballot, value.over(&vote.value), false),
            vote => {
                assert!(vote.is_none_or(|vote| !vote.chosen), "two values chosen for slot {slot}");
                (ballot, value, true)
            }
        };
        self.set(slot, Vote { ballot, value, chosen: true });
        self.advance();
        differs
    }

    /// The leader of `ballot` says that all slots up to `upto` are chosen: so are the own votes of exactly that
    /// ballot. Returns those that this decided. What is still open must be fetched.
    pub fn commit(&mut self, ballot: Ballot, upto: u64) -> Vec<u64> {
        let upto = upto.min(self.last());
        let mut decided = Vec::new();
        for slot in self.committed + 1..=upto {
            if let Some(vote) = &mut self.slots[(slot - self.start) as usize]
                && (vote.ballot == ballot || mutation::active("slots/commit-across-ballots"))
                && !vote.chosen
            {
                vote.chosen = true;
                decided.push(slot);
            }
        }
        self.advance();
        decided
    }

    /// After a restart: an earlier incarnation recorded that all slots up to `upto` are chosen, and the values of those
    /// that its state did not have.
    pub fn commit_recorded(&mut self, upto: u64) {
        for slot in self.start..=upto {
            let vote = self.slots.get_mut((slot - self.start) as usize).and_then(Option::as_mut);
            vote.unwrap_or_else(|| panic!("slot {slot} is recorded as chosen, but its value is not"))
                .chosen = true;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.get(self.committed + 1).is_some_and(|vote| vote.chosen) {
            self.committed += 1;
        }
        let partial = mutation::active("slots/partial-is-complete");
        while self.complete < self.committed && (partial || self.chosen(self.complete + 1).is_some()) {
            self.complete += 1;
        }
    }

    /// Cuts executed slots off until at most `bytes` are kept.
    pub fn retain(&mut self, applied: u64, bytes: usize) {
        while self.bytes > bytes && self.start <= applied {
            self.pop().expect("an executed slot has a value");
        }
    }

    /// A snapshot up to `applied` has replaced what was before.
    pub fn install(&mut self, applied: u64) {
        while self.start <= applied {
            self.pop();
        }
        self.committed = self.committed.max(applied);
        self.complete = self.complete.max(applied);
        self.advance();
    }

    /// Asserts what must always hold; cheap.
    pub fn check(&self) {
        assert!(self.committed + 1 >= self.start, "what is cut off is chosen");
        assert!(!self.slots.is_empty() || self.bytes == 0, "an empty log has no bytes");
        assert!(
            self.get(self.committed + 1).is_none_or(|vote| !vote.chosen),
            "committed is as far as it goes"
        );
        let lacks = self.complete < self.committed && self.chosen(self.complete + 1).is_none();
        assert!(self.complete == self.committed || lacks, "complete is as far as it goes");
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

    use super::*;
    use quorate_blocks::coding::ValueId;

    fn ballot(counter: u64) -> Ballot {
        (0..counter).fold(Ballot::ZERO, |ballot, _| ballot.next(NodeId::new(1).unwrap()))
    }

    fn value(text: &str) -> Value {
        Value::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// Draws the log: one column a slot from `start`, `ballot:value`, `!` where chosen, `-` for a hole.
    fn draw(log: &SlotLog) -> String {
        let slots = (log.start()..=log.last()).map(|slot| match log.get(slot) {
            None => "-".to_owned(),
            Some(vote) => {
                let chosen = if vote.chosen { "!" } else { "" };
                let text = String::from_utf8_lossy(vote.value.whole().unwrap());
                format!("{}:{text}{chosen}", vote.ballot.number() >> 6)
            }
        });
        format!("{} | {} | {}", log.start(), slots.collect::<Vec<_>>().join(" "), log.committed())
    }

    #[test]
    fn votes_commits_and_fetched_values_fill_the_log() {
        // operation → the log as drawn
        let table = "
            vote 1 1 a         → 1 | 1:a | 0
            vote 3 1 c         → 1 | 1:a - 1:c | 0
            commit 1 3         → 1 | 1:a! - 1:c! | 1
            vote 2 1 b         → 1 | 1:a! 1:b 1:c! | 1
            commit 2 3         → 1 | 1:a! 1:b 1:c! | 1
            vote 2 2 B         → 1 | 1:a! 2:B 1:c! | 1
            commit 2 9         → 1 | 1:a! 2:B! 1:c! | 3
            vote 5 2 e         → 1 | 1:a! 2:B! 1:c! - 2:e | 3
            choose 4 2 d       → 1 | 1:a! 2:B! 1:c! 2:d! 2:e | 4
            choose 5 3 E       → 1 | 1:a! 2:B! 1:c! 2:d! 3:E! | 5
            retain 3 3         → 3 | 1:c! 2:d! 3:E! | 5
            retain 5 0         → 6 |  | 5
            vote 8 3 h         → 6 | - - 3:h | 5
            install 7          → 8 | 3:h | 7
            install 9          → 10 |  | 9
        ";
        let mut log = SlotLog::new(0);
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (operation, expected) = line.split_once('→').unwrap();
            let words: Vec<_> = operation.split_whitespace().collect();
            let number = |index: usize| words[index].parse::<u64>().unwrap();
            match words[0] {
                "vote" => {
                    log.vote(number(1), ballot(number(2)), value(words[3]));
                }
                "choose" => drop(log.choose(number(1), ballot(number(2)), value(words[3]))),
                "commit" => drop(log.commit(ballot(number(1)), number(2))),
                "retain" => log.retain(number(1), number(2) as usize),
                "install" => log.install(number(1)),
                other => panic!("{other}"),
            }
            log.check();
            assert_eq!(log.bytes(), log.votes(0).map(|(_, vote)| vote.value.len()).sum::<usize>(), "{line}");
            assert_eq!(draw(&log), expected.trim(), "{line}");
        }
    }

    #[test]
    fn only_what_is_new_has_to_be_persisted() {
        let mut log = SlotLog::new(0);
        assert_eq!(log.vote(1, ballot(2), value("a")), Cast::New);
        assert_eq!(log.vote(1, ballot(2), value("a")), Cast::Known, "a duplicate");
        assert_eq!(log.vote(1, ballot(1), value("z")), Cast::Known, "an older ballot");
        assert_eq!(
            log.vote(1, ballot(3), value("a")),
            Cast::New,
            "the same value in a new ballot is a new vote"
        );
        assert!(!log.choose(1, ballot(3), value("a")), "the vote on disk says it already");
        assert!(log.choose(2, ballot(3), value("b")), "nothing on disk says it");
        assert_eq!(log.vote(2, ballot(4), value("b")), Cast::Known, "chosen, and proposed again");
        assert_eq!(
            log.vote(2, ballot(4), value("c")),
            Cast::Late,
            "a ballot before that in which it was chosen"
        );
    }

    /// A slot between two others that was not voted for must not count as a vote.
    #[test]
    fn ranges_have_the_slots_that_were_voted_for_and_no_others() {
        // slots → first and last of each range
        let table = "
            7           → 7-7
            7 6 8 7     → 6-8
            5 7         → 5-5 7-7
            9 1 2 4 5 9 → 1-2 4-5 9-9
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (slots, expected) = line.split_once('→').unwrap();
            let mut slots: Vec<_> = slots.split_whitespace().map(|slot| slot.parse().unwrap()).collect();
            let drawn = ranges(&mut slots).into_iter().map(|(first, last)| format!("{first}-{last}"));
            assert_eq!(drawn.collect::<Vec<_>>().join(" "), expected.trim(), "{line}");
        }
        assert_eq!(ranges(&mut []), []);
    }

    /// A follower that has a shard of each slot knows what is chosen and cannot execute it, until the value comes.
    #[test]
    fn what_is_chosen_but_lacking_is_committed_and_not_complete() {
        let mut log = SlotLog::new(0);
        let bytes = Bytes::from(vec![1; 300]);
        let digest = quorate_core::digest(&bytes);
        let id = ValueId { slot: 1, ballot: ballot(1), digest, len: 300, shards: 5, data: 3 };
        let shards: Vec<_> = id.split(&bytes, 1).collect();
        assert_eq!(log.vote(1, ballot(1), shards[2].clone()), Cast::New);
        assert_eq!(log.vote(1, ballot(1), shards[2].clone()), Cast::Known);
        assert_eq!(log.vote(1, ballot(1), shards[4].clone()), Cast::New, "another shard of it");
        log.vote(2, ballot(1), value("b"));
        assert_eq!(log.commit(ballot(1), 2), [1, 2]);
        log.check();
        assert_eq!((log.committed(), log.complete(), log.chosen(1)), (2, 0, None));
        assert_eq!((log.bytes(), log.coded_bytes()), (2 * 128 + 1, 2 * 128));
        assert!(!log.choose(1, ballot(3), Value::Whole(bytes.clone())), "the shards on disk say it already");
        log.check();
        assert_eq!((log.committed(), log.complete(), log.chosen(1)), (2, 2, Some(&bytes)));
        assert_eq!((log.bytes(), log.coded_bytes()), (301, 0));
        assert_eq!(log.vote(1, ballot(4), shards[0].clone()), Cast::Known, "chosen, and proposed again");
        log.install(2);
        assert_eq!(log.bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "two values chosen")]
    fn a_second_decision_for_a_slot_stops_the_node() {
        let mut log = SlotLog::new(0);
        log.choose(1, ballot(1), value("a"));
        log.choose(1, ballot(2), value("b"));
    }
}
