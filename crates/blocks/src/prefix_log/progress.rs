//! What a leader knows of another replica's log, and what to send it next (Ongaro's thesis §10.2.1; the states are
//! those of etcd's raft library).

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, Time};

use super::PrefixLog;
use crate::pace::InFlight;

/// What was sent and not answered for this long is sent again, unless its link is known to be slower.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// How the other is sent entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Where the logs agree is not known: one message at a time, until it is.
    Probe,
    /// They agree: entries are sent as they come, without waiting for answers.
    Replicate,
    /// It needs entries that are no longer kept, and fetches a snapshot.
    Snapshot,
}

/// Another replica, seen from the leader.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Whether its log is probed, followed, or replaced by a snapshot.
    pub mode: Mode,
    /// Its log is durably the leader's up to here.
    pub matched: u64,
    /// The next entry to send.
    pub next: u64,
    /// When something was last sent that has to be answered; `None` if nothing is out.
    pub sent: Option<Time>,
    /// When it was last heard.
    pub heard: Option<Time>,
    /// The last round of heartbeats it has answered.
    pub round: u64,
    /// Requests for a snapshot or its pieces that it has made.
    pub fetches: u64,
    /// Where it has values in shards only, by its last answer: ranges of indexes.
    pub partial: Vec<(u64, u64)>,
    /// The first index of the entries that were last sent again because it had them in shards.
    pub resent: u64,
    /// Entries on their way, by the index of the last one of each message.
    in_flight: InFlight,
}

impl Progress {
    /// Nothing is known but the leader's own last index.
    pub fn new(last: u64) -> Progress {
        Progress {
            mode: Mode::Probe,
            matched: 0,
            next: last + 1,
            sent: None,
            heard: None,
            round: 0,
            fetches: 0,
            partial: Vec::new(),
            resent: 0,
            in_flight: InFlight::new(RETRANSMIT),
        }
    }

    /// It has everything up to `matched`. True if that is news.
    pub fn on_match(&mut self, matched: u64, now: Time) -> bool {
        if matched < self.matched || (matched == self.matched && self.mode == Mode::Replicate) {
            return false;
        }
        self.in_flight.on_answer(0..=matched, now);
        self.matched = matched;
        self.next = self.next.max(matched + 1);
        if self.mode != Mode::Replicate {
            self.mode = Mode::Replicate;
            self.next = matched + 1;
        }
        self.sent = (self.next > self.matched + 1).then_some(now);
        true
    }

    /// It does not have the entry at `prev`, and may agree up to `agreed`. False if that is old news.
    pub fn on_mismatch(&mut self, prev: u64, agreed: u64) -> bool {
        let stale = match self.mode {
            Mode::Replicate => prev <= self.matched,
            Mode::Probe => prev + 1 != self.next,
            Mode::Snapshot => true,
        };
        if stale {
            return false;
        }
        self.mode = Mode::Probe;
        self.next = (agreed + 1).clamp(self.matched + 1, prev.max(self.matched + 1));
        self.sent = None;
        true
    }

    /// It has its log, but no longer knows up to where it is the leader's: it has been restarted, and is shown again.
    pub fn on_verified(&mut self, verified: u64) {
        if self.mode == Mode::Replicate && verified < self.matched {
            (self.mode, self.next, self.sent) = (Mode::Probe, self.matched + 1, None);
        }
    }

    /// While it was to fetch a snapshot, it says that it lacks nothing before this entry, which is there to be sent.
    pub fn on_known(&mut self, index: u64) {
        if self.mode == Mode::Snapshot {
            (self.mode, self.next, self.sent) = (Mode::Probe, index.max(self.matched + 1), None);
        }
    }

    /// What was sent has not been answered for so long that it must have been lost: send it again.
    pub fn on_silence(&mut self, now: Time, patience: Duration) -> bool {
        let on_its_way = self.mode != Mode::Snapshot && !self.in_flight.is_late(self.matched + 1, now);
        if on_its_way || self.sent.is_none_or(|sent| now.since(sent) < patience) {
            return false;
        }
        self.sent = None;
        self.mode = Mode::Probe;
        self.next = self.matched.max(if self.matched == 0 { self.next - 1 } else { 0 }) + 1;
        true
    }

