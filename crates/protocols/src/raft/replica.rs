//! The replica: follower's side of the log, and the dispatch of everything that comes in.

use std::time::Duration;

use quorate_blocks::clients::{self, Intake};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::membership::Configuration;
use quorate_blocks::prefix_log::{Append, Entry, Replay, ReplicatedLog};
use quorate_blocks::quorum::Tally;
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{Context, Fact, Machine, NodeId, ProcessId, Saved, Time, Wakeup, Wall, mutation};

use super::changes::HeldAsks;
use super::coded::{Gathering, Shards};
use super::leading::Leading;
use super::reads::FollowerReads;
use super::{Config, Message, Reads, Record};

/// A replica's wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The leader may have been silent for too long.
    Election,
    /// The leader must show that it is there.
    Heartbeat,
    /// What was not answered must be sent again.
    Retransmit,
    /// Followers must be told what is committed.
    Announce,
    /// The leases of earlier leaders may be over.
    Gate,
    /// The own lease is to be extended.
    Extend,
    /// A snapshot must be asked for (again).
    Fetch,
    /// An attempt to hand over has taken too long.
    Transfer,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    /// The latest term seen. Durable, with the vote, before a vote is given in it.
    pub(super) term: u64,
    pub(super) voted: Option<NodeId>,
    /// Who leads in this term, if it was heard.
    pub(super) leader: Option<NodeId>,
    pub(super) log: ReplicatedLog,
    pub(super) role: Role,
    pub(super) monitor: LeaderMonitor,
    /// Election timeouts that have passed since a leader was last heard.
    pub(super) silent_timeouts: u32,
    /// After a restart: an earlier incarnation may have told a leader until then that it follows it.
    pub(super) bound_until: Time,
    /// About to stop: takes no new duties.
    pub(super) draining: bool,
    pub(super) intake: Intake,
    /// An election is under way that most likely ends soon (this replica has stopped leading of its own will, stands,
    /// or has voted): whoever asks is kept until it is known who leads.
    pub(super) expecting: bool,
    pub(super) held: HeldAsks,
    pub(super) near: FollowerReads,
    /// The others' wall clocks.
    pub(super) walls: Walls,
    /// Whether the leader has to be told.
    pub(super) acknowledge: bool,
    /// Where the configuration is written that drivers were told of, and whether it may have changed since.
    pub(super) configured: Option<u64>,
    /// What it has in shards, where entries are sent so.
    pub(super) shards: Shards,
}

