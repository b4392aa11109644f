//! Figures 11, 12, 14, 15 and 16: Figure 8's load with one thing varied.

use bytes::Bytes;
use quorate_bench::{Choice, Keys};
use quorate_core::Range;

use super::candidates::{self, Candidate};
use super::closed::{self, Closed, KEYS, Pick, Seen};
use super::panels::length;
use super::world::{self, GEO, INTERFACE, WAN, World};
use super::{BODEGA, FIG11, FIG12, FIG14, FIG15, FIG16, LEADER_LEASES, MIXES, PQR_LEASES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const SIZES: [usize; 9] = [16, 128, 512, 2048, 8192, 16384, 32768, 65536, 262_144];
/// As the authors' scripts add them.
const WAN_ORDER: [&str; 4] = ["MA", "SC", "APT", "UT"];
const GEO_ORDER: [&str; 4] = ["OR", "CA", "EU", "JP"];
/// How many keys Figure 16 has.
const MANY: u64 = 10_000;
/// Each site begins elsewhere in the order of popularity, so that its top fifth is its own.
const SHIFT: u64 = MANY / 5;

fn short(bench: &Bench) -> u64 {
    length(bench) * 3 / 10
}

/// Figure 11: throughput against the share of writes.
pub fn fig11(bench: &Bench) -> Result<Vec<Rows>> {
    let points = pairs(&[1, 2, 5, 10, 20, 50]);
    let rows = bench.each(&points, |(candidate, percent)| {
        let responders = WAN.responders();
        let new = Closed::new(&WAN, candidate, &responders, length(bench));
        let seen = Closed { writes: f64::from(*percent) / 100.0, ..new }.run()?;
        Ok(Row::of(&[&candidate.name, percent], [seen.total()]))
    })?;
    Ok(vec![Rows(&FIG11, rows)])
}

/// Figure 12: throughput against the size of values.
pub fn fig12(bench: &Bench) -> Result<Vec<Rows>> {
    let rows = bench.each(&pairs(&SIZES), |(candidate, size)| {
        let responders = WAN.responders();
        let length = if *size > 8192 { short(bench) / 4 } else { short(bench) };
        let new = Closed::new(&WAN, candidate, &responders, length);
        let seen = Closed { writes: 0.05, value: *size, ..new }.run()?;
        let share = seen.total() * *size as f64 / (INTERFACE.bits() as f64 / 8.0);
        Ok(Row::of(&[&candidate.name, size], [seen.total(), share]))
    })?;
    Ok(vec![Rows(&FIG12, rows)])
}

/// Every protocol with each of some values.
fn pairs<T: Copy>(values: &[T]) -> Vec<(&'static Candidate, T)> {
    let all = candidates::ALL.iter();
    all.flat_map(|candidate| values.iter().map(move |value| (candidate, *value))).collect()
}

/// Means over all sites with their deviations, and by operations; throughput.
fn means(seen: &Seen) -> Result<[f64; 7]> {
    let overall = |of| Seen::overall(of).ok_or("no operation ended");
    let weighted = |of| Seen::weighted(of).ok_or("no operation ended");
    let ((read, reads), (write, writes)) = (overall(&seen.reads)?, overall(&seen.writes)?);
    Ok([read, reads, write, writes, weighted(&seen.reads)?, weighted(&seen.writes)?, seen.total()])
}

/// Figure 14: latency against the number of responders.
pub fn fig14(bench: &Bench) -> Result<Vec<Rows>> {
    let mut points = vec![(LEADER_LEASES, &WAN, &WAN_ORDER, 0)];
    for (world, order) in [(&WAN, &WAN_ORDER), (&GEO, &GEO_ORDER)] {
        points.extend((0..=order.len()).map(|count| (BODEGA, world, order, count)));
    }
    let rows = bench.each(&points, |(name, world, order, count)| {
        let (candidate, topology) = (candidates::known(name), world.topology());
        let responders: Vec<_> = order[..*count].iter().map(|name| world.site(name)).collect();
        let new = Closed::new(world, candidate, &responders, length(bench));
        let seen = Closed { writes: 0.1, ..new }.run()?;
        let off = |site: usize| {
            let formula = (candidate.formula)(&world.model(&topology, &responders, site)).write;
            closed::mean(&seen.writes[site]).map_or(1.0, |ours| (ours / formula - 1.0).abs())
        };
        let off = (0..world.sites()).map(off).fold(0.0, f64::max);
        let [a, b, c, d, e, f, g] = means(&seen)?;
        Ok(Row::of(&[name, &world.title, count], [a, b, c, d, e, f, g, off]))
    })?;
    Ok(vec![Rows(&FIG14, rows)])
}

/// Figure 15: latency against the share of keys that the roster covers.
pub fn fig15(bench: &Bench) -> Result<Vec<Rows>> {
    let mut points = Vec::new();
    for world in super::panels::worlds() {
        points.extend([0u64, 20, 40, 60, 80, 100].map(|percent| (world, percent, true)));
        points.extend([0, 100].map(|percent| (world, percent, false)));
    }
    let rows = bench.each(&points, |(world, percent, as_range)| {
        let candidate = candidates::known(BODEGA);
        let key = |number| Bytes::from(world::key(number));
        let responders = closed::nodes(&world.responders());
        let range = Range { from: key(0), to: Some(key(KEYS * percent / 100)), responders };
        let ranges = if *percent > 0 { vec![range] } else { Vec::new() };
        let sites = if *percent > 0 && !as_range { world.responders() } else { Vec::new() };
        let new = Closed::new(world, candidate, &sites, length(bench));
        let seen = Closed { writes: 0.1, ranges: as_range.then_some(ranges), ..new }.run()?;
        let name = if *as_range { "set as a range" } else { "in the settings" };
        Ok(Row::of(&[&name, &world.title, percent], means(&seen)?))
    })?;
    Ok(vec![Rows(&FIG15, rows)])
}

/// Figure 16: YCSB's mixes, in the paper's scenarios.
pub fn fig16(bench: &Bench) -> Result<Vec<Rows>> {
    let mut points = Vec::new();
    for scenario in ["Uniform", "Zipfian"] {
        for (mix, writes) in MIXES {
            points.extend(candidates::ALL.iter().map(|one| (one, scenario, mix, writes, &WAN)));
        }
        points.push((candidates::known(BODEGA), scenario, "A", 0.5, &GEO));
    }
    let seen = bench.each(&points, |(candidate, scenario, _, writes, world)| {
        let zipfian = *scenario == "Zipfian";
        let all: Vec<_> = (0..world.sites()).filter(|site| *site != world.leader()).collect();
        let responders: &[usize] = if zipfian { &[] } else { &all };
        let pick = if zipfian { skewed() } else { closed::uniform(MANY) };
        let new = Closed::new(world, candidate, responders, short(bench));
        Closed { writes: *writes, pick, ranges: zipfian.then(|| top(world)), ..new }.run()
    })?;
    let rows = points.iter().zip(&seen).map(|((candidate, scenario, mix, _, world), here)| {
        let base = points.iter().zip(&seen).find(|((one, set, other, _, at), _)| {
            one.name == PQR_LEASES && set == scenario && other == mix && at.name == world.name
        });
        let mean = |of| Seen::overall(of).map(|(mean, _)| mean);
        let (topology, all) = (world.topology(), (0..world.sites()).collect::<Vec<_>>());
        let formula = |site: &usize| candidate_write(world, &topology, &all, *site);
        let all_nodes = all.iter().map(formula).sum::<f64>() / all.len() as f64;
        let numbers = [
            Some(here.total()),
            base.map(|(_, base)| here.total() / base.total()),
            mean(&here.reads),
            mean(&here.writes),
            mean(&here.writes).map(|ms| ms / all_nodes),
        ];
        Row::of(&[&candidate.name, scenario, mix, &world.title], numbers)
    });
    Ok(vec![Rows(&FIG16, rows.collect())])
}

/// A write of all nodes, by Table 1.
fn candidate_write(world: &World, topology: &quorate_core::Topology, all: &[usize], site: usize) -> f64 {
    world.model(topology, all, site).bodega().write
}

fn skewed() -> Pick<'static> {
    // The newest key is the most popular: its age is its rank.
    let keys = Keys::new(Choice::Latest(Choice::THETA), MANY);
    Box::new(move |site, random| (site as u64 * SHIFT + MANY - 1 - keys.draw(random)) % MANY)
}

/// Each site for the keys that it asks for most.
fn top(world: &World) -> Vec<Range> {
    let key = |number| Bytes::from(world::key(number));
    let range = |site: usize| Range {
        from: key(site as u64 * SHIFT),
        to: Some(key((site as u64 + 1) * SHIFT)),
        responders: closed::nodes(&[site]),
    };
    (0..world.sites()).map(range).collect()
}
