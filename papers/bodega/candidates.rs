//! The protocols that are compared. One that is new is a line of [`ALL`].

use quorate_core::{SettingsError, Topology};
use quorate_protocols::{registry, wide_area};
use quorate_sim::experiment::{self, Load, Measured, Setup};

use super::model::{Cells, Model};
use super::{
    BODEGA, EPAXOS, LEADER_LEASES, LEASEGUARD, MULTIPAXOS, NO_NOTES, PASSIVE, PQR, PQR_LEASES, QUORUM_LEASES,
    READ_INDEX,
};

/// A protocol with its settings.
#[derive(Debug)]
pub struct Candidate {
    /// As the paper calls it, where it does.
    pub name: &'static str,
    /// As the registry calls it.
    pub protocol: &'static str,
    /// Beside the timeouts of the topology.
    pub settings: &'static [&'static str],
    /// The setting that names the replicas that read locally, where there is one.
    pub roster: Option<&'static str>,
    /// What Table 1 says of it, or would say.
    pub formula: fn(&Model<'_>) -> Cells,
}

/// All of them, in the order of the paper's legend; Raft, which it leaves out, behind.
pub const ALL: &[Candidate] = &[
    of(MULTIPAXOS, "multipaxos", &["reads=log"], None, |t| Cells::steady(t.l() + t.m(), t.l() + t.m())),
    of(LEADER_LEASES, "multipaxos", &[], None, |t| Cells::steady(t.l() + t.m(), t.l())),
    of(EPAXOS, "epaxos", &[], None, |t| t.epaxos()),
    of(PQR, "pqr", &[], None, |t| t.pqr()),
    of(PQR_LEASES, "pqr", &["leader_lease=true"], None, |t| t.pqr_leases()),
    of(QUORUM_LEASES, "quorum-leases", &[], Some("grantees"), |t| t.leased(2.0)),
    of(PASSIVE, "quorum-leases", &["passive=true"], Some("grantees"), |t| t.leased(1.0)),
    of(BODEGA, "bodega", &["responder.timeout=1200ms"], Some("responders"), |t| t.bodega()),
    of(READ_INDEX, "raft", &["reads=quorum"], None, |t| Cells::steady(t.l() + t.m(), t.l() + t.m())),
    of(LEASEGUARD, "raft", &["reads=leaseguard"], None, |t| Cells::steady(t.l() + t.m(), t.l())),
];

/// Bodega without the optimization of §3.2.2: responders wait for the leader's commit, and the leader need not hold
/// reads.
pub const WITHOUT_NOTES: Candidate =
    of(NO_NOTES, "bodega", &["responder.timeout=1200ms", "early_notes=false"], Some("responders"), |t| {
        t.bodega()
    });

const fn of(
    name: &'static str,
    protocol: &'static str,
    settings: &'static [&'static str],
    roster: Option<&'static str>,
    formula: fn(&Model<'_>) -> Cells,
) -> Candidate {
    Candidate { name, protocol, settings, roster, formula }
}

/// One of them, by its name; the one without notes is none of [`ALL`].
pub fn known(name: &str) -> &'static Candidate {
    ALL.iter().find(|candidate| candidate.name == name).unwrap_or(&WITHOUT_NOTES)
}

impl Candidate {
    /// Runs an experiment.
    pub fn measure(&self, setup: &Setup, load: Load<'_>) -> Result<Measured, SettingsError> {
        experiment::measure(registry::named(self.protocol), setup, load)
    }

    /// The timeouts that suit a topology.
    pub fn timeouts(&self, topology: &Topology, nodes: usize) -> Vec<String> {
        wide_area::settings(topology, registry::named(self.protocol), nodes)
    }
}
