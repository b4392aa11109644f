//! The replicas and proxies of several groups as one process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Decoder, GroupId, Instant, Manage, ManageGroup, Managed, NodeId, Outcome, Payload,
    PeerStatus, ProxyId, Random, Request, RequestId, Sample, Saved, Snapshot, Status, Time, Wire, WireError,
    digest, mutation,
};
use quorate_runtime::{
    AnyProcess, ConfiguredProtocol, Decoded, Effects, Encoding, GroupProcess, Input, RecordError, Start,
    Taken,
};
use quorate_store::{CommandError, Partition, Reply};

use super::image::{GroupsImage, divide};
use super::records::RecordOrder;

/// See the [module](super).
pub struct GroupsProcess {
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
    /// The group has taken it.
    Of(GroupId),
    /// Every group has taken it.
    OfAll,
    /// No one group's: the reply, or `None` if the groups that this node leads are to be led by others.
    OfNone(RequestId, Request, Option<Bytes>),
}

/// What a group recovers from, and the places that its records have among all.
type Divided = (Saved<Bytes>, Vec<usize>);

/// Why operators cannot change groups yet.
const FIXED: &[u8] = b"the members and rosters of several groups (--groups) cannot be changed yet";

impl GroupsProcess {
    /// Starts the groups' proxies.
    pub fn start(groups: &[Arc<dyn ConfiguredProtocol>], partition: Arc<Partition>, start: Start) -> Self {
        let Start { proxy, node, at, mut random, observed, own } = start;
        let start = |group: &Arc<dyn ConfiguredProtocol>| {
            group.start(Start { proxy, node, at, random: random.fork(), observed, own })
        };
        let groups: Vec<_> = groups.iter().map(start).collect();
        GroupsProcess {
            partition,
            node,
            proxy,
            records: RecordOrder::new(groups.len()),
            groups,
            own: VecDeque::new(),
            taken: None,
            effects: Effects::default(),
        }
    }

    fn of(&self, group: GroupId) -> &dyn AnyProcess {
        &*self.groups[group.index()]
    }

    fn each(&self) -> impl Iterator<Item = (GroupId, &dyn AnyProcess)> {
        self.groups.iter().enumerate().map(|(index, group)| (GroupId::at(index), &**group))
    }

    /// Whose a message or record is, and its encoding.
    fn of_group(&self, bytes: Bytes) -> Result<(GroupId, Bytes), WireError> {
        let mut input = Decoder::new(bytes);
        match GroupId::decode(&mut input)? {
            group if group.index() < self.groups.len() => Ok((group, input.rest())),
            group => Err(WireError::Value { what: "group", found: group.get().into() }),
        }
    }

    /// Whose a request is, or what is to be done about one that is no one group's. What one group is asked of an
    /// operator's request takes the place of that.
    fn route(&self, request: &mut Request) -> Result<GroupId, Option<Bytes>> {
        if request.access != Access::Manage {
            let group = self.partition.group_of_encoded(&request.command);
            return group.ok_or_else(|| Some(several_groups()));
        }
        if let Ok(ManageGroup { group, manage: manage @ Manage::Transfer { .. } }) =
            ManageGroup::from_bytes(request.command.clone())
            && group.index() < self.groups.len()
        {
            request.command = manage.to_bytes();
            return Ok(group);
        }
        match Manage::from_bytes(request.command.clone()) {
            Ok(Manage::Transfer { to: None }) => Err(None),
            Ok(_) | Err(_) => Err(Some(Managed::Refused(Bytes::from_static(FIXED)).to_bytes())),
        }
    }

    /// How many of each group's records its messages may count on when so many of the log are durable.
    fn durable_of_groups(&self, durable: u64) -> Vec<u64> {
        match mutation::active("groups/records-of-another") {
            true => vec![durable; self.groups.len()],
            false => self.records.of_groups(durable),
        }
    }

    /// Moves what the groups ask for to the effects of the process.
    fn gather(&mut self) {
        let GroupsProcess { groups, records: order, own: owners, effects: all, .. } = self;
        for (index, group) in groups.iter_mut().enumerate() {
            let group_id = GroupId::at(index);
            let Effects { records, barriers, frames, replies, facts, members, request_marks, slot_marks } =
                group.effects();
            let (others, own) = (order.total(), order.appended(group_id));
            all.barriers.extend(barriers.drain(..).map(|barrier| others + barrier - own));
            for record in records.drain(..) {
                order.append(group_id);
                all.records.push(record.behind(header(group_id)));
            }
            for mut frame in frames.drain(..) {
                if frame.own {
                    owners.push_back(group_id);
                }
                frame.group = group_id;
                frame.payload = frame.payload.behind(header(group_id));
                all.frames.push(frame);
            }
            all.replies.append(replies);
            all.facts.extend(facts.drain(..).map(|(_, fact)| (group_id, fact)));
            // All have the same, and keep them.
            all.members.0 = members.0.take().or(all.members.0.take());
            all.members.1 = members.1.take().or(all.members.1.take());
            all.request_marks.append(request_marks);
            // Slots of several groups have the same numbers: nobody could tell whose stage was slow.
            slot_marks.clear();
        }
    }

