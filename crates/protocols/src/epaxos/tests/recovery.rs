//! What a replica of five says to who recovers an instance, and what one that recovers it makes of the answers: as a
//! table each. Five replicas have fast and slow quorums of three, and two may be missing (*e* = 2).

use super::*;
use crate::epaxos::graph::{Phase, Vote};

/// The instance that is recovered.
pub(super) fn recovered() -> Instance {
    at(5, 1)
}

/// A batch that writes the one key which all batches here write.
fn write() -> Bytes {
    super::write("k")
}

/// What this replica says, to whomever, of what it asks or answers and of what it proposes.
pub(super) fn say(bench: &mut Bench, from: u64, message: Message) -> String {
    let mut cx = Context::new(node(1).into(), instant(bench.millis), &mut bench.random, &mut bench.out);
    bench.replica.on_message(node(from).into(), message, &mut cx);
    said(bench)
}

/// These come, each from whoever may say it.
fn tell(bench: &mut Bench, messages: Vec<Message>) {
    for message in messages {
        let from = match &message {
            Message::Recover { ballot, .. } | Message::Accept { ballot, .. } => ballot.node(),
            Message::Validate { ballot, .. } => ballot.node(),
            Message::PreAccept { instance, .. } | Message::Commit { instance, .. } => Some(instance.owner()),
            _ => None,
        };
        say(bench, from.expect("it says who may say it").get().into(), message);
    }
}

fn said(bench: &mut Bench) -> String {
    let mut said = Vec::new();
    for outgoing in bench.out.messages.drain(..) {
        let what = match outgoing.message {
            Message::Accept { value: Some(value), .. } if value.is_empty() => "no-op".to_owned(),
            Message::Accept { .. } => "batch".to_owned(),
            Message::Validate { .. } => "validates".to_owned(),
            Message::Waiting { .. } => "waits".to_owned(),
            Message::ValidateReply { against, .. } => {
                let one = |(other, committed): &(Instance, bool)| {
                    format!("{other:?} {}", if *committed { "is decided" } else { "may be" })
                };
                let all: Vec<_> = against.iter().map(one).collect();
                if all.is_empty() { "nothing against it".to_owned() } else { all.join(", ") }
            }
            _ => continue,
        };
        if !said.contains(&what) {
            said.push(what);
        }
    }
    said.join(", ")
}

/// A vote: `same` as proposed, with `more` dependencies, `none`, or for the batch in a ballot (`voted`).
fn vote(word: &str) -> Vote {
    let (value, deps) = (Some(write()), Frontier::default());
    let none = Vote { voted: Ballot::ZERO, phase: Phase::Initial, value: None, deps, init: None };
    match word {
        "none" => none,
        "same" => Vote { phase: Phase::PreAccepted, value, init: Some(deps), ..none },
        "more" => Vote { phase: Phase::PreAccepted, value, init: Some(deps), deps: on(&[at(3, 1)]), ..none },
        "voted" => Vote { phase: Phase::Accepted, voted: ballot(1, 4), value, init: Some(deps), ..none },
        other => panic!("{other}"),
    }
}

/// The ballot in which this replica recovers.
fn own() -> Ballot {
    ballot(1, 1)
}

fn reply(word: &str) -> Message {
    Message::RecoverReply { instance: recovered(), ballot: own(), vote: vote(word) }
}

/// Nodes 1 (this replica), 2 and 3 have told what they know; these votes are of 2 and 3.
fn validating(votes: [&str; 2]) -> Bench {
    let mut bench = Bench::of(5, &[recovered()], write());
    let mut cx = Context::new(node(1).into(), instant(0), &mut bench.random, &mut bench.out);
    bench.replica.recover_instance(recovered(), &mut cx);
    assert_eq!(say(&mut bench, 2, reply(votes[0])), "");
    assert_eq!(say(&mut bench, 3, reply(votes[1])), "validates");
    bench
}

/// All three have answered, node 2 with what speaks against the batch: what comes of it.
fn validated(bench: &mut Bench, against: &[(Instance, bool)]) -> String {
    let answer = |against: &[(Instance, bool)]| {
        let (instance, ballot, forgotten) = (recovered(), own(), Frontier::default());
        Message::ValidateReply { instance, ballot, against: against.to_vec(), forgotten }
    };
    assert_eq!(say(bench, 1, answer(&[])), "");
    assert_eq!(say(bench, 3, answer(&[])), "");
    say(bench, 2, answer(against))
}

