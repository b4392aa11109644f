//! **Crossword**: values are sent to the acceptors in shards, and how many each gets is decided for each slot: few
//! shards and many replies, or more shards and fewer replies. With whole values, a majority is enough, so it is as
//! available as MultiPaxos.
//!
//! Hu et al., *Crossword: Adaptive Consensus for Dynamic Data-Heavy Workloads* (2025). On the machine of
//! [`crate::paxos::engine`], whose `mod.rs` tells elections, leases, reads and what is durable.
//!
//! | rule | code |
//! |---|---|
//! | code: n voters, any d = ⌈n/2⌉ of n shards restore a value | [`data`] |
//! | phase 2a: to voter number i, c shards from number i on, in a circle; or as many as a table says | `blocks/coding/assignment.rs`, `engine/leading.rs` `send_accept` |
//! | phase 2b: with the shards that are held | `engine/slots/log.rs` `held_in` |
//! | C1: a majority; C2: whichever n − m voters are lost, the others hold d distinct shards | `engine/slots/commit_tracker.rs`, `coding/spread.rs` `worst_cover` |
//! | how many: at least as many as let those who are there have a value chosen (C4; C2 with a table) | `coding/assignment.rs` `least_width` |
//! | which of these: the soonest by response times; by size; a number; a table | `shards.rs`, `chooser.rs` |
//! | more shards in the same ballot, for what is under way | `engine/leading.rs` `retransmit` |
//! | phase 1: the highest vote's value, if the shards of all ballots restore it, else a no-op | `engine/slots/found.rs` |
//! | an acceptor that votes again keeps what it has of the same value | `blocks/coding/value.rs` `over` |
//! | followers gather shards from each other, a new leader from all | `engine/gossip.rs` |
//!
//! # Why nothing that was chosen is lost
//!
//! A value is chosen in a ballot when its voters, each with the shards that it *said to hold*, satisfy C1 and C2. A
//! candidate hears a majority, so it misses at most n − m of these voters, and by C2 the others hold d distinct shards.
//! Take the first ballot above in which something else is proposed. Its candidate has heard these others, each after it
//! voted for the value; in between they can have voted for the same value only, and an acceptor adds what it gets to
//! what it has. So the highest vote that the candidate heard is for this value (by C1 it has heard one), and there are
//! enough shards to restore it; it would have proposed that. The other way around: where the highest vote's shards do
//! not suffice, nothing was chosen.
//!
//! What counts is what acceptors say to hold, not what was last assigned to them: a reply that is late tells of the
//! assignment before. Shards that an acceptor says to hold are durable, and it has them as long as the vote.
//!
//! With joint consensus C1 and C2 hold for each set of voters.
//!
//! # Decisions
//!
//! - *d shards are sent as the whole value*, which costs as much and can be executed at once.
//! - *Who is there*: who has spoken within `election.timeout`, and whose votes are not overdue
//!   ([`quorate_blocks::laggards`]). That decides what is sent at first. What is under way for 200 ms and has the votes
//!   of a majority needs nobody else: these get as many shards as C4 wants of them.
//! - *Configurations, rosters and no-ops are whole*, since acceptors read them.
//! - *What a new leader found goes with its old identity, or whole* (as in RSPaxos).
//! - *A table is of the group that it names.* It holds while all voters are in it and satisfy C2; else, and while there
//!   are two sets of voters, assignments are balanced.
//! - *Followers gather what they lack from each other*, and fetch it whole where that does not help.

mod chooser;
mod shards;

use std::time::Duration;

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::coding::{Assignment, MAX_SHARDS};
use quorate_blocks::membership::Configuration;
use quorate_blocks::settings;
use quorate_core::{Capabilities, Context, Group, Never, NodeId, Protocol, Settings, SettingsError, Time};

use crate::paxos::engine::{self, Config, LackingConfig, Reads};

use chooser::Choice;
use shards::Shards;

/// What its machines say to each other.
pub type Message = engine::Message<Never, ()>;

/// The machine with this policy.
pub type Replica = engine::Replica<Policy>;

/// A vote that is missing for so long where a majority has voted is not waited for in later slots.
const OVERDUE: Duration = Duration::from_millis(100);

/// See the module's comment.
#[derive(Debug)]
pub struct Crossword;

