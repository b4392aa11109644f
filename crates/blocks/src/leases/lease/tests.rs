//! One lease, step by step and at random.

use quorate_core::Random;

use super::*;

const TERMS: LeaseConfig = LeaseConfig {
    guard: Duration::from_millis(500),
    lease: Duration::from_millis(750),
    drift: Duration::from_millis(30),
};

fn ms(millis: u64) -> Time {
    Time::from_nanos(millis * 1_000_000)
}

#[test]
fn the_margin_is_small_beside_the_guard_and_the_lease() {
    for (settings, fits) in [
        ("", true),
        ("lease.drift=125ms", true),
        ("lease.drift=126ms", false),
        ("lease.guard=120ms", true),
        ("lease.guard=119ms", false),
        ("lease.duration=120ms", true),
        ("lease.duration=119ms", false),
    ] {
        let mut words = Settings::parse(settings.split_whitespace()).expect("settings");
        assert_eq!(LeaseConfig::from_settings(&mut words).is_ok(), fits, "{settings}");
    }
}

#[test]
fn a_granting_starts_is_renewed_and_given_back() {
    let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
    let guard = grantor.tend(7, 0, ms(0)).unwrap();
    assert_eq!(grantor.bound(ms(0)), None, "a guard does not bind");
    let reply = grantee.on_message(&guard, &TERMS, ms(1)).unwrap();
    assert_eq!(grantee.believed(ms(1)), None, "a guard is not a lease");
    let (renew, _) = grantor.on_reply(&reply, ms(2));
    assert_eq!(grantor.bound(ms(2)), Some(ms(2 + 750 + 30)));
    let reply = grantee.on_message(&renew.unwrap(), &TERMS, ms(3)).unwrap();
    assert_eq!(grantee.believed(ms(3)), Some(ms(1 + 750 - 30)));
    grantor.on_reply(&reply, ms(4));
    assert_eq!(grantor.bound(ms(4)), Some(ms(4 + 750 + 30)));
    assert_eq!(grantor.tend(7, 0, ms(100)), None, "not due yet");
    let renew = grantor.tend(7, 0, ms(300)).unwrap();
    assert_eq!(grantor.bound(ms(300)), Some(ms(4 + 750 + 30)), "a renewal that is out binds no longer");
    grantee.on_message(&renew, &TERMS, ms(301));
    assert_eq!(grantee.believed(ms(301)), Some(ms(3 + 750 - 30)));
    let revoke = grantor.revoke(ms(301)).unwrap();
    let reply = grantee.on_message(&revoke, &TERMS, ms(302)).unwrap();
    assert_eq!(grantee.believed(ms(302)), None);
    assert_eq!(grantor.on_reply(&reply, ms(303)), (None, true));
    assert_eq!(grantor.bound(ms(303)), None);
}

/// The next one would be believed from an answer that may come later than this, or never.
#[test]
fn a_repeated_answer_to_an_earlier_renewal_says_nothing_of_the_last_one() {
    let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
    let guard = grantor.tend(7, 0, ms(0)).unwrap();
    let reply = grantee.on_message(&guard, &TERMS, ms(1)).unwrap();
    let (renew, _) = grantor.on_reply(&reply, ms(2));
    let first = grantee.on_message(&renew.unwrap(), &TERMS, ms(3)).unwrap();
    grantor.on_reply(&first, ms(4));
    let second = grantor.tend(7, 0, ms(300)).unwrap();
    grantor.on_reply(&first, ms(310));
    assert_eq!(grantor.bound(ms(310)), Some(ms(4 + 750 + 30)), "it binds no longer");
    assert_eq!(grantor.tend(7, 0, ms(600)), Some(second), "the last one is sent again");
}

