//! A rule for each claim of Crossword's register that numbers judge, in its order; `arguments` has the others. They
//! are committed before the run that they judge.

mod odd;

use super::*;
use crate::instrument::rule::{Check, Rule, Values, rule};
use odd::*;

/// One for each claim that numbers judge.
pub fn rules() -> Vec<Rule> {
    let all =
        [headlines, region, static_loads, sensitivity, instance, changes, failures, gossip, macros, costs];
    all.map(|rules| rules()).concat()
}

/// Throughput of Crossword ÷ another's, at the values of Figure 7.
fn fig7(values: &str, over: &'static str) -> Values {
    FIG7.at("values", values).ratio("operations", CROSSWORD, over)
}

/// Why 15 clients gain less than their values shrink by.
const LATENCY: &str = "clients in closed loops wait for round trips whatever their values' bytes are: with \
     MultiPaxos, a Put of 8 B takes more than half of the time of one of 128 KB (Figure 7), and shards can save a part \
     of the rest only";

fn headlines() -> Vec<Rule> {
    let multipaxos = |bar| highest(MULTIPAXOS, bar);
    vec![
        rule(
            "C-A.1",
            FIG7.holds(
                "at every point of Figures 7 and 8: Crossword is at least 0.9 × the best of the others",
                best_everywhere,
            ),
        )
        .why("with one shard each, Crossword waits for the slowest of five, RSPaxos for the fourth"),
        rule(
            "C-A.2",
            FIG7.holds(
                "over all points of Figures 7, 8 and 10: Crossword ÷ MultiPaxos at most ≥ 1.84",
                multipaxos(1.84),
            ),
        )
        .why(LATENCY),
        rule(
            "C-A.3",
            FIG7.holds("the same", multipaxos(1.84))
                .and(FIG7.holds("Crossword ÷ RSPaxos at most ≥ 1.52", highest(RSPAXOS, 1.52))),
        )
        .why(LATENCY),
        rule("C-A.4", aggregate()).why("a stand-in: the replicated payloads without a database"),
        rule("C-A.5", FIG11.all().ratio("first_gap", CROSSWORD, MULTIPAXOS).at_most(2.4))
            .why("an election, and one round trip for what followers lack of chosen values"),
        rule(
            "C-A.6",
            aggregate().and(
                FIG15.holds("Figure 15: its most operations are at least MultiPaxos's", |data| {
                    most(data, CROSSWORD, MULTIPAXOS)
                }),
            ),
        )
        .why("Figure 16 is of a stand-in, Figure 15 of sizes that are ours"),
        rule("C-B.1", LOWER_BOUND.all().of("put").within(0.8 * 43.0, 1.2 * 43.0)),
        rule("C-B.2", FIG14.at("protocol", RSPAXOS).of("leader_per_payload").about(1.0 / 3.0, 0.05 / 3.0)),
    ]
}

fn region() -> Vec<Rule> {
    let sum =
        |voters: u32| FIG4_FRONT.at("voters", voters).of("votes_plus_shards").is(f64::from(voters) + 1.0);
    let corner = |voters: u32| {
        let majority = voters.div_ceil(2);
        FIG4_FRONT.at("voters", voters).at("shards", majority).of("least_votes").is(f64::from(majority))
    };
    let fixed = |voters: u32| FIG4_FIXED.at("voters", voters).of("inside");
    vec![
        rule(
            "C-4.2",
            FIG4.holds(
                "the fewest distinct shards of any q replies less f are q − f + c − 1, or all",
                odd::is_bound,
            ),
        ),
        rule("C-4.3", FIG4.all().of("as_C4").is(1.0)),
        rule("C-4.4", FIG4_FRONT.all().of("votes_plus_shards").less(1.0, "voters").is(1.0)),
        rule("C-4.5", sum(3).and(sum(5)).and(sum(7))),
        rule("C-4.6", corner(3).and(corner(5)).and(corner(7)).and(corner(9))),
        rule("C-4.7", fixed(3).is(1.0).and(fixed(5).is(0.0)).and(fixed(7).is(0.0)).and(fixed(9).is(0.0))),
        rule("C-4.8", FIG4_FIXED.at("voters", 5).of("inside_with_its_f").is(1.0)),
        rule("C-4.9", FIG4_FRONT.all().of("least_votes").falls("shards", 0.0)),
    ]
}

