//! **Raft** with a choice of consistent reads: ReadIndex, Ongaro's lease, **LeaseGuard**, and almost-local ones.
//!
//! Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm* (2014); Ongaro's thesis (2014);
//! Davis, Demirbas, Deng, *LeaseGuard: Raft Leases Done Right* (2025). Words are Raft's: a leader
//! of a *term* appends *entries*, an entry that a majority has is *committed*.
//!
//! | rule | code |
//! |---|---|
//! | 1 term and vote durable before a vote is given; entries before they are acknowledged, by the leader too | `message.rs` `release`, `elections.rs` `on_vote`, `leading.rs` `acknowledge_own` |
//! | 1 commit an own-term entry at a majority; followers up to what the message verified | `leading.rs` `advance`, `replica.rs` `on_append` |
//! | 1 truncate on a real conflict only; a new leader appends a no-op | `blocks/prefix_log`, `leading.rs` `begin_to_lead` |
//! | 2 pre-vote changes no term; check-quorum; TimeoutNow goes past both | `elections.rs`, `leading.rs` `on_heartbeat_timer` |
//! | 3 configurations are in force when appended, roll back when truncated, travel with snapshots; joint consensus; learners | `blocks/membership`, `changes.rs` |
//! | 4 **ReadIndex**: an own-term entry is committed, a round of heartbeats that began after the read is answered by a majority | `reads.rs`, `raft/rounds.rs` |
//! | 5 **Ongaro's lease**: from the beginning of the last round that a majority answered; voters refuse votes as long, restarted ones too | `reads.rs` `ongaro_gate`, `elections.rs` `is_bound` |
//! | **Almost-local reads**: a batch is executed with an entry that was appended after it was closed | `reads.rs`, `blocks/clients/batches.rs` |
//! | LeaseGuard 1 commit gate: every prior-term entry is surely older than Δ | `leaseguard.rs` `CommitGate` |
//! | LeaseGuard 2, 3 **read gate**: the last committed entry is surely younger than Δ; before the first own commit, no read that the limbo region can change | `leaseguard.rs` `read_gate`, `Limbo` |
//! | LeaseGuard 4 end-lease: the last entry of a leader that hands over | `changes.rs` `hand_over`, `leaseguard.rs` |
//!
//! # Decisions
//!
//! - *Uncertainty blocks both sides* (the paper's `age` is ambiguous): a commit waits until the earliest possible
//!   now is later than the latest possible creation plus Δ; a read needs the latest possible now to be no later
//!   than the earliest possible creation plus Δ.
//! - *Without a bound on clocks, timers*: an entry that bears no stamp, and any entry while this node has no clock,
//!   ages by the monotonic clock from its creation (its leader) or its arrival (everybody else, arrival again after
//!   a restart), with `lease.drift` on the safe side; and nothing is inherited (§5.3). It is decided entry by
//!   entry, so a clock may come and go.
//! - *Reads that may not be served now are held*, not refused: until the next commit of the own term, which ends
//!   every reason to wait.
//! - *The commit gate takes the smaller of two waits*, by stamps and by arrival; each is enough (`leaseguard.rs`).
//! - *A leader whose own log does not become durable*, while others' do and entries are committed without it, or would
//!   be with it, stops leading after twice the election timeout: its disk hangs (`leading.rs` `on_heartbeat_timer`).
//! - *A leader's time, by which keys expire, is bounded by the clocks of a majority* (`blocks/walls.rs`), which they
//!   tell with votes and answers to heartbeats.
//! - *A member that does not vote may stand*, when nobody has led for several election timeouts: its log may be the
//!   only one that can win (`elections.rs`). It hands over to a voter.
//! - *A leader that has sent TimeoutNow follows.* It leads again in a later term only, so no late election can find
//!   it with a lease (etcd#12704).
//! - *A snapshot that was received counts when it is on the own disk*
//!   ([`quorate_core::Context::persist_state`]): acknowledging entries behind it says that everything before is kept.

mod changes;
mod coded;
pub mod craft;
mod driven;
mod elections;
mod invariants;
mod leading;
mod leaseguard;
pub mod message;
mod reads;
mod replica;
mod rounds;
mod snapshots;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::settings::{self, IntakeConfig};
use quorate_core::{Capabilities, Consistency, Group, Protocol, Settings, SettingsError};

pub use leaseguard::{ClockMode, LeaseGuard};
pub use message::{Message, Record};
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct Raft;

