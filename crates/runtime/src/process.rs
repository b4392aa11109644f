//! A process as its driver sees it: bytes in, effects out, and answers to questions about its state.
//!
//! One turn of a driver: [`take`](AnyProcess::take) an input and [`step`](AnyProcess::step), as often as there is
//! input; [`end_batch`](AnyProcess::end_batch); write the records in [`Effects`]; then
//! [`release`](AnyProcess::release) with the number of records that are durable, and send the frames. Where own
//! messages come back as input at once, [`settle`](AnyProcess::settle) does the middle of it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use quorate_core::{
    Answered, Arrival, Class, Fact, GroupId, Instant, Mark, Members, NodeId, Payload, ProcessId, ProxyId,
    Random, Recipients, Request, RequestId, Salvaged, Sample, Saved, Shortage, Snapshot, Status, Time,
    Wakeup, Wire, WireError,
};
use thiserror::Error;

/// What a process begins with.
pub struct Start {
    /// The name of its proxy.
    pub proxy: ProxyId,
    /// The name of its replica; `None` for a process that runs a proxy alone.
    pub node: Option<NodeId>,
    /// What the clocks show as the process starts.
    pub at: Instant,
    /// For what the proxy draws.
    pub random: Random,
    /// Whether facts are wanted, and invariants checked after every step.
    pub observed: bool,
    /// What becomes of messages that its machines send to each other or to themselves.
    pub own: OwnMessages,
}

/// What becomes of a message from one machine of a process to another, or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnMessages {
    /// It stays typed and inside: [`settle`](AnyProcess::settle) acts on it.
    Settled,
    /// It stays typed, and becomes an [`Input::Own`], which a frame announces.
    AsInput,
    /// It leaves as any other: a script may lose or repeat it.
    AsFrames,
}

/// What can happen to a process from outside. Timers are [`taken`](AnyProcess::take_due_timer) otherwise.
#[derive(Clone)]
pub enum Input {
    /// A message of another process, whose name the driver has made sure of.
    Frame {
        /// The machine that sent it.
        from: ProcessId,
        /// Which of the two machines it is for.
        to: ProcessId,
        /// The message as the sender has encoded it; refused if it cannot be decoded.
        payload: Bytes,
    },
    /// The oldest message of this process to itself ([`OwnMessages::AsInput`]). There is one for each frame with
    /// [`OutgoingFrame::own`].
    Own,
    /// A client's request to the proxy, under an id that is unique while the process lives.
    Request(RequestId, Request),
    /// The process is going to stop soon.
    Drain,
    /// A client waits until the state of the replica, or of the first group's, shows this slot.
    Awaited(u64),
}

/// An input that was taken and waits for its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The machine that it is for.
    pub to: ProcessId,
    /// Who sent it, if it is a message.
    pub from: Option<ProcessId>,
    /// What it is: the kind of the message, `"request"`, `"timer"`, `"drain"` or `"awaited"`.
    pub kind: &'static str,
}

/// A message on its way out, and free to leave.
#[derive(Clone, Debug)]
pub struct OutgoingFrame {
    /// The machine that sent it.
    pub from: ProcessId,
    /// Of which group that is.
    pub group: GroupId,
    /// The other processes that it is for; no replicas at all if it is for this process alone.
    pub to: Recipients,
    /// Whether it is (also) for this process, and queued as [`Input::Own`].
    pub own: bool,
    /// The kind of the message.
    pub kind: &'static str,
    /// The number below which the sender takes part in nothing any more
    /// ([`Message::binds`](quorate_core::Message::binds)).
    pub binds: Option<u64>,
    /// When it arrives in an exploration.
    pub arrival: Arrival,
    /// Whether it may wait for what is urgent.
    pub class: Class,
    /// The encoded message; empty if it is for this process alone.
    pub payload: Payload,
}

