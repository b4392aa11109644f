//! Figure 7: throughput around the crash of a leader, simulated.

use quorate_bench::Arrivals;
use quorate_bench::chart::{Chart, Scale};
use quorate_sim::experiment::{Act, Measured};

use super::super::page::{Section, Verdict};
use super::super::table::Table;
use super::super::{Bench, Result};
use super::outage::{Expected, FAST, Outage};
use super::simulated::{self, ACCEPTED, Load, MS, Mechanism, ORIGIN, PATIENCE, SIX, SUBNET, WORLD};

/// When the leader dies, on the time axis.
const CRASH: f64 = 500.0;
/// An operation each 300 µs.
const RATE: u64 = 3333;
/// How long each run is watched, in ms.
const LENGTH: f64 = 4000.0;
/// Seeds that are tried until the next leader is elected when the paper says it is.
const SEEDS: u64 = 400;

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("fig7", "Figure 7: availability around a leader's crash (simulated)");
    section.told(format!("World: {WORLD}."));
    section.told(
        "Between nodes: log-normal, mean 191 µs, standard deviation 19.8 µs (\"391 µs variance\" read as 391 µs²; \
         the paper gives no squared unit).",
    );
    section.told(
        "Load: open loop, an operation each 300 µs, a third of them writes of 1 KiB, 1000 keys, uniform. ET 500 \
         ms, Δ 1 s; Ongaro's lease is as long as its ET, so that is 1 s there (as in Figure 9; the paper's Figure \
         7 has no such panel).",
    );
    section.told(format!(
        "Elections are random between ET and 2 ET of silence. The paper's timeline has the next leader 500 ms \
         after the crash: of seeds 1 to {SEEDS}, the first whose new leader is elected 470 to 530 ms after it is \
         taken (Ongaro: 970 to 1030 ms)."
    ));
    section.told(format!(
        "Our servers and proxies hold what they cannot do yet and go on trying, where the paper's fail at once. So a \
         client here gives up after {} ms, which counts as a failure, except for writes that it asks of a leader \
         which accepts them without being allowed to commit them (defer commit, LeaseGuard): for those it waits, \
         as the paper's does. Successes are shown when they end, in buckets of 10 ms. A proxy that has lost its \
         leader asks for the next one every 10 ms.",
        PATIENCE / MS
    ));
    let mut outages = Vec::new();
    let mut series = Table::new(["mechanism", "ms", "reads_per_ms", "writes_per_ms"]);
    for mechanism in SIX {
        let outage = crash(mechanism)?;
        bench.say(&format!("fig7: {}", mechanism.name))?;
        outage.rows(&mut series);
        outages.push(outage);
    }
    bench.csv(&mut section, "fig7.csv", &series)?;
    let charts: Vec<_> = outages.iter().map(|outage| panel(outage, 2600.0)).collect();
    bench.plot(&mut section, "fig7.svg", "reads and writes per millisecond around a crash", &charts, 3)?;
    section.tables.push((
        "Times in ms on the axis of the plots; late: took more than 50 ms, and succeeded.".to_owned(),
        Outage::table(&outages),
    ));
    judge(&mut section, &outages);
    Ok(section)
}

/// A panel of Figures 7 and 9.
pub fn panel(outage: &Outage, end: f64) -> Chart {
    // What goes off the chart in the paper goes off it here.
    let top = 2.5 * outage.steady_reads;
    let mut chart = Chart::new(outage.name, "ms", "operations per ms", Scale::Linear(Some(top)));
    chart.x = Some((0.0, end));
    chart.legend_right = true;
    chart.marks.push((outage.crash, "crash".to_owned()));
    chart.marks.extend(outage.elected.map(|at| (at, "elected".to_owned())));
    chart.marks.extend(outage.committed.map(|at| (at, "commits".to_owned())));
    chart.line("reads", outage.rate(false), false).line("writes", outage.rate(true), false)
}

