//! **PQR**, Paxos quorum reads: a read asks a majority of the replicas what they have executed and accepted, and
//! needs neither the leader nor a lease.
//!
//! Charapko, Ailijiang, Demirbas, *Linearizable Quorum Reads in Paxos* (2019); Bodega §2.3.2. On the
//! machine of [`crate::paxos::engine`], whose `mod.rs` tells elections, votes and what is durable.
//!
//! | rule | code |
//! |---|---|
//! | a replica says what it has executed, and the last slot behind with a vote of its own that writes what is read | `observation` |
//! | **read rule**: from a majority, the reply of the furthest, if it has executed all that any of them has accepted | `blocks/clients/proxy/majority.rs` `judge` |
//! | rinse: otherwise ask again, until somebody has executed it | `blocks/clients/proxy/majority.rs` `on_seen` |
//! | variant (`leader_lease=true`): otherwise ask the leader at once, which answers under its lease | the same |
//!
//! # Why reads are linearizable
//!
//! Let a be the slot up to which the reply's replica has executed.
//!
//! - *The reply has every write that was acknowledged before the read began.* Such a write, in slot w, has votes of a
//!   majority, each durable before it counted. One of these voters has answered the read. It has executed w, or its
//!   present vote there is for the same value, since no ballot proposes another once a value is chosen; so w ≤ a.
//! - *A later read is never older.* What the first one returned was executed, thus chosen, thus voted for by a
//!   majority: the argument above holds for the last slot up to a that writes what is read. The same for a read
//!   after one that the leader answered.
//! - *Nothing is returned that was not chosen*, since only executed state is. m votes are never taken for a choice:
//!   they may be of several ballots.
//! - *A read at the leader after a quorum read is not older either*: through the log it waits for a later slot;
//!   under a lease the leader has executed whatever any follower has, since it tells them what is chosen.
//!
//! # Decisions
//!
//! - *No slots of last writes are kept per key* (the paper's replicas compare these). What is executed is in the
//!   state: `applied` stands for the last write of every key, and compaction takes nothing away.
//! - *An answer need not wait for the disk.* What is executed is durable at a majority. A vote that is told and
//!   then lost in a crash has not counted, and costs a round of rinsing at most; one that has counted is not lost.
//! - *Keys with a time to live are read through the leader.* Any later slot may carry the time at which they expire,
//!   also one that does not write them.
//! - *After some rounds of rinsing the leader is asked*: a vote that a dead ballot left behind may never be chosen,
//!   and never be overwritten while nothing is written.
//! - *Answers say who decides*, by the configuration that their replica has executed: a proxy may know an old group, of
//!   which a majority need not meet the majorities of the present one (`blocks/clients/proxy/majority.rs`).

use bytes::Bytes;
use quorate_blocks::clients::{ProxyConfig, ReadObservation, Rinse, SessionClient};
use quorate_blocks::settings;
use quorate_blocks::writes::Written;
use quorate_core::{
    Capabilities, Group, Never, NodeId, Payload, Protocol, Settings, SettingsError, Time, Wire, mutation,
};
use quorate_store::Command;

use crate::paxos::engine::{self, Config, Reads};

/// What its machines say to each other.
pub type Message = engine::Message<Never, ()>;

/// The machine with this policy.
pub type Replica = engine::Replica<Policy>;

/// See the module's comment.
#[derive(Debug)]
pub struct Pqr;

impl Protocol for Pqr {
    const NAME: &'static str = "pqr";
    const PAPER: &'static str = "Charapko et al., Linearizable Quorum Reads in Paxos (2019)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        reads: "of a majority, without the leader",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config<()>, ProxyConfig), SettingsError> {
        let (reads, rinse) = match settings.flag(
            "leader_lease",
            false,
            "Ask the leader at once when a write is under way; `rinse.*` are then unknown settings",
        )? {
            true => (Reads::Lease, Rinse::NEVER),
            false => (Reads::Log, Rinse::from_settings(settings)?),
        };
        let config = Config::new(group, settings, reads, ())?;
        Ok((config, ProxyConfig { majority: Some(rinse), ..settings::proxy(group, settings)? }))
    }
}

/// PQR's share of a replica.
#[derive(Debug)]
pub struct Policy;

impl engine::Policy for Policy {
    type Config = ();
    type Message = Never;
    type BallotConfig = ();

    fn new(_: &Config<()>, _: NodeId, _: Time) -> Policy {
        Policy
    }

    fn written(value: &Bytes) -> Option<Written> {
        Some(Written::by(value))
    }

    fn observe(replica: &Replica, command: &Bytes) -> Option<ReadObservation> {
        Some(observation(replica, command))
    }
}

/// What this replica knows of a read.
fn observation(replica: &Replica, command: &Bytes) -> ReadObservation {
    let (state, writes) = (replica.state(), replica.writes());
    let decoded = Command::from_bytes(command.clone());
    let accepted = decoded.ok().and_then(|command| writes.last(command.footprint().reads())).unwrap_or(0);
    // A reply that is older than a vote would not be used.
    let reply = match accepted {
        0 if mutation::active("pqr/keys-that-expire") => Some(state.read_now(command)),
        0 => state.read_lasting(command).map(Payload::into_bytes),
        _ => None,
    };
    ReadObservation { applied: state.applied(), accepted, reply }
}
