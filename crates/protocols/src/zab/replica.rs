//! The replica: a follower's side of phases 3 and 4, and the dispatch of everything that comes in.

use std::time::Duration;

use quorate_blocks::batch::Kind;
use quorate_blocks::catchup::{self, Catchup, Source};
use quorate_blocks::clients::{self, Intake, ReadBatches};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::prefix_log::{Append, Entry, PrefixLog, Replay};
use quorate_blocks::quorum::Tally;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{
    Context, Fact, Machine, Mark, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, digest, mutation,
};

use super::elections::Discovery;
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
    /// The last attempt to be elected. The first is drawn: an answer to one of an earlier life must not count.
    pub(super) round: u64,
    /// Who leads in `accepted`, if it was heard.
    pub(super) leader: Option<NodeId>,
    pub(super) history: PrefixLog,
    /// Everything up to here is committed.
    pub(super) committed: u64,
    pub(super) state: Replicated,
    pub(super) role: Role,
    pub(super) monitor: LeaderMonitor,
    pub(super) intake: Intake,
    /// Reads at a replica that does not lead.
    pub(super) batches: ReadBatches,
    /// The others' wall clocks.
    pub(super) walls: Walls,
    /// The history is that of the leader of `accepted` up to here, as its messages showed.
    pub(super) verified: u64,
    /// Whether the leader has to be told.
    pub(super) acknowledge: bool,
    catchup: Catchup,
    pub(super) source: Source,
    /// A snapshot is wanted from the leader.
    pub(super) behind: bool,
    /// The last `Record::Committed`, and whether something else was persisted since the last batch end.
    recorded: u64,
    persisted: bool,
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
        let load = |image| Replicated::load(&image).expect("an image that was saved loads");
        let state = saved.snapshot.map_or_else(Replicated::default, load);
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let behind_state =
            || PrefixLog::new(state.applied(), state.origin(), state.configuration_in(&config.group), now);
        let mut replay = Replay::new(behind_state(), now);
        let (mut accepted, mut accepted_from, mut current, mut recorded) = (0, None, 0, 0);
        for record in saved.records {
            match record {
                Record::Accepted { epoch, from } => (accepted, accepted_from) = (epoch, Some(from)),
                Record::Current(epoch) => current = if replay.is_void() { current } else { epoch },
                Record::Entry { index, entry } => replay.on_entry(index, entry),
                Record::Committed(index) => recorded = if replay.is_void() { recorded } else { index },
                Record::Installed { index, keep } => replay.on_installed(index, keep, behind_state),
                Record::Resumed => replay.on_resumed(),
            }
        }
        let (history, void) = replay.finish();
        let mut replica = Replica {
            me,
            accepted,
            accepted_from,
            current,
            refused_by: 0,
            round: cx.random().u64() >> 1,
            leader: None,
            committed: state.applied().max(recorded.min(history.last().0)),
            history,
            state,
            role: Role::Follower,
            monitor: LeaderMonitor::new(config.timeouts, saved.restarted, now, cx.random()),
            intake: Intake::new(me.into(), config.intake.max_bytes),
            batches: ReadBatches::new(cx.random().u64()),
            walls: Walls::default(),
            verified: 0,
            acknowledge: false,
            catchup: Catchup::default(),
            source: Source::default(),
            behind: false,
            recorded,
            persisted: false,
            config,
        };
        if void {
            replica.persist(Record::Resumed, cx);
        }
        replica.note_history(cx);
        let voters = replica.config.group.members;
        cx.note(|| Fact::Configured { index: 0, voters, outgoing: NodeSet::EMPTY });
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
                if is_current(epoch) {
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
                self.behind = true;
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
            Message::Commit { committed, .. } => self.commit_verified(committed, cx),
            Message::Ping { epoch, committed, sent } => {
                self.commit_verified(committed, cx);
                let verified = self.verified;
                cx.send(from, Message::Pong { epoch, sent, verified, wall: cx.wall() });
            }
            Message::Pong { epoch, sent, verified, wall } => match epoch.cmp(&self.accepted) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => self.on_pong(from, (sent, wall), verified, cx),
                std::cmp::Ordering::Greater => self.on_refusal(epoch, cx),
            },
            Message::Sync { id } => self.on_sync(from, id),
            Message::SyncReply { id, index, appended } => self.on_sync_reply(id, (index, appended)),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Retransmit => self.retransmit(cx),
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
            cx.send(leader, Message::Ack { epoch: self.accepted, index: self.verified });
        }
        if std::mem::take(&mut self.persisted) && self.recorded < self.committed {
            // In the shadow of records that are synced anyway.
            self.recorded = self.committed;
            cx.persist(Record::Committed(self.recorded));
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
    /// The time to propose, when the own clocks show this.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Wall {
        let own = Own { me: self.me, wall, now };
        self.walls.time(own, &|wall| self.history.configuration().1.reached(wall)).unwrap_or_default()
    }

    pub(super) fn persist(&mut self, record: Record, cx: &mut Context<'_, Self>) {
        self.persisted = true;
        cx.persist(record);
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
        match self.history.accept(prev, entries, cx.now()) {
            Append::Matches { upto, fresh, cut } => {
                if let Some(index) = cut {
                    assert!(index > self.committed, "entry {index} is committed and cannot be replaced");
                    cx.note(|| Fact::Truncated { index });
                }
                if mutation::active("zab/current-epoch-first") {
                    self.begin_epoch(cx);
                }
                let first = upto - (entries.len() - fresh) as u64 + 1;
                for (index, entry) in (first..).zip(&entries[fresh..]) {
                    self.note_appended(index, cx);
                    self.persist(Record::Entry { index, entry: entry.clone() }, cx);
                }
                self.behind &= entries.is_empty();
                self.on_verified(upto, cx);
                self.commit_verified(committed, cx);
            }
            Append::Differs { index, term: index_epoch } => {
                let (epoch, prev) = (self.accepted, prev.0);
                cx.send(from, Message::Mismatch { epoch, prev, index, index_epoch });
            }
        }
    }

    /// The history is the leader's up to here, and recorded. With NEWLEADER in it, it is all that the epoch began with.
    fn on_verified(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        self.verified = self.verified.max(upto);
        self.acknowledge = true;
        if self.history.term(self.verified) == Some(self.accepted) {
            self.begin_epoch(cx);
        }
    }

    fn begin_epoch(&mut self, cx: &mut Context<'_, Self>) {
        if self.current < self.accepted {
            self.current = self.accepted;
            self.persist(Record::Current(self.current), cx);
        }
    }

    /// The leader knows everything up to `committed` to be committed: so is what this log is known to share with it.
    fn commit_verified(&mut self, committed: u64, cx: &mut Context<'_, Self>) {
        let shared = match mutation::active("zab/commit-beyond-verified") {
            true => self.history.last().0,
            false => self.verified,
        };
        self.commit(committed.min(shared), cx);
    }

    pub(super) fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        if upto > self.committed {
            self.committed = upto;
            self.execute(cx);
        }
    }

    /// Executes what is committed, in order.
    fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let leads = matches!(self.role, Role::Leader(_));
        while self.state.applied() < self.committed {
            let slot = self.state.applied() + 1;
            let held = self.history.get(slot).expect("what is committed and not executed is kept");
            let value = held.entry.value.whole().expect("entries are whole").clone();
            self.batches.on_decided((slot, held.entry.term));
            let intake = &mut self.intake;
            let effect = |effect| {
                if leads {
                    intake.on_effect(effect);
                }
            };
            cx.note(|| Fact::Chosen { slot, digest: digest(&value) });
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            self.state.follow(self.history.origin(slot));
            self.batches.on_executed(slot);
            if leads {
                cx.mark(Mark::Applied { slot, requests });
            }
        }
        for (upto, bytes) in self.source.retention(self.state.applied(), self.config.retain, cx.now()) {
            self.history.retain(upto, bytes);
        }
        self.serve_batches();
    }

    pub(super) fn note_appended(&self, index: u64, cx: &mut Context<'_, Self>) {
        let held = self.history.get(index).expect("it has just been appended");
        let (term, writes) = (held.entry.term, held.kind == Kind::Clients);
        cx.note(|| Fact::Appended { index, term, digest: held.entry.value.digest(), writes });
    }

    fn note_history(&self, cx: &mut Context<'_, Self>) {
        let (index, term) = (self.history.base(), self.state.origin().term);
        cx.note(|| Fact::Installed { slot: index });
        cx.note(|| Fact::Begins { index, term });
        for index in index + 1..=self.history.last().0 {
            self.note_appended(index, cx);
        }
    }

    // Snapshots --------------------------------------------------------------------------------------------------

    /// SNAP: asks the leader for its state. One that is replaced may go on giving its snapshot, as long as it answers.
    fn fetch(&mut self, cx: &mut Context<'_, Self>) {
        if !self.behind {
            return;
        }
        let sources: Vec<_> = self.leader.into_iter().collect();
        if let Some((peer, message)) = self.catchup.ask(&sources, self.state.applied() + 1, cx.now()) {
            cx.send(peer, Message::Catchup(message));
        }
        cx.set_timer(Timer::Fetch, catchup::RETRY);
    }

    fn on_catchup(&mut self, from: NodeId, message: catchup::Message, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        match message {
            catchup::Message::Fetch { from: index, asked } => self.on_fetch(from, (index.max(1), asked), cx),
            catchup::Message::More { image, cursor, asked } => {
                self.is_fetching(from, now);
                let answer = self.source.on_more(image, cursor, asked, now);
                cx.send(from, Message::Catchup(answer));
            }
            // Entries come from the leader, with their epochs.
            catchup::Message::Values { asked, .. } => self.catchup.on_values(from, asked, now),
            catchup::Message::Piece(piece) => {
                let applied = self.state.applied();
                let ask = |message| cx.send(from, Message::Catchup(message));
                if let Some(state) = self.catchup.on_piece(from, piece, applied, now, ask) {
                    self.install(state, cx);
                }
            }
            catchup::Message::Gone { image } => {
                self.catchup.on_gone(from, image);
                self.fetch(cx);
            }
        }
    }

    fn install(&mut self, state: Replicated, cx: &mut Context<'_, Self>) {
        let (index, origin) = (state.applied(), state.origin());
        // One of a later epoch comes again, from its leader.
        let later = origin.term > self.accepted;
        if later || index <= self.state.applied() || matches!(self.role, Role::Leader(_)) {
            return;
        }
        let configuration = state.configuration_in(&self.config.group);
        let keep = self.history.install(index, origin, configuration, cx.now());
        self.state = state;
        self.committed = self.committed.max(index);
        self.behind = false;
        self.persisted = true;
        match mutation::active("zab/snapshot-not-durable") {
            true => cx.persist(Record::Installed { index, keep }),
            false => cx.persist_state(Record::Installed { index, keep }),
        }
        self.note_history(cx);
        // What is committed is in every later leader's history.
        self.on_verified(index, cx);
        self.batches.on_executed(index);
        self.execute(cx);
    }

    // Clients ----------------------------------------------------------------------------------------------------

    fn on_client(&mut self, from: ProcessId, message: clients::Message, cx: &mut Context<'_, Self>) {
        let (ask, behind) = match message {
            clients::Message::Ask(ask) => (ask, None),
            clients::Message::AskBehind { ask, write } => (ask, Some(write)),
            _ => return,
        };
        if !matches!(from, ProcessId::Proxy(_)) {
            return;
        }
        if matches!(self.role, Role::Leader(_)) {
            return self.intake.on_ask(from, ask, &self.state);
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
