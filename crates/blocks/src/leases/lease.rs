//! The lease primitive (Bodega §3.2, Quorum Leases §3): a *grantor* promises a *grantee* not to
//! support anybody else for a while, and is never free before the grantee has stopped believing it.
//!
//! Problem: neither knows the other's clock, and messages may take any time. Solution: both measure durations only,
//! on clocks whose rates differ by a bounded factor, and both from a *reply of the grantee's*: it believes a renewal
//! for a lease from when it sent the reply that the renewal answers, and its grantor is bound for a lease from when it
//! got that reply. One reply is under way at a time, so the number of a renewal says which one it answers.
//!
//! ```text
//! grantor  Guard ───────► GuardReply ◄─┬─ Renew 1 ────► RenewReply ◄─┬─ Renew 2 ─ …
//!          not bound                   │ bound lease+Δ from here     │ bound lease+Δ from here
//! grantee         guarded guard−Δ           believes lease−Δ              believes lease−Δ
//!                 from its reply            from its GuardReply           from its RenewReply
//! ```
//!
//! A grantee that knows that it will be promised something saves half of the first round: it guards itself, and says
//! so (`Ready`); the renewal carries what the `Guard` would have said. It may give a promise back unasked, too.
//!
//! The margin Δ must cover the drift over one lease: with rates within 1±ρ of true time, Δ ≥ ρ·lease suffices. A
//! restarted grantor does not know its promises and waits out the longest one ([`LeaseConfig::restart_wait`]); a
//! restarted grantee believes nothing.
//!
//! Two things differ from Bodega's paper:
//!
//! - *Belief begins with the grantee's own reply*, there with the receipt of the renewal. A renewal may be on its way
//!   until the lease before it has ended: believed from its receipt, one that is not answered binds its grantor for
//!   two leases. Here it binds for no longer than the reply before it did, so that a group is free of a member that
//!   has died within one lease, and a restarted grantor waits for one lease. The price: what is left of a belief when
//!   it is renewed is shorter by a round trip and the time between renewals.
//! - *A renewal repeats a nonce that the grantee gave in its `GuardReply`.* Otherwise: Guard, Renew; Revoke,
//!   RevokeReply, and the grantor is free; then late duplicates of that Guard and that Renew arrive in this order
//!   and are believed.

use std::time::Duration;

use quorate_core::{Arrival, Settings, SettingsError, Time, mutation, wire_enum};

/// Durations, equal at all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// How late a first renewal may be accepted.
    pub guard: Duration,
    /// How long a promise holds.
    pub lease: Duration,
    /// The drift margin Δ.
    pub drift: Duration,
}

impl LeaseConfig {
    /// Reads the settings `lease.guard`, `lease.duration` and `lease.drift`.
    pub fn from_settings(settings: &mut Settings) -> Result<LeaseConfig, SettingsError> {
        let config = LeaseConfig {
            guard: settings.duration(
                "lease.guard",
                "500ms",
                "How late the first renewal of a lease may arrive",
            )?,
            lease: settings.duration(
                "lease.duration",
                "750ms",
                "How long a lease holds after the grantee's last reply",
            )?,
            drift: crate::settings::drift(settings)?,
        };
        if config.drift * 4 > config.guard.min(config.lease) {
            let text = "lease.drift must be at most a quarter of lease.guard and of lease.duration";
            return Err(SettingsError::Conflict(text.to_owned()));
        }
        Ok(config)
    }

    fn margin(&self) -> Duration {
        if mutation::active("lease/no-drift-margin") { Duration::ZERO } else { self.drift }
    }

    /// When a grantee that guards itself since `replied` accepts no first renewal any more.
    fn guarded(&self, replied: Time) -> Time {
        replied + (self.guard - self.margin())
    }

    /// How long a restarted grantor must not support a new ballot: the longest promise it may have made.
    pub fn restart_wait(&self) -> Duration {
        if mutation::active("lease/no-restart-wait") {
            return Duration::ZERO;
        }
        self.lease + self.drift
    }

