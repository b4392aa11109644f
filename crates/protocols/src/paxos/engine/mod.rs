//! **MultiPaxos as a machine**: a stable leader, pipelined batches, leases. Protocols of the family are this machine
//! with a [`Policy`]: how far a write must reach before it is chosen, who holds leases, and who answers reads.
//!
//! Lamport, *Paxos Made Simple* (2001); Chandra, Griesemer, Redstone, *Paxos Made Live* (2007) for master leases.
//! Words are Lamport's: acceptors promise ballots and vote, a value is chosen when enough have voted for it in one
//! ballot.
//!
//! | rule | code |
//! |---|---|
//! | 1 step up: a ballot above any seen, durable before `Prepare` | `ballots.rs` `step_up`, `adopt` |
//! | 2 promise: durable, deferred until the leases granted in the ballot before have ended | `ballots.rs` `adopt`, `reply_to_prepare` |
//! | 3 on a majority: highest vote of each slot, no-op for holes; the leader's own vote at the new ballot is persisted like any other, because it sends `Accept` to itself | `slots/proposer.rs`, `leading.rs` `begin_to_lead` |
//! | 4 accept: vote durable before the reply; chosen at a majority of same-ballot votes, and whoever else the policy names | `replica.rs` `on_accept`, `leading.rs` `on_accept_reply` |
//! | 4 commit notice: covers own votes of exactly that ballot; the rest is fetched | `slots/log.rs` `commit`, `learning.rs` `on_committed` |
//! | 5 execute contiguously, reply after execution; compact only what is executed | `learning.rs` `execute` |
//! | leases: by default all grant to the leader of their ballot | `leases.rs`, `leasing.rs` |
//! | **read rule**: leader of the promised ballot, believing promises of a majority (itself included), everything that phase 1 found executed | `leasing.rs` `may_read_locally` |
//! | **almost-local reads** (`reads=alr`): a batch is executed with a slot that was proposed after it was closed, and chosen in that ballot | `reads.rs`, `blocks/clients/batches.rs` |
//! | B.3 membership: a configuration stands alone in its slot and is in force when executed; nothing is proposed behind it before; whoever did not have it chosen itself prepares again | `changes.rs` |
//!
//! # Decisions
//!
//! - *A reply to `Prepare` carries votes above the replier's own commit position only*, and that position. Below,
//!   values are chosen, and the new leader fetches them from the replier that is furthest, or from another that has
//!   them if that one falls silent (`blocks/catchup.rs`). If nobody answers, the leader stops leading; the next phase 1
//!   asks those who are there, and finds in their votes what is missing.
//! - *Phase 1 asks for votes above what the candidate knows to be chosen*, though it may have only shards of some of
//!   that: these it gathers by identity from all when it leads (`gossip.rs`).
//! - *A new leader takes requests only when it has executed everything that phase 1 found*: before, it does not
//!   know which commands of a session have been executed.
//! - *Nobody is disturbed without need*: before a ballot is taken, a `Poll` asks whether a majority misses its
//!   leader (as Raft's pre-vote), and a leader that does not hear a majority stops leading, so that its followers
//!   come to miss it.
//! - *Reads without a lease* wait for a slot that is proposed after they came: if it is chosen in this ballot, no
//!   other leader can have had a write acknowledged before.
//! - *A leader's time is bounded by the clocks of a majority* ([`quorate_blocks::walls`]), which they tell in
//!   `PrepareReply` and `HeartbeatReply`.
//! - *Whether a key's time is up* is judged by the latest time that another replica may have executed, or by this
//!   node's own time if that is later; never by that alone: a clock may be set back ([`crate::paxos::engine::times`]).
//! - *A leader whose own disk does not keep up with a majority of the others hands over* (`leading.rs` `disk_hangs`).
//!   What needs no disk, heartbeats and leases, would let it lead for ever, and writes may wait for its vote. And
//!   *others whose votes are overdue* are treated as silent ones where writes wait for them
//!   ([`quorate_blocks::laggards`]). *A candidate whose disk hangs* ends no leader: a rejection waits until the promise
//!   that it names is durable.
//! - *A replica that is about to stop gives its leases back and says so* (`leave.rs`): writes wait neither for it nor
//!   for the end of what it was promised.
//! - *A member that is far behind is sent no new values while enough others are there* (`leading.rs` `dispensable`):
//!   on a full link it would get what it has missed behind all that it cannot execute yet, and never be near. Where
//!   its vote is needed, it is sent everything, and what it was not sent before at once.
//! - *A snapshot from a peer is installed in memory first.* Until it is on the own disk, the votes it covers stay
//!   there: they may be the only copies that a later phase 1 finds ([`message::Record::Installed`]). And what
//!   says that a configuration in it is executed for good waits until then.
//! - *A ballot may come with a **configuration*** that never changes in it (Bodega's roster). It is told with
//!   `Prepare`, and before that with `Announce`, so that all leave the ballot before at once. Whoever hears of a ballot
//!   without its configuration asks for it and promises nothing before it knows.

