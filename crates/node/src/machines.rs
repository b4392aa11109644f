//! The two machines of a node, its replica and its proxy: stepped one input at a time, with what they ask for sorted
//! into what stays here and what leaves.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use quorate_core::{
    Answered, Context, Instant, Machine, Mark, Message, NodeId, Outbox, Outgoing, ProcessId, Protocol, Proxy,
    ProxyId, Random, Recipients, Replica, Request, RequestId, Saved, Status, Time, Timers, Wire, WireError,
};

use crate::clock::{self, Clock};
use crate::directory::Directory;
use crate::journal::encode;
use crate::limits::{LOCAL_ROUNDS, TIMERS_PER_TURN};
use crate::slow::Slow;
use crate::storage::Record;

/// A machine with everything a driver keeps for it.
struct Host<M: Machine> {
    me: ProcessId,
    machine: M,
    out: Outbox<M>,
    timers: Timers<M::Timer>,
    /// When its last step began.
    at: Time,
    /// Whether it had an input since its last end of a batch.
    stirred: bool,
    /// Of its records: the barriers that were not passed on yet, and the last one of all.
    barriers: Vec<u64>,
    barrier: u64,
    clock: Rc<Clock>,
}

impl<M: Machine> Host<M> {
    fn new(
        me: ProcessId,
        config: M::Config,
        saved: Saved<M::Record>,
        clock: Rc<Clock>,
        random: &mut Random,
    ) -> Self {
        let mut out = Outbox::new(false);
        let at = clock.instant();
        let mut cx = Context::new(me, at, random, &mut out);
        let machine = M::recover(config, saved, &mut cx);
        let timers = Timers::default();
        let (stirred, barriers, barrier) = (true, Vec::new(), 0);
        let mut host = Host { me, machine, out, timers, at: at.now, stirred, barriers, barrier, clock };
        host.after_step();
        host
    }

