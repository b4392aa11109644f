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

/// What was asked for in a step. For how long it waits for an owner is drawn at random: in vain, then longer.
fn shown(out: &mut Outbox<Member>, now: Time) -> String {
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
        let millis = |at: Time| at.nanos() / 1_000_000;
        shown.push(match (timer, at) {
            (Timer::Election, None) => "owns it".to_owned(),
            (Timer::Election, Some(at)) => match at.since(now).as_millis() {
                0..500 => "waits on".to_owned(),
                500..1000 => "waits".to_owned(),
                _ => "waits longer".to_owned(),
            },
            (timer, at) => format!("{timer:?} at {}", millis(at.expect("it is set"))),
        });
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.join("; ") }
}

/// What each line leads to: the time, the step, and what comes of it.
fn run(voters: &str, script: &str) -> String {
    let (mut random, mut out) = (Random::new(1), Outbox::new(false));
    let mut member: Option<Member> = None;
    let (mut told, mut nonce) = (String::new(), 0);
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
            [from, "Ready", ..] => {
                let of = words.get(3).map_or(member.epochs.promised, |of| ballot(of));
                let (number, nonce) = (of.number(), at(0).nanos());
                let ready = lease::Message::Ready { number, nonce };
                member.on_message(node(from).into(), ready.into(), &mut cx);
            }
            ["end", "leases"] => member.epochs.give_leases_back(&mut cx),
            [from, "Guard"] => {
                let number = member.epochs.promised.number();
                let guard = lease::Message::Guard { number, guard: 1, safety_threshold: 0 };
                member.on_message(node(from).into(), guard.into(), &mut cx);
            }
            [from, "Renew"] => {
                let number = member.epochs.promised.number();
                let renew = lease::Message::Renew { number, guard: 1, nonce, seq: 1, safety_threshold: 0 };
                member.on_message(node(from).into(), renew.into(), &mut cx);
            }
            _ => panic!("what is {step}?"),
        }
        member.epochs.check();
        for sent in &out.messages {
            if let Say::Lease(lease::Message::GuardReply { nonce: fresh, .. }) = sent.message {
                nonce = fresh;
            }
        }
        told.push_str(&format!("{step} → {}\n", shown(&mut out, at(0))));
    }
    told
}

#[test]
fn a_member_stands_when_a_majority_misses_the_owner_in_one_round() {
    let script = "\
0 Election → waits
2000 Election → Poll 2000 5 to 2,3; waits
2010 2 PollReply 1999 0.1 → nothing
2010 3 Poll 2010 5 → PollReply 2010 0.0 to r3
2020 2 PollReply 2000 4.2 → records 5.1; Prepare 5.1 5 to 2,3; Promise 5.1 5 to r1; waits; waits
2030 3 PollReply 2000 0.1 → nothing
2040 3 Poll 2040 5 → PollReply 2040 5.1 to r3
9000 Election → waits longer
9010 1 Promise 5.1 5 → nothing
19000 Election → Poll 19000 5 to 2,3; waits longer
19010 2 states 6.2 123 → records 6.2; Guard to r2; Guard to r3; waits longer; Lease at 19197
19020 3 PollReply 19000 0.1 → nothing
29000 Election → Poll 29000 5 to 2,3; waits
29010 2 states 6.2 123 → Guard to r2; Guard to r3; Lease at 29197
29020 3 PollReply 29000 0.1 → nothing
39000 Election → Poll 39000 5 to 2,3; waits
39010 2 Prepare 7.2 5 → records 7.2; Promise 7.2 5 to r2; waits
39020 3 PollReply 39000 0.1 → nothing
";
    assert_eq!(run("123", script), script);
}

#[test]
fn whoever_is_alone_owns_an_epoch_at_once() {
    let script = "\
0 Election → records 1.1; Promise 1.1 5 to r1; waits; waits; waits
10 1 Promise 1.1 5 → Decide at 110; owns it; Lease at 197
20 Election → nothing
20 Lease → Lease at 207
30 abdicates → waits
40 drains → nothing
40 Election → records 2.1; Promise 2.1 5 to r1; waits; waits; waits
";
    assert_eq!(run("1", script), script);
}

/// Else the next one would be prepared while this one's record is under way, and so on for ever.
#[test]
fn a_candidate_whose_own_promise_is_not_durable_prepares_no_other_ballot() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1; waits; waits
10 2 Refused 3.2 → waits
20 stands → waits
9000 Election → waits longer
9010 1 Promise 1.1 5 → nothing
9020 2 Refused 1.1 → nothing
9030 2 Refused 2.2 → records 4.1; Prepare 4.1 5 to 2,3; Promise 4.1 5 to r1; waits longer; waits longer
9040 1 Promise 4.1 5 → nothing
90000 Election → Poll 90000 5 to 2,3; waits longer
90010 2 PollReply 9000 5.2 → nothing
90020 2 PollReply 90000 6.2 → records 7.1; Prepare 7.1 5 to 2,3; Promise 7.1 5 to r1; waits longer; waits longer
90030 1 Promise 7.1 5 → nothing
90040 2 Promise 7.1 5 → Decide at 90140
90050 3 Promise 7.1 5 → Guard to r2; Guard to r3; owns it; Lease at 90237
90060 abdicates → waits
";
    assert_eq!(run("123", script), script);
}

