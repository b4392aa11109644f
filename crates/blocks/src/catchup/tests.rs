//! Whom a replica that is behind asks, and when.

use super::*;
use crate::batch::Batch;

fn node(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Whom a replica asks from `start` on, until `end`, as long as nobody answers; times in milliseconds.
fn asked(catchup: &mut Catchup, sources: &[u64], (start, end): (u64, u64)) -> Vec<u64> {
    let sources: Vec<_> = sources.iter().map(|id| node(*id)).collect();
    let mut peers = Vec::new();
    for now in (start..end).step_by(100) {
        if let Some((peer, _)) = catchup.ask(&sources, 1, at(now))
            && peers.last() != Some(&u64::from(peer.get()))
        {
            peers.push(peer.get().into());
        }
    }
    peers
}

/// The first piece of a snapshot comes in, and answers a question of just now; times in milliseconds.
fn piece(catchup: &mut Catchup, peer: u64, now: u64) -> Option<Message> {
    answer(catchup, peer, now, now)
}

fn answer(catchup: &mut Catchup, peer: u64, asked: u64, now: u64) -> Option<Message> {
    let mut next = None;
    let head = Replicated::default().freeze().piece(&Bytes::new(), PIECE);
    let image = ImageId { slot: 9, digest: 9 };
    let cursor = Bytes::new();
    let first = Piece { image, cursor, bytes: head.bytes, next: head.next, asked: at(asked) };
    let done = catchup.on_piece(node(peer), first, 0, at(now), |message| next = Some(message));
    assert!(done.is_none());
    next
}

#[test]
fn a_source_that_does_not_answer_is_replaced_and_asked_again_when_no_other_is_left() {
    let mut catchup = Catchup::default();
    assert_eq!(asked(&mut catchup, &[2, 3], (0, 1000)), [2], "it is waited for");
    assert_eq!(asked(&mut catchup, &[2, 3], (1000, 2000)), [3]);
    assert_eq!(asked(&mut catchup, &[2, 3], (2000, 3000)), [2]);
    assert_eq!(asked(&mut Catchup::default(), &[2], (0, 9000)), [2], "the only one is not given up");
}

#[test]
fn a_snapshot_whose_source_dies_between_two_pieces_is_begun_with_another_that_answers() {
    let mut catchup = Catchup::default();
    asked(&mut catchup, &[2, 3], (0, 100));
    assert!(matches!(piece(&mut catchup, 2, 50), Some(Message::More { .. })));
    assert!(catchup.is_loading());
    assert_eq!(asked(&mut catchup, &[3, 2], (100, 1000)), [2], "it is continued with its source");
    assert_eq!(
        catchup.ask(&[node(3), node(2)], 1, at(1100)),
        Some((node(3), Message::Fetch { from: 1, asked: at(1100) }))
    );
    assert!(piece(&mut catchup, 3, 1150).is_none(), "node 2 may be slow");
    assert_eq!(asked(&mut catchup, &[3, 2], (1300, 1600)), [3], "node 2 was asked a while ago");
    assert!(matches!(piece(&mut catchup, 3, 1650), Some(Message::More { .. })), "it goes on with node 3");
    assert_eq!(asked(&mut catchup, &[3, 2], (1700, 2600)), [3]);
}

/// Seed 374 of the simulator, Raft: the source had stood still for five seconds, answered once, and was lost. Three
/// times the time of its last answer was too long to wait for it.
#[test]
fn a_source_that_was_slow_once_is_given_no_more_time_than_others_need() {
    let mut catchup = Catchup::default();
    asked(&mut catchup, &[2], (0, 5000));
    assert!(piece(&mut catchup, 2, 5000).is_some());
    asked(&mut catchup, &[3], (5100, 6100));
    assert!(piece(&mut catchup, 3, 6100).is_none());
    assert!(piece(&mut catchup, 3, 6500).is_some(), "the other has answered twice");
}

#[test]
fn a_slow_source_is_kept_while_others_are_not_faster() {
    let mut catchup = Catchup::default();
    asked(&mut catchup, &[2, 3], (0, 1100));
    assert!(answer(&mut catchup, 2, 0, 1200).is_some(), "the answer of a source that was replaced counts");
    assert!(asked(&mut catchup, &[2, 3], (1200, 9000)).starts_with(&[3, 2, 3]), "both in turn");
    assert!(piece(&mut catchup, 3, 9000).is_none());
    assert!(piece(&mut catchup, 2, 9100).is_none(), "a repetition of the first piece says nothing");
    assert_eq!(catchup.loading.as_ref().map(|load| (load.peer, load.rivals)), Some((node(2), 1)));
}

/// When node 2, which does not answer, is asked in these seconds, in milliseconds.
fn times(catchup: &mut Catchup, seconds: std::ops::Range<u64>) -> Vec<u64> {
    let millis = (seconds.start * 1000..seconds.end * 1000).step_by(100);
    millis.filter(|now| catchup.ask(&[node(2)], 1, at(*now)).is_some()).collect()
}

/// Seed 4289 of the simulator, Raft, quorum reads: the source was away for five seconds, answered once, and
/// restarted. The next question would have come after another ten seconds.
#[test]
fn how_long_a_source_was_away_says_nothing_about_its_link() {
    let mut catchup = Catchup::default();
    assert_eq!(times(&mut catchup, 0..7), [0, 200, 600, 1400, 3000, 6200]);
    assert!(answer(&mut catchup, 2, 6200, 6250).is_some());
    assert_eq!(times(&mut catchup, 7..9), [7000, 7400, 8200]);
}

#[test]
fn a_question_is_repeated_less_and_less_often_and_not_before_answers_can_come() {
    let mut catchup = Catchup::default();
    let asked = times(&mut catchup, 0..10);
    assert_eq!(asked, [0, 200, 600, 1400, 3000, 6200, 9400]);
    // The link is thin: a piece takes ten seconds, and the next one waits behind it.
    assert!(answer(&mut catchup, 2, 0, 10_000).is_some());
    assert_eq!(times(&mut catchup, 10..30), [], "twice as long as the last answer took");
    assert_eq!(times(&mut catchup, 30..100), [30_000, 50_000, 70_000, 90_000]);
    catchup.on_gone(node(2), ImageId { slot: 9, digest: 9 });
    assert_eq!(times(&mut catchup, 100..101), [100_000, 100_200, 100_600], "it is there, and quick");
}

#[test]
fn an_answer_to_a_repetition_does_not_make_the_next_question_be_asked_twice() {
    let mut catchup = Catchup::default();
    assert_eq!(times(&mut catchup, 0..1), [0, 200, 600]);
    let mut answered = |asked, now| {
        catchup.on_values(node(2), at(asked), false, at(now));
        catchup.ask(&[node(2)], 1, at(now)).is_some()
    };
    assert!(answered(0, 1000), "the next one");
    assert!(!answered(200, 1300) && !answered(600, 1600), "its answer is behind these");
    assert!(answered(1000, 1900));
}

/// What was sent ahead brings more.
#[test]
fn values_that_go_on_are_followed_by_a_question_whichever_they_answer() {
    let mut catchup = Catchup::default();
    let mut answered = |asked, now, goes_on| {
        catchup.on_values(node(2), at(asked), goes_on, at(now));
        catchup.ask(&[node(2)], 1, at(now)).is_some()
    };
    assert!(answered(0, 0, true));
    assert!(answered(0, 250, true));
    assert!(answered(0, 251, true) && answered(0, 252, true));
    assert!(!answered(0, 253, false), "a repetition");
    assert!(answered(250, 500, true));
    assert_eq!(times(&mut catchup, 1..2), [1000], "as patient as the answers were slow");
}

#[test]
fn those_who_know_most_are_asked_first_and_those_who_know_nothing_more_never() {
    let mut informants = Informants::default();
    assert!(!informants.know_more(0));
    informants.hear(node(1), 5);
    informants.hear(node(2), 7);
    informants.hear(node(3), 3);
    informants.hear(node(2), 6);
    assert_eq!(informants.sources(2), [node(2), node(1), node(3)]);
    assert_eq!(informants.sources(5), [node(2)], "what was said once holds");
    informants.hear(node(3), 7);
    assert_eq!(informants.sources(4), [node(3), node(2), node(1)], "the last to say so is there");
    assert!(informants.know_more(6) && !informants.know_more(7) && informants.sources(7).is_empty());
}

#[test]
fn a_snapshot_that_is_another_than_it_was_called_does_not_count() {
    let mut state = Replicated::default();
    state.apply(1, &Batch::noop(), |_| {}, |_| {});
    let (own, image) = (state.image_id(), state.freeze());
    for (name, counts) in [(own, true), (ImageId { digest: own.digest ^ 1, ..own }, false)] {
        let mut catchup = Catchup::<Loading>::default();
        asked(&mut catchup, &[2], (0, 100));
        let (mut cursor, mut got) = (Some(Bytes::new()), None);
        while let Some(at_cursor) = cursor {
            let part = image.piece(&at_cursor, PIECE);
            let (bytes, next) = (part.bytes, part.next.clone());
            let piece = Piece { image: name, cursor: at_cursor, bytes, next, asked: at(0) };
            got = catchup.on_piece(node(2), piece, 0, at(100), |_| {});
            cursor = part.next;
        }
        assert_eq!(got.is_some(), counts, "{name:?}");
    }
}

/// What a source answers to one who needs what is no longer kept: the slot up to which the offered image goes.
fn offered(source: &mut Source, (from, start): (u64, u64), applied: u64) -> u64 {
    let freeze = || (ImageId { slot: applied, digest: applied }, Replicated::default().freeze());
    let answers = source.on_far_fetch(node(2), (from, at(0)), start, freeze, at(0));
    match &answers[..] {
        [Message::Piece(piece)] => piece.image.slot,
        other => panic!("a piece is offered, and not {other:?}"),
    }
}

#[test]
fn an_image_is_offered_again_while_it_reaches_what_is_missing_and_what_is_kept() {
    // (the first that is missing, the first that is kept), executed by then → the image goes up to
    let table = [
        ((5, 8), 9, 9),
        ((5, 10), 20, 9),
        ((9, 10), 20, 9),
        ((5, 11), 20, 20),
        ((20, 21), 30, 20),
        ((21, 21), 30, 30),
    ];
    let mut source = Source::default();
    for ((from, start), applied, upto) in table {
        assert_eq!(offered(&mut source, (from, start), applied), upto, "{from} is missing, {start} kept");
    }
}

#[test]
fn an_image_that_is_asked_for_is_kept_however_long_it_takes() {
    let mut source = Source::default();
    assert_eq!(offered(&mut source, (1, 10), 9), 9);
    let mut is_there = |seconds: u64| {
        let now = at(1000 * seconds);
        source.retention(9, 0, now);
        let image = ImageId { slot: 9, digest: 9 };
        let answers = source.on_more(node(2), image, Bytes::new(), now, now);
        matches!(answers[..], [Message::Piece(_)])
    };
    assert!(
        [9, 18, 27].map(&mut is_there).iter().all(|there| *there),
        "each time before ten seconds are over"
    );
    assert!(!is_there(37), "nobody has asked for ten seconds");
}

/// A snapshot of node 2 is coming in.
#[test]
fn a_piece_that_is_not_the_next_of_its_snapshot_is_not_taken() {
    let image = Replicated::default().freeze();
    let id = |slot| ImageId { slot, digest: slot };
    let come = |catchup: &mut Catchup, (peer, slot): (u64, u64), cursor: &Bytes, applied| {
        let (part, received) = (image.piece(cursor, PIECE), catchup.received());
        let (bytes, next) = (part.bytes, part.next);
        let piece = Piece { image: id(slot), cursor: cursor.clone(), bytes, next, asked: at(0) };
        assert!(catchup.on_piece(node(peer), piece, applied, at(50), |_| {}).is_none());
        catchup.received() > received
    };
    let start = Bytes::new();
    let second = Replicated::default().freeze().piece(&start, PIECE).next.expect("there are several");
    let mut catchup = Catchup::default();
    assert!(!come(&mut catchup, (2, 9), &start, 0), "nobody was asked");
    asked(&mut catchup, &[2, 3], (0, 100));
    assert!(!come(&mut catchup, (2, 9), &start, 9), "everything in it is executed here");
    assert!(!come(&mut catchup, (2, 9), &second, 0), "it is not the first");
    assert!(come(&mut catchup, (2, 9), &start, 0));
    assert!(!come(&mut catchup, (3, 9), &second, 0), "of another source");
    assert!(!come(&mut catchup, (2, 8), &second, 0), "of another snapshot");
    assert!(!come(&mut catchup, (2, 9), &start, 0), "once more");
    for (peer, slot, begins_again) in [(3, 9, false), (2, 8, false), (2, 9, true)] {
        catchup.on_gone(node(peer), id(slot));
        assert_eq!(!catchup.is_loading(), begins_again, "node {peer} has no snapshot {slot} any more");
        assert_eq!(catchup.ask(&[node(2)], 1, at(51)).is_some(), begins_again);
    }
}

#[test]
fn a_piece_of_an_image_that_is_not_offered_any_more_is_gone() {
    let mut source = Source::default();
    assert_eq!(offered(&mut source, (1, 10), 9), 9);
    let image = ImageId { slot: 9, digest: 8 };
    let answers = source.on_more(node(2), image, Bytes::new(), at(0), at(0));
    assert!(matches!(answers[..], [Message::Gone { .. }]), "{answers:?}");
}
