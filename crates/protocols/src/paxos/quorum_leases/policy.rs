//! What quorum leases answer the machine.

use bytes::Bytes;
use quorate_blocks::batch::{Batch, Entry, Kind};
use quorate_blocks::clients::{Gate, PendingRead};
use quorate_blocks::membership::refused;
use quorate_blocks::writes::Written;
use quorate_core::{Context, Manage, Managed, NodeId, NodeSet, Roster, Status, Time, mutation};

use super::message::Message;
use super::regrants::{self, Regrants};
use super::{Config, Replica, acks, reads, roster};
use crate::paxos::engine::{self, Role};

/// Operators that may wait for a roster.
const MAX_WAITING: usize = 64;

/// The share of quorum leases in a replica.
#[derive(Debug)]
pub struct Policy {
    /// Grantees that the leader hears, as it says.
    live: NodeSet,
    /// As the leader: all those that it has ever named so in this ballot.
    named: NodeSet,
    /// No slot up to here and above what is executed can hold a roster, in this ballot.
    pub(super) same_roster: u64,
    pub(super) regrants: Regrants,
    /// Operators that wait until the roster in this slot is executed.
    waiting: Vec<(u64, PendingRead)>,
}

impl engine::Policy for Policy {
    type Config = Config;
    type Message = Message;
    type BallotConfig = ();

    fn new(_: &engine::Config<Config>, _: NodeId, _: Time) -> Policy {
        Policy {
            live: NodeSet::EMPTY,
            named: NodeSet::EMPTY,
            same_roster: 0,
            regrants: Regrants::default(),
            waiting: Vec::new(),
        }
    }

    fn on_leave(&mut self, _: Time) {
        // Operators ask again, elsewhere.
        self.waiting.clear();
    }

    fn on_adopted(replica: &mut Replica, _: &mut Context<'_, Replica>) {
        (replica.policy.live, replica.policy.named) = (NodeSet::EMPTY, NodeSet::EMPTY);
        replica.policy.same_roster = 0;
        replica.policy.regrants.clear();
    }

    fn grantees(replica: &Replica) -> NodeSet {
        let leader = match replica.role() {
            Role::Candidate(_) => return NodeSet::EMPTY,
            Role::Leader(_) => None,
            Role::Follower | Role::Polling(_) => replica.promised().node(),
        };
        let mut grantees = roster(replica).everyone().intersection(replica.policy.live);
        if let Some(leader) = leader {
            grantees.insert(leader);
        }
        grantees
    }

    fn holds(_: &Replica) -> bool {
        true
    }

    fn written(value: &Bytes) -> Option<Written> {
        let everything = match Batch::kind(value) {
            // Whoever reads by a roster that is about to be replaced may have to wait for writes no more.
            Kind::Roster => !mutation::active("quorum-leases/roster-is-no-write"),
            Kind::Configuration => !mutation::active("quorum-leases/configuration-is-no-write"),
            Kind::Noop | Kind::Clients | Kind::EndLease => false,
        };
        Some(if everything { Written::everything() } else { Written::by(value) })
    }

    fn acknowledge(
        replica: &mut Replica,
        slots: Vec<(u64, u64)>,
        cx: &mut Context<'_, Replica>,
    ) -> Vec<(NodeSet, Vec<(u64, u64)>)> {
        acks::acknowledge(replica, slots, cx)
    }

    fn may_be_granted(replica: &Replica) -> NodeSet {
        let me = NodeSet::from_iter([replica.me()]);
        match mutation::active("quorum-leases/names-those-alive") {
            true => me.union(replica.policy.live),
            false => me.union(replica.policy.named),
        }
    }

    fn on_installed(&mut self, applied: u64) {
        self.regrants.jump(applied);
    }

    fn on_executed(replica: &mut Replica, executed: Vec<(u64, Written)>, cx: &mut Context<'_, Replica>) {
        regrants::on_executed(replica, executed, cx);
        let applied = replica.state().applied();
        let waiting = std::mem::take(&mut replica.policy.waiting);
        let (done, waiting): (Vec<_>, _) = waiting.into_iter().partition(|(slot, _)| *slot <= applied);
        replica.policy.waiting = waiting;
        for (_, request) in done {
            replica.intake.on_managed(request, Managed::Done);
        }
        replica.note_reads(cx);
    }

