//! The lease primitive (PROTOCOLS.md A; Bodega §3.2, Quorum Leases §3): a *grantor* promises a *grantee* not to
//! support anybody else for a while, and is never free before the grantee has stopped believing it.
//!
//! Problem: neither knows the other's clock, and messages may take any time. Solution: both measure durations only,
//! on clocks whose rates differ by a bounded factor. Before the first promise a *guard* bounds how late a renewal
//! may be accepted; afterwards every renewal is accepted only while the one before still holds.
//!
//! ```text
//! grantor  Guard ───────► GuardReply ◄── │ Renew ──────► RenewReply ◄── │ Renew ─ …
//!          not bound                     │ bound guard+lease+Δ          │ bound lease+Δ from the reply,
//!                                        │ from here                    │ plus lease+Δ while a Renew is out
//! grantee         guarded guard−Δ               believes lease−Δ from receipt
//! ```
//!
//! A grantee that knows that it will be promised something saves half of the first round: it guards itself, and says
//! so (`Ready`); the renewal carries what the `Guard` would have said. It may give a promise back unasked, too.
//!
//! The margin Δ must cover the drift over one wait: with rates within 1±ρ of true time, Δ ≥ ρ·lease and
//! 3Δ ≥ 2ρ·(guard+lease) suffice. A restarted grantor does not know its promises and waits out the longest one
//! ([`Terms::restart_wait`]); a restarted grantee believes nothing.
//!
//! Two things go beyond PROTOCOLS.md A, each with a schedule that breaks the primitive without it:
//!
//! - *A renewal repeats a nonce that the grantee gave in its `GuardReply`.* Otherwise: Guard, Renew; Revoke,
//!   RevokeReply, and the grantor is free; then late duplicates of that Guard and that Renew arrive in this order
//!   and are believed.
//! - *The restart wait covers two leases* where the lease is longer than the guard: a renewal that is out when the
//!   grantor crashes may be accepted as late as the lease before it ends.

use std::time::Duration;

use quorate_core::{Settings, SettingsError, Time, mutation, wire_enum};

/// Durations, equal at all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How late a first renewal may be accepted.
    pub guard: Duration,
    /// How long a renewal holds.
    pub lease: Duration,
    /// The drift margin Δ.
    pub drift: Duration,
}

impl Terms {
    /// `lease.guard`, `lease.duration`, `lease.drift`.
    pub fn from_settings(settings: &mut Settings) -> Result<Terms, SettingsError> {
        let terms = Terms {
            guard: settings.duration("lease.guard", "500ms")?,
            lease: settings.duration("lease.duration", "750ms")?,
            drift: settings.duration("lease.drift", "30ms")?,
        };
        if terms.drift * 4 > terms.guard.min(terms.lease) {
            let text = "lease.drift must be at most a quarter of lease.guard and of lease.duration";
            return Err(SettingsError::Conflict(text.to_owned()));
        }
        Ok(terms)
    }

    fn margin(&self) -> Duration {
        if mutation::active("lease/no-drift-margin") { Duration::ZERO } else { self.drift }
    }

    /// How long a restarted grantor must not support a new ballot: the longest promise it may have made.
    pub fn restart_wait(&self) -> Duration {
        if mutation::active("lease/no-restart-wait") {
            return Duration::ZERO;
        }
        // One renewal is in force and one more may be out.
        (self.guard + self.lease + self.drift).max(2 * (self.lease + self.drift)) + self.drift
    }

    /// How often a held lease is renewed.
    pub fn renewal(&self) -> Duration {
        self.lease / 3
    }
}

/// What grantor and grantee say. `number` is the ballot; `guard` identifies one granting, across restarts too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Grantor: I am about to promise.
    Guard {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
        /// What was accepted in lower ballots is in slots up to here, as far as I have accepted it: whoever answers
        /// reads because of my promise must know these (a **safety threshold**; Bodega §3.3.1).
        thresh: u64,
    },
    /// Grantee: I know.
    GuardReply {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
        /// Fresh; to be repeated in renewals.
        nonce: u64,
    },
    /// Grantor: I promise, for another lease from when you get this.
    Renew {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
        /// From the reply to the guard.
        nonce: u64,
        /// Counts renewals.
        seq: u64,
        /// As in `Guard`; counts with the first renewal.
        thresh: u64,
    },
    /// Grantee: I have got it.
    RenewReply {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
        /// Of that renewal.
        seq: u64,
    },
    /// Grantor: give it back.
    Revoke {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
    },
    /// Grantee: I no longer believe it.
    RevokeReply {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
    },
    /// Grantee: I wait for a promise, and have got no `Guard`.
    Ready {
        /// The ballot.
        number: u64,
        /// Fresh; to be repeated in renewals.
        nonce: u64,
    },
}
wire_enum!(Message {
    1 => Guard { number, guard, thresh },
    2 => GuardReply { number, guard, nonce },
    3 => Renew { number, guard, nonce, seq, thresh },
    4 => RenewReply { number, guard, seq },
    5 => Revoke { number, guard },
    6 => RevokeReply { number, guard },
    7 => Ready { number, nonce },
});

