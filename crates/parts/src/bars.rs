//! How a leader comes to do without replicas that have failed, by others' promise to support them no more; its
//! bookkeeping.
//!
//! Problem: a replica that others support (by leases, say) must be waited for, even if it is silent. Solution: the
//! leader **bars** it, that is, names it to all; whoever no longer supports it, nor ever will under these bars,
//! confirms that; and what a majority has confirmed holds for good.
//!
//! Bars are numbered, and each names all that are barred. Number 0 comes with the ballot, and needs no confirmation.
//! *One that is fit again comes back in two steps.* First it is needed again, for all that is not chosen, and stays
//! barred until it has executed whatever was proposed before. Then it is named no more. Those that have not heard of
//! it in all the time may go on as they did before it was barred: it must not depend on them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, Time, mutation};

/// As the leader of a ballot sees it.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    seq: u64,
    out: BTreeMap<NodeId, Out>,
    confirmed: BTreeMap<NodeId, u64>,
}

/// One that is barred.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// Since these bars.
    seq: u64,
    since: Time,
    /// It is needed again, for all slots behind this one; when it has executed those up to here, it may come back.
    back: Option<u64>,
}

/// What the leader knows of one that might be barred.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// Whether it has spoken lately, votes when others do, and has a vote.
    pub fit: bool,
    /// Whether it has executed almost everything that is chosen.
    pub near: bool,
    /// Up to where it has executed, and stored what that takes.
    pub executed: u64,
}

/// What a review has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// There are new bars, of which everybody is to be told.
    pub named: bool,
    /// Others than before are needed.
    pub needed: bool,
}

impl Bars {
    /// Of a ballot that begins with these.
    pub fn new(barred: NodeSet, now: Time) -> Bars {
        let out = barred.iter().map(|node| (node, Out { seq: 0, since: now, back: None })).collect();
        Bars { seq: 0, out, confirmed: BTreeMap::new() }
    }

    /// The number of the last.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// All that they name.
    pub fn nodes(&self) -> NodeSet {
        self.out.keys().copied().collect()
    }

    /// Those of a group that have not confirmed the last.
    pub fn unconfirmed(&self, group: NodeSet) -> NodeSet {
        let confirmed = |node: &NodeId| self.confirmed.get(node).copied().unwrap_or(0);
        group.iter().filter(|node| confirmed(node) < self.seq).collect()
    }

    /// Looks at each that might be barred. `last`: the last slot that is proposed. Nobody comes back before `failure`
    /// has passed.
    pub fn review(
        &mut self,
        health: impl Iterator<Item = (NodeId, Health)>,
        last: u64,
        failure: Duration,
        now: Time,
    ) -> Reviewed {
        let (mut reviewed, seq) = (Reviewed::default(), self.seq + 1);
        for (node, Health { fit, near, executed }) in health {
            let done = |slot| executed >= slot || mutation::active("bars/back-at-once");
            match self.out.get_mut(&node) {
                None if !fit => {
                    self.out.insert(node, Out { seq, since: now, back: None });
                    reviewed.named = true;
                }
                Some(Out { back: Some(slot), .. }) if fit && done(*slot) => {
                    self.out.remove(&node);
                    reviewed.named = true;
                }
                Some(Out { back: back @ Some(_), .. }) if !fit => {
                    *back = None;
                    reviewed.needed = true;
                }
                Some(Out { since, back: back @ None, .. }) if fit && now.since(*since) >= failure && near => {
                    *back = Some(last);
                    reviewed.needed = true;
                }
                None | Some(_) => {}
            }
        }
        self.seq += u64::from(reviewed.named);
        reviewed
    }

    /// A voter has confirmed these and all before. Whether that is new.
    pub fn confirm(&mut self, voter: NodeId, seq: u64) -> bool {
        let known = self.confirmed.entry(voter).or_default();
        let new = *known < seq;
        *known = seq.max(*known);
        new
    }

    /// Those that can be done without. `reached`: the largest of the voters' numbers that a majority has reached.
    pub fn excluded(&self, reached: impl Fn(&dyn Fn(NodeId) -> Option<u64>) -> Option<u64>) -> NodeSet {
        let confirmed = |voter| Some(self.confirmed.get(&voter).copied().unwrap_or(0));
        let reached = match mutation::active("bars/unconfirmed") {
            true => Some(u64::MAX),
            false => reached(&confirmed),
        };
        let Some(reached) = reached else { return NodeSet::EMPTY };
        let out = self.out.iter().filter(|(_, out)| out.seq <= reached && out.back.is_none());
        out.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::majority_reached;

    #[test]
    fn one_that_fails_is_done_without_once_a_majority_has_confirmed_it_and_comes_back_in_two_steps() {
        let node = |id| NodeId::new(id).unwrap();
        let voters: NodeSet = (1..=3).map(node).collect();
        let mut bars = Bars::new(NodeSet::EMPTY, Time::ZERO);
        // at (ms), r3 is fit, near, has executed; who confirms → named, needed, barred, excluded
        let table = "
            0   fit  near 0  -   → no  no  -  -
            100 lost near 0  -   → yes no  r3 -
            110 lost near 0  r1  → no  no  r3 -
            120 lost near 0  r2  → no  no  r3 r3
            150 fit  near 0  -   → no  no  r3 r3
            210 fit  far  0  -   → no  no  r3 r3
            220 fit  near 0  -   → no  yes r3 -
            230 lost near 0  -   → no  yes r3 r3
            240 fit  near 0  -   → no  yes r3 -
            250 fit  near 6  -   → no  no  r3 -
            260 fit  near 7  -   → yes no  -  -
            300 lost near 7  -   → yes no  r3 -
            310 lost near 7  r1  → no  no  r3 -
            320 lost near 7  r2  → no  no  r3 r3
        ";
        let name = |set: NodeSet| if set.is_empty() { "-" } else { "r3" };
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (given, expected) = line.split_once('→').unwrap();
            let words: Vec<_> = given.split_whitespace().collect();
            let now = Time::ZERO + Duration::from_millis(words[0].parse().unwrap());
            let executed = words[3].parse().unwrap();
            let health = Health { fit: words[1] == "fit", near: words[2] == "near", executed };
            let reviewed = bars.review([(node(3), health)].into_iter(), 7, Duration::from_millis(100), now);
            if let Some(id) = words[4].strip_prefix('r') {
                let (voter, seq) = (node(id.parse().unwrap()), bars.seq());
                assert!(bars.confirm(voter, seq) && !bars.confirm(voter, seq), "{line}");
            }
            let excluded = bars.excluded(|confirmed| majority_reached(voters.iter().map(confirmed)));
            let yes = |yes| if yes { "yes" } else { "no" };
            let found =
                [yes(reviewed.named), yes(reviewed.needed), name(bars.nodes()), name(excluded)].join(" ");
            assert_eq!(found, expected.split_whitespace().collect::<Vec<_>>().join(" "), "{line}");
        }
    }

    #[test]
    fn what_comes_with_the_ballot_needs_no_confirmation() {
        let barred = NodeSet::from_iter(NodeId::new(2));
        let bars = Bars::new(barred, Time::ZERO);
        assert_eq!(bars.excluded(|confirmed| confirmed(NodeId::new(1)?)), barred);
        assert_eq!(bars.unconfirmed(barred), NodeSet::EMPTY);
    }
}
