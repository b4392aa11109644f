//! Local reads: answered or refused.

use bytes::Bytes;
use quorate_blocks::clients::{Ask, PendingRead};
use quorate_blocks::state::TIMELESS;
use quorate_core::{Context, Fact, ProcessId, Time, Wall, Wire, mutation};
use quorate_store::Command;
use quorate_store::footprint::Extent;

use super::{Replica, regrants, roster};
use crate::paxos::engine::Role;
use crate::paxos::rosters;

/// A proxy asks. At the leader the machine answers.
pub(super) fn on_ask(replica: &mut Replica, from: ProcessId, ask: &mut Ask, cx: &mut Context<'_, Replica>) {
    if matches!(replica.role(), Role::Leader(_)) || ask.reads.is_empty() {
        return;
    }
    let mut refused = Vec::new();
    for (id, command) in std::mem::take(&mut ask.reads) {
        let read = PendingRead { proxy: from, nonce: ask.nonce, id, command };
        if !answer(replica, read, cx) {
            refused.push(id);
        }
    }
    replica.served.refused.add(refused.len());
    let leader = replica.leader(cx.now());
    replica.intake.refuse(from, ask.nonce, refused, leader);
}

/// **The read rule.**
fn is_readable(replica: &Replica, command: &Bytes, now: Time) -> bool {
    let Ok(command) = Command::from_bytes(command.clone()) else { return false };
    let footprint = command.footprint();
    let extent = footprint.reads();
    let accepted = replica.policy.writes.last(extent).is_some();
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
    known.then(|| replica.policy.writes.versions(footprint.reads())).flatten()
}

/// Whether it would be answered at once; keys must not expire.
pub(super) fn would_answer(replica: &Replica, command: &Bytes, now: Time) -> Option<Wall> {
    is_readable(replica, command, now).then_some(TIMELESS)
}

fn answer(replica: &mut Replica, read: PendingRead, cx: &mut Context<'_, Replica>) -> bool {
    if !is_readable(replica, &read.command, cx.now()) {
        return false;
    }
    if !replica.intake.has_room() {
        // Too much is on its way out: its proxy asks again.
        return true;
    }
    let Some(reply) = replica.state().read_lasting(&read.command) else { return false };
    replica.note_reads(cx);
    let number = replica.promised().number();
    cx.note(|| Fact::ServesLocally { number });
    replica.served.local.add(1);
    replica.intake.on_read(read, reply);
    true
}
