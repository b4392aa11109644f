//! A wall clock that is wrong, and what expires by it, in every protocol.

use quorate_protocols::registry::named;
use quorate_sim::scenario::play;

/// Node 1 proposes while its clock is off by so many milliseconds; `begin` makes it the leader, where there is one.
fn off_by(protocol: &str, begin: &str, millis: i64) -> String {
    let text = format!(
        "nodes 3\n{begin}settle\n\
         put p1 a 0\nsettle\nput p2 b 0\nsettle\nrepeat 10 tick 100ms, settle\n\
         putex p1 hour h 3600000\nsettle\n\
         wall r1 {millis}\nrepeat 10 tick 100ms, settle\nput p1 a 1\nsettle\nputex p1 later l 2000\nsettle\n\
         repeat 2 tick 100ms, settle\nwall r1 0\n\
         put p2 b 1\nsettle\nget p1 later\nsettle\n\
         repeat 40 tick 100ms, settle\nget p1 later\nsettle\nget p1 hour\nsettle\nrepeat 10 tick 100ms, settle\n"
    );
    play(named(protocol), &text).expect("a scenario")
}

/// What clients were answered, in the order of their requests.
fn answers(played: &str) -> Vec<&str> {
    let answer = |line: &str| line.split_once(" #").is_some() && line.trim_start().starts_with('p');
    let lines = played.lines().filter(|line| answer(line) && line.contains(" = "));
    let mut answers: Vec<_> = lines
        .filter_map(|line| {
            let (request, answer) = line.split_once(" #")?.1.split_once(" = ")?;
            Some((request.parse::<u64>().ok()?, answer))
        })
        .collect();
    answers.sort_unstable();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn assert_sound(protocol: &str, begin: &str) {
    const DAY: i64 = 86_400_000;
    for millis in [DAY, -DAY] {
        let played = off_by(protocol, begin, millis);
        let expected = [
            "Done",
            "Done",
            "Done",
            "Done",
            "Done",
            "Done",
            "Value(Some(b\"l\"))",
            "Value(None)",
            "Value(Some(b\"h\"))",
        ];
        assert_eq!(answers(&played), expected, "{} with {millis} ms:\n{played}", protocol);
        let (_, after) = played.split_once("wall r1").expect("the clock is off");
        assert!(!after.contains("open: true"), "{}: a session has expired:\n{played}", protocol);
    }
}

/// A leader whose clock is right hears of the other clocks four seconds late.
#[test]
fn answers_that_are_late_do_not_mislead_a_proposer_about_the_time() {
    for protocol in ["multipaxos", "raft"] {
        let text = "nodes 3 heartbeat=1s election.timeout=10s\nfire r1 Election\nsettle\nput p1 a 1\nsettle\n\
                    tick 1s\ndeliver r1>r2 Heartbeat\ndeliver r1>r3 Heartbeat\ntick 4s\ndrop Heartbeat\n\
                    deliver HeartbeatReply\nputex p1 k v 3000\nsettle\nget p1 k\nsettle\n";
        let played = play(named(protocol), text).expect("a scenario");
        assert_eq!(answers(&played), ["Done", "Done", "Value(Some(b\"v\"))"], "{protocol}:\n{played}");
    }
}

#[test]
fn one_clock_that_is_a_day_off_neither_ends_keys_and_sessions_nor_makes_them_outlive_their_time() {
    let first = "fire r1 Election\n";
    assert_sound("multipaxos", first);
    assert_sound("raft", first);
    assert_sound("bodega", first);
    assert_sound("quorum-leases", first);
    assert_sound("pqr", first);
    assert_sound("epaxos", "");
}
