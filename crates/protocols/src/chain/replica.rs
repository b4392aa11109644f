//! The replica: what every member of the group has, and the dispatch of everything that comes in.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::clients::{Intake, PendingRead};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::laggards::Laggards;
use quorate_blocks::leases::Leases;
use quorate_blocks::membership::Configuration;
use quorate_blocks::prefix_log::{RETRANSMIT, Replay, ReplicatedLog, Replication};
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{
    Context, Fact, Machine, Mark, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, mutation,
};

use super::apportioned::ApportionedReads;
use super::eager::EagerReads;
use super::epochs::{Candidate, Polling, Wanted};
use super::head::Head;
use super::{Config, Message, Readers, Reads, Record};

/// What a replica sets timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The head may have been silent for too long.
    Election,
    /// No promise to a reader binds this acceptor any more: it may promise another ballot.
    Free,
    /// A candidate with a majority has waited long enough for the others.
    Decide,
    /// The head must show that it is there.
    Heartbeat,
    /// What was not answered must be sent again.
    Retransmit,
    /// Promises to readers must be renewed.
    Lease,
    /// A snapshot must be asked for (again).
    Fetch,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    /// All members of the group: the acceptors of its epochs.
    pub(super) members: Configuration,
    /// The latest ballot that this replica has promised. Durable before anybody hears of it.
    pub(super) promised: Ballot,
    /// The latest ballot that it has heard of.
    pub(super) seen: Ballot,
    /// The chain of the epoch of `promised`, from head to tail; empty until it is known.
    pub(super) chain: Vec<NodeId>,
    /// The last chain that it has known: the next one keeps its order.
    pub(super) former: Vec<NodeId>,
    pub(super) role: Role,
    /// A ballot that it will promise when no promise to a reader binds it any more.
    pub(super) wanted: Option<Wanted>,
    pub(super) monitor: LeaderMonitor,
    /// About to stop: takes no new duties.
    pub(super) draining: bool,
    /// Its verified part is the head's of this epoch.
    pub(super) log: ReplicatedLog,
    /// What the successors have of it, and the own disk.
    pub(super) links: Replication,
    /// Whether the predecessor is to be told.
    pub(super) acknowledge: bool,
    pub(super) leases: Leases,
    /// Until when checkers were told that reads are answered from the own state.
    pub(super) reads_until: Option<Time>,
    pub(super) intake: Intake,
    /// Whether `intake` knows what is in the log: this replica was the last head that it knows.
    pub(super) keeps_intake: bool,
    /// A reader's reads that wait for a lease.
    pub(super) reads: Vec<PendingRead>,
    /// Where all of the chain are readers.
    pub(super) apportioned: Option<ApportionedReads>,
    /// Where there are no leases.
    pub(super) eager: Option<EagerReads>,
    /// Members that hold the chain up, or have just done so: they are left out of it.
    pub(super) laggards: Laggards,
    /// The others' wall clocks.
    pub(super) walls: Walls,
}

