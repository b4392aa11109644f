//! The protocols that are compared. One that is new is a line of [`ALL`], and a formula if Table 1 has it.

use quorate_core::{Protocol, SettingsError, Topology};
use quorate_protocols::multipaxos::MultiPaxos;
use quorate_protocols::raft::Raft;
use quorate_sim::experiment::{Load, Measured, Setup, measure};

/// A protocol with its settings.
pub struct Candidate {
    /// As the paper calls it, where it does.
    pub name: &'static str,
    /// Beside the timeouts of the topology.
    pub settings: &'static [&'static str],
    /// What Table 1 says of it, or would say.
    pub formula: fn(&Model) -> Cells,
    /// Of Table 1; none for what the paper leaves out.
    pub claim: Option<&'static str>,
    pub run: fn(&Setup, Load<'_>) -> Result<Measured, SettingsError>,
    /// The timeouts that suit a topology.
    pub timeouts: fn(&Topology, usize) -> Vec<String>,
}

/// All of them, in the order of the paper's legend.
pub const ALL: &[Candidate] = &[
    of::<MultiPaxos>("MultiPaxos", &["reads=log"], |t| Cells::steady(t.l() + t.m(), t.l() + t.m()), None),
    of::<MultiPaxos>(LEADER_LEASES, &[], |t| Cells::steady(t.l() + t.m(), t.l()), Some("B-T1.2")),
    of::<Raft>("Raft, ReadIndex", &["reads=quorum"], |t| Cells::steady(t.l() + t.m(), t.l() + t.m()), None),
    of::<Raft>("Raft, LeaseGuard", &["reads=leaseguard"], |t| Cells::steady(t.l() + t.m(), t.l()), None),
];

/// To which the paper's Figure 8 normalizes.
pub const LEADER_LEASES: &str = "Leader Leases";

const fn of<P: Protocol>(
    name: &'static str,
    settings: &'static [&'static str],
    formula: fn(&Model) -> Cells,
    claim: Option<&'static str>,
) -> Candidate {
    Candidate { name, settings, formula, claim, run: measure::<P>, timeouts: Topology::settings::<P> }
}

/// What Table 1's symbols are for the clients of a site, in ms.
pub struct Model<'a> {
    pub topology: &'a Topology,
    /// Of the leader.
    pub leader: usize,
    /// Of the clients.
    pub site: usize,
    /// From a client to its node and back.
    pub c: f64,
}

impl Model<'_> {
    fn trip(&self, from: usize, to: usize) -> f64 {
        self.topology.round_trip(from, to).as_secs_f64() * 1e3
    }

    /// Client and leader: through the client's node, whose proxy asks for it.
    pub fn l(&self) -> f64 {
        self.c + self.trip(self.site, self.leader)
    }

    /// Until so many nodes, the first itself, have answered a node.
    fn nearest(&self, from: usize, count: usize) -> f64 {
        let mut trips: Vec<_> = (0..self.nodes()).map(|to| self.trip(from, to)).collect();
        trips.sort_by(f64::total_cmp);
        trips[count - 1]
    }

    fn nodes(&self) -> usize {
        self.topology.sites().len()
    }

    /// The leader's majority.
    pub fn m(&self) -> f64 {
        self.nearest(self.leader, self.nodes() / 2 + 1)
    }

    /// All nodes, from the leader.
    pub fn all(&self) -> f64 {
        self.nearest(self.leader, self.nodes())
    }
}

/// A row of Table 1, in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    /// W: a write.
    pub write: f64,
    /// R: a read when nothing else goes on.
    pub read: f64,
    /// R*: the slowest read beside one write.
    pub worst: f64,
    /// D*: how long reads are slower than R.
    pub window: f64,
}

impl Cells {
    /// Where writes do not slow reads.
    pub const fn steady(write: f64, read: f64) -> Cells {
        Cells { write, read, worst: read, window: 0.0 }
    }
}
