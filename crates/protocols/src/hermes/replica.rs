//! The replica: what every member of the group has, and the dispatch of everything that comes in.

use std::collections::BTreeMap;

use quorate_blocks::ballot::Ballot;
use quorate_blocks::clients::{Intake, PendingRead};
use quorate_blocks::election::LeaderMonitor;
use quorate_blocks::laggards::Laggards;
use quorate_blocks::leases::Leases;
use quorate_blocks::membership::Configuration;
use quorate_blocks::state::Replicated;
use quorate_blocks::walls::{ClockRequest, Own, Walls};
use quorate_core::{
    Context, Machine, NodeId, NodeSet, ProcessId, Saved, Time, Wakeup, Wall, Wire, mutation, wire_struct,
};
use quorate_store::{Key, Store};

use super::epochs::Role;
use super::keys::Keys;
use super::transfer::Transfer;
use super::writes::Coordinator;
use super::{Config, Message, Record};

/// What a replica sets timers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The owner may have been silent for too long.
    Election,
    /// No promise to a reader binds this acceptor any more: it may promise another ballot.
    Free,
    /// A candidate with a majority has waited long enough for the others.
    Decide,
    /// The owner must show that it is there; keys must be looked after, and what was lost sent again.
    Heartbeat,
    /// Promises to readers must be renewed.
    Lease,
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
    /// Who is live in the epoch of `promised`; empty until that is known.
    pub(super) live: NodeSet,
    /// Those of them who are known to be whole.
    pub(super) whole: NodeSet,
    /// The last epoch in which this replica was live, and whether it has everything that was committed until then.
    pub(super) entered: Ballot,
    pub(super) is_whole: bool,
    pub(super) role: Role,
    /// A ballot that it will enter when no promise to a reader binds it any more, and whether it has been asked to
    /// promise it.
    pub(super) wanted: Option<(Ballot, bool)>,
    pub(super) monitor: LeaderMonitor,
    /// Members that hold writes up, or have just done so: they are left out.
    pub(super) laggards: Laggards,
    /// About to stop: takes no new duties.
    pub(super) draining: bool,
    pub(super) disk_full: bool,
    pub(super) leases: Leases,
    /// Until when checkers were told that reads are answered from the own copy.
    pub(super) reads_until: Option<Time>,
    /// Since when it has had no leases.
    pub(super) leaseless: Option<Time>,
    pub(super) keys: Keys,
    /// How many versions it has seen committed.
    pub(super) committed: u64,
    pub(super) coordinator: Coordinator,
    /// As a shadow: what is on its way.
    pub(super) transfer: Option<Transfer>,
    pub(super) intake: Intake,
    /// What an intake asks of a log, which there is none of.
    pub(super) nothing: Replicated,
    /// Reads to be looked at, and those that wait for a key to be valid.
    pub(super) reads: Vec<PendingRead>,
    pub(super) parked: BTreeMap<Key, Vec<PendingRead>>,
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
}
wire_struct!(Head { promised, entered, whole, committed });

impl Machine for Replica {
    type Config = Config;
    type Message = Message;
    type Record = Record;
    type Timer = Timer;

    fn wakeup(timer: Timer) -> Wakeup {
        match timer {
            Timer::Election => Wakeup::TakesOver { times: 1 },
            Timer::Heartbeat | Timer::Decide => Wakeup::Matters,
            Timer::Free | Timer::Lease => Wakeup::Spared,
        }
    }

