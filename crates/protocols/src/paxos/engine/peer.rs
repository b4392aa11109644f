//! What a leader knows of another member.

use std::time::Duration;

use quorate_blocks::pace::InFlight;
use quorate_core::{Time, mutation};

use super::{PIPELINE_BYTES, RETRANSMIT};

/// Who has not asked for what it misses for this long has got it, from another replica perhaps.
const FETCH_SILENCE: Duration = Duration::from_secs(10);

/// Another member, as a leader hears of it.
#[derive(Debug)]
pub struct Peer {
    /// Since when it is expected to answer.
    pub(super) since: Time,
    pub(super) heard: Option<Time>,
    /// It has executed everything up to here; after a crash, at least every configuration in it.
    pub(super) committed: u64,
    /// It could not take over at once: an earlier incarnation's promises may bind it.
    pub(super) bound: bool,
    /// Requests for what it misses that it has made of this leader.
    pub(super) fetches: u64,
    /// Proposals on their way.
    pub(super) in_flight: InFlight,
    /// When it last asked for what it misses, and that was much.
    behind: Option<Time>,
    /// From this slot on it was sent all that was proposed, and whole.
    pub(super) whole_since: Option<u64>,
}

impl Peer {
    /// Not heard yet.
    pub fn new(now: Time) -> Peer {
        let in_flight = InFlight::new(RETRANSMIT);
        Peer {
            since: now,
            heard: None,
            committed: 0,
            bound: false,
            fetches: 0,
            in_flight,
            behind: None,
            whole_since: None,
        }
    }

    /// A slot was proposed, behind a gap or not; whether it was sent this whole.
    pub(super) fn on_proposed(&mut self, slot: u64, follows_gap: bool, is_whole: bool) {
        let since = self.whole_since.filter(|_| !follows_gap);
        self.whole_since = is_whole.then(|| since.unwrap_or(slot));
    }

    /// From which slot on it has everything, or is being sent it, where it misses something from this one on, and much
    /// is under way to it.
    pub(super) fn on_its_way(&self, slot: u64, now: Time) -> Option<u64> {
        let since = self.whole_since.filter(|_| self.in_flight.is_large())?;
        (slot < since || !self.in_flight.is_late(slot, now)).then_some(since.max(slot))
    }

    /// It asks for what it misses, and that is much or not.
    pub(super) fn on_fetch(&mut self, is_much: bool, now: Time) {
        self.fetches += 1;
        self.behind = is_much.then_some(now);
    }

    /// Whether it is being sent so much of what it has missed; or so much is under way to it, more than to anybody
    /// whose vote counts for what is not chosen: others have gone on without it, and its link is full.
    pub(super) fn is_far_behind(&self, in_shards: bool, now: Time) -> bool {
        let misses = self.behind.is_some_and(|asked| now.since(asked) < FETCH_SILENCE);
        let misses = misses && !in_shards && !mutation::active("paxos/send-to-those-that-fetch");
        let much = self.in_flight.under_way(now) > self.behind_limit();
        misses || much && !mutation::active("paxos/send-to-those-far-behind")
    }

    /// Bytes that it may be behind without being far behind.
    pub(super) fn behind_limit(&self) -> usize {
        let product = self.in_flight.pace().bandwidth_delay_product().unwrap_or(0);
        product.max(PIPELINE_BYTES).saturating_mul(2)
    }
}
