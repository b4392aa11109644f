//! A rule for each claim of Bodega's register that numbers judge, in its order; `arguments` has the others. They are
//! committed before the run that they judge.

mod odd;
mod rosters;

use super::{
    BODEGA, EPAXOS, FIG1, FIG8, FIG8_ALL, FIG9, FIG10, FIG11, FIG12, FIG13_CHANGE, FIG14, HEADLINE, HOLDS,
    IDLE, LEADER_LEASES, MULTIPAXOS, NO_NOTES, PASSIVE, PQR, PQR_LEASES, QUORUM_LEASES, SETTINGS, TABLE1,
};
use crate::instrument::rule::{Check, Rule, rule};
use odd::{as_figure_8, both_ends, correlated, knee, pqr_elsewhere, ranked, turned};
use rosters::{as_stale_etcd, as_zookeeper};

/// Those of the paper whose throughput falls with writes.
const FALLING: [&str; 7] = [MULTIPAXOS, LEADER_LEASES, EPAXOS, PQR, QUORUM_LEASES, PASSIVE, BODEGA];
const FEW_MEET: &str = "a write takes the leases of its keys alone, and few of 1000 keys are being \
    written at a time; with one key see the headline's table";

/// One for each claim that numbers judge.
pub fn rules() -> Vec<Rule> {
    [
        headlines(),
        table(),
        by_site(),
        distributions(),
        sweeps(),
        rosters::changes(),
        rosters::rosters(),
        design(),
    ]
    .concat()
}

fn headlines() -> Vec<Rule> {
    let empty = |number| FIG14.at("responders", 0).ratio(number, BODEGA, LEADER_LEASES).within(0.9, 1.1);
    let asked = |name: &str| FIG1.at("protocol", name).of("asked_of_another");
    vec![
        rule(
            "B-A.1",
            HEADLINE.holds(
                "over the clients of local-read sites, as printed, c = 1 ms: at 1% and at 10% writes, \
                 over the earlier protocols, the least is at least 5.6 − 20% and the most at least \
                 13.1 − 20%",
                both_ends,
            ),
        )
        .why(
            "Quorum Leases are much faster here than in the paper: a write takes the leases of its \
             keys alone, and few of 1000 keys are being written at a time. Over all clients, those at \
             SC, who have no responder near, weigh most",
        ),
        rule("B-A.2", FIG8_ALL.all().ratio("write_mean", BODEGA, LEADER_LEASES).within(0.9, 1.25))
            .why("its writes wait for all responders, N instead of m"),
        rule("B-A.3", as_zookeeper().and(as_stale_etcd())).why(rosters::WRITES_TO_ALL),
        rule("B-A.4", rounds()),
        rule("B-A.6", empty("read_mean").and(empty("write_mean")).and(empty("operations"))),
        rule(
            "B-1.1",
            FIG1.at("protocol", MULTIPAXOS)
                .at("writes_percent", 1)
                .of("votes_per_read")
                .at_least(2.0)
                .and(asked(MULTIPAXOS).at_least(0.99)),
        ),
        rule(
            "B-1.2",
            asked(LEADER_LEASES)
                .at_least(0.99)
                .and(FIG1.at("protocol", LEADER_LEASES).of("votes_per_read").at_most(0.05)),
        ),
        rule(
            "B-1.3",
            FIG1.at("protocol", QUORUM_LEASES)
                .at("writes_percent", 1)
                .of("asked_of_another")
                .at_least(0.1)
                .and(asked(QUORUM_LEASES).rises("writes_percent")),
        )
        .why(
            "significant is taken as a tenth. How many depends on how often reads meet writes, which \
             is left open",
        ),
        rule("B-1.4", asked(BODEGA).is(0.0)),
    ]
}

