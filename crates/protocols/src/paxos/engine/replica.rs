//! The replica: acceptor and learner, and the dispatch of everything that comes in.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::ballot::Ballot;
use quorate_blocks::catchup::{Catchup, Informants, Source};
use quorate_blocks::clients::{self, Intake, ReadBatches, Served, WaitingReads};
use quorate_blocks::coding::Value;
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::laggards::Laggards;
use quorate_blocks::leases::Leases;
use quorate_blocks::membership::Configuration;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{Own, Walls};
use quorate_blocks::writes::Writes;
use quorate_core::{
    Context, Fact, Instant, Machine, Marginal, Mark, NodeId, PeerStatus, ProcessId, Salvaged, Saved,
    Shortage, Status, Time, Wakeup, Wall, mutation,
};

use super::ballots::{Polling, SentVotes};
use super::gossip::Gossip;
use super::lacking::Lacking;
use super::leading::Leading;
use super::policy::Policy;
use super::reads::Waiting;
use super::{Config, MAX_GAP, Message, RETRANSMIT, Reads, Record};
use crate::paxos::engine::freshness::Freshness;
use crate::paxos::engine::slots::{Cast, Preparation, ProposedValues, SlotLog, Vote, ranges};
use crate::paxos::engine::times::Times;

/// A replica's wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The leader may have been silent for too long.
    Election,
    /// The leader must show that it is there.
    Heartbeat,
    /// A lease must be tended, given back, or waited for.
    Lease,
    /// What was not answered must be sent again.
    Retransmit,
    /// Followers must be told what is chosen.
    Announce,
    /// Missing decisions must be fetched.
    Fetch,
    /// Missing shards must be gathered.
    Gossip,
    /// The policy's.
    Own,
}

/// A member, by Lamport's roles: acceptor (`promised`, votes in `log`), learner (`log`, `state`), proposer (`role`).
#[derive(Debug)]
pub struct Replica<P: Policy> {
    pub(super) config: Config<P::Config>,
    /// The policy's state.
    pub policy: P,
    pub(super) me: NodeId,
    /// No vote in a lower ballot. Durable before anything that relies on it leaves.
    pub(super) promised: Ballot,
    /// The highest ballot seen anywhere.
    pub(super) highest: Ballot,
    /// The ballot to promise as soon as no lease binds to another; at or below `promised` if there is none.
    pub(super) wanted: Ballot,
    /// What comes with `promised`.
    pub(super) ballot_config: P::BallotConfig,
    /// What comes with a ballot above, as far as it was heard.
    pub(super) announced: Option<(Ballot, P::BallotConfig)>,
    /// The last slot in which anything was accepted when `promised` was.
    pub(super) safety_threshold: u64,
    /// The owner of `wanted` waits for a reply to its `Prepare`, with votes from this slot on.
    pub(super) prepare_from: Option<u64>,
    /// What the owner of `promised` was told of votes, if that takes long.
    pub(super) sent_votes: Option<SentVotes>,
    pub(super) log: SlotLog,
    /// Of what is voted for or proposed, and not executed.
    pub(super) times: Times,
    /// Of the same, if the policy asks.
    pub(super) writes: Writes,
    /// The others' wall clocks.
    pub(super) walls: Walls,
    pub(super) state: Replicated,
    /// In force: the last that was executed, and its slot.
    pub(super) configuration: (u64, Configuration),
    pub(super) role: Role,
    pub(super) monitor: LeaderMonitor,
    pub(super) leases: Leases,
    /// When each other replica was last heard.
    pub(super) heard: Marginal<BTreeMap<NodeId, Time>>,
    /// Those whose votes did not come, when this replica led.
    pub(super) laggards: Laggards,
    /// Of its state.
    pub(super) freshness: Freshness,
    /// Until when it said that it would read locally.
    pub(super) reads_until: Option<Time>,
    /// About to stop: takes no new duties.
    pub(super) draining: bool,
    /// When others have last said that they are.
    pub(super) leaving: BTreeMap<NodeId, Time>,
    /// What clients have asked of this replica.
    pub intake: Intake,
    /// Reads that can be answered later.
    pub(super) waiting: WaitingReads<Waiting>,
    /// Those of this node's clients, while it does not lead (`reads=alr`).
    pub(super) batches: ReadBatches,
    /// How reads were served.
    pub(super) served: Served,
    /// Votes cast since the last batch end, in `promised`.
    votes: Vec<u64>,
    /// Who has decisions that are missing here.
    pub(super) informants: Informants,
    pub(super) catchup: Catchup,
    pub(super) source: Source,
    /// The last `Record::Committed`, and whether something else was persisted since the last batch end.
    pub(super) recorded: u64,
    pub(super) persisted: bool,
    pub(super) fetching: bool,
    pub(super) lacking: Lacking,
    pub(super) gossip: Gossip,
    /// Counts values that this replica has proposed as a leader, since its start.
    pub(super) proposed: ProposedValues,
}

