//! Claims about what Bodega and its peers are and guarantee. What can be counted is counted; the rest is argued in
//! `papers/arguments/bodega.md`.

use quorate_core::Random;
use quorate_sim::experiment::{Ask, Capacity, Load};

use super::super::argued::{self, lines};
use super::super::page::{Section, Verdict};
use super::super::series;
use super::super::table::Table;
use super::super::{Bench, Result};
use super::candidates::{self, BODEGA, Candidate, LEADER_LEASES, MULTIPAXOS};
use super::world::{self, EVEN, MS, NEAR, READY, WAN};

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("design", "Baselines, implementation, rules and guarantees");
    section.told(
        "A test or a file shows each. Campaigns are `quorate sim --protocol NAME`; mutations, in which a rule \
         is weakened and a checker must notice, `cargo test -p quorate-sim -p quorate-explore --features \
         mutations --test mutations`.",
    );
    section.judged.extend(argued::read("bodega")?);
    count_lines(&mut section)?;
    bench.say("design: holds")?;
    holds(&mut section)?;
    bench.say("design: idle clusters")?;
    idle(bench, &mut section)?;
    section.judged.sort_by_key(|judged| argued::order(&judged.claim));
    Ok(section)
}

fn count_lines(section: &mut Section) -> Result<()> {
    let root = crate::root();
    let of = |path: &str| lines(&root.join(path));
    let protocols =
        ["paxos/engine", "paxos/multipaxos", "paxos/pqr", "paxos/quorum_leases", "paxos/bodega", "epaxos"];
    let own: Vec<_> =
        protocols.iter().map(|name| of(&format!("crates/protocols/src/{name}"))).collect::<Result<_>>()?;
    let blocks = of("crates/blocks/src")?;
    let told: Vec<_> = protocols.iter().zip(&own).map(|(name, lines)| format!("{name} {lines}")).collect();
    section.judge_by(
        "B-I.1",
        Verdict::NotJudged,
        format!("{}; the blocks that they and Raft share: {blocks}", told.join(", ")),
        "Vineyard is not ours to count. Lines without blank lines, comments and tests: a protocol is a policy \
         on one machine here",
        "`crates/protocols/src`, `crates/blocks/src`, counted by this command",
    );
    section.judge_by(
        "B-A.7",
        Verdict::NotJudged,
        format!("{} lines in these protocols and their blocks", blocks + own.iter().sum::<usize>()),
        "as B-I.1",
        "`crates/protocols/src`, `crates/blocks/src`, counted by this command",
    );
    Ok(())
}

/// Early notes halve the time for which a read is held: B-S.14.
fn holds(section: &mut Section) -> Result<()> {
    let with = held(candidates::known(BODEGA))?;
    let without = held(&candidates::WITHOUT_NOTES)?;
    let mean = |holds: &[f64]| series::mean(holds);
    let ratio = mean(&with) / mean(&without);
    section.judge(
        "B-S.14",
        Verdict::when((0.4..=0.6).contains(&ratio)),
        format!(
            "reads that are held wait {:.1} ms on average with notes and {:.1} ms without ({} and {} of them): \
             {ratio:.2} times as long",
            mean(&with),
            mean(&without),
            with.len(),
            without.len()
        ),
        "rule: 0.5 within a fifth; in EVEN (of Table 1), writes of one key at random times, reads of it at one \
         responder each 3 ms",
    );
    let longest = series::quantile(without.iter().copied(), 1.0);
    section.judge(
        "B-S.10",
        Verdict::when(longest <= 1.05 * 100.0),
        format!(
            "the longest wait without notes is {longest:.1} ms; the round trip between leader and \
                 responders is 99 ms"
        ),
        "rule: one round trip and 5%, in EVEN",
    );
    Ok(())
}

/// How long reads at a responder are held, in ms.
fn held(candidate: &Candidate) -> Result<Vec<f64>> {
    let (patience, mut random) = (5_000 * MS, Random::new(14));
    let from = READY + 1_000 * MS;
    let until = from + 40_000 * MS;
    let (leader, site) = (EVEN.leader(), EVEN.responders()[0]);
    let mut asks = vec![Ask { at: READY, proxy: leader, command: world::put("k", 0, 8), patience }];
    let mut at = from;
    while at < until {
        asks.push(Ask { at, proxy: leader, command: world::put("k", at, 8), patience });
        // Apart, so that each is held for one write.
        at += random.range(400 * MS..800 * MS);
    }
    asks.extend((from..until).step_by(3 * MS as usize).map(|at| Ask {
        at,
        proxy: site,
        command: world::get("k"),
        patience,
    }));
    let setup = EVEN.setup(candidate, &EVEN.responders(), Capacity::default(), until + patience)?;
    let measured = world::run(candidate, &setup, Load { asks, clients: None, acts: Vec::new() })?;
    world::check(candidate, &measured)?;
    let reads = measured.operations.iter().filter(|op| !op.writes && op.proxy == site);
    let waits = reads.filter_map(|op| Some(op.latency()? as f64 / MS as f64 - NEAR));
    Ok(waits.filter(|wait| *wait > 0.5).collect())
}

/// What leases cost an idle cluster: B-S.21.
fn idle(bench: &Bench, section: &mut Section) -> Result<()> {
    let seconds = 30;
    let mut table = Table::new(["protocol", "messages_per_s", "by_kind"]);
    let mut rates = Vec::new();
    for name in [MULTIPAXOS, LEADER_LEASES, BODEGA] {
        let candidate = candidates::known(name);
        let sent = |end: u64| {
            let first = Ask {
                at: READY,
                proxy: WAN.leader(),
                command: world::put("first", 0, 8),
                patience: 5_000 * MS,
            };
            let setup = WAN.setup(candidate, &WAN.responders(), Capacity::default(), end)?;
            let load = Load { asks: vec![first], clients: None, acts: Vec::new() };
            Ok::<_, String>(world::run(candidate, &setup, load)?.sent)
        };
        let (before, after) = (sent(READY + 5_000 * MS)?, sent(READY + (5 + seconds) * 1_000 * MS)?);
        let rate =
            |kind: &str| (after[kind] - before.get(kind).copied().unwrap_or(0)) as f64 / seconds as f64;
        let total: f64 = after.keys().map(|kind| rate(kind)).sum();
        let kinds: Vec<_> = after
            .keys()
            .filter(|kind| rate(kind) > 0.0)
            .map(|kind| format!("{kind} {:.1}", rate(kind)))
            .collect();
        table.row([name.to_owned(), format!("{total:.1}"), kinds.join(", ")]);
        rates.push(total);
    }
    bench.csv(section, "idle.csv", &table)?;
    section.tables.push(("Messages between nodes a second, where nobody asks anything.".to_owned(), table));
    section.judge(
        "B-S.21",
        Verdict::when(rates[2] <= 1.05 * rates[0]),
        format!("idle: {:.1} messages a second without leases, {:.1} with leader leases, {:.1} with roster \
                 leases", rates[0], rates[1], rates[2]),
        "rule: as many as without, and 5%. Renewals are messages of their own here, each quarter of a lease, off \
         the critical path. Heartbeats go from the leader to all and back, not from all to all",
    );
    Ok(())
}