impl Message {
    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Guard { .. } => "Guard",
            Message::GuardReply { .. } => "GuardReply",
            Message::Renew { .. } => "Renew",
            Message::RenewReply { .. } => "RenewReply",
            Message::Revoke { .. } => "Revoke",
            Message::RevokeReply { .. } => "RevokeReply",
            Message::Ready { .. } => "Ready",
        }
    }
}

/// The promising side, towards one grantee.
#[derive(Clone, Debug)]
pub struct Grantor {
    terms: Terms,
    /// Identifies the next granting; starts at a random number, so that an earlier incarnation's are different.
    next_guard: u64,
    state: Granting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Granting {
    Idle,
    /// Not bound: no renewal has been sent. Given up at `until`.
    Guarding {
        number: u64,
        guard: u64,
        until: Time,
        thresh: u64,
    },
    /// Bound until `until`. `out`: the renewal `seq` is not answered.
    Promised {
        number: u64,
        guard: u64,
        nonce: u64,
        seq: u64,
        out: bool,
        renewed: Time,
        until: Time,
    },
    /// Bound until `until` or until the grantee gives back.
    Revoking {
        number: u64,
        guard: u64,
        until: Time,
    },
}

impl Grantor {
    /// Promises nothing.
    pub fn new(terms: Terms, first_guard: u64) -> Grantor {
        Grantor { terms, next_guard: first_guard, state: Granting::Idle }
    }

    /// The present on this process's clock: a promise whose time has passed binds no more.
    fn expire(&mut self, now: Time) {
        match self.state {
            Granting::Guarding { until, .. }
            | Granting::Promised { until, .. }
            | Granting::Revoking { until, .. }
                if now >= until =>
            {
                self.state = Granting::Idle;
            }
            _ => {}
        }
    }

    /// Until when this process is bound, if it is.
    pub fn bound(&mut self, now: Time) -> Option<Time> {
        self.expire(now);
        match self.state {
            Granting::Idle | Granting::Guarding { .. } => None,
            Granting::Promised { until, .. } | Granting::Revoking { until, .. } => Some(until),
        }
    }

    /// Called now and then while the grantee of `number` deserves the lease: starts, renews, repeats. `thresh`: the
    /// last slot that this process has accepted anything in, since it joined `number` at the earliest.
    pub fn tend(&mut self, number: u64, thresh: u64, now: Time) -> Option<Message> {
        self.expire(now);
        match &mut self.state {
            Granting::Idle => {
                let guard = self.next_guard;
                self.next_guard = guard.wrapping_add(1);
                let until = now + self.terms.guard + self.terms.margin();
                self.state = Granting::Guarding { number, guard, until, thresh };
                Some(Message::Guard { number, guard, thresh })
            }
            Granting::Guarding { number: current, guard, .. } if *current == number => {
                Some(Message::Guard { number, guard: *guard, thresh })
            }
            Granting::Promised { number: current, guard, nonce, seq, out, renewed, until }
                if *current == number =>
            {
                if !*out && now.since(*renewed) < self.terms.renewal() {
                    return None;
                }
                if !*out {
                    // It may be accepted as late as the promise in force ends, and holds a lease from then.
                    *seq += 1;
                    *out = true;
                    *renewed = now;
                    *until += self.terms.lease + self.terms.margin();
                }
                Some(Message::Renew { number, guard: *guard, nonce: *nonce, seq: *seq, thresh })
            }
            Granting::Guarding { .. } => {
                self.state = Granting::Idle;
                self.tend(number, thresh, now)
            }
            Granting::Promised { .. } | Granting::Revoking { .. } => None,
        }
    }

    /// Whether a promise is on its way, or holds: the grantee may believe it, or come to.
    pub fn is_granting(&mut self, now: Time) -> bool {
        self.expire(now);
        self.state != Granting::Idle
    }

