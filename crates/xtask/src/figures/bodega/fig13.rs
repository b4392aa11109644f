//! Figure 13: what a responder's failure and an operator's new roster do to clients; with it what the abstract says of
//! roster changes.

use quorate_bench::chart::{Chart, Scale};
use quorate_bench::{Choice, Keys};
use quorate_core::{Manage, NodeId, Random, Range, Roster};
use quorate_sim::experiment::{Act, Ask, Capacity, Load};

use super::super::page::{Section, Verdict};
use super::super::series;
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, Candidate};
use super::closed::{self, KEYS, VALUE};
use super::world::{self, CAPACITY, EVEN, GEO, MS, NEAR, READY, WAN, World};

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
    /// Operations that failed.
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

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig13", "Figure 13: a responder fails, and an operator sets a roster");
    section.told(format!("{}.", WAN.told()));
    section.told(format!(
        "One client at WI, in an open loop of 400 operations a second, half of them reads, {KEYS} keys, values \
         of {VALUE} B. UT dies at 800 ms and stays dead; at 7.2 s an operator asks the node at WI for the \
         roster MA and APT (the paper does not say which). Beside that, not in the paper, one client each at \
         MA and APT reads a key that nobody writes, 400 times a second. Timeouts: {SILENCE} ms without a word \
         from a responder, leases of 2500 ms, 100 ms for drift. {}. Every history is checked.",
        world::CAPACITY_TOLD
    ));
    section.told(format!(
        "The chart is of one run; numbers of failures are over {RUNS} runs, each of which begins 83 ms later \
         in the round of renewals. The regular change is made without failures too, and without load in three \
         clusters."
    ));
    section.told(
        "Here a responder's failure does not change the roster: the leader excludes it \
         (`crates/protocols/src/paxos/bodega/exclusion.rs`), so that the others' leases are not touched.",
    );
    let bodega = candidates::known(BODEGA);
    let count = if bench.quick { 2 } else { RUNS };
    let runs = (0..count).map(|index| {
        bench.say(&format!("fig13: failure {}", index + 1))?;
        run(bodega, index * 83 * MS, true)
    });
    let runs = runs.collect::<Result<Vec<_>>>()?;
    bench.say("fig13: without failure, without notes, without load")?;
    let healthy = run(bodega, 0, false)?;
    let without_notes = run(&candidates::WITHOUT_NOTES, 0, true)?;
    show(bench, &mut section, &runs)?;
    judge_failure(&mut section, &runs, &without_notes);
    judge_regular(bench, &mut section, &runs, &healthy)?;
    Ok(section)
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
    let setup = WAN.setup(candidate, &WAN.responders(), CAPACITY, origin + LENGTH + 10_000 * MS)?;
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

