//! Rules of Figures 13 to 16: roster changes, rosters, and YCSB.

use super::odd::{climbs, mixed, sustained};
use super::rounds;
use crate::bodega::{
    BODEGA, EPAXOS, ETCD, ETCD_STALE, FIG13, FIG14, FIG15, FIG16, LAB, LEADER_LEASES, PQR_LEASES,
    QUORUM_LEASES, ZOOKEEPER, ZOOKEEPER_SYNC,
};
use crate::instrument::rule::{Check, Rule, Select, Values, rule};

/// Of the comparisons with etcd and ZooKeeper.
pub const WRITES_TO_ALL: &str = "\
    reads are as local, and quicker, but a write waits for the votes of all responders here, and of a majority there: \
    74 ms on average against 59 to 60. Each client does one thing after another, so where there are writes they decide";

/// The claims of Figure 13: what a change of the roster costs.
pub fn changes() -> Vec<Rule> {
    let failure = || FIG13.at("scenario", "failure");
    let regular = || FIG13.at("scenario", "no failure");
    let elsewhere = || failure().of("slowest_read_elsewhere").at_most(2.0);
    vec![
        rule("B-13.1", failure().of("early_writes").is(0.0)),
        rule("B-13.2", failure().of("slow_reads").is(0.0).and(elsewhere())).why(
            "a leader with early notes must hold reads of keys whose writes are blocked (B-S.7; \
             without them see the table). All other reads go on, also while the dead responder's \
             leases end, where the paper's stop for 2.6 s",
        ),
        rule("B-13.4", failure().of("waited_for_expiry").at_most(2730.0))
            .better(failure().of("waited_for_expiry").at_most(2470.0))
            .why(
                "a promise ends 2.6 s after the grantee's last reply, whether a renewal is out or not, \
                 so part of it is over when the responder is found silent",
            ),
        rule("B-13.5", failure().of("writes_again").at_most(3885.0).and(elsewhere()))
            .better(failure().of("writes_again").at_most(3515.0).and(elsewhere())),
        rule(
            "B-13.6",
            regular()
                .of("regular_change")
                .at_most(90.0)
                .and(failure().of("regular_change").at_most(90.0))
                .and(failure().of("regular_over_failure").at_most(0.05)),
        )
        .better(regular().of("regular_change").at_most(60.0).and(failure().of("regular_change").at_most(60.0)))
        .why("two rounds of the furthest pairs"),
        rule(
            "B-13.7",
            FIG13
                .all()
                .of("failed")
                .is(0.0)
                .and(regular().of("slowest_write_at_change").at_most(135.0))
                .and(regular().of("slowest_read_at_change").at_most(90.0)),
        )
        .why(
            "minor is taken as: nothing fails, and nothing takes more than the change, 90 ms, longer than \
             anyway. A write that comes when the old leases end waits for the new ones, then for its own round",
        ),
        rule("B-13.8", rounds()),
    ]
}

/// The paper's cluster.
fn wan_lab() -> Select {
    LAB.at("cluster", "WAN")
}

/// Bodega's throughput reaches 0.9 of ZooKeeper's with local reads, in every workload.
pub fn as_zookeeper() -> Check {
    wan_lab().ratio("operations", BODEGA, ZOOKEEPER).at_least(0.9)
}

/// Bodega's throughput reaches 0.8 of etcd's with serializable reads, in every workload.
pub fn as_stale_etcd() -> Check {
    wan_lab().ratio("operations", BODEGA, ETCD_STALE).at_least(0.8)
}

/// Reads of a service where nobody writes.
fn reads_here(service: &'static str) -> Values {
    wan_lab().at("service", service).at("workload", "C").of("read_mean")
}

