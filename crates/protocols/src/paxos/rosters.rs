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
