//! Table 1: what writes and reads take at each site, where nothing queues, against the paper's formulas.

use quorate_sim::experiment::{Act, Ask, Capacity, Load, Measured, Operation};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, Candidate, EPAXOS};
use super::model::{Cells, Model};
use super::world::{self, EVEN, GEO, MS, NEAR, READY, World};

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
/// How far a measured cell may be from its formula.
const NEARLY: f64 = 0.05;

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("table1", "Table 1: latency and degradation of each protocol");
    section.told(format!(
        "Two clusters without queues (processors, interfaces and disks take no time): GEO, leader VA, round \
         trips as printed in Figure 7; and EVEN, five sites of which each is 100 ms from each (99 ms from the \
         leader, S1, so that it is in everybody's majority): m = M = N, wherever one asks, and R* and D* do \
         not depend on which site is meant. {NEAR} ms from a client to its node and back. In both all sites \
         are responders: the most read-optimized roster."
    ));
    section.told(
        "W and R: single operations at each site, 1.5 s apart, after one that opened the session. R* and D*: \
         one write at the leader's site, and a read of its key each millisecond at every site, from 0.3 s \
         before to 1.5 s after; R* is the slowest of them, D* the time from the first to the last that is \
         slower than R by more than 0.5 ms. EPaxos's reads are commands, which interfere with that write \
         themselves, and reads of other sites with them: each has a write of its own there, to another key, 2 s \
         from the next, and is from 0.3 s before it to 0.5 s after.",
    );
    section.told(
        "Formulas take m and M at the node that waits for them (PQR's reads and EPaxos: that of the clients' \
         site), N is the furthest responder of the leader. PQR's R* is that of one rinse. Those of protocols \
         that the table leaves out (MultiPaxos, Raft) are ours: W = R = l+m without leases, R = l with them.",
    );
    let mut table = Table::new([
        "cluster",
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
    for candidate in candidates::ALL {
        bench.say(&format!("table1: {}", candidate.name))?;
        let rows = [measure(candidate, &GEO)?, measure(candidate, &EVEN)?];
        for (world, row) in
            [GEO, EVEN].iter().zip(&rows).flat_map(|(world, rows)| rows.iter().map(move |row| (world, row)))
        {
            let (ours, theirs) = (row.ours, row.formula);
            let ms = |cell: f64| format!("{cell:.1}");
            table.row([
                world.title.to_owned(),
                candidate.name.to_owned(),
                row.site.clone(),
                ms(ours.write),
                ms(theirs.write),
                ms(ours.read),
                ms(theirs.read),
                ms(ours.worst),
                ms(theirs.worst),
                ms(ours.window),
                ms(theirs.window),
            ]);
        }
        if let Some(claim) = candidate.claim {
            verdict(&mut section, candidate, claim, &rows);
        }
    }
    bench.csv(&mut section, "table1.csv", &table)?;
    section.tables.push(("In ms, measured and by the formula.".to_owned(), table));
    judge(&mut section);
    Ok(section)
}

/// W and R at each site of both clusters; R* and D* in EVEN, but not at the leader's site.
fn verdict(section: &mut Section, candidate: &Candidate, claim: &str, [geo, even]: &[Vec<Row>; 2]) {
    let worst = |rows: &mut dyn Iterator<Item = &Row>, cell: fn(&Cells) -> f64| {
        100.0 * rows.map(|row| off(cell(&row.ours), cell(&row.formula))).fold(0.0, f64::max)
    };
    let leader = EVEN.leader();
    let away = || even.iter().enumerate().filter(|(site, _)| *site != leader).map(|(_, row)| row);
    let write = worst(&mut geo.iter().chain(even), |cells| cells.write);
    let read = worst(&mut geo.iter().chain(even), |cells| cells.read);
    let slowest = worst(&mut away(), |cells| cells.worst);
    let window = worst(&mut away(), |cells| cells.window);
    let limit = 100.0 * NEARLY;
    let shorter = away().all(|row| row.ours.window <= row.formula.window + SLACK);
    let verdict = match [write, read, slowest].iter().all(|error| *error <= limit) {
        true if window <= limit => Verdict::Agrees,
        true if shorter => Verdict::Better,
        _ => Verdict::Differs,
    };
    let (at, there, geos) = (&even[leader], &even[(leader + 1) % even.len()], &geo[GEO.site("JP")]);
    section.judge(
        claim,
        verdict,
        format!(
            "furthest from its formula: W {write:.1}%, R {read:.1}%, R* {slowest:.1}%, D* {window:.1}%; D* is \
             {:.0} ms where the formula says {:.0}",
            there.ours.window, there.formula.window
        ),
        match candidate.name {
            candidates::BODEGA => format!(
                "rule as at B-T1.2. A held read is released by the commit rule, so what counts is the last \
                 responder's vote: with all sites as responders m is N (in EVEN they are the same; in GEO D* \
                 at JP is {:.0} ms, m/2 {:.0}, N/2 {:.0}). At the leader's own site reads wait too, up to N \
                 (D* {:.0} ms): while notes are on it must not answer from what it knows to be committed \
                 (B-S.7)",
                geos.ours.window,
                GEO.model(&GEO.topology(), &[], 0).m() / 2.0,
                geos.formula.window,
                at.ours.window
            ),
            candidates::QUORUM_LEASES => "rule as at B-T1.2. A grant that a write has revoked comes back with \
                                          the message that tells of its execution, from everybody to everybody: \
                                          3N/2, not 2N"
                .to_owned(),
            EPAXOS => "rule as at B-T1.2. The formula counts the read's own two rounds. It is answered when it is \
                       executed, and so waits for the write that it has met, which has met the read too: that \
                       takes two rounds to commit, and half a one until the reader hears of it"
                .to_owned(),
            _ => RULE.to_owned(),
        },
    );
}

const RULE: &str = "rule: W and R at each site of both clusters within 5% of the formula or 0.5 ms; R* and D* \
                    too, in EVEN, at the sites that do not lead; a D* that is shorter everywhere is better";

struct Row {
    site: String,
    ours: Cells,
    formula: Cells,
}

/// How far a cell is from its formula.
fn off(ours: f64, theirs: f64) -> f64 {
    match (ours - theirs).abs() {
        small if small <= SLACK => 0.0,
        far => far / theirs.max(SLACK),
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
    let beside = beside(candidate, world, at, &mut asks);
    let all: Vec<_> = (0..sites).filter(|site| *site != world.leader()).collect();
    let setup = world.setup(candidate, &all, Capacity::default(), beside.until + 5_000 * MS)?;
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
            Ok(Row { site: topology.sites()[site].clone(), ours, formula })
        })
        .collect()
}

