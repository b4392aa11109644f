//! An operating system process of the cluster: a node (a replica, and the proxy for its own clients), or a proxy
//! alone. It has a disk and clocks, which survive it, and one life at a time.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::admission::{Admission, DiskId, KnownGroup, Memory, PeerDisk, Stage};
use quorate_blocks::leases::record::LeaseRecord;
use quorate_blocks::reach::Reach;
use quorate_check::{Clocks, Nanos};
use quorate_core::{Instant, NodeId, NodeSet, ProcessId, ProxyId, Random, Saved, Status, Time, WireError};
use quorate_runtime::{
    AnyProcess, ConfiguredProtocol, Input, OutgoingFrame, OwnMessages, RecordError, RecordLedger, Start,
    Taken,
};

use crate::clock::Clock;
use crate::disk::Disk;
use crate::faults::Moment;

/// What a node is told of its group, where its disk may be lost.
pub(crate) struct Entry {
    /// The members as the group was set up.
    pub voters: NodeSet,
    /// How many groups its process has.
    pub groups: usize,
    /// A digest of the settings of this life.
    pub settings: u64,
    /// How long something binds at most that is promised under these.
    pub longest: Duration,
    /// What the other members remember of this node, where one that replaces its disk does not have to wait for them:
    /// they have all been there just before.
    pub met: Vec<(NodeId, Option<PeerDisk>)>,
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
    /// Whether it is to start again soon, with longer timeouts.
    pub starts_again: bool,
    /// A digest of its settings: who has others is not listened to.
    pub settings: u64,
    /// Until when leases may bind that it has granted with other settings.
    pub waits_until: Time,
}

impl Guard {
    /// Whether the replica may run now.
    pub fn may_run(&self, now: Time) -> bool {
        now >= self.waits_until && self.admission.may_run()
    }

    /// The disk that is known to be a node's.
    pub fn disk_of(&self, node: NodeId) -> Option<DiskId> {
        Some(self.admission.memory().peers.get(&node)?.current.as_ref()?.disk)
    }
}

/// What exists only while the process lives.
pub(crate) struct Life {
    /// Of a node of a protocol that relies on disks.
    pub guard: Option<Guard>,
    /// Its replica does not run where a proxy runs alone, and where the node is not admitted yet.
    pub process: Box<dyn AnyProcess>,
    /// What its machines were told.
    pub configured: Arc<dyn ConfiguredProtocol>,
    pub inbox: VecDeque<Input>,
    /// How many records the disk had when the replica started.
    pub born_at_record: u64,
    /// Which of the records since then the disk has, as in a node.
    pub ledger: RecordLedger,
    /// Whether a turn of the loop is scheduled, or stalled.
    pub turning: bool,
    /// An input that was taken but not acted on, and what the clocks showed when it was taken.
    pub held: Option<(Taken, Instant)>,
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

impl Life {
    /// Takes the next input of this turn: due timers first, then what has come in. The error says which input's bytes
    /// are no message.
    pub fn take_input(&mut self, at: Instant) -> Option<Result<Taken, WireError>> {
        self.budget = self.budget.checked_sub(1)?;
        match self.process.take_due_timer(at.now) {
            Some(timer) => Some(Ok(timer)),
            None => Some(self.process.take(self.inbox.pop_front()?)),
        }
    }

    /// The last record of this life that counts as durable.
    pub fn durable(&self, disk: &Disk) -> u64 {
        self.ledger.durable(disk.synced() - self.born_at_record)
    }

