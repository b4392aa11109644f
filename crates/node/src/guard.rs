//! Which data directory this node takes part with, and from when on: the rules of [`quorate_blocks::admission`] and of
//! [`quorate_blocks::leases::record`] with the files that they need. The transport asks it about every process that
//! connects; the loop, when the replica may run.

use std::sync::Arc;
use std::time::Duration;

use mio::Waker;
use quorate_blocks::admission::{
    Admission, DiskId, Introduction, KnownGroup, Memory, PATIENCE, Reason, Stage, Verdict, Why,
};
use quorate_blocks::leases::record::{LeaseRecord, longest_lease};
use quorate_blocks::reach::{Reach, alike};
use quorate_core::{Capabilities, GroupId, Members, NodeId, NodeSet, Time, Wire};
use tracing::error;

use crate::clock;
use crate::config::Configured;
use crate::error::NodeError;
use crate::patience::Waited;
use crate::storage::error::StorageError;
use crate::storage::{Memo, MemoWriter};

/// How a node comes to its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) node: NodeId,
    /// What it asks for if its directory is empty.
    pub(crate) stage: Stage,
    /// `--initial-cluster`.
    pub(crate) members: NodeSet,
    /// How many groups its process has.
    pub(crate) groups: usize,
    /// What was drawn at this start.
    pub(crate) incarnation: u64,
    pub(crate) can: Capabilities,
    /// The reach that it has at least.
    pub(crate) least: Reach,
}

/// A directory as it was opened.
pub(crate) struct OpenedDisk {
    pub(crate) disk: u128,
    pub(crate) admission: Memo,
    pub(crate) leases: Memo,
    /// Whether its replica has written anything.
    pub(crate) has_records: bool,
}

/// See the file comment.
pub(crate) struct Guard {
    admission: Admission,
    writer: MemoWriter,
    /// The last revision that was handed to the writer.
    written: u64,
    stop: Option<Reason>,
    /// For how long the disk is busy with the memory that was handed to the writer.
    busy: Waited,
    entry: Entry,
    /// For each reach the shortest with the same timeouts.
    alike: Vec<Reach>,
    leases: Leases,
}

/// What this process has to do with leases of its directory's earlier lives.
struct Leases {
    record: LeaseRecord,
    /// Until when those may bind that were granted with other settings.
    bound_until: Time,
    writer: MemoWriter,
}

impl Guard {
    /// Begins a life of a directory; that is durable when this returns.
    pub(crate) fn open(
        opened: OpenedDisk,
        entry: Entry,
        configured: &Configured,
        waker: Arc<Waker>,
    ) -> Result<Guard, NodeError> {
        let OpenedDisk { disk, admission: memo, leases, has_records } = opened;
        let memory = match memo.read()? {
            None if has_records => return Err(memo.missing("the replica has written to its log").into()),
            None => Memory::new(DiskId(disk), entry.stage),
            Some(bytes) => {
                let memory = Memory::from_bytes(bytes);
                let memory = memory.map_err(|error| memo.damaged(format!("it cannot be read: {error}")))?;
                if memory.own.disk != DiskId(disk) {
                    let (found, own) = (memory.own.disk, DiskId(disk));
                    let what = format!("it belongs to directory {found}, the file identity to {own}");
                    return Err(memo.damaged(what).into());
                }
                memory
            }
        };
        let memory = memory.with_reach(entry.least);
        let replaces = memory.replaces;
        if entry.stage == Stage::Replacing && !replaces {
            tracing::warn!(
                "--replace-disk is for an empty data directory; this one is in use, and the flag does nothing"
            );
        }
        let groups = vec![KnownGroup::initial(entry.members); entry.groups];
        let admission = Admission::start(entry.node, memory, entry.incarnation, groups)
            .map_err(|reason| refused(&reason, &entry))?;
        memo.write(&admission.memory().to_bytes()).map_err(StorageError::from)?;
        let in_force = |reach: Reach| &configured[reach.index()].1;
        let longest = longest_lease(in_force(admission.reach()).effective());
        // Peers compare what they were given, not what follows from distances.
        let leases = Leases::begin(leases, (in_force(Reach::SHORTEST).digest(), longest))?;
        let wake = move || {
            if let Err(source) = waker.wake() {
                error!("the event loop cannot be woken: {source}");
            }
        };
        let written = admission.revision();
        let writer = memo.writer(Box::new(wake)).map_err(StorageError::from)?;
        let (alike, busy) = (alike(configured), Waited::default());
        let mut guard = Guard { admission, writer, written, stop: None, busy, entry, alike, leases };
        guard.admission.on_durable(written);
        Ok(guard)
    }

