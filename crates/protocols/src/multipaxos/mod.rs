//! **MultiPaxos** with leader leases: a stable leader, pipelined batches, local linearizable reads.
//!
//! Lamport, *Paxos Made Simple* (2001); Chandra, Griesemer, Redstone, *Paxos Made Live* (2007) for master leases;
//! PROTOCOLS.md A. Words are Lamport's: acceptors promise ballots and vote, a value is chosen when a majority has
//! voted for it in one ballot.
//!
//! | rule (PROTOCOLS.md A) | code |
//! |---|---|
//! | 1 step up: a ballot above any seen, durable before `Prepare` | `ballots.rs` `step_up`, `adopt` |
//! | 2 promise: durable, deferred until the lease to another leader is released | `ballots.rs` `adopt`, `reply_to_prepare` |
//! | 3 on a majority: highest vote of each slot, no-op for holes; the leader's own vote at the new ballot is persisted like any other, because it sends `Accept` to itself | `parts/slots/proposer.rs`, `leading.rs` `begin_to_lead` |
//! | 4 accept: vote durable before the reply; chosen at a majority of same-ballot votes | `replica.rs` `on_accept`, `leading.rs` `on_accept_reply` |
//! | 4 commit notice: covers own votes of exactly that ballot; the rest is fetched | `parts/slots/log.rs` `commit`, `replica.rs` `on_committed` |
//! | 5 execute contiguously, reply after execution; compact only what is executed | `replica.rs` `execute` |
//! | leases: all grant to the leader of their ballot | `leases.rs` |
//! | B.3 membership: a configuration stands alone in its slot and is in force when executed; nothing is proposed behind it before; whoever did not have it chosen itself prepares again | `changes.rs` |
//! | **read rule**: leader of the promised ballot, believing promises of a majority (itself included), everything that phase 1 found executed | `leases.rs` `may_read_locally` |
//!
//! # Decisions
//!
//! - *A reply to `Prepare` carries votes above the replier's own commit position only*, and that position. Below,
//!   values are chosen, and the new leader fetches them from the replier that is furthest. If that one falls
//!   silent, the leader stands again and learns from others' votes.
//! - *A new leader takes requests only when it has executed everything that phase 1 found*: before, it does not
//!   know which commands of a session have been executed.
//! - *Nobody is disturbed without need*: before a ballot is taken, a `Poll` asks whether a majority misses its
//!   leader (as Raft's pre-vote), and a leader that does not hear a majority stops leading, so that its followers
//!   come to miss it.
//! - *The restart wait is longer than PROTOCOLS.md says* when the lease is longer than the guard: a renewal that is
//!   out may be accepted as late as the lease before it ends, so up to two leases may be ahead (see
//!   [`quorate_parts::lease`]).
//! - *Reads without a lease* wait for a slot that is proposed after they came: if it is chosen in this ballot, no
//!   other leader can have had a write acknowledged before.
//! - *A snapshot from a peer is installed in memory first.* Until it is on the own disk, the votes it covers stay
//!   there: they may be the only copies that a later phase 1 finds ([`message::Record::Installed`]). And what says that
//!   a configuration in it is executed for good waits until then.

mod ballots;
mod changes;
mod invariants;
mod leading;
mod leases;
pub mod message;
mod replica;

use std::time::Duration;

use quorate_core::{Capabilities, Group, Protocol, Settings, SettingsError};
use quorate_parts::clients::{LeaderProxy, ProxyConfig};
use quorate_parts::election::Pace;
use quorate_parts::lease::Terms;
use quorate_parts::settings::{self, IntakeConfig};

pub use message::{Message, Record};
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct MultiPaxos;

/// How reads are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By the leader alone while it holds leases, else through the log.
    Lease,
    /// Always through the log; no lease is ever granted.
    Log,
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    group: Group,
    pace: Pace,
    terms: Terms,
    reads: Reads,
    intake: IntakeConfig,
    /// Slots that may be proposed and not chosen.
    pipeline: usize,
    /// Bytes of executed values to keep for replicas that are a little behind.
    retain: usize,
}

impl Protocol for MultiPaxos {
    const NAME: &'static str = "multipaxos";
    const PAPER: &'static str = "Lamport, Paxos Made Simple (2001); leader leases";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        reads: "at the leader, under a lease (bounded drift)",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = LeaderProxy<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        let config = Config {
            group: group.clone(),
            pace: Pace::from_settings(settings)?,
            terms: Terms::from_settings(settings)?,
            reads: settings.choice("reads", "lease", &[("lease", Reads::Lease), ("log", Reads::Log)])?,
            intake: settings::intake(settings)?,
            pipeline: settings.number("pipeline", 256, 1..=16384)? as usize,
            retain: settings.bytes("log.retain", "32MiB", 0..=16 << 30)? as usize,
        };
        Ok((config, settings::proxy(group, settings)?))
    }
}

/// A proposal that was not answered for this long is sent again.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// How long a decision may wait for a message that tells the followers.
const ANNOUNCE: Duration = Duration::from_millis(5);
/// A follower waits this long for decisions that are on their way before it asks for them.
const GRACE: Duration = Duration::from_millis(20);
/// Bytes that may be proposed and not chosen, before the last proposal; and bytes sent again at once. With the largest
/// request they must fit into one message: a `PrepareReply` may have to carry them all.
const PIPELINE_BYTES: usize = 4 << 20;
/// An acceptor takes no vote further than this above what it knows to be chosen: it is too far behind to help.
const MAX_GAP: u64 = 1 << 16;
