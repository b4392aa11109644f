//! The replica: what every member of the group has, and the dispatch of everything that comes in.

use quorate_blocks::ballot::Ballot;
use quorate_blocks::clients::{Intake, PendingRead};
use quorate_blocks::epochs::{self, EagerReads, Epochs, Reads};
use quorate_blocks::membership::Configuration;
use quorate_blocks::rejoin::may_have_granted_leases;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{ClockRequest, Own, Walls};
use quorate_core::{
    Context, Machine, NodeId, NodeSet, ProcessId, Saved, Shortage, Time, Wakeup, Wall, Wire, mutation,
    wire_struct,
};
use quorate_store::Store;

use super::keys::Keys;
use super::memory::{Amnesia, Loss};
use super::message::Known;
use super::reads::Parked;
use super::slow_members::SlowMembers;
use super::tombstones::Floor;
use super::transfer::Transfer;
use super::writes::Coordinator;
use super::{Config, Message, Record};

/// What a replica sets timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// [`epochs::Timer::Election`].
    Election,
    /// [`epochs::Timer::Free`].
    Free,
    /// [`epochs::Timer::Decide`].
    Decide,
    /// The owner must show that it is there; keys must be looked after, and what was lost sent again.
    Heartbeat,
    /// [`epochs::Timer::Lease`].
    Lease,
    /// [`epochs::Timer::Ask`].
    Ask,
}

/// A member of the group.
#[derive(Debug)]
pub struct Replica {
    pub(super) config: Config,
    pub(super) me: NodeId,
    pub(super) epochs: Epochs<(), Known>,
    /// Those who are live in the epoch that it is in and known to be whole.
    pub(super) whole: NodeSet,
    /// The last epoch in which this replica was live, and whether it has everything that was committed until then.
    pub(super) entered: Ballot,
    pub(super) is_whole: bool,
    /// What was lost: with keys in memory alone, at the last restart; or with a disk.
    pub(super) loss: Option<Loss>,
    /// Why no epoch begins, as far as this member was told.
    pub(super) amnesia: Option<Amnesia>,
    pub(super) shortage: Option<Shortage>,
    /// Since when it has had no leases.
    pub(super) leaseless: Option<Time>,
    pub(super) keys: Keys,
    /// How many versions it has seen committed.
    pub(super) committed: u64,
    pub(super) coordinator: Coordinator,
    pub(super) slow: SlowMembers,
    /// As a shadow: what is on its way.
    pub(super) transfer: Option<Transfer>,
    pub(super) intake: Intake,
    /// What an intake asks of a log, which there is none of.
    pub(super) nothing: Replicated,
    /// Reads to be looked at, and those that wait for a key to be valid.
    pub(super) reads: Vec<PendingRead>,
    pub(super) parked: Parked,
    /// A random number of this life.
    pub(super) life: u64,
    /// The others' wall clocks.
    pub(super) walls: Walls,
}

