//! What every driver relies on, as conversations with a process whose machines do what they are told: a line says what
//! happens, the lines below it what comes of that.
//!
//! `r2>r1 ORDERS` and `request ORDERS` are inputs, `own` is the oldest message of the process to itself. Orders are
//! divided by semicolons: `say TEXT PROCESS…` leaves at once, `promise TEXT PROCESS…` when everything persisted before
//! it is durable; `persist TEXT`, `persist-state TEXT`, `set TIMER MILLIS`, `cancel TIMER`, `reply TEXT`. What is said
//! may be orders, with `_` for spaces and `+` for semicolons.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::time::Duration;

use bytes::Bytes;
use quorate_core::{
    Access, Answered, Capabilities, Configs, Context, Group, Instant, Interval, Machine, Message, Never,
    NodeId, NodeSet, Outcome, Payload, ProcessId, Protocol, Proxy, ProxyId, Random, Release, Replica,
    Request, RequestId, Saved, Settings, SettingsError, Shortage, Status, Time, Wall, Wire, wire_enum,
};

use crate::{AnyProcess, Effects, Input, OutgoingFrame, OwnMessages, Start, protocol};

thread_local! {
    /// What the machines of this thread have heard.
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn heard(line: String) {
    HEARD.with_borrow_mut(|lines| lines.push(line));
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Say { text: Bytes },
    Promise { text: Bytes },
}
wire_enum!(Told { 0 => Say { text }, 1 => Promise { text } });

impl Message for Told {
    fn release(&self) -> Release {
        match self {
            Told::Say { .. } => Release::Now,
            Told::Promise { .. } => Release::AfterSync,
        }
    }
    fn kind(&self) -> &'static str {
        match self {
            Told::Say { .. } => "Say",
            Told::Promise { .. } => "Promise",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Tea,
    Toast,
}

/// `r1` or `p1`.
fn process(name: &str) -> ProcessId {
    let node = NodeId::new(name[1..].parse().unwrap()).unwrap();
    if name.starts_with('r') { node.into() } else { ProxyId::of(node).into() }
}

fn obey<M>(orders: &Bytes, persist: impl Fn(&mut Context<'_, M>, Bytes, bool), cx: &mut Context<'_, M>)
where
    M: Machine<Message = Told, Timer = Timer>,
{
    // What is said may be orders itself.
    let inner = |text: &str| Bytes::from(text.replace('_', " ").replace('+', ";"));
    for order in String::from_utf8_lossy(orders).split(';') {
        let words: Vec<&str> = order.split_whitespace().collect();
        let text = inner(words.get(1).copied().unwrap_or_default());
        let timer = |name: &str| if name == "tea" { Timer::Tea } else { Timer::Toast };
        match words[..] {
            [verb @ ("say" | "promise"), _, ref to @ ..] => {
                let message = if verb == "say" { Told::Say { text } } else { Told::Promise { text } };
                let to: Vec<_> = to.iter().map(|name| process(name)).collect();
                match to[..] {
                    [one] => cx.send(one, message),
                    _ => cx.send_all(to.iter().filter_map(|to| to.replica()).collect(), message),
                }
            }
            ["persist", _] => persist(cx, text, false),
            ["persist-state", _] => persist(cx, text, true),
            ["set", name, millis] => {
                cx.set_timer(timer(name), Duration::from_millis(millis.parse().unwrap()));
            }
            ["cancel", name] => cx.cancel_timer(timer(name)),
            ["reply", _] => cx.reply(RequestId(1), Outcome::Done(text)),
            _ => {}
        }
    }
}

/// A replica with records of its own, or a proxy with none.
#[derive(Debug)]
struct Puppet<R> {
    kept: Vec<R>,
}

macro_rules! puppet {
    ($record:ty, $persist:expr) => {
        impl Machine for Puppet<$record> {
            type Config = ();
            type Message = Told;
            type Record = $record;
            type Timer = Timer;

            fn recover(_: (), saved: Saved<$record>, _: &mut Context<'_, Self>) -> Self {
                Puppet { kept: saved.records }
            }
            fn on_message(&mut self, from: ProcessId, message: Told, cx: &mut Context<'_, Self>) {
                let (Told::Say { text } | Told::Promise { text }) = message;
                let words = String::from_utf8_lossy(&text);
                heard(format!("{} at {} ms <- {from} {words}", cx.me(), cx.now().nanos() / 1_000_000));
                obey(&text, $persist, cx);
            }
            fn on_timer(&mut self, timer: Timer, cx: &mut Context<'_, Self>) {
                heard(format!("{} at {} ms timer {timer:?}", cx.me(), cx.now().nanos() / 1_000_000));
            }
            fn on_batch_end(&mut self, cx: &mut Context<'_, Self>) {
                heard(format!("{} ends its batch", cx.me()));
            }
        }
    };
}

puppet!(Bytes, |cx: &mut Context<'_, Self>, text, state| match state {
    true => cx.persist_state(text),
    false => cx.persist(text),
});
puppet!(Never, |_: &mut Context<'_, Self>, _, _| unreachable!("a proxy keeps nothing"));

impl Replica for Puppet<Bytes> {
    fn save(&self) -> Saved<Bytes> {
        Saved { restarted: true, snapshot: None, records: self.kept.clone() }
    }
    fn on_drain(&mut self, cx: &mut Context<'_, Self>) {
        heard(format!("{} drains", cx.me()));
    }
    fn set_shortage(&mut self, _: Option<Shortage>) {}
    fn fingerprint(&self) -> (u64, u64) {
        (self.kept.len() as u64, 0)
    }
    fn read(&self, command: &Bytes) -> Bytes {
        command.clone()
    }
    fn status(&self, _: Instant) -> Status {
        Status {
            role: "puppet",
            leader: None,
            ballot: String::new(),
            committed: 0,
            applied: self.kept.len() as u64,
            lease: false,
            reads: "none",
            peers: Vec::new(),
            samples: Vec::new(),
            facts: Vec::new(),
        }
    }
}

impl Proxy for Puppet<Never> {
    fn on_request(&mut self, id: RequestId, request: Request, cx: &mut Context<'_, Self>) {
        heard(format!("{} request {}", cx.me(), id.0));
        obey(&request.command, |_, _, _| unreachable!("a proxy keeps nothing"), cx);
    }
}

struct Puppets;

impl Protocol for Puppets {
    const NAME: &'static str = "puppets";
    const PAPER: &'static str = "none";
    const CAPABILITIES: Capabilities = Capabilities::LOGGED;
    type Message = Told;
    type Replica = Puppet<Bytes>;
    type Proxy = Puppet<Never>;

    fn configure(_: &Group, _: &mut Settings) -> Result<Configs<Puppets>, SettingsError> {
        Ok(((), ()))
    }
}

fn instant(millis: u64) -> Instant {
    let now = Time::from_nanos(millis * 1_000_000);
    Instant { now, wall: Wall::ZERO, clock: None::<Interval> }
}

/// Node 1, without its replica.
fn proxy_of_node(own: OwnMessages) -> Box<dyn AnyProcess> {
    let node = NodeId::new(1).unwrap();
    let group = Group::of(NodeSet::EMPTY);
    let configured = protocol::<Puppets>().configure(&group, &mut Settings::default()).unwrap();
    let (proxy, at, random) = (ProxyId::of(node), instant(0), Random::new(1));
    configured.start(Start { proxy, node: Some(node), at, random, observed: true, own })
}

/// Node 1 at rest.
fn node(own: OwnMessages) -> Box<dyn AnyProcess> {
    let mut process = proxy_of_node(own);
    process.load(Saved::nothing()).unwrap();
    process.start_replica(instant(0), Random::new(2));
    process.end_batch(instant(0));
    HEARD.take();
    process
}

fn take_effects(process: &mut dyn AnyProcess, out: &mut String) {
    let Effects { records, barriers, frames, replies, .. } = std::mem::take(process.effects());
    for line in HEARD.take() {
        writeln!(out, "  {line}").unwrap();
    }
    for record in records {
        writeln!(out, "  persist {}", process.describe_record(&record)).unwrap();
    }
    for barrier in barriers {
        writeln!(out, "  record {barrier} stands for a state").unwrap();
    }
    for OutgoingFrame { from, to, own, kind, payload, .. } in frames {
        let itself = own.then(|| "itself".to_owned());
        let to: Vec<_> = to.iter().map(|to| to.to_string()).chain(itself).collect();
        let text = match payload.len() {
            0 => kind.to_owned(),
            _ => process.describe_message(&payload.into_bytes()),
        };
        writeln!(out, "  {from} -> {} {text}", to.join(",")).unwrap();
    }
    for Answered { request, outcome, .. } in replies {
        writeln!(out, "  #{} = {outcome:?}", request.0).unwrap();
    }
}

/// Plays the lines that are not indented, and compares.
fn play(runner: &mut dyn AnyProcess, text: &str) {
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix("        ").unwrap_or(line)).collect();
    let (mut out, mut now) = (String::new(), 0);
    for line in lines.iter().filter(|line| !line.trim().is_empty() && !line.starts_with(' ')) {
        writeln!(out, "{line}").unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.parse::<u64>().unwrap();
        let text = Bytes::copy_from_slice(rest.as_bytes());
        let mut step = |input: Input| {
            runner.take(input).unwrap();
            runner.step(instant(now));
        };
        match verb {
            "at" => now = number(),
            "own" => step(Input::Own),
            "drain" => step(Input::Drain),
            "request" => {
                let (access, deadline) = (Access::Write, instant(now).now);
                step(Input::Request(
                    RequestId(1),
                    Request { stream: 1, command: text, access, deadline, after: 0 },
                ));
            }
            "timers" => {
                while runner.take_due_timer(instant(now).now).is_some() {
                    runner.step(instant(now));
                }
                let next = runner.deadline().map(|at| at.nanos() / 1_000_000);
                writeln!(out, "  next {next:?}").unwrap();
            }
            "end" => runner.end_batch(instant(now)),
            "release" => runner.release(number()),
            "settle" => {
                let at_rest = runner.settle(2, &|| instant(now));
                writeln!(out, "  {}", if at_rest { "at rest" } else { "more to do" }).unwrap();
            }
            _ => {
                let (from, to) = verb.split_once('>').unwrap();
                let payload = Told::Say { text }.to_bytes();
                step(Input::Frame { from: process(from), to: process(to), payload });
            }
        }
        take_effects(runner, &mut out);
    }
    let expected: Vec<_> = lines.into_iter().filter(|line| !line.trim().is_empty()).collect();
    assert!(out.lines().eq(expected), "\n{out}");
}

#[test]
fn a_promise_leaves_in_order_when_what_was_persisted_before_it_is_durable() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        r2>r1 say before r2; promise nothing r2; persist a; promise a r2
          r1 at 0 ms <- r2 say before r2; promise nothing r2; persist a; promise a r2
          persist b"a"
        r2>r1 say after r3; persist b; promise b r2
          r1 at 0 ms <- r2 say after r3; persist b; promise b r2
          persist b"b"
        release 0
          r1 -> r2 Say { text: b"before" }
          r1 -> r2 Promise { text: b"nothing" }
          r1 -> r3 Say { text: b"after" }
        release 0
        r2>r1 persist c; promise c r3; say soon r3
          r1 at 0 ms <- r2 persist c; promise c r3; say soon r3
          persist b"c"
        release 1
          r1 -> r2 Promise { text: b"a" }
          r1 -> r3 Say { text: b"soon" }
        release 3
          r1 -> r2 Promise { text: b"b" }
          r1 -> r3 Promise { text: b"c" }
        r2>r1 promise known r2
          r1 at 0 ms <- r2 promise known r2
        release 3
          r1 -> r2 Promise { text: b"known" }
        "#,
    );
}