fn static_loads() -> Vec<Rule> {
    let as_one = |one, other| FIG7.all().ratio("operations", one, other).within(0.9, 1.1);
    vec![
        rule("C-7.1", fig7("8 B", MULTIPAXOS).at_least(0.9).and(fig7("8 B", RAFT).at_least(0.9))),
        rule(
            "C-7.2",
            FIG7.holds("8 B: Crossword ÷ RSPaxos, and ÷ CRaft, at least 1.52 in one environment", |data| {
                least_gain(data, "8 B", [RSPAXOS, CRAFT], 1.52)
            }),
        )
        .why("no server stands out in the regional setting: the fourth reply is hardly later than the third"),
        rule("C-7.3", fig7("128 KB", RSPAXOS).at_least(0.9).and(fig7("128 KB", CRAFT).at_least(0.9)))
            .why("with one shard each, Crossword waits for the slowest of five, RSPaxos for the fourth"),
        rule("C-7.4", fig7("128 KB", MULTIPAXOS).at_least(1.6).and(fig7("128 KB", RAFT).at_least(1.6)))
            .why("round trips are the same with all; in the wide area, the fifth vote comes from far away"),
        rule(
            "C-7.5",
            FIG7.holds(
                "mixed: Crossword is above each of the four in both environments, by 1.68 at most or more",
                best_where_mixed,
            ),
        )
        .why("a round trip, and half of the operations, are the same with every protocol"),
        rule("C-7.6", FIG7.all().of("by_clients").within(0.95, 1.05)),
        rule("C-7.7", as_one(RAFT, MULTIPAXOS).and(as_one(CRAFT, RSPAXOS)))
            .why("with three data shards, CRaft waits for all five where RSPaxos waits for four"),
    ]
}

fn sensitivity() -> Vec<Rule> {
    let at = |size: u32| FIG8_SIZES.at("value_bytes", size);
    let above = |of: Values| of.at_least(0.9);
    let gain = |over| FIG8_CLUSTERS.all().ratio("operations", CROSSWORD, over);
    let puts = |over| FIG8_PUTS.all().ratio("operations", CROSSWORD, over);
    vec![
        rule("C-8.1", at(8).ratio("operations", CROSSWORD, MULTIPAXOS).within(0.9, 1.1))
            .why("nothing is large"),
        rule("C-8.2", FIG8_SIZES.holds("Crossword is above both at a size between 1 and 64 KB", is_between))
            .why("what one link needs for a value is small beside its round trip until values are large"),
        rule(
            "C-8.3",
            FIG8_SIZES.holds(
                "RSPaxos first reaches MultiPaxos, or Crossword sends shards, at 2 to 8 KB",
                threshold,
            ),
        )
        .why("15 clients fill a link of 1 Gbit/s with larger values only"),
        rule(
            "C-8.4",
            at(64_000)
                .at("protocol", CROSSWORD)
                .of("one_shard")
                .at_least(0.9)
                .and(at(256_000).at("protocol", CROSSWORD).of("one_shard").at_least(0.9)),
        )
        .why("fewer shards must be sooner by a tenth, by the links' measured times and all bytes under way"),
        rule(
            "C-8.5",
            at(64_000)
                .ratio("operations", CROSSWORD, MULTIPAXOS)
                .at_least(3.2)
                .and(at(256_000).ratio("operations", CROSSWORD, MULTIPAXOS).at_least(3.2)),
        )
        .why("with one of three shards the leader's links carry a third: 3 is the most there can be"),
        rule(
            "C-8.6",
            FIG8_CLUSTERS.holds("Crossword ÷ MultiPaxos at most ≥ 1.84", |data| {
                odd::most_of(data, &FIG8_CLUSTERS, MULTIPAXOS, 1.84)
            }),
        )
        .why("a round trip, and half of the operations, are the same with every protocol"),
        rule(
            "C-8.7",
            FIG8_CLUSTERS.holds("Crossword ÷ RSPaxos at most ≥ 1.12", |data| {
                odd::most_of(data, &FIG8_CLUSTERS, RSPAXOS, 1.12)
            }),
        )
        .why("a round trip, and half of the operations, are the same with every protocol"),
        rule(
            "C-8.8",
            above(gain(MULTIPAXOS))
                .and(above(gain(RSPAXOS)))
                .and(above(puts(MULTIPAXOS)))
                .and(above(puts(RSPAXOS))),
        )
        .why("with one shard each, Crossword waits for all where RSPaxos does not"),
        rule("C-8.9", puts(MULTIPAXOS).rises("puts_percent")).why("Gets are the same with every protocol"),
    ]
}

