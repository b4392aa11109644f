//! Who answers reads of what a command touches, by a roster; and how one roster comes after another.

use std::fmt;

use quorate_blocks::writes::Written;
use quorate_core::{DurationStat, NodeId, NodeSet, Roster, Sample, Status, Time};
use quorate_store::command::Key;
use quorate_store::footprint::Extent;

/// Whether a replica answers reads of all these keys.
pub fn covers(roster: &Roster, node: NodeId, extent: &Extent) -> bool {
    match extent {
        Extent::Everything => roster.has_all(node),
        Extent::Keys(keys) => keys.as_slice().iter().all(|key| roster.responders(key).contains(node)),
    }
}

/// Whoever answers reads of any of these keys.
pub fn readers(roster: &Roster, extent: &Extent) -> NodeSet {
    match extent {
        Extent::Everything => roster.everyone(),
        Extent::Keys(keys) => of_any(roster, keys.as_slice().iter()),
    }
}

/// Whoever answers reads of any key that is written.
pub fn readers_of(roster: &Roster, written: &Written) -> NodeSet {
    written.keys().map_or_else(|| roster.everyone(), |keys| of_any(roster, keys.iter()))
}

/// Whoever answers reads of any of these keys.
pub fn of_any<'a>(roster: &Roster, keys: impl Iterator<Item = &'a Key>) -> NodeSet {
    keys.fold(NodeSet::EMPTY, |all, key| all.union(roster.responders(key)))
}

/// How one roster comes after another: for people, and no part of the state.
#[derive(Default)]
pub struct Changes {
    stat: DurationStat,
    /// The last that was in force.
    last: Option<Roster>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl Changes {
    /// A roster is left: another may follow.
    pub fn leave(&mut self, now: Time) {
        self.stat.begin(now);
    }

    /// This one is in force here.
    pub fn in_force(&mut self, roster: &Roster, now: Time) {
        match self.last.as_ref().map(|last| last != roster) {
            Some(true) => self.stat.end(now),
            Some(false) | None => self.stat.cancel(),
        }
        if self.last.as_ref() != Some(roster) {
            self.last = Some(roster.clone());
        }
    }

    /// Adds to a status: the roster, who is excluded, and the changes.
    pub fn tell(&self, roster: &Roster, excluded: NodeSet, status: &mut Status) {
        status.facts.push(("roster", roster.to_string()));
        status.samples.extend([
            Sample::gauge("responders", roster.everyone().len(), "Responders by the roster, of any key."),
            Sample::gauge("responders_excluded", excluded.len(), "Those of them that are granted no lease."),
            Sample::counter("roster_changes_total", self.stat.count(), "Rosters that came into force here."),
            Sample::gauge(
                "roster_change_seconds",
                self.stat.last(),
                "From leaving the one before until a majority promised the last.",
            ),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use quorate_core::Range;
    use quorate_store::Command;

    use super::*;

    #[test]
    fn reads_of_several_keys_are_answered_by_those_who_answer_reads_of_each() {
        let node = |id| NodeId::new(id).expect("an id");
        let range = |from: &'static str, to: &'static str, responders: &[u64]| Range {
            from: Bytes::from(from),
            to: Some(Bytes::from(to)),
            responders: responders.iter().map(|id| node(*id)).collect(),
        };
        let roster = Roster::new(None, vec![range("a", "g", &[2]), range("g", "p", &[2, 3])]);
        let roster = roster.expect("two ranges");
        // keys | who answers reads of all of them | who answers reads of any
        let table = "
            b   | 2   | 2
            h   | 2 3 | 2 3
            b h | 2   | 2 3
            h z |     | 2 3
            z   |     |
        ";
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let columns: Vec<_> = line.split('|').map(str::trim).collect();
            let keys = columns[0].split(' ').map(|key| Bytes::from(key.to_owned())).collect();
            let footprint = Command::GetMany { keys }.footprint();
            let extent = footprint.reads();
            let covering = (1..=3).map(node).filter(|node| covers(&roster, *node, extent)).collect();
            let drawn = [covering, readers(&roster, extent)].map(|nodes: NodeSet| {
                nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(drawn, columns[1..], "{line}");
        }
    }
}
