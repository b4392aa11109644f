//! How far a replica follows what others say, and how much of its own it has under way.

use quorate_blocks::clients::Ask;

use super::clients::{ask_for, open_session, proposed, with_session};
use super::*;
use crate::epaxos::graph::learner::{LOOK_AHEAD, MAX_GAP};

/// A peer has executed a hundred thousand instances of node 2, as it says.
#[test]
fn what_others_say_to_exist_is_followed_so_far_and_looked_after_one_part_at_a_time() {
    let mut bench = Bench::new(&[], 0);
    let executed = on(&[at(2, 100_000)]);
    bench.take(3, Said::Progress(Progress { executed, ..Progress::default() }));
    assert_eq!(bench.progress().heard, on(&[at(2, MAX_GAP)]));
    let all: Vec<_> = (1..=1 + LOOK_AHEAD).map(|index| at(2, index)).collect();
    assert_eq!(bench.replica.learner.undecided(), all);
    bench.decide(at(2, 1), batch(1));
    assert_eq!(bench.replica.learner.undecided().last(), Some(&at(2, 2 + LOOK_AHEAD)));
}

#[test]
fn nothing_is_kept_of_an_instance_that_is_too_far_ahead_or_of_no_member() {
    let mut bench = Bench::new(&[], 0);
    for (instance, admits) in [(at(2, MAX_GAP), true), (at(2, MAX_GAP + 1), false), (at(4, 1), false)] {
        assert_eq!(bench.replica.learner.admits(instance), admits, "{instance:?}");
        let (value, deps) = (batch(1), Frontier::default());
        bench.take(2, Message::PreAccept { instance, value, deps });
        assert_eq!(bench.replica.learner.get(instance).is_some(), admits, "{instance:?}");
    }
}

/// It would be a no-op before it is proposed.
#[test]
fn an_own_instance_that_was_not_proposed_is_not_recovered_whatever_depends_on_it() {
    let mut bench = Bench::new(&[at(1, 1)], 1);
    let (instance, value, deps) = (at(2, 1), Some(batch(1)), on(&[at(1, 3)]));
    bench.take(2, Message::Commit { instance, value, deps });
    assert_eq!(bench.replica.learner.undecided(), [at(1, 1)]);
}

#[test]
fn so_many_own_instances_are_under_way_at_a_time() {
    let (mut bench, session, _) = with_session(&["pipeline=1"]);
    let write = |bench: &mut Bench, seq| {
        let write = (seq, Command::Increment { key: Bytes::from_static(b"k"), by: 1 }.to_bytes());
        ask_for(bench, Ask { session, open: false, writes: vec![write], ..open_session() })
    };
    let (_, deps) = proposed(&write(&mut bench, 1), 2).expect("nothing is under way");
    assert_eq!(proposed(&write(&mut bench, 2), 3), None);
    bench.take(2, Message::PreAcceptReply { instance: at(1, 2), deps });
    let said = bench.take(1, Message::Commit { instance: at(1, 2), value: None, deps });
    assert!(proposed(&said, 3).is_some(), "the one before is executed");
}