fn instance() -> Vec<Rule> {
    let log = |number| FIG9.all().ratio(number, CROSSWORD, MULTIPAXOS);
    vec![
        rule("C-9.1", FIG9.at("protocol", CROSSWORD).of("one_shard").at_least(0.9)).why(
            "until followers have answered values are sent whole; then, one shard must be sooner by a tenth",
        ),
        rule("C-9.2", FIG9.all().ratio("accept_and_disk", CROSSWORD, MULTIPAXOS).at_most(0.43))
            .why("the 2 ms to a follower are in both, and no code shortens them"),
        rule(
            "C-9.3",
            FIG9.holds(
                "the quorum's part is longer than MultiPaxos's, by at most a quarter of the instance",
                longer_quorum,
            ),
        )
        .why("the slowest of four replies, not the second"),
        rule(
            "C-9.4",
            TABLE1.holds("encoding 64 KiB takes less than 1% of an instance", |data| {
                share_of_encoding(data, "65536", &FIG9, &[("protocol", CROSSWORD)], "instance")
            }),
        ),
        rule(
            "C-9.5",
            FIG9.all().ratio("log", CROSSWORD, RSPAXOS).within(0.95, 1.05).and(log("log").at_most(0.62)),
        )
        .why("values that the chooser sends whole are logged whole")
        .better(log("log").at_most(0.5)),
        rule("C-9.6", log("log").at_most(0.62))
            .why("values that the chooser sends whole are logged whole")
            .better(log("log").at_most(0.5)),
        rule("C-9.7", log("log_of_follower").about(1.0 / 3.0, 0.05 / 3.0))
            .why("values that the chooser sends whole are logged whole"),
    ]
}

fn changes() -> Vec<Rule> {
    let mine = |number| FIG10.at("protocol", CROSSWORD).of(number);
    vec![
        rule("C-10.3", mine("of_best_fixed").at_least(0.9))
            .why("the chooser asks for a tenth before it takes fewer shards"),
        rule("C-10.4", mine("of_best_other").at_least(0.9))
            .why("with one shard each, Crossword waits for the slowest of five, RSPaxos for the fourth"),
        rule("C-10.5", mine("settled").at_most(3.0)).why("the chooser forgets what is older than 2 s"),
        rule("C-10.6", FIG4_FRONT.at("voters", 5).of("votes_plus_shards").is(6.0))
            .why("how many of the two are needed follows: three voters do not lag"),
    ]
}

fn failures() -> Vec<Rule> {
    let gap = |over, under| FIG11.all().ratio("first_gap", over, under);
    let mine = |number| FIG11.at("protocol", CROSSWORD).of(number);
    let timeout = |name| FIG11.at("protocol", name).of("first_gap").within(1.5, 3.3);
    vec![
        rule("C-11.1", timeout(MULTIPAXOS).and(timeout(RAFT)).and(gap(RAFT, MULTIPAXOS).within(0.8, 1.2)))
            .why("an election is drawn between 1.5 and 3 s of silence"),
        rule("C-11.2", gap(CROSSWORD, MULTIPAXOS).at_most(2.4))
            .why("an election is drawn between 1.5 and 3 s of silence")
            .better(gap(CROSSWORD, MULTIPAXOS).at_most(1.5)),
        rule("C-11.3", mine("shards_between").about(2.0, 0.1))
            .why("instances that are sent whole count as they are"),
        rule("C-11.4", gap(RSPAXOS, CROSSWORD).at_least(1.5))
            .why("a new leader of RSPaxos gathers from all at once"),
        rule("C-11.5", FIG11.at("protocol", RSPAXOS).quotient("between", "before").within(0.9, 1.1))
            .why("a node and its clients have gone"),
        rule("C-11.6", FIG11.at("protocol", RSPAXOS).of("after").is(0.0)),
        rule("C-11.7", gap(CRAFT, RSPAXOS).at_least(1.01))
            .why("a new leader of CRaft gathers from all at once"),
        rule("C-11.8", FIG11.all().ratio("between", CRAFT, RAFT).within(0.9, 1.1))
            .why("clients of both go to other nodes"),
        rule("C-11.9", FIG11.all().ratio("after", CRAFT, RAFT).within(0.9, 1.1))
            .why("clients of both go to other nodes"),
        rule("C-11.10", mine("shards_after").is(3.0))
            .why("three of five are a majority only together, so values are whole"),
        rule("C-11.11", FIG11_LOG.at("protocol", RSPAXOS).of("gap").rises("load_half_s"))
            .why("a new leader gathers what nobody has executed"),
        rule("C-12.1", unbalanced(MULTIPAXOS).and(unbalanced(RAFT)).and(unbalanced(CROSSWORD))).why(
            "answers pass the values that are on their way to the clients' nodes, so fewer bytes there gain nothing",
        ),
        rule(
            "C-12.2",
            FIG12
                .all()
                .ratio("operations", RSPAXOS, MULTIPAXOS)
                .at_least(1.0)
                .and(FIG12.all().ratio("operations", RSPAXOS, UNBALANCED).exists()),
        )
        .why("RSPaxos need not wait for the slowest link"),
        rule("C-12.3", FIG12.all().ratio("operations", CROSSWORD, MULTIPAXOS).within(0.9, 1.1))
            .why("the chooser finds that fewer shards spare the slow links"),
    ]
}

