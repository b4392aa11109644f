//! Which snapshots a replica takes over, and what it knows then. One that it has asked for comes when it knows more
//! than it did then, and its source may lie.

use quorate_blocks::catchup;
use quorate_blocks::clients::Ask;

use super::clients::{ask_for, open_session, proposed, with_session};
use super::recovery::{recovered, say};
use super::rejoining::rejoining;
use super::*;

/// What a replica misses, since node 2 has executed and collected it.
fn missing() -> Instance {
    at(2, 1)
}

fn of_snapshots(messages: Vec<Message>) -> Vec<catchup::Message> {
    let said = messages.into_iter().filter_map(|message| match message {
        Message::Learner(Said::Catchup(message)) => Some(message),
        _ => None,
    });
    said.collect()
}

/// The replica hears that node 2 has executed this and nobody else tells it: it asks that one for a snapshot.
fn ask(bench: &mut Bench, instance: Instance) -> catchup::Message {
    let (executed, collected) = (on(&[instance]), on(&[instance]));
    bench.take(2, Said::Progress(Progress { executed, collected, ..Progress::default() }));
    let tick = |bench: &mut Bench| bench.turn(100, |replica, cx| replica.on_timer(Timer::Tick, cx));
    let asked: Vec<_> = (0..3).flat_map(|_| of_snapshots(tick(bench))).collect();
    asked.into_iter().next().expect("it asks")
}

/// The conversation from this question on.
fn transfer(bench: &mut Bench, source: &mut Bench, question: catchup::Message) {
    let mut questions = vec![question];
    while let Some(question) = questions.pop() {
        for answer in of_snapshots(source.take(3, Said::Catchup(question))) {
            questions.extend(of_snapshots(bench.take(2, Said::Catchup(answer))));
        }
    }
}

/// One of three that was sent a snapshot of a source that has executed these. It came late; meanwhile something has
/// happened.
fn sent(executed: &[Instance], meanwhile: impl FnOnce(&mut Bench)) -> Bench {
    let (mut bench, mut source) = (Bench::new(&[], 0), Bench::new(&[at(1, 1)], 1));
    executed.iter().for_each(|instance| source.decide(*instance, batch(1)));
    let question = ask(&mut bench, missing());
    meanwhile(&mut bench);
    transfer(&mut bench, &mut source, question);
    bench
}

fn has_taken_it(bench: &Bench) -> bool {
    bench.out.records.contains(&Record::Installed)
}

#[test]
fn a_snapshot_is_taken_over_if_it_brings_something_and_takes_nothing_away() {
    let (another, own) = (at(3, 1), at(1, 1));
    let takes = |executed: &[Instance], meanwhile: fn(&mut Bench)| has_taken_it(&sent(executed, meanwhile));
    let executes = |bench: &mut Bench| bench.decide(at(3, 1), batch(1));
    let collects = |bench: &mut Bench| {
        bench.decide(at(3, 1), batch(1));
        bench.collect(at(3, 1));
    };
    assert!(takes(&[missing()], |_| ()));
    assert!(takes(&[missing()], executes), "that is executed again, on top of it");
    // Its batch is gone. Others need not tell it to a replica that has said that it has executed it, and after a
    // restart this one would be a member of every quorum that does not know of it.
    assert!(!takes(&[missing()], collects), "it lacks what was dropped here");
    assert!(takes(&[missing(), another], collects));
    assert!(!takes(&[missing()], |bench| bench.decide(missing(), batch(1))), "another has told it");
    assert!(!takes(&[missing(), own], |_| ()), "a lie: this replica has not proposed it");
}

/// Whoever is asked for the same again offers the same, for as long as it is asked.
#[test]
fn behind_a_snapshot_that_was_refused_one_of_more_is_asked_for() {
    let mut bench = sent(&[missing()], |bench| {
        bench.decide(at(3, 1), batch(1));
        bench.collect(at(3, 1));
    });
    let tick = |bench: &mut Bench| bench.turn(100, |replica, cx| replica.on_timer(Timer::Tick, cx));
    let next = (0..50).find_map(|_| of_snapshots(tick(&mut bench)).into_iter().next());
    assert!(matches!(next, Some(catchup::Message::Fetch { from: 2, .. })), "{next:?}");
}

/// It has none of its own, and the next that it proposes comes behind those of its earlier life.
#[test]
fn who_rejoins_takes_over_a_snapshot_with_what_an_earlier_life_has_proposed() {
    let (mut bench, mut source) = (rejoining(), Bench::new(&[at(1, 1)], 1));
    for instance in [at(1, 1), missing()] {
        source.decide(instance, batch(1));
    }
    let question = ask(&mut bench, missing());
    transfer(&mut bench, &mut source, question);
    assert!(has_taken_it(&bench) && bench.replica.learner.is_executed(at(1, 1)));
    let saved = quorate_core::Replica::save(&bench.replica).records;
    assert!(saved.iter().any(|record| matches!(record, Record::Saved { next: 2, .. })), "{saved:?}");
}

#[test]
fn what_a_snapshot_lacks_is_executed_on_top_of_it() {
    let bench = sent(&[missing()], |bench| bench.decide(at(3, 1), batch(1)));
    assert!(has_taken_it(&bench) && bench.replica.learner.is_executed(at(3, 1)));
}

