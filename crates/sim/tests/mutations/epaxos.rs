//! Each safety rule of EPaxos*, weakened on purpose.

use quorate_protocols::epaxos::Epaxos;

/// Owners are suspected soon: more recoveries in a run.
const RESTLESS: &[&str] = &["heartbeat=10ms", "recovery.timeout=30ms", "proxy.patience=40ms"];

caught! { Epaxos,
    // Every `AfterSync` made `Now`.
    an_index_that_is_given_away_before_it_is_durable: "now/PreAccept" with RESTLESS;
    a_pre_acceptance_that_leaves_before_it_is_durable: "now/PreAcceptReply" with RESTLESS;
    a_vote_that_leaves_before_it_is_durable: "now/AcceptReply" with RESTLESS;
    a_ballot_that_is_joined_before_it_is_durable: "now/RecoverReply" with RESTLESS;
    a_proposal_that_is_learnt_from_another_before_it_is_durable: "now/ValidateReply" with RESTLESS, of 5;
    a_ballot_that_is_taken_before_it_is_durable: "now/Recover" with RESTLESS;
    a_commit_on_the_fast_path_that_its_owner_may_forget: "now/Commit" with RESTLESS;
    // Quorums and ballots.
    one_variable_for_both_ballots: "epaxos/one-ballot" with RESTLESS;
    a_fast_quorum_that_is_a_majority: "epaxos/small-fast-quorum" with RESTLESS, of 7;
    a_recovery_that_validates_nothing: "epaxos/no-validation" with RESTLESS, of 5;
    // Execution.
    dependencies_of_the_wrong_parent: "graph/wrong-parent";
    a_time_that_depends_on_the_order_of_others: "state/shared-time";
}