#[test]
fn nobody_is_helped_against_an_owner_or_with_a_shorter_log() {
    let script = "\
0 2 Poll 0 5 → PollReply 0 0.0 to r2
0 2 Poll 0 4 → nothing
10 2 states 1.2 12 → records 1.2; Guard to r2; waits; Lease at 197
509 3 Poll 509 9 → nothing
510 3 Poll 510 9 → PollReply 510 1.2 to r3
520 3 Prepare 7.3 4 → nothing
530 3 Prepare 2.3 5 → records 2.3; Promise 2.3 5 to r3; waits
530 2 states 1.2 12 → Refused 2.3 to r2
1029 2 Poll 1029 9 → nothing
1030 stands → records 8.1; Prepare 8.1 5 to 2,3; Promise 8.1 5 to r1; waits; waits
1040 1 Promise 8.1 5 → nothing
1050 3 Promise 8.1 5 → Decide at 1150
1060 2 Promise 8.1 5 → Guard to r2; Guard to r3; owns it; Lease at 1247
9000 1 states 8.1 123 → Guard to r2; Guard to r3; Lease at 9187
9000 Election → nothing
9000 3 Poll 9000 9 → nothing
9000 3 Prepare 9.3 9 → nothing
9000 3 Refused 2.3 → nothing
9000 3 Refused 9.3 → records 10.1; Prepare 10.1 5 to 2,3; Promise 10.1 5 to r1; waits
9010 stands → waits
9100 1 Promise 10.1 5 → nothing
9100 3 Promise 10.1 5 → Guard to r3; Decide at 9200; owns it; Lease at 9287
9200 3 states 11.3 23 → records 11.3; Guard to r2; Guard to r3; waits; Lease at 9387
9300 2 Refused 12.2 → nothing
9400 stands → records 13.1; Prepare 13.1 5 to 2,3; Promise 13.1 5 to r1; waits; waits
9410 1 Promise 13.1 5 → nothing
9410 2 Promise 13.1 5 → Decide at 9510
9410 3 Promise 13.1 5 → Guard to r2; Guard to r3; owns it; Lease at 9597
9500 drains → nothing
9500 abdicates → waits
99000 Election → waits
99000 3 Poll 99000 9 → PollReply 99000 13.1 to r3
";
    assert_eq!(run("123", script), script);
}

#[test]
fn a_ballot_is_promised_to_its_owner_again_and_to_others_when_it_is_silent() {
    let script = "\
0 2 Prepare 1.3 5 → nothing
0 1 Prepare 1.1 5 → nothing
0 2 Prepare 2.2 5 → records 2.2; Promise 2.2 5 to r2; waits
100 2 Prepare 2.2 4 → Promise 2.2 5 to r2
599 3 Prepare 3.3 9 → nothing
599 2 Prepare 3.2 4 → nothing
599 2 Prepare 3.2 9 → records 3.2; Promise 3.2 5 to r2; waits
1099 3 Prepare 3.1 9 → nothing
1099 3 Prepare 2.3 9 → Refused 3.2 to r3
1099 3 states 2.3 123 → Refused 3.2 to r3
1099 3 Prepare 3.3 9 → records 3.3; Promise 3.3 5 to r3; waits
";
    assert_eq!(run("123", script), script);
}

#[test]
fn a_statement_is_the_owners_and_of_a_majority_of_the_members() {
    let script = "\
0 2 states 1.3 123 → nothing
0 2 states 1.2 12 → nothing
0 2 states 1.2 126 → nothing
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3; waits; Lease at 187
10 3 states 1.1 345 → nothing
10 3 states 2.3 345 → records 2.3; Guard to r3; Guard to r4; Guard to r5; waits; Lease at 197
10 Lease → Guard to r3; Guard to r4; Guard to r5; Lease at 197
";
    assert_eq!(run("12345", script), script);
}