/// A crash may undo the decision, and nobody else may know of it: what it leads to must not be shown.
#[test]
fn a_decision_that_is_not_durable_is_not_executed_on_top_of_a_snapshot() {
    let (instance, deps) = (at(3, 1), Frontier::default());
    let mut bench = sent(&[missing()], |bench| {
        bench.accept(instance, 1, &[1]);
        for voter in [1, 2] {
            bench.take(voter, Message::AcceptReply { instance, ballot: ballot(1, 1) });
        }
    });
    assert!(has_taken_it(&bench) && bench.replica.learner.get(instance).expect("known").is_committed());
    assert!(!bench.replica.learner.is_executed(instance));
    bench.take(1, Message::Commit { instance, value: None, deps });
    assert!(bench.replica.learner.is_executed(instance), "now it is durable");
}

#[test]
fn recoveries_that_wait_are_forgotten_with_what_a_snapshot_brings() {
    let waits = Message::Waiting { instance: missing(), count: 1 };
    let bench = sent(&[missing()], |bench| drop(bench.take(3, waits)));
    assert!(has_taken_it(&bench) && bench.replica.waits.is_empty());
}

/// Node 4 of five had proposed a write of the key, and it was decided; the others do not keep it. Whoever recovers
/// another write of the key, which does not depend on it, asks this replica, and one that has a snapshot of it.
#[test]
fn what_was_dropped_speaks_against_what_does_not_depend_on_it_and_a_no_op_does_not() {
    let (other, nobody) = (at(4, 1), Frontier::default());
    for (value, expected) in [(write("k"), "4.1 is decided"), (Batch::noop(), "nothing against it")] {
        // The source has dropped it, or would if it had no room.
        for retain in ["log.retain=0", "log.retain=1MiB"] {
            let group = Group::of((1..=5).map(node).collect());
            let mut source = Bench::begin(&group, &[retain], Saved::nothing());
            source.take(4, Message::PreAccept { instance: other, value: write("k"), deps: nobody });
            source.decide(other, value.clone());
            for member in 2..=3 {
                let executed = on(&[other]);
                source.take(member, Said::Progress(Progress { executed, ..Progress::default() }));
            }
            source.heartbeats(2);
            assert_eq!(source.replica.learner.get(other).is_none(), retain == "log.retain=0");
            let mut bench = Bench::begin(&group, &[], Saved::nothing());
            let question = ask(&mut bench, other);
            transfer(&mut bench, &mut source, question);
            assert!(has_taken_it(&bench));
            let (instance, ballot) = (recovered(), ballot(1, 3));
            for asked in [&mut source, &mut bench] {
                say(asked, 3, Message::Recover { instance, ballot });
                let question = Message::Validate { instance, ballot, value: write("k"), deps: nobody };
                assert_eq!(say(asked, 3, question), expected, "{retain}");
            }
        }
    }
}

/// It would be asked for what it cannot tell, again and again, instead of for a snapshot.
#[test]
fn who_comes_back_says_what_it_has_dropped() {
    let (mut bench, instance) = (Bench::new(&[], 0), at(3, 1));
    bench.decide(instance, batch(1));
    bench.collect(instance);
    let group = Group::of((1..=3).map(node).collect());
    let mut bench = Bench::begin(&group, &[], quorate_core::Replica::save(&bench.replica));
    assert_eq!(bench.progress().collected, on(&[instance]));
}

#[test]
fn a_snapshot_that_nobody_asks_for_any_more_is_not_kept_in_memory() {
    let (mut bench, mut source) = (Bench::new(&[], 0), Bench::new(&[], 0));
    source.decide(missing(), batch(1));
    let question = ask(&mut bench, missing());
    let answers = of_snapshots(source.take(3, Said::Catchup(question)));
    let Some(catchup::Message::Piece(catchup::Piece { image, asked, .. })) = answers.into_iter().next()
    else {
        panic!("it offers one")
    };
    let mut more = |after: u64| {
        source.turn(after, |replica, cx| replica.on_timer(Timer::Tick, cx));
        let question = catchup::Message::More { image, cursor: Bytes::new(), asked };
        let answer = of_snapshots(source.take(3, Said::Catchup(question))).into_iter().next();
        !matches!(answer, Some(catchup::Message::Gone { .. }))
    };
    assert!(more(9_000) && more(9_000), "it is asked for");
    assert!(!more(11_000));
}

/// A snapshot hides what became of it. Where it was a no-op, whoever has asked waits for ever, since repetitions of
/// what is under way are not proposed.
#[test]
fn what_clients_asked_for_in_an_instance_that_a_snapshot_brings_is_proposed_again() {
    let read = (1, Command::Get { key: Bytes::from_static(b"k") }.to_bytes());
    let write = (1, Command::Increment { key: Bytes::from_static(b"k"), by: 1 }.to_bytes());
    for (writes, reads) in [(vec![write], vec![]), (vec![], vec![read])] {
        let (mut bench, session, value) = with_session(&[]);
        let ask_again = Ask { session, open: false, writes, reads, ..open_session() };
        assert!(proposed(&ask_for(&mut bench, ask_again.clone()), 2).is_some());
        assert!(proposed(&ask_for(&mut bench, ask_again.clone()), 3).is_none(), "it is under way");
        let mut source = Bench::of(3, &[at(1, 1), at(1, 2)], value.clone());
        source.decide(at(1, 1), value);
        source.decide(at(1, 2), Batch::noop());
        source.decide(missing(), batch(1));
        let question = ask(&mut bench, missing());
        transfer(&mut bench, &mut source, question);
        assert!(has_taken_it(&bench));
        ask_for(&mut bench, ask_again);
        assert!(bench.replica.learner.get(at(1, 3)).is_some());
    }
}
