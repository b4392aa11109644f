//! LeaseGuard's promise: at no instant would one replica answer a read from its own state while another has
//! committed, in a later term, a write that could change the answer. (Davis et al., *LeaseGuard*, 2025.)
//! It is what any leader lease promises, so other mechanisms may state their gates too.
//!
//! A gate lets reads pass that see the state after some entry, and that no entry of a limbo region behind it could
//! change. So it is violated by a committed write behind both. It closes at its end, when its replica says so, stops
//! to lead or crashes. A pause does not close it: whoever wakes up in time reads.
//!
//! Nor does a read pass when the gate is not open: a replica that stood still reads its clock again.
//!
//! The end is judged in true time: when the last instant is over at which the replica's clock would let a read pass,
//! even if it does not at some instant before.

use std::collections::{BTreeMap, BTreeSet};

use quorate_core::{Fact, NodeId, Until};

use super::log::Logs;
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "read-gate";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct ReadGates {
    logs: Logs,
    gates: BTreeMap<NodeId, Gate>,
    /// By term: how far its leader has stated things committed.
    commits: BTreeMap<u64, (Process, u64)>,
    /// Indexes and terms of entries that write.
    writes: BTreeSet<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    term: u64,
    /// The state that reads see.
    index: u64,
    limbo: u64,
    until: Until,
}

impl Gate {
    /// When the last instant is over at which the clock of its replica lets a read pass.
    fn end(&self, reader: NodeId, clocks: &dyn Clocks) -> u64 {
        match self.until {
            Until::Clock(time) => clocks.true_time(reader, time),
            Until::Latest(latest) => clocks.when_past(reader, latest),
        }
    }
}