/// Reads beside writes.
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

fn judge(section: &mut Section) {
    let topology = GEO.topology();
    let sites = topology.sites().len();
    let all: Vec<_> = (0..sites).collect();
    let models: Vec<_> = (0..sites).map(|site| GEO.model(&topology, &all, site)).collect();
    let average = models.iter().map(Model::l).sum::<f64>() / sites as f64;
    let (c, m, all) = (models[0].c, models[0].m(), models[0].all());
    section.judge(
        "B-T1.1",
        Verdict::when(c < 0.1 * average && (0.5..=2.0).contains(&(average / m)) && m < all),
        format!("GEO: c {c:.0}, l {average:.0} on average, m {m:.0}, N {all:.0} ms"),
        "rule: c below a tenth of l; l ÷ m between one half and two; m < N. M is as large as m with five \
         nodes: EPaxos' fast quorum is three of them",
    );
    section.judge(
        "B-T1.9",
        Verdict::NotJudged,
        "not built: Hermes, Megastore, Pando",
        "the paper does not run them either; Hermes is an issue of its own",
    );
    let names = |list: Vec<&Candidate>| list.iter().map(|one| one.name).collect::<Vec<_>>().join(", ");
    section.judge_by(
        "B-T1.10",
        Verdict::Differs,
        format!(
            "rosters by ranges of keys, set while it runs: {}; no others of ours",
            names(candidates::local())
        ),
        "our passive variant keeps the roster in the log as the active one does, so it is tunable too; Pando \
         is not built",
        "`quorate roster set`, `crates/protocols/src/registry.rs` (`rosters` of the capabilities)",
    );
    section.judge(
        "B-T1.11",
        Verdict::Differs,
        "R, R* and D* are the least of the table at responders; W is l+N, where others have l+m",
        "as the register notes, the claim does not fit the table's own column W; with fewer responders W is \
         l+m (Figure 14)",
    );
}
