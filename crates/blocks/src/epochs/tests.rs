//! One member's part in the epochs, step by step: whom it helps, what it promises, and when it owns an epoch.

use quorate_core::{Instant, Outbox, ProcessId, Random, Recipients, Release, Saved, Wall, wire_enum};

use super::*;

/// A protocol's language that is about epochs only. Logs end at a number.
#[derive(Clone, Debug)]
enum Say {
    Epoch(Message<u64, u64>),
    Lease(lease::Message),
}
wire_enum!(Say { 1 => Epoch(message), 2 => Lease(message) });

impl From<Message<u64, u64>> for Say {
    fn from(message: Message<u64, u64>) -> Say {
        Say::Epoch(message)
    }
}

impl From<lease::Message> for Say {
    fn from(message: lease::Message) -> Say {
        Say::Lease(message)
    }
}

impl quorate_core::Message for Say {
    fn release(&self) -> Release {
        Release::Now
    }
    fn kind(&self) -> &'static str {
        match self {
            Say::Epoch(message) => message.kind(),
            Say::Lease(message) => message.kind(),
        }
    }
}

/// One promise at least must come with more than zero.
impl Evidence for u64 {
    fn suffices(_: NodeSet, promises: &BTreeMap<NodeId, u64>) -> bool {
        promises.values().any(|known| *known > 0)
    }
}

/// Node 1 of a group, with the end of its log.
#[derive(Debug)]
struct Member {
    epochs: Epochs<u64, u64>,
    end: u64,
}

impl Machine for Member {
    type Config = NodeSet;
    type Message = Say;
    type Record = Ballot;
    type Timer = Timer;

    fn recover(voters: NodeSet, saved: Saved<Ballot>, cx: &mut Context<'_, Self>) -> Self {
        let ms = Duration::from_millis;
        let timeouts = ElectionTimeouts { heartbeat: ms(100), election: ms(500) };
        let lease = LeaseConfig { guard: ms(500), lease: ms(750), drift: ms(30) };
        let members = Configuration { voters, ..Configuration::default() };
        let promised = saved.records.last().copied().unwrap_or_default();
        let epochs =
            Epochs::new((node("1"), members), (timeouts, lease), promised, (true, saved.restarted), cx);
        Member { epochs, end: 5 }
    }

    /// As protocols do: what counts in its epoch only is not taken in another.
    fn on_message(&mut self, from: ProcessId, message: Say, cx: &mut Context<'_, Self>) {
        let ProcessId::Replica(from) = from else { return };
        let event = match message {
            Say::Epoch(message) if message.epoch().is_some_and(|ballot| ballot != self.epochs.promised) => {
                Event::Nothing
            }
            Say::Epoch(message) => self.epochs.on_message(from, message, (self.end, self.end), cx),
            Say::Lease(message) => self.epochs.on_lease(from, &message, self.end, cx),
        };
        self.act(event, cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
        let event = self.epochs.on_timer(timer, self.end, cx);
        self.act(event, cx);
    }
}

impl Member {
    fn act(&mut self, event: Event<u64>, cx: &mut Context<'_, Self>) {
        match event {
            Event::Nothing => {}
            Event::Free => {
                let known = (self.end, self.end);
                let reads = self.epochs.enter(known, |ballot, cx| cx.persist(ballot), cx);
                assert!(reads.is_empty(), "nothing is read");
            }
            Event::Decided(promises) => {
                let live = promises.keys().copied().collect();
                self.epochs.adopt(live, live);
                self.epochs.tend_leases(cx);
            }
            Event::Read(_) => panic!("nothing is read"),
        }
    }

