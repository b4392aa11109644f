//! Local reads: answered, held, or refused (§3.2.2).

use bytes::Bytes;
use quorate_blocks::clients::Gate;
use quorate_core::{Time, Wire, mutation};
use quorate_store::Command;
use quorate_store::footprint::Extent;

use super::Replica;
use crate::paxos::engine::Role;
use crate::paxos::rosters;

/// **The read gate**, of the leader and of responders.
pub(super) fn gate(replica: &Replica, command: &Bytes, now: Time) -> Gate {
    let slot = match replica.role() {
        Role::Leader(_) => waits_for(replica, command),
        Role::Follower | Role::Polling(_) | Role::Candidate(_) => match answerable(replica, command, now) {
            None => return Gate::Redirect,
            slot => slot,
        },
    };
    slot.filter(|slot| *slot > replica.state().applied()).map_or(Gate::Serve, Gate::Hold)
}

/// As the leader: the slot that a read has to wait for, if not for the present state. A responder may have shown what
/// is in it.
fn waits_for(replica: &Replica, command: &Bytes) -> Option<u64> {
    if !replica.config().policy.early_notes || mutation::active("bodega/leader-answers-committed") {
        return None;
    }
    let command = Command::from_bytes(command.clone()).ok()?;
    let footprint = command.footprint();
    // Of keys that only the leader answers reads of, nobody else can have shown a write, unless it was one to other
    // keys too.
    let alone =
        rosters::readers(&replica.ballot_config().roster, footprint.reads()).without(replica.me()).is_empty();
    match alone {
        true => replica.writes().last_shared(footprint.reads()),
        false => replica.writes().last(footprint.reads()),
    }
}

/// **The read rule.** The slot after which a read can be answered here, if it can.
fn answerable(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
    let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
    let stable = responds(replica, footprint.reads()) && replica.is_stable(now);
    stable.then(|| replica.writes().last(footprint.reads()).unwrap_or(0))
}

/// How many writes may be missing here that are acknowledged (§7): all of them have this responder's vote.
pub(super) fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
    let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
    let stable = replica.is_stable(now) || mutation::active("bodega/versions-unstable");
    let known = responds(replica, footprint.reads()) && stable;
    known.then(|| replica.writes().versions(footprint.reads())).flatten()
}

/// Whether the roster names it for all these keys.
fn responds(replica: &Replica, extent: &Extent) -> bool {
    rosters::covers(&replica.ballot_config().roster, replica.me(), extent)
}
