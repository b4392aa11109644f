//! What a proxy asks after it has given something up, and how far the states must be that it asks.

use super::*;

/// A request that is given up with the next tick, or not.
fn request(command: &Command, access: Access, is_late: bool) -> Request {
    let deadline = Time::ZERO + Duration::from_secs(if is_late { 0 } else { 9 });
    Request { stream: 1, command: command.to_bytes(), access, deadline, after: 0 }
}

fn get() -> Command {
    Command::Get { key: Bytes::from_static(b"k") }
}

/// It sets `k` to so many letters.
fn put(letter: u8, letters: usize) -> Command {
    let (key, value) = (Bytes::from_static(b"k"), Bytes::from(vec![letter; letters]));
    Command::Put { key, value, condition: Condition::Always, expiry: Expiry::Never, old: false }
}

/// What the proxy says at the end of a batch.
fn said(pair: &mut Pair) -> Vec<Message> {
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let messages = std::mem::take(&mut pair.out.messages).into_iter();
    messages.map(|outgoing| outgoing.message.into_client().expect("it is")).collect()
}

/// The rest of it would be taken for the next one, which would be answered and never executed.
#[test]
fn a_large_write_that_is_given_up_between_its_parts_leaves_the_next_one_whole() {
    let mut pair = Pair::with_parts(20);
    pair.step(|proxy, cx| proxy.on_request(RequestId(1), request(&put(b'a', 150), Access::Write, true), cx));
    (0..2).for_each(|_| pair.exchange(9));
    pair.step(|proxy, cx| proxy.on_timer(ProxyTimer::Tick, cx));
    pair.step(|proxy, cx| proxy.on_request(RequestId(2), request(&put(b'b', 150), Access::Write, false), cx));
    (0..9).for_each(|_| pair.exchange(9));
    let told: Vec<_> = pair.out.replies.iter().map(|told| (told.request.0, told.outcome.clone())).collect();
    let done = Outcome::Done(Reply::Done.encoded());
    assert_eq!(told, [(1, Outcome::Failed(Failure::TimedOut)), (2, done)]);
    assert_eq!(pair.value(), vec![b'b'; 150]);
}

/// Otherwise it would look for a leader in vain, and nothing would make it go on.
#[test]
fn a_search_ends_when_nobody_waits_any_more() {
    let mut pair = Pair::new();
    pair.step(|proxy, cx| proxy.on_request(RequestId(1), request(&get(), Access::Read, true), cx));
    let [Message::Ask(Ask { nonce, .. })] = said(&mut pair)[..] else { panic!("it asks") };
    pair.answer(Message::Leader { nonce, leader: None });
    pair.step(|proxy, cx| proxy.on_timer(ProxyTimer::Tick, cx));
    said(&mut pair);
    pair.step(|proxy, cx| proxy.on_request(RequestId(2), request(&get(), Access::Read, false), cx));
    let reads = |message: &Message| if let Message::Ask(ask) = message { ask.reads.len() } else { 0 };
    assert_eq!(said(&mut pair).iter().map(reads).collect::<Vec<_>>(), [1]);
}

/// One client has seen more than the other, whose read goes with its own.
#[test]
fn reads_of_a_replica_s_own_state_that_go_together_need_all_that_any_of_their_clients_has_seen() {
    for seen in [[5, 3], [3, 5]] {
        let mut pair = Pair::with(|config| config.local = true);
        for (id, after) in (1..).zip(seen) {
            let request = Request { stream: id, after, ..request(&get(), Access::Read, false) };
            pair.step(|proxy, cx| proxy.on_request(RequestId(id), request, cx));
        }
        let asked = said(&mut pair);
        let [Message::AskAfter { ask, slot: 5 }] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!(ask.reads.len(), 2);
    }
}

