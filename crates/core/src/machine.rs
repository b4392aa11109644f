//! The contract between protocols and drivers. `docs/design/contract.md` says why each piece is there.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use bytes::Bytes;

use crate::context::{Context, Instant};
use crate::id::{NodeId, NodeSet, ProcessId, RequestId};
use crate::request::{Access, Request, Staleness};
use crate::sample::{Amount, Sample};
use crate::settings::{Settings, SettingsError};
use crate::wire::{Decoder, Encoder, Wire, WireError};

/// When a message may leave its sender. Declared once per message type, by an exhaustive `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// At once: it promises nothing that a crash could undo.
    Now,
    /// When every record persisted before it was sent is durable.
    AfterSync,
}

/// The priority of a message: what of a link's messages goes first. Those of a class go in the order in which they were
/// sent; those of another may pass them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Before all else: it is small, and others wait for it, or take its sender for dead without it.
    #[default]
    Urgent,
    /// When nothing urgent waits, a frame ([`FRAME`](crate::link::FRAME)) at a time: what clients write, or have read.
    /// There may be more of it than the link carries.
    Write,
    /// In turn with writes, a frame at a time ([`ClassScheduler`](crate::link::ClassScheduler)): it is large, and late
    /// is good enough, but not for ever.
    Bulk,
    /// When nothing of the others waits, a frame at a time: what spares its receiver to fetch it later.
    Gossip,
}

impl Class {
    /// All of them, the first to go first.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::Write, Class::Bulk, Class::Gossip];
}

/// When messages of a type arrive in an exploration of all behaviours (`quorate sim --explore`). To take more orders
/// than necessary costs states and never misses a violation; to leave some out is a protocol's own claim that they make
/// no difference to what is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Before or after any other message, or never.
    Any,
    /// As soon as it is sent: it binds nobody, and what it tells is told again and again.
    AtOnce,
    /// As soon as it is sent; and as `Any`, if its receiver takes no notice of it then.
    AtOnceOrLater,
    /// It gives a lease back: as `AtOnce` where leases are taken for facts, and as `Any` otherwise.
    GivesBack,
    /// It only makes all leave a ballot at about the same time: never where leases are taken for facts, and as `Any`
    /// otherwise.
    Leaves,
    /// It only tells of a higher ballot: as `Any` where hints are explored, and never otherwise.
    Hint,
    /// Never: what it asks for is offered anyway.
    Never,
}

/// What a timer of a replica is to an exploration of all behaviours (`quorate sim --explore`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// Somebody takes over: stands for election, or recovers what another has left. It goes off `times` times in a row,
    /// as long as nothing is sent but what arrives at once.
    TakesOver {
        /// How often it must go off until something happens, at most.
        times: u8,
    },
    /// It matters, and goes off as often as the bounds of the exploration say.
    Matters,
    /// It never goes off: it repeats what was lost, or tells sooner what is told anyway.
    Spared,
}

/// What the machines of a protocol say to each other.
pub trait Message: Wire + Clone + Debug + Send + 'static {
    /// When a message of this type may leave.
    fn release(&self) -> Release;

    /// The name of its type, for traces, metrics and mutations.
    fn kind(&self) -> &'static str;

    /// The number (ballot, term, view) below which whoever sends it takes part in nothing any more, in this life or a
    /// later one: for checkers. `None` if it binds its sender to nothing.
    fn binds(&self) -> Option<u64> {
        None
    }

    /// What it waits for.
    fn class(&self) -> Class {
        Class::Urgent
    }

    /// When it arrives in an exploration of all behaviours.
    fn arrival(&self) -> Arrival {
        Arrival::Any
    }
}

/// A deterministic state machine that a driver steps. Equal inputs give equal outputs.
///
/// Inputs may come in any order, late, twice or never. A machine never blocks, never asks a clock, and says what
/// it wants through its [`Context`]. Its `Debug` output shows its whole state, but for what [`Replica::fingerprint`]
/// and [`Replica::marginal`] show, and for statistics: the explorer tells states apart by a digest of all three.
pub trait Machine: Sized + Debug {
    /// Everything it is told at its creation; valid by construction.
    type Config: Clone + Debug + Send + Sync;
    /// What it says and hears.
    type Message: Message;
    /// What must survive a crash ([`Never`] if nothing).
    type Record: Wire + Clone + Debug + Send;
    /// The wake-ups it can ask for, one sentence each where they are declared.
    type Timer: Copy + Ord + Debug;

