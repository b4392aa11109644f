//! Rules of Bodega's baselines, implementation, rules and guarantees.

use super::{ACTIVE, CAMPAIGNS, M_NOTES, MUTATIONS, RINSE, SILENT};
use crate::bodega::{BODEGA, FIG8, FIG14, HEADLINE, HOLDS, IDLE, MULTIPAXOS, NO_NOTES};
use crate::instrument::rule::{Rule, Shown, argued, choice, differs, rule, test, unjudged};

const WIDE_AREA: Shown =
    test("crates/protocols/src/wide_area.rs", "timeouts_are_the_papers_until_distances_outgrow_them");
const COVERAGE: Shown =
    test("crates/protocols/src/paxos/bodega/coverage.rs", "keys_are_covered_where_they_are_read");
const BATCH: Shown = test(MUTATIONS, "coverage_of_one_key_of_a_batch");
const OUTLIVES: Shown =
    test("crates/protocols/src/paxos/engine/lease/tests.rs", "the_promise_outlives_the_belief_in_true_time");
const TRUE_TIME: Shown = test("crates/check/src/leases.rs", "leases_are_compared_in_true_time");
const RENEWAL: Shown = test(MUTATIONS, "a_lease_that_is_believed_from_the_receipt_of_a_renewal");
const EXPLORED: &str = "crates/explore/tests/mutations.rs";
const HELD: Shown = test("crates/protocols/src/paxos/bodega/traces/read-that-is-held.txt", "");

/// Those of the register's last three sections.
pub fn design() -> Vec<Rule> {
    [baselines(), implementation(), system(), leases(), guarantees()].concat()
}

fn baselines() -> Vec<Rule> {
    vec![
        argued(
            "B-P.1",
            "one `Prepare` from the first slot that is not chosen; commits are told at once with \
             `commit.delay=0ms`",
            &[
                test("crates/protocols/src/paxos/multipaxos/traces/first-write.txt", ""),
                test("crates/protocols/src/paxos/multipaxos/traces/lost-votes-and-holes.txt", ""),
            ],
        ),
        argued(
            "B-P.2",
            "a majority's promises, its own included, none of them to another ballot",
            &[TRUE_TIME, test("crates/sim/tests/mutations/multipaxos.rs", "a_lease_without_drift_margin")],
        ),
        argued(
            "B-P.3",
            "three of five nodes that know of the same commands commit in one round; two rounds \
             otherwise; reads are commands",
            &[
                test("crates/protocols/src/epaxos/traces/fast-quorum-of-five.txt", ""),
                test("crates/protocols/src/epaxos/traces/slow-path.txt", ""),
            ],
        )
        .why("EPaxos* (2025): the published recovery is known to be wrong"),
        argued(
            "B-P.4",
            "all are asked and the first majority counts; then again after 2, 4, … ms, at most six \
             times, then the leader",
            &[RINSE, test("crates/protocols/src/paxos/pqr/traces/leftover-vote.txt", "")],
        )
        .why("rounds are bounded: a vote that a dead ballot left behind may never be chosen"),
        argued(
            "B-P.5",
            "`leader_lease=true`: the leader is asked at once, and answers under its lease",
            &[test("crates/protocols/src/paxos/pqr/traces/leader-lease.txt", "")],
        ),
        argued(
            "B-P.6",
            "grantees by ranges of keys, set through the log; a vote revokes the grants of its keys \
             and names the grantees; refused reads go to the leader",
            &[ACTIVE, test("crates/protocols/src/paxos/quorum_leases/traces/roster-that-gives.txt", "")],
        )
        .why("grants are lost for the keys that are written, not for the subset"),
        argued(
            "B-P.7",
            "`passive=true`; a grantee that cannot vote holds up writes to its keys until its leases end",
            &[
                test("crates/protocols/src/paxos/quorum_leases/traces/passive.txt", ""),
                test("crates/protocols/src/paxos/quorum_leases/traces/silent-grantee.txt", ""),
            ],
        ),
    ]
}

