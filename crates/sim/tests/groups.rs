//! Several groups in each process: every group's checkers, in the same run.

use std::cell::RefCell;
use std::rc::Rc;

use quorate_groups::Groups;
use quorate_protocols::registry::named;
use quorate_sim::faults::Kind;
use quorate_sim::trace::Trace;
use quorate_sim::{Options, replay, run, sim};

/// Where the clients' keys are divided, too.
const MIXED: &str = "a-m=crossword,n-r=raft,s-v=multipaxos,w-z=epaxos";

#[test]
fn groups_of_different_protocols_survive_the_first_seeds() {
    let options = Options { nodes: 5, ..Options::default() };
    for (protocol, groups, keys) in
        [("multipaxos", "5", Some("h,n,s,w")), ("raft", "3", Some("n,s")), ("multipaxos", MIXED, None)]
    {
        let groups = Groups::parse(named(protocol), groups, keys).unwrap();
        for seed in 0..8 {
            let run = run(&groups, &options, seed, Trace::silent()).expect("valid options");
            assert!(run.is_fine() && run.operations > 0, "{MIXED}: seed {seed}: {:?}", run.violation);
        }
    }
}

/// So they have different members most of the time.
#[test]
fn each_group_changes_its_members_for_itself() {
    let options = Options { runs: 40, ..Options::default() };
    let groups = Groups::parse(named("raft"), "3", Some("n,s")).unwrap();
    let summary = sim(&groups, &options, &mut |_| {}).expect("valid options");
    assert!(summary.is_fine() && summary.faults.of(Kind::MemberChanges) > 100, "{summary}");
}

/// A vote was counted as durable only with a record after it, which waited behind another group's snapshot.
#[test]
fn a_vote_is_durable_with_its_own_record() {
    let options = Options { nodes: 5, ..Options::default() };
    for (protocol, groups, keys, seed) in [
        ("multipaxos", "a-m=crossword,n-r=raft,s-v,w-z=epaxos", None, 1602),
        ("multipaxos", "5", Some("h,n,s,w"), 621),
        ("crossword", "3", Some("n,s"), 1816),
    ] {
        let groups = Groups::parse(named(protocol), groups, keys).unwrap();
        let run = run(&groups, &options, seed, Trace::silent()).expect("valid options");
        assert!(run.is_fine(), "seed {seed}: {:?}", run.violation);
    }
}

/// Wall clocks had been set forward by more than idle sessions last. Each group's time leaps with the first write that
/// it executes afterwards, and a client has a session in each: its first write in each of them finds it ended.
#[test]
fn a_leap_of_time_ends_each_session_once() {
    for (protocol, nodes, groups, keys, seed) in
        [("raft", 3, "3", "n,s", 5840), ("multipaxos", 5, "5", "h,n,s,w", 5352)]
    {
        let groups = Groups::parse(named(protocol), groups, Some(keys)).unwrap();
        let options = Options { nodes, ..Options::default() };
        let run = run(&groups, &options, seed, Trace::silent()).expect("valid options");
        assert!(run.is_fine(), "seed {seed}: {:?}", run.violation);
    }
}

/// Facts, messages and records carry their group, and each group leads, decides and executes.
#[test]
fn a_trace_shows_what_each_group_does() {
    let groups = Groups::parse(named("raft"), "3", Some("n,s")).unwrap();
    let said = Rc::new(RefCell::new(Vec::new()));
    let sink = said.clone();
    let options = Options { seed: 1, ..Options::default() };
    let run = replay(&groups, &options, move |line| sink.borrow_mut().push(line.to_owned()));
    let run = run.expect("valid options");
    assert!(run.is_fine(), "{:?}", run.violation);
    let lines = said.borrow();
    for group in 1..=3 {
        for words in ["fact ", "persist "] {
            let start = format!("{words}{group}:");
            assert!(lines.iter().any(|line| line.contains(&start)), "{start}");
        }
        let executed = format!("fact {group}:Executed");
        assert!(lines.iter().any(|line| line.contains(&executed)), "{executed}");
    }
}
