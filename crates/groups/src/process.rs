//! The replicas and proxies of several groups as one process.

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Decoder, GroupId, GroupRequest, Instant, Manage, Managed, NodeId, Outcome, Payload,
    ProxyId, Random, Request, RequestId, Sample, Saved, Shortage, Snapshot, Status, Time, Wire, WireError,
    digest, mutation,
};
use quorate_runtime::{
    AnyProcess, ConfiguredProtocol, Decoded, Effects, Encoding, GroupProcess, Input, RecordError, Start,
    Taken,
};
use quorate_store::{CommandError, Partition, Reply};

use super::image::{GroupsImage, divide};
use super::records::RecordOrder;
use super::status;

/// See the [module](super).
struct GroupsProcess {
    partition: Arc<Partition>,
    node: Option<NodeId>,
    proxy: ProxyId,
    groups: Vec<Box<dyn AnyProcess>>,
    records: RecordOrder,
    /// Whose the messages of this process to itself are that wait to be taken.
    own: VecDeque<GroupId>,
    taken: Option<TakenInput>,
    effects: Effects,
}

/// An input that waits for its step.
enum TakenInput {
    /// These groups have taken it: one, or all.
    Of(Range<usize>),
    /// A request that is no one group's, and the reply.
    Refused(RequestId, Request, Bytes),
}

/// Groups with the configurations of their machines.
pub(super) struct ConfiguredGroups {
    pub(super) partition: Arc<Partition>,
    pub(super) groups: Vec<Arc<dyn ConfiguredProtocol>>,
}

impl ConfiguredProtocol for ConfiguredGroups {
    fn group_of(&self, command: &Bytes) -> Option<GroupId> {
        self.partition.group_of_encoded(command)
    }

    fn start(&self, start: Start) -> Box<dyn AnyProcess> {
        let Start { proxy, node, at, mut random, observed, own } = start;
        let start = |group: &Arc<dyn ConfiguredProtocol>| {
            group.start(Start { proxy, node, at, random: random.fork(), observed, own })
        };
        Box::new(GroupsProcess {
            partition: self.partition.clone(),
            node,
            proxy,
            groups: self.groups.iter().map(start).collect(),
            records: RecordOrder::new(self.groups.len()),
            own: VecDeque::new(),
            taken: None,
            effects: Effects::default(),
        })
    }

    /// Every group begins with all of the state: what is not its own is never asked of it.
    fn found(&self, state: Snapshot) -> Saved<Payload> {
        join(self.groups.iter().map(|group| group.found(state.clone())).collect())
    }
}

/// What operators cannot ask of groups yet.
const NO_ROSTERS: &[u8] = b"the rosters of several groups (--groups) cannot be changed yet";
const NO_GROUP: &[u8] = b"the request names none of the groups (--groups)";

impl GroupsProcess {
    fn of(&self, group: GroupId) -> &dyn AnyProcess {
        &*self.groups[group.index()]
    }

    /// Whose a message or record is, and its encoding.
    fn of_group(&self, bytes: Bytes) -> Result<(GroupId, Bytes), WireError> {
        let mut input = Decoder::new(bytes);
        match GroupId::decode(&mut input)? {
            group if group.index() < self.groups.len() => Ok((group, input.rest())),
            group => Err(WireError::Value { what: "group", found: group.get().into() }),
        }
    }

    /// Whose a request is, or the reply to one that is no one group's. What is asked of a group takes the place of a
    /// request that names it; an operator's must name one.
    fn route(&self, request: &mut Request) -> Result<GroupId, Bytes> {
        if request.access != Access::Manage {
            let (group, command) = self.partition.route(&request.command).ok_or_else(several_groups)?;
            request.command = command;
            return Ok(group);
        }
        let refused = |why| Err(Managed::Refused(Bytes::from_static(why)).to_bytes());
        match GroupRequest::from_bytes(request.command.clone()) {
            Ok(GroupRequest {
                asked: Manage::Roster(_) | Manage::AutoRoster(_) | Manage::ShowRoster,
                ..
            }) => refused(NO_ROSTERS),
            Ok(GroupRequest { group, asked: manage }) if group.index() < self.groups.len() => {
                request.command = manage.to_bytes();
                Ok(group)
            }
            Ok(_) | Err(_) => refused(NO_GROUP),
        }
    }

