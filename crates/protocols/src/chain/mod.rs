//! **Chain Replication**: writes go in at the head and down the chain, reads are answered by the tail.
//!
//! Van Renesse and Schneider, *Chain Replication for Supporting High Throughput and Availability* (OSDI 2004). The
//! paper has a master that tells who is in the chain; here that is decided in *epochs* ([`quorate_blocks::epochs`]),
//! and the owner of an epoch, its head, states the chain.
//!
//! | rule | code |
//! |---|---|
//! | §2.1 the head orders updates, each member stores and forwards them: what a member has, its predecessor has | `head.rs` `propose`, `links.rs` `propagate`, `message.rs` `release` |
//! | §2.1 the tail's log is what is committed; acknowledgements go back to the head, which answers | `links.rs` `go_on`, `on_ack` |
//! | §2.1 the tail answers queries | `reads.rs` `serve_reads` |
//! | §2.2 a member that has failed is taken out; its predecessor finds out what its new successor lacks | `head.rs` `review_chain`, `links.rs` |
//! | §2.2 a new member becomes the tail when it has what the tail has | `review.rs`, `epochs.rs` `decide` |
//! | §2.2 the head has failed: another member, whose log has all that is committed | `blocks/epochs` |
//! | ballot durable before it is promised; nobody takes part in an earlier epoch after that | `blocks/epochs`, `replica.rs` `on_message` |
//! | an entry is committed when the tail has an entry of its own epoch at or behind it | `links.rs` `go_on` |
//! | a tail reads while a majority has promised it not to promise another ballot | `reads.rs`, `blocks/leases` |
//! | CRAQ: all of the chain answer reads, of a dirty key as far as the tail has it committed | `apportioned.rs` |
//! | who stops says so, and is not waited for | `handover.rs` |
//! | eager almost-local reads: executed, then a majority is asked whether it has promised a later ballot | `blocks/epochs` |
//! | a member whose disk was lost promises when it has what the others have, and is in no chain that its earlier life may have promised | `blocks/rejoin`, `blocks/epochs` |
//! | a tail that was restarted first executes what it may have shown | `replica.rs` `recover`, `epochs.rs` `adopt` |
//!
//! # Why it is right
//!
//! It is Raft's argument with another quorum. An epoch has one head, since ballots have owners, and an owner states the
//! chain once in its life and never after a restart. An entry that is committed in an epoch is durable at all members
//! of its chain, a majority. Those who promise a later ballot are a majority too, so one of them is in that chain: it
//! had the entry before it promised, and took part in the earlier epoch no more. A candidate's log is compared with
//! that of everybody who promises, so it has the entry. By induction over epochs so has every later head, and a member
//! removes only what differs from its head's log.
//!
//! A tail that reads has executed an entry of its epoch, so everything from earlier ones. Later epochs have not begun:
//! a majority has promised the tail to promise no later ballot, or is the tail itself. In its own epoch nothing is
//! committed before it says so, and what an earlier life of it has committed it has executed again.
//!
//! # Decisions
//!
//! - *The master is the head.* The paper's is a replicated service of its own. Here the members are its acceptors: a
//!   group of n tolerates that fewer than half of its members fail, and not all but one, as the paper's chain does
//!   beside its master. A chain has a majority of the members at least, so that any two have one in common.
//! - *The head answers writes*, when the acknowledgement of the tail has come back to it: it knows the proxies
//!   (`clients::Intake`), and removes duplicates by the sessions in the replicated state. In the paper the tail
//!   answers.
//! - *A proxy asks the tail for reads* as soon as it has been told who that is, by whichever member it asked before.
//!   What comes to the head is passed on to the tail.
//! - *A ballot is taken after a poll*, as a pre-vote in Raft: a member that is cut off, or whose disk has forgotten
//!   what it promised, disturbs nobody.
//! - *The chain is not recorded.* Whoever restarts in an epoch hears it from the head; a head that restarts leads in
//!   its epoch no more. A log whose last entry is of this epoch is the head's up to there, so no link begins anew.
//! - *A member whose disk hangs, or that is too slow, is left out* like one that has failed, if the others are enough
//!   (`blocks::laggards`), and taken in again ever more rarely. It is too slow if nothing gets on for two election
//!   timeouts, or if it gets on and each entry takes half of one. If a chain has committed nothing, the head has twice
//!   the patience with the next: members that catch up behind a slow one would be left out in turn for ever. And nobody
//!   is taken in again before a chain has lasted for a while and committed something, nor in place of another that is
//!   left out, if the others are enough (`review.rs`): several slow ones would be in the chain in turn. Where a chain
//!   is slow, that while is long: each new chain has to begin, and writes wait meanwhile.
//! - *A reader says in its answers to heartbeats whether it holds leases of a majority*, and is left out if it does not
//!   for long: its links may be so slow that leases end before they are renewed, and the head sees only its own.
//! - *A candidate that was the head waits for those that it knows to work*, and does without the others. One that comes
//!   too late all the same is left out for a while, or epochs would be begun for it for ever.
//! - *A head whose own disk hangs, that reaches no majority, or that reads and holds no leases, stops.*
//! - *Members do not change while the group runs*: `quorate member` is refused.