mod ballots;
mod bounded;
mod changes;
mod freshness;
pub mod gossip;
mod invariants;
mod lacking;
mod leading;
mod learning;
mod leasing;
mod leave;
pub mod message;
mod peer;
mod policy;
mod reads;
mod replica;
pub mod slots;
mod times;

use std::time::Duration;

use quorate_blocks::leases::lease::LeaseConfig;
use quorate_core::{Group, Settings, SettingsError};

pub use lacking::{LackingConfig, lacking_bytes};
pub use message::{BallotConfig, Message, Record};
pub use policy::{MultiPaxosPolicy, Policy};
pub use replica::{Replica, Role, Timer};

use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::settings::{self, IntakeConfig};

/// How a leader serves reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Alone while it holds leases, else through the log.
    Lease,
    /// Always through the log; no lease is ever granted.
    Log,
    /// The same at the leader; at any other replica in batches, which wait for an entry that the leader proposes after
    /// them (`quorate_blocks::clients::batches`).
    Alr {
        /// So many reads share a question to the leader, at most.
        batch: usize,
    },
}

/// What a replica is told; `C` is the policy's share.
#[derive(Clone, Debug)]
pub struct Config<C> {
    /// As it was set up.
    pub group: Group,
    /// Of heartbeats and elections.
    pub timeouts: ElectionTimeouts,
    /// Of leases.
    pub lease: LeaseConfig,
    /// See [`Reads`].
    pub reads: Reads,
    /// How requests are taken in.
    pub intake: IntakeConfig,
    /// Slots that may be proposed and not chosen.
    pub pipeline: usize,
    /// Bytes of votes that are told upon one `Prepare`, about; more if a single vote is larger.
    pub prepare_bytes: usize,
    /// Bytes of executed values to keep for replicas that are a little behind.
    pub retain: usize,
    /// How long a decision may wait for a message that tells the followers.
    pub announce: Duration,
    /// The policy's.
    pub policy: C,
}

impl<C> Config<C> {
    /// From the settings that all of the family have.
    pub fn new(
        group: &Group,
        settings: &mut Settings,
        reads: Reads,
        policy: C,
    ) -> Result<Config<C>, SettingsError> {
        Ok(Config {
            group: group.clone(),
            timeouts: ElectionTimeouts::from_settings(settings)?,
            lease: LeaseConfig::from_settings(settings)?,
            reads,
            intake: settings::intake(settings)?,
            pipeline: settings::pipeline(settings)?,
            prepare_bytes: settings.bytes(
                "prepare.bytes",
                "4MiB",
                1..=16 << 20,
                "Bytes of votes that an acceptor tells at once, in messages of a frame; it is asked for the rest",
            )? as usize,
            retain: settings::retain(settings)?,
            announce: settings.duration(
                "commit.delay",
                "5ms",
                "How long a decision may wait for a message that tells the followers",
            )?,
            policy,
        })
    }
}

/// A proposal that was not answered for this long is sent again.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// A follower waits this long for decisions that are on their way before it asks for them.
const GRACE: Duration = Duration::from_millis(20);
/// Bytes that may be proposed and not chosen, before the last proposal; and bytes sent again at once.
const PIPELINE_BYTES: usize = 4 << 20;
/// An acceptor takes no vote further than this above what it knows to be chosen: it is too far behind to help.
pub const MAX_GAP: u64 = 1 << 16;
