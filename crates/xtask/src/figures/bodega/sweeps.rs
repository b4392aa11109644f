//! Figures 11 and 12: aggregate throughput by the share of writes, and by the size of values.

use quorate_bench::chart::{Chart, Scale};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, EPAXOS, PQR_LEASES};
use super::closed::{self, Closed};
use super::world::{INTERFACE, MS, WAN};

const SHARES: [f64; 6] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
const SIZES: [usize; 9] = [16, 128, 512, 2048, 8192, 16384, 32768, 65536, 262_144];
/// Of Figure 12.
const WRITES: f64 = 0.05;

/// Operations a second of all sites, by protocol and by what is varied.
type Rates = Vec<(&'static str, Vec<f64>)>;

fn length(bench: &Bench) -> u64 {
    if bench.quick { 500 * MS } else { 3_000 * MS }
}

fn sweep(
    bench: &Bench,
    what: &str,
    count: usize,
    of: &dyn Fn(usize, Closed<'static>) -> Closed<'static>,
) -> Result<Rates> {
    let mut rates = Vec::new();
    for candidate in candidates::ALL {
        bench.say(&format!("{what}: {}", candidate.name))?;
        let responders: &'static [usize] = WAN.responders().leak();
        let rate = |at| Ok(of(at, Closed::new(&WAN, candidate, responders, length(bench))).run()?.total());
        rates.push((candidate.name, (0..count).map(rate).collect::<Result<Vec<_>>>()?));
    }
    Ok(rates)
}

fn show(
    bench: &Bench,
    section: &mut Section,
    rates: &Rates,
    (column, axis, words): (&str, &str, &[String]),
    ticks: fn(&f64) -> String,
) -> Result<()> {
    let mut table = Table::new(["protocol", column, "ops_per_s"]);
    let mut chart = Chart::new("all sites", axis, "operations/s", Scale::Log);
    (chart.x, chart.x_ticks) = (Some((-0.5, 2.0 * words.len() as f64)), ticks);
    chart.legend_right = true;
    for (name, rates) in rates {
        for (word, rate) in words.iter().zip(rates) {
            table.row([(*name).to_owned(), word.clone(), format!("{rate:.0}")]);
        }
        let points = rates.iter().enumerate().map(|(at, rate)| (at as f64, *rate));
        chart = chart.line(name, points.collect(), true);
    }
    let id = section.id.clone();
    bench.csv(section, &format!("{id}.csv"), &table)?;
    bench.plot(section, &format!("{id}.svg"), "Operations a second of all sites", &[chart], 1)?;
    // Protocols down, what is varied across.
    let mut wide = Table { heads: vec!["protocol".to_owned()], rows: Vec::new() };
    wide.heads.extend(words.iter().cloned());
    for (name, rates) in rates {
        let numbers = rates.iter().map(|rate| format!("{rate:.0}"));
        wide.rows.push(std::iter::once((*name).to_owned()).chain(numbers).collect());
    }
    section.tables.push((format!("Operations a second of all sites, by {axis}."), wide));
    Ok(())
}

fn at(list: &[String], x: f64) -> String {
    if x.fract() == 0.0 && x >= 0.0 {
        list.get(x as usize).cloned().unwrap_or_default()
    } else {
        String::new()
    }
}

fn shares() -> Vec<String> {
    SHARES.iter().map(|share| format!("{:.0}%", 100.0 * share)).collect()
}

fn sizes() -> Vec<String> {
    SIZES
        .iter()
        .map(|size| if *size < 1024 { format!("{size} B") } else { format!("{} KiB", size / 1024) })
        .collect()
}

/// Figure 11.
pub fn fig11(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig11", "Figure 11: throughput against the share of writes");
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "Figure 8's load. {}. The shares are ours; the paper gives the first and the last.",
        closed::told(length(bench))
    ));
    let rates = sweep(bench, "fig11", SHARES.len(), &|at, run| Closed { writes: SHARES[at], ..run })?;
    let axis = ("writes_percent", "share of writes", &shares()[..]);
    show(bench, &mut section, &rates, axis, |x| self::at(&shares(), *x))?;
    let falls = |rates: &[f64]| rates.windows(2).all(|pair| pair[1] < pair[0]);
    let except = |name: &str| name == PQR_LEASES;
    // By the table's formulas a read takes as long as a write: nothing is there to fall.
    let topology = WAN.topology();
    let level = |name: &str| {
        let cells = |site| (candidates::known(name).formula)(&WAN.model(&topology, &[], site));
        name != EPAXOS && (0..WAN.sites()).map(cells).all(|cells| cells.read == cells.write)
    };
    let judged = |name: &str| !except(name) && !level(name);
    let rest: Vec<_> = rates.iter().filter(|(name, rates)| judged(name) && !falls(rates)).collect();
    let change = |rates: &[f64]| rates[rates.len() - 1] / rates[0] - 1.0;
    let told = |whom: &dyn Fn(&str) -> bool| {
        let chosen = rates.iter().filter(|(name, _)| whom(name));
        chosen
            .map(|(name, rates)| format!("{name} {:+.0}%", 100.0 * change(rates)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    section.judge(
        "B-11.1",
        Verdict::when(rest.is_empty()),
        format!(
            "not with each step: {}. From 1% to 50%: {}; {}",
            match rest.iter().map(|(name, _)| *name).collect::<Vec<_>>() {
                none if none.is_empty() => "none".to_owned(),
                some => some.join(", "),
            },
            told(&judged),
            told(&level)
        ),
        "rule: throughput falls with each step for all but PQR (+ Ldr Ls), and but those whose reads take as long as \
         their writes at all sites (MultiPaxos, Raft with ReadIndex): these have nothing to lose, and the paper does \
         not say whether it plots MultiPaxos",
    );
    let baseline = rates.iter().find(|(name, _)| except(name)).map_or(0.0, |(_, rates)| change(rates));
    section.judge(
        "B-11.2",
        Verdict::when(baseline >= -0.1),
        format!("{:+.0}% from 1% to 50%", 100.0 * baseline),
        "rule: at most 10% down. A write takes l+m where a read takes c+m, so closed loops get slower by the \
         sites' l: Table 1's own formulas say so. Normalized to itself, as Figure 16 is, it would be level: the paper \
         calls it the baseline here too",
    );
    let single = |name: &str, writes: f64| {
        let responders = WAN.responders();
        let new = Closed::new(&WAN, candidates::known(name), &responders, super::panel::length(bench));
        Ok::<_, String>(Closed { writes, ..new }.run()?.total())
    };
    let mut furthest = 0.0f64;
    for (name, rates) in &rates {
        for (index, writes) in [(0, 0.01), (3, 0.1)] {
            furthest = furthest.max((rates[index] / single(name, writes)? - 1.0).abs());
        }
    }
    section.judge(
        "B-11.3",
        Verdict::when(furthest <= 0.05),
        format!("1% and 10% are within {:.1}% of Figure 8's runs", 100.0 * furthest),
        "rule: within 5%. Figure 8's panels are of 0%, 1% and 10%, which we take for 8(d) to 8(f)",
    );
    Ok(section)
}

/// Figure 12.
pub fn fig12(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig12", "Figure 12: throughput against the size of values");
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "Figure 8's load with {:.0}% writes. {}. The sizes are ours; above 8 KiB a quarter of the time is counted.",
        100.0 * WRITES,
        closed::told(length(bench))
    ));
    let rates = sweep(bench, "fig12", SIZES.len(), &|at, run| {
        let length = if SIZES[at] > 8192 { run.length / 4 } else { run.length };
        Closed { writes: WRITES, value: SIZES[at], length, ..run }
    })?;
    let axis = ("value_bytes", "size of values", &sizes()[..]);
    show(bench, &mut section, &rates, axis, |x| self::at(&sizes(), *x))?;
    // Up to here an interface that sends a value for each operation has at least half of its time left.
    let fastest = rates.iter().flat_map(|(_, rates)| rates.iter().copied()).fold(0.0, f64::max);
    let saturates = INTERFACE.bits() as f64 / 8.0 / fastest;
    let below = SIZES.iter().filter(|size| (**size as f64) < saturates / 2.0).count();
    let change = |rates: &[f64], upto: usize| {
        rates[..upto].iter().map(|rate| (rate / rates[0] - 1.0).abs()).fold(0.0, f64::max)
    };
    let (name, furthest) = rates
        .iter()
        .map(|(name, rates)| (*name, change(rates, below)))
        .fold(("", 0.0), |a, b| if b.1 > a.1 { b } else { a });
    section.judge(
        "B-12.1",
        Verdict::when(furthest <= 0.1),
        format!(
            "up to {} within {:.1}% of the throughput with 16 B ({name})",
            sizes()[below - 1],
            100.0 * furthest
        ),
        format!(
            "rule: within 10% up to half of the size at which one interface is full that sends a value for \
             each operation of the fastest protocol ({:.1} KiB)",
            saturates / 1024.0
        ),
    );
    let last = |rates: &[f64]| rates[rates.len() - 1] / rates[0];
    let drops: Vec<_> = rates.iter().map(|(name, rates)| format!("{name} {:.2}", last(rates))).collect();
    section.judge(
        "B-12.2",
        Verdict::when(rates.iter().all(|(_, rates)| last(rates) < 0.99)),
        format!("256 KiB ÷ 16 B: {}", drops.join(", ")),
        "rule: lower by more than 1% for each. Those that wait for distances send little, so their interfaces \
         are idle longer",
    );
    Ok(section)
}
