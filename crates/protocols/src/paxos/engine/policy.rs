//! What the protocols of the family differ in.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::{Batch, Entry};
use quorate_blocks::clients::{Ask, Gate, PendingRead, ReadObservation};
use quorate_blocks::coding::Assignment;
use quorate_blocks::membership::Configuration;
use quorate_blocks::state::Replicated;
use quorate_blocks::writes::{Writes, Written};
use quorate_core::{Context, Manage, NodeId, NodeSet, Status, Time};

use super::lacking::LackingConfig;
use super::message::{BallotConfig, Record};
use super::{Config, Replica, Role};
use crate::paxos::engine::slots::SlotLog;

/// A protocol of the family, as the machine asks for it. Most have few things to say; the defaults are MultiPaxos's.
pub trait Policy: Sized + Debug + 'static {
    /// What it is told.
    type Config: Clone + Debug + Send + Sync;
    /// What only it says to other replicas.
    type Message: quorate_core::Message;
    /// What comes with a ballot.
    type BallotConfig: BallotConfig;

    /// At the start of a replica, whose log is there.
    fn new(config: &Config<Self::Config>, me: NodeId, now: Time) -> Self;

    // Ballots ----------------------------------------------------------------------------------------------------

    /// What is to come with a ballot that this replica is about to take.
    fn ballot_config(_: &mut Replica<Self>, _now: Time) -> Self::BallotConfig {
        Self::BallotConfig::default()
    }

    /// This replica is leaving its ballot, or has stopped leading in it: what it does by its promises must end.
    fn on_leave(&mut self, _now: Time) {}

    /// Another ballot is promised.
    fn on_adopted(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) {}

    // Quorums ----------------------------------------------------------------------------------------------------

    /// How many votes of so many voters choose a value, and how many promises let a ballot lead. Both are majorities
    /// at least. A value that is sent in shards is chosen when, moreover, those of its voters that any so many promises
    /// leave hold enough of them to restore it ([`CommitTracker`](crate::paxos::engine::slots::CommitTracker)).
    fn quorum(_: &Replica<Self>, voters: usize) -> usize {
        voters / 2 + 1
    }

    /// In which shards clients' values are sent now; `None`: whole. Voters may change while one is under way, which
    /// keeps the assignment with which it was proposed.
    fn assignment(_: &Replica<Self>) -> Option<Assignment> {
        None
    }

    /// How many shards of a value of so many bytes each voter gets at least. `least`: with fewer, those who are there
    /// cannot have it chosen, as far as this leader knows.
    fn width(_: &Replica<Self>, _: &Assignment, _bytes: usize, _least: usize, _now: Time) -> usize {
        1
    }

    /// When a follower gets the values of which it has shards only.
    fn lacking(_: &Replica<Self>) -> LackingConfig {
        LackingConfig::AT_ONCE
    }

    // Leases -----------------------------------------------------------------------------------------------------

    /// To whom this replica is to grant leases in the ballot that it has promised.
    fn grantees(replica: &Replica<Self>) -> NodeSet {
        let follows = matches!(replica.role, Role::Follower);
        replica.promised.node().filter(|_| follows).into_iter().collect()
    }

    /// Whether this replica takes leases in it. A candidate does: they are offered as soon as its ballot is promised,
    /// and not again before the next renewal.
    fn holds(replica: &Replica<Self>) -> bool {
        matches!(replica.role, Role::Leader(_) | Role::Candidate(_))
    }

    /// Something about leases has changed, here or at another.
    fn on_leases(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) {}

    // Writes -----------------------------------------------------------------------------------------------------

    /// What a value counts as writing, for [`Replica::writes`]; `None`: nobody asks.
    fn written(_value: &Bytes) -> Option<Written> {
        None
    }

    /// As a leader: this is written by a value that is voted for, proposed or learned here.
    fn on_write(&mut self, _: &Written) {}

    /// Votes in these ranges of slots (inclusive) are told to the leader, as soon as they are durable. Each range with
    /// who else must vote before they count.
    fn acknowledge(
        _: &mut Replica<Self>,
        slots: Vec<(u64, u64)>,
        _: &mut Context<'_, Replica<Self>>,
    ) -> Vec<(NodeSet, Vec<(u64, u64)>)> {
        vec![(NodeSet::EMPTY, slots)]
    }

    /// Who must vote for a value before it is chosen, beside a majority.
    fn required(_: &Replica<Self>, _value: &Bytes) -> NodeSet {
        NodeSet::EMPTY
    }

    /// As a leader: to whom voters of its ballot can have granted leases. A voter that does not remember names
    /// everybody, and means these.
    fn may_be_granted(_: &Replica<Self>) -> NodeSet {
        NodeSet::EMPTY
    }

    /// A state is there, at a start or from another replica: what was executed in between is not known slot by slot.
    fn on_installed(&mut self, _applied: u64) {}

    /// Slots have been executed, or a state installed: these are in [`Replica::writes`] no more.
    fn on_executed(_: &mut Replica<Self>, _: Vec<(u64, Written)>, _: &mut Context<'_, Replica<Self>>) {}

    // Reads ------------------------------------------------------------------------------------------------------

    /// Whether other replicas than the leader answer reads.
    const READS_EVERYWHERE: bool = false;

    /// What becomes of a read here: at a leader while it may read locally, and at any other replica.
    fn gate(replica: &Replica<Self>, _command: &Bytes, _now: Time) -> Gate {
        if matches!(replica.role, Role::Leader(_)) { Gate::Serve } else { Gate::Redirect }
    }

    /// The proxy of this node asks, whoever leads; for statistics.
    fn on_ask(&mut self, _: &Self::BallotConfig, _: &Ask) {}

    /// What this replica knows of a read that a majority is asked; `None`: there are no such reads.
    fn observe(_: &Replica<Self>, _command: &Bytes) -> Option<ReadObservation> {
        None
    }

    /// How many writes of what is read may be acknowledged and are not executed here, at most, if there is a bound.
    fn missing(_: &Replica<Self>, _command: &Bytes, _now: Time) -> Option<u64> {
        None
    }

    // The rest ---------------------------------------------------------------------------------------------------

    /// Another replica says something of the protocol's own.
    fn on_message(
        _: &mut Replica<Self>,
        _from: NodeId,
        _: Self::Message,
        _: &mut Context<'_, Replica<Self>>,
    ) {
    }

    /// The leader's heartbeat: once in a while. Returns whether it goes on leading in this ballot.
    fn on_pulse(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) -> bool {
        true
    }

    /// What has been confirmed to a leader beside votes, each when it was durable, as numbers that only grow in a
    /// ballot: by itself, and by any other voter. They show whether its own disk keeps up.
    fn confirmed(_: &Replica<Self>) -> (u64, u64) {
        (0, 0)
    }

    /// As a leader: another is about to stop, and counts as one that does not vote.
    fn on_peer_leaving(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) {}

    /// [`Timer::Own`](super::Timer::Own) has fired.
    fn on_timer(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) {}

    /// An operator asks the leader for something that is the protocol's own; gives it back if it is not. Answered
    /// through the replica's intake.
    fn manage(
        _: &mut Replica<Self>,
        request: PendingRead,
        manage: Manage,
        _: &mut Context<'_, Replica<Self>>,
    ) -> Option<(PendingRead, Manage)> {
        Some((request, manage))
    }

    /// The group is about to change; `false`: it must wait.
    fn may_change(_: &mut Replica<Self>, _: &mut Context<'_, Replica<Self>>) -> bool {
        true
    }

    /// Adds what it knows.
    fn status(_: &Replica<Self>, _now: Time, _: &mut Status) {}
}