#[test]
fn a_late_vote_decides_what_others_could_not() {
    // who votes late, and how → what this replica does
    let table = [
        (4, "same", ""),
        (4, "none", "no-op"),
        (4, "more", "no-op"),
        (4, "voted", "batch"),
        (5, "same", "no-op"),
        (2, "none", ""),
    ];
    for (late, word, expected) in table {
        let mut bench = validating(["none", "none"]);
        assert_eq!(say(&mut bench, late, reply(word)), expected, "{late} {word}, while it validates");
        let mut bench = validating(["none", "none"]);
        assert_eq!(validated(&mut bench, &[(at(2, 1), false)]), "waits");
        assert_eq!(say(&mut bench, late, reply(word)), expected, "{late} {word}, while it waits");
    }
    let mut bench = validating(["same", "none"]);
    assert_eq!(say(&mut bench, 4, reply("none")), "", "two may be missing in a fast quorum");
    assert_eq!(say(&mut bench, 4, reply("none")), "", "the same once more");
}

#[test]
fn what_speaks_against_a_batch_ends_it_or_is_waited_for() {
    let (decided, may_be) = (true, false);
    // the votes of 2 and 3, what speaks against it → what this replica does
    let table: [(_, &[_], _); 7] = [
        (["none", "none"], &[], "batch"),
        (["none", "none"], &[(at(2, 1), may_be)], "waits"),
        (["none", "none"], &[(at(2, 1), decided)], "no-op"),
        // No more than two are missing if all others have pre-accepted it, and the owner of the other is one of those.
        (["none", "none"], &[(at(4, 1), may_be)], "no-op"),
        (["same", "none"], &[(at(4, 1), may_be)], "waits"),
        (["same", "none"], &[(at(2, 1), may_be), (at(4, 1), decided)], "no-op"),
        (["same", "same"], &[(at(4, 1), may_be)], "waits"),
    ];
    for (votes, against, expected) in table {
        assert_eq!(validated(&mut validating(votes), against), expected, "{votes:?} {against:?}");
    }
}

#[test]
fn who_waits_gives_way_to_one_that_more_than_one_has_pre_accepted() {
    let other = at(2, 1);
    let commit = |value, deps| Message::Commit { instance: other, value: Some(value), deps };
    let waits = |instance, count| Message::Waiting { instance, count };
    // what it hears → what it does
    let table = [
        (waits(other, 1), ""),
        (waits(other, 2), "no-op"),
        (waits(at(3, 1), 2), ""),
        (commit(write(), on(&[recovered()])), "batch"),
        (commit(write(), Frontier::default()), "no-op"),
        (commit(Batch::noop(), Frontier::default()), "batch"),
    ];
    for (message, expected) in table {
        let mut bench = validating(["none", "none"]);
        assert_eq!(validated(&mut bench, &[(other, false)]), "waits");
        let heard = format!("{message:?}");
        assert_eq!(say(&mut bench, 2, message), expected, "{heard}");
    }
}

/// The decision may be lost in a crash, and another be made, which this one would contradict.
#[test]
fn who_waits_acts_on_a_decision_of_its_own_when_that_is_durable() {
    let (mut bench, other) = (validating(["none", "none"]), at(2, 1));
    assert_eq!(validated(&mut bench, &[(other, false)]), "waits");
    bench.accept(other, 1, &[1]);
    for voter in [1, 2, 3] {
        say(&mut bench, voter, Message::AcceptReply { instance: other, ballot: own() });
    }
    assert!(bench.replica.learner.get(other).expect("known").is_committed());
    assert_eq!(
        say(&mut bench, 3, Message::Waiting { instance: at(3, 1), count: 1 }),
        "",
        "nothing is durable"
    );
    let commit = Message::Commit { instance: other, value: None, deps: Frontier::default() };
    assert_eq!(say(&mut bench, 1, commit), "no-op");
}

/// Whoever has told of it may be gone by the time at which it matters.
#[test]
fn what_is_waited_for_is_looked_after() {
    let (mut bench, other) = (validating(["none", "none"]), at(2, 1));
    assert!(!bench.replica.learner.undecided().contains(&other));
    assert_eq!(validated(&mut bench, &[(other, false)]), "waits");
    assert!(bench.replica.learner.undecided().contains(&other));
}

