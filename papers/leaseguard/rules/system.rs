//! The system claims of the register: rules, guarantees and limits of LeaseGuard, and what the paper leaves open.

use super::{
    BOTH_LEADERS, CAMPAIGNS, G, GATE, LIMBO, MUTATIONS, ONE_SIDED, PRIOR_TERM, READ_GATE, TIMERS,
    as_available, both_lead, messages, of4, of7,
};
use crate::instrument::rule::{Rule, Values, argued, choice, differs, rule, test};
use crate::leaseguard::{FIG4, FIG5, FIG7, FIG7_ELECTIONS, FIG8};

/// Rules of the protocol.
pub fn system() -> Vec<Rule> {
    vec![
        choice("LG-S.1", "`lease.duration` is a setting of the group; it does not change while it runs"),
        argued(
            "LG-S.2",
            "the stamp is taken in the step that appends; drivers sample clocks after an input is taken",
            &[test(MUTATIONS, "a_clock_that_is_read_before_a_pause")],
        ),
        argued(
            "LG-S.3",
            "the gate opens when the earliest now is later than the latest creation plus Δ",
            &[ONE_SIDED],
        ),
        rule("LG-S.4", of7(G, "writes_in_burst").at_least(300.0))
            .why("up to 64 MiB and 65,536 entries, then proxies wait"),
        argued(
            "LG-S.5",
            "one gate before commit, execution and acknowledgement; the latest stamp of any prior-term \
             entry decides",
            &[GATE],
        ),
        argued(
            "LG-S.6",
            "with the uncertainty against the reader: the latest now, the earliest creation",
            &[READ_GATE, ONE_SIDED],
        ),
        argued(
            "LG-S.7",
            "such reads are held; Figure 8 counts none that had to wait without need (LG-8.4)",
            &[LIMBO],
        ),
        argued(
            "LG-S.8",
            "the read gate looks at the last committed entry, the commit gate at all prior-term entries, \
             committed or not",
            &[BOTH_LEADERS, GATE],
        ),
        argued(
            "LG-S.9",
            "every entry bears a stamp; there is no lease entry but the one that ends it",
            &[BOTH_LEADERS],
        ),
        argued(
            "LG-S.10",
            "a follower does nothing for leases; under timers it notes when an entry came",
            &[BOTH_LEADERS],
        ),
        rule("LG-S.11", FIG7.all().difference("elected", G, "inconsistent").about(0.0, 30.0))
            .why("except under Ongaro's lease"),
        differs(
            "LG-S.12",
            "no message of its own; the stamp is a part of the entry, and the end of prior leases a part \
             of a snapshot",
            &[test(MUTATIONS, "a_snapshot_that_forgets_leases")],
        )
        .why("a snapshot must carry what compacted entries said, which the paper has no place for"),
        rule("LG-S.13", both_lead()),
        rule("LG-S.14", messages(G).about(0.0, 0.05).and(of4("served_by_l1").at_least(50.0))).why(
            "the messages of reads under the own lease; reads under the inherited one are served within \
             5 ms",
        ),
        rule("LG-S.15", of7("defer commit", "writes_in_burst").about(556.0, 150.0)),
        argued(
            "LG-S.16",
            "they are entries of the log like any other; leader completeness and durability are checked \
             in every campaign",
            &[CAMPAIGNS, PRIOR_TERM],
        ),
        argued(
            "LG-S.17",
            "what is committed is executed in the same step, which is asserted after every step",
            &[CAMPAIGNS],
        ),
        argued(
            "LG-S.18",
            "`leaseguard.extend=proactive` (the default) or `demand`",
            &[test(MUTATIONS, "a_read_that_waits_for_a_lease_for_ever")],
        ),
        argued(
            "LG-S.19",
            "a leader that hands over (transfer, SIGTERM, removal) ends its lease first; the next has \
             none to wait for, if it knows the end to be committed",
            &[
                test("crates/protocols/src/raft/traces/end-lease.txt", ""),
                test(MUTATIONS, "an_end_of_a_lease_whose_commit_is_not_known"),
            ],
        ),
        rule("LG-S.20", FIG5.all().of("write_gap").exists())
            .why("Figure 5 varies both; except under Ongaro's lease"),
        argued(
            "LG-S.21",
            "gets, multi-gets, scans and transactions have footprints: keys, or everything",
            &[
                LIMBO,
                test(
                    "crates/store/tests/properties.rs",
                    "a_command_depends_on_its_footprint_alone_and_changes_only_what_it_writes",
                ),
                test("crates/store/tests/properties.rs", "footprints_know_what_overlaps"),
            ],
        )
        .why("a scan waits if any limbo entry writes, a superset of what it must"),
    ]
}

