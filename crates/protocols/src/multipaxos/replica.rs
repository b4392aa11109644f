//! The replica: acceptor and learner, and the dispatch of everything that comes in.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Context, Fact, Instant, Machine, Mark, NodeId, PeerStatus, ProcessId, Saved, Status, Time, digest,
    mutation,
};
use quorate_parts::ballot::Ballot;
use quorate_parts::catchup::{self, Catchup, Source};
use quorate_parts::clients::{self, Intake};
use quorate_parts::election::Watch;
use quorate_parts::lease::Grantor;
use quorate_parts::membership::Configuration;
use quorate_parts::slots::{Cast, Preparation, SlotLog, Vote};
use quorate_parts::state::Replicated;

use super::ballots::Polling;
use super::leading::Leading;
use super::{ANNOUNCE, Config, GRACE, MAX_GAP, Message, RETRANSMIT, Reads, Record};

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
}

/// A member of the group. State by Lamport's roles: acceptor (`promised`, votes in `log`), learner (decisions in
/// `log`, `state`), proposer (`role`).
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    /// No vote in a lower ballot. Durable before anything that relies on it leaves.
    pub(super) promised: Ballot,
    /// The highest ballot seen anywhere.
    pub(super) highest: Ballot,
    /// The ballot to promise as soon as no lease binds to another; at or below `promised` if there is none.
    pub(super) wanted: Ballot,
    /// The owner of `wanted` waits for a reply to its `Prepare`, with votes from this slot on.
    pub(super) prepare_from: Option<u64>,
    pub(super) log: SlotLog,
    pub(super) state: Replicated,
    /// In force: the last that was executed, and its slot.
    pub(super) configuration: (u64, Configuration),
    pub(super) role: Role,
    pub(super) watch: Watch,
    /// The promise that this replica, as a follower, has made to `grantee`.
    pub(super) grantor: Grantor,
    pub(super) grantee: Option<NodeId>,
    /// After a restart: promises of the earlier incarnation may bind until then.
    pub(super) bound_until: Time,
    /// About to stop: takes no new duties.
    pub(super) draining: bool,
    pub(super) intake: Intake,
    /// Votes cast since the last batch end, in `promised`.
    votes: Vec<u64>,
    /// Slots up to here are chosen, as the furthest message said.
    pub(super) goal: u64,
    /// Who can be asked for them.
    pub(super) informant: Option<NodeId>,
    pub(super) catchup: Catchup,
    source: Source,
    /// The last `Record::Committed`, and whether something else was persisted since the last batch end.
    recorded: u64,
    persisted: bool,
    fetching: bool,
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

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let state = match saved.snapshot {
            Some(image) => Replicated::load(&image).expect("an image that was saved loads"),
            None => Replicated::default(),
        };
        let me = cx.me().replica().expect("a replica's process id");
        let mut promised = Ballot::ZERO;
        let mut log = SlotLog::new(state.applied());
        let mut installed = 0;
        let mut recorded = 0;
        for record in saved.records {
            match record {
                Record::Promise(ballot) => promised = promised.max(ballot),
                Record::Vote { slot, ballot, value } => {
                    promised = promised.max(ballot);
                    log.vote(slot, ballot, value);
                }
                Record::Learned { slot, ballot, value } => drop(log.choose(slot, ballot, value)),
                Record::Installed(slot) => installed = slot,
                Record::Committed(upto) => {
                    recorded = upto;
                    log.commit_recorded(installed, upto);
                }
            }
        }
        let now = cx.now();
        let wait = match config.reads {
            Reads::Lease if saved.restarted => config.terms.restart_wait(),
            Reads::Lease | Reads::Log => Duration::ZERO,
        };
        let first_guard = cx.random().u64();
        let mut replica = Replica {
            me,
            promised,
            highest: promised,
            wanted: promised,
            prepare_from: None,
            configuration: (0, Configuration::default()),
            state,
            role: Role::Follower,
            watch: Watch::new(config.pace, saved.restarted, now, cx.random()),
            grantor: Grantor::new(config.terms, first_guard),
            grantee: None,
            bound_until: now + wait,
            draining: false,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            votes: Vec::new(),
            goal: log.committed(),
            informant: None,
            catchup: Catchup::default(),
            source: Source::default(),
            recorded,
            persisted: false,
            fetching: false,
            log,
            config,
        };
        let slot = replica.state.applied();
        cx.note(|| Fact::Installed { slot });
        if installed > slot {
            // That state was lost in a crash. What will be recorded as chosen from now on has its values recorded too.
            replica.persist(Record::Installed(slot), cx);
        }
        let patience = replica.watch.remaining(now).expect("it has just begun");
        cx.set_timer(Timer::Election, patience);
        replica.restate(cx);
        replica.execute(cx);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        // From whomever it is: a member that missed a change does not know who leads, and one that joins knows nobody.
        let Some(from) = from.replica() else { return };
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Lease(message) => self.on_lease(from, message, cx),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::Poll { ballot } => self.on_poll(from, ballot, cx),
            Message::PollReply { ballot, granted, highest, committed } => {
                self.on_poll_reply(from, ballot, granted, (highest, committed), cx);
            }
            Message::Prepare { ballot, from: slot } => self.on_prepare(from, ballot, slot, cx),
            Message::PrepareReply { ballot, committed, votes } => {
                self.on_prepare_reply(from, ballot, committed, votes, cx);
            }
            Message::Accept { ballot, slot, value, committed } => {
                self.on_accept(from, ballot, slot, value, committed, cx);
            }
            Message::AcceptReply { ballot, slots } => self.on_accept_reply(from, ballot, &slots, cx),
            Message::Reject { promised } => self.on_reject(promised, cx),
            Message::Commit { ballot, committed } => {
                if self.follow(from, ballot, cx) {
                    self.on_committed(from, ballot, committed, cx);
                }
            }
            Message::Heartbeat { ballot, committed } => {
                if self.follow(from, ballot, cx) {
                    self.on_committed(from, ballot, committed, cx);
                    self.tend_lease(cx);
                    let committed = self.log.committed();
                    cx.send(from, Message::HeartbeatReply { ballot, committed });
                }
            }
            Message::HeartbeatReply { ballot, committed } => {
                self.on_heartbeat_reply(from, ballot, committed, cx);
            }
            Message::StepUp { ballot } => {
                if self.promised == ballot && ballot.node() == Some(from) {
                    self.watch.forget();
                    self.step_up(cx);
                }
            }
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Lease => {
                self.adopt(cx);
                self.tend_lease(cx);
            }
            Timer::Retransmit => self.retransmit(cx),
            Timer::Announce => self.announce(cx),
            Timer::Fetch => {
                self.fetching = false;
                self.fetch(cx);
            }
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.lead(cx);
        self.acknowledge(cx);
        if std::mem::take(&mut self.persisted) {
            // In the shadow of records that are synced anyway.
            self.record_committed(cx);
        }
        for (proxy, message) in self.intake.flush(&self.state) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        super::invariants::check(self);
    }
}

