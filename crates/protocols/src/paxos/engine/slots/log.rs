//! Votes and decisions by slot. Slots are numbered from 1.

use std::collections::VecDeque;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_core::{mutation, wire_struct};

/// What fits into memory: more are never kept at once.
const MAX_SLOTS: usize = 1 << 28;

/// What an acceptor knows of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vote {
    /// The ballot it voted in.
    pub ballot: Ballot,
    /// For what.
    pub value: Bytes,
    /// Whether the value is known to be chosen.
    pub chosen: bool,
}
wire_struct!(Vote { ballot, value, chosen });

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
    bytes: usize,
}

impl SlotLog {
    /// After a snapshot of the slots up to `applied`.
    pub fn new(applied: u64) -> SlotLog {
        SlotLog { start: applied + 1, slots: VecDeque::new(), committed: applied, bytes: 0 }
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

    /// What is known of a slot.
    pub fn get(&self, slot: u64) -> Option<&Vote> {
        let index = usize::try_from(slot.checked_sub(self.start)?).ok()?;
        self.slots.get(index)?.as_ref()
    }

    /// The value of a slot, if it is kept and known to be chosen.
    pub fn chosen(&self, slot: u64) -> Option<&Bytes> {
        self.get(slot).filter(|vote| vote.chosen).map(|vote| &vote.value)
    }

    /// The values from a committed slot on, which is kept: as many as come to about so many bytes, and at least one.
    pub fn committed_values(&self, from: u64, limit: usize) -> Vec<Bytes> {
        let (mut values, mut bytes) = (Vec::new(), 0);
        for slot in from..=self.committed() {
            let value = self.chosen(slot).expect("kept and committed");
            if bytes > 0 && bytes + value.len() > limit {
                break;
            }
            bytes += value.len() + 16;
            values.push(value.clone());
        }
        values
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

    /// Records a vote. A slot that is chosen keeps its value, which may have been learned from somebody in a higher
    /// ballot.
    pub fn vote(&mut self, slot: u64, ballot: Ballot, value: Bytes) -> Cast {
        if slot < self.start {
            return Cast::Known;
        }
        if let Some(vote) = self.get(slot) {
            if vote.chosen {
                return if vote.value == value { Cast::Known } else { Cast::Late };
            }
            if vote.ballot >= ballot {
                assert!(
                    vote.ballot > ballot || vote.value == value,
                    "two values for slot {slot} in {ballot}"
                );
                return Cast::Known;
            }
        }
        let len = value.len();
        let old = self.entry(slot).replace(Vote { ballot, value, chosen: false });
        self.bytes = self.bytes + len - old.map_or(0, |vote| vote.value.len());
        Cast::New
    }

    /// Records that a value is chosen, wherever it comes from. Returns whether the own vote says something else, so
    /// that the decision has to be persisted.
    pub fn choose(&mut self, slot: u64, ballot: Ballot, value: Bytes) -> bool {
        if slot < self.start {
            return false;
        }
        let len = value.len();
        let entry = self.entry(slot);
        let differs = match entry {
            Some(vote) if vote.chosen => {
                assert!(vote.value == value, "two values chosen for slot {slot}");
                return false;
            }
            Some(vote) if vote.value == value => {
                vote.chosen = true;
                false
            }
            _ => {
                let old = entry.replace(Vote { ballot, value, chosen: true });
                self.bytes = self.bytes + len - old.map_or(0, |vote| vote.value.len());
                true
            }
        };
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

    /// After a restart: an earlier incarnation recorded that all slots up to `upto` are chosen, and of those above
    /// `installed` it had recorded the values.
    pub fn commit_recorded(&mut self, installed: u64, upto: u64) {
        for slot in self.start.max(installed + 1)..=upto {
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
    }

    /// Cuts executed slots off until at most `bytes` are kept.
    pub fn retain(&mut self, applied: u64, bytes: usize) {
        while self.bytes > bytes && self.start <= applied {
            let vote = self.slots.pop_front().flatten().expect("an executed slot has a value");
            self.bytes -= vote.value.len();
            self.start += 1;
        }
    }

    /// A snapshot up to `applied` has replaced what was before.
    pub fn install(&mut self, applied: u64) {
        while self.start <= applied {
            if let Some(vote) = self.slots.pop_front().flatten() {
                self.bytes -= vote.value.len();
            }
            self.start += 1;
        }
        self.committed = self.committed.max(applied);
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
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeId;

    use super::*;

    fn ballot(counter: u64) -> Ballot {
        (0..counter).fold(Ballot::ZERO, |ballot, _| ballot.next(NodeId::new(1).unwrap()))
    }

    fn value(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    /// Draws the log: one column a slot from `start`, `ballot:value`, `!` where chosen, `-` for a hole.
    fn draw(log: &SlotLog) -> String {
        let slots = (log.start()..=log.last()).map(|slot| match log.get(slot) {
            None => "-".to_owned(),
            Some(vote) => {
                let chosen = if vote.chosen { "!" } else { "" };
                let text = String::from_utf8_lossy(&vote.value);
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

    #[test]
    #[should_panic(expected = "two values chosen")]
    fn a_second_decision_for_a_slot_stops_the_node() {
        let mut log = SlotLog::new(0);
        log.choose(1, ballot(1), value("a"));
        log.choose(1, ballot(2), value("b"));
    }
}
