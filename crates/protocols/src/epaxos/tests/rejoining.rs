//! What one of three replicas that has lost its disk says, and takes for an answer.

use super::*;

/// It has an empty disk, and is told that it had another.
pub(super) fn rejoining() -> Bench {
    let group = Group { rejoining: true, ..Group::of((1..=3).map(node).collect()) };
    Bench::begin(&group, &[], Saved::nothing())
}

/// A heartbeat later: the number of its question, if it asks.
fn question(bench: &mut Bench) -> Option<u64> {
    let said = bench.turn(100, |replica, cx| replica.on_timer(Timer::Tick, cx));
    said.into_iter().find_map(|message| match message {
        Message::Learner(Said::Rejoin { life, .. }) => Some(life),
        _ => None,
    })
}

fn is_whole(bench: &Bench) -> bool {
    bench.replica.learner.is_whole()
}

/// Members have heard of these, say so, and have executed the second. The number of the question.
fn answer(bench: &mut Bench, known: [Instance; 2]) -> u64 {
    let life = question(bench).expect("it asks");
    for member in 2..=3 {
        bench.take(member, Said::RejoinReply { life, known: on(&known) });
        let executed = on(&known[1..]);
        bench.take(member, Said::Progress(Progress { executed, ..Progress::default() }));
    }
    life
}

/// An answer to an earlier question does not count: it may have been given before a vote that this one would have
/// told. An answer that is late does not say that the own disk has written anything.
#[test]
fn answers_to_the_last_question_count_and_then_the_own_disk() {
    let mut bench = rejoining();
    let life = question(&mut bench).expect("it asks");
    let reply = |life| Said::RejoinReply { life, known: Frontier::default() };
    bench.take(2, reply(life ^ 1));
    bench.take(3, reply(life));
    assert_eq!(question(&mut bench), Some(life), "node 2 has not answered this one");
    bench.take(2, reply(life));
    assert_eq!((question(&mut bench), is_whole(&bench)), (None, false), "its disk has not written that");
    bench.take(2, reply(life));
    assert!(!is_whole(&bench), "another does not know");
    bench.take(1, reply(life));
    assert!(is_whole(&bench));
}

/// Its earlier life may have promised to pre-accept only what depends on all that it had executed; and what it had
/// proposed may depend on nothing, until a majority has executed that.
#[test]
fn who_rejoins_promises_nothing_that_an_earlier_life_may_have_broken_and_keeps_what_that_has_promised() {
    let (mut bench, own, other) = (rejoining(), at(1, 1), at(2, 1));
    let all = on(&[own, other]);
    let life = answer(&mut bench, [own, other]);
    bench.decide(other, batch(1));
    assert_eq!(bench.durable_progress(), Progress { heard: all, ..Progress::default() });
    bench.decide(own, batch(1));
    bench.progress();
    bench.take(1, Said::RejoinReply { life, known: Frontier::default() });
    assert!(is_whole(&bench));
    let Progress { barrier, floor, .. } = bench.progress();
    assert_eq!((barrier, floor), (all, Frontier::default()), "the others may not have executed its own");
    bench.take(2, Said::Progress(Progress { executed: all, ..Progress::default() }));
    assert_eq!(bench.progress().floor, all);
}

/// It has given a vote that names them, which somebody may have counted; nobody else may have heard of them.
#[test]
fn who_is_asked_by_one_that_rejoins_tells_of_all_that_it_has_read() {
    let mut state = State::default();
    state.pre_accept(on(&[at(3, 4)]), on(&[at(2, 7)]));
    let changed = Record::Changed { instance: at(2, 1), state, command: Some(batch(1)) };
    let said = Bench::recover(3, vec![changed]).take(3, Said::Rejoin { life: 1, union: Frontier::default() });
    let known = said.iter().find_map(|message| match message {
        Message::Learner(Said::RejoinReply { known, .. }) => Some(*known),
        _ => None,
    });
    assert_eq!(known, Some(on(&[at(2, 7), at(3, 4)])));
}

/// Something that is decided depends on an instance of its earlier life of which those that it asked had not heard.
#[test]
fn what_anybody_names_before_one_is_whole_is_none_that_it_proposes() {
    let (mut bench, own, other) = (rejoining(), at(1, 1), at(2, 1));
    let life = answer(&mut bench, [own, other]);
    let (instance, value, deps) = (at(2, 2), Some(batch(1)), on(&[at(1, 5)]));
    bench.take(2, Message::Commit { instance, value, deps });
    bench.decide(other, batch(1));
    bench.decide(own, batch(1));
    bench.progress();
    bench.take(1, Said::RejoinReply { life, known: Frontier::default() });
    let exists = |bench: &mut Bench| {
        assert!(is_whole(bench));
        [5, 6].map(|index| bench.replica.learner.admits(at(1, index)))
    };
    assert_eq!(exists(&mut bench), [true, false]);
    assert_eq!(exists(&mut bench.restart()), [true, false]);
}

/// Of five, two may have lost their disks at once. Node 4 has, and takes part again when node 5 has lost its own.
#[test]
fn who_has_answered_counts_no_more_as_one_that_rejoins() {
    let group = Group { rejoining: true, ..Group::of((1..=5).map(node).collect()) };
    let mut bench = Bench::begin(&group, &[], Saved::nothing());
    let known = Frontier::default();
    let rejoin = || Said::Rejoin { life: 1, union: known };
    bench.take(4, rejoin());
    let life = question(&mut bench).expect("it asks");
    bench.take(4, Said::RejoinReply { life, known });
    bench.take(5, rejoin());
    let life = question(&mut bench).expect("it asks all again");
    for member in 2..=4 {
        assert!(question(&mut bench).is_some());
        bench.take(member, Said::RejoinReply { life, known });
    }
    assert_eq!(question(&mut bench), None, "it does without node 5, which cannot answer");
}

/// Only one that rejoins may know of it, as a dependency, and that one recovers nothing.
#[test]
fn what_one_that_rejoins_waits_for_is_recovered_by_others() {
    let mut bench = Bench::new(&[], 0);
    bench.hear(3, Said::Rejoin { life: 1, union: on(&[at(2, 1)]) }, 0);
    let said: Vec<_> = (0..20).flat_map(|_| bench.tick(100)).collect();
    assert!(said.contains(&"3: Recover".to_owned()), "{said:?}");
}