    /// Which granting is under way or in force; none while it is asked back.
    pub fn granting(&mut self, now: Time) -> Option<u64> {
        self.expire(now);
        match self.state {
            Granting::Guarding { guard, .. } | Granting::Promised { guard, .. } => Some(guard),
            Granting::Idle | Granting::Revoking { .. } => None,
        }
    }

    /// A grantee of `number` has guarded itself, and deserves the lease; `thresh` as in [`Grantor::tend`].
    pub fn on_ready(&mut self, number: u64, nonce: u64, thresh: u64, now: Time) -> Option<Message> {
        self.expire(now);
        let guard = match self.state {
            Granting::Guarding { number: current, guard, .. } if current == number => guard,
            Granting::Idle | Granting::Guarding { .. } => {
                let guard = self.next_guard;
                self.next_guard = guard.wrapping_add(1);
                guard
            }
            Granting::Promised { .. } | Granting::Revoking { .. } => return None,
        };
        Some(self.promise(number, guard, nonce, thresh, now))
    }

    /// The first renewal.
    fn promise(&mut self, number: u64, guard: u64, nonce: u64, thresh: u64, now: Time) -> Message {
        let until = now + self.terms.guard + self.terms.lease + self.terms.margin();
        let (seq, out, renewed) = (1, true, now);
        self.state = Granting::Promised { number, guard, nonce, seq, out, renewed, until };
        Message::Renew { number, guard, nonce, seq, thresh }
    }

    /// The grantee answers. True: the promise has just been given back.
    pub fn on_reply(&mut self, message: &Message, now: Time) -> (Option<Message>, bool) {
        self.expire(now);
        match (self.state, message) {
            (
                Granting::Guarding { number, guard, thresh, .. },
                &Message::GuardReply { number: n, guard: g, nonce },
            ) if (number, guard) == (n, g) => (Some(self.promise(number, guard, nonce, thresh, now)), false),
            (
                Granting::Promised { number, guard, nonce, seq, out: true, renewed, .. },
                Message::RenewReply { number: n, guard: g, seq: s },
            ) if (number, guard, seq) == (*n, *g, *s) => {
                // The grantee believes a lease from some time before now.
                let until = now + self.terms.lease + self.terms.margin();
                self.state = Granting::Promised { number, guard, nonce, seq, out: false, renewed, until };
                (None, false)
            }
            // It may give back what it is not asked for.
            (
                Granting::Promised { number, guard, .. } | Granting::Revoking { number, guard, .. },
                Message::RevokeReply { number: n, guard: g },
            ) if (number, guard) == (*n, *g) => {
                self.state = Granting::Idle;
                (None, true)
            }
            _ => (None, false),
        }
    }

    /// Wants to be free; repeats the revocation when called again. `None` if nothing binds.
    pub fn revoke(&mut self, now: Time) -> Option<Message> {
        self.expire(now);
        match self.state {
            Granting::Idle => None,
            Granting::Guarding { .. } => {
                self.state = Granting::Idle;
                None
            }
            Granting::Promised { number, guard, until, .. } | Granting::Revoking { number, guard, until } => {
                self.state = Granting::Revoking { number, guard, until };
                Some(Message::Revoke { number, guard })
            }
        }
    }
}

/// The believing side, towards one grantor, under one number. It must be kept as long as that number is current: it
/// numbers its nonces. One that can come to the same number again after a restart must start at a random nonce
/// ([`Grantee::new`]): else a late duplicate of a Guard and a Renew that its earlier incarnation has answered would
/// be believed, although the grantor has been told by a `RevokeReply` in between that nothing is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grantee {
    nonces: u64,
    state: Belief,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Belief {
    #[default]
    None,
    /// A first renewal of any granting may be accepted until then, if it has the last nonce.
    Ready { until: Time },
    /// A first renewal may be accepted until `until` (`seq` is 0), or the promise of `seq` is believed until then.
    Some { guard: u64, seq: u64, until: Time, thresh: u64 },
}

impl Grantee {
    /// Whose nonces follow this one.
    pub fn new(nonces: u64) -> Grantee {
        Grantee { nonces, state: Belief::None }
    }

    /// Guards itself, unless a promise is believed or about to be; what to say to the grantor.
    pub fn ready(&mut self, number: u64, terms: &Terms, now: Time) -> Option<Message> {
        if self.state != Belief::None {
            return None;
        }
        self.nonces = self.nonces.wrapping_add(1);
        self.state = Belief::Ready { until: now + (terms.guard - terms.margin()) };
        Some(Message::Ready { number, nonce: self.nonces })
    }