fn show(bench: &Bench, section: &mut Section, runs: &[Run]) -> Result<()> {
    let mut table = Table::new(["operation", "site", "asked_ms", "ended_ms", "latency_ms"]);
    let topology = WAN.topology();
    let points = |writes: bool| {
        let mine = runs[0].client().filter(|op| op.writes == writes);
        let mut points: Vec<_> = mine.map(|op| (op.end / 1e3, op.latency())).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    for op in &runs[0].ops {
        table.row([
            if op.writes { "write" } else { "read" }.to_owned(),
            topology.sites()[op.site].clone(),
            format!("{:.3}", op.start),
            format!("{:.3}", op.end),
            format!("{:.3}", op.latency()),
        ]);
    }
    bench.csv(section, "fig13.csv", &table)?;
    let mut chart = Chart::new("the client at WI", "s at which operations finish", "latency, ms", Scale::Log);
    chart = chart.line("reads", points(false), false).line("writes", points(true), false);
    (chart.x, chart.legend_right) = (Some((0.0, 13.0)), true);
    chart.marks = vec![(0.8, "UT dies".to_owned()), (7.2, "new roster".to_owned())];
    bench.plot(section, "fig13.svg", "Latency of each operation, by when it finishes", &[chart], 1)?;
    let mut table = Table::new([
        "run",
        "writes_again_s",
        "slow_reads_at_WI",
        "of_keys_without_writes",
        "slowest_read_at_MA_APT_ms",
        "regular_change_ms",
        "failed",
    ]);
    for (index, run) in runs.iter().enumerate() {
        let crash = CRASH as f64 / MS as f64;
        let (slow, alone) = run.slow((crash, crash + run.writes_again()));
        table.row([
            (index + 1).to_string(),
            format!("{:.2}", run.writes_again() / 1e3),
            slow.to_string(),
            alone.to_string(),
            format!("{:.2}", run.slowest_elsewhere()),
            format!("{:.1}", run.change),
            run.failed.to_string(),
        ]);
    }
    section.tables.push((
        "From the crash until writes are answered again; reads of the client at WI that take more than 2 ms \
         meanwhile, and how many of these are of keys that nothing is being written to."
            .to_owned(),
        table,
    ));
    Ok(())
}

fn judge_failure(section: &mut Section, runs: &[Run], without_notes: &Run) {
    let crash = CRASH as f64 / MS as f64;
    let early = |run: &Run| {
        let asked = run.client().filter(|op| op.writes && op.starts_in((crash + 50.0, crash + 1000.0)));
        asked.filter(|op| op.end < crash + SILENCE).count()
    };
    section.judge(
        "B-13.1",
        Verdict::when(runs.iter().all(|run| early(run) == 0)),
        format!(
            "of the writes that are asked from 50 ms to 1 s after the crash {} are answered in the first {:.1} s",
            runs.iter().map(early).sum::<usize>(),
            SILENCE / 1e3
        ),
        "",
    );
    let again: Vec<_> = runs.iter().map(Run::writes_again).collect();
    let slowest = runs.iter().map(Run::slowest_elsewhere).fold(0.0, f64::max);
    let before = (crash, crash + SILENCE);
    let slow: Vec<_> = runs.iter().map(|run| run.slow(before)).collect();
    let (held, alone) = slow.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let reads: usize =
        runs.iter().map(|run| run.client().filter(|op| !op.writes && op.starts_in(before)).count()).sum();
    let waits = runs.iter().flat_map(Run::client).filter(|op| !op.writes && op.starts_in(before));
    let longest = waits.map(Op::latency).fold(0.0, f64::max);
    let plain = without_notes.slow((crash, crash + without_notes.writes_again())).0;
    section.judge(
        "B-13.2",
        Verdict::when(held == 0),
        format!(
            "at WI {held} of {reads} reads in the {:.1} s after the crash are held, for up to {:.2} s, {alone} of \
             them of keys that no write is under way to; at MA and APT the slowest read of a key that nobody writes \
             takes {slowest:.2} ms, from the crash to the operator's request",
            SILENCE / 1e3,
            longest / 1e3
        ),
        format!(
            "rule: no read at WI slower than 2 ms. A leader with early notes must hold reads of keys whose \
             writes are blocked (B-S.7; with `early_notes=false` {plain} reads at WI are slow until writes go \
             on). All other reads go on, also while the dead responder's leases end, where the paper's stop \
             for 2.6 s"
        ),
    );
    section.judge_by(
        "B-13.3",
        Verdict::Differs,
        "the roster stays; UT is excluded from it, and `quorate roster show` leaves it out",
        "a new roster would end everybody's leases and stop all local reads for as long as the dead one's \
         last; when UT comes back it is let in again without a change",
        "`crates/protocols/src/paxos/bodega/exclusion.rs`",
    );
    let waits: Vec<_> = again.iter().map(|ms| ms - SILENCE).collect();
    let (least, most) = range(&waits);
    let mean = series::mean(&waits);
    section.judge(
        "B-13.4",
        as_short(most, 2600.0),
        format!(
            "{:.2} s on average after {:.1} s of silence, {:.2} to {:.2} s",
            mean / 1e3,
            SILENCE / 1e3,
            least / 1e3,
            most / 1e3
        ),
        "rule: 2.6 s and 5%; better: less than 95% of it. A promise ends 2.6 s after the grantee's last reply, \
         whether a renewal is out or not, so part of it is over when the responder is found silent. (By the \
         paper's timers (B-S.28) a renewal without an answer binds for another 2.6 s.)",
    );
    let (least, most) = range(&again);
    section.judge(
        "B-13.5",
        if slowest <= LOCAL { as_short(most, 3700.0) } else { Verdict::Differs },
        format!(
            "writes stop for {:.2} to {:.2} s, reads of keys without writes not at all",
            least / 1e3,
            most / 1e3
        ),
        "rule: writes 3.7 s and 5%, no such read slower than 2 ms; better: less than 95% of it",
    );
}

/// Whether a time is the paper's, within 5%, or less.
fn as_short(time: f64, paper: f64) -> Verdict {
    if time < 0.95 * paper { Verdict::Better } else { Verdict::when(time <= 1.05 * paper) }
}

fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// A roster without the last responder, in a cluster without load: how long it takes, in ms.
fn quiet(world: &World) -> Result<f64> {
    let bodega = candidates::known(BODEGA);
    let responders = world.responders();
    let left = closed::nodes(&responders[..responders.len() - 1]);
    let roster = Roster::new(None, vec![Range::all(left)]).map_err(|error| error.to_string())?;
    let setup = world.setup(bodega, &responders, Capacity::default(), READY + 20_000 * MS)?;
    let acts = vec![(READY + 2_000 * MS, Act::Manage(world.leader(), Manage::Roster(roster)))];
    let measured = world::run(bodega, &setup, Load { acts, ..Load::default() })?;
    let managed = measured.managed.first().filter(|it| it.succeeded);
    let took = managed.and_then(|it| Some(it.ended? - it.asked)).ok_or("the roster is not set")?;
    Ok(took as f64 / MS as f64)
}

fn judge_regular(bench: &Bench, section: &mut Section, runs: &[Run], healthy: &Run) -> Result<()> {
    let mut table =
        Table::new(["cluster", "change_ms", "mean_round_trip_ms", "longest_ms", "leader_majority_ms"]);
    let mut quiets = Vec::new();
    for world in [&WAN, &GEO, &EVEN] {
        let (topology, sites) = (world.topology(), world.sites());
        let pairs = (0..sites).flat_map(|a| (a + 1..sites).map(move |b| (a, b)));
        let trips: Vec<_> = pairs.map(|(a, b)| topology.round_trip(a, b).as_secs_f64() * 1e3).collect();
        let took = quiet(world)? - NEAR;
        let m = world.model(&topology, &[], world.leader()).m();
        let (mean, longest) = (series::mean(&trips), range(&trips).1);
        table.row([
            world.title.to_owned(),
            format!("{took:.1}"),
            format!("{mean:.1}"),
            format!("{longest:.0}"),
            format!("{m:.0}"),
        ]);
        quiets.push((took, mean, longest));
    }
    bench.csv(section, "fig13-changes.csv", &table)?;
    section.tables.push((
        "A regular change without load, from the leader's node hearing of it to its answer: every lease of the \
         new ballot that it needs is there."
            .to_owned(),
        table,
    ));
    let [(wan, mean, _), _, (even, even_trip, _)] = quiets[..] else { return Ok(()) };
    let changes: Vec<_> = runs.iter().map(|run| run.change - NEAR).collect();
    let (least, most) = range(&changes);
    section.judge(
        "B-13.6",
        match most.max(wan).max(healthy.change - NEAR) {
            most if most > 1.2 * 75.0 => Verdict::Differs,
            most if most < 0.8 * 75.0 => Verdict::Better,
            _ => Verdict::Agrees,
        },
        format!(
            "{:.0} ms with all nodes, {wan:.0} without load, {least:.0} to {most:.0} after the failure; {:.1} \
             mean round trips of {mean:.1} ms",
            healthy.change - NEAR,
            wan / mean
        ),
        "rule: 75 ms and a fifth; less is better",
    );
    let change = CHANGE as f64 / MS as f64;
    let around = (change, change + 500.0);
    let client: Vec<_> = healthy.client().filter(|op| op.starts_in(around)).collect();
    let worst = |writes: bool| {
        client.iter().filter(|op| op.writes == writes).map(|op| op.latency()).fold(0.0, f64::max)
    };
    let slow = client.iter().filter(|op| op.is_slow()).count();
    let elsewhere = healthy.ops.iter().filter(|op| op.site != WAN.leader() && op.starts_in(around));
    let elsewhere = elsewhere.map(Op::latency).fold(0.0, f64::max);
    let failed = healthy.failed + runs.iter().map(|run| run.failed).sum::<usize>();
    section.judge(
        "B-13.7",
        Verdict::when(failed == 0),
        format!(
            "no operation fails ({failed}); at WI the slowest write takes {:.0} ms and the slowest read {:.0} \
             ms ({slow} reads more than 2 ms), at MA and APT the slowest read {elsewhere:.0} ms",
            worst(true),
            worst(false)
        ),
        "rule: none fails; latencies are of what is asked in the half second from the request on",
    );
    let rounds = even / even_trip;
    let told = format!(
        "where all sites are as far apart, {rounds:.2} round trips from the leader's hearing of it to its answer"
    );
    for claim in ["B-13.8", "B-A.4"] {
        let verdict = Verdict::when((1.6..=2.4).contains(&rounds));
        section.judge(
            claim,
            verdict,
            told.clone(),
            "rule: two round trips within a fifth, in EVEN (of Table 1)",
        );
    }
    Ok(())
}
