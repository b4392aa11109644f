//! What every replica tells of itself, whatever its protocol.

use quorate_blocks::state::{Replicated, level};
use quorate_core::{FeatureLevel, Instant, ProxyId, Random, Saved, Settings, Time, Wall};
use quorate_protocols::registry;
use quorate_runtime::{OwnMessages, Start};

/// Drivers look for these samples by name: a node bounds its log by `store_bytes`, `/metrics` and `CONFIG GET` show
/// them. They also ask a replica for its feature level.
#[test]
fn every_replica_tells_of_its_state_and_its_level() {
    let at = Instant { now: Time::ZERO, wall: Wall::ZERO, clock: None };
    let names = Replicated::default().samples().map(|sample| sample.name);
    assert!(names.contains(&"store_keys") && names.contains(&"store_bytes"));
    for entry in registry::all() {
        let group = entry.small_group();
        let node = group.members.iter().next();
        let configured = entry.protocol.configure(&group, &mut Settings::default()).unwrap();
        let mut process = configured.start(Start {
            proxy: ProxyId(1),
            node,
            at,
            random: Random::new(1),
            observed: false,
            own: OwnMessages::Settled,
        });
        process.load(Saved::nothing()).unwrap();
        process.start_replica(at, Random::new(2));
        let status = process.status(at).unwrap();
        for name in names {
            let told = status.samples.iter().filter(|sample| sample.name == name).count();
            assert_eq!(told, 1, "{}: {name}", entry.name);
        }
        let level = process.read(&level::question()).and_then(level::answer);
        assert_eq!(level, Some(FeatureLevel::FIRST), "{}", entry.name);
    }
}
