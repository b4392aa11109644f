//! Admission: which disk a node may take part with. A node that lost its disk, or got an old one back, has forgotten
//! votes that others counted; it must not vote again.
//!
//! A data directory has a random identity ([`DiskId`]) and a **life** that grows, durably, at every start before
//! anything is sent. Processes present both when they connect ([`Introduction`]), and each durably remembers those of
//! all others ([`PeerDisk`]). No message of a protocol passes between two nodes before each has made the other's
//! introduction durable.
//!
//! **Lost disk.** A node with an empty directory is not admitted: its replica does not run. It is admitted when a
//! majority of the *other* voters have durably bound the node's id to its disk ([`missing`](Admission::missing)). A
//! peer that remembers another disk for that id refuses, and the node stops. Why that is enough: the lost disk was
//! admitted once, by a majority of the others; two such majorities share a node, and that one remembers. For the same
//! reason a voter that was replaced does not take its memory with it: an introduction holds all that its sender
//! remembers of everybody, and a newcomer has made that of a majority durable before it is admitted.
//!
//! The group of which a majority counts is the newest that the node has heard of. Whatever majority of the others
//! answers, one of them has the newest configuration in its log, because that needed a majority too. Where a process
//! has several groups (`--groups`), each changes on its own and may have voters of its own meanwhile: a majority of the
//! other voters of *each* group is needed, of the newest configuration that was heard of, so that the argument is each
//! group's own.
//!
//! **Rolled-back disk.** Each start draws a random number, and a directory remembers those of its latest starts
//! ([`DiskLife`]). A peer refuses a directory that lacks the start which the peer remembers: an old copy, or one of two
//! copies that both ran. The condition: *the peer remembers a start after the copy was made*. An ordinary restart waits
//! for nobody, so a rollback to a time after which the node met none of the peers that are up cannot be noticed by
//! them; and a copy of the latest life is like what a crash leaves. If all others remember a later start, the node can
//! take part nowhere: no other node accepts its messages, and processes that remember nothing, proxies that run alone,
//! are answered only after others of a majority have accepted its present life
//! ([`may_answer_proxies`](Admission::may_answer_proxies)). A copy from a time when the node was the only voter asks
//! nobody. A directory remembers that it was refused, and is not started again.
//!
//! **An id belongs to one disk for ever**, once that was admitted, even if its node leaves the group: members that lag
//! behind still count the id as the voter that it was, and would count another disk, which knows nothing of what the
//! first has voted for, in its place. A disk is retired for ever when another takes its place: a joining node's, where
//! the disk that is known was never admitted; or the disk of a node that asks to replace its own
//! ([`Stage::Replacing`]), which needs every other voter, since nobody may go on listening to the old one.
//!
//! **Replacing a disk** has two phases. In the first, the new disk *waits*: it introduces itself to nobody, refuses
//! whoever introduces itself, and nobody takes note of it. It goes on when every other voter has tried to connect to it
//! within [`PRESENCE_TIMEOUT`], and no more than a minority replaces its disks. In the second it introduces itself as
//! [`Stage::Replacing`], and names what it replaces: the disks of its node that others have told it of. Whoever hears
//! that retires them, durably, and only then answers. When all other voters have answered, the new disk is admitted.
//!
//! - *The two never take part together.* The new disk's replica runs only after every other voter has durably retired
//!   the old disk and ended its connections: from then on nobody hears the old disk, or is heard by it. Crashes and
//!   partitions in between do not change that. What an answer promises is durable before it leaves, a retired disk
//!   stays retired, and the new disk counts answers of its present life only.
//! - *No vote of the old disk is lost.* Where some have retired it and others have not, it may still vote among the
//!   latter. A member that rejoins asks all others for what they have heard of, after all of them have retired its old
//!   disk ([`Capabilities::rejoin`](quorate_core::Capabilities::rejoin)).
//! - *Before the second phase nothing has changed.* No other process has written anything, so the old disk comes back
//!   as after any restart, and members that are connected to it have no reason to look for the new one, which goes on
//!   waiting. While another member is gone for good, the second phase does not begin: an operator who gave up a sound
//!   disk by mistake has lost nothing.
//! - *The second phase cannot be undone*, since nobody knows alone whether all others have answered. If another member
//!   is lost for good then, before it has answered, neither disk is let in any more. All others have just been there
//!   when it begins, and it takes a few round trips.
//! - *A late introduction retires nothing that is newer.* It may come from a disk that was to replace another and was
//!   lost itself: it does not name the disk that came after it, and is not heard. A disk that is known to nobody but a
//!   member that read its introduction late is named as soon as that member has introduced itself.
//!
//! Each life of the new disk begins with the first phase. That it has begun the second one earlier it only needs to
//! know to say so ([`may_be_retired`](Admission::may_be_retired)).
//!
//! **Timeouts.** The memory also has the node's [`Reach`], which each introduction says, and two nodes speak only if
//! theirs are the same ([`crate::reach`], where the argument is). Whoever has the shorter one starts again
//! ([`longer_reach`](Admission::longer_reach)).
//!
//! This part is a state machine without input and output: drivers carry introductions, write [`Memory`] to disk, and
//! say when it is durable.