/// The claims of Figures 14 to 16: which sites are responders, and real applications.
pub fn rosters() -> Vec<Rule> {
    let set14 = |cluster: &str| FIG14.at("protocol", BODEGA).at("cluster", cluster);
    let set15 = |cluster: &str| FIG15.at("roster", "set as a range").at("cluster", cluster);
    let ends = |number, percent: u32| {
        FIG15
            .at("covered_percent", percent)
            .ratio(number, "set as a range", "in the settings")
            .within(0.9, 1.1)
    };
    let in16 = |scenario: &str, mix: &str| FIG16.at("scenario", scenario).at("workload", mix);
    let wan16 = || FIG16.at("cluster", "WAN");
    let quiet = |name| {
        in16("Uniform", "C")
            .at("protocol", name)
            .of("read_mean")
            .at_most(2.0)
            .and(in16("Uniform", "C").ratio("operations", name, LEADER_LEASES).at_least(3.0))
    };
    vec![
        rule(
            "B-14.1",
            set14("WAN")
                .of("read_mean")
                .falls("responders", 0.0)
                .and(set14("WAN").change("read_mean", "responders", "4", "0").at_most(0.2)),
        ),
        rule(
            "B-14.2",
            FIG14.holds(
                "writes in WAN never lower by 1% with a responder more, and 2% higher with all",
                |data| {
                    let keys = [("protocol", BODEGA), ("cluster", "WAN")];
                    climbs(data.line(&FIG14, &keys, "responders", "write_mean"))
                },
            ),
        ),
        rule(
            "B-15.1",
            set15("WAN").of("read_mean").falls("covered_percent", 0.0).and(
                FIG15.holds("reads within 10% of the mix of both ends", |data| mixed(data, "read_mean")),
            ),
        ),
        rule(
            "B-15.2",
            set15("WAN").change("write_mean", "covered_percent", "100", "0").at_least(1.02).and(
                FIG15.holds("writes within 10% of the mix of both ends", |data| mixed(data, "write_mean")),
            ),
        ),
        rule(
            "B-15.3",
            ends("read_mean", 0)
                .and(ends("read_mean", 100))
                .and(ends("write_mean", 0))
                .and(ends("write_mean", 100)),
        ),
        rule("B-16.1", as_zookeeper()).why(WRITES_TO_ALL),
        rule("B-16.2", as_stale_etcd()).why(WRITES_TO_ALL),
        rule("B-16.4", reads_here(ETCD_STALE).within(0.2, 0.4).and(reads_here(ZOOKEEPER).within(0.2, 0.4)))
            .why("without writes nobody waits for a link: five members and ten clients keep two cores busy"),
        rule(
            "B-16.5",
            wan_lab()
                .at("workload", "C")
                .ratio("operations", ETCD_STALE, PQR_LEASES)
                .at_least(10.0)
                .and(wan_lab().at("workload", "C").ratio("operations", ZOOKEEPER, PQR_LEASES).at_least(10.0)),
        ),
        rule(
            "B-16.7",
            wan16()
                .ratio("operations", BODEGA, QUORUM_LEASES)
                .at_least(0.95)
                .and(wan16().ratio("operations", QUORUM_LEASES, EPAXOS).at_least(1.0))
                .and(wan16().ratio("operations", EPAXOS, PQR_LEASES).at_least(0.95)),
        )
        .why("where half of the operations write, writes decide, which EPaxos sends to nobody's leader"),
        rule("B-16.8", quiet(QUORUM_LEASES).and(quiet(BODEGA))),
        rule(
            "B-16.9",
            FIG16.holds(
                "throughput in Uniform, Bodega's ÷ Quorum Leases', does not fall from C to B to F",
                sustained,
            ),
        )
        .why("few of 10,000 keys are being written at a time, so Quorum Leases lose as little"),
        rule(
            "B-16.10",
            wan_lab()
                .at("service", ETCD)
                .of("read_mean")
                .at_least(50.0)
                .and(wan_lab().at("service", ZOOKEEPER_SYNC).of("read_mean").at_least(50.0)),
        )
        .why(
            "ZooKeeper's leader answers a sync alone, without a majority: a read costs one round trip to it, on \
             average 29 ms, and waits for the writes that are under way",
        ),
        rule(
            "B-16.11",
            in16("Uniform", "A").at("protocol", BODEGA).of("write_over_all_nodes").about(1.0, 0.1).and(
                wan16()
                    .at("protocol", BODEGA)
                    .at("workload", "A")
                    .change("write_mean", "scenario", "Uniform", "Zipfian")
                    .at_least(1.02),
            ),
        )
        .weaker("ZooKeeper's side is not judged"),
        rule("B-16.12", in16("Zipfian", "A").ratio("write_mean", BODEGA, LEADER_LEASES).within(0.9, 1.1))
            .why("a key's one responder must vote: 44 ms for those of UT and APT, where a majority takes 28"),
    ]
}