mod apportioned;
pub mod craq;
mod driven;
mod epochs;
mod handover;
mod head;
mod invariants;
mod links;
mod message;
mod reads;
mod replica;
mod review;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::election::ElectionTimeouts;
use quorate_blocks::epochs::Reads;
use quorate_blocks::leases::lease::LeaseConfig;
use quorate_blocks::rejoin;
use quorate_blocks::settings::{self, IntakeConfig};
use quorate_core::{Capabilities, Group, Protocol, Settings, SettingsError};

pub use message::{Message, Record};
pub use replica::{Replica, Timer};

/// See the module's comment.
#[derive(Debug)]
pub struct Chain;

/// Who of a chain answers reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    /// The tail alone, as in Chain Replication.
    Tail,
    /// All of it ([`craq`]).
    All,
}

/// What a replica is told.
#[derive(Clone, Debug)]
pub struct Config {
    group: Group,
    timeouts: ElectionTimeouts,
    lease: LeaseConfig,
    readers: Readers,
    reads: Reads,
    intake: IntakeConfig,
    /// Entries that may be appended and not committed.
    pipeline: usize,
    /// Bytes of executed entries to keep for successors that are a little behind.
    retain: usize,
}

impl Protocol for Chain {
    const NAME: &'static str = "chain";
    const PAPER: &'static str = "van Renesse, Schneider, Chain Replication (2004)";
    const CAPABILITIES: Capabilities = Capabilities {
        transfer: true,
        rejoin: true,
        // The first is version 0.1.0's: its chains had messages of their own for epochs.
        message_revision: 2,
        reads: "at the tail, under a lease (bounded drift); or almost-local",
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(group: &Group, settings: &mut Settings) -> Result<(Config, ProxyConfig), SettingsError> {
        configure(Readers::Tail, group, settings)
    }
}

fn configure(
    readers: Readers,
    group: &Group,
    settings: &mut Settings,
) -> Result<(Config, ProxyConfig), SettingsError> {
    rejoin::check_group(group)?;
    let config = Config {
        group: group.clone(),
        timeouts: ElectionTimeouts::from_settings(settings)?,
        lease: LeaseConfig::from_settings(settings)?,
        readers,
        reads: Reads::from_settings(settings)?,
        intake: settings::intake(settings)?,
        pipeline: settings::pipeline(settings)?,
        retain: settings::retain(settings)?,
    };
    Ok((config, ProxyConfig { nearest: true, ..settings::proxy(group, settings)? }))
}

/// Bytes of entries in one message, before the last.
const UPDATE_BYTES: usize = 1 << 20;
/// Bytes that may be on their way to one successor, and appended and not committed, before the last entry.
const PIPELINE_BYTES: u64 = 4 << 20;
/// Reads that may wait at the tail; further ones are asked for again.
const MAX_WAITING: usize = 1 << 16;
