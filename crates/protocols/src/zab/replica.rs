//! The replica: a follower's side of phases 3 and 4, and the dispatch of everything that comes in.

use std::time::Duration;

use quorate_blocks::catchup;
use quorate_blocks::clients::{self, Intake, LocalReads, ReadBatches};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::prefix_log::{Append, Entry, Fetched, Replay, ReplicatedLog};
use quorate_blocks::quorum::Tally;
use quorate_blocks::rejoin::Standing;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{Context, Fact, Machine, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, mutation};

use super::elections::{Discovery, Freshness};
use super::leading::Leading;
use super::{Config, Message, Record};

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
    /// A snapshot must be asked for (again).
    Fetch,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    /// acceptedEpoch: no part is taken in any earlier one. Durable before that is said.
    pub(super) accepted: u64,
    /// Who has proposed it.
    pub(super) accepted_from: Option<NodeId>,
    /// currentEpoch: the history has all that this epoch began with. Durable behind that history.
    pub(super) current: u64,
    /// An acceptedEpoch of somebody that has refused an earlier one.
    pub(super) refused_by: u64,
    /// Candidates that were at least as fresh as this replica when they asked last.
    pub(super) fresh_candidates: NodeSet,
    /// The last attempt to be elected. The first is drawn: an answer to one of an earlier life must not count.
    pub(super) round: u64,
    /// Who leads in `accepted`, if it was heard.
    pub(super) leader: Option<NodeId>,
    /// The history, and what it has led to. It is `verified` for the leader of `accepted`.
    pub(super) log: ReplicatedLog,
    pub(super) role: Role,
    pub(super) monitor: LeaderMonitor,
    pub(super) intake: Intake,
    /// Reads at a replica that does not lead.
    pub(super) batches: ReadBatches,
    pub(super) local: LocalReads,
    /// The others' wall clocks.
    pub(super) walls: Walls,
    /// Whether the leader has to be told.
    pub(super) acknowledge: bool,
    /// About to stop: does not stand.
    pub(super) draining: bool,
    /// Whether it votes.
    pub(super) standing: Standing<u64, Freshness>,
}

