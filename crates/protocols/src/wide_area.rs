//! The timeouts that suit a [`Topology`]: those of the Bodega paper, or longer ones ([`quorate_blocks::reach`]).

use quorate_blocks::reach::Reach;
use quorate_core::Topology;
use quorate_runtime::AnyProtocol;

/// Those of them that a protocol has as settings, as `name=value`.
pub fn settings(topology: &Topology, protocol: &dyn AnyProtocol, nodes: usize) -> Vec<String> {
    let defaults = protocol.defaults(nodes);
    let reach = Reach::of(topology.furthest()).max(Reach::PAPERS);
    let known = reach.timeouts().filter(|(name, _)| defaults.contains_key(*name));
    known.map(|(name, timeout)| format!("{name}={}ms", timeout.as_millis())).collect()
}
