//! Figure 13: what a responder's failure and an operator's new roster do to clients; with it what the abstract says of
//! roster changes.

use quorate_bench::{Choice, Keys};
use quorate_core::{Manage, NodeId, Random, Range, Roster};
use quorate_sim::experiment::{Act, Ask, Capacity, Load};

use super::candidates::{self, Candidate};
use super::closed::{self, KEYS, VALUE};
use super::world::{self, CAPACITY, EVEN, GEO, MS, NEAR, READY, WAN, World};
use super::{BODEGA, FIG13, FIG13_CHANGE, FIG13_TRACE, NO_NOTES};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

const EVERY: u64 = 1_000 * MS / 400;
/// On the figure's axis, from [`ORIGIN`].
const CRASH: u64 = 800 * MS;
const CHANGE: u64 = 7_200 * MS;
const LENGTH: u64 = 9_000 * MS;
const ORIGIN: u64 = READY + 2_000 * MS;
/// Slower is not local, in ms.
const LOCAL: f64 = NEAR + 1.0;
/// What [`candidates`] sets, in ms.
const SILENCE: f64 = 1200.0;
/// Each begins at another stage of heartbeats and renewals.
const RUNS: u64 = 10;

/// An operation, in ms on the figure's axis.
struct Op {
    site: usize,
    key: u64,
    writes: bool,
    start: f64,
    end: f64,
}

impl Op {
    fn latency(&self) -> f64 {
        self.end - self.start
    }

    fn is_slow(&self) -> bool {
        !self.writes && self.latency() > LOCAL
    }

    fn starts_in(&self, (from, to): (f64, f64)) -> bool {
        (from..to).contains(&self.start)
    }
}

struct Run {
    ops: Vec<Op>,
    /// Operations that were answered with an error, or never.
    failed: usize,
    /// From the operator's question to the answer, in ms.
    change: f64,
}

impl Run {
    /// Of the paper's client.
    fn client(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().filter(|op| op.site == WAN.leader())
    }

    /// The slowest read of a key that nobody writes, at a healthy responder, from the crash to the operator's request.
    fn slowest_elsewhere(&self) -> f64 {
        let between = (CRASH as f64 / MS as f64, CHANGE as f64 / MS as f64 - 10.0);
        let ops = self.ops.iter().filter(|op| op.starts_in(between));
        ops.filter(|op| op.site != WAN.leader()).map(Op::latency).fold(0.0, f64::max)
    }

    /// When writes are answered again after the crash, from the crash on.
    fn writes_again(&self) -> f64 {
        let crash = CRASH as f64 / MS as f64;
        let late = self.client().filter(|op| op.writes && op.end > crash + 200.0);
        late.map(|op| op.end).fold(f64::INFINITY, f64::min) - crash
    }

    /// Slow reads in a stretch of time, and how many of them are of keys that no write is under way to.
    fn slow(&self, between: (f64, f64)) -> (usize, usize) {
        let slow: Vec<_> = self.client().filter(|op| op.is_slow() && op.starts_in(between)).collect();
        let interferes = |read: &&Op| {
            self.client()
                .any(|op| op.writes && op.key == read.key && op.start <= read.start && op.end >= read.start)
        };
        let alone = slow.iter().filter(|read| !interferes(read)).count();
        (slow.len(), alone)
    }
}

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let count = if bench.quick { 2 } else { RUNS };
    let mut points: Vec<_> = (0..count).map(|index| ("failure", BODEGA, index)).collect();
    points.extend([("no failure", BODEGA, 0), ("failure, no early notes", NO_NOTES, 0)]);
    let runs = bench.each(&points, |(what, name, index)| {
        run(candidates::known(name), index * 83 * MS, what.starts_with("failure"))
    })?;
    let rows = points
        .iter()
        .zip(&runs)
        .map(|((what, _, index), run)| Row { run: *index as u32 + 1, ..Row::of(&[what], run.numbers()) });
    let changes = [&WAN, &GEO, &EVEN].map(change).into_iter().collect::<Result<_>>()?;
    let trace = [false, true].into_iter().flat_map(|writes| runs[0].bins(writes)).collect();
    Ok(vec![Rows(&FIG13, rows.collect()), Rows(&FIG13_CHANGE, changes), Rows(&FIG13_TRACE, trace)])
}

impl Run {
    /// In the order of the figure's numbers.
    fn numbers(&self) -> [f64; 13] {
        let crash = CRASH as f64 / MS as f64;
        let (before, again) = ((crash, crash + SILENCE), self.writes_again());
        let early = self.client().filter(|op| op.writes && op.starts_in((crash + 50.0, crash + 1000.0)));
        let early = early.filter(|op| op.end < crash + SILENCE).count();
        let reads: Vec<_> = self.client().filter(|op| !op.writes && op.starts_in(before)).collect();
        let longest = reads.iter().map(|op| op.latency()).fold(0.0, f64::max);
        let (slow, alone) = self.slow(before);
        let change = CHANGE as f64 / MS as f64;
        let around = |op: &&Op| op.starts_in((change, change + 500.0));
        let most = |ops: &mut dyn Iterator<Item = &Op>| ops.map(Op::latency).fold(0.0, f64::max);
        [
            early as f64,
            reads.len() as f64,
            slow as f64,
            alone as f64,
            longest,
            self.slowest_elsewhere(),
            again,
            again - SILENCE,
            self.change - NEAR,
            (self.change - NEAR) / again,
            most(&mut self.client().filter(around).filter(|op| op.writes)),
            most(&mut self.client().filter(around).filter(|op| !op.writes)),
            self.failed as f64,
        ]
    }