fn crash(mechanism: Mechanism) -> Result<Outage> {
    let expected = if mechanism == simulated::ONGARO { 1000.0 } else { 500.0 };
    for seed in 1..=SEEDS {
        let measured = attempt(mechanism, seed, u64::MAX)?;
        let Some((elected, _)) = measured.elected_after(AT).next() else { continue };
        if (millis(elected) - CRASH - expected).abs() > 30.0 {
            continue;
        }
        // Once more, with clients that wait for what this leader accepts; when it is elected is the seed's choice.
        let measured = attempt(mechanism, seed, elected)?;
        let Some((elected, leader)) = measured.elected_after(AT).next() else { continue };
        let mut outage = Outage::new(mechanism.name, simulated::ops(&measured), CRASH, LENGTH - 500.0);
        outage.elected = Some(millis(elected));
        outage.committed = measured.first_commit_of(leader, elected).map(millis);
        outage.limbo = measured.limbo_of(leader, elected);
        outage.linearizable = Some(simulated::is_linearizable(&measured));
        outage.note = format!("seed {seed}");
        return Ok(outage);
    }
    Err(format!("{}: no seed of {SEEDS} elects {expected} ms after the crash", mechanism.name))
}

/// When the leader dies.
const AT: u64 = ORIGIN + CRASH as u64 * MS;

fn millis(nanos: u64) -> f64 {
    (nanos as f64 - ORIGIN as f64) / MS as f64
}

/// One run. From `accepting` on, clients wait for writes, if the mechanism accepts what it may not commit.
fn attempt(mechanism: Mechanism, seed: u64, accepting: u64) -> Result<Measured> {
    let common = ["election.timeout=500ms", "lease.duration=1s", "proxy.patience=40ms"];
    let end = ORIGIN + LENGTH as u64 * MS;
    let mut load = Load::new(0.0, 1.0 / 3.0, 1024, seed);
    let mut asks = load.greeting();
    asks.extend(load.between(ORIGIN, end - 500 * MS, Arrivals::Even, RATE, PATIENCE));
    for ask in
        asks.iter_mut().filter(|ask| mechanism.defers && ask.at >= accepting && !ask.command.is_read_only())
    {
        ask.patience = ACCEPTED;
    }
    let setup = simulated::setup(mechanism, &common, SUBNET, seed, end);
    simulated::run(&setup, asks, &[(AT, Act::CrashLeader)])
}