/// What a policy may look at.
impl<P: Policy> Replica<P> {
    /// What it is told.
    pub fn config(&self) -> &Config<P::Config> {
        &self.config
    }

    /// This replica.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// The ballot that it has promised.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// What comes with that.
    pub fn ballot_config(&self) -> &P::BallotConfig {
        &self.ballot_config
    }

    /// What came with the highest ballot that this replica has heard of.
    pub fn last_ballot_config(&self) -> &P::BallotConfig {
        let announced = self.announced.as_ref().filter(|(of, _)| *of > self.promised);
        announced.map_or(&self.ballot_config, |(_, ballot_config)| ballot_config)
    }

    /// Notes a change in what came with the promised ballot: it is durable before what is sent from now on
    /// `AfterSync`.
    pub fn amend(&mut self, ballot_config: P::BallotConfig, cx: &mut Context<'_, Self>) {
        let ballot = self.promised;
        self.ballot_config = ballot_config.clone();
        self.persist(Record::Promise { ballot, ballot_config }, cx);
    }

    /// As a leader: the last slot in which it has proposed anything.
    pub fn last_proposed(&self) -> Option<u64> {
        if let Role::Leader(leading) = &self.role { Some(leading.proposals.next() - 1) } else { None }
    }

    /// As a leader: up to where another has executed; what it needs for that is durable there.
    pub fn executed_upto(&self, node: NodeId) -> u64 {
        let Role::Leader(leading) = &self.role else { return 0 };
        self.executed_by(leading, node).unwrap_or(0)
    }

