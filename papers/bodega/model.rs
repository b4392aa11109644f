//! The formulas of Table 1, and what its symbols are for the clients of a site, in ms.

use quorate_core::Topology;

/// A site of clients, and a roster.
pub struct Model<'a> {
    pub topology: &'a Topology,
    /// Of the leader.
    pub leader: usize,
    /// Beside it, where reads are local.
    pub responders: &'a [usize],
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

    /// The majority of the clients' node.
    fn own(&self) -> f64 {
        self.nearest(self.site, self.nodes() / 2 + 1)
    }

    /// N: the leader's majority that has all responders.
    pub fn all(&self) -> f64 {
        self.responders.iter().map(|to| self.trip(self.leader, *to)).fold(self.m(), f64::max)
    }

    /// Whether a site's clients read locally.
    pub fn is_local(&self) -> bool {
        self.site == self.leader || self.responders.contains(&self.site)
    }

    /// EPaxos: M is the fast quorum of the clients' node, which has three of five nodes.
    pub fn epaxos(&self) -> Cells {
        let n = self.nodes();
        let f = (n - 1) / 2;
        let fast = self.nearest(self.site, n - (f + 1).div_ceil(2));
        let once = self.c + fast;
        Cells { write: once, read: once, worst: once + self.own(), window: fast }
    }

    /// PQR: how often it rinses is not known beforehand; once. Who leads has executed what anybody has.
    pub fn pqr(&self) -> Cells {
        let read = self.c + self.own();
        if self.site == self.leader {
            return Cells::steady(self.l() + self.m(), read);
        }
        Cells { write: self.l() + self.m(), read, worst: read + self.own(), window: self.m() }
    }

    /// PQR with leader leases: then it asks the leader.
    pub fn pqr_leases(&self) -> Cells {
        let read = self.c + self.own();
        if self.site == self.leader {
            return Cells::steady(self.l() + self.m(), read);
        }
        Cells { write: self.l() + self.m(), read, worst: read + self.l() - self.c, window: self.m() }
    }

    /// Quorum leases, with so many rounds to all until leases are there again.
    pub fn leased(&self, rounds: f64) -> Cells {
        let (write, read) = (self.l() + self.all(), if self.is_local() { self.c } else { self.l() });
        if self.site == self.leader || !self.is_local() {
            return Cells::steady(write, read);
        }
        Cells { write, read, worst: self.l(), window: rounds * self.all() }
    }

    /// Bodega: the slowest read beside a write is held all the time.
    pub fn bodega(&self) -> Cells {
        let (write, read) = (self.l() + self.all(), if self.is_local() { self.c } else { self.l() });
        if self.site == self.leader || !self.is_local() {
            return Cells::steady(write, read);
        }
        Cells { write, read, worst: self.c + self.m() / 2.0, window: self.m() / 2.0 }
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
