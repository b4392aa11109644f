//! Whole runs of real protocols.

use std::cell::RefCell;
use std::rc::Rc;

use quorate_core::Protocol;
use quorate_protocols::multipaxos::MultiPaxos;
use quorate_protocols::unreplicated::Unreplicated;
use quorate_sim::faults::Kind;
use quorate_sim::trace::Trace;
use quorate_sim::{Options, run, sim};

fn assert_passes<P: Protocol>(options: &Options) {
    let summary = sim::<P>(options, &mut |_| {}).unwrap();
    assert!(summary.is_fine(), "{summary}");
}

#[test]
fn campaigns_pass() {
    let with = |nodes, faults: &str, runs| Options {
        nodes,
        faults: faults.parse().unwrap(),
        runs,
        ..Options::default()
    };
    assert_passes::<MultiPaxos>(&with(3, "all", 100));
    assert_passes::<MultiPaxos>(&with(3, "none", 20));
    assert_passes::<MultiPaxos>(&with(5, "all", 30));
    assert_passes::<MultiPaxos>(&with(1, "all", 20));
    assert_passes::<Unreplicated>(&with(1, "all", 50));
}

#[test]
fn every_kind_of_fault_happens() {
    let options = Options { runs: 100, ..Options::default() };
    let summary = sim::<MultiPaxos>(&options, &mut |_| {}).unwrap();
    for &kind in Kind::ALL {
        let times = summary.faults.of(kind);
        let expected = kind != Kind::ClocksBeyondBound && !kind.needs_membership();
        assert_eq!(times > 10, expected, "{} happened {times} times", kind.name());
    }
    assert!(summary.checkpoints > 1000, "{}", summary.checkpoints);
    assert!(summary.operations > 10_000, "{}", summary.operations);
}

/// Runs a seed; its digest and its whole trace.
fn trace(seed: u64) -> (u64, String) {
    let lines = Rc::new(RefCell::new(String::new()));
    let sink = Rc::clone(&lines);
    let trace = Trace::to(move |line| {
        sink.borrow_mut().push_str(line);
        sink.borrow_mut().push('\n');
    });
    let run = run::<MultiPaxos>(&Options::default(), seed, trace).unwrap();
    (run.digest, lines.take())
}

#[test]
fn equal_seeds_give_byte_identical_traces_and_other_seeds_do_not() {
    for seed in 0..10 {
        let (digest, lines) = trace(seed);
        assert!(lines.lines().count() > 1000, "seed {seed} has a trace");
        assert!(trace(seed) == (digest, lines), "seed {seed} gave two different runs");
        let silent = run::<MultiPaxos>(&Options::default(), seed, Trace::silent()).unwrap();
        assert_eq!(silent.digest, digest, "nobody's listening changes nothing");
        assert_ne!(trace(seed + 1).0, digest);
    }
}