    /// How often a held lease is renewed: it is believed from the reply before, so half of it is left at a renewal.
    pub fn renewal(&self) -> Duration {
        self.lease / 4
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
        safety_threshold: u64,
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
    /// Grantor: I promise, for a lease from when you sent the reply before.
    Renew {
        /// The ballot.
        number: u64,
        /// This granting.
        guard: u64,
        /// From the reply to the guard.
        nonce: u64,
        /// Counts renewals; the next one answers the reply to this one.
        seq: u64,
        /// As in `Guard`; counts with the first renewal.
        safety_threshold: u64,
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
    1 => Guard { number, guard, safety_threshold },
    2 => GuardReply { number, guard, nonce },
    3 => Renew { number, guard, nonce, seq, safety_threshold },
    4 => RenewReply { number, guard, seq },
    5 => Revoke { number, guard },
    6 => RevokeReply { number, guard },
    7 => Ready { number, nonce },
});

impl Message {
    /// The name of its type.
    pub fn kind(&self) -> &'static str {
        self.variant()
    }

    /// When it arrives in an exploration: the exchange that starts or renews a lease is over at once. Whoever comes to
    /// a ballot later than its grantor is promised something, too.
    pub fn arrival(&self) -> Arrival {
        match self {
            Message::Guard { .. } => Arrival::AtOnceOrLater,
            Message::GuardReply { .. } | Message::Renew { .. } | Message::RenewReply { .. } => {
                Arrival::AtOnce
            }
            Message::Revoke { .. } | Message::RevokeReply { .. } => Arrival::GivesBack,
            Message::Ready { .. } => Arrival::Never,
        }
    }
}