    /// The client's mean latency by when operations finish, in stretches of 20 ms.
    fn bins(&self, writes: bool) -> Vec<Row> {
        let mut bins = std::collections::BTreeMap::<u64, Vec<f64>>::new();
        for op in self.client().filter(|op| op.writes == writes) {
            bins.entry((op.end / 20.0) as u64).or_default().push(op.latency());
        }
        let kind = if writes { "writes" } else { "reads" };
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        bins.iter().map(|(bin, all)| Row::of(&[&kind, &(*bin as f64 * 0.02 + 0.01)], [mean(all)])).collect()
    }
}

fn run(candidate: &Candidate, offset: u64, fails: bool) -> Result<Run> {
    let (origin, leader) = (ORIGIN + offset, WAN.leader());
    let (keys, mut random) = (Keys::new(Choice::Uniform, KEYS), Random::new(13));
    let (patience, still) = (20_000 * MS, KEYS);
    let mut asks = vec![Ask { at: READY, proxy: leader, command: world::put("first", 0, 8), patience }];
    let mut asked = vec![still];
    for at in (origin..origin + LENGTH).step_by(EVERY as usize) {
        let key = keys.draw(&mut random);
        let name = world::key(key);
        let command = if random.chance(0.5) { world::get(&name) } else { world::put(&name, at, VALUE) };
        asks.push(Ask { at, proxy: leader, command, patience });
        asked.push(key);
        for site in ["MA", "APT"] {
            let command = world::get(&world::key(still));
            asks.push(Ask { at: at + MS, proxy: WAN.site(site), command, patience });
            asked.push(still);
        }
    }
    let dies = NodeId::new(WAN.site("UT") as u64 + 1).expect("a small number");
    let mut acts = vec![(origin + CHANGE, Act::Manage(leader, Manage::Roster(without_ut()?)))];
    acts.extend(fails.then_some((origin + CRASH, Act::Crash(dies))));
    let setup = WAN.setup(candidate, &WAN.responders(), (CAPACITY, NEAR), origin + LENGTH + 10_000 * MS)?;
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts })?;
    world::check(candidate, &measured)?;
    let millis = |at: u64| (at as f64 - origin as f64) / MS as f64;
    let mut run = Run { ops: Vec::new(), failed: 0, change: f64::INFINITY };
    // In the order of the script: the asks are sorted by time, and these were in order.
    for (op, key) in measured.operations.iter().zip(asked).skip(1) {
        let Some(end) = op.ended.filter(|_| op.succeeded) else {
            run.failed += 1;
            continue;
        };
        run.ops.push(Op {
            site: op.proxy,
            key,
            writes: op.writes,
            start: millis(op.asked),
            end: millis(end),
        });
    }
    if let Some(managed) = measured.managed.first().filter(|it| it.succeeded)
        && let Some(ended) = managed.ended
    {
        run.change = (ended - managed.asked) as f64 / MS as f64;
    }
    Ok(run)
}

fn without_ut() -> Result<Roster> {
    let left = closed::nodes(&[WAN.site("MA"), WAN.site("APT")]);
    Roster::new(None, vec![Range::all(left)]).map_err(|error| error.to_string())
}

/// A regular change in a cluster without load, against its round trips.
fn change(world: &World) -> Result<Row> {
    let (topology, sites) = (world.topology(), world.sites());
    let pairs = (0..sites).flat_map(|a| (a + 1..sites).map(move |b| (a, b)));
    let trips: Vec<_> = pairs.map(|(a, b)| topology.round_trip(a, b).as_secs_f64() * 1e3).collect();
    let (took, mean) = (quiet(world)? - NEAR, trips.iter().sum::<f64>() / trips.len() as f64);
    Ok(Row::of(&[&world.title], [took, mean, took / mean, trips.iter().copied().fold(0.0, f64::max)]))
}

/// A roster without the last responder, in a cluster without load: how long it takes, in ms.
fn quiet(world: &World) -> Result<f64> {
    let bodega = candidates::known(BODEGA);
    let responders = world.responders();
    let left = closed::nodes(&responders[..responders.len() - 1]);
    let roster = Roster::new(None, vec![Range::all(left)]).map_err(|error| error.to_string())?;
    let setup = world.setup(bodega, &responders, (Capacity::default(), NEAR), READY + 20_000 * MS)?;
    let acts = vec![(READY + 2_000 * MS, Act::Manage(world.leader(), Manage::Roster(roster)))];
    let measured = world::run(bodega, &setup, Load { acts, ..Load::default() })?;
    let managed = measured.managed.first().filter(|it| it.succeeded);
    let took = managed.and_then(|it| Some(it.ended? - it.asked)).ok_or("the roster is not set")?;
    Ok(took as f64 / MS as f64)
}
