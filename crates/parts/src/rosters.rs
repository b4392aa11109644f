//! Who answers reads of what a command touches, by a roster.

use quorate_core::{NodeId, NodeSet, Roster};
use quorate_store::command::Key;
use quorate_store::footprint::Extent;

use crate::writes::Written;

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
