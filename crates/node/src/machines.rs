//! The machines of a node as its loop sees them: the process, the clock it is told, and whether its replica may run.

use std::rc::Rc;

use bytes::Bytes;
use quorate_blocks::state::level;
use quorate_core::{
    FeatureLevel, GroupId, NodeId, Payload, ProcessId, ProxyId, Random, Request, RequestId, Saved, Shortage,
    Snapshot, Status, Time, WireError,
};
use quorate_runtime::{AnyProcess, ConfiguredProtocol, Effects, Input, OwnMessages, Start};

use crate::clock::{self, Clock};
use crate::directory::Directory;
use crate::error::NodeError;
use crate::limits::{LOCAL_ROUNDS, TIMERS_PER_TURN};
use crate::slow::Slow;
use crate::storage;

/// See the file comment.
pub(crate) struct Machines {
    process: Box<dyn AnyProcess>,
    node: Option<NodeId>,
    random: Random,
    /// For what a replica waits that may not run yet, in words.
    waiting: Option<String>,
    slow: Rc<Slow>,
    pub(crate) clock: Rc<Clock>,
    /// Who is in the group, as the two machines say.
    pub(crate) directory: Directory,
    /// Whether that has changed since it was last looked at.
    pub(crate) regrouped: bool,
}

impl Machines {
    /// Starts the proxy of a node, or a proxy alone.
    pub(crate) fn new(
        configured: &dyn ConfiguredProtocol,
        (proxy, node): (ProxyId, Option<NodeId>),
        directory: Directory,
        clock: Clock,
        mut random: Random,
    ) -> Self {
        let (at, own) = (clock.instant(), OwnMessages::Settled);
        let start = Start { proxy, node, at, random: random.fork(), observed: false, own };
        let mut machines = Machines {
            process: configured.start(start),
            node,
            random,
            waiting: None,
            slow: Rc::new(Slow::new(None, Rc::default())),
            clock: Rc::new(clock),
            directory,
            regrouped: true,
        };
        machines.note();
        machines
    }

    /// The replica will start from this, but may not run yet: it waits.
    pub(crate) fn hold(&mut self, saved: Saved<Bytes>, why: String) -> Result<(), NodeError> {
        storage::load(|| self.process.load(saved))??;
        self.waiting = Some(why);
        Ok(())
    }

    /// What the replica waits for before it runs, if it does.
    pub(crate) fn waits(&self) -> Option<&str> {
        self.waiting.as_deref()
    }

    /// Says for what it waits now.
    pub(crate) fn still_waits(&mut self, why: String) {
        if let Some(before) = &mut self.waiting {
            *before = why;
        }
    }

    /// Starts the replica that waited. It reads its snapshot, whose pieces are on disk until now.
    pub(crate) fn begin(&mut self) -> Result<(), NodeError> {
        if self.waiting.take().is_some() {
            let (at, random) = (self.clock.instant(), self.random.fork());
            storage::load(|| self.process.start_replica(at, random))?;
            self.note();
        }
        Ok(())
    }

    /// Tells this log when slots reach their stages, and marks requests from now on.
    pub(crate) fn watch(&mut self, slow: Rc<Slow>) {
        self.process.set_timed(slow.is_on());
        self.slow = slow;
    }

