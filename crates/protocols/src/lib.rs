//! One folder per replication protocol; [`registry`] holds one line each.

pub mod epaxos;
pub mod multipaxos;
pub mod raft;
pub mod registry;
pub mod unreplicated;