    /// Somebody states its epoch, in which these are live; all of them read.
    fn hear(&mut self, from: NodeId, ballot: Ballot, live: NodeSet, cx: &mut Context<'_, Self>) {
        if !self.epochs.is_statement(from, ballot, live) {
            return;
        }
        let event = self.epochs.hear_of(from, ballot, self.end, cx);
        self.act(event, cx);
        if self.epochs.follow(from, ballot, cx.now()) {
            self.epochs.adopt(live, live);
            self.epochs.tend_leases(cx);
        }
    }
}

fn node(digit: &str) -> NodeId {
    digit.parse().ok().and_then(NodeId::new).expect("an id")
}

fn nodes(digits: &str) -> NodeSet {
    (0..digits.len()).map(|at| node(&digits[at..=at])).collect()
}

/// The ballot that is shown so: `2.3` is the second one, and of node 3.
fn ballot(shown: &str) -> Ballot {
    let (rounds, owner) = shown.split_once('.').expect("a ballot");
    let rounds: u32 = rounds.parse().expect("a number");
    (0..rounds).fold(Ballot::ZERO, |ballot, _| ballot.next(node(owner)))
}

/// What was asked for in a step, but when it looks for the owner again: that is drawn at random.
fn shown(out: &mut Outbox<Member>) -> String {
    let mut shown: Vec<_> = out.records.drain(..).map(|ballot| format!("records {ballot}")).collect();
    for sent in out.messages.drain(..) {
        let said = match sent.message {
            Say::Epoch(Message::Poll { sent, position }) => {
                format!("Poll {} {position}", sent.nanos() / 1_000_000)
            }
            Say::Epoch(Message::PollReply { sent, ballot }) => {
                format!("PollReply {} {ballot}", sent.nanos() / 1_000_000)
            }
            Say::Epoch(Message::Prepare { ballot, position }) => format!("Prepare {ballot} {position}"),
            Say::Epoch(Message::Promise { ballot, known }) => format!("Promise {ballot} {known}"),
            Say::Epoch(Message::Refused { ballot }) => format!("Refused {ballot}"),
            Say::Epoch(other) => panic!("{other:?}"),
            Say::Lease(message) => message.kind().to_owned(),
        };
        let to: Vec<_> = match sent.to {
            Recipients::Replicas(to) => to.iter().map(|node| node.to_string()).collect(),
            Recipients::One(to) => vec![to.to_string()],
        };
        shown.push(format!("{said} to {}", to.join(",")));
    }
    for (timer, at) in out.timers.drain(..) {
        match (timer, at) {
            (Timer::Free | Timer::Decide, Some(at)) => {
                shown.push(format!("{timer:?} at {}", at.nanos() / 1_000_000))
            }
            (Timer::Election, None) => shown.push("owns it".to_owned()),
            _ => {}
        }
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.join("; ") }
}

/// What each line leads to: the time, the step, and what comes of it.
fn run(voters: &str, script: &str) -> String {
    let (mut random, mut out) = (Random::new(1), Outbox::new(false));
    let mut member: Option<Member> = None;
    let mut told = String::new();
    for line in script.lines() {
        let (step, _) = line.split_once(" → ").expect("a step, and what comes of it");
        let words: Vec<&str> = step.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let at = |at: usize| Time::from_nanos(number(at) * 1_000_000);
        let now = Instant { now: at(0), wall: Wall::ZERO, clock: None };
        let mut cx = Context::new(node("1").into(), now, &mut random, &mut out);
        let member = member.get_or_insert_with(|| Member::recover(nodes(voters), Saved::nothing(), &mut cx));
        let mut says = |from: &str, message: Message<u64, u64>| {
            member.on_message(node(from).into(), message.into(), &mut cx);
        };
        match words[1..] {
            ["Election"] => member.on_timer(Timer::Election, &mut cx),
            ["Decide"] => member.on_timer(Timer::Decide, &mut cx),
            ["Free"] => member.on_timer(Timer::Free, &mut cx),
            ["Lease"] => member.on_timer(Timer::Lease, &mut cx),
            ["asks", "again"] => member.epochs.solicit(member.end, &mut cx),
            ["stands"] => {
                let event = member.epochs.stand(member.end, &mut cx);
                member.act(event, &mut cx);
            }
            ["abdicates"] => member.epochs.abdicate(&mut cx),
            ["drains"] => member.epochs.draining = true,
            ["ends", _] => member.end = number(2),
            [from, "Poll", ..] => says(from, Message::Poll { sent: at(3), position: number(4) }),
            [from, "PollReply", _, of] => says(from, Message::PollReply { sent: at(3), ballot: ballot(of) }),
            [from, "Prepare", of, _] => {
                says(from, Message::Prepare { ballot: ballot(of), position: number(4) })
            }
            [from, "Promise", of, _] => says(from, Message::Promise { ballot: ballot(of), known: number(4) }),
            [from, "Refused", of] => says(from, Message::Refused { ballot: ballot(of) }),
            [from, "states", of, live] => member.hear(node(from), ballot(of), nodes(live), &mut cx),
            [from, "Ready"] => {
                let (number, nonce) = (member.epochs.promised.number(), at(0).nanos());
                let ready = lease::Message::Ready { number, nonce };
                member.on_message(node(from).into(), ready.into(), &mut cx);
            }
            [from, "Guard"] => {
                let number = member.epochs.promised.number();
                let guard = lease::Message::Guard { number, guard: 1, safety_threshold: 0 };
                member.on_message(node(from).into(), guard.into(), &mut cx);
            }
            _ => panic!("what is {step}?"),
        }
        member.epochs.check();
        told.push_str(&format!("{step} → {}\n", shown(&mut out)));
    }
    told
}

#[test]
fn a_member_stands_when_a_majority_misses_the_owner_in_one_round() {
    let script = "\
0 Election → nothing
2000 Election → Poll 2000 5 to 2,3
2010 2 PollReply 1999 0.1 → nothing
2020 2 PollReply 2000 0.1 → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1
2030 3 PollReply 2000 0.1 → nothing
";
    assert_eq!(run("123", script), script);
}

/// Else the next one would be prepared while this one's record is under way, and so on for ever.
#[test]
fn a_candidate_whose_own_promise_is_not_durable_prepares_no_other_ballot() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1
10 2 Refused 3.2 → nothing
20 stands → nothing
9000 Election → nothing
9010 1 Promise 1.1 5 → nothing
9020 2 Refused 1.1 → nothing
9030 2 Refused 2.2 → records 4.1; Prepare 4.1 5 to 2,3; Promise 4.1 5 to r1
9040 1 Promise 4.1 5 → nothing
90000 Election → Poll 90000 5 to 2,3
90010 2 PollReply 9000 5.2 → nothing
90020 2 PollReply 90000 6.2 → records 7.1; Prepare 7.1 5 to 2,3; Promise 7.1 5 to r1
";
    assert_eq!(run("123", script), script);
}