/// What a snapshot says beside the keys.
pub(super) struct Head {
    pub promised: Ballot,
    pub entered: Ballot,
    pub whole: bool,
    pub committed: u64,
    pub floor: Floor,
}
wire_struct!(Head { promised, entered, whole, committed, floor });

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
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let me = cx.me().replica().expect("a replica's process id");
        let members = Configuration::initial(&config.group);
        let none = || Keys::new(Store::new());
        let (head, mut keys) = saved.snapshot.map_or_else(
            || (None, none()),
            |image| {
                let (head, keys) = Keys::load(&image);
                (Some(Head::from_bytes(head).expect("a head that was saved")), keys)
            },
        );
        let head = head.unwrap_or(Head {
            promised: Ballot::ZERO,
            entered: Ballot::ZERO,
            whole: false,
            committed: 0,
            floor: Floor::default(),
        });
        let Head { mut promised, mut entered, mut whole, mut committed, floor } = head;
        keys.raise(floor);
        let mut rejoined = None;
        for record in saved.records {
            match record {
                Record::Promised(ballot) => promised = ballot,
                Record::Entered { ballot, whole: is_whole } => (entered, whole) = (ballot, is_whole),
                Record::Version(version) => keys.put(&version).expect("a version that was adopted"),
                Record::Valid { key, at } if keys.at(&key) == at => {
                    keys.set_valid(&key, true);
                    committed += 1;
                }
                Record::Valid { .. } => {}
                Record::Floor(floor) => drop(keys.raise(floor)),
                Record::Rejoined { ballot, made_up } => {
                    rejoined = Some(Loss { promised: ballot, made_up, disk: !made_up });
                    promised = promised.max(ballot);
                    if entered <= ballot {
                        (entered, whole) = (ballot, false);
                    }
                }
            }
        }
        keys.forget_again();
        let diskless = config.group.diskless;
        let lacks_disk = rejoined.is_some_and(|loss| loss.disk);
        let restart = Replica::loss(diskless, (promised, entered), lacks_disk);
        if restart.is_some() {
            (keys, committed) = (none(), 0);
            whole = mutation::active("hermes/whole-without-memory");
        }
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let is_bound =
            may_have_granted_leases(saved.restarted, &config.group) && config.reads == Reads::Lease;
        let times = (config.timeouts, config.lease);
        let mut epochs = Epochs::new((me, members), times, promised, (patient, is_bound), cx);
        epochs.start_rejoining(&config.group, rejoined.map(|loss| loss.promised), cx);
        let mut replica = Replica {
            me,
            epochs,
            whole: NodeSet::EMPTY,
            entered,
            is_whole: whole,
            loss: restart.or(rejoined),
            amnesia: None,
            shortage: None,
            leaseless: None,
            keys,
            committed,
            coordinator: Coordinator::default(),
            slow: SlowMembers::default(),
            transfer: None,
            intake: Intake::new(me.into(), config.max_bytes),
            nothing: Replicated::default(),
            reads: Vec::new(),
            parked: Parked::default(),
            life: cx.random().u64(),
            walls: Walls::default(),
            config,
        };
        let is_eager = replica.config.reads == Reads::EagerAlr;
        replica.epochs.eager = is_eager.then(|| EagerReads::new(cx.random()));
        replica.restate(cx);
        replica.epochs.start(cx);
        replica.on_heartbeat_timer(cx);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        let from = from.replica().filter(|node| self.epochs.members.voters.contains(*node));
        let Some(from) = from.filter(|_| message.is_possible()) else { return };
        let is_of_this_epoch = message.epoch().is_none_or(|ballot| ballot == self.epochs.promised);
        if !is_of_this_epoch && !mutation::active("hermes/messages-of-earlier-epochs") {
            return;
        }
        let is_clock = matches!(message, Message::ClockRequest(_) | Message::ClockReply { .. });
        if self.epochs.is_asking() && !is_clock && !matches!(message, Message::Epoch(_)) {
            return;
        }
        let both_live = self.is_live() && self.epochs.live().contains(from);
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Lease(message) => {
                let event = self.epochs.on_lease(from, &message, (), cx);
                self.on_event(event, cx);
            }
            Message::Epoch(message) => self.on_epoch(from, message, cx),
            Message::Heartbeat { ballot, live, whole, .. } => {
                self.on_heartbeat(from, ballot, (live, whole), cx)
            }
            Message::HeartbeatReply { whole, lost, slow, .. } => {
                self.on_heartbeat_reply(from, (whole, lost), slow, cx);
            }
            Message::Amnesia { ballot, lost, missing } => self.on_amnesia(from, ballot, (lost, missing), cx),
            Message::Leave { .. } => self.on_leave(from, cx),
            Message::ClockRequest(request) => cx.send(from, Message::ClockReply { request, wall: cx.wall() }),
            Message::ClockReply { request, wall } => self.on_clock_reply(from, request, wall, cx),
            Message::Inv { versions, .. } if both_live => self.on_inv(from, versions, cx),
            Message::Ack { acks, .. } if both_live => self.on_acks(from, acks, cx),
            Message::Val { keys, .. } if both_live => self.on_val(keys, cx),
            Message::Fetch { after, .. } if both_live => self.on_fetch(from, after, cx),
            Message::Page { after, versions, last, floor, .. } if both_live => {
                self.on_page(from, after.as_ref(), (versions, floor), last, cx);
            }
            // Of one that is not live, or of an epoch of which it is not known here who is.
            Message::Inv { .. } | Message::Ack { .. } | Message::Val { .. } => {}
            Message::Fetch { .. } | Message::Page { .. } => {}
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
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.serve_reads(cx);
        self.coordinate(cx);
        self.serve_reads(cx);
        let replies = self.epochs.sync_reads(cx);
        self.answer_reads(replies);
        self.send_versions(cx);
        for (proxy, message) in self.intake.flush(&self.nothing) {
            cx.send(proxy, Message::Client(message));
        }
    }

    fn check(&self) {
        super::invariants::check(self);
    }
}

impl Replica {
    pub(super) fn is_live(&self) -> bool {
        self.epochs.live().contains(self.me) && self.takes_part()
    }

    /// Whether it coordinates writes and, with leases, answers reads.
    pub(super) fn serves(&self) -> bool {
        let is_whole = self.is_whole || mutation::active("hermes/shadow-reads");
        self.is_live() && is_whole && self.entered == self.epochs.promised
    }

    /// The time by which keys expire here; `None`: the clocks of a majority are not known yet, right after a start.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Option<Wall> {
        self.walls.time(Own { me: self.me, wall, now }, &|wall| self.epochs.members.reached(wall))
    }

    fn on_clock_reply(&mut self, from: NodeId, request: ClockRequest, wall: Wall, cx: &Context<'_, Self>) {
        if request.life == self.life {
            let own = Own::read(self.me, cx);
            let members = &self.epochs.members;
            self.walls.hear(from, (request.sent, wall), own, &|wall| members.reached(wall));
        }
    }

    fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
        let own = Own::read(self.me, cx);
        let unknown = self.walls.due(self.epochs.members.voters.without(self.me), own);
        let request = ClockRequest { life: self.life, sent: cx.now() };
        cx.send_all(unknown, Message::ClockRequest(request));
        self.speak(cx);
        self.go_on_rejoining(cx);
        self.tell_amnesia(cx);
        self.epochs.solicit((), cx);
        self.epochs.tend_leases(cx);
        self.repeat_fetch(cx);
        self.look_after_keys(cx);
        self.drop_tombstones(cx);
        self.watch_acknowledgements(cx.now());
        let discarded = self.epochs.repeat_syncs(cx);
        self.reads.extend(discarded);
        self.look_after_reads(cx);
    }

    /// Tells checkers what it has, after a start.
    fn restate(&mut self, cx: &mut Context<'_, Self>) {
        let now = cx.now();
        for key in self.keys.all().cloned().collect::<Vec<_>>() {
            match self.keys.is_valid(&key) {
                true => self.note_valid(&key, cx),
                false => drop(self.coordinator.invalid.insert(key, now)),
            }
        }
    }
}