fn judge(section: &mut Section, outages: &[Outage]) {
    let [plain, quorum, ongaro, log, defer, guard] = outages else { return };
    // The last entry is at most Δ/2 old at the crash; under this load, a millisecond.
    let lease = CRASH + 1000.0;
    let silent = outages.iter().all(|it| it.answered_in_outage() == 0);
    section.judge(
        "LG-7.1",
        Verdict::when(silent),
        "no operation that began between crash and election ended before the election",
        "rule: exactly none, in all six",
    );
    let instant = plain.read_delay();
    section.judge(
        "LG-7.2",
        Verdict::when(instant < 50.0),
        format!("first read {instant:.1} ms after the election"),
        "rule: within 50 ms (a proxy asks for a leader every 10 ms)",
    );
    let (delay, spike) = (plain.write_delay(), plain.spike(true));
    section.judge(
        "LG-7.3",
        Verdict::when(delay < 100.0 && spike > 1.2),
        format!("first write {delay:.1} ms after the election; highest bucket {spike:.1} of steady"),
        "rule: within 100 ms, and a bucket of 1.2 times the steady rate or more",
    );
    let (reads, writes) = (quorum.spike(false), quorum.spike(true));
    section.judge(
        "LG-7.4",
        Verdict::when(reads > 1.2 && writes > 1.2 && writes < 0.9 * spike),
        format!("spikes {reads:.1} (reads) and {writes:.1} (writes) of steady; inconsistent's writes {spike:.1}"),
        "rule: both above 1.2, that of writes below 0.9 of inconsistent's. Our spikes are what clients asked in \
         their last 50 ms of patience, equally many under each mechanism, so their heights hardly differ",
    );
    let latency = |it: &Outage| it.steady_latency(false);
    section.judge(
        "LG-7.5",
        Verdict::when(latency(quorum) > latency(plain)),
        format!(
            "p50 of reads {:.3} ms against {:.3} ms; ceiling: Figure 11",
            latency(quorum),
            latency(plain)
        ),
        "rule: higher latency; the ceiling is measured with real processes",
    );
    let (read, write) = (log.first_read(), log.first_write());
    section.judge(
        "LG-7.6",
        Verdict::when(until_lease(log, lease)),
        format!("first read at {read:.0} ms, first write at {write:.0} ms"),
        "rule: 1500 ms, up to 60 ms off",
    );
    let (write, peak) = (defer.first_write(), defer.spike(true));
    let burst = defer.answered_at_once();
    section.judge(
        "LG-7.7",
        Verdict::when(Expected(lease).holds(write) && peak > 5.0 && (400..700).contains(&burst)),
        format!("first write at {write:.0} ms; {burst} writes acknowledged within 20 ms, a bucket {peak:.0} times \
                 steady"),
        "rule: 1500 ms up to 60 ms off, a spike of 5 or more, 400 to 700 writes (556 derived)",
    );
    let (slow, fast) = (log.failed(true), defer.failed(true));
    let steady = |it: &Outage| it.steady_from();
    section.judge(
        "LG-7.8",
        if fast < slow { Verdict::Agrees } else { Verdict::Differs },
        format!(
            "writes that failed: {fast} against {slow}; everything asked from {:.0} ms on took at most {FAST} ms, \
             against {:.0} ms",
            steady(defer),
            steady(log)
        ),
        "rule: fewer failed writes. Both answer everything from the end of the lease on",
    );
    let read = guard.read_delay();
    section.judge(
        "LG-7.9",
        Verdict::when(read < 50.0),
        format!(
            "first read {read:.1} ms after the election, {:.0} ms before the first commit",
            guard.first_write() - guard.first_read()
        ),
        "rule: within 50 ms",
    );
    let share = guard.inherited_share();
    section.judge(
        "LG-7.10",
        Verdict::when(share >= 0.99 && guard.limbo.is_some_and(|limbo| limbo < 20)),
        format!("{} entries; {} of the reads were served at once", guard.limbo.unwrap_or(0), percent(share)),
        "rule: fewer than 20 entries, 99% of the reads that began between election and commit served within 50 ms",
    );
    let lost = |it: &Outage| it.failed(false) + it.failed(true);
    section.judge(
        "LG-7.11",
        Verdict::when(lost(guard) < lost(defer) && lost(defer) < lost(log)),
        format!(
            "failed operations: log-based {}, defer commit {}, LeaseGuard {}, inconsistent {}",
            lost(log),
            lost(defer),
            lost(guard),
            lost(plain)
        ),
        "rule: each optimization leaves fewer failures",
    );
    section.judge(
        "LG-A.6",
        Verdict::when(defer.answered_at_once() > 300 && guard.first_read() + 300.0 < defer.first_read()),
        format!(
            "deferred commit: {} writes are acknowledged within 20 ms of the lease's end; inherited lease: reads \
             {:.0} ms earlier",
            defer.answered_at_once(),
            defer.first_read() - guard.first_read()
        ),
        "rule: more than 300 writes at once, reads more than 300 ms earlier",
    );
    section.judge(
        "LG-A.7",
        Verdict::when(lost(guard) < lost(log) && lost(guard) < lost(ongaro)),
        format!(
            "failed operations: LeaseGuard {}, log-based lease {}, Ongaro lease {}",
            lost(guard),
            lost(log),
            lost(ongaro)
        ),
        "rule: fewer than either",
    );
    let before = guard.first_write() - guard.read_delay().max(0.0) - guard.elected.unwrap_or(guard.crash);
    section.judge(
        "LG-A.9",
        Verdict::when(until_lease(log, lease) && before > 300.0),
        format!(
            "log-based lease: nothing before {:.0} ms; LeaseGuard: reads from {:.0} ms, writes accepted from the \
             election and acknowledged from {:.0} ms",
            log.first_read(),
            guard.first_read(),
            guard.first_write()
        ),
        "rule: nothing before 1500 ms (60 ms off) without the optimizations, reads 300 ms before the first \
         acknowledgement with them",
    );
    let good = |it: &&Outage| it.linearizable == Some(true);
    let all = [quorum, ongaro, log, defer, guard].iter().all(good);
    section.judge_by(
        "LG-7.12",
        Verdict::when(all),
        format!(
            "all five histories are linearizable; inconsistent's is {}",
            match plain.linearizable {
                Some(true) => "too, in this run: its leader died and could not answer stale reads",
                _ => "not",
            }
        ),
        "rule: the checker accepts the five. That inconsistent is caught in other runs is LG-S.35",
        "`quorate_check::linearizability` on every run of this figure",
    );
}

fn until_lease(log: &Outage, lease: f64) -> bool {
    Expected(lease).holds(log.first_read()) && Expected(lease).holds(log.first_write())
}

/// For people.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}
