//! A rule for each claim of LeaseGuard's register that numbers judge, in its order; `arguments` has the others. They
//! are committed before the run that they judge.

use super::{
    CHECKING, FIG4, FIG4_READS, FIG5, FIG6, FIG6_BUSY, FIG7, FIG7_ELECTIONS, FIG8, FIG9, FIG10, FIG11_MAX,
    SIMULATOR,
};
use crate::instrument::grid::{Data, digits};
use crate::instrument::rule::{Check, Rule, Values, rule};

const G: &str = "LeaseGuard";
const NO_RATE: &str = "the load is not the paper's: 3750 operations/s on shared cores, against 30,000 on four \
             machines";
const SHARED_CORES: &str = "the load generator and all three nodes share the cores, so what LeaseGuard saves goes to \
             whoever needs a core next; our rounds are pipelined and sent in batches by one loop, where \
             LogCabin's reads wait in threads";

/// One for each claim that numbers judge.
pub fn rules() -> Vec<Rule> {
    [headlines(), implementation(), drawings(), simulated(), processes(), system()].concat()
}

fn headlines() -> Vec<Rule> {
    let read_trips = |mechanism: &str| FIG4_READS.at("mechanism", mechanism).of("read_p50");
    vec![
        rule(
            "LG-A.1",
            read_trips("quorum")
                .about(1.0, 0.3)
                .and(read_trips(G).at_most(0.1))
                .and(messages(G).about(0.0, 0.05)),
        ),
        rule("LG-A.2", writes_at_saturation().at_least(8.0))
            .better(writes_at_saturation().at_least(12.0))
            .why(SHARED_CORES),
        rule(
            "LG-A.3",
            FIG11_MAX
                .at("writes", "1.00")
                .ratio("within_100_ms", G, "quorum")
                .within(0.75, 1.33)
                .and(FIG11_MAX.at("writes", 0.33).ratio("within_100_ms", G, "quorum").at_least(1.2)),
        )
        .why("equal without reads, more with them: then reads contend with writes"),
        rule(
            "LG-A.4",
            of9(G, "inherited_share")
                .at_least(0.99)
                .and(of9("log-based lease", "first_read").at_least(1440.0)),
        )
        .why(NO_RATE),
        rule(
            "LG-A.5",
            FIG10
                .at("mechanism", G)
                .of("read_p50")
                .at_most(0.999)
                .and(FIG10.at("mechanism", "quorum").of("read_p50").at_least(1.0)),
        )
        .why("with 1 to 10 ms between nodes"),
        rule(
            "LG-A.6",
            of7("defer commit", "writes_in_burst")
                .at_least(300.0)
                .and(FIG7.all().difference("first_read", "defer commit", G).at_least(300.0)),
        ),
        rule(
            "LG-A.7",
            FIG7.all()
                .order("failed", &[G, "log-based lease"])
                .and(FIG7.all().order("failed", &[G, "Ongaro lease"])),
        ),
        rule("LG-A.8", messages("quorum").within(3.5, 4.5))
            .why("a question to two followers, and their answers; `quorum.rounds=each` has no shared rounds"),
        rule("LG-A.9", until_lease("log-based lease").and(of7(G, "read_to_write").at_least(300.0))),
    ]
}

fn implementation() -> Vec<Rule> {
    vec![
        rule("LG-I.7", SIMULATOR.all().of("equal").is(1.0))
            .why("operations, facts and message counts of two runs"),
        rule("LG-I.11", CHECKING.all().of("seconds").at_most(5.0)).better(
            CHECKING.all().of("seconds").at_most(5.0).and(CHECKING.all().of("operations").at_least(1000.0)),
        ),
        rule(
            "LG-I.12",
            linearizable()
                .and(SIMULATOR.all().of("linearizable").is(1.0))
                .and(of7(G, "steady_read_p50").exists()),
        )
        .weaker("Figure 6 has no failures, and is not checked"),
        rule(
            "LG-I.17",
            of7("defer commit", "writes_in_burst")
                .at_least(300.0)
                .and(of7("defer commit", "inherited_share").at_most(0.01)),
        ),
    ]
}

