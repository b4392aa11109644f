//! What the table of sessions says, keeps and forgets, and how it comes through a snapshot.

use quorate_core::ProxyId;

use super::*;

fn proxy(id: u64) -> ProcessId {
    ProxyId(id).into()
}

fn at(seconds: u64) -> Wall {
    Wall::from_millis(1_000_000 + seconds * 1000)
}

fn reply(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[test]
fn each_number_is_executed_once_and_in_order() {
    let mut sessions = Sessions::default();
    let id = sessions.open(proxy(1), 7, at(0));
    assert_eq!(sessions.check(id, 1), Verdict::Next);
    assert_eq!(sessions.check(id, 2), Verdict::Gap);
    for (seq, low) in [(1, 1), (2, 1), (3, 2), (4, 1)] {
        assert_eq!(sessions.check(id, seq), Verdict::Next);
        sessions.record(id, low, reply(&seq.to_string()), at(1));
    }
    assert_eq!(sessions.check(id, 1), Verdict::Forgotten, "below the low-water mark");
    assert_eq!(sessions.check(id, 2), Verdict::Duplicate(reply("2")));
    assert_eq!(sessions.check(id, 3), Verdict::Duplicate(reply("3")));
    assert_eq!(sessions.check(id, 5), Verdict::Next);
    assert_eq!(sessions.check(id, 0), Verdict::Forgotten);
    assert_eq!(sessions.check(id + 1, 1), Verdict::NoSession);
}

#[test]
fn an_incarnation_has_one_session_and_the_next_has_another() {
    let mut sessions = Sessions::default();
    let first = sessions.open(proxy(1), 7, at(0));
    assert_eq!(sessions.open(proxy(1), 7, at(0)), first);
    assert_ne!(sessions.open(proxy(1), 8, at(0)), first);
    assert_ne!(sessions.open(proxy(2), 7, at(0)), first);
}

#[test]
fn idle_sessions_go_and_their_numbers_never_come_back() {
    let mut sessions = Sessions::default();
    let old = sessions.open(proxy(1), 7, at(0));
    let used = sessions.open(proxy(2), 7, at(0));
    // In EPaxos, another proposer's clock may be behind.
    for seconds in [500, 20] {
        sessions.record(used, 1, reply("x"), at(seconds));
    }
    sessions.sweep(at(700));
    assert_eq!(sessions.check(old, 1), Verdict::NoSession);
    assert_eq!(sessions.check(used, 3), Verdict::Next);
    assert!(sessions.open(proxy(1), 7, at(700)) > used, "a late duplicate of Open gets a new number");
}

#[test]
fn the_table_is_bounded_and_drops_the_longest_idle() {
    let mut sessions = Sessions::default();
    for id in 0..MAX_SESSIONS as u64 + 10 {
        sessions.open(proxy(id), 1, at(id));
        if id == 9 {
            sessions.record(1, 1, reply("x"), at(20));
        }
    }
    assert_eq!(sessions.len(), MAX_SESSIONS);
    assert_eq!([2, 10, 11].map(|id| sessions.check(id, 1)), [(); 3].map(|()| Verdict::NoSession));
    assert_eq!([1, 12].map(|id| sessions.next(id)), [Some(2), Some(1)], "the first was used since");
}

#[test]
fn no_session_gets_the_number_of_one_that_ended_with_all_others() {
    let mut sessions = Sessions::default();
    let ended = sessions.open(proxy(1), 7, at(0));
    sessions.end_all();
    assert_eq!(sessions.check(ended, 1), Verdict::NoSession);
    assert!(sessions.open(proxy(2), 7, at(0)) > ended);
}

fn not_retained() -> Verdict {
    Verdict::Duplicate(Reply::NotRetained.encoded())
}

#[test]
fn a_large_reply_is_not_retained_but_that_it_was_executed_is() {
    let mut sessions = Sessions::default();
    let id = sessions.open(proxy(1), 7, at(0));
    let [fits, large] = [REPLY_BYTES, REPLY_BYTES + 1].map(|len| Bytes::from(vec![7; len]));
    for reply in [&large, &fits, &large] {
        sessions.record(id, 1, reply.clone(), at(1));
    }
    assert_eq!(sessions.check(id, 1), not_retained());
    assert_eq!(sessions.check(id, 2), Verdict::Duplicate(fits));
    assert_eq!(sessions.check(id, 3), not_retained());
    assert_eq!(sessions.check(id, 4), Verdict::Next);
}

#[test]
fn replies_beyond_a_sessions_share_are_forgotten_oldest_first_and_executed_no_second_time() {
    let mut sessions = Sessions::default();
    let (one, other) = (sessions.open(proxy(1), 7, at(0)), sessions.open(proxy(2), 7, at(0)));
    let reply = Bytes::from(vec![7; REPLY_BYTES]);
    for _ in 0..1000 {
        sessions.record(one, 1, reply.clone(), at(1));
    }
    sessions.record(other, 1, reply.clone(), at(1));
    let kept = SESSION_BYTES / (REPLY_BYTES + REPLY_OVERHEAD);
    assert_eq!(sessions.check(one, 1000 - kept as u64), not_retained());
    assert_eq!(sessions.check(one, 1001 - kept as u64), Verdict::Duplicate(reply.clone()));
    assert_eq!(sessions.check(one, 1), not_retained());
    assert_eq!(sessions.check(one, 1001), Verdict::Next);
    assert_eq!(sessions.check(other, 1), Verdict::Duplicate(reply));
}

#[test]
fn all_sessions_together_retain_a_bounded_number_of_bytes_whatever_the_order_of_their_writes() {
    let reply = Bytes::from(vec![7; REPLY_BYTES]);
    let run = |interleaved: bool| {
        let mut sessions = Sessions::default();
        let ids: Vec<u64> = (1..=20).map(|id| sessions.open(proxy(id), 7, at(0))).collect();
        let (writes, ids) = (0..200, &ids);
        let order: Vec<u64> = match interleaved {
            true => writes.flat_map(|_| ids.iter().copied()).collect(),
            false => ids.iter().flat_map(|id| writes.clone().map(|_| *id)).collect(),
        };
        for id in order {
            sessions.record(id, 1, reply.clone(), at(1));
            assert!(sessions.retained_bytes() <= RETAINED_BYTES);
        }
        for id in 21..200 {
            let opened = sessions.open(proxy(id), 7, at(2));
            (0..20).for_each(|_| sessions.record(opened, 1, reply.clone(), at(2)));
            assert!(sessions.retained_bytes() <= RETAINED_BYTES, "as many as others have less by then");
        }
        sessions
    };
    let sessions = run(true);
    assert!(sessions.retained_bytes() > 20 * (RETAINED_BYTES / 400), "{}", sessions.retained_bytes());
    assert!(sessions == run(false), "writes of different sessions commute");
}

#[test]
fn a_session_that_keeps_more_than_its_share_of_parts_drops_them_when_others_are_opened() {
    let mut sessions = Sessions::default();
    let id = sessions.open(proxy(0), 7, at(0));
    let bytes = Bytes::from(vec![7; Assembly::share(1) - 64]);
    assert_eq!(sessions.keep(id, Part { first: 1, offset: 0, last: None, bytes }), Kept::Incomplete);
    let kept = |sessions: &Sessions| sessions.table[&id].assembly.parts().len();
    while Assembly::share(sessions.len()) == Assembly::share(1) {
        assert_eq!(kept(&sessions), 1, "of {} sessions", sessions.len());
        sessions.open(proxy(sessions.len() as u64), 7, at(0));
    }
    assert_eq!(kept(&sessions), 0);
}

/// Through pieces of so many bytes.
fn reloaded(sessions: &Sessions, limit: usize) -> (Sessions, usize) {
    let mut loader = Loader::new(Summary::from_bytes(sessions.summary().to_bytes()).unwrap());
    let (mut cursor, mut pieces) = (Some(Cursor::default()), 0);
    while let Some(at) = cursor {
        assert!(!loader.is_complete(), "nothing follows the last session");
        let (piece, next) = sessions.piece(at, limit);
        assert!(piece.len() <= limit.max(RECORD_BYTES + 300), "{} bytes of {limit}", piece.len());
        loader.push(piece).unwrap();
        (cursor, pieces) = (next, pieces + 1);
    }
    (loader.finish().expect("whole"), pieces)
}

#[test]
fn a_snapshot_keeps_everything_whatever_its_pieces_are() {
    let mut sessions = Sessions::default();
    for id in 1..30 {
        let session = sessions.open(proxy(id), 7, at(id));
        for seq in 0..id % 7 * 5 {
            sessions.record(session, seq / 2, reply(&"x".repeat(seq as usize * 9)), at(3));
        }
        for offset in 0..id % 3 {
            let bytes = Bytes::from(vec![7; 100]);
            let kept = sessions.keep(session, Part { first: 9, offset: offset * 100, last: None, bytes });
            assert_eq!(kept, Kept::Incomplete);
        }
    }
    sessions.sweep(at(100));
    for limit in [1, 100, 1000, 100_000] {
        let (back, pieces) = reloaded(&sessions, limit);
        assert!(back == sessions, "in pieces of {limit} bytes");
        assert_eq!(pieces == 1, limit == 100_000);
    }
}

#[test]
fn pieces_of_sessions_without_replies_are_small_as_well() {
    let mut sessions = Sessions::default();
    for id in 1..30 {
        sessions.open(proxy(id), 7, at(id));
    }
    let (back, pieces) = reloaded(&sessions, 400);
    assert!(back == sessions && pieces > 3, "{pieces} pieces");
}

#[test]
fn a_table_that_is_cut_or_out_of_order_is_refused() {
    let mut sessions = Sessions::default();
    for id in 1..4 {
        let session = sessions.open(proxy(id), 7, at(id));
        sessions.record(session, 1, reply("reply"), at(3));
        sessions.keep(session, Part { first: 2, offset: 0, last: None, bytes: reply("part") });
    }
    let (whole, _) = sessions.piece(Cursor::default(), usize::MAX);
    for cut in 0..whole.len() {
        let mut loader = Loader::new(sessions.summary());
        let read = loader.push(whole.slice(..cut));
        assert!(read.is_err() || loader.finish().is_none(), "cut at {cut}");
    }
    let mut twice = Loader::new(sessions.summary());
    assert!(twice.push([&whole[..], &whole[..]].concat().into()).is_err());
    let mut random = quorate_core::Random::new(1);
    for _ in 0..5000 {
        let mut bytes = whole.to_vec();
        let at = random.range(0..bytes.len() as u64) as usize;
        bytes[at] = random.u64() as u8;
        let _ = Loader::new(sessions.summary()).push(bytes.into());
    }
}

/// What a loader says of a table of so many sessions, the last of which may be number 9. `3:2` is session 3, whose next
/// command is the second, `3:2+1+4` one with a reply and four parts; `rN` is a reply of N bytes and `pN` a part.
fn loaded(table: &str) -> String {
    let (sessions, records) = table.split_once(':').expect("how many, then the records");
    let mut out = Encoder::new();
    for word in records.split_whitespace() {
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let bytes = |text: &str| Bytes::from(vec![7; number(text) as usize]);
        match word.split_at(1) {
            ("r", len) => Record::Reply(bytes(len)),
            ("p", len) => Record::Part { first: 9, bytes: bytes(len) },
            _ => {
                let (id, numbers) = word.split_once(':').expect("a session");
                let numbers: Vec<u64> = numbers.split('+').map(number).collect();
                let (replies, parts) = (numbers.get(1).copied(), numbers.get(2).copied());
                Record::Session {
                    id: number(id),
                    proxy: proxy(1),
                    nonce: 7,
                    next: numbers[0],
                    low: 1,
                    used: at(0),
                    replies: replies.unwrap_or(0),
                    parts: parts.unwrap_or(0),
                }
            }
        }
        .encode(&mut out);
    }
    let sessions = sessions.trim().parse().expect("a number");
    let mut loader = Loader::new(Summary { sessions, opened: 9, swept: at(0) });
    match loader.push(out.into_bytes()) {
        Ok(()) if loader.finish().is_some() => "whole".to_owned(),
        Ok(()) => "goes on".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_table_that_no_replica_has_is_refused() {
    let longest = quorate_core::MAX_MESSAGE - 64;
    let parts = |len: usize| format!("1: 3:2+0+1 p{len}");
    assert_eq!(loaded(&parts(longest)), "whole");
    assert_eq!(loaded(&parts(longest + 1)), "1 is not a valid number of kept parts");
    let table = "
        2: 3:2+1 r65536 9:1+0+2 p5 p5 → whole
        2: 3:1 → goes on
        1: 3:2+1 r65537 → 65537 is not a valid length of a retained reply
        1: 3:2+2 r5 r5 → 2 is not a valid number of retained replies
        1: 3:0 → 0 is not a valid number of retained replies
        1: 3:1 4:1 → 4 is not a valid place of a session
        2: 3:1 10:1 → 10 is not a valid place of a session
        2: 4:1 3:1 → 3 is not a valid place of a session
        2: 4:1 4:1 → 4 is not a valid place of a session
        2: 0:1 4:1 → 0 is not a valid place of a session
        2: 3:2+1 4:1 → 4 is not a valid place of a session
        1: 3:2+1 r5 r5 → 5 is not a valid place of a retained reply or part
        1: 3:2+1+1 p5 r5 → 5 is not a valid place of a retained reply or part
        1: 3:2+1+1 r5 p5 p5 → 5 is not a valid place of a retained reply or part
        1: r5 → 5 is not a valid place of a retained reply or part
    ";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (records, said) = line.split_once(" →").expect("what it says");
        assert_eq!(loaded(records), said.trim(), "{records}");
    }
}
