//! What nobody needs any more. A recovery asks for executed instances that interfere with it and are not in its
//! dependencies; so an executed instance may go only when everything that may still be recovered depends on it. Each
//! owner says below what all of its unfinished and future instances depend on: its *floor*. It has executed that
//! itself.
//!
//! An instance is *unfinished* until a majority has executed it. Then it is decided, and every quorum that a recovery
//! could ask has a member that says so instead of voting.
//!
//! # What goes early
//!
//! Where a member is away no floor rises. Then batches go that a majority has executed
//! ([`kept_by_a_majority`](GcWatermarks::kept_by_a_majority)). Whoever lacks one of them needs a snapshot, and takes
//! none that lacks something of which it has dropped the batch itself. So of any two members one must have executed
//! all that the other has dropped: it gets everything else from the other, batch by batch; then the other gets all from
//! it, if need be by a snapshot. Three rules see to that:
//!
//! 1. A member drops what a majority, itself included, says to have executed, and only if it has executed *all* that
//!    those say. (It counts itself by what it has said, as others do.)
//! 2. What a member says to have executed never shrinks, over all of its lives. It is durable before it is said; and a
//!    member that rejoins says nothing, and is not of its own majority, until it has executed all that its earlier
//!    lives had ([`rejoin`](super::rejoin)).
//! 3. A snapshot brings with it the batches that its sender could not have dropped by rule 1, so it makes its receiver
//!    what its sender was ([`image`](super::image)). A receiver without them would have dropped what no majority has.
//!
//! Take something that r dropped, and something that s dropped. By rule 1 there is a member m on whose word both
//! relied. Of the two words one contains the other (rule 2); say that r relied on the smaller one. It contains what r
//! dropped, and s has executed all of the larger one. So for each thing that r dropped and each that s dropped, one of
//! the two has executed both; if r has dropped anything that s lacks, r has executed all that s ever dropped. Rule 3
//! passes this on.
//!
//! What is below everybody's floor everybody has executed. Only a member that rejoins may lack it: nobody needs the
//! batches of that one, and when the others have everything, it finds a snapshot. Memory stays bounded, since nothing
//! is decided without a majority whose members execute it, and say so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use quorate_blocks::instance::Frontier;
use quorate_blocks::quorum::majority_reached;
use quorate_core::{NodeId, NodeSet, PeerStatus, Time};

use super::message::Progress;

/// Own instances whose dependencies are remembered one by one.
const UNFINISHED: usize = 4096;
/// Whoever was not heard for this long is not waited for where that costs memory or time.
const ABSENT: Duration = Duration::from_secs(2);

/// How far the members are.
#[derive(Debug, Default)]
pub(super) struct GcWatermarks {
    start: Time,
    peers: BTreeMap<NodeId, Peer>,
    /// What this one has said of itself: that is durable.
    said: Progress,
    /// Own instances that a majority may not have executed, with what they depend on at least.
    unfinished: VecDeque<(u64, Frontier)>,
}

/// Another member.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    heard: Option<Time>,
    /// When it has said last that it rejoins, if it has not said anything else since.
    rejoins: Option<Time>,
    progress: Progress,
}

impl GcWatermarks {
    pub(super) fn new(peers: impl Iterator<Item = NodeId>, start: Time) -> GcWatermarks {
        let peers = peers.map(|node| (node, Peer::default())).collect();
        GcWatermarks { start, peers, said: Progress::default(), unfinished: VecDeque::new() }
    }

    /// An own instance begins; it depends on this.
    pub(super) fn begin(&mut self, index: u64, deps: Frontier) {
        self.unfinished.push_back((index, deps));
    }

    /// A peer is as far as this at least; false if it is none.
    pub(super) fn on_progress(&mut self, from: NodeId, progress: &Progress, now: Time) -> bool {
        let Some(peer) = self.peers.get_mut(&from) else { return false };
        peer.heard = Some(now);
        if !progress.executed.is_empty() {
            peer.rejoins = None;
        }
        peer.progress = peer.progress.union(progress);
        true
    }

