//! Table 1: what writes and reads take at each site, where nothing queues, against the paper's formulas.

use quorate_sim::experiment::{Act, Ask, Capacity, Load, Measured, Operation};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{ALL, Candidate, Cells};
use super::world::{self, GEO, MS, READY, World};

/// From one quiescent operation to the next.
const APART: u64 = 1_500 * MS;
/// From one read beside the write to the next.
const STEP: u64 = MS;
/// How long reads are watched before and after the write is asked.
const AROUND: (u64, u64) = (300 * MS, 1_500 * MS);
/// Slower than R by less is as fast as R, in ms.
const SLACK: f64 = 0.5;
/// How far a measured cell may be from its formula.
const NEARLY: f64 = 0.05;

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("table1", "Table 1: latency and degradation of each protocol");
    section.told(format!("World: {}. Processors, interfaces and disks take no time.", GEO.told()));
    section.told(
        "W and R: single operations at each site, 1.5 s apart, after one that opened the session. R* and D*: one \
         write at the leader's site, and a read of its key each millisecond at every site, from 0.3 s before to 1.5 s \
         after; R* is the slowest of them, D* the time from the first to the last that is slower than R by more than \
         0.5 ms.",
    );
    section.told(
        "Formulas of protocols that the table leaves out (MultiPaxos, Raft) are ours: W = R = l+m without leases, \
         R = l with them.",
    );
    let mut table = Table::new([
        "protocol",
        "site",
        "W_ms",
        "W_formula",
        "R_ms",
        "R_formula",
        "R*_ms",
        "R*_formula",
        "D*_ms",
        "D*_formula",
    ]);
    for candidate in ALL {
        bench.say(&format!("table1: {}", candidate.name))?;
        let rows = measure(candidate, &GEO)?;
        for row in &rows {
            let (ours, theirs) = (row.ours, row.formula);
            let pairs = [
                (ours.write, theirs.write),
                (ours.read, theirs.read),
                (ours.worst, theirs.worst),
                (ours.window, theirs.window),
            ];
            let mut words =
                pairs.into_iter().flat_map(|(ours, theirs)| [ours, theirs]).map(|ms| format!("{ms:.1}"));
            let mut next = || words.next().unwrap_or_default();
            table.row([
                candidate.name.to_owned(),
                row.site.clone(),
                next(),
                next(),
                next(),
                next(),
                next(),
                next(),
                next(),
                next(),
            ]);
        }
        if let Some(claim) = candidate.claim {
            let furthest = rows.iter().map(Row::error).fold(0.0, f64::max);
            section.judge(
                claim,
                Verdict::when(furthest <= NEARLY),
                format!("the cell furthest from its formula is {:.1}% off", 100.0 * furthest),
                "rule: each of the four cells at each site within 5% of its formula, or within 0.5 ms",
            );
        }
    }
    bench.csv(&mut section, "table1.csv", &table)?;
    section.tables.push(("In ms, measured and by the formula, with the matrix of GEO.".to_owned(), table));
    judge(&mut section);
    Ok(section)
}

struct Row {
    site: String,
    ours: Cells,
    formula: Cells,
}

impl Row {
    /// How far the worst cell is from its formula.
    fn error(&self) -> f64 {
        let off = |ours: f64, theirs: f64| match (ours - theirs).abs() {
            small if small <= SLACK => 0.0,
            far => far / theirs.max(SLACK),
        };
        let (ours, theirs) = (self.ours, self.formula);
        let cells = [
            off(ours.write, theirs.write),
            off(ours.read, theirs.read),
            off(ours.worst, theirs.worst),
            off(ours.window, theirs.window),
        ];
        cells.into_iter().fold(0.0, f64::max)
    }
}

fn measure(candidate: &Candidate, world: &World) -> Result<Vec<Row>> {
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
    let write = at + AROUND.0;
    asks.push(ask(write, world.leader(), world::put("k", write, 8)));
    for read in (at..write + AROUND.1).step_by(STEP as usize) {
        asks.extend((0..sites).map(|site| ask(read, site, world::get("k"))));
    }
    let setup = world.setup(candidate, Capacity::default(), write + 5_000 * MS)?;
    let acts: Vec<(u64, Act)> = Vec::new();
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts })?;
    world::check(candidate, &measured)?;
    (0..sites)
        .map(|site| {
            let row = || {
                cells(&measured, site, at)
                    .map(|ours| (ours, (candidate.formula)(&world.model(&topology, site))))
            };
            let (ours, formula) =
                row().ok_or_else(|| format!("{}: an operation has no answer", candidate.name))?;
            Ok(Row { site: topology.sites()[site].clone(), ours, formula })
        })
        .collect()
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / MS as f64
}

/// What the clients of a site saw; `beside`: when the reads begin that are beside a write.
fn cells(measured: &Measured, site: usize, beside: u64) -> Option<Cells> {
    let mine = |op: &&Operation| op.proxy == site;
    let quiet = |writes: bool| {
        let mut ops =
            measured.operations.iter().filter(mine).filter(|op| op.writes == writes && op.asked < beside);
        ops.next_back().and_then(Operation::latency).map(millis)
    };
    let (write, read) = (quiet(true)?, quiet(false)?);
    let reads = measured.operations.iter().filter(mine).filter(|op| !op.writes && op.asked >= beside);
    let reads: Option<Vec<_>> = reads.map(|op| Some((op.asked, millis(op.latency()?)))).collect();
    let reads = reads?;
    let worst = reads.iter().map(|(_, latency)| *latency).fold(read, f64::max);
    let slow: Vec<_> =
        reads.iter().filter(|(_, latency)| *latency > read + SLACK).map(|(at, _)| *at).collect();
    let window = slow.first().zip(slow.last()).map_or(0.0, |(first, last)| millis(last - first + STEP));
    Some(Cells { write, read, worst, window })
}

fn judge(section: &mut Section) {
    let topology = GEO.topology();
    let sites = topology.sites().len();
    let models: Vec<_> = (0..sites).map(|site| GEO.model(&topology, site)).collect();
    let average = models.iter().map(super::candidates::Model::l).sum::<f64>() / sites as f64;
    let (c, m, all) = (models[0].c, models[0].m(), models[0].all());
    section.judge(
        "B-T1.1",
        Verdict::when(c < 0.1 * average && (0.5..=2.0).contains(&(average / m)) && m < all),
        format!("GEO: c {c:.0}, l {average:.0} on average, m {m:.0}, N {all:.0} ms"),
        "rule: c below a tenth of l; l ÷ m between one half and two; m < N. M is as large as m with five nodes: \
         EPaxos' fast quorum is three of them",
    );
}
