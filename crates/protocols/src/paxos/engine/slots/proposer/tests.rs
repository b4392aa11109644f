//! Tables of votes: what phase 1 proposes, when a proposal is chosen, whose votes are overdue.

use quorate_core::Wall;

use super::*;
use quorate_blocks::batch::Entry;
use quorate_blocks::membership::Configuration;

const WHOLE: (NodeSet, ShardSet) = (NodeSet::EMPTY, ShardSet::ALL);

fn node(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

fn members() -> Tally {
    Tally::new((1..=3).map(node).collect())
}

fn ballot(counter: u64, id: u64) -> Ballot {
    (0..counter).fold(Ballot::ZERO, |ballot, _| ballot.next(node(id)))
}

/// All votes of an acceptor that was asked for those from `from` on.
fn votes_of(from: u64, committed: u64, votes: impl IntoIterator<Item = (u64, Vote)>) -> Votes {
    Votes { from, committed, votes: votes.into_iter().collect(), next: None }
}

/// Replies as `node committed votes`, a vote as `slot:ballot:value` with `!` if it is known to be chosen; then
/// what must be proposed.
#[test]
fn phase_one_proposes_the_highest_votes_and_fills_holes() {
    let table = "
        1 0              / 2 0                      → 0@1
        1 0 1:1:a        / 2 0                      → 0@1 1=a
        1 0 1:1:a        / 3 0 1:2:b                → 0@1 1=b
        1 0 1:2:a        / 3 0 1:1:b                → 0@1 1=a
        1 0 3:1:c        / 2 0 1:1:a                → 0@1 1=a 2= 3=c
        1 0 1:9:a 2:9:b  / 2 1 2:1:x                → 1@2 2=b
        1 4              / 2 1 2:1:x 4:1:y          → 4@1
        1 0 2:9:a        / 2 0 2:1:b!               → 0@1 1= 2=b
        1 0              / 2 0 65537:1:a / 3 0      → 0@1
    ";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (replies, expected) = line.split_once('→').unwrap();
        let mut preparation = Preparation::new(members(), node(1), 1, Time::ZERO);
        let mut result = Reply::Waiting;
        for reply in replies.split('/') {
            let words: Vec<_> = reply.split_whitespace().collect();
            let votes = words[2..].iter().map(|word| {
                let parts: Vec<_> = word.trim_end_matches('!').split(':').collect();
                let vote = Vote {
                    ballot: ballot(parts[1].parse().unwrap(), 1),
                    value: Bytes::copy_from_slice(parts[2].as_bytes()).into(),
                    chosen: word.ends_with('!'),
                };
                (parts[0].parse().unwrap(), vote)
            });
            let from = node(words[0].parse().unwrap());
            assert_eq!(result, Reply::Waiting);
            result = preparation.on_reply(from, votes_of(1, words[1].parse().unwrap(), votes));
        }
        let Reply::Prepared(result) = result else { panic!("two of three have replied") };
        let proposals = result
            .proposals
            .iter()
            .map(|(slot, value)| format!(" {slot}={}", String::from_utf8_lossy(value)));
        let drawn = format!("{}@{}{}", result.committed, result.holder, proposals.collect::<String>());
        assert_eq!(drawn, expected.trim(), "{line}");
    }
}

#[test]
fn votes_that_come_in_parts_count_when_the_last_part_is_here_in_whatever_order_they_come() {
    let mut preparation = Preparation::new(members(), node(1), 5, Time::ZERO);
    let vote =
        |value: &'static str| Vote { ballot: ballot(1, 1), value: Bytes::from(value).into(), chosen: false };
    let part = |from, slot, value, next| Votes { next, ..votes_of(from, 4, [(slot, vote(value))]) };
    let first = part(5, 5, "a", Some(7));
    let last = part(7, 9, "b", None);
    assert_eq!(preparation.on_reply(node(2), last.clone()), Reply::Waiting, "the first part is missing");
    assert_eq!(preparation.on_reply(node(2), first.clone()), Reply::Partial(7));
    assert_eq!((preparation.from(node(2)), preparation.from(node(3))), (7, 5));
    assert_eq!(preparation.on_reply(node(2), first.clone()), Reply::Waiting, "a copy");
    assert_eq!(preparation.on_reply(node(1), votes_of(5, 4, [])), Reply::Waiting, "one has replied");
    let loop_ = part(7, 7, "c", Some(7));
    assert_eq!(preparation.on_reply(node(2), loop_), Reply::Waiting, "it does not get on");
    let Reply::Prepared(prepared) = preparation.on_reply(node(2), last) else {
        panic!("two of three have replied")
    };
    let values: Vec<_> = prepared.proposals.iter().map(|(slot, value)| (*slot, value.clone())).collect();
    let noop = Batch::noop;
    assert_eq!(values, [(5, "a".into()), (6, noop()), (7, noop()), (8, noop()), (9, "b".into())]);
}

