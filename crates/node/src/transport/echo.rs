//! How far away a member is: a node asks it for an echo, and measures the time until the answer. Question and answer
//! are frames among the others, urgent ones, so that they take as long as a message does.

use std::time::Duration;

use quorate_blocks::reach::ENOUGH;
use quorate_core::{NodeId, Time, wire_enum};

use super::Transport;
use super::frame::Encoded;
use super::handshake::node_of;
use crate::clock;

/// How often a member is asked, once the first few questions are answered.
const EVERY: Duration = Duration::from_secs(1);

/// What the two say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// A question, which the peer is to answer at once.
    Ask {
        /// When it was asked, by the clock of who asks, in nanoseconds.
        asked: u64,
    },
    /// The answer to a question, with what was asked.
    Answer {
        /// When the question was asked, on the clock of whoever asked.
        asked: u64,
    },
}
wire_enum!(Echo { 1 => Ask { asked }, 2 => Answer { asked } });

/// When to ask one member.
#[derive(Debug, Default)]
pub(super) struct EchoTimer {
    next: Time,
    /// The question that was not answered yet.
    asked: Option<Time>,
    /// The first of those since the latest answer.
    unanswered: Option<Time>,
    /// What the latest answer in time took.
    took: Option<Duration>,
    answers: usize,
}

impl EchoTimer {
    /// The question, if it is time for one. One that was not answered until then is given up.
    pub(super) fn ask(&mut self, now: Time) -> Option<Echo> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        self.asked = Some(now);
        self.unanswered = self.unanswered.or(self.asked);
        Some(Echo::Ask { asked: now.nanos() })
    }

    /// An answer has come: how long it took.
    pub(super) fn on_answer(&mut self, asked: Time, now: Time) -> Option<Duration> {
        let is_last = self.asked.take_if(|last| *last == asked);
        // A late answer says nothing of the way, but that there is somebody.
        self.unanswered = self.asked;
        is_last?;
        self.answers += 1;
        if self.answers < ENOUGH {
            self.next = now;
        }
        self.took = Some(now.since(asked));
        self.took
    }

    /// The latest round trip to the member.
    pub(super) fn took(&self) -> Option<Duration> {
        self.took
    }

    /// Since when no answer has come although the member was asked.
    pub(super) fn unanswered(&self) -> Option<Time> {
        self.unanswered
    }
}

impl Transport {
    /// Answers the questions of a peer how far away it is, and notes its answers.
    pub(super) fn on_echoes(&mut self, index: usize) {
        let Some(inbound) = self.inbound.get_mut(index) else { return };
        let (echoes, peer) = (inbound.take_echoes(), inbound.peer());
        // A proxy that runs alone has no timeouts that others depend on.
        let Some(node) = peer.and_then(node_of) else { return };
        for echo in echoes {
            match echo {
                Echo::Ask { asked } => self.echo(node, Echo::Answer { asked }),
                Echo::Answer { asked } => {
                    let link = self.links.get_mut(&node);
                    let took = link.and_then(|link| link.on_echo(Time::from_nanos(asked), clock::now()));
                    if let (Some(took), Some(guard)) = (took, &mut self.guard) {
                        guard.on_round_trip(node, took);
                    }
                }
            }
        }
    }

    fn echo(&mut self, to: NodeId, echo: Echo) {
        let ends = (self.me, to.into());
        if let Some(link) = self.links.get_mut(&to) {
            link.put(&Encoded::echo(echo), ends, &self.interface, &mut self.random);
        }
    }

    /// Asks the members whose turn it is how far away they are.
    pub(super) fn measure(&mut self, now: Time) {
        if !self.measures || self.guard.is_none() {
            return;
        }
        let links = self.links.values_mut().filter(|link| self.members.contains_key(&link.node));
        let asked: Vec<_> = links.filter_map(|link| Some((link.node, link.ask_for_echo(now)?))).collect();
        for (node, echo) in asked {
            self.echo(node, echo);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_questions_follow_each_other_and_later_ones_are_rare() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let (mut timer, mut now) = (EchoTimer::default(), 0);
        for _ in 0..ENOUGH {
            assert_eq!(timer.ask(at(now)), Some(Echo::Ask { asked: at(now).nanos() }));
            assert_eq!(timer.ask(at(now)), None, "one at a time");
            assert_eq!(timer.on_answer(at(now + 7), at(now + 10)), None, "it was not asked");
            assert_eq!(timer.on_answer(at(now), at(now + 10)), Some(Duration::from_millis(10)));
            assert_eq!(timer.on_answer(at(now), at(now + 20)), None, "a copy");
            now += 10;
        }
        let last = now - 10;
        assert_eq!(timer.ask(at(last + 999)), None);
        assert!(timer.ask(at(last + 1000)).is_some());
        assert!(timer.ask(at(last + 2000)).is_some(), "nobody answered");
        assert_eq!(timer.unanswered(), Some(at(last + 1000)));
        assert_eq!(timer.on_answer(at(last + 1000), at(last + 2001)), None, "it comes too late");
        assert_eq!(timer.unanswered(), Some(at(last + 2000)), "there is somebody all the same");
        assert!(timer.on_answer(at(last + 2000), at(last + 2002)).is_some());
        assert_eq!(timer.unanswered(), None);
    }
}