    /// Moves what the groups ask for to the effects of the process.
    fn gather(&mut self) {
        let GroupsProcess { groups, records: order, own: owners, effects: all, .. } = self;
        for (index, process) in groups.iter_mut().enumerate() {
            let group = GroupId::at(index);
            let Effects { records, barriers, frames, replies, facts, members, request_marks, slot_marks } =
                process.effects();
            let (others, own) = (order.total(), order.appended(group));
            all.barriers.extend(barriers.drain(..).map(|barrier| others + barrier - own));
            for record in records.drain(..) {
                order.append(group);
                all.records.push(record.behind(header(group)));
            }
            for mut frame in frames.drain(..) {
                owners.extend(frame.own.then_some(group));
                (frame.group, frame.payload) = (group, frame.payload.behind(header(group)));
                all.frames.push(frame);
            }
            all.replies.append(replies);
            all.facts.extend(facts.drain(..).map(|(_, fact)| (group, fact)));
            let said_by = |(_, said)| (group, said);
            all.members.0.extend(std::mem::take(&mut members.0).into_iter().map(said_by));
            all.members.1.extend(std::mem::take(&mut members.1).into_iter().map(said_by));
            all.request_marks.extend(request_marks.drain(..).map(|(_, mark, at)| (group, mark, at)));
            all.slot_marks.extend(slot_marks.drain(..).map(|(_, mark, at, persisted)| {
                // As barriers: a replica counts its own records, and the process those of all.
                (group, mark, at, others + persisted - own)
            }));
        }
    }
}

/// What several groups have saved, as one.
fn join(groups: Vec<Saved<Payload>>) -> Saved<Payload> {
    let restarted = groups.iter().any(|group| group.restarted);
    let (mut images, mut all) = (Vec::new(), Vec::new());
    for (index, Saved { snapshot, records, .. }) in groups.into_iter().enumerate() {
        let group = GroupId::at(index);
        images.extend(snapshot.map(|image| (group, image)));
        all.extend(records.into_iter().map(|record| record.behind(header(group))));
    }
    let snapshot = (!images.is_empty()).then(|| Arc::new(GroupsImage(images)) as Snapshot);
    Saved { restarted, snapshot, records: all }
}

/// The byte before each message and record of a group: its number.
fn header(group: GroupId) -> Bytes {
    static NUMBERS: LazyLock<Bytes> = LazyLock::new(|| (1..=GroupId::MAX).collect());
    NUMBERS.slice(group.index()..=group.index())
}

/// The reply to a request that no one group can execute.
fn several_groups() -> Bytes {
    Reply::Error(CommandError::SeveralGroups).encoded()
}

/// A message or record of a group.
struct OfGroup(GroupId, Box<dyn Decoded>);

impl Debug for OfGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.0, self.1)
    }
}

impl Decoded for OfGroup {
    fn encoded(&self) -> Bytes {
        Payload::from(self.1.encoded()).behind(header(self.0)).into_bytes()
    }
}

impl AnyProcess for GroupsProcess {
    fn take(&mut self, mut input: Input) -> Result<Taken, WireError> {
        assert!(self.taken.is_none(), "an input is waiting for its step");
        let group = match &mut input {
            Input::Frame { payload, .. } => {
                let (mut group, own) = self.of_group(std::mem::take(payload))?;
                // Now and then: each group goes on, and hears some of the others' messages.
                if mutation::active("groups/message-to-another") && digest(&own).is_multiple_of(4) {
                    group = GroupId::FIRST;
                }
                *payload = own;
                Some(group)
            }
            Input::Own => Some(self.own.pop_front().expect("a frame announced it")),
            Input::Request(id, request) => match self.route(request) {
                Ok(group) => Some(group),
                Err(reply) => {
                    self.taken = Some(TakenInput::Refused(*id, request.clone(), reply));
                    return Ok(Taken { to: self.proxy.into(), from: None, kind: "request" });
                }
            },
            Input::Drain => None,
            Input::Awaited(_) => Some(GroupId::FIRST),
        };
        let groups = group.map_or(0..self.groups.len(), |group| group.index()..group.index() + 1);
        let mut taken = None;
        for group in &mut self.groups[groups.clone()] {
            taken = Some(group.take(input.clone())?);
        }
        self.taken = Some(TakenInput::Of(groups));
        Ok(taken.expect("there is a group"))
    }

    fn take_due_timer(&mut self, now: Time) -> Option<Taken> {
        let deadlines =
            self.groups.iter().enumerate().filter_map(|(at, group)| Some((group.deadline()?, at)));
        let (_, at) = deadlines.min()?;
        let taken = self.groups[at].take_due_timer(now)?;
        self.taken = Some(TakenInput::Of(at..at + 1));
        Some(taken)
    }

    fn step(&mut self, at: Instant) {
        match self.taken.take().expect("an input was taken") {
            TakenInput::Of(groups) => self.groups[groups].iter_mut().for_each(|group| group.step(at)),
            TakenInput::Refused(request, _, reply) => {
                self.effects.replies.push(Answered { request, outcome: Outcome::Done(reply), slot: 0 });
            }
        }
    }

    fn end_batch(&mut self, at: Instant) {
        self.groups.iter_mut().for_each(|group| group.end_batch(at));
    }