fn table() -> Vec<Rule> {
    let settings = |over, under| SETTINGS.all().quotient(over, under);
    vec![
        rule(
            "B-T1.1",
            settings("c", "l")
                .at_most(0.1)
                .and(settings("l", "m").within(0.5, 2.0))
                .and(settings("m", "N").at_most(0.99)),
        )
        .weaker("M is as large as m with five nodes: EPaxos's fast quorum is three of them"),
        rule("B-T1.2", cells(LEADER_LEASES)),
        rule("B-T1.3", cells(EPAXOS)).why(
            "the formula counts the read's own two rounds. It is answered when it is executed, and so \
             waits for the write that it has met, which has met the read too",
        ),
        rule("B-T1.4", cells(PQR)).why("how often a read rinses depends on when it comes, and where"),
        rule("B-T1.5", cells(PQR_LEASES)),
        rule("B-T1.6", cells(QUORUM_LEASES)).why(
            "a grant that a write has revoked comes back with the message that tells of its execution, \
             from everybody to everybody: shorter than 2N",
        ),
        rule("B-T1.7", cells(PASSIVE)),
        rule("B-T1.8", cells(BODEGA)).why(
            "a held read is released by the commit rule: what counts is the last responder's vote. \
             With all sites as responders that is N/2, not m/2. At m notes reads are not linearizable \
             (B-S.13); at the leader reads wait, too (B-S.7)",
        ),
        rule(
            "B-T1.11",
            TABLE1
                .all()
                .ratio("W", BODEGA, LEADER_LEASES)
                .at_most(1.05)
                .and(TABLE1.all().ratio("R", BODEGA, LEADER_LEASES).at_most(1.05)),
        )
        .why("the claim does not fit the table's own column W: l+N against l+m"),
        rule("B-T1.12", FIG14.at("protocol", BODEGA).of("write_off").at_most(0.1)),
        rule("B-7.4", SETTINGS.at("cluster", "WAN").of("responders_to_leader").about(40.0, 8.0))
            .why("the stand-in was made so"),
        rule("B-7.5", SETTINGS.at("cluster", "WAN").of("all_pairs").about(37.5, 7.5))
            .why("the stand-in was made so"),
    ]
}

