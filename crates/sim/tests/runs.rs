//! Whole runs of real protocols.

use quorate_protocols::multipaxos::MultiPaxos;
use quorate_sim::{Options, sim};

#[test]
fn a_campaign_passes() {
    let options = Options { runs: 100, ..Options::default() };
    let summary = sim::<MultiPaxos>(&options, &mut |_| {}).unwrap();
    assert!(summary.is_fine(), "{summary}");
}
