//! **LeaseGuard** (Davis, Demirbas, Deng): the log is the lease. A committed entry that is less than Δ old lets its
//! leader answer reads alone, because a later leader, which has that entry, commits nothing before it is more than Δ
//! old. Two gates, one for commits and one for reads, both told by the entries' own stamps.
//!
//! # Why the commit gate takes the smaller of two waits
//!
//! No earlier leader reads by an entry when more than Δ has passed since it was made: not by its stamp, which holds the
//! moment at which it was made, nor by its timer, which ends before Δ has passed since then; and who inherits reads
//! goes by the same stamp. So a new leader must be sure of one thing: that more than Δ has passed since each prior-term
//! entry was made. There are two ways to be sure of it, and either is enough.
//!
//! - *By stamps*: the earliest possible now is past the latest end of any stamp by more than Δ.
//! - *By arrival*: Δ and a margin for drift have passed on the own monotonic clock since the **last** prior-term entry
//!   came here. It was made before it came, and all before it in the log were made before it was, stamped or not: who
//!   makes an entry has those before it. A restart, or a snapshot that is installed, begins this time anew, never
//!   earlier: what came with it was made before as well.
//!
//! A leader whose clock has a wide bound gives its entries wide stamps. It does not trust them itself (`max_error`) and
//! reads by its timer; by stamps alone its successor would wait for their width.

use std::time::Duration;

use bytes::Bytes;
use quorate_blocks::batch::Batch;
use quorate_blocks::prefix_log::ReplicatedLog;
use quorate_blocks::writes::{Writes, Written};
use quorate_core::{Context, Fact, Instant, Interval, Settings, SettingsError, Time, Until, Wall, mutation};

use super::Reads;
use super::replica::{Replica, Role, Timer};

/// What may be left out of LeaseGuard, and what it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGuard {
    /// A new leader takes writes and replicates them while earlier leases run (§3.2). Else they wait in front.
    pub deferred_commit: bool,
    /// A new leader answers reads under the lease of its predecessor (§3.3).
    pub inherited_reads: bool,
    /// How ages are told.
    pub clock: ClockMode,
    /// A clock whose interval is wider than twice this is as good as none: `leaseguard.max_error`, and no more than an
    /// eighth of Δ, or a lease would be over before it is known to have begun.
    pub max_error: Duration,
    /// An idle leader extends its lease before it ends. Else when a read needs it.
    pub proactive: bool,
}

/// How the age of an entry is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockMode {
    /// By intervals of true time, where the node has them.
    Bounded,
    /// By timers alone (§5.3): nothing is inherited.
    Timers,
}

impl LeaseGuard {
    /// `leaseguard.*`.
    pub fn from_settings(settings: &mut Settings, lease: Duration) -> Result<LeaseGuard, SettingsError> {
        let clocks = [("bounded", ClockMode::Bounded), ("timers", ClockMode::Timers)];
        Ok(LeaseGuard {
            deferred_commit: settings.flag(
                "leaseguard.deferred_commit",
                true,
                "A new leader takes writes before its commit gate opens (§3.2)",
            )?,
            inherited_reads: settings.flag(
                "leaseguard.inherited_reads",
                true,
                "A new leader answers reads under its predecessor's lease (§3.3)",
            )?,
            clock: settings.choice(
                "leaseguard.clock",
                "bounded",
                &clocks,
                "`timers`: never use intervals of true time (§5.3)",
            )?,
            max_error: settings
                .duration(
                    "leaseguard.max_error",
                    "100ms",
                    "A clock whose interval is wider than twice this counts as none; at most an eighth of Δ",
                )?
                .min(lease / 8),
            proactive: settings.choice(
                "leaseguard.extend",
                "proactive",
                &[("proactive", true), ("demand", false)],
                "An idle leader extends its lease before it ends; `demand`: when a read needs it",
            )?,
        })
    }