/// What the steps of a process have led to, in order, until the driver takes it. Frames come with
/// [`release`](AnyProcess::release), all else with the step.
#[derive(Debug, Default)]
pub struct Effects {
    /// To append to the log, encoded.
    pub records: Vec<Payload>,
    /// Numbers of records that count as durable only with a state that was saved after them; counted from 1 since the
    /// replica started ([`Context::persist_state`](quorate_core::Context::persist_state)).
    pub barriers: Vec<u64>,
    /// Messages that may leave, in the order in which they must.
    pub frames: Vec<OutgoingFrame>,
    /// To hand to clients.
    pub replies: Vec<Answered>,
    /// What the replica of a group states for checkers, if the process is observed.
    pub facts: Vec<(GroupId, Fact)>,
    /// Who is in the group as the replica, and as the proxy, of each group have said last.
    pub members: (BTreeMap<GroupId, Members>, BTreeMap<GroupId, Members>),
    /// What the proxy of a group marks of requests, and when its step began.
    pub request_marks: Vec<(GroupId, Mark, Time)>,
    /// What the replica of a group marks of slots, when its step began, and how many records the process had persisted
    /// after it.
    pub slot_marks: Vec<(GroupId, Mark, Time, u64)>,
}

/// A record that is no record of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("record {index} cannot be read back: {source}")]
pub struct RecordError {
    /// Its place, from 0.
    pub index: usize,
    /// Why its bytes are refused.
    pub source: WireError,
}

/// A timer that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetTimer {
    /// Its `Debug` output, for scripts and people.
    pub name: String,
    /// What it is to an exploration.
    pub wakeup: Wakeup,
    /// When it is due.
    pub at: Time,
}

/// Digests of everything that the future of a replica depends on but its generator and its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateDigests {
    /// Of all of it.
    pub exact: u128,
    /// Without what is [`marginal`](quorate_core::Replica::marginal).
    pub alike: u128,
}

/// What encoded bytes of a process are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A message between machines.
    Message,
    /// A record of the replica's.
    Record,
}

/// A message or a record, whichever type it has.
pub trait Decoded: Debug {
    /// Its encoding.
    fn encoded(&self) -> Bytes;
}

impl<T: Wire + Debug> Decoded for T {
    fn encoded(&self) -> Bytes {
        self.to_bytes()
    }
}

/// A process of some protocol, or of several groups of replicas with a protocol each. An object, so that drivers are
/// compiled once and not for every protocol.
///
/// Where there are several groups, "the replica" is all of this node's, and "the proxy" likewise: they have one log,
/// and one sequence of inputs and of effects. Implemented by `ProcessRunner`, which is one group
/// ([`GroupProcess`]), and by what holds several of them.
pub trait AnyProcess {
    // Inputs -----------------------------------------------------------------------------------------------------

    /// Takes an input, on which the next [`step`](Self::step) acts. Read the clock in between. The error says why the
    /// bytes of a frame are no message. Panics if an input is waiting for its step already, and if there is no own
    /// message to take.
    fn take(&mut self, input: Input) -> Result<Taken, WireError>;

    /// Takes the earliest timer that is due, as an input; the replica's before the proxy's.
    fn take_due_timer(&mut self, now: Time) -> Option<Taken>;

    /// Acts on the input that was taken. What comes for a replica that does not run is lost.
    fn step(&mut self, at: Instant);

    /// Ends the batch: the proxy's, then the replica's.
    fn end_batch(&mut self, at: Instant);

    /// Moves the messages to [`Effects::frames`] that may leave now that so many records of this start are durable.
    fn release(&mut self, durable: u64);

    /// Acts on own messages, ends batches and releases messages until both machines are at rest, or for so many rounds;
    /// false if they are not at rest then. The clock is read for every step.
    fn settle(&mut self, rounds: usize, clock: &dyn Fn() -> Instant) -> bool;

    // The replica's life -----------------------------------------------------------------------------------------

    /// Decodes what the replica will start from.
    fn load(&mut self, saved: Saved<Bytes>) -> Result<(), RecordError>;

    /// Starts the replica from what was loaded. Panics if nothing was.
    fn start_replica(&mut self, at: Instant, random: Random);

    /// Whether the replica runs.
    fn has_replica(&self) -> bool;

    /// What [`load`](Self::load) needs to make this replica again; `None` if it does not run.
    fn save(&self) -> Option<Saved<Payload>>;

    // Effects ----------------------------------------------------------------------------------------------------

    /// What the steps have led to; the driver drains it.
    fn effects(&mut self) -> &mut Effects;

    /// Whether this node's disk is nearly full; for the replica, if there is one.
    fn set_shortage(&mut self, shortage: Option<Shortage>);

    /// Whether marks are wanted from now on.
    fn set_timed(&mut self, timed: bool);

    // Questions --------------------------------------------------------------------------------------------------

    /// The processes of its groups, in their order; itself, if it is one group's.
    fn groups(&self) -> Vec<&dyn GroupProcess>;