/// What a replica is doing.
#[derive(Debug)]
pub enum Role {
    /// Follows, or waits for somebody to follow.
    Follower,
    /// Phase 1: asks who would follow it.
    Candidate {
        /// Who would.
        tally: Tally,
        /// The highest acceptedEpoch of those.
        accepted: u64,
    },
    /// Phase 2, as the one that would lead.
    Discovery(Discovery),
    /// Phases 3 and 4.
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
            Timer::Retransmit | Timer::Announce | Timer::Fetch => Wakeup::Spared,
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let mut replay = Replay::new(saved.snapshot, &config.group, now);
        let (mut accepted, mut accepted_from, mut current, mut rejoined) = (0, None, 0, false);
        for record in saved.records {
            match record {
                Record::Accepted { epoch, from } => (accepted, accepted_from) = (epoch, Some(from)),
                Record::Current(epoch) => current = epoch,
                Record::Rejoined => rejoined = true,
                record => replay.on_record(record),
            }
        }
        let log = ReplicatedLog::recover(replay, config.retain, cx);
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let mut replica = Replica {
            me,
            accepted,
            accepted_from,
            current,
            refused_by: 0,
            fresh_candidates: NodeSet::EMPTY,
            round: cx.random().u64() >> 1,
            leader: None,
            log,
            role: Role::Follower,
            monitor: LeaderMonitor::new(config.timeouts, patient, now, cx.random()),
            intake: Intake::new(me.into(), config.intake.max_bytes),
            batches: ReadBatches::new(cx.random().u64()),
            local: LocalReads::default(),
            walls: Walls::default(),
            acknowledge: false,
            draining: false,
            standing: if rejoined { Standing::Rejoined } else { Standing::Original },
            config,
        };
        let voters = replica.config.group.members;
        cx.note(|| Fact::Configured { index: 0, voters, outgoing: NodeSet::EMPTY });
        replica.execute(cx);
        replica.start_rejoining(cx);
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
        let answers = matches!(message, Message::Rejoin { .. } | Message::RejoinReply { .. });
        if self.standing.asks() && !answers {
            // It does not know yet which epochs are over for it.
            return;
        }
        if let Some(epoch) = message.leaders_epoch() {
            if epoch < self.accepted {
                return self.refuse(from, cx);
            }
            if epoch > self.accepted {
                // A majority has accepted it: to whoever was not there, any message of its leader is NEWEPOCH.
                self.on_new_epoch(from, epoch, cx);
            }
            if !self.follow(from, cx) {
                return;
            }
        }
        let is_current = |epoch| epoch == self.accepted;
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::Elect { round, current, last_epoch, last_index } => {
                self.on_elect(from, round, (current, (last_epoch, last_index)), cx);
            }
            Message::FollowerEpoch { round, accepted } => self.on_follower_epoch(from, round, accepted, cx),
            Message::NewEpoch { epoch } => self.on_new_epoch(from, epoch, cx),
            Message::AckEpoch { epoch, granted, current, last_epoch, last_index, wall } => {
                if is_current(epoch) || mutation::active("zab/ack-epochs-of-an-earlier-epoch") {
                    self.on_ack_epoch(from, granted, (current, (last_epoch, last_index)), wall, cx);
                }
            }
            Message::Diff { prev_index, prev_epoch, entries, committed, .. } => {
                self.on_entries(from, (prev_index, prev_epoch), &entries, committed, cx);
            }
            Message::Propose { epoch, prev_index, entries, committed } => {
                self.on_entries(from, (prev_index, epoch), &entries, committed, cx);
            }
            Message::Snap { .. } => {
                self.log.behind = true;
                self.fetch(cx);
            }
            Message::Ack { epoch, index } => {
                if is_current(epoch) || mutation::active("zab/acks-of-an-earlier-epoch") {
                    self.on_ack(from, index, cx);
                }
            }
            Message::Mismatch { epoch, prev, index, index_epoch } => {
                if is_current(epoch) {
                    self.on_mismatch(from, prev, (index, index_epoch), cx);
                }
            }
            Message::HandOver { to, .. } => self.on_hand_over(to, cx),
            Message::Commit { committed, .. } => self.commit_verified(committed, cx),
            Message::Ping { epoch, committed, sent } => {
                self.commit_verified(committed, cx);
                let verified = self.log.verified;
                cx.send(from, Message::Pong { epoch, sent, verified, wall: cx.wall() });
            }
            Message::Pong { epoch, sent, verified, wall } => match epoch.cmp(&self.accepted) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => self.on_pong(from, (sent, wall), verified, cx),
                std::cmp::Ordering::Greater => self.on_refusal(epoch, cx),
            },
            Message::Sync { id } => self.on_sync(from, id),
            Message::SyncReply { id, index, appended } => self.on_sync_reply(id, (index, appended)),
            Message::Rejoin { nonce } => self.on_rejoin(from, nonce, cx),
            Message::RejoinReply { nonce, accepted, current, last_epoch, last_index } => {
                self.on_rejoin_reply(from, nonce, (accepted, (current, (last_epoch, last_index))));
            }
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Retransmit => {
                self.retransmit(cx);
                self.go_on_rejoining(cx);
            }
            Timer::Announce => self.announce(cx),
            Timer::Fetch => self.fetch(cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.lead(cx);
        self.ask_for_batches(cx);
        if std::mem::take(&mut self.acknowledge)
            && let Some(leader) = self.leader
        {
            cx.send(leader, Message::Ack { epoch: self.accepted, index: self.log.verified });
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

    /// The leader of the accepted epoch speaks. False if that is not true.
    fn follow(&mut self, from: NodeId, cx: &mut Context<'_, Self>) -> bool {
        if matches!(self.role, Role::Leader(_)) || from == self.me {
            return false;
        }
        self.role = Role::Follower;
        self.monitor.heard(cx.now());
        if self.leader != Some(from) {
            self.leader = Some(from);
            self.intake.depart(from);
        }
        true
    }

    /// DIFF, TRUNC and PROPOSE: the leader's history has these entries behind the one at `prev`.
    fn on_entries(
        &mut self,
        from: NodeId,
        prev: (u64, u64),
        entries: &[Entry],
        committed: u64,
        cx: &mut Context<'_, Self>,
    ) {
        match self.log.accept(prev, entries, cx) {
            Append::Matches { upto, fresh, .. } => {
                if mutation::active("zab/current-epoch-first") {
                    self.begin_epoch(cx);
                }
                self.log.store(upto, &entries[fresh..], cx);
                self.on_verified(cx);
                self.commit_verified(committed, cx);
            }
            Append::Differs { index, term: index_epoch } => {
                let (epoch, prev) = (self.accepted, prev.0);
                cx.send(from, Message::Mismatch { epoch, prev, index, index_epoch });
            }
        }
    }

    /// More of the history is verified, and recorded. With NEWLEADER in it, it is all that the epoch began with.
    fn on_verified(&mut self, cx: &mut Context<'_, Self>) {
        self.acknowledge = true;
        if self.log.entries.term(self.log.verified) == Some(self.accepted) {
            self.begin_epoch(cx);
        }
    }

    fn begin_epoch(&mut self, cx: &mut Context<'_, Self>) {
        if self.current < self.accepted {
            self.current = self.accepted;
            self.log.persist(Record::Current(self.current), cx);
        }
    }

    /// The leader knows everything up to `committed` to be committed.
    fn commit_verified(&mut self, committed: u64, cx: &mut Context<'_, Self>) {
        self.commit(self.log.shared(committed), cx);
    }

    pub(super) fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        if self.log.commit(upto) {
            self.execute(cx);
        }
    }

    /// Executes what is committed, in order.
    fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let intake = matches!(self.role, Role::Leader(_)).then_some(&mut self.intake);
        let batches = &mut self.batches;
        self.log.execute(intake, |place| batches.on_executed_entry(place), cx);
        self.serve_batches();
    }

    // Snapshots --------------------------------------------------------------------------------------------------

    /// SNAP: asks the leader for its state. One that is replaced may go on giving its snapshot, as long as it answers.
    fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if self.log.behind {
            self.log.fetch(self.leader.as_slice(), cx);
            cx.set_timer(Timer::Fetch, catchup::RETRY);
        }
    }

    fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let peer = match &mut self.role {
            Role::Leader(leading) => leading.replication.peers.get_mut(&from),
            _ => None,
        };
        match self.log.on_catchup(from, message, peer, cx) {
            Some(Fetched::State(state)) => self.install(*state, cx),
            Some(Fetched::Gone) => self.fetch(cx),
            // Entries come from the leader, with their epochs.
            Some(Fetched::Values { .. }) | None => {}
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        // One of a later epoch comes again, from its leader.
        let later = state.origin().term > self.accepted;
        if later || state.applied() <= self.log.state.applied() || matches!(self.role, Role::Leader(_)) {
            return;
        }
        self.log.install(state, &self.config.group, cx);
        self.on_verified(cx);
        self.batches.on_executed(self.log.state.applied());
        self.execute(cx);
    }

    // Clients ----------------------------------------------------------------------------------------------------

    fn on_client(&mut self, from: ProcessId, message: clients::Message, cx: &mut Context<'_, Self>) {
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        let (ask, behind) = match message {
            clients::Message::Ask(ask) => (ask, None),
            clients::Message::AskBehind { ask, write } => (ask, Some(write)),
            clients::Message::AskAfter { ask, slot } if self.config.local => {
                return self.local.on_ask(from, ask, slot, &self.log.state, &mut self.intake);
            }
            _ => return,
        };
        if matches!(self.role, Role::Leader(_)) {
            return self.intake.on_ask(from, ask, &self.log.state);
        }
        let leader = self.leader.filter(|_| self.monitor.has_leader(cx.now()));
        let near = leader.is_some() && !ask.reads.is_empty();
        if !near || ask.open || !ask.writes.is_empty() {
            self.intake.redirect(from, ask.nonce, leader);
        }
        if near {
            self.read_here(from, ask, behind);
        }
    }
}