/// Seed 494 of the simulator: the candidate's own reply, which knows most, may come last.
#[test]
fn a_slot_for_which_no_votes_were_asked_gets_no_noop() {
    let mut preparation = Preparation::new(members(), node(2), 25, Time::ZERO);
    let vote = |value| Vote { ballot: ballot(1, 1), value: Bytes::from_static(value).into(), chosen: false };
    assert_eq!(preparation.on_reply(node(1), votes_of(25, 23, [(25, vote(b"x"))])), Reply::Waiting);
    let Reply::Prepared(prepared) = preparation.on_reply(node(3), votes_of(25, 23, [])) else {
        panic!("two of three have replied")
    };
    assert_eq!((prepared.committed, prepared.holder), (24, node(2)));
    assert_eq!(prepared.proposals, [(25, Bytes::from_static(b"x"))]);
}

#[test]
fn a_proposal_is_chosen_once_by_a_majority_of_its_own_ballot() {
    let (mine, other) = (ballot(2, 1), ballot(1, 2));
    let mut proposals = Proposals::new(mine, members(), 5);
    let value = Bytes::from_static(b"v");
    proposals.propose(5, (value.clone(), None), NodeSet::EMPTY, Time::ZERO);
    proposals.propose(7, (value.clone(), None), NodeSet::EMPTY, Time::ZERO);
    assert_eq!((proposals.next(), proposals.count(), proposals.bytes()), (8, 2, 2));
    assert_eq!([4, 5, 6, 7, 8].map(|slot| proposals.is_open(slot)), [false, true, false, true, false]);
    assert_eq!(proposals.on_vote(node(1), mine, 5, WHOLE, Time::ZERO), None);
    assert_eq!(proposals.on_vote(node(2), other, 5, WHOLE, Time::ZERO), None, "another ballot's vote");
    assert_eq!(proposals.on_vote(node(1), mine, 5, WHOLE, Time::ZERO), None, "the same voter again");
    assert_eq!(proposals.on_vote(node(9), mine, 5, WHOLE, Time::ZERO), None, "a stranger");
    assert_eq!(proposals.on_vote(node(3), mine, 5, WHOLE, Time::ZERO), Some(value));
    assert_eq!(proposals.on_vote(node(2), mine, 5, WHOLE, Time::ZERO), None, "chosen before");
    assert_eq!(proposals.on_vote(node(2), mine, 6, WHOLE, Time::ZERO), None, "nothing was proposed there");
    assert_eq!((proposals.next(), proposals.count(), proposals.bytes()), (8, 1, 1));
}

#[test]
fn what_is_required_or_granted_is_covered() {
    let set = |ids: &str| ids.chars().map(|c| node(c.to_digit(10).unwrap().into())).collect::<NodeSet>();
    // required | votes, each with what it grants | whether chosen after each
    let table = "
        -  | 1 2       | n y
        3  | 1 2 3     | n n y
        -  | 1:3 2     | n n
        -  | 1:3 2 3   | n n y
        -  | 1:3 2:3 3 | n n y
        -  | 1:3 2 1   | n n y
        2  | 1:3 3     | n n
        -  | 1 1       | n n
    ";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut columns = line.split('|').map(str::trim);
        let required = set(columns.next().unwrap().trim_matches('-'));
        let mut tracker = CommitTracker::new(members(), required, 0);
        let chosen = columns.next().unwrap().split_whitespace().map(|vote| {
            let (voter, grants) = vote.split_once(':').unwrap_or((vote, ""));
            tracker.add(set(voter).iter().next().unwrap(), set(grants), ShardSet::ALL);
            if tracker.is_reached() { "y" } else { "n" }
        });
        assert_eq!(chosen.collect::<Vec<_>>().join(" "), columns.next().unwrap(), "{line}");
    }
    let mut proposals = Proposals::new(ballot(2, 1), members(), 1);
    proposals.propose(1, (Bytes::new(), None), set("3"), Time::ZERO);
    for voter in [1, 2] {
        assert_eq!(proposals.on_vote(node(voter), ballot(2, 1), 1, WHOLE, Time::ZERO), None);
    }
    assert_eq!(proposals.reconsider(|_| set("3")), []);
    assert_eq!(proposals.reconsider(|_| NodeSet::EMPTY), [(1, Bytes::new())]);
    assert_eq!((proposals.start(), proposals.count()), (2, 0));
}