fn by_site() -> Vec<Rule> {
    let at = |percent: u32| FIG8.at("writes_percent", percent);
    let near = |name, place: &str| {
        let of = |number| FIG8.at("place", place).ratio(number, name, LEADER_LEASES).within(0.9, 1.1);
        of("read_mean").and(of("operations"))
    };
    let writes = |name| FIG8.all().ratio("write_mean", name, LEADER_LEASES);
    let gap = |name| at(10).at("place", "leader").ratio("operations", name, LEADER_LEASES).within(0.8, 0.995);
    let local = |name: &str, percent: u32| at(percent).at("place", "responder").at("protocol", name);
    let quiet = |name: &str| {
        local(name, 0)
            .of("read_mean")
            .at_most(2.0)
            .and(local(name, 0).quotient("normalized", "l").at_least(0.5))
    };
    let degraded =
        |name| at(10).at("place", "responder").ratio("read_mean", name, LEADER_LEASES).within(0.8, 1.2);
    let jp = |percent: u32, under| at(percent).at("site", "JP").ratio("operations", PQR, under);
    let mean =
        |number, percent: u32, over, under| FIG8_ALL.at("writes_percent", percent).ratio(number, over, under);
    let distant =
        |place: &str| FIG8.at("protocol", LEADER_LEASES).at("place", place).quotient("read_mean", "l");
    vec![
        rule(
            "B-8.1",
            FIG8.holds(
                "of all pairs of the paper's protocols, by throughput at each place (leader, \
                 responder, other) and share of writes, at most 5% are in another order in the other \
                 cluster, by more than 10% in both",
                turned,
            ),
        ),
        rule(
            "B-8.2",
            writes(MULTIPAXOS)
                .within(0.9, 1.25)
                .and(writes(PQR).within(0.9, 1.25))
                .and(writes(PQR_LEASES).within(0.9, 1.25)),
        )
        .weaker("Quorum Leases and Bodega are B-8.3"),
        rule(
            "B-8.3",
            writes(QUORUM_LEASES)
                .within(1.0, 1.25)
                .and(writes(PASSIVE).within(1.0, 1.25))
                .and(writes(BODEGA).within(1.0, 1.25)),
        )
        .why(
            "at each site and share; near the leader a write is m or N alone, and their ratio is the \
             paper's, too",
        ),
        rule("B-8.4", gap(QUORUM_LEASES).and(gap(BODEGA))).why(
            "small is taken as a fifth. There a write takes N where Leader Leases' takes m, and closed \
             loops do little else than write",
        ),
        rule(
            "B-8.5",
            mean("write_mean", 1, EPAXOS, LEADER_LEASES)
                .at_most(0.999)
                .and(mean("write_mean", 10, EPAXOS, LEADER_LEASES).at_most(0.999))
                .and(at(10).ratio("write_p99", EPAXOS, LEADER_LEASES).at_least(0.9)),
        )
        .why("few of 1000 keys are written at a time, so its slow path is rare"),
        rule(
            "B-8.6",
            FIG8.at("protocol", LEADER_LEASES)
                .at("place", "leader")
                .of("read_mean")
                .at_most(2.0)
                .and(FIG8.at("place", "leader").ratio("read_mean", LEADER_LEASES, MULTIPAXOS).at_most(0.1)),
        ),
        rule("B-8.7", distant("responder").within(0.9, 1.1).and(distant("other").within(0.9, 1.1))),
        rule(
            "B-8.8",
            FIG8.holds(
                "throughput of both at most 1.05 times Leader Leases' at each site but JP",
                pqr_elsewhere,
            ),
        ),
        rule(
            "B-8.9",
            jp(0, LEADER_LEASES)
                .at_least(1.0)
                .and(jp(0, QUORUM_LEASES).at_least(1.0))
                .and(jp(0, BODEGA).at_least(1.0))
                .and(jp(1, LEADER_LEASES).at_most(1.05))
                .and(jp(10, LEADER_LEASES).at_most(1.05)),
        )
        .why(
            "a majority near JP is 98 ms away and the leader 146, whatever is written; few reads meet \
             a write to their key among 1000, so the exception stays",
        ),
        rule(
            "B-8.10",
            FIG8_ALL
                .all()
                .ratio("read_mean", EPAXOS, PQR)
                .within(0.9, 1.1)
                .and(mean("read_p99", 1, EPAXOS, PQR).at_least(1.01))
                .and(mean("read_p99", 10, EPAXOS, PQR).at_least(1.01)),
        )
        .why("fewer than one read of a hundred meets a write to its key, so the tail is behind p99"),
        rule(
            "B-8.11",
            near(QUORUM_LEASES, "leader").and(near(PASSIVE, "leader")).and(near(BODEGA, "leader")),
        )
        .why(
            "throughput has the writes of B-8.3 in it. A leader that sends and counts early notes must \
             hold reads of keys with a write under way, as its responders do (B-S.7)",
        ),
        rule("B-8.12", near(QUORUM_LEASES, "other").and(near(PASSIVE, "other")).and(near(BODEGA, "other")))
            .why("throughput has the writes of B-8.3 in it"),
        rule("B-8.13", quiet(QUORUM_LEASES).and(quiet(BODEGA))),
        rule(
            "B-8.14",
            local(BODEGA, 1).of("read_mean").at_most(2.0).and(local(BODEGA, 10).of("read_mean").at_most(2.0)),
        )
        .why(
            "a read that meets a write waits for the vote of the furthest responder (B-S.13), in GEO \
             up to 77 ms",
        ),
        rule("B-8.15", degraded(QUORUM_LEASES).and(degraded(PASSIVE))).why(FEW_MEET),
    ]
}

