//! An operating system process of the cluster: a node (a replica, and the proxy for its own clients), or a proxy
//! alone. It has a disk and clocks, which survive it, and one life at a time.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use quorate_core::{
    Configs, Context, Instant, Machine, NodeId, NodeSet, Outbox, Outgoing, ProcessId, Protocol, Proxy,
    ProxyId, Random, Replica, Request, RequestId, Saved, Time, Timers,
};
use quorate_parts::admission::{Admission, DiskId, Memory, Stage};

use crate::checkers::Clocks;
use crate::clock::Clock;
use crate::disk::Disk;
use crate::faults::Moment;
use crate::queue::Nanos;

/// A machine with what its driver keeps for it.
pub(crate) struct Running<M: Machine> {
    pub me: ProcessId,
    pub machine: M,
    pub out: Outbox<M>,
    pub timers: Timers<M::Timer>,
    random: Random,
    /// Stepped since its last `on_batch_end`.
    pub stepped: bool,
    /// Records that stand for a state, counted as [`Outbox::persisted`] does; the driver takes them.
    pub barriers: Vec<u64>,
    /// The last of them so far.
    barrier: u64,
}

impl<M: Machine> Running<M> {
    pub fn start(me: ProcessId, config: M::Config, saved: Saved<M::Record>, at: Instant, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut out = Outbox::new(true);
        let machine = M::recover(config, saved, &mut Context::new(me, at, &mut random, &mut out));
        let mut running = Running {
            me,
            machine,
            out,
            timers: Timers::default(),
            random,
            stepped: true,
            barriers: Vec::new(),
            barrier: 0,
        };
        running.settle();
        running
    }

    pub fn step(&mut self, at: Instant, input: impl FnOnce(&mut M, &mut Context<'_, M>)) {
        input(&mut self.machine, &mut Context::new(self.me, at, &mut self.random, &mut self.out));
        self.stepped = true;
        self.settle();
    }

    pub fn end_batch(&mut self, at: Instant) {
        if self.stepped {
            self.step(at, |machine, cx| machine.on_batch_end(cx));
            self.stepped = false;
        }
    }

    fn settle(&mut self) {
        for (timer, deadline) in self.out.timers.drain(..) {
            self.timers.apply(timer, deadline);
        }
        if self.out.barrier > self.barrier {
            self.barrier = self.out.barrier;
            self.barriers.push(self.barrier);
        }
        self.machine.check();
    }
}

/// What can happen to a live process.
pub(crate) enum Input<P: Protocol> {
    ToReplica(ProcessId, P::Message),
    ToProxy(ProcessId, P::Message),
    Request(RequestId, Request),
    Drain,
    ReplicaTimer(<P::Replica as Machine>::Timer),
    ProxyTimer(<P::Proxy as Machine>::Timer),
}

/// Which disk a node takes part with, and the connections to other nodes that depend on it.
pub(crate) struct Guard {
    pub admission: Admission,
    /// The revision of its memory that was handed to the disk last.
    pub written: u64,
    /// Hosts and epochs of those that are let in when this revision is durable.
    pub answers: Vec<(usize, u64, u64)>,
    /// Hosts and epochs of those that have let this node in; it may send when this revision is durable.
    pub openings: Vec<(usize, u64, u64)>,
    /// The hosts that it may send to, each in the epoch of its present life.
    pub up: BTreeMap<usize, u64>,
    /// Whether it has begun to introduce itself.
    pub greets: bool,
}

impl Guard {
    /// The disk that is known to be a node's.
    pub fn disk_of(&self, node: NodeId) -> Option<DiskId> {
        Some(self.admission.memory().peers.get(&node)?.current.as_ref()?.disk)
    }
}

/// What exists only while the process lives.
pub(crate) struct Life<P: Protocol> {
    /// Of a node of a protocol that relies on disks.
    pub guard: Option<Guard>,
    /// `None` where a proxy runs alone, and where the node is not admitted yet.
    pub replica: Option<Running<P::Replica>>,
    pub proxy: Running<P::Proxy>,
    pub inbox: VecDeque<Input<P>>,
    /// Messages of the replica that wait for the disk, with the number of the record (on the disk) they wait for.
    pub unreleased: VecDeque<Outgoing<P::Message>>,
    /// How many records the disk had when this life began.
    pub born_at_record: u64,
    /// Whether a turn of the loop is scheduled, or stalled.
    pub turning: bool,
    /// An input that was taken but not acted on, and what the clocks showed when it was taken.
    pub held: Option<(Input<P>, Instant)>,
    /// What the clocks showed when the last input of this turn was taken.
    pub sampled: Option<Instant>,
    /// Stalled between the last input and the end of the batch.
    pub ending: bool,
    /// Inputs that this turn may still take.
    pub budget: usize,
    pub busy_until: Nanos,
    /// When a wake-up for timers is scheduled.
    pub wake_at: Option<Nanos>,
    pub draining: bool,
}

impl<P: Protocol> Life<P> {
    /// The next input of this turn: due timers first, then what has come in.
    pub fn next_input(&mut self, at: Instant) -> Option<Input<P>> {
        self.budget = self.budget.checked_sub(1)?;
        if let Some(replica) = &mut self.replica
            && let Some(timer) = replica.timers.pop_due(at.now)
        {
            return Some(Input::ReplicaTimer(timer));
        }
        if let Some(timer) = self.proxy.timers.pop_due(at.now) {
            return Some(Input::ProxyTimer(timer));
        }
        self.inbox.pop_front()
    }