/// The proposer's role.
#[derive(Debug)]
pub enum Role {
    /// Follows the owner of `promised`, if it is another.
    Follower,
    /// Asks whether it should stand.
    Polling(Polling),
    /// Has promised its own ballot, and prepares.
    Candidate(Preparation),
    /// Has prepared.
    Leader(Box<Leading>),
}

impl<P: Policy> Machine for Replica<P> {
    type Config = Config<P::Config>;
    type Message = Message<P::Message, P::BallotConfig>;
    type Record = Record<P::BallotConfig>;
    type Timer = Timer;

    fn wakeup(timer: Timer) -> Wakeup {
        match timer {
            Timer::Election => Wakeup::TakesOver { times: 1 },
            Timer::Heartbeat | Timer::Lease => Wakeup::Matters,
            Timer::Retransmit | Timer::Announce | Timer::Fetch | Timer::Gossip | Timer::Own => Wakeup::Spared,
        }
    }

    fn recover(config: Self::Config, saved: Saved<Self::Record>, cx: &mut Context<'_, Self>) -> Self {
        let state = match saved.snapshot {
            Some(image) => Replicated::load(&image).expect("an image that was saved loads"),
            None => Replicated::default(),
        };
        let me = cx.me().replica().expect("a replica's process id");
        let (mut promised, mut highest) = (Ballot::ZERO, Ballot::ZERO);
        let mut ballot_config = P::BallotConfig::default();
        let mut log = SlotLog::new(state.applied());
        let mut recorded = 0;
        for record in saved.records {
            match record {
                Record::Promise { ballot, ballot_config: with } => {
                    if ballot >= promised {
                        (promised, ballot_config) = (ballot, with);
                    }
                }
                Record::Taken(ballot) => highest = highest.max(ballot),
                Record::Vote { slot, ballot, value } => {
                    promised = promised.max(ballot);
                    log.vote(slot, ballot, value);
                }
                Record::Learned { slot, ballot, value } => drop(log.choose(slot, ballot, value)),
                // The last record of its life, if the state that it speaks of was lost: nothing to undo.
                Record::Installed(_) => {}
                Record::Committed(upto) => {
                    recorded = upto;
                    log.commit_recorded(upto);
                }
            }
        }
        let (now, patient) = (cx.now(), saved.restarted || config.group.waits_for_first_leader(me));
        let restarted = saved.restarted && config.reads == Reads::Lease;
        let first_guard = cx.random().u64();
        let mut replica = Replica {
            me,
            promised,
            highest: highest.max(promised),
            wanted: promised,
            ballot_config,
            announced: None,
            safety_threshold: log.last(),
            prepare_from: None,
            sent_votes: None,
            configuration: (0, Configuration::default()),
            state,
            role: Role::Follower,
            monitor: LeaderMonitor::new(config.timeouts, patient, now, cx.random()),
            leases: Leases::new(me, config.lease, restarted, first_guard, promised.number(), now),
            freshness: Freshness::new(first_guard.rotate_left(32)),
            reads_until: None,
            heard: Marginal::default(),
            laggards: Laggards::default(),
            policy: P::new(&config, me, now),
            draining: false,
            leaving: BTreeMap::new(),
            intake: Intake::new(me.into(), config.intake.max_bytes),
            waiting: WaitingReads::default(),
            batches: ReadBatches::new(first_guard.rotate_left(16)),
            served: Served::default(),
            votes: Vec::new(),
            informants: Informants::default(),
            catchup: Catchup::default(),
            source: Source::default(),
            recorded,
            persisted: false,
            fetching: false,
            lacking: Lacking::default(),
            gossip: Gossip::default(),
            proposed: ProposedValues::default(),
            times: Times::default(),
            writes: Writes::default(),
            walls: Walls::default(),
            log,
            config,
        };
        replica.policy.on_installed(replica.state.applied());
        let votes: Vec<_> = replica.log.votes(replica.state.applied() + 1).collect();
        let votes: Vec<_> = votes.into_iter().map(|(slot, vote)| (slot, vote.value.clone())).collect();
        for (slot, value) in votes.iter().filter_map(|(slot, value)| Some((*slot, value.whole()?))) {
            if !mutation::active("paxos/votes-forgotten-by-the-policy") {
                replica.on_value(slot, value);
            }
        }
        let slot = replica.state.applied();
        cx.note(|| Fact::Installed { slot });
        votes.iter().for_each(|(slot, _)| replica.note_stored(*slot, cx));
        let patience = replica.monitor.remaining(now).expect("it has just begun");
        cx.set_timer(Timer::Election, patience);
        replica.publish_configuration(cx);
        replica.execute(cx);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Self::Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        // From whomever it is: a member that missed a change does not know who leads, and one that joins knows nobody.
        let Some(from) = from.replica() else { return };
        self.heard.0.insert(from, cx.now());
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Own(message) => P::on_message(self, from, message, cx),
            Message::Lease(message) => self.on_lease(from, &message, cx),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::Freshness(message) => self.on_freshness(from, message, cx),
            Message::Gossip(message) => self.on_gossip(from, message, cx),
            Message::Poll { ballot } => self.on_poll(from, ballot, cx),
            Message::PollReply { ballot, granted, highest, committed } => {
                self.on_poll_reply(from, ballot, granted, (highest, committed), cx);
            }
            Message::Announce { ballot, ballot_config } => self.on_announce(from, ballot, ballot_config, cx),
            Message::Which { ballot } => self.on_which(from, ballot, cx),
            Message::Prepare { ballot, ballot_config, from: slot } => {
                self.learn_ballot_config(ballot, ballot_config);
                self.on_prepare(from, ballot, slot, cx);
            }
            Message::PrepareReply { ballot, reply, wall } => {
                self.on_prepare_reply(from, ballot, reply, wall, cx);
            }
            Message::Accept { ballot, slot, value, committed } => {
                self.on_accept(from, ballot, slot, value, committed, cx);
            }
            Message::AcceptReply { ballot, grants, slots } => {
                self.on_accept_reply(from, ballot, grants, &slots, cx);
            }
            Message::Reject { promised } => self.on_reject(promised, cx),
            Message::Commit { ballot, committed } => {
                if self.follow(from, ballot, cx) {
                    self.on_committed(from, ballot, committed, cx);
                }
            }
            Message::Heartbeat { ballot, committed, sent } => {
                if self.follow(from, ballot, cx) {
                    self.on_committed(from, ballot, committed, cx);
                    self.tend_leases(cx);
                    self.ask_freshness(from, cx);
                    self.say_leave(cx);
                    let committed = self.log.complete();
                    let (bound, wall) = (cx.now() < self.leases.bound_until(), cx.wall());
                    cx.send(from, Message::HeartbeatReply { ballot, committed, bound, sent, wall });
                }
            }
            Message::HeartbeatReply { ballot, committed, bound, sent, wall } => {
                self.on_heartbeat_reply(from, ballot, (committed, bound), (sent, wall), cx);
            }
            Message::Sync { id } => self.on_sync(from, id),
            Message::SyncReply { id, ballot, slot } => {
                let place = (slot, ballot.number());
                self.batches.on_place(id, place, self.state.applied(), None);
            }
            Message::StepUp { ballot } => {
                if self.promised == ballot && ballot.node() == Some(from) {
                    self.monitor.forget();
                    self.step_up(cx);
                }
            }
            Message::Leave => self.on_leave(from, cx),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Lease => {
                self.adopt(cx);
                self.tend_leases(cx);
            }
            Timer::Retransmit => self.retransmit(cx),
            Timer::Announce => self.announce(cx),
            Timer::Fetch => {
                self.fetching = false;
                self.fetch(cx);
            }
            Timer::Gossip => self.gather(cx),
            Timer::Own => P::on_timer(self, cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.lead(cx);
        self.serve_batches(cx);
        self.acknowledge(cx);
        if std::mem::take(&mut self.persisted) {
            // In the shadow of records that are synced anyway.
            self.record_committed(cx);
        }
        if let Some(leader) =
            self.leader(cx.now()).filter(|leader| *leader != self.me || self.takes_requests())
        {
            self.intake.found(leader);
        }
        for (proxy, message) in self.intake.flush(&self.state) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        super::invariants::check(self);
    }
}

impl<P: Policy> Replica<P> {
    /// A value is voted for, proposed or learned here; or, at a start, had been.
    pub(super) fn on_value(&mut self, slot: u64, value: &Bytes) {
        self.times.set(slot, value);
        self.lacking.on_value(slot, value);
        let Some(written) = P::written(value) else { return };
        if matches!(self.role, Role::Leader(_)) {
            self.policy.on_write(&written);
        }
        self.writes.set(slot, written);
    }