// tidy: long because its rules and the argument why they are enough belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use quorate_core::wire::{Decoder, Encoder};
use quorate_core::{
    GroupId, Members, NodeId, NodeSet, Time, Wire, WireError, mutation, wire_enum, wire_struct,
};

use crate::reach::{Reach, RoundTrips};

/// How long a write of the memory may take. A node whose disk takes longer stops: it could let in nobody who has
/// restarted, and if it leads, those who hear it would elect nobody else, who could.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a voter counts as there after it has tried to connect to a disk that is to replace another: longer than
/// members wait from one attempt to the next.
pub const PRESENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts that are remembered of each disk. An old copy could only be taken for the disk itself if it were started so
/// often without meeting anybody who remembers better.
const STARTS: usize = 32;

/// Retired disks that are remembered of each id; beyond, the oldest is forgotten. The present disk of the id is
/// remembered besides, so that a forgotten one is still refused as another disk.
const RETIRED: usize = 16;

/// The identity of a data directory: 128 random bits, drawn when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskId(pub u128);

impl Wire for DiskId {
    fn encode(&self, out: &mut Encoder) {
        ((self.0 >> 64) as u64, self.0 as u64).encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (high, low) = <(u64, u64)>::decode(input)?;
        Ok(DiskId(u128::from(high) << 64 | u128::from(low)))
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A data directory at one of its starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskLife {
    /// The identity of the data directory, the same at all its starts.
    pub disk: DiskId,
    /// Counts its starts from 1.
    pub life: u64,
    /// What was drawn at random at the latest starts, this one last.
    pub starts: Vec<u64>,
}
wire_struct!(DiskLife { disk, life, starts });

impl DiskLife {
    /// The same directory at its next start.
    fn next(mut self, incarnation: u64) -> DiskLife {
        self.starts.push(incarnation);
        if self.starts.len() > STARTS {
            self.starts.remove(0);
        }
        DiskLife { life: self.life + 1, ..self }
    }

    /// What is wrong with this, where another start of the same directory is remembered that it should come after.
    fn contradicts(&self, known: &DiskLife) -> Option<Why> {
        let Some(ago) = self.life.checked_sub(known.life) else {
            return Some(Why::OlderLife { known: known.life, found: self.life });
        };
        let start = usize::try_from(ago).ok().and_then(|ago| self.starts.iter().rev().nth(ago));
        (start.is_some() && start != known.starts.last()).then_some(Why::Copied { life: known.life })
    }
}

/// Whether a data directory takes part, and if not, in which way it asks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is empty, and its node is one of the initial members.
    New,
    /// It is empty, and its node is to be added to the group (`--join`).
    Joining,
    /// It is empty, and takes the place of its node's lost one (`--replace-disk`).
    Replacing,
    /// Its replica runs, or may.
    Admitted,
}
wire_enum!(Stage { 1 => New, 2 => Joining, 3 => Replacing, 4 => Admitted });

/// What is remembered of the disks of one node id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerDisk {
    /// The disk that is bound to the id, in its latest life that is known.
    pub current: Option<DiskLife>,
    /// Whether that disk is known to have been admitted, or its node has been a voter and it may have been.
    pub admitted: bool,
    /// Disks whose place another has taken, oldest first.
    pub retired: Vec<DiskId>,
}
wire_struct!(PeerDisk { current, admitted, retired });