fn drawings() -> Vec<Rule> {
    vec![
        rule("LG-3.1", FIG8.all().of("limbo_entries").within(100.0, 105.0))
            .why("a no-op may be among the 100"),
        rule("LG-3.3", FIG8.all().of("permitted_after").at_least(1.0)),
        rule("LG-4.1", both_lead()),
        rule(
            "LG-4.2",
            of4("first_commit")
                .at_least(1485.0)
                .and(of4("writes_acknowledged").is(0.0))
                .and(of4("linearizable").is(1.0)),
        )
        .why("L0's last entry is at most 10 ms older than the cut at 500 ms, and Δ is 1 s"),
    ]
}

fn simulated() -> Vec<Rule> {
    let shorter = |ratio| FIG5.all().difference("write_gap", "1", ratio);
    let longer = |ratio| FIG5.all().difference("write_gap", ratio, "1");
    let three = |number, mechanism: &str| FIG5.at("mechanism", mechanism).difference(number, "3", "1");
    let at = |mechanism: &str| FIG6.at("mechanism", mechanism);
    let guard = || FIG6.all().ratio("write_p90", G, "inconsistent").within(0.95, 1.05);
    let none = || at(G).of("read_p90").at_most(0.1);
    let spike = |number| of7("quorum", number).at_least(1.2);
    vec![
        rule(
            "LG-5.1",
            shorter("0.25")
                .at_most(0.15)
                .and(shorter("0.5").at_most(0.15))
                .and(shorter("0.75").at_most(0.15))
                .and(longer("1.5").at_least(-0.05))
                .and(longer("2").at_least(-0.05))
                .and(longer("3").at_least(-0.05))
                .and(FIG5.all().order("noops", &["1", "0.75", "0.5", "0.25"])),
        )
        .why(
            "no shorter lease is available sooner and every one costs more no-ops; no longer one is \
             available sooner",
        ),
        rule(
            "LG-5.2",
            shorter("0.25")
                .about(0.0, 0.2)
                .and(shorter("0.5").about(0.0, 0.2))
                .and(shorter("0.75").about(0.0, 0.2))
                .and(FIG5.all().ratio("noops", "0.25", "1").at_least(3.0)),
        ),
        rule(
            "LG-5.3",
            three("write_gap", G)
                .at_least(0.5)
                .and(three("read_gap", G).at_most(0.2))
                .and(three("read_gap", "log-based lease").at_least(0.5)),
        ),
        rule("LG-6.1", at("inconsistent").of("read_p90").at_most(0.1))
            .weaker("zero is the processor's part, 0.1 ms at most"),
        rule("LG-6.2", none().and(FIG6.all().difference("read_p90", G, "inconsistent").about(0.0, 0.01)))
            .weaker("zero is the processor's part, 0.1 ms at most"),
        rule(
            "LG-6.3",
            at("quorum")
                .quotient("read_p90", "write_p90")
                .within(0.9, 1.1)
                .and(at("quorum").of("read_p90").rises("delay_ms")),
        ),
        rule(
            "LG-6.4",
            FIG6.at("delay_ms", 10).ratio("write_p90", "quorum", "inconsistent").about(1.06, 0.03),
        )
        .why(
            "with 10 operations a second nothing competes for a processor of 5 µs a message and a \
             gigabit; the paper's model of I/O is not given. Under the load of Q2 see the table above",
        ),
        rule("LG-6.5", guard()),
        rule(
            "LG-6.6",
            at("inconsistent")
                .of("write_p90")
                .per(2.0, "delay_ms")
                .within(0.8, 2.5)
                .and(at("inconsistent").of("write_p90").rises("delay_ms")),
        ),
        rule("LG-6.7", none().and(guard())).weaker("reads take the processor's part, 0.1 ms at most"),
        rule("LG-7.1", FIG7.all().of("answered_in_outage").is(0.0)),
        rule("LG-7.2", of7("inconsistent", "election_to_read").at_most(50.0))
            .why("a proxy asks for a leader every 10 ms"),
        rule(
            "LG-7.3",
            of7("inconsistent", "election_to_write")
                .at_most(100.0)
                .and(of7("inconsistent", "write_spike").at_least(1.2)),
        ),
        rule(
            "LG-7.4",
            spike("read_spike")
                .and(spike("write_spike"))
                .and(FIG7.all().ratio("write_spike", "quorum", "inconsistent").at_most(0.9)),
        )
        .why(
            "our spikes are what clients asked in their last 50 ms of patience, equally many under each \
             mechanism, so their heights hardly differ",
        ),
        rule("LG-7.5", FIG7.all().ratio("steady_read_p50", "quorum", "inconsistent").at_least(1.5))
            .weaker("latency alone; the ceiling is that of real processes, Figure 11"),
        rule("LG-7.6", until_lease("log-based lease")),
        rule(
            "LG-7.7",
            of7("defer commit", "first_write")
                .about(1500.0, 60.0)
                .and(of7("defer commit", "write_spike").at_least(5.0))
                .and(of7("defer commit", "writes_in_burst").about(556.0, 150.0)),
        ),
        rule(
            "LG-7.8",
            FIG7.all()
                .order("steady_from", &["defer commit", "log-based lease"])
                .and(FIG7.all().order("failed_writes", &["defer commit", "log-based lease"])),
        ),
        rule("LG-7.9", of7(G, "election_to_read").at_most(50.0).and(of7(G, "read_to_write").at_least(300.0))),
        rule("LG-7.10", of7(G, "limbo_entries").at_most(19.0).and(of7(G, "inherited_share").at_least(0.99))),
        rule("LG-7.11", FIG7.all().order("failed", &[G, "defer commit", "log-based lease"])),
        rule("LG-7.12", linearizable().and(FIG4.at("mechanism", "inconsistent").of("linearizable").is(0.0))),
        rule(
            "LG-8.1",
            FIG8.at("zipf", 0)
                .of("hottest_key")
                .about(0.001, 0.0001)
                .and(FIG8.at("zipf", 2).of("hottest_key").about(0.61, 0.005)),
        ),
        rule("LG-8.2", FIG8.all().of("permitted_waiting").falls("zipf", 0.01)),
        rule("LG-8.3", FIG8.all().of("permitted_after").at_least(1.0)),
        rule(
            "LG-8.4",
            FIG8.all()
                .of("held_elsewhere")
                .is(0.0)
                .and(FIG8.holds("permitted waiting within 0.05 of derived", as_derived)),
        ),
        rule(
            "LG-8.5",
            FIG8.all().of("limbo_entries").within(100.0, 105.0).and(of7(G, "limbo_entries").at_most(19.0)),
        ),
    ]
}

