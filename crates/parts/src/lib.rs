//! What protocols are composed of: pure values that take and return values. Only a protocol (or a whole machine
//! such as [`clients::SessionClient`], or half of one: [`graph::Learner`]) touches `Context`; parts that converse own a
//! message enum that a protocol embeds.
//!
//! | part | what |
//! |---|---|
//! | [`admission`] | which disk a node may take part with; used by drivers |
//! | [`ballot`], [`quorum`] | numbers with an owner; counting votes |
//! | [`slots`] | the slot log of the MultiPaxos family: acceptor, learner, proposer |
//! | [`chain`] | the prefix log of Raft and ZAB; a leader's view of the others' |
//! | [`graph`] | instances that depend on each other: the EPaxos family |
//! | [`lease`], [`leases`] | promises that outlive the belief in them: one, and all of a replica |
//! | [`rosters`], [`coverage`] | who answers reads of which keys; who should |
//! | [`exclusion`], [`laggards`] | doing without replicas that have failed; those that are there and do not vote |
//! | [`paxos`] | MultiPaxos as a machine, and what its family may change in it |
//! | [`freshness`] | how old a follower's state may be at most |
//! | [`election`] | when to suspect a leader |
//! | [`membership`] | who is in the group, and how that changes |
//! | [`writes`], [`times`] | which keys are written by what is not executed yet; the times that it tells |
//! | [`rounds`] | who has confirmed since when that a leader leads |
//! | [`batch`], [`walls`] | what a slot carries; the time that it tells |
//! | [`sessions`], [`state`] | exactly-once execution; store and sessions as one replicated state |
//! | [`clients`] | the conversation between proxies and a leader, both sides |
//! | [`catchup`] | missed decisions and snapshots |
//! | [`settings`] | settings that protocols share |

pub mod admission;
pub mod ballot;
pub mod batch;
pub mod catchup;
pub mod chain;
pub mod clients;
pub mod coverage;
pub mod election;
pub mod exclusion;
pub mod freshness;
pub mod graph;
pub mod laggards;
pub mod lease;
pub mod leases;
pub mod membership;
pub mod paxos;
pub mod quorum;
pub mod rosters;
pub mod rounds;
pub mod sessions;
pub mod settings;
pub mod slots;
pub mod state;
pub mod times;
pub mod walls;
pub mod writes;