fn unbalanced(over: &'static str) -> Check {
    FIG12.all().ratio("operations", UNBALANCED, over).at_least(1.12)
}

fn gossip() -> Vec<Rule> {
    let behind = |name| FIG13.at("system", name).of("staleness");
    let longer = |long, short| FIG13.all().ratio("staleness", long, short).at_least(1.0);
    let bytes = |number| FIG14.all().ratio(number, CROSSWORD, MULTIPAXOS);
    vec![
        rule("C-13.1", behind(MULTIPAXOS).per(0.02, "writes_per_s").at_most(1.0)),
        rule(
            "C-13.3",
            longer(GAP_400, GAP_40)
                .and(longer(GAP_40, GAP_0))
                .and(behind(GAP_40).rises("writes_per_s"))
                .and(behind(GAP_400).rises("writes_per_s")),
        ),
        rule(
            "C-13.4",
            FIG13
                .all()
                .difference("staleness", GAP_0, MULTIPAXOS)
                .per(0.02, "writes_per_s")
                .at_most(1.0)
                .and(FIG13.all().ratio("reconstructs_per_write", GAP_0, GAP_400).at_least(1.01)),
        )
        .weaker("all Reconstructs are counted, not those alone that were in vain")
        .why("a follower waits for the round of gossip, up to 20 ms, and for its answer, another round trip"),
        rule(
            "C-14.1",
            bytes("leader_per_payload")
                .within(0.30, 0.40)
                .and(FIG14.at("protocol", CROSSWORD).of("followers_per_payload").within(0.60, 0.73)),
        )
        .why("at MultiPaxos's throughput links have room, and the chooser may send whole values"),
        rule("C-14.2", FIG14.at("protocol", CROSSWORD).of("saved_by_batching").at_least(0.10))
            .why(
                "frames and heads are 96 bytes for a shard of 21 KB, less than 1%; what else is saved in the paper it \
                 does not say",
            ),
        rule("C-14.3", bytes("leader_links").within(0.9 / 3.0, 1.1 / 3.0))
            .why("at MultiPaxos's throughput links have room, and the chooser may send whole values"),
    ]
}