fn processes() -> Vec<Rule> {
    let most = |writes: &str, under| FIG11_MAX.at("writes", writes).ratio("within_100_ms", G, under);
    let read_first = |mechanism| of9(mechanism, "read_to_write").about(0.0, 100.0);
    let local = |mechanism: &str| {
        let reads = || FIG10.at("mechanism", mechanism).of("read_p90");
        reads().at_most(1.0).and(reads().same(0.2))
    };
    let rises = |mechanism: &str| FIG10.at("mechanism", mechanism).of("write_p90").rises("delay_ms");
    let grows = |number| FIG10.at("mechanism", "quorum").growth(number, "delay_ms", "1", "10");
    let over = |number, under, high| FIG10.all().difference(number, G, under).at_most(high);
    let reads = || {
        most("0.05", "quorum")
            .at_least(1.1)
            .and(most("0.33", "quorum").at_least(1.1))
            .and(most("0.50", "quorum").at_least(1.1))
    };
    vec![
        rule("LG-9.1", of9("inconsistent", "first_read").at_most(1650.0))
            .why("the crash is at 500 ms, an election takes 500 to 1000 ms, and proxies find its winner"),
        rule("LG-9.2", most("0.33", "quorum").about(10.0, 2.0)).why(SHARED_CORES),
        rule(
            "LG-9.3",
            most("0.33", "quorum")
                .at_least(1.5)
                .and(FIG6_BUSY.all().ratio("write_p90", "quorum", "inconsistent").at_most(1.5)),
        )
        .why(SHARED_CORES),
        rule(
            "LG-9.4",
            of9("Ongaro lease", "first_read").within(1350.0, 2700.0).and(read_first("Ongaro lease")),
        )
        .why("our elections take ET to 2 ET, the paper's ET"),
        rule(
            "LG-9.5",
            of9("log-based lease", "first_read")
                .within(1440.0, 1650.0)
                .and(of9("log-based lease", "first_write").within(1440.0, 1650.0)),
        ),
        rule("LG-9.6", as_available()).why(
            "with ET 1 s a leader is elected 1 to 2 s after the crash, while the log-based lease ends 1 \
             s after it whenever its leader was elected",
        ),
        rule("LG-9.7", of9("defer commit", "write_spike").at_least(9.0)).why(NO_RATE),
        rule(
            "LG-9.8",
            of9(G, "reads_low_at_commit").at_most(0.8).and(of9(G, "reads_high_at_commit").at_least(1.2)),
        )
        .why("of LeaseGuard, whose reads go on before the first commit"),
        rule("LG-9.9", of9(G, "inherited_share").at_least(0.993).and(of9(G, "limbo_entries").exists()))
            .why(NO_RATE),
        rule("LG-9.10", of9(G, "limbo_entries").about(37.0, 10.0))
            .why("at an eighth of the paper's rate; and an entry is a batch of what came at once"),
        rule(
            "LG-9.11",
            FIG9.all().difference("write_to_steady", "defer commit", "log-based lease").at_most(20.0),
        )
        .weaker("nothing fails in either: our servers hold writes that they may not append"),
        rule(
            "LG-9.12",
            of9(G, "read_to_write")
                .at_least(150.0)
                .and(of9(G, "inherited_share").at_least(0.993))
                .and(read_first("log-based lease"))
                .and(read_first("defer commit")),
        )
        .why(NO_RATE),
        rule("LG-10.1", local("inconsistent").and(local("Ongaro lease")).and(local(G))),
        rule(
            "LG-10.2",
            FIG10
                .all()
                .ratio("read_p90", "quorum", G)
                .at_least(3.0)
                .and(grows("read_p90").at_least(27.0))
                .and(grows("write_p90").at_least(27.0)),
        )
        .why(
            "9 ms more one way add 18 ms to a round trip; by half as much again is faster than that. Our \
             rounds are pipelined, any number may be under way, so at this rate none waits for \
             another; the loss is the round trip itself",
        ),
        rule("LG-10.3", FIG6.at("mechanism", "quorum").of("read_p90").per(2.0, "delay_ms").at_most(1.5)),
        rule("LG-10.4", rises("inconsistent").and(rises("quorum")).and(rises("Ongaro lease")).and(rises(G))),
        rule(
            "LG-10.5",
            over("read_p90", "inconsistent", 0.5)
                .and(over("read_p90", "Ongaro lease", 0.5))
                .and(over("write_p90", "inconsistent", 2.0))
                .and(over("write_p90", "Ongaro lease", 2.0)),
        )
        .weaker("0.5 ms for reads and 2 ms for writes are what runs on this machine differ by"),
        rule("LG-10.6", FIG10.at("mechanism", G).of("write_p90").less(2.0, "delay_ms").within(-0.1, 6.0))
            .why("more than the round trip: two disks sync in each write, and the simulation has none"),
        rule("LG-11.1", FIG11_MAX.all().ratio("within_100_ms", G, "Ongaro lease").at_least(1.0))
            .why("the offered load rises in steps, and both end at the same one"),
        rule("LG-11.2", FIG11_MAX.all().ratio("within_100_ms", G, "Ongaro lease").at_least(1.0).and(reads()))
            .why(SHARED_CORES),
        rule("LG-11.3", FIG11_MAX.all().ratio("within_100_ms", G, "inconsistent").about(1.0, 0.1))
            .why(SHARED_CORES),
        rule(
            "LG-11.4",
            first_to_saturate("0.05").and(first_to_saturate("0.33")).and(first_to_saturate("0.50")),
        )
        .why(SHARED_CORES),
    ]
}

