//! Who is asked for which shards, and what becomes of those that come.

use quorate_blocks::ballot::Ballot;

use super::*;

fn node(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

fn at(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

fn value_of(slot: u64) -> Bytes {
    vec![slot as u8; 300].into()
}

fn id(slot: u64) -> ValueId {
    let (ballot, digest) = (Ballot::ZERO.next(node(1)), digest(&value_of(slot)));
    ValueId { slot, ballot, digest, len: 300, shards: 5, data: 3 }
}

/// What voter number `first` gets, if each gets so many.
fn shards(slot: u64, first: usize, width: usize) -> Value {
    id(slot).split(&value_of(slot), width).nth(first).expect("five shards")
}

/// A member's shard of a slot's value of so many bytes.
fn shard_of(slot: u64, len: usize, member: NodeId) -> Value {
    let value = Bytes::from(vec![slot as u8; len]);
    let id = ValueId { digest: digest(&value), len: len as u32, ..id(slot) };
    id.split(&value, 1).nth(usize::from(member.get()) - 1).expect("five shards")
}

/// Node 2 of five, with what this gives of each slot up to `last`, which are chosen.
fn log_with(last: u64, shards: impl Fn(u64) -> Value) -> SlotLog {
    let (mut log, ballot) = (SlotLog::new(0), Ballot::ZERO.next(node(1)));
    for slot in 1..=last {
        log.vote(slot, ballot, shards(slot));
    }
    log.commit(ballot, last);
    log
}

/// It has so many shards of each.
fn log(last: u64, width: usize) -> SlotLog {
    log_with(last, |slot| shards(slot, 1, width))
}

/// It has a shard of each, of a value of so many bytes.
fn log_of(last: u64, len: usize) -> SlotLog {
    log_with(last, |slot| shard_of(slot, len, node(2)))
}

fn gatherer(leads: bool, upto: u64) -> Gatherer {
    let leader = if leads { 2 } else { 1 };
    let (voters, leader) = ((1..=5).map(node).collect(), Some(node(leader)));
    let assignment = Assignment::balanced([voters], |_| 3);
    Gatherer { me: node(2), voters, leader, leads, upto, assignment }
}

/// Draws requests: the node that is asked, then slots, each with the shards that are wanted and how many of them.
fn draw(round: Round) -> String {
    let requests = round.requests.into_iter().map(|(node, message)| {
        let Message::Reconstruct { wanted, .. } = message else { panic!("a request") };
        let slot = |it: &Wanted| format!("{}:{:?}/{}", it.slot, it.shards, it.most).replace(' ', "");
        format!("{node:?} {}", wanted.iter().map(slot).collect::<Vec<_>>().join(" "))
    });
    let requests = requests.collect::<Vec<_>>().join(" | ");
    round.stuck.map_or(requests.clone(), |slot| format!("{requests} stuck {slot}"))
}

#[test]
fn a_follower_asks_those_behind_it_for_their_shards_and_a_leader_asks_all_for_any() {
    // shards of each | leads | slots that are due → requests
    let table = [
        (1, false, 2, "n3 1:[2]/1 2:[2]/1 | n4 1:[3]/1 2:[3]/1"),
        (2, false, 1, "n3 1:[3]/1"),
        (1, true, 1, "n1 1:[0,2,3,4]/2 | n3 1:[0,2,3,4]/2 | n4 1:[0,2,3,4]/2 | n5 1:[0,2,3,4]/2"),
        (1, false, 0, ""),
    ];
    for (width, leads, upto, expected) in table {
        let round = Gossip::default().round(&log(2, width), &gatherer(leads, upto), at(0));
        assert_eq!(draw(round), expected);
    }
}

/// Of each value one shard of five is missing, all at the same node: it could be asked for a fourth.
#[test]
fn what_is_gathered_at_a_time_is_bounded_in_bytes_of_values() {
    let (value, ballot) = (Bytes::from(vec![1; 6 << 20]), Ballot::ZERO.next(node(1)));
    let mut log = SlotLog::new(0);
    for slot in 1..=4 {
        let id = ValueId { ballot, digest: digest(&value), len: 6 << 20, shards: 9, data: 5, slot };
        log.vote(slot, ballot, id.split(&value, 4).nth(1).expect("nine voters"));
    }
    log.commit(ballot, 4);
    let voters = (1..=9).map(node).collect();
    let assignment = Assignment::balanced([voters], |_| 5);
    let round = Gossip::default().round(&log, &Gatherer { voters, assignment, ..gatherer(false, 4) }, at(0));
    assert_eq!(draw(round), "n3 1:[5]/1 | n3 2:[5]/1 | n3 3:[5]/1");
}

/// What is asked for, as replicas and slots: of each slot a shard.
fn asked(round: &Round, peer: NodeId) -> Vec<usize> {
    let wanted = round.requests.iter().filter(|(node, _)| *node == peer).map(|(_, message)| match message {
        Message::Reconstruct { wanted, .. } => wanted.len(),
        Message::Shards { .. } => panic!("a request"),
    });
    wanted.collect()
}

#[test]
fn what_is_gathered_at_a_time_and_with_a_request_is_bounded_in_slots() {
    let round = Gossip::default().round(&log(9000, 1), &gatherer(false, 9000), at(0));
    for peer in [3, 4].map(node) {
        assert_eq!(asked(&round, peer), [&[REQUEST_SLOTS; 8][..], &[1]].concat(), "{peer:?}");
    }
}

/// Shards of a MiB each, of as many slots as are gathered at a time.
#[test]
fn what_a_peer_is_asked_for_at_a_time_is_bounded_in_bytes_and_so_is_a_request() {
    let (log, mut gossip) = (log_of(8, 3 << 20), Gossip::default());
    let mut round = |millis| gossip.round(&log, &gatherer(false, 8), at(millis));
    assert_eq!([3, 4].map(|peer| asked(&round(0), node(peer))), [vec![1; 4], vec![]], "no more at once");
    assert!(round(20).requests.is_empty(), "nor later");
}

/// Of shards that restore a value none is asked for as long as the others cannot be.
#[test]
fn a_leader_waits_until_as_many_as_have_enough_shards_can_be_asked() {
    let (log, mut gossip) = (log_of(20, 1 << 20), Gossip::default());
    let mut requests = gossip.round(&log, &gatherer(true, 20), at(0)).requests;
    assert!(
        gossip.round(&log, &gatherer(true, 20), at(20)).requests.is_empty(),
        "all are asked for all they may"
    );
    // Node 5 has answered everything, and is asked for more when node 4 has.
    for (peer, expected) in [(node(5), [false, false]), (node(4), [true, true])] {
        for (from, message) in requests.extract_if(.., |(from, _)| *from == peer) {
            let Message::Reconstruct { id, wanted } = message else { panic!("a request") };
            let shard = |slot| (slot, shard_of(slot, 1 << 20, from));
            let values = wanted.iter().map(|wanted| shard(wanted.slot)).collect();
            gossip.on_shards((from, id), values, &log, at(30));
        }
        let round = gossip.round(&log, &gatherer(true, 20), at(40));
        assert_eq!([4, 5].map(|peer| !asked(&round, node(peer)).is_empty()), expected, "{peer:?}");
    }
}

/// As many of each as a table says.
#[test]
fn a_follower_expects_the_shards_that_a_table_gives_to_others() {
    // shards of nodes 1 to 5 → requests of node 2, which has one shard, or two
    let table = [
        ([1, 1, 1, 1, 1], ["n3 1:[2]/1 | n4 1:[3]/1", "n3 1:[3]/1"]),
        ([1, 1, 2, 1, 3], ["n3 1:[2,3]/2", "n3 1:[3]/1"]),
        ([2, 1, 1, 1, 1], ["n3 1:[3]/1 | n4 1:[4]/1", "n3 1:[3]/1"]),
    ];
    for (counts, expected) in table {
        let counts = (1..).map(node).zip(counts);
        let assignment = Some(Assignment::unbalanced((5, 3), counts).expect("a code"));
        let gatherer = Gatherer { assignment, ..gatherer(false, 1) };
        let requests = [1, 2].map(|width| draw(Gossip::default().round(&log(1, width), &gatherer, at(0))));
        assert_eq!(requests, expected);
    }
}

#[test]
fn who_is_silent_is_left_out_and_what_does_not_come_is_fetched_whole() {
    let (log, mut gossip) = (log(1, 1), Gossip::default());
    let mut round = |millis| draw(gossip.round(&log, &gatherer(false, 1), at(millis)));
    assert_eq!(round(0), "n3 1:[2]/1 | n4 1:[3]/1");
    assert_eq!(round(199), "");
    assert_eq!(round(200), "n5 1:[0,2,3,4]/2", "two rest");
    assert_eq!(round(400), "", "nobody is left");
    assert_eq!(round(420), " stuck 1");
}

/// What is asked of one that is dead would hold back all behind it.
#[test]
fn who_was_silent_is_asked_for_one_shard_after_a_while_and_for_more_when_it_has_answered() {
    let (log, mut gossip) = (log(2, 1), Gossip::default());
    for (millis, expected) in [
        (0, "n3 1:[2]/1 | n4 1:[3]/1"),
        (200, "n5 1:[0,2,3,4]/2"),
        (400, ""),
        (1180, " stuck 1"),
        (1200, "n3 1:[0,2,3,4]/1 | n4 1:[0,2,3,4]/1 stuck 1"),
    ] {
        assert_eq!(draw(gossip.round(&log, &gatherer(false, 1), at(millis))), expected, "{millis}");
    }
    gossip.on_shards((node(3), 4), vec![(1, shards(1, 2, 1))], &log, at(1210));
    assert_eq!(draw(gossip.round(&log, &gatherer(false, 2), at(1220))), "n3 2:[2]/1 stuck 1");
}

/// It must execute what is chosen before it can serve, and nobody may have that whole.
#[test]
fn a_leader_asks_again_and_again() {
    let (log, mut gossip) = (log(1, 1), Gossip::default());
    let asks = |round: Round| (round.requests.len(), round.stuck);
    for second in 0..10 {
        assert_eq!(asks(gossip.round(&log, &gatherer(true, 1), at(1000 * second))), (4, None), "{second}");
    }
}

#[test]
fn what_was_gathered_goes_when_its_value_comes_otherwise() {
    let (mut log, mut gossip) = (log(1, 1), Gossip::default());
    gossip.round(&log, &gatherer(false, 1), at(0));
    assert_eq!(gossip.slots.len(), 1);
    log.choose(1, Ballot::ZERO, value_of(1).into());
    gossip.round(&log, &gatherer(false, 1), at(20));
    assert_eq!(gossip.slots.len(), 0);
}

/// Who led before is dead, and is asked for more than may be under way to it.
#[test]
fn a_leader_goes_on_without_a_peer_that_does_not_answer() {
    let value = |slot: u64| Bytes::from(vec![slot as u8; 1 << 20]);
    let shard = |slot: u64, node: NodeId| {
        let id = ValueId { digest: digest(&value(slot)), len: 1 << 20, ..id(slot) };
        id.split(&value(slot), 1).nth(usize::from(node.get()) - 1).expect("five shards")
    };
    let (mut log, ballot, mut gossip) = (SlotLog::new(0), Ballot::ZERO.next(node(1)), Gossip::default());
    for slot in 1..=40 {
        log.vote(slot, ballot, shard(slot, node(2)));
    }
    log.commit(ballot, 40);
    // Nothing is late yet.
    for now in (0..180).step_by(20).map(at) {
        let requests = gossip.round(&log, &gatherer(true, 40), now).requests;
        for (peer, message) in requests.into_iter().filter(|(peer, _)| *peer != node(1)) {
            let Message::Reconstruct { id, wanted } = message else { panic!("a request") };
            let values = wanted.iter().map(|wanted| (wanted.slot, shard(wanted.slot, peer))).collect();
            for (slot, value) in gossip.on_shards((peer, id), values, &log, now) {
                log.choose(slot, Ballot::ZERO, value.into());
            }
        }
    }
    assert_eq!(log.complete(), 40);
}

#[test]
fn shards_of_exactly_the_value_that_is_lacking_restore_it() {
    let (log, mut gossip) = (log(2, 1), Gossip::default());
    gossip.round(&log, &gatherer(false, 1), at(0));
    let mut come = |from, number, value| gossip.on_shards((node(from), number), vec![value], &log, at(1));
    assert_eq!(come(3, 1, (1, shards(2, 2, 1))), [], "of another slot's value");
    assert_eq!(come(3, 1, (2, shards(2, 2, 1))), [], "of a slot that was not asked for");
    assert_eq!(come(3, 1, (1, Value::Whole(value_of(1)))), [], "not in shards");
    assert_eq!(come(3, 1, (1, shards(1, 2, 1))), []);
    assert_eq!(come(3, 1, (1, shards(1, 2, 1))), [], "the same again");
    assert_eq!(come(4, 2, (1, shards(1, 3, 1))), [(1, value_of(1))]);
    assert_eq!(come(4, 2, (1, shards(1, 3, 1))), [], "too late");
    assert_eq!((gossip.restored.get(), gossip.dropped.get()), (1, 4));
}

#[test]
fn what_does_not_have_its_digest_is_dropped_and_fetched_whole() {
    let (log, mut gossip) = (log(1, 1), Gossip::default());
    gossip.round(&log, &gatherer(false, 1), at(0));
    let other: Bytes = vec![9; 300].into();
    let wrong = id(1).split(&other, 1).nth(2).expect("five shards");
    assert_eq!(gossip.on_shards((node(3), 1), vec![(1, wrong)], &log, at(1)), []);
    assert_eq!(gossip.on_shards((node(4), 2), vec![(1, shards(1, 3, 1))], &log, at(1)), []);
    assert_eq!(gossip.dropped.get(), 1);
    assert_eq!(draw(gossip.round(&log, &gatherer(false, 1), at(20))), " stuck 1");
}

#[test]
fn who_has_the_value_whole_makes_the_shards_and_others_tell_what_they_have() {
    let whole = Value::Whole(value_of(1));
    let all = ShardSet::arc(0, 5, 5);
    let tell = |value: &Value, of, wanted, most| {
        value.shards(of, wanted, most).map(|shards| (shards.held(), Value::Coded(Box::new(shards))))
    };
    let arc = |first, width| ShardSet::arc(first, width, 5);
    assert_eq!(tell(&whole, id(1), arc(3, 2), 2), Some((arc(3, 2), shards(1, 3, 2))));
    assert_eq!(tell(&whole, id(1), all, 2).map(|(held, _)| held), Some(arc(0, 2)));
    assert_eq!(tell(&shards(1, 3, 2), id(1), all, 4), Some((arc(3, 2), shards(1, 3, 2))));
    assert_eq!(tell(&shards(1, 3, 2), id(1), arc(0, 2), 4), None, "none of these");
    assert_eq!(tell(&shards(1, 3, 2), id(2), all, 4), None, "another value");
    assert_eq!(tell(&whole, id(2), all, 4), None, "another value");
    assert_eq!(tell(&whole, ValueId { data: 9, ..id(1) }, all, 4), None, "no code");
}

#[test]
fn values_at_the_end_of_the_log_are_left_until_others_follow() {
    let mut deferred = Deferred::default();
    // last slot, gap in bytes → the last slot that is due
    let table = [(1, 600, 0), (2, 600, 0), (3, 600, 1), (5, 600, 3), (5, 0, 5), (6, 299, 6)];
    for (last, gap, due) in table {
        assert_eq!(deferred.due(&log(last, 1), gap), due, "{last} {gap}");
    }
    let mut log = log(8, 1);
    for slot in 1..=7 {
        assert!(!log.choose(slot, Ballot::ZERO, value_of(slot).into()), "its shards are there");
    }
    assert_eq!(deferred.due(&log, 600), 7, "what is whole is due");
}
