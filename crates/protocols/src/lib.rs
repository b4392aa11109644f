//! The replication protocols, a folder for each family; [`registry`] lists them.
//!
//! | folder | family |
//! |---|---|
//! | [`unreplicated`] | one node, for comparison |
//! | [`primary_copy`] | a primary for ever that copies its log; the beginning of a new protocol |
//! | [`raft`] | a leader of a term whose log the others follow |
//! | [`zab`] | a leader of an epoch that makes its followers' histories its own before it proposes |
//! | [`chain`] | a head that orders writes, and members that pass them on to a tail; it answers reads, or all of them do |
//! | [`paxos`] | a stable leader that numbers slots; Prepare and Accept decide each |
//! | [`epaxos`] | no leader: instances that depend on each other |
//! | [`hermes`] | no leader and no log: every member reads its own copy, and a write invalidates the key everywhere first |
//!
//! [`wide_area`] has the timeouts that suit nodes far apart. What only one family uses is in its folder; what two use
//! is in `crates/blocks`.

pub mod chain;
pub mod epaxos;
pub mod hermes;
pub mod paxos;
pub mod primary_copy;
pub mod raft;
// It compiles each machine whole, which unit tests do without: a third of all that a build of the tests compiled.
#[cfg(not(test))]
pub mod registry;
#[cfg(test)]
mod testing;
pub mod unreplicated;
pub mod wide_area;
pub mod zab;