    /// What this node's clock is good for.
    fn trusted(&self, clock: Option<Interval>) -> Option<Interval> {
        let limit = 2 * self.max_error.as_nanos() as u64;
        clock.filter(|now| self.clock == ClockMode::Bounded && now.latest - now.earliest <= limit)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Until when a new leader must not commit: the leases that its log may have given to earlier leaders.
#[derive(Clone, Copy, Debug)]
pub struct CommitGate {
    open: bool,
    /// The latest end of any stamp of a prior-term entry.
    latest: u64,
    /// When the last prior-term entry without a stamp came to be here.
    unstamped: Option<Time>,
    /// When the last prior-term entry came to be here.
    at: Time,
}

impl CommitGate {
    /// As the log is when its owner is elected: every entry is of a prior term.
    pub(super) fn at_election(replica: &Replica, cx: &Context<'_, Replica>) -> CommitGate {
        let (last, _) = replica.log.entries.last();
        let Reads::LeaseGuard(_) = replica.config.reads else {
            return CommitGate { open: true, latest: 0, unstamped: None, at: cx.now() };
        };
        // A leader that has given its lease up reads no more: if that is known to be committed, there is no other.
        let ended = replica.log.entries.is_end_lease(last)
            && (replica.log.committed >= last || mutation::active("leaseguard/end-lease-uncommitted"));
        let upto = match mutation::active("leaseguard/gate-ignored") {
            true => last.saturating_sub(1).max(replica.log.entries.base()),
            false => last,
        };
        let (latest, unstamped) = replica.log.entries.lease(upto);
        CommitGate { open: ended || last == 0, latest, unstamped, at: replica.log.entries.at(upto) }
    }

    /// Whether it has been seen open.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// How long it stays shut, as far as the clocks tell now; `None` if it is open.
    fn remaining(
        &self,
        guard: &LeaseGuard,
        lease: Duration,
        drift: Duration,
        at: Instant,
    ) -> Option<Duration> {
        if self.open {
            return None;
        }
        let timer = |since: Time| (since + lease + drift).since(at.now);
        let stamped = match guard.trusted(at.clock) {
            _ if self.latest == 0 => Duration::ZERO,
            Some(now) => {
                let end = self.latest.saturating_add(nanos(lease)).saturating_add(1);
                // Strictly later: at an age of exactly Δ the old leader may still read.
                let by_stamp = Duration::from_nanos(end.saturating_sub(now.earliest));
                match mutation::active("leaseguard/larger-wait") {
                    true => by_stamp.max(timer(self.at)),
                    // Each of them is enough (see the module's comment).
                    false => by_stamp.min(timer(self.at)),
                }
            }
            None => timer(self.at),
        };
        let unstamped = self.unstamped.map_or(Duration::ZERO, timer);
        Some(stamped.max(unstamped)).filter(|rest| !rest.is_zero())
    }
}

/// The **limbo region**: entries after the commit index that an earlier leader may or may not have committed. Until
/// that is known, no read is answered that one of them could change.
#[derive(Clone, Debug, Default)]
pub struct Limbo {
    /// The last index in it; 0 if there is none.
    last: u64,
    writes: Writes,
    /// The latest time that an entry in it tells: keys may have expired by it.
    time: Wall,
}

impl Limbo {
    /// As the log is when its owner is elected.
    pub(super) fn at_election(replica: &Replica) -> Limbo {
        let Reads::LeaseGuard(LeaseGuard { inherited_reads: true, .. }) = replica.config.reads else {
            return Limbo::default();
        };
        let mut limbo = Limbo { last: replica.log.entries.last().0, ..Limbo::default() };
        for (index, held) in replica.log.entries.iter(replica.log.committed + 1) {
            if let Some(value) = held.entry.value.whole()
                && !(index == limbo.last && mutation::active("leaseguard/limbo-short"))
            {
                limbo.add(index, value);
            }
        }
        limbo
    }

    fn add(&mut self, index: u64, value: &Bytes) {
        self.writes.set(index, Written::by(value));
        if let Ok(Some(batch)) = Batch::decode(value)
            && !mutation::active("leaseguard/limbo-without-time")
        {
            self.time = self.time.max(batch.time);
        }
    }

    /// Whether an entry in it could change what this read returns.
    pub(super) fn affects(&self, command: &Bytes) -> bool {
        self.writes.affects(command)
    }

    /// Keys whose time is up by then may have expired.
    pub(super) fn time(&self) -> Wall {
        self.time
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }
}

/// An open read gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadGate {
    /// Reads see everything up to here.
    pub(super) index: u64,
    /// No read that an entry up to here can change.
    pub(super) limbo: u64,
    /// As long as this.
    pub(super) until: Until,
}

impl ReadGate {
    pub(super) fn is_open(&self, guard: &LeaseGuard, at: Instant) -> bool {
        match self.until {
            Until::Clock(end) => at.now < end,
            Until::Latest(end) => {
                guard.trusted(at.clock).is_some_and(|now| match mutation::active(ONE_SIDED) {
                    true => now.earliest <= end,
                    false => now.latest <= end,
                })
            }
        }
    }
}

/// A mutation: a read takes the time that suits it.
const ONE_SIDED: &str = "leaseguard/one-sided";

impl Replica {
    /// What the clocks show.
    pub(super) fn instant(&self, cx: &Context<'_, Self>) -> Instant {
        Instant { now: cx.now(), wall: cx.wall(), clock: cx.clock() }
    }

    /// The stamp of a new entry.
    pub(super) fn stamp(&self, clock: Option<Interval>) -> Option<Interval> {
        match self.config.reads {
            Reads::LeaseGuard(LeaseGuard { clock: ClockMode::Bounded, .. }) => clock,
            _ => None,
        }
    }