    /// One step, at the present: the clock is read when the input is at hand.
    fn step(&mut self, random: &mut Random, act: impl FnOnce(&mut M, &mut Context<'_, M>)) {
        self.step_at(self.clock.instant(), random, act);
    }

    fn step_at(&mut self, now: Instant, random: &mut Random, act: impl FnOnce(&mut M, &mut Context<'_, M>)) {
        act(&mut self.machine, &mut Context::new(self.me, now, random, &mut self.out));
        self.stirred = true;
        self.at = now.now;
        self.after_step();
    }

    fn after_step(&mut self) {
        if self.out.barrier > self.barrier {
            self.barrier = self.out.barrier;
            self.barriers.push(self.barrier);
        }
        for (timer, at) in self.out.timers.drain(..) {
            self.timers.apply(timer, at);
        }
    }

    fn fire(&mut self, now: Time, random: &mut Random) {
        for _ in 0..TIMERS_PER_TURN {
            let Some(timer) = self.timers.pop_due(now) else { return };
            self.step(random, |machine, cx| machine.on_timer(timer, cx));
        }
    }

    fn end_batch(&mut self, random: &mut Random) {
        if self.stirred {
            self.step(random, |machine, cx| machine.on_batch_end(cx));
            self.stirred = false;
        }
    }
}

/// What a replica starts from.
pub(crate) type Start<R> = (NodeId, <R as Machine>::Config, Saved<<R as Machine>::Record>);

/// See the file comment.
pub(crate) struct Machines<P: Protocol> {
    random: Random,
    /// None in a process that runs a proxy alone, and where it waits.
    replica: Option<Host<P::Replica>>,
    /// What the replica will start from, where it may not run yet, and for what it waits, in words.
    waiting: Option<(Start<P::Replica>, String)>,
    proxy: Host<P::Proxy>,
    /// Between the two, or to itself.
    local: VecDeque<(ProcessId, ProcessId, P::Message)>,
    /// The replica's, waiting for the disk; `after` never decreases.
    held: VecDeque<Outgoing<P::Message>>,
    /// The last record known to be durable.
    durable: u64,
    slow: Rc<Slow>,
    /// For others.
    pub(crate) remote: Vec<(ProcessId, Recipients, P::Message)>,
    /// For the log, encoded, in order.
    pub(crate) records: Vec<Record>,
    /// The numbers of those among them that need a state to be saved (`Context::persist_state`).
    pub(crate) barriers: Vec<u64>,
    pub(crate) clock: Rc<Clock>,
    /// Who is in the group, as the two say.
    pub(crate) directory: Directory,
    /// Whether that has changed since it was last looked at.
    pub(crate) regrouped: bool,
    /// For clients.
    pub(crate) replies: Vec<Answered>,
    /// What the proxy says of requests, and when.
    pub(crate) marks: Vec<(Mark, Time)>,
}

impl<P: Protocol> Machines<P> {
    /// Starts both, or the proxy alone.
    pub(crate) fn new(
        me: ProxyId,
        proxy: <P::Proxy as Machine>::Config,
        replica: Option<Start<P::Replica>>,
        directory: Directory,
        clock: Clock,
        mut random: Random,
    ) -> Self {
        let clock = Rc::new(clock);
        let replica = replica
            .map(|(node, config, saved)| Host::new(node.into(), config, saved, clock.clone(), &mut random));
        let proxy = Host::new(me.into(), proxy, Saved::nothing(), clock.clone(), &mut random);
        let mut machines = Machines {
            random,
            replica,
            waiting: None,
            proxy,
            local: VecDeque::new(),
            held: VecDeque::new(),
            durable: 0,
            slow: Rc::new(Slow::new(None)),
            remote: Vec::new(),
            records: Vec::new(),
            barriers: Vec::new(),
            clock,
            directory,
            regrouped: true,
            replies: Vec::new(),
            marks: Vec::new(),
        };
        machines.sort();
        machines
    }

    /// The replica may not run yet: it waits for this.
    pub(crate) fn hold(&mut self, start: Start<P::Replica>, why: String) {
        assert!(self.replica.is_none(), "it runs");
        self.waiting = Some((start, why));
    }

    /// What the replica waits for before it runs, if it does.
    pub(crate) fn waits(&self) -> Option<&str> {
        self.waiting.as_ref().map(|(_, why)| why.as_str())
    }

    /// Says for what it waits now.
    pub(crate) fn still_waits(&mut self, why: String) {
        if let Some((_, before)) = &mut self.waiting {
            *before = why;
        }
    }

    /// Starts the replica that waited.
    pub(crate) fn begin(&mut self) {
        let Some(((node, config, saved), _)) = self.waiting.take() else { return };
        let mut host = Host::new(node.into(), config, saved, self.clock.clone(), &mut self.random);
        host.out.timed = self.slow.is_on();
        self.replica = Some(host);
        self.sort();
    }

    /// Tells this log when slots reach their stages, and marks requests from now on.
    pub(crate) fn watch(&mut self, slow: Rc<Slow>) {
        self.proxy.out.timed = slow.is_on();
        if let Some(replica) = &mut self.replica {
            replica.out.timed = slow.is_on();
        }
        self.slow = slow;
    }

    /// A message from another process. The error says why its bytes are refused.
    pub(crate) fn on_message(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        payload: Bytes,
    ) -> Result<&'static str, WireError> {
        let message = P::Message::from_bytes(payload)?;
        let kind = message.kind();
        self.deliver(from, to, message);
        self.sort();
        Ok(kind)
    }

    /// Clients' requests, all of which are at hand.
    pub(crate) fn on_requests(&mut self, requests: impl Iterator<Item = (RequestId, Request)>) {
        let now = self.clock.instant();
        for (id, request) in requests {
            self.proxy.step_at(now, &mut self.random, |proxy, cx| proxy.on_request(id, request, cx));
        }
        self.sort();
    }

    /// The process is going to stop.
    pub(crate) fn drain(&mut self) {
        if let Some(replica) = &mut self.replica {
            replica.step(&mut self.random, |replica, cx| replica.on_drain(cx));
            self.sort();
        }
    }

    /// Fires the timers that are due.
    pub(crate) fn fire(&mut self) {
        let now = clock::now();
        if let Some(replica) = &mut self.replica {
            replica.fire(now, &mut self.random);
        }
        self.proxy.fire(now, &mut self.random);
        self.sort();
    }

    /// When the next timer is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let replica = self.replica.as_ref().and_then(|replica| replica.timers.next());
        [replica, self.proxy.timers.next()].into_iter().flatten().min()
    }