    /// How this node presents itself; not at all while it [waits to replace](Self::waits_to_replace) its directory.
    pub(crate) fn introduction(&self) -> Option<Introduction> {
        self.admission.introduction()
    }

    /// Whether the replica may run.
    pub(crate) fn may_run(&self) -> bool {
        self.admission.may_run() && self.bound_until().is_none()
    }

    /// Until when leases may bind that were granted with other settings, if they may.
    pub(crate) fn bound_until(&self) -> Option<Time> {
        Some(self.leases.bound_until).filter(|until| clock::now() < *until)
    }

    /// The replica runs: it has waited for all that it had to wait for.
    pub(crate) fn take_part(&mut self) {
        self.leases.waited();
    }

    /// Whether proxies that run alone may be let in: see [`Admission::may_answer_proxies`].
    pub(crate) fn may_answer_proxies(&self) -> bool {
        self.admission.may_answer_proxies()
    }

    /// The reach of this process.
    pub(crate) fn reach(&self) -> Reach {
        self.admission.reach()
    }

    /// The longer one with which this process must start again, if it must.
    pub(crate) fn longer_reach(&self) -> Option<Reach> {
        self.admission.longer_reach()
    }

    /// A round trip to another node was measured.
    pub(crate) fn on_round_trip(&mut self, to: NodeId, took: Duration) {
        let alike = |reach: Reach| self.alike.get(reach.index()).copied().unwrap_or(reach);
        self.admission.on_round_trip(to, took, alike);
        self.write();
    }

    /// The round trip to the voter that is furthest away, if it was measured.
    pub(crate) fn furthest(&self) -> Option<Duration> {
        self.admission.furthest()
    }

    /// Whether the replica's directory took the place of a lost one.
    pub(crate) fn replaces(&self) -> bool {
        self.admission.memory().replaces
    }

    /// Nodes to which connections must end: others know another directory of them, or a later start.
    pub(crate) fn take_outdated(&mut self) -> NodeSet {
        self.admission.take_outdated()
    }

    /// Judges what another node says of its directory. With [`Verdict::Accept`] the two may speak when
    /// [`is_durable`](Self::is_durable) says so.
    pub(crate) fn hear(&mut self, from: NodeId, said: &Introduction) -> Verdict {
        let verdict = self.admission.hear(from, said, clock::now());
        if let Verdict::Stop(reason) = &verdict {
            self.stop = Some(reason.clone());
        }
        self.write();
        verdict
    }

    /// Whether its directory is to replace another, and waits until all other members are there.
    pub(crate) fn waits_to_replace(&self) -> bool {
        self.admission.waits_to_replace()
    }

    /// Another member is there, and waits to replace its own directory.
    pub(crate) fn on_presence(&mut self, from: NodeId) {
        self.admission.on_presence(from, true, clock::now());
    }

    /// A peer has bound this node's id to this directory, durably.
    pub(crate) fn on_bound(&mut self, from: NodeId) {
        self.admission.on_bound(from);
        self.write();
    }

    /// The groups, as this node's log says.
    pub(crate) fn set_groups(&mut self, groups: &[Members]) {
        for (index, members) in groups.iter().enumerate() {
            self.admission.set_group(GroupId::at(index), members.into());
        }
        self.write();
    }

    /// Takes note of what is durable, and for how long the disk has been busy.
    pub(crate) fn poll(&mut self, now: Time) {
        self.busy.look(self.writer.began(), now);
        let durable = self.writer.durable();
        if durable > 0 {
            self.admission.on_durable(durable);
        }
    }

    /// Whether the memory of this revision is durable.
    pub(crate) fn is_durable(&self, revision: u64) -> bool {
        self.admission.is_durable(revision)
    }

    /// Why this node must stop, if it must: it is refused, or its disk takes too long.
    pub(crate) fn stop(&self) -> Option<NodeError> {
        if let Some(reason) = &self.stop {
            return Some(refused(reason, &self.entry));
        }
        let hangs = !self.admission.is_durable(self.written) && self.busy.time() >= PATIENCE;
        hangs.then_some(NodeError::DiskHangs { patience: PATIENCE })
    }

