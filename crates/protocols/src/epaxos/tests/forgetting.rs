//! When one of three replicas that remembers too much of what executed instances touch forgets some, where another is
//! away.

use super::*;

/// It has room for one key, and drops batches at once.
fn forgetful() -> Bench {
    let group = Group::of((1..=3).map(node).collect());
    Bench::begin(&group, &["conflicts.keys=1", "log.retain=0"], Saved::nothing())
}

/// It has executed these of node 2, each of which writes another key, and node 2 says so and that it has dropped
/// nothing. It remembers what they touch: their batches are gone.
fn remember(bench: &mut Bench, indexes: std::ops::RangeInclusive<u64>) {
    let last = at(2, *indexes.end());
    indexes.for_each(|index| bench.decide(at(2, index), write(&index.to_string())));
    let executed = on(&[last]);
    bench.take(2, Said::Progress(Progress { executed, ..Progress::default() }));
    bench.durable_progress();
}

/// Node 2 pre-accepts nothing any more that does not depend on this, but for what it has heard of.
fn has_barrier(bench: &mut Bench, barrier: Instance, heard: &[Instance]) {
    let (executed, barrier, heard) = (on(&[barrier]), on(&[barrier]), on(heard));
    bench.take(2, Said::Progress(Progress { executed, barrier, heard, ..Progress::default() }));
}

fn forgotten(bench: &Bench) -> Frontier {
    bench.replica.learner.forgotten()
}

#[test]
fn the_barrier_of_another_is_followed_as_far_as_it_is_executed() {
    let mut bench = forgetful();
    (1..=2).for_each(|index| bench.decide(at(2, index), write("k")));
    has_barrier(&mut bench, at(2, 5), &[]);
    // A crash would undo what is not executed, and others would count on it.
    assert_eq!(bench.progress().barrier, on(&[at(2, 2)]));
}

#[test]
fn the_own_barrier_counts_when_it_is_durable() {
    let (mut bench, last) = (forgetful(), at(2, 9));
    remember(&mut bench, 1..=9);
    has_barrier(&mut bench, last, &[last]);
    let said = bench.progress();
    assert_eq!((said.barrier, said.collected), (on(&[last]), Frontier::default()));
    assert_eq!(bench.progress().collected, on(&[last]), "it remembers what they touch");
    assert_eq!(forgotten(&bench), Frontier::default(), "a crash may undo the barrier");
    bench.take(1, Said::Progress(said));
    bench.progress();
    assert_eq!(forgotten(&bench), on(&[last]));
}

#[test]
fn what_a_majority_had_heard_of_is_executed_first_and_what_it_hears_of_later_need_not_be() {
    let (mut bench, last, [heard, later]) = (forgetful(), at(2, 9), [1, 2].map(|index| at(3, index)));
    remember(&mut bench, 1..=9);
    has_barrier(&mut bench, last, &[last, heard]);
    bench.heartbeats(2);
    assert_eq!(forgotten(&bench), Frontier::default(), "node 2 may have pre-accepted it before");
    // Nobody else may look after it.
    let said: Vec<_> = (0..20).flat_map(|_| bench.tick(100)).collect();
    assert!(said.contains(&"2: Recover".to_owned()), "{said:?}");
    has_barrier(&mut bench, last, &[last, later]);
    bench.durable_progress();
    bench.decide(heard, write("k"));
    bench.durable_progress();
    assert_eq!(forgotten(&bench), on(&[last]));
}

#[test]
fn a_replica_forgets_again_and_again() {
    let mut bench = forgetful();
    for indexes in [1..=9, 10..=18, 19..=27] {
        let last = at(2, *indexes.end());
        remember(&mut bench, indexes);
        has_barrier(&mut bench, last, &[last]);
        bench.heartbeats(3);
        assert_eq!(forgotten(&bench), on(&[last]));
    }
}
