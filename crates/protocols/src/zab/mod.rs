//! **ZAB**, the atomic broadcast of ZooKeeper, in the form with synchronization (Zab 1.0), with almost-local reads.
//!
//! Junqueira, Reed, Serafini, *Zab: High-performance broadcast for primary-backup systems* (DSN 2011); Medeiros,
//! *ZooKeeper's atomic broadcast protocol: Theory and practice* (2012), whose Zab 1.0 this is; Katsarakis et al., *The
//! LAW Theorem* (lazy ALR). Words are ZAB's: a *leader* of an *epoch* proposes entries; an entry's name, its *zxid*, is
//! its epoch and its index; a replica's log is its *history*. A replica has two durable numbers: **acceptedEpoch**, the
//! last epoch in which it has promised to take part in no earlier one, and **currentEpoch**, the last one whose
//! beginning history it has in full.
//!
//! | phase | rule | code |
//! |---|---|---|
//! | 1 election | whoever misses a leader stands; others follow it if it has all that they have, by currentEpoch, then zxid | `elections.rs` `on_elect` |
//! | 2 discovery | epoch = 1 + the highest acceptedEpoch of a majority; acceptedEpoch is durable before ACKEPOCH | `elections.rs` `discover`, `on_new_epoch` |
//! | 2 | a leader gives up if a follower is fresher | `elections.rs` `on_ack_epoch` |
//! | 3 synchronization | a follower's history becomes the leader's (DIFF, TRUNC, SNAP), up to NEWLEADER; it is durable **before** currentEpoch, which is before ACK | `leading.rs` `send_entries`, `replica.rs` `on_entries`, `message.rs` `release` |
//! | 3 | with NEWLEADER at a majority all of that history is committed; UPTODATE | `leading.rs` `advance` |
//! | 4 broadcast | only then are entries proposed; they are acknowledged when durable, and committed in order at a majority | `leading.rs` `propose`, `acknowledge_own`, `advance` |
//! | hand-over | a leader lets one that has all of its history stand at once | `handover.rs` |
//! | lost disk | a member votes when it knows which epochs are over for it, and has what the others have | `rejoining.rs`, `blocks/rejoin` |
//! | reads, `alr` | a batch is executed with an entry that was proposed after it was closed | `reads.rs`, `blocks/clients/batches.rs` |
//! | reads, `local` | from the state as it is, once it has what the client has seen | `reads.rs`, `blocks/clients/local.rs` |
//!
//! # How it maps to the prefix log
//!
//! - *NEWLEADER is an entry*: the first of its epoch, without commands, as in ZooKeeper, where it has the zxid (epoch,
//!   0). Its leader appends it when discovery ends. Who has it has everything before it, since logs have no holes; so
//!   one kind of ACK, with an index, is enough, and "NEWLEADER is acknowledged" is "that index is".
//! - *Links lose, repeat and reorder messages*; ZooKeeper has TCP. ACKEPOCH names the follower's last zxid, so the
//!   leader knows where to begin, and [`Progress`](quorate_blocks::prefix_log::Progress) probes from there. A DIFF that
//!   matches is answered by an ACK; one that does not, by where the logs may still agree (`Mismatch`). What a follower
//!   has behind the last entry that is the same, and is not the leader's, goes when the first entry that differs comes:
//!   that is TRUNC. What the leader no longer has is SNAP, and comes by `blocks/catchup`.
//! - *zxids are not counted from 0 in each epoch*: the index goes on. Their order is the same.
//!
//! # Why a committed entry is never lost
//!
//! Whoever acknowledges an entry in epoch e has e as its currentEpoch, durably, and its leader's history up to there.
//! If a majority has done so, whoever leads later has heard ACKEPOCH from one of them, and is no less fresh: of a later
//! currentEpoch, whose beginning history has the entry by induction; or of epoch e itself, with a longer part of the
//! same history. If a replica took currentEpoch before its history, it would be fresh without it.
//!
//! # Decisions
//!
//! - *The election asks for followers, and does not exchange votes* as ZooKeeper's fast leader election does. That one
//!   makes whoever has the highest (currentEpoch, zxid, id) the leader. With equal histories it is always the same
//!   replica, also if that is slow, or its disk hangs: it would be elected again and again. Here it is whoever stands
//!   first, after a random time, among those who have all that a majority has; that is what safety needs, and
//!   synchronization is as short.
//! - *CEPOCH is the answer to `Elect`*: to follow somebody is to tell it one's acceptedEpoch. Neither binds; the
//!   binding step is ACKEPOCH, to one leader of an epoch only.
//! - *Whoever was not there at discovery* takes any message of the leader for NEWEPOCH: a majority has accepted it by
//!   then, and no message of it need wait for its disk, which may hang.
//! - *A follower that has accepted the epoch from another is synchronized too*: its ACKEPOCH does not count towards the
//!   leader's majority (`granted`), as in ZooKeeper.
//! - *A leader whose own disk hangs*, while others' do not, stops leading, whether or not its own vote is needed; and
//!   it stands again only when its acceptedEpoch is durable.
//! - *A snapshot counts when it is on the own disk*; currentEpoch is recorded behind it.
//! - *The group does not change*: ZooKeeper's reconfiguration is no part of ZAB. A lost disk can be replaced.

