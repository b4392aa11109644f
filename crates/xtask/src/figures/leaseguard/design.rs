//! Claims that no figure measures: mechanisms, rules, guarantees, and what the paper leaves open. What can be counted
//! is counted; the rest is argued in `papers/arguments/leaseguard.md`.

use std::time::Instant;

use quorate_bench::Arrivals;
use quorate_sim::experiment::Act;

use super::super::argued::{self, lines};
use super::super::page::{Section, Verdict};
use super::super::{Bench, Result};
use super::simulated::{self, LEASEGUARD, Load, MS, ORIGIN, PATIENCE, SUBNET};

/// Makes it.
pub fn make(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("design", "Mechanisms, rules and guarantees");
    section.told(
        "Claims about what the protocol is and guarantees. A test or a file shows each; campaigns are `quorate sim \
         --protocol raft`, mutations `cargo test -p quorate-sim -p quorate-explore --features \
         mutations --test mutations`. \"Choice\" answers a question that the paper leaves open.",
    );
    let root = crate::root();
    let count = |folder: &str| lines(&root.join(folder));
    let raft = count("crates/protocols/src/raft")?;
    let guard = lines(&root.join("crates/protocols/src/raft/leaseguard.rs"))?;
    let simulator = count("crates/sim/src")?;
    section.judge_by(
        "LG-I.1",
        Verdict::Differs,
        format!("{simulator} lines, without blank lines, comments and tests"),
        "ours runs the machines of the real nodes, any protocol, under faults, with checkers; the paper's is a \
         Raft of its own",
        "`crates/sim/src`, counted by this command",
    );
    section.judge_by(
        "LG-I.2",
        Verdict::NotJudged,
        format!("LeaseGuard is {guard} lines here, in a Raft of {raft}"),
        "LogCabin is not ours to count",
        "`crates/protocols/src/raft/leaseguard.rs` and its folder, counted by this command",
    );
    section.judged.extend(argued::read("leaseguard")?);
    simulator_claims(bench, &mut section)?;
    section.judged.sort_by_key(|judged| argued::order(&judged.claim));
    Ok(section)
}

/// What the paper says of its simulator, tried with ours.
fn simulator_claims(bench: &Bench, section: &mut Section) -> Result<()> {
    let setup = simulated::setup(
        LEASEGUARD,
        &["election.timeout=500ms", "lease.duration=1s", "proxy.patience=40ms"],
        SUBNET,
        7,
        ORIGIN + 2500 * MS,
    );
    let run = || {
        let mut load = Load::new(0.99, 0.5, 128, 7);
        let mut asks = load.greeting();
        asks.extend(load.between(ORIGIN, ORIGIN + 2000 * MS, Arrivals::Poisson, 3333, PATIENCE));
        simulated::run(&setup, asks, &[(ORIGIN + 500 * MS, Act::CrashLeader)])
    };
    let (first, second) = (run()?, run()?);
    let same =
        first.operations == second.operations && first.facts == second.facts && first.sent == second.sent;
    section.judge(
        "LG-I.7",
        Verdict::when(same),
        format!("two runs: {} operations, {} facts, all equal", first.operations.len(), first.facts.len()),
        "rule: operations, facts and message counts are equal. A test compares whole traces byte by byte",
    );
    let start = Instant::now();
    let linearizable = simulated::is_linearizable(&first);
    let took = start.elapsed().as_secs_f64();
    bench
        .say(&format!("design: a history of {} operations checked in {took:.2} s", first.history.0.len()))?;
    let many = first.history.0.len();
    section.judge(
        "LG-I.11",
        match linearizable && took < 5.0 {
            true => Verdict::Better,
            false => Verdict::Differs,
        },
        format!("{many} operations, Zipf 0.99, half writes, through a crash: {took:.2} s"),
        "rule: better if thousands of operations take less than 5 s",
    );
    section.judge(
        "LG-I.12",
        Verdict::when(linearizable),
        "runs of Figures 4, 5, 7 and 8 are checked, except `inconsistent` where it is to be caught; latencies of \
         all operations are gathered",
        "Figure 6 has no failures, and is not checked",
    );
    Ok(())
}