    /// The time to propose, when the own clocks show this.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Wall {
        let own = Own { me: self.me, wall, now };
        self.walls.time(own, &|wall| self.configuration.1.reached(wall)).unwrap_or_default()
    }

    /// The time up to which keys must last to be read from the state as it is: past what would be proposed now, and
    /// past whatever another replica may have executed.
    pub(super) fn read_time(&self, now: Time, wall: Wall) -> Wall {
        let wall = self.time(now, wall);
        if self.state.next_expiry().is_none() || mutation::active("paxos/expiry-by-the-present-wall") {
            return wall;
        }
        wall.max(self.times.latest())
    }

    /// The owner of `ballot` leads or stands, and speaks: true if this replica is in that ballot.
    pub(super) fn follow(&mut self, from: NodeId, ballot: Ballot, cx: &mut Context<'_, Self>) -> bool {
        if ballot.node() != Some(from) {
            return false;
        }
        if ballot < self.promised {
            cx.send(from, Message::Reject { promised: self.promised });
            return false;
        }
        self.see(ballot, cx);
        if ballot > self.promised && ballot > self.wanted {
            // What comes with it was not heard.
            cx.send(from, Message::Which { ballot });
        }
        if ballot == self.promised {
            self.monitor.heard(cx.now());
            if let Role::Polling(_) = self.role {
                self.role = Role::Follower;
            }
        }
        ballot == self.promised
    }

