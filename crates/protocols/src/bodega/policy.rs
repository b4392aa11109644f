//! What Bodega answers the machine.

use bytes::Bytes;
use quorate_core::{
    Context, Manage, Managed, NodeId, NodeSet, ProcessId, Roster, Status, Time, Wall, Wire, mutation,
};
use quorate_parts::bars::Bars;
use quorate_parts::clients::{Ask, PendingRead};
use quorate_parts::coverage::Coverage;
use quorate_parts::membership::refused;
use quorate_parts::paxos::{self, Role, Timer};
use quorate_parts::rosters::{self, Changes};
use quorate_parts::writes::Writes;
use quorate_store::Command;

use super::bars;
use super::charter::Charter;
use super::message::Message;
use super::notes::{self, Notes};
use super::reads::{self, Holds};
use super::{Config, Replica};

/// Operators that may wait for a roster.
const MAX_WAITING: usize = 64;

/// Bodega's share of a replica.
#[derive(Debug)]
pub struct Policy {
    /// Of what is voted for or proposed, and not executed.
    pub(super) writes: Writes,
    pub(super) notes: Notes,
    pub(super) holds: Holds,
    /// How many.
    pub(super) held: usize,
    /// As a leader.
    pub(super) bars: Bars,
    pub(super) coverage: Coverage,
    changes: Changes,
    /// What the next ballot is to come with, beside what this one came with.
    next: Option<(Roster, bool)>,
    /// Operators that wait until it does.
    waiting: Vec<PendingRead>,
    /// Who is to lead then.
    heir: Option<NodeId>,
}

impl paxos::Policy for Policy {
    type Config = Config;
    type Message = Message;
    type Charter = Charter;

    fn new(_: &paxos::Config<Config>, _: NodeId, now: Time) -> Policy {
        Policy {
            writes: Writes::default(),
            notes: Notes::default(),
            holds: Holds::default(),
            held: 0,
            bars: Bars::new(NodeSet::EMPTY, now),
            coverage: Coverage::default(),
            changes: Changes::default(),
            next: None,
            waiting: Vec::new(),
            heir: None,
        }
    }

    fn charter(replica: &mut Replica, now: Time) -> Charter {
        let policy = &replica.config().policy;
        let before = replica.last_charter();
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
        let barred = roster.everyone().without(replica.me()).iter().filter(lost).collect();
        Charter { known: true, roster, auto, seq: 0, barred }
    }

    fn on_leave(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        replica.policy.changes.leave(cx.now());
        reads::refuse_held(replica, cx.now());
    }

    fn on_adopted(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        let now = cx.now();
        reads::refuse_held(replica, now);
        let barred = replica.charter().barred;
        replica.policy.notes.clear();
        replica.policy.bars = Bars::new(barred, now);
        if replica.promised().node() != Some(replica.me()) {
            // Operators ask again, elsewhere.
            replica.policy.waiting.clear();
            replica.policy.heir = None;
            replica.policy.next = None;
        }
        cx.set_timer(Timer::Own, replica.config().policy.coverage.period);
    }

    fn grantees(replica: &Replica) -> NodeSet {
        Policy::granted_by(replica)
    }

    fn holds(replica: &Replica) -> bool {
        let leads = matches!(replica.role(), Role::Leader(_) | Role::Candidate(_));
        leads || replica.charter().may_read(replica.me())
    }

    fn on_leases(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        let now = cx.now();
        if replica.is_current() && replica.believed_until(now).is_some() {
            let mut changes = std::mem::take(&mut replica.policy.changes);
            changes.in_force(&replica.charter().roster, now);
            replica.policy.changes = changes;
        }
        reads::release(replica, cx);
        answer_operators(replica, cx);
    }

    fn on_value(replica: &mut Replica, slot: u64, value: &Bytes) {
        replica.policy.writes.set(slot, value);
        if matches!(replica.role(), Role::Leader(_))
            && let Some(written) = replica.policy.writes.of(slot)
        {
            replica.policy.coverage.on_write(written);
        }
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
        bars::required(replica, value)
    }

    fn on_executed(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        let applied = replica.state().applied();
        replica.policy.writes.executed(applied);
        notes::executed(&mut replica.policy.notes, applied);
        reads::release(replica, cx);
        replica.note_reads(cx);
    }

    fn on_ask(replica: &mut Replica, from: ProcessId, ask: &mut Ask, cx: &mut Context<'_, Replica>) {
        if let ProcessId::Proxy(proxy) = from
            && proxy.host() == Some(replica.me())
            && replica.charter().auto
        {
            replica.policy.coverage.on_ask(ask);
        }
        reads::on_ask(replica, from, ask, cx);
    }

