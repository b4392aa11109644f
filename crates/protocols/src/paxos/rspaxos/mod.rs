//! **RSPaxos**: values are sent to the acceptors in shards, one each, so that a leader sends and a disk keeps a
//! fraction of their bytes. The price is a larger quorum, and followers that cannot execute.
//!
//! Mu, Chen, Wu, Zheng, *When Paxos Meets Erasure Code* (HPDC 2014); Crossword §2.3. On the machine of
//! [`crate::paxos::engine`], whose `mod.rs` tells elections, leases, reads and what is durable.
//!
//! | rule | code |
//! |---|---|
//! | code: n voters, any d = ⌈n/2⌉ shards restore a value, at most n − 2 | [`data`] |
//! | quorum, of votes and of promises: ⌈(n + d) / 2⌉ | [`quorum`] |
//! | phase 2a: to each voter its shard | `engine/leading.rs` `send_accept` |
//! | phase 1: the highest vote's value, if the shards of all ballots restore it, else a no-op | `engine/slots/found.rs` |
//! | an acceptor that votes again keeps what it has of the same value | `blocks/coding/value.rs` `over` |
//! | followers know what is chosen and execute it when the values come | `engine/lacking.rs` |
//!
//! # Why nothing that was chosen is lost
//!
//! A value is chosen with q votes in a ballot, each of an acceptor that holds a shard of its own. A candidate hears
//! r = q promises, and q + r − n ≥ d of these acceptors are among the others. Take the first ballot above in which
//! something else is proposed. Its candidate has heard d acceptors which voted for the value and had d shards of it;
//! in between they can have voted for the same value only, which leaves them with what they had. So the highest vote
//! that it heard is for this value, and there are enough shards to restore it; it would have proposed that. The
//! other way around: where the highest vote's shards do not suffice, nothing was chosen.
//!
//! With joint consensus each set of voters has its own n and d. A value is coded for all of them, so that no two hold
//! the same shard, with the smaller d: the argument holds for each set. A later leader whose configuration has another
//! code proposes what it found whole.
//!
//! # Decisions
//!
//! - *Three voters send whole values.* With d = 2 every vote would be needed. At most n − 2 shards restore a value, so
//!   that a group of three or more outlives the loss of one.
//! - *Configurations, rosters and no-ops are whole*, since acceptors read them.
//! - *The leader's vote is for its shard.* It has the whole value in memory until it is executed, and has as little on
//!   disk as the others.
//! - *Followers fetch what they lack from time to time*, as late decisions or as a state: the paper's followers wait
//!   for a state that the leader sends. A new leader gathers the shards of what it lacks (`engine/gossip.rs`), so
//!   `lacking.age` and `lacking.bytes` bound how long that takes.

use quorate_blocks::clients::{ProxyConfig, SessionClient};
use quorate_blocks::coding::{Assignment, MAX_SHARDS};
use quorate_blocks::membership::Configuration;
use quorate_blocks::settings;
use quorate_core::{Capabilities, Group, Never, NodeId, Protocol, Settings, SettingsError, Time};

use crate::paxos::engine::{self, Config, LackingConfig, Reads};

/// What its machines say to each other.
pub type Message = engine::Message<Never, ()>;

/// The machine with this policy.
pub type Replica = engine::Replica<Policy>;

/// See the module's comment.
#[derive(Debug)]
pub struct RsPaxos;

impl Protocol for RsPaxos {
    const NAME: &'static str = "rspaxos";
    const PAPER: &'static str = "Mu et al., When Paxos Meets Erasure Code (2014)";
    const CAPABILITIES: Capabilities = Capabilities {
        membership: true,
        transfer: true,
        quorum,
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
    ) -> Result<(Config<LackingConfig>, ProxyConfig), SettingsError> {
        let age = settings.duration(
            "lacking.age",
            "2s",
            "A follower fetches the values of which it has shards only when it has had one for so long",
        )?;
        let lacking = LackingConfig { age, bytes: engine::lacking_bytes(settings)?, gossip_gap: None };
        let config = Config::new(group, settings, Reads::Lease, lacking)?;
        Ok((config, ProxyConfig { bounded: true, ..settings::proxy(group, settings)? }))
    }
}

/// d: how many shards restore a value, among so many voters.
pub fn data(voters: usize) -> usize {
    voters.div_ceil(2).min(voters.saturating_sub(2)).max(1)
}

/// How many of so many voters must vote or promise.
pub fn quorum(voters: usize) -> usize {
    (voters + data(voters)).div_ceil(2)
}

/// RSPaxos's share of a replica.
#[derive(Debug)]
pub struct Policy;

impl engine::Policy for Policy {
    type Config = LackingConfig;
    type Message = Never;
    type BallotConfig = ();

    fn new(_: &Config<LackingConfig>, _: NodeId, _: Time) -> Policy {
        Policy
    }

    fn quorum(_: &Replica, voters: usize) -> usize {
        match quorate_core::mutation::active("slots/nobody-is-lost") {
            true => voters / 2 + 1,
            false => quorum(voters),
        }
    }

    fn assignment(replica: &Replica) -> Option<Assignment> {
        let Configuration { voters, outgoing, .. } = replica.configuration();
        Assignment::balanced([*voters, *outgoing], data)
    }

    fn lacking(replica: &Replica) -> LackingConfig {
        replica.config().policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_and_promises_meet_in_enough_shards_and_one_of_three_or_more_may_be_lost() {
        for voters in 1..=64 {
            let (data, quorum) = (data(voters), quorum(voters));
            assert!(2 * quorum >= voters + data && 2 * quorum > voters, "{voters}");
            assert!(voters < 3 || quorum < voters, "{voters}");
        }
        assert_eq!(
            [3, 5, 7, 9].map(|voters| (data(voters), quorum(voters))),
            [(1, 2), (3, 4), (4, 6), (5, 7)]
        );
    }
}
