//! A process of one protocol: a replica and the proxy of its node, or a proxy alone.

use std::collections::VecDeque;
use std::fmt::Write;
use std::mem;

use bytes::Bytes;
use quorate_core::{
    Configs, GroupId, Instant, Machine, Message, NodeId, NodeSet, Outgoing, Payload, ProcessId, Protocol,
    Proxy, Random, Recipients, Replica, Request, RequestId, Salvaged, Sample, Saved, Shortage, Snapshot,
    Status, TextDigest, Time, Timers, Wakeup, Wire, WireError,
};

use crate::machine_runner::MachineRunner;
use crate::process::{
    AnyProcess, Decoded, Effects, Encoding, GroupProcess, Input, OutgoingFrame, OwnMessages, RecordError,
    SetTimer, Start, StateDigests, Taken,
};
use crate::release_gate::ReleaseGate;

type Record<P> = <<P as Protocol>::Replica as Machine>::Record;

/// See the file comment, and [`AnyProcess`] for what it does.
pub struct ProcessRunner<P: Protocol> {
    configs: Configs<P>,
    node: Option<NodeId>,
    own_messages: OwnMessages,
    observed: bool,
    timed: bool,
    proxy: MachineRunner<P::Proxy>,
    replica: Option<MachineRunner<P::Replica>>,
    loaded: Option<Saved<Record<P>>>,
    gate: ReleaseGate<P::Message>,
    /// Sender, receiver and message, between the two machines or to one itself.
    own: VecDeque<(ProcessId, ProcessId, P::Message)>,
    taken: Option<TypedInput<P>>,
    effects: Effects,
}

/// An input that waits for its step.
enum TypedInput<P: Protocol> {
    Message { from: ProcessId, to: ProcessId, message: P::Message },
    Request(RequestId, Request),
    ReplicaTimer(<P::Replica as Machine>::Timer),
    ProxyTimer(<P::Proxy as Machine>::Timer),
    Drain,
    Awaited(u64),
}

impl<P: Protocol> ProcessRunner<P> {
    /// Starts the proxy; the replica starts when [`start_replica`](AnyProcess::start_replica) says so.
    pub fn start(configs: Configs<P>, start: Start) -> Self {
        let Start { proxy, node, at, random, observed, own: own_messages } = start;
        let config = configs.1.clone();
        let proxy = MachineRunner::start(proxy.into(), config, Saved::nothing(), at, random, observed);
        ProcessRunner {
            configs,
            node,
            own_messages,
            observed,
            timed: false,
            proxy,
            replica: None,
            loaded: None,
            gate: ReleaseGate::default(),
            own: VecDeque::new(),
            taken: None,
            effects: Effects::default(),
        }
    }

    fn wait_for_step(&mut self, input: TypedInput<P>) -> Taken {
        assert!(self.taken.is_none(), "an input is waiting for its step");
        let taken = self.describe(&input);
        self.taken = Some(input);
        taken
    }

    fn describe(&self, input: &TypedInput<P>) -> Taken {
        let replica = self.node.map_or(self.proxy.me, ProcessId::Replica);
        let (to, from, kind) = match input {
            TypedInput::Message { from, to, message } => (*to, Some(*from), message.kind()),
            TypedInput::Request(..) => (self.proxy.me, None, "request"),
            TypedInput::ReplicaTimer(_) => (replica, None, "timer"),
            TypedInput::ProxyTimer(_) => (self.proxy.me, None, "timer"),
            TypedInput::Drain => (replica, None, "drain"),
            TypedInput::Awaited(_) => (replica, None, "awaited"),
        };
        Taken { to, from, kind }
    }

    fn act(&mut self, input: TypedInput<P>, at: Instant) {
        let ProcessRunner { replica, proxy, .. } = self;
        match (input, replica) {
            (TypedInput::Message { from, to: ProcessId::Replica(_), message }, Some(replica)) => {
                replica.step(at, |machine, cx| machine.on_message(from, message, cx));
            }
            (TypedInput::Message { from, to: ProcessId::Proxy(_), message }, _) => {
                proxy.step(at, |machine, cx| machine.on_message(from, message, cx));
            }
            (TypedInput::Request(id, request), _) => {
                proxy.step(at, |machine, cx| machine.on_request(id, request, cx));
            }
            (TypedInput::ReplicaTimer(timer), Some(replica)) => {
                replica.step(at, |machine, cx| machine.on_timer(timer, cx));
            }
            (TypedInput::ProxyTimer(timer), _) => {
                proxy.step(at, |machine, cx| machine.on_timer(timer, cx));
            }
            (TypedInput::Drain, Some(replica)) => replica.step(at, |machine, cx| machine.on_drain(cx)),
            (TypedInput::Awaited(slot), Some(replica)) => {
                replica.step(at, |machine, cx| machine.on_awaited(slot, cx));
            }
            // The replica has not started: a message to it is as good as lost.
            (
                TypedInput::Message { to: ProcessId::Replica(_), .. }
                | TypedInput::Drain
                | TypedInput::Awaited(_),
                None,
            ) => {}
            (TypedInput::ReplicaTimer(_), None) => unreachable!("a timer is taken of a replica that runs"),
        }
        self.gather_marks();
    }