    /// A peer says that it rejoins.
    pub(super) fn on_rejoin(&mut self, from: NodeId, now: Time) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.rejoins = Some(now);
        }
    }

    /// Peers that have said lately that they rejoin.
    pub(super) fn rejoining(&self, now: Time) -> NodeSet {
        let rejoins = |peer: &Peer| peer.rejoins.is_some_and(|at| now.since(at) < ABSENT);
        self.peers.iter().filter(|(_, peer)| rejoins(peer)).map(|(node, _)| *node).collect()
    }

    /// What this one has said of itself has left, since it has come back.
    pub(super) fn on_own_progress(&mut self, progress: &Progress) {
        self.said = self.said.union(progress);
    }

    /// What this one has said of itself: others rely on it, and no crash undoes it.
    pub(super) fn said(&self) -> Progress {
        self.said
    }

    /// How far a peer is; nothing is known of a stranger.
    pub(super) fn peer(&self, node: NodeId) -> Progress {
        self.peers.get(&node).map(|peer| peer.progress).unwrap_or_default()
    }

    /// Peers that have executed what is beyond this: those who were heard lately, or all if none was.
    pub(super) fn ahead_of(&self, committed: &Frontier, now: Time) -> Vec<NodeId> {
        let ahead = self.peers.iter().filter(|(_, peer)| !peer.progress.executed.within(committed));
        let (all, present) = (ahead.clone(), ahead.filter(|(_, peer)| self.is_present(peer, now)));
        let present: Vec<_> = present.map(|(node, _)| *node).collect();
        match present.is_empty() {
            true => all.map(|(node, _)| *node).collect(),
            false => present,
        }
    }

    /// What all members have executed, as far as is known; `own` is what this one has.
    pub(super) fn stable(&self, own: Frontier) -> Frontier {
        self.peers.values().fold(own, |stable, peer| stable.intersection(&peer.progress.executed))
    }

    /// See [`Progress`]; `own` is what this one has executed, and of that all its future instances depend on `base`.
    pub(super) fn floor(&self, own: Frontier, base: Frontier) -> Frontier {
        let all = self.stable(own).union(&base.intersection(&own));
        self.unfinished.iter().fold(all, |floor, (_, deps)| floor.intersection(deps))
    }

    /// Forgets own instances that a majority has executed, and tells old ones apart no longer if they are many.
    pub(super) fn advance(&mut self, me: NodeId, own: Frontier) {
        let of = |executed: &Frontier| Some(executed.of(me));
        let all = self.peers.values().map(|peer| of(&peer.progress.executed)).chain([of(&own)]);
        let finished = majority_reached(all).unwrap_or_default();
        while self.unfinished.pop_front_if(|(index, _)| *index <= finished).is_some() {}
        while self.unfinished.len() > UNFINISHED {
            let (_, deps) = self.unfinished.pop_front().expect("there are many");
            let next = self.unfinished.front_mut().expect("there are many");
            next.1 = next.1.intersection(&deps);
        }
    }

    /// What may be collected without a trace: it is below everybody's floor, this one's as it has said it.
    pub(super) fn safe(&self) -> Frontier {
        self.peers.values().fold(self.said.floor, |safe, peer| safe.intersection(&peer.progress.floor))
    }

    /// As [`safe`](Self::safe), but for those who were not heard lately: what none of those who are there will ask for.
    /// `floor` is this one's.
    pub(super) fn safe_for_present(&self, floor: Frontier, now: Time) -> Frontier {
        let present = self.peers.values().filter(|peer| self.is_present(peer, now));
        present.fold(floor, |safe, peer| safe.intersection(&peer.progress.floor))
    }

    /// What is behind the barriers of a majority with this replica, and all that those had heard of; `own` is how far
    /// this one is. (Each owner's part may be behind those of another majority.)
    pub(super) fn behind_barriers(&self, own: &Progress) -> (Frontier, Frontier) {
        let mut common = own.barrier;
        for (owner, index) in own.barrier.iter() {
            let others = self.peers.values().map(|peer| Some(peer.progress.barrier.of(owner)));
            let majority = majority_reached(others.chain([Some(index)])).unwrap_or_default();
            common.set(owner, majority.min(index));
        }
        let counts = self.peers.values().filter(|peer| !peer.progress.barrier.is_empty());
        (common, counts.fold(own.heard, |heard, peer| heard.union(&peer.progress.heard)))
    }

    /// Peers that were heard lately.
    pub(super) fn present(&self, now: Time) -> NodeSet {
        self.peers.iter().filter(|(_, peer)| self.is_present(peer, now)).map(|(node, _)| *node).collect()
    }

    /// Right after the start everybody may be there.
    fn is_present(&self, peer: &Peer, now: Time) -> bool {
        now.since(peer.heard.unwrap_or(self.start)) < ABSENT
    }

    /// What a majority says to have executed of which this one, by `own`, has executed all that it says (see the file
    /// comment). This one is of it if it counts.
    pub(super) fn kept_by_a_majority(&self, own: Frontier, counts: bool) -> Frontier {
        let others = self.peers.values().map(|peer| peer.progress.executed);
        let mut behind: Vec<_> = others.filter(|executed| executed.within(&own)).collect();
        behind.sort_unstable_by_key(|executed| std::cmp::Reverse(executed.len()));
        // With this one, half of the peers are a majority of all.
        match behind.get(..self.peers.len().div_ceil(2) + usize::from(!counts)) {
            Some(nearest) => {
                let mine = if counts { self.said.executed } else { own };
                nearest.iter().fold(mine, |kept, executed| kept.intersection(executed))
            }
            None => Frontier::default(),
        }
    }

    pub(super) fn status(&self, own: Frontier, now: Time) -> Vec<PeerStatus> {
        let status = |(&node, peer): (&NodeId, &Peer)| PeerStatus {
            node,
            lag: own.len().saturating_sub(peer.progress.executed.len()),
            heard_ms: peer.heard.map(|heard| now.since(heard).as_millis() as u64),
        };
        self.peers.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64) -> NodeId {
        NodeId::new(id).expect("an id")
    }

    /// Of the owners 1, 2, ….
    fn frontier(indexes: &[u64]) -> Frontier {
        let mut frontier = Frontier::default();
        (1..).zip(indexes).for_each(|(owner, index)| frontier.set(node(owner), *index));
        frontier
    }

    fn watermarks(executed: &[&[u64]]) -> GcWatermarks {
        let mut watermarks = GcWatermarks::new((2..2 + executed.len() as u64).map(node), Time::ZERO);
        for (id, executed) in (2..).zip(executed) {
            let executed = frontier(executed);
            let progress = Progress { executed, floor: executed, ..Progress::default() };
            assert!(watermarks.on_progress(node(id), &progress, Time::ZERO));
        }
        watermarks
    }

    #[test]
    fn nothing_goes_that_an_unfinished_instance_does_not_depend_on() {
        let mut watermarks = watermarks(&[&[4, 6], &[5, 3]]);
        let own = frontier(&[5, 5]);
        assert_eq!(watermarks.stable(own), frontier(&[4, 3]));
        watermarks.begin(4, frontier(&[3, 1]));
        watermarks.begin(5, frontier(&[4, 9]));
        let none = Frontier::default();
        assert_eq!(watermarks.floor(own, none), frontier(&[3, 1]), "4 may still be recovered somewhere");
        watermarks.advance(node(1), own);
        assert_eq!(watermarks.floor(own, none), frontier(&[4, 3]), "a majority has executed 4 and 5");
        assert_eq!(
            watermarks.floor(own, frontier(&[5, 9])),
            frontier(&[5, 5]),
            "no more than is executed here"
        );
        assert_eq!(watermarks.safe(), Frontier::default(), "this one has said nothing");
        watermarks.on_own_progress(&Progress { floor: own, ..Progress::default() });
        assert_eq!(watermarks.safe(), frontier(&[4, 3]));
        let later = Time::ZERO + ABSENT;
        assert_eq!(watermarks.safe_for_present(own, later), own, "nobody is there");
        watermarks.on_progress(node(2), &Progress::default(), later);
        assert_eq!(watermarks.safe_for_present(own, later), frontier(&[4, 5]));
    }

    #[test]
    fn old_unfinished_instances_that_are_not_told_apart_hold_the_floor_all_the_same() {
        let mut watermarks = watermarks(&[&[0, 3], &[0, 3]]);
        let own = frontier(&[0, 3]);
        watermarks.begin(1, frontier(&[0, 1]));
        (2..=UNFINISHED as u64 + 2).for_each(|index| watermarks.begin(index, frontier(&[0, 9])));
        watermarks.advance(node(1), own);
        assert_eq!(watermarks.unfinished.len(), UNFINISHED);
        assert_eq!(watermarks.floor(own, own), frontier(&[0, 1]), "the first may still be recovered");
    }

    #[test]
    fn progress_is_never_taken_back() {
        let mut watermarks = watermarks(&[&[4, 6]]);
        watermarks.on_progress(node(2), &Progress::default(), Time::ZERO);
        assert_eq!(watermarks.stable(frontier(&[9, 9])), frontier(&[4, 6]));
        assert!(!watermarks.on_progress(node(7), &Progress::default(), Time::ZERO), "a stranger");
    }

    #[test]
    fn who_was_not_heard_lately_is_asked_only_if_nobody_else_is_ahead() {
        let mut watermarks = watermarks(&[&[2], &[1], &[2]]);
        let ahead = |watermarks: &GcWatermarks| watermarks.ahead_of(&frontier(&[1]), Time::ZERO + ABSENT);
        assert_eq!(ahead(&watermarks), [node(2), node(4)], "nobody was heard");
        watermarks.on_progress(node(3), &Progress::default(), Time::ZERO + ABSENT);
        assert_eq!(ahead(&watermarks), [node(2), node(4)], "who was heard is not ahead");
        watermarks.on_progress(node(4), &Progress::default(), Time::ZERO + ABSENT);
        assert_eq!(ahead(&watermarks), [node(4)]);
    }

    #[test]
    fn a_peer_rejoins_until_it_has_executed_something_or_says_so_no_more() {
        let mut watermarks = watermarks(&[&[1], &[1]]);
        let rejoining = |watermarks: &GcWatermarks, at: Time| watermarks.rejoining(at).contains(node(2));
        watermarks.on_rejoin(node(2), Time::ZERO);
        watermarks.on_progress(node(2), &Progress::default(), Time::ZERO);
        assert!(rejoining(&watermarks, Time::ZERO) && !rejoining(&watermarks, Time::ZERO + ABSENT));
        let executed = frontier(&[1]);
        watermarks.on_progress(node(2), &Progress { executed, ..Progress::default() }, Time::ZERO);
        assert!(!rejoining(&watermarks, Time::ZERO));
    }

    #[test]
    fn what_is_behind_the_barriers_of_a_majority_is_agreed_upon() {
        let mut watermarks = GcWatermarks::new((2..=5).map(node), Time::ZERO);
        let own = Progress { barrier: frontier(&[7, 3]), heard: frontier(&[9, 0]), ..Progress::default() };
        for (id, barrier, heard, expected) in [
            (2, &[9, 1], &[0, 20], (&[0, 0], &[9, 20])),
            // A majority of five with this one: each owner's part may be that of another one.
            (3, &[5, 9], &[0, 30], (&[5, 1], &[9, 30])),
            (4, &[6, 2], &[11, 0], (&[6, 2], &[11, 30])),
            // Not beyond the own barrier, and nobody counts who has none.
            (5, &[9, 9], &[0, 0], (&[7, 3], &[11, 30])),
        ] {
            let progress = Progress { barrier: frontier(barrier), heard: frontier(heard), ..own };
            watermarks.on_progress(node(id), &progress, Time::ZERO);
            assert_eq!(
                watermarks.behind_barriers(&own),
                (frontier(expected.0), frontier(expected.1)),
                "{id}"
            );
        }
    }

    #[test]
    fn a_majority_keeps_what_all_of_it_have_executed() {
        let own = frontier(&[5, 5]);
        let watermarks = |peers: &[&[u64]]| {
            let mut watermarks = watermarks(peers);
            watermarks.on_own_progress(&Progress { executed: own, ..Progress::default() });
            watermarks
        };
        for (peers, expected) in [
            (vec![&[4, 2][..], &[1, 1]], frontier(&[4, 2])),
            // One that is ahead may have collected what is missing here.
            (vec![&[4, 6], &[1, 1]], frontier(&[1, 1])),
            (vec![&[9, 9], &[6, 0]], Frontier::default()),
            (vec![&[5, 4], &[4, 4], &[3, 5], &[0, 0]], frontier(&[4, 4])),
        ] {
            assert_eq!(watermarks(&peers).kept_by_a_majority(own, true), expected, "{peers:?}");
        }
        let unsaid = super::tests::watermarks(&[&[5, 5], &[5, 5]]);
        assert_eq!(unsaid.kept_by_a_majority(own, true), Frontier::default(), "it may be lost in a crash");
        let peers = [&[5, 4][..], &[4, 4], &[3, 5], &[0, 0]];
        assert_eq!(
            watermarks(&peers).kept_by_a_majority(own, false),
            frontier(&[3, 4]),
            "a majority of others"
        );
    }
}
