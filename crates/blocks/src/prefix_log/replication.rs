//! What a leader keeps while it replicates its log: what it knows of the others' logs, how far its own disk is, and up
//! to where it has told what is committed.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, PeerStatus, Time, mutation};

use super::{Entry, Mode, PrefixLog, Progress, retransmit};
use crate::laggards::OwnDisk;
use crate::membership::Configuration;

/// See the file comment.
#[derive(Debug)]
pub struct Replication {
    /// What is known of each other member's log.
    pub peers: BTreeMap<NodeId, Progress>,
    /// The own log is durable up to here.
    pub durable: u64,
    /// Will be, when what was persisted is.
    claimed: u64,
    since: Time,
    /// Everything up to here was announced as committed.
    announced: u64,
    announcing: bool,
    /// Whether the own log keeps up.
    disk: OwnDisk,
}

impl Replication {
    /// A leader that has just been elected; of these it knows how far they may agree with it.
    pub fn new(peers: BTreeMap<NodeId, Progress>, now: Time) -> Replication {
        let disk = OwnDisk::default();
        Replication { peers, durable: 0, claimed: 0, since: now, announced: 0, announcing: false, disk }
    }

    /// A peer has said something.
    pub fn hear(&mut self, from: NodeId, now: Time) -> Option<&mut Progress> {
        let peer = self.peers.get_mut(&from)?;
        peer.heard = Some(now);
        Some(peer)
    }

    /// Who was heard in the last while, and up to where its log is durably the own one.
    pub fn heard_within(&self, limit: Duration, now: Time) -> impl Iterator<Item = (NodeId, u64)> {
        let heard = move |peer: &Progress| peer.heard.is_some_and(|heard| now.since(heard) < limit);
        self.peers.iter().filter(move |(_, peer)| heard(peer)).map(|(node, peer)| (*node, peer.matched))
    }

    /// The own log ends at `last`. Whether it has to be acknowledged: it counts like any other's, when it is durable.
    pub fn claim(&mut self, last: u64) -> bool {
        std::mem::replace(&mut self.claimed, last) < last
    }

    /// Up to where the log is durable at a majority.
    pub fn reached(&self, me: NodeId, configuration: &Configuration) -> Option<u64> {
        configuration.reached(|node| match node == me {
            true => Some(self.durable),
            false => self.peers.get(&node).map(|peer| peer.matched),
        })
    }

    /// These entries, behind the one at `prev`, are on their way.
    pub fn on_sent(&mut self, nodes: NodeSet, prev: u64, entries: &[Entry], now: Time) {
        let bytes = entries.iter().map(|entry| entry.value.len()).sum();
        for (_, peer) in self.peers.iter_mut().filter(|(node, _)| nodes.contains(**node)) {
            peer.on_sent(prev + entries.len() as u64, bytes, now);
        }
    }

    /// What these need is not kept any more: they are to fetch a snapshot.
    pub fn on_behind(&mut self, nodes: NodeSet, now: Time) {
        for (_, peer) in self.peers.iter_mut().filter(|(node, _)| nodes.contains(**node)) {
            (peer.mode, peer.sent) = (Mode::Snapshot, Some(now));
        }
    }

    /// A peer does not have the entry at `prev`. The last of its own that may be the same is at this index and of this
    /// term.
    pub fn on_mismatch(
        &mut self,
        from: NodeId,
        prev: u64,
        (index, term): (u64, u64),
        log: &PrefixLog,
        now: Time,
    ) {
        let agreed = log.agree(index, term);
        if let Some(peer) = self.hear(from, now) {
            // Below the base nothing can be looked up: the follower needs a snapshot.
            peer.on_mismatch(prev, agreed.min(index));
        }
    }

    /// Messages may be lost: what was not answered is sent again.
    pub fn on_retransmit_timer(&mut self, now: Time) {
        retransmit(&mut self.peers, now);
    }

    /// Whether a majority has been silent for `limit`: it helps nobody any more.
    pub fn is_cut_off(&self, me: NodeId, configuration: &Configuration, limit: Duration, now: Time) -> bool {
        let heard = configuration.reached(|node| match node == me {
            true => Some(now),
            false => Some(self.peers.get(&node).and_then(|peer| peer.heard).unwrap_or(self.since)),
        });
        heard.is_none_or(|heard| now.since(heard) >= limit)
    }

