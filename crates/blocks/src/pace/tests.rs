//! Tables: what peers were sent and answered, and what is expected of them then.

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// `KiB:ms` of each sample, one a millisecond; then what is expected of nothing, of 1 MiB and of 4 MiB.
fn expected(samples: &str) -> String {
    let mut pace = Pace::default();
    for (index, sample) in samples.split_whitespace().enumerate() {
        let (kib, millis) = sample.split_once(':').unwrap();
        let took = Duration::from_millis(millis.parse().unwrap());
        pace.on_response(kib.parse::<usize>().unwrap() * KIB, took, at(1 + index as u64));
    }
    // As the samples are all of one refit.
    pace.model = (!pace.samples.is_empty()).then(|| Model::of(pace.samples.make_contiguous()));
    let sizes = [0, MIB, 4 * MIB].map(|bytes| match pace.expected(bytes) {
        Some(time) => time.as_millis().to_string(),
        None => "?".to_owned(),
    });
    sizes.join(" ")
}

#[test]
fn expected_times_are_a_line_through_the_samples() {
    let table = "
                                        | ? ? ?
        0:2                             | 2 2 2
        1024:90                         | 90 90 90
        0:2 1024:86                     | 2 86 338
        0:2 1024:82 0:4 1024:84         | 3 83 323
        512:42 1024:84                  | 0 84 336
        512:40 1024:84                  | 0 83 332
        0:80 1024:2                     | 41 41 41
        1024:10 1024:20                 | 15 15 15";
    for row in table.lines().skip(1) {
        let (samples, result) = row.split_once('|').unwrap();
        assert_eq!(expected(samples), result.trim(), "{samples}");
    }
}

/// One in twenty is discarded, where it lies furthest above the line; not what is slow because it is large.
#[test]
fn a_rare_large_message_gives_the_slope_and_a_rare_slow_one_does_not() {
    let small = "0:2 ".repeat(38);
    assert_eq!(expected(&format!("{small} 1024:86 1024:86")), "2 86 338");
    let lost = "0:2 1024:86 ".repeat(19);
    assert_eq!(expected(&format!("{lost} 0:900 1024:2000")), "2 86 338");
}

#[test]
fn samples_are_forgotten_after_two_seconds() {
    let mut pace = Pace::default();
    pace.on_response(0, Duration::from_millis(2), at(0));
    pace.on_response(MIB, Duration::from_millis(86), at(0));
    assert_eq!(pace.expected(MIB), Some(Duration::from_millis(86)));
    // The model stays until there is something to replace it.
    pace.on_response(0, Duration::from_millis(1), at(3000));
    pace.on_response(MIB, Duration::from_millis(9), at(3001));
    assert_eq!(pace.expected(4 * MIB), Some(Duration::from_millis(33)));
    assert_eq!(pace.samples.len(), 2);
    for index in 0..1000 {
        pace.on_response(0, Duration::from_millis(1), at(3002));
        assert!(pace.samples.len() <= MAX_SAMPLES, "after {index}");
    }
    pace.on_response(usize::MAX, Duration::MAX, at(3300));
    assert!(pace.expected(usize::MAX).is_some(), "no sum overflows");
}

/// Values of one size say how long that size takes, and nothing of others.
#[test]
fn heartbeats_give_the_delay_where_all_else_has_one_size_and_leave_the_slope() {
    let mut in_flight = InFlight::new(Duration::from_millis(200));
    let expected = |in_flight: &InFlight| in_flight.pace().expected(MIB / 3).unwrap().as_micros();
    let third = |in_flight: &InFlight| (expected(in_flight) + 500) / 1000;
    let write = |in_flight: &mut InFlight, round: u64| {
        in_flight.on_sent(round, MIB, at(100 * round));
        in_flight.on_answer(round..=round, at(100 * round + 84));
    };
    let beat = |in_flight: &mut InFlight, round: u64| {
        in_flight.on_heartbeat(at(100 * round + 90));
        in_flight.on_heartbeat_answer(at(100 * round), at(100 * round + 91));
        in_flight.on_heartbeat_answer(at(100 * round + 90), at(100 * round + 93));
    };
    (0..10).for_each(|round| write(&mut in_flight, round));
    assert_eq!(third(&in_flight), 84);
    for round in 10..20 {
        write(&mut in_flight, round);
        beat(&mut in_flight, round);
    }
    assert_eq!(third(&in_flight), 30);
    (20..100).for_each(|round| beat(&mut in_flight, round));
    assert_eq!(third(&in_flight), 30, "after a silence too");
}

