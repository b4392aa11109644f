//! **EPaxos\***: any replica commits what it is asked in one round trip, if a fast quorum knows of the same commands
//! that interfere with it, and in two otherwise. Only commands that interfere are ordered.
//!
//! Moraru, Andersen, Kaminsky, *There Is More Consensus in Egalitarian Parliaments* (SOSP 2013), with the recovery of
//! Ryabinin, Gotsman, Sutra, *Making Democracy Work: Fixing and Simplifying Egalitarian Paxos* (OPODIS 2025);
//! PROTOCOLS.md E. Here n = 2f+1 and e = ⌈(f+1)/2⌉: the fast quorum is n−e (2 of 3, 3 of 5, 5 of 7), the slow one n−f.
//!
//! | rule | code |
//! |---|---|
//! | pre-accept: D by the owner; a replica adds what it knows, in ballot 0 only | `proposing.rs` `propose`, `replica.rs` `on_pre_accept` |
//! | n−e replies equal to D commit at once; else n−f replies, `Accept` with their union | `proposing.rs` `on_pre_accept_reply` |
//! | vote in a ballot not below the joined one; two ballot variables | `replica.rs` `on_accept`, `instance.rs` |
//! | recovery: committed, accepted, owner in the quorum (no-op), or validation | `recovery.rs` `judge` |
//! | validation: who interferes and knows nothing of it; wait for them, or tell them to give way | `recovery.rs` `on_validate`, `settle` |
//! | execution of closed components, ties by id; **replies after execution only** | `parts/graph/order.rs`, `replica.rs` `execute` |
//! | the owner's commit is durable before anybody, itself included, acts on it | `message.rs` `Commit` |
//!
//! # Decisions
//!
//! - *Dependencies are frontiers* (`parts/graph`): of each owner all instances up to the last that interferes. Sets
//!   grow only, so what EPaxos* proves about them stays true; and a no-op in between hides nothing.
//! - *An owner's index is durable before its `PreAccept` leaves*, so an index has one batch and there are no gaps but
//!   those of lost messages. It costs the owner's sync before the round trip instead of beside it.
//! - *Who can be recovered by others in spite of being committed is told by a floor.* Validation asks a replica for
//!   executed instances that interfere and are not in D. So an executed instance may be collected only when it is in
//!   the D of everything that may still be recovered. Each owner says what all of its unfinished and future instances
//!   depend on: its floor, below what all have executed. What is collected earlier, because a replica is away for
//!   long and `log.retain` is full, leaves behind what it touches; and when that is too much (`conflicts.keys`), or
//!   came with a snapshot, the replica does not answer a validation that it cannot decide: one with an old D waits
//!   for another replica.
//! - *A table is cut above what all have executed* only where a majority has executed it and this replica has
//!   executed all that they said to have: then two replicas never lack what only the other has cut. Who lacks it
//!   takes a snapshot; what it has executed and the snapshot has not, it executes again.
//! - *Reads are commands.* They interfere with writes only, and only the replica that answers them executes them.
//! - *Sessions* are keys that writes write; opening one interferes with all of them, so the table of sessions is the
//!   same wherever one is opened or dropped.
//! - *Expiry without replicated time*: a key expires when a batch that writes it says so. Each batch has its proposer's
//!   time, which counts for its own commands alone; whoever finds a key overdue, by its wall clock, proposes `Expire`
//!   for it. Once a read has found it gone, no later one finds it, whatever clocks show. A key's version is unique but
//!   does not grow (`parts/state`).
//! - *An owner stops proposing while `pipeline` of its instances are not executed.* Then everything that is under way
//!   gets committed, and the components of the graph close: their size is bounded, and nothing starves.

pub mod message;
mod proposing;
mod recovery;
mod replica;
mod voting;

use std::time::Duration;

use quorate_core::{Capabilities, Group, NodeSet, Protocol, Settings, SettingsError, mutation};
use quorate_parts::clients::{LeaderProxy, ProxyConfig};
use quorate_parts::graph::{LearnerConfig, OWNERS};
use quorate_parts::settings;

pub use message::Message;
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct Epaxos;

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    learner: LearnerConfig,
    /// An instance that others should have committed by now is recovered after this long, or up to twice as long.
    recovery: Duration,
}

impl Config {
    fn members(&self) -> NodeSet {
        self.learner.members
    }

    /// How many may fail.
    fn f(&self) -> usize {
        (self.members().len() - 1) / 2
    }

    /// How many may fail without the fast path being lost.
    fn e(&self) -> usize {
        if self.f() == 0 { 0 } else { (self.f() + 1).div_ceil(2) }
    }

    fn slow(&self) -> usize {
        self.members().len() - self.f()
    }

    fn fast(&self) -> usize {
        if mutation::active("epaxos/small-fast-quorum") {
            return self.members().majority();
        }
        self.members().len() - self.e()
    }
}

impl Protocol for Epaxos {
    const NAME: &'static str = "epaxos";
    const PAPER: &'static str = "Ryabinin, Gotsman, Sutra, EPaxos* (2025); Moraru et al., EPaxos (2013)";
    const CAPABILITIES: Capabilities = Capabilities {
        total_order: false,
        reads: "at any replica, through its quorum",
        max_nodes: OWNERS,
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = LeaderProxy<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        if let Some(node) = group.members.iter().find(|node| usize::from(node.get()) > OWNERS) {
            let text = format!("epaxos runs on nodes 1 to {OWNERS}; there is a node {node}");
            return Err(SettingsError::Conflict(text));
        }
        let learner = LearnerConfig {
            members: group.members,
            heartbeat: settings.duration("heartbeat", "100ms")?,
            intake: settings::intake(settings)?,
            pipeline: settings.number("pipeline", 64, 1..=4096)?,
            retain: settings.bytes("log.retain", "32MiB", 0..=16 << 30)? as usize,
            keys: settings.number("conflicts.keys", 1 << 17, 1..=1 << 24)? as usize,
        };
        let config = Config { recovery: settings.duration("recovery.timeout", "500ms")?, learner };
        if config.learner.heartbeat < Duration::from_millis(1)
            || config.recovery < 3 * config.learner.heartbeat
        {
            let text =
                "heartbeat must be at least 1ms, and recovery.timeout at least three times the heartbeat";
            return Err(SettingsError::Conflict(text.to_owned()));
        }
        Ok((config, ProxyConfig { home: true, ..settings::proxy(group, settings)? }))
    }
}
