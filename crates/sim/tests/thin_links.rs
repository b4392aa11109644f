//! Groups go on serving where clients fill their links, whatever else happens, and when a minority is gone for good.

use std::time::Duration;

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

/// Recoveries asked again and again for what came back with large batches (112). Batches came to those who had them,
/// who rejoined or were silent, and with votes that made no-ops of them (137). Who was gone for good was asked as often
/// as others for what was missing, each time for seconds (243).
#[test]
fn epaxos_serves_over_full_links() {
    assert_serves("epaxos", 3, &[112, 137, 243]);
}

/// How long EPaxos answers no write in seed 137, where it has two of three for it.
pub fn longest_wait_of_epaxos() -> Duration {
    let options = Options { seed: 137, runs: 1, ..full_links(3) };
    sim(named("epaxos"), &options, &mut |_| {}).expect("valid options").longest_wait.0
}

#[test]
fn epaxos_serves_soon_over_full_links() {
    let wait = longest_wait_of_epaxos();
    assert!(wait < Duration::from_secs(5), "{wait:?}");
}