/// What a node durably remembers: its own directory's identity, life and stage, and the disks of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Of this directory, at its present or last start.
    pub own: DiskLife,
    /// How far this directory is admitted.
    pub stage: Stage,
    /// Whether it was made to replace a lost one: the replica must be told so whenever it starts.
    pub replaces: bool,
    /// Why it must not be started again.
    pub refused: Option<Reason>,
    /// The disks of the nodes, and retired ones of this node.
    pub peers: BTreeMap<NodeId, PeerDisk>,
    /// The longest reach that it has run with, needed, or heard of.
    pub reach: Reach,
}

impl Wire for Memory {
    fn encode(&self, out: &mut Encoder) {
        let Memory { own, stage, replaces, refused, peers, reach } = self;
        own.encode(out);
        stage.encode(out);
        replaces.encode(out);
        refused.encode(out);
        peers.encode(out);
        reach.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        Ok(Memory {
            own: Wire::decode(input)?,
            stage: Wire::decode(input)?,
            replaces: Wire::decode(input)?,
            refused: Wire::decode(input)?,
            peers: Wire::decode(input)?,
            // A directory of a version before there were several ends here.
            reach: if input.remaining() == 0 { Reach::SHORTEST } else { Wire::decode(input)? },
        })
    }
}

impl Memory {
    /// Of a directory that was made just now and never started.
    pub fn new(disk: DiskId, stage: Stage) -> Memory {
        let (own, peers) = (DiskLife { disk, life: 0, starts: Vec::new() }, BTreeMap::new());
        let (replaces, refused, reach) = (stage == Stage::Replacing, None, Reach::SHORTEST);
        Memory { own, stage, replaces, refused, peers, reach }
    }

    /// The same, with at least this reach.
    pub fn with_reach(self, least: Reach) -> Memory {
        Memory { reach: self.reach.max(least), ..self }
    }
}

/// Who is in a group, as far as a node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownGroup {
    /// Which of its configurations this is, 0 for the initial one.
    pub version: u64,
    /// Whose votes count; those of both sets while the configuration is joint.
    pub voters: NodeSet,
    /// Its voters and learners.
    pub members: NodeSet,
}
wire_struct!(KnownGroup { version, voters, members });

impl KnownGroup {
    /// As it was set up.
    pub fn initial(members: NodeSet) -> KnownGroup {
        KnownGroup { version: 0, voters: members, members }
    }
}

impl From<&Members> for KnownGroup {
    fn from(members: &Members) -> KnownGroup {
        KnownGroup { version: members.version, voters: members.voters(), members: members.all() }
    }
}

/// What a node says of itself when it connects, and when it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Its directory at this start.
    pub life: DiskLife,
    /// Whether it is admitted.
    pub stage: Stage,
    /// The newest configuration that it knows of each of its groups, one at least. The first alone is part of the
    /// encoding: whoever carries introductions carries the others behind what earlier versions know.
    pub groups: Vec<KnownGroup>,
    /// All that it remembers.
    pub peers: BTreeMap<NodeId, PeerDisk>,
    /// The one that it runs with.
    pub reach: Reach,
}

impl Introduction {
    fn voters(&self) -> NodeSet {
        union(&self.groups, |group| group.voters)
    }

    fn members(&self) -> NodeSet {
        union(&self.groups, |group| group.members)
    }
}

impl Wire for Introduction {
    fn encode(&self, out: &mut Encoder) {
        let Introduction { life, stage, groups, peers, reach } = self;
        life.encode(out);
        stage.encode(out);
        groups.first().expect("a process has a group").encode(out);
        peers.encode(out);
        reach.encode(out);
    }

    fn decode(input: &mut Decoder) -> Result<Self, WireError> {
        let (life, stage, first) = Wire::decode(input)?;
        Ok(Introduction {
            life,
            stage,
            groups: vec![first],
            peers: Wire::decode(input)?,
            reach: Wire::decode(input)?,
        })
    }
}

/// Nodes of any of the groups.
fn union(groups: &[KnownGroup], of: impl Fn(&KnownGroup) -> NodeSet) -> NodeSet {
    groups.iter().fold(NodeSet::EMPTY, |all, group| all.union(of(group)))
}

/// What follows from an introduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The two may speak, as soon as the memory of this revision is durable.
    Accept {
        /// The [revision](Admission::revision) of the memory that must be durable first.
        after: u64,
    },
    /// The peer must not take part, now or later.
    Refuse(Reason),
    /// The peer may be right; it shall ask again.
    NotYet(Reason),
    /// This node must not take part: it stops.
    Stop(Reason),
    /// The two run with different timeouts: the one with the shorter reach starts again. It has to be told, if it is
    /// the peer.
    OtherReach {
        /// The reach of this process.
        mine: Reach,
        /// The reach that the peer has said.
        theirs: Reach,
    },
}

