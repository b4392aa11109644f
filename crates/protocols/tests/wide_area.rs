//! The timeouts that a topology sets.

use std::time::Duration;

use quorate_core::Topology;
use quorate_protocols::registry::named;
use quorate_protocols::wide_area::settings;

#[test]
fn timeouts_are_the_papers_until_distances_outgrow_them() {
    let geo = settings(&Topology::named("geo").unwrap(), named("multipaxos"), 5);
    assert_eq!(geo[..2], ["heartbeat=120ms", "election.timeout=1200ms"]);
    let far = [("a", "b", 478), ("a", "c", 30), ("b", "c", 20)];
    let far = far.map(|(from, to, millis)| (from, to, Duration::from_millis(millis)));
    let far = Topology::new(&["a", "b", "c"], far, Duration::from_millis(1)).unwrap();
    assert_eq!(settings(&far, named("multipaxos"), 3)[..2], ["heartbeat=240ms", "election.timeout=2400ms"]);
}

#[test]
fn a_protocol_is_given_the_timeouts_that_it_knows() {
    let geo = settings(&Topology::named("geo").unwrap(), named("unreplicated"), 1);
    assert!(!geo.iter().any(|setting| setting.starts_with("election")), "{geo:?}");
    assert!(
        settings(&Topology::named("geo").unwrap(), named("raft"), 5)
            .contains(&"lease.duration=2500ms".to_owned())
    );
}