    /// Whether the log and the clocks allow reads at the leader, and for how long (the paper's ClientRead).
    pub(super) fn read_gate(&self, at: Instant) -> Option<ReadGate> {
        let (Reads::LeaseGuard(guard), Role::Leader(leading)) = (self.config.reads, &self.role) else {
            return None;
        };
        if leading.handing.as_ref().is_some_and(|handing| handing.ends_lease()) {
            return None;
        }
        let Self { log: ReplicatedLog { committed, ref entries, .. }, ref config, .. } = *self;
        let by_timer = ReadGate {
            index: committed,
            limbo: committed,
            until: Until::Clock((entries.at(committed) + config.lease).saturating_sub(config.drift)),
        };
        let by_stamp = |stamp: Interval| match mutation::active(ONE_SIDED) {
            true => Until::Latest(stamp.latest.saturating_add(nanos(config.lease))),
            false => Until::Latest(stamp.earliest.saturating_add(nanos(config.lease))),
        };
        let stamp = entries.stamp(committed).filter(|_| guard.trusted(at.clock).is_some());
        if entries.is_end_lease(committed) {
            // Given up, by this leader or an earlier one: a successor may not wait for it.
            return None;
        }
        if entries.term(committed) == Some(self.term) {
            return Some(match stamp {
                Some(stamp) => ReadGate { until: by_stamp(stamp), ..by_timer },
                None => by_timer,
            });
        }
        let ended = (committed..=leading.inherited).any(|index| entries.is_end_lease(index));
        if !guard.inherited_reads || ended || committed == 0 {
            return None;
        }
        let limbo = leading.limbo.last().max(committed);
        match stamp {
            Some(stamp) => Some(ReadGate { limbo, until: by_stamp(stamp), ..by_timer }),
            None if mutation::active("leaseguard/inherit-under-timers") => {
                Some(ReadGate { limbo, ..by_timer })
            }
            None => None,
        }
    }

    /// Whether earlier leases are over, so that a commit can change no answer that an earlier leader still gives.
    pub(super) fn may_commit(&mut self, cx: &Context<'_, Self>) -> bool {
        let at = self.instant(cx);
        let (Reads::LeaseGuard(guard), Role::Leader(leading)) = (self.config.reads, &mut self.role) else {
            return true;
        };
        leading.gate.open |=
            leading.gate.remaining(&guard, self.config.lease, self.config.drift, at).is_none();
        leading.gate.open
    }

    /// Whether clients' writes may be appended now.
    pub(super) fn takes_writes(&mut self, cx: &Context<'_, Self>) -> bool {
        let Role::Leader(leading) = &self.role else { return false };
        if leading.handing.is_some() {
            return false;
        }
        match self.config.reads {
            Reads::LeaseGuard(LeaseGuard { deferred_commit: false, .. }) => self.may_commit(cx),
            _ => true,
        }
    }

    /// Sets the timer for the moment at which the gate opens.
    pub(super) fn wait_for_gate(&mut self, cx: &mut Context<'_, Self>) {
        let at = self.instant(cx);
        if let (Reads::LeaseGuard(guard), Role::Leader(leading)) = (self.config.reads, &self.role)
            && let Some(rest) = leading.gate.remaining(&guard, self.config.lease, self.config.drift, at)
        {
            cx.set_timer(Timer::Gate, rest);
        }
    }

    pub(super) fn on_gate_timer(&mut self, cx: &mut Context<'_, Self>) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        if self.may_commit(cx) {
            self.advance(cx);
            // What it has just committed was made when it was elected.
            self.extend_if_old(cx);
        } else {
            self.wait_for_gate(cx);
        }
    }

    pub(super) fn wait_to_extend(&mut self, cx: &mut Context<'_, Self>) {
        if let Reads::LeaseGuard(LeaseGuard { proactive: true, .. }) = self.config.reads {
            cx.set_timer(Timer::Extend, self.config.lease / 4);
        }
    }

    pub(super) fn on_extend_timer(&mut self, cx: &mut Context<'_, Self>) {
        if matches!(self.role, Role::Leader(_)) {
            self.extend_if_old(cx);
            self.wait_to_extend(cx);
        }
    }

    fn extend_if_old(&mut self, cx: &mut Context<'_, Self>) {
        if cx.now().since(self.log.entries.at(self.log.entries.last().0)) >= self.config.lease / 2 {
            self.extend();
        }
    }

    /// A read needs a lease: there is one when the next entry is committed. If none is on its way, one is appended at
    /// the end of the batch, with the writes that wait: an entry of its own would keep them waiting where few entries
    /// may be under way.
    pub(super) fn extend(&mut self) {
        let idle = self.log.entries.last().0 == self.log.committed;
        let Role::Leader(leading) = &mut self.role else { return };
        if !idle || leading.handing.is_some() || !leading.gate.is_open() {
            return;
        }
        leading.needs_empty_batch = true;
    }

    /// Tells checkers what reads would be answered, if that has changed.
    pub(super) fn note_gate(&mut self, cx: &mut Context<'_, Self>) {
        let at = self.instant(cx);
        let gate = self.read_gate(at).or_else(|| self.ongaro_gate());
        let (term, index) = (self.term, self.log.state.applied());
        let Role::Leader(leading) = &mut self.role else { return };
        if leading.noted != gate {
            leading.noted = gate;
            cx.note(|| match gate {
                Some(ReadGate { index, limbo, until }) => {
                    Fact::ReadGate { term, index, limbo, until: Some(until) }
                }
                None => Fact::ReadGate { term, index, limbo: index, until: None },
            });
        }
    }
}