impl Checker for ReadGates {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["ReadGate", "PassesGate"]
    }

    fn on_founded(&mut self, slot: u64, _members: u64) {
        self.logs.on_founded(slot);
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, clocks: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_fact(who, fact);
        match *fact {
            Fact::Appended { index, term, writes: true, .. } => {
                self.writes.insert((index, term));
            }
            Fact::Applied { slot, .. } => {
                if let Some(gate) = self.gates.get_mut(&who.node) {
                    gate.index = gate.index.max(slot);
                }
            }
            Fact::Follows | Fact::ReadGate { until: None, .. } => {
                self.gates.remove(&who.node);
            }
            Fact::ReadGate { term, index, limbo, until: Some(until) } => {
                self.gates.insert(who.node, Gate { term, index, limbo, until });
                let later = self.commits.range(term + 1..).map(|(term, (by, index))| (*term, *by, *index));
                for (term, by, index) in later.collect::<Vec<_>>() {
                    self.judge(at, who.node, by, term, index, clocks)?;
                }
            }
            Fact::PassesGate { term } => {
                let gate = self.gates.get(&who.node).filter(|gate| gate.term == term);
                let end = gate.map_or(0, |gate| gate.end(who.node, clocks));
                if end <= at {
                    let what =
                        format!("{who} lets a read pass in term {term}, when its gate was shut since {end}");
                    return Err(Violation { checker: NAME, at, what });
                }
            }
            Fact::Commits { term, index } => {
                self.commits.insert(term, (who, index));
                for reader in self.gates.keys().copied().collect::<Vec<_>>() {
                    self.judge(at, reader, who, term, index, clocks)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn on_crash(&mut self, _: u64, who: Process, _: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_crash(who);
        self.gates.remove(&who.node);
        Ok(())
    }
}

impl ReadGates {
    /// Whether the gate of `reader` lets stale reads pass, now that `by` has committed up to `index` in `term`.
    fn judge(
        &self,
        at: u64,
        reader: NodeId,
        by: Process,
        term: u64,
        index: u64,
        clocks: &dyn Clocks,
    ) -> Result<(), Violation> {
        let Some(gate) = self.gates.get(&reader).filter(|gate| reader != by.node && gate.term < term) else {
            return Ok(());
        };
        let end = gate.end(reader, clocks);
        let seen = gate.index.max(gate.limbo);
        if end <= at || seen >= index {
            return Ok(());
        }
        let committed = self.logs.committed();
        let mut behind = self.writes.range((seen + 1, 0)..=(index, u64::MAX));
        let Some((write, _)) = behind.find(|(write, of)| committed.term(*write) == Some(*of)) else {
            return Ok(());
        };
        let what = format!(
            "{reader:?} would answer reads until {end} with {gate:?}, but {by} has committed \
             write {write} in term {term}"
        );
        Err(Violation { checker: NAME, at, what })
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Time;

    use super::super::testing::{Step, first_rejected_step, who};
    use super::*;

    fn entry(index: u64, term: u64, writes: bool) -> Fact {
        Fact::Appended { index, term, digest: index, writes }
    }

    fn commits(term: u64, index: u64) -> Fact {
        Fact::Commits { term, index }
    }

    fn gate(term: u64, index: u64, limbo: u64, until: u64) -> Fact {
        Fact::ReadGate { term, index, limbo, until: Some(Until::Latest(until)) }
    }

    /// Steps, and which of them is the first that must be rejected.
    type Case = (&'static str, Vec<(u64, Process, Step)>, Option<usize>);

    #[test]
    fn no_gate_is_open_when_a_later_leader_commits_what_it_does_not_see() {
        let (a, b) = (who(1, 0), who(2, 0));
        let closed = Fact::ReadGate { term: 1, index: 1, limbo: 1, until: None };
        // n1 has read from the state after entry 1; n2 leads term 2, with a no-op and a write behind that.
        let begin =
            [(a, entry(1, 1, true)), (b, entry(1, 1, true)), (b, entry(2, 2, false)), (b, entry(3, 2, true))];
        let cases: Vec<Case> = vec![
            (
                "open",
                vec![(10, a, Step::Says(gate(1, 1, 1, 50))), (50, b, Step::Says(commits(2, 3)))],
                Some(1),
            ),
            ("over", vec![(10, a, Step::Says(gate(1, 1, 1, 50))), (51, b, Step::Says(commits(2, 3)))], None),
            (
                "a read in time",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (50, a, Step::Says(Fact::PassesGate { term: 1 })),
                ],
                None,
            ),
            (
                "a read after a pause",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (51, a, Step::Says(Fact::PassesGate { term: 1 })),
                ],
                Some(1),
            ),
            (
                "a read in another term",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (20, a, Step::Says(Fact::PassesGate { term: 2 })),
                ],
                Some(1),
            ),
            (
                "a no-op changes nothing",
                vec![(10, a, Step::Says(gate(1, 1, 1, 50))), (20, b, Step::Says(commits(2, 2)))],
                None,
            ),
            (
                "opened afterwards",
                vec![(20, b, Step::Says(commits(2, 3))), (30, a, Step::Says(gate(1, 1, 1, 50)))],
                Some(1),
            ),
            (
                "opened too late",
                vec![(20, b, Step::Says(commits(2, 3))), (60, a, Step::Says(gate(1, 1, 1, 50)))],
                None,
            ),
            (
                "of a later term",
                vec![(20, b, Step::Says(commits(2, 3))), (30, a, Step::Says(gate(3, 1, 1, 50)))],
                None,
            ),
            (
                "its own",
                vec![(10, b, Step::Says(gate(1, 1, 1, 50))), (20, b, Step::Says(commits(2, 3)))],
                None,
            ),
            (
                "limbo covers it",
                vec![(10, a, Step::Says(gate(1, 1, 3, 50))), (20, b, Step::Says(commits(2, 3)))],
                None,
            ),
            (
                "limbo ends before it",
                vec![(10, a, Step::Says(gate(1, 1, 2, 50))), (20, b, Step::Says(commits(2, 3)))],
                Some(1),
            ),
            (
                "seen meanwhile",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (15, a, Step::Says(Fact::Applied { slot: 3, digest: 3 })),
                    (20, b, Step::Says(commits(2, 3))),
                ],
                None,
            ),
            (
                "closed",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (15, a, Step::Says(closed)),
                    (20, b, Step::Says(commits(2, 3))),
                ],
                None,
            ),
            (
                "its leader follows",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (15, a, Step::Says(Fact::Follows)),
                    (20, b, Step::Says(commits(2, 3))),
                ],
                None,
            ),
            (
                "crashed",
                vec![
                    (10, a, Step::Says(gate(1, 1, 1, 50))),
                    (15, a, Step::Crashes),
                    (20, b, Step::Says(commits(2, 3))),
                ],
                None,
            ),
            (
                "by its own clock",
                vec![
                    (
                        10,
                        a,
                        Step::Says(Fact::ReadGate {
                            term: 1,
                            index: 1,
                            limbo: 1,
                            until: Some(Until::Clock(Time::from_nanos(50))),
                        }),
                    ),
                    (49, b, Step::Says(commits(2, 3))),
                ],
                Some(1),
            ),
            (
                "by its own clock, over",
                vec![
                    (
                        10,
                        a,
                        Step::Says(Fact::ReadGate {
                            term: 1,
                            index: 1,
                            limbo: 1,
                            until: Some(Until::Clock(Time::from_nanos(50))),
                        }),
                    ),
                    (50, b, Step::Says(commits(2, 3))),
                ],
                None,
            ),
        ];
        for (name, steps, rejected) in cases {
            let begin = begin.clone().map(|(who, fact)| (0, who, Step::Says(fact)));
            let rejected = rejected.map(|at| at + begin.len());
            let steps: Vec<_> = begin.into_iter().chain(steps).collect();
            assert_eq!(first_rejected_step(&mut ReadGates::default(), &steps), rejected, "{name}");
        }
    }
}