fn implementation() -> Vec<Rule> {
    vec![
        unjudged("B-I.1", "Vineyard is not ours to count"),
        argued(
            "B-I.2",
            "campaigns with all faults, mutations, linearizability and lease checkers",
            &[CAMPAIGNS, M_NOTES],
        )
        .why(
            "the paper does not say which. Its published program is known to return stale reads with \
             early notes",
        ),
        argued(
            "B-I.3",
            "`roster auto`: above 95% reads, at sites with above 20% of a key's reads, looked at each \
             5 s; all are settings",
            &[COVERAGE],
        ),
        choice("B-I.4", "at most 4096 ranges, so some hundred KB where keys are long"),
        unjudged("B-I.5", "a heartbeat is a ballot and a slot, but no test compares its bytes among rosters"),
        differs(
            "B-I.6",
            "a proxy asks the node of its site, and the leader if that refuses; it keeps no roster",
            &[],
        )
        .why("a site without a responder pays a hop within the site; nothing is cached that may be old"),
        differs(
            "B-I.7",
            "one slot holds one batch, and the commit rule is checked for all its writes; what is \
             there when a turn ends is a batch, without an interval",
            &[BATCH],
        )
        .why("an interval adds its half to each write and saves messages that are not short here"),
        differs(
            "B-I.8",
            "reads are answered from the executed state, of which a snapshot is a copy; no log is \
             searched",
            &[],
        )
        .why("what is executed need not be looked for"),
        argued(
            "B-I.9",
            "before the group changes all responders are excluded, which is the empty roster without a \
             new ballot",
            &[test("crates/sim/tests/runs.rs", "groups_change_and_leaders_hand_over")],
        ),
    ]
}

fn system() -> Vec<Rule> {
    vec![
        argued(
            "B-S.1",
            "responders by ranges of keys, down to one key",
            &[test("crates/core/src/roster.rs", "keys_find_their_responders"), CAMPAIGNS],
        ),
        argued(
            "B-S.2",
            "a topology sets them: 120 ms, 1200 ms to 2400 ms at random, 2500 ms both",
            &[WIDE_AREA],
        )
        .why(
            "the shortest silence that makes a follower suspicious is the paper's middle; a leader \
             excludes a responder after 1200 ms",
        ),
        argued("B-S.3", "kept where distances outgrow the paper's", &[WIDE_AREA]),
        argued(
            "B-S.4",
            "a ballot comes with its roster, and never changes it; the owner leads",
            &[
                test("crates/protocols/src/paxos/bodega/traces/ballot-config-that-is-not-durable.txt", ""),
                test(MUTATIONS, "a_ballot_that_is_told_before_it_is_durable"),
            ],
        )
        .why("one that is to be led by another is handed over afterwards"),
        argued(
            "B-S.5",
            "and of all keys of the batch; responders that can read no more are left out",
            &[BATCH, test(MUTATIONS, "an_exclusion_that_nobody_has_confirmed")],
        ),
        rule(
            "B-S.6",
            FIG14
                .at("protocol", BODEGA)
                .at("cluster", "WAN")
                .change("write_mean", "responders", "2", "0")
                .within(0.95, 1.1),
        )
        .why("MA and SC, which are no further than the leader's majority"),
        differs(
            "B-S.7",
            "while notes are on, the leader holds a read as its responders do",
            &[test(MUTATIONS, "a_leader_that_answers_from_what_is_committed")],
        )
        .why(
            "a responder may have shown the write by its notes: a read at the leader of what it knows \
             to be committed would be older than one that has ended",
        ),
        rule(
            "B-S.8",
            FIG8.at("protocol", BODEGA).at("place", "other").quotient("read_mean", "l").within(0.9, 1.1),
        )
        .why("a read that is refused and goes on to the leader takes l"),
        argued(
            "B-S.9",
            "held at the last slot that writes the key and is not executed; executed is asked, not \
             only committed",
            &[HELD],
        ),
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
        choice("B-S.12", "after `unhold` (300 ms) the proxy asks the leader too, and takes the first answer"),
        differs(
            "B-S.13",
            "notes count by the commit rule: a majority, and all responders of all keys in the batch",
            &[M_NOTES],
        )
        .why(
            "released at m notes, one responder shows a write that another has not accepted and reads \
             without. The paper's Appendix B has the rule that we follow",
        ),
        rule("B-S.14", HOLDS.all().ratio("mean", BODEGA, NO_NOTES).within(0.4, 0.6)),
    ]
}