/// The three states of a Raft server, and the one before candidacy.
#[derive(Debug)]
pub enum Role {
    /// Follows, or waits for somebody to follow.
    Follower,
    /// Asks whether it would be elected.
    PreCandidate {
        /// Who would vote for it.
        tally: Tally,
        /// The term that it is in, and stays in.
        term: u64,
    },
    /// Stands.
    Candidate {
        /// Who has voted for it.
        tally: Tally,
        /// The leader has asked it to.
        transfer: bool,
        /// Whether its own vote is durable.
        durable: bool,
        /// When it has entered the term.
        since: Time,
    },
    /// Is elected, and gathers the values of entries that it has in shards.
    Gathering(Gathering),
    /// Leads.
    Leader(Box<Leading>),
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn wakeup(timer: Timer) -> Wakeup {
        match timer {
            Timer::Election => Wakeup::TakesOver { times: 1 },
            Timer::Heartbeat => Wakeup::Matters,
            Timer::Retransmit
            | Timer::Announce
            | Timer::Gate
            | Timer::Extend
            | Timer::Fetch
            | Timer::Transfer => Wakeup::Spared,
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let mut replay = Replay::new(saved.snapshot, &config.group, now);
        let (mut term, mut voted) = (0, None);
        for record in saved.records {
            match record {
                Record::Term { term: next, voted: vote } => (term, voted) = (next, vote),
                Record::Whole { index, value } => {
                    if let Some(log) = replay.log() {
                        log.add_value(index, &value.into());
                        log.set_data(index, None);
                    }
                }
                record => replay.on_record(record),
            }
        }
        let log = ReplicatedLog::recover(replay, config.retain, cx);
        let bound = saved.restarted && config.reads == Reads::OngaroLease;
        let bound = bound && !mutation::active("ongaro/no-restart-wait");
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let mut replica = Replica {
            me,
            term,
            voted,
            leader: None,
            log,
            role: Role::Follower,
            monitor: LeaderMonitor::new(config.timeouts, patient, now, cx.random()),
            silent_timeouts: 0,
            bound_until: if bound { now + config.timeouts.election } else { now },
            draining: false,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            expecting: false,
            held: HeldAsks::default(),
            near: FollowerReads::new(cx.random()),
            walls: Walls::default(),
            acknowledge: false,
            configured: None,
            shards: Shards::default(),
            config,
        };
        replica.review_shards();
        replica.publish_configuration(cx);
        replica.execute(cx);
        let patience = replica.monitor.remaining(now).expect("it has just begun");
        cx.set_timer(Timer::Election, if replica.is_alone() { Duration::ZERO } else { patience });
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        let Some(from) = from.replica().filter(|_| message.is_possible()) else { return };
        if let Message::Vote { transfer, .. } = message
            && !transfer
            && self.is_bound(cx.now())
        {
            // Not even its term is looked at: it would depose a leader that works.
            return;
        }
        if let Some(term) = message.term() {
            if term > self.term {
                self.enter(term, None, cx);
            }
            // Whoever grants a pre-vote may be behind: it has not been asked to enter any term yet.
            if term < self.term && !matches!(message, Message::PreVoteReply { .. }) {
                return self.on_old_term(from, &message, cx);
            }
        }
        if message.is_leaders() && !self.follow(from, cx) {
            return;
        }
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::PreVote { term, last_index, last_term } => {
                self.on_pre_vote(from, term, (last_index, last_term), cx);
            }
            Message::PreVoteReply { term, granted, .. } => self.on_pre_vote_reply(from, term, granted, cx),
            Message::Vote { last_index, last_term, .. } => self.on_vote(from, (last_index, last_term), cx),
            Message::VoteReply { granted, wall, .. } => self.on_vote_reply(from, granted, wall, cx),
            Message::Append { prev_index, prev_term, entries, committed, .. } => {
                self.on_append(from, (prev_index, prev_term), &entries, committed, cx);
            }
            Message::AppendReply { matched, .. } => self.on_append_reply(from, matched, Vec::new(), cx),
            Message::PartialReply { matched, partial, .. } => {
                self.on_append_reply(from, matched, partial, cx);
            }
            Message::Gather { first, .. } => self.on_gather(from, first, cx),
            Message::Shards { first, entries, last, base, .. } => {
                self.on_shards(from, (first, entries), (last, base), cx);
            }
            Message::Mismatch { prev, index, index_term, .. } => {
                self.on_mismatch(from, prev, (index, index_term), cx);
            }
            Message::Behind { .. } => {
                self.log.behind = true;
                self.fetch(cx);
            }
            Message::Heartbeat { committed, round, .. } => {
                self.commit_verified(committed, cx);
                self.tell_shards_again();
                let (term, verified) = (self.term, self.log.verified);
                cx.send(from, Message::HeartbeatReply { term, round, verified, wall: cx.wall() });
            }
            Message::HeartbeatReply { round, verified, wall, .. } => {
                self.on_heartbeat_reply(from, (round, wall), verified, cx);
            }
            Message::Committed { committed, .. } => self.commit_verified(committed, cx),
            Message::TimeoutNow { committed, .. } => self.on_timeout_now(committed, cx),
            Message::ReadIndex { id } => self.on_read_index(from, id, cx),
            Message::ReadIndexReply { id, index } => self.on_read_index_reply(id, index, cx),
            Message::Sync { id } => self.on_sync(from, id),
            Message::SyncReply { id, index, appended } => self.on_sync_reply(id, (index, appended), cx),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Retransmit => self.on_retransmit_timer(cx),
            Timer::Announce => self.announce(cx),
            Timer::Gate => self.on_gate_timer(cx),
            Timer::Extend => self.on_extend_timer(cx),
            Timer::Fetch => self.fetch(cx),
            Timer::Transfer => self.on_transfer_timer(cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.lead(cx);
        self.ask_for_batches(cx);
        self.review_lacking(cx);
        self.keep_state(cx);
        if std::mem::take(&mut self.acknowledge)
            && let Some(leader) = self.leader
        {
            cx.send(leader, self.append_reply(self.log.verified));
        }
        self.log.on_batch_end(cx);
        for (proxy, message) in self.intake.flush(&self.log.state) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        super::invariants::check(self);
    }
}

impl Replica {
    /// The time to propose, when the own clocks show this.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Wall {
        let own = Own { me: self.me, wall, now };
        self.walls.time(own, &|wall| self.log.entries.configuration().1.reached(wall)).unwrap_or_default()
    }

    pub(super) fn persist_term(&mut self, cx: &mut Context<'_, Self>) {
        if !mutation::active("raft/term-not-persisted") {
            self.log.persist(Record::Term { term: self.term, voted: self.voted }, cx);
        }
    }

    /// A later term than the own: whatever this replica was in the earlier one is over.
    pub(super) fn enter(&mut self, term: u64, voted: Option<NodeId>, cx: &mut Context<'_, Self>) {
        self.stop_leading(cx);
        self.role = Role::Follower;
        (self.term, self.voted, self.leader, self.log.verified) = (term, voted, None, 0);
        (self.acknowledge, self.shards.told) = (false, 0);
        self.persist_term(cx);
    }

    fn on_old_term(&mut self, from: NodeId, message: &Message, cx: &mut Context<'_, Self>) {
        let term = self.term;
        if message.is_leaders() {
            // It will see the term.
            cx.send(from, Message::HeartbeatReply { term, round: 0, verified: 0, wall: cx.wall() });
        } else if matches!(message, Message::Vote { .. }) {
            cx.send(from, Message::VoteReply { term, granted: false, wall: cx.wall() });
        }
    }

    /// The leader of this term speaks. False if that is not true.
    fn follow(&mut self, from: NodeId, cx: &mut Context<'_, Self>) -> bool {
        if matches!(self.role, Role::Leader(_) | Role::Gathering(_)) {
            return false;
        }
        self.role = Role::Follower;
        self.monitor.heard(cx.now());
        self.silent_timeouts = 0;
        if self.leader != Some(from) {
            self.leader = Some(from);
            self.expecting = false;
            self.intake.depart(from);
            for (proxy, ask) in self.held.take() {
                self.intake.redirect(proxy, ask.nonce, Some(from));
            }
        }
        true
    }

    // The log ----------------------------------------------------------------------------------------------------

    fn on_append(
        &mut self,
        from: NodeId,
        prev: (u64, u64),
        entries: &[Entry],
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        if self.config.coding.is_none() && entries.iter().any(|entry| entry.value.whole().is_none()) {
            // No leader of this protocol says so.
            return;
        }
        match self.log.accept(prev, entries, cx) {
            Append::Matches { upto, fresh, cut } => {
                if let Some(index) = cut {
                    if !mutation::active("raft/configured-before-the-cut") {
                        self.configured = self.configured.filter(|at| *at < index);
                    }
                    self.review_shards();
                }
                self.keep_sent_whole(prev.0 + 1, &entries[..fresh], cx);
                self.log.store(upto, &entries[fresh..], cx);
                self.on_appended(upto, &entries[fresh..]);
                self.acknowledge = true;
                self.publish_configuration(cx);
                self.commit_verified(committed, cx);
                if self.config.coding.is_some() {
                    // What was committed may be whole now.
                    self.execute(cx);
                }
            }
            Append::Differs { index, term: index_term } => {
                let (term, prev) = (self.term, prev.0);
                cx.send(from, Message::Mismatch { term, prev, index, index_term });
            }
        }
    }

    /// The leader knows everything up to `committed` to be committed.
    pub(super) fn commit_verified(&mut self, committed: u64, cx: &mut Context<'_, Self>) {
        self.shards.told = committed;
        self.commit(self.log.shared(committed), cx);
    }

    pub(super) fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        if self.log.commit(upto) {
            self.execute(cx);
        }
    }