    const READS_EVERYWHERE: bool = true;

    fn gate(replica: &Replica, command: &Bytes, now: Time) -> Gate {
        reads::gate(replica, command, now)
    }

    fn on_message(replica: &mut Replica, from: NodeId, message: Message, cx: &mut Context<'_, Replica>) {
        match message {
            Message::Live { ballot, nodes } => {
                if ballot == replica.promised() && ballot.node() == Some(from) {
                    replica.policy.live = nodes;
                    regrants::tell(replica, cx);
                }
            }
            Message::Regrant { ballot, guard, upto, but } => {
                regrants::on_regrant(replica, from, (ballot, guard), upto, but);
            }
        }
    }

    fn on_pulse(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        name_live(replica, cx);
        true
    }

    fn on_peer_leaving(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        name_live(replica, cx);
    }

    fn manage(
        replica: &mut Replica,
        request: PendingRead,
        manage: Manage,
        cx: &mut Context<'_, Replica>,
    ) -> Option<(PendingRead, Manage)> {
        let answer = match manage {
            Manage::Change { .. } | Manage::CancelChange | Manage::Transfer { .. } => {
                return Some((request, manage));
            }
            Manage::Roster(roster) => match propose(replica, roster, cx) {
                Ok(slot) => return wait(replica, slot, request),
                Err(answer) => answer,
            },
            Manage::AutoRoster(false) => Managed::Done,
            Manage::AutoRoster(true) => refused("grantees are set by the operator"),
            Manage::ShowRoster => {
                let ballot = replica.promised().to_string();
                let roster = roster(replica).with_leader(replica.me());
                Managed::Roster { ballot, roster, auto: false }
            }
        };
        replica.intake.on_managed(request, answer);
        None
    }

    fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
        reads::missing(replica, command, now)
    }

    fn status(replica: &Replica, now: Time, status: &mut Status) {
        let grantee = roster(replica).everyone().contains(replica.me());
        if !matches!(replica.role(), Role::Leader(_)) && grantee && replica.is_stable(now) {
            (status.lease, status.reads) = (true, "lease");
        }
    }
}

/// As the leader: tells everybody which grantees are there.
fn name_live(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let (now, me) = (cx.now(), replica.me());
    let grantees = roster(replica).everyone();
    if grantees.is_empty() {
        return;
    }
    let grantees = grantees.intersection(replica.configuration().voters);
    // A grantee whose votes do not come would hold up every write until its leases end.
    let limit = replica.config().timeouts.election;
    let nodes = replica.voting(grantees, limit, now);
    replica.policy.live = nodes;
    replica.policy.named = replica.policy.named.union(nodes);
    let ballot = replica.promised();
    let others = replica.configuration().all().without(me);
    cx.send_all(others, engine::Message::Own(Message::Live { ballot, nodes }));
    regrants::tell(replica, cx);
}

/// Has a roster chosen, in the slot that it says.
fn propose(replica: &mut Replica, roster: Roster, cx: &mut Context<'_, Replica>) -> Result<u64, Managed> {
    let votes = |node: NodeId| replica.configuration().votes(node);
    if let Some(node) = roster.everyone().iter().find(|node| !votes(*node)) {
        return Err(refused(format!("node {node} is no voter")));
    }
    if roster.leader().is_some() {
        return Err(refused("the leader is no part of the roster here: ask for a transfer"));
    }
    if replica.policy.waiting.is_empty() && super::roster(replica).ranges() == roster.ranges() {
        return Err(Managed::Done);
    }
    if replica.policy.waiting.len() >= MAX_WAITING {
        return Err(refused("too many operators are waiting"));
    }
    replica.propose_alone(&Entry::Roster(roster), cx).ok_or_else(|| refused("the leader is busy: ask again"))
}

fn wait<T>(replica: &mut Replica, slot: u64, request: PendingRead) -> Option<T> {
    replica.policy.waiting.push((slot, request));
    None
}
