//! Commitment: a leader calls committed what is in the logs of a majority of those who count at that moment (of both
//! sets, while a group changes), up to an entry of its own term; and replicas execute what is committed, and that only.
//! (Ongaro and Ousterhout 2014, §5.4.2 and §6; TLA+ `AdvanceCommitIndex`.) The last is the other half of state-machine
//! safety, next to [`agreement`](super::agreement).
//!
//! A replica that is down counts with the log that it had: what it has acknowledged is on its disk. So does one whose
//! disk was lost: others have counted what it had acknowledged, and it votes no more before it has that again.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId, NodeSet};

use super::log::{Log, Logs};
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "commitment";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Commitment {
    logs: Logs,
    /// By index and term.
    digests: BTreeMap<(u64, u64), u64>,
    /// Logs of lost disks.
    lost: Vec<(NodeId, Log)>,
}

impl Checker for Commitment {
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
        self.lost.extend(self.logs.log(node).map(|log| (node, log.clone())));
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        let result = match *fact {
            Fact::Appended { index, term, digest, .. } => {
                self.digests.insert((index, term), digest);
                Ok(())
            }
            Fact::Commits { term, index } => self.commit(who, term, index),
            Fact::Applied { slot, digest } => self.apply(who, slot, Some(digest)),
            Fact::Installed { slot } => self.apply(who, slot, None),
            _ => Ok(()),
        };
        self.logs.on_fact(who, fact);
        result.map_err(|what| Violation { checker: NAME, at, what })
    }
}

impl Commitment {
    fn commit(&self, who: Process, term: u64, index: u64) -> Result<(), String> {
        let of = self.logs.log(who.node).and_then(|log| log.term(index));
        if of != Some(term) {
            return Err(format!("{who} commits entry {index} in term {term}, which is of term {of:?}"));
        }
        let Some(group) = self.logs.configured(who.node) else {
            return Err(format!("{who} commits entry {index} for a group that it does not know"));
        };
        for set in [group.voters, group.outgoing] {
            let had = |node| self.lost.iter().any(|(lost, log)| *lost == node && log.has(index, term));
            let have = |node: &_| self.logs.log(*node).is_some_and(|log| log.has(index, term)) || had(*node);
            let copies: NodeSet = set.iter().filter(have).collect();
            if !set.is_empty() && copies.len() * 2 <= set.len() {
                return Err(format!(
                    "{who} commits entry {index} of term {term}, but of {set:?} only {copies:?} have it"
                ));
            }
        }
        Ok(())
    }

