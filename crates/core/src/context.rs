//! What a machine may ask of its driver, and the buffers in which the driver finds it.

use std::time::Duration;

use crate::fact::Fact;
use crate::id::{NodeId, NodeSet, ProcessId, RequestId};
use crate::machine::{Machine, Message, Release};
use crate::mark::Mark;
use crate::members::Members;
use crate::mutation;
use crate::random::Random;
use crate::request::Outcome;
use crate::time::{Interval, Time, Wall};

/// What a driver knows at the moment of a step. `now` is sampled after the input is dequeued: a clock read
/// before a pause would serve a stale lease read.
#[derive(Clone, Copy, Debug)]
pub struct Instant {
    /// The process's monotonic clock; the same throughout a step.
    pub now: Time,
    /// The wall clock's best guess.
    pub wall: Wall,
    /// True time with its bound, where there is one.
    pub clock: Option<Interval>,
}

/// A machine's hand on the outside during one step.
pub struct Context<'a, M: Machine> {
    me: ProcessId,
    at: Instant,
    random: &'a mut Random,
    out: &'a mut Outbox<M>,
}

impl<'a, M: Machine> Context<'a, M> {
    /// For drivers: one step of the process `me`.
    pub fn new(me: ProcessId, at: Instant, random: &'a mut Random, out: &'a mut Outbox<M>) -> Self {
        Context { me, at, random, out }
    }

    /// The process that is stepped.
    pub fn me(&self) -> ProcessId {
        self.me
    }

    /// The present on this process's monotonic clock.
    pub fn now(&self) -> Time {
        self.at.now
    }

    /// The present on the wall, for expiry only.
    pub fn wall(&self) -> Wall {
        self.at.wall
    }

    /// True time is inside this interval; `None` when this process has no bound on its clock's error.
    pub fn clock(&self) -> Option<Interval> {
        self.at.clock
    }

    /// The driver's source of random numbers: the only one that a machine may use.
    pub fn random(&mut self) -> &mut Random {
        self.random
    }

    /// Appends a record to the log. Records become durable in order; messages that are released
    /// [`Release::AfterSync`] wait for all records persisted before them.
    pub fn persist(&mut self, record: M::Record) {
        self.out.records.push(record);
        self.out.persisted += 1;
    }

    /// Appends a record that says: the state that I have now came from elsewhere. It counts as durable only when a
    /// state
    /// that was saved (`Replica::save`) after this step is; the driver saves as soon as it can. After a crash before
    /// that, the log ends before this record or with it: nothing that came later was promised to anyone.
    pub fn persist_state(&mut self, record: M::Record) {
        self.persist(record);
        self.out.barrier = self.out.persisted;
    }

    /// States who is in the group from now on.
    pub fn members(&mut self, members: Members) {
        self.out.members = Some(members);
    }

    /// Sends to one process; to itself too, so that its own vote is no special case.
    pub fn send(&mut self, to: impl Into<ProcessId>, message: M::Message) {
        self.push(Recipients::One(to.into()), message);
    }

    /// Sends to several replicas; the driver encodes the message once.
    pub fn send_all(&mut self, to: NodeSet, message: M::Message) {
        if !to.is_empty() {
            self.push(Recipients::Replicas(to), message);
        }
    }

    fn push(&mut self, to: Recipients, message: M::Message) {
        let after = match message.release() {
            Release::AfterSync if !mutation::release_now(message.kind()) => self.out.persisted,
            Release::AfterSync | Release::Now => 0,
        };
        self.out.messages.push(Outgoing { to, message, after });
    }

    /// Answers a client (proxies only).
    pub fn reply(&mut self, request: RequestId, outcome: Outcome) {
        self.reply_at(request, outcome, 0);
    }

    /// The same, and tells by which slot a write was executed, or which was the last when a read was: a replica that
    /// has executed it shows the write, or no older state.
    pub fn reply_at(&mut self, request: RequestId, outcome: Outcome, slot: u64) {
        self.out.replies.push(Answered { request, outcome, slot });
    }

    /// Wakes this machine after a while; replaces an earlier setting of the same timer.
    pub fn set_timer(&mut self, timer: M::Timer, after: Duration) {
        self.out.timers.push((timer, Some(self.at.now + after)));
    }

    /// Forgets a timer; nothing if it is not set.
    pub fn cancel_timer(&mut self, timer: M::Timer) {
        self.out.timers.push((timer, None));
    }

    /// States a fact for checkers, if any listens.
    pub fn note(&mut self, fact: impl FnOnce() -> Fact) {
        if self.out.observed {
            self.out.facts.push(fact());
        }
    }

    /// States a moment that the driver may put a time to, if it wants to.
    pub fn mark(&mut self, mark: Mark) {
        if self.out.timed {
            self.out.marks.push(mark);
        }
    }
}

/// To whom a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// A replica, or a proxy.
    One(ProcessId),
    /// Each of these replicas, with one encoding of the message.
    Replicas(NodeSet),
}

impl Recipients {
    /// The processes, one by one; replicas in the order of their ids.
    pub fn iter(self) -> impl Iterator<Item = ProcessId> {
        let (one, many) = match self {
            Recipients::One(process) => (Some(process), NodeSet::EMPTY),
            Recipients::Replicas(nodes) => (None, nodes),
        };
        one.into_iter().chain(many.iter().map(|node: NodeId| ProcessId::Replica(node)))
    }
}

/// A message on its way out.
#[derive(Debug)]
pub struct Outgoing<T> {
    /// The processes that it is sent to.
    pub to: Recipients,
    /// The message itself, not yet encoded.
    pub message: T,
    /// It may leave once this many records of [`Outbox::persisted`] are durable; 0 means at once.
    pub after: u64,
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The request, as its proxy numbered it.
    pub request: RequestId,
    /// What the client is told.
    pub outcome: Outcome,
    /// Replicas that have executed this slot have executed it, or show no older state than it did if it was a read; 0
    /// where slots say nothing of it.
    pub slot: u64,
}

/// What a machine asked for. The driver keeps one per machine incarnation, drains the lists after each step (or
/// batch of steps) and leaves `persisted` alone.
#[derive(Debug)]
pub struct Outbox<M: Machine> {
    /// To append to the log, in order.
    pub records: Vec<M::Record>,
    /// How many records this incarnation has persisted since it was created.
    pub persisted: u64,
    /// The last record of [`Context::persist_state`]: it and those after it are not durable before a state that was
    /// saved when it was there.
    pub barrier: u64,
    /// Messages to send, in order, each when its records are durable.
    pub messages: Vec<Outgoing<M::Message>>,
    /// To set (`Some`) or forget (`None`), in order.
    pub timers: Vec<(M::Timer, Option<Time>)>,
    /// To hand to clients.
    pub replies: Vec<Answered>,
    /// What became true, if `observed`.
    pub facts: Vec<Fact>,
    /// Whether facts are wanted.
    pub observed: bool,
    /// What to put a time to, if `timed`.
    pub marks: Vec<Mark>,
    /// Whether marks are wanted; at first they are not.
    pub timed: bool,
    /// Who is in the group, if that has changed.
    pub members: Option<Members>,
}

impl<M: Machine> Outbox<M> {
    /// Empty; `observed` says whether the driver wants facts.
    pub fn new(observed: bool) -> Self {
        Outbox {
            records: Vec::new(),
            persisted: 0,
            barrier: 0,
            messages: Vec::new(),
            timers: Vec::new(),
            replies: Vec::new(),
            facts: Vec::new(),
            observed,
            marks: Vec::new(),
            timed: false,
            members: None,
        }
    }
}