    /// Starts from nothing, or resumes after a crash from what was durable.
    fn recover(config: Self::Config, saved: Saved<Self::Record>, cx: &mut Context<'_, Self>) -> Self;

    /// A message has come in. `from` is authenticated by the driver.
    fn on_message(&mut self, from: ProcessId, message: Self::Message, cx: &mut Context<'_, Self>);

    /// A timer that was set and not cancelled since is due.
    fn on_timer(&mut self, timer: Self::Timer, cx: &mut Context<'_, Self>);

    /// All inputs that were waiting are processed: propose what gathered, acknowledge once. A process ends the batch
    /// of its proxy before that of its replica: what the proxy sends to the replica beside it then is in the replica's
    /// batch.
    fn on_batch_end(&mut self, _cx: &mut Context<'_, Self>) {}

    /// What a timer is to an exploration of all behaviours.
    fn wakeup(_timer: Self::Timer) -> Wakeup {
        Wakeup::Spared
    }

    /// Asserts what must always hold locally. The simulator calls it after every step.
    fn check(&self) {}
}

/// What a node is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// Room on the disk.
    Disk,
    /// Memory, where nothing else bounds the data.
    Memory,
}

/// A machine that holds a share of the replicated state.
pub trait Replica: Machine {
    /// Everything `recover` needs to become this machine again (inverse of `recover`). Once it is durable, all
    /// records persisted before may be dropped. Must be cheap: the snapshot is a frozen image, encoded elsewhere.
    fn save(&self) -> Saved<Self::Record>;

    /// What a member of a new group starts from if the group does not begin with nothing but with this state: an image
    /// of the replicated state that executed a first slot, and that knows no configuration and no roster. Only the
    /// members' names may make a difference, and whoever comes later must get the state from a member.
    fn found(_config: &Self::Config, state: Snapshot) -> Saved<Self::Record> {
        Saved { restarted: true, snapshot: Some(state), records: Vec::new() }
    }

    /// The state that a new group is to begin with if this replica is all that is left of its group: with everything
    /// executed that its log gives, whether that was decided or not. A write that was answered needs a majority, so it
    /// may be missing where the majority is; one that was not answered may be in it.
    fn salvage(&self) -> Salvaged {
        Salvaged { state: self.image(), undecided: 0, left_out: 0 }
    }

    /// The state here as any protocol can begin with it, for backups; as cheap as [`save`](Self::save).
    fn image(&self) -> Snapshot {
        self.save().snapshot.expect("the state that a replica saves")
    }

    /// Whether every write that was acknowledged before this instant is in the state here, as far as the replica can
    /// tell without asking others. Backups need it where no read is about all keys
    /// ([`Capabilities::multi_key`]).
    fn has_everything(&self, _at: Instant) -> bool {
        false
    }

    /// The process is going to stop soon: hand over what others would have to wait for.
    fn on_drain(&mut self, _cx: &mut Context<'_, Self>) {}

    /// A client of this node waits until the state here shows this slot. What the replica puts off to spare others work
    /// it does now.
    fn on_awaited(&mut self, _slot: u64, _cx: &mut Context<'_, Self>) {}

    /// What this node is short of. What it would propose for clients, as the leader or where any replica may, it
    /// refuses meanwhile if it grows the data; it votes as before.
    fn set_shortage(&mut self, shortage: Option<Shortage>);

    /// What the state machine has executed, as a number (the last slot; without a total order, a digest of the set of
    /// instances), and a digest of its whole state: equal numbers must mean equal digests at every replica. Slow; for
    /// checkers.
    fn fingerprint(&self) -> (u64, u64);

    /// What it has [`Marginal`] state of. The explorer takes states that differ in nothing else for alike, and verifies
    /// that they behave alike.
    fn marginal(&self) -> &dyn Debug {
        &()
    }

    /// The encoded reply to a read of the state that is here, however far behind the others it is.
    fn read(&self, command: &Bytes) -> Bytes;

    /// Whether a read that came in at this instant would be answered at once, from the state that is here; for
    /// checkers. The protocol's read rule, as it is applied to clients.
    fn would_answer(&self, _command: &Bytes, _at: Instant) -> bool {
        false
    }

    /// For people and tools; `at` is what this process's clocks show.
    fn status(&self, at: Instant) -> Status;
}

/// State that hardly ever makes a difference, such as when another replica was last heard. Its `Debug` shows nothing;
/// [`Replica::marginal`] does.
#[derive(Clone, Default)]
pub struct Marginal<T>(pub T);

impl<T> Debug for Marginal<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

/// A protocol's client side. It keeps nothing on disk: a restarted proxy is a new one.
pub trait Proxy: Machine<Record = Never> {
    /// A client asks. Must be answered by `Context::reply` no later than the request's deadline.
    fn on_request(&mut self, id: RequestId, request: Request, cx: &mut Context<'_, Self>);

    /// What it counts, for people and tools.
    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }
}

/// A replication protocol: two machines that speak one language, the replica and its client side.
pub trait Protocol: 'static {
    /// As the command line and the peer handshake spell it.
    const NAME: &'static str;
    /// Where it comes from, for `quorate protocols`.
    const PAPER: &'static str;
    /// What it gives and needs.
    const CAPABILITIES: Capabilities;
    /// What its machines say to each other.
    type Message: Message;
    /// A member of the group.
    type Replica: Replica<Message = Self::Message>;
    /// What runs for the clients, beside a replica or alone.
    type Proxy: Proxy<Message = Self::Message>;

    /// The configurations of one member's replica and of any proxy of a group. Takes the settings it knows;
    /// the caller refuses what is left over.
    fn configure(group: &Group, settings: &mut Settings) -> Result<Configs<Self>, SettingsError>
    where
        Self: Sized;
}

/// What [`Protocol::configure`] makes: the replica's configuration and the proxy's.
pub type Configs<P> =
    (<<P as Protocol>::Replica as Machine>::Config, <<P as Protocol>::Proxy as Machine>::Config);

/// The replicas that a machine is configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The voters with which the group begins.
    pub members: NodeSet,
    /// Where peers reach them, as `host:port`; simulators have none.
    pub addresses: BTreeMap<NodeId, String>,
    /// This replica is none of the initial members: it does nothing until the group's log reaches it.
    pub joining: bool,
    /// This replica belongs to an initial member whose disk was lost, and starts from an empty one. It must not vote,
    /// propose or answer before it knows everything that its previous life may have voted for.
    ///
    /// The driver sets it only after *every* other member has durably bound the node's id to the new disk: from then
    /// on no message of the previous life is delivered anywhere. A replica records that it rejoins and when it has
    /// finished; after that the flag has no effect, so a driver may go on setting it. Refused where
    /// [`Capabilities::rejoin`] is false.
    pub rejoining: bool,
    /// This replica keeps its data in memory alone (`--durability none`): it persists nothing but what it has promised.
    /// Only where [`Capabilities::diskless`] is [`Diskless::Data`].
    pub diskless: bool,
    /// Who stands first for leader when all is new; `None`: whoever comes to it first. So that of several groups in one
    /// process each has another leader at first.
    pub first_leader: Option<NodeId>,
}

impl Group {
    /// Of these initial members.
    pub fn of(members: NodeSet) -> Group {
        let addresses = BTreeMap::new();
        Group { members, addresses, joining: false, rejoining: false, diskless: false, first_leader: None }
    }

    /// Whether this member waits for another to stand first.
    pub fn waits_for_first_leader(&self, me: NodeId) -> bool {
        self.first_leader.is_some_and(|first| first != me)
    }
}

/// What a protocol gives and needs: decides at start-up which combinations are refused.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// All commands are executed in one order everywhere. Else only those that interfere are, and no read mode can
    /// follow a client's writes by the last slot.
    pub total_order: bool,
    /// Commands on several keys, or about all there are, are executed as one. Else whoever speaks with clients refuses
    /// them.
    pub multi_key: bool,
    /// The rest serves when some nodes are lost or slow for good, as long as a quorum is left. Else simulators spare
    /// its nodes such faults.
    pub failover: bool,
    /// Of so many voters, how many are a quorum.
    pub quorum: fn(usize) -> usize,
    /// A client is served through any member that reaches a quorum. Else its node must reach the leader.
    pub leaderless: bool,
    /// Who is in the group can change while it runs ([`Manage`](crate::Manage)).
    pub membership: bool,
    /// Operators can say who leads ([`Manage::Transfer`](crate::Manage::Transfer)). Not where nobody does.
    pub transfer: bool,
    /// A member that lost its disk can come back under its own id ([`Group::rejoining`]). Protocols that can change the
    /// group have no need of it: there the member is removed and added.
    pub rejoin: bool,
    /// Operators can say who serves reads of what ([`Manage::Roster`](crate::Manage::Roster)).
    pub rosters: bool,
    /// What `--durability none` spares it.
    pub diskless: Diskless,
    /// Grows by one with each change of the protocol's messages after a release that builds before cannot read: peers
    /// with another number refuse each other.
    pub message_revision: u8,
    /// How reads are served by default, in a few words.
    pub reads: &'static str,
    /// What holds of replies to reads under these settings, from which the protocol was configured.
    pub consistency: fn(&Settings) -> Consistency,
    /// The smallest group that makes sense.
    pub min_nodes: usize,
    /// The largest group that makes sense.
    pub max_nodes: usize,
}

/// What a protocol does without when a node is started with `--durability none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diskless {
    /// Nothing, so it is refused: a restarted replica relies on everything that it has written.
    No,
    /// Its data, which are in memory alone ([`Group::diskless`]). What it has promised is on its disk and synced.
    Data,
    /// The whole disk: a restarted replica relies on nothing that it has written.
    All,
}

/// What holds of replies to reads that do not say themselves what they may miss
/// ([`Access::Within`]). Writes are linearizable everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// A read sees every write that was acknowledged before it was asked.
    Linearizable,
    /// There is one order of all writes. What a client reads is the state after some of them, which contains its own
    /// writes and never goes back, at whichever node it asks ([`Request::after`](crate::Request::after)). What others
    /// have written it may miss.
    Sequential,
}

