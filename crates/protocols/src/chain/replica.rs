//! The replica: what every member of the group has, and the dispatch of everything that comes in.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::clients::{Intake, PendingRead};
use quorate_blocks::epochs::{self, EagerReads, Epochs, Reads};
use quorate_blocks::membership::Configuration;
use quorate_blocks::prefix_log::{RETRANSMIT, Replay, ReplicatedLog, Replication};
use quorate_blocks::rejoin::may_have_granted_leases;
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{
    Context, Fact, Machine, Mark, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, mutation,
};

use super::apportioned::ApportionedReads;
use super::head::Head;
use super::message::Known;
use super::{Config, Message, Readers, Record};

/// What a replica sets timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// [`epochs::Timer::Election`].
    Election,
    /// [`epochs::Timer::Free`].
    Free,
    /// [`epochs::Timer::Decide`].
    Decide,
    /// The head must show that it is there.
    Heartbeat,
    /// What was not answered must be sent again.
    Retransmit,
    /// [`epochs::Timer::Lease`].
    Lease,
    /// A snapshot must be asked for (again).
    Fetch,
    /// [`epochs::Timer::Ask`].
    Ask,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    pub(super) epochs: Epochs<(u64, u64), Known>,
    /// The chain of the epoch that it is in, from head to tail; empty until it is known.
    pub(super) chain: Vec<NodeId>,
    /// The last chain that it has known: the next one keeps its order.
    pub(super) former: Vec<NodeId>,
    /// As the head: it orders writes, and answers proxies.
    pub(super) leading: Option<Box<Head>>,
    /// Its verified part is the head's of this epoch.
    pub(super) log: ReplicatedLog,
    /// What was committed when it last became the head.
    pub(super) began_with: Option<u64>,
    /// How many of its epochs, one after the other, have committed nothing.
    pub(super) in_vain: u32,
    /// As the head, in one of its epochs after the other: since when some reader has had no leases.
    pub(super) leaseless_since: Option<Time>,
    /// What the successors have of it, and the own disk.
    pub(super) links: Replication,
    /// Whether the predecessor is to be told.
    pub(super) acknowledge: bool,
    pub(super) intake: Intake,
    /// Whether `intake` knows what is in the log: this replica was the last head that it knows.
    pub(super) keeps_intake: bool,
    /// A reader's reads that wait for a lease.
    pub(super) reads: Vec<PendingRead>,
    /// Where all of the chain are readers.
    pub(super) apportioned: Option<ApportionedReads>,
    /// The others' wall clocks.
    pub(super) walls: Walls,
}

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn wakeup(timer: Timer) -> Wakeup {
        match timer {
            Timer::Election => epochs::Timer::Election.wakeup(),
            Timer::Free => epochs::Timer::Free.wakeup(),
            Timer::Decide => epochs::Timer::Decide.wakeup(),
            Timer::Lease => epochs::Timer::Lease.wakeup(),
            Timer::Ask => epochs::Timer::Ask.wakeup(),
            Timer::Heartbeat => Wakeup::Matters,
            Timer::Retransmit | Timer::Fetch => Wakeup::Spared,
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let members = Configuration::initial(&config.group);
        let mut replay = Replay::new(saved.snapshot, &config.group, now);
        let (mut promised, mut rejoined) = (Ballot::ZERO, None);
        for record in saved.records {
            match record {
                Record::Promised(ballot) => promised = ballot,
                Record::Rejoined(ballot) => (promised, rejoined) = (promised.max(ballot), Some(ballot)),
                record => replay.on_record(record),
            }
        }
        let mut log = ReplicatedLog::recover(replay, config.retain, cx);
        // A log whose last entry is of this epoch has come from its head: it is the head's up to there. A tail may have
        // shown all of that to clients, so it is committed as soon as the chain is known (`Replica::adopt`).
        let (last, epoch) = log.entries.last();
        let of_this = epoch == promised.number() || mutation::active("chain/log-of-an-earlier-epoch");
        // One that rejoins does not know yet which epoch it will be in.
        let rejoins = config.group.rejoining && rejoined.is_none();
        let is_known = of_this && !rejoins && !mutation::active("chain/restarted-tail-reads");
        log.verified = if is_known { last } else { 0 };
        let links = super::links::begin(log.verified, now);
        let is_bound =
            may_have_granted_leases(saved.restarted, &config.group) && config.reads == Reads::Lease;
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let times = (config.timeouts, config.lease);
        let mut epochs = Epochs::new((me, members), times, promised, (patient, is_bound), cx);
        epochs.start_rejoining(&config.group, rejoined, cx);
        let mut replica = Replica {
            me,
            epochs,
            chain: Vec::new(),
            former: Vec::new(),
            leading: None,
            log,
            began_with: None,
            in_vain: 0,
            leaseless_since: None,
            links,
            acknowledge: false,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            keeps_intake: false,
            reads: Vec::new(),
            apportioned: (config.readers == Readers::All).then(|| ApportionedReads::new(cx.random())),
            walls: Walls::default(),
            config,
        };
        let is_eager = replica.config.reads == Reads::EagerAlr;
        replica.epochs.eager = is_eager.then(|| EagerReads::new(cx.random()));
        let voters = replica.epochs.members.voters;
        cx.note(|| Fact::Configured { index: 0, voters, outgoing: NodeSet::EMPTY });
        replica.execute(cx);
        replica.epochs.start(cx);
        cx.set_timer(Timer::Retransmit, RETRANSMIT);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        let from = from.replica().filter(|node| self.epochs.members.voters.contains(*node));
        let Some(from) = from.filter(|_| message.is_possible()) else { return };
        let foreign = message.epoch().is_some_and(|ballot| ballot != self.epochs.promised);
        if foreign && !mutation::active("chain/foreign-epochs") {
            return;
        }
        if self.epochs.is_asking() && !matches!(message, Message::Epoch(_)) {
            return;
        }
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Catchup(message) => self.on_catchup(from, message, cx),
            Message::Lease(message) => {
                let event = self.epochs.on_lease(from, &message, self.last(), cx);
                self.on_event(event, cx);
            }
            Message::Epoch(message) => self.on_epoch(from, message, cx),
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
            Message::HandOver { to, leaves, .. } => self.on_hand_over(from, to, leaves, cx),
            Message::Leave { .. } => self.on_leave(from, cx),
            Message::Read { proxy, nonce, reads } => self.on_read(from, (proxy, nonce), reads),
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_epoch_timer(epochs::Timer::Election, cx),
            Timer::Free => self.on_epoch_timer(epochs::Timer::Free, cx),
            Timer::Decide => self.on_epoch_timer(epochs::Timer::Decide, cx),
            Timer::Lease => self.on_epoch_timer(epochs::Timer::Lease, cx),
            Timer::Ask => self.on_epoch_timer(epochs::Timer::Ask, cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Retransmit => self.on_retransmit_timer(cx),
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
        self.walls.time(own, &|wall| self.epochs.members.reached(wall)).unwrap_or_default()
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
            Some(_) => self.epochs.members.voters.iter().filter(|node| !self.chain.contains(node)).collect(),
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
        self.leading.is_some()
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
