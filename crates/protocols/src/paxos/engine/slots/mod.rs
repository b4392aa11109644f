//! The slot-log engine of the MultiPaxos family: one Paxos instance a slot, decided in any order, executed in order.
//!
//! | file | role |
//! |---|---|
//! | [`log`] | acceptor and learner: votes and decisions by slot, with holes |
//! | [`commit_tracker`] | when a proposal is chosen |
//! | `found` | what phase 1 hears of a slot |
//! | [`proposer`] | phase 1 (what may have been chosen before) and phase 2 (counting votes for one ballot) |
//! | [`spread`] | which shards each voter is sent |

pub mod commit_tracker;
mod found;
pub mod log;
pub mod proposer;
pub mod spread;

pub use commit_tracker::CommitTracker;
pub use log::{Cast, Ranges, SlotLog, Vote, Voted, add_slot, ranges};
pub use proposer::{Preparation, Proposals, Reply, Votes};
pub use spread::{ProposedValues, Spread};