#[test]
fn a_grantee_that_is_ready_is_promised_at_once_and_may_give_back_unasked() {
    let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
    let nonce_of =
        |ready| if let Some(Message::Ready { nonce, .. }) = ready { nonce } else { panic!("it is") };
    let nonce = nonce_of(grantee.ready(7, ms(0)));
    let guard = grantor.tend(7, 3, ms(1)).unwrap();
    let renew = grantor.on_ready(7, nonce, 5, ms(2)).unwrap();
    assert_eq!(grantor.bound(ms(2)), Some(ms(2 + 750 + 30)));
    let reply = grantee.on_message(&guard, &TERMS, ms(3)).expect("they cross");
    assert_eq!(grantor.on_reply(&reply, ms(4)), (None, false), "it is promised already");
    let reply = grantee.on_message(&renew, &TERMS, ms(5)).unwrap();
    assert_eq!((grantee.believed(ms(5)), grantee.safety_threshold(ms(5))), (Some(ms(750 - 30)), Some(5)));
    grantor.on_reply(&reply, ms(6));
    let back = grantee.give_back(7).unwrap();
    assert_eq!(grantee.believed(ms(7)), None);
    assert_eq!(grantee.on_message(&renew, &TERMS, ms(7)), None, "a duplicate");
    assert_eq!(grantor.on_reply(&back, ms(8)), (None, true));
    let nonce = nonce_of(grantee.ready(7, ms(10)));
    let late = grantor.on_ready(7, nonce, 5, ms(400)).unwrap();
    assert_eq!(grantee.on_message(&late, &TERMS, ms(10 + 470)), None, "its guard has ended");
}

/// Else it would take every promise for one that comes too late.
#[test]
fn a_grantee_whose_word_was_lost_guards_itself_anew() {
    let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
    assert!(grantee.ready(7, ms(0)).is_some());
    let guard = grantor.tend(7, 0, ms(600)).unwrap();
    let reply = grantee.on_message(&guard, &TERMS, ms(601)).unwrap();
    let (renew, _) = grantor.on_reply(&reply, ms(602));
    assert!(grantee.on_message(&renew.unwrap(), &TERMS, ms(603)).is_some());
    assert_eq!(grantee.believed(ms(603)), Some(ms(601 + 750 - 30)));
    grantee.on_message(&guard, &TERMS, ms(604));
    assert_eq!(grantee.believed(ms(604)), Some(ms(601 + 750 - 30)), "a duplicate takes nothing back");
}

#[test]
fn an_answer_to_another_granting_is_none() {
    let mut grantor = Grantor::new(TERMS, 40);
    let guard_reply = |guard| Message::GuardReply { number: 7, guard, nonce: 1 };
    let renew_reply = |guard| Message::RenewReply { number: 7, guard, seq: 1 };
    grantor.tend(7, 0, ms(0));
    assert_eq!(grantor.on_reply(&guard_reply(39), ms(1)), (None, false));
    assert_eq!(grantor.bound(ms(1)), None);
    let (renew, _) = grantor.on_reply(&guard_reply(40), ms(2));
    grantor.on_reply(&renew_reply(39), ms(3));
    assert_eq!(grantor.tend(7, 0, ms(100)), renew, "it is not answered yet");
    grantor.on_reply(&renew_reply(40), ms(101));
    assert_eq!(grantor.tend(7, 0, ms(102)), None);
}

#[test]
fn a_grantee_that_was_restarted_need_not_wait_for_the_end_of_what_it_was_promised() {
    let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::new(10));
    let ready = |grantee: &mut Grantee, at| match grantee.ready(7, at) {
        Some(Message::Ready { nonce, .. }) => nonce,
        other => panic!("{other:?}"),
    };
    let nonce = ready(&mut grantee, ms(0));
    let renew = grantor.on_ready(7, nonce, 0, ms(1)).unwrap();
    assert!(grantee.on_message(&renew, &TERMS, ms(2)).is_some());
    assert_eq!(grantor.on_ready(7, nonce, 0, ms(3)), None, "a duplicate");
    let mut grantee = Grantee::new(90);
    let nonce = ready(&mut grantee, ms(100));
    let revoke = grantor.on_ready(7, nonce, 0, ms(101)).unwrap();
    assert!(matches!(revoke, Message::Revoke { .. }) && grantor.bound(ms(101)).is_some());
    let back = grantee.on_message(&revoke, &TERMS, ms(102)).unwrap();
    assert_eq!(grantor.on_reply(&back, ms(103)), (None, true));
    let guard = grantor.tend(7, 0, ms(103)).unwrap();
    let reply = grantee.on_message(&guard, &TERMS, ms(104)).unwrap();
    let (renew, _) = grantor.on_reply(&reply, ms(105));
    assert!(grantee.on_message(&renew.unwrap(), &TERMS, ms(106)).is_some());
    assert_eq!(grantee.believed(ms(106)), Some(ms(104 + 750 - 30)));
}