    /// Lets the messages go that waited for records up to this one.
    pub(crate) fn release(&mut self, durable: u64) {
        self.durable = durable;
        self.slow.on_durable(durable, clock::now);
        while self.held.front().is_some_and(|message| message.after <= durable) {
            let Some(message) = self.held.pop_front() else { return };
            self.route(true, message);
        }
    }

    /// Passes messages between the two and ends batches until both are at rest, or for as many rounds as a turn may
    /// take; the proxy first, because its requests are the replica's input. False if they are not at rest.
    pub(crate) fn settle(&mut self) -> bool {
        for _ in 0..LOCAL_ROUNDS {
            while let Some((from, to, message)) = self.local.pop_front() {
                self.deliver(from, to, message);
            }
            self.sort();
            if self.local.is_empty() {
                self.proxy.end_batch(&mut self.random);
                self.sort();
            }
            if self.local.is_empty() {
                if let Some(replica) = &mut self.replica {
                    replica.end_batch(&mut self.random);
                }
                self.sort();
            }
            let stirred = self.proxy.stirred || self.replica.as_ref().is_some_and(|replica| replica.stirred);
            if self.local.is_empty() && !stirred {
                return true;
            }
        }
        false
    }

    /// Records persisted since the start.
    pub(crate) fn persisted(&self) -> u64 {
        self.replica.as_ref().map_or(0, |replica| replica.out.persisted)
    }

    /// Whether [`release`](Self::release) would let something go.
    pub(crate) fn has_released(&self, durable: u64) -> bool {
        self.held.front().is_some_and(|message| message.after <= durable)
    }

    /// Messages that wait for the disk.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// What a snapshot is made of, where there is a replica.
    pub(crate) fn save(&self) -> Option<Saved<<P::Replica as Machine>::Record>> {
        self.replica.as_ref().map(|replica| replica.machine.save())
    }

    /// This node, if it has a replica.
    pub(crate) fn node(&self) -> Option<NodeId> {
        let waiting = self.waiting.as_ref().map(|((node, ..), _)| *node);
        self.replica.as_ref().and_then(|replica| replica.me.replica()).or(waiting)
    }