/// The promising side, towards one grantee.
#[derive(Clone, Debug)]
pub struct Grantor {
    config: LeaseConfig,
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
        safety_threshold: u64,
    },
    /// Bound until `until`, a lease after the last reply. `out`: the renewal `seq` is not answered.
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
    /// A grantor that has promised nothing yet.
    pub fn new(config: LeaseConfig, first_guard: u64) -> Grantor {
        Grantor { config, next_guard: first_guard, state: Granting::Idle }
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

    /// Called now and then while the grantee of `number` deserves the lease: starts, renews, repeats.
    /// `safety_threshold`: the last slot that this process has accepted anything in, since it joined `number` at the
    /// earliest.
    pub fn tend(&mut self, number: u64, safety_threshold: u64, now: Time) -> Option<Message> {
        self.expire(now);
        match &mut self.state {
            Granting::Idle => {
                let guard = self.next_guard;
                self.next_guard = guard.wrapping_add(1);
                let until = now + self.config.guard + self.config.margin();
                self.state = Granting::Guarding { number, guard, until, safety_threshold };
                Some(Message::Guard { number, guard, safety_threshold })
            }
            Granting::Guarding { number: current, guard, .. } if *current == number => {
                Some(Message::Guard { number, guard: *guard, safety_threshold })
            }
            Granting::Promised { number: current, guard, nonce, seq, out, renewed, .. }
                if *current == number =>
            {
                if !*out && now.since(*renewed) < self.config.renewal() {
                    return None;
                }
                if !*out {
                    *seq += 1;
                    *out = true;
                    *renewed = now;
                }
                Some(Message::Renew { number, guard: *guard, nonce: *nonce, seq: *seq, safety_threshold })
            }
            Granting::Guarding { .. } => {
                self.state = Granting::Idle;
                self.tend(number, safety_threshold, now)
            }
            Granting::Promised { .. } | Granting::Revoking { .. } => None,
        }
    }

    /// Whether a promise is on its way, or holds: the grantee may believe it, or come to.
    pub fn is_granting(&mut self, now: Time) -> bool {
        self.expire(now);
        self.state != Granting::Idle
    }

    /// Whether it is bound.
    pub fn promises(&self, now: Time) -> bool {
        matches!(self.state, Granting::Promised { until, .. } | Granting::Revoking { until, .. } if now < until)
    }

    /// Which granting is under way or in force; none while it is asked back.
    pub fn granting(&mut self, now: Time) -> Option<u64> {
        self.expire(now);
        match self.state {
            Granting::Guarding { guard, .. } | Granting::Promised { guard, .. } => Some(guard),
            Granting::Idle | Granting::Revoking { .. } => None,
        }
    }

    /// A grantee of `number` has guarded itself, and deserves the lease; `safety_threshold` as in [`Grantor::tend`].
    /// What an earlier life of it was promised is asked back first.
    pub fn on_ready(&mut self, number: u64, nonce: u64, safety_threshold: u64, now: Time) -> Option<Message> {
        self.expire(now);
        let guard = match self.state {
            Granting::Guarding { number: current, guard, .. } if current == number => guard,
            Granting::Idle | Granting::Guarding { .. } => {
                let guard = self.next_guard;
                self.next_guard = guard.wrapping_add(1);
                guard
            }
            // It was restarted, and believes nothing of its earlier life's: it says so when it is asked.
            Granting::Promised { number: current, nonce: known, .. }
                if current == number && known != nonce =>
            {
                return self.revoke(now);
            }
            Granting::Promised { .. } | Granting::Revoking { .. } => return None,
        };
        Some(self.promise(number, guard, nonce, safety_threshold, now))
    }

    /// The first renewal.
    fn promise(&mut self, number: u64, guard: u64, nonce: u64, safety_threshold: u64, now: Time) -> Message {
        let until = now + self.config.lease + self.config.margin();
        let (seq, out, renewed) = (1, true, now);
        self.state = Granting::Promised { number, guard, nonce, seq, out, renewed, until };
        Message::Renew { number, guard, nonce, seq, safety_threshold }
    }

    /// The grantee answers. True: the promise has just been given back.
    pub fn on_reply(&mut self, message: &Message, now: Time) -> (Option<Message>, bool) {
        self.expire(now);
        match (self.state, message) {
            (
                Granting::Guarding { number, guard, safety_threshold, .. },
                &Message::GuardReply { number: n, guard: g, nonce },
            ) if (number, guard) == (n, g) => {
                (Some(self.promise(number, guard, nonce, safety_threshold, now)), false)
            }
            (
                Granting::Promised { number, guard, nonce, seq, out: true, renewed, .. },
                Message::RenewReply { number: n, guard: g, seq: s },
            ) if (number, guard, seq) == (*n, *g, *s) => {
                // The next renewal will be believed for a lease from some time before now.
                let until = now + self.config.lease + self.config.margin();
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
    /// It guards itself since `replied`: a first renewal of any granting may be accepted, if it has the last nonce.
    Ready { replied: Time },
    /// The promise of `seq` is believed until `until`; nothing is yet if `seq` is 0, and it guards itself. The first
    /// reply was given at `replied`: the next renewal is believed for a lease from there, however late it is.
    Some { guard: u64, seq: u64, replied: Time, until: Time, safety_threshold: u64 },
}

impl Grantee {
    /// Whose nonces follow this one.
    pub fn new(nonces: u64) -> Grantee {
        Grantee { nonces, state: Belief::None }
    }

    /// Guards itself, unless a promise is believed or about to be; what to say to the grantor.
    pub fn ready(&mut self, number: u64, now: Time) -> Option<Message> {
        if self.state != Belief::None {
            return None;
        }
        self.nonces = self.nonces.wrapping_add(1);
        self.state = Belief::Ready { replied: now };
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
    pub fn on_message(&mut self, message: &Message, config: &LeaseConfig, now: Time) -> Option<Message> {
        match *message {
            Message::Guard { number, guard, safety_threshold } => {
                let known = matches!(self.state, Belief::Some { guard: current, .. } if current == guard);
                match self.state {
                    _ if known => {}
                    // They have crossed: whatever it sends first counts.
                    Belief::Ready { replied } if now < config.guarded(replied) => {}
                    _ => {
                        self.nonces = self.nonces.wrapping_add(1);
                        self.state =
                            Belief::Some { guard, seq: 0, replied: now, until: now, safety_threshold };
                    }
                }
                Some(Message::GuardReply { number, guard, nonce: self.nonces })
            }
            Message::Renew { number, guard, nonce, seq, safety_threshold: told } => {
                let (current, last, replied, safety_threshold) = match self.state {
                    Belief::None => return None,
                    Belief::Ready { replied } => (guard, 0, replied, told),
                    Belief::Some { guard, seq, replied, safety_threshold, .. } => {
                        (guard, seq, replied, safety_threshold)
                    }
                };
                let late = last == 0 && now >= config.guarded(replied);
                if (guard, nonce) != (current, self.nonces) || late || seq < last {
                    return None;
                }
                let duplicate = seq == last;
                if !duplicate || mutation::active("lease/duplicate-extends") {
                    let from_receipt = duplicate || mutation::active("lease/believed-from-receipt");
                    let until = if from_receipt { now } else { replied } + (config.lease - config.margin());
                    self.state = Belief::Some { guard, seq, replied: now, until, safety_threshold };
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
            Belief::Some { guard, seq: 1.., until, safety_threshold, .. } if now < until => {
                Some((guard, safety_threshold))
            }
            _ => None,
        }
    }

    /// The grantor's safety threshold, if its promise is believed.
    pub fn safety_threshold(&self, now: Time) -> Option<u64> {
        self.held(now).map(|(_, safety_threshold)| safety_threshold)
    }
}

#[cfg(test)]
mod tests;