    /// It asks for a snapshot, or for the next piece of one.
    pub fn on_fetch(&mut self, now: Time) {
        self.heard = Some(now);
        self.fetches += 1;
        if self.mode == Mode::Snapshot {
            self.sent = Some(now);
        }
    }

    /// Entries of so many bytes were sent, up to `last`.
    pub fn on_sent(&mut self, last: u64, bytes: usize, now: Time) {
        self.in_flight.on_sent(last, bytes, now);
        self.sent.get_or_insert(now);
        if self.mode == Mode::Replicate {
            self.next = last + 1;
        }
    }

    /// Whether something may be sent: a probe waits for its answer.
    pub fn is_ready(&self) -> bool {
        match self.mode {
            Mode::Probe => self.sent.is_none(),
            Mode::Replicate => true,
            Mode::Snapshot => false,
        }
    }
}

/// Who may be sent something of this log now: those who need the same together, by their next entry and whether it is a
/// probe. `upto`: the last entry that may be sent. `in_flight`: bytes that may be on their way to one of them, before
/// the last entry.
pub fn due(
    peers: &BTreeMap<NodeId, Progress>,
    log: &PrefixLog,
    upto: u64,
    in_flight: u64,
) -> BTreeMap<(u64, bool), NodeSet> {
    let mut groups: BTreeMap<(u64, bool), NodeSet> = BTreeMap::new();
    for (&node, peer) in peers {
        let probes = peer.mode == Mode::Probe;
        let room = probes || log.bytes(peer.matched + 1, peer.next.saturating_sub(1)) < in_flight;
        if peer.is_ready() && room && (peer.next <= upto || probes) {
            groups.entry((peer.next, probes)).or_default().insert(node);
        }
    }
    groups
}

