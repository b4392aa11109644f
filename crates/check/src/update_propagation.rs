//! Update propagation: what a member of a chain has, its predecessor has. (Van Renesse and Schneider 2004, §2.1,
//! *Update Propagation Invariant*.) And an epoch has one chain.
//!
//! Judged of entries that were made in the epoch in which a member has them: older ones may be left from before. Where
//! logs match ([`log_matching`](super::log_matching)), the last such entry vouches for those before it. A predecessor
//! that is in a later epoch already may have removed some. One that was restarted may have a damaged disk, with which
//! it takes no part: it is judged when it comes back to the chain.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId};

use super::log::{Log, Logs};
use super::{Checker, Clocks, Process, Violation};

const NAME: &str = "update-propagation";

/// See the [module](self).
#[derive(Debug, Default)]
pub struct UpdatePropagation {
    logs: Logs,
    /// By epoch, from the head to the tail.
    chains: BTreeMap<u64, Vec<NodeId>>,
    /// The last epoch whose chain each member has heard of.
    epochs: BTreeMap<NodeId, u64>,
}

impl Checker for UpdatePropagation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn waits_for(&self) -> &'static [&'static str] {
        &["Chain"]
    }

    fn on_founded(&mut self, slot: u64, _members: u64) {
        self.logs.on_founded(slot);
    }

    fn on_fact(&mut self, at: u64, who: Process, fact: &Fact, _: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_fact(who, fact);
        let holds = match fact {
            Fact::Chain { number, members } => self.on_chain(who.node, *number, members),
            Fact::Appended { index, term, .. } => self.is_with_predecessor(who.node, *index, *term),
            _ => Ok(()),
        };
        holds.map_err(|what| Violation { checker: NAME, at, what })
    }

    fn on_crash(&mut self, _: u64, who: Process, _: &dyn Clocks) -> Result<(), Violation> {
        self.logs.on_crash(who);
        self.epochs.remove(&who.node);
        Ok(())
    }
}

impl UpdatePropagation {
    /// A member comes to an epoch, or back to it after a restart, with what its disk has kept.
    fn on_chain(&mut self, node: NodeId, number: u64, members: &[NodeId]) -> Result<(), String> {
        let chain = self.chains.entry(number).or_insert_with(|| members.to_vec());
        if *chain != members {
            return Err(format!(
                "the chain of epoch {number} is {members:?} for {node:?}, and {chain:?} for others"
            ));
        }
        self.epochs.insert(node, number);
        let Some(successor) = chain.iter().skip_while(|member| **member != node).nth(1).copied() else {
            return Ok(());
        };
        let last = self.logs.log(successor).map_or(0, Log::last);
        match self.logs.log(successor).and_then(|log| log.term(last)) {
            Some(term) if term == number => self.is_with_predecessor(successor, last, number),
            _ => Ok(()),
        }
    }

    /// A member has this entry.
    fn is_with_predecessor(&self, node: NodeId, index: u64, term: u64) -> Result<(), String> {
        // In a later epoch it may come from another.
        let is_here = self.epochs.get(&node) == Some(&term);
        let Some(chain) = self.chains.get(&term).filter(|_| is_here) else { return Ok(()) };
        let predecessor = match chain.iter().position(|member| *member == node) {
            Some(0) => return Ok(()),
            Some(place) => chain[place - 1],
            // Those outside get entries from the tail.
            None => chain[chain.len() - 1],
        };
        let is_there = self.epochs.get(&predecessor).is_some_and(|epoch| *epoch <= term);
        if !is_there || self.logs.log(predecessor).is_some_and(|log| log.has(index, term)) {
            return Ok(());
        }
        Err(format!("{node:?} has entry {index} of epoch {term}, and {predecessor:?} before it has not"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Step, first_rejected, first_rejected_step, node, who};
    use super::*;

    #[test]
    fn what_a_member_has_its_predecessor_has() {
        let (a, b, c, b2) = (who(1, 0), who(2, 0), who(3, 0), who(2, 1));
        let entry = |index, term| Fact::Appended { index, term, digest: index, writes: true };
        let chain = |number, ids: &[u64]| {
            let members = ids.iter().map(|id| node(*id)).collect();
            Fact::Chain { number, members }
        };
        let begins = Fact::Begins { index: 0, term: 0 };
        let three = |number| [a, b, c].map(|who| (who, chain(number, &[1, 2, 3]))).to_vec();
        let cases = [
            ("down the chain", vec![(a, entry(1, 1)), (b, entry(1, 1)), (c, entry(1, 1))], None),
            ("past the next one", vec![(a, entry(1, 1)), (c, entry(1, 1))], Some(4)),
            ("another entry", vec![(a, entry(1, 1)), (b, entry(2, 1))], Some(4)),
            (
                "forgotten by one that it has passed",
                vec![
                    (a, entry(1, 1)),
                    (b, entry(1, 1)),
                    (c, entry(1, 1)),
                    (b2, begins.clone()),
                    (b2, chain(1, &[1, 2, 3])),
                ],
                Some(7),
            ),
            (
                "in its state",
                vec![
                    (a, entry(1, 1)),
                    (b, entry(1, 1)),
                    (c, entry(1, 1)),
                    (b2, Fact::Begins { index: 1, term: 1 }),
                    (b2, chain(1, &[1, 2, 3])),
                ],
                None,
            ),
            ("another chain of the same epoch", vec![(b, chain(1, &[1, 3, 2]))], Some(3)),
            (
                "left from an earlier epoch",
                vec![(a, entry(1, 1)), (b, entry(1, 1)), (c, chain(2, &[3, 2])), (b, chain(2, &[3, 2]))],
                None,
            ),
            (
                "removed in a later one",
                vec![
                    (a, entry(1, 1)),
                    (b, entry(1, 1)),
                    (b, chain(2, &[3, 2])),
                    (b, Fact::Truncated { index: 1 }),
                    (c, entry(1, 1)),
                ],
                None,
            ),
            (
                "of an earlier epoch, from another",
                vec![(a, entry(1, 1)), (a, chain(2, &[1, 3])), (c, chain(2, &[1, 3])), (c, entry(1, 1))],
                None,
            ),
            (
                "outside, from the tail",
                [a, b, c]
                    .map(|who| (who, chain(2, &[1, 2])))
                    .into_iter()
                    .chain([(a, entry(1, 2)), (c, entry(1, 2))])
                    .collect(),
                Some(7),
            ),
        ];
        for (name, facts, rejected) in cases {
            let facts: Vec<_> = three(1).into_iter().chain(facts).collect();
            assert_eq!(first_rejected(&mut UpdatePropagation::default(), &facts), rejected, "{name}");
        }
    }

    #[test]
    fn what_one_has_sent_before_it_crashes_may_arrive_later() {
        let (a, b, c) = (who(1, 0), who(2, 0), who(3, 0));
        let chain = Fact::Chain { number: 1, members: [1, 2, 3].map(node).to_vec() };
        let entry = |index| Step::Says(Fact::Appended { index, term: 1, digest: index, writes: true });
        let begin = [a, b, c].map(|who| (who, Step::Says(chain.clone())));
        let steps =
            [(a, entry(1)), (b, entry(1)), (b, Step::Crashes), (c, entry(1)), (a, entry(2)), (c, entry(2))];
        let steps = begin.into_iter().chain(steps).zip(0..).map(|((who, step), at)| (at, who, step));
        let steps: Vec<_> = steps.collect();
        assert_eq!(first_rejected_step(&mut UpdatePropagation::default(), &steps), None);
    }
}
