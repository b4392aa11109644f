//! The status of a node with several groups: those of its groups, put together.

use std::collections::BTreeMap;

use quorate_core::{NodeId, PeerStatus, REJOINING, Sample, Status};

/// What is true of the node whichever group is meant: it leads if it leads any, and its positions are sums.
pub(super) fn of_all(groups: &[Status], node: Option<NodeId>) -> Option<Status> {
    let leads = |status: &&Status| status.leader.is_some() && status.leader == node;
    let shown = groups.iter().find(|status| status.role == REJOINING);
    let shown = shown.or_else(|| groups.iter().find(leads)).or(groups.first())?;
    let is_led = groups.iter().all(|status| status.leader.is_some());
    let mut peers: BTreeMap<NodeId, PeerStatus> = BTreeMap::new();
    for peer in groups.iter().flat_map(|status| &status.peers) {
        let of_all = peers.entry(peer.node).or_insert_with(|| peer.clone());
        of_all.lag = of_all.lag.max(peer.lag);
        of_all.heard_ms = of_all.heard_ms.into_iter().chain(peer.heard_ms).min();
    }
    let facts: BTreeMap<_, _> = groups.iter().rev().flat_map(|status| status.facts.clone()).collect();
    let alike = groups.iter().all(|status| status.reads == shown.reads);
    Some(Status {
        role: shown.role,
        leader: shown.leader.filter(|_| is_led || leads(&shown)),
        ballot: groups.iter().map(|status| &*status.ballot).collect::<Vec<_>>().join(","),
        committed: groups.iter().map(|status| status.committed).sum(),
        applied: groups.iter().map(|status| status.applied).sum(),
        lease: groups.iter().all(|status| status.lease),
        reads: if alike { shown.reads } else { "by group" },
        peers: peers.into_values().collect(),
        samples: labelled(groups.iter().map(|status| status.samples.clone())),
        facts: facts.into_iter().collect(),
    })
}

/// Samples of each group, those of one name together; what tells one from others of its name already stays.
pub(super) fn labelled(of_groups: impl Iterator<Item = Vec<Sample>>) -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::new();
    for (group, samples) in (1..).zip(of_groups) {
        all.extend(samples.into_iter().map(|sample| match sample.label.clone() {
            None => sample.with("group", group.to_string()),
            Some((label, value)) => sample.with(label, format!("{group}:{value}")),
        }));
    }
    all.sort_by_key(|sample| sample.name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group with this role, led by that node (0: nobody), whose reads are served so.
    fn group((role, leader, reads): (&'static str, u64, &'static str)) -> Status {
        Status {
            role,
            leader: NodeId::new(leader),
            ballot: leader.to_string(),
            committed: 7,
            applied: 5,
            lease: leader == 1,
            reads,
            peers: Vec::new(),
            samples: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Of node 1.
    #[test]
    #[allow(clippy::type_complexity, reason = "a table")]
    fn a_node_leads_if_it_leads_any_group_and_follows_if_all_are_led() {
        let table: [(&[(&str, u64, &str)], (&str, u64, &str)); 7] = [
            (&[("follower", 2, "lease"), ("leader", 1, "lease")], ("leader", 1, "lease")),
            (&[("candidate", 0, "lease"), ("leader", 1, "lease")], ("leader", 1, "lease")),
            (&[("follower", 2, "lease"), ("follower", 3, "lease")], ("follower", 2, "lease")),
            (&[("follower", 2, "lease"), ("candidate", 0, "lease")], ("follower", 0, "lease")),
            (&[("leader", 1, "lease"), ("follower", 2, "quorum")], ("leader", 1, "by group")),
            (&[("follower", 2, "lease"), (REJOINING, 3, "none")], (REJOINING, 3, "by group")),
            (&[("leader", 1, "lease"), (REJOINING, 0, "lease")], (REJOINING, 0, "lease")),
        ];
        for (groups, (role, leader, reads)) in table {
            let words = groups;
            let groups: Vec<_> = groups.iter().copied().map(group).collect();
            let whole = of_all(&groups, NodeId::new(1)).expect("there are groups");
            assert_eq!(
                (whole.role, whole.leader, whole.reads),
                (role, NodeId::new(leader), reads),
                "{words:?}"
            );
            assert_eq!((whole.committed, whole.applied), (14, 10));
            assert_eq!(whole.lease, words.iter().all(|(_, leader, _)| *leader == 1));
            assert_eq!(whole.ballot, format!("{},{}", words[0].1, words[1].1));
        }
        assert_eq!(of_all(&[], NodeId::new(1)), None);
        // A proxy alone leads nothing.
        let led = [group(("client", 1, "")), group(("client", 0, ""))];
        assert_eq!(of_all(&led, None).map(|whole| whole.leader), Some(None));
    }

    #[test]
    fn of_a_peer_the_longest_lag_and_the_last_word_are_told_and_of_facts_the_first_group_s() {
        let peer =
            |node, lag, heard_ms| PeerStatus { node: NodeId::new(node).expect("an id"), lag, heard_ms };
        let [mut one, mut other] = [group(("leader", 1, "")), group(("leader", 1, ""))];
        (one.peers, one.facts) = (vec![peer(2, 3, None), peer(3, 0, Some(9))], vec![("a", "1".into())]);
        other.peers = vec![peer(2, 1, Some(4)), peer(3, 5, Some(2)), peer(4, 0, None)];
        other.facts = vec![("a", "2".into()), ("b", "2".into())];
        let whole = of_all(&[one, other], NodeId::new(1)).expect("there are groups");
        assert_eq!(whole.peers, [peer(2, 3, Some(4)), peer(3, 5, Some(2)), peer(4, 0, None)]);
        assert_eq!(whole.facts, [("a", "1".to_owned()), ("b", "2".to_owned())]);
    }
}