    pub fn step(&mut self, input: Input<P>, at: Instant) {
        let Life { replica, proxy, .. } = self;
        match (input, replica) {
            (Input::ToReplica(from, message), Some(replica)) => {
                replica.step(at, |machine, cx| machine.on_message(from, message, cx));
            }
            (Input::ReplicaTimer(timer), Some(replica)) => {
                replica.step(at, |machine, cx| machine.on_timer(timer, cx));
            }
            (Input::Drain, Some(replica)) => replica.step(at, |machine, cx| machine.on_drain(cx)),
            // It waits to be admitted.
            (Input::ToReplica(..) | Input::Drain, None) => {}
            (Input::ReplicaTimer(_), None) => unreachable!("timers are a replica's own"),
            (Input::ToProxy(from, message), _) => {
                proxy.step(at, |machine, cx| machine.on_message(from, message, cx));
            }
            (Input::Request(id, request), _) => {
                proxy.step(at, |machine, cx| machine.on_request(id, request, cx));
            }
            (Input::ProxyTimer(timer), _) => proxy.step(at, |machine, cx| machine.on_timer(timer, cx)),
        }
    }

    /// The proxy's batch ends first, as the contract says (`Machine::on_batch_end`).
    pub fn end_batch(&mut self, at: Instant) {
        self.proxy.end_batch(at);
        if let Some(replica) = &mut self.replica {
            replica.end_batch(at);
        }
    }

    /// Messages of the replica that wait for nothing (any more), in the order in which they may go.
    pub fn take_released(&mut self, disk: &Disk) -> Vec<Outgoing<P::Message>> {
        let mut ready = Vec::new();
        while let Some(first) = self.unreleased.front() {
            if !self.is_released(first.after, disk) {
                break;
            }
            ready.extend(self.unreleased.pop_front());
        }
        let mut fresh = match &mut self.replica {
            Some(replica) => std::mem::take(&mut replica.out.messages),
            None => return ready,
        };
        for outgoing in fresh.drain(..) {
            if outgoing.after == 0 || self.is_released(outgoing.after, disk) {
                ready.push(outgoing);
            } else {
                self.unreleased.push_back(outgoing);
            }
        }
        if let Some(replica) = &mut self.replica {
            replica.out.messages = fresh;
        }
        ready
    }

