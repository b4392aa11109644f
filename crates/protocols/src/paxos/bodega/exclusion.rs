//! **Exclusion**: how writes come to do without a responder that has failed, in the ballot that is, without a pause in
//! the others' reads.
//!
//! A responder reads while it believes leases of a majority, its own among them. The leader names it to all
//! (`Exclude`). Whoever hears that notes it durably, grants it no lease any more, waits until the one that it granted
//! has ended, and says so (`ExcludeReply`). The responder itself, if it hears that, reads no more, and says so too.
//! When a majority of the voters have said so, each majority of grantors that the responder could count has one among
//! them: it is not in a position to read, and will not be. From then on writes do without it.
//!
//! - Confirmed exclusions are as durable as the ballot (they are noted in its configuration): a replica that restarts
//!   would else grant, or read, by what it heard before, or by a late message. In a new ballot the first exclusion
//!   comes with the ballot.
//! - *A responder is readmitted in two steps* ([`crate::paxos::bodega::excluded_responders`]): grantors that have heard
//!   of no exclusion in all the time may promise by a threshold that lies before what was chosen without it.
//! - When the group changes, all are excluded: their leases must not be counted by a majority that is none any more.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::writes::Written;
use quorate_core::{Context, NodeId, NodeSet, mutation};

use super::ballot_config::BallotConfig;
use super::{Policy, Replica, message};
use crate::paxos::bodega::excluded_responders::Health;
use crate::paxos::engine::Role;
use crate::paxos::rosters;

/// Those that writes can do without: they cannot read under this ballot, by what a majority has confirmed.
pub(super) fn dispensable(replica: &Replica) -> NodeSet {
    replica.policy.exclusion.dispensable(|confirmed| replica.configuration().reached(confirmed))
}

/// Who is to be excluded, and who no more; tells all of it. Returns whether that has changed.
pub(super) fn review(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
    let now = cx.now();
    let (failure, changing) = (replica.config().policy.failure, replica.is_changing());
    let Some(last) = replica.last_proposed() else { return false };
    let others = replica.ballot_config().roster.everyone().without(replica.me());
    let voting = replica.voting(others, failure, now);
    let health = |node: NodeId| Health {
        alive: voting.contains(node) && replica.configuration().votes(node) && !changing,
        caught_up: replica.is_near(node),
        executed: replica.executed_upto(node),
    };
    let health: Vec<_> = others.iter().map(|node| (node, health(node))).collect();
    let reviewed = replica.policy.exclusion.review(health.into_iter(), last, failure, now);
    if reviewed.named {
        tell(replica, cx);
    }
    if reviewed.needed {
        replica.reconsider(cx);
    }
    reviewed.named
}

/// Tells whoever has not confirmed it.
pub(super) fn tell(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let (ballot, seq, nodes) =
        (replica.promised(), replica.policy.exclusion.seq(), replica.policy.exclusion.nodes());
    let message = message::Message::Exclude { ballot, seq, nodes };
    let unaware = replica.policy.exclusion.unconfirmed(replica.configuration().all());
    cx.send_all(unaware, super::Message::Own(message));
}

/// A grantor hears of an exclusion: notes it, and confirms it once the excluded hold no lease of its own.
pub(super) fn on_exclude(
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
    if replica.ballot_config().seq < seq {
        let ballot_config = BallotConfig { seq, excluded: nodes, ..replica.ballot_config().clone() };
        replica.amend(ballot_config, cx);
        if nodes.contains(replica.me()) {
            replica.refuse_held(cx.now());
        }
        replica.note_reads(cx);
    }
    let BallotConfig { seq, excluded, .. } = *replica.ballot_config();
    if replica.withdraw(excluded, cx).is_none() {
        cx.send(from, super::Message::Own(message::Message::ExcludeReply { ballot, seq }));
    }
}

/// The leader hears that a voter has confirmed an exclusion: perhaps writes can do without more responders.
pub(super) fn on_exclude_reply(
    replica: &mut Replica,
    from: NodeId,
    ballot: Ballot,
    seq: u64,
    cx: &mut Context<'_, Replica>,
) {
    let leads = ballot == replica.promised() && matches!(replica.role(), Role::Leader(_));
    if leads && replica.policy.exclusion.confirm(from, seq) {
        replica.reconsider(cx);
    }
}

/// Before the group changes: whether all are excluded for certain.
pub(super) fn all_out(replica: &mut Replica) -> bool {
    let others = replica.ballot_config().roster.everyone().without(replica.me());
    let dispensable = dispensable(replica);
    others.iter().all(|node| dispensable.contains(node))
}

impl Policy {
    /// To whom this replica grants, in the ballot that it has promised.
    pub(super) fn granted_by(replica: &Replica) -> NodeSet {
        if !replica.ballot_config().known {
            return NodeSet::EMPTY;
        }
        let BallotConfig { roster, excluded, .. } = replica.ballot_config();
        let responders: NodeSet = roster.everyone().iter().filter(|node| !excluded.contains(*node)).collect();
        responders.union(replica.promised().node().into_iter().collect())
    }

    /// Whom the roster names for the keys of a value.
    pub(super) fn named(replica: &Replica, value: &bytes::Bytes) -> NodeSet {
        let written = Written::by(value);
        if mutation::active("bodega/one-key-of-a-batch")
            && let Some(key) = written.keys().and_then(|keys| keys.first())
        {
            return replica.ballot_config().roster.responders(key);
        }
        rosters::readers_of(&replica.ballot_config().roster, &written)
    }
}

/// Whom a value must reach at this leader.
pub(super) fn required(replica: &Replica, value: &bytes::Bytes) -> NodeSet {
    let dispensable = dispensable(replica);
    let named = Policy::named(replica, value);
    named.iter().filter(|node| !dispensable.contains(*node)).collect()
}