#[test]
fn what_is_given_up_before_it_is_sent_leaves_what_is_behind_it() {
    let mut pair = Pair::new();
    // There is no session yet, and reads wait for the writes of their stream.
    let (write, read) = (put(b'a', 1), get());
    for (id, command, access) in [
        (1, &write, Access::Write),
        (2, &write, Access::Write),
        (3, &read, Access::Read),
        (4, &read, Access::Read),
    ] {
        let request = request(command, access, id % 2 == 1);
        pair.step(|proxy, cx| proxy.on_request(RequestId(id), request, cx));
    }
    pair.step(|proxy, cx| proxy.on_timer(ProxyTimer::Tick, cx));
    (0..4).for_each(|_| pair.exchange(9));
    let is_done = |told: &Answered| (told.request.0, matches!(told.outcome, Outcome::Done(_)));
    let told: Vec<_> = pair.out.replies.iter().map(is_done).collect();
    assert_eq!(told, [(1, false), (3, false), (2, true), (4, true)]);
}

#[test]
fn an_idle_proxy_looks_after_its_session_again_and_again() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        pair.out.timers.clear();
        pair.step(|proxy, cx| proxy.on_timer(ProxyTimer::Refresh, cx));
        assert!(pair.out.timers.iter().any(|(timer, at)| *timer == ProxyTimer::Refresh && at.is_some()));
    }
}

fn node(id: u64) -> NodeId {
    NodeId::new(id).expect("an id")
}

fn hear(pair: &mut Pair, from: u64, message: Message) {
    pair.step(|proxy, cx| proxy.on_message(node(from).into(), Say::Client(message), cx));
}

/// Its timer goes off so many milliseconds after the start: what it says, and to whom.
fn tick(pair: &mut Pair, millis: u64) -> Vec<(NodeSet, Message)> {
    let at = Instant { now: Time::ZERO + Duration::from_millis(millis), ..AT };
    let mut cx = Context::new(ProxyId::of(node(1)).into(), at, &mut pair.random, &mut pair.out);
    pair.proxy.on_timer(ProxyTimer::Tick, &mut cx);
    pair.proxy.on_batch_end(&mut cx);
    let said = std::mem::take(&mut pair.out.messages).into_iter().map(|outgoing| {
        let to = outgoing.to.iter().filter_map(ProcessId::replica).collect();
        (to, outgoing.message.into_client().expect("it is"))
    });
    said.collect()
}

/// A vote may be left over from a ballot that is dead, and never be chosen.
#[test]
fn a_read_of_a_majority_that_never_sees_a_write_chosen_goes_to_the_leader() {
    let rinse = Rinse { pause: Duration::from_millis(1), rounds: 2 };
    let mut pair = Pair::with(|config| config.majority = Some(rinse));
    pair.ask(1, Access::Read);
    let (mut asked, mut said) = (Vec::new(), said(&mut pair));
    for millis in [100, 200, 300, 400] {
        for message in said {
            match message {
                Message::Query { nonce, reads } => {
                    asked.push("all");
                    let seen = ReadObservation { applied: 5, accepted: 6, reply: Some(Bytes::new()) };
                    let (voters, reads) = (NodeSet::from_iter([node(1)]), vec![(reads[0].0, seen)]);
                    pair.answer(Message::Seen { nonce, voters, outgoing: NodeSet::EMPTY, reads });
                }
                Message::Ask(ask) if ask.reads.len() == 1 => asked.push("the leader"),
                other => panic!("{other:?}"),
            }
        }
        said = tick(&mut pair, millis).into_iter().map(|(_, message)| message).collect();
    }
    assert_eq!(asked, ["all", "all", "all", "the leader"]);
}

#[test]
fn two_replicas_that_point_at_each_other_are_not_asked_for_ever() {
    let mut pair = Pair::with(|config| config.members = (1..=3).map(node).collect());
    pair.ask(1, Access::Read);
    let [Message::Ask(Ask { nonce, .. })] = said(&mut pair)[..] else { panic!("it asks") };
    let mut asked = 0;
    for (from, leader) in [(1, 2), (2, 1)].repeat(9) {
        hear(&mut pair, from, Message::Leader { nonce, leader: Some(node(leader)) });
        let has_read = |message: &Message| matches!(message, Message::Ask(ask) if !ask.reads.is_empty());
        asked += said(&mut pair).iter().filter(|message| has_read(message)).count();
    }
    assert_eq!(asked, 3);
}