    /// For whom this node waits before its replica runs, in words; `None` if it runs.
    pub(crate) fn waiting(&self) -> Option<String> {
        if self.may_run() {
            return None;
        }
        if let Some(until) = self.bound_until().filter(|_| self.admission.may_run()) {
            let rest = until.since(clock::now()).as_millis().div_ceil(100) as f64 / 10.0;
            return Some(format!(
                "waits {rest:.1} s for the end of leases that it may have granted with the settings that it had before"
            ));
        }
        let (missing, me) = (self.admission.missing(), self.entry.node);
        if self.waits_to_replace() {
            return Some(self.looks_for());
        }
        if missing == 0 {
            return Some("waits for its disk".to_owned());
        }
        let nodes = named(self.admission.waits_for());
        Some(match self.admission.memory().stage {
            Stage::Replacing => format!(
                "waits for {nodes} to confirm that this data directory takes the place of the one that node {me} had, \
                 which cannot come back any more"
            ),
            _ => format!(
                "waits for {nodes}: {missing} more must confirm that node {me} had no other data directory, because \
                 this one is empty, and a member that lost its disk must not vote"
            ),
        })
    }

    /// What a node says that is to replace its directory and waits for others.
    fn looks_for(&self) -> String {
        let me = self.entry.node;
        let absent = self.admission.absent(clock::now());
        let absent = match absent.is_empty() {
            true => "it starts again first".to_owned(),
            false => format!("{} must run and connect to it", named(absent)),
        };
        let otherwise = match self.admission.may_be_retired() {
            true => "Some of them do not let in the old one any more".to_owned(),
            false => format!(
                "Nothing has been replaced yet: if a member does not come back, stop this process and start node \
                 {me} with its old data directory"
            ),
        };
        format!(
            "replaces the data directory of node {me} by this empty one when all other members are there: {absent}. \
             {otherwise}"
        )
    }

    fn write(&mut self) {
        let revision = self.admission.revision();
        if revision > self.written {
            self.written = revision;
            self.writer.put(revision, self.admission.memory().to_bytes());
        }
    }
}

impl Leases {
    /// Begins a life with these settings; what must be remembered is durable when this returns.
    fn begin(memo: Memo, (settings, longest): (u64, Duration)) -> Result<Leases, NodeError> {
        let damaged = |error| memo.damaged(format!("it cannot be read: {error}"));
        let found = memo.read()?.map(|bytes| LeaseRecord::from_bytes(bytes).map_err(damaged)).transpose()?;
        let record = LeaseRecord::begin(found.clone(), settings, longest);
        if found.as_ref() != Some(&record) {
            memo.write(&record.to_bytes()).map_err(StorageError::from)?;
        }
        let bound_until = clock::now() + record.wait();
        let writer = memo.writer(Box::new(|| {})).map_err(StorageError::from)?;
        Ok(Leases { record, bound_until, writer })
    }

    fn waited(&mut self) {
        let waited = self.record.clone().waited();
        if waited != self.record {
            self.writer.put(1, waited.to_bytes());
            self.record = waited;
        }
    }
}

/// Why two nodes of different reaches do not speak yet, in words of the one that says so.
pub(crate) fn other_reach(mine: Reach, theirs: Reach) -> String {
    let (who, longer) = if mine < theirs { ("this node", theirs) } else { ("it", mine) };
    format!("{who} starts again first, with timeouts for round trips up to {:?}", longer.round_trip())
}

/// As in "node 3" and "nodes 1, 2".
fn named(nodes: NodeSet) -> String {
    let plural = if nodes.len() == 1 { "" } else { "s" };
    let ids: Vec<_> = nodes.iter().map(|node| node.to_string()).collect();
    format!("node{plural} {}", ids.join(", "))
}

fn refused(reason: &Reason, entry: &Entry) -> NodeError {
    NodeError::Refused { reason: reason.clone(), advice: advice(reason, entry) }
}