fn macros() -> Vec<Rule> {
    let saturates = |name: &'static str| {
        FIG15.holds(
            &format!("{name}: with the last doubling of clients, operations grow by less than 10%"),
            move |data| reaches_a_limit(data, name),
        )
    };
    let more = |one: &'static str, other: &'static str| {
        FIG15.holds(&format!("the most operations of {one} are more than {other}'s"), move |data| {
            most(data, one, other)
        })
    };
    vec![
        rule(
            "C-15.1",
            FIG15.holds(
                "up to 30% of Crossword's most operations: Chain Replication is slowest",
                slowest_below_saturation,
            ),
        )
        .why("a write of a chain takes four hops there"),
        rule(
            "C-15.2",
            FIG15.holds(
                "there, Crossword's mean latency is at most 1.05 × every other's",
                fastest_below_saturation,
            ),
        )
        .why("small values are sent as MultiPaxos does"),
        rule(
            "C-15.3",
            [RAFT, RSPAXOS, CRAFT, CROSSWORD]
                .map(saturates)
                .into_iter()
                .fold(saturates(MULTIPAXOS), Check::and),
        )
        .why("400 clients at most are tried"),
        rule("C-15.4", more(CROSSWORD, MULTIPAXOS))
            .why("gossip and Accepts share links, and Accepts go first"),
        rule("C-15.5", more(RSPAXOS, CROSSWORD).and(more(CRAFT, CROSSWORD)))
            .why("followers that fetch nothing spare the links"),
        rule(
            "C-15.6",
            FIG15.holds(
                "Chain Replication: with the last doubling of clients, operations grow by 10% or more",
                |data| reaches_a_limit(data, CHAIN).map(|(reached, ours)| (!reached, ours)),
            ),
        )
        .why("400 clients at most are tried"),
        rule("C-16.1", FIG16.all().ratio("operations", CROSSWORD, RAFT).within(1.06, 1.58))
            .why("a stand-in: the replicated payloads without a database"),
        rule(
            "C-16.2",
            FIG16.holds(
                "the most that New-Order, Payment or Delivery gain is at least 1.35",
                odd::fastest_writes,
            ),
        )
        .why("a stand-in, as above"),
        rule("C-16.3", FIG16.holds("reads gain less than the most that writes gain", odd::reads_gain_less))
            .why("a stand-in, as above"),
        rule(
            "C-16.4",
            FIG16.holds("operations gain as much as mean latency does, within 10%", follows_latency),
        )
        .why("a stand-in, as above; clients in closed loops make it so"),
        rule("C-16.5", FIG16.all().ratio("operations", FORCED, RAFT).within(0.85, 1.10))
            .why("a stand-in, as above"),
        rule("C-D.1", slow_chain().and(latency_of_chain()))
            .why("a write passes all five nodes of a chain, and a majority's does not wait for the slowest"),
        rule("C-D.3", FIG15.at("protocol", CROSSWORD).of("operations").exists())
            .why("each of the five groups is a Crossword of its own"),
        rule(
            "C-S.14",
            STRAGGLER.at("slow_nodes", "none").ratio("put", CROSSWORD, MULTIPAXOS).within(0.95, 1.05),
        ),
        rule(
            "C-I.6",
            CHOOSER.holds("the number taken most is within 5% of the best at 95% of the points", near_best),
        )
        .why("the chooser compares mean response times: how far the fourth is from the second it does not know")
        .weaker("latencies within 5% count as equal"),
    ]
}

/// One client's Puts take longer than MultiPaxos's.
fn latency_of_chain() -> Check {
    STRAGGLER.at("slow_nodes", "none").ratio("put", CHAIN, MULTIPAXOS).at_least(1.5)
}

/// A slow node slows every write of its chain, and none of a majority's.
fn slow_chain() -> Check {
    let slower = |name| STRAGGLER.at("protocol", name).change("put", "slow_nodes", "one", "none");
    slower(CHAIN).at_least(1.5).and(slower(MULTIPAXOS).at_most(1.1))
}

/// Figure 16's headline.
fn aggregate() -> Check {
    FIG16.all().ratio("operations", CROSSWORD, RAFT).at_least(1.06)
}

/// What is compared in Table 1.
const ONE_CORE: &str = "one core of ours with vector instructions; how many of its 32 the paper's code uses it does \
     not say";

fn costs() -> Vec<Rule> {
    vec![
        rule("C-T1.1", TABLE1.all().of("of_paper").at_most(1.0)).why(ONE_CORE),
        rule("C-T1.3", TABLE1.holds("at the paper's sizes, 0.4 ± 20% of the payload", odd::memory))
            .why("two parity shards of a third each are new; data shards are slices of the value"),
        rule("C-T1.4", TABLE1.at("value_bytes", 1_048_576).of("time").at_most(1000.0)).why(ONE_CORE),
        rule(
            "C-T1.5",
            TABLE1.holds(
                "less than 1% of Figure 7's mean Put at 8 B and at 128 KB, in both environments",
                odd::of_puts,
            ),
        )
        .why("the code is not computed in virtual time: its real time is set beside a virtual latency"),
        rule("C-T1.6", TABLE1.all().of("of_paper").at_most(1.25)).why(ONE_CORE),
    ]
}