/// All that it knows to be in the group may have been removed since; who was in it on the first day may know more, and
/// so may the replica beside it.
#[test]
fn whoever_may_know_who_leads_is_asked() {
    let mut pair = Pair::with(|config| config.members = [node(2), node(3)].into_iter().collect());
    pair.ask(1, Access::Read);
    let [Message::Ask(Ask { nonce, .. })] = said(&mut pair)[..] else { panic!("it asks") };
    hear(&mut pair, 1, Message::Leader { nonce, leader: None });
    for (version, start) in [(0, 0), (1, 3_000)] {
        let nodes = [(node(3), Member { address: String::new(), voter: true })].into();
        hear(&mut pair, 1, Message::Members { nonce, members: Members { version, nodes } });
        let probes = (1..=6).flat_map(|times| tick(&mut pair, start + 300 * times));
        let asked = probes.fold(NodeSet::EMPTY, |all, (to, _)| all.union(to));
        assert_eq!(asked, (1..=3).map(node).collect(), "version {version}");
    }
}

/// What the proxy sends to a replica so many seconds after the start: `o` and the first number that may be asked again,
/// if it asks for a session, which it gets; and the numbers of writes, which are answered, or not. And its nonce.
fn at_second(pair: &mut Pair, second: u64, writes: &[u64], answers: bool) -> (String, u64) {
    pair.at.now = Time::ZERO + Duration::from_secs(second);
    let deadline = pair.at.now + Duration::from_secs(9);
    for id in writes {
        let request = Request { deadline, stream: *id, ..request(&put(b'a', 1), Access::Write, false) };
        pair.step(|proxy, cx| proxy.on_request(RequestId(*id), request, cx));
    }
    let (mut words, mut nonce) = (String::new(), 0);
    loop {
        let Some(message) = said(pair).pop() else { return (words, nonce) };
        let Message::Ask(ask) = message else { panic!("{message:?} is no ask") };
        nonce = ask.nonce;
        let answer = match ask.open {
            true => {
                words += &format!("o{} ", ask.low);
                Message::Opened { nonce, session: second + 1 }
            }
            false => {
                ask.writes.iter().for_each(|(seq, _)| words += &format!("{seq}@{} ", ask.session));
                if !answers {
                    return (words, nonce);
                }
                let writes = ask.writes.into_iter().map(|(seq, _)| (seq, Bytes::new().into())).collect();
                let (slots, reads, session) = (Vec::new(), Vec::new(), ask.session);
                Message::Answer { nonce, session, applied: 0, writes, slots, reads }
            }
        };
        pair.answer(answer);
    }
}

/// Numbers go on in it, and none that was sent in the one before is sent in it.
#[test]
fn a_session_is_opened_anew_when_no_write_is_under_way_and_holds_writes_back_after_twice_the_time() {
    let mut pair = Pair::with(|config| config.renew = Some(Duration::from_secs(10)));
    let mut nonce = 0;
    for (second, writes, answers, expected) in [
        (0, &[1, 2][..], true, "o1 1@1 2@1 "),
        (9, &[3], true, "3@1 "),
        (10, &[4], true, "o4 4@11 "),
        (19, &[5], false, "5@11 "),
        // One is under way, and then for too long.
        (20, &[6], false, "6@11 "),
        (30, &[7], false, ""),
    ] {
        let (said, its) = at_second(&mut pair, second, writes, answers);
        assert_eq!(said, expected, "after {second} s");
        nonce = if its == 0 { nonce } else { its };
    }
    for (seq, second, expected) in [(5, 31, ""), (6, 32, "o7 7@33 ")] {
        let (writes, slots, reads) = (vec![(seq, Bytes::new().into())], Vec::new(), Vec::new());
        pair.answer(Message::Answer { nonce, session: 11, applied: 0, writes, slots, reads });
        assert_eq!(at_second(&mut pair, second, &[], true).0, expected, "after {second} s");
    }
}
