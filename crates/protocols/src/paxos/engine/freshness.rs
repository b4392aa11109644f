//! How old a follower's state may be at most, for reads that tolerate some age (Bodega §7, *bounded staleness*).
//!
//! Problem: a follower that has executed all it was told of cannot know what was acknowledged since. Solution: it asks
//! the leader, and remembers *when it asked*. A leader that could answer reads alone at the moment of its reply says
//! the last slot that it has proposed: whatever anybody had seen when it was asked is there or before. Once the
//! follower has executed that slot, its state is as new as its question, and ages from then on by its own clock, whose
//! rate is bounded ([`at_most`]).
//!
//! What is said is about the past, and so true for ever: it may come late, twice, or in another ballot. A question
//! of an earlier incarnation is told by its token, of which the first is random.
//!
//! Nothing is asked unless clients read so: each such read makes the follower ask with every heartbeat for a while.

use std::collections::VecDeque;
use std::time::Duration;

use quorate_blocks::leases::lease::LeaseConfig;
use quorate_core::{Time, mutation, wire_enum};

/// What follower and leader say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Follower: what have you proposed?
    When {
        /// Comes back with the answer.
        token: u64,
    },
    /// Leader: nothing behind this slot.
    Then {
        /// Of the question.
        token: u64,
        /// The last.
        slot: u64,
    },
}
wire_enum!(Message { 1 => When { token }, 2 => Then { token, slot } });

impl Message {
    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }
}

/// Questions and answers under way, each.
const MOST: usize = 16;
/// Heartbeats with which is asked after the last read that wanted to know.
const BEATS: u16 = 100;

/// A follower's side.
#[derive(Debug)]
pub struct Freshness {
    /// Of the next question.
    token: u64,
    /// What was asked, when.
    asked: VecDeque<(u64, Time)>,
    /// Slots that make the state as new as that, once they are executed.
    told: VecDeque<(u64, Time)>,
    /// The state is at least as new as what there was then.
    since: Option<Time>,
    beats: u16,
}

impl Freshness {
    /// Knows nothing. `token` is random.
    pub fn new(token: u64) -> Freshness {
        Freshness { token, asked: VecDeque::new(), told: VecDeque::new(), since: None, beats: 0 }
    }

    /// Since when the state may be out of date, if that is known; and a read wants to know.
    pub fn since(&mut self) -> Option<Time> {
        self.beats = BEATS;
        self.since
    }

    /// A heartbeat has come: what to ask.
    pub fn on_heartbeat(&mut self, now: Time) -> Option<Message> {
        self.beats = self.beats.checked_sub(1)?;
        let token = self.token;
        self.token = token.wrapping_add(1);
        if self.asked.len() == MOST {
            self.asked.pop_front();
        }
        self.asked.push_back((token, now));
        Some(Message::When { token })
    }

    /// The answer; everything up to `applied` is executed.
    pub fn on_told(&mut self, token: u64, slot: u64, applied: u64, now: Time) {
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == token) else { return };
        let (_, asked) = self.asked[at];
        self.asked.drain(..=at);
        let since = if mutation::active("freshness/by-arrival") { now } else { asked };
        if self.told.len() == MOST {
            self.told.pop_front();
        }
        self.told.push_back((slot, since));
        self.executed(applied);
    }

    /// Everything up to here is executed.
    pub fn executed(&mut self, applied: u64) {
        let done = |slot: u64| slot <= applied || mutation::active("freshness/unexecuted");
        let newest = self.told.iter().filter(|(slot, _)| done(*slot)).map(|(_, asked)| *asked).max();
        self.told.retain(|(slot, _)| !done(*slot));
        self.since = self.since.max(newest);
    }
}

/// How long a duration on this process's clock was in true time, at most: the margin covers the drift over a lease.
pub fn at_most(measured: Duration, config: &LeaseConfig) -> Duration {
    measured.mul_f64(config.lease.as_secs_f64() / (config.lease - config.drift).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_age_counts_as_if_the_clock_were_as_slow_as_it_may_be() {
        let ms = Duration::from_millis;
        let config = LeaseConfig { guard: ms(100), lease: ms(100), drift: ms(4) };
        assert_eq!(at_most(ms(96), &config), ms(100));
        assert_eq!(at_most(ms(0), &config), ms(0));
    }

    #[test]
    fn a_state_is_as_new_as_the_question_once_what_was_proposed_then_is_executed() {
        let mut fresh = Freshness::new(u64::MAX);
        assert_eq!(fresh.on_heartbeat(at(1)), None, "nobody wants to know");
        assert_eq!(fresh.since(), None);
        let mut ask = |millis| match fresh.on_heartbeat(at(millis)) {
            Some(Message::When { token }) => token,
            other => panic!("{other:?}"),
        };
        let (first, second) = (ask(10), ask(20));
        assert_eq!((first, second), (u64::MAX, 0));
        fresh.on_told(second, 7, 5, at(50));
        assert_eq!(fresh.since(), None, "slot 7 is not executed");
        fresh.on_told(first, 5, 5, at(60));
        assert_eq!(fresh.since(), None, "questions before one that was answered are forgotten");
        fresh.executed(7);
        assert_eq!(fresh.since(), Some(at(20)));
        fresh.on_told(second, 1, 9, at(90));
        fresh.on_told(12345, 1, 9, at(90));
        assert_eq!(fresh.since(), Some(at(20)), "an answer counts once, and only to a question of this life");
    }
}
