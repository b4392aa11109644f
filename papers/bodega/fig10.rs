//! Figure 10: reads of one key around one write to it.

use quorate_sim::experiment::{Ask, Load};

use super::candidates::{self, Candidate};
use super::closed::VALUE;
use super::world::{self, CAPACITY, MS, NEAR, READY, WAN};
use super::{BODEGA, FIG10, FIG10_SITES, FIG10_TRACE, PASSIVE, QUORUM_LEASES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;
use crate::instrument::series;

/// One client asks so often.
const EVERY: u64 = 1_000 * MS / 400;
/// When the write is asked. The paper's 15 s of waiting show nothing.
const WRITE: u64 = READY + 3_000 * MS;
/// Reads are asked from so long before the write to so long after it.
const AROUND: (u64, u64) = (500 * MS, 1_000 * MS);
/// Slower than c by more is degraded, in ms.
const SLACK: f64 = 0.5;
/// Of the chart, in ms.
const BIN: f64 = 1.0;

/// A read: at which site, when it was asked and when it ended, in ms from the write.
struct Read {
    site: usize,
    asked: f64,
    ended: f64,
}

impl Read {
    fn latency(&self) -> f64 {
        self.ended - self.asked
    }
}

/// What the write did to the reads of a site.
struct Degraded {
    /// From the first slow read's question to the last's, in ms.
    window: f64,
    /// The latency of the slow ones at their median, and at most.
    level: f64,
    worst: f64,
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let names = [QUORUM_LEASES, PASSIVE, BODEGA];
    let all = bench.each(&names, |name| reads(candidates::known(name)))?;
    let (topology, responders) = (WAN.topology(), WAN.responders());
    let model = |site| WAN.model(&topology, &responders, site);
    let (mut total, mut sites, mut trace) = (Vec::new(), Vec::new(), Vec::new());
    for (name, (reads, asked)) in names.iter().zip(&all) {
        let each: Vec<_> = responders.iter().map(|site| degraded(reads, *site)).collect();
        let mean = |of: &dyn Fn(usize) -> f64| (0..each.len()).map(of).sum::<f64>() / each.len() as f64;
        let waits = each.iter().map(|site| (site.worst - NEAR - site.window).abs()).fold(0.0, f64::max);
        let (m, n) = (model(WAN.leader()).m(), model(WAN.leader()).all());
        let (window, level) = (mean(&|at| each[at].window), mean(&|at| each[at].level));
        let l = mean(&|at| model(responders[at]).l());
        total.push(Row::of(
            &[name],
            [window, window / (m / 2.0), window / (n / 2.0), level, level / l, *asked as f64, waits],
        ));
        for (site, it) in responders.iter().zip(&each) {
            sites.push(Row::of(&[name, &topology.sites()[*site]], [it.window, it.level, it.worst]));
        }
        trace.extend(bins(reads).into_iter().map(|(at, ms)| Row::of(&[name, &at], [ms])));
    }
    Ok(vec![Rows(&FIG10, total), Rows(&FIG10_SITES, sites), Rows(&FIG10_TRACE, trace)])
}

fn reads(candidate: &Candidate) -> Result<(Vec<Read>, u64)> {
    let patience = 5_000 * MS;
    let mut asks = vec![
        Ask { at: READY, proxy: WAN.leader(), command: world::put("k", 1, VALUE), patience },
        Ask { at: WRITE, proxy: WAN.leader(), command: world::put("k", 2, VALUE), patience },
    ];
    for site in WAN.responders() {
        for client in 0..10 {
            let times = (WRITE - AROUND.0 + client * EVERY / 10..WRITE + AROUND.1).step_by(EVERY as usize);
            asks.extend(times.map(|at| Ask { at, proxy: site, command: world::get("k"), patience }));
        }
    }
    let setup = WAN.setup(candidate, &WAN.responders(), (CAPACITY, NEAR), WRITE + AROUND.1 + 2_000 * MS)?;
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts: Vec::new() })?;
    world::check(candidate, &measured)?;
    let millis = |at: u64| (at as f64 - WRITE as f64) / MS as f64;
    let reads = measured.operations.iter().filter(|op| !op.writes).map(|op| {
        let ended =
            op.ended.filter(|_| op.succeeded).ok_or_else(|| format!("{}: a read failed", candidate.name))?;
        Ok(Read { site: op.proxy, asked: millis(op.asked), ended: millis(ended) })
    });
    // Writes are asked of the own node, which leads: these are reads.
    let others = measured.sent.get("Ask").copied().unwrap_or(0);
    Ok((reads.collect::<Result<_>>()?, others))
}

fn degraded(reads: &[Read], site: usize) -> Degraded {
    let slow: Vec<_> =
        reads.iter().filter(|read| read.site == site && read.latency() > NEAR + SLACK).collect();
    let first = slow.iter().map(|read| read.asked).fold(f64::INFINITY, f64::min);
    let last = slow.iter().map(|read| read.asked).fold(f64::NEG_INFINITY, f64::max);
    let latencies = || slow.iter().map(|read| read.latency());
    Degraded {
        window: (last - first).max(0.0),
        level: series::quantile(latencies(), 0.5),
        worst: series::quantile(latencies(), 1.0),
    }
}

/// The mean latency of the reads that end in each millisecond.
fn bins(reads: &[Read]) -> Vec<(f64, f64)> {
    let mut bins = std::collections::BTreeMap::<i64, Vec<f64>>::new();
    for read in reads {
        bins.entry((read.ended / BIN).floor() as i64).or_default().push(read.latency());
    }
    bins.into_iter()
        .map(|(bin, latencies)| {
            ((bin as f64 + 0.5) * BIN, latencies.iter().sum::<f64>() / latencies.len() as f64)
        })
        .collect()
}
