//! **Bars**: how writes come to do without a responder that has failed, in the ballot that is, without a pause in the
//! others' reads.
//!
//! A responder reads while it believes promises of a majority, its own among them. The leader names it to all
//! (`Bars`); whoever hears that notes it for good, grants it no lease any more, waits until the one that it granted
//! has ended, and says so (`Barred`). The responder itself, if it hears that, reads no more, and says so too. When
//! a majority of the voters have said so, each majority of promises that the responder could count has one among
//! them: it is not in a position to read, and will not be. From then on writes do without it.
//!
//! - Confirmed bars are as durable as the ballot (they are noted in its charter): a replica that restarts would
//!   else grant, or read, by what it heard before, or by a late message. In a new ballot the first bars come with
//!   the ballot.
//! - *A responder comes back in two steps.* First it is required again for all that is not chosen, and stays barred
//!   until it has executed whatever was proposed before. Then it is named no more. Those that have not heard of it in
//!   all the time may promise by a threshold that lies before what was chosen without it: it must not depend on them.
//! - When the group changes, all are barred: their promises must not be counted by a majority that is none any more.

use std::collections::BTreeMap;

use quorate_core::{Context, NodeId, NodeSet, Time, mutation};
use quorate_parts::ballot::Ballot;
use quorate_parts::paxos::Role;

use super::charter::Charter;
use super::{Policy, Replica, message, reads};

/// As a leader sees it.
#[derive(Debug, Default)]
pub(super) struct Bars {
    seq: u64,
    out: BTreeMap<NodeId, Out>,
    /// What each voter has confirmed. All have confirmed 0, which came with the ballot.
    confirmed: BTreeMap<NodeId, u64>,
}

/// One that is barred.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// Since these bars.
    seq: u64,
    since: Time,
    /// It is required again, for all slots behind this one; when it has executed those up to here, it may come back.
    back: Option<u64>,
}

impl Bars {
    /// Of a ballot that begins with these.
    pub(super) fn new(barred: NodeSet, now: Time) -> Bars {
        let out = barred.iter().map(|node| (node, Out { seq: 0, since: now, back: None })).collect();
        Bars { seq: 0, out, confirmed: BTreeMap::new() }
    }

    /// All that are barred.
    pub(super) fn nodes(&self) -> NodeSet {
        self.out.keys().copied().collect()
    }
}

/// Those that writes can do without: they cannot read under this ballot, by what a majority has confirmed.
pub(super) fn excluded(replica: &Replica) -> NodeSet {
    let bars = &replica.policy.bars;
    let confirmed = |node| Some(bars.confirmed.get(&node).copied().unwrap_or(0));
    let reached = match mutation::active("bodega/bars-unconfirmed") {
        true => Some(u64::MAX),
        false => replica.configuration().reached(confirmed),
    };
    let Some(reached) = reached else { return NodeSet::EMPTY };
    let out = bars.out.iter().filter(|(_, out)| out.seq <= reached && out.back.is_none());
    out.map(|(node, _)| *node).collect()
}

/// Who is to be barred, and who no more; tells all of it. Returns whether that has changed.
pub(super) fn review(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
    let now = cx.now();
    let (failure, me) = (replica.config().policy.failure, replica.me());
    let changing = replica.is_changing();
    let Some(last) = replica.last_proposed() else { return false };
    let (mut named, mut required) = (false, false);
    for node in replica.charter().roster.everyone().without(me).iter() {
        let fit = replica.has_heard(node, failure, now) && replica.configuration().votes(node) && !changing;
        let (near, seq) = (replica.is_near(node), replica.policy.bars.seq + 1);
        let done = |slot| replica.has_executed(node, slot) || mutation::active("bodega/back-at-once");
        let done = replica.policy.bars.out.get(&node).and_then(|out| out.back).is_some_and(done);
        match replica.policy.bars.out.get_mut(&node) {
            None if !fit => {
                replica.policy.bars.out.insert(node, Out { seq, since: now, back: None });
                named = true;
            }
            Some(Out { back: Some(_), .. }) if fit && done => {
                replica.policy.bars.out.remove(&node);
                named = true;
            }
            Some(Out { back: back @ Some(_), .. }) if !fit => {
                *back = None;
                required = true;
            }
            Some(Out { since, back: back @ None, .. }) if fit && now.since(*since) >= failure && near => {
                *back = Some(last);
                required = true;
            }
            None | Some(_) => {}
        }
    }
    if named {
        replica.policy.bars.seq += 1;
        tell(replica, cx);
    }
    if required {
        replica.reconsider(cx);
    }
    named
}

/// Tells everybody.
pub(super) fn tell(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    if replica.charter().roster.ranges().is_empty() {
        return;
    }
    let (ballot, seq, nodes) = (replica.promised(), replica.policy.bars.seq, replica.policy.bars.nodes());
    let message = message::Message::Bars { ballot, seq, nodes };
    cx.send_all(replica.configuration().all(), super::Message::Own(message));
}

/// As a grantor.
pub(super) fn on_bars(
    replica: &mut Replica,
    from: NodeId,
    ballot: Ballot,
    seq: u64,
    nodes: NodeSet,
    cx: &mut Context<'_, Replica>,
) {
    if ballot != replica.promised() || ballot.node() != Some(from) {
        return;
    }
    if replica.charter().seq < seq {
        let charter = Charter { seq, barred: nodes, ..replica.charter().clone() };
        replica.amend(charter, cx);
        if nodes.contains(replica.me()) {
            reads::refuse_held(replica, cx.now());
        }
        replica.note_reads(cx);
    }
    let Charter { seq, barred, .. } = *replica.charter();
    if replica.withdraw(barred, cx).is_none() {
        cx.send(from, super::Message::Own(message::Message::Barred { ballot, seq }));
    }
}

/// As the leader.
pub(super) fn on_barred(
    replica: &mut Replica,
    from: NodeId,
    ballot: Ballot,
    seq: u64,
    cx: &mut Context<'_, Replica>,
) {
    if ballot == replica.promised() && matches!(replica.role(), Role::Leader(_)) {
        let known = replica.policy.bars.confirmed.entry(from).or_default();
        if *known < seq {
            *known = seq;
            replica.reconsider(cx);
        }
    }
}

/// Before the group changes: whether all are barred for certain.
pub(super) fn all_out(replica: &mut Replica) -> bool {
    let others = replica.charter().roster.everyone().without(replica.me());
    let excluded = excluded(replica);
    others.iter().all(|node| excluded.contains(node))
}

impl Policy {
    /// To whom this replica grants, in the ballot that it has promised.
    pub(super) fn granted_by(replica: &Replica) -> NodeSet {
        if !replica.charter().known {
            return NodeSet::EMPTY;
        }
        let Charter { roster, barred, .. } = replica.charter();
        let responders: NodeSet = roster.everyone().iter().filter(|node| !barred.contains(*node)).collect();
        responders.union(replica.promised().node().into_iter().collect())
    }

    /// Whom the roster names for the keys of a value.
    pub(super) fn named(replica: &Replica, value: &bytes::Bytes) -> NodeSet {
        let written = quorate_parts::writes::Written::by(value);
        if mutation::active("bodega/one-key-of-a-batch")
            && let Some(key) = written.keys().and_then(|keys| keys.first())
        {
            return replica.charter().roster.responders(key);
        }
        replica.charter().responders(&written)
    }
}

/// Whom a value must reach at this leader.
pub(super) fn required(replica: &Replica, value: &bytes::Bytes) -> NodeSet {
    let excluded = excluded(replica);
    let named = Policy::named(replica, value);
    named.iter().filter(|node| !excluded.contains(*node)).collect()
}
