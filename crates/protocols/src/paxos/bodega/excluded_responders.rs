//! Doing without responders that have failed: the leader's bookkeeping.
//!
//! Problem: writes wait for each responder (a replica to which others have granted leases to read locally), even if it
//! is silent. Solution: the leader **excludes** it, that is, names it to all. Each grantor that no longer grants it a
//! lease, and will grant none under this exclusion, confirms that. What a majority has confirmed holds for good.
//!
//! Exclusions are numbered, and each names all responders that are excluded. Number 0 comes with the ballot and needs
//! no confirmation. *A responder that is alive again is readmitted in two steps.* First writes that are not chosen yet
//! wait for it again, and it stays excluded until it has executed whatever was proposed before. Then the next exclusion
//! no longer names it. Grantors that have heard of neither may still grant it leases of the time before: it must not
//! depend on them.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_core::{NodeId, NodeSet, Time, mutation};

/// As the leader of a ballot sees it.
#[derive(Clone, Debug, Default)]
pub struct ExcludedResponders {
    seq: u64,
    out: BTreeMap<NodeId, Out>,
    confirmations: BTreeMap<NodeId, u64>,
}

/// A responder that is excluded.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// The number of the first exclusion that names it.
    seq: u64,
    since: Time,
    /// Writes in slots behind this one wait for it again; it is readmitted when it has executed those up to here.
    readmit_after: Option<u64>,
}

/// What the leader knows of a responder.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// Whether it has spoken lately, votes when others do, and has a vote.
    pub alive: bool,
    /// Whether it has executed almost everything that is chosen.
    pub caught_up: bool,
    /// Up to where it has executed, and stored what that takes.
    pub executed: u64,
}

/// What a review has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reviewed {
    /// There is a new exclusion, of which everybody is to be told.
    pub named: bool,
    /// Others than before are needed.
    pub needed: bool,
}

impl ExcludedResponders {
    /// Of a ballot that begins with these responders excluded.
    pub fn new(excluded: NodeSet, now: Time) -> ExcludedResponders {
        let out =
            excluded.iter().map(|node| (node, Out { seq: 0, since: now, readmit_after: None })).collect();
        ExcludedResponders { seq: 0, out, confirmations: BTreeMap::new() }
    }

    /// The number of the last exclusion.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// All responders that it names.
    pub fn nodes(&self) -> NodeSet {
        self.out.keys().copied().collect()
    }

    /// Those of a group that have not confirmed the last.
    pub fn unconfirmed(&self, group: NodeSet) -> NodeSet {
        let confirmed = |node: &NodeId| self.confirmations.get(node).copied().unwrap_or(0);
        group.iter().filter(|node| confirmed(node) < self.seq).collect()
    }

    /// Looks at each that might be excluded. `last`: the last slot that is proposed. Nobody is readmitted before
    /// `failure` has passed.
    pub fn review(
        &mut self,
        health: impl Iterator<Item = (NodeId, Health)>,
        last: u64,
        failure: Duration,
        now: Time,
    ) -> Reviewed {
        let (mut reviewed, seq) = (Reviewed::default(), self.seq + 1);
        for (node, Health { alive, caught_up, executed }) in health {
            let done = |slot| executed >= slot || mutation::active("exclusion/readmit-at-once");
            match self.out.get_mut(&node) {
                None if !alive => {
                    self.out.insert(node, Out { seq, since: now, readmit_after: None });
                    reviewed.named = true;
                }
                Some(Out { readmit_after: Some(slot), .. }) if alive && done(*slot) => {
                    self.out.remove(&node);
                    reviewed.named = true;
                }
                Some(Out { readmit_after: readmit_after @ Some(_), .. }) if !alive => {
                    *readmit_after = None;
                    reviewed.needed = true;
                }
                Some(Out { since, readmit_after: readmit_after @ None, .. })
                    if alive && now.since(*since) >= failure && caught_up =>
                {
                    *readmit_after = Some(last);
                    reviewed.needed = true;
                }
                None | Some(_) => {}
            }
        }
        self.seq += u64::from(reviewed.named);
        reviewed
    }

    /// A voter has confirmed this exclusion and all before it. Whether that is new.
    pub fn confirm(&mut self, voter: NodeId, seq: u64) -> bool {
        let known = self.confirmations.entry(voter).or_default();
        let new = *known < seq;
        *known = seq.max(*known);
        new
    }