    /// A message from another process; gives its kind. The error says why its bytes are refused.
    pub(crate) fn on_message(
        &mut self,
        from: ProcessId,
        to: ProcessId,
        payload: Bytes,
    ) -> Result<&'static str, WireError> {
        let kind = self.process.take(Input::Frame { from, to, payload })?.kind;
        self.step();
        Ok(kind)
    }

    /// Clients' requests, all of which are at hand.
    pub(crate) fn on_requests(&mut self, requests: impl Iterator<Item = (RequestId, Request)>) {
        let now = self.clock.instant();
        for (id, request) in requests {
            self.process.take(Input::Request(id, request)).expect("a request is no frame");
            self.process.step(now);
        }
        self.note();
    }

    /// The process is going to stop.
    pub(crate) fn drain(&mut self) {
        if self.process.has_replica() {
            self.process.take(Input::Drain).expect("it is no frame");
            self.step();
        }
    }

    /// A client waits until this node shows a slot.
    pub(crate) fn on_awaited(&mut self, slot: u64) {
        self.process.take(Input::Awaited(slot)).expect("it is no frame");
        self.step();
    }

    /// What this node is short of.
    pub(crate) fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.process.set_shortage(shortage);
    }

    /// Fires the timers that are due.
    pub(crate) fn fire(&mut self) {
        let now = clock::now();
        for _ in 0..TIMERS_PER_TURN {
            if self.process.take_due_timer(now).is_none() {
                return;
            }
            self.step();
        }
    }

    /// When the next timer is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.process.deadline()
    }

    /// Lets the messages go that waited for records up to this one.
    pub(crate) fn release(&mut self, durable: u64) {
        self.slow.on_durable(durable, clock::now);
        self.process.release(durable);
    }

    /// Passes messages between the two and ends batches until both are at rest, or for as many rounds as a turn may
    /// take. False if they are not at rest.
    pub(crate) fn settle(&mut self) -> bool {
        let clock = self.clock.clone();
        let at_rest = self.process.settle(LOCAL_ROUNDS, &|| clock.instant());
        self.note();
        at_rest
    }

    /// What they have asked for; the loop drains it.
    pub(crate) fn effects(&mut self) -> &mut Effects {
        self.process.effects()
    }

    /// Records persisted since the start.
    pub(crate) fn persisted(&self) -> u64 {
        self.process.persisted()
    }

    /// Whether [`release`](Self::release) would let something go.
    pub(crate) fn has_released(&self, durable: u64) -> bool {
        self.process.would_release(durable)
    }

    /// Messages that wait for the disk.
    pub(crate) fn held(&self) -> usize {
        self.process.waiting()
    }

    /// What a snapshot is made of, where there is a replica.
    pub(crate) fn save(&self) -> Option<Saved<Payload>> {
        self.process.save()
    }

    /// This node, if it has a replica.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Whether its replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.node().is_some_and(|node| self.status().leader == Some(node))
    }

    /// The groups that its replicas lead; `None` stands for the only one.
    pub(crate) fn led(&self) -> Vec<Option<GroupId>> {
        let statuses = self.group_statuses();
        let leads = |group: &GroupId| self.node.is_some() && statuses[group.index()].leader == self.node;
        let groups = (0..statuses.len()).map(GroupId::at);
        groups.filter(leads).map(|group| (statuses.len() > 1).then_some(group)).collect()
    }

    pub(crate) fn has_replica(&self) -> bool {
        self.process.has_replica()
    }

    /// A read of the replica's state as it is, if there is a replica.
    pub(crate) fn read(&self, command: &Bytes) -> Option<Bytes> {
        self.process.read(command)
    }

    /// The replica's state for a backup, if there is a replica.
    pub(crate) fn image(&self) -> Option<Snapshot> {
        self.process.image()
    }

    /// Whether that has everything that was acknowledged before, as far as the replica can tell alone.
    pub(crate) fn has_everything(&self) -> bool {
        self.process.has_everything(self.clock.instant())
    }

    /// The feature level of the replica's state, if there is a replica.
    pub(crate) fn level(&self) -> Option<FeatureLevel> {
        level::answer(self.read(&level::question())?)
    }

    /// How often users have been changed in the replica's state, if there is a replica.
    pub(crate) fn user_changes(&self) -> Option<u64> {
        level::users_answer(self.read(&level::users_question())?)
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = self.process.status(self.clock.instant()).unwrap_or_else(|| Status {
            role: if self.waiting.is_some() { "waiting" } else { "proxy" },
            leader: None,
            ballot: "-".to_owned(),
            committed: 0,
            applied: 0,
            lease: false,
            reads: "at the replicas",
            peers: Vec::new(),
            samples: Vec::new(),
            facts: Vec::new(),
        });
        status.samples.extend(self.process.proxy_samples());
        status
    }

    /// The last slot that the replica has executed, or the first group's, which has the users. (The status of several
    /// groups has the sum of theirs.)
    pub(crate) fn applied(&self) -> u64 {
        self.group_statuses().first().map_or(0, |status| status.applied)
    }

    /// The state of each group's replica; none where they do not run.
    pub(crate) fn group_statuses(&self) -> Vec<Status> {
        self.process.group_statuses(self.clock.instant())
    }

    /// Acts on the input that was taken, at the present: the clock is read when the input is at hand.
    fn step(&mut self) {
        self.process.step(self.clock.instant());
        self.note();
    }

    /// Passes on what the machines say of the group and of slots.
    fn note(&mut self) {
        let Effects { members, slot_marks, .. } = self.process.effects();
        if !slot_marks.is_empty() {
            self.slow.on_marks(slot_marks, clock::now);
        }
        if let (replicas, proxies) = std::mem::take(members)
            && (!replicas.is_empty() || !proxies.is_empty())
        {
            self.regrouped |= self.directory.learn(replicas, proxies);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quorate_core::{Access, Answered, Failure, Group, NodeSet, Outcome, Settings, Wire};
    use quorate_runtime::protocol;

    use super::*;
    use crate::clock::ClockSource;
    use crate::toy::{Message as Say, Toy, ended};

    fn machines() -> Machines {
        let node = NodeId::new(1).unwrap();
        let directory = Directory::new(Some((node, "a:1".to_owned())), [(node, "a:1".to_owned())].into(), 1);
        let configured = protocol::<Toy>().configure(&Group::of(NodeSet::EMPTY), &mut Settings::default());
        let (who, clock) = ((ProxyId::of(node), Some(node)), Clock::new(ClockSource::None));
        let mut machines = Machines::new(&*configured.unwrap(), who, directory, clock, Random::new(1));
        machines.hold(Saved::nothing(), String::new()).unwrap();
        machines.begin().unwrap();
        machines
    }

    fn ask(machines: &mut Machines, id: u64, command: &'static str) {
        let (from, to) = (ProcessId::Proxy(ProxyId(1 << 40)), ProcessId::Replica(NodeId::new(1).unwrap()));
        let say = Say::Ask { id, command: Bytes::from_static(command.as_bytes()) };
        assert_eq!(machines.on_message(from, to, say.to_bytes()), Ok("Ask"));
        assert!(machines.settle());
    }

    fn answered(machines: &mut Machines) -> Vec<u64> {
        let frames = machines.effects().frames.drain(..).filter(|frame| !frame.own);
        let sent = frames.map(|frame| match Say::from_bytes(frame.payload.into_bytes()).unwrap() {
            Say::Answer { id, .. } | Say::Ask { id, .. } => id,
        });
        sent.collect()
    }

    fn request(machines: &mut Machines, id: u64, command: &'static str, timeout: Duration) {
        let deadline = clock::now() + timeout;
        let command = Bytes::from_static(command.as_bytes());
        let request = Request { stream: 0, command, access: Access::Write, deadline, after: 0 };
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
        assert_eq!((machines.effects().records.len(), machines.persisted(), machines.held()), (2, 2, 3));
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
        assert_eq!(machines.effects().replies, [done(7, Outcome::Done(Bytes::from_static(b"hello")))]);
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
        assert!(machines.effects().replies.is_empty());
        assert!(machines.deadline().is_some());
        let mut machines = self::machines();
        request(&mut machines, 9, "1 never", Duration::ZERO);
        machines.fire();
        let (request, outcome) = (RequestId(9), Outcome::Failed(Failure::TimedOut));
        assert_eq!(machines.effects().replies, [Answered { request, outcome, slot: 0 }]);
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let mut machines = machines();
        let (from, to) = (ProcessId::Proxy(ProxyId(1 << 40)), ProcessId::Replica(NodeId::new(1).unwrap()));
        assert!(machines.on_message(from, to, Bytes::from_static(b"\xff")).is_err());
    }
}
