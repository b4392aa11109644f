//! Figure 4, drawn in the paper, measured here: both leaders of a partition. And what reads cost in messages.

use quorate_bench::Arrivals;
use quorate_bench::chart::{Chart, Scale};
use quorate_sim::experiment::{Act, Ask, Measured};
use quorate_store::Command;

use super::super::page::{Section, Verdict};
use super::super::series::{self, Op};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::simulated::{
    self, ACCEPTED, INCONSISTENT, LEASEGUARD, LOG_BASED, Load, MS, Mechanism, ONGARO, ORIGIN, QUORUM, SUBNET,
    WORLD,
};

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

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig4", "Figure 4: both leaders of a partition (simulated)");
    section.told(format!("World: {WORLD}. Links as in Figure 7; ET 500 ms, Δ 1 s."));
    section.told(
        "At 500 ms L0 loses the other two nodes, but not its clients, who go on asking it. Others begin to ask 5 \
         ms after L1 is elected, and find it. Each side is asked a read each millisecond and a write each 10 ms, \
         of 1000 keys. Of seeds 1 to 400, the first whose L1 is elected 480 to 750 ms after the cut, and in which \
         L0 is not whom a new client asks first.",
    );
    let guard = partition(LEASEGUARD)?;
    let log = partition(LOG_BASED)?;
    let plain = partition(INCONSISTENT)?;
    let quorum = partition(QUORUM)?;
    let mut table = Table::new([
        "mechanism",
        "elected",
        "L1 commits",
        "reads at L0 while both lead",
        "reads at L1 before it commits",
        "writes \
         acknowledged meanwhile",
        "linearizable",
    ]);
    let window = |sides: &Sides| (sides.elected + 20.0, (CUT + 1000 - 20) as f64);
    let reads = |ops: &[Op], window| series::served(&series::kind(ops, false), window, FAST);
    let acknowledged = |sides: &Sides| {
        let (from, to) = window(sides);
        let all = sides.old.iter().chain(&sides.new).filter(|op| op.writes);
        all.filter(|op| op.end.is_some_and(|end| end > from && end < to)).count()
    };
    for (mechanism, sides) in
        [(LEASEGUARD, &guard), (LOG_BASED, &log), (QUORUM, &quorum), (INCONSISTENT, &plain)]
    {
        let [old, new] = [&sides.old, &sides.new].map(|ops| {
            let (asked, served) = reads(ops, window(sides));
            format!("{served} of {asked}")
        });
        table.row([
            mechanism.name.to_owned(),
            format!("{:.0}", sides.elected),
            format!("{:.0}", sides.committed),
            old,
            new,
            acknowledged(sides).to_string(),
            if sides.linearizable { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    section.tables.push((
        "Times in ms on the axis of the plot; \"while both lead\": from 20 ms after L1's election \
                          until 20 ms before L0's lease ends."
            .to_owned(),
        table,
    ));
    let mut chart = Chart::new("LeaseGuard", "ms", "operations per ms", Scale::Linear(Some(3.0)));
    chart.x = Some((0.0, 2500.0));
    chart.legend_right = true;
    for (at, word) in [(CUT as f64, "cut"), (guard.elected, "elected"), (guard.committed, "L1 commits")] {
        chart.marks.push((at, word.to_owned()));
    }
    let rate = |ops: &[Op], writes| series::throughput(&series::kind(ops, writes), 10.0, 2500.0);
    let chart = chart
        .line("reads at L0", rate(&guard.old, false), false)
        .line("reads at L1", rate(&guard.new, false), false)
        .line("writes at L0", rate(&guard.old, true), false)
        .line("writes at L1", rate(&guard.new, true), false);
    bench.plot(&mut section, "fig4.svg", "both leaders of a partition", &[chart], 1)?;
    let (old, new) = (reads(&guard.old, window(&guard)), reads(&guard.new, window(&guard)));
    let acks = acknowledged(&guard);
    let both = old.0 > 50 && old.1 == old.0 && new.1 as f64 > 0.9 * new.0 as f64 && new.0 > 50;
    section.judge(
        "LG-4.1",
        Verdict::when(both && acks == 0),
        format!(
            "L0 served {} of {} reads, L1 {} of {}; {acks} writes were acknowledged",
            old.1, old.0, new.1, new.0
        ),
        "rule: all of L0's, more than 90% of L1's, no write",
    );
    section.judge(
        "LG-4.2",
        Verdict::when(acks == 0 && guard.committed > (CUT + 985) as f64 && guard.linearizable),
        format!("L1's first commit is {:.1} ms after the cut", guard.committed - CUT as f64),
        "rule: Δ after L0's last entry, which is at most 10 ms older than the cut; and a linearizable history",
    );
    section.judge(
        "LG-S.13",
        Verdict::when(both && guard.linearizable),
        format!(
            "both served reads for {:.0} ms, and the history is linearizable",
            window(&guard).1 - guard.elected
        ),
        "rule: LG-4.1, and the checker accepts the history",
    );
    section.judge(
        "LG-S.35",
        Verdict::when(!plain.linearizable && quorum.linearizable && log.linearizable),
        "the checker refuses inconsistent's history, and accepts quorum's, the log-based lease's and LeaseGuard's",
        "rule: exactly that",
    );
    messages(&mut section)?;
    Ok(section)
}

fn millis(nanos: u64) -> f64 {
    (nanos as f64 - ORIGIN as f64) / MS as f64
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
            of.map(|(op, _)| Op {
                start: millis(op.asked),
                end: op.ended.filter(|_| op.succeeded).map(millis),
                writes: op.writes,
            })
            .collect()
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
fn messages(section: &mut Section) -> Result<()> {
    let mut table = Table::new(["mechanism", "messages between nodes per read", "p50, in round trips"]);
    let mut costs = Vec::new();
    for mechanism in [INCONSISTENT, QUORUM, ONGARO, LEASEGUARD] {
        let run = |reads: u64| -> Result<Measured> {
            let common = ["election.timeout=500ms", "lease.duration=1s"];
            let setup = simulated::setup(mechanism, &common, SUBNET, 1, ORIGIN + 1500 * MS);
            let mut load = Load::new(0.0, 0.0, 128, 1);
            let mut asks = load.greeting();
            // What comes and goes without reads is the same in both runs.
            asks.extend((0..reads).map(|index| load.ask(ORIGIN + index * MS, false, ACCEPTED)));
            asks.iter_mut().for_each(|ask| {
                if let Command::Put { .. } = ask.command {
                    ask.proxy = 0;
                }
            });
            simulated::run(&setup, asks, &[])
        };
        let (without, with) = (run(0)?, run(1000)?);
        let between = |measured: &Measured| measured.sent.values().sum::<u64>() as f64;
        let each = (between(&with) - between(&without)) / 1000.0;
        let reads = series::kind(&simulated::ops(&with), false);
        let trips = series::quantile(reads.iter().filter_map(Op::latency), 0.5) / 0.382;
        table.row([mechanism.name.to_owned(), format!("{each:.2}"), format!("{trips:.2}")]);
        costs.push((each, trips));
    }
    section
        .tables
        .push(("What a read costs: 1000 reads in a second, one at a time, against none:".to_owned(), table));
    let [_, quorum, _, guard] = costs[..] else { return Ok(()) };
    section.judge(
        "LG-A.1",
        Verdict::when(guard.0.abs() < 0.05 && guard.1 < 0.1 && (0.9..1.3).contains(&quorum.1)),
        format!(
            "quorum {:.2} messages and {:.2} round trips, LeaseGuard {:.2} and {:.2}",
            quorum.0, quorum.1, guard.0, guard.1
        ),
        "rule: 0.9 to 1.3 round trips against less than 0.1, and no message",
    );
    section.judge(
        "LG-A.8",
        Verdict::when((3.5..4.5).contains(&quorum.0)),
        format!("{:.2} messages between nodes for each read: a question to two followers, and their answers", quorum.0),
        "rule: 3.5 to 4.5. The leader asks all followers, and needs the first answer; reads that come together \
         share a round unless `quorum.rounds=each`",
    );
    section.judge(
        "LG-S.14",
        Verdict::when(guard.0.abs() < 0.05),
        format!("{:.2} messages per read under the own lease; under the inherited one the table above has reads \
                 within {FAST} ms",
            guard.0),
        "rule: no message. `read_gate` of crates/protocols/src/raft/leaseguard.rs looks at log and clock only",
    );
    Ok(())
}
