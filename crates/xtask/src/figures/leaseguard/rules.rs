//! The system claims of the register: rules, guarantees and limits of LeaseGuard.

use super::super::argued::Row;
use super::super::page::Verdict;

/// In the order of their numbers.
pub const RULES: &[Row] = &[
    (
        "LG-S.1",
        Verdict::Agrees,
        "`lease.duration` is a setting of the group; it does not change while it runs",
        "that all nodes are given the same is the operator's part, as in the paper",
        "`crates/protocols/src/raft/mod.rs` `lease.duration`",
    ),
    (
        "LG-S.2",
        Verdict::Agrees,
        "`stamp` is taken in the step that appends; drivers sample clocks after an input is taken, and a sample \
         from before a pause is caught",
        "",
        "`crates/protocols/src/raft/leading.rs` `append`, `crates/sim/tests/mutations/raft.rs` \
         `a_clock_that_is_read_before_a_pause`",
    ),
    (
        "LG-S.3",
        Verdict::Agrees,
        "the gate opens when the earliest now is later than the latest creation plus Δ",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `remaining`, `crates/sim/tests/mutations/raft.rs` \
         `uncertainty_on_one_side_only`",
    ),
    (
        "LG-S.4",
        Verdict::Agrees,
        "with `leaseguard.deferred_commit` (the default) a leader appends and replicates at once; Figure 7 has the \
         burst that comes of it",
        "up to 64 MiB and 65,536 entries, then proxies wait",
        "`crates/protocols/src/raft/leaseguard.rs` `takes_writes`",
    ),
    (
        "LG-S.5",
        Verdict::Agrees,
        "one gate before commit, execution and acknowledgement; the latest stamp of any prior-term entry decides",
        "the latest end of all, not the last entry's, in case clocks disagree",
        "`crates/protocols/src/raft/leaseguard.rs` `CommitGate`, `crates/sim/tests/mutations/raft.rs` \
         `a_commit_gate_that_ignores_one_prior_entry`",
    ),
    (
        "LG-S.6",
        Verdict::Agrees,
        "with the uncertainty against the reader: the latest now, the earliest creation",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `read_gate`, `crates/check/src/read_gate.rs`",
    ),
    (
        "LG-S.7",
        Verdict::Agrees,
        "held; Figure 8 counts none that had to wait without need (LG-8.4)",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `affects`",
    ),
    (
        "LG-S.8",
        Verdict::Agrees,
        "the read gate looks at the last committed entry, the commit gate at all prior-term entries, committed or \
         not",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `read_gate`",
    ),
    (
        "LG-S.9",
        Verdict::Agrees,
        "every entry bears a stamp; there is no lease entry but the one that ends it",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `stamp`",
    ),
    (
        "LG-S.10",
        Verdict::Agrees,
        "a follower does nothing for leases; under timers it notes when an entry came",
        "",
        "`crates/protocols/src/raft/replica.rs` `on_append`",
    ),
    (
        "LG-S.11",
        Verdict::Agrees,
        "elections ask nothing of leases, except Ongaro's",
        "",
        "`crates/protocols/src/raft/elections.rs` `is_bound`",
    ),
    (
        "LG-S.12",
        Verdict::Differs,
        "no message of its own; the stamp is a part of the entry, and the end of prior leases a part of a snapshot",
        "a snapshot must carry what compacted entries said, which the paper has no place for",
        "`crates/protocols/src/raft/message.rs`, `crates/sim/tests/mutations/raft.rs` \
         `a_snapshot_that_forgets_leases`",
    ),
    (
        "LG-S.15",
        Verdict::Agrees,
        "a timer at the end of the last prior lease; Figures 7 and 9 show when the burst comes (LG-7.7, LG-9.7)",
        "no message in between: followers have acknowledged before",
        "`crates/protocols/src/raft/leaseguard.rs` `on_gate_timer`",
    ),
    (
        "LG-S.16",
        Verdict::Agrees,
        "they are entries of the log like any other; leader completeness and durability are checked in every \
         campaign",
        "",
        "`crates/check/src/leader_completeness.rs`, `crates/check/src/durability.rs`",
    ),
    (
        "LG-S.17",
        Verdict::Agrees,
        "what is committed is executed in the same step, so a read never finds it missing",
        "asserted after every step",
        "`crates/protocols/src/raft/invariants.rs` `what is committed is executed`",
    ),
    (
        "LG-S.18",
        Verdict::Agrees,
        "`leaseguard.extend=proactive` (the default) or `demand`; Figure 5 counts the no-ops",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `extend_if_old`",
    ),
    (
        "LG-S.19",
        Verdict::Agrees,
        "a leader that hands over (transfer, SIGTERM, removal) ends its lease first; the next has none to wait for",
        "only if the next knows the end to be committed",
        "`crates/protocols/src/raft/changes.rs` `hand_over`, `crates/sim/tests/mutations/raft.rs` \
         `an_end_of_a_lease_whose_commit_is_not_known`",
    ),
    (
        "LG-S.20",
        Verdict::Agrees,
        "`election.timeout` and `lease.duration`; Figure 5 varies both",
        "except under Ongaro's lease",
        "`crates/protocols/src/raft/mod.rs` `lease.duration`",
    ),
    (
        "LG-S.21",
        Verdict::Agrees,
        "footprints of gets, multi-gets, scans and transactions: keys, or everything",
        "a scan waits if any limbo entry writes, a superset of what it must",
        "`crates/store/src/footprint.rs`",
    ),
    (
        "LG-S.22",
        Verdict::Agrees,
        "each campaign's histories are checked for linearizability, which includes it; Figure 4 has case 2 and \
         3.2, Figure 8 case 3.2, Figures 5 and 7 cases 1, 3.1 and 3.3",
        "by cases that occur in runs, not by one test for each",
        "`crates/check/src/linearizability/mod.rs`",
    ),
    (
        "LG-S.23",
        Verdict::Agrees,
        "checked in true time at every commit of every campaign",
        "",
        "`crates/check/src/read_gate.rs` `no_gate_is_open_when_a_later_leader_commits_what_it_does_not_see`",
    ),
    (
        "LG-S.24",
        Verdict::Agrees,
        "implied by linearizability, and the read gate's checker compares indexes",
        "",
        "`crates/check/src/read_gate.rs`",
    ),
    (
        "LG-S.25",
        Verdict::Agrees,
        "every run of the simulated figures, except those of `inconsistent`, was accepted by the checker, or the \
         command would have failed",
        "",
        "`crates/check/src/linearizability/mod.rs`",
    ),
    (
        "LG-S.26",
        Verdict::Agrees,
        "two leaders at once in Figure 4; campaigns partition groups of up to five, and mutations that need three \
         leaders are caught",
        "",
        "`crates/sim/tests/mutations/raft.rs` `inherited_reads_under_timers`",
    ),
    (
        "LG-S.27",
        Verdict::Agrees,
        "each of the four is a checker of every campaign; MultiPaxos here has another lease",
        "",
        "`crates/check/src/log_matching.rs`, `crates/check/src/leader_completeness.rs`, \
         `crates/check/src/agreement.rs`",
    ),
    (
        "LG-S.28",
        Verdict::Agrees,
        "joint consensus only; campaigns change groups under load",
        "single-server changes are joint changes of one",
        "`crates/check/src/one_change.rs`, `crates/sim/tests/mutations/raft.rs` \
         `two_membership_changes_in_flight`",
    ),
    (
        "LG-S.29",
        Verdict::Agrees,
        "Figure 4: L0 cannot commit and stops reading Δ after its last commit; a full or failed disk stops the \
         process",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `read_gate`",
    ),
    (
        "LG-S.30",
        Verdict::Agrees,
        "what clients write meanwhile is in the log and at the followers when the lease begins; all that is left is to \
         answer (LG-7.7, LG-9.7)",
        "the answers come in one burst, which delays reads for a moment (LG-9.8)",
        "Figures 7 and 9",
    ),
    (
        "LG-S.31",
        Verdict::Agrees,
        "a fault of the simulator: intervals that exclude the truth, on demand (`--faults clocks-beyond-bound`)",
        "the campaign is the simulator's, not this page's",
        "`crates/sim/src/clock.rs`, `crates/sim/src/faults.rs`",
    ),
    (
        "LG-S.32",
        Verdict::Agrees,
        "`leaseguard.clock=timers`, and wherever a node or an entry has no interval; ε is `lease.drift`",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `remaining`",
    ),
    (
        "LG-S.33",
        Verdict::Agrees,
        "inherited reads under timers are caught",
        "",
        "`crates/sim/tests/mutations/raft.rs` `inherited_reads_under_timers`",
    ),
    (
        "LG-S.34",
        Verdict::Agrees,
        "a limbo region without its last entry is caught",
        "one entry less is the smallest way to be without",
        "`crates/sim/tests/mutations/raft.rs` `a_limbo_region_without_its_last_entry`",
    ),
    (
        "LG-S.36",
        Verdict::Agrees,
        "Figures 7 and 9: with Δ = 1 s an Ongaro lease needs ET = 1 s, and its next leader comes that much later",
        "LG-A.7 counts the failures",
        "`crates/protocols/src/raft/elections.rs` `is_bound`",
    ),
    (
        "LG-S.37",
        Verdict::Agrees,
        "without bounded clocks nothing is inherited",
        "",
        "`crates/protocols/src/raft/leaseguard.rs` `trusted`",
    ),
    (
        "LG-S.38",
        Verdict::Differs,
        "followers may answer reads too (`reads.at=nearest`): at an index that they ask the leader for",
        "an addition; the figures do not use it",
        "`crates/protocols/src/raft/reads.rs` `read_here`",
    ),
];
