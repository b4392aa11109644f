//! One folder per replication protocol; [`registry`] holds one line each.

pub mod bodega;
pub mod epaxos;
pub mod multipaxos;
pub mod pqr;
pub mod quorum_leases;
pub mod raft;
pub mod registry;
pub mod unreplicated;
