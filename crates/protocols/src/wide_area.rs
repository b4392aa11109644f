//! The timeouts that suit a [`Topology`]: those of the Bodega paper (§3.3.3, §6), and longer ones in proportion where
//! its rule (a heartbeat above the usual round trip, the rest far above a heartbeat) asks for them.

use std::time::Duration;

use quorate_core::Topology;
use quorate_runtime::AnyProtocol;

/// Up to this round trip the paper's timeouts fit: twice its heartbeat.
const PAPERS_REACH: Duration = Duration::from_millis(240);

/// The timeouts in milliseconds, by the names of settings.
const TIMEOUTS: [(&str, u64); 7] = [
    ("heartbeat", 120),
    ("election.timeout", 1200),
    ("lease.guard", 2500),
    ("lease.duration", 2500),
    ("lease.drift", 100),
    // A write may wait for the trip to the leader and for its quorum; then a proxy asks again.
    ("proxy.patience", 1000),
    // "All protocols send immediate Commit notifications" (§6): reads far away wait for them.
    ("commit.delay", 0),
];

/// Those of them that a protocol has as settings, as `name=value`.
pub fn settings(topology: &Topology, protocol: &dyn AnyProtocol, nodes: usize) -> Vec<String> {
    let defaults = protocol.defaults(nodes);
    let known = TIMEOUTS.iter().filter(|(name, _)| defaults.contains_key(*name));
    known.map(|(name, millis)| format!("{name}={}ms", scaled(*millis, topology.furthest()))).collect()
}

fn scaled(millis: u64, furthest: Duration) -> u64 {
    let reach = PAPERS_REACH.as_millis() as u64;
    millis.max((millis * furthest.as_millis() as u64).div_ceil(reach))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::named;

    #[test]
    fn timeouts_are_the_papers_until_distances_outgrow_them() {
        let geo = settings(&Topology::named("geo").unwrap(), named("multipaxos"), 5);
        assert_eq!(geo[..2], ["heartbeat=120ms", "election.timeout=1200ms"]);
        let far = [("a", "b", 478), ("a", "c", 30), ("b", "c", 20)];
        let far = far.map(|(from, to, millis)| (from, to, Duration::from_millis(millis)));
        let far = Topology::new(&["a", "b", "c"], far, Duration::from_millis(1)).unwrap();
        assert_eq!(
            settings(&far, named("multipaxos"), 3)[..2],
            ["heartbeat=240ms", "election.timeout=2400ms"]
        );
    }

    #[test]
    fn a_protocol_is_given_the_timeouts_that_it_knows() {
        let geo = settings(&Topology::named("geo").unwrap(), named("unreplicated"), 1);
        assert!(!geo.iter().any(|setting| setting.starts_with("election")), "{geo:?}");
    }
}