#[test]
fn one_release_lets_go_the_proxys_messages_then_those_that_waited_then_new_ones() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        r2>r1 persist a; promise waited r2
          r1 at 0 ms <- r2 persist a; promise waited r2
          persist b"a"
        release 0
        r2>r1 say new r2
          r1 at 0 ms <- r2 say new r2
        request say asked r2
          p1 request 1
        release 1
          p1 -> r2 Say { text: b"asked" }
          r1 -> r2 Promise { text: b"waited" }
          r1 -> r2 Say { text: b"new" }
        "#,
    );
}

#[test]
fn a_record_that_stands_for_a_state_is_named_and_of_several_in_a_step_the_last() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        r2>r1 persist a; persist-state b; persist c
          r1 at 0 ms <- r2 persist a; persist-state b; persist c
          persist b"a"
          persist b"b"
          persist b"c"
          record 2 stands for a state
        r2>r1 persist d
          r1 at 0 ms <- r2 persist d
          persist b"d"
        r2>r1 persist-state e; persist-state f
          r1 at 0 ms <- r2 persist-state e; persist-state f
          persist b"e"
          persist b"f"
          record 6 stands for a state
        "#,
    );
}

#[test]
fn a_process_ends_its_proxys_batch_before_its_replicas_and_none_without_input() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        end
        r2>r1 nothing
          r1 at 0 ms <- r2 nothing
        request nothing
          p1 request 1
        end
          p1 ends its batch
          r1 ends its batch
        end
        request nothing
          p1 request 1
        end
          p1 ends its batch
        "#,
    );
}

