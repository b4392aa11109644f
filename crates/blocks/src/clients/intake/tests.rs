//! What a leader admits of what it is asked, once and in order, and in which messages the answers leave.

use quorate_core::ProxyId;

use super::*;

/// An intake that holds a few writes, and the state behind it.
struct Bench {
    intake: Intake,
    state: Replicated,
    /// What was taken and is not executed.
    taken: Vec<Bytes>,
}

fn node() -> NodeId {
    NodeId::new(1).expect("an id")
}

fn proxy() -> ProcessId {
    ProxyId::of(node()).into()
}

/// Adds to a number under a key of so many letters.
fn increment(letters: usize) -> Bytes {
    Command::Increment { key: Bytes::from(vec![b'k'; letters]), by: 1 }.to_bytes()
}

fn numbers<T>(replies: &[(u64, T)]) -> String {
    replies.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(",")
}

impl Bench {
    /// A step: `ask SESSION LOW WRITES`, where `4-` is a write that was given up; `open`, `read IDS`, `probe`; `take`,
    /// all that waits, as a value; `execute`, what was taken; `lose`, which never is.
    fn step(&mut self, words: &[&str]) -> String {
        let number = |word: &str| word.parse::<u64>().expect("a number");
        let (writes, reads, bounds, manage) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut ask =
            Ask { nonce: 7, session: 0, open: false, low: 1, writes, reads, bounds, manage, version: 0 };
        match words {
            ["take"] => {
                let value = self.intake.take_batch(Limits { entries: 99, bytes: 1 << 20 }, Wall::ZERO);
                let batch = Batch::decode(&value).expect("a batch");
                self.taken.push(value);
                let named = |entry: &Entry| match entry {
                    Entry::Open { .. } => "open".to_owned(),
                    Entry::Write { session, seq, command, .. } if command.is_empty() => {
                        format!("{session}.{seq}-")
                    }
                    Entry::Write { session, seq, .. } => format!("{session}.{seq}"),
                    other => panic!("{other:?} was not asked for"),
                };
                let entries = batch.iter().flat_map(|batch| &batch.entries);
                return entries.map(named).collect::<Vec<_>>().join(" ");
            }
            ["execute"] => {
                for value in std::mem::take(&mut self.taken) {
                    let (slot, intake) = (self.state.applied() + 1, &mut self.intake);
                    self.state.apply(slot, &value, |effect| intake.on_effect(effect), |_| {});
                }
            }
            ["lose"] => std::mem::take(&mut self.taken).iter().for_each(|value| self.intake.retry(value)),
            ["open"] => ask.open = true,
            ["read", ids] => ask.reads = ids.split(',').map(|id| (number(id), increment(30))).collect(),
            ["ask", session, low, writes] => {
                (ask.session, ask.low) = (number(session), number(low));
                ask.writes = writes
                    .split(',')
                    .map(|write| match write.strip_suffix('-') {
                        Some(given_up) => (number(given_up), Bytes::new()),
                        None => (number(write), increment(30)),
                    })
                    .collect();
            }
            ["probe"] => {}
            _ => panic!("what is {words:?}?"),
        }
        if !matches!(words, ["execute"] | ["lose"]) {
            self.intake.on_ask(proxy(), ask, &self.state);
        }
        let reads = self.intake.take_reads();
        let mut said: Vec<_> = reads.iter().map(|read| format!("reads {}", read.id)).collect();
        said.extend(self.intake.flush(&self.state).into_iter().map(|(_, message)| match message {
            Message::Answer { session, writes, .. } => format!("answers {session}.{}", numbers(&writes)),
            Message::Opened { session, .. } => format!("opened {session}"),
            Message::Expired { session, .. } => format!("no session {session}"),
            Message::Leader { leader, .. } => format!("leader {}", leader.is_some()),
            other => panic!("{other:?}"),
        }));
        said.join("; ")
    }
}

#[test]
fn writes_are_admitted_in_order_once_and_as_many_as_there_is_room_for() {
    let script = "
        probe → leader true
        open →
        open →
        take → open
        execute → opened 1
        ask 1 1 1,2 →
        ask 1 1 1,2,3,5 →
        take → 1.1 1.2 1.3
        ask 1 1 1,2,3 →
        ask 1 1 3,4,5,6,7,8,9 →
        ask 1 1 4- →
        take → 1.4- 1.5 1.6 1.7
        lose →
        take → 1.1 1.2 1.3 1.4- 1.5 1.6 1.7
        execute → answers 1.1,2,3,4,5,6,7
        ask 1 2 1,2,3 → answers 1.1,2,3
        ask 1 3 1,2- → answers 1.1,2
        ask 1 4 3,6 → answers 1.3,6
        take →
        execute →
        ask 1 8 9,8 →
        ask 9 5 3,4,5,6 →
        take → 9.3 9.5 9.6
        execute → no session 9
        read 1,2,3,4,5,6,7,8,9 → reads 1; reads 2; reads 3; reads 4; reads 5; reads 6
    ";
    // Room for three writes and a little.
    let (intake, state) = (Intake::new(node().into(), 300), Replicated::default());
    let mut bench = Bench { intake, state, taken: Vec::new() };
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty());
    let told: Vec<_> = lines
        .map(|line| {
            let (step, _) = line.split_once(" →").expect("a step, and what comes of it");
            let came = bench.step(&step.split_whitespace().collect::<Vec<_>>());
            format!("        {step} → {came}").trim_end().to_owned()
        })
        .collect();
    assert_eq!(format!("\n{}\n    ", told.join("\n")), script);
}

/// Long ones go alone, so that others need not wait for them; and no message is longer than a megabyte.
#[test]
fn replies_leave_together_if_they_are_short_and_of_one_session() {
    let short = FRAME / 2;
    for (replies, messages) in [
        (vec![(1, 10), (1, 10), (1, short)], "1,2,3"),
        (vec![(1, 10), (2, 10), (2, 10)], "1 2,3"),
        (vec![(1, FRAME + 1), (1, 10), (1, 10)], "1 2,3"),
        (vec![(1, 10), (1, FRAME + 1), (1, 10)], "1 2 3"),
        (
            vec![(1, short); 34],
            "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32 33,34",
        ),
    ] {
        let mut intake = Intake::new(node().into(), 1 << 20);
        for (seq, (session, bytes)) in (1..).zip(&replies) {
            intake.on_write((proxy(), 7), *session, seq, Bytes::from(vec![b'r'; *bytes]));
        }
        let sent = intake.flush(&Replicated::default()).into_iter().map(|(_, message)| match message {
            Message::Answer { writes, .. } => numbers(&writes),
            other => panic!("{other:?}"),
        });
        assert_eq!(sent.collect::<Vec<_>>().join(" "), messages);
    }
}
