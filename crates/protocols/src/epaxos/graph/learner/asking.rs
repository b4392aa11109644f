//! How often others are asked for what is missing, and which large batches those who ask are sent again. An answer is
//! long: where links are full it is on its way for seconds, and more questions would bring it as often.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::instance::{Frontier, Instance};
use quorate_core::{NodeId, Time, mutation};

use super::catchup::ANSWER_BYTES;
use crate::epaxos::graph::{LARGE_BATCH, RETRANSMIT, SLOWEST_LINK};

/// For this long after a large batch, one that is not here may be as large.
const LARGE_EXPECTED: Duration = Duration::from_secs(60);

/// How long an answer may be on its way.
fn longest() -> Duration {
    SLOWEST_LINK.transmission(ANSWER_BYTES)
}

/// See the file comment.
#[derive(Debug, Default)]
pub struct Asking {
    /// When somebody was asked, and all that was committed here then; until all of the answer has come.
    asked: Option<(Time, Frontier)>,
    /// How often somebody was asked again since an answer has come.
    unanswered: u32,
    /// When a large batch came last.
    large: Option<Time>,
    /// When a member was last sent the large batch of an instance, in answer to a recovery in this ballot, or, in
    /// ballot zero, as decided.
    sent: BTreeMap<(NodeId, Instance, Ballot), Time>,
}

impl Asking {
    /// A batch has come, of so many bytes.
    pub fn on_batch(&mut self, bytes: usize, now: Time) {
        if bytes >= LARGE_BATCH {
            self.large = Some(now);
        }
    }

    /// Whether a large batch has come lately.
    pub fn are_large(&self, now: Time) -> bool {
        self.large.is_some_and(|at| now.since(at) < LARGE_EXPECTED)
    }

    /// Whether to send somebody a batch of so many bytes, as decided ([`Ballot::ZERO`]) or in a recovery: it is not
    /// large, or cannot be on its way. If so, it counts as sent.
    pub fn should_send(&mut self, to: NodeId, at: (Instance, Ballot), bytes: usize, now: Time) -> bool {
        if bytes < LARGE_BATCH || mutation::active("epaxos/tells-again") {
            return true;
        }
        self.sent.retain(|_, sent| now.since(*sent) < longest());
        let entry = self.sent.entry((to, at.0, at.1));
        let is_new = matches!(entry, Entry::Vacant(_));
        entry.or_insert(now);
        is_new
    }

    /// Whether to ask now: no answer can be on its way.
    pub fn is_due(&self, now: Time) -> bool {
        let is_busy = self.large.is_some_and(|at| now.since(at) < longest());
        let patience: Duration = match (is_busy, self.are_large(now)) {
            (true, _) => longest(),
            (false, true) => longest().min(RETRANSMIT * (1 << self.unanswered.min(8))),
            (false, false) => RETRANSMIT,
        };
        self.asked.is_none_or(|(at, _)| now.since(at) >= patience)
    }

    /// Somebody is asked; so much is committed here.
    pub fn ask(&mut self, committed: Frontier, now: Time) {
        self.unanswered += u32::from(self.asked.replace((now, committed)).is_some());
    }

    /// An answer has come. Whether it has brought anything, so that the next question brings something else.
    pub fn on_answer(&mut self, committed: Frontier) -> bool {
        self.unanswered = 0;
        self.asked.take().is_some_and(|(_, before)| before != committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_repeated_less_and_less_often_and_not_while_its_answer_may_be_on_its_way() {
        let (mut asking, mut asked) = (Asking::default(), Vec::new());
        let at = |tenths: u32| Time::ZERO + RETRANSMIT / 2 * tenths;
        assert!(asking.is_due(at(0)));
        asking.ask(Frontier::default(), at(0));
        assert!(!asking.is_due(at(1)) && asking.is_due(at(2)));
        asking = Asking { large: Some(at(0)), ..Asking::default() };
        for tenths in 50..170 {
            if asking.is_due(at(tenths)) {
                asking.ask(Frontier::default(), at(tenths));
                asked.push(tenths);
            }
        }
        assert_eq!(asked, [50, 52, 56, 64, 80, 112, 154], "in the end every 4.2 s");
        assert!(!asking.on_answer(Frontier::default()), "it has brought nothing");
        asking.ask(Frontier::default(), at(170));
        assert!(asking.is_due(at(172)));
        asking.on_batch(LARGE_BATCH, at(172));
        assert!(!asking.is_due(at(211)) && asking.is_due(at(212)));
    }
}
