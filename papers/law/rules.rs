//! A rule for each claim of the register that numbers judge, in its order; `arguments` has the others. They are
//! committed before the run that they judge.

use super::{CRAQ_ALR, FIG3, FIG5, FIG6, FIG7, FIG8, FIG9, FIG10, RAFT, RAFT_ALR, ZAB, ZAB_ALR};
use crate::instrument::grid::{Data, Figure, digits};
use crate::instrument::rule::{Check, Rule, Values, rule};

/// One for each claim that numbers judge.
pub fn rules() -> Vec<Rule> {
    [headlines(), costs(), raft(), zab()].concat()
}

/// Throughput with almost-local reads ÷ without.
fn gain_of_raft() -> Values {
    FIG5.all().ratio("operations", RAFT_ALR, RAFT)
}

fn of_raft_at(writes: u32) -> Values {
    FIG5.at("writes_percent", writes).ratio("operations", RAFT_ALR, RAFT)
}

fn of_zab_at(writes: u32) -> Values {
    FIG8.at("writes_percent", writes).ratio("operations", ZAB_ALR, ZAB)
}

/// Where a replica's time goes here, and not in the paper.
const AT_THE_LEADER: &str = "the leader's processor is the bottleneck here: proposals to four followers leave its own \
     clients a fraction of the reads that others answer; reads that wait for it advance at its pace at every node, and \
     stale ones do not; with fewer syncs under way it is the same";

fn headlines() -> Vec<Rule> {
    let per_read = |name| FIG3.at("protocol", name).at("reads", 128).at("write", "none").of("messages");
    vec![
        rule("LAW-A.1", of_zab_at(5).at_least(0.98)).why(AT_THE_LEADER),
        rule("LAW-A.3", of_raft_at(2).within(2.34, 2.86))
            .better(of_raft_at(2).at_least(2.86))
            .why("how much less a read costs where it is asked than at the leader decides it"),
        rule("LAW-A.4", FIG9.at("clients", 1).difference("mean", ZAB_ALR, ZAB).within(0.0, 40.0))
            .why("a sync is a round trip to the leader and one of its own to a majority, of 10 µs each"),
        rule("LAW-A.5", per_read(RAFT_ALR).at_most(12.8).and(per_read(ZAB_ALR).at_most(12.8)))
            .weaker("a tenth of a message for each of 128 reads, for \"close\"")
            .why("one sync for a batch of 128"),
        rule("LAW-A.7", alike(RAFT_ALR).and(alike(ZAB_ALR)).and(free(RAFT_ALR)).and(free(ZAB_ALR)))
            .why("a question has no reads in it"),
        rule("LAW-A.9", gain_of_raft().at_least(1.0))
            .weaker("throughput alone: what a read waits for is in Figure 6"),
        rule(
            "LAW-M.9",
            FIG3.at("protocol", RAFT).at("write", "none").of("bytes").rises("reads").and(alike(RAFT_ALR)),
        )
        .why("each read, and its reply, is in a message to the leader"),
        rule(
            "LAW-M.11",
            gain_of_raft()
                .at_least(1.0)
                .and(FIG8.all().ratio("operations", ZAB_ALR, ZAB).at_least(0.9))
                .and(FIG10.all().ratio("operations", ZAB_ALR, ZAB).at_least(0.9)),
        )
        .weaker("Hermes is not measured; \"negligible\" is a tenth")
        .why(AT_THE_LEADER),
        rule(
            "LAW-M.12",
            of_raft_at(2).at_least(1.5).and(FIG8.all().ratio("operations", ZAB_ALR, ZAB).within(0.9, 1.02)),
        )
        .weaker("Hermes is not measured; \"similar\" is a tenth")
        .why(AT_THE_LEADER),
    ]
}

/// A sync costs other replicas the same, however many reads wait for it.
fn alike(name: &'static str) -> Check {
    let all = FIG3.at("protocol", name).at("write", "none");
    all.of("messages").same(0.0).and(all.of("taken").same(0.0))
}

/// Reads before a write of their own cost other replicas nothing.
fn free(name: &'static str) -> Check {
    FIG3.at("protocol", name).at("write", "timely").of("messages").is(0.0)
}