    /// Messages that wait for nothing (any more), in the order in which they may go.
    pub fn release(&mut self, disk: &Disk) -> Vec<OutgoingFrame> {
        self.process.release(self.durable(disk));
        std::mem::take(&mut self.process.effects().frames)
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

/// A disk with all that its directory remembers, without a node.
pub(crate) struct ShelvedDisk {
    pub disk: Disk,
    pub memory: Option<Memory>,
    pub leases: Option<LeaseRecord>,
}

/// A process, alive or not.
pub(crate) struct SimProcess {
    /// Which node it is; `None` for a proxy alone.
    pub node: Option<NodeId>,
    /// Its proxy's present id.
    pub proxy: ProxyId,
    pub disk: Disk,
    pub clock: Clock,
    pub random: Random,
    pub life: Option<Life>,
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
    /// What it durably remembers of leases that it has granted; `None` while its directory is new.
    pub leases: Option<LeaseRecord>,
    /// The reach that it has at least.
    pub least: Reach,
    /// What is being written in the place of [`memory`](Self::memory), and its revision.
    pub writing: Option<(u64, Memory)>,
    /// Its own disk, while it asks in vain to replace that by an empty one.
    pub shelved: Option<ShelvedDisk>,
    /// A copy of its disk at the end of an earlier life.
    pub copy: Option<(Disk, Memory)>,
}

impl SimProcess {
    pub fn new(node: Option<NodeId>, disk: Disk, clock: Clock, random: Random) -> Self {
        SimProcess {
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
            leases: None,
            least: Reach::SHORTEST,
            writing: None,
            shelved: None,
            copy: None,
        }
    }

    /// Begins a life at a true instant. The replica starts when the node is admitted; at once, where there is no
    /// `entry` because no disk is ever lost, or the protocol relies on none.
    pub fn start(
        &mut self,
        now: Nanos,
        configured: Arc<dyn ConfiguredProtocol>,
        entry: Option<Entry>,
    ) -> Result<(), String> {
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
        let guard = match (self.node, entry) {
            (Some(node), Some(entry)) => Some(self.guard(node, entry, at.now)?),
            (Some(_) | None, _) => None,
        };
        let process = configured.start(Start {
            proxy: self.proxy,
            node: self.node,
            at,
            random: self.random.fork(),
            observed: true,
            own: OwnMessages::AsInput,
        });
        let runs = guard.as_ref().is_none_or(|guard| guard.may_run(at.now));
        self.life = Some(Life {
            guard,
            process,
            configured,
            inbox: VecDeque::new(),
            born_at_record: self.disk.synced(),
            ledger: RecordLedger::default(),
            turning: false,
            held: None,
            sampled: None,
            ending: false,
            budget: 0,
            busy_until: now,
            wake_at: None,
            draining: false,
        });
        if runs { self.begin(now) } else { Ok(()) }
    }

    fn guard(&mut self, node: NodeId, entry: Entry, now: Time) -> Result<Guard, String> {
        let Entry { voters, groups, settings, longest, met } = entry;
        let stage = match voters.contains(node) {
            true if self.asks_to_replace => Stage::Replacing,
            true => Stage::New,
            false => Stage::Joining,
        };
        let drawn = u128::from(self.random.u64()) << 64 | u128::from(self.random.u64());
        let memory = self.memory.clone().unwrap_or_else(|| Memory::new(DiskId(drawn), stage));
        let memory = memory.with_reach(self.least);
        let groups = vec![KnownGroup::initial(voters); groups];
        let admission = Admission::start(node, memory, self.random.u64(), groups);
        let mut admission = admission.map_err(|reason| format!("it was refused before: {reason}"))?;
        for (other, remembered) in met {
            admission.hear_of_own_disk(remembered.as_ref());
            admission.on_presence(other, false, now);
        }
        let (answers, openings, up) = (Vec::new(), Vec::new(), BTreeMap::new());
        let record = LeaseRecord::begin(self.leases.take(), settings, longest);
        let waits_until = now + record.wait();
        self.leases = Some(record);
        let (greets, starts_again) = (false, false);
        Ok(Guard {
            admission,
            written: 0,
            answers,
            openings,
            up,
            greets,
            starts_again,
            settings,
            waits_until,
        })
    }

    /// Starts the replica of this life from what the disk has.
    pub fn begin(&mut self, now: Nanos) -> Result<(), String> {
        let at = self.instant(now);
        let (Some(life), Some(_)) = (&mut self.life, self.node) else { return Ok(()) };
        self.leases = self.leases.take().map(LeaseRecord::waited);
        let saved = match self.disk.open() {
            true => Saved::nothing(),
            false => self.disk.recover(|bytes| life.process.recode_record(bytes).is_ok()),
        };
        life.process.load(saved).map_err(|error| format!("an intact record is lost: {error}"))?;
        life.born_at_record = self.disk.written();
        life.process.start_replica(at, self.random.fork());
        Ok(())
    }

    /// Whether its disk took the place of a lost one.
    pub fn replaces(&self) -> bool {
        self.memory.as_ref().map_or(self.asks_to_replace, |memory| memory.replaces)
    }

    /// The reach of its next life.
    pub fn reach(&self) -> Reach {
        self.memory.as_ref().map_or(self.least, |memory| memory.reach.max(self.least))
    }

    /// What it knows of disks in this life, and what of that is durable.
    pub fn memories(&self) -> Option<(&Memory, &Memory)> {
        let guard = self.life.as_ref()?.guard.as_ref()?;
        Some((guard.admission.memory(), self.memory.as_ref()?))
    }

    /// Whether its disk still writes this revision of what it remembers, of the life in this epoch.
    pub fn is_writing(&self, epoch: u64, revision: u64) -> bool {
        self.epoch == epoch && self.writing.as_ref().is_some_and(|(writing, _)| *writing == revision)
    }

    /// What its clocks show.
    pub fn instant(&self, now: Nanos) -> Instant {
        self.clock.read(self.incarnation, now)
    }

    /// Until when it waits for leases that it has granted with other settings, in true time.
    pub fn waits_until(&self, now: Nanos) -> Option<Nanos> {
        let until = self.life.as_ref()?.guard.as_ref()?.waits_until;
        (until > self.instant(now).now).then(|| self.clock.true_time(self.incarnation, until))
    }

    /// When its next timer is due, in true time.
    pub fn next_timer(&self) -> Option<Nanos> {
        let next = self.life.as_ref()?.process.deadline()?;
        Some(self.clock.true_time(self.incarnation, next))
    }

    /// Its proxy, as traces name it.
    pub fn proxy_name(&self) -> ProcessId {
        self.proxy.into()
    }

    /// The process, while its replica runs.
    pub fn replica(&self) -> Option<&dyn AnyProcess> {
        let process = &*self.life.as_ref()?.process;
        process.has_replica().then_some(process)
    }

    /// Another process like the one that lives, which has recovered from this.
    pub fn recover_copy(&self, now: Nanos, saved: Saved<Bytes>) -> Result<Box<dyn AnyProcess>, RecordError> {
        let (at, own) = (self.instant(now), OwnMessages::AsInput);
        let (proxy, node, random) = (self.proxy, self.node, Random::new(1));
        let life = self.life.as_ref().expect("it lives");
        let mut copy = life.configured.start(Start { proxy, node, at, random, observed: true, own });
        copy.load(saved)?;
        copy.start_replica(at, Random::new(1));
        Ok(copy)
    }

    /// How the replica sees itself, while it runs.
    pub fn status(&self, now: Nanos) -> Option<Status> {
        self.replica()?.status(self.instant(now))
    }
}

/// The clocks of the hosts, of which the first are the nodes.
pub(crate) struct SimClocks<'a>(pub &'a [SimProcess]);

impl Clocks for SimClocks<'_> {
    fn true_time(&self, node: NodeId, local: Time) -> u64 {
        let host = &self.0[usize::from(node.get()) - 1];
        host.clock.true_time(host.incarnation, local)
    }

    fn when_past(&self, node: NodeId, latest: u64) -> u64 {
        self.0[usize::from(node.get()) - 1].clock.when_past(latest)
    }
}

impl fmt::Display for SimProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "{node:?}"),
            None => write!(f, "{}", self.proxy_name()),
        }
    }
}
