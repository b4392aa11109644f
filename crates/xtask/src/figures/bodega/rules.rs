//! The claims of the register that are argued: baselines, implementation, system.

use super::super::argued::Row;
use super::super::page::Verdict;

/// In the order of their numbers.
pub const ROWS: &[Row] = &[
    (
        "B-A.5",
        Verdict::Agrees,
        "failures are found and leases ended by the replicas themselves; no other process is there",
        "",
        "`crates/protocols/src/paxos/bodega/exclusion.rs`, `crates/sim/tests/runs.rs` `campaigns_of_bodega_pass`",
    ),
    (
        "B-A.8",
        Verdict::NotJudged,
        "reads at any responder, whatever is written (Figures 8 and 10)",
        "novelty is not measured",
        "",
    ),
    (
        "B-6.1",
        Verdict::Agrees,
        "a vote for a write takes the grants of its keys back and names who had one; a regrant tells when they \
         are open again",
        "",
        "`crates/protocols/src/paxos/quorum_leases/acks.rs` `is_revoked`, \
         `crates/protocols/src/paxos/quorum_leases/traces/active-regrants.txt`, `crates/sim/tests/traces.rs`",
    ),
    (
        "B-6.2",
        Verdict::Agrees,
        "at once if the furthest of a majority has executed all that any of them has accepted of the key",
        "executed, not committed: a slot's value alone is not the answer to a read here",
        "`crates/blocks/src/clients/proxy/majority.rs` `judge`, `crates/protocols/src/paxos/pqr/traces/rinse.txt`, \
         `crates/sim/tests/traces.rs`",
    ),
    (
        "B-6.3",
        Verdict::Differs,
        "from the Accept until the commit, or until notes of a majority with all responders of the batch's keys",
        "at m notes reads are not linearizable: B-S.13. Figure 10 has the widths",
        "`crates/protocols/src/paxos/bodega/notes.rs` `count`",
    ),
    (
        "B-P.1",
        Verdict::Agrees,
        "one `Prepare` from the first slot that is not chosen; commits are told at once with a topology's \
         `commit.delay=0ms`",
        "",
        "`crates/protocols/src/paxos/engine/ballots.rs` `send_prepare`, \
         `crates/protocols/src/wide_area.rs` `commit.delay`",
    ),
    (
        "B-P.2",
        Verdict::Agrees,
        "a majority's promises, its own included, none of them to another ballot",
        "",
        "`crates/protocols/src/paxos/engine/leasing.rs` `may_read_locally`, `crates/check/src/leases.rs`",
    ),
    (
        "B-P.3",
        Verdict::Agrees,
        "three of five nodes that know of the same commands commit in one round; two rounds otherwise; reads are \
         commands; Table 1 has the latencies",
        "EPaxos* (2025): the published recovery is known to be wrong",
        "`crates/protocols/src/epaxos/proposing.rs` `take_slow_path`, `crates/sim/tests/runs.rs` \
         `campaigns_of_epaxos_pass_with_three_five_and_seven_nodes`",
    ),
    (
        "B-P.4",
        Verdict::Agrees,
        "all are asked and the first majority counts; then again after 2, 4, … ms, at most six times, then the \
         leader",
        "rounds are bounded: a vote that a dead ballot left behind may never be chosen",
        "`crates/blocks/src/clients/proxy/majority.rs` `judge`",
    ),
    (
        "B-P.5",
        Verdict::Agrees,
        "`leader_lease=true`: the leader is asked at once, and answers under its lease",
        "",
        "`crates/blocks/src/clients/proxy/majority.rs` `NEVER`",
    ),
    (
        "B-P.6",
        Verdict::Agrees,
        "grantees by ranges of keys, set through the log; a vote revokes the grants of its keys and names the \
         grantees; refused reads go to the leader",
        "grants are lost for the keys that are written, not for the subset",
        "`crates/protocols/src/paxos/quorum_leases/acks.rs` `is_revoked`, \
         `crates/protocols/src/paxos/quorum_leases/reads.rs`",
    ),
    (
        "B-P.7",
        Verdict::Agrees,
        "`passive=true`; a grantee that cannot vote holds up writes to its keys until its leases end",
        "",
        "`crates/protocols/src/paxos/quorum_leases/mod.rs` `passive`, `crates/sim/tests/runs.rs` \
         `reads_of_a_majority_or_under_quorum_leases_pass`",
    ),
    (
        "B-I.2",
        Verdict::Agrees,
        "campaigns with all faults, mutations, linearizability and lease checkers",
        "the paper does not say which tests. Its published program is known to return stale reads with early notes",
        "`crates/sim/tests/runs.rs` `campaigns_of_bodega_pass`, `crates/sim/tests/mutations/bodega.rs` \
         `reads_that_are_released_at_m_notes`",
    ),
    (
        "B-I.3",
        Verdict::Agrees,
        "`roster auto`: above 95% reads, at sites with above 20% of a key's reads, looked at each 5 s; all are \
         settings",
        "the paper gives no period",
        "`crates/protocols/src/paxos/bodega/coverage.rs` `keys_are_covered_where_they_are_read`",
    ),
    (
        "B-I.4",
        Verdict::Agrees,
        "at most 4096 ranges, so some hundred KB where keys are long",
        "",
        "`crates/core/src/roster.rs` `MAX_RANGES`",
    ),
    (
        "B-I.5",
        Verdict::Agrees,
        "a heartbeat is a ballot and a slot; who lacks what comes with the ballot asks for it",
        "",
        "`crates/protocols/src/paxos/engine/message.rs` `Heartbeat`, \
         `crates/protocols/src/paxos/engine/ballots.rs` `on_which`",
    ),
    (
        "B-I.6",
        Verdict::Differs,
        "a proxy asks the node of its site, and the leader if that refuses; it keeps no roster",
        "a site without a responder pays a hop within the site; nothing is cached that may be old",
        "`crates/blocks/src/clients/proxy/mod.rs` `nearest`",
    ),
    (
        "B-I.7",
        Verdict::Differs,
        "one slot holds one batch, and the commit rule is checked for all its writes; what has gathered when a \
         turn ends is a batch, without an interval",
        "an interval adds its half to each write and saves messages that are not short here",
        "`crates/protocols/src/paxos/engine/leading.rs` `take_batch`, \
         `crates/protocols/src/paxos/rosters.rs` `readers_of`",
    ),
    (
        "B-I.8",
        Verdict::Agrees,
        "reads are answered from the executed state, of which a snapshot is a copy; no log is searched",
        "",
        "`crates/protocols/src/paxos/engine/reads.rs` `answer`",
    ),
    (
        "B-I.9",
        Verdict::Agrees,
        "before the group changes all responders are excluded, which is the empty roster without a new ballot",
        "",
        "`crates/protocols/src/paxos/bodega/policy.rs` `may_change`, \
         `crates/protocols/src/paxos/bodega/exclusion.rs` `all_out`",
    ),
    (
        "B-S.1",
        Verdict::Agrees,
        "responders by ranges of keys, down to one key",
        "",
        "`crates/core/src/roster.rs` `responders`, `crates/sim/tests/runs.rs` `campaigns_of_bodega_pass`",
    ),
    (
        "B-S.2",
        Verdict::Agrees,
        "a topology sets them: 120 ms, 1200 ms to 2400 ms at random, 2500 ms both",
        "the shortest silence that makes a follower suspicious is the paper's middle; a leader excludes a \
         responder after 1200 ms",
        "`crates/protocols/src/wide_area.rs` `timeouts_are_the_papers_until_distances_outgrow_them`",
    ),
    (
        "B-S.3",
        Verdict::Agrees,
        "kept where distances outgrow the paper's",
        "",
        "`crates/protocols/src/wide_area.rs` `timeouts_are_the_papers_until_distances_outgrow_them`",
    ),
    (
        "B-S.4",
        Verdict::Agrees,
        "a ballot comes with its ballot config, and never changes it; the owner leads",
        "one that is to be led by another is handed over afterwards",
        "`crates/protocols/src/paxos/bodega/ballot_config.rs`, \
         `crates/protocols/src/paxos/engine/ballots.rs` `learn_ballot_config`",
    ),
    (
        "B-S.5",
        Verdict::Agrees,
        "and of all keys of the batch; responders that can read no more are left out",
        "",
        "`crates/protocols/src/paxos/bodega/exclusion.rs` `required`, \
         `crates/protocols/src/paxos/rosters.rs` `readers_of`",
    ),
    (
        "B-S.6",
        Verdict::Agrees,
        "with the paper's responders 1.00 to 1.25 times Leader Leases' writes (B-8.3)",
        "",
        "Figure 8",
    ),
    (
        "B-S.7",
        Verdict::Differs,
        "while notes are on, the leader holds a read as its responders do",
        "the paper's leader answers from what it knows to be committed, while a responder may have shown the \
         write by its notes: a read at the leader would be older than one that has ended. The mutation that \
         does so is caught",
        "`crates/protocols/src/paxos/bodega/reads.rs` `waits_for`, `crates/sim/tests/mutations/bodega.rs` \
         `a_leader_that_answers_from_what_is_committed`",
    ),
    (
        "B-S.8",
        Verdict::Agrees,
        "refused at once, with the leader's name",
        "",
        "`crates/protocols/src/paxos/engine/reads.rs` `Redirect`",
    ),
    (
        "B-S.9",
        Verdict::Agrees,
        "held at the last slot that writes the key and is not executed; executed is asked, not only committed",
        "",
        "`crates/protocols/src/paxos/bodega/reads.rs` `gate`",
    ),
    (
        "B-S.11",
        Verdict::Agrees,
        "a read waits for the slot that was the last to write its key when it came, not for later ones",
        "",
        "`crates/protocols/src/paxos/engine/reads.rs` `Hold`",
    ),
    (
        "B-S.12",
        Verdict::Agrees,
        "after `unhold` (300 ms) the proxy asks the leader too, and takes the first answer",
        "",
        "`crates/blocks/src/clients/proxy/mod.rs` `unhold`",
    ),
    (
        "B-S.13",
        Verdict::Differs,
        "notes count by the commit rule: a majority, and all responders of all keys in the batch",
        "released at m notes, one responder shows a write that another has not accepted and reads without; the \
         mutation that does so is caught. The paper's Appendix B has the rule that we follow",
        "`crates/protocols/src/paxos/bodega/notes.rs` `count`, `crates/sim/tests/mutations/bodega.rs` \
         `reads_that_are_released_at_m_notes`",
    ),
    (
        "B-S.15",
        Verdict::Agrees,
        "one primitive, from everybody to whomever the policy names",
        "",
        "`crates/protocols/src/paxos/engine/leases.rs`, `crates/protocols/src/paxos/engine/lease.rs`",
    ),
    (
        "B-S.16",
        Verdict::Agrees,
        "checked in true time in every campaign, and in 2000 random schedules with clocks at the edge of their bound",
        "",
        "`crates/protocols/src/paxos/engine/lease/tests.rs` `the_promise_outlives_the_belief_in_true_time`, \
         `crates/check/src/leases.rs`",
    ),
    (
        "B-S.17",
        Verdict::Agrees,
        "a majority's promises, the own one counted, and everything executed up to the m-th smallest threshold",
        "",
        "`crates/protocols/src/paxos/engine/leasing.rs` `is_stable`",
    ),
    (
        "B-S.18",
        Verdict::Agrees,
        "sampled after the promise; not up to the first hole",
        "",
        "`crates/protocols/src/paxos/engine/leasing.rs` `accepted`, `crates/explore/tests/mutations.rs` \
         `a_threshold_that_is_the_first_hole`",
    ),
    (
        "B-S.19",
        Verdict::Agrees,
        "a responder that is not stable sends the read to the leader, and a leader without leases gives it a slot",
        "as Figure 17 has it",
        "`crates/protocols/src/paxos/engine/reads.rs` `Redirect`",
    ),
    (
        "B-S.20",
        Verdict::Agrees,
        "a ballot is promised when nothing granted under the one before binds",
        "",
        "`crates/protocols/src/paxos/engine/ballots.rs` `adopt`, `crates/sim/tests/mutations/bodega.rs` \
         `a_higher_ballot_that_is_promised_at_once`",
    ),
    (
        "B-S.22",
        Verdict::Agrees,
        "statistics and operators change the roster; a failed responder is excluded within it (B-13.3), a failed \
         leader replaced",
        "",
        "`crates/protocols/src/paxos/bodega/coverage.rs` `review`, \
         `crates/protocols/src/paxos/bodega/policy.rs` `manage`",
    ),
    (
        "B-S.23",
        Verdict::Agrees,
        "each ballot has its own phase 1, also where the leader stays",
        "",
        "`crates/protocols/src/paxos/engine/ballots.rs` `on_prepare_reply`",
    ),
    (
        "B-S.24",
        Verdict::Agrees,
        "campaigns with all faults are linearizable, and everything is answered when they end",
        "",
        "`crates/sim/tests/runs.rs` `campaigns_of_bodega_pass`",
    ),
    (
        "B-S.25",
        Verdict::Agrees,
        "in the healing phase of a campaign every request is answered",
        "",
        "`crates/sim/src/run.rs`",
    ),
    (
        "B-S.26",
        Verdict::NotJudged,
        "our argument is in the module's comment; the paper's proof is of its own rules",
        "two of which we do not follow (B-S.7, B-S.13)",
        "`crates/protocols/src/paxos/bodega/mod.rs`",
    ),
    (
        "B-S.27",
        Verdict::Differs,
        "`quorate sim --explore` runs the real code. At this size it exhausts what takes few delays (a link that \
         stands still, or anything else that happens while messages are under way); without that bound, smaller \
         sizes, among them two ballots with a write and a read, and changes of the roster. No violation. How many \
         states each has is in `README.md`",
        "a state here has what each replica keeps and each message to each of them, where the model has a set of \
         messages that all can see: at this size all delays together are out of reach",
        "`crates/explore/tests/explore.rs` `bodega_at_the_size_of_its_paper_where_nothing_is_delayed` \
         `bodega_reads_at_all_responders_through_two_ballots` `bodega_changes_its_roster`",
    ),
    (
        "B-S.28",
        Verdict::Better,
        "both sides count from the grantee's reply: it believes for t_lease − t_Δ from when it sent the reply that a \
         Renew answers, the grantor is bound for t_lease + t_Δ from when it got that reply, Renews do not add to it; \
         the guards are the same",
        "by Figure 17, a Renew without an answer binds for two leases: that long no write of a dead responder's keys \
         is acknowledged, and no restarted grantor votes for another ballot",
        "`crates/protocols/src/paxos/engine/lease.rs`",
    ),
    (
        "B-S.29",
        Verdict::Differs,
        "a responder that is silent is excluded in the ballot that is; a leader that is silent is replaced by election",
        "B-13.3",
        "`crates/protocols/src/paxos/bodega/exclusion.rs` `review`",
    ),
    ("B-S.30", Verdict::Agrees, "as B-A.5, B-8.14, B-15.1 and B-A.6 show", "", "Figures 8, 14 and 15"),
    ("B-S.31", Verdict::NotJudged, "only the Paxos form is built", "the paper evaluates no other either", ""),
    (
        "B-S.32",
        Verdict::NotJudged,
        "polls before elections are there; partial partitions are faults of every campaign",
        "the paper does not evaluate it, nor do we measure how long activation may take",
        "`crates/protocols/src/paxos/engine/ballots.rs` `on_poll`",
    ),
    (
        "B-S.33",
        Verdict::Agrees,
        "reads that may miss an age, or so many versions of a key, are answered by whoever can prove that, checked \
         against the history; what cannot be proved is read linearizably",
        "the paper does not evaluate it",
        "`crates/protocols/src/paxos/engine/freshness.rs` \
         `a_state_is_as_new_as_the_question_once_what_was_proposed_then_is_executed`, \
         `crates/check/src/staleness.rs` `a_read_may_miss_what_its_bound_allows_and_no_more`",
    ),
];