mod driven;
mod elections;
mod handover;
mod invariants;
mod leading;
pub mod message;
mod reads;
mod rejoining;
mod replica;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::rejoin;
use quorate_blocks::settings::{self, IntakeConfig};
use quorate_core::{Capabilities, Consistency, Group, Protocol, Settings, SettingsError};

pub use message::{Message, Record};
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct Zab;

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    group: Group,
    timeouts: ElectionTimeouts,
    /// Reads are answered from the state that is here; `sync` makes one linearizable.
    local: bool,
    /// So many reads share a question to the leader, at most.
    alr_batch: usize,
    intake: IntakeConfig,
    /// Entries that may be proposed and not committed.
    pipeline: usize,
    /// Bytes of entries in one message, before the last.
    append_bytes: usize,
    /// Bytes of executed entries to keep for replicas that are a little behind.
    retain: usize,
}

impl Protocol for Zab {
    const NAME: &'static str = "zab";
    const PAPER: &'static str = "Junqueira, Reed, Serafini, Zab (2011); Zab 1.0; LAW (lazy ALR)";
    const CAPABILITIES: Capabilities = Capabilities {
        transfer: true,
        rejoin: true,
        reads: "at every replica: almost-local, or local (sequentially consistent)",
        consistency: |settings| match settings.effective().get("reads").map(String::as_str) {
            Some("local") => Consistency::Sequential,
            _ => Consistency::Linearizable,
        },
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        rejoin::check_group(group)?;
        let config = Config {
            group: group.clone(),
            timeouts: ElectionTimeouts::from_settings(settings)?,
            local: settings.choice(
                "reads",
                "alr",
                &[("alr", false), ("local", true)],
                "How the nearest replica answers reads: almost-local, or as ZooKeeper, from its state as it is, which \
                 is sequentially consistent",
            )?,
            alr_batch: settings::alr_batch(settings)?,
            intake: settings::intake(settings)?,
            pipeline: settings::pipeline(settings)?,
            append_bytes: settings::append_bytes(settings)?,
            retain: settings::retain(settings)?,
        };
        let local = config.local;
        let proxy = ProxyConfig { nearest: true, timely: true, local, ..settings::proxy(group, settings)? };
        Ok((config, proxy))
    }
}

/// How long a commit may wait for a message that tells the followers.
const ANNOUNCE: Duration = Duration::from_millis(5);
/// Bytes that may be on their way to one follower, and proposed and not committed, before the last entry.
const PIPELINE_BYTES: u64 = 4 << 20;