#[test]
fn who_waits_is_forgotten_when_it_is_decided() {
    let mut bench = Bench::of(5, &[], write());
    let instance = at(2, 1);
    say(&mut bench, 2, Message::Waiting { instance, count: 1 });
    assert_eq!(bench.replica.waits.len(), 1);
    say(&mut bench, 2, Message::Commit { instance, value: Some(write()), deps: Frontier::default() });
    assert_eq!(bench.replica.waits.len(), 0);
    say(&mut bench, 3, Message::Waiting { instance, count: 1 });
    assert_eq!(bench.replica.waits.len(), 0, "it comes late");
    let mut bench = Bench::new(&[], 0);
    bench.decide(instance, write());
    bench.collect(instance);
    say(&mut bench, 3, Message::Waiting { instance, count: 1 });
    assert_eq!(bench.replica.waits.len(), 0, "it comes very late");
}

/// The other has one of the states that a replica can have it in.
#[test]
fn a_validation_names_what_interferes_and_does_not_know_of_the_instance() {
    let other = at(4, 1);
    let knowing = || on(&[recovered()]);
    let nobody = Frontier::default;
    let pre_accept = |deps| Message::PreAccept { instance: other, value: write(), deps };
    let accept = |value| Message::Accept { instance: other, ballot: ballot(1, 2), value, deps: nobody() };
    let commit = |value, deps| Message::Commit { instance: other, value: Some(value), deps };
    let recover = || Message::Recover { instance: other, ballot: ballot(1, 2) };
    let validate = |deps| Message::Validate { instance: other, ballot: ballot(1, 2), value: write(), deps };
    let (nothing, may_be, decided) = ("nothing against it", "4.1 may be", "4.1 is decided");
    // what is known of the other → what is said of it
    let table = [
        (vec![], nothing),
        (vec![pre_accept(nobody())], may_be),
        (vec![pre_accept(knowing())], nothing),
        // Its owner proposed it elsewhere, with what nobody here knows.
        (vec![accept(Some(write()))], nothing),
        (vec![pre_accept(nobody()), accept(None)], may_be),
        (vec![recover(), validate(nobody())], may_be),
        (vec![recover(), validate(knowing())], nothing),
        (vec![commit(write(), nobody())], decided),
        (vec![commit(write(), knowing())], nothing),
        (vec![pre_accept(nobody()), commit(write(), knowing())], nothing),
        (vec![pre_accept(nobody()), commit(Batch::noop(), nobody())], nothing),
    ];
    for (known, expected) in table {
        let (mut bench, heard) = (Bench::of(5, &[], write()), format!("{known:?}"));
        tell(&mut bench, known);
        let (instance, ballot) = (recovered(), ballot(1, 3));
        say(&mut bench, 3, Message::Recover { instance, ballot });
        let asked = Message::Validate { instance, ballot, value: write(), deps: nobody() };
        assert_eq!(say(&mut bench, 3, asked), expected, "{heard}");
    }
}

#[test]
fn a_validation_is_answered_in_the_ballot_that_was_joined_and_of_what_the_owner_proposed() {
    let (instance, nobody) = (recovered(), Frontier::default());
    let accept = || Message::Accept { instance, ballot: ballot(1, 3), value: Some(write()), deps: nobody };
    let commit = || Message::Commit { instance, value: Some(write()), deps: on(&[at(4, 7)]) };
    let pre_accept = || Message::PreAccept { instance, value: write(), deps: nobody };
    let recover = |rounds| Message::Recover { instance, ballot: ballot(rounds, 3) };
    let (asked, other) = ((1, nobody), (1, on(&[at(4, 1)])));
    // what came before; the ballot and the dependencies of the question → whether it is answered
    let table = [
        (vec![recover(1)], asked, true),
        (vec![], asked, false),
        (vec![recover(2)], asked, false),
        (vec![recover(1)], (2, nobody), false),
        (vec![accept()], asked, true),
        (vec![recover(1), commit()], asked, false),
        (vec![pre_accept(), recover(1)], asked, true),
        (vec![pre_accept(), recover(1)], other, false),
        (vec![recover(1)], other, true),
    ];
    for (known, (rounds, deps), expected) in table {
        let (mut bench, heard) = (Bench::of(5, &[], write()), format!("{known:?} {rounds} {deps:?}"));
        tell(&mut bench, known);
        let asked = Message::Validate { instance, ballot: ballot(rounds, 3), value: write(), deps };
        assert_eq!(!say(&mut bench, 3, asked).is_empty(), expected, "{heard}");
    }
}