    /// Whether a message that waits for `after` records of this life may go.
    fn is_released(&self, after: u64, disk: &Disk) -> bool {
        self.born_at_record + after <= disk.durable()
    }
}

/// A fault that waits for a moment of a node's life.
#[derive(Debug)]
pub(crate) struct Armed {
    /// In the schedule.
    pub index: usize,
    pub moment: Moment,
    /// The ballot that the node had, for [`Moment::NewBallot`]; `None` if it was down.
    pub ballot: Option<String>,
}

/// A process, alive or not.
pub(crate) struct Host<P: Protocol> {
    /// Which node it is; `None` for a proxy alone.
    pub node: Option<NodeId>,
    /// Its proxy's present id.
    pub proxy: ProxyId,
    pub disk: Disk,
    pub clock: Clock,
    pub random: Random,
    pub life: Option<Life<P>>,
    /// Counts lives from 0; the present or last one.
    pub incarnation: u64,
    pub starts: u64,
    /// Grows at each start and end of a life: what was scheduled for another life is void.
    pub epoch: u64,
    pub paused_until: Nanos,
    /// When it last stood still, for whatever reason.
    pub frozen_until: Nanos,
    /// A fault that waits for its moment.
    pub armed: Option<Armed>,
    /// Records written since the last checkpoint began.
    pub since_checkpoint: usize,
    /// It has gone away for good.
    pub lost: bool,
    /// It is slow for good: its disk hangs, or its links.
    pub slow: bool,
    /// Its disk was lost or rolled back, and it says nothing of that: it must be refused.
    pub damaged: bool,
    /// It was told to replace its disk, if that is empty (`--replace-disk`).
    pub asks_to_replace: bool,
    /// What it durably remembers of disks; `None` while its directory is new.
    pub memory: Option<Memory>,
    /// What is being written in the place of [`memory`](Self::memory), and its revision.
    pub writing: Option<(u64, Memory)>,
    /// A copy of its disk at the end of an earlier life.
    pub copy: Option<(Disk, Memory)>,
}

impl<P: Protocol> Host<P> {
    pub fn new(node: Option<NodeId>, disk: Disk, clock: Clock, random: Random) -> Self {
        Host {
            node,
            proxy: ProxyId(0),
            disk,
            clock,
            random,
            life: None,
            incarnation: 0,
            starts: 0,
            epoch: 0,
            paused_until: 0,
            frozen_until: 0,
            armed: None,
            since_checkpoint: 0,
            lost: false,
            slow: false,
            damaged: false,
            asks_to_replace: false,
            memory: None,
            writing: None,
            copy: None,
        }
    }

    /// Begins a life at a true instant. The replica starts when the node is admitted by the initial `voters`; at once,
    /// where none are given because no disk is ever lost.
    pub fn start(&mut self, now: Nanos, configs: &Configs<P>, voters: Option<NodeSet>) -> Result<(), String> {
        self.clock.restart(&mut self.random);
        self.incarnation = self.starts;
        self.starts += 1;
        self.epoch += 1;
        self.since_checkpoint = 0;
        self.proxy = match self.node {
            Some(node) => ProxyId::of(node),
            // A process that runs a proxy alone draws its id when it starts.
            None => ProxyId(self.random.range(1000..1_000_000)),
        };
        let at = self.instant(now);
        let guard = match (self.node, voters) {
            (Some(node), Some(voters)) if !P::CAPABILITIES.diskless => Some(self.guard(node, voters)?),
            (Some(_) | None, _) => None,
        };
        let config = configs.1.clone();
        let proxy = Running::start(self.proxy.into(), config, Saved::nothing(), at, self.random.u64());
        let runs = guard.as_ref().is_none_or(|guard| guard.admission.may_run());
        self.life = Some(Life {
            guard,
            replica: None,
            proxy,
            inbox: VecDeque::new(),
            unreleased: VecDeque::new(),
            born_at_record: self.disk.written(),
            turning: false,
            held: None,
            sampled: None,
            ending: false,
            budget: 0,
            busy_until: now,
            wake_at: None,
            draining: false,
        });
        if runs { self.begin(now, configs) } else { Ok(()) }
    }

