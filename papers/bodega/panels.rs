//! All protocols under the load of Figure 8, in both clusters: Figures 8 and 9, and the headline.

use super::candidates::{self, WITHOUT_NOTES};
use super::closed::{self, Closed, Seen};
use super::world::{GEO, MS, WAN, World};
use super::{BODEGA, EARLIER, FIG8, FIG8_ALL, FIG9, HEADLINE, LEADER_LEASES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const PERCENT: [u32; 3] = [0, 1, 10];
/// Of reads, for the table and the curve of Figure 9.
const SHARES: [f64; 24] = [
    0.01, 0.1, 0.2, 0.21, 0.25, 0.3, 0.39, 0.4, 0.41, 0.5, 0.59, 0.6, 0.61, 0.7, 0.75, 0.78, 0.8, 0.82, 0.9,
    0.95, 0.98, 0.99, 0.999, 1.0,
];

/// How long is counted.
pub fn length(bench: &Bench) -> u64 {
    if bench.quick { 1_000 * MS } else { 10_000 * MS }
}

/// Measures Figures 8 and 9.
pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let names = || candidates::ALL.iter().chain([&WITHOUT_NOTES]);
    let panels: Vec<_> =
        [&GEO, &WAN].into_iter().flat_map(|world| PERCENT.map(|writes| (world, writes))).collect();
    let points: Vec<_> =
        panels.iter().flat_map(|(world, writes)| names().map(|name| (*world, *writes, name))).collect();
    let seen = bench.each(&points, |(world, writes, candidate)| {
        let writes = f64::from(*writes) / 100.0;
        Closed { writes, ..Closed::new(world, candidate, &world.responders(), length(bench)) }.run()
    })?;
    let (mut sites, mut all, mut curves) = (Vec::new(), Vec::new(), Vec::new());
    for ((world, writes, candidate), here) in points.iter().zip(&seen) {
        let leases = points.iter().zip(&seen).find(|((other, share, of), _)| {
            other.name == world.name && share == writes && of.name == LEADER_LEASES
        });
        let (topology, responders) = (world.topology(), world.responders());
        for site in 0..world.sites() {
            let model = world.model(&topology, &responders, site);
            let (reads, writes_here) = (&here.reads[site], &here.writes[site]);
            let at = |of, share| closed::quantile(of, share);
            let cells = (candidate.formula)(&model);
            let slow = reads.sorted().partition_point(|nanos| *nanos as f64 / MS as f64 <= 1.1 * cells.read);
            let leases = leases.map(|(_, leases)| leases.rate(site));
            let numbers = vec![
                Some(here.rate(site)),
                leases.map(|rate| here.rate(site) / rate),
                closed::mean(reads),
                at(reads, 0.5),
                at(reads, 0.99),
                at(reads, 0.999),
                closed::mean(writes_here),
                at(writes_here, 0.99),
                Some(model.l()),
                Some(cells.read),
                at(reads, 0.5).map(|ms| (ms / cells.read - 1.0).abs()),
                Some(1.0 - slow as f64 / reads.count().max(1) as f64),
            ];
            let site_name = &topology.sites()[site];
            let keys: [&dyn std::fmt::Display; 5] =
                [&candidate.name, &world.title, writes, &world.place(site), site_name];
            sites.push(Row::of(&keys, numbers));
        }
        let local: Vec<_> = responders.iter().map(|site| here.reads[*site].clone()).collect();
        let mean = |of: &[_]| Seen::overall(of).map(|(mean, _)| mean);
        let tail = Seen::quantiles(&here.reads, &[0.99, 0.999]);
        let numbers =
            [Some(here.total()), mean(&here.reads), mean(&local), mean(&here.writes), tail[0], tail[1]];
        all.push(Row::of(&[&candidate.name, &world.title, writes], numbers));
        if world.name == WAN.name {
            let curve = |kind: &'static str, of: &[_]| {
                let at = Seen::quantiles(of, &SHARES);
                let all = SHARES.iter().zip(at);
                let rows = all.map(|(share, ms)| Row::of(&[&candidate.name, &kind, writes, share], [ms]));
                rows.collect::<Vec<_>>()
            };
            curves.extend(curve("reads", &here.reads));
            // Writes of all workloads are alike (B-9.1); those at 10% are the most.
            curves.extend((*writes == 10).then(|| curve("writes", &here.writes)).into_iter().flatten());
        }
    }
    Ok(vec![Rows(&FIG8, sites), Rows(&FIG8_ALL, all), Rows(&FIG9, curves)])
}

/// Measures how much slower the reads of earlier protocols are.
pub fn headline(bench: &Bench) -> Result<Vec<Rows>> {
    let mut points = Vec::new();
    for (setup, keys, clients) in [("1000 keys, 50 clients", 1000, 10), ("1 key, 5 clients", 1, 1)] {
        for near in [1, 2, 5] {
            for writes in [1, 10] {
                for name in EARLIER.iter().chain([&BODEGA]) {
                    points.push((*name, setup, near, writes, keys, clients));
                }
            }
        }
    }
    let seen = bench.each(&points, |(name, _, near, writes, keys, clients)| {
        let (responders, near) = (WAN.responders(), f64::from(*near));
        let new = Closed::new(&WAN, candidates::known(name), &responders, 3 * length(bench));
        let pick = closed::uniform(*keys);
        let seen =
            Closed { writes: f64::from(*writes) / 100.0, near, clients: *clients, pick, ..new }.run()?;
        let local: Vec<_> = responders.iter().map(|site| seen.reads[*site].clone()).collect();
        let means = [Seen::overall(&local), Seen::overall(&seen.reads)].map(|it| Some(it?.0));
        Ok([means[0], means[1], Seen::weighted(&seen.reads)])
    })?;
    let rows = points.iter().zip(&seen).map(|((name, setup, near, writes, ..), means)| {
        let bodega = points.iter().zip(&seen).find(|((other, set, c, share, ..), _)| {
            *other == BODEGA && set == setup && c == near && share == writes
        });
        let ratio = |at: usize| Some(means[at]? / bodega?.1[at]?);
        Row::of(&[name, setup, near, writes], means.iter().copied().chain((0..3).map(ratio)))
    });
    Ok(vec![Rows(&HEADLINE, rows.collect())])
}

/// Worlds of the figures by their titles.
pub fn worlds() -> [&'static World; 2] {
    [&WAN, &GEO]
}