/// Messages may be lost: what these have not answered is due again. To be called every [`RETRANSMIT`].
pub fn retransmit(peers: &mut BTreeMap<NodeId, Progress>, now: Time) {
    for peer in peers.values_mut() {
        let patience = if peer.mode == Mode::Snapshot { 5 * RETRANSMIT } else { RETRANSMIT };
        peer.on_silence(now, patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::Configuration;
    use crate::prefix_log::Entry;
    use crate::state::Origin;

    const NOW: Time = Time::ZERO;

    #[test]
    fn a_probe_finds_where_the_logs_agree_and_then_entries_flow() {
        let mut peer = Progress::new(10);
        assert_eq!((peer.next, peer.is_ready()), (11, true));
        peer.on_sent(10, 0, NOW);
        assert!(!peer.is_ready(), "one probe at a time");
        assert!(peer.on_mismatch(10, 4));
        assert_eq!((peer.next, peer.is_ready()), (5, true));
        assert!(!peer.on_mismatch(10, 7), "a late duplicate");
        peer.on_sent(6, 0, NOW);
        assert!(peer.on_match(6, NOW));
        assert_eq!((peer.mode, peer.next), (Mode::Replicate, 7));
        peer.on_sent(9, 0, NOW);
        assert_eq!((peer.next, peer.sent.is_some()), (10, true));
        assert!(peer.on_match(9, NOW) && peer.sent.is_none());
        assert!(!peer.on_match(8, NOW), "an old answer");
        assert!(!peer.on_mismatch(9, 3), "an old rejection: it has answered for more");
    }

    #[test]
    fn an_old_answer_does_not_end_the_wait_for_a_snapshot() {
        let mut peer = Progress::new(10);
        peer.on_match(4, NOW);
        (peer.mode, peer.sent) = (Mode::Snapshot, Some(NOW));
        peer.on_match(3, NOW);
        assert!(peer.on_silence(NOW + Duration::from_secs(1), Duration::from_secs(1)), "it is asked again");
        (peer.mode, peer.sent) = (Mode::Snapshot, Some(NOW));
        peer.on_known(5);
        assert_eq!((peer.mode, peer.next, peer.is_ready()), (Mode::Probe, 5, true));
    }

    #[test]
    fn what_comes_late_does_not_end_the_wait_for_a_snapshot_either() {
        let mut peer = Progress::new(10);
        peer.on_match(4, NOW);
        (peer.mode, peer.sent) = (Mode::Snapshot, Some(NOW));
        assert!(!peer.on_mismatch(10, 3), "it has been told to fetch one");
        peer.on_verified(0);
        assert_eq!((peer.mode, peer.sent), (Mode::Snapshot, Some(NOW)));
        peer.on_known(2);
        assert_eq!((peer.mode, peer.next), (Mode::Probe, 5), "it has those before");
        peer.on_match(9, NOW);
        peer.on_known(6);
        assert_eq!((peer.mode, peer.next), (Mode::Replicate, 10), "it is not waiting for one");
    }

    #[test]
    fn a_probe_begins_behind_what_has_matched() {
        let mut peer = Progress::new(10);
        peer.on_match(6, NOW);
        peer.on_sent(9, 0, NOW);
        assert!(peer.on_mismatch(9, 2));
        assert_eq!((peer.mode, peer.next), (Mode::Probe, 7));
    }

    #[test]
    fn a_peer_that_was_restarted_is_shown_its_log_again() {
        let mut peer = Progress::new(10);
        peer.on_match(10, NOW);
        peer.on_verified(10);
        assert_eq!((peer.mode, peer.next), (Mode::Replicate, 11));
        peer.on_verified(0);
        assert_eq!((peer.mode, peer.next, peer.is_ready()), (Mode::Probe, 11, true));
    }

    #[test]
    fn what_is_not_answered_is_sent_again() {
        let mut peer = Progress::new(10);
        peer.on_match(10, NOW);
        peer.on_sent(12, 0, NOW);
        let later = NOW + Duration::from_millis(200);
        assert!(!peer.on_silence(NOW, Duration::from_millis(200)));
        assert!(peer.on_silence(later, Duration::from_millis(200)));
        assert_eq!((peer.mode, peer.next), (Mode::Probe, 11));
        let mut fresh = Progress::new(10);
        fresh.on_sent(10, 0, NOW);
        assert!(fresh.on_silence(later, Duration::from_millis(200)));
        assert_eq!(fresh.next, 11, "nothing is known yet: the same probe");
    }

    #[test]
    fn what_is_behind_an_answer_is_sent_again_and_an_answer_that_says_nothing_new_does_not_put_that_off() {
        let (patience, after) = (RETRANSMIT, |times: u32| NOW + RETRANSMIT / 2 * times);
        let mut peer = Progress::new(10);
        peer.on_match(10, NOW);
        peer.on_sent(12, 0, NOW);
        assert!(!peer.on_match(10, after(1)), "heartbeats are answered all the time");
        assert!(peer.on_silence(after(2), patience));
        let mut peer = Progress::new(10);
        peer.on_match(10, NOW);
        peer.on_sent(12, 0, NOW);
        assert!(peer.on_match(11, after(1)));
        assert!(!peer.on_silence(after(2), patience) && peer.on_silence(after(3), patience), "12 was lost");
        assert_eq!((peer.mode, peer.next), (Mode::Probe, 12));
    }

    #[test]
    fn a_probe_that_says_nothing_new_is_answered_and_entries_flow() {
        let mut peer = Progress::new(10);
        peer.on_match(10, NOW);
        peer.on_verified(0);
        peer.on_sent(10, 0, NOW);
        assert!(peer.on_match(10, NOW));
        assert_eq!((peer.mode, peer.next), (Mode::Replicate, 11));
    }

    /// Nothing is known of it yet: all of the log might be on its way.
    #[test]
    fn a_probe_leaves_however_much_may_be_on_its_way() {
        let group = (0, Configuration::default());
        let mut log = PrefixLog::new(0, Origin::default(), group, NOW);
        for _ in 0..3 {
            let value = bytes::Bytes::from_static(b"value").into();
            log.append(Entry { term: 1, stamp: None, value }, NOW);
        }
        let [probed, other] = [2, 3].map(|id| NodeId::new(id).expect("an id"));
        let mut peers = BTreeMap::from([(probed, Progress::new(3)), (other, Progress::new(3))]);
        let peer = peers.get_mut(&other).expect("it is there");
        peer.on_match(1, NOW);
        peer.on_sent(2, 0, NOW);
        let is_due =
            |in_flight| due(&peers, &log, 3, in_flight).into_values().fold(NodeSet::EMPTY, NodeSet::union);
        assert_eq!(is_due(1), NodeSet::from_iter([probed]), "the other has an entry on its way");
        assert_eq!(is_due(1000), NodeSet::from_iter([probed, other]));
    }
}