#[test]
fn the_highest_ballot_that_is_wanted_is_promised_when_nothing_binds_any_more() {
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3; waits; Lease at 187
10 2 Ready → Renew to r2; Lease at 197
20 2 Guard → GuardReply to r2
30 2 Renew → RenewReply to r2
500 3 Prepare 2.3 4 → nothing
500 4 Prepare 1.4 9 → Revoke to r2; Free at 790
510 3 Prepare 2.3 5 → Revoke to r2; Free at 790
510 5 Prepare 1.5 9 → Revoke to r2; Free at 790
510 Lease → nothing
510 3 Ready → nothing
600 stands → waits
9000 Election → waits
9000 Free → records 2.3; RevokeReply to r2; Promise 2.3 5 to r3; waits
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3; waits; Lease at 187
10 2 Ready → Renew to r2; Lease at 197
500 3 Prepare 2.3 5 → Revoke to r2; Free at 790
600 2 states 1.2 123 → Guard to r3; Lease at 787
790 Free → nothing
790 2 Ready → Renew to r2; Lease at 977
800 2 Prepare 3.2 5 → Revoke to r2; Free at 1570
810 2 states 1.2 123 → nothing
820 ends 6 → nothing
1600 Free → nothing
2000 Election → Poll 2000 6 to 2,3,4,5; waits
2000 2 Ready → nothing
9000 Election → Poll 9000 6 to 2,3,4,5; waits
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3; waits; Lease at 187
10 2 Ready → Renew to r2; Lease at 197
100 3 states 2.3 345 → Revoke to r2; Free at 790
110 ends 6 → nothing
790 Free → records 2.3; waits
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 2 states 1.2 123 → records 1.2; Guard to r2; Guard to r3; waits; Lease at 187
10 2 Ready → Renew to r2; Lease at 197
100 stands → Revoke to r2; waits; Free at 790
110 ends 6 → nothing
120 3 Refused 7.3 → nothing
790 Free → records 8.1; Prepare 8.1 6 to 2,3,4,5; Promise 8.1 6 to r1; waits
";
    assert_eq!(run("12345", script), script);
}

#[test]
fn a_candidate_waits_a_little_for_the_others() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3,4,5; Promise 1.1 5 to r1; waits; waits
10 2 Promise 1.1 5 → nothing
20 3 Promise 1.1 5 → nothing
30 4 Promise 1.1 5 → nothing
30 Decide → nothing
30 asks again → Prepare 1.1 5 to 5
30 5 Poll 30 5 → PollReply 30 1.1 to r5
40 1 Promise 1.1 5 → Decide at 140
50 4 Promise 1.1 5 → nothing
50 asks again → Prepare 1.1 5 to 2,3,4,5
50 5 Poll 50 5 → nothing
140 Decide → Guard to r2; Guard to r3; Guard to r4; owns it; Lease at 327
150 asks again → nothing
";
    assert_eq!(run("12345", script), script);
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1; waits; waits
10 1 Promise 1.1 5 → nothing
20 2 Promise 1.1 5 → Decide at 120
30 3 Promise 1.1 5 → Guard to r2; Guard to r3; owns it; Lease at 217
";
    assert_eq!(run("123", script), script);
}

#[test]
fn an_owner_waits_long_for_those_that_work_and_a_candidate_for_what_suffices() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1; waits; waits
10 1 Promise 1.1 0 → nothing
20 2 Promise 1.1 0 → Decide at 120
120 Decide → nothing
130 asks again → Prepare 1.1 5 to 3
140 3 Promise 1.1 1 → Guard to r2; Guard to r3; owns it; Lease at 327
150 stands → records 2.1; Prepare 2.1 5 to 2,3; Promise 2.1 5 to r1; waits
160 1 Promise 2.1 1 → nothing
170 2 Promise 2.1 1 → Decide at 270
270 Decide → Decide at 1170
1169 Decide → Decide at 1170
1170 Decide → Guard to r2; owns it; Lease at 1357
1180 stands → records 3.1; Prepare 3.1 5 to 2,3; Promise 3.1 5 to r1; waits
1190 1 Promise 3.1 1 → nothing
1200 3 Promise 3.1 1 → Decide at 1300
1300 Decide → Decide at 2200
1310 2 Promise 3.1 1 → Guard to r2; Guard to r3; owns it; Lease at 1497
1320 stands → records 4.1; Prepare 4.1 5 to 2,3; Promise 4.1 5 to r1; waits
1330 1 Promise 4.1 1 → nothing
1340 2 Promise 4.1 1 → Guard to r2; Decide at 1440; owns it; Lease at 1527
";
    assert_eq!(run("123", script), script);
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3,4,5; Promise 1.1 5 to r1; waits; waits
10 1 Promise 1.1 0 → nothing
20 2 Promise 1.1 0 → nothing
20 3 Promise 1.1 0 → Decide at 120
120 Decide → nothing
130 4 Promise 1.1 1 → Guard to r2; Guard to r3; Guard to r4; owns it; Lease at 317
";
    assert_eq!(run("12345", script), script);
}

#[test]
fn an_owner_that_abdicates_grants_and_takes_no_leases() {
    let script = "\
0 stands → records 1.1; Prepare 1.1 5 to 2,3; Promise 1.1 5 to r1; waits; waits
10 1 Promise 1.1 5 → nothing
20 2 Promise 1.1 5 → Decide at 120
30 3 Promise 1.1 5 → Guard to r2; Guard to r3; owns it; Lease at 217
40 2 Guard → GuardReply to r2
40 2 Renew → RenewReply to r2
40 3 Ready 2.1 → nothing
40 3 Ready → Renew to r3; Lease at 227
50 abdicates → waits
60 3 Guard → nothing
60 2 Ready → nothing
60 Lease → nothing
70 end leases → RevokeReply to r2
";
    assert_eq!(run("123", script), script);
}