#[test]
fn a_message_to_the_process_itself_is_not_encoded_and_comes_as_its_own() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        request say one r1; say all r1 r2; say alone p1
          p1 request 1
        release 0
          p1 -> itself Say
          p1 -> r2,itself Say { text: b"all" }
          p1 -> itself Say
        own
          r1 at 0 ms <- p1 one
        own
          r1 at 0 ms <- p1 all
        own
          p1 at 0 ms <- p1 alone
        "#,
    );
}

#[test]
fn a_script_sees_own_messages_as_any_other() {
    play(
        &mut *node(OwnMessages::AsFrames),
        r#"
        r2>r1 say both r1 r2; say self p1; persist a; promise vote r1
          r1 at 0 ms <- r2 say both r1 r2; say self p1; persist a; promise vote r1
          persist b"a"
        release 0
          r1 -> r1,r2 Say { text: b"both" }
          r1 -> p1 Say { text: b"self" }
        release 1
          r1 -> r1 Promise { text: b"vote" }
        "#,
    );
}

#[test]
fn own_messages_and_ends_of_batches_go_on_until_both_machines_rest() {
    play(
        &mut *node(OwnMessages::Settled),
        r#"
        at 5
        request say persist_a+promise_reply_p1 r1
          p1 request 1
        settle
          at rest
          r1 at 5 ms <- p1 persist a;promise reply p1
          p1 ends its batch
          r1 ends its batch
          persist b"a"
        release 1
        settle
          at rest
          p1 at 5 ms <- r1 reply
          p1 ends its batch
        "#,
    );
}