    /// Whether something has been missing on the own disk for `limit` that is committed, or would be with it: another
    /// leader has one that works. The latter counts only where others are a majority: else nobody else can do better.
    pub fn hangs(
        &mut self,
        me: NodeId,
        configuration: &Configuration,
        committed: u64,
        limit: Duration,
        now: Time,
    ) -> bool {
        let can_do_without = configuration.reached(|node| (node != me).then_some(())).is_some();
        let with_own = configuration.reached(|node| match node == me {
            true => Some(self.claimed),
            false => self.peers.get(&node).map(|peer| peer.matched),
        });
        let supported =
            with_own.filter(|_| can_do_without && !mutation::active("laggards/needs-no-own-vote"));
        let others = committed.max(supported.unwrap_or(0));
        self.disk.hangs(self.durable, others, limit, now)
    }

    /// Everything up to here is committed, and the others are told so now.
    pub fn on_announced(&mut self, committed: u64) {
        self.announced = committed;
    }

    /// Something is committed. Whether the others are to be told after a while, if nothing tells them before.
    pub fn announces_later(&mut self, committed: u64) -> bool {
        self.announced < committed && !std::mem::replace(&mut self.announcing, true)
    }

    /// The while is over: whether the others are to be told now.
    pub fn announces_now(&mut self, committed: u64) -> bool {
        self.announcing = false;
        std::mem::replace(&mut self.announced, committed) < committed
    }

    /// The others as operators see them.
    pub fn statuses(&self, committed: u64, now: Time) -> Vec<PeerStatus> {
        let peers = self.peers.iter().map(|(&node, peer)| PeerStatus {
            node,
            lag: committed.saturating_sub(peer.matched),
            heard_ms: peer.heard.map(|heard| now.since(heard).as_millis() as u64),
        });
        peers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_committed_is_announced_after_a_while_unless_a_heartbeat_has_told_it() {
        let mut leader = Replication::new(BTreeMap::new(), Time::ZERO);
        assert!(leader.announces_later(3), "the first sets the timer");
        assert!(!leader.announces_later(4), "it is set");
        assert!(leader.announces_now(4));
        assert!(!leader.announces_later(4), "all is told");
        assert!(leader.announces_later(5));
        leader.on_announced(5);
        assert!(!leader.announces_now(5), "a heartbeat was faster");
        assert!(leader.announces_later(6), "the timer may be set again");
    }

    #[test]
    fn a_leader_is_cut_off_when_a_majority_has_been_silent_since_it_was_elected_or_heard() {
        let node = |id| NodeId::new(id).expect("an id");
        let voters: NodeSet = [1, 2, 3].into_iter().map(node).collect();
        let configuration = Configuration { voters, ..Configuration::default() };
        let ms = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let peers = [2, 3].map(|id| (node(id), Progress::new(0)));
        let mut leader = Replication::new(peers.into_iter().collect(), ms(1000));
        let cut_off = |leader: &Replication, now| {
            leader.is_cut_off(node(1), &configuration, Duration::from_millis(100), ms(now))
        };
        assert!(!cut_off(&leader, 1099) && cut_off(&leader, 1100), "nobody was heard since the election");
        assert!(leader.hear(node(3), ms(1050)).is_some());
        assert!(!cut_off(&leader, 1149) && cut_off(&leader, 1150), "one of the two is enough");
        assert!(leader.hear(node(4), ms(1150)).is_none(), "it is no peer");
        assert!(cut_off(&leader, 1150));
    }
    #[test]
    fn a_disk_hangs_that_lacks_what_is_committed_or_would_be_with_it() {
        let node = |id| NodeId::new(id).expect("an id");
        let limit = Duration::from_millis(100);
        let ms = |millis: u64| Time::from_nanos(millis * 1_000_000);
        // voters, committed, durable up to there at 1 (the leader, whose log ends at 9), 2, 3, ... → hangs
        let table: [(&[u64], u64, bool); 7] = [
            (&[5, 9, 0], 5, true),
            (&[9, 9, 0], 9, false),
            (&[5, 5, 0], 5, false),
            (&[5, 9, 9], 9, true),
            (&[5, 9, 0, 0, 0], 5, false),
            (&[5, 9, 7, 0, 0], 5, true),
            (&[5, 9], 5, false),
        ];
        for (durable, committed, hangs) in table {
            let nodes = || (1..).map(node).zip(durable.iter().copied());
            let configuration =
                Configuration { voters: nodes().map(|(node, _)| node).collect(), ..Configuration::default() };
            let mut leader = Replication::new(BTreeMap::new(), ms(0));
            for (node, matched) in nodes().skip(1) {
                leader.peers.entry(node).or_insert_with(|| Progress::new(0)).on_match(matched, ms(0));
            }
            leader.claim(9);
            leader.durable = durable[0];
            let mut hangs_at = |now| leader.hangs(node(1), &configuration, committed, limit, ms(now));
            assert!(!hangs_at(0), "{durable:?}");
            assert_eq!(hangs_at(100), hangs, "{durable:?}");
        }
    }
}
