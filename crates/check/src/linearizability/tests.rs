//! Histories that must be accepted and histories that must be rejected; agreement with a search through all orders;
//! large histories.

mod generate;
mod time_to_live;

use bytes::Bytes;
use generate::{Mix, Store};
use quorate_core::Random;
use quorate_store::{Command, Reply};

use super::action::compile;
use super::config::Config;
use super::model::{Model, Overlay};
use super::*;

fn verdict(text: &str) -> Result<(), Failure> {
    check(&History::parse(text).unwrap())
}

fn violation(text: &str) -> Explanation {
    match verdict(text) {
        Err(Failure::Violation(explanation)) => *explanation,
        other => panic!("{other:?} for\n{text}"),
    }
}

#[test]
fn correct_histories_are_accepted() {
    for (name, text) in [
        ("nothing happened", ""),
        ("a read of nothing", "1 0 1 get \"k\" = value none"),
        (
            "a read while a write is open may see it or not",
            "1 0 100 put \"k\" \"a\" always never no = done
             2 10 20 get \"k\" = value none
             2 30 40 get \"k\" = value some \"a\"
             3 35 50 get \"k\" = value some \"a\"",
        ),
        (
            "concurrent writes may happen in either order",
            "1 0 100 put \"k\" \"a\" always never no = done
             2 0 100 put \"k\" \"b\" always never no = done
             3 101 102 get \"k\" = value some \"a\"",
        ),
        (
            "an unknown write may happen late",
            "1 0 ? put \"k\" \"a\" always never no
             2 10 20 put \"k\" \"b\" always never no = done
             2 30 40 get \"k\" = value some \"b\"
             2 50 60 get \"k\" = value some \"a\"",
        ),
        (
            "an unknown write may never happen",
            "1 0 ? put \"k\" \"a\" always never no
             2 10 20 get \"k\" = value none",
        ),
        (
            "two increments are counted in either order",
            "1 0 10 increment \"n\" 1 = integer 2
             2 0 10 increment \"n\" 1 = integer 1
             3 11 12 get \"n\" = value some \"2\"",
        ),
        (
            "an unknown increment explains a gap",
            "1 0 ? increment \"n\" 5
             2 10 20 increment \"n\" 1 = integer 6",
        ),
        (
            "what was executed with a reply that is not retained took effect",
            "1 0 10 increment \"n\" 5 = not-retained
             2 20 30 get \"n\" = value some \"5\"
             1 40 50 put \"n\" \"x\" if-absent never yes = not-retained
             2 60 70 take \"n\" = value some \"5\"",
        ),
        (
            "keys are independent",
            "1 0 10 put \"a\" \"1\" always never no = done
             2 20 30 get \"b\" = value none",
        ),
        (
            "one client may write and read within one instant",
            "1 5 5 put \"k\" \"a\" always never no = done
             1 5 5 get \"k\" = value some \"a\"",
        ),
        (
            "hidden writes of many clients need no witness",
            "1 0 100 put \"k\" \"a\" always never no = done
             2 0 100 put \"k\" \"b\" always never no = done
             3 0 100 put \"k\" \"c\" always never no = done
             4 50 60 get \"k\" = value some \"b\"
             4 101 102 get \"k\" = value some \"c\"",
        ),
        (
            "a read in the shadow of a later write",
            "1 0 10 put \"k\" \"a\" always never no = done
             2 5 30 put \"k\" \"b\" always never no = done
             3 5 40 get \"k\" = value some \"b\"
             4 20 25 get \"k\" = value some \"a\"",
        ),
        (
            "a lock taken, found taken and released",
            "1 0 10 put \"l\" \"1\" if-absent never no = done
             2 5 20 put \"l\" \"2\" if-absent never no = skipped
             1 21 30 delete (\"l\") = integer 1
             2 25 40 put \"l\" \"2\" if-absent never no = done",
        ),
        (
            "versions: a comparison after a look",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 11 20 versions (\"k\" \"x\") = versions (7 0)
             1 21 30 put \"k\" \"b\" if-version 7 never no = done
             1 31 40 put \"k\" \"c\" if-version 7 never no = skipped
             2 41 50 versions (\"k\") = versions (9)
             2 51 60 batch (\"k\" 9) (get \"k\" put \"x\" \"1\" always never no) = batch some (value some \"b\" done)
             2 61 70 batch (\"x\" 9 \"x\" 0) (get \"k\") = batch none",
        ),
        (
            "several keys at once",
            "1 0 10 put-many (\"a\" \"1\" \"b\" \"1\") no = done
             2 5 20 put-many (\"a\" \"2\" \"b\" \"2\") no = done
             3 5 20 get-many (\"a\" \"b\") = values (some \"1\" some \"1\")
             3 21 30 get-many (\"a\" \"b\") = values (some \"2\" some \"2\")",
        ),
        (
            "hashes",
            "1 0 10 hash-put \"h\" (\"f\" \"1\" \"g\" \"2\") no = integer 2
             1 11 12 hash-increment \"h\" \"f\" 4 = integer 5
             1 13 14 hash-get \"h\" (\"f\" \"x\") = values (some \"5\" none)
             1 15 16 hash-delete \"h\" (\"g\" \"g\") = integer 1
             1 17 18 hash-all \"h\" = pairs (\"f\" \"5\")
             1 19 20 get \"h\" = error wrong-type
             1 21 22 hash-length \"h\" = integer 1
             1 23 24 kind \"h\" = kind some hash",
        ),
        (
            "strings",
            "1 0 1 append \"s\" \"Hello\" = integer 5
             1 2 3 append \"s\" \" World\" = integer 11
             1 4 5 get-range \"s\" -5 -1 = value some \"World\"
             1 6 7 length \"s\" = integer 11
             1 8 9 increment \"s\" 1 = error not-integer
             1 10 11 take \"s\" = value some \"Hello World\"
             1 12 13 exists (\"s\" \"s\") = integer 0
             1 14 15 put \"s\" \"x\" if-present never yes = value none",
        ),
        (
            "the whole keyspace",
            "1 0 1 put \"a\" \"1\" always never no = done
             1 2 3 put \"b\" \"1\" always never no = done
             1 4 5 count = integer 2
             1 6 7 scan 0 1 none none = keys (\"a\") some 7175313578272942
             1 8 9 scan 7175313578272942 5 none none = keys (\"b\") none
             1 10 11 random-key 3 = value some \"b\"
             1 12 13 clear = done
             1 14 15 exists (\"a\" \"b\") = integer 0",
        ),
        (
            "an unknown write of what is there hides what came before",
            "1 1 15 put \"k\" \"2\" always never no = done
             2 2 7 append \"k\" \"0\" = integer 1
             3 5 ? put \"k\" \"0\" always never no
             2 8 24 get \"k\" = value none
             0 9 14 take \"k\" = value some \"0\"
             3 12 18 length \"k\" = integer 0
             1 17 26 put \"k\" \"0\" always never no = done
             3 19 27 length \"k\" = integer 0
             0 20 25 increment \"k\" 2 = integer 2",
        ),
        (
            "an unknown append is read right before it is overwritten",
            "2 1 ? append \"k\" \"2\"
             1 2 7 get \"k\" = value none
             1 8 29 get \"k\" = value some \"2\"
             2 9 23 put \"k\" \"1\" always never no = done",
        ),
        (
            "a write that only a batch on two keys can have seen is hidden by another",
            "1 1 12 put \"a\" \"2\" always never no = done
             2 2 17 get \"a\" = value some \"1\"
             3 3 6 put \"a\" \"1\" always never no = done
             0 4 19 batch () (append \"a\" \"2\" get \"a\" put \"b\" \"1\" always never no) \
                 = batch some (integer 2 value some \"22\" done)
             3 9 11 put \"a\" \"1\" always never no = done
             1 13 24 get-many (\"a\" \"b\") = values (some \"1\" some \"1\")",
        ),
        (
            "of two equal appends, the one that returns first is the one nobody saw",
            "1 1 50 append \"k\" \"x\" = integer 2
             2 2 100 put \"k\" \"c\" always never no = done
             3 5 10 put \"k\" \"b\" always never no = done
             4 12 60 append \"k\" \"x\" = integer 2
             5 13 20 get \"k\" = value some \"bx\"
             5 65 70 get \"k\" = value some \"bx\"",
        ),
        ("no keys at all", "1 0 1 exists () = integer 0\n1 2 3 get-many () = values ()"),
    ] {
        assert_eq!(verdict(text), Ok(()), "{name}");
    }
}

#[test]
fn broken_histories_are_rejected_at_the_reply_that_cannot_be() {
    for (name, text, culprit) in [
        (
            "a stale read after a write returned",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 20 30 put \"k\" \"b\" always never no = done
             2 40 50 get \"k\" = value some \"a\"",
            2,
        ),
        (
            "a lost update",
            "1 0 10 put \"k\" \"a\" always never no = done
             2 20 30 get \"k\" = value none",
            1,
        ),
        ("a value that was never written", "1 0 10 get \"k\" = value some \"a\"", 0),
        (
            "a value that is written later",
            "1 0 10 get \"k\" = value some \"a\"
             2 20 30 put \"k\" \"a\" always never no = done",
            0,
        ),
        (
            "two increments that count the same",
            "1 0 10 increment \"n\" 1 = integer 1
             2 0 10 increment \"n\" 1 = integer 1",
            1,
        ),
        (
            "two readers see one write come and go",
            "1 0 100 put \"k\" \"a\" always never no = done
             2 10 20 get \"k\" = value some \"a\"
             3 30 40 get \"k\" = value none",
            2,
        ),
        (
            "two readers see two writes in different orders",
            "1 0 100 put \"k\" \"a\" always never no = done
             2 0 100 put \"k\" \"b\" always never no = done
             3 10 20 get \"k\" = value some \"a\"
             3 30 40 get \"k\" = value some \"b\"
             4 50 60 get \"k\" = value some \"a\"",
            4,
        ),
        (
            "an unknown write takes effect and disappears",
            "1 0 ? put \"k\" \"a\" always never no
             2 10 20 get \"k\" = value some \"a\"
             2 30 40 get \"k\" = value none",
            2,
        ),
        (
            "an unknown write takes effect twice",
            "1 0 ? put \"k\" \"a\" always never no
             2 10 20 get \"k\" = value some \"a\"
             2 30 40 put \"k\" \"b\" always never no = done
             2 50 60 get \"k\" = value some \"a\"",
            3,
        ),
        (
            "an unknown write before its call",
            "2 10 20 get \"k\" = value some \"a\"
             1 30 ? put \"k\" \"a\" always never no",
            0,
        ),
        (
            "a deletion that missed what was there",
            "1 0 10 put \"k\" \"a\" always never no = done
             2 20 30 delete (\"k\") = integer 0",
            1,
        ),
        (
            "two winners of one lock",
            "1 0 100 put \"l\" \"1\" if-absent never no = done
             2 0 100 put \"l\" \"2\" if-absent never no = done",
            1,
        ),
        (
            "a multi-key write seen half done",
            "1 0 100 put-many (\"a\" \"1\" \"b\" \"1\") no = done
             2 10 20 get-many (\"a\" \"b\") = values (some \"1\" none)",
            1,
        ),
        (
            "a multi-key write seen half done by two reads",
            "1 0 10 put-many (\"a\" \"1\" \"b\" \"1\") no = done
             2 5 20 get \"a\" = value some \"1\"
             2 21 30 get \"b\" = value none",
            2,
        ),
        (
            "a change between two looks at one version",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 11 20 versions (\"k\") = versions (7)
             1 21 30 put \"k\" \"b\" always never no = done
             1 31 40 versions (\"k\") = versions (7)",
            3,
        ),
        (
            "a comparison that should have failed",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 11 20 versions (\"k\") = versions (7)
             1 21 30 put \"k\" \"b\" always never no = done
             1 31 40 put \"k\" \"c\" if-version 7 never no = done",
            3,
        ),
        (
            "a comparison that should have held",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 11 20 versions (\"k\") = versions (7)
             1 21 30 put \"k\" \"b\" if-version 7 never no = skipped",
            2,
        ),
        (
            "a version that was excluded",
            "1 0 10 put \"k\" \"a\" always never no = done
             1 11 20 put \"k\" \"b\" if-version 7 never no = skipped
             1 21 30 versions (\"k\") = versions (7)",
            2,
        ),
        (
            "an append that forgot",
            "1 0 10 append \"s\" \"ab\" = integer 2
             2 11 20 append \"s\" \"cd\" = integer 2",
            1,
        ),
        (
            "a wrong count of all keys",
            "1 0 10 put \"a\" \"1\" always never no = done
             2 20 30 count = integer 0",
            1,
        ),
        ("a reply of another command", "1 0 1 get \"k\" = integer 3", 0),
        (
            "a key that must be absent is there, whatever happens to another before its last write",
            "3 4 33 get \"k\" = value some \"1\"
             4 7 22 batch () (append \"k\" \"1\" get \"k\" put \"j\" \"0\" always never no) \
                 = batch some (integer 1 value some \"1\" done)
             2 11 20 put \"j\" \"1\" always never no = done
             0 13 31 put-many (\"k\" \"1\" \"k\" \"2\") yes = done
             1 14 18 put \"j\" \"2\" always never no = done",
            3,
        ),
        (
            "a client overtakes itself within one instant",
            "1 5 5 put \"k\" \"a\" always never no = done
             1 5 5 get \"k\" = value none",
            1,
        ),
    ] {
        assert_eq!(violation(text).position, culprit, "{name}");
    }
}

#[test]
fn an_explanation_says_what_was_wrong_and_what_would_have_been_right() {
    let found = violation(
        "1 0 10 put \"k\" \"a\" always never no = done
         9 0 10 put \"other\" \"a\" always never no = done
         1 20 30 put \"k\" \"b\" always never no = done
         3 35 100 put \"k\" \"c\" always never no = done
         2 40 50 get \"k\" = value some \"a\"
         2 60 70 get \"k\" = value some \"b\"",
    );
    assert_eq!(found.keys, "key \"k\"");
    assert_eq!((found.position, found.before), (4, 2));
    assert_eq!(found.open.iter().map(|op| op.client).collect::<Vec<_>>(), [3]);
    assert_eq!(found.recent.iter().map(|op| op.client).collect::<Vec<_>>(), [1, 1]);
    let value = |text: &'static str| Reply::Value(Some(Bytes::from_static(text.as_bytes())));
    assert_eq!(found.possible, [value("b"), value("c")]);
    let text = Failure::Violation(Box::new(found)).to_string();
    assert!(
        text.contains("2 40 50 get \"k\" = value some \"a\"\nit could have been\n  value some \"b\"\n"),
        "{text}"
    );
}

#[test]
fn what_is_not_modelled_is_refused_and_not_passed() {
    for (text, what) in [
        ("1 0 1 put \"k\" \"a\" always in 5 no = done", "expire"),
        (
            "1 0 1 put \"k\" \"a\" always at 5 no = done
             1 2 3 append \"k\" \"b\" = integer 2",
            "time to live",
        ),
        ("1 0 1 set-expiry \"k\" never always = integer 0", "expire"),
        ("1 0 1 refresh \"k\" never = value none", "expire"),
        ("1 0 1 put-range \"k\" 1 \"x\" = integer 2", "overwritten"),
        ("1 0 1 hash-increment-float \"k\" \"f\" \"1\" = value some \"1\"", "floating"),
        ("1 0 1 increment-float \"k\" \"1\" = value some \"1\"", "floating"),
        ("1 0 1 append \"k\" \"a\" = error too-large", "limits"),
        ("1 0 ? put \"k\" \"a\" if-version 3 never yes", "old value"),
        ("1 0 ? batch () (put \"k\" \"a\" if-version 3 never no)", "more than one outcome"),
    ] {
        match verdict(text) {
            Err(Failure::Unsupported(unsupported)) => {
                assert!(unsupported.to_string().contains(what), "{text}: {unsupported}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn a_spent_effort_is_no_pass() {
    let history = Store::new(1, 4).run(500, &Mix::REGISTER, 8);
    assert_eq!(check(&history), Ok(()));
    assert!(matches!(check_within(&history, 100), Err(Failure::Undecided { explained: 0.., .. })));
}

/// Tries all orders of a tiny history.
fn any_order_explains(history: &History) -> bool {
    let mut keys = Vec::new();
    for operation in &history.0 {
        each_key(&operation.command, &mut |key| keys.push(key.clone()));
    }
    keys.sort();
    keys.dedup();
    let ids: BTreeMap<Bytes, u32> = keys.iter().cloned().zip(0..).collect();
    let mut model = Model::new(keys, true);
    let actions: Vec<_> =
        history.0.iter().map(|op| compile(&op.command, &ids, &mut model).unwrap()).collect();
    fn place(
        history: &History,
        actions: &[super::model::Action],
        model: &mut Model,
        state: &[super::model::Cell],
        placed: u32,
    ) -> bool {
        let left = |index: &usize| placed & 1 << index == 0;
        let operations = &history.0;
        if (0..operations.len()).filter(left).all(|index| operations[index].returned.is_none()) {
            return true;
        }
        (0..operations.len()).filter(left).any(|index| {
            // Nothing that is left may have returned before this one was called.
            let may_be_next = (0..operations.len()).filter(left).all(|other| {
                operations[other].returned.as_ref().is_none_or(|(at, _)| *at >= operations[index].invoked)
            });
            if !may_be_next {
                return false;
            }
            let mut changes = Vec::new();
            let expected = operations[index].returned.as_ref().map(|(_, reply)| reply);
            let reply = model.execute(&actions[index], expected, &mut Overlay::new(state, &mut changes));
            if expected.is_some() && expected != reply.as_ref() {
                return false;
            }
            let mut state = state.to_vec();
            for (key, cell) in changes {
                state[key as usize] = cell;
            }
            place(history, actions, model, &state, placed | 1 << index)
        })
    }
    let state = model.initial();
    place(history, &actions, &mut model, &state, 0)
}

#[test]
fn tiny_histories_are_judged_as_by_trying_all_orders() {
    let mut random = Random::new(11);
    let mut verdicts = [0, 0];
    for round in 0..60_000 {
        let history = tiny_history(&mut random, round % 6);
        let expected = any_order_explains(&history);
        for partition in partition(&history) {
            agree_both_ways(&partition);
        }
        let found = check(&history);
        match (&found, expected) {
            (Ok(()), true) | (Err(Failure::Violation(_)), false) => verdicts[usize::from(expected)] += 1,
            _ => panic!("{found:?} instead of {expected} for\n{history}"),
        }
    }
    assert!(verdicts.iter().all(|count| *count > 5_000), "both verdicts must be common: {verdicts:?}");
}

/// The search must not depend on whether it goes deep or broad, and not claim more than it knows when it goes narrow.
fn agree_both_ways(partition: &Partition<'_>) {
    let outcome = |width: Option<usize>| {
        let mut effort = u64::MAX;
        let mut problem = Problem::new(partition, Strings::Blurred).unwrap();
        let mut search = Search::new(&mut problem, &mut effort);
        let initial = Config::initial(search.problem);
        match width {
            None => search.run_deep(vec![initial]),
            Some(width) => search.run_broad(initial, width),
        }
    };
    let deep = matches!(outcome(None), Outcome::Linearizable);
    let broad = matches!(outcome(Some(usize::MAX)), Outcome::Linearizable);
    assert_eq!(deep, broad, "{partition:?}");
    for width in [1, 2] {
        match outcome(Some(width)) {
            Outcome::Linearizable => assert!(deep, "{partition:?}"),
            Outcome::Stuck(_) => assert!(!deep, "{partition:?}"),
            Outcome::Undecided(_) => {}
        }
    }
}

/// Few clients, few keys, few values, and replies that are often right.
fn tiny_history(random: &mut Random, flavour: u64) -> History {
    let (keys, mix) = match flavour {
        0 => (1, Mix::REGISTER),
        1 => (1, Mix::STRINGS),
        2 => (2, Mix::EVERYTHING),
        3 => (1, Mix::COUNTER),
        4 => (1, Mix::LIST),
        _ => (3, Mix::SEVERAL),
    };
    let mut store = Store::new(random.u64(), keys);
    store.values = 3;
    let clients = random.range(2..7);
    let operations = random.range(3..10);
    let mut history = store.run(operations as usize, &mix, clients);
    // Break some replies by exchanging them, and forget some.
    for _ in 0..random.range(0..3) {
        let (a, b) = (random.range(0..operations) as usize, random.range(0..operations) as usize);
        let reply = history.0[b].returned.as_ref().map(|(_, reply)| reply.clone());
        match (&mut history.0[a].returned, reply) {
            (Some((_, old)), Some(reply)) if random.chance(0.8) => *old = reply,
            (returned, _) => *returned = None,
        }
    }
    history.0.retain(|op| op.returned.is_some() || !op.command.is_read_only());
    history
}

/// Makes a read late in a history return what was read so many reads of its key before it; its position.
fn plant_stale_read(history: &mut History, back: usize) -> usize {
    let read = |operation: &Operation| match (&operation.command, &operation.returned) {
        (Command::Get { key }, Some((at, reply @ Reply::Value(Some(_))))) => {
            Some((key.clone(), *at, reply.clone()))
        }
        _ => None,
    };
    let start = history.0.len() * 2 / 3;
    let stale = (start..history.0.len()).find(|index| read(&history.0[*index]).is_some()).unwrap();
    let key = read(&history.0[stale]).unwrap().0;
    let (_, _, old) = history.0[..stale]
        .iter()
        .rev()
        .filter_map(read)
        .filter(|(other, at, _)| *other == key && *at < history.0[stale].invoked)
        .nth(back)
        .unwrap();
    history.0[stale].returned.as_mut().unwrap().1 = old;
    stale
}

#[test]
fn one_stale_read_among_a_hundred_thousand_operations_is_found() {
    // Fifty clients on one key, and hundreds of writes whose outcome is never known.
    let mut store = Store::new(5, 1);
    store.unknown = 0.01;
    let mut history = store.run(100_000, &Mix::REGISTER, 50);
    assert_eq!(check(&history), Ok(()));
    let stale = plant_stale_read(&mut history, 50);
    match check(&history) {
        Err(Failure::Violation(found)) => assert_eq!(found.position, stale),
        other => panic!("{other:?}"),
    }
}

#[test]
fn busy_histories_of_every_kind_are_decided() {
    for (name, mix, keys, clients) in [
        ("registers", Mix::REGISTER, 3, 30),
        ("counters", Mix::COUNTER, 1, 30),
        ("lists", Mix::LIST, 2, 20),
        ("strings", Mix::STRINGS, 2, 8),
        ("several keys", Mix::SEVERAL, 5, 8),
        ("everything", Mix::EVERYTHING, 5, 8),
    ] {
        let mut store = Store::new(3, keys);
        store.unknown = 0.02;
        let mut history = store.run(1000, &mix, clients);
        assert_eq!(check(&history), Ok(()), "{name}");
        let stale = plant_stale_read(&mut history, 10);
        match check(&history) {
            Err(Failure::Violation(found)) => assert!(found.position >= stale, "{name}: {found}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}