impl Consistency {
    /// The name, as status and documents have it.
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Linearizable => "linearizable",
            Consistency::Sequential => "sequential",
        }
    }

    /// What a read asks for that must see every write which was acknowledged before it.
    pub fn access_that_misses_nothing(self) -> Access {
        match self {
            Consistency::Linearizable => Access::Read,
            Consistency::Sequential => Access::Within(Staleness::Versions(0)),
        }
    }
}

impl Capabilities {
    /// Of a protocol that keeps one log on disks and reads through it. Others say where they differ.
    pub const LOGGED: Capabilities = Capabilities {
        total_order: true,
        multi_key: true,
        failover: true,
        quorum: |voters| voters / 2 + 1,
        leaderless: false,
        membership: false,
        transfer: false,
        rejoin: false,
        rosters: false,
        diskless: Diskless::No,
        message_revision: 1,
        reads: "through the log",
        consistency: |_| Consistency::Linearizable,
        min_nodes: 1,
        max_nodes: NodeId::MAX as usize,
    };
}

/// What a replica starts from.
#[derive(Debug, Clone)]
pub struct Saved<R> {
    /// Whether this replica ran before: a rebooted grantor must wait out promises it cannot remember.
    pub restarted: bool,
    /// The state machine up to some point, if one was saved.
    pub snapshot: Option<Snapshot>,
    /// What was persisted since, oldest first.
    pub records: Vec<R>,
}