/// What it promises, and negative tests.
pub fn guarantees() -> Vec<Rule> {
    vec![
        argued(
            "LG-S.22",
            "every campaign's histories are checked for linearizability, which includes it",
            &[CAMPAIGNS, LIMBO],
        )
        .why("by cases that occur in runs, not by one test for each of the five"),
        argued("LG-S.23", "checked in true time at every commit of every campaign", &[READ_GATE, ONE_SIDED]),
        argued("LG-S.24", "the read gate's checker compares indexes, in every campaign", &[READ_GATE, LIMBO]),
        argued(
            "LG-S.25",
            "every campaign's histories are checked, and those of Figures 4, 5, 7 and 8",
            &[CAMPAIGNS],
        ),
        argued(
            "LG-S.26",
            "two leaders at once in Figure 4, three in the conversation of §5.3",
            &[TIMERS, CAMPAIGNS],
        ),
        argued(
            "LG-S.27",
            "each of the four is a checker of every campaign",
            &[PRIOR_TERM, test(MUTATIONS, "a_vote_for_any_log")],
        ),
        argued(
            "LG-S.28",
            "joint consensus only, single-server changes being joint changes of one",
            &[test(MUTATIONS, "two_membership_changes_in_flight")],
        ),
        argued(
            "LG-S.29",
            "a leader that cannot commit stops reading Δ after its last commit",
            &[test("crates/protocols/src/raft/traces/deposed-leader-leaseguard.txt", "")],
        ),
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
        argued(
            "LG-S.31",
            "intervals that exclude the truth are a fault of the simulator, and the history shows it",
            &[test(
                "crates/sim/tests/runs.rs",
                "clocks_that_lie_are_caught_by_the_history_unless_a_majority_is_asked",
            )],
        ),
        argued(
            "LG-S.32",
            "`leaseguard.clock=timers`, and wherever a node or an entry has no interval; campaigns run so",
            &[CAMPAIGNS, test(MUTATIONS, "a_successor_that_takes_the_larger_of_two_waits")],
        ),
        argued("LG-S.33", "inherited reads under timers are stale in the conversation of §5.3", &[TIMERS]),
        argued(
            "LG-S.34",
            "a limbo region without its last entry is caught; one entry less is the smallest way to be \
             without",
            &[LIMBO],
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
        argued("LG-S.37", "without bounded clocks nothing is inherited", &[TIMERS]),
        differs(
            "LG-S.38",
            "followers may answer reads too (`reads.at=nearest`): at an index that they ask the leader \
             for",
            &[],
        )
        .why("an addition; the figures do not use it"),
    ]
}

/// What the paper leaves open.
pub fn open() -> Vec<Rule> {
    vec![
        choice(
            "LG-X.1",
            "the paper's 37 entries and 70 refusals do not fit each other; Figure 8's shares follow the \
             independent draws (LG-8.4)",
        ),
        choice("LG-X.2", "uncertainty blocks both sides (LG-S.3, LG-S.6)"),
        choice("LG-X.3", "at an age of exactly Δ the old leader may read and the new one may not commit"),
        choice(
            "LG-X.4",
            "nothing to wait for, as commit and execution are one step; all entries are executed in a \
             loop",
        ),
        choice("LG-X.5", "all six"),
        rule("LG-X.6", FIG8.at("zipf", 0).of("gap").at_least(1.0)).why(
            "the two rules differ: meanwhile L1 could neither read under the inherited lease nor commit. \
             We keep both",
        ),
        choice("LG-X.7", "commits after Δ + ε, reads before Δ − ε"),
        choice("LG-X.8", "ms² in Figure 6, µs² in Figure 7"),
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
        choice("LG-X.11", "no-ops at Δ/2, looked at every Δ/4; `--durability fsync` in Figures 9 to 11"),
    ]
}

/// How much more it is with Ongaro's lease, election by election.
fn later_by(number: &str) -> Values {
    FIG7_ELECTIONS.all().difference(number, "Ongaro lease", G)
}