    /// Takes marks out of the outboxes: after each step, because they have its time.
    fn gather_marks(&mut self) {
        if !self.timed {
            return;
        }
        if let Some(replica) = &mut self.replica
            && !replica.out.marks.is_empty()
        {
            let (at, out) = (replica.last_step(), &mut replica.out);
            let marks = out.marks.drain(..).map(|mark| (GroupId::FIRST, mark, at, out.persisted));
            self.effects.slot_marks.extend(marks);
        }
        let (at, out) = (self.proxy.last_step(), &mut self.proxy.out);
        if !out.marks.is_empty() {
            self.effects.request_marks.extend(out.marks.drain(..).map(|mark| (GroupId::FIRST, mark, at)));
        }
    }

    /// Takes the rest but messages out of the outboxes.
    fn gather(&mut self) {
        let Effects { records, barriers, replies, facts, members, .. } = &mut self.effects;
        if let Some(replica) = &mut self.replica {
            barriers.extend(replica.take_barriers());
            let out = &mut replica.out;
            records.extend(out.records.drain(..).map(|record| Payload::of(&record)));
            facts.extend(out.facts.drain(..).map(|fact| (GroupId::FIRST, fact)));
            members.0.extend(out.members.take().map(|said| (GroupId::FIRST, said)));
            assert!(out.replies.is_empty(), "only proxies answer clients");
        }
        let out = &mut self.proxy.out;
        replies.append(&mut out.replies);
        members.1.extend(out.members.take().map(|said| (GroupId::FIRST, said)));
        out.facts.clear();
    }

    /// Moves messages that may leave out of the outboxes and the gate: the proxy's, those that have waited, new ones.
    fn release_messages(&mut self) {
        let mut messages = mem::take(&mut self.proxy.out.messages);
        // A proxy keeps nothing on disk.
        messages.drain(..).for_each(|message| self.route(self.proxy.me, message));
        self.proxy.out.messages = messages;
        let Some(replica) = &mut self.replica else { return };
        let me = replica.me;
        let mut messages = mem::take(&mut replica.out.messages);
        while let Some(message) = self.gate.next() {
            self.route(me, message);
        }
        for message in messages.drain(..) {
            if let Some(message) = self.gate.pass(message) {
                self.route(me, message);
            }
        }
        if let Some(replica) = &mut self.replica {
            replica.out.messages = messages;
        }
    }

    fn route(&mut self, from: ProcessId, Outgoing { to, message, .. }: Outgoing<P::Message>) {
        let (own, others) = match (to, self.node) {
            _ if self.own_messages == OwnMessages::AsFrames => (None, to),
            (Recipients::One(process), _) if self.is_own(process) => {
                (Some(process), Recipients::Replicas(NodeSet::EMPTY))
            }
            (Recipients::Replicas(nodes), Some(node)) if nodes.contains(node) => {
                (Some(node.into()), Recipients::Replicas(nodes.without(node)))
            }
            _ => (None, to),
        };
        let (announced, kind) = (own.is_some() && self.own_messages == OwnMessages::AsInput, message.kind());
        let payload = match others {
            Recipients::Replicas(NodeSet::EMPTY) => announced.then(|| Payload::Whole(Bytes::new())),
            _ => Some(Payload::of(&message)),
        };
        if let Some(payload) = payload {
            let (binds, arrival, class) = (message.binds(), message.arrival(), message.class());
            let (group, to, own) = (GroupId::FIRST, others, announced);
            let frame = OutgoingFrame { from, group, to, own, kind, binds, arrival, class, payload };
            self.effects.frames.push(frame);
        }
        if let Some(own) = own {
            self.own.push_back((from, own, message));
        }
    }

    fn is_own(&self, process: ProcessId) -> bool {
        process == self.proxy.me || process.replica().is_some_and(|node| Some(node) == self.node)
    }

    fn decode_saved(saved: Saved<Bytes>) -> Result<Saved<Record<P>>, RecordError> {
        let Saved { restarted, snapshot, records } = saved;
        let decode = |(index, bytes)| Wire::from_bytes(bytes).map_err(|source| RecordError { index, source });
        let records = records.into_iter().enumerate().map(decode).collect::<Result<_, _>>()?;
        Ok(Saved { restarted, snapshot, records })
    }
}