    fn waits_for(replica: &Replica, command: &Bytes) -> Option<u64> {
        if !replica.config().policy.early_notes || mutation::active("bodega/leader-answers-committed") {
            return None;
        }
        let command = Command::from_bytes(command.clone()).ok()?;
        let footprint = command.footprint();
        // Of keys that only the leader answers reads of, nobody else can have shown a write, unless it was one to other
        // keys too.
        let alone =
            rosters::readers(&replica.charter().roster, footprint.reads()).without(replica.me()).is_empty();
        let slot = match alone {
            true => replica.policy.writes.last_shared(footprint.reads())?,
            false => replica.policy.writes.last(footprint.reads())?,
        };
        Some(slot).filter(|slot| *slot > replica.state().applied())
    }

    fn missing(replica: &Replica, command: &Bytes, now: Time) -> Option<u64> {
        reads::missing(replica, command, now)
    }

    fn holding(replica: &Replica) -> usize {
        replica.policy.held
    }

    fn would_answer(replica: &Replica, command: &Bytes, now: Time) -> Option<Wall> {
        reads::would_answer(replica, command, now)
    }

    fn on_message(replica: &mut Replica, from: NodeId, message: Message, cx: &mut Context<'_, Replica>) {
        match message {
            Message::Note { ballot, slots } => notes::on_note(replica, from, ballot, &slots, cx),
            Message::Bars { ballot, seq, nodes } => bars::on_bars(replica, from, ballot, seq, nodes, cx),
            Message::Barred { ballot, seq } => bars::on_barred(replica, from, ballot, seq, cx),
            Message::Statistics { ballot, reads } if ballot == replica.promised() => {
                if replica.configuration().votes(from) {
                    replica.policy.coverage.on_reads(from, reads);
                }
            }
            Message::Statistics { .. } => {}
        }
    }

    fn on_pulse(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        if !bars::review(replica, cx) {
            // Again: messages are lost.
            bars::tell(replica, cx);
        }
        answer_operators(replica, cx);
        if let Some(heir) = replica.policy.heir
            && replica.policy.next.is_none()
            && replica.heir(Some(heir), cx.now()).is_ok()
        {
            replica.policy.heir = None;
            replica.hand_over(heir, cx);
            return false;
        }
        true
    }

    fn on_timer(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
        report(replica, cx);
        let rule = replica.config().policy.coverage;
        cx.set_timer(Timer::Own, rule.period);
        if matches!(replica.role(), Role::Leader(_)) && replica.charter().auto && !replica.is_changing() {
            let current = replica.charter().roster.clone();
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
            Manage::AutoRoster(auto) => (replica.charter().roster.clone(), auto),
            Manage::ShowRoster => {
                let Charter { roster, auto, .. } = replica.charter().clone();
                let out = bars::excluded(replica);
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
        replica.policy.heir = roster.leader().filter(|leader| *leader != replica.me());
        let charter = replica.charter();
        let known = charter.roster.ranges() == roster.ranges() && charter.auto == auto;
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

    fn may_change(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        bars::review(replica, cx);
        bars::all_out(replica)
    }

    fn status(replica: &Replica, now: Time, status: &mut Status) {
        let follows = matches!(replica.role(), Role::Follower | Role::Polling(_));
        if follows && replica.is_stable(now) {
            (status.lease, status.reads) = (true, "local");
        }
        let Charter { roster, auto, barred, .. } = replica.charter();
        let barred = match matches!(replica.role(), Role::Leader(_)) {
            true => replica.policy.bars.nodes(),
            false => *barred,
        };
        status.facts.push(("roster_auto", if *auto { "on" } else { "off" }.to_owned()));
        replica.policy.changes.tell(roster, barred, status);
    }

    fn check(replica: &Replica) {
        let held: usize = replica.policy.holds.values().map(Vec::len).sum();
        assert!(held == replica.policy.held, "held reads are counted");
        assert!(replica.policy.waiting.len() <= MAX_WAITING);
    }
}

/// Once in a while each replica tells the leader what its clients read (§5.1).
fn report(replica: &mut Replica, cx: &mut Context<'_, Replica>) {
    let (reads, ballot) = (replica.policy.coverage.report(), replica.promised());
    if let Some(leader) = ballot.node().filter(|_| replica.charter().auto && !reads.is_empty()) {
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
