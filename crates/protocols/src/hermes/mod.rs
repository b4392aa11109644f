//! **Hermes**: every member reads its own copy and writes by itself; a write invalidates the key everywhere first.
//!
//! Katsarakis, Gavrielatos, Katebzadeh, Joshi, Dragojevic, Grot, Nagarajan, *Hermes: A Fast, Fault-Tolerant and
//! Linearizable Replication Protocol* (ASPLOS 2020). Its replicated membership is decided in epochs here, as that of
//! the chains ([`quorate_blocks::epochs`]): the owner of an epoch states who is live.
//!
//! | rule | code |
//! |---|---|
//! | a write of a valid key: a higher timestamp, `Inv` to all who are live | `writes.rs` `write`, `propose` |
//! | `Inv`: adopt a later version, and acknowledge it; answer an earlier one with the own | `writes.rs` `on_inv` |
//! | all who are live have acknowledged: committed, `Val`, the client is answered | `writes.rs` `on_acks` |
//! | `Val` validates this very version | `writes.rs` `on_val` |
//! | reads of valid keys, under leases of the epoch | `reads.rs` |
//! | eager almost-local reads: executed, then a majority is asked whether it has promised a later ballot | `blocks/epochs`, `reads.rs` `serve_reads` |
//! | a key that is not valid in time is replayed by whoever has it | `writes.rs` `look_after_keys` |
//! | who knows that what is sent again is committed says so | `writes.rs` `on_inv` |
//! | another epoch: no acknowledgement of an earlier one counts, what is pending is replayed | `writes.rs` `take_up` |
//! | whoever holds writes up is left out | `slow_members.rs` |
//! | who was left out comes back as a shadow | `epochs.rs` `decide`, `transfer.rs` |
//! | without durability: who restarts comes back as a shadow, and writes under another name; no epoch begins without what was committed | `memory.rs` |
//! | a member whose disk was lost comes back like that, when it knows what it may have promised | `blocks/rejoin`, `memory.rs` |
//! | exactly once | `record.rs` |
//! | a key that was deleted long ago is forgotten | `tombstones.rs` |
//!
//! # Why it is right
//!
//! Of each key. *In one epoch*, committed versions form a chain: each was executed on the one before. A version is
//! committed when all who are live have acknowledged it, so each has had it, and none had a later one then. Its
//! coordinator began with a valid version. Let w be committed and x another with a later timestamp. The coordinator of
//! x has acknowledged w, and before it had x: else it would have answered with x. It began x with a key that was valid,
//! so w or a version after it. *Between epochs*: who starts whole has all that is committed (`epochs.rs`), and a
//! version of an earlier epoch that is not known to be committed is replayed with the number of the new one. So what a
//! member brings that was away, or what was overtaken, is earlier than all that was committed since.
//!
//! A *valid* key is one whose version is committed, for good: that does not end with an epoch. A read of it is right if
//! no later version is committed. In its epoch one is committed only when this member has acknowledged it, and then the
//! key is not valid. In no later epoch anything is: a majority has promised this member to promise no later ballot,
//! or is the member itself; or it says after the read that it has promised none.
//!
//! # Decisions
//!
//! - *All writes are RMWs.* In the paper blind writes are never overtaken: both are committed, one after the other.
//!   Here each depends on the key's record of what has been executed, without which a write that is asked for again
//!   might take effect twice, with another's in between. The price: of two members that write one key at the same time,
//!   one executes its writes again. It does so with a version so much higher, and whoever has written yields to those
//!   who wait. All that waits for a key at a member becomes one version.
//! - *Timestamps begin with the epoch.* In the paper a replay has its old timestamp. Then a version that somebody who
//!   was away has kept could be later than one that was committed without it.
//! - *The record of a key* takes the place of a table of sessions, which needs a log. Numbers of a session's writes are
//!   no order: writes that a connection sends without waiting for answers may take effect in any order.
//! - *Time to live*: a key expires by a write. Who finds it overdue, by a time that a majority's clocks support
//!   (`blocks/walls.rs`), writes that it is gone; until that is committed, reads of it wait. A key lives as long as
//!   nobody reads it, or the owner comes by.
//! - *No command on several keys*, no users and no limits on the data, which are no keys ([`Capabilities::multi_key`]).
//! - *A key's value, all fields of a hash together, is at most 1 MiB*: it is sent whole with every write.
//! - *Deleted keys leave tombstones* for a while, with their record: a late version must not bring one back. Then each
//!   member forgets them by itself (`tombstones.rs`).
//! - *Without durability* (`--durability none`) keys are in memory alone, and what acceptors promise is on their disks:
//!   `memory.rs` has the argument.
//! - *Members do not change while the group runs*: `quorate member` is refused.

mod driven;
mod epochs;
mod invariants;
mod keys;
mod memory;
mod message;
mod reads;
mod record;
mod refused;
mod replica;
mod slow_members;
mod tombstones;
mod transfer;
mod writes;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::epochs::Reads;
use quorate_blocks::leases::lease::LeaseConfig;
use quorate_blocks::{rejoin, settings};
use quorate_core::{Capabilities, Diskless, Group, Protocol, Settings, SettingsError};

pub use message::{Message, Record};
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct Hermes;

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    group: Group,
    timeouts: ElectionTimeouts,
    lease: LeaseConfig,
    reads: Reads,
    /// Bytes of requests that may wait.
    max_bytes: usize,
    /// Bytes of versions in one page of a transfer, before the last.
    page: usize,
    /// How long deleted keys are remembered: from when the last session was opened that has written them.
    tombstones: Duration,
}

impl Protocol for Hermes {
    const NAME: &'static str = "hermes";
    const PAPER: &'static str = "Katsarakis et al., Hermes (2020)";
    const CAPABILITIES: Capabilities = Capabilities {
        total_order: false,
        multi_key: false,
        leaderless: true,
        rejoin: true,
        diskless: Diskless::Data,
        reads: "at any replica, under a lease (bounded drift); or almost-local",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        rejoin::check_group(group)?;
        let tombstones = settings.duration(
            "hermes.tombstones",
            "120s",
            "Deleted keys are remembered for so long; a proxy whose session is older has to open another",
        )?;
        if tombstones < MIN_TOMBSTONES {
            return Err(SettingsError::Conflict("hermes.tombstones must be at least 100ms".to_owned()));
        }
        let config = Config {
            group: group.clone(),
            timeouts: ElectionTimeouts::from_settings(settings)?,
            lease: LeaseConfig::from_settings(settings)?,
            reads: Reads::from_settings(settings)?,
            max_bytes: settings::intake_bytes(settings)?,
            page: settings.bytes(
                "hermes.page",
                "256KiB",
                1..=16 << 20,
                "Bytes of keys in one message to a shadow, before the last",
            )? as usize,
            tombstones,
        };
        let proxy = ProxyConfig {
            home: true,
            // A write is sent whole: no log could put parts of it together.
            part: usize::MAX,
            // Before the record of a key is full of writes that may be asked for again.
            confirm: Some(record::WINDOW as u64 / 2),
            each_refuses: true,
            renew: Some(tombstones / 4),
            ..settings::proxy_without_parts(group, settings)?
        };
        Ok((config, proxy))
    }
}

/// The largest value with what the store keeps beside it, in bytes.
const VALUE_LIMIT: usize = (1 << 20) + 256;
/// Deleted keys are remembered for so long at least.
const MIN_TOMBSTONES: Duration = Duration::from_millis(100);
/// Reads that may wait for leases; further ones are asked for again.
const MAX_WAITING: usize = 1 << 16;