    fn divide(&self, saved: Saved<Bytes>) -> Result<Vec<Divided>, RecordError> {
        let Saved { restarted, snapshot, records } = saved;
        let error = |index| move |source| RecordError { index, source };
        let snapshots = match snapshot {
            Some(whole) => divide(&whole, self.groups.len()).map_err(error(0))?,
            None => vec![None; self.groups.len()],
        };
        let of_group = |snapshot| (Saved { restarted, snapshot, records: Vec::new() }, Vec::new());
        let mut groups: Vec<_> = snapshots.into_iter().map(of_group).collect();
        for (index, record) in records.into_iter().enumerate() {
            let (group, record) = self.of_group(record).map_err(error(index))?;
            let (saved, places) = &mut groups[group.index()];
            saved.records.push(record);
            places.push(index);
        }
        Ok(groups)
    }
}

/// What several groups have saved, as one; `None` if there are none.
pub fn join(groups: Vec<Saved<Payload>>) -> Option<Saved<Payload>> {
    let restarted = groups.first()?.restarted;
    let (mut images, mut all) = (Vec::new(), Vec::new());
    for (index, Saved { snapshot, records, .. }) in groups.into_iter().enumerate() {
        let group = GroupId::at(index);
        images.extend(snapshot.map(|image| (group, image)));
        all.extend(records.into_iter().map(|record| record.behind(header(group))));
    }
    let snapshot = (!images.is_empty()).then(|| Arc::new(GroupsImage(images)) as Snapshot);
    Some(Saved { restarted, snapshot, records: all })
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

/// Samples of each group, those of one name together; what tells one from others of its name already stays.
fn labelled(of_groups: impl Iterator<Item = Vec<Sample>>) -> Vec<Sample> {
    let label = |group: GroupId, sample: Sample| match sample.label.clone() {
        None => sample.with("group", group.to_string()),
        Some((label, value)) => sample.with(label, format!("{group}:{value}")),
    };
    let samples = of_groups.enumerate().flat_map(|(index, samples)| {
        samples.into_iter().map(move |sample| label(GroupId::at(index), sample))
    });
    let mut samples: Vec<_> = samples.collect();
    samples.sort_by_key(|sample| sample.name);
    samples
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
    fn take(&mut self, input: Input) -> Result<Taken, WireError> {
        assert!(self.taken.is_none(), "an input is waiting for its step");
        let (group, input) = match input {
            Input::Frame { from, to, payload } => {
                let (mut group, payload) = self.of_group(payload)?;
                // Now and then: each group goes on, and hears some of the others' messages.
                if mutation::active("groups/message-to-another") && digest(&payload).is_multiple_of(4) {
                    group = GroupId::FIRST;
                }
                (group, Input::Frame { from, to, payload })
            }
            Input::Own => (self.own.pop_front().expect("a frame announced it"), Input::Own),
            Input::Request(id, mut request) => match self.route(&mut request) {
                Ok(group) => (group, Input::Request(id, request)),
                Err(reply) => {
                    self.taken = Some(TakenInput::OfNone(id, request, reply));
                    return Ok(Taken { to: self.proxy.into(), from: None, kind: "request" });
                }
            },
            Input::Drain => {
                let taken = self.groups.iter_mut().map(|group| group.take(Input::Drain));
                let taken = taken.collect::<Result<Vec<_>, _>>()?;
                self.taken = Some(TakenInput::OfAll);
                return Ok(taken[0]);
            }
        };
        let taken = self.groups[group.index()].take(input)?;
        self.taken = Some(TakenInput::Of(group));
        Ok(taken)
    }

    fn take_due_timer(&mut self, now: Time) -> Option<Taken> {
        let deadlines = self.each().filter_map(|(group, process)| Some((process.deadline()?, group)));
        let (_, group) = deadlines.min()?;
        let taken = self.groups[group.index()].take_due_timer(now)?;
        self.taken = Some(TakenInput::Of(group));
        Some(taken)
    }

    fn step(&mut self, at: Instant) {
        match self.taken.take().expect("an input was taken") {
            TakenInput::Of(group) => self.groups[group.index()].step(at),
            TakenInput::OfAll => self.groups.iter_mut().for_each(|group| group.step(at)),
            // The node asks this of itself when its disk is nearly full, and waits for no reply.
            TakenInput::OfNone(id, request, None) => {
                let leads = |status: Status| status.leader.is_some() && status.leader == self.node;
                for group in self.groups.iter_mut().filter(|group| group.status(at).is_some_and(leads)) {
                    group.take(Input::Request(id, request.clone())).expect("a request is no frame");
                    group.step(at);
                }
            }
            TakenInput::OfNone(request, _, Some(reply)) => {
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
        let of_groups = self.durable_of_groups(durable);
        self.groups.iter_mut().zip(of_groups).for_each(|(group, own)| group.release(own));
        self.records.settle(durable);
    }

    fn settle(&mut self, rounds: usize, clock: &dyn Fn() -> Instant) -> bool {
        let mut at_rest = true;
        for group in &mut self.groups {
            at_rest &= group.settle(rounds, clock);
        }
        at_rest
    }

    fn load(&mut self, saved: Saved<Bytes>) -> Result<(), RecordError> {
        let divided = self.divide(saved)?;
        for (group, (saved, places)) in self.groups.iter_mut().zip(divided) {
            let among_all = |RecordError { index, source }| RecordError { index: places[index], source };
            group.load(saved).map_err(among_all)?;
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
        join(self.groups.iter().map(|group| group.save()).collect::<Option<_>>()?)
    }

    fn effects(&mut self) -> &mut Effects {
        self.gather();
        &mut self.effects
    }

    fn set_disk_full(&mut self, full: bool) {
        self.groups.iter_mut().for_each(|group| group.set_disk_full(full));
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
        let of_groups = self.durable_of_groups(durable);
        self.groups.iter().zip(of_groups).any(|(group, own)| group.would_release(own))
    }

    /// What is true of the node whichever group is meant: it leads if it leads any, and its positions are sums.
    fn status(&self, at: Instant) -> Option<Status> {
        let groups = self.group_statuses(at);
        let first = groups.first()?;
        let leads = |status: &&Status| status.leader.is_some() && status.leader == self.node;
        let shown = groups.iter().find(|status| status.role == "rejoining");
        let shown = shown.or_else(|| groups.iter().find(leads)).unwrap_or(first);
        let is_led = groups.iter().all(|status| status.leader.is_some());
        let mut peers: BTreeMap<NodeId, PeerStatus> = BTreeMap::new();
        for peer in groups.iter().flat_map(|status| &status.peers) {
            let of_all = peers.entry(peer.node).or_insert_with(|| peer.clone());
            of_all.lag = of_all.lag.max(peer.lag);
            of_all.heard_ms = [of_all.heard_ms, peer.heard_ms].into_iter().flatten().min();
        }
        let facts: BTreeMap<_, _> =
            groups.iter().rev().flat_map(|status| status.facts.iter().cloned()).collect();
        let ballots: Vec<_> = groups.iter().map(|status| status.ballot.as_str()).collect();
        Some(Status {
            role: shown.role,
            leader: shown.leader.filter(|_| is_led || leads(&shown)),
            ballot: ballots.join(","),
            committed: groups.iter().map(|status| status.committed).sum(),
            applied: groups.iter().map(|status| status.applied).sum(),
            lease: groups.iter().all(|status| status.lease),
            reads: if groups.iter().all(|status| status.reads == first.reads) {
                first.reads
            } else {
                "by group"
            },
            peers: peers.into_values().collect(),
            samples: labelled(groups.iter().map(|status| status.samples.clone())),
            facts: facts.into_iter().collect(),
        })
    }

    fn records_of(&self, group: GroupId, upto: u64) -> u64 {
        self.records.of_groups(upto)[group.index()]
    }

    fn proxy_samples(&self) -> Vec<Sample> {
        labelled(self.groups.iter().map(|group| group.proxy_samples()))
    }

    fn read(&self, command: &Bytes) -> Option<Bytes> {
        match self.partition.group_of_encoded(command) {
            Some(group) => self.of(group).read(command),
            None if self.has_replica() => Some(several_groups()),
            None => None,
        }
    }

    fn would_answer(&self, command: &Bytes, at: Instant) -> bool {
        self.partition.group_of_encoded(command).is_some_and(|group| self.of(group).would_answer(command, at))
    }

    fn taken_request(&self) -> Option<(RequestId, &Request)> {
        match self.taken.as_ref()? {
            TakenInput::Of(group) => self.of(*group).taken_request(),
            TakenInput::OfAll => None,
            TakenInput::OfNone(id, request, _) => Some((*id, request)),
        }
    }

    fn describe_taken(&self) -> String {
        match &self.taken {
            None => "nothing".to_owned(),
            Some(TakenInput::Of(group)) => format!("{group}:{}", self.of(*group).describe_taken()),
            Some(TakenInput::OfAll) => self.of(GroupId::FIRST).describe_taken(),
            Some(TakenInput::OfNone(id, request, _)) => format!("{:x} {request:?}", id.0),
        }
    }

    fn decode(&self, what: Encoding, bytes: Bytes) -> Result<Box<dyn Decoded>, WireError> {
        let (group, own) = self.of_group(bytes)?;
        Ok(Box::new(OfGroup(group, self.of(group).decode(what, own)?)))
    }
}
