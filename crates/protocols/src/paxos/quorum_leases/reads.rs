//! Local reads: answered or refused.

use bytes::Bytes;
use quorate_blocks::clients::Gate;
use quorate_core::{Time, Wire, mutation};
use quorate_store::Command;
use quorate_store::footprint::Extent;

use super::{Replica, regrants, roster};
use crate::paxos::engine::Role;
use crate::paxos::rosters;

/// **The read gate.** At the leader the machine's lease is enough.
pub(super) fn gate(replica: &Replica, command: &Bytes, now: Time) -> Gate {
    match matches!(replica.role(), Role::Leader(_)) || is_readable(replica, command, now) {
        true => Gate::Serve,
        false => Gate::Redirect,
    }
}

/// **The read rule.**
fn is_readable(replica: &Replica, command: &Bytes, now: Time) -> bool {
    let Ok(command) = Command::from_bytes(command.clone()) else { return false };
    let footprint = command.footprint();
    let extent = footprint.reads();
    let accepted = replica.writes().last(extent).is_some();
    knows(replica, extent, now) && (!accepted || mutation::active("quorum-leases/reads-over-accepted"))
}

/// Whether every write of these keys that is acknowledged is executed here, or voted for.
fn knows(replica: &Replica, extent: &Extent, now: Time) -> bool {
    rosters::covers(roster(replica), replica.me(), extent)
        && replica.is_stable(now)
        && (replica.config().policy.passive || regrants::are_regranted(replica, extent, now))
}

/// How many writes may be missing here that are acknowledged.
pub(super) fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
    let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
    let known = knows(replica, footprint.reads(), now);
    known.then(|| replica.writes().versions(footprint.reads())).flatten()
}
