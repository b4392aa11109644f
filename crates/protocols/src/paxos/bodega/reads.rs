//! Local reads: answered, held, or refused (§3.2.2).

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_blocks::clients::{Ask, PendingRead};
use quorate_blocks::state::TIMELESS;
use quorate_core::{Context, Fact, ProcessId, Time, Wall, Wire, mutation};
use quorate_store::Command;
use quorate_store::footprint::Extent;

use super::Replica;
use crate::paxos::engine::Role;
use crate::paxos::rosters;

/// Reads that wait for a slot, and since when.
pub(super) type Holds = BTreeMap<u64, Vec<(PendingRead, Time)>>;

/// Beyond, reads are refused.
const MAX_HELD: usize = 1 << 16;

/// What becomes of a read.
enum ReadDecision {
    Answered,
    Held(u64),
    Refused,
}

/// A proxy asks. At the leader the machine answers.
pub(super) fn on_ask(replica: &mut Replica, from: ProcessId, ask: &mut Ask, cx: &mut Context<'_, Replica>) {
    if matches!(replica.role(), Role::Leader(_)) || ask.reads.is_empty() {
        return;
    }
    let now = cx.now();
    let mut refused = Vec::new();
    for (id, command) in std::mem::take(&mut ask.reads) {
        let read = PendingRead { proxy: from, nonce: ask.nonce, id, command };
        match decide(replica, &read, cx) {
            ReadDecision::Answered => replica.served.local.add(1),
            ReadDecision::Held(slot) if replica.policy.held < MAX_HELD => {
                replica.policy.held += 1;
                replica.policy.holds.entry(slot).or_default().push((read, now));
            }
            ReadDecision::Held(_) | ReadDecision::Refused => refused.push(id),
        }
    }
    replica.served.refused.add(refused.len());
    let leader = replica.leader(now);
    replica.intake.refuse(from, ask.nonce, refused, leader);
}

/// **The read rule.** The slot after which a read can be answered here, if it can.
fn answerable(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
    let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
    let stable = responds(replica, footprint.reads()) && replica.is_stable(now);
    stable.then(|| replica.policy.writes.last(footprint.reads()).unwrap_or(0))
}

/// How many writes may be missing here that are acknowledged (§7): all of them have this responder's vote.
pub(super) fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
    let footprint = Command::from_bytes(command.clone()).ok()?.footprint();
    let stable = replica.is_stable(now) || mutation::active("bodega/versions-unstable");
    let known = responds(replica, footprint.reads()) && stable;
    known.then(|| replica.policy.writes.versions(footprint.reads())).flatten()
}

/// Whether the roster names it for all these keys.
fn responds(replica: &Replica, extent: &Extent) -> bool {
    rosters::covers(&replica.ballot_config().roster, replica.me(), extent)
}

fn decide(replica: &mut Replica, read: &PendingRead, cx: &mut Context<'_, Replica>) -> ReadDecision {
    match answerable(replica, &read.command, cx.now()) {
        None => ReadDecision::Refused,
        Some(slot) if slot > replica.state().applied() => ReadDecision::Held(slot),
        Some(_) => answer(replica, read.clone(), cx),
    }
}

/// Whether it would be answered at once; keys must not expire.
pub(super) fn would_answer(replica: &Replica, command: &Bytes, now: Time) -> Option<Wall> {
    let slot = answerable(replica, command, now)?;
    (slot <= replica.state().applied()).then_some(TIMELESS)
}

fn answer(replica: &mut Replica, read: PendingRead, cx: &mut Context<'_, Replica>) -> ReadDecision {
    if !replica.intake.has_room() {
        // Too much is on its way out: its proxy asks again.
        return ReadDecision::Answered;
    }
    replica.note_reads(cx);
    let number = replica.promised().number();
    cx.note(|| Fact::ServesLocally { number });
    match replica.state().read_lasting(&read.command) {
        Some(reply) => {
            replica.intake.on_read(read, reply);
            ReadDecision::Answered
        }
        None => ReadDecision::Refused,
    }
}

/// Slots have been executed: what waited for them can be answered, if this replica is in a position to.
pub(super) fn release(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let (applied, now) = (replica.state().applied(), cx.now());
    while let Some(entry) = replica.policy.holds.first_entry().filter(|entry| *entry.key() <= applied) {
        let reads = entry.remove();
        replica.policy.held -= reads.len();
        let stable = replica.is_stable(now) || mutation::active("bodega/unheld-unstable");
        for (read, since) in reads {
            replica.served.held.add(now.since(since));
            let (proxy, nonce, id) = (read.proxy, read.nonce, read.id);
            if !stable || matches!(answer(replica, read, cx), ReadDecision::Refused) {
                replica.served.refused.add(1);
                let leader = replica.leader(now);
                replica.intake.refuse(proxy, nonce, vec![id], leader);
            }
        }
    }
}

/// This replica leaves its ballot, or what it knew of it: nothing can be waited for any more.
pub(super) fn refuse_held(replica: &mut Replica, now: Time) {
    let leader = replica.leader(now);
    replica.policy.held = 0;
    for (read, since) in std::mem::take(&mut replica.policy.holds).into_values().flatten() {
        replica.served.held.add(now.since(since));
        replica.served.refused.add(1);
        replica.intake.refuse(read.proxy, read.nonce, vec![read.id], leader);
    }
}
