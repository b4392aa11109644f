//! Early accept notes (§3.2.2): acceptors tell the responders of what they vote for, so that these know as early as
//! the leader that it is chosen. They count **by the commit rule**: a majority, and all responders of all keys in
//! the batch; and slot by slot in order, because an earlier slot may change whose votes count (reconfiguration).

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Kind};
use quorate_blocks::coding::spread::ShardSet;
use quorate_core::{Context, NodeId, NodeSet, mutation};

use super::{Policy, Replica, message};
use crate::paxos::engine::MAX_GAP;
use crate::paxos::engine::slots::CommitTracker;
use crate::paxos::rosters;

/// Who has noted a vote, by slot, in the ballot that is promised.
pub(super) type Notes = BTreeMap<u64, NodeSet>;

/// Votes are about to be told to the leader: tell the responders too, itself included.
pub(super) fn tell(replica: &Replica, slots: &[(u64, u64)], cx: &mut Context<'_, Replica>) {
    let ballot = replica.promised();
    let Some(leader) = ballot.node().filter(|_| replica.config().policy.early_notes) else { return };
    let ballot_config = replica.ballot_config();
    let mut to = NodeSet::EMPTY;
    for slot in slots.iter().flat_map(|(first, last)| *first..=*last) {
        if let Some(written) = replica.writes().of(slot) {
            to = to.union(rosters::readers_of(&ballot_config.roster, written));
        }
    }
    let note = message::Message::Note { ballot, slots: slots.to_vec() };
    cx.send_all(to.without(leader), super::Message::Own(note));
}

/// Another, or this replica itself, has voted.
pub(super) fn on_note(
    replica: &mut Replica,
    from: NodeId,
    ballot: Ballot,
    slots: &[(u64, u64)],
    cx: &mut Context<'_, Replica>,
) {
    if ballot != replica.promised() || !replica.is_current() {
        return;
    }
    let committed = replica.log().committed();
    for &(first, last) in slots {
        for slot in first.max(committed + 1)..=last.min(committed + MAX_GAP) {
            replica.policy.notes.entry(slot).or_insert(NodeSet::EMPTY).insert(from);
            if mutation::active("bodega/notes-of-former-voters") && count(replica, slot, cx).is_some() {
                replica.execute(cx);
            }
        }
    }
    // Only who has executed all slots before one knows whose votes decide it: a configuration may be among them.
    loop {
        let mut next = replica.state().applied() + 1;
        let first = next;
        while let Some(kind) = count(replica, next, cx) {
            next += 1;
            if kind == Kind::Configuration {
                break;
            }
        }
        if next == first {
            return;
        }
        replica.execute(cx);
    }
}

/// If the notes of a slot are enough, its value is chosen: of what kind that is. The own vote says what they are for,
/// and comes as a note of its own when it is durable.
fn count(replica: &mut Replica, slot: u64, cx: &mut Context<'_, Replica>) -> Option<Kind> {
    let (me, ballot) = (replica.me(), replica.promised());
    let voters = replica.policy.notes.get(&slot).filter(|voters| voters.contains(me)).copied()?;
    let vote = replica.log().get(slot).filter(|vote| vote.ballot == ballot && !vote.chosen)?;
    let value = vote.value.whole()?.clone();
    let required = match mutation::active("bodega/released-at-m-notes") {
        true => NodeSet::EMPTY,
        // Of the ballot, whoever is excluded in it: that the leader knows alone.
        false => Policy::named(replica, &value),
    };
    let mut tracker = CommitTracker::new(replica.configuration().tally(), required, 0);
    voters.iter().for_each(|voter| tracker.add(voter, NodeSet::EMPTY, ShardSet::ALL));
    tracker.is_reached().then(|| {
        let kind = Batch::kind(&value);
        replica.choose(slot, value, cx);
        kind
    })
}

/// Forgets what is executed.
pub(super) fn executed(notes: &mut Notes, upto: u64) {
    while notes.first_entry().filter(|entry| *entry.key() <= upto).map(|entry| entry.remove()).is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_for_what_is_not_executed() {
        let mut notes: Notes = [1, 2, 4, 5].map(|slot| (slot, NodeSet::ALL)).into();
        for (upto, kept) in [(0, vec![1, 2, 4, 5]), (3, vec![4, 5]), (4, vec![5]), (9, vec![])] {
            executed(&mut notes, upto);
            assert_eq!(notes.keys().copied().collect::<Vec<_>>(), kept, "{upto}");
        }
    }
}