/// `MS send ID KIB`, `MS answer FIRST-LAST`, `MS late ID` and what that says.
fn script(text: &str) {
    let mut in_flight = InFlight::new(Duration::from_millis(200));
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let now = at(words[0].parse().unwrap());
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        match words[1] {
            "send" => in_flight.on_sent(number(2), number(3) as usize * KIB, now),
            "answer" => {
                let (first, last) = words[2].split_once('-').unwrap();
                in_flight.on_answer(first.parse().unwrap()..=last.parse().unwrap(), now);
            }
            "late" => assert_eq!(in_flight.is_late(number(2), now).to_string(), words[4], "{line}"),
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn small_messages_are_late_as_soon_as_the_floor_is_over() {
    script(
        "100 send 1 1
         100 late 1 : true
         100 send 2 8
         900 answer 1-2
         900 send 3 60
         1100 late 3 : true",
    );
}

/// At 16 Mbit/s, 1 MiB takes 524 ms.
#[test]
fn a_slow_link_is_assumed_until_a_size_has_been_seen() {
    script(
        "100 send 1 1024
         1100 late 1 : false
         1149 late 1 : true",
    );
    // Of 4 MiB, 2 are twice what was seen, in 40 ms, and for 2 a slow link is assumed: twice 2 times 20 and 524 ms.
    script(
        "0 send 1 0
         100 send 1 1024
         120 answer 1-1
         200 send 2 4096
         2300 late 2 : false
         2400 late 2 : true",
    );
}

#[test]
fn a_message_waits_for_what_was_sent_before_it_and_is_sent_again_ever_more_patiently() {
    // 100 ms a MiB.
    let learned = "
        100 send 1 1024
        200 answer 1-1
        200 send 2 2048
        400 answer 2-2
        400 send 3 4096
        800 answer 3-3
        1000 send 4 1024
        1000 send 5 2048
        1000 send 6 1
        1199 late 4 : false
        1201 late 4 : true
        1590 late 5 : false
        1590 late 6 : false
        1610 late 5 : true
        1610 late 6 : true";
    script(learned);
    // What was sent again is waited for as long again as it has been; what was lost is not under way any more.
    script(&format!(
        "{learned}
         1610 send 5 2048
         2210 late 5 : false
         2230 late 5 : true"
    ));
    // Overtaken.
    script(&format!(
        "{learned}
         1610 answer 5-5
         1610 late 4 : true"
    ));
}

#[test]
fn nothing_is_waited_for_longer_than_ten_seconds_whatever_a_dead_peer_was_sent() {
    let mut in_flight = InFlight::new(Duration::from_millis(200));
    for id in 1..=10_000 {
        in_flight.on_sent(id, MIB, at(id));
        assert!(in_flight.probes.len() <= MAX_PROBES);
        assert!(in_flight.is_late(id, at(id) + LONGEST));
    }
    assert!(in_flight.is_late(1, at(10_000)), "it is not kept any more");
    in_flight.on_answer(10_000..=10_000, at(10_100));
    assert!(in_flight.is_late(9_999, at(10_100)), "overtaken");
    in_flight.on_sent(10_001, MIB, at(10_100));
    assert_eq!(in_flight.probes[0].bytes, MIB as u64);
    in_flight.restart();
    in_flight.on_sent(1, MIB, at(10_200));
    assert!(!in_flight.is_late(1, at(10_300)));
}