/// Why a disk is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The node whose disk is refused.
    pub node: NodeId,
    /// The node that remembers another disk, or a later start of this one.
    pub witness: NodeId,
    /// What is wrong with the disk.
    pub why: Why,
}
wire_struct!(Reason { node, witness, why });

/// What is wrong with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The node took part with another disk.
    OtherDisk {
        /// The disk that is remembered.
        known: DiskId,
        /// The disk that was presented.
        found: DiskId,
    },
    /// Another disk has taken its place.
    Retired {
        /// The disk that was presented.
        found: DiskId,
    },
    /// It is an old state of the disk.
    OlderLife {
        /// The life that is remembered.
        known: u64,
        /// The life that was presented.
        found: u64,
    },
    /// Two copies of the disk have started.
    Copied {
        /// The life that both count.
        life: u64,
    },
    /// It is empty, and the node has left the group.
    LeftGroup,
    /// It is empty, and the node is a voter: another disk was admitted for that.
    Voter,
    /// It is empty, and is to replace another when all other voters are there.
    Waits,
}
wire_enum!(Why {
    1 => OtherDisk { known, found },
    2 => Retired { found },
    3 => OlderLife { known, found },
    4 => Copied { life },
    5 => LeftGroup,
    6 => Voter,
    7 => Waits,
});

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason { node, witness, why } = self;
        match why {
            Why::OtherDisk { known, found } => write!(
                f,
                "node {node} took part with another data directory: node {witness} remembers the directory {known}, \
                 this one is {found}"
            ),
            Why::Retired { found } => write!(
                f,
                "another data directory has taken the place of this one of node {node}, {found}, as node {witness} \
                 remembers"
            ),
            Why::OlderLife { known, found } => write!(
                f,
                "the data directory of node {node} is an old copy: this is its start number {found}, but node \
                 {witness} remembers start number {known}"
            ),
            Why::Copied { life } => write!(
                f,
                "there are two copies of the data directory of node {node}: node {witness} remembers another start \
                 number {life} of it"
            ),
            Why::LeftGroup => write!(
                f,
                "node {node} starts with an empty data directory as a member of the first day, but it is not in the \
                 group any more, as node {witness} knows"
            ),
            Why::Voter => write!(
                f,
                "node {node} asks to join with an empty data directory, but node {witness} knows it as a voter already"
            ),
            Why::Waits => write!(
                f,
                "node {node} is to replace its data directory by an empty one, and does so when all other members \
                 reach it"
            ),
        }
    }
}

/// Another voter, as a disk has met it that is to replace another.
#[derive(Clone, Copy, Debug)]
struct Presence {
    /// When it has tried to connect last.
    at: Time,
    /// Whether it is to replace its own disk.
    replaces: bool,
}

/// The rules, with what one process knows. See the module comment.
#[derive(Clone, Debug)]
pub struct Admission {
    me: NodeId,
    memory: Memory,
    /// The newest configuration known of each group.
    groups: Vec<KnownGroup>,
    /// Who has bound this node's id to this disk in this life: they remember no later life of it.
    witnesses: NodeSet,
    /// Those of whom a later life or another disk has become known since [`take_outdated`](Self::take_outdated).
    outdated: NodeSet,
    /// Counts changes of the memory in this life.
    revision: u64,
    /// The last revision that is durable.
    durable: u64,
    /// The revision as of which this node is admitted, if it is.
    admitted_at: Option<u64>,
    /// The reach of this process, for all its life.
    reach: Reach,
    round_trips: RoundTrips,
    /// Of a disk that is to replace another: the others that were there in this life.
    presence: BTreeMap<NodeId, Presence>,
    /// Whether all others were there at once in this life, so that it introduces itself.
    replaces: bool,
    /// Whether another has said that it knows this disk.
    is_known: bool,
    /// Of a disk that is to replace others: those of which it has heard, and which the memory does not have as retired.
    lost: BTreeSet<DiskId>,
}

