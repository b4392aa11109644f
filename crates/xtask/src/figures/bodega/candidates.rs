//! The protocols that are compared. One that is new is a line of [`ALL`].

use quorate_core::{SettingsError, Topology};
use quorate_protocols::{registry, wide_area};
use quorate_sim::experiment::{self, Load, Measured, Setup};

use super::model::{Cells, Model};

/// A protocol with its settings.
#[derive(Debug)]
pub struct Candidate {
    /// As the paper calls it, where it does.
    pub name: &'static str,
    /// As the registry calls it.
    protocol: &'static str,
    /// Beside the timeouts of the topology.
    pub settings: &'static [&'static str],
    /// The setting that names the replicas that read locally, where there is one.
    pub roster: Option<&'static str>,
    /// What Table 1 says of it, or would say.
    pub formula: fn(&Model<'_>) -> Cells,
    /// Of Table 1; none for what the paper leaves out.
    pub claim: Option<&'static str>,
}

pub const MULTIPAXOS: &str = "MultiPaxos";
/// To which the paper's Figure 8 normalizes.
pub const LEADER_LEASES: &str = "Leader Leases";
pub const EPAXOS: &str = "EPaxos";
pub const PQR: &str = "PQR";
/// To which the paper's Figure 16 normalizes.
pub const PQR_LEASES: &str = "PQR (+ Ldr Ls)";
pub const QUORUM_LEASES: &str = "Quorum Leases";
pub const PASSIVE: &str = "Quorum Leases (passive)";
pub const BODEGA: &str = "Bodega";

/// All of them, in the order of the paper's legend; Raft, which it leaves out, behind.
pub const ALL: &[Candidate] = &[
    of(MULTIPAXOS, "multipaxos", &["reads=log"], None, |t| Cells::steady(t.l() + t.m(), t.l() + t.m()), None),
    of(LEADER_LEASES, "multipaxos", &[], None, |t| Cells::steady(t.l() + t.m(), t.l()), Some("B-T1.2")),
    of(EPAXOS, "epaxos", &[], None, |t| t.epaxos(), Some("B-T1.3")),
    of(PQR, "pqr", &[], None, |t| t.pqr(), Some("B-T1.4")),
    of(PQR_LEASES, "pqr", &["leader_lease=true"], None, |t| t.pqr_leases(), Some("B-T1.5")),
    of(QUORUM_LEASES, "quorum-leases", &[], Some("grantees"), |t| t.leased(2.0), Some("B-T1.6")),
    of(PASSIVE, "quorum-leases", &["passive=true"], Some("grantees"), |t| t.leased(1.0), Some("B-T1.7")),
    of(BODEGA, "bodega", &["responder.timeout=1200ms"], Some("responders"), |t| t.bodega(), Some("B-T1.8")),
    of(
        "Raft, ReadIndex",
        "raft",
        &["reads=quorum"],
        None,
        |t| Cells::steady(t.l() + t.m(), t.l() + t.m()),
        None,
    ),
    of(
        "Raft, LeaseGuard",
        "raft",
        &["reads=leaseguard"],
        None,
        |t| Cells::steady(t.l() + t.m(), t.l()),
        None,
    ),
];

/// Bodega without the optimization of §3.2.2: responders wait for the leader's commit, and the leader need not hold
/// reads.
pub const WITHOUT_NOTES: Candidate = of(
    "Bodega without early notes",
    "bodega",
    &["responder.timeout=1200ms", "early_notes=false"],
    Some("responders"),
    |t| t.bodega(),
    None,
);

const fn of(
    name: &'static str,
    protocol: &'static str,
    settings: &'static [&'static str],
    roster: Option<&'static str>,
    formula: fn(&Model<'_>) -> Cells,
    claim: Option<&'static str>,
) -> Candidate {
    Candidate { name, protocol, settings, roster, formula, claim }
}

/// One of them.
pub fn known(name: &str) -> &'static Candidate {
    ALL.iter().find(|candidate| candidate.name == name).expect("one of them")
}

/// Those that only read at replicas that a setting names, or at the leader.
pub fn local() -> Vec<&'static Candidate> {
    ALL.iter().filter(|candidate| candidate.roster.is_some()).collect()
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