fn leases() -> Vec<Rule> {
    vec![
        argued(
            "B-S.15",
            "one primitive, from everybody to whomever the policy names",
            &[test(
                "crates/protocols/src/paxos/engine/lease/tests.rs",
                "a_granting_starts_is_renewed_and_given_back",
            )],
        ),
        argued(
            "B-S.16",
            "checked in true time in every campaign, and in 2000 random schedules with clocks at the \
             edge of their bound",
            &[OUTLIVES, TRUE_TIME, RENEWAL],
        ),
        argued(
            "B-S.17",
            "a majority's promises, the own one counted, and everything executed up to the m-th \
             smallest threshold",
            &[
                test(EXPLORED, "a_leader_that_serves_before_it_has_executed_what_phase_one_found"),
                test(MUTATIONS, "a_barred_responder_that_counts_its_own_promise"),
            ],
        ),
        argued(
            "B-S.18",
            "sampled after the promise; not up to the first hole",
            &[test(EXPLORED, "a_threshold_that_is_the_first_hole")],
        ),
        argued(
            "B-S.19",
            "a responder that is not stable sends the read to the leader, and a leader without leases \
             gives it a slot",
            &[test(MUTATIONS, "held_reads_that_are_answered_without_leases")],
        )
        .why("as Figure 17 has it"),
        argued(
            "B-S.20",
            "a ballot is promised when nothing granted under the one before binds",
            &[
                test(MUTATIONS, "a_higher_ballot_that_is_promised_at_once"),
                test(EXPLORED, "a_higher_ballot_that_is_promised_although_a_lease_binds"),
            ],
        ),
        rule("B-S.21", IDLE.all().ratio("messages", BODEGA, MULTIPAXOS).at_most(1.05)).why(
            "renewals are messages of their own here, each quarter of a lease, off the critical path. \
             Heartbeats go from the leader to all and back, not from all to all",
        ),
        argued(
            "B-S.22",
            "statistics and operators change the roster; a failed responder is excluded within it \
             (B-13.3), a failed leader replaced",
            &[
                COVERAGE,
                SILENT,
                test("crates/protocols/src/paxos/bodega/traces/roster-in-two-rounds.txt", ""),
                test("crates/protocols/src/paxos/bodega/traces/leader-that-crashes.txt", ""),
            ],
        ),
        argued(
            "B-S.23",
            "each ballot has its own phase 1, also where the leader stays",
            &[
                test(
                    "crates/protocols/src/paxos/engine/slots/proposer.rs",
                    "phase_one_proposes_the_highest_votes_and_fills_holes",
                ),
                test("crates/protocols/src/paxos/bodega/traces/roster-in-two-rounds.txt", ""),
            ],
        ),
    ]
}

fn guarantees() -> Vec<Rule> {
    vec![
        argued(
            "B-S.24",
            "campaigns with all faults are linearizable, and everything is answered when they end",
            &[CAMPAIGNS, test("crates/sim/tests/runs.rs", "every_kind_of_fault_happens")],
        ),
        argued(
            "B-S.25",
            "in the healing phase of a campaign every request is answered",
            &[CAMPAIGNS, SILENT],
        ),
        unjudged(
            "B-S.26",
            "our argument is in the comment of `crates/protocols/src/paxos/bodega/mod.rs`; the paper's \
             proof is of its own rules, two of which we do not follow (B-S.7, B-S.13)",
        ),
        differs(
            "B-S.27",
            "`quorate sim --explore` runs the real code. At this size it exhausts what takes few \
             delays; without that bound, smaller sizes, among them two ballots with a write and a \
             read, and changes of the roster. No violation",
            &[
                test(
                    "crates/explore/tests/explore.rs",
                    "bodega_at_the_size_of_its_paper_where_nothing_is_delayed",
                ),
                test("crates/explore/tests/explore.rs", "bodega_reads_at_all_responders_through_two_ballots"),
                test("crates/explore/tests/explore.rs", "bodega_changes_its_roster"),
            ],
        )
        .why(
            "a state here has what each replica keeps and each message to each of them, where the \
             model has a set of messages that all can see: at this size all delays together are out of \
             reach",
        ),
        differs(
            "B-S.28",
            "both sides count from the grantee's reply: it believes for t_lease − t_Δ from when it \
             sent the reply that a Renew answers, the grantor is bound for t_lease + t_Δ from when it \
             got that reply; the guards are the same",
            &[OUTLIVES, RENEWAL],
        )
        .why(
            "by Figure 17, a Renew without an answer binds for two leases: that long no write of a \
             dead responder's keys is acknowledged",
        ),
        differs(
            "B-S.29",
            "a responder that is silent is excluded in the ballot that is; a leader that is silent is \
             replaced by election",
            &[SILENT],
        )
        .why("B-13.3"),
        argued("B-S.30", "as B-A.5, B-8.14, B-15.1 and B-A.6 show", &[CAMPAIGNS]),
        unjudged("B-S.31", "only the Paxos form is built; the paper evaluates no other either"),
        unjudged("B-S.32", "the paper does not evaluate it, nor do we measure how long activation may take"),
        argued(
            "B-S.33",
            "reads that may miss an age, or so many versions of a key, are answered by whoever can \
             prove that; what cannot be proved is read linearizably",
            &[
                test("crates/check/src/staleness.rs", "a_read_may_miss_what_its_bound_allows_and_no_more"),
                test(
                    "crates/protocols/src/paxos/engine/freshness.rs",
                    "a_state_is_as_new_as_the_question_once_what_was_proposed_then_is_executed",
                ),
            ],
        ),
    ]
}
