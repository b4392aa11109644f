//! What facts say of the logs of a group: what each replica has in its own, what is committed, who counts. A model that
//! several checkers read; it judges nothing itself.
//!
//! A log is kept as the runs of equal terms in it. That is all there is to know of a log in which equal indexes and
//! terms mean equal entries ([`log_matching`](super::log_matching) sees to that), and it stays small.

use std::collections::BTreeMap;

use quorate_core::{Fact, NodeId, NodeSet};

use super::Process;

/// Indexes and terms of a log that begins after a base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    base: (u64, u64),
    /// First indexes and terms, ascending.
    runs: Vec<(u64, u64)>,
    last: u64,
}

impl Log {
    /// Of nothing after this entry.
    pub fn after(index: u64, term: u64) -> Log {
        Log { base: (index, term), runs: Vec::new(), last: index }
    }

    /// The last index that is not in it.
    pub fn base(&self) -> u64 {
        self.base.0
    }

    /// The last index.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The term of an entry that is in it, or of its base.
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        if index < self.base.0 || index > self.last {
            return None;
        }
        let run = self.runs.partition_point(|(first, _)| *first <= index);
        Some(self.runs[run - 1].1)
    }

    /// Whether it has the entry: itself, or in the state that it begins after.
    pub fn has(&self, index: u64, term: u64) -> bool {
        index < self.base.0 || self.term(index) == Some(term)
    }

    /// Adds an entry at its end; what was there and behind is gone.
    pub fn append(&mut self, index: u64, term: u64) {
        self.truncate(index);
        if self.runs.last().is_none_or(|(_, last)| *last != term) {
            self.runs.push((index, term));
        }
        self.last = index;
    }

    /// Removes the entries from this one on.
    pub fn truncate(&mut self, index: u64) {
        self.last = self.last.min(index.saturating_sub(1));
        while self.runs.last().is_some_and(|(first, _)| *first >= index) {
            self.runs.pop();
        }
    }
}

/// Who counts, as of an index of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Where it is written; 0 for the initial one.
    pub index: u64,
    /// A majority of these decides.
    pub voters: NodeSet,
    /// And a majority of these, if there are any.
    pub outgoing: NodeSet,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Logs {
    logs: BTreeMap<NodeId, Log>,
    leaders: BTreeMap<NodeId, u64>,
    committed: Log,
    configured: BTreeMap<NodeId, Configured>,
    /// By index and term.
    written: BTreeMap<(u64, u64), Configured>,
    /// By index, as said by processes that say nothing of their logs: they state what they execute.
    executed: BTreeMap<u64, Configured>,
}

impl Logs {
    /// The group begins with a state that counts as that after this slot.
    pub fn on_founded(&mut self, slot: u64) {
        self.committed = Log::after(slot, 0);
    }

    /// Takes a fact in.
    pub fn on_fact(&mut self, who: Process, fact: &Fact) {
        match *fact {
            Fact::Appended { index, term, .. } => self.logs.entry(who.node).or_default().append(index, term),
            Fact::Begins { index, term } => {
                self.logs.insert(who.node, Log::after(index, term));
            }
            Fact::Truncated { index } => self.logs.entry(who.node).or_default().truncate(index),
            Fact::Leads { number } => {
                self.leaders.insert(who.node, number);
            }
            Fact::Follows => {
                self.leaders.remove(&who.node);
            }
            Fact::Commits { index, .. } => {
                if let Some(log) = self.logs.get(&who.node) {
                    for index in self.committed.last() + 1..=index {
                        let Some(term) = log.term(index) else { break };
                        self.committed.append(index, term);
                    }
                }
            }
            // Whoever is to join a group knows of nobody at first.
            Fact::Configured { voters, .. } if voters.is_empty() => {
                self.configured.remove(&who.node);
            }
            Fact::Configured { index, voters, outgoing } => {
                let configured = Configured { index, voters, outgoing };
                self.configured.insert(who.node, configured);
                if self.log(who.node).is_none() {
                    self.executed.entry(index).or_insert(configured);
                    return;
                }
                // Whatever is below a base is committed.
                let own = self.log(who.node).and_then(|log| log.term(index));
                if let Some(term) = own.or(self.committed.term(index)) {
                    self.written.insert((index, term), configured);
                }
            }
            Fact::Chosen { .. }
            | Fact::Stored { .. }
            | Fact::Applied { .. }
            | Fact::Executed { .. }
            | Fact::Installed { .. }
            | Fact::Promised { .. }
            | Fact::Believes { .. }
            | Fact::ReadsLocally { .. }
            | Fact::ReadGate { .. }
            | Fact::PassesGate { .. }
            | Fact::Decided { .. }
            | Fact::Ordered { .. }
            | Fact::Chain { .. }
            | Fact::Live { .. }
            | Fact::Valid { .. }
            | Fact::Invalid { .. }
            | Fact::ServesLocally { .. } => {}
        }
    }