fn distributions() -> Vec<Rule> {
    let all = |percent: u32| FIG8_ALL.at("cluster", "WAN").at("writes_percent", percent);
    let sites = |percent: u32| FIG8.at("cluster", "WAN").at("writes_percent", percent);
    let same = |name: &str| {
        FIG8_ALL
            .at("cluster", "WAN")
            .at("protocol", name)
            .change("write_mean", "writes_percent", "10", "1")
            .within(0.9, 1.1)
    };
    let higher = |name| all(10).ratio("write_mean", name, LEADER_LEASES).within(1.0, 1.25);
    let tail = |name: &str| {
        FIG8_ALL
            .at("cluster", "WAN")
            .at("protocol", name)
            .change("read_p99", "writes_percent", "10", "0")
            .at_least(2.0)
    };
    let degraded = |name| all(10).ratio("read_at_responders", name, LEADER_LEASES).within(0.8, 1.2);
    let level = |name: &str| FIG10.at("protocol", name).of("level_over_l").about(1.0, 0.1);
    let bodega = || FIG10.at("protocol", BODEGA);
    vec![
        rule(
            "B-9.1",
            same(MULTIPAXOS)
                .and(same(LEADER_LEASES))
                .and(same(EPAXOS))
                .and(same(PQR))
                .and(same(QUORUM_LEASES))
                .and(same(PASSIVE))
                .and(same(BODEGA)),
        ),
        rule("B-9.2", higher(QUORUM_LEASES).and(higher(PASSIVE)).and(higher(BODEGA))).why(
            "slightly is taken as up to a quarter, each site counting alike: N instead of m is 16 ms \
             of 57",
        ),
        rule("B-9.3", all(10).at("protocol", EPAXOS).quotient("write_mean", "read_mean").within(0.9, 1.1)),
        rule("B-9.4", sites(0).of("read_p50_off").at_most(0.1).and(sites(0).of("outliers").at_most(0.05))),
        rule("B-9.5", all(1).ratio("read_mean", QUORUM_LEASES, BODEGA).at_least(1.1)).why(FEW_MEET),
        rule("B-9.6", all(1).ratio("read_mean", PASSIVE, QUORUM_LEASES).within(0.4, 0.6)).why(FEW_MEET),
        rule("B-9.7", FIG8.holds("WAN, 10% writes: of two sites the nearer has the lower median", ranked)),
        rule("B-9.8", sites(10).difference("read_p50", MULTIPAXOS, LEADER_LEASES).about(28.0, 5.6)),
        rule("B-9.9", tail(PQR).and(tail(EPAXOS))).why(
            "fewer than one read of a hundred meets a write to its key. The paper's servers gather \
             commands for 1 ms, and a batch meets what any of its commands meets",
        ),
        rule("B-9.10", degraded(QUORUM_LEASES).and(degraded(PASSIVE))).why(FEW_MEET),
        rule(
            "B-9.11",
            FIG9.at("protocol", BODEGA)
                .at("operations", "reads")
                .at("writes_percent", 10)
                .at("share", 0.78)
                .of("at_most")
                .at_most(15.0)
                .and(
                    sites(10)
                        .at("protocol", BODEGA)
                        .at("site", "SC")
                        .quotient("read_p50", "l")
                        .within(0.9, 1.1),
                ),
        )
        .why("c + m/2 is 15 ms"),
        rule("B-10.1", FIG10.all().of("window").at_least(1.0)),
        rule(
            "B-10.2",
            level(QUORUM_LEASES)
                .and(level(PASSIVE))
                .and(FIG10.at("protocol", QUORUM_LEASES).of("level").about(40.0, 8.0)),
        ),
        rule("B-10.3", FIG10.all().ratio("window", PASSIVE, QUORUM_LEASES).within(0.4, 0.6))
            .why("our active variant is degraded for less than 2N (B-T1.6)"),
        rule(
            "B-10.4",
            bodega().of("window_over_half_m").about(1.0, 0.2).and(bodega().of("window").about(25.0, 5.0)),
        )
        .why(
            "a responder is released when it has heard all responders (and a majority), not the \
             nearest majority; at a majority of notes, as the paper's Figure 17 has it, reads are not \
             linearizable (B-S.13)",
        ),
        rule(
            "B-10.5",
            bodega().of("asked_of_another").is(0.0).and(bodega().of("wait_apart_from_window").at_most(1.0)),
        ),
    ]
}

