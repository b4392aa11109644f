//! The replica: what every member of the group has, and the dispatch of everything that comes in.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::batch::Kind;
use quorate_blocks::catchup::{Catchup, Source};
use quorate_blocks::clients::{Intake, PendingRead};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::laggards::Laggards;
use quorate_blocks::leases::Leases;
use quorate_blocks::membership::Configuration;
use quorate_blocks::prefix_log::{PrefixLog, Progress};
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{Own, Walls};
use quorate_core::{
    Context, Fact, Machine, Mark, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, digest, mutation,
};

use super::epochs::{Candidate, Polling, Wanted};
use super::head::Head;
use super::{Config, Message, Record};

/// A replica's wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The head may have been silent for too long.
    Election,
    /// No promise to the tail binds this acceptor any more: it may promise another ballot.
    Free,
    /// A candidate with a majority has waited long enough for the others.
    Decide,
    /// The head must show that it is there.
    Heartbeat,
    /// What was not answered must be sent again.
    Retransmit,
    /// Promises to the tail must be renewed.
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
    /// A ballot that it will promise when no promise to the tail binds it any more.
    pub(super) wanted: Option<Wanted>,
    pub(super) monitor: LeaderMonitor,
    pub(super) log: PrefixLog,
    /// The log is the head's of this epoch up to here, as the predecessor's messages showed.
    pub(super) verified: u64,
    /// The same, on the own disk.
    pub(super) durable: u64,
    /// Will be, when what was persisted is.
    pub(super) claimed: u64,
    /// Everything up to here is committed.
    pub(super) committed: u64,
    pub(super) state: Replicated,
    /// The successors' logs, once the own one is verified.
    pub(super) successors: BTreeMap<NodeId, Progress>,
    /// Whether the predecessor is to be told.
    pub(super) acknowledge: bool,
    pub(super) leases: Leases,
    /// Until when checkers were told that reads are answered from the own state.
    pub(super) reads_until: Option<Time>,
    pub(super) intake: Intake,
    /// Whether `intake` knows what is in the log: this replica was the last head that it knows.
    pub(super) keeps_intake: bool,
    /// The tail's reads that wait for a lease.
    pub(super) reads: Vec<PendingRead>,
    /// Members that hold the chain up, or have just done so: they are left out of it.
    pub(super) laggards: Laggards,
    /// The others' wall clocks.
    pub(super) walls: Walls,
    pub(super) catchup: Catchup,
    pub(super) source: Source,
    /// A snapshot is wanted from the predecessor.
    pub(super) behind: bool,
    /// The last `Record::Committed`, and whether something else was persisted since the last batch end.
    recorded: u64,
    persisted: bool,
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
    /// Is the head.
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
        let load = |image| Replicated::load(&image).expect("an image that was saved loads");
        let state = saved.snapshot.map_or_else(Replicated::default, load);
        let now = cx.now();
        let me = cx.me().replica().expect("a replica's process id");
        let members = Configuration::initial(&config.group);
        let fresh = || PrefixLog::new(state.applied(), state.origin(), (0, members.clone()), now);
        let mut log = fresh();
        let (mut promised, mut recorded) = (Ballot::ZERO, 0);
        // A state that was received and is not there: what follows was never counted, up to the next start.
        let mut void = false;
        for record in saved.records {
            match record {
                Record::Promised(ballot) => promised = ballot,
                Record::Entry { index, entry } if index > log.base() && !void => {
                    if index <= log.last().0 {
                        log.truncate(index);
                    }
                    assert!(index == log.last().0 + 1, "entry {index} is recorded after a hole");
                    log.append(entry, now);
                }
                Record::Entry { .. } => {}
                Record::Committed(index) => recorded = if void { recorded } else { index },
                Record::Installed { index, keep } => {
                    void |= index > log.base();
                    if !void && !keep {
                        log = fresh();
                    }
                }
                Record::Resumed => void = false,
            }
        }
        // A log whose last entry is of this epoch has come from its head: it is the head's up to there. A tail may have
        // shown all of that to clients, so it is committed as soon as the chain is known (`Replica::adopt`).
        let (last, epoch) = log.last();
        let known = epoch == promised.number() && !mutation::active("chain/restarted-tail-reads");
        let known = if known { last } else { 0 };
        let committed = state.applied().max(recorded.min(last));
        let (lease, first) = (config.lease, cx.random().u64());
        let leases = Leases::new(me, lease, saved.restarted, first, promised.number(), now);
        let mut replica = Replica {
            me,
            members,
            promised,
            seen: promised,
            chain: Vec::new(),
            former: Vec::new(),
            role: Role::Member,
            wanted: None,
            monitor: LeaderMonitor::new(config.timeouts, saved.restarted, now, cx.random()),
            verified: known,
            durable: known,
            claimed: known,
            committed,
            successors: BTreeMap::new(),
            acknowledge: false,
            leases,
            reads_until: None,
            intake: Intake::new(me.into(), config.intake.max_bytes),
            keeps_intake: false,
            reads: Vec::new(),
            laggards: Laggards::default(),
            walls: Walls::default(),
            catchup: Catchup::default(),
            source: Source::default(),
            behind: false,
            recorded,
            persisted: false,
            log,
            state,
            config,
        };
        if void {
            replica.persist(Record::Resumed, cx);
        }
        replica.note_log(cx);
        let voters = replica.members.voters;
        cx.note(|| Fact::Configured { index: 0, voters, outgoing: NodeSet::EMPTY });
        replica.execute(cx);
        let patience = replica.monitor.remaining(now).expect("it has just begun");
        let alone = replica.members.is_alone(me);
        cx.set_timer(Timer::Election, if alone { std::time::Duration::ZERO } else { patience });
        cx.set_timer(Timer::Retransmit, quorate_blocks::prefix_log::RETRANSMIT);
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
            Message::Lease(message) => self.on_lease(from, message, cx),
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
            Message::HeartbeatReply { sent, durable, committed, wall, .. } => {
                self.on_heartbeat_reply(from, (sent, wall), (durable, committed), cx);
            }
            Message::Update { prev_index, prev_epoch, entries, committed, .. } => {
                self.on_update(from, (prev_index, prev_epoch), &entries, committed, cx);
            }
            Message::Mismatch { prev, index, index_epoch, .. } => {
                self.on_mismatch(from, prev, (index, index_epoch));
            }
            Message::Behind { .. } => self.on_behind(from, cx),
            Message::Stored { upto, .. } => self.on_stored(from, upto, cx),
            Message::Ack { matched, committed, .. } => self.on_ack(from, matched, committed, cx),
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
        self.forward_reads(cx);
        self.propose(cx);
        self.propagate(cx);
        self.serve_reads(cx);
        if self.persisted && self.recorded < self.committed {
            // In the shadow of records that are synced anyway.
            self.recorded = self.committed;
            cx.persist(Record::Committed(self.recorded));
        }
        self.persisted = false;
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
        self.walls.time(own, &|wall| self.members.reached(wall)).unwrap_or_default()
    }

    pub(super) fn persist(&mut self, record: Record, cx: &mut Context<'_, Self>) {
        self.persisted = true;
        cx.persist(record);
    }

    /// The same for a state that came from elsewhere.
    pub(super) fn persist_state(&mut self, record: Record, cx: &mut Context<'_, Self>) {
        self.persisted = true;
        if mutation::active("chain/snapshot-not-durable") {
            cx.persist(record);
        } else {
            cx.persist_state(record);
        }
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

    pub(super) fn is_head(&self) -> bool {
        matches!(self.role, Role::Head(_))
    }

    // Execution --------------------------------------------------------------------------------------------------

    pub(super) fn commit(&mut self, upto: u64, cx: &mut Context<'_, Self>) {
        if upto > self.committed {
            self.committed = upto;
            self.execute(cx);
        }
    }

    /// Executes what is committed, in order.
    fn execute(&mut self, cx: &mut Context<'_, Self>) {
        let leads = self.is_head();
        while self.state.applied() < self.committed {
            let slot = self.state.applied() + 1;
            let held = self.log.get(slot).expect("what is committed and not executed is kept");
            let value = held.entry.value.whole().expect("values are whole").clone();
            let intake = &mut self.intake;
            let effect = |effect| {
                if leads {
                    intake.on_effect(effect);
                }
            };
            cx.note(|| Fact::Chosen { slot, digest: digest(&value) });
            if leads {
                cx.mark(Mark::Committed { slot });
            }
            let requests = self.state.apply(slot, &value, effect, |fact| cx.note(fact));
            self.state.follow(self.log.origin(slot));
            if leads {
                cx.mark(Mark::Applied { slot, requests });
            }
        }
        for (upto, bytes) in self.source.retention(self.state.applied(), self.config.retain, cx.now()) {
            self.log.retain(upto, bytes);
        }
    }

    pub(super) fn note_appended(&self, index: u64, cx: &mut Context<'_, Self>) {
        let held = self.log.get(index).expect("it has just been appended");
        let (term, digest, writes) = (held.entry.term, held.entry.value.digest(), held.kind == Kind::Clients);
        cx.note(|| Fact::Appended { index, term, digest, writes });
    }

    pub(super) fn note_log(&self, cx: &mut Context<'_, Self>) {
        let (index, term) = (self.log.base(), self.state.origin().term);
        cx.note(|| Fact::Installed { slot: index });
        cx.note(|| Fact::Begins { index, term });
        for index in index + 1..=self.log.last().0 {
            self.note_appended(index, cx);
        }
    }
}
