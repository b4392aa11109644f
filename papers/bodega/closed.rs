//! Clients in closed loops at every site, and what they saw: the load of Figures 8, 9, 11, 12 and 14 to 16.

use quorate_bench::{Choice, Keys};
use quorate_core::{Manage, NodeId, Random, Range, Roster};
use quorate_sim::experiment::measured::Latencies;
use quorate_sim::experiment::{Act, Ask, Clients, Load};

use super::candidates::Candidate;
use super::world::{self, CAPACITY, MS, NEAR, READY, World};
use crate::instrument::Result;

/// Clients are at work for so long before anything counts.
const WARM_UP: u64 = 2_000 * MS;
/// The paper's: ten clients at each of five sites.
pub const CLIENTS_PER_SITE: usize = 10;
pub const KEYS: u64 = 1000;
pub const VALUE: usize = 128;

/// Which key the clients of a site ask for next.
pub type Pick<'a> = Box<dyn FnMut(usize, &mut Random) -> u64 + 'a>;

/// One cluster under one load.
pub struct Closed<'a> {
    pub world: &'a World,
    pub candidate: &'a Candidate,
    /// Beside the leader.
    pub responders: &'a [usize],
    /// By ranges of keys, for those that can; instead of the responders.
    pub ranges: Option<Vec<Range>>,
    /// The share of operations that write.
    pub writes: f64,
    pub value: usize,
    /// Closed loops at each site.
    pub clients: usize,
    /// From a client to its node and back, in ms.
    pub near: f64,
    /// How long is counted.
    pub length: u64,
    pub pick: Pick<'a>,
}

/// What clients saw.
pub struct Seen {
    /// By site.
    pub reads: Vec<Latencies>,
    pub writes: Vec<Latencies>,
}

/// Uniform over so many keys.
pub fn uniform<'a>(keys: u64) -> Pick<'a> {
    let keys = Keys::new(Choice::Uniform, keys);
    Box::new(move |_, random| keys.draw(random))
}

impl<'a> Closed<'a> {
    /// The load of Figure 8 on a cluster as in Figure 7.
    pub fn new(
        world: &'a World,
        candidate: &'a Candidate,
        responders: &'a [usize],
        length: u64,
    ) -> Closed<'a> {
        let pick = uniform(KEYS);
        Closed {
            world,
            candidate,
            responders,
            ranges: None,
            writes: 0.0,
            value: VALUE,
            clients: CLIENTS_PER_SITE,
            near: NEAR,
            length,
            pick,
        }
    }

    /// Runs it.
    pub fn run(mut self) -> Result<Seen> {
        let (from, sites) = (READY + 1_000 * MS + WARM_UP, self.world.sites());
        let until = from + self.length;
        let clients = self.clients * sites;
        // Each client's requests are the same, whatever the protocol: only how far it gets differs.
        let mut randoms: Vec<_> = (0..clients).map(|client| Random::new(8 + client as u64)).collect();
        let mut count = 0;
        let draw = |client: usize, _| {
            let random = &mut randoms[client];
            let key = world::key((self.pick)(client % sites, random));
            count += 1;
            let command = match random.chance(self.writes) {
                true => world::put(&key, count, self.value),
                false => world::get(&key),
            };
            (client % sites, command)
        };
        let clients = Clients {
            count: clients,
            from: READY + 1_000 * MS,
            until,
            think: 0,
            patience: 10_000 * MS,
            draw: Box::new(draw),
        };
        let setup =
            self.world.setup(self.candidate, self.responders, (CAPACITY, self.near), until + 2_000 * MS)?;
        // The first write of a proxy opens its session, which takes as long again.
        let open = |proxy| Ask {
            at: READY,
            proxy,
            command: world::put("first", proxy as u64, 8),
            patience: 10_000 * MS,
        };
        let mut acts = Vec::new();
        if let Some(ranges) = self.ranges.take().filter(|_| self.candidate.roster.is_some()) {
            let roster = Roster::new(None, ranges).map_err(|error| error.to_string())?;
            acts.push((READY, Act::Manage(self.world.leader(), Manage::Roster(roster))));
        }
        let load = Load { asks: (0..sites).map(open).collect(), clients: Some(clients), acts };
        let measured = world::run(self.candidate, &setup, load)?;
        if measured.managed.iter().any(|managed| !managed.succeeded) {
            return Err(format!("{}: the roster was refused", self.candidate.name));
        }
        world::check(self.candidate, &measured)?;
        let of = |writes| (0..sites).map(|site| measured.latencies(site, writes, (from, until))).collect();
        Ok(Seen { reads: of(false), writes: of(true) })
    }
}

/// Nodes at sites.
pub fn nodes(sites: &[usize]) -> quorate_core::NodeSet {
    sites.iter().filter_map(|site| NodeId::new(*site as u64 + 1)).collect()
}

/// In ms.
pub fn mean(latencies: &Latencies) -> Option<f64> {
    Some(latencies.mean()? / MS as f64)
}

/// In ms.
pub fn quantile(latencies: &Latencies, share: f64) -> Option<f64> {
    Some(latencies.quantile(share)? as f64 / MS as f64)
}

impl Seen {
    /// Operations a second at a site.
    pub fn rate(&self, site: usize) -> f64 {
        self.reads[site].rate() + self.writes[site].rate()
    }

    /// Of all sites.
    pub fn total(&self) -> f64 {
        (0..self.reads.len()).map(|site| self.rate(site)).sum()
    }

    /// Mean and standard deviation in ms over some sites, each counting alike.
    pub fn overall(of: &[Latencies]) -> Option<(f64, f64)> {
        let mut moments = (0.0, 0.0);
        for site in of {
            let mean = mean(site)?;
            let square = |nanos: &u64| (*nanos as f64 / MS as f64).powi(2);
            let squares = site.sorted().iter().map(square).sum::<f64>() / site.count() as f64;
            moments = (moments.0 + mean / of.len() as f64, moments.1 + squares / of.len() as f64);
        }
        Some((moments.0, (moments.1 - moments.0.powi(2)).max(0.0).sqrt()))
    }

    /// Mean in ms over all sites, each counting by its operations.
    pub fn weighted(of: &[Latencies]) -> Option<f64> {
        let count: usize = of.iter().map(Latencies::count).sum();
        let sum: f64 = of.iter().filter_map(|site| Some(mean(site)? * site.count() as f64)).sum();
        (count > 0).then(|| sum / count as f64)
    }

    /// How long operations take at most, for a share of them, in ms, each site counting alike.
    pub fn quantiles(of: &[Latencies], shares: &[f64]) -> Vec<Option<f64>> {
        let weighted = of.iter().flat_map(|site| {
            let weight = 1.0 / (site.count() * of.len()) as f64;
            site.sorted().iter().map(move |nanos| (*nanos as f64 / MS as f64, weight))
        });
        let mut all: Vec<_> = weighted.collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sum = 0.0;
        for (_, weight) in &mut all {
            sum += *weight;
            *weight = sum;
        }
        let at = |share: &f64| all.partition_point(|(_, sum)| *sum < share - 1e-9);
        shares.iter().map(|share| Some(all.get(at(share).min(all.len().checked_sub(1)?))?.0)).collect()
    }
}