fn costs() -> Vec<Rule> {
    let nothing = |name| FIG3.at("protocol", name).at("write", "none").of("messages").is(0.0);
    vec![
        rule("LAW-3.1", nothing(ZAB)),
        rule("LAW-3.3", FIG3.at("protocol", RAFT).of("taken").rises("reads"))
            .why("each read is in a message to the leader"),
        rule(
            "LAW-3.4",
            alike(RAFT_ALR).and(alike(ZAB_ALR)).and(alike(CRAQ_ALR)).and(free(RAFT_ALR)).and(free(ZAB_ALR)),
        )
        .weaker("timely writes are of lazy reads alone: ours of CRAQ-ALR do not use them")
        .why("a question has no reads in it, and a write of the same session shows what the reads may miss"),
    ]
}

/// Throughput at one number of nodes ÷ that at another.
fn scaled(
    figure: &'static Figure,
    (name, writes): (&'static str, u32),
    over: &'static str,
    under: &'static str,
) -> Values {
    figure.at("protocol", name).at("writes_percent", writes).change("operations", "nodes", over, under)
}

/// The points of a protocol by load: throughput, and two latencies.
fn by_load(data: &Data, figure: &'static Figure, name: &str) -> Vec<(f64, f64)> {
    let of = |number| data.line(figure, &[("protocol", name)], "clients", number).into_iter();
    of("operations").zip(of("p99")).map(|((_, rate), (_, p99))| (rate, p99)).collect()
}

/// At the most that Raft reaches, or the first point of Raft-ALR beyond it, the tail of Raft-ALR is shorter.
fn shorter_tail_at_most_load(data: &Data) -> Option<(bool, String)> {
    let most = |all: Vec<(f64, f64)>| all.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, tail) = most(by_load(data, &FIG6, RAFT))?;
    let beyond = by_load(data, &FIG6, RAFT_ALR).into_iter().filter(|(other, _)| *other >= rate);
    let (_, other) = beyond.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((other < tail, format!("{} µs against Raft's {} µs", digits(other), digits(tail))))
}

/// The most operations with a tail no longer than Raft's at its most, ÷ Raft's most.
fn at_the_same_tail(data: &Data) -> Option<(bool, String)> {
    let (rate, tail) = by_load(data, &FIG6, RAFT).into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let within = by_load(data, &FIG6, RAFT_ALR).into_iter().filter(|(_, other)| *other <= tail);
    let most = within.map(|(rate, _)| rate).max_by(f64::total_cmp)?;
    Some((
        most / rate > 2.0,
        format!("{} of Raft's operations within {} µs", digits(most / rate), digits(tail)),
    ))
}

fn raft() -> Vec<Rule> {
    let raft_at = |writes, over, under| scaled(&FIG7, (RAFT, writes), over, under);
    let alr_at = |writes, over, under| scaled(&FIG7, (RAFT_ALR, writes), over, under);
    vec![
        rule("LAW-5.1", of_raft_at(2).within(2.34, 2.86))
            .better(of_raft_at(2).at_least(2.86))
            .why("how much less a read costs where it is asked than at the leader decides it"),
        rule("LAW-5.2", of_raft_at(5).within(1.62, 1.98))
            .better(of_raft_at(5).at_least(1.98))
            .why("how much less a read costs where it is asked than at the leader decides it"),
        rule("LAW-5.3", gain_of_raft().at_least(1.0).and(gain_of_raft().falls("writes_percent", 0.05)))
            .why("what reads cost the leader is saved, and its share falls with writes"),
        rule("LAW-5.4", of_raft_at(50).at_most(1.5))
            .weaker("a gain of half at most stands for \"declines\"")
            .why("writes go through the leader with both"),
        rule(
            "LAW-5.5",
            FIG3.at("protocol", RAFT).at("write", "none").of("taken").rises("reads").and(alike(RAFT_ALR)),
        ),
        rule("LAW-6.2", FIG6.at("clients", 16).difference("mean", RAFT_ALR, RAFT).within(-10.0, 40.0))
            .weaker("\"very close\" is four round trips of 10 µs, at 16 clients at each node")
            .why("a sync is a round trip to the leader and one of its own to a majority"),
        rule(
            "LAW-6.4",
            FIG6.holds(
                "at Raft's most load, Raft-ALR's 99th percentile is below Raft's",
                shorter_tail_at_most_load,
            ),
        )
        .why("a leader that is busy answers late"),
        rule(
            "LAW-6.5",
            FIG6.holds(
                "with a 99th percentile up to Raft's at its most, Raft-ALR has more than 2 × its operations",
                at_the_same_tail,
            ),
        )
        .why("a leader that is busy answers late"),
        rule("LAW-6.6", alr_at(2, "5", "3").at_least(1.2)),
        rule("LAW-7.1", raft_at(2, "5", "3").at_most(1.1).and(raft_at(2, "7", "3").at_most(1.1)))
            .why("the leader answers all reads"),
        rule("LAW-7.2", raft_at(10, "5", "3").at_most(0.99).and(raft_at(10, "7", "5").at_most(0.99)))
            .why("the leader sends each write to all"),
        rule("LAW-7.3", alr_at(2, "5", "3").at_least(1.01).and(alr_at(2, "7", "5").at_least(1.01)))
            .why("each node answers its own reads"),
        rule("LAW-7.4", alr_at(10, "5", "3").within(1.0, 1.2).and(alr_at(10, "7", "3").within(0.9, 1.1)))
            .why("more nodes answer more reads and make each write dearer"),
    ]
}