/// Rules, guarantees and limits of the protocol, and what the paper leaves open.
fn system() -> Vec<Rule> {
    vec![
        rule("LG-S.4", of7(G, "writes_in_burst").at_least(300.0))
            .why("up to 64 MiB and 65,536 entries, then proxies wait"),
        rule("LG-S.11", FIG7.all().difference("elected", G, "inconsistent").about(0.0, 30.0))
            .why("except under Ongaro's lease"),
        rule("LG-S.13", both_lead()),
        rule("LG-S.14", messages(G).about(0.0, 0.05).and(of4("served_by_l1").at_least(50.0))).why(
            "the messages of reads under the own lease; reads under the inherited one are served within \
             5 ms",
        ),
        rule("LG-S.15", of7("defer commit", "writes_in_burst").about(556.0, 150.0)),
        rule("LG-S.20", FIG5.all().of("write_gap").exists())
            .why("Figure 5 varies both; except under Ongaro's lease"),
        rule(
            "LG-S.30",
            of7("defer commit", "write_to_steady")
                .at_most(0.0)
                .and(of7("defer commit", "writes_in_burst").at_least(300.0)),
        )
        .why(
            "what clients write meanwhile is in the log and at the followers; all that is left is to \
             answer",
        ),
        rule(
            "LG-S.35",
            FIG4.at("mechanism", "inconsistent")
                .of("linearizable")
                .is(0.0)
                .and(FIG4.at("mechanism", "quorum").of("linearizable").is(1.0))
                .and(FIG4.at("mechanism", "log-based lease").of("linearizable").is(1.0))
                .and(of4("linearizable").is(1.0)),
        ),
        rule(
            "LG-S.36",
            later_by("elected")
                .median_within(300.0, f64::INFINITY)
                .and(later_by("failed").median_within(1.0, f64::INFINITY)),
        )
        .why("with Δ = 1 s an Ongaro lease needs ET = 1 s"),
        rule("LG-X.6", FIG8.at("zipf", 0).of("gap").at_least(1.0)).why(
            "the two rules differ: meanwhile L1 could neither read under the inherited lease nor commit. \
             We keep both",
        ),
        rule(
            "LG-X.9",
            FIG8.at("zipf", 0)
                .of("permitted_waiting")
                .at_least(0.99)
                .and(FIG8.at("zipf", 0.5).of("permitted_waiting").at_least(0.99)),
        )
        .why(
            "the headline under stress, with 100 entries in the limbo region: whether 99% pass depends on \
             its size (LG-9.9 and LG-7.10 have theirs), and the independent draws of 100 keys leave as \
             many as LG-8.4 derives",
        ),
        rule("LG-X.10", as_available()).why("see LG-9.6"),
    ]
}

