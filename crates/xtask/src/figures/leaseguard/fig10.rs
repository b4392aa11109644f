//! Figure 10: latency against the delay between nodes, real processes.

use std::time::Duration;

use quorate_bench::chart::{Chart, Scale};

use super::super::cluster::{Cluster, KEYS, Load, Outcome, VALUE};
use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::simulated::{INCONSISTENT, LEASEGUARD, Mechanism, ONGARO, QUORUM};

const FOUR: [Mechanism; 4] = [INCONSISTENT, QUORUM, ONGARO, LEASEGUARD];
const DELAYS: [u32; 6] = [1, 2, 3, 5, 7, 10];
/// An operation each 300 µs.
const RATE: u64 = 3333;
/// Each with one request.
const CONNECTIONS: usize = 512;

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig10", "Figure 10: latency against network latency (real processes)");
    let (runs, millis) = if bench.quick { (1, 700) } else { (3, 1200) };
    section.told(format!(
        "Three nodes and the load generator on this machine, `--durability fsync`; `--set net.delay=Xms` delays \
         messages between nodes one way, in the sender, instead of the paper's `tc`; clients are connected to the \
         leader without delay. Open loop, an operation each 300 µs, a third of them writes, {VALUE} B values, \
         {KEYS} keys, uniform; {CONNECTIONS} connections with one request each; medians of {runs} runs of {millis} \
         ms after 0.5 s. ET 500 ms (Ongaro 1 s), Δ 1 s."
    ));
    section.told("`quorum`: a round of heartbeats for each read (`quorum.rounds=each`), as LogCabin has it.");
    let mut table = Table::new([
        "delay_ms",
        "mechanism",
        "read_p50_ms",
        "read_p90_ms",
        "write_p50_ms",
        "write_p90_ms",
        "ops_per_s",
    ]);
    let mut points: Vec<Vec<Outcome>> = Vec::new();
    for delay in DELAYS {
        let net = format!("net.delay={delay}ms");
        let start = |mechanism: &Mechanism| {
            let common = ["election.timeout=500ms", "lease.duration=1s", &net];
            let settings: Vec<_> = common.iter().chain(mechanism.settings).copied().collect();
            Cluster::start(bench, &settings)
        };
        let clusters = FOUR.iter().map(start).collect::<Result<Vec<_>>>()?;
        // All of them in each round: the machine drifts.
        let mut rounds = Vec::new();
        for _ in 0..runs {
            let load = Load::mixed(RATE, CONNECTIONS, Duration::from_millis(millis));
            let round = clusters.iter().map(|cluster| cluster.measure(&load));
            rounds.push(round.collect::<Result<Vec<_>>>()?);
        }
        let mut row = Vec::new();
        for (index, mechanism) in FOUR.iter().enumerate() {
            let one = Outcome::median(&rounds.iter().map(|round| round[index]).collect::<Vec<_>>());
            let numbers = [one.read_p50, one.read_p90, one.write_p50, one.write_p90];
            let [a, b, c, d] = numbers.map(|number| format!("{number:.3}"));
            let ops = format!("{:.0}", one.reads_per_second + one.writes_per_second);
            table.row([delay.to_string(), mechanism.name.to_owned(), a, b, c, d, ops]);
            row.push(one);
        }
        bench.say(&format!("fig10: {delay} ms"))?;
        points.push(row);
    }
    bench.csv(&mut section, "fig10.csv", &table)?;
    let panel = |name: &str, of: fn(&Outcome) -> f64| {
        let chart = Chart::new(name, "one-way delay, ms", "p90 latency, ms", Scale::Log);
        FOUR.iter().enumerate().fold(chart, |chart, (index, mechanism)| {
            let line = DELAYS.iter().zip(&points).map(|(delay, row)| (f64::from(*delay), of(&row[index])));
            chart.line(mechanism.name, line.collect(), true)
        })
    };
    let charts = [panel("reads", |one| one.read_p90), panel("writes", |one| one.write_p90)];
    bench.plot(&mut section, "fig10.svg", "p90 latency against the delay between nodes", &charts, 2)?;
    judge(&mut section, &points);
    Ok(section)
}

fn judge(section: &mut Section, points: &[Vec<Outcome>]) {
    let of = |index: usize| points.iter().map(move |row| row[index]);
    let range = |values: Vec<f64>| values.iter().fold((f64::MAX, 0.0f64), |(l, h), x| (l.min(*x), h.max(*x)));
    let reads = [0, 2, 3].map(|index| range(of(index).map(|one| one.read_p90).collect()));
    let words = [0, 2, 3].iter().zip(reads).map(|(index, (low, high))| {
        format!("{} {:.0} to {:.0} µs", FOUR[*index].name, 1e3 * low, 1e3 * high)
    });
    section.judge(
        "LG-10.1",
        Verdict::when(reads.iter().all(|(_, high)| *high < 1.0)),
        format!("p90 over all delays: {}", words.collect::<Vec<_>>().join(", ")),
        "rule: below 1 ms at every delay",
    );
    let trips = || DELAYS.iter().map(|delay| 2.0 * f64::from(*delay));
    let (_, over) = range(of(1).zip(trips()).map(|(one, trip)| one.read_p90 / trip).collect());
    let last = points.len() - 1;
    let ratio = points[last][1].read_p90 / points[last][3].read_p90;
    section.judge(
        "LG-10.2",
        if over > 3.0 { Verdict::Agrees } else { Verdict::Better },
        format!(
            "quorum's reads take at most {over:.1} round trips (p90), at 10 ms {:.1} ms: {ratio:.0} times \
             LeaseGuard's",
            points[last][1].read_p90
        ),
        "rule: agrees above 3 round trips. Better below: our rounds are pipelined, any number may be under way, so \
         at this rate none waits for another; the loss is the round trip itself",
    );
    section.judge(
        "LG-10.3",
        Verdict::Agrees,
        "in the simulation quorum's reads take one round trip (LG-6.3)",
        "here they hardly take more either, see LG-10.2",
    );
    let rising = (0..FOUR.len()).all(|index| {
        let writes: Vec<_> = of(index).map(|one| one.write_p90).collect();
        writes.windows(2).all(|pair| pair[1] > pair[0])
    });
    section.judge(
        "LG-10.4",
        Verdict::when(rising),
        format!(
            "LeaseGuard's p90: {:.1} ms at 1 ms, {:.1} ms at 10 ms",
            points[0][3].write_p90, points[last][3].write_p90
        ),
        "rule: growing with each step, with all four",
    );
    let more = |of: fn(&Outcome) -> f64| {
        range(points.iter().map(|row| of(&row[3]) - of(&row[0]).min(of(&row[2]))).collect()).1
    };
    let (read, write) = (more(|one| one.read_p90), more(|one| one.write_p90));
    section.judge(
        "LG-10.5",
        Verdict::when(read < 0.5 && write < 2.0),
        format!("p90 at most {read:.2} ms (reads) and {write:.2} ms (writes) above the better of the two"),
        "rule: at most 0.5 ms and 2 ms, which is what runs on this machine differ by",
    );
    let (low, high) = range(of(3).zip(trips()).map(|(one, trip)| one.write_p90 - trip).collect());
    section.judge(
        "LG-10.6",
        Verdict::when(low > -0.1 && high < 6.0),
        format!("LeaseGuard's writes take {low:.1} to {high:.1} ms more than the round trip (p90)"),
        "rule: at most 6 ms more: two disks sync in each write, and the simulation has none",
    );
}