    /// Executes what is committed, in order.
    pub(super) fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let intake = matches!(self.role, Role::Leader(_)).then_some(&mut self.intake);
        let batches = &mut self.near.batches;
        self.log.execute(intake, |place| batches.on_executed_entry(place), cx);
        self.serve_follower_reads(cx);
    }

    /// Tells drivers and checkers which configuration is in force, if that has changed.
    pub(super) fn publish_configuration(&mut self, cx: &mut Context<'_, Self>) {
        let (index, configuration) = self.log.entries.configuration();
        if self.configured == Some(index) {
            return;
        }
        self.configured = Some(index);
        let Configuration { voters, outgoing, .. } = *configuration;
        cx.note(|| Fact::Configured { index, voters, outgoing });
        cx.members(configuration.members(index));
        if self.is_alone() {
            // Alone there is nobody to wait for.
            cx.set_timer(Timer::Election, Duration::ZERO);
        }
        self.on_configuration(cx);
    }

    // Clients ----------------------------------------------------------------------------------------------------

    fn on_client(&mut self, from: ProcessId, message: clients::Message, cx: &mut Context<'_, Self>) {
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        let (ask, behind) = match message {
            clients::Message::Ask(ask) => (ask, None),
            clients::Message::AskBehind { ask, write } => (ask, Some(write)),
            clients::Message::AskAfter { ask, slot } if self.config.reads == Reads::Inconsistent => {
                return self.read_unchecked(from, ask, slot, cx.now());
            }
            _ => return,
        };
        self.intake.tell_members(from, &ask, &self.log.state);
        let handing = matches!(&self.role, Role::Leader(leading) if leading.handing.is_some());
        if handing || (self.expecting && !matches!(self.role, Role::Leader(_))) {
            self.held.hold(from, ask, self.config.intake.max_bytes);
        } else if matches!(self.role, Role::Leader(_)) {
            self.intake.on_ask(from, ask, &self.log.state);
        } else {
            let leader = self.leader.filter(|_| self.monitor.has_leader(cx.now()));
            // One that has left the group gets no entries, and would wait for them in vain.
            let gets_entries = self.log.entries.configuration().1.all().contains(self.me);
            let near =
                self.config.follower_reads && leader.is_some() && !ask.reads.is_empty() && gets_entries;
            if !near || ask.open || !ask.writes.is_empty() {
                self.intake.redirect(from, ask.nonce, leader);
            }
            if near {
                self.read_here(from, ask, behind);
            }
        }
    }
}