    fn apply(&self, who: Process, slot: u64, digest: Option<u64>) -> Result<(), String> {
        // Protocols without a log of terms execute too, and who begins with nothing has executed nothing.
        if self.logs.log(who.node).is_none() || slot == 0 {
            return Ok(());
        }
        let Some(term) = self.logs.committed().term(slot) else {
            return Err(format!("{who} executes entry {slot}, which nobody has committed"));
        };
        let known = self.digests.get(&(slot, term));
        if digest.is_none() || slot == 0 || known == digest.as_ref() {
            return Ok(());
        }
        Err(format!("{who} executes another entry {slot} than the one of term {term} that is committed"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{first_rejected, node, who};
    use super::*;

    fn set(ids: &[u64]) -> NodeSet {
        ids.iter().map(|id| node(*id)).collect()
    }

    #[test]
    fn what_was_on_a_disk_that_is_lost_has_been_counted() {
        let (a, b) = (who(1, 0), who(2, 0));
        let entry = |term| Fact::Appended { index: 1, term, digest: 7, writes: true };
        let group = Fact::Configured { index: 0, voters: set(&[1, 2, 3]), outgoing: set(&[]) };
        let clocks = &super::super::testing::true_clocks;
        for (loses, fine) in [(true, true), (false, false)] {
            let mut checker = Commitment::default();
            for (replica, fact) in [(a, group.clone()), (a, entry(1)), (b, entry(1))] {
                checker.on_fact(1, replica, &fact, clocks).unwrap();
            }
            if loses {
                checker.on_disk_lost(b.node);
            }
            // It begins anew.
            checker.on_fact(2, who(2, 1), &entry(2), clocks).unwrap();
            let commits = checker.on_fact(3, a, &Fact::Commits { term: 1, index: 1 }, clocks);
            assert_eq!(commits.is_ok(), fine, "{commits:?}");
        }
    }

    #[test]
    fn a_majority_commits_and_what_is_committed_is_executed() {
        let (a, b, c) = (who(1, 0), who(2, 0), who(3, 0));
        let entry = |index, term| Fact::Appended { index, term, digest: 10 * index + term, writes: true };
        let commits = |term, index| Fact::Commits { term, index };
        let applied = |slot, digest| Fact::Applied { slot, digest };
        let group = |voters: &[u64], outgoing: &[u64]| Fact::Configured {
            index: 0,
            voters: set(voters),
            outgoing: set(outgoing),
        };
        let three = (a, group(&[1, 2, 3], &[]));
        let cases = [
            ("a majority", vec![three.clone(), (a, entry(1, 1)), (b, entry(1, 1)), (a, commits(1, 1))], None),
            ("itself alone", vec![three.clone(), (a, entry(1, 1)), (a, commits(1, 1))], Some(2)),
            (
                "with a copy of another term",
                vec![three.clone(), (a, entry(1, 2)), (b, entry(1, 1)), (a, commits(2, 1))],
                Some(3),
            ),
            (
                "of an earlier term, by counting",
                vec![three.clone(), (a, entry(1, 1)), (b, entry(1, 1)), (c, entry(1, 1)), (a, commits(2, 1))],
                Some(4),
            ),
            (
                "which others have, and not itself",
                vec![three.clone(), (a, entry(1, 1)), (b, entry(1, 2)), (c, entry(1, 2)), (a, commits(2, 1))],
                Some(4),
            ),
            (
                "with a learner's copy",
                vec![(a, group(&[1, 2], &[])), (a, entry(1, 1)), (c, entry(1, 1)), (a, commits(1, 1))],
                Some(3),
            ),
            (
                "with the new voters only",
                vec![(a, group(&[1, 2], &[1, 3])), (a, entry(1, 1)), (b, entry(1, 1)), (a, commits(1, 1))],
                Some(3),
            ),
            (
                "with both",
                vec![
                    (a, group(&[1, 2], &[1, 3])),
                    (a, entry(1, 1)),
                    (b, entry(1, 1)),
                    (c, entry(1, 1)),
                    (a, commits(1, 1)),
                ],
                None,
            ),
            ("for nobody", vec![(a, entry(1, 1)), (a, commits(1, 1))], Some(1)),
            (
                "executed, then",
                vec![
                    (a, group(&[1], &[])),
                    (a, entry(1, 1)),
                    (a, commits(1, 1)),
                    (b, entry(1, 1)),
                    (b, applied(1, 11)),
                ],
                None,
            ),
            ("executed too early", vec![three, (a, entry(1, 1)), (a, applied(1, 11))], Some(2)),
            (
                "a state with what nobody has committed",
                vec![(a, group(&[1], &[])), (a, entry(1, 1)), (a, Fact::Installed { slot: 1 })],
                Some(2),
            ),
            (
                "another is executed",
                vec![
                    (a, group(&[1], &[])),
                    (a, entry(1, 1)),
                    (b, entry(1, 2)),
                    (a, commits(1, 1)),
                    (b, applied(1, 12)),
                ],
                Some(4),
            ),
            (
                "by a protocol without terms",
                vec![(a, applied(1, 11)), (a, Fact::Installed { slot: 9 })],
                None,
            ),
        ];
        for (name, facts, rejected) in cases {
            assert_eq!(first_rejected(&mut Commitment::default(), &facts), rejected, "{name}");
        }
    }
}