    /// Phase 2b.
    fn on_accept(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        slot: u64,
        value: Value,
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        if slot <= self.log.complete().saturating_add(MAX_GAP) {
            let unrecorded = mutation::active("paxos/no-own-revote") && self.is_own_repeat(from, slot);
            let cast = match unrecorded {
                true => Cast::Known,
                false => self.log.vote(slot, ballot, value.clone()),
            };
            if cast == Cast::New {
                // Of a shard, only the leader knows what it writes.
                value.whole().into_iter().for_each(|value| self.on_value(slot, value));
                self.persist(Record::Vote { slot, ballot, value }, cx);
                if from == self.me {
                    cx.mark(Mark::Recorded { slot });
                }
            }
            if cast != Cast::Late {
                self.votes.push(slot);
            }
        }
        self.on_committed(from, ballot, committed, cx);
    }

    fn is_own_repeat(&self, from: NodeId, slot: u64) -> bool {
        from == self.me && matches!(&self.role, Role::Leader(leading) if slot <= leading.recovered)
    }

    fn acknowledge(&mut self, cx: &mut Context<'_, Self>) {
        let Some(leader) = self.promised.node().filter(|_| !self.votes.is_empty()) else { return };
        let slots = ranges(&mut self.votes);
        self.votes.clear();
        let ballot = self.promised;
        for (grants, slots) in P::acknowledge(self, slots, cx) {
            let slots = slots.into_iter().flat_map(|(first, last)| self.log.held_in(first, last)).collect();
            cx.send(leader, Message::AcceptReply { ballot, grants, slots });
        }
    }

    /// Votes cast in a ballot that is no longer promised are not worth a reply.
    pub(super) fn forget_votes(&mut self) {
        if !mutation::active("paxos/votes-of-the-ballot-before") {
            self.votes.clear();
        }
    }