impl Admission {
    /// Begins a life of a directory whose process has these groups, as they were set up. The memory must be durable
    /// before anything is sent. The error says why the directory was refused earlier.
    pub fn start(
        me: NodeId,
        memory: Memory,
        incarnation: u64,
        groups: Vec<KnownGroup>,
    ) -> Result<Admission, Reason> {
        assert!(!groups.is_empty(), "a process has a group");
        if let Some(reason) = memory.refused {
            return Err(reason);
        }
        let mut memory = Memory { own: memory.own.next(incarnation), ..memory };
        if mutation::active("admission/forget-peers") {
            memory.peers.clear();
        }
        let reach = memory.reach;
        if mutation::active("reach/forgotten") {
            memory.reach = Reach::SHORTEST;
        }
        let admitted_at = (memory.stage == Stage::Admitted).then_some(1);
        let mut admission = Admission {
            me,
            reach,
            round_trips: RoundTrips::default(),
            memory,
            groups,
            witnesses: NodeSet::EMPTY,
            outdated: NodeSet::EMPTY,
            revision: 1,
            durable: 0,
            admitted_at,
            presence: BTreeMap::new(),
            replaces: false,
            is_known: false,
            lost: BTreeSet::new(),
        };
        admission.admit_if_enough();
        Ok(admission)
    }

    /// What is to be durable as of [`revision`](Self::revision).
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Grows with every change of the memory; 1 is the beginning of this life.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The memory of this revision is durable.
    pub fn on_durable(&mut self, revision: u64) {
        assert!(revision <= self.revision, "revision {revision} of {} is durable", self.revision);
        self.durable = self.durable.max(revision);
    }

    /// Whether what a verdict waits for is durable.
    pub fn is_durable(&self, revision: u64) -> bool {
        self.durable >= revision
    }

    /// Whether this process may present itself to others: its life is durable.
    pub fn may_speak(&self) -> bool {
        self.durable > 0 || mutation::active("admission/life-not-durable")
    }

    /// Whether its replica may run: it is admitted, and that is durable, so that a later life does not ask again.
    pub fn may_run(&self) -> bool {
        let admitted = self.admitted_at.is_some_and(|revision| self.is_durable(revision));
        let early = mutation::active("admission/life-not-durable") && self.memory.stage == Stage::Admitted;
        admitted || early || mutation::active("admission/off")
    }

    /// Whether its replica may answer processes that remember no disks: proxies that run alone. It needs so many of the
    /// other voters that they are a majority with this node, and that these remember no later life.
    pub fn may_answer_proxies(&self) -> bool {
        let is_believed =
            |others: NodeSet| self.witnesses.intersection(others).len() >= others.len().div_ceil(2);
        self.others_of_each().all(is_believed) || mutation::active("admission/answer-proxies-at-once")
    }

    /// Whether this directory is to replace another, and waits until all other voters are there at once.
    pub fn waits_to_replace(&self) -> bool {
        self.memory.stage == Stage::Replacing
            && !self.replaces
            && !mutation::active("admission/replace-at-once")
    }

    /// Whether the disk that this one is to replace may be retired already: an earlier life has begun with that.
    pub fn may_be_retired(&self) -> bool {
        let retired = |me: &PeerDisk| !me.retired.is_empty();
        self.is_known || self.memory.peers.get(&self.me).is_some_and(retired)
    }

    /// The other voters that are not there, as far as a disk knows that is to replace another. Those that are there and
    /// replace theirs, too, are among them if there are too many.
    pub fn absent(&self, now: Time) -> NodeSet {
        let replacing = self.presence.values().filter(|presence| presence.replaces).count();
        let voters = self.voters();
        let are_few = replacing + voters.majority() < voters.len();
        let counts = |presence: &Presence| {
            now.since(presence.at) <= PRESENCE_TIMEOUT && (are_few || !presence.replaces)
        };
        self.others().iter().filter(|node| !self.presence.get(node).is_some_and(counts)).collect()
    }

    /// What another voter remembers of this node tells a disk that is to replace others which these are.
    pub fn hear_of_own_disk(&mut self, me: Option<&PeerDisk>) {
        let known = me.and_then(|me| me.current.as_ref());
        let Some(known) = known.filter(|_| self.memory.stage == Stage::Replacing) else { return };
        match known.disk == self.memory.own.disk {
            true => self.is_known = true,
            false => drop(self.lost.insert(known.disk)),
        }
    }

    /// Another voter is there; whether it replaces its disk, too. A disk that is to replace another does so now, if it
    /// was the last one that was missing.
    pub fn on_presence(&mut self, from: NodeId, replaces: bool, now: Time) {
        if self.waits_to_replace() {
            self.presence.insert(from, Presence { at: now, replaces });
            // It may have to start again first, which takes longer than a round trip.
            self.replaces = self.absent(now).is_empty() && self.memory.reach <= self.reach;
            self.name_lost();
        }
    }

