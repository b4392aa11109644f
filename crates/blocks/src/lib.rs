//! What protocols of two or more families are composed of: pure values that take and return values. Only a protocol, a
//! whole machine such as [`clients::SessionClient`], or the part of one that is the same in several families
//! ([`prefix_log::ReplicatedLog`]) touches `Context`. Blocks that converse or keep records own an enum of messages or
//! records, which a protocol embeds.
//!
//! | block | what |
//! |---|---|
//! | [`admission`] | which disk a node may take part with; used by drivers |
//! | [`ballot`], [`quorum`] | numbers with an owner; counting votes |
//! | [`laggards`] | replicas that are there and do not vote |
//! | [`election`] | when to suspect a leader |
//! | [`epochs`] | who of a group takes part, decided anew when one has failed |
//! | [`membership`] | who is in the group, and how that changes |
//! | [`writes`] | which keys are written by what is not executed yet |
//! | [`leases`] | promises not to support anybody else for a while, by clocks whose rates are bounded |
//! | [`prefix_log`] | a log without holes, with what it has led to; what a leader knows of another's |
//! | [`batch`], [`walls`] | what a slot carries; the time that it tells |
//! | [`parts`] | large writes in several entries |
//! | [`reach`] | the timeouts that fit the round trips between members; used by drivers |
//! | [`rejoin`] | a member whose disk was lost, until it takes part again |
//! | [`coding`] | values in shards: Reed–Solomon coding, who holds which shards |
//! | [`pace`] | how long a peer takes for so many bytes, and when an answer is late |
//! | [`instance`] | instances and sets of them, where there are no slots |
//! | [`sessions`], [`state`] | exactly-once execution; store and sessions as one replicated state |
//! | [`clients`] | the conversation between proxies and a leader, both sides |
//! | [`catchup`] | missed decisions and snapshots |
//! | [`settings`] | settings that protocols share |
//!
//! A block has two customers, which the style test checks; what only one family uses is in its folder.

pub mod admission;
pub mod ballot;
pub mod batch;
pub mod catchup;
pub mod clients;
pub mod coding;
pub mod election;
pub mod epochs;
pub mod instance;
pub mod laggards;
pub mod leases;
pub mod membership;
pub mod pace;
pub mod parts;
pub mod prefix_log;
pub mod quorum;
pub mod reach;
pub mod rejoin;
pub mod sessions;
pub mod settings;
pub mod state;
pub mod walls;
pub mod writes;