    /// Itself, if it is one group's.
    fn into_one_group(self: Box<Self>) -> Option<Box<dyn GroupProcess>> {
        None
    }

    /// When the next timer is due.
    fn deadline(&self) -> Option<Time>;

    /// Records of the replica since it started.
    fn persisted(&self) -> u64;

    /// Messages that wait for records to be durable.
    fn waiting(&self) -> usize;

    /// Whether [`release`](Self::release) with this number would let a waiting message go.
    fn would_release(&self, durable: u64) -> bool;

    /// The replica's status, if it runs.
    fn status(&self, at: Instant) -> Option<Status>;

    /// The status of each group's replica, in the order of the groups; none where it does not run.
    fn group_statuses(&self, at: Instant) -> Vec<Status> {
        self.groups().into_iter().filter_map(|group| group.status(at)).collect()
    }

    /// How many of the first so many records of this start are a group's.
    fn records_of(&self, _group: GroupId, upto: u64) -> u64 {
        upto
    }

    /// What the proxy counts.
    fn proxy_samples(&self) -> Vec<Sample>;

    /// A read of the replica's state as it is, if it runs.
    fn read(&self, command: &Bytes) -> Option<Bytes>;

    /// The replica's state for a backup ([`Replica::image`](quorate_core::Replica::image)), if it runs; several groups
    /// have no state that one group could begin with.
    fn image(&self) -> Option<Snapshot> {
        None
    }

    /// See [`Replica::has_everything`](quorate_core::Replica::has_everything).
    fn has_everything(&self, at: Instant) -> bool {
        let _ = at;
        false
    }

    /// Whether the replica would answer a read at once from its own state.
    fn would_answer(&self, command: &Bytes, at: Instant) -> bool;

    /// The input that waits for its step, if it is a request.
    fn taken_request(&self) -> Option<(RequestId, &Request)>;

    /// The input that waits for its step, for people.
    fn describe_taken(&self) -> String;

    /// Decodes a message, or a record.
    fn decode(&self, what: Encoding, bytes: Bytes) -> Result<Box<dyn Decoded>, WireError>;

    /// An encoded message, for people.
    fn describe_message(&self, payload: &Bytes) -> String {
        describe(self.decode(Encoding::Message, payload.clone()))
    }

    /// An encoded record, for people.
    fn describe_record(&self, payload: &Payload) -> String {
        describe(self.decode(Encoding::Record, payload.clone().into_bytes()))
    }

    /// Decodes a message, and encodes it again: what a machine has encoded comes out as it was.
    fn recode_message(&self, payload: &Bytes) -> Result<Bytes, WireError> {
        Ok(self.decode(Encoding::Message, payload.clone())?.encoded())
    }

    /// Decodes a record, and encodes it again.
    fn recode_record(&self, payload: &Bytes) -> Result<Bytes, WireError> {
        Ok(self.decode(Encoding::Record, payload.clone())?.encoded())
    }
}

/// The process of one group. What explorations and scripts do with it, which have no others, and what is each group's
/// own where there are several.
pub trait GroupProcess: AnyProcess {
    /// Takes the timer at this place of [`timers`](Self::timers), as an input, whether it is due or not. For scripts
    /// and explorations.
    fn take_timer(&mut self, of: ProcessId, place: usize) -> Taken;

    /// Forgets all timers of the replica but these. For explorations.
    fn keep_timers(&mut self, keep: fn(Wakeup) -> bool);

    /// The replica draws from this generator from now on. For explorations.
    fn reseed(&mut self, random: Random);

    /// The timers that are set by the replica, or by the proxy, in the order of their type.
    fn timers(&self, of: ProcessId) -> Vec<SetTimer>;

    /// By which explorations tell states apart; `None` if the replica does not run.
    fn digests(&self) -> Option<StateDigests>;

    /// What the replica gives to a group that takes the place of its own
    /// ([`Replica::salvage`](quorate_core::Replica::salvage)); `None` if it does not run.
    fn salvage(&self) -> Option<Salvaged>;

    /// See [`Replica::fingerprint`](quorate_core::Replica::fingerprint); `None` if it does not run.
    fn fingerprint(&self) -> Option<(u64, u64)>;
}

fn describe(decoded: Result<Box<dyn Decoded>, WireError>) -> String {
    decoded.map_or_else(|error| format!("unreadable: {error}"), |value| format!("{value:?}"))
}