    /// A disk that replaces others remembers from now on which these are, and names them.
    fn name_lost(&mut self) {
        if self.waits_to_replace() || self.lost.is_empty() {
            return;
        }
        let me = self.memory.peers.entry(self.me).or_default();
        for disk in std::mem::take(&mut self.lost) {
            if !me.retired.contains(&disk) {
                retire(me, disk);
                self.revision += 1;
            }
        }
    }

    /// How this process presents itself; not at all while it [waits](Self::waits_to_replace).
    pub fn introduction(&self) -> Option<Introduction> {
        (!self.waits_to_replace()).then(|| Introduction {
            life: self.memory.own.clone(),
            stage: self.memory.stage,
            groups: self.groups.clone(),
            peers: self.memory.peers.clone(),
            reach: self.reach,
        })
    }

    /// The reach of this process, from its start to its end.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The longer reach with which this process must start again, if it must: that is durable.
    pub fn longer_reach(&self) -> Option<Reach> {
        Some(self.memory.reach).filter(|reach| *reach > self.reach && self.is_durable(self.revision))
    }

    /// This node needs this reach, or one that is as long.
    pub fn need_reach(&mut self, reach: Reach) {
        // The memory has at least that of this process, unless a mutation has removed it.
        if reach > self.memory.reach.max(self.reach) {
            self.memory.reach = reach;
            self.revision += 1;
        }
    }

    /// A round trip to another node was measured. How far voters are from each other counts. `alike` says which reach
    /// has the same timeouts as another.
    pub fn on_round_trip(&mut self, to: NodeId, took: Duration, alike: impl Fn(Reach) -> Reach) {
        self.round_trips.note(to, took);
        if let Some(furthest) = self.furthest() {
            self.need_reach(alike(Reach::of(furthest).min(Reach::MOST_MEASURED)));
        }
    }

    /// The round trip to the voter that is furthest away; none if this node does not vote, or has not measured it.
    pub fn furthest(&self) -> Option<Duration> {
        let voters = Some(self.voters()).filter(|voters| voters.contains(self.me))?;
        self.round_trips.furthest(voters)
    }

    /// The voters of the newest configurations that are known, of all groups.
    fn voters(&self) -> NodeSet {
        union(&self.groups, |group| group.voters)
    }

    /// The same without this node.
    pub fn others(&self) -> NodeSet {
        self.voters().without(self.me)
    }

    /// The other voters of each group.
    fn others_of_each(&self) -> impl Iterator<Item = NodeSet> {
        self.groups.iter().map(|group| group.voters.without(self.me))
    }

    /// How many of so many other voters of a group must bind this node's id to an empty disk before that takes part.
    fn needed(&self, others: usize) -> usize {
        match self.memory.stage {
            Stage::Admitted => 0,
            Stage::Replacing => others,
            // Two sets of so many others share one. A group of one has nobody who could remember.
            Stage::New | Stage::Joining if others > 0 => others / 2 + 1,
            Stage::New | Stage::Joining => 0,
        }
    }

    /// Who has not answered yet, where this node is not admitted.
    pub fn waits_for(&self) -> NodeSet {
        match self.memory.stage {
            Stage::Admitted => NodeSet::EMPTY,
            _ => self.others().iter().filter(|node| !self.witnesses.contains(*node)).collect(),
        }
    }

    /// How many of [`waits_for`](Self::waits_for) must still answer: in the group that lacks most.
    pub fn missing(&self) -> usize {
        let missing = |others: NodeSet| {
            self.needed(others.len()).saturating_sub(self.witnesses.intersection(others).len())
        };
        self.others_of_each().map(missing).max().expect("a process has a group")
    }

    /// This node's log says who is in a group. Who votes in a configuration that was decided was admitted before; of
    /// initial members that leave it is assumed.
    pub fn set_group(&mut self, group: GroupId, now: KnownGroup) {
        let known = &mut self.groups[group.index()];
        let KnownGroup { version, voters, .. } = now;
        // A node that joins has no log yet: it knows no group, or has heard of a newer one.
        let has_heard = self.memory.stage != Stage::Admitted && version < known.version;
        if voters.is_empty() || has_heard {
            return;
        }
        let before = std::mem::replace(known, now).voters;
        let mut changed = false;
        for (node, peer) in &mut self.memory.peers {
            let left = before.contains(*node) && !voters.contains(*node);
            let counts = version > 0 && voters.contains(*node);
            if peer.current.is_some() && (left || counts) {
                changed |= !std::mem::replace(&mut peer.admitted, true);
            }
        }
        self.revision += u64::from(changed);
    }