    fn on_client(&mut self, from: ProcessId, message: clients::Message, cx: &mut Context<'_, Self>) {
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        let (mut ask, behind) = match message {
            clients::Message::Ask(ask) => (ask, None),
            clients::Message::AskBehind { ask, write } => (ask, Some(write)),
            clients::Message::Query { nonce, reads } => return self.on_query(from, nonce, reads, cx),
            _ => return,
        };
        self.intake.tell_members(from, &ask, &self.state);
        let asked = !ask.is_probe();
        if matches!(from, ProcessId::Proxy(proxy) if proxy.host() == Some(self.me)) {
            self.policy.on_ask(&self.ballot_config, &ask);
        }
        self.read_here(from, &mut ask, behind, cx);
        if asked && ask.is_probe() {
            return;
        }
        if self.takes_requests() {
            self.intake.on_ask(from, ask, &self.state);
        } else {
            // Whoever leads and does not take requests yet is no help.
            let leader = self.leader(cx.now()).filter(|leader| *leader != self.me);
            self.intake.redirect(from, ask.nonce, leader);
        }
    }
}

impl<P: Policy> quorate_core::Replica for Replica<P> {
    fn save(&self) -> Saved<Self::Record> {
        let (ballot, ballot_config) = (self.promised, self.ballot_config.clone());
        let mut records = vec![Record::Promise { ballot, ballot_config }, Record::Taken(self.highest)];
        for (slot, vote) in self.log.votes(self.state.applied() + 1) {
            let Vote { ballot, value, chosen } = vote.clone();
            records.push(match chosen {
                true => Record::Learned { slot, ballot, value },
                false => Record::Vote { slot, ballot, value },
            });
        }
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records }
    }

    fn salvage(&self) -> Salvaged {
        self.execute_votes()
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.draining = true;
        // First: a successor's ballot comes without it.
        self.leave(cx);
        if let Ok(transfer_target) = self.transfer_target(None, cx.now()) {
            self.hand_over(transfer_target, cx);
        }
        self.stop_leading(cx);
    }

    fn on_awaited(&mut self, slot: u64, cx: &mut Context<'_, Self>) {
        self.lacking.awaited = self.lacking.awaited.max(slot);
        self.review_lacking(cx);
        self.fetch_lacking(cx);
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.intake.set_shortage(shortage);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
    }

    fn marginal(&self) -> &dyn Debug {
        &self.heard.0
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.answers_at_once(command, at)
    }

    fn status(&self, at: Instant) -> Status {
        let now = at.now;
        let committed = self.log.committed();
        let (role, peers) = match &self.role {
            Role::Follower => (self.configuration.1.standing(self.me), Vec::new()),
            Role::Polling(_) | Role::Candidate(_) => ("candidate", Vec::new()),
            Role::Leader(leading) => {
                let peers = leading.peers.iter().map(|(&node, peer)| PeerStatus {
                    node,
                    lag: committed.saturating_sub(peer.committed),
                    heard_ms: peer.heard.map(|at| now.since(at).as_millis() as u64),
                });
                ("leader", peers.collect())
            }
        };
        let leads = matches!(self.role, Role::Leader(_));
        let hint = self.promised.node().filter(|node| *node != self.me && self.monitor.is_led(now));
        let mut status = Status {
            role,
            leader: if leads { Some(self.me) } else { hint },
            ballot: self.promised.to_string(),
            committed,
            applied: self.state.applied(),
            lease: self.may_read_locally(now),
            reads: if self.may_read_locally(now) { "lease" } else { "log" },
            peers,
            samples: [&self.served.samples(self.waiting.held())[..], &self.state.samples()].concat(),
            facts: Vec::new(),
        };
        if self.config.reads == Reads::Lease {
            status.samples.extend(self.leases.samples(self.believed_until(now), now));
        }
        if leads {
            let own = Own { me: self.me, wall: at.wall, now };
            self.walls.tell(own, &|wall| self.configuration.1.reached(wall), &mut status);
        }
        if P::assignment(self).is_some() {
            status.samples.extend(self.gossip.samples());
            status.samples.extend(self.proposed.samples());
        }
        P::status(self, now, &mut status);
        status
    }
}

/// Where timers are set for the first time in a role.
pub(super) fn pace_of_leading<P: Policy>(announce: Duration, cx: &mut Context<'_, Replica<P>>) {
    cx.set_timer(Timer::Heartbeat, Duration::ZERO);
    cx.set_timer(Timer::Retransmit, RETRANSMIT);
    cx.set_timer(Timer::Announce, announce);
}