    fn release(&mut self, durable: u64) {
        // All is durable where nothing is kept: what was persisted just now, too.
        self.gather();
        let mut of_groups = self.records.of_groups(durable);
        if mutation::active("groups/records-of-another") {
            of_groups.fill(durable);
        }
        self.groups.iter_mut().zip(of_groups).for_each(|(group, own)| group.release(own));
        self.records.settle(durable);
    }

    fn settle(&mut self, rounds: usize, clock: &dyn Fn() -> Instant) -> bool {
        let at_rest = self.groups.iter_mut().map(|group| group.settle(rounds, clock));
        at_rest.fold(true, |all, one| all & one)
    }

    fn load(&mut self, saved: Saved<Bytes>) -> Result<(), RecordError> {
        let Saved { restarted, snapshot, records } = saved;
        let error = |index| move |source| RecordError { index, source };
        let snapshots =
            snapshot.map(|whole| divide(&whole, self.groups.len())).transpose().map_err(error(0))?;
        let snapshots = snapshots.unwrap_or_else(|| vec![None; self.groups.len()]);
        // Of each group, its records and their places among all.
        let mut divided = vec![(Vec::new(), Vec::new()); self.groups.len()];
        for (index, record) in records.into_iter().enumerate() {
            let (group, record) = self.of_group(record).map_err(error(index))?;
            divided[group.index()].0.push(record);
            divided[group.index()].1.push(index);
        }
        for ((group, snapshot), (records, places)) in self.groups.iter_mut().zip(snapshots).zip(divided) {
            let among_all = |RecordError { index, source }| RecordError { index: places[index], source };
            group.load(Saved { restarted, snapshot, records }).map_err(among_all)?;
        }
        Ok(())
    }

    fn start_replica(&mut self, at: Instant, mut random: Random) {
        self.groups.iter_mut().for_each(|group| group.start_replica(at, random.fork()));
    }

    fn has_replica(&self) -> bool {
        self.of(GroupId::FIRST).has_replica()
    }

    fn save(&self) -> Option<Saved<Payload>> {
        Some(join(self.groups.iter().map(|group| group.save()).collect::<Option<_>>()?))
    }

    fn effects(&mut self) -> &mut Effects {
        self.gather();
        &mut self.effects
    }

    fn set_shortage(&mut self, shortage: Option<Shortage>) {
        self.groups.iter_mut().for_each(|group| group.set_shortage(shortage));
    }

    fn set_timed(&mut self, timed: bool) {
        self.groups.iter_mut().for_each(|group| group.set_timed(timed));
    }

    fn groups(&self) -> Vec<&dyn GroupProcess> {
        self.groups.iter().flat_map(|group| group.groups()).collect()
    }

    fn deadline(&self) -> Option<Time> {
        self.groups.iter().filter_map(|group| group.deadline()).min()
    }

    fn persisted(&self) -> u64 {
        self.groups.iter().map(|group| group.persisted()).sum()
    }

    fn waiting(&self) -> usize {
        self.groups.iter().map(|group| group.waiting()).sum()
    }

    fn would_release(&self, durable: u64) -> bool {
        let of_groups = self.records.of_groups(durable);
        self.groups.iter().zip(of_groups).any(|(group, own)| group.would_release(own))
    }

    fn status(&self, at: Instant) -> Option<Status> {
        status::of_all(&self.group_statuses(at), self.node)
    }

    fn records_of(&self, group: GroupId, upto: u64) -> u64 {
        self.records.of_groups(upto)[group.index()]
    }

    fn proxy_samples(&self) -> Vec<Sample> {
        status::labelled(self.groups.iter().map(|group| group.proxy_samples()))
    }

    fn read(&self, command: &Bytes) -> Option<Bytes> {
        match self.partition.route(command) {
            Some((group, command)) => self.of(group).read(&command),
            None => self.has_replica().then(several_groups),
        }
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.partition.group_of_encoded(command).is_some_and(|group| self.of(group).would_answer(command, at))
    }

    fn taken_request(&self) -> Option<(RequestId, &Request)> {
        match self.taken.as_ref()? {
            TakenInput::Of(groups) => self.groups[groups.start].taken_request(),
            TakenInput::Refused(id, request, _) => Some((*id, request)),
        }
    }

    fn describe_taken(&self) -> String {
        match &self.taken {
            None => "nothing".to_owned(),
            Some(TakenInput::Of(groups)) => {
                format!("{}:{}", groups.start + 1, self.groups[groups.start].describe_taken())
            }
            Some(TakenInput::Refused(id, request, _)) => format!("{:x} {request:?}", id.0),
        }
    }

    fn decode(&self, what: Encoding, bytes: Bytes) -> Result<Box<dyn Decoded>, WireError> {
        let (group, own) = self.of_group(bytes)?;
        Ok(Box::new(OfGroup(group, self.of(group).decode(what, own)?)))
    }
}
