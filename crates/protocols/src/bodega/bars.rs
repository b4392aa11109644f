//! **Bars**: how writes come to do without a responder that has failed, in the ballot that is, without a pause in the
//! others' reads.
//!
//! A responder reads while it believes promises of a majority. The leader names it to all (`Bars`); whoever hears that
//! grants it no lease any more, waits until the one that it granted has ended, and says so (`Barred`). When a majority
//! of the voters have said so, each majority of promises that the responder could count has one among them: it is not
//! in a position to read, and will not be. From then on writes do without it.
//!
//! - A grantor that restarts forgets the bars, so it grants nothing in the ballot that it was in before its leader has
//!   told it again. In a new ballot the first bars come with the ballot itself.
//! - To let a responder in again the leader first requires it for all that is not chosen, then lifts the bar. What was
//!   chosen without it is known to a majority by then; each later promise tells the highest slot that its grantor has
//!   accepted, so the responder reads when it has executed all that.
//! - When the group changes, all are barred: their promises must not be counted by a majority that is none any more.

use std::collections::BTreeMap;

use quorate_core::{Context, NodeId, NodeSet, Time, mutation};
use quorate_parts::ballot::Ballot;
use quorate_parts::paxos::Role;

use super::{Policy, Replica, message};

/// As a leader sees it.
#[derive(Debug, Default)]
pub(super) struct Bars {
    seq: u64,
    /// Who is barred: since which `seq`, and when.
    out: BTreeMap<NodeId, (u64, Time)>,
    /// What each voter has confirmed. All have confirmed 0, which came with the ballot.
    confirmed: BTreeMap<NodeId, u64>,
}

impl Bars {
    /// Of a ballot that begins with these.
    pub(super) fn new(barred: NodeSet, now: Time) -> Bars {
        let out = barred.iter().map(|node| (node, (0, now))).collect();
        Bars { seq: 0, out, confirmed: BTreeMap::new() }
    }

    /// All that are barred.
    pub(super) fn nodes(&self) -> NodeSet {
        self.out.keys().copied().collect()
    }
}

/// Those that cannot read under this ballot, by what a majority has confirmed.
pub(super) fn excluded(replica: &Replica) -> NodeSet {
    let bars = &replica.policy.bars;
    let confirmed = |node| Some(bars.confirmed.get(&node).copied().unwrap_or(0));
    let reached = match mutation::active("bodega/bars-unconfirmed") {
        true => Some(u64::MAX),
        false => replica.configuration().reached(confirmed),
    };
    let Some(reached) = reached else { return NodeSet::EMPTY };
    bars.out.iter().filter(|(_, (seq, _))| *seq <= reached).map(|(node, _)| *node).collect()
}

/// Who is to be barred, and who no more; tells all of it. Returns whether that has changed.
pub(super) fn review(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
    let now = cx.now();
    let (failure, me) = (replica.config().policy.failure, replica.me());
    let changing = replica.is_changing();
    let mut changed = false;
    for node in replica.charter().roster.everyone().without(me).iter() {
        let heard = replica.has_heard(node, failure, now);
        let votes = replica.configuration().votes(node);
        match replica.policy.bars.out.get(&node) {
            None if !heard || !votes || changing => {
                let seq = replica.policy.bars.seq + 1;
                replica.policy.bars.out.insert(node, (seq, now));
                changed = true;
            }
            Some((_, since))
                if heard && votes && !changing && now.since(*since) >= failure && replica.is_near(node) =>
            {
                replica.policy.bars.out.remove(&node);
                changed = true;
            }
            _ => {}
        }
    }
    if changed {
        replica.policy.bars.seq += 1;
        // Whoever comes back is required again before anybody grants it anything.
        replica.reconsider(cx);
        tell(replica, cx);
    }
    changed
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
    if replica.policy.barred.is_none_or(|(known, _)| known < seq) {
        replica.policy.barred = Some((seq, nodes));
    }
    let Some((seq, nodes)) = replica.policy.barred else { return };
    if replica.withdraw(nodes, cx).is_none() {
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
        let Some((_, barred)) = replica.policy.barred else { return NodeSet::EMPTY };
        let responders = replica.charter().roster.everyone();
        let responders: NodeSet = responders.iter().filter(|node| !barred.contains(*node)).collect();
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
