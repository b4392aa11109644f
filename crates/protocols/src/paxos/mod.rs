//! The **MultiPaxos family**: one machine, `engine`, in which a stable leader numbers slots; a protocol is the engine
//! with a policy.
//!
//! | module | what |
//! |---|---|
//! | `engine` | the replica: ballots, slots, leases, reads, membership |
//! | [`multipaxos`] | the engine without a policy of its own: reads at the leader |
//! | [`pqr`] | reads that a majority answers |
//! | [`quorum_leases`] | reads at grantees, with which every write is synchronized |
//! | [`bodega`] | reads at all responders of a roster |
//! | [`rspaxos`] | values in shards |
//! | [`crossword`] | values in shards, more of them where fewer replies are to be had |
//! | `rosters` | who answers reads of which keys, for the last two |

pub mod bodega;
pub mod crossword;
mod engine;
pub mod multipaxos;
pub mod pqr;
pub mod quorum_leases;
mod rosters;
pub mod rspaxos;
