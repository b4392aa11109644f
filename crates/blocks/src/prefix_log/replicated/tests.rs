//! What a member records of its log is what it finds again, with the state that it has received or without it.

use quorate_core::{
    Class, Instant, NodeId, Outbox, ProcessId, Random, Release, Saved, Snapshot, Time, Wall, wire_enum,
};

use super::*;
use crate::state::Origin;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Say {
    Catchup(catchup::Message),
}
wire_enum!(Say { 1 => Catchup(message) });

impl quorate_core::Message for Say {
    fn release(&self) -> Release {
        Release::Now
    }
    fn kind(&self) -> &'static str {
        "Catchup"
    }
    fn class(&self) -> Class {
        Class::Urgent
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Entry {
        index: u64,
        entry: Entry,
    },
    Committed(u64),
    Installed {
        index: u64,
        keep: bool,
    },
    Resumed,
    /// Beside the log.
    Promised(u64),
}
wire_enum!(Record {
    1 => Entry { index, entry },
    2 => Committed(index),
    3 => Installed { index, keep },
    4 => Resumed,
    5 => Promised(ballot),
});
crate::embed_log!(Say, Record);

/// A log and nothing else.
#[derive(Debug)]
struct Member(ReplicatedLog);

fn group() -> Group {
    Group::of(NodeId::new(1).into_iter().collect())
}

impl Machine for Member {
    type Config = ();
    type Message = Say;
    type Record = Record;
    type Timer = ();

    fn recover(_: (), saved: Saved<Record>, cx: &mut Context<'_, Self>) -> Self {
        let mut replay = Replay::new(saved.snapshot, &group(), cx.now());
        saved.records.into_iter().for_each(|record| replay.on_record(record));
        Member(ReplicatedLog::recover(replay, 1 << 20, cx))
    }
    fn on_message(&mut self, _: ProcessId, _: Say, _: &mut Context<'_, Self>) {}
    fn on_timer(&mut self, (): (), _: &mut Context<'_, Self>) {}
}

/// A member, what it has recorded, and the state that it has received last.
struct Life {
    log: ReplicatedLog,
    out: Outbox<Member>,
    received: Option<Snapshot>,
}

/// Calls it with a context of these.
fn within<T>(out: &mut Outbox<Member>, act: impl FnOnce(&mut Context<'_, Member>) -> T) -> T {
    let me = NodeId::new(1).expect("an id").into();
    let at = Instant { now: Time::ZERO, wall: Wall::ZERO, clock: None };
    act(&mut Context::new(me, at, &mut Random::new(1), out))
}

impl Life {
    fn begin(snapshot: Option<Snapshot>, records: Vec<Record>) -> Life {
        let mut out = Outbox::new(false);
        let saved = Saved { restarted: !records.is_empty(), snapshot, records: records.clone() };
        let Member(log) = within(&mut out, |cx| Member::recover((), saved, cx));
        out.records.splice(0..0, records);
        Life { log, out, received: None }
    }

    /// Entries of these terms come behind the one at `prev`.
    fn accept(&mut self, prev: u64, terms: &str) {
        let term = self.log.entries.term(prev).expect("the entry before is here");
        let entries: Vec<_> = entries(terms).collect();
        within(&mut self.out, |cx| match self.log.accept((prev, term), &entries, cx) {
            Append::Matches { upto, fresh, .. } => self.log.store(upto, &entries[fresh..], cx),
            Append::Differs { index, .. } => panic!("they differ behind {index}"),
        });
    }

    /// The state comes to which entries of these terms lead.
    fn install(&mut self, terms: &str) {
        let mut state = Replicated::default();
        for (index, entry) in (1..).zip(entries(terms)) {
            state.apply(index, entry.value.whole().expect("it is whole"), |_| {}, |_| {});
            state.follow(Origin { term: entry.term, ..Origin::default() });
        }
        self.received = Some(state.freeze());
        within(&mut self.out, |cx| self.log.install(state, &group(), cx));
    }

    /// Where the log begins, and the terms of its entries.
    fn terms(&self) -> String {
        let terms: String = self.log.entries.iter(0).map(|(_, held)| held.entry.term.to_string()).collect();
        format!("{}:{terms}", self.log.entries.base())
    }
}

fn entries(terms: &str) -> impl Iterator<Item = Entry> {
    let terms = terms.chars().map(|term| u64::from(term.to_digit(10).expect("a term")));
    terms.map(|term| Entry { term, stamp: None, value: Batch::noop().into() })
}

#[test]
fn a_restart_finds_what_follows_the_state_that_was_received() {
    let table = [
        // The log, the state that comes → the log behind it, which a restart finds again.
        ("1111", "11", "2:11"),
        ("1122", "11", "2:22"),
        ("111", "12", "2:"),
        ("111", "11111", "5:"),
        ("", "122", "3:"),
    ];
    for (own, state, behind) in table {
        let mut life = Life::begin(None, Vec::new());
        life.accept(0, own);
        life.install(state);
        assert_eq!(life.terms(), behind, "{own} with {state}");
        let mut again = Life::begin(life.received.clone(), life.out.records);
        assert_eq!(again.terms(), behind, "{own} with {state}, restarted");
        again.accept(again.log.entries.last().0, "3");
        let third = Life::begin(life.received, again.out.records);
        assert_eq!(third.terms(), format!("{behind}3"), "{own} with {state}, restarted twice");
    }
}

#[test]
fn what_follows_a_state_that_is_not_there_at_a_restart_counts_from_the_restart_on() {
    let mut life = Life::begin(None, Vec::new());
    life.accept(0, "11");
    life.install("1222");
    life.accept(4, "2");
    let mut second = Life::begin(None, life.out.records);
    assert_eq!(second.terms(), "0:11");
    second.accept(1, "33");
    let third = Life::begin(None, second.out.records);
    assert_eq!(third.terms(), "0:133");
}

#[test]
fn whoever_lacks_an_entry_that_is_not_kept_is_sent_the_state() {
    let mut life = Life::begin(None, Vec::new());
    life.install("111");
    life.accept(3, "11");
    let other = NodeId::new(2).expect("an id");
    for (from, is_sent) in [(1, true), (3, true), (4, false)] {
        life.out.messages.clear();
        let fetch = catchup::Message::Fetch { from, asked: Time::ZERO };
        within(&mut life.out, |cx| life.log.on_catchup(other, fetch, None, cx));
        assert_eq!(!life.out.messages.is_empty(), is_sent, "from {from} on");
    }
}