/// What an operator can do about it.
fn advice(reason: &Reason, entry: &Entry) -> String {
    let Entry { node, can, .. } = entry;
    let replace = if can.membership {
        let free = (1..).filter_map(NodeId::new).find(|id| !entry.members.contains(*id) && id != node);
        let free = free.map_or_else(|| "ID".to_owned(), |id| id.to_string());
        format!(
            "replace the member: start node {free} (or another id that was never used) with --join on an empty \
             --data-dir, then `quorate member add {free}=HOST:PORT --remove {node}`"
        )
    } else if can.rejoin {
        format!(
            "replace its disk: start node {node} once with --replace-disk on an empty --data-dir, while all others run"
        )
    } else {
        "leave the node stopped".to_owned()
    };
    match reason.why {
        Why::OtherDisk { .. } | Why::OlderLife { .. } | Why::Copied { .. } | Why::Voter => format!(
            "With the votes that it has forgotten it must not vote again. Put back the data directory as it was when \
             node {node} last ran (is a volume not mounted?), or {replace}"
        ),
        Why::Retired { .. } => {
            let join = if can.membership { ", or a node id that was never used, with --join" } else { "" };
            format!("Use the data directory that has taken its place{join}")
        }
        // Nobody is refused for that: this node says so itself.
        Why::Waits => "Start the other members".to_owned(),
        Why::LeftGroup => {
            "Start it under an id that was never used, with --join, --cluster-id and today's members in \
             --initial-cluster (`quorate member list`, `quorate status --json`)"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll, Token};
    use quorate_blocks::admission::{DiskLife, PeerDisk};
    use quorate_core::{Group, Member, Protocol, Settings};
    use quorate_runtime::protocol;

    use super::*;
    use crate::config::Durability;
    use crate::storage;
    use crate::toy::Toy;

    fn id(node: u64) -> NodeId {
        NodeId::new(node).unwrap()
    }

    fn members() -> NodeSet {
        (1..=3).map(id).collect()
    }

    /// The directory of node 1, from one start to the next.
    struct Directory {
        path: tempfile::TempDir,
        poll: Poll,
        waker: Arc<Waker>,
        starts: u64,
        /// Whether its log is taken to have records.
        has_records: bool,
        /// What its identity is changed by.
        other: u128,
    }

    impl Directory {
        fn new() -> Directory {
            let (path, poll) = (tempfile::tempdir().unwrap(), Poll::new().unwrap());
            let waker = Arc::new(Waker::new(poll.registry(), Token(0)).unwrap());
            Directory { path, poll, waker, starts: 0, has_records: false, other: 0 }
        }

        /// Starts with an election timeout.
        fn start(&mut self, timeout: &str) -> Result<Guard, NodeError> {
            let options = storage::Options {
                directory: self.path.path().to_owned(),
                cluster: 7,
                founded: None,
                node: id(1),
                protocol: "toy",
                durability: Durability::Os,
                promises: false,
                segment_bytes: storage::SEGMENT_BYTES,
                queue_bytes: 1000,
            };
            let storage::Opened { disk, admission, leases, log, .. } =
                storage::open(&options, Box::new(|| {}))?;
            drop(log);
            let (disk, has_records) = (disk ^ self.other, self.has_records);
            let opened = OpenedDisk { disk, admission, leases, has_records };
            let settings = Settings::parse([format!("election.timeout={timeout}")]).unwrap();
            let configured = Reach::configure_each(&settings, |settings| {
                settings.duration("election.timeout", "1s", "When a leader is missed")?;
                protocol::<Toy>().configure(&Group::of(NodeSet::EMPTY), settings)
            });
            self.starts += 1;
            let (stage, least, can) = (Stage::New, Reach::SHORTEST, Toy::CAPABILITIES);
            let (node, members, incarnation) = (id(1), members(), self.starts);
            let entry = Entry { node, stage, members, groups: 2, incarnation, can, least };
            Guard::open(opened, entry, &configured.unwrap(), self.waker.clone())
        }

        /// Until what was handed to the disk is there.
        fn wait(&mut self, guard: &mut Guard, done: impl Fn(&Guard) -> bool) {
            guard.poll(clock::now());
            while !done(guard) {
                let mut events = Events::with_capacity(1);
                self.poll.poll(&mut events, Some(Duration::from_secs(20))).unwrap();
                assert!(!events.is_empty(), "the disk never says so");
                guard.poll(clock::now());
            }
        }
    }

    /// What another node says of itself, which is there for the first time.
    fn introduction(node: u64) -> Introduction {
        let life = DiskLife { disk: DiskId(node.into()), life: 1, starts: vec![node] };
        let (stage, reach) = (Stage::New, Reach::SHORTEST);
        let groups = vec![KnownGroup::initial(members())];
        Introduction { life, stage, groups, peers: [].into(), reach }
    }

    #[test]
    fn what_the_log_says_of_each_group_is_said_to_others() {
        let guard = &mut Directory::new().start("1s").unwrap();
        let voter = Member { address: String::new(), voter: true };
        let group = |version, nodes: &[u64]| {
            let nodes = nodes.iter().map(|node| (id(*node), voter.clone())).collect();
            Members { version, nodes }
        };
        let groups = [group(4, &[1, 2]), group(7, &[1, 3])];
        guard.set_groups(&groups);
        assert_eq!(guard.introduction().unwrap().groups, groups.each_ref().map(KnownGroup::from));
    }

    #[test]
    fn a_directory_counts_its_starts_durably() {
        let mut directory = Directory::new();
        for starts in [vec![1], vec![1, 2], vec![1, 2, 3]] {
            let life = directory.start("1s").unwrap().introduction().unwrap().life;
            assert_eq!((life.life, &life.starts), (starts.len() as u64, &starts));
        }
    }

    #[test]
    fn a_directory_whose_memory_is_missing_or_anothers_is_refused() {
        let mut directory = Directory::new();
        directory.has_records = true;
        let Err(missing) = directory.start("1s") else { panic!("the log speaks of earlier starts") };
        assert!(missing.to_string().contains("the replica has written to its log"), "{missing}");
        directory.has_records = false;
        drop(directory.start("1s").unwrap());
        directory.has_records = true;
        drop(directory.start("1s").unwrap());
        directory.other = 1;
        let Err(copied) = directory.start("1s") else { panic!("the memory is of another directory") };
        assert!(copied.to_string().contains("it belongs to directory"), "{copied}");
    }

    #[test]
    fn a_replica_runs_when_others_know_its_directory_durably_and_no_lease_of_other_settings_binds_it() {
        let mut directory = Directory::new();
        let mut guard = directory.start("1000s").unwrap();
        assert!(!guard.may_run() && guard.bound_until().is_none());
        for other in [2, 3] {
            let Verdict::Accept { after } = guard.hear(id(other), &introduction(other)) else {
                panic!("nothing is wrong with it")
            };
            directory.wait(&mut guard, |guard| guard.is_durable(after));
            assert!(!guard.may_run());
            guard.on_bound(id(other));
        }
        directory.wait(&mut guard, Guard::may_run);
        // Who votes in a group that was decided was admitted.
        let voter = Member { address: String::new(), voter: true };
        let nodes = members().iter().map(|node| (node, voter.clone())).collect();
        guard.set_groups(&[Members { version: 1, nodes }]);
        directory.wait(&mut guard, |guard| guard.is_durable(guard.written));
        drop(guard);
        // It dies before the end of the leases, twice, and waits for it each time.
        for _ in 0..2 {
            let guard = directory.start("1s").unwrap();
            let said = guard.introduction().unwrap();
            assert_eq!((said.stage, said.peers[&id(2)].admitted), (Stage::Admitted, true));
            assert!(guard.bound_until().is_some() && !guard.may_run());
        }
    }

    #[test]
    fn who_remembers_another_directory_of_this_node_stops_it() {
        let mut guard = Directory::new().start("1s").unwrap();
        let current = Some(DiskLife { disk: DiskId(9), life: 4, starts: vec![4] });
        let known = PeerDisk { current, admitted: true, retired: Vec::new() };
        let said = Introduction { peers: [(id(1), known)].into(), ..introduction(2) };
        assert!(guard.stop().is_none());
        assert!(matches!(guard.hear(id(2), &said), Verdict::Stop(_)));
        assert!(matches!(guard.stop(), Some(NodeError::Refused { .. })));
    }

    #[test]
    fn a_directory_that_was_replaced_is_given_another_id_only_where_the_group_can_change() {
        let node = NodeId::new(3).unwrap();
        let reason = Reason { node, witness: node, why: Why::Retired { found: DiskId(1) } };
        for membership in [true, false] {
            let can = Capabilities { membership, rejoin: !membership, ..Toy::CAPABILITIES };
            let members = [node].into_iter().collect();
            let least = Reach::SHORTEST;
            let entry = Entry { node, stage: Stage::New, members, groups: 1, incarnation: 1, can, least };
            let said = advice(&reason, &entry);
            assert!(said.contains("the data directory that has taken its place"), "{said}");
            assert_eq!(said.contains("--join"), membership, "{said}");
        }
    }
}