    /// Whether another has executed what was chosen a heartbeat or two ago.
    pub fn is_near(&self, node: NodeId) -> bool {
        matches!(&self.role, Role::Leader(leading) if leading.is_near(node, self.configuration.0))
    }

    /// As a leader: how long another takes to answer so many bytes, if it has answered.
    pub fn response_time(&self, node: NodeId, bytes: usize) -> Option<Duration> {
        let Role::Leader(leading) = &self.role else { return None };
        leading.peers.get(&node)?.in_flight.pace().expected(bytes)
    }

    /// As a leader: bytes of the values that it has proposed and that are not chosen.
    pub fn bytes_under_way(&self) -> usize {
        if let Role::Leader(leading) = &self.role { leading.proposals.bytes() } else { 0 }
    }

    /// Whether it is not about to promise another.
    pub fn is_current(&self) -> bool {
        self.wanted <= self.promised
    }

    /// Whether it leads, follows or stands.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The leader that it follows, itself if it leads; `None` while it does not hear any.
    pub fn leader(&self, now: Time) -> Option<NodeId> {
        match &self.role {
            Role::Leader(_) => Some(self.me),
            Role::Candidate(_) => None,
            Role::Follower | Role::Polling(_) => {
                let known = self.monitor.has_leader(now) && self.is_current();
                self.promised.node().filter(|leader| known && *leader != self.me)
            }
        }
    }

    /// Votes and decisions.
    pub fn log(&self) -> &SlotLog {
        &self.log
    }

    /// What is written by the values that are voted for, proposed or learned, and not executed, as
    /// [`Policy::written`] says.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// What is executed.
    pub fn state(&self) -> &Replicated {
        &self.state
    }

    /// Who is in the group.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration.1
    }

    /// Whether who is in the group is about to change.
    pub fn is_changing(&self) -> bool {
        match &self.role {
            Role::Leader(leading) => self.configuration.1.is_joint() || leading.coordinator.is_busy(),
            Role::Follower | Role::Polling(_) | Role::Candidate(_) => self.configuration.1.is_joint(),
        }
    }

    /// Who must vote beside a majority has changed.
    pub fn reconsider(&mut self, cx: &mut Context<'_, Self>) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        let Role::Leader(mut leading) = std::mem::replace(&mut self.role, Role::Follower) else { return };
        let chosen = leading.proposals.reconsider(|value| P::required(self, value));
        self.role = Role::Leader(leading);
        for (slot, value) in chosen {
            self.choose(slot, value, cx);
        }
        self.execute(cx);
    }

    /// Proposes an entry alone in the next slot, and says in which; `None`: not now.
    pub fn propose_alone(&mut self, entry: &Entry, cx: &mut Context<'_, Self>) -> Option<u64> {
        let applied = self.state.applied();
        let (ready, committed) = (self.takes_requests(), self.log.committed());
        let Role::Leader(leading) = &self.role else { return None };
        let changing = leading.changing.is_some_and(|slot| slot > applied);
        if !ready || changing || leading.proposals.count() >= self.config.pipeline {
            return None;
        }
        let slot = leading.proposals.next().max(committed + 1);
        let time = self.time(cx.now(), cx.wall());
        self.propose(slot, Batch::alone(time, entry), cx);
        Some(slot)
    }

    /// To whom it may have promised anything; `None`: to anybody.
    pub fn granted(&mut self, now: Time) -> Option<NodeSet> {
        self.leases.granted(now)
    }
}

/// MultiPaxos itself.
#[derive(Debug)]
pub struct MultiPaxosPolicy;

impl Policy for MultiPaxosPolicy {
    type Config = ();
    type Message = quorate_core::Never;
    type BallotConfig = ();

    fn new(_: &Config<()>, _: NodeId, _: Time) -> MultiPaxosPolicy {
        MultiPaxosPolicy
    }
}