fn of4(number: &str) -> Values {
    FIG4.at("mechanism", G).of(number)
}

fn of7(mechanism: &str, number: &str) -> Values {
    FIG7.at("mechanism", mechanism).of(number)
}

fn of9(mechanism: &str, number: &str) -> Values {
    FIG9.at("mechanism", mechanism).of(number)
}

fn messages(mechanism: &str) -> Values {
    FIG4_READS.at("mechanism", mechanism).of("messages")
}

fn writes_at_saturation() -> Values {
    FIG11_MAX.at("writes", 0.33).ratio("writes_at_saturation", G, "quorum")
}

/// Ongaro's lease and the log-based one without optimizations, by when somebody reads again.
fn as_available() -> Check {
    FIG9.all().difference("first_read", "Ongaro lease", "log-based lease").median_within(-150.0, 150.0)
}

/// Both leaders serve reads at the same time, no write is acknowledged, and the history is linearizable.
fn both_lead() -> Check {
    let side = |asked: &str, served: &str| FIG4.at("mechanism", G).quotient(served, asked);
    side("reads_at_l0", "served_by_l0")
        .is(1.0)
        .and(side("reads_at_l1", "served_by_l1").at_least(0.9))
        .and(of4("served_by_l1").at_least(50.0))
        .and(of4("writes_acknowledged").is(0.0))
        .and(of4("linearizable").is(1.0))
}

/// Nothing before the old lease ends, at 1500 ms.
fn until_lease(mechanism: &str) -> Check {
    of7(mechanism, "first_read").about(1500.0, 60.0).and(of7(mechanism, "first_write").about(1500.0, 60.0))
}

fn linearizable() -> Check {
    let of = |mechanism| of7(mechanism, "linearizable").is(1.0);
    of("quorum").and(of("Ongaro lease")).and(of("log-based lease")).and(of("defer commit")).and(of(G))
}

/// How much more it is with Ongaro's lease, election by election.
fn later_by(number: &str) -> Values {
    FIG7_ELECTIONS.all().difference(number, "Ongaro lease", G)
}

fn first_to_saturate(writes: &str) -> Check {
    let at = FIG11_MAX.at("writes", writes);
    let below = |names| at.order("within_100_ms", names);
    below(&["quorum", "Ongaro lease"]).and(below(&["quorum", G])).and(below(&["quorum", "inconsistent"]))
}

fn as_derived(data: &Data) -> Option<(bool, String)> {
    let of = |number| data.line(&FIG8, &[], "zipf", number);
    let apart = of("permitted_waiting")
        .into_iter()
        .zip(of("derived"))
        .map(|((_, ours), (_, derived))| (ours - derived).abs());
    let most = apart.reduce(f64::max)?;
    Some((most <= 0.05, format!("at most {} apart", digits(most))))
}
