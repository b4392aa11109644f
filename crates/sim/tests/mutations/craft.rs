//! Each safety rule of entries in shards, weakened on purpose.

caught! { "craft",
    an_entry_in_shards_that_a_bare_majority_commits: "craft/bare-majority-of-shards", of 5, under "all", at 47;
    a_fallback_after_which_a_bare_majority_of_shards_is_enough:
        "craft/bare-majority-after-fallback", of 5, under "all", at 164;
    an_entry_that_is_dropped_before_a_majority_has_answered:
        "craft/drop-with-too-few-answers", of 5, under "all", at 19;
    an_entry_that_is_executed_without_its_value: "log/partial-executed", of 5, under "all";
    a_shard_that_is_acknowledged_before_it_is_durable: "now/PartialReply", of 5, under "all", at 38;
}
