//! **EPaxos\***: any replica commits what it is asked in one round trip, if a fast quorum knows of the same commands
//! that interfere with it, and in two otherwise. Only commands that interfere are ordered.
//!
//! Moraru, Andersen, Kaminsky, *There Is More Consensus in Egalitarian Parliaments* (SOSP 2013), with the recovery of
//! Ryabinin, Gotsman, Sutra, *Making Democracy Work: Fixing and Simplifying Egalitarian Paxos* (OPODIS 2025).
//! Here n = 2f+1 and e = ⌈(f+1)/2⌉: the fast quorum is n−e (2 of 3, 3 of 5, 5 of 7), the slow one n−f.
//!
//! | rule | code |
//! |---|---|
//! | phase 1: D by the owner; a replica adds what it knows, in ballot 0 only | `proposing.rs` `propose`, `voting.rs` `on_pre_accept` |
//! | n−e replies equal to D commit at once; else n−f replies, `Accept` with their union | `proposing.rs` `on_pre_accepted` |
//! | vote in a ballot not below the joined one; two ballot variables | `voting.rs` `on_accept`, `epaxos/graph/instance_state.rs` |
//! | recovery: committed, accepted, owner in the quorum (no-op), or validation | `recovery.rs` `judge` |
//! | validation: who interferes and knows nothing of it; wait for them, or tell them to give way | `voting.rs` `on_validate`, `recovery.rs` `on_validated` |
//! | execution of closed components, ties by id; **replies after execution only** | `epaxos/graph/order.rs`, `graph/learner` `execute` |
//! | the owner's commit is durable before anybody, itself included, acts on it | `message.rs` `Commit` |
//! | a member that lost its disk takes part when it knows all that it may have voted for | `epaxos/graph/learner/rejoin.rs` |
//!
//! Everything else a replica does is its `Learner`'s (`graph/learner`): batches, execution, catching up,
//! forgetting.
//!
//! # Decisions
//!
//! - *Dependencies are frontiers* (`blocks/instance.rs`): of each owner all instances up to the last that interferes.
//!   Sets grow only, so what EPaxos* proves about them stays true; and a no-op in between hides nothing.
//! - *An owner's index is durable before its `PreAccept` leaves*, so an index has one batch and there are no gaps but
//!   those of lost messages. It costs the owner's sync before the round trip instead of beside it.
//! - *Who can be recovered by others in spite of being committed is told by a floor* (`learner/gc_watermarks.rs`): a
//!   validation that collected instances might contradict waits for somebody who knows (`recovery.rs`).
//! - *Reads are commands.* They interfere with writes only, and only the replica that answers them executes them.
//! - *Sessions* are keys that writes write; opening one interferes with all of them, so the table of sessions is the
//!   same wherever one is opened or dropped.
//! - *Expiry without replicated time*: a key expires when a batch that writes it says so. Each batch has its proposer's
//!   time, which counts for its own commands alone. The clocks of a majority bound it (`blocks/walls.rs`), which answer
//!   `ClockRequest`; after a start nothing is proposed before a majority has answered. Whoever finds
//!   a key overdue proposes `Expire` for it. Once a read has found it gone, no later one finds it, whatever clocks
//!   show. A key's version grows while the key is there, and is never used twice (`blocks/state.rs`).

mod graph;
mod in_flight;
pub mod message;
mod proposing;
mod recovery;
mod replica;
#[cfg(test)]
mod tests;
mod voting;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::instance::{Instance, OWNERS};
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, NodeSet, Protocol, Settings, SettingsError, mutation};

use crate::epaxos::graph::{Learner, LearnerConfig};

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
        self.learner.f()
    }

    /// How many may fail without the fast path being lost.
    fn e(&self) -> usize {
        if self.f() == 0 { 0 } else { (self.f() + 1).div_ceil(2) }
    }

    /// How long to wait before an instance is recovered, at least. Longer after each attempt of anybody: those who try
    /// at the same time get into each other's way.
    fn patience(&self, learner: &Learner, instance: Instance) -> Duration {
        let attempts = learner.get(instance).map_or(0, |held| held.state.ballot.rounds());
        self.recovery * (1 << attempts.min(3))
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
        leaderless: true,
        rejoin: true,
        reads: "at any replica, through its quorum",
        max_nodes: OWNERS,
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        let learner = LearnerConfig::new(group, settings)?;
        let recovery = settings.duration(
            "recovery.timeout",
            "500ms",
            "An instance that should be committed by now is recovered after this long, or up to twice as long; twice \
             as long again with each attempt, up to eight times. At least three heartbeats",
        )?;
        if recovery < 3 * learner.heartbeat {
            let text = "recovery.timeout must be at least three times the heartbeat";
            return Err(SettingsError::Conflict(text.to_owned()));
        }
        let config = Config { learner, recovery };
        Ok((config, ProxyConfig { home: true, ..settings::proxy(group, settings)? }))
    }
}