    /// A peer has introduced itself, or has answered with its introduction.
    pub fn hear(&mut self, from: NodeId, said: &Introduction, now: Time) -> Verdict {
        assert!(from != self.me, "a node does not introduce itself to itself");
        let refuses = !mutation::active("admission/off");
        if let Some(why) = self.judge_myself(said).filter(|_| refuses) {
            let reason = Reason { node: self.me, witness: from, why };
            // An empty directory has nothing to answer for.
            if self.memory.stage == Stage::Admitted {
                self.memory.refused = Some(reason.clone());
                self.revision += 1;
            }
            return Verdict::Stop(reason);
        }
        self.hear_of_own_disk(said.peers.get(&self.me));
        if self.waits_to_replace() {
            self.hear_of_group(said);
            self.need_reach(said.reach);
            self.on_presence(from, said.stage == Stage::Replacing, now);
            if self.waits_to_replace() {
                return Verdict::NotYet(Reason { node: self.me, witness: from, why: Why::Waits });
            }
        }
        self.name_lost();
        let mut peers = self.memory.peers.clone();
        // Only a voter's disk is replaced.
        let may_retire_own = said.stage != Stage::Replacing || self.voters().contains(from);
        for (node, theirs) in said.peers.iter().filter(|(node, _)| may_retire_own || **node != from) {
            let mine = peers.entry(*node).or_default();
            merge(mine, theirs, *node == self.me);
        }
        let verdict = self.judge(peers.entry(from).or_default(), from, said);
        match verdict {
            Err(verdict) if refuses => return verdict,
            Err(_) => peers.entry(from).or_default().current = Some(said.life.clone()),
            Ok(()) => {}
        }
        self.hear_of_group(said);
        peers.retain(|_, peer| *peer != PeerDisk::default());
        if peers != self.memory.peers {
            let known = |node: &NodeId| self.memory.peers.get(node).and_then(|peer| peer.current.as_ref());
            let others = peers.iter().filter(|(node, _)| **node != from);
            let changed = others.filter(|(node, peer)| known(node) != peer.current.as_ref());
            self.outdated = self.outdated.union(changed.map(|(node, _)| *node).collect());
            self.memory.peers = peers;
            self.revision += 1;
        }
        self.need_reach(said.reach);
        if said.reach != self.reach && !mutation::active("reach/spoken-across") {
            return Verdict::OtherReach { mine: self.reach, theirs: said.reach };
        }
        match mutation::active("admission/listen-first") {
            true => Verdict::Accept { after: 0 },
            false => Verdict::Accept { after: self.revision },
        }
    }

    /// A node that is not admitted has no log that says who is in the group.
    fn hear_of_group(&mut self, said: &Introduction) {
        if self.memory.stage != Stage::Admitted {
            let newer =
                self.groups.iter_mut().zip(&said.groups).filter(|(known, said)| said.version > known.version);
            newer.for_each(|(known, said)| *known = *said);
        }
    }

    /// Nodes of which others know another disk or a later life, since this was asked last: a connection to what was
    /// known of them before must end.
    pub fn take_outdated(&mut self) -> NodeSet {
        std::mem::replace(&mut self.outdated, NodeSet::EMPTY)
    }

    /// A peer has answered that it has durably bound this node's id to this disk, and what it said besides is durable
    /// here.
    pub fn on_bound(&mut self, from: NodeId) {
        self.witnesses.insert(from);
        self.admit_if_enough();
    }

    fn admit_if_enough(&mut self) {
        if self.memory.stage != Stage::Admitted && self.missing() == 0 {
            self.memory.stage = Stage::Admitted;
            self.revision += 1;
            self.admitted_at = Some(self.revision);
        }
    }