    fn recover(config: Config, saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let now = cx.now();
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
        });
        let Head { mut promised, mut entered, mut whole, mut committed } = head;
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
            }
        }
        let first = cx.random().u64();
        let leases = Leases::new(me, config.lease, saved.restarted, first, promised.number(), now);
        let patient = saved.restarted || config.group.waits_for_first_leader(me);
        let mut replica = Replica {
            me,
            members,
            promised,
            seen: promised,
            live: NodeSet::EMPTY,
            whole: NodeSet::EMPTY,
            entered,
            is_whole: whole,
            role: Role::Member,
            wanted: None,
            monitor: LeaderMonitor::new(config.timeouts, patient, now, cx.random()),
            laggards: Laggards::default(),
            draining: false,
            disk_full: false,
            leases,
            reads_until: None,
            leaseless: None,
            keys,
            committed,
            coordinator: Coordinator::default(),
            transfer: None,
            intake: Intake::new(me.into(), config.max_bytes),
            nothing: Replicated::default(),
            reads: Vec::new(),
            parked: BTreeMap::new(),
            life: cx.random().u64(),
            walls: Walls::default(),
            config,
        };
        replica.restate(cx);
        let patience = replica.monitor.remaining(now).expect("it has just begun");
        let alone = replica.members.is_alone(me);
        cx.set_timer(Timer::Election, if alone { std::time::Duration::ZERO } else { patience });
        replica.on_heartbeat_timer(cx);
        replica
    }

    fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut Context<'_, Self>) {
        let message = match message {
            Message::Client(message) => return self.on_client(from, message, cx),
            message => message,
        };
        let from = from.replica().filter(|node| self.members.voters.contains(*node));
        let Some(from) = from.filter(|_| message.is_possible()) else { return };
        if message.epoch().is_some_and(|ballot| ballot != self.promised) {
            return;
        }
        let both_live = self.is_live() && self.live.contains(from);
        match message {
            Message::Client(_) => unreachable!("handled above"),
            Message::Lease(message) => self.on_lease(from, &message, cx),
            Message::Poll { sent } => self.on_poll(from, sent, cx),
            Message::PollReply { sent, ballot } => self.on_poll_reply(from, sent, ballot, cx),
            Message::Prepare { ballot } => self.on_prepare(from, ballot, cx),
            Message::Promise { entered, whole, .. } => self.on_promise(from, (entered, whole), cx),
            Message::Refused { ballot } => self.on_refused(ballot, cx),
            Message::Heartbeat { ballot, live, whole, .. } => {
                self.on_heartbeat(from, ballot, (live, whole), cx)
            }
            Message::HeartbeatReply { whole, .. } => self.on_heartbeat_reply(from, whole, cx.now()),
            Message::Leave { .. } => self.on_leave(from, cx),
            Message::ClockRequest(request) => cx.send(from, Message::ClockReply { request, wall: cx.wall() }),
            Message::ClockReply { request, wall } => self.on_clock_reply(from, request, wall, cx),
            Message::Inv { versions, .. } if both_live => self.on_inv(from, versions, cx),
            Message::Ack { acks, .. } if both_live => self.on_acks(from, acks, cx),
            Message::Val { keys, .. } if both_live => self.on_val(keys, cx),
            Message::Fetch { after, .. } if both_live => self.on_fetch(from, after, cx),
            Message::Page { after, versions, last, .. } if both_live => {
                self.on_page(from, after.as_ref(), versions, last, cx);
            }
            // Of one that is not live, or of an epoch of which it is not known here who is.
            Message::Inv { .. } | Message::Ack { .. } | Message::Val { .. } => {}
            Message::Fetch { .. } | Message::Page { .. } => {}
        }
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        match timer {
            Timer::Election => self.on_election_timer(cx),
            Timer::Free => self.leave_when_free(cx),
            Timer::Decide => self.decide(true, cx),
            Timer::Heartbeat => self.on_heartbeat_timer(cx),
            Timer::Lease => self.tend_leases(cx),
        }
    }

    fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
        self.serve_reads(cx);
        self.coordinate(cx);
        self.serve_reads(cx);
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
        self.live.contains(self.me)
    }

    /// Whether it coordinates writes and, with leases, answers reads.
    pub(super) fn serves(&self) -> bool {
        let is_whole = self.is_whole || mutation::active("hermes/shadow-reads");
        self.is_live() && is_whole && self.entered == self.promised
    }

    /// The time by which keys expire here; `None`: the clocks of a majority are not known yet, right after a start.
    pub(super) fn time(&self, now: Time, wall: Wall) -> Option<Wall> {
        self.walls.time(Own { me: self.me, wall, now }, &|wall| self.members.reached(wall))
    }

    fn on_clock_reply(&mut self, from: NodeId, request: ClockRequest, wall: Wall, cx: &Context<'_, Self>) {
        if request.life == self.life {
            let own = Own { me: self.me, wall: cx.wall(), now: cx.now() };
            let members = &self.members;
            self.walls.hear(from, (request.sent, wall), own, &|wall| members.reached(wall));
        }
    }

    fn on_heartbeat_timer(&mut self, cx: &mut Context<'_, Self>) {
        cx.set_timer(Timer::Heartbeat, self.config.timeouts.heartbeat);
        let unknown = self.walls.due(self.members.voters.without(self.me), cx.now());
        let request = ClockRequest { life: self.life, sent: cx.now() };
        cx.send_all(unknown, Message::ClockRequest(request));
        self.speak(cx);
        self.solicit(cx);
        self.tend_leases(cx);
        self.repeat_fetch(cx);
        self.look_after_keys(cx);
        self.look_after_reads(cx);
    }

    /// Tells checkers what it has, after a start.
    fn restate(&mut self, cx: &mut Context<'_, Self>) {
        let number = self.promised.number();
        let now = cx.now();
        for key in self.keys.all().cloned().collect::<Vec<_>>() {
            match self.keys.is_valid(&key) {
                true => cx.note(|| self.keys.fact(&key, number)),
                false => drop(self.coordinator.invalid.insert(key, now)),
            }
        }
    }
}
