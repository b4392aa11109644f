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