    fn guard(&mut self, node: NodeId, voters: NodeSet) -> Result<Guard, String> {
        let stage = match voters.contains(node) {
            true if self.asks_to_replace => Stage::Replacing,
            true => Stage::New,
            false => Stage::Joining,
        };
        let drawn = u128::from(self.random.u64()) << 64 | u128::from(self.random.u64());
        let memory = self.memory.clone().unwrap_or_else(|| Memory::new(DiskId(drawn), stage));
        let admission = Admission::start(node, memory, self.random.u64(), voters);
        let admission = admission.map_err(|reason| format!("it was refused before: {reason}"))?;
        let (answers, openings, up) = (Vec::new(), Vec::new(), BTreeMap::new());
        Ok(Guard { admission, written: 0, answers, openings, up, greets: false })
    }

    /// Starts the replica of this life from what the disk has.
    pub fn begin(&mut self, now: Nanos, configs: &Configs<P>) -> Result<(), String> {
        let at = self.instant(now);
        let (Some(life), Some(node)) = (&mut self.life, self.node) else { return Ok(()) };
        let saved = match self.disk.open() {
            true => Saved::nothing(),
            false => self
                .disk
                .recover()
                .map_err(|error| format!("an intact record cannot be read back: {error}"))?,
        };
        life.born_at_record = self.disk.written();
        life.replica = Some(Running::start(node.into(), configs.0.clone(), saved, at, self.random.u64()));
        Ok(())
    }

    /// Whether its disk took the place of a lost one.
    pub fn replaces(&self) -> bool {
        self.memory.as_ref().map_or(self.asks_to_replace, |memory| memory.replaces)
    }

    /// What it knows of disks in this life, and what of that is durable.
    pub fn memories(&self) -> Option<(&Memory, &Memory)> {
        let guard = self.life.as_ref()?.guard.as_ref()?;
        Some((guard.admission.memory(), self.memory.as_ref()?))
    }

    /// What its clocks show.
    pub fn instant(&self, now: Nanos) -> Instant {
        self.clock.read(self.incarnation, now)
    }

    /// When its next timer is due, in true time.
    pub fn next_timer(&self) -> Option<Nanos> {
        let life = self.life.as_ref()?;
        let replica = life.replica.as_ref().and_then(|replica| replica.timers.next());
        let next = [replica, life.proxy.timers.next()].into_iter().flatten().min()?;
        Some(self.clock.true_time(self.incarnation, next))
    }

    /// Its proxy, as traces name it.
    pub fn proxy_name(&self) -> ProcessId {
        self.proxy.into()
    }

    /// The replica, while it lives.
    pub fn replica(&self) -> Option<&P::Replica> {
        Some(&self.life.as_ref()?.replica.as_ref()?.machine)
    }
}

/// The clocks of the hosts, of which the first are the nodes.
pub(crate) struct HostClocks<'a, P: Protocol>(pub &'a [Host<P>]);

impl<P: Protocol> Clocks for HostClocks<'_, P> {
    fn true_time(&self, node: NodeId, local: Time) -> u64 {
        let host = &self.0[usize::from(node.get()) - 1];
        host.clock.true_time(host.incarnation, local)
    }

    fn when_past(&self, node: NodeId, latest: u64) -> u64 {
        self.0[usize::from(node.get()) - 1].clock.when_past(latest)
    }
}

impl<P: Protocol> fmt::Display for Host<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{node:?}"),
            None => write!(f, "{}", self.proxy_name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Quality;
    use crate::disk::Speed;
    use crate::network::Latency;
    use crate::scribe::{self, Scribe};

    #[test]
    fn a_process_ends_its_proxys_batch_before_its_replicas() {
        let mut random = Random::new(1);
        let latency = Latency::LogNormal { median: 1 };
        let disk = Disk::new(Speed { write: latency, sync: latency }, random.fork());
        let clock =
            Clock::draw(Quality { drift: 0.0, wall_jumps: false, beyond_bound: false }, 1, &mut random);
        let mut host = Host::<Scribe>::new(NodeId::new(1), disk, clock, random);
        host.start(0, &((), ()), None).unwrap();
        let at = host.instant(0);
        host.life.as_mut().expect("it has just started").end_batch(at);
        assert_eq!(scribe::ended(), ["proxy", "replica"]);
    }
}