    /// Believes nothing any more; what to say to the grantor, if it has promised anything. Of a granting that it only
    /// guards nothing may be said: a duplicate of its `Guard` could bring it back to life, and the word arrive after.
    pub fn give_back(&mut self, number: u64) -> Option<Message> {
        match std::mem::take(&mut self.state) {
            Belief::Some { guard, seq: 1.., .. } => Some(Message::RevokeReply { number, guard }),
            Belief::None | Belief::Ready { .. } | Belief::Some { .. } => None,
        }
    }

    /// The grantor speaks under this process's current number (the caller has checked that); the answer.
    pub fn on_message(&mut self, message: &Message, terms: &Terms, now: Time) -> Option<Message> {
        match *message {
            Message::Guard { number, guard, thresh } => {
                let known = matches!(self.state, Belief::Some { guard: current, .. } if current == guard);
                match self.state {
                    _ if known => {}
                    // They have crossed: whatever it sends first counts.
                    Belief::Ready { until } if now < until => {}
                    _ => {
                        self.nonces = self.nonces.wrapping_add(1);
                        let until = now + (terms.guard - terms.margin());
                        self.state = Belief::Some { guard, seq: 0, until, thresh };
                    }
                }
                Some(Message::GuardReply { number, guard, nonce: self.nonces })
            }
            Message::Renew { number, guard, nonce, seq, thresh: told } => {
                let (current, last, until, thresh) = match self.state {
                    Belief::None => return None,
                    Belief::Ready { until } => (guard, 0, until, told),
                    Belief::Some { guard, seq, until, thresh } => (guard, seq, until, thresh),
                };
                if (guard, nonce) != (current, self.nonces) || now >= until || seq < last {
                    return None;
                }
                if seq > last || mutation::active("lease/duplicate-extends") {
                    let until = now + (terms.lease - terms.margin());
                    self.state = Belief::Some { guard, seq, until, thresh };
                }
                Some(Message::RenewReply { number, guard, seq })
            }
            Message::Revoke { number, guard } => {
                self.state = Belief::None;
                Some(Message::RevokeReply { number, guard })
            }
            Message::GuardReply { .. }
            | Message::RenewReply { .. }
            | Message::RevokeReply { .. }
            | Message::Ready { .. } => None,
        }
    }

    /// Until when the promise is believed, if it is.
    pub fn believed(&self, now: Time) -> Option<Time> {
        match self.state {
            Belief::Some { seq: 1.., until, .. } if now < until => Some(until),
            _ => None,
        }
    }

    /// The granting and its safety threshold, if its promise is believed.
    pub fn held(&self, now: Time) -> Option<(u64, u64)> {
        match self.state {
            Belief::Some { guard, seq: 1.., until, thresh } if now < until => Some((guard, thresh)),
            _ => None,
        }
    }

    /// The grantor's safety threshold, if its promise is believed.
    pub fn thresh(&self, now: Time) -> Option<u64> {
        self.held(now).map(|(_, thresh)| thresh)
    }
}

#[cfg(test)]
mod tests {
    use quorate_core::Random;

    use super::*;

    const TERMS: Terms = Terms {
        guard: Duration::from_millis(500),
        lease: Duration::from_millis(750),
        drift: Duration::from_millis(30),
    };

    fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_granting_starts_is_renewed_and_given_back() {
        let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
        let guard = grantor.tend(7, 0, ms(0)).unwrap();
        assert_eq!(grantor.bound(ms(0)), None, "a guard does not bind");
        let reply = grantee.on_message(&guard, &TERMS, ms(1)).unwrap();
        assert_eq!(grantee.believed(ms(1)), None, "a guard is not a lease");
        let (renew, _) = grantor.on_reply(&reply, ms(2));
        assert_eq!(grantor.bound(ms(2)), Some(ms(2 + 500 + 750 + 30)));
        let reply = grantee.on_message(&renew.unwrap(), &TERMS, ms(3)).unwrap();
        assert_eq!(grantee.believed(ms(3)), Some(ms(3 + 750 - 30)));
        grantor.on_reply(&reply, ms(4));
        assert_eq!(grantor.bound(ms(4)), Some(ms(4 + 750 + 30)));
        assert_eq!(grantor.tend(7, 0, ms(100)), None, "not due yet");
        assert!(grantor.tend(7, 0, ms(300)).is_some());
        assert_eq!(grantor.bound(ms(300)), Some(ms(4 + 2 * (750 + 30))), "a renewal is out");
        let revoke = grantor.revoke(ms(301)).unwrap();
        let reply = grantee.on_message(&revoke, &TERMS, ms(302)).unwrap();
        assert_eq!(grantee.believed(ms(302)), None);
        assert_eq!(grantor.on_reply(&reply, ms(303)), (None, true));
        assert_eq!(grantor.bound(ms(303)), None);
    }

