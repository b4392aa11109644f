//! One change at a time: a leader writes a configuration only when the one before it in its log is committed, and
//! every majority of one meets every majority of the other: joint after simple, with the voters that were as
//! outgoing; simple after joint, with the voters that were to be; or the same voters, where only learners differ.
//! (Ongaro and Ousterhout 2014, §6; Ongaro's thesis, §4.3.)
//!
//! A process that says nothing of its log (it has none of terms) states configurations when they are executed. Then
//! they are decided, and the same for all; the first to execute one has executed the one before it, so they come
//! one by one.

use quorate_core::Fact;

use super::log::{Configured, Logs};
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "one-change";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct OneChange {
    logs: Logs,
}

impl Checker for OneChange {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Configured"]
    }

    fn on_founded(&mut self, slot: u64, _members: u64) {
        self.logs.on_founded(slot);
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let result = match *fact {
            Fact::Configured { index, voters, outgoing } if !voters.is_empty() => {
                self.change(who, Configured { index, voters, outgoing })
            }
            _ => Ok(()),
        };
        self.logs.on_fact(who, fact);
        result.map_err(|what| Violation { checker: NAME, at, what })
    }

    fn on_crash(&mut self, _: u64, who: Process, _: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_crash(who);
        Ok(())
    }
}

impl OneChange {
    fn change(&self, who: Process, next: Configured) -> Result<(), String> {
        if self.logs.log(who.node).is_none() {
            return self.execution(who, next);
        }
        let log = self.logs.log(who.node);
        let term = log.and_then(|log| log.term(next.index));
        if let Some(known) = term.and_then(|term| self.logs.written(next.index, term))
            && known != next
        {
            return Err(format!("{who} has {next:?} where others have {known:?}"));
        }
        // Followers take what leaders have written.
        let (Some(log), Some(last), Some(_)) =
            (log, self.logs.configured(who.node), self.logs.leads(who.node))
        else {
            return Ok(());
        };
        if next.index <= last.index {
            return Ok(());
        }
        // Below the base everything is committed.
        let of = log.term(last.index);
        if of.is_some() && self.logs.committed().term(last.index) != of {
            return Err(format!("{who} writes {next:?} before {last:?} is committed"));
        }
        match meets(last, next) {
            true => Ok(()),
            false => Err(format!("{who} goes from {last:?} to {next:?}, whose majorities need not meet")),
        }
    }
}

impl OneChange {
    fn execution(&self, who: Process, next: Configured) -> Result<(), String> {
        match (self.logs.executed(next.index), self.logs.executed_before(next.index)) {
            (Some(known), _) if known != next => {
                Err(format!("{who} has executed {next:?} where others have {known:?}"))
            }
            (None, Some(last)) if !meets(last, next) => {
                Err(format!("{who} goes from {last:?} to {next:?}, whose majorities need not meet"))
            }
            _ => Ok(()),
        }
    }
}

fn meets(last: Configured, next: Configured) -> bool {
    match (last.outgoing.is_empty(), next.outgoing.is_empty()) {
        (true, false) => next.outgoing == last.voters,
        (true, true) | (false, true) => next.voters == last.voters,
        // Learners only.
        (false, false) => (next.voters, next.outgoing) == (last.voters, last.outgoing),
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::NodeSet;

    use super::super::testing::{first_rejected, node, who};
    use super::*;

    fn set(ids: &[u64]) -> NodeSet {
        ids.iter().map(|id| node(*id)).collect()
    }

    #[test]
    fn configurations_are_executed_one_by_one() {
        let (a, b) = (who(1, 0), who(2, 0));
        let group = |who, index, voters: &[u64], outgoing: &[u64]| {
            (who, Fact::Configured { index, voters: set(voters), outgoing: set(outgoing) })
        };
        let through =
            || vec![group(a, 0, &[1, 2], &[]), group(a, 3, &[2, 3], &[1, 2]), group(a, 5, &[2, 3], &[])];
        let cases = [
            ("through a joint one", vec![], None),
            ("one that is behind", vec![group(b, 0, &[1, 2], &[]), group(b, 3, &[2, 3], &[1, 2])], None),
            ("from a snapshot", vec![group(b, 5, &[2, 3], &[])], None),
            ("another one", vec![group(b, 3, &[1, 3], &[1, 2])], Some(3)),
            ("at once", vec![group(b, 7, &[3, 4], &[])], Some(3)),
        ];
        for (name, facts, rejected) in cases {
            let all: Vec<_> = through().into_iter().chain(facts).collect();
            assert_eq!(first_rejected(&mut OneChange::default(), &all), rejected, "{name}");
        }
    }

    #[test]
    fn configurations_follow_each_other_one_by_one() {
        let a = who(1, 0);
        let group = |index, voters: &[u64], outgoing: &[u64]| {
            (a, Fact::Configured { index, voters: set(voters), outgoing: set(outgoing) })
        };
        let entry = |index| (a, Fact::Appended { index, term: 1, digest: index, writes: false });
        let commits = |index| (a, Fact::Commits { term: 1, index });
        let begin = || {
            vec![
                (a, Fact::Begins { index: 0, term: 0 }),
                group(0, &[1, 2], &[]),
                (a, Fact::Leads { number: 1 }),
            ]
        };
        let joint = || vec![entry(1), group(1, &[2, 3], &[1, 2])];
        let cases = [
            ("through a joint one", vec![joint(), vec![commits(1), entry(2), group(2, &[2, 3], &[])]], None),
            ("before it is committed", vec![joint(), vec![entry(2), group(2, &[2, 3], &[])]], Some(3)),
            ("learners only", vec![vec![entry(1), group(1, &[1, 2], &[])]], None),
            ("at once", vec![vec![entry(1), group(1, &[2, 3], &[])]], Some(1)),
            ("out of others", vec![vec![entry(1), group(1, &[2, 3], &[1, 3])]], Some(1)),
            ("into others", vec![joint(), vec![commits(1), entry(2), group(2, &[1, 3], &[])]], Some(4)),
            (
                "from one joint to another",
                vec![joint(), vec![commits(1), entry(2), group(2, &[3], &[2, 3])]],
                Some(4),
            ),
            (
                "one follows",
                vec![vec![
                    (a, Fact::Follows),
                    entry(1),
                    group(1, &[2, 3], &[1, 2]),
                    entry(2),
                    group(2, &[2, 3], &[]),
                ]],
                None,
            ),
            (
                "another one at an index and term",
                vec![joint(), vec![(a, Fact::Follows), group(1, &[3], &[1, 2])]],
                Some(3),
            ),
        ];
        for (name, facts, rejected) in cases {
            let all: Vec<_> = begin().into_iter().chain(facts.concat()).collect();
            let rejected = rejected.map(|at| at + begin().len());
            assert_eq!(first_rejected(&mut OneChange::default(), &all), rejected, "{name}");
        }
    }
}
