//! How much a source sends ahead of a peer's questions: a sliding window.
//!
//! A peer that is behind asks for one unit after the other: a MiB of values, or a piece of a snapshot. Were each sent
//! only when the one before it is there, a unit would take a round trip, and on a long link a peer would get far less
//! than that carries; less, perhaps, than is written meanwhile. So the source pipelines: it sends the next units ahead.
//! Each question acknowledges the units before the one that it asks for, and lets the window grow by as many, up to
//! [`MAX_BYTES`] and to what takes [`MAX_TIME`]. A question that is repeated says that what was sent is lost, or too
//! much: the window is one unit again.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use quorate_core::{Time, mutation};

/// The largest window, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// The longest that the units of a window may take to be asked beyond, at the pace of those before them.
const MAX_TIME: Duration = Duration::from_millis(800);

/// The units that one peer was sent and has not asked beyond. `P`: where a unit begins, a slot or a cursor.
pub(super) struct SendWindow<P> {
    /// Where those begin, and when they were sent, oldest first: first the one that was asked for last.
    sent: VecDeque<(P, Time)>,
    /// Where the one after them begins.
    next: Option<P>,
    /// How many of them there may be.
    size: usize,
    /// What it asked for last, and when.
    last: Option<P>,
    asked: Time,
}

impl<P> Default for SendWindow<P> {
    fn default() -> Self {
        SendWindow { sent: VecDeque::new(), next: None, size: 1, last: None, asked: Time::ZERO }
    }
}

/// Only what makes a difference where all units are small: nothing is sent ahead there.
impl<P: fmt::Debug> fmt::Debug for SendWindow<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent: Vec<_> = self.sent.iter().skip(1).map(|(at, _)| at).collect();
        f.debug_struct("SendWindow").field("sent", &sent).finish()
    }
}

impl<P: Clone + PartialEq> SendWindow<P> {
    /// When it asked last.
    pub(super) fn asked(&self) -> Time {
        self.asked
    }

    /// Which of those that were sent it asks for, or the one after them.
    fn unit_of(&self, at: &P, is_in: impl Fn(&P, Option<&P>) -> bool) -> Option<usize> {
        let ends = self.sent.iter().skip(1).map(|(at, _)| Some(at)).chain([self.next.as_ref()]);
        match self.next.as_ref() == Some(at) {
            true => Some(self.sent.len()),
            false => self.sent.iter().zip(ends).position(|((begin, _), end)| is_in(begin, end)),
        }
    }

    /// The peer asks for the unit that begins here: sends it, and more, as long as units are full. `unit` sends the one
    /// that begins there; the bytes in it, and where the next one begins; `None` if there is none. `full`: the bytes of
    /// a full one, about. `is_in`: whether it is the unit between these, or a part of that.
    pub(super) fn on_question(
        &mut self,
        at: P,
        full: usize,
        is_in: impl Fn(&P, Option<&P>) -> bool,
        mut unit: impl FnMut(&P) -> Option<(usize, Option<P>)>,
        now: Time,
    ) {
        let known = self.unit_of(&at, is_in).filter(|_| self.last.as_ref() != Some(&at));
        if let Some(known @ 1..) = known {
            let (_, sent) = self.sent[known - 1];
            // The time from one unit to the next, where all that were sent are under way.
            let each = now.since(sent) / self.sent.len() as u32;
            let in_time = MAX_TIME.as_nanos() / each.as_nanos().max(1);
            let limit = (MAX_BYTES / full).min(in_time.try_into().unwrap_or(usize::MAX)).max(1);
            self.sent.drain(..known);
            self.size = (self.size + known).min(limit);
        } else if known.is_none() {
            *self = SendWindow { next: Some(at.clone()), ..SendWindow::default() };
        }
        (self.last, self.asked) = (Some(at), now);
        while self.sent.len() < self.size
            && let Some(at) = &self.next
            && let Some((bytes, next)) = unit(at)
        {
            let at = std::mem::replace(&mut self.next, next);
            self.sent.extend(at.map(|at| (at, now)));
            if bytes < full / 2 || mutation::active("catchup/one-at-a-time") {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: usize = 1 << 20;

    /// `MS AT → what is sent`, of a peer that asks for the unit at a number, where there are so many.
    fn script(units: u64, size: usize, text: &str) {
        let mut ahead = SendWindow::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (question, expected) = line.split_once('→').unwrap();
            let numbers: Vec<u64> = question.split_whitespace().map(|word| word.parse().unwrap()).collect();
            let mut sent = Vec::new();
            let unit = |at: &u64| {
                (*at < units).then(|| {
                    sent.push(at.to_string());
                    (size, Some(at + 10))
                })
            };
            let (now, at) = (Time::ZERO + Duration::from_millis(numbers[0]), numbers[1]);
            let is_in = |begin: &u64, end: Option<&u64>| (*begin..*end.unwrap()).contains(&at);
            ahead.on_question(at, FULL, is_in, unit, now);
            assert_eq!(sent.join(" "), expected.trim(), "{line}");
        }
    }

    #[test]
    fn one_more_is_sent_ahead_with_each_question_up_to_a_limit() {
        script(
            1000,
            FULL,
            "  0  10 → 10
             200  20 → 20 30
             400  30 → 40 50
             401  40 → 60 70
             600  50 → 80 90
             601  60 → 100 110
             602  70 → 120 130
             603  80 → 140 150
             800  90 → 160
             801 100 → 170
             802 120 → 180 190",
        );
    }

    #[test]
    fn a_question_that_is_repeated_or_leaps_is_answered_with_one_unit() {
        script(
            1000,
            FULL,
            "  0 10 → 10
             100 20 → 20 30
             200 30 → 40 50
             400 30 → 30
             500 40 → 40 50
             600 10 → 10
             700 90 → 90",
        );
    }

    /// Otherwise there would be two sequences of units, each as much as the other.
    #[test]
    fn a_question_for_a_part_of_what_was_sent_does_not_begin_anew() {
        script(
            1000,
            FULL,
            "  0 10 → 10
             100 20 → 20 30
             200 33 → 40 50
             210 35 →
             300 40 → 60 70
             400 40 → 40",
        );
    }

    #[test]
    fn no_more_is_sent_ahead_than_takes_eight_tenths_of_a_second() {
        script(
            1000,
            FULL,
            "   0 10 → 10
             1000 20 → 20
             2000 30 → 30
             2300 40 → 40 50
             2600 50 → 60 70
             3300 60 →
             4300 70 →
             5700 80 → 80",
        );
    }

    #[test]
    fn nothing_is_sent_ahead_of_a_small_unit_or_behind_the_last() {
        script(
            30,
            FULL / 4,
            "  0 10 → 10
             100 20 → 20
             200 30 →",
        );
        script(
            40,
            FULL,
            "  0 10 → 10
             100 20 → 20 30
             200 30 →
             300 30 → 30",
        );
    }
}
