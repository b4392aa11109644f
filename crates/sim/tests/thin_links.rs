//! Groups go on serving where clients fill their links, whatever else happens, and when a minority is gone for good.

use quorate_protocols::registry::named;
use quorate_sim::{Options, sim};

/// Writers of values of up to 64 KiB, over links of 10 to 100 Mbit/s.
pub fn full_links(nodes: usize) -> Options {
    let faults = "all,thin-links".parse().expect("kinds of faults");
    Options { nodes, faults, writers: 24, values: 64 << 10, ..Options::default() }
}

fn assert_serves(protocol: &str, nodes: usize, seeds: &[u64]) {
    for &seed in seeds {
        let summary = sim(named(protocol), &Options { seed, runs: 1, ..full_links(nodes) }, &mut |_| {});
        let summary = summary.expect("valid options");
        assert!(summary.is_fine(), "{protocol}, seed {seed}: {summary}");
    }
}

/// An acceptor told its votes again with each question for them, and a leader sent all to one that was far behind.
#[test]
fn paxos_elects_and_serves_over_full_links() {
    assert_serves("multipaxos", 5, &[8, 25]);
    assert_serves("multipaxos", 3, &[156]);
}

/// A proxy sent all its writes again and again, and did not ask again for a read while it wrote. Whoever read all keys
/// at the end, each behind the writes of others, was not given the time for it (155).
#[test]
fn zab_and_chains_serve_over_full_links() {
    assert_serves("zab", 5, &[9, 109]);
    assert_serves("zab", 3, &[155]);
    assert_serves("chain", 3, &[111]);
}

/// A shadow asked for a page again and again while it was on its way.
#[test]
fn shadows_of_hermes_become_whole_over_full_links() {
    assert_serves("hermes", 5, &[63, 137]);
}

/// Recoveries asked again and again for what came back with large batches.
#[test]
fn epaxos_serves_over_full_links() {
    assert_serves("epaxos", 3, &[112]);
}