#[test]
fn votes_are_overdue_where_a_majority_has_voted_and_others_are_needed() {
    let (mine, all) = (ballot(2, 1), (1..=3).map(node).collect());
    let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
    let limit = Duration::from_millis(100);
    let mut proposals = Proposals::new(mine, members(), 5);
    proposals.propose(5, (Bytes::new(), None), all, at(0));
    proposals.propose(6, (Bytes::new(), None), all, at(0));
    let mut vote = |id, slot, millis| {
        proposals.on_vote(node(id), mine, slot, WHOLE, at(millis));
        let overdue = |millis| proposals.overdue(limit, at(millis));
        assert_eq!(proposals.is_supported(5), proposals.supported() >= 5 && proposals.is_open(5));
        (proposals.supported(), overdue(120).len(), overdue(129).len(), overdue(500).len())
    };
    assert_eq!(vote(1, 5, 10), (0, 0, 0, 0), "nobody else has voted: who is late?");
    assert_eq!(vote(3, 5, 20), (5, 1, 1, 1), "node 2, from 120 ms on");
    assert_eq!(vote(3, 6, 30), (5, 1, 1, 1));
    assert_eq!(vote(2, 6, 30), (6, 1, 1, 2), "node 2 there, and node 1 here");
    assert_eq!(vote(2, 5, 40), (6, 0, 0, 1));
}

#[test]
fn what_is_behind_a_configuration_has_to_be_asked_of_others() {
    let mut preparation = Preparation::new(members(), node(1), 1, Time::ZERO);
    let entry = Entry::Configuration(Configuration::default());
    let configuration = Batch::alone(Wall::from_millis(1), &entry);
    let vote = |value: &Bytes| Vote { ballot: ballot(1, 1), value: value.clone().into(), chosen: false };
    let other = Bytes::from_static(b"v");
    let votes = [(1, vote(&other)), (3, vote(&configuration)), (4, vote(&other))];
    assert_eq!(preparation.on_reply(node(1), votes_of(1, 0, votes)), Reply::Waiting);
    let Reply::Prepared(prepared) = preparation.on_reply(node(2), votes_of(1, 0, [])) else {
        panic!("two of three have replied")
    };
    assert_eq!(prepared.proposals, [(1, other), (2, Batch::noop()), (3, configuration)]);
}

#[test]
fn votes_count_as_they_did_when_their_slot_was_proposed() {
    let mine = ballot(2, 1);
    let mut proposals = Proposals::new(mine, members(), 1);
    proposals.propose(1, (Bytes::new(), None), NodeSet::EMPTY, Time::ZERO);
    proposals.change(Tally::joint([3, 4].into_iter().map(node).collect(), (1..=3).map(node).collect()));
    proposals.propose(2, (Bytes::new(), None), NodeSet::EMPTY, Time::ZERO);
    let chosen = [(1, 1), (1, 2), (2, 2), (2, 3), (1, 3), (2, 4)];
    let chosen =
        chosen.map(|(slot, voter)| proposals.on_vote(node(voter), mine, slot, WHOLE, Time::ZERO).is_some());
    assert_eq!(chosen, [false, true, false, false, false, true]);
}

/// Each set of voters may lose one: of nodes 3, 4 and 5, two that have voted do not leave two shards.
#[test]
fn shards_are_enough_in_each_set_of_voters() {
    let [voters, outgoing] = [1..=3, 3..=5].map(|ids| ids.map(node).collect());
    let mut tracker = CommitTracker::new(Tally::joint(voters, outgoing), NodeSet::EMPTY, 2);
    let chosen = [1, 2, 3, 4, 5].map(|id: u8| {
        tracker.add(node(id.into()), NodeSet::EMPTY, [id].into_iter().collect());
        tracker.is_reached()
    });
    assert_eq!(chosen, [false, false, false, false, true]);
}