    /// A replica has crashed: nobody leads any more there. Its log stays until it says what is left.
    pub fn on_crash(&mut self, who: Process) {
        self.leaders.remove(&who.node);
    }

    /// The disk of a replica was lost, and its log with it.
    pub fn on_disk_lost(&mut self, node: NodeId) {
        self.logs.remove(&node);
    }

    /// The log of a replica, if it has spoken of it.
    pub fn log(&self, node: NodeId) -> Option<&Log> {
        self.logs.get(&node)
    }

    /// The term in which a replica leads.
    pub fn leads(&self, node: NodeId) -> Option<u64> {
        self.leaders.get(&node).copied()
    }

    /// What some leader has stated committed.
    pub fn committed(&self) -> &Log {
        &self.committed
    }

    /// What is in force at a replica.
    pub fn configured(&self, node: NodeId) -> Option<Configured> {
        self.configured.get(&node).copied()
    }

    /// What was written at this index in this term.
    pub fn written(&self, index: u64, term: u64) -> Option<Configured> {
        self.written.get(&(index, term)).copied()
    }

    /// The configuration that was executed at this index, by processes that say nothing of their logs.
    pub fn executed(&self, index: u64) -> Option<Configured> {
        self.executed.get(&index).copied()
    }

    /// The last one before this index.
    pub fn executed_before(&self, index: u64) -> Option<Configured> {
        self.executed.range(..index).next_back().map(|(_, configured)| *configured)
    }

    /// The last configuration that is committed.
    pub fn group(&self) -> Option<Configured> {
        if let Some((_, configured)) = self.executed.last_key_value() {
            return Some(*configured);
        }
        let committed = |(index, term): (u64, u64)| self.committed.term(index) == Some(term);
        self.written.iter().rev().find(|(at, _)| committed(**at)).map(|(_, configured)| *configured)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{node, who};
    use super::*;

    #[test]
    fn a_log_is_the_runs_of_its_terms() {
        let mut log = Log::after(3, 1);
        for (index, term) in [(4, 1), (5, 2), (6, 2), (7, 4)] {
            log.append(index, term);
        }
        let terms = |log: &Log| (2..9).map(|index| log.term(index)).collect::<Vec<_>>();
        assert_eq!(terms(&log), [None, Some(1), Some(1), Some(2), Some(2), Some(4), None]);
        assert!(log.has(2, 9) && log.has(5, 2) && !log.has(5, 1) && !log.has(8, 4));
        log.truncate(6);
        assert_eq!(terms(&log), [None, Some(1), Some(1), Some(2), None, None, None]);
        log.append(6, 5);
        log.append(5, 5);
        assert_eq!(terms(&log), [None, Some(1), Some(1), Some(5), None, None, None]);
    }

    #[test]
    fn without_a_log_what_is_in_force_is_executed() {
        let mut logs = Logs::default();
        let voters = |ids: &[u64]| ids.iter().map(|id| node(*id)).collect::<NodeSet>();
        for (index, ids) in [(0, [1, 2]), (9, [2, 3]), (4, [1, 3])] {
            logs.on_fact(who(1, 0), &Fact::Configured { index, voters: voters(&ids), outgoing: voters(&[]) });
        }
        assert_eq!(logs.group().map(|group| group.index), Some(9));
        assert_eq!(logs.executed_before(9).map(|before| before.voters), Some(voters(&[1, 3])));
        assert_eq!(logs.executed_before(0), None);
    }

    #[test]
    fn the_group_is_the_last_configuration_that_is_committed() {
        let mut logs = Logs::default();
        let set = |ids: &[u64]| ids.iter().map(|id| node(*id)).collect::<NodeSet>();
        let mut say = |node: u64, fact| {
            logs.on_fact(who(node, 0), &fact);
            logs.group().map(|group| (group.index, group.voters))
        };
        let appended = |index, term| Fact::Appended { index, term, digest: index, writes: false };
        let configured =
            |index, ids: &[u64]| Fact::Configured { index, voters: set(ids), outgoing: set(&[]) };
        assert_eq!(say(1, Fact::Begins { index: 0, term: 0 }), None);
        assert_eq!(say(1, configured(0, &[1, 2, 3])), Some((0, set(&[1, 2, 3]))));
        // The first is replaced before it is committed.
        say(1, appended(1, 1));
        assert_eq!(say(1, configured(1, &[1])), Some((0, set(&[1, 2, 3]))));
        say(2, appended(1, 2));
        say(2, configured(1, &[2]));
        assert_eq!(say(2, Fact::Commits { term: 2, index: 1 }), Some((1, set(&[2]))));
        say(1, Fact::Configured { index: 1, voters: set(&[1]), outgoing: set(&[]) });
        assert_eq!(say(3, Fact::Begins { index: 5, term: 2 }), Some((1, set(&[2]))));
        assert_eq!(say(3, configured(1, &[2])), Some((1, set(&[2]))), "below its base");
    }
}
