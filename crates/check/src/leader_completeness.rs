//! Leader completeness: what is committed in a term is in the logs of the leaders of all later terms. (Ongaro and
//! Ousterhout 2014, Figure 3; TLA+ `LeaderCompleteness`.) And *leader append-only*, from the same figure: a leader
//! removes and replaces nothing in its own log.
//!
//! Judged from both ends: when somebody states that it leads, and when something is stated committed while there are
//! leaders of later terms already, by their logs as they were elected with. Where logs match
//! ([`log_matching`](super::log_matching)), the last committed entry vouches for those before it.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::log::{Log, Logs};
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "leader-completeness";
const APPEND_ONLY: &str = "leader-append-only";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct LeaderCompleteness {
    logs: Logs,
    /// By term: the last entry stated committed by its leader, as index and term.
    commits: BTreeMap<u64, (u64, u64)>,
    /// By term: its leader, and the log that it was elected with.
    elected: BTreeMap<u64, (Process, Log)>,
}

impl Checker for LeaderCompleteness {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Appended", "Commits"]
    }

    fn on_founded(&mut self, slot: u64, _members: u64) {
        self.logs.on_founded(slot);
    }

    fn on_disk_lost(&mut self, node: NodeId) {
        self.logs.on_disk_lost(node);
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let complete = match *fact {
            Fact::Leads { number } => self.lead(who, number),
            Fact::Commits { term, index } => self.commit(who, term, index),
            _ => Ok(()),
        };
        complete.map_err(|what| Violation { checker: NAME, at, what })?;
        self.append_only(who, fact).map_err(|what| Violation { checker: APPEND_ONLY, at, what })?;
        self.logs.on_fact(who, fact);
        Ok(())
    }

    fn on_crash(&mut self, _: u64, who: Process, _: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_crash(who);
        Ok(())
    }
}

impl LeaderCompleteness {
    fn lead(&mut self, who: Process, term: u64) -> Result<(), String> {
        // Protocols without a log of terms lead too.
        let Some(log) = self.logs.log(who.node) else { return Ok(()) };
        if let Some((under, (index, of))) = self.commits.range(..term).max_by_key(|(_, (index, _))| *index)
            && !log.has(*index, *of)
        {
            return Err(format!(
                "{who} leads term {term} without entry {index} of term {of}, which was committed in term {under}; \
                 its log is {log:?}"
            ));
        }
        self.elected.entry(term).or_insert_with(|| (who, log.clone()));
        Ok(())
    }

    fn commit(&mut self, who: Process, term: u64, index: u64) -> Result<(), String> {
        let of = self.logs.log(who.node).and_then(|log| log.term(index));
        let Some(of) = of else {
            return Err(format!("{who} commits entry {index}, which is not in its log"));
        };
        let last = self.commits.entry(term).or_insert((index, of));
        *last = (*last).max((index, of));
        let later = self.elected.range(term + 1..);
        if let Some((later, (leader, log))) = later.into_iter().find(|(_, (_, log))| !log.has(index, of)) {
            return Err(format!(
                "{who} commits entry {index} of term {of} in term {term}, but {leader} was elected in term \
                 {later} without it, with {log:?}"
            ));
        }
        Ok(())
    }

    fn append_only(&self, who: Process, fact: &Fact) -> Result<(), String> {
        let Some(term) = self.logs.leads(who.node) else { return Ok(()) };
        let last = self.logs.log(who.node).map_or(0, Log::last);
        match *fact {
            Fact::Truncated { index } if index <= last => {
                Err(format!("{who} leads term {term} and removes entry {index}"))
            }
            Fact::Appended { index, .. } if index <= last => {
                Err(format!("{who} leads term {term} and replaces entry {index}"))
            }
            Fact::Begins { index, .. } => {
                Err(format!("{who} leads term {term} and takes another's state up to {index}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, who};
    use super::*;

    fn entry(index: u64, term: u64) -> Fact {
        Fact::Appended { index, term, digest: index, writes: true }
    }

    fn leads(number: u64) -> Fact {
        Fact::Leads { number }
    }

    fn commits(term: u64, index: u64) -> Fact {
        Fact::Commits { term, index }
    }

    /// n1 leads term 1 and has appended two entries; n2 has the first, n3 none.
    fn begin() -> Vec<(Process, Fact)> {
        let begins = Fact::Begins { index: 0, term: 0 };
        let (a, b, c) = (who(1, 0), who(2, 0), who(3, 0));
        vec![
            (a, begins.clone()),
            (b, begins.clone()),
            (c, begins),
            (a, leads(1)),
            (a, entry(1, 1)),
            (a, entry(2, 1)),
            (b, entry(1, 1)),
        ]
    }

    #[test]
    fn leaders_have_what_is_committed_and_keep_what_they_have() {
        let (a, b, c, a2) = (who(1, 0), who(2, 0), who(3, 0), who(1, 1));
        let cases = [
            ("has it", vec![(a, commits(1, 1)), (b, leads(2))], None),
            (
                "has it in its snapshot",
                vec![(a, commits(1, 2)), (c, Fact::Begins { index: 2, term: 1 }), (c, leads(2))],
                None,
            ),
            ("lacks it", vec![(a, commits(1, 2)), (b, leads(2))], Some(1)),
            ("has another", vec![(a, commits(1, 2)), (b, entry(2, 2)), (b, leads(3))], Some(2)),
            ("was elected before, with it", vec![(b, leads(2)), (a, commits(1, 1))], None),
            ("was elected before, without it", vec![(b, leads(2)), (a, commits(1, 2))], Some(1)),
            (
                "was elected in an earlier term",
                vec![(a, Fact::Follows), (b, leads(3)), (b, entry(2, 3)), (b, commits(3, 2)), (c, leads(2))],
                None,
            ),
            ("what is not there", vec![(a, commits(1, 3))], Some(0)),
            ("a leader removes", vec![(a, Fact::Truncated { index: 2 })], Some(0)),
            ("a leader replaces", vec![(a, entry(2, 1))], Some(0)),
            ("a leader takes a snapshot", vec![(a, Fact::Begins { index: 9, term: 1 })], Some(0)),
            ("a follower removes", vec![(a, Fact::Follows), (a, Fact::Truncated { index: 2 })], None),
        ];
        for (name, facts, rejected) in cases {
            let all: Vec<_> = begin().into_iter().chain(facts).collect();
            let rejected = rejected.map(|at| at + begin().len());
            assert_eq!(first_rejected(&mut LeaderCompleteness::default(), &all), rejected, "{name}");
        }
        let mut checker = LeaderCompleteness::default();
        assert_eq!(first_rejected(&mut checker, &begin()), None);
        checker.on_crash(100, a, &super::super::testing::true_clocks).unwrap();
        let again = [(a2, Fact::Begins { index: 0, term: 0 })];
        assert_eq!(
            first_rejected(&mut checker, &again),
            None,
            "a restarted leader begins with what it has left"
        );
    }
}
