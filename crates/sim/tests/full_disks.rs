//! Nodes find their disks nearly full, and have room again: what is refused takes no effect, and the rest goes on.

use quorate_protocols::registry::{self, named};
use quorate_runtime::AnyProtocol;
use quorate_sim::faults::Kind;
use quorate_sim::{Options, sim};

fn refuses(protocol: &'static dyn AnyProtocol, nodes: usize, settings: &[&str]) {
    let faults = "all,nearly-full-disks".parse().expect("kinds of faults");
    let settings = settings.iter().map(ToString::to_string).collect();
    let options = Options { nodes, faults, settings, runs: 5, ..Options::default() };
    let summary = sim(protocol, &options, &mut |_| {}).expect("valid options");
    assert!(summary.is_fine() && summary.faults.of(Kind::NearlyFullDisks) > 10, "{summary}");
}

#[test]
fn what_a_node_refuses_whose_disk_is_nearly_full_takes_no_effect() {
    for entry in registry::all() {
        let nodes = 3.clamp(entry.capabilities.min_nodes, entry.capabilities.max_nodes);
        refuses(entry.protocol, nodes, &[]);
    }
    refuses(named("zab"), 5, &["reads=local"]);
}