/// How reads are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// From the leader's state, without any check: stale after a deposition nobody told it of, and sequentially
    /// consistent, since clients say what they have seen. For measurements.
    Inconsistent,
    /// ReadIndex.
    Quorum,
    /// The lease of Ongaro's thesis, ReadIndex where it has run out.
    OngaroLease,
    /// LeaseGuard.
    LeaseGuard(LeaseGuard),
    /// Almost-local reads, at any replica: when an entry that the leader appends after them is executed there.
    Alr {
        /// So many reads share a question to the leader, at most.
        batch: usize,
    },
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    group: Group,
    timeouts: ElectionTimeouts,
    reads: Reads,
    /// How long a lease is: Δ, or the election timeout.
    lease: Duration,
    /// How much clocks may gain or lose on each other over a lease: ε.
    drift: Duration,
    /// Every read has a round of its own, as in systems that do not gather them.
    lone_rounds: bool,
    /// Followers answer reads too, at an index that they ask the leader for.
    follower_reads: bool,
    intake: IntakeConfig,
    /// Entries that may be appended and not committed.
    pipeline: usize,
    /// Bytes of entries in one message, before the last.
    append_bytes: usize,
    /// Bytes of executed entries to keep for replicas that are a little behind.
    retain: usize,
    /// How entries are sent in shards; `None`: they are not.
    coding: Option<coded::Coding>,
}

impl Protocol for Raft {
    const NAME: &'static str = "raft";
    const PAPER: &'static str = "Ongaro, Ousterhout, Raft (2014); LeaseGuard (2025)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        reads: "at the leader: LeaseGuard, Ongaro's lease, or ReadIndex; at every replica: almost-local",
        consistency: |settings| match settings.effective().get("reads").map(String::as_str) {
            Some("inconsistent") => Consistency::Sequential,
            _ => Consistency::Linearizable,
        },
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        let conflict = |text: &str| Err(SettingsError::Conflict(text.to_owned()));
        let timeouts = ElectionTimeouts::from_settings(settings)?;
        let lease = settings.duration(
            "lease.duration",
            "500ms",
            "LeaseGuard's Δ. Ongaro's lease lasts for `election.timeout`",
        )?;
        let guard = LeaseGuard::from_settings(settings, lease)?;
        let choices = [
            ("leaseguard", Reads::LeaseGuard(guard)),
            ("quorum", Reads::Quorum),
            ("ongaro-lease", Reads::OngaroLease),
            ("inconsistent", Reads::Inconsistent),
            ("alr", Reads::Alr { batch: settings::alr_batch(settings)? }),
        ];
        let reads = settings.choice(
            "reads",
            "leaseguard",
            &choices,
            "How reads are answered: at the leader under LeaseGuard's gate, by ReadIndex, under Ongaro's lease, or \
             unchecked; or at the nearest replica, in batches that wait for an entry appended after them",
        )?;
        if !settings.flag("allow_stale_reads", false, "Needed for `reads=inconsistent`")?
            && reads == Reads::Inconsistent
        {
            return conflict("reads=inconsistent returns stale values; allow_stale_reads=true allows that");
        }
        let drift = settings::drift(settings)?;
        let lease = if reads == Reads::OngaroLease { timeouts.election } else { lease };
        if lease < 2 * drift || lease < Duration::from_millis(2) {
            return conflict(
                "lease.duration (the election timeout, for ongaro-lease) must be at least twice lease.drift",
            );
        }
        let nearest = settings.choice(
            "reads.at",
            "leader",
            &[("leader", false), ("nearest", true)],
            "`nearest`: any replica answers, at an index of the leader",
        )?;
        let timely = matches!(reads, Reads::Alr { .. });
        let nearest = nearest || timely;
        let config = Config {
            group: group.clone(),
            timeouts,
            reads,
            lease,
            drift,
            lone_rounds: settings.choice(
                "quorum.rounds",
                "shared",
                &[("shared", false), ("each", true)],
                "`each`: every read has a round of heartbeats of its own. For measurements",
            )?,
            follower_reads: nearest,
            intake: settings::intake(settings)?,
            pipeline: settings::pipeline(settings)?,
            append_bytes: settings::append_bytes(settings)?,
            retain: settings::retain(settings)?,
            coding: None,
        };
        let local = reads == Reads::Inconsistent;
        let proxy = ProxyConfig { nearest, timely, local, ..settings::proxy(group, settings)? };
        Ok((config, proxy))
    }
}

/// How long a commit may wait for a message that tells the followers.
const ANNOUNCE: Duration = Duration::from_millis(5);
/// Bytes that may be on their way to one follower, and appended and not committed, before the last entry.
const PIPELINE_BYTES: usize = 4 << 20;
/// Reads and asks that may wait at a leader, or at one that has just stopped.
const MAX_WAITING: usize = 1 << 16;
