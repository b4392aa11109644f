//! Figure 4, drawn in the paper, measured here: both leaders of a partition. And what reads cost in messages.

use quorate_bench::Arrivals;
use quorate_sim::experiment::{Act, Ask, Measured};
use quorate_store::Command;

use super::simulated::{
    self, ACCEPTED, INCONSISTENT, LEASEGUARD, LOG_BASED, Load, MS, Mechanism, ONGARO, ORIGIN, QUORUM, SUBNET,
    millis,
};
use super::{FIG4, FIG4_READS, FIG4_TRACE};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows, digits};
use crate::instrument::measure::Bench;
use crate::instrument::series::{self, Op};

/// When L0 is cut off, on the time axis.
const CUT: u64 = 500;
const SEEDS: u64 = 400;
/// What counts as served at once, in ms.
const FAST: f64 = 5.0;

/// What the clients of either side saw.
struct Sides {
    elected: f64,
    committed: f64,
    /// Operations through the proxies that talk to L0, and through the one that finds L1.
    old: Vec<Op>,
    new: Vec<Op>,
    linearizable: bool,
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let mechanisms = [LEASEGUARD, LOG_BASED, QUORUM, INCONSISTENT];
    let all = bench.each(&mechanisms, |mechanism| partition(*mechanism))?;
    let mut points = Vec::new();
    for (mechanism, sides) in mechanisms.iter().zip(&all) {
        let window = (sides.elected + 20.0, (CUT + 1000 - 20) as f64);
        let reads = |ops: &[Op]| {
            let (asked, served) = series::served(&series::kind(ops, false), window, FAST);
            [asked, served].map(|count| Some(count as f64))
        };
        let writes = sides.old.iter().chain(&sides.new).filter(|op| op.writes);
        let acknowledged =
            writes.filter(|op| op.end.is_some_and(|end| end > window.0 && end < window.1)).count();
        let mut numbers = vec![Some(sides.elected), Some(sides.committed)];
        numbers.extend(reads(&sides.old));
        numbers.extend(reads(&sides.new));
        numbers.extend([Some(acknowledged as f64), Some(f64::from(u8::from(sides.linearizable)))]);
        points.push(Row { keys: vec![mechanism.name.to_owned()], run: 1, numbers });
    }
    let rate = |ops: &[Op], writes| series::throughput(&series::kind(ops, writes), 10.0, 2500.0);
    let guard = &all[0];
    let lines =
        [rate(&guard.old, false), rate(&guard.new, false), rate(&guard.old, true), rate(&guard.new, true)];
    let bucket = |at: usize| Row {
        keys: vec![LEASEGUARD.name.to_owned(), digits(lines[0][at].0)],
        run: 1,
        numbers: lines.iter().map(|line| Some(line[at].1)).collect(),
    };
    let trace = (0..lines[0].len()).map(bucket).collect();
    let reads = bench.each(&[INCONSISTENT, QUORUM, ONGARO, LEASEGUARD], |mechanism| cost(*mechanism))?;
    Ok(vec![Rows(&FIG4, points), Rows(&FIG4_TRACE, trace), Rows(&FIG4_READS, reads)])
}

fn partition(mechanism: Mechanism) -> Result<Sides> {
    let at = ORIGIN + CUT * MS;
    for seed in 1..=SEEDS {
        // The first time only to see when, and who.
        let (measured, _) = attempt(mechanism, seed, END)?;
        let Some((elected, _)) = measured.elected_after(at).next() else { continue };
        // A new client asks the first node.
        let first = measured.acts.iter().any(|(_, _, node)| node.get() == 1);
        if first || !(480.0..750.0).contains(&(millis(elected) - CUT as f64)) {
            continue;
        }
        let (measured, through) = attempt(mechanism, seed, elected + 5 * MS)?;
        let Some((elected, leader)) = measured.elected_after(at).next() else { continue };
        let Some(committed) = measured.first_commit_of(leader, elected) else { continue };
        let side = |new: bool| -> Vec<Op> {
            let of = measured.operations.iter().zip(&through).filter(|(_, proxy)| (**proxy == 2) == new);
            let of = of.filter(|(op, _)| op.asked >= ORIGIN);
            of.map(|(op, _)| simulated::op(op)).collect()
        };
        return Ok(Sides {
            elected: millis(elected),
            committed: millis(committed),
            old: side(false),
            new: side(true),
            linearizable: simulated::is_linearizable(&measured),
        });
    }
    Err(format!("{}: no seed of {SEEDS} has such an election", mechanism.name))
}

/// When nobody asks any more.
const END: u64 = ORIGIN + 3000 * MS;

/// One run; the clients of the third proxy begin to ask then. Tells through which proxy each operation went.
fn attempt(mechanism: Mechanism, seed: u64, begin: u64) -> Result<(Measured, Vec<usize>)> {
    let common = ["election.timeout=500ms", "lease.duration=1s", "heartbeat=50ms", "proxy.patience=2s"];
    let mut setup = simulated::setup(mechanism, &common, SUBNET, seed, END + 500 * MS);
    setup.proxies = 3;
    let mut load = Load::new(0.0, 0.0, 128, seed);
    let mut asks = load.greeting();
    let mut both = |from: u64, proxies: &[usize]| -> Vec<Ask> {
        let reads = load.between(from, END, Arrivals::Even, 1000, ACCEPTED);
        let writes: Vec<_> =
            (from..END).step_by(10 * MS as usize).map(|at| load.ask(at, true, ACCEPTED)).collect();
        let all = reads.into_iter().chain(writes).enumerate();
        all.map(|(index, ask)| Ask { proxy: proxies[index % proxies.len()], ..ask }).collect()
    };
    asks.extend(both(ORIGIN, &[0, 1]));
    asks.extend(both(begin, &[2]));
    asks.sort_by_key(|ask| ask.at);
    let through = asks.iter().map(|ask| ask.proxy).collect();
    Ok((simulated::run(&setup, asks, &[(ORIGIN + CUT * MS, Act::IsolateLeader)])?, through))
}

/// Messages between nodes for each read, and what it waits for.
fn cost(mechanism: Mechanism) -> Result<Row> {
    let run = |reads: u64| -> Result<Measured> {
        let common = ["election.timeout=500ms", "lease.duration=1s"];
        let setup = simulated::setup(mechanism, &common, SUBNET, 1, ORIGIN + 1500 * MS);
        let mut load = Load::new(0.0, 0.0, 128, 1);
        let mut asks = load.greeting();
        // What comes and goes without reads is the same in both runs.
        asks.extend((0..reads).map(|index| load.ask(ORIGIN + index * MS, false, ACCEPTED)));
        for ask in asks.iter_mut().filter(|ask| matches!(ask.command, Command::Put { .. })) {
            ask.proxy = 0;
        }
        simulated::run(&setup, asks, &[])
    };
    let (without, with) = (run(0)?, run(1000)?);
    let between = |measured: &Measured| measured.sent.values().sum::<u64>() as f64;
    let each = (between(&with) - between(&without)) / 1000.0;
    let reads = series::kind(&simulated::ops(&with), false);
    // A round trip takes 2 × 191 µs on average.
    let trips = series::quantile(reads.iter().filter_map(Op::latency), 0.5) / 0.382;
    Ok(Row::of(&[&mechanism.name], [each, trips]))
}