impl Replica {
    pub(super) fn persist(&mut self, record: Record, cx: &mut Context<'_, Self>) {
        self.persisted = true;
        cx.persist(record);
    }

    /// From now on, a restart executes at least as much as is executed now.
    pub(super) fn record_committed(&mut self, cx: &mut Context<'_, Self>) {
        if self.recorded < self.log.committed() {
            self.recorded = self.log.committed();
            cx.persist(Record::Committed(self.recorded));
        }
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
        if ballot == self.promised {
            self.watch.heard(cx.now());
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
        value: Bytes,
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        if !self.follow(from, ballot, cx) {
            return;
        }
        if slot <= self.log.committed().saturating_add(MAX_GAP) {
            let unrecorded = mutation::active("multipaxos/no-own-revote") && self.is_own_repeat(from, slot);
            let cast = match unrecorded {
                true => Cast::Known,
                false => self.log.vote(slot, ballot, value.clone()),
            };
            if cast == Cast::New {
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
        self.votes.sort_unstable();
        let mut slots: Vec<(u64, u64)> = Vec::new();
        for slot in self.votes.drain(..) {
            match slots.last_mut() {
                Some((_, last)) if slot <= *last + 1 => *last = slot,
                _ => slots.push((slot, slot)),
            }
        }
        cx.send(leader, Message::AcceptReply { ballot: self.promised, slots });
    }

    /// Votes cast in a ballot that is no longer promised are not worth a reply.
    pub(super) fn forget_votes(&mut self) {
        self.votes.clear();
    }

    /// The leader of `ballot` knows all slots up to `committed` to be chosen.
    pub(super) fn on_committed(
        &mut self,
        from: NodeId,
        ballot: Ballot,
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        for slot in self.log.commit(ballot, committed) {
            self.note_chosen(slot, cx);
        }
        self.execute(cx);
        self.hear_of(from, committed, cx);
    }

    /// Somebody can tell all slots up to `committed`.
    pub(super) fn hear_of(&mut self, from: NodeId, committed: u64, cx: &mut Context<'_, Self>) {
        if committed >= self.goal {
            self.goal = committed;
            self.informant = Some(from);
        }
        self.fetch_soon(GRACE, cx);
    }

    pub(super) fn note_chosen(&self, slot: u64, cx: &mut Context<'_, Self>) {
        if let Some(value) = self.log.chosen(slot) {
            cx.note(|| Fact::Chosen { slot, digest: digest(value) });
        }
    }

    /// A value is known to be chosen, other than by a commit notice for the own vote.
    pub(super) fn choose(&mut self, slot: u64, value: Bytes, cx: &mut Context<'_, Self>) {
        let ballot = self.promised;
        if self.log.choose(slot, ballot, value.clone()) {
            self.persist(Record::Learned { slot, ballot, value }, cx);
        }
        self.note_chosen(slot, cx);
    }

    /// Executes what is chosen, in order.
    pub(super) fn execute(&mut self, cx: &mut Context<'_, Self>) {
        while let Some(value) = self.log.chosen(self.state.applied() + 1) {
            let value = value.clone();
            let leads = matches!(self.role, Role::Leader(_));
            let intake = &mut self.intake;
            let effect = |effect| {
                if leads {
                    intake.on_effect(effect);
                }
            };
            let slot = self.state.applied() + 1;
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            if leads {
                cx.mark(Mark::Applied { slot, requests });
            }
            if self.state.configuration().is_some_and(|(at, _)| *at == slot) {
                self.restate(cx);
            }
        }
        self.goal = self.goal.max(self.log.committed());
        for (upto, bytes) in self.source.retention(self.state.applied(), self.config.retain, cx.now()) {
            self.log.retain(upto, bytes);
        }
        self.after_execution(cx);
    }

    fn on_client(&mut self, from: ProcessId, message: clients::Message, cx: &mut Context<'_, Self>) {
        let clients::Message::Ask(ask) = message else { return };
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        self.intake.tell_members(from, &ask, &self.state);
        if self.takes_requests() {
            self.intake.on_ask(from, ask, &self.state);
        } else {
            let known = self.watch.has_leader(cx.now()) && self.wanted <= self.promised;
            let leader = self.promised.node().filter(|leader| known && *leader != self.me);
            self.intake.redirect(from, ask.nonce, leader);
        }
    }

    // Catch-up ---------------------------------------------------------------------------------------------------

    pub(super) fn fetch_soon(&mut self, after: Duration, cx: &mut Context<'_, Self>) {
        if self.log.committed() < self.goal && !self.fetching {
            self.fetching = true;
            cx.set_timer(Timer::Fetch, after);
        }
    }

    pub(super) fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if self.log.committed() >= self.goal {
            return;
        }
        if let Some(peer) = self.informant
            && let Some((peer, message)) = self.catchup.ask(peer, self.log.committed() + 1, cx.now())
        {
            cx.send(peer, Message::Catchup(message));
        }
        self.fetch_soon(catchup::RETRY, cx);
    }

    fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: slot } => {
                if let Some(answer) = self.source.on_fetch(slot.max(1), &self.log, &self.state, now) {
                    cx.send(from, Message::Catchup(answer));
                }
            }
            catchup::Message::More { slot, cursor } => {
                let answer = self.source.on_more(slot, cursor, now);
                cx.send(from, Message::Catchup(answer));
            }
            catchup::Message::Values { from: first, values } => {
                self.catchup.on_values(from);
                for (slot, value) in (first..).zip(values) {
                    if slot > self.log.committed() && slot <= self.log.committed() + MAX_GAP {
                        self.choose(slot, value, cx);
                    }
                }
                self.execute(cx);
                self.fetch(cx);
            }
            catchup::Message::Piece { slot, cursor, bytes, next } => {
                let (piece, applied) = ((slot, cursor, bytes, next), self.state.applied());
                let ask = |message| cx.send(from, Message::Catchup(message));
                if let Some(state) = self.catchup.on_piece(from, piece, applied, now, ask) {
                    self.install(state, cx);
                }
            }
            catchup::Message::Gone { slot } => {
                self.catchup.on_gone(from, slot);
                self.fetch(cx);
            }
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let slot = state.applied();
        if slot <= self.state.applied() {
            return;
        }
        self.persisted = true;
        cx.persist_state(Record::Installed(slot));
        self.state = state;
        self.log.install(slot);
        cx.note(|| Fact::Installed { slot });
        if self.state.configuration().is_some_and(|(at, _)| *at > self.configuration.0) {
            self.restate(cx);
        }
        self.execute(cx);
        self.fetch(cx);
    }
}

