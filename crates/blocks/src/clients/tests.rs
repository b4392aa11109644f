//! A proxy and a leader's intake talk: in which slot each write was executed is told and taken over.

use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Class, Context, Failure, Group, Instant, Machine, Manage, Mark, Member, Members,
    NodeId, NodeSet, Outbox, Outcome, ProcessId, Proxy, ProxyId, Random, Release, Request, RequestId, Saved,
    Settings, Shortage, Time, Wall, Wire, wire_enum,
};
use quorate_store::{Command, CommandError, Condition, Expiry, Reply};

use super::*;
use crate::batch::{Batch, Entry, Limits};
use crate::instance::Instance;
use crate::sessions::WINDOW;
use crate::state::Replicated;

mod asking;

/// A protocol's language that is this conversation only.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Say {
    Client(Message),
}
wire_enum!(Say { 1 => Client(message) });

impl From<Message> for Say {
    fn from(message: Message) -> Say {
        Say::Client(message)
    }
}

impl Embeds for Say {
    fn into_client(self) -> Option<Message> {
        let Say::Client(message) = self;
        Some(message)
    }
}

impl quorate_core::Message for Say {
    fn release(&self) -> Release {
        Release::Now
    }
    fn kind(&self) -> &'static str {
        "Client"
    }
}

const AT: Instant = Instant { now: Time::ZERO, wall: Wall::ZERO, clock: None };

/// A leader whose slots are executed when the test says so, and one proxy.
struct Pair {
    intake: Intake,
    state: Replicated,
    proxy: SessionClient<Say>,
    out: Outbox<SessionClient<Say>>,
    random: Random,
    /// Clocks as the proxy reads them; a test moves them.
    at: Instant,
}

impl Pair {
    fn new() -> Pair {
        Pair::with_parts(1 << 20)
    }

    fn with_parts(part: usize) -> Pair {
        Pair::with(|config| config.part = part)
    }

    fn with(change: impl FnOnce(&mut ProxyConfig)) -> Pair {
        let one = NodeId::new(1).expect("an id");
        let group = Group::of([one].into_iter().collect());
        let config = crate::settings::proxy_without_parts(&group, &mut Settings::default());
        let patience = Duration::from_secs(1);
        let mut config =
            ProxyConfig { patience, max_requests: 100, part: 1 << 20, ..config.expect("the defaults") };
        change(&mut config);
        let (mut out, mut random) = (Outbox::new(false), Random::new(1));
        out.timed = true;
        let proxy = SessionClient::recover(
            config,
            Saved::nothing(),
            &mut Context::new(ProxyId::of(one).into(), AT, &mut random, &mut out),
        );
        let (intake, state) = (Intake::new(one.into(), 1 << 20), Replicated::default());
        Pair { intake, state, proxy, out, random, at: AT }
    }

    fn step(&mut self, act: impl FnOnce(&mut SessionClient<Say>, &mut Context<'_, SessionClient<Say>>)) {
        let me = ProcessId::Proxy(ProxyId::of(NodeId::new(1).expect("an id")));
        act(&mut self.proxy, &mut Context::new(me, self.at, &mut self.random, &mut self.out));
    }

    fn ask(&mut self, id: u64, access: Access) {
        let key = Bytes::from_static(b"n");
        let command = match access {
            Access::Read | Access::Within(_) => Command::Get { key }.to_bytes(),
            Access::Write => Command::Increment { key, by: 1 }.to_bytes(),
            Access::Manage => Manage::Transfer { to: None }.to_bytes(),
        };
        let deadline = Time::ZERO + Duration::from_secs(9);
        let request = Request { stream: id, command, access, deadline, after: 0 };
        self.step(|proxy, cx| proxy.on_request(RequestId(id), request, cx));
    }

    /// A client of this stream sets `k` to so many letters.
    fn put(&mut self, id: u64, stream: u64, letters: usize) {
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from(vec![b'a' + id as u8; letters]));
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let command = Command::Put { key, value, condition, expiry, old: false }.to_bytes();
        let deadline = Time::ZERO + Duration::from_secs(9);
        let request = Request { stream, command, access: Access::Write, deadline, after: 0 };
        self.step(|proxy, cx| proxy.on_request(RequestId(id), request, cx));
    }

