//! The slot-log engine of the MultiPaxos family: one Paxos instance a slot, decided in any order, executed in order.
//!
//! | file | role |
//! |---|---|
//! | [`log`] | acceptor and learner: votes and decisions by slot, with holes |
//! | [`proposer`] | phase 1 (what may have been chosen before) and phase 2 (counting votes for one ballot) |

pub mod log;
pub mod proposer;

pub use log::{Cast, SlotLog, Vote};
pub use proposer::{CommitTracker, Preparation, Proposals, Reply, Votes};