#[test]
fn a_renewal_is_accepted_once_and_in_time_only() {
    let mut grantee = Grantee::default();
    let renew = |nonce, seq| Message::Renew { number: 7, guard: 1, nonce, seq, safety_threshold: 0 };
    assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(0)), None, "without a guard");
    grantee.on_message(&Message::Guard { number: 7, guard: 1, safety_threshold: 0 }, &TERMS, ms(0));
    assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(470)), None, "after the guard");
    grantee.on_message(&Message::Guard { number: 7, guard: 2, safety_threshold: 0 }, &TERMS, ms(500));
    assert_eq!(grantee.on_message(&renew(2, 1), &TERMS, ms(501)), None, "of another granting");
    grantee.on_message(&Message::Guard { number: 7, guard: 1, safety_threshold: 0 }, &TERMS, ms(510));
    assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(511)), None, "for an earlier guard");
    assert!(grantee.on_message(&renew(3, 1), &TERMS, ms(520)).is_some());
    let until = grantee.believed(ms(520));
    assert!(grantee.on_message(&renew(3, 1), &TERMS, ms(900)).is_some(), "the reply may have been lost");
    assert_eq!(grantee.believed(ms(900)), until, "a duplicate does not extend");
    assert!(grantee.on_message(&renew(3, 2), &TERMS, ms(1000)).is_some());
    assert_eq!(grantee.believed(ms(1000)), Some(ms(520 + 720)), "from the first reply to the renewal before");
    assert!(grantee.on_message(&renew(3, 3), &TERMS, ms(1300)).is_some(), "it was bound all the time");
    assert_eq!(grantee.believed(ms(1300)), Some(ms(1000 + 720)));
    assert!(grantee.on_message(&renew(3, 4), &TERMS, ms(3000)).is_some());
    assert_eq!(grantee.believed(ms(3000)), None, "too late to be believed");
}

/// Random schedules of loss, delay, duplication and restarts, with clocks at the edge of the bound: in true time
/// the grantee never believes longer than the grantor is bound.
#[test]
fn the_promise_outlives_the_belief_in_true_time() {
    // Δ ≥ ρ·lease.
    let rho = 0.04;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let rate = |random: &mut Random| *random.pick(&[1.0 - rho, 1.0, 1.0 + rho]);
        let (grantor_rate, grantee_rate) = (rate(&mut random), rate(&mut random));
        let local = |micros: u64, rate: f64| Time::from_nanos((micros as f64 * rate * 1000.0) as u64);
        let mut grantor = Grantor::new(TERMS, random.u64());
        let mut grantee = Grantee::default();
        let mut in_flight: Vec<(u64, bool, Message)> = Vec::new();
        for step in 0..400u64 {
            let micros = step * 20_000;
            let (now_r, now_e) = (local(micros, grantor_rate), local(micros, grantee_rate));
            let mut sent: Vec<(bool, Message)> = Vec::new();
            let tended = if random.chance(0.05) { grantor.revoke(now_r) } else { grantor.tend(7, 0, now_r) };
            sent.extend(tended.map(|message| (true, message)));
            if random.chance(0.05) {
                sent.extend(grantee.give_back(7).map(|message| (false, message)));
            }
            if random.chance(0.1) {
                sent.extend(grantee.ready(7, now_e).map(|message| (false, message)));
            }
            let due: Vec<_> = in_flight.extract_if(.., |(at, ..)| *at <= micros).collect();
            for (_, to_grantee, message) in due {
                if to_grantee {
                    let reply = grantee.on_message(&message, &TERMS, now_e);
                    sent.extend(reply.map(|message| (false, message)));
                } else {
                    let next = match message {
                        Message::Ready { number, nonce } => grantor.on_ready(number, nonce, 0, now_r),
                        _ => grantor.on_reply(&message, now_r).0,
                    };
                    sent.extend(next.map(|message| (true, message)));
                }
            }
            for (to_grantee, message) in sent {
                for _ in 0..random.range(0..3) {
                    let delay = if random.chance(0.3) { random.range(0..1_500_000) } else { 0 };
                    in_flight.push((micros + delay, to_grantee, message.clone()));
                }
            }
            if grantee.believed(now_e).is_some() {
                assert!(grantor.bound(now_r).is_some(), "seed {seed}, step {step}");
            }
        }
    }
}