#[test]
fn nobody_is_helped_against_an_owner_or_with_a_shorter_log() {
    let script = "\
0 2 Poll 0 5 → PollReply 0 0.0 to r2
0 2 Poll 0 4 → nothing
10 2 states 1.2 12 → records 1.2; Guard to r2
509 3 Poll 509 9 → nothing
510 3 Poll 510 9 → PollReply 510 1.2 to r3
520 3 Prepare 2.3 4 → nothing
530 3 Prepare 2.3 5 → records 2.3; Promise 2.3 5 to r3
530 2 states 1.2 12 → Refused 2.3 to r2
1029 2 Poll 1029 9 → nothing
1030 stands → records 3.1; Prepare 3.1 5 to 2,3; Promise 3.1 5 to r1
1040 1 Promise 3.1 5 → nothing
1050 3 Promise 3.1 5 → Decide at 1150
1060 2 Promise 3.1 5 → Guard to r2; Guard to r3; owns it
9000 3 Poll 9000 9 → nothing
9000 3 Prepare 4.3 9 → nothing
9000 3 Refused 2.3 → nothing
9000 3 Refused 4.3 → records 5.1; Prepare 5.1 5 to 2,3; Promise 5.1 5 to r1
9010 stands → nothing
9100 1 Promise 5.1 5 → nothing
9100 3 Promise 5.1 5 → Guard to r3; Decide at 9200; owns it
9200 2 Promise 5.1 5 → nothing
9300 drains → nothing
9300 abdicates → nothing
99000 Election → nothing
99000 3 Poll 99000 9 → PollReply 99000 5.1 to r3
";
    assert_eq!(run("123", script), script);
}

#[test]
fn a_ballot_is_promised_to_its_owner_again_and_to_others_when_it_is_silent() {
    let script = "\
0 2 Prepare 1.3 5 → nothing
0 1 Prepare 1.1 5 → nothing
0 2 Prepare 2.2 5 → records 2.2; Promise 2.2 5 to r2
100 2 Prepare 2.2 4 → Promise 2.2 5 to r2
599 3 Prepare 3.3 9 → nothing
599 2 Prepare 3.2 4 → nothing
599 2 Prepare 3.2 9 → records 3.2; Promise 3.2 5 to r2
1099 3 Prepare 3.1 9 → nothing
1099 3 Prepare 2.3 9 → Refused 3.2 to r3
1099 3 states 2.3 123 → Refused 3.2 to r3
1099 3 Prepare 3.3 9 → records 3.3; Promise 3.3 5 to r3
";
    assert_eq!(run("123", script), script);
}