/// What a replica does beside keeping its place in the chain.
#[derive(Debug)]
pub enum Role {
    /// Follows a head, or waits for one.
    Member,
    /// Asks whether a majority misses the head, too.
    Polling(Polling),
    /// Wants to be the head of a new epoch.
    Candidate(Candidate),
    /// It is the head: it orders writes, and answers proxies.
    Head(Box<Head>),
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn wakeup(timer: Timer) -> Wakeup {
        match timer {
            Timer::Election => Wakeup::TakesOver { times: 1 },
            Timer::Heartbeat | Timer::Decide => Wakeup::Matters,
            Timer::Free | Timer::Retransmit | Timer::Lease | Timer::Fetch => Wakeup::Spared,
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let members = Configuration::initial(&config.group);
        let mut replay = Replay::new(saved.snapshot, &config.group, now);
        let mut promised = Ballot::ZERO;
        for record in saved.records {
            match record {
                Record::Promised(ballot) => promised = ballot,
                record => replay.on_record(record),
            }
        }
        let mut log = ReplicatedLog::recover(replay, config.retain, cx);
        // A log whose last entry is of this epoch has come from its head: it is the head's up to there. A tail may have
        // shown all of that to clients, so it is committed as soon as the chain is known (`Replica::adopt`).
        let (last, epoch) = log.entries.last();
        let is_known = epoch == promised.number() && !mutation::active("chain/restarted-tail-reads");
        log.verified = if is_known { last } else { 0 };
        let links = super::links::begin(log.verified, now);
        let (lease, first) = (config.lease, cx.random().u64());
        let is_bound = saved.restarted && config.reads == Reads::Lease;
        let leases = Leases::new(me, lease, is_bound, first, promised.number(), now);
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let mut replica = Replica {
            me,
            members,
            promised,
            seen: promised,
            chain: Vec::new(),
            former: Vec::new(),
            role: Role::Member,
            wanted: None,
            monitor: LeaderMonitor::new(config.timeouts, patient, now, cx.random()),
            draining: false,
            log,
            links,
            acknowledge: false,
            leases,
            reads_until: None,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            keeps_intake: false,
            reads: Vec::new(),
            apportioned: (config.readers == Readers::All).then(|| ApportionedReads::new(cx.random())),
            eager: (config.reads == Reads::EagerAlr).then(|| EagerReads::new(cx.random())),
            laggards: Laggards::default(),
            walls: Walls::default(),
            config,
        };
        let voters = replica.members.voters;
        cx.note(|| Fact::Configured { index: 0, voters, outgoing: NodeSet::EMPTY });
        replica.execute(cx);
        let patience = replica.monitor.remaining(now).expect("it has just begun");
        let alone = replica.members.is_alone(me);
        cx.set_timer(Timer::Election, if alone { std::time::Duration::ZERO } else { patience });
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        let from = from.replica().filter(|node| self.members.voters.contains(*node));
        let Some(from) = from.filter(|_| message.is_possible()) else { return };
        let foreign = message.epoch().is_some_and(|ballot| ballot != self.promised);
        if foreign && !mutation::active("chain/foreign-epochs") {
            return;
        }
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::Lease(message) => self.on_lease(from, &message, cx),
            Message::Poll { sent, last_index, last_epoch } => {
                self.on_poll(from, sent, (last_epoch, last_index), cx);
            }
            Message::PollReply { sent, ballot } => self.on_poll_reply(from, sent, ballot, cx),
            Message::Prepare { ballot, last_index, last_epoch } => {
                self.on_prepare(from, Wanted { ballot, last: Some((last_epoch, last_index)) }, cx);
            }
            Message::Promise { last_index, wall, .. } => self.on_promise(from, last_index, wall, cx),
            Message::Refused { ballot } => self.on_refused(ballot, cx),
            Message::Heartbeat { ballot, chain, committed, sent } => {
                self.on_heartbeat(from, ballot, chain, (committed, sent), cx);
            }
            Message::HeartbeatReply { sent, durable, committed, leased, wall, .. } => {
                self.on_heartbeat_reply(from, (sent, wall), (durable, committed), leased, cx);
            }
            Message::Update { prev_index, prev_epoch, entries, committed, .. } => {
                self.on_update(from, (prev_index, prev_epoch), &entries, committed, cx);
            }
            Message::Mismatch { prev, index, index_epoch, .. } => {
                self.links.on_mismatch(from, prev, (index, index_epoch), &self.log.entries, cx.now());
            }
            Message::Behind { .. } => self.on_behind(from, cx),
            Message::Stored { upto, .. } => self.on_stored(from, upto, cx),
            Message::Ack { matched, committed, .. } => self.on_ack(from, matched, committed, cx),
            Message::VersionQuery { id, .. } => self.on_version_query(from, id, cx),
            Message::VersionReply { id, committed, .. } => self.on_version_reply(from, id, committed),
            Message::Sync { ballot, id } => self.on_sync(from, ballot, id, cx),
            Message::SyncReply { id, promised, .. } => self.on_sync_reply(from, id, promised),
            Message::HandOver { to, leaves, .. } => self.on_hand_over(from, to, leaves, cx),
            Message::Leave { .. } => self.on_leave(from, cx),
            Message::Read { proxy, nonce, reads } => self.on_read(from, (proxy, nonce), reads),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Free => self.leave_when_free(cx),
            Timer::Decide => self.decide(true, cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Retransmit => self.on_retransmit_timer(cx),
            Timer::Lease => self.tend_leases(cx),
            Timer::Fetch => self.fetch(cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.manage(cx);
        self.forward_reads(cx);
        self.propose(cx);
        self.propagate(cx);
        self.serve_reads(cx);
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
        self.walls.time(own, &|wall| self.members.reached(wall)).unwrap_or_default()
    }

    // The chain --------------------------------------------------------------------------------------------------

    /// Its place in the chain; the head's is 0.
    fn position(&self) -> Option<usize> {
        self.chain.iter().position(|node| *node == self.me)
    }

    /// Whoever is outside of the chain gets entries from the tail.
    pub(super) fn predecessor(&self) -> Option<NodeId> {
        match self.position() {
            Some(0) => None,
            Some(position) => Some(self.chain[position - 1]),
            None => self.tail(),
        }
    }

    /// To whom it sends entries: the next in the chain; as the tail, those who are outside of it.
    pub(super) fn followers(&self) -> NodeSet {
        match self.position() {
            Some(position) if position + 1 < self.chain.len() => {
                [self.chain[position + 1]].into_iter().collect()
            }
            Some(_) => self.members.voters.iter().filter(|node| !self.chain.contains(node)).collect(),
            None => NodeSet::EMPTY,
        }
    }

    pub(super) fn head(&self) -> Option<NodeId> {
        self.chain.first().copied()
    }

    pub(super) fn tail(&self) -> Option<NodeId> {
        self.chain.last().copied()
    }

    pub(super) fn is_tail(&self) -> bool {
        self.tail() == Some(self.me)
    }

    /// The members that answer reads: the tail, or all of the chain.
    pub(super) fn readers(&self) -> NodeSet {
        match self.config.readers {
            Readers::Tail => self.tail().into_iter().collect(),
            Readers::All => self.chain.iter().copied().collect(),
        }
    }

    pub(super) fn is_reader(&self) -> bool {
        self.readers().contains(self.me)
    }

    pub(super) fn is_head(&self) -> bool {
        matches!(self.role, Role::Head(_))
    }

    // Execution --------------------------------------------------------------------------------------------------

    pub(super) fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        let first = self.log.committed + 1;
        if self.log.commit(upto) {
            if self.is_head() {
                (first..=upto).for_each(|slot| cx.mark(Mark::Committed { slot }));
            }
            self.execute(cx);
        }
    }

    fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let leads = self.is_head();
        self.log.execute(leads.then_some(&mut self.intake), |_| {}, cx);
    }
}
