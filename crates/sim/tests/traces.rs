//! The protocols' golden conversations. `UPDATE_TRACES=1` rewrites what is expected; review the difference.

use std::path::Path;

use quorate_protocols::epaxos::Epaxos;
use quorate_protocols::paxos::bodega::Bodega;
use quorate_protocols::paxos::multipaxos::MultiPaxos;
use quorate_protocols::paxos::pqr::Pqr;
use quorate_protocols::paxos::quorum_leases::QuorumLeases;
use quorate_protocols::raft::Raft;
use quorate_sim::run_traces;

#[test]
fn multipaxos_speaks_as_its_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/paxos/multipaxos/traces");
    run_traces::<MultiPaxos>(Path::new(dir));
}

#[test]
fn epaxos_speaks_as_its_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/epaxos/traces");
    run_traces::<Epaxos>(Path::new(dir));
}

#[test]
fn raft_speaks_as_its_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/raft/traces");
    run_traces::<Raft>(Path::new(dir));
}

#[test]
fn pqr_speaks_as_its_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/paxos/pqr/traces");
    run_traces::<Pqr>(Path::new(dir));
}

#[test]
fn quorum_leases_speak_as_their_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/paxos/quorum_leases/traces");
    run_traces::<QuorumLeases>(Path::new(dir));
}

#[test]
fn bodega_speaks_as_its_traces_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocols/src/paxos/bodega/traces");
    run_traces::<Bodega>(Path::new(dir));
}