    fn value(&self) -> Bytes {
        let read = self.state.read_now(&Command::Get { key: Bytes::from_static(b"k") }.to_bytes());
        let Ok(Reply::Value(Some(value))) = Reply::from_bytes(read) else { panic!("it is not there") };
        value
    }

    /// What the proxy says goes to the leader; slots of this many entries are executed; the answer comes back.
    fn exchange(&mut self, entries: usize) {
        self.step(|proxy, cx| proxy.on_batch_end(cx));
        let proxy = ProxyId::of(NodeId::new(1).expect("an id")).into();
        for outgoing in std::mem::take(&mut self.out.messages) {
            let Say::Client(message) = outgoing.message;
            if let Message::Ask(ask) = message {
                self.intake.on_ask(proxy, ask, &self.state);
            }
        }
        for read in self.intake.take_reads() {
            let reply = self.state.read_now(&read.command);
            self.intake.on_read(read, reply);
        }
        while self.intake.has_writes() {
            let value = self.intake.take_batch(Limits { entries, bytes: 1 << 20 }, Wall::ZERO);
            let slot = self.state.applied() + 1;
            let intake = &mut self.intake;
            self.state.apply(slot, &value, |effect| intake.on_effect(effect), |_| {});
        }
        for (_, message) in self.intake.flush(&self.state) {
            self.answer(message);
        }
    }

    fn answer(&mut self, message: Message) {
        let from = ProcessId::Replica(NodeId::new(1).expect("an id"));
        self.step(|proxy, cx| proxy.on_message(from, Say::Client(message), cx));
    }