    /// The last exclusion that this voter has confirmed, and the last that any other has.
    pub fn confirmed_by(&self, voter: NodeId) -> (u64, u64) {
        let own = self.confirmations.get(&voter).copied().unwrap_or(0);
        let others = self.confirmations.iter().filter(|(node, _)| **node != voter).map(|(_, seq)| *seq);
        (own, others.max().unwrap_or(0))
    }

    /// Those that writes can do without. `reached`: the largest of the voters' numbers that a majority has reached.
    pub fn dispensable(&self, reached: impl Fn(&dyn Fn(NodeId) -> Option<u64>) -> Option<u64>) -> NodeSet {
        let confirmed = |voter| Some(self.confirmations.get(&voter).copied().unwrap_or(0));
        let reached = match mutation::active("exclusion/unconfirmed") {
            true => Some(u64::MAX),
            false => reached(&confirmed),
        };
        let Some(reached) = reached else { return NodeSet::EMPTY };
        let out = self.out.iter().filter(|(_, out)| out.seq <= reached && out.readmit_after.is_none());
        out.map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_blocks::quorum::majority_reached;

    #[test]
    fn one_that_fails_is_done_without_once_a_majority_has_confirmed_it_and_comes_back_in_two_steps() {
        let node = |id| NodeId::new(id).unwrap();
        let voters: NodeSet = (1..=3).map(node).collect();
        let mut exclusion = ExcludedResponders::new(NodeSet::EMPTY, Time::ZERO);
        // at (ms), r3 is alive, caught up, has executed; who confirms → named, needed, excluded, dispensable
        let table = "
            0   alive  caught_up 0  -   → no  no  -  -
            100 lost caught_up 0  -   → yes no  r3 -
            110 lost caught_up 0  r1  → no  no  r3 -
            120 lost caught_up 0  r2  → no  no  r3 r3
            150 alive  caught_up 0  -   → no  no  r3 r3
            210 alive  far  0  -   → no  no  r3 r3
            220 alive  caught_up 0  -   → no  yes r3 -
            230 lost caught_up 0  -   → no  yes r3 r3
            240 alive  caught_up 0  -   → no  yes r3 -
            250 alive  caught_up 6  -   → no  no  r3 -
            260 alive  caught_up 7  -   → yes no  -  -
            300 lost caught_up 7  -   → yes no  r3 -
            310 lost caught_up 7  r1  → no  no  r3 -
            320 lost caught_up 7  r2  → no  no  r3 r3
        ";
        let name = |set: NodeSet| if set.is_empty() { "-" } else { "r3" };
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (given, expected) = line.split_once('→').unwrap();
            let words: Vec<_> = given.split_whitespace().collect();
            let now = Time::ZERO + Duration::from_millis(words[0].parse().unwrap());
            let executed = words[3].parse().unwrap();
            let health = Health { alive: words[1] == "alive", caught_up: words[2] == "caught_up", executed };
            let reviewed =
                exclusion.review([(node(3), health)].into_iter(), 7, Duration::from_millis(100), now);
            if let Some(id) = words[4].strip_prefix('r') {
                let (voter, seq) = (node(id.parse().unwrap()), exclusion.seq());
                assert!(exclusion.confirm(voter, seq) && !exclusion.confirm(voter, seq), "{line}");
            }
            let dispensable =
                exclusion.dispensable(|confirmed| majority_reached(voters.iter().map(confirmed)));
            let yes = |yes| if yes { "yes" } else { "no" };
            let found =
                [yes(reviewed.named), yes(reviewed.needed), name(exclusion.nodes()), name(dispensable)]
                    .join(" ");
            assert_eq!(found, expected.split_whitespace().collect::<Vec<_>>().join(" "), "{line}");
        }
    }

    #[test]
    fn what_comes_with_the_ballot_needs_no_confirmation() {
        let excluded = NodeSet::from_iter(NodeId::new(2));
        let exclusion = ExcludedResponders::new(excluded, Time::ZERO);
        assert_eq!(exclusion.dispensable(|confirmed| confirmed(NodeId::new(1)?)), excluded);
        assert_eq!(exclusion.unconfirmed(excluded), NodeSet::EMPTY);
    }
}
