//! Claims that no figure measures: mechanisms, rules, guarantees, and what the paper leaves open. Each is an
//! argument, with the file or the test that shows it; what can be counted is counted.

use std::time::Instant;

use quorate_bench::Arrivals;
use quorate_sim::experiment::Act;

use super::super::argued::{self, Row, lines};
use super::super::page::{Section, Verdict};
use super::super::{Bench, Result};
use super::rules::RULES;
use super::simulated::{self, LEASEGUARD, Load, MS, ORIGIN, PATIENCE, SUBNET};

const ROWS: &[Row] = &[
    (
        "LG-I.2",
        Verdict::NotJudged,
        "LeaseGuard is {guard} lines here, in a Raft of {raft}",
        "LogCabin is not ours to count. Lines of `crates/protocols/src/raft/leaseguard.rs` and of its folder",
        "",
    ),
    (
        "LG-I.3",
        Verdict::Agrees,
        "the gate is made once, at election, of two numbers that the log keeps: the latest end of any stamp, and \
         the last entry without one; a commit compares them with the clock",
        "`lease` of the chain is kept as entries come, `remaining` has no loop",
        "`crates/protocols/src/raft/leaseguard.rs` `CommitGate`, `crates/protocols/src/raft/log/prefix_log.rs` `lease`",
    ),
    (
        "LG-I.4",
        Verdict::Agrees,
        "at election the keys that limbo entries write become a set; the first commit of the own term empties it",
        "the set is at the replica, not in the state machine, which is asked for the footprint of each command only",
        "`crates/protocols/src/raft/leaseguard.rs` `Limbo`, `crates/protocols/src/raft/leading.rs` `after_commit`",
    ),
    (
        "LG-I.5",
        Verdict::Agrees,
        "the store knows no log and no elections; the replica asks `Command::footprint` and knows no command",
        "crates depend one way (ARCHITECTURE.md)",
        "`crates/store/src/footprint.rs`, `crates/protocols/src/raft/leaseguard.rs` `affects`",
    ),
    (
        "LG-I.6",
        Verdict::Agrees,
        "simulated figures: error 50 µs; real ones: `--clock bound=50us`, true because all processes read one \
         machine's clock",
        "whether a fleet has such clocks is not shown here; `--clock kernel` and `clock-bound` take the bound from \
         the system",
        "`crates/node/src/clock/daemon.rs`, `crates/sim/src/clock.rs` `steady`",
    ),
    (
        "LG-I.8",
        Verdict::Agrees,
        "open loops in both: asked at stated instants, whatever was answered; latency counts from the intended start",
        "",
        "`crates/bench/src/schedule.rs`, `crates/sim/src/experiment/mod.rs`",
    ),
    (
        "LG-I.9",
        Verdict::Differs,
        "figures: strings with unique values; campaigns: strings, counters, hashes and lists that are appended to",
        "the checker decides histories of registers too, and real processes serve both figures with the same \
         commands",
        "`crates/sim/src/workload.rs`",
    ),
    (
        "LG-I.10",
        Verdict::Differs,
        "start and end only, not the time of execution: it searches for an order that explains all replies, with \
         every unknown write at any later time or never",
        "stronger: nothing is taken on the word of the system under test",
        "`crates/check/src/linearizability/mod.rs` `check`",
    ),
    (
        "LG-I.13",
        Verdict::Agrees,
        "`reads=quorum`: a round of heartbeats that began after the read, answered by a majority; \
         `quorum.rounds=each` has one for each read",
        "",
        "`crates/protocols/src/raft/reads.rs` `on_reader`",
    ),
    (
        "LG-I.14",
        Verdict::Differs,
        "as the paper's, from the start of the last confirmed round, with the shortening for drift, and voters \
         that honour it after a restart too",
        "done safely, as the thesis says: the baseline of the paper leaves both out",
        "`crates/protocols/src/raft/reads.rs` `ongaro_gate`, `crates/sim/tests/mutations/raft.rs` \
         `a_voter_that_forgets_the_lease_in_a_restart`",
    ),
    (
        "LG-I.15",
        Verdict::Agrees,
        "`reads=inconsistent`, refused without `allow_stale_reads=true`",
        "",
        "`crates/protocols/src/raft/reads.rs` `Inconsistent`",
    ),
    (
        "LG-I.16",
        Verdict::Differs,
        "`leaseguard.deferred_commit=false`, `leaseguard.inherited_reads=false`: nothing is read or appended \
         before the lease",
        "requests are held, not failed; the figures give clients a patience instead",
        "`crates/protocols/src/raft/leaseguard.rs` `takes_writes`",
    ),
    (
        "LG-I.17",
        Verdict::Agrees,
        "`leaseguard.inherited_reads=false`",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `inherited_reads`",
    ),
    (
        "LG-I.18",
        Verdict::Agrees,
        "Figures 9 (Q2), 10 (Q1) and 11 (Q4) with real processes, Figure 8 (Q3) simulated",
        "",
        "this page",
    ),
    (
        "LG-1.1",
        Verdict::Agrees,
        "asserted in every simulated run: a follower's commit index is what a message of its leader verified",
        "commits of followers are checked against those that leaders state",
        "`crates/check/src/commitment.rs`, `crates/sim/tests/mutations/raft.rs` \
         `a_commit_beyond_what_was_verified`",
    ),
    (
        "LG-2.1",
        Verdict::Differs,
        "a replica that does not lead names the leader; the proxy repeats a write under its number, so that a \
         deposition in between loses or doubles nothing, and the client hears only the result",
        "exactly once, by sessions",
        "`crates/blocks/src/clients/proxy/mod.rs`, `crates/check/src/exactly_once.rs`",
    ),
    (
        "LG-2.2",
        Verdict::Differs,
        "the same three questions in the same order; a read that may not be served now is held until the next \
         commit of the own term, not refused",
        "a refusal would only come back",
        "`crates/protocols/src/raft/reads.rs` `gate`",
    ),
    (
        "LG-2.3",
        Verdict::Agrees,
        "not the leader, no majority, or the gate is shut: nothing; else the commit index rises and entries are \
         executed in order",
        "as in Raft, the entry that is counted is of the own term",
        "`crates/protocols/src/raft/leading.rs` `advance`, `crates/sim/tests/mutations/raft.rs` \
         `a_commit_gate_that_ignores_one_prior_entry`",
    ),
    (
        "LG-3.1",
        Verdict::Agrees,
        "entries behind the commit index up to the last at election: Figure 8 puts 100 there, and finds 100",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `at_election`, `crates/sim/tests/mutations/raft.rs` \
         `a_limbo_region_without_its_last_entry`",
    ),
    (
        "LG-3.2",
        Verdict::NotJudged,
        "a limbo region without its last entry is caught",
        "only the first half has a negative test (a limbo entry that is not looked at); no mutation applies the \
         region before it is committed",
        "`crates/sim/tests/mutations/raft.rs` `a_limbo_region_without_its_last_entry`",
    ),
    (
        "LG-3.3",
        Verdict::Agrees,
        "Figure 8: every read is served after the first commit (LG-8.3)",
        "",
        "`crates/protocols/src/raft/leading.rs` `after_commit`",
    ),
    (
        "LG-X.1",
        Verdict::Agrees,
        "derived the same way: Figure 8's shares follow the independent draws (LG-8.4); Figure 9 tells how many \
         reads were held",
        "the paper's 37 entries and 70 refusals do not fit each other",
        "Figures 8 and 9",
    ),
    (
        "LG-X.2",
        Verdict::Agrees,
        "choice: uncertainty blocks both sides",
        "`crates/protocols/src/raft/mod.rs`, Decisions",
        "`crates/sim/tests/mutations/raft.rs` `uncertainty_on_one_side_only`",
    ),
    (
        "LG-X.3",
        Verdict::Agrees,
        "choice: at an age of exactly Δ the old leader may read and the new one may not commit",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `Strictly later`",
    ),
    (
        "LG-X.4",
        Verdict::Agrees,
        "choice: nothing to wait for, as commit and execution are one step; all entries are executed in a loop",
        "",
        "`crates/protocols/src/raft/invariants.rs`",
    ),
    ("LG-X.5", Verdict::Agrees, "choice: all six", "", "Figures 7 and 9"),
    (
        "LG-X.7",
        Verdict::Agrees,
        "choice: commits after Δ + ε, reads before Δ − ε",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `by_timer`",
    ),
    ("LG-X.8", Verdict::Agrees, "choice: ms² in Figure 6, µs² in Figure 7", "", "Figures 6 and 7"),
    (
        "LG-X.9",
        Verdict::Agrees,
        "both are printed: LG-9.9 for processes, LG-7.10 for the simulation",
        "",
        "Figures 7 and 9",
    ),
    (
        "LG-X.10",
        Verdict::Differs,
        "not the same here: our elections are random between ET and 2 ET, so Ongaro's next leader comes 1 to 2 s \
         after the crash",
        "see LG-9.6",
        "Figure 9",
    ),
    (
        "LG-X.11",
        Verdict::Agrees,
        "choice: no-ops at Δ/2, looked at every Δ/4; `--durability fsync` in Figures 9 to 11",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `wait_to_extend`",
    ),
];

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
    for (claim, verdict, ours, why, by) in ROWS.iter().chain(RULES) {
        let ours = ours.replace("{guard}", &guard.to_string()).replace("{raft}", &raft.to_string());
        let by = if by.is_empty() { "this page" } else { by };
        section.judge_by(claim, *verdict, ours, *why, by);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_there() {
        argued::check(ROWS.iter().chain(RULES));
    }
}