    /// The marks since the last time: `1→` was forwarded, `1@2` was executed in slot 2, `1@` was answered.
    fn marks(&mut self) -> String {
        let words = self.out.marks.drain(..).map(|mark| match mark {
            Mark::Forwarded { request } => format!("{}→", request.0),
            Mark::Answered { request, slot: 0 } => format!("{}@", request.0),
            Mark::Answered { request, slot } => format!("{}@{slot}", request.0),
            other => panic!("a proxy does not say {other:?}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn each_request_is_marked_when_it_is_sent_and_with_its_slot_when_it_is_answered() {
    let mut pair = Pair::new();
    for id in 1..=5 {
        pair.ask(id, Access::Write);
    }
    pair.ask(6, Access::Read);
    pair.exchange(2);
    assert_eq!(pair.marks(), "6→ 6@", "writes wait for a session, which takes the first slot");
    pair.exchange(2);
    assert_eq!(pair.marks(), "1→ 2→ 3→ 4→ 5→ 1@2 2@2 3@3 4@3 5@4");
}

#[test]
fn a_leader_whose_disk_is_nearly_full_refuses_what_grows_the_data_and_executes_the_rest_in_order() {
    let mut pair = Pair::new();
    pair.put(1, 1, 3);
    pair.exchange(9);
    pair.exchange(9);
    assert_eq!(pair.value(), "bbb");
    pair.intake.set_shortage(Some(Shortage::Disk));
    // Another leader was elected meanwhile, and then this one again.
    pair.intake.clear();
    pair.put(2, 1, 5);
    pair.ask(3, Access::Read);
    pair.exchange(9);
    let refused = Reply::Error(CommandError::DiskFull { node: 1 }).encoded();
    let outcome = |pair: &Pair, id| {
        let found = pair.out.replies.iter().find(|answered| answered.request == RequestId(id));
        found.map(|answered| answered.outcome.clone())
    };
    assert_eq!(outcome(&pair, 2), Some(Outcome::Done(refused)));
    assert_eq!(pair.value(), "bbb", "it was not executed");
    let key = Bytes::from_static(b"k");
    let deadline = Time::ZERO + Duration::from_secs(9);
    let command = Command::Delete { keys: vec![key] }.to_bytes();
    let request = Request { stream: 1, command, access: Access::Write, deadline, after: 0 };
    pair.step(|proxy, cx| proxy.on_request(RequestId(4), request, cx));
    pair.exchange(9);
    assert_eq!(outcome(&pair, 4), Some(Outcome::Done(Reply::Integer(1).encoded())));
    pair.intake.set_shortage(None);
    pair.put(5, 1, 2);
    pair.exchange(9);
    assert_eq!(pair.value(), "ff");
}

#[test]
fn an_answer_that_was_lost_comes_again_without_its_slot_and_a_wrong_count_does_no_harm() {
    let mut pair = Pair::new();
    pair.ask(1, Access::Write);
    pair.exchange(9);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let asked = pair.out.messages.pop().expect("the write").message;
    let Say::Client(Message::Ask(ask)) = asked else { panic!("{asked:?} is no ask") };
    let proxy = ProxyId::of(NodeId::new(1).expect("an id")).into();
    pair.intake.on_ask(proxy, ask.clone(), &pair.state);
    let value = pair.intake.take_batch(Limits { entries: 9, bytes: 1 << 20 }, Wall::ZERO);
    let Pair { state, intake, .. } = &mut pair;
    state.apply(2, &value, |effect| intake.on_effect(effect), |_| {});
    pair.intake.flush(&pair.state);
    pair.intake.on_ask(proxy, ask.clone(), &pair.state);
    for (_, message) in pair.intake.flush(&pair.state) {
        pair.answer(message);
    }
    assert_eq!(pair.marks(), "1→ 1@", "the table of sessions keeps replies, not slots");

    pair.ask(2, Access::Write);
    pair.ask(3, Access::Write);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let writes = vec![(2, Bytes::new().into()), (3, Bytes::new().into())];
    let slots = vec![(7, 0), (8, 0), (9, u64::MAX)];
    pair.answer(Message::Answer {
        nonce: ask.nonce,
        session: ask.session,
        writes,
        slots,
        reads: Vec::new(),
        applied: 9,
    });
    assert_eq!(pair.marks(), "2→ 3→ 2@7 3@8");
}

#[test]
fn writes_that_a_session_has_no_room_for_leave_as_soon_as_it_has() {
    let mut pair = Pair::with(|config| config.max_requests = usize::MAX);
    let writes = WINDOW + 10;
    (1..=writes).for_each(|id| pair.ask(id, Access::Write));
    // The session is opened, is full, and has room again.
    (0..3).for_each(|_| pair.exchange(1024));
    assert_eq!(pair.out.replies.len() as u64, writes);
}

#[test]
fn it_is_said_after_some_answers_that_they_have_come_while_writes_wait() {
    let mut pair = Pair::with(|config| config.confirm = Some(3));
    (1..=5).for_each(|id| pair.ask(id, Access::Write));
    pair.exchange(9);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let asked = pair.out.messages.pop().expect("the writes").message;
    let Say::Client(Message::Ask(Ask { nonce, session, .. })) = asked else { panic!("{asked:?} is no ask") };
    for (seq, low) in [(1, None), (2, None), (3, Some(4)), (4, None), (5, None)] {
        let (slots, reads) = (Vec::new(), Vec::new());
        let writes = vec![(seq, Bytes::new().into())];
        pair.answer(Message::Answer { nonce, session, writes, slots, reads, applied: 0 });
        pair.step(|proxy, cx| proxy.on_batch_end(cx));
        let said = pair.out.messages.drain(..).map(|outgoing| {
            let Say::Client(Message::Ask(ask)) = outgoing.message else { panic!("{outgoing:?} is no ask") };
            assert!(ask.is_probe());
            ask.low
        });
        assert_eq!(said.collect::<Vec<_>>(), Vec::from_iter(low), "after the answer to {seq}");
    }
}

/// A session is open, and its second write, of so many letters, has just left.
fn with_a_write(letters: usize) -> (Pair, Ask) {
    let mut pair = Pair::new();
    pair.put(1, 1, 1);
    pair.exchange(9);
    pair.exchange(9);
    pair.marks();
    pair.put(2, 1, letters);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let Say::Client(message) = pair.out.messages.pop().expect("the write").message;
    let Message::Ask(ask) = message else { panic!("{message:?} is no ask") };
    (pair, ask)
}

/// Seed 8624 of the simulator, five nodes with Crossword: it was taken for one on its way, which takes long.
#[test]
fn a_large_write_that_was_dropped_by_who_did_not_lead_is_sent_again_when_that_leads() {
    let (mut pair, ask) = with_a_write(200_000);
    let leader = |leader| Message::Leader { nonce: ask.nonce, leader };
    let me = NodeId::new(1);
    pair.answer(leader(me));
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    assert_eq!(pair.marks(), "2→", "it is on its way to who says that it leads");
    pair.answer(leader(None));
    pair.answer(leader(me));
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    assert_eq!(pair.marks(), "2→", "it was dropped");
}

/// Where links are full, a leader would seem to be dead.
#[test]
fn the_question_who_leads_passes_what_is_written() {
    let (_, ask) = with_a_write(1);
    assert_eq!(Message::Ask(ask.clone()).class(), Class::Write);
    assert_eq!(Message::Ask(Ask { writes: Vec::new(), ..ask }).class(), Class::Urgent);
}

/// Seed 3059 of the simulator, Raft: with one entry in a slot and slow links, the log held nothing but repetitions.
#[test]
fn a_session_that_is_being_opened_is_not_opened_again_until_it_is() {
    let mut pair = Pair::new();
    pair.ask(1, Access::Write);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let asked = pair.out.messages.pop().expect("it asks for a session").message;
    let Say::Client(Message::Ask(ask)) = asked else { panic!("{asked:?} is no ask") };
    let proxy = ProxyId::of(NodeId::new(1).expect("an id")).into();
    let mut intake = Intake::new(NodeId::new(1).expect("an id").into(), 1 << 20);
    assert!(ask.open);
    intake.on_ask(proxy, ask.clone(), &pair.state);
    intake.on_ask(proxy, ask.clone(), &pair.state);
    let value = intake.take_batch(Limits { entries: 1, bytes: 1 << 20 }, Wall::ZERO);
    assert!(!intake.has_writes(), "one entry");
    intake.on_ask(proxy, ask.clone(), &pair.state);
    assert!(!intake.has_writes(), "it is in the log");
    pair.state.apply(1, &value, |effect| intake.on_effect(effect), |_| {});
    intake.on_ask(proxy, ask, &pair.state);
    assert!(intake.has_writes(), "the answer was lost");
}

/// What waits in an intake, by the numbers of its writes.
fn take_waiting(intake: &mut Intake, entries: usize) -> (Bytes, Vec<u64>) {
    let value = intake.take_batch(Limits { entries, bytes: 1 << 20 }, Wall::ZERO);
    let batch = Batch::decode(&value).expect("a batch").expect("no no-op");
    let number = |entry: &Entry| match entry {
        Entry::Write { seq, .. } => *seq,
        other => panic!("{other:?} is no write"),
    };
    (value, batch.entries.iter().map(number).collect())
}

/// Seed 6235 of the simulator, EPaxos: the first write of a session was lost to a no-op and waited again behind the
/// later ones, which were executed too early, for nothing. Each of them had all admitted once more, and a replica with
/// slow links was at work on copies for minutes.
#[test]
fn the_writes_of_a_session_wait_in_order_and_once_when_one_of_them_was_lost() {
    let mut pair = Pair::new();
    (1..=4).for_each(|id| pair.ask(id, Access::Write));
    pair.exchange(9);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let Say::Client(message) = pair.out.messages.pop().expect("the writes").message;
    let Message::Ask(ask) = message else { panic!("{message:?} is no ask") };
    let proxy = ProxyId::of(NodeId::new(1).expect("an id")).into();
    let Pair { mut intake, mut state, .. } = pair;
    let instance = |index| Instance::new(NodeId::new(1).expect("an id"), index);

    intake.on_ask(proxy, ask.clone(), &state);
    let (first, taken) = take_waiting(&mut intake, 2);
    assert_eq!(taken, [1, 2]);
    intake.retry(&first);
    intake.on_ask(proxy, ask.clone(), &state);
    let (first, taken) = take_waiting(&mut intake, 1);
    let (second, _) = take_waiting(&mut intake, 1);
    assert_eq!((taken, take_waiting(&mut intake, 9).1), (vec![1], vec![3, 4]));

    // The later one is known to be lost before the earlier one.
    intake.retry(&second);
    intake.retry(&first);
    intake.on_ask(proxy, ask.clone(), &state);
    assert_eq!(take_waiting(&mut intake, 9).1, [1, 2, 3, 4]);
    // And after it, while the earlier one waits again, or no longer does.
    intake.retry(&first);
    intake.retry(&second);
    assert_eq!(take_waiting(&mut intake, 1).1, [1]);
    intake.retry(&second);
    intake.on_ask(proxy, ask.clone(), &state);
    assert_eq!(take_waiting(&mut intake, 9).1, [2, 3, 4]);

    // The second one is executed although the first one is not.
    intake.retry(&first);
    intake.on_ask(proxy, ask.clone(), &state);
    state.executed_mut().insert(instance(2));
    state.apply_instance(instance(2), &second, |effect| intake.on_effect(effect), |_| {});
    assert!(!intake.has_writes(), "what waits would come too early, or again");
    intake.retry(&second);
    assert!(!intake.has_writes(), "its proxy repeats all from the first on");
    intake.on_ask(proxy, ask, &state);
    assert_eq!(take_waiting(&mut intake, 9).1, [1, 2, 3, 4]);
}

#[test]
fn parts_of_a_large_write_let_other_streams_pass_and_their_own_wait() {
    let mut pair = Pair::with_parts(20);
    pair.put(1, 1, 150);
    pair.put(2, 1, 2);
    pair.put(3, 2, 3);
    pair.exchange(1);
    pair.exchange(1);
    assert_eq!(pair.marks(), "3→ 3@2", "four parts are executed and do nothing");
    assert_eq!(pair.value(), "ddd");
    // A replica that begins with this state goes on alike.
    let image = pair.state.freeze();
    let again = Replicated::load(&image).expect("its own image");
    assert_eq!(again.fingerprint(), pair.state.fingerprint());
    pair.state = again;
    pair.exchange(1);
    assert_eq!(pair.marks(), "");
    pair.exchange(1);
    assert_eq!(pair.marks(), "1→ 2→ 1@11 2@12");
    assert_eq!(pair.value(), "cc");
}

#[test]
fn a_large_write_whose_session_goes_between_its_parts_begins_again_and_is_executed_once() {
    let mut pair = Pair::with_parts(20);
    pair.put(1, 1, 150);
    pair.exchange(9);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let Say::Client(message) = pair.out.messages.last().expect("the first parts").message.clone();
    let Message::Ask(ask) = message else { panic!("{message:?} is no ask") };
    pair.exchange(9);
    pair.answer(Message::Expired { nonce: ask.nonce, session: ask.session });
    for _ in 0..4 {
        pair.exchange(9);
    }
    assert_eq!(pair.value(), vec![b'b'; 150]);
    assert_eq!(pair.marks().matches("1@").count(), 1);
}

/// It may have been executed in the session that is gone. What has not left the proxy begins in the next one.
#[test]
fn a_write_that_was_sent_is_not_repeated_in_another_session() {
    let mut pair = Pair::new();
    pair.ask(1, Access::Write);
    pair.exchange(9);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let Say::Client(message) = pair.out.messages.pop().expect("the write").message;
    let Message::Ask(ask) = message else { panic!("{message:?} is no ask") };
    pair.out.messages.clear();
    pair.ask(2, Access::Write);
    pair.answer(Message::Expired { nonce: ask.nonce, session: ask.session });
    for _ in 0..3 {
        pair.exchange(9);
    }
    let mut told = pair.out.replies.drain(..).map(|answered| (answered.request.0, answered.outcome));
    assert_eq!(told.next(), Some((1, Outcome::Failed(Failure::SessionEnded))));
    assert!(matches!(told.next(), Some((2, Outcome::Done(_)))) && told.next().is_none());
}

/// The same number may be another write's there: of the proxy before a restart, or of a session that has ended.
#[test]
fn what_is_said_to_another_incarnation_or_of_another_session_says_nothing() {
    let mut pair = Pair::new();
    let asks = |pair: &mut Pair| {
        pair.step(|proxy, cx| proxy.on_batch_end(cx));
        let asks = std::mem::take(&mut pair.out.messages).into_iter();
        asks.map(|outgoing| match outgoing.message {
            Say::Client(Message::Ask(ask)) => ask,
            other => panic!("{other:?} is no ask"),
        })
        .collect::<Vec<_>>()
    };
    pair.ask(1, Access::Write);
    let nonce = asks(&mut pair)[0].nonce;
    for (nonce, session, sent) in [(nonce + 1, 4, vec![]), (nonce, 5, vec![(5, 1)]), (nonce, 6, vec![])] {
        pair.answer(Message::Opened { nonce, session });
        let numbers = |ask: Ask| ask.writes.into_iter().map(move |(seq, _)| (ask.session, seq));
        assert_eq!(asks(&mut pair).into_iter().flat_map(numbers).collect::<Vec<_>>(), sent);
    }
    let outcomes =
        |pair: &mut Pair| pair.out.replies.drain(..).map(|told| told.request.0).collect::<Vec<_>>();
    for (nonce, session, told) in [(nonce + 1, 5, vec![]), (nonce, 4, vec![]), (nonce, 5, vec![1])] {
        if told.is_empty() {
            pair.answer(Message::Expired { nonce, session });
        }
        let writes = vec![(1, Reply::Integer(1).encoded().into())];
        pair.answer(Message::Answer { nonce, session, applied: 1, writes, slots: vec![], reads: vec![] });
        assert_eq!(outcomes(&mut pair), told, "{nonce} {session}");
    }
    pair.ask(2, Access::Read);
    let id = asks(&mut pair)[0].reads[0].0;
    for (nonce, again) in [(nonce + 1, 0), (nonce, 1)] {
        pair.answer(Message::Refused { nonce, reads: vec![id], leader: NodeId::new(1) });
        assert_eq!(asks(&mut pair).iter().map(|ask| ask.reads.len()).sum::<usize>(), again);
    }
    for (nonce, version, is_news) in [(nonce + 1, 3, false), (nonce, 3, true), (nonce, 2, false)] {
        let nodes = [(NodeId::new(1).expect("an id"), Member { address: String::new(), voter: true })].into();
        pair.answer(Message::Members { nonce, members: Members { version, nodes } });
        assert_eq!(pair.out.members.take().is_some(), is_news);
    }
}

#[test]
fn a_session_is_refreshed_when_nothing_was_written_for_a_while() {
    let mut pair = Pair::new();
    pair.ask(1, Access::Write);
    pair.exchange(9);
    pair.exchange(9);
    let mut written = || {
        pair.step(|proxy, cx| proxy.on_timer(ProxyTimer::Refresh, cx));
        pair.step(|proxy, cx| proxy.on_batch_end(cx));
        let messages = std::mem::take(&mut pair.out.messages).into_iter();
        let writes = messages.map(|outgoing| match outgoing.message {
            Say::Client(Message::Ask(ask)) => ask.writes,
            other => panic!("{other:?} is no ask"),
        });
        writes.collect::<Vec<_>>().concat()
    };
    assert_eq!(written(), [], "something was written");
    assert_eq!(written(), [(2, Bytes::new())]);
}

#[test]
fn who_had_no_room_for_replies_has_room_again_when_they_have_left() {
    let Pair { mut intake, state, .. } = Pair::new();
    assert!(intake.take_room(intake::ANSWER_ROOM) && !intake.take_room(1) && !intake.has_room());
    intake.flush(&state);
    assert!(intake.has_room());
}

/// What is sent again may have been executed long ago: a read behind it could miss what was acknowledged since.
#[test]
fn almost_local_reads_name_a_write_that_is_sent_behind_them_for_the_first_time() {
    let node = |number| NodeId::new(number).expect("an id");
    let mut pair = Pair::with(|config| {
        (config.members, config.nearest, config.timely) =
            ([node(1), node(2)].into_iter().collect(), true, true);
    });
    // What leaves when a batch ends: to whom, how many reads and which writes, and which write is named.
    let sent = |pair: &mut Pair| {
        pair.step(|proxy, cx| proxy.on_batch_end(cx));
        let messages = std::mem::take(&mut pair.out.messages).into_iter().map(|outgoing| {
            let Say::Client(message) = outgoing.message;
            let (ask, behind) = match message {
                Message::Ask(ask) => (ask, None),
                Message::AskBehind { ask, write } => (ask, Some(write)),
                other => panic!("a proxy does not say {other:?}"),
            };
            let writes: Vec<_> = ask.writes.iter().map(|(number, _)| *number).collect();
            (ask.nonce, format!("{} reads, writes {writes:?}, behind {behind:?}", ask.reads.len()))
        });
        messages.collect::<Vec<_>>()
    };
    let hear = |pair: &mut Pair, from: u64, message: Message| {
        let from = ProcessId::Replica(node(from));
        pair.step(|proxy, cx| proxy.on_message(from, Say::Client(message), cx));
    };
    pair.ask(1, Access::Write);
    let nonce = sent(&mut pair)[0].0;
    hear(&mut pair, 1, Message::Leader { nonce, leader: Some(node(2)) });
    hear(&mut pair, 2, Message::Opened { nonce, session: 7 });
    let texts = |sent: Vec<(u64, String)>| sent.into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts(sent(&mut pair)), ["0 reads, writes [1], behind None"]);
    pair.ask(2, Access::Read);
    assert_eq!(
        texts(sent(&mut pair)),
        ["1 reads, writes [], behind None"],
        "the write is on its way already"
    );
    pair.ask(3, Access::Read);
    pair.ask(4, Access::Write);
    pair.ask(5, Access::Write);
    assert_eq!(
        texts(sent(&mut pair)),
        ["1 reads, writes [], behind Some(2)", "0 reads, writes [2, 3], behind None"]
    );
}

/// By that slot a node knows when its own state shows what the read has shown: before it freezes a backup, say.
#[test]
fn a_read_of_a_majority_is_answered_with_the_last_slot_that_it_shows() {
    let mut pair = Pair::with(|config| config.majority = Some(Rinse::NEVER));
    pair.ask(1, Access::Read);
    pair.step(|proxy, cx| proxy.on_batch_end(cx));
    let Say::Client(message) = pair.out.messages.pop().expect("the question").message;
    let Message::Query { nonce, reads } = message else { panic!("{message:?} is no question") };
    let (voters, reply) = ([NodeId::new(1).expect("an id")].into_iter().collect(), Bytes::from_static(b"v"));
    let seen = ReadObservation { applied: 5, accepted: 0, reply: Some(reply.clone()) };
    let reads = vec![(reads[0].0, seen)];
    pair.answer(Message::Seen { nonce, voters, outgoing: NodeSet::EMPTY, reads });
    assert_eq!(
        pair.out.replies,
        [Answered { request: RequestId(1), outcome: Outcome::Done(reply), slot: 5 }]
    );
}