impl<R> Saved<R> {
    /// What a replica has that starts for the first time.
    pub fn nothing() -> Saved<R> {
        Saved { restarted: false, snapshot: None, records: Vec::new() }
    }
}

/// A frozen state-machine image that is read piece by piece, so that encoding, writing and sending it never
/// needs a second copy of the state in memory.
pub trait Image: Send + Sync + Debug {
    /// The piece at a cursor: the empty cursor is the first, `next` of a piece leads to the one after it.
    /// Pieces are about `limit` bytes, however large what they hold; equal cursors and limits give equal pieces.
    fn piece(&self, cursor: &Bytes, limit: usize) -> Piece;

    /// All pieces in order, at once: for what is known to be small.
    fn pieces(&self, limit: usize) -> Vec<Bytes> {
        let (mut pieces, mut cursor) = (Vec::new(), Some(Bytes::new()));
        while let Some(at) = cursor {
            let Piece { bytes, next } = self.piece(&at, limit);
            pieces.push(bytes);
            cursor = next;
        }
        pieces
    }

    /// Checks that this image can be loaded from these pieces, all of its own in order, as they were read back from
    /// where they were written. Must take all of them. The error says what is wrong with them.
    fn verify(&self, pieces: &mut dyn Iterator<Item = Bytes>) -> Result<(), String> {
        pieces.for_each(drop);
        Ok(())
    }
}