fn sweeps() -> Vec<Rule> {
    let change = |name: &str| FIG11.at("protocol", name).change("operations", "writes_percent", "50", "1");
    vec![
        rule(
            "B-11.1",
            FIG11.holds(
                "Spearman's correlation of throughput with the share of writes at most -0.9 for each \
                 protocol of the paper but PQR (+ Ldr Ls)",
                correlated,
            ),
        )
        .why("where a read takes as long as a write at all sites (MultiPaxos), there is nothing to lose"),
        rule("B-11.2", change(PQR_LEASES).at_least(0.9)).why(
            "a write takes l+m where a read takes c+m, so closed loops get slower by the sites' l: \
             Table 1's own formulas say so. Normalized to itself, as Figure 16 is, it would be level",
        ),
        rule(
            "B-11.3",
            FIG11
                .holds("at 1% and 10% within 5% of Figure 8's sums, each protocol of the paper", as_figure_8),
        ),
        rule(
            "B-12.1",
            FIG12.holds(
                "up to half of the size at which an interface is full that sends a value for each \
                 operation of the fastest protocol: within 10% of the smallest size's throughput, each \
                 protocol of the paper",
                |data| knee(data, true),
            ),
        ),
        rule(
            "B-12.2",
            FIG12.holds(
                "from the size at which such an interface is full on: less with each step, each \
                 protocol of the paper",
                |data| knee(data, false),
            ),
        )
        .why("those that wait for distances send little, so their interfaces are idle longer"),
    ]
}

/// Every cell of a row of Table 1, at every site of both clusters, within 5% of its formula.
fn cells(protocol: &str) -> Check {
    let of = |cell| TABLE1.at("protocol", protocol).of(cell).at_most(0.05);
    of("W_off").and(of("R_off")).and(of("R*_off")).and(of("D*_off"))
}

/// A regular change where all sites are as far apart.
fn rounds() -> Check {
    FIG13_CHANGE.at("cluster", "EVEN").of("rounds").about(2.0, 0.4)
}

/// Rules of Bodega and of its baselines, and guarantees.
fn design() -> Vec<Rule> {
    vec![
        rule(
            "B-S.6",
            FIG14
                .at("protocol", BODEGA)
                .at("cluster", "WAN")
                .change("write_mean", "responders", "2", "0")
                .within(0.95, 1.1),
        )
        .why("MA and SC, which are no further than the leader's majority"),
        rule(
            "B-S.8",
            FIG8.at("protocol", BODEGA).at("place", "other").quotient("read_mean", "l").within(0.9, 1.1),
        )
        .why("a read that is refused and goes on to the leader takes l"),
        rule("B-S.10", HOLDS.at("protocol", NO_NOTES).of("longest").at_most(104.0))
            .why("the round trip between leader and responders is 99 ms in EVEN"),
        rule(
            "B-S.11",
            HEADLINE
                .at("protocol", BODEGA)
                .at("setup", "1 key, 5 clients")
                .at("c_ms", 1)
                .of("read_local")
                .at_most(63.0),
        )
        .weaker(
            "means, under closed loops that write one key all the time: c and the longest round trip \
             of WAN",
        ),
        rule("B-S.14", HOLDS.all().ratio("mean", BODEGA, NO_NOTES).within(0.4, 0.6)),
        rule("B-S.21", IDLE.all().ratio("messages", BODEGA, MULTIPAXOS).at_most(1.05)).why(
            "renewals are messages of their own here, each quarter of a lease, off the critical path. \
             Heartbeats go from the leader to all and back, not from all to all",
        ),
    ]
}