fn zab() -> Vec<Rule> {
    let zab_at = |writes, over, under| scaled(&FIG10, (ZAB, writes), over, under);
    let alr_at = |writes, over, under| scaled(&FIG10, (ZAB_ALR, writes), over, under);
    let closing = FIG8.all().ratio("operations", ZAB, ZAB_ALR).falls("writes_percent", 0.02);
    let per_write = |writes: u32, wanted: f64| {
        FIG8.at("protocol", ZAB_ALR)
            .at("writes_percent", writes)
            .of("reads_per_write")
            .about(wanted, wanted / 10.0)
    };
    vec![
        rule("LAW-8.1", of_zab_at(1).at_least(0.96)).why(AT_THE_LEADER),
        rule("LAW-8.2", of_zab_at(5).at_least(0.98)).why(AT_THE_LEADER),
        rule("LAW-8.3", closing).why(AT_THE_LEADER),
        rule("LAW-8.4", per_write(10, 9.0).and(per_write(25, 3.0)))
            .weaker("reads for each write that ended; which of them waited for that write is not counted"),
        rule("LAW-8.5", of_zab_at(50).within(0.98, 1.02)).why(AT_THE_LEADER),
        rule(
            "LAW-9.1",
            FIG9.all()
                .difference("mean", ZAB_ALR, ZAB)
                .at_least(0.0)
                .and(FIG9.all().difference("p99", ZAB_ALR, ZAB).at_least(0.0)),
        )
        .why("at the same number of clients, not the same load"),
        rule("LAW-9.3", FIG9.at("protocol", ZAB_ALR).quotient("p99", "mean").at_most(3.0))
            .weaker("\"tight\" is a 99th percentile of three times the mean")
            .why("writes are slower than reads, and 2% of all"),
        rule("LAW-10.1", up(zab_at).and(up(alr_at))).why("each node answers its own reads"),
        rule("LAW-10.2", level(zab_at).and(level(alr_at)))
            .why("more nodes answer more reads and make each write dearer"),
        rule("LAW-10.3", FIG10.all().ratio("operations", ZAB_ALR, ZAB).within(0.9, 1.05))
            .weaker("at every number of nodes, in place of equal growth")
            .why(AT_THE_LEADER),
    ]
}

/// At 2% writes more nodes do more.
fn up(at: impl Fn(u32, &'static str, &'static str) -> Values) -> Check {
    at(2, "5", "3").at_least(1.01).and(at(2, "7", "5").at_least(1.01))
}

/// At 10%, five do a little more than three, and seven a little less than five.
fn level(at: impl Fn(u32, &'static str, &'static str) -> Values) -> Check {
    at(10, "5", "3").within(1.0, 1.15).and(at(10, "7", "5").within(0.85, 1.0))
}
