//! A rule for each claim of the register that numbers judge, in its order; `arguments` has the others. They are
//! committed before the run that they judge.

use super::{
    CRAQ_ALR, FIG3, FIG5, FIG6, FIG7, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13, FIG15, FIG16, HERMES,
    HERMES_ALR, RAFT, RAFT_ALR, ZAB, ZAB_ALR,
};
use crate::instrument::grid::{Data, Figure, digits};
use crate::instrument::rule::{Check, Rule, Values, rule};

/// One for each claim that numbers judge.
pub fn rules() -> Vec<Rule> {
    [headlines(), costs(), raft(), zab(), hermes(), sensitivity()].concat()
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

fn of_hermes(figure: &'static Figure) -> Values {
    figure.all().ratio("operations", HERMES_ALR, HERMES)
}

fn of_hermes_at(writes: u32) -> Values {
    FIG11.at("writes_percent", writes).ratio("operations", HERMES_ALR, HERMES)
}

/// What an almost-local read waits for here.
const BEHIND_REQUESTS: &str = "a question, its answer, the proposal and its acknowledgement each wait until a node has \
     ended its turn: the fewer requests of clients a turn takes, the less (*ZAB and ZAB-ALR, by what a node takes \
     first*)";

/// Why more nodes bring more here.
const MORE_NODES: &str = "more nodes answer more reads, and each makes a write dearer by little: a proposal is encoded \
     once, and sent over a network that bypasses the kernel";

fn headlines() -> Vec<Rule> {
    let per_read = |name| FIG3.at("protocol", name).at("reads", 128).at("write", "none").of("messages");
    vec![
        rule("LAW-A.1", of_zab_at(5).at_least(0.98)).why(BEHIND_REQUESTS),
        rule("LAW-A.2", of_hermes_at(5).at_least(0.95)).why(ASKS),
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
                .and(FIG10.all().ratio("operations", ZAB_ALR, ZAB).at_least(0.9))
                .and(of_hermes(&FIG11).at_least(0.9))
                .and(of_hermes(&FIG13).at_least(0.9)),
        )
        .weaker("\"negligible\" is a tenth")
        .why(BEHIND_REQUESTS),
        rule(
            "LAW-M.12",
            of_raft_at(2)
                .at_least(1.5)
                .and(FIG8.all().ratio("operations", ZAB_ALR, ZAB).within(0.9, 1.02))
                .and(of_hermes(&FIG11).within(0.9, 1.02)),
        )
        .weaker("\"similar\" is a tenth")
        .why(BEHIND_REQUESTS),
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
            .why(MORE_NODES),
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
        rule("LAW-8.1", of_zab_at(1).at_least(0.96)).why(BEHIND_REQUESTS),
        rule("LAW-8.2", of_zab_at(5).at_least(0.98)).why(BEHIND_REQUESTS),
        rule("LAW-8.3", closing).why(BEHIND_REQUESTS),
        rule("LAW-8.4", per_write(10, 9.0).and(per_write(25, 3.0)))
            .weaker("reads for each write that ended; which of them waited for that write is not counted"),
        rule("LAW-8.5", of_zab_at(50).within(0.98, 1.02)).why(BEHIND_REQUESTS),
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
        rule("LAW-10.2", level(zab_at).and(level(alr_at))).why(MORE_NODES),
        rule("LAW-10.3", FIG10.all().ratio("operations", ZAB_ALR, ZAB).within(0.9, 1.05))
            .weaker("at every number of nodes, in place of equal growth")
            .why(BEHIND_REQUESTS),
    ]
}

/// Where a replica's time goes with almost-local reads of Hermes.
const ASKS: &str = "a batch of eager reads asks a majority, and each of its members answers";

fn hermes() -> Vec<Rule> {
    let grows = |name, over, under| {
        let at = move |writes| scaled(&FIG13, (name, writes), over, under).at_least(1.01);
        at(2).and(at(10))
    };
    let more = |number| FIG12.all().difference(number, HERMES_ALR, HERMES).at_least(0.0);
    vec![
        rule("LAW-11.1", of_hermes_at(1).at_least(0.89)).why(ASKS),
        rule("LAW-11.2", of_hermes_at(5).at_least(0.95)).why(ASKS),
        rule("LAW-11.3", FIG11.all().ratio("operations", HERMES, HERMES_ALR).falls("writes_percent", 0.02))
            .why("there are fewer reads to ask for"),
        rule("LAW-11.4", of_hermes_at(50).within(0.98, 1.02)).why(ASKS),
        rule(
            "LAW-12.1",
            FIG12.holds("at each number of clients, its mean and tail are the lowest of all", lowest_latency),
        )
        .weaker("at the same number of clients, and without the 25 µs, which are of other machines")
        .why(
            "every node takes part in each write of Hermes, by three messages; where clients keep processors busy, a \
             read waits behind those",
        ),
        rule("LAW-12.4", more("mean").and(more("p99")))
            .weaker("at the same number of clients, not the same load")
            .why("the tail is of writes, and clients that wait longer for reads have fewer of them under way"),
        rule(
            "LAW-13.1",
            grows(HERMES, "5", "3")
                .and(grows(HERMES, "7", "5"))
                .and(grows(HERMES_ALR, "5", "3"))
                .and(grows(HERMES_ALR, "7", "5")),
        )
        .why("each node answers its own reads; each write costs all of them"),
        rule(
            "LAW-13.2",
            FIG13.holds("from three nodes to seven, both gain more with 2% writes than with 10%", gains_more),
        )
        .why("each node answers its own reads; each write costs all of them"),
        rule("LAW-13.3", of_hermes(&FIG13).within(0.9, 1.05))
            .weaker("at every number of nodes, in place of equal growth")
            .why(ASKS),
    ]
}