impl<P: Protocol> AnyProcess for ProcessRunner<P> {
    fn take(&mut self, input: Input) -> Result<Taken, WireError> {
        let input = match input {
            Input::Frame { from, to, payload } => {
                TypedInput::Message { from, to, message: P::Message::from_bytes(payload)? }
            }
            Input::Own => {
                let (from, to, message) = self.own.pop_front().expect("a frame announced it");
                TypedInput::Message { from, to, message }
            }
            Input::Request(id, request) => TypedInput::Request(id, request),
            Input::Drain => TypedInput::Drain,
            Input::Awaited(slot) => TypedInput::Awaited(slot),
        };
        Ok(self.wait_for_step(input))
    }

    fn take_due_timer(&mut self, now: Time) -> Option<Taken> {
        let replica = self.replica.as_mut().and_then(|replica| replica.timers.pop_due(now));
        let timer = match replica {
            Some(timer) => TypedInput::ReplicaTimer(timer),
            None => TypedInput::ProxyTimer(self.proxy.timers.pop_due(now)?),
        };
        Some(self.wait_for_step(timer))
    }

    fn step(&mut self, at: Instant) {
        let input = self.taken.take().expect("an input was taken");
        self.act(input, at);
    }

    fn end_batch(&mut self, at: Instant) {
        self.proxy.end_batch(at);
        if let Some(replica) = &mut self.replica {
            replica.end_batch(at);
        }
        self.gather_marks();
    }

    fn release(&mut self, durable: u64) {
        self.gate.set_durable(durable);
        self.release_messages();
    }

    fn settle(&mut self, rounds: usize, clock: &dyn Fn() -> Instant) -> bool {
        for _ in 0..rounds {
            self.release_messages();
            while let Some((from, to, message)) = self.own.pop_front() {
                self.act(TypedInput::Message { from, to, message }, clock());
            }
            self.release_messages();
            if self.own.is_empty() {
                self.proxy.end_batch(clock());
                self.gather_marks();
                self.release_messages();
            }
            if self.own.is_empty()
                && let Some(replica) = &mut self.replica
            {
                replica.end_batch(clock());
                self.gather_marks();
                self.release_messages();
            }
            let replica_rests = self.replica.as_ref().is_none_or(|replica| !replica.has_open_batch());
            if self.own.is_empty() && !self.proxy.has_open_batch() && replica_rests {
                return true;
            }
        }
        false
    }

    fn load(&mut self, saved: Saved<Bytes>) -> Result<(), RecordError> {
        self.loaded = Some(Self::decode_saved(saved)?);
        Ok(())
    }

    fn start_replica(&mut self, at: Instant, random: Random) {
        assert!(self.replica.is_none(), "the replica runs");
        let saved = self.loaded.take().expect("the driver has loaded what the replica starts from");
        let me = self.node.expect("a process with a replica has a node's id").into();
        let mut replica = MachineRunner::start(me, self.configs.0.clone(), saved, at, random, self.observed);
        replica.out.timed = self.timed;
        self.replica = Some(replica);
    }

    fn has_replica(&self) -> bool {
        self.replica.is_some()
    }

    fn save(&self) -> Option<Saved<Payload>> {
        let Saved { restarted, snapshot, records } = self.replica.as_ref()?.machine.save();
        Some(Saved { restarted, snapshot, records: records.iter().map(Payload::of).collect() })
    }

    fn effects(&mut self) -> &mut Effects {
        self.gather();
        &mut self.effects
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        if let Some(replica) = &mut self.replica {
            replica.machine.set_shortage(shortage);
        }
    }

    fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
        self.proxy.out.timed = timed;
        if let Some(replica) = &mut self.replica {
            replica.out.timed = timed;
        }
    }

    fn groups(&self) -> Vec<&dyn GroupProcess> {
        vec![self]
    }

    fn into_one_group(self: Box<Self>) -> Option<Box<dyn GroupProcess>> {
        Some(self)
    }

    fn deadline(&self) -> Option<Time> {
        let replica = self.replica.as_ref().and_then(|replica| replica.timers.next());
        [replica, self.proxy.timers.next()].into_iter().flatten().min()
    }

    fn persisted(&self) -> u64 {
        self.replica.as_ref().map_or(0, |replica| replica.out.persisted)
    }

    fn waiting(&self) -> usize {
        self.gate.waiting().len()
    }

    fn would_release(&self, durable: u64) -> bool {
        self.gate.would_release(durable)
    }

    fn status(&self, at: Instant) -> Option<Status> {
        self.replica.as_ref().map(|replica| replica.machine.status(at))
    }

    fn proxy_samples(&self) -> Vec<Sample> {
        self.proxy.machine.samples()
    }

    fn read(&self, command: &Bytes) -> Option<Bytes> {
        self.replica.as_ref().map(|replica| replica.machine.read(command))
    }

    fn image(&self) -> Option<Snapshot> {
        self.replica.as_ref().map(|replica| replica.machine.image())
    }

    fn has_everything(&self, at: Instant) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.machine.has_everything(at))
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.machine.would_answer(command, at))
    }

    fn taken_request(&self) -> Option<(RequestId, &Request)> {
        match &self.taken {
            Some(TypedInput::Request(id, request)) => Some((*id, request)),
            _ => None,
        }
    }

    fn describe_taken(&self) -> String {
        match &self.taken {
            None => "nothing".to_owned(),
            Some(TypedInput::Message { message, .. }) => format!("{message:?}"),
            Some(TypedInput::Request(id, request)) => format!("{:x} {request:?}", id.0),
            Some(TypedInput::ReplicaTimer(timer)) => format!("{timer:?}"),
            Some(TypedInput::ProxyTimer(timer)) => format!("{timer:?}"),
            Some(TypedInput::Drain) => "drain".to_owned(),
            Some(TypedInput::Awaited(slot)) => format!("slot {slot} is awaited"),
        }
    }

    fn decode(&self, what: Encoding, bytes: Bytes) -> Result<Box<dyn Decoded>, WireError> {
        Ok(match what {
            Encoding::Message => Box::new(P::Message::from_bytes(bytes)?),
            Encoding::Record => Box::new(Record::<P>::from_bytes(bytes)?),
        })
    }
}

impl<P: Protocol> GroupProcess for ProcessRunner<P> {
    fn take_timer(&mut self, of: ProcessId, place: usize) -> Taken {
        let timer = match (of, &mut self.replica) {
            (ProcessId::Proxy(_), _) => TypedInput::ProxyTimer(take_timer(&mut self.proxy.timers, place)),
            (ProcessId::Replica(_), Some(replica)) => {
                TypedInput::ReplicaTimer(take_timer(&mut replica.timers, place))
            }
            (ProcessId::Replica(_), None) => panic!("a replica that does not run has no timers"),
        };
        self.wait_for_step(timer)
    }

    fn keep_timers(&mut self, keep: fn(Wakeup) -> bool) {
        let Some(replica) = &mut self.replica else { return };
        let set: Vec<_> = replica.timers.iter().map(|(timer, _)| timer).collect();
        for timer in set.into_iter().filter(|timer| !keep(P::Replica::wakeup(*timer))) {
            replica.timers.apply(timer, None);
        }
    }

    fn reseed(&mut self, random: Random) {
        if let Some(replica) = &mut self.replica {
            replica.reseed(random);
        }
    }

    fn timers(&self, of: ProcessId) -> Vec<SetTimer> {
        match (of, &self.replica) {
            (ProcessId::Proxy(_), _) => set_timers(&self.proxy),
            (ProcessId::Replica(_), Some(replica)) => set_timers(replica),
            (ProcessId::Replica(_), None) => Vec::new(),
        }
    }

    fn digests(&self) -> Option<StateDigests> {
        let MachineRunner { machine, timers, .. } = self.replica.as_ref()?;
        let mut digest = TextDigest::default();
        write!(digest, "{machine:?}{:?}{:?}", machine.fingerprint(), self.gate.waiting()).expect("no error");
        for (timer, at) in timers.iter() {
            write!(digest, "{timer:?}{at:?}").expect("no error");
        }
        let alike = digest.get();
        write!(digest, "{:?}", machine.marginal()).expect("no error");
        Some(StateDigests { exact: digest.get(), alike })
    }

    fn salvage(&self) -> Option<Salvaged> {
        Some(self.replica.as_ref()?.machine.salvage())
    }

    fn fingerprint(&self) -> Option<(u64, u64)> {
        self.replica.as_ref().map(|replica| replica.machine.fingerprint())
    }
}

fn set_timers<M: Machine>(runner: &MachineRunner<M>) -> Vec<SetTimer> {
    let set = |(timer, at)| SetTimer { name: format!("{timer:?}"), wakeup: M::wakeup(timer), at };
    runner.timers.iter().map(set).collect()
}

/// Takes the timer at a place of those that are set.
fn take_timer<T: Copy + Ord>(timers: &mut Timers<T>, place: usize) -> T {
    let (timer, _) = timers.iter().nth(place).expect("a timer that is set");
    timers.apply(timer, None);
    timer
}
