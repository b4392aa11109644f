//! Rounds of heartbeats: a leader asks everybody for a sign, under a number, and a majority of answers to one number
//! shows that nobody else led when the round began (ReadIndex, Ongaro's thesis §6.4; the lease of §6.4.1 counts from
//! the same instant).

use std::collections::VecDeque;

use quorate_core::Time;

/// Rounds that a leader has begun, and what waits for them.
#[derive(Debug)]
pub struct Rounds<T> {
    last: u64,
    /// When each of the last ones began.
    begun: VecDeque<Time>,
    waiting: VecDeque<(u64, T)>,
    /// The last that a majority has answered, and when it began.
    confirmed: (u64, Option<Time>),
}

/// Rounds whose beginning is remembered; older ones are of no use to anybody.
const REMEMBERED: usize = 1024;

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Rounds { last: 0, begun: VecDeque::new(), waiting: VecDeque::new(), confirmed: (0, None) }
    }
}

impl<T> Rounds<T> {
    /// Begins a round; its number is to be sent with the heartbeats.
    pub fn begin(&mut self, now: Time) -> u64 {
        self.last += 1;
        if self.begun.len() == REMEMBERED {
            self.begun.pop_front();
        }
        self.begun.push_back(now);
        self.last
    }

    /// Keeps something until the next round is confirmed: one that begins after this.
    pub fn wait(&mut self, what: T) {
        self.waiting.push_back((self.last + 1, what));
    }

    /// Whether something waits for a round that has not begun.
    pub fn is_wanted(&self) -> bool {
        self.waiting.back().is_some_and(|(round, _)| *round > self.last)
    }

    /// How much waits.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A majority has answered this round or a later one; returns what it was that waited for it.
    pub fn on_confirmed(&mut self, round: u64) -> Vec<T> {
        let round = round.min(self.last);
        if let Some(at) = self.begun(round).filter(|_| round > self.confirmed.0) {
            self.confirmed = (round, Some(at));
        }
        let mut ready = Vec::new();
        while let Some((_, what)) = self.waiting.pop_front_if(|(wanted, _)| *wanted <= round) {
            ready.push(what);
        }
        ready
    }

    /// When a round began, if that is one of the last.
    pub fn begun(&self, round: u64) -> Option<Time> {
        let before_last = self.last.checked_sub(round)?;
        let place = self.begun.len().checked_sub(1 + usize::try_from(before_last).ok()?)?;
        self.begun.get(place).copied()
    }

    /// When the last round that a majority has answered began.
    pub fn confirmed_at(&self) -> Option<Time> {
        self.confirmed.1
    }

    /// Everything that waits; it is not going to be confirmed.
    pub fn abandon(&mut self) -> Vec<T> {
        std::mem::take(&mut self.waiting).into_iter().map(|(_, what)| what).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_after_a_round_began_waits_for_the_next() {
        let at = Time::from_nanos;
        let mut rounds = Rounds::default();
        rounds.wait('a');
        assert!(rounds.is_wanted());
        assert_eq!(rounds.begin(at(10)), 1);
        rounds.wait('b');
        assert!(rounds.is_wanted());
        assert_eq!(rounds.begin(at(20)), 2);
        assert!(!rounds.is_wanted());
        assert_eq!([0, 1, 2, 3].map(|round| rounds.begun(round)), [None, Some(at(10)), Some(at(20)), None]);
        assert_eq!(rounds.on_confirmed(0), []);
        assert_eq!((rounds.on_confirmed(1), rounds.confirmed_at()), (vec!['a'], Some(at(10))));
        rounds.wait('c');
        assert_eq!((rounds.on_confirmed(2), rounds.confirmed_at()), (vec!['b'], Some(at(20))));
        assert_eq!((rounds.on_confirmed(2), rounds.abandon()), (vec![], vec!['c']));
    }
}