/// At each number of clients, whether Hermes's latencies are below those of Raft and ZAB, with almost-local reads too.
fn lowest_latency(data: &Data) -> Option<(bool, String)> {
    let of = |figure: &'static Figure, name: &str, number| {
        data.line(figure, &[("protocol", name)], "clients", number)
    };
    let others = [(&FIG6, RAFT), (&FIG6, RAFT_ALR), (&FIG9, ZAB), (&FIG9, ZAB_ALR)];
    let mut worse = Vec::new();
    for number in ["mean", "p99"] {
        let ours = of(&FIG12, HERMES, number);
        for (figure, name) in others {
            let pairs = ours.iter().zip(of(figure, name, number));
            worse.extend(pairs.filter(|(own, other)| own.1 >= other.1).map(|(own, _)| (name, number, own.0)));
        }
    }
    let first = worse.first().map(|(name, number, at)| format!("{name}'s {number} is lower at {at} clients"));
    Some((worse.is_empty(), first.unwrap_or_else(|| "lower than all others'".to_owned())))
}

fn gains_more(data: &Data) -> Option<(bool, String)> {
    let gain = |name: &str, writes: &str| {
        let line =
            data.line(&FIG13, &[("protocol", name), ("writes_percent", writes)], "nodes", "operations");
        let of = |nodes: f64| line.iter().find(|(at, _)| *at == nodes).map(|(_, rate)| *rate);
        Some(of(7.0)? / of(3.0)?)
    };
    let of = |name| Some((gain(name, "2")?, gain(name, "10")?));
    let (plain, alr) = (of(HERMES)?, of(HERMES_ALR)?);
    let shown = |(few, many): (f64, f64)| format!("{} against {}", digits(few), digits(many));
    Some((plain.0 > plain.1 && alr.0 > alr.1, format!("Hermes {}, Hermes-ALR {}", shown(plain), shown(alr))))
}

/// Figures 15 and 16.
fn sensitivity() -> Vec<Rule> {
    let closing =
        |figure: &'static Figure, dim| figure.all().ratio("operations", HERMES, HERMES_ALR).falls(dim, 0.02);
    let at = |figure: &'static Figure, writes: u32| {
        figure.at("writes_percent", writes).ratio("operations", HERMES_ALR, HERMES)
    };
    vec![
        rule("LAW-15.1", FIG15.at("value_bytes", 32).ratio("operations", HERMES_ALR, HERMES).at_least(0.89))
            .weaker("\"small\" is the 11% of Figure 11, at 1 to 20% writes")
            .why(ASKS),
        rule("LAW-15.2", closing(&FIG15, "value_bytes")).why(
            "at 1 to 10% writes it falls; with 1 KB at 20% it is 6%, which nothing measured here explains",
        ),
        rule(
            "LAW-16.1",
            of_hermes(&FIG16)
                .at_least(0.89)
                .and(closing(&FIG16, "writes_percent"))
                .and(at(&FIG16, 20).at_least(0.98))
                .and(at(&FIG16, 25).at_least(0.98))
                .and(at(&FIG16, 50).at_least(0.98)),
        )
        .weaker("\"small\" is the 11% of Figure 11, \"closing\" 2%")
        .why(ASKS),
        rule(
            "LAW-16.2",
            FIG16.holds("at each share of writes, the overhead differs by a twentieth at most", as_uniform),
        )
        .weaker("\"not significantly\" is a twentieth")
        .why("a sync costs the same, whatever is read"),
        rule("LAW-16.3", FIG16.all().change("operations", "access", "skewed", "uniform").at_least(1.0))
            .why("requests for a key are not coalesced here, and reads of a popular key wait for its writes"),
        rule("LAW-16.4", at(&FIG15, 10).at_least(0.95).and(at(&FIG16, 10).at_least(0.95)))
            .weaker("by length and access, not by the number of keys; \"closing\" is a twentieth")
            .why(ASKS),
    ]
}

/// What almost-local reads cost where some keys are popular, less what they cost where none is.
fn as_uniform(data: &Data) -> Option<(bool, String)> {
    let lost = |access: &str| {
        let of = |name: &str| {
            data.line(&FIG16, &[("protocol", name), ("access", access)], "writes_percent", "operations")
        };
        of(HERMES_ALR).into_iter().zip(of(HERMES)).map(|(alr, plain)| alr.1 / plain.1).collect::<Vec<_>>()
    };
    let differences = lost("skewed").into_iter().zip(lost("uniform")).map(|(one, other)| (one - other).abs());
    let most = differences.max_by(f64::total_cmp)?;
    Some((most <= 0.05, format!("up to {}", digits(most))))
}

/// At 2% writes more nodes do more.
fn up(at: impl Fn(u32, &'static str, &'static str) -> Values) -> Check {
    at(2, "5", "3").at_least(1.01).and(at(2, "7", "5").at_least(1.01))
}

/// At 10%, five do a little more than three, and seven a little less than five.
fn level(at: impl Fn(u32, &'static str, &'static str) -> Values) -> Check {
    at(10, "5", "3").within(1.0, 1.15).and(at(10, "7", "5").within(0.85, 1.0))
}
