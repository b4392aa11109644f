//! Each safety rule of MultiPaxos and of the driver, weakened: some seed must notice.
#![cfg(feature = "mutations")]

use quorate_protocols::multipaxos::MultiPaxos;
use quorate_sim::{Options, caught};

#[test]
fn survey() {
    for mutation in [
        "now/Prepare",
        "now/PrepareReply",
        "now/AcceptReply",
        "multipaxos/no-own-revote",
        "slots/count-across-ballots",
        "slots/no-noop",
        "lease/no-drift-margin",
        "lease/no-restart-wait",
        "multipaxos/read-before-recovery",
        "snapshot/no-sessions",
        "disk/torn-record-accepted",
        "driver/stale-now",
    ] {
        let start = std::time::Instant::now();
        let found = caught::<MultiPaxos>(mutation, &Options::default(), 2000).unwrap();
        match found {
            Some((seed, violation)) => {
                println!("{mutation:35} {seed:5} {:.1?} {violation:.200}", start.elapsed())
            }
            None => println!("{mutation:35} NOT CAUGHT {:.1?}", start.elapsed()),
        }
    }
}
