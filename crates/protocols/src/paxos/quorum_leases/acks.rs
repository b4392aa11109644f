//! The grantor's half of the commit rule: with its vote, an acceptor tells the leader to whom it has granted a say in
//! the slot.

use quorate_blocks::batch::{Batch, Kind};
use quorate_core::{Context, NodeSet, mutation};
use quorate_store::command::Key;

use super::{Replica, roster};
use crate::paxos::engine::slots::{Ranges, add_slot};
use crate::paxos::rosters;

/// Each range of slots with those who must vote before this replica's votes count.
pub(super) fn acknowledge(
    replica: &mut Replica,
    slots: Ranges,
    cx: &mut Context<'_, Replica>,
) -> Vec<(NodeSet, Ranges)> {
    if mutation::active("quorum-leases/grants-not-reported") {
        return vec![(NodeSet::EMPTY, slots)];
    }
    let known = replica.granted(cx.now());
    // What an earlier incarnation granted, and regranted, is not remembered.
    let forgets = known.is_none();
    let granted = match known {
        Some(granted) => granted,
        None if mutation::active("quorum-leases/forgotten-in-the-restart-wait") => NodeSet::EMPTY,
        // The leader knows to whom that can have been.
        None => NodeSet::ALL,
    };
    let mut groups: Vec<(NodeSet, Ranges)> = Vec::new();
    for slot in slots.into_iter().flat_map(|(first, last)| first..=last) {
        let say = match granted.is_empty() {
            true => NodeSet::EMPTY,
            false => granted.intersection(covered(replica, slot, forgets)),
        };
        let found = groups.iter().position(|(set, _)| *set == say);
        let group = found.unwrap_or(groups.len());
        if found.is_none() {
            groups.push((say, Vec::new()));
        }
        add_slot(&mut groups[group].1, slot);
    }
    groups
}

/// The grantees of what a slot writes.
fn covered(replica: &mut Replica, slot: u64, forgets: bool) -> NodeSet {
    if slot <= replica.state().applied() {
        // Chosen: a say has been had.
        return NodeSet::EMPTY;
    }
    let value = kind(replica, slot);
    let knows = knows_roster(replica, slot) || mutation::active("quorum-leases/old-roster");
    if !knows || value == Some(Kind::Roster) {
        return NodeSet::ALL;
    }
    let replica = &*replica;
    let Some(written) = replica.writes().of(slot) else { return NodeSet::EMPTY };
    let roster = roster(replica);
    let skips = !replica.config().policy.passive && !forgets;
    match written.keys() {
        None if skips && replica.writes().clears_before(slot).any(|slot| is_voted(replica, slot)) => {
            NodeSet::EMPTY
        }
        None => roster.everyone(),
        Some(keys) => {
            let granted = keys.iter().filter(|key| !(skips && is_revoked(replica, key, slot)));
            rosters::of_any(roster, granted)
        }
    }
}

/// What the value of a slot is, if it is here; no value of this protocol comes in shards.
fn kind(replica: &Replica, slot: u64) -> Option<Kind> {
    replica.log().get(slot)?.value.whole().map(Batch::kind)
}

/// Active: an earlier write to the key has been accepted and is not executed. Whoever was granted the key has a say
/// in that one, and this one is executed later.
fn is_revoked(replica: &Replica, key: &Key, slot: u64) -> bool {
    let below = if mutation::active("quorum-leases/skips-for-higher-slots") { u64::MAX } else { slot };
    replica.writes().before(key, below).any(|other| other != slot && is_voted(replica, other))
}

/// Whether this ballot's value of a slot is here; and so it is the only one that may be chosen in this ballot.
fn is_voted(replica: &Replica, slot: u64) -> bool {
    replica.log().get(slot).is_some_and(|vote| vote.ballot == replica.promised())
}

/// Whether the roster that was executed is the one in force at a slot, because no slot in between may hold another.
fn knows_roster(replica: &mut Replica, slot: u64) -> bool {
    let mut same = replica.policy.same_roster.max(replica.state().applied());
    while same + 1 < slot
        && is_voted(replica, same + 1)
        && kind(replica, same + 1).is_some_and(|kind| kind != Kind::Roster)
    {
        same += 1;
    }
    replica.policy.same_roster = same;
    same + 1 >= slot
}