    /// Whether its replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.node().is_some_and(|node| self.status().leader == Some(node))
    }

    pub(crate) fn has_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// A read of the replica's state as it is, if there is a replica.
    pub(crate) fn read(&self, command: &Bytes) -> Option<Bytes> {
        self.replica.as_ref().map(|replica| replica.machine.read(command))
    }

    pub(crate) fn status(&self) -> Status {
        match &self.replica {
            Some(replica) => {
                let mut status = replica.machine.status(self.clock.instant());
                status.samples.extend(self.proxy.machine.samples());
                status
            }
            None => Status {
                role: if self.waiting.is_some() { "waiting" } else { "proxy" },
                leader: None,
                ballot: "-".to_owned(),
                committed: 0,
                applied: 0,
                lease: false,
                reads: "at the replicas",
                peers: Vec::new(),
                samples: self.proxy.machine.samples(),
                facts: Vec::new(),
            },
        }
    }

    fn deliver(&mut self, from: ProcessId, to: ProcessId, message: P::Message) {
        match to {
            ProcessId::Replica(_) => {
                if let Some(replica) = &mut self.replica {
                    replica.step(&mut self.random, |replica, cx| replica.on_message(from, message, cx));
                }
            }
            ProcessId::Proxy(_) => {
                self.proxy.step(&mut self.random, |proxy, cx| proxy.on_message(from, message, cx));
            }
        }
    }

    /// Sorts what the machines asked for.
    fn sort(&mut self) {
        if let Some(replica) = &mut self.replica {
            if !replica.out.marks.is_empty() {
                let Host { out, at, .. } = replica;
                self.slow.on_marks(&mut out.marks, *at, out.persisted, clock::now);
            }
            self.records.extend(replica.out.records.drain(..).map(|record| encode(&record)));
            self.barriers.append(&mut replica.barriers);
            assert!(replica.out.replies.is_empty(), "only proxies answer clients");
            let mut messages = std::mem::take(&mut replica.out.messages);
            for message in messages.drain(..) {
                if message.after <= self.durable {
                    self.route(true, message);
                } else {
                    self.held.push_back(message);
                }
            }
            if let Some(replica) = &mut self.replica {
                replica.out.messages = messages;
            }
        }
        let mut messages = std::mem::take(&mut self.proxy.out.messages);
        for message in messages.drain(..) {
            // A proxy keeps nothing on disk.
            self.route(false, message);
        }
        self.proxy.out.messages = messages;
        let replica = self.replica.as_mut().and_then(|replica| replica.out.members.take());
        let proxy = self.proxy.out.members.take();
        if replica.is_some() || proxy.is_some() {
            self.regrouped |= self.directory.learn(replica, proxy);
        }
        self.replies.append(&mut self.proxy.out.replies);
        let at = self.proxy.at;
        self.marks.extend(self.proxy.out.marks.drain(..).map(|mark| (mark, at)));
    }

    fn route(&mut self, from_replica: bool, Outgoing { to, message, .. }: Outgoing<P::Message>) {
        let node = self.replica.as_ref().and_then(|replica| replica.me.replica());
        let from = if from_replica { node.map(ProcessId::Replica) } else { None };
        let from = from.unwrap_or(self.proxy.me);
        let (here, there) = match to {
            Recipients::One(process) if self.is_here(process) => (Some(process), None),
            Recipients::One(_) => (None, Some(to)),
            Recipients::Replicas(nodes) => match node.filter(|node| nodes.contains(*node)) {
                Some(node) => {
                    let others = nodes.without(node);
                    let there = (!others.is_empty()).then_some(Recipients::Replicas(others));
                    (Some(ProcessId::Replica(node)), there)
                }
                None => (None, Some(to)),
            },
        };
        match (here, there) {
            (Some(here), Some(there)) => {
                self.local.push_back((from, here, message.clone()));
                self.remote.push((from, there, message));
            }
            (Some(here), None) => self.local.push_back((from, here, message)),
            (None, Some(there)) => self.remote.push((from, there, message)),
            (None, None) => {}
        }
    }

    fn is_here(&self, process: ProcessId) -> bool {
        process == self.proxy.me || self.replica.as_ref().is_some_and(|replica| process == replica.me)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::{Access, Failure, Outcome};

    use super::*;
    use crate::clock::ClockSource;
    use crate::toy::{Message as Say, Toy, ended};

    fn machines() -> Machines<Toy> {
        let node = NodeId::new(1).unwrap();
        let directory = Directory::new(Some((node, "a:1".to_owned())), [(node, "a:1".to_owned())].into());
        Machines::new(
            ProxyId::of(node),
            (),
            Some((node, (), Saved::nothing())),
            directory,
            Clock::new(ClockSource::None),
            Random::new(1),
        )
    }

    fn ask(machines: &mut Machines<Toy>, id: u64, command: &'static str) {
        let (from, to) = (ProcessId::Proxy(ProxyId(1 << 40)), ProcessId::Replica(NodeId::new(1).unwrap()));
        let say = Say::Ask { id, command: Bytes::from_static(command.as_bytes()) };
        assert_eq!(machines.on_message(from, to, say.to_bytes()), Ok("Ask"));
        assert!(machines.settle());
    }

    fn answered(machines: &mut Machines<Toy>) -> Vec<u64> {
        let id = |say| match say {
            Say::Answer { id, .. } | Say::Ask { id, .. } => id,
        };
        machines.remote.drain(..).map(|(_, _, say)| id(say)).collect()
    }

    fn request(machines: &mut Machines<Toy>, id: u64, command: &'static str, timeout: Duration) {
        let deadline = clock::now() + timeout;
        let command = Bytes::from_static(command.as_bytes());
        let request = Request { stream: 0, command, access: Access::Write, deadline };
        machines.on_requests([(RequestId(id), request)].into_iter());
        assert!(machines.settle());
    }

    #[test]
    fn a_promise_leaves_only_when_what_it_promises_is_durable_and_in_order() {
        let mut machines = machines();
        ask(&mut machines, 1, "1 say before");
        assert_eq!(answered(&mut machines), [1], "nothing is promised yet");
        ask(&mut machines, 2, "1 keep a");
        ask(&mut machines, 3, "1 say after");
        ask(&mut machines, 4, "1 keep b");
        assert_eq!((machines.records.len(), machines.persisted(), machines.held()), (2, 2, 3));
        assert_eq!(answered(&mut machines), [0; 0]);
        machines.release(0);
        assert_eq!(answered(&mut machines), [0; 0]);
        machines.release(1);
        assert_eq!(answered(&mut machines), [2, 3]);
        machines.release(2);
        assert_eq!(answered(&mut machines), [4]);
        ask(&mut machines, 5, "1 say at once");
        assert_eq!(answered(&mut machines), [5], "all that it promises is durable");
    }

    #[test]
    fn what_the_two_say_to_each_other_stays_here() {
        let mut machines = machines();
        request(&mut machines, 7, "1 say hello", Duration::MAX);
        let done = |request, outcome| Answered { request: RequestId(request), outcome, slot: 0 };
        assert_eq!(machines.replies, [done(7, Outcome::Done(Bytes::from_static(b"hello")))]);
        request(&mut machines, 8, "2 say hello", Duration::MAX);
        assert_eq!(answered(&mut machines), [8], "another node's replica is not here");
    }

    #[test]
    fn the_proxys_batch_ends_before_the_replicas() {
        let mut machines = machines();
        assert!(machines.settle());
        ended();
        let (from, to) = (ProcessId::Proxy(ProxyId(1 << 40)), ProcessId::Replica(NodeId::new(1).unwrap()));
        let say = Say::Ask { id: 1, command: Bytes::from_static(b"1 say hello") };
        assert_eq!(machines.on_message(from, to, say.to_bytes()), Ok("Ask"));
        request(&mut machines, 7, "1 never", Duration::MAX);
        assert_eq!(ended(), ["proxy", "replica"]);
    }

    #[test]
    fn a_timer_fires_when_it_is_due_and_not_before() {
        let mut machines = machines();
        assert_eq!(machines.deadline(), None);
        request(&mut machines, 7, "1 never", Duration::from_secs(3600));
        machines.fire();
        assert!(machines.replies.is_empty() && machines.deadline().is_some());
        let mut machines = self::machines();
        request(&mut machines, 9, "1 never", Duration::ZERO);
        machines.fire();
        let (request, outcome) = (RequestId(9), Outcome::Failed(Failure::TimedOut));
        assert_eq!(machines.replies, [Answered { request, outcome, slot: 0 }]);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let mut machines = machines();
        let (from, to) = (ProcessId::Proxy(ProxyId(1 << 40)), ProcessId::Replica(NodeId::new(1).unwrap()));
        assert!(machines.on_message(from, to, Bytes::from_static(b"\xff")).is_err());
    }
}