/// A part of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What is to be written or sent.
    pub bytes: Bytes,
    /// Where the next piece begins; `None` after the last.
    pub next: Option<Bytes>,
}

/// An image that several readers share: the log, peers, a backup.
pub type Snapshot = Arc<dyn Image>;

/// What one replica gives to a group that takes the place of its own ([`Replica::salvage`]).
#[derive(Clone, Debug)]
pub struct Salvaged {
    /// The state machine with all that was executed or is in the log without a gap.
    pub state: Snapshot,
    /// Slots in it that this replica did not know to be decided.
    pub undecided: u64,
    /// Slots of its log that are not in it, because one before them or their value is not here.
    pub left_out: u64,
}

/// What does not happen: the record type of machines that keep nothing on disk, the timer type of those that set
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Never {}

impl Message for Never {
    fn release(&self) -> Release {
        match *self {}
    }
    fn kind(&self) -> &'static str {
        match *self {}
    }
}

impl Wire for Never {
    fn encode(&self, _: &mut Encoder) {
        match *self {}
    }
    fn decode(_: &mut Decoder) -> Result<Self, WireError> {
        Err(WireError::Value { what: "record of a machine that keeps none", found: 0 })
    }
}

/// A replica's state in the terms all protocols share, for `quorate status` and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is now: `"leader"`, `"follower"`, `"candidate"`, …
    pub role: &'static str,
    /// Whom it believes to lead, in protocols with a leader.
    pub leader: Option<NodeId>,
    /// Its ballot, term or view, as the protocol writes it.
    pub ballot: String,
    /// The last slot up to which it knows everything to be decided.
    pub committed: u64,
    /// The last slot its state machine has executed.
    pub applied: u64,
    /// Whether it could answer a linearizable read from its own state right now.
    pub lease: bool,
    /// How a linearizable read would be served right now, in a word or two.
    pub reads: &'static str,
    /// The other members as it sees them; empty where it does not track them.
    pub peers: Vec<PeerStatus>,
    /// What it counts and knows beside, each under a name that all protocols share who have it.
    pub samples: Vec<Sample>,
    /// What it says of itself in words: name, value.
    pub facts: Vec<(&'static str, String)>,
}

impl Status {
    /// What memory is lost ([`GROUP_MEMORY`], [`MEMORY`]), if any is: nodes log it, and tell clients whom nobody has
    /// answered in time.
    pub fn lost_memory(&self) -> Option<String> {
        let fact = |sought| self.facts.iter().find(|(name, _)| *name == sought);
        fact(GROUP_MEMORY).or_else(|| fact(MEMORY)).map(|(_, lost)| lost.clone())
    }

    /// What is counted under a name, in all groups together; 0 where there is none.
    pub fn count(&self, name: &str) -> u64 {
        let samples = self.samples.iter().filter(|sample| sample.name == name);
        samples.map(|sample| if let Amount::Count(count) = sample.value { count } else { 0 }).sum()
    }
}

/// The [role](Status::role) of a member that has lost its disk and does not have everything again; and the fact in
/// [`Status::facts`] that says what it waits for.
pub const REJOINING: &str = "rejoining";

/// A fact in [`Status::facts`]: whose wall clocks are off, and how, where any is. Nodes log it.
pub const WALL_CLOCK: &str = "wall_clock";

/// A fact in [`Status::facts`]: the node has lost what it kept in memory alone, and does not have it again.
pub const MEMORY: &str = "memory";

/// A fact in [`Status::facts`]: so many nodes have lost their memory that the group serves nobody.
pub const GROUP_MEMORY: &str = "group_memory";

/// Another member, seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The other member.
    pub node: NodeId,
    /// How many slots it is behind what is committed here.
    pub lag: u64,
    /// How long ago it was last heard, in milliseconds; `None` if never.
    pub heard_ms: Option<u64>,
}