#[test]
fn a_statement_is_the_owners_and_of_a_majority_of_the_members() {
    let script = "\
0 2 states 1.3 123 → nothing
0 2 states 1.2 12 → nothing
0 2 states 1.2 126 → nothing
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3
10 3 states 1.1 345 → nothing
10 3 states 2.3 345 → records 2.3; Guard to r3; Guard to r4; Guard to r5
";
    assert_eq!(run("12345", script), script);
}

#[test]
fn the_highest_ballot_that_is_wanted_is_promised_when_nothing_binds_any_more() {
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3
10 2 Ready → Renew to r2
500 3 Prepare 2.3 5 → Revoke to r2; Free at 790
500 4 Prepare 1.4 9 → Revoke to r2; Free at 790
510 Lease → nothing
510 3 Ready → nothing
600 stands → nothing
9000 Election → nothing
9000 Free → records 2.3; Promise 2.3 5 to r3
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3
10 2 Ready → Renew to r2
500 3 Prepare 2.3 5 → Revoke to r2; Free at 790
600 2 states 1.2 123 → Guard to r3
790 Free → nothing
790 2 Ready → Renew to r2
800 2 Prepare 3.2 5 → Revoke to r2; Free at 1570
810 2 states 1.2 123 → nothing
820 ends 6 → nothing
1600 Free → nothing
2000 Election → Poll 2000 6 to 2,3,4,5
2000 2 Ready → nothing
9000 Election → Poll 9000 6 to 2,3,4,5
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3
10 2 Ready → Renew to r2
100 3 states 2.3 345 → Revoke to r2; Free at 790
110 ends 6 → nothing
790 Free → records 2.3
";
    assert_eq!(run("12345", script), script);
}

#[test]
fn a_candidate_waits_a_little_for_the_others() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3,4,5; Promise 1.1 5 to r1
10 2 Promise 1.1 5 → nothing
20 3 Promise 1.1 5 → nothing
30 4 Promise 1.1 5 → nothing
30 Decide → nothing
30 asks again → Prepare 1.1 5 to 5
40 1 Promise 1.1 5 → Decide at 140
50 4 Promise 1.1 5 → nothing
50 asks again → Prepare 1.1 5 to 2,3,4,5
140 Decide → Guard to r2; Guard to r3; Guard to r4; owns it
150 asks again → nothing
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1
10 1 Promise 1.1 5 → nothing
20 2 Promise 1.1 5 → Decide at 120
30 3 Promise 1.1 5 → Guard to r2; Guard to r3; owns it
";
    assert_eq!(run("123", script), script);
}

#[test]
fn an_owner_waits_long_for_those_that_work_and_a_candidate_for_what_suffices() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1
10 1 Promise 1.1 0 → nothing
20 2 Promise 1.1 0 → Decide at 120
120 Decide → nothing
130 asks again → Prepare 1.1 5 to 3
140 3 Promise 1.1 1 → Guard to r2; Guard to r3; owns it
150 stands → records 2.1; Prepare 2.1 5 to 2,3; Promise 2.1 5 to r1
160 1 Promise 2.1 1 → nothing
170 2 Promise 2.1 1 → Decide at 270
270 Decide → Decide at 1170
1169 Decide → Decide at 1170
1170 Decide → Guard to r2; owns it
1180 stands → records 3.1; Prepare 3.1 5 to 2,3; Promise 3.1 5 to r1
1190 1 Promise 3.1 1 → nothing
1200 3 Promise 3.1 1 → Decide at 1300
1300 Decide → Decide at 2200
1310 2 Promise 3.1 1 → Guard to r2; Guard to r3; owns it
";
    assert_eq!(run("123", script), script);
}

#[test]
fn an_owner_that_abdicates_grants_and_takes_no_leases() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1
10 1 Promise 1.1 5 → nothing
20 2 Promise 1.1 5 → Decide at 120
30 3 Promise 1.1 5 → Guard to r2; Guard to r3; owns it
40 2 Guard → GuardReply to r2
40 3 Ready → Renew to r3
50 abdicates → nothing
60 3 Guard → nothing
60 2 Ready → nothing
60 Lease → nothing
";
    assert_eq!(run("123", script), script);
}