#[test]
fn timers_fire_when_they_are_due_the_earliest_first_and_the_replicas_before_the_proxys() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        r2>r1 set tea 30; set toast 20; set tea 40
          r1 at 0 ms <- r2 set tea 30; set toast 20; set tea 40
        request set tea 10; set toast 15; cancel toast
          p1 request 1
        timers
          next Some(10)
        at 25
        timers
          next Some(40)
          r1 at 25 ms timer Toast
          p1 at 25 ms timer Tea
        at 60
        timers
          next None
          r1 at 60 ms timer Tea
        "#,
    );
}

#[test]
fn a_replica_that_has_not_started_hears_nothing_and_its_proxy_serves() {
    play(
        &mut *proxy_of_node(OwnMessages::Settled),
        r#"
        r2>r1 say hello r2
        drain
        request say hello r1; say hello r2
          p1 request 1
        settle
          at rest
          p1 ends its batch
          p1 -> r2 Say { text: b"hello" }
        "#,
    );
}

#[test]
fn a_drain_reaches_the_replica() {
    play(
        &mut *node(OwnMessages::AsInput),
        r#"
        drain
          r1 drains
        end
          r1 ends its batch
        "#,
    );
}

#[test]
fn bytes_that_are_no_message_or_record_are_refused_and_change_nothing() {
    let mut process = proxy_of_node(OwnMessages::AsInput);
    let (from, to, payload) = (process_of(2), process_of(1), Bytes::from_static(b"\x07"));
    assert!(process.take(Input::Frame { from, to, payload: payload.clone() }).is_err());
    assert!(process.recode_message(&payload).is_err());
    let message = Told::Say { text: payload.clone() }.to_bytes();
    assert_eq!(process.recode_message(&message), Ok(message));
    let good = Bytes::from_static(b"kept").to_bytes();
    let saved = |records| Saved { restarted: true, snapshot: None, records };
    let error = process.load(saved(vec![good.clone(), payload])).unwrap_err();
    assert_eq!(error.index, 1, "{error}");
    process.load(saved(vec![good])).unwrap();
    process.start_replica(instant(0), Random::new(2));
    assert_eq!(process.groups()[0].fingerprint(), Some((1, 0)));
}

fn process_of(node: u64) -> ProcessId {
    NodeId::new(node).unwrap().into()
}

#[test]
fn another_process_recovers_a_replica_from_what_it_saves() {
    let mut process = proxy_of_node(OwnMessages::AsInput);
    let records = ["a", "b"].map(|text| Bytes::from(text).to_bytes()).to_vec();
    process.load(Saved { restarted: true, snapshot: None, records }).unwrap();
    process.start_replica(instant(0), Random::new(2));
    let saved = process.save().unwrap();
    let records = saved.records.into_iter().map(Payload::into_bytes).collect();
    let mut copy = proxy_of_node(OwnMessages::AsInput);
    copy.load(Saved { records, ..Saved::nothing() }).unwrap();
    copy.start_replica(instant(0), Random::new(2));
    assert_eq!(copy.status(instant(0)).unwrap().applied, 2);
    assert_eq!(copy.groups()[0].fingerprint(), process.groups()[0].fingerprint());
}
