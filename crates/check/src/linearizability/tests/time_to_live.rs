//! Keys with a time to live, in nanoseconds of the history.

use super::{Failure, verdict};

#[test]
fn a_key_with_a_time_to_live_goes_once_and_not_before_its_time() {
    let put = "1 0 10 put \"k\" \"a\" always at 50 no = done\n";
    let verdict = |rest: &str| verdict(&format!("{put}{rest}"));
    for accepted in [
        "2 40 41 get \"k\" = value some \"a\"\n 2 60 61 get \"k\" = value none",
        // It may stay for longer, and nobody need look.
        "2 90 91 get \"k\" = value some \"a\"\n 2 95 96 get \"k\" = value none",
        "2 40 51 get \"k\" = value none",
        // Another value has another time, or none.
        "2 20 30 put \"k\" \"b\" always never no = done\n 2 90 91 get \"k\" = value some \"b\"",
        "2 20 30 put \"k\" \"b\" always at 70 no = done\n 2 90 91 get \"k\" = value none",
        "2 55 60 put \"k\" \"b\" if-absent never no = done\n 2 90 91 get \"k\" = value some \"b\"",
        "2 60 70 delete (\"k\") = integer 0",
        "2 60 70 delete (\"k\") = integer 1",
    ] {
        assert_eq!(verdict(accepted), Ok(()), "{accepted}");
    }
    for rejected in [
        "2 40 49 get \"k\" = value none",
        "2 60 61 get \"k\" = value none\n 2 70 71 get \"k\" = value some \"a\"",
        "2 20 30 put \"k\" \"b\" always never no = done\n 2 90 91 get \"k\" = value none",
        "2 20 30 put \"k\" \"b\" always at 70 no = done\n 2 60 61 get \"k\" = value none",
        "2 20 49 put \"k\" \"b\" if-absent never no = done",
        "2 20 30 delete (\"k\") = integer 0",
    ] {
        assert!(matches!(verdict(rejected), Err(Failure::Violation(_))), "{rejected}");
    }
}
