//! Figure 10: reads of one key around one write to it.

use quorate_bench::chart::{Chart, Scale};
use quorate_core::Topology;
use quorate_sim::experiment::{Ask, Load};

use super::super::page::{Section, Verdict};
use super::super::series;
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, Candidate, PASSIVE, QUORUM_LEASES};
use super::closed::VALUE;
use super::world::{self, CAPACITY, MS, NEAR, READY, WAN};

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

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig10", "Figure 10: reads around one interfering write");
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "Ten clients at each responder beside the leader, each in an open loop of 400 reads a second to one \
         key, evenly apart, so that a site is asked each 0.25 ms (the paper does not say how many); one write, \
         by a client at the leader's site (nor whose). {}. Every history is checked.",
        world::CAPACITY_TOLD
    ));
    let topology = WAN.topology();
    let mut table =
        Table::new(["protocol", "site", "window_ms", "slow_median_ms", "slowest_ms", "asked_of_others"]);
    let mut chart =
        Chart::new("one write at 0 ms", "reads that end then, ms", "mean latency, ms", Scale::Linear(None));
    chart.x = Some((-20.0, 220.0));
    chart.legend_right = true;
    let mut results = Vec::new();
    for name in [QUORUM_LEASES, PASSIVE, BODEGA] {
        bench.say(&format!("fig10: {name}"))?;
        let (reads, others) = measure(candidates::known(name))?;
        let sites: Vec<_> = WAN.responders().into_iter().map(|site| degraded(&reads, site)).collect();
        for (site, seen) in WAN.responders().iter().zip(&sites) {
            table.row([
                name.to_owned(),
                topology.sites()[*site].clone(),
                format!("{:.2}", seen.window),
                format!("{:.2}", seen.level),
                format!("{:.2}", seen.worst),
                others.to_string(),
            ]);
        }
        chart = chart.line(name, bins(&reads), false);
        results.push((sites, others));
    }
    bench.csv(&mut section, "fig10.csv", &table)?;
    bench.plot(
        &mut section,
        "fig10.svg",
        "Mean latency of the reads that end in each millisecond",
        &[chart],
        1,
    )?;
    section.tables.push((
        "The reads that are slower than c by more than 0.5 ms: from when to when they are asked, how long they \
         take, and how many messages with reads go from one node to another because of them."
            .to_owned(),
        table,
    ));
    judge(&mut section, &topology, &results);
    Ok(section)
}

fn measure(candidate: &Candidate) -> Result<(Vec<Read>, u64)> {
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
    let setup = WAN.setup(candidate, &WAN.responders(), CAPACITY, WRITE + AROUND.1 + 2_000 * MS)?;
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
    bins.into_iter().map(|(bin, latencies)| ((bin as f64 + 0.5) * BIN, series::mean(&latencies))).collect()
}

fn judge(section: &mut Section, topology: &Topology, results: &[(Vec<Degraded>, u64)]) {
    let [(active, active_others), (passive, passive_others), (bodega, bodega_others)] = results else {
        return;
    };
    let mean = |sites: &[Degraded], of: fn(&Degraded) -> f64| {
        series::mean(&sites.iter().map(of).collect::<Vec<_>>())
    };
    let windows = [active, passive, bodega].map(|sites| mean(sites, |site| site.window));
    section.judge(
        "B-10.1",
        Verdict::when(windows.iter().all(|window| *window > 1.0)),
        format!(
            "for {:.1}, {:.1} and {:.1} ms on average over the sites",
            windows[0], windows[1], windows[2]
        ),
        "",
    );
    let responders = WAN.responders();
    let l = responders.iter().map(|site| WAN.model(topology, &responders, *site).l()).sum::<f64>()
        / responders.len() as f64;
    let levels = [active, passive].map(|sites| mean(sites, |site| site.level));
    section.judge(
        "B-10.2",
        Verdict::when(levels.iter().all(|level| (level / l - 1.0).abs() <= 0.1)),
        format!(
            "{:.1} and {:.1} ms; to the leader and back it is {l:.1} ms on average",
            levels[0], levels[1]
        ),
        "rule: within 10% of the mean round trip between client and leader",
    );
    let ratio = windows[1] / windows[0];
    section.judge(
        "B-10.3",
        Verdict::when(ratio < 1.0),
        format!("{:.1} against {:.1} ms, a ratio of {ratio:.2}", windows[1], windows[0]),
        "rule: shorter. Of N against 2N the register derives a ratio of 0.5; our active variant is degraded \
         for less than 2N (B-T1.6), least where two responders are near each other and have a third's grant as \
         soon as its commit",
    );
    let m = WAN.model(topology, &responders, WAN.leader()).m();
    let window = windows[2];
    section.judge(
        "B-10.4",
        Verdict::when((window / (m / 2.0) - 1.0).abs() <= 0.2),
        format!("{window:.1} ms on average over the sites; m/2 is {:.0} ms, and the paper's number 25; where \
                 all sites are as far away, it is m/2 (B-T1.8)", m / 2.0),
        format!(
            "rule: within a fifth of m/2. {:.2} times the paper's 25 ms. A responder is released when it has \
             heard all responders (and a majority), not the nearest majority: from Amherst to Salt Lake City \
             takes 28 ms, longer than from either to the leader, 20. At a majority of notes, as the paper's \
             Figure 17 has it, reads are not linearizable (B-S.13). Quorum leases are degraded {:.1} times as \
             long, their passive variant {:.1} times",
            window / 25.0,
            windows[0] / window,
            windows[1] / window
        ),
    );
    let worst = bodega.iter().map(|site| (site.worst, site.window));
    let waits = worst.map(|(worst, window)| (worst - NEAR - window).abs()).fold(0.0, f64::max);
    section.judge(
        "B-10.5",
        Verdict::when(*bodega_others == 0 && waits <= 1.0),
        format!(
            "{bodega_others} messages with reads leave a responder (quorum leases: {active_others} and \
             {passive_others}); the longest wait is D within {waits:.2} ms"
        ),
        "rule: none leaves; the slowest read takes c + D within 1 ms",
    );
}