/// What a replica is told of shards.
#[derive(Clone, Debug)]
pub struct ShardsConfig {
    /// Who gets which.
    shards: Shards,
    /// When followers get what they lack.
    lacking: LackingConfig,
}

impl Protocol for Crossword {
    const NAME: &'static str = "crossword";
    const PAPER: &'static str =
        "Hu et al., Crossword: Adaptive Consensus for Dynamic Data-Heavy Workloads (2025)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        reads: "at the leader, under a lease (bounded drift)",
        max_nodes: MAX_SHARDS,
        ..Capabilities::LOGGED
    };
    type Message = Message;
    type Replica = Replica;
    type Proxy = SessionClient<Message>;

    fn configure(
        group: &Group,
        settings: &mut Settings,
    ) -> Result<(Config<ShardsConfig>, ProxyConfig), SettingsError> {
        let shards = Shards::from_settings(group, settings)?;
        let shards = ShardsConfig { shards, lacking: lacking(settings)? };
        let config = Config::new(group, settings, Reads::Lease, shards)?;
        Ok((config, ProxyConfig { bounded: true, ..settings::proxy(group, settings)? }))
    }
}

/// `lacking.age`, `lacking.bytes`, `gossip.gap`.
fn lacking(settings: &mut Settings) -> Result<LackingConfig, SettingsError> {
    let age = settings.duration(
        "lacking.age",
        "2s",
        "A follower that could execute nothing for so long gathers shards up to the log's end; after twice that, it \
         fetches values whole",
    )?;
    let gap = settings.bytes(
        "gossip.gap",
        "400KiB",
        0..=16 << 30,
        "Followers do not gather the shards of so many bytes of values at the log's end yet",
    )?;
    let bytes = engine::lacking_bytes(settings)?;
    Ok(LackingConfig { age, bytes, gossip_gap: Some(gap as usize) })
}

/// How many shards each voter gets so that a value is chosen soonest. What is under way is on the same links, so a
/// number is as good as it would be for all of that: of single values under load, each would wait longer for those
/// before it than its own bytes take, and none would be worth splitting.
fn soonest(replica: &Replica, bytes: usize, least: usize, now: Time) -> usize {
    let (voters, limit) = (replica.configuration().voting(), replica.config().timeouts.election);
    let others: Vec<_> = voters.without(replica.me()).iter().collect();
    let (data, lost) = (data(voters.len()), voters.len() - voters.majority());
    let bytes = bytes + replica.bytes_under_way();
    let choice = Choice { data, lost, least: least.min(data), bytes };
    let is_there = |node: &NodeId| replica.is_voting(*node, limit, now);
    chooser::choose(choice, others.len(), |other, bytes| {
        Some(others[other]).filter(is_there).and_then(|node| replica.response_time(node, bytes))
    })
}

/// d: how many shards restore a value, among so many voters. So many are a majority, or half.
pub fn data(voters: usize) -> usize {
    voters.div_ceil(2).max(1)
}

/// Crossword's share of a replica.
#[derive(Debug)]
pub struct Policy;

impl engine::Policy for Policy {
    type Config = ShardsConfig;
    type Message = Never;
    type BallotConfig = ();

    fn new(_: &Config<ShardsConfig>, _: NodeId, _: Time) -> Policy {
        Policy
    }

    fn assignment(replica: &Replica) -> Option<Assignment> {
        let Configuration { voters, outgoing, .. } = replica.configuration();
        let table = replica.config().policy.shards.table().filter(|_| outgoing.is_empty());
        let table = table.and_then(|table| shards::among(table, *voters));
        table.or_else(|| Assignment::balanced([*voters, *outgoing], data))
    }

    fn width(replica: &Replica, of: &Assignment, bytes: usize, least: usize, now: Time) -> usize {
        match &replica.config().policy.shards {
            Shards::AtLeast(fixed) => least.max(*fixed),
            Shards::BySize(sizes) => least.max(shards::by_size(sizes, bytes)),
            Shards::Table(_) if !of.is_balanced() => least,
            Shards::Table(_) | Shards::Soonest => soonest(replica, bytes, least, now),
        }
    }

    fn on_pulse(replica: &mut Replica, cx: &mut Context<'_, Replica>) -> bool {
        replica.review_laggards(OVERDUE, cx.now());
        true
    }

    fn lacking(replica: &Replica) -> LackingConfig {
        replica.config().policy.lacking
    }
}
