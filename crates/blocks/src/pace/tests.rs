//! Tables: what peers were sent and answered, and what is expected of them then.

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// So many bytes, all that were under way, were answered after this time: those of a heartbeat, if there are none.
fn sample(bytes: usize, took: Duration, at: Time) -> Sample {
    Sample { is_heartbeat: bytes == 0, ..Sample::new(at, took, bytes as u64, bytes as u64) }
}

/// `KiB:ms` of each sample, one a millisecond; then what is expected of nothing, of 1 MiB and of 4 MiB.
fn expected(samples: &str) -> String {
    let mut pace = Pace::default();
    for (index, text) in samples.split_whitespace().enumerate() {
        let (kib, millis) = text.split_once(':').unwrap();
        let took = Duration::from_millis(millis.parse().unwrap());
        pace.on_response(sample(kib.parse::<usize>().unwrap() * KIB, took, at(1 + index as u64)));
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

#[test]
fn a_link_is_filled_by_what_leaves_while_the_answer_to_nothing_is_waited_for() {
    let fills = |samples: &[(usize, u64)]| {
        let mut pace = Pace::default();
        for (index, (kib, millis)) in samples.iter().enumerate() {
            pace.on_response(sample(kib * KIB, Duration::from_millis(*millis), at(1 + index as u64)));
        }
        pace.model = (!pace.samples.is_empty()).then(|| Model::of(pace.samples.make_contiguous()));
        pace.bandwidth_delay_product().map(|bytes| bytes / KIB)
    };
    assert_eq!(fills(&[(0, 10), (1024, 90)]), Some(128));
    assert_eq!(fills(&[(0, 300), (1024, 320)]), Some(15 * 1024));
    assert_eq!(fills(&[(512, 40), (1024, 80)]), Some(0));
    for unknown in [&[][..], &[(0, 10), (63, 20)], &[(0, 10), (1024, 10)]] {
        assert_eq!(fills(unknown), None, "{unknown:?}");
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
fn samples_are_forgotten_after_two_seconds_or_when_there_are_many_of_their_size() {
    let mut pace = Pace::default();
    let mut answer = |bytes, millis, now| {
        pace.on_response(sample(bytes, Duration::from_millis(millis), at(now)));
        pace.clone()
    };
    answer(0, 2, 0);
    assert_eq!(answer(MIB, 86, 0).expected(MIB), Some(Duration::from_millis(86)));
    // What was measured of bytes stays until there is something to replace it.
    assert_eq!(answer(0, 2, 3000).expected(MIB), Some(Duration::from_millis(86)));
    let pace = answer(MIB, 10, 3300);
    assert_eq!(pace.expected(4 * MIB), Some(Duration::from_millis(34)));
    assert_eq!(pace.samples.len(), 2);
    for index in 0..1000 {
        let pace = answer(MIB + 8 * index, 10, 3301);
        assert_eq!(pace.samples.len(), 1 + SAMPLES_PER_SIZE.min(2 + index), "after {index}");
    }
    assert_eq!(answer(0, 2, 3600).expected(4 * MIB).map(|time| time.as_millis()), Some(33));
    let pace = answer(usize::MAX, u64::MAX, 3900);
    assert!(pace.expected(usize::MAX).is_some(), "no sum overflows");
}

/// Values of one size say how long that size takes, and nothing of others.
#[test]
fn heartbeats_give_the_delay_where_all_else_has_one_size_and_leave_the_slope() {
    let mut in_flight = InFlight::new(Duration::from_millis(200));
    let expected = |in_flight: &InFlight| in_flight.pace().expected(MIB / 3).unwrap().as_micros();
    let third = |in_flight: &InFlight| (expected(in_flight) + 500) / 1000;
    let write = |in_flight: &mut InFlight, round: u64| {
        in_flight.on_sent(1 + round, MIB, at(100 * round));
        in_flight.on_answer(1 + round..=1 + round, at(100 * round + 84));
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

/// Messages that go over one link to a peer, which answers each at once.
struct Route {
    in_flight: InFlight,
    now: Time,
    last: u64,
    /// When the link has sent all that it has.
    free: Time,
    /// When messages are answered, with their ids.
    answers: VecDeque<(Time, u64)>,
    /// When heartbeats are, with the times of their sending.
    heartbeats: VecDeque<(Time, Time)>,
    /// Round trips are longer or shorter by so many percent at most.
    jitter: u64,
}

/// What a route is used for: so many messages of so many bytes each time, a number of microseconds apart. Heartbeats
/// are 97.3 ms apart, or there are none.
#[derive(Clone, Copy)]
struct Traffic {
    burst: u64,
    bytes: usize,
    gap: u64,
    heartbeats: bool,
}

impl Route {
    fn new() -> Route {
        let in_flight = InFlight::new(Duration::from_millis(200));
        Route {
            in_flight,
            now: Time::ZERO,
            last: 0,
            free: Time::ZERO,
            answers: VecDeque::new(),
            heartbeats: VecDeque::new(),
            jitter: 0,
        }
    }

    /// A round trip that takes so many microseconds on average.
    fn round_trip(&self, mean: u64) -> Duration {
        // The same for no two in a row.
        let percent =
            100 - self.jitter + (self.last + self.heartbeats.len() as u64) * 7 % (2 * self.jitter + 1);
        Duration::from_micros(mean * percent / 100)
    }

    /// A message leaves behind those before it; its answer comes after a round trip in microseconds, and no earlier
    /// than that to the one before.
    fn send(&mut self, bytes: usize, link: (Rate, u64)) {
        self.last += 1;
        self.in_flight.on_sent(self.last, bytes, self.now);
        self.free = self.free.max(self.now) + link.0.transmission(bytes);
        let arrives = self.free + self.round_trip(link.1);
        let arrives = self.answers.back().map_or(arrives, |(before, _)| arrives.max(*before));
        self.answers.push_back((arrives, self.last));
    }

    /// A heartbeat passes them, but for a frame that is leaving.
    fn beat(&mut self, link: (Rate, u64)) {
        self.in_flight.on_heartbeat(self.now);
        let frame = link.0.transmission(FRAME).as_nanos();
        let rest = self.free.since(self.now).as_nanos() % frame;
        let arrives = self.now + Duration::from_nanos(rest as u64) + self.round_trip(link.1);
        self.heartbeats.push_back((arrives, self.now));
    }

    /// For so many milliseconds.
    fn run(&mut self, millis: u64, traffic: Traffic, link: (Rate, u64)) {
        for micros in (0..millis * 1000).step_by(100) {
            while let Some((at, id)) = self.answers.pop_front_if(|(at, _)| *at <= self.now) {
                self.in_flight.on_answer(id..=id, at);
            }
            while let Some((at, sent)) = self.heartbeats.pop_front_if(|(at, _)| *at <= self.now) {
                self.in_flight.on_heartbeat_answer(sent, at);
            }
            let messages = if micros.is_multiple_of(traffic.gap) { traffic.burst } else { 0 };
            for _ in 0..messages {
                self.send(traffic.bytes, link);
            }
            if traffic.heartbeats && micros.is_multiple_of(97_300) {
                self.beat(link);
            }
            self.now += Duration::from_micros(100);
        }
    }

    /// The model: the delay in microseconds, and the rate in Mbit/s.
    fn model(&self) -> (u128, u128) {
        let expected = |bytes| self.in_flight.pace().expected(bytes).unwrap();
        let rise = expected(10 * MIB) - expected(0);
        (expected(0).as_micros(), (80 * MIB as u128 * 1000).checked_div(rise.as_nanos()).unwrap_or(0))
    }
}

fn assert_near(measured: u128, real: u128, of: &str) {
    assert!(measured.abs_diff(real) * 10 <= real, "{of}: {measured} instead of {real}");
}

/// What is under way hardly varies, and is no measure of what a message waits for.
#[test]
fn steady_traffic_shows_the_delay_and_the_rate_of_a_link() {
    // messages at a time | bytes | microseconds apart | Mbit/s | round trip in microseconds
    let table = [
        (1, 64_000, 1000, 1000, 4000),
        (1, 64_000, 600, 1000, 4000),
        (8, 64_000, 5000, 1000, 4000),
        (15, 64_000, 9000, 1000, 30_000),
        (1, 21_334, 1000, 1000, 4000),
        (1, 256_000, 25_000, 100, 1000),
        (3, 256_000, 1000, 10_000, 4000),
        (1, 1 << 20, 300_000, 100, 2000),
    ];
    for (burst, bytes, gap, rate, round_trip) in table {
        let mut route = Route::new();
        route.run(3000, Traffic { burst, bytes, gap, heartbeats: true }, (Rate::mbit(rate), round_trip));
        let (delay, measured) = route.model();
        let of = format!("{burst} times {bytes} B every {gap} µs");
        assert_near(delay, round_trip.into(), &of);
        assert_near(measured, rate.into(), &of);
    }
}

/// The shortest round trip is no measure of when a message has left.
#[test]
fn round_trips_that_vary_do_not_hide_the_rate() {
    for (burst, bytes, gap) in [(15, 21_334, 2800), (8, 64_000, 4500)] {
        let mut route = Route { jitter: 10, ..Route::new() };
        route.run(3000, Traffic { burst, bytes, gap, heartbeats: true }, (Rate::mbit(1000), 4000));
        let (delay, measured) = route.model();
        let of = format!("{burst} times {bytes} B every {gap} µs");
        assert_near(delay, 4000, &of);
        assert_near(measured, 1000, &of);
    }
}

/// Of one size, with nothing to wait for and no heartbeat.
#[test]
fn messages_that_all_take_the_same_time_show_no_rate() {
    let mut route = Route::new();
    let traffic = Traffic { burst: 1, bytes: 64_000, gap: 1000, heartbeats: false };
    route.run(3000, traffic, (Rate::mbit(1000), 4000));
    assert_eq!(route.model(), (4512, 0));
}

#[test]
fn a_rate_or_a_delay_that_changes_is_known_within_three_seconds() {
    let traffic = Traffic { burst: 4, bytes: 64_000, gap: 40_000, heartbeats: true };
    let mut route = Route::new();
    for (rate, round_trip) in [(1000, 4000), (100, 4000), (1000, 4000), (100, 40_000), (1000, 4000)] {
        route.run(3000, traffic, (Rate::mbit(rate), round_trip));
        let (delay, measured) = route.model();
        assert_near(delay, round_trip.into(), &format!("{rate} Mbit/s"));
        assert_near(measured, rate.into(), &format!("{rate} Mbit/s"));
    }
}

#[test]
fn a_link_that_is_hardly_ever_free_shows_its_rate() {
    let mut route = Route::new();
    let traffic = Traffic { burst: 30, bytes: 64_000, gap: 15_400, heartbeats: true };
    route.run(3000, traffic, (Rate::mbit(1000), 4000));
    let (_, measured) = route.model();
    assert_near(measured, 1000, "30 at a time");
}

/// `MS send ID KIB`, `MS answer FIRST-LAST`, `MS late ID` and what that says, `MS under-way KIB`.
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
            "under-way" => assert_eq!(in_flight.under_way(now), number(2) as usize * KIB, "{line}"),
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

/// Few small messages are measured. Those behind one that was lost are not under way for ever; the next is measured.
#[test]
fn small_messages_behind_one_that_was_lost_are_under_way_until_the_floor_is_over() {
    script(
        "100 send 1 8
         110 send 2 8
         250 send 3 8
         299 under-way 24
         300 under-way 16
         449 under-way 16
         450 under-way 0
         500 send 4 8
         510 send 5 8
         520 under-way 16
         530 answer 4-4
         530 under-way 8
         709 under-way 8
         710 under-way 0",
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
         100 send 2 1024
         120 answer 1-2
         200 send 3 4096
         2300 late 3 : false
         2400 late 3 : true",
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

/// 100 ms a MiB.
#[test]
fn an_answer_may_be_to_the_first_copy_and_says_nothing_of_what_was_sent_after_it() {
    let learned = "
        100 send 1 1024
        200 answer 1-1
        200 send 2 2048
        400 answer 2-2
        1000 send 3 1024
        1000 send 4 1024
        1201 late 3 : true
        1201 send 3 1024
        1220 answer 3-3";
    // Message 4 and the copy are to leave before it.
    script(&format!(
        "{learned}
         1220 send 5 1024
         1640 late 5 : false"
    ));
    // The last that was sent has been answered, and not what was sent again after it.
    script(
        "100 send 1 1024
         200 answer 1-1
         200 send 2 2048
         400 answer 2-2
         1000 send 3 1024
         1000 send 4 1
         1000 send 3 1024
         1110 answer 4-4
         1110 send 5 1024
         1480 late 5 : false",
    );
}

/// 100 ms a MiB.
#[test]
fn what_was_overtaken_was_lost_and_says_nothing_of_the_rate() {
    script(
        "100 send 1 1024
         200 answer 1-1
         200 send 2 2048
         400 answer 2-2
         1000 send 3 8192
         1010 send 4 1024
         1110 answer 4-4
         1110 late 3 : true
         1110 send 5 4096
         1850 late 5 : false
         1950 late 5 : true",
    );
}

/// 100 ms a MiB.
#[test]
fn each_copy_of_a_small_message_is_waited_for_where_much_is_under_way() {
    script(
        "100 send 1 1024
         200 answer 1-1
         200 send 2 2048
         400 answer 2-2
         1000 send 3 40
         1000 send 4 20
         1000 send 5 20
         1000 send 6 1
         1010 answer 3-6
         1010 send 7 2048
         1010 send 4 20
         1010 send 5 20
         1300 late 4 : false
         1300 late 5 : false
         1420 late 4 : true
         1420 late 5 : true",
    );
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
    assert_eq!(in_flight.probes[0].sending.under_way(), MIB as u64);
    in_flight.restart();
    in_flight.on_sent(1, MIB, at(10_200));
    assert!(!in_flight.is_late(1, at(10_300)));
}

/// What is large and on its way when its peer falls silent is late as much later, and what is sent meanwhile is waited
/// for from the end of the silence on. What is small, or late before, is late as it was.
#[test]
fn a_large_message_has_as_much_more_time_as_its_peer_was_silent() {
    for (bytes, sent, silence, late_at) in [
        // A MiB takes half a second at the assumed rate.
        (MIB, 0, None, 1049),
        (MIB, 0, Some((500, 2500)), 3049),
        (MIB, 1000, Some((500, 2500)), 3549),
        (MIB, 0, Some((1500, 2500)), 1049),
        (KIB, 0, Some((100, 2500)), 0),
    ] {
        let mut in_flight = InFlight::new(Duration::from_millis(200));
        in_flight.on_sent(1, bytes, at(sent));
        if let Some((since, until)) = silence {
            in_flight.on_silence(at(since), at(until));
        }
        let late = (0..10_000).find(|millis| in_flight.is_late(1, at(*millis)));
        assert_eq!(late, Some(late_at), "{bytes} bytes at {sent}, silent {silence:?}");
    }
}