impl quorate_core::Replica for Replica {
    fn save(&self) -> Saved<Record> {
        let mut records = vec![Record::Promise(self.promised)];
        for (slot, vote) in self.log.votes(self.state.applied() + 1) {
            let Vote { ballot, value, chosen } = vote.clone();
            records.push(match chosen {
                true => Record::Learned { slot, ballot, value },
                false => Record::Vote { slot, ballot, value },
            });
        }
        Saved { restarted: true, snapshot: Some(self.state.freeze()), records }
    }

    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        self.draining = true;
        if let Ok(heir) = self.heir(None, cx.now()) {
            self.hand_over(heir, cx);
        }
        self.stop_leading(cx);
    }

    fn read(&self, command: &Bytes) -> Bytes {
        self.state.read_now(command)
    }

    fn fingerprint(&self) -> (u64, u64) {
        self.state.fingerprint()
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
        let hint = self.promised.node().filter(|node| *node != self.me && self.watch.has_leader(now));
        Status {
            role,
            leader: if leads { Some(self.me) } else { hint },
            ballot: self.promised.to_string(),
            committed,
            applied: self.state.applied(),
            lease: self.may_read_locally(now),
            reads: if self.may_read_locally(now) { "lease" } else { "log" },
            peers,
        }
    }
}

/// Where timers are set for the first time in a role.
pub(super) fn pace_of_leading(cx: &mut Context<'_, Replica>) {
    cx.set_timer(Timer::Heartbeat, Duration::ZERO);
    cx.set_timer(Timer::Retransmit, RETRANSMIT);
    cx.set_timer(Timer::Announce, ANNOUNCE);
}