    /// What a peer remembers of this node that forbids it to take part.
    fn judge_myself(&self, said: &Introduction) -> Option<Why> {
        let Memory { own, stage, peers, .. } = &self.memory;
        let (found, stage) = (own.disk, *stage);
        let voter = said.voters().contains(self.me);
        if let Some(remembered) = said.peers.get(&self.me) {
            if remembered.retired.contains(&found) {
                return Some(Why::Retired { found });
            }
            match &remembered.current {
                Some(known) if known.disk == found => {
                    if let Some(why) = own.contradicts(known) {
                        return Some(why);
                    }
                }
                Some(known) => {
                    let retired = peers.get(&self.me).is_some_and(|me| me.retired.contains(&known.disk));
                    let stops = match stage {
                        Stage::New => true,
                        Stage::Admitted => remembered.admitted,
                        // No disk becomes a voter's before it is admitted.
                        Stage::Joining => remembered.admitted || voter,
                        Stage::Replacing => false,
                    };
                    if stops && !retired {
                        return Some(Why::OtherDisk { known: known.disk, found });
                    }
                }
                None => {}
            }
        }
        (stage == Stage::New && !said.members().contains(self.me)).then_some(Why::LeftGroup)
    }

    /// Takes a peer's disk into the memory, or says what is wrong with it.
    fn judge(&self, known: &mut PeerDisk, from: NodeId, said: &Introduction) -> Result<(), Verdict> {
        let Introduction { life: found, stage, .. } = said;
        let reason = |why| Reason { node: from, witness: self.me, why };
        let refuse = |why| Err(Verdict::Refuse(reason(why)));
        let voter = self.voters().contains(from);
        if known.retired.contains(&found.disk) {
            return refuse(Why::Retired { found: found.disk });
        }
        match &known.current {
            Some(current) if current.disk == found.disk => {
                if let Some(why) = found.contradicts(current) {
                    return refuse(why);
                }
            }
            Some(current) => {
                let takes_its_place = match stage {
                    Stage::New => false,
                    Stage::Joining => !voter && !known.admitted,
                    // It has not heard of that disk yet, or its introduction was on its way for long.
                    Stage::Replacing if voter && !mutation::active("admission/replaces-unnamed") => {
                        let why = Why::OtherDisk { known: current.disk, found: found.disk };
                        return Err(Verdict::NotYet(reason(why)));
                    }
                    Stage::Replacing => voter,
                    // Two disks of one id are never both admitted, unless one was retired.
                    Stage::Admitted => !known.admitted,
                };
                if !takes_its_place {
                    return refuse(Why::OtherDisk { known: current.disk, found: found.disk });
                }
                let replaced = current.disk;
                retire(known, replaced);
            }
            None => {}
        }
        match stage {
            Stage::New if !union(&self.groups, |group| group.members).contains(from) => {
                return refuse(Why::LeftGroup);
            }
            // No disk becomes a voter's before it is admitted, so another one was; perhaps it has left since.
            Stage::Joining if voter => return Err(Verdict::NotYet(reason(Why::Voter))),
            Stage::New | Stage::Joining | Stage::Replacing | Stage::Admitted => {}
        }
        known.current = Some(found.clone());
        let counts = |group: &KnownGroup| group.version > 0 && group.voters.contains(from);
        known.admitted |= *stage == Stage::Admitted || self.groups.iter().any(counts);
        Ok(())
    }
}

fn retire(known: &mut PeerDisk, disk: DiskId) {
    known.retired.push(disk);
    if known.retired.len() > RETIRED {
        known.retired.remove(0);
    }
    (known.current, known.admitted) = (None, false);
}

/// Adds what another remembers of a node; where the two contradict each other, what was admitted wins, then what is
/// remembered here.
fn merge(mine: &mut PeerDisk, theirs: &PeerDisk, is_me: bool) {
    for disk in &theirs.retired {
        if mine.current.as_ref().is_some_and(|current| current.disk == *disk) {
            retire(mine, *disk);
        } else if !mine.retired.contains(disk) && mine.retired.len() < RETIRED {
            mine.retired.push(*disk);
        }
    }
    let Some(current) = theirs.current.as_ref().filter(|current| !mine.retired.contains(&current.disk))
    else {
        return;
    };
    match &mine.current {
        _ if is_me => {}
        Some(known) if known.disk == current.disk => {
            if current.contradicts(known).is_none() {
                mine.current = Some(current.clone());
            }
            mine.admitted |= theirs.admitted;
        }
        Some(_) if mine.admitted || !theirs.admitted => {}
        Some(_) | None => {
            (mine.current, mine.admitted) = (Some(current.clone()), theirs.admitted);
        }
    }
}

#[cfg(test)]
#[path = "admission/tests.rs"]
mod tests;
