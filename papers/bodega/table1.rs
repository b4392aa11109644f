//! Table 1: what writes and reads take at each site, where nothing queues, against the paper's formulas.

use quorate_sim::experiment::{Act, Ask, Capacity, Load, Measured, Operation};

use super::candidates::{self, Candidate};
use super::model::{Cells, Model};
use super::world::{self, EVEN, GEO, MS, NEAR, READY, WAN, World};
use super::{EPAXOS, SETTINGS, TABLE1};
use crate::instrument::Result;
use crate::instrument::grid::{Row, Rows};
use crate::instrument::measure::Bench;

/// From one quiescent operation to the next.
const APART: u64 = 1_500 * MS;
/// From one read beside the write to the next.
const STEP: u64 = MS;
/// How long reads are watched before and after the write is asked.
const AROUND: (u64, u64) = (300 * MS, 1_500 * MS);
/// The same where each read has a write of its own; these are so far apart.
const ALONE: (u64, u64) = (300 * MS, 500 * MS);
const PERIOD: u64 = 2_000 * MS;
/// Slower than R by less is as fast as R, in ms.
const SLACK: f64 = 0.5;

pub fn measure(bench: &Bench) -> Result<Vec<Rows>> {
    let points: Vec<_> =
        candidates::ALL.iter().flat_map(|candidate| [(candidate, &GEO), (candidate, &EVEN)]).collect();
    let rows = bench.each(&points, |(candidate, world)| one(candidate, world))?;
    let symbols = [&GEO, &WAN].map(|world| {
        let (topology, sites) = (world.topology(), world.sites());
        let all: Vec<_> = (0..sites).collect();
        let models: Vec<_> = all.iter().map(|site| world.model(&topology, &all, *site)).collect();
        let l = models.iter().map(Model::l).sum::<f64>() / sites as f64;
        let (m, n) = (models[0].m(), models[0].all());
        let trip = |from: usize, to: usize| topology.round_trip(from, to).as_secs_f64() * 1e3;
        let near = world.responders();
        let near = near.iter().map(|site| trip(world.leader(), *site)).sum::<f64>() / near.len() as f64;
        let pairs: Vec<_> = (0..sites).flat_map(|a| (a + 1..sites).map(move |b| (a, b))).collect();
        let mean = pairs.iter().map(|(a, b)| trip(*a, *b)).sum::<f64>() / pairs.len() as f64;
        Row::of(&[&world.title], [NEAR, l, m, n, near, mean])
    });
    Ok(vec![Rows(&TABLE1, rows.concat()), Rows(&SETTINGS, symbols.to_vec())])
}

/// How far a cell is from its formula.
fn off(ours: f64, theirs: f64) -> f64 {
    match (ours - theirs).abs() {
        small if small <= SLACK => 0.0,
        far => far / theirs.max(SLACK),
    }
}

fn one(candidate: &Candidate, world: &World) -> Result<Vec<Row>> {
    let topology = world.topology();
    let sites = topology.sites().len();
    let ask = |at, proxy, command| Ask { at, proxy, command, patience: 10_000 * MS };
    let mut asks = Vec::new();
    let mut at = READY;
    for (site, round) in (0..sites).flat_map(|site| [(site, 0), (site, 1)]) {
        // The first of a proxy opens its session.
        asks.push(ask(at, site, world::put("k", at, 8)));
        if round == 1 {
            asks.push(ask(at + APART, site, world::get("k")));
        }
        at += 2 * APART;
    }
    let beside = beside(candidate, world, at, &mut asks);
    let all: Vec<_> = (0..sites).filter(|site| *site != world.leader()).collect();
    let setup = world.setup(candidate, &all, (Capacity::default(), NEAR), beside.until + 5_000 * MS)?;
    let acts: Vec<(u64, Act)> = Vec::new();
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts })?;
    world::check(candidate, &measured)?;
    (0..sites)
        .map(|site| {
            let row = || {
                cells(&measured, site, &beside)
                    .map(|ours| (ours, (candidate.formula)(&world.model(&topology, &all, site))))
            };
            let (ours, formula) =
                row().ok_or_else(|| format!("{}: an operation has no answer", candidate.name))?;
            let off =
                |cell: fn(&Cells) -> f64| [cell(&ours), cell(&formula), off(cell(&ours), cell(&formula))];
            let numbers: [[f64; 3]; 4] =
                [off(|it| it.write), off(|it| it.read), off(|it| it.worst), off(|it| it.window)];
            let numbers: [f64; 12] = numbers.concat().try_into().expect("four times three");
            Ok(Row::of(&[&candidate.name, &world.title, &topology.sites()[site]], numbers))
        })
        .collect()
}

/// When sites read while another writes, in nanoseconds of the run.
struct Beside {
    from: u64,
    until: u64,
    /// From one write to the next.
    period: u64,
}

/// One write and many reads; or many pairs of both, where reads would get in each other's way.
fn beside(candidate: &Candidate, world: &World, from: u64, asks: &mut Vec<Ask>) -> Beside {
    let sites = world.sites();
    let ask = |at, proxy, command| Ask { at, proxy, command, patience: 10_000 * MS };
    if candidate.name != EPAXOS {
        let (write, until) = (from + AROUND.0, from + AROUND.0 + AROUND.1);
        asks.push(ask(write, world.leader(), world::put("k", write, 8)));
        for read in (from..until).step_by(STEP as usize) {
            asks.extend((0..sites).map(|site| ask(read, site, world::get("k"))));
        }
        return Beside { from, until, period: u64::MAX };
    }
    let mut begin = from;
    for (site, after) in
        (0..sites).flat_map(|site| (0..ALONE.0 + ALONE.1).step_by(STEP as usize).map(move |at| (site, at)))
    {
        let key = world::key(begin / MS);
        asks.push(ask(begin + ALONE.0, world.leader(), world::put(&key, begin, 8)));
        asks.push(ask(begin + after, site, world::get(&key)));
        begin += PERIOD;
    }
    asks.sort_by_key(|ask| ask.at);
    Beside { from, until: begin, period: PERIOD }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / MS as f64
}

/// What the clients of a site saw.
fn cells(measured: &Measured, site: usize, beside: &Beside) -> Option<Cells> {
    let mine = |op: &&Operation| op.proxy == site;
    let quiet = |writes: bool| {
        let mut ops = measured
            .operations
            .iter()
            .filter(mine)
            .filter(|op| op.writes == writes && op.asked < beside.from);
        ops.next_back().and_then(Operation::latency).map(millis)
    };
    let (write, read) = (quiet(true)?, quiet(false)?);
    let reads = measured.operations.iter().filter(mine).filter(|op| !op.writes && op.asked >= beside.from);
    let at = |op: &Operation| (op.asked - beside.from) % beside.period;
    let reads: Option<Vec<_>> = reads.map(|op| Some((at(op), millis(op.latency()?)))).collect();
    let reads = reads?;
    let worst = reads.iter().map(|(_, latency)| *latency).fold(read, f64::max);
    let slow: Vec<_> =
        reads.iter().filter(|(_, latency)| *latency > read + SLACK).map(|(at, _)| *at).collect();
    let window = slow.first().zip(slow.last()).map_or(0.0, |(first, last)| millis(last - first + STEP));
    Some(Cells { write, read, worst, window })
}