    #[test]
    fn a_grantee_that_is_ready_is_promised_at_once_and_may_give_back_unasked() {
        let (mut grantor, mut grantee) = (Grantor::new(TERMS, 40), Grantee::default());
        let nonce_of =
            |ready| if let Some(Message::Ready { nonce, .. }) = ready { nonce } else { panic!("it is") };
        let nonce = nonce_of(grantee.ready(7, &TERMS, ms(0)));
        let guard = grantor.tend(7, 3, ms(1)).unwrap();
        let renew = grantor.on_ready(7, nonce, 5, ms(2)).unwrap();
        assert_eq!(grantor.bound(ms(2)), Some(ms(2 + 500 + 750 + 30)));
        let reply = grantee.on_message(&guard, &TERMS, ms(3)).expect("they cross");
        assert_eq!(grantor.on_reply(&reply, ms(4)), (None, false), "it is promised already");
        let reply = grantee.on_message(&renew, &TERMS, ms(5)).unwrap();
        assert_eq!((grantee.believed(ms(5)), grantee.thresh(ms(5))), (Some(ms(5 + 750 - 30)), Some(5)));
        grantor.on_reply(&reply, ms(6));
        let back = grantee.give_back(7).unwrap();
        assert_eq!(grantee.believed(ms(7)), None);
        assert_eq!(grantee.on_message(&renew, &TERMS, ms(7)), None, "a duplicate");
        assert_eq!(grantor.on_reply(&back, ms(8)), (None, true));
        let nonce = nonce_of(grantee.ready(7, &TERMS, ms(10)));
        let late = grantor.on_ready(7, nonce, 5, ms(400)).unwrap();
        assert_eq!(grantee.on_message(&late, &TERMS, ms(10 + 470)), None, "its guard has ended");
    }

    #[test]
    fn a_renewal_is_accepted_once_and_in_time_only() {
        let mut grantee = Grantee::default();
        let renew = |nonce, seq| Message::Renew { number: 7, guard: 1, nonce, seq, thresh: 0 };
        assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(0)), None, "without a guard");
        grantee.on_message(&Message::Guard { number: 7, guard: 1, thresh: 0 }, &TERMS, ms(0));
        assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(470)), None, "after the guard");
        grantee.on_message(&Message::Guard { number: 7, guard: 2, thresh: 0 }, &TERMS, ms(500));
        assert_eq!(grantee.on_message(&renew(2, 1), &TERMS, ms(501)), None, "of another granting");
        grantee.on_message(&Message::Guard { number: 7, guard: 1, thresh: 0 }, &TERMS, ms(510));
        assert_eq!(grantee.on_message(&renew(1, 1), &TERMS, ms(511)), None, "for an earlier guard");
        assert!(grantee.on_message(&renew(3, 1), &TERMS, ms(520)).is_some());
        let until = grantee.believed(ms(520));
        assert!(grantee.on_message(&renew(3, 1), &TERMS, ms(900)).is_some(), "the reply may have been lost");
        assert_eq!(grantee.believed(ms(900)), until, "a duplicate does not extend");
        assert_eq!(grantee.on_message(&renew(3, 2), &TERMS, ms(520 + 720)), None, "after the end");
    }

    /// Random schedules of loss, delay, duplication and restarts, with clocks at the edge of the bound: in true time
    /// the grantee never believes longer than the grantor is bound.
    #[test]
    fn the_promise_outlives_the_belief_in_true_time() {
        // 3Δ ≥ 2ρ(guard + lease) and Δ ≥ ρ·lease.
        let rho = 0.036;
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
                let tended =
                    if random.chance(0.05) { grantor.revoke(now_r) } else { grantor.tend(7, 0, now_r) };
                sent.extend(tended.map(|message| (true, message)));
                if random.chance(0.05) {
                    sent.extend(grantee.give_back(7).map(|message| (false, message)));
                }
                if random.chance(0.1) {
                    sent.extend(grantee.ready(7, &TERMS, now_e).map(|message| (false, message)));
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
}
