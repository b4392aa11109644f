//! What Bodega answers the machine.

use bytes::Bytes;
use quorate_blocks::clients::{Ask, Gate, PendingRead};
use quorate_blocks::membership::refused;
use quorate_blocks::writes::Written;
use quorate_core::{Context, Manage, Managed, NodeId, NodeSet, Roster, Status, Time};

use super::ballot_config::BallotConfig;
use super::exclusion;
use super::message::Message;
use super::notes::{self, Notes};
use super::{Config, Replica, reads};
use crate::paxos::bodega::coverage::Coverage;
use crate::paxos::bodega::excluded_responders::ExcludedResponders;
use crate::paxos::engine::{self, Role, Timer};
use crate::paxos::rosters::Changes;

/// Operators that may wait for a roster.
const MAX_WAITING: usize = 64;

/// Bodega's share of a replica.
#[derive(Debug)]
pub struct Policy {
    pub(super) notes: Notes,
    /// As a leader.
    pub(super) exclusion: ExcludedResponders,
    pub(super) coverage: Coverage,
    changes: Changes,
    /// What the next ballot is to come with, beside what this one came with.
    next: Option<(Roster, bool)>,
    /// Operators that wait until it does.
    waiting: Vec<PendingRead>,
    /// Who is to lead then.
    transfer_target: Option<NodeId>,
}

impl engine::Policy for Policy {
    type Config = Config;
    type Message = Message;
    type BallotConfig = BallotConfig;

    fn new(_: &engine::Config<Config>, _: NodeId, now: Time) -> Policy {
        Policy {
            notes: Notes::default(),
            exclusion: ExcludedResponders::new(NodeSet::EMPTY, now),
            coverage: Coverage::default(),
            changes: Changes::default(),
            next: None,
            waiting: Vec::new(),
            transfer_target: None,
        }
    }

    fn ballot_config(replica: &mut Replica, now: Time) -> BallotConfig {
        let policy = &replica.config().policy;
        let before = replica.last_ballot_config();
        let (roster, auto) = match before.known {
            true => (before.roster.clone(), before.auto),
            false => (policy.roster.clone(), policy.auto),
        };
        let failure = policy.failure;
        let (roster, auto) = replica.policy.next.take().unwrap_or((roster, auto));
        let changing = replica.is_changing();
        let lost = |node: &NodeId| {
            !replica.is_voting(*node, failure, now) || !replica.configuration().votes(*node) || changing
        };
        let excluded = roster.everyone().without(replica.me()).iter().filter(lost).collect();
        BallotConfig { known: true, roster, auto, seq: 0, excluded }
    }

    fn on_leave(&mut self, now: Time) {
        self.changes.leave(now);
    }

    fn on_adopted(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        let now = cx.now();
        let excluded = replica.ballot_config().excluded;
        replica.policy.notes.clear();
        replica.policy.exclusion = ExcludedResponders::new(excluded, now);
        if replica.promised().node() != Some(replica.me()) {
            // Operators ask again, elsewhere.
            replica.policy.waiting.clear();
            replica.policy.transfer_target = None;
            replica.policy.next = None;
        }
        cx.set_timer(Timer::Own, replica.config().policy.coverage.period);
    }

    fn grantees(replica: &Replica) -> NodeSet {
        Policy::granted_by(replica)
    }

    fn holds(replica: &Replica) -> bool {
        let leads = matches!(replica.role(), Role::Leader(_) | Role::Candidate(_));
        leads || replica.ballot_config().may_read(replica.me())
    }

    fn on_leases(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        let now = cx.now();
        if replica.is_current() && replica.believed_until(now).is_some() {
            let mut changes = std::mem::take(&mut replica.policy.changes);
            changes.in_force(&replica.ballot_config().roster, now);
            replica.policy.changes = changes;
        }
        answer_operators(replica, cx);
    }

    fn written(value: &Bytes) -> Option<Written> {
        Some(Written::by(value))
    }

    fn on_write(&mut self, written: &Written) {
        self.coverage.on_write(written);
    }

    fn acknowledge(
        replica: &mut Replica,
        slots: Vec<(u64, u64)>,
        cx: &mut Context<'_, Replica>,
    ) -> Vec<(NodeSet, Vec<(u64, u64)>)> {
        notes::tell(replica, &slots, cx);
        vec![(NodeSet::EMPTY, slots)]
    }

    fn required(replica: &Replica, value: &Bytes) -> NodeSet {
        exclusion::required(replica, value)
    }

    fn on_executed(replica: &mut Replica, _: Vec<(u64, Written)>, cx: &mut Context<'_, Replica>) {
        let applied = replica.state().applied();
        notes::executed(&mut replica.policy.notes, applied);
        replica.note_reads(cx);
    }

    const READS_EVERYWHERE: bool = true;

    fn gate(replica: &Replica, command: &Bytes, now: Time) -> Gate {
        reads::gate(replica, command, now)
    }

    fn on_ask(&mut self, ballot_config: &BallotConfig, ask: &Ask) {
        if ballot_config.auto {
            self.coverage.on_ask(ask);
        }
    }

    fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
        reads::missing(replica, command, now)
    }

    fn on_message(replica: &mut Replica, from: NodeId, message: Message, cx: &mut Context<'_, Replica>) {
        match message {
            Message::Note { ballot, slots } => notes::on_note(replica, from, ballot, &slots, cx),
            Message::Exclude { ballot, seq, nodes } => {
                exclusion::on_exclude(replica, from, ballot, seq, nodes, cx)
            }
            Message::ExcludeReply { ballot, seq } => {
                exclusion::on_exclude_reply(replica, from, ballot, seq, cx)
            }
            Message::Statistics { ballot, reads } if ballot == replica.promised() => {
                if replica.configuration().votes(from) {
                    replica.policy.coverage.on_reads(from, reads);
                }
            }
            Message::Statistics { .. } => {}
        }
    }

    fn on_pulse(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        if !exclusion::review(replica, cx) {
            // Again: messages are lost.
            exclusion::tell(replica, cx);
        }
        answer_operators(replica, cx);
        if let Some(transfer_target) = replica.policy.transfer_target
            && replica.policy.next.is_none()
            && replica.transfer_target(Some(transfer_target), cx.now()).is_ok()
        {
            replica.policy.transfer_target = None;
            replica.hand_over(transfer_target, cx);
            return false;
        }
        true
    }

    fn on_peer_leaving(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        exclusion::review(replica, cx);
    }

    fn on_timer(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        report(replica, cx);
        let rule = replica.config().policy.coverage;
        cx.set_timer(Timer::Own, rule.period);
        if matches!(replica.role(), Role::Leader(_)) && replica.ballot_config().auto && !replica.is_changing()
        {
            let current = replica.ballot_config().roster.clone();
            if let Some(roster) = replica.policy.coverage.review(&rule, &current) {
                replica.policy.next = Some((roster, true));
                replica.step_up(cx);
            }
        }
    }

    fn manage(
        replica: &mut Replica,
        request: PendingRead,
        manage: Manage,
        cx: &mut Context<'_, Replica>,
    ) -> Option<(PendingRead, Manage)> {
        let (roster, auto) = match manage {
            Manage::Roster(roster) => {
                let votes = |node: NodeId| replica.configuration().votes(node);
                let stranger = roster.everyone().iter().chain(roster.leader()).find(|node| !votes(*node));
                if let Some(node) = stranger {
                    let why = format!("node {node} is no voter");
                    replica.intake.on_managed(request, refused(why));
                    return None;
                }
                (roster, false)
            }
            Manage::AutoRoster(auto) => (replica.ballot_config().roster.clone(), auto),
            Manage::ShowRoster => {
                let BallotConfig { roster, auto, .. } = replica.ballot_config().clone();
                let out = exclusion::dispensable(replica);
                let serving =
                    replica.configuration().all().iter().filter(|node| !out.contains(*node)).collect();
                let roster = roster.within(serving).with_leader(replica.me());
                let ballot = replica.promised().to_string();
                replica.intake.on_managed(request, Managed::Roster { ballot, roster, auto });
                return None;
            }
            Manage::Change { .. } | Manage::CancelChange | Manage::Transfer { .. } => {
                return Some((request, manage));
            }
        };
        replica.policy.transfer_target = roster.leader().filter(|leader| *leader != replica.me());
        let ballot_config = replica.ballot_config();
        let known = ballot_config.roster.ranges() == roster.ranges() && ballot_config.auto == auto;
        if replica.policy.waiting.len() >= MAX_WAITING {
            replica.intake.on_managed(request, refused("too many operators are waiting"));
            return None;
        }
        replica.policy.waiting.push(request);
        if !known {
            let roster = Roster::new(None, roster.ranges().to_vec()).expect("they were a roster");
            replica.policy.next = Some((roster, auto));
            replica.step_up(cx);
        }
        answer_operators(replica, cx);
        None
    }

    fn confirmed(replica: &Replica) -> (u64, u64) {
        replica.policy.exclusion.confirmed_by(replica.me())
    }

    fn may_change(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        exclusion::review(replica, cx);
        exclusion::all_out(replica)
    }

    fn status(replica: &Replica, now: Time, status: &mut Status) {
        let follows = matches!(replica.role(), Role::Follower | Role::Polling(_));
        if follows && replica.is_stable(now) {
            (status.lease, status.reads) = (true, "local");
        }
        let BallotConfig { roster, auto, excluded, .. } = replica.ballot_config();
        let excluded = match matches!(replica.role(), Role::Leader(_)) {
            true => replica.policy.exclusion.nodes(),
            false => *excluded,
        };
        status.facts.push(("roster_auto", if *auto { "on" } else { "off" }.to_owned()));
        replica.policy.changes.tell(roster, excluded, status);
    }
}

/// Once in a while each replica tells the leader what its clients read (§5.1).
fn report(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let (reads, ballot) = (replica.policy.coverage.report(), replica.promised());
    if let Some(leader) = ballot.node().filter(|_| replica.ballot_config().auto && !reads.is_empty()) {
        cx.send(leader, super::Message::Own(Message::Statistics { ballot, reads }));
    }
}

/// The roster of this ballot is in force: nobody acts by another.
fn answer_operators(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let leads = matches!(replica.role(), Role::Leader(_)) && replica.is_current();
    if leads && replica.policy.next.is_none() && replica.believed_until(cx.now()).is_some() {
        for request in std::mem::take(&mut replica.policy.waiting) {
            replica.intake.on_managed(request, Managed::Done);
        }
    }
}
